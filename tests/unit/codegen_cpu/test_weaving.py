"""Rows that are woven into the words of an instruction which sums groups of products."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import stripec
from codegen_cpu.build import build
from codegen_cpu.host import runs_here
from hwconfigs.load import load_named
from stripec.driver import optimise, read_program
from stripec.tensors import parse_type
from tests.support.loops import hot_loop

HW = load_named("x86_64_zen4")
TYPES = {"u8": np.dtype(np.uint8), "i8": np.dtype(np.int8), "bf16": np.dtype(ml_dtypes.bfloat16)}
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
BATCH = "function (A[G, K], B[G, K, N]) -> (C) { C[g, n : G, N] = +(A[g, k] * B[g, k, n]); }"


@pytest.mark.parametrize(
    ("kinds", "vectors", "shuffles", "dot"),
    [(("u8", "i8"), 4, 12, "vpdpbusd"), (("bf16", "bf16"), 2, 4, "vdpbf16ps")],
)
def test_a_row_with_a_matrix_as_it_lies(
    kinds: tuple[str, str], vectors: int, shuffles: int, dot: str
) -> None:
    """Each vector of a row is loaded by the instruction that brings it in order, and unpacked with others:
    nothing is widened, and nothing goes through memory."""
    types = {"A": parse_type(f"{kinds[0]}[1, 1024]", "A"), "B": parse_type(f"{kinds[1]}[1024, 1024]", "B")}
    done = optimise(read_program(PRODUCT).lower(types, ()), HW, verify="off")
    body = hot_loop(build(done.program, HW), dot)
    uses = sum(dot in line for line in body)
    moved = sum(bool(re.match(r"vperm|vpunpck|vshuf|vpshuf|vinsert", line)) for line in body)
    assert uses and moved * vectors == uses * shuffles
    assert not any("(%rsp" in line or line.startswith("vpmov") for line in body)


@pytest.mark.skipif(not runs_here(HW), reason="this CPU has no dot products")
@pytest.mark.parametrize("kinds", [("u8", "i8"), ("i8", "u8"), ("bf16", "bf16")])
@pytest.mark.parametrize(
    ("source", "a", "b"),
    [
        (PRODUCT, (1, 64), (64, 128)),
        (PRODUCT, (1, 256), (256, 300)),  # columns that fill no whole vector
        (PRODUCT, (1, 100), (100, 17)),
        (PRODUCT, (1, 1028), (1028, 1000)),
        (PRODUCT, (1, 37), (37, 64)),  # groups that are not full
        (PRODUCT, (2, 64), (64, 192)),
        (BATCH, (3, 64), (3, 64, 200)),
    ],
)
def test_products_of_rows(
    kinds: tuple[str, str], source: str, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    numbers = np.random.default_rng(sum(a))
    low, high = (-9, 9) if kinds[0] == "bf16" else (0, 128)
    one = numbers.integers(low, high, a).astype(TYPES[kinds[0]])
    two = numbers.integers(low, high, b).astype(TYPES[kinds[1]])
    if kinds[1] == "i8":
        two = -two
    sums = "mk,kn->mn" if len(b) == 2 else "mk,mkn->mn"
    expected = np.einsum(sums, one.astype(np.float64), two.astype(np.float64))
    found = stripec.compile(source, shapes={"A": one, "B": two}, target="x86_64_zen4", threads=1)(one, two)
    assert np.array_equal(found, expected.astype(np.float32).astype(found.dtype))


@pytest.mark.skipif(not runs_here(HW), reason="this CPU has no dot products")
@pytest.mark.parametrize("kinds", [("u8", "i8"), ("i8", "i8"), ("bf16", "bf16")])
@pytest.mark.parametrize("target", ["x86_64_zen4", "host"])
def test_lanes_that_padding_turns_off_add_nothing(kinds: tuple[str, str], target: str) -> None:
    """Rows of a tile lie on the stack, where lanes that are off are read, too; and an infinite weight is none
    of theirs."""
    text = "function (I, F) -> (O) { O[x, y : 13, 16] = +(I[c, x, y + j - 3] * F[j, c]); }"
    numbers = np.random.default_rng(len(kinds[0]))
    low = 0 if kinds[0] == "u8" else -3
    image = numbers.integers(low, 4, (16, 13, 16)).astype(TYPES[kinds[0]])
    weights = numbers.integers(-3, 4, (7, 16)).astype(TYPES[kinds[1]])
    if kinds[1] == "bf16":
        weights[0] = image[:, :, 0] = 1
        weights[0, 0] = np.inf
    expected = np.zeros((13, 16))
    with np.errstate(invalid="ignore"):
        for y in range(16):
            for j in range(max(0, 3 - y), min(7, 19 - y)):
                expected[:, y] += weights[j].astype(float) @ image[:, :, y + j - 3].astype(float)
        found = stripec.compile(text, target=target, threads=1)(image, weights)
    assert np.array_equal(found, expected.astype(found.dtype), equal_nan=kinds[1] == "bf16")
