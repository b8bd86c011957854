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

x**y = exp(y * log(x)) with log(m) = -log(inverse[piece]) + log(1 + d) for d = m * inverse[piece] - 1,
which is small and exact; the logarithm and its product with y are pairs of floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from codegen_cpu import elementary_coefficients as coefficients
from codegen_cpu import elementary_tables as tables
from codegen_cpu.elementary_ops import Ops, Pair
from codegen_cpu.ll import FLOAT, Value, constant, poison

WIDTH = 16  # the entries of a table, and the lanes that look them up


@dataclass(frozen=True, slots=True)
class _Table:
    """The places of the pieces, then the coefficients of each power; from `top` on f is 1."""

    step: float
    top: float
    rows: Sequence[Sequence[float]]


def in_pieces(o: Ops, name: str, operands: Sequence[Value]) -> Value | None:
    """The function of f32, None if it has no table, or the machine nothing to look it up with.

    `power_of_size` is |x|**y where that, of numbers and |x| > 0, is neither 0 nor infinite as a float;
    elsewhere it is no number between these.
    """
    function = _FUNCTIONS.get(name)
    if function is None or o.double or not o.machine.looks_up:
        return None

    def of_register(parts: Sequence[Value]) -> Value:
        return function(Ops(o.f, parts[0].type, o.machine), *parts)

    lanes = operands[0].type.lanes
    if lanes > WIDTH:
        parts = []
        for first in range(0, lanes, WIDTH):
            parts.append(of_register([o.f.shuffle(x, x, range(first, first + WIDTH)) for x in operands]))
        while len(parts) > 1:
            joined = range(2 * parts[0].type.lanes)
            parts = [o.f.shuffle(a, b, joined) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]
    if lanes == WIDTH:
        return of_register(operands)
    # Fewer lanes take the same way, so that a result does not depend on where its element lies.
    if not lanes:
        wide = [o.f.insert(poison(FLOAT.times(WIDTH)), x, 0) for x in operands]
        return o.f.extract(of_register(wide), 0)
    chosen = [lane if lane < lanes else -1 for lane in range(WIDTH)]
    wide = [o.f.shuffle(x, x, chosen) for x in operands]
    found = of_register(wide)
    return o.f.shuffle(found, found, range(lanes))


def _limited(o: Ops, x: Value, table: _Table) -> Value:
    size = o.clamp(o.abs(x), None, table.top)
    # The lowest bits of the sum are the number; only these are looked at, so NaN does no harm.
    number = o.bits(o.mad(size, 1 / table.step, o.magic))
    places, *rows = (_looked_up(o, row, number) for row in table.rows)
    return o.mul(o.copysign(size, x), _horner(o, rows, o.sub(size, places)))


def _exp(o: Ops, x: Value) -> Value:
    kept = o.above_zero(x, -104.0)
    n, mantissa = _exp_parts(o, o.clamp(x, None, 89.0))  # beyond it the result is infinite
    return o.scaled_by(o.choose(kept, mantissa, 0.0), n)


def _exp_parts(o: Ops, x: Value, rest: Value | None = None) -> Pair:
    """n and m for exp(x + rest) = m * 2**floor(n); the rest is a small part of x."""
    # The last place of the sum is a sixteenth.
    moved = o.mad(x, 1 / math.log(2), o.magic / WIDTH)
    n = o.sub(moved, o.magic / WIDTH)
    high, low = (-part for part in coefficients.LOG2_F32)
    r = o.mad(n, high, x)
    r = o.mad(n, low, r) if rest is None else o.add(r, o.mad(n, low, rest))
    q = o.mad(o.polynomial(r, coefficients.EXP_NEAR_F32), o.mul(r, r), r)
    root = _looked_up(o, tables.ROOTS_OF_TWO, o.bits(moved))
    return n, o.mad(q, root, root)


def _log(o: Ops, x: Value) -> Value:
    exponent, m = o.taken_apart(x)
    number = _piece(o, m)
    log2 = math.log(2)
    # -1 * log(2) + log(2) is 0 exactly.
    above = _looked_up(o, [0.0] * (WIDTH // 2) + [log2] * (WIDTH // 2), number)
    t = o.sub(m, 1.0)
    slope = _horner(o, [_looked_up(o, row, number) for row in tables.LOG], t)
    return o.mad(t, slope, o.mad(exponent, log2, above))


def _piece(o: Ops, m: Value) -> Value:
    """The number whose lowest bits are the first ones of m, behind the point."""
    return o.int_op("lshr", o.bits(m), o.mantissa - (WIDTH.bit_length() - 1))


def _power_of_size(o: Ops, x: Value, y: Value) -> Value:
    """exp(y * log(x)): of a product up to 104, whose error is one of the result, so that all are pairs.

    Nothing is cut off: of a product so large that m is any number, 2**n leaves 0, infinity or NaN.
    """
    exponent, m = o.taken_apart(x, size=True)
    number = _piece(o, m)
    d = o.mad(m, _looked_up(o, tables.INVERSES, number), -1.0)
    # For x near 1 both are 0 exactly.
    whole = o.mad(exponent, coefficients.LOG2_F32[0], _looked_up(o, tables.LOGS_FIRST, number))
    rest = o.mad(exponent, coefficients.LOG2_F32[1], _looked_up(o, tables.LOGS_SECOND, number))
    square, square_rest = o.exact_product(d, d)
    first, first_rest = o.quick_sum(whole, d)
    log = o.mad(square, -0.5, first)
    # What is known first is added up first: each step waits for the one before it.
    rest = o.add(o.mad(square_rest, -0.5, first_rest), rest)
    tail = _horner(o, [o.number(c) for c in reversed(coefficients.LOG_NEAR_F32)], d)
    rest = o.mad(tail, o.mul(square, d), rest)
    log, log_rest = o.quick_sum(log, o.add(o.mad(square, -0.5, o.sub(first, log)), rest))
    product, product_rest = o.exact_product(y, log)
    n, mantissa = _exp_parts(o, product, o.mad(y, log_rest, product_rest))
    return o.scaled_by(mantissa, n)


def _horner(o: Ops, coefficients: Sequence[Value], x: Value) -> Value:
    """The lowest power first."""
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = o.mad(result, x, coefficient)
    return result


def _looked_up(o: Ops, row: Sequence[float], number: Value) -> Value:
    """The entries whose numbers are the lowest bits of `number`."""
    texts = ", ".join(str(constant(FLOAT, entry)) for entry in row)
    assert number.type == o.int_type
    return o.f.call("llvm.x86.avx512.permvar.sf.512", o.type, [Value(o.type, f"<{texts}>"), number])


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "erf": partial(_limited, table=_Table(tables.ERF_STEP, tables.ERF_TOP, tables.ERF)),
    "tanh": partial(_limited, table=_Table(tables.TANH_STEP, tables.TANH_TOP, tables.TANH)),
    "exp": _exp,
    "log": _log,
    "power_of_size": _power_of_size,
}
