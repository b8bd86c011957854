"""Conversions and casts, bit for bit, on vectors and on single elements."""

from __future__ import annotations

import numpy as np
import pytest

from hwconfigs.model import HwConfig
from stripe.dtypes import DType
from stripe.intrinsics import cast
from tests.support.native import elementwise, run, runnable

ALL_HALVES = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal in every bit, but that one NaN is as good as another."""
    kind = f"u{want.dtype.itemsize}"
    with np.errstate(all="ignore"):
        nan = np.isnan(want.astype(np.float64)) & np.isnan(got.astype(np.float64))
    return bool(((got.view(kind) == want.view(kind)) | nan).all())


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize("vector", [True, False])
def test_every_narrow_float_converts_exactly(hw: HwConfig, dtype: DType, vector: bool) -> None:
    values = ALL_HALVES.view(dtype.numpy)
    program = elementwise({"wide": ("cast", [dtype], DType.F32)}, values.size, vector)
    with np.errstate(all="ignore"):
        wide = values.astype(np.float32)
    assert same_bits(run(program, {f"{dtype}_0": values}, hw)["wide"], wide)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_rounding_to_narrow_floats(hw: HwConfig, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        exact = ALL_HALVES.view(dtype.numpy).astype(np.float32)
        between = np.concatenate([exact, (exact[:-1] + exact[1:]) / 2])
    bits = between.view(np.uint32)
    anywhere = np.arange(0, 1 << 32, 65521, dtype=np.uint64).astype("u4")
    samples = np.concatenate([bits, bits + 1, bits - 1, anywhere])
    values = samples.astype(np.uint32).view(np.float32)
    program = elementwise({"narrow": ("cast", [DType.F32], dtype)}, values.size, True)
    got = run(program, {"f32_0": values}, hw)["narrow"]
    assert same_bits(got, cast(values, dtype))


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_f64_is_rounded_to_f16_once(hw: HwConfig) -> None:
    halves = ALL_HALVES.view(np.float16).astype(np.float64)
    steps = np.sort(halves[np.isfinite(halves)])
    ties = (steps[1:] + steps[:-1]) / 2
    beyond = [1e300, -1e300, 1e-300, 65519.999, 65520.0, -65520.0]
    values = np.concatenate([ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), beyond])
    program = elementwise({"narrow": ("cast", [DType.F64], DType.F16)}, values.size, True)
    assert same_bits(run(program, {"f64_0": values}, hw)["narrow"], cast(values, DType.F16))


def edge_values(dtype: DType, size: int = 96) -> np.ndarray:
    rng = np.random.default_rng(1)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, size).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        ends = [limits.min, limits.max, limits.min + 1, limits.max - 1, 0, 1, 2, 3, 7]
        more = rng.integers(limits.min, limits.max, size - len(ends), dtype.numpy, endpoint=True)
        return np.concatenate([np.array(ends, dtype.numpy), more])
    edges = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        np.nan,
        np.inf,
        -np.inf,
        127.5,
        255.5,
        -129.0,
        1e9,
        3e9,
        1e19,
        2e19,
    ]
    signs = rng.choice([-1.0, 1.0], size - len(edges))
    more = signs * 2.0 ** rng.uniform(-30, 70, size - len(edges))
    with np.errstate(all="ignore"):
        return np.concatenate([edges, more]).astype(dtype.numpy)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("vector", [True, False])
def test_every_cast(hw: HwConfig, vector: bool) -> None:
    functions = {f"{a}_to_{b}": ("cast", [a], b) for a in DType for b in DType}
    inputs = {f"{dtype}_0": edge_values(dtype) for dtype in DType}
    results = run(elementwise(functions, 96, vector), inputs, hw)
    for name, (_, (source,), to) in functions.items():
        want = cast(inputs[f"{source}_0"], to)
        assert same_bits(results[name], want), name
