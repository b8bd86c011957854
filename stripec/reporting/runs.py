"""The data of a report on how a program runs: counts between passes, the run, its timeline, its energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator import Simulation
from simulator.result import CacheUse
from stripec.reporting.model import Section

# ------------------------------------------------------------------------- between passes


@dataclass(frozen=True)
class Counters:
    """What is known of a program: for each memory ("": none yet) the bytes read, old values that aggregations
    read included, and written; for each unit the cycles that each of its copies is busy; the cycles of a
    simulated run, None where there can't be one. `note` says why, or what the run leaves out."""

    operations: int
    moved: tuple[tuple[str, int, int], ...]
    busy: tuple[tuple[str, float], ...]
    cycles: int | None
    note: str

    def bytes_of(self, memory: str) -> int:
        return sum(read + written for name, read, written in self.moved if name == memory)

    def busy_of(self, unit: str) -> float | None:
        return dict(self.busy).get(unit)


@dataclass(frozen=True)
class PassCount:
    """The counters behind a pass (number 0: before the first one), None where nothing was counted."""

    number: int
    spec: str
    counters: Counters | None


@dataclass(frozen=True)
class PassCounts(Section):
    """Counters before the first pass, and behind each that changed the program. `same` are the numbers of
    those that did not. `cached`: bytes are those that instructions ask the nearest cache for."""

    id: ClassVar[str] = "counts"
    title: ClassVar[str] = "Which pass bought what"

    memories: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[PassCount, ...]
    same: tuple[int, ...]
    left_out: tuple[str, ...]
    cached: bool = False

    def around(self, number: int) -> tuple[Counters, Counters] | None:
        """The counters before and behind a pass, where both are known and differ."""
        for before, after in zip(self.rows, self.rows[1:], strict=False):
            if after.number == number and before.counters is not None and after.counters is not None:
                return (before.counters, after.counters) if before.counters != after.counters else None
        return None


# ------------------------------------------------------------------------------ the run


@dataclass(frozen=True)
class UnitShare:
    """How all copies of a unit spent the time, in shares of it: the parts of `busy` are work, filling before
    first results, and padding. `stalled` is by memory, `idle` by the unit that was waited for ("": none)."""

    unit: str
    copies: int
    tasks: int
    operations: int
    work: float
    filling: float
    padding: float
    stalled: tuple[tuple[str, float], ...]
    idle: tuple[tuple[str, float], ...]

    @property
    def busy(self) -> float:
        return self.work + self.filling + self.padding


@dataclass(frozen=True)
class SimulatedRun(Section):
    """The run of the program after the last pass; `found` is None where there is none, and `missing` says
    why. `instances` are how many there are of each memory, `notes` what the run leaves out."""

    id: ClassVar[str] = "run"
    title: ClassVar[str] = "Simulated run"

    found: Simulation | None
    units: tuple[UnitShare, ...]
    missing: str
    instances: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]

    def alive(self, memory: str) -> int | None:
        """The most bytes of a memory that were alive at once in the run."""
        if self.found is None or self.found.cycles is None:
            return None
        return next((own.most for own in self.found.occupancy if own.memory == memory), 0)


@dataclass(frozen=True)
class Crossed:
    """Bytes of a buffer ("": of all others) that cross a boundary: to the nearer side, and from it."""

    buffer: str
    inward: int
    outward: int


@dataclass(frozen=True)
class Boundary:
    """What crosses between two neighbours: a cache and what is behind it, or units and their nearest
    cache."""

    near: str
    far: str
    crossed: tuple[Crossed, ...]

    @property
    def inward(self) -> int:
        return sum(own.inward for own in self.crossed)

    @property
    def outward(self) -> int:
        return sum(own.outward for own in self.crossed)


@dataclass(frozen=True)
class CachesDrawn(Section):
    """The caches in a run, the nearest first, and what crosses between them and their neighbours, in
    `buffers` that have a colour each."""

    id: ClassVar[str] = "caches"
    title: ClassVar[str] = "Caches"

    caches: tuple[CacheUse, ...]
    capacities: tuple[tuple[str, int | None], ...]
    boundaries: tuple[Boundary, ...]
    buffers: tuple[str, ...]


@dataclass(frozen=True)
class Alive:
    """The bytes of a memory that are alive: from each of `cycles` on, `bytes`, until the run is over at
    `end`. `capacity` is that of all its instances."""

    memory: str
    cycles: tuple[float, ...]
    bytes: tuple[int, ...]
    most: int
    exact: bool
    capacity: int | None
    end: float


@dataclass(frozen=True)
class LaneTask:
    """A task in a lane: which of the blocks it is of, when it ran, and how long a memory kept it waiting. Or
    several of one nest with hardly a break between them: `count` tasks that took `busy` cycles, most of them
    in that block."""

    block: int
    begin: float
    end: float
    stalled: float
    memory: str
    count: int = 1
    busy: float = 0.0


@dataclass(frozen=True)
class Lane:
    """A unit and its first tasks; `busy` is the share of the whole run."""

    unit: str
    busy: float
    tasks: tuple[LaneTask, ...]


@dataclass(frozen=True)
class TimelineDrawn(Section):
    """Units and memories over time. Tasks are drawn up to the cycle `drawn`; `shown` of `total` are. Where
    that is too many, neighbours that are `short` are one; 0: each is drawn."""

    id: ClassVar[str] = "timeline"
    title: ClassVar[str] = "Timeline"

    cycles: int
    drawn: float
    shown: int
    total: int
    blocks: tuple[str, ...]
    lanes: tuple[Lane, ...]
    alive: tuple[Alive, ...]
    left_out: tuple[str, ...]
    short: float = 0.0


@dataclass(frozen=True)
class EnergyShare:
    """One product of the energy, and its share of all."""

    what: str
    count: int
    pj: float
    total_pj: float
    share: float


@dataclass(frozen=True)
class EnergyShares(Section):
    """Every product of the energy, the largest first."""

    id: ClassVar[str] = "energy"
    title: ClassVar[str] = "Energy"

    total_pj: float
    shares: tuple[EnergyShare, ...]
    static: bool
