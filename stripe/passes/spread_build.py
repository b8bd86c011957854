"""spread: the buffers of elements, the blocks that fill them, work in them and bring results out.

Of a leaf whose points are limited each of these blocks gets what the limits leave of its own points: an
element is given the cells that its points use, works at these points, and has a result where it has one
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from stripe.affine import Affine, row_major
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    Load,
    Location,
    Refinement,
    Statement,
    Store,
    contiguous,
)
from stripe.names import Names
from stripe.poly import Domain, as_inequalities, block_domain
from stripe.rewrite import RewriteRefused, drop_unused_passed

Memories = Mapping[str, tuple[str, int]]  # of each operand: its memory, and how many of it there are


@dataclass(frozen=True, slots=True)
class Dealt:
    """A buffer with a part in each element for an operand, and the block that fills it."""

    operand: str
    buffer: Refinement
    fill: Block


@dataclass(frozen=True, slots=True)
class Made:
    """What takes the place of a leaf: the inputs of elements, the buffer of their results, the block that
    works in them, and the one that brings results out."""

    inputs: tuple[Dealt, ...]
    result: Refinement
    block: Block
    summed: Block


@dataclass(frozen=True, slots=True)
class _Dim:
    """A dimension of an operand along which an element goes: `local` is the place in its part, in
    `extent` steps of `step`; `index` is a name for walks along it."""

    dim: int
    local: Affine
    extent: int
    step: int
    index: str


def dealt(leaf: Block, over: Sequence[str], memories: Memories, unit: str, names: Names) -> Made:
    """A leaf block as work of elements. Raises RewriteRefused for operands whose parts are no boxes."""
    ranges = leaf.ranges
    number = row_major({name: ranges[name] for name in over})
    own = {n: size for n, size in ranges.items() if n not in over}
    parts = {ref.name: _parts(ref, own) for ref in leaf.refinements}
    buffers = {ref.name: _buffer(ref, parts[ref.name], memories[ref.name], names) for ref in leaf.refinements}
    (result,) = (r for r in leaf.refinements if r.direction.writes)
    inputs = tuple(
        Dealt(r.name, buffers[r.name], _fill(leaf, r, over, number, parts[r.name], buffers[r.name]))
        for r in leaf.refinements
        if r is not result
    )
    work = _work(leaf, over, number, own, parts, buffers, unit)
    summed = _summed(leaf, result, over, number, parts[result.name], buffers[result.name])
    return Made(inputs, buffers[result.name], work, summed)


def _parts(ref: Refinement, own: Mapping[str, int]) -> tuple[_Dim, ...]:
    """The dimensions along which an element goes, with its own indexes."""
    found, seen = list[_Dim](), set[str]()
    for dim, expr in enumerate(ref.access):
        inside = expr.only(set(own))
        if not inside.terms:
            continue
        if seen & set(inside.names):
            raise RewriteRefused(f"'{ref.source}' is walked along in two dimensions at once")
        seen |= set(inside.names)
        if len(inside.terms) == 1:
            ((name, step),) = inside.terms
            found.append(_Dim(dim, Affine.index(name), own[name], step, name))
            continue
        step, reached = gcd(*(c for _, c in inside.terms)), 1
        local = Affine(0, tuple((n, c // step) for n, c in inside.terms))
        for name, factor in sorted(local.terms, key=lambda term: term[1]):
            if not 0 < factor <= reached:
                raise RewriteRefused(f"what an element uses of '{ref.source}' has gaps")
            reached += factor * (own[name] - 1)
        found.append(_Dim(dim, local, reached, step, f"d{dim}"))
    return tuple(found)


def _buffer(ref: Refinement, parts: Sequence[_Dim], memory: tuple[str, int], names: Names) -> Refinement:
    name, count = memory
    shape = (count, *(part.extent for part in parts))
    return Refinement(
        Direction.NEW, names.fresh(f"{ref.source}_{name}"), shape, ref.dtype, strides=contiguous(shape),
        location=Location(name, spread=0), span=ref.span,
    )  # fmt: skip


def _view(name: str, buffer: Refinement, access: Sequence[Affine], direction: Direction) -> Refinement:
    """A view of one element of a buffer; what is written is replaced."""
    aggregation = Aggregation.ASSIGN if direction.writes else None
    ones = tuple(1 for _ in access)
    return Refinement(direction, name, ones, buffer.dtype, buffer.name, tuple(access), aggregation)


def _fill(
    leaf: Block, ref: Refinement, over: Sequence[str], number: Affine, parts: Sequence[_Dim],
    buffer: Refinement,
) -> Block:  # fmt: skip
    """The block that gives each element what it uses of an input."""
    names = Names((*over, *(i.name for i in leaf.indexes if i.passed is not None)))
    walks = [names.fresh(part.index) for part in parts]
    own = {n for part in parts for n in part.local.names}
    access = [expr.without(own) for expr in ref.access]
    for part, walk in zip(parts, walks, strict=True):
        access[part.dim] = access[part.dim] + Affine.index(walk, part.step)
    source = replace(ref, access=tuple(access))
    place = (number, *map(Affine.index, walks))
    target = _view(Names([ref.name]).fresh(buffer.name), buffer, place, Direction.OUT)
    made = Block(
        f"{ref.source}_deal",
        indexes=(
            *(Index(n, leaf.ranges[n]) for n in over),
            *(Index(w, part.extent) for w, part in zip(walks, parts, strict=True)),
            *(i for i in leaf.indexes if i.passed is not None),
        ),
        constraints=_left(leaf, over, {w: (p.local, p.extent) for w, p in zip(walks, parts, strict=True)}),
        refinements=(source, target),
        statements=(Load("v", ref.name, ref.dtype), Store(target.name, "v")),
        span=leaf.span,
    )
    return drop_unused_passed(made)


def _left(
    leaf: Block, names: Sequence[str], walks: Mapping[str, tuple[Affine, int]]
) -> tuple[Constraint, ...]:
    """What the limits of a leaf's points leave of the points of a block over some of its indexes and over
    `walks`, each of which goes along an expression over its other indexes. Raises RewriteRefused."""
    if not leaf.constraints:
        return ()
    passed = [i.name for i in leaf.indexes if i.passed is not None]
    along = {f"@{walk}": place for walk, place in walks.items()}  # a walk may be called as an index is
    sizes = {**{n: leaf.ranges[n] for n in names}, **{w: size for w, (_, size) in along.items()}}
    tied = [Affine.index(walk) - local for walk, (local, _) in along.items()]
    points = block_domain(leaf).extended(list(along)).with_constraints((), tied)
    left = points.piece_beyond(Domain.box(sizes).extended(passed))
    if left is None:
        raise RewriteRefused("its limits leave no one set of points that affine constraints describe")
    return tuple(Constraint(e.rename(lambda name: name.removeprefix("@"))) for e in as_inequalities(left))


def _work(
    leaf: Block,
    over: Sequence[str],
    number: Affine,
    own: Mapping[str, int],
    parts: Mapping[str, Sequence[_Dim]],
    buffers: Mapping[str, Refinement],
    unit: str,
) -> Block:
    """The block whose points are those of elements."""
    (result,) = (r for r in leaf.refinements if r.direction.writes)
    shown = {n for expr in result.access for n in expr.names}
    sums = [n for n in own if n not in shown]
    refinements = []
    for ref in leaf.refinements:
        shape = (1, *(part.extent for part in parts[ref.name]))
        start = (number, *(Affine() for _ in parts[ref.name]))
        refinements.append(replace(_view(ref.name, buffers[ref.name], start, ref.direction), shape=shape))

    def points(name: str, ranges: Mapping[str, int], at: Mapping[str, Affine], first: bool) -> Block:
        views = []
        for ref in leaf.refinements:
            place = (Affine(), *(part.local.substitute(at) for part in parts[ref.name]))
            view = replace(_view(ref.name, buffers[ref.name], place, ref.direction), source=ref.name)
            if ref is result and not first:
                view = replace(view, direction=Direction.INOUT, aggregation=result.aggregation)
            views.append(view)
        indexes = tuple(Index(n, size) for n, size in ranges.items())
        return Block(name, indexes, refinements=tuple(views), statements=leaf.statements, span=leaf.span)

    if leaf.constraints:
        return _limited_work(leaf, result, over, own, Location(unit, number), tuple(refinements), points)
    zero = dict.fromkeys(sums, Affine())
    blocks = [points(leaf.name, {n: size for n, size in own.items() if n not in sums}, zero, True)]
    for at, name in enumerate(sums):
        if own[name] == 1:
            continue
        later = {n: size for n, size in own.items() if n not in sums[:at]} | {name: own[name] - 1}
        moved = dict.fromkeys(sums[:at], Affine()) | {name: Affine.index(name) + 1}
        blocks.append(points(f"{leaf.name}_{at + 1}", later, moved, False))
    statements: tuple[Statement, ...] = tuple(blocks)
    if len(blocks) > 1:
        statements = (replace(blocks[0], name=f"{leaf.name}_first"), *blocks[1:])
    elif not own:  # an element has one point
        statements = leaf.statements
    return Block(
        leaf.name,
        tuple(Index(n, leaf.ranges[n]) for n in over),
        refinements=tuple(refinements),
        statements=statements,
        location=Location(unit, number),
        span=leaf.span,
    )


def _limited_work(
    leaf: Block, result: Refinement, over: Sequence[str], own: Mapping[str, int], location: Location,
    views: tuple[Refinement, ...],
    points: Callable[[str, Mapping[str, int], Mapping[str, Affine], bool], Block],
) -> Block:  # fmt: skip
    """The block whose points are those of elements, for a leaf whose points are limited: none of them is
    known to be the first that adds to a result."""
    passed = tuple(i for i in leaf.indexes if i.passed is not None)
    around = (*(Index(n, leaf.ranges[n]) for n in over), *passed)
    if not own:  # an element has one point
        made = Block(
            leaf.name, around, leaf.constraints, views, leaf.statements, location=location, span=leaf.span
        )
        return drop_unused_passed(made)
    inner = points(leaf.name, own, {}, True)
    inner = replace(
        inner,
        indexes=(*inner.indexes, *(Index(i.name, 1, Affine.index(i.name)) for i in around)),
        constraints=leaf.constraints,
        refinements=tuple(
            replace(r, aggregation=result.aggregation) if r.direction.writes else r for r in inner.refinements
        ),
    )
    inner = drop_unused_passed(inner)
    outer = Block(
        leaf.name, around, refinements=views, statements=(inner,), location=location, span=leaf.span
    )
    return drop_unused_passed(outer)


def _summed(
    leaf: Block, result: Refinement, over: Sequence[str], number: Affine, parts: Sequence[_Dim],
    buffer: Refinement,
) -> Block:  # fmt: skip
    """The block that writes the results of elements, and adds up those of elements that share one."""
    shown = {n for expr in result.access for n in expr.names}
    adds = any(n not in shown and leaf.ranges[n] > 1 for n in over)
    place = (number, *(part.local for part in parts))
    source = _view(Names([result.name]).fresh(buffer.name), buffer, place, Direction.IN)
    target = result if adds else replace(result, aggregation=Aggregation.ASSIGN)
    kept = [n for n in leaf.ranges if n not in over and n in shown]
    made = Block(
        f"{result.source}_sum" if adds else f"{result.source}_out",
        indexes=(
            *(Index(n, leaf.ranges[n]) for n in (*kept, *over)),
            *(i for i in leaf.indexes if i.passed is not None),
        ),
        constraints=_left(leaf, (*kept, *over), {}),
        refinements=(source, target),
        statements=(Load("v", source.name, buffer.dtype), Store(target.name, "v")),
        span=leaf.span,
    )
    return drop_unused_passed(made)


def lifted(block: Block, deal: Dealt) -> Dealt | None:
    """What is dealt out in a block, in front of it; None if that changes from point to point."""
    fill = deal.fill
    source, target = fill.refinements
    outer = block.refinement(source.source)
    twins = [r for r in block.refinements if r.source == outer.source]
    if outer.direction is not Direction.IN or len(twins) > 1:
        return None
    if any(i.passed is not None for i in fill.indexes) or not all(e.is_constant for e in outer.access):
        return None
    access = tuple(e + o for e, o in zip(source.access, outer.access, strict=True))
    moved = replace(source, source=outer.source, access=access)
    return Dealt(deal.operand, deal.buffer, replace(fill, refinements=(moved, target)))
