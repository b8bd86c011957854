"""The specials: operations on whole views that affine accesses can't express.

Each declares its operands (direction of each) so that the verifier knows what is read and
written, and a NumPy meaning that the interpreter runs and the back ends must match.

    gather   in data, in index, out result {axis}: result[..., i..., ...] = data[..., index[i...], ...]
             An index outside the axis is clamped to it.
    scatter  in updates, in index, inout base {axis}: for each i, base[..., index[i...], ...] is
             aggregated with updates[..., i..., ...]. An update outside the axis is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stripe.ir import Aggregation, Direction

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SpecialInfo:
    name: str
    operands: tuple[Direction, ...]
    params: tuple[str, ...]
    meaning: str


def gather(data: Array, index: Array, axis: int) -> Array:
    """Values of `data` at `index` along `axis`; an index outside is clamped."""
    return np.take(data, np.clip(index.astype(np.int64), 0, data.shape[axis] - 1), axis=axis)


_AT: dict[Aggregation, Callable[..., None]] = {
    Aggregation.ADD: np.add.at,
    Aggregation.MUL: np.multiply.at,
    Aggregation.MAX: np.maximum.at,
    Aggregation.MIN: np.minimum.at,
}


def scatter(updates: Array, index: Array, base: Array, axis: int, aggregation: Aggregation) -> Array:
    """`base` with each update aggregated at its index along `axis`; those outside are dropped.

    shapes: base (..., n, ...), index (i...), updates (..., i..., ...). With `assign` the last
    update of an element, in row-major order of the index array, stays.
    """
    result = np.moveaxis(base.copy(), axis, 0)
    flat = index.astype(np.int64).ravel()
    moved = np.moveaxis(updates, range(axis, axis + index.ndim), range(index.ndim))
    rows = moved.reshape(flat.size, *result.shape[1:])
    kept = (flat >= 0) & (flat < result.shape[0])
    if aggregation is Aggregation.ASSIGN:
        for target, row in zip(flat[kept], rows[kept], strict=True):
            result[target] = row
    else:
        _AT[aggregation](result, flat[kept], rows[kept])
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


SPECIALS: dict[str, SpecialInfo] = {
    info.name: info
    for info in (
        SpecialInfo(
            "gather", (Direction.IN, Direction.IN, Direction.OUT), ("axis",),
            "values at the given indexes along an axis; an index outside is clamped",
        ),
        SpecialInfo(
            "scatter", (Direction.IN, Direction.IN, Direction.INOUT), ("axis",),
            "aggregates values at the given indexes along an axis; one outside is dropped",
        ),
    )
}  # fmt: skip
