"""The roofline model for a tile whose results stay in vector registers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod

import numpy as np

from hwconfigs.model import Memory, own_cache
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, box_elements
from stripe.analysis.cost_problem import (
    APART_CYCLES,
    FETCHED_AHEAD,
    NEAR_RUNS,
    RUN_CYCLES,
    RUNS,
    Costs,
    Evaluation,
    Limit,
    Problem,
    combine,
    inner_orders,
    way_in,
)
from stripe.analysis.cost_registers_leaf import LATENCY_CYCLES, spent_in_leaf
from stripe.analysis.cost_registers_nest import RegisterNest
from stripe.analysis.cost_rows import box_bytes, bytes_again, fetched_bytes, runs, runs_of_box
from stripe.analysis.cost_sets import PAGE_BYTES, crowds, usable_bytes
from stripe.analysis.cost_sizes import possible_sizes
from stripe.analysis.cost_traffic import Traffic
from stripe.analysis.lanes import Lane, packing
from stripe.ir import Direction, Special
from stripe.locks import cached_property

PUSHED_SHARE = 0.15  # of the time in which lines come that others have pushed out of the nearest cache
NEAR_RUN_CYCLES = 2.0  # until the nearest cache has a run of lines that begins elsewhere in the next one
STORED_CYCLES = 12.0  # until what was stored can be loaded again
MAX_ROWS = 64  # points of a tile along an index other than the lane, at most: more are not tried
AFAR_SHARE = 0.02  # of the arithmetic, from which on what comes from beyond a core's own caches is waited for
APART_ROWS = 4  # rows side by side that share no data: enough to fill the time in which one waits for sums
APART_GAIN = 0.95  # of the time that they take one after the other, for which that is done
COPIED = 8  # tiles that must share an input before a copy of it pays
STEPS_BESIDE = 8  # steps of a sum that go along memory side by side: as many rows as are fetched ahead well
LINES_BESIDE = 2  # of the results that such steps add to in registers: short pieces, so that all rows go on
ROWS_COMING = 2 * STEPS_BESIDE  # of a sum that goes through them: those used next, and those on their way
WAYS_LEFT = 2  # of the nearest cache by such rows, where they meet: for results, and what is fetched ahead
IN_TURN = (4, 3, 2, 5, 7)  # vectors of a row, the best number first: loads of all, then their stores
WOVEN_IN_TURN = (8, 4)  # the same of rows that are woven: a few lines of each
FOLLOWS = 2  # times what the caches of a core hold: then little of it is left there from the last time
HIDDEN = 0.75  # of the time in which lines come: what is done meanwhile, and is not noticed
ON_A_PAGE = 0.5  # of the time in which rows come from the farthest memory: more, for several side by side
STILL_THERE = 0.5  # of what a cache behind those of the core holds: other cores fill it, too
STORED_AT_ONCE = 8  # rows, a line of each, that a core stores without waiting for the first ones


@dataclass(frozen=True, slots=True)
class _Ordered:
    """What candidates cost and need in any order of the tile loops."""

    sizes: Sizes
    upto: Sizes | None
    cycles: Costs
    busy: Mapping[str, Costs]
    missed: Costs
    returns: Costs
    pushed: Costs
    traffic: Traffic
    limits: tuple[Limit, ...]
    begun: dict[tuple[int, str], Costs] = field(default_factory=dict)  # `_begun`, where it was asked


class RegisterRoofline:
    """Cycles for each point of a tile that keeps its results in registers.

    One index, the lane index, runs along vectors; the others that may be tiled are rows.
    What the leaf that does most of the work reduces over is not tiled: it streams, and at each step

        operations / rate,  loads / load ports,  stores / store ports,  latency of one addition

    stand against each other, and against the bytes of the tiles from each farther memory, as
    `combine` has it. The limit is the register file: the results of a tile, for each input the
    values that are used again before the next step, at least one, and one for intermediate
    values. What is read again, but falls into the same sets of the nearest cache in the meantime as more
    rows than these have ways, is fetched again; what the next tile would read again, too, and part of that
    time is not hidden.

    Of tiles that a constraint cuts aslant, all points are computed (`cost_slanted`).

    A leaf that is uses of an instruction on registers that hold rows goes in steps of what that takes, and
    its results stay in those registers.
    """

    unit = "cycles per point"

    def __init__(self, problem: Problem, lane: str = "") -> None:
        """`lane`: an index of a single leaf along which vectors go; else that which reads most in vectors."""
        self.problem = problem
        self.nest = RegisterNest(problem, lane)
        self._last: _Ordered | None = None

    def along_other_lanes(self) -> Iterator[RegisterRoofline]:
        """The same for each other lane index that a single leaf could have, if it sums none."""
        for name in self.nest.other_lanes():
            other = RegisterRoofline(self.problem, name)
            if not other.refusal():
                yield other

    def copies(self, sizes: Mapping[str, int]) -> float:
        """Cycles for each point that a tile of these sizes spends on copies of inputs."""
        parts = self.evaluate(sizes, self.indices).parts
        return float(parts.get("copies", 0.0)) / max(leaf.points for leaf in self.problem.leaves)

    def refusal(self) -> str:
        problem = self.problem
        if problem.unit is None:
            return "the target has no compute unit"
        if any(isinstance(s, Special) for leaf in problem.leaves for s in leaf.block.statements):
            return "it holds a special, which works on whole views"
        if not self.nest.keeps_results:
            return "nothing is used twice: there is no result to keep in registers"
        if self.nest.lead is None or self.nest.lane(self.nest.lead) is None:
            return "no index can run along the lanes"
        if not self.indices:
            return "every index that it could tile is a reduction"
        if self.nest.apart and len(self.problem.leaves) == 1:
            return "its lanes are summed at the end, and no two rows share data"
        return ""

    @property
    def indices(self) -> tuple[str, ...]:
        return self.nest.indices

    def choices(self) -> dict[str, tuple[int, ...]]:
        problem, lead = self.problem, self.nest.lead
        assert problem.unit is not None and lead is not None
        lane = self.nest.lane(lead)
        found = {}
        for name in self.indices:
            size = problem.ranges[name]
            sizes = possible_sizes(size, problem.rule)
            if lane is not None and name == lane.index:
                most = problem.unit.registers * lane.width
                sizes = tuple(s for s in sizes if s <= most and (s % lane.width == 0 or s == size)) or (size,)
            else:
                sizes = tuple(s for s in sizes if s <= (APART_ROWS if self.nest.apart else MAX_ROWS))
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
        near: Costs = np.asarray(0.0)
        levels = self.problem.farther()[1:]
        if levels and upto is None:
            near = PUSHED_SHARE * last.pushed / levels[0][1]
        for number, (memory, bandwidth) in enumerate(levels):
            capacity = usable_bytes(memory)
            again: Costs | None = None
            if number and upto is None and memory is levels[-1][0]:
                again = self._brought_again(last.traffic, order, memory)
            if capacity is not None and self.nest.touched <= capacity:
                # All tiles bring in the same, once; the levels behind see no more than that.
                if number and upto is None and self.nest.alone:
                    begun = RUN_CYCLES * self._runs(sizes, order, results=True)
                    written = begun + APART_CYCLES * self._short(sizes)
                    moved_in[nearest] = moved_in[nearest] + written
                if again is not None:
                    moved_in[way_in(memory)] = again / bandwidth
                if upto is None and number < 2:  # else those of the level in front stand
                    waits = self._from_afar(sizes, order, bandwidth, last.cycles)
                break
            moved = last.traffic.bytes(order, capacity)
            moved = moved if again is None else moved + again
            if number == 0:
                moved = moved + last.missed
                near = near + APART_CYCLES * last.returns
                if upto is None:
                    near = near + last.traffic.waits(order, capacity, (NEAR_RUN_CYCLES, 0.0))
            brought = moved / bandwidth
            if number == 1 and upto is None:  # what begins elsewhere is not fetched ahead
                lost = np.where(brought > last.cycles, self._lost(sizes, order), 0.0)
                waits = APART_CYCLES * (self._runs(sizes, order) + lost)
            if memory is levels[-1][0] and upto is None:
                brought = brought + ON_A_PAGE * self._on_pages(sizes) / bandwidth
            moved_in[way_in(memory)] = brought
            nearest = nearest or way_in(memory)
        points = max(leaf.points for leaf in self.problem.leaves)
        cycles = combine(last.cycles, *moved_in.values(), share=FETCHED_AHEAD) + near + waits
        parts = {**last.busy, **moved_in, NEAR_RUNS: near, RUNS: waits}
        return Evaluation(cycles / points, last.limits, parts, last.cycles)

    def _on_pages(self, sizes: Sizes) -> Costs:
        """Bytes of inputs that come once, in rows of which a tile takes several of one page side by side: the
        hardware fetches ahead along one of them."""
        total: Costs = np.asarray(0.0)
        for near, bytes_ in self._paged:
            beside = prod((np.asarray(sizes[name]) for name in near), start=np.asarray(1))
            total = total + np.where(beside > 1, bytes_, 0.0)
        return total

    @cached_property
    def _paged(self) -> list[tuple[list[str], float]]:
        """The indexes along which rows of such an input share a page, or any where cores fetch deep ahead
        along one row, and its bytes, in whole lines."""
        problem, found = self.problem, list[tuple[list[str], float]]()
        for number, operand in enumerate(problem.operands):
            once = int(box_elements(operand, problem.ranges)) == prod(problem.ranges.values())
            if operand.local or not operand.direction.reads or operand.name in problem.constant or not once:
                continue
            steps = {name: abs(operand.stride(name)) * operand.dtype.bytes for name in self.indices}
            far = inf if self.problem.fetches_deep else PAGE_BYTES // 2
            near = [name for name, step in steps.items() if problem.memory_line <= step <= far]
            found.append((near, self._lines[number] * problem.memory_line))
        return found

    def _brought_again(self, traffic: Traffic, order: Sequence[str], memory: Memory) -> Costs | None:
        """Bytes that come into a cache time after time where others fill a part of it, of what it holds as a
        whole; None if the rest holds all."""
        capacity, rest = usable_bytes(memory), int(STILL_THERE * (memory.bytes or 0))
        if capacity is None or self.nest.touched <= rest:
            return None
        once, often = (traffic.bytes(order, size) for size in (capacity, rest))
        return np.where(often >= 2 * once, often - once, 0.0)

    def _runs(
        self, sizes: Sizes, order: Sequence[str], among: Collection[str] | None = None, results: bool = False
    ) -> Costs:
        """How often what all tiles touch (or some operands or results alone), the first time, does not lie
        beside what was touched before. The innermost tile loop may go on along it."""
        total: Costs = np.asarray(0.0)
        for number, operand in enumerate(self.problem.operands):
            if operand.local or operand.name in self.problem.constant:
                continue
            if among is not None and operand.name not in among:
                continue
            if operand.direction.writes or not results:
                along = order[-1] if order[-1] in operand.indexes else ""
                total = total + self._begun(number, sizes, along)
        return total

    def _from_afar(self, sizes: Sizes, order: Sequence[str], bandwidth: float, cycles: Costs) -> Costs:
        """The waits for runs of what the tile around the nest brings into the cache: the nest is the first to
        touch it. Much arithmetic hides them; and what several tiles read is copied in their order."""
        problem, every = self.problem, {*self.indices}
        afar = {n: o for n, o in enumerate(problem.operands) if o.name in problem.far}
        if not afar or any(not operand.indexes >= every for operand in afar.values()):
            return np.asarray(0.0)
        runs = self._runs(sizes, order, {operand.name for operand in afar.values()})
        brought = sum(self._lines[number] for number in afar) * problem.memory_line / bandwidth
        return np.where(brought > AFAR_SHARE * cycles, APART_CYCLES * runs, 0.0)

    def _short(self, sizes: Sizes) -> Costs:
        """How many pieces of rows, shorter than two lines, tiles store of results that do not stay near, if a
        tile has many. It stores them all at once: that the next tile goes on there comes too late."""
        total: Costs = np.asarray(0.0)
        for number, operand in enumerate(self.problem.operands):
            if operand.direction.writes and operand.name in self.problem.far:
                rows, run = runs(operand, self.problem.complete(sizes))
                short = (run * operand.dtype.bytes < 2 * self.problem.memory_line) & (rows > STORED_AT_ONCE)
                total = total + np.where(short, self._begun(number, sizes, ""), 0.0)
        return total

    def _lost(self, sizes: Sizes, order: Sequence[str]) -> Costs:
        """How many more runs there are where a tile reads more rows in turn than a core follows: each of its
        pieces begins anew, though the innermost tile loop goes on along the row. Long sums ask for theirs
        ahead."""
        problem, unit, along = self.problem, self.problem.unit, order[-1]
        total: Costs = np.asarray(0.0)
        if unit is None or unit.streams is None:
            return total
        step = dict.fromkeys((n for n in problem.reduced if problem.ranges[n] > unit.streams), 1)
        for number, operand in enumerate(problem.operands):
            read = operand.direction is Direction.IN and not operand.local
            if read and operand.name not in problem.constant and along in operand.indexes:
                rows, _ = runs(operand, {**problem.complete(sizes), **step})
                more = self._begun(number, sizes, "") - self._begun(number, sizes, along)
                total = total + np.where(rows > unit.streams, more, 0.0)
        return total

    def _begun(self, number: int, sizes: Sizes, along: str) -> Costs:
        """The same for one operand, by its number, where the innermost tile loop goes on `along` an index of
        it, or along none."""
        assert self._last is not None
        known = self._last.begun
        if (number, along) in known:
            return known[number, along]
        operand, ranges = self.problem.operands[number], self.problem.ranges
        inside = {**self.problem.complete(sizes), **({along: ranges[along]} if along else {})}
        loops = sorted(operand.indexes & set(self.indices))
        trips = (-(-ranges[n] // np.asarray(inside[n], np.int64)) for n in loops)
        count = runs(operand, inside)[0] * prod(trips, start=np.asarray(1, np.int64))
        known[number, along] = np.minimum(count, self._lines[number])  # others have brought the rest
        return known[number, along]

    @cached_property
    def _lines(self) -> tuple[float, ...]:
        """The lines of memory that each operand takes, all in all."""
        line, whole = self.problem.memory_line, self.problem.ranges
        return tuple(float(fetched_bytes(o, whole, line)) / line for o in self.problem.operands)

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
        returns: Costs = np.asarray(0.0)
        pushed: Costs = np.asarray(0.0)
        busy: dict[str, Costs] = {}
        tiles = problem.tiles(upto or sizes)
        for leaf in problem.leaves:
            spent = spent_in_leaf(self.nest, leaf, complete, tiles if upto else self._cut(leaf, sizes), upto)
            cycles = cycles + spent.cycles
            missed, returns = missed + spent.missed, returns + spent.returns
            pushed = pushed + spent.pushed
            needed, blocks = np.maximum(needed, spent.registers), np.maximum(blocks, spent.blocks)
            busy = {part: busy.get(part, 0.0) + time for part, time in spent.busy.items()}
        tile_bytes = [self._tile_bytes(o, complete, greatest) for o in problem.operands]
        # What several tiles read may be copied in the order in which they do.
        shared = frozenset(o.name for o in problem.operands if not o.indexes >= set(self.indices))
        moved = Traffic(problem.operands, problem.ranges, complete, tile_bytes, greatest, laid=shared)
        limits = [Limit(needed, problem.unit.registers, f"vector registers of {problem.unit.name}")]
        if used := next(filter(None, map(self.nest.blocks, problem.leaves)), None):
            limits.insert(0, Limit(blocks, used.registers, f"registers of '{used.instruction}'"))
        if problem.limits:
            whole = sum(tile_bytes, start=np.asarray(0.0)).astype(np.int64)
            limits += [Limit(whole, m.bytes, f"bytes of {m.name}") for m in problem.limits]
        again = (missed * tiles, returns * tiles, pushed * tiles)
        return _Ordered(sizes, upto, cycles, busy, *again, moved, tuple(limits))

    def _cut(self, leaf: Leaf, sizes: Sizes) -> Costs:
        """How many tiles there are, for a leaf whose constraints cut some of them: against what it computes
        of its points, the more of them the more lies beyond."""
        beyond = sum(cut.beyond(sizes) for cut in self.nest.slanted(leaf))
        return np.asarray(self.problem.tiles(sizes) * (1 + beyond), float)

    def untiled(self, sizes: Mapping[str, int]) -> float:
        if not self.nest.apart:
            return inf  # a tile of everything, too, puts the reductions outside
        ones = dict.fromkeys(sizes, 1)
        return float(self.evaluate(ones, tuple(ones)).cost) * APART_GAIN

    def steps_beside(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """A tile in which steps of a sum go along memory, a few side by side, or one after the other: sizes,
        outermost loop first.

        That is for a block that reads what lies beyond the caches of the core once and as it lies in
        memory, slower than it is added to results that stay in these caches. A tile of `sizes` would take it
        in pieces, and what is fetched ahead behind each is wasted. Where cores fetch deep ahead along a few
        rows, these go side by side as a whole. Empty where that is not so; and, of rows that are woven, where
        a tile of `sizes` finds them on many sets of the nearest cache: it brings in their pieces as fast.
        """
        problem, lead = self.problem, self.nest.lead
        lane = None if lead is None else self.nest.lane(lead)
        cache = own_cache(problem.hw.memories)
        own = None if cache is None else cache.bytes
        if problem.block.children or lead is None or lane is None or own is None:
            return {}
        read = [o for o in lead.operands if o.direction.reads and not o.local]
        tile = {name: int(size) for name, size in problem.complete(sizes).items()}
        if lane.index in self.nest.streamed(lead) or all(runs_of_box(o, tile)[0] == 1 for o in read):
            return {}
        if int(problem.tiles(sizes)) == 1:
            return {}  # it goes through them once, with all results in registers
        # Results may lie beyond the caches, too, but nothing is fetched ahead for them.
        once = sum(float(fetched_bytes(o, problem.ranges, problem.memory_line)) for o in read)
        order = self._as_it_lies(read, lane)
        again = bytes_again(problem.operands, order, problem.memory_line)
        sums = [n for n in lead.reductions if problem.ranges.get(n, 1) > 1]
        if again is None or again > own / 2 or once <= own or not sums:
            return {}
        if self._added_in_memory(lead, lane, STEPS_BESIDE) > self._brought_once():
            return {}
        woven = max(max(o.extent, default=1) for o in read)  # rows of each step that become one
        if woven > 1 and not self._crowds(sums[-1], read, woven):
            return {}
        piece = LINES_BESIDE * problem.memory_line
        pieces = [o.dtype.bytes for o in read if lane.index in o.indexes]
        most = max(piece // max(pieces, default=piece), lane.width)
        length = -(-_even(order[lane.index], most) // lane.width) * lane.width
        steps = _even(order[sums[-1]], -(-self._rows_beside(sums[-1], read, piece) // woven))
        if woven == 1 and self._far and self.problem.fetches_deep:
            steps, length = STEPS_BESIDE, order[lane.index]
        elif vectors := self._vectors_in_turn(lead, lane, order, read, woven):
            steps, length = 1, vectors * lane.width
        beside = {sums[-1]: steps, lane.index: length}
        return {n: min(beside.get(n, 1), size) for n, size in order.items() if size > 1}

    def _crowds(self, index: str, read: Sequence[Operand], woven: int) -> bool:
        """Whether rows along an index, so many of which are woven at each step, lie on few sets of the
        nearest cache."""
        steps = (
            abs(o.stride(index)) // woven * o.dtype.bytes for o in read if max(o.extent, default=1) == woven
        )
        return any(crowds(ROWS_COMING, step, self.problem.nearest_cache) for step in steps)

    def _vectors_in_turn(
        self, leaf: Leaf, lane: Lane, order: Mapping[str, int], read: Sequence[Operand], woven: int
    ) -> int:
        """How many vectors of a row a tile should have where rows had better come one after the other, or so
        many at a time that are `woven` into one; 0 where they had not. `order` is that of memory, outermost
        first.

        What is read is one run of lines then, which is fetched ahead past the end of each row; of rows side
        by side, what is fetched behind the end of each is wasted. That is for what a shared cache delivers:
        main memory takes long enough that more rows on their way win. Vectors have to be whole lines, which
        take one load each; or cores fetch deep, which follow a row as a whole, if it leaves half of the
        nearest cache free. Results have to stay there beside a row; and to load, add to and store them has
        to take less than the lines on their way, so that it is hidden.
        """
        levels, line = self.problem.farther(), self.problem.memory_line
        near, own, shared = self.problem.nearest_cache, own_cache(self.problem.hw.memories), levels[-1][0]
        rate = next((rate for memory, rate in levels if memory == own), None)
        if near is None or near.bytes is None or own is None or own.bytes is None or shared.bytes is None:
            return 0
        once = sum(float(fetched_bytes(o, order, line)) for o in read)
        if rate is None or not FOLLOWS * own.bytes < once <= STILL_THERE * shared.bytes:
            return 0
        names = list(order)
        last = max(names.index(name) for name in leaf.reductions if name in order)
        row = {name: size if at > last else 1 for at, (name, size) in enumerate(order.items())}
        touched, ragged = sum(box_bytes(o, row, line) for o in leaf.operands if not o.local), False
        if touched > near.bytes:
            return 0
        for operand in (o for o in read if lane.index in o.indexes):
            (rows, run), size = runs_of_box(operand, row), operand.dtype.bytes
            if runs_of_box(operand, order)[0] > 1 or rows > 1 or woven * lane.width * size < line:
                return 0
            ragged = ragged or run * size % line > 0
        if self._added_in_memory(leaf, lane, 1) > HIDDEN * once / rate:
            return 0
        if ragged:
            followed = woven == 1 and self.problem.fetches_deep and touched <= near.bytes / 2
            return -(-order[lane.index] // lane.width) if followed else 0
        numbers = IN_TURN if woven == 1 else WOVEN_IN_TURN
        return next((n for n in numbers if order[lane.index] % (n * lane.width) == 0), 0)

    def _as_it_lies(self, read: Sequence[Operand], lane: Lane) -> dict[str, int]:
        """The loops in the order in which the largest of what is read lies, around them those that do
        not move it, inside the lanes."""
        whole, groups = self.problem.ranges, self.problem.groups
        largest = max(read, key=lambda o: int(box_elements(o, whole)) * o.dtype.bytes)

        def depth(name: str) -> tuple[bool, float]:
            return name == lane.index, -abs(largest.stride(name)) or -inf

        return {name: whole[name] for name in sorted(whole, key=depth) if name not in groups}

    def _rows_beside(self, index: str, read: Sequence[Operand], piece: int) -> int:
        """How many rows along an index go side by side, in pieces of so many bytes: no more than meet in the
        nearest cache without a loss. From main memory lines take so long that more of them on the way win."""
        near = self.problem.nearest_cache
        if near is None or not near.bytes or not near.ways or self._far:
            return STEPS_BESIDE
        way, rows = near.bytes // near.ways, range(STEPS_BESIDE)
        for step in (o.stride(index) * o.dtype.bytes for o in read):
            met = max(sum((one - other) * step % way < 2 * piece for one in rows) for other in rows)
            if met > near.ways - WAYS_LEFT:
                return max(1, near.ways - WAYS_LEFT)
        return STEPS_BESIDE

    @property
    def _far(self) -> bool:
        """Whether the block touches more than the caches hold."""
        shared = usable_bytes(self.problem.farther()[-1][0])
        return shared is not None and self.nest.touched > shared

    def _added_in_memory(self, leaf: Leaf, lane: Lane, steps: int) -> float:
        """Cycles of a leaf that loads, adds to and stores its results at each step, or where so many `steps`
        are side by side: the next ones wait for what these stored."""
        assert self.problem.unit is not None
        size = leaf.ranges[lane.index]
        row = -(-size // lane.width) / self.problem.unit.stores_per_cycle
        return leaf.points // size * max(row, (LATENCY_CYCLES + STORED_CYCLES) / steps)

    def _brought_once(self) -> float:
        """Cycles until all that the block touches has come from the level where it still lies."""
        cycles = 0.0
        for memory, bandwidth in self.problem.farther()[1:]:
            capacity = usable_bytes(memory)
            if capacity is None or self.nest.touched > capacity * STILL_THERE:
                cycles = self.nest.touched / bandwidth
        return cycles

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        return self.nest.inner_order(leaf)

    def settled_lane(self, leaf: Leaf) -> str:
        lane = self.nest.lane(leaf)
        if lane is None or lane.index != self.nest.settled or not self.nest.held(leaf):
            return ""
        return lane.index

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
        lead = self.nest.lead
        lane = None if lead is None or not self.nest.alone else self.nest.lane(lead)
        if lead is None or lane is None or operand.local:
            return False
        return packing(lead, operand, lane.index, lane.width) is not None

    def _tiles_that_share(self, operand: Operand, sizes: Sizes) -> Counts:
        """How many tiles read the same part of an operand."""
        ranges = self.problem.ranges
        trips = (-(-ranges[n] // np.asarray(sizes[n], np.int64)) for n in ranges if n not in operand.indexes)
        return prod(trips, start=np.asarray(1, np.int64))


def _even(size: int, most: int) -> int:
    """The size of as many pieces as pieces of `most` would be, of which the last is hardly smaller."""
    return -(-size // -(-size // most))
