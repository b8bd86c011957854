"""Products of 16-bit floats: with the instruction that sums pairs of bf16, and on CPUs without it.

docs/numerics.md says what holds: a sum of n products errs by at most n roundings of the sum of
their magnitudes; the instruction takes subnormal operands and sums for zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_cpu.build import build
from codegen_cpu.host import check_runs_here
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.ir import Program
from stripe.parser import parse
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from tests.support.executions import Array, run_native
from tests.support.tolerance import assert_same
from tile_frontend import compile_tile

VNNI = "x86_64_avx512_vnni"
LEAST = float(np.finfo(np.float32).tiny)

MATMUL = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] : f32 = +(A[m, k] * B[k, n]); }"
TURNED = "function (A[K, M], B[N, K]) -> (C) { C[m, n : M, N] : f32 = +(A[k, m] * B[n, k]); }"
NARROW = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
CONV = """function (A[H, W, C], B[R, S, C, K]) -> (O) {
  O[x, y, k : H / 2, W / 2, K] : f32 = +(A[2 * x + i - 1, 2 * y + j - 1, c] * B[i, j, c, k]);
}"""
BIAS = """function (A[M, K], B[K, N], D[N]) -> (R) {
  C[m, n : M, N] : f32 = +(A[m, k] * B[k, n]);
  S = C + D;
  R = S > 0 ? S : 0;
}"""


@cache
def paired() -> HwConfig | None:
    """The target with the instruction, as if it were fast, so that it is taken; None if it does not run."""
    hw = load_named(VNNI)
    stencils = tuple(
        msgspec.structs.replace(s, cycles="j / lanes / 2") if s.name == "vdpbf16ps" else s
        for s in hw.stencils
    )
    return runs(msgspec.structs.replace(hw, stencils=stencils))


@cache
def without(name: str, feature: str) -> HwConfig | None:
    hw = load_named(name)
    assert hw.cpu is not None
    features = tuple(f for f in hw.cpu.features if f != feature)
    return runs(msgspec.structs.replace(hw, cpu=msgspec.structs.replace(hw.cpu, features=features)))


def runs(hw: HwConfig) -> HwConfig | None:
    try:
        check_runs_here(hw)
    except CompileError:
        return None
    return hw


def targets() -> dict[str, HwConfig | None]:
    return {
        "pairs": paired(),
        **{name: runs(load_named(name)) for name in (VNNI, "x86_64_avx2", "generic")},
        "no f16c": without("x86_64_avx2", "f16c"),
    }


def lowered(text: str, shapes: Mapping[str, tuple[int, ...]], dtype: DType, const: bool) -> Program:
    types = {n: TensorType(DType.F32 if n == "D" else dtype, s) for n, s in shapes.items()}
    program = compile_tile(Source("test.tile", text), types)
    refinements = tuple(replace(r, const=const and r.name == "B") for r in program.root.refinements)
    return replace(program, root=replace(program.root, refinements=refinements))


def data(program: Program, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {r.name: rng.standard_normal(r.shape).astype(r.dtype.numpy) for r in program.inputs}


def magnitude(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The sums of |terms|: of what the program computes, where all inputs are positive."""
    return dict(interpret(program, {name: np.abs(array) for name, array in inputs.items()}))


def check(program: Program, inputs: Mapping[str, Array], hw: HwConfig, terms: int, what: str) -> None:
    made = run_pipeline(program, check_pipeline(hw), hw)
    want = interpret(program, inputs)
    assert_same(
        run_native(made, hw, inputs), want, terms=2 * terms, magnitude=magnitude(program, inputs), what=what
    )


CASES: dict[str, tuple[str, dict[str, tuple[int, ...]], int]] = {
    "primes": (MATMUL, {"A": (31, 37), "B": (37, 41)}, 37),
    "whole tiles": (MATMUL, {"A": (48, 64), "B": (64, 64)}, 64),
    "one row": (MATMUL, {"A": (1, 64), "B": (64, 48)}, 64),
    "one column": (MATMUL, {"A": (31, 37), "B": (37, 1)}, 37),
    "one term": (MATMUL, {"A": (31, 1), "B": (1, 40)}, 1),
    "turned": (TURNED, {"A": (37, 31), "B": (23, 37)}, 37),
    "rounded": (NARROW, {"A": (31, 37), "B": (37, 41)}, 37),
    "window": (CONV, {"A": (9, 11, 7), "B": (3, 3, 7, 19)}, 63),
    "epilogue": (BIAS, {"A": (31, 37), "B": (37, 41), "D": (41,)}, 38),
}
SHORT = {("primes", "bf16", True), ("window", "f16", True)}
RUNS = [
    pytest.param(name, dtype, const, marks=() if (name, dtype, const) in SHORT else pytest.mark.slow)
    for name in CASES
    for dtype in ("bf16", "f16")
    for const in (False, True)
]


@pytest.mark.parametrize(("name", "dtype", "const"), RUNS)
def test_native_code_gives_what_the_interpreter_does(name: str, dtype: str, const: bool) -> None:
    text, shapes, terms = CASES[name]
    program = lowered(text, shapes, DType(dtype), const)
    inputs = data(program)
    for what, hw in targets().items():
        if hw is not None:
            check(program, inputs, hw, terms, what)


def compiled_for_pairs(text: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Program, HwConfig]:
    hw = paired()
    if hw is None:
        pytest.skip("this CPU lacks the instruction")
    return run_pipeline(lowered(text, shapes, DType.BF16, True), check_pipeline(hw), hw), hw


@pytest.mark.parametrize("name", ["window", "epilogue"])
def test_the_instruction_is_used_where_it_is_fast(name: str) -> None:
    text, shapes, _ = CASES[name]
    made, hw = compiled_for_pairs(text, shapes)
    assert "vdpbf16ps" in build(made, hw).asm


def test_where_it_is_slow_operands_are_converted_once() -> None:
    hw = load_named(VNNI)
    program = lowered(MATMUL, {"A": (64, 64), "B": (64, 64)}, DType.BF16, True)
    made = run_pipeline(program, check_pipeline(hw), hw)
    (kernel,) = (b for b in made.root.children if b.name == "C")
    assert {r.dtype for r in kernel.refinements} == {DType.F32}
    assert "vdpbf16ps" not in build(made, hw).asm


def test_infinities_and_nan_stay_in_their_rows() -> None:
    """What fills groups up is zero on both sides, and never meets a value."""
    made, hw = compiled_for_pairs(MATMUL, {"A": (5, 7), "B": (7, 33)})
    bf16 = DType.BF16.numpy
    a, b = np.ones((5, 7), bf16), np.ones((7, 33), bf16)
    a[1, 6], a[2, 0], b[6, 32] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(run_native(made, hw, {"A": a, "B": b})["C"], want)


def test_the_instruction_takes_subnormals_for_zero() -> None:
    made, hw = compiled_for_pairs(MATMUL, {"A": (2, 16), "B": (16, 16)})
    bf16 = DType.BF16.numpy
    a, b = np.zeros((2, 16), bf16), np.full((16, 16), 2.0, bf16)
    a[0, 3], a[1, 3] = LEAST / 2, LEAST
    got = run_native(made, hw, {"A": a, "B": b})["C"]
    assert (got[0] == 0).all() and (got[1] == 2 * LEAST).all()
    b[...] = 0.5
    assert (run_native(made, hw, {"A": a, "B": b})["C"] == 0).all()
    for name in (VNNI, "generic"):
        plain = runs(load_named(name))
        if plain is not None:
            exact = run_native(made, without(VNNI, "avx512bf16") or plain, {"A": a, "B": b})["C"]
            assert (exact[0] == LEAST / 4).all() and (exact[1] == LEAST / 2).all()


@settings(max_examples=15, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    dtype=st.sampled_from([DType.BF16, DType.F16]),
    const=st.booleans(),
    text=st.sampled_from([MATMUL, TURNED]),
    which=st.sampled_from(["pairs", VNNI, "x86_64_avx2", "generic", "no f16c"]),
)
@pytest.mark.slow
def test_any_shape(shape: tuple[int, int, int], dtype: DType, const: bool, text: str, which: str) -> None:
    m, n, k = shape
    hw = targets()[which]
    if hw is None:
        return
    sizes = {"A": (m, k), "B": (k, n)} if text is MATMUL else {"A": (k, m), "B": (n, k)}
    program = lowered(text, sizes, dtype, const)
    check(program, data(program), hw, k, which)


def test_copies_of_bf16_are_copies_of_bits() -> None:
    """No value is widened, and none looked at."""
    text = """
    block main [] (in X[0, 0] bf16(9, 64):(512, 1)  out Y[0, 0]:assign bf16(9, 64):(96, 1)) {
      block p [k:9, i:64] (in X[k, i] bf16(1, 1)  out Y[k, i]:assign bf16(1, 1)) #vector=i {
        $x = load(X) bf16
        Y = store($x)
      }
    }
    """
    asm = build(parse(Source("test.stripe", text)), load_named("x86_64_avx512")).asm
    assert "vmovups" in asm
    assert not any(name in asm for name in ("vpmovzx", "vcmp", "vpsll", "vpsrl"))
