"""Masks of lanes stay in registers for masks: of their way through others LLVM makes a wrong instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest

import stripec
from stripe.dtypes import DType
from tests.support.executions import native_target

# Encoded with VEX, as these are, instructions reach 16 registers alone.
OUT_OF_REACH = re.compile(r"\bvp?movmsk\w*\s+%[xyz]mm(?:1[6-9]|2\d|3[01])\b")

SCALED = "function (A[H, M, N], B[M]) -> (O) { O[m, n, h : M, N, H] = +(A[h, m, n] * B[m]), m - n < M; }"
SKEWED = "function (A[J], B[M]) -> (C) { C[i, k, j : 3, M, J] = >(A[j] * B[k + i]); }"


@pytest.mark.parametrize("target", ["x86_64_avx512", "x86_64_zen4", "x86_64_zen5", "x86_64_amx"])
@pytest.mark.parametrize("dtype", ["i16", "f16", "bf16", "i8", "f32"])
@pytest.mark.parametrize("source", [SCALED, SKEWED], ids=["scaled", "skewed"])
def test_squares_of_short_elements_under_a_mask(source: str, dtype: str, target: str) -> None:
    """All elements are 1, so that the sum counts those that were written."""
    sizes = {"A": (6, 40, 65), "B": (40,)} if source is SCALED else {"A": (7,), "B": (64,)}
    types = {name: f"{dtype}[{', '.join(map(str, size))}]" for name, size in sizes.items()}
    kernel = stripec.compile(source, shapes=types, target=target, threads=1)
    assert not OUT_OF_REACH.search(kernel.asm)
    if native_target(target) is not None:
        made = kernel(**{name: np.ones(size, DType(dtype).numpy) for name, size in sizes.items()})
        assert made.astype(np.float64).sum() == (4920 if source is SCALED else 1323)
