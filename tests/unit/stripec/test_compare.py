"""What `--check` calls equal."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripec.compare import compare, longest_sum
from tile_frontend import compile_tile


def test_integers_are_equal_or_not() -> None:
    want = np.arange(6).reshape(2, 3)
    assert compare(want, want, 9).at is None
    got = want.copy()
    got[1, 2] += 1
    assert compare(got, want, 10**9).at == (1, 2)
    assert compare(np.zeros((0, 3), int), np.zeros((0, 3), int), 1).at is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_floats_may_differ_by_rounding_of_their_sums(dtype: type[np.generic]) -> None:
    want = np.array([1.0, -4.0, 0.0, 2.0], dtype)
    eps = float(np.spacing(np.ones((), dtype)))
    near = (want.astype("f8") + np.array([2 * eps, 0, 0, 0])).astype(dtype)
    assert compare(near, want, 1).at is None
    far = (want.astype("f8") + np.array([0, 0, 100 * eps, 0])).astype(dtype)
    found = compare(far, want, 1)
    assert found.at == (2,)
    assert 0 < found.allowed < found.worst
    if dtype in (np.float32, np.float64):
        assert compare(far, want, 1000).at is None, "a longer sum may be further off"


def test_nan_and_infinity_must_stand_in_the_same_places() -> None:
    want = np.array([np.nan, np.inf, -np.inf, 1.0], "f4")
    assert compare(want.copy(), want, 1).at is None
    for place, value in ((0, 1.0), (1, -np.inf), (2, np.nan), (3, np.nan), (3, np.inf)):
        got = want.copy()
        got[place] = value
        assert compare(got, want, 10**6).at == (place,)
    only = np.array([np.nan], "f4")
    assert compare(only, only, 1).at is None


def test_the_longest_sum_counts_the_points_that_meet_in_an_element() -> None:
    text = "function (A[M, K], B[K, N]) -> (D) { C[m, n : M, N] = +(A[m, k] * B[k, n]); D = C + C; }"
    types = {"A": TensorType(DType.F32, (3, 7)), "B": TensorType(DType.F32, (7, 5))}
    assert longest_sum(compile_tile(Source("t", text), types)) == 7
