"""The interpreter: statements, directions, aggregations and their nesting, and what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stripe.interp_run
from stripe.affine import Affine
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Block, Program
from stripe.parser import parse
from tests.support.naive_interp import Undefined, naive_interpret
from tests.support.random_nests import random_program

Array = np.ndarray[Any, Any]


def run(text: str, **inputs: Array) -> Array:
    """The only output of a program."""
    (result,) = interpret(parse(text), inputs).values()
    return result


def failure(text: str, **inputs: Array) -> str:
    """The error that a program gives, as a person sees it."""
    with pytest.raises(CompileError) as caught:
        interpret(parse(text), inputs)
    return str(caught.value)


def i32(*values: object) -> Array:
    return np.array(values, np.int32)


# Whole programs

MATMUL = """
block main [] (in A[0, 0] f32(4, 6)  in B[0, 0] f32(6, 5)  out C[0, 0]:assign f32(4, 5)) {
  block dot [m:4, n:5, k:6] (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)) {
    $a = load(A)
    $b = load(B)
    $c = mul($a, $b)
    C = store($c)
  }
}
"""

CONVOLUTION = """
block main [] (
  in I[0, 0, 0] i8(12, 16, 8)
  in F[0, 0, 0, 0] i8(3, 3, 16, 8)
  out O[0, 0, 0]:assign i8(12, 16, 16)
) {
  block [x:12, y:16, i:3, j:3, c:8, k:16] (
    -1 + x + i >= 0
    12 - x - i >= 0
    -1 + y + j >= 0
    16 - y - j >= 0
    in I[x + i - 1, y + j - 1, c] i8(1, 1, 1)
    in F[i, j, k, c] i8(1, 1, 1, 1)
    out O[x, y, k]:add i8(1, 1, 1)
  ) {
    $I = load(I)
    $F = load(F)
    $O = mul($I, $F)
    O = store($O)
  }
}
"""

TILED_CONVOLUTION = """
block main [] (
  in I[0, 0, 0] i8(12, 16, 8)
  in F[0, 0, 0, 0] i8(3, 3, 16, 8)
  out O[0, 0, 0]:assign i8(12, 16, 16)
) {
  block tile [x:4, y:4] (
    in I[3*x - 1, 4*y - 1, 0] i8(5, 6, 8)
    in F[0, 0, 0, 0] i8(3, 3, 16, 8)
    out O[3*x, 4*y, 0]:add i8(3, 4, 16)
  ) {
    block [x:3, y:4, i:3, j:3, c:8, k:16, xo = 3*x, yo = 4*y] (
      -1 + xo + x + i >= 0
      12 - xo - x - i >= 0
      -1 + yo + y + j >= 0
      16 - yo - y - j >= 0
      in I[x + i, y + j, c] i8(1, 1, 1)
      in F[i, j, k, c] i8(1, 1, 1, 1)
      out O[x, y, k]:add i8(1, 1, 1)
    ) {
      $I = load(I)
      $F = load(F)
      $O = mul($I, $F)
      O = store($O)
    }
  }
}
"""


def convolution_inputs(rng: np.random.Generator) -> dict[str, Array]:
    return {
        "I": rng.integers(-128, 128, (12, 16, 8)).astype(np.int8),
        "F": rng.integers(-128, 128, (3, 3, 16, 8)).astype(np.int8),
    }


def reference_convolution(image: Array, kernel: Array) -> Array:
    padded = np.pad(image.astype(np.int64), ((1, 1), (1, 1), (0, 0)))
    total = sum(
        np.einsum("xyc,kc->xyk", padded[i : i + 12, j : j + 16], kernel[i, j].astype(np.int64))
        for i in range(3)
        for j in range(3)
    )
    return np.asarray(total).astype(np.int8)


def test_matmul(rng: np.random.Generator) -> None:
    a = rng.standard_normal((4, 6)).astype(np.float32)
    b = rng.standard_normal((6, 5)).astype(np.float32)
    result = run(MATMUL, A=a, B=b)
    assert result.dtype == np.float32 and result.flags.c_contiguous
    np.testing.assert_allclose(result, a @ b, rtol=1e-5)


@pytest.mark.parametrize("text", [CONVOLUTION, TILED_CONVOLUTION], ids=["flat", "tiled"])
def test_the_convolution_of_the_papers_figure_5(text: str, rng: np.random.Generator) -> None:
    inputs = convolution_inputs(rng)
    np.testing.assert_array_equal(run(text, **inputs), reference_convolution(inputs["I"], inputs["F"]))


@pytest.mark.parametrize("batch", [1, 7, 300, 5000])
def test_the_size_of_a_batch_does_not_matter(
    batch: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripe.interp_run, "_BATCH", batch)
    a, b = rng.integers(-9, 9, (4, 6)).astype(np.float32), rng.integers(-9, 9, (6, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(MATMUL, A=a, B=b), a @ b)


# Aggregations

REDUCE = """
block main [] (in A[0] {type}(5)  out R[0]:assign {type}(1)) {{
  block r [i:5] (in A[i] {type}(1)  out R[0]:{op} {type}(1)) {{
    $a = load(A)
    R = store($a)
  }}
}}
"""

REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_integers_aggregate_in_their_type_and_wrap(op: str, dtype: str) -> None:
    kind = (
        np.dtype(dtype.replace("i", "int").replace("u", "uint"))
        if dtype[0] == "i"
        else np.dtype("uint" + dtype[1:])
    )
    limits = np.iinfo(kind)
    values = np.array([limits.max, limits.min, 3, limits.max, 7], kind)
    expected = REDUCTIONS[op].reduce(values, dtype=kind)
    assert run(REDUCE.format(type=dtype, op=op), A=values)[0] == expected


@pytest.mark.parametrize("op", REDUCTIONS)
def test_bools_aggregate_as_logic(op: str) -> None:
    values = np.array([True, False, True, True, False])
    expected = {"add": True, "mul": False, "max": True, "min": False}[op]
    assert run(REDUCE.format(type="bool", op=op), A=values)[0] == expected


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_nan_comes_through_every_aggregation(op: str, dtype: str) -> None:
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}[dtype]
    values = np.array([1, np.nan, 3, -4, 5]).astype(kind)
    assert np.isnan(run(REDUCE.format(type=dtype, op=op), A=values)[0])
    assert run(REDUCE.format(type=dtype, op="max"), A=np.array([-1, -7, -3, -4, -5]).astype(kind))[0] == -1


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_sums_are_rounded_once(dtype: str) -> None:
    # In bf16 1 + 2**-9 is 1, four times; the sum of all is 1 + 2**-7, which bf16 can hold.
    kind = np.dtype(np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    step = 2.0**-12 if dtype == "f16" else 2.0**-9
    values = np.array([1, step, step, step, step]).astype(kind)
    assert float(run(REDUCE.format(type=dtype, op="add"), A=values)[0]) == 1 + 4 * step


@pytest.mark.parametrize("op", ["assign", *REDUCTIONS])
def test_one_write_gives_its_value_unchanged(op: str) -> None:
    text = """
      block main [] (in A[0] f32(4)  out R[0]:assign f32(4)) {
        block r [i:4] (in A[i] f32(1)  out R[i]:OP f32(1)) { $a = load(A)  R = store($a) }
      }"""
    values = np.array([-0.0, np.inf, -np.inf, np.nan], np.float32)
    result = run(text.replace("OP", op), A=values)
    np.testing.assert_array_equal(result.view(np.uint32)[:3], values.view(np.uint32)[:3])
    assert np.isnan(result[3])


def test_points_that_write_the_same_value_all_count() -> None:
    text = """
      block main [] (out R[0]:assign i32(2)) {
        block r [i:2, j:5, k:7] (i + j - 1 >= 0  out R[i]:OP i32(1)) { $a = constant(2)  R = store($a) }
      }"""
    np.testing.assert_array_equal(
        run(text.replace("OP", "add").replace("constant(2)", "constant(2) i32")), [56, 70]
    )
    np.testing.assert_array_equal(
        run(text.replace("OP", "max").replace("constant(2)", "constant(2) i32")), [2, 2]
    )


def test_one_point_that_writes_twice_aggregates_twice_or_replaces() -> None:
    text = """
      block main [] (out R[0]:assign i32(3)) {
        block r [i:3] (out R[i]:OP i32(1)) {
          $a = constant(5) i32
          $i = index(i) i32
          R = store($a)
          R = store($i)
        }
      }"""
    np.testing.assert_array_equal(run(text.replace("OP", "add")), [5, 6, 7])
    np.testing.assert_array_equal(run(text.replace("OP", "assign")), [0, 1, 2])


def test_an_aggregating_out_ignores_old_contents_and_an_inout_folds_them_in() -> None:
    text = """
      block main [] (in A[0] i32(4)  out R[0]:assign i32(3)) {
        block fill [i:3] (out R[i]:assign i32(1)) { $c = constant(100) i32  R = store($c) }
        block r [i:2, j:2] (in A[2*i + j] i32(1)  DIR R[i]:add i32(1)) { $a = load(A)  R = store($a) }
      }"""
    np.testing.assert_array_equal(run(text.replace("DIR", "out"), A=i32(1, 2, 3, 4)), [3, 7, 100])
    np.testing.assert_array_equal(run(text.replace("DIR", "inout"), A=i32(1, 2, 3, 4)), [103, 107, 100])


NESTED = """
block main [] (in A[0, 0] i32(4, 6)  out R[0]:assign i32(4)) {
  block outer [i:4, jo:3] (in A[i, 2*jo] i32(1, 2)  out R[i]:OUTER i32(1)) {
    block inner [j:2] (in A[0, j] i32(1, 1)  out R[0]:INNER i32(1)) {
      $a = load(A)
      R = store($a)
    }
  }
}
"""


@pytest.mark.parametrize("op", REDUCTIONS)
def test_an_aggregation_inside_the_same_aggregation(op: str, rng: np.random.Generator) -> None:
    values = rng.integers(-3, 4, (4, 6)).astype(np.int32)
    expected = REDUCTIONS[op].reduce(values, axis=1, dtype=np.int32)
    np.testing.assert_array_equal(run(NESTED.replace("OUTER", op).replace("INNER", op), A=values), expected)


def test_an_outer_block_that_writes_each_element_in_one_point_may_assign() -> None:
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    text = (
        NESTED.replace("jo:3", "jo:1")
        .replace("INNER", "add")
        .replace("OUTER", "assign")
        .replace("j:2", "j:6")
    )
    np.testing.assert_array_equal(run(text.replace("i32(1, 2)", "i32(1, 6)"), A=values), values.sum(axis=1))


def test_a_result_of_an_inner_assign_is_one_write_of_the_outer_sum() -> None:
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    text = NESTED.replace("INNER", "assign").replace("OUTER", "add").replace("j:2", "j:1")
    np.testing.assert_array_equal(run(text, A=values), values[:, ::2].sum(axis=1))


def test_the_product_of_sums_is_not_the_sum_of_all() -> None:
    # The interpreter gives a meaning to levels that differ, though the verifier forbids them.
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    expected = values.reshape(4, 3, 2).sum(axis=2).max(axis=1)
    np.testing.assert_array_equal(
        run(NESTED.replace("INNER", "add").replace("OUTER", "max"), A=values), expected
    )


def test_an_accumulator_carried_over_blocks_of_the_reduction() -> None:
    text = """
      block main [] (in A[0, 0] i32(2, 7)  out R[0]:assign i32(2)) {
        block row [i:2] (in A[i, 0] i32(1, 7)  out R[i]:assign i32(1)  new T i32(1)) {
          block first [j:3] (in A[0, j] i32(1, 1)  out T[0]:add i32(1)) { $a = load(A)  T = store($a) }
          block rest [j:4] (in A[0, j + 3] i32(1, 1)  inout T[0]:add i32(1)) { $a = load(A)  T = store($a) }
          block last [] (in T[0] i32(1)  out R[0]:assign i32(1)) { $t = load(T)  R = store($t) }
        }
      }"""
    values = np.arange(14, dtype=np.int32).reshape(2, 7)
    np.testing.assert_array_equal(run(text, A=values), values.sum(axis=1))


# Directions and views


def test_assign_replaces_within_a_point_and_inout_sees_the_old_value() -> None:
    text = """
      block main [] (in A[0] i32(4)  out R[0]:assign i32(4)) {
        block copy [i:4] (in A[i] i32(1)  out R[i]:assign i32(1)) { $a = load(A)  R = store($a) }
        block step [i:2] (inout R[2*i]:assign i32(1)) {
          $old = load(R)
          $new = mul($old, $old)
          R = store($new)
          $again = load(R)
          $sum = add($again, $old)
          R = store($sum)
        }
      }"""
    np.testing.assert_array_equal(run(text, A=i32(3, 4, 5, 6)), [12, 4, 30, 6])


def test_an_inout_of_the_root_is_an_input_too() -> None:
    text = """
      block main [] (in A[0] i32(2)  inout R[0]:OP i32(3)) {
        block r [i:2] (in A[i] i32(1)  out R[i]:assign i32(1)) { $a = load(A)  R = store($a) }
      }"""
    held = i32(10, 20, 30)
    np.testing.assert_array_equal(run(text.replace("OP", "assign"), A=i32(1, 2), R=held), [1, 2, 30])
    np.testing.assert_array_equal(run(text.replace("OP", "add"), A=i32(1, 2), R=held), [11, 22, 30])
    np.testing.assert_array_equal(held, [10, 20, 30])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_an_inout_sum_of_narrow_floats_is_rounded_once(dtype: str) -> None:
    text = """
      block main [] (in A[0] TYPE(4)  inout R[0]:add TYPE(1)) {
        block r [i:4] (in A[i] TYPE(1)  out R[0]:add TYPE(1)) { $a = load(A)  R = store($a) }
      }"""
    kind = np.dtype(np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    step = 2.0**-12 if dtype == "f16" else 2.0**-9
    result = run(text.replace("TYPE", dtype), A=np.full(4, step, kind), R=np.ones(1, kind))
    assert result.dtype == kind and float(result[0]) == 1 + 4 * step


def test_each_point_has_its_own_new_buffer() -> None:
    text = """
      block main [] (in A[0, 0] i32(3, 4)  out R[0, 0]:assign i32(3, 4)) {
        block row [i:3] (in A[i, 0] i32(1, 4)  out R[i, 0]:assign i32(1, 4)  new T i32(4):(1)) {
          block load [j:4] (in A[0, j] i32(1, 1)  out T[3 - j]:assign i32(1)) { $a = load(A)  T = store($a) }
          block twice [j:2] (inout T[j]:assign i32(1)) { $a = load(T)  $b = add($a, $a)  T = store($b) }
          block save [j:4] (in T[j] i32(1)  out R[0, j]:assign i32(1, 1)) { $a = load(T)  R = store($a) }
        }
      }"""
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    np.testing.assert_array_equal(run(text, A=values), values[:, ::-1] * [2, 2, 1, 1])


def test_a_view_may_overhang_on_both_sides_while_accesses_stay_inside() -> None:
    text = """
      block main [] (in A[0] i32(10)  out R[0]:assign i32(10)) {
        block tile [t:4] (in A[3*t - 1] i32(5)  out R[3*t]:assign i32(3)) {
          block window [x:3, w:3, o = 3*t] (
            o + x + w - 1 >= 0
            10 - o - x - w >= 0
            9 - o - x >= 0
            in A[x + w] i32(1)
            out R[x]:add i32(1)
          ) { $a = load(A)  R = store($a) }
        }
      }"""
    values = np.arange(10, dtype=np.int32) + 1
    padded = np.pad(values, 1)
    np.testing.assert_array_equal(run(text, A=values), padded[:-2] + padded[1:-1] + padded[2:])


def test_a_child_reads_what_its_parents_point_wrote_and_what_it_read_before() -> None:
    text = """
      block main [] (in A[0] i32(3)  out R[0]:assign i32(3)  out S[0]:assign i32(3)) {
        block outer [i:3] (in A[i] i32(1)  out R[i]:assign i32(1)  out S[i]:assign i32(1)) {
          block one [] (in A[0] i32(1)  out R[0]:assign i32(1)) { $a = load(A)  R = store($a) }
          block two [] (in X = R[0] i32(1)  out S[0]:assign i32(1)) {
            $a = load(X)  $b = neg($a)  S = store($b)
          }
        }
      }"""
    result = interpret(parse(text), {"A": i32(1, 2, 3)})
    assert list(result) == ["R", "S"]
    np.testing.assert_array_equal(result["S"], -result["R"])


def test_negative_strides_of_the_access_and_skewed_accesses() -> None:
    text = """
      block main [] (in A[0, 0] i32(4, 3)  out R[0]:assign i32(6)) {
        block d [i:4, j:3] (in A[3 - i, j] i32(1, 1)  out R[i - j + 2]:add i32(1)) {
          $a = load(A)  R = store($a)
        }
      }"""
    values = np.arange(12, dtype=np.int32).reshape(4, 3)
    flipped = values[::-1]
    expected = [np.trace(flipped, offset=-d) for d in range(-2, 4)]
    np.testing.assert_array_equal(run(text, A=values), expected)


# Statements


def test_index_constant_cast_and_intrinsics() -> None:
    text = """
      block main [] (out R[0, 0]:assign f32(3, 4)) {
        block r [i:3, j:4, p = 7] (out R[i, j]:assign f32(1, 1)) {
          $i = index(5*i - j + p) i8
          $f = cast($i) f32
          $h = constant(0.5) f32
          $s = add($f, $h)
          R = store($s)
        }
      }"""
    i, j = np.indices((3, 4))
    np.testing.assert_array_equal(run(text), (5 * i - j + 7).astype(np.float32) + 0.5)


def test_an_index_wraps_into_its_type() -> None:
    text = """
      block main [] (out R[0]:assign i8(3)) {
        block r [i:3] (out R[i]:assign i8(1)) { $i = index(100*i + 1) i8  R = store($i) }
      }"""
    np.testing.assert_array_equal(run(text), [1, 101, 201 - 256])


GATHER = """
block main [] (in D[0, 0] f32(4, 3)  in I[0, 0] i32(2, 2)  out R[0, 0, 0]:assign f32(AFTER)) {
  special gather(in D, in I, out R:assign) {axis=AXIS}
}
"""


def test_gather_clamps(rng: np.random.Generator) -> None:
    data, index = rng.random((4, 3), np.float32), np.array([[-5, 1], [2, 9]], np.int32)
    for axis, after in ((0, "2, 2, 3"), (1, "4, 2, 2")):
        result = run(GATHER.replace("AFTER", after).replace("AXIS", str(axis)), D=data, I=index)
        np.testing.assert_array_equal(result, np.take(data, index, axis=axis, mode="clip"))


def test_a_special_runs_at_each_point_on_the_part_that_it_names() -> None:
    text = """
      block main [] (in D[0, 0] i32(3, 8)  in I[0] i64(2)  out R[0, 0]:assign i32(3, 2)) {
        block row [r:3] (in D[r, 0] i32(1, 8)  in I[0] i64(2)  out R[r, 0]:assign i32(1, 2)) {
          special gather(in D[0, r](1, 4), in I, out R:assign) {axis=1}
        }
      }"""
    data = np.arange(24, dtype=np.int32).reshape(3, 8)
    expected = [[data[r, r + 1], data[r, r + 3]] for r in range(3)]
    np.testing.assert_array_equal(run(text, D=data, I=np.array([1, 7])), expected)


def test_scatter_adds_onto_the_fill_and_drops_what_is_outside() -> None:
    text = """
      block main [] (in U[0, 0] i32(4, 2)  in I[0] i32(4)  out R[0, 0]:assign i32(3, 2)) {
        block fill [i:3, j:2] (out R[i, j]:assign i32(1, 1)) { $c = constant(100) i32  R = store($c) }
        special scatter(in U, in I, inout R:add) {axis=0}
      }"""
    updates = np.arange(8, dtype=np.int32).reshape(4, 2)
    result = run(text, U=updates, I=i32(1, 3, 1, -1))
    np.testing.assert_array_equal(result, [[100, 100], [104, 106], [100, 100]])


def test_a_load_time_program_makes_further_inputs() -> None:
    text = """
      load block pack [] (in W[0, 0] i32(2, 3)  out P[0, 0]:assign i32(3, 2)) {
        block t [i:2, j:3] (in W[i, j] i32(1, 1)  out P[j, i]:assign i32(1, 1)) {
          $w = load(W)  P = store($w)
        }
      }
      block main [] (const in W[0, 0] i32(2, 3)  in P[0, 0] i32(3, 2)  out R[0, 0]:assign i32(3, 2)) {
        block r [i:3, j:2] (in P[i, j] i32(1, 1)  in W[j, i] i32(1, 1)  out R[i, j]:assign i32(1, 1)) {
          $p = load(P)
          $w = load(W)
          $r = add($p, $w)
          R = store($r)
        }
      }"""
    weights = np.arange(6, dtype=np.int32).reshape(2, 3)
    result = interpret(parse(text), {"W": weights})
    assert list(result) == ["R"]
    np.testing.assert_array_equal(result["R"], 2 * weights.T)


# Sizes


def test_empty_arrays_and_ranges() -> None:
    text = """
      block main [] (in A[0, 0] f32(0, 3)  out R[0]:assign f32(3)  out E[0, 0]:assign f32(0, 3)) {
        block zero [j:3] (out R[j]:assign f32(1)) { $z = constant(0.0) f32  R = store($z) }
        block sum [j:3, i:0] (in A[i, j] f32(1, 1)  out R[j]:add f32(1)) { $a = load(A)  R = store($a) }
        block copy [i:0, j:3] (in A[i, j] f32(1, 1)  out E[i, j]:assign f32(1, 1)) {
          $a = load(A)  E = store($a)
        }
      }"""
    result = interpret(parse(text), {"A": np.zeros((0, 3), np.float32)})
    np.testing.assert_array_equal(result["R"], [0, 0, 0])
    assert result["E"].shape == (0, 3)


def test_scalars_of_rank_0() -> None:
    text = """
      block main [] (in A[] f64()  out R[] :assign f64()) {
        block r [] (in A[] f64()  out R[]:assign f64()) { $a = load(A)  $b = neg($a)  R = store($b) }
      }"""
    result = run(text, A=np.array(2.5))
    assert result.shape == () and result == -2.5


def test_strided_and_read_only_inputs_are_read_rightly_and_left_alone(rng: np.random.Generator) -> None:
    a = rng.integers(-9, 9, (6, 8)).astype(np.float32)
    b = rng.integers(-9, 9, (5, 6)).astype(np.float32)
    view = a[::-1, ::2].T
    view.flags.writeable = False
    before = a.copy()
    np.testing.assert_array_equal(run(MATMUL, A=view, B=b.T), view @ b.T)
    np.testing.assert_array_equal(a, before)


def test_an_output_does_not_share_memory_with_an_input() -> None:
    text = """
      block main [] (inout R[0]:assign i32(3)) {
        block r [i:3] (inout R[i]:assign i32(1)) { $a = load(R)  $b = add($a, $a)  R = store($b) }
      }"""
    held = i32(1, 2, 3)
    result = run(text, R=held)
    assert not np.shares_memory(result, held)
    np.testing.assert_array_equal(held, [1, 2, 3])


# Agreement with a point-by-point interpreter


@pytest.mark.parametrize("batch", [1 << 20, 50])
def test_agrees_with_the_naive_interpreter(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On random nests: equal results, or both say that the program has no meaning."""
    monkeypatch.setattr(stripe.interp_run, "_BATCH", batch)
    worked = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        program = random_program(rng)
        inputs = {r.name: rng.integers(-3, 4, r.shape).astype(r.dtype.numpy) for r in program.inputs}
        try:
            expected = naive_interpret(program, inputs)
        except Undefined:
            with pytest.raises(CompileError):
                interpret(program, inputs)
            continue
        worked += 1
        np.testing.assert_array_equal(interpret(program, inputs)["O"], expected["O"], err_msg=str(seed))
    assert worked > 100


# What goes wrong


def copying(refinements: str, body: str = "$a = load(A)  R = store($a)", extra: str = "") -> str:
    return f"""
      block main [] (in A[0] i32(4)  out R[0]:assign i32(4)) {{
        {extra}
        block copy [i:4] ({refinements}) {{ {body} }}
      }}"""


def test_inputs_are_checked() -> None:
    text = copying("in A[i] i32(1)  out R[i]:assign i32(1)")
    assert "error[I001]: input 'A' (i32[4]) is missing" in failure(text)
    shown = failure(text, A=i32(1, 2, 3, 4), B=i32(1))
    assert "error[I001]: the program has no input 'B'" in shown
    shown = failure(text, A=np.zeros(4, np.int64))
    assert "error[I002]: input 'A' is int64[4], the program takes i32[4]" in shown
    assert "is int32[2, 2], the program takes i32[4]" in failure(text, A=np.zeros((2, 2), np.int32))
    assert "I002" in failure(text, A=np.zeros(4, ">i4"))


def test_all_that_is_wrong_with_the_inputs_is_said_at_once() -> None:
    with pytest.raises(CompileError) as caught:
        interpret(parse(MATMUL), {"A": np.zeros((4, 6)), "D": np.zeros(3)})
    assert sorted(d.code for d in caught.value.diagnostics) == ["I001", "I001", "I002"]


def test_an_access_outside_the_allocation() -> None:
    shown = failure(copying("in A[2*i - 1] i32(1)  out R[i]:assign i32(1)"), A=i32(1, 2, 3, 4))
    assert "error[I020]: main/copy, statement 0: the load of 'A': element [-1] is outside of 'A'" in shown
    assert "at the point copy[i=0]" in shown
    assert "<string>:4:75" in shown
    shown = failure(copying("in A[i] i32(1)  out R[i + 2]:assign i32(1)"), A=i32(1, 2, 3, 4))
    assert "statement 1: the store to 'R': element [4] is outside of 'R' of block main, of shape (4)" in shown
    assert "at the point copy[i=2]" in shown


def test_an_access_outside_an_enclosing_view_but_inside_the_allocation() -> None:
    text = """
      block main [] (in A[0] i32(8)  out R[0]:assign i32(4)) {
        block tile [t:2] (in A[2*t] i32(2)  out R[2*t]:assign i32(2)) {
          block copy [i:2, s = t] (in A[2*i] i32(1)  out R[i]:assign i32(1)) { $a = load(A)  R = store($a) }
        }
      }"""
    shown = failure(text, A=np.zeros(8, np.int32))
    assert "element [2] is outside of 'A' of block main/tile, of shape (2)" in shown
    assert "at the point tile[t=0]/copy[i=1]" in shown


def test_a_constraint_keeps_an_access_inside() -> None:
    text = copying("i - 1 >= 0  in A[i - 1] i32(1)  out R[i]:assign i32(1)")
    shown = failure(text, A=i32(1, 2, 3, 4))
    assert "error[I024]: output 'R' was not written whole: element [0] has no value" in shown
    assert "1 of 4 elements are missing" in shown


def test_a_view_without_elements_has_no_origin() -> None:
    assert "[I020]" in failure(copying("in A[i] i32(0)  out R[i]:assign i32(1)"), A=i32(1, 2, 3, 4))


def test_a_load_of_an_element_without_a_value() -> None:
    text = """
      block main [] (in A[0] i32(4)  out R[0]:assign i32(4)  new T i32(4)) {
        block some [i:4] (2 - i >= 0  in A[i] i32(1)  out T[i]:assign i32(1)) { $a = load(A)  T = store($a) }
        block copy [i:4] (in T[i] i32(1)  out R[i]:assign i32(1)) { $a = load(T)  R = store($a) }
      }"""
    shown = failure(text, A=i32(1, 2, 3, 4))
    assert (
        "[I021]: main/copy, statement 0: the load of 'T': element [0] of 'T' was not written before" in shown
    )
    assert "at the point copy[i=3]" in shown


def test_an_inout_aggregation_onto_poison() -> None:
    text = copying("in A[i] i32(1)  inout R[i]:add i32(1)")
    shown = failure(text, A=i32(1, 2, 3, 4))
    assert "[I021]: main, statement 0: block copy folds in the old value: element [0] of 'R'" in shown


def test_two_points_that_assign_one_element() -> None:
    text = """
      block main [] (in A[0, 0] i32(2, 3)  out R[0]:assign i32(3)) {
        block outer [o:2] (in A[o, 0] i32(1, 3)  out R[0]:assign i32(3)) {
          block inner [i:3] (in A[0, i] i32(1, 1)  out R[i]:assign i32(1)) { $a = load(A)  R = store($a) }
        }
      }"""
    shown = failure(text, A=np.zeros((2, 3), np.int32))
    assert "[I022]: main/outer, statement 0: two points write element" in shown
    assert "the other point of block outer: o=" in shown
    shown = failure(copying("in A[i] i32(1)  out R[0]:assign i32(1)"), A=i32(1, 2, 3, 4))
    assert "[I022]: main/copy, statement 1: two points write element [0] of 'R'" in shown


def test_two_points_in_different_batches_that_assign_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stripe.interp_run, "_BATCH", 1)
    shown = failure(copying("in A[i] i32(1)  out R[0]:assign i32(1)"), A=i32(1, 2, 3, 4))
    assert "at the point copy[i=1]" in shown and "the other point of block copy: i=0" in shown


def test_loads_of_what_is_aggregated_or_of_another_point() -> None:
    body = "$a = load(A)  R = store($a)  $b = load(R)  R = store($b)"
    shown = failure(copying("in A[i] i32(1)  out R[i]:add i32(1)", body), A=i32(1, 2, 3, 4))
    assert "[I023]: main/copy, statement 2" in shown and "aggregated by add" in shown
    text = """
      block main [] (in A[0] i32(4)  out R[0]:assign i32(4)  out S[0]:assign i32(4)) {
        block outer [i:4] (in A[i] i32(1)  out R[0]:assign i32(4)  out S[i]:assign i32(1)) {
          block w [o = i] (in A[0] i32(1)  out R[o]:assign i32(1)) { $a = load(A)  R = store($a) }
          block r [o = i] (in R[3 - o] i32(1)  out S[0]:assign i32(1)) { $a = load(R)  S = store($a) }
        }
      }"""
    shown = failure(text, A=i32(1, 2, 3, 4))
    assert "[I023]: main/outer/r, statement 0" in shown and "was written by another point" in shown


def test_a_load_through_an_out_view_sees_only_what_its_point_wrote() -> None:
    fill = "block fill [i:4] (out R[i]:assign i32(1)) { $c = constant(1) i32  R = store($c) }"
    body = "$b = load(R)  R = store($b)"
    assert "[I021]" in failure(copying("out R[i]:assign i32(1)", body, fill), A=i32(1, 2, 3, 4))


def test_writes_through_an_in_view() -> None:
    shown = failure(
        copying("in A[i] i32(1)  out R[i]:assign i32(1)", "$a = load(A)  A = store($a)"), A=i32(1, 2, 3, 4)
    )
    assert "[I025]: main/copy, statement 1: 'A' is written, but is an `in` view" in shown
    text = copying("out A[i]:assign i32(1)", "$a = constant(1) i32  A = store($a)")
    assert "[I025]: 'A' of block main/copy is written, but 'A' is an `in` view" in failure(
        text, A=i32(1, 2, 3, 4)
    )


@pytest.mark.parametrize(
    ("refinements", "body", "message"),
    [
        ("in A[i] i32(1)", "$a = load(B) i32", "[I011]: block main/copy uses the buffer 'B'"),
        ("in A[j] i32(1)", "$a = load(A) i32", "[I011]: block main/copy uses the index 'j'"),
        ("in X = Y[i] i32(1)", "$a = load(X) i32", "[I011]: block main uses the buffer 'Y'"),
        ("out R[i]:assign i32(1)", "R = store($a)", "[I011]: block main/copy uses the scalar 'a'"),
        (
            "in A[i] i32(1)",
            "$a = load(A) f32",
            "[I012]: main/copy, statement 0: 'A' holds i32 and is loaded as f32",
        ),
        ("in A[i] f32(1)", "$a = load(A) f32", "[I012]: 'A' of block main/copy holds f32, but 'A' holds i32"),
        ("in A[i, 0] i32(1, 1)", "", "[I012]: 'A' of block main/copy has not the rank of 'A', which is 1"),
        (
            "in A[i] i32(1)",
            "$a = load(A) i32  $b = sqrt($a) i32",
            "[I012]: main/copy, statement 1: sqrt(i32)",
        ),
        ("in A[i] i32(1)", "$a = load(A) i32  $b = sqtr($a) i32", "help: did you mean 'sqrt'?"),
        (
            "out R[i]:assign i32(1)",
            "$a = constant(1.0) f32  R = store($a)",
            "[I012]: main/copy, statement 1: a float32",
        ),
        (
            "in A[i] i32(1)",
            "$a = constant(300) i8",
            "[I012]: main/copy, statement 0: 300 is not a value of i8",
        ),
        ("in A[i] i32(1)", "$a = constant(0.5) i32", "0.5 is not a value of i32"),
        ("in A[i] i32(1)", "$a = index(999999999999*i) i32", "[I013]: main/copy, statement 0"),
        ("in A[i] i32(1)", "special gahter(in A, in A, out A:assign) {axis=0}", "did you mean 'gather'?"),
        (
            "in A[i] i32(1)",
            "special gather(in A, in A) {axis=0}",
            "the operands of 'gather' are: in, in, out",
        ),
    ],
)
def test_programs_that_make_no_sense(refinements: str, body: str, message: str) -> None:
    scaled = body.replace("999999999999", str(1 << 47))
    assert message in failure(copying(refinements, scaled), A=i32(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("axis", "after", "message"),
    [
        ("2", "2, 2, 3", "'axis' must be one of the 2 dimensions, not 2"),
        ("0", "2, 2, 4", "the result has shape (2, 2, 4), its operands ask for (2, 2, 3)"),
    ],
)
def test_specials_that_make_no_sense(axis: str, after: str, message: str) -> None:
    text = GATHER.replace("AFTER", after).replace("AXIS", axis)
    shown = failure(text, D=np.zeros((4, 3), np.float32), I=np.zeros((2, 2), np.int32))
    assert "[I012]: main, statement 0: gather" in shown and message in shown


def test_a_gather_from_nothing() -> None:
    text = GATHER.replace("AFTER", "2, 2, 3").replace("AXIS", "0").replace("(4, 3)", "(0, 3)")
    shown = failure(text, D=np.zeros((0, 3), np.float32), I=np.zeros((2, 2), np.int32))
    assert "can't gather from an axis of size 0" in shown


def test_a_special_that_reads_poison() -> None:
    text = """
      block main [] (in I[0] i32(2)  out R[0]:assign f32(2)  new T f32(3)) {
        special gather(in T, in I, out R:assign) {axis=0}
      }"""
    assert "[I021]: main, statement 0: 'gather' on 'T': element [0]" in failure(text, I=i32(0, 1))


def test_programs_too_large_or_too_deep() -> None:
    text = "block main [] (out R[0]:assign f32(4)  new T f32(100000, 100000, 100000)) { }"
    assert "[I010]: 'T' of shape (100000, 100000, 100000) is too large" in failure(text)
    shown = failure("block main [] () { block b [i:1000000000, j:1000000000] () { } }")
    assert "[I010]: block main/b has 1000000000000000000 points" in shown
    inner = Block("b")
    for _ in range(5000):
        inner = Block("b", statements=(inner,))
    with pytest.raises(CompileError, match="nested more than 100 deep"):
        interpret(Program(inner), {})
    shown = failure(
        f"block main [] (in A[{', '.join('0' * 20)}] i8({', '.join('1' * 20)})) {{ }}",
        A=np.zeros((1,) * 20, np.int8),
    )
    assert "more than 16 dimensions" in shown


def test_a_nest_of_the_greatest_depth_runs() -> None:
    program = parse("""
      block main [] (in A[0] i32(2)  out R[0]:assign i32(2)) {
        block b [i:2] (in A[i] i32(1)  out R[i]:assign i32(1)) { $a = load(A)  R = store($a) }
      }""")
    body = program.root.children[0]
    views = tuple(replace(r, access=(Affine(),), shape=(2,)) for r in body.refinements)
    for _ in range(98):
        body = Block("b", refinements=views, statements=(body,))
    deep = Program(replace(program.root, statements=(body,)))
    np.testing.assert_array_equal(interpret(deep, {"A": i32(5, 6)})["R"], [5, 6])
