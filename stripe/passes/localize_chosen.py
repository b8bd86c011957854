"""localize with choices that are given: which sums gather in near memory, and which buffers lie there."""

from __future__ import annotations

from collections.abc import Iterator

from stripe.ir import Block, Refinement
from stripe.passes.base import PassContext
from stripe.passes.choices import Choice


class Kept(Choice, frozen=True):
    """Of a block: `sums`, its buffers of which the sums that its statements make gather in the memory
    `accumulators`, in this order (STATEMENT.BUFFER where several statements add to one); and `near`, its own
    buffers that lie in `memory`.
    """

    sums: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


def chose(context: PassContext, key: str, sums: tuple[str, ...] = (), near: tuple[str, ...] = ()) -> None:
    """Say what was chosen for a block: these buffers, behind those that were said before."""
    kept = context.chosen(key, Kept)
    context.chose_also(key, Kept, sums=kept.sums + sums, near=kept.near + near)


def adding(block: Block, buffer: str) -> Iterator[tuple[Block, Refinement]]:
    """The children of a block that write a buffer of it, each with its view."""
    for child in block.children:
        yield from ((child, r) for r in child.refinements if r.source == buffer and r.direction.writes)


def said(block: Block, child: Block, buffer: str) -> str:
    """What the sums of a child in a buffer are called in `sums`."""
    alone = sum(1 for _ in adding(block, buffer)) == 1
    return buffer if alone else f"{child.name}.{buffer}"
