"""The accesses of a program in order, as arrays, and what is counted on the way.

    for chunk in Stream(plan).of(number): ...     # of one statement of the root

Where nothing is cut away by constraints, an execution of a block asks for the same number of
instructions every time, and the address of each is a sum of what the blocks around it, its steps and the
point of its step add. So many executions are written down at once, each instruction at its place in a
table with a row for each execution. What a constraint cuts away leaves a hole there.

Points that run on several copies of a unit side by side take turns: the first instruction of each copy, in
the order of the copies, then the second of each, until all are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.caches_nodes import Node, Plan, Scalars, Whole, asked
from simulator.caches_recent import Ints
from simulator.caches_steps import Steps, in_bytes
from simulator.work import Site
from stripe.affine import Affine

CHUNK = 1 << 19  # numbers that are kept of a group of executions

Bools: TypeAlias = NDArray[np.bool_]
_FAR = np.int64(1) << 60


@dataclass(frozen=True, slots=True)
class Chunk:
    """Instructions in order: the byte where each begins, how many it touches, its `Tag`, by number, and which
    copy of its unit it is of; None: the first."""

    starts: Ints
    sizes: Ints
    tags: Ints
    copies: Ints | None = None


@dataclass(slots=True)
class Tally:
    """What one copy of the units did: `words` are the elements that each access, by the number of its tag,
    has moved so far, `instructions` how many times it was executed; `counts` the points and vectors of each
    entry."""

    words: Counter[int] = field(default_factory=Counter)
    instructions: Counter[int] = field(default_factory=Counter)
    counts: Counter[tuple[Site, str, str]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Frame:
    """Executions, side by side: the values of the indexes of the block, where its buffers begin, in
    bytes, and which of the executions there are; None: all. They are of the same copy of their unit."""

    count: int
    values: Mapping[str, Ints]
    starts: Mapping[str, Ints]
    live: Bools | None
    copy: int = 0

    def part(self, first: int, last: int) -> _Frame:
        return self.rows(slice(first, last), min(last, self.count) - first)

    def rows(self, rows: slice | Ints, count: int) -> _Frame:
        live = None if self.live is None else self.live[rows]
        return _Frame(
            count, {n: v[rows] for n, v in self.values.items()},
            {n: v[rows] for n, v in self.starts.items()}, live, self.copy,
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
    """Goes through a program. `copies` has what each copy of the units did, by its number."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._own = Tally()
        self.copies = {0: self._own}

    def total(self) -> Tally:
        """What all copies did together."""
        found = Tally()
        for own in self.copies.values():
            found.words.update(own.words)
            found.instructions.update(own.instructions)
            found.counts.update(own.counts)
        return found

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
        elif node.number is not None:
            yield from self._side_by_side(node, node.number, frame)
        else:
            most = max(1, CHUNK // node.inner)
            for first in range(0, node.points, most):
                yield from self._at_points(node, _points(node, frame, first, min(first + most, node.points)))

    def _at_points(self, node: Node, inner: _Frame) -> Iterator[Chunk]:
        """What is in a block, at points of which several fit into a chunk, or one alone."""
        if inner.count * node.inner <= CHUNK:
            table = _Table.empty(inner.count, node.each)
            self._items(node, inner, table)
            yield table.chunk()
        else:
            for item in node.items:
                yield from self._item(item, inner)

    def _side_by_side(self, node: Node, number: Affine, frame: _Frame) -> Iterator[Chunk]:
        """One execution of a block whose points are told which copy of their unit executes them."""
        points = _points(node, frame, 0, node.points)
        copies = points.value(number)
        there = np.arange(points.count) if points.live is None else np.flatnonzero(points.live)
        chains = {}
        for copy in np.unique(copies[there]).tolist():
            own = there[copies[there] == copy]
            chains[copy] = self._chain(node, replace(points.rows(own, len(own)), copy=copy))
        around = self._own
        yield from self._in_turns(chains)
        self._own = around

    def _chain(self, node: Node, points: _Frame) -> Iterator[Chunk]:
        """The points of a block that one copy executes."""
        points = replace(points, starts={**points.starts, **_places(node, points)})
        most = max(1, CHUNK // node.inner)
        for first in range(0, points.count, most):
            yield from self._at_points(node, points.part(first, min(first + most, points.count)))

    def _in_turns(self, chains: Mapping[int, Iterator[Chunk]]) -> Iterator[Chunk]:
        """An instruction of each copy after the other."""
        left: dict[int, Chunk] = {}
        while chains:
            for copy, chain in list(chains.items()):
                self._own = self.copies.setdefault(copy, Tally())
                while copy not in left and copy in chains:
                    found = next(chain, None)
                    if found is None:
                        chains = {c: own for c, own in chains.items() if c != copy}
                    elif len(found.tags):
                        left[copy] = found
            if not left:
                return
            many = min(len(chunk.tags) for chunk in left.values())
            yield _interleaved(left, many)
            left = {c: own for c, chunk in left.items() if len((own := _after(chunk, many)).tags)}

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
        self._own.counts[item.site, "vectors", item.unit.name] += many * item.vectors
        first = 0
        for part in item.parts:
            wide = len(part.offsets)
            self._own.words[part.tag] += many * part.words
            self._own.instructions[part.tag] += many * wide
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
            self._own.counts[entry.site, "points", name] += many * steps.points
            self._own.counts[entry.site, "vectors", name] += many * len(vectors)
        else:
            many = 0
            self._own.counts[entry.site, "points", name] += int(np.count_nonzero(points))
            found = np.logical_or.reduceat(points[..., order], vectors, axis=-1)
            self._own.counts[entry.site, "vectors", name] += int(np.count_nonzero(found))
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
                self._own.words[tag] += many * int(pattern.words.sum())
                self._own.instructions[tag] += many * wide
                if own is not None:
                    tags = tag if live is None else _masked(live[..., None], tag, wide)
                    own.fill(starts + pattern.starts, pattern.sizes, tags)
            else:
                elements = np.logical_or.reduceat(points[..., pattern.order], pattern.elements, axis=-1)
                there = np.logical_or.reduceat(elements, pattern.instructions, axis=-1)
                self._own.words[tag] += int(np.count_nonzero(elements))
                self._own.instructions[tag] += int(np.count_nonzero(there))
                if own is not None:
                    low = np.where(elements, pattern.offsets, _FAR)
                    high = np.where(elements, pattern.offsets, -_FAR)
                    low = np.minimum.reduceat(low, pattern.instructions, axis=-1)
                    high = np.maximum.reduceat(high, pattern.instructions, axis=-1)
                    own.fill(starts + low, high - low + access.element_bytes, np.where(there, tag, -1))


_START = _Frame(1, {}, {}, None)


def _interleaved(chunks: Mapping[int, Chunk], many: int) -> Chunk:
    """The first instructions of each chunk, by copy: one of each after the other."""

    def turns(parts: Iterable[Ints]) -> Ints:
        return np.stack([part[:many] for part in parts], 1).reshape(-1)

    own = chunks.values()
    copies = turns(np.full(many, c) if k.copies is None else k.copies for c, k in chunks.items())
    return Chunk(
        turns(k.starts for k in own), turns(k.sizes for k in own), turns(k.tags for k in own), copies
    )


def _after(chunk: Chunk, many: int) -> Chunk:
    copies = None if chunk.copies is None else chunk.copies[many:]
    return Chunk(chunk.starts[many:], chunk.sizes[many:], chunk.tags[many:], copies)


def _masked(there: Bools, tag: int, wide: int) -> Ints:
    found = np.where(there, tag, -1)
    return np.broadcast_to(found, (*found.shape[:-1], wide))


def _entered(node: Node, frame: _Frame) -> _Frame:
    """A frame of the points around a block as executions of the block: the names are its own."""
    block = node.block
    values = {i.name: frame.value(i.passed) for i in block.indexes if i.passed is not None}
    made = _Frame(frame.count, values, {}, frame.live, frame.copy)
    starts = {r.name: frame.starts[r.source] for r in block.refinements if r.strides is None}
    if node.own:
        starts |= _places(node, made)
    return replace(made, starts=starts)


def _places(node: Node, frame: _Frame) -> dict[str, Ints]:
    """Where the buffers of the block itself begin."""
    return {
        ref.name: frame.value(node.places[ref.name].start) + frame.copy * node.places[ref.name].apart
        for ref in node.block.refinements
        if ref.strides is not None
    }


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
    made = _Frame(count, values, {}, live, frame.copy)
    starts = _places(node, made)
    for ref in block.refinements:
        if ref.strides is None:
            moved = made.value(in_bytes(ref.access, node.views[ref.name]))
            starts[ref.name] = np.repeat(outer.starts[ref.name], each) + moved
    for constraint in block.constraints:
        holds = made.value(constraint.expr) >= 0
        if not holds.all():
            live = holds if live is None else live & holds
    return _Frame(count, values, starts, live, frame.copy)


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
