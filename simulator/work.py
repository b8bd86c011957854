"""What one execution of a statement does on its unit: counts, cycles, and what it touches.

A use of a stencil touches each distinct element of its operands once, everything else an element for each
load and store of each point. A store that aggregates touches its element twice: it reads the old one, and
writes the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

from hwconfigs.model import HwConfig, Unit
from simulator.alike import Cut, Grid, Interval, Point, lifted, passed_in, signature
from simulator.meters import Kind, Meter, exact, meter
from stripe.affine import Affine
from stripe.ir import Block, Direction, Load, Special, Statement, Store
from stripe.visit import View, views_of

Box = tuple[Interval, ...]
Spread = Mapping[str, int]  # buffers that are spread over banks: along which dimension
Site = tuple[int, ...]  # a block below another one, by the numbers of the statements that lead to it

_FAR = 1 << 48  # beyond what expressions reach: every value of a cut that lies so far off matters


@dataclass(frozen=True, slots=True)
class Touch:
    """Elements of a buffer that are read and written, and the box that they lie in: the first and the last
    place along each dimension of the view that the block around has. `updates` are those of the writes
    that aggregate, and read what was there."""

    buffer: str
    reads: int
    writes: int
    updates: int
    element_bytes: int
    box: Box

    @property
    def bytes(self) -> int:
        return (self.reads + self.writes + self.updates) * self.element_bytes


@dataclass(frozen=True, slots=True)
class Work:
    """One execution of a statement, or several one after the other: `cycles` if nothing keeps its unit
    waiting, what its leaf blocks count, and what it touches, each buffer once."""

    cycles: Fraction = Fraction(0)
    counts: Mapping[tuple[Site, Kind], int] = field(default_factory=dict)
    touches: tuple[Touch, ...] = ()

    def times(self, many: int) -> Work:
        if many == 1:
            return self
        touches = tuple(
            replace(t, reads=t.reads * many, writes=t.writes * many, updates=t.updates * many)
            for t in self.touches
        )
        return Work(self.cycles * many, {key: n * many for key, n in self.counts.items()}, touches)

    def below(self, number: int) -> Work:
        """The work as that of the statement of this number of the block around."""
        return replace(self, counts={((number, *site), kind): n for (site, kind), n in self.counts.items()})


def in_turn(parts: Sequence[Work]) -> Work:
    """Several on one unit, one after the other."""
    if len(parts) == 1:
        return parts[0]
    counts: dict[tuple[Site, Kind], int] = {}
    for part in parts:
        for key, n in part.counts.items():
            counts[key] = counts.get(key, 0) + n
    return Work(
        sum((p.cycles for p in parts), Fraction(0)), counts, merged(t for p in parts for t in p.touches)
    )


def merged(touches: Iterable[Touch]) -> tuple[Touch, ...]:
    """What is touched of one buffer as one."""
    found: dict[str, Touch] = {}
    for touch in touches:
        known = found.get(touch.buffer)
        found[touch.buffer] = touch if known is None else Touch(
            touch.buffer, known.reads + touch.reads, known.writes + touch.writes,
            known.updates + touch.updates, touch.element_bytes, _around(known.box, touch.box),
        )  # fmt: skip
    return tuple(found.values())


def _around(one: Box, other: Box) -> Box:
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def spread_in(block: Block, outer: Spread) -> dict[str, int]:
    """The buffers of a block that are spread over banks; `outer` are those of its parent."""
    found = {}
    for ref in block.refinements:
        dimension = outer.get(ref.source) if ref.source else None
        if dimension is None and ref.location is not None:
            dimension = ref.location.spread
        if dimension is not None:
            found[ref.name] = dimension
    return found


def origins(block: Block, outer: Spread) -> Iterator[Cut]:
    """Where the views begin, along that dimension, that a block has of spread buffers of its parent."""
    for ref in block.refinements:
        if ref.source in outer:
            yield all_of(ref.access[outer[ref.source]])


def all_of(expr: Affine) -> Cut:
    """A cut of which every value matters."""
    return Cut(expr, -_FAR)


class Worker:
    """Works out what executions of blocks do on the units of one target, each kind once."""

    def __init__(self, hw: HwConfig) -> None:
        self._hw = hw
        self._known: dict[tuple[int, str, tuple[tuple[str, int], ...]], _Known] = {}

    def cuts(self, block: Block, unit: Unit, views: Mapping[str, View], spread: Spread) -> tuple[Cut, ...]:
        """What matters to the block of what its parent passes, over the names of the parent. Of buffers that
        are `spread` over banks, it matters where they are touched."""
        return self._of(block, unit, views, spread).outer

    def block(
        self, block: Block, unit: Unit, views: Mapping[str, View], spread: Spread, point: Point
    ) -> Work:
        """One execution of a block, and of all in it, at a point of its parent, whose views are `views`."""
        return self._execution(self._of(block, unit, views, spread), point)

    def statements(
        self,
        block: Block,
        run: Sequence[Statement],
        unit: Unit,
        views: Mapping[str, View],
        outer: Mapping[str, View],
    ) -> Work:
        """Statements of a block that are no blocks, at one point of it: `views` are its own, `outer` those of
        its parent."""
        if isinstance(run[0], Special):
            return _special(run[0], unit, views)
        touches = merged(_touches(replace(block, statements=tuple(run)), 1))
        return replace(
            _counted(self.meter(block, run, unit, outer), Grid.over({}, (), {}), touches), touches=touches
        )

    def meter(self, block: Block, run: Sequence[Statement], unit: Unit, outer: Mapping[str, View]) -> Meter:
        """How statements of a block that are no blocks are counted, one point at a time."""
        if isinstance(run[0], Special):
            return Meter({"vectors": 1 / exact(unit.fma_per_cycle)})
        return meter(replace(block, statements=tuple(run), constraints=(), indexes=()), unit, outer, self._hw)

    def _of(self, block: Block, unit: Unit, views: Mapping[str, View], spread: Spread) -> _Known:
        key = id(block), unit.name, tuple(spread.items())
        if key not in self._known:
            self._known[key] = self._made(block, unit, views, spread)
        return self._known[key]

    def _made(self, block: Block, unit: Unit, views: Mapping[str, View], spread: Spread) -> _Known:
        own, measured = views_of(block, views), meter(block, unit, views, self._hw)
        if measured.leaf is not None:
            inside = spread_in(block, spread)
            cuts = (
                *(Cut(expr, 0) for expr in measured.leaf.constraints),
                *(all_of(o.access[inside[o.name]]) for o in measured.leaf.operands if o.name in inside),
            )
            outer = lifted(measured.leaf.ranges, passed_in(block), cuts)
            return _Known(block, unit, own, outer, measured, ())
        children = tuple(
            (at, self._of(s, unit, own, spread_in(block, spread)))
            for at, s in enumerate(block.statements)
            if isinstance(s, Block)
        )
        cuts = (
            *(Cut(c.expr, 0) for c in block.constraints), *(cut for _, c in children for cut in c.outer),
            *origins(block, spread),
        )  # fmt: skip
        return _Known(block, unit, own, lifted(block.ranges, passed_in(block), cuts), measured, children)

    def _execution(self, known: _Known, point: Point) -> Work:
        key = signature(known.outer, point)
        if key not in known.done:
            known.done[key] = self._worked_out(known, point)
        return known.done[key]

    def _worked_out(self, known: _Known, point: Point) -> Work:
        block = known.block
        if known.meter.leaf is not None:
            return _one_use(known, point)
        grid = Grid.of(block, point)
        if not grid.count:
            return Work()
        parts = []
        if any(not isinstance(s, Block | Special) for s in block.statements):
            touches = tuple(_touches(block, grid.count))
            parts.append(replace(_counted(known.meter, grid, touches), touches=merged(touches)))
        for number, child in known.children:
            for at, many in grid.kinds(child.outer):
                parts.append(self._execution(child, at).times(many).below(number))
        for number, statement in enumerate(block.statements):
            if isinstance(statement, Special):
                parts.append(_special(statement, known.unit, known.views).times(grid.count).below(number))
        if not parts:
            return Work()
        done = in_turn(parts)
        return replace(done, touches=merged(_seen_outside(block, done.touches, grid)))


@dataclass(slots=True)
class _Known:
    """What is known of a block on a unit whatever the point."""

    block: Block
    unit: Unit
    views: Mapping[str, View]
    outer: tuple[Cut, ...]
    meter: Meter
    children: tuple[tuple[int, _Known], ...]
    done: dict[tuple[int, ...], Work] = field(default_factory=dict)


def _counted(measured: Meter, grid: Grid, touches: Iterable[Touch]) -> Work:
    """What the scalar statements of a block count at the points of a grid."""
    counts: dict[Kind, int] = {"points": grid.count}
    if "vectors" in measured.rates:
        counts["vectors"] = grid.groups(measured.lane, measured.room)
    else:
        counts["starts"] = 1
        counts["bytes"] = sum(t.writes * t.element_bytes for t in touches)
    return Work(measured.cycles(counts), {((), kind): n for kind, n in counts.items()})


def _one_use(known: _Known, point: Point) -> Work:
    leaf = known.meter.leaf
    assert leaf is not None
    passed = {name: expr.evaluate(point) for name, expr in passed_in(known.block).items()}
    grid = Grid.over(leaf.ranges, leaf.constraints, passed)
    if not grid.count:
        return Work()
    sources = {r.name: r.source for r in known.block.refinements if r.direction is not Direction.NEW}
    touches = []
    for operand in leaf.operands:
        if operand.name in sources:
            box = tuple(grid.interval(expr) for expr in operand.access)
            count, writes = grid.distinct(operand.access, box), operand.direction.writes
            adds = writes and operand.combines
            touches.append(
                Touch(
                    sources[operand.name], count * (not writes), count * writes, count * adds,
                    operand.dtype.bytes, box,
                )
            )  # fmt: skip
    counts: dict[Kind, int] = {"uses": 1, "points": grid.count}
    return Work(known.meter.cycles(counts), {((), kind): n for kind, n in counts.items()}, merged(touches))


def _special(special: Special, unit: Unit, views: Mapping[str, View]) -> Work:
    """A special goes once through the elements of each operand, a vector at a time."""
    touches = []
    for operand in special.operands:
        shape = operand.shape or views[operand.buffer].shape
        starts = [e.const for e in operand.access or ()] or [0] * len(shape)
        box = tuple((low, low + max(size, 1) - 1) for low, size in zip(starts, shape, strict=True))
        count, size = prod(shape), views[operand.buffer].dtype.bytes
        reads, writes = operand.direction.reads, operand.direction.writes
        touches.append(Touch(operand.buffer, count * reads, count * writes, 0, size, box))
    vectors = max((-(-t.bytes // unit.vector_bytes) for t in touches), default=0)
    counts: dict[tuple[Site, Kind], int] = {((), "vectors"): vectors}
    return Work(vectors / exact(unit.fma_per_cycle), counts, merged(touches))


def _touches(block: Block, points: int) -> Iterator[Touch]:
    """What the scalar statements of a block touch, by the names that it has itself."""
    for statement in block.statements:
        if isinstance(statement, Load | Store):
            ref = block.refinement(statement.buffer)
            stores = isinstance(statement, Store)
            adds = stores and ref.combines
            yield Touch(
                ref.name, points * (not stores), points * stores, points * adds, ref.dtype.bytes,
                ((0, 0),) * len(ref.shape),
            )  # fmt: skip


def _seen_outside(block: Block, touches: Sequence[Touch], grid: Grid) -> Iterator[Touch]:
    """What a block touches by the names of its parent; buffers of its own are left out."""
    for touch in touches:
        ref = block.refinement(touch.buffer)
        if ref.direction is not Direction.NEW:
            starts = [grid.interval(expr) for expr in ref.access]
            box = tuple((a + c, b + d) for (a, b), (c, d) in zip(starts, touch.box, strict=True))
            yield replace(touch, buffer=ref.source, box=box)
