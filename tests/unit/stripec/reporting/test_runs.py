"""How a program runs, in a report: counters between passes, the run, its timeline, its energy; two runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

import stripec
from stripe.diag import CompileError, Diagnostic
from stripec.driver import read_program, resolve_target
from stripec.reporting import simulated
from stripec.reporting.cache_counts import CacheCounting
from stripec.reporting.compare import compare
from stripec.reporting.draw_time import LEVEL, draw_lane, draw_level
from stripec.reporting.figures import MemoryMaps
from stripec.reporting.model import Report, Section
from stripec.reporting.render import MAX_LINES, render, render_comparison
from stripec.reporting.runs import (
    Alive,
    CachesDrawn,
    EnergyShares,
    Lane,
    LaneTask,
    PassCounts,
    SimulatedRun,
    TimelineDrawn,
)
from stripec.reporting.words import amount_text, difference_text, rate_text, time_text
from tests.support.html import read
from tests.unit.stripec.reporting.conftest import made

S = TypeVar("S", bound=Section)
PLACED = ("systolic_16", "many_core", "vector_dsp")
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"


def find(report: Report, kind: type[S]) -> S:
    found = report.find(kind)
    assert found is not None
    return found


@pytest.mark.parametrize("target", PLACED)
def test_counters_end_where_the_run_begins(target: str) -> None:
    counts, run = find(made(target), PassCounts), find(made(target), SimulatedRun)
    first, last = counts.rows[0].counters, counts.rows[-1].counters
    assert first is not None and last is not None and run.found is not None
    assert first.cycles is None and "unit" in first.note
    assert last.cycles == run.found.cycles and not last.note
    for memory in run.found.memories:
        assert last.bytes_of(memory.memory) == memory.read + memory.written + memory.updated
    assert last.operations == first.operations == run.found.operations
    assert {row.number for row in counts.rows} | set(counts.same) == set(
        range(len(counts.same) + len(counts.rows))
    )


@pytest.mark.parametrize("target", PLACED)
def test_bounds_are_beside_the_run(target: str) -> None:
    report = made(target)
    run = find(report, SimulatedRun)
    assert run.found is not None
    assert all(bound.ours >= bound.compulsory > 0 for bound in run.found.bounds)
    texts = " ".join(read(render(report)).texts)
    assert "Bounds: what has to cross, and what does" in texts
    for bound in run.found.bounds:
        assert f"{bound.compulsory:,}" in texts


def test_passes_buy_less_traffic_of_the_farthest_memory() -> None:
    counts = find(made("systolic_16"), PassCounts)
    far = [(row.spec.partition("{")[0], row.counters.bytes_of("DRAM")) for row in counts.rows if row.counters]
    by_pass = dict(far)
    assert by_pass["before the first pass"] > 10 * by_pass["stencil"]
    assert by_pass["autotile"] > by_pass["localize"] > by_pass["transfer"] == by_pass["place"]
    number = next(row.number for row in counts.rows if row.spec.startswith("transfer"))
    around = counts.around(number)
    assert around is not None
    assert [c.bytes_of("DRAM") for c in around] == [by_pass["localize"], by_pass["transfer"]]
    assert counts.around(1) is None


def test_points_in_flight_are_bought_by_the_pass_that_sets_them() -> None:
    counts = find(made("many_core"), PassCounts)
    cycles = {r.spec.partition("{")[0]: r.counters for r in counts.rows if r.counters}
    before, after = cycles["transfer"], cycles.get("schedule")
    if after is not None:
        assert before.cycles and after.cycles and after.cycles <= before.cycles
    assert "without addresses yet" in before.note and "SRAM keeps nobody waiting" in before.note


@pytest.mark.parametrize("target", PLACED)
def test_the_time_of_a_unit_is_all_accounted_for(target: str) -> None:
    run = find(made(target), SimulatedRun)
    assert run.units
    for unit in run.units:
        parts = unit.busy + sum(s for _, s in unit.stalled) + sum(s for _, s in unit.idle)
        assert parts == pytest.approx(1, rel=1e-3)
        assert min(unit.work, unit.filling, unit.padding) >= -1e-9


def test_energy_shares_are_all_of_it() -> None:
    energy = find(made("systolic_16"), EnergyShares)
    assert sum(share.share for share in energy.shares) == pytest.approx(1)
    assert [s.total_pj for s in energy.shares] == sorted((s.total_pj for s in energy.shares), reverse=True)
    assert made("many_core").find(EnergyShares) is None, "it says no costs"


@pytest.mark.parametrize("target", PLACED)
def test_tasks_of_a_lane_follow_each_other(target: str) -> None:
    timeline = find(made(target), TimelineDrawn)
    assert timeline.shown == sum(len(lane.tasks) for lane in timeline.lanes) == timeline.total
    assert timeline.drawn == timeline.cycles
    for lane in timeline.lanes:
        assert all(a.end <= b.begin for a, b in zip(lane.tasks, lane.tasks[1:], strict=False))
    maps = {m.memory: m for m in find(made(target), MemoryMaps).maps if m.program == "root"}
    for own in timeline.alive:
        assert maps[own.memory].alive == own
        assert own.most <= maps[own.memory].peak


def test_of_a_long_run_only_the_first_tasks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_TASKS", 7)
    monkeypatch.setattr(simulated, "MAX_LANES", 5)
    report = stripec.report(PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "many_core", times=False)
    timeline = find(report, TimelineDrawn)
    assert timeline.shown == 7 < timeline.total
    assert timeline.drawn < timeline.cycles
    assert len(timeline.lanes) == 5 and "beyond the first 5" in timeline.left_out[0]
    texts = " ".join(read(render(report)).texts)
    assert f"of {timeline.total:,} are drawn" in texts


def test_a_run_that_is_too_long_is_counted_in_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_GONE", 3)
    monkeypatch.setattr(simulated, "MAX_GONE_BETWEEN", 3)
    report = stripec.report(PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "many_core", times=False)
    run, counts = find(report, SimulatedRun), find(report, PassCounts)
    assert run.found is not None and run.found.cycles is None and run.found.operations == 2 * 64**3
    assert "a run is more than 3 tasks" in run.notes[0]
    last = counts.rows[-1].counters
    assert last is not None and last.cycles is None and last.note == "a run is more than 3 tasks"
    assert report.find(TimelineDrawn) is None
    assert not read(render(report)).faults


def test_a_program_that_is_not_placed_is_not_run() -> None:
    report = stripec.report(
        PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "many_core", pipeline="canonicalize", times=False
    )
    run = find(report, SimulatedRun)
    assert run.found is None and run.missing.startswith("the program is not placed: ")
    assert report.find(TimelineDrawn) is None and report.find(EnergyShares) is None
    assert find(report, PassCounts).rows[0].counters is not None
    assert any("No run: the program is not placed" in text for text in read(render(report)).texts)


def test_neighbours_of_one_nest_are_drawn_as_one_where_tasks_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated, "MAX_DRAWN", 50)
    report = stripec.report(PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "many_core", times=False)
    timeline = find(report, TimelineDrawn)
    pieces = [task for lane in timeline.lanes for task in lane.tasks]
    assert len(pieces) <= 50 and timeline.short > 0 and timeline.drawn == timeline.cycles
    assert sum(task.count for task in pieces) == timeline.shown == timeline.total > 50
    for lane in timeline.lanes:
        assert all(a.end <= b.begin for a, b in zip(lane.tasks, lane.tasks[1:], strict=False))
        assert all(0 < task.busy <= task.end - task.begin for task in lane.tasks if task.count > 1)
    html = render(report)
    assert "are drawn as one" in html and 'data-n="' in html


def test_tasks_are_joined_within_a_nest_and_without_long_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_DRAWN", 3)
    nests = ["a/n", "a/n", "b"]
    tasks = (
        LaneTask(0, 0, 2, 0, ""), LaneTask(1, 2, 5, 1, "M"), LaneTask(0, 5, 6, 0, ""),
        LaneTask(2, 6, 8, 0, ""), LaneTask(0, 5000, 9000, 0, ""),
    )  # fmt: skip
    lanes, short = simulated.joined({("U", 0): tasks}, 9000, nests)
    assert lanes["U", 0] == [LaneTask(0, 0, 6, 1, "M", 3, 6), tasks[3], tasks[4]] and 3 < short < 10
    assert simulated.joined({("U", 0): tasks[2:]}, 9000, nests) == ({("U", 0): tasks[2:]}, 0.0)


def test_on_caches_counters_end_where_the_run_begins() -> None:
    report = made("x86_64_avx512")
    run, counts = find(report, SimulatedRun), find(report, PassCounts)
    assert run.found is not None and run.found.cycles and counts.cached
    first, last = counts.rows[0].counters, counts.rows[-1].counters
    assert first is not None and last is not None
    assert last.cycles == run.found.cycles and not last.note
    l1 = next(m for m in run.found.memories if m.memory == "L1")
    assert last.bytes_of("L1") == l1.read + l1.written < first.bytes_of("L1") / 8
    busy = {unit.unit: unit.busy for unit in run.found.units}
    assert last.busy_of("CORE") == pytest.approx(busy["CORE"])
    assert run.alive("L1") == 32768, "full"
    assert report.find(EnergyShares) is None, "it says no costs"


def test_what_crosses_between_caches_is_what_they_fetch_and_write_back() -> None:
    report = made("x86_64_avx512")
    caches, run = find(report, CachesDrawn), find(report, SimulatedRun)
    assert run.found is not None and caches.caches == tuple(run.found.caches)
    ends = [(own.near, own.far) for own in caches.boundaries]
    assert ends == [("CORE", "L1"), ("L1", "L2"), ("L2", "L3"), ("L3", "DRAM")]
    for cache, own in zip(caches.caches, caches.boundaries[1:], strict=True):
        assert (own.near, own.inward, own.outward) == (cache.memory, cache.fetched, cache.written_back)
    l1 = next(m for m in run.found.memories if m.memory == "L1")
    assert (caches.boundaries[0].inward, caches.boundaries[0].outward) == (l1.read + l1.updated, l1.written)
    page = read(render(report))
    assert "caches" in page.ids and not page.faults
    said = " ".join(page.texts)
    for cache in caches.caches:
        assert f"{cache.misses:,}" in said and f"{cache.sets:,} sets" in said


def test_buffers_beyond_the_colours_are_shown_together(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "function (" + ", ".join(f"A{n}[N]" for n in range(9)) + ") -> (R) { R = "
    source += " + ".join(f"A{n}" for n in range(9)) + "; }"
    report = stripec.report(
        source, {f"A{n}": "f32[4096]" for n in range(9)}, "x86_64_avx512", times=False, verify="off"
    )
    caches = find(report, CachesDrawn)
    assert len(caches.buffers) == 7
    for own in caches.boundaries:
        assert own.crossed[-1].buffer == "" and own.inward >= 9 * 4096 * 4
    assert "other buffers" in read(render(report)).texts


def test_hundreds_of_kernels_that_differ_are_counted_on_caches() -> None:
    count = 150
    inputs = ", ".join(f"x{n}[{n + 9}] : f32" for n in range(count))
    lines = " ".join(f"y{n} = x{n} + x{n};" for n in range(count))
    read = read_program(
        f"function net({inputs}) -> ({', '.join(f'y{n}' for n in range(count))}) {{ {lines} }}"
    )
    program = read.lower(read.fixed_types(), ())
    found = CacheCounting(resolve_target("generic")).of(program, None)
    assert found is not None and found.operations == sum(n + 9 for n in range(count))


def test_a_run_on_caches_that_is_too_long_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_VECTORS", 3)
    report = stripec.report(
        PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "x86_64_avx512", times=False, verify="off"
    )
    run = find(report, SimulatedRun)
    assert run.found is not None and run.found.cycles is None and run.found.operations == 2 * 64**3
    assert "`stripec simulate` goes through it" in run.notes[0]
    assert report.find(CachesDrawn) is None and report.find(TimelineDrawn) is None
    assert not read(render(report)).faults


def test_what_caches_can_not_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise CompileError(Diagnostic("U003", "main/C: the block keeps several points in flight"))

    monkeypatch.setattr("stripec.reporting.simulated.simulate", refused)
    report = stripec.report(
        PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "x86_64_avx512", times=False, verify="off"
    )
    run = find(report, SimulatedRun)
    assert run.found is None and "in flight" in run.missing and report.find(PassCounts) is None
    assert any("No run: " in text for text in read(render(report)).texts)


def test_strips_hold_every_task_and_every_step() -> None:
    lane = Lane(
        "U", 0.5, (LaneTask(0, 0, 4, 0, ""), LaneTask(1, 4, 6.5, 0.5, "<M>"), LaneTask(0, 8, 9, 0, ""))
    )
    found = TimelineDrawn(10, 10.0, 3, 3, ("a/<b>", "c"), (lane,), (), ())
    text = str(draw_lane(lane, found))
    assert re.findall(r'x="([0-9.]+)" width="([0-9.]+)"', text) == [("0", "4"), ("8", "1"), ("4", "2.5")]
    assert "&lt;b&gt;" in text and "<b>" not in text and 'data-s="0.5 &lt;M&gt;"' in text
    alive = Alive("M", (1.0, 4.0, 6.0), (50, 100, 0), 100, True, 100, 10.0)
    text = str(draw_level(alive, 10.0))
    assert f'd="M0 {LEVEL}H1V' in text and f'V{LEVEL}H10V{LEVEL}Z"' in text
    assert 'data-s="1,50 4,100 6,0"' in text and 'class="limit"' in text


def test_long_tables_say_what_is_left_out() -> None:
    report = made("many_core")
    run = find(report, SimulatedRun)
    assert run.found is not None
    many = msgspec.structs.replace(run.found, traffic=run.found.traffic * 200)
    html = render(replace(report, sections=(replace(run, found=many),)))
    more = len(many.traffic) - MAX_LINES
    assert f"Left out: {more:,} lines" in " ".join(read(html).texts)


def test_two_runs_are_compared_figure_by_figure() -> None:
    found = compare(made("systolic_16"), made("vector_dsp"))
    groups = {group.title: {f.name: f for f in group.figures} for group in found.runs}
    whole = groups["The run"]
    runs = [find(made(target), SimulatedRun).found for target in ("systolic_16", "vector_dsp")]
    assert runs[0] is not None and runs[1] is not None
    assert (whole["cycles"].a, whole["cycles"].b) == (runs[0].cycles, runs[1].cycles)
    assert groups["Bytes of memories"]["ACC, read"].b is None
    assert groups["Units, shares of the time"]["MAC, work"].kind == "share"
    names = [pair.name for pair in found.counts]
    assert names[0] == "before the first pass" and names[-1] == "place"
    place = found.counts[-1]
    assert place.a is not None and place.b is not None
    html = render_comparison(found)
    page = read(html)
    assert not page.faults and {"counts", "run", "timeline", "timeline-1", "timeline-2"} <= page.ids


def test_one_side_may_not_run() -> None:
    many_core = made("many_core")
    kept = (s for s in many_core.sections if not isinstance(s, PassCounts | SimulatedRun | TimelineDrawn))
    still = replace(many_core, sections=tuple(kept))
    for pair in ((still, many_core), (many_core, still)):
        page = read(render_comparison(compare(*pair)))
        assert not page.faults and {"counts", "run", "timeline"} <= page.ids
        assert "It was not simulated." in page.texts


def test_misses_of_two_runs_are_compared() -> None:
    found = compare(made("x86_64_avx512"), made("many_core"))
    groups = {group.title: {f.name: f for f in group.figures} for group in found.runs}
    run = find(made("x86_64_avx512"), SimulatedRun).found
    assert run is not None
    lines = groups["Lines of caches"]
    assert [lines[f"{c.memory}, misses"].a for c in run.caches] == [c.misses for c in run.caches]
    assert lines["L1, misses"].b is None
    page = read(render_comparison(found))
    assert not page.faults and {"counts", "run", "caches", "timeline"} <= page.ids
    assert "No cache was looked up." in page.texts


def test_a_report_of_a_layer_is_small(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    stripec.report(PRODUCT, {"A": "f32[256,256]", "B": "f32[256,256]"}, "many_core", out, times=False)
    assert out.stat().st_size < 1_500_000


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (amount_text(0), "0"), (amount_text(999), "999 B"), (amount_text(1_820_000), "1.82 MB"),
        (difference_text(100, 25), "\N{DIVISION SIGN} 4"),
        (difference_text(10, 32), "\N{MULTIPLICATION SIGN} 3.2"),
        (difference_text(100, 93), "-7%"), (difference_text(10, 0), "-100%"),
        (rate_text(131_072), "131,072"), (rate_text(48.5714), "48.6"),
        (difference_text(1e9, 1e9 + 1), "+<0.01%"), (difference_text(1e9, 1e9 - 1), "-<0.01%"),
        (time_text(1.5), "1.5 s"), (time_text(0.0015), "1.5 ms"), (time_text(4e-9), "4 ns"),
    ],
)  # fmt: skip
def test_words(said: str, expected: str) -> None:
    assert said == expected
