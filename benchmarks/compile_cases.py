"""What it takes to compile single cases of the benchmark: seconds of each part, cold and from disk.

Each figure is that of a process of its own, which has imported the compiler and its passes before it
starts to count; what that takes is measured in one that does nothing else. Of several processes the one that
took least counts, part by part from that one. All figures are of one clock, that on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

import stripec
from benchmarks.cases import Case, cases
from codegen_cpu.build import build
from codegen_cpu.jit import Loaded
from codegen_cpu.native import Entry
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


# All that the other processes have imported before they start to count.
_IMPORT = """
import sys, time
begin = time.perf_counter()
import stripec
from stripe.passes.registry import check_pipeline
from stripec.driver import resolve_target
stripec.compile
check_pipeline(resolve_target(sys.argv[1]))
print(time.perf_counter() - begin)
"""


def named(wanted: list[str]) -> list[str]:
    """Names of cases, with each family replaced by all of its cases."""
    known = {case.family for case in cases()}
    members = {family: [case.name for case in cases() if case.family == family] for family in known}
    return [name for given in wanted for name in members.get(given, [given])]


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
    start = last = time.perf_counter()

    def done(part: str) -> None:
        nonlocal last
        now = time.perf_counter()
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
        code = module.target.object_code(text, done)
        Loaded(module.target, code, [Entry(module.symbol, (), 0).packed])  # the module's own compiles again
        done("load")
        row["cold"] = time.perf_counter() - start
    row["isl"] = poly.seconds_spent()
    return row


def from_disk(name: str, target: str) -> Row:
    """Seconds until the kernel can be called, by whatever is on disk."""
    case, packed = find(name)
    operands = case.problem.operands
    given = case.problem.arrays() if packed else {}
    shapes = {o.name: (o.type, o.shape) for o in operands if not (o.constant and packed)}
    constants = {o.name: given[o.name] for o in operands if o.constant and packed}
    compile_ = stripec.compile  # imports it
    begin = time.perf_counter()
    kernel = compile_(case.problem.tile, shapes, target, threads=1, constants=constants)
    ready = kernel.runner
    row = {"warm": time.perf_counter() - begin}
    assert ready is not None
    return row


def measure(names: list[str], target: str, processes: int, errors: Console) -> tuple[float, dict[str, Row]]:
    """Seconds of the import, and the figures of each case, from the process that took least."""
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        import_ = ["-c", _IMPORT, target]
        _in_process(import_, folder)  # the first leaves its bytecode behind, as an installation does
        imported = min(float(_in_process(import_, folder)) for _ in range(processes))
        for name in track(names, "compiling cases", console=errors):
            found = [_case("cold", name, target, folder) for _ in range(processes)]
            row = min(found, key=lambda made: made["cold"])
            _case("warm", name, target, folder)  # the first puts it on disk
            again = [_case("warm", name, target, folder) for _ in range(processes)]
            rows[name] = row | min(again, key=lambda made: made["warm"])
    return imported, rows


def _case(kind: str, name: str, target: str, folder: str) -> Row:
    row: Row = json.loads(_in_process(["-m", "benchmarks.compile_cases", kind, name, target], folder))
    return row


def _in_process(arguments: list[str], folder: str) -> str:
    """What a fresh Python prints that keeps all it keeps in a folder."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
        "STRIPEC_CACHE_DIR": f"{folder}/code",
        "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[1:])} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def table(imported: float, rows: dict[str, Row], target: str) -> Table:
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
        f"{WARM_LIMIT * 1e3:.0f} from the disk (warm), after the import, which takes {imported * 1e3:.0f} ms"
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
