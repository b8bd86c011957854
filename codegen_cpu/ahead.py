"""What a loop will load is asked for some steps ahead, so that it is near when the loop comes to it.

A tile in registers goes through a panel line after line; the panel lies in a cache that is some way off,
or behind it. A core fetches ahead by itself, but not across pages, and not before it has seen a few lines of
a panel. Asking for a line is no load: an address beyond the end of an array does no harm.

A panel that one tile after another reads is followed by one that may lie beyond a core's own caches. While
the first is read, each tile asks for a part of the second, so that memory is busy all the time, and does
not rest until the next panel begins. So it is with rows of a matrix that come past side by side, once, from
beyond all caches: while some pieces of rows are read, those below are asked for; and with rows of which each
tile takes a few whole ones, element by element across them: of short ones that come past once, and of those
that come again and again from far beyond a core's own caches, as in a large product, if these have room.

Sums of what comes past once, line after line, from beyond all caches ask for it where each load is a whole
line: a core that sees one access to each starts late with what it fetches by itself.

A square that is turned in registers asks for its rows in a way of its own: see `ahead_squares`. What the next
tile of a cache reads, or the next copy, is asked for while the one before is used: `ahead_tiles` and
`ahead_copies`. What a tile will write is asked for in front of its sum: `ahead_results`.

Else only inputs are asked for that come to other lines at each step. The nearest cache is asked only where
many operations use each line: a loop that memory binds has no room for more that goes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from codegen_cpu.ahead_squares import SHORT, reach, squares
from codegen_cpu.ahead_tiles import NextTile, next_tile
from codegen_cpu.layout import Buffer, View
from codegen_cpu.ll import Value
from codegen_cpu.plan import Plan
from codegen_cpu.scope import Scope, Window, step_along
from codegen_cpu.tools import Point, Tools
from stripe.affine import Affine
from stripe.analysis.cost_ahead import steps_ahead
from stripe.analysis.cost_sets import PAGE_BYTES, crowds
from stripe.ir import Block, Direction, Load, Refinement, Store

_ROWS_AHEAD = 4096  # bytes: what is copied of rows while a line comes from beyond the caches
_SUMS_AHEAD = 2048  # bytes: the same for lines that are only summed up, one after the other
_DEEP_AHEAD = 12288  # bytes: the same of a core that fetches far ahead along a row, into the nearest cache
_USES = 4  # operations for each line, at least
_MOST = 4  # lines of what follows a panel at each step: more come no faster
_AGAIN = 8  # less than this part of the cache that all share comes near enough by itself each time
_COMING = 32  # rows that are used, on their way, or asked for
_NEAREST, _SECOND = 3, 2  # the cache that a line is brought to, as LLVM counts


class Ahead:
    """The lines that the innermost loop of a leaf asks for."""

    def __init__(
        self,
        tools: Tools,
        block: Block,
        plan: Plan,
        views: Mapping[str, View],
        scope: Scope,
    ) -> None:
        self._tools, self._plan = tools, plan
        streams = _streams(block, plan, views, tools.target.line_bytes)
        tiles = _next_tiles(tools, block, plan, {n: views[n] for n in streams})
        self._tiles = {n: tile for n, tile in tiles.items() if n not in scope.before}
        single = {n: found for n, found in streams.items() if n not in tiles}
        used = {n: found for n, found in single.items() if _copies(plan, block.ranges) >= _USES * found[1]}
        self._steps = _distances(
            tools,
            block,
            {n: found for n, found in used.items() if not _stays(tools, block, plan, n, views)},
            views,
            block.ranges[plan.loops[-1]] if used else 0,
        )
        self._panels = {
            name: panel
            for name in single
            if (panel := _panel(tools, block, plan, name, views[name], name in used)) is not None
        }
        sizes = {n: _bytes(block.refinement(n), views[n], block.ranges) for n in streams}
        room = tools.target.own_caches - sum(size * (1 + (n in self._panels)) for n, size in sizes.items())
        self._panels |= {
            ref.name: piece
            for ref in block.refinements
            if ref.name not in streams
            and (piece := _next_piece(tools, ref, plan, views[ref.name], block, room)) is not None
        }
        self._rows = _rows_below(tools, block, plan, views)
        self._next = _next_rows(tools, block, plan, {n: v for n, v in views.items() if n in scope.read})
        once = {n: v for n, v in views.items() if n not in scope.read | scope.again}
        self._along = _along_lanes(tools, block, plan, once)
        self._squares = squares(tools, block, plan, views)
        self._asked: set[tuple[str, Value, Affine]] = set()

    def at(self, point: Point, windows: Mapping[str, Window]) -> None:
        """At a point of the loop: ask for what it loads some steps later, once for each line."""
        f, ask, line_bytes = self._tools.f, self._tools.accesses.ask, self._tools.target.line_bytes
        distances = [(n, by, _NEAREST) for n, by in self._steps.items()]
        distances += [(n, by, _SECOND) for n, by in self._rows.items()]
        for name, distance, cache in (*distances, *self._along, *self._next):
            offset = windows[name].offset(point.indexes) + distance
            for row in _woven(self._plan, name):
                self._ask_once(windows[name].buffer, offset + row, cache)
        for name, rows in self._squares.items():
            if point.number and rows.count > 1:
                continue  # the first point of a square asks for all of them
            buffer, offset = windows[name].buffer, windows[name].offset(point.indexes)
            for row in (point.lanes.on or range(max(point.lanes.width, 1)))[: rows.count]:
                first = offset + row * rows.apart
                if rows.distance:
                    self._ask_once(buffer, first + rows.distance, _SECOND)
                if rows.end:
                    self._tools.accesses.ask_to_write(buffer, first + rows.end)
        for name, tile in self._tiles.items():
            buffer, step = windows[name].buffer, tile.step(point.indexes)
            if (f.label, buffer.pointer, step) not in self._asked:
                self._asked.add((f.label, buffer.pointer, step))
                for offset in tile.wanted(self._tools, step, buffer.dtype.bytes):
                    ask(buffer, offset, _SECOND)
        for name, panel in self._panels.items():
            buffer = windows[name].buffer
            offset = panel.at(self._plan.loops, point.indexes)
            if (f.label, buffer.pointer, offset) not in self._asked:
                self._asked.add((f.label, buffer.pointer, offset))
                for row in _woven(self._plan, name):
                    for line in range(panel.lines):
                        ask(buffer, offset + row + line * line_bytes // buffer.dtype.bytes, _SECOND)

    def _ask_once(self, buffer: Buffer, offset: Affine, cache: int) -> None:
        """Ask for a line, unless one of the copies of this step has."""
        lines = offset.const * buffer.dtype.bytes // self._tools.target.line_bytes
        key = self._tools.f.label, buffer.pointer, offset - offset.const + lines
        if key not in self._asked:
            self._asked.add(key)
            self._tools.accesses.ask(buffer, offset, cache)


@dataclass(frozen=True, slots=True)
class _Panel:
    """What follows a panel that several executions of a leaf go through: each of them asks for a part.

    `start` is where the part begins, `strides` how far each loop of the leaf moves in it; at each step
    so many `lines` are asked for."""

    start: Affine
    strides: Mapping[str, int]
    lines: int

    def at(self, loops: Sequence[str], indexes: Mapping[str, Affine]) -> Affine:
        return sum((indexes[name] * self.strides[name] for name in loops), start=self.start)


def _panel(tools: Tools, block: Block, plan: Plan, name: str, view: View, often: bool) -> _Panel | None:
    """Of an operand that the leaf finds elsewhere as a loop around goes on to its next step: each execution
    of the leaf meanwhile asks for a part of every run of what it will find there. `often`: many operations
    use each line, as they must where panels are read again."""
    indexing = tools.indexing
    run, apart = _runs(block.refinement(name), plan, view.strides, block.ranges)
    size = run * prod(block.ranges[loop] for loop in apart) * len(_woven(plan, name))
    onward, again = _onward(tools, view, size, bool(apart))
    if not run or not onward or (again and not often):
        return None
    spans = [indexing.ranges[loop][1] + 1 for loop in again]
    within = [loop for loop in plan.loops if loop not in apart]
    turns, steps = prod(spans), prod(block.ranges[loop] for loop in within)
    each = -(-run // (turns * steps))
    strides, inside = dict(apart), each
    for loop in reversed(within):
        strides[loop] = inside
        inside *= block.ranges[loop]
    start = view.offset + onward
    for loop, span in zip(reversed(again), reversed(spans), strict=True):
        start = start + Affine.index(loop) * inside
        inside *= span
    lines = -(-each * view.buffer.dtype.bytes // tools.target.line_bytes)
    return _Panel(start, strides, min(_MOST, lines) if turns > 1 else lines)


def _next_tiles(tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]) -> dict[str, NextTile]:
    """Of the operands in `views`: the tiles of a cache behind those that they are parts of. A loop along the
    lanes makes no steps that could be counted one by one."""
    found = dict[str, NextTile]()
    for name, view in views.items() if plan.lane not in plan.loops else ():
        run, rows = _runs(block.refinement(name), plan, view.strides, block.ranges)
        if run and len(_woven(plan, name)) == 1:
            tile = next_tile(tools, block, name, view, run, rows, plan.loops)
            if tile is not None:
                found[name] = tile
    return found


def _next_piece(
    tools: Tools, ref: Refinement, plan: Plan, view: View, block: Block, room: int
) -> _Panel | None:
    """Of an input that comes past in pieces that follow each other, once from beyond all caches, or again and
    again from far beyond the core's own: each step of the innermost loop asks for a part of a piece to come.
    The leaf goes through it across its rows, where a core fetches little ahead by itself. What comes again
    has so many bytes of `room` beside what else the leaf goes through."""
    indexing, width, ranges = tools.indexing, view.buffer.dtype.bytes, block.ranges
    line = tools.target.line_bytes
    if ref.direction is not Direction.IN or view.buffer.spare is not None or not indexing.opened:
        return None
    if len(plan.loops) != 1 or plan.loops[-1] == plan.lane or plan.across is not None:
        return None
    moved, size = sorted((step, n) for n in ranges if (step := step_along(ref, view.strides, n))), 1
    for step, name in moved:
        if step != size:
            return None
        size *= ranges[name]
    last, (inner,) = indexing.opened[-1], plan.loops
    once = all(view.offset.coefficient(loop) or not indexing.ranges[loop][1] for loop in indexing.opened)
    near = tools.target.shared_cache // (2 if once else _AGAIN)
    far = reach(tools, block, ref.name, view) > near > 0 and (once or 2 * size * width <= room)
    used = _copies(plan, ranges) * ranges[inner] >= _USES * (size * width // line)
    if view.offset.coefficient(last) != size or not far or not used or size * width < line:
        return None
    each = -(-size // ranges[inner])
    start = view.offset + size * -(-_ROWS_AHEAD // (size * width))
    return _Panel(start, {inner: each}, -(-each * width // line))


def _onward(tools: Tools, view: View, size: int, rows: bool) -> tuple[int, list[str]]:
    """By how many elements a loop around a leaf moves an operand on, of which the leaf takes `size`, and the
    loops in it that come back to the same. That is the innermost loop that moves it; of what lies beyond all
    caches, one further out may be it that has such loops in it. Where there is none, several `rows` stream
    past side by side: then it is the outermost loop, unless the core fetches such rows by itself. Two of its
    steps fit in the core's own caches; nothing is asked for that stays there."""
    indexing, width = tools.indexing, view.buffer.dtype.bytes
    own, shared = tools.target.own_caches // width, tools.target.shared_cache // width
    spans = {loop: indexing.ranges[loop][1] + 1 for loop in indexing.opened}
    steps = {loop: view.offset.coefficient(loop) for loop in spans}
    left = prod(span for loop, span in spans.items() if steps[loop])
    far = sum(abs(steps[loop]) * (span - 1) for loop, span in spans.items()) > shared // 2
    past, again = 0, list[str]()
    for loop, span in reversed(spans.items()):
        if not steps[loop]:
            again.insert(0, loop)
            continue
        size = max(size, abs(steps[loop]))
        if size * left <= own // 2 or 2 * size > own:
            break
        if prod(spans[other] for other in again) > 1:
            return steps[loop], again
        if not far:
            break
        past = steps[loop] if rows and not tools.target.fetches_rows else 0
        size, left = size * span, left // span
    return past, []


def _runs(
    ref: Refinement, plan: Plan, strides: tuple[int, ...], ranges: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """The elements of an operand that lie side by side from where the indexes of a leaf are 0, and the
    loops, with their steps, that lead from one such run to another; none if what is written out does. Runs
    that are woven into one count as the first of them."""
    run, apart = 1, dict[str, int]()
    woven = plan.use.group if plan.use is not None and ref.name in plan.use.woven else ""
    for step, name in sorted((step_along(ref, strides, name), name) for name in ranges if name != woven):
        if step == run and not apart:
            run *= ranges[name]
        elif step:
            apart[name] = step
    return (run, apart) if apart.keys() <= set(plan.loops) else (0, {})


def _rows_below(tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]) -> dict[str, int]:
    """Of a leaf that only copies: the inputs of which it takes short pieces of rows that are far apart, with
    by how many elements those rows lie ahead that are asked for. A core that fetches on behind what it is
    asked for would bring more that is not wanted than what is."""
    if tools.target.fetches_on:
        return {}
    if plan.across is not None or not all(isinstance(s, Load | Store) for s in block.statements):
        return {}
    found: dict[str, int] = {}
    for ref in block.refinements:
        view, size = views[ref.name], ref.dtype.bytes
        if ref.direction is not Direction.IN or view.buffer.spare is not None:
            continue  # what is written may lie elsewhere first, in another shape
        run, apart = _runs(ref, plan, view.strides, block.ranges)
        if not apart:
            continue
        reach = max(step * block.ranges[loop] for loop, step in apart.items()) * size
        row = next(loop for loop in reversed(plan.loops) if loop in apart)
        rows = -(-_ROWS_AHEAD // (run * size))
        if (
            tools.target.line_bytes <= run * size <= _ROWS_AHEAD
            and reach > tools.target.own_caches // 2
            and rows < block.ranges[row]
        ):
            found[ref.name] = rows * apart[row]
    return found


def _along_lanes(
    tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]
) -> list[tuple[str, int, int]]:
    """Of the inputs in `views`, which a leaf only sums up along its lanes, as they lie, from beyond all
    caches: by how many elements those lie ahead that are asked for, and the cache that they come to. Whole
    lines are half as many loads as halves of lines, and a core that has seen few of them fetches too little
    ahead; unless it fetches on."""
    if not plan.loops or plan.loops[-1] != plan.lane or plan.across is not None:
        return []
    if tools.target.fetches_on or tools.target.vector_bytes < tools.target.line_bytes:
        return []
    deep = tools.target.fetches_deep
    ahead, cache = (_DEEP_AHEAD, _NEAREST) if deep else (_SUMS_AHEAD, _SECOND)
    found: list[tuple[str, int, int]] = []
    for ref in block.refinements:
        view = views.get(ref.name)
        if view is None:
            continue
        steps = {name: step_along(ref, view.strides, name) for name in block.ranges}
        if ref.direction.writes and steps[plan.lane]:
            return []
        far = reach(tools, block, ref.name, view) > tools.target.shared_cache > 0
        if ref.direction is Direction.IN and view.buffer.spare is None and steps[plan.lane] == 1 and far:
            found.append((ref.name, ahead // ref.dtype.bytes, cache))
    return found


def _next_rows(
    tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]
) -> list[tuple[str, int, int]]:
    """Of the inputs in `views`, which a leaf goes through along its lanes: by how many elements the loop
    around moves them on, and the cache that holds both then. None of those that stay in a core's caches."""
    loops = tools.indexing.opened
    if not loops or not plan.loops or plan.loops[-1] != plan.lane or plan.across is not None:
        return []
    found = []
    for ref in block.refinements:
        view = views.get(ref.name)
        if view is None or ref.direction is not Direction.IN or view.buffer.spare is not None:
            continue
        steps = {name: step_along(ref, view.strides, name) for name in block.ranges}
        here = _bytes(ref, view, block.ranges)
        moves = {loop: abs(view.offset.coefficient(loop)) for loop in loops}
        reach = sum(moves[loop] * tools.indexing.ranges[loop][1] for loop in loops) * ref.dtype.bytes
        apart = view.offset.coefficient(loops[-1])
        if steps[plan.lane] != 1 or apart < block.ranges[plan.lane] or reach <= tools.target.own_caches:
            continue
        if 2 * here <= tools.target.own_caches:
            found.append((ref.name, apart, _NEAREST if 4 * here <= tools.target.nearest_cache else _SECOND))
    return found


def _streams(block: Block, plan: Plan, views: Mapping[str, View], line: int) -> dict[str, tuple[int, int]]:
    """The inputs that come to other lines at each step of the innermost loop, with the elements that lie
    between two steps, and the lines of one, of `line` bytes."""
    if not plan.loops or plan.loops[-1] == plan.lane or plan.across is not None:
        return {}
    found: dict[str, tuple[int, int]] = {}
    for ref in block.refinements:
        if ref.direction is not Direction.IN or views[ref.name].buffer.spare is not None:
            continue
        step = step_along(ref, views[ref.name].strides, plan.loops[-1])
        lines = _lines(ref, plan, views[ref.name].strides, block.ranges, line)
        if abs(step) * ref.dtype.bytes >= line:
            found[ref.name] = step, lines
    return found


def _distances(
    tools: Tools, block: Block, streams: Mapping[str, tuple[int, int]], views: Mapping[str, View], last: int
) -> dict[str, int]:
    """By how many elements what is asked for lies ahead, in a loop of so many steps. Nothing is asked for in
    a short one: most of it would lie behind its end. What comes from beyond the core's own caches is asked
    for as early as ever: it is nearer then, even if the nearest cache has no place for it."""
    streams = {n: found for n, found in streams.items() if not _in_time(tools, block, n, found[0], views[n])}
    own = [n for n in streams if reach(tools, block, n, views[n]) <= tools.target.own_caches]
    apart = [abs(streams[name][0]) * views[name].buffer.dtype.bytes for name in own]
    steps = steps_ahead(sum(lines for _, lines in streams.values()), apart, tools.target.nearest)
    return {name: step * steps for name, (step, _) in streams.items()} if SHORT * steps <= last else {}


def _in_time(tools: Tools, block: Block, name: str, step: int, view: View) -> bool:
    """Whether lines of an operand come as early without being asked for: to a core that fetches deep, from
    its caches, if the steps of the loop lie pages apart, or crowd into few sets of the nearest cache. There
    asking costs more than it saves (on a Zen 5 up to a sixth of the time, where a tile comes back to the
    rows); other rows are better asked for."""
    target, apart = tools.target, abs(step) * view.buffer.dtype.bytes
    if not target.fetches_deep or target.nearest is None or target.nearest.ways is None:
        return False
    if apart < PAGE_BYTES and not crowds(_COMING, apart, target.nearest):
        return False
    return reach(tools, block, name, view) <= target.shared_cache // 2


def _bytes(ref: Refinement, view: View, ranges: Mapping[str, int]) -> int:
    """What a leaf reads of an operand."""
    moved = (size for name, size in ranges.items() if step_along(ref, view.strides, name))
    return prod(moved) * ref.dtype.bytes


def _stays(tools: Tools, block: Block, plan: Plan, name: str, views: Mapping[str, View]) -> bool:
    """Whether what an operand has for the innermost loop, or for all loops of the leaf, is in the nearest
    cache as a rule: the loop around comes to the same lines again and again, and they fit; in the second
    case beside all that the leaf reads of others in the meantime."""
    ref, view, nearest = block.refinement(name), views[name], tools.target.nearest_cache
    line = tools.target.line_bytes
    *around, inner = plan.loops
    beside = any(abs(step_along(ref, view.strides, loop)) * ref.dtype.bytes < line for loop in around)
    if beside and _held(block, plan, name, view, [inner], line) <= nearest // 2:
        return True
    opened = tools.indexing.opened
    if not opened or view.offset.coefficient(opened[-1]):
        return False
    read = [other.name for other in block.refinements if other.direction is Direction.IN]
    every = {other: _held(block, plan, other, views[other], plan.loops, line) for other in read}
    return every[name] <= nearest // 2 and sum(every.values()) <= nearest


def _held(block: Block, plan: Plan, name: str, view: View, loops: Sequence[str], line: int) -> int:
    """Bytes of a cache that an input takes, in whole lines of so many bytes, for all that these loops of a
    leaf, outermost first, come to."""
    ref, ranges = block.refinement(name), block.ranges
    steps = {loop: abs(step_along(ref, view.strides, loop)) * ref.dtype.bytes for loop in loops}
    size = _lines(ref, plan, view.strides, ranges, line) * line
    return min(size, steps[loops[-1]] or size) * prod(ranges[loop] for loop, step in steps.items() if step)


def _copies(plan: Plan, ranges: Mapping[str, int]) -> int:
    """The points, or vectors of points, that are written out in the loop."""
    width = max(plan.width, 1)
    return prod(-(-ranges[n] // width) if n == plan.lane else ranges[n] for n in plan.unrolled)


def _woven(plan: Plan, name: str) -> Sequence[int]:
    """How far behind its first row those of an input lie that are woven into one, the first included."""
    if plan.use is None or name not in plan.use.woven:
        return (0,)
    return [row * plan.use.woven[name] for row in range(plan.use.made.size)]


def _lines(
    ref: Refinement, plan: Plan, strides: tuple[int, ...], ranges: Mapping[str, int], line: int
) -> int:
    """The lines, of so many bytes, of an input at one step of the loop, if they start at one."""
    lines = len(_woven(plan, ref.name))
    for name in plan.unrolled:
        step = abs(step_along(ref, strides, name)) * ref.dtype.bytes
        lines *= -(-step * ranges[name] // line) if step < line and step else ranges[name] if step else 1
    return lines
