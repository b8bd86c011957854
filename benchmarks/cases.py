"""The cases, as data: a Tile program, its inputs, what NumPy would run, and what is counted.

Counting rules: 2 floating-point operations for each multiply-add; bytes are each input and
each output once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """One benchmark. `flops` of 0 means that bytes per second are what counts."""

    name: str
    tile: str
    inputs: dict[str, tuple[int, ...]]
    numpy: Callable[..., Array]
    flops: int = 0

    def arrays(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        return {n: rng.standard_normal(shape).astype(np.float32) for n, shape in self.inputs.items()}


def _matmul(n: int) -> Case:
    return Case(
        f"matmul {n}",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        {"A": (n, n), "B": (n, n)},
        np.matmul,
        2 * n**3,
    )


def conv_with_numpy(I: Array, F: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(I, F.shape[:2], axis=(0, 1))
    return np.tensordot(windows, F, axes=((2, 3, 4), (2, 0, 1)))


def _conv(size: int, channels: int, out: int) -> Case:
    return Case(
        f"conv 3x3 {size}x{size} {channels}->{out}",
        """function (I[H, W, C], F[R, S, C, K]) -> (O) {
             O[y, x, k : H - R + 1, W - S + 1, K] = +(I[y + r, x + s, c] * F[r, s, c, k]);
           }""",
        {"I": (size + 2, size + 2, channels), "F": (3, 3, channels, out)},
        conv_with_numpy,
        2 * size * size * out * channels * 9,
    )


def softmax_with_numpy(X: Array) -> Array:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


SOFTMAX = """function (X[N, C]) -> (R) {
  M[n, 0 : N, 1] = >(X[n, c]);
  E = exp(X - M);
  S[n, 0 : N, 1] = +(E[n, c]);
  R = E / S;
}"""


def cases() -> list[Case]:
    transpose = "function (X[M, N]) -> (Y) { Y[n, m : N, M] = =(X[m, n]); }"
    rows = "function (X[M, N]) -> (Y) { Y[m : M] = +(X[m, n]); }"
    columns = "function (X[M, N]) -> (Y) { Y[n : N] = +(X[m, n]); }"
    return [
        *(_matmul(n) for n in (128, 256, 384, 512, 768, 1024)),
        _conv(56, 64, 64),
        _conv(28, 128, 128),
        Case("transpose 256", transpose, {"X": (256, 256)}, lambda X: np.ascontiguousarray(X.T)),
        Case("transpose 2048", transpose, {"X": (2048, 2048)}, lambda X: np.ascontiguousarray(X.T)),
        Case("row sums 256", rows, {"X": (256, 256)}, lambda X: X.sum(axis=1)),
        Case("row sums 2048", rows, {"X": (2048, 2048)}, lambda X: X.sum(axis=1)),
        Case("column sums 256", columns, {"X": (256, 256)}, lambda X: X.sum(axis=0)),
        Case("column sums 2048", columns, {"X": (2048, 2048)}, lambda X: X.sum(axis=0)),
        Case("softmax 512x512", SOFTMAX, {"X": (512, 512)}, softmax_with_numpy),
    ]
