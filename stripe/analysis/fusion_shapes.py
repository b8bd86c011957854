"""What each block of a group needs at one tile of its consumer, for many tile sizes at once.

See `stripe.analysis.fusion_tiles` for what a group is, and what is moving and what whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from stripe.affine import Affine
from stripe.analysis.bounds import Counts
from stripe.analysis.cost_problem import Costs
from stripe.analysis.deps import Access
from stripe.analysis.fusion_sides import Scope, Side
from stripe.locks import cached_property


class Refused(Exception):
    """The group can't be put into tiles: the message says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where an index of a block, or a dimension of a buffer, lies at one tile.

    `extent` values from origin = pace(size * tile) + low on, where `pace` is linear over the tiled
    indexes of the consumer, in their points. Without a pace the span is the same at each tile.
    """

    pace: Affine
    low: Counts
    extent: Counts

    @property
    def moves(self) -> bool:
        return bool(self.pace.terms)

    @property
    def high(self) -> Counts:
        return self.low + self.extent - 1

    def at(self, candidate: int, sizes: Mapping[str, int], whole: int) -> Range:
        """The span for one of the candidates: over the numbers of the tiles. `sizes` has the
        indexes along which there are several; `whole`: the values run from 0 up to this."""
        low, size = pick(self.low, candidate), pick(self.extent, candidate)
        moving = {name: c * sizes[name] for name, c in self.pace.terms if name in sizes}
        if not moving:
            low, size = max(low, 0), min(low + size, whole) - max(low, 0)
        return Range(Affine.of(moving, low), size)


@dataclass(frozen=True, slots=True)
class Range:
    """`size` values from `origin` on, which is affine over the numbers of the tile."""

    origin: Affine
    size: int


_Driver: TypeAlias = tuple[str, int, int]
"""An index of a producer, and the element that it writes along a dimension: step * index + start."""


class Shapes:
    """The spans of all indexes of a group, and the boxes of its private buffers, for each of many
    tile sizes of the consumer."""

    def __init__(
        self, scope: Scope, group: Sequence[Side], private: Sequence[str], sizes: Mapping[str, Counts]
    ) -> None:
        self.scope = scope
        self.group = group
        self.private = private
        self.sizes = sizes
        self.boxes: dict[str, tuple[Span, ...]] = {}
        self._found: dict[int, dict[str, Span]] = {}
        last = len(group) - 1
        self._found[last] = {
            n: Span(Affine.index(n), count(0), sizes[n]) if n in sizes else _whole(size)
            for n, size in group[last].block.ranges.items()
        }
        for at in reversed(range(last)):
            self._found[at] = self._producer(at)
        self.spans = tuple(self._found[at] for at in range(len(group)))

    @cached_property
    def tiles(self) -> Counts:
        """How many tiles there are."""
        return prod((self._tiles_along(name) for name in self.sizes), start=count(1))

    def filled(self, at: int) -> Costs:
        """The share of the points of a block's spans that exist, as an average over the tiles: less
        than 1 where tiles reach over an end of its ranges."""
        block, share = self.group[at].block, np.asarray(1.0)
        for name, span in self.spans[at].items():
            several = prod((self._tiles_along(n) for n in span.pace.names), start=count(1))
            step = sum((abs(c) * self.sizes[n] for n, c in span.pace.terms), start=count(0))
            extent = np.minimum(span.extent, block.ranges[name])
            again = np.maximum(extent - step, 0) * (several - 1)
            share = share * np.minimum((block.ranges[name] + again) / (extent * several), 1.0)
        return share

    def _tiles_along(self, name: str) -> Counts:
        return -(-self.group[-1].block.ranges[name] // self.sizes[name])

    def _producer(self, at: int) -> dict[str, Span]:
        """The spans of a producer's indexes: all that writes into the boxes of its results."""
        side = self.group[at]
        results = [b for b in self.private if any(a.writes for a in side.to(b))]
        for buffer in results:
            if buffer not in self.boxes:
                self.boxes[buffer] = self._box(buffer, at)
        found: dict[str, Span] = {}
        for buffer in results:
            for dim, span in enumerate(self.boxes[buffer]):
                driver = _driver(side, buffer, dim)
                if driver is None or not span.moves:
                    continue
                name, moved = driver[0], _driven(span, driver)
                if name in found and found[name].pace != moved.pace:
                    raise Refused(f"the results of '{side.block.name}' are needed at different places")
                found[name] = _hull(found[name], moved) if name in found else moved
        for buffer in results:
            self.boxes[buffer] = tuple(self._grown(side, buffer, found))
        return {n: found.get(n) or _whole(size) for n, size in side.block.ranges.items()}

    def _grown(self, side: Side, buffer: str, found: Mapping[str, Span]) -> list[Span]:
        """The box of a result, with all that the producer writes at the spans of its indexes."""
        grown = []
        left = set(found)
        for dim, span in enumerate(self.boxes[buffer]):
            driver = _driver(side, buffer, dim)
            if driver is not None and driver[0] in found:
                left.discard(driver[0])
                if not span.moves:
                    raise Refused(
                        f"'{buffer}' is needed whole, other results of '{side.block.name}' in tiles"
                    )
                grown.append(_hull(span, _written(found[driver[0]], driver)))
            else:
                grown.append(span)
        if left:
            raise Refused(f"'{side.block.name}' sums '{buffer}' up over what other results need in tiles")
        return grown

    def _box(self, buffer: str, after: int) -> tuple[Span, ...]:
        """What the blocks behind a position read of a buffer at one tile."""
        shape = self.scope.refinement(buffer).shape
        reads = [
            (at, access)
            for at in range(after + 1, len(self.group))
            for access in self.group[at].to(buffer)
            if access.reads and not access.domain().is_empty()
        ]
        taken: set[tuple[int, str]] = set()
        box = []
        for dim, size in enumerate(shape):
            writers = [
                (at, _driver(side, buffer, dim))
                for at, side in enumerate(self.group)
                if any(a.writes for a in side.to(buffer))
            ]
            span = self._read(reads, dim)
            drivers = {(at, driver[0]) for at, driver in writers if driver is not None}
            aligned = span is not None and all(
                driver is not None and all(c % driver[1] == 0 for _, c in span.pace.terms)
                for _, driver in writers
            )
            if span is not None and span.moves and aligned and not drivers & taken:
                taken |= drivers
                box.append(span)
            else:
                box.append(_whole(size))
        return tuple(box)

    def _read(self, reads: Sequence[tuple[int, Access]], dim: int) -> Span | None:
        """The span of a dimension that holds all reads; None where they do not move alike."""
        pace: Affine | None = None
        low = high = count(0)
        for at, access in reads:
            side, spans = self.group[at], self._found[at]
            expr = access.element[dim]
            own = [(name, c) for name, c in side.own(expr) if spans[name].moves]
            moved = sum((spans[name].pace * c for name, c in own), Affine())
            limits = access.domain().bounds(expr.without({side.dim(name) for name, _ in own}))
            if limits is None or (pace is not None and moved != pace):
                return None
            ends = [_ends(spans[name], c) for name, c in own]
            first = sum((e[0] for e in ends), count(limits[0]))
            last = sum((e[1] for e in ends), count(limits[1]))
            low = first if pace is None else np.minimum(low, first)
            high = last if pace is None else np.maximum(high, last)
            pace = moved
        return None if pace is None else Span(pace, low, high - low + 1)


def _ends(span: Span, coefficient: int) -> tuple[Counts, Counts]:
    """The least and the greatest of coefficient * value, beside the pace."""
    ends = span.low * coefficient, span.high * coefficient
    return ends if coefficient > 0 else (ends[1], ends[0])


def _driver(side: Side, buffer: str, dim: int) -> _Driver | None:
    """The one index of the block itself along which all its writes to the buffer go in a dimension."""
    found: set[_Driver] = set()
    for access in side.to(buffer):
        if not access.writes:
            continue
        expr = access.element[dim]
        own = list(side.own(expr))
        if len(own) != 1 or len(expr.terms) != 1:
            return None
        found.add((own[0][0], own[0][1], expr.const))
    return found.pop() if len(found) == 1 else None


def _driven(span: Span, driver: _Driver) -> Span:
    """The values of an index for which step * index + start lies in the span."""
    _, step, start = driver
    pace = Affine.of({name: c // step for name, c in span.pace.terms})
    first, last = (span.low, span.high) if step > 0 else (span.high, span.low)
    low = -((start - first) // step)  # rounded up
    high = (last - start) // step
    return Span(pace, low, np.maximum(high - low + 1, 1))


def _written(span: Span, driver: _Driver) -> Span:
    """The elements step * index + start for all values of an index."""
    _, step, start = driver
    low, high = _ends(span, step)
    return Span(span.pace * step, low + start, high - low + 1)


def _hull(one: Span, other: Span) -> Span:
    low, high = np.minimum(one.low, other.low), np.maximum(one.high, other.high)
    return Span(one.pace, low, high - low + 1)


def _whole(size: int) -> Span:
    return Span(Affine(), count(0), count(size))


def count(value: int) -> Counts:
    """One number, which holds for all candidates."""
    return np.asarray(value, np.int64)


def pick(values: Counts, at: int) -> int:
    """The number of one candidate, where they may have one in common."""
    return int(values if values.ndim == 0 else values[at])
