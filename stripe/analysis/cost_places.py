"""In which memories the operands of a nest lie besides the near one, and how copies get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import inf

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.cost_parts import Part, Use
from stripe.analysis.stencils import matches, use_fits


def places_apart(parts: Sequence[Part], near: Memory, hw: HwConfig) -> dict[str, Memory]:
    """The buffers of a nest that lie in a memory of their own, since all that touch them are uses of
    stencils which take them there."""
    wanted: dict[str, set[str]] = {}
    for part in parts:
        taken: dict[str, set[str]] = {}
        for use in part.uses:
            for name, memory in _taken(use, hw).items():
                taken.setdefault(name, set()).add(memory)
        for leaf in part.leaves:
            for operand in leaf.operands:
                taken.setdefault(operand.name, set()).add(near.name)
        for operand in part.operands:
            wanted.setdefault(operand.name, set()).update(taken.get(operand.name, {near.name}))
    found = {name: hw.memory(min(places)) for name, places in wanted.items() if len(places) == 1}
    return {name: memory for name, memory in found.items() if memory is not None and memory.name != near.name}


def _taken(use: Use, hw: HwConfig) -> Mapping[str, str]:
    """The memory of each operand of a use for which its stencil names one."""
    stencil = hw.stencil(use.block.tag_values("stencil")[0])
    if stencil is None or not stencil.memory:
        return {}
    own = dict(list(use.leaf.ranges.items())[len(use.leaf.ranges) - len(use.leaf.block.ranges) :])
    leaf = replace(use.leaf, ranges=own)
    for fit in (use_fits(stencil, leaf, hw) or matches(stencil, leaf).fits)[:1]:
        return {
            operand.name: stencil.memory[name]
            for name, operand in fit.operands.items()
            if name in stencil.memory
        }
    return {}


def goes_straight(source: Memory, near: Memory, hw: HwConfig) -> bool:
    """Whether a copy goes from a memory to the one behind the near memory without passing through that."""
    far = hw.memory(near.backing) if near.backing else hw.home
    return far is None or any(
        {source.name, far.name} <= set(u.reaches) for u in hw.units if u.kind == "transfer"
    )


def copy_rate(near: Memory, hw: HwConfig, around: Set[str], units: int) -> tuple[float, float]:
    """Cycles before a copy, and bytes per cycle, of the fastest transfer unit that reaches a memory and the
    one behind it from which copies come; without one, at what the farther memory delivers. That is one which
    tiles around fit in, or else the last one, and `units` share what all its banks deliver."""
    far = hw.memory(near.backing) if near.backing else hw.home
    while far is not None and far.backing and far.name not in around:
        far = hw.memory(far.backing)
    both = {near.name, far.name if far is not None else near.name}
    movers = [u for u in hw.units if u.kind == "transfer" and both <= set(u.reaches)]
    movers.sort(key=lambda u: (-(u.bytes_per_cycle or inf), u.startup_cycles))
    rates = [movers[0].bytes_per_cycle if movers else None]
    if far is not None and far.bytes_per_cycle:
        rates.append(far.bytes_per_cycle * min(1.0, far.banks * far.count / units))
    known = [rate for rate in rates if rate]
    return (movers[0].startup_cycles if movers else 0.0), min(known, default=near.bytes_per_cycle or 1.0)
