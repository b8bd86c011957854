"""Operations are counted over the points that run, not over the boxes of the indexes."""

from __future__ import annotations

import pytest

from stripe.analysis.work import operations
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from tile_frontend import compile_tile

MATMUL = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
WINDOW = "function (A[N], B[K]) -> (C) { C[i : N] = +(A[i + k] * B[k]); }"


@pytest.mark.parametrize(
    ("text", "shapes", "count"),
    [
        (MATMUL, [(3, 4), (4, 5)], 120),
        ("function (A, B) -> (C) { C = A + B; }", [(3, 4), (3, 4)], 12),
        ("function (A, B) -> (C) { C = (A > B ? A : B); }", [(3, 4), (3, 4)], 0),
        (WINDOW, [(6,), (3,)], 2 * (4 * 3 + 2 + 1)),
        ("function (A[N], B) -> (C) { C[i : N] = =(A[i]); }", [(6,), (1,)], 0),
    ],
)  # fmt: skip
def test_operations(text: str, shapes: list[tuple[int, ...]], count: int) -> None:
    types = {n: TensorType(DType.F32, s) for n, s in zip("AB", shapes, strict=True)}
    assert operations(compile_tile(Source("t", text), types)) == count
