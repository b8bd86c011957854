"""Loops of one block that go through memory as one longer loop would.

Where every operand moves by as much for one step of an outer index as for all steps of the inner one,

    [i:1000, j:1001]   X[i, j]: 1001*i + j        ->   [j:1001000]   X: j

the ends of rows are no ends of vectors: no row has a rest of its own, and whole lines stay whole. So it is
with the lanes of a tile and an index of its rows that are both written out, and with the index across
squares, wherever the rows stand:

    [k:64, c:3, n:9, j:24] #unroll=c #unroll=j #unroll=n #vector=j   ->   [k:64, n:9, j:72]
    [b:8, d:256, c:28] (27 - b - bo >= 0) #across=c #vector=d   ->   [d:256, c:224] (783 - 28*bo - c >= 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from stripe.affine import Affine
from stripe.ir import Block, Direction, IndexValue, Special


def merged(block: Block, strides: Mapping[str, tuple[int, ...]]) -> Block:
    """A leaf block with as few loops as its memory allows; `strides` are those of the buffers, by the names
    of the block's refinements. Only addresses stay as they are: accesses leave the shapes of views."""
    if any(isinstance(s, Special) for s in block.statements):
        return block
    if any(ref.direction is Direction.NEW for ref in block.refinements):
        return block
    tested = _tested(block)
    unrolled = set(block.tag_values("unroll")) - tested
    kept = {name for tag in ("unroll", "across", "group") for name in block.tag_values(tag)} | tested
    changed = True
    while changed:
        changed = False
        for outer, inner in pairwise(block.ranges):
            if not kept & {outer, inner} and _follow(block, strides, outer, inner):
                block, changed = _joined(block, outer, inner), True
                break
    for across in set(block.tag_values("across")) - tested:
        while (row := _row_of(block, strides, across)) is not None:
            block = _joined(block, row, across)
    for lane in set(block.tag_values("vector")) & block.ranges.keys():
        while lane in unrolled and not block.has_tag("across"):
            rows = (n for n in block.ranges if n in unrolled and n != lane)
            row = next((n for n in rows if _follow(block, strides, n, lane)), None)
            if row is None:
                break
            block = _joined(block, row, lane)
    return block


def joins_rows(block: Block, buffer: str, strides: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the vectors of a leaf below a block that writes a buffer of it go on from row to row, under
    these strides of all that the block sees, by its names."""
    for child in block.children:
        own = {ref.name: strides[ref.source] for ref in child.refinements if ref.source in strides}
        views = [r.name for r in child.refinements if r.source == buffer and r.direction.writes]
        if child.children:
            # Buffers of the nest are those of other results, which go on from row to row as this one does.
            own |= {r.name: r.strides or () for r in child.refinements if r.direction is Direction.NEW}
            if any(joins_rows(child, name, own) for name in views):
                return True
        elif views and len(own) == len(child.refinements):
            ranges = merged(child, own).ranges
            if any(ranges.get(lane) != child.ranges.get(lane) for lane in child.tag_values("vector")):
                return True
    return False


def _tested(block: Block) -> set[str]:
    return {name for constraint in block.constraints for name in constraint.expr.names}


def _row_of(block: Block, strides: Mapping[str, tuple[int, ...]], across: str) -> str | None:
    """An index of rows that the index across squares goes through one after the other. Constraints may say
    where it begins and ends: so they do for elements."""
    fixed = {*block.tag_values("unroll"), *block.tag_values("vector"), across}
    for constraint in block.constraints:
        alone = fixed.isdisjoint(constraint.expr.names)
        fixed |= {name for name, factor in constraint.expr.terms if not alone or abs(factor) != 1}
    if across in _tested(block):
        return None
    return next((n for n in block.ranges if n not in fixed and _follow(block, strides, n, across)), None)


def _follow(block: Block, strides: Mapping[str, tuple[int, ...]], outer: str, inner: str) -> bool:
    """Whether one step of `outer` leads everywhere to where all steps of `inner` end."""
    if block.tag_values("vector") and outer in block.tag_values("vector"):
        return False
    size = block.ranges[inner]
    places = [Affine.weighted(ref.access, strides[ref.name]) for ref in block.refinements]
    values = [s.expr for s in block.statements if isinstance(s, IndexValue)]
    return all(e.coefficient(outer) == e.coefficient(inner) * size for e in (*places, *values))


def _joined(block: Block, outer: str, inner: str) -> Block:
    each = block.ranges[inner]
    size = block.ranges[outer] * each

    def limited(expr: Affine) -> Affine:
        """outer + rest >= 0 of elements, of which each value of `outer` has so many: each*rest + x >= 0; and
        rest - outer >= 0: each*rest + each - 1 - x >= 0."""
        sign = expr.coefficient(outer)
        if not sign:
            return expr
        rest = expr.without({outer}) * each
        return rest + Affine.index(inner, sign) + (each - 1 if sign < 0 else 0)

    def without(expr: Affine) -> Affine:
        return expr.without({outer})

    return replace(
        block,
        indexes=tuple(
            replace(i, range=size) if i.name == inner else i for i in block.indexes if i.name != outer
        ),
        constraints=tuple(replace(c, expr=limited(c.expr)) for c in block.constraints),
        refinements=tuple(replace(ref, access=tuple(map(without, ref.access))) for ref in block.refinements),
        statements=tuple(
            replace(s, expr=without(s.expr)) if isinstance(s, IndexValue) else s for s in block.statements
        ),
    )
