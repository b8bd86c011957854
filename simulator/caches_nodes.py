"""The blocks of a program as a run on caches sees them: who executes what, and where buffers lie.

    Plan(root, hw) -> its tree of nodes, and a table of all accesses that stand in it

A node has an item for each block and special in it, and for each run of scalar statements between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from math import prod

import numpy as np

from hwconfigs.model import HwConfig, Unit
from simulator.caches_recent import Ints
from simulator.caches_steps import Steps, in_bytes, steps_of
from simulator.meters import exact, meter
from simulator.plan import bank_bytes, groups_of
from simulator.work import Site
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.work import operations_of_a_point, vector_operations
from stripe.diag import CompileError, Diagnostic
from stripe.ir import Block, Operand, Refinement, Special, Statement
from stripe.visit import View, views_of

_ALONE = 1 << 40  # the cost of what is never written down together with what is around it
_BESIDE = "on caches the simulator runs units that compute, a point after the other on each copy, and vectors"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies: its allocation by path, its memory, and the byte that it starts at, over the
    indexes of the block that has it; `apart` more for each copy of a unit."""

    path: str
    memory: str
    start: Affine
    apart: int = 0


@dataclass(frozen=True, slots=True)
class Tag:
    """One access of the program, wherever it happens: which unit accesses which buffer, and how. `entry` is
    the memory that it reaches first: a cache if it is `cached`."""

    site: Site
    unit: str
    place: Place
    entry: str
    cached: bool
    stores: bool
    adds: bool
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Scalars:
    """Scalar statements that are executed together: `tags` are those of the accesses of `steps`. The
    vectors of the statements have room for `room` points, with `operations` each, and take `rate` cycles
    to compute."""

    site: Site
    path: str
    unit: Unit
    steps: Steps
    tags: tuple[int, ...]
    operations: int
    rate: Fraction
    room: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a special touches of an operand: instructions at `offsets` bytes from `start`, of `sizes`
    bytes, of `words` elements in all."""

    tag: int
    buffer: str
    start: Affine
    offsets: Ints
    sizes: Ints
    words: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A special, which goes once through its operands."""

    site: Site
    path: str
    unit: Unit
    parts: tuple[Part, ...]
    vectors: int

    @property
    def tags(self) -> tuple[int, ...]:
        return tuple(part.tag for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A block. `own`: it has scalar statements alone, whose steps are its points. One execution asks for
    `slots` instructions at most, `each` at a point, and takes `cost` numbers to work out, `inner` of them
    at a point. `number` is the copy of the unit that executes a point, where that is told."""

    block: Block
    views: Mapping[str, View]
    places: Mapping[str, Place]
    items: tuple[Node | Scalars | Whole, ...]
    own: bool
    slots: int
    each: int
    cost: int
    points: int
    inner: int = 0
    number: Affine | None = None


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known where the statements of a block stand: its path, the views of its parent (`outer`) and
    its own, where its buffers are, and the unit that executes it."""

    block: Block
    path: str
    outer: Mapping[str, View]
    views: Mapping[str, View]
    places: Mapping[str, Place]
    unit: Unit


class Plan:
    """The nodes of one root whose buffers all have addresses, on one target. `first` is the number of
    the first statement of each item of the root."""

    def __init__(self, root: Block, hw: HwConfig, apart: Mapping[str, int] | None = None) -> None:
        self._hw = hw
        self._apart = apart or {}
        self.tags: list[Tag] = []
        units = hw.compute_units
        if not units:
            raise CompileError(Diagnostic("U001", f"'{hw.name}' has no unit that computes"))
        self.root = self._node(root, (), root.name, {}, {}, units[0])
        groups = list(groups_of(root))
        self.first = list(accumulate((len(group) for group in groups[:-1]), initial=0)) if groups else []
        self._items = {statement: number for number, statement in enumerate(self.first)}

    def item(self, site: Site) -> int:
        """The number of the item of the root that a site is in."""
        return self._items[site[0]] if site else 0

    def entries(self) -> Iterator[tuple[tuple[Node, ...], Scalars | Whole]]:
        """What is executed, in order, each with the nodes around it."""
        yield from _entries(self.root, ())

    def _node(
        self, block: Block, site: Site, path: str, outer: Mapping[str, View], around: Mapping[str, Place],
        unit: Unit,
    ) -> Node:  # fmt: skip
        if block.location is not None:
            unit = self._unit(block.location.unit)
        copy = block.location.bank if block.location is not None and unit.count > 1 else None
        copy = None if copy == Affine() else copy
        self._check(block, path, unit)
        views = views_of(block, outer)
        places = {
            ref.name: self._place(ref, path) if ref.strides is not None else around[ref.source]
            for ref in block.refinements
        }
        scope = _Scope(block, path, outer, views, places, unit)
        groups = list(groups_of(block))
        own = len(groups) == 1 and not isinstance(groups[0][0], Block | Special)
        own = own and not any(
            set(places[r.name].start.names) & set(block.ranges) for r in block.refinements if r.strides
        )
        points = block.points
        if own and copy is not None:
            message = f"{path}: the points of a block that computes itself run on copies of {unit.name}"
            note = "help: spread the points of a block around it, such as `block b [c:4] @CORE[c]`"
            raise CompileError(Diagnostic("U003", message, block.span, (_BESIDE, note)))
        if own:
            found = self._scalars(groups[0], site, scope, own)
            slots = found.steps.count * asked(found, self.tags) if points else 0
            ragged = bool(block.constraints) or found.steps.ragged
            cost = max(1, slots, points * (1 + len(found.tags)) if ragged else 0)
            return Node(block, views, places, (found,), True, slots, 0, cost, points)
        made: list[Node | Scalars | Whole] = []
        number = 0
        for group in groups:
            first, below = group[0], (*site, number)
            if isinstance(first, Block):
                made.append(self._node(first, below, f"{path}/{first.name}", views, places, unit))
            elif isinstance(first, Special):
                made.append(self._special(first, below, scope))
            else:
                made.append(self._scalars(group, below, scope, own))
            number += len(group)
        each = sum(asked(item, self.tags) for item in made)
        inner = max(1, sum(_cost(item, self.tags) for item in made))
        cost = _ALONE if copy is not None else max(1, points * inner)
        return Node(block, views, places, tuple(made), False, points * each, each, cost, points, inner, copy)

    def _check(self, block: Block, path: str, unit: Unit) -> None:
        """Refuse what is no part of a run on caches."""
        if unit.kind != "compute":
            message = f"{path}: {unit.name} transfers, beside memories of kind 'cached'"
            note = (
                f"help: take '{unit.name}' out of 'units' and 'transfer' out of 'pipeline', so that caches "
                "bring what is asked for; or make the caches memories of kind 'explicit', which programs fill"
            )
            raise CompileError(Diagnostic("U003", message, block.span, (_BESIDE, note)))
        if block.inflight > 1:
            message = f"{path}: the block keeps several points in flight, beside memories of kind 'cached'"
            note = "help: take 'inflight' out of the options of 'autotile' and 'schedule' in 'pipeline'"
            raise CompileError(Diagnostic("U003", message, block.span, (_BESIDE, note)))

    def _place(self, ref: Refinement, path: str) -> Place:
        location = ref.location
        memory = self._hw.memory(location.unit) if location is not None else None
        assert location is not None and memory is not None  # it is laid out
        if location.spread is not None:
            message = f"{path}: '{ref.name}' is spread over banks, beside memories of kind 'cached'"
            note = f"help: leave out 'banks' of '{memory.name}', or 'partition' of 'pipeline'"
            raise CompileError(Diagnostic("U003", message, ref.span, (_BESIDE, note)))
        start = location.address or Affine()
        if location.bank is not None:
            start = start + location.bank * bank_bytes(memory)
        return Place(f"{path}/{ref.name}", memory.name, start, self._apart.get(f"{path}/{ref.name}", 0))

    def _unit(self, name: str) -> Unit:
        found = self._hw.unit(name)
        assert found is not None  # V062
        return found

    def _tag(self, site: Site, unit: Unit, place: Place, stores: bool, adds: bool, size: int) -> int:
        entry = _entry(unit, place.memory, self._hw)
        self.tags.append(Tag(site, unit.name, place, entry or place.memory, bool(entry), stores, adds, size))
        return len(self.tags) - 1

    def _scalars(self, run: Sequence[Statement], site: Site, scope: _Scope, own: bool) -> Scalars:
        block, path, outer, unit = scope.block, scope.path, scope.outer, scope.unit
        alone = replace(block, statements=tuple(run))
        if own and meter(block, unit, outer, self._hw).leaf is not None:
            message = f"{path}: the block is a use of a stencil, beside memories of kind 'cached'"
            note = (
                f"help: give '{unit.name}' the operations themselves, so that it does them as vectors; or "
                "make the caches memories of kind 'explicit', which programs fill"
            )
            raise CompileError(Diagnostic("U003", message, block.span, (_BESIDE, note)))
        steps = steps_of(block, run, scope.views, unit.vector_bytes, own)
        tags = tuple(
            self._tag(site, unit, scope.places[a.buffer], a.stores, a.adds, a.element_bytes)
            for a in steps.accesses
        )
        leaf = next(iter(leaves(alone, outer)), Leaf(alone, alone.ranges, ()))
        group = steps.block.ranges[steps.group] if steps.group else 1
        rate = vector_operations(leaf) / exact(unit.fma_per_cycle)
        return Scalars(site, path, unit, steps, tags, operations_of_a_point(alone), rate, steps.width * group)

    def _special(self, special: Special, site: Site, scope: _Scope) -> Whole:
        views, places = scope.views, scope.places
        unit = self._unit(special.location.unit) if special.location is not None else scope.unit
        parts, vectors = [], 0
        for stores in (False, True):
            for operand in special.operands:
                if not (operand.direction.writes if stores else operand.direction.reads):
                    continue
                tag = self._tag(
                    site, unit, places[operand.buffer], stores, False, views[operand.buffer].dtype.bytes
                )
                parts.append(_part(operand, views[operand.buffer], tag, unit.vector_bytes))
        for operand in special.operands:
            size = views[operand.buffer].bytes_of(operand)
            often = operand.direction.reads + operand.direction.writes
            vectors = max(vectors, -(-size * often // unit.vector_bytes))
        return Whole(site, f"{scope.path}/{special.name}", unit, tuple(parts), vectors)


def _entries(node: Node, around: tuple[Node, ...]) -> Iterator[tuple[tuple[Node, ...], Scalars | Whole]]:
    nest = (*around, node)
    for item in node.items:
        if isinstance(item, Node):
            yield from _entries(item, nest)
        else:
            yield nest, item


def _part(operand: Operand, view: View, tag: int, vector_bytes: int) -> Part:
    shape = operand.shape or view.shape
    start = in_bytes(operand.access, view) if operand.access is not None else Affine()
    size = view.dtype.bytes
    strides = view.strides[len(view.strides) - len(shape) :]
    row, dims = 1, len(shape)
    while dims and (strides[dims - 1] == row or shape[dims - 1] == 1):  # elements side by side
        row *= shape[dims - 1]
        dims -= 1
    offsets = np.zeros((1,), np.int64)
    for extent, stride in zip(shape[:dims], strides[:dims], strict=True):
        offsets = (offsets[:, None] + np.arange(extent, dtype=np.int64) * (stride * size)).reshape(-1)
    words = prod(shape)
    if not words:
        return Part(tag, operand.buffer, start, offsets[:0], offsets[:0], 0)
    vectors = np.arange(0, row * size, max(vector_bytes // size, 1) * size, dtype=np.int64)
    lengths = np.diff(np.append(vectors, row * size))
    return Part(
        tag, operand.buffer, start, (offsets[:, None] + vectors).reshape(-1),
        np.tile(lengths, len(offsets)), words,
    )  # fmt: skip


def _entry(unit: Unit, memory: str, hw: HwConfig) -> str:
    """The nearest cache that a unit reaches on its way to a memory; "" if there is none."""
    for near in hw.memories:
        if near.kind == "cached" and near.name in unit.reaches and memory in _behind(near.name, hw):
            return near.name
    return ""


def _behind(name: str, hw: HwConfig) -> Iterator[str]:
    memory = hw.memory(name)
    while memory is not None and memory.backing is not None:
        yield memory.backing
        memory = hw.memory(memory.backing)


def asked(item: Node | Scalars | Whole, tags: Sequence[Tag]) -> int:
    """Instructions of one execution that reach a cache; of scalar statements, of one step."""
    if isinstance(item, Node):
        return item.slots
    if isinstance(item, Whole):
        return sum(len(p.offsets) for p in item.parts if tags[p.tag].cached)
    return sum(len(item.steps.pattern(at).starts) for at, tag in enumerate(item.tags) if tags[tag].cached)


def _cost(item: Node | Scalars | Whole, tags: Sequence[Tag]) -> int:
    return item.cost if isinstance(item, Node) else asked(item, tags) + 1
