"""The scalar intrinsics: arity, operand and result types, and NumPy meaning, in one table.

The interpreter calls `evaluate`; the verifier asks `result_type`; front end and back ends
look names up here. Operands of one intrinsic have one type (but `select`, whose first is
bool); conversions are explicit casts.

Integers wrap. `floordiv` and `mod` round to minus infinity and give 0 for an integer divisor of
0, as NumPy does. `pow` of integers wraps; a negative exponent gives the integer part of the true
result, and 0 where that is infinite. A shift by the width or more gives 0, or the sign for a
signed right shift; by a negative count it gives 0. `max` and `min` propagate NaN; which of two
zeros of unlike sign they give is not specified. `round` rounds halves to even.

Arithmetic on f16 and bf16 is done in f32 and rounded once. The elementary functions are computed
in f64 and rounded once, so that other executors can be held to an error against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stripe.dtypes import DType

Array = np.ndarray[Any, Any]

NUMERIC = frozenset(d for d in DType if d is not DType.BOOL)
FLOATS = frozenset(d for d in DType if d.is_float)
INTEGERS = frozenset(d for d in DType if d.is_integer)
BITS = INTEGERS | {DType.BOOL}
ANY = frozenset(DType)


@dataclass(frozen=True, slots=True)
class IntrinsicInfo:
    """One intrinsic. `types` are the operand types it takes; `gives_bool` for comparisons; `elementary`: many
    instructions, one waiting for the other."""

    name: str
    arity: int
    types: frozenset[DType]
    numpy: Callable[..., Array]
    gives_bool: bool = False
    commutative: bool = False
    elementary: bool = False


def _computed_in(wide: type[np.floating[Any]], function: Callable[..., Any]) -> Callable[..., Array]:
    """`function`, computed in `wide` for all narrower floats and rounded once.

    Libraries lack or misround f16 and bf16; and their f32 functions differ by units in the last place.
    """

    def on_arrays(*operands: Array) -> Array:
        dtype = operands[0].dtype
        if dtype.kind in "iub" or dtype.itemsize >= np.dtype(wide).itemsize:
            return np.asarray(function(*operands))
        result = np.asarray(function(*(o.astype(wide) for o in operands)))
        return result if result.dtype == np.bool_ else result.astype(dtype)

    return on_arrays


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def shift(x: Array, count: Array) -> Array:
        bits = x.dtype.itemsize * 8
        inside = (count >= 0) & (count < bits)
        safe = np.where(inside, count, 0).astype(x.dtype)
        shifted = np.left_shift(x, safe) if left else np.right_shift(x, safe)
        beyond = np.zeros_like(x)
        if not left and x.dtype.kind == "i":
            beyond = np.where((count >= bits) & (x < 0), -1, 0).astype(x.dtype)
        return np.where(inside, shifted, beyond).astype(x.dtype)

    return shift


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.asarray(np.power(x, y))
    negative = y < 0
    safe = np.where(negative, 0, y).astype(x.dtype)
    power = np.power(x, safe)
    odd = (y & 1).astype(bool)
    reciprocal = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0)) if x.dtype.kind == "i" else 0
    return np.where(negative, reciprocal, power).astype(x.dtype)


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel()), np.float64, x.size).reshape(x.shape)


def _entry(
    name: str,
    arity: int,
    types: frozenset[DType],
    function: Callable[..., Any],
    gives_bool: bool = False,
    commutative: bool = False,
) -> IntrinsicInfo:
    return IntrinsicInfo(name, arity, types, _computed_in(np.float32, function), gives_bool, commutative)


def _elementary(name: str, function: Callable[..., Any]) -> IntrinsicInfo:
    return IntrinsicInfo(name, 1, FLOATS, _computed_in(np.float64, function), elementary=True)


INTRINSICS: dict[str, IntrinsicInfo] = {
    info.name: info
    for info in (
        _entry("add", 2, NUMERIC, np.add, commutative=True),
        _entry("sub", 2, NUMERIC, np.subtract),
        _entry("mul", 2, NUMERIC, np.multiply, commutative=True),
        _entry("div", 2, FLOATS, np.divide),
        _entry("floordiv", 2, NUMERIC, np.floor_divide),
        _entry("mod", 2, NUMERIC, np.mod),
        IntrinsicInfo("pow", 2, NUMERIC, _computed_in(np.float64, _power)),
        _entry("max", 2, ANY, np.maximum, commutative=True),
        _entry("min", 2, ANY, np.minimum, commutative=True),
        _entry("neg", 1, NUMERIC, np.negative),
        _entry("abs", 1, NUMERIC, np.abs),
        _entry("eq", 2, ANY, np.equal, True, True),
        _entry("ne", 2, ANY, np.not_equal, True, True),
        _entry("lt", 2, ANY, np.less, True),
        _entry("le", 2, ANY, np.less_equal, True),
        _entry("gt", 2, ANY, np.greater, True),
        _entry("ge", 2, ANY, np.greater_equal, True),
        IntrinsicInfo("select", 3, ANY, np.where),
        _entry("and", 2, BITS, np.bitwise_and, commutative=True),
        _entry("or", 2, BITS, np.bitwise_or, commutative=True),
        _entry("xor", 2, BITS, np.bitwise_xor, commutative=True),
        _entry("not", 1, BITS, np.invert),
        _entry("shl", 2, INTEGERS, _shift(left=True)),
        _entry("shr", 2, INTEGERS, _shift(left=False)),
        _entry("ceil", 1, FLOATS, np.ceil),
        _entry("floor", 1, FLOATS, np.floor),
        _entry("round", 1, FLOATS, np.rint),
        _entry("trunc", 1, FLOATS, np.trunc),
        _entry("sqrt", 1, FLOATS, np.sqrt),
        _elementary("exp", np.exp),
        _elementary("log", np.log),
        _elementary("sin", np.sin),
        _elementary("cos", np.cos),
        _elementary("tan", np.tan),
        _elementary("asin", np.arcsin),
        _elementary("acos", np.arccos),
        _elementary("atan", np.arctan),
        _elementary("sinh", np.sinh),
        _elementary("cosh", np.cosh),
        _elementary("tanh", np.tanh),
        _elementary("asinh", np.arcsinh),
        _elementary("acosh", np.arccosh),
        _elementary("atanh", np.arctanh),
        _elementary("erf", _erf),
    )
}


def result_type(name: str, operands: tuple[DType, ...]) -> DType | None:
    """The type an intrinsic gives for these operand types, or None if it does not take them."""
    info = INTRINSICS.get(name)
    if info is None or len(operands) != info.arity:
        return None
    if name == "select":
        ok = operands[0] is DType.BOOL and operands[1] is operands[2]
        return operands[1] if ok else None
    if any(o is not operands[0] for o in operands) or operands[0] not in info.types:
        return None
    return DType.BOOL if info.gives_bool else operands[0]


def commutes(name: str, result: DType) -> bool:
    """Whether the operands of an intrinsic may change places, to the bit: max(0.0, -0.0) may depend on their
    order."""
    return INTRINSICS[name].commutative and not (name in ("max", "min") and result.is_float)


def evaluate(name: str, operands: tuple[Array, ...]) -> Array:
    """Apply an intrinsic to arrays (broadcast elementwise), without floating-point warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(INTRINSICS[name].numpy(*operands))


def cast(values: Array, dtype: DType) -> Array:
    """Convert elements. Integers wrap; floats round to nearest even, or toward zero to an
    integer, saturating at its limits; NaN becomes 0; to bool means "is not 0". What becomes a
    bf16 is rounded to f32 first, as ml_dtypes does."""
    with np.errstate(all="ignore"):
        if dtype is DType.BOOL:
            return np.asarray(values != 0)
        is_float = values.dtype.kind not in "iub"
        if dtype.is_integer and is_float:
            limits = np.iinfo(dtype.numpy)
            wide = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
            low, high = wide <= float(limits.min), wide >= float(limits.max)
            inside = np.where(low | high, 0.0, wide).astype(dtype.numpy)
            return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(dtype.numpy)
        return np.asarray(values.astype(dtype.numpy))


def neutral(aggregation: str, dtype: DType) -> int | float | bool:
    """The value that an aggregation leaves unchanged: op(neutral, x) = x for every x.

    The neutral element of a float sum is -0.0, since -0.0 + 0.0 is 0.0 and -0.0 + -0.0 is -0.0.
    """
    if aggregation == "add":
        return -0.0 if dtype.is_float else 0
    if aggregation == "mul":
        return 1.0 if dtype.is_float else 1
    low = aggregation == "max"
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype is DType.BOOL:
        return not low
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if low else limits.max)
