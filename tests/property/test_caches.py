"""Caches against lists of lines, streams of accesses against a walk point by point, counts of both kinds
against each other, and values at the addresses that the simulator gives out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory
from simulator import simulate
from simulator.caches import STORES, Accesses, Cache
from simulator.caches_levels import ENOUGH, gathered
from simulator.caches_nodes import Plan
from simulator.caches_recent import quotient, remainder
from simulator.caches_run import CacheRun
from simulator.caches_stream import Chunk, Stream
from simulator.layout import laid_apart
from stripe.arena import interpret_placed
from stripe.interp import interpret
from stripe.ir import Block, Load, Program, Special, Store
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.visit import walk
from tests.support.tile_corpus import CORPUS, TileCase, make_inputs
from tests.support.tile_programs import tile_program
from tests.support.window_programs import window_program

CPUS = ("generic", "x86_64_avx2", "x86_64_avx512", "x86_64_avx512_vnni", "aarch64_neon")
FEW = CORPUS[::16]

streams = st.lists(st.tuples(st.integers(0, 23), st.booleans()), max_size=120)


def cached(sets: int, ways: int, replacement: str = "lru") -> Memory:
    told = {
        "name": "C",
        "kind": "cached",
        "bytes": 64 * sets * ways,
        "ways": ways,
        "replacement": replacement,
    }
    return msgspec.convert(told, Memory)


def run(made: Cache, stream: list[tuple[int, bool]]) -> tuple[list[int], list[tuple[int, bool]]]:
    lines = np.asarray([line for line, _ in stream], np.int64)
    codes = np.asarray([STORES if stores else 0 for _, stores in stream], np.int64)
    came = made.run(Accesses(lines, codes))
    behind = zip(came.behind.lines.tolist(), ((came.behind.codes & STORES) > 0).tolist(), strict=True)
    return came.missed.tolist(), list(behind)


def naive(
    sets: int, ways: int, replacement: str, stream: list[tuple[int, bool]]
) -> tuple[list[int], list[tuple[int, bool]]]:
    """The same with a list of lines for each set, the next to go first."""
    held: dict[int, list[int]] = {}
    dirty, missed, behind = set[int](), [], []
    for at, (line, stores) in enumerate(stream):
        own = held.setdefault(line % sets, [])
        if line in own:
            if replacement == "lru":
                own.append(own.pop(own.index(line)))
        else:
            missed.append(at)
            behind.append((line, False))
            if len(own) == ways:
                gone = own.pop(0)
                if gone in dirty:
                    dirty.remove(gone)
                    behind.append((gone, True))
            own.append(line)
        if stores:
            dirty.add(line)
    return missed, behind


@given(streams, st.integers(1, 5), st.integers(1, 4), st.sampled_from(["lru", "fifo"]))
def test_a_cache_is_what_lists_of_lines_say(
    stream: list[tuple[int, bool]], sets: int, ways: int, replacement: str
) -> None:
    made = Cache(cached(sets, ways, replacement))
    half = len(stream) // 2
    (one, before), (other, after) = run(made, stream[:half]), run(made, stream[half:])
    found = one + [half + at for at in other], before + after
    assert found == naive(sets, ways, replacement, stream)


@pytest.mark.parametrize("way", ["back", "in order", "many ways"])
@pytest.mark.parametrize("seed", range(6))
def test_long_streams_are_looked_up_alike(seed: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all accesses walk back, or none may take a step, or sets have too many ways for that: rare
    lines between frequent ones are far behind their last use."""
    if way == "in order":
        monkeypatch.setattr("simulator.caches_recent.STEPS", 0)
        monkeypatch.setattr("simulator.caches_recent.WORTH", 1 << 60)
    if way == "many ways":
        monkeypatch.setattr("simulator.caches.MOST_WAYS", 1)
    rng = np.random.default_rng(seed)
    sets, ways = int(rng.integers(1, 6)), int(rng.integers(2, 6))
    lines = np.where(rng.random(900) < 0.1, rng.integers(0, 90, 900), rng.integers(0, sets * ways + 2, 900))
    stream = list(zip(lines.tolist(), (rng.random(900) < 0.3).tolist(), strict=True))
    made, missed, behind = Cache(cached(sets, ways)), list[int](), list[tuple[int, bool]]()
    for first in range(0, len(stream), 300):
        came = run(made, stream[first : first + 300])
        missed += [first + at for at in came[0]]
        behind += came[1]
    assert (missed, behind) == naive(sets, ways, "lru", stream)
    wanted = {line for line, _ in stream}
    assert made.held == sum(min(ways, len({w for w in wanted if w % sets == s})) for s in range(sets))


def test_a_line_that_is_far_behind_is_told_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines take turns between two uses of a third: few steps back say nothing, so that set is looked up
    in order, and the other set is not."""
    monkeypatch.setattr("simulator.caches_recent.WORTH", 1 << 60)
    seen = list[int]()
    plain = Cache._in_order

    def counted(self: Cache, uses: Any, chosen: Any, missed: Any, goes: Any) -> Any:
        seen.append(len(chosen))
        return plain(self, uses, chosen, missed, goes)

    monkeypatch.setattr(Cache, "_in_order", counted)
    stream = [(0, False), *((2 + 2 * (at % 2), False) for at in range(40)), (0, True), (1, False), (1, True)]
    assert run(Cache(cached(2, 3)), stream)[0] == [0, 1, 2, 42]
    assert seen == [42]


@given(st.lists(st.integers(0, 1 << 40), max_size=8), st.integers(1, 96))
def test_parts_of_numbers(values: list[int], size: int) -> None:
    numbers = np.asarray(values, np.int64)
    assert quotient(numbers, size).tolist() == [v // size for v in values]
    assert remainder(numbers, size).tolist() == [v % size for v in values]


def _chunk(first: int, count: int, copies: bool) -> Chunk:
    at = np.arange(first, first + count)
    return Chunk(at, at * 0 + 4, at % 3, at % 2 if copies else None)


def test_chunks_are_put_together_in_order() -> None:
    many = ENOUGH // 2
    parts = [_chunk(0, 5, False), _chunk(5, 7, False), _chunk(12, 3, True), _chunk(15, 2, True)]
    parts += [_chunk(17 + many * at, many, False) for at in range(3)]
    found = list(gathered(parts))
    assert [len(chunk.tags) for chunk in found] == [12, 5, 2 * many, many]
    assert [chunk.copies is None for chunk in found] == [True, False, True, True]
    assert np.concatenate([chunk.starts for chunk in found]).tolist() == list(range(17 + 3 * many))
    assert found[1].copies is not None and found[1].copies.tolist() == [0, 1, 0, 1, 0]


@given(streams, st.integers(1, 4))
def test_more_ways_never_miss_more(stream: list[tuple[int, bool]], sets: int) -> None:
    missed = [set(run(Cache(cached(sets, ways)), stream)[0]) for ways in range(1, 7)]
    assert all(more <= fewer for fewer, more in pairwise(missed))


@given(streams)
def test_a_cache_that_holds_all_misses_each_line_once(stream: list[tuple[int, bool]]) -> None:
    assert len(run(Cache(cached(1, 24)), stream)[0]) == len({line for line, _ in stream})


# -- programs: the stream of accesses -----------------------------------------------------------------


Places = Mapping[str, tuple[int, tuple[int, ...]] | None]  # where views start, in bytes, and their strides


def walked(block: Block, outer: Mapping[str, int], around: Places) -> Iterator[tuple[int, int, bool]]:
    """Byte, size, and whether it is stored to, point by point; what scalar statements that follow each other
    use several times counts once."""
    passed = {i.name: i.passed.evaluate(outer) for i in block.indexes if i.passed is not None}
    ranges = block.ranges
    for values in product(*map(range, ranges.values())):
        here = {**passed, **dict(zip(ranges, values, strict=True))}
        if any(c.expr.evaluate(here) < 0 for c in block.constraints):
            continue
        places: dict[str, tuple[int, tuple[int, ...]] | None] = {}
        for ref in block.refinements:
            source = around.get(ref.source)
            if ref.strides is not None and ref.location is not None and ref.location.address is not None:
                places[ref.name] = ref.location.address.evaluate(here), ref.strides
            elif ref.strides is None and source is not None:
                moved = sum(e.evaluate(here) * s for e, s in zip(ref.access, source[1], strict=True))
                places[ref.name] = source[0] + moved * ref.dtype.bytes, source[1]
        seen = set[tuple[str, bool]]()
        for statement in block.statements:
            if isinstance(statement, Block):
                seen.clear()
                yield from walked(statement, here, places)
            elif isinstance(statement, Load | Store):
                key = statement.buffer, isinstance(statement, Store)
                place = places.get(key[0])
                if key not in seen and place is not None:
                    yield place[0], block.refinement(key[0]).dtype.bytes, key[1]
                seen.add(key)


def streamed(plan: Plan) -> list[tuple[int, int, bool]]:
    found = []
    stream = Stream(plan)
    for number in range(len(plan.root.items)):
        for chunk in stream.of(number):
            parts = zip(chunk.starts.tolist(), chunk.sizes.tolist(), chunk.tags.tolist(), strict=True)
            found += [(start, size, plan.tags[tag].stores) for start, size, tag in parts]
    return found


def without_tags(block: Block) -> Block:
    return replace(block, tags=(), statements=tuple(
        without_tags(s) if isinstance(s, Block) else s for s in block.statements
    ))  # fmt: skip


def check_order(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    hw = load_named("generic")
    statements = tuple(s for s in program.root.statements if not isinstance(s, Special))
    kernels = [s for s in statements if isinstance(s, Block)]
    if any(isinstance(s, Special) for kernel in kernels for _, b in walk(kernel) for s in b.statements):
        return
    root, _ = laid_apart(without_tags(replace(program.root, statements=statements)), hw)
    expected = list(walked(root, {}, {}))
    for size in (1 << 19, 200, 7):
        monkeypatch.setattr("simulator.caches_stream.CHUNK", size)
        assert streamed(Plan(root, hw)) == expected


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))]
)
def test_the_order_is_that_of_the_points(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_order(tile_program(seed).compile(), monkeypatch)


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 40))]
)
def test_the_order_is_that_of_the_points_in_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hw = load_named("generic")
    check_order(
        run_pipeline(window_program(seed).compile(), check_pipeline(hw), hw, verify="off"), monkeypatch
    )


# -- programs: both ways of counting, and values --------------------------------------------------------


@cache
def target(name: str) -> HwConfig:
    return load_named(name)


def check(program: Program, name: str) -> Program:
    hw = target(name)
    done = run_pipeline(program, check_pipeline(hw), hw, verify="off")
    CacheRun(done.root, hw, "both")  # InvariantError where they differ
    return done


@pytest.mark.parametrize("number", range(len(FEW)))
def test_programs_on_a_cpu_each(number: int) -> None:
    check(FEW[number].program(), CPUS[number % len(CPUS)])


@pytest.mark.parametrize("number", range(1, len(FEW), 3))
def test_programs_on_cores(number: int) -> None:
    """Each with caches of its own before a common one."""
    hw = load_named(CPUS[number % len(CPUS)])
    near = {"REG", "L1", "L2"}
    cores = msgspec.structs.replace(
        hw,
        memories=tuple(msgspec.structs.replace(m, count=3) if m.name in near else m for m in hw.memories),
        units=tuple(msgspec.structs.replace(u, count=3, startup_cycles=1) for u in hw.units),
    )
    done = run_pipeline(FEW[number].program(), check_pipeline(cores), cores, verify="off")
    run = CacheRun(done.root, cores, "both")  # InvariantError where the counts differ
    found = run.result("cores")
    for unit in found.units:
        told = unit.busy + sum(unit.stalled.values()) + sum(unit.idle.values())
        assert told == pytest.approx(found.cycles, abs=1)
    for own in found.caches:
        assert own.hits + own.misses == own.accesses
    assert msgspec.json.encode(CacheRun(done.root, cores, "both").result("cores")) == msgspec.json.encode(
        found
    )


def test_an_instruction_may_begin_with_a_lane_that_is_not_there() -> None:
    """Of a row in front of a buffer, say: at the address of an element with which another one begins."""
    (case,) = (case for case in CORPUS if case.name == "transposed_convolution")
    check(case.program(), "x86_64_avx512")


@pytest.mark.slow
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_all_programs(case: TileCase, name: str, rng: np.random.Generator) -> None:
    done = check(case.program(), name)
    inputs = make_inputs(case, rng)
    assert_same_values(done, inputs, name)


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 100))]
)
def test_generated_programs(seed: int) -> None:
    check(tile_program(seed).compile(), CPUS[seed % len(CPUS)])


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 60))]
)
def test_programs_with_windows(seed: int) -> None:
    made = window_program(seed)
    done = check(made.compile(), CPUS[seed % len(CPUS)])
    assert_same_values(done, made.inputs, CPUS[seed % len(CPUS)])


def assert_same_values(program: Program, inputs: Mapping[str, Any], name: str) -> None:
    """At the addresses that the simulator gives out, the program computes what it means."""
    hw = target(name)
    placed = replace(program, root=laid_apart(program.root, hw)[0])
    expected = interpret(program, inputs)
    for output, values in interpret_placed(placed, inputs, hw).items():
        np.testing.assert_array_equal(values, expected[output])


@pytest.mark.parametrize("seed", range(3))
def test_the_same_twice(seed: int) -> None:
    hw = target("x86_64_avx512")
    program = run_pipeline(window_program(seed).compile(), check_pipeline(hw), hw, verify="off")
    one, other = (msgspec.json.encode(simulate(program, hw)) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("seed", range(4))
def test_a_cache_as_large_as_the_program_fetches_what_is_compulsory(seed: int) -> None:
    """All lines that are touched, each once, by whoever comes first."""
    hw = target("generic")
    program = run_pipeline(window_program(seed).compile(), check_pipeline(hw), hw, verify="off")
    large = msgspec.structs.replace(hw, memories=tuple(
        msgspec.structs.replace(m, bytes=1 << 24, ways=None) if m.name == "L1" else m for m in hw.memories
    ))  # fmt: skip
    found = simulate(program, large, counts="simulated")
    root, _ = laid_apart(program.root, hw)
    lines = {
        line
        for start, size, _ in streamed(Plan(root, hw))
        for line in range(start // 64, (start + size - 1) // 64 + 1)
    }
    near = next(c for c in found.caches if c.memory == "L1")
    assert near.misses == len(lines)
    assert near.written_back == near.left
