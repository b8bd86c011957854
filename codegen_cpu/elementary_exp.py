"""exp, and what is made of it: sinh, cosh, tanh, erf, pow.

exp(x) = 2**n * (1 + q): n is x / log(2), rounded; q = exp(r) - 1 for r = x - n * log(2). log(2) is in two
parts after Cody and Waite. Where exp(x) - 1 is asked for, it is q * 2**n + (2**n - 1), as exact near 0 as q:
there n is 0. In f64, whose limits are narrower, functions that cancel near 0 have polynomials there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from codegen_cpu import elementary_coefficients as coefficients
from codegen_cpu.elementary_log import log_pair, log_short
from codegen_cpu.elementary_ops import Ops, Whole, in_double, unless
from codegen_cpu.elementary_pieces import in_pieces
from codegen_cpu.ll import Value

_INVERSE_LOG2 = 1 / math.log(2)


def _parts(o: Ops, x: Value, p: Sequence[float], tail: Value | None = None) -> tuple[Value, Whole]:
    """q and n for x, or for a pair of floats; `p` is the polynomial of q."""
    n, bits = o.nearest(x, _INVERSE_LOG2)
    r = _rest(o, x, n)
    if tail is not None:
        r = o.add(r, tail)
    return _less_one(o, r, p), (n, bits)


def _rest(o: Ops, x: Value, n: Value, times: float = 1.0, near: bool = False) -> Value:
    """r for times * (x - r) = n * log(2); `near`: n is so small that log(2) as one float will do."""
    log2 = coefficients.LOG2_F64 if o.double else coefficients.LOG2_F32
    # Products that are rounded must be exact.
    for part in [sum(log2)] if near and o.machine.fused else log2:
        x = o.mad(n, -part / times, x)
    return x


def _less_one(o: Ops, r: Value, p: Sequence[float], times: float = 1.0, tail: Value | None = None) -> Value:
    """(exp(times * r) - 1) / times, for `times` a power of two, or less one; `tail` is what r lacks."""
    powers = range(len(p), 0, -1)
    polynomial = o.polynomial(r, [c * times**power for c, power in zip(p, powers, strict=True)])
    square = o.mul(r, r)
    return o.mad(polynomial, square, r) if tail is None else o.add(o.mad(polynomial, square, tail), r)


def _usual(o: Ops) -> Sequence[float]:
    return coefficients.EXP_F64 if o.double else coefficients.EXP_F32


def exp(o: Ops, x: Value) -> Value:
    if o.machine.scales:
        return _exp_any(o, x)
    n, power = o.nearest_power(x, _INVERSE_LOG2)
    q = _less_one(o, _rest(o, x, n), _usual(o))
    size = o.abs(x)

    def far() -> Sequence[Value]:
        # What is masked is often so far from 0 that nothing needs to be computed.
        limit = o.choose(o.test("olt", x, 0.0), 0.0, float("inf"))
        near = o.test("ole", size, -_ZERO[o.mantissa])
        return unless(o.f, near, [limit], lambda: [_exp_any(o, x)])

    # Up to here 2**n is a normal number.
    rare = o.test("ogt", size, 708.0 if o.double else 87.0)
    (result,) = unless(o.f, rare, [o.mad(q, power, power)], far)
    return result


_ZERO = {23: -104.0, 52: -746.0}  # from here down exp is 0, and far from there up infinite


def _exp_any(o: Ops, x: Value) -> Value:
    low, high = _ZERO[o.mantissa], 710.0 if o.double else 89.0
    q, whole = _parts(o, o.clamp(x, low, high), _usual(o))
    return o.scaled(q, whole, o.above_zero(x, low))


def tanh(o: Ops, x: Value) -> Value:
    """h / (h + 1) for h = (exp(2 * |x|) - 1) / 2, as a - a * (a / (h + 1)) for a = min(h, 1): what is
    subtracted is at most a half of the result, and so are its errors."""
    if o.double:
        return _tanh_double(o, x)
    size = o.abs(x)
    # From n = 60 on, h only grows.
    n, power = o.nearest_power(size, 2 * _INVERSE_LOG2, most=60)
    q = _less_one(o, _rest(o, size, n, 2.0, near=True), _usual(o), 2.0)
    h = o.mad(q, power, o.mad(power, 0.5, -0.5))
    a = o.clamp(h, None, 1.0)
    return o.flip(o.mad(o.neg(a), o.div(a, o.add(h, 1.0)), a), o.sign(x))


def _tanh_double(o: Ops, x: Value) -> Value:
    """x + x**3 * P(x**2) near 0, elsewhere 1 - 2 / (exp(2x) + 1), up to where that rounds to 1."""
    size = o.abs(x)
    t = o.clamp(size, None, 20.0)
    q, whole = _parts(o, o.add(t, t), _usual(o))
    power = o.power_of_two(whole[1])
    outer = o.sub(1.0, o.div(2.0, o.add(o.mad(q, power, power), 1.0)))
    inner = _odd(o, size, coefficients.TANH_F64)
    return o.copysign(o.choose(o.test("ogt", size, 0.625), outer, inner), x)


def _odd(o: Ops, x: Value, p: Sequence[float]) -> Value:
    """x + x**3 * P(x**2)."""
    square = o.mul(x, x)
    return o.mad(o.mul(o.polynomial(square, p), square), x, x)


def sinh(o: Ops, x: Value) -> Value:
    """x + x**3 * P(x**2) near 0, elsewhere (e - 1 / e) / 2 with e = exp(|x|)."""
    size = o.abs(x)
    half = _half_exp(o, size)
    outer = o.sub(half, o.div(0.25, half))
    return o.copysign(o.choose(o.test("ogt", size, 1.0), outer, _odd(o, size, coefficients.SINH_F64)), x)


def cosh(o: Ops, x: Value) -> Value:
    """(e + 1 / e) / 2 with e = exp(|x|)."""
    half = _half_exp(o, o.abs(x))
    return o.add(half, o.div(0.25, half))


def _half_exp(o: Ops, x: Value) -> Value:
    """exp(x) / 2 for x >= 0; finite longer than exp(x)."""
    q, (n, bits) = _parts(o, o.clamp(x, None, 712.0), _usual(o))
    return o.scaled(q, (o.sub(n, 1.0), o.int_op("sub", bits, 1)))


def erf(o: Ops, x: Value) -> Value:
    """1 - exp(-w) for w = -log(1 - erf(|x|)) = t + t * P(t), up to where that rounds to 1."""
    if o.double:
        return _erf_double(o, x)
    t = o.clamp(o.abs(x), None, 3.9375)
    p = o.polynomial(t, coefficients.ERF_F32)
    # With one rounding more, what the sum loses would count.
    w, tail = (o.mad(p, t, t), None) if o.machine.fused else o.quick_sum(t, o.mul(p, t))
    n, power = o.nearest_power(w, -_INVERSE_LOG2)
    q = _less_one(o, _rest(o, w, n, -1.0, near=True), _usual(o), -1.0, tail)
    return o.flip(o.mad(q, power, o.sub(1.0, power)), o.sign(x))


def _erf_double(o: Ops, x: Value) -> Value:
    """x + x * P(x**2) near 0, elsewhere 1 - exp(-Q(|x|)), up to where that rounds to 1."""
    size = o.abs(x)
    t = o.clamp(size, None, 6.0)
    q, whole = _parts(o, o.neg(o.polynomial(t, coefficients.ERF_FAR_F64)), _usual(o))
    power = o.power_of_two(whole[1])
    outer = o.sub(1.0, o.mad(q, power, power))
    inner = o.mad(o.polynomial(o.mul(x, x), coefficients.ERF_NEAR_F64), size, size)
    return o.copysign(o.choose(o.test("ogt", size, 1.0), outer, inner), x)


def power(o: Ops, x: Value, y: Value) -> Value:
    """exp(y * log(|x|)), with the sign and the exceptions that C99 lists in its Annex F."""
    usual = in_pieces(o, "power_of_size", [x, y])
    least, endless = 1 << o.mantissa, (1 << o.int_type.bits - 1) - (1 << o.mantissa)
    if usual is not None:
        # All that is special needs x < 0, or has no normal number there: their bits are beyond those of such.
        marked = o.int_op("or", o.bits(usual), o.sign(x))
        rare = o.at_least(o.int_op("sub", marked, least), endless - least)
    else:
        size = o.abs(x)
        usual = _power_double(o, size, y) if o.double else in_double(o, [size, y], _power_short)
        # All that is special needs x <= 0, an infinity or NaN: their bits are beyond those of finite x > 0.
        special = o.at_least(o.int_op("sub", o.bits(x), 1), endless - 1)
        rare = o.either(special, o.at_least(o.bits(o.abs(y)), endless))
    (result,) = unless(o.f, rare, [usual], lambda: [_power_any(o, x, y, usual)])
    return result


def _power_any(o: Ops, x: Value, y: Value, usual: Value) -> Value:
    """The power whose size is `usual` where that, of finite numbers, is neither 0 nor infinite."""
    infinity = float("inf")
    size, result = o.abs(x), usual
    # 0 or infinite, whatever the logarithm made of |x| = 0 or infinite.
    ends = o.either(o.test("oeq", size, 0.0), o.test("oeq", size, infinity))
    inside = o.both(o.test("ogt", usual, 0.0), o.test("olt", usual, infinity))
    ends = o.either(ends, o.negated(inside))
    grows = o.differ(o.test("ogt", size, 1.0), o.test("olt", y, 0.0))
    result = o.choose(ends, o.choose(grows, infinity, 0.0), result)
    whole = o.is_whole(y)
    odd = o.differ(whole, o.both(whole, o.is_whole(o.mul(y, 0.5))))
    # A negative number has no power that is not whole; infinite ones count as large and even.
    negative = o.both(o.test("olt", x, 0.0), o.test("ogt", x, -infinity))
    broken = o.differ(whole, o.test("ord", y, y))
    result = o.choose(o.both(negative, broken), float("nan"), result)
    signed = o.flip(result, o.sign(x))
    result = o.choose(odd, signed, result)
    result = o.choose(o.test("uno", x, y), float("nan"), result)
    one = o.either(o.test("oeq", y, 0.0), o.test("oeq", x, 1.0))
    endless = o.test("oeq", o.abs(y), infinity)
    one = o.either(one, o.both(endless, o.test("oeq", size, 1.0)))
    return o.choose(one, 1.0, result)


def _power_short(o: Ops, operands: Sequence[Value]) -> Value:
    """In f64, for a result in f32: the logarithm is good to 2**-40. Rounding to f32 over- and underflows."""
    size, y = operands
    q, whole = _parts(o, o.clamp(o.mul(y, log_short(o, size)), -200.0, 200.0), coefficients.EXP_SHORT)
    scale = o.power_of_two(whole[1])
    return o.mad(q, scale, scale)


def _power_double(o: Ops, size: Value, y: Value) -> Value:
    """The product y * log(|x|) as a pair: it is up to 745, and an error of it one of the result."""
    # With larger exponents the result is 0, 1 or infinite all the same, and nothing overflows.
    y = o.clamp(y, -(2.0**65), 2.0**65)
    high, low = log_pair(o, size)
    product, rest = o.exact_product(y, high)
    rest = o.mad(y, low, rest)
    least = -800.0
    q, whole = _parts(o, o.clamp(product, least, 800.0), _usual(o), o.clamp(rest, -1.0, 1.0))
    return o.scaled(q, whole, o.above_zero(product, least))
