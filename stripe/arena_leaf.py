"""One execution of a block without blocks, where it is the same over and over: the short way of stripe.arena.

For most tiles every constraint holds at all points and every view lies inside its buffer. Then only the
place where each view starts differs from tile to tile, and what the points add to it is worked
out once. All else, such as a ragged tile, a load of what was not written, and the first
execution of each block (which checks its types), is for stripe.interp_run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stripe import intrinsics
from stripe.affine import Affine, box_of
from stripe.arena_cells import Cells, Folding
from stripe.dtypes import DType
from stripe.interp_data import COMBINE, ZERO, Array, Grid, accumulator, along, dot, row_major
from stripe.interp_run import Batch, View, constant
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Refinement,
    Special,
    Store,
)


@dataclass(frozen=True, slots=True)
class _Extent:
    """An expression over the box of the points: `rest` holds the passed indexes and the constant, `low` and
    `high` what the points add to it at least and at most, `steps` the same for each point."""

    rest: Affine
    low: int
    high: int
    steps: Array


@dataclass(slots=True)
class _Use:
    """A view of the block: the elements of its points, from the least coordinates on."""

    ref: Refinement
    access: tuple[_Extent, ...]
    size: tuple[int, ...]
    index: dict[tuple[int, ...], Array] = field(default_factory=dict)  # by the strides of the buffer

    def offsets(self, strides: tuple[int, ...]) -> Array:
        found = self.index.get(strides)
        if found is None:
            found = self.index[strides] = dot(tuple(e.steps - e.low for e in self.access), strides)
        return found


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a view starts in this execution: `index` in the data of `cells`, `number` in row-major order,
    `inside` in the box of `folding`."""

    cells: Cells
    folding: Folding | None
    index: int
    number: int
    inside: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """The statements in an order that means the same: `loads`, `scalars`, `stores`."""

    block: Block
    grid: Grid
    passed: tuple[tuple[str, Affine], ...]
    constraints: tuple[_Extent, ...]
    uses: tuple[_Use, ...]
    loads: tuple[Load, ...]
    scalars: tuple[IndexValue | Intrinsic | Cast, ...]
    stores: tuple[Store, ...]
    values: Mapping[str, _Extent]  # of the index statements, by result
    constants: Mapping[str, Array]


def plan_leaf(block: Block, outer: Batch) -> Leaf | None:
    """What there is to know of a block ahead of its executions; None if it is none of those described."""
    if not _is_plain(block):
        return None
    ranges = block.ranges
    grid = tuple(n for n in ranges.values() if n > 1)
    steps: dict[str, Array] = {}
    for name, size in ranges.items():
        used = [s for s in steps.values() if s is not ZERO]
        steps[name] = along(range(size), len(used), len(grid)) if size > 1 else ZERO

    def extent(expr: Affine) -> _Extent:
        own = expr.only(frozenset(ranges))
        low, high = own.bounds(box_of(ranges))
        total = dot(tuple(steps[n] for n in own.names), tuple(c for _, c in own.terms))
        return _Extent(expr - own, low, high, total)

    uses: dict[str, _Use] = {}
    for ref in block.refinements:
        access = tuple(map(extent, ref.access))
        uses[ref.name] = _Use(ref, access, tuple(e.high - e.low + 1 for e in access))
    stores = tuple(s for s in block.statements if isinstance(s, Store))
    if not all(_hits_differ(uses[s.buffer], grid) for s in stores):
        return None
    return Leaf(
        block,
        grid,
        tuple((i.name, i.passed) for i in block.indexes if i.passed is not None),
        tuple(extent(c.expr) for c in block.constraints),
        tuple(uses.values()),
        tuple(s for s in block.statements if isinstance(s, Load)),
        tuple(s for s in block.statements if isinstance(s, IndexValue | Intrinsic | Cast)),
        stores,
        {s.result: extent(s.expr) for s in block.statements if isinstance(s, IndexValue)},
        {s.result: constant(s.value, s.dtype, outer) for s in block.statements if isinstance(s, Constant)},
    )


def _is_plain(block: Block) -> bool:
    """Loads, then stores, each of another buffer, and each view either loaded or stored once."""
    if 0 in block.ranges.values() or any(r.direction is Direction.NEW for r in block.refinements):
        return False
    if any(isinstance(s, Block | Special) for s in block.statements):
        return False
    kinds = [type(s) for s in block.statements if isinstance(s, Load | Store)]
    loaded = {s.buffer for s in block.statements if isinstance(s, Load)}
    stored = [s.buffer for s in block.statements if isinstance(s, Store)]
    sources = {block.refinement(name).source for name in stored}
    in_order = Store not in kinds or Load not in kinds[kinds.index(Store) :]
    return in_order and len(sources) == len(stored) and not loaded & set(stored)


def _hits_differ(use: _Use, grid: Grid) -> bool:
    """Whether the points store to different elements, but for axes that the place does not depend on."""
    places = use.offsets(row_major(use.size))
    if (
        use.ref.aggregation is Aggregation.ASSIGN
        and np.broadcast_shapes(places.shape, (1,) * len(grid)) != grid
    ):
        return False
    return np.unique(places).size == places.size


def run_leaf(leaf: Leaf, outer: Batch) -> bool:
    """Run the block for the one point of `outer`, if this execution is an easy one."""
    passed: dict[str, int] = {}
    if leaf.passed:
        around = {name: low for name, (low, _) in outer.bounds.items()}
        passed = {name: expr.evaluate(around) for name, expr in leaf.passed}
    for bound in leaf.constraints:
        if bound.rest.evaluate(passed) + bound.low < 0:
            return False
    spots: dict[str, tuple[_Use, _Spot]] = {}
    for use in leaf.uses:
        spot = _spot(use, outer.views[use.ref.source], passed)
        if spot is None:
            return False
        spots[use.ref.name] = (use, spot)
    scalars: dict[str, Array] = dict(leaf.constants)
    for load in leaf.loads:
        loaded = _load(*spots[load.buffer])
        if loaded is None:
            return False
        scalars[load.result] = loaded
    for statement in leaf.scalars:
        match statement:
            case Intrinsic(result=result, op=op, operands=operands):
                function = intrinsics.INTRINSICS[op].numpy
                scalars[result] = np.asarray(function(*(scalars[o] for o in operands)))
            case Cast(result=result, operand=operand, dtype=dtype):
                scalars[result] = intrinsics.cast(scalars[operand], dtype)
            case IndexValue(result=result, dtype=dtype):
                extent = leaf.values[result]
                values = extent.steps + extent.rest.evaluate(passed)
                scalars[result] = intrinsics.cast(np.asarray(values), dtype)
    for store in leaf.stores:
        _store(*spots[store.buffer], scalars[store.value], leaf.grid)
    return True


def _spot(use: _Use, source: View, passed: Mapping[str, int]) -> _Spot | None:
    """Where a view starts; None if part of it is outside of those around it, or in another bank."""
    allocation = source.outer
    buffer, start = source.buffer, []
    for axis, extent in enumerate(use.access):
        low = extent.rest.const + extent.low
        if extent.rest.terms:
            low = extent.rest.evaluate(passed) + extent.low
        high = low + extent.high - extent.low
        if low < 0 or high >= source.ref.shape[axis]:
            return None
        if allocation is not None:
            around = source.spans[axis][0]
            if low + around < 0 or high + around >= allocation.ref.shape[axis]:
                return None
        start.append(int(source.origin[axis]) + low)
    inside, folding = 0, None
    if isinstance(buffer, Folding):
        folding, inside = buffer, _flat(start, row_major(buffer.shape))
        start = [int(b) + a for b, a in zip(buffer.base, start, strict=True)]
        buffer = buffer.cells
    assert isinstance(buffer, Cells)
    if use.ref.direction is Direction.INOUT and (folding or _unwritten(buffer)):
        return None
    index = buffer.start(start, use.size)
    if index is None:
        return None
    number = 0 if buffer.written is None else _flat(start, row_major(buffer.shape))
    return _Spot(buffer, folding, index, number, inside)


def _flat(at: Sequence[int], strides: Sequence[int]) -> int:
    total = 0
    for where, stride in zip(at, strides, strict=True):
        total += where * stride
    return total


def _unwritten(cells: Cells) -> bool:
    return cells.written is not None and not cells.written.all()


def _load(use: _Use, spot: _Spot) -> Array | None:
    """The elements, or None if one of them was not written."""
    cells = spot.cells
    if cells.written is not None:
        written = cells.written.take(use.offsets(row_major(cells.shape)) + spot.number)
        if not written.all():
            return None
    values = np.asarray(cells.data.take(use.offsets(cells.strides) + spot.index))
    return values != 0 if cells.dtype is DType.BOOL else values


def _store(use: _Use, spot: _Spot, values: Array, grid: Grid) -> None:
    cells, op = spot.cells, use.ref.aggregation
    places = use.offsets(cells.strides)
    index = places.reshape(-1) + spot.index
    shape = (1,) * (len(grid) - places.ndim) + places.shape
    combine = None if op is None else COMBINE.get(op)
    if combine is not None and op is not None:
        wide = accumulator(op, cells.dtype)
        axes = tuple(axis for axis, size in enumerate(grid) if size > 1 and shape[axis] == 1)
        if axes:
            terms = values if values.shape == grid else np.broadcast_to(values, grid)
            terms = terms.astype(wide, copy=False)
            start = intrinsics.neutral(op, cells.dtype)
            values = combine.reduce(terms, axis=axes, dtype=wide, keepdims=True, initial=start)
        if use.ref.direction is Direction.INOUT:
            old = cells.data[index].reshape(shape)
            old = old != 0 if cells.dtype is DType.BOOL else old.astype(wide, copy=False)
            values = combine(old, values, dtype=wide)
    value = values if values.shape == shape else np.broadcast_to(values, shape)
    value = value.reshape(-1).astype(cells.dtype.numpy, copy=False)
    number = index
    if cells.written is not None and (cells.spread is not None or cells.strides != row_major(cells.shape)):
        number = use.offsets(row_major(cells.shape)).reshape(-1) + spot.number
    if spot.folding is None:
        cells.put(index, number, value)
    else:
        inside = use.offsets(row_major(spot.folding.shape)).reshape(-1) + spot.inside
        spot.folding.fold(index, number, inside, value)
