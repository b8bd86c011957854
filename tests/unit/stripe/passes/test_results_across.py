"""Results that lie across the lanes are turned on their way out of registers; what memory binds is walked
through in order."""

from __future__ import annotations

import numpy as np
import pytest

from stripe.ir import Block
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.pipeline import run_pipeline
from stripe.visit import walk
from tests.support import native
from tests.support.executions import pipeline, target
from tests.support.meaning import random_inputs
from tests.support.passes import program_of

TURNED = """block main [] (
  in X[0, 0] f32(96, M):(M, 1)
  in Y[0, 0] f32(96, N):(N, 1)
  out Z[0, 0]:assign f32(N, M):(M, 1)
) {
  block z [j:N, i:M, k:96] (
    in X[k, i] f32(1, 1)
    in Y[k, j] f32(1, 1)
    out Z[j, i]:add f32(1, 1)
  ) {
    $x = load(X) f32
    $y = load(Y) f32
    $p = mul($x, $y) f32
    Z = store($p)
  }
}"""

# Of X only every fourth element lies beside the next along i: the lanes run along j, the results along i.
APART = TURNED.replace("X[0, 0] f32(96, M):(M, 1)", "X[0, 0] f32(96, P):(P, 1)").replace(
    "X[k, i]", "X[k, 4*i]"
)


@pytest.mark.parametrize(("rows", "columns"), [(64, 96), (50, 40)])
def test_results_across_the_lanes_are_turned(rows: int, columns: int) -> None:
    text = APART.replace("P", str(4 * rows)).replace("M", str(rows)).replace("N", str(columns))
    program = program_of(text)
    result = run_pipeline(program, pipeline("x86_64_avx512"), target("x86_64_avx512"))
    leaves = [b for _, b in walk(result.root) if not b.children]
    sums = {b.tag_values("vector") for b in leaves if not b.name.endswith("_copy")}
    copies = [b for b in leaves if b.name.endswith("_copy")]
    assert sums == {("j",)}
    assert copies
    assert all(b.has_tag("across") and not b.has_tag("unroll") for b in copies)
    assert all(_beside(result.root, b) == 1 for b in copies)
    inputs = random_inputs(program, np.random.default_rng(3))
    expected = inputs["Y"].T @ inputs["X"][:, ::4]
    for hw in native.runnable():
        np.testing.assert_allclose(native.run(result, inputs, hw)["Z"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(1024, 12), (2048, 12), (1020, 32)])
def test_few_results_across_the_lanes_lie_on_one_set(rows: int, columns: int) -> None:
    """Rows of Z a page apart meet in one set of L1, which holds twelve. A tile that writes half a line of
    more of them finds none when the next one writes the other half: there the lanes go along i."""
    text = APART.replace("96", "16").replace("P", str(4 * rows)).replace("M", str(rows)).replace("N", "96")
    result = run_pipeline(program_of(text), pipeline("x86_64_zen5"), target("x86_64_zen5"))
    held = [ref.shape for _, block in walk(result.root) for ref in block.refinements if ref.location]
    assert {shape[0] for shape in held} == {columns}


def _beside(root: Block, copy: Block) -> int:
    """How far apart the elements of what a copy reads lie along its lanes."""
    (parent,) = (b for _, b in walk(root) if any(s is copy for s in b.statements))
    read = copy.refinements[0]
    strides = parent.refinement(read.source).strides
    assert strides is not None
    (lane,) = copy.tag_values("vector")
    return sum(e.coefficient(lane) * s for e, s in zip(read.access, strides, strict=True))


WINDOW = """block main [] (
  in I[0, 0, 0] f32(130, 130, C):(ROW, C, 1)
  in F[0, 0, 0] f32(3, 3, C)
  out O[0, 0, 0]:assign f32(128, 128, C):(OUT, C, 1)
) {
  block o [y:128, x:128, c:C, r:3, s:3] (
    in I[y + r, x + s, c] f32(1, 1, 1)
    in F[r, s, c] f32(1, 1, 1)
    out O[y, x, c]:add f32(1, 1, 1)
  ) {
    $i = load(I) f32
    $f = load(F) f32
    $p = mul($i, $f) f32
    O = store($p)
  }
}"""


def test_where_memory_binds_tiles_walk_along_it() -> None:
    text = WINDOW.replace("ROW", str(130 * 64)).replace("OUT", str(128 * 64)).replace("C", "64")
    program, context = program_of(text), PassContext(target("x86_64_avx512"))
    assert Autotile(memory="L2").run(program, context) is program
    assert context.remarks[-1].message == "not tiled: no tile costs less than the block as it is"
    (tiles,) = Autotile(memory="REG").run(program, context).root.children
    walked = list(tiles.ranges)
    assert walked[-1] == "c" or "c" not in walked, "pixels lie channel by channel"


def test_where_arithmetic_binds_tiles_for_caches_are_made() -> None:
    text = TURNED.replace("M", "2048").replace("N", "2048").replace("96", "1024")
    program, context = program_of(text), PassContext(target("x86_64_avx512"))
    assert Autotile(memory="L2").run(program, context) is not program


def test_a_sum_too_long_for_any_tile_is_cut() -> None:
    long = """block main [] (
  in A[0, 0] f32(64, 20000):(20000, 1)
  in B[0, 0] f32(20000, 64):(64, 1)
  out C[0, 0]:assign f32(64, 64):(64, 1)
) {
  block c [m:64, n:64, k:20000] (
    in A[m, k] f32(1, 1)
    in B[k, n] f32(1, 1)
    out C[m, n]:add f32(1, 1)
  ) {
    $a = load(A) f32
    $b = load(B) f32
    $p = mul($a, $b) f32
    C = store($p)
  }
}"""
    program, context = program_of(long), PassContext(target("x86_64_avx512"))
    (tiles,) = Autotile(memory="L2").run(program, context).root.children
    assert tiles.ranges["k"] > 1
    assert Autotile(memory="L2", reductions=False).run(program, context) is program


TWO_SUMS = """block main [] (
  in X[0, 0, 0] f32(128, 16, 24):(384, 24, 1)
  in Y[0, 0, 0] f32(24, 16, 512):(8192, 512, 1)
  out Z[0, 0]:assign f32(128, 512):(512, 1)
) {
  block z [i:128, j:512, q:24, p:16] (
    in X[i, p, q] f32(1, 1, 1)
    in Y[q, p, j] f32(1, 1, 1)
    out Z[i, j]:add f32(1, 1)
  ) {
    $x = load(X) f32
    $y = load(Y) f32
    $p = mul($x, $y) f32
    Z = store($p)
  }
}"""


def test_sums_go_along_memory_and_copies_follow_them() -> None:
    program = program_of(TWO_SUMS)
    result = run_pipeline(program, pipeline("x86_64_avx512"), target("x86_64_avx512"))
    sums = [b for _, b in walk(result.root) if not b.children and {"p", "q"} <= b.ranges.keys()]
    assert sums
    assert all(list(b.ranges).index("p") < list(b.ranges).index("q") for b in sums), "X lies so"
    packed = [r for _, b in walk(result.root) for r in b.refinements if r.name.startswith("Y_packed")]
    new = next(r for r in packed if r.strides is not None)
    assert new.strides is not None
    dims = dict(zip(new.shape, new.strides, strict=True))
    assert dims[16] > dims[24], "the copy lies as it is read"
    inputs = random_inputs(program, np.random.default_rng(4))
    expected = np.einsum("ipq,qpj->ij", inputs["X"], inputs["Y"])
    for hw in native.runnable():
        np.testing.assert_allclose(native.run(result, inputs, hw)["Z"], expected, rtol=1e-3, atol=1e-3)


AS_IT_LIES = """
block main [] (
  in X[0, 0, 0] f32(120, 120, 120):(14400, 120, 1)
  in Y[0, 0, 0] f32(120, 120, 120):(14400, 120, 1)
  out Z[0, 0]:assign f32(120, 120):(120, 1)
) {
  block z [b:120, a:120, d:120, c:120] (
    in X[d, c, a] f32(1, 1, 1)
    in Y[c, b, d] f32(1, 1, 1)
    out Z[b, a]:add f32(1, 1)
  ) {
    $x = load(X) f32
    $y = load(Y) f32
    $p = mul($x, $y) f32
    Z = store($p)
  }
}"""


def test_vectors_that_are_read_as_they_lie_go_on_beside_where_they_were() -> None:
    """Of Y few lines are met at each step of d, and stay near; with d inside, each step of X would be on
    another page."""
    result = run_pipeline(program_of(AS_IT_LIES), pipeline("x86_64_zen4"), target("x86_64_zen4"))
    sums = [b for _, b in walk(result.root) if not b.children and {"c", "d", "a"} <= b.ranges.keys()]
    assert sums
    assert all(list(b.ranges).index("d") < list(b.ranges).index("c") for b in sums)
