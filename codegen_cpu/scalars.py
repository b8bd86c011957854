"""Scalars in registers and in memory, and the casts between element types.

    element type   in a register        in memory
    bool           i1                   i8, written as 0 or 1
    f16, bf16      float, exact value   i16
    others         the LLVM type of the same name

Arithmetic on f16 and bf16 is done in f32 and rounded once (stripe.intrinsics), so their values
travel as floats. Conversions are written out in integer arithmetic where the target has no
instruction: the runtime library that LLVM would call is not there in a JIT.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from codegen_cpu.ll import (
    DOUBLE,
    FLOAT,
    HALF,
    I1,
    I8,
    I16,
    I32,
    I64,
    Function,
    Type,
    Value,
    constant,
)
from stripe.dtypes import DType

NARROW_FLOATS = frozenset({DType.F16, DType.BF16})

_INTEGERS = {8: I8, 16: I16, 32: I32, 64: I64}


def register_type(dtype: DType, lanes: int = 0) -> Type:
    """How a value of this element type is held while it is computed with."""
    if dtype is DType.BOOL:
        return I1.times(lanes)
    if dtype.is_float:
        return (DOUBLE if dtype is DType.F64 else FLOAT).times(lanes)
    return _INTEGERS[dtype.bits].times(lanes)


def memory_type(dtype: DType, lanes: int = 0) -> Type:
    """How an element is stored."""
    if dtype is DType.BOOL:
        return I8.times(lanes)
    if dtype in NARROW_FLOATS:
        return I16.times(lanes)
    return register_type(dtype, lanes)


@dataclass(frozen=True, slots=True)
class Scalar:
    """The value of one scalar of Stripe: in each lane of a vector, or one for all lanes."""

    value: Value
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.value.type.lanes


class Conversions:
    """Casts, and the way from memory into registers and back."""

    def __init__(self, f: Function, native_half: bool) -> None:
        self.f = f
        self._native_half = native_half
        self._exact: set[Value] = set()  # of bf16: need no rounding; what is copied keeps its bits

    def constant(self, value: int | float | bool, dtype: DType) -> Scalar:
        if dtype in NARROW_FLOATS:
            with np.errstate(all="ignore"):
                value = float(np.asarray(value, np.float64).astype(dtype.numpy).astype(np.float64))
        found = constant(register_type(dtype), value)
        if dtype.is_float and dtype is not DType.F64 and not np.float32(value).view(np.uint32) & 0xFFFF:
            self._exact.add(found)
        return Scalar(found, dtype)

    def same_precision(self, value: Value, others: Iterable[Value]) -> None:
        """Note that a value has no more digits than others that it was made of."""
        if self._exact.issuperset(others):
            self._exact.add(value)

    def decode(self, bits: Value, dtype: DType) -> Scalar:
        """The scalar that memory holds as `bits`."""
        if dtype is DType.BOOL:
            # NumPy takes any byte but 0 for true.
            return Scalar(self.f.compare("icmp ne", bits, constant(bits.type, 0)), dtype)
        if dtype is DType.BF16:
            wide = self.f.convert("zext", bits, I32)
            value = self.f.convert("bitcast", self._int("shl", wide, 16), FLOAT)
            self._exact.add(value)
            return Scalar(value, dtype)
        if dtype is DType.F16:
            return Scalar(self._half_to_float(bits), dtype)
        return Scalar(bits, dtype)

    def encode(self, scalar: Scalar) -> Value:
        """What memory holds for a scalar."""
        value = scalar.value
        if scalar.dtype is DType.BOOL:
            return self.f.convert("zext", value, I8)
        if scalar.dtype is DType.BF16:
            # The value is exact, so that its upper half is all of it.
            bits = self.f.convert("bitcast", value, I32)
            return self.f.convert("trunc", self._int("lshr", bits, 16), I16)
        if scalar.dtype is DType.F16:
            return self._float_to_half(value)
        return value

    def rounded(self, value: Value, dtype: DType) -> Scalar:
        """A float rounded to the nearest value of `dtype`, ties to even."""
        if dtype is DType.BF16:
            if value not in self._exact:
                value = self._round_to_bfloat(value)
                self._exact.add(value)
            return Scalar(value, dtype)
        if dtype is DType.F16:
            return Scalar(self._half_to_float(self._float_to_half(value)), dtype)
        return Scalar(value, dtype)

    def cast(self, scalar: Scalar, to: DType) -> Scalar:
        """stripe.intrinsics.cast: integers wrap, floats saturate to integers, NaN gives 0."""
        source = scalar.dtype
        if source is to:
            return scalar
        if to is DType.BOOL:
            none = constant(scalar.value.type, 0)
            return Scalar(
                self.f.compare("fcmp une" if source.is_float else "icmp ne", scalar.value, none), to
            )
        if to.is_float:
            return self._to_float(scalar, to)
        if source.is_float:
            return Scalar(self._float_to_integer(scalar.value, to), to)
        target = register_type(to)
        if target.bits == scalar.value.type.bits:
            return Scalar(scalar.value, to)
        widen = "sext" if source.is_signed and source is not DType.BOOL else "zext"
        op = widen if target.bits > scalar.value.type.bits else "trunc"
        return Scalar(self.f.convert(op, scalar.value, target), to)

    # -- floats --------------------------------------------------------------------------

    def _to_float(self, scalar: Scalar, to: DType) -> Scalar:
        value, target = scalar.value, register_type(to)
        if not scalar.dtype.is_float:
            op = "sitofp" if scalar.dtype.is_signed else "uitofp"
            return self.rounded(self.f.convert(op, value, target), to)
        if to is DType.F64:
            return Scalar(self.f.convert("fpext", value, DOUBLE), to)
        if scalar.dtype is not DType.F64:
            return self.rounded(value, to)
        if to is DType.F16:
            return self.rounded(self._double_to_odd_float(value), to)
        return self.rounded(self.f.convert("fptrunc", value, FLOAT), to)

    def _float_to_integer(self, value: Value, to: DType) -> Value:
        """Toward zero, saturating; NaN gives 0. LLVM's intrinsic for it takes vectors apart."""
        f = self.f
        limits = np.iinfo(to.numpy)
        target = register_type(to, value.type.lanes)
        low, high = constant(value.type, int(limits.min)), constant(value.type, int(limits.max))
        if limits.bits < np.finfo(np.float32 if value.type.element == "float" else np.float64).nmant:
            # The limits are floats: a larger and a smaller of two, as the machine has them, and one test.
            inside = f.select(f.compare("fcmp ogt", value, low), value, low)
            inside = f.select(f.compare("fcmp olt", inside, high), inside, high)
            found = f.convert("fptosi" if to.is_signed else "fptoui", inside, target)
            return f.select(f.compare("fcmp ord", value, value), found, constant(target, 0))
        below, above = f.compare("fcmp ole", value, low), f.compare("fcmp oge", value, high)
        within = f.binary("and", f.compare("fcmp ogt", value, low), f.compare("fcmp olt", value, high))
        safe = f.select(within, value, constant(value.type, 0.0))
        found = f.convert("fptosi" if to.is_signed else "fptoui", safe, target)
        found = f.select(below, constant(target, int(limits.min)), found)
        return f.select(above, constant(target, int(limits.max)), found)

    def _double_to_odd_float(self, value: Value) -> Value:
        """Round to odd: a second rounding to fewer bits then gives what one rounding would. What is cut off
        here leaves a one in the last place of an f32."""
        f, last = self.f, 1 << (52 - 23)
        bits = f.convert("bitcast", value, I64)
        rest = f.compare("icmp ne", self._int("and", bits, last - 1), constant(bits.type, 0))
        odd = f.select(rest, constant(bits.type, last), constant(bits.type, 0))
        kept = f.binary("or", self._int("and", bits, (1 << 64) - last), odd)
        return f.convert("fptrunc", f.convert("bitcast", kept, DOUBLE), FLOAT)

    # -- bits ----------------------------------------------------------------------------

    def _int(self, op: str, value: Value, operand: int) -> Value:
        return self.f.binary(op, value, constant(value.type, operand))

    def _round_to_bfloat(self, value: Value) -> Value:
        # Not the AVX512-BF16 instruction: it takes subnormals for zero.
        bits = self.f.convert("bitcast", value, I32)
        odd = self._int("and", self._int("lshr", bits, 16), 1)
        near = self.f.binary("add", self._int("add", bits, 0x7FFF), odd)
        near = self._int("and", near, 0xFFFF0000)
        quiet = self._int("or", self._int("and", bits, 0xFFFF0000), 0x00400000)
        is_nan = self.f.compare("fcmp uno", value, value)
        return self.f.convert("bitcast", self.f.select(is_nan, quiet, near), FLOAT)

    def _half_to_float(self, bits: Value) -> Value:
        f = self.f
        if self._native_half:
            return f.convert("fpext", f.convert("bitcast", bits, HALF), FLOAT)
        wide = f.convert("zext", bits, I32)
        const = partial(constant, wide.type)
        moved = self._int("shl", self._int("and", wide, 0x7FFF), 13)
        exponent = self._int("and", moved, 0x7C00 << 13)
        normal = self._int("add", moved, (127 - 15) << 23)
        special = self._int("add", normal, (128 - 16) << 23)
        lifted = f.convert("bitcast", self._int("add", normal, 1 << 23), FLOAT)
        subnormal = f.binary("fsub", lifted, constant(lifted.type, 2.0**-14))
        subnormal_bits = f.convert("bitcast", subnormal, I32)
        result = f.select(f.compare("icmp eq", exponent, const(0)), subnormal_bits, normal)
        result = f.select(f.compare("icmp eq", exponent, const(0x7C00 << 13)), special, result)
        sign = self._int("shl", self._int("and", wide, 0x8000), 16)
        return f.convert("bitcast", f.binary("or", result, sign), FLOAT)

    def _float_to_half(self, value: Value) -> Value:
        f = self.f
        if self._native_half:
            return f.convert("bitcast", f.convert("fptrunc", value, HALF), I16)
        bits = f.convert("bitcast", value, I32)
        const = partial(constant, bits.type)
        sign = self._int("and", bits, 0x80000000)
        size = f.binary("xor", bits, sign)
        odd = self._int("and", self._int("lshr", size, 13), 1)
        near = f.binary("add", self._int("add", size, ((15 - 127) << 23) + 0xFFF), odd)
        normal = self._int("lshr", near, 13)
        # Adding 0.5 puts the last bit of a subnormal half in the last place of the sum.
        magic = constant(value.type, 0.5)
        lifted = f.binary("fadd", f.convert("bitcast", size, FLOAT), magic)
        subnormal = self._int("sub", f.convert("bitcast", lifted, I32), 0x3F000000)
        result = f.select(f.compare("icmp ult", size, const(113 << 23)), subnormal, normal)
        is_nan = f.compare("icmp ugt", size, const(255 << 23))
        special = f.select(is_nan, const(0x7E00), const(0x7C00))
        result = f.select(f.compare("icmp uge", size, const((127 + 16) << 23)), special, result)
        return f.convert("trunc", f.binary("or", result, self._int("lshr", sign, 16)), I16)
