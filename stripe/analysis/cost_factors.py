"""What a product takes that is summed up in parts, and in which parts it takes the least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product as combinations_of
from math import prod

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine
from stripe.analysis.cost_sets import holding_rate, usable_bytes
from stripe.analysis.factors import Product, Some, parts_of
from stripe.analysis.lanes import vector_width
from stripe.ir import Block, Cast, Intrinsic, Load, Refinement
from stripe.poly import block_domain

ACROSS = 1.1  # of the time of elements that are summed up along their rows: to read those that are not
LARGER = 4  # times as large as all that a product uses what parts hold may be, where it is in no cache


@dataclass(frozen=True, slots=True)
class FactorCosts:
    """Cycles of the blocks that sum up a product: instructions, and bytes from the nearest memory that holds
    what they read and write, once each."""

    product: Product
    root: Block
    hw: HwConfig
    unit: Unit
    # Of points, by their indexes.
    counts: dict[frozenset[str], int] = field(default_factory=dict, compare=False)

    def cycles(self, parts: Sequence[Some]) -> float:
        """Of all blocks, where these parts have their own. Raises PolyhedralLimit."""
        return sum(self._block(some, parts_of(some, parts)[0]) for some in (*parts, self.product.every))

    def least(self) -> tuple[Some, ...]:
        """The parts with which it takes the least, each behind those in it. Raises PolyhedralLimit."""

        @cache
        def best(some: Some) -> tuple[float, tuple[Some, ...]]:
            return min((whole(some, parts) for parts in self._ways(some)), key=lambda way: way[0])

        def whole(some: Some, parts: tuple[Some, ...]) -> tuple[float, tuple[Some, ...]]:
            below = [best(part) for part in parts]
            cycles = self._block(some, parts) + sum(cycles for cycles, _ in below)
            return cycles, (*(part for _, inner in below for part in inner), *parts)

        return best(self.product.every)[1]

    def _ways(self, some: Some) -> Iterator[tuple[Some, ...]]:
        """The parts of some factors that may have blocks of their own together, few ahead of many."""
        for groups in _partitions(sorted(some)):
            options: list[list[tuple[Some, ...]]] = []
            for group in groups:
                alone = [()] if len(group) == 1 else []
                part = [(group,)] if group < some and self._may_be_a_part(group) else []
                options.append([*alone, *part])
            for chosen in combinations_of(*options):
                yield tuple(part for parts in chosen for part in parts)

    def _may_be_a_part(self, some: Some) -> bool:
        """Whether some factors can have a block, and what this makes stays in a cache, or is not many times
        as large as all that the product uses."""
        if not self.product.may_be_a_part(some):
            return False
        made = self._size(self.product.kept(some)) * self.product.result.dtype.bytes
        sources = {view.source for view in self.product.block.refinements}
        used = sum(self.root.refinement(source).bytes for source in sources)
        caches = [usable_bytes(m) or 0 for m in self.hw.memories if m.kind == "cached"]
        return made <= max(LARGER * used, *caches, 0)

    def _block(self, some: Some, parts: Sequence[Some]) -> float:
        """Of the block that multiplies some factors, of which these parts have their own."""
        product, unit = self.product, self.unit
        left = some.difference(*parts)
        factors = [product.factors[number] for number in left]
        computed = {s for f in factors for s in f.statements if isinstance(s, Intrinsic | Cast)}
        products = sum(factor.times for factor in factors) + len(parts) - 1
        width = vector_width(product.block, unit.vector_bytes)
        each = (len(computed) + max(1, products)) / width / unit.fma_per_cycle
        names = product.points(some, parts)
        over = names - (_names(product.result) if some == product.every else product.kept(some))
        loads = dict.fromkeys(load for factor in factors for load in factor.loads)
        moved = sum(self._moved(part) for part in (*parts, some))
        moved += sum(self._loaded(load, over) for load in loads)
        return self._count(names) * each + moved

    def _loaded(self, load: Load, over: frozenset[str]) -> float:
        """To read what a load touches, where a block sums up over some indexes."""
        block, dtype = self.product.block, load.dtype
        view = block.refinement(load.buffer)
        buffer = self.root.refinement(view.source)
        assert buffer.strides is not None
        cycles = self._brought(min(buffer.bytes, self._size(_names(view)) * dtype.bytes))
        place = Affine.weighted(view.access, buffer.strides)
        along = any(abs(step) == 1 and name in over for name, step in place.terms)
        return cycles if along or not over else cycles * ACROSS

    def _moved(self, some: Some) -> float:
        """To write, or to read, what some factors make."""
        product = self.product
        if some == product.every:
            return self._brought(self.root.refinement(product.result.source).bytes)
        return self._brought(self._size(product.kept(some)) * product.result.dtype.bytes)

    def _brought(self, size: int) -> float:
        return size / holding_rate(self.hw, size)

    def _size(self, names: frozenset[str]) -> int:
        ranges = self.product.block.ranges
        return prod(ranges[name] for name in names)

    def _count(self, names: frozenset[str]) -> int:
        """The points of a block with these indexes."""
        block = self.product.block
        if not block.constraints:
            return self._size(names)
        if names not in self.counts:
            points = block_domain(block).project_onto([name for name in block.ranges if name in names])
            self.counts[names] = points.count()
        return self.counts[names]


def _names(view: Refinement) -> frozenset[str]:
    return frozenset(name for expr in view.access for name in expr.names)


def _partitions(items: Sequence[int]) -> Iterator[list[Some]]:
    """All ways to put things into groups; first that in which each is alone."""
    if not items:
        yield []
        return
    first, *rest = items
    for groups in _partitions(rest):
        yield [frozenset([first]), *groups]
        for at, group in enumerate(groups):
            yield [*groups[:at], group | {first}, *groups[at + 1 :]]
