"""Programs on the memories of a target: every buffer with an address lives at exactly these bytes.

`interpret_placed` gives what `stripe.interp.interpret` gives, if no two buffers that are alive together
share bytes; where they do, the result is wrong, as it would be on the machine. An aggregation goes
on in memory: its first write to an element replaces what is there, later ones combine with it.

Order
  Statements run in order, points in the order of the index list, with two exceptions:
  - `inflight=n`: n successive points run interleaved, statement by statement; a statement that is a block
    runs in one go. The second point of a group lags behind the first by some statements, the third
    behind the second by as many: by none in the first group, by one in the second, and so on, so that over
    the groups each statement of a point meets each of the next.
  - a location that spreads the points of a block over units, `@CORE[c]`: the units run interleaved,
    each step of one and then one of the next, with all that is nested in the block. Points on one
    unit follow each other.

A block in which no buffer has an address is one step. It runs as in the interpreter, on all of its points
at once: that is how it differs from going through them only if its operands share bytes, and then it is
taken apart.

Beside the errors of the interpreter:
  I026  an allocation outside of its memory, or in one that the target does not have
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.arena_cells import Arenas, Cells, Folding, is_placed, share_bytes
from stripe.arena_leaf import Leaf, plan_leaf, run_leaf
from stripe.interp import interpret_with
from stripe.interp_checks import Names, check_indexes
from stripe.interp_data import ZERO, Array, Storage, added, box_coordinates, origin
from stripe.interp_run import Batch, Bounds, View, execute, reach_box, run_statement
from stripe.ir import SLOT, Aggregation, Block, Direction, Program, Refinement
from stripe.visit import buffers_used

Point = dict[str, int]
Steps = Iterator[bool]  # a pause after each step; True where a statement of the point itself is done

_LIVE = np.asarray(True)
_END = object()


def interpret_placed(program: Program, inputs: Mapping[str, Array], hw: HwConfig) -> dict[str, Array]:
    """Run `program` on the memories of `hw`: inputs and outputs as those of `stripe.interp.interpret`.

    Inputs are put into the memories when the root block that reads them begins, save for constants: they
    lie there from the start. What the load-time program leaves, the root finds.
    """
    return interpret_with(program, inputs, _Memories(program, inputs, hw).machine)


class _Memories:
    """The memories of a target as a program's roots find them, one after the other."""

    def __init__(self, program: Program, inputs: Mapping[str, Array], hw: HwConfig) -> None:
        self._roots = [root for root in (program.load, program.root) if root is not None]
        left = [ref for root in self._roots[:-1] for ref in root.refinements if ref.direction.writes]
        made = {ref.name for ref in left}
        self._constants = [r for r in program.inputs if r.const and r.name not in made and is_placed(r)]
        self._kept = {ref.name for ref in (*self._constants, *left) if is_placed(ref)}
        self._inputs = inputs
        self._hw = hw
        self._arenas: Arenas | None = None

    def machine(self, root: Block) -> _Machine:
        if self._arenas is None:
            for each in self._roots:
                check_indexes(each, each.name, ())
            self._arenas = Arenas(self._roots, self._hw)
            for ref in self._constants:
                cells = self._arenas.cells(ref, {}, root.name)
                _fill(cells, np.asarray(self._inputs[ref.name]))
        return _Machine(root, self._arenas, self._kept)


def _fill(cells: Cells, values: Array) -> None:
    cells.write(box_coordinates([range(n) for n in cells.shape], ()), values, _LIVE, ZERO, cells.shape)


@dataclass(slots=True)
class _Plan:
    """What is known of a block whatever the point: `whole` if it is one step, `used` by it of its
    parent's buffers (and whether they are written), `number` of the unit if it spreads over several,
    `leaf` if there is a short way. It is `fresh` until it was executed."""

    block: Block
    whole: bool
    used: tuple[tuple[str, bool], ...]
    number: Affine | None
    written: tuple[Refinement, ...]
    leaf: Leaf | None = None
    fresh: bool = True


@dataclass(slots=True)
class _Opened:
    """Where an execution of a block writes to: `base` is the place of `buffer` in the parent's view."""

    buffer: Storage
    base: tuple[int, ...]


class _Machine:
    """Runs one root. The inputs in `kept` are in the memories already."""

    def __init__(self, root: Block, arenas: Arenas, kept: Set[str]) -> None:
        self._arenas = arenas
        self._kept = kept
        self._path = root.name
        self._plans: dict[int, _Plan] = {}
        self._weights: Mapping[int, int] = {}

    def buffer(self, ref: Refinement, given: Array | None) -> Storage:
        if not is_placed(ref):
            if given is None:
                return Cells.empty(ref.dtype, ref.shape)
            return Cells.given(given if ref.direction is Direction.IN else given.copy(), ref.dtype)
        cells = self._arenas.cells(ref, {}, self._path)
        if given is None:
            return cells
        if ref.direction is Direction.IN and ref.name in self._kept:
            cells.written = None
        else:
            _fill(cells, given)
        return cells

    def run(self, root: Block, outer: Batch, weights: Mapping[int, int]) -> None:
        self._weights = weights
        for _ in self._block(root, outer):
            pass

    def _block(self, block: Block, outer: Batch) -> Steps:
        """One execution of a block."""
        plan = self._plans.get(id(block))
        if plan is None:
            plan = self._plans[id(block)] = _plan(block)
        if plan.whole and not _operands_meet(plan, outer):
            self._whole(plan, outer)
            yield False
            return
        opened = {r.name: o for r in plan.written if (o := _open(r, block, outer)) is not None}
        points = _points(block, {name: low for name, (low, _) in outer.bounds.items()})
        if plan.number is None:
            yield from self._in_turn(plan, points, outer, opened)
        else:
            units: dict[int, list[Point]] = {}
            for point in points:
                units.setdefault(plan.number.evaluate(point), []).append(point)
            chains: list[Steps] = [
                self._in_turn(plan, iter(own), outer, opened) for _, own in sorted(units.items())
            ]
            while chains:
                alive = []
                for chain in chains:
                    if next(chain, _END) is not _END:
                        alive.append(chain)
                        yield False
                chains = alive
        for ref in plan.written:
            if ref.name in opened:
                _hand_on(ref, opened[ref.name], outer)

    def _whole(self, plan: _Plan, outer: Batch) -> None:
        """One execution of a block in one go. The first one checks its types."""
        if plan.leaf is not None and run_leaf(plan.leaf, outer):
            return
        execute(plan.block, outer, self._weights)
        if plan.fresh:
            plan.leaf, plan.fresh = plan_leaf(plan.block, outer), False

    def _in_turn(
        self, plan: _Plan, points: Iterator[Point], outer: Batch, opened: Mapping[str, _Opened]
    ) -> Steps:
        """The points of a block that one unit executes."""
        together, length = plan.block.inflight, max(1, len(plan.block.statements))
        for number in itertools.count():
            group = list(itertools.islice(points, together))
            if not group:
                return
            runs = [self._point(plan.block, p, slot, outer, opened) for slot, p in enumerate(group)]
            lag = number % length
            # The later point goes first: what it overwrites in the place of the earlier one is missed there.
            order = sorted((at + lag * slot, -slot) for slot in range(len(runs)) for at in range(length))
            for _, minus in order:
                for done in runs[-minus]:
                    yield False
                    if done:
                        break

    def _point(
        self, block: Block, point: Point, slot: int, outer: Batch, opened: Mapping[str, _Opened]
    ) -> Steps:
        batch = self._enter(block, point, slot, outer, opened)
        scalars = Names[Array](batch.path, "scalar")
        for number, statement in enumerate(block.statements):
            batch.statement = number
            if isinstance(statement, Block):
                for _ in self._block(statement, batch):
                    yield False
            else:
                run_statement(statement, scalars, batch)
            yield True

    def _enter(
        self, block: Block, point: Point, slot: int, outer: Batch, opened: Mapping[str, _Opened]
    ) -> Batch:
        """The batch of one point."""
        path = f"{outer.path}/{block.name}" if outer.path else block.name
        indexes, bounds = Names[Array](path, "index"), Bounds()
        views = Names[View](path, "buffer")
        for name, value in point.items():
            indexes[name], bounds[name] = np.asarray(value), (value, value)
        for ref in block.refinements:
            if ref.direction is Direction.NEW:
                cells = self._arenas.cells(ref, {**point, SLOT: slot}, path)
                start = origin(len(ref.shape))
                views[ref.name] = View(ref, path, None, start, ((0, 0),) * len(start), cells, start, ZERO)
            else:
                access = tuple(expr.evaluate(point) for expr in ref.access)
                views[ref.name] = _view(ref, path, access, outer.views[ref.source], opened.get(ref.name))
        return Batch(block, path, outer, (), indexes, bounds, _LIVE, views)


def _plan(block: Block) -> _Plan:
    used: dict[str, bool] = {}
    for name, direction in buffers_used(block):
        used[name] = used.get(name, False) or direction.writes
    number = block.location.bank if block.location is not None else None
    if number is not None and not any(block.ranges.get(name, 1) > 1 for name in number.names):
        number = None
    written = tuple(r for r in block.refinements if r.direction.writes)
    return _Plan(block, not _has_places(block), tuple(used.items()), number, written)


def _has_places(block: Block) -> bool:
    own = any(r.direction is Direction.NEW and is_placed(r) for r in block.refinements)
    return own or any(map(_has_places, block.children))


def _operands_meet(plan: _Plan, outer: Batch) -> bool:
    """Whether a buffer that the block writes shares bytes with another that it uses."""
    placed: list[tuple[Cells, bool]] = []
    for name, writes in plan.used:
        cells = _cells(outer.views[name].buffer)
        if cells.extent is not None:
            placed.append((cells, writes))
    for number, (one, writes) in enumerate(placed):
        for other, also in placed[:number]:
            if (writes or also) and one is not other and share_bytes(one, other):
                return True
    return False


def _cells(buffer: Storage) -> Cells:
    found = buffer.cells if isinstance(buffer, Folding) else buffer
    assert isinstance(found, Cells)
    return found


def _points(block: Block, outer: Mapping[str, int]) -> Iterator[Point]:
    """The points of one execution of a block, in the order of its indexes."""
    ranges = block.ranges
    passed = {i.name: i.passed.evaluate(outer) for i in block.indexes if i.passed is not None}
    for values in itertools.product(*map(range, ranges.values())):
        point = {**passed, **dict(zip(ranges, values, strict=True))}
        if all(constraint.expr.evaluate(point) >= 0 for constraint in block.constraints):
            yield point


def _open(ref: Refinement, block: Block, outer: Batch) -> _Opened | None:
    """Where one execution of `block` writes to: to the place itself, but for two cases.

    The topmost level of those that aggregate notes what it began. Below it, a level that assigns
    writes an element several times and hands on the last: it needs a buffer of its own.
    """
    source = outer.views[ref.source]
    aggregated = isinstance(source.buffer, Folding)
    if (ref.aggregation is Aggregation.ASSIGN) is not aggregated:
        return None
    base, shape = reach_box(ref, source.ref.shape, block, outer)
    buffer: Storage
    if aggregated:
        buffer = Cells.empty(ref.dtype, shape)
    else:
        place = f"{outer.path}/{block.name}"
        buffer = Folding.open(_cells(source.buffer), ref, added(source.origin, base), shape, place)
    return _Opened(buffer, tuple(map(int, base)))


def _hand_on(ref: Refinement, opened: _Opened, outer: Batch) -> None:
    """At the end of an execution: what was collected is one write for each element."""
    if not isinstance(opened.buffer, Cells):
        return
    values, written = opened.buffer.results()
    base = tuple(map(np.asarray, opened.base))
    source = outer.views[ref.source]
    at = added(source.origin, base, box_coordinates([range(n) for n in values.shape], ()))
    source.buffer.write(at, values, written, ZERO, values.shape)


def _view(ref: Refinement, path: str, access: Sequence[int], source: View, opened: _Opened | None) -> View:
    """A view of one point. The views around it lie in each other, so only the allocation counts."""
    if opened is not None:
        buffer, start = opened.buffer, [a - b for a, b in zip(access, opened.base, strict=True)]
    else:
        buffer, start = source.buffer, [int(o) + a for o, a in zip(source.origin, access, strict=True)]
    whole = source.outer or source
    total = list(access)
    if source.outer is not None:
        total = [low + a for (low, _), a in zip(source.spans, access, strict=True)]
    return View(
        ref, path, whole, tuple(map(_array, total)), tuple((n, n) for n in total), buffer,
        tuple(map(_array, start)), ZERO,
    )  # fmt: skip


def _array(value: int) -> Array:
    return np.asarray(value) if value else ZERO
