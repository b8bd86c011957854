"""Which units execute two leaves of one scope, and how long that takes, apart and as one leaf.

    ability   what units make of a leaf: by their operations, or as uses of a stencil
    worse     why one leaf of two is worse than the two, as a clause; empty if it is not

One leaf reads once what both read, but it is no use of a stencil where it has a second result, only units
that do the work of both execute it, only indexes on which all its results depend are dealt out to equal
units, and results that add up over different indexes can't all stay where they are summed. The time is a
roofline: vector instructions at the rate of the unit beside bytes at that of the memory that holds
them, or of the unit that copies them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import inf, prod

import numpy as np

from hwconfigs.model import HwConfig, Unit
from stripe.analysis.bounds import Leaf, box_elements, leaves
from stripe.analysis.cost_problem import combine
from stripe.analysis.fusion_sides import Scope
from stripe.analysis.lanes import access_instructions, lane_candidates
from stripe.analysis.stencils import matches
from stripe.analysis.stencils_cost import Memo, weighed
from stripe.analysis.units import computes, is_copy
from stripe.analysis.work import vector_operations
from stripe.ir import Block, Cast, Direction, Intrinsic, Special

# One leaf that leaves units idle, or a stencil unused, has to take this share of the time of two, or less:
# figures are estimates.
MARGIN = 0.8
_SIZES = 1024  # of a stencil's uses that are weighed
_TILE = 4  # results that a tile in registers has along one index
_INDEXES = 8  # of a leaf of which every choice of tile loops is looked at


@dataclass(frozen=True, slots=True)
class Way:
    """How a unit executes a leaf: as uses of a stencil, or (empty) by its operations; in how many parts at
    a time; and the cycles of its arithmetic, that of all parts taken together."""

    unit: Unit
    stencil: str
    parts: int
    cycles: float

    @property
    def text(self) -> str:
        what = f"{self.parts} {self.unit.name}" if self.parts > 1 else self.unit.name
        return f"{what} ('{self.stencil}')" if self.stencil else what


@dataclass(frozen=True, slots=True)
class Ability:
    """The ways in which units execute a leaf, the buffers of the scope that it uses, with their bytes, and
    the bytes that its smallest tile keeps in a memory, and in one where no unit adds up. `copies`: it is a
    copy, which any unit executes."""

    ways: tuple[Way, ...]
    bytes: Mapping[str, int]
    least: int = 0
    unsplit: int = 0
    copies: bool = False

    def joined(self, second: Ability, private: Collection[str]) -> Ability:
        """That of a leaf that runs the statements of both at each point, where all results are assigned;
        `private`: what nothing else uses."""
        moved = {b: n for b, n in {**self.bytes, **second.bytes}.items() if b not in private}
        if self.copies or second.copies:
            return Ability(
                second.ways if self.copies else self.ways, moved, copies=self.copies and second.copies
            )
        theirs = {way.unit.name: way for way in second.ways if not way.stencil}
        ways = [
            Way(way.unit, "", min(way.parts, other.parts), way.cycles + other.cycles)
            for way in self.ways
            if not way.stencil and (other := theirs.get(way.unit.name)) is not None
        ]
        return Ability(tuple(ways), moved)


def ability(scope: Scope, block: Block, hw: HwConfig, memo: Memo) -> Ability:
    """What the compute units make of a leaf block of the scope; `memo` is for one target."""
    sizes = {r.source: scope.bytes[r.source] for r in block.refinements if r.source in scope.bytes}
    found = leaves(block, scope.views)
    if len(found) != 1 or any(isinstance(s, Special) for s in block.statements):
        return Ability((), sizes)
    leaf = found[0]
    if is_copy(block):
        return Ability(tuple(Way(u, "", 1, 0.0) for u in hw.compute_units), sizes, copies=True)
    ways = []
    for unit in hw.compute_units:
        if not computes(unit, block):
            ways.append(_divided(leaf, unit, "", _plain_cycles(leaf, unit), hw))
    for stencil in hw.stencils:
        unit_of_stencil = hw.unit(stencil.unit)
        assert unit_of_stencil is not None  # a config names units that it has
        costs = [
            found.cost
            for fit in matches(stencil, leaf).fits
            for found in weighed(fit, leaf, hw, _SIZES, memo).fitting[:1]
            if found.cost is not None
        ]
        if costs:
            ways.append(_divided(leaf, unit_of_stencil, stencil.name, min(costs), hw))
    return Ability(tuple(ways), sizes, _least_bytes(leaf), _unsplit_bytes(leaf))


def worse(first: Ability, second: Ability, together: Ability, hw: HwConfig) -> str:
    """Why one leaf is worse than two; nothing is said where a unit is missing for one of the two."""
    (before, way1), (after, way2), (one, way) = (_best(a, hw) for a in (first, second, together))
    if way1 is None or way2 is None:
        return ""
    apart = f"{way1.text} and {way2.text}" if way1.text != way2.text else f"{way1.text} each"
    if way is None:
        if not together.ways:
            return f"no unit executes one leaf of both, and {apart} execute the two"
        if together.unsplit > _passed(hw):
            return f"one leaf would need {together.unsplit} bytes at once where no unit adds up"
        return f"the smallest tile of one leaf keeps {together.least} bytes, more than a unit reaches"
    taken = way.parts < max(way1.parts, way2.parts) or bool(way1.stencil or way2.stencil) > bool(way.stencil)
    if one <= (before + after) * (MARGIN if taken else 1.0):
        return ""
    return (
        f"one leaf of both takes about {one:.4g} cycles on {way.text}, the two "
        f"{before + after:.4g} on {apart}"
    )  # fmt: skip


# -- how long ---------------------------------------------------------------------------------


def _best(what: Ability, hw: HwConfig) -> tuple[float, Way | None]:
    """The cycles of the fastest way that has the memory for it."""
    best: tuple[float, Way | None] = inf, None
    if what.unsplit > _passed(hw):
        return best
    for way in what.ways:
        if what.least > _capacity(way.unit, hw):
            continue
        moved = [size / _rate(size, way.parts, hw) for size in what.bytes.values()]
        cycles = float(combine(*map(np.asarray, (way.cycles, *moved))))
        if cycles < best[0]:
            best = cycles, way
    return best


def _capacity(unit: Unit, hw: HwConfig) -> float:
    """The bytes of the largest memory that the unit reaches, of those that programs fill."""
    managed = [m for m in hw.memories if m.kind == "explicit" and m.name in unit.reaches]
    return max((inf if m.bytes is None else m.bytes for m in managed), default=inf)


def _passed(hw: HwConfig) -> float:
    """The bytes of the smallest memory on the way to those that units which compute reach: partial results
    can't be combined there, so a tile has all that adds to its results."""
    reached = {name for unit in hw.compute_units for name in unit.reaches}
    managed = [m for m in hw.memories if m.kind == "explicit" and m.name not in reached]
    return min((m.bytes for m in managed if m.bytes is not None), default=inf)


def _rate(size: int, parts: int, hw: HwConfig) -> float:
    """Bytes per cycle from the nearest memory that holds a buffer, if units copy it, by as many as there
    are parts."""
    memories = [m for m in hw.memories if m.kind != "registers"]
    held = [m for m in memories if m.bytes is None or size <= m.bytes] or memories[-1:]
    rate = (held[0].bytes_per_cycle or inf) if held else inf
    copying = [(u.bytes_per_cycle or inf) * min(u.count, parts) for u in hw.units if u.kind == "transfer"]
    return min(rate, max(copying, default=inf))


def _divided(leaf: Leaf, unit: Unit, stencil: str, cycles: float, hw: HwConfig) -> Way:
    """The way with its points dealt out to the copies of the unit, where that pays."""
    summed = _results(leaf)
    free = [size for n, size in leaf.ranges.items() if all(n in indexes for indexes in summed)]
    parts = min(unit.count, prod(free))
    divided = cycles / parts + (unit.startup_cycles if hw.executor == "cpu" else 0.0)
    if parts < 2 or divided >= cycles:
        return Way(unit, stencil, 1, cycles)
    return Way(unit, stencil, parts, divided)


def _plain_cycles(leaf: Leaf, unit: Unit) -> float:
    """Vector instructions: those of the best lane index, those that aggregate, and one for each result that
    leaves the registers at the innermost loop: it is loaded and stored, at half of the steps or less,
    since a tile in registers holds several. Where none does, a tile of results uses an operand again
    along the indexes that it does not depend on."""
    lanes = lane_candidates(leaf, unit.vector_bytes)
    calls = sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements)
    summed = _results(leaf)
    out = min((sum(n in indexes for indexes in summed) for n in leaf.ranges), default=0)
    beside = float(vector_operations(leaf) - calls + out)
    if not lanes:
        return leaf.points * (calls + beside) / unit.fma_per_cycle
    if summed and not out:
        shared = frozenset.intersection(*summed)
        again = [o for o in leaf.operands if o.direction is Direction.IN and not shared <= o.indexes]
        loads = sum(access_instructions(o, lanes[0].index, lanes[0].width) for o in again)
        beside -= loads * (1 - 1 / _TILE)
    return leaf.points * max(lanes[0].cost + beside / lanes[0].width, 0.0) / unit.fma_per_cycle


def _results(leaf: Leaf) -> list[frozenset[str]]:
    """For each result that is aggregated, the indexes that its place depends on."""
    return [o.indexes for o in leaf.operands if o.direction.writes and o.combines]


def _unsplit_bytes(leaf: Leaf) -> int:
    """The bytes that a tile touches of which the loops are indexes that all results depend on."""
    summed = _results(leaf)
    inside = {n: 1 if all(n in i for i in summed) else size for n, size in leaf.ranges.items()}
    return sum(int(box_elements(o, inside)) * o.dtype.bytes for o in leaf.operands)


def _least_bytes(leaf: Leaf) -> int:
    """The bytes that the smallest tile keeps: of a result that several tiles add to the whole. Any choice
    of the indexes with a tile loop counts."""
    names = list(leaf.ranges)[-_INDEXES:]
    summed = _results(leaf)
    if all(indexes == summed[0] for indexes in summed):
        return 0  # tiles of one point of each index that they depend on add to one element
    least = inf
    for count in range(len(names) + 1):
        for looped in map(set, combinations(names, count)):
            inside = {n: 1 if n in looped else size for n, size in leaf.ranges.items()}
            total = 0
            for operand in leaf.operands:
                aggregated = operand.combines
                kept = aggregated and operand.direction.writes and not looped <= operand.indexes
                elements = box_elements(operand, leaf.ranges if kept else inside)
                total += int(elements) * operand.dtype.bytes
            least = min(least, total)
    return int(least)
