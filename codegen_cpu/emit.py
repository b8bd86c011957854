"""Stripe to LLVM text: blocks, their views, and their statements.

Each block becomes the loops of its plan (codegen_cpu.points). What aggregates starts at the
neutral value: in accumulators (codegen_cpu.accumulators), or by a block of its own that runs
ahead over the elements that will be written (codegen_cpu.written). Nesting is walked with an
explicit stack of generators, so that depth costs no Python stack.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from codegen_cpu.access import Place
from codegen_cpu.accumulators import Accumulators, plan_writes
from codegen_cpu.ahead import Ahead
from codegen_cpu.ahead_copies import ask, asks, coming
from codegen_cpu.ahead_results import ask_results
from codegen_cpu.columns import columns
from codegen_cpu.heading import heading
from codegen_cpu.intrinsics import lane_numbers
from codegen_cpu.layout import ALIGNMENT, Memory, Placed, View
from codegen_cpu.ll import I64, PTR, VOID, Module, Value
from codegen_cpu.parallel import close_region, copies_used, open_region, writes_apart
from codegen_cpu.plan import Guards, Plan, Sizes, plan_block, vectors_held, worst_case
from codegen_cpu.points import Points
from codegen_cpu.scalars import NARROW_FLOATS, Scalar
from codegen_cpu.scope import Scope, Window, begins_aggregation, viewed
from codegen_cpu.specials import SPECIAL_EMITTERS
from codegen_cpu.squares import Combine
from codegen_cpu.stencils import Step
from codegen_cpu.streams import at_lines, decided, either_way, offered, settle, streamed, undecided
from codegen_cpu.target import Target
from codegen_cpu.tools import Point, Tools
from codegen_cpu.words import as_words
from codegen_cpu.written import copy, fill, hand_on, written_cells
from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Refinement,
    Special,
    Statement,
    Store,
    contiguous,
)
from stripe.rewrite_merged import joins_rows, merged
from stripe.visit import buffers_used

_VERSIONS = 2  # how deep versions with and without constraints nest
_SHORT = 64  # statements of a nest that may stand twice

Task = Generator["Task", None, None]


@dataclass(frozen=True, slots=True)
class Emitted:
    """A function of the module: its name, the bytes of workspace that it needs, and where buffers lie that
    name no memory."""

    name: str
    workspace_bytes: int
    placed: tuple[Placed, ...] = ()


def emit_function(module: Module, target: Target, root: Block, name: str) -> Emitted:
    """Add `void name(tensors..., workspace)` to the module, which runs `root`.

    The tensors are those of the root's refinements that are not NEW, in order.
    """
    tensors = [ref for ref in root.refinements if ref.direction is not Direction.NEW]
    pointers = [Value(PTR, f"%arg{number}") for number in range(len(tensors))]
    parameters = [
        (pointer, "noalias" if ref.direction.writes else "noalias readonly")
        for pointer, ref in zip(pointers, tensors, strict=True)
    ]
    workspace = (Value(PTR, "%workspace"), f"noalias align {ALIGNMENT}")
    f = module.function(name, VOID, [*parameters, workspace], "noinline ")
    memory = Memory(module, f, target)
    # The root's tensors are views of the memory that the caller passed.
    outer = {ref.source: memory.parameter(ref, p) for ref, p in zip(tensors, pointers, strict=True)}
    tools = Tools.of(f, target)
    _exhaust(_Emitter(tools, memory).block(root, Scope(views=outer)))
    tools.tiles.finish()
    f.result()
    memory.finish()
    return Emitted(name, memory.workspace_bytes, tuple(memory.placed))


def _exhaust(task: Task) -> None:
    stack = [task]
    while stack:
        inner = next(stack[-1], None)
        if inner is None:
            stack.pop()
        else:
            stack.append(inner)


class _Emitter:
    """Emits the blocks of one function."""

    def __init__(self, tools: Tools, memory: Memory, in_region: bool = False) -> None:
        self._tools = tools
        self._memory = memory
        self._in_region = in_region
        self._guards = Guards()
        self._sizes = Sizes()
        self._shared: dict[tuple[tuple[int, ...], str], View] = {}

    # -- blocks --------------------------------------------------------------------------

    def block(self, block: Block, outer: Scope) -> Task:
        """One execution of a block, at a point of its parent."""
        if not all(block.ranges.values()):
            return
        copies = 1 if self._in_region else copies_used(block, self._tools.target)
        if copies > 1 and writes_apart(block):
            yield from self._region(block, replace(outer, coming=()), copies)
            return
        scope = outer.enter(block)
        sources = {ref.name: outer.views[ref.source] for ref in block.refinements if ref.source}
        is_leaf = not any(isinstance(s, Block) for s in block.statements)
        owned = self._allocate(block, scope) if is_leaf else {}
        once: set[str] = set()
        run = block
        if is_leaf:
            run, sources = as_words(block, sources)
            run = merged(run, {name: view.strides for name, view in sources.items()})
            written = [sources[r.name].buffer for r in run.refinements if r.source and r.direction.writes]
            reads = [r.name for r in run.refinements if r.source and sources[r.name].buffer not in written]
            if (found := columns(run, reads)) is not None:
                for body, made in found.ahead:
                    sources[made.name] = yield from self._ahead(body, made, outer)
                run = found.rest
            plan, views = self._plan(run, sources, owned, scope)
            once = {name for name, write in plan_writes(run, plan, views, frozenset()).items() if write.once}
        staged = [
            ref
            for ref in block.refinements
            if ref.direction.writes and needs_stage(block, ref, sources[ref.name], ref.name in once)
        ]
        for ref in staged:
            sources[ref.name] = yield from self._stage(block, ref, outer)
        fresh = [
            ref
            for ref in block.refinements
            if ref.direction is Direction.OUT
            and ref not in staged
            and begins_aggregation(ref, sources[ref.name])
        ]
        for ref in fresh:
            if ref.name not in once:
                yield from self._fill(block, ref, sources[ref.name], outer)
        if is_leaf:
            self._leaf(run, scope, sources, owned, frozenset(ref.name for ref in fresh))
        else:
            yield from self._inner_blocks(block, scope, sources)
        for ref in staged:
            yield from self._unstage(block, ref, sources[ref.name], outer)

    def _region(self, block: Block, outer: Scope, copies: int) -> Task:
        """A block whose points run on several threads."""
        region = open_region(self._tools, self._memory, block, outer, copies)
        names, f = undecided(region.scope.views), region.tools.f
        if names:  # the function asks anew
            views = region.scope.views
            views = offered(views, names, f, at_lines(f, views, names, self._tools.target.line_bytes))
            region = replace(region, scope=replace(region.scope, views=views))
        body = _Emitter(region.tools, region.memory, in_region=True)
        for point, scope in region.points(block):
            yield body.block(point, scope)
        if any(view.buffer.streams for view in region.scope.views.values()):
            settle(region.tools.f, self._tools.target)
        close_region(self._tools, self._memory, region)

    def _allocate(self, block: Block, scope: Scope) -> dict[str, View]:
        """The block's own buffers. Versions of one block share those in the workspace."""
        views: dict[str, View] = {}
        for ref in block.refinements:
            if ref.direction is Direction.NEW:
                key = (scope.path, ref.name)
                view = self._shared.get(key)
                if view is None:
                    strides = {name: seen.strides for name, seen in scope.views.items()}
                    strides |= {r.name: r.strides or () for r in block.refinements if not r.source}
                    view = self._memory.allocate(
                        self._in_rows(block, ref, strides, scope.views),
                        below_root=bool(scope.path),
                        joined=joins_rows(block, ref.name, strides),
                    )
                    if view.buffer.birth is not None:
                        view.buffer.birth.is_even = self._is_even(block, ref)
                    if view.buffer.spare is None:
                        self._shared[key] = view
                    if ref.location is None:
                        on_stack = view.buffer.spare is not None
                        self._memory.placed[Placed(scope.path, ref.name, on_stack, ref.bytes)] = None
                views[ref.name] = view
        return views

    def _in_rows(
        self,
        block: Block,
        ref: Refinement,
        strides: Mapping[str, tuple[int, ...]],
        outer: Mapping[str, View],
    ) -> Refinement:
        """A buffer in registers with vectors of their own for each of its rows, where these are no whole
        vectors and all who add to it take them one by one: if two rows shared a vector, LLVM would take that
        apart, at every step or when the results leave. Rows with a vector under a mask leave together, and
        so do rows that go to one run of what is written past the caches, which takes whole lines."""
        target = self._tools.target
        lanes = max(1, target.vector_bytes // ref.dtype.bytes)
        if not ref.shape or ref.location is None or ref.location.unit not in target.registers:
            return ref
        if ref.strides != contiguous(ref.shape) or ref.shape[-1] == 1:
            return ref
        vectors, rest = divmod(ref.shape[-1], lanes)
        masked = target.masked_memory and rest.bit_count() > 1
        if rest == 0 or (masked and 2 * ref.shape[-1] > lanes):
            return ref
        together = {ref.name, *(name for name, view in outer.items() if view.buffer.streams)}
        for child in block.children:
            if any(view.direction.writes and view.source in together for view in child.refinements):
                own = {v.name: strides[v.source] for v in child.refinements if v.source in strides}
                if child.children or len(own) < len(child.refinements) or merged(child, own) != child:
                    return ref
        return replace(ref, strides=contiguous((*ref.shape[:-1], (vectors + 1) * lanes)))

    def _is_even(self, block: Block, ref: Refinement) -> bool:
        """Whether the vectors of one child in a buffer of a block are those of another."""
        lanes = max(1, self._tools.target.vector_bytes // ref.dtype.bytes)
        return not any(
            stride == 1 and expr.const % lanes
            for child in block.children
            for view in child.refinements
            if view.source == ref.name
            for expr, stride in zip(view.access, ref.strides or (), strict=True)
        )

    def _inner_blocks(self, block: Block, scope: Scope, sources: Mapping[str, View]) -> Task:
        """A block with blocks in it."""
        plan, _ = self._plan(block, sources, {}, scope)
        points = Points(self._tools, block, plan, scope.indexes, scope.facts)
        owned: dict[bool, dict[str, View]] = {}
        for point in points.each():
            inner = replace(scope, indexes=point.indexes, views=_bound(block, sources, point.indexes))
            yield from self._versions(block, inner, point, owned)

    def _plan(
        self, block: Block, sources: Mapping[str, View], owned: Mapping[str, View], scope: Scope
    ) -> tuple[Plan, dict[str, View]]:
        """How to run a block, and its views at the point where all its own indexes are 0."""

        def is_open(expr: Affine) -> bool:
            least = worst_case(expr, block.ranges).substitute(scope.indexes)
            return not self._tools.indexing.holds(least, scope.facts)

        start = {**scope.indexes, **dict.fromkeys(block.ranges, Affine())}
        views = {**_bound(block, sources, start), **owned}
        tested = [c.expr for c in block.constraints if is_open(c.expr)]
        size, target = self._sizes.of_point(block), self._tools.target
        return plan_block(block, views, tested, size, target, self._tools.indexing.around), views

    def _versions(self, block: Block, scope: Scope, point: Point, owned: dict[bool, dict[str, View]]) -> Task:
        """The statements of a point; twice, where a test now spares the inner blocks theirs.

        Each version has stack buffers of its own: what one of them can't keep in registers, or
        leaves unwritten, is no burden on the other. `owned` holds them for the next copy.
        """
        indexing = self._tools.indexing
        guards = dict.fromkeys(
            expr.substitute(scope.indexes)
            for child in block.children
            for expr in self._guards.above(block, child)
            if set(expr.names) & set(block.ranges)
        )
        wanted = [e for e in guards if not indexing.holds(e, scope.facts) and not indexing.fails(e)]
        if not wanted or scope.versions >= _VERSIONS:
            yield from self._statements(block, scope, point, owned.setdefault(True, {}))
            return
        f = self._tools.f
        full, general, end = f.fresh("full"), f.fresh("general"), f.fresh("joined")
        f.branch_if(indexing.all_of(wanted), full, general)
        f.leads_to(full, general, end)
        f.start(full)
        known = replace(scope, facts=(*scope.facts, *wanted), versions=scope.versions + 1)
        yield from self._statements(block, known, point, owned.setdefault(True, {}))
        f.branch(end)
        f.start(general)
        ragged = replace(scope, versions=scope.versions + 1)
        yield from self._statements(block, ragged, point, owned.setdefault(False, {}))
        f.branch(end)
        f.start(end)

    def _statements(self, block: Block, scope: Scope, point: Point, owned: dict[str, View]) -> Task:
        """The statements of a point of a block that has blocks in it."""
        if not owned:
            owned.update(self._allocate(block, scope))
        for view in owned.values():
            if view.buffer.birth is not None:
                view.buffer.birth.begin(self._tools.f.mark(), self._tools.f.label)
        scope = replace(scope, views={**scope.views, **owned})
        scalars: dict[str, Scalar] = {}
        windows = {name: Window(view.buffer, view.how, view.offset) for name, view in scope.views.items()}
        wanted, nest = scope.coming, asks(block)
        if any(not child.children for child in block.children):
            for lines in wanted:
                ask(self._tools, lines)
            wanted = ()
        ask_results(self._tools, block, scope)
        reads = [inputs(s) if isinstance(s, Block) else frozenset[str]() for s in block.statements]
        for number, statement in enumerate(block.statements):
            if isinstance(statement, Block):
                read, again = (
                    frozenset[str]().union(*part) for part in (reads[:number], reads[number + 1 :])
                )
                inner = scope.at(number, read, again, wanted if statement is nest else ())
                names = (
                    () if scope.path or self._in_region else streamed(block, statement, self._tools.target)
                )
                if names:
                    yield from self._streams(statement, inner, names)
                else:
                    yield self.block(statement, inner)
                    found = None if nest is None else coming(self._tools, statement, scope)
                    wanted = wanted if found is None else (*wanted, found)
            else:
                self._statement(statement, windows, scope.views, point, scalars, None)

    def _streams(self, block: Block, scope: Scope, names: tuple[str, ...]) -> Task:
        """A child of the root with results that go past the caches, where they start at a line."""
        f = self._tools.f
        holds = at_lines(f, scope.views, names, self._tools.target.line_bytes)
        views = offered(scope.views, names, f, holds)
        if self._sizes.of(block) > _SHORT:
            yield self.block(block, replace(scope, views=views))
            settle(f, self._tools.target)
            return
        with either_way(f, holds) as ways:
            for streams in ways:
                yield self.block(block, replace(scope, views=_decided(views, streams)))
                if streams:
                    settle(f, self._tools.target)

    def _leaf(
        self,
        block: Block,
        scope: Scope,
        sources: Mapping[str, View],
        owned: Mapping[str, View],
        fresh: frozenset[str],
    ) -> None:
        """A block without blocks in it: its points may be vectors, its sums accumulate."""
        plan, views = self._plan(block, sources, owned, scope)
        names = undecided({ref.name: views[ref.name] for ref in block.refinements if ref.direction.writes})
        if names:
            holds = views[names[0]].buffer.at_line
            assert holds is not None
            with either_way(self._tools.f, holds) as ways:
                for streams in ways:
                    self._leaf(block, scope, _decided(sources, streams), owned, fresh)
            return
        writes = plan_writes(block, plan, views, fresh)
        windows = {ref.name: Window.of(ref, sources[ref.name]) for ref in block.refinements if ref.source}
        windows |= {name: Window(view.buffer, view.how, view.offset) for name, view in owned.items()}
        if plan.tiles is not None:
            self._tools.tiled(block, plan.tiles, windows, scope.indexes, writes[plan.tiles.target].replaces)
            return
        held, registers = vectors_held(block, views, plan), self._tools.target.vector_registers
        accumulators = Accumulators(self._tools, plan, writes, many=2 * held > registers)
        down = None
        if alike := self._tools.target.alike:
            down = heading(self._tools.f, self._tools.indexing, block, plan, views, writes, alike)
        passed = scope.indexes if plan.use is None else {**scope.indexes, plan.use.group: Affine()}
        points = Points(self._tools, block, plan, passed, scope.facts, accumulators, down)
        ahead = Ahead(self._tools, block, plan, views, scope)
        has_special = any(isinstance(s, Special) for s in block.statements)
        # LLVM loads what all points take before it begins with the first, and then has to put sums aside:
        # there is room for what one point takes.
        tight = 1 < held >= registers - 2
        for point in points.each():
            if tight:
                self._tools.f.in_turn()
            here = {**_bound(block, sources, point.indexes), **owned} if has_special else {}
            ahead.at(point, windows)
            if plan.use is not None:
                places = {name: _place(window, point) for name, window in windows.items()}
                step = Step.at(
                    self._tools.f,
                    self._tools.accesses,
                    plan.use,
                    places,
                    point.lanes,
                    _beside(block, plan, point),
                )
                accumulators.step(plan.use.target, places[plan.use.target], point, step.onto)
                continue
            self._tools.f.has_idle_lanes = point.lanes.mask is not None
            scalars: dict[str, Scalar] = {}
            for statement in block.statements:
                self._statement(statement, windows, here, point, scalars, accumulators)

    # -- statements ----------------------------------------------------------------------

    def _statement(
        self,
        statement: Statement,
        windows: Mapping[str, Window],
        views: Mapping[str, View],  # what specials see
        point: Point,
        scalars: dict[str, Scalar],
        accumulators: Accumulators | None,
    ) -> None:
        arithmetic = self._tools.arithmetic
        match statement:
            case Load(result=result, buffer=buffer, dtype=dtype):
                place, square = _place(windows[buffer], point), point.square
                if square is not None and buffer in square.across.turned:
                    bits = square.load(place, point.number)
                    scalars[result] = Scalar(arithmetic.decode(bits, place.buffer.dtype).value, dtype)
                else:
                    scalars[result] = self._tools.load(place, point.lanes, dtype)
            case Store(buffer=buffer, value=value):
                self._store(statement, windows[buffer], point, scalars[value], accumulators)
            case Constant(result=result, value=number, dtype=dtype):
                scalars[result] = arithmetic.constant(number, dtype)
            case IndexValue(result=result, expr=expr, dtype=dtype):
                scalars[result] = self._index_value(expr, dtype, point)
            case Intrinsic(result=result, op=op, operands=operands):
                scalars[result] = arithmetic.apply(op, [scalars[name] for name in operands])
            case Cast(result=result, operand=operand, dtype=dtype):
                scalars[result] = arithmetic.cast(scalars[operand], dtype)
            case Special():
                emit = SPECIAL_EMITTERS[statement.name]
                emit(self._tools, statement, views, point.indexes, self._scratch)
            case _:
                raise InvariantError(f"no code for the statement {statement}")

    def _scratch(self, ref: Refinement) -> View:
        return self._memory.allocate(ref, below_root=False)

    def _store(
        self,
        statement: Store,
        window: Window,
        point: Point,
        scalar: Scalar,
        accumulators: Accumulators | None,
    ) -> None:
        place, how, square = _place(window, point), window.how, point.square
        if square is not None and statement.buffer in square.across.turned:
            bits = self._tools.encoded(scalar.value, place.buffer.dtype, point.lanes)
            adds = how is not Aggregation.ASSIGN and not (
                accumulators is not None and accumulators.replaces(statement.buffer)
            )
            square.store(bits, place, point.number, self._combined(how, place) if adds else None)
        elif how is Aggregation.ASSIGN:
            self._tools.put(scalar.value, place, point.lanes)
        elif accumulators is not None and accumulators.takes(statement.buffer):
            accumulators.add(statement.buffer, scalar, place, point)
        else:
            self._tools.fold(how, scalar, place, point.lanes)

    def _combined(self, how: Aggregation, place: Place) -> Combine:
        dtype, arithmetic = place.buffer.dtype, self._tools.arithmetic
        return lambda old, new: arithmetic.combine(how, Scalar(old, dtype), Scalar(new, dtype)).value

    def _index_value(self, expr: Affine, dtype: DType, point: Point) -> Scalar:
        f, lanes = self._tools.f, point.lanes
        value = self._tools.indexing.value(expr.substitute(point.indexes))
        step = expr.coefficient(lanes.index) if lanes.width else 0
        if step:
            steps = lane_numbers(I64.times(lanes.width), step)
            value = f.binary("add", f.splat(value, lanes.width), steps)
        return self._tools.arithmetic.cast(Scalar(value, DType.I64), dtype)

    # -- aggregation ---------------------------------------------------------------------

    def _fill(self, block: Block, ref: Refinement, source: View, outer: Scope) -> Task:
        """Ahead of a block: the elements that it will write through `ref` become neutral."""
        assert ref.aggregation is not None
        target = replace(source, how=Aggregation.ASSIGN)
        scope = replace(outer, views={ref.source: target})
        for cells in written_cells(block, ref):
            filler = fill(block, cells, target.strides, ref.source, ref.aggregation, source.buffer.dtype)
            yield self.block(filler, scope)

    def _stage(self, block: Block, ref: Refinement, outer: Scope) -> Generator[Task, None, View]:
        """Give a block a buffer that stands in for its parent's; what the block will write is set."""
        source = outer.views[ref.source]
        begins = source.how is Aggregation.ASSIGN
        dtype = DType.F32 if begins else ref.dtype
        name = f"{ref.name}.stage"
        made = Refinement(Direction.NEW, name, source.shape, dtype, strides=contiguous(source.shape))
        key = (outer.path, name)
        if key not in self._shared:
            self._shared[key] = self._memory.allocate(made, below_root=False)
        stage = self._shared[key]
        how = ref.aggregation if begins else source.how
        assert how is not None
        scope = replace(outer, views={"old": replace(source, how=Aggregation.ASSIGN), "new": stage})
        for cells in written_cells(block, ref):
            if ref.direction is Direction.INOUT:
                old, new = ("old", source.buffer.dtype), ("new", dtype)
                yield self.block(copy(block, cells, stage.strides, old, new), scope)
            else:
                yield self.block(fill(block, cells, stage.strides, "new", how, dtype), scope)
        return stage

    def _ahead(self, body: Block, made: Refinement, outer: Scope) -> Generator[Task, None, View]:
        """The view of a buffer that a block fills with what another one computes from columns alone."""
        key = (outer.path, f"{made.name} {made.dtype} {made.shape}")
        if key not in self._shared:
            self._shared[key] = self._memory.allocate(made, below_root=False)
        view = self._shared[key]
        yield self.block(body, replace(outer, views={**outer.views, made.name: view}))
        return view

    def _unstage(self, block: Block, ref: Refinement, stage: View, outer: Scope) -> Task:
        """Hand on what a block wrote: rounded once, or folded into what the level above adds up."""
        source = outer.views[ref.source]
        scope = replace(outer, views={"old": stage, "new": source})
        old, new = ("old", stage.buffer.dtype), ("new", source.buffer.dtype)
        for cells in written_cells(block, ref):
            if source.how is Aggregation.ASSIGN:
                yield self.block(copy(block, cells, source.strides, old, new), scope)
            else:
                yield self.block(hand_on(block, cells, source.strides, old, new, source.how), scope)


def inputs(block: Block) -> frozenset[str]:
    """The views around a block that it reads and does not write."""
    return frozenset(ref.source for ref in block.refinements if ref.direction is Direction.IN)


def needs_stage(block: Block, ref: Refinement, source: View, once: bool) -> bool:
    """Whether a block can't write straight into its parent's buffer; `once`: it writes each element once.

    - A sum (or product) of f16 or bf16 is rounded once, at its topmost level; in memory it would
      be rounded at every step.
    - Below an aggregating level, an `assign` of several statements keeps the last of them, and
      may be read: only the outcome is one write of the level above.
    """
    if begins_aggregation(ref, source):
        rounds = source.buffer.dtype in NARROW_FLOATS and ref.aggregation in (
            Aggregation.ADD,
            Aggregation.MUL,
        )
        return rounds and not once
    if ref.aggregation is not Aggregation.ASSIGN or source.how is Aggregation.ASSIGN:
        return False
    uses = [use for s in block.statements for use in buffers_used(s) if use[0] == ref.name]
    return sum(d.writes for _, d in uses) > 1 or any(d.reads for _, d in uses)


def _decided(views: Mapping[str, View], streams: bool) -> dict[str, View]:
    return {name: replace(view, buffer=decided(view.buffer, streams)) for name, view in views.items()}


def _bound(block: Block, sources: Mapping[str, View], indexes: Mapping[str, Affine]) -> dict[str, View]:
    """The views that a block has of its parent's buffers, at one of its points."""
    return {
        ref.name: viewed(ref, sources[ref.name], indexes) for ref in block.refinements if ref.name in sources
    }


def _beside(block: Block, plan: Plan, point: Point) -> range:
    """The lanes that are written out with those of a point, counted from its first one."""
    base = point.indexes.get(plan.lane, Affine())
    limited = any(plan.lane in constraint.expr.names for constraint in block.constraints)
    if plan.lane not in plan.unrolled or limited or not base.is_constant:
        return range(max(point.lanes.width, 1))
    return range(-base.const, block.ranges[plan.lane] - base.const)


def _place(window: Window, point: Point) -> Place:
    step = window.moves.coefficient(point.lanes.index) if point.lanes.width else 0
    return Place(window.buffer, window.offset(point.indexes), step)
