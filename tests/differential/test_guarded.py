"""Native code of whole programs touches no byte outside its arrays, wherever these lie, on every target."""

from __future__ import annotations

import ctypes

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from tests.support.guarded import Case, Fenced, check_fenced, in_child
from tests.support.native import runnable
from tests.support.tile_corpus import CORPUS, TileCase

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
TURNED = "function (A[K, M], B[N, K]) -> (C) { C[m, n : M, N] = +(A[k, m] * B[n, k]); }"
BATCH = "function (A[G, M, K], B[G, K, N]) -> (C) { C[g, m, n : G, M, N] = +(A[g, m, k] * B[g, k, n]); }"
EPILOGUE = """function (A[M, K], B[K, N], D[N]) -> (R) {
  C[m, n : M, N] = +(A[m, k] * B[k, n]);
  S = C + D;
  R = S > 0 ? S : 0;
}"""
CONV = """function (I[N, H, W, C], F[R, S, C, K]) -> (O) {
  O[n, x, y, k : N, H, W, K] = +(I[n, x + i - 1, y + j - 1, c] * F[i, j, c, k]);
}"""
STRIDED = """function (I[H, W, C], F[R, S, C, K]) -> (O) {
  O[x, y, k : (H + 1) / 2, (W + 1) / 2, K] = +(I[2*x + 2*i - 2, 2*y + 2*j - 2, c] * F[i, j, c, k]);
}"""
DEPTHWISE = """function (I[H, W, C], F[R, S, C]) -> (O) {
  O[x, y, c : H, W, C] = +(I[x + i - 1, y + j - 1, c] * F[i, j, c]);
}"""
ROWS = "function (A[M, N]) -> (S, X) { S[m : M] = +(A[m, n]); X[m : M] = >(A[m, n]); }"
COLUMNS = "function (A[M, N]) -> (S, X) { S[n : N] = +(A[m, n]); X[n : N] = <(A[m, n]); }"
TRANSPOSE = "function (A[M, N]) -> (T) { T[n, m : N, M] = =(A[m, n]); }"
PERMUTE = "function (A[M, N, K]) -> (T) { T[k, m, n : K, M, N] = =(A[m, n, k]); }"
SLICES = "function (A[M, K], B[K, N]) -> (C) { C[m, n : 5, 7] = +(A[m + 1, k + 2] * B[k, n + 3]), k < 6; }"
CHAIN = "function (A[M, N], B[N], C[M, 1]) -> (R, S) { T = A * B + C; R = T > 0 ? T : 0 - A; S = T * T - B; }"
REVERSED = "function (A[M, N]) -> (R) { R[m, n : M, N] = =(A[M - 1 - m, N - 1 - n]); }"
SPACED = "function (A[M, N]) -> (R) { R[m, n : M, N / 3] = +(A[m, 3 * n]); }"
SOFTMAX = """function (X[M, N]) -> (S) {
  T[m : M] = >(X[m, n]);
  E[m, n : M, N] = =(X[m, n]);
  F = exp(E - reshape(T, M, 1));
  G[m : M] = +(F[m, n]);
  S = F / reshape(G, M, 1);
}"""

SHORT = {
    "product": Case(PRODUCT, "A=f32[31,37] B=f32[37,41]"),
    "product, packed": Case(EPILOGUE, "A=f32[17,29] B=f32[29,67] D=f32[67]", ("B", "D")),
    "product of bytes": Case(PRODUCT, "A=u8[13,19] B=i8[19,35]", ("B",)),
    "window": Case(CONV, "I=f32[1,5,7,3] F=f32[3,3,3,17]", ("F",)),
    "transpose": Case(TRANSPOSE, "A=f32[37,53]"),
}
CASES = SHORT | {
    "rows": Case(ROWS, "A=f32[7,67]"),
    "chain": Case(CHAIN, "A=f32[5,23] B=f32[23] C=f32[5,1]"),
    "one": Case(PRODUCT, "A=f32[1,1] B=f32[1,1]"),
    "one row": Case(PRODUCT, "A=f32[1,131] B=f32[131,67]"),
    "one column": Case(PRODUCT, "A=f32[131,67] B=f32[67,1]"),
    "one term": Case(PRODUCT, "A=f32[13,1] B=f32[1,19]"),
    "powers of two": Case(PRODUCT, "A=f32[64,256] B=f32[256,128]"),
    "large": Case(PRODUCT, "A=f32[97,521] B=f32[521,263]"),
    "large, packed": Case(PRODUCT, "A=f32[97,521] B=f32[521,263]", ("B",)),
    "both packed": Case(PRODUCT, "A=f32[31,37] B=f32[37,41]", ("A", "B")),
    "turned": Case(TURNED, "A=f32[37,31] B=f32[29,37]"),
    "turned, packed": Case(TURNED, "A=f32[37,31] B=f32[29,37]", ("B",)),
    "batch": Case(BATCH, "A=f32[3,7,11] B=f32[3,11,19]"),
    "f64": Case(PRODUCT, "A=f64[11,13] B=f64[13,23]"),
    "bf16": Case(PRODUCT, "A=bf16[11,13] B=bf16[13,37]", ("B",)),
    "f16": Case(PRODUCT, "A=f16[11,13] B=f16[13,37]"),
    "bytes at run time": Case(PRODUCT, "A=u8[67,64] B=i8[64,96]"),
    "bytes turned": Case(TURNED, "A=i8[37,31] B=u8[29,37]", ("A",)),
    "signed bytes": Case(PRODUCT, "A=i8[29,31] B=i8[31,37]", ("B",)),
    "bytes in blocks": Case(PRODUCT, "A=u8[35,108] B=i8[108,49]"),
    "bytes in blocks, packed": Case(PRODUCT, "A=i8[67,64] B=i8[64,96]", ("B",)),
    "bf16 in blocks": Case(PRODUCT, "A=bf16[35,70] B=bf16[70,49]", ("B",)),
    "window in blocks": Case(CONV, "I=u8[1,9,20,64] F=i8[3,3,64,40]"),
    "window of bytes": Case(CONV, "I=u8[2,5,7,5] F=i8[3,3,5,17]", ("F",)),
    "wide window": Case(CONV, "I=f32[2,13,11,16] F=f32[3,3,16,32]"),
    "strides": Case(STRIDED, "I=f32[9,11,5] F=f32[3,3,5,19]", ("F",)),
    "strides at run time": Case(STRIDED, "I=f32[8,12,16] F=f32[3,3,16,16]"),
    "depthwise": Case(DEPTHWISE, "I=f32[7,9,37] F=f32[3,3,37]", ("F",)),
    "depthwise of bytes": Case(DEPTHWISE, "I=i8[7,9,37] F=i8[3,3,37]"),
    "columns": Case(COLUMNS, "A=f32[37,23]"),
    "columns of bytes": Case(COLUMNS, "A=i8[37,67]"),
    "rows of bf16": Case(ROWS, "A=bf16[5,67]"),
    "transpose of bytes": Case(TRANSPOSE, "A=u8[67,83]"),
    "transpose of f64": Case(TRANSPOSE, "A=f64[19,21]"),
    "transpose of f16": Case(TRANSPOSE, "A=f16[33,47]"),
    "large transpose": Case(TRANSPOSE, "A=f32[521,523]"),
    "permute": Case(PERMUTE, "A=f32[5,7,19]"),
    "slices": Case(SLICES, "A=f32[7,11] B=f32[11,13]"),
    "slices, packed": Case(SLICES, "A=f32[7,11] B=f32[11,13]", ("B",)),
    "reversed": Case(REVERSED, "A=f32[5,37]"),
    "spaced": Case(SPACED, "A=f32[5,111]"),
    "softmax": Case(SOFTMAX, "X=f32[5,67]", terms=67),
}  # fmt: skip


def targets() -> list[HwConfig]:
    """All but this machine's own, which is one of them with more room."""
    return sorted({hw.name: hw for hw in runnable()[1:]}.values(), key=lambda hw: hw.name)


def small_caches(hw: HwConfig) -> HwConfig:
    """Results of more than 2 KiB go past the caches, and tiles are small."""
    sizes = {"L1": 1024, "L2": 2048}
    memories = tuple(msgspec.structs.replace(m, bytes=sizes.get(m.name, m.bytes)) for m in hw.memories)
    return msgspec.structs.replace(hw, memories=memories)


WIDEST = max(targets(), key=lambda hw: len(hw.cpu.features) if hw.cpu else 0)


@pytest.mark.parametrize("name", SHORT)
def test_nothing_beside_the_arrays_is_touched(name: str) -> None:
    check_fenced(SHORT[name], WIDEST)


def test_nor_on_the_least_target() -> None:
    check_fenced(SHORT["product, packed"], load_named("generic"))


def test_stray_accesses_are_seen() -> None:
    """The measure itself."""
    fence = Fenced(8)
    array = fence.room(np.zeros(2, np.float32), "end")

    def beyond(index: int, write: bool) -> None:
        at = ctypes.c_float.from_address(array.ctypes.data + 4 * index)
        if write:
            at.value = 1.0
        assert at.value != 0.0 or not write

    assert in_child(lambda: beyond(1, True)) == ""
    assert in_child(lambda: beyond(2, False)) == "ended by SIGSEGV"
    assert fence.is_whole()
    beyond(-1, True)
    assert not fence.is_whole()
    assert "AssertionError" in in_child(lambda: np.testing.assert_array_equal(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("hw", targets(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("name", CASES)
def test_nothing_beside_the_arrays_is_touched_anywhere(name: str, hw: HwConfig) -> None:
    check_fenced(CASES[name], hw)


@pytest.mark.slow
@pytest.mark.parametrize("hw", targets(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("name", ["product", "window", "transpose", "chain", "large transpose", "columns"])
def test_nor_with_small_caches(name: str, hw: HwConfig) -> None:
    check_fenced(CASES[name], small_caches(hw))


@pytest.mark.slow
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_corpus(case: TileCase) -> None:
    if case.given:
        pytest.skip("its inputs are not any")
    for hw in (load_named("generic"), WIDEST):
        check_fenced(Case(case.text, case.shapes, terms=64), hw)


sizes = st.one_of(st.integers(1, 40), st.sampled_from([47, 61, 64, 65, 127, 128]))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(targets()),
    st.tuples(sizes, sizes, sizes),
    st.sampled_from(["f32 f32", "f64 f64", "u8 i8", "i8 i8", "bf16 bf16", "f16 f16", "i16 i16"]),
    st.booleans(),
    st.sampled_from([PRODUCT, TURNED]),
)
def test_products_of_any_shape(
    hw: HwConfig, shape: tuple[int, int, int], types: str, const: bool, text: str
) -> None:
    (m, n, k), (a, b) = shape, types.split()
    shapes = f"A={a}[{m},{k}] B={b}[{k},{n}]" if text is PRODUCT else f"A={a}[{k},{m}] B={b}[{n},{k}]"
    check_fenced(Case(text, shapes, ("B",) if const else ()), hw)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(targets()),
    st.tuples(*[st.integers(1, 9)] * 2, st.integers(1, 20), st.integers(1, 36)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2)),
    st.booleans(),
    st.sampled_from(["f32 f32", "u8 i8"]),
)
def test_windows_of_any_shape(
    hw: HwConfig,
    shape: tuple[int, int, int, int],
    window: tuple[int, int],
    how: tuple[int, int, int],
    const: bool,
    types: str,
) -> None:
    (h, w, c, k), (r, s), (stride, step, pad) = shape, window, how
    pad = min(pad, step * (min(r, s) - 1))  # so that there are points
    text = f"""function (I[H, W, C], F[R, S, C, K]) -> (O) {{
      O[x, y, k : {-(-h // stride)}, {-(-w // stride)}, K] =
        +(I[{stride}*x + {step}*i - {pad}, {stride}*y + {step}*j - {pad}, c] * F[i, j, c, k]);
    }}"""
    a, b = types.split()
    shapes = f"I={a}[{h},{w},{c}] F={b}[{r},{s},{c},{k}]"
    check_fenced(Case(text, shapes, ("F",) if const else ()), hw)
