"""Calls to isl: one context, a limit on the steps of each question, and matrices and expressions for it.

isl counts its operations; a question that takes more than a fixed number of them ends with
`PolyhedralLimit`, so that no input can hang the compiler. All objects live in one isl
context. islpy holds the interpreter's lock during each call, which keeps isl's unguarded
reference counts whole; the lock below keeps the operation counter honest between threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import islpy as isl

from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic, InvariantError
from stripe.locks import ThreadLock

P = ParamSpec("P")
R = TypeVar("R")

MAX_OPERATIONS = 20_000_000  # isl's elementary steps in one question: a few seconds
REMEMBERED = 4096  # answers to each kind of question

CONTEXT = isl.Context()
CONTEXT.set_max_operations(MAX_OPERATIONS)
LOCK = ThreadLock()
_spent = 0.0  # seconds in isl since the module was loaded

SET = isl.dim_type.set
COLUMNS = (isl.dim_type.cst, isl.dim_type.param, isl.dim_type.set, isl.dim_type.div)


class PolyhedralLimit(CompileError):
    """A question about an integer set was given up: it took more steps than allowed."""

    def __init__(self) -> None:
        super().__init__(
            Diagnostic(
                "V900",
                "an integer set of this program is too complicated to reason about",
                None,
                ("help: simplify the constraints or use smaller coefficients and sizes",),
            )
        )


def isl_version() -> str:
    """Of isl and the library through which it is called."""
    return f"islpy {isl.version.VERSION_TEXT}"


def seconds_spent() -> float:
    """Seconds that questions to isl have taken in this process, for reports of compile time."""
    return _spent


def check_limit() -> None:
    """Fail if the limit was reached: counting and scanning stop there without a word."""
    isl.Val.int_from_si(CONTEXT, 0)


def guarded(function: Callable[P, R]) -> Callable[P, R]:
    """Run under the lock with a fresh operation count; turn isl's limit into PolyhedralLimit.

    Guarded functions don't call each other: each question has the whole count to itself.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        global _spent
        with LOCK:
            started = time.perf_counter()
            CONTEXT.reset_operations()
            try:
                result = function(*args, **kwargs)
                check_limit()
                return result
            except isl.Error as error:
                CONTEXT.reset_operations()
                if "maximal number of operations" in str(error):
                    raise PolyhedralLimit from None
                raise InvariantError(f"isl: {error}") from error
            finally:
                _spent += time.perf_counter() - started

    return run


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Like `guarded`, for a function of immutable values (domains count by identity): what was asked
    before is answered from memory. Kernels of a program are alike: most questions about their
    accesses come again and again, and domains made in the same way from the same are the same objects."""
    return cast(Callable[P, R], lru_cache(maxsize=REMEMBERED)(guarded(function)))


@lru_cache(maxsize=4096)
def isl_val(value: int) -> isl.Val:
    # The constructor takes 64 bits; larger numbers go through their digits.
    small = -(2**62) < value < 2**62
    return isl.Val.int_from_si(CONTEXT, value) if small else isl.Val(str(value), CONTEXT)


@lru_cache(maxsize=256)
def isl_space(dimensions: int) -> isl.Space:
    return isl.Space.set_alloc(CONTEXT, 0, dimensions)


def isl_matrix(positions: Mapping[str, int], rows: Sequence[Affine]) -> isl.Mat:
    matrix = isl.Mat.alloc(CONTEXT, 0, len(positions) + 1).add_zero_rows(len(rows))
    for row, expr in enumerate(rows):
        if expr.const:
            matrix = matrix.set_element_val(row, 0, isl_val(expr.const))
        for name, coefficient in expr.terms:
            matrix = matrix.set_element_val(row, positions[name] + 1, isl_val(coefficient))
    return matrix


def isl_basic_set(
    positions: Mapping[str, int], inequalities: Sequence[Affine], equalities: Sequence[Affine]
) -> Any:
    return isl.BasicSet.from_constraint_matrices(
        isl_space(len(positions)),
        isl_matrix(positions, equalities),
        isl_matrix(positions, inequalities),
        *COLUMNS,
    )


def matrix_rows(matrix: isl.Mat) -> list[list[int]]:
    columns = range(matrix.cols())
    return [[_int(matrix.get_element_val(row, at)) for at in columns] for row in range(matrix.rows())]


def _int(value: isl.Val) -> int:
    """A whole number. `to_python` goes through its digits; what does not fit a long is 0 without a word."""
    small: int = value.get_num_si()
    return small if small or value.is_zero() else int(value.to_python())


def isl_aff(positions: Mapping[str, int], expr: Affine) -> isl.Aff:
    aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(isl_space(len(positions))))
    aff = aff.set_constant_val(isl_val(expr.const))
    for name, coefficient in expr.terms:
        # In an expression over a set, the set's dimensions are the inputs.
        aff = aff.set_coefficient_val(isl.dim_type.in_, positions[name], isl_val(coefficient))
    return aff


def affine_constraints(names: Sequence[str], part: isl.BasicSet) -> tuple[list[Affine], list[Affine]]:
    """Of a conjunction without existentials: the inequalities (>= 0) and the equalities (= 0)."""

    def affines(matrix: isl.Mat) -> list[Affine]:
        return [Affine.of(dict(zip(names, row[1:], strict=True)), row[0]) for row in matrix_rows(matrix)]

    return affines(part.inequalities_matrix(*COLUMNS)), affines(part.equalities_matrix(*COLUMNS))
