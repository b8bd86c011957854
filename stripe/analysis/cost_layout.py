"""What the layout of its operands costs a nest: instructions, lines fetched again, pages.

Layouts of one nest are compared, so only what depends on a layout has to be right:

    instructions   those of stripe.analysis.lanes, along the best lane index under this layout
    lines          each execution of a leaf brings its operands in again, from the nearest level that
                   keeps them: where their lines fit, and do not crowd into a few sets
    pages          rows that lie on more pages than the nearest translation buffer holds

Rows that are a power of two apart crowd; an operand that is packed does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd, prod

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis.bounds import Leaf, Operand, Views, extents, leaves
from stripe.analysis.cost_problem import fetched_bytes
from stripe.analysis.groups import grouped
from stripe.analysis.lanes import access_instructions, lane_candidates
from stripe.ir import Block, Cast, Intrinsic

PAGE_BYTES = 4096
PAGES = 64  # that the nearest translation buffer holds
PAGE_CYCLES = 7.0  # to look a page up behind it
MANY_LANES = 16  # of a vector, where only it matters whether an operand is taken apart
KEPT = 0.5  # the share of a cache that one operand may fill


def lane_choice(block: Block, outer: Views, hw: HwConfig) -> tuple[str, ...]:
    """The best lane index of each leaf of a nest, empty where there is none."""
    unit = next((u for u in hw.units if u.kind == "compute"), None)
    found = [
        lane_candidates(leaf, unit.vector_bytes, among=_inner(leaf)) if unit else ()
        for leaf in map(grouped, leaves(block, outer))
    ]
    return tuple(lanes[0].index if lanes else "" for lanes in found)


def layout_cycles(
    block: Block, outer: Views, hw: HwConfig, lanes: Sequence[str] | None = None, memory: bool = True
) -> float:
    """Cycles for one execution of a nest, as far as they depend on the layout of what it touches.

    `outer` are the views of its parent. `lanes` fixes the lane index of each leaf, as it is where the
    nest was tiled for it. Without `memory` only instructions count: a nest that will be tiled does
    not touch its operands in the order in which it is written.
    """
    unit = next((u for u in hw.units if u.kind == "compute"), None)
    if unit is None:
        return 0.0
    total = 0.0
    for number, leaf in enumerate(map(grouped, leaves(block, outer))):
        total += _instructions(leaf, lanes[number] if lanes else "", unit)
        if memory:
            total += sum(_fetched(leaf, operand, hw) for operand in leaf.operands)
    return total


def well_laid(block: Block, outer: Views, hw: HwConfig, lanes: Sequence[str], name: str) -> bool:
    """Whether an operand of a nest is read by whole vectors or splats, its rows don't crowd into few sets
    of a cache, and they lie on few pages."""
    for leaf, lane in zip(map(grouped, leaves(block, outer)), lanes, strict=True):
        inner = _inner(leaf)
        for operand in (o for o in leaf.operands if o.name == name):
            apart = lane and access_instructions(operand, lane, MANY_LANES) > 1
            crowds = any(_crowds(operand, inner, m) for m in hw.memories if m.kind == "cached")
            if apart or crowds or _pages(operand, inner):
                return False
    return True


def _inner(leaf: Leaf) -> dict[str, int]:
    """The ranges of a leaf's own indexes."""
    names = tuple(leaf.ranges)
    return {name: leaf.ranges[name] for name in names[len(names) - len(leaf.block.ranges) :]}


def _instructions(leaf: Leaf, lane: str, unit: Unit) -> float:
    """Cycles to issue the vector instructions of a leaf."""
    settled = lane_candidates(leaf, unit.vector_bytes, among=(lane,)) if lane else ()
    if not settled:
        found = lane_candidates(leaf, unit.vector_bytes)
        if not found:
            return leaf.points * len(leaf.operands) / unit.loads_per_cycle
        return leaf.points * found[0].cost / unit.loads_per_cycle
    (chosen,) = settled
    size, inner = leaf.ranges[lane], _inner(leaf)
    vectors = leaf.points // size * -(-size // chosen.width)
    operations = max(1, sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements))
    loads = 0.0
    for operand in leaf.operands:  # what some of the leaf's own indexes share is loaded for all of them
        others = prod(n for name, n in inner.items() if name != lane and name not in operand.indexes)
        loads += access_instructions(operand, lane, chosen.width) * vectors / others
    return vectors * operations / unit.fma_per_cycle + loads / unit.loads_per_cycle


def _fetched(leaf: Leaf, operand: Operand, hw: HwConfig) -> float:
    """Cycles to bring an operand to the unit again at each execution of the leaf."""
    inner = _inner(leaf)
    outer = tuple(leaf.ranges)[: len(leaf.ranges) - len(inner)]
    executions = prod(leaf.ranges[name] for name in outer)
    again = executions  # those that follow one which left the operand where it is don't count
    for name in reversed(outer):
        if name in operand.indexes:
            break
        again //= leaf.ranges[name]
    caches = [m for m in hw.memories if m.kind == "cached"]
    line = caches[0].line_bytes if caches else 1
    size = float(fetched_bytes(operand, inner, line))
    cycles = executions * _pages(operand, inner) * PAGE_CYCLES
    for level, behind in pairwise(caches):
        kept = size <= KEPT * (level.bytes or size) and not _crowds(operand, inner, level)
        if behind.bytes_per_cycle:
            cycles += (again if kept else executions) * size / behind.bytes_per_cycle
        if kept:
            break
    return cycles


def _crowds(operand: Operand, inner: dict[str, int], level: Memory) -> bool:
    """Whether the rows of an operand fall into fewer places of a cache than they need."""
    if level.bytes is None or not level.ways:
        return False
    way = level.bytes // level.ways
    crowd = 1
    for name, size in inner.items():
        step = abs(operand.stride(name)) * operand.dtype.bytes
        if step >= level.line_bytes:
            crowd *= -(-size // (way // gcd(step, way)))
    return crowd > level.ways


def _pages(operand: Operand, inner: dict[str, int]) -> int:
    """Pages that one execution of a leaf looks up behind the nearest translation buffer."""
    rows, near = 1, operand.dtype.bytes
    for stride, extent in zip(operand.strides, extents(operand, inner), strict=True):
        step = stride * operand.dtype.bytes
        if step >= PAGE_BYTES:
            rows *= int(extent)
        else:
            near += step * (int(extent) - 1)
    pages = rows * -(-near // PAGE_BYTES)
    return pages if pages > PAGES else 0
