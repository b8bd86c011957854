"""transfer: copies between memories, made explicit."""

from __future__ import annotations

import numpy as np
import pytest

from hwconfigs.model import HwConfig
from stripe.arena import interpret_placed
from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.ir import Block, Program, Special
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import make_passes, parse_pipeline
from stripe.passes.transfer import Transfer
from stripe.passes.transfer_chosen import Past
from stripe.printer import to_text
from stripe.verify_ready import unplaced
from stripe.visit import walk
from tests.support.machines import array_machine
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of
from tile_frontend import compile_tile

HW = array_machine()
WHOLE = (
    "canonicalize,fuse,localize,scalarize,canonicalize,stencil,autotile{memory=SPAD},"
    "localize{accumulators=ACC},transfer,schedule,place"
)


def blocks(program: Program) -> dict[str, Block]:
    return {"/".join(path): block for path, block in walk(program.root)}


def copies(program: Program) -> list[str]:
    return [path for path, b in blocks(program).items() if b.location and b.location.unit == "DMA"]


TILED = """
    block main [] (in A[0] f32(50):(1)  in B[0] f32(50):(1)  out R[0]:assign f32(50):(1)) {
      block t [o:4] (in A[16*o] f32(16)  in B[16*o] f32(16)  out R[16*o]:assign f32(16)
                     new T f32(16):(1)) #tiled {
        block p [x:16, b = 16*o] (49 - b - x >= 0
          in A[x] f32(1)  in B[x] f32(1)  out T[x]:assign f32(1)) {
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          T = store($c) }
        block s [x:16, b = 16*o] (49 - b - x >= 0
          in A[x] f32(1)  in T[x] f32(1)  out R[x]:assign f32(1)) {
          $a = load(A) f32
          $t = load(T) f32
          $r = add($a, $t) f32
          R = store($r) } } }
"""


def test_statements_of_a_tile_share_a_copy_and_only_elements_inside_are_copied() -> None:
    result, _ = check_pass(program_of(TILED), Transfer(), HW)
    assert copies(result) == ["main/t/A_load", "main/t/B_load", "main/t/R_store"]
    load = blocks(result)["main/t/A_load"]
    assert [str(c.expr) for c in load.constraints] == ["49 - 16*o - x"]
    memories = {r.name: r.location.unit for r in blocks(result)["main/t"].refinements if r.location}
    assert memories == {"T": "SPAD", "A_SPAD": "SPAD", "B_SPAD": "SPAD", "R_SPAD": "SPAD"}


# Each tile adds W: {view} is the tile's view of it, {use} what its statement reads of that view.
ALIKE = """
    block main [] (in A[0] f32(64):(1)  in W[0] f32(64):(1)  out R[0]:assign f32(64):(1)) {{
      block t [o:{tiles}] (in A[16*o] f32(16)  in W[{view}] f32({size})  out R[16*o]:assign f32(16)) #tiled {{
        block r [x:16, b = o] (in A[x] f32(1)  in W[{use}] f32(1)  out R[x]:assign f32(1)) {{
          $a = load(A) f32
          $w = load(W) f32
          $r = add($a, $w) f32
          R = store($r) }} }} }}
"""


@pytest.mark.parametrize(
    ("tiles", "view", "size", "use", "once"),
    [
        (4, "0", 16, "x", True),
        (4, "8", 16, "15 - x", True),
        (4, "16*o", 16, "x", False),  # each tile reads a part of its own,
        (4, "0", 64, "x + 16*b", False),  # also where its view does not say so
        (1, "0", 16, "x", False),  # one tile: the copy is made in it
    ],
)
def test_what_all_tiles_read_alike_is_copied_once(
    tiles: int, view: str, size: int, use: str, once: bool
) -> None:
    text = ALIKE.format(tiles=tiles, view=view, size=size, use=use)
    program = program_of(text.replace("f32(64):(1)) {", f"f32({16 * tiles}):(1)) {{", 1))
    result, _ = check_pass(program, Transfer(), HW)
    assert ("main/W_load" in copies(result)) == once
    assert ("main/t/W_load" in copies(result)) != once
    held = blocks(result)["main" if once else "main/t"].refinement("W_SPAD")
    assert held.shape == (16,)


def test_copies_that_are_smaller_together_than_one_around_them_stay_in_the_tiles() -> None:
    text = """
        block main [] (in W[0] f32(64):(1)  out R[0]:assign f32(32):(1)  out Q[0]:assign f32(32):(1)) {
          block t [o:4] (in W[0] f32(64)  out R[8*o]:assign f32(8)  out Q[8*o]:assign f32(8)) #tiled {
            block r [x:8] (in W[x] f32(1)  out R[x]:assign f32(1)) {
              $w = load(W) f32
              $r = add($w, $w) f32
              R = store($r) }
            block q [x:8] (in W[x + FIRST] f32(1)  out Q[x]:assign f32(1)) {
              $w = load(W) f32
              $q = mul($w, $w) f32
              Q = store($q) } } }
    """
    apart, _ = check_pass(program_of(text.replace("FIRST", "56")), Transfer(), HW)
    loads = [path for path, b in walk(apart.root) if b.name.startswith("W_load")]
    assert loads == [("main", "t", "W_load")] * 2
    together, _ = check_pass(program_of(text.replace("FIRST", "8")), Transfer(), HW)
    assert [path for path in copies(together) if "W_load" in path] == ["main/W_load"]


def test_what_is_the_same_for_an_inner_level_of_tiles_is_copied_in_the_outer_one() -> None:
    text = """
        block main [] (in A[0, 0] f32(32, 32):(32, 1)  in W[0] f32(32):(1)
                       out R[0, 0]:assign f32(32, 32):(32, 1)) {
          block n [no:2] (in A[0, 16*no] f32(32, 16)  in W[16*no] f32(16)
                          out R[0, 16*no]:assign f32(32, 16)) #tiled #fits=SPAD {
            block m [mo:4] (in A[8*mo, 0] f32(8, 16)  in W[0] f32(16)
                            out R[8*mo, 0]:assign f32(8, 16)) #tiled #fits=SPAD {
              block r [m:8, n:16] (in A[m, n] f32(1, 1)  in W[n] f32(1)  out R[m, n]:assign f32(1, 1)) {
                $a = load(A) f32
                $w = load(W) f32
                $r = mul($a, $w) f32
                R = store($r) } } } }
    """
    result, _ = check_pass(program_of(text), Transfer(), HW)
    assert copies(result) == ["main/n/W_load", "main/n/m/A_load", "main/n/m/R_store"]


def test_the_units_that_are_able_execute() -> None:
    result, _ = check_pass(program_of(TILED), Transfer(), HW)
    assert {
        b.location.unit for p, b in blocks(result).items() if p in ("main/t/p", "main/t/s") and b.location
    } == {"VPU"}


def test_a_kernel_without_tiles_works_on_copies_of_what_it_touches() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] f32(8, 8):(8, 1)  out R[0]:assign f32(8):(1)) {
          block r [x:8] (in A[x, x] f32(1, 1)  out R[x]:assign f32(1)) {
            $a = load(A) f32
            $b = add($a, $a) f32
            R = store($b) } }
        """
    )
    result, _ = check_pass(program, Transfer(), HW)
    load = blocks(result)["main/A_load"]
    assert load.ranges == {"x": 8, "x_1": 8} or len(load.constraints) == 2  # the diagonal alone
    assert len(load.constraints) == 2


def test_what_is_written_before_it_is_read_is_not_loaded() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(32):(1)  out R[0]:assign f32(32):(1)  out Q[0]:assign f32(32):(1)) {
          block t [o:2] (in A[16*o] f32(16)  out R[16*o]:assign f32(16)  out Q[16*o]:assign f32(16)) #tiled {
            block r [x:16] (in A[x] f32(1)  out R[x]:assign f32(1)) {
              $a = load(A) f32
              $r = add($a, $a) f32
              R = store($r) }
            block q [x:16] (in R[x] f32(1)  out Q[x]:assign f32(1)) {
              $r = load(R) f32
              $q = mul($r, $r) f32
              Q = store($q) } } }
        """
    )
    result, _ = check_pass(program, Transfer(), HW)
    assert copies(result) == ["main/t/A_load", "main/t/R_store", "main/t/Q_store"] or copies(result) == [
        "main/t/A_load", "main/t/Q_store", "main/t/R_store",
    ]  # fmt: skip


def test_a_copy_of_a_user_is_done_by_the_transfer_unit_where_it_lies() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] f32(4, 6):(6, 1)  out R[0, 0]:assign f32(6, 4):(4, 1)) {
          block r [x:6, y:4] (in A[y, x] f32(1, 1)  out R[x, y]:assign f32(1, 1)) {
            $a = load(A) f32
            R = store($a) } }
        """
    )
    result, _ = check_pass(program, Transfer(), HW)
    assert copies(result) == ["main/r"]


def test_a_copy_out_of_near_memory_goes_straight_though_another_unit_copies_faster() -> None:
    """VPU moves 16 elements a cycle, but not to where R lies; DMA 8 bytes."""
    slow = {"name": "DMA", "kind": "transfer", "bytes_per_cycle": 8, "reaches": ["SPAD", "DRAM"]}
    hw = array_machine(units=[{"name": "VPU", "vector_bytes": 64, "reaches": ["SPAD"]}, slow], stencils=[])
    program = program_of(
        """
        block main [] (in A[0] f32(64):(1)  out R[0]:assign f32(64):(1)) {
          block t [o:4] (in A[16*o] f32(16)  out R[16*o]:assign f32(16)  new T f32(16):(1)) #tiled {
            block p [x:16] (in A[x] f32(1)  out T[x]:assign f32(1)) {
              $a = load(A) f32
              $b = mul($a, $a) f32
              T = store($b) }
            block c [x:16] (in T[x] f32(1)  out R[x]:assign f32(1)) {
              $t = load(T) f32
              R = store($t) } } }
        """
    )
    result, _ = check_pass(program, Transfer(), hw)
    assert copies(result) == ["main/t/A_load", "main/t/c"]


def test_strided_elements_are_stored_one_by_one() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(8):(1)  out R[0]:assign f32(16):(1)) {
          block z [x:8] (in A[x] f32(1)  out R[2*x]:assign f32(1)) {
            $a = load(A) f32
            $b = add($a, $a) f32
            R = store($b) }
          block o [x:8] (in A[x] f32(1)  out R[2*x + 1]:assign f32(1)) {
            $a = load(A) f32
            $b = mul($a, $a) f32
            R = store($b) } }
        """
    )
    result, _ = check_pass(program, Transfer(), HW)
    stores = [s for s in result.root.children if s.name == "R_store"]
    assert [s.ranges for s in stores] == [{"x": 8}, {"x": 8}]


def test_a_target_without_managed_memory_is_left_alone() -> None:
    context = PassContext(HwConfig("plain", "nothing", "interpreter"))
    program = program_of(TILED)
    assert Transfer().run(program, context) is program
    assert [r.acted for r in context.remarks] == [False]


def test_a_copy_in_a_memory_that_a_stencil_asks_for_serves_all_that_is_below() -> None:
    """The columns of the array lie in a memory of their own; the nest of its uses takes them from there."""
    memories = [
        {"name": "COLS", "kind": "registers", "bytes": 65536, "align_bytes": 64},
        {"name": "ACC", "kind": "registers", "bytes": 65536, "align_bytes": 64, "backing": "SPAD"},
        {"name": "SPAD", "kind": "explicit", "bytes": 65536, "align_bytes": 64, "backing": "DRAM"},
        {"name": "DRAM", "kind": "explicit", "align_bytes": 64},
    ]
    stencil = {
        "name": "mac4", "unit": "MAC", "body": "acc += x * y", "cycles": "4",
        "indices": {"i": 4, "j": 4, "p": 4},
        "operands": {"x": ["i", "p"], "y": ["p", "j"], "acc": ["i", "j"]},
        "types": {"x": "f32", "y": "f32", "acc": "f32"},
        "memory": {"x": "SPAD", "y": "COLS", "acc": "ACC"},
    }  # fmt: skip
    units = [
        {"name": "MAC", "reaches": ["SPAD", "COLS", "ACC"], "operations": [], "specials": []},
        {"name": "VPU", "reaches": ["SPAD", "ACC"]},
        {"name": "DMA", "kind": "transfer", "reaches": ["SPAD", "COLS", "DRAM"]},
    ]
    hw = array_machine(memories=memories, units=units, stencils=[stencil])
    program = program_of(
        """
        block main [] (in A[0, 0] f32(8, 12):(12, 1)  in B[0, 0] f32(12, 8):(8, 1)
                       out R[0, 0]:assign f32(8, 8):(8, 1)) {
          block R [] (in A[0, 0] f32(8, 12)  in B[0, 0] f32(12, 8)  out R[0, 0]:assign f32(8, 8)
                      new C f32(8, 8):(8, 1) @ACC) #tiled {
            block C [kt:3] (in A[0, 4*kt] f32(8, 4)  in B[4*kt, 0] f32(4, 8)
                            out C[0, 0]:add f32(8, 8)) #tiled {
              block C [mi:2, ni:2] (in A[4*mi, 0] f32(4, 4)  in B[0, 4*ni] f32(4, 4)
                                    out C[4*mi, 4*ni]:add f32(4, 4)) {
                block C [m:4, n:4, k:4] (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)
                                         out C[m, n]:add f32(1, 1)) #stencil=mac4 {
                  $a = load(A) f32
                  $b = load(B) f32
                  $c = mul($a, $b) f32
                  C = store($c) } } }
            block R [m:8, n:8] (in C[m, n] f32(1, 1)  out R[m, n]:assign f32(1, 1)) {
              $c = load(C) f32
              $z = constant(0.0) f32
              $r = max($c, $z) f32
              R = store($r) } } }
        """
    )
    result, _ = check_pass(program, Transfer(), hw)
    assert copies(result) == ["main/R/C/A_load", "main/R/C/B_load", "main/R/R_store"]
    held = {r.name: r.location.unit for b in blocks(result).values() for r in b.refinements if r.location}
    assert (held["A_SPAD"], held["B_COLS"], held["R_SPAD"]) == ("SPAD", "COLS", "SPAD")


def refusal(text: str, hw: HwConfig, unit: str = "") -> tuple[str, str]:
    with pytest.raises(CompileError) as caught:
        Transfer(unit=unit).run(program_of(text), PassContext(hw))
    (found,) = caught.value.diagnostics
    return found.code, found.render()


def test_no_unit_can_execute() -> None:
    weak = array_machine(units=[
        {"name": "VPU", "reaches": ["SPAD", "ACC"], "operations": ["add"]},
        {"name": "DMA", "kind": "transfer", "reaches": ["SPAD", "DRAM"]},
    ], stencils=[])  # fmt: skip
    code, text = refusal(TILED, weak)
    assert code == "P150"
    assert "transfer: no unit of" in text and "main/t/p" in text
    assert "VPU does not compute 'mul'" in text and "= help: give a unit what is missing" in text
    assert "DMA" in text


GATHER = """
    block main [] (in D[0, 0] f32(64, 16)  in I[0] i32(4)  out R[0, 0]:assign f32(4, 16)) {
      special gather(in D, in I, out R:assign) {axis=0} LOCATION
    }
"""


@pytest.mark.parametrize(
    ("location", "code", "where"),
    [
        ("", "P150", "can execute 'main, special gather'"),
        ("@VPU", "P156", "transfer: 'main, special gather'"),
    ],
)
def test_operands_of_a_special_that_are_larger_than_the_near_memory(
    location: str, code: str, where: str
) -> None:
    """A special works on whole operands: no tile makes them smaller."""
    text = GATHER.replace("LOCATION", location)
    found, shown = refusal(text, array_machine(spad=4096))
    assert found == code and where in shown
    assert "take 4368 bytes ('D' 4096, 'I' 16, 'R' 256), 272 more than the 4096 of SPAD" in shown
    assert "help: smaller operands" in shown
    result = Transfer().run(program_of(text), PassContext(array_machine(spad=8192)))
    assert "D_SPAD" in to_text(result)


def test_a_unit_that_reaches_its_operands_executes_a_large_special() -> None:
    slow = {"name": "SCALAR", "vector_bytes": 4, "reaches": ["SPAD", "DRAM"], "specials": ["gather"]}
    units = [
        {"name": "VPU", "vector_bytes": 64, "reaches": ["SPAD"]},
        slow,
        {"name": "DMA", "kind": "transfer", "reaches": ["SPAD", "DRAM"], "operations": [], "specials": []},
    ]
    program = program_of(GATHER.replace("LOCATION", ""))
    for size, name in ((4096, "SCALAR"), (8192, "VPU")):
        hw = array_machine(spad=size, units=units, stencils=[])
        (special,) = [
            s for s in Transfer().run(program, PassContext(hw)).root.statements if isinstance(s, Special)
        ]
        assert special.location is not None and special.location.unit == name


def test_nothing_moves_between_the_memories() -> None:
    cut = array_machine(units=[{"name": "VPU", "reaches": ["SPAD"]}], stencils=[])
    code, text = refusal(TILED, cut)
    assert code == "P153"
    assert "no unit reaches both DRAM and SPAD" in text


def test_the_unit_asked_for_must_reach_both_memories() -> None:
    code, text = refusal(TILED, HW, unit="VPU")
    assert code == "P153"
    assert "VPU does not reach both DRAM and SPAD" in text


def test_a_result_that_tiles_combine_must_fit() -> None:
    small = array_machine(spad=4096)
    text = """
        block main [] (in A[0, 0] f32(8, 2000):(2000, 1)  out R[0]:assign f32(2000):(1)) {
          block t [o:2] (in A[4*o, 0] f32(4, 2000)  out R[0]:add f32(2000)) #tiled {
            block r [m:4, n:2000] (in A[m, n] f32(1, 1)  out R[n]:add f32(1)) {
              $a = load(A) f32
              R = store($a) } } }
    """
    code, shown = refusal(text, small)
    assert code == "P154"
    assert "main/t" in shown


TWO_VIEWS = """
    block main [] (in A[0, 0] f32(10, 8):(8, 1)  out R[0]:assign f32(16):(1)) {
      block t [nt:2] (in A[0, 4*nt] f32(10, 4)
                      out R[8*nt]:add f32(4)  out Q = R[8*nt + 4]:add f32(4)) #tiled {
        block one [m:10, n:4] (in A[m, n] f32(1, 1)  out R[n]:add f32(1)) {
          $a = load(A) f32
          R = store($a) }
        block two [m:10, n:4] (in A[m, n] f32(1, 1)  out Q[n]:add f32(1)) {
          $a = load(A) f32
          Q = store($a) }
        block three [m:10, n:4] (in A[m, n] f32(1, 1)  out Q[n]:add f32(1)) {
          $a = load(A) f32
          $b = mul($a, $a) f32
          Q = store($b) } } }
"""


def test_what_is_added_up_behind_one_of_two_views_is_not_just_copied() -> None:
    code, shown = refusal(TWO_VIEWS, HW)
    assert code == "P154"
    assert "main/t" in shown


def squares(filled: int) -> str:
    """Stores to eleven elements that no few sets describe, behind a statement that writes the first ones."""
    places = [n * n for n in range(11)]
    views = "  ".join(f"out R{n} = R[{n}]:assign f32(1)" for n in places)
    stores = "  ".join(f"R{n} = store($b)" for n in places)
    return f"""
        block main [] (in A[0] f32(1):(1)  out R[0]:assign f32(101):(1)) {{
          block z [x:{filled}] (out R[x]:assign f32(1)) {{
            $z = constant(0.0) f32
            R = store($z) }}
          block s [] (in A[0] f32(1)  {views}) {{
            $a = load(A) f32
            $b = add($a, $a) f32
            {stores} }} }}
    """


def test_results_that_are_hard_to_describe_are_stored_with_what_lies_between_them() -> None:
    result, _ = check_pass(program_of(squares(101)), Transfer(), HW)
    assert copies(result) == ["main/R_store", "main/R_load", "main/A_load"]


def test_what_was_not_written_whole_before_is_not_loaded_to_be_stored_again() -> None:
    code, shown = refusal(squares(100), HW)
    assert code == "P155"
    assert "the elements of 'R' that 'main/s' writes are not a few sets" in shown


PROGRAMS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "matmul": (
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n : M, N] = +(A[m, k] * B[k, n]); S = C + D; "
        "R = (S > 0 ? S : 0); }",
        {"A": (100, 96), "B": (96, 80), "D": (80,)},
    ),
    "conv": (
        "function (I[H, W, C], F[KH, KW, C, O]) -> (R) { "
        "R[x, y, o : H, W, O] = +(I[x + i - 1, y + j - 1, c] * F[i, j, c, o]); }",
        {"I": (14, 14, 16), "F": (3, 3, 16, 24)},
    ),
    "two": (
        "function (A[M, K], B[K, N], D[N, P]) -> (R) { C[m, n : M, N] = +(A[m, k] * B[k, n]); "
        "R[m, p : M, P] = +(C[m, k] * D[k, p]); }",
        {"A": (40, 50), "B": (50, 30), "D": (30, 20)},
    ),
    "columns": ("function (A[M, N]) -> (R) { R[n : N] = +(A[m, n]); }", {"A": (500, 300)}),
    "gather": (
        "function (A[M, N], I[K]) -> (R) { B = A + 1; G = gather(B, I); R = G * 2; }",
        {"A": (50, 30), "I": (20,)},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_whole_pipeline_runs_right_at_the_addresses(name: str) -> None:
    text, shapes = PROGRAMS[name]
    types = {
        k: TensorType(DType.I32 if name == "gather" and k == "I" else DType.F32, v) for k, v in shapes.items()
    }
    program = compile_tile(Source(name, text), types)
    placed = run_pipeline(program, make_passes(parse_pipeline(WHOLE, HW)), HW)
    assert not unplaced(placed, HW), to_text(placed)
    inputs = random_inputs(program, np.random.default_rng(1))
    expected = interpret(program, inputs)
    found = interpret_placed(placed, inputs, HW)
    for output in expected:
        np.testing.assert_array_equal(found[output], expected[output])


def test_what_goes_around_a_memory_does_so_in_the_blocks_inside() -> None:
    """B is left to the unit that brings it to the nearest memory, also in the tiles."""
    memories = [
        {"name": "SRAM", "kind": "explicit", "bytes": 4096, "backing": "SPAD"},
        {"name": "SPAD", "kind": "explicit", "bytes": 32768, "backing": "DRAM"},
        {"name": "DRAM", "kind": "explicit"},
    ]
    units = [
        {"name": "VPU", "vector_bytes": 64, "reaches": ["SRAM"]},
        {"name": "FAR", "kind": "transfer", "bytes_per_cycle": 16, "reaches": ["DRAM", "SPAD"]},
        {"name": "NEAR", "kind": "transfer", "bytes_per_cycle": 16, "reaches": ["SPAD", "SRAM"]},
        {"name": "PAST", "kind": "transfer", "bytes_per_cycle": 16, "reaches": ["DRAM", "SRAM"]},
    ]
    hw = array_machine(memories=memories, units=units, stencils=[])
    step = Transfer(memory="SPAD")

    def copied(around: tuple[str, ...]) -> set[str]:
        given = Given({"main": Past(around)}, "search") if around else None
        result = step.run(program_of(TILED), PassContext(hw, given=given))
        return {r.name for _, b in walk(result.root) for r in b.refinements if "_SPAD" in r.name}

    assert copied(()) == {"A_SPAD", "B_SPAD", "R_SPAD"}
    assert copied(("B",)) == {"A_SPAD", "R_SPAD"}


def test_who_copies_is_a_choice_where_several_units_could() -> None:
    engine = {"kind": "transfer", "bytes_per_cycle": 16, "reaches": ["SPAD", "DRAM"]}
    core = {"name": "VPU", "vector_bytes": 64, "reaches": ["SPAD"]}
    for engines in (["DMA"], ["DMA", "DMB"]):
        units = [core, *({**engine, "name": name} for name in engines)]
        context = PassContext(array_machine(units=units, stencils=[]))
        Transfer().run(program_of(TILED), context)
        by = [choice.by for choice in context.choices.values() if isinstance(choice, Past)]
        assert {unit for units in by for unit in units.values()} == ({"DMA"} if len(engines) > 1 else set())
