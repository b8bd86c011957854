"""Functions in pieces: polynomials whose coefficients are looked up, 16 of each in one register.

Where one instruction takes 16 floats by 16 numbers, a function needs half of the arithmetic of one
polynomial for all of its range, or less, and no division.

erf and tanh are smooth and soon at their limit, f(x) = x * g(|x|): near 0 the result is as exact as x,
and the sign comes along.

    number = |x| / step, rounded        the piece
    d = |x| - place[number]             exact
    g = c0[number] + d * (c1[number] + d * (...))

exp(x) = 2**(n / 16) * exp(r): the last four bits of n say by which root of two, r is at most log(2) / 32.

log(m * 2**e) = e * log(2) + t * g(t) for t = m - 1, m between 3/4 and 3/2. The first bits of m are the piece,
and say whether m is below 1, with an exponent one less than e. The instructions that take a float apart know
subnormals, and make of 0, infinities and negative numbers what the logarithm does: 2**-inf, 2**inf, NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from codegen_cpu import elementary_coefficients as coefficients
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


def in_pieces(o: Ops, name: str, x: Value) -> Value | None:
    """The function of f32, None if it has no table, or the machine nothing to look it up with."""
    function = _FUNCTIONS.get(name)
    if function is None or o.double or not o.machine.looks_up:
        return None

    def of_register(part: Value) -> Value:
        return function(Ops(o.f, part.type, o.machine), part)

    lanes = x.type.lanes
    if lanes > WIDTH:
        parts = []
        for first in range(0, lanes, WIDTH):
            parts.append(of_register(o.f.shuffle(x, x, range(first, first + WIDTH))))
        while len(parts) > 1:
            joined = range(2 * parts[0].type.lanes)
            parts = [o.f.shuffle(a, b, joined) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]
    if lanes == WIDTH:
        return of_register(x)
    # Fewer lanes take the same way, so that a result does not depend on where its element lies.
    if not lanes:
        wide = o.f.insert(poison(FLOAT.times(WIDTH)), x, 0)
        return o.f.extract(of_register(wide), 0)
    wide = o.f.shuffle(x, x, [lane if lane < lanes else -1 for lane in range(WIDTH)])
    found = of_register(wide)
    return o.f.shuffle(found, found, range(lanes))


def _limited(o: Ops, x: Value, table: _Table) -> Value:
    size = o.clamp(o.abs(x), None, table.top)
    # The lowest bits of the sum are the number; only these are looked at, so NaN does no harm.
    number = o.bits(o.mad(size, 1 / table.step, o.magic))
    places, *rows = (_looked_up(o, row, number) for row in table.rows)
    return o.mul(o.copysign(size, x), _horner(o, rows, o.sub(size, places)))


def _exp(o: Ops, x: Value) -> Value:
    x = o.clamp(x, -104.0, 89.0)  # beyond these the result is 0 or infinite
    # The last place of the sum is a sixteenth.
    moved = o.mad(x, 1 / math.log(2), o.magic / WIDTH)
    n = o.sub(moved, o.magic / WIDTH)
    r = o.mad(n, -coefficients.LOG2_F32[1], o.mad(n, -coefficients.LOG2_F32[0], x))
    q = o.mad(o.polynomial(r, coefficients.EXP_NEAR_F32), o.mul(r, r), r)
    root = _looked_up(o, tables.ROOTS_OF_TWO, o.bits(moved))
    # The instruction scales by 2**n for the whole part of n.
    return o.scaled_by(o.mad(q, root, root), n)


def _log(o: Ops, x: Value) -> Value:
    exponent, m = o.taken_apart(x)
    number = o.int_op("lshr", o.bits(m), o.mantissa - (WIDTH.bit_length() - 1))
    log2 = math.log(2)
    # -1 * log(2) + log(2) is 0 exactly.
    above = _looked_up(o, [0.0] * (WIDTH // 2) + [log2] * (WIDTH // 2), number)
    t = o.sub(m, 1.0)
    slope = _horner(o, [_looked_up(o, row, number) for row in tables.LOG], t)
    return o.mad(t, slope, o.mad(exponent, log2, above))


def _horner(o: Ops, coefficients: Sequence[Value], x: Value) -> Value:
    """The lowest power first."""
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = o.mad(result, x, coefficient)
    return result


def _looked_up(o: Ops, row: Sequence[float], number: Value) -> Value:
    """The entries whose numbers are the lowest bits of `number`."""
    texts = ", ".join(str(constant(FLOAT, entry)) for entry in row)
    entries = Value(FLOAT.times(WIDTH), f"<{texts}>")
    assert number.type == I32.times(WIDTH)
    return o.f.call("llvm.x86.avx512.permvar.sf.512", entries.type, [entries, number])


_FUNCTIONS: dict[str, Callable[[Ops, Value], Value]] = {
    "erf": partial(_limited, table=_Table(tables.ERF_STEP, tables.ERF_TOP, tables.ERF)),
    "tanh": partial(_limited, table=_Table(tables.TANH_STEP, tables.TANH_TOP, tables.TANH)),
    "exp": _exp,
    "log": _log,
}
