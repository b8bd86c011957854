"""Programs on which native code or a pass once went wrong: they stay right."""

from __future__ import annotations

import numpy as np
import pytest

from hwconfigs.load import available
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.parser import parse
from tests.support.executions import Results, Tally, check_stages, native_target, run_native
from tests.support.tolerance import assert_same
from tile_frontend import compile_tile

# Found by the generated programs: (i=4, k=0..3) and the tail (i=0, k=4..6) add to the same
# elements, the one in whole vectors, the other in narrower ones.
OVERLAPPING_SUMS = """
block main [] (in A[0] u64(8)  out R[0]:assign u64(13)  new T u64(13):(1)) {
  block sum [i:7, j:2, k:7] (in A[i + j] u64(1)  in B = A[k] u64(1)  out T[i + k]:add u64(1))
      #unroll=i #unroll=k #vector=k {
    $a = load(A)
    $b = load(B)
    $c = add($a, $b)
    T = store($c)
  }
  block copy [k:13] (in T[k] u64(1)  out R[k]:assign u64(1)) #vector=k {
    $v = load(T)
    R = store($v)
  }
}
"""


@pytest.mark.parametrize("name", [name for name in available() if native_target(name)])
def test_sums_of_overlapping_vectors_and_tails(name: str) -> None:
    hw = native_target(name)
    assert hw is not None
    program = parse(OVERLAPPING_SUMS)
    inputs = {"A": np.arange(1, 9, dtype=np.uint64)}
    assert_same(run_native(program, hw, inputs), interpret(program, inputs))


STRIPE = {
    # merging the levels made both stores of a point part of the sum; only the last one counts
    "replaced_before_it_is_added": """
block main [] (in A[0] i32(8)  out R[0]:assign i32(4)) {
  block sum [m:4, k:2] (in A[2*m + k] i32(1)  out R[m]:add i32(1)) {
    block last [] (in A[0] i32(1)  out R[0]:assign i32(1)) {
      $a = load(A)
      R = store($a)
      $c = constant(5) i32
      $d = add($a, $c)
      R = store($d)
    }
  }
}
""",
    # the same with blocks instead of stores
    "replaced_by_a_block_before_it_is_added": """
block main [] (in A[0] i32(16)  out R[0]:assign i32(4)) {
  block sum [m:4, k:4] (in A[4*m + k] i32(1)  out R[m]:add i32(1)) {
    block last [] (in A[0] i32(1)  out R[0]:assign i32(1)) {
      block first [] (in A[0] i32(1)  out R[0]:assign i32(1)) {
        $a = load(A)
        R = store($a)
      }
      block second [] (in A[0] i32(1)  out R[0]:assign i32(1)) {
        $a = load(A)
        $d = add($a, $a)
        R = store($d)
      }
    }
  }
}
""",
    # the index was taken for the first dimension of the elements that the special writes
    "an_index_named_element0": """
block main [] (in D[0] i32(6)  in I[0] i32(2)  out R[0]:assign i32(8)) {
  block fill [i:8] (out R[i]:assign i32(1)) {
    $z = constant(1) i32
    R = store($z)
  }
  block a [m:3] (in D[0] i32(6)  in I[0] i32(2)  out R[0]:assign i32(8)) {
    block b [element0 = 2*m] (in D[0] i32(6)  in I[0] i32(2)  out R[element0]:add i32(2)) {
      special gather(in D, in I, out R:assign) {axis=0}
    }
  }
}
""",
}


@pytest.mark.parametrize("target", [name for name in available() if native_target(name)])
@pytest.mark.parametrize("name", STRIPE)
def test_stripe_programs(name: str, target: str, rng: np.random.Generator) -> None:
    program, hw = parse(STRIPE[name]), native_target(target)
    assert hw is not None
    inputs = {r.name: rng.integers(0, 4, r.shape).astype(r.dtype.numpy) for r in program.inputs}
    expected = interpret(program, inputs)

    def check(actual: Results, what: str) -> None:
        assert_same(actual, expected, what=what)

    check(run_native(program, hw, inputs), "no passes")
    check_stages(program, inputs, target, check, Tally())


def test_any_byte_but_zero_is_true() -> None:
    program = parse("""
block main [] (in A[0] bool(40)  out R[0]:assign i32(40)) {
  block b [i:40] (in A[i] bool(1)  out R[i]:assign i32(1)) #vector=i {
    $a = load(A)
    $b = cast($a) i32
    R = store($b)
  }
}
""")
    inputs = {"A": np.arange(40, dtype=np.uint8).view(bool)}
    hw = native_target("generic")
    assert hw is not None
    assert_same(run_native(program, hw, inputs), interpret(program, inputs))


TILE = {
    # fuse wrapped the same two blocks of one point in a further block, again and again
    "blocks_of_one_point": (
        "function (A) -> (T2) {"
        " T0[i : 11] = >(A[i] + A[3*i + j - 2] + A[k + 2]);"
        " T1[i : 11] = =(A[i] * T0[i]);"
        " T2[i + 1 : 13] = <(T1[i]) default 1; }",
        {"A": TensorType(DType.U8, (11,))},
    ),
    # the zeros of cells without a point were integers, in a tensor of bools
    "cells_without_a_point_in_a_bool": (
        "function (A) -> (R) { R[3*k, i, j : 4, 1, 1] = =(A[i, i, j] == A[k, k, k]); }",
        {"A": TensorType(DType.I64, (1, 1, 1))},
    ),
}


@pytest.mark.parametrize("target", available())
@pytest.mark.parametrize("name", TILE)
def test_tile_programs(name: str, target: str, rng: np.random.Generator) -> None:
    text, types = TILE[name]
    program = compile_tile(Source(f"{name}.tile", text), types)
    inputs = {n: rng.integers(0, 4, t.shape).astype(t.dtype.numpy) for n, t in types.items()}
    expected = interpret(program, inputs)
    check_stages(
        program, inputs, target, lambda actual, what: assert_same(actual, expected, what=what), Tally()
    )
