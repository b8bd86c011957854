"""Caches, worked out by hand: small ones, and small programs on them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from hwconfigs.model import HwConfig, Memory
from simulator import simulate
from simulator.caches import OWNER, STORES, WHOLE, Accesses, Cache, geometry
from simulator.result import CacheUse, Simulation
from stripe.diag import CompileError
from tests.support.passes import program_of


def cache(sets: int, ways: int, replacement: str = "lru") -> Cache:
    size = 64 * sets * ways
    return Cache(msgspec.convert({
        "name": "C", "kind": "cached", "bytes": size, "ways": ways, "replacement": replacement,
    }, Memory))  # fmt: skip


def run(
    made: Cache, lines: list[int], stored: set[int] | None = None
) -> tuple[list[int], list[tuple[int, str]]]:
    """The numbers of the accesses that miss, and what goes to and from the memory behind: (line, what)."""
    codes = [STORES if at in (stored or set()) else 0 for at in range(len(lines))]
    came = made.run(Accesses(np.asarray(lines, np.int64), np.asarray(codes, np.int64)))
    behind = zip(came.behind.lines.tolist(), came.behind.codes.tolist(), strict=True)
    return came.missed.tolist(), [(line, "out" if code & STORES else "in") for line, code in behind]


def test_direct_mapped_lines_of_one_set_push_each_other_out() -> None:
    missed, _ = run(cache(4, 1), [0, 4, 0, 4, 1, 0, 1])
    assert missed == [0, 1, 2, 3, 4, 5]  # 0 and 4 are in set 0; 1 has a set of its own


def test_two_ways_keep_what_was_used_last() -> None:
    missed, behind = run(cache(1, 2), [0, 1, 0, 2, 0, 1])
    assert missed == [0, 1, 3, 5]  # 2 replaces 1, which was used longest ago; 1 replaces 2
    assert behind == [(0, "in"), (1, "in"), (2, "in"), (1, "in")]


def test_first_in_first_out_does_not_care_who_was_used() -> None:
    missed, _ = run(cache(1, 2, "fifo"), [0, 1, 0, 2, 0, 1])
    assert missed == [0, 1, 3, 4, 5]  # 2 replaces 0; 0 replaces 1; 1 replaces 2


def test_a_line_that_was_stored_to_is_written_back_when_it_goes() -> None:
    missed, behind = run(cache(1, 1), [0, 1, 0], stored={0})
    assert missed == [0, 1, 2]
    assert behind == [(0, "in"), (1, "in"), (0, "out"), (0, "in")]


def test_what_streams_through_is_written_back_once_a_line() -> None:
    made = cache(4, 2)
    _, behind = run(made, [line for line in range(100) for _ in range(8)], set(range(800)))
    assert sum(what == "in" for _, what in behind) == 100
    assert [line for line, what in behind if what == "out"] == list(range(92))
    assert sorted(made.leave().lines.tolist()) == list(range(92, 100))
    assert not len(made.leave().lines)  # it is clean now


def test_a_stride_of_a_power_of_two_uses_one_set() -> None:
    walk = [*range(0, 64 * 9, 64)] * 3  # 9 lines of one of 64 sets of 8 ways, over and over
    assert len(run(cache(64, 8), walk)[0]) == 27
    assert len(run(cache(1, 9), walk)[0]) == 9
    apart = [*range(0, 65 * 9, 65)] * 3
    assert len(run(cache(64, 8), apart)[0]) == 9


def test_what_is_overwritten_whole_is_not_fetched() -> None:
    came = cache(1, 1).run(Accesses(np.asarray([5]), np.asarray([STORES | WHOLE | 3 << OWNER])))
    assert came.missed.tolist() == [0]
    assert not len(came.behind.lines)


def test_groups_of_accesses_are_as_good_as_all_at_once(rng: np.random.Generator) -> None:
    lines, codes = rng.integers(0, 40, 3000), rng.integers(0, 2, 3000)
    once, parts = cache(4, 3), cache(4, 3)
    whole = once.run(Accesses(lines, codes))
    found = [parts.run(Accesses(lines[at : at + 7], codes[at : at + 7])) for at in range(0, 3000, 7)]
    assert np.concatenate([f.behind.lines for f in found]).tolist() == whole.behind.lines.tolist()
    assert np.concatenate([f.behind.codes for f in found]).tolist() == whole.behind.codes.tolist()
    assert sum(len(f.missed) for f in found) == len(whole.missed)


def test_a_cache_without_ways_is_one_set_and_one_without_bytes_never_full() -> None:
    assert geometry(Memory("C", "cached", bytes=640)) == (1, 10)
    assert geometry(Memory("C", "cached", ways=8)) == (1, None)


def test_lines_that_do_not_divide_into_sets_are_an_error() -> None:
    with pytest.raises(CompileError, match=r"U002.*10 lines of 64 bytes in 'C'.*3 ways: 1 left over"):
        geometry(Memory("C", "cached", bytes=640, ways=3))


# -- programs ---------------------------------------------------------------------------------------

# Vectors of 4 f32, lines of 8 f32; a core that loads and stores one vector a cycle.
MACHINE: dict[str, Any] = {
    "name": "cached",
    "description": "for tests",
    "executor": "interpreter",
    "memories": [
        {"name": "REG", "kind": "registers", "bytes": 256},
        {
            "name": "L1", "kind": "cached", "bytes": 128, "ways": 2, "line_bytes": 32, "bytes_per_cycle": 16,
            "latency_cycles": 3, "backing": "L2", "read_pj_per_byte": 1,
        },
        {
            "name": "L2", "kind": "cached", "bytes": 1024, "ways": 4, "line_bytes": 32, "bytes_per_cycle": 8,
            "latency_cycles": 10, "backing": "FAR", "read_pj_per_byte": 4,
        },
        {
            "name": "FAR", "kind": "explicit", "bytes_per_cycle": 2, "latency_cycles": 100,
            "write_pj_per_byte": 50,
        },
    ],
    "units": [{"name": "CORE", "vector_bytes": 16, "reaches": ["REG", "L1", "L2", "FAR"]}],
}  # fmt: skip

COPY = """
block main [] (in A[0] f32(256):(1)  out R[0]:assign f32(256):(1)) {
  block c [x:256] (in A[x] f32(1)  out R[x]:assign f32(1)) TAGS { $v = load(A) f32  R = store($v) }
}
"""


def machine(**changes: Any) -> HwConfig:
    """The machine with other fields of memories, such as L1={"ways": 1}."""
    told = {**MACHINE, "memories": [{**m, **changes.get(m["name"], {})} for m in MACHINE["memories"]]}
    return msgspec.convert(told, HwConfig)


def found(text: str, hw: HwConfig | None = None) -> Simulation:
    return simulate(program_of(text), hw or machine())


def of(simulation: Simulation, name: str) -> CacheUse:
    return next(c for c in simulation.caches if c.memory == name)


def test_a_vector_is_one_access() -> None:
    plain, vectors = found(COPY.replace("TAGS", "")), found(COPY.replace("TAGS", "#vector=x"))
    assert [of(s, "L1").accesses for s in (plain, vectors)] == [512, 128]
    for simulation in plain, vectors:
        assert of(simulation, "L1").misses == of(simulation, "L2").misses == 64  # 32 lines of each
        assert of(simulation, "L1").fetched == 64 * 32
        assert of(simulation, "L1").written_back == 32 * 32
        near = {t.buffer: t for t in simulation.traffic if t.memory == "L1"}
        assert (near["main/A"].read, near["main/R"].written) == (1024, 1024)


def test_what_is_dirty_at_the_end_is_written_back() -> None:
    simulation = found(COPY.replace("TAGS", ""))
    far = {t.buffer: t for t in simulation.traffic if t.memory == "FAR"}
    assert (far["main/A"].read, far["main/R"].read, far["main/R"].written) == (1024, 1024, 1024)
    assert of(simulation, "L1").left == 2 * 32  # one of two ways in each set
    assert of(simulation, "L2").left == 16 * 32  # every other of its 32 lines


def test_time_is_that_of_the_busiest() -> None:
    simulation = found(COPY.replace("TAGS", "#vector=x"))
    # The core has 64 loads beside 64 stores. FAR delivers A and R, and takes what does not stay in L2.
    moved = 2 * 1024 + 1024 - 16 * 32
    (kernel,) = simulation.kernels
    assert (kernel.bound, kernel.end) == ("FAR", 100 + moved // 2)
    assert simulation.cycles == kernel.end + 16 * 32 // 2
    (core,) = simulation.units
    assert core.busy == 64
    assert core.stalled == {"FAR": simulation.cycles - 64}


def test_the_core_binds_where_memory_is_fast() -> None:
    fast = machine(L1={"bytes_per_cycle": 1000}, L2={"bytes_per_cycle": 1000}, FAR={"bytes_per_cycle": 1000})
    simulation = found(COPY.replace("TAGS", ""), fast)
    assert simulation.kernels[0].bound == "CORE"
    assert simulation.units[0].busy == 256


def test_what_binds_a_statement_binds_its_blocks() -> None:
    simulation = found(COPY.replace("TAGS", "#vector=x"))
    assert [block.bound for block in simulation.blocks] == ["FAR"]
    fast = {name: {"bytes_per_cycle": 1000} for name in ("L1", "L2", "FAR")}
    assert found(COPY.replace("TAGS", ""), machine(**fast)).blocks[0].bound == "CORE"
    late = {**fast, "FAR": {"bytes_per_cycle": 1000, "latency_cycles": 500}}
    simulation = found(COPY.replace("TAGS", ""), machine(**late))  # 256 cycles of work behind 500
    assert (simulation.kernels[0].bound, simulation.blocks[0].bound) == ("CORE", "FAR")


def test_what_is_alive_over_time() -> None:
    text = """
    block main [] (
      in A[0] f32(256):(1)
      new T f32(8):(1) @REG
      new U f32(64):(1)
      out R[0]:assign f32(1):(1)
    ) {
      block a [x:8] (in A[x] f32(1)  out T[x]:assign f32(1)) { $v = load(A) f32  T = store($v) }
      block b [x:64] (in A[x] f32(1)  out U[x]:assign f32(1)) { $v = load(A) f32  U = store($v) }
      block c [] (in T[0] f32(1)  in U[0] f32(2)  out R[0]:assign f32(1)  new V f32(2):(1) @REG) {
        block d [x:2] (in U[x] f32(1)  out V[x]:assign f32(1)) { $v = load(U) f32  V = store($v) }
        $v = load(T) f32
        R = store($v)
      }
    }
    """
    simulation = found(text)
    first, second, third = (float(kernel.begin) for kernel in simulation.kernels)
    alive = {o.memory: (o.exact, dict(zip(o.cycles, o.bytes, strict=True))) for o in simulation.occupancy}
    registers = {first: 32, third: 40}  # 8 elements all the time, 2 more in `c`
    assert alive["REG"] == (False, registers)
    # A, which is the caller's, all the time; U from `b` on; R, padded to nothing, in `c`.
    assert alive["FAR"] == (True, {first: 1024, second: 1024 + 256, third: 1024 + 256 + 4})
    assert alive["L1"] == (False, {first: 32, second: 128})
    assert alive["L2"] == (False, {first: 32, second: 512, third: 544})
    for own in simulation.memories:
        level = next(o for o in simulation.occupancy if o.memory == own.memory)
        assert level.most == max(level.bytes) == own.peak


def test_energy_counts_what_each_level_delivers() -> None:
    simulation = found(COPY.replace("TAGS", ""))
    assert {e.what: (e.count, e.total_pj) for e in simulation.energy} == {
        "bytes read from L1": (1024, 1024),
        "bytes read from L2": (2048, 8192),
        "bytes written to FAR": (1024, 51200),
    }


PRODUCT = """
block main [] (
  in A[0, 0] f32(4, 8):(8, 1)
  in B[0, 0] f32(8, 8):(8, 1)
  out C[0, 0]:assign f32(4, 8):(8, 1)
  new S f32(4, 8):(8, 1) @REG
) {
  block p [k:8, m:4, n:8] (
    in A[m, k] f32(1, 1)
    in B[k, n] f32(1, 1)
    out S[m, n]:add f32(1, 1)
  ) #vector=n #unroll=m #unroll=n {
    $a = load(A) f32
    $b = load(B) f32
    $c = mul($a, $b) f32
    S = store($c)
  }
  block s [m:4, n:8] (in S[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)) #vector=n #unroll=m #unroll=n {
    $v = load(S) f32
    C = store($v)
  }
}
"""


def test_points_of_a_step_share_what_they_load() -> None:
    simulation = found(PRODUCT)
    near = {t.buffer: t for t in simulation.traffic if t.memory in ("L1", "REG")}
    assert near["main/A"].read == 8 * 4 * 4  # an element for each k and m
    assert near["main/B"].read == 8 * 8 * 4  # a row for each k
    assert near["main/S"].written == near["main/S"].updated == 8 * 32 * 4
    product, copy = simulation.blocks
    assert (product.points, product.vectors, product.operations) == (256, 64, 512)
    assert product.busy == 64  # of the 64 operations, beside 32 + 16 loads
    assert copy.busy == 8  # as many stores
    lines = {b.buffer: b.accesses for b in of(simulation, "L1").buffers}
    assert lines == {"main/A": 32, "main/B": 16, "main/C": 8}


def test_a_cache_that_holds_all_misses_each_line_once() -> None:
    simulation = found(PRODUCT, machine(L1={"bytes": 4096, "ways": None}))
    assert {b.buffer: b.misses for b in of(simulation, "L1").buffers} == {
        "main/A": 4,
        "main/B": 8,
        "main/C": 4,
    }


def test_stores_that_aggregate_load_first() -> None:
    text = """
    block main [] (in A[0, 0] f32(8, 4):(4, 1)  out R[0]:assign f32(8):(1)) {
      block s [x:8, k:4] (in A[x, k] f32(1, 1)  out R[x]:add f32(1)) { $v = load(A) f32  R = store($v) }
    }
    """
    simulation = found(text)
    near = {t.buffer: t for t in simulation.traffic if t.memory == "L1"}
    assert (near["main/R"].written, near["main/R"].updated) == (128, 128)
    assert {b.buffer: b.accesses for b in of(simulation, "L1").buffers} == {"main/A": 32, "main/R": 64}


def test_lanes_beyond_the_range_touch_nothing() -> None:
    text = COPY.replace("256", "13").replace("TAGS", "#vector=x")
    simulation = found(text)
    assert [t.read for t in simulation.traffic if t.memory == "L1"] == [52, 0]
    assert of(simulation, "L1").accesses == 8
    assert of(simulation, "L1").fetched == 4 * 32
    assert simulation.blocks[0].padding == pytest.approx(4 * 3 / 16)


def test_blocks_without_points_touch_nothing() -> None:
    text = """
    block main [] (in A[0] f32(0):(1)  out R[0]:assign f32(0):(1)) {
      block c [x:0] (in A[x] f32(1)  out R[x]:assign f32(1)) #vector=x #unroll=x {
        $v = load(A) f32
        R = store($v)
      }
    }
    """
    simulation = found(text)
    assert simulation.cycles == 0
    assert not simulation.traffic


def test_a_vector_across_two_lines_asks_for_both() -> None:
    text = """
    block main [] (in A[0] f32(40):(1)  out R[0]:assign f32(32):(1)) {
      block c [x:32] (in A[x + 2] f32(1)  out R[x]:assign f32(1)) #vector=x {
        $v = load(A) f32
        R = store($v)
      }
    }
    """
    counts = {b.buffer: b.accesses for b in of(found(text), "L1").buffers}
    assert counts == {"main/A": 8 + 4, "main/R": 8}


def test_lines_of_other_sizes_behind() -> None:
    simulation = found(COPY.replace("TAGS", ""), machine(L2={"line_bytes": 128, "bytes": 4096}))
    assert of(simulation, "L1").misses == 64
    assert of(simulation, "L2").misses == 16
    narrow = found(COPY.replace("TAGS", ""), machine(L2={"line_bytes": 16}))
    assert of(narrow, "L2").misses >= 128
    assert of(narrow, "L2").fetched == 2048


def test_specials_go_once_through_their_operands() -> None:
    text = """
    block main [] (in D[0, 0] f32(8, 8):(8, 1)  in I[0] i32(4):(1)  out R[0, 0]:assign f32(4, 8):(8, 1)) {
      special gather(in D, in I, out R:assign) {axis=0}
    }
    """
    simulation = found(text)
    near = {t.buffer: (t.read, t.written) for t in simulation.traffic if t.memory == "L1"}
    assert near == {"main/D": (256, 0), "main/I": (16, 0), "main/R": (0, 128)}
    assert of(simulation, "L1").accesses == 16 + 1 + 8


def test_closed_form_alone_has_the_first_level() -> None:
    program = program_of(PRODUCT)
    closed, run = (simulate(program, machine(), counts=how) for how in ("closed", "simulated"))
    assert closed.cycles is None
    assert not closed.caches
    # What binds a block is known of a run.
    assert closed.blocks == [msgspec.structs.replace(block, bound=None) for block in run.blocks]
    assert not closed.occupancy
    assert [t for t in run.traffic if t.memory in ("L1", "REG")] == closed.traffic


SHARED = """
block main [] (in A[0] f32(64):(1)  out R[0]:assign f32(128):(1)) {
  block t [c:2] @CORE[c] (in A[0] f32(64)  out R[64*c]:assign f32(64)) {
    block w [x:64] (in A[x] f32(1)  out R[x]:assign f32(1)) #vector=x { $v = load(A) f32  R = store($v) }
  }
}
"""


def cores(count: int, **changes: Any) -> HwConfig:
    told = msgspec.to_builtins(machine(**changes))
    told["units"][0]["count"] = count
    return msgspec.convert(told, HwConfig)


def counts(own: CacheUse, buffer: str) -> tuple[int, int]:
    """Accesses and misses of a buffer."""
    found = next(b for b in own.buffers if b.buffer == buffer)
    return found.accesses, found.misses


def test_each_core_has_its_cache_and_they_meet_in_the_next() -> None:
    simulation = found(SHARED, cores(2, L1={"count": 2}))
    # 16 vectors of A on each core, in 8 lines, and as many of R; no line is needed again once it is gone.
    assert counts(of(simulation, "L1"), "main/A") == (2 * 16, 2 * 8)
    assert counts(of(simulation, "L1"), "main/R") == (2 * 16, 2 * 8)
    # Cores take turns: the first one brings a line of A to L2, where the second finds it.
    assert counts(of(simulation, "L2"), "main/A") == (2 * 8, 8)
    far = {t.buffer: t for t in simulation.traffic if t.memory == "FAR"}
    assert (far["main/A"].read, far["main/R"].written) == (256, 512)
    # Each core has 16 loads beside 16 stores; L1 holds 4 lines on each of them.
    assert [(u.number, u.busy, u.tasks) for u in simulation.units] == [(0, 16, 1), (1, 16, 1)]
    assert next(m.peak for m in simulation.memories if m.memory == "L1") == 2 * 4 * 32


def test_time_is_that_of_the_busiest_core_and_cache() -> None:
    narrow, fast = {"bytes_per_cycle": 4}, {"bytes_per_cycle": 1000}
    private = found(SHARED, cores(2, L1={"count": 2, **narrow}, L2=fast, FAR=fast))
    (kernel,) = private.kernels
    # An L1 loads 256 bytes and stores as many for its core, at 4 bytes a cycle, behind the latency of FAR.
    assert (kernel.bound, kernel.end) == ("L1", 100 + 512 // 4)
    shared = found(SHARED, cores(2, L1={"bytes": 512, "ways": 8, **narrow}, L2=fast, FAR=fast))
    assert shared.kernels[0].end == 100 + 1024 // 4


def test_cores_that_share_a_cache_bring_lines_for_each_other() -> None:
    simulation = found(SHARED, cores(2, L1={"bytes": 256, "ways": 4}))
    assert counts(of(simulation, "L1"), "main/A") == (32, 8)
    pairs = found(SHARED.replace("f32(128)", "f32(256)").replace("c:2", "c:4"),
                  cores(4, L1={"bytes": 512, "ways": 8, "count": 2}))  # fmt: skip
    assert counts(of(pairs, "L1"), "main/A") == (64, 2 * 8)


def test_a_buffer_inside_has_a_place_for_each_core() -> None:
    text = """
    block main [] (in A[0] f32(64):(1)  out R[0]:assign f32(64):(1)) {
      block t [c:2] @CORE[c] (in A[32*c] f32(32)  out R[32*c]:assign f32(32)  new T f32(32):(1)) {
        block a [x:32] (in A[x] f32(1)  out T[x]:assign f32(1)) #vector=x { $v = load(A) f32  T = store($v) }
        block b [x:32] (in T[x] f32(1)  out R[x]:assign f32(1)) #vector=x { $v = load(T) f32  R = store($v) }
      }
    }
    """
    simulation = found(text, cores(2, L1={"bytes": 4096, "ways": 128}))
    assert counts(of(simulation, "L1"), "main/t/T") == (2 * 16, 2 * 4)


def test_a_core_that_is_done_no_longer_takes_its_turn() -> None:
    text = """
    block main [] (in A[0] f32(256):(1)  out R[0]:assign f32(256):(1)) {
      block t [c:2, y:2] @CORE[c] (
        1 - c - y >= 0
        in A[64*c + 128*y] f32(64)  out R[64*c + 128*y]:assign f32(64)
      ) {
        block w [x:64] (in A[x] f32(1)  out R[x]:assign f32(1)) #vector=x { $v = load(A) f32  R = store($v) }
      }
      block last [x:64] (in A[x + 192] f32(1)  out R[x + 192]:assign f32(1)) {
        $v = load(A) f32
        R = store($v)
      }
    }
    """
    simulation = found(text, cores(2, L1={"count": 2}))
    assert [u.busy for u in simulation.units] == [2 * 16 + 64, 16]
    assert sum(b.busy for b in simulation.blocks) == 2 * 16 + 64 + 16
    assert [k.bound for k in simulation.kernels] == ["FAR", "FAR"]
    for unit in simulation.units:
        told = unit.busy + sum(unit.stalled.values()) + sum(unit.idle.values())
        assert told == pytest.approx(simulation.cycles, abs=1)
        assert unit.split is not None and unit.split.useful == unit.busy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COPY.replace("[x:256]", "[x:256] inflight=2"), r"U003.*keeps several points in flight.*'inflight'"),
        (COPY.replace("[x:256]", "[x:256] @DMA"), r"U003.*DMA transfers, beside memories of kind.*help"),
        (COPY.replace("[x:256]", "[x:256] @MANY[x]"), r"U003.*block that computes itself.*@CORE\[c\]"),
        (COPY.replace("f32(256):(1)  out", "f32(256):(1) @L1  out"), "U004.*lies in no memory"),
    ],
)  # fmt: skip
def test_what_can_not_be_run_on_caches(text: str, said: str) -> None:
    told = msgspec.to_builtins(machine())
    told["units"] = [
        *told["units"],
        {**told["units"][0], "name": "MANY", "count": 256},
        {"name": "DMA", "kind": "transfer", "reaches": ["FAR"]},
    ]
    with pytest.raises(CompileError, match=f"(?s){said}"):
        found(text.replace("TAGS", ""), msgspec.convert(told, HwConfig))


def test_a_target_without_units_is_refused() -> None:
    bare = msgspec.structs.replace(machine(), units=())
    with pytest.raises(CompileError, match=r"U001.*has no units that compute"):
        found(COPY.replace("TAGS", ""), bare)


def test_memory_that_is_too_small_is_named() -> None:
    with pytest.raises(CompileError, match=r"U004.*'R' would end at byte 2048 of FAR, which has 1024"):
        found(COPY.replace("TAGS", ""), machine(FAR={"bytes": 1024}))


def test_a_unit_behind_the_first_cache_meets_the_others_in_the_second() -> None:
    text = """
    block main [] (in A[0] f32(64):(1)  out R[0]:assign f32(64):(1)  new T f32(64):(1)) {
      block a [x:64] @CORE (in A[x] f32(1)  out T[x]:assign f32(1)) { $v = load(A) f32  T = store($v) }
      block b [x:64] @FARTHER (in T[x] f32(1)  out R[x]:assign f32(1)) { $v = load(T) f32  R = store($v) }
    }
    """
    told = {**MACHINE, "units": [*MACHINE["units"], {"name": "FARTHER", "reaches": ["L2", "FAR"]}]}
    simulation = found(text, msgspec.convert(told, HwConfig))
    assert {b.buffer: b.unit for b in of(simulation, "L1").buffers} == {"main/A": "CORE", "main/T": "CORE"}
    behind = {(b.buffer, b.unit): (b.accesses, b.misses) for b in of(simulation, "L2").buffers}
    assert behind == {
        ("main/A", "CORE"): (8, 8),
        ("main/T", "CORE"): (8 + 8, 8),  # L1 fetches each line, and writes it back; it is whole
        ("main/T", "FARTHER"): (64, 0),  # element by element
        ("main/R", "FARTHER"): (64, 8),
    }
    moved = {(t.memory, t.buffer): (t.read, t.written) for t in simulation.traffic if t.unit == "FARTHER"}
    assert moved["L2", "main/T"] == (256, 0)
    assert [k.kernel for k in simulation.kernels] == ["main/a", "main/b"]
    core, farther = simulation.units
    assert core.busy + sum(core.stalled.values()) + sum(core.idle.values()) == pytest.approx(
        simulation.cycles, abs=1
    )
    assert farther.tasks == 1
