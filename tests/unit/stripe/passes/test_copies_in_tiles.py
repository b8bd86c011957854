"""transpose in whole pipelines: what contractions copy at each call are tiles that a core's own cache
holds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import pytest

from benchmarks.cases import Case, cases
from hwconfigs.model import own_cache
from stripe.ir import Block, Direction, Load, Program, Store
from stripe.passes.pipeline import run_pipeline
from stripe.visit import walk
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline, target

# Of other targets some: with their rates a copy of a whole operand pays for a few others.
ELSEWHERE = {
    "x86_64_avx512": ("abcd-eafd-fbec", "abcd-deca-be", "abcd-aebf-fdec", "gemm 1000x1100x1200"),
    "x86_64_avx2": ("abcd-eafd-fbec", "abcd-deca-be", "ab-acd-dbc", "gemm 1000x1100x1200"),
}
CONTRACTIONS = [case for case in cases() if case.family in ("tactics", "tccg")]
CASES = [("x86_64_zen4", case) for case in CONTRACTIONS]
CASES += [("x86_64_zen4", case) for case in cases() if case.name == "matmul 512x512x512 tB"]
CASES += [(name, case) for name, some in ELSEWHERE.items() for case in CONTRACTIONS if case.name in some]


@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(n, c, id=f"{n}-{c.family}-{c.name}") for n, c in CASES]
)
def test_a_contraction_copies_tiles(name: str, case: Case) -> None:
    types = {o.name: as_type((o.type, o.shape), o.name) for o in case.problem.operands}
    hw = target(name)
    result = run_pipeline(read_program(case.problem.tile).lower(types, []), pipeline(name), hw, verify="off")
    cache = own_cache(hw.memories)
    assert cache is not None
    assert cache.bytes is not None
    assert max(_copies(result), default=0) <= cache.bytes


def _copies(program: Program) -> Iterator[int]:
    """The bytes of each buffer that blocks fill that do nothing but move elements."""
    for _, block in walk(program.root):
        for ref in block.refinements:
            if ref.direction is Direction.NEW and ref.location is None:
                writers = [
                    b
                    for b in block.children
                    if any(r.source == ref.name and r.direction.writes for r in b.refinements)
                ]
                if writers and all(map(_only_moves, writers)):
                    yield prod(ref.shape) * ref.dtype.bytes


def _only_moves(block: Block) -> bool:
    statements = [s for _, b in walk(block) for s in b.statements if not isinstance(s, Block)]
    return all(isinstance(s, Load | Store) for s in statements)
