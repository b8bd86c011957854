"""Loops that go through memory as one longer loop would: stripe.rewrite_merged."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.interp import interpret
from stripe.ir import Block, Program, contiguous
from stripe.parser import parse
from stripe.rewrite_merged import joins_rows, merged
from tests.support.native import runnable


def parsed(text: str) -> Program:
    return parse(Source("test.stripe", dedent(text)))


def dense(
    statements: str = "B = store($a)", head: str = "m:7, n:33", rest: str = "", columns: int = 33
) -> Program:
    return parsed(
        f"""
        block main [] (in A[0, 0] f32(7, {columns}):({columns}, 1)  out B[0, 0]:assign f32(7, 33):(33, 1)) {{
          block b [{head}] ({rest} in A[m, n] f32(1, 1)  out B[m, n]:assign f32(1, 1)) #vector=n {{
            $a = load(A) f32
            {statements}
          }} }}
        """
    )


def ranges(program: Program) -> dict[str, int]:
    (leaf,) = (s for s in program.root.statements if isinstance(s, Block))
    strides = {r.name: r.strides or contiguous(r.shape) for r in program.root.refinements}
    return merged(leaf, strides).ranges


NUMBERED = "$i = index({}*m + n) i32  $f = cast($i) f32  $b = add($a, $f) f32  B = store($b)"


def test_rows_that_follow_each_other_are_one() -> None:
    assert ranges(dense()) == {"n": 231}
    assert ranges(dense(NUMBERED.format(33).replace("  ", "\n"))) == {"n": 231}


@pytest.mark.parametrize(
    "program",
    [
        dense(columns=40),
        dense(NUMBERED.format(34).replace("  ", "\n")),
        dense(head="n:33, m:7"),
        dense(rest="230 - 33*m - n >= 0"),
    ],
    ids=["gap", "other number", "other order", "constraint"],
)
def test_others_stay(program: Program) -> None:
    assert set(ranges(program)) == {"m", "n"}


def test_sums_over_neighbours_are_one_loop() -> None:
    program = parsed(
        """
        block main [] (in A[0, 0, 0] f32(3, 5, 19):(95, 19, 1)  out S[0]:assign f32(3):(1)) {
          block s [a:3, b:5, c:19] (in A[a, b, c] f32(1, 1, 1)  out S[a]:add f32(1)) #vector=c {
            $a = load(A) f32
            S = store($a)
          } }
        """
    )
    assert ranges(program) == {"a": 3, "c": 95}


def tile(strides: str = "48, 24, 1", rest: str = "") -> Program:
    """Sums over k: 3 x 2 rows of 24 lanes, written out."""
    return parsed(
        f"""
        block main [] (in A[0, 0, 0] f32(8, 2, 24):({strides})  in B[0, 0] f32(8, 3):(3, 1)
                       out C[0, 0, 0]:assign f32(3, 2, 24):(48, 24, 1)) {{
          block c [k:8, r:2, m:3, n:24] (
            {rest} in A[k, r, n] f32(1, 1, 1)  in B[k, m] f32(1, 1)  out C[m, r, n]:add f32(1, 1, 1)
          ) #unroll=m #unroll=n #unroll=r #vector=n {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            C = store($c)
          }} }}
        """
    )


def test_lanes_of_a_tile_go_on_from_row_to_row() -> None:
    assert ranges(tile()) == {"k": 8, "m": 3, "n": 48}
    # In A one row does not follow the other; the rows that a constraint tests are kept apart.
    assert (
        ranges(tile("48, 1, 2")) == ranges(tile(rest="7 - k - r >= 0")) == {"k": 8, "r": 2, "m": 3, "n": 24}
    )


def in_registers(a: str = "12, 3, 1") -> Program:
    """Sums over k in registers: 2 x 4 rows of 3 lanes, written out, and copied to where they belong."""
    return parsed(
        f"""
        block main [] (in A[0, 0, 0] f32(8, 4, 3):({a})  in B[0, 0] f32(8, 2):(2, 1)
                       out C[0, 0, 0]:assign f32(2, 4, 3):(12, 3, 1)) {{
          block t [] (in A[0, 0, 0] f32(8, 4, 3)  in B[0, 0] f32(8, 2)
                      out C[0, 0, 0]:assign f32(2, 4, 3)  new T f32(2, 4, 3):(12, 3, 1) @REG) {{
            block c [k:8, m:2, r:4, n:3] (
              in A[k, r, n] f32(1, 1, 1)  in B[k, m] f32(1, 1)  out T[m, r, n]:add f32(1, 1, 1)
            ) #unroll=m #unroll=n #unroll=r #vector=n {{
              $a = load(A) f32
              $b = load(B) f32
              $c = mul($a, $b) f32
              T = store($c)
            }}
            block o [m:2, r:4, n:3] (
              in T[m, r, n] f32(1, 1, 1)  out C[m, r, n]:assign f32(1, 1, 1)
            ) #unroll=m #unroll=n #unroll=r #vector=n {{
              $t = load(T) f32
              C = store($t)
            }} }} }}
        """
    )


def test_rows_in_registers_follow_each_other_where_lanes_go_on() -> None:
    def joins(a: tuple[int, ...], buffer: str = "T") -> bool:
        (tile,) = in_registers().root.children
        return joins_rows(tile, buffer, {"A": a, "B": (2, 1), "C": (12, 3, 1), "T": (12, 3, 1)})

    assert joins((12, 3, 1))
    assert not joins((16, 4, 1))  # in A one row does not follow the other
    assert not joins((12, 3, 1), "A")  # nobody writes it
    sums = build(in_registers(), load_named("x86_64_avx512")).asm.count("vfmadd")
    assert sums == 2  # one vector for all rows of each m


def two_sums() -> Program:
    """Two sums in registers over the same rows, each in a nest of its own."""
    return parsed(
        """
        block main [] (in A[0, 0, 0] f32(8, 4, 3):(12, 3, 1)
                       out S[0, 0]:assign f32(4, 3):(3, 1)  out Q[0, 0]:assign f32(4, 3):(3, 1)) {
          block s [] (in A[0, 0, 0] f32(8, 4, 3)  out S[0, 0]:assign f32(4, 3)
                      out Q[0, 0]:assign f32(4, 3)  new T f32(4, 3):(3, 1) @REG) {
            block q [] (in A[0, 0, 0] f32(8, 4, 3)  out T[0, 0]:assign f32(4, 3)
                        out Q[0, 0]:assign f32(4, 3)  new U f32(4, 3):(3, 1) @REG) {
              block c [k:8, r:4, n:3] (
                in A[k, r, n] f32(1, 1, 1)  out T[r, n]:add f32(1, 1)  out U[r, n]:add f32(1, 1)
              ) #unroll=n #unroll=r #vector=n {
                $a = load(A) f32
                T = store($a)
                $q = mul($a, $a) f32
                U = store($q)
              }
              block o [r:4, n:3] (in U[r, n] f32(1, 1)  out Q[r, n]:assign f32(1, 1)) #vector=n {
                $u = load(U) f32
                Q = store($u)
              } }
            block o [r:4, n:3] (in T[r, n] f32(1, 1)  out S[r, n]:assign f32(1, 1)) #vector=n {
              $t = load(T) f32
              S = store($t)
            } } }
        """
    )


def test_rows_of_several_sums_follow_each_other() -> None:
    (nest,) = two_sums().root.children
    dense = dict.fromkeys(("S", "Q", "T"), (3, 1))
    assert joins_rows(nest, "T", {"A": (12, 3, 1), **dense})
    assert not joins_rows(nest, "T", {"A": (16, 4, 1), **dense})
    assert build(two_sums(), load_named("x86_64_avx512")).asm.count("vfmadd") == 1


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_several_sums_over_rows_compute_the_same(hw: HwConfig) -> None:
    given = {"A": np.arange(96, dtype=np.float32).reshape(8, 4, 3)}
    want, got = interpret(two_sums(), given), NativeKernel(build(two_sums(), hw))(**given)
    for name, value in zip(("S", "Q"), got, strict=True):
        np.testing.assert_array_equal(value, want[name])


@pytest.mark.parametrize("a", ["12, 3, 1", "1, 24, 8"])
@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_rows_in_registers_compute_the_same(hw: HwConfig, a: str) -> None:
    given = {
        "A": np.arange(96, dtype=np.float32).reshape(8, 4, 3),
        "B": np.arange(16, dtype=np.float32).reshape(8, 2),
    }
    program = in_registers(a=a)
    want = interpret(program, given)["C"]
    np.testing.assert_array_equal(NativeKernel(build(program, hw))(**given), want)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_lanes_of_a_tile_compute_the_same(hw: HwConfig) -> None:
    a, b = np.arange(384, dtype=np.float32).reshape(8, 2, 24), np.arange(24, dtype=np.float32).reshape(8, 3)
    want = interpret(tile(), {"A": a, "B": b})["C"]
    np.testing.assert_array_equal(NativeKernel(build(tile(), hw))(A=a, B=b), want)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_they_compute_the_same(hw: HwConfig) -> None:
    program = dense(NUMBERED.format(33).replace("  ", "\n"))
    kernel = NativeKernel(build(program, hw))
    a = np.arange(231, dtype=np.float32).reshape(7, 33)
    np.testing.assert_array_equal(kernel(A=a), interpret(program, {"A": a})["B"])


def test_whole_lines_stream_where_rows_are_no_lines() -> None:
    n = 1 << 11
    text = f"""
        block main [] (in A[0, 0] f32({n}, 1001):(1001, 1)  out B[0, 0]:assign f32({n}, 1001):(1001, 1)) {{
          block b [m:{n}, n:1001] (in A[m, n] f32(1, 1)  out B[m, n]:assign f32(1, 1)) #vector=n {{
            $a = load(A) f32
            B = store($a)
          }} }}
        """
    assert "movnt" in build(parsed(text), load_named("x86_64_avx512")).asm


def squares(limit: str, access: str = "b, c", block: str = "b:5, d:32, c:28") -> Program:
    return parsed(
        f"""
        block main [] (in A[0, 0, 0] f32(5, 28, 32):(896, 32, 1)
                       out B[0, 0, 0]:assign f32(32, 5, 28):(140, 28, 1)) {{
          block fill [d:32, b:5, c:28] (out B[d, b, c]:assign f32(1, 1, 1)) {{
            $z = constant(0.5) f32
            B = store($z)
          }}
          block b [{block}] (
            {limit}
            in A[{access}, d] f32(1, 1, 1)
            inout B[d, {access}]:assign f32(1, 1, 1)
          ) #across=c #vector=d {{
            $a = load(A) f32
            B = store($a)
          }} }}
        """
    )


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (squares(""), {"d": 32, "c": 140}),
        (squares("3 - b >= 0"), {"d": 32, "c": 140}),
        (squares("b - 2 >= 0  3 - b >= 0"), {"d": 32, "c": 140}),
        (squares("b + d - 20 >= 0"), {"b": 5, "d": 32, "c": 28}),  # limits of lanes differ from row to row
        (squares("7 - 2*b >= 0"), {"b": 5, "d": 32, "c": 28}),
        (squares("27 - c >= 0  3 + b - c >= 0"), {"b": 5, "d": 32, "c": 28}),
        (squares("", "b, 27 - c"), {"b": 5, "d": 32, "c": 28}),
    ],
)
def test_rows_are_merged_into_the_index_across_squares(program: Program, expected: dict[str, int]) -> None:
    leaf = program.root.children[-1]
    strides = {r.name: r.strides or contiguous(r.shape) for r in program.root.refinements}
    assert merged(leaf, strides).ranges == expected
    rng = np.random.default_rng(3)
    array = rng.standard_normal((5, 28, 32)).astype(np.float32)
    for hw in runnable():
        got = NativeKernel(build(program, hw))(A=array)
        np.testing.assert_array_equal(got, interpret(program, {"A": array})["B"], err_msg=hw.name)
