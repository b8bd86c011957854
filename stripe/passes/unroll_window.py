"""The part of unroll that writes out a piece of a window: what its rows share is loaded once.

Where rows that are written out and the steps of a sum move through an input alike,

    O[y, x] += I[y + r, x + s] * F[r, s]        y: 6 rows in registers, x: lanes

each step of the loop over r loads 6 rows of I, of which 5 are those of the step before. With 8 values of r
written out, too, they share 13 rows instead of 48. That pays where loads take longer than arithmetic does:
with vectors that lie across two lines, as those of x + s, each of which is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf
from stripe.analysis.lanes import vector_width
from stripe.analysis.work import vector_operations
from stripe.ir import Aggregation, Block, Direction, Index, Refinement
from stripe.names import Names
from stripe.visit import substitute_indexes

MOST = 8  # values of a sum that are written out
LEAST_GAIN = 1.25  # how much longer than arithmetic loads must take


@dataclass(frozen=True, slots=True)
class Window:
    """An index that is summed over, and how many of its values are to be written out in one go."""

    index: str
    count: int


def find_window(
    block: Block, registers: Collection[str], wanted: Sequence[str], most: int, hw: HwConfig
) -> Window | None:
    """The piece of a sum that a leaf block should write out beside the indexes `wanted`, up to `most` times
    as many copies; None if it gains nothing. `registers` are its buffers that lie there."""
    unit = next((u for u in hw.units if u.kind == "compute"), None)
    lane = next((name for name in block.tag_values("vector") if name in wanted), "")
    adds = [ref for ref in block.refinements if ref.name in registers and ref.direction.writes]
    if unit is None or not lane or block.has_tag("group") or not adds:
        return None
    if any(ref.aggregation in (None, Aggregation.ASSIGN) for ref in adds):
        return None
    inputs = [r for r in block.refinements if r.name not in registers and r.direction is Direction.IN]
    tested = {name for constraint in block.constraints for name in constraint.expr.names}
    added = {name for ref in adds for expr in ref.access for name in expr.names}
    steps = _Steps(block, unit, lane, tuple(wanted), inputs)
    before = steps.cycles("", 1)
    if before.loads <= before.arithmetic * LEAST_GAIN:
        return None
    found: list[tuple[float, Window]] = []
    for name, size in block.ranges.items():
        if name in wanted or name in tested or name in added or not _shared(inputs, name, lane, wanted):
            continue
        for count in range(2, min(MOST, most, size) + 1):
            if size % count == 0:
                spent = steps.cycles(name, count)
                found.append((spent.together / count, Window(name, count)))
    least, window = min(found, key=lambda entry: entry[0], default=(before.together, None))
    return window if least * LEAST_GAIN < before.together else None


def written_out(block: Block, window: Window, wanted: Sequence[str]) -> tuple[Block, str]:
    """The block with the piece as an index of its own, the innermost one, and its name. The lanes come first
    of what is written out: of each vector, only the rows that are shared are alive together."""
    name, count = window.index, window.count
    inner = Names(index.name for index in block.indexes).fresh(name)
    moved = substitute_indexes(block, {name: Affine.index(name) * count + Affine.index(inner)})
    lanes = set(block.tag_values("vector"))
    around = [i for i in block.indexes if i.name not in wanted]
    inside = sorted((i for i in block.indexes if i.name in wanted), key=lambda i: i.name not in lanes)
    loops = [replace(i, range=i.range // count) if i.name == name else i for i in around]
    return replace(moved, indexes=(*loops, *inside, Index(inner, count))), inner


def _shared(inputs: Sequence[Refinement], name: str, lane: str, wanted: Sequence[str]) -> bool:
    """Whether an index moves through a dimension of an input as a row that is written out does."""
    rows = [row for row in wanted if row != lane]
    return any(
        expr.coefficient(name) and any(expr.coefficient(row) == expr.coefficient(name) for row in rows)
        for ref in inputs
        for expr in ref.access
    )


@dataclass(frozen=True, slots=True)
class _Cycles:
    loads: float
    arithmetic: float

    @property
    def together(self) -> float:
        """The longer part hides most of the other."""
        return max(self.loads, self.arithmetic) + 0.2 * min(self.loads, self.arithmetic)


@dataclass(frozen=True, slots=True)
class _Steps:
    """What one step of the loops of a block takes."""

    block: Block
    unit: Unit
    lane: str
    wanted: tuple[str, ...]
    inputs: Sequence[Refinement]

    def cycles(self, name: str, count: int) -> _Cycles:
        """With so many values of an index written out."""
        ranges, width = self.block.ranges, vector_width(self.block, self.unit.vector_bytes)
        vectors = -(-ranges[self.lane] // width)
        sizes = {row: ranges[row] for row in self.wanted if row != self.lane}
        if name:
            sizes[name] = count
        loads = sum(_pieces(ref, sizes, self.lane, vectors, width) for ref in self.inputs)
        operations = vector_operations(Leaf(self.block, ranges, ()))
        copies = prod(sizes.values()) * vectors
        return _Cycles(loads / self.unit.loads_per_cycle, copies * operations / self.unit.fma_per_cycle)


def _pieces(ref: Refinement, sizes: Mapping[str, int], lane: str, vectors: int, width: int) -> int:
    """Lines that are read to load all that an input has at one step; one vector may lie across two."""
    count = 1
    for expr in ref.access:
        terms = [(abs(c), sizes[n]) for n, c in expr.terms if n in sizes]
        count *= min(1 + sum(c * (size - 1) for c, size in terms), prod(size for _, size in terms))
        if expr.coefficient(lane):
            across = any(c % width for n, c in expr.terms if n != lane)
            count *= vectors * (2 if across else 1)
    return count
