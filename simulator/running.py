"""What a timeline holds while it goes through a program: points on their way, tasks, and what was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.alike import Grid
from simulator.plan import Item, Plan
from simulator.work import Site, Work
from stripe.ir import Refinement

TICKS = 1024  # to a cycle, at least: as many as make each rate of a program a whole number of them
WHOLE = 1 << 20  # a bank that is asked for all that it delivers

UnitKey = tuple[str, int]
BankKey = tuple[str, int]
Queue: TypeAlias = "list[tuple[int, tuple[int, ...], int, Task]]"  # since when, order, tie


class TooLong(Exception):
    """A run has more tasks than the caller wants to wait for."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies that has a name in a block: its allocation, and where the view starts in it."""

    buffer: str  # the path of the allocation
    ref: Refinement
    memory: str
    bank: int | None
    address: int
    origin: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """A task as it ran, in ticks: `own` of the time the unit worked, the rest it waited, longest for
    `memory`."""

    unit: UnitKey
    site: Site
    begin: int
    end: int
    own: int
    memory: str


@dataclass(slots=True)
class Point:
    """A point that is on its way."""

    ordinal: int
    values: Mapping[str, int]
    places: Mapping[str, Place]
    missing: list[int]  # of each item: how many that it depends on are not done
    done: list[bool]
    started: list[bool]
    inner: dict[int, Running] = field(default_factory=dict)
    left: int = 0
    begun: int = 0  # a bit for each item of which a task has begun
    alive: int = 0  # a bit for each buffer of the block that is alive


@dataclass(frozen=True, slots=True)
class Moment:
    """The machine behind a point: `next` is the point that starts next, `traced` tasks were kept."""

    next: int
    now: int
    totals: tuple[dict[Any, int], ...]
    idle: Mapping[UnitKey, int]
    traced: int


@dataclass(slots=True)
class Chain:
    """The points that one unit executes, one after the other: `order` has their places in the grid."""

    order: NDArray[np.int64]
    next: int = 0
    live: dict[int, Point] = field(default_factory=dict)
    unit: UnitKey | None = None
    seen: dict[Any, list[Moment]] = field(default_factory=dict)
    kinds: NDArray[np.int64] | None = None


@dataclass(slots=True)
class Running:
    """One execution of a block that is gone into."""

    plan: Plan
    grid: Grid
    chains: list[Chain]
    places: Mapping[str, Place]
    unit: UnitKey | None
    parent: tuple[Running, Chain, Point, int] | None
    open: int = 0
    alone: bool = True  # no other unit executes other points of a block around at the same time


@dataclass(slots=True)
class Task:
    """A task that waits for its unit, or runs."""

    running: Running
    chain: Chain
    point: Point
    item: Item
    unit: UnitKey
    work: Work
    ready: int
    order: tuple[int, ...]
    cause: str
    begin: int = 0
    own: int = 0  # what the unit works
    late: int = 0  # the latency before it, of memory `latest`
    latest: str = ""
    left: int = 0
    demand: dict[BankKey, int] = field(default_factory=dict)
    slowest: str = ""
    slowed: tuple[BankKey, ...] = ()  # banks that others used at once, so that it took longer
    alone: str = ""  # its unit, or a memory that takes longer for its bytes, whatever else uses that


@dataclass(slots=True)
class Totals:
    """What was counted: `counts` by site, kind and unit; `busy` ticks of units by own work, `stalled` by the
    memory that kept them, `idle` by what they waited for. Of each bank and unit, `asked` are
    tasks that moved bytes there, `waited` those of them that were slower since others used the bank at once,
    and `shared` the ticks that this cost them. `worked` and `served` are ticks of units and banks in each
    statement of the root, and `bound` those of each item's tasks by what bound them: the unit or a memory."""

    counts: Counter[tuple[Site, Any, UnitKey]] = field(default_factory=Counter)
    traffic: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    tasks: Counter[UnitKey] = field(default_factory=Counter)
    busy: Counter[UnitKey] = field(default_factory=Counter)
    stalled: Counter[tuple[UnitKey, str]] = field(default_factory=Counter)
    idle: Counter[tuple[UnitKey, str]] = field(default_factory=Counter)
    asked: Counter[tuple[BankKey, str]] = field(default_factory=Counter)
    waited: Counter[tuple[BankKey, str]] = field(default_factory=Counter)
    shared: Counter[tuple[BankKey, str]] = field(default_factory=Counter)
    worked: Counter[tuple[Site, UnitKey]] = field(default_factory=Counter)
    served: Counter[tuple[Site, BankKey]] = field(default_factory=Counter)
    bound: Counter[tuple[Site, str]] = field(default_factory=Counter)

    def by_unit(self) -> Counter[tuple[Site, Any, str]]:
        """`counts` over all copies of each unit."""
        found: Counter[tuple[Site, Any, str]] = Counter()
        for (site, kind, unit), n in self.counts.items():
            found[site, kind, unit[0]] += n
        return found

    def _all(self) -> tuple[Counter[Any], ...]:
        return (
            self.counts, self.traffic, self.tasks, self.busy, self.stalled, self.idle, self.asked,
            self.waited, self.shared, self.worked, self.served, self.bound,
        )  # fmt: skip

    def copy(self) -> tuple[dict[Any, int], ...]:
        return tuple(dict(c) for c in self._all())

    def repeat(self, since: tuple[dict[Any, int], ...], times: int) -> None:
        """Add what came since a copy so many times again."""
        for counter, before in zip(self._all(), since, strict=True):
            for key, value in counter.items():
                grown = value - before.get(key, 0)
                if grown:
                    counter[key] = value + grown * times
