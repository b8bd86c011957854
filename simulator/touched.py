"""How many elements of a buffer the tiles of a nest touch, counted by isl, whatever constrains the nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stripe.affine import Affine
from stripe.analysis.bounds import Leaf
from stripe.poly import Domain


def executions(leaf: Leaf) -> Domain:
    """The points at which the statements of a leaf are executed."""
    return Domain.box(leaf.ranges).with_constraints(leaf.constraints)


def touched(views: Iterable[tuple[Domain, Sequence[Affine]]], tiles: Mapping[str, int]) -> int:
    """The elements of one buffer that these views touch, each element once in each tile. A view is a place at
    points of a nest; `tiles` has the size of a tile along each index that is tiled."""
    found = None
    for points, place in views:
        kept = []
        for name, size in tiles.items():
            number = f"tile {name}"  # floor(name / size)
            inside = Affine.index(name) - Affine.index(number, size)
            points = points.extended([number]).with_constraints([inside, -inside + (size - 1)])
            kept.append(Affine.index(number))
        names = [f"@{at}" for at in range(len(kept) + len(place))]
        own = points.image([*kept, *place], names)
        found = own if found is None else found.union(own)
    return found.coalesce().count() if found is not None else 0
