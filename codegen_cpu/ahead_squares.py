"""What squares that are turned in registers ask for ahead.

A square comes from as many rows as it has lanes, and goes into as many. Where each lies on a page of its
own, no core sees in time where the next square begins, and few squares are in work together. So each asks for
the rows of a later one, in the second cache: rows a power of two apart have too few places in the nearest.
What it writes is brought, too, before a part of a line is written; so few stores wait for that at a time that
a cache which answers late is not kept busy. A store that goes on in the next line waits for that one, too,
and no core asks for it before the store is next: so a square asks for the lines in which its own pieces end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from codegen_cpu.layout import View
from codegen_cpu.plan import Plan
from codegen_cpu.scope import spanned, step_along
from codegen_cpu.tools import Tools
from stripe.analysis.cost_ahead import AHEAD
from stripe.ir import Block, Refinement

SHORT = 8  # times as many steps as these lie ahead, a loop has at least
APART = 2048  # bytes: rows farther apart lie on pages of their own, mostly; a core fetches ahead within one


@dataclass(frozen=True, slots=True)
class SquareRows:
    """The rows that a square is loaded from, or stored to, and those of a later square, at a `distance` (0
    for none).

    Where they are turned there are `count` of them, one for each lane, so many elements `apart`; else
    each point has its own. Pieces that are stored, and go on in the next line unless they begin at one, have
    an `end`: their last element, counted from the first."""

    distance: int
    count: int = 1
    apart: int = 0
    end: int = 0


def squares(tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]) -> dict[str, SquareRows]:
    """The inputs whose rows lie on pages of their own: no core follows that many by itself; and the results,
    but not those that stay in its own caches, or go past all, or of whose lines a square writes few bytes."""
    if plan.across is None or plan.across.dealt:
        return {}
    found = {}
    for ref in block.refinements:
        view, turned = views[ref.name], ref.name in plan.across.turned
        piece = (plan.across.count if turned else plan.width) * ref.dtype.bytes
        written = ref.direction.writes
        if view.buffer.spare is not None or (written and not _brought(tools, block, ref, view, piece)):
            continue
        side, lines = (plan.lane, plan.width) if turned else (plan.across.index, plan.across.count)
        apart = step_along(ref, view.strides, side)
        distance = 0
        if abs(apart) * ref.dtype.bytes > APART:
            distance = _distance(tools, _moves(tools, block, plan, ref, view), lines)
        end = piece // ref.dtype.bytes - 1 if written else 0
        if distance or end:
            count, step = (plan.width, apart) if turned else (1, 0)
            found[ref.name] = SquareRows(distance, count, step, end)
    return found


def _brought(tools: Tools, block: Block, ref: Refinement, view: View, piece: int) -> bool:
    """Whether the lines of a result come from beyond the core's own caches before they are written, and a
    square writes no less than half of each: so many bytes of each row."""
    if 2 * piece < tools.target.line_bytes or ref.direction.reads or not view.buffer.brings_lines:
        return False
    return reach(tools, block, ref.name, view) > tools.target.own_caches > 0


def _moves(tools: Tools, block: Block, plan: Plan, ref: Refinement, view: View) -> Iterator[tuple[int, int]]:
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
    line = tools.target.line_bytes
    for onward, trips in loops:
        steps = -(-AHEAD // (lines * line))
        if SHORT * steps * lines * line > tools.target.own_caches:
            return 0  # what is asked for would push out what it is for
        if SHORT * steps <= trips:
            return steps * onward
        lines *= trips
    return 0


def reach(tools: Tools, block: Block, name: str, view: View) -> int:
    """Over how many bytes an operand is read or written in the leaf and the loops around it."""
    return spanned(block.refinement(name), view, block.ranges, tools.indexing.around)
