"""Energy: each count times what the target says one costs, every product by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import ceil

from hwconfigs.model import HwConfig, Stencil
from simulator.meters import exact
from simulator.result import BlockCount, Energy, Traffic


def energy(
    moved: Iterable[Traffic],
    blocks: Iterable[tuple[BlockCount, Stencil | None]],
    hw: HwConfig,
    cycles: float | None,
) -> Iterator[Energy]:
    """The products of a run: `blocks` with the stencil that each is a use of."""
    counts: Counter[tuple[str, float]] = Counter()
    traffic = list(moved)
    for memory in hw.memories:
        own = [t for t in traffic if t.memory == memory.name]
        counts[f"bytes read from {memory.name}", memory.read_pj_per_byte] += sum(
            t.read + t.updated for t in own
        )
        counts[f"bytes written to {memory.name}", memory.write_pj_per_byte] += sum(t.written for t in own)
    for block, stencil in blocks:
        unit = hw.unit(block.unit)
        if stencil is not None:
            counts[f"points of {stencil.name} on {block.unit}", stencil.pj_per_point] += block.points
        elif unit is not None:
            counts[f"operations on {block.unit}", unit.pj_per_operation] += block.operations
    if cycles is not None:
        counts["cycles", hw.static_pj_per_cycle] += ceil(cycles)
    for (what, pj), count in counts.items():
        if count and pj:
            yield Energy(what=what, count=count, pj=pj, total_pj=float(count * exact(pj)))
