"""Every intrinsic on every type against Python's own arithmetic, on values at the edges."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from stripe.dtypes import DType
from stripe.intrinsics import BITS, FLOATS, INTEGERS, INTRINSICS, cast, evaluate, neutral, result_type

Array = np.ndarray[Any, Any]

INFINITY, NAN = math.inf, math.nan
SIGNED = [d for d in INTEGERS if d.is_signed]


def in_order(types: frozenset[DType]) -> list[DType]:
    return [d for d in DType if d in types]


def limits(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def wrap(value: int, dtype: DType) -> int:
    low, high = limits(dtype)
    return (value - low) % (high - low + 1) + low


def edges(dtype: DType) -> list[Any]:
    if dtype is DType.BOOL:
        return [False, True]
    if dtype.is_float:
        return [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 7.0, 100.0, INFINITY, -INFINITY, NAN]
    low, high = limits(dtype)
    values = {low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 8, dtype.bits - 1, dtype.bits, dtype.bits + 1}
    if dtype.is_signed:
        values |= {-1, -2, -3, -7, -8, -dtype.bits}
    return sorted(values)


def array_of(values: Sequence[Any], dtype: DType) -> Array:
    with np.errstate(over="ignore"):
        return np.array(values, dtype.numpy)


def pairs(dtype: DType) -> tuple[list[tuple[Any, Any]], Array, Array]:
    both = list(itertools.product(edges(dtype), repeat=2))
    left, right = (array_of(column, dtype) for column in zip(*both, strict=True))
    return both, left, right


def check(got: Array, expected: list[Any], dtype: DType, what: list[Any]) -> None:
    assert got.dtype == dtype.numpy
    wanted = array_of(expected, dtype)
    if dtype.is_float:
        wrong = ~(
            (got == wanted) & (np.signbit(got) == np.signbit(wanted)) | (np.isnan(got) & np.isnan(wanted))
        )
    else:
        wrong = got != wanted
    assert not wrong.any(), [
        (w, g, e) for w, g, e, bad in zip(what, got.tolist(), wanted.tolist(), wrong, strict=True) if bad
    ]


def shift_left(x: int, count: int, bits: int) -> int:
    return x << count if 0 <= count < bits else 0


def shift_right(x: int, count: int, bits: int) -> int:
    if count < 0:
        return 0
    return x >> min(count, bits)


def integer_power(x: int, y: int) -> int:
    if y >= 0:
        return int(x**y)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
    "max": max,
    "min": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


@pytest.mark.parametrize("dtype", in_order(INTEGERS))
@pytest.mark.parametrize("op", [*INTEGER, "pow", "shl", "shr"])
def test_integers_wrap(op: str, dtype: DType) -> None:
    both, left, right = pairs(dtype)
    if op == "pow":
        kept = [abs(y) < 80 for _, y in both]  # the reference multiplies it out
        both = [pair for pair, keep in zip(both, kept, strict=True) if keep]
        left, right = left[kept], right[kept]
        expected = [wrap(integer_power(x, y), dtype) for x, y in both]
    elif op in ("shl", "shr"):
        shift = shift_left if op == "shl" else shift_right
        expected = [wrap(shift(x, y, dtype.bits), dtype) for x, y in both]
    else:
        expected = [wrap(INTEGER[op](x, y), dtype) for x, y in both]
    check(evaluate(op, (left, right)), expected, dtype, both)


@pytest.mark.parametrize("dtype", in_order(INTEGERS))
def test_integers_of_one_operand(dtype: DType) -> None:
    values = edges(dtype)
    array = np.array(values, dtype.numpy)
    check(evaluate("neg", (array,)), [wrap(-v, dtype) for v in values], dtype, values)
    check(evaluate("abs", (array,)), [wrap(abs(v), dtype) for v in values], dtype, values)
    check(evaluate("not", (array,)), [wrap(~v, dtype) for v in values], dtype, values)


@pytest.mark.parametrize("op", ["max", "min", "and", "or", "xor", "not"])
def test_bools_are_logic(op: str) -> None:
    if op == "not":
        got = evaluate("not", (np.array([False, True]),))
        assert got.dtype == np.bool_ and got.tolist() == [True, False]
        return
    both, left, right = pairs(DType.BOOL)
    expected = [bool(INTEGER[op](x, y)) for x, y in both]
    check(evaluate(op, (left, right)), expected, DType.BOOL, both)


COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str, dtype: DType) -> None:
    both, left, right = pairs(dtype)
    got = evaluate(op, (left, right))
    check(got, [COMPARISONS[op](x, y) for x, y in both], DType.BOOL, both)


def float_floordiv(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        with np.errstate(all="ignore"):
            return float(np.floor_divide(x, y))
    return x // y


def float_mod(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return NAN
    return x % y


def quotient(x: float, y: float) -> float:
    if y != 0 or math.isnan(x) or math.isnan(y):
        return x / y if y else NAN
    return NAN if x == 0 else math.copysign(INFINITY, x) * math.copysign(1, y)


FLOAT: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": quotient,
    "floordiv": float_floordiv,
    "mod": float_mod,
}


@pytest.mark.parametrize("dtype", in_order(FLOATS))
@pytest.mark.parametrize("op", FLOAT)
def test_float_arithmetic_is_ieee(op: str, dtype: DType) -> None:
    both, left, right = pairs(dtype)
    check(evaluate(op, (left, right)), [FLOAT[op](x, y) for x, y in both], dtype, both)


@pytest.mark.parametrize("dtype", in_order(FLOATS))
@pytest.mark.parametrize("op", ["max", "min"])
def test_float_max_and_min_propagate_nan(op: str, dtype: DType) -> None:
    both, left, right = pairs(dtype)
    pick = max if op == "max" else min
    expected = [NAN if math.isnan(x) or math.isnan(y) else pick(x, y) for x, y in both]
    got = evaluate(op, (left, right))
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got.astype(np.float64), np.array(expected))  # zeros of either sign


@pytest.mark.parametrize("dtype", in_order(FLOATS))
def test_float_functions_of_one_operand(dtype: DType) -> None:
    values = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.75, -3.75, INFINITY, -INFINITY, NAN]
    array = np.array(values).astype(dtype.numpy)

    def finite(function: Callable[[float], float]) -> list[float]:
        return [math.copysign(function(v), v) if math.isfinite(v) else v for v in values]

    check(evaluate("neg", (array,)), [-v for v in values], dtype, values)
    check(evaluate("abs", (array,)), [abs(v) for v in values], dtype, values)
    check(evaluate("floor", (array,)), finite(math.floor), dtype, values)
    check(evaluate("ceil", (array,)), finite(math.ceil), dtype, values)
    check(evaluate("trunc", (array,)), finite(math.trunc), dtype, values)
    check(evaluate("round", (array,)), finite(round), dtype, values)
    roots = [math.sqrt(v) if v > 0 else v if v == 0 else NAN for v in values]
    check(evaluate("sqrt", (array,)), roots, dtype, values)


ELEMENTARY: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
    "erf": math.erf,
}
DOMAIN = {"log": (0.01, 9), "asin": (-1, 1), "acos": (-1, 1), "acosh": (1, 9), "atanh": (-0.99, 0.99)}


@pytest.mark.parametrize("dtype", in_order(FLOATS))
@pytest.mark.parametrize("op", ELEMENTARY)
def test_elementary_functions(op: str, dtype: DType) -> None:
    values = np.linspace(*DOMAIN.get(op, (-4, 4)), 201).astype(dtype.numpy)
    expected = np.array([ELEMENTARY[op](float(v)) for v in values])
    got = evaluate(op, (values,))
    assert got.dtype == dtype.numpy
    unit = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8, DType.F32: 2.0**-24, DType.F64: 2.0**-51}[dtype]
    assert (np.abs(got.astype(np.float64) - expected) <= unit * np.abs(expected) * 1.001 + 1e-30).all()
    with_nan = evaluate(op, (np.array([NAN, 0.5 if op != "acosh" else 1.5]).astype(dtype.numpy),))
    assert np.isnan(with_nan[0]) and not np.isnan(with_nan[1])


def test_elementary_functions_at_their_ends() -> None:
    def at(op: str, *values: float) -> list[float]:
        found: list[float] = evaluate(op, (np.array(values, np.float32),)).tolist()
        return found

    assert at("exp", -INFINITY, INFINITY, 200) == [0, INFINITY, INFINITY]
    assert at("log", 0, INFINITY) == [-INFINITY, INFINITY] and math.isnan(at("log", -1)[0])
    assert at("atanh", 1, -1) == [INFINITY, -INFINITY] and math.isnan(at("asin", 2)[0])
    assert at("erf", INFINITY, -INFINITY, 0) == [1, -1, 0]
    assert at("tanh", INFINITY, -1000) == [1, -1]


@pytest.mark.parametrize("dtype", in_order(FLOATS))
def test_float_power(dtype: DType) -> None:
    cases = [(2, 3, 8), (2, -1, 0.5), (-2, 3, -8), (0, 0, 1), (NAN, 0, 1), (1, NAN, 1), (0, -1, INFINITY)]
    cases += [
        (4, 0.5, 2),
        (INFINITY, -1, 0),
        (10, 100, INFINITY if dtype.bits == 16 and dtype is DType.F16 else 1e100),
    ]
    left, right, expected = (np.array(c).astype(np.float64) for c in zip(*cases, strict=True))
    got = evaluate("pow", (left.astype(dtype.numpy), right.astype(dtype.numpy)))
    with np.errstate(over="ignore"):
        wanted = expected.astype(dtype.numpy)
    np.testing.assert_array_equal(got, wanted)
    assert np.isnan(evaluate("pow", (np.array([-8.0]), np.array([1 / 3])))[0])


@pytest.mark.parametrize("dtype", list(DType))
def test_select(dtype: DType) -> None:
    chosen = np.array([True, False])
    first, second = np.ones(2).astype(dtype.numpy), np.zeros(2).astype(dtype.numpy)
    got = evaluate("select", (chosen, first, second))
    assert got.dtype == dtype.numpy and got.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_narrow_arithmetic_rounds_once_to_nearest_even(dtype: DType, rng: np.random.Generator) -> None:
    left, right = (
        (rng.standard_normal(2000) * 2.0 ** rng.integers(-6, 6, 2000)).astype(dtype.numpy) for _ in "ab"
    )
    for op, exact in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        # The exact result of two narrow floats of these magnitudes fits in f64.
        wide = exact(left.astype(np.float64), right.astype(np.float64))
        got = evaluate(op, (left, right)).astype(np.float64)
        spacing = 2.0 ** (
            np.floor(np.log2(np.maximum(np.abs(wide), 2.0**-14))) - (10 if dtype is DType.F16 else 7)
        )
        assert (np.abs(got - wide) <= spacing / 2).all(), op


def test_broadcasting_and_scalars_of_rank_0() -> None:
    column, row = np.arange(3, dtype=np.int32)[:, None], np.arange(4, dtype=np.int32)
    assert evaluate("add", (column, row)).shape == (3, 4)
    for name, info in INTRINSICS.items():
        dtype = DType.BOOL if info.types == BITS else DType.I16 if info.types == INTEGERS else DType.F32
        one = np.ones((), dtype.numpy)
        operands = (np.asarray(True), one, one) if name == "select" else (one,) * info.arity
        got = evaluate(name, operands)
        assert isinstance(got, np.ndarray) and got.shape == ()


def test_results_have_the_type_that_result_type_says() -> None:
    for name, info in INTRINSICS.items():
        for dtype in info.types:
            types = (DType.BOOL, dtype, dtype) if name == "select" else (dtype,) * info.arity
            result = result_type(name, types)
            assert result is not None
            operands = tuple(np.ones(3).astype(t.numpy) for t in types)
            assert evaluate(name, operands).dtype == result.numpy, (name, dtype)


def test_types_that_an_intrinsic_does_not_take() -> None:
    assert result_type("sqrt", (DType.I32,)) is None
    assert result_type("and", (DType.F32, DType.F32)) is None
    assert result_type("add", (DType.BOOL, DType.BOOL)) is None
    assert result_type("add", (DType.I32, DType.I64)) is None
    assert result_type("add", (DType.I32,)) is None
    assert result_type("select", (DType.I32, DType.I32, DType.I32)) is None
    assert result_type("select", (DType.BOOL, DType.I32, DType.I64)) is None
    assert result_type("no such", (DType.I32,)) is None


def test_commutative_ones_commute() -> None:
    for name, info in INTRINSICS.items():
        if info.commutative:
            dtype = DType.I8 if DType.I8 in info.types else DType.F32
            _, left, right = pairs(dtype)
            np.testing.assert_array_equal(evaluate(name, (left, right)), evaluate(name, (right, left)))


# Casts


@pytest.mark.parametrize("target", list(DType))
@pytest.mark.parametrize("source", in_order(INTEGERS))
def test_casts_of_integers(source: DType, target: DType) -> None:
    values = edges(source)
    array = np.array(values, source.numpy)
    if target is DType.BOOL:
        expected: list[Any] = [v != 0 for v in values]
    elif target.is_integer:
        expected = [wrap(v, target) for v in values]
    else:
        with np.errstate(over="ignore"):
            expected = [float(v) for v in np.array(values, np.float64).astype(target.numpy)]
    check(cast(array, target), expected, target, values)


@pytest.mark.parametrize("target", in_order(INTEGERS))
@pytest.mark.parametrize("source", in_order(FLOATS))
def test_casts_of_floats_to_integers_saturate(source: DType, target: DType) -> None:
    low, high = limits(target)
    raw = [
        0.0,
        -0.0,
        0.99,
        -0.99,
        1.5,
        -1.5,
        2.5,
        100.0,
        1e4,
        -1e4,
        3e9,
        -3e9,
        2e19,
        -2e19,
        INFINITY,
        -INFINITY,
    ]
    with np.errstate(over="ignore"):
        array = np.array([*raw, float(high), float(low), NAN]).astype(source.numpy)
    values = [float(v) for v in array]
    expected = [
        0
        if math.isnan(v)
        else high
        if v == INFINITY
        else low
        if v == -INFINITY
        else min(max(int(v), low), high)
        for v in values
    ]
    got = cast(array, target)
    assert got.dtype == target.numpy
    assert got.tolist() == expected


@pytest.mark.parametrize("source", in_order(FLOATS))
def test_casts_of_floats_to_bool(source: DType) -> None:
    values = np.array([0.0, -0.0, 0.5, -2.0, INFINITY, NAN]).astype(source.numpy)
    assert cast(values, DType.BOOL).tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize("target", in_order(FLOATS))
@pytest.mark.parametrize("source", in_order(FLOATS))
def test_casts_between_floats_round_to_nearest_even(source: DType, target: DType) -> None:
    raw = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        1 + 2.0**-11,
        1 + 3 * 2.0**-11,
        1 + 2.0**-8,
        1 + 3 * 2.0**-8,
        65504.0,
        65519.0,
    ]
    raw += [65520.0, 1e39, -1e39, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 1e-40, INFINITY, -INFINITY, NAN]
    with np.errstate(over="ignore", under="ignore"):
        array = np.array(raw).astype(source.numpy)
    exact = [float(v) for v in array]
    digits, top, bottom = {
        DType.F16: (11, 65520.0, -24),
        DType.BF16: (8, 2.0**128 * (1 - 2.0**-9), -133),
        DType.F32: (24, 2.0**128 * (1 - 2.0**-25), -149),
        DType.F64: (53, INFINITY, -1074),
    }[target]
    expected = [rounded(v, digits, top, bottom) for v in exact]
    got = cast(array, target)
    assert got.dtype == target.numpy
    np.testing.assert_array_equal(got.astype(np.float64), np.array(expected))
    assert np.signbit(got[1])


def rounded(value: float, digits: int, top: float, bottom: int) -> float:
    """`value` to `digits` binary digits, ties to even; from `top` on infinite; in steps of 2**bottom."""
    if math.isnan(value) or value == 0 or math.isinf(value):
        return value
    if abs(value) >= top:
        return math.copysign(INFINITY, value)
    exponent = max(math.frexp(value)[1] - digits, bottom)
    return math.ldexp(round(math.ldexp(value, -exponent)), exponent)


@pytest.mark.parametrize("target", list(DType))
def test_casts_of_bools(target: DType) -> None:
    assert cast(np.array([False, True]), target).tolist() == [0, 1]


# Neutral elements


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
def test_neutral_elements_leave_every_value_as_it_is(op: str, dtype: DType) -> None:
    if result_type(op, (dtype, dtype)) is None:
        assert dtype is DType.BOOL and op in ("add", "mul")
        return
    values = array_of(edges(dtype), dtype)
    start = np.asarray(neutral(op, dtype)).astype(dtype.numpy)
    got = evaluate(op, (start, values))
    check(got, values.tolist(), dtype, values.tolist())
