"""Narrowing keeps the points of a contraction, and takes few index values for a narrow band."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod

import pytest

from stripe.affine import Affine
from stripe.poly import Lattice
from tile_frontend.narrowing import GAIN, narrowed


def lattice(ranges: dict[str, int], *constraints: tuple[int, ...]) -> Lattice:
    """Constraints are the coefficients of the indexes, then the constant; each >= 0."""
    limits = tuple(Affine.of(dict(zip(ranges, row[:-1], strict=True)), row[-1]) for row in constraints)
    return Lattice(ranges, limits, {name: Affine.index(name) for name in ranges})


def points(of: Lattice) -> list[tuple[int, ...]]:
    """The old indexes at every point, with repetitions."""
    found = []
    for values in product(*(range(size) for size in of.ranges.values())):
        point = dict(zip(of.ranges, values, strict=True))
        if all(expr.evaluate(point) >= 0 for expr in of.constraints):
            found.append(tuple(value.evaluate(point) for value in of.values.values()))
    return sorted(found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lattice({"i": 20, "j": 20}, (1, -1, 0), (-1, 1, 3)), {"i": 20, "j": 4}),  # 0 <= i - j <= 3
        (lattice({"i": 20, "j": 20}, (-1, 1, 2), (1, -1, 1)), {"i": 20, "j": 4}),  # -1 <= j - i <= 2
        (lattice({"i": 40, "j": 20}, (1, -2, 1), (-1, 2, 2)), {"i": 4, "j": 20}),  # -1 <= i - 2*j <= 2
        (lattice({"i": 40, "j": 20}, (1, 2, -38), (-1, -2, 41)), {"i": 4, "j": 20}),  # i + 2*j
        (lattice({"i": 9, "j": 20, "k": 20}, (1, 1, -1, 0), (-1, -1, 1, 2)), {"i": 9, "j": 3, "k": 20}),
        (lattice({"i": 60, "j": 30}, (2, -3, 0), (-2, 3, 4)), None),  # no coefficient of 1
        (lattice({"i": 20, "j": 20}, (1, -1, 0)), None),  # a triangle
        (lattice({"i": 20, "j": 20}, (1, -1, 0), (-1, 1, 9)), None),  # not narrow enough
        (lattice({"i": 3, "j": 20}), None),
    ],
)
def test_a_band_gets_an_index_of_its_width(before: Lattice, after: dict[str, int] | None) -> None:
    found = narrowed(before, ["i"])
    if after is None:
        assert found is before
        return
    assert found.ranges == after
    assert points(found) == points(before)
    assert prod(found.ranges.values()) * GAIN <= prod(before.ranges.values())


def test_bands_of_two_dimensions_both_become_narrow() -> None:
    rows = [(1, 0, -2, 0, 1), (-1, 0, 2, 0, 1), (0, 1, 0, -2, 1), (0, -1, 0, 2, 1)]
    before = lattice({"y": 16, "x": 24, "a": 8, "b": 12}, *rows)
    found = narrowed(before, ["y", "x"])
    assert found.ranges == {"y": 3, "x": 3, "a": 8, "b": 12}
    assert points(found) == points(before)


def test_expressions_follow_their_indexes() -> None:
    found = narrowed(lattice({"i": 20, "j": 20}, (1, -1, 0), (-1, 1, 3)), ["i"])
    difference = found.rewrite(({"i": Fraction(1), "j": Fraction(-1)}, Fraction(0)))
    assert difference == Affine.index("j")
