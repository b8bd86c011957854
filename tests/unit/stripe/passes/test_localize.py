"""Buffers in the innermost scope, cut to size; accumulators in registers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory, Unit
from stripe.diag import CompileError, Remark
from stripe.ir import Block, Direction, Program
from stripe.passes.base import PassContext
from stripe.passes.localize import Localize
from stripe.passes.localize_parts import held_bytes, peak_bytes
from tests.support.passes import check_pass, program_of


def target(registers: int = 2048, scratch: int = 1024) -> HwConfig:
    return HwConfig(
        "test",
        "for tests",
        "cpu",
        memories=(
            Memory("REG", "registers", registers),
            Memory("PAD", "explicit", scratch),
            Memory("DRAM", "explicit"),
        ),
    )


def localized(text: str, step: Localize, hw: HwConfig | None = None) -> tuple[Program, list[Remark]]:
    return check_pass(program_of(text), step, hw or target())


def news(block: Block) -> dict[str, tuple[int, ...]]:
    return {r.name: r.shape for r in block.refinements if r.direction is Direction.NEW}


def place_of(block: Block, name: str) -> str:
    location = block.refinement(name).location
    return "" if location is None else location.unit


ROWS = """
    block main [] (in X[0, 0] f32(6, 8)  out R[0, 0]:assign f32(6, 8)  new T f32(6, 9)) {
      block rows [m:6] (
        in X[m, 0] f32(1, 8)  out T[m, 0]:assign f32(1, 9)  out R[m, 0]:assign f32(1, 8)
      ) {
        block one [n:8] (in X[0, n] f32(1, 1)  out T[0, n + 1]:assign f32(1, 1)) {
          $x = load(X) f32  T = store($x) }
        block two [n:8] (in T[0, 8 - n] f32(1, 1)  out R[0, n]:assign f32(1, 1)) {
          $t = load(T) f32  R = store($t) }
      }
    }
"""


def test_buffer_moves_into_its_only_user_and_shrinks_to_the_live_box() -> None:
    program, _ = localized(ROWS, Localize())
    assert news(program.root) == {}
    rows = program.root.children[0]
    assert news(rows) == {"T": (1, 8)}
    one, two = rows.children
    assert [str(e) for e in one.refinement("T").access] == ["0", "n"]
    assert [str(e) for e in two.refinement("T").access] == ["0", "7 - n"]


def test_box_that_moves_with_the_point_is_rebased() -> None:
    program, _ = localized(
        """
        block main [] (in X[0] f32(12)  out R[0]:assign f32(12)  new T f32(12)) {
          block tiles [p:3] (in X[0] f32(12)  out T[0]:assign f32(12)  out R[4*p] :assign f32(4)) {
            block one [m:4, po = 4*p] (in X[m + po] f32(1)  out T[m + po]:assign f32(1)) {
              $x = load(X) f32  T = store($x) }
            block two [m:4, po = 4*p] (in T[po - m + 3] f32(1)  out R[m]:assign f32(1)) {
              $t = load(T) f32  R = store($t) }
          }
        }
        """,
        Localize(),
    )
    tiles = program.root.children[0]
    assert news(tiles) == {"T": (4,)}
    assert [i.name for i in tiles.children[1].indexes] == ["m"]


def test_buffer_of_several_kernels_stays() -> None:
    program = program_of("""
        block main [] (in X[0] f32(8)  out R[0]:assign f32(8)  new T f32(8)) {
          block one [i:8] (in X[i] f32(1)  out T[i]:assign f32(1)) { $x = load(X) f32  T = store($x) }
          block two [i:8] (in T[7 - i] f32(1)  out R[i]:assign f32(1)) { $t = load(T) f32  R = store($t) }
        }
    """)
    assert check_pass(program, Localize())[0] is program


def test_near_memory_goes_to_the_innermost_first_and_respects_the_capacity() -> None:
    text = """
        block main [] (in X[0, 0] f32(6, 64)  out R[0, 0]:assign f32(6, 64)
                       new T f32(6, 64)  new U f32(6, 64)) {
          block rows [m:6] (in X[m, 0] f32(1, 64)  out T[m, 0]:assign f32(1, 64)
                            out U[m, 0]:assign f32(1, 64)  out R[m, 0]:assign f32(1, 64)) {
            block one [n:64] (in X[0, n] f32(1, 1)  out T[0, n]:assign f32(1, 1)) {
              $x = load(X) f32  T = store($x) }
            block two [n:64] (in T[0, 63 - n] f32(1, 1)  out U[0, n]:assign f32(1, 1)) {
              $t = load(T) f32  U = store($t) }
            block three [n:64] (in U[0, 63 - n] f32(1, 1)  out R[0, n]:assign f32(1, 1)) {
              $t = load(U) f32  R = store($t) }
          }
        }
    """
    rows = localized(text, Localize(memory="PAD"))[0].root.children[0]
    assert (place_of(rows, "T"), place_of(rows, "U")) == ("PAD", "PAD")
    program, remarks = localized(text, Localize(memory="PAD"), target(scratch=300))
    rows = program.root.children[0]
    assert (place_of(rows, "T"), place_of(rows, "U")) == ("PAD", "")
    assert any("does not fit in PAD" in r.message for r in remarks if not r.acted)


def tiled(reduction: str = "C", view: str = "out C[7*mt, 8*nt]:assign f32(7, 8)", more: str = "") -> str:
    """A 33 x 24 product in tiles of 7 x 8; the last row tile is ragged."""
    return f"""
        block main [] (in A[0, 0] f32(33, 5)  in B[0, 0] f32(5, 24)  out C[0, 0]:assign f32(33, 24)) {{
          block tiles [mt:5, nt:3] (
            in A[7*mt, 0] f32(7, 5)  in B[0, 8*nt] f32(5, 8)  {view}
          ) {{
            block dot [m:7, n:8, k:5, mo = 7*mt] (
              32 - mo - m >= 0
              in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out {reduction}[m, n]:add f32(1, 1)
            ) {{ $a = load(A) f32  $b = load(B) f32  $c = mul($a, $b) f32  {reduction} = store($c) }}
            {more}
          }}
        }}
    """


def test_accumulators_of_a_ragged_tile_are_copied_out_where_they_were_written() -> None:
    program, _ = localized(tiled(), Localize(accumulators="REG"))
    tiles = program.root.children[0]
    assert news(tiles) == {"C_acc": (7, 8)} and place_of(tiles, "C_acc") == "REG"
    dot, copy = tiles.children
    assert dot.refinement("C").source == "C_acc"
    assert [str(c.expr) for c in copy.constraints] == ["32 - m - 7*mt"]
    assert copy.ranges == {"m": 7, "n": 8}


def test_epilogue_reads_the_accumulators_where_they_are() -> None:
    epilogue = """
        block ep [m:7, n:8, mo = 7*mt] (
          32 - mo - m >= 0  in T[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)
        ) {
          $t = load(T) f32  $z = constant(0.0) f32  $r = max($t, $z) f32  C = store($r) }
    """
    view = "out C[7*mt, 8*nt]:assign f32(7, 8)  new T f32(7, 8)"
    program, _ = localized(tiled("T", view, epilogue), Localize(accumulators="REG"))
    tiles = program.root.children[0]
    assert [c.name for c in tiles.children] == ["dot", "ep"]
    assert place_of(tiles, "T") == "REG"


TRIANGLE = """
    block main [] (in A[0, 0] f32(24, 5)  in B[0, 0] f32(5, 24)  out C[0, 0]:assign f32(24, 24)) {{
      block tiles [mt:3, nt:3] (
        in A[8*mt, 0] f32(8, 5)  in B[0, 8*nt] f32(5, 8)  out C[8*mt, 8*nt]:assign f32(8, 8)  new T f32(8, 8)
      ) {{
        block fill [m:8, n:8] (out T[m, n]:assign f32(1, 1)) {{ $z = constant(0.0) f32  T = store($z) }}
        block dot [m:8, n:8, k:5, mo = 8*mt, no = 8*nt] (
          {limit} >= 0  in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out T[m, n]:add f32(1, 1)
        ) {{ $a = load(A) f32  $b = load(B) f32  $c = mul($a, $b) f32  T = store($c) }}
        block ep [m:8, n:8] (in T[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)) {{
          $t = load(T) f32  $z = constant(0.0) f32  $r = max($t, $z) f32  C = store($r) }}
      }}
    }}
"""


@pytest.mark.parametrize(
    ("limit", "beside"),
    [("mo + m - no - n", True), ("20 - mo - m", False), ("mo + m + k - 1", False), ("mo - no", False)],
)
def test_sums_that_a_constraint_cuts_aslant_gather_beside_their_buffer(limit: str, beside: bool) -> None:
    program, remarks = localized(TRIANGLE.format(limit=limit), Localize(accumulators="REG"))
    tiles = program.root.children[0]
    assert [r.message for r in remarks if r.acted] == ["accumulates 'T' in REG"]
    if not beside:
        assert place_of(tiles, "T") == "REG" and [c.name for c in tiles.children] == ["fill", "dot", "ep"]
        return
    frame = tiles.children[1]
    assert place_of(tiles, "T") == "" and place_of(frame, "T_acc") == "REG"
    dot, copy = frame.children
    assert dot.refinement("T").source == "T_acc"
    assert copy.refinement("T").aggregation == "assign"
    assert [str(c.expr) for c in copy.constraints] == ["m + 8*mt - n - 8*nt"]


def test_accumulators_go_to_the_outermost_block_where_they_fit() -> None:
    text = """
        block main [] (in A[0, 0] f32(8, 12)  in B[0, 0] f32(12, 8)  out C[0, 0]:assign f32(8, 8)) {
          block tiles [mt:2] (
            in A[4*mt, 0] f32(4, 12)  in B[0, 0] f32(12, 8)  out C[4*mt, 0]:assign f32(4, 8)
          ) {
            block parts [kt:3] (
              in A[0, 4*kt] f32(4, 4)  in B[4*kt, 0] f32(4, 8)  out C[0, 0]:add f32(4, 8)
            ) {
              block dot [m:4, n:8, k:4] (
                in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)
              ) {
                $a = load(A) f32  $b = load(B) f32  $c = mul($a, $b) f32  C = store($c) }
            }
          }
        }
    """
    tiles = localized(text, Localize(accumulators="REG"), target(128))[0].root.children[0]
    assert [c.name for c in tiles.children] == ["parts", "C_copy"]
    assert news(tiles.children[0]) == {}
    small = program_of(text)
    result, remarks = check_pass(small, Localize(accumulators="REG"), target(64))
    assert result is small
    assert [r.block for r in remarks] == ["main/tiles/parts/dot"]
    assert "128 bytes of accumulators of 'C' exceed the 64 left in REG" in remarks[0].message


def test_partial_sums_are_added_where_the_tile_is_not_the_whole_reduction() -> None:
    text = """
        block main [] (in A[0, 0] f32(64, 12)  out C[0]:assign f32(64)) {
          block tiles [mt:16, kt:3] (in A[4*mt, 4*kt] f32(4, 4)  out C[4*mt]:add f32(4)) {
            block sum [m:4, k:4] (in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {
              $a = load(A) f32  C = store($a) }
          }
        }
    """
    tiles = localized(text, Localize(accumulators="REG"), target(1024))[0].root.children[0]
    copy = tiles.children[1]
    assert copy.refinement("C").aggregation == "add"


def test_old_contents_are_folded_in_by_the_copy() -> None:
    text = """
        block main [] (in A[0, 0] f32(64, 12)  in D[0] f32(64)  out C[0]:assign f32(64)) {
          block init [i:64] (in D[i] f32(1)  out C[i]:assign f32(1)) { $d = load(D) f32  C = store($d) }
          block tiles [mt:16] (in A[4*mt, 0] f32(4, 12)  inout C[4*mt]:assign f32(4)) {
            block sum [m:4, k:12] (in A[m, k] f32(1, 1)  inout C[m]:add f32(1)) {
              $a = load(A) f32  C = store($a) }
          }
        }
    """
    tiles = localized(text, Localize(accumulators="REG"), target(1024))[0].root.children[1]
    copy = tiles.children[1]
    assert (copy.refinement("C").direction, copy.refinement("C").aggregation) == ("inout", "add")


def test_only_written_cells_are_copied_where_a_constraint_has_reduction_indexes() -> None:
    # Row m sums the columns k > m, so the last row has none.
    text = """
        block main [] (in A[0, 0] f32(4, 4)  out C[0]:assign f32(4)) {
          block fill [i:4] (out C[i]:assign f32(1)) { $z = constant(0.0) f32  C = store($z) }
          block sum [m:4, k:4] (k - m - 1 >= 0  in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {
            $a = load(A) f32  C = store($a) }
        }
    """
    program, _ = localized(text, Localize(accumulators="REG"))
    frame = program.root.children[1]
    assert news(frame) == {"C_acc": (3,)}
    assert [c.name for c in frame.children] == ["sum", "C_copy"]


def test_reduction_whose_cells_are_no_conjunction_stays() -> None:
    # The elements 0, 2, 3 and 5 have no step of their own.
    text = """
        block main [] (in A[0, 0, 0] f32(2, 2, 4)  out C[0]:assign f32(8)) {
          block fill [i:8] (out C[i]:assign f32(1)) { $z = constant(0.0) f32  C = store($z) }
          block sum [m:2, n:2, k:4] (in A[m, n, k] f32(1, 1, 1)  out C[2*m + 3*n]:add f32(1)) {
              $a = load(A) f32  C = store($a) }
        }
    """
    program = program_of(text)
    result, remarks = check_pass(program, Localize(accumulators="REG"), target())
    assert result is program
    assert "no conjunction of constraints" in remarks[0].message


@pytest.mark.parametrize(("place", "first", "step"), [("2*m", 0, 2), ("10 - 3*m", 1, 3)])
def test_elements_with_gaps_gather_side_by_side(place: str, first: int, step: int) -> None:
    text = f"""
        block main [] (in A[0, 0] f32(4, 4)  out C[0]:assign f32(12)) {{
          block fill [i:12] (out C[i]:assign f32(1)) {{ $z = constant(0.0) f32  C = store($z) }}
          block sum [m:4, k:4] (in A[m, k] f32(1, 1)  out C[{place}]:add f32(1)) {{
              $a = load(A) f32  C = store($a) }}
        }}
    """
    frame = localized(text, Localize(accumulators="REG"))[0].root.children[1]
    assert news(frame) == {"C_acc": (4,)}
    (element,) = frame.children[1].refinement("C").access
    assert (element.const, *(count for _, count in element.terms)) == (first, step)


def test_no_gaps_are_left_out_where_a_point_sees_several_elements() -> None:
    text = """
        block main [] (in A[0, 0] f32(4, 4)  out C[0]:assign f32(9)) {
          block fill [i:9] (out C[i]:assign f32(1)) { $z = constant(0.0) f32  C = store($z) }
          block sum [m:4, k:4] (in A[m, k] f32(1, 1)  out C[2*m]:add f32(3)) {
            block two [i:2] (in A[0, 0] f32(1, 1)  out C[2*i]:add f32(1)) {
              $a = load(A) f32  C = store($a) } }
        }
    """
    program = program_of(text)
    assert check_pass(program, Localize(accumulators="REG"), target())[0] is program


def test_register_file_is_free_again_behind_each_kernel() -> None:
    kernels = "".join(
        f"block s{i} [m:12, k:8] (in A[m, k] f32(1, 1)  out C{i}[m]:add f32(1)) {{"
        f"$a = load(A) f32  C{i} = store($a) }}"
        for i in range(3)
    )
    outs = "  ".join(f"out C{i}[0]:assign f32(12)" for i in range(3))
    program, _ = localized(
        f"block main [] (in A[0, 0] f32(12, 8)  {outs}) {{ {kernels} }}",
        Localize(accumulators="REG"),
        target(800),
    )
    assert [news(frame) for frame in program.root.children] == [{f"C{i}_acc": (12,)} for i in range(3)]


def test_sums_across_the_lanes_take_a_register_each() -> None:
    # The lanes run along k, where A is contiguous: every element of C is a vector until the end.
    text = """
        block main [] (in A[0, 0] f32(64, 64)  out C[0]:assign f32(64)) {
          block sum [m:64, k:64] (in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {
            $a = load(A) f32  C = store($a) }
        }
    """
    program, remarks = localized(text, Localize(accumulators="REG"), target(2048))
    assert news(program.root) == {}
    assert [r.message for r in remarks] == ["4096 bytes of accumulators of 'C' exceed the 2048 left in REG"]


def test_sums_of_rows_that_move_along_a_passed_index_are_looked_at_too() -> None:
    text = """
        block main [] (in A[0, 0] f32(4, 300)  out C[0, 0]:assign f32(4, 4)) {
          block t [o:2] (
            in A[0, 0] f32(4, 300)  in B = A[2*o, 0] f32(2, 300)  out C[0, 0]:assign f32(4, 4)
          ) {
            block sum [m:4, k:2, n:300, ko = 2*o] (
              in A[m, n] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, k + ko]:add f32(1, 1)
            ) { $a = load(A) f32  $b = load(B) f32  $p = mul($a, $b) f32  C = store($p) }
          }
        }
    """
    _, (remark,) = localized(text, Localize(accumulators="REG"), load_named("x86_64_zen5"))
    assert "'C'" in remark.message


@pytest.mark.parametrize(
    ("rows", "terms", "beside"),
    [
        pytest.param(13, 1000, False, id="52000 bytes"),
        pytest.param(12, 3000, True, id="few rows"),
        pytest.param(16, 500, True, id="32000 bytes, which L1 holds"),
    ],
)
def test_many_rows_that_share_no_data_are_summed_up_one_after_the_other(
    rows: int, terms: int, beside: bool
) -> None:
    text = f"""
        block main [] (in A[0, 0] f32({rows}, {terms})  out C[0]:assign f32({rows})) {{
          block sum [m:{rows}, k:{terms}] (in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {{
            $a = load(A) f32  C = store($a) }}
        }}
    """
    zen5 = load_named("x86_64_zen5")
    program, (remark,) = localized(text, Localize(accumulators="REG"), zen5)
    assert remark.acted is beside
    assert news(program.root) == ({"C_acc": (rows,)} if beside else {})
    why = "13 rows share no data, and are summed up one after the other: 'C' is not kept in REG"
    assert beside or remark.message == why


def test_many_rows_that_share_data_are_summed_up_side_by_side() -> None:
    text = """
        block main [] (in A[0, 0] f32(4, 64)  in B[0, 0] f32(6, 64)  out C[0, 0]:assign f32(4, 6)) {
          block sum [m:4, n:6, k:64] (
            in A[m, k] f32(1, 1)  in B[n, k] f32(1, 1)  out C[m, n]:add f32(1, 1)
          ) {
            $a = load(A) f32  $b = load(B) f32  $c = mul($a, $b) f32  C = store($c) }
        }
    """
    program, _ = localized(text, Localize(accumulators="REG"), target(2048))
    assert news(program.root) == {"C_acc": (4, 6)}


def test_the_remark_says_how_many_bytes_are_kept() -> None:
    _, remarks = localized(tiled(), Localize(accumulators="REG"), target(2048))
    assert [r.data for r in remarks if r.acted] == [{"bytes": 7 * 8 * 4}]
    _, remarks = localized(tiled(), Localize(accumulators="REG"), target(100))
    assert [r.data for r in remarks] == [{}]


def test_what_is_taken_at_a_time_is_that_of_the_block_and_of_its_largest_child() -> None:
    block = program_of(
        """
        block main [] (in X[0] f32(8)  out R[0]:assign f32(8)  new P f32(3) @REG  new Q f32(50) @PAD) {
          block a [i:8] inflight=2 (in X[i] f32(1)  out R[i]:assign f32(1)  new S f32(5) @REG) {
            block b [] (in X[0] f32(1)  out R[0]:assign f32(1)  new T f32(7) @REG) {
              $x = load(X) f32
              R = store($x) } }
          block c [] (in R[0] f32(8)  new U f32(11) @REG) {
            block d [i:8] (in R[i] f32(1)  out U[i]:assign f32(1)) {
              $r = load(R) f32
              U = store($r) } } }
        """
    ).root
    assert held_bytes(block, "REG") == 4 * 3
    assert held_bytes(block.children[0], "REG") == 4 * 2 * 5
    assert peak_bytes(block.children[0], "REG") == 4 * 2 * (5 + 7)
    assert peak_bytes(block, "REG") == 4 * (3 + 24)
    assert peak_bytes(block, "PAD") == 4 * 50


BELOW = """
    block main [] (in X[0, 0] f32(8, 4)  out R[0]:assign f32(8)) {
      block tiles [mt:2] (in X[4*mt, 0] f32(4, 4)  out R[4*mt]:assign f32(4)) #tiled {
        block part [kt:2] (in X[0, 2*kt] f32(4, 2)  out R[0]:add f32(4)) {
          block sum [m:4, k:2] (in X[m, k] f32(1, 1)  out R[m]:add f32(1)) { $x = load(X) f32  R = store($x) }
        }
      }
    }
"""


@pytest.mark.parametrize(
    ("adder", "operations", "reason"),
    [
        ("ADD", ("*",), ""),
        ("ADD", ("max", "add"), ""),
        ("MAX", ("max",), "no unit that executes 'sum' reaches PAD: 'R' is not kept"),
        ("COPY", (), "no unit that executes 'sum' reaches PAD: 'R' is not kept"),
    ],
)
def test_an_explicit_memory_takes_sums_of_units_that_add_and_reach_it(
    adder: str, operations: tuple[str, ...], reason: str
) -> None:
    """The block that stores lies two levels below the tile."""
    units = (
        Unit(adder, reaches=("PAD", "DRAM"), operations=operations),
        Unit("FAR", reaches=("DRAM",)),
    )
    program, (remark,) = localized(BELOW, Localize(accumulators="PAD"), replace(target(), units=units))
    tiles = program.root.children[0]
    assert remark.acted is not bool(reason)
    assert remark.message == (reason or "accumulates 'R'") + " in PAD"
    assert place_of(tiles, "R_acc" if not reason else "R") == ("PAD" if not reason else "")


def test_a_unit_that_is_named_for_a_sum_must_reach_the_memory() -> None:
    units = (Unit("ADD", reaches=("PAD", "DRAM")), Unit("FAR", reaches=("DRAM",)))
    hw = replace(target(), units=units)
    for unit, kept in (("ADD", True), ("FAR", False)):
        text = BELOW.replace("block sum [m:4, k:2] (", f"block sum [m:4, k:2] @{unit} (")
        _, (remark,) = localized(text, Localize(accumulators="PAD"), hw)
        assert remark.acted is kept
        if not kept:
            assert remark.message == "FAR does not reach PAD: it reaches DRAM: 'R' is not kept in PAD"


def test_each_element_written_once_needs_no_accumulator() -> None:
    program = program_of("""
        block main [] (in X[0] f32(8)  out R[0]:assign f32(8)) {
          block one [i:8] (in X[i] f32(1)  out R[i]:add f32(1)) { $x = load(X) f32  R = store($x) }
        }
    """)
    result, remarks = check_pass(program, Localize(accumulators="REG"), target())
    assert result is program and remarks == []


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Localize(memory="L7"), "has no memory named 'L7'"),
        (Localize(accumulators="PADS"), "has no memory of kind 'registers' or 'explicit' named 'PADS'"),
    ],
)
def test_unknown_memory_is_an_error(step: Localize, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        step.run(program_of(ROWS), PassContext(target()))
    assert [d.code for d in caught.value.diagnostics] == ["P005"]


def test_worked_example_on_a_shipped_target() -> None:
    program, _ = check_pass(program_of(tiled()), Localize(accumulators="REG"), load_named("x86_64_avx512"))
    assert place_of(program.root.children[0], "C_acc") == "REG"


PARTS = """
    block main [] (in A[0, 0] f32(64, 12)  out C[0]:assign f32(64)) {{
      block tiles [mt:16] (in A[4*mt, 0] f32(4, 12)  out C[4*mt]:assign f32(4)  new S f32(4)) #tiled {tag} {{
        block part [q:2] (in A[2*q, 0] f32(2, 12)  out S[2*q]:assign f32(2)) {{
          block sum [m:2, k:12] (in A[m, k] f32(1, 1)  out S[m]:add f32(1)) {{
            $a = load(A) f32  S = store($a) }}
        }}
        block r [m:4] (in S[m] f32(1)  out C[m]:assign f32(1)) {{ $s = load(S) f32  C = store($s) }}
      }}
    }}
"""


@pytest.mark.parametrize(
    ("memories", "tag"),
    [
        (("PAD",), ""),  # there is no other memory that S could lie in
        (("PAD", "SIDE"), "#fits=PAD"),  # nor here: the tile was made for it
        (("PAD", "SIDE"), "#fits=SIDE"),  # all of it moves to where its parts are summed
    ],
)
def test_what_comes_to_lie_in_the_memory_anyway_is_not_copied_within_it(
    memories: tuple[str, ...], tag: str
) -> None:
    near = tuple(Memory(name, "explicit", 4096, backing="DRAM") for name in memories)
    hw = HwConfig("test", "for tests", "interpreter", memories=(*near, Memory("DRAM", "explicit")))
    program, _ = localized(PARTS.format(tag=tag), Localize(accumulators="PAD"), hw)
    (part, _r) = program.root.children[0].children
    assert [c.name for c in part.children] == ["sum"]
    assert place_of(program.root.children[0], "S") == "PAD"


def test_parts_are_summed_apart_where_the_whole_does_not_fit() -> None:
    near = (Memory("PAD", "explicit", 8, backing="DRAM"), Memory("SIDE", "explicit", 64, backing="DRAM"))
    hw = HwConfig("test", "for tests", "interpreter", memories=(*near, Memory("DRAM", "explicit")))
    program, _ = localized(PARTS.format(tag="#fits=SIDE"), Localize(accumulators="PAD"), hw)
    (part, _r) = program.root.children[0].children
    assert [c.name for c in part.children] == ["sum", "S_copy"]


def test_a_result_of_the_root_is_added_up_in_the_memory_where_it_lies() -> None:
    text = """
        block main [] (in A[0, 0] f32(64, 12)  out C[0]:assign f32(64)) {
          block tiles [mt:16] (in A[4*mt, 0] f32(4, 12)  out C[4*mt]:assign f32(4)) #tiled {
            block sum [m:4, k:12] (in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {
              $a = load(A) f32  C = store($a) }
          }
        }
    """
    memories = (Memory("PAD", "explicit", 4096, backing="DRAM"), Memory("DRAM", "explicit"))
    hw = HwConfig("test", "for tests", "interpreter", memories=memories)
    program = program_of(text)
    assert check_pass(program, Localize(accumulators="DRAM"), hw)[0] is program
    near = check_pass(program, Localize(accumulators="PAD"), hw)[0].root.children[0]
    assert [c.name for c in near.children] == ["sum", "C_copy"]


def test_buffers_between_kernels_are_no_part_of_a_tile_and_are_added_up_near() -> None:
    """With one memory beside the home, what a tile holds lies there; what the root holds does not."""
    text = """
        block main [] (in A[0, 0] f32(64, 12)  out C[0]:assign f32(64)  new T f32(64)) {
          block tiles [mt:16] (in A[4*mt, 0] f32(4, 12)  out T[4*mt]:assign f32(4)) #tiled {
            block sum [m:4, k:12] (in A[m, k] f32(1, 1)  out T[m]:add f32(1)) {
              $a = load(A) f32  T = store($a) }
          }
          block r [m:64] (in T[63 - m] f32(1)  out C[m]:assign f32(1)) { $t = load(T) f32  C = store($t) }
        }
    """
    memories = (Memory("PAD", "explicit", 4096, backing="DRAM"), Memory("DRAM", "explicit"))
    hw = HwConfig("test", "for tests", "interpreter", memories=memories)
    tiles = localized(text, Localize(accumulators="PAD"), hw)[0].root.children[0]
    assert [c.name for c in tiles.children] == ["sum", "T_copy"]
    assert place_of(tiles, "T_acc") == "PAD"
