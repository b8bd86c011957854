"""Verifier: every executed access lies inside every view that encloses it (V050).

A nest is flattened: each index that ranges over values becomes the dimension `depth.name`,
each index that is passed in becomes an affine expression of these. An access is then an
affine expression for each level and dimension. Interval arithmetic over the ranges proves
most of them; a constraint of the nest that bounds the expression proves most others; isl
decides the rest and gives a witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from stripe.affine import Affine
from stripe.diag import Diagnostic
from stripe.ir import Direction, Load, Refinement, Special, Statement, Store
from stripe.poly import Domain
from stripe.verify_structure import Site, described


@dataclass(frozen=True, slots=True)
class Level:
    """One of the views that enclose a view: its refinement, and the view's origin inside it."""

    path: str
    ref: Refinement
    origin: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """A block with everything above it, over the dimensions `depth.name`.

    `ranges` and `constraints` (each >= 0) describe the points; `values` gives the block's own
    indexes; `views` the levels of each of its views, innermost first.
    """

    site: Site
    depth: int
    ranges: dict[str, int]
    constraints: tuple[Affine, ...]
    values: dict[str, Affine]
    views: dict[str, tuple[Level, ...]]

    @property
    def never_runs(self) -> bool:
        """Whether a range is empty, so that no statement of the block is executed."""
        return 0 in self.ranges.values()

    def witness(self, violation: Domain | None = None) -> dict[str, int] | None:
        """The first point of the nest, where it lies in `violation` if that is given (over
        dimensions of the nest and others)."""
        names = list(self.ranges)
        nest = Domain.box(self.ranges).with_constraints(self.constraints)
        if violation is None:
            return nest.first()
        extra = [name for name in violation.names if name not in self.ranges]
        whole = violation.extended([name for name in names if name not in violation.names])
        return whole.intersect(nest.extended(extra)).first()

    def shown(self, point: Mapping[str, int]) -> str:
        """` at x=3, i=2`: the indexes of the nest at a witness; empty without any."""
        blocks = [site.block.name for site in self.site.nest]
        labels: list[tuple[str, str, int]] = []
        for dimension in self.ranges:
            depth, name = dimension.split(".", 1)
            labels.append((blocks[int(depth)], name, point[dimension]))
        names = [name for _, name, _ in labels]
        texts = [
            f"{name}={value}" if names.count(name) == 1 else f"{block}.{name}={value}"
            for block, name, value in labels
        ]
        return f" at {', '.join(texts)}" if texts else ""


def nests(all_sites: Iterable[Site]) -> Iterator[Nest]:
    """The nest of each site; parents come before their children."""
    made: dict[int, Nest] = {}
    for site in all_sites:
        nest = _nest(site, made[id(site.parent)] if site.parent else None)
        made[id(site)] = nest
        yield nest


def _nest(site: Site, parent: Nest | None) -> Nest:
    depth = parent.depth + 1 if parent else 0
    ranges = dict(parent.ranges) if parent else {}
    outer = parent.values if parent else {}
    values: dict[str, Affine] = {}
    for index in site.block.indexes:
        if index.passed is not None:
            values[index.name] = index.passed.substitute(outer)
        else:
            values[index.name] = Affine.index(f"{depth}.{index.name}")
            ranges[f"{depth}.{index.name}"] = index.range
    own = tuple(c.expr.substitute(values) for c in site.block.constraints)
    views: dict[str, tuple[Level, ...]] = {}
    for ref in site.block.refinements:
        here = Level(site.path, ref, tuple(Affine() for _ in ref.shape))
        above: tuple[Level, ...] = ()
        if parent is not None and ref.direction is not Direction.NEW:
            access = tuple(expr.substitute(values) for expr in ref.access)
            above = tuple(
                Level(level.path, level.ref, tuple(a + b for a, b in zip(level.origin, access, strict=True)))
                for level in parent.views[ref.source]
            )
        views[ref.name] = (here, *above)
    return Nest(site, depth, ranges, (parent.constraints if parent else ()) + own, values, views)


# -- V050 ------------------------------------------------------------------------------------


def access_findings(nest: Nest) -> list[Diagnostic]:
    """The accesses of the block's own statements that leave a view."""
    if nest.never_runs:
        return []
    found: list[Diagnostic] = []
    for number, statement in enumerate(nest.site.block.statements):
        for buffer, origin, shape in _parts(statement, nest):
            finding = _outside(nest, number, statement, buffer, origin, shape)
            if finding is not None:
                found.append(finding)
    return found


def _parts(
    statement: Statement, nest: Nest
) -> Iterator[tuple[str, tuple[Affine, ...], tuple[int, ...] | None]]:
    """What a statement touches of a buffer: an origin in the view and, for specials, a shape."""
    match statement:
        case Load(buffer=buffer) | Store(buffer=buffer):
            yield buffer, (), None
        case Special(operands=operands):
            for operand in operands:
                shape = operand.shape
                if shape is None:
                    shape = nest.views[operand.buffer][0].ref.shape
                access = tuple(expr.substitute(nest.values) for expr in operand.access or ())
                yield operand.buffer, access, shape


def _outside(
    nest: Nest,
    number: int,
    statement: Statement,
    buffer: str,
    origin: tuple[Affine, ...],
    shape: tuple[int, ...] | None,
) -> Diagnostic | None:
    """The finding for the outermost view that a part may leave, or None."""
    if shape is not None and 0 in shape:
        return None
    for level in reversed(nest.views[buffer]):
        first = level.origin
        if origin:
            first = tuple(a + b for a, b in zip(first, origin, strict=True))
        for axis, (low, size) in enumerate(zip(first, level.ref.shape, strict=True)):
            extent = shape[axis] if shape is not None else 1
            for slack in (low, -low + (size - extent)):
                point = point_below_zero(nest, slack)
                if point is None:
                    continue
                at = tuple(expr.evaluate(point) for expr in first)
                last = "" if shape is None else f" to {[a + s - 1 for a, s in zip(at, shape, strict=True)]}"
                what = "reads" if isinstance(statement, Load) else "writes"
                verb = "uses" if isinstance(statement, Special) else what
                return Diagnostic(
                    "V050",
                    f"block {nest.site.path}, {described(number, statement)}: it {verb} element "
                    f"{list(at)}{last} of '{level.ref.name}' in block {level.path}, "
                    f"whose shape is {list(level.ref.shape)},{nest.shown(point) or ' always'}",
                    statement.span or nest.site.block.span,
                    ("help: exclude the point by a constraint, or change the access or the shape",),
                )
    return None


def point_below_zero(nest: Nest, expr: Affine) -> dict[str, int] | None:
    """A point of the nest where `expr` is negative, or None if there is none."""
    limits = {name: (0, nest.ranges[name] - 1) for name in expr.names}
    if expr.bounds(limits)[0] >= 0:
        return None
    for constraint in nest.constraints:
        rest = expr - constraint
        if rest.bounds({name: (0, nest.ranges[name] - 1) for name in rest.names})[0] >= 0:
            return None  # expr >= constraint >= 0
    names, constraints = _related(nest.constraints, expr.names)
    if not _can_be_negative(tuple((name, nest.ranges[name]) for name in names), constraints, expr):
        return None
    return nest.witness(Domain.of(expr.names, [-expr - 1]))


@lru_cache(maxsize=4096)
def _can_be_negative(
    ranges: tuple[tuple[str, int], ...], constraints: tuple[Affine, ...], expr: Affine
) -> bool:
    points = Domain.box(dict(ranges)).with_constraints((*constraints, -expr - 1))
    return not points.is_empty()


def _related(
    constraints: tuple[Affine, ...], names: Iterable[str]
) -> tuple[tuple[str, ...], tuple[Affine, ...]]:
    """The dimensions that constraints tie to `names`, and those constraints."""
    known = set(names)
    used: list[Affine] = []
    left = list(constraints)
    while True:
        tied = [c for c in left if known.intersection(c.names)]
        if not tied:
            return tuple(sorted(known)), tuple(used)
        used += tied
        left = [c for c in left if c not in tied]
        known.update(name for c in tied for name in c.names)
