"""NumPy, with the BLAS that its wheel brings: what its users would write, outputs given where it can."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.convolution import Conv, finish, padded, taps
from benchmarks.formulas import softmax_with_numpy
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, no_packing
from benchmarks.problems import DTYPES, Array, Contraction, Formula, Matmul, Problem, Results, aligned


class NumPy:
    name = "numpy"
    kind: Kind = "library"
    default = True

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return np.__version__

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        no_packing(setting)
        out = aligned(problem.result.shape, DTYPES[problem.result.type])
        call = _call(problem, list(arrays.values()), out)
        return Prepared(call, call)


def _call(problem: Problem, given: list[Array], out: Array) -> Callable[[], Results]:
    match problem:
        case Matmul(left="f32", right="f32"):
            a, b = given
            left, right = (a.T if problem.ta else a), (b.T if problem.tb else b)
            return lambda: np.matmul(left, right, out=out)
        case Matmul():
            raise Unsupported("NumPy has no fast product of these types")
        case Contraction():
            return lambda: np.asarray(np.einsum(problem.einsum, *given, optimize=True))
        case Conv(first=False, groups=1) if problem.kh * problem.kw <= 100:
            picture, weights, *bias = given
            return lambda: _convolve(problem, picture, weights, bias)
        case Conv() if problem.kh * problem.kw <= 100:
            return lambda: problem.reference(*given)
        case Formula(op="copy" | "copy1d"):
            return lambda: _copied(out, given[0])
        case Formula(op="transpose"):
            return lambda: _copied(out, given[0].T)
        case Formula(op="row_sum"):
            return lambda: np.sum(given[0], axis=1, out=out)
        case Formula(op="column_sum"):
            return lambda: np.sum(given[0], axis=0, out=out)
        case Formula(op="softmax"):
            return lambda: softmax_with_numpy(given[0])
        case Formula(op="gelu"):
            raise Unsupported("NumPy has no erf")
        case Formula():
            return lambda: problem.compute(*given)
        case _:
            raise Unsupported("it would take hours")


def _copied(out: Array, source: Array) -> Array:
    np.copyto(out, source)
    return out


def _convolve(problem: Conv, picture: Array, weights: Array, bias: list[Array]) -> Array:
    """One product with all windows side by side; they are copied into a matrix first."""
    found = [window for _, _, window in taps(padded(picture, problem.pad), problem)]
    windows = found[0] if len(found) == 1 else np.concatenate(found, axis=3)
    return finish(np.matmul(windows, weights.reshape(-1, problem.co)), bias)


PEER = NumPy()
