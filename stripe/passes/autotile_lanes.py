"""The part of autotile that weighs tiles in registers for other lane indexes than the one that reads most in
vectors.

That one may have a range that fills few vectors, or whose tiles share little of what they load. Results of
another one may lie across its lanes, where they are stored in squares, and inputs may be copied first: its
tiles have to cost clearly less.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from stripe.analysis.cost_problem import CostModel
from stripe.analysis.cost_registers import RegisterRoofline
from stripe.analysis.search import Found

LEAST_GAIN = 0.05  # of the cycles: the model errs by as much between tiles that load and store otherwise
COPIES_WAIT = 2  # times as long as in the model take copies in tiles that only other lanes need


def with_other_lanes(
    model: CostModel, found: Found, weigh: Callable[[CostModel], Found]
) -> tuple[CostModel, Found]:
    """The cheapest of what is found and of what `weigh` finds for other lane indexes, with its model. What
    fits in the registers is taken before what does not."""
    if not isinstance(model, RegisterRoofline):
        return model, found
    best, limit, copies = (model, found), inf, 0.0
    longer = COPIES_WAIT - 1 if model.problem.in_tile else 0
    if found.best is not None and found.best.cost is not None:
        limit, copies = (1 - LEAST_GAIN) * found.best.cost, model.copies(found.best.sizes)
    for other in model.along_other_lanes():
        weighed = weigh(other)
        if weighed.best is not None and weighed.best.cost is not None:
            more = max(0.0, other.copies(weighed.best.sizes) - copies)
            cost = weighed.best.cost + longer * more
            if cost < limit:
                best, limit = (other, weighed), cost
    return best
