"""autotile with a tile that is given."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.autotile_chosen import Tiling
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from tests.unit.stripe.passes.test_autotile_explicit import contraction, machine, tiles

PAD = Autotile(memory="PAD")
GIVEN = Tiling({"m": 20, "n": 35}, ("n", "m"))


def with_tile(program: Program, path: str) -> Program:
    context = PassContext(machine(), given=Given({path: GIVEN}))
    result = PAD.run(program, context)
    assert context.taken == {path}
    return result


def test_the_tile_that_is_given_is_made() -> None:
    result = with_tile(contraction(40, 70, 90), "main/r")
    assert tiles(result) == [("r", {"n": 2, "m": 2})]


def test_a_tile_of_the_same_memory_is_not_cut_again() -> None:
    once = with_tile(contraction(40, 70, 90), "main/r")
    with pytest.raises(CompileError) as refused:
        with_tile(once, "main/r/r")
    assert "it is a tile that fits in PAD already" in refused.value.diagnostics[0].message
