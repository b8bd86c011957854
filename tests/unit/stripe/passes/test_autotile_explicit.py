"""autotile for programmer-managed memories, and accumulators in them: nests, stencils, levels, limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory, Stencil, Unit
from stripe.analysis.cost_explicit import ExplicitRoofline
from stripe.analysis.cost_problem import Problem
from stripe.analysis.search import Candidate, Found
from stripe.diag import CompileError, Remark
from stripe.ir import Block, Direction, Program
from stripe.passes.autotile import Autotile
from stripe.passes.autotile_explicit import claimed_bytes, smallest
from stripe.passes.base import PassContext
from stripe.passes.localize import Localize
from stripe.passes.partition import Partition
from stripe.passes.transfer import Transfer
from stripe.visit import views_of, walk
from tests.support.passes import check_pass, program_of
from tests.support.programs import corpus, make_program


def machine(pad: int = 1 << 18, accumulators: int = 1 << 16) -> HwConfig:
    """A machine with an array for products of 16 x 16 x 16, a vector unit and a unit that copies."""
    array = Stencil(
        "mac", "ARRAY", "acc += x * y", dict.fromkeys("ijp", 16),
        {"x": ("i", "p"), "y": ("p", "j"), "acc": ("i", "j")}, dict.fromkeys(("x", "y", "acc"), "f32"),
        cycles="i", startup_cycles=16,
    )  # fmt: skip
    return HwConfig(
        "npu", "for tests", "simulator",
        memories=(
            Memory("ACC", "explicit", bytes=accumulators, backing="DRAM"),
            Memory("PAD", "explicit", bytes=pad, backing="DRAM"),
            Memory("DRAM", "explicit", bytes_per_cycle=16.0),
        ),
        units=(
            Unit("ARRAY", operations=(), reaches=("PAD", "ACC")),
            Unit("VPU", vector_bytes=64, reaches=("PAD", "ACC")),
            Unit(
                "DMA", "transfer", bytes_per_cycle=16.0, startup_cycles=64.0, reaches=("DRAM", "PAD", "ACC")
            ),
        ),
        stencils=(array,),
    )  # fmt: skip


def nest(m: int, n: int, k: int) -> Program:
    """A product cut for the array, a bias and a rectifier, fused: sizes in tiles of 16."""
    return program_of(
        f"""
        block main [] (in A[0, 0] f32({16 * m}, {16 * k})  in B[0, 0] f32({16 * k}, {16 * n})
                       in D[0] f32({16 * n})  out R[0, 0]:assign f32({16 * m}, {16 * n})) {{
          block r [mo:{m}, no:{n}] (
            in A[16*mo, 0] f32(16, {16 * k})  in B[0, 16*no] f32({16 * k}, 16)  in D[16*no] f32(16)
            out R[16*mo, 16*no]:assign f32(16, 16)  new C f32(16, 16)  new S f32(16, 16)
          ) {{
            block c [ko:{k}] (
              in A[0, 16*ko] f32(16, 16)  in B[16*ko, 0] f32(16, 16)  out C[0, 0]:add f32(16, 16)
            ) {{
              block c [i:16, j:16, p:16] (
                in A[i, p] f32(1, 1)  in B[p, j] f32(1, 1)  out C[i, j]:add f32(1, 1)
              ) #stencil=mac {{
                $a = load(A) f32
                $b = load(B) f32
                $c = mul($a, $b) f32
                C = store($c)
              }}
            }}
            block s [i:16, j:16] (in C[i, j] f32(1, 1)  in D[j] f32(1)  out S[i, j]:assign f32(1, 1)) {{
              $c = load(C) f32
              $d = load(D) f32
              $s = add($c, $d) f32
              S = store($s)
            }}
            block r [i:16, j:16] (in S[i, j] f32(1, 1)  out R[i, j]:assign f32(1, 1)) {{
              $s = load(S) f32
              $z = constant(0.0) f32
              $r = max($s, $z) f32
              R = store($r)
            }}
          }}
        }}
        """
    )


def contraction(m: int, n: int, k: int) -> Program:
    return program_of(
        f"""
        block main [] (
          in A[0, 0] f32({m}, {k})  in B[0, 0] f32({k}, {n})  out R[0, 0]:assign f32({m}, {n})
        ) {{
          block r [m:{m}, n:{n}, k:{k}] (
            in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out R[m, n]:add f32(1, 1)
          ) {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            R = store($c)
          }}
        }}
        """
    )


ROWS = """
    block main [] (in X[0, 0] f32(40, 300)  out R[0, 0]:assign f32(40, 300)) {
      block r [m:40] (
        in X[m, 0] f32(1, 300)  out R[m, 0]:assign f32(1, 300)  new M f32(1)  new E f32(1, 300)
      ) {
        block max [n:300] (in X[0, n] f32(1, 1)  out M[0]:max f32(1)) { $x = load(X)  M = store($x) }
        block e [n:300] (in X[0, n] f32(1, 1)  in M[0] f32(1)  out E[0, n]:assign f32(1, 1)) {
          $x = load(X) f32  $m = load(M) f32  $e = sub($x, $m) f32  E = store($e) }
        block r [n:300] (in E[0, n] f32(1, 1)  out R[0, n]:assign f32(1, 1)) {
          $e = load(E) f32  $r = exp($e) f32  R = store($r) }
      }
    }
"""


def run(program: Program, step: Autotile, hw: HwConfig, rtol: float = 1e-5) -> tuple[Program, list[Remark]]:
    return check_pass(program, step, hw, rtol=rtol)


def chosen(remarks: list[Remark]) -> dict[str, int]:
    (remark,) = [r for r in remarks if r.acted]
    data: Any = remark.data["chosen"]
    return dict(data["sizes"])


def tiles(program: Program) -> list[tuple[str, dict[str, int]]]:
    """The tile loops of the kernels: path and ranges."""
    return [("/".join(path[1:]), b.ranges) for path, b in walk(program.root) if b.has_tag("tiled")]


def error_of(program: Program, step: Autotile, hw: HwConfig) -> Any:
    with pytest.raises(CompileError) as raised:
        step.run(program, PassContext(hw))
    (diagnostic,) = raised.value.diagnostics
    return diagnostic


# ------------------------------------------------------------------------------------- nests


def test_a_nest_gets_a_tile_of_every_statement_and_a_loop_over_its_reduction() -> None:
    step = Autotile(memory="PAD", accumulators="ACC", inflight=2, tile=(("mo", 1), ("no", 3), ("c.ko", 2)))
    program, _ = run(nest(4, 6, 8), step, machine(40000, 8000))
    around = program.root.children[0]
    (outer,) = around.children
    # The bias D depends on no alone: its copy stays while the tiles along mo run.
    assert tiles(program) == [("r", {"no": 2}), ("r/r", {"mo": 4}), ("r/r/c", {"ko": 4})]
    assert [str(t) for t in outer.tags] == ["#tiled", "#fits=PAD"]
    reduction, bias, rectifier = outer.children
    assert outer.refinement("C").shape == (3, 16, 16)
    assert [s.has_tag("tiled") for s in outer.children] == [True, False, False]
    (inner,) = reduction.children
    (use,) = inner.children
    assert inner.ranges == {"no": 3, "ko": 2} and use.ranges == {"i": 16, "j": 16, "p": 16}
    assert use.tag_values("stencil") == ("mac",)
    assert bias.ranges == rectifier.ranges == {"no": 3, "i": 16, "j": 16}


def test_a_kernel_that_fits_gets_one_tile() -> None:
    program, (remark,) = run(nest(2, 2, 2), Autotile(memory="PAD"), machine())
    assert tiles(program) == [("r", {})]
    assert remark.acted and remark.data["excluded"] == 0


def test_kernels_that_are_tiled_already_are_left_alone() -> None:
    step = Autotile(memory="PAD", only="kernels")
    tiled, _ = run(nest(1, 1, 1), step, machine())
    again, remarks = run(tiled, step, machine())
    assert again is tiled
    assert [r.message for r in remarks] == ["not tiled: it is cut into the best tiles already"]


def test_a_block_without_index_gets_a_tile_too() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(1)  out R[0]:assign f32(1)) {
          block r [] (in A[0] f32(1)  out R[0]:assign f32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    tiled, (remark,) = run(program, Autotile(memory="PAD"), machine())
    assert tiles(tiled) == [("r", {})] and remark.message.startswith("tiled in one tile")


def test_elementwise_rows_stay_whole_where_a_statement_needs_all_of_the_one_before() -> None:
    program, remarks = run(program_of(ROWS), Autotile(memory="PAD"), machine(10000))
    assert "m" in chosen(remarks)
    outer = program.root.children[0]
    assert outer.refinement("E").shape[-1] == 300


def test_statements_get_loops_over_their_own_indexes_where_reductions_are_not_enough() -> None:
    # A row of E has 1200 bytes; X and R only fit beside it in parts.
    program, remarks = run(program_of(ROWS), Autotile(memory="PAD"), machine(2000))
    sizes = chosen(remarks)
    assert sizes["m"] == 1 and sizes["max.n"] < 300 and sizes["r.n"] < 300
    assert ("r/r", {"n": -(-300 // sizes["r.n"])}) in tiles(program)


def test_statements_of_a_nest_that_does_not_fit_are_tiled_one_by_one() -> None:
    program, remarks = run(program_of(ROWS), Autotile(memory="PAD"), machine(1000))
    assert not remarks[0].acted and "no tile of all its statements fits in PAD" in remarks[0].message
    assert [path for path, _ in tiles(program)] == ["r/max", "r/max/max", "r/e", "r/r"]


@pytest.mark.parametrize("inflight", [1, 2])
@pytest.mark.parametrize("shape", [(40, 70, 90), (33, 8, 129), (16, 16, 16)])
def test_what_a_tile_holds_fits(shape: tuple[int, int, int], inflight: int) -> None:
    hw = machine(6000, 2000)
    step = Autotile(memory="PAD", accumulators="ACC", inflight=inflight)
    program, (remark,) = run(contraction(*shape), step, hw)
    outer = program.root.children[0]
    loop = outer.children[0]
    inner = loop.children[0] if loop.has_tag("tiled") else loop
    around = outer.ranges | (loop.ranges if loop.has_tag("tiled") else {})

    def tile_bytes(name: str, tile: Block, indexes: Iterable[str]) -> int:
        shapes = [r.shape for r in tile.refinements if r.name == name]
        several = any(around[n] > 1 for n in indexes)
        return prod(shapes[0]) * 4 * (inflight if several else 1)

    level = loop if inner is not loop else outer
    near = tile_bytes("A", level, around) + tile_bytes("B", level, around)
    result = tile_bytes("R", outer, outer.ranges)
    assert near <= 6000 and result <= 2000
    data: Any = remark.data["chosen"]
    assert data["needed"] == near


def test_the_tiles_of_a_nest_are_counted_whole() -> None:
    # All of A, B, D and R, and the buffers C and S.
    data: Any = run(nest(4, 6, 8), Autotile(memory="PAD"), machine())[1][0].data
    assert data["chosen"]["needed"] == 4 * (64 * 128 + 128 * 96 + 96 + 3 * 64 * 96)


def test_a_special_keeps_its_operands_whole() -> None:
    text = """
        block main [] (in A[0, 0] f32(24, 50)  in P[0] i32(10)  out R[0, 0]:assign f32(24, 10)) {
          block g [m:24] (in A[m, 0] f32(1, 50)  in P[0] i32(10)  out R[m, 0]:assign f32(1, 10)) {
            special gather(in A, in P, out R:assign) {axis=1}
          }
        }
    """
    _, remarks = run(program_of(text), Autotile(memory="PAD"), machine(1000))
    sizes = chosen(remarks)
    assert 4 * (sizes["m"] * 60 + 10) <= 1000
    found = error_of(program_of(text), Autotile(memory="PAD"), machine(270))
    assert found.code == "P110" and "the smallest needs 280 bytes of PAD" in found.message
    assert any("special" in note for note in found.notes)
    # Twice 280 do not fit; P, which all tiles share, may be there once.
    assert chosen(run(program_of(text), Autotile(memory="PAD", inflight=2), machine(540))[1]) == {"m": 1}
    found = error_of(program_of(text), Autotile(memory="PAD", inflight=2), machine(519))
    assert found.code == "P110" and "the smallest needs 520 bytes of PAD" in found.message


# ----------------------------------------------------------------------------------- errors


def test_a_memory_too_small_for_one_tile_is_an_error() -> None:
    found = error_of(nest(4, 6, 8), Autotile(memory="PAD"), machine(3000))
    assert found.code == "P110"
    # The nest needs more; of its statements the first: A, B and C of one use of the array.
    assert found.message == (
        "autotile: no tile of 'main/r/c' fits: the smallest needs 3072 bytes of PAD, of which "
        "there are 3000: 72 too many"
    )
    assert any(n.startswith("note: what a stencil takes in one use is never split") for n in found.notes)


def test_where_no_index_has_a_name_that_may_be_tiled_the_error_says_so() -> None:
    found = error_of(contraction(40, 70, 90), Autotile(memory="PAD", indices=("z", "y")), machine(3000))
    assert found.code == "P110" and "note: no index that may be tiled is among 'indices': z, y" in found.notes


def test_where_sums_stay_whole_the_error_names_them() -> None:
    found = error_of(contraction(40, 70, 900), Autotile(memory="PAD", reductions=False), machine(3000))
    assert "note: reductions (k of 900 points) are not split: the option 'reductions' says so" in found.notes


def test_a_special_further_in_is_named_as_well() -> None:
    text = """
        block main [] (in A[0, 0] f32(24, 50)  in P[0] i32(10)  out R[0, 0]:assign f32(24, 10)) {
          block r [m:24] (in A[m, 0] f32(1, 50)  in P[0] i32(10)  out R[m, 0]:assign f32(1, 10)) {
            block g [] (in A[0, 0] f32(1, 50)  in P[0] i32(10)  out R[0, 0]:assign f32(1, 10)) {
              special gather(in A, in P, out R:assign) {axis=1}
            }
          }
        }
    """
    found = error_of(program_of(text), Autotile(memory="PAD"), machine(270))
    assert "note: a special works on whole operands" in found.notes


def test_buffers_around_count_where_they_lie_in_the_memory_or_may() -> None:
    text = """
        block main [] (in X[0] f32(4)  out R[0]:assign f32(4)
                       new A f32(3) @PAD  new B f32(5) @ACC  new C f32(6)) {
          block r [x:4] (in X[x] f32(1)  out R[x]:assign f32(1)) { $x = load(X)  R = store($x) } }
    """
    pad = machine().memory("PAD")
    assert pad is not None
    assert claimed_bytes(program_of(text).root, pad) == 4 * (3 + 6)


def test_accumulators_that_do_not_fit_are_an_error() -> None:
    found = error_of(nest(4, 6, 8), Autotile(memory="PAD", accumulators="ACC"), machine(1 << 16, 1000))
    assert "the smallest needs 1024 bytes of ACC, of which there are 1000: 24 too many" in found.message


@pytest.mark.parametrize("option", ["limits", "accumulators"])
def test_names_that_do_not_exist(option: str) -> None:
    step = Autotile(limits=("PADS",)) if option == "limits" else Autotile(accumulators="PADS")
    with pytest.raises(CompileError) as raised:
        step.check(machine())
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.notes) == ("P102", ("help: did you mean 'PAD'?",))


# ------------------------------------------------------------------- what each option does


def test_limits_name_further_memories() -> None:
    hw, program = machine(30000, 5000), contraction(60, 60, 60)
    wide = chosen(run(program, Autotile(memory="PAD"), hw)[1])
    narrow = chosen(run(program, Autotile(memory="PAD", limits=("ACC",)), hw)[1])
    assert held(narrow) <= 5000 < held(wide)


@pytest.mark.parametrize("step", [Autotile(memory="REG"), Autotile(memory="L2", reductions=True)])
def test_limits_hold_for_other_kinds_of_memory(step: Autotile) -> None:
    hw, program = load_named("x86_64_avx512"), contraction(600, 2048, 256)
    wide, narrow = PassContext(hw), PassContext(hw)
    step.run(program, wide)
    replace(step, limits=("L1",)).run(program, narrow)
    whole = {"k": 256}
    assert held(whole | chosen(narrow.remarks)) <= 32768 < held(whole | chosen(wide.remarks))


def held(sizes: dict[str, int]) -> int:
    """Bytes of one tile of A, B and R."""
    m, n, k = (sizes[name] for name in "mnk")
    return 4 * (m * k + k * n + m * n)


def test_accumulators_leave_room_for_more() -> None:
    hw = machine(20000, 1 << 16)
    without = chosen(run(contraction(64, 64, 64), Autotile(memory="PAD"), hw)[1])
    apart = chosen(run(contraction(64, 64, 64), Autotile(memory="PAD", accumulators="ACC"), hw)[1])
    assert prod(apart.values()) > prod(without.values())
    same = Autotile(memory="PAD", accumulators="PAD")
    data: Any = run(contraction(64, 64, 64), same, hw)[1][0].data
    assert data["chosen"]["needed"] <= 20000


def test_tiles_in_flight_are_counted() -> None:
    hw = machine(20000)
    alone, double = (run(contraction(64, 64, 64), Autotile(memory="PAD", inflight=n), hw)[1] for n in (1, 2))
    assert prod(chosen(double).values()) < prod(chosen(alone).values())


@pytest.mark.parametrize(("reductions", "loops"), [(None, True), (True, True), (False, False)])
def test_reductions_are_split_or_not(reductions: bool | None, loops: bool) -> None:
    step = Autotile(memory="PAD", reductions=reductions)
    program, remarks = run(contraction(16, 16, 400), step, machine(9000))
    assert ("k" in chosen(remarks)) is loops
    assert any("k" in ranges for _, ranges in tiles(program)) is loops


def test_reductions_stay_whole_where_nothing_computes() -> None:
    hw = machine(9000)
    units = tuple(u for u in hw.units if u.kind == "transfer")
    far = replace_units(hw, (*units, Unit("CPU", reaches=("DRAM",))))
    assert "k" not in chosen(run(contraction(16, 16, 100), Autotile(memory="PAD"), far)[1])
    found = error_of(contraction(16, 16, 2000), Autotile(memory="PAD"), far)
    assert any("are not split: no unit that computes reaches PAD" in note for note in found.notes)


def replace_units(hw: HwConfig, units: tuple[Unit, ...]) -> HwConfig:
    return HwConfig(hw.name, hw.description, hw.executor, hw.memories, units, hw.stencils)


@pytest.mark.parametrize("name", ["no", "ko", "c.ko"])
def test_indices_name_those_of_the_nest_and_of_its_statements(name: str) -> None:
    step = Autotile(memory="PAD", indices=(name,))
    data: Any = run(nest(2, 3, 40), step, machine(200000))[1][0].data
    assert list(data["chosen"]["sizes"]) == [name if name == "no" else "c.ko"]


@pytest.mark.parametrize(("rule", "allowed"), [("divisors", {1, 2, 3, 6}), ("powers_of_two", {1, 2, 4, 6})])
def test_sizes_follow_the_rule(rule: Any, allowed: set[int]) -> None:
    data: Any = run(nest(4, 6, 8), Autotile(memory="PAD", sizes=rule), machine(40000))[1][0].data
    assert {row["sizes"]["no"] for row in data["candidates"]} <= allowed


# ------------------------------------------------------------------------------------ costs


def cost(program: Program, hw: HwConfig, sizes: dict[str, int], **more: Any) -> float:
    memory = hw.memory("PAD")
    assert memory is not None
    problem = Problem(program.root.children[0], views_of(program.root, {}), hw, memory, **more)
    model = ExplicitRoofline(problem)
    return float(model.evaluate(sizes, model.order).cost)


def test_what_is_aggregated_stays_until_it_is_complete() -> None:
    """As `transfer` has it: nothing brings partial results back, with accumulators or without."""
    program, hw = contraction(32, 32, 32), machine()
    points = 32**3
    whole = {"m": 32, "n": 32, "k": 32}
    halves = {**whole, "k": 16}
    # Two tiles: each of the two halves of A and B has a startup; R goes out once.
    for kept in ({}, {"accumulators": hw.memories[0]}):
        extra = (cost(program, hw, halves, **kept) - cost(program, hw, whole, **kept)) * points
        assert extra == pytest.approx(2 * 64.0)
    context = PassContext(hw)
    split = Autotile(memory="PAD").run(contraction(128, 128, 512), context)
    moved = {b.name: "/".join(path) for path, b in walk(Transfer(memory="PAD").run(split, context).root)}
    assert moved["A_load"].count("/") > moved["R_store"].count("/") and "R_load" not in moved


def test_tiles_of_a_nest_that_add_to_one_result_take_it_out_once() -> None:
    """Row sums and column sums of one matrix: tiles along m add to Q, which is as large as all of these."""
    program, hw = (
        program_of(
            """
        block main [] (in A[0, 0] f32(64, 32)  out P[0]:assign f32(64)  out Q[0]:assign f32(32)) {
          block s [m:64, n:32] (in A[m, n] f32(1, 1)  out P[m]:add f32(1)  out Q[n]:add f32(1)) {
            $a = load(A) f32
            P = store($a)
            Q = store($a)
          }
        }
        """
        ),
        machine(),
    )
    extra = cost(program, hw, {"m": 32, "n": 32}) - cost(program, hw, {"m": 64, "n": 32})
    assert extra * 64 * 32 == pytest.approx(2 * 64.0)  # to begin the copies of another part of A and of P


def test_old_contents_are_brought_in() -> None:
    program, hw = contraction(32, 32, 32), machine()
    block = program.root.children[0]
    refinements = tuple(
        replace(r, direction=Direction.INOUT) if r.direction is Direction.OUT else r
        for r in block.refinements
    )
    folded = replace(
        program, root=replace(program.root, statements=(replace(block, refinements=refinements),))
    )
    sizes = {"m": 32, "n": 32, "k": 32}
    extra = (cost(folded, hw, sizes) - cost(program, hw, sizes)) * 32**3
    assert extra == pytest.approx(64 + 32 * 32 * 4 / 16)


def test_of_parts_dealt_out_to_units_only_the_tiles_are_told() -> None:
    """The points of the block around a part run on units of their own: it gets no tiles."""
    hw = load_named("many_core")
    dealt = Partition(unit="CORE").run(contraction(512, 512, 512), PassContext(hw))
    context = PassContext(hw)
    Autotile(memory="SRAM", inflight=2).run(dealt, context)
    assert [(r.block, r.acted) for r in context.remarks] == [("main/r/r", True)]


def test_uses_of_a_stencil_cost_its_cycles() -> None:
    hw = machine()
    sizes = {"mo": 4, "no": 6, "c.ko": 8}
    copies = 4 * 64 + 4 * (64 * 128 + 128 * 96 + 96 + 64 * 96) / 16
    array = 4 * 6 * 8 * (16 + 16)
    vectors = (2 + 1) * (64 * 96 / 16)  # loads: of a sum and the bias, then of what they give
    assert cost(nest(4, 6, 8), hw, sizes) * 64 * 96 * 128 == pytest.approx(copies + array + vectors)
    # The bias comes while the array works; nothing hides that its inputs come in and the results go out.
    beside = 64 + 4 * 96 / 16
    overlapped = cost(nest(4, 6, 8), hw, sizes, inflight=2) * 64 * 96 * 128
    assert overlapped == pytest.approx(copies - beside + array + vectors + 0.2 * beside)


@pytest.mark.parametrize(
    ("sizes", "first", "last"),
    [
        ({"m": 40, "n": 35, "k": 90}, 1, 1),  # a row of tiles
        ({"m": 20, "n": 35, "k": 90}, 1, 1),
        ({"m": 40, "n": 35, "k": 45}, 2, 2),  # and for each a loop over the sum
        ({"m": 20, "n": 35, "k": 30}, 4, 4),
    ],
)
def test_nothing_hides_the_first_copies_in_and_the_last_ones_out(
    sizes: dict[str, int], first: int, last: int
) -> None:
    program, hw, points = contraction(40, 70, 90), machine(), 40 * 70 * 90
    kept = {"accumulators": hw.memories[0]}
    tiles = prod(-(-size // sizes[n]) for n, size in {"m": 40, "n": 70, "k": 90}.items())
    moved = 64 + 4 * sizes["m"] * sizes["n"] / 16  # a result
    inputs = 128 + 4 * (sizes["m"] + sizes["n"]) * sizes["k"] / 16
    if sizes["m"] == 40 and sizes["k"] == 90:  # what no tile changes comes in before all of them
        ahead, inputs = 64 + 4 * 40 * 90 / 16, 64 + 4 * 90 * 35 / 16
    else:
        ahead = 0.0
    copies = tiles * inputs + moved * tiles // -(-90 // sizes["k"])
    exposed = first * inputs + last * moved
    alone = cost(program, hw, sizes, **kept) * points - copies - ahead
    rest = sorted([alone, copies - exposed])
    overlapped = cost(program, hw, sizes, inflight=2, **kept) * points
    assert overlapped == pytest.approx(ahead + exposed + rest[1] + 0.2 * rest[0])


# ----------------------------------------------------------------------------------- levels


def three_levels() -> HwConfig:
    return HwConfig(
        "three", "for tests", "simulator",
        memories=(
            Memory("REG", "registers", bytes=2048, line_bytes=64, backing="SRAM"),
            Memory("SRAM", "explicit", bytes=4096, backing="SHARED", bytes_per_cycle=64.0),
            Memory("SHARED", "explicit", bytes=65536, backing="DRAM", bytes_per_cycle=32.0),
            Memory("DRAM", "explicit", bytes_per_cycle=8.0),
        ),
        units=(
            Unit("CORE", vector_bytes=64, registers=32, reaches=("REG", "SRAM")),
            Unit("FAR", "transfer", bytes_per_cycle=8.0, startup_cycles=100.0, reaches=("DRAM", "SHARED")),
            Unit("NEAR", "transfer", bytes_per_cycle=32.0, startup_cycles=10.0, reaches=("SHARED", "SRAM")),
        ),
    )  # fmt: skip


def test_steps_for_three_memories_nest() -> None:
    hw = three_levels()
    program = contraction(100, 200, 150)
    for step in (
        Autotile(memory="SHARED"),
        Autotile(memory="SRAM", accumulators="SRAM"),
        Localize(accumulators="SRAM"),
        Autotile(memory="REG"),
        Localize(accumulators="REG"),
    ):
        program, _ = check_pass(program, step, hw, rtol=1e-4)
    path = [b for p, b in walk(program.root) if set(p[1:]) == {"r"}]
    assert [(list(b.ranges), b.tag_values("fits")) for b in path] == [
        (["m"], ("SHARED",)),  # a panel of A stays
        (["n"], ("SHARED",)),
        (["m"], ("SRAM",)),
        (["k"], ("SRAM",)),
        (["k", "m", "n"], ()),  # its results fit in registers
    ]
    assert [b.has_tag("tiled") for b in path] == [True, True, True, True, False]
    new = {r.location.unit: b.ranges for b in path for r in b.refinements if r.location is not None}
    assert new == {"SRAM": path[2].ranges, "REG": path[3].ranges}
    limits = {"SHARED": (path[1], 65536), "SRAM": (path[3], 4096)}
    for block, capacity in limits.values():
        assert sum(prod(r.shape) * 4 for r in block.refinements if r.location is None) <= capacity


def test_steps_for_three_caches_nest() -> None:
    avx2 = load_named("x86_64_avx2")
    sizes = {"L1": 8192, "L2": 49152}
    memories = tuple(msgspec.structs.replace(m, bytes=sizes.get(m.name, m.bytes)) for m in avx2.memories)
    hw, program = msgspec.structs.replace(avx2, memories=memories), contraction(100, 120, 80)
    for memory in ("L2", "L1", "REG"):
        step = Autotile(memory=memory, reductions=memory != "REG")
        program, remarks = check_pass(program, step, hw, rtol=1e-4)
        assert any(r.acted for r in remarks)
    loops = [b for _, b in walk(program.root) if b.has_tag("tiled")]
    assert len(loops) == 3
    for block, capacity in zip(loops, (49152, 8192), strict=False):
        assert sum(prod(r.shape) * 4 for r in block.refinements) <= capacity


def test_the_smallest_tile_is_the_one_that_exceeds_its_limit_by_least() -> None:
    near, other = (
        Candidate({"m": at}, ("m",), None, needs, at) for at, needs in ((0, (110, 5)), (1, (0, 60)))
    )
    found = SimpleNamespace(excluded=(near, other), limits=((100, "bytes of PAD"), (40, "bytes of ACC")))
    assert smallest(cast(Found, found)) is near


# ----------------------------------------------------------------------------- accumulators


def test_accumulators_of_a_nest_get_the_memory() -> None:
    hw = machine(40000, 8000)
    tiled, _ = run(nest(4, 6, 8), Autotile(memory="PAD", accumulators="ACC", inflight=2), hw)
    program, remarks = check_pass(tiled, Localize(accumulators="ACC"), hw, rtol=1e-5)
    (place,) = [r.location for _, b in walk(program.root) for r in b.refinements if r.location is not None]
    assert place is not None and place.unit == "ACC"
    assert [r.message for r in remarks] == ["accumulates 'C' in ACC"]


def test_a_result_that_leaves_the_kernel_gets_an_accumulator_and_a_copy_in_the_tile() -> None:
    hw = machine(6000, 2000)
    tiled, _ = run(contraction(40, 70, 90), Autotile(memory="PAD", accumulators="ACC"), hw)
    program, _ = check_pass(tiled, Localize(accumulators="ACC"), hw, rtol=1e-5)
    outer = program.root.children[0]
    assert outer.has_tag("tiled") and outer.ranges
    reduction, copy = outer.children
    assert reduction.has_tag("tiled") and [r.source for r in reduction.refinements][-1] == "R_acc"
    assert str(copy.refinement("R").aggregation) == "assign"  # any unit can copy


def test_accumulators_stay_within_the_memory() -> None:
    text = """
        block main [] (in A[0, 0] f32(64, 64)  out M[0]:assign f32(64)  out S[0]:assign f32(64)) {
          block t [mo:2] (
            in A[32*mo, 0] f32(32, 64)  out M[32*mo]:max f32(32)  out S[32*mo]:add f32(32)
          ) #tiled {
            block m [m:32, k:64] (in A[m, k] f32(1, 1)  out M[m]:max f32(1)) { $a = load(A)  M = store($a) }
            block s [m:32, k:64] (in A[m, k] f32(1, 1)  out S[m]:add f32(1)) { $a = load(A)  S = store($a) }
          }
        }
    """
    both, _ = check_pass(program_of(text), Localize(accumulators="ACC"), machine(accumulators=256))
    one, remarks = check_pass(program_of(text), Localize(accumulators="ACC"), machine(accumulators=200))
    held = [[r.name for r in p.root.children[0].refinements if r.location] for p in (both, one)]
    assert held == [["M_acc", "S_acc"], ["M_acc"]]
    assert "128 bytes of accumulators of 'S' exceed the 72 left in ACC" in [r.message for r in remarks]


def test_a_unit_that_adds_up_must_reach_the_memory() -> None:
    hw = machine(6000, 2000)
    array, _, dma = hw.units
    apart = replace_units(hw, (array, Unit("VPU", vector_bytes=64, reaches=("PAD",)), dma))
    tiled, _ = run(contraction(40, 70, 90), Autotile(memory="PAD"), apart)
    program, remarks = check_pass(tiled, Localize(accumulators="ACC"), apart, rtol=1e-5)
    assert not any(r.location for _, b in walk(program.root) for r in b.refinements)
    assert "no unit that executes 'r' reaches ACC: 'R' is not kept in ACC" in [r.message for r in remarks]
    tiled, _ = run(nest(4, 6, 8), Autotile(memory="PAD"), apart)
    program, _ = check_pass(tiled, Localize(accumulators="ACC"), apart, rtol=1e-5)
    assert [r.name for _, b in walk(program.root) for r in b.refinements if r.location] == [
        "C"
    ]  # the array does


# -------------------------------------------------------------------------- other programs

STEPS = [Autotile(memory="PAD", accumulators="ACC", inflight=2), Autotile(memory="PAD", sizes="divisors")]


@pytest.mark.parametrize("step", STEPS, ids=["double", "single"])
@pytest.mark.parametrize("seed", range(8))
def test_generated_programs(seed: int, step: Autotile) -> None:
    hw = machine(600, 200)
    tiled, _ = run(make_program(seed), step, hw)
    check_pass(tiled, Localize(accumulators="ACC"), hw, rtol=1e-5)


@pytest.mark.parametrize("step", STEPS, ids=["double", "single"])
@pytest.mark.parametrize("name", corpus())
def test_corpus(name: str, step: Autotile) -> None:
    hw = machine(600, 200)
    tiled, _ = run(corpus()[name], step, hw)
    check_pass(tiled, Localize(accumulators="ACC"), hw, rtol=1e-5)
