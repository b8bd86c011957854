"""Faults that lay hidden in the first implementation of Stripe (PlaidML 0.7.0): none of them is here.

Each test states what went wrong there. Programs are small; what a pass makes of them is looked at, and run.
Options without effect (there were two) are looked for in tests/unit/stripe/passes/test_option_effects.py.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import Problem
from stripe.diag import Source
from stripe.interp import interpret
from stripe.ir import Direction, Load
from stripe.parser import parse
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.canonicalize import Canonicalize
from stripe.passes.fuse import Fuse
from stripe.passes.partition import Partition
from stripe.passes.scalarize import Scalarize
from stripe.visit import views_of
from tests.support.native import run as run_native
from tests.support.passes import check_pass, program_of

Array = np.ndarray[Any, Any]

GENERIC = load_named("generic")


# An empty list of indexes to skip counted as one that names every index, so that nothing was done.

CONSTRAINED = """
block main [] (in A[0, 0] i32(64, 64)  out R[0, 0]:assign i32(6, 64)) {
  block b [x:12, y:64] (5 - x >= 0  in A[x, y] i32(1, 1)  out R[x, y]:assign i32(1, 1)) {
    $a = load(A)  R = store($a)
  }
}
"""


def test_ranges_shrink_where_nothing_is_excluded() -> None:
    result, _ = check_pass(program_of(CONSTRAINED), Canonicalize())
    block = result.root.children[0]
    assert (block.ranges, block.constraints) == ({"x": 6, "y": 64}, ())


def test_an_empty_list_of_indexes_means_all() -> None:
    near = Memory("NEAR", "cached", 256, backing="FAR")
    hw = HwConfig("chip", "", "interpreter", (near, Memory("FAR", "explicit")), (Unit("CORE"),))
    program = program_of(CONSTRAINED.replace("x:12", "x:6").replace("5 - x >= 0", ""))
    steps = [Autotile(indices=i, cost="cache_lines_per_point") for i in ((), ("x", "y"), ("x",))]
    every, both, one = (step.run(program, PassContext(hw)) for step in steps)
    assert every is not program
    assert every == both
    assert one != both


# A shift of an index was substituted in the block's own indexes, not in those passed to a child.

SHIFTED = """
block main [] (in A[0] i32(40)  out R[0, 0]:assign i32(9, 4)) {
  block b [x:12] (x - 3 >= 0  in A[2*x] i32(4)  out R[x - 3, 0]:assign i32(1, 4)) {
    block c [y:4, xo = 2*x, xs = x] (xo + y - 7 >= 0  in A[y] i32(1)  out R[0, y]:assign i32(1, 1)) {
      $a = load(A)  $i = index(xs + y) i32  $r = add($a, $i)  R = store($r)
    }
    block d [y:4, xo = 2*x] (6 - xo - y >= 0  out R[0, y]:assign i32(1, 1)) {
      $z = constant(0) i32  R = store($z)
    }
  }
}
"""


def test_a_shift_reaches_the_values_passed_to_children() -> None:
    result, _ = check_pass(program_of(SHIFTED), Canonicalize())
    block = result.root.children[0]
    assert block.ranges == {"x": 9}
    passed = {str(i.passed) for child in block.children for i in child.indexes if i.passed is not None}
    assert passed & {"2*x + 6", "x + 3"}


# The choice of the dimension to divide compared ranges where it meant to compare shares.


@pytest.mark.parametrize(("m", "n", "largest"), [(6, 64, 96), (64, 6, 96), (3, 4, 3), (9, 5, 15), (5, 7, 10)])
def test_the_largest_part_is_as_small_as_can_be(m: int, n: int, largest: int) -> None:
    program = program_of(
        f"""
        block main [] (in A[0, 0] i32({m}, {n})  out R[0, 0]:assign i32({m}, {n})) {{
          block b [m:{m}, n:{n}] (in A[m, n] i32(1, 1)  out R[m, n]:assign i32(1, 1)) {{
            $a = load(A)  R = store($a)
          }}
        }}
        """
    )
    cores = Unit("CORE", count=4, reaches=("FAR",))
    hw = HwConfig("chip", "", "interpreter", (Memory("FAR", "explicit"),), (cores,))
    result, _ = check_pass(program, Partition(unit="CORE"), hw)
    part = result.root.children[0].children[0]
    splits = [(-(-m // p), -(-n // q)) for p in range(1, m + 1) for q in range(1, n + 1)]
    assert prod(part.ranges.values()) == largest
    assert largest == min(a * b for a, b in splits if -(-m // a) * -(-n // b) <= 4)


# The scalar stored last was taken for what a buffer holds, although it aggregates.

SUMMED = """
block main [] (in X[0] f32(8)  out R[0]:assign f32(8)) {
  block b [i:8] (in X[i] f32(1)  out R[i]:assign f32(1)  new T f32(1):(1)) {
    $x = load(X)
    T = store($x)
    block sum [k:3, i = i] (in X[0] f32(1)  out T[0]:add f32(1)) { $x = load(X)  T = store($x) }
    $t = load(T)
    R = store($t)
  }
}
"""


def test_what_aggregates_is_not_forwarded() -> None:
    program = program_of(SUMMED)
    result, _ = check_pass(program, Scalarize())
    loads = [s.buffer for s in result.root.children[0].statements if isinstance(s, Load)]
    assert "T" in loads
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(interpret(result, {"X": x})["R"], 3 * x)


@pytest.mark.parametrize("aggregation", ["add", "max"])
def test_nor_is_that_of_a_view_that_aggregates(aggregation: str) -> None:
    """The verifier refuses such a load; the pass does not rely on that."""
    text = """
      block main [] (in X[0] f32(8)  out R[0]:assign f32(8)  out S[]:assign f32()) {
        block b [i:8] (in X[i] f32(1)  out R[i]:assign f32(1)  out S[]:add f32()) {
          $x = load(X)  S = store($x)  $s = load(S)  R = store($s)
        }
      }"""
    program = parse(Source("sum.stripe", text.replace(":add", f":{aggregation}")))
    assert Scalarize().run(program, PassContext(GENERIC)) is program


# An index equal to the size of an axis went through, and those above it were set to the size.

LIMITS = np.array([-2, -1, 0, 4, 5, 6, 1 << 40], np.int64)  # of an axis of 5

GATHER = """
block main [] (in D[0] i32(5)  in I[0] i64(7)  out R[0]:assign i32(7)) {
  special gather(in D, in I, out R:assign) {axis=0}
}
"""
SCATTER = """
block main [] (in U[0] i32(7)  in I[0] i64(7)  out R[0]:assign i32(5)) {
  block fill [i:5] (out R[i]:assign i32(1)) { $c = constant(100) i32  R = store($c) }
  special scatter(in U, in I, inout R:add) {axis=0}
}
"""


@pytest.mark.parametrize("native", [False, True], ids=["interpreter", "native"])
def test_gather_ends_at_the_last_element(native: bool) -> None:
    inputs: dict[str, Array] = {"D": np.arange(10, 15, dtype=np.int32), "I": LIMITS}
    program = program_of(GATHER)
    result = run_native(program, inputs) if native else interpret(program, inputs)
    np.testing.assert_array_equal(result["R"], [10, 10, 10, 14, 14, 14, 14])


@pytest.mark.parametrize("native", [False, True], ids=["interpreter", "native"])
def test_scatter_writes_nothing_at_the_size_and_beyond(native: bool) -> None:
    inputs: dict[str, Array] = {"U": np.array([1, 2, 4, 8, 16, 32, 64], np.int32), "I": LIMITS}
    program = program_of(SCATTER)
    result = run_native(program, inputs) if native else interpret(program, inputs)
    np.testing.assert_array_equal(result["R"], [104, 100, 100, 100, 108])


# Fusion took a statement that gives an index as a scalar for a special.

INDEXED = """
block main [] (in A[0, 0] i32(6, 8)  new T i32(6, 8):(8, 1)  out R[0, 0]:assign i32(6, 8)) {
  block t [i:6, j:8] (in A[i, j] i32(1, 1)  out T[i, j]:assign i32(1, 1)) {
    $a = load(A)  $n = index(8*i + j + 1) i32  $t = mul($a, $n)  T = store($t)
  }
  block r [x:6, y:8] (in T[x, y] i32(1, 1)  out R[x, y]:assign i32(1, 1)) {
    $t = load(T)  $n = index(x - 2*y) i32  $r = add($t, $n)  R = store($r)
  }
}
"""


def test_blocks_with_indexes_as_scalars_are_fused() -> None:
    result, _ = check_pass(program_of(INDEXED), Fuse())
    (block,) = result.root.children
    assert {"T", "R"} <= {ref.name for ref in block.refinements}
    a = np.ones((6, 8), np.int32)
    i, j = np.indices((6, 8))
    np.testing.assert_array_equal(interpret(result, {"A": a})["R"], 8 * i + j + 1 + i - 2 * j)


# What is read and written counted neither as input nor as output, so that accumulators cost nothing.


ACCUMULATED = """
block main [] (in A[0, 0] f32(64, 64)  out R[0, 0]:assign f32(64, 64)) {
  block z [m:64, n:64] (out R[m, n]:assign f32(1, 1)) { $z = constant(0.0) f32  R = store($z) }
  block b [m:64, n:64, k:2] (in A[m, n] f32(1, 1)  inout R[m, n]:add f32(1, 1)) {
    $a = load(A)  R = store($a)
  }
}
"""


@pytest.mark.parametrize("model", COST_MODELS)
def test_what_is_read_and_written_costs_as_much_as_what_is_written(model: str) -> None:
    program, memory = program_of(ACCUMULATED), GENERIC.memory("L1")
    assert memory is not None

    def weighed(direction: Direction) -> tuple[float, int]:
        block = program.root.children[1]
        refs = tuple(replace(r, direction=direction) if r.name == "R" else r for r in block.refinements)
        problem = Problem(
            replace(block, refinements=refs), views_of(program.root, {}), GENERIC, memory, ("m", "n")
        )
        found = COST_MODELS[model](problem).evaluate({"m": 8, "n": 16}, ("m", "n"))
        return float(found.cost), int(found.limits[0].needed)

    cost, needed = weighed(Direction.INOUT)
    assert (cost, needed) == weighed(Direction.OUT)
    assert needed == 2 * 8 * 16 * 4
    if model == "cache_lines_per_point":
        assert cost == 2 * (64 * 64 * 4 / 64) / (64 * 64)
