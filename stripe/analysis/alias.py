"""May two names of one block show the same element?

Within a block, two refinements can overlap only if they are views of the same buffer of the
parent. Whether they do is decided on their boxes, exactly over the block's points.
"""

from __future__ import annotations

from stripe.affine import Affine
from stripe.ir import Block, Direction, Refinement
from stripe.poly import Domain, block_domain


def aliases(block: Block, name: str) -> tuple[str, ...]:
    """The other names of the block that may show an element of the view `name`."""
    own = block.refinement(name)
    return tuple(ref.name for ref in block.refinements if ref is not own and _meet(block, own, ref))


def _meet(block: Block, one: Refinement, other: Refinement) -> bool:
    return _same_buffer(one, other) and not _common(block, one, other).is_empty()


def _same_buffer(one: Refinement, other: Refinement) -> bool:
    own = Direction.NEW in (one.direction, other.direction)
    return not own and bool(one.source) and one.source == other.source


def _common(block: Block, one: Refinement, other: Refinement) -> Domain:
    """Points of the block, with the distance between an element of each view, where it is 0."""
    domain = block_domain(block)
    limits: list[Affine] = []
    for mine, size, theirs, extent in zip(one.access, one.shape, other.access, other.shape, strict=True):
        distance = theirs - mine  # [0, size) and [distance, distance + extent) meet
        limits += [-distance + (size - 1), distance + (extent - 1)]
    return domain.with_constraints(limits)
