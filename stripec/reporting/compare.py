"""Two reports beside each other: what is different, section by section.

The programs after the last pass are compared line by line; of all else the same things of both sides stand
side by side: passes in order, kernels by name, memories by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Generic, Literal, TypeVar

from stripec.reporting.changes import change
from stripec.reporting.compare_runs import CountPair, Group, count_pairs, cycles_of_kernels, groups
from stripec.reporting.figures import (
    MemoryMap,
    MemoryMaps,
    Nest,
    Nests,
    Roofline,
    RoofPoint,
    Search,
    Searches,
    Tiling,
    Tilings,
)
from stripec.reporting.model import Change, PassDetail, Passes, Programs, Report, SourceText, Summary
from stripec.reporting.runs import SimulatedRun

MAX_ROWS = 6000  # of the comparison of two programs
MAX_PAIRS = 16  # drawings of each kind

T = TypeVar("T")


@dataclass(frozen=True)
class Pair(Generic[T]):
    """The same thing on both sides; one may be missing."""

    name: str
    a: T | None
    b: T | None

    @property
    def same(self) -> bool:
        return self.a == self.b


@dataclass(frozen=True)
class Comparison:
    """Two reports, what they have in common in pairs, and the change from the one program to the other."""

    a: Report
    b: Report
    given: tuple[Pair[str], ...]
    passes: tuple[Pair[PassDetail], ...]
    program: Change | None
    nests: tuple[Pair[Nest], ...]
    tilings: tuple[Pair[Tiling], ...]
    searches: tuple[Pair[Search], ...]
    maps: tuple[Pair[MemoryMap], ...]
    kernels: tuple[Pair[RoofPoint], ...]
    counts: tuple[CountPair, ...]
    runs: tuple[Group, ...]
    cycles: Mapping[
        str, tuple[float | None, float | None]
    ]  # of kernels, in the runs; empty if a side has none
    titles: tuple[str, str]
    source: Change | None  # None where both are of one text, or one has none

    def cycles_of(self, kernel: Pair[RoofPoint]) -> tuple[float | None, float | None]:
        """The cycles of a kernel on both sides: of the runs where there are two, else those expected."""
        if self.cycles:
            return self.cycles.get(kernel.name, (None, None))
        return (kernel.a.cycles if kernel.a else None, kernel.b.cycles if kernel.b else None)

    def all_of(self, what: Literal["operations", "bytes"]) -> tuple[int, int]:
        """Of all kernels of each side."""
        found = [
            sum(getattr(point, what) * (1 + len(point.alike)) for point in _points(report))
            for report in (self.a, self.b)
        ]
        return found[0], found[1]

    @property
    def all_cycles(self) -> tuple[float | None, float | None]:
        """Of both runs, from the begin to the end; of expected ones, of all kernels where all have some."""
        if self.cycles:
            runs = (self.a.find(SimulatedRun), self.b.find(SimulatedRun))
            one, other = (run.found.cycles if run is not None and run.found else None for run in runs)
            return one, other
        return _expected(self.a), _expected(self.b)


def _expected(report: Report) -> float | None:
    total = 0.0
    for point in _points(report):
        if point.cycles is None:
            return None
        total += point.cycles * (1 + len(point.alike))
    return total or None


def compare(a: Report, b: Report) -> Comparison:
    """What two reports have in common, and what not."""
    return Comparison(
        a, b, tuple(_given(a, b)),
        tuple(_in_order(_passes(a), _passes(b), lambda p: p.spec, lambda p: p.name)),
        _program(a, b),
        tuple(_named(_nests(a), _nests(b), lambda n: n.kernel))[:MAX_PAIRS],
        tuple(_named(_tilings(a), _tilings(b), lambda t: t.kernel))[:MAX_PAIRS],
        tuple(_named(_searches(a), _searches(b), _search_name)),
        tuple(_named(_maps(a), _maps(b), _map_name)),
        tuple(_named(_points(a), _points(b), lambda p: p.kernel)), count_pairs(a, b), groups(a, b),
        cycles_of_kernels(a, b), titles(a, b), _source(a, b),
    )  # fmt: skip


def titles(a: Report, b: Report) -> tuple[str, str]:
    """What the sides are called: with the file, or whose passes ran, where that is what tells them apart."""
    if a.title != b.title:
        return a.title, b.title
    files, given = (_file(a), _file(b)), [dict(r.options).get("pipeline") for r in (a, b)]
    if files[0] != files[1]:
        return f"{a.title} ({files[0]})", f"{b.title} ({files[1]})"
    if given[0] != given[1]:
        one, other = (f"{a.title}, {'its own passes' if p is None else 'passes given'}" for p in given)
        return one, other
    return a.title, b.title


def _file(report: Report) -> str:
    summary = report.find(Summary)
    return summary.file if summary is not None else ""


def _given(a: Report, b: Report) -> Iterator[Pair[str]]:
    """Program, file, inputs, target and options of both."""
    left, right = (_given_one(report) for report in (a, b))
    for name in dict.fromkeys((*left, *right)):
        own = "of the target" if name == "pipeline" else None  # the side has passes, too
        yield Pair(name, left.get(name, own), right.get(name, own))


def _given_one(report: Report) -> dict[str, str]:
    found, summary = {"program": report.program}, report.find(Summary)
    if summary is not None:
        inputs = (t for t in summary.tensors if t.role != "out")
        found |= {"file": summary.file} if summary.file else {}
        found["inputs"] = ", ".join(f"{t.name} {t.dtype}[{','.join(map(str, t.shape))}]" for t in inputs)
    return found | {"target": report.target} | dict(report.options)


def _source(a: Report, b: Report) -> Change | None:
    left, right = a.find(SourceText), b.find(SourceText)
    if left is None or right is None:
        return None
    one, other = (["".join(piece.text for piece in line) for line in s.lines] for s in (left, right))
    return change("as they were written", one, other, MAX_ROWS) if one != other else None


def _program(a: Report, b: Report) -> Change | None:
    left, right = a.find(Programs), b.find(Programs)
    if left is None or right is None:
        return None
    return change("after the last pass", left.texts[-1].lines, right.texts[-1].lines, MAX_ROWS)


def _passes(report: Report) -> Sequence[PassDetail]:
    found = report.find(Passes)
    return found.passes if found is not None else ()


def _nests(report: Report) -> Sequence[Nest]:
    found = report.find(Nests)
    return found.nests if found is not None else ()


def _tilings(report: Report) -> Sequence[Tiling]:
    found = report.find(Tilings)
    return found.tilings if found is not None else ()


def _searches(report: Report) -> Sequence[Search]:
    found = report.find(Searches)
    return found.searches if found is not None else ()


def _search_name(search: Search) -> str:
    """The pass without its options, which name memories of the target, and the kernel."""
    kernel = "/".join(search.block.partition(",")[0].split("/")[:2])
    return f"{search.pass_spec.partition('{')[0]} of {kernel}"


def _map_name(found: MemoryMap) -> str:
    return found.memory if found.program == "root" else f"{found.memory}, at load time"


def _maps(report: Report) -> Sequence[MemoryMap]:
    found = report.find(MemoryMaps)
    return found.maps if found is not None else ()


def _points(report: Report) -> Sequence[RoofPoint]:
    found = report.find(Roofline)
    return found.points if found is not None else ()


def _in_order(
    left: Sequence[T], right: Sequence[T], name: Callable[[T], str], key: Callable[[T], str]
) -> Iterator[Pair[T]]:
    """Both in their own order, those of the same key beside each other."""
    matcher = SequenceMatcher(None, [key(x) for x in left], [key(x) for x in right], autojunk=False)
    for op, a, b, c, d in matcher.get_opcodes():
        if op == "equal":
            yield from (Pair(name(x), x, y) for x, y in zip(left[a:b], right[c:d], strict=True))
        else:
            yield from (Pair(name(x), x, None) for x in left[a:b])
            yield from (Pair(name(y), None, y) for y in right[c:d])


def _named(left: Sequence[T], right: Sequence[T], name: Callable[[T], str]) -> Iterator[Pair[T]]:
    """Those of the same name beside each other, the first with the first, in the order of the left."""
    a: dict[str, T] = {}
    b: dict[str, T] = {}
    for found, items in ((a, left), (b, right)):
        for item in items:
            base, number = name(item), 1
            while (numbered := base if number == 1 else f"{base} ({number})") in found:
                number += 1
            found[numbered] = item
    for known in dict.fromkeys((*a, *b)):
        yield Pair(known, a.get(known), b.get(known))
