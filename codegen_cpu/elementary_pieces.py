"""Functions in pieces: polynomials whose coefficients are looked up, 16 of each in one register.

Where one instruction takes 16 floats by 16 numbers, a function that is smooth and soon at its limit
needs half of the arithmetic of one polynomial for all of its range, and no division. Each is
f(x) = x * g(|x|): near 0 the result is as exact as x, and the sign comes along.

    number = |x| / step, rounded        the piece
    d = |x| - place[number]             exact
    g = c0[number] + d * (c1[number] + d * (...))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_cpu import elementary_tables as tables
from codegen_cpu.elementary_ops import Ops
from codegen_cpu.ll import FLOAT, I32, Value, constant, poison

WIDTH = 16  # the entries of a table, and the lanes that look them up


@dataclass(frozen=True, slots=True)
class _Table:
    """The places of the pieces, then the coefficients of each power; from `top` on f is 1."""

    step: float
    top: float
    rows: Sequence[Sequence[float]]


_TABLES = {
    "erf": _Table(tables.ERF_STEP, tables.ERF_TOP, tables.ERF),
    "tanh": _Table(tables.TANH_STEP, tables.TANH_TOP, tables.TANH),
}


def in_pieces(o: Ops, name: str, x: Value) -> Value | None:
    """The function of f32, None if it has no table, or the machine nothing to look it up with."""
    table = _TABLES.get(name)
    if table is None or o.double or not o.machine.looks_up:
        return None
    lanes = x.type.lanes
    if lanes > WIDTH:
        parts = []
        for first in range(0, lanes, WIDTH):
            parts.append(_of_register(o, table, o.f.shuffle(x, x, range(first, first + WIDTH))))
        while len(parts) > 1:
            joined = range(2 * parts[0].type.lanes)
            parts = [o.f.shuffle(a, b, joined) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]
    if lanes == WIDTH:
        return _of_register(o, table, x)
    # Fewer lanes take the same way, so that a result does not depend on where its element lies.
    if not lanes:
        wide = o.f.insert(poison(FLOAT.times(WIDTH)), x, 0)
        return o.f.extract(_of_register(o, table, wide), 0)
    wide = o.f.shuffle(x, x, [lane if lane < lanes else -1 for lane in range(WIDTH)])
    found = _of_register(o, table, wide)
    return o.f.shuffle(found, found, range(lanes))


def _of_register(o: Ops, table: _Table, x: Value) -> Value:
    o = Ops(o.f, x.type, o.machine)
    size = o.clamp(o.abs(x), None, table.top)
    # The lowest bits of the sum are the number; only these are looked at, so NaN does no harm.
    number = o.bits(o.mad(size, 1 / table.step, o.magic))
    places, *coefficients = (_looked_up(o, row, number) for row in table.rows)
    d = o.sub(size, places)
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = o.mad(result, d, coefficient)
    return o.mul(o.copysign(size, x), result)


def _looked_up(o: Ops, row: Sequence[float], number: Value) -> Value:
    texts = ", ".join(str(constant(FLOAT, entry)) for entry in row)
    entries = Value(FLOAT.times(WIDTH), f"<{texts}>")
    assert number.type == I32.times(WIDTH)
    return o.f.call("llvm.x86.avx512.permvar.sf.512", entries.type, [entries, number])
