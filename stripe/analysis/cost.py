"""The cost models by name: pure functions of a tiled block and a target.

    cache_lines_per_point   lines of all tiles over points (Stripe paper, Figure 4)
    roofline                work and bytes against the rates of units and memories

See the classes for what each counts and which limit it knows.
"""

from __future__ import annotations

from collections.abc import Callable

from stripe.analysis.cost_explicit import ExplicitRoofline
from stripe.analysis.cost_lines import CacheLinesPerPoint
from stripe.analysis.cost_problem import CostModel, Problem
from stripe.analysis.cost_registers import RegisterRoofline
from stripe.analysis.cost_roofline import MemoryRoofline


def roofline(problem: Problem) -> CostModel:
    """The roofline model for the kind of memory that a tile should fit in."""
    if problem.memory.kind == "registers":
        return RegisterRoofline(problem)
    if problem.memory.kind == "explicit":
        return ExplicitRoofline(problem)
    return MemoryRoofline(problem)


COST_MODELS: dict[str, Callable[[Problem], CostModel]] = {
    "cache_lines_per_point": CacheLinesPerPoint,
    "roofline": roofline,
}
