"""What was counted, by whom: the traffic of each unit with each buffer, and how each copy of a unit spent the
time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from hwconfigs.model import HwConfig
from simulator.meters import Kind
from simulator.places import element_bytes
from simulator.plan import Measured
from simulator.result import TimeSplit, Traffic, UnitTime
from simulator.running import UnitKey
from simulator.timeline import Timeline
from simulator.work import Site
from stripe.ir import Block


def counts_of(
    measured: Measured, counted: Mapping[tuple[Site, Any, Any], int], unit: str | UnitKey
) -> dict[Kind, int]:
    """What a block counts on a unit."""
    kinds: tuple[Kind, ...] = ("points", "uses", "vectors", "starts", "bytes")
    return {kind: counted.get((measured.site, kind, unit), 0) for kind in kinds}


def traffic_of(moved: Mapping[tuple[str, str, str, str], int], root: Block) -> list[Traffic]:
    """Bytes by memory, buffer, unit and what it does, told in words too."""
    words = element_bytes(root)
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for (memory, buffer, unit, what), size in moved.items():
        found.setdefault((memory, buffer, unit), Counter())[what] += size
    return [
        Traffic(
            memory=memory, buffer=buffer, unit=unit, read=own["read"], written=own["write"],
            updated=own["update"], word_bytes=words[buffer],
            words_read=own["read"] // words[buffer], words_written=own["write"] // words[buffer],
        )
        for (memory, buffer, unit), own in sorted(found.items())
    ]  # fmt: skip


def unit_times(timeline: Timeline, measured: Sequence[Measured], hw: HwConfig) -> Iterator[UnitTime]:
    """How each copy of each unit spent the time of a run."""
    totals, ticks = timeline.totals, timeline.ticks
    stalled: dict[UnitKey, dict[str, float]] = {}
    idle: dict[UnitKey, dict[str, float]] = {}
    for parts, of in ((stalled, totals.stalled), (idle, totals.idle)):
        for (key, what), n in sorted(of.items()):
            parts.setdefault(key, {})[what] = n / ticks
    blocks: dict[str, list[Measured]] = {}
    for block in measured:
        blocks.setdefault(block.unit, []).append(block)
    for unit in hw.units:
        for number in range(unit.count):
            key = unit.name, number
            operations, filling, padding = 0, Fraction(0), Fraction(0)
            for block in blocks.get(unit.name, []) if totals.tasks[key] else []:
                own = counts_of(block, totals.counts, key)
                operations += own["points"] * block.meter.operations
                filling += block.meter.filling(own)
                padding += block.meter.padding(own)
            waits = idle.get(key, {}) if key in totals.busy else {"": timeline.now / ticks}
            busy, held = totals.busy[key] / ticks, stalled.get(key, {})
            yield UnitTime(
                unit=unit.name,
                number=number,
                tasks=totals.tasks[key],
                busy=busy,
                stalled=held,
                idle=waits,
                operations=operations,
                split=split_of(busy, float(filling), float(padding), held, waits, hw),
            )


def split_of(
    busy: float, filling: float, padding: float, stalled: Mapping[str, float], idle: Mapping[str, float],
    hw: HwConfig,
) -> TimeSplit:  # fmt: skip
    """Where the cycles of a unit went, by what it did and what it waited for."""
    moving = sum(n for name, n in idle.items() if _transfers(name, hw))
    nothing = idle.get("", 0.0)
    return TimeSplit(
        useful=busy - filling - padding, padding=padding, filling=filling,
        data=sum(stalled.values()) + moving, units=sum(idle.values()) - moving - nothing, nothing=nothing,
    )  # fmt: skip


def _transfers(name: str, hw: HwConfig) -> bool:
    unit = hw.unit(name)
    return unit is not None and unit.kind == "transfer"
