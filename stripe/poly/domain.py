"""Sets of integer points whose dimensions have names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import islpy as isl

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.poly.calls import (
    CONTEXT,
    REMEMBERED,
    SET,
    affine_constraints,
    guarded,
    isl_aff,
    isl_basic_set,
    isl_space,
    remembered,
)
from stripe.poly.counting import count_points

Piece = tuple[list[Affine], list[Affine]]  # inequalities (>= 0), equalities (= 0)


def as_inequalities(piece: Piece) -> tuple[Affine, ...]:
    """A piece as what must be >= 0."""
    inequalities, equalities = piece
    return (*inequalities, *equalities, *(-expr for expr in equalities))


def box_limits(ranges: Mapping[str, int]) -> list[Affine]:
    """0 <= name < range for each name, as what must be >= 0."""
    high = (Affine(size - 1, ((name, -1),)) for name, size in ranges.items())
    return [*map(Affine.index, ranges), *high]


class Domain:
    """An immutable set of integer points whose dimensions have names.

    `==` is identity; `equals` compares the points. A name that a method does not find is a
    KeyError: a fault of the caller.
    """

    __slots__ = ("_bounds", "_empty", "_positions", "isl_set", "names")

    def __init__(self, names: Sequence[str], points: isl.Set) -> None:
        """Of use in this package only: elsewhere `box`, `of` and the methods make domains."""
        self.names: tuple[str, ...] = tuple(names)
        self._positions: dict[str, int] = {name: at for at, name in enumerate(self.names)}
        if len(self._positions) != len(self.names):
            raise InvariantError(f"a domain names a dimension twice: {self.names}")
        self.isl_set = points
        self._empty: bool | None = None  # answers that were given before
        self._bounds: dict[Affine, tuple[int, int] | None] = {}

    # -- making --------------------------------------------------------------------------

    @staticmethod
    def box(ranges: Mapping[str, int]) -> Domain:
        """The points with 0 <= name < range for each name."""
        return Domain.of(tuple(ranges), box_limits(ranges))

    @staticmethod
    def of(names: Sequence[str], inequalities: Iterable[Affine], equalities: Iterable[Affine] = ()) -> Domain:
        """The points where each inequality is >= 0 and each equality is 0."""
        return _conjunction(tuple(names), tuple(inequalities), tuple(equalities))

    @staticmethod
    def universe(names: Sequence[str]) -> Domain:
        return Domain(names, isl.Set.universe(isl_space(len(names))))

    @staticmethod
    def empty(names: Sequence[str]) -> Domain:
        return Domain(names, isl.Set.empty(isl_space(len(names))))

    # -- combining -----------------------------------------------------------------------

    def _aligned(self, other: Domain) -> isl.Set:
        """The set of `other` with its dimensions in the order of this one's."""
        if other.names == self.names:
            return other.isl_set
        if set(other.names) != set(self.names):
            raise InvariantError(f"domains over different names: {self.names} and {other.names}")
        return other._projected(self.names)

    def with_constraints(self, inequalities: Iterable[Affine], equalities: Iterable[Affine] = ()) -> Domain:
        """The points that also satisfy these (each inequality >= 0, each equality = 0)."""
        return self._constrained(tuple(inequalities), tuple(equalities))

    @remembered
    def _constrained(self, inequalities: tuple[Affine, ...], equalities: tuple[Affine, ...]) -> Domain:
        more = isl_basic_set(self._positions, inequalities, equalities)
        return Domain(self.names, self.isl_set.intersect(more.to_set()))

    @remembered
    def intersect(self, other: Domain) -> Domain:
        return Domain(self.names, self.isl_set.intersect(self._aligned(other)))

    @remembered
    def union(self, other: Domain) -> Domain:
        return Domain(self.names, self.isl_set.union(self._aligned(other)))

    @remembered
    def subtract(self, other: Domain) -> Domain:
        return Domain(self.names, self.isl_set.subtract(self._aligned(other)))

    @remembered
    def coalesce(self) -> Domain:
        """The same points in fewer pieces, where isl finds them."""
        return Domain(self.names, self.isl_set.coalesce())

    @remembered
    def gist(self, context: Domain) -> Domain:
        """A simpler set that has the same points as this one inside `context`."""
        return Domain(self.names, self.isl_set.gist(self._aligned(context)))

    @guarded
    def without_divisions(self) -> Domain:
        """The set with the points that its divisibility conditions leave out between others."""
        return Domain(self.names, self.isl_set.remove_divs())

    # -- dimensions ----------------------------------------------------------------------

    def renamed(self, new_name: Callable[[str], str]) -> Domain:
        return self._called(tuple(new_name(name) for name in self.names))

    @remembered
    def _called(self, names: tuple[str, ...]) -> Domain:
        return Domain(names, self.isl_set)

    def extended(self, names: Sequence[str]) -> Domain:
        """The same set with further dimensions, free, behind its own."""
        return self._with_dimensions(tuple(names))

    @remembered
    def _with_dimensions(self, names: tuple[str, ...]) -> Domain:
        return Domain((*self.names, *names), self.isl_set.add_dims(SET, len(names)))

    def project_onto(self, names: Sequence[str]) -> Domain:
        """The values that `names` take in the set, with the dimensions in this order."""
        return self._onto(tuple(names))

    @remembered
    def _onto(self, names: tuple[str, ...]) -> Domain:
        return Domain(names, self._projected(names))

    def _projected(self, names: Sequence[str]) -> isl.Set:
        wanted = set(names)
        points = self.isl_set
        for at in reversed(range(len(self.names))):
            if self.names[at] not in wanted:
                points = points.project_out(SET, at, 1)
        kept = [name for name in self.names if name in wanted]
        if kept != list(names):
            points = _permuted(points, [kept.index(name) for name in names])
        return points

    def compact(self, names: Iterable[str]) -> Domain:
        """The same set without those of `names` that no constraint involves."""
        wanted = frozenset(names).intersection(self.names)
        return self._compacted(wanted) if wanted else self

    @remembered
    def _compacted(self, wanted: frozenset[str]) -> Domain:
        points, kept = self.isl_set, list(self.names)
        for at in reversed(range(len(kept))):
            if kept[at] in wanted and not points.involves_dims(SET, at, 1):
                points = points.project_out(SET, at, 1)
                del kept[at]
        return Domain(kept, points)

    def preimage(self, values: Mapping[str, Affine], names: Sequence[str]) -> Domain:
        """The points over `names` where the values of the old dimensions lie in the set.

        An old dimension without an entry in `values` keeps its name, and is one of `names`.
        """
        found = [values.get(name) for name in self.names]
        values_in_order = [
            Affine.index(name) if value is None else value
            for name, value in zip(self.names, found, strict=True)
        ]
        return self._where(tuple(values_in_order), tuple(names))

    @remembered
    def _where(self, values: tuple[Affine, ...], names: tuple[str, ...]) -> Domain:
        positions = {name: at for at, name in enumerate(names)}
        graph = isl.MultiAff.zero(isl.Space.alloc(CONTEXT, 0, len(names), len(self.names)))
        for at, value in enumerate(values):
            graph = graph.set_aff(at, isl_aff(positions, value))
        return Domain(names, self.isl_set.preimage_multi_aff(graph))

    def image(self, access: Sequence[Affine], names: Sequence[str]) -> Domain:
        """The values of the affine expressions over the points, as a set over `names`."""
        return self._image(tuple(access), tuple(names))

    @remembered
    def _image(self, access: tuple[Affine, ...], names: tuple[str, ...]) -> Domain:
        own = len(self.names)
        hidden = [f"{at}" for at in range(own)]
        outer = [f"{own + at}" for at in range(len(access))]
        positions = {name: at for at, name in enumerate((*hidden, *outer))}
        place = dict(zip(self.names, hidden, strict=True))
        equations = [
            expr.rename(place.__getitem__) - Affine.index(value)
            for expr, value in zip(access, outer, strict=True)
        ]
        graph = self.isl_set.add_dims(SET, len(access)).intersect(
            isl_basic_set(positions, [], equations).to_set()
        )
        return Domain(names, graph.project_out(SET, 0, own))

    # -- asking --------------------------------------------------------------------------

    def is_empty(self) -> bool:
        if self._empty is None:
            self._empty = self._decide_empty()
        return self._empty

    @guarded
    def _decide_empty(self) -> bool:
        return bool(self.isl_set.is_empty())

    @guarded
    def is_bounded(self) -> bool:
        """Whether the set is finite."""
        return bool(self.isl_set.is_bounded())

    @guarded
    def equals(self, other: Domain) -> bool:
        return bool(self.isl_set.is_equal(self._aligned(other)))

    @remembered
    def is_subset(self, other: Domain) -> bool:
        return bool(self.isl_set.is_subset(self._aligned(other)))

    @guarded
    def determines(self, given: Sequence[str], others: Sequence[str]) -> bool:
        """Whether the values of `given` leave at most one value to each of `others`."""
        if not others:
            return True
        points = self._projected((*given, *others))
        related = isl.Map.from_range(points)
        related = related.move_dims(isl.dim_type.in_, 0, isl.dim_type.out, 0, len(given))
        return bool(related.is_single_valued())

    def bounds(self, expr: Affine) -> tuple[int, int] | None:
        """The exact least and greatest value of `expr` over the set; None if it has no bound.

        An empty set is an InvariantError.
        """
        if expr not in self._bounds:
            self._bounds[expr] = self._find_bounds(expr)
        return self._bounds[expr]

    @guarded
    def _find_bounds(self, expr: Affine) -> tuple[int, int] | None:
        aff = isl_aff(self._positions, expr)
        high = self.isl_set.max_val(aff)
        if high.is_nan():
            raise InvariantError("the bounds of an expression over an empty set")
        low = self.isl_set.min_val(aff)
        if not (low.is_int() and high.is_int()):
            return None
        return low.to_python(), high.to_python()

    @guarded
    def sample(self) -> dict[str, int] | None:
        """One point of the set, or None if it is empty."""
        return self._point(self.isl_set)

    @guarded
    def first(self) -> dict[str, int] | None:
        """The lexicographically least point, or None if the set is empty; it must be bounded."""
        try:
            return self._point(self.isl_set.lexmin())
        except isl.Error as error:
            if "involves some of the domain dimensions" not in str(error):
                raise
            # isl trips over a few sets that hold a division it has not found yet; this makes it look.
            return self._point(self.isl_set.remove_redundancies().lexmin())

    def _point(self, points: isl.Set) -> dict[str, int] | None:
        point = points.sample_point()
        if point.is_void():
            return None
        return {name: point.get_coordinate_val(SET, at).to_python() for name, at in self._positions.items()}

    @guarded
    def pieces(self, *, disjoint: bool = False) -> list[Piece] | None:
        """The disjuncts as affine constraints; None where one needs an existential variable.

        They may overlap unless `disjoint` is asked for. An empty set has none.
        """
        points = self.isl_set.coalesce()
        if disjoint:
            points = points.make_disjoint()
        found: list[Piece] = []
        for part in points.remove_redundancies().get_basic_sets():
            if part.is_empty():
                continue
            if part.dim(isl.dim_type.div):
                return None
            found.append(affine_constraints(self.names, part))
        return found

    def piece_beyond(self, known: Domain) -> Piece | None:
        """What else holds of the points in `known`, a set over some of the names; None where that is no
        single conjunction of affine constraints."""
        pieces = self.project_onto(known.names).gist(known).pieces()
        return pieces[0] if pieces is not None and len(pieces) == 1 else None

    @guarded
    def count(self) -> int:
        """The exact number of points; the set must be bounded.

        Each disjoint piece is a product of sets over dimensions that share no constraint; the
        sizes of these multiply.
        """
        parts = [p for p in self.isl_set.make_disjoint().get_basic_sets() if not p.is_empty()]
        return sum(count_points(part) for part in parts)

    def points(self) -> Iterator[dict[str, int]]:
        """Every point, in lexicographic order: for tests and small sets."""
        for values in self._scanned():
            yield dict(zip(self.names, values, strict=True))

    @guarded
    def _scanned(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []

        def visit(point: isl.Point) -> None:
            found.append(
                tuple(point.get_coordinate_val(SET, at).to_python() for at in range(len(self.names)))
            )

        self.isl_set.foreach_point(visit)
        return sorted(found)

    def __str__(self) -> str:
        points = self.isl_set
        for name, at in self._positions.items():
            points = points.set_dim_name(SET, at, name)
        return str(points)

    __repr__ = __str__


@lru_cache(maxsize=REMEMBERED)
@guarded
def _conjunction(
    names: tuple[str, ...], inequalities: tuple[Affine, ...], equalities: tuple[Affine, ...]
) -> Domain:
    positions = {name: at for at, name in enumerate(names)}
    return Domain(names, isl_basic_set(positions, inequalities, equalities).to_set())


def _permuted(points: isl.Set, order: Sequence[int]) -> isl.Set:
    """The set with dimension `order[k]` moved to place k."""
    size = len(order)
    graph = isl.Map.universe(isl.Space.alloc(CONTEXT, 0, size, size))
    for place, origin in enumerate(order):
        graph = graph.equate(isl.dim_type.in_, origin, isl.dim_type.out, place)
    return points.apply(graph)
