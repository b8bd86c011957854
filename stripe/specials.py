"""The specials: operations on whole views that affine accesses can't express.

Each declares its operands (direction of each) so that the verifier knows what is read and
written, and a NumPy meaning that the interpreter runs and the back ends must match.

    gather   in data, in index, out result {axis}: result[..., i..., ...] = data[..., index[i...], ...]
             An index outside the axis is clamped to it.
    scatter  in updates, in index, inout base {axis}: for each i, base[..., index[i...], ...] is
             aggregated with updates[..., i..., ...]. An update outside the axis is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stripe.ir import Aggregation, Direction

Array = np.ndarray[Any, Any]
Params = Mapping[str, int | float | str]


class SpecialError(Exception):
    """Operands or parameters that the special has no meaning for."""


@dataclass(frozen=True, slots=True)
class SpecialInfo:
    """One special. `apply` takes the operands that are read, in order, the shape of the one that
    is written, the parameters and the written operand's aggregation, and gives what is written.
    It raises SpecialError where the shapes or parameters don't fit."""

    name: str
    operands: tuple[Direction, ...]
    params: tuple[str, ...]
    meaning: str
    apply: Callable[[Sequence[Array], tuple[int, ...], Params, Aggregation | None], Array]


def _positions(index: Array) -> Array:
    """Indexes as i64; those of u64 that are too large stay at its limit."""
    if index.dtype == np.uint64:
        index = np.minimum(index, np.uint64(np.iinfo(np.int64).max))
    return index.astype(np.int64)


def gather(data: Array, index: Array, axis: int) -> Array:
    """Values of `data` at `index` along `axis`; an index outside is clamped.

    shapes: data (..., n, ...), index (i...), result (..., i..., ...). An axis of size 0 has no
    value to give: SpecialError, unless there is no index either.
    """
    if data.shape[axis] == 0 and index.size:
        raise SpecialError("can't gather from an axis of size 0")
    return np.take(data, np.clip(_positions(index), 0, max(data.shape[axis] - 1, 0)), axis=axis)


_AT: dict[Aggregation, Callable[..., None]] = {
    Aggregation.ADD: np.add.at,
    Aggregation.MUL: np.multiply.at,
    Aggregation.MAX: np.maximum.at,
    Aggregation.MIN: np.minimum.at,
}


def scatter(updates: Array, index: Array, base: Array, axis: int, aggregation: Aggregation) -> Array:
    """`base` with each update aggregated at its index along `axis`; those outside are dropped.

    shapes: base (..., n, ...), index (i...), updates (..., i..., ...). With `assign` the last
    update of an element, in row-major order of the index array, stays. f16 and bf16 are
    aggregated in f32 and rounded once.
    """
    narrow = base.dtype.itemsize == 2 and base.dtype.kind not in "iu"
    wide = narrow and aggregation is not Aggregation.ASSIGN
    result = np.moveaxis(base.astype(np.float32 if wide else base.dtype), axis, 0)
    flat = _positions(index).ravel()
    moved = np.moveaxis(updates, range(axis, axis + index.ndim), range(index.ndim))
    rows = moved.reshape(flat.size, *result.shape[1:]).astype(result.dtype)
    kept = (flat >= 0) & (flat < result.shape[0])
    if aggregation is Aggregation.ASSIGN:
        result[flat[kept]] = rows[kept]  # of repeated indexes the last one stays
    else:
        with np.errstate(all="ignore"):
            _AT[aggregation](result, flat[kept], rows[kept])
    return np.ascontiguousarray(np.moveaxis(result, 0, axis)).astype(base.dtype)


def _axis(params: Params, rank: int) -> int:
    axis = params.get("axis")
    if not isinstance(axis, int) or not 0 <= axis < rank:
        raise SpecialError(f"'axis' must be one of the {rank} dimensions, not {axis}")
    return axis


def _check_shape(name: str, shape: tuple[int, ...], whole: tuple[int, ...], axis: int, index: Array) -> None:
    """A shape is that of the whole with `axis` replaced by the axes of the index array."""
    if index.dtype.kind not in "iu":
        raise SpecialError(f"the index has type {index.dtype}, which is not an integer type")
    wanted = (*whole[:axis], *index.shape, *whole[axis + 1 :])
    if shape != wanted:
        raise SpecialError(f"the {name} has shape {shape}, its operands ask for {wanted}")


def _gather(
    read: Sequence[Array], shape: tuple[int, ...], params: Params, aggregation: Aggregation | None
) -> Array:
    data, index = read
    axis = _axis(params, data.ndim)
    _check_shape("result", shape, data.shape, axis, index)
    return gather(data, index, axis)


def _scatter(
    read: Sequence[Array], shape: tuple[int, ...], params: Params, aggregation: Aggregation | None
) -> Array:
    updates, index, base = read
    axis = _axis(params, base.ndim)
    _check_shape("array of updates", updates.shape, shape, axis, index)
    return scatter(updates, index, base, axis, aggregation or Aggregation.ASSIGN)


SPECIALS: dict[str, SpecialInfo] = {
    info.name: info
    for info in (
        SpecialInfo(
            "gather", (Direction.IN, Direction.IN, Direction.OUT), ("axis",),
            "values at the given indexes along an axis; an index outside is clamped",
            _gather,
        ),
        SpecialInfo(
            "scatter", (Direction.IN, Direction.IN, Direction.INOUT), ("axis",),
            "aggregates values at the given indexes along an axis; one outside is dropped",
            _scatter,
        ),
    )
}  # fmt: skip
