"""Lanes that are off at every point of a block add up what they like; others must keep what they have."""

from __future__ import annotations

import numpy as np
import pytest

import stripec
from codegen_cpu.assembly import code_facts
from codegen_cpu.build import build
from codegen_cpu.host import runs_here
from hwconfigs.load import load_named
from stripec.driver import optimise, read_program
from stripec.tensors import parse_type

HW = load_named("x86_64_avx512")
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
# Which lanes are on depends on what is summed over, or on the row, or on both.
BANDS = [
    "C[n : N] = +(A[m, n]), m - n + 5 < 12;",
    "C[m, n : M, N] = +(A[m, n] * A[k, n]), n + k < 15;",
    "C[n : N] = >(A[m, n]), n + m < 21;",
    "C[m, n : M, N] = +(A[m, n] * A[k, n]), n + m < 14;",
]


def test_sums_under_a_mask_take_no_instruction_more() -> None:
    types = {"A": parse_type("f32[64, 200]", "A"), "B": parse_type("f32[200, 10]", "B")}
    done = optimise(read_program(PRODUCT).lower(types, ()), HW, verify="off")
    found = code_facts(build(done.program, HW).asm, "x86_64-unknown-linux-gnu")
    assert found is not None and found.hot.multiply_adds > 4
    assert found.hot.arithmetic == 0 and found.hot.spills == 0


@pytest.mark.skipif(not runs_here(HW), reason="this CPU has no AVX-512")
@pytest.mark.parametrize("statement", BANDS)
@pytest.mark.parametrize("size", [(7, 10), (16, 13), (20, 35)])
def test_lanes_that_come_and_go_keep_their_sums(statement: str, size: tuple[int, int]) -> None:
    m, n = size
    a = np.random.default_rng(m).standard_normal((m, n)).astype(np.float32)
    source = f"function (A[M, N]) -> (C) {{ {statement} }}"
    plain = stripec.compile(source, shapes={"A": a}, target="generic", threads=1)(a)
    found = stripec.compile(source, shapes={"A": a}, target="x86_64_avx512", threads=1)(a)
    assert np.allclose(found, plain, atol=1e-4)


@pytest.mark.skipif(not runs_here(HW), reason="this CPU has no AVX-512")
def test_what_is_off_does_not_leak() -> None:
    a = np.full((6, 40), np.inf, np.float32)
    b = np.ones((40, 5), np.float32)
    found = stripec.compile(PRODUCT, shapes={"A": a, "B": b}, target="x86_64_avx512", threads=1)(a, b)
    assert np.isposinf(found).all()
