"""Vectors over one divisor: as correctly rounded as a division, and without one in the loop."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from codegen_cpu.build import Module, build
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.ir import Program
from stripe.parser import parse
from stripe.passes.pipeline import run_pipeline
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline
from tests.support.loops import loops
from tests.support.native import run, runnable

KINDS = [
    hw for hw in runnable()[1:] if hw.name in ("generic", "x86_64_avx2", "x86_64_avx512", "aarch64_neon")
]
AVX2 = load_named("x86_64_avx2")

Array = np.ndarray[Any, Any]


def scaled(dtype: str, rows: int, columns: int) -> Program:
    text = f"""
    block main [] (in X[0, 0] {dtype}({rows}, {columns}):({columns}, 1)  in D[0] {dtype}({rows}):(1)
                   out R[0, 0]:assign {dtype}({rows}, {columns}):({columns}, 1)) {{
      block r [m:{rows}, n:{columns}] (in X[m, n] {dtype}(1, 1)  in D[m] {dtype}(1)
                                       out R[m, n]:assign {dtype}(1, 1)) #vector=n {{
        $x = load(X) {dtype}
        $d = load(D) {dtype}
        $r = div($x, $d) {dtype}
        R = store($r)
      }} }}
    """
    return parse(Source("test.stripe", dedent(text)))


def check(hw: HwConfig, x: Array, d: Array) -> None:
    dtype = "f32" if x.dtype == np.float32 else "f64"
    (found,) = run(scaled(dtype, *x.shape), {"X": x, "D": d}, hw).values()
    with np.errstate(all="ignore"):
        want = x / d[:, None]
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(found), nan)
    kind = np.uint32 if dtype == "f32" else np.uint64
    np.testing.assert_array_equal(found.view(kind)[~nan], want.view(kind)[~nan])


@pytest.mark.parametrize("hw", KINDS, ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ordinary_numbers(hw: HwConfig, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.uniform(-1, 1, (200, 1003)) * 10.0 ** rng.integers(-9, 9, (200, 1003))).astype(dtype)
    check(hw, x, (rng.uniform(1, 2, 200) * 10.0 ** rng.integers(-5, 5, 200)).astype(dtype))
    # Where rounding is closest: all digits set, or few.
    few = (1 + np.arange(2048) * 2.0**-11).astype(dtype)
    least = np.nextafter(few, dtype(2))
    check(hw, np.stack([few, least] * 4), np.concatenate([few[-4:], least[-4:]]))


@pytest.mark.parametrize("hw", KINDS, ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_range(hw: HwConfig, dtype: Any) -> None:
    info = np.finfo(dtype)
    ends = [
        0.0,
        info.smallest_subnormal,
        info.tiny / 3,
        info.tiny,
        1.0,
        3.0,
        info.max / 3,
        info.max,
        np.inf,
        np.nan,
    ]
    powers = 2.0 ** np.linspace(info.minexp, info.maxexp - 1, 57) * 1.3
    values = np.asarray([s * v for v in (*ends, *powers) for s in (1, -1)], dtype)
    check(hw, np.tile(values, (len(values), 1)), values)


@pytest.mark.parametrize(
    ("target", "division"),
    [("x86_64_avx512", "vdivps"), ("x86_64_avx2", "vdivps"), ("aarch64_neon", "fdiv\tv")],
)
def test_vectors_are_divided_behind_a_branch(target: str, division: str) -> None:
    lines = build(scaled("f32", 4, 4096), load_named(target)).asm.splitlines()
    fused = max(at for at, line in enumerate(lines) if re.search(r"\s(vfm|vfnm|fml)", line))
    divided = [at for at, line in enumerate(lines) if division in line]
    assert divided
    for at in divided:
        between = lines[fused:at]
        assert any(re.match(r"\s+(j[a-z]+|[ct]bn?z|b\.)\s", line) for line in between)


def divided_sums(columns: int) -> Module:
    """Sums of products, each row of them over a number: the accumulators are asked whether they can be."""
    text = (
        "function (P[N, M], V[M, D], Z[N, X]) -> (O) {"
        " R[i, d : N, D] = +(P[i, j] * V[j, d]); O = exp(R / Z); }"
    )
    types = {
        n: as_type(t, n) for n, t in (("P", "f32[48, 64]"), ("V", f"f32[64, {columns}]"), ("Z", "f32[48, 1]"))
    }
    program = read_program(text).lower(types, [])
    return build(run_pipeline(program, pipeline("x86_64_avx2"), AVX2), AVX2)


def test_the_loops_of_what_is_divided_stay_as_they_are() -> None:
    """Where LLVM has to see to it that the branch is not on what may be anything, it does so in these loops,
    and elements are loaded first, and spread over the lanes then."""
    body = max(loops(divided_sums(64).asm), key=lambda lines: sum("vfmadd" in line for line in lines))
    assert sum("vfmadd" in line for line in body) >= 8
    assert any(re.search(r"vbroadcastss\t-?\d*\(", line) for line in body)
    assert not any(re.search(r"vbroadcastss\t%xmm", line) for line in body)
    assert "freeze" not in divided_sums(64).llvm


def test_branches_take_lanes_that_are_masked_off_for_what_they_may_be() -> None:
    assert "freeze" in divided_sums(61).llvm


def test_without_fused_multiply_adds_it_is_a_division() -> None:
    body = max(loops(build(scaled("f32", 4, 4096), load_named("generic")).asm), key=len)
    assert sum("divps" in line for line in body) == 1
