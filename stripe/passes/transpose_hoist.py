"""The part of transpose that takes a copy out of the loops around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from stripe.affine import Affine
from stripe.ir import Block, Constraint, Direction, Index, Refinement
from stripe.names import Names
from stripe.poly import Domain
from stripe.rewrite import RewriteRefused, raise_rank
from stripe.rewrite_packed import Packed
from stripe.visit import buffers_used


def root_source(parents: Sequence[Block], name: str) -> str | None:
    """The buffer of the root, first of `parents`, that a view of the last of them looks at, if a copy of
    it can be made in the root: nothing on the way is conditional."""
    for parent in reversed(parents[1:]):
        if parent.constraints:
            return None
        view = parent.refinement(name)
        if view.direction is not Direction.IN:
            return None
        name = view.source
    return name


def hoisted(parents: Sequence[Block], block: Block, source: str, packed: Packed) -> Packed:
    """A copy that is made at each point of the last of `parents`, made once in the first of them.

        before:  block c [n:4] (in B[0, 8*n] (64, 8)) {
                   new B_packed (8, 64):(64, 1)
                   block B_pack [d1:8, d0:64] (in B[d0, d1]  out B_packed[d1, d0]:assign) {...}
                   block d [j:8] (in B_packed[j, 0] (1, 64)) {...} }
        after:   new B_packed (4, 8, 64):(512, 64, 1)
                 block B_pack [n:4, d1:8, d0:64] (in B[d0, 8*n + d1]  out B_packed[n, d1, d0]:assign) {...}
                 block c [n:4] (in B_packed[n, 0, 0] (1, 8, 64)) {
                   block d [j:8] (in B_packed[0, j, 0] (1, 1, 64)) {...} }

    `source`: the view of the last parent that is copied for `block`. The result holds, in place of
    the block, the child of the first parent that it lies in. Refuses where a parent has constraints or
    what is copied depends on more than one index of a loop at a time. A loop that only decides which cells
    are read, as at the edges of a window, makes no copy of its own: cells that any of its points reads are
    copied.
    """
    for outer, parent in zip(reversed(parents[:-1]), reversed(parents[1:]), strict=True):
        packed = _one_level(outer, parent, block, source, packed)
        block, source = parent, parent.refinement(source).source
    return packed


def _one_level(outer: Block, parent: Block, block: Block, source: str, packed: Packed) -> Packed:
    view = parent.refinement(source)
    if parent.constraints:
        raise RewriteRefused(f"block '{parent.name}' around it has constraints")
    if len(packed.copies) == 1:
        packed = replace(packed, copies=(_of_any_point(packed.copies[0], parent, view),))
    passed = {name for copy in packed.copies for i in copy.indexes if i.passed for name in i.passed.names}
    used = passed | {name for expr in view.access for name in expr.names}
    given = {i.name: i.passed for i in parent.indexes if i.passed is not None and i.name in used}
    loops = [(name, size) for name, size in parent.ranges.items() if name in used]
    lead, inner = len(loops), packed.buffer
    shape, strides = tuple(size for _, size in loops), inner.strides or ()
    step = max((n * size for n, size in zip(strides, inner.shape, strict=True)), default=1)  # with its gaps
    fronts = tuple(step * prod(shape[at + 1 :]) for at in range(lead))
    buffer = replace(inner, shape=(*shape, *inner.shape), strides=(*fronts, *strides))
    copies = tuple(_moved(copy, outer.refinement(view.source), view, loops, given) for copy in packed.copies)
    local = Refinement(
        Direction.IN, inner.name, (*(1 for _ in loops), *inner.shape), inner.dtype, inner.name,
        (*(Affine.index(name) for name, _ in loops), *(Affine() for _ in inner.shape)),
    )  # fmt: skip
    reader = raise_rank(packed.block, inner.name, lead) if lead else packed.block
    statements = tuple(reader if s is block else s for s in parent.statements)
    still_read = any(name == source for s in statements for name, _ in buffers_used(s))
    refinements: list[Refinement] = []
    for ref in parent.refinements:
        refinements += [ref] if ref is not view else [ref, local] if still_read else [local]
    made = replace(parent, refinements=tuple(refinements), statements=statements)
    return Packed(copies, buffer, made)


def _of_any_point(copy: Block, parent: Block, view: Refinement) -> Block:
    """A copy of what is read at any value of the parent's loops that the view does not depend on, where these
    decide no more than which cells are read."""
    moves = {name for expr in view.access for name in expr.names}
    used = {name for ref in copy.refinements for expr in ref.access for name in expr.names}
    loops = {Affine.index(name): size for name, size in parent.ranges.items() if name not in moves}
    dropped = {i.name: loops[i.passed] for i in copy.indexes if i.passed in loops and i.name not in used}
    if not dropped:
        return copy
    kept = tuple(index for index in copy.indexes if index.name not in dropped)
    names = [index.name for index in kept]
    points = Domain.of([i.name for i in copy.indexes], [c.expr for c in copy.constraints])
    read = points.intersect(Domain.box(dropped).extended(names))
    own = Domain.box({index.name: index.range for index in kept if index.passed is None})
    passed = [index.name for index in kept if index.passed is not None]
    piece = read.piece_beyond(own.extended(passed))
    if piece is None or piece[1]:
        return copy
    return replace(copy, indexes=kept, constraints=tuple(map(Constraint, piece[0])))


def _moved(
    copy: Block, whole: Refinement, view: Refinement, loops: Sequence[tuple[str, int]],
    given: Mapping[str, Affine],
) -> Block:  # fmt: skip
    """A copy with the loops around it as indexes of its own. `view`: what it read of `whole`, a buffer of
    the block that it moves to. `given`: what the block that it leaves was passed by that one."""
    names = Names(i.name for i in copy.indexes)
    known = {i.passed.names[0]: i.name for i in copy.indexes if i.passed is not None}
    if any(i.passed is not None and i.passed != Affine.index(i.passed.names[0]) for i in copy.indexes):
        raise RewriteRefused("it depends on more than the loops around it")
    own = {name: known.get(name) or names.fresh(name) for name in (*(n for n, _ in loops), *given)}
    front = tuple(Index(own[name], size) for name, size in loops)
    passed = tuple(Index(own[name], 1, value) for name, value in given.items())
    indexes = (*front, *(i for i in copy.indexes if i.passed is None), *passed)
    read, written = copy.refinements
    place = {name: Affine.index(new) for name, new in own.items()}
    access = tuple(
        around.substitute(place) + expr for around, expr in zip(view.access, read.access, strict=True)
    )
    limits = {i.name: (0, i.range - 1) for i in indexes if i.passed is None}
    inside: list[Affine] = []
    for expr, size in zip(access, whole.shape, strict=True):
        if not limits.keys() >= set(expr.names):
            inside += [expr, Affine(size - 1) - expr]
            continue
        least, most = expr.bounds(limits)
        inside += [expr] if least < 0 else []
        inside += [Affine(size - 1) - expr] if most >= size else []
    target = (*(Affine.index(i.name) for i in front), *written.access)
    return replace(
        copy,
        indexes=indexes,
        constraints=tuple(dict.fromkeys((*copy.constraints, *map(Constraint, inside)))),
        refinements=(
            replace(read, source=view.source, access=access),
            replace(written, access=target, shape=(1,) * len(target)),
        ),
    )
