"""The roofline model for a tile whose results stay in vector registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import gcd, inf, log2, prod

import numpy as np

from hwconfigs.model import Memory
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, box, box_elements, leaves, touched_elements
from stripe.analysis.cost_blocks import Blocks, blocks_of
from stripe.analysis.cost_problem import (
    APART_CYCLES,
    FETCHED_AHEAD,
    PAGE_BYTES,
    RUN_CYCLES,
    RUNS,
    TILE_CYCLES,
    Costs,
    Evaluation,
    Limit,
    Problem,
    Traffic,
    bytes_again,
    combine,
    fetched_bytes,
    inner_orders,
    jumps,
    possible_sizes,
    runs,
    runs_of_box,
    usable_bytes,
    way_in,
)
from stripe.analysis.groups import grouped
from stripe.analysis.lanes import Lane, access_instructions, in_square, joined_row, lane_candidates, packing
from stripe.analysis.windows import LEAST_GAIN, MOST, lines_read, room, sharing, together
from stripe.analysis.work import vector_operations
from stripe.ir import Direction, Special

LATENCY_CYCLES = 4.0  # until the result of an addition or multiply-add can be added to
STORED_CYCLES = 5.0  # until what was stored can be loaded again
MAX_ROWS = 64
MAX_ORDERED = 5  # loops of which every order is looked at
APART_ROWS = (
    4  # rows side by side that share no data: enough to fill the time in which one waits for its sums
)
APART_GAIN = 0.95  # of the time that they take one after the other, for which that is done
COPIED = 8  # tiles that must share an input before a copy of it pays
LINE_CYCLES = 8.0  # that a line of a result takes longer which is fetched before a part of it is written
STEPS_BESIDE = 8  # steps of a sum that go along memory side by side: as many rows as are fetched ahead well
VECTORS_BESIDE = 8  # of the results that such steps add to in registers
TESTED = 0.01  # of a tile's time, for each constraint on an index whose points are written out


@dataclass(frozen=True, slots=True)
class _Ordered:
    """What candidates cost and need in any order of the tile loops."""

    sizes: Sizes
    upto: Sizes | None
    cycles: Costs
    busy: Mapping[str, Costs]
    missed: Costs
    traffic: Traffic
    limits: tuple[Limit, ...]
    begun: dict[tuple[int, str], Costs] = field(
        default_factory=dict
    )  # `RegisterRoofline._begun`, where asked


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a leaf takes for all tiles: cycles, how long each part of the unit is busy, registers (of vectors,
    and such that hold rows), and the bytes that a tile fetches again for conflicts."""

    cycles: Costs
    busy: Mapping[str, Costs]
    registers: Counts
    blocks: Counts
    again: Costs


class RegisterRoofline:
    """Cycles for each point of a tile that keeps its results in registers.

    One index, the lane index, runs along vectors; the others that may be tiled are rows.
    What the leaf that does most of the work reduces over is not tiled: it streams, and at each step

        operations / rate,  loads / load ports,  stores / store ports,  latency of one addition

    stand against each other, and against the bytes of the tiles from each farther memory, as
    `combine` has it. The limit is the register file: the results of a tile, for each input the
    values that are used again before the next step, at least one, and one for intermediate
    values. Rows that fall into the same sets of the nearest cache, and are
    more than its ways, are fetched again at every step.

    A leaf that is uses of an instruction on registers that hold rows goes in steps of what that takes, and
    its results stay in those registers.
    """

    unit = "cycles per point"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._last: _Ordered | None = None
        self._lanes: dict[int, Lane | None] = {}  # by the identity of the problem's leaves
        self._blocked: dict[int, Blocks | None] = {}  # as well

    def refusal(self) -> str:
        problem = self.problem
        if problem.unit is None:
            return "the target has no compute unit"
        if any(isinstance(s, Special) for leaf in problem.leaves for s in leaf.block.statements):
            return "it holds a special, which works on whole views"
        if not self._keeps_results:
            return "nothing is used twice: there is no result to keep in registers"
        if self._lead is None or self._lane(self._lead) is None:
            return "no index can run along the lanes"
        if not self.indices:
            return "every index that it could tile is a reduction"
        if self._apart and len(self.problem.leaves) == 1:
            return "its lanes are summed at the end, and no two rows share data"
        return ""

    @property
    def _keeps_results(self) -> bool:
        """Whether some leaf adds to a result that outlives what it runs through. A buffer of each point of a
        block inside does not outlive that block's indexes: they are to be tiled there."""
        problem = self.problem
        inside = leaves(problem.block, problem.outer, every_level=True)
        return any(
            self._held(replace(leaf, operands=deep.operands))
            for leaf, deep in zip(problem.leaves, map(grouped, inside), strict=True)
            if self._streamed(leaf)
        )

    @cached_property
    def _lead(self) -> Leaf | None:
        """The leaf that does most of the work: it decides which index is the lane."""
        return max(
            self.problem.leaves, key=lambda f: f.points * max(1, vector_operations(f)), default=None
        )  # fmt: skip

    def _lane(self, leaf: Leaf) -> Lane | None:
        """The lane index of a leaf: that of the leading leaf, where it has it and that pays."""
        if id(leaf) not in self._lanes:
            self._lanes[id(leaf)] = self._find_lane(leaf)
        return self._lanes[id(leaf)]

    def _find_lane(self, leaf: Leaf) -> Lane | None:
        assert self.problem.unit is not None
        found = self._candidates(leaf)
        if leaf is not self._lead and self._lead is not None:
            found = (*self._same(self._lane(self._lead), leaf, found), *found)
        if leaf is self._lead and not self._alone:
            return min(found, key=self._along, default=None)
        return found[0] if found else None

    def _candidates(self, leaf: Leaf) -> tuple[Lane, ...]:
        assert self.problem.unit is not None
        return lane_candidates(leaf, self.problem.unit.vector_bytes, packed=self._alone)

    def _along(self, lane: Lane) -> float:
        """Instructions of the nest where the leading leaf has this lane index, and all others that can."""
        total = 0.0
        for leaf, found in self._every_candidate:
            shared = self._same(lane, leaf, found)
            total += leaf.points * next((other.cost for other in (*shared, *found)), len(leaf.operands))
        return total

    def _same(self, lane: Lane | None, leaf: Leaf, found: Sequence[Lane]) -> list[Lane]:
        """Those of a leaf's lanes that go along the index of a lane of the leading leaf. Indexes of blocks
        inside are others for each leaf, whatever they are called."""
        if lane is None or (leaf is not self._lead and lane.index not in self.problem.ranges):
            return []
        return [other for other in found if other.index == lane.index]

    @cached_property
    def _every_candidate(self) -> list[tuple[Leaf, tuple[Lane, ...]]]:
        return [(leaf, self._candidates(leaf)) for leaf in self.problem.leaves]

    @property
    def _alone(self) -> bool:
        """Whether no other leaf wants a lane index that suits it: copies of inputs may decide it."""
        return len(self.problem.leaves) == 1

    def _shares(self, leaf: Leaf) -> bool:
        """Whether a tile does more than its rows would one after the other: its results are
        vectors, or some input serves several rows."""
        lane = self._lane(leaf)
        inputs = [o for o in leaf.operands if o.direction.reads]
        return (lane is not None and lane.index not in self._streamed(leaf)) or any(
            not o.indexes >= set(self.indices) for o in inputs
        )

    @cached_property
    def _apart(self) -> bool:
        """Whether rows that are summed up share no data."""
        sums = (leaf for leaf in self.problem.leaves if self._streamed(leaf) and self._held(leaf))
        return not any(self._shares(leaf) for leaf in sums)

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """All but the reductions of the leading leaf, or those that are asked for by name. Another
        leaf may reduce over one of them: it then adds what each tile gives to its result."""
        reduced = set(self._lead.reductions) if self._lead is not None else set()
        asked = self.problem.names
        return tuple(
            name
            for name, size in self.problem.ranges.items()
            if size > 1 and (name in asked if asked else name not in reduced)
        )

    def _blocks(self, leaf: Leaf) -> Blocks | None:
        """How a leaf is uses of an instruction on registers that hold rows; None if it is none."""
        if id(leaf) not in self._blocked:
            self._blocked[id(leaf)] = self._find_blocks(leaf)
        return self._blocked[id(leaf)]

    def _find_blocks(self, leaf: Leaf) -> Blocks | None:
        problem, lane = self.problem, self._lane(leaf)
        raw = next(r for r, own in zip(problem.ungrouped, problem.leaves, strict=True) if own is leaf)
        return None if problem.unit is None else blocks_of(raw, lane, problem.hw, problem.unit)

    @cached_property
    def _in_blocks(self) -> frozenset[str]:
        """The results of such leaves: to others they lie in memory."""
        found = ((leaf, self._blocks(leaf)) for leaf in self.problem.leaves)
        return frozenset(o.name for leaf, b in found if b for o in leaf.operands if o.direction.writes)

    def _streamed(self, leaf: Leaf) -> tuple[str, ...]:
        """The indexes of a leaf that run through, within the tile, while its results stay."""
        return tuple(n for n in leaf.ranges if n not in self.problem.ranges or n in leaf.reductions)

    def _held(self, leaf: Leaf) -> list[Operand]:
        """The results that a leaf adds to at every step."""
        streamed = set(self._streamed(leaf))
        return [o for o in leaf.operands if o.direction.writes and not o.indexes & streamed]

    # ------------------------------------------------------------------------- candidates

    def choices(self) -> dict[str, tuple[int, ...]]:
        problem, lead = self.problem, self._lead
        assert problem.unit is not None and lead is not None
        lane = self._lane(lead)
        found = {}
        for name in self.indices:
            size = problem.ranges[name]
            sizes = possible_sizes(size, problem.rule)
            if lane is not None and name == lane.index:
                most = problem.unit.registers * lane.width
                sizes = tuple(s for s in sizes if s <= most and (s % lane.width == 0 or s == size)) or (size,)
            else:
                sizes = tuple(s for s in sizes if s <= (APART_ROWS if self._apart else MAX_ROWS))
            found[name] = sizes
        return found

    def orders(self) -> tuple[tuple[str, ...], ...]:
        return inner_orders(self.indices)

    def evaluate(self, sizes: Sizes, order: Sequence[str], upto: Sizes | None = None) -> Evaluation:
        if self._last is None or self._last.sizes is not sizes or self._last.upto is not upto:
            self._last = self._whatever_the_order(sizes, upto)
        last = self._last
        moved_in: dict[str, Costs] = {}
        nearest = ""
        waits: Costs = np.asarray(0.0)
        for number, (memory, bandwidth) in enumerate(self.problem.farther()[1:]):
            capacity = usable_bytes(memory)
            if capacity is not None and self._touched <= capacity:
                # All tiles bring in the same, once; the levels behind see no more than that.
                if number and upto is None and self._alone:
                    written = RUN_CYCLES * self._runs(sizes, order, results=True)
                    moved_in[nearest] = moved_in[nearest] + written
                break
            moved = last.traffic.bytes(order, capacity)
            again = last.missed if number == 0 else 0.0
            brought = (moved + again) / bandwidth
            if number == 1 and upto is None:  # what begins elsewhere is not fetched ahead
                waits = APART_CYCLES * self._runs(sizes, order)
            moved_in[way_in(memory)] = brought
            nearest = nearest or way_in(memory)
        points = max(leaf.points for leaf in self.problem.leaves)
        cycles = combine(last.cycles, *moved_in.values(), share=FETCHED_AHEAD) + waits
        return Evaluation(cycles / points, last.limits, {**last.busy, **moved_in, RUNS: waits}, last.cycles)

    def _runs(self, sizes: Sizes, order: Sequence[str], results: bool = False) -> Costs:
        """How often what all tiles touch (or their results alone), the first time, does not lie beside what
        was touched before. The innermost tile loop may go on along it."""
        assert self._last is not None
        known = self._last.begun
        total: Costs = np.asarray(0.0)
        for number, operand in enumerate(self.problem.operands):
            if operand.local or operand.name in self.problem.constant:
                continue
            if operand.direction.writes or not results:
                along = order[-1] if order[-1] in operand.indexes else ""
                if (number, along) not in known:
                    known[number, along] = self._begun(number, sizes, along)
                total = total + known[number, along]
        return total

    def _begun(self, number: int, sizes: Sizes, along: str) -> Costs:
        """The same for one operand, by its number, where the innermost tile loop goes on `along` an index of
        it, or along none."""
        operand, ranges = self.problem.operands[number], self.problem.ranges
        inside = {**self.problem.complete(sizes), **({along: ranges[along]} if along else {})}
        loops = sorted(operand.indexes & set(self.indices))
        trips = (-(-ranges[n] // np.asarray(inside[n], np.int64)) for n in loops)
        count = runs(operand, inside)[0] * prod(trips, start=np.asarray(1, np.int64))
        begun: Costs = np.minimum(count, self._lines[number])  # others have brought the rest
        return begun

    @cached_property
    def _lines(self) -> tuple[float, ...]:
        """The lines of memory that each operand takes, all in all."""
        line, whole = self.problem.memory_line, self.problem.ranges
        return tuple(float(fetched_bytes(o, whole, line)) / line for o in self.problem.operands)

    @cached_property
    def _touched(self) -> float:
        """The bytes of all that the whole block touches."""
        line, whole = self.problem.memory_line, self.problem.ranges
        outside = (o for o in self.problem.operands if not o.local)
        return float(sum(fetched_bytes(o, whole, line) for o in outside))

    def _whatever_the_order(self, sizes: Sizes, upto: Sizes | None) -> _Ordered:
        """What does not depend on the order of the tile loops: it is asked for each order in turn."""
        problem = self.problem
        assert problem.unit is not None
        complete = problem.complete(sizes)
        greatest = None if upto is None else problem.complete(upto)
        cycles: Costs = np.asarray(0.0)
        needed: Counts = np.asarray(0, np.int64)
        blocks: Counts = np.asarray(0, np.int64)
        missed: Costs = np.asarray(0.0)
        busy: dict[str, Costs] = {}
        tiles = problem.tiles(upto or sizes)
        for leaf in problem.leaves:
            spent = self._leaf(leaf, complete, tiles, upto)
            cycles, missed = cycles + spent.cycles, missed + spent.again
            needed, blocks = np.maximum(needed, spent.registers), np.maximum(blocks, spent.blocks)
            busy = {part: busy.get(part, 0.0) + time for part, time in spent.busy.items()}
        tile_bytes = [self._tile_bytes(o, complete, greatest) for o in problem.operands]
        moved = Traffic(problem.operands, problem.ranges, complete, tile_bytes, greatest)
        limits = [Limit(needed, problem.unit.registers, f"vector registers of {problem.unit.name}")]
        if used := next(filter(None, map(self._blocks, problem.leaves)), None):
            limits.insert(0, Limit(blocks, used.registers, f"registers of '{used.instruction}'"))
        if problem.limits:
            whole = sum(tile_bytes, start=np.asarray(0.0)).astype(np.int64)
            limits += [Limit(whole, m.bytes, f"bytes of {m.name}") for m in problem.limits]
        return _Ordered(sizes, upto, cycles, busy, missed * tiles, moved, tuple(limits))

    def untiled(self, sizes: Mapping[str, int]) -> float:
        if not self._apart:
            return inf  # a tile of everything, too, puts the reductions outside
        ones = dict.fromkeys(sizes, 1)
        return float(self.evaluate(ones, tuple(ones)).cost) * APART_GAIN

    def steps_beside(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """A tile in which a few steps of a sum go along memory side by side: sizes, outermost loop first.

        That is for a block that reads what lies beyond the caches of the core once and as it lies in
        memory, slower than it is added to results that stay in these caches. A tile of `sizes` would take it
        in pieces, and what is fetched ahead behind each is wasted. Empty where that is not so.
        """
        problem, lead = self.problem, self._lead
        lane = None if lead is None else self._lane(lead)
        caches = [m for m in problem.hw.memories if m.kind == "cached" and m.bytes]
        if problem.block.children or lead is None or lane is None or len(caches) < 2:
            return {}
        read = [o for o in lead.operands if o.direction.reads and not o.local]
        tile = {name: int(size) for name, size in problem.complete(sizes).items()}
        if lane.index in self._streamed(lead) or all(runs_of_box(o, tile)[0] == 1 for o in read):
            return {}
        order = {n: problem.ranges[n] for n in sorted(problem.ranges, key=lambda n: n == lane.index)}
        again = bytes_again(problem.operands, order, problem.memory_line)
        own = caches[-2].bytes
        assert own is not None
        sums = [n for n in lead.reductions if problem.ranges.get(n, 1) > 1]
        if again is None or again > own / 2 or self._touched <= own or not sums:
            return {}
        if self._added_in_memory(lead, lane) > self._brought_once():
            return {}
        steps = _even(order[sums[-1]], STEPS_BESIDE)
        length = -(-_even(order[lane.index], VECTORS_BESIDE * lane.width) // lane.width) * lane.width
        beside = {sums[-1]: steps, lane.index: length}
        return {n: min(beside.get(n, 1), size) for n, size in order.items() if size > 1}

    def _added_in_memory(self, leaf: Leaf, lane: Lane) -> float:
        """Cycles of a leaf that loads, adds to and stores its results at each step: the next step waits for
        what this one stored; only the vectors of one row are side by side."""
        assert self.problem.unit is not None
        size = leaf.ranges[lane.index]
        row = -(-size // lane.width) / self.problem.unit.stores_per_cycle
        return leaf.points // size * max(row, LATENCY_CYCLES + STORED_CYCLES)

    def _brought_once(self) -> float:
        """Cycles until all that the block touches has come from the level where it lies."""
        cycles = 0.0
        for memory, bandwidth in self.problem.farther()[1:]:
            capacity = usable_bytes(memory)
            if capacity is None or self._touched > capacity:
                cycles = self._touched / bandwidth
        return cycles

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        """What streams outside, then the rows, and the lanes inside. A lane index that streams
        goes in front of the rows: each row then has a vector of its own. Rows of which nothing is summed up
        come one after the other."""
        lane = self._lane(leaf)
        streamed = self._streamed(leaf)
        rows = tuple(n for n in leaf.ranges if n not in streamed and (lane is None or n != lane.index))
        last = () if lane is None or lane.index in streamed else (lane.index,)
        steps = [n for n in streamed if lane is None or n != lane.index]
        first = _along_memory(leaf, steps, self.problem.memory_line, lane.index if lane is not None else "")
        inner = () if lane is None or lane.index not in streamed else (lane.index,)
        if not self._held(leaf):
            return (*rows, *first, *inner, *last)
        return (*first, *inner, *rows, *last)

    def settled_lane(self, leaf: Leaf) -> str:
        lane = self._lane(leaf)
        if lane is None or lane.index != self._for_copies or not self._held(leaf):
            return ""
        return lane.index

    @cached_property
    def _for_copies(self) -> str:
        """The lane index of the leading leaf, if that reads an input in vectors of a copy alone."""
        lead = self._lead
        lane = None if lead is None else self._lane(lead)
        if lead is None or lane is None or not self._alone or lane.index in self._streamed(lead):
            return ""
        copied = any(
            access_instructions(o, lane.index, lane.width) > 1.0
            and packing(lead, o, lane.index, lane.width) is not None
            for o in lead.operands
        )
        return lane.index if copied else ""

    # ------------------------------------------------------------------------------ a leaf

    def _leaf(self, leaf: Leaf, sizes: Sizes, tiles: Counts, upto: Sizes | None) -> _Spent:
        unit = self.problem.unit
        assert unit is not None
        lane = self._lane(leaf)
        width, name = (lane.width, lane.index) if lane is not None else (1, "")
        streamed = self._streamed(leaf)
        blocked = self._blocks(leaf)
        most = {} if blocked is None else blocked.most
        lines = 1.0 if blocked is None else blocked.lines  # of a register, as a port takes them
        length = {
            n: -(-np.asarray(sizes.get(n, leaf.ranges[n]), np.int64) // most.get(n, 1)) for n in streamed
        }
        steps = prod(
            (-(-size // width) if n == name else size for n, size in length.items()),
            start=np.asarray(1, np.int64),
        )
        streams = any(leaf.ranges[n] > (width if n == name else 1) for n in streamed)
        inside = {n: np.asarray(sizes[n], np.int64) for n in leaf.ranges if n not in streamed}
        row = self._row(leaf)
        if row:
            whole = np.asarray((upto or sizes)[name], np.int64) == leaf.ranges[name]
            inside[name] = np.where(whole, inside[name] * inside[row], inside[name])
            inside[row] = np.where(whole, 1, inside[row])
        vectors = -(-inside.get(name, np.asarray(1, np.int64)) // width)
        each_row = {n: size for n, size in inside.items() if n != name}
        rows = {n: -(-size // most.get(n, 1)) for n, size in each_row.items()}
        row_count = prod(rows.values(), start=np.asarray(1, np.int64))

        visited = [n for n in self.inner_order(leaf) if n not in streamed]
        loads = stores = again = np.asarray(0.0)
        registers = np.asarray(0, np.int64)
        held = self._held(leaf) if streams else []
        kept: set[str] = set()
        for operand in leaf.operands:
            count = touched_elements(operand, rows)
            along = bool(name) and name in operand.indexes
            pieces = count * vectors if along else count
            often = steps if operand.indexes & set(streamed) else 1
            if self._in_registers(operand):
                if operand.name not in kept:
                    registers = registers + self._whole_vectors(operand, name, width, sizes)
                kept.add(operand.name)
                continue
            # A load port is as long busy with a splat as with a vector.
            each = max(access_instructions(operand, name, width), 1.0)
            if each > 1.0 and self._alone and packing(leaf, operand, name, width) is not None:
                each = 1.0
            issued = pieces * (each * often if blocked is None else lines * often)
            if operand.direction.writes:
                if operand in held or not leaf.reductions:
                    issued = np.minimum(issued, pieces * _in_squares(operand, name, width, rows))
                stores = stores + np.maximum(issued, pieces * (often / width))
                if operand in held:
                    registers = registers + pieces
                    stores = stores + (0.0 if along else count * 2 * log2(max(width, 2)))
                continue
            loads = loads + issued
            again = again + self._conflicts(operand, each_row) * count * steps
            if streams:
                registers = registers + _shared(operand, visited, {**rows, name: vectors})
        operations = vector_operations(leaf)
        if held and lane is not None:
            loads = self._in_windows(leaf, lane, rows, vectors, steps, loads, upto is not None)
        arithmetic = row_count * vectors * steps * tiles
        if upto is not None and blocked is None:  # there is no less work than without padding
            arithmetic = np.maximum(arithmetic, _least_steps(leaf, name, width, row))
        # The lanes of all rows are summed side by side, while what needs the sums waits.
        ends = 2 * log2(max(width, 2)) * LATENCY_CYCLES if name in streamed else 0.0
        each_cycles = max(1, operations) / unit.fma_per_cycle if blocked is None else blocked.cycles
        latency = LATENCY_CYCLES if blocked is None else blocked.latency
        busy = {
            "arithmetic": np.asarray(arithmetic * each_cycles, float),
            "loads": tiles * (loads / unit.loads_per_cycle),
            "stores": tiles * (stores / unit.stores_per_cycle),
            "latency": np.asarray(tiles * (steps * latency + ends if held else 0.0)),
        }
        spent = combine(*busy.values())
        busy["loops"] = np.asarray(TILE_CYCLES * tiles, float)
        if upto is None and self._alone:
            busy["copies"] = self._turned(leaf, name, width, inside) / unit.loads_per_cycle
            busy["lines"] = LINE_CYCLES * self._fetched_to_write(leaf, sizes)
        # Tiles that such a constraint cuts get code of their own; a loop it only bounds.
        tested = sum(
            (np.asarray(sizes[n]) > 1).astype(float)
            for expr in leaf.constraints
            for n in expr.names
            if n in rows and n in sizes
        )
        spent = spent * (1 + TESTED * tested)
        registers = registers + (1 if blocked is None and (operations > 1 or not streams) else 0)
        apart = sum((busy.get(part, 0.0) for part in ("loops", "copies", "lines")), start=np.asarray(0.0))
        blocks = registers if blocked is not None else np.asarray(0, np.int64)
        return _Spent(spent + apart, busy, registers - blocks, blocks, again)

    def _in_windows(
        self, leaf: Leaf, lane: Lane, rows: Sizes, vectors: Counts, steps: Counts, loads: Costs, least: bool
    ) -> Costs:
        """The loads of a tile, fewer if its rows share what a few steps of a sum load and these are written
        out (see stripe.passes.unroll); with `least`, no fewer than there can be."""
        unit, inputs = self.problem.unit, [o.access for o in leaf.operands if o.direction is Direction.IN]
        assert unit is not None
        others = [name for name in rows if name != lane.index]
        tested = {name for expr in leaf.constraints for name in expr.names}
        along = [n for n in self._streamed(leaf) if n not in tested and sharing(inputs, n, others)]
        if not along or not self._alone or lane.index in self._streamed(leaf):
            return loads
        if least:
            return loads / MOST

        def read(name: str, count: int) -> Costs:
            inside = {**rows, name: np.asarray(count)}
            lines = (lines_read(a, inside, lane.index, vectors, lane.width) for a in inputs)
            return np.asarray(sum(lines, start=np.asarray(0)) / unit.loads_per_cycle, float)

        results = prod(rows.values(), start=np.asarray(1, np.int64)) * vectors
        arithmetic = np.asarray(results * max(1, vector_operations(leaf)) / unit.fma_per_cycle, float)
        alone = best = read(along[0], 1)
        least_spent = together(alone, arithmetic)
        for name in along:
            for count in range(2, min(MOST, leaf.ranges[name]) + 1):
                if leaf.ranges[name] % count == 0:
                    each = read(name, count) / count
                    spent = together(each, arithmetic)
                    better = room(results, count, unit.registers) & (spent < least_spent)
                    best, least_spent = np.where(better, each, best), np.where(better, spent, least_spent)
        gained = least_spent * LEAST_GAIN < together(alone, arithmetic)
        shared = gained & (alone > arithmetic * LEAST_GAIN)
        return np.asarray(np.where(shared, best, alone) * steps * unit.loads_per_cycle, float)

    def _row(self, leaf: Leaf) -> str:
        """An index of a leaf that is tiled, along whose rows vectors may go on; empty without one."""
        lane = self._lane(leaf)
        if lane is None or not self._alone or not {lane.index} <= set(self.indices):
            return ""
        row = joined_row(leaf, lane.index, lane.width)
        return row if row in self.indices else ""

    def _turned(self, leaf: Leaf, lane: str, width: int, inside: Sizes) -> Costs:
        """Instructions to copy the inputs that are read in vectors of copies. A copy that a tile reads in
        few rows side by side in the original is made in squares as narrow as these."""
        total: Costs = np.asarray(0.0)
        turning = np.asarray([in_square(width, side) for side in range(1, width + 1)])
        for operand in leaf.operands:
            if packing(leaf, operand, lane, width) is None:
                continue
            side = np.asarray(width, np.int64)
            for row in inside:
                if row != lane and abs(operand.stride(row)) == 1:
                    size = np.minimum(np.asarray(inside[row], np.int64), width)
                    side = np.where(size > 1, size, side)
            vectors = box_elements(operand, leaf.ranges) / width
            total = total + vectors * (turning[side - 1] + 1.0)
        return total

    def _fetched_to_write(self, leaf: Leaf, sizes: Sizes) -> Costs:
        """Lines of results that must be there before a tile writes its part of them: those of tiles whose
        rows are no whole lines, of results that could go past the caches."""
        problem, unit = self.problem, self.problem.unit
        past = None if unit is None else problem.hw.past_caches(unit)
        total: Costs = np.asarray(0.0)
        if past is None or self._touched <= past[1]:
            return total
        for operand in leaf.operands:
            whole = box(operand, leaf.ranges)
            span = sum((size - 1) * stride for size, stride in zip(whole, operand.strides, strict=True))
            if not operand.direction.writes or operand.local or span * operand.dtype.bytes <= past[0]:
                continue
            line = max(1, problem.memory_line // operand.dtype.bytes)
            _, run = runs(operand, sizes)
            apart = [np.where(run > stride, 0, stride % line) for stride in operand.strides]
            parts = (run % line > 0) | np.any(np.stack(np.broadcast_arrays(*apart)) > 0, axis=0)
            total = total + np.where(parts, prod(whole) / line, 0.0)
        return total

    def _in_registers(self, operand: Operand) -> bool:
        """A buffer of one element for each point: it never leaves the registers."""
        return (
            operand.local
            and operand.name not in self._in_blocks
            and not any(n not in self.problem.ranges for expr in operand.access for n in expr.names)
        )

    def _whole_vectors(self, operand: Operand, lane: str, width: int, sizes: Sizes) -> Counts:
        """Vectors that hold what a tile has of a buffer of one element for each point."""
        inside = {n: sizes[n] for n in self.problem.ranges}
        along = -(-np.asarray(inside.pop(lane, 1), np.int64) // width) if lane in operand.indexes else 1
        return touched_elements(operand, inside) * along

    def _tile_bytes(self, operand: Operand, sizes: Sizes, upto: Sizes | None) -> Costs:
        if not operand.local:
            lines = fetched_bytes(operand, sizes, self.problem.memory_line, upto)
            # What several tiles read may be copied, without gaps, in the order in which they do.
            dense = box_elements(operand, sizes).astype(float) * operand.dtype.bytes
            often = self._tiles_that_share(operand, upto or sizes)
            packed = operand.direction is Direction.IN and ((often >= COPIED) | self._is_turned(operand))
            return np.where(packed, np.minimum(lines, dense), lines)
        elements = prod(operand.extent)
        if elements == 1:
            return np.asarray(0.0)
        tile = prod((np.asarray(sizes[n]) for n in self.problem.ranges), start=np.asarray(1.0))
        return tile * elements * operand.dtype.bytes

    def _is_turned(self, operand: Operand) -> bool:
        """Whether vectors of an input come from a copy: along the lanes it lies element by element."""
        lead = self._lead
        lane = None if lead is None or not self._alone else self._lane(lead)
        if lead is None or lane is None or operand.local:
            return False
        return packing(lead, operand, lane.index, lane.width) is not None

    def _tiles_that_share(self, operand: Operand, sizes: Sizes) -> Counts:
        """How many tiles read the same part of an operand."""
        ranges = self.problem.ranges
        trips = (-(-ranges[n] // np.asarray(sizes[n], np.int64)) for n in ranges if n not in operand.indexes)
        return prod(trips, start=np.asarray(1, np.int64))

    def _conflicts(self, operand: Operand, rows: Sizes) -> Costs:
        """Bytes that each row of an operand fetches again at a step: a line, if the rows of a
        tile crowd into fewer places of the nearest cache than they need."""
        cache = self._nearest_cache()
        if cache is None or cache.bytes is None or not cache.ways:
            return np.asarray(0.0)
        way = max(cache.bytes // cache.ways, 1)
        crowd = np.asarray(1, np.int64)
        for name, size in rows.items():
            stride = abs(operand.stride(name)) * operand.dtype.bytes
            if stride >= cache.line_bytes:
                places = way // gcd(stride, way)
                crowd = crowd * -(-np.asarray(size, np.int64) // places)
        return np.where(crowd >= cache.ways, float(cache.line_bytes), 0.0)

    def _nearest_cache(self) -> Memory | None:
        levels = self.problem.farther()[1:]
        return levels[0][0] if levels and levels[0][0].kind == "cached" else None


def _in_squares(operand: Operand, lane: str, width: int, rows: Sizes) -> Costs:
    """Instructions to store a vector of a result whose elements lie side by side along a row index, not
    along the lanes: both are turned in squares."""
    beside = [np.asarray(size, np.int64) for name, size in rows.items() if operand.stride(name) == 1]
    if abs(operand.stride(lane)) <= 1 or not beside:
        return np.asarray(np.inf)
    side = np.minimum(beside[0], width)
    found: Costs = np.where(side > 1, width / side + np.ceil(np.log2(side)), np.inf)
    return found


def _even(size: int, most: int) -> int:
    """The size of as many pieces as pieces of `most` would be, of which the last is hardly smaller."""
    return -(-size // -(-size // most))


def _along_memory(leaf: Leaf, names: Sequence[str], line: int, lane: str) -> tuple[str, ...]:
    """Loops in the order in which inputs are most often met where they were left. Of several, that in which
    those that are the same for all lanes stay longest on a page: of their lines, only a piece is used at a
    time, and others may be copied. Else as they are."""
    inputs = [o for o in leaf.operands if o.direction.reads and not o.local]
    ranges = {name: leaf.ranges[name] for name in names}
    if not 1 < len(ranges) <= MAX_ORDERED:
        return tuple(names)

    splats = [o for o in inputs if lane not in o.indexes]

    def places(order: Sequence[str], among: Sequence[Operand], near: int) -> int:
        return sum(jumps(o, order, ranges, max(1, near // o.dtype.bytes)) for o in among)

    return min(
        permutations(ranges),
        key=lambda order: (places(order, inputs, line), places(order, splats, PAGE_BYTES)),
    )


def _shared(operand: Operand, visited: Sequence[str], sizes: Sizes) -> Counts:
    """Registers that an input takes at one step, when points are visited in this order.

    Around the first index that it does not depend on, its values pass through one register; from
    there on they are used again at each value of that index, and stay.
    """
    count = np.asarray(1, np.int64)
    reused = np.asarray(False)
    for name in visited:
        size = np.asarray(sizes[name], np.int64)
        if name in operand.indexes:
            count = np.where(reused, count * size, count)
        else:
            reused = reused | (size > 1)
    return count


def _least_steps(leaf: Leaf, lane: str, width: int, row: str) -> int:
    """Vector steps of a leaf if no tile had a point too many. `row`: an index along which vectors go on."""
    along = leaf.ranges.get(lane, 1) * leaf.ranges.get(row, 1)
    return prod(size for n, size in leaf.ranges.items() if n not in (lane, row)) * -(-along // width)
