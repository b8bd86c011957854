"""Cuts of sums whose results are few: partial results first, then one of them all.

The number of parts is always the same, so that the result does not depend on how many units there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig, Unit, own_cache
from stripe.affine import Affine
from stripe.analysis.bounds import operands, touched_elements
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
    contiguous,
    rounds_partial_sums,
)
from stripe.names import Names
from stripe.passes.partition_costs import nest_cycles
from stripe.rewrite import flatten, tile_block
from stripe.visit import View

PARTS = 64  # partial results of a sum
_LEAST = 8  # the same, where each of them is a row
_SHARE = 64  # times as many bytes as all rows of partial results has the input whose rows these add up
_ALIGNED = 64  # points of a part are a multiple of this, where there are many


@dataclass(frozen=True, slots=True)
class Parted:
    """Sums in two steps, with the buffers between them; or why there are none, and what the nest takes."""

    statements: tuple[Statement, ...] = ()
    buffers: tuple[Refinement, ...] = ()
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
    """A kernel that adds all it computes to one element, as partial sums and the sum of these; so, too, one
    that goes once through an input from beyond the caches of the units, whose rows it adds up.

    before:  block s [k:6400] (in X[k]  out S[]:add) {...}
    after:   block s_parts [k:64, k_1:100] (in X[100*k + k_1]  out P[k]:add) {...}
             block s [k:64] (in P[k]  out S[]:add) {...}

    before:  block s [k:4096, n:2048] (in X[k, n]  out S[n]:add) {...}
    after:   block s_parts [k:64, k_1:64, n:2048] (in X[64*k + k_1, n]  out P[k, n]:add) {...}
             block s [k:64, n:2048] (in P[k, n]  out S[n]:add) {...}

    Cut along its results, each unit would read a piece of every row: a core fetches ahead by itself what
    lies side by side, and no farther than the gap.

    Of several results those that depend on the index of the cut stay as they are.

    before:  block t [k:4096, n:2048] (in X[k, n]  out S[n]:add  out T[k]:add) {...}
    after:   block t_parts [k:64, k_1:64, n:2048] (in X[...]  out P[k, n]:add  out T[64*k + k_1]:add) {...}
             block S [k:64, n:2048] (in P[k, n]  out S[n]:add) {...}

    `piece` is the index to cut and the points of a part; given, they are not asked whether they pay.
    """
    results = [r for r in block.refinements if r.direction.writes]
    reason = _refusal(block, results)
    if reason:
        return Parted(reason=reason)
    found = piece or (_rows(block, outer, results, hw) if _along(block, results) else _piece(block))
    if found is None:
        return Parted(reason="its results depend on an index, along which it can be cut")
    index, size = found
    summed = [r for r in results if index not in _along(block, [r])]
    if not summed:
        return Parted(reason=f"its results depend on {index}: a sum is cut along what it adds up")
    reason = next(filter(None, map(_kept_whole, summed)), "")
    if reason:
        return Parted(reason=reason)
    cycles = nest_cycles(block, outer, unit, hw)
    if cycles <= 2 * unit.startup_cycles and piece is None:
        reason = (
            f"it takes about {cycles:.0f} cycles, and to start {unit.name} takes {unit.startup_cycles:.0f}"
        )
        return Parted(reason=reason, cycles=cycles)
    partial: dict[str, Refinement] = {}
    buffers, sums = list[Refinement](), list[Block]()
    for result in summed:
        name = block.name if len(results) == 1 else result.name
        along = _along(block, [result])
        each = tuple(Affine.index(at) for at in along)
        shape = (-(-block.ranges[index] // size), *(block.ranges[at] for at in along))
        made = Refinement(Direction.NEW, names.fresh(f"{name}_part"), shape, result.dtype, span=result.span)
        buffers.append(replace(made, strides=contiguous(shape)))
        ones = (1,) * len(shape)
        partial[result.name] = replace(result, source=made.name, access=(Affine(), *each), shape=ones)
        part = Refinement(
            Direction.IN, made.name, ones, result.dtype, made.name, (Affine.index(index), *each)
        )
        sums.append(
            Block(
                name,
                (Index(index, shape[0]), *(i for i in block.indexes if i.name in along)),
                refinements=(part, result),
                statements=(Load("v", part.name, part.dtype), Store(result.name, "v")),
                span=block.span,
            )
        )
    refinements = tuple(partial.get(r.name, r) for r in block.refinements)
    tiled = tile_block(replace(block, name=f"{block.name}_parts", refinements=refinements), {index: size})
    views = tuple(
        replace(r, access=(Affine.index(index), *r.access[1:])) if r.name in partial else r
        for r in tiled.refinements
    )
    first = flatten(replace(tiled, refinements=views))
    return Parted((first, *sums), tuple(buffers), cycles=cycles, piece=found)


def _along(block: Block, results: Sequence[Refinement]) -> list[str]:
    """The indexes on which some of these results depend, from the outermost."""
    used = {name for result in results for expr in result.access for name in expr.names}
    return [name for name in block.ranges if name in used]


def _refusal(block: Block, results: Sequence[Refinement]) -> str:
    if any(isinstance(s, Block | Special) for s in block.statements):
        return "it is more than one block"
    if sum(isinstance(s, Store) for s in block.statements) != len(results):
        return "it stores a result in several places"
    if all(_kept_whole(result) for result in results):
        return _kept_whole(results[0])
    if block.constraints:
        return "its points are limited, and a part of them may be empty"
    if any(r.direction is Direction.NEW for r in block.refinements) or block.location is not None:
        return "it has buffers or a unit of its own"
    if max(block.ranges.values(), default=1) < 2:
        return "it has one point"
    return ""


def _kept_whole(result: Refinement) -> str:
    """Why there are no parts of a result, as a clause; empty if there may be."""
    if result.aggregation is Aggregation.ASSIGN or result.direction is not Direction.OUT:
        return "it is no sum that starts anew"
    if rounds_partial_sums(result.dtype, result.aggregation):
        return f"partial sums would be rounded to {result.dtype.value}"
    return ""


def _piece(block: Block) -> tuple[str, int]:
    """The index to cut, the outermost that is long enough or else the longest, and the points of a part."""
    ranges = block.ranges
    longest = max(ranges, key=lambda name: ranges[name])
    index = next((name for name, length in ranges.items() if length >= PARTS), longest)
    size = -(-ranges[index] // PARTS)
    return index, size if size < _ALIGNED else -(-size // _ALIGNED) * _ALIGNED


def _rows(
    block: Block, outer: Mapping[str, View], results: Sequence[Refinement], hw: HwConfig
) -> tuple[str, int] | None:
    """The outermost index of the input that is read once and does not stay in a core's caches, and the points
    of a part, if results depend on the others: on how many units there are, nothing here depends."""
    ranges, own = block.ranges, own_cache(hw.memories)
    inputs = [o for o in operands(block, outer) if o.direction.reads]
    if not inputs or own is None or own.bytes is None:
        return None
    sizes = [int(touched_elements(o, ranges)) * o.dtype.bytes for o in inputs]
    size, read = max(zip(sizes, inputs, strict=True), key=lambda entry: entry[0])
    index = max(ranges, key=lambda name: abs(read.stride(name)) if ranges[name] > 1 else 0)
    summed = [r for r in results if index not in _along(block, [r])]
    if size <= own.bytes or size < prod(ranges.values()) * read.dtype.bytes or not summed:
        return None
    row = sum(prod(ranges[name] for name in _along(block, [r])) * r.dtype.bytes for r in summed)
    most = min(PARTS, ranges[index], size // (_SHARE * row))
    if most < _LEAST or 2 * row > own.bytes:
        return None
    parts = 1 << most.bit_length() - 1  # most numbers of units share out a power of two evenly
    return index, -(-ranges[index] // parts)
