"""What units load and store themselves, where no memory is nearer than the one that they do it in.

Then nothing stays: each point of a scalar block loads and stores its operands, and each use of a stencil the
distinct elements of its own. Of all stencils and all ways in which a block is made of their uses, each as
large as one may be and none cut short by a tile, the one counts that moves least in the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from hwconfigs.model import HwConfig, SizeRange
from simulator.touched import executions, touched
from stripe.analysis.bounds import Leaf, Operand, leaves
from stripe.analysis.stencils import Fit, matches, size_refusal
from stripe.ir import Block, Direction, Load, Store
from stripe.visit import views_of

Taken = Counter[str]  # bytes by buffer of the root, or of the kernel


def taken(root: Block, kernel: Block, buffers: Collection[str], memory: str, hw: HwConfig) -> Taken:
    """Bytes of these buffers, of the root or of the kernel alone, that units load and store in a memory."""
    sources = {r.name: r.source for r in kernel.refinements if r.direction is not Direction.NEW}
    total: Taken = Counter()
    for leaf in leaves(kernel, views_of(root, {})):
        ways = [_by_points(leaf), *_by_uses(leaf, sources, buffers, memory, hw)]
        named = [_named(way, sources) for way in ways]
        moved = [sum(way[name] for name in buffers) for way in named]
        total += named[moved.index(min(moved))]
    return Counter({name: total[name] for name in buffers})


def _named(way: Taken, sources: Mapping[str, str]) -> Taken:
    """By buffers of the root."""
    found: Taken = Counter()
    for name, size in way.items():
        found[sources.get(name, name)] += size
    return found


def _by_points(leaf: Leaf) -> Taken:
    """Every point loads and stores its operands."""
    accesses = [s for s in leaf.block.statements if isinstance(s, Load | Store)]
    kinds = dict.fromkeys((s.buffer, isinstance(s, Store)) for s in accesses)
    operands = dict(zip(kinds, leaf.operands, strict=True))
    points = executions(leaf).count()
    found: Taken = Counter()
    for access in accesses:
        operand = operands[access.buffer, isinstance(access, Store)]
        found[operand.name] += points * _bytes(operand)
    return found


def _by_uses(
    leaf: Leaf, sources: Mapping[str, str], buffers: Collection[str], memory: str, hw: HwConfig
) -> Iterator[Taken]:
    """Each way in which the leaf is uses of a stencil that has these buffers in the memory."""
    for stencil in hw.stencils:
        for fit in matches(stencil, leaf).fits:
            here = (role for role, o in fit.operands.items() if sources.get(o.name, o.name) in buffers)
            if any(stencil.memory.get(role, memory) != memory for role in here):
                continue
            tiles = _largest_use(fit, leaf, hw)
            if tiles is None:
                continue
            found: Taken = Counter()
            for operand in fit.operands.values():
                if sources.get(operand.name, operand.name) in buffers:
                    elements = touched([(executions(leaf), operand.access)], tiles)
                    found[operand.name] += elements * _bytes(operand)
            yield found


def _largest_use(fit: Fit, leaf: Leaf, hw: HwConfig) -> dict[str, int] | None:
    """The points of the largest use along each index of the nest that it does not have all of; None if the
    unit can't hold it."""
    points = {}
    for index, name in fit.indexes.items():
        rule = fit.stencil.indices[index]
        most = rule.most if isinstance(rule, SizeRange) else rule
        points[index] = min(leaf.ranges[name], most) if isinstance(most, int) else leaf.ranges[name]
    if size_refusal(fit.stencil, points, hw):
        return None
    sizes = {name: points[index] for index, name in fit.indexes.items()}
    return {n: sizes.get(n, 1) for n, size in leaf.ranges.items() if sizes.get(n, 1) < size}


def _bytes(operand: Operand) -> int:
    """Bytes of an element that is loaded or stored; a store that aggregates reads the old one, too."""
    adds = operand.direction.writes and operand.combines
    return operand.dtype.bytes * (1 + adds)
