from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripe.affine import Affine, box_of, row_major

NAMES = ("x", "y", "z'")
VALUES = st.fixed_dictionaries({name: st.integers(-9, 9) for name in NAMES})
AFFINES = st.builds(
    Affine.of, st.dictionaries(st.sampled_from(NAMES), st.integers(-5, 5)), st.integers(-20, 20)
)


def test_is_canonical() -> None:
    assert Affine.of({"y": 2, "x": 0, "a": -1}, 3) == Affine(3, (("a", -1), ("y", 2)))
    assert Affine.index("x", 0) == Affine()
    assert Affine.index("x") - Affine.index("x") == Affine()


@given(AFFINES, AFFINES, st.integers(-4, 4), VALUES)
def test_arithmetic_is_pointwise(a: Affine, b: Affine, factor: int, at: dict[str, int]) -> None:
    assert (a + b).evaluate(at) == a.evaluate(at) + b.evaluate(at)
    assert (a - b).evaluate(at) == a.evaluate(at) - b.evaluate(at)
    assert (a * factor).evaluate(at) == a.evaluate(at) * factor
    assert (-a).evaluate(at) == -a.evaluate(at)
    assert (a + 3).evaluate(at) == a.evaluate(at) + 3


@given(AFFINES, AFFINES)
def test_equal_means_one_form(a: Affine, b: Affine) -> None:
    assert a + b == b + a
    assert hash(a + b) == hash(b + a)
    assert (a + b) - b == a


@given(AFFINES, AFFINES, AFFINES, VALUES)
def test_substitution_is_simultaneous(a: Affine, x: Affine, y: Affine, at: dict[str, int]) -> None:
    inner = {**at, "x": x.evaluate(at), "y": y.evaluate(at)}
    assert a.substitute({"x": x, "y": y}).evaluate(at) == a.evaluate(inner)


def test_substitution_without_effect_is_the_same_object() -> None:
    expr = Affine.of({"x": 2}, 1)
    assert expr.substitute({"y": Affine(7)}) is expr


@given(AFFINES)
def test_bounds_are_those_of_the_box(a: Affine) -> None:
    box = {"x": (0, 2), "y": (-1, 1), "z'": (3, 3)}
    values = [
        a.evaluate(dict(zip(NAMES, point, strict=True)))
        for point in itertools.product(*(range(low, high + 1) for low, high in box.values()))
    ]
    assert a.bounds(box) == (min(values), max(values))


def test_parts() -> None:
    expr = Affine.of({"x": 2, "y": -1}, 5)
    assert expr.without({"x"}) == Affine.of({"y": -1}, 5)
    assert expr.only({"x"}) == Affine.of({"x": 2})
    assert expr.names == ("x", "y")
    assert (expr.coefficient("y"), expr.coefficient("q")) == (-1, 0)
    assert not expr.is_constant
    assert Affine(4).is_constant


def test_renaming_may_merge_terms() -> None:
    assert Affine.of({"x": 2, "y": -2}, 1).rename(lambda _: "z") == Affine(1)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Affine(), "0"),
        (Affine(-3), "-3"),
        (Affine.of({"x": 3, "y": 1}, -1), "3*x + y - 1"),
        (Affine.of({"x": -1}, 12), "12 - x"),
        (Affine.of({"x": -2}), "-2*x"),
        (Affine.of({"x": -1, "y": -1}, -1), "-1 - x - y"),
        (Affine.of({"x": -1, "y": 2}, 4), "2*y - x + 4"),
    ],
)
def test_prints(expr: Affine, text: str) -> None:
    assert str(expr) == text


@given(st.lists(st.tuples(AFFINES, st.integers(-5, 5)), max_size=4))
def test_weighted_sums(pairs: list[tuple[Affine, int]]) -> None:
    total = Affine()
    for expr, factor in pairs:
        total = total + expr * factor
    assert Affine.weighted([e for e, _ in pairs], [f for _, f in pairs]) == total


@given(st.lists(st.integers(1, 4), max_size=4))
def test_points_of_a_box_are_numbered_in_their_order(sizes: list[int]) -> None:
    ranges = {f"i{dim}": size for dim, size in enumerate(sizes)}
    points = itertools.product(*map(range, sizes))
    numbers = [row_major(ranges).evaluate(dict(zip(ranges, point, strict=True))) for point in points]
    assert numbers == [*range(len(numbers))]
    assert row_major(ranges).bounds(box_of(ranges)) == (0, len(numbers) - 1)
