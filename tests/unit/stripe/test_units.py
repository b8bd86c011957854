"""stripe.analysis.units: who executes a statement, and whether it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwconfigs.load import load
from hwconfigs.model import Unit
from stripe.analysis.units import executes, is_copy, reaches, unit_of
from stripe.ir import Block, Special
from stripe.parser import parse
from stripe.visit import View, views_of

TINY = load(Path(__file__).parents[2] / "golden" / "targets" / "tiny.json")

HEAD = """block main [] (
  in A[0, 0] f32(8, 8):(8, 1) @SPAD
  in B[0, 0] f32(8, 8):(8, 1) @SRAM
  out C[0, 0]:assign f32(8, 8):(8, 1) @SPAD
) {
%s
}"""


def block(text: str) -> tuple[Block, dict[str, View]]:
    root = parse(HEAD % text).root
    return root.children[0], views_of(root, {})


def unit(name: str) -> Unit:
    found = TINY.unit(name)
    assert found is not None
    return found


def refusal(name: str, text: str, memories: dict[str, str] | None = None) -> str:
    leaf, views = block(text)
    return executes(unit(name), leaf, TINY, views, memories)


def product(sizes: str, *, op: str = "add") -> str:
    return f"""block b [{sizes}] (in A[i, k] f32(1, 1) in B[k, j] f32(1, 1) out C[i, j]:{op} f32(1, 1)) {{
      $a = load(A) $b = load(B) $c = mul($a, $b) C = store($c) }}"""


COPY = "block b [x:8, y:8] (in A[x, y] f32(1, 1) out C[y, x]:%s f32(1, 1)) { $a = load(A) C = store($a) }"


def test_every_unit_copies() -> None:
    for name in ("DMA", "VPU", "MAC", "CORE"):
        assert refusal(name, COPY % "assign") == ""
    assert refusal("DMA", COPY % "add").startswith("DMA is a transfer unit")
    assert refusal("VPU", COPY % "add") == ""
    assert "does not compute 'max'" in refusal("VPU", COPY % "max")


@pytest.mark.parametrize(
    "statements", ["$a = load(A) $b = load(A) C = store($a)", "$a = constant(1.0) f32 C = store($a)"]
)
def test_more_or_less_than_load_and_store_is_no_copy(statements: str) -> None:
    leaf, _ = block(
        f"block b [x:8, y:8] (in A[x, y] f32(1, 1) out C[x, y]:assign f32(1, 1)) {{ {statements} }}"
    )
    assert not is_copy(leaf)


def test_uses_of_a_stencil_need_no_operations() -> None:
    assert refusal("MAC", product("i:4, j:4, k:4")) == ""
    assert refusal("MAC", product("k:4, j:4, i:4")) == ""
    assert "it is no use of mac4" in refusal("MAC", product("i:4, j:8, k:4"))
    assert "it is no use of mac4" in refusal("MAC", product("i:4, j:4, k:4", op="max"))
    assert refusal("MAC", product("i:4, j:4, k:4"), {"A": "SPAD", "B": "SRAM"}) == ""
    wrong = refusal("MAC", product("i:4, j:4, k:4"), {"A": "SRAM", "B": "SRAM"})
    assert "lies in SRAM, not SPAD" in wrong


def test_masks_of_comparisons_have_no_type() -> None:
    text = """block b [x:8, y:8] (in A[x, y] f32(1, 1) out C[x, y]:assign f32(1, 1)) {
      $a = load(A) $b = add($a, $a) $p = %s C = store($a) }"""
    assert refusal("CORE", text % "lt($a, $b) bool") == ""
    assert "does not take i64" in refusal("VPU", text % "index(x) i64")


def test_specials_are_named() -> None:
    root = parse(
        "block main [] (in D[0] f32(4):(1) in I[0] i32(2):(1) out R[0]:assign f32(2):(1)) {\n"
        "special gather(in D, in I, out R:assign) {axis=0}\n}"
    ).root
    (special,) = root.statements
    assert isinstance(special, Special)
    views = views_of(root, {})
    assert "executes no special" in executes(unit("DMA"), special, TINY, views)
    assert "does not execute 'gather'" in executes(unit("VPU"), special, TINY, views)
    assert executes(unit("CORE"), special, TINY, views) == ""


def test_the_nearest_location_counts() -> None:
    root = parse(
        "block main [] @VPU () {\nblock a [c:4] @CORE[c] () {\nblock b [] () { }\n}\nblock d [] () { }\n}"
    ).root
    a, d = root.children
    found = unit_of((root, a, a.children[0]))
    assert found is not None and (found[0], str(found[1].bank)) == (1, "c")
    found = unit_of((root, d))
    assert found is not None and (found[0], found[1].unit) == (0, "VPU")
    assert unit_of((Block("main"),)) is None


def test_reasons_name_what_there_is() -> None:
    assert reaches(unit("VPU"), "SPAD") == ""
    assert reaches(unit("VPU"), "DRAM") == "VPU does not reach DRAM: it reaches SPAD, SRAM"
