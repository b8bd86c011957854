"""The element types: names, sizes and NumPy counterparts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stripe.dtypes import DTYPE_NAMES, DType, TensorType, from_numpy


@pytest.mark.parametrize("dtype", list(DType))
def test_numpy_holds_an_element_in_as_many_bytes_and_leads_back(dtype: DType) -> None:
    assert dtype.numpy.itemsize == dtype.bytes
    assert from_numpy(dtype.numpy) is dtype
    assert dtype.value in DTYPE_NAMES


def test_kinds_and_widths() -> None:
    assert [d.value for d in DType if d.is_float] == ["f16", "bf16", "f32", "f64"]
    assert [d.value for d in DType if d.is_integer] == ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
    assert [d.value for d in DType if d.is_signed] == ["i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"]
    assert [d.bits for d in DType] == [1, 8, 16, 32, 64, 8, 16, 32, 64, 16, 16, 32, 64]
    assert DType.BOOL.bytes == 1 and DType.BF16.bytes == 2
    assert DType.BF16.numpy == ml_dtypes.bfloat16
    for dtype in DType:
        if dtype.is_integer:
            assert np.iinfo(dtype.numpy).bits == dtype.bits
            assert (np.iinfo(dtype.numpy).min < 0) == dtype.is_signed


@pytest.mark.parametrize("dtype", ["complex64", "O", "S3", "M8[s]", ">f4", ml_dtypes.float8_e4m3fn])
def test_numpy_types_that_have_no_counterpart(dtype: object) -> None:
    assert from_numpy(dtype) is None


def test_a_tensor_type_prints_as_it_is_written() -> None:
    assert str(TensorType(DType.F32, (12, 16, 8))) == "f32[12, 16, 8]"
    assert str(TensorType(DType.BOOL, ())) == "bool[]"
