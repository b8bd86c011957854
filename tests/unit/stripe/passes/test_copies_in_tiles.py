"""transpose in whole pipelines: what contractions copy are tiles that a core's own caches hold."""

from __future__ import annotations

from math import prod

import pytest

from benchmarks.cases import cases
from hwconfigs.model import own_cache
from stripe.analysis.cost_problem import usable_bytes
from stripe.ir import Direction
from stripe.passes.pipeline import run_pipeline
from stripe.visit import walk
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline, target


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("tccg", "abcd-eafd-fbec"),
        ("tccg", "abcd-deca-be"),
        ("tactics", "abcd-aebf-fdec"),
        ("tactics", "abcd-aebf-dfce"),
        ("matmul", "matmul 512x512x512 tB"),
    ],
)
def test_a_contraction_copies_tiles(family: str, name: str) -> None:
    problem = next(case.problem for case in cases() if (case.family, case.name) == (family, name))
    types = {o.name: as_type((o.type, o.shape), o.name) for o in problem.operands}
    program = read_program(problem.tile).lower(types, [])
    hw = target("x86_64_zen4")
    cache = own_cache(hw.memories)
    assert cache is not None
    held = usable_bytes(cache)
    assert held is not None
    result = run_pipeline(program, pipeline("x86_64_zen4"), hw)
    copies = [
        prod(ref.shape) * ref.dtype.bytes
        for _, block in walk(result.root)
        for ref in block.refinements
        if ref.direction is Direction.NEW and ref.location is None
    ]
    assert copies
    assert max(copies) <= held


def settled(text: str, **shapes: str) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """The lane index of what a contraction adds up, and the strides of the copies that are made for it."""
    program = read_program(text).lower({name: as_type(form, name) for name, form in shapes.items()}, [])
    result = run_pipeline(program, pipeline("x86_64_zen4"), target("x86_64_zen4"))
    blocks = [block for _, block in walk(result.root)]
    new = [ref for block in blocks for ref in block.refinements if ref.direction is Direction.NEW]
    lanes = next(b.tag_values("vector") for b in blocks if len(b.statements) == 4)
    return lanes, [r.strides or () for r in new if r.location is None]


def test_lanes_that_are_summed_get_the_copy_that_they_were_chosen_for() -> None:
    """Few columns of A meet many rows of B, which goes along k: so do the lanes, once A is turned."""
    text = "function (A[K, M], B[N, K]) -> (C) { C[m, n : M, N] = +(A[k, m] * B[n, k]); }"
    lanes, copies = settled(text, A="f32[730, 4]", B="f32[2048, 730]")
    assert (lanes, copies) == (("k",), [(1, 730)])


def test_rows_that_are_joined_get_a_copy_in_which_they_follow_each_other() -> None:
    """16 rows of 3 elements are three vectors, in the result and in a copy of X."""
    text = "Z[d, b, a, c : D, B, A, C] = +(X[a, e, b, c] * Y[e, d]);"
    lanes, copies = settled(
        f"function (X[A, E, B, C], Y[E, D]) -> (Z) {{ {text} }}", X="f32[16, 2, 32, 3]", Y="f32[2, 64]"
    )
    assert (lanes, copies) == (("c",), [(3, 48, 96, 1)])


def test_short_rows_are_summed_along_the_lanes_side_by_side() -> None:
    """A vector holds each row of X: the sums of several rows stay in registers, and none is gathered."""
    text = "function (X[A, B, C], Y[C]) -> (Z) { Z[a, b : A, B] = +(X[a, b, c] * Y[c]); }"
    program = read_program(text).lower(
        {"X": as_type("f32[29, 478, 7]", "X"), "Y": as_type("f32[7]", "Y")}, []
    )
    result = run_pipeline(program, pipeline("x86_64_zen4"), target("x86_64_zen4"))
    blocks = [block for _, block in walk(result.root)]
    assert any(ref.location is not None for block in blocks for ref in block.refinements)
    assert next(b.tag_values("vector") for b in blocks if len(b.statements) == 4) == ("c",)


def test_what_tiles_were_made_for_is_copied_for_any_gain() -> None:
    """Eleven columns share each row of A: the copy saves little more than it costs by the model."""
    text = "function (A[M, K], B[N, K]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[n, k]); }"
    lanes, copies = settled(text, A="f32[2022, 83]", B="f32[11, 83]")
    assert (lanes, copies) == (("m",), [(1, 32), (1, 32)])
