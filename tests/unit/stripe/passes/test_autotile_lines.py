"""autotile: the lines at the ends of rows, the copies that tiles make, and rows of one page."""

from __future__ import annotations

import pytest

from benchmarks.problems import Contraction
from hwconfigs.load import load_named
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.passes import program_of


def contraction(strings: str, size: int) -> Program:
    """The contraction of these strings, where all letters have the same size."""
    problem = Contraction(strings, tuple((letter, size) for letter in sorted({*strings} - {"-"})))
    types = {o.name: as_type((o.type, o.shape), o.name) for o in problem.operands}
    return read_program(problem.tile).lower(types, [])


def tiled(program: Program, target: str) -> tuple[dict[str, int], int]:
    """The sizes of the tile for L2, and the bytes that it needs there."""
    context = PassContext(load_named(target))
    Autotile(memory="L2").run(program, context)
    (remark,) = context.remarks
    assert remark.acted, remark.message
    return remark.data["chosen"]["sizes"], remark.data["chosen"]["needed"]


@pytest.mark.parametrize(
    ("left", "right", "whole"),
    [("afbce", "df", "eda"), ("dabfe", "fc", "eca")],
)
def test_rows_of_a_line_and_a_half_are_taken_whole(left: str, right: str, whole: str) -> None:
    """Of both the result and what it is made of. Memory binds: as tiles are not small in both, they may be
    parts of those in registers."""
    sizes, _ = tiled(contraction(f"edcba-{left}-{right}", 24), "x86_64_zen3")
    assert all(sizes[name] == 24 for name in whole)
    assert sizes["b"] == 2


def test_parts_of_tiles_in_registers_have_to_save_more_than_they_cost() -> None:
    """Memory binds here, too: f:2 and c:2, a third of what registers take, would save 1.4 percent."""
    sizes, _ = tiled(contraction("fedcba-cged-bafg", 16), "x86_64_zen3")
    assert sizes == {"f": 1, "e": 1, "d": 16, "c": 16, "b": 16, "a": 16}


def test_copies_that_tiles_make_have_no_gaps() -> None:
    """Pieces of rows of X, 32 bytes long, come in lines; what stays in L2 are the copies."""
    sizes, needed = tiled(contraction("cba-adb-cd", 120), "x86_64_zen4")
    assert sizes == {"c": 120, "b": 8, "a": 64}
    copy, y, z = 120 * 64 * 8 * 4, 120 * 120 * 4, 120 * 8 * 64 * 4
    assert copy + y + z <= needed < 2 * copy + y + z


def test_sums_are_cut_where_most_of_the_time_goes_into_copies() -> None:
    """With all of e and f a tile would copy two elements of each line of Y."""
    sizes, _ = tiled(contraction("abcd-aebf-fdec", 32), "x86_64_zen4")
    assert sizes["e"] * sizes["f"] < 32 * 32
    assert sizes["c"] == 16


@pytest.mark.parametrize(
    ("rows", "steps", "beside"),
    [(65536, 128, False), (65536, 400, False), (4096, 4096, True), (2048, 128, True)],
    ids=["a page of several rows", "of two rows", "pages of one row", "in the caches"],
)
def test_rows_of_one_page_come_one_after_the_other(rows: int, steps: int, beside: bool) -> None:
    """A matrix times a vector, from memory: the hardware fetches ahead along one row of each page."""
    program = program_of(f"""
    block main [] (in A[0, 0] f32({rows}, {steps})  in X[0] f32({steps})  out Y[0]:assign f32({rows})) {{
      block y [m:{rows}, k:{steps}] (in A[m, k] f32(1, 1)  in X[k] f32(1)  out Y[m]:add f32(1)) {{
        $a = load(A) f32
        $x = load(X) f32
        $y = mul($a, $x) f32
        Y = store($y)
      }}
    }}""")
    context = PassContext(load_named("x86_64_zen3"))
    Autotile(memory="REG").run(program, context)
    (remark,) = context.remarks
    assert remark.acted == beside
    assert beside or remark.message == "not tiled: each of its points is a tile already"
