"""Random scalar code whose results are exact, so that every order of evaluation gives the same.

Each scalar carries a bound on its magnitude. Floats only ever hold integers up to the largest
that their type represents exactly, hence sums and products of them are exact in any order;
integers wrap, which is exact too. So results can be compared bit for bit (up to the sign of a
float zero, which max and min may choose).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Aggregation, Cast, Constant, IndexValue, Intrinsic, Load, Scalar, Statement

INPUT_BOUND = 3  # magnitude of the elements of inputs
_EXACT = {DType.F16: 2**11, DType.BF16: 2**8, DType.F32: 2**24, DType.F64: 2**53}

_FLOAT_OPS = ("add", "sub", "mul", "max", "min", "neg", "abs", "floor", "round", "select")
_INTEGER_OPS = (
    "add", "sub", "mul", "max", "min", "neg", "abs", "floordiv", "mod", "and", "or", "xor", "not",
    "shl", "shr", "select",
)  # fmt: skip
_BOOL_OPS = ("and", "or", "xor", "not", "eq", "max", "select")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Value:
    """A scalar of the code so far. For floats: an integer of at most this magnitude."""

    name: str
    dtype: DType
    bound: int


def largest(dtype: DType) -> int:
    """The magnitude that values of a type may have here."""
    if dtype is DType.BOOL:
        return 1
    return _EXACT[dtype] if dtype.is_float else 2**dtype.bits


def aggregated_bound(op: Aggregation, bound: int, writes: int) -> int:
    """The magnitude after `writes` values of at most `bound` were aggregated."""
    match op:
        case Aggregation.ADD:
            return bound * writes
        case Aggregation.MUL:
            return int(max(1, bound) ** writes)
        case _:
            return bound


def aggregations(dtype: DType, bound: int, writes: int) -> list[Aggregation]:
    """The ops that may combine so many values of a type exactly; `assign` is not among them."""
    found = [Aggregation.MAX, Aggregation.MIN]
    if dtype is not DType.BOOL:
        for op in (Aggregation.ADD, Aggregation.MUL):
            if not dtype.is_float or aggregated_bound(op, bound, writes) <= largest(dtype):
                found.append(op)
    return found


class ScalarCode:
    """Builds the statements of one leaf block."""

    def __init__(self, rng: random.Random, lead: str = "") -> None:
        self._rng = rng
        self._lead = lead
        self._count = 0
        self.statements: list[Statement] = []

    def fresh(self) -> str:
        self._count += 1
        return f"{self._lead}s{self._count}"

    def _emit(self, statement: Scalar, bound: int) -> Value:
        self.statements.append(statement)
        dtype = statement.dtype
        return Value(statement.result, dtype, min(bound, largest(dtype)))

    def load(self, buffer: str, dtype: DType, bound: int) -> Value:
        return self._emit(Load(self.fresh(), buffer, dtype), bound)

    def constant(self, dtype: DType, value: int | None = None) -> Value:
        number = self._rng.randint(-INPUT_BOUND, INPUT_BOUND) if value is None else value
        if dtype is DType.BOOL:
            return self._emit(Constant(self.fresh(), bool(number), dtype), 1)
        if not dtype.is_signed:
            number = abs(number)
        shown = float(number) if dtype.is_float else number
        return self._emit(Constant(self.fresh(), shown, dtype), abs(number))

    def index(self, expr: Affine, bound: int) -> Value:
        return self._emit(IndexValue(self.fresh(), expr, self._rng.choice((DType.I32, DType.I64))), bound)

    def converted(self, value: Value, dtype: DType) -> Value:
        """`value` as another type; what may not be exact there is first compared with 0."""
        if value.dtype is dtype:
            return value
        if dtype.is_float and value.bound > largest(dtype):
            zero = self.constant(value.dtype, 0)
            value = self._emit(Intrinsic(self.fresh(), "ne", (value.name, zero.name), DType.BOOL), 1)
        bound = 1 if dtype is DType.BOOL else value.bound
        return self._emit(Cast(self.fresh(), value.name, dtype), bound)

    def combined(self, values: list[Value], dtype: DType) -> Value:
        """Some expression of `dtype` over all the values."""
        operands = [self.converted(value, dtype) for value in values] or [self.constant(dtype)]
        result = operands[0]
        for operand in operands[1:]:
            result = self._apply(dtype, result, operand)
        for _ in range(self._rng.randint(0, 2)):
            result = self._apply(dtype, result, self.constant(dtype))
        return result

    def _apply(self, dtype: DType, x: Value, y: Value) -> Value:
        rng = self._rng
        if dtype is DType.BOOL:
            op = rng.choice(_BOOL_OPS)
        else:
            op = rng.choice(_FLOAT_OPS if dtype.is_float else _INTEGER_OPS)
        grown = {"add": x.bound + y.bound, "sub": x.bound + y.bound, "mul": x.bound * y.bound}.get(op, 0)
        if dtype.is_float and grown > largest(dtype):
            op, grown = "max", 0
        if op in ("neg", "abs", "not", "floor", "round"):
            return self._emit(Intrinsic(self.fresh(), op, (x.name,), dtype), self._bound(dtype, x.bound))
        if op == "select":
            compare = Intrinsic(self.fresh(), rng.choice(_COMPARISONS), (x.name, y.name), DType.BOOL)
            condition = self._emit(compare, 1)
            chosen = Intrinsic(self.fresh(), op, (condition.name, y.name, x.name), dtype)
            return self._emit(chosen, max(x.bound, y.bound))
        bound = self._bound(dtype, max(x.bound, y.bound, grown))
        return self._emit(Intrinsic(self.fresh(), op, (x.name, y.name), dtype), bound)

    @staticmethod
    def _bound(dtype: DType, bound: int) -> int:
        # An integer may wrap to anything (and `not`, shifts and such are not followed closely).
        return largest(dtype) if dtype.is_integer else bound
