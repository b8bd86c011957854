"""vectorize: whose vectors are filled, and what it says where it does nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Unit
from stripe.diag import CompileError
from stripe.dtypes import DType
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.vectorize import Vectorize
from tests.support.executions import native_target, run_native
from tests.support.passes import check_pass, program_of

HW = HwConfig(
    "chip",
    "",
    "interpreter",
    units=(
        Unit("DMA", kind="transfer", vector_bytes=128),
        Unit("WIDE", vector_bytes=64),
        Unit("NARROW", vector_bytes=16),
    ),
)
COPY = program_of(
    """
    block main [] (in A[0] f32(32):(1)  out B[0]:assign f32(32):(1)) {
      block b [i:32] (in A[i] f32(1):(1)  out B[i]:assign f32(1):(1)) {
        $a = load(A) f32
        B = store($a)
      } }"""
)


@pytest.mark.parametrize(("unit", "lanes"), [("", 16), ("WIDE", 16), ("NARROW", 4)])
def test_the_unit_is_the_first_that_computes_or_the_one_that_is_named(unit: str, lanes: int) -> None:
    result, remarks = check_pass(COPY, Vectorize(unit=unit), HW)
    assert result.root.children[0].tag_values("vector") == ("i",)
    assert [remark.data["lanes"] for remark in remarks] == [lanes]
    assert [remark.message for remark in remarks] == [f"i runs along {lanes} lanes"]


def test_a_unit_that_does_not_compute_is_none() -> None:
    with pytest.raises(CompileError, match=r"P103.*no compute unit 'DMA'"):
        Vectorize(unit="DMA").check(HW)
    context = PassContext(HwConfig("bare", "", "interpreter"))
    assert Vectorize().run(COPY, context) is COPY
    assert [remark.message for remark in context.remarks] == ["the target has no compute unit"]


def test_it_says_why_a_leaf_has_no_lanes() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(4):(1)  in I[0] i32(2):(1)  out B[0]:assign f32(2):(1)
                       out C[0]:assign f32(2):(1)  out E[0]:assign f32(2):(1)
                       out F[0]:assign f32(2):(1)) {
          block g [x:2] (in A[0] f32(4):(1)  in I[x] i32(1):(1)  out B[x]:assign f32(1):(1)) {
            special gather(in A, in I, out B:assign) {axis=0}
          }
          block c [x:1] (in A[x] f32(1):(1)  out C[0]:assign f32(1):(1)) {
            $a = load(A) f32
            C = store($a)
          }
          block e [x:2] (in A[0] f32(4):(1)  in I[x] i32(1):(1)  out E[x]:assign f32(1):(1)
                         out F[x]:assign f32(1):(1)) {
            $z = constant(1.0) f32
            F = store($z)
            special gather(in A, in I, out E:assign) {axis=0}
          }
          block d [x:1] (in A[x] f32(1):(1)  out C[1]:assign f32(1):(1)) {
            $a = load(A) f32
            C = store($a)
          } }"""
    )
    result, remarks = check_pass(program, Vectorize(), HW)
    assert result is program
    assert [(r.block, r.message) for r in remarks] == [
        ("main/g", "no lane index: it holds a special, which works on whole views"),
        ("main/c", "no lane index: every index has one value"),
        ("main/e", "no lane index: it holds a special, which works on whole views"),
        ("main/d", "no lane index: every index has one value"),
    ]


def turned(access: str, n: int, m: int, extra: str = "") -> str:
    """The tags, and the order of the indexes, that a block gets whose operand has this access."""
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32(99, 99):(99, 1)  in C[0] f32(99):(1)
                       out B[0, 0]:assign f32({n}, {m}):({m}, 1)) {{
          block b [n:{n}, m:{m}] (in A[{access}] f32(1, 1)  in C[m] f32(1)  out B[n, m]:assign f32(1, 1)) {{
            $a = load(A) f32
            {extra}
            B = store($a)
          }} }}"""
    )
    result, _ = check_pass(program, Vectorize(unit="WIDE"), HW)
    block = result.root.children[0]
    return f"{' '.join(block.ranges)}: {' '.join(map(str, block.tags))}"


@pytest.mark.parametrize(
    ("access", "n", "m", "expected"),
    [
        ("m, n", 64, 64, "n m: #across=n #vector=m"),
        ("98 - m, n", 20, 35, "n m: #across=n #vector=m"),
        ("m, n", 64, 48, "n m: #across=n #vector=m"),
        ("7*m, 9*n", 10, 14, "n m: #vector=m"),  # nothing lies side by side in A
        ("n, m", 64, 64, "n m: #vector=m"),  # both operands along m
        ("0, 3*m + n", 3, 32, "n m: #across=n #vector=m"),  # all elements side by side
        ("0, 3*m + n", 2, 32, "n m: #vector=m"),  # loads and shuffles pick the lanes
    ],
)
def test_squares_are_turned_where_an_operand_lies_across(access: str, n: int, m: int, expected: str) -> None:
    assert turned(access, n, m) == expected


def test_squares_of_which_one_side_is_short_have_the_long_side_along_the_lanes() -> None:
    assert turned("m, n", 99, 4) == "n m: #across=m #vector=n"
    assert turned("m, n", 4, 99) == "n m: #across=n #vector=m"


@pytest.mark.parametrize(
    ("columns", "n", "order"),
    [
        (512, 256, "n m"),
        (4096, 256, "m n"),
        (4112, 256, "n m"),
        (4096, 512, "n m"),  # a result of 1 MiB goes past the caches, row by row
    ],
)
def test_squares_go_along_what_is_read_where_its_rows_crowd(columns: int, n: int, order: str) -> None:
    """Of L2, 16 ways of 64 KiB, rows 16 KiB apart use 4 sets, and 512 of them are 128 lines in each."""
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32(512, {n}):({columns}, 1)  out B[0, 0]:assign f32({n}, 512):(512, 1)) {{
          block t [n:{n}, m:512] (in A[m, n] f32(1, 1)  out B[n, m]:assign f32(1, 1)) {{
            $a = load(A) f32
            B = store($a)
          }}
        }}
        """
    )
    result = Vectorize().run(program, PassContext(load_named("x86_64_avx512")))
    assert " ".join(result.root.children[0].ranges) == order


@pytest.mark.parametrize(
    ("columns", "how", "expected"),
    [
        (64, "add", "n runs along 16 lanes, summed at the end"),
        (64, "max", "n runs along 16 lanes, summed at the end"),
        (16, "add", "n runs along 16 lanes, summed at the end"),  # whole vectors come in halves
        (16, "max", "m runs along 16 lanes, in squares along n"),
        (12, "add", "m runs along 16 lanes, in squares along n"),
        (5, "add", "m runs along 16 lanes, in squares along n"),
        (5, "max", "m runs along 16 lanes, in squares along n"),
        (3, "add", "m runs along 16 lanes, in squares along n"),
    ],
)
def test_short_rows_are_summed_up_in_squares(columns: int, how: str, expected: str) -> None:
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32(64, {columns}):({columns}, 1)  out B[0]:assign f32(64):(1)) {{
          block b [n:{columns}, m:64] (in A[m, n] f32(1, 1)  out B[m]:{how} f32(1)) {{
            $a = load(A) f32
            B = store($a)
          }} }}"""
    )
    result, (remark,) = check_pass(program, Vectorize(unit="WIDE"), HW)
    assert remark.message == expected
    if "squares" in expected:
        assert [*result.root.children[0].ranges] == ["m", "n"]  # sums stay in registers


def test_what_is_read_again_and_again_is_not_turned_for_sums() -> None:
    """Copies of it, whose elements lie side by side, are worth more."""
    program = program_of(
        """
        block main [] (in A[0, 0] f32(64, 5):(5, 1)  in B[0, 0] f32(64, 5):(5, 1)
                       out C[0, 0]:assign f32(64, 64):(64, 1)) {
          block c [m:64, n:64, k:5] (in A[m, k] f32(1, 1)  in B[n, k] f32(1, 1)  out C[m, n]:add f32(1, 1)) {
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            C = store($c)
          } }"""
    )
    result, _ = check_pass(program, Vectorize(unit="WIDE"), HW)
    assert result.root.children[0].tag_values("across") == ()


@pytest.mark.parametrize(("ops", "expected"), [(("neg", "mul"), "n"), (("sqrt", "div"), "m")])
def test_few_lanes_are_idle_where_functions_are_computed(ops: tuple[str, str], expected: str) -> None:
    """Rows of 9 leave 7 lanes of 16 idle: that costs little beside turning squares, but a division takes
    long, and a root of one value for each row is taken of 16 at a time."""
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32(64, 9):(9, 1)  in S[0] f32(64):(1)
                       out B[0, 0]:assign f32(64, 9):(9, 1)) {{
          block b [m:64, n:9] (in A[m, n] f32(1, 1)  in S[m] f32(1)  out B[m, n]:assign f32(1, 1)) {{
            $a = load(A) f32
            $s = load(S) f32
            $t = {ops[0]}($s) f32
            $c = {ops[1]}($a, $t) f32
            B = store($c)
          }} }}"""
    )
    result, _ = check_pass(program, Vectorize(unit="WIDE"), HW)
    assert result.root.children[0].tag_values("vector") == (expected,)


def test_a_buffer_in_registers_lies_along_the_lanes_that_sum_into_it() -> None:
    """A[j, i] is summed with lanes along j: j lies innermost; B, in memory, and C, of one element, stay."""
    program = program_of("""
        block main [] (in X[0, 0] f32(4, 64):(64, 1)  in W[0, 0] f32(4, 6):(6, 1)
                       out R[0, 0]:assign f32(64, 6):(6, 1)) {
          block t [] (in X[0, 0] f32(4, 64)  in W[0, 0] f32(4, 6)  out R[0, 0]:assign f32(64, 6)
                      new A f32(64, 6):(6, 1) @REG  new B f32(64, 6):(6, 1)  new C f32(1, 1):(7, 1) @REG) {
            block c [k:4] (in X[k, 0] f32(1, 1)  out C[0, 0]:add f32(1, 1)) { $x = load(X)  C = store($x) }
            block s [i:6, k:4, j:64] (in X[k, j] f32(1, 1)  in W[k, i] f32(1, 1)  out A[j, i]:add f32(1, 1)) {
              $x = load(X)
              $w = load(W)
              $p = mul($x, $w)
              A = store($p)
            }
            block b [j:64, i:6] (in A[j, i] f32(1, 1)  out B[j, i]:assign f32(1, 1)) {
              $a = load(A)
              B = store($a)
            }
            block r [j:64, i:6] (in B[j, i] f32(1, 1)  in C[0, 0] f32(1, 1)  out R[j, i]:assign f32(1, 1)) {
              $b = load(B)
              $c = load(C)
              $r = add($b, $c)
              R = store($r)
            }
          }
        }
    """)
    result, _ = check_pass(program, Vectorize(), load_named("x86_64_avx512"))
    (tile,) = result.root.children
    strides = {name: tile.refinement(name).strides for name in "ABC"}
    assert strides == {"A": (1, 64), "B": (6, 1), "C": (7, 1)}


def test_a_copy_of_what_lies_far_off_goes_along_it() -> None:
    """X has 13 MB, or 200 kB, which a core's own caches hold."""
    program = program_of(
        """
        block main [] (in X[0, 0, 0] f32(64, 100, 512)  out Y[0, 0, 0]:assign f32(64, 100, 512)) {
          block y [i:64] (in X[i, 0, 0] f32(1, 100, 512)  out Y[i, 0, 0]:assign f32(1, 100, 512)
                          new T f32(4, 100, 128):(12800, 128, 1)) {
            block pack [p:4, a:100, b:128] (in X[0, a, 128*p + b] f32(1, 1, 1)
                                            out T[p, a, b]:assign f32(1, 1, 1)) {
              $x = load(X) f32
              T = store($x)
            }
            block use [p:4, a:100, b:128] (in T[p, a, b] f32(1, 1, 1)
                                           out Y[0, a, 128*p + b]:assign f32(1, 1, 1)) {
              $t = load(T) f32
              Y = store($t)
            }
          } }"""
    )
    result, _ = check_pass(program, Vectorize(), load_named("x86_64_avx512"))
    pack, use = result.root.children[0].children
    assert tuple(pack.ranges) == ("a", "p", "b")
    assert tuple(use.ranges) == ("p", "a", "b")  # it reads what lies near
    near = program_of(
        """
        block main [] (in X[0, 0] f32(100, 512)  out Y[0, 0, 0]:assign f32(4, 100, 128)) {
          block y [p:4, a:100, b:128] (in X[a, 128*p + b] f32(1, 1)  out Y[p, a, b]:assign f32(1, 1, 1)) {
            $x = load(X) f32
            Y = store($x)
          } }"""
    )
    result, _ = check_pass(near, Vectorize(), load_named("x86_64_avx512"))
    assert tuple(result.root.children[0].ranges) == ("p", "a", "b")


@pytest.mark.parametrize(
    ("target", "order", "few"),
    [
        ("x86_64_avx512", ("a", "p", "b"), ("a", "p", "b")),
        ("x86_64_avx2", ("p", "a", "b"), ("a", "p", "b")),
        ("x86_64_zen4", ("p", "a", "b"), ("a", "p", "b")),
    ],
)
def test_a_copy_to_a_result_that_goes_past_the_caches_or_to_few_rows_goes_along_what_it_reads(
    target: str, order: tuple[str, ...], few: tuple[str, ...]
) -> None:
    """2 MB of X and as many of Y: AVX2 has no such stores here, and on Zen 4 both stay in the last cache. Of
    16 rows, 128 KiB apart, a set of the nearest cache holds 8; of 4, all."""
    for rows, wanted in ((16, order), (4, few)):
        program = program_of(
            f"""
            block main [] (in X[0, 0] f32({4096 // rows}, {rows * 128})
                           out Y[0, 0, 0]:assign f32({rows}, {4096 // rows}, 128)) {{
              block y [p:{rows}, a:{4096 // rows}, b:128] (
                in X[a, 128*p + b] f32(1, 1)  out Y[p, a, b]:assign f32(1, 1, 1)
              ) {{
                $x = load(X) f32
                Y = store($x)
              }} }}"""
        )
        result, _ = check_pass(program, Vectorize(), load_named(target))
        assert tuple(result.root.children[0].ranges) == wanted


def order_of_copy(loops: str, x: str, read: str, y: str, written: str) -> tuple[str, ...]:
    """The order in which Y[written] = X[read] goes through these loops on Zen 4; `x` and `y` are shapes."""
    ones, origin = ", ".join("1" for _ in x.split(",")), ", ".join("0" for _ in x.split(","))
    program = program_of(
        f"""
        block main [] (in X[{origin}] f32({x})  out Y[{origin}]:assign f32({y})) {{
          block y [{loops}] (in X[{read}] f32({ones})  out Y[{written}]:assign f32({ones})) {{
            $x = load(X) f32
            Y = store($x)
          }} }}"""
    )
    result, _ = check_pass(program, Vectorize(), load_named("x86_64_zen4"))
    return tuple(result.root.children[0].ranges)


@pytest.mark.parametrize(
    ("rows", "columns", "order"),
    [
        (
            7,
            1000,
            ("b", "a", "c"),
        ),  # rows of what is written begin within lines: they can't go past the caches
        (7, 1024, ("a", "b", "c")),  # they can
        (15, 1023, ("b", "a", "c")),
        (70, 1000, ("a", "b", "c")),  # more rows than are fetched ahead
    ],
)
def test_large_copies_of_few_rows_go_along_what_they_write(
    rows: int, columns: int, order: tuple[str, ...]
) -> None:
    loops, x, y = f"b:3000, a:{rows}, c:{columns}", f"{rows}, 3000, {columns}", f"3000, {rows}, {columns}"
    assert order_of_copy(loops, x, "a, b, c", y, "b, a, c") == order


def test_copies_of_short_pieces_go_along_what_they_write() -> None:
    """Whatever the order of their indexes, and though the 15 rows of X lie on one set of L1."""
    loops, x, y = "a:15, c:256, b:256, d:12", "15, 256, 256, 12", "256, 256, 15, 12"
    assert order_of_copy(loops, x, "a, b, c, d", y, "b, c, a, d") == ("b", "c", "a", "d")


@pytest.mark.parametrize(
    ("target", "dtype", "columns", "order"),
    [
        ("x86_64_avx2", "f32", 3000, ("m", "n")),
        ("x86_64_avx2", "f32", 3072, ("n", "m")),  # rows of 12 KiB are on one set of the nearest cache
        ("x86_64_avx2", "bf16", 6000, ("n", "m")),  # squares of 16 rows
        ("x86_64_avx512", "f32", 3000, ("n", "m")),  # a vector is a line
    ],
)
def test_parts_of_lines_are_taken_one_after_the_other(
    target: str, dtype: str, columns: int, order: tuple[str, ...]
) -> None:
    """Results of 24 MB go past the caches."""
    program = program_of(
        f"""
        block main [] (in X[0, 0] {dtype}(2000, {columns})  out Y[0, 0]:assign {dtype}({columns}, 2000)) {{
          block tiles [t:20] (in X[100*t, 0] {dtype}(100, {columns})
                              out Y[0, 100*t]:assign {dtype}({columns}, 100)) {{
            block y [n:{columns}, m:100] (in X[m, n] {dtype}(1, 1)  out Y[n, m]:assign {dtype}(1, 1)) {{
              $x = load(X) {dtype}
              Y = store($x)
            }} }} }}"""
    )
    result, _ = check_pass(program, Vectorize(), load_named(target))
    assert tuple(result.root.children[0].children[0].ranges) == order


@pytest.mark.parametrize(
    ("rows", "between", "order"),
    [
        (8, 512, ("c", "b", "a")),  # 256 pieces of half a line, 16 KiB apart: all on one set
        (8, 500, ("b", "c", "a")),  # on many sets
        (48, 512, ("b", "a", "c")),  # of three lines each
    ],
)
def test_squares_that_scatter_short_pieces_put_those_side_by_side_first(
    rows: int, between: int, order: tuple[str, ...]
) -> None:
    loops, x, y = f"b:{between}, c:256, a:{rows}", f"{rows}, {between}, 256", f"256, {between}, {rows}"
    assert order_of_copy(loops, x, "a, b, c", y, "c, b, a") == order


def test_squares_of_a_copy_follow_the_rows_that_it_reads() -> None:
    """Rows of 3840 bytes; the lanes run along what it writes."""
    program = program_of(
        """
        block main [] (in X[0, 0, 0] f32(48, 96, 960)  out Z[0, 0, 0]:assign f32(960, 96, 48)) {
          block z [i:48] (in X[0, 2*i, 0] f32(48, 2, 960)  out Z[0, 2*i, 0]:assign f32(960, 2, 48)
                          new T f32(960, 2, 48)) {
            block pack [c:960, b:2, a:48] (in X[a, b, c] f32(1, 1, 1)  out T[c, b, a]:assign f32(1, 1, 1)) {
              $x = load(X) f32
              T = store($x)
            }
            block use [c:960, b:2, a:48] (in T[c, b, a] f32(1, 1, 1)  out Z[c, b, a]:assign f32(1, 1, 1)) {
              $t = load(T) f32
              $z = mul($t, $t) f32
              Z = store($z)
            }
          } }"""
    )
    result, _ = check_pass(program, Vectorize(), load_named("x86_64_avx512"))
    pack = result.root.children[0].children[0]
    assert {*pack.tag_values("vector"), *pack.tag_values("across")} == {"a", "c"}
    assert tuple(pack.ranges) == ("b", "a", "c")


def test_squares_of_a_copy_take_whole_rows_also_where_they_are_short() -> None:
    """Two rows of 192 bytes lie side by side, of which squares of 16 take a line each."""
    program = program_of(
        """
        block main [] (in X[0, 0, 0, 0] f32(48, 48, 48, 48)  out Z[0, 0, 0, 0]:assign f32(48, 48, 48, 48)) {
          block z [h:2, i:24] (in X[0, 24*h, 2*i, 0] f32(48, 24, 2, 48)
                               out Z[0, 24*h, 2*i, 0]:assign f32(48, 24, 2, 48)
                               new T f32(48, 24, 2, 48)) {
            block pack [e:24, b:2, d:48, a:48] (in X[a, e, b, d] f32(1, 1, 1, 1)
                                                out T[d, e, b, a]:assign f32(1, 1, 1, 1)) {
              $x = load(X) f32
              T = store($x)
            }
            block use [d:48, e:24, b:2, a:48] (in T[d, e, b, a] f32(1, 1, 1, 1)
                                               out Z[d, e, b, a]:assign f32(1, 1, 1, 1)) {
              $t = load(T) f32
              $z = mul($t, $t) f32
              Z = store($z)
            }
          } }"""
    )
    result, _ = check_pass(program, Vectorize(), load_named("x86_64_avx512"))
    pack = result.root.children[0].children[0]
    assert (pack.tag_values("vector"), pack.tag_values("across")) == (("a",), ("d",))
    assert tuple(pack.ranges) == ("e", "a", "b", "d")


def pairs(columns: int, apart: int) -> Program:
    """A copy of rows of pairs that lie one after the other; the rows are so many elements apart."""
    return program_of(
        f"""
        block main [] (in A[0, 0, 0] bf16(9, {columns}, 2):({apart}, 2, 1)
                       out B[0, 0, 0]:assign bf16(9, {columns}, 2):({2 * columns}, 2, 1)) {{
          block b [k:9, n:{columns}, p:2] (
            in A[k, n, p] bf16(1, 1, 1):({apart}, 2, 1)
            out B[k, n, p]:assign bf16(1, 1, 1):({2 * columns}, 2, 1)
          ) {{
            $a = load(A) bf16
            B = store($a)
          }} }}"""
    )


def test_lanes_go_on_where_rows_follow_each_other() -> None:
    result, _ = check_pass(pairs(64, 512), Vectorize(unit="WIDE"), HW)
    assert (result.root.children[0].tag_values("vector"), result.root.children[0].tag_values("across")) == (
        ("p",),
        (),
    )


@pytest.mark.parametrize(
    ("row", "place", "words"),
    [
        (96, "2*k + p", True),
        (97, "2*k + p", False),
        (98, "2*k + p + 1", False),
        (96, "k + 48*p", False),
    ],
    ids=["pairs", "rows of an odd length", "pairs that begin elsewhere", "elements apart"],
)
def test_pairs_that_stay_together_are_moved_as_words(row: int, place: str, words: bool) -> None:
    text = f"""
        block main [] (in X[0, 0] bf16(64, {row}):({row}, 1)
                       out Y[0, 0, 0]:assign bf16(48, 64, 2):(128, 2, 1)) {{
          block o [n:64, k:48, p:2] (in X[n, {place}] bf16(1, 1)  out Y[k, n, p]:assign bf16(1, 1, 1)) {{
            $x = load(X)
            Y = store($x) }} }}
        """
    result, remarks = check_pass(program_of(text), Vectorize(), load_named("x86_64_zen5"))
    (copy,) = result.root.children
    assert copy.tag_values("group") == (("p",) if words else ())
    assert ("as words along p" in remarks[0].message) is words
    if words:
        assert (copy.tag_values("vector"), copy.tag_values("across")) == (("n",), ("k",))


def test_what_is_computed_with_is_no_word() -> None:
    text = """
        block main [] (in X[0, 0] f16(64, 96):(96, 1)  out Y[0, 0, 0]:assign f16(48, 64, 2):(128, 2, 1)) {
          block o [n:64, k:48, p:2] (in X[n, 2*k + p] f16(1, 1)  out Y[k, n, p]:assign f16(1, 1, 1)) {
            $x = load(X) f16
            $y = neg($x) f16
            Y = store($y) } }
        """
    result, _ = check_pass(program_of(text), Vectorize(), load_named("x86_64_zen5"))
    assert not result.root.children[0].has_tag("group")


@pytest.mark.parametrize(("place", "words"), [("@REG", False), ("", True)])
def test_what_lies_in_registers_is_not_moved_as_words(place: str, words: bool) -> None:
    """Columns of pairs, from rows of them: squares of pairs, but for results of a tile."""
    text = f"""
        block main [] (in X[0, 0, 0] bf16(16, 8, 2):(16, 2, 1)
                       out Y[0, 0, 0]:assign bf16(8, 16, 2):(32, 2, 1)) {{
          block t [] (in X[0, 0, 0] bf16(16, 8, 2)  out Y[0, 0, 0]:assign bf16(8, 16, 2)
                      new S bf16(16, 8, 2):(16, 2, 1) {place}) {{
            block a [m:16, n:8, p:2] (in X[m, n, p] bf16(1, 1, 1)  out S[m, n, p]:assign bf16(1, 1, 1)) {{
              $x = load(X)
              S = store($x) }}
            block b [n:8, m:16, p:2] (in S[m, n, p] bf16(1, 1, 1)  out Y[n, m, p]:assign bf16(1, 1, 1)) {{
              $s = load(S)
              Y = store($s) }} }} }}
        """
    result, _ = check_pass(program_of(text), Vectorize(), load_named("x86_64_zen5"))
    turned = result.root.children[0].children[1]
    assert turned.has_tag("group") is words
    hw = native_target("x86_64_zen5")
    if hw is not None:
        x = np.arange(256, dtype=np.uint16).view(DType.BF16.numpy).reshape(16, 8, 2)
        y = run_native(result, hw, {"X": x})["Y"]
        assert y.tobytes() == x.transpose(1, 0, 2).tobytes()
