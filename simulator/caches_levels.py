"""Caches behind each other, and the memory behind them: what reaches each of them, and what crosses.

Instructions reach the cache that their unit sees first, line by line. What a cache does not hold it
fetches from the memory behind, as one access to each line there, and what it writes back goes there, too.
A cache that there are several of has an instance for each copy of the units, or for neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hwconfigs.model import HwConfig, Memory
from simulator.caches import AGAIN, OWNER, STORES, WHOLE, Accesses, Cache
from simulator.caches_nodes import Tag
from simulator.caches_recent import Ints, quotient
from simulator.caches_stream import Chunk

ENOUGH = 1 << 17  # instructions of several chunks that are looked up together

Owner: TypeAlias = tuple[str, str]  # a unit, and a buffer by path
Instance: TypeAlias = tuple[str, int]  # a memory, and which of its instances
Crossed: TypeAlias = Counter[tuple[Instance, Owner, bool]]  # bytes, and whether they were written


@dataclass(slots=True)
class Level:
    """A cache, and what was counted of it, by owner: accesses to lines, of these `missed` ones, and
    lines that it fetched and wrote back, of these `left` ones that were dirty at the end."""

    cache: Cache
    backing: Instance
    accesses: Counter[Owner] = field(default_factory=Counter)
    missed: Counter[Owner] = field(default_factory=Counter)
    fetched: Counter[Owner] = field(default_factory=Counter)
    written: Counter[Owner] = field(default_factory=Counter)
    left: Counter[Owner] = field(default_factory=Counter)


@dataclass(slots=True)
class _Arrivals:
    """What reaches a memory from one side, in the order of `times`."""

    times: Ints
    starts: Ints
    sizes: Ints
    codes: Ints


class Levels:
    """The caches of a target, nearest first."""

    def __init__(self, hw: HwConfig, tags: Sequence[Tag]) -> None:
        caches = hw.caches
        self.levels = {
            (m.name, number): Level(Cache(m), _behind(m, number, hw))
            for m in sorted(caches, key=lambda m: -_depth(m.name, hw))
            for number in range(m.count)
        }
        self._instances = {m.name: m.count for m in caches}
        units = {unit.name: unit.count for unit in hw.units}
        self._units = np.asarray([units[t.unit] for t in tags], np.int64)
        self._crossed: Crossed = Counter()
        self._owners = list(dict.fromkeys((t.unit, t.place.path) for t in tags))
        numbers = {owner: at for at, owner in enumerate(self._owners)}
        self._codes = np.asarray(
            [
                numbers[t.unit, t.place.path] << OWNER | t.stores * STORES | t.adds * AGAIN
                for t in tags
            ],
            np.int64,
        )  # fmt: skip
        entries = [t.entry if t.cached else "" for t in tags]
        self._entering = {
            name: np.asarray([entry == name for entry in entries]) for name in dict.fromkeys(entries) if name
        }

    def run(self, chunk: Chunk) -> None:
        """Instructions, one after the other."""
        arrivals: dict[Instance, list[_Arrivals]] = {key: [] for key in self.levels}
        for name, own in self._entering.items():
            at = np.arange(len(chunk.tags), dtype=np.int64)
            if len(self._entering) > 1:
                at = at[own[chunk.tags]]
            for number, some in self._by_instance(name, chunk, at):
                starts, sizes, tags = chunk.starts, chunk.sizes, chunk.tags
                if len(some) < len(tags):
                    starts, sizes, tags = starts[some], sizes[some], tags[some]
                arrivals[name, number].append(_Arrivals(some, starts, sizes, self._codes[tags]))
        self._through(arrivals)

    def _by_instance(self, name: str, chunk: Chunk, at: Ints) -> Iterator[tuple[int, Ints]]:
        """Which of some instructions reach which instance of a cache."""
        many = self._instances[name]
        if chunk.copies is None or many == 1:
            yield 0, at
            return
        numbers = instance_of(chunk.copies[at], self._units[chunk.tags[at]], many)
        for number in np.unique(numbers).tolist():
            yield number, at[numbers == number]

    def of(self, name: str) -> list[Level]:
        """The instances of a cache."""
        return [level for (memory, _), level in self.levels.items() if memory == name]

    def take(self) -> Crossed:
        """The bytes that caches read from and wrote to the memories behind them since the last time."""
        found, self._crossed = self._crossed, Counter()
        return found

    def end(self) -> None:
        """All that is dirty is written back, by the nearest cache first."""
        for level in self.levels.values():
            dirty = level.cache.leave()
            size = level.cache.line_bytes
            self._count(level.left, dirty.codes)
            self._count(level.written, dirty.codes)
            arrivals: dict[Instance, list[_Arrivals]] = {key: [] for key in self.levels}
            self._behind(level, np.arange(len(dirty.lines), dtype=np.int64), dirty, size, arrivals)
            self._through(arrivals)

    def _through(self, arrivals: dict[Instance, list[_Arrivals]]) -> None:
        for key, level in self.levels.items():
            found = arrivals[key]
            if not found:
                continue
            times, accesses = _lines(_in_turn(found), level.cache.line_bytes)
            if not len(times):
                continue
            self._count(level.accesses, accesses.codes)
            again = accesses.codes[(accesses.codes & AGAIN) != 0]
            self._count(level.accesses, again)
            came = level.cache.run(accesses)
            self._count(level.missed, accesses.codes[came.missed])
            stores = (came.behind.codes & STORES) != 0
            self._count(level.fetched, came.behind.codes[~stores])
            self._count(level.written, came.behind.codes[stores])
            self._behind(level, times[came.because], came.behind, level.cache.line_bytes, arrivals)

    def _behind(
        self, level: Level, times: Ints, lines: Accesses, size: int, arrivals: dict[Instance, list[_Arrivals]]
    ) -> None:
        counted = np.bincount(lines.codes >> OWNER << 1 | lines.codes & STORES)
        for code in np.flatnonzero(counted).tolist():
            crossed = level.backing, self._owners[code >> 1], bool(code & 1)
            self._crossed[crossed] += int(counted[code]) * size
        if level.backing in arrivals and len(lines.lines):
            sizes = np.full(len(lines.lines), size, np.int64)
            arrivals[level.backing].append(_Arrivals(times, lines.lines * size, sizes, lines.codes))

    def _count(self, counter: Counter[Owner], codes: Ints) -> None:
        counted = np.bincount(codes >> OWNER)
        for owner in np.flatnonzero(counted).tolist():
            counter[self._owners[owner]] += int(counted[owner])


def gathered(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same instructions in chunks that are not too small."""
    known, many = list[Chunk](), 0
    for chunk in chunks:
        alike = not known or (known[0].copies is None) == (chunk.copies is None)
        if not alike or many >= ENOUGH:
            yield _joined(known)
            known, many = [], 0
        known.append(chunk)
        many += len(chunk.tags)
    if known:
        yield _joined(known)


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    copies = [chunk.copies for chunk in chunks if chunk.copies is not None]
    return Chunk(
        np.concatenate([chunk.starts for chunk in chunks]),
        np.concatenate([chunk.sizes for chunk in chunks]),
        np.concatenate([chunk.tags for chunk in chunks]),
        np.concatenate(copies) if copies else None,
    )


def _in_turn(found: Sequence[_Arrivals]) -> _Arrivals:
    if len(found) == 1:
        return found[0]
    times, starts, sizes, codes = (
        np.concatenate([getattr(part, key) for part in found])
        for key in ("times", "starts", "sizes", "codes")
    )
    turn = np.argsort(times, kind="stable")
    return _Arrivals(times[turn], starts[turn], sizes[turn], codes[turn])


def _lines(found: _Arrivals, size: int) -> tuple[Ints, Accesses]:
    """What arrives, line by line. A line that comes from a cache and is written whole need not be
    fetched."""
    first = quotient(found.starts, size)
    many = quotient(found.starts + found.sizes - 1, size) - first + 1
    times, codes = found.times, found.codes
    from_cache = (codes & WHOLE) != 0
    lines = first
    if (many > 1).any():
        at = np.repeat(np.arange(len(first)), many)
        lines = first[at] + np.arange(len(at)) - np.repeat(np.cumsum(many) - many, many)
        times, codes, from_cache = times[at], codes[at], from_cache[at]
        starts, sizes = found.starts[at], found.sizes[at]
    else:
        starts, sizes = found.starts, found.sizes
    if from_cache.any():
        covered = (starts <= lines * size) & (lines * size + size <= starts + sizes)
        codes = np.where(covered, codes, codes & ~WHOLE)
    return times, Accesses(lines, codes)


def instance_of(copies: Ints, units: Ints | int, many: int) -> Ints:
    """The instance that copies of so many units reach: each one of its own, or neighbours share one."""
    return np.where(many >= units, copies, copies * many // np.maximum(units, 1))


def _behind(memory: Memory, number: int, hw: HwConfig) -> Instance:
    farther = hw.memory(memory.backing or "")
    if farther is None or farther.kind != "cached":
        return memory.backing or "", 0
    return farther.name, int(instance_of(np.asarray(number), memory.count, farther.count))


def _depth(name: str, hw: HwConfig) -> int:
    memory, depth = hw.memory(name), 0
    while memory is not None and memory.backing is not None:
        memory, depth = hw.memory(memory.backing), depth + 1
    return depth
