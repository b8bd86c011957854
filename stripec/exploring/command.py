"""`stripec explore`: the arguments of a sweep, how far it is, and the table of what it found."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stripe.diag import CompileError, Diagnostic
from stripec.exploring.api import JSON, PLOT, Progress, explore
from stripec.exploring.plot import quantity, value_text
from stripec.exploring.result import Exploration, Point
from stripec.tables import Line, print_lines, print_table

_MOST_ROWS = 24  # of a table; the JSON has all
_MOST_REASONS = 8
_SECONDS_BETWEEN_LINES = 60


def command(arguments: argparse.Namespace) -> None:
    """`stripec explore`."""
    out = Path(arguments.out)
    with _progress() as progress:
        found = explore(
            _programs(arguments.programs), shapes=_unique("--shape", arguments.shape),
            target=arguments.target, vary=_axes(arguments.vary),
            objectives=[name.strip() for name in arguments.objective.split(",")], out=out,
            jobs=arguments.jobs, cluster=arguments.cluster, verify=arguments.verify, progress=progress,
        )  # fmt: skip
    if arguments.json:
        sys.stdout.write(found.to_json())
        return
    _print(found)
    files = [name for name in (JSON, PLOT) if (out / name).exists()]
    print_lines([Line(""), Line(f"written: {', '.join(str(out / name) for name in files)}")])
    if not any(point.objectives for point in found.points):
        raise CompileError(Diagnostic("D109", "no point of the sweep has a mapping; the reasons are above"))


def _programs(given: list[str]) -> dict[str, Path]:
    """`PROGRAM` or `NAME=PROGRAM`, by name: the file's without its ending, if there is no other."""
    found: dict[str, Path] = {}
    for text in given:
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.+)", text)
        path = Path(match[2] if match else text)
        name = match[1] if match else path.stem
        if name in found:
            note = f"help: name them: {name}_1={found[name]} {name}_2={path}"
            raise CompileError(Diagnostic("D032", f"two programs are called '{name}'", notes=(note,)))
        found[name] = path
    return found


def _axes(given: list[list[tuple[str, str]]]) -> list[dict[str, str]]:
    return [_unique("--vary", pairs) for pairs in given]


def _unique(flag: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise CompileError(Diagnostic("D032", f"{flag} {name} is given twice"))
        found[name] = value
    return found


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar for a person at a terminal; else a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console  # rich takes long to import, and few runs need it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("points", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield show


def _lines() -> Progress:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{done} of {total} points", file=sys.stderr)

    return show


def _print(found: Exploration) -> None:
    mapped = [point for point in found.points if point.objectives]
    what = f"{', '.join(found.programs)} on {found.target}"
    points = f"{len(found.points)} point{'s' if len(found.points) > 1 else ''}"
    print_lines([Line(f"{what}: {points}, {len(found.front)} on the front", "bold")])
    for varied in found.varied:
        if len(varied.sets) > 1:
            print_lines([Line(f"{varied.path} sets {', '.join(varied.sets)}")])
    rows = [_row(found, point) for point in sorted(mapped, key=_by_cost)]
    if rows:
        heads = (f"{o.name}" for o in found.objectives)
        bound = ("bound by",) if found.counts == "simulated" else ()
        print_lines([Line("")])
        print_table(("point", *(v.path for v in found.varied), *heads, *bound, ""), rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        print_lines([Line(f"... and {len(rows) - _MOST_ROWS} more: {JSON} has all")])
    _print_reasons([point for point in found.points if not point.objectives])


def _by_cost(point: Point) -> tuple[Any, ...]:
    return (not point.front, *point.objectives.values(), point.number)


def _row(found: Exploration, point: Point) -> tuple[str, ...]:
    sets = (value_text(path, value) for path, value in point.set.items())
    costs = (quantity(point.objectives[o.name], o.unit) for o in found.objectives)
    bound = Counter[str]()
    for program in point.outcome.programs:
        if program.bound:
            bound[program.bound] += program.cycles or 0
    binds = (bound.most_common(1)[0][0] if bound else "",) if found.counts == "simulated" else ()
    return (str(point.number), *sets, *costs, *binds, "front" if point.front else "")


def _print_reasons(points: list[Point]) -> None:
    """Why points have no mapping, each reason once."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.outcome.status, point.outcome.reason), []).append(point)
    if groups:
        print_lines([Line("")])
    for (status, reason), own in list(groups.items())[:_MOST_REASONS]:
        numbers = ", ".join(str(point.number) for point in own[:6]) + (", ..." if len(own) > 6 else "")
        which = f"point {numbers}" if len(own) == 1 else f"{len(own)} points ({numbers})"
        code = f" [{own[0].outcome.code}]" if own[0].outcome.code else ""
        said = "a fault of stripec; please report it" if status == "fault" else status
        print_lines([Line(f"{which}: {said}{code}: {reason}", "yellow")])
        print_lines([Line(f"     = {note}") for note in own[0].outcome.notes])
    if len(groups) > _MOST_REASONS:
        print_lines([Line(f"... and {len(groups) - _MOST_REASONS} more reasons: {JSON} has all")])
