"""Which index of a leaf block should run along the lanes of a vector.

The choice counts vector instructions for one point. Along a lane index, an operand that moves by
one element is one vector access, one that does not move is a splat, one with another stride is
taken apart; a store that does not move is a reduction, summed across the lanes at the end. What
does not depend on a reduction index is loaded or stored once for all its steps. A range that is
no multiple of the width leaves lanes idle.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import log2, prod

from stripe.analysis.bounds import Leaf, Operand, Views, leaves
from stripe.ir import Block, Cast, Intrinsic, Load, Special

SPLAT = 0.5  # a broadcast from memory often joins the arithmetic instruction
STORE = 1.5  # a scattered element costs more than a gathered one


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane index: `width` elements fill a vector, `cost` is in vector instructions per point.

    `reduces` says that some store does not depend on the index.
    """

    index: str
    width: int
    reduces: bool
    cost: float


def vector_width(block: Block, vector_bytes: int) -> int:
    """How many elements fill a vector: as many as the widest type of the block's scalars allows."""
    widest = max(
        (s.dtype.bytes for s in block.statements if isinstance(s, Load | Intrinsic | Cast)), default=1
    )
    return max(1, vector_bytes // widest)


def access_instructions(operand: Operand, index: str, width: int) -> float:
    """Instructions to load or store one vector of an operand along an index."""
    stride = abs(operand.stride(index))
    if not any(expr.coefficient(index) for expr in operand.access):
        return 0.0 if operand.direction.writes else SPLAT
    if stride == 1:
        return 1.0
    return min(2.0 * max(stride, 1), width) * (STORE if operand.direction.writes else 1.0)


def lane_candidates(leaf: Leaf, vector_bytes: int, among: Collection[str] | None = None) -> tuple[Lane, ...]:
    """The possible lane indexes of a leaf (only those in `among`, if given), best first.

    Equal costs go to an index that does not reduce, then to the longer range, then to the later
    position. There are none if the leaf holds a special.
    """
    if any(isinstance(s, Special) for s in leaf.block.statements):
        return ()
    width = vector_width(leaf.block, vector_bytes)
    reductions = leaf.reductions
    found: list[tuple[float, bool, int, int, Lane]] = []
    for position, (name, size) in enumerate(leaf.ranges.items()):
        if size < 2 or (among is not None and name not in among):
            continue
        cost, reduces = _cost(leaf, name, width, reductions), name in reductions
        found.append((cost, reduces, -size, -position, Lane(name, width, reduces, cost)))
    return tuple(lane for *_, lane in sorted(found, key=lambda entry: entry[:4]))


def lane_index(block: Block, outer: Views, vector_bytes: int) -> Lane | None:
    """The best lane index of a leaf block whose parent has the views `outer`, if it has any."""
    of_block = next((leaf for leaf in leaves(block, outer) if leaf.block is block), None)
    found = lane_candidates(of_block, vector_bytes) if of_block is not None else ()
    return found[0] if found else None


def _cost(leaf: Leaf, name: str, width: int, reductions: tuple[str, ...]) -> float:
    size = leaf.ranges[name]
    steps = -(-size // width)
    instructions = 0.0
    for operand in leaf.operands:
        once = prod(leaf.ranges[n] for n in reductions if n != name and n not in operand.indexes)
        instructions += access_instructions(operand, name, width) / once
        if operand.direction.writes and name not in operand.indexes:
            instructions += 2 * log2(max(width, 2)) / (steps * once)
    instructions += sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements)
    return instructions * steps / size
