"""oneDNN's matrix products, called through ctypes in the shared library of its wheel."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, library_file, no_packing, version_of
from benchmarks.problems import DTYPES, Array, Formula, Matmul, Problem, aligned

DISTRIBUTION = "onednn-cpu-gomp"
CHAR, LONG, FLOAT = ctypes.c_char, ctypes.c_int64, ctypes.c_float


class OneDNN:
    name = "onednn_sgemm"
    kind: Kind = "library"
    default = True

    def missing(self) -> str:
        return "" if library_file(DISTRIBUTION, "libdnnl") else f"{DISTRIBUTION} not installed"

    def version(self) -> str:
        return f"wheel {version_of(DISTRIBUTION)}"

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        no_packing(setting)
        out = aligned(problem.result.shape, DTYPES[problem.result.type])
        match problem:
            case Matmul(left="f32", right="f32"):
                call = sgemm(problem, arrays["A"], arrays["B"], out)
            case Matmul(left="u8", right="i8", ta=False, tb=False):
                call = _gemm_u8s8(problem, arrays["A"], arrays["B"], out)
            case Formula(op="gemm"):
                call = _scaled(problem, arrays, out)
            case _:
                raise Unsupported("only matrix products are called through ctypes")

        def result() -> Array:
            call()
            return out

        return Prepared(call, result)


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(library_file(DISTRIBUTION, "libdnnl"))
    sizes: list[Any] = [LONG] * 3
    matrix: list[Any] = [ctypes.c_void_p, LONG]
    library.dnnl_sgemm.argtypes = [CHAR, CHAR, *sizes, FLOAT, *matrix, *matrix, FLOAT, *matrix]
    library.dnnl_gemm_u8s8s32.argtypes = [
        CHAR, CHAR, CHAR, *sizes, FLOAT, *matrix, ctypes.c_uint8, *matrix, ctypes.c_int8, FLOAT, *matrix,
        ctypes.c_void_p,
    ]  # fmt: skip
    return library


def sgemm(problem: Matmul, a: Array, b: Array, out: Array) -> Callable[[], object]:
    return _product(problem, a, b, out, 1.0, 0.0)


def _product(
    problem: Matmul, a: Array, b: Array, out: Array, alpha: float, beta: float
) -> Callable[[], object]:
    return functools.partial(
        _library().dnnl_sgemm, b"T" if problem.ta else b"N", b"T" if problem.tb else b"N",
        problem.m, problem.n, problem.k, alpha, a.ctypes.data, a.shape[1], b.ctypes.data, b.shape[1],
        beta, out.ctypes.data, problem.n,
    )  # fmt: skip


def _gemm_u8s8(problem: Matmul, a: Array, b: Array, out: Array) -> Callable[[], object]:
    offset = ctypes.c_int32(0)
    call = functools.partial(
        _library().dnnl_gemm_u8s8s32, b"N", b"N", b"F", problem.m, problem.n, problem.k, 1.0,
        a.ctypes.data, problem.k, 0, b.ctypes.data, problem.n, 0, 0.0, out.ctypes.data, problem.n,
        ctypes.addressof(offset),
    )  # fmt: skip

    def run() -> object:
        return call(), offset  # the offset lives as long as the function

    return run


def _scaled(problem: Formula, arrays: Mapping[str, Array], out: Array) -> Callable[[], object]:
    """R = 1.5 A B + 1.2 C; C is copied first, as the library adds in place."""
    ((m, n, k),) = problem.gemms
    product = _product(Matmul(m, n, k), arrays["A"], arrays["B"], out, 1.5, 1.2)

    def run() -> None:
        out[...] = arrays["C"]
        product()

    return run


PEER = OneDNN()
