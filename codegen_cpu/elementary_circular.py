"""sin, cos, tan and their inverses.

The argument is brought near 0 by whole multiples of pi (f32) or pi / 2 (f64). Pi is in parts whose products
with these multiples are exact, or lose what does not matter. Very large arguments, which take a
branch of their own, are multiplied by as many digits of 1 / pi as they need (Payne and Hanek).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from codegen_cpu import elementary_coefficients as coefficients
from codegen_cpu.elementary_ops import Ops, in_double, repeated, table, unless
from codegen_cpu.ll import DOUBLE, Value

# Up to here multiples of pi are right: of f32 in f32, of f32 in f64, of f64 in pairs of f64.
_NEAR_F32, _FAR_F32, _NEAR_F64 = 2.0**16, 2.0**21, 2.0**20


def circular_f32(o: Ops, x: Value, quarter: bool) -> Value:
    """sin(x), or sin(|x| + pi / 2): the sine of what is left of |x|, negated where a multiple is odd."""
    size = o.abs(x)
    if o.machine.fused:
        limit, usual = _NEAR_F32, _sine(o, _reduced(o, size, coefficients.PI_F32, quarter))
    else:
        limit, usual = _FAR_F32, in_double(o, [size], partial(_usual_in_double, quarter=quarter))

    def huge() -> Sequence[Value]:
        return [in_double(o, [size], partial(_huge, quarter=quarter))]

    (result,) = unless(o.f, o.test("ugt", size, limit), [usual], huge)
    return result if quarter else o.flip(result, o.sign(x))


def _usual_in_double(o: Ops, x: Sequence[Value], quarter: bool) -> Value:
    return _sine(o, _reduced(o, x[0], coefficients.PI_F64, quarter))


def _huge(o: Ops, x: Sequence[Value], quarter: bool) -> Value:
    return _sine(o, _digits(o, x[0], quarter))


def _sine(o: Ops, r: Value) -> Value:
    """sin(r) to the precision of f32, |r| <= pi / 2."""
    square = o.mul(r, r)
    return o.mad(o.mul(o.polynomial(square, coefficients.SIN_F32), square), r, r)


def _reduced(o: Ops, x: Value, pi: Sequence[float], quarter: bool) -> Value:
    """x - n * pi (x + pi / 2 - n * pi), negated where n is odd."""
    if quarter:
        n, whole = o.nearest(o.mad(x, 1 / math.pi, 0.5))
        n = o.sub(n, 0.5)
    else:
        n, whole = o.nearest(x, 1 / math.pi)
    for part in pi:
        x = o.mad(n, -part, x)
    return o.flip(x, o.odd_sign(whole))


def _digits(o: Ops, x: Value, quarter: bool) -> Value:
    """As `_reduced`, in f64, for any x >= 0 that an f32 can hold.

    The products of x with the digits of 1 / pi are exact. Multiples of 2 leave each of them, whole
    numbers leave their sum: what remains is small and exact, until the digits count for nothing.
    """
    total, odd = o.number(0.5 if quarter else 0.0), o.number(0.0)
    for digits in coefficients.INVERSE_PI:
        product = o.mul(x, digits)
        twos = o.sub(o.mad(product, 0.5, o.magic), o.magic)
        total = o.add(total, o.sub(product, o.add(twos, twos)))
        whole, _ = o.nearest(total)
        total, odd = o.sub(total, whole), o.add(odd, whole)
    _, whole_bits = o.nearest(odd)
    return o.flip(o.mul(total, math.pi), o.odd_sign(whole_bits))


# -- f64 ---------------------------------------------------------------------------------------


def _quarters(o: Ops, x: Value) -> Sequence[Value]:
    """x - n * pi / 2 as a pair, and n, for x >= 0."""
    usual = _near_quarters(o, x)
    return unless(o.f, o.test("ugt", x, _NEAR_F64), usual, lambda: _far_quarters(o, x))


def _near_quarters(o: Ops, x: Value) -> Sequence[Value]:
    n, whole = o.nearest(x, 2 / math.pi)
    a, b, c, d = coefficients.HALF_PI
    r = o.sub(x, o.mul(n, a))
    r, low = o.exact_sum(r, o.mul(n, -b))
    r, lower = o.exact_sum(r, o.mul(n, -c))
    low = o.add(low, o.mad(n, -d, lower))
    return [*o.quick_sum(r, low), whole]


def _far_quarters(o: Ops, x: Value) -> Sequence[Value]:
    """For any x. As in `_digits`, but with all digits that f64 has use for, one after the other,
    x in halves so that products are exact, and their sum in a pair."""
    # The digits come multiplied by 2**500, so that none is too small for an f64.
    address = table(o.f, "stripec.inverse.half.pi", coefficients.INVERSE_HALF_PI)
    x = o.mul(x, 2.0**-500)
    high = o.from_bits(o.int_op("and", o.bits(x), -(1 << 26)))
    halves = high, o.sub(x, high)

    def step(number: Value, values: Sequence[Value]) -> Sequence[Value]:
        total, low, turns = values
        digits = o.f.load(DOUBLE, o.f.offset(address, DOUBLE, number), 8)
        for half in halves:
            product = o.mul(half, o.f.splat(digits, o.type.lanes))
            fours = o.sub(o.mad(product, 0.25, o.magic), o.magic)
            total, error = o.exact_sum(total, o.sub(product, o.mul(fours, 4.0)))
            whole, _ = o.nearest(total)
            turns = o.add(turns, whole)
            total, low = o.quick_sum(o.sub(total, whole), o.add(low, error))
        return total, low, turns

    zero = o.number(0.0)
    total, low, turns = repeated(o.f, len(coefficients.INVERSE_HALF_PI), [zero, zero, zero], step)
    pi, pi_low = coefficients.HALF_PI_PAIR
    r, error = o.exact_product(total, o.number(pi))
    error = o.add(error, o.mad(total, pi_low, o.mul(low, pi)))
    return [*o.quick_sum(r, error), o.nearest(turns)[1]]


def _both(o: Ops, r: Value, low: Value) -> tuple[Value, Value]:
    """Sine and cosine of a pair, at most pi / 4."""
    square = o.mul(r, r)
    half = o.mul(square, 0.5)
    cube = o.mul(square, r)
    sine = o.add(r, o.mad(cube, o.polynomial(square, coefficients.SIN_F64), o.sub(low, o.mul(half, low))))
    one = o.sub(1.0, half)
    rest = o.sub(o.sub(o.sub(1.0, one), half), o.mul(r, low))
    fourth = o.mul(square, square)
    cosine = o.add(one, o.mad(fourth, o.polynomial(square, coefficients.COS_F64), rest))
    return sine, cosine


def circular_f64(o: Ops, x: Value, quarter: bool) -> Value:
    """sin(x), or sin(|x| + pi / 2)."""
    r, low, whole = _quarters(o, o.abs(x))
    sine, cosine = _both(o, r, low)
    if quarter:
        whole = o.int_op("add", whole, 1)
    result = o.choose(o.is_odd(whole), cosine, sine)
    result = o.flip(result, o.odd_sign(o.int_op("lshr", whole, 1)))
    return result if quarter else o.flip(result, o.sign(x))


def tan(o: Ops, x: Value) -> Value:
    """Sine by cosine, or by the other way round with its sign turned."""
    r, low, whole = _quarters(o, o.abs(x))
    sine, cosine = _both(o, r, low)
    odd = o.is_odd(whole)
    result = o.div(o.choose(odd, cosine, sine), o.choose(odd, sine, cosine))
    return o.flip(result, o.int_op("xor", o.odd_sign(whole), o.sign(x)))


# -- inverses ----------------------------------------------------------------------------------


def _arc(o: Ops, x: Value) -> tuple[Value, Value, Value, Value]:
    """|x| > 1/2; what asin is a multiple of there, or near 0: a main part and a rest; |x|.

    For |x| > 1/2, asin(|x|) = pi / 2 - 2 * asin(s) with s = sqrt((1 - |x|) / 2).
    """
    size = o.abs(x)
    far = o.test("ogt", size, 0.5)
    z = o.choose(far, o.mul(o.sub(1.0, size), 0.5), o.mul(size, size))
    root = o.sqrt(z)
    squared, error = o.exact_product(root, root)
    lost = o.div(o.sub(o.sub(z, squared), error), o.add(o.add(root, root), _TINY))
    s = o.choose(far, root, size)
    p = o.mul(o.mul(o.polynomial(z, coefficients.ASIN_F64), z), s)
    return far, s, o.add(p, o.choose(far, lost, 0.0)), size


_TINY = 2.0**-1000  # keeps 0 / 0 away and changes no other sum


def asin(o: Ops, x: Value) -> Value:
    far, s, p, _ = _arc(o, x)
    pi, pi_low = coefficients.HALF_PI_PAIR
    outer = _less(o, pi, pi_low, o.add(s, s), o.add(p, p))
    return o.copysign(o.choose(far, outer, o.add(s, p)), x)


def acos(o: Ops, x: Value) -> Value:
    """pi / 2 - asin(x); far out 2 * asin(s), or pi less that."""
    far, s, p, _ = _arc(o, x)
    below = o.test("olt", x, 0.0)
    pi, pi_low = coefficients.HALF_PI_PAIR
    twice, twice_p = o.add(s, s), o.add(p, p)
    left = _less(o, 2 * pi, 2 * pi_low, twice, twice_p)
    outer = o.choose(below, left, o.add(twice, twice_p))
    sign = o.sign(x)
    return o.choose(far, outer, _less(o, pi, pi_low, o.flip(s, sign), o.flip(p, sign)))


def _less(o: Ops, base: float, base_low: float, main: Value, rest: Value) -> Value:
    """base - (main + rest), base and its rest being a pair that is the larger."""
    difference, lost = o.quick_sum(o.number(base), o.neg(main))
    return o.add(difference, o.sub(o.add(lost, base_low), rest))


def atan(o: Ops, x: Value) -> Value:
    """atan(r), plus pi / 4 with r = (|x| - 1) / (|x| + 1), or plus pi / 2 with r = -1 / |x|."""
    size = o.abs(x)
    middle, far = (o.test("ogt", size, limit) for limit in (math.sqrt(2) - 1, math.sqrt(2) + 1))
    above = o.choose(far, -1.0, o.choose(middle, o.sub(size, 1.0), size))
    below = o.choose(far, size, o.choose(middle, o.add(size, 1.0), 1.0))
    pi, pi_low = coefficients.HALF_PI_PAIR
    base = o.choose(far, pi, o.choose(middle, pi / 2, 0.0))
    base_low = o.choose(far, pi_low, o.choose(middle, pi_low / 2, 0.0))
    r = o.div(above, below)
    z = o.mul(r, r)
    rest = o.mad(o.mul(o.polynomial(z, coefficients.ATAN_F64), z), r, base_low)
    return o.copysign(o.add(base, o.add(r, rest)), x)
