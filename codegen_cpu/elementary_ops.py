"""What elementary functions are written in: float arithmetic on whole vectors, bits, pairs of floats.

Everything is plain LLVM, but for one instruction that LLVM would only use together with a conversion.
`Machine` says where two ways of writing the same differ in speed, or where one would be a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen_cpu.ll import DOUBLE, I1, I8, I16, I32, I64, PTR, Function, Type, Value, constant, poison, zero


@dataclass(frozen=True, slots=True)
class Machine:
    """What of a target elementary functions ask about.

    `fused`: a multiply-add with one rounding is one instruction. `scales`: so is a multiplication by a
    power of two that over- and underflows as it should, AVX-512's. `masks`: instructions keep what their
    result held in lanes that are masked off. `looks_up`: one takes 16 floats of a register by 16 numbers,
    others take floats apart, and it `scales`: AVX-512. `vector_bytes`: the width of a register.
    `whole_constants`: arithmetic takes an operand from memory, but none that it spreads over the lanes on the
    way, as AVX-512 does: constants lie there once for each lane. (Of AVX2, LLVM keeps one lane, which takes
    an instruction and a register each time that no register is left to keep it in.)
    """

    fused: bool = False
    scales: bool = False
    masks: bool = False
    looks_up: bool = False
    vector_bytes: int = 16
    whole_constants: bool = False


Pair = tuple[Value, Value]  # an unevaluated sum, the larger part first
Whole = tuple[Value, Value]  # a whole number, as a float and in the lower half of an integer


class Ops:
    """Short names for instructions on floats of one type; plain numbers are spread over the lanes."""

    def __init__(self, f: Function, type_: Type, machine: Machine) -> None:
        self.f = f
        self.type = type_
        self.machine = machine
        self.double = type_.element == DOUBLE.element
        self.int_type = (I64 if self.double else I32).times(type_.lanes)
        self.mantissa, self.bias = (52, 1023) if self.double else (23, 127)
        # Added to a float that is not too large, it leaves a whole number in the last places.
        self.magic = 1.5 * 2.0**self.mantissa
        self.magic_bits = (self.bias + self.mantissa << self.mantissa) + (1 << self.mantissa - 1)

    # -- arithmetic ----------------------------------------------------------------------

    def number(self, value: Value | float) -> Value:
        if isinstance(value, Value):
            return value
        if self.machine.whole_constants and self.type.lanes:
            return self._from_memory(value)
        return constant(self.type, value)

    def _from_memory(self, value: float) -> Value:
        """A constant of which LLVM does not know that all lanes are alike."""
        lane, size = constant(self.type.times(0), value), self.machine.vector_bytes
        register = lane.type.times(size * 8 // lane.type.bits)
        name = f"stripec.each.{lane.type}.{lane.text}"
        whole = (
            f"private unnamed_addr externally_initialized constant {constant(register, value)}, align {size}"
        )
        self.f.module.helper(name, f"@{name} = {whole}")
        loaded = self.f.pure(register, f"load {register}, ptr @{name}, align {size}")
        if register == self.type:
            return loaded
        return self.f.shuffle(loaded, loaded, [at % register.lanes for at in range(self.type.lanes)])

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self.f.binary("fadd", self.number(a), self.number(b))

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self.f.binary("fsub", self.number(a), self.number(b))

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self.f.binary("fmul", self.number(a), self.number(b))

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self.f.binary("fdiv", self.number(a), self.number(b))

    def neg(self, a: Value) -> Value:
        return self.f.unary("fneg", a)

    def abs(self, a: Value) -> Value:
        return self.f.intrinsic("fabs", [a])

    def sqrt(self, a: Value) -> Value:
        return self.f.intrinsic("sqrt", [a])

    def mad(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """a * b + c, with one rounding where the target does that fast."""
        return self.f.intrinsic("fmuladd", [a, self.number(b), self.number(c)])

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Estrin's scheme, the highest coefficient first: neighbours are joined, then pairs of them ...

        Its chain of dependent operations is short; a core looks ahead over too few of them to fill
        the gaps of a long one with the next vector's.
        """
        terms = [self.number(c) for c in reversed(coefficients)]
        if len(terms) < 5:  # Horner's rule, which rounds less
            result = terms[-1]
            for term in terms[-2::-1]:
                result = self.mad(result, x, term)
            return result
        # What is left over from pairs of pairs comes last: it needs no power of its own.
        last = terms.pop(0) if (len(terms) - 1).bit_count() == 1 else None
        base = x
        while len(terms) > 1:
            joined = [self.mad(b, x, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = joined + terms[len(terms) - len(terms) % 2 :]
            x = self.mul(x, x) if len(terms) > 1 else x
        return terms[0] if last is None else self.mad(terms[0], base, last)

    # -- bits ----------------------------------------------------------------------------

    def int_op(self, op: str, a: Value, b: Value | int) -> Value:
        return self.f.binary(op, a, b if isinstance(b, Value) else constant(self.int_type, b))

    def bits(self, a: Value) -> Value:
        return self.f.convert("bitcast", a, self.int_type)

    def from_bits(self, a: Value) -> Value:
        return self.f.convert("bitcast", a, self.type)

    def sign(self, a: Value) -> Value:
        """The sign bit of `a`, the other bits 0."""
        return self.int_op("and", self.bits(a), 1 << self.int_type.bits - 1)

    def flip(self, a: Value, sign: Value) -> Value:
        """`a`, negated where `sign` has the sign bit."""
        return self.from_bits(self.int_op("xor", self.bits(a), sign))

    def odd_sign(self, whole: Value) -> Value:
        """The sign bit where an integer is odd."""
        return self.int_op("shl", whole, self.int_type.bits - 1)

    def is_odd(self, whole: Value) -> Value:
        picked = self.int_op("and", whole, 1)
        return self.f.compare("icmp ne", picked, constant(self.int_type, 0))

    def copysign(self, size: Value, sign: Value) -> Value:
        return self.f.intrinsic("copysign", [size, sign])

    # -- choices -------------------------------------------------------------------------

    def test(self, how: str, a: Value, b: Value | float) -> Value:
        return self.f.compare(f"fcmp {how}", a, self.number(b))

    def at_least(self, a: Value, b: int) -> Value:
        """Whether an integer, as one without a sign, is `b` or more."""
        return self.f.compare("icmp uge", a, constant(self.int_type, b))

    def both(self, a: Value, b: Value) -> Value:
        return self.f.binary("and", a, b)

    def either(self, a: Value, b: Value) -> Value:
        return self.f.binary("or", a, b)

    def differ(self, a: Value, b: Value) -> Value:
        return self.f.binary("xor", a, b)

    def negated(self, condition: Value) -> Value:
        return self.f.binary("xor", condition, constant(condition.type, True))

    def choose(self, condition: Value, yes: Value | float, no: Value | float) -> Value:
        return self.f.select(condition, self.number(yes), self.number(no))

    def clamp(self, x: Value, low: float | None, high: float | None) -> Value:
        """`x` within limits; NaN stays NaN."""
        if high is not None:
            x = self.choose(self.test("ogt", x, high), high, x)
        if low is not None:
            x = self.choose(self.test("olt", x, low), low, x)
        return x

    # -- whole numbers -------------------------------------------------------------------

    def nearest(self, x: Value, factor: float = 1.0) -> Whole:
        """x * factor rounded to a whole number n, |n| < 2**(mantissa - 1): as a float, and as
        an integer whose lower half is right (enough for its parity, or to build a power of two)."""
        moved = self.add(x, self.magic) if factor == 1.0 else self.mad(x, factor, self.magic)
        return self.sub(moved, self.magic), self.bits(moved)

    def nearest_power(self, x: Value, factor: float, most: int | None = None) -> Pair:
        """The n of `nearest` as a float, at most `most`, and 2**n where that is a normal number: the bias of
        its exponent comes with the magic number. Of NaN they are any numbers."""
        magic = self.magic + self.bias
        moved = self.mad(x, factor, magic)
        if most is not None:
            moved = self.choose(self.test("olt", moved, magic + most), moved, magic + most)
        # All bits but those of n leave with the shift.
        return self.sub(moved, magic), self.from_bits(self.int_op("shl", self.bits(moved), self.mantissa))

    def power_of_two(self, whole: Value) -> Value:
        """2**n for the n of `nearest`, where that is a normal number."""
        # The bits of the magic number leave with the shift.
        shifted = self.int_op("shl", whole, self.mantissa)
        return self.from_bits(self.int_op("add", shifted, self.bias << self.mantissa))

    def above_zero(self, x: Value, least: float) -> Value:
        """Whether exp(x), for `least` and above, may be more than 0, or is NaN. What it holds for goes on; 0
        is put in for all else before it is scaled, since a result too small for a float takes a core a
        hundred cycles and more: masked elements are often such."""
        return self.test("uge", x, least)

    def scaled(self, excess: Value, whole: Whole, kept: Value | None = None) -> Value:
        """(1 + excess) * 2**n for the n of `nearest`, |n| < 2 * bias; right where that is 0 or infinite.
        It is 0 in lanes that are not `kept`."""
        n, bits = whole
        if self.machine.scales:
            mantissa = self.add(excess, 1.0)
            return self._scaled_at_once(self.choose(kept, mantissa, 0.0) if kept else mantissa, n, bits)
        # In two factors: 2**n alone can be too large, or subnormal.
        twice = self.int_op("sub", bits, self.magic_bits - 2 * self.bias)
        half = self.int_op("lshr", twice, 1)
        rest = self.int_op("sub", twice, half)
        first, second = (self.from_bits(self.int_op("shl", e, self.mantissa)) for e in (half, rest))
        first = self.choose(kept, first, 0.0) if kept else first
        return self.mul(self.mad(excess, first, first), second)

    def _scaled_at_once(self, x: Value, n: Value, bits: Value) -> Value:
        """x * 2**n for the n of `nearest`. LLVM's ldexp is this instruction, too, but takes an integer."""
        if self.type.lanes * self.int_type.bits in (128, 256, 512):
            return self.scaled_by(x, n)
        whole = self.int_op("sub", bits, self.magic_bits)
        whole = self.f.convert("trunc", whole, I32) if self.double else whole
        return self.f.call(f"llvm.ldexp.{self.type.mangled}.{whole.type.mangled}", self.type, [x, whole])

    def scaled_by(self, x: Value, n: Value) -> Value:
        """x * 2**floor(n), in a whole register of a machine that scales."""
        return self._avx512("scalef", [x, n])

    def taken_apart(self, x: Value, size: bool = False) -> Pair:
        """e and m for a register of `looks_up`: x = m * 2**e, but e is one less where m is below 1. m lies
        between 3/4 and 3/2 and is NaN for x < 0; where x is 0 or infinite, e is infinite. `size`: of |x|."""
        from_three_quarters, positive, without_sign = 0b11, 0b10, 0b01
        kind = constant(I32, from_three_quarters | (without_sign if size else positive) << 2)
        return self._avx512("getexp", [x]), self._avx512("getmant", [x, kind])

    def _avx512(self, name: str, operands: Sequence[Value]) -> Value:
        lanes, kind = self.type.lanes, "pd" if self.double else "ps"
        width = lanes * self.int_type.bits
        all_lanes = constant(I16 if lanes > 8 else I8, -1)
        rounding = [constant(I32, 4)] if width == 512 else []  # as the thread's mode says
        whole = f"llvm.x86.avx512.mask.{name}.{kind}.{width}"
        return self.f.call(whole, self.type, [*operands, zero(self.type), all_lanes, *rounding])

    def is_whole(self, x: Value) -> Value:
        """Has `x` no fraction? False of NaN, true of an infinity."""
        size, limit = self.abs(x), 2.0**self.mantissa
        same = self.test("oeq", self.sub(self.add(size, limit), limit), size)
        return self.either(same, self.test("oge", size, limit))

    # -- pairs ---------------------------------------------------------------------------

    def quick_sum(self, a: Value, b: Value) -> Pair:
        """a + b exactly, for |a| >= |b| or a = 0."""
        total = self.add(a, b)
        return total, self.sub(b, self.sub(total, a))

    def exact_sum(self, a: Value, b: Value) -> Pair:
        """a + b exactly."""
        total = self.add(a, b)
        other = self.sub(total, a)
        return total, self.add(self.sub(a, self.sub(total, other)), self.sub(b, other))

    def exact_product(self, a: Value, b: Value) -> Pair:
        """a * b exactly (Dekker's splitting where nothing is fused)."""
        product = self.mul(a, b)
        if self.machine.fused:
            return product, self.f.intrinsic("fma", [a, b, self.neg(product)])
        (a1, a2), (b1, b2) = self._halves(a), self._halves(b)
        error = self.sub(self.mul(a1, b1), product)
        error = self.add(self.add(error, self.mul(a1, b2)), self.mul(a2, b1))
        return product, self.add(error, self.mul(a2, b2))

    def _halves(self, a: Value) -> Pair:
        scaled = self.mul(a, 2.0 ** (self.mantissa // 2 + 1) + 1)
        high = self.sub(scaled, self.sub(scaled, a))
        return high, self.sub(a, high)


def in_double(o: Ops, operands: Sequence[Value], function: Callable[[Ops, Sequence[Value]], Value]) -> Value:
    """A function of floats, computed in f64 and rounded once; a register's worth of lanes at a time."""
    lanes = operands[0].type.lanes
    if lanes * 8 > o.machine.vector_bytes and lanes % 2 == 0 and lanes > 2:
        half = lanes // 2
        low, high = (
            in_double(o, [o.f.shuffle(v, poison(v.type), part) for v in operands], function)
            for part in (range(half), range(half, lanes))
        )
        return o.f.shuffle(low, high, range(lanes))
    wide = [o.f.convert("fpext", v, DOUBLE) for v in operands]
    result = function(Ops(o.f, wide[0].type, o.machine), wide)
    return o.f.convert("fptrunc", result, o.type)


Values = Sequence[Value]


def unless(f: Function, rare: Value, usual: Values, exact: Callable[[], Values]) -> Values:
    """`usual`, but what `exact` computes in lanes in which `rare` holds; skipped if there are none."""
    any_lane = rare
    if rare.type.lanes:
        any_lane = f.call(f"llvm.vector.reduce.or.{rare.type.mangled}", I1, [rare])
    slow, done, origin = f.fresh("rare"), f.fresh("usual"), f.label
    f.branch_if(f.decided(any_lane), slow, done, rarely=True)
    f.start(slow)
    # No lane's result depends on its neighbours.
    others = [f.select(rare, b, a) for a, b in zip(usual, exact(), strict=True)]
    last = f.label
    f.branch(done)
    f.start(done)
    return [
        f.emit(a.type, f"phi {a.type} [ {a.text}, %{origin} ], [ {b.text}, %{last} ]")
        for a, b in zip(usual, others, strict=True)
    ]


def repeated(f: Function, count: int, first: Values, step: Callable[[Value, Values], Values]) -> Values:
    """`step` taken `count` times, at least once, from the values `first`; it is told its number."""
    head, done, origin = f.fresh("again"), f.fresh("enough"), f.label
    f.branch(head)
    f.start(head)
    phis, number = f.mark(), Value(I64, f"%{f.fresh('step')}")
    values = [Value(v.type, f"%{f.fresh('turn')}") for v in first]
    new = step(number, values)
    following = f.binary("add", number, constant(I64, 1))
    again = f.compare("icmp ult", following, constant(I64, count))
    for value, start, end in zip(
        (number, *values), (constant(I64, 0), *first), (following, *new), strict=True
    ):
        pairs = f"[ {start.text}, %{origin} ], [ {end.text}, %{f.label} ]"
        phis.append(f"  {value.text} = phi {value.type} {pairs}")
    f.branch_if(again, head, done)
    f.start(done)
    return new


def table(f: Function, name: str, numbers: Sequence[float]) -> Value:
    """The address of constants in f64."""
    listed = ", ".join(str(constant(DOUBLE, number)) for number in numbers)
    f.module.helper(name, f"@{name} = internal unnamed_addr constant [{len(numbers)} x double] [{listed}]")
    return Value(PTR, f"@{name}")
