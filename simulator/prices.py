"""One simulation for targets that differ in prices alone: energies, and the clock.

    unpriced(hw) -> simulate once -> priced(found, hw), priced(found, another), ...

What is counted does not depend on what it costs. So every count is taken at 1 pJ, at one cycle a
second, and multiplied later.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hwconfigs.model import HwConfig
from simulator.meters import exact
from simulator.result import Energy, Simulation

_PRICES = (
    "read_pj_per_byte", "write_pj_per_byte", "pj_per_operation", "pj_per_point", "static_pj_per_cycle",
    "clock_hz",
)  # fmt: skip


def unpriced(hw: HwConfig) -> HwConfig:
    """The target with every price and the clock at 1: the same for all targets that differ in these alone."""

    def plain(part: msgspec.Struct) -> dict[str, float]:
        return {name: 1.0 for name in _PRICES if name in part.__struct_fields__}

    replace = msgspec.structs.replace
    return replace(
        hw,
        memories=tuple(replace(m, **plain(m)) for m in hw.memories),
        units=tuple(replace(u, **plain(u)) for u in hw.units),
        stencils=tuple(replace(s, **plain(s)) for s in hw.stencils),
        **plain(hw),
    )


def priced(found: Simulation, hw: HwConfig) -> Simulation:
    """What `simulate` finds for a target, from what it found for `unpriced` of it."""
    prices = dict(_prices(hw))
    energy = [
        Energy(what=e.what, count=e.count, pj=pj, total_pj=float(e.count * exact(pj)))
        for e in found.energy
        if (pj := prices[e.what])
    ]
    seconds = None if found.seconds is None or not hw.clock_hz else found.seconds / hw.clock_hz
    load = priced(found.load, hw) if found.load is not None else None
    return msgspec.structs.replace(
        found, energy=energy, energy_pj=sum(e.total_pj for e in energy), seconds=seconds, load=load
    )


def _prices(hw: HwConfig) -> Iterator[tuple[str, float]]:
    """What each product of the energy is called, and what one costs."""
    for memory in hw.memories:
        yield f"bytes read from {memory.name}", memory.read_pj_per_byte
        yield f"bytes written to {memory.name}", memory.write_pj_per_byte
    for unit in hw.units:
        yield f"operations on {unit.name}", unit.pj_per_operation
        for stencil in hw.stencils:
            yield f"points of {stencil.name} on {unit.name}", stencil.pj_per_point
    yield "cycles", hw.static_pj_per_cycle
