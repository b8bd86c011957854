"""What the layout of its operands costs a nest: instructions, lines fetched again, pages.

Layouts of one nest are compared, so only what depends on a layout has to be right:

    instructions   those of stripe.analysis.lanes, along the best lane index under this layout
    lines          each execution of a leaf brings its operands in again, from the nearest level that
                   keeps them: where their lines fit, and do not crowd into a few sets; from memory where
                   no cache does; at each step, where its rows crowd out each other. Those of inputs of a sum
                   come beside its arithmetic: the longer hides most of the other, unless they are alike
    runs           rows that do not follow one another, each of which is met anew, unless the innermost
                   loops come back to them
    pages          rows that lie on more pages than the nearest translation buffer holds

Rows that are a power of two apart crowd; an operand that is packed does not. Rows that are no whole number of
lines apart have vectors that lie across two lines, each of which is loaded. Runs and pages cost little where
much is done with each row of a long loop: it is asked for long before it is loaded, whatever its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from math import inf, prod
from typing import NamedTuple

from hwconfigs.model import HwConfig, Memory, Unit, own_cache
from stripe.analysis.bounds import Leaf, Operand, Views, box, box_elements, leaves, of_leaf, of_operand
from stripe.analysis.cost_ahead import steps_ahead
from stripe.analysis.cost_problem import OVERLAP, RUN_CYCLES, answer_cycles
from stripe.analysis.cost_rows import box_bytes, jumps
from stripe.analysis.cost_sets import PAGE_BYTES, crowd, usable_bytes
from stripe.analysis.groups import grouped
from stripe.analysis.lanes import Lane, access_instructions, best_square, follows, lane_candidates, packing
from stripe.analysis.lanes_shared import shared_lanes
from stripe.ir import Block, Cast, Intrinsic

PAGES = 64  # that the nearest translation buffer holds
PAGE_CYCLES = 7.0  # to look a page up behind it
# To find the places of an input takes time: its pages are looked up, its rows are met. A sum waits for a
# share of that, since code asks for lines ahead of their use, or else a core runs ahead by itself.
USES_OF_LINE = 3  # vector operations on each line of a step; with fewer, work waits for all of that time
LONG_LOOP = 8192  # bytes that a loop goes through, from which on the share is as small as it gets
UNHIDDEN = 1 / 8  # the share in such a loop: that of its first lines, which nobody asked for in time
SQUEEZED = 3 / 8  # the share of meeting rows, at least, if the nearest cache has too little room for them
NARROW = 3 / 8  # the share for pieces of a line or so, each on its own page, if cores fetch on along rows
# At best only the first LONG_LOOP bytes of a loop are waited for, however long it is. For that
IN_TIME = 2  # lines come from the farthest cache so many times as fast as they are used, and
STAYS = 1 / 2  # all that a nest touches fits in this share of that cache: others use it, too
# The farthest memory is slow where one page after the other has to be looked up.
FAR_RUN = 4 * PAGE_BYTES  # bytes of a row; each shorter one begins on a page that was not just looked at
PIECES = 2.0  # times as long as bytes of long rows take those of shorter ones, or of elements far apart
BESIDE = 2.5  # the power by which what goes on side by side adds up: the nearer two are, the less one hides
COPY_WAITS = 4.0  # cycles for a vector of a copy, besides what it takes to read, turn and write it
ROOM = 1 / 2  # of a cache for rows that a loop goes through again, beside what else it touches
MANY_LANES = 16  # of a vector, where only it matters whether an operand is taken apart


def lane_choice(block: Block, outer: Views, hw: HwConfig) -> tuple[str, ...]:
    """The best lane index of each leaf of a nest, empty where there is none."""
    unit = hw.compute_unit
    found = [
        lane_candidates(leaf, unit.vector_bytes, _inner(leaf), path_bytes=unit.path_bytes) if unit else ()
        for leaf in map(grouped, leaves(block, outer))
    ]
    return tuple(lanes[0].index if lanes else "" for lanes in found)


class Brought(NamedTuple):
    """What is known of where the operands of a nest come from, by name.

    `near` were written just before, with the bytes that were: at first they are found in the nearest cache
    that holds them. `far` come from the farthest memory, since no cache keeps all that the program reads of
    them. `in_time`: all that is asked for ahead comes in time, where it can.
    """

    near: tuple[tuple[str, int], ...] = ()
    far: frozenset[str] = frozenset()
    in_time: bool = False

    def of(self, leaf: Leaf) -> Brought:
        """What of it matters to a leaf."""
        names = {operand.name for operand in leaf.operands}
        return self._replace(near=tuple(entry for entry in self.near if entry[0] in names))


ANYWHERE = Brought()


def layout_cycles(
    block: Block, outer: Views, hw: HwConfig, lanes: Sequence[str] | None = None, brought: Brought = ANYWHERE,
    squares: bool = False, below: float = inf,
) -> float:  # fmt: skip
    """Cycles for one execution of a nest, as far as they depend on the layout of what it touches.

    `outer` are the views of its parent. `lanes` fixes the lane index of each leaf, as it is where the
    nest was tiled for it. `squares`: the nest is one leaf that may turn squares in registers. Only a result
    `below` that is asked for: instructions alone may show that there is none.
    """
    unit = hw.compute_unit
    if unit is None:
        return 0.0
    found = _leaves(block, outer)
    if lanes is not None:
        issued = _along_given(found, lanes, unit, hw.line_bytes)
    else:
        issued = _along_best(block, outer, unit, squares=squares)
    instructions = sum(issued)
    if instructions >= below:
        return instructions
    return sum(_beside(cycles, leaf, hw, brought) for cycles, leaf in zip(issued, found, strict=True))


def instruction_cycles(
    block: Block, outer: Views, hw: HwConfig, lanes: Sequence[str] | None = None, packed: bool = False
) -> float:
    """Those of the instructions alone: a nest that will be tiled does not touch its operands in the order in
    which it is written. `packed`: copies of inputs may be made between the loops, once there are tiles."""
    unit = hw.compute_unit
    if unit is None:
        return 0.0
    if lanes is not None:
        return sum(_along_given(_leaves(block, outer), lanes, unit, hw.line_bytes))
    return sum(_along_best(block, outer, unit, packed=packed))


def _leaves(block: Block, outer: Views) -> list[Leaf]:
    return [_in_place(grouped(leaf), len(block.ranges)) for leaf in leaves(block, outer)]


def _along_given(found: Sequence[Leaf], lanes: Sequence[str], unit: Unit, line: int) -> list[float]:
    """Cycles to issue the instructions of each leaf along the lane index that is given for it."""
    return [_instructions(leaf, lane, unit, line) for leaf, lane in zip(found, lanes, strict=True)]


def _along_best(
    block: Block, outer: Views, unit: Unit, *, packed: bool = False, squares: bool = False
) -> list[float]:
    """The same along the best lane index under this layout."""
    found = shared_lanes(block, outer, unit.vector_bytes, packed, unit.path_bytes)
    return [_along(leaf, _turning(leaf, lane, unit) if squares else lane, unit) for leaf, lane in found]


def waits_of_copies(block: Block, outer: Views, hw: HwConfig) -> float:
    """Cycles in which copies wait for memory that tiles of a nest will make of inputs that are not read side
    by side along its lanes: most where each lane has a page of its own."""
    unit = hw.compute_unit
    if unit is None:
        return 0.0
    cycles = 0.0
    for leaf, lane in shared_lanes(block, outer, unit.vector_bytes, True, unit.path_bytes):
        for operand in leaf.operands if lane is not None else ():
            assert lane is not None
            if access_instructions(operand, lane.index, lane.width) <= 1:
                continue
            if packing(leaf, operand, lane.index, lane.width) is None:
                continue
            elements, size = float(box_elements(operand, leaf.ranges)), operand.dtype.bytes
            rate = _rate(elements * size, hw)
            apart = abs(operand.stride(lane.index)) * size > PAGE_BYTES // 2
            each = COPY_WAITS + (PIECES * lane.width * size / rate if apart and rate else 0.0)
            cycles += elements / lane.width * each
    return cycles


def _rate(size: float, hw: HwConfig) -> float | None:
    """The bytes per cycle that come from the nearest memory that keeps so many from call to call."""
    for memory in hw.caches:
        capacity = usable_bytes(memory)
        if capacity is None or size <= capacity:
            return memory.bytes_per_cycle
    return hw.home.bytes_per_cycle if hw.home is not None else None


def well_laid(block: Block, outer: Views, hw: HwConfig, lanes: Sequence[str], name: str) -> bool:
    """Whether an operand of a nest is read by whole vectors or splats, its rows don't crowd into few sets
    of a cache, and they lie on few pages."""
    apart = any(
        lane and (access_instructions(operand, lane, MANY_LANES) > 1 or _parts_rows(leaf, operand, lane))
        for leaf, lane in zip(map(grouped, leaves(block, outer)), lanes, strict=True)
        for operand in leaf.operands
        if operand.name == name
    )
    return not apart and not crowded(block, outer, hw, name)


def crowded(block: Block, outer: Views, hw: HwConfig, name: str) -> bool:
    """Whether rows of an operand of a nest fall into few sets of a cache, or lie on many pages."""
    caches = [m for m in hw.caches if m.ways]
    for leaf in map(grouped, leaves(block, outer)):
        inner = _inner(leaf)
        for operand in (o for o in leaf.operands if o.name == name):
            if any(_crowd(operand, inner, m) > (m.ways or 0) for m in caches) or _pages(operand, inner):
                return True
    return False


def shut_out(block: Block, outer: Views, hw: HwConfig, name: str) -> bool:
    """Whether a cache would keep rows of an operand for a loop around the leaves of a nest, which goes
    through them again, if they did not fall into few of its sets."""
    return any(
        any(_shut_out(operand, leaf, level) for level in hw.caches)
        for leaf in map(grouped, leaves(block, outer))
        for operand in leaf.operands
        if operand.name == name
    )


@of_operand
def _shut_out(operand: Operand, leaf: Leaf, level: Memory) -> bool:
    capacity, ranges = usable_bytes(level), tuple(leaf.ranges.items())
    if capacity is None or not level.ways:
        return False
    for at in range(1, len(ranges) - len(leaf.block.ranges) + 1):
        inside = dict(ranges[at:])
        again = ranges[at - 1][0] not in operand.indexes
        if again and box_bytes(operand, inside, level.line_bytes) <= ROOM * capacity:
            return _crowd(operand, inside, level) > level.ways
    return False


def _parts_rows(leaf: Leaf, operand: Operand, lane: str) -> bool:
    """Whether an operand alone keeps vectors from going on from row to row."""
    inner = _inner(leaf)
    size = leaf.ranges[lane]
    if lane not in inner or size % MANY_LANES == 0:
        return False
    others = [o for o in leaf.operands if o is not operand]
    return any(
        name != lane
        and name in operand.indexes
        and follows(others, name, lane, size)
        and not follows((operand,), name, lane, size)
        for name in inner
        if name not in leaf.reductions
    )


def _inner(leaf: Leaf) -> dict[str, int]:
    """The ranges of a leaf's own indexes."""
    names = tuple(leaf.ranges)
    return {name: leaf.ranges[name] for name in names[len(names) - len(leaf.block.ranges) :]}


@of_leaf
def _in_place(leaf: Leaf, depth: int) -> Leaf:
    """A leaf of a nest with so many indexes of its own, where buffers of the nest lie in one place: a point
    of the nest takes that of the one before."""
    operands = tuple(
        replace(o, access=o.access[depth:], extent=o.extent[depth:], strides=o.strides[depth:])
        if o.local
        else o
        for o in leaf.operands
    )
    return replace(leaf, operands=operands)


def _turning(leaf: Leaf, lane: Lane | None, unit: Unit) -> Lane | None:
    """The lane of a leaf, at the cost of squares where these take less."""
    if lane is None:
        return None
    square = best_square(leaf, lane_candidates(leaf, unit.vector_bytes))
    if square is None or square.cost >= lane.cost:
        return lane
    return replace(square.lane, cost=square.cost)


def _along(leaf: Leaf, lane: Lane | None, unit: Unit) -> float:
    """Cycles to issue the vector instructions of a leaf along a lane index."""
    return leaf.points * (lane.cost if lane is not None else len(leaf.operands)) / unit.loads_per_cycle


@of_leaf
def _instructions(leaf: Leaf, lane: str, unit: Unit, line: int) -> float:
    """The same in a nest with tiles, where the lane index is settled."""
    settled = lane_candidates(leaf, unit.vector_bytes, among=(lane,)) if lane else ()
    if not settled:
        return _along(leaf, next(iter(lane_candidates(leaf, unit.vector_bytes)), None), unit)
    (chosen,) = settled
    turning = _turning(leaf, chosen, unit)
    if turning is not None and turning.cost < chosen.cost:
        return _along(leaf, turning, unit)
    size, inner = leaf.ranges[lane], _inner(leaf)
    row = next((n for n in inner if n != lane and follows(leaf.operands, n, lane, size)), None)
    along = size if row is None else size * inner[row]
    vectors = leaf.points // along * -(-along // chosen.width)
    operations = max(1, sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements))
    loads = 0.0
    for operand in leaf.operands:  # what some of the leaf's own indexes share is loaded for all of them
        others = prod(n for name, n in inner.items() if name != lane and name not in operand.indexes)
        across = 1 + _across_lines(operand, lane, chosen.width, line)
        loads += access_instructions(operand, lane, chosen.width) * across * vectors / others
    arithmetic, loading = vectors * operations / unit.fma_per_cycle, loads / unit.loads_per_cycle
    return max(arithmetic, loading) + OVERLAP * min(arithmetic, loading)


def _across_lines(operand: Operand, lane: str, width: int, line: int) -> float:
    """The share of the vectors of an operand that lie across two lines."""
    size = operand.dtype.bytes
    apart = [abs(operand.stride(name)) * size for name in operand.indexes if name != lane]
    if abs(operand.stride(lane)) != 1 or all(step % (width * size) == 0 for step in apart):
        return 0.0
    return min(1.0, (width - 1) * size / line)


def _beside(issued: float, leaf: Leaf, hw: HwConfig, brought: Brought) -> float:
    """Cycles of a leaf of which instructions take so many, with all that it brings in."""
    beside, waited = _fetching(leaf, hw, brought.of(leaf))
    return float((issued**BESIDE + sum(cycles**BESIDE for cycles in beside)) ** (1 / BESIDE)) + waited


@of_leaf
def _fetching(leaf: Leaf, hw: HwConfig, brought: Brought) -> tuple[tuple[float, ...], float]:
    """Cycles to bring the operands of a leaf from each level of the caches to the next nearer one: of inputs
    of sums, which come while it adds, for each level; and of all others, for which it waits. What is far
    comes past the caches while it waits for the memory behind them."""
    near = dict(brought.near)
    inner, caches = _inner(leaf), hw.caches
    outer = tuple(leaf.ranges)[: len(leaf.ranges) - len(inner)]
    executions = prod(leaf.ranges[name] for name in outer)
    finding = [_finding(operand, leaf, outer, hw, brought.in_time) for operand in leaf.operands]
    waited = sum(executions * (pages + rows) for pages, rows in finding)
    sums = any(inner.get(name, 1) > 1 for name in leaf.reductions)
    beside = [0.0]
    for level, behind in pairwise((*caches, *filter(None, (hw.home,)))):
        if not behind.bytes_per_cycle:
            continue
        meanwhile, capacity = 0.0, usable_bytes(level)
        for operand, inside, (_, each) in zip(leaf.operands, _staying(leaf, level), finding, strict=True):
            if operand.name in brought.far:
                if behind is hw.home:
                    waited += _from_home(operand, leaf, behind, level.line_bytes)
                continue
            if behind is hw.home and inside == leaf.ranges:
                continue  # the farthest cache keeps it from call to call
            loops = [name for name in outer if inside is None or name not in inside]
            if inside is not None:
                # What a loop around does not move stays from one of its values to the next.
                while loops and loops[-1] not in operand.indexes:
                    loops.pop()
            size = box_bytes(operand, inside or inner, level.line_bytes)
            if inside is None and sums and not operand.direction.writes:
                size *= _again_at_each_step(operand, leaf, inner, level)
            moved = size * prod(leaf.ranges[name] for name in loops)
            if operand.name in near and capacity is not None and near[operand.name] <= capacity:
                moved = max(0.0, moved - box_bytes(operand, leaf.ranges, level.line_bytes))
            if sums and not operand.direction.writes:
                meanwhile += moved
                continue
            cycles = moved * (2 if operand.direction.writes else 1) / behind.bytes_per_cycle
            if level is _own(caches) and not operand.direction.writes:
                # The first line of a row is what one waits for where the row is met.
                rows = executions * each
                cycles -= min(cycles, rows, rows / RUN_CYCLES * level.line_bytes / behind.bytes_per_cycle)
            waited += cycles
        beside.append(meanwhile / behind.bytes_per_cycle)
    return tuple(beside), waited


def _again_at_each_step(operand: Operand, leaf: Leaf, inner: Mapping[str, int], level: Memory) -> int:
    """How often one execution of a leaf brings in each line of an input of its sum, of which a step takes an
    element: so many times as it has elements where the rows of one step have no place in a cache together."""
    sums = [name for name in inner if name in leaf.reductions and operand.stride(name)]
    step = {name: 1 if name in leaf.reductions else size for name, size in inner.items()}
    if not sums or not level.ways or _crowd(operand, step, level) <= level.ways:
        return 1
    apart = abs(operand.stride(sums[-1])) * operand.dtype.bytes
    return min(inner[sums[-1]], max(1, level.line_bytes // apart))


def _from_home(operand: Operand, leaf: Leaf, home: Memory, line: int) -> float:
    """Cycles to read what a leaf reads of an operand once, from the farthest memory."""
    assert home.bytes_per_cycle
    _, run = _rows(_steps(operand, leaf.ranges), 1)
    pieces = PIECES if run * operand.dtype.bytes < FAR_RUN else 1.0
    return float(box_bytes(operand, leaf.ranges, line)) * pieces / home.bytes_per_cycle


@of_operand
def _found(operand: Operand, leaf: Leaf, hw: HwConfig, best: bool) -> tuple[float, float, bool]:
    """Cycles that one execution of a leaf takes to look up the pages of an operand, and to meet its rows; and
    whether the nearest cache keeps none of these."""
    inner, caches = _inner(leaf), hw.caches
    share = late = _unhidden(operand, leaf, inner, hw, best)
    squeezed = _squeezed(operand, leaf, inner, hw)
    if squeezed:
        late = max(share, SQUEEZED)
    pages, rows = _pages(operand, inner), _met(operand, leaf, inner, caches)
    lost = squeezed and _crowd(operand, inner, caches[0]) > (caches[0].ways or 0)
    return share * pages * PAGE_CYCLES, late * rows * RUN_CYCLES, lost


def _finding(
    operand: Operand, leaf: Leaf, outer: Sequence[str], hw: HwConfig, best: bool
) -> tuple[float, float]:
    """Cycles that an execution of a leaf takes to find the places of an operand, on average, pages and rows:
    what the `outer` loops next to it do not move is met once for all of them, if it stays in the core's own
    caches."""
    pages, rows, lost = _found(operand, leaf, hw, best)
    own = _own(hw.caches)
    if lost:
        return pages, rows
    capacity = usable_bytes(own) if own is not None else None
    if own is None or (capacity is not None and _room(operand, _inner(leaf), own) > capacity):
        return pages, rows
    still = takewhile(lambda name: name not in operand.indexes, reversed(outer))
    return pages, rows / prod(leaf.ranges[name] for name in still)


def _unhidden(operand: Operand, leaf: Leaf, inner: Mapping[str, int], hw: HwConfig, best: bool) -> float:
    """The share of what the places of an operand cost for which work waits. Its lines are on their way ahead
    of their use where the loop over what is summed up comes to others at each step, uses each of them often,
    and is long."""
    line, size = hw.line_bytes, operand.dtype.bytes
    unit = hw.compute_unit
    streamed = [name for name, count in inner.items() if name in leaf.reductions and count > 1]
    if unit is None or not streamed or not operand.direction.reads or operand.direction.writes:
        return 1.0
    held = {name: count for name, count in inner.items() if name not in leaf.reductions}
    lines = box_bytes(operand, {**dict.fromkeys(leaf.ranges, 1), **held}, line) / line
    vectors = prod(held.values()) * size / unit.vector_bytes
    apart = abs(operand.stride(streamed[-1])) * size
    gone_through = inner[streamed[-1]] * lines * line
    if apart < line or vectors < USES_OF_LINE * lines:
        return 1.0
    if unit.streams is not None and apart > PAGE_BYTES // 2 and lines * line < 2 * unit.vector_bytes:
        return NARROW
    if gone_through < LONG_LOOP:
        return min(1.0, UNHIDDEN * LONG_LOOP / gone_through)
    far = next(reversed(hw.caches), None)
    if not best or far is None or not far.bytes or not far.bytes_per_cycle:
        return UNHIDDEN
    stays = sum(box_bytes(o, leaf.ranges, line) for o in leaf.operands) <= STAYS * far.bytes
    in_time = IN_TIME * lines * line / far.bytes_per_cycle <= vectors / unit.fma_per_cycle
    return UNHIDDEN * LONG_LOOP / gone_through if stays and in_time else UNHIDDEN


def _squeezed(operand: Operand, leaf: Leaf, inner: Mapping[str, int], hw: HwConfig) -> bool:
    """Whether the nearest cache has less room for the rows of an operand than what is asked for ahead takes,
    and a step of the loop over them is over before that cache answers which keeps them."""
    unit = hw.compute_unit
    streamed = [name for name, count in inner.items() if name in leaf.reductions and count > 1]
    if unit is None or not streamed or len(hw.caches) < 2:
        return False
    near, *others = hw.caches
    behind = next((m for m in others if not m.ways or _crowd(operand, inner, m) <= m.ways), None)
    size, line = operand.dtype.bytes, near.line_bytes
    held = {name: count for name, count in inner.items() if name not in leaf.reductions}
    step_cycles = prod(held.values()) * size / unit.vector_bytes / unit.fma_per_cycle
    if step_cycles >= answer_cycles(behind):
        return False
    lines = int(box_bytes(operand, {**dict.fromkeys(leaf.ranges, 1), **held}, line)) // line
    step = abs(operand.stride(streamed[-1])) * size
    return steps_ahead(lines, (step,), near) < steps_ahead(lines, (), near)


def _met(operand: Operand, leaf: Leaf, inner: dict[str, int], caches: Sequence[Memory]) -> int:
    """How often one execution of a leaf goes on in another place of an operand, lines of memory away. What
    it reduces over runs outside; each row of the rest is followed on its own. A row that the core's own
    caches have kept from an earlier step, as where a window moves on, is not met again."""
    line = caches[0].line_bytes if caches else 1
    element = max(1, line // operand.dtype.bytes)
    sums = [n for n in inner if n in leaf.reductions]
    rest = {n: size for n, size in inner.items() if n not in leaf.reductions}
    rows, run = _rows([(abs(operand.stride(n)), size) for n, size in rest.items()], element)
    met = rows * jumps(operand, sums, inner, run)
    own = _own(caches)
    capacity = usable_bytes(own) if own is not None else None
    steps = [(abs(operand.stride(n)), inner[n]) for n in reversed(sums)]
    walked = list(takewhile(lambda step: step[0] <= run, steps))
    piece = max(element, _rows(walked, run)[1] - element + 1)  # a line, or what is gone through in order
    for at in range(len(sums)):
        kept = {**rest, **{n: inner[n] for n in sums[at:]}}
        if own is not None and capacity is not None and _room(operand, kept, own) <= capacity:
            apart, reach = _rows(_steps(operand, kept), element)
            pieces = apart * -(-(reach - element + 1) // piece)
            return min(met, pieces * jumps(operand, sums[:at], inner, run))
    return met


def _own(caches: Sequence[Memory]) -> Memory | None:
    """The last cache that a core has to itself, or the only one."""
    return own_cache(caches) or next(iter(caches), None)


def _steps(operand: Operand, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    """How far apart the elements of a box of an operand lie along each dimension, and how many there are."""
    return [(abs(s), n) for s, n in zip(operand.strides, box(operand, sizes), strict=True)]


def _rows(steps: Sequence[tuple[int, int]], run: int) -> tuple[int, int]:
    """Rows that do not follow one another, of steps so far apart and so many, and how far one reaches;
    `run` is what lies beside an element at least."""
    rows = 1
    for stride, size in sorted(steps):
        if stride <= run:
            run += stride * (size - 1)
        else:
            rows *= size
    return rows, run


def _staying(leaf: Leaf, level: Memory) -> list[dict[str, int] | None]:
    """For each operand, the ranges of the most of the innermost loops over which all that it touches
    stays in a cache; None where not even that of one execution does. Small operands come first."""
    capacity, ranges = usable_bytes(level), tuple(leaf.ranges.items())
    found: list[dict[str, int] | None] = [None] * len(leaf.operands)
    left = list(range(len(leaf.operands)))
    rooms = [_rooms(operand, leaf, level) for operand in leaf.operands]
    for at in range(len(rooms[0]) - 1 if rooms else -1, -1, -1):
        taken, kept = 0.0, []
        for number in sorted(left, key=lambda number: rooms[number][at]):
            taken += rooms[number][at]
            if capacity is None or taken <= capacity:
                kept.append(number)
                found[number] = dict(ranges[at:])
        left = kept
    return found


@of_operand
def _rooms(operand: Operand, leaf: Leaf, level: Memory) -> tuple[float, ...]:
    """Bytes of a cache that an operand takes in all of the loops around a leaf's own, in all but the first,
    and so on, down to one execution."""
    ranges = tuple(leaf.ranges.items())
    rooms: list[float] = []
    for at in range(len(ranges) - len(leaf.block.ranges), -1, -1):
        same = rooms and ranges[at][0] not in operand.indexes
        rooms.append(rooms[-1] if same else _room(operand, dict(ranges[at:]), level))
    return tuple(reversed(rooms))


def _room(operand: Operand, sizes: Mapping[str, int], level: Memory) -> float:
    """Bytes of a cache that an operand takes; more than it has where its rows crowd into few sets, and these
    have no place for them all."""
    size, capacity = box_bytes(operand, sizes, level.line_bytes), usable_bytes(level)
    if level.bytes is None or not level.ways or capacity is None:
        return size
    crowded = _crowd(operand, sizes, level) * (level.bytes / level.ways)
    return max(size, crowded) if crowded > capacity else size


def _crowd(operand: Operand, sizes: Mapping[str, int], level: Memory) -> int:
    """How many rows of an operand, at most, lie on the same sets of a cache."""
    return int(crowd(operand, sizes, level))


def _pages(operand: Operand, inner: dict[str, int]) -> int:
    """Pages that one execution of a leaf looks up behind the nearest translation buffer."""
    page = PAGE_BYTES // operand.dtype.bytes
    rows, run = _rows(_steps(operand, inner), page)
    pages = rows * -(-(run - page + 1) // page)
    return pages if pages > PAGES else 0
