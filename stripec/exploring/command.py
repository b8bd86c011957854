"""`stripec explore`: the arguments of a sweep, how far it is, and the table of what it found."""

from __future__ import annotations

import argparse
import os.path
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stripe.diag import CompileError, Diagnostic
from stripec.exploring.api import JSON, PLOT, Progress, explore
from stripec.exploring.journal import NAME
from stripec.exploring.plot import leading_fields, quantity, titled, value_text
from stripec.exploring.result import Exploration, Point
from stripec.tables import Line, print_lines, print_table, width

_MOST_ROWS = 24  # of a table; the JSON has all
_MOST_REASONS = 8
_SECONDS_BETWEEN_LINES = 60


def command(arguments: argparse.Namespace) -> None:
    """`stripec explore`."""
    out = Path(arguments.out)
    kept = _Kept(out)
    try:
        with _progress() as progress:
            found = explore(
                _programs(arguments.programs), shapes=_unique("--shape", arguments.shape),
                target=arguments.target, vary=_axes(arguments.vary),
                objectives=[name.strip() for name in arguments.objective.split(",")], out=out,
                jobs=arguments.jobs, cluster=arguments.cluster, verify=arguments.verify,
                progress=kept.before(progress),
            )  # fmt: skip
    except KeyboardInterrupt:
        if kept.total:
            print(f"{kept} in '{out}'; the same command goes on from there", file=sys.stderr)
        raise
    if arguments.json:
        sys.stdout.write(found.to_json())
        return
    _print(found)
    files = [name for name in (JSON, PLOT) if os.path.exists(out / name)]
    print_lines([Line(""), Line(f"written: {', '.join(str(out / name) for name in files)}")])
    if not any(point.objectives for point in found.points):
        raise CompileError(Diagnostic("D109", "no point of the sweep has a mapping; the reasons are above"))


@dataclass
class _Kept:
    """How many points of a sweep are finished, for a person who starts it again, or stops it."""

    folder: Path
    done: int = 0
    total: int = 0

    def before(self, progress: Progress) -> Progress:
        """The same progress, which also tells what an earlier run has done."""
        again = os.path.exists(self.folder / NAME)

        def show(done: int, total: int) -> None:
            first, self.done, self.total = not self.total, done, total
            if first and again and done:
                print(f"{self} in '{self.folder}' already", file=sys.stderr)
            progress(done, total)

        return show

    def __str__(self) -> str:
        return f"{self.done} of {self.total} point{'s are' if self.total > 1 else ' is'} finished"


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
    if mapped:
        _print_points(found, sorted(mapped, key=_by_cost))
        _print_ties(found)
    _print_reasons([point for point in found.points if not point.objectives])


def _print_points(found: Exploration, points: list[Point]) -> None:
    """The table of points. Where it is wide, fields that go in step with another one are left out."""
    heads = (titled(o.name, o.unit) for o in found.objectives)
    bound = ("bound by",) if found.counts == "simulated" else ()
    least = ("compulsory", "least found") if _crossing(found) else ()
    behind = (*heads, *least, *bound, "")
    paths = [varied.path for varied in found.varied]
    rows = [_row(found, point, paths) for point in points]
    if sum(map(_widest, zip(("point", *paths, *behind), *rows, strict=True))) > width():
        paths = leading_fields(found)
        rows = [_row(found, point, paths) for point in points]
        for path in paths:
            axis = next(varied.axis for varied in found.varied if varied.path == path)
            others = [v.path for v in found.varied if v.axis == axis and v.path != path]
            if others:
                print_lines([Line(f"{path} is in step with {', '.join(others)}")])
    print_lines([Line("")])
    print_table(("point", *paths, *behind), rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        print_lines([Line(f"... and {len(rows) - _MOST_ROWS} more: {JSON} has all")])
    if least:
        for program, reason in dict.fromkeys(
            (program.program, program.crossing.reason if program.crossing else "its sets are too complicated")
            for point in points
            for program in point.outcome.programs
            if program.crossing is None or program.crossing.reason
        ):
            print_lines([Line(f"no least found for {program}: {reason}")])


def _print_ties(found: Exploration) -> None:
    """How many points of the front are as good as another one of it in all that was asked for."""
    groups = Counter(tuple(found.points[number].objectives.values()) for number in found.front)
    tied = sum(count for count in groups.values() if count > 1)
    asked = [objective.name for objective in found.objectives]
    others = [name for name in ("capacity", "array") if name not in asked]
    if tied:
        more = f"; {' and '.join(others)} as an objective would tell more apart" if others else ""
        text = f"{tied} points of the front are as good as another one of it in {' and '.join(asked)}{more}"
        print_lines([Line(""), Line(text)])


def _widest(column: Sequence[str]) -> int:
    return max(map(len, column)) + 2  # and the room to the next one


def _by_cost(point: Point) -> tuple[Any, ...]:
    return (not point.front, *point.objectives.values(), point.number)


def _row(found: Exploration, point: Point, paths: Sequence[str]) -> tuple[str, ...]:
    sets = (value_text(path, point.set[path]) for path in paths)
    costs = (quantity(point.objectives[o.name], o.unit) for o in found.objectives)
    least = _bounds(point) if _crossing(found) else ()
    bound = Counter[str]()
    for program in point.outcome.programs:
        if program.bound:
            bound[program.bound] += program.cycles or 0
    binds = (bound.most_common(1)[0][0] if bound else "",) if found.counts == "simulated" else ()
    return (str(point.number), *sets, *costs, *least, *binds, "front" if point.front else "")


def _crossing(found: Exploration) -> bool:
    """Whether bounds stand beside the traffic."""
    return any(objective.name == "traffic" for objective in found.objectives)


def _bounds(point: Point) -> Iterator[str]:
    """What has to cross, and the least that was found, of all programs; `none` where one has none."""
    own = [program.crossing for program in point.outcome.programs]
    needed = [each.compulsory if each is not None else None for each in own]
    least = [each.least if each is not None else None for each in own]
    for parts in (needed, least):
        yield "none" if None in parts else quantity(sum(part or 0 for part in parts), "B")


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
