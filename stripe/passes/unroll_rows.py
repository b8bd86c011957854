"""The part of unroll that writes out several steps of a sum whose results stay in memory.

Where vectors go along a result that is too long for registers,

    O[x] += I[r, x] * F[r]        x: lanes, in a loop inside that over r

each step loads the results, adds to them and stores them again, and one row of I after the other is brought
in. With 4 values of r written out, results are loaded and stored once for 4 rows, and memory is asked for
all of them at the same time, which it answers faster than one after the other.
"""

from __future__ import annotations

from collections.abc import Collection

from hwconfigs.model import HwConfig
from stripe.analysis.lanes import vector_width
from stripe.ir import Block, Cast, Direction, Intrinsic, Refinement
from stripe.passes.unroll_window import Window

ROWS = 4  # at a time, at most
DEEP_ROWS = 8  # where each load that goes along a row has that row fetched far ahead
LEAST_VECTORS = 4  # of a row
MOST_OPERATIONS = 4  # for each element: what takes longer hides the rest


def find_rows(block: Block, registers: Collection[str], hw: HwConfig) -> Window | None:
    """How many steps of which sum a leaf block should write out, whose results do not lie in the buffers
    `registers`; None if it gains nothing."""
    unit = hw.compute_unit
    lane = next(iter(block.tag_values("vector")), "")
    results = [ref for ref in block.refinements if ref.direction.writes]
    if unit is None or not lane or tuple(block.ranges)[-1] != lane:
        return None
    if any(lane in constraint.expr.names for constraint in block.constraints):
        return None
    if any(block.has_tag(tag) for tag in ("across", "group", "unroll")):
        return None
    if any(not ref.combines or ref.name in registers for ref in results):
        return None
    if any(ref.direction is Direction.NEW for ref in block.refinements) or not all(
        _step(ref, lane) for ref in results
    ):
        return None
    operations = sum(isinstance(s, Intrinsic | Cast) for s in block.statements)
    width = vector_width(block, unit.vector_bytes)
    if operations > MOST_OPERATIONS or block.ranges[lane] < LEAST_VECTORS * width:
        return None
    inputs = [ref for ref in block.refinements if ref.direction is Direction.IN]
    most = DEEP_ROWS if "fetches_deep" in unit.capabilities else ROWS
    for name in reversed(block.ranges):
        added = name != lane and not any(_step(ref, name) for ref in results)
        rows = any(_step(ref, name) and _step(ref, lane) for ref in inputs)
        count = next((n for n in range(most, 1, -1) if block.ranges[name] % n == 0), 1)
        if added and rows and count > 1:
            return Window(name, count)
    return None


def _step(ref: Refinement, name: str) -> bool:
    return any(expr.coefficient(name) for expr in ref.access)
