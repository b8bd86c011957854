"""unroll: how many statements a block becomes, to the limit and one over it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.ir import Block
from stripe.passes.unroll import Unroll
from tests.support.passes import check_pass, program_of

HW = load_named("generic")  # vectors of 16 bytes


def unrolled(limit: int, tags: str, kind: str = "f32", hw: HwConfig = HW) -> tuple[Block, str]:
    program = program_of(
        f"""
        block main [] (in A[0, 0] {kind}(6, 7):(7, 1)  out B[0]:assign {kind}(7):(1)) {{
          block n [] (in A[0, 0] {kind}(6, 7):(7, 1)  out B[0]:assign {kind}(7):(1)
                      new T {kind}(7):(1) @REG) {{
            block t [k:6, j:7] (in A[k, j] {kind}(1, 1):(7, 1)  out T[j]:add {kind}(1):(1)) {tags} {{
              $a = load(A) {kind}
              T = store($a)
            }}
            block b [j:7] (in T[j] {kind}(1):(1)  out B[j]:assign {kind}(1):(1)) {{
              $t = load(T) {kind}
              B = store($t)
            }}
          }} }}"""
    )
    result, remarks = check_pass(program, Unroll(limit=limit), hw)
    said = next(remark.message for remark in remarks if remark.block == "main/n/t")
    return result.root.children[0].children[0], said


# Two statements; along j 7 values, as lanes 2 vectors of 4 f32, or 1 of 8 f16.
@pytest.mark.parametrize(
    ("tags", "kind", "copies"), [("", "f32", 14), ("#vector=j", "f32", 4), ("#vector=j", "f16", 2)]
)
def test_copies_are_counted_exactly(tags: str, kind: str, copies: int) -> None:
    block, said = unrolled(copies, tags, kind)
    assert block.tag_values("unroll") == ("j",)
    assert said == f"writes out j: {copies} statements"
    block, said = unrolled(copies - 1, tags, kind)
    assert block.tag_values("unroll") == ()
    assert f"takes {copies} statements, more than the limit of {copies - 1}" in said


def test_without_units_each_value_is_a_copy() -> None:
    plain = replace(HW, units=())
    assert unrolled(14, "#vector=j", hw=plain)[1] == "writes out j: 14 statements"
    assert "takes 14 statements" in unrolled(13, "#vector=j", hw=plain)[1]


def test_a_vector_has_one_lane_at_least() -> None:
    plain, narrow = (replace(HW, units=units) for units in ((), (replace(HW.units[0], vector_bytes=2),)))
    assert unrolled(14, "#vector=j", "i8", plain)[1] == "writes out j: 14 statements"
    assert unrolled(14, "#vector=j", "f32", narrow)[1] == "writes out j: 14 statements"


def test_the_widest_vectors_of_a_target_count() -> None:
    narrow = replace(HW.units[0], name="NARROW", vector_bytes=4)
    both = replace(HW, units=(narrow, *HW.units))
    assert unrolled(4, "#vector=j", hw=both)[1] == "writes out j: 4 statements"


def test_the_widest_element_decides_how_many_lanes_there_are() -> None:
    program = program_of(
        """
        block main [] (in A[0] f16(8):(1)  out B[0]:assign f32(8):(1)) {
          block n [] (in A[0] f16(8):(1)  out B[0]:assign f32(8):(1)  new T f32(8):(1) @REG) {
            block t [j:8] (in A[j] f16(1):(1)  out T[j]:assign f32(1):(1)) #vector=j {
              $a = load(A) f16
              $f = cast($a) f32
              T = store($f)
            }
            block b [j:8] (in T[j] f32(1):(1)  out B[j]:assign f32(1):(1)) {
              $t = load(T) f32
              B = store($t)
            }
          } }"""
    )
    _, remarks = check_pass(program, Unroll(limit=6), HW)
    assert "writes out j: 6 statements" in [r.message for r in remarks]  # 2 vectors of 4, not 1 of 8


def test_a_loop_around_others_that_only_reads_from_registers_stays() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] f32(4, 64):(64, 1)  out B[0, 0]:assign f32(4, 64):(64, 1)) {
          block n [] (in A[0, 0] f32(4, 64):(64, 1)  out B[0, 0]:assign f32(4, 64):(64, 1)
                      new S f32(4):(1) @REG) {
            block s [j:64, i:4] (in A[i, j] f32(1, 1)  out S[i]:add f32(1)) #vector=j {
              $a = load(A) f32
              S = store($a)
            }
            block b [i:4, j:64] (in A[i, j] f32(1, 1)  in S[i] f32(1)
                                 out B[i, j]:assign f32(1, 1)) #vector=j {
              $a = load(A) f32
              $s = load(S) f32
              $b = div($a, $s) f32
              B = store($b)
            }
          } }"""
    )
    result, _ = check_pass(program, Unroll(), HW)
    summed, scaled = result.root.children[0].children
    assert summed.tag_values("unroll") == ("i",)
    assert scaled.tag_values("unroll") == ()


@pytest.mark.parametrize(("at", "shape", "one"), [("i", "4", "1"), ("i, 0", "4, 1", "1, 1")])
def test_a_loop_around_others_that_writes_to_registers_is_written_out(at: str, shape: str, one: str) -> None:
    """What a block adds to is not read seldom, whatever else it reads with the same index."""
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32(4, 64):(64, 1)  out B[0]:assign f32(4):(1)) {{
          block n [] (in A[0, 0] f32(4, 64):(64, 1)  out B[0]:assign f32(4):(1)
                      new S f32(4):(1) @REG  new T f32({shape}) @REG) {{
            block s [i:4] (in A[i, 0] f32(1, 1)  out S[i]:assign f32(1)) {{
              $a = load(A) f32
              S = store($a)
            }}
            block t [i:4, j:64] (in A[i, j] f32(1, 1)  in S[i] f32(1)
                                 out T[{at}]:add f32({one})) #vector=j {{
              $a = load(A) f32
              $s = load(S) f32
              $t = mul($a, $s) f32
              T = store($t)
            }}
            block b [i:4] (in T[{at}] f32({one})  out B[i]:assign f32(1)) {{
              $t = load(T) f32
              B = store($t)
            }}
          }} }}"""
    )
    result, _ = check_pass(program, Unroll(), HW)
    assert [b.tag_values("unroll") for b in result.root.children[0].children] == [("i",)] * 3


def window(
    rows: int, width: int, tests: str = "", hw: HwConfig | None = None, *, size: tuple[int, int] = (4, 32),
    steps: int = 12,
) -> tuple[Block, str]:  # fmt: skip
    """A window of `steps` x 5 values over rows of lanes; they lead `rows` down and `width` on in I."""
    y, x = size
    out = f"f32({y}, {x}):({x}, 1)"
    one = f"f32(1, 1):({x}, 1)"
    program = program_of(
        f"""
        block main [] (in I[0, 0] f32(48, 96):(96, 1)  in F[0, 0] f32({steps}, 5):(5, 1)
                       out O[0, 0]:assign {out}  new T {out} @REG) {{
          block z [y:{y}, x:{x}] (out T[y, x]:assign {one}) {{
            $z = constant(0.0) f32
            T = store($z)
          }}
          block t [r:{steps}, s:5, y:{y}, x:{x}] ({tests} in I[{rows}*r + y, {width}*s + x] f32(1, 1):(96, 1)
                                          in F[r, s] f32(1, 1):(5, 1)
                                          inout T[y, x]:add {one}) #vector=x {{
            $a = load(I) f32
            $b = load(F) f32
            $c = mul($a, $b) f32
            T = store($c)
          }}
          block b [y:{y}, x:{x}] (in T[y, x] {one}  out O[y, x]:assign {one}) {{
            $t = load(T) f32
            O = store($t)
          }}
        }}"""
    )
    result, remarks = check_pass(program, Unroll(), hw or load_named("x86_64_avx512"))
    return result.root.children[1], next(r.message for r in remarks if r.block == "main/t")


def test_a_piece_of_a_window_is_written_out_where_rows_share_it() -> None:
    block, said = window(1, 1)
    assert [f"{i.name}:{i.range}" for i in block.indexes] == ["r:2", "s:5", "x:32", "y:4", "r_1:6"]
    assert set(block.tag_values("unroll")) == {"x", "y", "r_1"}
    assert said == "writes out y, x, 6 values of r each time: 192 statements"


def test_two_rows_share_enough_to_write_out_a_piece_of_a_window() -> None:
    """6 values need 7 rows in place of 12, and 6 of F: the latter keep the gain a little above the least."""
    assert window(1, 1, size=(2, 16))[0].ranges["r_1"] == 6


def test_no_more_of_a_window_is_written_out_than_registers_hold() -> None:
    """28 of 32 registers have results, one a row of I: 3 values of F have room."""
    assert window(1, 1, size=(7, 64))[0].ranges["r_1"] == 3
    assert "r_1" not in window(1, 1, size=(15, 32))[0].ranges


def loading(loads: float) -> HwConfig:
    """A machine with two multiply-adds and so many loads a cycle."""
    hw = load_named("x86_64_avx512")
    units = tuple(msgspec.structs.replace(unit, loads_per_cycle=loads) for unit in hw.units)
    return msgspec.structs.replace(hw, units=units)


def test_whole_lines_are_loads_too() -> None:
    """Each vector is one line, and there are nearly as many loads as multiply-adds."""
    assert window(1, 16, hw=loading(0.5))[0].ranges["r_1"] == 6
    assert window(1, 16, hw=loading(2))[0].ranges["r_1"] == 6
    assert "r_1" not in window(1, 16, hw=loading(3))[0].ranges, "loads take less than arithmetic"


def test_rows_that_go_in_larger_steps_share_what_they_meet_again() -> None:
    """Two rows of four are those of the step before."""
    assert window(2, 1)[0].ranges["r_1"] == 6


def test_no_piece_of_a_window_is_written_out_where_that_saves_no_loads() -> None:
    assert "r_1" not in window(4, 1, size=(2, 32))[0].ranges, "no row of one step is a row of another"
    assert "r_1" not in window(1, 1, tests="10 - r >= 0")[0].ranges, "each copy would have a test"


def test_a_whole_window_is_written_out_with_the_tests_at_its_edges() -> None:
    """Which of its steps there are is known once all of them are written out."""
    edge = "r + y - 1 >= 0"
    assert window(1, 1, tests=edge, steps=3)[0].ranges["r_1"] == 3
    assert "r_1" not in window(1, 1, tests=edge, steps=16)[0].ranges, "pieces would have tests"
    assert "r_1" not in window(1, 1, tests="r + s - 1 >= 0", steps=3)[0].ranges, "s is a loop"


@pytest.mark.parametrize(
    ("test", "size", "target", "written"),
    [
        ("x + s - 2 >= 0", (4, 12), "x86_64_avx512", True),
        ("x + s - 2 >= 0  17 - s - x >= 0", (4, 16), "x86_64_avx512", True),
        ("x + s - 2 >= 0", (4, 17), "x86_64_avx512", False),
        ("x + s - 2 >= 0", (4, 8), "x86_64_avx2", False),
        ("y + s - 2 >= 0", (4, 12), "x86_64_avx512", False),
        ("x + s + r - 2 >= 0", (4, 12), "x86_64_avx512", False),
    ],
    ids=["a vector", "a full one", "two", "masks in vectors", "whole rows", "a test with another loop"],
)
def test_steps_that_turn_other_lanes_off_are_written_out(
    test: str, size: tuple[int, int], target: str, written: bool
) -> None:
    block, said = window(16, 1, tests=test, hw=load_named(target), size=size, steps=2)
    assert ("s" in block.tag_values("unroll")) is written
    assert ("writes out y, x, s" in said) is written


def rows(
    size: int, how: str = "add", columns: int = 256, test: str = "", target: str = "x86_64_avx512"
) -> tuple[Block, str]:
    program = program_of(
        f"""
        block main [] (in X[0, 0] f32({size}, {columns})  in W[0] f32({size})
                       out Z[0]:assign f32({columns})) {{
          block z [r:{size}, x:{columns}] ({test} in X[r, x] f32(1, 1)  in W[r] f32(1)
                                           out Z[x]:{how} f32(1)) #vector=x {{
            $x = load(X) f32
            $w = load(W) f32
            $z = mul($x, $w) f32
            Z = store($z)
          }} }}"""
    )
    result, remarks = check_pass(program, Unroll(), load_named(target))
    return result.root.children[0], " ".join(remark.message for remark in remarks)


@pytest.mark.parametrize(("size", "count"), [(64, 8), (6, 6), (9, 3)])
def test_more_rows_go_side_by_side_where_each_is_fetched_far_ahead(size: int, count: int) -> None:
    block, _ = rows(size, target="x86_64_zen5")
    assert block.ranges["r_1"] == count


def test_rows_of_which_some_are_not_there_go_side_by_side() -> None:
    block, _ = rows(64, test="60 - r >= 0")
    assert block.ranges["r_1"] == 4


@pytest.mark.parametrize(("size", "count"), [(64, 4), (6, 3), (2, 2)])
@pytest.mark.parametrize("how", ["add", "max"])
def test_rows_that_are_summed_up_in_memory_go_side_by_side(size: int, count: int, how: str) -> None:
    block, said = rows(size, how)
    assert block.tag_values("unroll") == ("r_1",)
    assert tuple(block.ranges) == ("r", "x", "r_1")
    assert block.ranges["r_1"] == count
    assert f"{count} values of r each time" in said


@pytest.mark.parametrize(
    ("size", "result", "tags"),
    [
        (64, "Z[x]:add f32(1)", ("x",)),
        (128, "Z[x]:assign f32(1)", ("x",)),
        (16, "Z[x]:add f32(1)", ()),  # no loop
        (256, "Z[x]:add f32(1)", ()),  # a long one
        (64, "Z[0]:add f32(1)", ()),  # vectors that are summed up take turns
    ],
)
def test_loops_of_few_steps_that_write_apart_are_written_out(
    size: int, result: str, tags: tuple[str, ...]
) -> None:
    text = f"""
        block main [] (in X[0] f32({size})  out Z[0]:assign f32({size if "x" in result else 1})) {{
          block z [x:{size}] (in X[x] f32(1)  out {result}) #vector=x {{
            $x = load(X) f32
            Z = store($x)
          }} }}"""
    made, _ = check_pass(program_of(text), Unroll(), load_named("x86_64_avx512"))
    assert made.root.children[0].tag_values("unroll") == tags


def test_rows_that_can_not_or_need_not_go_side_by_side() -> None:
    prime, _ = rows(7)
    short, _ = rows(64, columns=48)  # three vectors
    tested, _ = rows(64, test="300 - r - x >= 0")
    for block in (prime, short, tested):
        assert block.tag_values("unroll") == ()
    untouched, _ = unrolled(14, "#vector=j")
    assert untouched.tag_values("unroll") == ("j",)  # results in registers
