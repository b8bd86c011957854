"""Verifier: what is alive at once in a memory fits into it (V037)."""

from __future__ import annotations

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.liveness import enough_text, part_bytes, peaks
from stripe.diag import Diagnostic
from stripe.ir import Block, Direction
from stripe.verify_structure import Site, described, sites

_SMALLER = "help: use smaller tiles, fewer points in flight, or a farther memory"


def capacity_findings(root: Block, hw: HwConfig) -> list[Diagnostic]:
    """V037: what is alive at once in each memory fits into it, all copies for slots, units and banks counted.

    Of registers of native code and of caches it counts the buffers that a point of each block holds.
    """
    limits = {memory.name: memory for memory in hw.memories if memory.bytes is not None}
    found = []
    if any(map(hw.has_addresses, limits.values())):
        for name, most in peaks(root, hw).items():
            memory = limits.get(name)
            if memory is None or memory.bytes is None or not hw.has_addresses(memory):
                continue
            limit = memory.bytes * memory.count
            if most.bytes > limit:
                block = most.scope.block
                statement = block.statements[most.statement] if block.statements else None
                where = f", {described(most.statement, statement)}" if statement is not None else ""
                span = statement.span if statement is not None else None
                message = (
                    f"block {most.scope.path}{where}: {most.bytes} bytes are alive at once in {name}, "
                    f"{most.bytes - limit} more than the {limit} that it has in {hw.name}"
                )
                advice = "help: " + enough_text({name: -(-most.bytes // memory.count)}, hw)
                found.append(Diagnostic("V037", message, span or block.span, (_SMALLER, advice)))
    held = {name: memory for name, memory in limits.items() if not hw.has_addresses(memory)}
    every = sites(root)
    if any(
        ref.location is not None and ref.location.unit in held for s in every for ref in s.block.refinements
    ):
        found += _held_findings(root, every, held, hw)
    return found


def _held_findings(
    root: Block, every: list[Site], limits: dict[str, Memory], hw: HwConfig
) -> list[Diagnostic]:
    """V037 for register files and caches: buffers of a block live as long as its point, once for each
    point in flight; of the statements of a point, one is executed at a time."""
    alive: dict[int, dict[str, int]] = {}  # bytes in each memory while a block is executed
    for site in reversed(every):
        block = site.block
        need: dict[str, int] = {}
        for child in block.children:
            for memory, size in alive[id(child)].items():
                need[memory] = max(need.get(memory, 0), size)
        for ref in block.refinements:
            if ref.direction is Direction.NEW and ref.location is not None and ref.location.unit in limits:
                need[ref.location.unit] = need.get(ref.location.unit, 0) + part_bytes(ref)
        alive[id(block)] = {memory: size * block.inflight for memory, size in need.items()}
    return [
        Diagnostic(
            "V037",
            f"block {root.name}: {alive[id(root)][name]} bytes are alive at once in {name}, "
            f"{alive[id(root)][name] - memory.bytes} more than the {memory.bytes} that it has in {hw.name}",
            root.span,
            (_SMALLER, "help: " + enough_text({name: alive[id(root)][name]}, hw)),
        )
        for name, memory in limits.items()
        if memory.bytes is not None and alive[id(root)].get(name, 0) > memory.bytes
    ]
