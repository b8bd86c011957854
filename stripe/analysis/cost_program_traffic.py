"""Bytes that a program brings into a cache, from the order in which its loops touch memory.

From the innermost loop outwards: what one turn of a loop touches is still there in the next one as far as
there is room for all of it. So a loop brings in, in the best case, what all its turns touch together, and in
the worst each turn its own. The blocks inside a block follow each other in the same way.

There is no sharp limit: with twice as much as there is room for, all is gone before it comes round again;
in between, a part is. (Least recently used would lose everything at once, but caches only come near to that.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stripe.affine import Affine
from stripe.analysis.cost_program_nest import Access, Nest

Key: TypeAlias = tuple[int, int]  # a nest, by identity, and the number of its access


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
    lines = float(-(-span // line))
    if rows > 1 and apart % line:
        lines = span / line + 1 - size / line  # rows begin anywhere in a line
    return rows * lines * line


@dataclass(frozen=True, slots=True)
class _Moved:
    """What was found of the blocks looked at: bytes of each access, the indexes that ran, the accesses."""

    bytes: dict[Key, float]
    inside: dict[str, int]
    used: list[tuple[Key, Access]]


class Traffic:
    """Bytes into a cache of `capacity` bytes for each access of each block, in one of many runs of a program.
    `orders` are the loops of blocks, by identity, where they are not run as they stand."""

    def __init__(self, root: Nest, orders: Mapping[int, Sequence[str]], capacity: float, line: int) -> None:
        self._orders, self._capacity, self._line = orders, capacity, line
        moved = self._of(root)
        again = 1 - self._staying(self._touched(moved.used, moved.inside))
        self._bytes = {key: again * bytes_ for key, bytes_ in moved.bytes.items()}

    def bytes(self, nest: Nest, number: int) -> float:
        """Those of one access, by its number."""
        return self._bytes[id(nest), number]

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
        if len(inner) > 1:
            self._one_after_the_other(found, inner)
        for name in reversed(self._orders.get(id(nest), tuple(nest.loops))):
            self._loop(found, name, nest.loops[name])
        return found

    def _one_after_the_other(self, found: _Moved, inner: Sequence[_Moved]) -> None:
        """What a block finds of what those before it left."""
        together = self._touched(found.used, found.inside)
        staying = self._staying(together)
        apart: dict[int, float] = {}
        for part in inner:
            for buffer, bytes_ in self._touched(part.used, part.inside).items():
                apart[buffer] = apart.get(buffer, 0.0) + bytes_
        for key, access in found.used:
            buffer = access.buffer.number
            if buffer in apart:
                found.bytes[key] *= staying * together[buffer] / apart[buffer] + (1 - staying)

    def _loop(self, found: _Moved, name: str, size: int) -> None:
        if size > 1:
            before = self._touched(found.used, found.inside)
            staying = self._staying(before)
            after = self._touched(found.used, {**found.inside, name: size})
            for key, access in found.used:
                buffer = access.buffer.number
                found.bytes[key] *= staying * after[buffer] / before[buffer] + (1 - staying) * size
        found.inside[name] = size

    def _staying(self, touched: Mapping[int, float]) -> float:
        """The share of what is touched that is still there when it comes round again."""
        needed = sum(touched.values())
        return min(1.0, max(0.0, 2 * self._capacity / needed - 1)) if needed else 1.0

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


def _between(fixed: Affine, moving: Sequence[tuple[int, int]]) -> tuple[int, int]:
    low = high = fixed.const
    for coefficient, size in moving:
        low += min(0, coefficient * (size - 1))
        high += max(0, coefficient * (size - 1))
    return low, high
