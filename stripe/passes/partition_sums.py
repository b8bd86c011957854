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
from stripe.analysis.footprint import Box, written_cells
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
from stripe.rewrite import flatten, raise_rank, tile_block
from stripe.visit import View, buffers_used

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

    Of a nest each point adds to all that its view of a result shows.

    before:  block t [k:4096] (in X[k, 0] (1, 2048)  out S[0]:add (2048)) {...}
    after:   block t_parts [k:64, k_1:64] (in X[64*k + k_1, 0] (1, 2048)  out P[k, 0]:add (1, 2048)) {...}
             block t [k:64, n:2048] (in P[k, n]  out S[n]:add) {...}

    `piece` is the index to cut and the points of a part; given, they are not asked whether they pay.
    """
    results = [r for r in block.refinements if r.direction.writes]
    reason = _refusal(block, results)
    if reason:
        return Parted(reason=reason)
    one = all(prod(_shape(block, r)) == 1 for r in results)
    found = piece or (_piece(block) if one else _rows(block, outer, results, hw))
    if found is None:
        return Parted(reason="its results depend on an index, along which it can be cut")
    index = found[0]
    summed = [r for r in results if index not in _along(block, r)]
    if not summed:
        return Parted(reason=f"its results depend on {index}: a sum is cut along what it adds up")
    reason = next(filter(None, (_kept_whole(block, r) for r in summed)), "")
    if reason:
        return Parted(reason=reason)
    cycles = nest_cycles(block, outer, unit, hw)
    if cycles <= 2 * unit.startup_cycles and piece is None:
        reason = (
            f"it takes about {cycles:.0f} cycles, and to start {unit.name} takes {unit.startup_cycles:.0f}"
        )
        return Parted(reason=reason, cycles=cycles)
    return replace(_cut(block, summed, found, names), cycles=cycles)


def _cut(block: Block, summed: Sequence[Refinement], piece: tuple[str, int], names: Names) -> Parted:
    """The kernel in parts, and the sums of what they have of each of these results."""
    index, size = piece
    several = sum(r.direction.writes for r in block.refinements) > 1
    partial: dict[str, Refinement] = {}
    buffers, sums = list[Refinement](), list[Block]()
    statements = block.statements
    for result in summed:
        along, inside = _along(block, result), _inside(block, result)
        own = Names([index, *along])
        cells = (
            *(i for i in block.indexes if i.name in along),
            *(Index(own.fresh(f"d{at}"), length) for at, length in enumerate(inside)),
        )
        shape = (-(-block.ranges[index] // size), *(i.range for i in cells))
        name = result.name if several else block.name
        made = Refinement(Direction.NEW, names.fresh(f"{name}_part"), shape, result.dtype, span=result.span)
        buffers.append(replace(made, strides=contiguous(shape)))
        first = (Affine(), *map(Affine.index, along), *[Affine()] * len(inside))
        partial[result.name] = replace(
            result, source=made.name, access=first, shape=(*[1] * (1 + len(along)), *inside)
        )
        statements = tuple(raise_rank(s, result.name, 1 + len(along)) for s in statements)
        sums.append(_sum_of(block, result, made, Index(index, shape[0]), cells, name))
    cut = replace(
        block,
        name=f"{block.name}_parts",
        refinements=tuple(partial.get(r.name, r) for r in block.refinements),
        statements=statements,
    )
    tiled = tile_block(cut, {index: size})
    views = tuple(
        replace(r, access=(Affine.index(index), *r.access[1:])) if r.name in partial else r
        for r in tiled.refinements
    )
    parts = flatten(replace(tiled, refinements=views))
    return Parted((parts, *sums), tuple(buffers), piece=piece)


def _sum_of(
    block: Block, result: Refinement, parts: Refinement, part: Index, cells: tuple[Index, ...], name: str
) -> Block:
    """The block that adds up the partial results; `cells` are the indexes of a part's elements, those of
    the block ahead of those of the result's view."""
    inside = [Affine.index(i.name) for i in cells[len(_along(block, result)) :]]
    access = result.access
    if inside:
        access = tuple(origin + at for origin, at in zip(access, inside, strict=True))
    place, ones = (part, *cells), (1,) * (1 + len(cells))
    view = tuple(Affine.index(i.name) for i in place)
    return Block(
        name,
        place,
        refinements=(
            Refinement(Direction.IN, parts.name, ones, parts.dtype, parts.name, view),
            replace(result, access=access, shape=(1,) * len(result.shape)),
        ),
        statements=(Load("v", parts.name, parts.dtype), Store(result.name, "v")),
        span=block.span,
    )


def _along(block: Block, result: Refinement) -> list[str]:
    """The indexes on which a result depends, from the outermost."""
    return [name for name in block.ranges if any(name in expr.names for expr in result.access)]


def _inside(block: Block, result: Refinement) -> tuple[int, ...]:
    """What one point of a nest writes of a result; a leaf writes one element."""
    return result.shape if block.children else ()


def _shape(block: Block, result: Refinement) -> tuple[int, ...]:
    """What all points write of a result."""
    return (*(block.ranges[name] for name in _along(block, result)), *_inside(block, result))


def _refusal(block: Block, results: Sequence[Refinement]) -> str:
    if any(isinstance(s, Special) for s in block.statements):
        return "it runs a special"
    stores = sum(isinstance(s, Store) for s in block.statements)
    if stores != (0 if block.children else len(results)):
        return "it stores a result in several places"
    reasons = [_kept_whole(block, result) for result in results]
    if all(reasons):
        return reasons[0]
    if block.constraints:
        return "its points are limited, and a part of them may be empty"
    if block.location is not None or (not block.children and _makes_buffers(block)):
        return "it has buffers or a unit of its own"
    if max(block.ranges.values(), default=1) < 2:
        return "it has one point"
    return ""


def _makes_buffers(block: Block) -> bool:
    return any(r.direction is Direction.NEW for r in block.refinements)


def _kept_whole(block: Block, result: Refinement) -> str:
    """Why there are no parts of a result, as a clause; empty if there may be."""
    if result.aggregation is Aggregation.ASSIGN or result.direction is not Direction.OUT:
        return "it is no sum that starts anew"
    if rounds_partial_sums(result.dtype, result.aggregation):
        return f"partial sums would be rounded to {result.dtype.value}"
    if block.children and not _writes_all(block, result):
        return "a point of it does not add to all that its view shows"
    return ""


def _writes_all(block: Block, result: Refinement) -> bool:
    """Whether each point of a nest writes the whole view of a result, in one of its statements."""
    writers = [s for s in block.statements if (result.name, Direction.OUT) in buffers_used(s)]
    whole = Box((Affine(),) * len(result.shape), result.shape)
    return len(writers) == 1 and written_cells(block, writers[0], result.name, whole) == ([], [])


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
    summed = [r for r in results if index not in _along(block, r)]
    if size <= own.bytes or size < prod(ranges.values()) * read.dtype.bytes or not summed:
        return None
    row = sum(prod(_shape(block, r)) * r.dtype.bytes for r in summed)
    most = min(PARTS, ranges[index], size // (_SHARE * row))
    if most < _LEAST or 2 * row > own.bytes:
        return None
    parts = 1 << most.bit_length() - 1  # most numbers of units share out a power of two evenly
    return index, -(-ranges[index] // parts)
