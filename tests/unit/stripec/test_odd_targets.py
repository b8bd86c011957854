"""Targets that nobody would build, or not yet: programs compute the same on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stripec
from stripe.interp import interpret
from stripec.compare import compare, longest_sum

TILE = """
function (A[M, K], B[K, N], D[N]) -> (R, S, T) {
  C[m, n : M, N] = +(A[m, k] * B[k, n]);
  R = relu(C + D);
  S[m : M] = >(R[m, n]);
  T[n, m : N, M] = =(R[m, n]);
}
"""
SHAPES = {"A": (9, 14), "B": (14, 23), "D": (23,)}


def agrees(folder: Path, dtype: str = "f4", **changes: Any) -> None:
    target = folder / "odd.json"
    target.write_text(json.dumps({"extends": "generic", "name": "odd"} | changes))
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}
    kernel = stripec.compile(TILE, shapes=arrays, target=target)
    results = kernel(**arrays)
    before = kernel.stages[0][1]
    wanted = interpret(before, arrays)
    for name, got in zip(kernel.outputs, results, strict=True):
        found = compare(got, wanted[name], longest_sum(before))
        assert found.at is None, f"{name} is {found.worst} off at {found.at}"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [1, 4, 8, 512, 8192])
def test_vectors_of_every_width(tmp_path: Path, size: int, dtype: str) -> None:
    agrees(tmp_path, dtype, units=[{"name": "CORE", "vector_bytes": size}])


@pytest.mark.parametrize("count", [1, 3, 1 << 40])
def test_few_registers_and_too_many(tmp_path: Path, count: int) -> None:
    agrees(tmp_path, units=[{"name": "CORE", "registers": count}])


PIPELINES = {
    "none": [],
    "backwards": ["unroll", "vectorize", "localize+", "autotile:REG", "scalarize", "fuse", "canonicalize"],
    "tiled again and again": ["autotile:L1", "autotile:L1", "autotile:REG", "autotile:REG", "localize+"],
    "fused last": ["localize+", "vectorize", "unroll", "fuse", "localize", "scalarize", "canonicalize"],
}


@pytest.mark.parametrize("names", PIPELINES.values(), ids=PIPELINES)
def test_pipelines_in_any_order(tmp_path: Path, names: list[str]) -> None:
    steps = []
    for name in names:
        step, _, memory = name.partition(":")
        more = {"memory": memory} if memory else {"accumulators": "REG"} if step.endswith("+") else {}
        steps.append({"pass": step.rstrip("+"), **more})
    agrees(tmp_path, pipeline=steps)
