"""Which part of a buffer one point of a block touches: the live box, and the written cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from stripe.affine import Affine
from stripe.analysis.deps import Access, accesses
from stripe.ir import Block, Special, Statement
from stripe.poly import Domain, Lattice, Piece, block_domain, box_limits, lattices
from stripe.visit import buffers_used


@dataclass(frozen=True, slots=True)
class Box:
    """`origin` (affine over the block's indexes) and extent of what one point touches. In a lattice with gaps
    `steps` lead from one element to the next; without any they are 1."""

    origin: tuple[Affine, ...]
    shape: tuple[int, ...]
    steps: tuple[int, ...] = ()

    @property
    def apart(self) -> tuple[int, ...]:
        """The step along each dimension."""
        return self.steps or tuple(1 for _ in self.shape)

    def place(self, element: Sequence[Affine]) -> tuple[Affine, ...] | None:
        """Where in the box an element lies, None if that is no integer everywhere."""
        inside = zip(element, self.origin, self.apart, strict=True)
        found = [(expr - start).divided(step) for expr, start, step in inside]
        known = tuple(expr for expr in found if expr is not None)
        return known if len(known) == len(found) else None

    @property
    def elements(self) -> int:
        return prod(self.shape)


def live_box(block: Block, found: Sequence[Access]) -> Box | None:
    """The least box, moving with the block's indexes where all accesses move alike, that holds
    the elements the accesses touch; None if none is ever executed."""
    outer = frozenset(i.name for i in block.indexes)
    executed = [(a, domain) for a in found if not (domain := a.domain()).is_empty()]
    if not executed:
        return None
    origin, shape = [], []
    for dim in range(len(executed[0][0].element)):
        moves = {a.element[dim].only(outer) for a, _ in executed}
        common = moves.pop() if len(moves) == 1 else Affine()
        limits = [domain.bounds(a.element[dim] - common) for a, domain in executed]
        known = [limit for limit in limits if limit is not None]
        if len(known) < len(limits):
            return None
        low = min(first for first, _ in known)
        origin.append(common + low)
        shape.append(max(last for _, last in known) - low + 1)
    return Box(tuple(origin), tuple(shape))


def touched_box(block: Block, buffer: str) -> Box | None:
    """The live box of a buffer over all statements of the block.

    Statements that use the buffer directly, not through a child block, see it from its first
    element: then the box starts there. None if nothing touches it, or a special uses it whole.
    """
    users = [s for s in block.statements if any(name == buffer for name, _ in buffers_used(s))]
    if any(isinstance(s, Special) for s in users):
        return None
    box = live_box(block, [a for s in users for a in accesses(block, s) if a.buffer == buffer])
    if box is None or all(isinstance(s, Block) for s in users):
        return box
    if any(not expr.is_constant for expr in box.origin):
        return None
    shape = tuple(s + expr.const for s, expr in zip(box.shape, box.origin, strict=True))
    return Box(tuple(Affine() for _ in shape), shape)


def reduces(block: Block, statement: Statement, buffer: str) -> bool:
    """Whether one execution of the statement writes an element of the buffer several times, along
    an index that the element's address does not name."""
    outer = {i.name for i in block.indexes}
    for access in accesses(block, statement):
        if access.buffer == buffer and access.writes:
            used = {name for expr in access.element for name in expr.names}
            if any(name not in used and name not in outer for name in access.names):
                return True
    return False


def writes_apart(block: Block, statement: Block, buffer: str) -> bool:
    """Whether each element of a buffer of the block is written by one point of the child at most."""
    own = {f".{name}" for name, size in statement.ranges.items() if size > 1}
    outer = [i.name for i in block.indexes]
    found = [a for a in accesses(block, statement) if a.buffer == buffer and a.writes]
    if not found:
        return True
    points = [name for name in found[0].names if name in own]
    cells = [f"@{dim}" for dim in range(len(found[0].element))]
    names = [*outer, *points, *cells]
    total = Domain.empty(names)
    for access in found:
        values = [*map(Affine.index, (*outer, *points)), *access.element]
        total = total.union(access.domain().image(values, names))
    return total.determines([*outer, *cells], points)


def written_cells(block: Block, statement: Statement, buffer: str, box: Box) -> Piece | None:
    """The cells of the box that the statement writes, as constraints beyond those of the box.

    They are over the block's indexes and the coordinates `@0`, `@1` ... in the box. None where
    they are no single conjunction of affine constraints, or a write may not happen.
    """
    outer = [i.name for i in block.indexes]
    names = [*outer, *cell_names(len(box.shape))]
    total = Domain.empty(names)
    for access in accesses(block, statement):
        if access.buffer == buffer and access.writes:
            if access.conditional:
                return None
            place = box.place(access.element)
            if place is None:
                return None
            values = [*(Affine.index(name) for name in outer), *place]
            total = total.union(access.domain().image(values, names))
    return total.coalesce().piece_beyond(_within(block, box))


MAX_PIECES = 8  # conjunctions that the cells of a box are described with


def touched_cells(
    block: Block,
    found: Sequence[Access],
    box: Box,
    besides: Sequence[Access] = (),
    exact: bool = True,
) -> list[Piece] | None:
    """The cells of a box that the accesses touch and `besides` do not, as disjoint conjunctions beyond the
    limits of the block's points and of the box, over the block's indexes and the cells `@0`, `@1` ...

    None where they are no few conjunctions of affine constraints; unless `exact` is false: then the cells
    between those of each conjunction count, too.
    """
    total, context = _cells_of(block, found, box, besides), _within(block, box)
    pieces = total.gist(context).pieces(disjoint=True)
    if pieces is None and not exact:
        pieces = total.without_divisions().coalesce().gist(context).pieces(disjoint=True)
    return pieces if pieces is not None and len(pieces) <= MAX_PIECES else None


def strided_cells(
    block: Block, found: Sequence[Access], box: Box, besides: Sequence[Access] = ()
) -> list[Lattice] | None:
    """What `touched_cells` gives, for cells with gaps between them: each conjunction over indexes
    of its own. None where they are no few lattices."""
    total = _cells_of(block, found, box, besides)
    made = lattices(total, [i.name for i in block.indexes])
    return made if made is not None and len(made) <= MAX_PIECES else None


def cell_names(rank: int) -> list[str]:
    """Names for the dimensions of a cell of a buffer, which no index has."""
    return [f"@{dim}" for dim in range(rank)]


def _within(block: Block, box: Box) -> Domain:
    """The points of a block, with each of the cells of a box."""
    cells = dict(zip(cell_names(len(box.shape)), box.shape, strict=True))
    return block_domain(block).extended(list(cells)).with_constraints(box_limits(cells))


def _cells_of(block: Block, found: Sequence[Access], box: Box, besides: Sequence[Access]) -> Domain:
    outer = [i.name for i in block.indexes]
    names = [*outer, *cell_names(len(box.shape))]

    def touched(by: Sequence[Access]) -> Domain:
        total = Domain.empty(names)
        for access in by:
            place = [expr - start for expr, start in zip(access.element, box.origin, strict=True)]
            values = [*(Affine.index(name) for name in outer), *place]
            total = total.union(access.domain().image(values, names))
        return total.coalesce()

    total = touched(found)
    return total.subtract(touched(besides)).coalesce() if besides else total
