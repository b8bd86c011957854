"""What nests cost units that share their memories: how long one takes, and to write what all of them read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from hwconfigs.model import HwConfig, Unit
from stripe.analysis.bounds import leaves
from stripe.analysis.work import vector_operations
from stripe.ir import Block, Direction, Intrinsic, Refinement
from stripe.passes.partition_nest import touched
from stripe.visit import View

# Operations that take one instruction; others count as a polynomial.
_SIMPLE = frozenset(
    [
        "add", "sub", "mul", "neg", "abs", "max", "min", "select", "and", "or", "not", "xor",
        "eq", "ne", "lt", "le", "gt", "ge", "floor", "ceil",
    ]
)  # fmt: skip
_POLYNOMIAL = 15


def nest_cycles(block: Block, outer: Mapping[str, View], unit: Unit, hw: HwConfig) -> float:
    """About how long a nest takes on one unit: arithmetic, or the bytes that its memory delivers."""
    arithmetic = 0.0
    for leaf in leaves(block, outer):
        widest = max((o.dtype.bytes for o in leaf.operands), default=4)
        lanes = max(1, unit.vector_bytes // widest) if leaf.block.has_tag("vector") else 1
        hard = sum(isinstance(s, Intrinsic) and s.op not in _SIMPLE for s in leaf.block.statements)
        each = vector_operations(leaf) + hard * _POLYNOMIAL
        arithmetic += leaf.points * each / lanes / unit.fma_per_cycle
    moved = touched(block, outer, {})
    memories = [m for m in hw.memories if m.kind != "registers"]
    holds = next((m for m in memories if m.bytes is None or m.bytes >= moved), None)
    rate = holds.bytes_per_cycle if holds is not None else None
    return max(arithmetic, moved / rate if rate else 0.0)


def shared_cycles(pieces: Mapping[int, Collection[str]], parent: Block, nest: Block, unit: Unit) -> float:
    """Cycles that it takes a unit to write its part of those buffers beside a nest that every unit reads
    all of. `pieces` are the blocks that are cut, by identity, and along which indexes."""
    if unit.shared_bytes_per_cycle is None:
        return 0.0
    found: dict[str, int] = {}

    def look(block: Block, known: Mapping[str, Refinement]) -> None:
        names = pieces.get(id(block), ())
        inside = {
            ref.name: known[ref.source]
            for ref in block.refinements
            if ref.source in known and not any(n in names for expr in ref.access for n in expr.names)
        }
        if not block.children:
            read = (inside[r.name] for r in block.refinements if r.direction.reads and r.name in inside)
            found.update((buffer.name, prod(buffer.shape) * buffer.dtype.bytes) for buffer in read)
        for child in block.children:
            look(child, inside)

    own = (r for r in parent.refinements if r.direction is Direction.NEW and r.location is None)
    look(nest, {ref.name: ref for ref in own})
    return sum(found.values()) / unit.count / unit.shared_bytes_per_cycle
