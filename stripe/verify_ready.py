"""Verifier: may a target run a program as it stands (V065)? Asked at the end of a pipeline.

`unplaced` lists what a target whose memories programs manage still lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hwconfigs.model import HwConfig
from stripe.analysis.liveness import memory_of
from stripe.analysis.units import unit_of
from stripe.diag import Diagnostic
from stripe.ir import Block, Direction, Program, Special
from stripe.verify_structure import Site, described, sites


def unplaced(program: Program, hw: HwConfig) -> tuple[Diagnostic, ...]:
    """What a target whose memories the program manages still lacks: buffers without memory or address, and
    statements without a unit (V065). Targets that fill their memories themselves lack nothing."""
    if not manages_memory(hw):
        return ()
    roots = [root for root in (program.load, program.root) if root is not None]
    return tuple(finding for root in roots for site in sites(root) for finding in _lacking(site, hw))


def manages_memory(hw: HwConfig) -> bool:
    """Whether programs of the target say where each buffer lies: a memory of limited size is `explicit`."""
    return any(memory.kind == "explicit" and memory.bytes is not None for memory in hw.memories)


def _lacking(site: Site, hw: HwConfig) -> Iterable[Diagnostic]:
    block = site.block
    for ref in block.refinements:
        if ref.direction is not Direction.NEW and site.parent is not None:
            continue
        memory = hw.memory(memory_of(ref, site.parent is None, hw))
        where = f"block {site.path}, refinement '{ref.name}'"
        if memory is None:
            help = f"help: {_names([m.name for m in hw.memories])}"
            yield Diagnostic(
                "V065", f"{where}: it lies in no memory of {hw.name}", ref.span or block.span, (help,)
            )
        elif hw.has_addresses(memory) and (ref.location is None or ref.location.address is None):
            help = "help: the pass 'place' gives addresses"
            yield Diagnostic(
                "V065", f"{where}: it has no address in {memory.name}", ref.span or block.span, (help,)
            )
    nest = [around.block for around in site.nest]
    for number, statement in enumerate(block.statements):
        if isinstance(statement, Block):
            continue
        special = statement if isinstance(statement, Special) else None
        if unit_of(nest, special) is None:
            message = f"block {site.path}, {described(number, statement)}: no unit of {hw.name} executes it"
            help = f"help: {_names([u.name for u in hw.units])}"
            yield Diagnostic("V065", message, statement.span or block.span, (help,))
            return


def _names(known: Sequence[str]) -> str:
    return f"the target has {', '.join(known)}" if known else "the target has none"
