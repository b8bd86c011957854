"""Bounds at inner memories: what counts there, by hand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from simulator import Simulation
from simulator.copies import copies_in
from simulator.result import Bound
from stripe.ir import Block, Direction
from stripe.parser import parse

PRODUCT = "function (A[M, K], B[K, N]) -> (R) { R[m, n : M, N] = +(A[m, k] * B[k, n]); }"


def product(target: str | HwConfig, m: int, n: int, k: int) -> Simulation:
    shapes = {"A": f"i8[{m},{k}]", "B": f"i8[{k},{n}]"}
    return stripec.simulate(PRODUCT, shapes=shapes, target=target, counts="closed")


def of_program(found: Simulation, memory: str) -> dict[str, tuple[int, int | None, int]]:
    rows = [b for b in found.bounds if not b.kernel and b.memory == memory]
    return {b.tensor: (b.compulsory, b.least, b.ours) for b in rows}


def test_each_use_of_an_array_takes_its_operands_from_the_memory_before_it() -> None:
    found = product("systolic_16", 100, 64, 200)
    m, n, k = 7, 4, 13  # uses of 16 x 16 x 16
    a, b, r = 100 * 200, 200 * 64, 4 * 100 * 64
    assert of_program(found, "SPAD") == {
        "A": (a, a * n, a * n), "B": (b, b * m, b * m), "": (a + b, a * n + b * m, a * n + b * m),
    }  # fmt: skip
    assert of_program(found, "ACC")["R"] == (
        r,
        2 * r * k,
        2 * r * k,
    )  # the old sum is read, the new one written
    assert of_program(found, "DRAM")["R"] == (r, r, r)


def test_each_point_takes_its_operands_where_units_have_nothing_nearer() -> None:
    found = product("many_core", 48, 64, 80)
    points = 48 * 64 * 80
    assert of_program(found, "SRAM")["A"] == (48 * 80, points, points)
    assert of_program(found, "SRAM")["R"] == (4 * 48 * 64, 8 * points, 8 * points)


def test_a_result_goes_through_the_memory_beside_its_accumulators() -> None:
    """By the copies of tpu_like it is behind them, though both are backed by DRAM: each sum comes once."""
    found = product("tpu_like", 256, 256, 512)
    r = 4 * 256 * 256
    assert of_program(found, "UB")["R"] == (r, r, r)
    assert of_program(found, "ACC")["R"] == (r, 4 * r, 4 * r)  # two uses, and nothing for taking it away


def test_smaller_uses_move_more_than_the_least() -> None:
    hw = load_named("tpu_like")
    indexes = {"m": "m", "n": "n", "k": "k"}
    small = {"stencil": "tile_i8", "indexes": indexes, "sizes": dict.fromkeys(indexes, 256)}
    steps = tuple(
        msgspec.structs.replace(step, options={"choices": {"main/R": small}})
        if step.name == "stencil"
        else step
        for step in hw.pipeline
    )
    weights = 256 * 256
    whole = of_program(product(hw, 2048, 256, 256), "WFIFO")
    cut = of_program(product(msgspec.structs.replace(hw, pipeline=steps), 2048, 256, 256), "WFIFO")
    assert whole["B"] == (weights, weights, weights)
    assert cut["B"] == (weights, weights, 8 * weights)


def test_a_special_has_a_reason_instead_of_a_least() -> None:
    text = "function (D[N, C], I[M]) -> (R) { R = gather(D, I); }"
    found = stripec.simulate(
        text, shapes={"D": "f32[50,8]", "I": "i32[30]"}, target="vector_dsp", counts="closed"
    )
    lacking: list[Bound] = [b for b in found.bounds if b.least is None]
    assert all(b.reason for b in lacking)
    assert all(not b.reason for b in found.bounds if b.least is not None)


def test_closed_counts_on_caches_say_why_there_are_no_bounds() -> None:
    shapes = {"A": "f32[8,8]", "B": "f32[8,8]"}
    found = stripec.simulate(PRODUCT, shapes=shapes, target="generic", counts="closed")
    assert found.bounds == []
    assert found.no_bounds == "what crosses the boundaries of caches is not known without a run"


@pytest.mark.parametrize("target", ["generic", "x86_64_avx512"])
def test_caches_have_bounds_at_each_level(target: str) -> None:
    shapes = {"A": "f32[40,60]", "B": "f32[60,50]"}
    found = stripec.simulate(PRODUCT, shapes=shapes, target=target, counts="simulated")
    whole = [b for b in found.bounds if not b.kernel and not b.tensor]
    assert [b.memory for b in whole][-4:] == ["L1", "L2", "L3", "DRAM"]
    for bound in whole:
        assert bound.least is not None
        assert bound.compulsory <= bound.least <= bound.ours


# -- which tensor a buffer stands for ----------------------------------------------------------------

COPIES = """block main [] (
  in X[0] f32(8):(1) @DRAM:0
  out R[0]:add f32(1):(1) @DRAM:64
  new P f32(1):(1) @NET:0
) {
  block sums [] (
    in X[0] f32(8):(1)
    out P[0]:assign f32(1):(1)
    new L f32(8):(1) @GLB:0
    new A f32(1):(1) @GLB:64
  ) {
    block load [i:8] (
      in X[i] f32(1):(1)
      out L[i]:assign f32(1):(1)
    ) {
      $v = load(X) f32
      L = store($v)
    }
    block sum [i:8] (
      in L[i] f32(1):(1)
      out A[0]:add f32(1):(1)
    ) {
      $v = load(L) f32
      A = store($v)
    }
    block copy [] (
      in A[0] f32(1):(1)
      out P[0]:assign f32(1):(1)
    ) {
      $v = load(A) f32
      P = store($v)
    }
  }
  block join [] (
    in P[0] f32(1):(1)
    out R[0]:add f32(1):(1)
  ) {
    $v = load(P) f32
    R = store($v)
  }
}
"""


def source_of(program: Block, *own: str) -> Block:
    """The program before it had copies: inputs and outputs, and these buffers of its kernel."""
    kernel = program.children[0]
    held = tuple(r for r in kernel.refinements if r.direction is not Direction.NEW or r.name in own)
    refs = tuple(r for r in program.refinements if r.direction is not Direction.NEW)
    return replace(program, refinements=refs, statements=(replace(kernel, refinements=held),))


def test_buffers_stand_for_what_they_are_copies_or_parts_of() -> None:
    hw = load_named("eyeriss_like")
    program = parse(COPIES).root
    copies = copies_in(program, source_of(program), hw)
    assert copies.tensors == {
        "main/X": "X", "main/R": "R", "main/sums/L": "X", "main/P": "R", "main/sums/A": "R",
    }  # fmt: skip
    assert copies.parents == {"main/sums/L": "main/X", "main/P": "main/R", "main/sums/A": "main/P"}
    assert copies.way("main/sums/A") == {"DRAM", "NET", "GLB"}
    load, total, out, join = (0, 0), (0, 1), (0, 2), (1,)
    assert copies.comes_from_farther(load, "main/sums/L")
    assert not copies.comes_from_farther(load, "main/X")
    assert copies.child(load, "main/X") == "GLB"
    assert not copies.child(total, "main/sums/L")  # a sum of X is no X
    assert not copies.comes_from_farther(total, "main/sums/A")
    assert [copies.goes_out(site) for site in (load, total, out, join)] == [False, False, True, True]
    kept = copies_in(program, source_of(program, "A"), hw)  # where A is a buffer of the source's kernel
    assert kept.tensor("main/sums/A") == "sums/A"
    assert kept.tensor("main/P") == "sums/A"
