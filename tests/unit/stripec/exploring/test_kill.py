"""A sweep whose processes are killed: nothing that is finished is lost or done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stripec.cli import main
from stripec.exploring import api

ROOT = Path(__file__).parents[4]
VARY = ["--vary", "memory.SPAD.bytes=8K..64K:x2", "--vary", "memory.ACC.bytes=16K,32K,64K"]
SWEEP = ["explore", "product.tile", "--shape", "A=i8[96,80]", "--shape", "B=i8[80,112]", *VARY]
SECONDS = 120  # at most, on a busy machine


@pytest.fixture(autouse=True)
def one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """These sweeps go on also where somebody works on the sources meanwhile."""
    monkeypatch.setattr(api, "compiler", lambda: "this")


MAIN = (
    "import sys; from stripec.exploring import identity; identity.compiler = lambda: 'this'; "
    "from stripec.cli import main; sys.exit(main())"
)


def started(*more: str) -> subprocess.Popen[bytes]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {MAIN}"
    command = [sys.executable, "-c", code, *SWEEP, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(folder: str) -> list[bytes]:
    """The whole lines of the journal."""
    path = Path(folder, "journal.jsonl")
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def wait_for(folder: str, count: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS
    while len(lines(folder)) <= count and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.005)


def children(process: subprocess.Popen[bytes]) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found = [
        int(pid) for task in text.parent.parent.iterdir() for pid in (task / "children").read_text().split()
    ]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def whole() -> None:
    assert main([*SWEEP, "--jobs", "1", "-o", "whole"]) == 0


def same(folder: str) -> None:
    for name in ("points.json", "pareto.svg"):
        assert Path(folder, name).read_bytes() == Path("whole", name).read_bytes()
    points = [json.loads(line)["point"] for line in lines(folder)[1:]]
    assert sorted(points) == list(range(12)), "each point once"


pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks /proc for processes")


def test_a_sweep_that_is_killed_goes_on_where_it_was(folder: Path) -> None:
    process = started("--jobs", "2", "-o", "parts")
    wait_for("parts", 3, process)
    workers = children(process)
    process.kill()
    process.communicate()
    before = lines("parts")
    assert 4 <= len(before) < 13, "it was killed in the middle"
    assert not Path("parts", "points.json").exists()
    end = time.monotonic() + SECONDS
    while any(map(alive, workers)):
        assert time.monotonic() < end, "its processes end, too"
        time.sleep(0.05)
    assert main([*SWEEP, "--jobs", "2", "-o", "parts"]) == 0
    assert lines("parts")[: len(before)] == before
    whole()
    same("parts")


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced(folder: Path) -> None:
    process = started("--jobs", "2", "-o", "parts")
    wait_for("parts", 1, process)
    os.kill(children(process)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert b"error" not in said and b"Traceback" not in said
    whole()
    same("parts")


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(folder: Path) -> None:
    process = started("--jobs", "2", "-o", "parts")
    wait_for("parts", 2, process)
    workers = children(process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert b"interrupted" in said and b"Traceback" not in said
    assert not any(map(alive, workers))
    assert len(lines("parts")) >= 3
    assert main([*SWEEP, "--jobs", "1", "-o", "parts"]) == 0
    whole()
    same("parts")


@pytest.mark.slow
def test_a_point_that_kills_every_process_is_told(folder: Path) -> None:
    """As one that needs more memory than there is does."""
    (folder / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if 'stripec.exploring.worker' in ' '.join(sys.orig_argv):\n"
        "    from stripec.exploring import measure\n"
        "    real = measure.optimise\n"
        "    def optimise(program, hw, **more):\n"
        "        if hw.memories[1].bytes == 16384:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return real(program, hw, **more)\n"
        "    measure.optimise = optimise\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", MAIN, *SWEEP, "--jobs", "2", "-o", "parts"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert b"error[D107]: 3 processes died at point " in done.stderr
    assert b"Traceback" not in done.stderr
    assert all(json.loads(line)["point"] not in (3, 4, 5) for line in lines("parts")[1:])
    assert main([*SWEEP, "--jobs", "1", "-o", "parts"]) == 0
    whole()
    same("parts")
