"""What a block's code may refer to: the values of its indexes, its views, what is known there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from codegen_cpu.layout import Buffer, View
from codegen_cpu.loops import Facts
from stripe.affine import Affine
from stripe.ir import Aggregation, Block, Refinement


@dataclass(frozen=True, slots=True)
class Coming:
    """What a copy between loops will read at their next point: a box of lines that begins at `start`, with so
    many lines along each dimension in `steps`, so many elements apart. So many loops were `open`."""

    buffer: Buffer
    start: Affine
    steps: tuple[tuple[int, int], ...]
    open: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of one point. Index values are affine over loop variables.

    `path` numbers the statements that lead here; `versions` counts how often the code around
    has been split into a version without constraints and one with them. `read` names the views that
    statements in front of this one have read at the same point, `again` those that statements behind it
    will; `before` has also those that were read in front of a block around. What is in `coming` is still to
    be asked for.
    """

    indexes: Mapping[str, Affine] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    facts: Facts = ()
    path: tuple[int, ...] = ()
    versions: int = 0
    read: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    coming: tuple[Coming, ...] = ()

    def enter(self, block: Block) -> Scope:
        """The scope in which `block` runs its loops: the indexes it is passed, no views yet."""
        passed = {i.name: i.passed.substitute(self.indexes) for i in block.indexes if i.passed is not None}
        read, again, before = (
            frozenset(ref.name for ref in block.refinements if ref.source in names)
            for names in (self.read, self.again, self.before)
        )
        return replace(self, indexes=passed, read=read, again=again, before=before)

    def at(
        self,
        statement: int,
        read: frozenset[str] = frozenset(),
        again: frozenset[str] = frozenset(),
        coming: tuple[Coming, ...] = (),
    ) -> Scope:
        before = self.before | read
        path = (*self.path, statement)
        return replace(self, path=path, read=read, again=again, before=before, coming=coming)


@dataclass(frozen=True, slots=True)
class Window:
    """What a block sees of a buffer from one point to the next: the place of its element, as `origin`, which
    all points share, and `moves`, over the block's own indexes. In elements of the buffer."""

    buffer: Buffer
    how: Aggregation
    origin: Affine
    moves: Affine = field(default_factory=Affine)

    @staticmethod
    def of(ref: Refinement, parent: View) -> Window:
        """What `viewed` makes of a parent's view, for all points at once."""
        moves = Affine.weighted(ref.access, parent.strides)
        return Window(parent.buffer, aggregated(ref, parent), parent.offset, moves)

    def offset(self, indexes: Mapping[str, Affine]) -> Affine:
        return self.origin + self.moves.substitute(indexes)


def aggregated(ref: Refinement, parent: View) -> Aggregation:
    """What a write through a view of the parent's view does to an element."""
    if parent.how is Aggregation.ASSIGN and ref.aggregation is not None:
        return ref.aggregation
    return parent.how


def viewed(ref: Refinement, parent: View, indexes: Mapping[str, Affine]) -> View:
    """The view that `ref` makes of its parent's at a point.

    Below an aggregating level an inner level writes straight into the result: `add` over `add`,
    and `assign` by one point, come to the same.
    """
    origin = tuple(
        position + expr.substitute(indexes) for position, expr in zip(parent.origin, ref.access, strict=True)
    )
    return View(parent.buffer, origin, parent.strides, ref.shape, aggregated(ref, parent))


def begins_aggregation(ref: Refinement, parent: View) -> bool:
    """Whether `ref` is at the topmost aggregating level, so that old contents play no part or
    (INOUT) are folded in once."""
    aggregates = ref.combines
    return aggregates and parent.how is Aggregation.ASSIGN


def step_along(ref: Refinement, strides: tuple[int, ...], index: str) -> int:
    """By how many elements the origin of `ref` moves when `index` grows by one."""
    return sum(expr.coefficient(index) * stride for expr, stride in zip(ref.access, strides, strict=True))


def spanned(ref: Refinement, view: View, ranges: Mapping[str, int], around: Mapping[str, int]) -> int:
    """Over how many bytes an operand is read or written in a leaf of these ranges and the loops around it,
    whose last values are given."""
    leaf = sum(abs(step_along(ref, view.strides, n)) * (size - 1) for n, size in ranges.items())
    outer = sum(abs(view.offset.coefficient(loop)) * last for loop, last in around.items())
    return (leaf + outer) * ref.dtype.bytes
