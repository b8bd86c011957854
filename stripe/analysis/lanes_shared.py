"""The lane index of each leaf of a nest where none is settled yet: leaves of one point go together.

Where one leaf hands a value to another at each point of a block, in a buffer of one element, the two run
along one index of that block, or one of them sums up along an index of its own and hands over one value
after the other. The cheapest way for all of them together is chosen: by itself, a leaf might like an index
that makes the other take vectors apart.

    block s [m:64, n:64] (... new S (1)) {            along n: A is a splat, B and T are vectors
      block s [k:8] (in A[m, k]  in B[k, n]  out S:add)
      block t [] (in S  out T[m, n]) }                along k: one value of T at a time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from stripe.analysis.bounds import Leaf, Views, leaves
from stripe.analysis.groups import grouped
from stripe.analysis.lanes import Lane, lane_candidates
from stripe.ir import Block, Direction, Load, Special, Store

HANDED = 1.0  # instructions for one value that leaves a vector


@dataclass(slots=True)
class _Tie:
    """Leaves, by number, that share buffers of one element at the points of a block: that of their first
    `depth` indexes."""

    depth: int
    leaves: set[int] = field(default_factory=set)


def shared_lanes(
    block: Block, outer: Views, vector_bytes: int, packed: bool = False, path_bytes: int | None = None
) -> tuple[tuple[Leaf, Lane | None], ...]:
    """Every leaf of the nest under `block`, whose parent has the views `outer`, with its lane. The indexes
    of a block of tiles count tiles: none of them is a lane. `packed` (for a leaf that is alone) and
    `path_bytes` (for sums; what only moves elements waits for memory): as in `lane_candidates`."""
    found = [grouped(leaf) for leaf in leaves(block, outer, every_level=True)]
    packed = packed and len(found) == 1
    tiles = set(block.ranges) if block.has_tag("tiled") else set()
    options = [
        lane_candidates(
            leaf, vector_bytes, leaf.ranges.keys() - tiles, packed, path_bytes if leaf.reductions else None
        )
        for leaf in found
    ]
    lanes = [lanes[0] if lanes else None for lanes in options]
    for tie in _ties(block):
        for number, lane in _together(tie, found, options).items():
            lanes[number] = lane
    return tuple(zip(found, lanes, strict=True))


def _together(tie: _Tie, found: Sequence[Leaf], options: Sequence[Sequence[Lane]]) -> dict[int, Lane | None]:
    """The cheapest choice for the leaves of a tie: one index of the block for all, or own ones below it."""
    members = sorted(tie.leaves)
    shared = tuple(found[members[0]].ranges)[: tie.depth]
    choices: list[dict[int, Lane | None]] = []
    for name in shared:
        named = {n: next((lane for lane in options[n] if lane.index == name), None) for n in members}
        if None not in named.values():
            choices.append({**named})
    own: dict[int, Lane | None] = {
        n: next((lane for lane in options[n] if lane.index not in shared), None) for n in members
    }
    if any(own.values()):
        choices.append({n: lane or next(iter(options[n]), None) for n, lane in own.items()})

    def cost(choice: Mapping[int, Lane | None]) -> float:
        total = 0.0
        for n, lane in choice.items():
            points = found[n].points
            total += points * (lane.cost if lane is not None else len(found[n].operands))
            if lane is not None and lane.index not in shared:
                total += HANDED * prod(found[n].ranges[name] for name in shared)
        return total

    return min(choices, key=cost, default={})


def _ties(block: Block) -> list[_Tie]:
    """The ties of a nest, its leaves numbered in order."""
    ties: list[_Tie] = []
    _collect(block, {}, 0, 0, ties)
    joined: list[_Tie] = []
    for tie in ties:
        for other in [other for other in joined if other.leaves & tie.leaves]:
            joined.remove(other)
            tie = _Tie(min(tie.depth, other.depth), tie.leaves | other.leaves)
        joined.append(tie)
    return [tie for tie in joined if len(tie.leaves) > 1]


def _collect(block: Block, seen: Mapping[str, _Tie], depth: int, number: int, ties: list[_Tie]) -> int:
    """Add the ties of a block and what is below it, of which the first leaf has a number; the next number."""
    depth += len(block.ranges)
    here: dict[str, _Tie] = {}
    for ref in block.refinements:
        if ref.direction is Direction.NEW:
            if prod(ref.shape) == 1:
                here[ref.name] = _Tie(depth)
                ties.append(here[ref.name])
        elif ref.source in seen:
            here[ref.name] = seen[ref.source]
    used = [s.buffer for s in block.statements if isinstance(s, Load | Store)]
    if used or any(isinstance(s, Special) for s in block.statements):
        for name in used:
            if name in here:
                here[name].leaves.add(number)
        number += 1
    for child in block.children:
        number = _collect(child, here, depth, number, ties)
    return number
