"""Integer sets with named dimensions: the one place that talks to isl (through islpy).

    Domain         an immutable set of integer points; dimensions are found by name
    block_domain   the points of one block; nest_domain: the points of a whole nest
    reparametrise  integer points under exact divisions, enumerated without gaps (a lattice)
    boxed          a bounded conjunction as ranges that start at 0, an offset, and constraints

A relation is a Domain over the names of both sides: `renamed` and `extended` make room for
the second copy, `project_onto` takes one side. Two domains that are combined have the same
names; their order does not matter.

isl counts its operations; a question that takes more than a fixed number of them ends with
`PolyhedralLimit`, so that no input can hang the compiler. All objects live in one isl
context. islpy holds the interpreter's lock during each call, which keeps isl's unguarded
reference counts whole; the lock below keeps the operation counter honest between threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, wraps
from math import lcm
from typing import Any, ParamSpec, TypeVar, cast

import islpy as isl

from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic, InvariantError
from stripe.ir import Block

P = ParamSpec("P")
R = TypeVar("R")

MAX_OPERATIONS = 20_000_000  # isl's elementary steps in one question: a few seconds
REMEMBERED = 4096  # answers to each kind of question

_CONTEXT = isl.Context()
_CONTEXT.set_max_operations(MAX_OPERATIONS)
_LOCK = threading.RLock()
_spent = 0.0  # seconds in isl since the module was loaded

_SET = isl.dim_type.set
_COLUMNS = (isl.dim_type.cst, isl.dim_type.param, isl.dim_type.set, isl.dim_type.div)

Piece = tuple[list[Affine], list[Affine]]  # inequalities (>= 0), equalities (= 0)
Linear = tuple[Mapping[str, Fraction], Fraction]  # sum(coefficient * index) + constant


class PolyhedralLimit(CompileError):
    """A question about an integer set was given up: it took more steps than allowed."""

    def __init__(self) -> None:
        super().__init__(
            Diagnostic(
                "V900",
                "an integer set of this program is too complicated to reason about",
                None,
                ("help: simplify the constraints or use smaller coefficients and sizes",),
            )
        )


class Unbounded(Exception):
    """A set that must be finite is not; `names` are the indexes without a bound."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"unbounded: {', '.join(names)}")
        self.names = names


def isl_version() -> str:
    """Of isl and the library through which it is called."""
    return f"islpy {isl.version.VERSION_TEXT}"


def seconds_spent() -> float:
    """Seconds that questions to isl have taken in this process, for reports of compile time."""
    return _spent


def _check_limit() -> None:
    """Fail if the limit was reached: counting and scanning stop there without a word."""
    isl.Val.int_from_si(_CONTEXT, 0)


def _guarded(function: Callable[P, R]) -> Callable[P, R]:
    """Run under the lock with a fresh operation count; turn isl's limit into PolyhedralLimit.

    Guarded functions don't call each other: each question has the whole count to itself.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        global _spent
        with _LOCK:
            started = time.perf_counter()
            _CONTEXT.reset_operations()
            try:
                result = function(*args, **kwargs)
                _check_limit()
                return result
            except isl.Error as error:
                _CONTEXT.reset_operations()
                if "maximal number of operations" in str(error):
                    raise PolyhedralLimit from None
                raise InvariantError(f"isl: {error}") from error
            finally:
                _spent += time.perf_counter() - started

    return run


def _remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Like `_guarded`, for a function of immutable values (domains count by identity): what was asked
    before is answered from memory. Kernels of a program are alike: most questions about their
    accesses come again and again, and domains made in the same way from the same are the same objects."""
    return cast(Callable[P, R], lru_cache(maxsize=REMEMBERED)(_guarded(function)))


@lru_cache(maxsize=4096)
def _val(value: int) -> isl.Val:
    # The constructor takes 64 bits; larger numbers go through their digits.
    small = -(2**62) < value < 2**62
    return isl.Val.int_from_si(_CONTEXT, value) if small else isl.Val(str(value), _CONTEXT)


@lru_cache(maxsize=256)
def _space(dimensions: int) -> isl.Space:
    return isl.Space.set_alloc(_CONTEXT, 0, dimensions)


def _matrix(positions: Mapping[str, int], rows: Sequence[Affine]) -> isl.Mat:
    matrix = isl.Mat.alloc(_CONTEXT, 0, len(positions) + 1).add_zero_rows(len(rows))
    for row, expr in enumerate(rows):
        if expr.const:
            matrix = matrix.set_element_val(row, 0, _val(expr.const))
        for name, coefficient in expr.terms:
            matrix = matrix.set_element_val(row, positions[name] + 1, _val(coefficient))
    return matrix


def _basic_set(
    positions: Mapping[str, int], inequalities: Sequence[Affine], equalities: Sequence[Affine]
) -> Any:
    return isl.BasicSet.from_constraint_matrices(
        _space(len(positions)), _matrix(positions, equalities), _matrix(positions, inequalities), *_COLUMNS
    )


def _rows(matrix: isl.Mat) -> list[list[int]]:
    columns = range(matrix.cols())
    return [[_int(matrix.get_element_val(row, at)) for at in columns] for row in range(matrix.rows())]


def _int(value: isl.Val) -> int:
    """A whole number. `to_python` goes through its digits; what does not fit a long is 0 without a word."""
    small: int = value.get_num_si()
    return small if small or value.is_zero() else int(value.to_python())


def _aff(positions: Mapping[str, int], expr: Affine) -> isl.Aff:
    aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(_space(len(positions))))
    aff = aff.set_constant_val(_val(expr.const))
    for name, coefficient in expr.terms:
        # In an expression over a set, the set's dimensions are the inputs.
        aff = aff.set_coefficient_val(isl.dim_type.in_, positions[name], _val(coefficient))
    return aff


class Domain:
    """An immutable set of integer points whose dimensions have names.

    `==` is identity; `equals` compares the points. A name that a method does not find is a
    KeyError: a fault of the caller.
    """

    __slots__ = ("_bounds", "_empty", "_positions", "_set", "names")

    def __init__(self, names: Sequence[str], points: isl.Set) -> None:
        """Of use in this module only: elsewhere `box`, `of` and the methods make domains."""
        self.names: tuple[str, ...] = tuple(names)
        self._positions: dict[str, int] = {name: at for at, name in enumerate(self.names)}
        if len(self._positions) != len(self.names):
            raise InvariantError(f"a domain names a dimension twice: {self.names}")
        self._set = points
        self._empty: bool | None = None  # answers that were given before
        self._bounds: dict[Affine, tuple[int, int] | None] = {}

    # -- making --------------------------------------------------------------------------

    @staticmethod
    def box(ranges: Mapping[str, int]) -> Domain:
        """The points with 0 <= name < range for each name."""
        low = [Affine.index(name) for name in ranges]
        high = [Affine(size - 1, ((name, -1),)) for name, size in ranges.items()]
        return Domain.of(tuple(ranges), low + high)

    @staticmethod
    def of(names: Sequence[str], inequalities: Iterable[Affine], equalities: Iterable[Affine] = ()) -> Domain:
        """The points where each inequality is >= 0 and each equality is 0."""
        return _conjunction(tuple(names), tuple(inequalities), tuple(equalities))

    @staticmethod
    def universe(names: Sequence[str]) -> Domain:
        return Domain(names, isl.Set.universe(_space(len(names))))

    @staticmethod
    def empty(names: Sequence[str]) -> Domain:
        return Domain(names, isl.Set.empty(_space(len(names))))

    # -- combining -----------------------------------------------------------------------

    def _aligned(self, other: Domain) -> isl.Set:
        """The set of `other` with its dimensions in the order of this one's."""
        if other.names == self.names:
            return other._set
        if set(other.names) != set(self.names):
            raise InvariantError(f"domains over different names: {self.names} and {other.names}")
        return other._projected(self.names)

    def with_constraints(self, inequalities: Iterable[Affine], equalities: Iterable[Affine] = ()) -> Domain:
        """The points that also satisfy these (each inequality >= 0, each equality = 0)."""
        return self._constrained(tuple(inequalities), tuple(equalities))

    @_remembered
    def _constrained(self, inequalities: tuple[Affine, ...], equalities: tuple[Affine, ...]) -> Domain:
        more = _basic_set(self._positions, inequalities, equalities)
        return Domain(self.names, self._set.intersect(more.to_set()))

    @_remembered
    def intersect(self, other: Domain) -> Domain:
        return Domain(self.names, self._set.intersect(self._aligned(other)))

    @_remembered
    def union(self, other: Domain) -> Domain:
        return Domain(self.names, self._set.union(self._aligned(other)))

    @_remembered
    def subtract(self, other: Domain) -> Domain:
        return Domain(self.names, self._set.subtract(self._aligned(other)))

    @_remembered
    def coalesce(self) -> Domain:
        """The same points in fewer pieces, where isl finds them."""
        return Domain(self.names, self._set.coalesce())

    @_remembered
    def gist(self, context: Domain) -> Domain:
        """A simpler set that has the same points as this one inside `context`."""
        return Domain(self.names, self._set.gist(self._aligned(context)))

    @_guarded
    def without_divisions(self) -> Domain:
        """The set with the points that its divisibility conditions leave out between others."""
        return Domain(self.names, self._set.remove_divs())

    # -- dimensions ----------------------------------------------------------------------

    def renamed(self, new_name: Callable[[str], str]) -> Domain:
        return self._called(tuple(new_name(name) for name in self.names))

    @_remembered
    def _called(self, names: tuple[str, ...]) -> Domain:
        return Domain(names, self._set)

    def extended(self, names: Sequence[str]) -> Domain:
        """The same set with further dimensions, free, behind its own."""
        return self._with_dimensions(tuple(names))

    @_remembered
    def _with_dimensions(self, names: tuple[str, ...]) -> Domain:
        return Domain((*self.names, *names), self._set.add_dims(_SET, len(names)))

    def project_onto(self, names: Sequence[str]) -> Domain:
        """The values that `names` take in the set, with the dimensions in this order."""
        return self._onto(tuple(names))

    @_remembered
    def _onto(self, names: tuple[str, ...]) -> Domain:
        return Domain(names, self._projected(names))

    def _projected(self, names: Sequence[str]) -> isl.Set:
        wanted = set(names)
        points = self._set
        for at in reversed(range(len(self.names))):
            if self.names[at] not in wanted:
                points = points.project_out(_SET, at, 1)
        kept = [name for name in self.names if name in wanted]
        if kept != list(names):
            points = _permuted(points, [kept.index(name) for name in names])
        return points

    def compact(self, names: Iterable[str]) -> Domain:
        """The same set without those of `names` that no constraint involves."""
        wanted = frozenset(names).intersection(self.names)
        return self._compacted(wanted) if wanted else self

    @_remembered
    def _compacted(self, wanted: frozenset[str]) -> Domain:
        points, kept = self._set, list(self.names)
        for at in reversed(range(len(kept))):
            if kept[at] in wanted and not points.involves_dims(_SET, at, 1):
                points = points.project_out(_SET, at, 1)
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

    @_remembered
    def _where(self, values: tuple[Affine, ...], names: tuple[str, ...]) -> Domain:
        positions = {name: at for at, name in enumerate(names)}
        graph = isl.MultiAff.zero(isl.Space.alloc(_CONTEXT, 0, len(names), len(self.names)))
        for at, value in enumerate(values):
            graph = graph.set_aff(at, _aff(positions, value))
        return Domain(names, self._set.preimage_multi_aff(graph))

    def image(self, access: Sequence[Affine], names: Sequence[str]) -> Domain:
        """The values of the affine expressions over the points, as a set over `names`."""
        return self._image(tuple(access), tuple(names))

    @_remembered
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
        graph = self._set.add_dims(_SET, len(access)).intersect(_basic_set(positions, [], equations).to_set())
        return Domain(names, graph.project_out(_SET, 0, own))

    # -- asking --------------------------------------------------------------------------

    def is_empty(self) -> bool:
        if self._empty is None:
            self._empty = self._decide_empty()
        return self._empty

    @_guarded
    def _decide_empty(self) -> bool:
        return bool(self._set.is_empty())

    @_guarded
    def is_bounded(self) -> bool:
        """Whether the set is finite."""
        return bool(self._set.is_bounded())

    @_guarded
    def equals(self, other: Domain) -> bool:
        return bool(self._set.is_equal(self._aligned(other)))

    @_remembered
    def is_subset(self, other: Domain) -> bool:
        return bool(self._set.is_subset(self._aligned(other)))

    @_guarded
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

    @_guarded
    def _find_bounds(self, expr: Affine) -> tuple[int, int] | None:
        aff = _aff(self._positions, expr)
        high = self._set.max_val(aff)
        if high.is_nan():
            raise InvariantError("the bounds of an expression over an empty set")
        low = self._set.min_val(aff)
        if not (low.is_int() and high.is_int()):
            return None
        return low.to_python(), high.to_python()

    @_guarded
    def sample(self) -> dict[str, int] | None:
        """One point of the set, or None if it is empty."""
        return self._point(self._set)

    @_guarded
    def first(self) -> dict[str, int] | None:
        """The lexicographically least point, or None if the set is empty; it must be bounded."""
        try:
            return self._point(self._set.lexmin())
        except isl.Error as error:
            if "involves some of the domain dimensions" not in str(error):
                raise
            # isl trips over a few sets that hold a division it has not found yet; this makes it look.
            return self._point(self._set.remove_redundancies().lexmin())

    def _point(self, points: isl.Set) -> dict[str, int] | None:
        point = points.sample_point()
        if point.is_void():
            return None
        return {name: point.get_coordinate_val(_SET, at).to_python() for name, at in self._positions.items()}

    @_guarded
    def pieces(self, *, disjoint: bool = False) -> list[Piece] | None:
        """The disjuncts as affine constraints; None where one needs an existential variable.

        They may overlap unless `disjoint` is asked for. An empty set has none.
        """
        points = self._set.coalesce()
        if disjoint:
            points = points.make_disjoint()
        found: list[Piece] = []
        for part in points.remove_redundancies().get_basic_sets():
            if part.is_empty():
                continue
            if part.dim(isl.dim_type.div):
                return None
            found.append(self._constraints(part))
        return found

    def _constraints(self, part: isl.BasicSet) -> Piece:
        def affines(matrix: isl.Mat) -> list[Affine]:
            return [Affine.of(dict(zip(self.names, row[1:], strict=True)), row[0]) for row in _rows(matrix)]

        return affines(part.inequalities_matrix(*_COLUMNS)), affines(part.equalities_matrix(*_COLUMNS))

    @_guarded
    def lattices(self, fixed: Sequence[str]) -> list[Lattice] | None:
        """The disjuncts, disjoint, each without gaps over indexes of its own: `i = 2*e + 1` over e.

        The names in `fixed` stay what they are; `ranges` leaves them out. None where a disjunct is no
        lattice under affine constraints, or one without limits.
        """
        found: list[Lattice] = []
        for part in self._set.coalesce().make_disjoint().remove_redundancies().get_basic_sets():
            if part.is_empty():
                continue
            # Equations between the fixed names are conditions: to solve them would take one of these away.
            hull = part
            for at, name in enumerate(self.names):
                hull = hull if name in fixed else hull.eliminate(_SET, at, 1)
            hull = hull.affine_hull().remove_divs()
            conditions = self._constraints(hull)[1]
            made = self._lattices(part.gist(hull) if conditions else part, fixed)
            if made is None:
                return None
            both = tuple(e for expr in conditions for e in (expr, -expr))
            found += [replace(each, constraints=(*each.constraints, *both)) for each in made]
        return found

    def _lattices(self, part: isl.BasicSet, fixed: Sequence[str]) -> list[Lattice] | None:
        # The existentials become dimensions; those that the equations leave over are projected out.
        lifted = part.lift().flatten()
        hidden = [f"${at}" for at in range(lifted.dim(_SET) - len(self.names))]
        every = (*self.names, *hidden)
        values = _solve(every, _rows(lifted.equalities_matrix(*_COLUMNS)), lifted.dim(isl.dim_type.div))
        if values is None or any(values[name] != Affine.index(name) for name in fixed):
            return None
        own = {name: values[name] for name in self.names}
        drivers = [name for name in _drivers(own) if name not in fixed]
        rows = _rows(lifted.inequalities_matrix(*_COLUMNS))
        limits = [
            Affine.of(dict(zip(every, row[1:], strict=False)), row[0]).substitute(values) for row in rows
        ]
        kept = (*fixed, *drivers)
        others = tuple(name for name in _drivers(values) if name not in kept)
        domain = Domain.of((*kept, *others), limits)
        # What isl knows of an existential beyond its constraints is not in them.
        image = domain.image([own[n] for n in self.names], self.names)
        if not image.equals(Domain(self.names, part.to_set())):
            return None
        pieces = domain.project_onto(kept).pieces(disjoint=True)
        if pieces is None:  # the others are walked too, at one value each
            domain = domain._least(others)
            pieces = domain.pieces(disjoint=True)
            if pieces is None or not domain.determines(kept, others):
                return None
            kept, drivers = domain.names, [*drivers, *others]
        found = [_walked(kept, drivers, own, piece) for piece in pieces]
        return None if None in found else [each for each in found if each is not None]

    def _least(self, others: Sequence[str]) -> Domain:
        """The points of a conjunction where each of `others` has the least value that the rest allow."""
        points = self
        for name in others:
            points = points.subtract(points.preimage({name: Affine(-1, ((name, 1),))}, points.names))
        return points

    @_guarded
    def count(self) -> int:
        """The exact number of points; the set must be bounded.

        Each disjoint piece is a product of sets over dimensions that share no constraint; the
        sizes of these multiply.
        """
        parts = [p for p in self._set.make_disjoint().get_basic_sets() if not p.is_empty()]
        return sum(_count(part) for part in parts)

    def points(self) -> Iterator[dict[str, int]]:
        """Every point, in lexicographic order: for tests and small sets."""
        for values in self._scanned():
            yield dict(zip(self.names, values, strict=True))

    @_guarded
    def _scanned(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []

        def visit(point: isl.Point) -> None:
            found.append(
                tuple(point.get_coordinate_val(_SET, at).to_python() for at in range(len(self.names)))
            )

        self._set.foreach_point(visit)
        return sorted(found)

    def __str__(self) -> str:
        points = self._set
        for name, at in self._positions.items():
            points = points.set_dim_name(_SET, at, name)
        return str(points)

    __repr__ = __str__


@lru_cache(maxsize=REMEMBERED)
@_guarded
def _conjunction(
    names: tuple[str, ...], inequalities: tuple[Affine, ...], equalities: tuple[Affine, ...]
) -> Domain:
    positions = {name: at for at, name in enumerate(names)}
    return Domain(names, _basic_set(positions, inequalities, equalities).to_set())


def _permuted(points: isl.Set, order: Sequence[int]) -> isl.Set:
    """The set with dimension `order[k]` moved to place k."""
    size = len(order)
    graph = isl.Map.universe(isl.Space.alloc(_CONTEXT, 0, size, size))
    for place, origin in enumerate(order):
        graph = graph.equate(isl.dim_type.in_, origin, isl.dim_type.out, place)
    return points.apply(graph)


def _components(size: int, rows: Iterable[Sequence[int]]) -> list[list[int]]:
    """Dimensions (columns 1..size of the rows) grouped by the constraints that they share."""
    leader = list(range(size))

    def find(at: int) -> int:
        while leader[at] != at:
            leader[at] = leader[leader[at]]
            at = leader[at]
        return at

    for row in rows:
        used = [at for at in range(size) if row[at + 1]]
        for at in used[1:]:
            leader[find(at)] = find(used[0])
    groups: dict[int, list[int]] = {}
    for at in range(size):
        groups.setdefault(find(at), []).append(at)
    return list(groups.values())


def _told(equalities: list[list[int]], inequalities: list[list[int]], size: int) -> list[int]:
    """Dimensions that equalities tell from the others: each by one of its own, with a factor of 1 or -1."""
    found = []
    for row in equalities:
        if any(row[size + 1 :]):
            continue
        alone = [
            at
            for at in range(size)
            if abs(row[at + 1]) == 1 and sum(other[at + 1] != 0 for other in equalities) == 1
        ]
        if alone:
            found.append(min(alone, key=lambda at: sum(other[at + 1] != 0 for other in inequalities)))
    return sorted(found, reverse=True)


def _count(part: isl.BasicSet) -> int:
    size = part.dim(_SET)
    equalities = _rows(part.equalities_matrix(*_COLUMNS))
    inequalities = _rows(part.inequalities_matrix(*_COLUMNS))
    told = _told(equalities, inequalities, size)
    if told:  # without them there are as many points, and others need no longer hang together
        for at in told:
            part = part.project_out(_SET, at, 1)
        return _count(part)
    hidden = part.dim(isl.dim_type.div)
    total = 1
    for group in _components(size + hidden, equalities + inequalities):
        visible = [at for at in group if at < size]
        if not visible:
            continue
        if any(at >= size for at in group):
            factor = part
            for at in reversed(range(size)):
                if at not in visible:
                    factor = factor.project_out(_SET, at, 1)
            total *= _number(factor.to_set())
        else:
            total *= _count_group(group, inequalities, equalities)
    return total


def _count_group(group: list[int], inequalities: list[list[int]], equalities: list[list[int]]) -> int:
    """The points of the constraints among the dimensions of `group` alone."""

    def own(rows: list[list[int]]) -> list[Affine]:
        kept = (row for row in rows if any(row[at + 1] for at in group))
        return [Affine.of({str(at): row[at + 1] for at in group}, row[0]) for row in kept]

    if len(group) == 1 and not equalities:
        at = group[0] + 1
        lows = [-(row[0] // row[at]) for row in inequalities if row[at] > 0]
        highs = [row[0] // -row[at] for row in inequalities if row[at] < 0]
        if lows and highs:
            return max(0, min(highs) - max(lows) + 1)
    positions = {str(at): place for place, at in enumerate(group)}
    return _number(_basic_set(positions, own(inequalities), own(equalities)).to_set())


def _number(points: isl.Set) -> int:
    number = points.count_val()
    _check_limit()
    if not number.is_int():
        raise InvariantError("the number of points of an unbounded set")
    return int(number.to_python())


# -- blocks ------------------------------------------------------------------------------


def block_domain(block: Block) -> Domain:
    """The points of one block over all its indexes; those passed in are free dimensions."""
    ranges = block.ranges
    inequalities = [Affine.index(name) for name in ranges]
    inequalities += [Affine(size - 1, ((name, -1),)) for name, size in ranges.items()]
    inequalities += [constraint.expr for constraint in block.constraints]
    return Domain.of([index.name for index in block.indexes], inequalities)


def nest_domain(path: Sequence[Block]) -> Domain:
    """The points of a nest, outermost block first: index `i` of the block at depth 2 is `2.i`.

    Indexes that a block is passed equal their expression over the indexes one level up; those
    of the first block are free.
    """
    names: list[str] = []
    inequalities: list[Affine] = []
    equalities: list[Affine] = []
    for depth, block in enumerate(path):

        def here(name: str, depth: int = depth) -> str:
            return f"{depth}.{name}"

        def above(name: str, depth: int = depth) -> str:
            return f"{depth - 1}.{name}"

        for index in block.indexes:
            own = Affine.index(here(index.name))
            names.append(here(index.name))
            if index.passed is None:
                inequalities += [own, -own + (index.range - 1)]
            elif depth:
                equalities.append(own - index.passed.rename(above))
        inequalities += [constraint.expr.rename(here) for constraint in block.constraints]
    return Domain.of(names, inequalities, equalities)


# -- ranges that start at 0 ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boxed:
    """A finite set as ranges and constraints: old index = new index + offset.

    `ranges` are tight: each new index takes 0 and range - 1. `constraints` (each >= 0, over
    the new indexes) are those that the ranges do not imply.
    """

    ranges: dict[str, int]
    offsets: dict[str, int]
    constraints: tuple[Affine, ...]


def boxed(domain: Domain) -> list[Boxed] | None:
    """The disjoint pieces of a bounded domain, each as ranges from 0, offsets and constraints.

    None where a piece needs an existential variable (see `reparametrise`); `Unbounded` where
    a dimension has no limits; an empty list for the empty set.
    """
    pieces = domain.pieces(disjoint=True)
    if pieces is None:
        return None
    return [_boxed(domain.names, *piece) for piece in pieces]


def _boxed(names: Sequence[str], inequalities: list[Affine], equalities: list[Affine]) -> Boxed:
    domain = Domain.of(names, inequalities, equalities)
    limits = {name: domain.bounds(Affine.index(name)) for name in names}
    free = tuple(name for name, limit in limits.items() if limit is None)
    if free:
        raise Unbounded(free)
    offsets = {name: limit[0] for name, limit in limits.items() if limit is not None}
    ranges = {name: limit[1] - limit[0] + 1 for name, limit in limits.items() if limit is not None}
    shift = {name: Affine(offset, ((name, 1),)) for name, offset in offsets.items()}
    shifted = Domain.of(
        names, [e.substitute(shift) for e in inequalities], [e.substitute(shift) for e in equalities]
    )
    left = shifted.gist(Domain.box(ranges)).pieces()
    if left is None or len(left) != 1:
        raise InvariantError("the gist of a conjunction is not a conjunction")
    more, equal = left[0]
    constraints = [*more, *equal, *(-e for e in equal)]
    return Boxed(ranges, offsets, tuple(sorted(constraints, key=lambda e: (e.terms, e.const))))


# -- lattices --------------------------------------------------------------------------------


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
    conditions = (*inequalities, *equalities, *(-expr for expr in equalities))
    return Lattice(
        {name: high - low + 1 for name, (low, high) in known.items()},
        tuple(expr.substitute(shift) for expr in conditions),
        {name: value.substitute(shift) for name, value in values.items()},
    )


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


@_guarded
def _implied_equations(domain: Domain) -> tuple[list[list[int]], int]:
    """The equations that hold for every point, as rows like those of `_equations`."""
    hull = domain._set.affine_hull()
    return _rows(hull.equalities_matrix(*_COLUMNS)), hull.dim(isl.dim_type.div)


def _hermite(rows: list[list[int]], columns: int) -> tuple[list[list[int]], list[list[int]]]:
    """(H, U) with rows * U = H, U unimodular, H in column echelon form, zero columns last."""
    matrix = isl.Mat.alloc(_CONTEXT, len(rows), columns)
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            matrix = matrix.set_element_val(at, column, _val(value))
    echelon, unimodular, _ = matrix.left_hermite(0)
    return _rows(echelon), _rows(unimodular)


def _pivots(echelon: list[list[int]], columns: int) -> list[int]:
    """The row of the first non-zero element of each non-zero column."""
    firsts = (next((r for r, row in enumerate(echelon) if row[column]), None) for column in range(columns))
    return [first for first in firsts if first is not None]


@_guarded
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
