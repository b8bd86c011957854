"""The elementary functions of f32, over the whole range of bit patterns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from codegen_cpu.elementary import ELEMENTARY
from hwconfigs.model import HwConfig
from stripe.dtypes import DType
from tests.support.native import elementwise, run, runnable

REFERENCE = {"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": special.erf}
STEP = 9973  # between neighbouring bit patterns: about 430,000 samples


def test_all_are_tested() -> None:
    assert set(REFERENCE) == set(ELEMENTARY)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_within_two_units_in_the_last_place(hw: HwConfig) -> None:
    x = np.arange(0, 1 << 32, STEP, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 88.8, -103.9, 0.625, 1e6, -1e6, 2**-126, 1.0], np.float32
    )
    x = np.concatenate([x, edges, np.linspace(-20, 20, 50_001, dtype=np.float32)])
    functions = {f"r_{name}": (name, [DType.F32], DType.F32) for name in REFERENCE}
    results = run(elementwise(functions, x.size, True), {"f32_0": x}, hw)
    for name, function in REFERENCE.items():
        got = results[f"r_{name}"]
        with np.errstate(all="ignore"):
            exact = np.asarray(function(x.astype(np.float64)))
            want = exact.astype(np.float32)
        assert (np.isnan(got) == np.isnan(want)).all(), name
        infinite = np.isinf(want)
        assert (np.isinf(got) == infinite).all() and (got[infinite] == want[infinite]).all(), name
        finite = np.isfinite(want)
        error = np.abs(got[finite].astype(np.float64) - exact[finite])
        ulps = error / np.spacing(np.abs(want[finite])).astype(np.float64)
        assert ulps.max() < 2, f"{name}: {ulps.max()} at {x[finite][ulps.argmax()]}"


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_zeros_keep_their_sign(hw: HwConfig) -> None:
    names = ("sin", "tanh", "erf")
    functions = {f"r_{name}": (name, [DType.F32], DType.F32) for name in names}
    x = np.array([0.0, -0.0] * 8, np.float32)
    for result in run(elementwise(functions, 16, True), {"f32_0": x}, hw).values():
        np.testing.assert_array_equal(np.signbit(result), np.signbit(x))
