"""`python -m benchmarks.compile_time`: where compile time goes, and how it grows.

Single cases of the benchmark first, from Tile text to a function in memory, cold and from the disk
(benchmarks.compile_cases; `--cases` names others, `--cases none` none). Then one contraction, cold, from
Tile text to Stripe as its target executes it: seconds of each
pass, of verification and of isl inside both; and networks of 25 to 400 kernels, 40 of them
distinct (fewer than 40 kernels are all distinct), each compiled in a process of its own, so that
nothing is remembered and the peak memory is its own: seconds by pass, and the exponent b of
seconds = a * kernels^b, fitted by least squares in logarithms from 50 kernels on, since up to 40 of
them every kernel is new.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from math import log

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.compile_cases import STANDARD, measure, named, table
from benchmarks.options import new_file, target
from stripe import poly
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from stripe.passes.pipeline import StepReport, check_verify_level, run_pipeline
from stripe.passes.registry import check_pipeline, pass_spec
from stripec.driver import resolve_target
from tile_frontend import compile_tile

SIZES = (25, 50, 100, 200, 400)
DISTINCT = 40
LEAST = 0.05  # seconds; what takes less in the largest network has no exponent worth a look

CONTRACTION = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"

Row = dict[str, float]


def network(kernels: int, distinct: int = DISTINCT) -> tuple[str, dict[str, TensorType]]:
    """A chain of this many Tile statements, each a kernel, that repeats after `distinct`: contractions
    with a window over pictures, channels that grow and shrink, and elementwise steps."""

    def channels(step: int) -> int:
        return 16 + 8 * (step % (distinct // 4))

    statements: list[str] = []
    inputs: dict[str, tuple[int, ...]] = {"T0": (14, 14, channels(0))}
    last = "T0"
    for at in range(kernels):
        step, kind = divmod(at, 4)
        here, out = channels(step), channels(step + (kind == 0))
        name, weights = f"T{at + 1}", f"W{at + 1}"
        extent = f"14, 14, {out if kind == 0 else channels(step + 1)}"
        if kind == 0:
            inputs[weights] = (3, 3, here, out)
            term = f"{last}[y + r - 1, x + s - 1, c] * {weights}[r, s, c, k]"
            statements.append(f"{name}[y, x, k : {extent}] = +({term});")
        elif kind == 1:
            inputs[weights] = (channels(step + 1),)
            statements.append(f"{name} = {last} + {weights};")
        elif kind == 2:
            inputs[weights] = (3, 3, channels(step + 1))
            term = f"{last}[y + r - 1, x + s - 1, c] * {weights}[r, s, c]"
            statements.append(f"{name}[y, x, c : {extent}] = +({term});")
        else:
            statements.append(f"{name} = {last} > 0 ? {last} : 0;")
        last = name
    dims = {name: ", ".join(map(str, shape)) for name, shape in inputs.items()}
    signature = ", ".join(f"{name}[{text}]" for name, text in dims.items())
    text = f"function ({signature}) -> ({last}) {{\n  " + "\n  ".join(statements) + "\n}\n"
    return text, {name: TensorType(DType.F32, shape) for name, shape in inputs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("--target", type=target, default="host", help="what is compiled for (default host)")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of kernels")
    parser.add_argument("--verify", default="on", help="off, on or full")
    parser.add_argument("--repeat", type=int, default=1, help="processes for each size; the median counts")
    parser.add_argument(
        "--cases", nargs="+", default=list(STANDARD), help="cases or families of the benchmark, or none"
    )
    parser.add_argument("--processes", type=int, default=3, help="processes for each case; the best counts")
    parser.add_argument("--json", type=new_file, help="write the figures to this file as well")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(_measure(options.one, options.target, options.verify)))
        return
    check_verify_level(options.verify)
    console = Console() if Console().is_terminal else Console(width=140)
    errors = Console(stderr=True)
    chosen = [] if options.cases == ["none"] else options.cases
    imported, of_cases = measure(named(chosen), options.target, options.processes, errors)
    if of_cases:
        console.print(table(imported, of_cases, options.target))
    rows: dict[int, Row] = {}
    for size in track([0, *options.sizes], "compiling", console=errors):
        found = [_in_process(size, options) for _ in range(options.repeat)]
        rows[size] = {key: statistics.median(row[key] for row in found) for key in found[0]}
    _print(console, rows, options)
    if options.json:
        options.json.write_text(
            json.dumps(
                {"target": options.target, "import": imported, "cases": of_cases, "rows": rows}, indent=1
            )
        )


def _in_process(size: int, options: argparse.Namespace) -> Row:
    """The figures of one compilation in a fresh process; 0 kernels stand for one contraction."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--one", str(size)]
    command += ["--target", options.target, "--verify", options.verify]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{size} kernels did not compile:\n{done.stderr[-2000:]}")
    row: Row = json.loads(done.stdout)
    return row


def _measure(kernels: int, target: str, verify: str) -> Row:
    hw = resolve_target(target)
    passes = check_pipeline(hw)
    if kernels:
        text, types = network(kernels)
    else:
        text, types = CONTRACTION, dict.fromkeys("AB", TensorType(DType.F32, (512, 512)))
    row: Row = {}

    def add(name: str, seconds: float) -> None:
        row[name] = row.get(name, 0.0) + seconds

    last = time.perf_counter()

    def observe(report: StepReport, _: Program) -> None:
        add(pass_spec(report.step), report.seconds)
        add("verification", report.verify_seconds)

    started = time.perf_counter()
    program = compile_tile(Source("network.tile", text), types)
    add("front end", time.perf_counter() - started)
    last = time.perf_counter()
    check_verify_level(verify)
    run_pipeline(program, passes, hw, observers=[observe], verify=verify)  # type: ignore[arg-type]
    pipeline = time.perf_counter() - last
    known = sum(seconds for name, seconds in row.items() if name != "front end")
    add("verification", pipeline - known)  # of the program that came in
    row["whole"] = time.perf_counter() - started
    row["isl, inside the others"] = poly.seconds_spent()
    row["peak memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def _print(console: Console, rows: dict[int, Row], options: argparse.Namespace) -> None:
    table = Table("step", title=f"seconds, target {options.target}, verification {options.verify}")
    table.add_column("1 contraction", justify="right")
    for size in options.sizes:
        table.add_column(f"{size} kernels", justify="right")
    table.add_column("exponent", justify="right")
    for name in dict.fromkeys(key for row in rows.values() for key in row):
        points = [(size, rows[size].get(name, 0.0)) for size in options.sizes]
        fitted = "" if name.startswith("peak") else _exponent(points)
        precision = 0 if name.startswith("peak") else 3
        cells = [f"{row.get(name, 0.0):.{precision}f}" for row in rows.values()]
        table.add_row(name, *cells, fitted)
    console.print(table)


def _exponent(points: list[tuple[int, float]]) -> str:
    """The fitted exponent of growth from 50 kernels on, in words where there is none."""
    late = [(size, seconds) for size, seconds in points if size >= 50 and seconds > 0]
    if len(late) < 2 or late[-1][1] < LEAST:
        return "-"
    slope = statistics.linear_regression([log(n) for n, _ in late], [log(s) for _, s in late]).slope
    return f"{slope:.2f}"


if __name__ == "__main__":
    main()
