"""Where the elements of buffers lie, byte by byte: one array of bytes for each memory of a target.

A buffer with an address is a window on the bytes of its memory, one without has bytes of its own. What
was written so far is noted for each life of a buffer, not for its bytes: where two buffers share bytes,
one reads what the other wrote, and the result is wrong; nothing here notices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.liveness import part_bytes, parts_of, slots_of
from stripe.diag import CompileError, Diagnostic, Span
from stripe.dtypes import DType
from stripe.interp_data import (
    COMBINE,
    Array,
    Clash,
    Coordinates,
    Grid,
    accumulator,
    added,
    box_coordinates,
    dot,
    live_ones,
    row_major,
)
from stripe.ir import SLOT, Aggregation, Block, Direction, Refinement

_MAX_BYTES = 1 << 40  # of one memory, as far as it is used
_YES = np.asarray(True)

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes of a memory that a buffer lies in: a half-open interval for each bank with a part of it."""

    memory: str
    intervals: tuple[Interval, ...]


@dataclass(slots=True)
class Cells:
    """The elements of one buffer.

    Element (i, j, ...) is `data[i * strides[0] + j * strides[1] + ...]`. Along the dimension `spread[0]`
    each `spread[1]` elements lie `spread[2]` behind those before. `written` says in row-major order
    which elements have a value; None: all of them.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: Array
    strides: tuple[int, ...]
    written: Array | None
    extent: Extent | None = None
    spread: tuple[int, int, int] | None = None
    aggregation: Aggregation | None = field(default=None, init=False)
    combines: bool = field(default=False, init=False)

    @staticmethod
    def given(values: Array, dtype: DType) -> Cells:
        """A buffer that holds `values`."""
        flat = np.ascontiguousarray(values).reshape(-1)
        return Cells(dtype, values.shape, flat.view(_stored(dtype)), row_major(values.shape), None)

    @staticmethod
    def empty(dtype: DType, shape: tuple[int, ...]) -> Cells:
        """A buffer without values that lies nowhere."""
        size = math.prod(shape)
        data = np.zeros(size, _stored(dtype))
        return Cells(dtype, shape, data, row_major(shape), np.zeros(size, np.bool_))

    def index(self, at: Coordinates) -> Array:
        """Where elements lie in `data`."""
        if self.spread is not None:
            dimension, part, step = self.spread
            behind, inside = np.divmod(at[dimension], part)
            index = behind * step + dot((*at[:dimension], inside, *at[dimension + 1 :]), self.strides)
            return np.asarray(index)
        return dot(at, self.strides)

    def start(self, at: Sequence[int], size: Sequence[int]) -> int | None:
        """Where element `at` lies, if a box of that size which starts there lies in one bank."""
        index = 0
        for where, stride in zip(at, self.strides, strict=True):
            index += where * stride
        if self.spread is None:
            return index
        dimension, part, step = self.spread
        bank = at[dimension] // part
        if (at[dimension] + size[dimension] - 1) // part != bank:
            return None
        return index + bank * (step - part * self.strides[dimension])

    def number(self, at: Coordinates, index: Array) -> Array:
        """The numbers of elements in row-major order; `index` is where they lie."""
        numbers = row_major(self.shape)
        return index if self.spread is None and numbers == self.strides else dot(at, numbers)

    def read(self, at: Coordinates, point: Array) -> tuple[Array, Array]:
        """The elements at `at`, and which of them have a value."""
        index = self.index(at)
        if not self.data.size:
            return np.zeros(index.shape, self.dtype.numpy), np.broadcast_to(False, index.shape)
        values = np.asarray(self.data.take(index, mode="clip"))
        if self.dtype is DType.BOOL:
            values = values != 0
        if self.written is None:
            return values, _YES
        return values, np.asarray(self.written.take(self.number(at, index), mode="clip"))

    def written_by(self, at: Coordinates) -> Array:
        """0 for elements that have a value, else -1."""
        if self.written is None:
            return np.asarray(0)
        return np.where(self.written.take(self.number(at, self.index(at)), mode="clip"), 0, -1)

    def write(self, at: Coordinates, values: Array, live: Array, point: Array, grid: Grid) -> Clash | None:
        """One write for each point of `grid` that is live, to elements that all differ."""
        index = self.index(at)
        target, number, value = live_ones(live, grid, index, self.number(at, index), values)
        self.put(target, number, value)
        return None

    def put(self, index: Array, number: Array, values: Array) -> None:
        self.data[index] = values
        if self.written is not None:
            if index.size == self.written.size:
                self.written = None
            else:
                self.written[number] = True

    def results(self) -> tuple[Array, Array]:
        values, written = self.read(box_coordinates([range(n) for n in self.shape], ()), _YES)
        whole = np.broadcast_to(values, self.shape).copy()
        return whole, np.broadcast_to(written, self.shape)

    def addresses(self) -> Array:
        """The address of every byte; for the few cases where intervals don't tell."""
        assert self.extent is not None
        index = self.index(box_coordinates([range(n) for n in self.shape], ())).reshape(-1, 1)
        return self.extent.intervals[0][0] + index * self.dtype.bytes + np.arange(self.dtype.bytes)


@dataclass(slots=True)
class Folding:
    """The writes that one execution of a block aggregates into a buffer, in place.

    Coordinates are those of a box of shape `shape` at `base` in `cells`. `started` says which elements of
    the box were written by this execution: the first write replaces what was there, later ones
    combine with it. None: the old contents are folded in. `wide` holds the sums of f16 and bf16, which
    are rounded once: the next write goes on from there, unless the bytes were changed.
    """

    cells: Cells
    aggregation: Aggregation
    base: Coordinates
    shape: tuple[int, ...]
    started: Array | None
    wide: Array | None
    place: str
    span: Span | None
    combines: bool = field(default=True, init=False)

    @staticmethod
    def open(cells: Cells, ref: Refinement, base: Coordinates, shape: tuple[int, ...], path: str) -> Folding:
        assert ref.aggregation is not None
        size = math.prod(shape)
        started = None if ref.direction is Direction.INOUT else np.zeros(size, np.bool_)
        narrow = accumulator(ref.aggregation, ref.dtype) != ref.dtype.numpy
        wide = np.full(size, np.nan, np.float32) if narrow else None
        place = f"{path}: '{ref.name}'"
        return Folding(cells, ref.aggregation, base, shape, started, wide, place, ref.span)

    def read(self, at: Coordinates, point: Array) -> tuple[Array, Array]:
        values, _ = self.cells.read(added(self.base, at), point)
        return values, np.broadcast_to(False, values.shape)

    def written_by(self, at: Coordinates) -> Array:
        return self.cells.written_by(added(self.base, at))

    def results(self) -> tuple[Array, Array]:
        return self.cells.results()

    def write(self, at: Coordinates, values: Array, live: Array, point: Array, grid: Grid) -> Clash | None:
        """One write for each point of `grid` that is live, to elements that all differ."""
        cells = self.cells
        where = added(self.base, at)
        spot = cells.index(where)
        index, number, inside, value = live_ones(
            live, grid, spot, cells.number(where, spot), dot(at, row_major(self.shape)), values
        )
        self.fold(index, number, inside, value)
        return None

    def fold(self, index: Array, number: Array, inside: Array, value: Array) -> None:
        """One write for each element, given by its place in the data, and its numbers in buffer and box."""
        cells = self.cells
        old = cells.data[index]
        if self.started is None:
            if cells.written is not None and not cells.written[number].all():
                message = f"{self.place} folds in the old value of an element that was not written before"
                raise CompileError(Diagnostic("I021", message, self.span))
            first = np.zeros(index.shape, np.bool_)
        else:
            first = ~self.started[inside]
            self.started[inside] = True
        cells.put(index, number, self._folded(old, value, first, inside))

    def _folded(self, old: Array, value: Array, first: Array, inside: Array) -> Array:
        combine = COMBINE[self.aggregation]
        if self.cells.dtype is DType.BOOL:
            old = old != 0
        if self.wide is None:
            if first.all():
                return value
            folded = combine(old, value, dtype=value.dtype)
            return folded if not first.any() else np.where(first, value, folded)
        kept = self.wide[inside]
        intact = kept.astype(old.dtype).view(np.uint16) == old.view(np.uint16)
        start = np.where(intact, kept, old.astype(np.float32))
        write = value.astype(np.float32)
        wide = np.where(first, write, combine(start, write))
        self.wide[inside] = wide
        return wide.astype(old.dtype)


@dataclass(frozen=True, slots=True)
class _Room:
    """What an allocation needs wherever it lies: `size` bytes in each of `parts` banks."""

    memory: Memory
    arena: Array
    apart: int
    parts: int
    size: int
    elements: int
    stored: np.dtype[Any]
    spread: tuple[int, int, int] | None


class Arenas:
    """The memories of a target as arrays of bytes, as long as the buffers of a program need."""

    def __init__(self, roots: Sequence[Block], hw: HwConfig) -> None:
        self._hw = hw
        self._rooms: dict[int, tuple[Refinement, _Room]] = {}  # by the id of a refinement, which is held
        ends: dict[str, int] = {}
        self._apart: dict[str, int] = {m.name: m.bytes // m.banks for m in hw.memories if m.bytes is not None}
        found = [(root.name, *place) for root in roots for place in _places(root, {})]
        for name, ref, _, address in found:  # a bank without end is as large as what lies in one
            memory = self._memory(ref, name)
            if memory.bytes is None:
                end = address[1] + part_bytes(ref, parts_of(ref, memory.name, hw))
                self._apart[memory.name] = max(self._apart.get(memory.name, 0), -(-end // 64) * 64)
        for name, ref, bank, address in found:
            memory = self._memory(ref, name)
            parts = parts_of(ref, memory.name, hw)
            last = (bank[1] + parts - 1) * self._apart[memory.name] + address[1]
            ends[memory.name] = max(ends.get(memory.name, 0), last + part_bytes(ref, parts))
        self._bytes: dict[str, Array] = {}
        for name, end in ends.items():
            known = hw.memory(name)
            size = end if known is None or known.bytes is None else min(end, known.bytes * known.count)
            if size > _MAX_BYTES:
                message = f"memory {name} is used up to byte {size}, which is more than can be interpreted"
                raise CompileError(Diagnostic("I010", message))
            self._bytes[name] = np.zeros(max(size, 0), np.uint8)

    def cells(self, ref: Refinement, values: Mapping[str, int], path: str) -> Cells:
        """A buffer without values for an allocation, at the place that these indexes (and slot) give it."""
        if not is_placed(ref):
            return Cells.empty(ref.dtype, ref.shape)
        known = self._rooms.get(id(ref))
        if known is None:
            known = self._rooms[id(ref)] = ref, self._room(ref, path)
        room = known[1]
        assert ref.location is not None and ref.location.address is not None and ref.strides is not None
        low = ref.location.address.evaluate(values)
        if ref.location.bank is not None:
            low += ref.location.bank.evaluate(values) * room.apart
        end = low + (room.parts - 1) * room.apart + room.size
        if low < 0 or end > room.arena.size:
            message = f"{path}: '{ref.name}' lies at bytes {low} to {end} of {room.memory.name}"
            raise CompileError(Diagnostic("I026", message, ref.span, (_capacity(room.memory),)))
        starts = range(low, low + room.parts * room.apart, room.apart) if room.parts > 1 else (low,)
        extent = Extent(room.memory.name, tuple((start, start + room.size) for start in starts))
        data = room.arena[low:end].view(room.stored)
        written = np.zeros(room.elements, np.bool_)
        return Cells(ref.dtype, ref.shape, data, ref.strides, written, extent, room.spread)

    def _room(self, ref: Refinement, path: str) -> _Room:
        memory = self._memory(ref, path)
        apart, parts = self._apart[memory.name], parts_of(ref, memory.name, self._hw)
        spread = None
        if parts > 1 and ref.location is not None and ref.location.spread is not None:
            if apart % ref.dtype.bytes:
                message = (
                    f"{path}: a bank of {memory.name} has {apart} bytes: elements of '{ref.name}' would "
                )
                raise CompileError(Diagnostic("I026", f"{message}cross from one to the next", ref.span))
            dimension = ref.location.spread
            spread = (dimension, max(1, -(-ref.shape[dimension] // parts)), apart // ref.dtype.bytes)
        return _Room(
            memory, self._bytes[memory.name], apart, parts, part_bytes(ref, parts), math.prod(ref.shape),
            _stored(ref.dtype), spread,
        )  # fmt: skip

    def _memory(self, ref: Refinement, path: str) -> Memory:
        assert ref.location is not None
        memory = self._hw.memory(ref.location.unit)
        if memory is None:
            message = f"{path}: '{ref.name}' lies in {ref.location.unit}, which {self._hw.name} does not have"
            raise CompileError(Diagnostic("I026", message, ref.span))
        return memory


def is_placed(ref: Refinement) -> bool:
    """Whether a refinement is an allocation at an address of its own."""
    return ref.strides is not None and ref.location is not None and ref.location.address is not None


def share_bytes(a: Cells, b: Cells) -> bool:
    if a.extent is None or b.extent is None or a.extent.memory != b.extent.memory:
        return False
    for low, high in a.extent.intervals:
        for start, end in b.extent.intervals:
            if low < end and start < high:
                return bool(np.intersect1d(a.addresses(), b.addresses()).size)
    return False


def _places(block: Block, outer: Mapping[str, Interval]) -> Iterator[tuple[Refinement, Interval, Interval]]:
    """Each allocation with an address, and closed intervals around its bank and its address."""
    bounds = {
        i.name: (0, max(i.range - 1, 0)) if i.passed is None else i.passed.bounds(outer)
        for i in block.indexes
    }
    here = {**bounds, SLOT: (0, slots_of(block) - 1)}
    for ref in block.refinements:
        if is_placed(ref) and ref.location is not None and ref.location.address is not None:
            bank = ref.location.bank
            yield ref, (0, 0) if bank is None else bank.bounds(here), ref.location.address.bounds(here)
    for child in block.children:
        yield from _places(child, bounds)


def _capacity(memory: Memory) -> str:
    if memory.bytes is None:
        return f"{memory.name} starts at byte 0"
    return f"{memory.name} has {memory.bytes * memory.count} bytes, in {memory.banks * memory.count} banks"


def _stored(dtype: DType) -> np.dtype[Any]:
    """A byte that another buffer wrote may be no bool."""
    return np.dtype(np.uint8) if dtype is DType.BOOL else dtype.numpy
