"""The edges of a photograph that ships with scikit-learn, in Tile and in SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import correlate1d
from sklearn.datasets import load_sample_image

Array = np.ndarray[Any, Any]


def gaussian_taps(radius: int, sigma: float) -> Array:
    """The 2 * radius + 1 weights of a Gaussian, normalised to a sum of 1."""
    at = np.arange(-radius, radius + 1, dtype=np.float64)
    weights = np.exp(-0.5 * (at / sigma) ** 2)
    return np.asarray(weights / weights.sum(), np.float32)


def edge_inputs() -> dict[str, Array]:
    """The arguments of edges.tile: picture in [0, 1], luminance weights, taps, threshold."""
    picture = load_sample_image("china.jpg").astype(np.float32) / np.float32(255)
    return {
        "I": picture,
        "L": np.array([0.2126, 0.7152, 0.0722], np.float32),  # ITU-R BT.709
        "G": gaussian_taps(2, 1.0),
        "S": np.array([1, 2, 1], np.float32),
        "D": np.array([-1, 0, 1], np.float32),
        "T": np.array(0.5, np.float32),
    }


def edges_with_scipy(I: Array, L: Array, G: Array, S: Array, D: Array, T: Array) -> tuple[Array, Array]:
    """What edges.tile computes, by scipy.ndimage: gradient magnitude and a mask of 0 and 255."""

    def along(values: Array, weights: Array, axis: int) -> Array:
        return np.asarray(correlate1d(values, weights, axis=axis, mode="constant"))

    grey = I @ L
    blurred = along(along(grey, G, 1), G, 0)
    gx = along(along(blurred, S, 0), D, 1)
    gy = along(along(blurred, S, 1), D, 0)
    magnitude = np.sqrt(gx * gx + gy * gy)

    padded = np.pad(magnitude, 1)
    height, width = magnitude.shape

    def neighbour(down: int, right: int) -> Array:
        return padded[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    flat = np.abs(gy) <= np.float32(0.41421356) * np.abs(gx)
    steep = np.abs(gx) <= np.float32(0.41421356) * np.abs(gy)
    falling = gx * gy > 0

    def towards(sign: int) -> Array:
        diagonal = np.where(falling, neighbour(sign, sign), neighbour(sign, -sign))
        return np.where(flat, neighbour(0, sign), np.where(steep, neighbour(sign, 0), diagonal))

    ridge = (magnitude >= towards(1)) & (magnitude >= towards(-1)) & (magnitude > T)
    return magnitude, np.where(ridge, 255, 0).astype(np.uint8)
