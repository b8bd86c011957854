"""Packed copies: other strides, copies of what a block reads, ahead of it or at load time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.deps import accesses
from stripe.analysis.footprint import Box, touched_cells
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Constraint,
    Direction,
    Index,
    Load,
    Program,
    Refinement,
    Statement,
    Store,
)
from stripe.names import Names
from stripe.poly import Domain, Piece, as_inequalities
from stripe.rewrite import RewriteRefused, drop_unused_passed, raise_rank


@dataclass(frozen=True, slots=True)
class Layout:
    """How a copy of the box that a block sees of a buffer lies in memory.

    `panels` maps an index of the block to the dimension that it cuts into tiles: each such index
    becomes a dimension in front, outermost in memory. `order` are the dimensions of the box,
    outermost first.
    """

    panels: tuple[tuple[str, int], ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """The blocks that fill a copy, the buffer, and the block that reads it instead."""

    copies: tuple[Block, ...]
    buffer: Refinement
    block: Block


def permuted(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides where the dimensions lie in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def tiled_dimensions(block: Block, view: Refinement) -> tuple[tuple[str, int], ...]:
    """The indexes of a block that cut a dimension of its view into tiles of their own, with it."""
    found: list[tuple[str, int]] = []
    uses = [name for expr in view.access for name in expr.names]
    for dim, (expr, size) in enumerate(zip(view.access, view.shape, strict=True)):
        for name in expr.names:
            alone = expr == Affine.index(name, size) and uses.count(name) == 1
            if alone and size > 1 and block.ranges.get(name, 1) > 1:
                found.append((name, dim))
    return tuple(found)


def pack(
    parent: Block, block: Block, view: Refinement, layout: Layout, names: Names, exact: bool = True
) -> Packed:
    """The block with one of its inputs replaced by a copy, made at each point of the parent.

        before:  block c [n:4] (in B[0, 8*n] (64, 8)) { block d [k:64, j:8] (in B[k, j]) {...} }
        after:   new B_packed (4, 64, 8):(512, 8, 1)
                 block B_pack [n:4, d0:64, d1:8] (in B[d0, 8*n + d1]  out B_packed[n, d0, d1]:assign)
                 block c [n:4] (in B = B_packed[n, 0, 0] (1, 64, 8)) {
                   block d [k:64, j:8] (in B[0, k, j]) {...} }

    The copies move what the block reads, and no more; without `exact` they have no constraints, which
    is enough to weigh them.
    """
    outer = parent.refinement(view.source)
    tiles = {dim: name for name, dim in layout.panels}
    box = tuple(view.shape[d] if d in tiles else size for d, size in enumerate(outer.shape))
    fronts = tuple(block.ranges[name] for name, _ in layout.panels)
    lead = len(fronts)
    shape = (*fronts, *box)
    order = (*range(lead), *(d + lead for d in layout.order))
    name = names.fresh(f"{view.source}_packed")
    buffer = Refinement(Direction.NEW, name, shape, view.dtype, strides=permuted(shape, order))
    pieces = _read_cells(parent, block, view) if exact else [([], [])]
    copies = tuple(_copy(parent, block, view, layout, buffer, piece) for piece in pieces)
    access = tuple(Affine() if d in tiles else expr for d, expr in enumerate(view.access))
    moved = replace(
        view,
        source=name,
        access=(*(Affine.index(n) for n, _ in layout.panels), *access),
        shape=(*(1 for _ in fronts), *view.shape),
    )
    statements = block.statements
    if lead:
        statements = tuple(raise_rank(s, view.name, lead) for s in statements)
    refinements = tuple(moved if r is view else r for r in block.refinements)
    return Packed(copies, buffer, replace(block, refinements=refinements, statements=statements))


def _read_cells(parent: Block, block: Block, view: Refinement) -> list[Piece]:
    """The cells of the parent's view that the block reads."""
    whole = Box(tuple(Affine() for _ in view.shape), parent.refinement(view.source).shape)
    found = [a for a in accesses(parent, block) if a.buffer == view.source]
    pieces = touched_cells(parent, found, whole, exact=False)
    if pieces is None:
        raise RewriteRefused(f"what it reads of '{view.source}' is too complicated to describe")
    return pieces


def _copy(
    parent: Block, block: Block, view: Refinement, layout: Layout, buffer: Refinement, piece: Piece
) -> Block:
    outer = parent.refinement(view.source)
    rank, names = len(view.shape), Names(i.name for i in parent.indexes)
    tiles = {dim: name for name, dim in layout.panels}
    lead = len(layout.panels)
    fronts = {name: names.fresh(name) for name, _ in layout.panels}
    cells = [names.fresh(f"d{dim}") for dim in range(rank)]
    sizes = buffer.shape[lead:]
    inside = [Affine.index(cell) if size > 1 else Affine() for cell, size in zip(cells, sizes, strict=True)]
    place = {
        f"@{dim}": Affine.index(fronts[tiles[dim]], sizes[dim]) + inside[dim] if dim in tiles else inside[dim]
        for dim in range(rank)
    }
    limits = [expr.substitute(place) for expr in as_inequalities(piece)]
    for dim in tiles:
        if buffer.shape[[d for _, d in layout.panels].index(dim)] * sizes[dim] > outer.shape[dim]:
            limits.append(Affine(outer.shape[dim] - 1) - place[f"@{dim}"])
    ones = (1,) * rank
    local = Names()
    read, written = local.fresh(outer.name), local.fresh(buffer.name)
    target = (*(Affine.index(fronts[name]) for name, _ in layout.panels), *inside)
    ordered = [*layout.order]
    copy = Block(
        f"{outer.name}_pack",
        indexes=(
            *(Index(fronts[name], block.ranges[name]) for name, _ in layout.panels),
            *(Index(cells[dim], sizes[dim]) for dim in ordered if sizes[dim] > 1),
            *(Index(i.name, 1, Affine.index(i.name)) for i in parent.indexes),
        ),
        constraints=tuple(Constraint(e) for e in dict.fromkeys(limits)),
        refinements=(
            Refinement(
                Direction.IN, read, ones, view.dtype, outer.name, tuple(place[f"@{d}"] for d in range(rank))
            ),
            Refinement(
                Direction.OUT, written, (1,) * (lead + rank), view.dtype, buffer.name, target,
                Aggregation.ASSIGN,
            ),
        ),
        statements=(Load("v", read, view.dtype), Store(written, "v")),
    )  # fmt: skip
    return drop_unused_passed(copy)


def inserted(parent: Block, block: Block, packed: Packed) -> Block:
    """The parent with the buffer, and the copies in front of the block that reads it."""
    statements: list[Statement] = []
    for statement in parent.statements:
        statements += [*packed.copies, packed.block] if statement is block else [statement]
    return replace(parent, refinements=(*parent.refinements, packed.buffer), statements=tuple(statements))


def from_the_original(root: Block, packed: Packed) -> Packed:
    """Copies of what is a copy itself, with its dimensions in another order or its elements converted: made
    from the original, so that the one in between may turn out to be of no use."""
    return replace(packed, copies=tuple(_from_the_original(root, copy) for copy in packed.copies))


def _from_the_original(root: Block, copy: Block) -> Block:
    read, written = copy.refinements
    makers = _makers(root, read.source)
    if root.refinement(read.source).direction is Direction.IN or len(makers) != 1:
        return copy
    found = _permutation(root, makers[0])
    if found is None:
        return copy
    source, dimensions, casts = found
    original = root.refinement(source)
    if original.direction is not Direction.IN:
        return copy
    access = tuple(read.access[dim] for dim in dimensions)
    read = replace(read, source=source, access=access, dtype=original.dtype)
    statements: list[Statement] = [Load("v", read.name, read.dtype)]
    for number, dtype in enumerate(casts):
        statements.append(Cast(f"v{number}", _result(statements), dtype))
    statements.append(Store(written.name, _result(statements)))
    return replace(copy, refinements=(read, written), statements=tuple(statements))


def _result(statements: Sequence[Statement]) -> str:
    last = statements[-1]
    assert isinstance(last, Load | Cast)
    return last.result


def _makers(root: Block, buffer: str) -> list[Block]:
    return [b for b in root.children if any(r.source == buffer and r.direction.writes for r in b.refinements)]


def _permutation(root: Block, block: Block) -> tuple[str, tuple[int, ...], tuple[DType, ...]] | None:
    """If all that a block does is to copy a whole buffer: of which, for each of its dimensions the one
    of the copy that runs along it, and the types that elements are converted to on the way."""
    chain = [block]
    while len(chain[-1].statements) == 1 and chain[-1].children:
        chain.append(chain[-1].children[0])
    first, *between, last = chain[-1].statements or (None, None)
    if not isinstance(first, Load) or not isinstance(last, Store):
        return None
    value, casts = first.result, list[DType]()
    for statement in between:
        if not isinstance(statement, Cast) or statement.operand != value:
            return None
        value, casts = statement.result, [*casts, statement.dtype]
    if last.value != value:
        return None
    names = [first.buffer, last.buffer]
    places: list[tuple[Affine, ...]] = [(), ()]
    values, ranges, limits = list[dict[str, Affine]](), dict[str, int](), set[Affine]()
    for depth, level in enumerate(chain):
        if len(level.refinements) != 2:
            return None
        around = values[-1] if values else {}
        own = {name: Affine.index(f"{depth}.{name}") for name in level.ranges}
        own |= {i.name: i.passed.substitute(around) for i in level.indexes if i.passed is not None}
        values.append(own)
        ranges |= {f"{depth}.{name}": size for name, size in level.ranges.items()}
        limits |= {constraint.expr.substitute(own) for constraint in level.constraints}
    for level, own in zip(reversed(chain), reversed(values), strict=True):
        for side, name in enumerate(names):
            ref = level.refinement(name)
            here = tuple(expr.substitute(own) for expr in ref.access)
            inner = places[side] or (Affine(),) * len(here)
            places[side] = tuple(a + b for a, b in zip(here, inner, strict=True))
            names[side] = ref.source
    source, copied = (root.refinement(name) for name in names)
    if sorted(places[0], key=str) != sorted(places[1], key=str) or len(set(places[1])) != len(places[1]):
        return None
    if sorted(source.shape) != sorted(copied.shape) or not _covers(places[1], copied.shape, ranges, limits):
        return None
    return names[0], tuple(places[1].index(expr) for expr in places[0]), tuple(casts)


def _covers(
    places: Sequence[Affine], shape: Sequence[int], ranges: Mapping[str, int], limits: Set[Affine]
) -> bool:
    """Whether each element of a buffer of this shape is met at some values of the indexes within `limits`."""
    dimensions = [str(number) for number in range(len(shape))]
    met = Domain.box(ranges).with_constraints(limits).image(places, dimensions)
    return met.equals(Domain.box(dict(zip(dimensions, shape, strict=True))))


def known_at_load_time(program: Program) -> frozenset[str]:
    """The inputs of the root that are constants, or made by the load-time program."""
    load = program.load.refinements if program.load is not None else ()
    constants = (r.name for r in program.root.refinements if r.const)
    return frozenset((*constants, *(r.name for r in load if r.direction.writes)))


def at_load_time(program: Program, block: Block, source: str, packed: Packed) -> Program:
    """The program whose load-time program makes the copy, which becomes an input of the root. A copy made
    before, of which this is one and nothing else is left, stays in the load-time program."""
    root, load = program.root, program.load
    constant = next(r for r in root.refinements if r.name == source)
    buffer = packed.buffer
    origin = tuple(Affine() for _ in buffer.shape)
    given = replace(buffer, direction=Direction.IN, source=buffer.name, access=origin)
    made = replace(given, direction=Direction.OUT, aggregation=Aggregation.ASSIGN)
    load = load or Block("pack")
    known = {r.name for r in load.refinements}
    refinements = load.refinements if source in known else (replace(constant, const=False), *load.refinements)
    fill = () if _is_whole(packed) else (_fill(buffer),)
    load = replace(load, refinements=refinements)
    copies = from_the_original(load, packed).copies
    load = replace(load, refinements=(*refinements, made), statements=(*load.statements, *fill, *copies))
    inputs = [r for r in root.refinements if r.direction is Direction.IN]
    others = [r for r in root.refinements if r.direction is not Direction.IN]
    statements = tuple(packed.block if s is block else s for s in root.statements)
    root = replace(root, refinements=(*inputs, given, *others), statements=statements)
    return _without(replace(program, root=root, load=load), source)


def _without(program: Program, source: str) -> Program:
    """What the load-time program made, and the root does not read now, is a buffer of that program; what
    nothing reads goes."""
    root, load = program.root, program.load
    assert load is not None
    used = {r.source for b in root.children for r in b.refinements}
    if load.refinement(source).direction is Direction.IN or source in used:
        return program
    made = load.refinement(source)
    if any(r.source == source and r.direction.reads for b in load.children for r in b.refinements):
        own = replace(made, direction=Direction.NEW, source="", access=(), aggregation=None)
        load = replace(load, refinements=tuple(own if r is made else r for r in load.refinements))
    else:
        makers = _makers(load, source)
        statements = tuple(s for s in load.statements if not any(s is maker for maker in makers))
        kept = tuple(r for r in load.refinements if r is not made)
        load = replace(load, refinements=kept, statements=statements)
    root = replace(root, refinements=tuple(r for r in root.refinements if r.name != source))
    return replace(program, root=root, load=load)


def _is_whole(packed: Packed) -> bool:
    """Whether the copies write every element of the buffer: each runs over all of it, but for what its
    constraints leave out."""
    return len(packed.copies) == 1 and not packed.copies[0].constraints


def _fill(buffer: Refinement) -> Block:
    """Zeros, for what is padding in a buffer that must be written whole."""
    zero: Constant = Constant("z", _zero(buffer), buffer.dtype)
    indexes = tuple(Index(f"d{dim}", size) for dim, size in enumerate(buffer.shape))
    access = tuple(Affine.index(i.name) if i.range > 1 else Affine() for i in indexes)
    view = Refinement(
        Direction.OUT, buffer.name, (1,) * len(access), buffer.dtype, buffer.name, access, Aggregation.ASSIGN
    )
    return Block(
        f"{buffer.name}_fill",
        tuple(i for i in indexes if i.range > 1),
        refinements=(view,),
        statements=(zero, Store(buffer.name, "z")),
    )


def _zero(buffer: Refinement) -> int | float | bool:
    kind = buffer.dtype.numpy.kind
    return False if kind == "b" else 0 if kind in "iu" else 0.0
