"""`python -m benchmarks`: stripec beside libraries and compilers, and beside what the machine allows.

All contenders of a case run in one process, in turn, warm, pinned to the quietest core, one thread
each. Results are checked against float64 before anything is timed. docs/benchmarks.md tells how to read
the tables.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import environment, report
from benchmarks.cases import FAMILIES, Case, cases
from benchmarks.costs import costs
from benchmarks.machine import FREE, Machine, caches, measure, together
from benchmarks.options import new_file, picture, seconds, target
from benchmarks.peers import PEERS
from benchmarks.peers.base import Peer, Setting
from benchmarks.plot import draw
from benchmarks.run import Row, as_record, from_record, run_case
from stripe.files import write_whole


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--family", help=f"families, with commas, or `all`: {', '.join(FAMILIES)}")
    parser.add_argument("--only", help="cases whose name contains this, of all families but `sandbox`")
    parser.add_argument("--peers", help="names with commas; the default is every one that is installed")
    parser.add_argument("--seconds", type=seconds, default=0.3, help="time spent on each contender of a case")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2), help="cores, and threads of each")
    parser.add_argument(
        "--by", default="median", choices=("median", "fastest"),
        help="which round stands for a contender; `fastest` is steadier on a machine that others use",
    )  # fmt: skip
    parser.add_argument("--target", type=target, default="host", help="what stripec compiles for")
    parser.add_argument("--no-amx", action="store_true", help="keep oneDNN, MKL and the limit from AMX")
    parser.add_argument("--wide", action="store_true", help="tables with every contender, too")
    parser.add_argument("--json", type=new_file, help="write all figures to this file, after each case")
    parser.add_argument("--plot", type=picture, help="draw the ratios to this SVG or PNG file")
    parser.add_argument("--against", type=Path, help="compare with the JSON file of an earlier run")
    parser.add_argument("--costs", action="store_true", help="also what import, compiling and calling cost")
    parser.add_argument("--list", action="store_true", help="list cases and peers, and stop")
    return parser.parse_args(argv)


def main() -> None:
    options = arguments()
    environment.prepare(options.threads, not options.no_amx)
    console = plain_console()
    chosen, peers = choose_cases(options), choose_peers(options.peers)
    if options.list:
        _list(console, chosen)
        return
    before = read_rows(options.against) if options.against else []
    cores, line = environment.pin(options.threads)
    console.print(line, highlight=False)
    machine, levels = measure(not options.no_amx), caches(cores[0] if cores else 0)
    described = describe(machine, levels)
    if options.threads > 1:
        described["lines"].append(_scaling(machine, options.threads))
    for text in described["lines"]:
        console.print(text, highlight=False)
    for peer in PEERS.values():
        if peer not in peers:
            continue
        console.print(f"{peer.name} {peer.version()}", highlight=False)
    record: dict[str, Any] = {
        "format": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "threads": options.threads,
        "amx": not options.no_amx,
        "seconds": options.seconds,
        "by": options.by,
        "cores": cores,
        "machine": described,
        "peers": {peer.name: peer.version() for peer in peers},
        "rows": [],
    }
    rows = run_all(console, chosen, peers, machine, levels, options, record)
    report.print_notes(console, rows)
    if before:
        report.print_change(console, rows, before)
    if options.costs:
        for name, value in costs().items():
            console.print(f"{name}: {value}", highlight=False)
    if options.plot:
        draw(rows, options.plot)


def run_all(
    console: Console,
    chosen: Sequence[Case],
    peers: Sequence[Peer],
    machine: Machine,
    levels: dict[str, int],
    options: argparse.Namespace,
    record: dict[str, Any],
) -> list[Row]:
    """Measure every case; a family's table is printed when its last case is done."""
    rows: list[Row] = []
    setting = Setting(threads=options.threads, target=options.target)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(chosen))
        for number, case in enumerate(chosen):
            progress.update(task, description=f"{case.family}: {case.name}")
            rows.append(
                run_case(
                    case, peers, machine, levels, options.seconds, setting, options.by, record["machine"]
                )
            )
            record["rows"].append(as_record(rows[-1]))
            if options.json:
                write_whole(options.json, json.dumps(record, indent=1))
            progress.advance(task)
            if number + 1 == len(chosen) or chosen[number + 1].family != case.family:
                family = [row for row in rows if row.family == case.family]
                report.print_family(console, family)
                if options.wide:
                    report.print_peers(console, family)
    return rows


def choose_cases(options: argparse.Namespace) -> list[Case]:
    """By family and by part of the name; the quick ones if neither is asked for."""
    known = cases()
    if options.family:
        wanted = set(FAMILIES) if options.family == "all" else set(_names(options.family))
        unknown = wanted - set(FAMILIES)
        if unknown or not wanted:
            raise SystemExit(f"no family {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
        known = [case for case in known if case.family in wanted]
    elif options.only:
        known = [case for case in known if case.family != "sandbox"]
    else:
        known = [case for case in known if case.quick]
    found = [case for case in known if not options.only or options.only in case.name]
    if not found:
        raise SystemExit(f"no case has '{options.only}' in its name; --list shows them")
    return found


def _names(text: str) -> list[str]:
    """The names in a list with commas, of which the last may end with one."""
    return [name for name in text.split(",") if name]


def choose_peers(named: str | None) -> list[Peer]:
    """stripec, and those named, or by default all that can run here."""
    if named is None:
        return [peer for peer in PEERS.values() if peer.default and not peer.missing()]
    asked = _names(named)
    for name in asked:
        if name not in PEERS:
            raise SystemExit(f"no peer '{name}'; there are {', '.join(PEERS)}")
        if PEERS[name].missing():
            raise SystemExit(f"{name}: {PEERS[name].missing()}")
    return [peer for peer in PEERS.values() if peer.name in asked or peer.kind == "ours"]


def describe(machine: Machine, levels: dict[str, int]) -> dict[str, Any]:
    """The limits at the start of the run, as figures and as lines."""
    peaks = {"f32": machine.fma("f32").rate()}
    peaks |= machine.dot_rates
    widths = ", ".join(f"{rate:.0f} with {32 * lanes} bits" for lanes, rate in machine.widths.items())
    others = "".join(f"; {dot} dot products {peaks[dot]:.0f}" for dot in machine.dots)
    lines = [f"multiply-adds, GFLOP/s of one core: f32 {widths}{others}"]
    sizes = {name: size // 2 for name, size in levels.items() if name != "L3"}
    largest = max(levels.values(), default=32 << 20)
    sizes |= {"L3": min(levels["L3"] // 2, 16 << 20)} if "L3" in levels else {}
    sizes["DRAM"] = min(max(2 * largest, 256 << 20), 512 << 20)
    bandwidth: dict[str, dict[str, float]] = {}
    for name, size in sizes.items():
        probes = {"read": machine.read(size), "copy": machine.copy(size), "stream": machine.stream(size)}
        bandwidth[name] = {kind: probe.rate(3 if name != "DRAM" else 1) for kind, probe in probes.items()}
        rates = ", ".join(f"{kind} {rate:.0f}" for kind, rate in bandwidth[name].items())
        lines.append(f"{name}, {_size(size)}: GB/s {rates}")
    machine.memory.clear()
    return {
        "peaks": peaks,
        "widths": machine.widths,
        "caches": levels,
        "bandwidth": bandwidth,
        "lines": lines,
    }


def _scaling(machine: Machine, threads: int) -> str:
    """Whether the cores are free, in a line."""
    ratio = together(machine, threads)
    judged = "free" if ratio > FREE * threads else "NOT free: figures for several threads mean little"
    return f"multiply-adds on {threads} cores: {ratio:.2f} times those of one; the cores are {judged}"


def read_rows(path: Path) -> list[Row]:
    try:
        record = json.loads(path.read_text())
        return [from_record(row) for row in record["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is not the JSON file of a run: {error}") from None


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def plain_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=190)


def _list(console: Console, chosen: Sequence[Case]) -> None:
    table = Table("family", "case", "MFLOP", "MB", "constant operands", title="cases")
    for case in chosen:
        problem = case.problem
        constant = ", ".join(operand.name for operand in problem.operands if operand.constant)
        flops = f"{problem.flops / 1e6:.1f}" if problem.flops else ""
        table.add_row(case.family, case.name, flops, f"{problem.counted_bytes / 1e6:.2f}", constant)
    console.print(table)
    table = Table("peer", "kind", "version", "can it run", title="peers")
    for peer in PEERS.values():
        reason = peer.missing() or ("yes" if peer.default else "yes, if it is named with --peers")
        table.add_row(peer.name, peer.kind, peer.version(), reason)
    console.print(table)
