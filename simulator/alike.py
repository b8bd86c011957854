"""Points that are alike: executions of a block that differ only in where they are.

What a block does depends on the values that its parent passes in only through constraints that cut some of
its points away (ragged tiles, padding). `signature` says what of these values matters; executions with the
same signature do the same, so that each kind is worked out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from stripe.affine import Affine, box_of
from stripe.ir import Block

Ints = NDArray[np.int64]
Point = Mapping[str, int]
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """A constraint in a block as its parent's points see it: where `value + least >= 0` it always holds."""

    value: Affine
    least: int


def passed_in(block: Block) -> dict[str, Affine]:
    """The indexes that a block is passed, over the names of its parent."""
    return {i.name: i.passed for i in block.indexes if i.passed is not None}


def lifted(ranges: Mapping[str, int], passed: Mapping[str, Affine], inner: Sequence[Cut]) -> tuple[Cut, ...]:
    """Cuts over the names of a block as cuts over those of its parent, without those that always hold."""
    bounds = box_of(ranges)
    found: dict[Cut, None] = {}
    for cut in inner:
        own = cut.value.only(frozenset(ranges))
        low, _ = own.bounds(bounds)
        outer = (cut.value - own).substitute(passed)
        if not (outer.is_constant and outer.const + cut.least + low >= 0):
            found.setdefault(Cut(outer, cut.least + low))
    return tuple(found)


def signature(cuts: Sequence[Cut], point: Point) -> tuple[int, ...]:
    """What matters of a point: 0 for each cut that cuts nothing there, else by how much it may."""
    return tuple([min(cut.value.evaluate(point) + cut.least, 0) for cut in cuts])


@dataclass(frozen=True, slots=True)
class Grid:
    """The points of one execution of a block: each index along an axis of its own, passed ones as numbers.
    `live` says which points there are; None: all."""

    ranges: Mapping[str, int]
    values: Mapping[str, Ints]
    live: NDArray[np.bool_] | None
    count: int

    @staticmethod
    def of(block: Block, point: Point) -> Grid:
        passed = {name: expr.evaluate(point) for name, expr in passed_in(block).items()}
        return Grid.over(block.ranges, [c.expr for c in block.constraints], passed)

    @staticmethod
    def over(ranges: Mapping[str, int], constraints: Sequence[Affine], passed: Point) -> Grid:
        axes = len(ranges)
        values = {name: np.asarray(value, np.int64) for name, value in passed.items()}
        for axis, (name, size) in enumerate(ranges.items()):
            values[name] = np.arange(size, dtype=np.int64).reshape(
                [-1 if a == axis else 1 for a in range(axes)]
            )
        bounds = {name: (int(v.min()), int(v.max())) for name, v in values.items() if v.size}
        shape = tuple(ranges.values())
        if 0 in shape:
            return Grid(ranges, values, np.zeros(shape, bool), 0)
        live: NDArray[np.bool_] | None = None
        for expr in constraints:
            if expr.bounds(bounds)[0] < 0:
                holds = _over(expr, values) >= 0
                live = holds if live is None else live & holds
        if live is None:
            return Grid(ranges, values, None, prod(shape))
        live = np.broadcast_to(live, shape)
        return Grid(ranges, values, live, int(np.count_nonzero(live)))

    def kinds(self, cuts: Sequence[Cut]) -> Iterator[tuple[dict[str, int], int]]:
        """The points by what the cuts make of them: one of each kind, and how many there are."""
        shape = tuple(self.ranges.values())
        live = np.ones((), bool) if self.live is None else self.live
        if not cuts:
            yield self.point(0 if self.live is None else int(np.argmax(live))), self.count
            return
        live = np.broadcast_to(live, shape)
        columns = [
            np.broadcast_to(np.minimum(_over(c.value, self.values) + c.least, 0), shape)[live] for c in cuts
        ]
        places = np.flatnonzero(live)
        found = np.unique(np.stack(columns, 1), axis=0, return_index=True, return_counts=True)
        for at, many in zip(found[1], found[2], strict=True):
            yield self.point(int(places[at])), int(many)

    def over_points(self, expr: Affine, least: int = 0, clip: bool = False) -> Ints:
        """The value of an expression at each point that is there; `clip`: as `signature` has it."""
        total = np.broadcast_to(_over(expr, self.values) + least, tuple(self.ranges.values()))
        total = total.reshape(-1) if self.live is None else total[self.live]
        return np.minimum(total, 0) if clip else total

    def interval(self, expr: Affine) -> Interval:
        """The least and the greatest value of an expression over the points."""
        total = _over(expr, self.values)
        if self.live is not None:
            total = np.broadcast_to(total, self.live.shape)[self.live]
        return int(total.min()), int(total.max())

    def distinct(self, access: Sequence[Affine], box: Sequence[Interval]) -> int:
        """How many elements of a box the points reach."""
        number: Ints = np.asarray(0, np.int64)
        for expr, (low, high) in zip(access, box, strict=True):
            number = number * (high - low + 1) + (_over(expr, self.values) - low)
        if self.live is not None:
            number = np.broadcast_to(number, self.live.shape)[self.live]
        return int(np.unique(number).size)

    def groups(self, name: str, width: int) -> int:
        """How many groups of `width` values of one index, from 0 on, have a point, over all values of the
        others: vectors along that index."""
        shape = tuple(self.ranges.values())
        if not name:
            return self.count
        axis, size = list(self.ranges).index(name), self.ranges[name]
        if self.live is None:
            return self.count // size * -(-size // width)
        rest = -size % width
        padded = np.pad(np.moveaxis(self.live, axis, -1), [(0, 0)] * (len(shape) - 1) + [(0, rest)])
        return int(np.count_nonzero(padded.reshape(*padded.shape[:-1], -1, width).any(-1)))

    def point(self, place: int) -> dict[str, int]:
        at = dict(
            zip(self.ranges, np.unravel_index(place, tuple(self.ranges.values()) or (1,)), strict=False)
        )
        return {name: int(at[name]) if name in at else int(v) for name, v in self.values.items()}


def _over(expr: Affine, values: Mapping[str, Ints]) -> Ints:
    total: Ints = np.asarray(expr.const, np.int64)
    for name, factor in expr.terms:
        total = total + factor * values[name]
    return total
