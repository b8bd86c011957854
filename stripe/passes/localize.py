"""localize: move buffers to the innermost block that needs them, shrunk and near."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.bounds import leaves
from stripe.analysis.deps import accesses
from stripe.analysis.footprint import Box, live_box, reduces, touched_box, written_cells
from stripe.analysis.lanes import lane_candidates
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    Load,
    Location,
    Program,
    Refinement,
    Statement,
    Store,
    contiguous,
)
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.poly import Piece, PolyhedralLimit
from stripe.rewrite import drop_unused_passed
from stripe.visit import View, buffers_used, map_children, map_roots, views_of


@dataclass(frozen=True)
class Localize(Pass):
    """Give each buffer the innermost scope, the least size and the nearest memory that serve it.

    before:  block main [] (new T (8, 4)) {
               block r [m:8] (out T[m, 0]:assign (1, 4)) { ...writes and reads T[0, n]... } }
    after:   block main [] () {
               block r [m:8] (new T (1, 4)) { ...writes and reads T[0, n]... } }

    A `new` buffer that a single child block uses, and in which each of its points reads only what
    it wrote itself (`out T:assign`), becomes a buffer of that child, again and again; there it
    shrinks to the box that one point touches, and accesses are rebased.

    With `memory`, the buffers of blocks below the root that have no location get that memory,
    innermost first, as long as all that is alive at a time fits. With `accumulators`, a
    reduction aggregates into a buffer in that register file, at the outermost block where the
    box that its points write fits, and a copy block behind it writes each element out once:

    before:  block t [i:4] (out C[8*i]:assign (8)) {
               block c [m:8, k:9] (in A[m, k]  out C[m]:add) {...} }
    after:   block t [i:4] (out C[8*i]:assign (8)  new C_acc (8) @REG) {
               block c [m:8, k:9] (in A[m, k]  out C_acc[m]:add) {...}
               block C_copy [m:8] (in C_acc[m]  out C[m]:assign) { $v = load(C_acc); C = store($v) } }

    The copy has constraints that leave exactly the cells that were written; where these are not
    one conjunction of affine constraints, the reduction stays as it is. A buffer that already is
    `new` at that block, such as one that an epilogue reads, gets the location and no copy.

    Not touched: buffers with a location, the signature, and the order of statements.
    Stripe paper, section 2.3, "Scalarization and Memory Localization".
    """

    name = "localize"

    memory: str = option("", "memory for the buffers of inner blocks; empty: none is given a location")
    accumulators: str = option(
        "", "memory of kind `registers` that reductions accumulate in; empty: they stay where they are"
    )

    def check(self, hw: HwConfig) -> None:
        self._memory(hw, self.memory, registers=False)
        self._memory(hw, self.accumulators, registers=True)

    def run(self, program: Program, context: PassContext) -> Program:
        near = self._memory(context.hw, self.memory, registers=False)
        registers = self._memory(context.hw, self.accumulators, registers=True)

        def localized(block: Block) -> Block:
            block = _sink(block, block.name, context)
            if registers is not None:
                block = _Accumulators(registers, context).place(block)
            return block if near is None else _locate(block, block.name, near, 0, context)

        return map_roots(program, localized)

    def _memory(self, hw: HwConfig, name: str, *, registers: bool) -> Memory | None:
        if not name:
            return None
        memory = hw.memory(name)
        fitting = [m.name for m in hw.memories if not registers or m.kind == "registers"]
        if memory is None or name not in fitting:
            kind = "memory of kind 'registers'" if registers else "memory"
            message = f"localize: target '{hw.name}' has no {kind} named '{name}'"
            raise CompileError(Diagnostic("P005", message, notes=did_you_mean(name, fitting)))
        return memory


# -- innermost scope, least size ----------------------------------------------------------------


def _sink(block: Block, path: str, context: PassContext) -> Block:
    """Move the block's buffers into children, and on from there."""
    users: dict[str, set[int]] = {}  # the positions of the statements that use a buffer
    for position, statement in enumerate(block.statements):
        for name, _ in buffers_used(statement):
            users.setdefault(name, set()).add(position)
    for ref in block.refinements:
        if ref.direction is Direction.NEW and len(users.get(ref.name, ())) == 1:
            (position,) = users[ref.name]
            block = _sunk(block, ref, position, path, context)
    return map_children(block, lambda child: _sink(child, f"{path}/{child.name}", context))


def _sunk(block: Block, ref: Refinement, position: int, path: str, context: PassContext) -> Block:
    """The block with one buffer moved into the statement that alone uses it, if that is a child."""
    child = block.statements[position]
    if not isinstance(child, Block):
        return block
    views = [r for r in child.refinements if r.direction is not Direction.NEW and r.source == ref.name]
    where = f"{path}/{child.name}"
    if len(views) != 1:
        context.remark("localize", where, False, f"it has several views of '{ref.name}', which stays outside")
        return block
    view = views[0]
    if (view.direction, view.aggregation) != (Direction.OUT, Aggregation.ASSIGN):
        used = f"{view.direction}" + (f":{view.aggregation}" if view.aggregation else "")
        context.remark(
            "localize", where, False, f"'{ref.name}' outlives a point of it ({used}) and stays outside"
        )
        return block
    if ref.location is not None and (ref.location.bank or ref.location.address):
        context.remark("localize", where, False, f"'{ref.name}' has an address already and stays outside")
        return block
    inner = replace(
        view,
        direction=Direction.NEW,
        dtype=ref.dtype,
        source="",
        access=(),
        aggregation=None,
        strides=contiguous(view.shape),
        location=ref.location,
        tags=ref.tags,
    )
    refinements = (*(r for r in child.refinements if r is not view), inner)
    moved = _shrunk(replace(child, refinements=refinements), inner)
    shape = moved.refinement(inner.name).shape
    context.remark(
        "localize",
        where,
        True,
        f"'{ref.name}' moved in",
        bytes_before=prod(ref.shape) * ref.dtype.bytes,
        bytes_after=prod(shape) * ref.dtype.bytes,
    )
    return replace(
        block,
        refinements=tuple(r for r in block.refinements if r is not ref),
        statements=tuple(moved if s is child else s for s in block.statements),
    )


def _shrunk(block: Block, ref: Refinement) -> Block:
    """The block with a `new` buffer cut to what one point touches."""
    if prod(ref.shape) <= 1:
        return block
    try:
        box = touched_box(block, ref.name)
    except PolyhedralLimit:
        return block  # too hard to tell: it keeps its size
    if box is None or (box.shape == ref.shape and not any(e.terms or e.const for e in box.origin)):
        return block
    smaller = replace(ref, shape=box.shape, strides=contiguous(box.shape))
    return replace(
        block,
        refinements=tuple(smaller if r is ref else r for r in block.refinements),
        statements=tuple(_rebased(s, ref.name, ref.name, box) for s in block.statements),
    )


def _rebased(statement: Statement, buffer: str, new_name: str, box: Box) -> Statement:
    """A child block whose views of `buffer` become views of the box, which is named `new_name`."""
    if not isinstance(statement, Block):
        return statement
    passed = {i.name: i.passed for i in statement.indexes if i.passed is not None}
    refinements = tuple(
        replace(
            r,
            source=new_name,
            access=tuple(_rebase(e, o, passed) for e, o in zip(r.access, box.origin, strict=True)),
        )
        if r.direction is not Direction.NEW and r.source == buffer
        else r
        for r in statement.refinements
    )
    return drop_unused_passed(replace(statement, refinements=refinements))


def _rebase(expr: Affine, origin: Affine, passed: Mapping[str, Affine]) -> Affine:
    """`expr`, over a child's indexes, less `origin`, over its parent's."""
    inside = Affine(0, tuple(term for term in expr.terms if term[0] not in passed))
    moved = (expr - inside).substitute(passed) - origin
    return inside + moved.const if moved.is_constant else expr - origin


# -- near memory --------------------------------------------------------------------------------


def _bytes(ref: Refinement) -> int:
    return prod(ref.shape) * ref.dtype.bytes


def _held(block: Block, memory: str) -> int:
    """Bytes of the memory that the block's own buffers take, at all its points in flight."""
    own = [r for r in block.refinements if r.direction is Direction.NEW and r.location is not None]
    return block.inflight * sum(_bytes(r) for r in own if r.location and r.location.unit == memory)


def _peak(block: Block, memory: str) -> int:
    """Bytes of the memory that the block and what is below it take at a time."""
    return _held(block, memory) + block.inflight * max((_peak(c, memory) for c in block.children), default=0)


def _locate(block: Block, path: str, memory: Memory, taken: int, context: PassContext) -> Block:
    """Give buffers of the blocks below this one the memory; `taken` bytes of it are in use around."""
    used = taken + _held(block, memory.name)

    def placed(child: Block) -> Block:
        where = f"{path}/{child.name}"
        return _located(_locate(child, where, memory, used, context), where, memory, used, context)

    return map_children(block, placed)


def _located(block: Block, path: str, memory: Memory, taken: int, context: PassContext) -> Block:
    for ref in block.refinements:
        if ref.direction is not Direction.NEW or ref.location is not None:
            continue
        free = None if memory.bytes is None else memory.bytes - taken - _peak(block, memory.name)
        if free is not None and block.inflight * _bytes(ref) > free:
            context.remark(
                "localize", path, False, f"'{ref.name}' ({_bytes(ref)} bytes) does not fit in {memory.name}"
            )
            continue
        placed = replace(ref, location=Location(memory.name))
        block = replace(block, refinements=tuple(placed if r is ref else r for r in block.refinements))
        context.remark("localize", path, True, f"'{ref.name}' placed in {memory.name}", bytes=_bytes(ref))
    return block


# -- accumulators -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A child that reduces into a buffer of the block, and the box that it writes at one point.

    `own`: the buffer is the block's own, and only needs the location. `cells` are those of the
    box that the child writes."""

    child: Block
    view: Refinement
    box: Box
    bytes: int
    own: bool
    cells: Piece


class _Accumulators:
    """Puts the accumulators of reductions into a register file, outermost block first."""

    def __init__(self, memory: Memory, context: PassContext) -> None:
        self._memory = memory
        self._context = context
        self._settled: dict[int, Block] = {}  # children that nothing more is done about, by id

    def place(self, root: Block) -> Block:
        return self._below(root, {}, root.name, frozenset(), 0)

    def _below(
        self, block: Block, outer: Mapping[str, View], path: str, near: frozenset[str], taken: int
    ) -> Block:
        """Act on a block and what is below it. `outer`: the views of its parent; `near`: its views of
        buffers in the memory; `taken`: the bytes of the memory that are in use around it."""
        while found := self._next(block, outer, path, near, taken):
            if found.own:
                block = _relocated(block, found.view.source, self._memory)
            else:
                block = _with_accumulator(block, found, self._memory)
        used = taken + _held(block, self._memory.name)
        here = near | _kept_in(block, self._memory)
        views = views_of(block, outer)

        def placed(child: Block) -> Block:
            kept = frozenset(r.name for r in child.refinements if r.source in here)
            return self._below(child, views, f"{path}/{child.name}", kept, used)

        return map_children(block, placed)

    def _next(
        self, block: Block, outer: Mapping[str, View], path: str, near: frozenset[str], taken: int
    ) -> _Candidate | None:
        """The first reduction among the children of the block that is not near and fits."""
        near |= _kept_in(block, self._memory)
        views = views_of(block, outer)
        for child in block.children:
            if id(child) in self._settled:
                continue
            for view in child.refinements:
                if view.aggregation in (None, Aggregation.ASSIGN) or view.source in near:
                    continue
                if _peak(child, self._memory.name):
                    continue  # the registers are given away below it, by a run before this one
                try:
                    found = _candidate(block, child, view, may_own="/" in path)
                except PolyhedralLimit:
                    found = f"what it writes to '{view.source}' is too complicated to describe: not kept"
                if isinstance(found, _Candidate):
                    found = self._in_whole_registers(found, views)
                    if excess := self._excess(block, found, taken):
                        found = excess
                if isinstance(found, _Candidate):
                    self._remark(path, child, True, f"accumulates '{view.source}'", found.bytes)
                    return found
                if found and not any(r.source == view.name for c in child.children for r in c.refinements):
                    self._remark(path, child, False, found)
            self._settled[id(child)] = child
        return None

    def _in_whole_registers(self, found: _Candidate, views: Mapping[str, View]) -> _Candidate:
        """Count a register for each element where the lanes run along an index that is summed away:
        until the lanes are summed at the end, every element is a vector."""
        for leaf in leaves(found.child, views):
            own = tuple(leaf.ranges)[len(leaf.ranges) - len(leaf.block.ranges) :]
            lanes = lane_candidates(leaf, self._memory.line_bytes, among=own)
            kept = [o for o in leaf.operands if o.direction.writes and o.name == found.view.name]
            if lanes and any(lanes[0].index not in operand.indexes for operand in kept):
                elements = found.bytes // found.view.dtype.bytes
                return replace(found, bytes=elements * self._memory.line_bytes)
        return found

    def _excess(self, block: Block, found: _Candidate, taken: int) -> str:
        """Why the accumulators don't fit beside what is alive with them, if so."""
        name, size = self._memory.name, self._memory.bytes
        if size is None:
            return ""
        below = max(_peak(c, name) for c in block.children) if found.own else _peak(found.child, name)
        free = size - taken - _held(block, name) - block.inflight * below
        if found.bytes <= free:
            return ""
        return f"{found.bytes} bytes of accumulators of '{found.view.source}' exceed the {free} left"

    def _remark(self, path: str, child: Block, acted: bool, message: str, size: int | None = None) -> None:
        data: dict[str, object] = {} if size is None else {"bytes": size}
        where = f"{path}/{child.name}"
        self._context.remark("localize", where, acted, f"{message} in {self._memory.name}", **data)


def _kept_in(block: Block, memory: Memory) -> frozenset[str]:
    return frozenset(r.name for r in block.refinements if r.location and r.location.unit == memory.name)


def _candidate(block: Block, child: Block, view: Refinement, may_own: bool) -> _Candidate | str | None:
    """What to do about a view that a child aggregates into, or a clause that says why nothing;
    None if the child writes each element once."""
    if not reduces(block, child, view.source):
        return None
    box = live_box(block, [a for a in accesses(block, child) if a.buffer == view.source and a.writes])
    if box is None:
        return None
    outer = block.refinement(view.source)
    users = sum(any(name == outer.name for name, _ in buffers_used(s)) for s in block.statements)
    if outer.direction is Direction.NEW and users == 1:
        return None  # nothing reads it
    if outer.location is not None:
        return f"'{view.source}' has the location {outer.location.unit}, so it is not accumulated"
    if may_own and outer.direction is Direction.NEW:
        return _Candidate(child, view, box, block.inflight * _bytes(outer), True, ([], []))
    if [r.source for r in child.refinements].count(view.source) > 1:
        return f"its several views of '{view.source}' are not replaced by one"
    cells = written_cells(block, child, view.source, box)
    if cells is None:
        return f"the cells of '{view.source}' that it writes are no conjunction of constraints: not kept"
    size = block.inflight * box.elements * view.dtype.bytes
    return _Candidate(child, view, box, size, False, cells)


def _relocated(block: Block, buffer: str, memory: Memory) -> Block:
    moved = replace(block.refinement(buffer), location=Location(memory.name))
    return replace(block, refinements=tuple(moved if r.name == buffer else r for r in block.refinements))


def _with_accumulator(block: Block, found: _Candidate, memory: Memory) -> Block:
    """The block with an accumulator that the child uses, and a copy out behind it.

    Beside other statements, these get a block of their own around them, so that the memory is
    free again after it.
    """
    buffer = found.view.source
    name = Names(r.name for r in block.refinements).fresh(f"{buffer}_acc")
    accumulator = Refinement(
        Direction.NEW,
        name,
        found.box.shape,
        found.view.dtype,
        strides=contiguous(found.box.shape),
        location=Location(memory.name),
    )
    child = _rebased(found.child, buffer, name, found.box)
    assert isinstance(child, Block)
    refinements = tuple(
        replace(r, direction=Direction.OUT) if r.source == name else r for r in child.refinements
    )
    pair = replace(child, refinements=refinements), _copy_out(block, name, found)
    if len(block.statements) == 1:
        return replace(block, refinements=(*block.refinements, accumulator), statements=pair)
    frame = _frame(block, found.child)
    frame = replace(frame, refinements=(*frame.refinements, accumulator), statements=pair)
    frame = drop_unused_passed(frame)
    return replace(block, statements=tuple(frame if s is found.child else s for s in block.statements))


def _frame(block: Block, child: Block) -> Block:
    """A block of one point that has the buffers of `block` that `child` uses, whole.

    All that it writes it writes in that one point, so it may say `assign` where it is not below
    an aggregating level."""
    views = [r for r in child.refinements if r.direction is not Direction.NEW]
    refinements: list[Refinement] = []
    for source in dict.fromkeys(r.source for r in views):
        outer = block.refinement(source)
        reads = any(r.direction.reads for r in views if r.source == source)
        writes = any(r.direction.writes for r in views if r.source == source)
        direction = Direction.IN if not writes else Direction.INOUT if reads else Direction.OUT
        aggregation = outer.aggregation if _aggregates(outer) else Aggregation.ASSIGN
        origin = tuple(Affine() for _ in outer.shape)
        refinements.append(
            Refinement(
                direction, source, outer.shape, outer.dtype, source, origin, aggregation if writes else None
            )
        )
    return Block(
        child.name,
        indexes=tuple(Index(i.name, passed=Affine.index(i.name)) for i in block.indexes),
        refinements=tuple(refinements),
        span=child.span,
    )


def _aggregates(ref: Refinement) -> bool:
    return ref.aggregation not in (None, Aggregation.ASSIGN)


def _copy_out(block: Block, accumulator: str, found: _Candidate) -> Block:
    """The block that writes each cell that was accumulated to the buffer, once."""
    sizes, view = found.box.shape, found.view
    names = Names(i.name for i in block.indexes)
    cells = [names.fresh(_walks_along(found.view.access[dim], dim)) for dim in range(len(sizes))]
    place = {
        f"@{dim}": Affine.index(cell) if size > 1 else Affine()
        for dim, (cell, size) in enumerate(zip(cells, sizes, strict=True))
    }
    inequalities, equalities = found.cells
    conditions = (*inequalities, *equalities, *(-e for e in equalities))
    target = block.refinement(view.source)
    folds = view.direction is Direction.INOUT or _aggregates(target)
    access = tuple(place.values())
    element = Refinement(Direction.IN, accumulator, tuple(1 for _ in sizes), view.dtype, accumulator, access)
    result = replace(
        element,
        direction=view.direction,
        name=target.name,
        source=target.name,
        access=tuple(o + c for o, c in zip(found.box.origin, access, strict=True)),
        aggregation=view.aggregation if folds else Aggregation.ASSIGN,
    )
    copy = Block(
        f"{target.name}_copy",
        indexes=(
            *(Index(cell, size) for cell, size in zip(cells, sizes, strict=True) if size > 1),
            *(Index(i.name, passed=Affine.index(i.name)) for i in block.indexes),
        ),
        constraints=tuple(Constraint(e.substitute(place)) for e in conditions),
        refinements=(element, result),
        statements=(Load("v", accumulator, view.dtype), Store(target.name, "v")),
        span=found.child.span,
    )
    return drop_unused_passed(copy)


def _walks_along(expr: Affine, dim: int) -> str:
    """The name of the child's index that moves along a dimension, if there is one."""
    return expr.names[-1] if expr.names else f"d{dim}"
