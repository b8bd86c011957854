"""A program on a target with caches: what it does, how long it takes, and what that costs.

Statements of the root follow each other. Each takes as long as what keeps busiest in it: a copy of its
unit, or an instance of a memory with what crosses its boundary; and before that the longest latency of what
it reads. Dirty lines are written back when all is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import Literal

import msgspec
import numpy as np

from hwconfigs.model import HwConfig, Unit
from simulator.caches_alive import occupancy
from simulator.caches_closed import ClosedAccesses
from simulator.caches_levels import Crossed, Instance, Level, Levels, gathered, instance_of
from simulator.caches_nodes import Plan, Scalars, Whole
from simulator.caches_stream import Stream, Tally
from simulator.energy import energy
from simulator.layout import laid_apart
from simulator.meters import exact
from simulator.places import element_bytes
from simulator.result import (
    BlockCount,
    CacheCount,
    CacheUse,
    Interval,
    KernelTime,
    MemoryUse,
    Simulation,
    Traffic,
    UnitTime,
)
from simulator.shares import split_of
from simulator.work import Site
from stripe.analysis.liveness import peaks
from stripe.diag import InvariantError
from stripe.ir import Block, Special

Counts = Literal["closed", "simulated", "both"]
Crossing = Counter[tuple[Site, str, str]]  # bytes by block, memory, path of the buffer


@dataclass(slots=True)
class _Kernel:
    """One statement of the root: when it runs, what keeps how busy meanwhile, what is read only after which
    latency, and the unit or memory that binds it."""

    name: str
    begin: Fraction
    end: Fraction = Fraction(0)
    units: dict[tuple[str, int], Fraction] = field(default_factory=dict)
    memories: dict[str, Fraction] = field(default_factory=dict)
    latency: tuple[Fraction, str] = (Fraction(0), "")
    bound: str = ""

    @property
    def held_up_by(self) -> str:
        """What binds it, or the memory that it waits for longer than that."""
        late, memory = self.latency
        return memory if late > self.end - self.begin - late else self.bound


class CacheRun:
    """One root on the caches of a target. `crossing` is what moves between the buffers in a memory and what
    is nearer, by block, and beyond the first level by statement of the root."""

    def __init__(self, root: Block, hw: HwConfig, counts: Counts) -> None:
        self._hw = hw
        self._root, apart = laid_apart(root, hw)
        self._plan = Plan(self._root, hw, apart)
        self._counts = counts
        self._levels: Levels | None = None
        self._crossed: list[Crossed] = []  # in each item of the root, and at the end
        self._held: dict[str, list[int]] = {}  # bytes of the lines in each cache behind each item
        self.crossing: Crossing = Counter()
        closed = ClosedAccesses(self._plan) if counts != "simulated" else None
        stream = self._run() if counts != "closed" else None
        if closed is not None and stream is not None:
            _compare(stream, closed)
        if stream is not None:
            self._found = stream.total()
            self._copies = stream.copies
        else:
            assert closed is not None
            self._found = Tally(closed.words, closed.instructions, closed.counts)
            self._copies = {0: self._found}  # which copy does what is not known without a run
        self._cross()

    def _run(self) -> Stream:
        stream, levels = Stream(self._plan), Levels(self._hw, self._plan.tags)
        for number in range(len(self._plan.root.items)):
            for chunk in gathered(stream.of(number)):
                levels.run(chunk)
            self._crossed.append(levels.take())
            for memory in self._hw.memories:
                if memory.kind == "cached":
                    lines = sum(level.cache.held for level in levels.of(memory.name))
                    self._held.setdefault(memory.name, []).append(lines * memory.line_bytes)
        levels.end()
        self._crossed.append(levels.take())
        self._levels = levels
        return stream

    def _cross(self) -> None:
        last = max(len(self._root.statements) - 1, 0)
        for tag in range(len(self._plan.tags)):
            own = self._plan.tags[tag]
            self.crossing[own.site, own.entry, own.place.path] += self._bytes(tag) * (1 + own.adds)
        for first, moved in zip([*self._plan.first, last], self._crossed, strict=False):
            for ((memory, _), (_, path), _), size in moved.items():
                self.crossing[(first,), memory, path] += size

    def result(self, name: str) -> Simulation:
        """What was found; without energy for what stands still, bounds and load-time program."""
        kernels = list(self._kernels()) if self._levels is not None else []
        settled = self._settled(kernels[-1].end if kernels else Fraction(0))
        cycles = settled[1] if self._levels is not None else None
        entries = [entry for _, entry in self._plan.entries()]
        blocks = [self._block(entry, self._copies.values()) for entry in entries]
        if kernels:
            blocks = [
                msgspec.structs.replace(block, bound=kernels[self._plan.item(entry.site)].held_up_by or None)
                for block, entry in zip(blocks, entries, strict=True)
            ]
        traffic = list(self._traffic())
        spent = list(
            energy(traffic, ((b, None) for b in blocks), self._hw, None if cycles is None else ceil(cycles))
        )
        seconds = (
            float(cycles / exact(self._hw.clock_hz)) if cycles is not None and self._hw.clock_hz else None
        )
        return Simulation(
            program=name, target=self._hw.name, counts=self._counts,
            cycles=None if cycles is None else ceil(cycles), seconds=seconds, skipped=0,
            operations=sum(b.operations for b in blocks), energy_pj=sum(e.total_pj for e in spent),
            traffic=traffic, memories=list(self._memories(traffic, cycles)),
            units=list(self._units(kernels, settled)) if cycles is not None else [], blocks=blocks,
            kernels=[_kernel_time(k) for k in kernels], energy=spent, caches=list(self._caches()),
            occupancy=list(
                occupancy(self._root, self._hw, self._plan.first, [k.begin for k in kernels], self._held)
            ),
        )  # fmt: skip

    # -- time --------------------------------------------------------------------------------------

    def _kernels(self) -> Iterator[_Kernel]:
        now = Fraction(0)
        entries: list[list[Scalars | Whole]] = [[] for _ in self._plan.root.items]
        for _, entry in self._plan.entries():
            entries[self._plan.item(entry.site)].append(entry)
        for number in range(len(entries)):
            statement = self._root.statements[self._plan.first[number]]
            named = statement.name if isinstance(statement, Block | Special) else self._root.name
            own = _Kernel(f"{self._root.name}/{named}", now)
            moved: Counter[Instance] = Counter()
            read = set[str]()
            for copy, tally in sorted(self._copies.items()):
                for entry in entries[number]:
                    if worked := self._busy(entry, tally):
                        key = entry.unit.name, copy
                        own.units[key] = own.units.get(key, Fraction(0)) + worked
                    for tag in entry.tags:
                        access = self._plan.tags[tag]
                        if words := tally.words[tag]:
                            size = words * access.element_bytes * (1 + access.adds)
                            moved[self._entered(tag, copy)] += size
                            read |= {access.entry} if not access.stores or access.adds else set()
            for (instance, _, stores), size in self._crossed[number].items():
                moved[instance] += size
                read |= {instance[0]} if not stores else set()
            own.memories = self._longest(moved)
            late = ((exact(m.latency_cycles or 0), m.name) for m in self._hw.memories if m.name in read)
            own.latency = max(late, default=own.latency)
            busiest = dict(own.memories)
            for (unit, _), worked in own.units.items():
                busiest[unit] = max(worked, busiest.get(unit, worked))
            own.bound = max(busiest, key=lambda k: (busiest[k], k), default="")
            now += own.latency[0] + busiest.get(own.bound, Fraction(0))
            own.end = now
            yield own

    def _settled(self, begin: Fraction) -> tuple[str, Fraction]:
        """The memory that what is dirty at the end keeps busiest, and when that is written back."""
        moved: Counter[Instance] = Counter()
        for (instance, _, _), size in (self._crossed[-1] if self._crossed else {}).items():
            moved[instance] += size
        taken = self._longest(moved)
        bound = max(taken, key=lambda k: (taken[k], k), default="")
        return bound, begin + taken.get(bound, Fraction(0))

    def _entered(self, tag: int, copy: int) -> Instance:
        """The instance of a memory that an access of a copy of its unit reaches first."""
        access = self._plan.tags[tag]
        memory, unit = self._hw.memory(access.entry), self._hw.unit(access.unit)
        if memory is None or unit is None or memory.kind == "explicit":
            return access.entry, 0
        return access.entry, int(instance_of(np.asarray(copy), unit.count, memory.count))

    def _longest(self, moved: Mapping[Instance, int]) -> dict[str, Fraction]:
        """Cycles of the busiest instance of each memory."""
        found: dict[str, Fraction] = {}
        for (name, _), size in moved.items():
            found[name] = max(self._delivers(name, size), found.get(name, Fraction(0)))
        return found

    def _delivers(self, name: str, size: int) -> Fraction:
        """Cycles that an instance of a memory takes for some bytes; those that programs manage are as one."""
        memory = self._hw.memory(name)
        if memory is None or not memory.bytes_per_cycle:
            return Fraction(0)
        together = memory.count if memory.kind == "explicit" else 1
        return size / (exact(memory.bytes_per_cycle) * memory.banks * together)

    def _busy(self, entry: Scalars | Whole, tally: Tally) -> Fraction:
        """Cycles of a copy of a unit: the longest of what it computes, what it loads, and what it stores."""
        unit, loads, stores = entry.unit, 0, 0
        for tag in entry.tags:
            access = self._plan.tags[tag]
            if not self._hw.is_registers(access.place.memory):
                many = tally.instructions[tag]
                loads += many * (not access.stores or access.adds)
                stores += many * access.stores
        computed = tally.counts[entry.site, "vectors", unit.name]
        rate = entry.rate if isinstance(entry, Scalars) else 1 / exact(unit.fma_per_cycle)
        parts = [computed * rate, loads / exact(unit.loads_per_cycle), stores / exact(unit.stores_per_cycle)]
        return max(parts)

    def _units(self, kernels: list[_Kernel], settled: tuple[str, Fraction]) -> Iterator[UnitTime]:
        entries = [entry for _, entry in self._plan.entries()]
        for unit in self._hw.units:
            for number in range(unit.count):
                tally = self._copies.get(number)
                blocks = [self._block(e, [tally]) for e in entries if tally and e.unit.name == unit.name]
                yield _unit_time(unit, number, kernels, settled, blocks, self._hw)

    # -- counts ------------------------------------------------------------------------------------

    def _bytes(self, tag: int) -> int:
        return self._found.words[tag] * self._plan.tags[tag].element_bytes

    def _block(self, entry: Scalars | Whole, tallies: Collection[Tally]) -> BlockCount:
        """What an entry did on some copies of its unit."""
        name, operations = entry.unit.name, entry.operations if isinstance(entry, Scalars) else 0
        points = vectors = 0
        busy = padding = Fraction(0)
        for tally in tallies:
            own = tally.counts[entry.site, "points", name], tally.counts[entry.site, "vectors", name]
            worked = self._busy(entry, tally)
            room = entry.room * own[1] if isinstance(entry, Scalars) else 0
            points, vectors, busy = points + own[0], vectors + own[1], busy + worked
            padding += worked * (1 - Fraction(own[0], room)) if room else 0
        return BlockCount(
            path=entry.path, unit=name, points=points, operations=points * operations, uses=0,
            vectors=vectors, starts=0, bytes=0, busy=float(busy), filling=0.0, padding=float(padding),
        )  # fmt: skip

    def _traffic(self) -> Iterator[Traffic]:
        words = element_bytes(self._root)
        found: dict[tuple[str, str, str], Counter[str]] = {}
        for tag, access in enumerate(self._plan.tags):
            if size := self._bytes(tag):
                own = found.setdefault((access.entry, access.place.path, access.unit), Counter())
                own["written" if access.stores else "read"] += size
                own["updated"] += size * access.adds
        for crossed in self._crossed:
            for ((memory, _), (unit, path), stores), size in crossed.items():
                own = found.setdefault((memory, path, unit), Counter())
                own["written" if stores else "read"] += size
        for (memory, buffer, unit), own in sorted(found.items()):
            size = words[buffer]
            yield Traffic(
                memory=memory, buffer=buffer, unit=unit, read=own["read"], written=own["written"],
                updated=own["updated"], word_bytes=size, words_read=own["read"] // size,
                words_written=own["written"] // size,
            )  # fmt: skip

    def _memories(self, traffic: list[Traffic], cycles: Fraction | None) -> Iterator[MemoryUse]:
        most, single = peaks(self._root, self._hw), peaks(self._root, self._hw, in_one=True)
        known = {access.entry for access in self._plan.tags}
        for memory in self._hw.memories:
            if cycles is None and memory.name not in known:
                continue  # what reaches it is not known without a run
            own = [t for t in traffic if t.memory == memory.name]
            read, written, updated = (sum(getattr(t, k) for t in own) for k in ("read", "written", "updated"))
            busy = None
            if memory.bytes_per_cycle and cycles:
                busy = float(self._delivers(memory.name, read + written + updated) / cycles)
                busy /= 1 if memory.kind == "explicit" else memory.count
            peak, in_one = (f[memory.name].bytes if memory.name in f else 0 for f in (most, single))
            if self._levels is not None and memory.kind == "cached":
                lines = [level.cache.held for level in self._levels.of(memory.name)]
                peak, in_one = sum(lines) * memory.line_bytes, max(lines, default=0) * memory.line_bytes
            yield MemoryUse(
                memory=memory.name, bytes=memory.bytes, peak=peak, read=read, written=written,
                updated=updated, busy=busy, contended=0.0, instances=memory.count,
                in_one=in_one if memory.count > 1 else None,
            )  # fmt: skip

    def _caches(self) -> Iterator[CacheUse]:
        names = dict.fromkeys(name for name, _ in self._levels.levels) if self._levels else {}
        for name in names:
            memory = self._hw.memory(name)
            assert memory is not None and self._levels is not None
            levels = self._levels.of(name)
            buffers = list(_cache_counts(levels))
            sums = {
                key: sum(getattr(b, key) for b in buffers)
                for key in ("accesses", "hits", "misses", "fetched", "written_back", "left")
            }
            cache = levels[0].cache
            yield CacheUse(
                memory=name, sets=cache.sets, ways=cache.ways, line_bytes=cache.line_bytes,
                replacement=memory.replacement, buffers=buffers, **sums,
            )  # fmt: skip

    def trace(self, most: int) -> list[Interval]:
        """The first so many statements of the root, on each unit that works in them."""
        found = [
            Interval(unit=unit, number=number, path=k.name, begin=float(k.begin), end=float(k.end))
            for k in (self._kernels() if self._levels is not None else ())
            for unit, number in k.units
        ]
        return found[:most]


def _compare(stream: Stream, closed: ClosedAccesses) -> None:
    """Both ways of counting must give the same whole numbers."""
    total = stream.total()
    for what in ("words", "instructions", "counts"):
        one, other = getattr(total, what), getattr(closed, what)
        for key in {**one, **other}:
            if one[key] != other[key]:
                raise InvariantError(f"{what} of {key}: {one[key]} in the run, {other[key]} in closed form")


def _kernel_time(own: _Kernel) -> KernelTime:
    taken = own.end - own.begin
    busiest = max((*own.units.values(), *own.memories.values()), default=Fraction(0))
    return KernelTime(
        kernel=own.name, begin=floor(own.begin), end=ceil(own.end), bound=own.bound,
        share=float(busiest / taken) if taken else 0.0,
    )  # fmt: skip


def _unit_time(
    unit: Unit, number: int, kernels: list[_Kernel], settled: tuple[str, Fraction],
    blocks: Sequence[BlockCount], hw: HwConfig,
) -> UnitTime:  # fmt: skip
    """What a unit does all the time: it waits for the memory that binds, or whose latency it is, or for
    the unit that does."""
    busy, tasks = Fraction(0), 0
    stalled, idle = dict[str, Fraction](), dict[str, Fraction]()

    def waits(time: Fraction, name: str, memories: Collection[str]) -> None:
        known = stalled if name in memories else idle
        if time:
            known[name] = known.get(name, Fraction(0)) + time

    for own in kernels:
        worked = own.units.get((unit.name, number), Fraction(0))
        busy, tasks = busy + worked, tasks + (worked > 0)
        late, where = own.latency
        waits(own.end - own.begin - late - worked, own.bound, own.memories)
        waits(late, where, own.memories)
    last = kernels[-1].end if kernels else Fraction(0)
    waits(settled[1] - last, settled[0], (settled[0],))
    held, without = ({name: float(time) for name, time in sorted(part.items())} for part in (stalled, idle))
    padding = sum(block.padding for block in blocks)
    return UnitTime(
        unit=unit.name, number=number, tasks=tasks, busy=float(busy), stalled=held, idle=without,
        operations=sum(block.operations for block in blocks),
        split=split_of(float(busy), 0.0, padding, held, without, hw),
    )  # fmt: skip


def _cache_counts(levels: Sequence[Level]) -> Iterator[CacheCount]:
    """What all instances of a cache did, by owner."""
    size = levels[0].cache.line_bytes
    for owner in sorted({o for level in levels for o in (*level.accesses, *level.written)}):
        accesses, missed, fetched, written, left = (
            sum(counter[owner] for counter in counters)
            for counters in zip(
                *((k.accesses, k.missed, k.fetched, k.written, k.left) for k in levels), strict=True
            )
        )
        yield CacheCount(
            unit=owner[0], buffer=owner[1], accesses=accesses, hits=accesses - missed, misses=missed,
            fetched=fetched * size, written_back=written * size, left=left * size,
        )  # fmt: skip
