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
