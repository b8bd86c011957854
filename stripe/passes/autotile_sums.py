"""The part of autotile that cuts what a block reduces over, where that saves copies or goes along memory.

A tile of a long reduction may have rows that crowd into few sets of the memory: such an input is copied, or
fetched again and again. Or it has more rows than a core fetches ahead, from which tiles in registers take
short pieces in turn; or they come from beyond all caches. Pieces of the reduction have fewer rows, of which
the next can be asked for ahead, but the results come back for each of them.
Where no rows crowd, or copies are also made to read inputs in one order, a cut has to save more: results come
back for what it spares elsewhere.

In registers a long sum is cut into a few steps, or into single ones, where these then go through memory as
it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import CostModel, Problem
from stripe.analysis.cost_registers import RegisterRoofline
from stripe.analysis.cost_roofline import LEAST_STEPS, MemoryRoofline
from stripe.analysis.search import Found, search
from stripe.ir import Direction

LEAST_GAIN = 0.03  # of the cycles
SPARED = 0.25  # the same where no rows crowd: then results come back for what pieces spare elsewhere
FETCHED_STEPS = 32  # of a piece, at least, where the core fetches rows ahead by itself


def cutting_sums(model: CostModel, name: str, least: Mapping[str, int] | None = None) -> CostModel:
    """A model, which has this name, where what is reduced over may be cut, too; `least` is the size of
    pieces along some indexes."""
    if isinstance(model, MemoryRoofline):
        return model.with_sums(least)
    return COST_MODELS[name](replace(model.problem, reductions=True))


def with_sums_cut(model: CostModel, found: Found, name: str, max_candidates: int) -> tuple[CostModel, Found]:
    """A search in which what is reduced over is cut, too, with its model, which has this name; those that
    are given where that saves little."""
    best, cutting = found.best, cutting_sums(model, name)
    problem = cutting.problem
    sums = {n: problem.ranges[n] for n in cutting.indices if n not in model.indices}
    if not sums or best is None or best.cost is None:
        return model, found
    uncut = float(cutting.evaluate({**sums, **best.sizes}, (*sums, *best.order)).cost)
    limit = (1 - LEAST_GAIN) * uncut
    if best.cost > limit or not problem.in_one_order:
        if not isinstance(model, MemoryRoofline):
            return model, found
        limit = (1 - SPARED) * best.cost
    cut = search(cutting, max_candidates)
    if cut.best is None or cut.best.cost is None or cut.best.cost > limit:
        return model, found
    fetched = problem.unit is not None and problem.unit.streams is not None
    least = FETCHED_STEPS if fetched else LEAST_STEPS
    if prod(cut.best.sizes[name] for name in sums) >= least:
        return cutting, cut
    cutting = cutting_sums(model, name, _steps(problem, sums, least))
    cut = search(cutting, max_candidates)
    pays = cut.best is not None and cut.best.cost is not None and cut.best.cost <= limit
    return (cutting, cut) if pays else (model, found)


def _steps(problem: Problem, sums: Mapping[str, int], least: int) -> dict[str, int]:
    """Sizes of pieces that have so many steps of a sum together: along memory, as far as they reach."""
    inputs = [operand for operand in problem.operands if operand.direction is Direction.IN]
    found, left = dict[str, int](), least
    for name in sorted(sums, key=lambda name: max(abs(operand.stride(name)) for operand in inputs)):
        found[name] = min(sums[name], left)
        left = -(-left // found[name])
    return found


def with_steps_beside(model: CostModel, found: Found) -> tuple[CostModel, Found]:
    """The tile of a few steps of a sum in which these go along memory side by side, or one after the other,
    with its model; what is given where that does not pay."""
    best = found.best
    sizes = model.steps_beside(best.sizes) if isinstance(model, RegisterRoofline) and best is not None else {}
    if not sizes:
        return model, found
    beside = RegisterRoofline(replace(model.problem, names=tuple(sizes)))
    return beside, search(beside, 1, given=sizes, orders=(tuple(sizes),))
