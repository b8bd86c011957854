"""The block that two become when `fuse` puts them under shared outer indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.fusion_plan import Plan, SharedIndex
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    Refinement,
    Special,
    Statement,
)
from stripe.names import Names
from stripe.rewrite import drop_unused_passed, inline_indexes
from stripe.visit import buffers_used, rename_operands, scalars_defined


def under_shared_indexes(scope: Block, first: Block, second: Block, plan: Plan) -> Block:
    """Both blocks, children of `scope`, in one over the shared indexes that the plan asks for."""
    return _Fusion(scope, first, second, plan).build()


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two blocks as it stands below the outer indexes."""

    block: Block
    values: Mapping[str, Affine]  # its indexes that are passed in, over the outer block's
    views: tuple[Refinement, ...]  # for each of its views, the box of one shared point
    covered: tuple[Constraint, ...]  # keep it within its own ranges


class _Fusion:
    """The block over the shared indexes that a plan asks for."""

    def __init__(self, scope: Block, first: Block, second: Block, plan: Plan) -> None:
        self._scope = scope
        self._plan = plan
        self._blocks = first, second
        self._names = Names()
        self._indexes: list[Index] = []
        self._views: dict[tuple[str, tuple[Affine, ...], tuple[int, ...]], Refinement] = {}
        self._written: dict[str, Refinement] = {}

    def build(self) -> Block:
        first, second = self._blocks
        shared = self._shared_indexes()
        parts = self._part(first, shared, True), self._part(second, shared, False)
        self._declare(parts)
        inner = [self._inner(part) for part in parts]
        constraints, inner = self._hoisted(inner, parts)
        refinements = [*self._written.values(), *self._views.values()]
        refinements.sort(key=lambda r: r.direction.writes)  # inputs first
        outer = Block(
            second.name,
            indexes=tuple(self._indexes),
            constraints=constraints,
            refinements=tuple(refinements),
            span=second.span,
        )
        return drop_unused_passed(_assemble(outer, inner, parts))

    def _shared_indexes(self) -> list[str]:
        first, _ = self._blocks
        ordered = self._plan.shared
        names = [self._names.fresh(s.pair.first) for s in ordered]
        self._indexes += [
            Index(name, s.size, None, first.index(s.pair.first).span)
            for name, s in zip(names, ordered, strict=True)
        ]
        return names

    def _passed(self, index: Index) -> str:
        """The outer block's name for an index that a part is passed from the enclosing block."""
        for known in self._indexes:
            if known.passed is not None and known.passed == index.passed:
                return known.name
        name = self._names.fresh(index.name)
        self._indexes.append(replace(index, name=name))
        return name

    def _part(self, block: Block, shared: Sequence[str], is_first: bool) -> _Part:
        values: dict[str, Affine] = {}
        covered: list[Constraint] = []
        for name, entry in zip(shared, self._plan.shared, strict=True):
            own, start = _own(entry, is_first)
            values[own] = Affine(start, ((name, 1),))
            covered += [Constraint(e) for e in _cover(own, start, entry.size, block.ranges[own])]
        for index in block.indexes:
            if index.passed is not None:
                values[index.name] = Affine.index(self._passed(index))
        views = tuple(
            r if r.direction is Direction.NEW else outer_box(block, r, values) for r in block.refinements
        )
        return _Part(block, values, views, tuple(covered))

    def _declare(self, parts: Sequence[_Part]) -> None:
        """The outer block's views: one box for a buffer that is written, else one for each origin."""
        names = Names()
        for part in parts:
            for view in part.views:
                if view.direction is Direction.NEW:
                    continue
                use = self._plan.use(view)
                key = view.source, view.access, view.shape
                made = replace(view, direction=use.direction, aggregation=use.aggregation, tags=())
                if use.direction.writes:
                    known = self._written.get(view.source)
                    if known is None:
                        self._written[view.source] = replace(made, name=names.fresh(view.source))
                    else:
                        self._written[view.source] = _hull(known, view, self._scope.refinement(view.source))
                elif key not in self._views:
                    self._views[key] = replace(made, name=names.fresh(view.source))

    def view(self, ref: Refinement) -> Refinement:
        """The outer view that shows the box `ref`."""
        return self._written.get(ref.source) or self._views[ref.source, ref.access, ref.shape]

    def _inner(self, part: _Part) -> Block:
        """The part with the shared indexes passed in and its views relative to the outer ones."""
        indexes = (
            *(i for i in part.block.indexes if i.name not in part.values),
            *(
                replace(i, range=1, passed=part.values[i.name])
                for i in part.block.indexes
                if i.name in part.values
            ),
        )
        refinements = tuple(
            ref if ref.direction is Direction.NEW else relative(ref, self.view(box), part.values)
            for ref, box in zip(part.block.refinements, part.views, strict=True)
        )
        return replace(
            part.block,
            indexes=indexes,
            constraints=(*part.covered, *part.block.constraints),
            refinements=refinements,
        )

    def _hoisted(
        self, inner: Sequence[Block], parts: Sequence[_Part]
    ) -> tuple[tuple[Constraint, ...], list[Block]]:
        """Constraints on shared points that both parts have move to the outer block."""
        outer: list[dict[Affine, Constraint]] = []
        for block, part in zip(inner, parts, strict=True):
            over_shared = [c for c in block.constraints if set(c.expr.names) <= set(part.values)]
            outer.append({c.expr.substitute(part.values): c for c in over_shared})
        common = [expr for expr in outer[0] if expr in outer[1]]
        left = [
            replace(b, constraints=tuple(c for c in b.constraints if c not in [own[e] for e in common]))
            for b, own in zip(inner, outer, strict=True)
        ]
        return tuple(replace(outer[0][e], expr=e) for e in common), left


def _own(entry: SharedIndex, is_first: bool) -> tuple[str, int]:
    """A block's index of a pair, and its value where the shared index is 0."""
    if is_first:
        return entry.pair.first, entry.low
    return entry.pair.second, entry.low - entry.pair.offset


def _cover(own: str, start: int, size: int, range_: int) -> Iterator[Affine]:
    if start < 0:
        yield Affine.index(own)
    if start + size > range_:
        yield Affine(range_ - 1, ((own, -1),))


def outer_box(block: Block, ref: Refinement, values: Mapping[str, Affine]) -> Refinement:
    """The box of the parent's buffer that a view covers at one shared point."""
    limits = {name: (0, max(size - 1, 0)) for name, size in block.ranges.items() if name not in values}
    inside = frozenset(limits)
    access, shape = [], []
    for expr, extent in zip(ref.access, ref.shape, strict=True):
        low, high = expr.only(inside).bounds(limits)
        access.append(expr.without(inside).substitute(values) + low)
        shape.append(high - low + extent)
    return replace(ref, access=tuple(access), shape=tuple(shape))


def _hull(known: Refinement, view: Refinement, whole: Refinement) -> Refinement:
    """One box around two: along dimensions where they move differently, the whole buffer."""
    access, shape = [], []
    for dim, (one, other) in enumerate(zip(known.access, view.access, strict=True)):
        distance = other - one
        if distance.is_constant:
            low = min(0, distance.const)
            access.append(one + low)
            shape.append(max(known.shape[dim], distance.const + view.shape[dim]) - low)
        else:
            access.append(Affine())
            shape.append(whole.shape[dim])
    return replace(known, access=tuple(access), shape=tuple(shape))


def relative(ref: Refinement, outer: Refinement, values: Mapping[str, Affine]) -> Refinement:
    """A view of a part, as a view of the outer block's view."""
    access = []
    for expr, origin in zip(ref.access, outer.access, strict=True):
        inside = Affine(0, tuple(term for term in expr.terms if term[0] not in values))
        moved = (expr - inside).substitute(values) - origin
        access.append(inside + moved.const if moved.is_constant else expr - origin)
    folds = ref.direction is Direction.INOUT and ref.combines
    direction = ref.direction
    if folds and outer.aggregation is not Aggregation.ASSIGN:
        direction = Direction.OUT  # the outer view folds old contents in
    return replace(ref, source=outer.name, access=tuple(access), direction=direction)


# -- statements of the parts as statements of the outer block -----------------------------------


def _assemble(outer: Block, inner: Sequence[Block], parts: Sequence[_Part]) -> Block:
    """Put the parts below the outer block: their statements where these mean the same there, so
    that either all statements are scalar or none is; else the blocks themselves."""
    views = {ref.name: ref for ref in outer.refinements}
    open_parts = [_is_open(block, views) for block in inner]
    scalar = [all(map(_is_scalar, block.statements)) for block in inner]
    flat = all(open_parts) and all(scalar)
    for block, part, is_open in zip(inner, parts, open_parts, strict=True):
        if is_open and (flat or not any(map(_is_scalar, block.statements))):
            outer = _spliced(outer, inline_indexes(block, part.values))
        else:
            outer = replace(outer, statements=(*outer.statements, drop_unused_passed(block)))
    return outer


def _is_scalar(statement: Statement) -> bool:
    return not isinstance(statement, Block | Special)


def _is_open(block: Block, views: Mapping[str, Refinement]) -> bool:
    """Whether the statements of a block without points of its own mean the same outside of it."""
    if block.ranges or block.constraints or block.tags or block.location is not None or block.inflight != 1:
        return False
    used = [(s, name, direction) for s in block.statements for name, direction in buffers_used(s)]
    direct = {name for s, name, _ in used if not isinstance(s, Block)}
    writers = Counter(name for _, name, direction in used if direction.writes)
    for ref in block.refinements:
        if ref.direction is Direction.NEW:
            continue
        outer = views[ref.source]
        if any(not expr.is_constant for expr in ref.access):
            return False
        moved = any(expr.const for expr in ref.access) or ref.shape != outer.shape
        if moved and ref.name in direct:
            return False
        replaces = ref.direction is Direction.OUT and writers[ref.name] == 1
        if ref.direction.writes and ref.aggregation is not outer.aggregation and not replaces:
            return False
    return True


def _spliced(outer: Block, block: Block) -> Block:
    """The outer block with the statements of an open block behind its own."""
    buffer_names = Names(r.name for r in outer.refinements)
    scalar_names = Names(name for s in outer.statements for name in scalars_defined(s))
    new = [r for r in block.refinements if r.direction is Direction.NEW]
    buffers = {r.name: r.source for r in block.refinements if r.direction is not Direction.NEW}
    buffers |= {r.name: buffer_names.fresh(r.name) for r in new}
    scalars = {name: scalar_names.fresh(name) for s in block.statements for name in scalars_defined(s)}
    shifts = {r.name: r.access for r in block.refinements if r.direction is not Direction.NEW}
    moved = (rename_operands(_shifted(s, shifts), buffers, scalars) for s in block.statements)
    return replace(
        outer,
        refinements=(*outer.refinements, *(replace(r, name=buffers[r.name]) for r in new)),
        statements=(*outer.statements, *moved),
    )


def _shifted(statement: Statement, shifts: Mapping[str, tuple[Affine, ...]]) -> Statement:
    """A child block whose views start where the views of its former parent did."""
    if not isinstance(statement, Block):
        return statement
    refinements = tuple(
        replace(r, access=tuple(a + s for a, s in zip(r.access, shifts[r.source], strict=True)))
        if r.direction is not Direction.NEW and r.source in shifts
        else r
        for r in statement.refinements
    )
    return replace(statement, refinements=refinements)
