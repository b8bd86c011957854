"""Products that a leaf block sums up, and which of their factors can be summed up by themselves.

    O[i, r : I, R] = +(A[i, j] * B[j, k] * C[k, r]);       the sum over j needs A and B alone

Some of the factors, multiplied in a block of their own, can be summed up over each index on which nothing
else depends: no other factor, not the result, and no constraint that holds it together with others. That is
the generalized distributive law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stripe.analysis.units import claimed
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Refinement,
    Scalar,
    Special,
    Store,
    rounds_partial_sums,
)
from stripe.visit import scalars_read

MOST = 6  # factors, of which all orders are weighed

Some: TypeAlias = frozenset[int]
"""Factors of a product, by their numbers."""


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A factor: a scalar, so many `times`, the `statements` that make it, in order, and the indexes that it
    depends on."""

    scalar: str
    times: int
    statements: tuple[Scalar, ...]
    indexes: frozenset[str]

    @property
    def loads(self) -> tuple[Load, ...]:
        return tuple(s for s in self.statements if isinstance(s, Load))


@dataclass(frozen=True, slots=True)
class Product:
    """A block that sums up a product of factors into `result`."""

    block: Block
    result: Refinement
    factors: tuple[Multiplied, ...]

    @property
    def every(self) -> Some:
        return frozenset(range(len(self.factors)))

    def indexes(self, some: Some) -> frozenset[str]:
        """What any of some factors depends on."""
        return frozenset[str]().union(*(self.factors[number].indexes for number in some))

    def kept(self, some: Some) -> frozenset[str]:
        """The indexes of some factors on which something else depends, too."""
        own = self.indexes(some)
        limits = [frozenset(c.expr.names) for c in self.block.constraints]
        return own & frozenset(_names(self.result)).union(
            self.indexes(self.every - some), *(names for names in limits if not names <= own)
        )

    def summed(self, some: Some) -> frozenset[str]:
        """The indexes over which some factors can be summed up by themselves."""
        return self.indexes(some) - self.kept(some)

    def may_be_a_part(self, some: Some) -> bool:
        """Whether some factors can be a block of their own that is more than a copy."""
        return some < self.every and (len(some) > 1 or bool(self.summed(some)))

    def points(self, some: Some, parts: Iterable[Some]) -> frozenset[str]:
        """The indexes of the block that multiplies some factors, where `parts` of them have their own."""
        own = frozenset(self.block.ranges) if some == self.every else self.indexes(some)
        return own.difference(*(self.summed(part) for part in parts))


def product_of(block: Block) -> Product | str | None:
    """The product that a leaf block sums up; why it has to be one sum, as a clause; None where it is no sum
    of a product, or one that has no parts."""
    if any(isinstance(s, Block | Special) for s in block.statements):
        return None
    results = [r for r in block.refinements if r.direction is not Direction.IN]
    stores = [s for s in block.statements if isinstance(s, Store)]
    if len(results) != 1 or len(stores) != 1 or results[0].aggregation is not Aggregation.ADD:
        return None
    if any(index.passed is not None or not index.range for index in block.indexes):
        return None
    made = {s.result: s for s in block.statements if isinstance(s, Scalar)}
    value, (result,) = stores[0].value, results
    source = made[value]
    while isinstance(source, Cast):
        source = made[source.operand]
    if source.dtype is not result.dtype and len(_counts(made, source.result, source.dtype)) > 2:
        return f"its factors are multiplied in {source.dtype.value}, and summed up in {result.dtype.value}"
    counts = _counts(made, value, result.dtype)
    factors = tuple(_multiplied(block, made, scalar, count) for scalar, count in counts.items())
    product = Product(block, result, factors)
    if len(factors) < 3 and not any(product.may_be_a_part(frozenset([one])) for one in product.every):
        return None
    return _refusal(product) or product


def _refusal(product: Product) -> str:
    """Why a product stays one sum, as a clause; empty if it need not."""
    block, result = product.block, product.result
    if reason := claimed(block):
        return reason
    if block.tags:
        return f"#{block.tags[0].name} says how it runs"
    if rounds_partial_sums(result.dtype, result.aggregation):
        return f"sums of parts would be rounded to {result.dtype.value}"
    if sum(factor.times for factor in product.factors) > MOST:
        return f"it has more than {MOST} factors"
    return ""


def parts_of(some: Some, parts: Sequence[Some]) -> tuple[tuple[Some, ...], Some]:
    """Of some factors: the largest of the given parts among them, and the factors in none."""
    inside = [part for part in parts if part < some]
    largest = tuple(part for part in inside if not any(part < other for other in inside))
    return largest, some.difference(*largest)


def _counts(made: dict[str, Scalar], value: str, dtype: DType) -> Counter[str]:
    """How often each factor of a value is multiplied, in the order of the statements that make them."""
    counts = Counter([value])
    for name, statement in reversed(made.items()):
        if isinstance(statement, Intrinsic) and statement.op == "mul" and statement.dtype is dtype:
            times = counts.pop(name, 0)
            for operand in statement.operands if times else ():
                counts[operand] += times
    return Counter({name: counts[name] for name in made if name in counts})


def _multiplied(block: Block, made: dict[str, Scalar], scalar: str, times: int) -> Multiplied:
    needed, names = {scalar}, set[str]()
    statements: list[Scalar] = []
    for name, statement in reversed(made.items()):
        if name not in needed:
            continue
        statements.append(statement)
        needed.update(scalars_read(statement))
        if isinstance(statement, Load):
            names.update(_names(block.refinement(statement.buffer)))
        elif isinstance(statement, IndexValue):
            names.update(statement.expr.names)
    return Multiplied(scalar, times, tuple(reversed(statements)), frozenset(names))


def _names(view: Refinement) -> tuple[str, ...]:
    return tuple(name for expr in view.access for name in expr.names)
