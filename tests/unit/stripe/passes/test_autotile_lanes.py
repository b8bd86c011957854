"""autotile: weighs tiles in registers for every index that vectors could go along."""

from __future__ import annotations

import pytest

from hwconfigs.load import load_named
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.visit import walk
from tests.support.passes import check_pass
from tests.unit.stripe.passes.test_autotile_sums import product

AMX = load_named("x86_64_amx")
REGISTERS = Autotile(memory="REG")


def contraction(rows: int, columns: int, steps: int, turned: bool = False) -> Program:
    """`turned`: both inputs lie the other way round, A along its rows and B along its sums."""
    return product(rows, columns, steps, *([f":(1, {rows})", f":(1, {steps})"] if turned else []))


def of_weights(rows: int, columns: int, steps: int) -> Program:
    """A product by a matrix whose rows are summed: B lies along its sums, as weights do."""
    return product(rows, columns, steps, "", f":(1, {steps})")


def lanes(program: Program) -> str:
    """The index that autotile settled for vectors, or that which the operands alone decide."""
    tiled = REGISTERS.run(program, PassContext(AMX))
    (settled,) = (b.tag_values("vector") for _, b in walk(tiled.root) if not b.children)
    return settled[0] if settled else "n"


@pytest.mark.parametrize(
    ("shape", "turned", "found"),
    [
        pytest.param((640, 100, 128), False, "m", id="a row of B ends within a vector"),
        pytest.param((640, 96, 128), False, "n", id="a row of B is whole vectors"),
        pytest.param((1300, 200, 64), True, "n", id="short sums, which would be turned in squares"),
        pytest.param((1300, 200, 100), True, "m", id="sums that are longer than that"),
        pytest.param((640, 10, 128), False, "n", id="a copy of A would be used for ten results"),
    ],
)
def test_lanes_go_along_the_index_whose_tiles_cost_least(
    shape: tuple[int, int, int], turned: bool, found: str
) -> None:
    assert lanes(contraction(*shape, turned)) == found


@pytest.mark.parametrize(("rows", "found"), [(12, "m"), (18, "m"), (40, "m"), (100, "n")])
def test_lanes_that_are_not_all_used_may_cost_less_than_a_copy_for_few_rows(rows: int, found: str) -> None:
    """A copy of B is read and written by way of L1, and what it drives out of L2 comes back: 40 rows of
    results are too few for that, 100 are not. Of 18, nearly half of the lanes along them are idle."""
    assert lanes(of_weights(rows, 512, 512)) == found


def test_the_tile_computes_the_same_and_is_found_again_where_its_sizes_are_given() -> None:
    result, (remark,) = check_pass(contraction(32, 50, 20, True), REGISTERS, AMX, rtol=1e-5)
    assert remark.acted
    (settled,) = (b.tag_values("vector") for _, b in walk(result.root) if not b.children)
    assert settled == ("m",)
    context = PassContext(AMX)
    assert REGISTERS.run(contraction(32, 50, 20, True), context) == result
    again = PassContext(AMX, given=Given(context.choices))
    assert REGISTERS.run(contraction(32, 50, 20, True), again) == result
