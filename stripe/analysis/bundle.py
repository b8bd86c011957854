"""Which leaf blocks add up short rows, of which several can be added up at a time.

    S[c : C] = +(X[n, c]);       X[n, c] lies at C*n + c: rows follow one another, whatever C is

A vector that takes one row is filled in part, and each row waits for the sum of those before it. Of so many
rows that they fill vectors, all lanes are used, and several sums grow side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from stripe.analysis.bounds import Leaf, Views, leaves
from stripe.analysis.lanes import follows
from stripe.analysis.units import claimed
from stripe.ir import Block, Direction, IndexValue, Refinement, Special, rounds_partial_sums
from stripe.locks import cached_property


@dataclass(frozen=True)
class Rows:
    """Rows that a leaf block adds up, one behind the other in memory: `row` counts them, `inside` are the
    indexes of a row, of which the last one goes along the lanes. `sums` are the results that rows are added
    to; `beside` are inputs that are the same for each row.
    """

    leaf: Leaf
    row: str
    inside: tuple[str, ...]
    sums: tuple[Refinement, ...]
    beside: tuple[Refinement, ...]

    @property
    def block(self) -> Block:
        return self.leaf.block

    @property
    def lane(self) -> str:
        return self.inside[-1]

    @property
    def count(self) -> int:
        return self.leaf.ranges[self.row]

    @cached_property
    def length(self) -> int:
        return prod(self.leaf.ranges[name] for name in self.inside)

    def place(self, ref: Refinement) -> tuple[str, ...]:
        """The indexes of a buffer with what a view shows at the points of several rows."""
        run = (self.row, *self.inside)
        used = {name for expr in ref.access for name in expr.names}
        return (*(name for name in self.leaf.ranges if name in used and name not in run), *run)


def short_rows(block: Block, outer: Views) -> tuple[Rows, ...] | str:
    """The rows that a leaf block adds up, whose parent has the views `outer`: short ones, and such that are
    several of these. None where there are no such, or lanes are settled; why they have to be added up one by
    one, as a clause."""
    if any(isinstance(s, Block | Special) for s in block.statements) or block.has_tag("vector"):
        return ()
    if any(index.passed is not None or not index.range for index in block.indexes):
        return ()
    found = [rows for leaf in leaves(block, outer) for rows in _rows(leaf)]
    reasons = [_refusal(rows) for rows in found]
    if found and all(reasons):
        return reasons[0]
    return tuple(rows for rows, reason in zip(found, reasons, strict=True) if not reason)


def _rows(leaf: Leaf) -> Iterator[Rows]:
    """All that the leaf touches along rows has elements side by side; the rest is the same for all rows."""
    ranges, views = leaf.ranges, {ref.name: ref for ref in leaf.block.refinements}
    several = [name for name, size in ranges.items() if size > 1]
    inputs = [o for o in leaf.operands if o.direction is Direction.IN]
    for lane in several:
        inside: tuple[str, ...] = (lane,)
        row = _next(leaf, inside, several)
        while row:
            sums = [o for o in leaf.operands if o.direction.writes and row not in o.indexes]
            added = sums and all(o.combines and lane in o.indexes and not o.local for o in sums)
            if added and any(o.stride(lane) == 1 and row in o.indexes for o in inputs):
                beside = [o for o in inputs if row not in o.indexes and o.indexes.intersection(inside)]
                named = (tuple(views[o.name] for o in some) for some in (sums, beside))
                yield Rows(leaf, row, inside, *named)
            inside = (row, *inside)
            row = _next(leaf, inside, several)


def _next(leaf: Leaf, inside: tuple[str, ...], several: list[str]) -> str:
    """The index of rows that follow one another, whose elements lie along these indexes; empty if none is."""

    def follow(row: str) -> bool:
        moved = [o for o in leaf.operands if row in o.indexes]
        pairs = zip((row, *inside), inside, strict=False)
        return bool(moved) and all(follows(moved, one, other, leaf.ranges[other]) for one, other in pairs)

    return next((name for name in several if name not in inside and follow(name)), "")


def _refusal(rows: Rows) -> str:
    """Why rows are added up one by one, as a clause; empty if they need not be."""
    block, along = rows.block, {rows.row, *rows.inside}
    if reason := claimed(block):
        return reason
    for ref in rows.sums:
        if rounds_partial_sums(ref.dtype, ref.aggregation):
            return f"partial sums would be rounded to {ref.dtype.value}"
        if sum(ref.source == other.source for other in block.refinements) > 1:
            return f"it uses '{ref.source}' in several places"
    if any(along.intersection(c.expr.names) for c in block.constraints):
        return "its rows are limited"
    if any(isinstance(s, IndexValue) and along.intersection(s.expr.names) for s in block.statements):
        return "the place of an element is one of its values"
    return ""
