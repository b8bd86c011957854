"""One batch of points after the other: blocks and statements of stripe.interp.

The codes of the errors are listed in stripe.interp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from stripe import intrinsics, specials
from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import DType, from_numpy
from stripe.interp_checks import Names, fitting, least, reach
from stripe.interp_data import (
    ZERO,
    Array,
    Buffer,
    Coordinates,
    Grid,
    Storage,
    added,
    along,
    box_coordinates,
    boxes,
    origin,
    outside,
)
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Operand,
    Refinement,
    Scalar,
    Special,
    Store,
)

_MAX_INDEX = 1 << 48  # sums of as many of these as there are levels stay far inside 64 bits
_BATCH = 1 << 21  # elements that one batch keeps alive, about

Bounds = dict[str, tuple[int, int]]  # a closed interval around each index
Spans = Sequence[tuple[int, int]]  # one around each coordinate

# Blocks


@dataclass(slots=True)
class View:
    """A refinement at the points of a batch.

    `access` is where the view starts in the parent's view, `spans` an interval around each of its
    coordinates, `origin` where the view starts in `buffer`. For an `out` view that is the buffer which
    collects the writes of this execution, for an `in` view that of the parent. `point` is the number of
    the point, among those of the block that collects in `buffer`, on whose behalf it is used.
    """

    ref: Refinement
    path: str
    outer: View | None
    access: Coordinates
    spans: Spans
    buffer: Storage
    origin: Coordinates
    point: Array


@dataclass(slots=True)
class Batch:
    """A block at a grid of points: its own, and in front of them those of its parent's batch.

    `bounds` is an interval around each index; `live` says which points of the grid exist.
    """

    block: Block
    path: str
    outer: Batch | None
    grid: Grid
    indexes: Names[Array]
    bounds: Bounds
    live: Array
    views: Names[View]
    statement: int = 0


@dataclass(slots=True)
class Result:
    """What a block's execution writes to one view: `base` is where `buffer` lies in `outer`."""

    ref: Refinement
    outer: View
    base: Coordinates
    buffer: Buffer


def execute(block: Block, outer: Batch, weights: Mapping[int, int]) -> None:
    """Run `block` once for each live point of `outer`. `weights` are those of interp_checks.weigh."""
    ranges = block.ranges
    if 0 in ranges.values():
        return
    results = {r.name: _open_result(r, block, outer) for r in block.refinements if r.direction.writes}
    limit = _BATCH // (weights[id(block)] * math.prod(outer.grid))
    for box in boxes(tuple(ranges.values()), limit):
        batch = _enter(block, outer, dict(zip(ranges, box, strict=True)), results)
        if not batch.live.any():
            continue
        scalars = Names[Array](batch.path, "scalar")
        for number, statement in enumerate(block.statements):
            batch.statement = number
            if isinstance(statement, Block):
                execute(statement, batch, weights)
            else:
                run_statement(statement, scalars, batch)
    for result in results.values():
        _commit(result, block, outer)


def _enter(block: Block, outer: Batch, box: Mapping[str, range], results: Mapping[str, Result]) -> Batch:
    """The batch of the points of `block` in `box`, for each point of the batch around it."""
    path = f"{outer.path}/{block.name}" if outer.path else block.name
    grid = (*(len(values) for values in box.values() if len(values) > 1), *outer.grid)
    indexes, bounds = Names[Array](path, "index"), Bounds()
    batch = Batch(block, path, outer, grid, indexes, bounds, outer.live, Names(path, "buffer"))
    axis = 0
    for index in block.indexes:
        if index.passed is not None:
            indexes[index.name] = evaluate(index.passed, outer)
            bounds[index.name] = index.passed.bounds(outer.bounds)
            continue
        values = box[index.name]
        indexes[index.name] = along(values, axis, len(grid)) if len(values) > 1 else np.asarray(values[0])
        bounds[index.name] = (values[0], values[-1])
        axis += len(values) > 1
    for constraint in block.constraints:
        inside = evaluate(constraint.expr, batch) >= 0
        if not inside.all():
            batch.live = batch.live & inside
    for ref in block.refinements:
        batch.views[ref.name] = _view(ref, batch, outer, results)
    return batch


def _view(ref: Refinement, batch: Batch, outer: Batch, results: Mapping[str, Result]) -> View:
    if ref.direction is Direction.NEW:
        buffer = Buffer.empty(ref.dtype, fitting(ref.shape, batch.grid, ref.name), batch.grid, None)
        rank = len(ref.shape)
        return View(ref, batch.path, None, origin(rank), ((0, 0),) * rank, buffer, origin(rank), ZERO)
    source = outer.views[ref.source]
    access = tuple(evaluate(expr, batch) for expr in ref.access)
    spans = tuple(expr.bounds(batch.bounds) for expr in ref.access)
    if ref.direction is Direction.IN:
        start = added(source.origin, access)
        return View(ref, batch.path, source, access, spans, source.buffer, start, source.point)
    result = results[ref.name]
    start = tuple(a if b is ZERO else a - b for a, b in zip(access, result.base, strict=True))
    point = ZERO
    if ref.aggregation is Aggregation.ASSIGN:
        for name, extent in batch.block.ranges.items():
            if extent > 1:
                point = point * extent + batch.indexes[name]
    return View(ref, batch.path, source, access, spans, result.buffer, start, point)


def _open_result(ref: Refinement, block: Block, outer: Batch) -> Result:
    """A buffer for what one execution of `block` writes: a box around all that its points reach."""
    source = outer.views[ref.source]
    base, shape = reach_box(ref, source.ref.shape, block, outer)
    points = block.points
    extent = fitting(shape, outer.grid, ref.name)
    buffer = Buffer.empty(ref.dtype, extent, outer.grid, ref.aggregation, points)
    if ref.direction is Direction.INOUT:
        at = box_coordinates([range(n) for n in buffer.shape], outer.grid)
        values, old = source.buffer.read(added(source.origin, base, at), source.point)
        full = (*buffer.shape, *outer.grid)
        buffer.old = np.broadcast_to(old, full).reshape(-1)
        buffer.data = np.where(buffer.old, np.broadcast_to(values, full).reshape(-1), buffer.data)
    return Result(ref, source, base, buffer)


def reach_box(
    ref: Refinement, whole: Sequence[int], block: Block, outer: Batch
) -> tuple[Coordinates, tuple[int, ...]]:
    """Where in the parent's view, of shape `whole`, the box starts that all views of `block`'s points
    for `ref` lie in, and its shape; as large as `whole` at most."""
    base: list[Array] = []
    shape: list[int] = []
    for expr, size, most in zip(ref.access, ref.shape, whole, strict=True):
        span = reach(expr, size, block)
        base.append(evaluate(least(expr, block), outer) if span < most else ZERO)
        shape.append(min(span, most))
    return tuple(base), tuple(shape)


def _commit(result: Result, block: Block, outer: Batch) -> None:
    """Hand each element that the execution wrote to the parent's buffer, as one write."""
    buffer = result.buffer
    values, written = buffer.results()
    limit = _BATCH // math.prod(outer.grid)
    for box in boxes(buffer.shape, limit):
        part = tuple(slice(r.start, r.stop) for r in box)
        at = added(result.base, box_coordinates(box, outer.grid))
        if buffer.combines and buffer.old is not None:
            lost = written[part] & ~buffer.old.reshape(written.shape)[part]
            _check_read(result.outer, at, lost, outer, f"block {block.name} folds in the old value")
        _write(result.outer, at, values[part], written[part], written[part].shape, outer)


def evaluate(expr: Affine, batch: Batch) -> Array:
    """The value of an expression of the batch's indexes at its points."""
    if not expr.terms and -_MAX_INDEX < expr.const < _MAX_INDEX:
        return np.asarray(expr.const) if expr.const else ZERO
    total: Array | int = expr.const
    most = abs(expr.const)
    for name, coefficient in expr.terms:
        index, (low, high) = batch.indexes[name], batch.bounds[name]
        most += abs(coefficient) * max(abs(low), abs(high))
        if most >= _MAX_INDEX:
            break
        total = total + (index if coefficient == 1 else index * coefficient)
    if most >= _MAX_INDEX:
        fail("I013", batch, f"the expression {expr} can leave the range of 48 bits")
    return np.asarray(total)


# Statements


def _store(name: str, values: Array, batch: Batch) -> None:
    view = batch.views[name]
    if values.dtype != view.ref.dtype.numpy:
        fail(
            "I012", batch, f"a {values.dtype} value is stored to '{name}', which holds {view.ref.dtype.value}"
        )
    rank = len(view.ref.shape)
    _check_inside(view, origin(rank), ((0, 0),) * rank, batch, f"the store to '{name}'")
    _write(view, origin(rank), values, batch.live, batch.grid, batch)


def _write(view: View, at: Coordinates, values: Array, live: Array, grid: Grid, batch: Batch) -> None:
    """Write to the elements `at` of a view, for each live point of `grid`, which ends in the batch's."""
    if view.ref.direction is Direction.IN:
        fail("I025", batch, f"'{view.ref.name}' is written, but is an `in` view")
    clash = view.buffer.write(added(view.origin, at), values, live, view.point, grid)
    if clash is None:
        return
    element = _element(at, clash.position, grid)
    other = _unravel(clash.other, batch.block.ranges)
    message = f"two points write element {element} of '{view.ref.name}', which is assigned"
    fail("I022", batch, message, clash.position, (f"the other point of block {batch.block.name}: {other}",))


def _load(name: str, batch: Batch) -> Array:
    view = batch.views[name]
    rank = len(view.ref.shape)
    return _read(view, origin(rank), ((0, 0),) * rank, batch, f"the load of '{name}'")


def _read(view: View, at: Coordinates, spans: Spans, batch: Batch, what: str) -> Array:
    """The elements `at` of a view: what was given, or written before by the point that reads."""
    _check_inside(view, at, spans, batch, what)
    values, readable = view.buffer.read(added(view.origin, at), view.point)
    if not readable.all():
        _check_read(view, at, np.logical_not(readable) & batch.live, batch, what)
    return values


def _check_read(view: View, at: Coordinates, bad: Array, batch: Batch, what: str) -> None:
    """Fail where `bad`: there the element `at` of the view can't be read."""
    if not bad.any():
        return
    position, grid = _first(bad, at, batch)
    element = f"element {_element(at, position, grid)} of '{view.ref.name}'"
    if view.buffer.combines:
        operation = view.buffer.aggregation
        fail(
            "I023", batch, f"{what}: {element} can't be read where it is aggregated by {operation}", position
        )
    writer = int(np.broadcast_to(view.buffer.written_by(added(view.origin, at)), grid)[position])
    if writer >= 0:
        fail("I023", batch, f"{what}: {element} was written by another point", position)
    fail("I021", batch, f"{what}: {element} was not written before", position)


def _check_inside(view: View, at: Coordinates, spans: Spans, batch: Batch, what: str) -> None:
    """Fail where the element `at` lies outside of the view, of one around it, or of the allocation.

    `spans` are intervals around the coordinates: where these fit, no element needs to be looked at.
    """
    inner: list[Coordinates] = [at]
    while True:
        shape = view.ref.shape
        if not all(low >= 0 and high < size for (low, high), size in zip(spans, shape, strict=True)):
            at = added(*inner)
            bad = outside(at, shape) & batch.live
            if bad.any():
                position, grid = _first(bad, at, batch)
                place = f"of block {view.path}" if view.path else "of the signature"
                element = f"element {_element(at, position, grid)} is outside of '{view.ref.name}' {place}"
                message = f"{what}: {element}, of shape ({', '.join(map(str, shape))})"
                fail("I020", batch, message, position)
        if view.outer is None:
            return
        inner.append(view.access)
        spans = [(a + c, b + d) for (a, b), (c, d) in zip(spans, view.spans, strict=True)]
        view = view.outer


def run_statement(statement: Scalar | Store | Special, scalars: dict[str, Array], batch: Batch) -> None:
    """Run a statement that is no block at the points of a batch."""
    match statement:
        case Special():
            _special(statement, batch)
        case Store(buffer=name, value=value):
            _store(name, scalars[value], batch)
        case _:
            scalars[statement.result] = _scalar(statement, scalars, batch)


def _scalar(statement: Scalar, scalars: Mapping[str, Array], batch: Batch) -> Array:
    match statement:
        case Load(buffer=name, dtype=dtype):
            values = _load(name, batch)
            if values.dtype != dtype.numpy:
                held = batch.views[name].ref.dtype.value
                fail("I012", batch, f"'{name}' holds {held} and is loaded as {dtype.value}")
            return values
        case Constant(value=value, dtype=dtype):
            return constant(value, dtype, batch)
        case IndexValue(expr=expr, dtype=dtype):
            return intrinsics.cast(evaluate(expr, batch), dtype)
        case Cast(operand=operand, dtype=dtype):
            return intrinsics.cast(scalars[operand], dtype)
        case Intrinsic(op=op, operands=operands, dtype=dtype):
            values_of = tuple(scalars[o] for o in operands)
            if op not in intrinsics.INTRINSICS:
                fail(
                    "I011", batch, f"unknown intrinsic '{op}'", notes=did_you_mean(op, intrinsics.INTRINSICS)
                )
            types = tuple(t for v in values_of if (t := from_numpy(v.dtype)) is not None)
            if intrinsics.result_type(op, types) is not dtype:
                shown = ", ".join(t.value for t in types)
                fail("I012", batch, f"{op}({shown}) does not give {dtype.value}")
            return intrinsics.evaluate(op, values_of)


def constant(value: int | float | bool, dtype: DType, batch: Batch) -> Array:
    if dtype.is_float:
        try:
            return np.asarray(float(value)).astype(dtype.numpy)
        except OverflowError:
            pass
    elif dtype is DType.BOOL and value in (0, 1):
        return np.asarray(bool(value))
    elif dtype.is_integer and value == value // 1:
        limits = np.iinfo(dtype.numpy)
        if limits.min <= value <= limits.max:
            return np.asarray(int(value), dtype.numpy)
    fail("I012", batch, f"{value} is not a value of {dtype.value}")


def _special(statement: Special, batch: Batch) -> None:
    """Run a special at each live point, on whole views or the parts that it names."""
    info = specials.SPECIALS.get(statement.name)
    if info is None:
        known = did_you_mean(statement.name, specials.SPECIALS)
        fail("I011", batch, f"unknown special '{statement.name}'", notes=known)
    if tuple(o.direction for o in statement.operands) != info.operands:
        wanted = ", ".join(d.value for d in info.operands)
        fail("I012", batch, f"the operands of '{statement.name}' are: {wanted}")
    boxes_of = [_operand_box(operand, batch) for operand in statement.operands]
    read: list[Array] = []
    for operand, (view, at, spans, shape) in zip(statement.operands, boxes_of, strict=True):
        what = f"'{statement.name}' on '{operand.buffer}'"
        if operand.direction.reads:
            values = _read(view, at, spans, batch, what)
            read.append(np.broadcast_to(values, (*shape, *batch.grid)))
        else:
            _check_inside(view, at, spans, batch, what)
    # One operand of each special is written.
    target, (view, at, _, shape) = next(
        (o, b) for o, b in zip(statement.operands, boxes_of, strict=True) if o.direction.writes
    )
    result = np.zeros((*shape, *batch.grid), view.ref.dtype.numpy)
    live = np.broadcast_to(batch.live, batch.grid)
    for position in np.ndindex(batch.grid):
        if live[position]:
            operands = tuple(values[(..., *position)] for values in read)
            try:
                result[(..., *position)] = info.apply(
                    operands, shape, dict(statement.params), target.aggregation
                )
            except specials.SpecialError as error:
                fail("I012", batch, f"{statement.name}: {error}", position)
    _write(view, at, result, batch.live, result.shape, batch)


def _operand_box(operand: Operand, batch: Batch) -> tuple[View, Coordinates, Spans, tuple[int, ...]]:
    """The view of an operand, the elements of its part, intervals around them, and the shape of the part."""
    view = batch.views[operand.buffer]
    shape = view.ref.shape if operand.shape is None else operand.shape
    access = operand.access or (Affine(),) * len(view.ref.shape)
    start = tuple(evaluate(e, batch) for e in access)
    if not len(start) == len(shape) == len(view.ref.shape):
        fail("I012", batch, f"the part of '{operand.buffer}' has not the rank of the view")
    spans = [(e.bounds(batch.bounds), n) for e, n in zip(access, shape, strict=True)]
    at = added(start, box_coordinates([range(n) for n in shape], batch.grid))
    return view, at, [(low, high + n - 1) for (low, high), n in spans], shape


# Messages


def _first(bad: Array, at: Coordinates, batch: Batch) -> tuple[tuple[int, ...], Grid]:
    """The position of the first true element, and the grid that it is in, which ends in the batch's."""
    grid = np.broadcast_shapes(bad.shape, batch.grid, *(a.shape for a in at))
    return tuple(int(i) for i in np.argwhere(np.broadcast_to(bad, grid))[0]), grid


def _element(at: Coordinates, position: tuple[int, ...], grid: Grid) -> str:
    return f"[{', '.join(str(np.broadcast_to(a, grid)[position]) for a in at)}]"


def _unravel(number: int, ranges: Mapping[str, int]) -> str:
    values: list[str] = []
    for name, extent in reversed(tuple(ranges.items())):
        number, value = divmod(number, extent)
        values.append(f"{name}={value}")
    return ", ".join(reversed(values))


def _point(batch: Batch, position: tuple[int, ...]) -> str:
    """The indexes of the nest at a position of the grid, outermost block first."""
    here = position[len(position) - len(batch.grid) :]
    values = [f"{n}={np.broadcast_to(batch.indexes[n], batch.grid)[here]}" for n in batch.block.ranges]
    around = _point(batch.outer, here) if batch.outer else ""
    own = f"{batch.block.name}[{', '.join(values)}]" if values else ""
    return "/".join(part for part in (around, own) if part)


def fail(
    code: str,
    batch: Batch,
    message: str,
    position: tuple[int, ...] | None = None,
    notes: Sequence[str] = (),
) -> NoReturn:
    """Raise a CompileError at the current statement of `batch`, at a position of its grid."""
    place: tuple[str, ...] = ()
    if position is not None and (point := _point(batch, position)):
        place = (f"at the point {point}",)
    span = None
    if batch.block.statements:
        span = batch.block.statements[batch.statement].span
        message = f"{batch.path}, statement {batch.statement}: {message}"
    raise CompileError(Diagnostic(code, message, span, (*place, *notes)))
