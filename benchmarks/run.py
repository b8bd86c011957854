"""NumPy and stripec side by side on one core.

Each case runs in one process, interleaved (NumPy, stripec, NumPy, ...), warm, pinned to one
core, one thread each; the table has the median, as GFLOP/s or GB/s and as a fraction of what
this core was measured to be able to do. Results are checked against float64 before timing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import stripec
from benchmarks.cases import Case, cases
from benchmarks.machine import Machine, measure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each case and side")
    parser.add_argument("--target", default="host")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    errors = Console(stderr=True)
    with errors.status("measuring this core"):
        machine = measure()
    _print_machine(console, machine)
    chosen = [c for c in cases() if options.only in c.name]
    rows = [_run(c, machine, options) for c in track(chosen, "measuring", console=errors)]
    _print_rows(console, rows)
    costs = _costs()
    for name, value in costs.items():
        console.print(f"{name}: {value}")
    if options.json:
        record = {"machine": {"gflops": machine.gflops, "read": machine.read, "copy": machine.copy}}
        options.json.write_text(json.dumps({**record, "rows": rows, "costs": costs}, indent=1))


def _print_machine(console: Console, machine: Machine) -> None:
    flops = ", ".join(f"{rate:.1f} with {lanes} lanes" for lanes, rate in machine.gflops.items())
    console.print(f"one core: f32 GFLOP/s {flops}")
    for name, table in (("read", machine.read), ("copy", machine.copy)):
        rates = ", ".join(f"{rate:.0f} at {_size(size)}" for size, rate in table.items())
        console.print(f"one core: {name} GB/s {rates}")


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _run(case: Case, machine: Machine, options: argparse.Namespace) -> dict[str, object]:
    inputs = case.arrays()
    start = time.perf_counter()
    kernel = stripec.compile(case.tile, shapes=inputs, target=options.target)
    compile_seconds = time.perf_counter() - start
    result = kernel(**inputs)
    assert isinstance(result, np.ndarray)
    exact = case.numpy(*(a.astype(np.float64) for a in inputs.values()))
    scale = max(1.0, float(np.abs(exact).max()))
    if not np.allclose(result, exact, rtol=1e-3, atol=1e-4 * scale):
        sys.exit(f"{case.name}: wrong result, off by {np.abs(result - exact).max():.3g}")

    order = list(inputs.values())
    ours, theirs = _interleaved(lambda: kernel(*order), lambda: case.numpy(*order), options.seconds)
    touched = sum(a.nbytes for a in inputs.values()) + result.nbytes
    amount = case.flops or touched
    limit = machine.peak if case.flops else machine.bandwidth(touched, result.nbytes * 4 > touched)
    return {
        "case": case.name,
        "unit": "GFLOP/s" if case.flops else "GB/s",
        "stripec": amount / ours / 1e9,
        "numpy": amount / theirs / 1e9,
        "limit": limit,
        "compile_seconds": compile_seconds,
    }


def _interleaved(
    first: Callable[[], object], second: Callable[[], object], seconds: float
) -> tuple[float, float]:
    """Median seconds for one call of each, run in turn for about `seconds` a side."""
    times: tuple[list[float], list[float]] = ([], [])
    first(), second()
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for function, record in zip((first, second), times, strict=True):
            start = time.perf_counter()
            function()
            record.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def _print_rows(console: Console, rows: list[dict[str, object]]) -> None:
    table = Table("case", title="one thread, interleaved, median")
    for heading in ("stripec", "NumPy", "unit", "ratio", "stripec / limit", "NumPy / limit", "compile s"):
        table.add_column(heading, justify="right")
    for row in rows:
        ours, theirs, limit = (float(str(row[k])) for k in ("stripec", "numpy", "limit"))
        table.add_row(
            str(row["case"]), f"{ours:.1f}", f"{theirs:.1f}", str(row["unit"]), f"{ours / theirs:.2f}",
            f"{ours / limit:.0%}", f"{theirs / limit:.0%}", f"{float(str(row['compile_seconds'])):.2f}",
        )  # fmt: skip
    console.print(table)


def _costs() -> dict[str, str]:
    """Seconds to load all of stripec and to compile one product of 512 x 512 matrices; the cost of a call."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    bare = time.perf_counter() - start
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import stripec; stripec.compile"], check=True)
    imported = time.perf_counter() - start - bare

    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    shapes = {"A": "f32[512, 512]", "B": "f32[512, 512]"}
    code = (
        "import stripec, time; start = time.perf_counter();"
        f"stripec.compile({text!r}, shapes={shapes!r}); print(time.perf_counter() - start)"
    )
    cold = dict(os.environ, STRIPEC_CACHE_DIR="off")
    compiled = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=cold
    )

    tiny = stripec.compile(
        "function (A[N], B[N]) -> (C) { C = A + B; }", shapes={"A": "f32[4]", "B": "f32[4]"}
    )
    a = np.ones(4, np.float32)
    tiny(a, a)
    calls = 20_000
    start = time.perf_counter()
    for _ in range(calls):
        tiny(a, a)
    call = (time.perf_counter() - start) / calls
    return {
        "import stripec, all of it": f"{imported:.3f} s",
        "compile a 512 x 512 x 512 matmul, cold": f"{float(compiled.stdout):.3f} s",
        "call of a tiny kernel": f"{call * 1e6:.1f} us",
    }
