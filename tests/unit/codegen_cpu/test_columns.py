"""What only the lanes decide is computed once for all rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stripec
from tests.support.loops import loops

NORM = "function (X[N, C], M[C], V[C]) -> (R) { R = (X - M) / sqrt(V + 0.5) * exp(M); }"


def norm(n: int, c: int, dtype: str, **options: Any) -> stripec.Kernel:
    return stripec.compile(
        NORM, shapes={"X": (dtype, (n, c)), "M": (dtype, (c,)), "V": (dtype, (c,))}, **options
    )


def slow(kernel: stripec.Kernel) -> int:
    """In how many loops there is a root."""
    return sum(any("sqrt" in line for line in body) for body in loops(kernel.asm))


def test_loops_over_rows_have_no_root() -> None:
    many, few = (norm(n, 256, "f32", target="x86_64_avx512", threads=1) for n in (1000, 3))
    assert slow(many) == 1, "the one ahead"
    assert slow(few) == 1, "that of the rows"
    assert len(loops(many.asm)) > len(loops(few.asm))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(("n", "c"), [(1000, 300), (5, 17), (3, 40), (4, 1)])
def test_results(n: int, c: int, dtype: str, threads: int) -> None:
    type_ = {"f32": "f4", "f64": "f8", "f16": "f2", "bf16": ml_dtypes.bfloat16}[dtype]
    rng = np.random.default_rng(0)
    x, m, v = (rng.random(shape).astype(type_) for shape in ((n, c), (c,), (c,)))
    wide = [a.astype(np.float64) for a in (x, m, v)]
    expected = (wide[0] - wide[1]) / np.sqrt(wide[2] + 0.5) * np.exp(wide[1])
    tolerance = {"f32": 1e-5, "f64": 1e-12, "f16": 5e-3, "bf16": 5e-2}[dtype]
    found = norm(n, c, dtype, threads=threads)(x, m, v).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_rows_that_end_where_columns_say_are_left_alone() -> None:
    text = "function (X[N, N], V[N]) -> (R) { T = sqrt(V); R[i, j : N, N] = =(X[i, j] * T[j]), i - j < N; }"
    x, v = np.arange(400, dtype="f4").reshape(20, 20), np.arange(20, dtype="f4")
    found = stripec.compile(text, threads=1)(x, v)
    np.testing.assert_allclose(found, np.tril(x * np.sqrt(v)), rtol=1e-6)


def test_what_is_written_is_not_read_ahead() -> None:
    text = """function (X[N, C], V[C]) -> (R, S) {
      S = sqrt(V) + 1;
      R = X / (1 + sqrt(S)) + S / (V + 1);
    }"""
    x, v = np.ones((50, 40), np.float32), np.arange(40, dtype="f4")
    r, s = stripec.compile(text, threads=1)(x, v)
    np.testing.assert_allclose(s, np.sqrt(v) + 1, rtol=1e-6)
    np.testing.assert_allclose(r, x / (1 + np.sqrt(s)) + s / (v + 1), rtol=1e-5)
