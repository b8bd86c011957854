"""Tiles in registers whose vectors go on from row to row, though these lie apart in memory."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from stripe.diag import Remark
from stripe.ir import Block, Direction, Program, Refinement
from stripe.passes.base import PassContext
from stripe.passes.kernels import run_pass
from stripe.passes.pipeline import run_pipeline
from stripe.visit import walk
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline
from tests.support.meaning import assert_same_meaning

TEXT = """function (X[D, F, A, E], Y[C, E, B, F]) -> (Z) {
    Z[d, c, b, a : D, C, B, A] = +(X[d, f, a, e] * Y[c, e, b, f]);
}"""
TARGET = "x86_64_avx512"


def shapes(a: int, b: int, c: int, d: int, e: int, f: int) -> dict[str, str]:
    return {"X": f"f32[{d}, {f}, {a}, {e}]", "Y": f"f32[{c}, {e}, {b}, {f}]"}


def products(**sizes: int) -> Program:
    return read_program(TEXT).lower({name: as_type(s, name) for name, s in shapes(**sizes).items()}, [])


def compiled(size: int) -> tuple[Program, list[Remark]]:
    program, remarks, hw = products(**dict.fromkeys("abcdef", size)), list[Remark](), load_named(TARGET)
    for step in pipeline(TARGET):
        context = PassContext(hw)
        program = run_pass(step, program, context)
        remarks += context.remarks
    return program, remarks


def adds(program: Program) -> tuple[Block, Refinement]:
    """The tile that sums up in registers, and where it does."""
    for _, block in walk(program.root):
        for ref in block.refinements:
            if ref.direction is Direction.NEW and ref.location is not None:
                return block, ref
    raise AssertionError("nothing is summed up in registers")


def test_no_lane_is_idle() -> None:
    """Two rows along d of 24 elements fill three vectors, in the copy of X and in registers; in Z they lie
    apart."""
    program, _ = compiled(24)
    tile, sums = adds(program)
    assert sums.strides is not None
    (leaf,) = (child for child in tile.children if child.ranges.get("e", 1) > 1)
    assert leaf.tag_values("vector") == ("a",)
    assert leaf.ranges["a"] == 24 and leaf.ranges["d"] * 24 % 16 == 0
    assert [*leaf.ranges][-2:] == ["d", "a"]
    assert (sums.strides[0], sums.strides[-1]) == (24, 1)


@pytest.mark.parametrize("size", [33, 36, 50])
def test_tiles_of_a_cache_use_each_copy_often_or_have_single_rows(size: int) -> None:
    """A row takes far more of L2 the longer it is: of several, only a few products would use each element."""
    _, remarks = compiled(size)
    (text,) = [r.message for r in remarks if r.acted and "bytes of L2" in r.message]
    sizes = {name: int(n) for name, n in re.findall(r"([a-d]):(\d+)", text)}
    assert sizes["d"] == 1 or sizes["b"] * sizes["c"] >= 16, text


def test_they_compute_the_same() -> None:
    program = products(a=20, b=4, c=5, d=4, e=16, f=17)
    result = run_pipeline(program, pipeline(TARGET), load_named(TARGET))
    assert_same_meaning(program, result, np.random.default_rng(1))


@pytest.mark.parametrize("a", [9, 12, 17, 20, 24, 31])
def test_kernels_compute_the_same(a: int, rng: np.random.Generator) -> None:
    given = shapes(a=a, b=5, c=7, d=6, e=17, f=16)
    x, y = (
        rng.standard_normal([int(n) for n in re.findall(r"\d+", text[3:])]).astype(np.float32)
        for text in given.values()
    )
    found = stripec.compile(TEXT, given)(x, y)
    expected = np.tensordot(x.astype(float), y.astype(float), axes=((1, 3), (3, 1))).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * prod((17, 16)))
