"""The parts of peel-reduction: the first block, which writes, and the statement behind the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.footprint import writes_apart
from stripe.ir import Aggregation, Block, Direction, Refinement, Special, Statement
from stripe.names import Names
from stripe.rewrite import RewriteRefused, flatten, fold_unit_indexes, rename_indexes, tile_block
from stripe.visit import buffers_used, rename_operands


def writing(parent: Block, block: Block, buffer: str) -> Block:
    """A block that aggregates into a buffer of its parent as one that assigns, at each level where
    every element has one write: then nothing has to be there before.

        before:  block c [m:4] (out C[8*m]:add (8)) { block d [m:8, k:9] (out C[m]:add) {...} }
        after:   block c [m:4] (out C[8*m]:assign (8)) { block d [m:8, k:9] (out C[m]:add) {...} }
    """
    views = [r for r in block.refinements if r.source == buffer]
    if len(views) != 1 or views[0].direction is not Direction.OUT:
        return block
    view = views[0]
    writers = [s for s in block.statements if any(n == view.name and d.writes for n, d in buffers_used(s))]
    if len(writers) != 1 or isinstance(writers[0], Special) or not writes_apart(parent, block, buffer):
        return block
    assigned = replace(view, aggregation=Aggregation.ASSIGN)
    block = replace(block, refinements=tuple(assigned if r is view else r for r in block.refinements))
    statements = tuple(
        writing(block, s, view.name) if s is writers[0] and isinstance(s, Block) else s
        for s in block.statements
    )
    return replace(block, statements=statements)


def lifted(parent: Block, block: Block, names: Sequence[str], buffer: str) -> Block:
    """A block with some of its indexes in a level of their own around it, which assigns.

    before:  block c [m:4, k:9] (out C[8*m]:add (8)) {...}
    after:   block c [m:4] (out C[8*m]:assign (8)) { block c [k:9] (out C[0]:add (8)) {...} }
    """
    outer = tile_block(block, dict.fromkeys(names, 1), tags=block.tags)
    if not writes_apart(parent, outer, buffer):
        raise RewriteRefused("the loops around the reduction do not tell its results apart")
    refinements = tuple(
        replace(r, aggregation=Aggregation.ASSIGN) if r.source == buffer else r for r in outer.refinements
    )
    return replace(outer, refinements=refinements)


def unwrapped(block: Block) -> Block:
    """A block without ranges as the only block in it."""
    if block.ranges or len(block.statements) != 1 or not isinstance(block.statements[0], Block):
        return block
    try:
        return replace(flatten(block), name=block.name)
    except RewriteRefused:
        return block


# -- the statement behind --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tile:
    """Along `index` of the statement, tiles of `size` points are the values of the block's `tile`."""

    index: str
    tile: str
    size: int


def with_epilogue(parent: Block, block: Block, after: Statement, buffer: str) -> Block:
    """A block, and at the end of each of its points what the statement behind it does to the result.

        before:  block c [m:4] (in A[8*m]  inout C[8*m]:add (8)) {...}
                 block r [m:32] (in C[m]  out R[m]:assign) {...}
        after:   block c [m:4] (in A[8*m]  inout C[8*m]:assign (8)  out R[8*m]:assign (8)) {
                   ... (inout C[..]:add) ...
                   block r [m:8] (in C[m]  out R[m]:assign) {...} }

    Refuses where a point of the block is not a tile of the statement, or the two touch something else
    in common that one of them writes.
    """
    after = _leaf(after)
    tiles = _tiles(block, after, buffer)
    outer = tile_block(after, {t.index: t.size for t in tiles})
    names = Names(i.name for i in (*block.indexes, *outer.indexes))
    new = {i.name: names.fresh(i.name) for i in outer.indexes if i.passed is not None}
    outer = rename_indexes(outer, new | {t.index: t.tile for t in tiles if t.index in outer.ranges})
    joined = _joined(block, outer, buffer)
    for ref in joined.refinements:
        if ref.direction.writes and not writes_apart(parent, joined, ref.source):
            raise RewriteRefused(f"its tiles overlap in '{ref.source}'")
    return joined


def _leaf(after: Statement) -> Block:
    if not isinstance(after, Block) or any(isinstance(s, Block | Special) for s in after.statements):
        raise RewriteRefused("what follows is no leaf block")
    if after.tags or after.location is not None or after.inflight != 1:
        raise RewriteRefused("what follows has tags or a place already")
    return fold_unit_indexes(after)


def _tiles(block: Block, after: Block, buffer: str) -> list[_Tile]:
    """How the statement's points fall into the points of the block."""
    if block.constraints:
        raise RewriteRefused("it has constraints of its own")
    for ref in (*block.refinements, *after.refinements):
        both = all(any(r.source == ref.source for r in b.refinements) for b in (block, after))
        if ref.source and ref.source != buffer and both and ref.direction.writes:
            raise RewriteRefused(f"both use '{ref.source}', and one writes it")
    results = [r for r in block.refinements if r.source == buffer]
    reads = [r for r in after.refinements if r.source == buffer]
    if len(results) != 1 or len(reads) != 1 or reads[0].direction is not Direction.IN:
        raise RewriteRefused(f"what follows does not only read '{buffer}', or there are several views of it")
    found: list[_Tile] = []
    for dim, (expr, box) in enumerate(zip(reads[0].access, results[0].access, strict=True)):
        size = results[0].shape[dim]
        count = after.ranges.get(expr.names[0], 0) if expr.terms else 1
        plain = expr == (Affine.index(expr.names[0]) if expr.terms else Affine())
        again = any(tile.index in expr.names for tile in found)
        if not plain or not count or reads[0].shape[dim] != 1 or again:
            raise RewriteRefused(f"what follows does not take '{buffer}' element by element")
        if box == Affine() and size >= count:
            continue
        if len(box.names) != 1 or box != Affine.index(box.names[0], size) or box.names[0] not in block.ranges:
            raise RewriteRefused(f"its points are no tiles of '{buffer}'")
        if block.ranges[box.names[0]] != -(-count // size) or box.names[0] in [t.tile for t in found]:
            raise RewriteRefused("it has not one tile for each of what follows")
        found.append(_Tile(expr.names[0], box.names[0], size))
    if len(found) != len(block.ranges):
        raise RewriteRefused(f"not each of its points is a tile of '{buffer}'")
    return found


def _joined(block: Block, outer: Block, buffer: str) -> Block:
    """The statements of both, under the indexes of the block, where the result is assigned."""
    (result,) = (r for r in block.refinements if r.source == buffer)
    (inner,) = outer.children
    assigns = result.aggregation is Aggregation.ASSIGN
    statements = block.statements
    if not assigns:
        statements = tuple(_folding(s, result) for s in statements)
    held = replace(
        result,
        direction=result.direction if assigns else Direction.INOUT,
        aggregation=Aggregation.ASSIGN,
    )
    names = Names(r.name for r in block.refinements)
    local = {r.name: result.name if r.source == buffer else names.fresh(r.name) for r in outer.refinements}
    added = [replace(r, name=local[r.name]) for r in outer.refinements if r.source != buffer]
    behind = rename_operands(inner, local, {})
    taken = Names(s.name for s in block.children)
    assert isinstance(behind, Block)
    return replace(
        block,
        indexes=(*block.indexes, *(i for i in outer.indexes if i.passed is not None)),
        refinements=(*(held if r is result else r for r in block.refinements), *added),
        statements=(*statements, replace(behind, name=taken.fresh(behind.name))),
    )


def _folding(statement: Statement, result: Refinement) -> Statement:
    """A statement below a level that aggregated a result, below one that assigns it."""
    if not any(name == result.name for name, _ in buffers_used(statement)):
        return statement
    views = (
        [r for r in statement.refinements if r.source == result.name] if isinstance(statement, Block) else []
    )
    if not isinstance(statement, Block) or any(r.aggregation is not result.aggregation for r in views):
        raise RewriteRefused(f"it writes '{result.source}' in several ways")
    refinements = tuple(
        replace(r, direction=Direction.INOUT) if r.source == result.name else r for r in statement.refinements
    )
    return replace(statement, refinements=refinements)
