"""Which results of a leaf block stay the same when two of its indexes change places.

    T[i, j : M, M] = +(D[n, i] * D[n, j]);       T[i, j] and T[j, i] are one value

They do where the block is the same with the two exchanged, up to the order of statements and of operands
that may change places to the bit: the values that it stores are compared as terms over the elements that it
loads. What is multiplied in another order (`D[n, i] * W[n] * D[n, j]`) is rounded otherwise: it is not the
same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations

from stripe.affine import Affine
from stripe.intrinsics import commutes
from stripe.ir import (
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Refinement,
    Special,
    Store,
)
from stripe.poly import block_domain


@dataclass(frozen=True, slots=True)
class Symmetric:
    """The result of a block, and two indexes of it, in the order of its dimensions, that may change places.

    `points`: whether the points of the block stay the same, too. Where they do not, it computes some
    results whose mirror image it does not.
    """

    result: Refinement
    indexes: tuple[str, str]
    points: bool

    @property
    def mirrored(self) -> tuple[Affine, ...]:
        """Where the mirror image of what a point writes lies."""
        return tuple(expr.substitute(exchange(*self.indexes)) for expr in self.result.access)


def exchange(first: str, second: str) -> Mapping[str, Affine]:
    return {first: Affine.index(second), second: Affine.index(first)}


def symmetries(block: Block) -> tuple[Symmetric, ...]:
    """All pairs of indexes that may change places in what a leaf block aggregates. None in other blocks, nor
    where a dimension of the result is more than one index, or an index is in several."""
    result, ranges = _aggregated(block), block.ranges
    if result is None:
        return ()
    names = [name for expr in result.access for name in expr.names]
    if len(set(names)) < len(names) or any(len(expr.names) > 1 for expr in result.access):
        return ()
    terms, found = _Terms(block), []
    for first, second in combinations((name for name in names if ranges[name] > 1), 2):
        if ranges[first] == ranges[second] and terms.same(exchange(first, second)):
            found.append(Symmetric(result, (first, second), _same_points(block, exchange(first, second))))
    return tuple(found)


def _aggregated(block: Block) -> Refinement | None:
    """The one view that a leaf block writes, if it starts an aggregation and has no buffers of its own; None
    where an index is passed, or has no values."""
    if any(isinstance(s, Block | Special) for s in block.statements):
        return None
    if any(index.passed is not None or not index.range for index in block.indexes):
        return None
    results = [r for r in block.refinements if r.direction is not Direction.IN]
    if len(results) != 1 or results[0].direction is not Direction.OUT or not results[0].combines:
        return None
    return results[0]


def _same_points(block: Block, values: Mapping[str, Affine]) -> bool:
    """Whether the points of a block stay the same with these values for its indexes."""
    exprs = {constraint.expr for constraint in block.constraints}
    if {expr.substitute(values) for expr in exprs} == exprs:
        return True
    points = block_domain(block)
    return points.preimage(values, points.names).equals(points)


class _Terms:
    """What a leaf block stores, as terms. Equal terms have equal numbers."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._numbers: dict[Hashable, int] = {}
        self._stored = self._terms({})

    def same(self, values: Mapping[str, Affine]) -> bool:
        """Whether the block stores the same with these values for its indexes."""
        return self._terms(values) == self._stored

    def _number(self, *term: Hashable) -> int:
        return self._numbers.setdefault(term, len(self._numbers))

    def _terms(self, values: Mapping[str, Affine]) -> list[int]:
        scalars: dict[str, int] = {}
        stored: list[int] = []
        for statement in self._block.statements:
            match statement:
                case Load(result=name, buffer=buffer, dtype=dtype):
                    view = self._block.refinement(buffer)
                    access = tuple(expr.substitute(values) for expr in view.access)
                    scalars[name] = self._number("load", view.source, access, dtype)
                case Constant(result=name, value=value, dtype=dtype):
                    scalars[name] = self._number("constant", repr(value), dtype)
                case IndexValue(result=name, expr=expr, dtype=dtype):
                    scalars[name] = self._number("index", expr.substitute(values), dtype)
                case Cast(result=name, operand=operand, dtype=dtype):
                    scalars[name] = self._number("cast", scalars[operand], dtype)
                case Intrinsic(result=name, op=op, operands=operands, dtype=dtype):
                    numbers = [scalars[operand] for operand in operands]
                    ordered = tuple(sorted(numbers) if commutes(op, dtype) else numbers)
                    scalars[name] = self._number("intrinsic", op, ordered, dtype)
                case Store(value=scalar):
                    stored.append(scalars[scalar])
                case _:
                    pass
        return sorted(stored)
