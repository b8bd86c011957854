"""transpose: layouts and copies, where they pay and where a stencil needs them; native code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from benchmarks.problems import Matmul
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Stencil
from stripe.affine import Affine
from stripe.analysis.bounds import leaves
from stripe.analysis.cost_layout import layout_cycles
from stripe.analysis.stencils import matches
from stripe.diag import CompileError
from stripe.ir import Constraint, Direction, Program
from stripe.names import Names
from stripe.parser import parse
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.localize import Localize
from stripe.passes.pipeline import run_pipeline
from stripe.passes.transpose import Transpose
from stripe.passes.transpose_hoist import hoisted
from stripe.passes.transpose_measures import Measures
from stripe.passes.transpose_offers import Barred, best_offer
from stripe.passes.transpose_tree import at_path, buffer_of, layouts
from stripe.printer import to_text
from stripe.rewrite_packed import Layout, pack
from stripe.verify import findings
from stripe.visit import views_of, walk
from tests.support import native
from tests.support.executions import pipeline
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of
from tests.support.problems import lowered
from tests.support.programs import make_program
from tests.support.random_nests import random_program

GOLDEN = Path(__file__).parents[3] / "golden/passes/transpose"
AVX512 = load_named("x86_64_avx512")

CONTRACTION = """
block main [] (
  in A[0, 0] TYPE(SIZE, SIZE)
  in B[0, 0] TYPE(SIZE, SIZE)
  out C[0, 0]:assign TYPE(SIZE, SIZE)
) {
  block c [m:SIZE, n:SIZE, k:SIZE] (
    in A[m, k] TYPE(1, 1)
    in B[k, n] TYPE(1, 1)
    out C[m, n]:add TYPE(1, 1)
  ) {
    $a = load(A) TYPE
    $b = load(B) TYPE
    $c = mul($a, $b) TYPE
    C = store($c)
  }
}
"""

SHUT_OUT = """
block main [] (
  in X[0, 0, 0] f32(16, 16, 16):(BESIDE, STEP, 1)
  in Y[0, 0, 0] f32(AGAIN, 16, 16)
  out Z[0, 0, 0, 0]:assign f32(16, AGAIN, 16, 16)
) {
  block z [d:4, c:AGAIN, b:16] (
    in X[b, 0, 4*d] f32(1, 16, 4)
    in Y[c, 0, 0] f32(1, 16, 16)
    out Z[4*d, c, b, 0]:assign f32(4, 1, 1, 16)
    new T f32(4, 1, 1, 16) @REG
  ) #tiled {
    block sum [g:16, d:4, a:16] (
      in X[0, g, d] f32(1, 1, 1)
      in Y[0, g, a] f32(1, 1, 1)
      out T[d, 0, 0, a]:add f32(1, 1, 1, 1)
    ) #vector=a {
      $x = load(X) f32
      $y = load(Y) f32
      $z = mul($x, $y) f32
      T = store($z)
    }
    block copy [d:4, a:16] (
      in T[d, 0, 0, a] f32(1, 1, 1, 1)
      out Z[d, 0, 0, a]:assign f32(1, 1, 1, 1)
    ) #vector=a {
      $z = load(T) f32
      Z = store($z)
    }
  }
}
"""


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.stripe").read_text(encoding="utf-8").partition("// ---- expect")[0]


def contraction(size: int, dtype: str = "f32") -> Program:
    return program_of(CONTRACTION.replace("TYPE", dtype).replace("SIZE", str(size)))


def tiled(program: Program, hw: HwConfig = AVX512) -> Program:
    for step in (Autotile(memory="L2"), Autotile(memory="REG"), Localize(accumulators="REG")):
        program = step.run(program, PassContext(hw))
    return program


def buffers(program: Program) -> dict[str, tuple[int, ...]]:
    """Those in memory, wherever in the nest."""
    found = [r for _, b in walk(program.root) for r in b.refinements if r.direction is Direction.NEW]
    return {r.name: r.strides or () for r in found if r.location is None}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("panels", "x86_64_avx512"),
        ("between", "x86_64_avx512"),
        ("load_time", "x86_64_avx512"),
        ("relayout", "generic"),
        ("taps", "generic"),
    ],
)
def test_it_computes_the_same_and_again_changes_nothing(name: str, target: str) -> None:
    result, remarks = check_pass(program_of(golden(name)), Transpose(), load_named(target), rtol=1e-6)
    assert parse_again(result) == result
    assert [r.acted for r in remarks if r.acted] == [True]


def parse_again(program: Program) -> Program:
    return program_of(to_text(program))


def test_rows_a_power_of_two_apart_are_packed_and_others_are_not() -> None:
    far, near = tiled(contraction(1024)), tiled(contraction(96))
    result = Transpose().run(far, PassContext(AVX512))
    assert list(buffers(result)) == ["B_packed"]
    context = PassContext(AVX512)
    assert Transpose().run(near, context) is near
    (said,) = [r.message for r in context.remarks if "input" in r.message]
    assert said == "no input of it gains from another layout"


def test_both_operands_of_a_kernel_are_packed() -> None:
    """The copies stand in front of the kernel, which is found again behind them; both stay in a cache."""
    text = (
        golden("panels")
        .replace("500", "250")
        .replace("(96, ", "(384, ")
        .replace("m:12,", "m:48,")
        .replace("  in B[", "  in D[0, 0] f32(250, 200):(1024, 1)\n  in B[", 1)
    )
    text = text.replace("    in B[0, 32*n]", "    in D[0, 32*n] f32(250, 32)\n    in B[0, 32*n]")
    text = text.replace("      in B[k, n]", "      in D[k, n] f32(1, 1)\n      in B[k, n]")
    text = text.replace(
        "$c = mul($a, $b)", "$d = load(D) f32\n      $e = max($b, $d) f32\n      $c = mul($a, $e)"
    )
    result, _ = check_pass(program_of(text), Transpose(), AVX512, rtol=1e-6)
    assert list(buffers(result)) == ["D_packed", "B_packed"]


def test_copies_go_between_loops_where_what_is_inside_reads_them_again() -> None:
    """In front of one loop, and at the bottom of the loops around it, the buffer stays in a cache."""
    for loops, inside in (("n:7, m:12", True), ("m:12, n:7", False)):
        program = program_of(golden("panels").replace("m:12, n:7", loops))
        result, (remark, *_) = check_pass(program, Transpose(), AVX512, rtol=1e-6)
        assert ("between its loops" in remark.message) is inside
        assert any(r.direction is Direction.NEW for r in result.root.refinements) is not inside


def test_copies_of_inner_tiles_are_taken_out_to_a_place_between_loops_further_out() -> None:
    result = Transpose().run(tiled(contraction(1024)), PassContext(AVX512))
    (kernel,) = result.root.children
    (made,) = [r for r in kernel.refinements if r.direction is Direction.NEW]
    assert (list(kernel.ranges), made.shape[1:]) == (["n"], (1024, 64))
    assert [block.name for block in kernel.children] == ["B_pack", "c"]


@pytest.mark.parametrize(
    ("target", "columns", "copied"),
    [
        pytest.param("x86_64_zen3", 256, True, id="rows in every 16th set, and steps of 6 cycles"),
        pytest.param("x86_64_zen3", 240, False, id="rows in all sets"),
        pytest.param("x86_64_zen4", 256, False, id="steps as long as the next cache takes to answer"),
    ],
)
def test_rows_are_copied_that_the_nearest_cache_has_no_room_to_ask_for(
    target: str, columns: int, copied: bool
) -> None:
    hw = load_named(target)
    narrow = f"({columns}, 1)"
    text = to_text(contraction(256)).replace("n:256", f"n:{columns}")
    text = re.sub(r"(\n  .*[BC]\[0, 0\].*)\(256, 256\):\(256, 1\)", rf"\1(256, {columns}):{narrow}", text)
    text = re.sub(r"(\n    .*[BC]\[[km], n\].*):\(256, 1\)", rf"\1:{narrow}", text)
    result = Transpose().run(tiled(program_of(text), hw), PassContext(hw))
    made = [r.name for _, b in walk(result.root) for r in b.refinements if r.name == "B_packed"]
    assert bool(made) is copied


def test_loops_are_exchanged_where_that_spares_a_copy_larger_than_a_cache() -> None:
    """All of B is turned for both values of m. With n outermost each panel is turned once, too, and stays."""
    hw = load_named("x86_64_zen4")
    program = tiled(program_of(to_text(contraction(512)).replace("B[k, n]", "B[n, k]")), hw)
    (before,) = program.root.children
    result = Transpose().run(program, PassContext(hw))
    (kernel,) = result.root.children
    (made,) = [r for r in kernel.refinements if r.direction is Direction.NEW]
    assert (list(before.ranges), list(kernel.ranges)) == (["m", "n"], ["n"])
    assert [block.name for block in kernel.children] == ["B_pack", "c"]
    assert made.shape == (64, 512)


def test_buffers_of_copies_that_were_made_are_not_copied_again() -> None:
    program = Transpose().run(tiled(contraction(1024)), PassContext(AVX512))
    measures = Measures(AVX512, free=False)
    offer = best_offer(program, 0, measures, True, Barred(), 0.05)
    assert offer is not None
    parents = [at_path(program.root, offer.path[:depth]) for depth in range(len(offer.path))]
    buffer = buffer_of(parents, offer.view.source)
    other = best_offer(program, 0, measures, True, Barred(buffers=frozenset({buffer})), 0.05)
    assert other is None or other.path != offer.path or other.view.source != offer.view.source
    both = Barred(buffers=frozenset({"A", "B_packed"}))
    assert best_offer(program, 0, measures, True, both, 0.05) is None


def test_a_copy_out_of_a_loop_stays_within_the_buffer() -> None:
    """The tiles begin 2 in front of the buffer and end 2 behind it; what is read there are no points."""
    root = program_of(
        """
        block main [] (in A[0, 0] f32(20, 4)  out R[0, 0]:assign f32(4, 20)) {
          block tiles [n:3] (in A[8*n - 2, 0] f32(8, 4)  out R[0, 8*n - 2]:assign f32(4, 8)) {
            block b [j:8, i:4, no = 8*n] (
              j + no - 2 >= 0
              21 - j - no >= 0
              in A[j, i] f32(1, 1)  out R[i, j]:assign f32(1, 1)
            ) {
              $a = load(A) f32
              R = store($a)
            }
          }
        }
        """
    ).root
    (tiles,) = root.children
    (block,) = tiles.children
    for exact in (True, False):
        packed = pack(tiles, block, block.refinements[0], Layout((), (1, 0)), Names("AR"), exact)
        (copy,) = hoisted((root, tiles), block, "A", packed).copies
        assert copy.ranges == {"n": 3, "d1": 4, "d0": 8}
        assert [str(e) for e in copy.refinements[0].access] == ["d0 + 8*n - 2", "d1"]
        assert {str(c.expr) for c in copy.constraints} == {"d0 + 8*n - 2", "21 - d0 - 8*n"}


WINDOW = """
block main [] (in A[0, 0] f32(3, 4)  in I[0, 0] f32(6, 4)  out R[0, 0]:assign f32(6, 4)) {
  block rows [y:6] (in A[0, 0] f32(3, 4)  in I[y - 1, 0] f32(3, 4)  out R[y, 0]:assign f32(1, 4)) {
    block b [r:3, i:4, yo = y] (
      r + yo - 1 >= 0
      6 - r - yo >= 0
      in A[r, i] f32(1, 1)  in I[r, i] f32(1, 1)  out R[0, i]:add f32(1, 1)
    ) {
      $a = load(A) f32
      $i = load(I) f32
      $v = mul($a, $i) f32
      R = store($v)
    }
  }
}
"""


@pytest.mark.parametrize(("step", "loops"), [(1, {}), (2, {"y": 6})])
def test_a_loop_that_decides_which_cells_are_read_makes_no_copies(step: int, loops: dict[str, int]) -> None:
    """At the edges fewer rows of A are read; a copy for all y has each row that some y reads."""
    root = program_of(WINDOW).root
    (rows,) = root.children
    (block,) = rows.children
    packed = pack(rows, block, block.refinements[0], Layout((), (1, 0)), Names("AIR"))
    (copy,) = packed.copies
    assert any(i.name == "y" and i.passed is not None for i in copy.indexes)
    if step == 2:  # every second row is read, which takes more than bounds to say
        half = Affine.of({"y": 2, "d0": -1}, 0)
        packed = replace(packed, copies=(replace(copy, constraints=(Constraint(half), Constraint(-half))),))
    made = hoisted((root, rows), block, "A", packed)
    (copy,) = made.copies
    assert copy.ranges == {**loops, "d1": 4, "d0": 3}
    assert made.buffer.shape == (*loops.values(), 3, 4)
    assert bool(copy.constraints) == bool(loops)


def test_rows_that_no_point_reads_are_not_copied() -> None:
    root = program_of(WINDOW).root
    (rows,) = root.children
    (block,) = rows.children
    packed = pack(rows, block, block.refinements[0], Layout((), (1, 0)), Names("AIR"))
    (copy,) = packed.copies
    least, most = Affine.of({"d0": 2, "y": 1}, -4), Affine.of({"d0": 1, "y": -1}, 1)
    packed = replace(packed, copies=(replace(copy, constraints=(Constraint(least), Constraint(most))),))
    (copy,) = hoisted((root, rows), block, "A", packed).copies
    assert copy.ranges == {"d1": 4, "d0": 3}
    # A y with 4 - 2*d0 <= y <= d0 + 1 and 0 <= y <= 5: row 0 has none, the bounds alone leave others some.
    assert {str(c.expr) for c in copy.constraints} == {"d0 - 1"}


def test_what_tiles_read_as_vectors_is_not_laid_out_against_them() -> None:
    """Rows a power of two apart crowd into few sets of the cache, but a packed copy helps as well."""
    size, inner = "f32(512, 512)", "f32(1, 1)"
    text = CONTRACTION.replace("TYPE", "f32").replace("SIZE", "512")
    text = text.replace(f"  out C[0, 0]:assign {size}", f"  out C[0, 0]:assign {size}\n  new T {size}")
    text = text.replace("in B[k, n]", "in T[k, n]").replace("load(B)", "load(T)")
    make = f"block t [k:512, n:512] (in B[k, n] {inner}  out T[k, n]:assign {inner}) {{"
    text = text.replace(
        "block c [", f"{make} $b = load(B) f32\n $t = neg($b) f32\n T = store($t) }}\n block c ["
    )
    context = PassContext(AVX512)
    result = Transpose().run(tiled(program_of(text)), context)
    assert result.root.refinement("T").strides == (512, 1)
    assert context.remarks[0].message.startswith("layout of 'T' kept: under any other the vectors of tiles")
    assert any(r.acted and "packed 'T'" in r.message for r in context.remarks)


@pytest.mark.parametrize(
    ("beside", "step", "again", "packed"),
    [
        (4096, 256, 16, True),  # 256 rows on 4 of 64 sets
        (4352, 272, 16, False),  # on all sets
        (4096, 256, 1, True),  # the loop over d does, to the rest of each line
    ],
)
def test_rows_that_crowd_out_each_other_until_a_loop_comes_back(
    beside: int, step: int, again: int, packed: bool
) -> None:
    """They have place in their sets as long as one tile goes through them, and suit its lanes."""
    text = SHUT_OUT.replace("BESIDE", str(beside)).replace("STEP", str(step)).replace("AGAIN", str(again))
    result, (remark, *_) = check_pass(program_of(text), Transpose(), load_named("x86_64_amx"), rtol=1e-5)
    assert ("X_packed" in buffers(result)) == packed
    assert remark.message.startswith("packed 'X': saves " if packed else "no input of it gains from another")


def test_rows_that_crowd_out_each_other_stay_where_arithmetic_hides_that() -> None:
    """Rows of A lie 4 KiB apart; a copy that nothing crowds out saves 4 % of the cycles."""
    steps = pipeline("x86_64_amx")
    upto = max(n for n, step in enumerate(steps) if isinstance(step, Transpose))
    program = lowered(Matmul(32, 1024, 1024))
    result = run_pipeline(program, steps[: upto + 1], load_named("x86_64_amx"), verify="off")
    assert not any("pack" in block.name for _, block in walk(result.root))


WEIGHTS = """
block main [] (
  in A[0, 0] f32(18, STEPS)
  in B[0, 0] f32(512, STEPS)
  out C[0, 0]:assign f32(18, 512)
) {
  block c [m:3, n:8] (
    in A[6*m, 0] f32(6, STEPS)
    in B[64*n, 0] f32(64, STEPS)
    out C[6*m, 64*n]:assign f32(6, 64)
    new T f32(6, 64) @REG
  ) #tiled {
    block sum [k:STEPS, m:6, n:64] (
      in A[m, k] f32(1, 1)
      in B[n, k] f32(1, 1)
      out T[m, n]:add f32(1, 1)
    ) #vector=n {
      $a = load(A) f32
      $b = load(B) f32
      $c = mul($a, $b) f32
      T = store($c)
    }
    block copy [m:6, n:64] (
      in T[m, n] f32(1, 1)
      out C[m, n]:assign f32(1, 1)
    ) #vector=n {
      $c = load(T) f32
      C = store($c)
    }
  }
}
"""


def test_lines_whose_elements_crowd_out_each_other_come_again_at_each_step() -> None:
    """At each step vectors take an element of each of 64 rows of B, which lie on two sets of L1 or on all:
    only there does a line stay until all of its elements are used."""
    hw = load_named("x86_64_amx")

    def cycles(steps: int) -> float:
        root = program_of(WEIGHTS.replace("STEPS", str(steps))).root
        return layout_cycles(root.children[0], views_of(root, {}), hw, ("n", "n")) / steps

    assert cycles(512) > 1.5 * cycles(528)
    context = PassContext(hw)
    Transpose().run(program_of(WEIGHTS.replace("STEPS", "512")), context)
    assert any(r.acted and "packed 'B'" in r.message for r in context.remarks)


BETWEEN = """
block main [] (in X[0, 0] f32(64, 64)  out Y[0, 0]:assign f32(64, 64)  new T f32(64, 64)BUFFER) {
  block t [m:64, n:64] (in X[m, n] f32(1, 1)  out T[m, n]:assign f32(1, 1)) {
    $x = load(X)
    T = store($x)
  }
  block y [m:64, n:64] (in T[m, n] f32(1, 1)  out Y[n, m]:assign f32(1, 1)) USE{
    $t = load(T)
    Y = store($t)
  }
}
"""


@pytest.mark.parametrize(
    ("buffer", "use", "reason"),
    [
        (":(80, 1)", "", "its elements do not lie one behind the other"),
        (" @DRAM:4096", "", "it has an address already"),
        ("", "#stencil=mac ", "'y' is the use of a stencil, which takes it as it is"),
        (" @REG", "", None),
    ],
)
def test_the_remark_says_why_a_layout_can_not_change(buffer: str, use: str, reason: str | None) -> None:
    program = parse(BETWEEN.replace("BUFFER", buffer).replace("USE", use))
    context = PassContext(AVX512)
    Transpose().run(program, context)
    said = [r.message for r in context.remarks if r.message.startswith("layout of ")]
    assert said == ([] if reason is None else [f"layout of 'T' kept: {reason}"])


@pytest.mark.parametrize(("m", "packed"), [(48, False), (256, True)])
def test_rows_that_have_place_in_their_sets_are_read_as_they_lie(m: int, packed: bool) -> None:
    """Rows of B lie 8 KiB apart. Tiles for few results have 36 of them, no more than L2 holds in a set."""
    problem = Matmul(m, 2048, 4096)
    steps = pipeline("x86_64_zen5")
    upto = max(n for n, step in enumerate(steps) if isinstance(step, Transpose))
    program = lowered(problem)
    result = run_pipeline(program, steps[: upto + 1], load_named("x86_64_zen5"), verify="off")
    assert any("B_pack" in block.name for _, block in walk(result.root)) == packed


def test_lines_and_pages_are_weighed_where_there_are_tiles() -> None:
    for program, weighed in ((contraction(64), False), (tiled(contraction(64)), True)):
        (kernel,) = program.root.children
        views = views_of(program.root, {})
        assert Measures(AVX512, free=False).of(kernel, views).memory is weighed
        assert not Measures(AVX512, free=True).of(kernel, views).memory


def test_the_remark_holds_the_figures() -> None:
    _, remarks = check_pass(program_of(golden("panels")), Transpose(), AVX512, rtol=1e-6)
    (remark,) = [r for r in remarks if r.acted]
    assert remark.message.startswith("packed 'B' in panels along n: saves ")
    saved, copy, total = (float(str(remark.data[key])) for key in ("saved", "copy", "of"))
    assert 0 < copy < saved < total


def test_a_gain_below_the_limit_is_declined_with_the_figures() -> None:
    program = program_of(golden("panels"))
    result, remarks = check_pass(program, Transpose(least_gain=90), AVX512)
    assert result is program
    assert remarks[0].message.startswith("not packed: 'B' in panels along n: saves ")
    assert " cycles, the copy takes " in remarks[0].message


def test_const_inputs_are_copied_at_load_time_unless_told_otherwise() -> None:
    """A copy at each call has to be read by more tiles until it pays."""
    program = program_of(golden("load_time").replace("(24, ", "(192, ").replace("m:3]", "m:24]"))
    result, _ = check_pass(program, Transpose(), AVX512, rtol=1e-6)
    assert result.load is not None
    assert [r.name for r in result.inputs] == ["A", "B", "B_packed"]
    result, _ = check_pass(program, Transpose(load_time=False), AVX512, rtol=1e-6)
    assert result.load is None
    assert list(buffers(result)) == ["B_packed"]


def test_an_output_that_is_read_again_is_no_constant() -> None:
    text = golden("load_time").replace(
        "  const in B[0, 0] f32(500, 200):(1024, 1)\n", "  in X[0, 0] f32(500, 200):(200, 1)\n"
    )
    text = text.replace(
        "  out C[0, 0]:assign f32(24, 200):(200, 1)\n) {",
        """  out B[0, 0]:assign f32(500, 200):(1024, 1)
  out C[0, 0]:assign f32(24, 200):(200, 1)
) {
  block b [k:500, n:200] (
    in X[k, n] f32(1, 1):(200, 1)
    out B[k, n]:assign f32(1, 1):(1024, 1)
  ) {
    $x = load(X) f32
    $y = add($x, $x) f32
    B = store($y)
  }""",
    )
    result, _ = check_pass(program_of(text), Transpose(), AVX512, rtol=1e-6)
    assert result.load is None


def test_a_second_copy_joins_the_load_time_program() -> None:
    text = golden("load_time")
    head, _, kernel = text.partition("  block c [")
    twin = "  block c2 [" + kernel.rstrip().removesuffix("}").replace("out C[8", "out E[8")
    twin = twin.replace("out C[m, n]:add", "out E[m, n]:add").replace("C = store", "E = store")
    twin = (
        twin.replace("in B[0, 32*n]", "in W[0, 32*n]")
        .replace("in B[k, n]", "in W[k, n]")
        .replace("load(B)", "load(W)")
    )
    head = head.replace(
        "  out C[0, 0]",
        "  const in W[0, 0] f32(500, 200):(1024, 1)\n  out E[0, 0]:assign f32(24, 200)\n  out C[0, 0]",
    )
    result, _ = check_pass(
        program_of(head + "  block c [" + kernel.rstrip().removesuffix("}") + twin + "}"),
        Transpose(),
        AVX512,
        rtol=1e-6,
    )
    assert result.load is not None
    assert [r.name for r in result.load.refinements if r.direction.writes] == ["B_packed", "W_packed"]


# -- stencils -------------------------------------------------------------------------------------

DOT = Stencil(
    "dot", "CORE", "acc += x * y", {"i": "any", "j": "any", "p": 4},
    {"x": ("i", "p"), "y": ("p", "j"), "acc": ("i", "j")},
    {"x": "f32", "y": "f32", "acc": "f32"}, stride={"x": {"p": 1}, "y": {"p": 1}},
)  # fmt: skip


def with_dot() -> HwConfig:
    return changed(load_named("generic"), stencils=(DOT,))


def reach(program: Program) -> int:
    """How many indexes of the stencil the kernel that reduces has."""
    block = next(b for b in program.root.children if b.name == "c")
    (leaf,) = leaves(block, views_of(program.root, {}))
    return max(len(fit.indexes) for fit in matches(DOT, leaf).fits)


def test_the_operand_whose_stride_fails_is_copied_for_the_stencil() -> None:
    hw, program = with_dot(), contraction(24)
    assert reach(program) < 3
    result, (remark,) = check_pass(program, Transpose(stencil="dot"), hw, rtol=1e-6)
    assert buffers(result) == {"B_packed": (1, 24)}
    assert reach(result) == 3
    assert remark.message.startswith("packed 'B' in the order [1, 0]:")


def test_where_all_strides_hold_nothing_is_copied() -> None:
    program = program_of(to_text(contraction(24)).replace("in B[k, n]", "in B[n, k]"))
    result, (remark,) = check_pass(program, Transpose(stencil="dot"), with_dot())
    assert result is program
    assert remark.message == "the stencil 'dot' fits no better with a copy of an input"


def test_an_unknown_stencil_is_an_error() -> None:
    with pytest.raises(CompileError) as caught:
        Transpose(stencil="dott").check(with_dot())
    (found,) = caught.value.diagnostics
    assert (found.code, found.notes) == ("P130", ("help: did you mean 'dot'?",))


def test_uses_of_a_stencil_are_left_alone() -> None:
    text = golden("taps").replace("  ) {\n    $i", "  ) #stencil=dot {\n    $i")
    assert "#stencil" in text
    assert not buffers(Transpose().run(program_of(text), PassContext(with_dot())))


# -- native code ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["panels", "between", "load_time", "relayout", "taps"])
def test_native_code(name: str) -> None:
    program = program_of(golden(name))
    inputs = random_inputs(program, np.random.default_rng(2))
    expected = native.run(program, inputs)
    for hw in native.runnable():
        result = Transpose(least_gain=0).run(program, PassContext(hw))
        for output, value in native.run(result, inputs, hw).items():
            np.testing.assert_allclose(value, expected[output], rtol=1e-4, atol=1e-3)


def test_native_f64_with_strides_of_powers_of_two() -> None:
    hw = native.host()
    program = tiled(contraction(512, "f64"), hw)
    result = Transpose().run(program, PassContext(hw))
    assert any("packed" in r.name for _, b in walk(result.root) for r in b.refinements)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((512, 512)) for _ in "ab")
    np.testing.assert_allclose(native.run(result, {"A": a, "B": b}, hw)["C"], a @ b, rtol=1e-9, atol=1e-9)


# -- generated programs --------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_random_nests(seed: int) -> None:
    program = random_program(np.random.default_rng(seed))
    if not findings(program):
        check_pass(program, Transpose(least_gain=0), again=False)


@pytest.mark.parametrize("number", range(12))
def test_generated_programs(number: int) -> None:
    hw = load_named("generic")
    step = Autotile(memory="L1", cost="cache_lines_per_point", max_candidates=64)
    program = step.run(make_program(number), PassContext(hw))
    check_pass(program, Transpose(least_gain=0), hw, again=False, rtol=1e-4)


def test_a_buffer_inside_that_has_the_name_of_a_view_is_another_one() -> None:
    program = parse(
        """
        block main [] (in P[0, 0] f32(64, 64):(64, 1)  out C[0]:assign f32(64):(1)) {
          block t [i:4] (in P[16*i, 0] f32(16, 64)  out C[16*i]:assign f32(16)) {
            block u [j:16] (in Q = P[j, 0] f32(1, 64)  out C[j]:assign f32(1)  new P f32(1, 1):(1, 1)) {
              block s [k:64] (in Q[0, k] f32(1, 1)  out P[0, 0]:add f32(1, 1)) {
                $q = load(Q) f32
                P = store($q)
              }
              block w [] (in P[0, 0] f32(1, 1)  out C[0]:assign f32(1)) {
                $p = load(P) f32
                C = store($p)
              }
            }
          }
        }
        """
    )
    (block,) = program.root.children
    found = layouts(program.root, block, block.refinement("P"), views_of(program.root, {}))
    assert {len(layout.order) for layout in found} == {2}
