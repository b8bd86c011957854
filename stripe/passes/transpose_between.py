"""The part of transpose that makes room for a copy between the loops of a block."""

from __future__ import annotations

from collections.abc import Iterator

from hwconfigs.model import HwConfig
from stripe.ir import Block, Refinement, Tag
from stripe.rewrite import tile_block


def places(block: Block, view: Refinement) -> Iterator[tuple[str, ...]]:
    """Inside which of its loops a block may copy what it reads through a view, outermost first: each such
    copy is another part, and the loops further inside read it again and again.

    Those are the outer loops, so many of them, as they stand; and those that the view depends on, where
    others are around them, which would make the same copy anew: exchanged with these. What an instruction
    takes in one go stays whole.
    """
    if block.location is not None or block.has_tag("group"):
        return
    used = {name for expr in view.access for name in expr.names}
    names = tuple(name for name, size in block.ranges.items() if size > 1)
    for at, name in enumerate(names, start=1):
        if name in used and any(other not in used for other in names[at:]):
            yield names[:at]
    moved = tuple(name for name in names if name in used)
    if moved and moved != names[: len(moved)]:
        yield moved


def exchanged(block: Block, outside: tuple[str, ...]) -> bool:
    """Whether these loops of a block are not the outer ones as they stand."""
    names = tuple(name for name, size in block.ranges.items() if size > 1)
    return outside != names[: len(outside)]


def parted(block: Block, outside: tuple[str, ...]) -> Block:
    """The block as a nest of two: some of its loops outside, and the others.

    before:  block c [n:4, m:3] (in A[8*m] (8)  in B[16*n] (16)) {...}
    after:   block c [n:4] (in A[0] (24)  in B[16*n] (16)) {
               block c [m:3] (in A[8*m] (8)  in B[0] (16)) {...} }
    """
    tags = tuple(tag for tag in block.tags if tag == Tag("tiled"))
    return tile_block(block, dict.fromkeys(outside, 1), tags=tags)


def uneven(outer: Block, hw: HwConfig) -> float:
    """By how much longer the copies of a unit take for a block's points, dealt out to them, than if these
    could be dealt out evenly."""
    count = max((u.count for u in hw.compute_units), default=1)
    points = outer.points
    return -(-points // count) * count / points
