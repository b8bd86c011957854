"""Grids of points against points one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.alike import Cut, Grid, lifted, signature
from stripe.affine import Affine

RANGES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(
    lambda sizes: {f"i{at}": size for at, size in enumerate(sizes)}
)


@st.composite
def affines(draw: st.DrawFn, names: list[str]) -> Affine:
    return Affine.of({name: draw(st.integers(-2, 2)) for name in names}, draw(st.integers(-4, 6)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, int], list[Affine], int]:
    ranges = draw(RANGES)
    constraints = draw(st.lists(affines([*ranges, "p"]), max_size=2))
    return ranges, constraints, draw(st.integers(-3, 3))


def points(ranges: dict[str, int], constraints: list[Affine], passed: int) -> list[dict[str, int]]:
    found = [{"p": passed}]
    for name, size in ranges.items():
        found = [{**point, name: value} for point in found for value in range(size)]
    return [point for point in found if all(c.evaluate(point) >= 0 for c in constraints)]


@settings(deadline=None, max_examples=150)
@given(cases(), st.data())
def test_a_grid_is_its_points(case: tuple[dict[str, int], list[Affine], int], data: st.DataObject) -> None:
    ranges, constraints, passed = case
    grid = Grid.over(ranges, constraints, {"p": passed})
    every = points(*case)
    assert grid.count == len(every)
    if not every:
        return
    expr = data.draw(affines([*ranges, "p"]))
    values = [expr.evaluate(point) for point in every]
    assert grid.interval(expr) == (min(values), max(values))
    assert grid.over_points(expr).tolist() == values
    assert grid.distinct([expr], [grid.interval(expr)]) == len(set(values))
    name, width = data.draw(st.sampled_from(list(ranges))), data.draw(st.integers(1, 3))
    groups = {tuple(v // width if n == name else v for n, v in point.items()) for point in every}
    assert grid.groups(name, width) == len(groups)
    cuts = [Cut(expr, data.draw(st.integers(-2, 2)))]
    counted = Counter(signature(cuts, point) for point in every)
    assert {signature(cuts, at): many for at, many in grid.kinds(cuts)} == counted


@settings(deadline=None, max_examples=150)
@given(cases(), st.data())
def test_points_with_one_signature_have_alike_executions_below(
    case: tuple[dict[str, int], list[Affine], int], data: st.DataObject
) -> None:
    ranges, constraints, _ = case
    cuts = lifted(ranges, {"p": Affine.index("outer")}, [Cut(c, 0) for c in constraints])
    seen: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for outer in range(-6, 7):
        inside = [{n: v for n, v in p.items() if n != "p"} for p in points(ranges, constraints, outer)]
        assert seen.setdefault(signature(cuts, {"outer": outer}), inside) == inside
