"""What it takes to add up short rows one by one, and several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hwconfigs.model import Unit
from stripe.analysis.bounds import Views
from stripe.analysis.bundle import Rows
from stripe.analysis.cost_problem import TILE_CYCLES
from stripe.analysis.cost_registers_leaf import LATENCY_CYCLES
from stripe.analysis.lanes import Lane, lane_index, vector_width
from stripe.analysis.work import vector_operations
from stripe.locks import cached_property

SUMS = 0.5  # of the registers: the rest is for terms, and for what they are made of


@dataclass(frozen=True)
class Work:
    """Cycles that rows take."""

    rows: Rows
    unit: Unit

    def numbers(self) -> Sequence[int]:
        """How many rows at a time there may be: such that fill a vector, or, better, only whole ones, and
        whose sums registers can hold. None where one row fills vectors that do not wait for sums."""
        row, length = self.rows.leaf.ranges[self.rows.lane], self.rows.length
        if row % self._width == 0 and self._step(row) > LATENCY_CYCLES:
            return ()
        held = int(self.unit.registers * SUMS) * self._width // len(self.rows.sums)
        several = range(max(2, -(-self._width // length)), min(held // length, self.rows.count) + 1)
        return [number for number in several if number * length % self._width == 0] or several

    def together(self, number: int) -> float:
        """Those of so many rows at a time, with rows that are left over; and of blocks that add up their
        sums, and copy inputs, one row after the other."""
        rows = self.rows
        groups, left = divmod(rows.count, number)
        once = groups * self._step(number * rows.length) + (self._step(left * rows.length) if left else 0)
        more = len(rows.sums) + len(rows.beside) + (left > 0)
        times = rows.leaf.points // (rows.count * rows.length)
        return times * once + number * self._apart + more * TILE_CYCLES

    def one_by_one(self, outer: Views) -> float:
        """Those of one row after the other: vectors along rows, unless others cost less. Sums of several rows
        that are results grow side by side, as far as the registers hold them."""
        rows = self.rows
        lane = lane_index(rows.block, outer, self.unit.vector_bytes)
        if lane is not None and not (isinstance(lane, Lane) and lane.index == rows.lane):
            return lane.cost * rows.leaf.points / self.unit.fma_per_cycle
        row = rows.leaf.ranges[rows.lane]
        along = {name for ref in rows.sums for expr in ref.access for name in expr.names}
        results = prod(rows.leaf.ranges[name] for name in along) // row
        held = self.unit.registers * SUMS // (-(-row // self._width) * len(rows.sums))
        return rows.leaf.points / row * self._step(row, max(1, min(results, held)))

    @cached_property
    def _width(self) -> int:
        return vector_width(self.rows.block, self.unit.vector_bytes)

    @cached_property
    def _vector(self) -> float:
        """Those of one vector."""
        moved = [o for o in self.rows.leaf.operands if self.rows.row in o.indexes]
        loads = sum(o.direction.reads for o in moved) / self.unit.loads_per_cycle
        stores = sum(o.direction.writes for o in moved) / self.unit.stores_per_cycle
        return max(loads, stores, vector_operations(self.rows.leaf) / self.unit.fma_per_cycle)

    @cached_property
    def _apart(self) -> float:
        """Those of what goes one row after the other, for each row at a time: a row that is no even part of a
        vector is put together of two."""
        rows, row = self.rows, self.rows.leaf.ranges[self.rows.lane]
        ranges = {**rows.leaf.ranges, rows.row: 1, rows.lane: 1}
        each = (prod(ranges[name] for name in rows.place(ref)) for ref in (*rows.sums, *rows.beside))
        return sum(each) * LATENCY_CYCLES * (1 if self._width % row == 0 else 2)

    def _step(self, elements: int, beside: float = 1) -> float:
        """Those of so many elements side by side, of each of which so many sums grow side by side."""
        return max(-(-elements // self._width) * self._vector, LATENCY_CYCLES / beside)
