"""Scalar element types and their NumPy counterparts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np

from stripe.locks import cached_property


class DType(StrEnum):
    """An element type. Its value is the name used in Tile and Stripe text."""

    BOOL = "bool"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    @cached_property
    def is_float(self) -> bool:
        return self.value in ("f16", "bf16", "f32", "f64")

    @cached_property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers; false for bool."""
        return self.value[0] in "iu"

    @cached_property
    def is_signed(self) -> bool:
        return self.value[0] == "i" or self.is_float

    @cached_property
    def bits(self) -> int:
        """Width of the value in bits; a bool has 1 but occupies a byte in memory."""
        return 1 if self is DType.BOOL else int(self.value.lstrip("iubf"))

    @cached_property
    def bytes(self) -> int:
        """Size of one element in memory."""
        return max(1, self.bits // 8)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        if self is DType.BF16:
            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        if self is DType.BOOL:
            return np.dtype(np.bool_)
        kind = {"i": "i", "u": "u", "f": "f"}[self.value[0]]
        return np.dtype(f"{kind}{self.bytes}")


DTYPE_NAMES: frozenset[str] = frozenset(member.value for member in DType)


def from_numpy(dtype: Any) -> DType | None:
    """The element type of a NumPy dtype (in native byte order), or None if there is none."""
    wanted = np.dtype(dtype)
    for member in DType:
        if member.numpy == wanted:
            return member
    return None


def rounds_to(value: float, dtype: DType) -> bool:
    """Whether a number has a place among those of a float type: what is finite stays finite."""
    try:
        wide = np.float64(value)
    except OverflowError:
        return False
    with np.errstate(over="ignore"):
        return not np.isfinite(wide) or bool(np.isfinite(wide.astype(dtype.numpy)))


@dataclass(frozen=True, slots=True)
class TensorType:
    """The element type and the shape of a tensor; prints as `f32[12, 16, 8]`."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"
