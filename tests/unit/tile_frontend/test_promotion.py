"""Types of expressions are NumPy's, for every pair of element types and every function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType, from_numpy
from tile_frontend import compile_tile
from tile_frontend.promotion import Weak, accumulation_type, common_type, fits, promote

PLAIN = [t for t in DType if t is not DType.BF16]
UNARY = {
    "-A": np.negative, "~A": np.invert, "abs(A)": np.abs, "sqrt(A)": np.sqrt, "exp(A)": np.exp,
    "floor(A)": np.floor, "round(A)": np.floor, "trunc(A)": np.trunc,
}  # fmt: skip
BINARY = {
    "A + B": np.add, "A - B": np.subtract, "A * B": np.multiply, "A / B": np.true_divide,
    "A & B": np.bitwise_and, "A < B": np.less, "max(A, B)": np.maximum,
    "floordiv(A, B)": np.floor_divide, "mod(A, B)": np.mod,
    "pow(A, B)": np.power,
}  # fmt: skip


def type_of(expression: str, first: DType, second: DType) -> DType | None:
    """The type of the result; None if Tile refuses."""
    source = Source("p.tile", f"function (A, B) -> (R) {{ R = {expression}; }}")
    types = {"A": TensorType(first, (2,)), "B": TensorType(second, (2,))}
    try:
        return compile_tile(source, types).outputs[0].dtype
    except CompileError as error:
        assert [d.code for d in error.diagnostics] == ["T022"]
        return None


def numpy_type(function: np.ufunc, *types: DType) -> DType | None:
    try:
        with np.errstate(all="ignore"):
            return from_numpy(function(*(np.ones(2, t.numpy) for t in types)).dtype)
    except TypeError:
        return None


@pytest.mark.parametrize("expression", BINARY)
def test_binary_operations(expression: str) -> None:
    for first, second in itertools.product(PLAIN, PLAIN):
        wanted = numpy_type(BINARY[expression], first, second)
        assert type_of(expression, first, second) is wanted, (expression, first, second)


@pytest.mark.parametrize("expression", UNARY)
def test_unary_operations(expression: str) -> None:
    for dtype in PLAIN:
        assert type_of(expression, dtype, dtype) is numpy_type(UNARY[expression], dtype), (expression, dtype)


def test_literals_are_weak() -> None:
    for dtype, literal in itertools.product(PLAIN, (1, 1.5)):
        wanted = from_numpy((np.ones(2, dtype.numpy) + literal).dtype)
        assert type_of(f"A + {literal}", dtype, dtype) is wanted, (dtype, literal)


def test_bf16_promotes_as_f16_does() -> None:
    for dtype in DType:
        with_half = promote(DType.F16, dtype)
        wanted = DType.BF16 if with_half is DType.F16 else with_half
        if dtype not in (DType.BF16, DType.F16):
            assert promote(DType.BF16, dtype) is promote(dtype, DType.BF16) is wanted
    assert promote(DType.BF16, DType.F16) is DType.F32
    assert common_type([DType.BF16], [Weak(1.5)]) is DType.BF16


def test_accumulation_is_wider_than_narrow_types() -> None:
    def of(*types: DType) -> DType:
        return accumulation_type(types, common_type(types))

    assert of(DType.F16) is of(DType.BF16, DType.BF16) is of(DType.F16, DType.BF16) is DType.F32
    assert of(DType.I8) is of(DType.U8, DType.I8) is of(DType.BOOL) is DType.I32
    assert of(DType.I16) is DType.I16
    assert of(DType.F64) is DType.F64


def test_weak_numbers_must_fit() -> None:
    assert fits(127, DType.I8) and not fits(128, DType.I8) and not fits(-1, DType.U64)
    assert fits(10**30, DType.F32) and not fits(0.5, DType.I32) and not fits(1, DType.BOOL)
