"""The elementwise programs of the Tile corpus."""

# A program and its reference read best on a line each; tensors are called I as everywhere.

from __future__ import annotations

import numpy as np

from tests.support.tile_cases import TileCase, bf16, elementwise, erf, f16, f32, f64, relu

ELEMENTWISE = (
    elementwise("add", "A + B", "A=f32[4,5] B=f32[4,5]", lambda A, B: A + B),
    elementwise("broadcast_row", "A * B", "A=f32[4,5] B=f32[5]", lambda A, B: A * B),
    elementwise("broadcast_column", "A - B", "A=f32[4,5] B=f32[4,1]", lambda A, B: A - B),
    elementwise("broadcast_both", "A - B", "A=f32[4,1] B=f32[1,5]", lambda A, B: A - B),
    elementwise("broadcast_ranks", "A + B + C", "A=f32[2,1,3] B=f32[4,1] C=f32[]", lambda A, B, C: A + B + C),
    elementwise("scalar_operand", "S * A + 1", "A=f32[7] S=f32[]", lambda A, S: S * A + 1),
    elementwise("rank_0", "-A * A", "A=f64[]", lambda A: -A * A),
    elementwise(
        "precedence",
        "A + B * C - A / B",
        "A=f32[6] B=f32[6] C=f32[6]",
        lambda A, B, C: A + B * C - A / B,
        floats=(0.5, 2.0),
    ),
    elementwise(
        "bits", "A | B & C ^ A << 1", "A=i32[9] B=i32[9] C=i32[9]", lambda A, B, C: (A | (B & C)) ^ (A << 1)
    ),
    elementwise("shifts", "(A << 3) + (A >> 1)", "A=i16[9]", lambda A: (A << 3) + (A >> 1)),
    elementwise("complement", "~A", "A=u8[9]", lambda A: ~A, integers=(0, 256)),
    elementwise(
        "truth",
        "(A > 0) & ~(B <= 1) | (A == B)",
        "A=i32[20] B=i32[20]",
        lambda A, B: ((A > 0) & ~(B <= 1)) | (A == B),
    ),
    elementwise(
        "truth_arithmetic", "(A + B) * C", "A=bool[8] B=bool[8] C=bool[8]", lambda A, B, C: (A + B) * C
    ),
    elementwise("select", "A > B ? A : B", "A=f32[4,5] B=f32[5]", lambda A, B: np.where(A > B, A, B)),
    elementwise("select_chain", "A < -1 ? -1 : A > 1 ? 1 : A", "A=f32[20]", lambda A: np.clip(A, -1, 1)),
    elementwise("select_numbers", "A > 0 ? 2 : 3", "A=f32[9]", lambda A: np.where(A > 0, 2, 3)),
    elementwise(
        "select_by_number",
        "A ? B : 0",
        "A=i32[9] B=f32[9]",
        lambda A, B: np.where(A != 0, B, f32(0)),
        integers=(-1, 2),
    ),
    elementwise("true_division", "A / B", "A=i32[9] B=i32[9]", lambda A, B: A / B, integers=(1, 9)),
    elementwise(
        "floor_division", "floordiv(A, 3) * 10 + mod(A, 3)", "A=i32[17]", lambda A: A // 3 * 10 + A % 3
    ),
    elementwise(
        "floor_division_floats",
        "floordiv(A, B) + mod(A, B)",
        "A=f64[9] B=f64[9]",
        lambda A, B: A // B + A % B,
    ),
    elementwise(
        "divide_by_zero",
        "A / B",
        "A=f32[4] B=f32[4]",
        lambda A, B: A / B,
        given={"A": [1, -1, 0, np.nan], "B": [0, 0, 0, 1]},
    ),
    elementwise(
        "nan_and_infinity",
        "max(A, B) + min(A, 0)",
        "A=f32[4] B=f32[4]",
        lambda A, B: np.maximum(A, B) + np.minimum(A, 0),
        given={"A": [np.nan, np.inf, -np.inf, 1], "B": [0, 1, 2, np.nan]},
    ),
    elementwise("wrapping", "A * A + 100", "A=i8[9]", lambda A: A * A + np.int8(100), integers=(-100, 100)),
    elementwise("unsigned_wrapping", "A - B", "A=u8[9] B=u8[9]", lambda A, B: A - B, integers=(0, 256)),
    elementwise("negate_unsigned", "-A", "A=u16[5]", lambda A: -A, integers=(0, 9)),
    elementwise("mixed_signs", "A + B", "A=u8[9] B=i8[9]", lambda A, B: A + B, integers=(0, 100)),
    elementwise("mixed_kinds", "A + B", "A=i32[9] B=f32[9]", lambda A, B: A + B),
    elementwise("integers_with_half", "A * 0.5", "A=i8[9]", lambda A: A * 0.5),
    elementwise("halves", "A * B + 1", "A=f16[9] B=f16[9]", lambda A, B: A * B + f16(1)),
    elementwise("brain_floats", "A * B - 0.5", "A=bf16[9] B=bf16[9]", lambda A, B: A * B - bf16(0.5)),
    elementwise("two_halves", "A + B", "A=bf16[9] B=f16[9]", lambda A, B: A.astype(f32) + B.astype(f32)),
    elementwise(
        "exponentials",
        "exp(A) + log(B) + sqrt(B) + erf(A)",
        "A=f64[9] B=f64[9]",
        lambda A, B: np.exp(A) + np.log(B) + np.sqrt(B) + erf(A),
        floats=(0.1, 2.0),
    ),
    elementwise(
        "trigonometry",
        "sin(A) + cos(A) * tan(A) - asin(A) + acos(A) / (2 + atan(A))",
        "A=f64[9]",
        lambda A: np.sin(A) + np.cos(A) * np.tan(A) - np.arcsin(A) + np.arccos(A) / (2 + np.arctan(A)),
        floats=(-0.9, 0.9),
    ),
    elementwise(
        "hyperbolic",
        "sinh(A) + cosh(A) - tanh(A) * asinh(A) + acosh(A + 2) + atanh(A)",
        "A=f64[9]",
        lambda A: np.sinh(A) + np.cosh(A) - np.tanh(A) * np.arcsinh(A) + np.arccosh(A + 2) + np.arctanh(A),
        floats=(-0.9, 0.9),
    ),
    elementwise("function_of_integers", "sqrt(A)", "A=u8[9]", lambda A: np.sqrt(A), integers=(0, 99)),
    elementwise(
        "rounding",
        "floor(A) + 10 * ceil(A) + 100 * round(A) + 1000 * trunc(A)",
        "A=f32[30]",
        lambda A: np.floor(A) + 10 * np.ceil(A) + 100 * np.rint(A) + 1000 * np.trunc(A),
        floats=(-3, 3),
    ),
    elementwise(
        "powers",
        "pow(A, 3) + pow(2, A) - abs(A)",
        "A=i32[6]",
        lambda A: A**3 + 2**A - np.abs(A),
        integers=(0, 9),
    ),
    elementwise(
        "rectifiers",
        "relu(A) + sigmoid(A) + recip(A)",
        "A=f64[9]",
        lambda A: relu(A) + 1 / (1 + np.exp(-A)) + 1 / A,
    ),
    elementwise(
        "casts",
        "as_int(A, 8) + as_uint(B, 8) + as_int(A > 0, 32)",
        "A=f32[9] B=i32[9]",
        lambda A, B: A.astype(np.int8) + B.astype(np.uint8) + (A > 0).astype(np.int32),
        integers=(-300, 300),
    ),
    elementwise(
        "cast_to_float",
        "as_float(A, 16) * as_float(A, 64)",
        "A=i32[9]",
        lambda A: A.astype(f16) * A.astype(f64),
    ),
    elementwise(
        "named_operators",
        "add(mul(A, B), cond(cmp_lt(A, B), neg(A), bit_xor(A, 5)))",
        "A=i32[9] B=i32[9]",
        lambda A, B: A * B + np.where(A < B, -A, A ^ 5),
    ),
    TileCase(
        "dimension_as_number",
        "function (A[M, N]) -> (R) { R = A / N + M; }",
        "A=f32[3,4]",
        lambda A: A / 4 + 3,
    ),
    TileCase(
        "known_scalars",
        "function (A[N]) -> (R, S) { Half = N / 2; S = Half + 1; R = A * Half; }",
        "A=f32[5]",
        lambda A: (A * 2.5, np.asarray(3.5)),
    ),
    TileCase(
        "declared_types",
        "function (A[N]: f32) -> (R, S) { R: f16 = A * 2; S: i32 = 7; }",
        "A=f32[5]",
        lambda A: ((A * 2).astype(f16), np.asarray(7, np.int32)),
    ),
    TileCase("copies", "function (A) -> (B, C) { B = A; C = B; }", "A=i16[3,2]", lambda A: (A, A)),
    TileCase(
        "empty",
        "function (A[M, N]) -> (B, S, T) { B = A + 1; S[m : M] = +(A[m, n]); T[n : N] = >(A[m, n]); }",
        "A=f32[3,0]",
        lambda A: (A + 1, A.sum(1), np.zeros(0, f32)),
    ),
    TileCase(
        "long_chain",
        "function (A) -> (B) { B = " + " + ".join(["A"] * 400) + "; }",
        "A=i32[3]",
        lambda A: A * 400,
    ),
    TileCase(
        "deep_parentheses",
        "function (A) -> (B) { B = " + "(" * 3000 + "A" + " + 1)" * 3000 + "; }",
        "A=i32[2]",
        lambda A: A + 3000,
    ),
)
