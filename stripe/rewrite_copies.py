"""Copies of a part of a buffer: statements are led to the copy, and blocks fill it or write it back.

redirect     a statement's views of a buffer become views of the box of it that a copy holds
copy_blocks  blocks that move cells of a box from a buffer to its copy, or the other way
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stripe.affine import Affine
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    Load,
    Location,
    Operand,
    Refinement,
    Special,
    Statement,
    Store,
    contiguous,
)
from stripe.names import Names
from stripe.poly import Lattice, Piece, as_inequalities
from stripe.rewrite import drop_unused_passed

Origin = Sequence[Affine]


def redirect(
    statement: Statement, buffer: str, copy: str, origin: Origin, shape: Sequence[int] | None = None
) -> Statement:
    """The statement with its views of `buffer` on `copy`, which holds the box that starts at `origin`
    (over the indexes of the block around the statement). `shape`, that of the buffer, is for a
    special that uses it whole."""
    if isinstance(statement, Special):
        return replace(
            statement,
            operands=tuple(
                _redirected(o, copy, origin, shape or ()) if o.buffer == buffer else o
                for o in statement.operands
            ),
        )
    if not isinstance(statement, Block):
        return statement
    used = sorted({name for expr in origin for name in expr.names})
    names = Names(i.name for i in statement.indexes)
    own: dict[str, tuple[str, int]] = {}  # an index that is a multiple of that of the block around it
    added: list[Index] = []
    for outer in used:
        steps = [expr.coefficient(outer) for expr in origin]
        known = next((found for i in statement.indexes if (found := _multiple(i, outer, steps))), None)
        if known is None:
            known = names.fresh(outer), 1
            added.append(Index(known[0], 1, Affine.index(outer)))
        own[outer] = known
    handed = {i.name: i.passed for i in statement.indexes if i.passed is not None}
    refinements = tuple(
        replace(
            r,
            source=copy,
            access=tuple(_moved(e, o, handed, own) for e, o in zip(r.access, origin, strict=True)),
        )
        if r.direction is not Direction.NEW and r.source == buffer
        else r
        for r in statement.refinements
    )
    return drop_unused_passed(
        replace(statement, indexes=(*statement.indexes, *added), refinements=refinements)
    )


def _redirected(operand: Operand, copy: str, origin: Origin, shape: Sequence[int]) -> Operand:
    if operand.access is None and not any(e.terms or e.const for e in origin):
        return replace(operand, buffer=copy)
    access = operand.access or tuple(Affine() for _ in origin)
    moved = tuple(a - o for a, o in zip(access, origin, strict=True))
    return replace(operand, buffer=copy, access=moved, shape=operand.shape or tuple(shape))


def _multiple(index: Index, outer: str, steps: Sequence[int]) -> tuple[str, int] | None:
    """The passed index and its factor, if it is a multiple of `outer` that these steps are multiples of."""
    if index.passed is None or index.passed.const or index.passed.names != (outer,):
        return None
    factor = index.passed.coefficient(outer)
    return (index.name, factor) if all(step % factor == 0 for step in steps) else None


def _moved(
    expr: Affine, origin: Affine, handed: Mapping[str, Affine], own: Mapping[str, tuple[str, int]]
) -> Affine:
    """`expr`, over a child's indexes, less `origin`, over its parent's."""
    inside = expr.without(set(handed))
    left = (expr - inside).substitute(handed) - origin
    if left.is_constant:
        return inside + left.const
    here = Affine(origin.const)
    for outer, step in origin.terms:
        name, factor = own[outer]
        here = here + Affine.index(name, step // factor)
    return expr - here


def copy_blocks(
    block: Block,
    name: str,
    source: tuple[Refinement, Origin],
    target: tuple[Refinement, Origin],
    shape: Sequence[int],
    pieces: Sequence[Piece | Lattice],
    unit: Location,
    hints: Sequence[str] = (),
) -> tuple[Block, ...]:
    """For each piece, a block that copies its cells of a box of this shape from one buffer of `block`
    to another; the box starts at the given origins in them. `hints` are names for the indexes."""
    names = Names(i.name for i in block.indexes)
    cells = {f"@{d}": names.fresh(hints[d] if d < len(hints) else f"d{d}") for d in range(len(shape))}
    ones = tuple(1 for _ in shape)
    local = Names()
    read, written = local.fresh(source[0].name), local.fresh(target[0].name)
    found = []
    for piece in pieces:
        walk = _walk(piece, shape)
        cells |= {d: names.fresh("step") for d in walk.ranges if d not in cells}
        local_of = {d: Affine.index(cells[d]) if size > 1 else Affine() for d, size in walk.ranges.items()}
        place = [walk.values[f"@{d}"].substitute(local_of) for d in range(len(shape))]
        made = Block(
            name,
            indexes=(
                *(Index(cells[d], size) for d, size in walk.ranges.items() if size > 1),
                *(Index(i.name, 1, Affine.index(i.name)) for i in block.indexes),
            ),
            constraints=tuple(Constraint(e.substitute(local_of)) for e in walk.constraints),
            refinements=(
                Refinement(Direction.IN, read, ones, source[0].dtype, source[0].name, _at(source[1], place)),
                Refinement(
                    Direction.OUT, written, ones, target[0].dtype, target[0].name, _at(target[1], place),
                    Aggregation.ASSIGN,
                ),
            ),
            statements=(Load("v", read, source[0].dtype), Store(written, "v")),
            location=unit,
        )  # fmt: skip
        found.append(drop_unused_passed(made))
    return tuple(found)


def _walk(piece: Piece | Lattice, shape: Sequence[int]) -> Lattice:
    """The cells `@0`, `@1` ... of a piece of a box as a walk over indexes; those of a lattice are its own."""
    if isinstance(piece, Lattice):
        return piece
    ranges = {f"@{d}": size for d, size in enumerate(shape)}
    return Lattice(ranges, as_inequalities(piece), {name: Affine.index(name) for name in ranges})


def _at(origin: Origin, place: Sequence[Affine]) -> tuple[Affine, ...]:
    return tuple(o + p for o, p in zip(origin, place, strict=True))


def hand_down(block: Block, values: Mapping[str, Affine], hint: str) -> tuple[Block, dict[str, Affine]]:
    """A child that is passed these values, expressions of its parent's indexes, and what they are in it.

    What it is passed already is not passed again. New indexes are named after the hint. Those that
    nothing uses in the end are to be dropped."""
    names = Names(i.name for i in block.indexes)
    inner: dict[str, Affine] = {}
    added: list[Index] = []
    for key, value in values.items():
        if value.is_constant:
            inner[key] = value
            continue
        known = next((i.name for i in (*block.indexes, *added) if i.passed == value), None)
        if known is not None:
            inner[key] = Affine.index(known)
            continue
        name = names.fresh(hint)
        added.append(Index(name, 1, value))
        inner[key] = Affine.index(name)
    return (replace(block, indexes=(*block.indexes, *added)) if added else block), inner


def copy_buffer(name: str, like: Refinement, shape: tuple[int, ...], location: Location) -> Refinement:
    """A `new` buffer of the shape, with the element type of another."""
    return Refinement(
        Direction.NEW, name, shape, like.dtype, strides=contiguous(shape), location=location, span=like.span
    )
