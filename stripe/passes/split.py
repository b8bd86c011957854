"""split: a buffer that is put together of pieces becomes a buffer for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod
from typing import ClassVar, TypeAlias

from stripe.ir import Aggregation, Block, Direction, Program, Refinement, Special, Statement, Store
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.rewrite_packed import permuted
from stripe.rewrite_split import narrowed
from stripe.visit import buffers_used, map_roots, users_of

Box: TypeAlias = tuple[tuple[int, int], ...]
"""The cells of a buffer from one to before the other, in each dimension."""


@dataclass(frozen=True)
class Split(Pass):
    """Give each piece of a buffer that several blocks write a buffer of its own.

    before:  new T f32(8)
             block f [i:8] (out T[i]:assign) { $z = constant(0.0) f32;  T = store($z) }
             block t [i:5] (in A[i]  out T[i]:assign) { $a = load(A) f32;  T = store($a) }
             block r [i:8] (in T[i]  out R[i]:assign) { $t = load(T) f32 ... }
    after:   new T f32(5)  new T_1 f32(3)
             block f [i:3] (out T_1[i]:assign) { $z = constant(0.0) f32;  T_1 = store($z) }
             block t [i:5] (in A[i]  out T[i]:assign) { $a = load(A) f32;  T = store($a) }
             block r [i:5] (in T[i]  out R[i]:assign) { $t = load(T) f32 ... }
             block r_1 [i:3] (in T_1[i]  out R[i + 5]:assign) { $t = load(T_1) f32 ... }

    So formulas put tensors beside each other: each goes to a part of a larger one, the rest of which is
    zero, and the sum of these is the whole. In a piece every block has the same points, so that `fuse` makes
    one block of them, and zeros and copies are gone.

    The edges of what blocks write and read cut the buffer into pieces. A piece comes from the last block
    that writes it, in front of all that read; a piece that nothing reads goes. A block that is cut gives one
    for each piece.

    Legal because the points of a block are independent, and each writes cells of its own: results are
    `assign`. All users of the buffer are leaf blocks of the root, which write it and nothing else before
    others read, at one index or constant in each dimension, no index twice. A buffer with one writer, which
    reads inputs alone, is cut where its readers were, and cuts none: else there would be no end to it where a
    block reads neighbours.
    Stripe paper, section 2.3, "Scalarization and Memory Localization", for what the pieces become; Griebl,
    Feautrier and Lengauer, "Index Set Splitting" (2000).
    """

    name: ClassVar[str] = "split"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group")

    pieces: int = option(9, "the most pieces that a buffer is cut into; they may be cut again", least=2)
    blocks: int = option(64, "the most blocks that the users of a buffer may become", least=2)

    def run(self, program: Program, context: PassContext) -> Program:
        return map_roots(program, lambda root: self._split(root, context))

    def _split(self, root: Block, context: PassContext) -> Block:
        waiting = [r for r in root.refinements if _may_be_cut(r)]
        users = users_of(root)
        while waiting:
            buffer = waiting.pop(0)
            try:
                made = _pieces(root, buffer, users.get(buffer.name, []), self)
            except _Refused as refused:
                text = f"'{buffer.name}' stays one buffer: {refused}"
                context.remark(root.name, False, text)
                continue
            if made is None:
                continue
            known = {r.name: r for r in root.refinements}
            new = [r for r in made.refinements if r is not known.get(r.name)]
            text = f"'{buffer.name}' becomes {', '.join(_shown(r) for r in new)}"
            context.remark(root.name, True, text, buffers=len(new))
            # Others that the blocks use, which were cut or went, may fall into pieces now.
            before, after = ({id(s): s for s in block.statements} for block in (root, made))
            touched = [{**before, **after}[number] for number in before.keys() ^ after.keys()]
            again = {name for s in touched for name, _ in buffers_used(s)} | {r.name for r in new}
            left = {r.name for r in waiting}
            waiting = [r for r in made.refinements if r.name in left or (_may_be_cut(r) and r.name in again)]
            root, users = made, users_of(made)
        return root


class _Refused(Exception):
    """Why a buffer stays as it is."""


def _shown(buffer: Refinement) -> str:
    return f"{buffer.name}({', '.join(map(str, buffer.shape))})"


def _may_be_cut(buffer: Refinement) -> bool:
    return buffer.direction is Direction.NEW and buffer.location is None


def _pieces(root: Block, buffer: Refinement, users: Sequence[Statement], options: Split) -> Block | None:
    """The root with a buffer for each piece; None where the buffer is no more than one."""
    blocks = [s for s in users if isinstance(s, Block)]
    writers = [b for b in blocks if _writes(b, buffer.name)]
    readers = [b for b in blocks if not _writes(b, buffer.name)]
    whole = len(blocks) < len(users)
    if len(writers) < 2 and (whole or any(_why_not(b, buffer.name) for b in blocks)):
        return None  # nothing is put together here
    if whole:
        raise _Refused("it is used as a whole")
    for block in blocks:
        if reason := _why_not(block, buffer.name):
            raise _Refused(f"'{block.name}' {reason}")
    boxes = {id(block): _box(block, buffer.name) for block in blocks}
    cuts = [sorted({end for box in boxes.values() for end in box[dim]}) for dim in range(len(buffer.shape))]
    cells: list[Box] = list(product(*(pairwise(ends) for ends in cuts)))
    read = [c for c in cells if any(_holds(boxes[id(b)], c) for b in readers)]
    if len(read) < 2:
        return None
    if len(writers) == 1 and _reads_results(root, writers[0]):
        raise _Refused(f"'{writers[0].name}', which writes all of it, reads what others have computed")
    if len(writers) == 1 and any(boxes[id(b)] not in read for b in readers):
        raise _Refused(f"'{writers[0].name}' writes all of it, and others read pieces that overlap")
    if any(_writes(b, buffer.name) for b in blocks[len(writers) :]):
        raise _Refused("it is written again after it was read")
    if len(read) > options.pieces:
        raise _Refused(f"it would have {len(read)} pieces, more than the limit of {options.pieces}")
    owners = {c: next((b for b in reversed(writers) if _holds(boxes[id(b)], c)), None) for c in read}
    if None in owners.values():
        raise _Refused("some of its cells are read, and not written")
    return _built(root, buffer, blocks, boxes, owners, options)


def _built(
    root: Block,
    buffer: Refinement,
    blocks: Sequence[Block],
    boxes: Mapping[int, Box],
    owners: Mapping[Box, Block | None],
    options: Split,
) -> Block:
    names = Names(r.name for r in root.refinements if r.name != buffer.name)
    new = {cell: _part(buffer, names.fresh(buffer.name), cell) for cell in owners}
    cut = {id(block) for block in blocks}
    taken = Names(s.name for s in root.children if id(s) not in cut)
    statements, made = list[Statement](), 0
    for statement in root.statements:
        if not isinstance(statement, Block) or id(statement) not in cut:
            statements.append(statement)
            continue
        writes = _writes(statement, buffer.name)
        for cell, owner in owners.items():
            if (owner is statement) if writes else _holds(boxes[id(statement)], cell):
                part = _narrowed(statement, buffer.name, cell, new[cell].name)
                statements.append(replace(part, name=taken.fresh(statement.name)))
                made += 1
    if made > options.blocks:
        raise _Refused(f"its users would be {made} blocks, more than the limit of {options.blocks}")
    refinements = [
        r for old in root.refinements for r in (new.values() if old.name == buffer.name else [old])
    ]
    return replace(root, refinements=tuple(refinements), statements=tuple(statements))


def _writes(block: Block, buffer: str) -> bool:
    return any(r.source == buffer and r.direction.writes for r in block.refinements)


def _reads_results(root: Block, block: Block) -> bool:
    """Whether a block reads what others have computed: it is one block with them, better than in pieces."""
    own = {r.name for r in root.refinements if r.direction is Direction.NEW}
    return any(r.direction.reads and r.source in own for r in block.refinements)


def _why_not(block: Block, buffer: str) -> str:
    """Why a user of a buffer can't be cut along it."""
    views = [r for r in block.refinements if r.source == buffer and r.direction is not Direction.NEW]
    results = [r for r in block.refinements if r.direction.writes]
    settled = block.has_tag("stencil") or block.has_tag("group")
    indexes = [name for expr in views[0].access for name in expr.names]
    if len(views) > 1:
        return "uses it in several views"
    (view,) = views
    if any(isinstance(s, Block | Special) for s in block.statements):
        return "is no leaf block"
    if settled or block.location is not None or block.inflight != 1:
        return "is bound to an instruction or a unit"
    if block.constraints:
        return "has constraints"
    if any(r.aggregation is not Aggregation.ASSIGN for r in results):
        return "aggregates"
    if view.direction is Direction.INOUT:
        return "reads and writes it"
    if any(size != 1 for size in view.shape):
        return "uses it at more than one cell for each point"
    if any(e.terms != ((e.names[0], 1),) for e in view.access if e.terms) or len(set(indexes)) < len(indexes):
        return "does not go through it in steps of one along each dimension"
    if view.direction.writes:
        if len(results) > 1:
            return "has other results, too"
        if not any(isinstance(s, Store) and s.buffer == view.name for s in block.statements):
            return "stores nothing in it"
        if any(name not in indexes for name, size in block.ranges.items() if size > 1):
            return "writes its cells several times"
    return ""


def _view(block: Block, buffer: str) -> Refinement:
    return next(r for r in block.refinements if r.source == buffer and r.direction is not Direction.NEW)


def _box(block: Block, buffer: str) -> Box:
    """The cells that a block uses."""
    sizes = [prod(block.ranges[n] for n in expr.names) for expr in _view(block, buffer).access]
    return tuple(
        (e.const, e.const + size) for e, size in zip(_view(block, buffer).access, sizes, strict=True)
    )


def _holds(box: Box, cell: Box) -> bool:
    return all(low <= first and stop <= high for (low, high), (first, stop) in zip(box, cell, strict=True))


def _part(buffer: Refinement, name: str, cell: Box) -> Refinement:
    """A buffer for a piece of another one, whose dimensions lie in the same order."""
    assert buffer.strides is not None
    shape, strides = tuple(stop - first for first, stop in cell), buffer.strides
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
    return replace(buffer, name=name, shape=shape, strides=permuted(shape, order))


def _narrowed(block: Block, buffer: str, cell: Box, name: str) -> Block:
    """The points of a block that use a piece of a buffer, which is a buffer of that name."""
    view = _view(block, buffer)
    for expr, (first, stop) in zip(view.access, cell, strict=True):
        for index in expr.names:
            block = narrowed(block, index, first - expr.const, stop - expr.const)
    access = tuple(e - e.const for e in view.access)
    refinements = tuple(
        replace(r, source=name, access=access) if r.source == buffer else r for r in block.refinements
    )
    return replace(block, refinements=refinements)
