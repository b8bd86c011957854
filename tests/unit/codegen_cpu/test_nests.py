"""Nests of every form: aggregation levels, constraints, tags, depth. The interpreter is the referee."""

from __future__ import annotations

import itertools
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from codegen_cpu.build import build
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.diag import CompileError, Source
from stripe.dtypes import DType
from stripe.interp import interpret
from stripe.intrinsics import neutral
from stripe.ir import Aggregation, Block, Direction, Index, Load, Program, Refinement, Store, Tag
from stripe.parser import parse
from stripe.verify import verify
from stripe.visit import map_program
from tests.support.native import host, run
from tests.support.tolerance import assert_same

CONFIGS = (host(), load_named("generic"))  # with masked memory, if this machine has it, and without


def program(text: str) -> Program:
    made = parse(Source("test.stripe", dedent(text)))
    verify(made)
    return made


def check(source: Program, configs: tuple[HwConfig, ...] = CONFIGS, seed: int = 0) -> None:
    """Native code computes what the interpreter does, on small integers, exactly."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for ref in source.inputs:
        low = -3 if ref.dtype.is_signed else 0
        inputs[ref.name] = rng.integers(low, 4, ref.shape).astype(ref.dtype.numpy)
    want = interpret(source, inputs)
    for hw in configs:
        got = run(source, inputs, hw)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value, err_msg=f"{name} on {hw.name}")


REDUCTION = """
block main [] (in A[0, 0] {dtype}(7, 37):(37, 1)  out S[0]:assign {dtype}(7):(1)) {{
  block sum [{order}] (in A[m, k] {dtype}(1, 1)  out S[m]:{how} {dtype}(1)) {tags} {{
    $a = load(A) {dtype}
    S = store($a)
  }}
}}
"""
TAGS = ["", "#vector=k", "#vector=m", "#vector=k #unroll=k", "#vector=m #unroll=m", "#unroll=k", "#unroll=m"]


@pytest.mark.parametrize("order", ["m:7, k:37", "k:37, m:7"])
@pytest.mark.parametrize("how", [a.value for a in Aggregation if a is not Aggregation.ASSIGN])
def test_reductions(order: str, how: str) -> None:
    for tags, dtype in itertools.product(TAGS, ("i32", "f32")):
        check(program(REDUCTION.format(order=order, how=how, tags=tags, dtype=dtype)))


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_type_aggregates(dtype: DType) -> None:
    hows = ("max", "min") if dtype is DType.BOOL else ("add", "mul", "max", "min")
    for how, tags in itertools.product(hows, ("", "#vector=k", "#vector=m")):
        check(program(REDUCTION.format(order="m:7, k:37", how=how, tags=tags, dtype=dtype.value)), (host(),))


@pytest.mark.parametrize("tags", ["", "#vector=x", "#vector=i", "#vector=x #unroll=i", "#unroll=x #unroll=i"])
def test_points_that_write_to_each_others_elements(tags: str) -> None:
    check(
        program(
            f"""
            block main [] (in A[0] i32(20):(1)  in F[0] i32(3):(1)  out O[0]:assign i32(22):(1)) {{
              block spread [x:20, i:3] (in A[x] i32(1)  in F[i] i32(1)  out O[x + i]:add i32(1)) {tags} {{
                $a = load(A) i32
                $f = load(F) i32
                $p = mul($a, $f) i32
                O = store($p)
              }}
            }}
            """
        )
    )


TRIANGLE = """
block main [] (
  in A[0, 0] f32(19, 19):(19, 1)
  out L[0, 0]:assign f32(19, 19):(19, 1)
  out S[0]:assign f32(19):(1)
) {{
  block zero [m:19, n:19] (out L[m, n]:assign f32(1, 1)) #vector=n {{
    $z = constant(0.0) f32
    L = store($z)
  }}
  block lower [{order}] ({constraints} in A[m, n] f32(1, 1)  out L[m, n]:assign f32(1, 1)) {tags} {{
    $a = load(A) f32
    L = store($a)
  }}
  block sums [{order}] (m - n >= 0  in A[m, n] f32(1, 1)  out S[m]:add f32(1)) {tags} {{
    $a = load(A) f32
    S = store($a)
  }}
}}
"""


@pytest.mark.parametrize("order", ["m:19, n:19", "n:19, m:19"])
@pytest.mark.parametrize(
    "constraints", ["m - n >= 0", "2*n - m - 3 >= 0  17 - 3*m + 2*n >= 0", "n - m >= 0  m - n >= 0"]
)
def test_constraints(order: str, constraints: str) -> None:
    for tags in (
        "",
        "#vector=n",
        "#vector=m",
        "#vector=n #unroll=n",
        "#vector=n #unroll=m",
        "#unroll=m #unroll=n",
    ):
        check(program(TRIANGLE.format(order=order, constraints=constraints, tags=tags)))


ROWS = """
block main [] (
  in A[0, 0] f32(35, 150):(150, 1)
  out S[0]:assign f32(35):(1)
) {{
  block t [o:7] (in A[5*o, 0] f32(5, 150)  out S[5*o]:assign f32(5)  new C f32(5):(1)) {{
    block fill [m:5] (out C[m]:assign f32(1)) #unroll=m {{ $z = constant(1.0) f32  C = store($z) }}
    block sums [{order}, io = 5*o] (
      {constraints}
      in A[m, n] f32(1, 1)
      inout C[m]:add f32(1)
    ) #unroll=m {tags} {{
      $a = load(A) f32
      C = store($a)
    }}
    block result [m:5] (in C[m] f32(1)  out S[m]:assign f32(1)) #unroll=m {{
      $c = load(C) f32
      S = store($c)
    }}
  }}
}}
"""


@pytest.mark.parametrize("tags", ["", "#vector=n", "#vector=m"])
@pytest.mark.parametrize(
    "constraints",
    [
        "io + m - n + 3 >= 0",  # the last values are tested,
        "n - io - m - 40 >= 0",  # the first ones,
        "n - io - m >= 0  io + m - n + 90 >= 0",  # both,
        "n - io - m >= 0  io + m - n + 2 >= 0",  # all there are
        "2*n - 3*io + m - 1 >= 0  120 - n - 2*m >= 0",
        "io + m - 2*n - 31 >= 0",  # nothing at first
        "n - 5*io - m >= 0",  # nothing at last
        "10 - n - io >= 0  12 - n - m >= 0",
    ],
)
def test_a_loop_keeps_its_tests_only_where_they_may_fail(constraints: str, tags: str) -> None:
    for order in ("n:150, m:5", "m:5, n:150"):
        check(program(ROWS.format(order=order, constraints=constraints, tags=tags)))


def test_an_index_with_one_value_is_no_variable_behind_its_loop() -> None:
    check(
        program("""
        block main [] (in A[0] i32(3):(1)  out S[0]:assign i32(4):(1)) {
          block fill [i:4] (out S[i]:assign i32(1)) {
            $z = constant(-3) i32
            S = store($z)
          }
          block most [i:3, j:1] (
            1 - 2*j + i >= 0
            i - 1 - j >= 0
            in A[i] i32(1)
            inout S[2*j + 1]:max i32(1)
          ) {
            $a = load(A) i32
            S = store($a)
          }
        }
        """)
    )


def test_levels_of_one_aggregation() -> None:
    for middle, inner in itertools.product(("add", "assign"), ("add", "assign")):
        tail = "k:1" if inner == "assign" else "k:4"
        check(
            program(
                f"""
                block main [] (in A[0, 0] i32(6, 12):(12, 1)  out S[0]:assign i32(6):(1)) {{
                  block outer [ko:3, ki:4] (in A[0, 4*ko + ki] i32(6, 1)  out S[0]:add i32(6)) {{
                    block rows [m:6] (in A[m, 0] i32(1, 1)  out S[m]:{middle} i32(1)) {{
                      block leaf [{tail}] (in A[0, 0] i32(1, 1)  out S[0]:{inner} i32(1)) {{
                        $a = load(A) i32
                        S = store($a)
                      }}
                    }}
                  }}
                }}
                """
            )
        )


def test_an_assign_below_a_sum_keeps_the_last_write() -> None:
    check(
        program(
            """
            block main [] (in A[0, 0] i32(3, 10):(10, 1)  out S[0]:assign i32(10):(1)) {
              block outer [k:3] (in A[k, 0] i32(1, 10)  out S[0]:add i32(10)) {
                block rows [n:5] (in A[0, 2*n] i32(1, 1)  out S[2*n]:assign i32(1)) {
                  $a = load(A) i32
                  $b = constant(100) i32
                  S = store($b)
                  S = store($a)
                }
              }
              block rest [n:5] (out S[2*n + 1]:assign i32(1)) {
                $z = constant(7) i32
                S = store($z)
              }
            }
            """
        )
    )


def test_elements_without_a_write_keep_what_they_held() -> None:
    check(
        program(
            """
            block main [] (in A[0] i32(8):(1)  out S[0]:assign i32(9):(1)  out T[0]:assign i32(9):(1)) {
              block fill [n:9] (out S[n]:assign i32(1)  out T[n]:assign i32(1)) #vector=n {
                $z = constant(-50) i32
                S = store($z)
                T = store($z)
              }
              block some [n:9, k:8] (
                n - k - 2 >= 0
                7 - 2*k >= 0
                in A[k] i32(1)
                out S[n]:add i32(1)
              ) #vector=n {
                $a = load(A) i32
                S = store($a)
              }
              block more [n:9, k:8] (k - 2*n >= 0  in A[k] i32(1)  inout T[n]:max i32(1)) #vector=k {
                $a = load(A) i32
                T = store($a)
              }
            }
            """
        )
    )


@pytest.mark.parametrize("first", [True, False])
def test_sums_in_registers_leave_what_another_block_wrote(first: bool) -> None:
    """Rows that the sum does not reach, which only a test at run time shows, were written before."""
    rows = """
            block rows [r:2, n:16] (in A[r, n] f32(1, 1)  out T[r, n]:assign f32(1, 1)) #vector=n #unroll=r {
              $a = load(A) f32
              T = store($a)
            }"""
    sums = """
            block sums [k:2, r:4, n:16] (r - 2*k >= 0  r + 2*k - 2 >= 0  in A[r + k, n] f32(1, 1)
                                         out T[r, n]:add f32(1, 1)) #vector=n #unroll=n #unroll=r {
              $a = load(A) f32
              T = store($a)
            }"""
    source = program(
        f"""
        block main [] (in A[0, 0] f32(8, 16):(16, 1)  out B[0, 0, 0]:assign f32(3, 4, 16):(64, 16, 1)) {{
          block b [m:3] (in A[m, 0] f32(5, 16)  out B[m, 0, 0]:assign f32(1, 4, 16)  new T f32(4, 16) @REG) {{
            {rows + sums if first else sums + rows}
            block out [r:4, n:16] (in T[r, n] f32(1, 1)
                                   out B[0, r, n]:assign f32(1, 1, 1)) #vector=n #unroll=r {{
              $t = load(T) f32
              B = store($t)
            }} }} }}
        """
    )
    check(source)


def test_narrow_sums_are_rounded_once() -> None:
    for dtype, order, tags in itertools.product(
        ("bf16", "f16"), ("n:4, k:400", "k:400, n:4"), ("", "#vector=k", "#vector=n")
    ):
        source = program(
            f"""
            block main [] (in A[0, 0] {dtype}(400, 4):(4, 1)  out S[0]:assign {dtype}(4):(1)) {{
              block outer [o:1] (in A[0, 0] {dtype}(400, 4)  out S[0]:add {dtype}(4)) {{
                block sum [{order}] (in A[k, n] {dtype}(1, 1)  out S[n]:add {dtype}(1)) {tags} {{
                  $a = load(A) {dtype}
                  S = store($a)
                }}
              }}
            }}
            """
        )
        values = np.random.default_rng(0).random((400, 4)).astype(DType(dtype).numpy)
        want = interpret(source, {"A": values})["S"]
        for hw in CONFIGS:
            assert_same(run(source, {"A": values}, hw)["S"], want, what=f"{dtype} {order} {tags}")


def test_an_empty_sum_of_floats_is_minus_zero_free() -> None:
    """A single -0.0 stays -0.0: the sum starts at the neutral element, which is -0.0."""
    source = program(REDUCTION.format(order="m:7, k:37", how="add", tags="#vector=k", dtype="f32"))
    zeros = np.full((7, 37), -0.0, np.float32)
    assert np.signbit(run(source, {"A": zeros})["S"]).all()
    assert neutral("add", DType.F32) == 0


def test_nan_goes_through_max_and_min() -> None:
    values = np.arange(7 * 37, dtype=np.float32).reshape(7, 37)
    values[2, 5] = values[3, 36] = values[4, 0] = np.nan
    for how, tags in itertools.product(("max", "min"), TAGS):
        source = program(REDUCTION.format(order="m:7, k:37", how=how, tags=tags, dtype="f32"))
        for hw in CONFIGS:
            got = run(source, {"A": values}, hw)["S"]
            np.testing.assert_array_equal(got, getattr(values, how)(axis=1))


def test_buffers_of_each_point() -> None:
    check(
        program(
            """
            block main [] (in A[0, 0] f32(5, 6):(6, 1)  out B[0, 0]:assign f32(5, 6):(6, 1)) {
              block rows [m:5] (
                in A[m, 0] f32(1, 6)
                out B[m, 0]:assign f32(1, 6)
                new row f32(6):(1)
                new big f32(2000):(1)
              ) {
                block turn [n:6] (in A[0, n] f32(1, 1)  out row[5 - n]:assign f32(1)) #vector=n {
                  $a = load(A) f32
                  row = store($a)
                }
                block spread [n:2000] (in row[0] f32(1)  out big[n]:assign f32(1)) #vector=n {
                  $a = load(row) f32
                  big = store($a)
                }
                block back [n:6] (
                  in row[n] f32(1)
                  in big[300*n] f32(1)
                  out B[0, n]:assign f32(1, 1)
                ) #unroll=n {
                  $a = load(row) f32
                  $b = load(big) f32
                  $c = add($a, $b) f32
                  B = store($c)
                }
              }
            }
            """
        )
    )


def test_scalars_go_through_a_buffer_of_a_leaf() -> None:
    check(
        program(
            """
            block main [] (in A[0] f32(37):(1)  out B[0]:assign f32(37):(1)) {
              block copy [n:37] (in A[n] f32(1)  out B[n]:assign f32(1)  new t f32():()) #vector=n {
                $a = load(A) f32
                t = store($a)
                $b = load(t) f32
                B = store($b)
              }
            }
            """
        )
    )


def test_index_values_differ_from_lane_to_lane() -> None:
    source = program(
        """
        block main [] (out B[0, 0]:assign i16(3, 37):(37, 1)  out C[0, 0]:assign f32(3, 37):(37, 1)) {
          block number [m:3, n:37] (out B[m, n]:assign i16(1, 1)  out C[m, n]:assign f32(1, 1)) #vector=n {
            $i = index(100*m - 3*n + 7) i16
            $f = cast($i) f32
            B = store($i)
            C = store($f)
          }
        }
        """
    )
    check(source)


def chain(depth: int) -> Program:
    """A nest of blocks, each with an index of its own."""
    views = (
        Refinement(Direction.IN, "A", (2,), DType.F32, "A", (Affine(),)),
        Refinement(Direction.OUT, "B", (2,), DType.F32, "B", (Affine(),), Aggregation.ASSIGN),
    )
    leaf_views = tuple(replace(v, shape=(1,), access=(Affine.index("n"),)) for v in views)
    block = Block("leaf", (Index("n", 2),), (), leaf_views, (Load("a", "A", DType.F32), Store("B", "a")))
    for number in range(depth):
        block = Block(f"b{number}", (Index("i", 1),), (), views, (block,))
    root = tuple(replace(v, strides=(1,)) for v in views)
    return Program(Block("main", (), (), root, (block,)))


def test_deep_nests() -> None:
    got = run(chain(300), {"A": np.array([3, 4], np.float32)})
    np.testing.assert_array_equal(got["B"], [3, 4])


def test_many_indexes() -> None:
    count = 150
    indexes = ", ".join(f"i{number}:1" for number in range(count))
    check(
        program(
            f"""
            block main [] (in A[0] i32(3):(1)  out B[0]:assign i32(3):(1)) {{
              block copy [{indexes}, n:3] (in A[n] i32(1)  out B[n]:assign i32(1)) #vector=n {{
                $a = load(A) i32
                B = store($a)
              }}
            }}
            """
        ),
        (host(),),
    )


def test_unrolling_is_bounded() -> None:
    source = program(REDUCTION.format(order="m:7, k:37", how="add", tags="#unroll=m #unroll=k", dtype="f32"))
    wide = map_program(
        source,
        lambda b: (
            replace(b, indexes=tuple(replace(i, range=1 << 20) if i.name == "k" else i for i in b.indexes))
            if b.name == "sum"
            else None
        ),
    )
    assert len(build(wide, load_named("generic")).emitted) < 200_000


def test_coefficients_beyond_64_bits() -> None:
    source = parse(
        Source(
            "wide.stripe",
            """
            block main [] (out B[0]:assign i64(3):(1)) {
              block wide [n:3] (out B[n]:assign i64(1)) {
                $i = index(4000000000000000000*n) i64
                B = store($i)
              }
            }
            """,
        )
    )
    with pytest.raises(CompileError, match="C005"):
        build(source, load_named("generic")).object_code  # noqa: B018


@pytest.mark.parametrize("tags", ["#vector=n #unroll=n", "#vector=q", "#unroll=q", "#vector"])
def test_tags_that_do_not_fit_change_nothing(tags: str) -> None:
    made = program(REDUCTION.format(order="m:7, k:37", how="add", tags="", dtype="i32"))
    words = [word.lstrip("#").partition("=") for word in tags.split()]
    extra = tuple(Tag(name, value) for name, _, value in words)
    check(map_program(made, lambda block: replace(block, tags=extra)), (host(),))


def test_loops_in_loops_are_not_all_written_out() -> None:
    """Each of the blocks may be written out alone; all of them together would be 10^8 statements."""
    depth = 4
    views = "(in A[0] f32(1)  out R[0]:add f32(1))"
    opened = "".join(f"block b{level} [i:100] {views} #unroll=i {{\n" for level in range(depth))
    nest = program(
        "block main [] (in A[0] f32(1)  out R[0]:assign f32(1)) {"
        f"{opened} $a = load(A)\n R = store($a) {'}' * depth} }}"
    )
    assert len(build(nest, host()).emitted) < 200_000


GOES_ON = """block main [] (
  in A[0, 0] f32(23, 70):(70, 1)
  in B[0, 0] f32(23, 70):(70, 1)
  out R[0, 0]:assign f32(3, 70):(70, 1)
) {{
  block tile [t:3] (
    in A[7*t, 0] f32(7, 70)  in B[7*t, 0] f32(7, 70)  out R[t, 0]:assign f32(1, 70)  new S f32(70):(1) {place}
  ) {{
    block first [m:7, n:70] (in A[m, n] f32(1, 1)  out S[n]:{how} f32(1)) {tags} {{
      $a = load(A) f32
      S = store($a)
    }}
    block second [k:4, m:7, n:61, to = t] (
      {constraint}in B[m, n] f32(1, 1)  inout S[n + {shift}]:{how} f32(1)
    ) {tags} {{
      $a = load(B) f32
      S = store($a)
    }}
    block copy [n:70] (in S[n] f32(1)  out R[0, n]:assign f32(1, 1)) {tags} {{
      $a = load(S) f32
      R = store($a)
    }}
  }}
}}
"""


@pytest.mark.parametrize("how", ["add", "max"])
@pytest.mark.parametrize("shift", [0, 9])
@pytest.mark.parametrize("constraint", ["", "m + to - 2 >= 0  ", "n + 3*m - 9 >= 0  ", "1 - to >= 0  "])
def test_sums_go_on_from_what_is_on_the_stack(how: str, shift: int, constraint: str) -> None:
    """A later block that adds to a buffer in registers or on the stack: whatever part of it is run."""
    for place in ("", "@REG"):
        for tags in ("", "#vector=n", "#vector=n #unroll=n"):
            text = GOES_ON.format(place=place, how=how, shift=shift, constraint=constraint, tags=tags)
            check(program(text))


def test_a_sum_that_goes_on_computes_its_address_in_front_of_the_loop() -> None:
    """The loop inside computes the same address for another buffer, which is too late for the sum."""
    text = """block main [] (
      in A[0, 0] f32(3, 40):(40, 1)
      out R[0, 0]:assign f32(3, 40):(40, 1)
    ) {
      block tile [t:2] (in A[0, 0] f32(3, 40)  out R[0, 0]:max f32(3, 40)  new S f32(3, 40):(40, 1)) {
        block first [m:3, n:40] (in A[m, n] f32(1, 1)  out S[m, n]:add f32(1, 1)) {
          $a = load(A) f32
          S = store($a)
        }
        block second [m:3, n:40, k:4] (in A[m, n] f32(1, 1)  inout S[m, n]:add f32(1, 1)) {
          $a = load(A) f32
          S = store($a)
        }
        block copy [m:3, n:40] (in S[m, n] f32(1, 1)  out R[m, n]:max f32(1, 1)) {
          $a = load(S) f32
          R = store($a)
        }
      }
    }"""
    for tags in ("", " #vector=n"):
        check(program(text.replace("inout S[m, n]:add f32(1, 1))", f"inout S[m, n]:add f32(1, 1)){tags}")))
