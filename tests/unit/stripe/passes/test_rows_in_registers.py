"""Instructions on registers that hold rows, from the JSON to blocks of their size: which programs get them,
and what passes do for them."""

from __future__ import annotations

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.bounds import leaves
from stripe.analysis.groups import group_index, grouped
from stripe.analysis.stencils_groups import in_tiles, instructions
from stripe.diag import Remark
from stripe.ir import Block, Direction, Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.boundary import Boundary
from stripe.passes.fuse import Fuse
from stripe.passes.pipeline import run_pipeline
from stripe.passes.stencil_pack import StencilPack
from stripe.passes.unroll import Unroll
from stripe.visit import views_of, walk
from tests.support.executions import pipeline
from tests.support.passes import check_pass, program_of
from tests.unit.stripe.passes.test_stencil_pack import only_kernel, product

AMX, VNNI = load_named("x86_64_amx"), load_named("x86_64_avx512_vnni")


def said(remarks: list[Remark], word: str) -> bool:
    return any(word in remark.message for remark in remarks)


def test_the_config_names_five_instructions_and_their_registers() -> None:
    found = {made.stencil.name: made for made in instructions(AMX) if made.tiles is not None}
    assert set(found) == {"tdpbusd", "tdpbsud", "tdpbssd", "tdpbuud", "tdpbf16ps"}
    made = found["tdpbf16ps"]
    assert made.tiles is not None
    assert (made.lane, made.group, made.size, made.tiles.row, made.tiles.step) == ("j", "p", 2, "i", "k")
    assert (made.tiles.registers, made.tiles.row_bytes) == (8, 64)
    assert made.cycles({"i": 33, "j": 16, "k": 17}, 16) == 3 * 2 * 16


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": {}},
        {"memory": {"x": "TILES", "y": "TILES", "acc": "REG"}},
        {"operands": {"x": ("k", "j", "p"), "y": ("i", "k", "p"), "acc": ("i", "j")}},
        {"stride": {"x": {"p": 1}, "y": {"p": 1, "j": 4}, "acc": {"j": 1}}},
        {"types": {"x": "i16", "y": "i16", "acc": "i32"}},
        {"intrinsic": ""},
    ],
)
def test_a_stencil_of_another_form_is_no_such_instruction(changes: dict[str, object]) -> None:
    stencil = AMX.stencil("tdpbusd")
    assert stencil is not None and in_tiles(stencil, AMX) is not None
    assert in_tiles(msgspec.structs.replace(stencil, **changes), AMX) is None


@pytest.mark.parametrize(
    ("x", "y", "name"),
    [("u8", "i8", "tdpbusd"), ("i8", "u8", "tdpbsud"), ("i8", "i8", "tdpbssd"), ("u8", "u8", "tdpbuud")],
)
def test_bytes_of_every_signedness_are_taken_as_they_are(x: str, y: str, name: str) -> None:
    """No operand is shifted, as it must be for VNNI; the layout is the same."""
    made, remarks = check_pass(program_of(product(48, 64, 64, x, y)), StencilPack(), AMX)
    assert said(remarks, f"laid out for '{name}'") and not said(remarks, "shifted")
    assert only_kernel(made).ranges == {"m": 48, "n": 64, "k": 16, "p": 4}


def test_one_row_is_laid_out_for_the_instruction_on_vectors() -> None:
    _, remarks = check_pass(program_of(product(1, 64, 64)), StencilPack(), AMX)
    assert said(remarks, "laid out for 'vpdpbusd'")


def tiled(m: int, n: int, k: int, hw: HwConfig = AMX) -> tuple[Program, list[Remark]]:
    context = PassContext(hw)
    packed = StencilPack().run(program_of(product(m, n, k)), context)
    return Autotile(memory="REG").run(packed, context), context.remarks


def blocks(program: Program, tag: str) -> list[Block]:
    return [block for _, block in walk(program.root) if block.has_tag(tag)]


def test_tiles_are_as_large_as_the_registers() -> None:
    made, remarks = tiled(256, 256, 256)
    (kernel,) = blocks(made, "group")
    rows, lanes = kernel.ranges["m"], kernel.ranges["n"]
    assert rows % 16 == lanes % 16 == 0 and rows * lanes >= 4 * 256
    assert said(remarks, "of 8 registers of 'tdpbusd'")
    assert list(kernel.ranges)[:2] == ["k", "p"]  # what is summed up is around the results
    vectors, remarks = tiled(256, 256, 256, VNNI)
    assert blocks(vectors, "group")[0].ranges["m"] < 16 and said(remarks, "vector registers of CORE")


def turned(m: int, n: int, k: int, const: bool = False) -> str:
    """A product of `bf16` whose B lies transposed."""
    text = product(m, n, k, "bf16", "bf16", to="f32", const=const)
    return text.replace("B[k, n]", "B[n, k]").replace(f"({k}, {n}):({n}, 1)", f"({n}, {k}):({k}, 1)")


def through(text: str, fused: bool = True) -> Program:
    """A program after the passes of the target; if not `fused`, without those that join blocks."""
    passes = [step for step in pipeline("x86_64_amx") if fused or not isinstance(step, Fuse)]
    return run_pipeline(program_of(text), passes, AMX, verify="off")


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (2000, 4100)])
def test_pieces_of_a_sum_are_whole_registers(n: int, k: int) -> None:
    """Groups of which a sum has no multiple of 16 are in a piece of their own, which no test tells from the
    others: the instruction takes all of them."""
    made = through(product(32, n, k, const=False), fused=False)
    found = blocks(made, "group")
    steps = {block.ranges.get("k", 1) for block in found}
    assert max(steps) < k // 4, "the sum is cut"
    assert {size % 16 for size in steps} <= {0, k // 4 % 16}
    assert not any(block.constraints for block in found)


def test_rows_that_crowd_are_read_by_whole_registers() -> None:
    """Rows of A are 4 KiB apart, so that few of them stay in the nearest cache; but one load takes all that
    it needs of 16 of them."""
    found = blocks(through(product(32, 4096, 4096)), "group")
    assert {block.ranges["m"] % 16 for block in found} == {0}


def test_a_copy_keeps_groups_together() -> None:
    """B lies transposed and never changes: its copy at load time has panels, in which pairs stay pairs."""
    made = through(turned(64, 512, 512, const=True))
    found = [
        operand.stride(group_index(leaf))
        for child in made.root.children
        for leaf in leaves(child, views_of(made.root, {}))
        for operand in leaf.operands
        if operand.direction is Direction.IN
    ]
    assert found and set(found) == {1}


def test_no_corner_is_left_with_tests() -> None:
    """The last rows of the last columns are few; without the instruction they would take ten times as long as
    others."""
    kernels = [
        block for block in blocks(through(turned(100, 3000, 600)), "group") if len(block.statements) > 2
    ]
    assert kernels and not any(block.constraints for block in kernels)


DENSE = """
    block main [] (
      in A[0, 0] bf16(128, 1024)  in B[0, 0] bf16(1024, 1024)  in V[0] f32(1024)
      out R[0, 0]:assign f32(128, 1024)  new C f32(128, 1024)
    ) {
      block C [m:128, n:1024, k:1024] (
        in A[m, k] bf16(1, 1)  in B[n, k] bf16(1, 1)  out C[m, n]:add f32(1, 1)
      ) {
        $a = load(A) bf16
        $b = load(B) bf16
        $x = cast($a) f32
        $y = cast($b) f32
        $p = mul($x, $y) f32
        C = store($p)
      }
      block R [m:128, n:1024] (
        in C[m, n] f32(1, 1)  in V[n] f32(1)  out R[m, n]:assign f32(1, 1)
      ) {
        $c = load(C) f32
        $v = load(V) f32
        $s = add($c, $v) f32
        R = store($s)
      }
    }
"""


@pytest.mark.parametrize(
    "text",
    [DENSE, turned(128, 1024, 1024)],
    ids=["with a bias", "alone"],
)
def test_results_across_the_lanes_are_gathered_in_such_registers(text: str) -> None:
    """B is the larger one and lies transposed: lanes go along the rows of A, of which a copy is made, and
    results lie across them."""
    made = through(text)
    held = [(r.location, r.strides or ()) for _, b in walk(made.root) for r in b.refinements if r.location]
    assert {(place.unit, min(strides)) for place, strides in held} == {("TILES", 1)}
    kernels = [block for block in blocks(made, "group") if len(block.statements) > 2]  # no copies
    assert {(b.tag_values("vector"), b.ranges["m"] % 16) for b in kernels} == {(("m",), 0)}


def leaf(rule: str, tags: str) -> str:
    return f"""
    block main [] (
      in A[0, 0] u8(32, 1024):(1024, 1)
      in B[0, 0, 0] i8(256, 600, 4):(2400, 4, 1)
      out C[0, 0]:assign i32(32, 600):(600, 1)
    ) {{
      block C [no:7] (
        in A[0, 0] u8(32, 1024)
        in B[0, 96*no, 0] i8(256, 96, 4)
        out C[0, 96*no]:add i32(32, 96)
      ) #tiled {{
        block C [k:256, p:4, m:32, n:96, no = no] (
          {rule}
          in A[m, 4*k + p] u8(1, 1)
          in B[k, n, p] i8(1, 1, 1)
          out C[m, n]:add i32(1, 1)
        ) #group=p {tags} {{
          $a = load(A) u8
          $b = load(B) i8
          $x = cast($a) i32
          $y = cast($b) i32
          $p = mul($x, $y) i32
          C = store($p)
        }}
      }}
    }}
    """


RULE = "599 - n - 96*no >= 0"


def test_results_in_such_registers_are_written_out() -> None:
    made, _ = check_pass(program_of(leaf(RULE, "#vector=n")), Unroll(), AMX)
    assert set(blocks(made, "group")[0].tag_values("unroll")) == {"m", "n"}
    made, _ = check_pass(program_of(leaf(RULE, "#vector=n")), Unroll(), VNNI)
    assert not {"m", "n"} <= set(blocks(made, "group")[0].tag_values("unroll"))


def test_lanes_that_are_left_get_a_tile_of_their_own() -> None:
    """Nothing masks a register of rows."""
    program = program_of(leaf(RULE, "#vector=n #unroll=m #unroll=n"))
    made, remarks = check_pass(program, Boundary(), AMX)
    found = blocks(made, "group")
    assert [block.ranges["n"] for block in found] == [96, 24]
    assert not any(block.constraints for block in found)
    assert said(remarks, "split no at 6")


def test_words_of_a_buffer_of_each_tile_are_words() -> None:
    """It has a dimension for the tiles in front, which is none in memory."""
    text = """
    block main [] (
      in A[0, 0] bf16(32, 64):(64, 1)  in B[0, 0] bf16(64, 64):(64, 1)  out C[0, 0]:assign f32(32, 64):(64, 1)
    ) {
      block t [no:4] (
        in A[0, 0] bf16(32, 64)  in B[0, 16*no] bf16(64, 16)  out C[0, 16*no]:assign f32(32, 16)
        new P bf16(32, 16, 2):(32, 2, 1)
      ) {
        block pack [d0:32, d1:16, p:2] (
          in B[2*d0 + p, d1] bf16(1, 1)  out P[d0, d1, p]:assign bf16(1, 1, 1)
        ) {
          $v = load(B)
          P = store($v)
        }
        block c [k:32, p:2, m:32, n:16] (
          in A[m, 2*k + p] bf16(1, 1)  in P[k, n, p] bf16(1, 1, 1)  out C[m, n]:add f32(1, 1)
        ) #group=p {
          $a = load(A)
          $b = load(P)
          $x = cast($a) f32
          $y = cast($b) f32
          $p = mul($x, $y)
          C = store($p)
        }
      }
    }
    """
    program = program_of(text)
    (tile,) = program.root.children
    found = [f for f in leaves(tile, views_of(program.root, {})) if f.block.has_tag("group")]
    assert [grouped(f) is f for f in found] == [False]


def test_the_whole_pipeline_keeps_the_layout_that_the_instruction_needs() -> None:
    made = run_pipeline(program_of(product(64, 96, 128)), pipeline("x86_64_amx"), AMX)
    for kernel in blocks(made, "group"):
        assert not kernel.constraints and kernel.tag_values("vector") == ("n",)
        assert set(kernel.tag_values("unroll")) >= {"m", "n"}


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        pytest.param(32, 4096, 4096, 96, id="B and its copy are larger than L2"),
        pytest.param(196, 256, 2304, 64, id="together they are"),
        pytest.param(512, 512, 512, None, id="both stay there"),
    ],
)
def test_what_is_laid_out_for_registers_stays_in_a_cache(m: int, n: int, k: int, tile: int | None) -> None:
    """It is laid out in the tiles that use it, of whole registers, where it would be gone from L2 before all
    of it is: the instruction is so fast that little else matters."""
    text = product(m, n, k, "bf16", "bf16", to="f32", const=False)
    found = [r for _, b in walk(through(text).root) for r in b.refinements if r.name == "B_packed"]
    made = next(r for r in found if r.direction is Direction.NEW)
    assert made.shape[1] == (tile or n)
