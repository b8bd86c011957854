"""Bytes that a program brings into a cache, from the order in which its loops touch memory.

From the innermost loop outwards: what one turn of a loop touches is still there in the next one as far as
there is room for all of it. So a loop brings in, in the best case, what all its turns touch together, and in
the worst each turn its own. The blocks inside a block follow each other in the same way.

There is no sharp limit: with twice as much as there is room for, all is gone before it comes round again;
in between, a part is. (Least recently used would lose everything at once, but caches only come near to that.)

Rows that are a large power of two apart lie on few sets. They take the room of those many times over, while
the rest of the cache stands free for others:

    A[1024*m], m = 0 .. 19, f32      20 lines on one of 64 sets, as many as 1280 on all
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd, prod
from typing import TypeAlias

import numpy as np

from stripe.affine import Affine
from stripe.analysis.cost_program_nest import Access, Nest
from stripe.analysis.cost_rows import in_lines

Key: TypeAlias = tuple[int, int]  # a nest, by identity, and the number of its access
# Loops, outermost first: how far an index has come after each, and whether registers hold all that is inside.
Order: TypeAlias = Sequence[tuple[str, int, bool]]

WINDOW = 64  # executions of an access that are on their way at once


def footprint(access: Access, inside: Mapping[str, int], line: int) -> float:
    """Bytes, in whole lines, that an access touches while the indexes `inside` run."""
    size = access.buffer.dtype.bytes
    counts: dict[int, int] = {}
    for name, coefficient in access.place.terms:
        if inside.get(name, 1) > 1:
            stride = abs(coefficient) * size
            counts[stride] = counts.get(stride, 1) + inside[name] - 1
    span, rows = size, 1
    apart, side = 0, 1  # the last rows that were found: how far apart, and how many side by side
    for stride, count in sorted(counts.items()):
        if rows == 1 and stride <= max(span, line):
            span += stride * (count - 1)
        elif apart and stride % apart == 0 and stride // apart <= side:
            more = stride // apart * (count - 1)  # rows of a window that moves on
            rows = rows // side * (side + more)
            side += more
        else:
            rows *= count
            apart, side = stride, count
    # Where in a line rows begin: at multiples of what they and the executions around move by.
    moves = [abs(c) * size for n, c in access.place.terms if inside.get(n, 1) == 1]
    begin = gcd(line, access.place.const * size, *moves, apart if rows > 1 else 0)
    return float(rows * in_lines(span, begin, line))


@lru_cache(maxsize=4096)
def crowding(moving: tuple[tuple[int, int], ...], way: int, line: int) -> float:
    """All sets of a cache over those that an access uses: in `moving` its steps, in bytes, and turns."""
    places = np.zeros(1, np.int64)
    for step, number in sorted(moving):
        steps = step * np.arange(min(number, way // gcd(step, way)))
        places = np.unique((places[:, None] + steps) % way)
        if len(places) * line > way and len(np.unique(places // line)) * line >= way:
            return 1.0
    return way / line / len(np.unique(places // line))


@dataclass(frozen=True, slots=True)
class _Moved:
    """What was found of the blocks looked at: bytes of each access, the indexes that ran, the accesses."""

    bytes: dict[Key, float]
    inside: dict[str, int]
    used: list[tuple[Key, Access]]


@dataclass(slots=True)
class _Window:
    """The steps, in bytes, and turns of as many executions of an access as there are on their way at once:
    the `row` that a vector goes along, and what moves on from one execution to the next.
    Its rows begin up to so many elements `beyond` the start of a line."""

    beyond: int = 0
    row: tuple[int, int] | None = None
    moving: list[tuple[int, int]] = field(default_factory=list)

    @property
    def every(self) -> tuple[tuple[int, int], ...]:
        return (*self.moving, *(() if self.row is None else (self.row,)))

    def goes_on(self, step: int, turns: int, size: int, held: bool) -> None:
        executions = prod(number for _, number in self.moving)
        last = self.moving[-1] if self.moving else self.row
        if step == size and last is None:  # a vector, or a row that vectors go through
            self.row = step, turns + self.beyond
        elif held and last is not None and last[0] == step:  # what copies share is loaded once
            longer = step, last[1] + turns - 1
            if self.moving:
                self.moving[-1] = longer
            else:
                self.row = longer
        elif step and executions < WINDOW:
            self.moving.append((step, min(turns, -(-WINDOW // executions))))


class Traffic:
    """Bytes into a cache of `capacity` bytes for each access of each block, in one of many runs of a program.
    `orders` are the loops of blocks, by identity, where they are not run as they stand; an index may have
    several, such as one over vectors and one over their lanes. The places of a way of
    `way` bytes are told apart; 0: all lines are one set. Of what lies on crowded sets a share `loss` is lost
    for each time beyond the first that it takes the room of them."""

    def __init__(
        self,
        root: Nest,
        orders: Mapping[int, Order],
        capacity: float,
        line: int,
        way: int = 0,
        loss: float = 0.0,
    ) -> None:
        self._orders, self._capacity, self._line, self._way = orders, capacity, line, way
        self._loss = loss
        self._windows: dict[Key, _Window] = {}
        moved = self._of(root)
        staying = self._staying(moved)
        self._bytes = {
            key: (1 - staying[access.buffer.number]) * moved.bytes[key] for key, access in moved.used
        }

    def bytes(self, nest: Nest, number: int) -> float:
        """Those of one access, by its number."""
        return self._bytes[id(nest), number]

    def sets(self, nest: Nest, number: int) -> float:
        """Among how many sets one access goes to and fro while WINDOW of its executions are on their way."""
        moving = self._windows[id(nest), number].every
        return self._way / self._line / crowding(moving, self._way, self._line)

    def _of(self, nest: Nest) -> _Moved:
        inner = [self._of(part) for part in nest.parts]
        found = _Moved({}, {}, [])
        for part in inner:
            found.bytes.update(part.bytes)
            found.inside.update(part.inside)
            found.used.extend(part.used)
        for number, access in enumerate(nest.accesses):
            if not access.buffer.near:
                found.bytes[id(nest), number] = float(self._line)
                found.used.append(((id(nest), number), access))
                self._windows[id(nest), number] = _Window(_beyond(access, self._line))
        if len(inner) > 1:
            self._one_after_the_other(found, inner)
        as_it_stands = tuple((name, upto, False) for name, upto in nest.loops.items())
        for name, upto, held in reversed(self._orders.get(id(nest), as_it_stands)):
            self._loop(found, name, upto, held)
        return found

    def _one_after_the_other(self, found: _Moved, inner: Sequence[_Moved]) -> None:
        """What a block finds of what those before it left."""
        together = self._touched(found.used, found.inside)
        staying = self._staying(found)
        apart: dict[int, float] = {}
        for part in inner:
            for buffer, bytes_ in self._touched(part.used, part.inside).items():
                apart[buffer] = apart.get(buffer, 0.0) + bytes_
        for key, access in found.used:
            buffer = access.buffer.number
            if buffer in apart:
                stays = staying[buffer]
                found.bytes[key] *= stays * together[buffer] / apart[buffer] + (1 - stays)

    def _loop(self, found: _Moved, name: str, upto: int, held: bool) -> None:
        turns = -(-upto // found.inside.get(name, 1))
        if turns > 1:
            before = self._touched(found.used, found.inside)
            staying = self._staying(found)
            after = self._touched(found.used, {**found.inside, name: upto})
            for key, access in found.used:
                buffer = access.buffer.number
                stays = 1.0 if held else staying[buffer]
                found.bytes[key] *= stays * after[buffer] / before[buffer] + (1 - stays) * turns
                step = abs(access.place.coefficient(name)) * access.buffer.dtype.bytes
                step *= found.inside.get(name, 1)
                self._windows[key].goes_on(step, turns, access.buffer.dtype.bytes, held)
        found.inside[name] = upto

    def _staying(self, moved: _Moved) -> dict[int, float]:
        """The share of what is touched of each buffer that is still there when it comes round again."""
        touched = self._touched(moved.used, moved.inside)
        alone = self._crowded(moved) if self._way else {}
        every, found = sum(touched.values()), dict[int, float]()
        for buffer, bytes_ in touched.items():
            room = self._capacity / every if every else 1.0
            crowded = every + max(0.0, alone.get(buffer, 0.0) - bytes_)
            found[buffer] = max(0.0, min(2 * room - 1, 1 - self._loss * (crowded / self._capacity - 1), 1.0))
        return found

    def _crowded(self, moved: _Moved) -> dict[int, float]:
        """Bytes of each buffer as if all sets were as full as those that its most crowded access uses."""
        found: dict[int, float] = {}
        for access in {access for _, access in moved.used}:
            number, inside = access.buffer.number, moved.inside
            crowded = crowding(_moving(access, inside), self._way, self._line)
            room = footprint(access, inside, self._line) * crowded
            found[number] = max(room, found.get(number, 0.0))
        return found

    def _touched(self, used: Sequence[tuple[Key, Access]], inside: Mapping[str, int]) -> dict[int, float]:
        """Bytes of each buffer: all that is touched in different ways, but no more than lies between."""
        total: dict[int, float] = {}
        seen: set[object] = set()
        reach: dict[tuple[int, object], tuple[int, int, int]] = {}
        for _, access in used:
            number, size = access.buffer.number, access.buffer.dtype.bytes
            fixed = access.place.without(set(inside))
            moving = tuple(sorted((c, inside[n]) for n, c in access.place.terms if inside.get(n, 1) > 1))
            if (number, fixed, moving) in seen:
                continue
            seen.add((number, fixed, moving))
            total[number] = total.get(number, 0.0) + footprint(access, inside, self._line)
            low, high = _between(fixed, moving)
            first, last, _ = reach.get((number, fixed.terms), (low, high, size))
            reach[number, fixed.terms] = min(first, low), max(last, high), size
        between: dict[int, float] = {}
        for (number, _), (low, high, size) in reach.items():
            between[number] = between.get(number, 0.0) + (high - low) * size + self._line
        return {number: min(bytes_, between[number]) for number, bytes_ in total.items()}


def _moving(access: Access, inside: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """The steps of an access, in bytes, and their turns, while the indexes `inside` run."""
    size = access.buffer.dtype.bytes
    return tuple((abs(c) * size, inside[n]) for n, c in access.place.terms if inside.get(n, 1) > 1)


def _beyond(access: Access, line: int) -> int:
    """How far behind the start of a line, in elements, rows of an access begin at most."""
    size = access.buffer.dtype.bytes
    begin = gcd(line, access.place.const * size, *(c * size for _, c in access.place.terms if abs(c) != 1))
    return (line - begin) // size


def _between(fixed: Affine, moving: Sequence[tuple[int, int]]) -> tuple[int, int]:
    low = high = fixed.const
    for coefficient, size in moving:
        low += min(0, coefficient * (size - 1))
        high += max(0, coefficient * (size - 1))
    return low, high
