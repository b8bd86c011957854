"""Loads and stores of single elements and of vectors along a lane index.

A vector access has a step: the distance, in elements, from one lane to the next.

    step 0        one element for all lanes (loads only)
    step 1, -1    a vector load or store, reversed for -1
    step 2 to 4   loads of whole vectors and shuffles, where it is known ahead which lanes are off; stores
                  of whole vectors, under masks of the elements between, where the target has these. With such
                  masks, AVX-512's, a shuffle takes any lanes of two vectors: up to step 8
    others        gather and scatter, which LLVM takes apart where the target has none; squares of
                  elements, which are turned in registers, are codegen_cpu.squares

Under a mask, lanes that are off touch no memory; on the stack, where nobody else looks, the
whole vector is read and written back, so that LLVM can keep the buffer in registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from codegen_cpu.layout import Buffer
from codegen_cpu.ll import I1, I32, I64, PTR, VOID, Function, Type, Value, constant, constants, poison, zero
from codegen_cpu.loops import Indexing
from codegen_cpu.scalars import memory_type
from stripe.affine import Affine

NARROWED = 4  # bytes of elements that are stored as narrower ones
_SHUFFLED = range(2, 5)  # steps for which shuffles are worth it
_SHUFFLED_BY_MASKS = range(2, 9)  # the same where one takes any lanes of two vectors


@dataclass(frozen=True, slots=True)
class Lanes:
    """A vector of points: `width` values of the lane index from `base` on (width 0: one point).

    `mask` says which lanes are points at all; at least one is. None means all of them. `on`: these
    lanes, where that is known ahead.
    """

    index: str
    width: int
    mask: Value | None = None
    on: range | None = None


SCALAR = Lanes("", 0)


@dataclass(frozen=True, slots=True)
class Place:
    """The elements that an access touches: `offset` for lane 0, and `step` from lane to lane."""

    buffer: Buffer
    offset: Affine
    step: int = 0


class Accesses:
    """Emits loads and stores of a function."""

    def __init__(self, f: Function, indexing: Indexing, streams: int, masks: bool, narrows: bool) -> None:
        """`streams`: bytes of what goes past the caches in one store. `narrows`: LLVM has instructions that
        store a vector of wide elements as narrow ones, under a mask. Where just one lane is on, LLVM 22
        stores that one wide (llvm/llvm-project#179489)."""
        self.f = f
        self._streams, self._masks, self._narrows = streams, masks, narrows
        self._shuffled = _SHUFFLED_BY_MASKS if masks else _SHUFFLED
        self._indexing = indexing

    def pointer(self, buffer: Buffer, offset: Affine) -> Value:
        """The variable part first, then the constant: the first is shared, the second folds away."""
        element = memory_type(buffer.dtype)
        pointer = buffer.pointer
        if buffer.birth is not None and not offset.terms:
            return self.f.fixed(pointer, element, offset.const) if offset.const else pointer
        if offset.terms:
            for part in self._indexing.parts(offset - offset.const):
                pointer = self.f.offset(pointer, element, part)
        if offset.const:
            pointer = self.f.offset(pointer, element, constant(I64, offset.const))
        return pointer

    def _place(self, buffer: Buffer, offset: Affine, type_: Type) -> Value:
        """`pointer`, to an element or vector that holds no value where its buffer begins to live."""
        birth, part = buffer.birth, (offset.const, type_)
        if birth is not None and birth.place is not None and not offset.terms and part not in birth.parts:
            birth.parts.add(part)
            with self.f.at(birth.place):
                self.f.store(poison(type_), self.pointer(buffer, offset), 1)
        return self.pointer(buffer, offset)

    def load(self, place: Place, lanes: Lanes = SCALAR) -> Value:
        """The elements, as memory holds them; a single one if the place does not depend on the lane."""
        buffer, step, width = place.buffer, place.step, lanes.width
        if not width or step == 0:
            type_ = memory_type(buffer.dtype)
            pointer, align = self._place(buffer, place.offset, type_), self._align(buffer, place.offset)
            return self._loaded(type_, buffer, pointer, align)
        if abs(step) == 1:
            mask = _turned(self.f, lanes.mask, step)
            value = self.load_dense(buffer, self._first(place, width), width, mask)
            return self._reversed(value) if step == -1 else value
        if step in self._shuffled and (lanes.mask is None or lanes.on is not None):
            return self._load_spaced(place, width, lanes.on or range(width))
        type_ = memory_type(buffer.dtype, width)
        pointers = self._pointers(place, width)
        name = f"llvm.masked.gather.{type_.mangled}.{pointers.type.mangled}"
        operands = [pointers, constant(I32, buffer.dtype.bytes), self._mask(lanes), zero(type_)]
        return self.f.emit(type_, self._call(name, operands, type_) + buffer.suffix)

    def load_words(self, place: Place, lanes: Lanes, size: int) -> Value:
        """`size` neighbouring elements as one integer: a word for each lane, where the place depends on
        the lane and those of the lanes lie one after the other; else one."""
        buffer = place.buffer
        word = Type(f"i{8 * buffer.dtype.bytes * size}")
        pointer, align = self.pointer(buffer, place.offset), self._align(buffer, place.offset)
        if not lanes.width or not place.step:
            return self._loaded(word, buffer, pointer, align)
        type_ = word.times(lanes.width)
        if lanes.mask is None:
            return self._loaded(type_, buffer, pointer, align)
        return self._masked_load(type_, buffer, pointer, align, lanes.mask)

    def store(self, value: Value, place: Place, lanes: Lanes = SCALAR) -> None:
        """Write elements, given as memory holds them: one for each lane, or one to a single place."""
        f, buffer, step = self.f, place.buffer, place.step
        if buffer.birth is not None:
            buffer.birth.is_written = True
        if not lanes.width:
            align = self._align(buffer, place.offset)
            f.store(value, self._place(buffer, place.offset, value.type), align, buffer.suffix)
        elif abs(step) == 1:
            mask = _turned(f, lanes.mask, step)
            value = self._reversed(value) if step == -1 else value
            self.store_dense(value, buffer, self._first(place, lanes.width), mask)
        elif self._masks and step in self._shuffled and (lanes.mask is None or lanes.on is not None):
            self._store_spaced(value, place, lanes.on or range(lanes.width))
        else:
            pointers = self._pointers(place, lanes.width)
            name = f"llvm.masked.scatter.{value.type.mangled}.{pointers.type.mangled}"
            operands = [value, pointers, constant(I32, buffer.dtype.bytes), self._mask(lanes)]
            f.line(self._call(name, operands, VOID) + buffer.suffix)

    def ask(self, buffer: Buffer, offset: Affine, cache: int) -> None:
        """Ask for the line of an element, to be brought to a cache: 3 is the nearest, as LLVM counts."""
        self._prefetch(buffer, offset, constant(I32, 0), cache)

    def ask_to_write(self, buffer: Buffer, offset: Affine) -> None:
        """Ask for the line of an element, to be brought to the nearest cache and be written there."""
        self._prefetch(buffer, offset, constant(I32, 1), 3)

    def _prefetch(self, buffer: Buffer, offset: Affine, writes: Value, cache: int) -> None:
        pointer = self.pointer(buffer, offset)
        self.f.module.declare("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
        near, data = constant(I32, cache), constant(I32, 1)
        self.f.line(f"call void @llvm.prefetch.p0({pointer}, {writes}, {near}, {data})")

    # -- neighbouring elements -----------------------------------------------------------

    def _first(self, place: Place, width: int) -> Affine:
        """The lowest address that the lanes touch."""
        return place.offset - (width - 1) if place.step < 0 else place.offset

    def load_dense(self, buffer: Buffer, offset: Affine, width: int, mask: Value | None) -> Value:
        """`width` elements side by side, from `offset` on."""
        type_ = memory_type(buffer.dtype, width)
        pointer, align = self._place(buffer, offset, type_), self._align(buffer, offset)
        if mask is None or self._is_spare(buffer, offset, width):
            return self._loaded(type_, buffer, pointer, align)
        return self._masked_load(type_, buffer, pointer, align, mask)

    def _loaded(self, type_: Type, buffer: Buffer, pointer: Value, align: int) -> Value:
        """What memory holds; once for all that ask the same, where nobody writes it."""
        if buffer.constant:
            return self.f.pure(type_, f"load {type_}, {pointer}, align {align}{buffer.suffix}")
        return self.f.load(type_, pointer, align, buffer.suffix)

    def begin(self, value: Value, place: Place) -> Value:
        """Let part of a buffer that nobody else sees begin with a value, here; where it lies."""
        pointer = self.pointer(place.buffer, place.offset)
        self.f.store(value, pointer, 1, place.buffer.suffix)
        return pointer

    def _masked_load(self, type_: Type, buffer: Buffer, pointer: Value, align: int, mask: Value) -> Value:
        operands = [pointer, constant(I32, align), mask, zero(type_)]
        call = self._call(f"llvm.masked.load.{type_.mangled}.p0", operands, type_)
        return self.f.emit(type_, call + buffer.suffix)

    def store_dense(self, value: Value, buffer: Buffer, offset: Affine, mask: Value | None) -> None:
        """Write elements side by side, from `offset` on."""
        f = self.f
        if buffer.birth is not None:
            buffer.birth.is_written = True
        pointer, align = self._place(buffer, offset, value.type), self._align(buffer, offset)
        if mask is not None and self._is_spare(buffer, offset, value.type.lanes):
            old = f.load(value.type, pointer, align, buffer.suffix)
            value, mask = f.select(mask, value, old), None
        if mask is None:
            lines = align >= self._streams and value.type.lanes * buffer.dtype.bytes % self._streams == 0
            lines = lines and buffer.at_line is None
            f.store(value, pointer, align, buffer.suffix + (buffer.streams if lines else ""))
            return
        if self._narrows and buffer.dtype.bytes < NARROWED:
            mask = f.opaque_mask(mask)
        operands = [value, pointer, constant(I32, align), mask]
        f.line(self._call(f"llvm.masked.store.{value.type.mangled}.p0", operands, VOID) + buffer.suffix)

    def is_spare(self, place: Place, lanes: Lanes) -> bool:
        """Whether lanes that are off may be read and written, too: on the stack, where nobody else looks."""
        return place.step == 1 and self._is_spare(place.buffer, place.offset, lanes.width)

    def _is_spare(self, buffer: Buffer, offset: Affine, width: int) -> bool:
        if buffer.spare is None:
            return False
        low, high = offset.bounds(self._indexing.ranges)
        return low >= 0 and high + width <= buffer.spare

    def _reversed(self, value: Value) -> Value:
        return self.f.shuffle(value, value, range(value.type.lanes - 1, -1, -1))

    # -- spaced elements -----------------------------------------------------------------

    def _load_spaced(self, place: Place, width: int, on: range) -> Value:
        """Vectors lie one after the other from the element of the first lane that is on; the last one ends
        with the last element, or what is behind that is masked off. Lanes that are off get the first element.
        """
        step = place.step
        origin, behind = on[0] * step, on[-1] * step + 1
        starts = [*range(origin, behind, width)]
        starts[-1] = max(origin, behind - width)
        result: Value | None = None
        for number, start in enumerate(starts):
            used = [start + at < behind for at in range(width)]
            mask = None if all(used) else constants(I1, used)
            part = self.load_dense(place.buffer, place.offset + start, width, mask)
            chosen = []
            for lane in range(width):
                at = lane * step if lane in on else origin
                mine = min((at - origin) // width, len(starts) - 1) == number
                chosen.append(at - start if mine else -1)
            if result is None:
                result = self.f.shuffle(part, part, chosen)
            else:
                merged = [width + at if at >= 0 else lane for lane, at in enumerate(chosen)]
                result = self.f.shuffle(result, part, merged)
        assert result is not None
        return result

    def _store_spaced(self, value: Value, place: Place, on: range) -> None:
        """The lanes that are on go to their places in vectors that lie one after the other from the first of
        them on, and are written where such a lane is."""
        step, width = place.step, value.type.lanes
        for start in range(on[0] * step, on[-1] * step + 1, width):
            places = range(start, start + width)
            used = [at % step == 0 and at // step in on for at in places]
            if any(used):
                lanes = [at // step if use else -1 for at, use in zip(places, used, strict=True)]
                spread = self.f.shuffle(value, value, lanes)
                self.store_dense(spread, place.buffer, place.offset + start, constants(I1, used))

    def _pointers(self, place: Place, width: int) -> Value:
        offsets = constants(I64, [lane * place.step for lane in range(width)])
        base = self.pointer(place.buffer, place.offset)
        return self.f.offset(base, memory_type(place.buffer.dtype), offsets)

    def _mask(self, lanes: Lanes) -> Value:
        return lanes.mask if lanes.mask is not None else constant(I1.times(lanes.width), True)

    # -- details -------------------------------------------------------------------------

    def _call(self, name: str, operands: list[Value], result: Type) -> str:
        self.f.module.declare(name, result, [o.type for o in operands])
        return f"call {result} @{name}({', '.join(map(str, operands))})"

    def _align(self, buffer: Buffer, offset: Affine) -> int:
        """The alignment that every value of the offset is sure to have."""
        size = buffer.dtype.bytes
        multiples = self._indexing.multiples
        terms = (size * c * multiples.get(name, 1) for name, c in offset.terms)
        common = math.gcd(buffer.align, size * offset.const, *terms)
        return common & -common


def _turned(f: Function, mask: Value | None, step: int) -> Value | None:
    if mask is None or step > 0:
        return mask
    return f.shuffle(mask, mask, range(mask.type.lanes - 1, -1, -1))
