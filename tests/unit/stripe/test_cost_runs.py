"""Costs of runs of lines that begin elsewhere: how many there are, counted by hand, and where they count."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.bounds import Sizes, leaves, operands
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_layout import Brought, instruction_cycles, layout_cycles
from stripe.analysis.cost_problem import APART_CYCLES, RUNS, CostModel, Problem, apart_waits
from stripe.analysis.cost_roofline import MemoryRoofline
from stripe.analysis.cost_rows import fetched_bytes
from stripe.analysis.cost_traffic import Strips, Traffic
from stripe.analysis.lanes import in_square
from stripe.ir import Block
from stripe.rewrite import tile_block
from stripe.visit import View, views_of
from tests.support.passes import program_of

AVX512 = load_named("x86_64_avx512")
ZEN4 = load_named("x86_64_zen4")
EACH = (1.0, 1.0)  # cycles: then waits are runs


def product(buffers: str, indexes: str, views: str) -> tuple[Block, Mapping[str, View]]:
    """C += A * B at each point."""
    root = program_of(
        f"""
        block main [] ({buffers}) {{
          block c [{indexes}] ({views}) {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            C = store($c)
          }}
        }}
        """
    ).root
    return root.children[0], views_of(root, {})


def nest(m: int, n: int, k: int, a: str = "m, k", outer: int = 1) -> tuple[Block, Mapping[str, View]]:
    """C[z, m, n] = sum over k of A * B, where B depends on k and n, and A on z as well."""
    sizes = {"m": m, "n": n, "k": k, "z": outer}
    shape = ", ".join(str(sizes[name]) for name in a.split(", "))
    ones = ", ".join("1" for _ in a.split(", "))
    zeros = ones.replace("1", "0")
    return product(
        f"in A[0, {zeros}] f32({outer}, {shape})  in B[0, 0] f32({k}, {n})  "
        f"out C[0, 0, 0]:assign f32({outer}, {m}, {n})",
        f"z:{outer}, m:{m}, n:{n}, k:{k}",
        f"in A[z, {a}] f32(1, {ones})  in B[k, n] f32(1, 1)  out C[z, m, n]:add f32(1, 1, 1)",
    )


def turned(size: int) -> tuple[Block, Mapping[str, View]]:
    """C[c, b, a] = sum over d of A * B: vectors go along a, along which A does not lie side by side."""
    cube, one = f"f32({size}, {size}, {size})", "f32(1, 1, 1)"
    return product(
        f"in A[0, 0, 0] {cube}  in B[0, 0] f32({size}, {size})  out C[0, 0, 0]:assign {cube}",
        f"c:{size}, b:{size}, a:{size}, d:{size}",
        f"in A[a, d, b] {one}  in B[c, d] f32(1, 1)  out C[c, b, a]:add {one}",
    )


def fetching_on(streams: int | None) -> HwConfig:
    """The target with cores that fetch on along so many rows."""
    hw = answering(50.0)
    return msgspec.structs.replace(
        hw, units=tuple(msgspec.structs.replace(u, streams=streams) for u in hw.units)
    )


def answering(latency: float | None) -> HwConfig:
    """The target with a third cache that answers after so many cycles."""
    memories = tuple(
        msgspec.structs.replace(m, latency_cycles=latency if m.name == "L3" else m.latency_cycles)
        for m in AVX512.memories
    )
    return msgspec.structs.replace(AVX512, memories=memories)


def model(
    memory: str, block: Block, views: Mapping[str, View], constant: str = "", hw: HwConfig | None = None,
    far: str = "",
) -> CostModel:  # fmt: skip
    hw = answering(50.0) if hw is None else hw
    where = hw.memory(memory)
    assert where is not None
    return COST_MODELS["roofline"](
        Problem(block, views, hw, where, constant=frozenset(constant), far=frozenset(far))
    )


def runs_of(found: CostModel, sizes: Mapping[str, int], order: tuple[str, ...]) -> float:
    """With a memory that keeps stores and loads waiting alike."""
    waits = found.evaluate({n: np.asarray(s) for n, s in sizes.items()}, order).parts[RUNS]
    return float(waits) / APART_CYCLES


def test_registers_meet_runs_beyond_the_nearest_caches() -> None:
    found = model("REG", *nest(1024, 1024, 1024))
    tile = {"m": 8, "n": 64}
    # n innermost: rows of C follow one another, B is one run, and A one for each tile along m.
    assert runs_of(found, tile, ("m", "n")) == 128 + 1 + 128
    # m innermost: a run for each row of C and B, in each of 16 strips; A is one run.
    assert runs_of(found, tile, ("n", "m")) == 16 * 1024 + 16 * 1024 + 1


def test_many_short_pieces_of_results_that_do_not_stay_near_wait() -> None:
    block, views = nest(1024, 1024, 16)
    near, far = model("REG", block, views), model("REG", block, views, far="C")

    def longer(m: int, n: int) -> float:
        sizes = {"m": np.asarray(m), "n": np.asarray(n)}
        one, other = (found.evaluate(sizes, ("m", "n")).parts["L2 to L1"] for found in (near, far))
        return float(other - one)

    assert longer(16, 16) == APART_CYCLES * 1024 * 64, "16 pieces, a line each, of every tile"
    assert longer(8, 16) == 0.0, "a core stores so many rows without waiting"
    assert longer(16, 32) == 0.0, "pieces of two lines"


@pytest.mark.parametrize(("size", "waits"), [(72, True), (48, False)])
def test_copies_wait_for_pieces_on_pages_of_their_own_that_nothing_asks_for(size: int, waits: bool) -> None:
    """Of 72 x 72 x 72 elements the second cache keeps little, of 48 x 48 x 48 most."""
    tile, order = {"c": size, "b": 24, "a": size, "d": size}, ("b", "a", "c")

    def runs(streams: int | None) -> float:
        return runs_of(model("L2", *turned(size), hw=fetching_on(streams)), tile, order)

    pieces = size * size * size // 24
    assert runs(64) - runs(None) == (7 / 8 * pieces if waits else 0)


def test_tiles_that_make_copies_may_be_smaller_than_those_in_registers() -> None:
    found, plain = model("L2", *turned(96)), model("L2", *nest(2048, 1024, 512))
    assert isinstance(found, MemoryRoofline) and isinstance(plain, MemoryRoofline)
    assert found.least["a"] > 16 and found.choices()["a"][0] < 16
    assert plain.choices()["n"][0] == plain.least["n"]

    def work(a: int, b: int) -> float:
        sizes = {"c": 96, "b": b, "a": a, "d": 96}
        return float(
            found.evaluate({n: np.asarray(s) for n, s in sizes.items()}, ("b", "a", "c")).parts["arithmetic"]
        )

    assert work(16, 96) < 1.2 * work(96, 96), "other tiles in registers have room"
    assert work(16, 1) > 1.3 * work(16, 96), "rows of b fill few registers"


def test_what_a_cache_keeps_from_run_to_run_comes_from_there() -> None:
    def parts(size: int) -> set[str]:
        sizes = dict.fromkeys("cba", np.asarray(16))
        return set(model("L2", *turned(size)).evaluate(sizes, ("b", "a", "c")).parts)

    assert "DRAM to L3" not in parts(96)
    assert "DRAM to L3" in parts(256)


def test_loads_wait_longer_for_a_memory_that_answers_late() -> None:
    def waits(latency: float | None) -> tuple[float, float]:
        hw = answering(latency)
        second = hw.memory("L2")
        assert second is not None
        return apart_waits(hw, second)

    assert waits(200.0) == (40.0, 10.0)  # for what is read, for results
    assert waits(50.0) == waits(None) == (10.0, 10.0)
    assert waits(25.0) == (5.0, 5.0)  # results wait no longer than loads


def test_only_runs_of_inputs_wait_for_the_answer() -> None:
    block, views = nest(1024, 1024, 1024)
    sizes, order = {"m": np.asarray(8), "n": np.asarray(64)}, ("n", "m")

    def waits(memory: str, latency: float) -> float:
        found = model(memory, block, views, hw=answering(latency))
        return float(found.evaluate(sizes, order).parts[RUNS])

    results = 16 * 1024  # rows of C, in 16 strips
    assert waits("L2", 100.0) - waits("L2", 50.0) == waits("L2", 50.0) - APART_CYCLES * results
    assert waits("REG", 100.0) == waits("REG", 50.0), "loops of tiles in registers ask ahead"


@pytest.mark.parametrize("memory", ["REG", "L2"])
def test_the_waits_for_runs_are_not_hidden(memory: str) -> None:
    block, views = nest(1024, 1024, 1024)
    tile, order = {"m": np.asarray(8), "n": np.asarray(64)}, ("n", "m")
    more, less = (model(memory, block, views, constant=name).evaluate(tile, order) for name in ("", "B"))
    apart = (float(more.parts[RUNS]) - float(less.parts[RUNS])) / 1024**3
    assert apart > 0
    assert float(more.cost) - float(less.cost) == pytest.approx(apart)


def test_lines_that_others_have_brought_begin_no_run() -> None:
    block, views = nest(1024, 1024, 1024, a="k, m")
    # Of each row of A, four elements are met at a time: 2**18 places, but 2**16 lines.
    assert runs_of(model("REG", block, views), {"m": 4, "n": 64}, ("m", "n")) == 256 + 1 + 65536


def test_what_stays_in_the_own_caches_has_no_runs() -> None:
    assert runs_of(model("REG", *nest(128, 128, 128)), {"m": 8, "n": 64}, ("n", "m")) == 0.0


@pytest.mark.parametrize("memory", ["REG", "L2"])
def test_copies_at_load_time_begin_no_runs(memory: str) -> None:
    block, views = nest(1024, 1024, 1024)
    tile, order = {"m": 8, "n": 64}, ("n", "m")
    without = runs_of(model(memory, block, views, constant="B"), tile, order)
    assert 0 < without < runs_of(model(memory, block, views), tile, order)


def test_tiles_of_a_cache_bring_runs() -> None:
    block, views = nest(1024, 1024, 1024)
    used, sizes = operands(block, views), {"m": np.asarray(64), "n": np.asarray(128)}
    all_sizes: Sizes = {**block.ranges, **sizes}
    tile = [fetched_bytes(o, all_sizes, 64) for o in used]
    traffic = Traffic(used, block.ranges, all_sizes, tile)
    # Nothing stays: each of 16 x 8 tiles meets one run of A, 1024 rows of B, and 64 of C.
    assert float(traffic.waits(("m", "n"), 0, EACH)) == 128 * (1 + 1024 + 64)
    assert float(traffic.bytes(("m", "n"), 0)) == 128 * 4 * (64 * 1024 + 1024 * 128 + 64 * 128)
    laid = Traffic(used, block.ranges, all_sizes, tile, None, frozenset({"B"}))
    assert float(laid.waits(("m", "n"), 0, EACH)) == 128 * (1 + 64)
    # What is read may be waited for longer than what is written.
    assert float(traffic.waits(("m", "n"), 0, (40.0, 10.0))) == 128 * (40 * (1 + 1024) + 10 * 64)
    # All of it stays: A and C are one run each, and B as well.
    assert float(traffic.waits(("m", "n"), None, EACH)) == 3
    # Tiles for L2 count them where they come from beyond it; those for L1 as well, not those for L3.
    assert RUNS in model("L2", block, views).evaluate(sizes, ("m", "n")).parts
    assert RUNS in model("L1", block, views).evaluate(sizes, ("m", "n")).parts


def test_pieces_of_more_rows_than_are_fetched_ahead_are_runs() -> None:
    block, views = nest(64, 1024, 1024)
    used = operands(block, views)
    strips = Strips({"m": 8, "n": 48}, frozenset("B"), 64, frozenset(), frozenset("k"), 64)

    def rows(k: int) -> float:
        sizes: Sizes = {**block.ranges, "k": np.asarray(k), "n": np.asarray(256)}
        tile = [fetched_bytes(o, sizes, 64) for o in used]
        found = [Traffic(used, block.ranges, sizes, tile, None, frozenset("AC"), s) for s in (None, strips)]
        plain, with_strips = (float(t.waits(("k", "n"), 0, EACH)) for t in found)
        assert plain == 4 * 1024
        return with_strips

    assert rows(64) == 4 * 1024  # 1024 bytes of each row, one after the other
    assert rows(128) == 4 * 1024 * 6  # 192 bytes of each, and the rest later


def test_a_few_elements_of_each_row_come_line_by_line_where_sums_are_cut() -> None:
    block, views = nest(1024, 64, 1024)
    used = operands(block, {**views, "A": View(views["A"].dtype, (1, 1024, 1024), (1024 * 1024, 1, 1024))})
    strips = Strips({"m": 8, "n": 48}, frozenset(), 64, frozenset("A"), frozenset("k"), 64)

    def rows(m: int, k: int) -> float:
        sizes: Sizes = {**block.ranges, "k": np.asarray(k), "m": np.asarray(m)}
        tile = [fetched_bytes(o, sizes, 64) for o in used]
        return float(
            Traffic(used, block.ranges, sizes, tile, None, frozenset("BC"), strips).waits(("k", "m"), 0, EACH)
        )

    assert rows(256, 1024) == 4 * 1024  # long enough sums ask for their rows ahead
    assert rows(256, 32) == 4 * 1024 * 16  # 1024 bytes of each, in lines
    assert rows(32, 32) == 32 * 1024 * 2


def test_rows_that_the_innermost_loops_come_back_to_are_met_once() -> None:
    block, views = nest(16, 1024, 48)
    apart = {**views, "B": View(views["B"].dtype, (48, 1024), (1040, 1))}
    packed = {**views, "B": View(views["B"].dtype, (48, 1024), (16, 1))}

    def waits(order: tuple[str, ...]) -> float:
        tiled = tile_block(block, {"m": 4, "n": 16}, order)
        lanes = ("n_1",)
        return layout_cycles(tiled, apart, AVX512, lanes) - layout_cycles(tiled, packed, AVX512, lanes)

    assert waits(("n", "m")) == pytest.approx(waits(("m", "n")) / 4)


def test_bounds_of_runs_hold() -> None:
    block, views = nest(96, 96, 96)
    used, whole = operands(block, views), {**block.ranges}

    def traffic(sizes: dict[str, int], upto: dict[str, int] | None = None) -> Traffic:
        large = None if upto is None else {**whole, **upto}
        tile = [fetched_bytes(o, {**whole, **sizes}, 64, large) for o in used]
        return Traffic(used, whole, {**whole, **sizes}, tile, large)

    least = traffic({"m": 8, "n": 16}, {"m": 96, "n": 96})
    for capacity in (0, 20000, 60000):
        bound = float(least.waits(("m", "n"), capacity, EACH))
        for m in (8, 24, 96):
            for n in (16, 48, 96):
                assert bound <= float(traffic({"m": m, "n": n}).waits(("m", "n"), capacity, EACH))


def test_a_row_alone_is_not_used_again() -> None:
    block, views = nest(64, 64, 64, outer=4)
    found = model("REG", block, views)

    def registers(z: int) -> int:
        sizes = {"z": z, "m": 4, "n": 32}
        return int(found.evaluate({k: np.asarray(v) for k, v in sizes.items()}, ("z", "m", "n")).needed)

    # With one z, B's two vectors are used again at each m. With two, so they are at each z.
    assert registers(1) == 4 * 2 + 1 + 2
    assert registers(2) == 2 * 4 * 2 + 1 + 2


def test_squares_of_other_than_powers_of_two() -> None:
    assert in_square(16, 3) == in_square(16, 4) * 4 / 3
    assert in_square(16, 12) == in_square(16, 16) * 16 / 12
    assert in_square(16, 8) == 6


def test_strides_points_and_reductions_of_a_leaf() -> None:
    (leaf,) = leaves(*nest(8, 16, 32))
    assert (leaf.points, leaf.reductions) == (8 * 16 * 32, ("k",))
    a, b, c = (next(o for o in leaf.operands if o.name == name) for name in "ABC")
    assert [a.stride(n) for n in "mnk"] == [32, 0, 1]
    assert [b.stride(n) for n in "mnk"] == [0, 1, 16]
    assert [c.stride(n) for n in "mnk"] == [16, 1, 0]


def test_in_loops_of_a_kilobyte_nothing_is_asked_for_in_time() -> None:
    """A panel of 64 elements along n, of which each step of k comes to another row: of up to 4 steps all rows
    cost what they do, of up to 32 steps as much as 4, of more an eighth."""

    def waits(steps: int) -> float:
        block, views = nest(12, 64, steps)
        apart = {**views, "B": View(views["B"].dtype, (steps, 64), (4096, 1))}
        lanes = ("n",)
        return layout_cycles(block, apart, AVX512, lanes) - layout_cycles(block, views, AVX512, lanes)

    assert waits(4) == pytest.approx(3 * waits(2), rel=0.01)
    assert waits(31) == pytest.approx(waits(16), rel=0.05)
    assert waits(64) == pytest.approx(2 * waits(33), rel=0.05)


def test_a_buffer_of_each_point_takes_the_place_of_the_last() -> None:
    """16 KiB, of two points as of 64: beside them, A comes from memory once."""

    def each(points: int) -> float:
        root = program_of(f"""
            block main [] (in A[0] f32(4096)  out C[0]:assign f32({points})) {{
              block c [z:{points}] (in A[0] f32(4096)  out C[z]:assign f32(1)  new T f32(4096)) {{
                block t [i:4096] (in A[i] f32(1)  out T[i]:assign f32(1)) {{
                  $a = load(A) f32
                  T = store($a)
                }}
                block s [i:4096] (in T[i] f32(1)  out C[0]:add f32(1)) {{
                  $t = load(T) f32
                  C = store($t)
                }}
              }}
            }}""").root
        return layout_cycles(root.children[0], views_of(root, {}), ZEN4, ("i", "i")) / points

    assert each(2) < 2 * each(64)


def test_at_best_the_first_lines_of_a_long_loop_are_waited_for() -> None:
    """However long it is; where lines can't come in time, as there is little to do with each, an eighth of
    all."""

    def waits(rows: int, steps: int, best: bool) -> float:
        block, views = nest(rows, 64, steps)
        apart = {**views, "B": View(views["B"].dtype, (steps, 64), (4112, 1))}
        at = [layout_cycles(block, v, ZEN4, ("n",), Brought(in_time=best)) for v in (apart, views)]
        return at[0] - at[1]

    assert waits(12, 32, True) == waits(12, 32, False)
    assert waits(12, 1024, True) < 0.1 * waits(12, 1024, False)
    assert waits(6, 1024, True) == waits(6, 1024, False)


def test_what_a_sum_reads_is_brought_in_while_it_adds() -> None:
    """Rows that crowd come from the shared cache for each tile: a tenth of that is waited for, and all where
    it takes longer than the arithmetic, of which tiles of few rows have little."""

    def cycles(rows: int, stride: int) -> float:
        block, views = nest(96, 32, 1024)
        laid = {**views, "B": View(views["B"].dtype, (1024, 32), (stride, 1))}
        tiled = tile_block(block, {"m": rows}, ("m",))
        lanes = ("n",)
        return layout_cycles(tiled, laid, AVX512, lanes)

    assert 1.02 < cycles(48, 4096) / cycles(48, 32) < 1.2
    assert cycles(3, 4096) / cycles(3, 32) > 2


def test_what_no_cache_keeps_comes_from_memory() -> None:
    """Of a product whose operands L3 holds nothing does, once it has been called."""
    slow = [msgspec.structs.replace(m, bytes_per_cycle=1) if m.name == "DRAM" else m for m in AVX512.memories]
    hws = AVX512, msgspec.structs.replace(AVX512, memories=tuple(slow))
    for columns, waits in ((64, False), (16384, True)):
        block, views = nest(8, columns, 1024)
        near, far = (layout_cycles(block, views, hw, ("n",)) for hw in hws)
        assert (far > near) is waits


@pytest.mark.parametrize(("columns", "rate"), [(512, 2), (4096, 1)])
def test_what_is_copied_from_main_memory_comes_at_half_its_rate_in_pieces(columns: int, rate: int) -> None:
    """Of less than four pages; what comes from a cache on its way is not waited for as well."""
    hw = load_named("x86_64_zen5")
    program = program_of(f"""
        block main [] (in A[0, 0] f32(128, {columns}):(4096, 1)  out R[0, 0]:assign f32(128, {columns})) {{
          block c [m:128, n:{columns}] (in A[m, n] f32(1, 1):(4096, 1)  out R[m, n]:assign f32(1, 1)) {{
            $a = load(A) f32
            R = store($a) }} }}""")
    (copy,), views = program.root.children, views_of(program.root, {})
    near, far = (layout_cycles(copy, views, hw, ("n",), Brought(far=frozenset(n))) for n in ("", "A"))
    size = 4 * 128 * columns
    from_caches = size / 24 + size / 62  # bytes per cycle of L3 and L2
    assert far - near == pytest.approx(size * rate / 10 - from_caches, rel=0.02)


def test_what_takes_more_than_half_of_a_shared_cache_is_gone_when_it_comes_round() -> None:
    """16 MiB of B in 32 MiB that others use, too: with rows of A outside they come anew for each tile. If
    they come once, they are as near as ever."""
    zen3 = load_named("x86_64_zen3")
    tile = {"m": 4, "n": 16}

    def fetched(columns: int, order: tuple[str, ...]) -> float:
        found = model("REG", *nest(64, columns, 4096), hw=zen3)
        parts = found.evaluate({n: np.asarray(s) for n, s in tile.items()}, order).parts
        return float(parts.get("DRAM to L3", 0.0))

    assert fetched(1024, ("m", "n")) == 15 * 1024 * 4096  # cycles, for 4 bytes each
    assert fetched(1024, ("n", "m")) == fetched(512, ("m", "n")) == 0


def test_instructions_alone_show_that_a_layout_takes_too_long() -> None:
    block, views = nest(64, 64, 64)
    exact = layout_cycles(block, views, AVX512, ("n",))
    alone = instruction_cycles(block, views, AVX512, ("n",))
    assert alone < exact
    assert layout_cycles(block, views, AVX512, ("n",), below=alone) == alone  # no less: that is all one asks
    assert layout_cycles(block, views, AVX512, ("n",), below=alone + 1) == exact
