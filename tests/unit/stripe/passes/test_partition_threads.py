"""partition for units that share their memories: nests cut at any level, small ones left."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.ir import Block, Program
from stripe.passes.partition import Partition
from stripe.visit import walk
from tests.support.passes import check_pass, program_of
from tests.support.threads import with_cores

CORES = Partition(unit="CORE")
SUMS = Partition(unit="CORE", sums=True)


def cpu(count: int, startup_cycles: float = 0.0, handover_cycles: float = 0.0) -> HwConfig:
    hw = with_cores(load_named("generic"), count, startup_cycles)
    units = tuple(msgspec.structs.replace(u, handover_cycles=handover_cycles) for u in hw.units)
    return msgspec.structs.replace(hw, units=units)


def spread(program: Program) -> list[Block]:
    return [b for _, b in walk(program.root) if b.location is not None and b.location.bank is not None]


def rows(tiles: int, size: int, columns: int) -> Program:
    count = tiles * size
    return program_of(f"""
        block main [] (
          in X[0, 0] f32({count}, {columns}):({columns}, 1)
          out R[0]:assign f32({count}):(1)
        ) {{
          block r [i:{tiles}] (
            in X[{size}*i, 0] f32({size}, {columns}):({columns}, 1)
            out R[{size}*i]:add f32({size}):(1)
          ) #tiled {{
            block r [i:{size}, k:{columns}] (
              in X[i, k] f32(1, 1):({columns}, 1)
              out R[i]:add f32(1):(1)
            ) {{
              $x = load(X) f32
              R = store($x)
            }}
          }}
        }}
    """)


@pytest.mark.parametrize(
    ("tiles", "size", "count", "level", "piece"),
    [
        (8, 10, 4, 0, 2),  # 2 tiles each
        (5, 12, 4, 1, 3),  # 5 tiles don't divide by 4; 12 rows of each do
        (7, 11, 2, 1, 6),  # 6 of 11 rows are less than 4 of 7 tiles
        (3, 7, 3, 0, 1),
    ],
)
def test_the_level_that_gives_the_most_even_parts(
    tiles: int, size: int, count: int, level: int, piece: int
) -> None:
    result, (remark,) = check_pass(rows(tiles, size, 6), CORES, cpu(count), again=False)
    assert remark.data["level"] == level
    assert remark.data["sizes"] == {"i": piece}
    (block,) = spread(result)
    assert block.location is not None and block.location.unit == "CORE"


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 7), st.integers(1, 9), st.integers(1, 3), st.integers(2, 7))
def test_any_nest_computes_the_same_in_parts(tiles: int, size: int, columns: int, count: int) -> None:
    result, remarks = check_pass(rows(tiles, size, columns), CORES, cpu(count), again=False)
    assert bool(spread(result)) == any(r.acted for r in remarks) == (tiles * size > 1)


def test_a_second_run_changes_nothing() -> None:
    result, _ = check_pass(rows(8, 10, 6), CORES, cpu(4), again=False)
    again, (remark,) = check_pass(result, CORES, cpu(4))
    assert again is result and remark.message == "it runs on CORE already"


def test_one_core_has_nothing_to_deal_out() -> None:
    for step in (CORES, SUMS):
        program = rows(8, 10, 6)
        result, (remark,) = check_pass(program, step, cpu(1))
        assert result is program and "compiled for one thread" in remark.message


def test_what_takes_less_than_to_start_the_threads_stays() -> None:
    """480 additions, and 640 KiB: 4 cycles for 16 bytes of L2, half of them on each thread."""
    program = rows(8, 10, 6)
    for startup, acts in ((200.0, True), (20000.0, False)):
        result, (remark,) = check_pass(program, CORES, cpu(2, startup), again=False)
        assert remark.acted == acts == bool(spread(result))
    assert "to start 2 CORE takes 20000" in remark.message


def elementwise(sizes: list[int]) -> Program:
    """A kernel for each size."""
    names = [f"r{number}" for number in range(len(sizes))]
    signature = " ".join(
        f"in X_{n}[0] f32({size}):(1)  out {n}[0]:assign f32({size}):(1)"
        for n, size in zip(names, sizes, strict=True)
    )
    kernels = "\n".join(
        f"""block {n} [i:{size}] (in X_{n}[i] f32(1):(1)  out {n}[i]:assign f32(1):(1)) {{
              $x = load(X_{n}) f32
              $y = exp($x) f32
              {n} = store($y)
            }}"""
        for n, size in zip(names, sizes, strict=True)
    )
    return program_of(f"block main [] ({signature}) {{\n{kernels}\n}}")


@pytest.mark.parametrize(
    ("sizes", "startup", "reason"),
    [
        ([1000], 6000.0, "to start 2 CORE takes 6000"),  # about 16 cycles each: half, less the hand-over
        ([1000, 1000], 6000.0, ""),  # threads are woken once for both, which are handed over once
        ([1000, 10, 1000], 6000.0, ""),  # what alone is too small to be handed over goes with them
        ([10] * 9, 0.0, "to hand it over takes 3000"),
    ],
)
def test_threads_are_woken_for_a_program_and_take_over_kernels(
    sizes: list[int], startup: float, reason: str
) -> None:
    result, remarks = check_pass(elementwise(sizes), CORES, cpu(2, startup, 3000.0), again=False)
    assert len(spread(result)) == (0 if reason else 1)
    assert [r.acted for r in remarks] == [not reason] * len(sizes)
    assert all(reason in r.message for r in remarks)
    if not reason:
        assert all("handed over with r0" in r.message for r in remarks[1:])


def reader(how: str, rows: int = 8, others: int = 1, outermost: str = "n") -> Program:
    """A copy P of B, and the products of its rows with the rows of A."""
    loops = sorted((f"n:{rows}", f"m:{others}"), key=lambda loop: not loop.startswith(outermost))
    return program_of(f"""
        block main [] (
          in B[0, 0] f32({rows}, 8):(8, 1)
          in A[0, 0] f32({others}, 8):(8, 1)
          out C[0, 0]:assign f32({others}, {rows}):({rows}, 1)
          new P f32({rows}, 8):(8, 1)
        ) {{
          block pack [k:8, n:{rows}] (in B[n, k] f32(1, 1):(8, 1)  out P[n, k]:assign f32(1, 1):(8, 1)) {{
            $b = load(B) f32
            P = store($b)
          }}
          block u [{", ".join(loops)}, k:8] (
            in P[{how}, k] f32(1, 1):(8, 1)
            in A[m, k] f32(1, 1):(8, 1)
            out C[m, n]:add f32(1, 1):({rows}, 1)
          ) {{
            $p = load(P) f32
            $a = load(A) f32
            $c = mul($a, $p) f32
            C = store($c)
          }}
        }}
    """)


@pytest.mark.parametrize(("how", "regions"), [("n", ["u"]), ("7 - n", ["pack", "u"])])
def test_neighbours_go_together_where_each_unit_reads_what_it_wrote(how: str, regions: list[str]) -> None:
    result, remarks = check_pass(reader(how), CORES, cpu(8), again=False)
    assert [block.name for block in spread(result)] == regions
    if len(regions) == 1:
        assert [r.data["sizes"] for r in remarks] == [{"n": 1}, {"n": 1}]


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(2, 5))
def test_any_neighbours_compute_the_same_together(rows: int, others: int, count: int) -> None:
    check_pass(reader("n", rows, others), CORES, sharing(cpu(count), 0.5), again=False)


@pytest.mark.parametrize(("handover", "turns"), [(0.0, 10), (450.0, 8), (4000.0, 1)])
def test_a_turn_takes_longer_than_to_take_it(handover: float, turns: int) -> None:
    """40 rows for each thread: 10 turns are alike, and as many as can be would be 16."""
    _, (remark,) = check_pass(rows(80, 1, 96), CORES, cpu(2, 0.0, handover), again=False)
    assert remark.data["turns"] == turns
    assert (f"each taken in {turns}" in remark.message) == (turns > 1)


@pytest.mark.parametrize(
    ("tiles", "lines", "turns", "ranges"),
    [
        (4, 12, 12, [2, 2, 6]),  # 16 would be 8 of each tile, which 12 lines don't divide into
        (4, 7, 14, [2, 2, 7]),
        (8, 7, 28, [2, 4, 7]),  # 7 rather than none
        (8, 11, 4, [2, 4]),  # 11 are too many
        (20, 12, 10, [2, 10]),  # two turns of each would be 20
    ],
)
def test_turns_go_further_in_where_the_outermost_loop_is_short(
    tiles: int, lines: int, turns: int, ranges: list[int]
) -> None:
    result, (remark,) = check_pass(rows(tiles, lines, 96), CORES, cpu(2, 0.0, 0.0), again=False)
    assert remark.data["turns"] == turns
    (block,) = spread(result)
    assert list(block.ranges.values()) == ranges


@pytest.mark.parametrize(("loops", "turns"), [("a:8, j:8", 16), ("j:8, a:8", 2)])
def test_turns_stay_where_one_would_write_what_another_writes(loops: str, turns: int) -> None:
    """Two nests write each row of Y, both along `a` first, or not."""
    program = program_of(f"""
        block main [] (
          in X[0, 0, 0] f32(4, 8, 8):(64, 8, 1)
          out Y[0, 0, 0]:assign f32(4, 8, 8):(64, 8, 1)
        ) {{
          block fill [i:4, a:8, j:8] (out Y[i, a, j]:assign f32(1, 1, 1):(64, 8, 1)) {{
            $z = constant(0.0) f32
            Y = store($z)
          }}
          block copy [i:4, {loops}] (
            in X[i, a, j] f32(1, 1, 1):(64, 8, 1)
            out Y[i, a, j]:assign f32(1, 1, 1):(64, 8, 1)
          ) {{
            $x = load(X) f32
            Y = store($x)
          }}
        }}
    """)
    result, remarks = check_pass(program, CORES, cpu(2, 0.0, 0.0), again=False)
    assert [remark.data["turns"] for remark in remarks] == [turns, turns]
    assert len(spread(result)) == 1


def test_nests_inside_loops_are_dealt_out_where_the_whole_is_uneven() -> None:
    """Of 3 tiles two threads have 2 and 1; of each tile's two nests both have half."""
    program = program_of("""
        block main [] (in X[0, 0] f32(3, 4000):(4000, 1)  out R[0, 0]:assign f32(3, 4000):(4000, 1)) {
          block r [i:3] (
            in X[i, 0] f32(1, 4000):(4000, 1)
            out R[i, 0]:assign f32(1, 4000):(4000, 1)
            new T f32(4000):(1)
          ) {
            block t [j:4000] (in X[0, j] f32(1, 1):(4000, 1)  out T[j]:assign f32(1):(1)) {
              $x = load(X) f32
              $y = exp($x) f32
              T = store($y)
            }
            block u [j:4000] (in T[j] f32(1):(1)  out R[0, j]:assign f32(1, 1):(4000, 1)) {
              $x = load(T) f32
              $y = log($x) f32
              R = store($y)
            }
          }
        }
    """)
    for handover, cut in ((500.0, ["t", "u"]), (20000.0, ["r"])):
        result, remarks = check_pass(program, CORES, cpu(2, 0.0, handover), again=False)
        assert [b.name for b in spread(result)] == cut
        assert [r.block for r in remarks if r.acted] == [f"main/r/{n}" if n != "r" else "main/r" for n in cut]


def test_two_views_of_what_is_written_are_cut_at_the_outermost_block_or_not_at_all() -> None:
    """Views of the whole buffer would show the same elements: the 3 tiles are cut, not their rows."""
    program = program_of("""
        block main [] (in X[0] f32(48):(1)  out R[0]:assign f32(48):(1)) {
          block r [i:3] (
            in X[16*i] f32(16):(1)
            out R[16*i]:assign f32(8):(1)
            out Q = R[16*i + 8]:assign f32(8):(1)
          ) {
            block both [j:8] (
              in X[j] f32(1):(1)
              in Y = X[j + 8] f32(1):(1)
              out R[j]:assign f32(1):(1)
              out Q[j]:assign f32(1):(1)
            ) {
              $x = load(X) f32
              $y = load(Y) f32
              R = store($y)
              Q = store($x)
            }
          }
        }
    """)
    _, (remark,) = check_pass(program, CORES, cpu(2), again=False)
    assert remark.data["level"] == 0 and remark.data["sizes"] == {"i": 2}


def test_overlapping_sums_are_not_cut() -> None:
    program = program_of("""
        block main [] (in X[0] f32(40):(1)  out R[0]:assign f32(43):(1)) {
          block r [t:40, i:4] (in X[t] f32(1):(1)  out R[t + i]:add f32(1):(1)) {
            $x = load(X) f32
            R = store($x)
          }
        }
    """)
    result, (remark,) = check_pass(program, CORES, cpu(3))
    assert result is program and remark.message == "not cut: two units would write one element"


def packing(steps: int = 3, rows: int = 6) -> Program:
    """A loop, too short to be divided evenly, over a copy and what reads all of it."""
    return program_of(f"""
        block main [] (
          in X[0, 0] f32({steps}, 8):(8, 1)
          in A[0, 0] f32({rows}, 8):(8, 1)
          out C[0, 0]:assign f32({steps}, {rows}):({rows}, 1)
        ) {{
          block t [i:{steps}] (
            in X[i, 0] f32(1, 8):(8, 1)
            in A[0, 0] f32({rows}, 8):(8, 1)
            out C[i, 0]:assign f32(1, {rows}):({rows}, 1)
            new P f32(8):(1)
          ) #tiled {{
            block pack [k:8] (in X[0, k] f32(1, 1):(8, 1)  out P[k]:assign f32(1):(1)) {{
              $x = load(X) f32
              P = store($x)
            }}
            block u [m:{rows}, k:8] (
              in P[k] f32(1):(1)
              in A[m, k] f32(1, 1):(8, 1)
              out C[0, m]:add f32(1, 1):({rows}, 1)
            ) {{
              $p = load(P) f32
              $a = load(A) f32
              $c = mul($p, $a) f32
              C = store($c)
            }}
          }}
        }}
    """)


def sharing(hw: HwConfig, rate: float) -> HwConfig:
    units = tuple(msgspec.structs.replace(u, shared_bytes_per_cycle=rate) for u in hw.units)
    return msgspec.structs.replace(hw, units=units)


@pytest.mark.parametrize(
    ("hw", "whole"),
    [
        (cpu(2), False),  # both nests inside, one after the other
        (cpu(2, handover_cycles=20.0), True),  # twice for each of three steps
        (sharing(cpu(2), 1.0), True),  # each would wait for what the other one has read
        (sharing(cpu(2), 100.0), False),
    ],
)
def test_units_make_for_themselves_what_they_all_read(hw: HwConfig, whole: bool) -> None:
    result, remarks = check_pass(packing(), CORES, hw, again=False)
    acted = [r for r in remarks if r.acted]
    assert [r.block for r in acted] == (["main/t"] if whole else ["main/t/pack", "main/t/u"])
    if whole:
        (block,) = spread(result)
        (step,) = block.children
        assert step.ranges == {"i": 3}
        assert [list(nest.ranges.values()) for nest in step.children] == [[8], [3, 8]]


def with_a_rest(steps: int = 3, rows: int = 6, step: str = "i") -> Program:
    """A loop, too short to be divided evenly, over rows of sums and one sum more, which can't be divided. Its
    steps are rows of results, or add to the first one if `step` is "0"."""
    how, results = ("assign", steps) if step == "i" else ("add", 1)
    return program_of(f"""
        block main [] (
          in X[0, 0] f32({steps}, 8):(8, 1)
          in A[0, 0] f32({rows + 1}, 8):(8, 1)
          out C[0, 0]:assign f32({results}, {rows + 1}):({rows + 1}, 1)
        ) {{
          block t [i:{steps}] (
            in X[i, 0] f32(1, 8):(8, 1)
            in A[0, 0] f32({rows + 1}, 8):(8, 1)
            out C[{step}, 0]:{how} f32(1, {rows + 1}):({rows + 1}, 1)
          ) #tiled {{
            block u [m:{rows}, k:8] (
              in X[0, k] f32(1, 1):(8, 1)
              in A[m, k] f32(1, 1):(8, 1)
              out C[0, m]:add f32(1, 1):({rows + 1}, 1)
            ) {{
              $x = load(X) f32
              $a = load(A) f32
              $c = mul($x, $a) f32
              C = store($c)
            }}
            block rest [k:8] (
              in X[0, k] f32(1, 1):(8, 1)
              in A[{rows}, k] f32(1, 1):(8, 1)
              out C[0, {rows}]:add f32(1, 1):({rows + 1}, 1)
            ) {{
              $x = load(X) f32
              $a = load(A) f32
              $c = mul($x, $a) f32
              C = store($c)
            }}
          }}
        }}
    """)


@pytest.mark.parametrize(
    ("step", "least", "bounds"), [("i", 1 / 2, ["i - 2*m_2", "2*m_2 - i + 1"]), ("0", 4 / 7, ["m_2 - 1"])]
)
def test_what_can_not_be_divided_inside_is_left_to_one_unit(
    step: str, least: float, bounds: list[str]
) -> None:
    """Three of six rows and the one beside them are 4 of 7, with more loops that begin; two of three steps
    are more. But where steps are rows of results, each unit runs the one beside them in its own steps."""
    result, (remark,) = check_pass(
        with_a_rest(step=step), CORES, sharing(cpu(2, handover_cycles=20.0), 100.0), again=False
    )
    assert remark.acted
    largest = remark.data["largest"]
    assert isinstance(largest, float) and least <= largest < least + 0.1
    (block,) = spread(result)
    (inside,) = block.children
    rows, rest = inside.children
    assert list(rows.ranges.values()) == [3, 8]
    assert [str(c.expr) for c in rest.constraints] == bounds


def test_a_nest_of_what_can_not_be_divided_is_none_to_divide_inside() -> None:
    """Of a single row there is nothing to share: the steps are dealt out."""
    _, (remark,) = check_pass(with_a_rest(rows=1), CORES, cpu(2, handover_cycles=20.0), again=False)
    assert remark.data["sizes"] == {"i": 2}


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(1, 7), st.integers(2, 5), st.sampled_from("i0"))
def test_any_nest_with_a_rest_computes_the_same(steps: int, rows: int, count: int, step: str) -> None:
    check_pass(with_a_rest(steps, rows, step), CORES, cpu(count, handover_cycles=20.0), again=False)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(1, 7), st.integers(2, 5))
def test_any_nest_computes_the_same_divided_inside(steps: int, rows: int, count: int) -> None:
    check_pass(packing(steps, rows), CORES, sharing(cpu(count), 0.1), again=False)


def test_a_nest_is_cut_where_units_read_what_they_wrote() -> None:
    for hw, along in ((cpu(2), "m"), (sharing(cpu(2), 0.5), "n")):
        _, remarks = check_pass(reader("n", 8, 8, "m"), CORES, hw, again=False)
        (cut,) = [r for r in remarks if r.block == "main/u"]
        assert cut.data["sizes"] == {along: 4}


@pytest.mark.parametrize(("stride", "op"), [(1, "neg"), (2, "neg"), (1, "exp")])
def test_what_a_nest_saves_counts_strided_loads_and_functions(stride: int, op: str) -> None:
    """A loop over 1024 elements: 256 vectors of 4 and a hand-over of 300 cycles; only the dear ones pay."""
    program = program_of(f"""
        block main [] (in X[0] f32({1024 * stride}):(1)  out R[0]:assign f32(1024):(1)) {{
          block r [i:1024] (in X[{stride}*i] f32(1):(1)  out R[i]:assign f32(1):(1)) #vector=i {{
            $x = load(X) f32
            $y = {op}($x) f32
            R = store($y)
          }}
        }}
    """)
    _, (remark,) = check_pass(program, CORES, cpu(2, 0.0, 300.0), again=False)
    assert remark.acted == (stride > 1 or op == "exp")
