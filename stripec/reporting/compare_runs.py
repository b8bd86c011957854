"""Two simulated runs beside each other: the same figure of both, and counters between passes in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from stripec.reporting.model import Report
from stripec.reporting.runs import EnergyShares, PassCount, PassCounts, SimulatedRun

MAX_KERNELS = 200  # whose cycles are compared

Kind: TypeAlias = Literal["count", "bytes", "share", "energy", "time"]


@dataclass(frozen=True)
class Figure:
    """A figure of both runs; None where a run has none. Less is better, but of a `share`, which is what it
    is."""

    name: str
    kind: Kind
    a: float | None
    b: float | None


@dataclass(frozen=True)
class Group:
    """Figures that belong together."""

    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class CountPair:
    """The counters behind the same pass of both sides."""

    name: str
    a: PassCount | None
    b: PassCount | None


def groups(a: Report, b: Report) -> tuple[Group, ...]:
    """All figures of two runs; those that are 0 or missing on both sides are left out."""
    left, right = a.find(SimulatedRun), b.find(SimulatedRun)
    if (left is None or left.found is None) and (right is None or right.found is None):
        return ()
    parts: list[tuple[str, Kind, Mapping[str, float], Mapping[str, float]]] = [
        ("The run", "count", _whole(left), _whole(right)),
        ("Bytes of memories", "bytes", _bytes(left), _bytes(right)),
        ("Lines of caches", "count", _lines(left), _lines(right)),
        ("Units, shares of the time", "share", _units(left), _units(right)),
        ("Cycles of kernels", "count", _kernels(left), _kernels(right)),
        ("Energy", "energy", _energy(a), _energy(b)),
    ]
    found = []
    for title, kind, one, other in parts:
        names = [name for name in dict.fromkeys((*one, *other)) if one.get(name) or other.get(name)]
        figures = tuple(Figure(name, _kind(name, kind), one.get(name), other.get(name)) for name in names)
        if figures:
            found.append(Group(title, figures[:MAX_KERNELS]))
    return tuple(found)


def _kind(name: str, kind: Kind) -> Kind:
    if name == "time":
        return "time"
    return "energy" if name == "energy" else kind


def _whole(run: SimulatedRun | None) -> Mapping[str, float]:
    if run is None or run.found is None:
        return {}
    found = run.found
    whole: dict[str, float] = {} if found.cycles is None else {"cycles": found.cycles}
    if found.seconds is not None:
        whole["time"] = found.seconds
    whole["operations"] = found.operations
    return {**whole, "energy": found.energy_pj} if found.energy else whole


def _bytes(run: SimulatedRun | None) -> Mapping[str, float]:
    if run is None or run.found is None:
        return {}
    found: dict[str, float] = {}
    for memory in run.found.memories:
        name = memory.memory
        found |= {f"{name}, read": memory.read, f"{name}, written": memory.written}
        found |= {f"{name}, of which updated": memory.updated, f"{name}, placed at most": memory.peak}
        found[f"{name}, alive at most"] = run.alive(name) or 0
    return found


def _lines(run: SimulatedRun | None) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for cache in run.found.caches if run is not None and run.found is not None else ():
        found |= {f"{cache.memory}, accesses": cache.accesses, f"{cache.memory}, misses": cache.misses}
    return found


def _units(run: SimulatedRun | None) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for unit in run.units if run is not None else ():
        found |= {f"{unit.unit}, work": unit.work, f"{unit.unit}, filling": unit.filling}
        found[f"{unit.unit}, padding"] = unit.padding
        found |= {f"{unit.unit}, stalled by {memory}": share for memory, share in unit.stalled}
        found |= {f"{unit.unit}, waits for {other or 'work'}": share for other, share in unit.idle}
    return found


def _kernels(run: SimulatedRun | None) -> Mapping[str, float]:
    kernels = run.found.kernels if run is not None and run.found is not None else []
    return {kernel.kernel: kernel.end - kernel.begin for kernel in kernels}


def cycles_of_kernels(a: Report, b: Report) -> Mapping[str, tuple[float | None, float | None]]:
    """What each kernel took in both runs; nothing where there are not two."""
    left, right = (_kernels(report.find(SimulatedRun)) for report in (a, b))
    names = dict.fromkeys((*left, *right)) if left and right else ()
    return {name: (left.get(name), right.get(name)) for name in names}


def _energy(report: Report) -> Mapping[str, float]:
    found = report.find(EnergyShares)
    return {share.what: share.total_pj for share in found.shares} if found is not None else {}


def count_pairs(a: Report, b: Report) -> tuple[CountPair, ...]:
    """The counters between passes of both sides, passes of the same name beside each other."""
    left, right = a.find(PassCounts), b.find(PassCounts)
    if left is None and right is None:
        return ()
    return tuple(_paired(left.rows if left is not None else (), right.rows if right is not None else ()))


def _paired(left: Sequence[PassCount], right: Sequence[PassCount]) -> Iterator[CountPair]:
    one, other = ([_name(row) for row in rows] for rows in (left, right))
    for op, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if op == "equal":
            yield from (CountPair(_name(x), x, y) for x, y in zip(left[a:b], right[c:d], strict=True))
        else:
            yield from (CountPair(_name(x), x, None) for x in left[a:b])
            yield from (CountPair(_name(y), None, y) for y in right[c:d])


def _name(row: PassCount) -> str:
    return row.spec.partition("{")[0]


def memories_of(a: Report, b: Report) -> tuple[tuple[str, tuple[bool, bool]], ...]:
    """The memories of which bytes were counted between passes, and which sides have them."""
    counts = [report.find(PassCounts) for report in (a, b)]
    left, right = (found.memories if found is not None else () for found in counts)
    return tuple((name, (name in left, name in right)) for name in dict.fromkeys((*left, *right)))
