"""Leaves that are uses of an instruction on registers that hold rows, as costs see them.

Such an instruction does a block of points in one go (stripe.analysis.stencils_groups), so what costs count
in vectors goes in blocks there: the steps along each of its indexes, the cycles of each step, and how
long a register takes to be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwconfigs.model import HwConfig, Unit
from stripe.analysis.bounds import Leaf
from stripe.analysis.lanes import Lane
from stripe.analysis.stencils import Fit
from stripe.analysis.stencils_groups import Summing, in_rows, rows_across


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a leaf is made of blocks: the instruction and how many registers it has, the most points of a block
    along indexes of the leaf, the cycles of one and those until its result can be added to, and the vectors
    that a register holds."""

    instruction: str
    registers: int
    most: Mapping[str, int]
    cycles: float
    latency: float
    lines: float


def blocks_of(leaf: Leaf, lane: Lane | None, hw: HwConfig, unit: Unit) -> Blocks | None:
    """The blocks of a leaf that has its group; None if it is uses of no such instruction. Its results may
    lie across the lanes: they are gathered in registers (see stripe.passes.localize_accumulators)."""
    return _blocks(in_rows(leaf, lane, hw, across=True), unit)


def best_blocks(leaf: Leaf, hw: HwConfig, unit: Unit) -> Blocks | None:
    """`blocks_of` a leaf with the best lanes of the target."""
    return _blocks(rows_across(leaf, hw), unit)


def _blocks(found: tuple[Summing, Fit] | None, unit: Unit) -> Blocks | None:
    if found is None:
        return None
    (made, fit), tiles = found, found[0].tiles
    assert tiles is not None  # that is what `in_rows` finds
    most = {fit.indexes[name]: size for name, size in tiles.most.items() if name in fit.indexes}
    cycles = made.cycles({}, 1)
    lines = tiles.most[tiles.row] * tiles.row_bytes / unit.vector_bytes
    latency = made.stencil.startup_cycles + cycles
    return Blocks(made.stencil.name, tiles.registers, most, cycles, latency, lines)
