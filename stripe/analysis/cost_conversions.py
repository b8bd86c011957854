"""What a leaf block converts as it loads it, and what that costs at each point anew."""

from __future__ import annotations

from math import prod

from hwconfigs.model import Unit
from stripe.analysis.bounds import Leaf, box
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Load
from stripe.visit import scalars_read

INSTRUCTIONS = 2  # to convert a vector
SHARED = 4  # points of a register tile that use one converted vector


def converted_loads(block: Block) -> dict[str, DType]:
    """The buffers of which a leaf block uses nothing but what it converts to one type, with that type."""
    loaded = {s.result: s.buffer for s in block.statements if isinstance(s, Load)}
    found: dict[str, set[DType | None]] = {}
    for statement in block.statements:
        made = statement.dtype if isinstance(statement, Cast) else None
        for name in scalars_read(statement):
            if name in loaded:
                found.setdefault(loaded[name], set()).add(made)
    one = ((buffer, next(iter(types))) for buffer, types in found.items() if len(types) == 1)
    return {buffer: dtype for buffer, dtype in one if dtype is not None}


def elements_read(leaf: Leaf, name: str) -> int:
    """Elements of the box of a buffer that a leaf loads from."""
    operand = next(o for o in leaf.operands if o.name == name and not o.direction.writes)
    return max(1, prod(box(operand, leaf.ranges)))


def conversion_cycles(leaf: Leaf, name: str, dtype: DType, unit: Unit) -> float:
    """Cycles to convert what a leaf loads of a buffer, where it is loaded. An element that is used at many
    points is converted for a few of them at a time."""
    own = leaf.block.refinement(name).dtype
    width = max(1, unit.vector_bytes // max(dtype.bytes, own.bytes))
    often = leaf.points / elements_read(leaf, name)
    return leaf.points / width * INSTRUCTIONS / min(max(often, 1.0), SHARED) / unit.fma_per_cycle
