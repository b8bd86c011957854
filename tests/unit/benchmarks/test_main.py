"""The command: what it runs, what it refuses, and that a whole run works with NumPy alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import environment, scaling
from benchmarks.cases import cases
from benchmarks.main import arguments, choose_cases, choose_peers, read_rows
from benchmarks.peers import PEERS
from benchmarks.peers.base import library_file
from benchmarks.run import Entry, Row, as_record

ROOT = Path(__file__).parents[3]


def names(*argv: str) -> list[str]:
    return [case.name for case in choose_cases(arguments(argv))]


def test_cases_are_the_quick_ones_or_those_asked_for() -> None:
    assert names() == [case.name for case in cases() if case.quick]
    assert names("--family", "attention,resnet", "--only", "8x512") == [
        "attention 8x512x64",
        "causal attention 8x512x64",
        "triangular attention 8x512x64",
    ]
    assert "row sum 1024x1024" in names("--only", "row sum")
    assert not any(name.startswith("L1") for name in names("--only", "row sum"))
    assert len(names("--family", "all")) == len(cases())
    assert names("--family", "conv,") == names("--family", "conv")


@pytest.mark.parametrize("argv", [["--family", "nothing"], ["--only", "nothing"], ["--family", ","]])
def test_what_names_no_case_is_refused(argv: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"nothing|no family"):
        names(*argv)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--seconds", "-1"], "'-1' is no number of seconds"),
        (["--seconds", "nan"], "'nan' is no number of seconds"),
        (["--target", "nowhere"], "H001"),
        (["--json", "/no/folder/x.json"], "there is no folder '/no/folder'"),
        (["--plot", "x.bmp"], "'x.bmp' ends with none of .svg, .png"),
    ],
)
def test_what_can_not_be_is_refused_ahead(
    argv: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (arguments, scaling.arguments) if argv[0] != "--plot" else (arguments,):
        with pytest.raises(SystemExit):
            command(argv)
        assert reason in capsys.readouterr().err


def test_peers_are_those_named_and_ourselves() -> None:
    assert [peer.name for peer in choose_peers("numpy")] == ["stripec", "numpy"]
    assert [peer.name for peer in choose_peers("numpy,")] == ["stripec", "numpy"]
    assert [peer.name for peer in choose_peers("")] == ["stripec"]
    assert "torch_compile" not in [peer.name for peer in choose_peers(None)]
    with pytest.raises(SystemExit, match="no peer 'blas'"):
        choose_peers("blas")


def test_peers_that_are_not_installed_take_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> list[object]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("benchmarks.peers.base.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("benchmarks.peers.base.importlib.metadata.files", none)
    assert [peer.name for peer in choose_peers(None)] == ["stripec", "numpy"]
    assert library_file("mkl", "libmkl_rt") == ""
    for name in set(PEERS) - {"stripec", "numpy"}:
        with pytest.raises(SystemExit, match=f"^{name}: .*not installed"):
            choose_peers(name)


def test_peers_have_versions() -> None:
    assert all(peer.version() for peer in PEERS.values())


def test_thread_pools_are_passive_and_of_one_size() -> None:
    made = environment.settings(2, amx=True)
    assert made["OMP_NUM_THREADS"] == made["OPENBLAS_NUM_THREADS"] == made["MKL_NUM_THREADS"] == "2"
    assert (made["OMP_WAIT_POLICY"], made["KMP_BLOCKTIME"], made["GOMP_SPINCOUNT"]) == ("passive", "0", "0")
    assert "ONEDNN_MAX_CPU_ISA" not in made
    assert "ONEDNN_MAX_CPU_ISA" in environment.settings(1, amx=False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{"case": 1}]}'])
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(SystemExit, match="is not the JSON file of a run"):
        read_rows(tmp_path / "run.json")


def test_a_file_that_is_not_there_is_refused_before_the_machine_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--only", "matmul 64x", "--against", "nope.json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 1 and "nope.json is not the JSON file of a run" in done.stderr
    assert "pinned" not in done.stdout


def command(*argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_cases_and_peers_are_listed() -> None:
    text = command("--list")
    assert "chapter H" in text
    assert all(name in text for name in PEERS)


def test_a_whole_run_and_its_comparison(tmp_path: Path) -> None:
    """Compared with a run that was written down before."""
    path, before = tmp_path / "run.json", tmp_path / "before.json"
    old = Row("matmul", "matmul 64x64x64", "GFLOP/s", 1e6, 1, 9.0, 9.0, 9.0, "L1")
    old.entries = [Entry("stripec", "ours", False, 4.5), Entry("numpy", "library", False, 9.0)]
    before.write_text(json.dumps({"rows": [as_record(old)]}))
    text = command(
        "--only",
        "matmul 64x",
        "--peers",
        "numpy",
        "--seconds",
        "0.02",
        "--json",
        str(path),
        "--against",
        str(before),
    )
    assert "pinned to core" in text
    assert "matmul 64x64x64" in text
    record = json.loads(path.read_text())
    assert record["peers"].keys() == {"stripec", "numpy"}
    (row,) = read_rows(path)
    assert row.rate("stripec") and row.rate("numpy") and row.limit
    assert "change against the earlier run" in text
