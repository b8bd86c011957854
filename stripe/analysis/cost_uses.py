"""The arithmetic of a statement in a tile, in cycles: uses of stencils, and vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hwconfigs.expressions import evaluate_size
from hwconfigs.model import Unit
from stripe.analysis.bounds import Leaf, Sizes
from stripe.analysis.cost_parts import Part, Use
from stripe.analysis.cost_problem import Costs, Problem
from stripe.analysis.cost_work import VectorWork
from stripe.analysis.stencils import lanes, use_sizes
from stripe.analysis.work import vector_operations
from stripe.ir import Intrinsic, Load, Store


@dataclass(frozen=True, slots=True)
class Work:
    """The arithmetic of a part: uses of stencils, and vectors, with cycles of one."""

    uses: tuple[tuple[Mapping[str, int], float], ...]
    vectors: tuple[tuple[VectorWork, float], ...]
    points: int

    @staticmethod
    def of(part: Part, problem: Problem) -> Work:
        uses, points = [], 1
        for use in part.uses:
            uses.append((use.around, _stencil_cycles(use, problem)))
            points = max(points, prod(use.around.values()) * use.block.points)
        vectors = []
        for leaf in part.leaves:
            points = max(points, leaf.points)
            unit = unit_for(leaf, problem)
            if unit is not None:
                vectors.append((VectorWork.of(leaf, unit), _vector_cycles(leaf, unit)))
        return Work(tuple(uses), tuple(vectors), points)

    def cycles(self, sizes: Sizes, upto: Sizes | None) -> Costs:
        """Uses and vectors that overhang altogether are left out: there are as many uses whatever the tile.
        With `upto`, no sizes from `sizes` to `upto` take less."""
        total: Costs = np.asarray(sum(prod(around.values()) * cycles for around, cycles in self.uses))
        for work, each in self.vectors:
            total = total + _vectors(work, sizes, upto) * each
        return total


def _vector_cycles(leaf: Leaf, unit: Unit) -> float:
    """Cycles of the statements of a leaf for one vector of points: the longest of its operations, its loads
    and its stores."""
    loads, stores = (sum(isinstance(s, kind) for s in leaf.block.statements) for kind in (Load, Store))
    return max(
        vector_operations(leaf) / unit.fma_per_cycle,
        loads / unit.loads_per_cycle,
        stores / unit.stores_per_cycle,
    )


def _vectors(work: VectorWork, sizes: Sizes, upto: Sizes | None) -> Costs:
    """How many vectors go through all tiles: those of the last one along the lanes may be fewer."""
    total: Costs = np.asarray(float(prod(size for name, size in work.ranges.items() if name != work.lane)))
    if not work.lane:
        return total
    size = work.ranges[work.lane]
    least = -(-size // work.width)
    if upto is not None:
        return total * np.maximum(least, -(-size // np.asarray(upto.get(work.lane, size), np.int64)))
    tile = np.asarray(sizes.get(work.lane, size), np.int64)
    full = (size - 1) // tile
    return total * (full * -(-tile // work.width) + -(-(size - full * tile) // work.width))


def unit_for(leaf: Leaf, problem: Problem) -> Unit | None:
    """The first compute unit that reaches the memory and can do what the leaf does; else the
    problem's."""
    needed = {s.op for s in leaf.block.statements if isinstance(s, Intrinsic)}
    for unit in problem.hw.compute_units:
        able = "*" in unit.operations or needed <= set(unit.operations)
        if able and problem.memory.name in unit.reaches:
            return unit
    return problem.unit


def _stencil_cycles(use: Use, problem: Problem) -> float:
    """Cycles of one use of a stencil."""
    stencil = problem.hw.stencil(use.block.tag_values("stencil")[0])
    unit = problem.hw.unit(stencil.unit) if stencil is not None else None
    if stencil is None or unit is None:
        return 1.0
    if not stencil.cycles:
        return 1.0 + stencil.startup_cycles
    values: dict[str, float] = {n: s if isinstance(s, int) else 1.0 for n, s in stencil.indices.items()}
    values["lanes"] = lanes(stencil, problem.hw)
    own = dict(list(use.leaf.ranges.items())[len(use.leaf.ranges) - len(use.leaf.block.ranges) :])
    sizes = use_sizes(stencil, replace(use.leaf, ranges=own), problem.hw) or [{}]
    cycles = min(max(evaluate_size(stencil.cycles, values | s), 0.0) for s in sizes)
    return stencil.startup_cycles + cycles
