"""The roofline model for a tile that should fit in a cache or a scratchpad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from hwconfigs.model import Memory
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, box_elements
from stripe.analysis.cost_blocks import Blocks, blocks_of
from stripe.analysis.cost_problem import (
    FETCHED_AHEAD,
    RUNS,
    TILE_CYCLES,
    Costs,
    Evaluation,
    Limit,
    Problem,
    apart_waits,
    combine,
    inner_orders,
    way_in,
)
from stripe.analysis.cost_registers import RegisterRoofline
from stripe.analysis.cost_rows import bytes_again, fetched_bytes, runs
from stripe.analysis.cost_sets import PAGE_BYTES, crowd, crowds, usable_bytes
from stripe.analysis.cost_sizes import balanced_sizes, possible_sizes
from stripe.analysis.cost_traffic import Strips, Traffic
from stripe.analysis.cost_work import VectorWork, with_lanes_inside, work_steps
from stripe.analysis.lanes import COPIED, Lane, Square, lane_candidates, lane_index, packing
from stripe.analysis.search import Found, search
from stripe.ir import Aggregation, Direction
from stripe.locks import cached_property
from stripe.visit import walk

COPY_CYCLES = 8.0  # to copy a line
FOLLOWED = 64  # rows, each on a page of its own, that a core which fetches deep goes ahead along
BEGUN = 2  # lines of a row until it is fetched ahead
SLOWER = 2.0  # times as long as in registers at best: tiles for which that is so are none
STEP_CANDIDATES = 16384  # weighed for the tile in registers
LEAST_GAIN = 0.03  # of the cycles: what tiles must save where memory binds, which more code does not help
NOTHING = 1e-6  # what tiles save that bring in as much as those in registers would: rounding
LEAST_STEPS = 64  # of a piece of a sum: a shorter loop ends before what code asks for ahead has come
FEW_RESULTS = 128  # for each element of an input that is not copied
FAR = 0.5  # of a cache that others use, too: so large an input is not there when it is read again
FAR_ROWS = 1024  # bytes from one row to the next: a core does not fetch ahead from row to row
PARTS = 0.1  # of the cycles: what tiles cost at least that are only a part of those in registers
WORTH = 0.01  # the same where it does not: less is no more than the model's error, and each tile copies anew


@dataclass(frozen=True, slots=True)
class _Ordered:
    """What candidates cost and need in any order of the tile loops."""

    sizes: Sizes
    upto: Sizes | None
    arithmetic: Costs
    traffic: Traffic
    limits: tuple[Limit, ...]


class MemoryRoofline:
    """Cycles for each point: arithmetic against the bytes that every farther memory delivers.

    cost = (combine(vector operations / rate + overhead of tiles,
                   bytes into this memory and each farther one / bandwidth)
            + runs of lines that begin elsewhere * a wait) / points

    `combine` lets the longest part hide most of the others. The bytes follow from the tiles'
    footprints and the order of the tile loops (what stays is not fetched again). Lanes that a
    size leaves idle count as work. Where what is reduced over may be cut, results count that come
    back for each piece, inputs that are copied because their rows crowd into few sets of the
    memory, and each piece of a row that a tile in registers reads, of more rows than are fetched
    ahead. Where squares are turned, lines of inputs count that the nearest cache does not keep for the
    squares beside. Sizes are multiples of those of the best tile for the registers (the paper: "an even
    multiple of this size"), or where work waits for memory anyway, parts of them; a tile has to cost less
    than these would with none around them. The limit: one tile of every operand together must fit, or its
    copy if it makes one, and beside it the next tile of what comes from beyond all caches in rows; of a
    cached memory one way is left to what streams past.

    Where tiles copy pieces that nobody asks for ahead, they may be smaller than that of the registers: work
    takes as long then as in the best tile there is room for. What a cache keeps from one run of the program
    to the next does not come from behind it there, which would hide all that.

    `steps` is the best tile for the registers. Where tiles come `in_turn`, each lies beside the last one in
    memory: they share the lines at their ends.
    """

    unit = "cycles per point"

    def __init__(
        self, problem: Problem, steps: Mapping[str, int] | None = None, in_turn: bool = False
    ) -> None:
        self.problem = problem
        self._in_turn = in_turn
        self.indices = problem.indices
        self._last: _Ordered | None = None
        self._known_steps = steps

    def with_sums(self, least: Mapping[str, int] | None = None) -> MemoryRoofline:
        """The model where what is reduced over may be cut, too: registers get the same tile. `least`: the
        points that pieces have of some indexes, or multiples of these."""
        return MemoryRoofline(replace(self.problem, reductions=True), {**self._steps, **(least or {})})

    def refusal(self) -> str:
        problem = self.problem
        if not problem.leaves:
            return "it neither loads nor stores"
        capacity = self._capacity()
        if capacity is None:
            return f"the memory {problem.memory.name} has no limit"
        if not any(self._tile_bytes(problem.ranges)):
            return "no operand depends on the indexes that may be tiled"
        if self._touched <= capacity:
            return f"all that it touches fits in {problem.memory.name} together"
        if self._goes_along(capacity):
            return "it goes through its operands as they lie in memory"
        if self._in_runs():
            return "it takes whole lines of its operands, each once"
        return ""

    def _goes_along(self, capacity: int) -> bool:
        """Whether tiles would bring in as much, from more places."""
        problem = self.problem
        if problem.block.children or problem.unit is None:
            return False
        order = with_lanes_inside(problem.ranges, problem.leaves[0], problem.unit)
        lane = lane_index(problem.block, problem.outer, problem.unit.vector_bytes)
        if isinstance(lane, Lane):  # perhaps one whose vectors go on from row to row
            order = dict(sorted(problem.ranges.items(), key=lambda entry: entry[0] == lane.index))
        again = bytes_again(problem.operands, order, problem.memory_line)
        return again is not None and again <= capacity / 2

    def _in_runs(self) -> bool:
        """Whether each element is touched once, and lanes go along so much of what lies side by side in all
        operands that nothing is left of a line, or of the one fetched with it, for other tiles."""
        problem, unit = self.problem, self.problem.unit
        if problem.block.children or unit is None or problem.reduced:
            return False
        found = lane_index(problem.block, problem.outer, unit.vector_bytes)
        if not isinstance(found, Lane):
            return False
        several = {name for name, size in problem.ranges.items() if size > 1}
        if not all(several <= o.indexes and o.stride(found.index) == 1 for o in problem.operands):
            return False
        run, rest = problem.ranges[found.index], several - {found.index}
        while row := next((n for n in rest if all(o.stride(n) == run for o in problem.operands)), ""):
            run *= problem.ranges[row]  # vectors go on from row to row
            rest.remove(row)
        return all(run * operand.dtype.bytes >= 2 * problem.memory_line for operand in problem.operands)

    def choices(self) -> dict[str, tuple[int, ...]]:
        problem, steps = self.problem, self._steps
        vectors = [work for work in self._work if isinstance(work, VectorWork)]
        lanes, rows = {work.lane for work in vectors}, {work.joined.row for work in vectors if work.joined}
        blocks = {n: most for work in self._work if isinstance(work, Blocks) for n, most in work.most.items()}
        whole = {name: min(blocks.get(name, 1), problem.ranges[name]) for name in self._cut}
        found = {}
        for name in self.indices:
            size, step = problem.ranges[name], steps.get(name) or whole.get(name) or self._whole_lines(name)
            if problem.rule == "all":
                sizes = {min(size, n * step) for n in balanced_sizes(-(-size // step))}
            else:
                sizes = set(possible_sizes(size, problem.rule))
            if name in steps:
                sizes = {n for n in sizes if n >= min(step, size)}
                if name in rows or (self._takes_parts and name not in lanes) or self._smaller:
                    sizes |= {n for n in possible_sizes(min(step, size), problem.rule) if step % n == 0}
            found[name] = tuple(sorted(sizes))
        return found

    @cached_property
    def least(self) -> Mapping[str, int]:
        """The sizes of tiles in registers, or of squares that are turned there."""
        square = self._square
        sides = {} if square is None else dict.fromkeys((square.lane.index, square.across), square.lane.width)
        steps = self._steps or sides
        return {name: min(steps.get(name, 1), self.problem.ranges[name]) for name in self.indices}

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether tiles may be parts of those in registers: work would wait for memory even if each operand
        came once."""
        levels = self.problem.farther()
        if not levels or not self._steps or self._in_turn:
            return False
        moved = self._touched / levels[-1][1]
        return moved > float(self._whatever_the_order(self.problem.ranges, None).arithmetic)

    def _whole_lines(self, name: str) -> int:
        """Of how many points along an index a tile should be made up, so that what it writes, and nothing in
        it uses again, begins where a line does; in squares, what it reads, too."""
        step, line = 1, self.problem.memory_line
        if self.problem.reduced or len(self.problem.leaves) > 1:
            return step
        for operand in self.problem.operands:
            if operand.direction.writes or self._square is not None:
                step = max(step, line // gcd(line, operand.stride(name) * operand.dtype.bytes))
        return min(step, self.problem.ranges[name])

    @cached_property
    def _registers(self) -> RegisterRoofline | None:
        """The model of the tiles in registers."""
        registers = next((m for m in self.problem.hw.memories if m.kind == "registers"), None)
        if registers is None:
            return None
        inside = replace(self.problem, memory=registers, names=(), reductions=False, in_tile=True)
        return RegisterRoofline(inside)

    @cached_property
    def _steps(self) -> Mapping[str, int]:
        """The sizes of the tile that registers would be given inside this one."""
        if self._known_steps is not None:
            return self._known_steps
        best = None if self._in_registers is None else self._in_registers.best
        return {} if best is None else best.sizes

    @cached_property
    def _in_registers(self) -> Found | None:
        """The tiles that registers could be given inside this one."""
        model = self._registers
        if model is None or model.refusal() or any(b.has_tag("stencil") for _, b in walk(self.problem.block)):
            return None
        return search(model, STEP_CANDIDATES)

    @cached_property
    def _frontier(self) -> list[tuple[Mapping[str, int], float]]:
        """The sizes of tiles in registers, and what these cost, the best first: of smaller tiles one of the
        others is the best."""
        return [] if self._in_registers is None else self._in_registers.frontier(SLOWER)

    @cached_property
    def _smaller(self) -> bool:
        """Whether tiles may be smaller than those in registers, as others are hardly worse: what each copies
        is long rows only if it is small in other directions."""
        return self._known_steps is None and bool(self._apart) and bool(self._frontier)

    def _slower(self, sizes: Sizes) -> Costs:
        """How many times as long tiles in registers take that tiles of these sizes have room for."""
        found: Costs = np.asarray(SLOWER)
        for tile, cost in reversed(self._frontier):
            fits = np.logical_and.reduce([np.asarray(sizes[name]) >= size for name, size in tile.items()])
            found = np.where(fits, cost / self._frontier[0][1], found)
        return found

    @cached_property
    def _square(self) -> Square | None:
        """The squares that a block which only moves elements turns in registers, if it does."""
        unit, leaves = self.problem.unit, self.problem.leaves
        if unit is None or len(leaves) != 1 or self.problem.block.children:
            return None
        found = lane_index(self.problem.block, self.problem.outer, unit.vector_bytes)
        return found if isinstance(found, Square) else None

    def orders(self) -> tuple[tuple[str, ...], ...]:
        return inner_orders(self.indices)

    def evaluate(self, sizes: Sizes, order: Sequence[str], upto: Sizes | None = None) -> Evaluation:
        if self._last is None or self._last.sizes is not sizes or self._last.upto is not upto:
            self._last = self._whatever_the_order(sizes, upto)
        last = self._last
        problem, levels = self.problem, self.problem.farther()
        parts = {"arithmetic": last.arithmetic}
        for memory, bandwidth in levels:
            if self._apart and self._holds_all(memory):
                break
            parts[way_in(memory)] = last.traffic.bytes(order, usable_bytes(memory)) / bandwidth
        points = max(leaf.points for leaf in problem.leaves)
        cycles = combine(*parts.values(), share=FETCHED_AHEAD)
        met = self._met_apart
        if met is not None:
            waits = apart_waits(problem.hw, met)
            parts[RUNS] = last.traffic.waits(order, usable_bytes(met), waits)
            if upto is None:
                parts[RUNS] = parts[RUNS] + self._lines_again(problem.complete(sizes))
            cycles = cycles + parts[RUNS]
        if upto is None and self._takes_parts:
            small = [np.asarray(sizes[name]) < size for name, size in self.least.items()]
            cycles = cycles * np.where(np.logical_or.reduce(small), 1 + PARTS, 1.0)
        return Evaluation(cycles / points, last.limits, parts, last.arithmetic)

    def _holds_all(self, memory: Memory) -> bool:
        """Whether a cache keeps all from one run of the program to the next."""
        capacity = usable_bytes(memory)
        return memory.kind == "cached" and capacity is not None and self._touched <= capacity

    @cached_property
    def _touched(self) -> float:
        """The bytes of all operands as a whole."""
        return sum(float(size) for size in self._tile_bytes(self.problem.ranges))

    @cached_property
    def _apart(self) -> frozenset[str]:
        """The inputs of which tiles make copies from rows that lie on pages of their own, where cores ask for
        none of them ahead, but those that lie in the memory nearly as a whole."""
        problem, unit, memory = self.problem, self.problem.unit, self.problem.memory
        if unit is None or unit.streams is None or memory.bytes is None:
            return frozenset()
        return frozenset(
            operand.name
            for _, operand, lane, _ in self._turned
            if abs(operand.stride(lane)) * operand.dtype.bytes > PAGE_BYTES // 2
            and box_elements(operand, problem.ranges) * operand.dtype.bytes > memory.bytes
        )

    @cached_property
    def _met_apart(self) -> Memory | None:
        """The cache behind the nearest one into which tiles are brought: a run that begins elsewhere is not
        fetched ahead, and no other work is left that could be done meanwhile."""
        nearest = self.problem.hw.nearest_cache
        caches = (m for m, _ in self.problem.farther() if m.kind == "cached")
        return next((m for m in caches if nearest is not None and m.name != nearest.name), None)

    def _whatever_the_order(self, sizes: Sizes, upto: Sizes | None) -> _Ordered:
        """What does not depend on the order of the tile loops: it is asked for each order in turn."""
        problem = self.problem
        complete = problem.complete(sizes)
        greatest = None if upto is None else problem.complete(upto)
        tile_bytes = self._tile_bytes(complete, greatest)
        copied = self._copied_share(complete, tile_bytes)
        kept = (
            (copied.get(o.name, 1.0) + self._followed(o, complete, greatest)) * size
            for o, size in zip(problem.counted, tile_bytes, strict=True)
        )
        needed = sum(kept, start=np.asarray(0.0)).astype(np.int64)
        arithmetic: Costs = np.asarray(TILE_CYCLES * problem.tiles(upto or sizes), float)
        for leaf, work in zip(problem.leaves, self._work, strict=True):
            if isinstance(work, VectorWork):
                arithmetic = arithmetic + work.cycles(complete, greatest)
            else:
                steps = work_steps(leaf.ranges, work.most, complete, greatest)
                arithmetic = arithmetic + steps * work.cycles
        if self._cut:
            arithmetic = arithmetic + self._again(upto or sizes)
            if upto is None:
                arithmetic = arithmetic + self._copied(complete)
        if self._smaller:
            arithmetic = arithmetic * self._slower(greatest or complete)
        if upto is None:
            arithmetic = arithmetic + self._put_beside(complete)
        limits = [Limit(needed, self._capacity(), f"bytes of {problem.memory.name}")]
        limits += [Limit(needed, m.bytes, f"bytes of {m.name}") for m in problem.limits]
        moved = Traffic(
            problem.counted, problem.ranges, complete, tile_bytes, greatest, problem.constant, self._strips,
            copied, self._apart,
        )  # fmt: skip
        return _Ordered(sizes, upto, arithmetic, moved, tuple(limits))

    @cached_property
    def _cut(self) -> frozenset[str]:
        """The indexes to tile that are reduced over."""
        return self.problem.reduced & set(self.indices)

    @cached_property
    def _far(self) -> frozenset[str]:
        """The inputs of sums that come from beyond all caches, and that tiles read as they lie: few results
        share them, so that copies do not pay."""
        problem, last = self.problem, next(reversed(self.problem.hw.caches), None)
        if last is None or last.bytes is None or not self._steps or not problem.reduced:
            return frozenset()
        copied = {operand.name for _, operand, _, _ in self._turned} | set(problem.constant)
        return frozenset(
            o.name
            for o in problem.counted
            if o.direction is Direction.IN
            and o.name not in copied
            and box_elements(o, problem.ranges) * o.dtype.bytes >= FAR * last.bytes
            and prod(size for name, size in problem.ranges.items() if name not in o.indexes) <= FEW_RESULTS
        )

    def _followed(self, operand: Operand, sizes: Sizes, upto: Sizes | None) -> Counts:
        """1 for an input of which the next tile is asked for while one is used, so that both have to fit:
        what comes from beyond all caches, unless the tile is one run of memory. Else 0."""
        if operand.name not in self._far:
            return np.asarray(0)
        return np.asarray(runs(operand, sizes, upto)[0] > 1, np.int64)

    @cached_property
    def _strips(self) -> Strips | None:
        """What the tile in registers reads of the operands that lie along its lanes, or along another index
        of it, where it is far from one step of its sum to the next."""
        problem, unit = self.problem, self.problem.unit
        if (
            not self._cut
            or not self._steps
            or unit is None
            or unit.streams is None
            or len(problem.leaves) != 1
        ):
            return None
        (leaf,) = problem.leaves
        lanes = lane_candidates(leaf, unit.vector_bytes, packed=True, path_bytes=unit.path_bytes)[:1]
        sizes = {name: size for name, size in self._steps.items() if name not in problem.reduced}
        order = tuple(problem.ranges) if self._registers is None else self._registers.inner_order(leaf)
        sums = [name for name in reversed(order) if name in problem.reduced]
        onward = {o: next((abs(o.stride(n)) for n in sums if o.stride(n)), 0) for o in leaf.operands}
        far = [o for o, step in onward.items() if step * o.dtype.bytes >= FAR_ROWS]
        along = {o.name for o in far for lane in lanes if abs(o.stride(lane.index)) == 1}
        narrow = {o.name for o in far for name in sizes if abs(o.stride(name)) == 1}
        return Strips(
            sizes, frozenset(along), unit.streams, frozenset(narrow - along), problem.reduced,
            problem.memory_line,
        )  # fmt: skip

    def _again(self, sizes: Sizes) -> Costs:
        """Cycles to go on with results in each piece of what is reduced over but the first: to load a vector
        of them, add to it, and store it, and to bring its lines from the memory and back."""
        problem, unit, rate = self.problem, self.problem.unit, self.problem.memory.bytes_per_cycle
        total: Costs = np.asarray(0.0)
        if unit is None:
            return total
        each = 1 / unit.loads_per_cycle + 1 / unit.stores_per_cycle
        each += 2 * unit.vector_bytes / rate if rate else 0.0
        for operand in problem.operands:
            if operand.direction.writes and operand.aggregation is not Aggregation.ASSIGN:
                vectors = box_elements(operand, problem.ranges) * operand.dtype.bytes / unit.vector_bytes
                pieces = problem.tiles({n: sizes[n] for n in self._cut - operand.indexes})
                total = total + (pieces - 1) * vectors * each
        return total

    def _copied(self, sizes: Sizes) -> Costs:
        """Cycles to copy the inputs of which a tile crowds into few sets of the memory; or to fetch them for
        each tile in registers, where that takes less."""
        problem, memory, capacity = self.problem, self.problem.memory, self._capacity()
        total: Costs = np.asarray(0.0)
        if capacity is None or memory.bytes is None or not memory.ways:
            return total
        line, way = problem.memory_line, memory.bytes / memory.ways
        for operand in problem.counted:
            if operand.direction is not Direction.IN or operand.name in problem.constant:
                continue
            others = [n for n in problem.ranges if n not in operand.indexes | problem.reduced]
            readers = prod(-(-problem.ranges[n] // self._steps.get(n, 1)) for n in others)
            each = min(COPY_CYCLES, (readers - 1) * line / problem.farther()[0][1])
            lines = fetched_bytes(operand, problem.ranges, line) / line
            crowded = crowd(operand, sizes, memory) * way > capacity
            total = total + np.where(crowded, lines * each, 0.0)
        return total

    def _put_beside(self, sizes: Sizes) -> Costs:
        """Cycles to put inputs side by side for the lanes: each tile makes copies of its own. Where these are
        used seldom there are none, and tiles in registers do it anew."""
        total: Costs = np.asarray(0.0)
        unit, line = self.problem.unit, self.problem.memory_line
        for leaf, operand, _, instructions in self._turned:
            assert unit is not None
            others = [n for n in leaf.ranges if n not in operand.indexes]
            often = prod((np.asarray(sizes.get(n, leaf.ranges[n])) for n in others), start=np.asarray(1))
            held = prod(self._steps.get(n, 1) for n in others)
            shared = np.where(often < COPIED, np.minimum(often, held), often)
            # Lines of which a tile has a part are read for it alone.
            dense = box_elements(operand, sizes) * operand.dtype.bytes
            whole = fetched_bytes(operand, sizes, line, among=self.problem.ranges) / dense
            total = total + leaf.points / unit.loads_per_cycle * instructions * whole / shared
        return total

    def _lines_again(self, sizes: Sizes) -> Costs:
        """Cycles to wait for lines that come into the nearest cache again, where squares go along more rows
        of what they read than it keeps in turn; and, on cores that fetch deep, for lines from behind this
        memory where these rows crowd into few sets of the nearest cache: the first ones of each row, or all
        if there are more rows than are fetched ahead.
        """
        problem, square = self.problem, self._square
        near = problem.hw.nearest_cache
        total: Costs = np.asarray(0.0)
        rate = problem.memory.bytes_per_cycle
        if square is None or not rate or near is None or near.rows_in_turn is None:
            return total
        sides = square.lane.index, square.across
        for operand in problem.counted:
            for along, beside in (sides, sides[::-1]):
                step, most = abs(operand.stride(along)) * operand.dtype.bytes, near.rows_in_turn
                apart = step >= near.line_bytes
                if operand.direction is Direction.IN and operand.stride(beside) == 1 and apart:
                    lines = fetched_bytes(operand, problem.ranges, near.line_bytes)
                    total = total + np.where(np.asarray(sizes[along]) <= most, 0.0, lines / rate)
                    if problem.fetches_deep and crowds(most, step, near):
                        first = BEGUN * near.line_bytes / (np.asarray(sizes[beside]) * operand.dtype.bytes)
                        late = np.where(np.asarray(sizes[along]) > FOLLOWED, 1.0, np.minimum(first, 1.0))
                        total = total + late * lines / problem.farther()[0][1]
        return total

    def _copied_share(self, sizes: Sizes, tile_bytes: Sequence[Costs]) -> dict[str, Costs]:
        """Of the inputs of which each tile makes copies: how much of what it brings in is in these."""
        turned = {operand.name for _, operand, _, _ in self._turned}
        return {
            o.name: box_elements(o, sizes) * o.dtype.bytes / brought
            for o, brought in zip(self.problem.counted, tile_bytes, strict=True)
            if o.name in turned
        }

    @cached_property
    def _turned(self) -> list[tuple[Leaf, Operand, str, float]]:
        """The inputs of which lanes need copies that do not stay in the memory, made once for all tiles; the
        index of these lanes, and the instructions to copy an element."""
        found: list[tuple[Leaf, Operand, str, float]] = []
        unit = self.problem.unit
        if unit is None or len(self.problem.leaves) != 1:
            return found
        (leaf,) = self.problem.leaves
        for lane in lane_candidates(leaf, unit.vector_bytes, packed=True, path_bytes=unit.path_bytes)[:1]:
            for operand in leaf.operands:
                copy = packing(leaf, operand, lane.index, lane.width)
                if copy is not None and not self._made_once(operand):
                    often = prod(size for n, size in leaf.ranges.items() if n not in operand.indexes)
                    found.append((leaf, operand, lane.index, copy * often / lane.width))
        return found

    def _made_once(self, operand: Operand) -> bool:
        capacity = self._capacity()
        size = box_elements(operand, self.problem.ranges) * operand.dtype.bytes
        return operand.name in self.problem.constant or capacity is None or int(size) <= capacity

    def untiled(self, sizes: Mapping[str, int]) -> float:
        if self._bound_by_memory(sizes):
            return self._in_small_tiles() * (1 - LEAST_GAIN)
        # The block's own loops are tiles of one point, without the loops of a tile around them.
        ones = dict.fromkeys(sizes, 1)
        alone = self._with_no_tiles.evaluate(ones, tuple(ones)).cost
        some = (float(alone) - self._lone(ones)) * (1 - WORTH)
        if all(size <= self._steps.get(name, 1) for name, size in sizes.items()):
            return some  # one of registers, in the order that suits the cache
        return min(some, self._in_small_tiles() * (1 - NOTHING))

    def _bound_by_memory(self, sizes: Mapping[str, int]) -> bool:
        """Whether tiles of these sizes wait for what they touch, most of the time."""
        work = self._whatever_the_order(sizes, None).arithmetic / max(f.points for f in self.problem.leaves)
        return all(2 * float(work) < float(self.evaluate(sizes, o).cost) for o in self.orders())

    def _in_small_tiles(self) -> float:
        """The cost with no tiles but those in registers."""
        least, model = self.least, self._with_no_tiles
        return min(float(model.evaluate(least, order).cost) for order in self.orders()) - self._lone(least)

    @cached_property
    def _with_no_tiles(self) -> MemoryRoofline:
        """The model of the block's own loops. What they come to lies beside what they come from."""
        return MemoryRoofline(self.problem, self._steps, in_turn=True)

    def _lone(self, sizes: Mapping[str, int]) -> float:
        """What the loops around tiles of these sizes cost."""
        return float(TILE_CYCLES * self.problem.tiles(sizes) / max(f.points for f in self.problem.leaves))

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        return ()

    def settled_lane(self, leaf: Leaf) -> str:
        return ""

    @cached_property
    def _work(self) -> tuple[VectorWork | Blocks, ...]:
        """What each leaf goes in."""
        problem, unit = self.problem, self.problem.unit
        if unit is None:
            return ()
        alone, found = len(problem.leaves) == 1, list[VectorWork | Blocks]()
        for leaf, raw in zip(problem.leaves, problem.ungrouped, strict=True):
            lanes = lane_candidates(leaf, unit.vector_bytes, packed=alone, path_bytes=unit.path_bytes)
            blocks = blocks_of(raw, next(iter(lanes), None), problem.hw, unit)
            found.append(VectorWork.of(leaf, unit, alone) if blocks is None else blocks)
        return tuple(found)

    def _capacity(self) -> int | None:
        return usable_bytes(self.problem.memory)

    def _tile_bytes(self, sizes: Sizes, upto: Sizes | None = None) -> list[Costs]:
        line = self.problem.memory_line
        among = None if self._in_turn else self.problem.ranges
        return [fetched_bytes(o, sizes, line, upto, among) for o in self.problem.counted]
