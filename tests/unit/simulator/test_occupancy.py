"""Bytes that are alive over time: worked out by hand, and the same where periods are not gone through."""

from __future__ import annotations

import pytest

import stripec
from simulator import simulate
from simulator.occupancy import LIMIT, Level
from simulator.timeline import Timeline
from tests.support.passes import program_of
from tests.unit.simulator.test_timeline import COPY, TILES, WORK, machine


def changes(text: str, memory: str) -> list[tuple[float, int]]:
    found = simulate(program_of(text), machine())
    (own,) = (o for o in found.occupancy if o.memory == memory)
    assert own.most == max(own.bytes)
    return list(zip(own.cycles, own.bytes, strict=True))


def tiles(points: int, inflight: bool = True) -> str:
    text = TILES.replace("i:4", f"i:{points}").replace("f32(128)", f"f32({32 * points})")
    return text.replace("@FAR:512", f"@FAR:{128 * points}").replace(
        "INFLIGHT", "inflight=2 " if inflight else ""
    )


def test_a_buffer_is_alive_from_its_first_use_to_its_last() -> None:
    step = COPY + WORK + COPY
    expected: list[tuple[float, int]] = [(0, 128)]
    for at in range(0, 4 * step, step):  # N is filled, M beside it while both are used, then M written back
        expected += [(at + COPY, 256), (at + COPY + WORK, 128)]  # the N of the next point follows M
    assert changes(tiles(4, inflight=False), "NEAR") == [*expected, (4 * step, 0)]


def test_inputs_are_alive_all_the_time_and_outputs_from_their_first_use() -> None:
    text = """
    block main [] (
      in A[0] f32(64):(1) @FAR:0
      out R[0]:assign f32(64):(1) @FAR:512
      out S[0]:assign f32(64):(1) @FAR:1024
    ) {
      block one [x:64] @DMA (in A[x] f32(1)  out R[x]:assign f32(1)) { $v = load(A) f32  R = store($v) }
      block two [x:64] @DMA (in A[x] f32(1)  out S[x]:assign f32(1)) { $v = load(A) f32  S = store($v) }
    }
    """
    assert changes(text, "FAR") == [(0, 512), (10 + 64 * 4 // 8, 768)]


@pytest.mark.parametrize("inflight", [False, True])
def test_what_repeats_is_alive_as_if_it_was_gone_through(inflight: bool) -> None:
    root = program_of(tiles(80, inflight)).root
    full, quick = (Timeline(root, machine(), extrapolate, 300) for extrapolate in (False, True))
    full.run()
    quick.run()
    assert quick.skipped > 60
    assert quick.occupancy.levels == full.occupancy.levels
    assert quick.trace == full.trace
    assert len(quick.trace) == 240


def test_a_trace_of_what_repeats_ends_at_its_limit() -> None:
    found = simulate(program_of(tiles(1000)), machine(), trace=500)
    assert len(found.trace) == 500
    assert found.trace == simulate(program_of(tiles(1000)), machine(), trace=500, extrapolate=False).trace


def test_many_changes_become_few_that_stand_for_the_most() -> None:
    root = program_of(tiles(3000)).root
    full, quick = (Timeline(root, machine(), extrapolate) for extrapolate in (False, True))
    full.run()
    quick.run()
    assert not quick.occupancy.levels["NEAR"].exact
    for found in (full.occupancy.levels["NEAR"], quick.occupancy.levels["NEAR"]):
        most = found.most
        found.thin(LIMIT)
        assert found.most == most == 384
        assert len(found.ticks) <= LIMIT
        assert found.now == 0


def test_levels() -> None:
    level = Level()
    for tick, size in ((0, 5), (3, 5), (4, 9), (4, 7), (9, 7), (9, 5)):
        level.put(tick, size)
    assert (level.ticks, level.sizes) == ([0, 4, 9], [5, 7, 5])
    # At tick 4 the level is 7 in the end; what is put at 9 before is not part of the period.
    level.repeat(4, 9, 2)
    assert (level.ticks, level.sizes) == ([0, 4, 19], [5, 7, 5])
    level.put(20, 6)
    level.repeat(19, 21, 3)
    assert (level.ticks, level.sizes) == ([0, 4, *range(19, 27)], [5, 7, *[5, 6] * 4])
    assert level.exact


@pytest.mark.parametrize("target", ["systolic_16", "many_core", "vector_dsp"])
def test_what_is_alive_fits(target: str) -> None:
    kind = "i8" if target == "systolic_16" else "f32"
    found = stripec.simulate(
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        shapes={"A": f"{kind}[100,70]", "B": f"{kind}[70,90]"}, target=target,
    )  # fmt: skip
    near = {m.memory: m for m in found.memories}
    assert {o.memory for o in found.occupancy} == {m.memory for m in found.memories if m.peak}
    for own in found.occupancy:
        assert own.exact
        assert 0 < own.most <= near[own.memory].peak
        assert own.cycles == sorted(set(own.cycles))
        assert all(a != b for a, b in zip(own.bytes, own.bytes[1:], strict=False))
