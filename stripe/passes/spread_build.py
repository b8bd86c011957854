"""spread: the buffers of elements, the blocks that fill them, work in them and bring results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from stripe.affine import Affine
from stripe.ir import (
    Aggregation,
    Block,
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
    number, step = Affine(), 1
    for name in reversed(over):
        number, step = number + Affine.index(name, step), step * ranges[name]
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
        refinements=(source, target),
        statements=(Load("v", ref.name, ref.dtype), Store(target.name, "v")),
        span=leaf.span,
    )
    return drop_unused_passed(made)


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
