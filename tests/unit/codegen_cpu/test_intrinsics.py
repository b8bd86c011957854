"""Every intrinsic on every type that it takes, against its NumPy meaning."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_cpu.intrinsics import EMITTERS
from hwconfigs.model import HwConfig
from stripe.dtypes import DType
from stripe.intrinsics import FLOATS, INTRINSICS, evaluate, result_type
from tests.support.native import elementwise, run, runnable

SIZE = 131  # whole vectors and a rest

_CIRCULAR = {"sin", "cos", "tan", "asin", "acos", "atan"}
ELEMENTARY = _CIRCULAR | {"exp", "log", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow"}


def test_every_intrinsic_has_code() -> None:
    assert set(EMITTERS) == set(INTRINSICS)


def operand(dtype: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, SIZE).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        pool = [limits.min, limits.max, 0, 1, 2, 3, dtype.bits - 1, dtype.bits, dtype.bits + 1]
        pool += [-1, -2, -3] if dtype.is_signed else [250]
        values = rng.choice(np.array(pool, dtype.numpy), SIZE)
        anything = rng.integers(limits.min, limits.max, SIZE, dtype.numpy, endpoint=True)
        return np.where(rng.random(SIZE) < 0.6, values, anything)
    floats = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, np.nan, np.inf, -np.inf, 0.1, 7.0]
    anything = rng.normal(size=SIZE) * 2.0 ** rng.integers(-6, 6, SIZE)
    return np.where(rng.random(SIZE) < 0.5, rng.choice(floats, SIZE), anything).astype(dtype.numpy)


def operand_types(name: str, dtype: DType) -> list[DType]:
    types = [dtype] * INTRINSICS[name].arity
    return [DType.BOOL, *types[1:]] if name == "select" else types


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", list(DType), ids=str)
@pytest.mark.parametrize("vector", [True, False], ids=["vector", "scalar"])
def test_intrinsics_compute_what_numpy_does(hw: HwConfig, dtype: DType, vector: bool) -> None:
    functions = {}
    for name, info in INTRINSICS.items():
        types = operand_types(name, dtype)
        result = result_type(name, tuple(types))
        if result is not None and dtype in info.types:
            functions[f"r_{name}"] = (name, types, result)
    program = elementwise(functions, SIZE, vector)
    inputs = {ref.name: operand(ref.dtype, int(ref.name[-1])) for ref in program.inputs}
    results = run(program, inputs, hw)
    for output, (name, types, _) in functions.items():
        values = tuple(inputs[f"{t}_{at}"] for at, t in enumerate(types))
        want = evaluate(name, values)
        check(name, results[output], want, dtype)


def check(name: str, got: np.ndarray, want: np.ndarray, dtype: DType) -> None:
    assert got.dtype == want.dtype, name
    if want.dtype == np.bool_ or dtype not in FLOATS:
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    ulps = 2.5 if name in ELEMENTARY else 0.0
    one, two = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.abs(want)).astype(np.float64)
        near = np.abs(one - two) <= ulps * np.where(np.isfinite(spacing), spacing, 0)
    same = (one == two) | (np.isnan(one) & np.isnan(two)) | near
    assert same.all(), f"{name}: {one[~same][:3]} for {two[~same][:3]}"
    if name not in ELEMENTARY | {"max", "min"}:
        signs = np.signbit(one) == np.signbit(two)
        assert (signs | np.isnan(two)).all(), f"{name}: the sign of a zero"
