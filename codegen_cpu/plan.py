"""How a block's points are run: which indexes are loops, which are written out, which is the lane.

Also which constraints are worth testing ahead of a whole block execution: those over an index
that is written out or is the lane, where the version without tests is straight-line code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

from codegen_cpu.layout import View
from codegen_cpu.scope import step_along
from codegen_cpu.squares import Across, plan_across
from codegen_cpu.stencils import Use, find_use
from codegen_cpu.target import Target
from codegen_cpu.tiles import TileUse
from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Scalar,
    Special,
    Store,
)

_UNROLLED_STATEMENTS = 4096  # a block, with the blocks inside, is written out to no more than this

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """`loops` run in order, outermost first; inside them, `unrolled` is written out in order.

    `lane` is one of either, or empty; its points are taken `width` at a time. `masks` says that a
    vector with some lanes off costs about as much as a whole one. With `across`, that index and the
    lane are loops that run in squares. With a `use`, each point stands for
    all values of the index that an instruction takes in one go, which is neither loop nor unrolled. With
    `tiles`, the block is code of another kind, which goes through all points but stores each result once.
    """

    loops: tuple[str, ...]
    unrolled: tuple[str, ...]
    lane: str = ""
    width: int = 0
    masks: bool = False
    across: Across | None = None
    use: Use | None = None
    tiles: TileUse | None = None


def plan_block(
    block: Block,
    views: Mapping[str, View],
    open_constraints: Iterable[Affine],
    size: int,
    target: Target,
    around: Mapping[str, int],
) -> Plan:
    """The plan for a block whose views are bound. `open_constraints` are not known to hold; `size`
    is that of the code of one point, in statements; `around` has the last values of the loops around it.

    Unrolled indexes go inside the loops: points are independent, so that the order is ours, and
    what all points of an inner loop add to then stays in registers. Where a constraint on one has
    to be tested, writing it out pays only with masks, and for a buffer in registers.
    """
    ranges = block.ranges
    open_constraints = tuple(open_constraints)
    lane, width = _lane(block, views, target)
    use = find_use(block, views, lane, target, alone=not open_constraints)
    if isinstance(use, TileUse):
        return Plan((), tuple(ranges), lane, width, tiles=use)
    across = None if use else plan_across(block, views, lane, width, open_constraints, target, around)
    width = across.width if across is not None else width
    masks = _masks(block, views, lane, across, target)
    wanted = [name for name in dict.fromkeys(block.tag_values("unroll")) if name in ranges]
    # A constraint on nothing else is decided as they are written out, but for the lanes of one vector.
    tested = {name for expr in open_constraints if not set(expr.names) <= set(wanted) for name in expr.names}
    unrolled = [
        name
        for name in ranges
        if name in wanted and (name not in tested or (masks and _in_registers(block, views, name)))
    ]
    for name in ranges:  # outermost first: the inner ones gain the most
        copies = max(1, size)
        for other in unrolled:
            copies *= -(-ranges[other] // max(width, 1)) if other == lane else ranges[other]
        if copies > _UNROLLED_STATEMENTS and name in unrolled:
            unrolled.remove(name)
    group = "" if use is None else use.group
    square = (lane, across.index) if across is not None else ()
    loops = [name for name in ranges if name not in unrolled and name != group]
    if any(len(names & set(loops)) > 1 and names & set(square) for names in _names(open_constraints)):
        loops.sort(key=lambda name: name in square)  # other loops decide where squares begin and end
    unrolled = [name for name in unrolled if name != group]
    return Plan(tuple(loops), tuple(unrolled), lane, width, masks, across, use)


def vectors_held(block: Block, views: Mapping[str, View], plan: Plan) -> int:
    """How many vectors of what is summed up stay in registers."""
    sums = [
        ref for ref in block.refinements if ref.direction.writes and ref.aggregation is not Aggregation.ASSIGN
    ]
    width, held = max(plan.width, 1), 0
    for ref in sums:
        steps = {name: step_along(ref, views[ref.name].strides, name) for name in plan.unrolled}
        sizes = {name: block.ranges[name] for name, step in steps.items() if step}
        held += prod(-(-size // width) if name == plan.lane else size for name, size in sizes.items())
    return held


def _names(constraints: Iterable[Affine]) -> Iterable[set[str]]:
    return (set(expr.names) for expr in constraints)


def _masks(block: Block, views: Mapping[str, View], lane: str, across: Across | None, target: Target) -> bool:
    """Whether the target has what the block's loads and stores along the lane need to be masked."""
    if target.masked_memory or not target.masked_words:
        return target.masked_memory
    for ref in block.refinements:
        if ref.source and views[ref.name].buffer.spare is None:
            turned = across is not None and ref.name in across.turned
            step = 1 if turned else step_along(ref, views[ref.name].strides, lane)
            if abs(step) > 1 or (step and ref.dtype.bytes < 4):
                return False
    return True


def _in_registers(block: Block, views: Mapping[str, View], name: str) -> bool:
    """Whether a buffer on the stack is indexed by `name`: it stays in registers only if constantly so."""
    return any(
        views[ref.name].buffer.spare is not None and any(e.coefficient(name) for e in ref.access)
        for ref in block.refinements
        if ref.source
    )


def _lane(block: Block, views: Mapping[str, View], target: Target) -> tuple[str, int]:
    """The lane index and how many elements make a vector: as many as the widest value has room for."""
    if any(isinstance(s, Block | Special) for s in block.statements):
        return "", 0
    if any(ref.direction is Direction.NEW for ref in block.refinements):
        return "", 0  # each point has a buffer of its own
    ranges = block.ranges
    lane = next((name for name in block.tag_values("vector") if ranges.get(name, 0) > 1), "")
    if not lane:
        return "", 0
    steps = {
        ref.name: step_along(ref, views[ref.name].strides, lane) for ref in block.refinements if ref.source
    }
    for statement in block.statements:
        if isinstance(statement, Store) and steps.get(statement.buffer, 0) == 0:
            view = views[statement.buffer]
            if view.how is Aggregation.ASSIGN:
                return "", 0  # at most one lane is a point
    width = target.vector_bytes // max(_widths(block, views), default=1)
    whole = 1 << (ranges[lane] - 1).bit_length()
    width = min(width, whole)
    return (lane, width) if width > 1 else ("", 0)


def _widths(block: Block, views: Mapping[str, View]) -> Iterable[int]:
    """The bytes of each value in a register; an f16 or bf16 is held as f32, but for a bf16 that is copied."""
    moves = all(isinstance(s, Load | Store) for s in block.statements)
    if moves and all(view.buffer.dtype is DType.BF16 for view in views.values()):
        stores = [s for s in block.statements if isinstance(s, Store)]
        if all(views[s.buffer].how is Aggregation.ASSIGN for s in stores):
            yield DType.BF16.bytes
            return
    for statement in block.statements:
        if isinstance(statement, Load | Intrinsic | Scalar) and not isinstance(
            statement, Constant | IndexValue
        ):
            yield _register_bytes(statement.dtype)
        elif isinstance(statement, Store):
            yield _register_bytes(views[statement.buffer].buffer.dtype)


def _register_bytes(dtype: DType) -> int:
    return 4 if dtype in (DType.F16, DType.BF16) else dtype.bytes


# -- questions about whole nests ---------------------------------------------------------------


class _FromInside(ABC, Generic[T]):
    """A question about blocks that builds on the answers for the blocks inside: asked once for each
    object, and without a Python stack as deep as the nest."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, T]] = {}

    def of(self, block: Block) -> T:
        pending = [(block, False)]
        while pending:
            current, ready = pending.pop()
            if id(current) in self._known:
                continue
            if ready:
                self._known[id(current)] = (current, self._answer(current))
            else:
                pending.append((current, True))
                pending.extend((child, False) for child in current.children)
        return self._known[id(block)][1]

    @abstractmethod
    def _answer(self, block: Block) -> T:
        """The answer for a block, where those for its children are known."""


class Sizes(_FromInside[int]):
    """For each block, about how many statements its code has when the tagged loops are written out."""

    def of_point(self, block: Block) -> int:
        """The statements of one point, those of the blocks inside included."""
        return sum(self.of(s) if isinstance(s, Block) else 1 for s in block.statements)

    def _answer(self, block: Block) -> int:
        ranges, point = block.ranges, self.of_point(block)
        copies = prod(ranges.get(name, 1) for name in set(block.tag_values("unroll")))
        return min(point * copies, max(point, _UNROLLED_STATEMENTS))


def worst_case(expr: Affine, ranges: Mapping[str, int]) -> Affine:
    """The least value of `expr` over the box of `ranges`, as an expression over the other indexes."""
    least = expr.without(set(ranges))
    for name, coefficient in expr.terms:
        if name in ranges and coefficient < 0:
            least = least + coefficient * (ranges[name] - 1)
    return least


def best_case(expr: Affine, ranges: Mapping[str, int]) -> Affine:
    """The greatest value of `expr` over the box of `ranges`, as an expression over the other indexes."""
    return -worst_case(-expr, ranges)


class Guards(_FromInside[tuple[Affine, ...]]):
    """For each block, what its callers may test so that no constraint on its unrolled indexes is left.

    An expression over the indexes that the block is passed; if it is >= 0, the constraint
    holds for every point of one execution. Those of inner blocks come along as far out as
    their indexes reach.
    """

    def _answer(self, block: Block) -> tuple[Affine, ...]:
        own = dict.fromkeys(self._own(block))
        for child in block.children:
            outward = self.above(block, child)
            own.update(dict.fromkeys(e for e in outward if not set(e.names) & set(block.ranges)))
        return tuple(own)

    def above(self, block: Block, child: Block) -> list[Affine]:
        """The guards of a child of `block`, over the indexes of `block`."""
        passed = {i.name: i.passed for i in child.indexes if i.passed is not None}
        return [expr.substitute(passed) for expr in self.of(child)]

    def _own(self, block: Block) -> Iterable[Affine]:
        straight = set(block.tag_values("unroll"))
        for constraint in block.constraints:
            if straight.intersection(constraint.expr.names):
                yield worst_case(constraint.expr, block.ranges)
