"""Numba: plain loops, compiled with fast math, for what memory binds."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.convolution import Conv, padded
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, no_packing, not_installed, version_of
from benchmarks.problems import Array, Formula, Problem, aligned


class Numba:
    name = "numba"
    kind: Kind = "compiler"
    default = True

    def missing(self) -> str:
        return not_installed("numba")

    def version(self) -> str:
        return version_of("numba")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        no_packing(setting)
        if setting.threads > 1:
            raise Unsupported("the loops are written for one thread")
        numba: Any = importlib.import_module("numba")
        given = list(arrays.values())
        match problem:
            case Formula(op=op) if op in LOOPS:
                loops = LOOPS[op]
            case Conv(stride=(1 | 2) as stride, epilogue=True, dilation=1, first=False) if problem.depthwise:
                loops = STRIDED[stride]
                given[0] = np.ascontiguousarray(padded(given[0], problem.pad))
            case _:
                raise Unsupported("loops are written for what memory binds")
        compiled = numba.njit(loops, fastmath=True)
        out = aligned(problem.result.shape, np.dtype(np.float32))

        def call() -> None:
            compiled(*given, out)

        def result() -> Array:
            call()
            return out

        note = "the picture is padded before" if isinstance(problem, Conv) else ""
        return Prepared(call, result, note)


def copy(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j]


def transpose(x: Array, out: Array) -> None:
    tile = 32
    for ii in range(0, x.shape[0], tile):
        for jj in range(0, x.shape[1], tile):
            for j in range(jj, min(jj + tile, x.shape[1])):
                for i in range(ii, min(ii + tile, x.shape[0])):
                    out[j, i] = x[i, j]


def row_sum(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


def column_sum(x: Array, out: Array) -> None:
    for j in range(x.shape[1]):
        out[j] = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]


def column_max(x: Array, out: Array) -> None:
    for j in range(x.shape[1]):
        out[j] = x[0, j]
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            out[j] = max(out[j], x[i, j])


def column_mean(x: Array, out: Array) -> None:
    for j in range(x.shape[1]):
        out[j] = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]
    for j in range(x.shape[1]):
        out[j] /= np.float32(x.shape[0])


def middle_sum(x: Array, out: Array) -> None:
    for a in range(x.shape[0]):
        for j in range(x.shape[2]):
            out[a, j] = 0
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                out[a, j] += x[a, i, j]


def add_row(x: Array, y: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + y[j]


def add8(a: Array, b: Array, d: Array, e: Array, f: Array, g: Array, h: Array, k: Array, out: Array) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + b[i, j] + d[i, j] + e[i, j] + f[i, j] + g[i, j] + h[i, j] + k[i, j]


def softmax(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        scale = np.float32(1) / total
        for j in range(x.shape[1]):
            out[i, j] *= scale


def layernorm(x: Array, g: Array, b: Array, out: Array) -> None:
    count = np.float32(x.shape[1])
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / count
        spread = np.float32(0)
        for j in range(x.shape[1]):
            spread += (x[i, j] - mean) * (x[i, j] - mean)
        scale = np.float32(1) / np.sqrt(spread / count + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * g[j] + b[j]


def chain(x: Array, g: Array, b: Array, out: Array) -> None:
    half, zero = np.float32(0.5), np.float32(0)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = max(x[i, j] * g[j] + b[j], zero) * half + x[i, j]


def gelu(x: Array, out: Array) -> None:
    half, one, root = np.float32(0.5), np.float32(1), np.float32(0.7071067811865476)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = half * x[i, j] * (one + math.erf(x[i, j] * root))


def depthwise_1(i: Array, f: Array, b: Array, out: Array) -> None:
    for n in range(out.shape[0]):
        for y in range(out.shape[1]):
            for x in range(out.shape[2]):
                for c in range(out.shape[3]):
                    total = b[c]
                    for r in range(3):
                        for s in range(3):
                            total += i[n, y + r, x + s, c] * f[r, s, c]
                    out[n, y, x, c] = max(total, np.float32(0))


def depthwise_2(i: Array, f: Array, b: Array, out: Array) -> None:
    for n in range(out.shape[0]):
        for y in range(out.shape[1]):
            for x in range(out.shape[2]):
                for c in range(out.shape[3]):
                    total = b[c]
                    for r in range(3):
                        for s in range(3):
                            total += i[n, 2 * y + r, 2 * x + s, c] * f[r, s, c]
                    out[n, y, x, c] = max(total, np.float32(0))


LOOPS: dict[str, Callable[..., None]] = {
    "copy": copy,
    "transpose": transpose,
    "row_sum": row_sum,
    "column_sum": column_sum,
    "column_max": column_max,
    "column_mean": column_mean,
    "middle_sum": middle_sum,
    "add_row": add_row,
    "add8": add8,
    "softmax": softmax,
    "layernorm": layernorm,
    "chain": chain,
    "gelu": gelu,
}
STRIDED = {1: depthwise_1, 2: depthwise_2}
PEER = Numba()
