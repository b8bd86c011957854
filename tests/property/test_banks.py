"""Banks after `partition{memory=...}`: where it says that units which work at the same time meet in none,
they don't, point by point; where they may, it says so; and what is planted is found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.model import HwConfig, Memory, PassStep, Unit
from stripe.affine import Affine
from stripe.analysis.deps import statement_graph
from stripe.analysis.liveness import slots_of, units_of
from stripe.analysis.units_banks import meetings
from stripe.diag import CompileError, Remark, Source
from stripe.ir import SLOT, Block, Direction, Load, Location, Program, Refinement, Store
from stripe.parser import parse
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.visit import map_blocks
from stripec.driver import read_program
from tests.support.golden import input_types
from tests.support.passes import program_of

NONE = "meet in no bank of NEAR"


def machine(banks: int, cores: int, engines: int, inflight: int, kept: bool) -> HwConfig:
    """Cores on one memory of some banks, which copy engines fill; with one core, another unit beside it."""
    dealt = (PassStep("partition", {"unit": "CORE"}),) if cores > 1 else ()
    steps = (
        *map(PassStep, ("canonicalize", "fuse", "localize", "scalarize", "canonicalize")), *dealt,
        PassStep("autotile", {"memory": "NEAR", "inflight": inflight}), PassStep("canonicalize"),
        PassStep("transfer", {"memory": "NEAR"}), *([PassStep("schedule", {"inflight": inflight})] * kept),
        PassStep("partition", {"memory": "NEAR"}), PassStep("place"),
    )  # fmt: skip
    return HwConfig(
        "banked", "for tests", "interpreter",
        memories=(
            Memory("NEAR", "explicit", 1024 * banks, banks=banks, align_bytes=4, bytes_per_cycle=16.0,
                   backing="FAR"),
            Memory("FAR", "explicit", align_bytes=4, bytes_per_cycle=4.0),
        ),
        units=(
            Unit("CORE", count=cores, vector_bytes=16, reaches=("NEAR",), operations=("add", "mul")),
            Unit("MORE", vector_bytes=8, reaches=("NEAR",)),
            Unit("COPY", "transfer", engines, bytes_per_cycle=4.0, reaches=("NEAR", "FAR")),
        ),
        pipeline=steps,
    )  # fmt: skip


# -- what happens, point by point -------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """What one leaf does at one point of the blocks around it: `chain` is, from the root on, the block, its
    point, how many points came before on its unit, the number of its unit and the statement."""

    chain: tuple[tuple[Block, tuple[int, ...], int, int, int], ...]
    unit: tuple[str, int]
    banks: frozenset[int]


Held = tuple[Refinement, int, tuple[int, ...]]  # an allocation, its bank and the origin of a view


def events(root: Block, memory: Memory) -> list[Event]:
    return list(_events(root, {}, {}, ("", 0), (), memory))


def _events(
    block: Block, outer: Mapping[str, int], around: Mapping[str, Held], unit: tuple[str, int],
    chain: tuple[tuple[Block, tuple[int, ...], int, int, int], ...], memory: Memory,
) -> Iterator[Event]:  # fmt: skip
    ranges = block.ranges
    passed = {i.name: i.passed.evaluate(outer) for i in block.indexes if i.passed is not None}
    before: dict[int, int] = {}
    touched: set[int] = set()
    mine = unit
    for values in itertools.product(*map(range, ranges.values())):
        point = passed | dict(zip(ranges, values, strict=True))
        if any(c.expr.evaluate(point) < 0 for c in block.constraints):
            continue
        here = unit
        if block.location is not None:
            bank = block.location.bank
            here = block.location.unit, 0 if bank is None else bank.evaluate(point)
        mine = here
        place = before.get(here[1], 0)
        before[here[1]] = place + 1
        views: dict[str, Held] = {}
        for ref in block.refinements:
            own = ref.direction is Direction.NEW or not chain
            if own and ref.location is not None and ref.location.unit == memory.name:
                slot = {SLOT: place % slots_of(block)}
                bank = ref.location.bank
                views[ref.name] = (
                    ref,
                    -1 if bank is None else bank.evaluate(point | slot),
                    (0,) * len(ref.shape),
                )
            elif not own and ref.source in around:
                allocation, number, origin = around[ref.source]
                moved = tuple(o + e.evaluate(point) for o, e in zip(origin, ref.access, strict=True))
                views[ref.name] = allocation, number, moved
        for number, statement in enumerate(block.statements):
            if isinstance(statement, Block):
                link = block, values, place, here[1], number
                yield from _events(statement, point, views, here, (*chain, link), memory)
            elif isinstance(statement, Load | Store) and statement.buffer in views:
                touched |= _banks(views[statement.buffer], memory)
    if touched:
        yield Event((*chain, (block, (), 0, 0, 0)), mine, frozenset(touched))


def _banks(held: Held, memory: Memory) -> set[int]:
    ref, number, at = held
    assert ref.location is not None
    if ref.location.spread is not None:
        axis = ref.location.spread
        return {at[axis] // (ref.shape[axis] // memory.banks)}
    return set(range(memory.banks)) if number < 0 else {number}


def meet(one: Event, other: Event) -> bool:
    """Whether two events may happen at the same time, on different units, in one bank."""
    if one.unit == other.unit or not one.banks & other.banks:
        return False
    for mine, others in zip(one.chain, other.chain, strict=False):
        block, point, place, unit, statement = mine
        _, other_point, other_place, other_unit, other_statement = others
        if mine == others:
            continue
        if point != other_point:
            if units_of(block) > 1 and unit != other_unit:
                return True
            near = abs(place - other_place) < slots_of(block)
            return near and statement != other_statement
        graph = statement_graph(block)
        first, last = min(statement, other_statement), max(statement, other_statement)
        return first != last and not networkx.has_path(graph, first, last)
    return False


def some_meet(root: Block, memory: Memory) -> bool:
    found = events(root, memory)
    return any(meet(one, other) for one, other in itertools.combinations(found, 2))


# -- generated programs and machines ------------------------------------------------------------------

PROGRAMS = (
    "function (A[M, K], B[K, N]) -> (C) {{ C[m, n : M, N] = +(A[m, k] * B[k, n]); }}",
    "function (A[M, K], B[K, N]) -> (R) {{ C[m, n : M, N] = +(A[m, k] * B[k, n]); R = exp(C) + 1; }}",
    "function (A[M, K], B[M, K]) -> (R, S) {{ R = A * B + A; S[m : M] = +(R[m, k]); }}",
    "function (A[M, K], B[M, K]) -> (R) {{ S[m, 0 : M, 1] = +(A[m, k]); R = exp(A / S) * B; }}",
)


def program(number: int, m: int, n: int, k: int) -> Program:
    text = PROGRAMS[number].format()
    shapes = f"A=f32[{m},{k}] B=f32[{k},{n}]" if number < 2 else f"A=f32[{m},{k}] B=f32[{m},{k}]"
    return read_program(Source("banks.tile", text)).lower(input_types({"shapes": shapes}), ())


def dealt_out(made: Program, hw: HwConfig) -> tuple[Program | None, list[Remark]]:
    remarks: list[Remark] = []

    def look(report: StepReport, result: Program) -> None:
        if getattr(report.step, "memory", "") == "NEAR" and report.step.name == "partition":
            remarks.extend(report.remarks)

    try:
        return run_pipeline(made, check_pipeline(hw), hw, observers=[look]), remarks
    except CompileError:
        return None, remarks  # the memory is too small, which it says


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_promise_holds_at_every_point(data: st.DataObject) -> None:
    draw = data.draw
    banks, cores, engines = draw(st.integers(2, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 8))
    hw = machine(banks, cores, engines, draw(st.integers(1, 2)), draw(st.booleans()))
    sizes = (draw(st.sampled_from((1, 3, 8, 16, 24))) for _ in range(3))
    placed, remarks = dealt_out(program(draw(st.integers(0, 3)), *sizes), hw)
    if placed is None:
        return
    memory = hw.memories[0]
    promised = any(r.acted and NONE in r.message for r in remarks)
    if promised:
        assert meetings(placed.root, memory, hw) == []
        assert not some_meet(placed.root, memory)
        crowded = map_blocks(placed.root, in_one_bank)
        if some_meet(crowded, memory):
            assert meetings(crowded, memory, hw)
    elif any("lies in" in r.message or "spread over" in r.message for r in remarks):
        assert any(not r.acted and "may meet in bank" in r.message for r in remarks)


def test_units_are_told_apart_where_the_number_of_one_depends_on_the_tile() -> None:
    """Both points of a tile read A, in one bank, at the same time."""
    made = program_of("""
        block main [] (
          in A[0] f32(1) @FAR  in B[0] f32(4) @FAR  out C[0]:assign f32(4) @FAR  new A_NEAR f32(1) @NEAR[0]:0
        ) {
          block load [] @COPY (in A[0] f32(1)  out A_NEAR[0]:assign f32(1)) {
            $a = load(A)
            A_NEAR = store($a)
          }
          block c [o:2] (in A_NEAR[0] f32(1)  in B[2*o] f32(2)  out C[2*o]:assign f32(2)) #tiled {
            block c [n:2, no = 2*o] @CORE[n + no] (
              in A_NEAR[0] f32(1)  in B[n] f32(1)  out C[n]:assign f32(1)
            ) {
              block c [] (in A_NEAR[0] f32(1)  in B[0] f32(1)  out C[0]:assign f32(1)) {
                $a = load(A_NEAR)
                $b = load(B)
                $c = mul($a, $b)
                C = store($c)
              }
            }
          }
        }
    """)
    hw = machine(2, 4, 1, 1, False)
    found = meetings(made.root, hw.memories[0], hw)
    assert [(m.path, m.bank) for m in found] == [("main/c/c", 0)]
    assert some_meet(made.root, hw.memories[0])


def in_one_bank(block: Block) -> Block:
    return replace(
        block,
        refinements=tuple(
            replace(r, location=Location("NEAR", Affine(0)))
            if r.location is not None and r.location.unit == "NEAR"
            else r
            for r in block.refinements
        ),
    )


TILES = """
    block main [] (in X[0] f32(16):(1) @FAR  out R[0]:assign f32(16):(1) @FAR) {{
      block t [o:4] inflight={inflight} (in X[4*o] f32(4)  out R[4*o]:assign f32(4)
                                new A f32(4):(1) @NEAR[{a}]  new B f32(4):(1) @NEAR[{b}]) {{
        block a [x:4] @COPY (in X[x] f32(1)  out A[x]:assign f32(1)) {{ $a = load(X)  A = store($a) }}
        block b [x:4] @MORE (in A[x] f32(1)  out B[x]:assign f32(1)) {{
          $a = load(A) f32  $b = add($a, $a) f32  B = store($b) }}
        block r [x:4] @COPY (in B[x] f32(1)  out R[x]:assign f32(1)) {{ $b = load(B)  R = store($b) }} }} }}
"""


@pytest.mark.parametrize(
    ("inflight", "a", "b", "met"),
    [
        (1, "0", "0", False),  # each needs what the one before it made
        (2, "slot", "2 + slot", False),
        (2, "0", "1", True),  # the next point's A while this one's is read
        (2, "slot", "1 + slot", True),  # slot 0 of B and slot 1 of A lie in one bank
        (2, "slot", "1 - slot", True),
        (3, "slot", "3 + slot", False),
        (3, "slot", "2 + slot", True),
    ],
)
def test_planted_meetings_of_points_in_flight(inflight: int, a: str, b: str, met: bool) -> None:
    hw = machine(8, 1, 1, 2, True)
    planted = program_of(TILES.format(inflight=inflight, a=a, b=b)).root
    assert bool(meetings(planted, hw.memories[0], hw)) == met
    assert some_meet(planted, hw.memories[0]) == met


CORES = """
    block main [] (in X[0] f32(32):(1) @NEAR[spread 0]  out R[0]:assign f32(32):(1) @NEAR[spread 0]) {{
      block t [c:{cores}] @CORE[c] (in X[{step}*c] f32({size})  out R[{step}*c]:assign f32({size})) {{
        block k [x:{size}] (in X[x] f32(1)  out R[x]:assign f32(1)) {{ $a = load(X)  R = store($a) }} }} }}
"""


@pytest.mark.parametrize(
    ("cores", "step", "size", "met"),
    [
        (8, 4, 4, False),
        (4, 8, 8, False),
        (4, 8, 3, False),
        (8, 2, 2, True),
        (4, 6, 6, True),
        (2, 16, 16, False),
    ],
)
def test_planted_meetings_of_units(cores: int, step: int, size: int, met: bool) -> None:
    hw = machine(8, cores, 1, 1, True)
    planted = parse(CORES.format(cores=cores, step=step, size=size)).root
    assert bool(meetings(planted, hw.memories[0], hw)) == met
    assert some_meet(planted, hw.memories[0]) == met
