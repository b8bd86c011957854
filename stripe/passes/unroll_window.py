"""The part of unroll that writes out a piece of a window: what its rows share is loaded once.

Where rows that are written out and the steps of a sum move through an input alike,

    O[y, x] += I[y + r, x + s] * F[r, s]        y: 6 rows in registers, x: lanes

each step of the loop over r loads 6 rows of I, of which 5 are those of the step before. With 8 values of r
written out, too, they share 13 rows instead of 48. That pays where loads take as long as arithmetic does: if
each is used once, as where channels are summed by themselves, or with vectors that lie across two lines, as
those of x + s, each of which is loaded. Registers must hold what all these steps multiply with. Steps that a
constraint limits at the edges of a picture are written out all or none: which there are is then known ahead,
or `boundary` separates these edges.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf
from stripe.analysis.lanes import vector_width
from stripe.analysis.windows import counts, lines_read, pays, room, sharing, together
from stripe.analysis.work import vector_operations
from stripe.ir import Block, Direction, Index, Refinement
from stripe.names import Names
from stripe.visit import substitute_indexes


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
    unit = hw.compute_unit
    lane = next((name for name in block.tag_values("vector") if name in wanted), "")
    adds = [ref for ref in block.refinements if ref.name in registers and ref.direction.writes]
    if unit is None or not lane or block.has_tag("group") or not adds:
        return None
    if any(not ref.combines for ref in adds):
        return None
    inputs = [r for r in block.refinements if r.name not in registers and r.direction is Direction.IN]
    passed = {index.name for index in block.indexes if index.passed is not None}
    tests = [set(constraint.expr.names) for constraint in block.constraints]
    added = {name for ref in adds for expr in ref.access for name in expr.names}
    steps = _Steps(block, unit, lane, tuple(wanted), inputs)
    before = steps.cycles("", 1)
    accesses, rows = [ref.access for ref in inputs], [row for row in wanted if row != lane]
    found: list[tuple[float, Window]] = []
    for name, size in block.ranges.items():
        if name in wanted or name in added or not sharing(accesses, name, rows, lane):
            continue
        limits = [names for names in tests if name in names]
        if any(names - {name, *wanted, *passed} for names in limits):
            continue  # each copy would have a test at each step
        for count in counts(size, bool(limits), most):
            if room(steps.results, count, unit.registers):
                spent = steps.cycles(name, count)
                found.append((spent.together / count, Window(name, count)))
    least, window = min(found, key=lambda entry: entry[0], default=(before.together, None))
    return window if pays(before.loads, before.arithmetic, least) else None


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


@dataclass(frozen=True, slots=True)
class _Cycles:
    loads: float
    arithmetic: float

    @property
    def together(self) -> float:
        return float(together(self.loads, self.arithmetic))


@dataclass(frozen=True, slots=True)
class _Steps:
    """What one step of the loops of a block takes."""

    block: Block
    unit: Unit
    lane: str
    wanted: tuple[str, ...]
    inputs: Sequence[Refinement]

    @property
    def results(self) -> int:
        """The vectors of a result that the block adds to."""
        width = vector_width(self.block, self.unit.vector_bytes)
        sizes = (
            -(-size // width) if name == self.lane else size
            for name, size in self.block.ranges.items()
            if name in self.wanted
        )
        return prod(sizes)

    def cycles(self, name: str, count: int) -> _Cycles:
        """With so many values of an index written out."""
        ranges, width = self.block.ranges, vector_width(self.block, self.unit.vector_bytes)
        vectors = -(-ranges[self.lane] // width)
        sizes = {row: ranges[row] for row in self.wanted if row != self.lane}
        if name:
            sizes[name] = count
        loads = sum(float(lines_read(r.access, sizes, self.lane, vectors, width)) for r in self.inputs)
        operations = vector_operations(Leaf(self.block, ranges, ()))
        copies = prod(sizes.values()) * vectors
        return _Cycles(loads / self.unit.loads_per_cycle, copies * operations / self.unit.fma_per_cycle)
