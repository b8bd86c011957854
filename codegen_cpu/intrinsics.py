"""Each intrinsic of stripe.intrinsics as LLVM instructions, on scalars and on vectors alike.

`EMITTERS` is the table: name -> function(arithmetic, operands in registers, element type).
Operands have one type and as many lanes. f16 and bf16 arrive as floats; `apply` rounds the result.
Elementary functions are those of codegen_cpu.elementary; the remainder of floats is libm's, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from codegen_cpu.division import divided_by_one
from codegen_cpu.elementary import NAMES as ELEMENTARY
from codegen_cpu.elementary import elementary
from codegen_cpu.elementary_ops import Machine
from codegen_cpu.ll import Function, Type, Value, constant, constants, poison
from codegen_cpu.scalars import NARROW_FLOATS, Conversions, Scalar, register_type
from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS, neutral
from stripe.ir import Aggregation


class Arithmetic(Conversions):
    """Applies intrinsics and aggregations to scalars, and reduces vectors to one lane."""

    def __init__(self, f: Function, native_half: bool, machine: Machine) -> None:
        super().__init__(f, native_half)
        self.machine = machine

    def apply(self, op: str, operands: Sequence[Scalar]) -> Scalar:
        """The result of an intrinsic; operands of one lane are spread over the lanes of others."""
        lanes = max(o.lanes for o in operands)
        dtype = operands[-1].dtype
        if op == "div" and dtype.is_float and self.machine.fused and lanes and not operands[1].lanes:
            result = divided_by_one(self.f, operands[0].value, operands[1].value)
        else:
            values = self._spread(operands, lanes)
            result = EMITTERS[op](self, values, dtype)
            if op in CHOOSING:
                self.same_precision(result, values[-2:])
        if INTRINSICS[op].gives_bool:
            return Scalar(result, DType.BOOL)
        if dtype in NARROW_FLOATS and op not in EXACT:
            return self.rounded(result, dtype)
        return Scalar(result, dtype)

    def combine(self, how: Aggregation, old: Scalar, new: Scalar, *, rounded: bool = True) -> Scalar:
        """`new` folded into `old`. Sums of products become fused multiply-adds.

        With `rounded` false, a narrow float stays as wide as f32, for a sum that goes on.
        """
        values = self._spread((old, new), max(old.lanes, new.lanes))
        result = EMITTERS[how.value](self, values, old.dtype)
        if how.value in CHOOSING:
            self.same_precision(result, values)
        narrow = old.dtype in NARROW_FLOATS and how.value not in EXACT
        return self.rounded(result, old.dtype) if narrow and rounded else Scalar(result, old.dtype)

    def _spread(self, operands: Sequence[Scalar], lanes: int) -> list[Value]:
        values = [self.f.splat(o.value, lanes) for o in operands]
        for operand, value in zip(operands, values, strict=True):
            self.same_precision(value, [operand.value])
        return values

    def neutral(self, how: Aggregation, dtype: DType, lanes: int) -> Value:
        return constant(register_type(dtype, lanes), neutral(how.value, dtype))

    def across(self, how: Aggregation, scalar: Scalar) -> Scalar:
        """All lanes of a vector (a power of two) folded into one value, in a tree."""
        while scalar.lanes:
            half = scalar.lanes // 2
            both = (self._part(scalar.value, first, half) for first in (0, half))
            low, high = (Scalar(part, scalar.dtype) for part in both)
            scalar = self.combine(how, low, high, rounded=False)
        return scalar

    def _part(self, vector: Value, first: int, count: int) -> Value:
        if count == 1:
            return self.f.extract(vector, first)
        return self.f.shuffle(vector, poison(vector.type), range(first, first + count))

    def per_lane(self, name: str, values: Sequence[Value]) -> Value:
        """A function on scalars, called for each lane."""
        type_ = values[0].type
        scalar = type_.times(0)
        if not type_.lanes:
            return self.f.call(name, scalar, values, "memory(none) nounwind")
        result = poison(type_)
        for lane in range(type_.lanes):
            parts = [self.f.extract(v, lane) for v in values]
            result = self.f.insert(result, self.f.call(name, scalar, parts, "memory(none) nounwind"), lane)
        return result

    def fmod(self, x: Value, y: Value) -> Value:
        """The remainder that libm computes."""
        return self.per_lane("fmod" if x.type.element == "double" else "fmodf", [x, y])


# Those whose result on f16 or bf16 operands needs no rounding: it is one of the operands, or exact.
EXACT = frozenset({"max", "min", "neg", "abs", "select", "ceil", "floor", "round", "trunc"})
# Of these, those whose result is one of their last two operands, or that with another sign.
CHOOSING = frozenset({"max", "min", "neg", "abs", "select"})

Emitter = Callable[[Arithmetic, Sequence[Value], DType], Value]


def _binary(integer: str, floating: str, boolean: str = "or") -> Emitter:
    def emit(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
        op = floating if dtype.is_float else boolean if dtype is DType.BOOL else integer
        return a.f.binary(op, values[0], values[1])

    return emit


def _compare(how: str) -> Emitter:
    def emit(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
        if dtype.is_float:
            op = f"fcmp {'u' if how == 'ne' else 'o'}{how}"
        elif how in ("eq", "ne"):
            op = f"icmp {how}"
        else:
            op = f"icmp {'s' if dtype.is_integer and dtype.is_signed else 'u'}{how}"
        return a.f.compare(op, values[0], values[1])

    return emit


def _extreme(largest: bool) -> Emitter:
    """max and min; a NaN in either operand is the result."""

    def emit(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
        x, y = values
        if dtype is DType.BOOL:
            return a.f.binary("or" if largest else "and", x, y)
        if not dtype.is_float:
            name = f"{'s' if dtype.is_signed else 'u'}{'max' if largest else 'min'}"
            return a.f.intrinsic(name, [x, y])
        # Which of two zeros is the greater is left open, so that one instruction may do.
        if not (x.type.lanes and a.machine.masks):
            return a.f.intrinsic("maximum" if largest else "minimum", [x, y], flags="nsz")
        # Of unordered operands the instruction gives its second: `x`, if that is NaN; if `y` is, it is kept.
        first = a.f.compare("fcmp ogt" if largest else "fcmp olt", y, x)
        found = a.f.select(first, y, x)
        if y.is_number:
            return found
        return a.f.select(a.f.compare("fcmp ord", y, y), found, y)

    return emit


def _negate(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    (x,) = values
    return a.f.unary("fneg", x) if dtype.is_float else a.f.binary("sub", constant(x.type, 0), x)


def _absolute(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    (x,) = values
    if dtype.is_float:
        return a.f.intrinsic("fabs", [x])
    wraps = Value(Type("i1"), "false")
    return a.f.intrinsic("abs", [x], wraps) if dtype.is_signed else x


def _select(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    return a.f.select(values[0], values[1], values[2])


def _not(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    return a.f.binary("xor", values[0], constant(values[0].type, -1))


def _shift(left: bool) -> Emitter:
    def emit(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
        x, count = values
        const = partial(constant, x.type)
        # As unsigned numbers, negative counts are beyond the width, too.
        inside = a.f.compare("icmp ult", count, const(dtype.bits))
        safe = a.f.select(inside, count, const(0))
        arithmetic = not left and dtype.is_signed
        shifted = a.f.binary("shl" if left else "ashr" if arithmetic else "lshr", x, safe)
        beyond = const(0)
        if arithmetic:
            sign = a.f.binary("ashr", x, const(dtype.bits - 1))
            beyond = a.f.select(a.f.compare("icmp sge", count, const(0)), sign, const(0))
        return a.f.select(inside, shifted, beyond)

    return emit


def _integer_quotient(a: Arithmetic, values: Sequence[Value], dtype: DType) -> tuple[Value, Value]:
    """Quotient and remainder, rounded to minus infinity; a divisor of 0 gives 0 and 0."""
    f = a.f
    # A lane that is masked off may hold anything, and dividing by poison would be undefined.
    x, y = map(f.decided, values)
    zero, one = constant(x.type, 0), constant(x.type, 1)
    by_zero = f.compare("icmp eq", y, zero)
    if not dtype.is_signed:
        safe = f.select(by_zero, one, y)
        quotient, remainder = f.binary("udiv", x, safe), f.binary("urem", x, safe)
        return f.select(by_zero, zero, quotient), f.select(by_zero, zero, remainder)
    # The least number by -1 traps, so -1 negates instead.
    by_minus_one = f.compare("icmp eq", y, constant(x.type, -1))
    special = f.binary("or", by_zero, by_minus_one)
    safe = f.select(special, one, y)
    quotient = f.binary("sdiv", x, safe)
    remainder = f.binary("sub", x, f.binary("mul", quotient, safe))
    differ = f.compare("icmp slt", f.binary("xor", remainder, safe), zero)
    down = f.binary("and", f.compare("icmp ne", remainder, zero), differ)
    quotient = f.select(down, f.binary("sub", quotient, one), quotient)
    remainder = f.select(down, f.binary("add", remainder, safe), remainder)
    quotient = f.select(by_minus_one, f.binary("sub", zero, x), quotient)
    return f.select(by_zero, zero, quotient), f.select(special, zero, remainder)


def _float_remainder(a: Arithmetic, values: Sequence[Value]) -> tuple[Value, Value]:
    """The remainder with the divisor's sign, and the same before a division by 0 is told apart."""
    f = a.f
    x, y = values
    zero = constant(x.type, 0.0)
    plain = a.fmod(x, y)
    some = f.compare("fcmp une", plain, zero)
    differ = f.binary("xor", f.compare("fcmp olt", y, zero), f.compare("fcmp olt", plain, zero))
    moved = f.select(differ, f.binary("fadd", plain, y), plain)
    return plain, f.select(some, moved, f.intrinsic("copysign", [zero, y]))


def _floor_divide(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    """npy_floor_divide, step by step: the quotient is that of (x - remainder) / y, made whole."""
    if not dtype.is_float:
        return _integer_quotient(a, values, dtype)[0]
    f = a.f
    x, y = values
    zero, one = constant(x.type, 0.0), constant(x.type, 1.0)
    plain, _ = _float_remainder(a, values)
    ratio = f.binary("fdiv", x, y)
    quotient = f.binary("fdiv", f.binary("fsub", x, plain), y)
    differ = f.binary("xor", f.compare("fcmp olt", y, zero), f.compare("fcmp olt", plain, zero))
    down = f.binary("and", f.compare("fcmp une", plain, zero), differ)
    quotient = f.select(down, f.binary("fsub", quotient, one), quotient)
    whole = f.intrinsic("floor", [quotient])
    above = f.compare("fcmp ogt", f.binary("fsub", quotient, whole), constant(x.type, 0.5))
    whole = f.select(above, f.binary("fadd", whole, one), whole)
    whole = f.select(f.compare("fcmp une", quotient, zero), whole, f.intrinsic("copysign", [zero, ratio]))
    return f.select(f.compare("fcmp oeq", y, zero), ratio, whole)


def _modulo(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    if not dtype.is_float:
        return _integer_quotient(a, values, dtype)[1]
    plain, floored = _float_remainder(a, values)
    by_zero = a.f.compare("fcmp oeq", values[1], constant(values[1].type, 0.0))
    return a.f.select(by_zero, plain, floored)


_POWER = """define internal {t} @{name}({t} %x, {t} %y) #0 {{
entry:
  %negative = icmp slt {t} %y, 0
  br label %loop
loop:
  %r = phi {t} [ 1, %entry ], [ %r.next, %loop ]
  %b = phi {t} [ %x, %entry ], [ %b.next, %loop ]
  %e = phi {t} [ %y, %entry ], [ %e.next, %loop ]
  %bit = and {t} %e, 1
  %odd = icmp ne {t} %bit, 0
  %m = mul {t} %r, %b
  %r.next = select i1 %odd, {t} %m, {t} %r
  %b.next = mul {t} %b, %b
  %e.next = lshr {t} %e, 1
  %more = icmp ne {t} %e.next, 0
  br i1 %more, label %loop, label %done
done:
  %low = and {t} %y, 1
  %even = icmp eq {t} %low, 0
  %sign = select i1 %even, {t} 1, {t} -1
  %is.one = icmp eq {t} %x, 1
  %is.minus = icmp eq {t} %x, -1
  %a = select i1 %is.minus, {t} %sign, {t} 0
  %inverse = select i1 %is.one, {t} 1, {t} %a
  %use = and i1 %negative, {signed}
  %result = select i1 %use, {t} %inverse, {t} %r.next
  ret {t} %result
}}
"""


_PRODUCTS = range(17)  # exponents for which integers are multiplied, without a loop


def _power(a: Arithmetic, values: Sequence[Value], dtype: DType) -> Value:
    x, y = values
    if dtype.is_float:
        known = _simple_power(a, x, y)
        return elementary(a.f, "pow", values, a.machine) if known is None else known
    for exponent in _PRODUCTS:
        if y.text == constant(y.type, exponent).text:
            return _product(a, x, exponent)
    name = f"stripec.pow.{dtype.value}"
    type_ = register_type(dtype)
    text = _POWER.format(t=type_, name=name, signed="true" if dtype.is_signed else "false")
    a.f.module.helper(name, text)
    # A lane that is masked off may hold anything, and a loop that ends on poison would be undefined.
    return a.per_lane(name, [*map(a.f.decided, values)])


def _simple_power(a: Arithmetic, x: Value, y: Value) -> Value | None:
    """A power of floats with an exponent for which multiplications, a root or a division are as exact; None
    if it is no such constant."""
    f, one = a.f, constant(x.type, 1.0)

    def is_(exponent: float) -> bool:
        return y.text == constant(y.type, exponent).text

    if is_(2.0) or is_(3.0):
        square = f.binary("fmul contract", x, x)
        return square if is_(2.0) else f.binary("fmul contract", square, x)
    if is_(-1.0):
        return f.binary("fdiv", one, x)
    if is_(0.5) or is_(-0.5):
        # Both zeros have the root 0.0, and both infinities have an infinite one.
        root = f.binary("fadd", f.intrinsic("sqrt", [x]), constant(x.type, 0.0))
        infinite = f.compare("fcmp oeq", x, constant(x.type, -math.inf))
        root = f.select(infinite, constant(x.type, math.inf), root)
        return root if is_(0.5) else f.binary("fdiv", one, root)
    return None


def _product(a: Arithmetic, x: Value, exponent: int) -> Value:
    """A power of integers, which wrap: the squares of squares for each bit of the exponent."""
    found, square = None, x
    while exponent:
        if exponent & 1:
            found = square if found is None else a.f.binary("mul", found, square)
        exponent >>= 1
        square = a.f.binary("mul", square, square) if exponent else square
    return constant(x.type, 1) if found is None else found


def _llvm(name: str) -> Emitter:
    return lambda a, values, dtype: a.f.intrinsic(name, values)


def _elementary(name: str) -> Emitter:
    return lambda a, values, dtype: elementary(a.f, name, values, a.machine)


EMITTERS: dict[str, Emitter] = {
    "add": _binary("add", "fadd contract"),
    "sub": _binary("sub", "fsub contract"),
    "mul": _binary("mul", "fmul contract", "and"),
    "div": _binary("sdiv", "fdiv"),
    "floordiv": _floor_divide,
    "mod": _modulo,
    "pow": _power,
    "max": _extreme(largest=True),
    "min": _extreme(largest=False),
    "neg": _negate,
    "abs": _absolute,
    **{name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "select": _select,
    "and": _binary("and", "", "and"),
    "or": _binary("or", "", "or"),
    "xor": _binary("xor", "", "xor"),
    "not": _not,
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "ceil": _llvm("ceil"),
    "floor": _llvm("floor"),
    "round": _llvm("rint"),
    "trunc": _llvm("trunc"),
    "sqrt": _llvm("sqrt"),
    **{name: _elementary(name) for name in sorted(ELEMENTARY - {"pow"})},
}


def lane_numbers(type_: Type, step: int = 1) -> Value:
    """The vector 0, step, 2*step ..."""
    return constants(type_.times(0), [lane * step for lane in range(type_.lanes)])
