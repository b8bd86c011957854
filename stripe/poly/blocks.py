"""The points of blocks and of nests of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from stripe.affine import Affine
from stripe.ir import Block
from stripe.poly.domain import Domain, box_limits


def block_domain(block: Block) -> Domain:
    """The points of one block over all its indexes; those passed in are free dimensions."""
    inequalities = (*box_limits(block.ranges), *(constraint.expr for constraint in block.constraints))
    return Domain.of([index.name for index in block.indexes], inequalities)


def nest_domain(path: Sequence[Block]) -> Domain:
    """The points of a nest, outermost block first: index `i` of the block at depth 2 is `2.i`.

    Indexes that a block is passed equal their expression over the indexes one level up; those
    of the first block are free.
    """
    names: list[str] = []
    inequalities: list[Affine] = []
    equalities: list[Affine] = []
    for depth, block in enumerate(path):

        def here(name: str, depth: int = depth) -> str:
            return f"{depth}.{name}"

        def above(name: str, depth: int = depth) -> str:
            return f"{depth - 1}.{name}"

        for index in block.indexes:
            own = Affine.index(here(index.name))
            names.append(here(index.name))
            if index.passed is None:
                inequalities += [own, -own + (index.range - 1)]
            elif depth:
                equalities.append(own - index.passed.rename(above))
        inequalities += [constraint.expr.rename(here) for constraint in block.constraints]
    return Domain.of(names, inequalities, equalities)
