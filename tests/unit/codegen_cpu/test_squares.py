"""Squares of elements that are turned in registers: `#vector=m #across=n`."""

from __future__ import annotations

import re
from textwrap import dedent

import msgspec
import numpy as np
import pytest

from codegen_cpu.build import build
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.interp import interpret
from stripe.ir import Program
from stripe.parser import parse
from tests.support.loops import loops
from tests.support.native import run, runnable
from tests.unit.codegen_cpu.test_memory import check_guarded


def parsed(text: str) -> Program:
    return parse(Source("test.stripe", dedent(text)))


def transposed(
    dtype: str, n: int, m: int, tags: str = "#vector=m #across=n", body: str = "$b = max($a, $a) DTYPE"
) -> Program:
    return parsed(
        f"""
        block main [] (in A[0, 0] {dtype}({m}, {n}):({n}, 1)
                       out B[0, 0]:assign {dtype}({n}, {m}):({m}, 1)) {{
          block B [n:{n}, m:{m}] (in A[m, n] {dtype}(1, 1)  out B[n, m]:assign {dtype}(1, 1)) {tags} {{
            $a = load(A) {dtype}
            {body.replace("DTYPE", dtype)}
            B = store($b)
          }}
        }}
        """
    )


def check(program: Program, hw: HwConfig) -> None:
    """The same result as the interpreter's."""
    rng = np.random.default_rng(0)
    arrays = {
        ref.name: rng.integers(0, 2 if ref.dtype.value == "bool" else 100, ref.shape).astype(ref.dtype.numpy)
        for ref in program.inputs
    }
    want, found = interpret(program, arrays), run(program, arrays, hw)
    for name, array in found.items():
        np.testing.assert_array_equal(array, want[name])


KINDS = [
    hw for hw in runnable()[1:] if hw.name in ("generic", "x86_64_avx2", "x86_64_avx512", "aarch64_neon")
]
TARGETS = pytest.mark.parametrize("hw", KINDS, ids=lambda hw: hw.name)
BOTH = pytest.mark.parametrize("tags", ["#vector=m #across=n", "#vector=n #across=m"])


@TARGETS
@BOTH
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i16", "bf16", "f16", "bool", "u64"])
def test_all_types_and_odd_sizes(hw: HwConfig, dtype: str, tags: str) -> None:
    check(transposed(dtype, 17, 35, tags), hw)


def reversed_dimensions(dtype: str, a: int, b: int, c: int, tags: str) -> Program:
    return parsed(
        f"""
        block main [] (in A[0, 0, 0] {dtype}({a}, {b}, {c}):({b * c}, {c}, 1)
                       out B[0, 0, 0]:assign {dtype}({c}, {b}, {a}):({b * a}, {a}, 1)) {{
          block B [b:{b}, c:{c}, a:{a}] (in A[a, b, c] {dtype}(1, 1, 1)
                                         out B[c, b, a]:assign {dtype}(1, 1, 1)) {tags} {{
            $a = load(A) {dtype}
            B = store($a)
          }}
        }}
        """
    )


@TARGETS
@pytest.mark.parametrize("tags", ["#vector=a #across=c", "#vector=c #across=a"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
def test_rows_that_crowd_into_few_sets(hw: HwConfig, dtype: str, tags: str) -> None:
    check(reversed_dimensions(dtype, 72, 128, 40, tags), hw)
    check_guarded(reversed_dimensions(dtype, 40, 128, 24, tags), hw)


@pytest.mark.parametrize(
    ("a", "b", "stores"),
    [
        (32, 32, 32),  # lines of both sides: 16 x 16
        (64, 8, 16),  # lines of what is read alone: 16 rows of the result have place
        (32, 8, 8),
        (32, 33, 8),
    ],
)
def test_lines_of_crowded_rows_are_moved_whole(a: int, b: int, stores: int) -> None:
    program = reversed_dimensions("f32", a, b, 32, "#vector=a #across=c")
    module = build(program, load_named("x86_64_avx2"))
    (body,) = (b for b in loops(module.asm) if any("unpck" in line for line in b))
    found = [line for line in body if re.match(r"vmov\w+\s+%ymm\d+, .*\(%r[^s]", line)]
    assert len(found) == stores


@TARGETS
@BOTH
def test_edges(hw: HwConfig, tags: str) -> None:
    for n, m in ((1, 3), (3, 1), (2, 16), (16, 33), (15, 17), (40, 3)):
        check(transposed("f32", n, m, tags), hw)


@pytest.mark.slow
@TARGETS
@BOTH
def test_every_edge(hw: HwConfig, tags: str) -> None:
    for n in (1, 2, 15, 16, 17):
        for m in (1, 3, 15, 16, 33):
            check(transposed("f32", n, m, tags), hw)


@TARGETS
@BOTH
@pytest.mark.parametrize("dtype", ["f32", "i8", "f64"])
def test_nothing_beside_the_tensors_is_touched(hw: HwConfig, dtype: str, tags: str) -> None:
    for n, m in ((3, 37), (67, 21)):
        check_guarded(transposed(dtype, n, m, tags), hw)


@TARGETS
@pytest.mark.parametrize("apart", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_lanes_that_are_as_far_apart_as_there_are_values_across(hw: HwConfig, dtype: str, apart: int) -> None:
    """Pixels with their channels side by side, taken apart and put together."""
    for size in (7, 67):
        check_guarded(transposed(dtype, apart, size, "#vector=m #across=n"), hw)
        check_guarded(transposed(dtype, size, apart, "#vector=n #across=m"), hw)


@TARGETS
def test_statements_between_see_lanes(hw: HwConfig) -> None:
    """Of three operands one is turned, one lies along the lanes, one is the same for all of them."""
    check(
        parsed(
            """
            block main [] (in A[0, 0] f32(35, 21):(21, 1)  in B[0, 0] f32(21, 35):(35, 1)  in C[0] f32(21):(1)
                           out R[0, 0]:assign f32(21, 35):(35, 1)) {
              block r [n:21, m:35] (in A[m, n] f32(1, 1)  in B[n, m] f32(1, 1)  in C[n] f32(1)
                                    out R[n, m]:assign f32(1, 1)) #vector=m #across=n {
                $a = load(A) f32
                $b = load(B) f32
                $c = load(C) f32
                $i = index(3*m + n) i32
                $f = cast($i) f32
                $x = mul($a, $c) f32
                $y = add($x, $b) f32
                $z = add($y, $f) f32
                R = store($z)
              } }
            """
        ),
        hw,
    )


@TARGETS
def test_dimensions_around_and_elements_turned_back(hw: HwConfig) -> None:
    check(
        parsed(
            """
            block main [] (in A[0, 0, 0] f32(3, 20, 18):(360, 18, 1)
                           out R[0, 0, 0]:assign f32(18, 3, 20):(60, 20, 1)) {
              block r [n:18, m:20, a:3] (in A[a, 19 - m, n] f32(1, 1, 1)
                                         out R[n, a, m]:assign f32(1, 1, 1)) #vector=m #across=n {
                $a = load(A) f32
                R = store($a)
              } }
            """
        ),
        hw,
    )


@TARGETS
@BOTH
def test_tiles_that_hang_over(hw: HwConfig, tags: str) -> None:
    """How many values a tile has is known when the code runs."""
    check(
        parsed(
            f"""
            block main [] (in A[0, 0] f32(43, 50):(50, 1)  out R[0, 0]:assign f32(50, 43):(43, 1)) {{
              block t [no:3, mo:2] (in A[24*mo, 20*no] f32(24, 20)  out R[20*no, 24*mo]:assign f32(20, 24)) {{
                block r [n:20, m:24, np = 20*no, mp = 24*mo] (
                    49 - np - n >= 0
                    42 - mp - m >= 0
                    in A[m, n] f32(1, 1)  out R[n, m]:assign f32(1, 1)) {tags} {{
                  $a = load(A) f32
                  R = store($a)
                }} }} }}
            """
        ),
        hw,
    )


@TARGETS
@pytest.mark.parametrize("condition", ["30 - n - m >= 0", "m - n >= 0"])
def test_what_is_no_rectangle_is_done_without_squares(hw: HwConfig, condition: str) -> None:
    check(
        parsed(
            f"""
            block main [] (in A[0, 0] f32(20, 20):(20, 1)  in Z[0, 0] f32(20, 20):(20, 1)
                           out R[0, 0]:assign f32(20, 20):(20, 1)) {{
              block z [n:20, m:20] (in Z[n, m] f32(1, 1)  out R[n, m]:assign f32(1, 1)) {{
                $z = load(Z) f32
                R = store($z)
              }}
              block r [n:20, m:20] ({condition}
                                    in A[m, n] f32(1, 1)  out R[n, m]:assign f32(1, 1)) #vector=m #across=n {{
                $a = load(A) f32
                R = store($a)
              }} }}
            """
        ),
        hw,
    )


@TARGETS
def test_a_point_may_read_what_it_replaces_or_has_written(hw: HwConfig) -> None:
    """Loads of a square run ahead of its statements: not of a buffer that these store to."""
    check(
        parsed(
            """
            block main [] (in A[0, 0] f32(20, 18):(18, 1)  out R[0, 0]:assign f32(18, 20):(20, 1)
                           out S[0, 0]:assign f32(20, 18):(18, 1)) {
              block r [n:18, m:20] (in A[m, n] f32(1, 1)  out R[n, m]:assign f32(1, 1)
                                    out S[m, n]:assign f32(1, 1)) #vector=m #across=n {
                $a = load(A) f32
                R = store($a)
                $b = load(R) f32
                $c = add($b, $b) f32
                S = store($a)
                S = store($c)
                $d = load(S) f32
                R = store($d)
              } }
            """
        ),
        hw,
    )


@TARGETS
@pytest.mark.parametrize("how", ["add", "max"])
@pytest.mark.parametrize("order", ["m:35, n:COLUMNS", "n:COLUMNS, m:35", "m:32, n:COLUMNS"])
@pytest.mark.parametrize("columns", [3, 5, 16, 18])
def test_rows_are_summed_up_in_squares(hw: HwConfig, how: str, order: str, columns: int) -> None:
    program = parsed(
        f"""
        block main [] (in A[0, 0] f32(35, {columns}):({columns}, 1)  out R[0]:assign f32(35):(1)) {{
          block f [m:35] (out R[m]:assign f32(1)) {{
            $z = constant(7.0) f32
            R = store($z)
          }}
          block r [{order.replace("COLUMNS", str(columns))}] (
              in A[m, n] f32(1, 1)  inout R[m]:{how} f32(1)) #vector=m #across=n {{
            $a = load(A) f32
            R = store($a)
          }} }}
        """
    )
    check_guarded(program, hw)


@TARGETS
@pytest.mark.parametrize("condition", ["n - a >= 0", "m - 2*a >= 0", "16 - n - a >= 0", "33 - m - a >= 0"])
def test_rows_are_summed_up_in_squares_whose_results_are_kept(hw: HwConfig, condition: str) -> None:
    """What each point computes is written in squares, too; no points leave what was there."""
    program = parsed(
        f"""
        block main [] (in A[0, 0, 0] f32(20, 35, 18)
                       out R[0, 0]:assign f32(20, 35)  out E[0, 0, 0]:assign f32(20, 35, 18)) {{
          block f [a:20, m:35, n:18] (out R[a, m]:max f32(1, 1)  out E[a, m, n]:assign f32(1, 1, 1)) {{
            $z = constant(7.0) f32
            R = store($z)
            E = store($z)
          }}
          block r [a:20, m:35, n:18] (
              {condition}
              in A[a, m, n] f32(1, 1, 1)  inout R[a, m]:add f32(1, 1)
              out E[a, m, n]:assign f32(1, 1, 1)) #vector=m #across=n {{
            $a = load(A) f32
            $b = add($a, $a) f32
            E = store($b)
            R = store($b)
          }} }}
        """
    )
    check_guarded(program, hw)


def test_code_of_rows_that_are_summed_up() -> None:
    """Sixteen rows of five elements: one vector of sums, which no lanes are folded for."""
    program = parsed(
        """
        block main [] (in A[0, 0] f32(64, 5):(5, 1)  out R[0]:assign f32(64):(1)) {
          block r [m:64, n:5] (in A[m, n] f32(1, 1)  out R[m]:add f32(1)) #vector=m #across=n {
            $a = load(A) f32
            R = store($a)
          } }
        """
    )
    code = build(program, load_named("x86_64_avx512")).llvm
    assert "vector.reduce" not in code and "gather" not in code
    assert len(re.findall(r"store <16 x float>", code)) >= 1


@pytest.mark.parametrize(
    ("target", "dtype", "side", "register"),
    [
        ("x86_64_avx512", "f32", 16, "zmm"),
        ("x86_64_avx512", "f64", 8, "zmm"),
        ("x86_64_avx2", "f32", 8, "ymm"),
        ("x86_64_avx2", "f64", 4, "ymm"),
        ("aarch64_neon", "f32", 4, ""),
        ("generic", "f32", 4, "xmm"),
    ],
)
def test_code_of_a_square(target: str, dtype: str, side: int, register: str) -> None:
    """As many loads and stores of whole vectors as the square has rows, and log2 of that shuffles each."""
    program = transposed(dtype, 128, 128, body="$b = abs($a) DTYPE")
    body = max(loops(build(program, load_named(target)).asm), key=len)
    memory = re.compile(r"v?mov(up|dqu)\w*\s.*\(|(ldr|str|st2)\s+[{q]")
    shuffles = re.compile(r"^v?(p?unpck|shuf|pshuf|perm|p?insert|punpck|movlhps)|^(zip|trn|uzp|st2|ext)")
    # On AArch64 one st2 stores two rows and interleaves them.
    moves = sum(2 if line.startswith("st2") else 1 for line in body if memory.match(line))
    assert moves == 2 * side
    assert sum(bool(shuffles.match(line)) for line in body) <= side * (side.bit_length() - 1)
    assert not any("gather" in line or "scatter" in line for line in body)
    if register:
        assert sum(register in line for line in body) >= 2 * side


@pytest.mark.parametrize(
    ("dtype", "n", "m", "read"),
    [
        ("f32", 101, 99, 8),  # of A, rows of n; of B, rows of m
        ("f64", 101, 99, 4),
        ("f32", 96, 99, 16),  # rows of A begin at lines
        ("f32", 101, 96, 16),
        ("f32", 1028, 99, 8),
        ("f32", 1032, 99, 8),
        ("f32", 1152, 99, 16),  # and lie on 8 sets of L1
    ],
)
def test_squares_take_half_lines_where_rows_begin_within_them(dtype: str, n: int, m: int, read: int) -> None:
    program, of = transposed(dtype, n, m, body="$b = abs($a) DTYPE"), {"f32": "float", "f64": "double"}[dtype]
    for target, side in (("x86_64_zen4", read), ("x86_64_avx512", 64 // (4 if dtype == "f32" else 8))):
        loads = re.findall(rf"load <(\d+) x {of}>", build(program, load_named(target)).emitted)
        assert max(map(int, loads)) == side


@pytest.mark.parametrize(
    ("n", "m", "read"),
    [
        (501, 1018, 8),  # rows of B lie 24 bytes less than 4 KiB apart: in few sets of L1
        (501, 1030, 8),
        (512, 1030, 16),  # rows of A crowd as well
        (501, 1024, 8),  # rows of B begin at lines, sixteen of them on a set of twelve ways
        (64, 1024, 8),  # rows of A crowd as well, in L2
        (512, 1024, 16),  # and beyond
        (501, 512, 16),  # eight rows of B on each of two sets
        (501, 1034, 16),  # and come to other sets
        (501, 509, 16),  # in two groups
        (3201, 1030, 16),  # more than caches keep
    ],
)
def test_squares_take_half_lines_where_rows_of_results_crowd(n: int, m: int, read: int) -> None:
    text = build(transposed("f32", n, m), load_named("x86_64_zen5")).emitted
    assert max(map(int, re.findall(r"load <(\d+) x float>", text))) == read


def test_squares_of_half_lines_compute_the_same() -> None:
    for hw in runnable():
        if hw.name == "x86_64_avx512":
            halves = tuple(msgspec.structs.replace(unit, stores_per_cycle=0.5) for unit in hw.units)
            for n, m in ((101, 99), (17, 35), (7, 33)):
                check_guarded(transposed("f32", n, m), msgspec.structs.replace(hw, units=halves))


@pytest.mark.parametrize(
    ("target", "side"), [("x86_64_avx512", 16), ("x86_64_avx2", 8), ("aarch64_neon", 16)]
)
def test_bytes_go_in_rectangles_where_registers_are_few(target: str, side: int) -> None:
    assembly = build(transposed("i8", 128, 128), load_named(target)).asm
    assert "pinsrb" not in assembly
    assert "pextrb" not in assembly
    body = max(loops(assembly), key=len)
    assert not any("(%rsp)" in line or "[sp" in line for line in body)
    assert len(body) < 12 * side * (2 if target == "x86_64_avx2" else 1)


def added_to(dtype: str, how: str, n: int, m: int, tags: str) -> Program:
    """In each of two tiles, which lie one over the other, rows are turned and added to the result."""
    return parsed(
        f"""
        block main [] (in A[0, 0, 0] {dtype}(2, {m}, {n})  out R[0, 0]:assign {dtype}({n}, {m})) {{
          block t [a:2] (in A[a, 0, 0] {dtype}(1, {m}, {n})  out R[0, 0]:{how} {dtype}({n}, {m})) {{
            block r [n:{n}, m:{m}] (in A[0, m, n] {dtype}(1, 1, 1)  out R[n, m]:{how} {dtype}(1, 1)) {tags} {{
              $a = load(A) {dtype}
              R = store($a)
            }}
          }} }}
        """
    )


@TARGETS
@BOTH
@pytest.mark.parametrize(("dtype", "how"), [("f32", "add"), ("f64", "max"), ("i8", "add"), ("f16", "add")])
def test_squares_are_added_to_what_is_there(hw: HwConfig, dtype: str, how: str, tags: str) -> None:
    for n, m in ((16, 16), (17, 35), (3, 37)):
        check_guarded(added_to(dtype, how, n, m, tags), hw)


def test_code_of_a_square_that_is_added_to() -> None:
    program = added_to("f32", "add", 128, 128, "#vector=n #across=m")
    body = max(loops(build(program, load_named("x86_64_avx512")).asm), key=len)
    assert sum("zmm" in line and line.startswith("vaddps") for line in body) == 16
    assert not any("gather" in line or "scatter" in line for line in body)


@TARGETS
@pytest.mark.parametrize(
    "order", ["m:35, a:3, n:18", "n:18, m:35, a:3", "n:18, a:3, m:35", "a:3, m:35, n:18"]
)
@BOTH
def test_loops_may_stand_between_the_sides_of_squares(hw: HwConfig, order: str, tags: str) -> None:
    program = parsed(
        f"""
        block main [] (in A[0, 0, 0] f32(35, 3, 18)  out R[0, 0, 0]:assign f32(18, 3, 35)) {{
          block r [{order}] (in A[m, a, n] f32(1, 1, 1)  out R[n, a, m]:assign f32(1, 1, 1)) {tags} {{
            $a = load(A) f32
            R = store($a)
          }} }}
        """
    )
    check_guarded(program, hw)


@TARGETS
@pytest.mark.parametrize("condition", ["36 - m - a >= 0", "m - 2*a >= 0", "18 - n - a >= 0"])
def test_other_loops_may_decide_where_squares_end(hw: HwConfig, condition: str) -> None:
    program = parsed(
        f"""
        block main [] (in A[0, 0, 0] f32(35, 3, 18)  out R[0, 0, 0]:assign f32(18, 3, 35)) {{
          block f [n:18, a:3, m:35] (out R[n, a, m]:assign f32(1, 1, 1)) {{
            $z = constant(7.0) f32
            R = store($z)
          }}
          block r [m:35, a:3, n:18] (
              {condition}
              in A[m, a, n] f32(1, 1, 1)  out R[n, a, m]:assign f32(1, 1, 1)) #vector=m #across=n {{
            $a = load(A) f32
            R = store($a)
          }} }}
        """
    )
    check(program, hw)
