"""Two threads over one: which peer stands beside ours, the table, and a whole run with NumPy alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import scaling
from benchmarks.run import Entry, Row
from benchmarks.scaling import Scaled

ROOT = Path(__file__).parents[3]


def row(**rates: float | None) -> Row:
    """A row with these rates; what ends in `_packed` had its constant operands ahead."""
    entries = []
    for name, rate in rates.items():
        peer = name.removesuffix("_packed")
        kind = {"stripec": "ours", "halide": "schedule"}.get(peer, "library")
        entries.append(Entry(peer, kind, name.endswith("_packed"), rate))
    return Row("matmul", "small", "GFLOP/s", 1e9, 1000, 120.0, 30.0, 100.0, "L2", None, entries)


ONE = row(stripec=50.0, stripec_packed=60.0, numpy=40.0, torch=80.0, torch_packed=55.0, halide=90.0)
TWO = row(
    stripec=95.0, stripec_packed=120.0, numpy=76.0, torch=60.0, torch_packed=110.0, halide=180.0, jax=200.0
)


def test_ours_stands_beside_the_fastest_peer_on_two_threads_that_ran_on_one() -> None:
    scaled = Scaled(ONE, TWO, 2.0)
    pairs = [(ours.key, peer and peer.key, scaled.scaling(ours)) for ours, peer in scaled.pairs()]
    assert pairs == [("stripec", "numpy", 1.9), ("stripec, packed", "torch, packed", 2.0)]


def test_a_case_without_a_peer_or_without_ours() -> None:
    alone = Scaled(row(stripec=50.0), row(stripec=100.0), 2.0)
    assert [(ours.key, peer) for ours, peer in alone.pairs()] == [("stripec", None)]
    assert list(Scaled(row(stripec=None, numpy=1.0), row(stripec=1.0, numpy=1.0), 2.0).pairs()) == []


def test_the_table_marks_cases_whose_cores_were_not_free() -> None:
    out = StringIO()
    scaling.print_family(Console(file=out, width=200), [Scaled(ONE, TWO, 2.0), Scaled(ONE, TWO, 1.5)])
    lines = [line for line in out.getvalue().splitlines() if "small" in line]
    assert ["1.50 busy" in line for line in lines] == [False, False, True, True]
    assert "1.90" in lines[0] and "numpy" in lines[0] and "1.25" in lines[0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two cores are needed")
def test_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    argv = ["--only", "matmul 64x64x64", "--peers", "numpy", "--seconds", "0.001", "--json", str(path)]
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", *argv], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    (record,) = json.loads(path.read_text())
    assert record["free"] > 0 and {entry["peer"] for entry in record["two"]["entries"]} == {
        "stripec",
        "numpy",
    }
    assert "matmul 64x64x64, packed" in found.stdout
