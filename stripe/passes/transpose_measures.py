"""The part of transpose that measures: what blocks cost under the layouts of what they use.

Each question is asked once for all blocks that are alike, of buffers that look alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from hwconfigs.model import HwConfig
from stripe.alike import kind
from stripe.analysis.cost_layout import (
    Brought,
    crowded,
    instruction_cycles,
    lane_choice,
    layout_cycles,
    shut_out,
    waits_of_copies,
    well_laid,
)
from stripe.ir import Block
from stripe.visit import View, walk

Views: TypeAlias = Mapping[str, View]


@dataclass(frozen=True, slots=True)
class Measure:
    """How the layouts of one nest are compared."""

    hw: HwConfig
    lanes: tuple[str, ...] | None
    memory: bool
    packed: bool = False
    best: bool = False  # what is asked for ahead comes in time, where it can

    @staticmethod
    def of(block: Block, views: Views, hw: HwConfig, settled: bool, packed: bool = False) -> Measure:
        """`settled`: tiles have settled the lane index; `packed`: in tiles to come, copies may be made."""
        if not settled:
            return Measure(hw, None, memory=False, packed=packed)
        return Measure(hw, lane_choice(block, views, hw), memory=True)

    def serves(self, block: Block, views: Views, name: str) -> bool:
        """Whether an operand of a tiled nest lies as well as it can: no copy would help."""
        return self.lanes is not None and well_laid(block, views, self.hw, self.lanes, name)

    def shuts_out(self, block: Block, views: Views, name: str) -> bool:
        """Whether loops of a tiled nest bring rows of an operand in again that crowd out each other."""
        return self.lanes is not None and shut_out(block, views, self.hw, name)

    def crowds(self, block: Block, views: Views, name: str) -> bool:
        """Whether the rows of an operand crowd into few sets of a cache, or lie on many pages: as far as is
        known, where there are no tiles yet."""
        return self.lanes is None or crowded(block, views, self.hw, name)

    def cycles(
        self, block: Block, views: Views, near: Mapping[str, int] | None = None, below: float = inf
    ) -> float:
        """The cycles of a block; only so many are asked about that are `below` a number."""
        if self.memory:
            brought = Brought(tuple((near or {}).items()), in_time=self.best)
            return layout_cycles(block, views, self.hw, self.lanes, brought, below=below)
        waits = waits_of_copies(block, views, self.hw) if self.packed else 0.0
        return waits + instruction_cycles(block, views, self.hw, self.lanes, self.packed)


@dataclass(frozen=True, slots=True)
class Measures:
    """Answers that were given before; each key has the id of a block, which the entry keeps alive.

    `free`: tiles settle no lane index."""

    hw: HwConfig
    free: bool
    _served: dict[Hashable, tuple[Block, bool]] = field(default_factory=dict)
    _measures: dict[Hashable, tuple[Block, Measure]] = field(default_factory=dict)
    _costs: dict[Hashable, tuple[Block, float]] = field(default_factory=dict)

    def of(self, block: Block, views: Views) -> Measure:
        return Measure.of(block, views, self.hw, self.settled(block))

    def settled(self, block: Block) -> bool:
        """Whether tiles have settled the lane index of a nest."""
        return not self.free and any(level.has_tag("tiled") for _, level in walk(block))

    def served(self, block: Block, views: Views) -> bool:
        """Whether a block finds all that it uses in an order that suits its lanes."""
        like, seen = _seen(block, views)
        if (id(like), seen) not in self._served:
            lanes = lane_choice(block, views, self.hw)
            names = [r.name for r in block.refinements if r.source]
            found = all(well_laid(block, views, self.hw, lanes, name) for name in names)
            self._served[id(like), seen] = like, found
        return self._served[id(like), seen][1]

    def measure(self, block: Block, views: Views) -> Measure:
        like, seen = _seen(block, views)
        if (id(like), seen) not in self._measures:
            self._measures[id(like), seen] = like, self.of(block, views)
        return self._measures[id(like), seen][1]

    def cycles(self, block: Block, views: Views, changed: Views, measure: Measure) -> float:
        """The cycles of a block under these views, of which some are changed."""
        own = {r.source: changed.get(r.source) or views[r.source] for r in block.refinements if r.source}
        like, seen = _seen(block, own)
        key = id(like), seen, measure.lanes, measure.memory
        if key not in self._costs:
            self._costs[key] = like, measure.cycles(block, own)
        return self._costs[key][1]

    def instructions(self, block: Block, views: Views, changed: Views, measure: Measure) -> float:
        """Those of its instructions alone."""
        return self.cycles(block, views, changed, replace(measure, memory=False))


def _seen(block: Block, views: Views) -> tuple[Block, tuple[View, ...]]:
    """What a block has in common with those that are alike, and what it uses, in order."""
    return kind(block).block, tuple(views[r.source] for r in block.refinements if r.source)
