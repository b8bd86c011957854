"""What it costs to use stripec at all: import, a cold compilation, a call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import timeit

import numpy as np

import stripec

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
CALLS, ROUNDS = 20_000, 100


def costs() -> dict[str, str]:
    """In words and figures, each measured in a process of its own but the last."""
    bare = _seconds_of("pass")
    imported = _seconds_of("import stripec; stripec.compile") - bare
    shapes = dict.fromkeys("AB", "f32[512, 512]")
    code = (
        "import stripec, time; start = time.perf_counter();"
        f"stripec.compile({PRODUCT!r}, shapes={shapes!r}); print(time.perf_counter() - start)"
    )
    cold = dict(os.environ, STRIPEC_CACHE_DIR="off")
    compiled = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=cold
    )
    tiny = stripec.compile(
        "function (A[N], B[N]) -> (C) { C = A + B; }", shapes={"A": "f32[4]", "B": "f32[4]"}
    )
    a, out = np.ones(4, np.float32), np.ones(4, np.float32)
    for _ in range(3):  # a kernel that is called again gets a quicker way
        tiny(a, a)
    number = CALLS // ROUNDS
    new = min(timeit.repeat(lambda: tiny(a, a), number=number, repeat=ROUNDS)) / number
    given = min(timeit.repeat(lambda: tiny(a, a, out=out), number=number, repeat=ROUNDS)) / number
    return {
        "import stripec, all of it": f"{imported:.3f} s",
        "compile a 512 x 512 x 512 matmul, cold": f"{float(compiled.stdout):.3f} s",
        "call of a tiny kernel": f"{new * 1e6:.2f} us",
        "call of a tiny kernel, with out": f"{given * 1e6:.2f} us",
    }


def _seconds_of(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start
