"""The blocks that a sum of a product in parts becomes. See stripe.passes.factor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.factors import Product, Some, parts_of
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Intrinsic,
    Load,
    Refinement,
    Scalar,
    Store,
)
from stripe.names import Names
from stripe.passes.rewriter import Rewriter
from stripe.poly import Domain, as_inequalities, block_domain
from stripe.visit import scalars_defined


@dataclass(slots=True)
class Builder:
    """Makes the blocks of a product in parts, with names and buffers of the block that they go `into`."""

    into: Rewriter

    def in_parts(self, product: Product, parts: Sequence[Some]) -> list[Block] | None:
        """A block for each part and one for all; None where the points of one are no single piece. Raises
        PolyhedralLimit."""
        every = (*parts, product.every)
        points = [product.points(some, parts_of(some, parts)[0]) for some in every]
        limits = [_limits(product.block, names) for names in points]
        if None in limits:
            return None
        held: dict[Some, Refinement] = {}
        made: list[Block] = []
        for some, names, constraints in zip(every, points, limits, strict=True):
            inner, left = parts_of(some, parts)
            block = _multiplied(product, [held[part] for part in inner], left)
            if some != product.every:
                held[some] = self._buffer(product, some)
                how = Aggregation.ADD if product.summed(some) else Aggregation.ASSIGN
                block = self._named(block, replace(held[some], direction=Direction.OUT, aggregation=how))
            indexes = tuple(index for index in block.indexes if index.name in names)
            made.append(replace(block, indexes=indexes, constraints=constraints or ()))
        return made

    def _buffer(self, product: Product, some: Some) -> Refinement:
        """A buffer for what some factors make, as a view of one of its elements. Last is the dimension along
        which most of the other operands lie side by side."""
        block, steps = product.block, Counter[str]()
        for view in block.refinements:
            strides = self.into.block.refinement(view.source).strides
            assert strides is not None
            place = Affine.weighted(view.access, strides)
            steps.update(name for name, step in place.terms if abs(step) == 1)
        kept = product.kept(some)
        places = sorted((name for name in block.ranges if name in kept), key=lambda name: steps[name])
        shape = tuple(block.ranges[name] for name in places)
        made = self.into.buffer(f"{block.name}_part", shape, product.result.dtype)
        access = tuple(map(Affine.index, places))
        return Refinement(Direction.IN, made.name, (1,) * len(shape), made.dtype, made.name, access)

    def _named(self, block: Block, result: Refinement) -> Block:
        """The block of a part, which has this result in the place of that of all factors; first come the
        indexes of the result."""
        (*operands, _), (*statements, last) = block.refinements, block.statements
        assert isinstance(last, Store)
        written = replace(result, name=Names(r.name for r in operands).fresh(result.name))
        order = dict.fromkeys([*(name for expr in result.access for name in expr.names), *block.ranges])
        return replace(
            block,
            name=self.into.blocks.fresh(f"{block.name}_part"),
            indexes=tuple(block.index(name) for name in order),
            refinements=(*operands, written),
            statements=(*statements, replace(last, buffer=written.name)),
        )


def _multiplied(product: Product, parts: Sequence[Refinement], left: Some) -> Block:
    """The block where parts and the factors that are left, and no others, are multiplied."""
    block, dtype = product.block, product.result.dtype
    factors = [product.factors[number] for number in sorted(left)]
    needed = {statement for factor in factors for statement in factor.statements}
    loaded = {statement.buffer for statement in needed if isinstance(statement, Load)}
    refinements = [r for r in block.refinements if r.name in loaded]
    statements: list[Scalar] = [s for s in block.statements if isinstance(s, Scalar) and s in needed]
    views = Names([*loaded, product.result.name])
    scalars = Names(name for statement in statements for name in scalars_defined(statement))
    values = [factor.scalar for factor in factors for _ in range(factor.times)]
    for part in reversed(parts):
        view = replace(part, name=views.fresh(part.name))
        refinements.insert(0, view)
        statements.insert(0, Load(scalars.fresh("part"), view.name, dtype))
        values.insert(0, statements[0].result)
    first, *rest = values
    for other in rest:
        statements.append(Intrinsic(scalars.fresh("product"), "mul", (first, other), dtype))
        first = statements[-1].result
    stored = Store(product.result.name, first)
    return replace(block, refinements=(*refinements, product.result), statements=(*statements, stored))


def _limits(block: Block, names: frozenset[str]) -> tuple[Constraint, ...] | None:
    """What holds of these indexes wherever the block has a point; None where that is no single piece."""
    if not block.constraints:
        return ()
    known = Domain.box({name: size for name, size in block.ranges.items() if name in names})
    piece = block_domain(block).piece_beyond(known)
    return None if piece is None else tuple(map(Constraint, as_inequalities(piece)))
