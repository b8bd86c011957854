"""What a loop will load is asked for some steps ahead, so that it is near when the loop comes to it.

A tile in registers goes through a panel line after line; the panel lies in a cache that is some way off,
or behind it. A core fetches ahead by itself, but not across pages, and not before it has seen a few lines of
a panel. Asking for a line is no load: an address beyond the end of an array does no harm.

Only inputs are asked for that come to other lines at each step, and only where many operations
use each line: a loop that memory binds has no room for more instructions that go there.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from codegen_cpu.access import LINE
from codegen_cpu.layout import View
from codegen_cpu.ll import I32, PTR, VOID, Value, constant
from codegen_cpu.plan import Plan
from codegen_cpu.scope import step_along
from codegen_cpu.tools import Tools
from stripe.affine import Affine
from stripe.ir import Block, Direction, Refinement

_AHEAD = 2048  # bytes: what a loop takes while a line comes from the caches behind the nearest
_USES = 4  # operations for each line, at least


class Ahead:
    """The lines that the innermost loop of a leaf asks for."""

    def __init__(self, tools: Tools, block: Block, plan: Plan, views: Mapping[str, View]) -> None:
        self._tools = tools
        self._steps = _distances(block, plan, views)
        self._asked: set[tuple[str, Value, Affine]] = set()

    def at(self, views: Mapping[str, View]) -> None:
        """At a point of the loop: ask for what it loads some steps later, once for each line."""
        f = self._tools.f
        for name, distance in self._steps.items():
            buffer, offset = views[name].buffer, views[name].offset + distance
            lines = offset.const * buffer.dtype.bytes // LINE
            key = f.label, buffer.pointer, offset - offset.const + lines
            if key in self._asked:
                continue
            self._asked.add(key)
            pointer = self._tools.accesses.pointer(buffer, offset)
            f.module.declare("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
            read, near, data = constant(I32, 0), constant(I32, 3), constant(I32, 1)
            f.line(f"call void @llvm.prefetch.p0({pointer}, {read}, {near}, {data})")


def _distances(block: Block, plan: Plan, views: Mapping[str, View]) -> dict[str, int]:
    """By how many elements what is asked for lies ahead, for each input that should be."""
    if not plan.loops or plan.loops[-1] == plan.lane or plan.across is not None:
        return {}
    loop, ranges = plan.loops[-1], block.ranges
    found = {}
    for ref in block.refinements:
        if ref.direction is not Direction.IN or views[ref.name].buffer.spare is not None:
            continue
        strides, size = views[ref.name].strides, ref.dtype.bytes
        step = step_along(ref, strides, loop)
        lines = _lines(ref, plan, strides, ranges)
        steps = max(1, _AHEAD // (lines * LINE))
        if abs(step) * size >= LINE and _copies(plan, ranges) >= _USES * lines and steps <= ranges[loop]:
            found[ref.name] = step * steps
    return found


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
