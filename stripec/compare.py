"""Does native code agree with the interpreter? The comparison behind `stripec run --check`.

Integers and bools must be equal bit for bit, NaN and infinities must stand in the same places.
Floats may differ by the rounding of reassociated sums: relative to the largest finite value of
the output, by (8 + n) eps, where n is the longest sum behind an element, plus 8 eps of f16 or
bf16 where the output is that narrow (then n counts with the eps of f32, in which it is summed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stripe.dtypes import DType, from_numpy
from stripe.ir import Aggregation, Block, Program
from stripe.visit import walk
from stripec.tensors import Array

_EPS = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`worst` is the largest difference and `allowed` what it may be; both 0 for integers.

    `at` is an element that differs by more, None if all agree.
    """

    worst: float
    allowed: float
    at: tuple[int, ...] | None


def longest_sum(program: Program) -> int:
    """An upper bound on how many values aggregate into one element: the points of a kernel."""
    return max((_points(block) for block in program.root.children), default=1)


def _points(kernel: Block) -> int:
    """The most points of a nest whose indexes no aggregated view's access depends on."""
    most = 1
    for _, block in walk(kernel):
        for ref in block.refinements:
            if ref.direction.writes and ref.aggregation is not Aggregation.ASSIGN:
                kept = {name for expr in ref.access for name in expr.names}
                most = max(most, math.prod(r for name, r in block.ranges.items() if name not in kept))
    return most


def compare(got: Array, want: Array, terms: int) -> Comparison:
    """Compare one output; `terms` is the longest sum behind an element of it."""
    dtype = from_numpy(want.dtype)
    if dtype is None or not dtype.is_float:
        return Comparison(0.0, 0.0, _first(got != want))
    wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(wide_want)
    scale = float(np.max(np.abs(wide_want), where=finite, initial=0.0))
    narrow = dtype in (DType.F16, DType.BF16)
    share = (8 + terms) * _EPS[DType.F32 if narrow else dtype] + (8 * _EPS[dtype] if narrow else 0.0)
    allowed = share * scale
    with np.errstate(invalid="ignore"):
        difference = np.where(finite, np.abs(wide_got - wide_want), 0.0)
        special = ~finite & ~((wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want)))
    worst = float(np.max(difference, initial=0.0))
    return Comparison(worst, allowed, _first(special | ~(difference <= allowed)))


def _first(wrong: Array) -> tuple[int, ...] | None:
    if not wrong.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
