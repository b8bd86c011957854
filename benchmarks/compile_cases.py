"""What it takes to compile single cases of the benchmark: processor time of each part, cold and from disk.

Each figure is that of a process of its own, which has loaded the compiler and its passes before it
starts to count; of several processes the one that took least counts, part by part from that one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import stripec
from benchmarks.cases import Case, cases
from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.model import HwConfig
from stripe import poly
from stripe.ir import Program
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import check_pipeline
from stripec.collector import collector_paused
from stripec.driver import read_program, resolve_target
from stripec.tensors import as_type
from stripec.threads import with_threads

Row = dict[str, float]

LIMIT, LIMITS = 0.5, {"attention": 1.0}  # seconds, cold; for a family of its own
WARM_LIMIT = 0.020

# A trailing "packed": operands that are weights are constants, packed ahead.
STANDARD = (
    "matmul 512x512x512", "matmul 1024x1024x1024", "matmul 1024x1024x1024 packed", "3x3 s1 64-64 @56",
    "3x3 s1 64-64 @56 packed", "7x7 s2 3-64 @224", "dw3x3 s1 128 @56", "abcd-aebf-dfce",
    "u8 x i8 1024x1024x1024", "bf16 1024x1024x1024", "transpose 2048x2048", "column sum 4096x4096",
    "softmax 4096x1024", "layer norm 4096x768", "gelu 4096x1024", "attention 8x512x64",
)  # fmt: skip


def find(name: str) -> tuple[Case, bool]:
    """A case of the benchmark, and whether its constants are given ahead."""
    packed = name.endswith(" packed")
    wanted = name.removesuffix(" packed")
    found = [case for case in cases() if case.name == wanted]
    if not found:
        sys.exit(f"no case is named '{wanted}'; python -m benchmarks --list shows them")
    return found[0], packed


def cold(name: str, target: str) -> Row:
    """Seconds of each part, nothing found on disk."""
    case, packed = find(name)
    hw: HwConfig = with_threads(resolve_target(target), 1)
    passes = check_pipeline(hw)
    operands = case.problem.operands
    types = {o.name: as_type((o.type, o.shape), o.name) for o in operands}
    constants = [o.name for o in operands if o.constant and packed]
    row: Row = {}
    start = last = time.process_time()

    def done(part: str) -> None:
        nonlocal last
        now = time.process_time()
        row[part] = row.get(part, 0.0) + now - last
        last = now

    def observe(report: StepReport, _: Program) -> None:
        row["verification"] = row.get("verification", 0.0) + report.verify_seconds

    with collector_paused():
        program = read_program(case.problem.tile).lower(types, constants)
        done("front end")
        program = run_pipeline(program, passes, hw, observers=[observe])
        done("passes")
        row["passes"] -= row["verification"]
        module = build(program, hw)
        text = module.emitted
        done("LLVM text")
        module.target.object_code(text, done)
        row["cold"] = time.process_time() - start
    row["isl"] = poly.seconds_spent()
    native = module.native  # compiles once more
    begin = time.process_time()
    NativeKernel(native, {})
    row["load"] = time.process_time() - begin
    row["cold"] += row["load"]
    return row


def from_disk(name: str, target: str) -> Row:
    """Seconds until the kernel can be called, by whatever is on disk."""
    case, packed = find(name)
    operands = case.problem.operands
    given = case.problem.arrays() if packed else {}
    shapes = {o.name: (o.type, o.shape) for o in operands if not (o.constant and packed)}
    constants = {o.name: given[o.name] for o in operands if o.constant and packed}
    begin = time.process_time()
    kernel = stripec.compile(case.problem.tile, shapes, target, threads=1, constants=constants)
    ready = kernel.runner
    row = {"warm": time.process_time() - begin}
    assert ready is not None
    return row


def measure(names: list[str], target: str, processes: int, errors: Console) -> dict[str, Row]:
    """The figures of each case, each part from the process that took least in all."""
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in track(names, "compiling cases", console=errors):
            found = [_in_process("cold", name, target, folder) for _ in range(processes)]
            row = min(found, key=lambda made: made["cold"])
            _in_process("warm", name, target, folder)  # the first puts it on disk
            again = [_in_process("warm", name, target, folder) for _ in range(processes)]
            rows[name] = row | min(again, key=lambda made: made["warm"])
    return rows


def _in_process(kind: str, name: str, target: str, folder: str) -> Row:
    command = [sys.executable, "-m", "benchmarks.compile_cases", kind, name, target]
    env = dict(os.environ, STRIPEC_CACHE_DIR=str(Path(folder)), OMP_NUM_THREADS="1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(f"{name} did not compile:\n{done.stderr[-2000:]}")
    row: Row = json.loads(done.stdout)
    return row


def table(rows: dict[str, Row], target: str) -> Table:
    """Milliseconds of each part; what is above its limit is marked."""
    made = Table("case", title=f"milliseconds of one core, target {target}, verification on")
    parts = [part for part in next(iter(rows.values())) if part not in ("cold", "warm", "isl")]
    for part in (*parts, "cold", "isl inside", "warm"):
        made.add_column(part, justify="right")
    for name, row in rows.items():
        limit = LIMITS.get(find(name)[0].family, LIMIT)
        cells = [f"{row.get(part, 0.0) * 1e3:.0f}" for part in parts]
        whole = f"{row['cold'] * 1e3:.0f}{' !' if row['cold'] > limit else ''}"
        warm = f"{row['warm'] * 1e3:.1f}{' !' if row['warm'] > WARM_LIMIT else ''}"
        made.add_row(name, *cells, whole, f"{row['isl'] * 1e3:.0f}", warm)
    made.caption = (
        f"!: more than {LIMIT * 1e3:.0f} ms cold ({LIMITS['attention'] * 1e3:.0f} for attention), "
        f"{WARM_LIMIT * 1e3:.0f} from the disk"
    )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_cases", description=__doc__)
    parser.add_argument("kind", choices=("cold", "warm"))
    parser.add_argument("name")
    parser.add_argument("target")
    options = parser.parse_args()
    how = cold if options.kind == "cold" else from_disk
    print(json.dumps(how(options.name, options.target)))


if __name__ == "__main__":
    main()
