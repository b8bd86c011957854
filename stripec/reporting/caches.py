"""What caches did in a simulated run: what crosses each boundary, by buffer."""

from __future__ import annotations

from collections.abc import Iterator

from hwconfigs.model import HwConfig
from simulator import Simulation
from simulator.result import CacheUse
from stripec.reporting.runs import Boundary, CachesDrawn, Crossed, SimulatedRun
from stripec.reporting.svg import COLOURS

MAX_BUFFERS = COLOURS - 1  # that have a colour; the others are shown together

Sums = dict[str, tuple[int, int]]


def caches_of(run: SimulatedRun, hw: HwConfig) -> CachesDrawn | None:
    """The caches of a run with what crosses between them; None where no cache was looked up."""
    found = run.found
    if found is None or not found.caches:
        return None
    caches = tuple(found.caches)
    crossing = [(near, far, sums) for near, far, sums in _crossing(found, hw) if sums]
    total: dict[str, int] = {}
    for _, _, sums in crossing:
        for buffer, (inward, outward) in sums.items():
            total[buffer] = total.get(buffer, 0) + inward + outward
    order = sorted(total, key=lambda buffer: (-total[buffer], buffer))
    shown = order if len(order) <= COLOURS else order[:MAX_BUFFERS]
    capacities = tuple((memory.name, memory.bytes) for memory in hw.caches)
    boundaries = (Boundary(near, far, tuple(_crossed(sums, shown))) for near, far, sums in crossing)
    return CachesDrawn(caches, capacities, tuple(boundaries), tuple(shown))


def _crossing(found: Simulation, hw: HwConfig) -> Iterator[tuple[str, str, Sums]]:
    """The boundaries from near to far, with the bytes of each buffer in both directions."""
    behind = {memory.name: memory.backing or "" for memory in hw.memories}
    for cache in found.caches:
        nearer = [other for other in found.caches if behind.get(other.memory) == cache.memory]
        units = sorted({line.unit for line in found.traffic if line.memory == cache.memory})
        yield ", ".join(units), cache.memory, _direct(found, cache, nearer)
        yield cache.memory, behind.get(cache.memory, ""), _fetched(cache)


def _direct(found: Simulation, cache: CacheUse, nearer: list[CacheUse]) -> Sums:
    """What units load from and store to a cache themselves; what is in front of it is taken off."""
    sums: Sums = {}
    for line in found.traffic:
        if line.memory == cache.memory:
            inward, outward = sums.get(line.buffer, (0, 0))
            sums[line.buffer] = inward + line.read + line.updated, outward + line.written
    for other in nearer:
        for buffer, (fetched, back) in _fetched(other).items():
            inward, outward = sums.get(buffer, (0, 0))
            sums[buffer] = inward - fetched, outward - back
    return {buffer: pair for buffer, pair in sums.items() if any(pair)}


def _fetched(cache: CacheUse) -> Sums:
    sums: Sums = {}
    for own in cache.buffers:
        inward, outward = sums.get(own.buffer, (0, 0))
        sums[own.buffer] = inward + own.fetched, outward + own.written_back
    return {buffer: pair for buffer, pair in sums.items() if any(pair)}


def _crossed(sums: Sums, shown: list[str]) -> Iterator[Crossed]:
    yield from (Crossed(buffer, *sums[buffer]) for buffer in shown if buffer in sums)
    rest = [pair for buffer, pair in sums.items() if buffer not in shown]
    if rest:
        yield Crossed("", sum(inward for inward, _ in rest), sum(outward for _, outward in rest))
