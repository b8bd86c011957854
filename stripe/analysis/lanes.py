"""Which index of a leaf block should run along the lanes of a vector.

The choice counts vector instructions for one point. Along a lane index, an operand that moves by
one element is one vector access, one that does not move is a splat, one with another stride is
taken apart; a store that does not move is a reduction, summed across the lanes at the end. What
does not depend on a reduction index is loaded or stored once for all its steps. A range that is
no multiple of the width leaves lanes idle.

Where the elements of an operand that lie apart along the lanes lie side by side along another index, a
square of both can be turned in registers: whole vectors along the one become vectors along the other.
Short rows are summed up in such squares, too: their lanes need not be folded then.
An input that is read again and again may be read from a copy in which its elements lie side by side: before
such copies are made, a lane index is chosen with their price in mind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import ceil, log2, prod
from typing import Any

import numpy as np

from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, Operand, Sizes, Views, leaves, of_leaf
from stripe.analysis.groups import grouped
from stripe.analysis.work import FUNCTION, INSTRUCTIONS
from stripe.ir import Aggregation, Block, Cast, Constant, Direction, Intrinsic, Load, Special, Store

SPLAT = 0.5  # a broadcast from memory often joins the arithmetic instruction
STORE = 1.5  # a scattered element costs more than a gathered one
DEALT = range(2, 5)  # elements apart: loads of whole vectors and shuffles pick such lanes
COPIED = 8  # times that each element of an input is read before copies in tiles are worth a thought
SUMS_IN_TURN = 4  # vectors that one element is summed up in, where a loop only adds up: they hide the latency
MOST_IN_TURN = 16  # statements of such a loop
JOINED = 16  # the same where a copy has rows follow each other along the lanes
IDLE = 0.2  # of the lanes, where vectors end with each row: what makes it worth more than tiles as they are
JOINED_STEPS = 256  # of sums of which rows follow each other in registers alone: their stores wait for parts


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane index: `width` elements fill a vector, `cost` is in vector instructions per point.

    `reduces` says that some store does not depend on the index. Where it has fewer points than lanes, vectors
    are narrower, and take a `share` of the time of a full one.
    """

    index: str
    width: int
    reduces: bool
    cost: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Square:
    """A lane index, and an index across: squares of both are turned. `cost` is as in `Lane`."""

    lane: Lane
    across: str
    cost: float


def vector_width(block: Block, vector_bytes: int) -> int:
    """How many elements fill a vector: as many as the widest type of the block's scalars allows."""
    widest = max(
        (s.dtype.bytes for s in block.statements if isinstance(s, Load | Intrinsic | Cast)), default=1
    )
    return max(1, vector_bytes // widest)


def in_whole_vectors(shape: tuple[int, ...], strides: tuple[int, ...], lanes: int) -> tuple[int, ...]:
    """The strides that a buffer in registers gets: whole vectors along the dense dimension, so that no two
    rows share one.

    Strides that leave gaps, or are those of an overlapping layout, stay as they are.
    """
    order = sorted(range(len(shape)), key=lambda d: strides[d])
    dense, step = [0] * len(shape), 1
    padded = [0] * len(shape)
    padded_step = 1
    for position, dim in enumerate(order):
        dense[dim], padded[dim] = step, padded_step
        step *= shape[dim]
        padded_step *= _whole_vectors(shape[dim], lanes) if position == 0 else shape[dim]
    return tuple(padded) if tuple(dense) == strides else strides


def _whole_vectors(size: int, lanes: int) -> int:
    """`size` with what is left over whole vectors rounded up to a power of two."""
    left = size % lanes
    return size - left + (1 << ceil(log2(left)) if left else 0)


def access_instructions(operand: Operand, index: str, width: int) -> float:
    """Instructions to load or store one vector of an operand along an index."""
    stride = abs(operand.stride(index))
    if index not in operand.indexes:
        return 0.0 if operand.direction.writes else SPLAT
    if stride == 1:
        return 1.0
    apart = 2.0 * max(stride, 1) if stride < DEALT.stop else width
    return min(apart, width) * (STORE if operand.direction.writes else 1.0)


def packing(leaf: Leaf, operand: Operand, index: str, width: int) -> float | None:
    """What copying an input of a leaf costs for each vector of points, in instructions, so that its elements
    lie side by side along an index; None where they do, or where such a copy does not pay or can't be."""
    if operand.local or operand.direction is not Direction.IN or abs(operand.stride(index)) == 1:
        return None
    if _takes_groups_apart(leaf, operand):
        return None
    along = [abs(expr.coefficient(index)) for expr in operand.access if expr.coefficient(index)]
    often = leaf.points / prod(leaf.ranges[name] for name in operand.indexes if name in leaf.ranges)
    if along != [1] or often < COPIED:
        return None
    beside = [leaf.ranges[n] for n in operand.indexes if n in leaf.ranges and abs(operand.stride(n)) == 1]
    side = min(width, max(beside, default=1))
    read = in_square(width, side) if side > 1 else access_instructions(operand, index, width)
    return (read + 1.0) / often


def _takes_groups_apart(leaf: Leaf, operand: Operand) -> bool:
    """Whether a copy of an operand in another order would take apart what an instruction reads as one:
    groups of elements that are no dimension of their own. Where words stand for these, only views of the
    block still have their index."""
    known = {index.name for index in leaf.block.indexes}
    return any(
        len(expr.names) > 1 and not known.issuperset(expr.names)
        for ref in leaf.block.refinements
        if ref.name == operand.name
        for expr in ref.access
    )


def in_square(width: int, side: int) -> float:
    """Instructions to load or store a vector of a square whose rows have `side` elements, and to turn it. All
    but powers of two are turned in the next larger square, of which some vectors are empty."""
    whole = 1 << (side - 1).bit_length()
    return (2.0 * width / whole - 1.0 + log2(whole)) * whole / side


def follows(operands: Iterable[Operand], row: str, lane: str, size: int) -> bool:
    """Whether one step of a row index leads everywhere to where `size` steps of the lanes end: vectors may
    then go on from row to row."""
    return all(o.stride(row) == size * o.stride(lane) for o in operands)


@dataclass(frozen=True, slots=True)
class Joined:
    """A row index along which vectors may go on. `places` are those that other operands need, which lie like
    that: the indexes of points that use each element of such a place, and how many points there must be.
    `matters`: so many lanes are idle without it that other tiles, lanes and copies are worth it."""

    row: str
    places: tuple[tuple[tuple[str, ...], int], ...]
    matters: bool

    def pays(self, sizes: Sizes) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether places that are made for tiles of these sizes are used often enough."""
        found = np.asarray(True)
        for shared, least in self.places:
            often = prod((np.asarray(sizes[name]) for name in shared), start=np.asarray(1))
            found = found & (often >= least)
        return found


@of_leaf
def joined_row(leaf: Leaf, lane: str, width: int) -> Joined | None:
    """A row index of a leaf, so that vectors may go on from row to row where a tile has all lanes of each:
    operands lie like that, or their places are taken by others that do, which are used often: copies of
    inputs, and the sums of results. None if there is none, or no vector has idle lanes. Of several, the
    one along which the fewest operands need such a place."""
    size, reductions = leaf.ranges[lane], leaf.reductions
    tested = {name for expr in leaf.constraints for name in expr.names}
    if size % width == 0 or lane in reductions or lane in tested or leaf.block.has_tag("group"):
        return None
    found: list[Joined] = []
    matters = size <= (1 - IDLE) * width * -(-size // width)
    for row in leaf.ranges:
        if row == lane or leaf.ranges[row] == 1 or row in reductions or row in tested:
            continue
        others = [o for o in leaf.operands if not follows((o,), row, lane, size)]
        moved = any(o.indexes >= {row, lane} for o in leaf.operands if o.direction.writes)
        if moved and all(_can_lie_elsewhere(operand, row, lane) for operand in others):
            places = tuple(
                (
                    tuple(name for name in leaf.ranges if name not in operand.indexes),
                    JOINED if operand.direction is Direction.IN else JOINED_STEPS,
                )
                for operand in others
            )
            if matters or not any(operand.direction.writes for operand in others):
                found.append(Joined(row, places, matters))
    paying = (joined for joined in found if joined.pays(leaf.ranges))
    return min(paying, key=lambda joined: len(joined.places), default=None)


def _can_lie_elsewhere(operand: Operand, row: str, lane: str) -> bool:
    if operand.local or operand.direction is Direction.INOUT or not operand.indexes >= {row, lane}:
        return False
    alone = [expr for expr in operand.access if row in expr.names or lane in expr.names]
    return len(alone) == 2 and all(e == Affine.index(e.names[0]) for e in alone)


def lane_candidates(
    leaf: Leaf,
    vector_bytes: int,
    among: Collection[str] | None = None,
    packed: bool = False,
    path_bytes: int | None = None,
) -> tuple[Lane, ...]:
    """The possible lane indexes of a leaf (only those in `among`, if given), best first.

    Equal costs go to an index that does not reduce, then to the longer range, then to the later
    position. There are none if the leaf holds a special; one that is settled, by the tag `vector`, is the
    only one. `packed`: copies of inputs are still to be made. `path_bytes`: those of the paths that vectors
    go along (`Unit.path_bytes`).
    """
    settled = _settled(leaf)
    if settled and (among is None or settled in among):
        among = (settled,)
    path = min(path_bytes or vector_bytes, vector_bytes) / vector_bytes
    return _lane_candidates(leaf, vector_bytes, None if among is None else frozenset(among), packed, path)


@of_leaf
def _lane_candidates(
    leaf: Leaf, vector_bytes: int, among: frozenset[str] | None, packed: bool, path: float
) -> tuple[Lane, ...]:
    if any(isinstance(s, Special) for s in leaf.block.statements):
        return ()
    if packed:
        found = _lane_candidates(leaf, vector_bytes, among, False, path)
        if not found or not (found[0].reduces or _strided(grouped(leaf), found[0])):
            # Results side by side, without copies: none makes that better, but rows may follow each other.
            return tuple(sorted((_filled(leaf, lane) for lane in found), key=lambda lane: lane.cost))
    leaf = grouped(leaf)
    width = vector_width(leaf.block, vector_bytes)
    reductions = leaf.reductions
    ranked: list[tuple[float, bool, int, int, Lane]] = []
    for position, (name, size) in enumerate(leaf.ranges.items()):
        if size < 2 or (among is not None and name not in among):
            continue
        share, reduces = narrowed(size, width, path), name in reductions
        cost = _cost(leaf, name, width, reductions, packed) * share
        lane = Lane(name, width, reduces, cost, share)
        lane = _filled(leaf, lane) if packed else lane
        ranked.append((lane.cost, reduces, -size, -position, lane))
    return tuple(lane for *_, lane in sorted(ranked, key=lambda entry: entry[:4]))


def _filled(leaf: Leaf, lane: Lane) -> Lane:
    """A lane index at the cost of vectors that go on from row to row in a tile; these are full ones."""
    joined, size = joined_row(leaf, lane.index, lane.width), leaf.ranges[lane.index]
    if joined is None or not joined.matters:
        return lane
    full = replace(lane, cost=lane.cost / lane.share)
    return _going_on(full, size, size * leaf.ranges[joined.row])


def _going_on(lane: Lane, size: int, whole: int) -> Lane:
    """A lane index of so many points at the cost of vectors that end with a `whole` of several rows."""
    steps = -(-size // lane.width) / size
    return replace(lane, cost=lane.cost / steps * -(-whole // lane.width) / whole)


def narrowed(size: int, width: int, least: float) -> float:
    """The time of a vector of so many points, as a share of that of `width`: that of the next power of two,
    but no less than `least`."""
    return max(min(width, 1 << (size - 1).bit_length()) / width, least)


def lane_index(block: Block, outer: Views, vector_bytes: int) -> Lane | Square | None:
    """The best lane index of a leaf block whose parent has the views `outer`, if it has any, with an
    index across if squares cost less."""
    of_block = next((leaf for leaf in leaves(block, outer) if leaf.block is block), None)
    if of_block is None:
        return None
    found = lane_candidates(of_block, vector_bytes)
    if not found:
        return None
    own = grouped(of_block)
    best = min((_joined(own, lane) for lane in found), key=lambda lane: lane.cost)
    square = None if _adds_whole_vectors(own, best) else best_square(own, found)
    return square if square is not None and square.cost < best.cost else best


def _adds_whole_vectors(leaf: Leaf, lane: Lane) -> bool:
    """Whether a leaf does no more than to add up whole vectors: they come in halves, which costs less than to
    turn squares."""
    summed = any(o.aggregation is Aggregation.ADD for o in leaf.operands)
    plain = all(isinstance(s, Load | Store) for s in leaf.block.statements)
    return lane.reduces and summed and plain and leaf.ranges[lane.index] % lane.width == 0


def _joined(leaf: Leaf, lane: Lane) -> Lane:
    """A lane index of a leaf, at the cost of vectors that go on from row to row where everything lies so."""
    size = whole = leaf.ranges[lane.index]
    tested = {name for expr in leaf.constraints for name in expr.names}
    names = [*leaf.block.ranges]
    if leaf.reductions or lane.index in tested or size % lane.width == 0 or len(names) < len(leaf.ranges):
        return lane
    for row in reversed(names[: names.index(lane.index)]):
        if row in tested or not follows(leaf.operands, row, lane.index, whole):
            break
        whole *= leaf.ranges[row]
    return _going_on(lane, size, whole)


def best_square(leaf: Leaf, among: Collection[Lane]) -> Square | None:
    """The cheapest pair of one of these lanes and an index across, None if none costs less than the lane
    alone. Of what is reduced over, only the index across, where no element that is turned is read twice."""
    if len(leaf.reductions) > 1 or any(o.direction.writes and o.direction.reads for o in leaf.operands):
        return None
    found = [
        Square(lane, name, cost)
        for lane in among
        for name in leaf.ranges
        if name != lane.index and _turns(leaf, name)
        for cost in (_square_cost(leaf, lane, name, leaf.ranges[name]),)
        if cost < lane.cost
    ]
    return min(found, key=lambda square: square.cost, default=None)


def _turns(leaf: Leaf, across: str) -> bool:
    """Whether squares along an index across may be of use."""
    beside = [o for o in leaf.operands if o.stride(across) == 1]
    several = {name for name, size in leaf.ranges.items() if size > 1}
    if leaf.reductions and (leaf.reductions != (across,) or any(not several <= o.indexes for o in beside)):
        return False
    return across in several and bool(beside)


def _square_cost(leaf: Leaf, lane: Lane, across: str, size: int) -> float:
    """Vector instructions for one point: those of the lane alone, less what turning squares saves."""
    steps = -(-leaf.ranges[lane.index] // lane.width)
    saved = 0.0
    for operand in leaf.operands:
        apart = abs(operand.stride(lane.index))
        if operand.stride(across) == 1 and apart > 1:
            turned = _turned(operand, lane, apart, size)
            saved += access_instructions(operand, lane.index, lane.width) - turned
    return lane.cost - saved * lane.share * steps / leaf.ranges[lane.index]


def _turned(operand: Operand, lane: Lane, apart: int, size: int) -> float:
    """Instructions to load or store one vector of an operand in squares."""
    if apart == size and apart in DEALT:
        return float(apart)  # all elements of the square lie side by side
    if apart in DEALT and not operand.direction.writes:
        return access_instructions(operand, lane.index, lane.width)
    side = min(lane.width, size)
    partly = -(-size // side) * side / size  # the last square may be filled in part
    return in_square(lane.width, side) * partly


def _step(operand: Operand) -> float:
    """Instructions that halve the lanes of what is folded: extremes of floats pass on what is no number."""
    extreme = operand.aggregation in (Aggregation.MAX, Aggregation.MIN)
    return 4.0 if extreme and operand.dtype.is_float else 2.0


def _operations(leaf: Leaf, name: str, steps: int) -> float:
    """Instructions that compute one vector of points along an index, in so many steps; what depends on fewer
    indexes is computed once for all steps along the others. What comes from elsewhere, such as conversions
    that an instruction makes by itself, may depend on all."""
    reads: dict[str, frozenset[str]] = {}
    for operand in leaf.operands:
        reads[operand.name] = reads.get(operand.name, frozenset()) | operand.indexes
    known: dict[str, frozenset[str]] = {}
    found = 0.0
    for statement in leaf.block.statements:
        if isinstance(statement, Load):
            known[statement.result] = frozenset(reads.get(statement.buffer, leaf.ranges))
        elif isinstance(statement, Intrinsic | Cast):
            given = statement.operands if isinstance(statement, Intrinsic) else (statement.operand,)
            indexes = frozenset().union(*(known.get(result, frozenset(leaf.ranges)) for result in given))
            known[statement.result] = indexes
            others = (steps if n == name else size for n, size in leaf.ranges.items() if n not in indexes)
            found += _length(statement) / prod(others)
        elif isinstance(statement, Constant):
            known[statement.result] = frozenset()
    return found


def _length(statement: Intrinsic | Cast) -> float:
    """About how many instructions compute a statement."""
    return FUNCTION if isinstance(statement, Intrinsic) and statement.op not in INSTRUCTIONS else 1.0


def _settled(leaf: Leaf) -> str:
    """The lane index that the tag of a leaf names, as it is called in the nest."""
    tagged = next((name for name in leaf.block.tag_values("vector")), "")
    own = leaf.block.ranges
    names = dict(zip(own, tuple(leaf.ranges)[len(leaf.ranges) - len(own) :], strict=True))
    return names.get(tagged, "") if own.get(tagged, 0) > 1 else ""


def _strided(leaf: Leaf, lane: Lane) -> bool:
    """Whether lanes along an index read or write an operand element by element."""
    return any(access_instructions(operand, lane.index, lane.width) > 1.0 for operand in leaf.operands)


def _cost(leaf: Leaf, name: str, width: int, reductions: tuple[str, ...], packed: bool) -> float:
    size = leaf.ranges[name]
    steps = -(-size // width)
    instructions = 0.0
    for operand in leaf.operands:
        once = prod(leaf.ranges[n] for n in reductions if n != name and n not in operand.indexes)
        access = access_instructions(operand, name, width) / once
        copy = packing(leaf, operand, name, width) if packed and access * once > 1.0 else None
        instructions += access if copy is None else min(access, 1.0 / once + copy)
        if operand.direction.writes and name not in operand.indexes:
            summed = min(width, 1 << (size - 1).bit_length())  # lanes behind the last point need no sums
            instructions += _step(operand) * log2(max(summed, 2)) / (steps * once)
    instructions += _operations(leaf, name, steps)
    return instructions * steps / size
