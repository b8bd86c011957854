"""The operations of a leaf on a vector unit, in tiles of some sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwconfigs.model import Unit
from stripe.analysis.bounds import Leaf, Sizes
from stripe.analysis.cost_problem import Costs
from stripe.analysis.lanes import Joined, joined_row, lane_candidates, vector_width
from stripe.ir import Cast, Intrinsic


@dataclass(frozen=True, slots=True)
class VectorWork:
    """A leaf on a vector unit: the index that runs along the lanes (empty: none), how many elements fill a
    vector, the operations for each point, and the `share` of the time of a full vector that one takes; and
    the row index along which vectors may go on, if there is one (`joined`)."""

    ranges: Mapping[str, int]
    lane: str
    width: int
    operations: int
    unit: Unit
    share: float = 1.0
    joined: Joined | None = None

    @staticmethod
    def of(leaf: Leaf, unit: Unit, alone: bool = False) -> VectorWork:
        """`alone`: copies of inputs may decide the lane index, as no other leaf has part in it."""
        lanes = lane_candidates(leaf, unit.vector_bytes, packed=alone, path_bytes=unit.path_bytes)
        width = vector_width(leaf.block, unit.vector_bytes)
        operations = sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements)
        lane, share = (lanes[0].index, lanes[0].share) if lanes else ("", 1.0)
        joined = joined_row(leaf, lane, width) if alone and lane else None
        joined = joined if joined is not None and joined.matters else None
        return VectorWork(leaf.ranges, lane, width, max(1, operations), unit, share, joined)

    def cycles(self, sizes: Sizes, upto: Sizes | None = None) -> Costs:
        """Cycles of all vector operations in all tiles, idle lanes and overhanging points included.

        With `upto`, no sizes from `sizes` to `upto` take less.
        """
        steps = work_steps(self.ranges, {self.lane: self.width}, sizes, upto) * self.share
        if self.joined is not None:
            steps = np.where(self._go_on(upto or sizes), self._joined_steps(sizes, upto), steps)
        return steps * self.operations / self.unit.fma_per_cycle

    def _go_on(self, sizes: Sizes) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether vectors go on from row to row in tiles of these sizes."""
        assert self.joined is not None
        complete = {**self.ranges, **sizes}
        return np.asarray(
            self.joined.pays(complete) & (np.asarray(complete[self.lane]) == self.ranges[self.lane])
        )

    def _joined_steps(self, sizes: Sizes, upto: Sizes | None) -> Costs:
        """Vector operations where they do."""
        assert self.joined is not None
        lane, row = self.lane, self.joined.row
        each = self.ranges[lane]

        def joined(of: Sizes) -> Sizes:
            rows = np.asarray(of.get(row, self.ranges[row]), np.int64)
            return {**{name: of[name] for name in of if name not in (lane, row)}, lane: rows * each}

        ranges = joined(self.ranges)
        return work_steps(ranges, {lane: self.width}, joined(sizes), None if upto is None else joined(upto))


def work_steps(ranges: Sizes, most: Mapping[str, int], sizes: Sizes, upto: Sizes | None = None) -> Costs:
    """The steps of a leaf in all tiles, each of which takes up to `most` points along some indexes.

    With `upto`, no sizes from `sizes` to `upto` take less.
    """
    steps: Costs = np.asarray(1.0)
    for name, size in ranges.items():
        width = most.get(name, 1)
        tile = np.asarray(sizes.get(name, size), np.int64)
        greatest = tile if upto is None else np.asarray(upto.get(name, size), np.int64)
        padded = -(-tile // width) * -(-size // greatest)
        steps = steps * np.maximum(padded, -(-size // width))
    return steps


def with_lanes_inside(ranges: Mapping[str, int], leaf: Leaf, unit: Unit) -> dict[str, int]:
    """Ranges with the index that would run along the lanes innermost, as code will have it."""
    lane = next((lane.index for lane in lane_candidates(leaf, unit.vector_bytes, among=ranges)), "")
    return {name: ranges[name] for name in sorted(ranges, key=lambda name: name == lane)}
