"""The accesses of a program in order, as arrays, and what is counted on the way.

    for chunk in Stream(plan).of(number): ...     # of one statement of the root

Where nothing is cut away by constraints, an execution of a block asks for the same number of
instructions every time, and the address of each is a sum of what the blocks around it, its steps and the
point of its step add. So many executions are written down at once, each instruction at its place in a
table with a row for each execution. What a constraint cuts away leaves a hole there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.caches import Ints
from simulator.caches_nodes import Node, Plan, Scalars, Whole, asked
from simulator.caches_steps import Steps, in_bytes
from simulator.work import Site
from stripe.affine import Affine

CHUNK = 1 << 19  # numbers that are kept of a group of executions

Bools: TypeAlias = NDArray[np.bool_]
_FAR = np.int64(1) << 60


@dataclass(frozen=True, slots=True)
class Chunk:
    """Instructions in order: the byte where each begins, how many it touches, and its `Tag`, by number."""

    starts: Ints
    sizes: Ints
    tags: Ints


@dataclass(frozen=True, slots=True)
class _Frame:
    """Executions, side by side: the values of the indexes of the block, where its buffers begin, in
    bytes, and which of the executions there are; None: all."""

    count: int
    values: Mapping[str, Ints]
    starts: Mapping[str, Ints]
    live: Bools | None

    def part(self, first: int, last: int) -> _Frame:
        rows = slice(first, last)
        live = None if self.live is None else self.live[rows]
        return _Frame(
            min(last, self.count) - first, {n: v[rows] for n, v in self.values.items()},
            {n: v[rows] for n, v in self.starts.items()}, live,
        )  # fmt: skip

    def value(self, expr: Affine) -> Ints:
        total = np.full(self.count, expr.const, np.int64)
        for name, factor in expr.terms:
            if name in self.values:
                total += factor * self.values[name]
        return total


class _Table:
    """Instructions of executions, those of one along the last axis; those that are not there have no
    tag."""

    def __init__(self, starts: Ints, sizes: Ints, tags: Ints) -> None:
        self.starts, self.sizes, self.tags = starts, sizes, tags

    @staticmethod
    def empty(rows: int, columns: int) -> _Table:
        shape = rows, columns
        return _Table(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, -1, np.int64))

    def split(self, rows: int, columns: int) -> _Table:
        """The last axis as two of these sizes."""
        shape = *self.tags.shape[:-1], rows, columns
        return _Table(*(a.reshape(shape) for a in (self.starts, self.sizes, self.tags)))

    def columns(self, first: int, last: int) -> _Table:
        return _Table(*(a[..., first:last] for a in (self.starts, self.sizes, self.tags)))

    def fill(self, starts: Ints, sizes: Ints, tags: Ints | int) -> None:
        self.starts[...] = starts.reshape(self.starts.shape)
        self.sizes[...] = sizes if sizes.ndim == 1 else sizes.reshape(self.sizes.shape)
        self.tags[...] = tags if isinstance(tags, int) else tags.reshape(self.tags.shape)

    def chunk(self) -> Chunk:
        there = self.tags >= 0
        return Chunk(self.starts[there], self.sizes[there], self.tags[there])


class Stream:
    """Goes through a program. `words` are the elements that each access, by the number of its tag, has
    moved so far, `instructions` how many times it was executed; `counts` the points and vectors of each
    entry."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.words: Counter[int] = Counter()
        self.instructions: Counter[int] = Counter()
        self.counts: Counter[tuple[Site, str, str]] = Counter()

    def of(self, number: int) -> Iterator[Chunk]:
        """What one item of the root asks for."""
        root = self._plan.root
        if root.own:
            yield from self._node(root, _START)
        else:
            yield from self._item(root.items[number], _points(root, _START, 0, 1))

    def _item(self, item: Node | Scalars | Whole, frame: _Frame) -> Iterator[Chunk]:
        if isinstance(item, Node):
            yield from self._node(item, frame)
        else:
            table = _Table.empty(frame.count, asked(item, self._plan.tags))
            self._entry(item, frame, table)
            yield table.chunk()

    def _node(self, node: Node, frame: _Frame) -> Iterator[Chunk]:
        """All executions of a frame, as many at once as there is room for."""
        if not node.points or (frame.live is not None and not frame.live.any()):
            return
        if frame.count * node.cost <= CHUNK:
            table = _Table.empty(frame.count, node.slots)
            self._fill(node, frame, table)
            yield table.chunk()
        elif frame.count > 1:
            most = max(1, CHUNK // node.cost)
            for first in range(0, frame.count, most):
                yield from self._node(node, frame.part(first, first + most))
        elif node.own:
            yield from self._long(node, frame)
        else:
            each = node.cost // node.points
            most = max(1, CHUNK // each)
            for first in range(0, node.points, most):
                inner = _points(node, frame, first, min(first + most, node.points))
                if each <= CHUNK:
                    table = _Table.empty(inner.count, node.each)
                    self._items(node, inner, table)
                    yield table.chunk()
                else:
                    for item in node.items:
                        yield from self._item(item, inner)

    def _long(self, node: Node, frame: _Frame) -> Iterator[Chunk]:
        """One execution of a block with very many steps."""
        (entry,) = node.items
        assert isinstance(entry, Scalars)
        count, inner = entry.steps.count, _entered(node, frame)
        most = max(1, CHUNK * count // node.cost)
        for first in range(0, count, most):
            last = min(first + most, count)
            table = _Table.empty(1, (last - first) * (node.slots // count))
            self._steps(entry, inner, table, slice(first, last))
            yield table.chunk()

    # -- rows of a table ---------------------------------------------------------------------------

    def _fill(self, node: Node, frame: _Frame, table: _Table) -> None:
        """The executions of a block in a frame, one in each row."""
        if not node.points:
            return
        if node.own:
            (entry,) = node.items
            assert isinstance(entry, Scalars)
            self._steps(entry, _entered(node, frame), table, slice(0, entry.steps.count))
        else:
            inner = _points(node, frame, 0, node.points)
            self._items(node, inner, table.split(node.points, node.each))

    def _items(self, node: Node, inner: _Frame, table: _Table) -> None:
        first = 0
        for item in node.items:
            last = first + asked(item, self._plan.tags)
            part = table.columns(first, last)
            if isinstance(item, Node):
                self._fill(item, inner, part)
            else:
                self._entry(item, inner, part)
            first = last

    def _entry(self, item: Scalars | Whole, frame: _Frame, table: _Table) -> None:
        """Statements that are executed once at each point of a frame."""
        if isinstance(item, Scalars):
            self._steps(item, frame, table, slice(0, 1))
            return
        many = frame.count if frame.live is None else int(np.count_nonzero(frame.live))
        self.counts[item.site, "vectors", item.unit.name] += many * item.vectors
        first = 0
        for part in item.parts:
            wide = len(part.offsets)
            self.words[part.tag] += many * part.words
            self.instructions[part.tag] += many * wide
            if self._plan.tags[part.tag].cached:
                starts = (frame.starts[part.buffer] + frame.value(part.start))[:, None] + part.offsets
                tags = part.tag if frame.live is None else _masked(frame.live[:, None], part.tag, wide)
                table.columns(first, first + wide).fill(starts, part.sizes, tags)
                first += wide

    def _steps(self, entry: Scalars, frame: _Frame, table: _Table, chosen: slice) -> None:
        """The chosen steps of each execution of a frame, whose names are those of the block itself."""
        steps, name = entry.steps, entry.unit.name
        count = chosen.stop - chosen.start
        live, points = _there(steps, frame, chosen)
        order, vectors = steps.vectors
        if points is None:
            many = frame.count * count if live is None else int(np.count_nonzero(live))
            self.counts[entry.site, "points", name] += many * steps.points
            self.counts[entry.site, "vectors", name] += many * len(vectors)
        else:
            many = 0
            self.counts[entry.site, "points", name] += int(np.count_nonzero(points))
            found = np.logical_or.reduceat(points[..., order], vectors, axis=-1)
            self.counts[entry.site, "vectors", name] += int(np.count_nonzero(found))
        table = table.split(count, table.tags.shape[-1] // count)
        first = 0
        for at, tag in enumerate(entry.tags):
            pattern, access = steps.pattern(at), steps.accesses[at]
            wide = len(pattern.starts)
            own = None
            if self._plan.tags[tag].cached:
                own = table.columns(first, first + wide)
                first += wide
            starts = (frame.starts[access.buffer] + frame.value(access.apart))[:, None]
            starts = (starts + steps.over_steps(access.apart)[chosen])[..., None]
            if points is None:
                self.words[tag] += many * int(pattern.words.sum())
                self.instructions[tag] += many * wide
                if own is not None:
                    tags = tag if live is None else _masked(live[..., None], tag, wide)
                    own.fill(starts + pattern.starts, pattern.sizes, tags)
            else:
                elements = np.logical_or.reduceat(points[..., pattern.order], pattern.elements, axis=-1)
                there = np.logical_or.reduceat(elements, pattern.instructions, axis=-1)
                self.words[tag] += int(np.count_nonzero(elements))
                self.instructions[tag] += int(np.count_nonzero(there))
                if own is not None:
                    low = np.where(elements, pattern.offsets, _FAR)
                    high = np.where(elements, pattern.offsets, -_FAR)
                    low = np.minimum.reduceat(low, pattern.instructions, axis=-1)
                    high = np.maximum.reduceat(high, pattern.instructions, axis=-1)
                    own.fill(starts + low, high - low + access.element_bytes, np.where(there, tag, -1))


_START = _Frame(1, {}, {}, None)


def _masked(there: Bools, tag: int, wide: int) -> Ints:
    found = np.where(there, tag, -1)
    return np.broadcast_to(found, (*found.shape[:-1], wide))


def _entered(node: Node, frame: _Frame) -> _Frame:
    """A frame of the points around a block as executions of the block: the names are its own."""
    block = node.block
    values = {i.name: frame.value(i.passed) for i in block.indexes if i.passed is not None}
    made = _Frame(frame.count, values, {}, frame.live)
    starts = {}
    for ref in block.refinements:
        if ref.strides is None:
            starts[ref.name] = frame.starts[ref.source]
        elif node.own:
            starts[ref.name] = made.value(node.places[ref.name].start)
    return _Frame(frame.count, values, starts, frame.live)


def _points(node: Node, frame: _Frame, first: int, last: int) -> _Frame:
    """The points of a block from one number to another, in each execution of a frame."""
    block, outer = node.block, _entered(node, frame)
    each = last - first
    shape = tuple(block.ranges.values())
    at = np.unravel_index(np.arange(first, last), shape) if shape else ()
    count = outer.count * each
    values = {name: np.repeat(value, each) for name, value in outer.values.items()}
    for name, own in zip(block.ranges, at, strict=True):
        values[name] = np.tile(own.astype(np.int64), outer.count)
    live = None if outer.live is None else np.repeat(outer.live, each)
    made = _Frame(count, values, {}, live)
    starts = {}
    for ref in block.refinements:
        if ref.strides is not None:
            starts[ref.name] = made.value(node.places[ref.name].start)
        else:
            moved = made.value(in_bytes(ref.access, node.views[ref.name]))
            starts[ref.name] = np.repeat(outer.starts[ref.name], each) + moved
    for constraint in block.constraints:
        holds = made.value(constraint.expr) >= 0
        if not holds.all():
            live = holds if live is None else live & holds
    return _Frame(count, values, starts, live)


def _there(steps: Steps, frame: _Frame, chosen: slice) -> tuple[Bools | None, Bools | None]:
    """Which of the chosen steps there are in each execution, and which points of each step, if not all."""
    live = None if frame.live is None else np.repeat(frame.live[:, None], chosen.stop - chosen.start, 1)
    points: Bools | None = None
    for constraint in steps.constraints:
        around, over = frame.value(constraint), steps.over_steps(constraint)[chosen]
        within = steps.over_points(constraint)
        if around.min() + over.min() + within.min() >= 0:
            continue
        if within.any():
            holds = around[:, None, None] + over[:, None] + within >= 0
            points = holds if points is None else points & holds
        else:
            whole = around[:, None] + over >= 0
            live = whole if live is None else live & whole
    if steps.ragged and not steps.present[chosen].all():
        present = steps.present[chosen]
        points = np.repeat(present[None], frame.count, 0) if points is None else points & present
    if points is not None and live is not None:
        points = points & live[..., None]
    return live, points
