"""Rows of elements woven into words in registers: what an instruction that sums groups reads, where the
elements of a group lie in rows one below the other.

    row 0:  a0 a1 a2 ...          words:  a0 b0 c0 d0  a1 b1 c1 d1  ...
    row 1:  b0 b1 b2 ...
    row 2:  c0 c1 c2 ...
    row 3:  d0 d1 d2 ...

A whole vector of each row becomes as many vectors of words as a group has elements. Unpacking works within
pieces of 16 bytes; so that words come out in order, what a piece of the results needs is brought into one
piece of each row first, by the instruction that loads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cpu.access import Accesses, Lanes, Place
from codegen_cpu.ll import Function, Type, Value

PIECE = 16  # bytes within which unpacking works
WORD = 4  # words of a piece


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows, `apart` elements from one to the next, from the first lane of a point on. `beside`: which
    lanes, counted from that one, the code around loads as well."""

    place: Place
    apart: int
    count: int
    beside: range


def woven(f: Function, accesses: Accesses, rows: Rows, lanes: Lanes, width: int) -> Value:
    """The words of the lanes of a point, as integers; `width` of them fill a vector."""
    count, bits = rows.count, 8 * rows.place.buffer.dtype.bytes
    if lanes.mask is None and lanes.width == width:
        number = -rows.beside.start // width % count
        start = -number * width
        if start >= rows.beside.start and start + count * width <= rows.beside.stop:
            made = _of_whole_rows(f, accesses, rows, start, width, bits)
            return f.pure(
                Type(f"i{bits * count}", width), f"bitcast {made[number]} to <{width} x i{bits * count}>"
            )
    n = max(lanes.width, 1)
    found = [_row(f, accesses, rows, at, lanes) for at in range(count)]
    while len(found) > 1:
        found = [
            f.shuffle(a, b, range(2 * a.type.lanes)) for a, b in zip(found[::2], found[1::2], strict=True)
        ]
    mixed = f.shuffle(found[0], found[0], [at * n + lane for lane in range(n) for at in range(count)])
    word = Type(f"i{bits * count}", lanes.width)
    return f.pure(word, f"bitcast {mixed} to {word}")


def _row(f: Function, accesses: Accesses, rows: Rows, at: int, lanes: Lanes) -> Value:
    place = rows.place
    offset = place.offset + at * rows.apart
    if not lanes.width:
        one = accesses.load(Place(place.buffer, offset))
        return f.pure(Type(one.type.element, 1), f"bitcast {one} to <1 x {one.type.element}>")
    return accesses.load_dense(place.buffer, offset, lanes.width, lanes.mask)


def _of_whole_rows(
    f: Function, accesses: Accesses, rows: Rows, start: int, width: int, bits: int
) -> list[Value]:
    """All vectors of words of the rows from lane `start` on, in order."""
    count, pieces = rows.count, width // WORD
    chunk = Type(f"i{bits * WORD}", pieces * count)  # neighbours that go to one piece of a vector of words
    element = Type(f"i{bits}", width * count)
    order = [pieces * vector + piece for piece in range(pieces) for vector in range(count)]
    found = []
    for at in range(count):
        offset = rows.place.offset + at * rows.apart + start
        row = accesses.load_dense(rows.place.buffer, offset, width * count, None)
        parts = f.pure(chunk, f"bitcast {row} to {chunk}")
        found.append(f.pure(element, f"bitcast {f.shuffle(parts, parts, order)} to {element}"))
    return _unpacked(f, found, bits)


def _unpacked(f: Function, rows: list[Value], bits: int) -> list[Value]:
    """Within each piece: the first elements of all rows, the second ones, and so on; in as many vectors."""
    if len(rows) == 1:
        return rows
    half = len(rows) // 2
    pairs = zip(_unpacked(f, rows[:half], bits), _unpacked(f, rows[half:], bits), strict=True)
    lanes, piece = rows[0].type.lanes, 8 * PIECE // bits
    orders = [
        [
            side * lanes + start + first + at
            for start in range(0, lanes, piece)
            for first in range(part * piece // 2, (part + 1) * piece // 2, half)
            for side in (0, 1)
            for at in range(half)
        ]
        for part in (0, 1)
    ]
    return [f.shuffle(a, b, order) for a, b in pairs for order in orders]
