"""The meaning of a Stripe program, executed with NumPy: the oracle that all else is checked against.

`interpret` runs any program at any stage, typed and complete, whether it was verified or not. An
access outside of a view, a read of what was not written, is aggregated, or was written by another
point, and two points that assign one element are errors when they happen. Tags, locations,
strides and `inflight` have no meaning. docs/architecture.md, "The meaning of a program", says in
words what `_execute`, `_enter`, `_load`, `_store` and `_commit` do.

A block runs statement by statement on a batch of points, its own and those around it, as
stripe.interp_data explains. Each execution of a block collects the writes to each `out` view
in a buffer of its own and at its end hands one result for each written element to its parent.

Inputs
  I001  an input is missing, or there is none of that name
  I002  an input has another element type or shape than the program says
Programs that can't be run
  I010  blocks nested too deeply, a tensor of too many dimensions, too many points, too much memory
  I011  an unknown buffer, scalar, index, intrinsic or special
  I012  ranks or element types that don't fit, or a constant that its type can't hold
  I013  an affine expression that leaves the range of 48 bits
Programs that go wrong when run
  I020  an access outside a view or its allocation
  I021  a load of an element that was not written
  I022  two points write one element of an `assign` view
  I023  a load of what this block aggregates into, or of what another point wrote
  I024  an element of an output that was not written
  I025  a write through a view that is not `out` or `inout`, or a read through one that is `out`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from stripe import intrinsics, specials
from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import DType, from_numpy
from stripe.interp_checks import Names, check_depth, check_inputs, fitting, magnitude, reach, weigh
from stripe.interp_data import Array, Buffer, Coordinates, Grid, along, box_coordinates, boxes, outside
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
    Program,
    Refinement,
    Special,
    Store,
)

_MAX_INDEX = 1 << 48  # sums of as many of these as there are levels stay far inside 64 bits
_BATCH = 1 << 21  # elements that one batch keeps alive, about


def interpret(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run `program` and give its outputs by name, in the order of the signature.

    `inputs` holds an array for each `in` and `inout` of the root that the load-time program
    does not make; their layout is free and they are not changed. Outputs are fresh and
    row-major. Raises CompileError with the codes above.
    """
    try:
        with np.errstate(all="ignore"):
            return _run(program, inputs)
    except MemoryError as error:
        raise CompileError(
            Diagnostic("I010", f"not enough memory to interpret the program: {error}")
        ) from None


def _run(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    blocks = [b for b in (program.load, program.root) if b is not None]
    for block in blocks:
        check_depth(block)
    made = {r.name for r in program.load.refinements if r.direction.writes} if program.load else set[str]()
    check_inputs(
        [r for b in blocks for r in b.refinements if r.direction.reads and r.name not in made], inputs
    )
    values = dict(inputs)
    for block in blocks:
        results = _run_root(block, values)
        values |= results
    return results


def _run_root(root: Block, values: Mapping[str, Array]) -> dict[str, Array]:
    """Run a root block as the child of one point that holds the whole buffers."""
    named = (r if r.direction is Direction.NEW else replace(r, source=r.name) for r in root.refinements)
    root = replace(root, refinements=tuple(named))
    views = Names[_View]("", "buffer")
    for ref in root.refinements:
        if ref.direction is not Direction.NEW:
            origin = tuple(np.asarray(0) for _ in ref.shape)
            views[ref.name] = _View(ref, "", None, origin, _root_buffer(ref, values), origin, np.asarray(0))
    weights: dict[int, int] = {}
    weigh(root, root.name, {name: view.ref for name, view in views.items()}, weights)
    _execute(root, _Batch(Block(""), "", None, (), Names("", "index"), {}, np.asarray(True), views), weights)
    results: dict[str, Array] = {}
    for name, view in views.items():
        if view.ref.direction.writes:
            results[name], written = view.buffer.results()
            if view.buffer.old is None and not written.all():
                at = ", ".join(map(str, np.argwhere(~written)[0]))
                message = f"output '{name}' was not written whole: element [{at}] has no value"
                count = f"{np.count_nonzero(~written)} of {written.size} elements are missing"
                raise CompileError(Diagnostic("I024", message, view.ref.span, (count,)))
    return results


def _root_buffer(ref: Refinement, values: Mapping[str, Array]) -> Buffer:
    if ref.direction is Direction.IN:
        return Buffer.given(np.asarray(values[ref.name]), ref.dtype)
    buffer = Buffer.empty(ref.dtype, fitting(ref.shape, (), ref.name), (), None)
    if ref.direction is Direction.INOUT:
        buffer.data[:] = np.asarray(values[ref.name]).reshape(-1)
        buffer.old = np.ones(buffer.data.shape, np.bool_)
    return buffer


# Blocks


@dataclass(slots=True)
class _View:
    """A refinement at the points of a batch.

    `access` is where the view starts in the parent's view, `origin` where it starts in `buffer`.
    For an `out` view that is the buffer which collects the writes of this execution, for an
    `in` view that of the parent. `point` is the number of the point, among those of the block
    that collects in `buffer`, on whose behalf it is used.
    """

    ref: Refinement
    path: str
    outer: _View | None
    access: Coordinates
    buffer: Buffer
    origin: Coordinates
    point: Array


@dataclass(slots=True)
class _Batch:
    """A block at a grid of points: its own, and in front of them those of its parent's batch.

    `limits` bounds the magnitude of each index; `live` says which points of the grid exist.
    """

    block: Block
    path: str
    outer: _Batch | None
    grid: Grid
    indexes: Names[Array]
    limits: Mapping[str, int]
    live: Array
    views: Names[_View]
    statement: int = 0


@dataclass(slots=True)
class _Result:
    """What a block's execution writes to one view: `base` is where `buffer` lies in `outer`."""

    ref: Refinement
    outer: _View
    base: Coordinates
    buffer: Buffer


def _execute(block: Block, outer: _Batch, weights: Mapping[int, int]) -> None:
    """Run `block` once for each live point of `outer`."""
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
            match statement:
                case Block():
                    _execute(statement, batch, weights)
                case Special():
                    _special(statement, batch)
                case Store(buffer=name, value=value):
                    _store(name, scalars[value], batch)
                case _:
                    scalars[statement.result] = _scalar(statement, scalars, batch)
    for result in results.values():
        _commit(result, block, outer)


def _enter(block: Block, outer: _Batch, box: Mapping[str, range], results: Mapping[str, _Result]) -> _Batch:
    """The batch of the points of `block` in `box`, for each point of the batch around it."""
    path = f"{outer.path}/{block.name}" if outer.path else block.name
    grid = (*(len(values) for values in box.values() if len(values) > 1), *outer.grid)
    indexes, limits = Names[Array](path, "index"), dict[str, int]()
    batch = _Batch(block, path, outer, grid, indexes, limits, outer.live, Names(path, "buffer"))
    axis = 0
    for index in block.indexes:
        if index.passed is not None:
            indexes[index.name] = _evaluate(index.passed, outer)
            limits[index.name] = magnitude(index.passed, outer.limits)
            continue
        values = box[index.name]
        indexes[index.name] = along(values, axis, len(grid)) if len(values) > 1 else np.asarray(values[0])
        limits[index.name] = index.range
        axis += len(values) > 1
    for constraint in block.constraints:
        batch.live = batch.live & (_evaluate(constraint.expr, batch) >= 0)
    for ref in block.refinements:
        batch.views[ref.name] = _view(ref, batch, outer, results)
    return batch


def _view(ref: Refinement, batch: _Batch, outer: _Batch, results: Mapping[str, _Result]) -> _View:
    zero = np.asarray(0)
    if ref.direction is Direction.NEW:
        buffer = Buffer.empty(ref.dtype, fitting(ref.shape, batch.grid, ref.name), batch.grid, None)
        origin = tuple(zero for _ in ref.shape)
        return _View(ref, batch.path, None, origin, buffer, origin, zero)
    source = outer.views[ref.source]
    access = tuple(_evaluate(expr, batch) for expr in ref.access)
    if ref.direction is Direction.IN:
        origin = tuple(o + a for o, a in zip(source.origin, access, strict=True))
        return _View(ref, batch.path, source, access, source.buffer, origin, source.point)
    result = results[ref.name]
    origin = tuple(a - b for a, b in zip(access, result.base, strict=True))
    point = zero
    if ref.aggregation is Aggregation.ASSIGN:
        for name, extent in batch.block.ranges.items():
            point = point * extent + batch.indexes[name]
    return _View(ref, batch.path, source, access, result.buffer, origin, point)


def _open_result(ref: Refinement, block: Block, outer: _Batch) -> _Result:
    """A buffer for what one execution of `block` writes: a box around all that its points reach."""
    source = outer.views[ref.source]
    base: list[Array] = []
    shape: list[int] = []
    for expr, size, whole in zip(ref.access, ref.shape, source.ref.shape, strict=True):
        span = reach(expr, size, block)
        least = _least(expr, block) if span < whole else Affine()
        base.append(_evaluate(least, outer))
        shape.append(min(span, whole))
    points = math.prod(block.ranges.values())
    extent = fitting(tuple(shape), outer.grid, ref.name)
    buffer = Buffer.empty(ref.dtype, extent, outer.grid, ref.aggregation, points)
    if ref.direction is Direction.INOUT:
        at = box_coordinates([range(n) for n in buffer.shape], outer.grid)
        where = tuple(o + b + c for o, b, c in zip(source.origin, base, at, strict=True))
        values, old = source.buffer.read(where, source.point)
        full = (*buffer.shape, *outer.grid)
        buffer.old = np.broadcast_to(old, full).reshape(-1)
        buffer.data = np.where(buffer.old, np.broadcast_to(values, full).reshape(-1), buffer.data)
    return _Result(ref, source, tuple(base), buffer)


def _commit(result: _Result, block: Block, outer: _Batch) -> None:
    """Hand each element that the execution wrote to the parent's buffer, as one write."""
    buffer = result.buffer
    values, written = buffer.results()
    limit = _BATCH // math.prod(outer.grid)
    for box in boxes(buffer.shape, limit):
        part = tuple(slice(r.start, r.stop) for r in box)
        at = tuple(b + c for b, c in zip(result.base, box_coordinates(box, outer.grid), strict=True))
        if buffer.combines and buffer.old is not None:
            lost = written[part] & ~buffer.old.reshape(written.shape)[part]
            _check_read(result.outer, at, lost, outer, f"block {block.name} folds in the old value")
        _write(result.outer, at, values[part], written[part], written[part].shape, outer)


def _least(expr: Affine, block: Block) -> Affine:
    """The least value of `expr` over the ranges of `block`, over the indexes of its parent."""
    return expr.substitute(
        {
            i.name: i.passed or Affine(i.range - 1 if expr.coefficient(i.name) < 0 else 0)
            for i in block.indexes
        }
    )


def _evaluate(expr: Affine, batch: _Batch) -> Array:
    if magnitude(expr, batch.limits) >= _MAX_INDEX:
        _fail("I013", batch, f"the expression {expr} can leave the range of 48 bits")
    total = np.asarray(expr.const)
    for name, coefficient in expr.terms:
        total = total + batch.indexes[name] * coefficient
    return np.asarray(total)


# Statements


def _store(name: str, values: Array, batch: _Batch) -> None:
    view = batch.views[name]
    if values.dtype != view.ref.dtype.numpy:
        _fail(
            "I012", batch, f"a {values.dtype} value is stored to '{name}', which holds {view.ref.dtype.value}"
        )
    at = tuple(np.asarray(0) for _ in view.ref.shape)
    _check_inside(view, at, batch, f"the store to '{name}'")
    _write(view, at, values, batch.live, batch.grid, batch)


def _write(view: _View, at: Coordinates, values: Array, live: Array, grid: Grid, batch: _Batch) -> None:
    """Write to the elements `at` of a view, for each live point of `grid`, which ends in the batch's."""
    if view.ref.direction is Direction.IN:
        _fail("I025", batch, f"'{view.ref.name}' is written, but is an `in` view")
    where = tuple(o + a for o, a in zip(view.origin, at, strict=True))
    clash = view.buffer.write(where, values, live, view.point, grid)
    if clash is None:
        return
    element = _element(at, clash.position, grid)
    other = _unravel(clash.other, batch.block.ranges)
    message = f"two points write element {element} of '{view.ref.name}', which is assigned"
    _fail("I022", batch, message, clash.position, (f"the other point of block {batch.block.name}: {other}",))


def _load(name: str, batch: _Batch) -> Array:
    view = batch.views[name]
    at = tuple(np.asarray(0) for _ in view.ref.shape)
    return _read(view, at, batch, f"the load of '{name}'")


def _read(view: _View, at: Coordinates, batch: _Batch, what: str) -> Array:
    """The elements `at` of a view: what was given, or written before by the point that reads."""
    _check_inside(view, at, batch, what)
    where = tuple(o + a for o, a in zip(view.origin, at, strict=True))
    values, readable = view.buffer.read(where, view.point)
    if not readable.all():
        _check_read(view, at, np.logical_not(readable) & batch.live, batch, what)
    return values


def _check_read(view: _View, at: Coordinates, bad: Array, batch: _Batch, what: str) -> None:
    """Fail where `bad`: there the element `at` of the view can't be read."""
    if not bad.any():
        return
    position, grid = _first(bad, at, batch)
    element = f"element {_element(at, position, grid)} of '{view.ref.name}'"
    if view.buffer.combines:
        operation = view.buffer.aggregation
        _fail(
            "I023", batch, f"{what}: {element} can't be read where it is aggregated by {operation}", position
        )
    where = tuple(o + a for o, a in zip(view.origin, at, strict=True))
    writer = int(np.broadcast_to(view.buffer.written_by(where), grid)[position])
    if writer >= 0:
        _fail("I023", batch, f"{what}: {element} was written by another point", position)
    _fail("I021", batch, f"{what}: {element} was not written before", position)


def _check_inside(view: _View, at: Coordinates, batch: _Batch, what: str) -> None:
    """Fail where the element `at` lies outside of the view, of one around it, or of the allocation."""
    while True:
        bad = outside(at, view.ref.shape) & batch.live
        if bad.any():
            position, grid = _first(bad, at, batch)
            place = f"of block {view.path}" if view.path else "of the signature"
            shape = ", ".join(map(str, view.ref.shape))
            element = _element(at, position, grid)
            message = f"{what}: element {element} is outside of '{view.ref.name}' {place}, of shape ({shape})"
            _fail("I020", batch, message, position)
        if view.outer is None:
            return
        at = tuple(a + b for a, b in zip(view.access, at, strict=True))
        view = view.outer


def _scalar(
    statement: Load | Constant | IndexValue | Intrinsic | Cast, scalars: Mapping[str, Array], batch: _Batch
) -> Array:
    match statement:
        case Load(buffer=name, dtype=dtype):
            values = _load(name, batch)
            if values.dtype != dtype.numpy:
                held = batch.views[name].ref.dtype.value
                _fail("I012", batch, f"'{name}' holds {held} and is loaded as {dtype.value}")
            return values
        case Constant(value=value, dtype=dtype):
            return _constant(value, dtype, batch)
        case IndexValue(expr=expr, dtype=dtype):
            return intrinsics.cast(_evaluate(expr, batch), dtype)
        case Cast(operand=operand, dtype=dtype):
            return intrinsics.cast(scalars[operand], dtype)
        case Intrinsic(op=op, operands=operands, dtype=dtype):
            values_of = tuple(scalars[o] for o in operands)
            if op not in intrinsics.INTRINSICS:
                _fail(
                    "I011", batch, f"unknown intrinsic '{op}'", notes=did_you_mean(op, intrinsics.INTRINSICS)
                )
            types = tuple(t for v in values_of if (t := from_numpy(v.dtype)) is not None)
            if intrinsics.result_type(op, types) is not dtype:
                shown = ", ".join(t.value for t in types)
                _fail("I012", batch, f"{op}({shown}) does not give {dtype.value}")
            return intrinsics.evaluate(op, values_of)


def _constant(value: int | float | bool, dtype: DType, batch: _Batch) -> Array:
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
    _fail("I012", batch, f"{value} is not a value of {dtype.value}")


def _special(statement: Special, batch: _Batch) -> None:
    """Run a special at each live point, on whole views or the parts that it names."""
    info = specials.SPECIALS.get(statement.name)
    if info is None:
        known = did_you_mean(statement.name, specials.SPECIALS)
        _fail("I011", batch, f"unknown special '{statement.name}'", notes=known)
    if tuple(o.direction for o in statement.operands) != info.operands:
        wanted = ", ".join(d.value for d in info.operands)
        _fail("I012", batch, f"the operands of '{statement.name}' are: {wanted}")
    boxes_of = [_operand_box(operand, batch) for operand in statement.operands]
    read: list[Array] = []
    for operand, (view, at, shape) in zip(statement.operands, boxes_of, strict=True):
        what = f"'{statement.name}' on '{operand.buffer}'"
        if operand.direction.reads:
            values = _read(view, at, batch, what)
            read.append(np.broadcast_to(values, (*shape, *batch.grid)))
        else:
            _check_inside(view, at, batch, what)
    # One operand of each special is written.
    target, (view, at, shape) = next(
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
                _fail("I012", batch, f"{statement.name}: {error}", position)
    _write(view, at, result, batch.live, result.shape, batch)


def _operand_box(operand: Operand, batch: _Batch) -> tuple[_View, Coordinates, tuple[int, ...]]:
    view = batch.views[operand.buffer]
    shape = view.ref.shape if operand.shape is None else operand.shape
    start = tuple(_evaluate(e, batch) for e in operand.access or (Affine(),) * len(view.ref.shape))
    if not len(start) == len(shape) == len(view.ref.shape):
        _fail("I012", batch, f"the part of '{operand.buffer}' has not the rank of the view")
    return (
        view,
        tuple(
            s + c for s, c in zip(start, box_coordinates([range(n) for n in shape], batch.grid), strict=True)
        ),
        shape,
    )


# Messages


def _first(bad: Array, at: Coordinates, batch: _Batch) -> tuple[tuple[int, ...], Grid]:
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


def _point(batch: _Batch, position: tuple[int, ...]) -> str:
    """The indexes of the nest at a position of the grid, outermost block first."""
    here = position[len(position) - len(batch.grid) :]
    values = [f"{n}={np.broadcast_to(batch.indexes[n], batch.grid)[here]}" for n in batch.block.ranges]
    around = _point(batch.outer, here) if batch.outer else ""
    own = f"{batch.block.name}[{', '.join(values)}]" if values else ""
    return "/".join(part for part in (around, own) if part)


def _fail(
    code: str,
    batch: _Batch,
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
