"""What a leaf takes in all tiles whose results stay in registers: cycles, by what is busy, and registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod

import numpy as np

from hwconfigs.model import Unit
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, box, box_elements, touched_elements
from stripe.analysis.cost_blocks import Blocks
from stripe.analysis.cost_problem import TILE_CYCLES, Costs, Problem, answer_cycles, combine
from stripe.analysis.cost_registers_nest import RegisterNest
from stripe.analysis.cost_rows import fetched_bytes, runs
from stripe.analysis.cost_sets import crowd, usable_bytes
from stripe.analysis.lanes import (
    MOST_IN_TURN,
    SUMS_IN_TURN,
    Lane,
    access_instructions,
    in_square,
    packing,
)
from stripe.analysis.windows import MOST, counts, lines_read, pays, room, sharing, together
from stripe.analysis.work import vector_operations
from stripe.ir import Direction

LATENCY_CYCLES = 4.0  # until the result of an addition or multiply-add can be added to
GOES_ON = 2  # times less is waited for sums of one row: a core goes on with what stands behind them
FEW_ROWS = 64  # of results that share an input: too few for a copy of it to pay
APART = ("loops", "copies", "squares", "lines")  # what nothing is done beside
SQUARES_APART = 0.5  # of the time to turn finished sums in squares: no arithmetic is left beside it
MOVED = 2  # times that a copy passes a cache: it is read and written, and what goes back does so meanwhile
LINE_CYCLES = 8.0  # that a line of a result takes longer which is fetched before a part of it is written
TESTED = 0.01  # of a tile's time, for each constraint on an index whose points are written out


@dataclass(frozen=True, slots=True)
class Spent:
    """What a leaf takes for all tiles: cycles, how long each part of the unit is busy, registers (of vectors,
    and such that hold rows), and of each tile the bytes that it fetches again for conflicts, with their runs,
    and those that others have read before it, but that conflicts have pushed out since."""

    cycles: Costs
    busy: Mapping[str, Costs]
    registers: Counts
    blocks: Counts
    missed: Costs
    returns: Costs
    pushed: Costs


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile of a leaf. Vectors of `width` lanes go along the index `name` (empty: none), each of which takes
    a `share` of the time of a full one. Of what does not stream, `inside` has the points along each index,
    `rows` those along each but the lanes (or the blocks of them, where registers hold rows), and there are so
    many `vectors` along the lanes. It takes `steps` of what `streams`, if anything does, while the results in
    `held` stay."""

    leaf: Leaf
    lane: Lane | None
    width: int
    share: float
    name: str
    blocked: Blocks | None
    inside: Sizes
    rows: Sizes
    vectors: Counts
    steps: Counts
    streams: bool
    held: Sequence[Operand]


@dataclass(frozen=True, slots=True)
class _Accessed:
    """What the operands of a tile take: instructions that load and store, those of the latter for results
    that are turned in squares, registers at once and those that have a name for all of the leaf, bytes that
    are fetched again, with their runs, and those that other tiles have left nothing of."""

    loads: Costs
    stores: Costs
    squares: Costs
    registers: Counts
    named: Counts
    missed: Costs
    returns: Costs
    pushed: Costs


def spent_in_leaf(
    nest: RegisterNest, leaf: Leaf, sizes: Sizes, tiles: Costs | Counts, upto: Sizes | None
) -> Spent:
    """What a leaf takes in so many tiles of these `sizes`; with `upto`, no tiles up to those take less."""
    unit = nest.problem.unit
    assert unit is not None
    tile = _tile(nest, leaf, sizes, upto)
    blocked, operations = tile.blocked, vector_operations(leaf)
    accessed = _accessed(nest, tile, sizes)
    loads = accessed.loads
    if tile.held and tile.lane is not None:
        loads = _in_windows(nest, tile, tile.lane, unit, loads, upto is not None)
    arithmetic = prod(tile.rows.values(), start=np.asarray(1, np.int64)) * tile.vectors * tile.steps * tiles
    if upto is not None and blocked is None:  # there is no less work than without padding
        arithmetic = np.maximum(arithmetic, _least_steps(leaf, tile.name, tile.width, nest.row(leaf)))
    # The lanes of all rows are summed side by side, while what needs the sums waits.
    summed = tile.name in nest.streamed(leaf)
    ends = 2 * log2(max(tile.width, 2)) * LATENCY_CYCLES if summed else 0.0
    each_cycles = max(1, operations) / unit.fma_per_cycle if blocked is None else blocked.cycles
    latency = np.asarray(LATENCY_CYCLES if blocked is None else blocked.latency)
    if summed and len(leaf.block.statements) <= MOST_IN_TURN and not nest.waits_long:
        alone = prod(tile.rows.values(), start=np.asarray(1, np.int64)) == 1
        latency = np.where(alone, latency / (GOES_ON * SUMS_IN_TURN), latency)
    busy = {
        "arithmetic": np.asarray(arithmetic * each_cycles * tile.share, float),
        "loads": tiles * (loads * tile.share / unit.loads_per_cycle),
        "stores": tiles * (accessed.stores * tile.share / unit.stores_per_cycle),
        "latency": np.asarray(tiles * (tile.steps * latency + ends if tile.held else 0.0)),
    }
    if upto is None:
        busy["crowded"] = np.asarray(tiles * _crowded(nest.problem, tile), float)
    spent = combine(*busy.values())
    begun = tile.steps > 1 if nest.alone else True  # a single step is written out
    busy["loops"] = np.asarray(TILE_CYCLES * tiles * begun, float)
    if upto is None and nest.alone:
        busy["copies"] = _copied(nest, unit, tile)
        if tile.held:
            busy["squares"] = SQUARES_APART * tiles * accessed.squares / unit.stores_per_cycle
        busy["lines"] = LINE_CYCLES * _fetched_to_write(nest, unit, leaf, sizes)
    # Tiles that such a constraint cuts get code of their own; a loop it only bounds.
    tested = sum(
        (np.asarray(sizes[n]) > 1).astype(float)
        for expr in leaf.constraints
        for n in expr.names
        if n in tile.rows and n in sizes
    )
    spent = spent * (1 + TESTED * tested)
    apart = sum((busy.get(part, 0.0) for part in APART), start=np.asarray(0.0))
    between = 1 if blocked is None and (operations > 1 or not tile.streams) else 0
    registers = np.maximum(accessed.registers + between, accessed.named)
    blocks = registers if blocked is not None else np.asarray(0, np.int64)
    return Spent(
        spent + apart, busy, registers - blocks, blocks, accessed.missed, accessed.returns, accessed.pushed
    )


def _tile(nest: RegisterNest, leaf: Leaf, sizes: Sizes, upto: Sizes | None) -> _Tile:
    lane, streamed, blocked = nest.lane(leaf), nest.streamed(leaf), nest.blocks(leaf)
    width, name = (lane.width, lane.index) if lane is not None else (1, "")
    most = {} if blocked is None else blocked.most
    length = {n: -(-np.asarray(sizes.get(n, leaf.ranges[n]), np.int64) // most.get(n, 1)) for n in streamed}
    steps = prod(
        (-(-size // width) if n == name else size for n, size in length.items()),
        start=np.asarray(1, np.int64),
    )
    streams = name in streamed or any(leaf.ranges[n] > 1 for n in streamed)
    inside = {n: np.asarray(sizes[n], np.int64) for n in leaf.ranges if n not in streamed}
    row = nest.row(leaf)
    if row:
        whole = np.asarray((upto or sizes)[name], np.int64) == leaf.ranges[name]
        inside[name] = np.where(whole, inside[name] * inside[row], inside[name])
        inside[row] = np.where(whole, 1, inside[row])
    vectors = -(-inside.get(name, np.asarray(1, np.int64)) // width)
    rows = {n: -(-size // most.get(n, 1)) for n, size in inside.items() if n != name}
    held = nest.held(leaf) if streams else []
    share = 1.0 if lane is None or row or blocked is not None else lane.share
    return _Tile(leaf, lane, width, share, name, blocked, inside, rows, vectors, steps, streams, held)


def _accessed(nest: RegisterNest, tile: _Tile, sizes: Sizes) -> _Accessed:
    leaf, width, name, rows = tile.leaf, tile.width, tile.name, tile.rows
    streamed = set(nest.streamed(leaf))
    order = nest.inner_order(leaf)
    visited = [n for n in order if n not in streamed]
    steps = {n: np.asarray(sizes.get(n, leaf.ranges[n]), np.int64) for n in order if n in streamed}
    # An instruction on registers that hold rows takes several steps, and whole groups, in one go.
    most = {} if tile.blocked is None else tile.blocked.most
    each_step = {n: np.minimum(most.get(n, steps[n]), steps[n]) for n in steps if tile.blocked is not None}
    stores_per_cycle = nest.problem.unit.stores_per_cycle if nest.problem.unit is not None else 1.0
    loads = stores = squares = missed = returns = pushed = np.asarray(0.0)
    registers = results = read = np.asarray(0, np.int64)
    kept: set[str] = set()
    for operand in leaf.operands:
        count = touched_elements(operand, rows)
        along = bool(name) and name in operand.indexes
        pieces = count * tile.vectors if along else count
        often = tile.steps if operand.indexes & streamed else 1
        if nest.in_registers(operand):
            if operand.name not in kept:
                vectors = _whole_vectors(nest.problem, operand, name, width, sizes)
                if _read_last(nest, leaf, operand):
                    read = read + vectors
                else:
                    registers = registers + vectors
            kept.add(operand.name)
            continue
        # A load port is as long busy with a splat as with a vector.
        each = max(access_instructions(operand, name, width), 1.0)
        copied = each > 1.0 and nest.alone and packing(leaf, operand, name, width) is not None
        if copied:
            each = 1.0
        # A register that holds rows takes a port as long as its lines do.
        issued = pieces * ((each if tile.blocked is None else tile.blocked.lines) * often)
        if operand.direction.writes:
            if operand in tile.held or not leaf.reductions:
                turned = pieces * _in_squares(operand, name, width, rows)
                squares = squares + np.where(turned < issued, turned, 0.0)
                issued = np.minimum(issued, turned)
            stores = stores + np.maximum(issued, pieces * (often / width))
            if operand in tile.held:
                results = results + pieces
                # Half of the lanes is moved and added to the other half, again and again: a step is a cycle.
                stores = stores + (0.0 if along else count * log2(max(width, 2)) * stores_per_cycle)
            continue
        loads = loads + issued
        if not copied:
            visits, size = _conflicts(nest.problem, operand, {**tile.inside, **each_step}, steps)
            returns, missed = returns + visits, missed + size
            pushed = pushed + _pushed_out(nest.problem, operand, {**tile.inside, **steps})
        if tile.streams:
            registers = registers + _shared(operand, visited, {**rows, name: tile.vectors})
            registers = registers + (_put_together(each) if each > 1.0 else 0)
    # What a result is taken of leaves its place to it, and to what else is loaded; both have names.
    return _Accessed(
        loads, stores, squares, registers + np.maximum(read, results), read + results, missed, returns, pushed
    )  # fmt: skip


def _read_last(nest: RegisterNest, leaf: Leaf, operand: Operand) -> bool:
    """Whether each element of a buffer in registers is read once by a leaf, and by none behind it."""
    behind = nest.problem.leaves[nest.problem.leaves.index(leaf) + 1 :]
    several = {name for name, size in leaf.ranges.items() if size > 1}
    return (
        operand.direction is Direction.IN
        and several <= operand.indexes
        and not any(o.name == operand.name for other in behind for o in other.operands)
    )


def _in_windows(nest: RegisterNest, tile: _Tile, lane: Lane, unit: Unit, loads: Costs, least: bool) -> Costs:
    """The loads of a tile, fewer if its rows share what a few steps of a sum load and these are written
    out (see stripe.passes.unroll); with `least`, no fewer than there can be."""
    leaf, rows, vectors = tile.leaf, tile.rows, tile.vectors
    inputs = [o.access for o in leaf.operands if o.direction is Direction.IN]
    others = [name for name in rows if name != lane.index]
    tested = {name for expr in leaf.constraints for name in expr.names}
    along = [n for n in nest.streamed(leaf) if sharing(inputs, n, others, lane.index)]
    if lane.index in tested:  # each step has lanes of its own, and code of its own
        along = [n for n in along if n not in tested]
    if not along or lane.index in nest.streamed(leaf):
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
        for count in counts(leaf.ranges[name], name in tested):
            each = read(name, count) / count
            spent = together(each, arithmetic)
            better = room(results, count, unit.registers) & (spent < least_spent)
            best, least_spent = np.where(better, each, best), np.where(better, spent, least_spent)
    shared = pays(alone, arithmetic, least_spent)
    return np.asarray(np.where(shared, loads * (best / alone), loads), float)


def _copied(nest: RegisterNest, unit: Unit, tile: _Tile) -> Costs:
    """Cycles to copy the inputs that are read in vectors of copies, but for constants: to turn them, and, if
    no tile around brings them in anyway, to read and write them by way of each cache that has no place for a
    copy beside all else. One that a tile reads in few rows side by side in the original is made in squares as
    narrow as these."""
    leaf, lane, width, inside = tile.leaf, tile.name, tile.width, tile.inside
    problem, total = nest.problem, np.asarray(0.0)
    turning = np.asarray([in_square(width, side) for side in range(1, width + 1)])
    caches, near = [] if problem.in_tile else problem.farther()[1:], problem.nearest_cache
    # What a cache behind the nearest one has no place for comes by way of it, copied or not.
    levels = [
        (room, rate)
        for memory, rate in caches
        if (room := usable_bytes(memory)) is not None and (memory == near or nest.touched <= room)
    ]
    for operand in leaf.operands:
        if packing(leaf, operand, lane, width) is None or operand.name in problem.constant:
            continue
        side = np.asarray(width, np.int64)
        for row in inside:
            if row != lane and abs(operand.stride(row)) == 1:
                size = np.minimum(np.asarray(inside[row], np.int64), width)
                side = np.where(size > 1, size, side)
        elements = box_elements(operand, leaf.ranges)
        total = total + elements / width * (turning[side - 1] + 1.0) / unit.loads_per_cycle
        copied = elements * operand.dtype.bytes
        total = total + sum(MOVED * copied / rate for room, rate in levels if nest.touched + copied > room)
    return total


def _fetched_to_write(nest: RegisterNest, unit: Unit, leaf: Leaf, sizes: Sizes) -> Costs:
    """Lines of results that must be there before a tile writes its part of them: those of tiles whose
    rows are no whole lines, of results that could go past the caches."""
    past = nest.problem.hw.past_caches(unit)
    total: Costs = np.asarray(0.0)
    if past is None or nest.touched <= past.program:
        return total
    for operand in leaf.operands:
        whole = box(operand, leaf.ranges)
        span = sum((size - 1) * stride for size, stride in zip(whole, operand.strides, strict=True))
        if not operand.direction.writes or operand.local or span * operand.dtype.bytes <= past.result:
            continue
        line = max(1, nest.problem.memory_line // operand.dtype.bytes)
        _, run = runs(operand, sizes)
        apart = [np.where(run > stride, 0, stride % line) for stride in operand.strides]
        parts = (run % line > 0) | np.any(np.stack(np.broadcast_arrays(*apart)) > 0, axis=0)
        total = total + np.where(parts, prod(whole) / line, 0.0)
    return total


def _crowded(problem: Problem, tile: _Tile) -> Costs:
    """Cycles in which stores of a tile wait for lines of results: rows crowd into fewer places of the nearest
    cache than they need, so that lines leave it before the next tile writes the rest of them, and those
    behind them that were fetched along before it begins with them."""
    cache, total = problem.nearest_cache, np.asarray(0.0)
    if cache is None or not cache.ways:
        return total
    for operand in tile.leaf.operands:
        if not operand.direction.writes or operand.local:
            continue
        rows, run = runs(operand, tile.inside)
        lines = rows * -(-run * operand.dtype.bytes // cache.line_bytes)
        lost = np.maximum(0.0, 1 - cache.ways / np.asarray(crowd(operand, tile.inside, cache)))
        if tile.blocked is not None:  # a register goes out in one go: nothing is left to write of its lines
            lost = np.where(run * operand.dtype.bytes % cache.line_bytes == 0, 0.0, lost)
        total = total + lines * lost
    return total * answer_cycles(problem.hw.memory(cache.backing or ""))


def _whole_vectors(problem: Problem, operand: Operand, lane: str, width: int, sizes: Sizes) -> Counts:
    """Vectors that hold what a tile has of a buffer of one element for each point."""
    inside = {n: sizes[n] for n in problem.ranges}
    along = -(-np.asarray(inside.pop(lane, 1), np.int64) // width) if lane in operand.indexes else 1
    return touched_elements(operand, inside) * along


def _conflicts(problem: Problem, operand: Operand, rows: Sizes, steps: Sizes) -> tuple[Costs, Costs]:
    """How many runs of an operand a tile fetches again, since what it reads crowds into fewer places of
    the nearest cache than it needs, and their bytes. `rows`: of one step, with its lanes, and with so many
    points as it takes of what streams, if these are several; `steps`: what streams, outermost first. That
    stays which has place together with all that the innermost of these loops read between; where not even
    the rows of one step have, nothing does."""
    cache = problem.nearest_cache
    if cache is None or cache.bytes is None or not cache.ways:
        return np.asarray(0.0), np.asarray(0.0)
    loops = list(steps)

    def fetched(window: Sizes, around: Sequence[str]) -> tuple[Costs, Costs]:
        count, run = runs(operand, window)
        often = np.asarray(prod((-(-steps[n] // rows.get(n, 1)) for n in around), start=count), float)
        lines = -(-run * operand.dtype.bytes // cache.line_bytes)
        return often, np.asarray(often * lines * cache.line_bytes)

    once = fetched({**rows, **steps}, ())
    found = fetched(rows, loops)
    for inner in reversed(range(len(loops))):
        window = {**rows, **{name: steps[name] for name in loops[inner:]}}
        crowded = np.asarray(crowd(operand, window, cache) >= cache.ways)
        if crowded.all():
            break
        staying = fetched(window, loops[:inner])
        found = np.where(crowded, found[0], staying[0]), np.where(crowded, found[1], staying[1])
    again = np.maximum(found[1] - once[1], 0.0)
    return found[0] * (again / found[1]), again


def _pushed_out(problem: Problem, operand: Operand, sizes: Sizes) -> Costs:
    """The bytes of an operand that a tile of these `sizes` reads after others, but of which the nearest cache
    keeps nothing from one to the next: its rows crowd into fewer places than they need. Where many rows of
    results share it, a copy without gaps pays."""
    cache = problem.nearest_cache
    often = prod(size for name, size in problem.ranges.items() if name not in operand.indexes)
    if cache is None or not cache.ways or not 1 < often <= FEW_ROWS or operand.name in problem.constant:
        return np.asarray(0.0)
    crowded = np.asarray(crowd(operand, sizes, cache) >= cache.ways)
    return np.where(crowded, fetched_bytes(operand, sizes, cache.line_bytes), 0.0)


def _in_squares(operand: Operand, lane: str, width: int, rows: Sizes) -> Costs:
    """Instructions to store a vector of a result whose elements lie side by side along a row index, not
    along the lanes: both are turned in squares."""
    beside = [np.asarray(size, np.int64) for name, size in rows.items() if operand.stride(name) == 1]
    if abs(operand.stride(lane)) <= 1 or not beside:
        return np.asarray(np.inf)
    side = np.minimum(beside[0], width)
    found: Costs = np.where(side > 1, width / side + np.ceil(np.log2(side)), np.inf)
    return found


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


def _put_together(parts: float) -> int:
    """Registers besides its own in which a vector comes together: of parts that are joined two by two, one
    for each level; and one that says which elements are taken."""
    return ceil(log2(parts)) + 1


def _least_steps(leaf: Leaf, lane: str, width: int, row: str) -> int:
    """Vector steps of a leaf if no tile had a point too many. `row`: an index along which vectors go on."""
    along = leaf.ranges.get(lane, 1) * leaf.ranges.get(row, 1)
    return prod(size for n, size in leaf.ranges.items() if n not in (lane, row)) * -(-along // width)
