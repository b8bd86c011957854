"""The cost model of Figure 4 of the Stripe paper: cache lines for each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod

import numpy as np

from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, box_elements, tile_lines
from stripe.analysis.cost_problem import Evaluation, Limit, Problem
from stripe.analysis.cost_rows import runs
from stripe.analysis.cost_sizes import possible_sizes


class CacheLinesPerPoint:
    """Cache lines that all tiles touch, over the points of the indexes that may be tiled.

    cost = sum over operands and tiles of (lines of the operand's tile) / product of the ranges

    Lines are counted with the parts of a tile that overhang: no access happens there, but a tile
    is fetched whole. The limit: one tile of every operand together must fit in the memory.
    Operands that none of the indexes reaches are left out of both, unless asked for. The order
    of tiles plays no part: each is fetched anew.
    """

    unit = "cache lines per point"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.indices = problem.indices

    def refusal(self) -> str:
        return "" if self.problem.counted else "no operand depends on the indexes that may be tiled"

    def choices(self) -> dict[str, tuple[int, ...]]:
        return {n: possible_sizes(self.problem.ranges[n], self.problem.rule) for n in self.indices}

    def orders(self) -> tuple[tuple[str, ...], ...]:
        return (self.indices,)

    def evaluate(self, sizes: Sizes, order: Sequence[str], upto: Sizes | None = None) -> Evaluation:
        problem = self.problem
        complete = problem.complete(sizes)
        greatest = None if upto is None else problem.complete(upto)
        lines, needed = np.asarray(0, np.int64), np.asarray(0, np.int64)
        for operand in problem.counted:
            others = {n: s for n, s in (upto or sizes).items() if n not in operand.indexes}
            lines = lines + self._lines(operand, complete, greatest) * problem.tiles(others)
            needed = needed + box_elements(operand, complete) * operand.dtype.bytes
        cost = lines / prod(problem.ranges[n] for n in self.indices)
        memories = (problem.memory, *problem.limits)
        return Evaluation(cost, tuple(Limit(needed, m.bytes, f"bytes of {m.name}") for m in memories))

    def _lines(self, operand: Operand, sizes: Sizes, upto: Sizes | None) -> Counts:
        """Lines of all tiles that differ in the indexes of the operand; with `upto`, at least."""
        problem = self.problem
        line = max(1, problem.memory.line_bytes // operand.dtype.bytes)
        if upto is None:
            return tile_lines(operand, sizes, problem.ranges, line)
        rows, run = runs(operand, sizes, upto)
        apart = {n: upto[n] for n in problem.ranges if n in operand.indexes}
        return rows * -(-run // line) * problem.tiles(apart)

    def untiled(self, sizes: Mapping[str, int]) -> float:
        return inf  # the model knows no cost of loops

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        return ()

    def settled_lane(self, leaf: Leaf) -> str:
        return ""
