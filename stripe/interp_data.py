"""Buffers and coordinates for a batch of points at once: the vectorised part of stripe.interp.

A *batch* is a grid of points of a nest: one axis for each index that takes more than one value
in it, the axes of the innermost block first. What depends on the point is an array that
broadcasts to the grid, with extent 1 along an axis that it does not depend on. Since inner
axes come first, NumPy's rule extends what an outer block made to the grid of any inner one; a
product over [m, n, k] loads each element of A[m, k] once, and the sum over k is one `reduce`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from stripe.dtypes import DType
from stripe.intrinsics import neutral
from stripe.ir import Aggregation, contiguous

Array = np.ndarray[Any, Any]
Coordinates = tuple[Array, ...]  # one array of integers for each dimension
Grid = tuple[int, ...]

ZERO: Array = np.asarray(0)  # a coordinate that is 0 everywhere, known by identity

_YES = np.asarray(True)
row_major = cache(contiguous)

COMBINE: dict[Aggregation, np.ufunc] = {
    Aggregation.ADD: np.add,
    Aggregation.MUL: np.multiply,
    Aggregation.MAX: np.maximum,
    Aggregation.MIN: np.minimum,
}


@dataclass(frozen=True, slots=True)
class Clash:
    """Two points wrote one element: a position in the grid, and the number of the other point."""

    position: tuple[int, ...]
    other: int


class Storage(Protocol):
    """What a view reads from and writes to: a Buffer, or something else that keeps elements."""

    @property
    def aggregation(self) -> Aggregation | None: ...
    @property
    def combines(self) -> bool: ...
    def read(self, at: Coordinates, point: Array) -> tuple[Array, Array]: ...
    def written_by(self, at: Coordinates) -> Array: ...
    def write(
        self, at: Coordinates, values: Array, live: Array, point: Array, grid: Grid
    ) -> Clash | None: ...
    def results(self) -> tuple[Array, Array]: ...


@dataclass(slots=True)
class Buffer:
    """The elements of one buffer in each of a grid of contexts.

    Element e (row-major) in context c is `data[e * contexts + c]`. `writer` is the number of
    the point that wrote the element, -1 where none did; None says that all is given (an
    input). `old` says where there was a value before the execution, which `data` then holds.
    `aggregation` None is a buffer in which a later write replaces an earlier one.
    """

    dtype: DType
    shape: tuple[int, ...]
    grid: Grid
    data: Array
    writer: Array | None
    aggregation: Aggregation | None = None
    old: Array | None = None

    @staticmethod
    def given(values: Array, dtype: DType) -> Buffer:
        """A buffer that holds `values`, which it never changes."""
        return Buffer(dtype, values.shape, (), values.reshape(-1), None)

    @staticmethod
    def empty(
        dtype: DType, shape: tuple[int, ...], grid: Grid, aggregation: Aggregation | None, points: int = 1
    ) -> Buffer:
        """A buffer without values; `points` is the number of points that may write to it."""
        size = math.prod(shape) * math.prod(grid)
        if aggregation is None or aggregation is Aggregation.ASSIGN:
            data = np.zeros(size, dtype.numpy)
        else:
            data = np.full(size, neutral(aggregation, dtype), accumulator(aggregation, dtype))
        one = aggregation is not Aggregation.ASSIGN or points == 1
        number = np.int8 if one else np.int32 if points <= np.iinfo(np.int32).max else np.int64
        return Buffer(dtype, shape, grid, data, np.full(size, -1, number), aggregation)

    @property
    def combines(self) -> bool:
        return self.aggregation in COMBINE

    def _address(self, at: Coordinates) -> Array:
        contexts = math.prod(self.grid)
        address = np.arange(contexts).reshape(self.grid) if self.grid else ZERO
        for where, stride in zip(at, row_major(self.shape), strict=True):
            if where is not ZERO:
                address = address + where * (stride * contexts)
        return np.asarray(address)

    def read(self, at: Coordinates, point: Array) -> tuple[Array, Array]:
        """The elements at `at`, and where `point` may read them: it or nobody wrote there, and
        there is a value. What is given for coordinates outside the buffer has no meaning."""
        address = self._address(at)
        if not self.data.size:
            return np.zeros(address.shape, self.dtype.numpy), np.broadcast_to(False, address.shape)
        values = np.asarray(self.data.take(address, mode="clip"))
        if self.writer is None:
            return values, _YES
        if self.combines:
            return values.astype(self.dtype.numpy), np.broadcast_to(False, values.shape)
        writer = self.writer.take(address, mode="clip")
        readable = writer == point
        if self.old is not None:
            readable = readable | ((writer < 0) & self.old.take(address, mode="clip"))
        return values, np.asarray(readable)

    def written_by(self, at: Coordinates) -> Array:
        """The number of the point that wrote each element at `at`, or -1."""
        return np.asarray(-1 if self.writer is None else self.writer.take(self._address(at), mode="clip"))

    def write(self, at: Coordinates, values: Array, live: Array, point: Array, grid: Grid) -> Clash | None:
        """One write for each point of `grid` that is `live`, to the element at `at`.

        Says where two points wrote one element of an `assign` buffer.
        """
        assert self.writer is not None, "given buffers are not written"
        address = self._address(at)
        if self.combines:
            self._combine(address, values, live, grid)
            return None
        target, value, number = live_ones(live, grid, address, values, point)
        before = self.writer[target] if self.aggregation is Aggregation.ASSIGN else None
        self.writer[target] = number
        self.data[target] = value
        if before is None:
            return None
        others = np.where(before >= 0, before, self.writer[target])
        clashes = np.flatnonzero(others != number)
        if not clashes.size:
            return None
        flat = np.flatnonzero(np.broadcast_to(live, grid))[clashes[0]]
        return Clash(tuple(int(i) for i in np.unravel_index(flat, grid)), int(others[clashes[0]]))

    def _combine(self, address: Array, values: Array, live: Array, grid: Grid) -> None:
        assert self.writer is not None and self.aggregation is not None
        combine, start = COMBINE[self.aggregation], neutral(self.aggregation, self.dtype)
        address = address.reshape((1,) * (len(grid) - address.ndim) + address.shape)
        # Along these axes all points write the same elements: reduce first, which is much faster.
        axes = tuple(a for a, extent in enumerate(grid) if extent > 1 and address.shape[a] == 1)
        values = values.astype(self.data.dtype, copy=False)
        if axes:
            if not live.all():
                values = np.where(live, values, start)
                live = np.asarray(np.broadcast_to(live, grid).any(axis=axes, keepdims=True))
            values = combine.reduce(
                np.broadcast_to(values, grid),
                axis=axes,
                dtype=self.data.dtype,
                keepdims=True,
                initial=start,
            )
        target, value = live_ones(live, address.shape, address, values)
        combine.at(self.data, target, value)
        self.writer[target] = 0

    def results(self) -> tuple[Array, Array]:
        """All elements and which of them were written, each of shape (*shape, *grid)."""
        assert self.writer is not None
        full = (*self.shape, *self.grid)
        data = self.data.astype(self.dtype.numpy, copy=False)
        return data.reshape(full), self.writer.reshape(full) >= 0


def _inside(at: Coordinates, shape: Sequence[int]) -> Array:
    inside = np.asarray(True)
    for where, size in zip(at, shape, strict=True):
        fits = (where >= 0) & (where < size)
        if not fits.all():
            inside = inside & fits
    return np.asarray(inside)


def outside(at: Coordinates, shape: Sequence[int]) -> Array:
    """Where `at` lies outside of a box of this shape at the origin."""
    return np.asarray(np.logical_not(_inside(at, shape)))


def live_ones(live: Array, grid: Grid, *arrays: Array) -> tuple[Array, ...]:
    """Each array spread over the grid, at its live points, as a flat array."""
    if live.all():
        return tuple(np.broadcast_to(a, grid).reshape(-1) for a in arrays)
    mask = np.broadcast_to(live, grid)
    return tuple(np.broadcast_to(a, grid)[mask] for a in arrays)


def along(values: range, axis: int, rank: int) -> Array:
    """`values` along one axis of a grid of `rank` axes."""
    return np.asarray(values, np.int64).reshape((-1,) + (1,) * (rank - axis - 1))


def box_coordinates(box: Sequence[range], grid: Grid) -> Coordinates:
    """The coordinates of each element of a box, over axes of their own in front of `grid`."""
    rank = len(box) + len(grid)
    return tuple(along(values, axis, rank) for axis, values in enumerate(box))


def boxes(extents: Sequence[int], limit: int) -> Iterator[tuple[range, ...]]:
    """Cut a box into boxes of at most `limit` points, or of one; the last axes are kept whole."""
    steps: list[int] = []
    for extent in reversed(extents):
        steps.append(max(1, min(extent, limit)))
        limit //= steps[-1]
    cuts = [
        [range(start, min(start + step, extent)) for start in range(0, extent, step)]
        for extent, step in zip(extents, reversed(steps), strict=True)
    ]
    return itertools.product(*cuts)


def added(*coordinates: Coordinates) -> Coordinates:
    """The sum in each dimension; what is 0 everywhere costs nothing."""
    return tuple(_sum(parts) for parts in zip(*coordinates, strict=True))


def _sum(parts: tuple[Array, ...]) -> Array:
    total = ZERO
    for part in parts:
        if total is ZERO:
            total = part
        elif part is not ZERO:
            total = np.asarray(total + part)
    return total


def origin(rank: int) -> Coordinates:
    return (ZERO,) * rank


def dot(at: Coordinates, strides: Sequence[int]) -> Array:
    """The sum of each coordinate times its stride."""
    total = ZERO
    for where, stride in zip(at, strides, strict=True):
        if where is not ZERO:
            total = np.asarray(total + where * stride)
    return total


def accumulator(aggregation: Aggregation, dtype: DType) -> np.dtype[Any]:
    """The type in which values are combined: f32 for f16 and bf16, which are rounded when handed on."""
    narrow = dtype in (DType.F16, DType.BF16) and aggregation is not Aggregation.ASSIGN
    return np.dtype(np.float32) if narrow else dtype.numpy
