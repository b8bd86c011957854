"""One block becomes two that stand side by side: each has a part of the values of one index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.deps import Access, accesses
from stripe.diag import InvariantError
from stripe.ir import Aggregation, Block, Direction, Refinement, rounds_partial_sums
from stripe.poly import Domain
from stripe.rewrite import RewriteRefused
from stripe.rewrite_points import simplify_nest
from stripe.visit import substitute_indexes


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two: the block, None if it has no point, and whether it has the lower values."""

    block: Block | None
    lower: bool


def split_index(above: Sequence[Block], block: Block, index: str, at: int) -> tuple[Part, Part]:
    """A block as two: one for the values of `index` below `at`, one for those from `at` on.

        before:  block c [x:12, i:3] (-1 + x + i >= 0  in I[x + i - 1]  out O[x]:add)
        after:   block c [i:2] (in I[i]  out O[0]:add)                  -- x = 0, i from 1 on
                 block c [x:11, i:3] (in I[x + i]  out O[x + 1]:add)

    `above` are the blocks that lead to it, the root first. The two stand in the order in which they
    must run. Ranges and constraints are brought into their simplest form. Where both aggregate
    into one element and the parent does not, the second folds in what the first left (`inout`);
    then one of the two must write every element that the other does. Refuses where neither does,
    and where a sum in a narrow type would be rounded in between.
    """
    size = block.ranges.get(index, 0)
    if not 0 < at < size:
        raise InvariantError(f"splitting '{index}' of block '{block.name}' at {at} leaves nothing to split")
    lower, upper = narrowed(block, index, 0, at), narrowed(block, index, at, size)
    folded, upper_first = _meetings(above[-1], lower, upper)
    pair = (upper, lower) if upper_first else (lower, upper)
    second = _folding(pair[1], folded)
    parts = [simplify_nest(part, above) for part in (pair[0], second)]
    return Part(parts[0], not upper_first), Part(parts[1], upper_first)


def narrowed(block: Block, index: str, first: int, stop: int) -> Block:
    """The block at the values of an index from `first` up to `stop`."""
    moved = substitute_indexes(block, {index: Affine.index(index) + first}) if first else block
    indexes = tuple(replace(i, range=stop - first) if i.name == index else i for i in block.indexes)
    return replace(moved, indexes=indexes)


def _folding(block: Block, buffers: frozenset[str]) -> Block:
    """The block with what it aggregates into `buffers` of the parent added to what is there."""
    refinements = tuple(
        replace(r, direction=Direction.INOUT) if r.source in buffers and r.direction is Direction.OUT else r
        for r in block.refinements
    )
    return replace(block, refinements=refinements)


def _meetings(parent: Block, lower: Block, upper: Block) -> tuple[frozenset[str], bool]:
    """The buffers of the parent in which both parts aggregate into the same elements, and whether
    the upper part must run first so that the other finds every element written."""
    folded: set[str] = set()
    orders: set[bool] = set()
    for ref in lower.refinements:
        if not _starts_anew(parent, ref):
            continue
        one, two = (_writes(parent, part, ref.source) for part in (lower, upper))
        if any(access.conditional for access in (*one, *two)):
            raise RewriteRefused(f"it is not certain which elements of '{ref.source}' it writes")
        first, second = (_written(parent, found, len(ref.shape)) for found in (one, two))
        if first.intersect(second).is_empty():
            continue
        if rounds_partial_sums(ref.dtype, ref.aggregation):
            raise RewriteRefused(f"'{ref.source}' would be rounded to {ref.dtype} in between")
        below, beyond = second.is_subset(first), first.is_subset(second)
        if not below and not beyond:
            raise RewriteRefused(
                f"both parts aggregate into '{ref.source}', and each writes what the other doesn't"
            )
        folded.add(ref.source)
        if below != beyond:
            orders.add(beyond)
    if len(orders) > 1:
        raise RewriteRefused("either part would have to be the first")
    return frozenset(folded), orders == {True}


def _starts_anew(parent: Block, ref: Refinement) -> bool:
    """Whether a view aggregates at its topmost level, without what was there before."""
    if ref.direction is not Direction.OUT or ref.aggregation is Aggregation.ASSIGN:
        return False
    return not parent.refinement(ref.source).combines


def _writes(parent: Block, block: Block, buffer: str) -> list[Access]:
    return [a for a in accesses(parent, block) if a.buffer == buffer and a.writes]


def _written(parent: Block, found: Iterable[Access], rank: int) -> Domain:
    """The elements of a buffer of the parent, at each of its points."""
    outer = [i.name for i in parent.indexes]
    names = [*outer, *(f"@{dim}" for dim in range(rank))]
    total = Domain.empty(names)
    for access in found:
        values = [*(Affine.index(name) for name in outer), *access.element]
        total = total.union(access.domain().image(values, names))
    return total.coalesce()
