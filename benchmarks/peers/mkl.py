"""Intel MKL, called through ctypes: matrix products, and its out-of-place transpose."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, library_file, version_of
from benchmarks.problems import DTYPES, Array, Formula, Matmul, Problem, aligned

ROW_MAJOR, NO_TRANS, TRANS, FIX_OFFSET = 101, 111, 112, 173
B_MATRIX, PACKED = 162, 151
INT, FLOAT = ctypes.c_int32, ctypes.c_float


class MKL:
    name = "mkl"
    kind: Kind = "library"
    default = True

    def missing(self) -> str:
        return "" if library_file("mkl", "libmkl_rt") else "mkl not installed"

    def version(self) -> str:
        return version_of("mkl")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        out = aligned(problem.result.shape, DTYPES[problem.result.type])
        if setting.packed:
            if not isinstance(problem, Matmul) or problem.left != "f32":
                raise Unsupported("only f32 matrix products have a packed form")
            call = _packed(problem, arrays["A"], arrays["B"], out)
        else:
            call = _call(problem, arrays, out)

        def result() -> Array:
            call()
            return out

        return Prepared(call, result)


@functools.cache
def _library() -> Any:
    """Sequential with one thread, GNU's OpenMP with more; 32-bit integers."""
    library = ctypes.CDLL(library_file("mkl", "libmkl_rt"))
    library.MKL_Set_Threading_Layer(1 if os.environ.get("MKL_NUM_THREADS", "1") == "1" else 3)
    library.MKL_Set_Interface_Layer(0)
    library.cblas_sgemm_pack_get_size.restype = ctypes.c_size_t
    return library


def _call(problem: Problem, arrays: Mapping[str, Array], out: Array) -> Callable[[], object]:
    library = _library()
    match problem:
        case Matmul(left="f32", right="f32"):
            function = library.cblas_sgemm
            return _gemm(function, problem, arrays["A"], arrays["B"], out)
        case Matmul(left="bf16", right="bf16", out="f32"):
            return _gemm(library.cblas_gemm_bf16bf16f32, problem, arrays["A"], arrays["B"], out)
        case Matmul(left="f16", right="f16", out="f32"):
            return _gemm(library.cblas_gemm_f16f16f32, problem, arrays["A"], arrays["B"], out)
        case Formula(op="gemm"):
            ((m, n, k),) = problem.gemms
            product = _gemm(library.cblas_sgemm, Matmul(m, n, k), arrays["A"], arrays["B"], out, 1.5, 1.2)

            def scaled() -> None:
                out[...] = arrays["C"]
                product()

            return scaled
        case Formula(op="transpose"):
            source = arrays["X"]
            rows, columns = source.shape
            letter = ctypes.c_char
            return functools.partial(
                library.mkl_somatcopy_, *_by_reference(letter(b"C"), letter(b"T")),
                *_by_reference(INT(columns), INT(rows), FLOAT(1)),
                ctypes.c_void_p(source.ctypes.data), ctypes.byref(INT(columns)),
                ctypes.c_void_p(out.ctypes.data), ctypes.byref(INT(rows)),
            )  # fmt: skip
        case _:
            raise Unsupported("only matrix products and transposes are called through ctypes")


def _by_reference(*values: Any) -> list[Any]:
    return [ctypes.byref(value) for value in values]


def _gemm(
    function: Any, problem: Matmul, a: Array, b: Array, out: Array, alpha: float = 1.0, beta: float = 0.0
) -> Callable[[], object]:
    return functools.partial(
        function, INT(ROW_MAJOR),
        INT(TRANS if problem.ta else NO_TRANS), INT(TRANS if problem.tb else NO_TRANS),
        INT(problem.m), INT(problem.n), INT(problem.k), FLOAT(alpha),
        ctypes.c_void_p(a.ctypes.data), INT(a.shape[1]), ctypes.c_void_p(b.ctypes.data), INT(b.shape[1]),
        FLOAT(beta), ctypes.c_void_p(out.ctypes.data), INT(problem.n),
    )  # fmt: skip


def _packed(problem: Matmul, a: Array, b: Array, out: Array) -> Callable[[], object]:
    """The right operand in MKL's own format, made once."""
    library = _library()
    m, n, k = INT(problem.m), INT(problem.n), INT(problem.k)
    size = library.cblas_sgemm_pack_get_size(INT(B_MATRIX), m, n, k)
    room = aligned((size,), DTYPES["u8"])
    address = ctypes.c_void_p(room.ctypes.data)
    library.cblas_sgemm_pack(
        INT(ROW_MAJOR), INT(B_MATRIX), INT(TRANS if problem.tb else NO_TRANS), m, n, k, FLOAT(1),
        ctypes.c_void_p(b.ctypes.data), INT(b.shape[1]), address,
    )  # fmt: skip
    compute = functools.partial(
        library.cblas_sgemm_compute, INT(ROW_MAJOR), INT(TRANS if problem.ta else NO_TRANS), INT(PACKED),
        m, n, k, ctypes.c_void_p(a.ctypes.data), INT(a.shape[1]), address, INT(problem.n), FLOAT(0),
        ctypes.c_void_p(out.ctypes.data), INT(problem.n),
    )  # fmt: skip

    def run() -> object:
        return compute(), room  # the room lives as long as the function

    return run


PEER = MKL()
