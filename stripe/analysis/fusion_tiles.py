"""May a block compute what it needs of its producers inside its own tiles, in which, and does it pay?

A *group* is a consumer and blocks in front of it whose results nothing else uses. At each tile of
the consumer, the elements that it reads of a private buffer lie in a box that moves with the tile;
the producers compute that box, from the last to the first, and what their boxes share with those
of the next tile is computed again. Whatever the windows, strides and ratios, a dimension is one of

  moving   all reads of it move alike with the tile, and each producer has an index of its own for it
           that it writes along: then that index runs over the box;
  whole    anything else: each tile computes all of it.

Which sizes pay is decided by a roofline, for all candidates at once: the work of each block, with
what is computed again, against the bytes that each memory delivers. A private buffer
travels from the nearest memory that holds all of it, or, in tiles, from the nearest that
holds what a tile touches. That the tiles are right is then proved once more, in integer sets: every
read of a private buffer lies in its box, and every execution that writes into the box takes place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.bounds import Counts
from stripe.analysis.cost_sizes import balanced_sizes, possible_sizes
from stripe.analysis.deps import Access, conflicts, relation
from stripe.analysis.fusion_costs import GroupCosts, whole_steps
from stripe.analysis.fusion_shapes import Range, Refused, Shapes, Span
from stripe.analysis.fusion_sides import Scope, Side, settled
from stripe.ir import Block, Direction
from stripe.poly import Domain, PolyhedralLimit

CANDIDATES = 4096
MARGIN = 0.9  # a model is no clock: tiles must be expected to take less than this share of the time
SAFE_MARGIN = 0.99  # the same where no work is done again: tiles have saved more than it says


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Tiles of a consumer that are right and pay.

    `sizes`: the points of a tile along the consumer's tiled indexes. `ranges`: for each block of the group,
    the consumer last, those of its indexes that a tile restricts. `boxes`: what a tile holds of each private
    buffer. `apart` and `together` are the cycles that are expected without and with the tiles, and `margin`
    the share of the one that the other must stay below.
    """

    sizes: Mapping[str, int]
    ranges: tuple[Mapping[str, Range], ...]
    boxes: Mapping[str, tuple[Range, ...]]
    apart: float
    together: float
    margin: float
    figures: Mapping[str, object]
    summary: str


@dataclass(frozen=True, slots=True)
class NotTiled:
    """Why a group stays apart."""

    reason: str


def plan_tiles(
    scope: Scope,
    group: Sequence[Side],
    private: Sequence[str],
    hw: HwConfig,
    given: Mapping[str, int] | None = None,
) -> TilePlan | NotTiled:
    """The best tiles for a group, in the order of the program, the consumer last; or those of the `given`
    sizes, whether they pay or not.

    `private`: buffers that the producers write and only the group uses. Nothing outside of the group
    may have to run between its blocks. `scope` has no indexes of its own.
    """
    try:
        return _plan(scope, group, private, hw, given)
    except Refused as refused:
        return NotTiled(str(refused))
    except PolyhedralLimit:
        return NotTiled("their accesses are too complicated to compare")


def _plan(
    scope: Scope, group: Sequence[Side], private: Sequence[str], hw: HwConfig, given: Mapping[str, int] | None
) -> TilePlan | NotTiled:
    _check(scope, group, private)
    names = _tileable(group[-1], private)
    if not names:
        raise Refused(f"no index of '{group[-1].block.name}' moves along its results and what it reads")
    ranges = group[-1].block.ranges
    if given is None:
        steps = whole_steps(group[-1].block, scope.views, hw)
        choices = {n: _sizes(ranges[n], steps.get(n, 1)) for n in names}
    else:
        choices = _given(given, names, ranges)
    shapes = Shapes(scope, group, private, _grid(choices))
    moving = {name for box in shapes.boxes.values() for span in box for name in span.pace.names}
    if not moving:
        raise Refused("each tile of it would need all that its producers write")
    if len(moving) < len(names):  # the others cannot but stay whole
        choices = {n: sizes for n, sizes in choices.items() if n in moving}
        shapes = Shapes(scope, group, private, _grid(choices))
    costs = GroupCosts(shapes, hw)
    best = costs.best() if given is None else 0
    sizes = {n: int(column[best]) for n, column in shapes.sizes.items()}
    summary, figures = costs.explain(best)
    margin = MARGIN if costs.again(best) else SAFE_MARGIN
    if given is None and not costs.together[best] < margin * costs.apart:
        return NotTiled(f"it would not pay: {summary}")
    sizes = {n: size for n, size in sizes.items() if size < ranges[n]}
    plan = TilePlan(
        sizes,
        tuple(_restricted(s, side.block, best, sizes) for side, s in zip(group, shapes.spans, strict=True)),
        {
            b: tuple(
                s.at(best, sizes, whole) for s, whole in zip(box, scope.refinement(b).shape, strict=True)
            )
            for b, box in shapes.boxes.items()
        },
        costs.apart,
        float(costs.together[best]),
        margin,
        figures,
        summary,
    )
    _prove(scope, group, plan)
    return plan


def _given(
    given: Mapping[str, int], names: Sequence[str], ranges: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """The one size for each index; of those that are not given, all of the range."""
    for name, size in given.items():
        if name not in names:
            raise Refused(f"its tiles can be along {', '.join(names)}, not along {name}")
        if size > ranges[name]:
            raise Refused(
                f"{name} has {ranges[name]} points, the tile {size}: {size - ranges[name]} too many"
            )
    return {name: (given.get(name, ranges[name]),) for name in names}


def _restricted(
    spans: Mapping[str, Span], block: Block, candidate: int, sizes: Mapping[str, int]
) -> dict[str, Range]:
    """The ranges of the indexes that a tile does not run through from end to end."""
    found = {name: span.at(candidate, sizes, block.ranges[name]) for name, span in spans.items()}
    return {n: r for n, r in found.items() if r != Range(Affine(), block.ranges[n])}


# -- what must hold of a group ------------------------------------------------------------------


def _check(scope: Scope, group: Sequence[Side], private: Sequence[str]) -> None:
    *producers, consumer = group
    for side in group:
        block = side.block
        if block.location is not None or block.inflight != 1 or settled(block):
            raise Refused(f"'{block.name}' has a location or tags from an earlier pass")
        if any(index.passed is not None for index in block.indexes):
            raise Refused(f"'{block.name}' depends on an index of the block around it")
        if any(ref.source in scope.aliased for ref in block.refinements):
            raise Refused(f"'{block.name}' uses one of several views of a buffer")
    for side in producers:
        for ref in side.block.refinements:
            if ref.direction is Direction.INOUT or (ref.direction.writes and ref.source not in private):
                raise Refused(f"'{side.block.name}' changes '{ref.source}', so it can't run again")
        for buffer in side.by_buffer:
            own = side.to(buffer)
            if any(a.reads for a in own) and any(a.writes for a in own):
                raise Refused(f"'{side.block.name}' reads what it wrote to '{buffer}'")
    for at, one in enumerate(group):
        for other in group[at + 1 :]:
            for pair in conflicts(one.meeting(other), other.meeting(one)):
                if pair[0].buffer not in private and not relation(*pair).is_empty():
                    raise Refused(
                        f"'{other.block.name}' writes '{pair[0].buffer}', which '{one.block.name}' uses"
                    )
    for buffer in private:
        if any(a.writes for a in consumer.to(buffer)):
            raise Refused(f"'{consumer.block.name}' writes '{buffer}', too")
        readers = [at for at, side in enumerate(group) if any(a.reads for a in side.to(buffer))]
        writers = [at for at, side in enumerate(group) if any(a.writes for a in side.to(buffer))]
        if readers and writers and readers[0] <= writers[-1]:
            raise Refused(f"'{buffer}' is written again after it was read")


def _tileable(consumer: Side, private: Sequence[str]) -> list[str]:
    """The consumer's indexes that its results, and what it reads of private buffers, move along."""

    def along(access: Access, name: str) -> bool:
        return any(expr.coefficient(consumer.dim(name)) for expr in access.element)

    reads = [a for buffer in private for a in consumer.to(buffer) if a.reads]
    return [
        name
        for name, size in consumer.block.ranges.items()
        if size > 1 and all(along(w, name) for w in consumer.writes) and any(along(r, name) for r in reads)
    ]


def _sizes(range_: int, step: int) -> tuple[int, ...]:
    """Sizes of whole steps: parts of one take as long."""
    steps = -(-range_ // step)
    counts = {*possible_sizes(steps, "divisors"), *balanced_sizes(steps)}
    return tuple(sorted({min(n * step, range_) for n in counts}))


def _grid(choices: Mapping[str, Sequence[int]]) -> dict[str, Counts]:
    """Every combination of the sizes, one entry each; of too many, sizes stay that are a factor apart."""
    factor, whole = 1.0, choices
    while prod(len(sizes) for sizes in choices.values()) > CANDIDATES and factor < 16:
        factor *= 1.1
        choices = {name: _spaced(sizes, factor) for name, sizes in whole.items()}
    axes = np.meshgrid(*(np.asarray(sizes, np.int64) for sizes in choices.values()), indexing="ij")
    return {name: axis.ravel() for name, axis in zip(choices, axes, strict=True)}


def _spaced(sizes: Sequence[int], factor: float) -> tuple[int, ...]:
    kept = [sizes[0]]
    for size in sizes:
        if size >= kept[-1] * factor:
            kept.append(size)
    return tuple(dict.fromkeys((*kept, sizes[-1])))


# -- proof --------------------------------------------------------------------------------------


def _prove(scope: Scope, group: Sequence[Side], plan: TilePlan) -> None:
    """At each tile, every read of a private buffer lies in its box, and every execution that writes
    an element of a box has its indexes in the ranges of the tile."""
    counts = {n: -(-group[-1].block.ranges[n] // size) for n, size in plan.sizes.items()}
    tile = {name: f"#{name}" for name in counts}
    limits = [e for n, count in counts.items() for e in _within(Affine.index(tile[n]), count)]
    for side, ranges in zip(group, plan.ranges, strict=True):
        own = {
            name: Affine.index(side.dim(name)) - range_.origin.rename(tile.__getitem__)
            for name, range_ in ranges.items()
        }
        inside = [e for name, expr in own.items() for e in _within(expr, ranges[name].size)]
        for buffer, box in plan.boxes.items():
            for access in side.to(buffer):
                places = [
                    (expr - range_.origin.rename(tile.__getitem__), range_.size)
                    for expr, range_ in zip(access.element, box, strict=True)
                ]
                names = (*access.names, *tile.values())
                if access.reads:
                    domain = Domain.of(names, (*access.conditions, *limits, *inside))
                    wanted = places
                else:
                    in_box = [e for expr, size in places for e in _within(expr, size)]
                    domain = Domain.of(names, (*access.conditions, *limits, *in_box))
                    wanted = [(expr, ranges[name].size) for name, expr in own.items()]
                if domain.is_empty():
                    continue
                for expr, size in wanted:
                    found = domain.bounds(expr)
                    if found is None or found[0] < 0 or found[1] >= size:
                        raise Refused(f"the tiles of '{buffer}' are not proved to hold what is needed")


def _within(expr: Affine, size: int) -> tuple[Affine, Affine]:
    return expr, Affine(size - 1) - expr
