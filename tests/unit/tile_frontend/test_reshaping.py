"""A reshape visits each element of both shapes once, in row-major order."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_frontend.reshaping import reshape_points


@st.composite
def shape_pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes whose sizes are products of the same prime factors, in any order."""
    factors = draw(st.lists(st.sampled_from([2, 2, 3, 5]), max_size=5))

    def grouped(order: list[int]) -> tuple[int, ...]:
        sizes = [1] * draw(st.integers(1 if factors else 0, 4))
        for factor in order:
            sizes[draw(st.integers(0, len(sizes) - 1))] *= factor
        return tuple(sizes)

    return grouped(factors), grouped(draw(st.permutations(factors)))


@given(shape_pairs())
def test_elements_go_where_numpy_puts_them(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = pair
    space, reads, writes = reshape_points(source, target)
    data = np.arange(prod(source)).reshape(source)
    result = np.full(target, -1)
    for values in itertools.product(*(range(size) for size in space.ranges.values())):
        point = dict(zip(space.ranges, values, strict=True))
        if all(expr.evaluate(point) >= 0 for expr in space.constraints):
            place = tuple(expr.evaluate(point) for expr in writes)
            assert result[place] == -1
            result[place] = data[tuple(expr.evaluate(point) for expr in reads)]
    np.testing.assert_array_equal(result, data.reshape(target))


@pytest.mark.parametrize(
    ("source", "target", "ranges", "constraints"),
    [
        ((6, 4), (2, 3, 4), [2, 3, 4], 0),
        ((2, 3, 4), (24,), [2, 3, 4], 0),
        ((4, 6), (8, 3), [4, 2, 3], 0),
        ((5, 1, 7), (5, 7), [5, 7], 0),
        ((2, 3), (3, 2), [3, 2, 2], 2),
        ((9, 2, 3), (9, 3, 2), [9, 3, 2, 2], 2),  # only the group that needs it has constraints
        ((), (1, 1), [], 0),
    ],
)
def test_refinement_where_it_exists(
    source: tuple[int, ...], target: tuple[int, ...], ranges: list[int], constraints: int
) -> None:
    space, _, _ = reshape_points(source, target)
    assert list(space.ranges.values()) == ranges
    assert len(space.constraints) == constraints
