"""Times of small programs, worked out by hand from the rules in simulator/timeline.py."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hwconfigs.model import HwConfig
from simulator import simulate
from simulator.running import TICKS
from simulator.timeline import Timeline
from tests.support.passes import program_of

# A copy takes 10 cycles and 1 for each 8 bytes; a vector of 4 f32 takes 1 for each operation.
MACHINE: dict[str, Any] = {
    "name": "small",
    "description": "for tests",
    "executor": "interpreter",
    "memories": [
        {"name": "NEAR", "kind": "explicit", "bytes": 4096, "banks": 2, "align_bytes": 16, "backing": "FAR"},
        {"name": "FAR", "kind": "explicit", "align_bytes": 16},
    ],
    "units": [
        {"name": "VEC", "vector_bytes": 16, "reaches": ["NEAR"]},
        {
            "name": "DMA", "kind": "transfer", "bytes_per_cycle": 8, "startup_cycles": 10,
            "reaches": ["NEAR", "FAR"],
        },
    ],
}  # fmt: skip

TILES = """
block main [] (
  in A[0] f32(128):(1) @FAR:0
  out R[0]:assign f32(128):(1) @FAR:512
) {
  block t [i:4] INFLIGHT(
    in A[32*i] f32(32)
    out R[32*i]:assign f32(32)
    new N f32(32):(1) @NEAR[slot]:0
    new M f32(32):(1) @NEAR[slot]:512
  ) #tiled {
    block load [x:32] @DMA (in A[x] f32(1)  out N[x]:assign f32(1)) { $v = load(A) f32  N = store($v) }
    block work [x:32] @VEC (in N[x] f32(1)  out M[x]:assign f32(1)) {
      $v = load(N) f32
      $a = mul($v, $v) f32
      $b = mul($a, $v) f32
      M = store($b)
    }
    block save [x:32] @DMA (in M[x] f32(1)  out R[x]:assign f32(1)) { $v = load(M) f32  R = store($v) }
  }
}
"""
COPY = 10 + 32 * 4 // 8  # 26
WORK = 32 // 4 * 2  # 16


def machine(**changes: Any) -> HwConfig:
    """The machine with other keys of memories and units: NAME={"key": value}."""
    told = json.loads(json.dumps(MACHINE))
    for part in (*told["memories"], *told["units"]):
        part |= changes.get(part["name"], {})
    return msgspec.convert(told, HwConfig)


def timeline(text: str, hw: HwConfig, extrapolate: bool = False) -> Timeline:
    found = Timeline(program_of(text).root, hw, extrapolate)
    found.run()
    return found


def cycles(text: str, hw: HwConfig) -> float:
    return timeline(text, hw).now / TICKS


def test_one_point_at_a_time_takes_the_sum() -> None:
    assert cycles(TILES.replace("INFLIGHT", ""), machine()) == 4 * (COPY + WORK + COPY)


def test_points_in_flight_hide_work_behind_copies() -> None:
    # The transfer unit never waits: 2 copies of each of 4 points, and the work of the last before its result.
    found = timeline(TILES.replace("INFLIGHT", "inflight=2 "), machine())
    assert found.totals.busy["DMA", 0] == 8 * COPY * TICKS
    assert found.totals.busy["VEC", 0] == 4 * WORK * TICKS
    assert found.now / TICKS < 4 * (COPY + WORK + COPY)
    assert found.now / TICKS >= 8 * COPY


def test_every_cycle_of_a_unit_is_accounted_for() -> None:
    found = timeline(TILES.replace("INFLIGHT", "inflight=2 "), machine(NEAR={"bytes_per_cycle": 4}))
    for unit in (("DMA", 0), ("VEC", 0)):
        parts = found.totals.busy[unit]
        parts += sum(n for (u, _), n in found.totals.stalled.items() if u == unit)
        parts += sum(n for (u, _), n in found.totals.idle.items() if u == unit)
        assert parts == found.now


def test_a_slow_memory_stalls_the_unit() -> None:
    # 128 bytes in and 128 out at 4 bytes a cycle: 64 cycles instead of 16. A copy touches 128: 32, not 26.
    hw = machine(NEAR={"bytes_per_cycle": 4})
    found = timeline(TILES.replace("INFLIGHT", ""), hw)
    assert found.now / TICKS == 4 * (32 + 64 + 32)
    assert found.totals.stalled[("VEC", 0), "NEAR"] == 4 * (64 - WORK) * TICKS


IN_ONE_BANK = TILES.replace("@NEAR[slot]:0", "@NEAR[0]:128*slot").replace(
    "@NEAR[slot]:512", "@NEAR[0]:128*slot + 512"
)


def test_two_units_at_one_bank_share_what_it_delivers() -> None:
    apart, shared = (text.replace("INFLIGHT", "inflight=2 ") for text in (TILES, IN_ONE_BANK))
    hw = machine(NEAR={"bytes_per_cycle": 8})
    assert not timeline(apart, hw).totals.shared
    found = timeline(shared, hw)
    assert {bank for (bank, _), n in found.totals.shared.items() if n} == {("NEAR", 0)}
    assert found.now > timeline(apart, hw).now


def test_bank_conflicts_by_hand() -> None:
    """A copy of 256 bytes (42 cycles) beside work on 512 (64), in one bank of 8 bytes a cycle."""
    text = """
    block main [] (
      in A[0] f32(64):(1) @FAR:0
      in B[0] f32(64):(1) @NEAR[0]:0
      out R[0]:assign f32(64):(1) @NEAR[0]:512
      out S[0]:assign f32(64):(1) @NEAR[0]:1024
    ) {
      block copy [x:64] @DMA (in A[x] f32(1)  out R[x]:assign f32(1)) { $v = load(A) f32  R = store($v) }
      block work [x:64] @VEC (in B[x] f32(1)  out S[x]:assign f32(1)) {
        $v = load(B) f32
        S = store($v)
      }
    }
    """
    found = simulate(program_of(text), machine(NEAR={"bytes_per_cycle": 8}))
    near, far = found.memories
    assert [(b.bank, b.unit, b.accesses, b.waited) for b in near.banks] == [
        (0, "DMA", 1, 1),
        (0, "VEC", 1, 1),
    ]
    # The bank has 768 bytes to move, 96 cycles, and never stands still: each of the two waits for the other.
    assert found.cycles == pytest.approx(96, abs=1)
    assert [b.cycles for b in near.banks] == pytest.approx([32, 32], abs=1)
    assert near.contended == pytest.approx(sum(b.cycles for b in near.banks))
    assert far.banks == []  # a memory without a rate keeps nobody waiting
    # In banks of their own each has what it asks for.
    apart = simulate(
        program_of(text.replace("@NEAR[0]:512", "@NEAR[1]:512")), machine(NEAR={"bytes_per_cycle": 8})
    )
    told = [(b.bank, b.unit, b.accesses, b.waited, b.cycles) for b in apart.memories[0].banks]
    assert told == [(0, "VEC", 1, 0, 0.0), (1, "DMA", 1, 0, 0.0)]


def test_conflicts_of_what_repeats_are_counted() -> None:
    text = IN_ONE_BANK.replace("i:4", "i:500").replace("f32(128)", "f32(16000)")
    text = text.replace("@FAR:512", "@FAR:64000").replace("INFLIGHT", "inflight=2 ")
    hw = machine(NEAR={"bytes_per_cycle": 8})
    full, quick = timeline(text, hw), timeline(text, hw, extrapolate=True)
    assert quick.skipped > 400
    assert (quick.totals.asked, quick.totals.waited, quick.totals.shared) == (
        full.totals.asked, full.totals.waited, full.totals.shared
    )  # fmt: skip
    assert sum(full.totals.asked.values()) == 3 * 500
    assert 0 < sum(full.totals.waited.values()) < 3 * 500


def test_latency_comes_before_what_is_read() -> None:
    hw = machine(FAR={"latency_cycles": 100})
    assert cycles(TILES.replace("INFLIGHT", ""), hw) == 4 * (COPY + 100 + WORK + COPY)


def test_latency_keeps_the_unit_waiting_and_is_no_work() -> None:
    found = simulate(program_of(TILES.replace("INFLIGHT", "")), machine(FAR={"latency_cycles": 100}))
    copies, vector = (next(u for u in found.units if u.unit == name) for name in ("DMA", "VEC"))
    assert copies.busy == 8 * COPY == sum(b.busy for b in found.blocks if b.unit == "DMA")
    assert copies.stalled == {"FAR": 4 * 100}
    assert copies.idle == {"VEC": 4 * WORK}
    assert vector.idle == {"DMA": 4 * (100 + COPY) + 3 * COPY, "": COPY}
    # Loads wait for the far memory longer than they copy; what it delivers binds nothing.
    assert [(b.path, b.bound) for b in found.blocks] == [
        ("main/t/load", "FAR"),
        ("main/t/work", "VEC"),
        ("main/t/save", "DMA"),
    ]
    assert found.cycles is not None
    assert [(k.bound, k.share) for k in found.kernels] == [("DMA", 8 * COPY / found.cycles)]


@pytest.mark.parametrize("rate", [3, 0.7, 51.2, 1.37])
def test_busy_is_the_same_in_both_tables_whatever_the_rates(rate: float) -> None:
    """Work that is no whole number of cycles is not rounded: `counts="both"` compares it."""
    hw = machine(DMA={"bytes_per_cycle": rate}, VEC={"fma_per_cycle": rate}, FAR={"latency_cycles": 0.3})
    found = simulate(program_of(TILES.replace("INFLIGHT", "inflight=2 ")), hw, counts="both")
    assert found.cycles is not None
    for unit in found.units:
        assert unit.busy == pytest.approx(sum(b.busy for b in found.blocks if b.unit == unit.unit), rel=1e-15)
        parts = unit.busy + sum(unit.stalled.values()) + sum(unit.idle.values())
        assert found.cycles - 1 < parts <= found.cycles + 1e-6
    assert found.blocks[0].busy == pytest.approx(4 * (10 + 128 / rate), rel=1e-15)


def test_a_kernel_begins_when_its_first_task_does() -> None:
    text = """
    block main [] (
      in A[0] f32(64):(1) @FAR:0
      out R[0]:assign f32(64):(1) @NEAR:0
      out S[0]:assign f32(64):(1) @NEAR:512
    ) {
      block one [x:64] @DMA (in A[x] f32(1)  out R[x]:assign f32(1)) { $v = load(A) f32  R = store($v) }
      block two [x:64] @DMA (in A[x] f32(1)  out S[x]:assign f32(1)) { $v = load(A) f32  S = store($v) }
    }
    """
    copy = 10 + 64 * 4 // 8
    found = simulate(program_of(text), machine())
    assert [(k.begin, k.end, k.bound, k.share) for k in found.kernels] == [
        (0, copy, "DMA", 1.0), (copy, 2 * copy, "DMA", 1.0)
    ]  # fmt: skip


def test_a_memory_binds_what_it_makes_slower() -> None:
    # 256 bytes of each of 4 points at 4 bytes a cycle, in its bank: 64 cycles of work, 32 of each copy.
    found = simulate(program_of(TILES.replace("INFLIGHT", "")), machine(NEAR={"bytes_per_cycle": 4}))
    assert {b.path: b.bound for b in found.blocks} == dict.fromkeys(
        ("main/t/load", "main/t/work", "main/t/save"), "NEAR"
    )
    # Bank 0 of NEAR delivers for all of them, since one point at a time has a slot: the whole time.
    assert [(k.bound, k.share) for k in found.kernels] == [("NEAR", 1.0)]


def test_what_one_point_does_by_hand() -> None:
    """Ten elements on vectors of four: three vectors, the last of them half empty."""
    text = """
    block main [] (
      in A[0] f32(10):(1) @NEAR:0
      in B[0] i8(10):(1) @NEAR:64
      out R[0]:assign f32(10):(1) @NEAR:2048
      out S[0]:add i32(1):(1) @NEAR:3072
    ) {
      block work [x:10] @VEC (in A[x] f32(1)  out R[x]:assign f32(1)) {
        $v = load(A) f32
        $a = mul($v, $v) f32
        R = store($a)
      }
      block sum [x:10] @VEC (in B[x] i8(1)  out S[0]:add i32(1)) {
        $v = load(B) i8
        $w = cast($v) i32
        S = store($w)
      }
    }
    """
    hw = machine(NEAR={"bytes_per_cycle": 16, "read_pj_per_byte": 2, "write_pj_per_byte": 3},
                 VEC={"pj_per_operation": 0.5})  # fmt: skip
    found = simulate(program_of(text), hw)
    work, total = found.blocks
    # A vector holds 4 f32, so 3 of them for 10 points; the unit does an operation a cycle.
    assert (work.points, work.vectors, work.operations, work.busy, work.padding) == (10, 3, 10, 3, 0.5)
    assert total.operations == 10
    # By words: each element of A and B once; an old sum is read for each of 10 sums.
    told = {t.buffer: (t.read, t.written, t.updated, t.word_bytes, t.words_read, t.words_written)
            for t in found.traffic}  # fmt: skip
    assert told == {
        "main/A": (40, 0, 0, 4, 10, 0),
        "main/B": (10, 0, 0, 1, 10, 0),
        "main/R": (0, 40, 0, 4, 0, 10),
        "main/S": (0, 40, 40, 4, 0, 10),
    }
    # Bytes of R lie in bank 1, those of A in bank 0: 40 / 16 = 2.5 cycles each, less than 3.
    assert found.kernels[0].end == 3 and work.bound == "VEC"
    vector = found.units[0]
    assert vector.unit == "VEC" and vector.operations == 20
    assert vector.split is not None
    assert vector.split.useful + vector.split.padding == vector.busy
    assert vector.split.padding == work.padding + total.padding
    energy = {e.what: (e.count, e.total_pj) for e in found.energy}
    assert energy == {
        "bytes read from NEAR": (40 + 10 + 40, 180),
        "bytes written to NEAR": (40 + 40, 240),
        "operations on VEC": (20, 10),
    }
    assert found.energy_pj == 430


def test_statements_that_do_not_depend_on_each_other_run_side_by_side() -> None:
    text = """
    block main [] (
      in A[0] f32(64):(1) @FAR:0
      in B[0] f32(64):(1) @NEAR:0
      out R[0]:assign f32(64):(1) @NEAR:512
      out S[0]:assign f32(64):(1) @NEAR:1024
    ) {
      block copy [x:64] @DMA (in A[x] f32(1)  out R[x]:assign f32(1)) { $v = load(A) f32  R = store($v) }
      block work [x:64] @VEC (in B[x] f32(1)  out S[x]:assign f32(1)) {
        $v = load(B) f32
        $a = mul($v, $v) f32
        S = store($a)
      }
    }
    """
    assert cycles(text, machine()) == max(10 + 64 * 4 // 8, 64 // 4)


def test_a_place_is_used_again_only_when_what_was_there_is_done() -> None:
    text = """
    block main [] (
      in A[0] f32(64):(1) @FAR:0
      out R[0]:assign f32(64):(1) @FAR:512
      out S[0]:assign f32(64):(1) @FAR:1024
    ) {
      block one [] (in A[0] f32(64)  out R[0]:assign f32(64)  new N f32(64):(1) @NEAR:0) {
        block in [x:64] @DMA (in A[x] f32(1)  out N[x]:assign f32(1)) { $v = load(A) f32  N = store($v) }
        block out [x:64] @DMA (in N[x] f32(1)  out R[x]:assign f32(1)) { $v = load(N) f32  R = store($v) }
      }
      block two [] (in A[0] f32(64)  out S[0]:assign f32(64)  new N f32(64):(1) @NEAR:0) {
        block in [x:64] @DMA2 (in A[x] f32(1)  out N[x]:assign f32(1)) { $v = load(A) f32  N = store($v) }
        block out [x:64] @DMA2 (in N[x] f32(1)  out S[x]:assign f32(1)) { $v = load(N) f32  S = store($v) }
      }
    }
    """
    told = json.loads(json.dumps(MACHINE))
    told["units"].append({**told["units"][1], "name": "DMA2"})
    hw = msgspec.convert(told, HwConfig)
    copy = 10 + 64 * 4 // 8
    assert cycles(text, hw) == 4 * copy
    moved = text.replace(
        "out S[0]:assign f32(64)  new N f32(64):(1) @NEAR:0",
        "out S[0]:assign f32(64)  new N f32(64):(1) @NEAR:256",
    )
    assert cycles(moved, hw) == 2 * copy


def test_a_result_takes_the_place_of_a_buffer_only_when_that_is_dead() -> None:
    text = """
    block main [] (
      in A[0] f32(64):(1) @FAR:0
      out R[0]:assign f32(64):(1) @FAR:256
      out S[0]:assign f32(64):(1) @FAR:PLACE
      new T f32(64):(1) @FAR:512
    ) {
      block one [x:64] @DMA (in A[x] f32(1)  out T[x]:assign f32(1)) { $v = load(A) f32  T = store($v) }
      block two [x:64] @DMA (in T[x] f32(1)  out R[x]:assign f32(1)) { $v = load(T) f32  R = store($v) }
      block three [x:64] @DMA2 (in A[x] f32(1)  out S[x]:assign f32(1)) { $v = load(A) f32  S = store($v) }
    }
    """
    told = json.loads(json.dumps(MACHINE))
    told["units"].append({**told["units"][1], "name": "DMA2"})
    hw = msgspec.convert(told, HwConfig)
    copy = 10 + 64 * 4 // 8
    assert cycles(text.replace("PLACE", "768"), hw) == 2 * copy  # `three` beside `one`
    assert cycles(text.replace("PLACE", "512"), hw) == 3 * copy  # where T lies, which `two` reads


def test_what_repeats_is_counted_and_not_gone_through() -> None:
    text = TILES.replace("i:4", "i:1000").replace("f32(128)", "f32(32000)").replace("@FAR:512", "@FAR:128000")
    text = text.replace("INFLIGHT", "inflight=2 ")
    full, quick = timeline(text, machine()), timeline(text, machine(), extrapolate=True)
    assert quick.skipped > 900
    assert quick.now == full.now
    assert quick.totals == full.totals


def test_the_load_time_program_is_counted_by_itself() -> None:
    text = """
    load block pack [] (in W[0] f32(32):(1) @FAR:0  out P[0]:assign f32(32):(1) @FAR:128) {
      block p [x:32] @DMA (in W[x] f32(1)  out P[x]:assign f32(1)) { $v = load(W) f32  P = store($v) }
    }
    block main [] (
      const in W[0] f32(32):(1) @FAR:0
      in P[0] f32(32):(1) @FAR:128
      out R[0]:assign f32(32):(1) @FAR:256
    ) {
      block a [x:16] @DMA (in P[x] f32(1)  out R[x]:assign f32(1)) { $v = load(P) f32  R = store($v) }
      block b [x:16] @DMA (in P[x + 16] f32(1)  out R[x + 16]:assign f32(1)) { $v = load(P)  R = store($v) }
    }
    """
    found = simulate(program_of(text), machine())
    assert found.load is not None
    assert (found.load.cycles, found.cycles) == (COPY, 2 * (10 + 16 * 4 // 8))
    assert [(t.buffer, t.read, t.written) for t in found.load.traffic] == [
        ("pack/P", 0, 128),
        ("pack/W", 128, 0),
    ]
    assert [t.buffer for t in found.traffic] == ["main/P", "main/R"]


# Only some of the points of `t` have something to save; what is there has buffers of its own.
SOME = """
block main [] (
  in A[0] f32(32):(1) @FAR:0
  out R[0]:assign f32(32):(1) @FAR:512
) {
  block t [i:POINTS] INFLIGHT(
    in A[0] f32(32)
    out R[0]:assign f32(32)
    new N f32(32):(1) @NEAR[slot]:0
  ) #tiled {
    FIRST
    block save [own = i] (
      CONSTRAINT
      in N[0] f32(32)
      out R[0]:assign f32(32)
      new M f32(32):(1) @NEAR[0]:1024
    ) {
      block work [x:32] @VEC (in N[x] f32(1)  out M[x]:assign f32(1)) { $v = load(N) f32  M = store($v) }
      block copy [x:32] @DMA (in M[x] f32(1)  out R[x]:assign f32(1)) { $v = load(M) f32  R = store($v) }
    }
  }
}
"""
LOAD = "block load [x:32] @DMA (in A[x] f32(1)  out N[x]:assign f32(1)) { $v = load(A) f32  N = store($v) }"
SAVE = 32 // 4 + COPY


@pytest.mark.parametrize("inflight", ["", "inflight=2 ", "inflight=3 "])
@pytest.mark.parametrize("extrapolate", [False, True])
def test_what_has_no_points_takes_no_time(inflight: str, extrapolate: bool) -> None:
    """Behind a task, and as the last of its point; of 40 points only the last one saves."""
    text = SOME.replace("INFLIGHT", inflight).replace("FIRST", LOAD).replace("POINTS", "40")
    found = timeline(text.replace("CONSTRAINT", "own - 39 >= 0"), machine(), extrapolate)
    assert found.now / TICKS == 40 * COPY + SAVE
    assert found.totals.tasks == {("DMA", 0): 41, ("VEC", 0): 1}


def test_thousands_of_points_may_be_without_work() -> None:
    text = SOME.replace("INFLIGHT", "").replace("FIRST", "").replace("POINTS", "5000")
    text = text.replace("CONSTRAINT", "own - 4999 >= 0")
    for old, new in (("in N[0]", "in A[0]"), ("in N[x]", "in A[x]"), ("load(N)", "load(A)")):
        text = text.replace(old, new)
    text = text.replace("[x:32] @VEC", "[x:32] @DMA")  # from far memory
    assert cycles(text, machine()) == 2 * COPY
