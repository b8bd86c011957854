"""Arrays of any layout: what a call takes, and code whose arrays are far larger than 2**31 elements.

Whatever comes in is computed as NumPy does, or refused; arrays that overlap, too. Addresses are
64 bits wide in elements and in bytes: tensors lie in sparse memory, of which few pages are touched.
"""

from __future__ import annotations

import mmap
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stripec
from codegen_cpu.kernel import NativeKernel
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Program
from tests.support.guarded import compiled
from tests.support.native import runnable
from tests.support.passes import program_of

Array = np.ndarray[Any, Any]

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
M, K, N = 5, 6, 7


@cache
def product() -> Any:
    return stripec.compile(PRODUCT, shapes={"A": f"f32[{M},{K}]", "B": f"f32[{K},{N}]"}, threads=1)


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    """A view of random memory: of any strides, also 0, negative, overlapping and no multiple of the element;
    at any address; in either byte order; at times read-only."""
    steps = st.integers(-3, 9).map(lambda n: 4 * n) | st.integers(-9, 40)
    strides = draw(st.tuples(*[steps] * len(shape)) | st.permutations([4, 4 * max(shape)]).map(tuple))
    low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
    high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
    start = draw(st.integers(0, 63))
    room = np.zeros(start + high - low + 4 + 64, np.uint8)
    room = room[-room.ctypes.data % 64 + start - low :]
    assert room.base is not None
    dtype = draw(st.sampled_from(["<f4", "<f4", ">f4"]))
    view = np.ndarray(
        shape, dtype, buffer=room.base, offset=address(room) - address(room.base), strides=strides
    )
    seed = draw(st.integers(0, 9))
    view[...] = np.random.default_rng(seed).integers(-4, 5, shape)
    # Bytes that elements share in part may be anything: what they are now counts, if it is a number.
    if not (np.isfinite(view) & (np.abs(view) < 1e6) & (np.abs(view) > 1e-6) | (view == 0)).all():
        view[...] = 0
    view.flags.writeable = draw(st.booleans())
    return view


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


@settings(max_examples=150, deadline=None)
@given(arrays((M, K)), arrays((K, N)))
def test_inputs_of_any_layout(a: Array, b: Array) -> None:
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(product()(a, b), want, rtol=1e-5, atol=1e-4)


@settings(max_examples=150, deadline=None)
@given(arrays((M, N)))
def test_out_of_any_layout(out: Array) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((M, K), (K, N)))
    places = out.__array_interface__["data"][0] + sum(
        np.arange(n).reshape([-1 if d == at else 1 for d in range(2)]) * s
        for at, (n, s) in enumerate(zip(out.shape, out.strides, strict=True))
    )
    apart = np.diff(np.sort(np.asarray(places).ravel())).min() >= 4
    if not out.flags.writeable or not apart or out.dtype.byteorder == ">":
        with pytest.raises(CompileError, match="C015"):
            product()(a, b, out=out)
        return
    assert product()(a, b, out=out) is out
    np.testing.assert_array_equal(out, a @ b)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_inputs_and_out_in_one_piece_of_memory(a: int, b: int, out: int) -> None:
    memory = np.random.default_rng(0).integers(-4, 5, 100).astype(np.float32)
    left, right, result = (
        memory[at : at + m * n].reshape(m, n) for at, m, n in ((a, M, K), (b, K, N), (out, M, N))
    )
    want = left @ right
    assert product()(left, right, out=result) is result
    np.testing.assert_array_equal(result, want)


# -- far apart ------------------------------------------------------------------------------------

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python names it from 3.13 on
FAR = (1 << 31) + 3  # elements between rows


def sparse(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Array:
    """Zeros, of which memory holds what is written alone; strides in elements."""
    item = np.dtype(dtype).itemsize
    size = (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * item
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    return np.ndarray(shape, dtype, buffer=room, strides=tuple(item * s for s in strides))


def far_product(dtype: str, wide: str) -> Program:
    """Rows of all tensors lie far apart, and columns of one."""
    cast = ("$x = cast($a)", "$y = cast($b)") if dtype != wide else ("$x = max($a, $a)", "$y = max($b, $b)")
    return program_of(
        f"""
        block main [] (
          in A[0, 0] {dtype}(3, 5):({FAR}, 1)
          in B[0, 0] {dtype}(5, 19):(1, {FAR // 8})
          out C[0, 0]:assign {wide}(3, 19):({FAR}, 1)
        ) {{
          block C [m:3, n:19, k:5] (in A[m, k] {dtype}(1, 1)  in B[k, n] {dtype}(1, 1)
                                    out C[m, n]:add {wide}(1, 1)) {{
            $a = load(A) {dtype}
            $b = load(B) {dtype}
            {cast[0]} {wide}
            {cast[1]} {wide}
            $p = mul($x, $y) {wide}
            C = store($p) }} }}
        """
    )


def far_transpose(dtype: str) -> Program:
    return program_of(
        f"""
        block main [] (in A[0, 0] {dtype}(17, 5):(1, {FAR})
                       out C[0, 0]:assign {dtype}(17, 5):({FAR // 2}, 1)) {{
          block C [m:17, n:5] (in A[m, n] {dtype}(1, 1)  out C[m, n]:assign {dtype}(1, 1)) {{
            $a = load(A) {dtype}
            C = store($a) }} }}
        """
    )


def far_offsets(dtype: str) -> Program:
    """Accesses that are far out by themselves, into one dimension that has as many elements."""
    size = 4 * FAR
    return program_of(
        f"""
        block main [] (in A[0] {dtype}({size}):(1)  out C[0]:assign {dtype}(23):(1)
                       out D[0, 0]:assign {dtype}(3, 23):(23, 1)) {{
          block C [n:23] (in A[n + {3 * FAR}] {dtype}(1)  out C[n]:assign {dtype}(1)) {{
            $a = load(A) {dtype}
            C = store($a) }}
          block D [m:3, n:23] (in A[{FAR}*m - n + 29] {dtype}(1)  out D[m, n]:assign {dtype}(1, 1)) {{
            $a = load(A) {dtype}
            D = store($a) }} }}
        """
    )


PROGRAMS = {
    "product f32": far_product("f32", "f32"),
    "product i8": far_product("i8", "i32"),
    "product bf16": far_product("bf16", "f32"),
    "transpose f32": far_transpose("f32"),
    "transpose u8": far_transpose("u8"),
    "offsets f32": far_offsets("f32"),
    "offsets i8": far_offsets("i8"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_addresses_beyond_32_bits(name: str) -> None:
    program = PROGRAMS[name]
    rng = np.random.default_rng(0)
    given: dict[str, Array] = {}
    for ref in program.inputs:
        array = sparse(ref.shape, ref.strides or (), ref.dtype.numpy)
        if array.size < 1 << 20:
            array[...] = rng.integers(0, 9, ref.shape)
        else:
            for place in (0, FAR, 2 * FAR, 3 * FAR):
                array[place : place + 40] = rng.integers(0, 9, 40)
        given[ref.name] = array
    if name.startswith("offsets"):
        a = given["A"]
        rows = [a[FAR * m + 29 - 22 : FAR * m + 30][::-1] for m in range(3)]
        want = {"C": a[3 * FAR : 3 * FAR + 23], "D": np.stack(rows)}
    else:
        want = dict(interpret(program, {n: np.ascontiguousarray(a) for n, a in given.items()}))
    for hw in one_of_each():
        kernel = NativeKernel(compiled(program, hw))
        out = tuple(sparse(r.shape, r.strides or (), r.dtype.numpy) for r in program.outputs)
        kernel(**given, out=out)
        for found, ref in zip(out, program.outputs, strict=True):
            np.testing.assert_array_equal(found, want[ref.name], err_msg=f"{hw.name}: {ref.name}")


def one_of_each() -> list[HwConfig]:
    return list({hw.name: hw for hw in runnable()[1:] if hw.name != "x86_64_avx512"}.values())
