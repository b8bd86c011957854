"""A tile that autotile says fits does fit, with all its copies and as often as it is in flight: machines
whose near memory holds a few dozen elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stripec
from hwconfigs.model import HwConfig, Memory, PassStep, Unit
from stripe.ir import Block
from stripe.visit import walk

Arrays = dict[str, np.ndarray[Any, Any]]


def machine(size: int, align: int = 1, inflight: int = 2) -> HwConfig:
    steps = (
        *map(PassStep, ("canonicalize", "fuse", "localize", "scalarize", "separate")),
        PassStep("autotile", {"memory": "NEAR", "inflight": inflight}), PassStep("canonicalize"),
        PassStep("transfer"), PassStep("schedule", {"inflight": inflight}), PassStep("place"),
    )  # fmt: skip
    return HwConfig(
        "small", "for tests", "interpreter",
        memories=(
            Memory("NEAR", "explicit", size, 1, bytes_per_cycle=8.0, align_bytes=align, backing="FAR"),
            Memory("FAR", "explicit", align_bytes=align, bytes_per_cycle=4.0),
        ),
        units=(
            Unit("U", vector_bytes=8, reaches=("NEAR",)),
            Unit("COPY", "transfer", bytes_per_cycle=4.0, startup_cycles=30.0, reaches=("NEAR", "FAR")),
        ),
        pipeline=steps,
    )  # fmt: skip


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


THREE = """function (A[K, B1, M], B[B1, N, K]) -> (P, Q, S) {
    P[m, b, n : M, B1, N] = +(A[k, b, m] * B[b, n, k]);
    Q[n, m, b : N, M, B1] = +(A[k, b, m] * B[b, n, k]);
    S[k, n : K, N] = +(A[k, b, m] * B[b, n, k]);
}"""


@pytest.mark.parametrize("size", [1024, 2048])
def test_results_that_sum_over_different_indexes_stay_whole(size: int) -> None:
    a, b = floats(17, 3, 19), floats(3, 23, 17)
    kernel = stripec.compile(THREE, {"A": a, "B": b}, target=machine(size))
    for found, way in zip(kernel(a, b), ("mbn", "nmb", "kn"), strict=True):
        np.testing.assert_allclose(found, np.einsum(f"kbm,bnk->{way}", a, b), rtol=1e-4, atol=1e-4)


def test_each_buffer_takes_whole_units_of_alignment() -> None:
    text = """function (X[N, K]) -> (Y) {
        M[n, 0 : N, 1] = >(X[n, k]);
        E = exp(X - M);
        S[n, 0 : N, 1] = +(E[n, k]);
        Y = E / S;
    }"""
    x = floats(30, 40)
    found = stripec.compile(text, {"X": x}, target=machine(64, 16, inflight=1))(x)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_what_tiles_share_is_there_once_for_each_in_flight() -> None:
    """Each tile has a copy of A of its own, so that A counts twice; else nothing would overlap."""
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    kernel = stripec.compile(text, {"A": "f32[8,12]", "B": "f32[12,64]"}, target=machine(1024))
    tiles = [b for _, b in walk(kernel.program.root) if b.has_tag("tiled")]
    busy = [tile for tile in tiles if loads_and_works(tile)]
    assert busy and all(tile.inflight == 2 for tile in busy)


def loads_and_works(tile: Block) -> bool:
    return len(tile.statements) > 1 and len({s.location for s in tile.children}) > 1
