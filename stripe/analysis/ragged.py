"""At which values of an outer index a constraint below it can fail: where full tiles end.

A constraint such as `1022 - 9*m - m_1 >= 0` in a tile holds for every m_1 as long as m is small
enough. Asked is, for each loop around a constraint, the range of its values at which some point
inside violates the constraint; at all others it can be left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from stripe.affine import Affine
from stripe.ir import Block
from stripe.poly import PolyhedralLimit, nest_domain


@dataclass(frozen=True, slots=True)
class Doubt:
    """A constraint that can fail only where `index` lies in first..last.

    `path` leads from the asked block to the one that has the index: positions of statements.
    `constraint` tells constraints apart: the path of its block, and its position there.
    `points` counts those of the constraint's block in the whole nest, as a box.
    """

    path: tuple[int, ...]
    constraint: tuple[int, ...]
    index: str
    first: int
    last: int
    range: int
    points: int

    def freed(self, at: int) -> float:
        """How many points are rid of the constraint if the index is split at a value."""
        values = sum(
            stop - start
            for start, stop in ((0, at), (at, self.range))
            if self.last < start or self.first >= stop
        )
        return self.points * values / self.range

    @property
    def cuts(self) -> tuple[int, ...]:
        """The values where it pays to split: at either end of the doubtful range."""
        return tuple(at for at in (self.first, self.last + 1) if 0 < at < self.range)


def doubts(block: Block, above: Sequence[Block]) -> tuple[Doubt, ...]:
    """Every constraint of a nest with each index around it, in its own block or farther out.

    `above` are the blocks that lead to `block`, the root first.
    """
    return tuple(_below((*above, block), len(above), (), {}))


def _below(
    nest: tuple[Block, ...], top: int, path: tuple[int, ...], outer: Mapping[str, Affine]
) -> Iterator[Doubt]:
    """`outer` gives the indexes of the parent over the ranged indexes of the nest, as `depth.name`."""
    block, depth = nest[-1], len(nest) - 1
    values = {name: Affine.index(f"{depth}.{name}") for name in block.ranges}
    for index in block.indexes:
        if index.passed is not None:
            values[index.name] = (
                index.passed.substitute(outer) if depth > top else Affine.index(f"{depth}.{index.name}")
            )
    if block.constraints:
        points = prod(size for level in nest[top:] for size in level.ranges.values())
        for number, constraint in enumerate(block.constraints):
            over_nest = constraint.expr.substitute(values)
            yield from _doubts(nest, top, (*path, number), over_nest, constraint.expr, points)
    for number, statement in enumerate(block.statements):
        if isinstance(statement, Block):
            yield from _below((*nest, statement), top, (*path, number), values)


def _doubts(
    nest: Sequence[Block], top: int, path: tuple[int, ...], expr: Affine, own: Affine, points: int
) -> Iterator[Doubt]:
    """The doubts about one constraint: `own` over the indexes of its block, `expr` over the nest's."""
    ranges = {f"{depth}.{n}": size for depth, level in enumerate(nest) for n, size in level.ranges.items()}
    names = [name for name in expr.names if name in ranges and int(name.partition(".")[0]) >= top]
    for name, (first, last) in _violations(nest, expr, own, ranges, names).items():
        depth, _, index = name.partition(".")
        yield Doubt(path[: int(depth) - top], path, index, first, last, ranges[name], points)


def _violations(
    nest: Sequence[Block], expr: Affine, own: Affine, ranges: Mapping[str, int], names: Collection[str]
) -> dict[str, tuple[int, int]]:
    """For each of `names`, the range of its values at which the constraint can fail."""
    if set(expr.names) <= set(ranges) and not any(level.constraints for level in nest[:-1]):
        return _in_box(expr, ranges, names)
    depth = len(nest) - 1
    free = nest_domain((*nest[:-1], Block("", nest[-1].indexes)))
    try:
        failing = free.with_constraints([-own.rename(lambda name: f"{depth}.{name}") - 1])
        if failing.is_empty():
            return {}
        limits = {name: failing.bounds(Affine.index(name)) for name in names}
    except PolyhedralLimit:
        return {}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _in_box(expr: Affine, ranges: Mapping[str, int], names: Collection[str]) -> dict[str, tuple[int, int]]:
    """The same where all indexes are independent: an index fails up to a value, or from one on."""
    box = {name: (0, ranges[name] - 1) for name in expr.names}
    found = {}
    for name in names:
        step = expr.coefficient(name)
        least = expr.without({name}).bounds(box)[0]  # fails where step * value + least < 0
        first, last = box[name]
        if step > 0:
            last = min(last, (-least - 1) // step)
        else:
            first = max(first, least // -step + 1)
        if first <= last:
            found[name] = (first, last)
    return found
