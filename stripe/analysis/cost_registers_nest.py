"""What is known of a nest whose results stay in registers, before it has tiles: which index runs along the
lanes, what streams and what is held meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TypeVar

from stripe.analysis.bounds import Leaf, Operand, leaves
from stripe.analysis.cost_blocks import Blocks, blocks_of
from stripe.analysis.cost_problem import Problem
from stripe.analysis.cost_rows import box_bytes, fetched_bytes, jumps
from stripe.analysis.cost_sets import PAGE_BYTES, crowd, usable_bytes
from stripe.analysis.cost_slanted import Slanted, slanted
from stripe.analysis.groups import grouped
from stripe.analysis.lanes import Lane, access_instructions, best_square, joined_row, lane_candidates, packing
from stripe.intrinsics import INTRINSICS
from stripe.ir import Intrinsic
from stripe.locks import cached_property

T = TypeVar("T")
MAX_ORDERED = 5  # loops of which every order is looked at


class RegisterNest:
    """The leaves of a block to be tiled for registers, each with its part in that."""

    def __init__(self, problem: Problem, lane: str = "") -> None:
        """`lane`: an index of the leading leaf along which vectors go, of a single one."""
        self.problem = problem
        self._given = lane
        # By the ids of leaves. Some belong to blocks that were made on the way: each is kept with what was
        # found of it, so that no other leaf gets its id.
        self._lanes: dict[int, tuple[Leaf, Lane | None]] = {}
        self._blocked: dict[int, tuple[Leaf, Blocks | None]] = {}
        self._slanted: dict[int, tuple[Leaf, tuple[Slanted, ...]]] = {}

    @property
    def lead(self) -> Leaf | None:
        """The leading leaf decides which index is the lane."""
        return self.problem.lead

    def lane(self, leaf: Leaf) -> Lane | None:
        """The lane index of a leaf: that of the leading leaf, where it has it and that pays."""
        return _once(self._lanes, leaf, self._find_lane)

    def _find_lane(self, leaf: Leaf) -> Lane | None:
        assert self.problem.unit is not None
        found = self._candidates(leaf)
        if leaf is not self.lead and self.lead is not None:
            found = (*self._same(self.lane(self.lead), leaf, found), *found)
        if self._given:
            return next((lane for lane in found if lane.index == self._given), None)
        if leaf is self.lead and not self.alone:
            return min(found, key=self._along, default=None)
        return found[0] if found else None

    def _candidates(self, leaf: Leaf) -> tuple[Lane, ...]:
        unit = self.problem.unit
        assert unit is not None
        return lane_candidates(leaf, unit.vector_bytes, packed=self.alone, path_bytes=unit.path_bytes)

    def _along(self, lane: Lane) -> float:
        """Instructions of the nest where the leading leaf has this lane index, and all others that can, in
        squares where these take fewer."""
        total = 0.0
        for leaf, found in self._every_candidate:
            shared = self._same(lane, leaf, found)
            other = next(iter((*shared, *found)), None)
            square = None if other is None else best_square(leaf, (other,))
            lone = len(leaf.operands) if other is None else other.cost
            total += leaf.points * (lone if square is None else square.cost)
        return total

    def _same(self, lane: Lane | None, leaf: Leaf, found: Sequence[Lane]) -> list[Lane]:
        """Those of a leaf's lanes that go along the index of a lane of the leading leaf. Indexes of blocks
        inside are others for each leaf, whatever they are called."""
        if lane is None or (leaf is not self.lead and lane.index not in self.problem.ranges):
            return []
        return [other for other in found if other.index == lane.index]

    @cached_property
    def _every_candidate(self) -> list[tuple[Leaf, tuple[Lane, ...]]]:
        return [(leaf, self._candidates(leaf)) for leaf in self.problem.leaves]

    def other_lanes(self) -> list[str]:
        """The indexes of a single leaf along which vectors could go as well, where no lanes are summed."""
        if self.lead is None or not self.alone:
            return []
        lane = self.lane(self.lead)
        if lane is None or lane.reduces:
            return []
        found = (other for other in self._candidates(self.lead) if not other.reduces)
        return [other.index for other in found if other.index != lane.index]

    def slanted(self, leaf: Leaf) -> tuple[Slanted, ...]:
        """The constraints that cut tiles of a leaf aslant."""
        return _once(self._slanted, leaf, self._find_slanted)

    def _find_slanted(self, leaf: Leaf) -> tuple[Slanted, ...]:
        among = [name for name in self.indices if name not in self.streamed(leaf)]
        return slanted(leaf, among, (*self.problem.path, self.problem.block))

    @property
    def alone(self) -> bool:
        """Whether no other leaf wants a lane index that suits it: copies of inputs may decide it."""
        return len(self.problem.leaves) == 1

    def _shares(self, leaf: Leaf) -> bool:
        """Whether a tile does more than its rows would one after the other: its results are
        vectors, or some input serves several rows."""
        lane = self.lane(leaf)
        inputs = [o for o in leaf.operands if o.direction.reads]
        return (lane is not None and lane.index not in self.streamed(leaf)) or any(
            not o.indexes >= set(self.indices) for o in inputs
        )

    @cached_property
    def apart(self) -> bool:
        """Whether rows that are summed up share no data."""
        sums = (leaf for leaf in self.problem.leaves if self.streamed(leaf) and self.held(leaf))
        return not any(self._shares(leaf) for leaf in sums)

    @cached_property
    def waits_long(self) -> bool:
        """Whether something computes elementary functions, which several rows side by side hide best."""
        return any(
            isinstance(s, Intrinsic) and INTRINSICS[s.op].elementary
            for leaf in self.problem.leaves
            for s in leaf.block.statements
        )

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """All but the reductions of the leading leaf, or those that are asked for by name. Another
        leaf may reduce over one of them: it then adds what each tile gives to its result."""
        reduced = set(self.lead.reductions) if self.lead is not None else set()
        asked = self.problem.names
        return tuple(
            name
            for name, size in self.problem.ranges.items()
            if size > 1
            and name not in self.problem.groups
            and (name in asked if asked else name not in reduced)
        )

    @property
    def keeps_results(self) -> bool:
        """Whether some leaf adds to a result that outlives what it runs through. A buffer of each point of a
        block inside does not outlive that block's indexes: they are to be tiled there."""
        problem = self.problem
        inside = leaves(problem.block, problem.outer, every_level=True)
        return any(
            self.held(replace(leaf, operands=deep.operands))
            for leaf, deep in zip(problem.leaves, map(grouped, inside), strict=True)
            if self.streamed(leaf)
        )

    def blocks(self, leaf: Leaf) -> Blocks | None:
        """How a leaf is uses of an instruction on registers that hold rows; None if it is none."""
        return _once(self._blocked, leaf, self._find_blocks)

    def _find_blocks(self, leaf: Leaf) -> Blocks | None:
        problem, lane = self.problem, self.lane(leaf)
        raw = next(r for r, own in zip(problem.ungrouped, problem.leaves, strict=True) if own is leaf)
        return None if problem.unit is None else blocks_of(raw, lane, problem.hw, problem.unit)

    @cached_property
    def _in_blocks(self) -> frozenset[str]:
        """The results of such leaves: to others they lie in memory."""
        found = ((leaf, self.blocks(leaf)) for leaf in self.problem.leaves)
        return frozenset(o.name for leaf, b in found if b for o in leaf.operands if o.direction.writes)

    def in_registers(self, operand: Operand) -> bool:
        """A buffer of one element for each point: it never leaves the registers."""
        return (
            operand.local
            and operand.name not in self._in_blocks
            and not any(n not in self.problem.ranges for expr in operand.access for n in expr.names)
        )

    def streamed(self, leaf: Leaf) -> tuple[str, ...]:
        """The indexes of a leaf that run through, within the tile, while its results stay."""
        return tuple(n for n in leaf.ranges if n not in self.problem.ranges or n in leaf.reductions)

    def held(self, leaf: Leaf) -> list[Operand]:
        """The results that a leaf adds to at every step."""
        streamed = set(self.streamed(leaf))
        return [o for o in leaf.operands if o.direction.writes and not o.indexes & streamed]

    def row(self, leaf: Leaf) -> str:
        """An index of a leaf that is tiled, along whose rows vectors may go on; empty without one."""
        lane = self.lane(leaf)
        if lane is None or not self.alone or not {lane.index} <= set(self.indices):
            return ""
        joined = joined_row(leaf, lane.index, lane.width)
        return joined.row if joined is not None and joined.row in self.indices else ""

    @cached_property
    def settled(self) -> str:
        """The lane index of the leading leaf, if only tiles and copies to come make it the best: it is given,
        lanes are summed, vectors go on from row to row, or an input is read in vectors of a copy alone."""
        if self._given:
            return self._given
        lead = self.lead
        lane = None if lead is None else self.lane(lead)
        if lead is None or lane is None or not self.alone:
            return ""
        copied = any(
            access_instructions(o, lane.index, lane.width) > 1.0
            and packing(lead, o, lane.index, lane.width) is not None
            for o in lead.operands
        )
        summed, joined = lane.index in self.streamed(lead), bool(self.row(lead))
        return lane.index if summed or joined or copied else ""

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        """What streams outside, then the rows, and the lanes inside. A lane index that streams
        goes in front of the rows: each row then has a vector of its own. Rows along which vectors go on are
        the innermost ones. Rows of which nothing is summed up come one after the other."""
        lane = self.lane(leaf)
        streamed = self.streamed(leaf)
        rows = tuple(n for n in leaf.ranges if n not in streamed and (lane is None or n != lane.index))
        joined = "" if self.lead is None else self.row(self.lead)
        rows = tuple(sorted(rows, key=lambda name: name == joined))
        last = () if lane is None or lane.index in streamed else (lane.index,)
        steps = [n for n in streamed if lane is None or n != lane.index]
        first = _along_memory(leaf, steps, self.problem, lane.index if lane is not None else "")
        inner = () if lane is None or lane.index not in streamed else (lane.index,)
        if not self.held(leaf):
            return (*rows, *first, *inner, *last)
        return (*first, *inner, *rows, *last)

    @cached_property
    def touched(self) -> float:
        """The bytes of all that the whole block touches."""
        line, whole = self.problem.memory_line, self.problem.ranges
        outside = (o for o in self.problem.operands if not o.local)
        return float(sum(fetched_bytes(o, whole, line) for o in outside))


def _once(known: dict[int, tuple[Leaf, T]], leaf: Leaf, find: Callable[[Leaf], T]) -> T:
    """What was found of a leaf, by its id, or is now."""
    if id(leaf) not in known:
        known[id(leaf)] = leaf, find(leaf)
    return known[id(leaf)][1]


def _along_memory(leaf: Leaf, names: Sequence[str], problem: Problem, lane: str) -> tuple[str, ...]:
    """Loops in the order in which inputs are most often met where they were left, or where the nearest
    cache keeps them. Of several, that in which those that are the same for all lanes stay longest on a page:
    of their lines, only a piece is used at a time, and others may be copied; then that in which others do,
    where they are read as they lie; then the first of the two, whatever is kept. Else as they are."""
    inputs = [o for o in leaf.operands if o.direction.reads and not o.local]
    ranges = {name: leaf.ranges[name] for name in names}
    if not 1 < len(ranges) <= MAX_ORDERED:
        return tuple(names)

    splats = [o for o in inputs if lane not in o.indexes]
    vectors = [o for o in inputs if lane in o.indexes]
    turned = any(abs(o.stride(lane)) != 1 for o in vectors)  # a copy of these follows the loops

    def places(order: Sequence[str], among: Sequence[Operand], near: int, staying: int) -> int:
        return sum(jumps(o, order, ranges, max(1, near // o.dtype.bytes), staying) for o in among)

    def met(order: Sequence[str]) -> tuple[int, ...]:
        staying = 0 if turned else _staying(leaf, order, inputs, problem)
        asked = (inputs, problem.memory_line), (splats, PAGE_BYTES), ([] if turned else vectors, PAGE_BYTES)
        found = [places(order, among, near, staying) for among, near in asked]
        return *found, places(order, splats, PAGE_BYTES, 0)

    return min(permutations(ranges), key=met)


def _staying(leaf: Leaf, order: Sequence[str], inputs: Sequence[Operand], problem: Problem) -> int:
    """Of how many of the innermost of some loops the nearest cache keeps all that they read."""
    cache = problem.nearest_cache
    capacity = usable_bytes(cache) if cache is not None else None
    if cache is None or capacity is None:
        return 0
    for outside in range(len(order)):
        sizes = {**leaf.ranges, **dict.fromkeys(order[:outside], 1)}
        crowded = cache.ways and any(crowd(o, sizes, cache) >= cache.ways for o in inputs)
        if not crowded and sum(box_bytes(o, sizes, problem.memory_line) for o in inputs) <= capacity:
            return len(order) - outside
    return 0
