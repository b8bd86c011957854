"""Cuts of sums whose points all write the same elements: partial results first, then one of them all.

The number of parts is always the same, so that the result does not depend on how many units there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Direction,
    Index,
    Load,
    Refinement,
    Special,
    Statement,
    Store,
)
from stripe.names import Names
from stripe.passes.partition_costs import nest_cycles
from stripe.rewrite import flatten, tile_block
from stripe.visit import View

PARTS = 64  # partial results of a sum
_ALIGNED = 64  # points of a part are a multiple of this, where there are many
_NARROW = (DType.F16, DType.BF16)
_ROUNDED = (Aggregation.ADD, Aggregation.MUL)


@dataclass(frozen=True, slots=True)
class Parted:
    """A sum in two steps, with the buffer between them; or why there are none, and what it takes."""

    statements: tuple[Statement, ...] = ()
    buffer: Refinement | None = None
    reason: str = ""
    cycles: float = 0.0
    piece: tuple[str, int] = ("", 0)


def in_parts(
    block: Block,
    outer: Mapping[str, View],
    names: Names,
    unit: Unit,
    hw: HwConfig,
    piece: tuple[str, int] | None = None,
) -> Parted:
    """A kernel that adds all it computes to one element, as partial sums and the sum of these.

    before:  block s [k:6400] (in X[k]  out S[]:add) {...}
    after:   block s_parts [k:64, k_1:100] (in X[100*k + k_1]  out P[k]:add) {...}
             block s [k:64] (in P[k]  out S[]:add) {...}

    `piece` is the index to cut and the points of a part; given, they are not asked whether they pay.
    """
    reason = _refusal(block)
    if reason:
        return Parted(reason=reason)
    cycles = nest_cycles(block, outer, unit, hw)
    if cycles <= 2 * unit.startup_cycles and piece is None:
        reason = (
            f"it takes about {cycles:.0f} cycles, and to start {unit.name} takes {unit.startup_cycles:.0f}"
        )
        return Parted(reason=reason, cycles=cycles)
    result = next(r for r in block.refinements if r.direction.writes)
    index, size = piece or _piece(block)
    buffer = names.fresh(f"{block.name}_part")
    inner = replace(result, source=buffer, access=(Affine(),), shape=(1,))
    refinements = tuple(inner if r is result else r for r in block.refinements)
    tiled = tile_block(replace(block, name=f"{block.name}_parts", refinements=refinements), {index: size})
    parts = tiled.ranges[index]
    views = tuple(
        replace(r, access=(Affine.index(index),)) if r.name == result.name else r for r in tiled.refinements
    )
    first = flatten(replace(tiled, refinements=views))
    made = Refinement(Direction.NEW, buffer, (parts,), result.dtype, strides=(1,), span=result.span)
    last = Block(
        block.name,
        (Index(index, parts),),
        refinements=(
            Refinement(Direction.IN, buffer, (1,), result.dtype, buffer, (Affine.index(index),)),
            result,
        ),
        statements=(Load("v", buffer, result.dtype), Store(result.name, "v")),
        span=block.span,
    )
    return Parted((first, last), made, cycles=cycles, piece=(index, size))


def _refusal(block: Block) -> str:
    results = [r for r in block.refinements if r.direction.writes]
    if any(isinstance(s, Block | Special) for s in block.statements):
        return "it is more than one block"
    if len(results) != 1 or sum(isinstance(s, Store) for s in block.statements) != 1:
        return "it has several results"
    (result,) = results
    if result.aggregation is Aggregation.ASSIGN or result.direction is not Direction.OUT:
        return "it is no sum that starts anew"
    if any(name in block.ranges for expr in result.access for name in expr.names):
        return "its results depend on an index, along which it can be cut"
    if result.dtype in _NARROW and result.aggregation in _ROUNDED:
        return f"partial sums would be rounded to {result.dtype.value}"
    if block.constraints:
        return "its points are limited, and a part of them may be empty"
    if any(r.direction is Direction.NEW for r in block.refinements) or block.location is not None:
        return "it has buffers or a unit of its own"
    if max(block.ranges.values(), default=1) < 2:
        return "it has one point"
    return ""


def _piece(block: Block) -> tuple[str, int]:
    """The index to cut, the outermost that is long enough or else the longest, and the points of a part."""
    ranges = block.ranges
    longest = max(ranges, key=lambda name: ranges[name])
    index = next((name for name, length in ranges.items() if length >= PARTS), longest)
    size = -(-ranges[index] // PARTS)
    return index, size if size < _ALIGNED else -(-size // _ALIGNED) * _ALIGNED
