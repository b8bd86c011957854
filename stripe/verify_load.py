"""Verifier: what the load-time program and the root have in common (V006, V066).

The load-time program runs once, on the memories on which the root runs then. The constants that it reads
lie where the root has them, what it makes stays where the root reads it, and the other constants of the
root lie there too while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from hwconfigs.model import HwConfig
from stripe.analysis.liveness import memory_of
from stripe.diag import Diagnostic, did_you_mean
from stripe.ir import Direction, Program, Refinement


def load_findings(program: Program) -> Iterator[Diagnostic]:
    """V006: the load-time program and the root agree about what goes in and out."""
    load = program.load
    if load is None:
        return
    inputs = {ref.name: ref for ref in program.inputs}
    given = {ref.name for ref in load.refinements if ref.direction.writes}
    for ref in load.refinements:
        if ref.direction is Direction.NEW:
            continue
        target = inputs.get(ref.name)
        where = f"block {load.name}, refinement '{ref.name}'"
        if target is None:
            message = f"{where}: the root block {program.root.name} has no input of this name"
            yield Diagnostic("V006", message, ref.span or load.span, did_you_mean(ref.name, inputs))
        elif (target.dtype, target.shape, target.strides) != (ref.dtype, ref.shape, ref.strides):
            message = f"{where}: the root's input of this name has another type, shape or strides"
            yield Diagnostic("V006", message, ref.span or load.span)
        elif ref.direction is Direction.IN and (not target.const or ref.name in given):
            message = f"{where}: the load-time program reads `const` inputs only"
            yield Diagnostic("V006", message, ref.span or load.span, ("help: mark the root's input `const`",))


def load_place_findings(program: Program, hw: HwConfig) -> Iterator[Diagnostic]:
    """V066: what both use has one place in both."""
    load = program.load
    if load is None:
        return
    inputs = {ref.name: ref for ref in program.inputs}
    for ref in load.refinements:
        other = inputs.get(ref.name)
        if ref.direction is Direction.NEW or other is None:
            continue
        here, there = _place(ref, hw), _place(other, hw)
        if here != there:
            message = (
                f"block {load.name}, refinement '{ref.name}': it lies at {here}, and in the root block "
                f"{program.root.name} at {there}: nobody moves it"
            )
            yield Diagnostic("V066", message, ref.span or load.span, ("help: give both one location",))


def _place(ref: Refinement, hw: HwConfig) -> str:
    """A location as text names it."""
    location, memory = ref.location, memory_of(ref, True, hw) or "no memory"
    if location is None:
        return memory
    bank = "" if location.bank is None else f"[{location.bank}]"
    spread = "" if location.spread is None else f"[spread {location.spread}]"
    address = "" if location.address is None else f":{location.address}"
    return f"{memory}{bank}{spread}{address}"
