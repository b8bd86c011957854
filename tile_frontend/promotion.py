"""Element types of Tile expressions: NumPy's promotion, with weak scalars as in NEP 50.

A *weak* scalar is a number that is known now and has no type of its own: a literal, a
dimension, and what is computed from these alone. It takes the type of what it meets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stripe.dtypes import DType, from_numpy, rounds_to

WEAK_LIMITS = (-(2**63), 2**64)  # low <= a weak integer < high


@dataclass(frozen=True, slots=True)
class Weak:
    """A scalar known at compile time, without a type."""

    value: int | float | bool

    @property
    def dtype(self) -> DType:
        """The type it gets where nothing else decides: NumPy's default."""
        if isinstance(self.value, bool):
            return DType.BOOL
        if isinstance(self.value, float):
            return DType.F64
        return DType.I64 if self.value < 2**63 else DType.U64


@lru_cache(maxsize=1024)
def promote(first: DType, second: DType) -> DType:
    """The common type of two arrays. bf16 meets others as f16 does; the two meet in f32."""
    pair = {first, second}
    if len(pair) == 1:
        return first
    if DType.BF16 in pair:
        other = next(t for t in pair if t is not DType.BF16)
        if other is DType.F16:
            return DType.F32
        with_half = promote(DType.F16, other)
        return DType.BF16 if with_half is DType.F16 else with_half
    common = from_numpy(np.promote_types(first.numpy, second.numpy))
    assert common is not None  # the types of Tile are closed under NumPy's promotion
    return common


def common_type(strong: Iterable[DType], weak: Iterable[Weak] = ()) -> DType:
    """The type in which operands meet; at least one of them is given."""
    common: DType | None = None
    for dtype in strong:
        common = dtype if common is None else promote(common, dtype)
    scalars = list(weak)
    if common is None:
        return common_type([scalar.dtype for scalar in scalars])
    for scalar in scalars:
        kind = scalar.dtype
        if kind is DType.F64 and not common.is_float:
            common = DType.F64
        elif kind.is_integer and common is DType.BOOL:
            common = DType.I64
    return common


def fits(value: int | float | bool, dtype: DType) -> bool:
    """Whether a weak scalar can be a value of this type (floats round, but not to infinity; integers must
    not wrap)."""
    if dtype.is_float:
        return rounds_to(value, dtype)
    if isinstance(value, float):
        return False
    if dtype is DType.BOOL:
        return isinstance(value, bool)
    limits = np.iinfo(dtype.numpy)
    return int(limits.min) <= value <= int(limits.max)


def real_type(dtype: DType) -> DType:
    """The type in which NumPy computes exp and the like of this type."""
    if dtype.is_float:
        return dtype
    return {1: DType.F16, 8: DType.F16, 16: DType.F32}.get(dtype.bits, DType.F64)


def accumulation_type(operands: Iterable[DType], value: DType) -> DType:
    """The type in which sums and products of `value`s are accumulated (docs/tile.md, Types).

    f16 and bf16 in f32; truth values are counted in i32; 8-bit integers in i32.
    """
    if value in (DType.F16, DType.BF16):
        return DType.F32
    if value is DType.BOOL or all(t.bits <= 8 for t in operands):
        return DType.I32
    return value
