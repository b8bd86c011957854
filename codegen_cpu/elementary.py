"""Elementary functions of f32, on whole vectors: polynomials, no tables, no calls.

Each is right over the whole range, with NaN, infinities and subnormals, to about 2 units in the
last place (measured in tests/unit/codegen_cpu/test_elementary.py). Range reductions after Cody and
Waite; the polynomials of exp, log, tanh, sin and cos are those of the Cephes library (Moshier),
that of erf is Juffa's. f64, and functions that are not here, are libm's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from codegen_cpu.ll import DOUBLE, I1, I32, Function, Value, constant

Libm = Callable[[Value], Value]
Elementary = Callable[[Function, Value, Libm], Value]


class _Ops:
    """Short names for instructions on operands like `x`; plain numbers are spread over the lanes."""

    def __init__(self, f: Function, x: Value) -> None:
        self.f = f
        self.type = x.type
        self.int_type = I32.times(x.type.lanes)

    def number(self, value: float) -> Value:
        return constant(self.type, value)

    def add(self, a: Value, b: Value | float) -> Value:
        return self.f.binary("fadd", a, b if isinstance(b, Value) else self.number(b))

    def sub(self, a: Value, b: Value | float) -> Value:
        return self.f.binary("fsub", a, b if isinstance(b, Value) else self.number(b))

    def mul(self, a: Value, b: Value | float) -> Value:
        return self.f.binary("fmul", a, b if isinstance(b, Value) else self.number(b))

    def mad(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """a * b + c, with one rounding where the target does that fast."""
        spread = [v if isinstance(v, Value) else self.number(v) for v in (a, b, c)]
        return self.f.intrinsic("fmuladd", spread)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule, the highest coefficient first."""
        result = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.mad(result, x, coefficient)
        return result

    def int_op(self, op: str, a: Value, b: Value | int) -> Value:
        return self.f.binary(op, a, b if isinstance(b, Value) else constant(self.int_type, b))

    def bits(self, a: Value) -> Value:
        return self.f.convert("bitcast", a, I32)

    def from_bits(self, a: Value) -> Value:
        return self.f.convert("bitcast", a, self.type)

    def whole(self, a: Value) -> Value:
        """A float without fraction as an integer; of a NaN, or of one that is too large, any."""
        return self.f.unary("freeze", self.f.convert("fptosi", a, I32))

    def test(self, how: str, a: Value, b: Value | float) -> Value:
        return self.f.compare(f"fcmp {how}", a, b if isinstance(b, Value) else self.number(b))

    def choose(self, condition: Value, yes: Value | float, no: Value | float) -> Value:
        spread = [v if isinstance(v, Value) else self.number(v) for v in (yes, no)]
        return self.f.select(condition, *spread)


def _power_of_two(o: _Ops, n: Value) -> Value:
    """2**n for integers -126 <= n <= 127."""
    return o.from_bits(o.int_op("shl", o.int_op("add", n, 127), 23))


def exp(f: Function, x: Value, libm: Libm) -> Value:
    """exp(x) = 2**n * exp(r), |r| <= log(2) / 2."""
    o = _Ops(f, x)
    # Beyond these the result is 0 or infinite; NaN fails both tests and stays.
    x = o.choose(o.test("ogt", x, 89.0), 89.0, x)
    x = o.choose(o.test("olt", x, -104.0), -104.0, x)
    n = f.intrinsic("rint", [o.mul(x, 1.44269504088896341)])
    r = o.mad(n, -0.693359375, x)
    r = o.mad(n, 2.12194440e-4, r)
    p = o.polynomial(
        r,
        (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5),
    )
    result = o.add(o.mad(p, o.mul(r, r), r), 1.0)
    # In two steps: 2**n alone can be too large, or subnormal.
    whole = o.whole(n)
    half = o.int_op("ashr", whole, 1)
    result = o.mul(result, _power_of_two(o, half))
    return o.mul(result, _power_of_two(o, o.int_op("sub", whole, half)))


def log(f: Function, x: Value, libm: Libm) -> Value:
    """log(m * 2**e) = log(m) + e * log(2), sqrt(0.5) <= m < sqrt(2)."""
    o = _Ops(f, x)
    small = o.test("olt", x, 2.0**-126)
    scaled = o.choose(small, o.mul(x, 2.0**25), x)
    bits = o.bits(scaled)
    # Counted from sqrt(0.5), so that the mantissa lies around 1.
    above = o.int_op("sub", bits, 0x3F3504F3)
    exponent = f.convert("sitofp", o.int_op("ashr", above, 23), o.type)
    exponent = o.add(exponent, o.choose(small, -25.0, 0.0))
    m = o.from_bits(o.int_op("add", o.int_op("and", above, 0x007FFFFF), 0x3F3504F3))
    t = o.sub(m, 1.0)
    square = o.mul(t, t)
    p = o.polynomial(
        t,
        (
            7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
            -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
        ),
    )  # fmt: skip
    y = o.mul(o.mul(p, t), square)
    y = o.mad(exponent, -2.12194440e-4, y)
    y = o.mad(square, -0.5, y)
    result = o.mad(exponent, 0.693359375, o.add(t, y))
    result = o.choose(o.test("oeq", x, float("inf")), x, result)
    result = o.choose(o.test("oeq", x, 0.0), float("-inf"), result)
    return o.choose(o.test("ult", x, 0.0), float("nan"), result)


def tanh(f: Function, x: Value, libm: Libm) -> Value:
    """A polynomial near 0, elsewhere 1 - 2 / (exp(2x) + 1)."""
    o = _Ops(f, x)
    size = f.intrinsic("fabs", [x])
    square = o.mul(x, x)
    p = o.polynomial(
        square,
        (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1),
    )
    near = o.mad(o.mul(p, square), x, x)
    grown = exp(f, o.add(size, size), libm)
    quotient = f.binary("fdiv", o.number(2.0), o.add(grown, 1.0))
    result = o.choose(o.test("olt", size, 0.625), near, o.sub(o.number(1.0), quotient))
    return f.intrinsic("copysign", [result, x])


def erf(f: Function, x: Value, libm: Libm) -> Value:
    """A polynomial near 0, elsewhere 1 - exp(-q(|x|))."""
    o = _Ops(f, x)
    size, square = f.intrinsic("fabs", [x]), o.mul(x, x)
    # From 4 on the result is 1; without the limit, q would overflow to NaN.
    t = o.choose(o.test("ogt", size, 4.0), 4.0, size)
    s = o.mul(t, t)
    q = o.mad(t, -1.72853470e-5, 3.83197126e-4)
    u = o.mad(t, -3.88396438e-3, 2.42546219e-2)
    q = o.mad(q, s, u)
    for coefficient in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        q = o.mad(q, t, coefficient)
    q = o.mad(q, t, f.unary("fneg", t))
    far = o.sub(o.number(1.0), exp(f, q, libm))
    p = o.polynomial(
        square,
        (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1),
    )
    result = o.choose(o.test("ogt", size, 0.927734375), far, o.mad(p, x, x))
    return f.intrinsic("copysign", [result, x])


_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def _circular(quarter_turns: int) -> Elementary:
    """sin of x plus so many quarter turns. The argument is reduced in f64."""

    def emit(f: Function, x: Value, libm: Libm) -> Value:
        o = _Ops(f, x)
        wide = f.convert("fpext", x, DOUBLE)
        const = partial(constant, wide.type)
        turns = f.intrinsic("rint", [f.binary("fmul", wide, const(0.63661977236758134))])
        # The first part of pi / 2 has 33 bits: its product with up to 20 bits is exact.
        r = f.binary("fsub", wide, f.binary("fmul", turns, const(1.57079632673412561417e00)))
        r = f.binary("fsub", r, f.binary("fmul", turns, const(6.07710050650619224932e-11)))
        reduced = f.convert("fptrunc", r, o.type)
        count = o.whole(turns)
        quadrant = o.int_op("add", count, quarter_turns)
        square = o.mul(reduced, reduced)
        sine = o.mad(o.mul(o.polynomial(square, _SINE), square), reduced, reduced)
        cosine = o.mul(o.mul(o.polynomial(square, _COSINE), square), square)
        cosine = o.add(o.mad(square, -0.5, cosine), 1.0)
        odd = f.convert("trunc", quadrant, I1)
        result = o.choose(odd, cosine, sine)
        sign = o.int_op("shl", o.int_op("and", quadrant, 2), 30)
        result = o.from_bits(o.int_op("xor", o.bits(result), sign))
        if quarter_turns == 0:
            result = o.choose(o.test("oeq", x, 0.0), x, result)  # with its sign
        return _unless(f, o.test("ugt", f.intrinsic("fabs", [x]), 1.0e6), result, lambda: libm(x))

    return emit


def _unless(f: Function, rare: Value, usual: Value, exact: Callable[[], Value]) -> Value:
    """`usual`, or if `rare` holds in any lane, what `exact` computes for all of them."""
    if rare.type.lanes:
        rare = f.call(f"llvm.vector.reduce.or.{rare.type.mangled}", I1, [rare])
    rare = f.unary("freeze", rare)  # lanes that are masked off may hold anything
    slow, done, origin = f.fresh("rare"), f.fresh("usual"), f.label
    f.branch_if(rare, slow, done)
    f.start(slow)
    other, last = exact(), f.label
    f.branch(done)
    f.start(done)
    pairs = f"[ {usual.text}, %{origin} ], [ {other.text}, %{last} ]"
    return f.emit(usual.type, f"phi {usual.type} {pairs}")


ELEMENTARY: dict[str, Elementary] = {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "erf": erf,
    "sin": _circular(0),
    "cos": _circular(1),
}
