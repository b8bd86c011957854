"""How much tiles compute beyond a constraint that cuts them aslant.

    i - j >= 0   through a tile of 5 rows and 80 columns: all 400 points are computed

Tiles without a point are left out, and lanes that are off are not written; but a tile that has a point is
computed as a whole. Of a triangle of n rows, tiles of h rows and w columns compute (h + w) / n more than its
points: the nearer to a square they are, the less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from stripe.affine import Affine
from stripe.analysis.bounds import Counts, Leaf, Sizes
from stripe.analysis.cost_problem import Costs
from stripe.ir import Block

_MOST_VALUES = 1 << 22  # of a constraint whose points are counted


@dataclass(frozen=True, slots=True, eq=False)
class Slanted:
    """A constraint that cuts tiles aslant, and the factors of the indexes that they are made of. Where all
    indexes are 0 it has the value `first`; the others move it by multiples of `step`. Widened by 0, 1, 2 ...
    it has so many more points, as `shares` of its own."""

    factors: tuple[tuple[str, int], ...]
    first: int
    step: int
    shares: Costs

    def beyond(self, sizes: Sizes) -> Costs:
        """What tiles of these sizes compute beyond it, as a share of its points: that many have a point of
        it, which are those whose greatest value is at least 0."""
        lengths = {name: np.asarray(sizes[name], np.int64) for name, _ in self.factors}
        apart: Counts = np.asarray(self.step, np.int64)  # by how much the greatest values of tiles differ
        for name, by in self.factors:
            apart = np.gcd(apart, abs(by) * lengths[name])
        spread = sum(abs(by) * (lengths[name] - 1) for name, by in self.factors)
        greatest = self.first + sum(max(by, 0) * (lengths[name] - 1) for name, by in self.factors)
        widened = (spread + apart - 1) / 2 - greatest % apart
        return np.asarray(np.interp(widened, np.arange(len(self.shares)), self.shares))


def slanted(leaf: Leaf, among: Sequence[str], around: Sequence[Block]) -> tuple[Slanted, ...]:
    """The constraints of a leaf on several of the indexes `among` that tiles are made of.

    `around` are the blocks from below the root to the one that is tiled: they tell the values of what it is
    passed.
    """
    found = (_cut(expr, leaf, among, around) for expr in leaf.constraints)
    return tuple(cut for cut in found if cut is not None)


def _cut(expr: Affine, leaf: Leaf, among: Sequence[str], around: Sequence[Block]) -> Slanted | None:
    """A constraint, if it cuts tiles aslant. Its value is taken for a sum of independent numbers, each of
    which is as often any of its range."""
    factors = tuple((name, by) for name, by in expr.terms if name in among)
    if len(factors) < 2:
        return None
    terms = [(by, leaf.ranges[name]) for name, by in factors]
    expr = expr.without(set(among))
    levels = [leaf.ranges, *(block.ranges for block in reversed(around[:-1]))]
    for block, ranges in zip(reversed(around), levels, strict=True):
        terms += [(by, ranges[name]) for name, by in expr.terms if name in ranges]
        passed = {index.name: index.passed for index in block.indexes if index.passed is not None}
        expr = expr.without(set(ranges)).substitute(passed)
    values = 1 + sum(abs(by) * (number - 1) for by, number in terms)
    below = -expr.const - sum(min(0, by * (number - 1)) for by, number in terms)
    if expr.terms or values > _MOST_VALUES or not 0 < below < values:
        return None  # nobody knows, or all points are on one side
    points = np.zeros(values)  # with each value, from the least on
    points[0] = 1
    for by, number in terms:
        points = _moved(points, abs(by), number)
    shares = np.cumsum(points[below - 1 :: -1]) / points[below:].sum()
    step = gcd(*(by for by, _ in terms[len(factors) :]))
    return Slanted(factors, expr.const, step, np.concatenate([[0.0], shares]))


def _moved(points: Costs, by: int, number: int) -> Costs:
    """How many points have each value once all are there `number` times, each time `by` further."""
    sums = np.pad(points, (0, -len(points) % by)).reshape(-1, by).cumsum(0)
    total = sums.copy()
    total[number:] -= sums[:-number]
    return total.ravel()[: len(points)]
