"""Which elements a block writes through a view, as blocks that run over just those elements.

At the topmost aggregating level each element that will be written starts at the neutral value
(docs/architecture.md). The elements are the image of the writing statements' domains: the
indexes that an access does not use are projected out where that leaves affine constraints,
otherwise they run, too, and the same element is set more than once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.intrinsics import neutral
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Constraint,
    Direction,
    Index,
    Load,
    Refinement,
    Special,
    Statement,
    Store,
    Tag,
)
from stripe.poly import Domain, as_inequalities, box_limits


@dataclass(frozen=True, slots=True)
class Cells:
    """Elements `access` at the points of `ranges` (and passed indexes) under `constraints`.

    Coordinates are those of the view that the outermost block refines. `unrolled` are the
    indexes that the writing blocks unroll.
    """

    ranges: tuple[tuple[str, int], ...]
    constraints: tuple[Affine, ...]
    access: tuple[Affine, ...]
    unrolled: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Level:
    """A block on the way to a write, with all indexes in names of the whole nest."""

    block: Block
    name: str  # of the view, in the block
    depth: int
    values: dict[str, Affine]
    access: tuple[Affine, ...]
    ranges: tuple[tuple[str, int], ...]
    constraints: tuple[Affine, ...]
    unrolled: frozenset[str]
    passed: tuple[str, ...]  # the indexes that the outermost block is passed

    @staticmethod
    def outermost(block: Block, ref: Refinement) -> _Level:
        passed = {i.name: Affine.index(i.name) for i in block.indexes if i.passed is not None}
        outside = _Level(block, "", -1, {}, (Affine(),) * len(ref.shape), (), (), frozenset(), tuple(passed))
        return outside._entered(block, ref, passed)

    def of(self, child: Block, ref: Refinement) -> _Level:
        """A child, which writes the view through `ref`."""
        passed = {i.name: i.passed.substitute(self.values) for i in child.indexes if i.passed is not None}
        return self._entered(child, ref, passed)

    def _entered(self, block: Block, ref: Refinement, passed: dict[str, Affine]) -> _Level:
        depth = self.depth + 1
        names = {name: f"{name}.{depth}" for name in block.ranges}
        values = passed | {name: Affine.index(here) for name, here in names.items()}
        return _Level(
            block,
            ref.name,
            depth,
            values,
            tuple(a + e.substitute(values) for a, e in zip(self.access, ref.access, strict=True)),
            (*self.ranges, *((names[name], size) for name, size in block.ranges.items())),
            (*self.constraints, *(c.expr.substitute(values) for c in block.constraints)),
            self.unrolled | {f"{name}.{depth}" for name in block.tag_values("unroll")},
            self.passed,
        )


def written_cells(block: Block, ref: Refinement, kept: Collection[str] = ()) -> list[Cells]:
    """The elements that one execution of `block` writes through `ref`, in pieces that may overlap.

    The indexes passed to `block` keep their names; others are named after their depth. Its own indexes in
    `kept` stay, with what limits them, also where no element depends on them.
    """
    whole = frozenset(f"{name}.0" for name in kept)
    found: dict[Cells, None] = {}
    pending = [_Level.outermost(block, ref)]
    while pending:
        level = pending.pop()
        for statement in level.block.statements:
            match statement:
                case Store(buffer=buffer) if buffer == level.name:
                    found.update(dict.fromkeys(_pieces(level, level.access, (), whole)))
                case Special():
                    for access, ranges in _special_writes(statement, level):
                        found.update(dict.fromkeys(_pieces(level, access, ranges, whole)))
                case Block():
                    for child in statement.refinements:
                        if child.source == level.name and child.direction.writes:
                            pending.append(level.of(statement, child))
                case _:
                    pass
    return list(found)


def _special_writes(
    special: Special, level: _Level
) -> Iterator[tuple[tuple[Affine, ...], tuple[tuple[str, int], ...]]]:
    """Each operand that writes the view: its elements, as ranges of their own."""
    for operand in special.operands:
        if operand.buffer != level.name or not operand.direction.writes:
            continue
        shape = operand.shape or level.block.refinement(level.name).shape
        origin = operand.access or (Affine(),) * len(shape)
        # No index of a program is named like this.
        ranges = tuple((f"@{dim}", size) for dim, size in enumerate(shape))
        access = tuple(
            a + o.substitute(level.values) + Affine.index(name)
            for a, o, (name, _) in zip(level.access, origin, ranges, strict=True)
        )
        yield access, ranges


def _pieces(
    level: _Level, access: tuple[Affine, ...], more: tuple[tuple[str, int], ...], whole: frozenset[str]
) -> Iterator[Cells]:
    ranges = (*level.ranges, *more)
    used = {name for expr in access for name in expr.names} | whole
    unused = {name for name, _ in ranges} - used
    kept = tuple((name, size) for name, size in ranges if name in used)
    if all(size > 0 for _, size in ranges):
        if not any(unused.intersection(c.names) for c in level.constraints):
            yield Cells(kept, level.constraints, access, level.unrolled)
            return
        pieces = _projected(ranges, level.constraints, used, level.passed)
        if pieces is None:
            yield Cells(ranges, level.constraints, access, level.unrolled)
            return
        for constraints in pieces:
            yield Cells(kept, constraints, access, level.unrolled)


def _projected(
    ranges: tuple[tuple[str, int], ...],
    constraints: tuple[Affine, ...],
    used: set[str],
    passed: tuple[str, ...],
) -> list[tuple[Affine, ...]] | None:
    """The constraints, in alternatives, that remain on the used indexes and those passed in."""
    sizes = dict(ranges)
    mentioned = {name for c in constraints for name in c.names}
    free = [name for name in passed if name in mentioned]
    names = [*(name for name in sizes if name in used), *free]
    pieces = Domain.of([*sizes, *free], [*box_limits(sizes), *constraints]).project_onto(names).pieces()
    return None if pieces is None else [*map(as_inequalities, pieces)]


# -- blocks over cells -----------------------------------------------------------------------


def over_cells(
    block: Block, cells: Cells, strides: tuple[int, ...], refs: tuple[tuple[Direction, str, DType], ...],
    statements: tuple[Statement, ...],
) -> Block:  # fmt: skip
    """A leaf block, a sibling of `block`, that runs `statements` at each of the cells.

    `refs` are its views of buffers of the parent: all at the same coordinates.
    """
    flat = Affine()
    for expr, stride in zip(cells.access, strides, strict=True):
        flat = flat + expr * stride
    # The dense index comes last, and is the lane: a fill then writes whole vectors.
    ranges = sorted(cells.ranges, key=lambda item: flat.coefficient(item[0]) == 1)
    lane = ranges[-1][0] if ranges and flat.coefficient(ranges[-1][0]) == 1 else None
    tags = [Tag("unroll", name) for name, _ in ranges if name in cells.unrolled]
    passed = tuple(i for i in block.indexes if i.passed is not None)
    return Block(
        name=f"{block.name}.cells",
        indexes=(*(Index(name, size) for name, size in ranges), *passed),
        constraints=tuple(Constraint(expr) for expr in cells.constraints),
        refinements=tuple(
            Refinement(
                direction, name, (1,) * len(cells.access), dtype, name, cells.access,
                Aggregation.ASSIGN if direction.writes else None,
            )
            for direction, name, dtype in refs
        ),
        statements=statements,
        tags=(*tags, *((Tag("vector", lane),) if lane is not None else ())),
    )  # fmt: skip


def fill(
    block: Block, cells: Cells, strides: tuple[int, ...], name: str, how: Aggregation, dtype: DType
) -> Block:
    """Set each cell of buffer `name` to the neutral value of an aggregation."""
    statements = (Constant("none", neutral(how.value, dtype), dtype), Store(name, "none"))
    return over_cells(block, cells, strides, ((Direction.OUT, name, dtype),), statements)


def copy(
    block: Block, cells: Cells, strides: tuple[int, ...], source: tuple[str, DType], target: tuple[str, DType]
) -> Block:
    """Set each cell of one buffer from another, with a cast."""
    refs = ((Direction.IN, *source), (Direction.OUT, *target))
    statements: tuple[Statement, ...] = (
        Load("old", source[0], source[1]),
        Cast("new", "old", target[1]),
        Store(target[0], "new"),
    )
    return over_cells(block, cells, strides, refs, statements)


def hand_on(
    block: Block,
    cells: Cells,
    strides: tuple[int, ...],
    source: tuple[str, DType],
    target: tuple[str, DType],
    how: Aggregation,
) -> Block:
    """Fold each cell of one buffer into another, and leave it neutral: a second visit adds nothing."""
    refs = ((Direction.INOUT, *source), (Direction.OUT, *target))
    statements: tuple[Statement, ...] = (
        Load("old", source[0], source[1]),
        Cast("new", "old", target[1]),
        Store(target[0], "new"),
        Constant("none", neutral(how.value, source[1]), source[1]),
        Store(source[0], "none"),
    )
    return over_cells(block, cells, strides, refs, statements)


def is_injective(offset: Affine, ranges: dict[str, int]) -> bool:
    """Whether different points of the box surely have different offsets: a mixed-radix number.

    Indexes of range 1 don't count; others must all occur.
    """
    terms = sorted((abs(offset.coefficient(name)), size) for name, size in ranges.items() if size > 1)
    reach = 0
    for coefficient, size in terms:
        if coefficient <= reach:
            return False
        reach += coefficient * (size - 1)
    return True
