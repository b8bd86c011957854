"""canonicalize: laws that hold bit for bit, what must stay, and generated programs."""

from __future__ import annotations

from math import prod

import pytest

from stripe.ir import Block, Constant, Intrinsic, Load, Program
from stripe.passes.canonicalize import Canonicalize
from tests.support.passes import check_pass, program_of
from tests.support.programs import corpus, make_program


def canonical(text: str) -> Program:
    return check_pass(program_of(text), Canonicalize())[0]


def scalar_program(dtype: str, *lines: str) -> str:
    """One block that reads `a` and `b` and stores `r`, with these statements in between."""
    body = "\n".join(lines)
    return f"""
    block main [] (in A[0] {dtype}(7)  in B[0] {dtype}(7)  out R[0]:assign {dtype}(7)) {{
      block r [x:7] (in A[x] {dtype}(1)  in B[x] {dtype}(1)  out R[x]:assign {dtype}(1)) {{
        $a = load(A) {dtype}
        $b = load(B) {dtype}
        {body}
        R = store($r)
      }}
    }}
    """


def statements(program: Program) -> list[str]:
    """What the first kernel computes: operation and operands of each intrinsic."""
    found = [s for s in program.root.children[0].statements if isinstance(s, Intrinsic)]
    return [f"{s.op}({', '.join(s.operands)})" for s in found]


@pytest.mark.parametrize(
    ("dtype", "constant", "expression"),
    [
        ("f32", "1.0", "mul($a, $c)"),
        ("f32", "1.0", "mul($c, $a)"),
        ("f32", "1.0", "div($a, $c)"),
        ("f32", "-0.0", "add($a, $c)"),
        ("f32", "0.0", "sub($a, $c)"),
        ("bf16", "1.0", "mul($a, $c)"),
        ("i32", "0", "add($c, $a)"),
        ("i32", "0", "sub($a, $c)"),
        ("i32", "1", "floordiv($a, $c)"),
        ("u8", "0", "shr($a, $c)"),
        ("i32", "5", "max($a, $a)"),
        ("u8", "5", "and($a, $a)"),
    ],
)
def test_operations_that_change_nothing_go(dtype: str, constant: str, expression: str) -> None:
    program = canonical(
        scalar_program(dtype, f"$c = constant({constant}) {dtype}", f"$r = {expression} {dtype}")
    )
    assert statements(program) == []


@pytest.mark.parametrize(
    ("dtype", "constant", "expression"),
    [
        ("f32", "0.0", "add($a, $c)"),  # -0.0 + 0.0 is 0.0
        ("f32", "-0.0", "sub($a, $c)"),
        ("f32", "0.0", "mul($a, $c)"),  # NaN, infinities, the sign of 0
        ("f32", "1.0", "floordiv($a, $c)"),
        ("f32", "2.0", "sub($a, $a)"),  # infinities
        ("f32", "2.0", "div($a, $a)"),
        ("i32", "1", "sub($c, $a)"),
    ],
)
def test_operations_that_may_change_something_stay(dtype: str, constant: str, expression: str) -> None:
    program = canonical(
        scalar_program(dtype, f"$c = constant({constant}) {dtype}", f"$r = {expression} {dtype}")
    )
    assert len(statements(program)) == 1


@pytest.mark.parametrize(
    ("dtype", "lines", "value"),
    [
        ("f32", ["$c = constant(0.1) f32", "$r = add($c, $c) f32"], 0.20000000298023224),
        ("f16", ["$c = constant(2049.0) f32", "$r = cast($c) f16"], 2048.0),
        ("i8", ["$c = constant(100) i8", "$r = add($c, $c) i8"], -56),
        ("i32", ["$c = constant(-7) i32", "$d = constant(2) i32", "$r = floordiv($c, $d) i32"], -4),
        ("i32", ["$c = constant(-7) i32", "$d = constant(0) i32", "$r = mod($c, $d) i32"], 0),
        ("u8", ["$r = index(300) u8"], 44),
        ("f64", ["$c = constant(inf) f64", "$r = sub($c, $c) f64"], float("nan")),
        ("bool", ["$c = constant(nan) f32", "$r = eq($c, $c) bool"], False),
    ],
)
def test_constants_fold_as_they_compute(dtype: str, lines: list[str], value: float | bool) -> None:
    block = canonical(scalar_program(dtype, *lines)).root.children[0]
    (constant,) = (s for s in block.statements if isinstance(s, Constant))
    assert len(block.statements) == 2
    assert repr(constant.value) == repr(value)


def test_loads_are_shared_until_something_may_have_been_written() -> None:
    program = canonical(
        """
        block main [] (in A[0] i32(4)  out R[0]:assign i32(4)  out S[0]:assign i32(4)) {
          block r [x:4] (in A[x] i32(1)  out R[x]:assign i32(1)  out S[x]:assign i32(1)) {
            $a = load(A) i32
            $b = load(A) i32
            $c = add($a, $b) i32
            R = store($c)
            $d = load(R) i32
            $e = mul($d, $d) i32
            R = store($e)
            $f = load(R) i32
            S = store($f)
          }
        }
        """
    )
    assert statements(program) == ["add(a, a)", "mul(d, d)"]
    assert len(program.root.children[0].statements) == 8


def test_what_is_repeated_without_effect_is_done_once() -> None:
    text = """
    block main [] (in A[0] i32(4)  out R[0]:assign i32(4)) {
      block r [x:4, y:3] (in A[x] i32(1)  out R[x]:OP i32(1)) { $a = load(A)  R = store($a) }
    }
    """
    assert canonical(text.replace("OP", "max")).root.children[0].ranges == {"x": 4}
    assert canonical(text.replace("OP", "add")).root.children[0].ranges == {"x": 4, "y": 3}


def test_a_constraint_goes_only_if_the_rest_implies_it() -> None:
    program = canonical(
        """
        block main [] (in A[0] i32(12)  out R[0]:assign i32(12)) {
          block r [x:3] (in A[4*x] i32(4)  out R[4*x]:assign i32(4)) {
            block s [y:4, xo = 4*x] (11 - xo - y >= 0  in A[y] i32(1)  out R[y]:assign i32(1)) {
              $a = load(A) i32
              R = store($a)
            }
          }
          block t [x:3] (in A[4*x] i32(4)  inout R[4*x]:assign i32(4)) {
            block s [y:4, xo = 4*x] (10 - xo - y >= 0  in A[y] i32(1)  inout R[y]:assign i32(1)) {
              $a = load(A) i32
              $b = load(R) i32
              $c = add($a, $b) i32
              R = store($c)
            }
          }
        }
        """
    )
    whole, ragged = (kernel.children[0] for kernel in program.root.children)
    assert (whole.constraints, [i.name for i in whole.indexes]) == ((), ["y"])
    assert [str(c.expr) for c in ragged.constraints] == ["10 - xo - y"]


def test_a_dead_special_goes_and_a_used_one_stays() -> None:
    text = """
    block main [] (
      in A[0] f32(9)  in P[0] i32(4)  out R[0]:assign f32(4)  new T f32(4)
    ) {
      special gather(in A, in P, out R:assign) {axis=0}
      special gather(in A, in P, out T:assign) {axis=0}
    }
    """
    program = canonical(text)
    # What a special writes is not looked into: it stays, and so does its buffer.
    assert len(program.root.statements) == 2


def test_chains_of_dead_buffers_go_whole() -> None:
    count = 30
    buffers = "  ".join(f"new T{k} f32(4)" for k in range(count))
    blocks = "\n".join(
        f"block b{k} [x:4] (in S = {'A' if k == 0 else f'T{k - 1}'}[x] f32(1)  out T{k}[x]:assign f32(1)) "
        f"{{ $s = load(S) f32  T{k} = store($s) }}"
        for k in range(count)
    )
    copy = "block r [x:4] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }"
    program = canonical(
        f"block main [] (in A[0] f32(4)  out R[0]:assign f32(4)  {buffers}) {{ {blocks} {copy} }}"
    )
    assert [b.name for b in program.root.children] == ["r"]
    assert [r.name for r in program.root.refinements] == ["A", "R"]


def test_a_buffer_that_only_the_point_that_wrote_it_reads_stays() -> None:
    program = program_of(
        """
        block main [] (in X[0] f32(8)  out R[0]:assign f32(8)  new T f32(8)) {
          block c [x:8] (in X[x] f32(1)  out T[x]:assign f32(1)  out R[x]:assign f32(1)) {
            $x = load(X) f32
            T = store($x)
            $t = load(T) f32
            $r = add($t, $t) f32
            R = store($r)
          }
        }
        """
    )
    result, _ = check_pass(program, Canonicalize())
    assert result is program


def test_a_tag_goes_with_the_index_that_it_names() -> None:
    program = canonical(
        """
        block main [] (in A[0] f32(4)  out R[0]:assign f32(4)) {
          block r [x:4, u:1] (in A[x + u] f32(1)  out R[x]:assign f32(1)) #unroll=u #unroll=x {
            $a = load(A) f32
            R = store($a)
          }
        }
        """
    )
    assert [str(tag) for tag in program.root.children[0].tags] == ["#unroll=x"]


def test_points_in_flight_and_locations_keep_their_level() -> None:
    text = """
    block main [] (in A[0] f32(8)  out R[0]:assign f32(8)) {
      block frame [] inflight=2 (in A[0] f32(8)  out R[0]:assign f32(8)) {
        block r [x:8] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }
      }
    }
    """
    frame = canonical(text).root.children[0]
    assert isinstance(frame.statements[0], Block)
    merged = canonical(text.replace("inflight=2", "")).root.children[0]
    assert (merged.name, merged.ranges) == ("frame", {"x": 8})


@pytest.mark.parametrize("seed", range(24))
def test_generated_programs(seed: int) -> None:
    check_pass(make_program(seed), Canonicalize(), rtol=1e-5)


@pytest.mark.parametrize("name", corpus())
def test_corpus(name: str) -> None:
    check_pass(corpus()[name], Canonicalize(), rtol=1e-5)


def test_loads_with_a_store_between_them_stay_two() -> None:
    """Of a buffer of the block's own, and of a view that the block writes."""
    program = program_of(
        """
        block main [] (in X[0] f32(8):(1)  out R[0]:assign f32(8):(1)  out Q[0]:assign f32(8):(1)) {
          block b [i:8] (in X[i] f32(1):(1)  out R[i]:assign f32(1):(1)  out Q[i]:assign f32(1):(1)
                         new T f32(1):(1)) {
            $x = load(X) f32
            T = store($x)
            Q = store($x)
            $t = load(T) f32
            $q = load(Q) f32
            $n = neg($x) f32
            $m = abs($x) f32
            T = store($n)
            Q = store($m)
            $u = load(T) f32
            $p = load(Q) f32
            $s = sub($t, $u) f32
            $d = sub($q, $p) f32
            $r = mul($s, $d) f32
            R = store($r)
          } }"""
    )
    result, _ = check_pass(program, Canonicalize())
    assert sum(isinstance(s, Load) for s in result.root.children[0].statements) == 5


def test_the_remark_counts_what_became_less_in_the_kernel_that_changed() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(7)  in B[0] f32(7)  out R[0]:assign f32(7)  out Q[0]:assign f32(7)) {
          block q [x:7] (in A[x] f32(1)  out Q[x]:assign f32(1)) { $a = load(A) f32  Q = store($a) }
          block r [x:7, u:1] (in A[x] f32(1)  in B[x] f32(1)  out R[x]:assign f32(1)) {
            $a = load(A) f32
            $b = load(B) f32
            $c = add($a, $b) f32
            R = store($a)
          } }
        """
    )
    _, remarks = check_pass(program, Canonicalize())
    assert [(r.block, r.message) for r in remarks] == [
        ("main/r", "dropped 1 index, 1 refinement, 2 scalar statements")
    ]


FILLED = """
    block main [] (
      in A[0] i32(8)
      out R[0]:assign i32(8)
      out W[0]:assign i32(3)
      new T i32(8)
    ) {
      block fill [x:8] (out T[x]:assign i32(1)) { $z = constant(7) i32  T = store($z) }
      block T [x:8] (LIMIT in A[x] i32(1)  out T[x]:assign i32(1)) { $a = load(A) i32  T = store($a) }
      block R [x:8] (in A[x] i32(1)  out R[x]:assign i32(1)) { $a = load(A) i32  R = store($a) }
      READERS
    }
    """


def reader(indexes: str, read: str, write: str) -> str:
    return f"block r [{indexes}] (in T[{read}] i32(1)  {write} i32(1)) {{ $t = load(T) i32  W = store($t) }}"


THREE = reader("x:3", "x + 2", "out W[x]:assign")
BELOW = f"block W [] (in T[0] i32(8)  out W[0]:assign i32(3)) {{ {THREE} {THREE} }}"


@pytest.mark.parametrize(
    ("limit", "readers", "left"),
    [
        ("", THREE, {"T": 3}),  # all that is computed is what is read, and the fill is of no use
        ("x - 3 >= 0", THREE, {"fill": 3, "T": 2}),  # the fill shows through where T is not written
        ("", THREE + reader("x:2", "3*x + 1", "inout W = R[x]:assign"), {"T": 8}),  # nothing holds for both
        ("", THREE + reader("x:7", "x + 1", "inout W = R[x]:assign"), {"T": 7}),  # x >= 1 does
        ("", reader("x:3, y:2", "x + y", "out W[x]:add"), {"T": 8}),  # no index is the cell
        ("", BELOW, {"T": 8}),  # of what is read in a block below, nothing is known
    ],
)
def test_points_whose_results_nothing_reads_go(limit: str, readers: str, left: dict[str, int]) -> None:
    program = canonical(FILLED.replace("LIMIT", limit).replace("READERS", readers))
    sizes = {b.name: prod(b.ranges.values()) for b in program.root.children}
    assert {name: size for name, size in sizes.items() if name in ("fill", "T")} == left


def test_points_of_a_block_with_tags_stay() -> None:
    text = FILLED.replace("LIMIT", "").replace("READERS", THREE)
    text = text.replace("out T[x]:assign i32(1)) { $a", "out T[x]:assign i32(1)) #vector=x { $a")
    program = canonical(text)
    sizes = {b.name: prod(b.ranges.values()) for b in program.root.children}
    assert sizes["fill"] == sizes["T"] == 8
