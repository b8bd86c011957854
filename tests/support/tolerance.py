"""When two results are the same: bit for bit, or within a stated rounding error.

Integers and bools must be equal. Floats may differ by reassociated sums and contracted
multiply-adds, so that |actual - expected| <= units * eps * magnitude, where

    eps        the unit roundoff of the type: 2**-11, 2**-8, 2**-24, 2**-53
    magnitude  the sum of |terms| that made the element; the caller may give it, and
               otherwise it is |expected|, at least `scale`
    units      how many roundings may add up: `terms` for a sum of that many, and a few more
               for what is done to it

This is the usual bound of a sum of n products, n * eps * sum |a*b| (Higham, Accuracy and Stability
of Numerical Algorithms, section 3.1), for any order of summation. NaN must be in the same places,
infinities equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stripe.dtypes import DType, from_numpy

Array = np.ndarray[Any, Any]

_DIGITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


def unit_roundoff(dtype: DType) -> float:
    """Half the distance from 1 to the next float: the relative error of one rounding."""
    return float(2.0 ** -_DIGITS[dtype])


def assert_same(
    actual: Array | Mapping[str, Array],
    expected: Array | Mapping[str, Array],
    *,
    terms: int = 1,
    magnitude: Array | Mapping[str, Array] | None = None,
    scale: float = 0.0,
    what: str = "",
) -> None:
    """Fail, showing the worst element, unless `actual` is `expected` as the module says.

    terms: the length of the longest sum behind an element. magnitude: the sum of |terms| of each
    element, of the same shape. scale: a lower bound of the magnitude, for sums that cancel.
    Mappings (outputs by name) are compared entry by entry, in their order.
    """
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping) and list(actual) == list(expected), f"{what}: other outputs"
        for name, value in expected.items():
            of_name = magnitude[name] if isinstance(magnitude, Mapping) else magnitude
            assert_same(
                actual[name],
                value,
                terms=terms,
                magnitude=of_name,
                scale=scale,
                what=f"{what} {name}".strip(),
            )
        return
    assert not isinstance(actual, Mapping) and not isinstance(magnitude, Mapping)
    expected = np.asarray(expected)
    found = f"{actual.dtype}{list(actual.shape)}"
    wanted = f"{expected.dtype}{list(expected.shape)}"
    assert found == wanted, f"{what}: is {found}, expected {wanted}"
    dtype = from_numpy(expected.dtype)
    if dtype is None or not dtype.is_float:
        wrong = actual != expected
        if wrong.any():
            _report(wrong.astype(np.float64), actual, expected, None, what)
        return
    got, want = actual.astype(np.float64), expected.astype(np.float64)
    size = np.abs(want) if magnitude is None else np.asarray(magnitude, np.float64)
    tiny = float(np.finfo(np.float32 if dtype is DType.BF16 else expected.dtype).tiny)
    bound = (terms + 3) * unit_roundoff(dtype) * np.maximum(size, scale) + tiny
    with np.errstate(invalid="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        excess = np.where(same, 0.0, np.abs(got - want) / bound)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if (excess > 1).any():
        _report(excess, actual, expected, bound, what)


def _report(excess: Array, actual: Array, expected: Array, bound: Array | None, what: str) -> None:
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    place = f"[{', '.join(str(int(i)) for i in at)}]"
    allowed = "" if bound is None else f", allowed error {np.broadcast_to(bound, excess.shape)[at]:.3g}"
    count = int(np.count_nonzero(excess > (0 if bound is None else 1)))
    raise AssertionError(
        f"{what or 'result'}: {count} of {excess.size} elements differ; the worst is element {place}: "
        f"{actual[at]!r}, expected {expected[at]!r}{allowed}"
    )
