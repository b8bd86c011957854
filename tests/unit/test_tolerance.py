"""The comparison that the differential tests rest on finds what is wrong and lets pass what may be."""

from __future__ import annotations

import numpy as np
import pytest

from stripe.dtypes import DType
from tests.support.tolerance import assert_same, unit_roundoff


def test_equal_results_pass() -> None:
    values = np.array([1.5, np.nan, np.inf, -np.inf, -0.0])
    assert_same(values, values.copy())
    assert_same({"A": values}, {"A": values})
    assert_same(np.array([0.0]), np.array([-0.0]))
    assert_same(np.zeros((0, 3), np.int8), np.zeros((0, 3), np.int8))
    assert_same(np.array(3), np.array(3))


def test_integers_must_be_equal_and_the_worst_is_shown() -> None:
    with pytest.raises(
        AssertionError, match=r"R: 1 of 4 elements differ; the worst is element \[1, 0\]: .*4.*3"
    ):
        assert_same(np.array([[1, 2], [4, 4]]), np.array([[1, 2], [3, 4]]), what="R")
    with pytest.raises(AssertionError):
        assert_same(np.array([True]), np.array([False]))


def test_another_type_or_shape_or_name_fails() -> None:
    with pytest.raises(AssertionError, match=r"is float64\[2\], expected float32\[2\]"):
        assert_same(np.zeros(2), np.zeros(2, np.float32))
    with pytest.raises(AssertionError, match=r"is float64\[1\], expected float64\[\]"):
        assert_same(np.zeros(1), np.zeros(()))
    with pytest.raises(AssertionError, match="other outputs"):
        assert_same({"A": np.zeros(1)}, {"B": np.zeros(1)})


@pytest.mark.parametrize("kind", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_floats_may_differ_by_few_roundings(kind: DType) -> None:
    dtype = kind.numpy
    one = np.ones(3, dtype)
    step = 2 * float(unit_roundoff(kind))
    near = np.array([1, 1 + step, 1], dtype)
    far = np.array([1, 1, 1 + 8 * step], dtype)
    assert_same(near, one)
    with pytest.raises(AssertionError, match=r"1 of 3 elements differ; the worst is element \[2\]"):
        assert_same(far, one)
    assert_same(far, one, terms=20)


def test_the_magnitude_is_that_of_the_terms() -> None:
    expected, actual = np.array([1e-3], np.float32), np.array([1.01e-3], np.float32)
    with pytest.raises(AssertionError, match="allowed error"):
        assert_same(actual, expected, terms=10)
    assert_same(actual, expected, terms=10, magnitude=np.array([100.0]))
    assert_same({"A": actual}, {"A": expected}, terms=10, magnitude={"A": np.array([100.0])})
    assert_same(actual, expected, terms=10, scale=100.0)


def test_nan_and_infinity_must_be_in_the_same_places() -> None:
    for wrong in ([np.nan, 1.0], [np.inf, 1.0], [1.0, -np.inf]):
        with pytest.raises(AssertionError):
            assert_same(np.array(wrong), np.array([1.0, 1.0]), terms=1000)
        with pytest.raises(AssertionError):
            assert_same(np.array([1.0, 1.0]), np.array(wrong), terms=1000)
    with pytest.raises(AssertionError):
        assert_same(np.array([np.inf]), np.array([-np.inf]))
