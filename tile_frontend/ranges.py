"""The points of a contraction: all integer index values with every access in range and every
constraint true (stripe.poly finds them; see docs/tile.md, Ranges).

Exact division and accesses into dimensions of size 1 give a lattice of points, which is
enumerated without gaps on new indexes from 0. A new index keeps the name of the one it drives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import sub

from stripe.affine import Affine
from stripe.diag import Span
from stripe.poly import Domain, Lattice, PolyhedralLimit, Unbounded, box_limits, reparametrise
from tile_frontend.elementwise import fail
from tile_frontend.narrowing import narrowed
from tile_frontend.polynomials import Polynomial

Point = dict[str, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """What must hold at a point: `0 <= p < size` for accesses, `0 <= p < e` for constraints."""

    accesses: Sequence[tuple[Polynomial, int]]
    constraints: Sequence[tuple[Polynomial, Polynomial]]


def find_points(indexes: dict[str, Span], limits: Limits, span: Span, written: Collection[str]) -> Lattice:
    """The feasible points over `indexes`, which drive in this order; the output names `written`.

    T031: an index has no bound. T032: there is no point.
    """
    inequalities = []
    equalities = []
    integral = [p for p, _ in limits.accesses]
    for p, size in limits.accesses:
        if size == 1:
            equalities.append(p.linear)
        else:
            inequalities += [p.linear, _negated(p, size - 1)]
    for p, e in limits.constraints:
        integral += [p, e]
        inequalities += [p.linear, e.minus(p, less=1).linear]
    try:
        lattice = reparametrise(list(indexes), [p.linear for p in integral], inequalities, equalities)
    except Unbounded as error:
        name = error.names[0]
        fail(
            "T031",
            f"the index '{name}' has no bound",
            indexes[name],
            f"help: add a constraint such as ', {name} < 10', or use '{name}' in an access",
        )
    if lattice is None:
        what = "no index values make every access an integer in range"
        if limits.constraints:
            what = "the constraints contradict each other or the accesses"
        fail("T032", f"this contraction has no points: {what}", span)
    return narrowed(lattice, written)


def _negated(p: Polynomial, size: int) -> tuple[dict[str, Fraction], Fraction]:
    """size - p."""
    return {name: -c for name, c in p.coefficients.items()}, size - p.constant


def covers(lattice: Lattice, access: Sequence[Affine], shape: Sequence[int]) -> bool:
    """Whether the access is known to reach every element of the shape."""
    if _is_box(lattice, access, shape):
        return True
    domain = lattice.domain
    # Most accesses that leave something out miss a corner, which is a quick question.
    for corner in ([0] * len(shape), [size - 1 for size in shape]):
        if domain.with_constraints((), map(sub, access, corner)).is_empty():
            return False
    names = [str(at) for at in range(len(shape))]
    everything = Domain.box(dict(zip(names, shape, strict=True)))
    try:
        return everything.is_subset(domain.image(access, names))
    except PolyhedralLimit:
        return False


def _is_box(lattice: Lattice, access: Sequence[Affine], shape: Sequence[int]) -> bool:
    """The plain case: each dimension is reached by the whole range of an index of its own."""
    if lattice.constraints:
        return False
    seen: set[str] = set()
    for expr, size in zip(access, shape, strict=True):
        if size == 1:
            continue
        if len(expr.terms) != 1 or expr.const or expr.terms[0][1] != 1:
            return False
        name = expr.terms[0][0]
        if name in seen or lattice.ranges[name] != size:
            return False
        seen.add(name)
    return True


def writes_once(lattice: Lattice, access: Sequence[Affine]) -> bool:
    """True if the indexes follow from the element, so that no element has two points.

    Exact linear algebra over the rationals; False is no proof of the contrary.
    """
    names = [name for name, size in lattice.ranges.items() if size > 1]
    rows = [[Fraction(expr.coefficient(name)) for name in names] for expr in access]
    for column in range(len(names)):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is None:
            return False
        rows.remove(pivot)
        rows = [
            [value - row[column] / pivot[column] * lead for value, lead in zip(row, pivot, strict=True)]
            for row in rows
        ]
    return True


def clash(lattice: Lattice, access: Sequence[Affine]) -> tuple[tuple[int, ...], Point, Point] | None:
    """An element that two points write, and these points in the indexes of the text; None if
    there is none."""

    def second(name: str) -> str:
        return f"2.{name}"

    both = [*lattice.ranges, *map(second, lattice.ranges)]
    inside = [*box_limits(lattice.ranges), *lattice.constraints]
    same = [expr - expr.rename(second) for expr in access]
    pairs = Domain.of(both, [*inside, *(expr.rename(second) for expr in inside)], same)
    for name in lattice.ranges:
        after = Affine.index(second(name)) - Affine.index(name) - 1
        found = pairs.with_constraints([after]).sample()
        if found is not None:
            first = {n: found[n] for n in lattice.ranges}
            other = {n: found[second(n)] for n in lattice.ranges}
            element = tuple(expr.evaluate(first) for expr in access)
            return element, _written(lattice, first), _written(lattice, other)
    return None


def _written(lattice: Lattice, point: Point) -> Point:
    return {name: value.evaluate(point) for name, value in lattice.values.items()}
