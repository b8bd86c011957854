"""Levels of a nest that write each element once replace it; where several points add, they still add."""

from __future__ import annotations

import pytest

from stripe.ir import Block, Program
from stripe.passes.localize import Localize
from stripe.passes.localize_once import written_once
from tests.support.passes import check_pass, program_of
from tests.unit.stripe.passes.test_localize import target

TEXT = """block main [] (
  in A[0, 0] f32(32, 8):(8, 1)
  out C[0]:assign f32(32):(1)
) {{
  block t [{outer}] (
    in A{a} f32({rows}, {depth})
    out C{c}:add f32({rows})
  ) #tiled {{
    block c [m:{rows}, k:{depth}] (
      in A[m, k] f32(1, 1)
      out C[m]:add f32(1)
    ) {{
      $a = load(A) f32
      C = store($a)
    }}
  }}
}}"""


def made(outer: str, a: str, c: str, rows: int = 8, depth: int = 8) -> Program:
    return program_of(TEXT.format(outer=outer, a=a, c=c, rows=rows, depth=depth))


def hows(block: Block, name: str = "C") -> list[str]:
    """How each level writes to the result, outermost first; the copy is the last."""
    found: list[str] = []
    for child in block.children[-1:]:
        view = next(r for r in child.refinements if r.source == name)
        found += [str(view.aggregation), *hows(child, view.name)]
    return found


def test_tiles_that_lie_apart_replace_what_was_there() -> None:
    program = made("mo:4", "[8*mo, 0]", "[8*mo]")
    result, _ = check_pass(program, Localize(accumulators="REG"), target(1024))
    assert hows(result.root) == ["assign", "assign"]


@pytest.mark.parametrize(
    ("outer", "a", "c"),
    [("mo:4, ko:2", "[8*mo, 4*ko]", "[8*mo]"), ("mo:5", "[6*mo, 0]", "[6*mo]")],
    ids=["parts of a sum", "tiles that overlap"],
)
def test_where_several_points_write_an_element_they_add(outer: str, a: str, c: str) -> None:
    program = made(outer, a, c, depth=4 if "ko" in outer else 8)
    result, _ = check_pass(program, Localize(accumulators="REG"), target(1024))
    assert hows(result.root)[0] == "add"


def test_without_accumulators_the_sum_begins_where_it_is_added_up() -> None:
    program = made("mo:4", "[8*mo, 0]", "[8*mo]")
    result, remarks = check_pass(program, Localize(accumulators="REG"), target(16))
    assert any("exceed" in remark.message for remark in remarks)
    assert hows(result.root) == ["assign", "add"]


def test_a_block_alone_stays() -> None:
    root = made("mo:4", "[8*mo, 0]", "[8*mo]").root.children[0]
    assert written_once(root) is root
