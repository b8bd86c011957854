"""localize: accumulators of reductions in a register file or in a memory that programs manage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import Memory
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, box_elements, leaves
from stripe.analysis.deps import accesses
from stripe.analysis.footprint import Box, live_box, reduces, written_cells
from stripe.analysis.lanes import lane_candidates
from stripe.analysis.stencils_groups import rows_across
from stripe.analysis.units import executes, unreached
from stripe.diag import did_you_mean
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    Load,
    Location,
    Refinement,
    Store,
    contiguous,
)
from stripe.locks import cached_property
from stripe.names import Names
from stripe.passes.base import PassContext
from stripe.passes.localize_chosen import Kept, adding, chose, said
from stripe.passes.localize_parts import held_bytes, in_steps, peak_bytes, rebased
from stripe.poly import Piece, PolyhedralLimit, as_inequalities
from stripe.rewrite import drop_unused_passed
from stripe.visit import View, buffers_used, map_children, names_of, views_of, walk

ROWS_BESIDE = 12  # that share no data, summed up side by side


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A child that reduces into a buffer of the block, and the box that it writes at one point.

    `own`: the buffer is the block's own, and only needs the location. `cells` are those of the
    box that the child writes. `rows`: the registers that hold rows (`rows_across`) where an instruction
    adds up what lies across its lanes in the buffer, so that it has to lie otherwise in between."""

    child: Block
    view: Refinement
    box: Box
    bytes: int
    own: bool
    cells: Piece
    rows: Memory | None = None


@dataclass(frozen=True)
class _Level:
    """A block, and what is known of it on the way down to it.

    `outer`: the views of its parent; `near`: its views of buffers in the memory; `taken`: the bytes of the
    memory that are in use around it; `tiled`: it is in a tile, or needs none to hold an accumulator;
    `unit_around`: the unit that is named around it; `fits`: buffers below it will lie in the memory, for a
    tile was made for it, or there is no other.
    """

    block: Block
    outer: Mapping[str, View]
    path: str
    near: frozenset[str]
    taken: int
    tiled: bool
    unit_around: str
    fits: bool

    @cached_property
    def views(self) -> Mapping[str, View]:
        return views_of(self.block, self.outer)

    @property
    def is_root(self) -> bool:
        return "/" not in self.path

    @property
    def may_hold(self) -> bool:
        """Whether an accumulator may live in it."""
        return self.tiled or self.block.has_tag("tiled")

    @property
    def unit(self) -> str:
        """The unit that it names, or a block around it."""
        return self.block.location.unit if self.block.location is not None else self.unit_around

    def of(self, child: Block) -> _Level:
        """The same of a child."""
        return replace(
            self, block=child, outer=self.views, path=f"{self.path}/{child.name}",
            near=names_of(child, self.near), tiled=self.may_hold, unit_around=self.unit,
        )  # fmt: skip


class Accumulators:
    """Puts the accumulators of reductions into a register file or an explicit memory, outermost block
    first. In an explicit memory only inside tiles: there is where copies between memories go. A result
    that comes to lie in the memory anyway is added up in its place."""

    def __init__(self, memory: Memory, context: PassContext) -> None:
        self._memory = memory
        self._context = context
        self._managed = context.hw.has_addresses(memory)  # the program, not LLVM, says what lies where
        self._near = {
            memory.name,
            *(m.name for m in context.hw.memories if m.kind == memory.kind == "registers"),
        }
        self._settled: dict[int, Block] = {}  # children that nothing more is done about, by id

    def place(self, root: Block) -> Block:
        hw, near = self._context.hw, frozenset[str]()
        if self._memory is hw.home:  # all that the root holds and nobody moved
            near = frozenset(r.name for r in root.refinements if r.location is None)
        register_file, alone = self._memory.kind == "registers", [*hw.near_memories] == [self._memory]
        return self._below(_Level(root, {}, root.name, near, 0, register_file, "", alone))

    def _below(self, level: _Level) -> Block:
        """Act on a block and what is below it."""
        key = self._context.key(level.path, "sums")
        given = self._context.explicit(key, Kept) if level.may_hold else None
        left = None if self._context.searches and given is None else list(given.sums if given else ())
        lacking = level.may_hold and given is None and left is not None
        undecided = lacking and self._could(level)
        while level.may_hold and left != []:
            found = self._next(level) if left is None else self._given(level, key, left.pop(0))
            if found is None:
                break
            chose(self._context, key, sums=(said(level.block, found.child, found.view.source),))
            level = replace(level, block=self._with_sums(level, found))
        block, inside = level.block, self._inside(level)

        def placed(child: Block) -> Block:
            return self._below(inside.of(child))

        if undecided:
            return self._context.undecided_nest(level.path, lambda: map_children(block, placed))
        return map_children(block, placed)

    def _with_sums(self, level: _Level, found: _Candidate) -> Block:
        """The block with what was found in the memory."""
        memory, strides = found.rows or self._memory, contiguous(found.box.shape)
        if not self._managed:
            strides = _as_added(found, level.views)
        if found.own:
            return _relocated(level.block, found.view.source, memory, strides if found.rows else None)
        return _with_accumulator(level.block, found, memory, strides, self._managed)

    def _inside(self, level: _Level) -> _Level:
        """A block of which all is done, as those below it see it."""
        block = level.block
        near, fits = self._near_in(level), level.fits or self._memory.name in block.tag_values("fits")
        if fits and not level.is_root:
            new = (r for r in block.refinements if r.direction is Direction.NEW and r.location is None)
            near |= {r.name for r in new}
        return replace(level, near=near, taken=level.taken + held_bytes(block, self._memory.name), fits=fits)

    def _near_in(self, level: _Level) -> frozenset[str]:
        """The buffers of a block that lie in the memory."""
        located = {r.name for r in level.block.refinements if r.location and r.location.unit in self._near}
        return level.near | located

    def _could(self, level: _Level) -> bool:
        """Whether there is a reduction to decide about: one that a search would put into the memory."""
        return Accumulators(self._memory, self._context.anew(None))._next(level) is not None

    def _next(self, level: _Level) -> _Candidate | None:
        """The first reduction among the children of the block that is not near and fits."""
        near = self._near_in(level)
        for child in level.block.children:
            if id(child) in self._settled:
                continue
            for view in child.refinements:
                if view.source in near or not (self._is_whole(level, child, view) or view.combines):
                    continue
                if self._managed and child.has_tag("tiled") and _writes_apart(child, view):
                    continue  # in each of its tiles there is room for less
                if peak_bytes(child, self._memory.name):
                    continue  # the registers are given away below it, by a run before this one
                found = self._judged(level, child, view)
                if isinstance(found, _Candidate):
                    self._kept(level.path, found)
                    return found
                if found and not any(r.source == view.name for c in child.children for r in c.refinements):
                    self._left(level.path, child, found)
            self._settled[id(child)] = child
        return None

    def _given(self, level: _Level, key: str, entry: str) -> _Candidate:
        """The reduction that a choice names. Raises CompileError P009 if its sums can't gather there."""
        statement, _, buffer = entry.rpartition(".")
        reason = f"no statement of it adds up in '{entry}'"
        for child, view in adding(level.block, buffer):
            if statement not in ("", child.name):
                continue
            if buffer in self._near_in(level):
                reason = f"'{buffer}' lies in {self._memory.name} already"
                continue
            if not (self._is_whole(level, child, view) or view.combines):
                continue
            found = self._judged(level, child, view)
            if isinstance(found, _Candidate):
                self._kept(level.path, found)
                return found
            reason = found or f"'{child.name}' writes each element of '{buffer}' once"
        known = [ref.name for ref in level.block.refinements]
        notes = () if buffer in known else did_you_mean(buffer, known)
        raise self._context.refused(key, reason, "sums", *notes)

    def _is_whole(self, level: _Level, child: Block, view: Refinement) -> bool:
        """Whether a buffer of the block's own may stay in the memory as a whole."""
        return self._managed and not level.is_root and _sums_inside(level.block, child, view)

    def _judged(self, level: _Level, child: Block, view: Refinement) -> _Candidate | str | None:
        """What to do about a view that a child aggregates into; or why nothing, as a clause."""
        block, views = level.block, level.views
        found: _Candidate | str | None
        try:
            if self._is_whole(level, child, view):
                found = _whole(block, child, view)
            else:
                found = _candidate(block, child, view, not level.is_root, self._managed)
        except PolyhedralLimit:
            found = f"what it writes to '{view.source}' is too complicated to describe: not kept"
        if isinstance(found, _Candidate) and self._managed:
            found = self._out_of_reach(level, found) or found
        elif isinstance(found, _Candidate):
            found = self._in_whole_registers(found, views)
        if isinstance(found, _Candidate):
            excess = self._excess(level, found)
            rows = self._rows_across(found, views) if excess and not self._managed else None
            if rows is not None and rows.bytes is not None:
                held = held_bytes(block, rows.name) + peak_bytes(found.child, rows.name)
                if found.bytes <= rows.bytes - held:
                    return replace(found, rows=rows)
            found = excess or self._in_turn(found, views) or found
        return found

    def _rows_across(self, found: _Candidate, views: Mapping[str, View]) -> Memory | None:
        """The registers that hold rows in which an instruction adds up, if its results lie across its lanes
        in the buffer: it could not write them there."""
        for leaf in leaves(found.child, views):
            use = rows_across(leaf, self._context.hw)
            if use is None:
                continue
            made, fit = use
            lane = fit.indexes[made.lane]
            results = (o for o in leaf.operands if o.direction.writes and o.name == found.view.name)
            if any(result.stride(lane) != 1 for result in results):
                return self._context.hw.memory(made.stencil.memory[made.target])
        return None

    def _out_of_reach(self, level: _Level, found: _Candidate) -> str:
        """Why no unit can add up in the memory, if so: none that executes the reduction reaches it, or one
        that is named for what touches the buffer does not."""
        hw, memory = self._context.hw, self._memory.name
        users = level.block.statements if found.own else (found.child,)
        if reason := unreached(users, found.view.source, memory, hw, level.unit):
            return f"{reason}: '{found.view.source}' is not kept"
        able = {u.name for u in hw.compute_units if memory in u.reaches}
        for leaf, outer in _writers(found.child, found.view.name, level.views):
            if hw.units and not any(not executes(u, leaf, hw, outer) for u in hw.units if u.name in able):
                return (
                    f"no unit that executes '{leaf.name}' reaches {memory}: '{found.view.source}' is not kept"
                )
        return ""

    def _in_whole_registers(self, found: _Candidate, views: Mapping[str, View]) -> _Candidate:
        """Count a register for each element where the lanes run along an index that is summed away:
        until the lanes are summed at the end, every element is a vector."""
        if self._summed_across(found, views) is None:
            return found
        return replace(found, bytes=found.bytes // found.view.dtype.bytes * self._memory.line_bytes)

    def _summed_across(self, found: _Candidate, views: Mapping[str, View]) -> Leaf | None:
        """The leaf whose lanes run along an index that is summed away, if one does."""
        for leaf in leaves(found.child, views):
            own = tuple(leaf.ranges)[len(leaf.ranges) - len(leaf.block.ranges) :]
            lanes = lane_candidates(leaf, self._memory.line_bytes, among=own)
            kept = [o for o in leaf.operands if o.direction.writes and o.name == found.view.name]
            if lanes and any(lanes[0].index not in operand.indexes for operand in kept):
                return leaf
        return None

    def _in_turn(self, found: _Candidate, views: Mapping[str, View]) -> str:
        """Why rows that are summed up across the lanes had better come one after the other, if so: many that
        share no data, and that the nearest cache does not hold, would come from as many places at once."""
        leaf = None if self._managed else self._summed_across(found, views)
        near = self._context.hw.nearest_cache
        if leaf is None or near is None or near.bytes is None:
            return ""
        kept = (o for o in leaf.operands if o.direction.writes and o.name == found.view.name)
        sums = frozenset[str]().union(*(o.indexes for o in kept))
        rows = {name: size for name, size in leaf.ranges.items() if name in sums and size > 1}
        inputs = [o for o in leaf.operands if o.direction is Direction.IN]
        size = sum(int(box_elements(o, leaf.ranges)) * o.dtype.bytes for o in inputs)
        share = not all(rows.keys() <= o.indexes for o in inputs)
        if share or size <= near.bytes or prod(rows.values()) <= ROWS_BESIDE:
            return ""
        why = f"{prod(rows.values())} rows share no data, and are summed up one after the other"
        return f"{why}: '{found.view.source}' is not kept"

    def _excess(self, level: _Level, found: _Candidate) -> str:
        """Why the accumulators don't fit beside what is alive with them, if so."""
        block, name, size = level.block, self._memory.name, self._memory.bytes
        if size is None:
            return ""
        below = (
            max(peak_bytes(c, name) for c in block.children) if found.own else peak_bytes(found.child, name)
        )
        free = size - level.taken - held_bytes(block, name) - block.inflight * below
        if found.bytes <= free:
            return ""
        return f"{found.bytes} bytes of accumulators of '{found.view.source}' exceed the {free} left"

    def _kept(self, path: str, found: _Candidate) -> None:
        memory, where = found.rows or self._memory, f"{path}/{found.child.name}"
        message = f"accumulates '{found.view.source}' in {memory.name}"
        self._context.remark(where, True, message, bytes=found.bytes)

    def _left(self, path: str, child: Block, reason: str) -> None:
        self._context.remark(f"{path}/{child.name}", False, f"{reason} in {self._memory.name}")


def _writes_apart(tiles: Block, view: Refinement) -> bool:
    """Whether each point of a block writes elements of its own: along each of its indexes the boxes lie
    behind one another, in a dimension that no other index moves."""
    moved = [{n: abs(expr.coefficient(n)) for n in expr.names if n in tiles.ranges} for expr in view.access]
    apart = {
        n for moves, size in zip(moved, view.shape, strict=True) for n, by in moves.items()
        if len(moves) == 1 and by >= size
    }  # fmt: skip
    return all(n in apart for n, size in tiles.ranges.items() if size > 1)


def _writers(
    block: Block, buffer: str, outer: Mapping[str, View]
) -> Iterator[tuple[Block, Mapping[str, View]]]:
    """The blocks whose own statements write a view of a block, each with the views around it."""
    if any(isinstance(s, Store) and s.buffer == buffer for s in block.statements):
        yield block, outer
    views = views_of(block, outer)
    for child in block.children:
        for ref in child.refinements:
            if ref.source == buffer and ref.direction.writes:
                yield from _writers(child, ref.name, views)


def _candidate(
    block: Block, child: Block, view: Refinement, may_own: bool, managed: bool
) -> _Candidate | str | None:
    """What to do about a view that a child aggregates into, or a clause that says why nothing;
    None if the child writes each element once.

    A buffer of the block's own is accumulated in its place, but not where constraints cut it aslant: beside
    it, no sum needs a test (`boundary`), only the copy out does.
    """
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
        beside = _beside(block, child, view, box) if not managed and _may_be_cut(child) else ""
        if isinstance(beside, _Candidate) and any(_is_slanted(expr) for expr in beside.cells[0]):
            return beside
        return _Candidate(child, view, box, block.inflight * outer.bytes, True, ([], []))
    return _beside(block, child, view, box)


def _may_be_cut(child: Block) -> bool:
    """Whether a constraint could cut aslant what a child writes."""
    return any(len(c.expr.names) > 1 for _, block in walk(child) for c in block.constraints)


def _is_slanted(expr: Affine) -> bool:
    """Whether it is on several coordinates in a box."""
    return sum(name.startswith("@") for name in expr.names) > 1


def _beside(block: Block, child: Block, view: Refinement, box: Box) -> _Candidate | str:
    """An accumulator beside the buffer that it is for; or why there is none, as a clause."""
    if [r.source for r in child.refinements].count(view.source) > 1:
        return f"its several views of '{view.source}' are not replaced by one"
    box = in_steps(child, view, box)
    cells = written_cells(block, child, view.source, box)
    if cells is None:
        return f"the cells of '{view.source}' that it writes are no conjunction of constraints: not kept"
    size = block.inflight * box.elements * view.dtype.bytes
    return _Candidate(child, view, box, size, False, cells)


def _sums_inside(block: Block, child: Block, view: Refinement) -> bool:
    """Whether a child gives each point a part of a buffer of the block's own, and sums are made there: then
    all of it may stay where they are."""
    if view.aggregation is not Aggregation.ASSIGN:
        return False
    own = block.refinement(view.source)
    if own.direction is not Direction.NEW or own.location is not None:
        return False
    return _reduces_below(child, view.name)


def _reduces_below(block: Block, buffer: str) -> bool:
    for child in block.children:
        for view in child.refinements:
            if view.source != buffer or not view.direction.writes:
                continue
            if reduces(block, child, buffer) if view.combines else _reduces_below(child, view.name):
                return True
    return False


def _whole(block: Block, child: Block, view: Refinement) -> _Candidate:
    ref = block.refinement(view.source)
    box = Box(tuple(Affine() for _ in ref.shape), ref.shape)
    return _Candidate(child, view, box, block.inflight * ref.bytes, True, ([], []))


def _relocated(block: Block, buffer: str, memory: Memory, strides: tuple[int, ...] | None) -> Block:
    moved = replace(block.refinement(buffer), location=Location(memory.name))
    moved = moved if strides is None else replace(moved, strides=strides)
    return replace(block, refinements=tuple(moved if r.name == buffer else r for r in block.refinements))


def _as_added(found: _Candidate, views: Mapping[str, View]) -> tuple[int, ...]:
    """Dense strides of an accumulator in the order of the loops that add to it: along the innermost one,
    which may become the lanes of vectors, elements lie side by side."""
    shape = found.box.shape
    last = [0] * len(shape)
    for leaf in leaves(found.child, views):
        place = {name: at for at, name in enumerate(leaf.ranges)}
        for operand in leaf.operands:
            if operand.name == found.view.name and operand.direction.writes:
                last = [max((place[n] for n in e.names if n in place), default=-1) for e in operand.access]
    strides, step = [1] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (last[dim], dim), reverse=True):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _with_accumulator(
    block: Block, found: _Candidate, memory: Memory, strides: tuple[int, ...], managed: bool
) -> Block:
    """The block with an accumulator that the child uses, and a copy out behind it.

    In registers that LLVM gives out, these get a block of their own around them if they stand beside other
    statements, so that the registers are free again after it; an address is after the last use (`managed`).
    """
    buffer = found.view.source
    name = Names(r.name for r in block.refinements).fresh(f"{buffer}_acc")
    accumulator = Refinement(
        Direction.NEW,
        name,
        found.box.shape,
        found.view.dtype,
        strides=strides,
        location=Location(memory.name),
    )
    child = rebased(found.child, buffer, name, found.box)
    assert isinstance(child, Block)
    refinements = tuple(
        replace(r, direction=Direction.OUT) if r.source == name else r for r in child.refinements
    )
    pair = replace(child, refinements=refinements), _copy_out(block, name, found, managed)
    if len(block.statements) == 1 or managed:
        statements = tuple(part for s in block.statements for part in (pair if s is found.child else (s,)))
        return replace(block, refinements=(*block.refinements, accumulator), statements=statements)
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
        aggregation = outer.aggregation if outer.combines else Aggregation.ASSIGN
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


def _copy_out(block: Block, accumulator: str, found: _Candidate, managed: bool) -> Block:
    """The block that writes each cell that was accumulated to the buffer, once.

    Below an aggregating level that takes in no old contents it may say `assign`: it is one write of its
    point; then it only copies, which any unit can.
    """
    sizes, view = found.box.shape, found.view
    names = Names(i.name for i in block.indexes)
    cells = [names.fresh(_walks_along(found.view.access[dim], dim)) for dim in range(len(sizes))]
    place = {
        f"@{dim}": Affine.index(cell) if size > 1 else Affine()
        for dim, (cell, size) in enumerate(zip(cells, sizes, strict=True))
    }
    target = block.refinement(view.source)
    reads = view.direction is Direction.INOUT or target.direction is Direction.INOUT
    folds = reads or (target.combines and not managed)
    access = tuple(place.values())
    element = Refinement(Direction.IN, accumulator, tuple(1 for _ in sizes), view.dtype, accumulator, access)
    result = replace(
        element,
        direction=view.direction,
        name=target.name,
        source=target.name,
        access=tuple(o + c * by for o, c, by in zip(found.box.origin, access, found.box.apart, strict=True)),
        aggregation=view.aggregation if folds else Aggregation.ASSIGN,
    )
    copy = Block(
        f"{target.name}_copy",
        indexes=(
            *(Index(cell, size) for cell, size in zip(cells, sizes, strict=True) if size > 1),
            *(Index(i.name, passed=Affine.index(i.name)) for i in block.indexes),
        ),
        constraints=tuple(Constraint(e.substitute(place)) for e in as_inequalities(found.cells)),
        refinements=(element, result),
        statements=(Load("v", accumulator, view.dtype), Store(target.name, "v")),
        span=found.child.span,
    )
    return drop_unused_passed(copy)


def _walks_along(expr: Affine, dim: int) -> str:
    """The name of the child's index that moves along a dimension, if there is one."""
    return expr.names[-1] if expr.names else f"d{dim}"
