"""A sweep on a Dask cluster: a scheduler and two workers, processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stripe.diag import CompileError
from stripec.cli import main
from stripec.exploring import cluster
from stripec.exploring.measure import Job, Task

ROOT = Path(__file__).parents[4]
VARY = ["--vary", "memory.SPAD.bytes=8K..64K:x2", "--vary", "memory.ACC.bytes=16K,32K,64K"]
SWEEP = ["explore", "product.tile", "--shape", "A=i8[96,80]", "--shape", "B=i8[80,112]", *VARY]
SECONDS = 120  # at most, on a busy machine
DASK = "import sys; sys.path.insert(0, sys.argv.pop(1)); from dask.__main__ import main; sys.exit(main())"


@dataclass
class Cluster:
    address: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture
def running(folder: Path) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    processes: list[subprocess.Popen[bytes]] = []

    def dask(*words: str) -> subprocess.Popen[bytes]:
        log = (folder / f"{len(processes)}.log").open("wb")
        command = [sys.executable, "-c", DASK, str(ROOT), *words, "--no-dashboard"]
        processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        log.close()
        return processes[-1]

    try:
        dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", "scheduler.json")
        workers = [
            dask("worker", "--scheduler-file", "scheduler.json", "--no-nanny", "--nthreads", "1")
            for _ in range(2)
        ]
        end = time.monotonic() + SECONDS
        while not (folder / "scheduler.json").exists() or b"Registered to" not in b"".join(
            path.read_bytes() for path in folder.glob("*.log")
        ):
            assert time.monotonic() < end, (folder / "0.log").read_text()
            time.sleep(0.1)
        yield Cluster(json.loads((folder / "scheduler.json").read_text())["address"], workers)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing(folder: Path, running: Cluster) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stripec.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *SWEEP, "--cluster", running.address, "-o", "parts"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    journal = Path("parts", "journal.jsonl")
    end = time.monotonic() + SECONDS
    while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    assert journal.read_bytes().count(b"\n") < 13, "it is killed in the middle"
    running.workers[0].kill()
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    assert b"Traceback" not in said
    assert main([*SWEEP, "--jobs", "1", "-o", "whole"]) == 0
    for name in ("points.json", "pareto.svg"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()
    points = [json.loads(line)["point"] for line in journal.read_text().splitlines()[1:]]
    assert sorted(points) == list(range(12)), "each point once"


@pytest.mark.slow
def test_a_worker_of_another_version_is_told(running: Cluster) -> None:
    job = Job((), "simulated", "on", "0.0.1-another")
    with pytest.raises(CompileError, match="a worker of the cluster has another version of stripec"):
        list(cluster.run_tasks(job, [Task((0,), ())], running.address))


@pytest.mark.parametrize("address", ["nonsense", "a b:1", "http://a:1", "tcp://a:b", "", "a:1/x"])
def test_what_is_no_address_is_told(folder: Path, capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert main([*SWEEP, "--cluster", address]) == 1
    assert "is no address of a scheduler" in capsys.readouterr().err


def test_without_the_package_the_extra_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main([*SWEEP, "--cluster", "localhost:1"]) == 1
    assert "pip install 'stripec[cluster]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_told(folder: Path) -> None:
    pytest.importorskip("distributed")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stripec.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *SWEEP, "--cluster", "tcp://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert b"no scheduler answers at 'tcp://127.0.0.1:1'" in done.stderr
    assert b"Traceback" not in done.stderr
