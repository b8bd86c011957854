"""What a case of the Tile corpus is, its inputs, and how results compare.

A reference takes the inputs by name and returns one array, or a tuple of arrays in the order of
the outputs; their element types are part of the expectation. `integers` and `floats` bound the
random inputs (`make_inputs`); `given` fixes an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from tests.support.golden import input_types
from tile_frontend import compile_tile

Array = np.ndarray[Any, Any]
Reference = Callable[..., Array | tuple[Array, ...]]

f16, f32, f64 = np.float16, np.float32, np.float64
bf16 = ml_dtypes.bfloat16

# Relative and absolute error that a result of this type may have: sums may be reassociated.
TOLERANCE = {DType.F16: 4e-3, DType.BF16: 3e-2, DType.F32: 2e-5, DType.F64: 1e-12}


@dataclass(frozen=True)
class TileCase:
    name: str
    text: str
    shapes: str
    reference: Reference
    integers: tuple[int, int] = (-8, 9)
    floats: tuple[float, float] = (-2.0, 2.0)
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return Source(f"{self.name}.tile", self.text)

    @property
    def types(self) -> dict[str, TensorType]:
        return input_types({"shapes": self.shapes})

    def program(self) -> Program:
        return compile_tile(self.source, self.types)


def make_inputs(case: TileCase, rng: np.random.Generator) -> dict[str, Array]:
    """Random inputs within the case's bounds; `given` ones as they are."""
    arrays: dict[str, Array] = {}
    for name, type in case.types.items():
        if name in case.given:
            values = np.asarray(case.given[name]).reshape(type.shape)
        elif type.dtype.is_float:
            values = rng.uniform(*case.floats, type.shape)
        elif type.dtype is DType.BOOL:
            values = rng.integers(0, 2, type.shape)
        else:
            low = case.integers[0] if type.dtype.is_signed else max(0, case.integers[0])
            values = rng.integers(low, case.integers[1], type.shape)
        arrays[name] = np.asarray(values).astype(type.dtype.numpy)
    return arrays


def expected(case: TileCase, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        found = case.reference(**inputs)
    return tuple(np.asarray(a) for a in found) if isinstance(found, tuple) else (np.asarray(found),)


def assert_agrees(name: str, got: Array, wanted: Array) -> None:
    """Types and shapes are equal; integers too; floats within the tolerance of their type."""
    assert got.dtype == wanted.dtype, f"{name}: type {got.dtype}, expected {wanted.dtype}"
    assert got.shape == wanted.shape, f"{name}: shape {got.shape}, expected {wanted.shape}"
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted, err_msg=name)
        return
    error = next(t for d, t in TOLERANCE.items() if d.numpy == got.dtype)
    np.testing.assert_allclose(
        got.astype(f64), wanted.astype(f64), rtol=error, atol=error, equal_nan=True, err_msg=name
    )


# -- helpers for references ------------------------------------------------------------------


def taps(x: Array, offset: int, size: int, count: int, stride: int = 1) -> Array:
    """x[stride*i + k - offset] for i < size, k < count on axis 0; 0 outside."""
    result = np.zeros((size, count, *x.shape[1:]), x.dtype)
    for i in range(size):
        for k in range(count):
            at = stride * i + k - offset
            if 0 <= at < x.shape[0]:
                result[i, k] = x[at]
    return result


def conv2d(x: Array, w: Array, pad: int = 0, stride: int = 1, step: int = 1) -> Array:
    """x (h, w, c), w (r, s, c, k); zero padding; `step` is the dilation."""
    r, s = w.shape[:2]
    x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
    rows = (x.shape[0] - step * (r - 1) - 1) // stride + 1
    cols = (x.shape[1] - step * (s - 1) - 1) // stride + 1
    out = np.zeros((rows, cols, w.shape[3]), x.dtype)
    for i in range(r):
        for j in range(s):
            top, left = step * i, step * j
            part = x[
                top : top + stride * (rows - 1) + 1 : stride, left : left + stride * (cols - 1) + 1 : stride
            ]
            out += part @ w[i, j]
    return out


def relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


def erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf)(x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def scattered(updates: Array, index: Array, like: Array) -> Array:
    out = np.zeros(like.shape, updates.dtype)
    np.add.at(out, index, updates)
    return out


def elementwise(name: str, expression: str, shapes: str, reference: Reference, **options: Any) -> TileCase:
    names = ", ".join(n for n in input_types({"shapes": shapes}))
    return TileCase(name, f"function ({names}) -> (R) {{ R = {expression}; }}", shapes, reference, **options)
