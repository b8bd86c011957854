"""Lanes that are off at every point of a block add up what they like; others must keep what they have."""

from __future__ import annotations

import re

import numpy as np
import pytest

import stripec
from codegen_cpu.assembly import code_facts
from codegen_cpu.build import build
from codegen_cpu.host import runs_here
from hwconfigs.load import load_named
from stripe.visit import walk
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


def window(taps: int, stride: int, pad: int, dilation: int = 1) -> str:
    """A convolution of each channel of its own, channels first, with zeros around."""
    y, x = (f"{stride}*{at} + {dilation}*{tap} - {pad}" for at, tap in ("yr", "xs"))
    size = (H - dilation * (taps - 1) - 1 + 2 * pad) // stride + 1
    sums = f"O[g, y, x : G, {size}, {size}] = +(I[g, {y}, {x}] * F[g, r, s]);"
    return f"function (I[G, H, W], F[G, R, S]) -> (O) {{ {sums} }}"


H = 41


@pytest.mark.parametrize("target", ["x86_64_zen4", "x86_64_avx512", "x86_64_avx2", "aarch64_neon"])
@pytest.mark.parametrize(("taps", "stride", "pad"), [(3, 1, 1), (3, 2, 1), (5, 2, 2)])
def test_sums_at_the_edges_of_a_picture_stay_where_they_are(
    target: str, taps: int, stride: int, pad: int
) -> None:
    """Results that lack the first step of a window are other lanes of the same vectors, not vectors that
    begin one lane further, which would go through memory."""
    shapes = {"I": f"f32[8, {H}, {H}]", "F": f"f32[8, {taps}, {taps}]"}
    types = {name: parse_type(shape, name) for name, shape in shapes.items()}
    done = optimise(
        read_program(window(taps, stride, pad)).lower(types, ()), load_named(target), verify="off"
    )
    moved = [
        ref
        for _, block in walk(done.program.root)
        for ref in block.refinements
        for lane in block.tag_values("vector")
        if lane in block.tag_values("unroll") and ref.direction.writes
        if any(lane in expr.names and expr.const for expr in ref.access)
    ]
    assert not moved


@pytest.mark.parametrize("target", ["x86_64_zen4", "x86_64_avx512", "x86_64_avx2"])
@pytest.mark.parametrize(
    ("taps", "stride", "pad", "dilation"),
    [
        (3, 1, 1, 1),
        (3, 2, 1, 1),
        (5, 1, 2, 1),
        (5, 2, 2, 1),
        (3, 3, 1, 1),
        (3, 4, 2, 1),
        (3, 1, 2, 2),
        (7, 3, 3, 1),
    ],
)
def test_edges_of_windows(target: str, taps: int, stride: int, pad: int, dilation: int) -> None:
    """Infinite weights show each product with what is not there."""
    if not runs_here(load_named(target)):
        pytest.skip("this CPU lacks what the target has")
    numbers = np.random.default_rng(taps)
    picture = numbers.integers(1, 9, (3, H, H)).astype(np.float32)
    weights = numbers.integers(1, 9, (3, taps, taps)).astype(np.float32)
    weights[1] = np.inf
    source, shapes = window(taps, stride, pad, dilation), {"I": picture, "F": weights}
    plain = stripec.compile(source, shapes=shapes, target="generic", threads=1)(picture, weights)
    found = stripec.compile(source, shapes=shapes, target=target, threads=1)(picture, weights)
    assert np.array_equal(found, plain)


def test_what_lanes_keep_takes_no_instruction_of_its_own() -> None:
    """Under a constant mask LLVM would move what the other lanes hold back behind each multiply-add."""
    types = {"I": parse_type("f32[8, 4, 56, 56]", "I"), "F": parse_type("f32[8, 4, 4, 3, 3]", "F")}
    point = "I[g, c, y + r - 1, x + s - 1] * F[g, k, c, r, s]"
    source = (
        f"function (I[G, C, H, W], F[G, K, C, R, S]) -> (O) {{ O[g, k, y, x : G, K, H, W] = +({point}); }}"
    )
    done = optimise(read_program(source).lower(types, ()), load_named("x86_64_zen4"), verify="off")
    assembly = build(done.program, load_named("x86_64_zen4")).asm
    assert re.search(r"vfmadd231ps\s+%zmm\d+, %zmm\d+, %zmm\d+ \{%k\d\}", assembly)
    assert not re.search(r"vmovap[sd]\s+%zmm\d+, %zmm\d+ \{%k\d\}$", assembly, re.MULTILINE)
