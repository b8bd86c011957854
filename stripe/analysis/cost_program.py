"""How long a program is expected to take, read off the program itself once all passes are through.

    estimate(program, target) -> cycles of one run, and what is busy for how long

The models that choose tiles weigh thousands of them by their sizes alone. This one is asked about a single
program, and sees what has become of the sizes: which index runs along the lanes, what is written out, where
ragged tiles meet and what is tested there, which operands were copied and how their vectors lie in lines,
how often each loop really runs. All rates are those of the target; no term knows what is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.affine import Affine
from stripe.analysis.cost_problem import way_in
from stripe.analysis.cost_program_leaf import Body, leaf_cycles, over_line_ends
from stripe.analysis.cost_program_nest import Nest, nest_of
from stripe.analysis.cost_program_traffic import Order, Traffic
from stripe.analysis.cost_program_trips import trips
from stripe.analysis.cost_sets import PAGE_BYTES
from stripe.ir import Block, Program

POINT_CYCLES = 6.0  # to set up what is inside a point of a block with blocks
# Strips of a 2048 x 1024 f32 array, all rows on one set, on Zen 4: 13 cycles a row where a vector is a line,
# 19 where two are two; 30 where one lies across two, 31 to 38 where two to four do.
OVER_LINE_ENDS = 1.5  # times the wait for a set that is added where a vector needs two lines
BESIDE_MEMORY = 4.0  # the power in which what comes in and what is computed meanwhile are added


@dataclass(frozen=True, slots=True)
class Estimate:
    """`cycles` of one run, with what an earlier one left in the caches; `parts` by what is busy, which
    overlap. Where points are dealt out to units, which work side by side, it is those of one of them."""

    cycles: float
    parts: Mapping[str, float]

    @property
    def bound(self) -> str:
        """What is busy longest; empty where nothing is done."""
        return max(self.parts, key=lambda part: self.parts[part], default="")


@dataclass(frozen=True, slots=True)
class _Level:
    memory: Memory
    rate: float
    traffic: Traffic


def estimate(program: Program, hw: HwConfig) -> Estimate | None:
    """What is expected of one run; None for a target without a unit that computes."""
    unit = hw.compute_unit
    return None if unit is None else estimate_block(program.root, hw, unit)


def estimate_block(root: Block, hw: HwConfig, unit: Unit) -> Estimate:
    """What is expected of one run of a root on a unit that computes."""
    nest = nest_of(root, hw)
    bodies = {id(way[-1]): Body.of(way[-1], unit) for way in nest.ways}
    orders = {key: body.order for key, body in bodies.items()}
    line = hw.line_bytes
    levels = tuple(_levels(nest, orders, hw, line))
    cycles, parts = 0.0, dict[str, float]()
    for way in nest.ways:
        busy, points = _busy(way, bodies[id(way[-1])], unit, line)
        units = prod(nest.units for nest in way)
        busy, points = {name: part / units for name, part in busy.items()}, points / units
        computing = busy.pop("computing")
        moved = {way_in(level.memory): _moved(bodies[id(way[-1])], level) * points for level in levels}
        cycles += sum(part**BESIDE_MEMORY for part in (computing, *moved.values())) ** (1 / BESIDE_MEMORY)
        for name, part in {**busy, **moved}.items():
            parts[name] = parts.get(name, 0.0) + part
    around = POINT_CYCLES * _points_around(nest)
    return Estimate(cycles + around, {**parts, "loops": parts.get("loops", 0.0) + around})


def _levels(nest: Nest, orders: Mapping[int, Order], hw: HwConfig, line: int) -> list[_Level]:
    """The caches, each with the rate at which the memory behind delivers."""
    found = []
    for memory in hw.memories:
        behind = hw.memory(memory.backing) if memory.backing else None
        if memory.kind == "cached" and memory.bytes and behind is not None and behind.bytes_per_cycle:
            # Where ways are larger than pages, these are where they are by chance.
            way = min(memory.bytes // memory.ways, PAGE_BYTES) if memory.ways else 0
            traffic = Traffic(nest, orders, memory.bytes, line, way, memory.crowded_loss)
            found.append(_Level(memory, behind.bytes_per_cycle, traffic))
    return found


def _moved(body: Body, level: _Level) -> float:
    """Cycles to bring in what a leaf touches. What it writes is brought in, too, and goes back. Lines that go
    to few sets wait for each other, beside those of other accesses, and more so where a vector needs two."""
    memory, leaf = level.memory, body.leaf
    cycles = waits = 0.0
    for number, access in enumerate(leaf.accesses):
        if not access.buffer.near:
            lines = level.traffic.bytes(leaf, number) / memory.line_bytes
            cycles += lines * memory.line_bytes / level.rate * (2 if access.writes else 1)
            if memory.set_cycles and memory.ways:
                over = OVER_LINE_ENDS * over_line_ends(access, body, memory.line_bytes, body.width)
                each = memory.set_cycles * (1 + over) / level.traffic.sets(leaf, number)
                waits = max(waits, lines * each)
    return max(cycles, waits)


def _busy(way: tuple[Nest, ...], body: Body, unit: Unit, line: int) -> tuple[dict[str, float], float]:
    """How long each part of a unit is busy with all executions of a leaf, and the share of its points
    that are there."""
    leaf = way[-1]
    outer: dict[str, int] = {}
    limits: list[Affine] = []
    for nest in way:
        limits += nest.limits
        if nest is not leaf:
            outer.update(nest.loops)
    executions, points = prod(outer.values()), 0.0
    busy: dict[str, float] = {"computing": 0.0}
    full, tested = trips(leaf.loops, outer, limits, body.unrolled, body.lane, body.width)
    for trip, open_ in ((full, ()), (tested, tuple(limits))):
        if trip.share:
            points += trip.share * trip.points
            for name, part in leaf_cycles(body, trip, unit, line, open_, outer).items():
                busy[name] = busy.get(name, 0.0) + part * trip.share * executions
    return busy, points


def _points_around(nest: Nest, times: int = 1) -> int:
    """How often points of blocks with blocks inside are run."""
    if not nest.parts:
        return 0
    here = times * prod(nest.loops.values())
    return here + sum(_points_around(part, here) for part in nest.parts)
