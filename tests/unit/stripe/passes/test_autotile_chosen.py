"""autotile with a tile that is given."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.autotile_chosen import Tiling
from stripe.passes.base import PassContext
from stripe.passes.choices import Given, read_given
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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "expected 'int' >= 1, found 0"),
        (-3, "expected 'int' >= 1, found -3"),
        (1.5, "expected 'int', got 'float', found 1.5"),
        (10**30, "found 1000000000"),
    ],
)
def test_a_size_that_is_none_is_named(value: object, said: str) -> None:
    record = {"main/c": {"sizes": {"n": 4, "m": value}}}
    with pytest.raises(CompileError, match="P008") as error:
        read_given("autotile", Tiling, record, "leave", "at $.pipeline[2].choices")
    assert said in str(error.value)
    assert 'at $.pipeline[2].choices["main/c"].sizes.m' in str(error.value)
