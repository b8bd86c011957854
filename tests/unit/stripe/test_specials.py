"""Gather and scatter against loops, and what their operands must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stripe.ir import Aggregation, Direction
from stripe.specials import SPECIALS, SpecialError, gather, scatter

Array = np.ndarray[Any, Any]

COMBINE: dict[Aggregation, Callable[[Any, Any], Any]] = {
    Aggregation.ASSIGN: lambda old, new: new,
    Aggregation.ADD: np.add,
    Aggregation.MUL: np.multiply,
    Aggregation.MAX: np.maximum,
    Aggregation.MIN: np.minimum,
}


def gather_by_loops(data: Array, index: Array, axis: int) -> Array:
    shape = (*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])
    result = np.zeros(shape, data.dtype)
    for at in np.ndindex(shape):
        wanted = int(index[at[axis : axis + index.ndim]])
        clamped = min(max(wanted, 0), data.shape[axis] - 1)
        result[at] = data[(*at[:axis], clamped, *at[axis + index.ndim :])]
    return result


def scatter_by_loops(updates: Array, index: Array, base: Array, axis: int, op: Aggregation) -> Array:
    result = base.copy()
    for at in np.ndindex(updates.shape):
        target = int(index[at[axis : axis + index.ndim]])
        if 0 <= target < base.shape[axis]:
            place = (*at[:axis], target, *at[axis + index.ndim :])
            result[place] = COMBINE[op](result[place], updates[at])
    return result


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gather(axis: int, rank: int, rng: np.random.Generator) -> None:
    data = rng.integers(-9, 9, (4, 3, 5)).astype(np.int32)
    index = np.asarray(rng.integers(-2, 8, (2, 3)[:rank])).astype(np.int64)
    np.testing.assert_array_equal(gather(data, index, axis), gather_by_loops(data, index, axis))


@pytest.mark.parametrize("op", list(Aggregation))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter(op: Aggregation, axis: int, rng: np.random.Generator) -> None:
    base = rng.integers(-3, 3, (4, 3, 5)).astype(np.int8)
    for shape in ((), (6,), (2, 3)):
        index = np.asarray(rng.integers(-2, 7, shape)).astype(np.int32)
        updates = rng.integers(-3, 3, (*base.shape[:axis], *shape, *base.shape[axis + 1 :])).astype(np.int8)
        before = base.copy()
        got = scatter(updates, index, base, axis, op)
        assert got.dtype == base.dtype
        np.testing.assert_array_equal(got, scatter_by_loops(updates, index, base, axis, op))
        np.testing.assert_array_equal(base, before)


def test_scatter_with_assign_keeps_the_last_update() -> None:
    got = scatter(np.arange(4), np.array([1, 1, 0, 1]), np.zeros(3, np.int64), 0, Aggregation.ASSIGN)
    assert got.tolist() == [2, 3, 0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_scatter_sums_narrow_floats_in_f32(dtype: Any) -> None:
    updates = np.full(512, 1, dtype)
    base = np.zeros(1, dtype)
    got = scatter(updates, np.zeros(512, np.int32), base, 0, Aggregation.ADD)
    assert got.dtype == base.dtype and float(got[0]) == 512


def test_scatter_max_propagates_nan() -> None:
    got = scatter(np.array([np.nan, 1]), np.array([0, 0]), np.zeros(2), 0, Aggregation.MAX)
    assert np.isnan(got[0]) and got[1] == 0


def test_unsigned_indexes_beyond_the_range_of_i64() -> None:
    index = np.array([2**64 - 1, 1], np.uint64)
    assert gather(np.array([5, 6, 7]), index, 0).tolist() == [7, 6]
    assert scatter(np.array([1, 2]), index, np.zeros(3, int), 0, Aggregation.ADD).tolist() == [0, 2, 0]


def test_empty_operands() -> None:
    nothing = np.zeros(0, np.int32)
    assert gather(np.zeros((0, 3)), nothing, 0).shape == (0, 3)
    assert gather(np.zeros((4, 0)), np.zeros(2, np.int32), 0).shape == (2, 0)
    with pytest.raises(SpecialError, match="axis of size 0"):
        gather(np.zeros((0, 3)), np.zeros(2, np.int32), 0)
    base = np.arange(3.0)
    assert scatter(np.zeros(0), nothing, base, 0, Aggregation.ADD).tolist() == [0, 1, 2]
    assert scatter(np.ones(2), np.array([0, 1]), np.zeros(0), 0, Aggregation.ADD).shape == (0,)


def test_the_table() -> None:
    for name, info in SPECIALS.items():
        assert info.name == name
        assert sum(d.writes for d in info.operands) == 1


@pytest.mark.parametrize(
    ("name", "shapes", "result", "params", "message"),
    [
        ("gather", [(4, 3), (2,)], (2, 3), {}, "'axis' must be one of the 2 dimensions, not None"),
        ("gather", [(4, 3), (2,)], (2, 3), {"axis": -1}, "not -1"),
        ("gather", [(4, 3), (2,)], (2, 3), {"axis": "x"}, "not x"),
        (
            "gather",
            [(4, 3), (2,)],
            (3, 2),
            {"axis": 0},
            r"the result has shape \(3, 2\), its operands ask for \(2, 3\)",
        ),
        ("scatter", [(2, 3), (2,), (4, 4)], (4, 4), {"axis": 0}, r"updates has shape \(2, 3\)"),
    ],
)
def test_operands_that_do_not_fit(
    name: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], params: dict[str, Any], message: str
) -> None:
    operands = [np.zeros(shape, np.int32) for shape in shapes]
    with pytest.raises(SpecialError, match=message):
        SPECIALS[name].apply(operands, result, params, Aggregation.ADD)


def test_the_index_must_be_of_integers() -> None:
    with pytest.raises(SpecialError, match="not an integer type"):
        SPECIALS["gather"].apply([np.zeros(3), np.zeros(2)], (2,), {"axis": 0}, None)
    assert SPECIALS["gather"].operands == (Direction.IN, Direction.IN, Direction.OUT)
