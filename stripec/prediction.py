"""How long the cost models expect a kernel to take, put together from what the passes said of it.

    remarks of autotile and transpose -> cycles of one call, and the part of the target that is busy longest

The tile for a cache says what comes into that cache and the farther ones; the tile for the registers inside
it says what the unit does, and what comes into the nearer caches, at each of its executions; a copy
that is made at each call adds to both. Parts run side by side as the cost models have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwconfigs.model import HwConfig
from stripe.analysis.cost_problem import FETCHED_AHEAD, NEAR_RUNS, RUNS, combine, way_in
from stripe.diag import Remark


@dataclass(frozen=True, slots=True)
class Prediction:
    """`parts` are cycles of one call by what is busy; `copies` those of packing operands, which is done
    before the rest."""

    cycles: float
    parts: Mapping[str, float]
    copies: float

    @property
    def shown(self) -> Mapping[str, float]:
        """The parts with the copies."""
        return {**self.parts, "copies": self.copies} if self.copies else self.parts

    @property
    def bound(self) -> str:
        """What is busy longest."""
        return max(self.shown, key=lambda part: self.shown[part])


@dataclass(slots=True)
class _Level:
    """The tile of one block: for which memory, how often the block is executed, and the tiles inside."""

    path: str
    memory: str
    times: float
    cycles: float
    computing: float
    parts: Mapping[str, float]
    inside: list[_Level] = field(default_factory=list)


def predict(remarks: Sequence[Remark], hw: HwConfig, *, alone: bool = False) -> Prediction | None:
    """What is expected of the kernel that the remarks speak of; None if no model weighed it. `alone`: without
    the copies that kernels of their own make."""
    levels: list[_Level] = []
    copies = 0.0
    for remark in remarks:
        data: Mapping[str, Any] = remark.data
        if remark.acted and isinstance(data.get("parts"), Mapping):  # partition counts its parts
            _insert(levels, remark.block, data)
        elif remark.acted and "copy" in data and not data["load_time"]:
            copies += data["copy"] if data["inside"] or not alone else 0.0
    if not levels:
        return None
    parts: dict[str, float] = {}
    cycles = copies
    for level in levels:
        spent, own = _whole(level, hw)
        cycles += spent
        parts = {name: parts.get(name, 0.0) + own.get(name, 0.0) for name in {**parts, **own}}
    return Prediction(cycles, parts, copies)


def _insert(levels: list[_Level], path: str, data: Mapping[str, Any]) -> None:
    made = _Level(path, data["memory"], data["executions"], data["cycles"], data["computing"], data["parts"])
    around = next((level for level in levels if path.startswith(f"{level.path}/")), None)
    (levels if around is None else around.inside).append(made)


def _whole(level: _Level, hw: HwConfig) -> tuple[float, dict[str, float]]:
    """Cycles and parts of all executions of a block, with those of the tiles inside it."""
    if not level.inside:
        return level.times * level.cycles, {n: level.times * c for n, c in level.parts.items()}
    memory = hw.memory(level.memory)
    behind = {way_in(m) for m in hw.memories[hw.memories.index(memory) :]} if memory else set()
    parts = {n: level.times * c for n, c in level.parts.items() if n in behind or n == RUNS}
    for inner in level.inside:
        for name, cycles in inner.parts.items():
            if name not in behind:
                parts[name] = parts.get(name, 0.0) + inner.times * cycles
    computing = sum(inner.times * inner.computing for inner in level.inside)
    moved = (np.asarray(cycles) for name, cycles in parts.items() if " to " in name)
    waits = parts.get(RUNS, 0.0) + parts.get(NEAR_RUNS, 0.0)
    return float(combine(np.asarray(computing), *moved, share=FETCHED_AHEAD)) + waits, parts
