"""How many cycles what is done takes on its unit: the rules, one for each kind of work.

    copy        on a transfer unit: `startup_cycles` for each execution of the block, and its bytes at
                `bytes_per_cycle`
    uses        of a stencil: for each `startup_cycles` and the `cycles` of its legal (padded) sizes
    vectors     of anything else: the longest of its operations at `fma_per_cycle`, its loads at
    `loads_per_cycle`
                and its stores at `stores_per_cycle`; a vector is there if one of its points is. A product
                that is only added up is one operation with the sum

Each is a sum of whole numbers times a rate, so that counts give busy cycles exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Literal

from hwconfigs.expressions import evaluate_size
from hwconfigs.model import HwConfig, Stencil, Unit
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.lanes import lane_candidates, vector_width
from stripe.analysis.stencils import lanes, use_sizes
from stripe.analysis.stencils import uses as not_a_use
from stripe.analysis.units import computes, is_copy
from stripe.analysis.work import operations_of_a_point, vector_operations
from stripe.ir import Block, Load, Special, Store
from stripe.visit import View

Kind = Literal["starts", "bytes", "uses", "vectors", "points"]


@dataclass(frozen=True, slots=True)
class Meter:
    """What is counted of the statements of a leaf block on a unit, and how long each counted thing takes.

    `room` is the number of points that one use or vector has room for, `startup` the part of a start or use
    before its first result, `operations` the arithmetic of one point. Vectors run along `lane`. A use is the
    nest of `leaf`, with the ranges of all its blocks.
    """

    rates: Mapping[Kind, Fraction]
    startup: Fraction = Fraction(0)
    room: int = 1
    operations: int = 0
    lane: str = ""
    stencil: Stencil | None = None
    leaf: Leaf | None = None

    def cycles(self, counts: Mapping[Kind, int]) -> Fraction:
        return sum((rate * counts.get(kind, 0) for kind, rate in self.rates.items()), Fraction(0))

    def filling(self, counts: Mapping[Kind, int]) -> Fraction:
        """Cycles before first results."""
        return self.startup * (counts.get("uses", 0) + counts.get("starts", 0))

    def padding(self, counts: Mapping[Kind, int]) -> Fraction:
        """Cycles for points that are not there: what a use or a vector has room for beyond its points."""
        room = self.room * (counts.get("uses", 0) + counts.get("vectors", 0))
        if not room:
            return Fraction(0)
        return (self.cycles(counts) - self.filling(counts)) * (1 - Fraction(counts.get("points", 0), room))


def exact(rate: float) -> Fraction:
    """A number of a JSON file as it is written there."""
    return Fraction(str(rate))


def meter(block: Block, unit: Unit, views: Mapping[str, View], hw: HwConfig) -> Meter:
    """The meter of a block's own statements (the blocks in it left aside), or of all of it if it is a use
    of a stencil. `views` are those of its parent."""
    if unit.kind == "transfer":
        rates: dict[Kind, Fraction] = {"starts": exact(unit.startup_cycles)}
        if unit.bytes_per_cycle:
            rates["bytes"] = 1 / exact(unit.bytes_per_cycle)
        return Meter(rates, exact(unit.startup_cycles))
    stencil = _stencil(block, unit, views, hw)
    if stencil is not None:
        return _of_uses(stencil, leaves(block, views, every_level=True)[-1], hw)
    return _of_vectors(block, unit, views)


def _stencil(block: Block, unit: Unit, views: Mapping[str, View], hw: HwConfig) -> Stencil | None:
    """The stencil that the block is a use of: one that it is tagged with, or where the unit can't do what it
    does otherwise."""
    tagged = block.tag_values("stencil")
    if not tagged and (block.children or is_copy(block) or not computes(unit, block)):
        return None
    for stencil in hw.stencils:
        if stencil.unit != unit.name or (tagged and stencil.name not in tagged):
            continue
        if tagged or not not_a_use(stencil, block, hw, views):
            return stencil
    return None


def _of_uses(stencil: Stencil, leaf: Leaf, hw: HwConfig) -> Meter:
    """Where a block is a use in several ways, such as with the factors of a product exchanged, the one that
    takes least time is meant."""
    known: dict[str, int] = {n: s if isinstance(s, int) else 1 for n, s in stencil.indices.items()}

    def cycles(sizes: Mapping[str, int]) -> Fraction:
        values = {**sizes, "lanes": lanes(stencil, hw)}
        return exact(max(evaluate_size(stencil.cycles or "1", values), 0.0))

    sizes = min(use_sizes(stencil, leaf, hw), key=cycles, default=known)
    startup, operations = exact(stencil.startup_cycles), operations_of_a_point(leaf.block)
    rates: dict[Kind, Fraction] = {"uses": startup + cycles(sizes)}
    return Meter(rates, startup, prod(sizes.values()), operations, "", stencil, leaf)


def _of_vectors(block: Block, unit: Unit, views: Mapping[str, View]) -> Meter:
    alone = replace(
        block, statements=tuple(s for s in block.statements if not isinstance(s, Block | Special))
    )
    leaf = next(iter(leaves(alone, views)), Leaf(alone, alone.ranges, ()))
    found = lane_candidates(leaf, unit.vector_bytes, among=set(block.ranges))
    loads = sum(isinstance(s, Load) for s in alone.statements)
    stores = sum(isinstance(s, Store) for s in alone.statements)
    cycles = max(
        vector_operations(leaf) / exact(unit.fma_per_cycle),
        loads / exact(unit.loads_per_cycle),
        stores / exact(unit.stores_per_cycle),
    )
    width = vector_width(alone, unit.vector_bytes) if found else 1
    lane = found[0].index if found else ""
    return Meter({"vectors": cycles}, Fraction(0), width, operations_of_a_point(alone), lane)
