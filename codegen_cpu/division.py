"""Many dividends by one divisor: without the divider, and as correctly rounded as with it.

    r = 1 / d                    once
    q = x * r
    q + (x - q * d) * r          two fused multiply-adds

With r rounded to nearest and both residuals exact, this is the quotient rounded to nearest
(P. Markstein, IA-64 and Elementary Functions, 2000). The residuals are exact where nothing comes
near the ends of the range of floats; dividends that do, zeros, infinities and NaN are divided.
"""

from __future__ import annotations

from codegen_cpu.elementary_ops import unless
from codegen_cpu.ll import I32, I64, Function, Value, constant

# The greatest exponents, and less their sign the least, of a divisor and of the dividends.
_EXPONENTS = {"float": (26, 98), "double": (200, 800)}
_FORMATS = {"float": (I32, 127, 23), "double": (I64, 1023, 52)}


def divided_by_one(f: Function, x: Value, divisor: Value) -> Value:
    """The lanes of `x` over a scalar, where the target has fused multiply-adds."""
    of_divisor, of_dividends = _EXPONENTS[x.type.element]
    lanes = x.type.lanes
    one = constant(divisor.type, 1.0)
    reciprocal = f.splat(f.binary("fdiv", one, divisor), lanes)
    d = f.splat(divisor, lanes)
    near = f.binary("fmul", x, reciprocal)
    left = f.intrinsic("fma", [f.unary("fneg", near), d, x])
    usual = f.intrinsic("fma", [left, reciprocal, near])
    # With a divisor out of its range, no dividend is in theirs.
    strange = f.compare("icmp uge", *_above_least(f, divisor, of_divisor))
    distance, span = _above_least(f, x, of_dividends)
    none = constant(span.type.times(0), 0)
    all_ = constant(span.type.times(0), _span(x, of_dividends))
    allowed = f.splat(f.select(strange, none, all_), lanes)
    rare = f.compare("icmp uge", distance, allowed)
    (result,) = unless(f, rare, [usual], lambda: [f.binary("fdiv", x, d)])
    return result


def _above_least(f: Function, x: Value, exponent: int) -> tuple[Value, Value]:
    """How far |x| is above 2**-exponent, and how far 2**exponent is, both as bits; what is below wraps."""
    type_, bias, digits = _FORMATS[x.type.element]
    type_ = type_.times(x.type.lanes)
    bits = f.convert("bitcast", x, type_)
    size = f.binary("and", bits, constant(type_, (1 << (type_.bits - 1)) - 1))
    distance = f.binary("sub", size, constant(type_, (bias - exponent) << digits))
    return distance, constant(type_, _span(x, exponent))


def _span(x: Value, exponent: int) -> int:
    return 2 * exponent << _FORMATS[x.type.element][2]
