"""log, and what is made of it: the inverse hyperbolic functions, and the logarithms of pow.

x = m * 2**e with m between sqrt(1/2) and sqrt(2), so that log(x) = e * log(2) + log(m). In f32
log(m) is a polynomial of m - 1, in f64 one of s = (m - 1) / (m + 1): log(m) = 2 * atanh(s).
"""

from __future__ import annotations

from codegen_cpu import elementary_coefficients as coefficients
from codegen_cpu.elementary_ops import Ops, Pair, unless
from codegen_cpu.ll import Value, constant

_ROOT = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2), by those of the mantissa
_LEAST = {23: 2.0**-126, 52: 2.0**-1022}  # the least normal number


def _parted(o: Ops, x: Value, normal: bool = False) -> tuple[Value, Value]:
    """m - 1 and e as floats, for finite x > 0; `normal`: x is not subnormal."""
    # The exponent, with its bias, below a bit that makes it a float.
    usual = 2.0**o.mantissa + o.bias
    scaled, offset = x, o.number(usual)
    if not normal:
        lift = o.mantissa + 2
        small = o.test("olt", x, _LEAST[o.mantissa])
        scaled = o.choose(small, o.mul(x, 2.0**lift), x)
        offset = o.choose(small, usual + lift, usual)
    bits, one = o.bits(scaled), o.bias << o.mantissa
    # Counted from sqrt(1/2), so that m lies around 1.
    exponent = o.int_op("lshr", o.int_op("add", bits, one - _ROOT[o.mantissa]), o.mantissa)
    e = o.from_bits(o.int_op("or", exponent, o.bias + o.mantissa << o.mantissa))
    m = o.int_op("sub", o.int_op("add", bits, one), o.int_op("shl", exponent, o.mantissa))
    return o.sub(o.from_bits(m), 1.0), o.sub(e, offset)


def log(o: Ops, x: Value) -> Value:
    least, infinite = 1 << o.mantissa, 2 * o.bias + 1 << o.mantissa
    # As unsigned numbers, the bits of 0, subnormals and negative numbers are beyond those of infinity.
    above = o.int_op("sub", o.bits(x), least)
    rare = o.f.compare("icmp uge", above, constant(o.int_type, infinite - least))
    (result,) = unless(o.f, rare, [_log_positive(o, x, normal=True)], lambda: [_log_any(o, x)])
    return result


def _log_any(o: Ops, x: Value) -> Value:
    result = _log_positive(o, x)
    result = o.choose(o.test("oeq", x, float("inf")), x, result)
    result = o.choose(o.test("oeq", x, 0.0), float("-inf"), result)
    return o.choose(o.test("ult", x, 0.0), float("nan"), result)


def _log_positive(o: Ops, x: Value, normal: bool = False) -> Value:
    t, e = _parted(o, x, normal)
    if o.double:
        s = o.div(t, o.add(t, 2.0))
        z = o.mul(s, s)
        r = o.mul(o.polynomial(z, coefficients.LOG_F64), z)
        half = o.mul(o.mul(t, 0.5), t)
        # log(m) = t - (half - s * (half + r)): most of it is t, which is exact.
        rest = o.mad(s, o.add(half, r), o.mul(e, coefficients.LOG2_F64[1]))
        return o.mad(e, coefficients.LOG2_F64[0], o.sub(t, o.sub(half, rest)))
    square = o.mul(t, t)
    y = o.mul(o.mul(o.polynomial(t, coefficients.LOG_F32), t), square)
    y = o.mad(e, coefficients.LOG2_F32[1], y)
    y = o.mad(square, -0.5, y)
    return o.mad(e, coefficients.LOG2_F32[0], o.add(t, y))


def log_short(o: Ops, x: Value) -> Value:
    """In f64, to 2**-40; x is finite and not subnormal, else the result is any number."""
    t, e = _parted(o, x, normal=True)
    square = o.mul(t, t)
    y = o.mad(o.mul(o.polynomial(t, coefficients.LOG_SHORT), t), square, o.mul(square, -0.5))
    return o.mad(e, sum(coefficients.LOG2_F64), o.add(t, y))


def log_pair(o: Ops, x: Value) -> Pair:
    """The logarithm as a pair of f64, to about 2**-65; of 0, NaN and infinity it is any number.

    2 * atanh(s) = 2s + s**3 * (2/3 + s**2 * P(s**2)): all but P is computed in pairs.
    """
    f, e = _parted(o, x)
    d, d_low = o.quick_sum(o.number(2.0), f)
    inverse = o.div(1.0, d)
    s = o.mul(f, inverse)
    back, back_low = o.exact_product(s, d)
    left = o.sub(o.sub(f, back), back_low)
    s_low = o.mul(o.sub(left, o.mul(s, d_low)), inverse)
    z, z_low = o.exact_product(s, s)
    z_low = o.mad(o.add(s, s), s_low, z_low)
    cube, cube_low = o.exact_product(s, z)
    cube_low = o.add(cube_low, o.mad(s, z_low, o.mul(s_low, z)))
    third, third_low = coefficients.TWO_THIRDS
    w, w_low = o.quick_sum(o.number(third), o.mul(o.polynomial(z, coefficients.LOG_LONG), z))
    w_low = o.add(w_low, third_low)
    v, v_low = o.exact_product(cube, w)
    v_low = o.add(v_low, o.mad(cube, w_low, o.mul(cube_low, w)))
    total, low = o.quick_sum(o.mul(e, coefficients.LOG2_F64[0]), o.add(s, s))
    total, lower = o.quick_sum(total, v)
    rest = o.add(o.add(s_low, s_low), v_low)
    rest = o.add(o.mad(e, coefficients.LOG2_F64[1], rest), o.add(low, lower))
    return o.quick_sum(total, rest)


def _log1p(o: Ops, u: Value, tail: Value | None = None) -> Value:
    """log(1 + u): what the sum 1 + u loses is added to its logarithm, and the `tail` that u lacks."""
    w = o.add(u, 1.0)
    before = o.sub(w, 1.0)
    lost = o.choose(o.test("ogt", u, 1.0), o.sub(1.0, o.sub(w, u)), o.sub(u, before))
    lost = lost if tail is None else o.add(lost, tail)
    lost = o.choose(o.test("oeq", w, float("inf")), 0.0, lost)
    return o.add(log(o, w), o.div(lost, w))


def asinh(o: Ops, x: Value) -> Value:
    """log(|x| + sqrt(x**2 + 1)), as log(1 + ...)."""
    size = o.abs(x)
    square = o.mul(size, size)
    small = o.add(size, o.div(square, o.add(o.sqrt(o.add(square, 1.0)), 1.0)))
    return o.copysign(_of_large(o, size, small), x)


def acosh(o: Ops, x: Value) -> Value:
    """log(x + sqrt(x**2 - 1)), as log(1 + ...)."""
    t = o.sub(x, 1.0)
    result = _of_large(o, x, o.add(t, o.sqrt(o.mad(t, t, o.add(t, t)))))
    return o.choose(o.test("ult", x, 1.0), float("nan"), result)


def _of_large(o: Ops, x: Value, usual: Value) -> Value:
    """log(1 + usual), or log(2 * x) where x is so large that its square might overflow."""
    large = o.test("ogt", x, 2.0**28)
    argument = o.choose(large, o.sub(x, 1.0), usual)
    return o.add(_log1p(o, argument), o.choose(large, sum(coefficients.LOG2_F64), 0.0))


def atanh(o: Ops, x: Value) -> Value:
    """log((1 + |x|) / (1 - |x|)) / 2, as log(1 + ...)."""
    size = o.abs(x)
    below = o.sub(1.0, size)
    lost = o.sub(o.sub(1.0, below), size)
    ratio = o.div(o.add(size, size), below)
    tail = o.neg(o.div(o.mul(ratio, lost), below))
    return o.copysign(o.mul(_log1p(o, ratio, tail), 0.5), x)
