"""What a loop will load is asked for some steps ahead, so that it is near when the loop comes to it.

A tile in registers goes through a panel line after line; the panel lies in a cache that is some way off,
or behind it. A core fetches ahead by itself, but not across pages, and not before it has seen a few lines of
a panel. Asking for a line is no load: an address beyond the end of an array does no harm.

A panel that one tile after another reads is followed by one that may lie beyond a core's own caches. While
the first is read, each tile asks for a part of the second, so that memory is busy all the time, and does
not rest until the next panel begins.

A square that is turned in registers comes from as many rows as it has lanes. Where each lies on a page of its
own, no core sees in time where the next square begins, and few squares are in work together. So each asks for
the rows of a later one, in the second cache: rows a power of two apart have too few places in the nearest.

Else only inputs are asked for that come to other lines at each step, and only where many operations
use each line: a loop that memory binds has no room for more instructions that go there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from codegen_cpu.access import LINE
from codegen_cpu.layout import Buffer, View
from codegen_cpu.ll import I32, PTR, VOID, Value, constant
from codegen_cpu.plan import Plan
from codegen_cpu.scope import Window, step_along
from codegen_cpu.tools import Point, Tools
from stripe.affine import Affine
from stripe.ir import Block, Direction, Refinement

_AHEAD = 2048  # bytes: what a loop takes while a line comes from the caches behind the nearest
_SHORT = 8  # times as many steps as these lie ahead, a loop has at least
_USES = 4  # operations for each line, at least
_MOST = 4  # lines of what follows a panel at each step: more come no faster
_PAGE = 4096  # bytes: a core fetches ahead by itself within one
_NEAREST, _SECOND = 3, 2  # the cache that a line is brought to, as LLVM counts


class Ahead:
    """The lines that the innermost loop of a leaf asks for."""

    def __init__(self, tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]) -> None:
        self._tools, self._plan = tools, plan
        streams = _streams(block, plan, views)
        self._steps = _distances(
            {n: found for n, found in streams.items() if not _stays(tools, block, plan, n, views[n])},
            block.ranges[plan.loops[-1]] if streams else 0,
        )
        self._panels = {
            name: panel
            for name in streams
            if (panel := _panel(tools, block, plan, name, views[name])) is not None
        }
        self._rows = _rows(tools, block, plan, views)
        self._asked: set[tuple[str, Value, Affine]] = set()

    def at(self, point: Point, windows: Mapping[str, Window]) -> None:
        """At a point of the loop: ask for what it loads some steps later, once for each line."""
        f = self._tools.f
        for name, distance in self._steps.items():
            buffer, offset = windows[name].buffer, windows[name].offset(point.indexes) + distance
            self._ask_once(buffer, offset, _NEAREST)
        for name, rows in self._rows.items():
            if point.number and rows.count > 1:
                continue  # the first point of a square asks for all of them
            buffer, offset = windows[name].buffer, windows[name].offset(point.indexes) + rows.distance
            for row in range(min(rows.count, point.lanes.on or max(point.lanes.width, 1))):
                self._ask_once(buffer, offset + row * rows.apart, _SECOND)
        for name, panel in self._panels.items():
            buffer = windows[name].buffer
            offset = panel.at(self._plan.loops, point.indexes)
            if (f.label, buffer.pointer, offset) not in self._asked:
                self._asked.add((f.label, buffer.pointer, offset))
                for line in range(panel.lines):
                    self._ask(buffer, offset + line * LINE // buffer.dtype.bytes, _SECOND)

    def _ask_once(self, buffer: Buffer, offset: Affine, cache: int) -> None:
        """Ask for a line, unless one of the copies of this step has."""
        lines = offset.const * buffer.dtype.bytes // LINE
        key = self._tools.f.label, buffer.pointer, offset - offset.const + lines
        if key not in self._asked:
            self._asked.add(key)
            self._ask(buffer, offset, cache)

    def _ask(self, buffer: Buffer, offset: Affine, cache: int) -> None:
        f = self._tools.f
        pointer = self._tools.accesses.pointer(buffer, offset)
        f.module.declare("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
        read, near, data = constant(I32, 0), constant(I32, cache), constant(I32, 1)
        f.line(f"call void @llvm.prefetch.p0({pointer}, {read}, {near}, {data})")


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


def _panel(tools: Tools, block: Block, plan: Plan, name: str, view: View) -> _Panel | None:
    """Of an operand that several executions of the leaf read before a loop around them goes on to the next
    one. Each asks for a part of every run of it."""
    indexing, ranges, room = tools.indexing, block.ranges, tools.target.own_caches
    size, opened = view.buffer.dtype.bytes, indexing.opened
    moving = [at for at, loop in enumerate(opened) if view.offset.coefficient(loop)]
    run, apart = _runs(block.refinement(name), plan, view.strides, ranges)
    if not moving or not run:
        return None
    onward = view.offset.coefficient(opened[moving[-1]])
    panel = max(run * prod(ranges[loop] for loop in apart), abs(onward))
    whole = panel * prod(indexing.ranges[opened[at]][1] + 1 for at in moving)
    if whole * size <= room // 2 or 2 * panel * size > room:
        return None  # it stays near, or there is no place for two
    again = opened[moving[-1] + 1 :]
    spans = [indexing.ranges[loop][1] + 1 for loop in again]
    within = [loop for loop in plan.loops if loop not in apart]
    turns, steps = prod(spans), prod(ranges[loop] for loop in within)
    if turns < 2:
        return None
    each = -(-run // (turns * steps))
    strides, inside = dict(apart), each
    for loop in reversed(within):
        strides[loop] = inside
        inside *= ranges[loop]
    start = view.offset + onward
    for loop, span in zip(reversed(again), reversed(spans), strict=True):
        start = start + Affine.index(loop) * inside
        inside *= span
    return _Panel(start, strides, min(_MOST, -(-each * size // LINE)))


def _runs(
    ref: Refinement, plan: Plan, strides: tuple[int, ...], ranges: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """The elements of an operand that lie side by side from where the indexes of a leaf are 0, and the
    loops, with their steps, that lead from one such run to another; none if what is written out does."""
    run, apart = 1, dict[str, int]()
    for step, name in sorted((step_along(ref, strides, name), name) for name in ranges):
        if step == run and not apart:
            run *= ranges[name]
        elif step:
            apart[name] = step
    return (run, apart) if apart.keys() <= set(plan.loops) else (0, {})


def _streams(block: Block, plan: Plan, views: Mapping[str, View]) -> dict[str, tuple[int, int]]:
    """The inputs that come to other lines at each step of the innermost loop, with the elements that lie
    between two steps, and the lines of one."""
    if not plan.loops or plan.loops[-1] == plan.lane or plan.across is not None:
        return {}
    found: dict[str, tuple[int, int]] = {}
    for ref in block.refinements:
        if ref.direction is not Direction.IN or views[ref.name].buffer.spare is not None:
            continue
        step = step_along(ref, views[ref.name].strides, plan.loops[-1])
        lines = _lines(ref, plan, views[ref.name].strides, block.ranges)
        if abs(step) * ref.dtype.bytes >= LINE and _copies(plan, block.ranges) >= _USES * lines:
            found[ref.name] = step, lines
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of an input that a square is loaded from, and those of a later square, at a `distance`.

    Where they are turned there are `count` of them, one for each lane, so many elements `apart`; else
    each point has its own."""

    distance: int
    count: int = 1
    apart: int = 0


def _rows(tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]) -> dict[str, _Rows]:
    """The inputs whose rows lie on pages of their own: no core follows that many by itself."""
    if plan.across is None or plan.across.dealt:
        return {}
    found = {}
    for ref in block.refinements:
        if ref.direction is not Direction.IN or views[ref.name].buffer.spare is not None:
            continue
        turned = ref.name in plan.across.turned
        side, lines = (plan.lane, plan.width) if turned else (plan.across.index, plan.across.count)
        apart = step_along(ref, views[ref.name].strides, side)
        distance = _distance(tools, _onward(tools, block, plan, ref, views[ref.name]), lines)
        if abs(apart) * ref.dtype.bytes >= _PAGE and distance:
            found[ref.name] = _Rows(distance, plan.width, apart) if turned else _Rows(distance)
    return found


def _onward(tools: Tools, block: Block, plan: Plan, ref: Refinement, view: View) -> Iterator[tuple[int, int]]:
    """How far a loop moves squares at a step, and how many steps it has: loops of the leaf, innermost first,
    then those around it."""
    assert plan.across is not None
    sides = {plan.lane: plan.width, plan.across.index: plan.across.count}
    for name in reversed(plan.loops):
        side, step = sides.get(name, 1), step_along(ref, view.strides, name)
        if step:
            yield step * side, -(-block.ranges[name] // side)
    for loop in reversed(tools.indexing.opened):
        if step := view.offset.coefficient(loop):
            yield step, tools.indexing.ranges[loop][1] + 1


def _distance(tools: Tools, loops: Iterable[tuple[int, int]], lines: int) -> int:
    """By how many elements rows are asked for ahead, where a square has so many `lines`; 0 for none. It is
    some steps of the innermost loop that is long enough for most of them to lie in front of its end."""
    for onward, trips in loops:
        steps = -(-_AHEAD // (lines * LINE))
        if _SHORT * steps * lines * LINE > tools.target.own_caches:
            return 0  # what is asked for would push out what it is for
        if _SHORT * steps <= trips:
            return steps * onward
        lines *= trips
    return 0


def _distances(streams: Mapping[str, tuple[int, int]], last: int) -> dict[str, int]:
    """By how many elements what is asked for lies ahead, in a loop of so many steps. Nothing is asked for in
    a short one: most of it would lie behind its end."""
    # No more lines than that: rows that are a power of two apart share few places of the nearest cache.
    steps = max(1, _AHEAD // (max(sum(lines for _, lines in streams.values()), 1) * LINE))
    return {name: step * steps for name, (step, _) in streams.items()} if _SHORT * steps <= last else {}


def _stays(tools: Tools, block: Block, plan: Plan, name: str, view: View) -> bool:
    """Whether what an operand has for the innermost loop, or for all loops of the leaf, is in the nearest
    cache as a rule: the loop around comes to the same lines again and again, and they fit."""
    ref, ranges, strides = block.refinement(name), block.ranges, view.strides
    steps = {loop: abs(step_along(ref, strides, loop)) * ref.dtype.bytes for loop in plan.loops}
    room = tools.target.nearest_cache // 2
    *around, inner = plan.loops
    size = min(_lines(ref, plan, strides, ranges) * LINE, steps[inner])
    if any(steps[loop] < LINE for loop in around) and size * ranges[inner] <= room:
        return True
    opened = tools.indexing.opened
    again = bool(opened) and not view.offset.coefficient(opened[-1])
    return again and size * prod(ranges[loop] for loop in plan.loops if steps[loop]) <= room


def _copies(plan: Plan, ranges: Mapping[str, int]) -> int:
    """The points, or vectors of points, that are written out in the loop."""
    width = max(plan.width, 1)
    return prod(-(-ranges[n] // width) if n == plan.lane else ranges[n] for n in plan.unrolled)


def _lines(ref: Refinement, plan: Plan, strides: tuple[int, ...], ranges: Mapping[str, int]) -> int:
    """The lines of an input at one step of the loop, if they start at one."""
    lines = 1
    for name in plan.unrolled:
        step = abs(step_along(ref, strides, name)) * ref.dtype.bytes
        lines *= -(-step * ranges[name] // LINE) if step < LINE and step else ranges[name] if step else 1
    return lines
