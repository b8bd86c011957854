"""stripe.poly against enumeration: every operation on small random sets, and lattices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from stripe.affine import Affine
from stripe.poly import Domain, Linear, boxed, reparametrise

NAMES = ("a", "b", "c")
LOW, HIGH = -3, 3
GRID = [dict(zip(NAMES, p, strict=True)) for p in itertools.product(range(LOW, HIGH + 1), repeat=len(NAMES))]
WALLS = [wall for n in NAMES for wall in (Affine.index(n) - LOW, -Affine.index(n) + HIGH)]

Points = set[tuple[int, ...]]
small = st.integers(-3, 3)
affines = st.builds(
    lambda coefficients, const: Affine.of(dict(zip(NAMES, coefficients, strict=True)), const),
    st.tuples(*([small] * len(NAMES))), small,
)  # fmt: skip
constraint_lists = st.lists(affines, max_size=3)
sets = st.lists(st.tuples(constraint_lists, st.lists(affines, max_size=1)), min_size=1, max_size=2)


def built(description: Sequence[tuple[list[Affine], list[Affine]]]) -> tuple[Domain, Points]:
    """A union of conjunctions inside the grid, as a domain and as points."""
    domain = Domain.empty(NAMES)
    points: Points = set()
    for more, equal in description:
        domain = domain.union(Domain.of(NAMES, [*WALLS, *more], equal))
        points |= {
            tuple(p.values())
            for p in GRID
            if all(e.evaluate(p) >= 0 for e in more) and all(e.evaluate(p) == 0 for e in equal)
        }
    return domain, points


def points_of(domain: Domain) -> Points:
    return {tuple(p.values()) for p in domain.points()}


@given(sets)
def test_points_and_questions(description: list[tuple[list[Affine], list[Affine]]]) -> None:
    domain, points = built(description)
    assert points_of(domain) == points
    assert domain.count() == len(points)
    assert domain.is_empty() == (not points)
    assert domain.is_bounded()
    first = domain.first()
    assert (None if first is None else tuple(first.values())) == min(points, default=None)
    sample = domain.sample()
    assert (sample is None and not points) or (sample is not None and tuple(sample.values()) in points)


@given(sets, sets)
def test_algebra(
    one: list[tuple[list[Affine], list[Affine]]], two: list[tuple[list[Affine], list[Affine]]]
) -> None:
    (a, in_a), (b, in_b) = built(one), built(two)
    turned = b.project_onto(NAMES[::-1])
    assert points_of(a.union(turned)) == in_a | in_b
    assert points_of(a.intersect(turned)) == in_a & in_b
    assert points_of(a.subtract(turned)) == in_a - in_b
    assert a.is_subset(turned) == (in_a <= in_b)
    assert a.equals(turned) == (in_a == in_b)
    assert points_of(a.gist(turned).intersect(b)) == in_a & in_b


@given(sets, affines, affines)
def test_images(description: list[tuple[list[Affine], list[Affine]]], first: Affine, second: Affine) -> None:
    domain, points = built(description)
    values = {
        (first.evaluate(p), second.evaluate(p))
        for p in (dict(zip(NAMES, point, strict=True)) for point in points)
    }
    image = domain.image([first, second], ["x", "y"])
    assert points_of(image) == values
    assert image.count() == len(values)
    if points:
        assert domain.bounds(first) == (min(v for v, _ in values), max(v for v, _ in values))
    assert points_of(domain.project_onto(["c", "a"])) == {(c, a) for a, _, c in points}
    back = domain.preimage({"a": first, "b": second}, NAMES).intersect(Domain.of(NAMES, WALLS))
    assert points_of(back) == {
        tuple(p.values()) for p in GRID if (first.evaluate(p), second.evaluate(p), p["c"]) in points
    }


@given(sets)
def test_pieces_and_boxes(description: list[tuple[list[Affine], list[Affine]]]) -> None:
    domain, points = built(description)
    boxes = boxed(domain)
    assert boxes is not None  # conjunctions of affine constraints have no existentials
    found: list[tuple[int, ...]] = []
    for box in boxes:
        for shifted in Domain.box(box.ranges).with_constraints(box.constraints).points():
            found.append(tuple(shifted[n] + box.offsets[n] for n in NAMES))
        for name, size in box.ranges.items():
            inside = Domain.box(box.ranges).with_constraints(box.constraints)
            assert inside.bounds(Affine.index(name)) == (0, size - 1)
    assert sorted(found) == sorted(points)


fractions = st.builds(Fraction, st.integers(-4, 4), st.sampled_from((1, 1, 2, 3, 4)))
linears = st.builds(
    lambda coefficients, const: (
        {name: c for name, c in zip(NAMES, coefficients, strict=True) if c},
        const,
    ),
    st.tuples(*([fractions] * len(NAMES))), fractions,
)  # fmt: skip


def value(expr: Linear, point: dict[str, int]) -> Fraction:
    return expr[1] + sum((c * point[name] for name, c in expr[0].items()), Fraction(0))


@given(st.lists(linears, max_size=2), st.lists(linears, max_size=2), st.lists(linears, max_size=1))
@settings(max_examples=200)
def test_lattices_hold_each_point_once(
    integral: list[Linear], inequalities: list[Linear], equalities: list[Linear]
) -> None:
    walls: list[Linear] = [({n: Fraction(c) for n, c in wall.terms}, Fraction(wall.const)) for wall in WALLS]
    points = [
        p
        for p in GRID
        if all(value(e, p).denominator == 1 for e in integral)
        and all(value(e, p) >= 0 for e in inequalities)
        and all(value(e, p) == 0 for e in equalities)
    ]
    lattice = reparametrise(NAMES, integral, [*walls, *inequalities], equalities)
    if lattice is None:
        assert not points
        return
    found = [{name: lattice.values[name].evaluate(new) for name in NAMES} for new in lattice.domain.points()]
    key = [tuple(p.values()) for p in points]
    assert sorted(tuple(p.values()) for p in found) == sorted(key)
    assert set(lattice.names) <= set(NAMES)
    for expr in integral:
        rewritten = lattice.rewrite(expr)
        for new in lattice.domain.points():
            old = {name: lattice.values[name].evaluate(new) for name in NAMES}
            assert rewritten.evaluate(new) == value(expr, old)
