"""What a cost model is asked, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import gcd, isqrt, prod
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, Views, box, extents, leaves, operands
from stripe.analysis.groups import group_index, grouped
from stripe.analysis.lanes import Joined, joined_row, lane_candidates, vector_width
from stripe.analysis.work import vector_operations
from stripe.ir import Aggregation, Block, Cast, Direction, Intrinsic
from stripe.locks import cached_property

Costs: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
SizeRule: TypeAlias = Literal["all", "divisors", "powers_of_two"]

# Work that could overlap never does so wholly: this share of all but the longest part is added.
OVERLAP = 0.2
FETCHED_AHEAD = 0.1  # the same for bytes that are fetched ahead of their use
EVERY_SIZE = 4096  # up to here a search may try each size of a range
TILE_CYCLES = 20.0  # to set up the loops of one tile
PAGE_BYTES = 4096
RUN_CYCLES = 4.0  # until what is fetched ahead has caught up with a run of lines that begins elsewhere
APART_SHARE = (
    0.2  # of the time until a memory answers: what a core waits for it, several lines being on the way
)
ASKED_FOR = 1 / 8  # of what a run of lines costs that was asked for long before
ANSWER_CYCLES = 50.0  # of a memory whose latency is not known
# That it waits for a run that is stored, which nothing needs, or that loops of tiles in registers ask for
# ahead: others are on the way.
APART_CYCLES = 10.0
RUNS = "runs"  # what these waits are called among the parts of a cost
NEAR_RUNS = "near runs"  # those for the cache next to the nearest one
SCATTERED = 0.6  # of a cache whose sets depend on where pages lie in memory: what can be counted on


@dataclass(frozen=True)
class Problem:
    """A block to tile so that a tile fits in a memory of a target.

    `outer` are the views of the block's parent. `names` limits the indexes that may be tiled (all
    if empty, but reduction indexes only if `reductions` says so; None: in explicit memories).
    `fixed` says whether operands that no such index reaches count. `limits` are further memories
    that a tile must fit in. For explicit memories, `accumulators` holds what is aggregated, and
    `inflight` tiles are alive together; the operands in `bypass` are not brought into the memory. `around`
    are memories that tiles around the block fit in, and `units` as many units execute such blocks side by
    side, each with an instance of the memory. Of the operands in `constant`, copies are made at load time;
    those in `far` are views of what a core's own caches do not hold. `in_tile`: the block is the inside of a
    tile.
    """

    block: Block
    outer: Views
    hw: HwConfig
    memory: Memory
    names: tuple[str, ...] = ()
    reductions: bool | None = None
    fixed: bool = False
    rule: SizeRule = "all"
    limits: tuple[Memory, ...] = ()
    accumulators: Memory | None = None
    inflight: int = 1
    bypass: tuple[str, ...] = ()
    constant: frozenset[str] = frozenset()
    far: frozenset[str] = frozenset()
    around: frozenset[str] = frozenset()
    units: int = 1
    in_tile: bool = False

    @cached_property
    def ranges(self) -> dict[str, int]:
        return self.block.ranges

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        return operands(self.block, self.outer)

    @cached_property
    def ungrouped(self) -> tuple[Leaf, ...]:
        return leaves(self.block, self.outer)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(map(grouped, self.ungrouped))

    @cached_property
    def lead(self) -> Leaf | None:
        """The leaf that does most of the work."""
        return max(self.leaves, key=lambda f: f.points * max(1, vector_operations(f)), default=None)

    @cached_property
    def reduced(self) -> frozenset[str]:
        """The block's indexes that some aggregated result does not depend on."""
        written = [
            o.indexes for o in self.operands if o.direction.writes and o.aggregation is not Aggregation.ASSIGN
        ]
        return frozenset(n for n in self.ranges if any(n not in indexes for indexes in written))

    @cached_property
    def summed(self) -> frozenset[str]:
        """Those of them that tiles of a cache keep whole, unless asked for: what another leaf than the
        leading one reduces over, it adds to its result tile by tile."""
        if self.memory.kind != "cached" or self.lead is None:
            return self.reduced
        return self.reduced & {*self.lead.reductions, *self.groups}

    @cached_property
    def groups(self) -> frozenset[str]:
        """The indexes that instructions take in one go."""
        return frozenset(
            group
            for raw, own in zip(self.ungrouped, self.leaves, strict=True)
            if own is not raw and (group := group_index(raw))
        )

    @cached_property
    def in_one_order(self) -> bool:
        """Whether one order of the indexes that are reduced over goes along memory in all inputs. Else some
        are copied to be read in the order of the others."""
        names = [n for n in self.reduced - self.groups if self.ranges[n] > 1]
        inputs = [o for o in self.operands if o.direction is Direction.IN]
        return not any(
            abs(one.stride(a)) > abs(one.stride(b)) > 0 and abs(other.stride(b)) > abs(other.stride(a)) > 0
            for a, b in permutations(names, 2)
            for one, other in combinations(inputs, 2)
        )

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """The indexes that may be tiled, in order."""
        return tuple(
            name
            for name, size in self.ranges.items()
            if size > 1 and (name in self.names if self.names else self.reductions or name not in self.summed)
        )

    @cached_property
    def counted(self) -> tuple[Operand, ...]:
        """The operands whose tiles count."""
        reach = frozenset(self.indices)
        return tuple(o for o in self.operands if self.fixed or o.local or o.indexes & reach)

    @cached_property
    def unit(self) -> Unit | None:
        """The first compute unit that reaches the memory."""
        units = self.hw.compute_units
        return next((u for u in units if self.memory.name in u.reaches), units[0] if units else None)

    def complete(self, sizes: Sizes) -> Sizes:
        """Sizes for every index of the block: those that are not given stay whole."""
        return {**self.ranges, **sizes}

    def tiles(self, sizes: Sizes) -> Counts:
        """How many tiles there are."""
        return prod(
            (-(-self.ranges[n] // np.asarray(size, np.int64)) for n, size in sizes.items()),
            start=np.asarray(1, np.int64),
        )

    @property
    def memory_line(self) -> int:
        """Bytes that come from memory together: the line of the nearest cache at or behind the
        memory, 1 if there is none."""
        levels = [self.memory, *(level for level, _ in self.farther())]
        return next((m.line_bytes for m in levels if m.kind == "cached"), 1)

    def farther(self) -> list[tuple[Memory, float]]:
        """From the memory outwards: each level that holds data for a time, with the bytes per
        cycle at which the next farther one fills it."""
        by_name = {m.name: m for m in self.hw.memories}
        found: list[tuple[Memory, float]] = []
        level: Memory | None = self.memory
        while level is not None and level.backing in by_name and len(found) < len(by_name):
            behind = by_name[level.backing]
            if behind.bytes_per_cycle:
                found.append((level, behind.bytes_per_cycle))
            level = behind
        return found

    @property
    def nearest_cache(self) -> Memory | None:
        """The level behind the memory, if that is a cache."""
        levels = self.farther()[1:]
        return levels[0][0] if levels and levels[0][0].kind == "cached" else None

    @property
    def fetches_deep(self) -> bool:
        """Whether each load that goes along a row has that row fetched far ahead."""
        return self.unit is not None and "fetches_deep" in self.unit.capabilities


@dataclass(frozen=True)
class Limit:
    """What candidates need of a resource of which there is so much: one entry each, or one for all."""

    needed: Counts
    capacity: int | None
    resource: str


@dataclass(frozen=True)
class Evaluation:
    """Costs of candidates, one entry each, and what they need of the resources that limit them.

    `parts` are cycles of the whole block by what is busy with it, as far as the model tells them apart;
    `computing` those of the unit, if it never had to wait for bytes.
    """

    cost: Costs
    limits: tuple[Limit, ...]
    parts: Mapping[str, Costs] = field(default_factory=dict)
    computing: Costs | None = None

    @property
    def needed(self) -> Counts:
        return self.limits[0].needed

    @cached_property
    def fits(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        found: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(True)
        for limit in self.limits:
            if limit.capacity is not None:
                found = found & (limit.needed <= limit.capacity)
        return found


def usable_bytes(memory: Memory) -> int | None:
    """What tiles may fill of a memory. Of a cached one, a way is left to what streams past; where its
    ways are larger than a page, lines meet by chance, and less can be counted on."""
    if memory.bytes is None or memory.kind != "cached" or not memory.ways or memory.ways < 2:
        return memory.bytes
    if _by_chance(memory):
        return int(memory.bytes * SCATTERED)
    return memory.bytes * (memory.ways - 1) // memory.ways


def _by_chance(memory: Memory) -> bool:
    """Whether the ways of a cache are larger than a page, so that it is chance on which sets a page lies."""
    return bool(memory.bytes and memory.ways and memory.bytes // memory.ways > PAGE_BYTES)


def crowd(operand: Operand, sizes: Sizes, memory: Memory) -> Any:
    """How many rows of a tile of an operand, at most, lie on the same sets of a cache; of sizes that are
    arrays, as many entries. Rows that a stride leaves out are none. Where the ways of a cache are larger than
    a page, on which of their sets a page lies is chance."""
    plain = all(isinstance(size, int) for size in sizes.values())
    least, most, common = (min, max, gcd) if plain else (np.minimum, np.maximum, np.gcd)
    by_chance, line = _by_chance(memory), memory.line_bytes
    crowded: Any = 1
    every: Any = 1
    spaced: Any = 0  # what all rows lie a multiple of apart
    for stride, expr, own in zip(operand.strides, operand.access, operand.extent, strict=True):
        terms = [(abs(factor), sizes[name]) for name, factor in expr.terms if name in sizes]
        step = gcd(*[factor for factor, _ in terms]) if own == 1 and terms else 1
        reached: Any = own
        touched: Any = own
        for factor, size in terms:
            reached = reached + factor // step * (size - 1)
            touched = touched * size
        rows = reached if len(terms) == own == 1 else least(reached, touched)
        apart = abs(stride) * step * operand.dtype.bytes
        if by_chance:
            apart = gcd(apart, PAGE_BYTES)
        if apart >= line:
            crowded = crowded * on_one_set(rows, apart, memory)
            every, spaced = every * rows, common(spaced, apart * (rows > 1))
    return most(crowded, on_one_set(every, spaced, memory))


def on_one_set(rows: Any, step: Any, memory: Memory) -> Any:
    """How many of some rows, `step` bytes apart, lie on the same set of a cache at most."""
    if memory.bytes is None or not memory.ways:
        return 1
    way = memory.bytes // memory.ways
    if isinstance(step, int):  # much sooner found than with arrays
        return 1 if step < memory.line_bytes else -(-rows // (way // gcd(step, way)))
    return np.where(step < memory.line_bytes, 1, -(-rows // (way // np.gcd(step, way))))


def crowds(rows: int, step: int, memory: Memory | None) -> bool:
    """Whether so many rows, `step` bytes apart, are more than some set of a cache has place for."""
    return memory is not None and memory.ways is not None and on_one_set(rows, step, memory) > memory.ways


def pieces_on_one_set(rows: int, step: int, piece: int, memory: Memory) -> int:
    """The same of pieces of rows, so many bytes long each, that begin anywhere within lines."""
    if memory.bytes is None or not memory.ways:
        return 1
    line, way = memory.line_bytes, memory.bytes // memory.ways
    found = Counter[int]()
    for start in (row * step % way for row in range(rows)):
        found.update({at % way // line for at in range(start // line * line, start + min(piece, way), line)})
    return max(found.values(), default=0)


def way_in(memory: Memory) -> str:
    """What the bytes that come into a memory are called among the parts of a cost."""
    return f"{memory.backing} to {memory.name}"


def answer_cycles(memory: Memory | None) -> float:
    """How long it takes until a memory answers."""
    return memory.latency_cycles if memory is not None and memory.latency_cycles else ANSWER_CYCLES


def apart_waits(hw: HwConfig, memory: Memory) -> tuple[float, float]:
    """How long arithmetic waits for a run of lines that begins elsewhere, on its way into tiles of a cache
    behind the nearest one, as it is not fetched ahead: for one that is read, and for one that is written."""
    each = APART_SHARE * answer_cycles(hw.memory(memory.backing or ""))
    return each, min(each, APART_CYCLES)


class CostModel(Protocol):
    """A cost model, made for one problem.

    `unit` says what a cost counts. `choices` gives the sizes worth a look for each index, `orders` the
    orders of the tile loops. Costs and needs grow with what a tile holds and with the number of
    tiles, and the two move against each other as sizes grow; so taking what a tile holds from the
    least sizes of a box, and the number of tiles from the greatest, bounds all that is in the box.
    That is how `evaluate` finds bounds, and why a search can leave out whole boxes.
    """

    unit: str

    @property
    def problem(self) -> Problem: ...

    @property
    def indices(self) -> tuple[str, ...]:
        """The indexes that it would tile, in order."""
        ...

    def refusal(self) -> str:
        """Why there is nothing to tile, as a clause; empty if there is."""
        ...

    def choices(self) -> dict[str, tuple[int, ...]]:
        """For each of `indices`, ascending."""
        ...

    def orders(self) -> tuple[tuple[str, ...], ...]:
        """The orders of the tile loops that are worth a look, outermost index first; at least one."""
        ...

    def evaluate(self, sizes: Sizes, order: Sequence[str], upto: Sizes | None = None) -> Evaluation:
        """`sizes` of the indexes in `choices`, for tiles visited in `order`, outermost first.

        With `upto`: what no candidate from `sizes` to `upto` stays below, in cost and in needs.
        """
        ...

    def untiled(self, sizes: Mapping[str, int]) -> float:
        """The cost that a tile of these sizes must stay below to be worth its loops."""
        ...

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        """The order in which the points of a tile should be visited; empty leaves it."""
        ...

    def settled_lane(self, leaf: Leaf) -> str:
        """The lane index of a leaf that reads inputs from copies which are still to be made: as they lie now,
        another might be better. Else empty."""
        ...


def possible_sizes(size: int, rule: SizeRule) -> tuple[int, ...]:
    """The tile sizes for a range under a rule, ascending, the whole range always among them.

    Of a range beyond EVERY_SIZE, "all" gives every size up to that, then the balanced ones.
    """
    match rule:
        case "divisors":
            low = [n for n in range(1, _root(size) + 1) if size % n == 0]
            return tuple(sorted({*low, *(size // n for n in low)}))
        case "powers_of_two":
            return tuple(sorted({size, *(1 << k for k in range(size.bit_length()) if 1 << k < size)}))
        case _:
            every = range(1, min(size, EVERY_SIZE) + 1)
            return tuple(every) if size <= EVERY_SIZE else tuple(sorted({*every, *balanced_sizes(size)}))


def balanced_sizes(size: int) -> tuple[int, ...]:
    """For each number of tiles, the least size that gives no more tiles: the rest only waste."""
    # A small count gives a large size, a small size v is reached from the count ceil(size / v).
    small = range(1, _root(size) + 2)
    large = {-(-size // count) for count in small}
    return tuple(sorted(large | {-(-size // -(-size // v)) for v in small}))


def _root(size: int) -> int:
    """The square root, bounded so that absurd ranges take no time: then some sizes are missed."""
    return min(isqrt(size), 1 << 16)


def combine(*parts: Costs, share: float = OVERLAP) -> Costs:
    """The time of parts that run side by side, where the longest hides most of the others."""
    stacked = np.stack(np.broadcast_arrays(*parts))
    longest: Costs = stacked.max(axis=0)
    total: Costs = longest + share * (stacked.sum(axis=0) - longest)
    return total


def inner_orders(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The block's own order of its indexes, then each index once as the innermost tile loop: what
    does not depend on it stays."""
    orders = [(*(n for n in names if n != inner), inner) for inner in names]
    return tuple(dict.fromkeys([tuple(names), *orders]))


def runs(operand: Operand, sizes: Sizes, upto: Sizes | None = None) -> tuple[Counts, Counts]:
    """Rows of a tile, and the elements of one that lie one after the other in memory.

    With `upto`, rows that join at any size up to that count as joined.
    """
    rows, run, _ = _rows(operand, sizes, upto)
    return rows, run


def _rows(operand: Operand, sizes: Sizes, upto: Sizes | None) -> tuple[Counts, Counts, Counts]:
    """`runs`, and the elements of which all rows lie a multiple apart; 0 for one row."""
    run = most = np.asarray(1, np.int64)
    rows = np.asarray(1, np.int64)
    apart = np.asarray(0, np.int64)
    whole = np.asarray(True)
    small = extents(operand, sizes)
    large = small if upto is None else extents(operand, upto)
    every = zip(operand.strides, small, large, strict=True)
    for stride, extent, greatest in sorted(every, key=itemgetter(0)):
        joined = whole & (stride == run if upto is None else stride <= most)
        joining = np.count_nonzero(joined)
        if joining == joined.size:  # as mostly, of all tiles or of none: then there is less to work out
            run, most = run * extent, most * greatest
            continue
        apart = np.gcd(apart, np.where(joined | (extent == 1), 0, stride))
        if not joining:
            rows, whole = rows * extent, whole & (extent == 1)
        else:
            rows = rows * np.where(joined, 1, extent)
            whole = joined | (whole & (extent == 1))
            run, most = np.where(joined, run * extent, run), np.where(joined, most * greatest, most)
    return rows, run, apart


def fetched_bytes(
    operand: Operand,
    sizes: Sizes,
    line: int,
    upto: Sizes | None = None,
    among: Mapping[str, int] | None = None,
) -> Costs:
    """Bytes of a tile in whole lines, where its rows start at a line; with `upto`, at least. One of tiles
    that lie side by side `among` the points of some ranges has rows that start anywhere in a line that their
    strides lead to: so many on average."""
    rows, run, apart = _rows(operand, sizes, upto)
    size = operand.dtype.bytes
    begin: Counts = np.asarray(line, np.int64)
    if among is not None and upto is None:
        begin = np.gcd(begin, apart * size)
        for name, count in among.items():
            tile = np.asarray(sizes.get(name, count), np.int64)
            begin = np.gcd(begin, np.where(tile < count, operand.stride(name) * size * tile, 0))
    return np.asarray(rows * in_lines(run * size, begin, line), float)


def in_lines(length: Counts | int, begin: Counts | int, line: int) -> Counts | int:
    """Bytes in whole lines of so many that lie side by side, on average, where they begin at any multiple of
    `begin`, which divides a line."""
    return -(-length // begin) * begin + line - begin


def runs_of_box(operand: Operand, sizes: Mapping[str, int]) -> tuple[int, int]:
    """`runs` of one tile, in plain integers."""
    run, rows, whole = 1, 1, True
    for stride, extent in sorted(zip(operand.strides, box(operand, sizes), strict=True), key=itemgetter(0)):
        if whole and stride == run:
            run *= extent
        else:
            rows *= extent
            whole = whole and extent == 1
    return rows, run


def jumps(
    operand: Operand, loops: Sequence[str], ranges: Mapping[str, int], run: int = 1, staying: int = 0
) -> int:
    """How often loops, outermost first, come to a place of an operand that is not beside the last one;
    `run` elements that lie one after the other are touched at each step. What so many of the innermost loops
    touch is still near when they begin again: the loop around these goes on at each place where it was left.
    """
    count, joined, beside = 1, True, run
    for inside, name in enumerate(reversed(loops)):
        stride = abs(operand.stride(name))
        joined = joined and stride <= run
        if joined:
            run += stride * (ranges[name] - 1)
        elif stride and not (stride <= beside and inside <= staying):
            count *= ranges[name]
    return count


def box_bytes(operand: Operand, sizes: Mapping[str, int], line: int) -> float:
    """`fetched_bytes` of one of tiles that lie side by side, in plain integers: its rows start anywhere in a
    line that the strides of the operand lead to."""
    rows, run = runs_of_box(operand, sizes)
    size = operand.dtype.bytes
    begin = gcd(line, *(abs(s) * size for s in operand.strides if abs(s) >= run))
    return float(rows * in_lines(run * size, begin, line))


def with_lanes_inside(ranges: Mapping[str, int], leaf: Leaf, unit: Unit) -> dict[str, int]:
    """Ranges with the index that would run along the lanes innermost, as code will have it."""
    lane = next((lane.index for lane in lane_candidates(leaf, unit.vector_bytes, among=ranges)), "")
    return {name: ranges[name] for name in sorted(ranges, key=lambda name: name == lane)}


def bytes_again(operands: Sequence[Operand], ranges: Mapping[str, int], line: int) -> float | None:
    """For a walk through `ranges`, outermost first, that takes the elements of each operand in the order of
    their addresses: the bytes that it takes again and again. None if it goes back and forth."""
    total = 0.0
    for operand in operands:
        end = 0
        inside: dict[str, int] = {}
        again: dict[str, int] = {}
        for name, size in reversed(tuple(ranges.items())):
            step = abs(operand.stride(name))
            if step and step < end:
                return None
            if step:
                inside[name], end = size, step * size
            elif inside and size > 1:
                again = dict(inside)
        if again:
            total += box_bytes(operand, {**dict.fromkeys(ranges, 1), **again}, line)
    return total


@dataclass(frozen=True, slots=True)
class VectorWork:
    """A leaf on a vector unit: the index that runs along the lanes (empty: none), how many elements fill a
    vector, the operations for each point, and the `share` of the time of a full vector that one takes; and
    the row index along which vectors may go on, if there is one (`joined`)."""

    ranges: Mapping[str, int]
    lane: str
    width: int
    operations: int
    unit: Unit
    share: float = 1.0
    joined: Joined | None = None

    @staticmethod
    def of(leaf: Leaf, unit: Unit, alone: bool = False) -> VectorWork:
        """`alone`: copies of inputs may decide the lane index, as no other leaf has part in it."""
        lanes = lane_candidates(leaf, unit.vector_bytes, packed=alone, path_bytes=unit.path_bytes)
        width = vector_width(leaf.block, unit.vector_bytes)
        operations = sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements)
        lane, share = (lanes[0].index, lanes[0].share) if lanes else ("", 1.0)
        joined = joined_row(leaf, lane, width) if alone and lane else None
        joined = joined if joined is not None and joined.matters else None
        return VectorWork(leaf.ranges, lane, width, max(1, operations), unit, share, joined)

    def cycles(self, sizes: Sizes, upto: Sizes | None = None) -> Costs:
        """Cycles of all vector operations in all tiles, idle lanes and overhanging points included.

        With `upto`, no sizes from `sizes` to `upto` take less.
        """
        steps = work_steps(self.ranges, {self.lane: self.width}, sizes, upto) * self.share
        if self.joined is not None:
            steps = np.where(self._go_on(upto or sizes), self._joined_steps(sizes, upto), steps)
        return steps * self.operations / self.unit.fma_per_cycle

    def _go_on(self, sizes: Sizes) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether vectors go on from row to row in tiles of these sizes."""
        assert self.joined is not None
        complete = {**self.ranges, **sizes}
        return np.asarray(
            self.joined.pays(complete) & (np.asarray(complete[self.lane]) == self.ranges[self.lane])
        )

    def _joined_steps(self, sizes: Sizes, upto: Sizes | None) -> Costs:
        """Vector operations where they do."""
        assert self.joined is not None
        lane, row = self.lane, self.joined.row
        each = self.ranges[lane]

        def joined(of: Sizes) -> Sizes:
            rows = np.asarray(of.get(row, self.ranges[row]), np.int64)
            return {**{name: of[name] for name in of if name not in (lane, row)}, lane: rows * each}

        ranges = joined(self.ranges)
        return work_steps(ranges, {lane: self.width}, joined(sizes), None if upto is None else joined(upto))


def work_steps(ranges: Sizes, most: Mapping[str, int], sizes: Sizes, upto: Sizes | None = None) -> Costs:
    """The steps of a leaf in all tiles, each of which takes up to `most` points along some indexes.

    With `upto`, no sizes from `sizes` to `upto` take less.
    """
    steps: Costs = np.asarray(1.0)
    for name, size in ranges.items():
        width = most.get(name, 1)
        tile = np.asarray(sizes.get(name, size), np.int64)
        greatest = tile if upto is None else np.asarray(upto.get(name, size), np.int64)
        padded = -(-tile // width) * -(-size // greatest)
        steps = steps * np.maximum(padded, -(-size // width))
    return steps
