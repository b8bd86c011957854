"""Calls of kernels that go from Python to native code without a method in between."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading

import numpy as np
import pytest

import stripec
from codegen_cpu.kernel import NativeKernel
from stripec.api import Kernel

TEXT = "function (A[N], B[N]) -> (C) { C = A + B; }"
TYPES = {"A": "f32[5]", "B": "f32[5]"}
A, B = np.arange(5, dtype=np.float32), np.ones(5, np.float32)


def warm() -> Kernel:
    """A kernel that has its quick call."""
    kernel = stripec.compile(TEXT, TYPES)
    for _ in range(4):
        kernel(A, B)
    return kernel


def test_a_call_that_fits_runs_no_method(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, out = warm(), np.zeros(5, np.float32)
    monkeypatch.setattr(NativeKernel, "_carefully", lambda *_: pytest.fail("this one is careful"))
    np.testing.assert_array_equal(kernel(A, B), A + 1)
    np.testing.assert_array_equal(kernel(A, B, out=None), A + 1)
    np.testing.assert_array_equal(kernel(*(A, B), **{}), A + 1)
    assert kernel(A, B, out=out) is out
    np.testing.assert_array_equal(out, A + 1)


def test_all_else_goes_to_the_method() -> None:
    kernel, out = warm(), np.zeros(5, np.float32)
    np.testing.assert_array_equal(kernel(B=B, A=A), A + 1)
    assert kernel(A, B=B, out=out) is out
    np.testing.assert_array_equal(kernel(np.ones(10, np.float32)[::2], B), B + 1)
    for arrays, named, code in (
        ((A,), {}, "D033"), ((A, B), {"D": A}, "D031"), ((A, B), {"out": out, "D": A}, "D031"),
        ((A, B), {"out": A[:3]}, ""), ((A, B, A), {}, ""),
    ):  # fmt: skip
        with pytest.raises(stripec.CompileError) as raised:
            kernel(*arrays, **named)
        assert not code or raised.value.diagnostics[0].code == code
    np.testing.assert_array_equal(kernel(A, B), A + 1)


def test_a_kernel_of_many_types() -> None:
    kernel = stripec.compile(TEXT)
    for _ in range(3):
        for dtype in ("f4", "f8"):
            assert kernel(A.astype(dtype), B.astype(dtype)).dtype == np.dtype(dtype)


def test_a_kernel_is_an_object_like_others() -> None:
    kernel = warm()
    assert isinstance(kernel, Kernel) and "stripec.Kernel" in repr(kernel)
    assert list(inspect.signature(kernel).parameters) == ["arrays", "out", "named"]
    for again in (pickle.loads(pickle.dumps(kernel)), copy.copy(kernel)):
        np.testing.assert_array_equal(again(A, B), A + 1)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="borrowed references are not counted")
def test_references_are_as_before() -> None:
    kernel, out, wrong = warm(), np.zeros(5, np.float32), A.astype("f8")
    watched = (A, B, out, wrong, NotImplemented)
    gc.collect()  # kernels of other tests know them, too
    before = [sys.getrefcount(one) for one in watched]
    for _ in range(50):
        kernel(A, B, out=out)
        kernel(A, B)
        kernel(B=B, A=A, out=out)
        with pytest.raises(stripec.CompileError):
            kernel(wrong, B, out=out)
        with pytest.raises(stripec.CompileError):
            kernel(A, B, out=out, more=A)
    assert [sys.getrefcount(one) for one in watched] == before


def test_threads_may_call_kernels_of_changing_types() -> None:
    kernel, failed = stripec.compile(TEXT), list[str]()

    def run(dtype: str) -> None:
        given = A.astype(dtype)
        for _ in range(300):
            if not (kernel(given, given) == 2 * given).all():
                failed.append(dtype)

    threads = [threading.Thread(target=run, args=(dtype,)) for dtype in ("f4", "f8", "i4", "f4")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
