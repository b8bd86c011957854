"""cost_program: what a program is expected to take, term by term, on small numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from hwconfigs.load import load_named
from hwconfigs.model import Unit
from stripe.affine import Affine
from stripe.analysis.cost_program import estimate
from stripe.analysis.cost_program_leaf import INTERLEAVED, Body, leaf_cycles
from stripe.analysis.cost_program_nest import Nest, nest_of
from stripe.analysis.cost_program_traffic import Order, Traffic, footprint
from stripe.analysis.cost_program_trips import trips
from stripe.ir import Index, Location, Program
from stripe.parser import parse

HW = load_named("x86_64_avx512")
UNIT = next(unit for unit in HW.units if unit.kind == "compute")
M, N, K = (Affine.index(name) for name in "mnk")


def product(
    rows: int, lanes: int, *, more: str = "", outer: str = "", stride: int = 64, depth: int = 32
) -> Program:
    """Rows of A against vectors of B, summed in registers."""
    return parse(
        f"""
        block main [] (
          in A[0, 0] f32(64, {depth}):({depth}, 1)
          in B[0, 0] f32({depth}, {stride}):({stride}, 1)
          out C[0, 0]:assign f32(64, 64):(64, 1)
        ) {{
          block t [{outer}] (
            in A[0, 0] f32(64, {depth})
            in B[0, 0] f32({depth}, {stride})
            out C[0, 0]:assign f32(64, 64)
            new T f32({rows}, {lanes}):({lanes}, 1) @REG
          ) #tiled {{
            block c [k:{depth}, m:{rows}, n:{lanes}{", mo = 8*o" if outer else ""}] (
              {more}
              in A[m, k] f32(1, 1)
              in B[k, n] f32(1, 1)
              out T[m, n]:add f32(1, 1)
            ) #unroll=m #unroll=n #vector=n {{
              $a = load(A) f32
              $b = load(B) f32
              $c = mul($a, $b) f32
              T = store($c)
            }}
          }}
        }}
        """
    )


def leaf(program: Program) -> tuple[Nest, ...]:
    (way,) = nest_of(program.root, HW).ways
    return way


def busy(program: Program, unit: Unit = UNIT) -> dict[str, float]:
    """Of one execution that is run in full."""
    nest = leaf(program)[-1]
    body = Body.of(nest, unit)
    full, _ = trips(nest.loops, {}, (), body.unrolled, body.lane, body.width)
    return leaf_cycles(body, full, unit, 64, (), {})


# -- trips ---------------------------------------------------------------------------------------


def test_without_constraints_every_execution_is_full() -> None:
    full, tested = trips({"k": 32, "n": 40}, {}, (), (), "n", 16)
    assert (full.share, full.steps, full.copies, full.points) == (1, 32 * 3, 1, 1)
    assert full.turns == {"k": 32, "n": 3}
    assert tested.share == 0


def test_a_ragged_tile_is_tested_where_it_is_ragged() -> None:
    limit = Affine(20) - M - Affine.index("o", 8)
    full, tested = trips({"k": 32, "m": 8}, {"o": 3}, (limit,), ("m",))
    assert full.share == pytest.approx(2 / 3) and full.copies == 1
    assert tested.share == pytest.approx(1 / 3) and (tested.copies, tested.steps) == (5 / 8, 32)


def test_a_loop_that_a_constraint_ends_runs_less() -> None:
    limit = Affine(20) - M - Affine.index("o", 8)
    full, tested = trips({"m": 8}, {"o": 3}, (limit,), ())
    assert (full.share, full.turns["m"], tested.share) == (1, 7, 0)


def test_executions_without_a_point_are_run_only_where_each_copy_is_tested() -> None:
    limit = Affine(7) - M - Affine.index("o", 8)
    assert trips({"m": 8}, {"o": 4}, (limit,), ())[0].share == 1 / 4
    full, tested = trips({"k": 2, "m": 8}, {"o": 4}, (limit,), ("m",))
    assert (full.share, tested.share, tested.copies) == (1 / 4, 3 / 4, 0)


def test_a_window_that_overhangs_loses_a_share_of_its_points() -> None:
    full, _ = trips({"r": 3, "m": 4}, {}, (Affine.index("r") + M - 1,), ())
    assert full.points == pytest.approx(11 / 12)


def test_the_turns_of_long_loops_are_counted_without_going_through_them() -> None:
    size, cut = 1 << 46, (1 << 45) + 1
    limits = (Affine(2 * size - 3) - Affine.index("k", 2) - Affine.index("o", 2 * cut), K - 5)
    full, tested = trips({"k": size, "m": 4}, {"o": 2}, limits, ("m",))
    assert full.turns == {"k": ((size - 6) + (size - cut - 6)) / 2} and full.steps == full.turns["k"]
    assert (full.share, tested.share) == (1.0, 0.0)


# -- a leaf --------------------------------------------------------------------------------------


def test_each_load_serves_all_copies_that_use_it() -> None:
    parts = busy(product(4, 32))
    assert parts["arithmetic"] == 32 * 4 * 2 / 2
    assert parts["loads"] == 32 * (4 + 2) / 2  # a splat for each row, two vectors


def test_sums_wait_for_each_other_where_there_are_few() -> None:
    unit = structs.replace(UNIT, registers=64)
    one, eight = (busy(product(rows, 16, depth=512), unit) for rows in (1, 8))
    assert one["latency"] == eight["latency"] == 512 * 4  # a step is not over before its sums are
    assert one["latency"] > one["arithmetic"] and eight["latency"] == eight["arithmetic"]


def test_short_sums_are_through_before_the_next_ones_are_far() -> None:
    assert busy(product(1, 16))["latency"] < 32 * 4


def test_vectors_that_lie_across_lines_take_two_loads() -> None:
    aligned, shifted = busy(product(1, 32)), busy(product(1, 32, stride=63))
    assert aligned["loads"] == 32 * (1 + 2) / 2
    assert shifted["loads"] == 32 * (1 + 2 * (2 - 1 / 16)) / 2


def test_an_element_for_all_lanes_goes_along_a_narrow_path_at_once() -> None:
    halved = structs.replace(UNIT, path_bytes=32)
    assert busy(product(4, 32), halved)["loads"] == 32 * (4 / 2 + 2) / 2


def test_the_last_vector_of_a_row_is_as_narrow_as_its_lanes_allow() -> None:
    halved = structs.replace(UNIT, path_bytes=32)
    for lanes, vectors in ((32, 2.0), (19, 1.5), (27, 2.0), (24, 1.5)):
        assert busy(product(1, lanes, stride=64), halved)["arithmetic"] == 32 * vectors / 2
    # Under a test of the end of the row all are alike.
    way = leaf(product(1, 19, more="20 - n - mo >= 0", outer="o:3"))
    body = Body.of(way[-1], halved)
    _, tested = trips(way[-1].loops, way[1].loops, way[-1].limits, body.unrolled, body.lane, body.width)
    under = leaf_cycles(body, replace(tested, copies=1.0), halved, 64, way[-1].limits, way[1].loops)
    assert under["arithmetic"] == 32 * 2 / 2


def test_narrow_vectors_take_less_time_on_narrow_paths() -> None:
    halved = structs.replace(UNIT, path_bytes=32)
    for lanes, wide, narrow in ((16, 1.0, 1.0), (8, 1.0, 0.5), (4, 1.0, 0.5)):
        for unit, share, element in ((UNIT, wide, 1.0), (halved, narrow, 0.5)):
            found = busy(product(1, lanes), unit)
            assert found["arithmetic"] == 32 * share / 2
            assert found["loads"] == 32 * (share + element) / 2
    # Of a full vector, one half or the other reaches over the end of a line.
    assert busy(product(1, 32, stride=63), halved)["loads"] == 32 * (1 / 2 + 2 * (1 + (8 - 1) / 16)) / 2


def test_rows_of_sums_have_whole_vectors_of_their_own_in_registers() -> None:
    def lanes(width: int) -> dict[str, int]:
        (*_, inner) = leaf(product(2, width))
        return {name.split(".")[0]: size for name, size in inner.loops.items() if size > 1}

    assert lanes(9) == {"k": 32, "m": 2, "n": 9}


def test_what_does_not_fit_in_registers_goes_to_the_stack_and_back() -> None:
    assert busy(product(8, 48))["stores"] == 0  # 24 sums, 3 vectors and what is computed
    assert busy(product(16, 48))["stores"] > 32 * 16


def test_what_is_loaded_for_a_later_copy_takes_a_register_until_then() -> None:
    wide, high = busy(product(2, 240)), busy(product(15, 32))  # 30 sums each, 15 vectors for both rows, or 2
    assert wide["stores"] > high["stores"] > 0


def test_lanes_go_on_into_the_next_row_where_memory_does() -> None:
    def lanes(stride: int, test: str = "") -> dict[str, int]:
        program = parse(
            f"""
            block main [] (
              in A[0, 0] f32(4, {stride}):({stride}, 1)
              out B[0, 0]:assign f32(4, 20):(20, 1)
            ) {{
              block s [c:4, d:20] (
                {test}
                in A[c, d] f32(1, 1)
                out B[c, d]:assign f32(1, 1)
              ) #unroll=c #unroll=d #vector=d {{
                $a = load(A) f32
                B = store($a)
              }}
            }}
            """
        )
        return {name.split(".")[0]: size for name, size in leaf(program)[-1].loops.items()}

    assert lanes(20) == {"d": 80}
    assert lanes(24) == lanes(20, "2 - c >= 0") == {"c": 4, "d": 20}


def test_copies_under_tests_load_for_themselves() -> None:
    way = leaf(product(8, 32, more="20 - m - mo >= 0\n31 - k - m >= 0", outer="o:3"))
    nest = way[-1]
    body = Body.of(nest, UNIT)
    limits = nest.limits
    _, tested = trips(nest.loops, way[1].loops, limits, body.unrolled, body.lane, body.width)
    assert tested.share
    without = leaf_cycles(body, replace(tested, copies=1.0), UNIT, 64, (), way[1].loops)
    under = leaf_cycles(body, tested, UNIT, 64, limits, way[1].loops)
    assert under["arithmetic"] < without["arithmetic"]
    assert under["loads"] / under["arithmetic"] > without["loads"] / without["arithmetic"]


def test_a_single_test_that_stays_the_same_is_made_ahead_of_the_loops() -> None:
    way = leaf(product(8, 16, more="7 - m - mo >= 0", outer="o:3"))
    nest = way[-1]
    body = Body.of(nest, UNIT)
    assert len({copy.tests for copy in body.copies(nest.limits, way[1].loops)}) == 1
    _, tested = trips(nest.loops, way[1].loops, nest.limits, body.unrolled, body.lane, body.width)
    nothing = leaf_cycles(body, tested, UNIT, 64, nest.limits, way[1].loops)
    assert tested.copies == 0 and nothing["issue"] == 0


def test_a_sum_across_lanes_takes_turns() -> None:
    program = parse(
        """
        block main [] (in A[0] f32(4096):(1)  out S[0]:assign f32(1):(1)) {
          block s [k:4096] (in A[k] f32(1)  out S[0]:add f32(1)) #vector=k {
            $a = load(A) f32
            S = store($a)
          }
        }
        """
    )
    assert busy(program)["latency"] == 256 * 4 / INTERLEAVED


# -- bytes ---------------------------------------------------------------------------------------


def test_rows_take_whole_lines_and_windows_overlap() -> None:
    (a, b, _) = leaf(product(4, 32))[-1].accesses
    names = dict(zip("kmn", leaf(product(4, 32))[-1].loops, strict=True))
    way = leaf(product(4, 32))
    inside = dict(way[-1].loops)
    assert footprint(b, inside, 64) == 32 * 2 * 64  # 32 rows of 32 elements
    assert footprint(a, {n: inside[n] for n in (names["m"],)}, 64) == 4 * 64
    window = replace(a, place=Affine.of({"y": 64, "r": 64, "c": 1}))
    assert footprint(window, {"y": 8, "r": 3, "c": 16}, 64) == (8 + 3 - 1) * 64
    moved = replace(window, place=window.place + Affine.of({"o": 15}))  # rows of 16 begin at any element
    assert footprint(moved, {"y": 8, "r": 3, "c": 16}, 64) == (8 + 3 - 1) * (64 + 60)


def test_what_fits_is_brought_in_once_and_what_does_not_each_time() -> None:
    program = parse(
        """
        block main [] (in A[0] f32(1024):(1)  in B[0] f32(1):(1)  out C[0]:assign f32(8):(1)) {
          block s [o:8, k:1024] (in A[k] f32(1)  out C[o]:add f32(1)) {
            $a = load(A) f32
            C = store($a)
          }
        }
        """
    )
    nest = nest_of(program.root, HW)
    (inner,) = nest.parts
    assert Traffic(nest, {}, 1 << 20, 64).bytes(inner, 0) == 0  # all is there from the run before
    assert Traffic(nest, {}, 1024, 64).bytes(inner, 0) == 8 * 4096
    some = Traffic(nest, {}, 3000, 64).bytes(inner, 0)
    assert 0 < some < 8 * 4096


def test_rows_on_few_sets_are_brought_in_again_though_there_is_room() -> None:
    def bytes_of_a(stride: int, way: int, loss: float = 0.2) -> float:
        program = parse(
            f"""
            block main [] (in A[0, 0] f32(20, {stride}):({stride}, 1)  out C[0]:assign f32(20):(1)) {{
              block s [k:1024, m:20] (in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {{
                $a = load(A) f32
                C = store($a)
              }}
            }}
            """
        )
        nest = nest_of(program.root, HW)
        return Traffic(nest, {}, 48 << 10, 64, way, loss).bytes(nest.parts[0], 0)

    once = 20 * 4096
    assert bytes_of_a(1024, 0) <= once < bytes_of_a(1024, 4096)  # 20 lines on one set of 12 ways
    assert bytes_of_a(1024, 4096) < bytes_of_a(1024, 4096, 0.5)
    assert bytes_of_a(1040, 4096) == bytes_of_a(1040, 0)


def test_lines_on_one_set_come_in_one_after_the_other() -> None:
    def waits(step: int, set_cycles: float | None) -> float:
        program = parse(
            f"""
            block main [] (in A[0, 0] f32(80, {step}):({step}, 1)  out C[0]:assign f32(80):(1)) {{
              block s [k:1024, m:80] (in A[m, k] f32(1, 1)  out C[m]:add f32(1)) {{
                $a = load(A) f32
                C = store($a)
              }}
            }}
            """
        )
        near, *others = HW.memories
        assert near.kind == "registers"
        first = structs.replace(others[0], set_cycles=set_cycles)
        found = estimate(program, structs.replace(HW, memories=(near, first, *others[1:])))
        assert found is not None
        return found.parts["L2 to L1"]

    assert waits(1024, 12.0) > 4 * waits(1024, None)
    assert waits(1040, 12.0) < 1.01 * waits(1040, None)  # a set for each row


def test_a_vector_across_lines_waits_for_the_sets_of_both() -> None:
    def waits(lanes: int) -> float:
        program = parse(
            f"""
            block main [] (in A[0, 0] f32(2048, 1024):(1024, 1)  out C[0]:assign f32(1024):(1)) {{
              block t [o:60] (in A[0, {lanes}*o] f32(2048, {lanes})  out C[{lanes}*o]:assign f32({lanes})) {{
                block s [m:2048, n:{lanes}] (in A[m, n] f32(1, 1)  out C[n]:add f32(1)) #unroll=n #vector=n {{
                  $a = load(A) f32
                  C = store($a)
                }}
              }}
            }}
            """
        )
        near, first, *others = HW.memories
        found = estimate(
            program,
            structs.replace(HW, memories=(near, structs.replace(first, set_cycles=12.0), *others)),
        )
        assert found is not None
        return found.parts["L2 to L1"] / (60 * 2048)

    # Twelve for the line of each row, and about as long again for a second one and a half.
    assert waits(16) == pytest.approx(12, rel=0.05)
    assert waits(15) == pytest.approx(12 * (1 + 1.5 * 15 / 16), rel=0.1)


def test_rows_that_copies_share_are_loaded_once() -> None:
    """Rows of 4 KiB, all on one set; a step further on lies another. Eight copies of nine rows load 16."""
    program = parse(
        """
        block main [] (in A[0, 0] f32(16, 1024):(1024, 1)  out C[0]:assign f32(9):(1)) {
          block s [s:8, y:9, r:8] (in A[y + r, 16*s] f32(1, 1)  out C[y]:add f32(1)) {
            $a = load(A) f32
            C = store($a)
          }
        }
        """
    )
    nest = nest_of(program.root, HW)
    (inner,) = nest.parts
    s, y, r = inner.loops

    def sets(held: bool) -> float:
        orders = {id(inner): ((s, 8, False), (y, 9, held), (r, 8, held))}
        return Traffic(nest, orders, 48 << 10, 64, 4096).sets(inner, 0)

    assert (sets(False), sets(True)) == (1, 4), "64 loads are on their way: those of one step, or of four"


def test_copies_beside_each_other_along_the_lanes_are_one_row() -> None:
    """Five copies of a vector, each an element further on, and four rows that lie on sets of their own."""
    program = parse(
        """
        block main [] (in A[0, 0] f32(64, 1056):(1056, 1)  out C[0]:assign f32(16):(1)) {
          block s [k:64, s:5, x:16] (in A[k, s + x] f32(1, 1)  out C[x]:add f32(1))
            #unroll=s #unroll=x #vector=x {
            $a = load(A) f32
            C = store($a)
          }
        }
        """
    )
    nest = nest_of(program.root, HW)
    (inner,) = nest.parts
    k, s, x = inner.loops
    orders = {id(inner): ((k, 4, False), (s, 5, True), (x, 16, True))}
    assert Traffic(nest, orders, 48 << 10, 64, 4096).sets(inner, 0) == 8, "two lines of each row"
    assert estimate(program, HW) is not None


def test_an_index_in_steps_reuses_what_a_step_touches() -> None:
    program = parse(
        """
        block main [] (in A[0, 0] f32(64, 64):(64, 1)  out B[0, 0]:assign f32(64, 64):(64, 1)) {
          block s [i:64, j:64] (in A[j, i] f32(1, 1)  out B[i, j]:assign f32(1, 1)) {
            $a = load(A) f32
            B = store($a)
          }
        }
        """
    )
    nest = nest_of(program.root, HW)
    (inner,) = nest.parts
    i, j = inner.loops

    def squares(held: bool) -> dict[int, Order]:
        return {id(inner): ((i, 64, False), (j, 64, False), (i, 16, held), (j, 16, held))}

    assert Traffic(nest, squares(False), 2560, 64).bytes(inner, 0) == 64 * 64 * 4
    assert Traffic(nest, squares(False), 512, 64).bytes(inner, 0) > 4 * 64 * 64 * 4
    assert Traffic(nest, squares(True), 512, 64).bytes(inner, 0) == 64 * 64 * 4, "registers hold a square"
    assert Traffic(nest, {}, 2560, 64).bytes(inner, 0) > 4 * 64 * 64 * 4


def test_blocks_find_what_those_before_them_left() -> None:
    def twice(*names: str) -> float:
        text = "".join(
            f"""
            block {name}{number} [k:1024] (in {name}[k] f32(1)  out C[0]:add f32(1)) {{
              $a = load({name}) f32
              C = store($a)
            }}"""
            for number, name in enumerate(names)
        )
        program = parse(
            f"""
            block main [] (in A[0] f32(4096):(1)  in B[0] f32(4096):(1)  out C[0]:assign f32(1):(1)) {{
              block t [i:4] (in A[1024*i] f32(1024)  in B[1024*i] f32(1024)  out C[0]:add f32(1)) {{{text} }}
            }}
            """
        )
        nest = nest_of(program.root, HW)
        traffic = Traffic(nest, {}, 8000, 64)
        return sum(traffic.bytes(part, 0) for part in nest.parts[0].parts)

    assert twice("A", "B") == 2 * twice("A", "A")


# -- whole programs ------------------------------------------------------------------------------


def test_the_parts_of_a_program_are_named_as_the_cost_models_name_them() -> None:
    found = estimate(product(4, 32), HW)
    assert found is not None
    assert {"arithmetic", "loads", "stores", "latency", "issue", "loops", "L2 to L1"} <= found.parts.keys()
    assert found.cycles >= max(found.parts.values())


def test_a_target_that_computes_nothing_has_no_estimate() -> None:
    idle = structs.replace(HW, units=tuple(unit for unit in HW.units if unit.kind != "compute"))
    assert estimate(product(4, 32), idle) is None


def of_groups(target: str, x: str, y: str, acc: str, size: int) -> float:
    """Cycles of arithmetic, over vectors of results and groups, of a leaf that one instruction computes."""
    program = parse(
        f"""
        block main [] (
          in A[0, 0] {x}(8, {16 * size}):({16 * size}, 1)
          in B[0, 0, 0] {y}(16, 32, {size}):({32 * size}, {size}, 1)
          out C[0, 0]:assign {acc}(8, 32):(32, 1)
        ) {{
          block c [k:16, m:8, n:32, p:{size}] (
            in A[m, {size}*k + p] {x}(1, 1)
            in B[k, n, p] {y}(1, 1, 1)
            out C[m, n]:add {acc}(1, 1)
          ) #unroll=m #unroll=n #vector=n #group=p {{
            $a = load(A) {x}
            $b = load(B) {y}
            $c = cast($a) {acc}
            $d = cast($b) {acc}
            $e = mul($c, $d) {acc}
            C = store($e)
          }}
        }}
        """
    )
    found = estimate(program, load_named(target))
    assert found is not None
    return found.parts["arithmetic"] / (16 * 8 * 2)


def test_an_instruction_sums_groups_at_the_rate_of_its_stencil() -> None:
    assert of_groups("x86_64_zen4", "u8", "i8", "i32", 4) == 1
    assert of_groups("x86_64_zen4", "bf16", "bf16", "f32", 2) == 1
    assert of_groups("x86_64_avx512_vnni", "u8", "i8", "i32", 4) == 0.5
    assert of_groups("x86_64_avx512_vnni", "bf16", "bf16", "f32", 2) == 2
    assert of_groups("x86_64_amx", "u8", "i8", "i32", 4) < 0.1, "in blocks"
    assert of_groups("x86_64_avx512", "u8", "i8", "i32", 4) == 2, "no such instruction: four multiply-adds"


def test_units_to_which_points_are_dealt_out_work_side_by_side() -> None:
    whole = estimate(product(8, 32, outer="o:8"), HW)
    dealt = product(8, 32, outer="o:8")
    block = dealt.root.children[0]
    halves = replace(
        block,
        indexes=(*block.indexes, Index("u", 2)),
        location=Location("CORE", Affine.index("u")),
    )
    both = estimate(replace(dealt, root=replace(dealt.root, statements=(halves,))), HW)
    assert whole is not None and both is not None
    for part in ("arithmetic", "loads", "stores"):
        assert both.parts[part] == whole.parts[part]
