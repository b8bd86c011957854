"""autotile where points go to units that have each an instance of the memory, and what the cost model knows
of copies that these share."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.cost_explicit import ExplicitRoofline
from stripe.analysis.cost_places import copy_rate
from stripe.analysis.cost_problem import Problem
from stripe.diag import CompileError
from stripe.ir import Block, Program
from stripe.passes.autotile import Autotile
from stripe.passes.autotile_chosen import Tiling
from stripe.passes.autotile_explicit import dealt_out
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.printer import to_text
from stripe.visit import views_of, walk
from tests.support.passes import check_pass, program_of

CORES = load_named("many_core")
STEP = Autotile(memory="SRAM", inflight=2)


def simulated(text: str, **shapes: str) -> Any:
    return stripec.simulate(text, shapes=shapes, target="many_core", counts="simulated")


def head(block: Block) -> str:
    """The first line of a block's text."""
    text = to_text(Program(Block("main", statements=(block,))))
    return text.splitlines()[1].strip().removesuffix(" (")


def dealt(body: str = "block c [m:8, n:12, k:16]", location: str = "@CORE[2*m + n]") -> Program:
    """A product in eight parts, each on a core of its own."""
    return program_of(
        f"""
        block main [] (in A[0, 0] f32(32, 16)  in B[0, 0] f32(16, 24)  out C[0, 0]:assign f32(32, 24)) {{
          block c [m:4, n:2] {location} (
            in A[8*m, 0] f32(8, 16)  in B[0, 12*n] f32(16, 12)  out C[8*m, 12*n]:add f32(8, 12)
          ) {{
            {body} (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)) {{
              $a = load(A) f32
              $b = load(B) f32
              $p = mul($a, $b) f32
              C = store($p)
            }}
          }}
        }}
        """
    )


def test_what_goes_to_units_stays_side_by_side() -> None:
    tiled, _ = check_pass(dealt(), STEP, CORES)
    (parts,) = tiled.root.children
    assert head(parts) == "block c [m:4, n:2] @CORE[2*m + n]"
    assert not parts.has_tag("tiled") and parts.children[0].has_tag("tiled")
    assert [b.location for _, b in walk(tiled.root) if b.location is not None] == [parts.location]


def test_a_memory_that_units_share_has_tiles_around_them() -> None:
    shared = Autotile(memory="SHARED", inflight=2)
    tiled, _ = check_pass(dealt(), shared, CORES)
    (tile,) = tiled.root.children
    assert tile.has_tag("tiled") and tile.location is None and tile.children[0].location is not None


def test_the_part_of_a_block_that_names_one_of_the_units_in_a_loop_around() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] f32(4, 64)  out R[0, 0]:assign f32(4, 64)) {
          block o [u:4] (in A[u, 0] f32(1, 64)  out R[u, 0]:assign f32(1, 64)) {
            block r [x:64, v = u] @CORE[v] (in A[0, x] f32(1, 1)  out R[0, x]:assign f32(1, 1)) {
              $a = load(A) f32
              $r = max($a, $a) f32
              R = store($r)
            }
          }
        }
        """
    )
    inner = program.root.children[0].children[0]
    assert head(dealt_out(inner)) == "block r [v = u] @CORE[v]"


def test_a_unit_index_of_one_point() -> None:
    program = dealt("block c [m:8, n:12, k:16]", "@CORE[m + n]")
    (parts,) = program.root.children
    one = replace(parts, indexes=(parts.indexes[0], replace(parts.indexes[1], range=1)))
    leaf = replace(one, statements=(one.statements[0], one.statements[0]))
    assert head(dealt_out(leaf)) == "block c [m:4] @CORE[m]"
    assert dealt_out(one) is one  # each of its points is one block


def test_choices_are_for_what_one_unit_executes() -> None:
    tiling = Tiling({"m": 2, "n": 12, "k": 16})
    at_part = PassContext(CORES, given=Given({"main/c/c": tiling}))
    tiled = STEP.run(dealt(), at_part)
    assert tiled.root.children[0].children[0].ranges == {"m": 4} and at_part.taken == {"main/c/c"}
    around = PassContext(CORES, given=Given({"main/c": Tiling({"m": 1, "n": 1})}))
    with pytest.raises(CompileError, match="units that have SRAM each for itself") as failed:
        STEP.run(dealt(), around)
    assert "help: give it for 'main/c/c', which each of them executes" in failed.value.diagnostics[0].notes


# ------------------------------------------------------------------------------------ costs


def test_units_share_what_the_memory_behind_delivers() -> None:
    sram = CORES.memory("SRAM")
    assert sram is not None
    # Nothing is tiled for SHARED: copies come from DRAM, 16 bytes a cycle for all.
    assert copy_rate(sram, CORES, frozenset(), 1) == (50.0, 16.0)
    assert copy_rate(sram, CORES, frozenset(), 16) == (50.0, 1.0)
    # From SHARED, 16 banks deliver 32 bytes each: a DMA engine is slower.
    assert copy_rate(sram, CORES, {"SHARED"}, 16) == (50.0, 16.0)
    assert copy_rate(sram, CORES, {"SHARED"}, 64) == (50.0, 8.0)


def evaluated(program: Program, sizes: dict[str, int], hw: HwConfig, **more: Any) -> float:
    memory = hw.memory("SRAM")
    assert memory is not None
    problem = Problem(program.root.children[0], views_of(program.root, {}), hw, memory, inflight=2, **more)
    model = ExplicitRoofline(problem)
    return float(model.evaluate(sizes, model.order).cost) * model._points


def rows(second: str) -> Program:
    """The largest of each row, and the row without it."""
    return program_of(
        f"""
        block main [] (in X[0, 0] f32(64, 64)  out R[0, 0]:assign f32(64, 64)) {{
          block r [m:64] (in X[m, 0] f32(1, 64)  out R[m, 0]:assign f32(1, 64)  new M f32(1)) {{
            block g [c:64] (in X[0, c] f32(1, 1)  out M[0]:max f32(1)) {{ $x = load(X) f32
              M = store($x) }}
            block d [c:64] (in X[0, {second}] f32(1, 1)  in M[0] f32(1)  out R[0, c]:assign f32(1, 1)) {{
              $x = load(X) f32
              $g = load(M) f32
              $d = sub($x, $g) f32
              R = store($d) }}
          }}
        }}
        """
    )


def test_what_a_tile_reads_twice_comes_once() -> None:
    """Unless a loop of one of the statements goes through it."""
    copy = 50 + 16 * 64 * 4 / 16
    whole = {"m": 16, "g.c": 64, "d.c": 64}
    arithmetic = 64 * 8 + 64 * 8 * 2  # vectors of 8, the second statement with two loads
    # Four tiles: X in and R out, the first and the last of them with nothing beside, nor a tile's arithmetic.
    hidden, beside = 6 * copy, arithmetic * 3 / 4
    once = 2 * copy + arithmetic / 4 + max(hidden, beside) + 0.2 * min(hidden, beside)
    assert evaluated(rows("c"), whole, CORES) == pytest.approx(once)
    # Parts of its rows, in a loop of its own: the second statement brings X in by itself.
    halves = {**whole, "g.c": 32}
    assert evaluated(rows("c"), halves, CORES) > evaluated(rows("c"), whole, CORES) + 4 * 50 + 3 * copy


@pytest.mark.parametrize(
    ("text", "shapes", "off"),
    [
        (
            "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
            {"A": "f32[128,128]", "B": "f32[128,128]"}, 0.15,
        ),
        (
            "function (I[H, W, C], K[R, S, C, F]) -> (O) {"
            " O[y, x, f : H, W, F] = +(I[y + r - 1, x + s - 1, c] * K[r, s, c, f]); }",
            {"I": "i8[28,28,32]", "K": "i8[3,3,32,64]"}, 0.1,  # it does not know of the padding
        ),
        (
            "function (I[H, W, C], K[C, F]) -> (O) { O[y, x, f : H, W, F] = +(I[y, x, c] * K[c, f]); }",
            {"I": "i8[28,28,128]", "K": "i8[128,64]"}, 0.05,
        ),
        ("function (A[N], B[N]) -> (C) { C = A + B; }", {"A": "f32[65536]", "B": "f32[65536]"}, 0.05),
        ("function (A[M, N]) -> (S) { S[m : M] = +(A[m, n]); }", {"A": "f32[512,512]"}, 0.05),
    ],
    ids=["product", "window", "pointwise", "elements", "rows"],
)  # fmt: skip
def test_all_units_work_at_once_as_long_as_expected(text: str, shapes: dict[str, str], off: float) -> None:
    found = simulated(text, **shapes)
    cores = [u for u in found.units if u.unit == "CORE"]
    assert len(cores) == 16 and max(u.busy for u in cores) < 1.01 * min(u.busy for u in cores)
    kernel = stripec.compile(text, shapes, "many_core")
    (tiled,) = [r for r in kernel.remarks if r.pass_name == "autotile" and r.acted]
    chosen: Any = tiled.data["chosen"]
    dealt_to = next(p for spec, p in kernel.stages if spec == "partition{unit=CORE}")
    leaf = [b for _, b in walk(dealt_to.root)][-1]
    assert chosen["cost"] * prod(leaf.ranges.values()) == pytest.approx(float(found.cycles), rel=off)


def test_a_sum_of_everything_takes_all_units() -> None:
    found = simulated("function (A[M, N]) -> (S) { S[] = +(A[m, n]); }", A="f32[256,256]")
    assert sum(u.busy > 0 for u in found.units if u.unit == "CORE") == 16
    assert found.cycles < 1.05 * 256 * 256 * 4 / 16  # what DRAM takes to deliver the elements
