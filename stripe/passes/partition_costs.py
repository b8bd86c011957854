"""What nests cost units that share their memories: how long one takes, and to write what all of them read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine
from stripe.analysis.cost_program import estimate_block
from stripe.ir import Block, Direction, Refinement
from stripe.visit import View


def nest_cycles(block: Block, outer: Mapping[str, View], unit: Unit, hw: HwConfig) -> float:
    """About how long a nest takes on one unit, whatever its program does before. `outer` are the views
    around it; indexes that it is passed count as 0."""
    sources = {ref.source: outer[ref.source] for ref in block.refinements if ref.source in outer}
    around = Block(
        block.name,
        refinements=tuple(
            Refinement(Direction.NEW, name, view.shape, view.dtype, strides=view.strides)
            for name, view in sources.items()
        ),
        statements=(
            replace(
                block,
                indexes=tuple(i if i.passed is None else replace(i, passed=Affine()) for i in block.indexes),
            ),
        ),
    )
    return estimate_block(around, hw, unit).cycles


def shared_cycles(pieces: Mapping[int, Collection[str]], parent: Block, nest: Block, unit: Unit) -> float:
    """Cycles that it takes a unit to write its part of those buffers beside a nest that every unit reads
    all of. `pieces` are the blocks that are cut, by identity, and along which indexes."""
    if unit.shared_bytes_per_cycle is None:
        return 0.0
    found: dict[str, int] = {}

    def look(block: Block, known: Mapping[str, Refinement]) -> None:
        names = pieces.get(id(block), ())
        inside = {
            ref.name: known[ref.source]
            for ref in block.refinements
            if ref.source in known and not any(n in names for expr in ref.access for n in expr.names)
        }
        if not block.children:
            read = (inside[r.name] for r in block.refinements if r.direction.reads and r.name in inside)
            found.update((buffer.name, buffer.bytes) for buffer in read)
        for child in block.children:
            look(child, inside)

    own = (r for r in parent.refinements if r.direction is Direction.NEW and r.location is None)
    look(nest, {ref.name: ref for ref in own})
    return sum(found.values()) / unit.count / unit.shared_bytes_per_cycle
