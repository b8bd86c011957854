"""fuse: put producers and consumers under shared outer indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from hwconfigs.model import Memory
from stripe.affine import Affine
from stripe.analysis.deps import Order
from stripe.analysis.fusion import Declined, Plan, Rank, SharedIndex, Sketch, best_rank, plan_fusion
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Constraint,
    Direction,
    Index,
    IndexValue,
    Intrinsic,
    Load,
    Program,
    Refinement,
    Special,
    Statement,
)
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.rewrite import drop_unused_passed, fold_unit_indexes, inline_indexes
from stripe.visit import buffers_used, rename_operands, walk


@dataclass(frozen=True)
class Fuse(Pass):
    """Put blocks that follow each other in a block under outer indexes that they share.

    before:  block c [m:8, n:4, k:2] (in A[m, k]  in B[k, n]  out C[m, n]:add) {...}
             block r [m:8, n:4] (in C[m, n]  out R[m, n]:assign) {...}
    after:   block r [m:8, n:4] (in A[m, 0]  in B[0, n]  out C[m, n]:assign  out R[m, n]:assign) {
               block c [k:2] (in A[0, k]  in B[k, 0]  out C[0, 0]:add) {...}
               block r [] (in C[0, 0]  out R[0, 0]:assign) {...} }

    Two blocks that keep no index, no constraint and no child of their own become one leaf block:
    a chain of elementwise blocks ends as one flat block. An intermediate keeps its buffer in the
    parent; `localize` moves it inside and `scalarize` makes it a scalar.

    Legal where every two accesses to one element, of which one writes, happen at one point of
    the shared indexes, and no statement must run between the two blocks (others are moved to
    either side). `stripe.analysis.fusion` has the proof and the profit model. Blocks with tags, a
    location or points in flight are left as they are. Producers are not recomputed: a consumer
    that needs neighbours of an element (a halo) stays apart.

    Stripe paper, section 2.3, "Fusion".
    """

    name = "fuse"

    memory: str = option(
        "",
        "the memory that should hold what a shared point keeps alive; empty: the nearest but registers",
    )

    def run(self, program: Program, context: PassContext) -> Program:
        memories = self._memories(context)
        root = _fuse_below(program.root, program.root.name, memories, context)
        load = program.load and _fuse_below(program.load, program.load.name, memories, context)
        if root is program.root and load is program.load:
            return program
        return replace(program, root=root, load=load)

    def _memories(self, context: PassContext) -> tuple[Memory, ...]:
        """Nearest first, from the memory that the option names on."""
        memories = tuple(m for m in context.hw.memories if m.kind != "registers")
        names = [m.name for m in memories]
        return memories[names.index(self.memory) :] if self.memory in names else memories


def _fuse_below(block: Block, path: str, memories: Sequence[Memory], context: PassContext) -> Block:
    """Fuse the children of a block, then those of each child."""
    block = _Children(block, path, memories, context).fused()
    statements = tuple(
        _fuse_below(s, f"{path}/{s.name}", memories, context) if isinstance(s, Block) else s
        for s in block.statements
    )
    if all(new is old for new, old in zip(statements, block.statements, strict=True)):
        return block
    return replace(block, statements=statements)


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    """Two statements that may be fused, for a heap that gives the best one first.

    `rank` is the negated rank of their plan, or while `planned` is False of the best plan that they
    might have; between equals small blocks go first, so that a long chain is not rebuilt at every step,
    then the order of the statements decides.
    """

    rank: tuple[int, int, int]
    order: tuple[int, int, int]
    first: Block = field(compare=False)
    second: Block = field(compare=False)
    planned: bool = field(compare=False)


class _Children:
    """The statements of one block while pairs of them are fused, best plan first.

    Many statements that all use one buffer are many pairs, each new block makes as many again, and
    a plan costs far more than a bound on its rank. So a pair is only planned when its bound has come
    to the head of the heap, and put back with the rank of its plan.
    """

    def __init__(self, block: Block, path: str, memories: Sequence[Memory], context: PassContext) -> None:
        self._block = block
        self._path = path
        self._memories = memories
        self._context = context
        self._order = Order(block)
        self._verdicts: dict[tuple[int, int], Plan | Declined] = {}
        self._alive: list[Statement] = list(block.statements)  # so that no id is used twice
        self._number = {id(s): at for at, s in enumerate(block.statements)}  # for equal ranks
        self._position = dict(self._number)
        self._users: dict[str, set[int]] = {}
        self._sketches: dict[int, Sketch] = {}
        self._heap: list[_Candidate] = []
        for statement in block.statements:
            self._enter(statement)

    def _enter(self, statement: Statement) -> None:
        for name, _ in buffers_used(statement):
            self._users.setdefault(name, set()).add(id(statement))
        if isinstance(statement, Block):
            self._sketches[id(statement)] = Sketch.of(statement)

    def _leave(self, statement: Statement) -> None:
        for name, _ in buffers_used(statement):
            self._users[name].discard(id(statement))

    def fused(self) -> Block:
        for first, second in self._pairs():
            self._propose(first, second)
        while chosen := self._best():
            self._carry_out(*chosen)
        self._explain()
        return self._block

    def _pairs(self) -> Iterator[tuple[Block, Block]]:
        """Children that use a common buffer, in the order of the second one."""
        for at, statement in enumerate(self._block.statements):
            if isinstance(statement, Block):
                for earlier in sorted(other for other in self._partners(statement) if other < at):
                    first = self._block.statements[earlier]
                    if isinstance(first, Block):
                        yield first, statement

    def _partners(self, statement: Statement) -> set[int]:
        """The positions of the other statements that use a buffer which this one uses."""
        found = {user for name, _ in buffers_used(statement) for user in self._users[name]}
        return {self._position[user] for user in found if user != id(statement)}

    def _propose(self, first: Block, second: Block) -> None:
        sketches = self._sketches[id(first)], self._sketches[id(second)]
        bound = best_rank(self._block, *sketches, lambda name: len(self._users[name]))
        self._push(first, second, bound, planned=False)

    def _push(self, first: Block, second: Block, rank: Rank, *, planned: bool) -> None:
        flat, shared, gain = rank
        size = len(first.statements) + len(second.statements)
        order = size, self._number[id(first)], self._number[id(second)]
        heappush(self._heap, _Candidate((-flat, -shared, -gain), order, first, second, planned))

    def _best(self) -> tuple[Block, Block, Block] | None:
        """Two statements to fuse and the block that they become."""
        blocked: list[_Candidate] = []  # until other fusions have moved what stands between
        chosen = None
        while self._heap and chosen is None:
            candidate = heappop(self._heap)
            first, second = candidate.first, candidate.second
            if id(first) not in self._position or id(second) not in self._position:
                continue  # one is part of a fused block by now
            if self._position[id(first)] > self._position[id(second)]:
                self._propose(second, first)
                continue
            plan = self._plan(first, second)
            if isinstance(plan, Declined):
                continue
            if not candidate.planned:
                self._push(first, second, plan.rank, planned=True)
            elif self._between(first, second) is None:
                blocked.append(candidate)
            elif result := self._built(first, second, plan):
                chosen = first, second, result
        for candidate in blocked:
            heappush(self._heap, candidate)
        return chosen

    def _plan(self, first: Block, second: Block) -> Plan | Declined:
        key = id(first), id(second)
        if key not in self._verdicts:
            users = {name: len(self._users[name]) for name, _ in buffers_used(first)}
            folded = fold_unit_indexes(first), fold_unit_indexes(second)
            self._verdicts[key] = plan_fusion(self._block, *folded, users, self._memories)
        return self._verdicts[key]

    def _built(self, first: Block, second: Block, plan: Plan) -> Block | None:
        folded = fold_unit_indexes(first), fold_unit_indexes(second)
        result = _Fusion(self._block, *folded, plan).build()
        if _gains(result):
            return result
        reason = "their constraints or aggregations keep them from becoming one leaf block"
        self._verdicts[id(first), id(second)] = Declined(reason, related=bool(plan.shared))
        return None

    def _between(self, first: Block, second: Block) -> frozenset[int] | None:
        """The statements between two that must run after the first, or None if one of them must
        also run before the second."""
        statements = self._block.statements
        start, end = self._position[id(first)], self._position[id(second)]
        behind = [start]
        for at in range(start + 1, end):
            if any(self._order.depends(statements[b], statements[at]) for b in behind):
                behind.append(at)
        if any(self._order.depends(statements[b], second) for b in behind[1:]):
            return None
        return frozenset(behind[1:])

    def _carry_out(self, one: Block, other: Block, result: Block) -> None:
        statements = self._block.statements
        plan = self._verdicts[id(one), id(other)]
        assert isinstance(plan, Plan)
        first, second = self._position[id(one)], self._position[id(other)]
        later = self._between(one, other) or frozenset()
        middle = range(first + 1, second)
        self._block = replace(
            self._block,
            statements=(
                *statements[:first],
                *(statements[at] for at in middle if at not in later),
                result,
                *(statements[at] for at in middle if at in later),
                *statements[second + 1 :],
            ),
        )
        self._alive.append(result)
        self._number[id(result)] = self._number[id(one if later else other)]
        self._position = {id(s): at for at, s in enumerate(self._block.statements)}
        for gone in (one, other):
            self._leave(gone)
        self._enter(result)
        at = self._position[id(result)]
        for partner in sorted(self._partners(result)):
            statement = self._block.statements[partner]
            if isinstance(statement, Block):
                self._propose(*((statement, result) if partner < at else (result, statement)))
        over = ", ".join(s.pair.first for s in plan.shared)
        self._context.remark(
            "fuse",
            f"{self._path}/{result.name}",
            True,
            f"fused with '{one.name}'" + (f" over {over}" if over else ""),
            bytes_saved=plan.gain,
            flat=plan.flat,
        )

    def _explain(self) -> None:
        """Say why blocks of which the second uses what the first writes are still apart."""
        for one, other in self._pairs():
            plan = self._plan(one, other)
            written = {name for name, direction in buffers_used(one) if direction.writes}
            used = {name for name, _ in buffers_used(other)}
            if not written & used or not (one.ranges or other.ranges):
                continue
            if isinstance(plan, Plan):
                reason = "another statement must run between them"
            elif plan.related:
                reason = plan.reason
            else:
                continue
            self._context.remark(
                "fuse", f"{self._path}/{other.name}", False, f"not fused with '{one.name}': {reason}"
            )


def _gains(fused: Block) -> bool:
    """Whether a block that two became is one leaf, or has points at which children of their own
    points follow each other. Otherwise nothing is left inside that could be tiled or vectorised."""
    below = [inner for _, inner in walk(fused)][1:]
    return not below or (bool(fused.ranges) and any(inner.ranges for inner in below))


# -- building the fused block -----------------------------------------------------------------


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
            r if r.direction is Direction.NEW else _outer_box(block, r, values) for r in block.refinements
        )
        return _Part(block, values, views, tuple(covered))

    def _declare(self, parts: Sequence[_Part]) -> None:
        """The outer block's views: one box for a buffer that is written, else one for each origin."""
        names = Names()
        for part in parts:
            for view in part.views:
                if view.direction is Direction.NEW:
                    continue
                use = self._plan.uses[view.source]
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
            ref if ref.direction is Direction.NEW else _relative(ref, self.view(box), part.values)
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


def _outer_box(block: Block, ref: Refinement, values: Mapping[str, Affine]) -> Refinement:
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


def _relative(ref: Refinement, outer: Refinement, values: Mapping[str, Affine]) -> Refinement:
    """A view of a part, as a view of the outer block's view."""
    access = []
    for expr, origin in zip(ref.access, outer.access, strict=True):
        inside = Affine(0, tuple(term for term in expr.terms if term[0] not in values))
        moved = (expr - inside).substitute(values) - origin
        access.append(inside + moved.const if moved.is_constant else expr - origin)
    folds = ref.direction is Direction.INOUT and ref.aggregation is not Aggregation.ASSIGN
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
    scalar_names = Names(name for s in outer.statements for name in _defined(s))
    new = [r for r in block.refinements if r.direction is Direction.NEW]
    buffers = {r.name: r.source for r in block.refinements if r.direction is not Direction.NEW}
    buffers |= {r.name: buffer_names.fresh(r.name) for r in new}
    scalars = {name: scalar_names.fresh(name) for s in block.statements for name in _defined(s)}
    shifts = {r.name: r.access for r in block.refinements if r.direction is not Direction.NEW}
    moved = (rename_operands(_shifted(s, shifts), buffers, scalars) for s in block.statements)
    return replace(
        outer,
        refinements=(*outer.refinements, *(replace(r, name=buffers[r.name]) for r in new)),
        statements=(*outer.statements, *moved),
    )


def _defined(statement: Statement) -> Iterator[str]:
    if isinstance(statement, Load | Constant | IndexValue | Intrinsic | Cast):
        yield statement.result


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
