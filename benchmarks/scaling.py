"""`python -m benchmarks.scaling`: what a second core adds, for stripec and for the peers of each case.

Two processes stay through the run: one has one core and a thread for everyone, the other two of each. A
case goes through both, one right after the other, so that a contender's two rates are seconds apart, and all
contenders of a case are compared under the same conditions. A probe asks after each case whether both
cores were free; a case in which they were not is repeated, and marked if that does not help.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import environment
from benchmarks.cases import FAMILIES, cases, geometric_mean
from benchmarks.machine import FREE, Machine, caches, measure, together
from benchmarks.main import choose_cases, choose_peers, plain_console
from benchmarks.options import new_file, seconds, target
from benchmarks.peers import PEERS
from benchmarks.peers.base import Setting
from benchmarks.report import OURS
from benchmarks.run import LIBRARIES, Entry, Row, as_record, run_case
from stripe.files import write_whole

THREADS = 2
TRIES = 3


@dataclass(frozen=True)
class Scaled:
    """One case on one thread and on two. `free`: multiply-adds of both cores at once over those of one."""

    one: Row
    two: Row
    free: float

    def scaling(self, entry: Entry) -> float | None:
        """The rate of this contender of `two` over its own on one thread."""
        alone = self.one.rate(entry.peer, entry.packed)
        return entry.rate / alone if entry.rate and alone else None

    @property
    def quiet(self) -> bool:
        return self.free >= FREE * THREADS and not self.one.busy

    def pairs(self) -> Iterator[tuple[Entry, Entry | None]]:
        """Ours, with given operands and with packed ones, each with the fastest peer on two threads that
        ran on one as well."""
        for ours in self.two.entries:
            if ours.peer == OURS and self.scaling(ours):
                known = [
                    e for e in self.two.entries
                    if e.kind in LIBRARIES and (ours.packed or not e.packed) and self.scaling(e)
                ]  # fmt: skip
                yield ours, max(known, key=lambda entry: entry.rate or 0.0, default=None)


@dataclass(frozen=True)
class Asked:
    """What a process is told once; it looks cases and peers up by name, as neither can be sent."""

    peers: tuple[str, ...]
    seconds: float
    by: str
    target: str
    amx: bool


_state: tuple[Asked, int, Machine, dict[str, int]] | None = None


def _begin(asked: Asked, threads: int, cores: list[int]) -> None:
    global _state
    if cores:
        os.sched_setaffinity(0, cores[:threads])
    _state = asked, threads, measure(asked.amx), caches(cores[0] if cores else 0)


def _row(family: str, name: str) -> Row:
    assert _state is not None, "the process was started by _begin"
    asked, threads, machine, levels = _state
    case = next(case for case in cases() if (case.family, case.name) == (family, name))
    peers = [PEERS[peer] for peer in asked.peers]
    setting = Setting(threads=threads, target=asked.target)
    return run_case(case, peers, machine, levels, asked.seconds, setting, asked.by)


def _free() -> float:
    assert _state is not None, "the process was started by _begin"
    return together(_state[2], _state[1])


@contextmanager
def _process(asked: Asked, threads: int, cores: list[int]) -> Iterator[ProcessPoolExecutor]:
    """A process with the environment of a benchmark on so many threads, which libraries read when they are
    loaded, so that it has to be there when the process starts."""
    before = dict(os.environ)
    os.environ.update(environment.settings(threads, asked.amx))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _begin, (asked, threads, cores)) as pool:
        pool.submit(os.getpid).result()
        os.environ.clear()
        os.environ.update(before)
        yield pool


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--family", help=f"families, with commas, or `all`: {', '.join(FAMILIES)}")
    parser.add_argument("--only", help="cases whose name contains this, of all families but `sandbox`")
    parser.add_argument("--peers", help="names with commas; the default is every one that is installed")
    parser.add_argument("--seconds", type=seconds, default=0.2, help="time spent on each contender of a case")
    parser.add_argument("--by", default="median", choices=("median", "fastest"), help="rounds that count")
    parser.add_argument("--target", type=target, default="host", help="what stripec compiles for")
    parser.add_argument("--no-amx", action="store_true", help="keep oneDNN, MKL and the limit from AMX")
    parser.add_argument("--json", type=new_file, help="write all figures to this file, after each case")
    return parser.parse_args(argv)


def main() -> None:
    options = arguments()
    chosen, peers = choose_cases(options), choose_peers(options.peers)
    cores, line = environment.pin(THREADS)
    if cores and len(cores) < THREADS:
        raise SystemExit(f"this process may use one core; {THREADS} are needed")
    console = plain_console()
    console.print(line, highlight=False)
    names = tuple(peer.name for peer in peers)
    asked = Asked(names, options.seconds, options.by, options.target, not options.no_amx)
    found: list[Scaled] = []
    with _process(asked, 1, cores) as alone, _process(asked, THREADS, cores) as both:
        for case in track(chosen, "cases", console=Console(stderr=True)):
            for _ in range(TRIES):
                rows = [pool.submit(_row, case.family, case.name).result() for pool in (alone, both)]
                scaled = Scaled(rows[0], rows[1], both.submit(_free).result())
                if scaled.quiet:
                    break
            found.append(scaled)
            if options.json:
                write_whole(options.json, json.dumps([_record(scaled) for scaled in found], indent=1))
    for family in dict.fromkeys(scaled.two.family for scaled in found):
        print_family(console, [scaled for scaled in found if scaled.two.family == family])


def print_family(console: Console, rows: Sequence[Scaled]) -> None:
    """A line for each case and for each way that its operands come."""
    family = rows[0].two.family
    table = Table(title=f"{family}: two threads over one; {rows[0].two.unit}", title_justify="left")
    table.add_column("case", no_wrap=True)
    for heading in ("one", "two", "scaling", "peer", "one", "two", "scaling", "ours / peer on two", "cores"):
        table.add_column(heading, justify="left" if heading == "peer" else "right")
    ours_all, peers_all, ratios = [], [], []
    for scaled in rows:
        for ours, peer in scaled.pairs():
            name = scaled.two.case + (", packed" if ours.packed else "")
            mine, theirs = scaled.scaling(ours) or 0.0, scaled.scaling(peer) if peer else None
            cells = [_number(scaled.one.rate(OURS, ours.packed)), _number(ours.rate), f"{mine:.2f}"]
            ours_all.append(mine)
            if peer is None or theirs is None or not peer.rate or not ours.rate:
                cells += [""] * 5
            else:
                alone = scaled.one.rate(peer.peer, peer.packed)
                cells += [peer.key, _number(alone), _number(peer.rate), f"{theirs:.2f}"]
                cells += [f"{ours.rate / peer.rate:.2f}"]
                peers_all.append(theirs)
                ratios.append(ours.rate / peer.rate)
            table.add_row(name, *cells, f"{scaled.free:.2f}{'' if scaled.quiet else ' busy'}")
    table.add_section()
    means = [f"{geometric_mean(found):.2f}" if found else "" for found in (ours_all, peers_all, ratios)]
    table.add_row("geometric mean", "", "", means[0], "", "", "", *means[1:], "", style="bold")
    console.print(table)


def _record(scaled: Scaled) -> dict[str, Any]:
    return {"free": scaled.free, "one": as_record(scaled.one), "two": as_record(scaled.two)}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()
