"""The programs of examples/ compute what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stripec
from benchmarks.convolution import Conv
from benchmarks.formulas import softmax_with_numpy

Array = np.ndarray[Any, Any]
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _padded(image: Array, weights: Array) -> Array:
    (height, width, channels), (kh, kw, _, out) = image.shape, weights.shape
    layer = Conv(1, height, width, channels, out, kh, kw, pad=(1, 1), epilogue=False)
    return np.asarray(layer.reference(image[None], weights)[0])


REFERENCES: dict[str, tuple[Callable[..., Array], tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda a, b, d: np.maximum(a @ b + d, 0), ((33, 20), (20, 41), (41,))),
    "conv": (_padded, ((9, 11, 8), (3, 3, 8, 17))),
    "softmax": (softmax_with_numpy, ((7, 100),)),
}


def test_every_example_has_a_reference() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.tile")} == set(REFERENCES)


@pytest.mark.parametrize("target", ["host", "generic"])
@pytest.mark.parametrize("name", REFERENCES)
def test_example(name: str, target: str, rng: np.random.Generator) -> None:
    reference, shapes = REFERENCES[name]
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    result = stripec.compile(EXAMPLES / f"{name}.tile", target=target)(*arrays)
    expected = reference(*(array.astype(np.float64) for array in arrays))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
