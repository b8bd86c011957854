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
from codegen_cpu.ll import I32, I64, Function, Type, Value, constant

# Divisors from 2**-n to 2**n, and dividends from 2**-m up, for as many powers as half of the exponents.
_EXPONENTS = {"float": (26, 80), "double": (200, 600)}
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
    top = _top_exponent_bit(x.type.times(0))
    none = constant(top.type, 0)
    asked = f.splat(f.select(_strange(f, divisor, of_divisor), none, top), lanes)
    # Said here, not of their lanes' sum: test and branch stay together.
    held = f.binary("and", f.decided(_moved(f, x, of_dividends)), f.decided(asked))
    rare = f.compare("icmp eq", held, constant(held.type, 0))
    (result,) = unless(f, rare, [usual], lambda: [f.binary("fdiv", x, d)])
    return result


def _strange(f: Function, x: Value, exponent: int) -> Value:
    """Whether |x| is not between 2**-exponent and 2**exponent: what is below wraps."""
    type_, bias, digits = _FORMATS[x.type.element]
    bits = f.convert("bitcast", x, type_)
    size = f.binary("and", bits, constant(type_, (1 << (type_.bits - 1)) - 1))
    distance = f.binary("sub", size, constant(type_, (bias - exponent) << digits))
    return f.compare("icmp uge", distance, constant(type_, 2 * exponent << digits))


def _moved(f: Function, x: Value, exponent: int) -> Value:
    """The bits of x with the exponents of dividends moved to where their top bit is set: all others move, or
    wrap, to where it is not."""
    type_, _, digits = _FORMATS[x.type.element]
    type_ = type_.times(x.type.lanes)
    return f.binary("add", f.convert("bitcast", x, type_), constant(type_, (exponent + 1) << digits))


def _top_exponent_bit(element: Type) -> Value:
    type_, _, _ = _FORMATS[element.element]
    return constant(type_, 1 << (type_.bits - 2))
