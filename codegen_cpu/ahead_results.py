"""The lines that a tile in registers will write are asked for before it sums up.

A store to a line that lies beyond a core's own caches waits until the line is there: the core brings it
before it writes a part of it. A tile stores all its results at once, behind its sum:

    block t [m:455, n:18] (... out C[9*m, 48*n]:assign f32(9, 48)  new C_acc f32(9, 48) @REG) {
      block sum [k:32, m:9, n:48] (... out C_acc[m, n]:add ...)
      block store [m:9, n:48] (in C_acc[m, n]  out C[m, n]:assign ...)
    }

With a short sum that is so many lines, so soon, that a core runs out of room for stores that wait. So the
lines are asked for, to be written, in front of the sum, and come while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cpu.ahead_copies import box_lines, each_line
from codegen_cpu.layout import View
from codegen_cpu.scope import Scope, step_along, viewed
from codegen_cpu.tools import Tools
from stripe.affine import Affine
from stripe.ir import Block, Direction, Refinement


def ask_results(tools: Tools, block: Block, scope: Scope) -> None:
    """At a point of a block: ask for the lines that its children write from buffers in registers that others
    have summed up, element by element."""
    kept = {
        ref.name
        for ref in block.refinements
        if ref.direction is Direction.NEW
        and ref.location is not None
        and ref.location.unit in tools.target.registers
    }
    summed = {
        ref.source
        for child in block.children
        for ref in child.refinements
        if ref.direction.writes and ref.source in kept
    }
    for child in block.children:
        if not child.children and any(
            ref.direction is Direction.IN and ref.source in summed and _covers(child, ref)
            for ref in child.refinements
        ):
            for view, along in _written(tools, child, scope):
                for offset in each_line(tools, view.offset, box_lines(along, view, tools.target.line_bytes)):
                    tools.accesses.ask_to_write(view.buffer, offset)


def _covers(child: Block, ref: Refinement) -> bool:
    """Whether each point of a child has an element of its own in a view. Where a row shares a sum, it is
    written point after point while more is computed, and nothing waits at once."""
    moving = {name for expr in ref.access for name in expr.names}
    return all(size == 1 or name in moving for name, size in child.ranges.items())


def _written(tools: Tools, child: Block, scope: Scope) -> Iterator[tuple[View, dict[int, int]]]:
    """The views that a child writes from beyond the core's own caches, with the steps and counts of its
    elements."""
    first = {**scope.enter(child).indexes, **dict.fromkeys(child.ranges, Affine())}
    for ref in child.refinements:
        parent = scope.views[ref.source] if ref.source else None
        if parent is None or not ref.direction.writes or not parent.buffer.brings_lines:
            continue
        view = viewed(ref, parent, first)
        along = {
            abs(step_along(ref, view.strides, name)): size for name, size in child.ranges.items() if size > 1
        }
        if _goes_along(tools, view, along) and _comes_past(tools, view) > tools.target.own_caches > 0:
            yield view, along


def _goes_along(tools: Tools, view: View, along: dict[int, int]) -> bool:
    """Whether the next tile goes on where the rows of this one end, which have several lines each. Else what
    a core fetches by itself behind the lines that it is asked for isn't wanted soon; and where each tile
    comes to just the next line of a row, asking costs more than it brings."""
    if box_lines(along, view, tools.target.line_bytes)[-1][1] < 2:
        return False
    run = 1
    for step, count in sorted(along.items()):
        run *= count if step == run else 1
    moves = [step for loop in tools.indexing.opened if (step := view.offset.coefficient(loop))]
    return bool(moves) and moves[-1] == run


def _comes_past(tools: Tools, view: View) -> int:
    """The bytes from the first to the last element that a view begins at, before the loops around come back
    to the same."""
    last = 0
    for loop in reversed(tools.indexing.opened):
        span, step = tools.indexing.ranges[loop][1], abs(view.offset.coefficient(loop))
        if span and not step:
            break
        last += span * step
    return last * view.buffer.dtype.bytes
