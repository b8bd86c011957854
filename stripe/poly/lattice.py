"""Sets with gaps, as lattices: integer points under exact divisions, each enumerated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import lcm

import islpy as isl

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.poly.boxes import Unbounded, boxed
from stripe.poly.calls import (
    COLUMNS,
    CONTEXT,
    REMEMBERED,
    SET,
    affine_constraints,
    guarded,
    isl_val,
    matrix_rows,
)
from stripe.poly.domain import Domain, Piece, as_inequalities

Linear = tuple[Mapping[str, Fraction], Fraction]  # sum(coefficient * index) + constant


@dataclass(frozen=True, slots=True)
class Lattice:
    """The integer points of a system with exact divisions, enumerated once each.

    The new indexes `ranges` run from 0, under `constraints` (each >= 0); `values` gives each
    old index as an affine expression of the new ones. A new index keeps the name of the old
    one that it drives.
    """

    ranges: Mapping[str, int]
    constraints: tuple[Affine, ...]
    values: Mapping[str, Affine]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ranges)

    @property
    def domain(self) -> Domain:
        """The feasible set over the new indexes."""
        return Domain.box(self.ranges).with_constraints(self.constraints)

    def rewrite(self, expr: Linear) -> Affine:
        """An expression over the old indexes, over the new ones; it must be integral on the set."""
        return _over(self.values, expr)


def _over(values: Mapping[str, Affine], expr: Linear) -> Affine:
    coefficients, constant = expr
    const = constant + sum((c * values[name].const for name, c in coefficients.items()), Fraction(0))
    terms: dict[str, Fraction] = {}
    for name, c in coefficients.items():
        for new, factor in values[name].terms:
            terms[new] = terms.get(new, Fraction(0)) + c * factor
    if const.denominator != 1 or any(t.denominator != 1 for t in terms.values()):
        raise InvariantError("an expression is not an integer on its lattice")
    return Affine.of({name: int(t) for name, t in terms.items()}, int(const))


def _cleared(expr: Linear) -> tuple[dict[str, int], int, int]:
    """Integer coefficients, integer constant, and the positive factor that was multiplied in."""
    coefficients, constant = expr
    factor = lcm(Fraction(constant).denominator, *(Fraction(c).denominator for c in coefficients.values()))
    return {n: int(c * factor) for n, c in coefficients.items()}, int(constant * factor), factor


def reparametrise(
    names: Sequence[str],
    integral: Sequence[Linear],
    inequalities: Sequence[Linear],
    equalities: Sequence[Linear] = (),
) -> Lattice | None:
    """Enumerate the integer points over `names` where each `integral` expression is an integer,
    each inequality is >= 0 and each equality is 0, without gaps and each once.

    Expressions have rational coefficients: `(i - 1)/2` is `({"i": Fraction(1, 2)}, Fraction(-1, 2))`.
    The solutions of the integrality conditions and equalities (those that the inequalities
    imply included) are x0 + B*z for all integer z, where B is a basis in Hermite form: the
    first names drive, later ones follow, so indexes that equalities fix vanish.

    Returns None for the empty set; raises `Unbounded` with the old indexes that have no limits.
    """
    return _lattice(tuple(names), *map(_hashable, (integral, inequalities, equalities)))


_Row = tuple[tuple[tuple[str, Fraction], ...], Fraction]  # a Linear that may be a key


def _hashable(rows: Sequence[Linear]) -> tuple[_Row, ...]:
    return tuple((tuple(coefficients.items()), constant) for coefficients, constant in rows)


@lru_cache(maxsize=REMEMBERED)
def _lattice(names: tuple[str, ...], *systems: tuple[_Row, ...]) -> Lattice | None:
    """`reparametrise`, asked once for all contractions that are alike."""
    integral, inequalities, equalities = ([(dict(c), k) for c, k in rows] for rows in systems)
    rows, extras = _equations(names, integral, equalities)
    values = _solve(names, rows, extras)
    while values is not None:
        drivers = _drivers(values)
        conditions = [_scaled(values, expr) for expr in inequalities]
        domain = Domain.of(drivers, conditions)
        if domain.is_empty():
            return None
        inner = _solve(drivers, *_implied_equations(domain))
        if inner is None:
            return None
        if all(inner[name] == Affine.index(name) for name in drivers):  # nothing is implied
            return _finite(names, values, domain)
        values = {name: value.substitute(inner) for name, value in values.items()}
    return None


def _finite(names: Sequence[str], values: dict[str, Affine], domain: Domain) -> Lattice:
    unlimited = tuple(name for name in names if domain.bounds(values[name]) is None)
    if unlimited:
        raise Unbounded(unlimited)
    pieces = boxed(domain)
    if pieces is None or len(pieces) != 1:
        raise InvariantError("a conjunction of affine constraints is not one piece")
    box = pieces[0]
    shift = {name: Affine(offset, ((name, 1),)) for name, offset in box.offsets.items()}
    return Lattice(box.ranges, box.constraints, {name: values[name].substitute(shift) for name in names})


def _drivers(values: Mapping[str, Affine]) -> tuple[str, ...]:
    """The new indexes, in the order of the old ones whose names they keep."""
    used = {new for value in values.values() for new in value.names}
    return tuple(name for name in values if name in used)


def _scaled(values: Mapping[str, Affine], expr: Linear) -> Affine:
    """An inequality over the new indexes, multiplied by what makes its coefficients integers."""
    coefficients, constant, _ = _cleared(expr)
    total = Affine(constant)
    for name, coefficient in coefficients.items():
        total = total + values[name] * coefficient
    return total


def _equations(
    names: Sequence[str], integral: Sequence[Linear], equalities: Sequence[Linear]
) -> tuple[list[list[int]], int]:
    """Rows [constant, one coefficient per name, one per extra unknown], each = 0.

    An expression with denominator d is an integer t exactly if d*expression - d*t = 0.
    """
    rows: list[list[int]] = []
    divided = [(expr, *_cleared(expr)) for expr in integral]
    needed = [entry for entry in divided if entry[3] != 1]
    for at, (_, coefficients, constant, factor) in enumerate(needed):
        extra = [-factor if at == other else 0 for other in range(len(needed))]
        rows.append([constant, *(coefficients.get(name, 0) for name in names), *extra])
    for expr in equalities:
        coefficients, constant, _ = _cleared(expr)
        rows.append([constant, *(coefficients.get(name, 0) for name in names), *([0] * len(needed))])
    return rows, len(needed)


@guarded
def _implied_equations(domain: Domain) -> tuple[list[list[int]], int]:
    """The equations that hold for every point, as rows like those of `_equations`."""
    hull = domain.isl_set.affine_hull()
    return matrix_rows(hull.equalities_matrix(*COLUMNS)), hull.dim(isl.dim_type.div)


def _hermite(rows: list[list[int]], columns: int) -> tuple[list[list[int]], list[list[int]]]:
    """(H, U) with rows * U = H, U unimodular, H in column echelon form, zero columns last."""
    matrix = isl.Mat.alloc(CONTEXT, len(rows), columns)
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            matrix = matrix.set_element_val(at, column, isl_val(value))
    echelon, unimodular, _ = matrix.left_hermite(0)
    return matrix_rows(echelon), matrix_rows(unimodular)


def _pivots(echelon: list[list[int]], columns: int) -> list[int]:
    """The row of the first non-zero element of each non-zero column."""
    firsts = (next((r for r, row in enumerate(echelon) if row[column]), None) for column in range(columns))
    return [first for first in firsts if first is not None]


@guarded
def _solve(names: Sequence[str], rows: list[list[int]], extras: int) -> dict[str, Affine] | None:
    """All integer solutions of the rows as an affine function of fewer unknowns, projected onto
    `names`; None if there is none. Schrijver, Theory of Linear and Integer Programming, 5.3."""
    unknowns = len(names) + extras
    echelon, unimodular = _hermite([row[1:] for row in rows], unknowns)
    solution: list[int] = []  # in the coordinates of the echelon form
    pivots = _pivots(echelon, unknowns)
    for at, row in enumerate(echelon):
        left = -rows[at][0] - sum(c * y for c, y in zip(row, solution, strict=False))
        if len(solution) < len(pivots) and pivots[len(solution)] == at:
            pivot = row[len(solution)]
            if left % pivot:
                return None
            solution.append(left // pivot)
        elif left:
            return None
    rank = len(solution)
    visible = unimodular[: len(names)]
    origin = [sum(c * y for c, y in zip(row, solution, strict=False)) for row in visible]
    basis, _ = _hermite([row[rank:] for row in visible], unknowns - rank)
    drivers = _pivots(basis, unknowns - rank)
    for column, pivot in enumerate(drivers):  # the origin nearest to zero along each driver
        steps = origin[pivot] // basis[pivot][column]
        origin = [value - steps * row[column] for value, row in zip(origin, basis, strict=True)]
    return {
        name: Affine.of({names[pivot]: row[column] for column, pivot in enumerate(drivers)}, origin[at])
        for at, (name, row) in enumerate(zip(names, basis, strict=True))
    }


# -- disjuncts -------------------------------------------------------------------------------


def lattices(domain: Domain, fixed: Sequence[str]) -> list[Lattice] | None:
    """The disjuncts of a set, disjoint, each without gaps over indexes of its own: `i = 2*e + 1` over e.

    The names in `fixed` stay what they are; `ranges` leaves them out. None where a disjunct is no
    lattice under affine constraints, or one without limits.
    """
    found: list[Lattice] = []
    for disjunct in _disjuncts(domain, fixed):
        made = _lattices(disjunct, fixed)
        if made is None:
            return None
        both = tuple(e for expr in disjunct.conditions for e in (expr, -expr))
        found += [replace(each, constraints=(*each.constraints, *both)) for each in made]
    return found


@dataclass(frozen=True, slots=True)
class _Disjunct:
    """A conjunction, and the same as a system over `names` (its own, then its existentials), of which
    `divisions` are not free. `conditions` are equations between names that stay: to solve them would take
    one of these away."""

    points: Domain
    names: tuple[str, ...]
    equations: list[list[int]]
    inequalities: list[list[int]]
    divisions: int
    conditions: list[Affine]


@guarded
def _disjuncts(domain: Domain, fixed: Sequence[str]) -> list[_Disjunct]:
    found = []
    for whole in domain.isl_set.coalesce().make_disjoint().remove_redundancies().get_basic_sets():
        if whole.is_empty():
            continue
        hull = whole
        for at, name in enumerate(domain.names):
            hull = hull if name in fixed else hull.eliminate(SET, at, 1)
        hull = hull.affine_hull().remove_divs()
        conditions = affine_constraints(domain.names, hull)[1]
        part = whole.gist(hull) if conditions else whole
        lifted = part.lift().flatten()
        hidden = [f"${at}" for at in range(lifted.dim(SET) - len(domain.names))]
        found.append(
            _Disjunct(
                Domain(domain.names, part.to_set()),
                (*domain.names, *hidden),
                matrix_rows(lifted.equalities_matrix(*COLUMNS)),
                matrix_rows(lifted.inequalities_matrix(*COLUMNS)),
                lifted.dim(isl.dim_type.div),
                conditions,
            )
        )
    return found


def _lattices(disjunct: _Disjunct, fixed: Sequence[str]) -> list[Lattice] | None:
    # Existentials that the equations leave over are projected out.
    points, every = disjunct.points, disjunct.names
    values = _solve(every, disjunct.equations, disjunct.divisions)
    if values is None or any(values[name] != Affine.index(name) for name in fixed):
        return None
    own = {name: values[name] for name in points.names}
    drivers = [name for name in _drivers(own) if name not in fixed]
    limits = [
        Affine.of(dict(zip(every, row[1:], strict=False)), row[0]).substitute(values)
        for row in disjunct.inequalities
    ]
    kept = (*fixed, *drivers)
    others = tuple(name for name in _drivers(values) if name not in kept)
    domain = Domain.of((*kept, *others), limits)
    # What isl knows of an existential beyond its constraints is not in them.
    if not domain.image([own[name] for name in points.names], points.names).equals(points):
        return None
    pieces = domain.project_onto(kept).pieces(disjoint=True)
    if pieces is None:  # the others are walked too, at one value each
        domain = _least(domain, others)
        pieces = domain.pieces(disjoint=True)
        if pieces is None or not domain.determines(kept, others):
            return None
        kept, drivers = domain.names, [*drivers, *others]
    found = [_walked(kept, drivers, own, piece) for piece in pieces]
    return None if None in found else [each for each in found if each is not None]


def _least(domain: Domain, others: Sequence[str]) -> Domain:
    """The points of a conjunction where each of `others` has the least value that the rest allow."""
    points = domain
    for name in others:
        points = points.subtract(points.preimage({name: Affine(-1, ((name, 1),))}, points.names))
    return points


def _walked(
    names: Sequence[str], drivers: Sequence[str], values: Mapping[str, Affine], piece: Piece
) -> Lattice | None:
    """A conjunction over `names` as a lattice over those of them that drive; None if one has no limits."""
    inequalities, equalities = piece
    domain = Domain.of(names, inequalities, equalities)
    limits = {name: domain.bounds(Affine.index(name)) for name in drivers}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if len(known) < len(limits):
        return None
    shift = {name: Affine(low, ((name, 1),)) for name, (low, _) in known.items()}
    return Lattice(
        {name: high - low + 1 for name, (low, high) in known.items()},
        tuple(expr.substitute(shift) for expr in as_inequalities(piece)),
        {name: value.substitute(shift) for name, value in values.items()},
    )
