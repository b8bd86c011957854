"""stripe.poly: what each operation gives, on sets small enough to see."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from fractions import Fraction

import islpy as isl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripe import poly
from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.ir import Block, Constraint, Index
from stripe.poly import (
    Domain,
    PolyhedralLimit,
    Unbounded,
    block_domain,
    boxed,
    calls,
    lattices,
    nest_domain,
    reparametrise,
)

i, j, k = Affine.index("i"), Affine.index("j"), Affine.index("k")


def half(name: str, offset: int = 0) -> poly.Linear:
    return {name: Fraction(1, 2)}, Fraction(offset, 2)


def whole(const: int, **terms: int) -> poly.Linear:
    return {name: Fraction(c) for name, c in terms.items()}, Fraction(const)


def test_a_box_is_what_its_ranges_say() -> None:
    box = Domain.box({"i": 2, "j": 3})
    assert [tuple(p.values()) for p in box.points()] == [(a, b) for a in range(2) for b in range(3)]
    assert box.count() == 6
    assert box.bounds(i * 10 - j) == (-2, 10)
    assert Domain.box({"i": 0}).is_empty()
    assert Domain.box({}).count() == 1


def test_names_not_places_say_which_dimension_is_meant() -> None:
    ij = Domain.of(["i", "j"], [i, -i + 3, j, -j])
    ji = Domain.of(["j", "i"], [i, -i + 3, j, -j])
    assert ij.equals(ji)
    assert ij.intersect(ji).names == ("i", "j")
    assert ij.subtract(ji).is_empty()
    assert ji.project_onto(["i", "j"]).equals(ij)
    assert ij.renamed({"i": "j", "j": "i"}.__getitem__).bounds(i) == (0, 0)


def test_sets_over_different_names_do_not_mix() -> None:
    with pytest.raises(InvariantError):
        Domain.box({"i": 2}).union(Domain.box({"j": 2}))
    with pytest.raises(InvariantError):
        Domain.of(["i", "i"], [])


def test_bounds_of_an_unbounded_strip() -> None:
    """isl calls both dimensions of 0 <= i - j <= 1 bounded; the set is not."""
    strip = Domain.of(["i", "j"], [i - j, j - i + 1])
    assert not strip.is_bounded()
    assert strip.bounds(i) is None
    assert strip.bounds(i - j) == (0, 1)
    with pytest.raises(InvariantError):
        Domain.empty(["i"]).bounds(i)


def test_numbers_beyond_64_bits_are_exact() -> None:
    big = 3 * 10**30
    domain = Domain.of(["i"], [i * big - 1, -i * big + 5 * big])
    assert domain.bounds(i) == (1, 5)
    assert domain.bounds(i * big) == (big, 5 * big)


def test_image_keeps_gaps() -> None:
    image = Domain.box({"i": 4}).image([i * 2 + 1, Affine(7)], ["x", "y"])
    assert [p["x"] for p in image.points()] == [1, 3, 5, 7]
    assert image.bounds(Affine.index("y")) == (7, 7)
    assert image.count() == 4
    assert image.pieces() is None  # "x is odd" needs an existential variable


def test_preimage_undoes_an_access() -> None:
    view = Domain.box({"e": 5})
    back = view.preimage({"e": i * 2 - 1}, ["i"])
    assert [p["i"] for p in back.points()] == [1, 2]


def test_pieces_are_constraints_that_make_the_set_again() -> None:
    ring = Domain.box({"i": 5, "j": 5}).subtract(Domain.of(["i", "j"], [i - 1, -i + 3, j - 1, -j + 3]))
    pieces = ring.pieces(disjoint=True)
    assert pieces is not None
    parts = [Domain.of(["i", "j"], more, equal) for more, equal in pieces]
    assert sum(part.count() for part in parts) == 16
    assert all(part.is_subset(ring) for part in parts)
    assert Domain.empty(["i"]).pieces() == []


def test_gist_drops_what_the_context_says() -> None:
    half_box = Domain.box({"i": 8}).with_constraints([i - 4])
    left = half_box.gist(Domain.box({"i": 8})).pieces()
    assert left == [([i - 4], [])]


def test_count_multiplies_independent_parts() -> None:
    """Nine dimensions and 10^13 points, but no scan is longer than a few steps."""
    ranges = dict.fromkeys("abcdefghi", 30)
    more = [Affine.of({"a": 1, "b": 1}, -10), Affine.of({"c": -1, "d": -1}, 40)]
    started = time.process_time()
    domain = Domain.box(ranges).with_constraints(more)
    a_b = sum(1 for a in range(30) for b in range(30) if a + b >= 10)
    c_d = sum(1 for c in range(30) for d in range(30) if c + d <= 40)
    assert domain.count() == a_b * c_d * 30**5
    assert time.process_time() - started < 1


def test_compact_forgets_free_dimensions() -> None:
    domain = Domain.box({"i": 2}).extended(["p", "q"])
    assert domain.with_constraints([Affine.index("q")]).compact(["p", "q"]).names == ("i", "q")


def test_first_is_the_least_point() -> None:
    domain = Domain.box({"i": 5, "j": 5}).with_constraints([i + j - 6])
    assert domain.first() == {"i": 2, "j": 4}
    assert Domain.empty(["i"]).first() is None
    assert Domain.empty(["i"]).sample() is None


@pytest.fixture
def few_operations() -> Iterator[None]:
    calls.CONTEXT.set_max_operations(2000)
    yield
    calls.CONTEXT.set_max_operations(calls.MAX_OPERATIONS)


def test_a_question_that_takes_too_long_ends(few_operations: None) -> None:
    corner = [Affine.of({"i": -1, "j": -1}, 10**6)]
    with pytest.raises(PolyhedralLimit):
        Domain.of(["i", "j"], [i, j, *corner]).count()
    assert Domain.box({"i": 3}).count() == 3  # the next one starts afresh


def test_threads_share_sets() -> None:
    box = Domain.box({"i": 40, "j": 40}).with_constraints([i - j])
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for size in range(60):
                part = box.with_constraints([-i + size % 40])
                assert part.count() == sum(n + 1 for n in range(size % 40 + 1))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# -- blocks ------------------------------------------------------------------------------


def test_nest_domain_ties_passed_indexes_to_the_level_above() -> None:
    inner = Block(
        "inner", (Index("x", 3), Index("o", 1, i * 3)), (Constraint(Affine.of({"o": -1, "x": -1}, 7)),)
    )
    outer = Block("outer", (Index("i", 3),), statements=(inner,))
    nest = nest_domain([outer, inner])
    assert nest.names == ("0.i", "1.x", "1.o")
    assert nest.count() == 8  # 0 <= 3*i + x <= 7
    assert nest.bounds(Affine.index("1.o")) == (0, 6)
    assert block_domain(inner).bounds(Affine.index("x")) == (0, 2)
    assert not block_domain(inner).is_bounded()


# -- lattices ------------------------------------------------------------------------------


def test_half_of_an_index_exists_only_where_it_is_an_integer() -> None:
    """`I[(i - 1)/2]` with three elements of I, into 0 <= i < 6: the odd i."""
    access = half("i", -1)
    found = reparametrise(
        ["i"], [access], [access, ({"i": Fraction(-1, 2)}, Fraction(5, 2)), whole(0, i=1), whole(5, i=-1)]
    )
    assert found is not None
    assert (found.ranges, found.constraints, found.values) == ({"i": 3}, (), {"i": i * 2 + 1})
    assert found.rewrite(access) == i


def test_equalities_take_dimensions_away() -> None:
    limits = [whole(0, i=1), whole(4, i=-1), whole(0, j=1), whole(9, j=-1)]
    found = reparametrise(["i", "j"], [], limits, [whole(-1, i=2, j=-1)])
    assert found is not None
    assert found.names == ("i",)
    assert found.values["j"] == found.values["i"] * 2 - 1


def test_equalities_that_inequalities_imply_are_found() -> None:
    found = reparametrise(
        ["i", "j"], [], [whole(0, i=1), whole(4, i=-1), whole(0, i=1, j=-1), whole(0, i=-1, j=1)]
    )
    assert found is not None
    assert (found.ranges, found.values) == ({"i": 5}, {"i": i, "j": i})


def test_no_point_is_none() -> None:
    assert reparametrise(["i"], [], [whole(-1, i=2), whole(1, i=-2)]) is None  # 2*i = 1
    assert reparametrise(["i"], [half("i"), half("i", 1)], []) is None
    assert reparametrise(["i"], [], [whole(-3, i=1), whole(2, i=-1)]) is None


def test_a_point_has_no_dimensions() -> None:
    found = reparametrise(["i"], [], [whole(-7, i=1), whole(7, i=-1)])
    assert found is not None
    assert (found.ranges, found.values) == ({}, {"i": Affine(7)})


def test_unbounded_indexes_are_named() -> None:
    with pytest.raises(Unbounded) as error:
        reparametrise(
            ["i", "j", "k"], [], [whole(0, k=1), whole(4, k=-1), whole(0, i=1, j=-1), whole(1, i=-1, j=1)]
        )
    assert error.value.names == ("i", "j")


def test_boxed_starts_at_zero_and_keeps_what_the_box_does_not_say() -> None:
    domain = Domain.of(["i", "j"], [i - 3, -i + 6, j + 2, -j + 5, j - i + 4])
    (box,) = boxed(domain) or []
    assert box.ranges == {"i": 4, "j": 7}
    assert box.offsets == {"i": 3, "j": -1}
    assert box.constraints == (j - i,)
    assert boxed(Domain.empty(["i"])) == []
    assert boxed(Domain.box({"i": 4}).image([i * 2], ["x"])) is None
    with pytest.raises(Unbounded):
        boxed(Domain.of(["i"], [i]))


def test_the_first_point_of_a_set_that_isl_trips_over() -> None:
    ranges = {"a": 3, "b": 2, "c": 3, "d": 2, "e": 1, "f": 2, "g": 1, "h": 2}
    gap = Affine.of({"a": 2, "b": 4, "d": 24, "e": -8, "g": -8, "h": -24})
    points = Domain.box(ranges).with_constraints([-gap + 4, gap - 3])
    with pytest.raises(isl.Error, match="domain dimensions"):
        points.isl_set.lexmin()
    assert points.first() == next(points.points())


def test_sets_with_gaps_are_walked_without_them() -> None:
    """i = 4*t + 2*e + 1 over e, where t stays what it is."""
    t, e = Affine.index("t"), Affine.index("e")
    points = Domain.of(["t", "e"], [t, -t + 2, e, -e + 1])
    made = lattices(points.image([t, t * 4 + e * 2 + 1], ["t", "i"]), ["t"])
    assert made is not None
    (found,) = made
    assert "t" not in found.ranges and found.values["t"] == t
    walked = Domain.box({"t": 3, **found.ranges}).with_constraints(found.constraints).points()
    values = sorted((p["t"], found.values["i"].evaluate(p)) for p in walked)
    assert values == [(a, 4 * a + 2 * b + 1) for a in range(3) for b in range(2)]


@given(st.integers(1, 5), st.integers(-3, 3), st.integers(1, 4), st.integers(0, 9), st.integers(2, 5))
def test_a_lattice_has_the_points_of_its_set(step: int, start: int, other: int, more: int, size: int) -> None:
    a, b = Affine.index("a"), Affine.index("b")
    points = Domain.box({"a": size, "b": 3}).image([a * step + b * other + start, b * more - a], ["i", "j"])
    found = lattices(points, [])
    if found is None:
        return  # it says that it can't: never a wrong answer
    values = [
        (each.values["i"].evaluate(p), each.values["j"].evaluate(p))
        for each in found
        for p in each.domain.points()
    ]
    assert sorted(values) == sorted((p["i"], p["j"]) for p in points.points())


def test_what_is_unlimited_or_moves_with_a_fixed_name_is_no_lattice() -> None:
    assert lattices(Domain.of(["i"], [i]), []) is None
    even = Domain.box({"a": 4}).image([Affine.index("a", 2)], ["i"])
    assert lattices(even, ["i"]) is None


@pytest.mark.parametrize("empty", [("t",), ("t", "u")])
def test_fixed_names_may_be_bound_to_a_value(empty: tuple[str, ...]) -> None:
    """Tiles of which only the first has cells: i = 2*e, j + e + 6*t <= 5, for t < 2; and where t = u."""
    t, u, e, j = (Affine.index(name) for name in "tuej")
    limits = [t, -t + 1, u, -u + 1, e, -e + 5, j, -j + 5, -e - j - t * 6 + 5]
    bound = [t - u] if "u" in empty else []
    points = Domain.of(["t", "u", "e", "j"], limits, bound)
    image = points.image([t, u, e * 2, j], ["t", "u", "i", "j"])
    found = lattices(image, ["t", "u"])
    assert found is not None
    values = [
        (p["t"], p["u"], each.values["i"].evaluate(p), each.values["j"].evaluate(p))
        for each in found
        for p in Domain.box({"t": 2, "u": 2, **each.ranges}).with_constraints(each.constraints).points()
    ]
    assert sorted(values) == sorted((p["t"], p["u"], p["i"], p["j"]) for p in image.points())


def test_what_only_the_gaps_make_exact_is_a_lattice() -> None:
    """Over i = 2*y the bound 2*e <= 2*y needs no division, though over i it does."""
    y, e, t = (Affine.index(name) for name in ("y", "e", "t"))
    points = Domain.of(["t", "y", "e"], [t, -t + 1, y - e, -y + e + 9, e, -e * 2 - t + 2])
    image = points.image([t, y * 2], ["t", "i"])
    found = lattices(image, ["t"])
    assert found is not None
    values = sorted(
        (p["t"], each.values["i"].evaluate(p))
        for each in found
        for p in Domain.box({"t": 2, **each.ranges}).with_constraints(each.constraints).points()
    )
    assert values == sorted((p["t"], p["i"]) for p in image.points())


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2), (2, 5), (1, 3), (4, 6)])
def test_sums_of_steps_are_walked_once_each(first: int, second: int) -> None:
    """2*x + 3*y: some cells have one pair, some have several, and some none."""
    points = Domain.box({"x": 4, "y": 3, "z": 5})
    image = points.image([Affine.of({"x": first, "y": second}), Affine.index("z")], ["i", "j"])
    found = lattices(image, [])
    assert found is not None
    values = [
        (each.values["i"].evaluate(p), each.values["j"].evaluate(p))
        for each in found
        for p in each.domain.points()
    ]
    assert sorted(values) == sorted((p["i"], p["j"]) for p in image.points())


def test_an_existential_that_can_not_go_is_walked_too() -> None:
    """i = y + 3*z, 0 <= y < 3, with a limit on y + t: over t and i alone that takes i / 3, rounded down."""
    y, z, t = (Affine.index(name) for name in ("y", "z", "t"))
    points = Domain.of(["t", "y", "z"], [t, -t + 2, y, -y + 2, z, -z + 2, -y - t * 3 + 7])
    image = points.image([t, y + z * 3], ["t", "i"])
    found = lattices(image, ["t"])
    assert found is not None and any(len(each.ranges) == 2 for each in found)
    values = sorted(
        (p["t"], each.values["i"].evaluate(p))
        for each in found
        for p in Domain.box({"t": 3, **each.ranges}).with_constraints(each.constraints).points()
    )
    assert values == sorted((p["t"], p["i"]) for p in image.points())


def test_a_question_asked_again_has_the_same_answer() -> None:
    def made(limit: int) -> Domain:
        box = Domain.box({"i": 8, "j": 4}).with_constraints([i - j - limit])
        moved = box.preimage({"i": i * 2}, ["i", "j"]).renamed(lambda name: f"0.{name}")
        return moved.project_onto(["0.i"])

    assert made(1) is made(1)
    assert made(1) is not made(2)
    assert made(3).equals(Domain.of(["0.i"], [Affine.index("0.i") - 2, -Affine.index("0.i") + 3]))


def test_a_dimension_that_others_tell_does_not_tie_them_together() -> None:
    # Gone through point by point, this would take hours.
    size = 10**6
    limits = [
        expr
        for name in "abc"
        for expr in (Affine.index(name), Affine.index(name, -1) + (size - 1))
    ]  # fmt: skip
    number = Affine.index("a") + Affine.index("b", size) + Affine.index("c", size * size)
    twice = Affine.index("number", 2) + Affine.index("a", -1)
    told = [Affine.index("number") - number, Affine.index("more") - twice]
    assert Domain.of([*"abc", "number", "more"], limits, told).count() == size**3
    # What no equality tells with a factor of one stays: every second value of a.
    half = Affine.index("a") - Affine.index("number", 2)
    assert Domain.of(["a", "number"], limits[:2], [half]).count() == size // 2
