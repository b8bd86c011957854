"""What each statement of a block touches, and which statements depend on which.

    accesses          every element that a statement may read or write, composed through its nest
    relation          the pairs of executions of two accesses that meet in one element
    statement_graph   which statements of a block have to run behind which

Everything is said about *one point* of the block that holds the statements: its own indexes
are dimensions that both sides of a relation share. Dependences are based on memory: a write
that a later one covers still counts (a safe excess).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stripe.affine import Affine
from stripe.alike import kind
from stripe.ir import (
    Aggregation,
    Block,
    Direction,
    Load,
    Operand,
    Refinement,
    Special,
    Statement,
    Store,
    combining,
    named,
)
from stripe.poly import Domain, PolyhedralLimit, box_limits
from stripe.remembered import Remembered
from stripe.visit import buffers_used, scalars_read

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True)
class Access:
    """One load, store or special operand below a statement, seen from the enclosing block.

    `buffer` is the name of the buffer in the enclosing block and `element` the element of it.
    Two accesses can meet only if their `storage` is the same: the source of the buffer, since
    two views may have one source; `base` is where the view starts there. All are affine over
    `names`: first the indexes of the enclosing block as they are, then those of the nest below
    the statement, with a prefix (indexes of range 1 are left out: they are 0).
    `conditions` (each >= 0) hold where the access is executed. `conditional` is true where an
    operand of a special writes only some of its elements.
    """

    buffer: str
    element: tuple[Affine, ...]
    storage: str
    base: tuple[Affine, ...]
    reads: bool
    writes: bool
    aggregation: Aggregation | None
    names: tuple[str, ...]
    conditions: tuple[Affine, ...]
    conditional: bool = False

    @property
    def address(self) -> tuple[Affine, ...]:
        """The element of the storage."""
        return tuple(start + expr for start, expr in zip(self.base, self.element, strict=True))

    @property
    def combines(self) -> bool:
        """Whether writes to one element are combined, and do not replace each other."""
        return combining(self.aggregation)

    def domain(self) -> Domain:
        """The executions of the access."""
        return Domain.of(self.names, self.conditions)


@dataclass(frozen=True, slots=True)
class _View:
    """A name in scope: which buffer of the enclosing block it shows, and from where."""

    buffer: str
    origin: tuple[Affine, ...]
    shape: tuple[int, ...]
    storage: str
    base: tuple[Affine, ...]
    aggregation: Aggregation | None = None
    folds: bool = False  # a write folds old contents in, so it reads them


@dataclass(frozen=True, slots=True)
class _Scope:
    """The indexes and views of a block of the nest, in terms of the dimensions so far."""

    values: Mapping[str, Affine]
    views: Mapping[str, _View]
    names: tuple[str, ...]
    conditions: tuple[Affine, ...]


def accesses(block: Block, statement: Statement, prefix: str = ".") -> tuple[Access, ...]:
    """What one execution of `statement` at a point of `block` reads and writes.

    The dimensions of the nest below are `prefix + index` for the statement's own indexes and
    `prefix + depth.index` below these: the prefix keeps them apart from the indexes of `block`.
    Buffers that live inside the statement are left out.
    """
    used = dict.fromkeys(name for name, _ in buffers_used(statement))
    known = named(block.refinements)
    views = [_whole_view(known[name]) for name in used if name in known]
    alone = not block.indexes and not block.constraints and len(views) == len(used)
    if not (alone and isinstance(statement, Block)):
        return _accesses(block, statement, prefix, views)
    # Kernels that are alike touch the same, but for the names of the buffers and where these lie.
    like = kind(statement).block
    key = id(like), prefix, tuple(view.shape for view in views)
    found = _KNOWN.get(key)
    if found is None:
        places = {view.buffer: at for at, view in enumerate(views)}
        own = _accesses(block, statement, prefix, views)
        found = _KNOWN.put(key, (like, tuple((places[access.buffer], access) for access in own)))
    return tuple(
        replace(access, buffer=views[at].buffer, storage=views[at].storage, base=views[at].base)
        for at, access in found[1]
    )


# The places of the buffers of accesses among those that a kernel uses. Each entry holds its kernel, whose
# id is in the key.
_KNOWN = Remembered[Hashable, tuple[Block, tuple[tuple[int, Access], ...]]](4096)


def _accesses(block: Block, statement: Statement, prefix: str, views: Sequence[_View]) -> tuple[Access, ...]:
    scope = _top(block, {view.buffer: view for view in views})
    return tuple(dict.fromkeys(_statement_accesses(scope, statement, prefix, 0)))


def _whole_view(ref: Refinement) -> _View:
    """A view of the enclosing block itself."""
    storage, base = _storage(ref)
    return _View(ref.name, _origin(ref), ref.shape, storage, base)


def _top(block: Block, views: Mapping[str, _View]) -> _Scope:
    """The enclosing block, with the views that a statement uses."""
    values = {index.name: Affine.index(index.name) for index in block.indexes}
    return _Scope(values, views, tuple(values), _conditions(block, values))


def _storage(ref: Refinement) -> tuple[str, tuple[Affine, ...]]:
    """What a view of the enclosing block shows a part of, and where it starts there."""
    if ref.direction is Direction.NEW or not ref.source:
        return ref.name, _origin(ref)
    # A source in the parent may have the name of a buffer of this block: hence the mark.
    return f"^{ref.source}", ref.access


def _origin(ref: Refinement) -> tuple[Affine, ...]:
    return (Affine(),) * len(ref.shape)


def _conditions(block: Block, values: Mapping[str, Affine]) -> tuple[Affine, ...]:
    limits: list[Affine] = []
    for name, size in block.ranges.items():
        if values[name].terms:  # an index of range 1 may stand for 0
            limits += [values[name], -values[name] + (size - 1)]
    return (*limits, *(c.expr.substitute(values) for c in block.constraints))


def _statement_accesses(scope: _Scope, statement: Statement, prefix: str, depth: int) -> Iterator[Access]:
    match statement:
        case Load(buffer=buffer) if buffer in scope.views:
            yield _access(scope, scope.views[buffer], reads=True)
        case Store(buffer=buffer) if buffer in scope.views:
            yield _access(scope, scope.views[buffer], writes=True)
        case Special(operands=operands):
            for at, operand in enumerate(operands):
                if operand.buffer in scope.views:
                    yield _operand_access(scope, operand, f"{prefix}{depth}#{at}.")
        case Block():
            inner = _enter(scope, statement, prefix if depth == 0 else f"{prefix}{depth}.")
            for child in statement.statements:
                yield from _statement_accesses(inner, child, prefix, depth + 1)
        case _:
            pass


def _enter(scope: _Scope, block: Block, prefix: str) -> _Scope:
    values: dict[str, Affine] = {}
    for index in block.indexes:
        if index.passed is not None:
            values[index.name] = index.passed.substitute(scope.values)
        elif index.range == 1:
            values[index.name] = Affine()
        else:
            values[index.name] = Affine.index(prefix + index.name)
    views: dict[str, _View] = {}
    for ref in block.refinements:
        if ref.direction is not Direction.NEW and ref.source in scope.views:
            views[ref.name] = _narrowed(scope.views[ref.source], ref, values)
    names = (*scope.names, *(prefix + name for name, size in block.ranges.items() if size != 1))
    return _Scope(values, views, names, (*scope.conditions, *_conditions(block, values)))


def _narrowed(view: _View, ref: Refinement, values: Mapping[str, Affine]) -> _View:
    origin = tuple(o + a.substitute(values) for o, a in zip(view.origin, ref.access, strict=True))
    folding = ref.direction is Direction.INOUT and ref.aggregation is not Aggregation.ASSIGN
    return replace(
        view, origin=origin, shape=ref.shape, aggregation=ref.aggregation, folds=view.folds or folding
    )


def _access(scope: _Scope, view: _View, *, reads: bool = False, writes: bool = False) -> Access:
    return Access(
        view.buffer,
        view.origin,
        view.storage,
        view.base,
        reads or (writes and view.folds),
        writes,
        view.aggregation if writes else None,
        scope.names,
        scope.conditions,
    )


def _operand_access(scope: _Scope, operand: Operand, prefix: str) -> Access:
    """A special touches a box: one more dimension for each of the view's."""
    view = scope.views[operand.buffer]
    start = operand.access or tuple(Affine() for _ in view.origin)
    shape = operand.shape or view.shape
    steps = [f"{prefix}{dim}" for dim in range(len(shape))]
    limits = box_limits(dict(zip(steps, shape, strict=True)))
    element = tuple(
        origin + first.substitute(scope.values) + Affine.index(step)
        for origin, first, step in zip(view.origin, start, steps, strict=True)
    )
    reads = operand.direction.reads or (operand.direction.writes and view.folds)
    return Access(
        view.buffer,
        element,
        view.storage,
        view.base,
        reads,
        operand.direction.writes,
        operand.aggregation,
        (*scope.names, *steps),
        (*scope.conditions, *limits),
        conditional=operand.direction is Direction.INOUT,
    )


def relation(first: Access, second: Access) -> Domain:
    """The pairs of executions that touch the same element; empty for different storage.

    The dimensions of both, those of the enclosing block shared. Accesses of one statement, or
    of two with equal index names, must have been made with different prefixes.
    """
    names = tuple(dict.fromkeys((*first.names, *second.names)))
    if first.storage != second.storage:
        return Domain.empty(names)
    same = [one - other for one, other in zip(first.address, second.address, strict=True)]
    return Domain.of(names, (*first.conditions, *second.conditions), same)


def conflicts(first: Sequence[Access], second: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Pairs of accesses to one storage of which at least one writes."""
    for one in first:
        for other in second:
            if one.storage == other.storage and (one.writes or other.writes):
                yield one, other


def _touches(statement: Statement) -> bool:
    return isinstance(statement, Block | Special | Load | Store)


class Order:
    """Which statements of a block must stay behind which. Answers are kept by statement, so that
    a pass can ask about the same two again."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._known: dict[tuple[int, int], bool] = {}
        self._accesses: dict[tuple[int, str], tuple[Access, ...]] = {}
        self._alive: list[Statement] = []  # so that no id is used twice

    def depends(self, earlier: Statement, later: Statement) -> bool:
        """Whether `later`, behind `earlier` in the block, depends on it directly: through an
        element of a buffer, or a scalar."""
        key = id(earlier), id(later)
        if key not in self._known:
            self._alive += [earlier, later]
            self._known[key] = self._decide(earlier, later)
        return self._known[key]

    def _decide(self, earlier: Statement, later: Statement) -> bool:
        if getattr(earlier, "result", None) in scalars_read(later):
            return True
        if not (_touches(earlier) and _touches(later)):
            return False
        one, other = self._accessed(earlier, "a."), self._accessed(later, "b.")
        try:
            return any(not relation(*pair).is_empty() for pair in conflicts(one, other))
        except PolyhedralLimit:
            return True  # too hard to tell: keep the order

    def _accessed(self, statement: Statement, prefix: str) -> tuple[Access, ...]:
        key = id(statement), prefix
        if key not in self._accesses:
            self._accesses[key] = accesses(self._block, statement, prefix)
        return self._accesses[key]


def successors(block: Block) -> tuple[frozenset[int], ...]:
    """For each statement of a block, the positions of those that depend on it directly.

    Only statements that use one storage, or one scalar, are compared.
    """
    storage = {ref.name: _storage(ref)[0] for ref in block.refinements}
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    found: list[set[int]] = [set() for _ in block.statements]
    order = Order(block)
    for at, statement in enumerate(block.statements):
        uses = [(storage[name], direction.writes) for name, direction in buffers_used(statement)]
        uses += [(f"${name}", False) for name in scalars_read(statement)]
        before = {at for name, _ in uses for at in writers.get(name, ())}
        before |= {at for name, writes in uses if writes for at in readers.get(name, ())}
        for earlier in before:
            if order.depends(block.statements[earlier], statement):
                found[earlier].add(at)
        for name, writes in uses:
            (writers if writes else readers).setdefault(name, []).append(at)
        if result := getattr(statement, "result", ""):
            writers[f"${result}"] = [at]
    return tuple(map(frozenset, found))


def statement_graph(block: Block) -> networkx.DiGraph[int]:
    """The DAG of the block's statements by position; an edge leads to what depends on it."""
    import networkx  # takes longer to load than a small program to compile

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(block.statements)))
    graph.add_edges_from((at, later) for at, found in enumerate(successors(block)) for later in found)
    return graph
