"""Native code touches nothing beside its tensors: they end, or begin, at pages that can't be touched."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.interp import interpret
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import Guarded, runnable
from tests.unit.codegen_cpu.test_hot_loops import tile_program


def elementwise(dtype: str, size: int, step: int, unroll: bool) -> Program:
    """Reads every `step`-th element, backwards where it is negative."""
    span = 1 + abs(step) * (size - 1)
    start = "" if step > 0 else f"{span - 1} "
    access = f"{start}{'+' if step > 0 else '-'} {abs(step)}*n".removeprefix("+ ")
    tags = "#vector=n" + (" #unroll=n" if unroll else "")
    return program(
        f"""
        block main [] (in A[0] {dtype}({span}):(1)  out B[0]:assign {dtype}({size}):(1)) {{
          block double [n:{size}] (in A[{access}] {dtype}(1)  out B[n]:assign {dtype}(1)) {tags} {{
            $a = load(A) {dtype}
            $b = max($a, $a) {dtype}
            B = store($b)
          }}
        }}
        """
    )


def program(text: str) -> Program:
    return parse(Source("test.stripe", dedent(text)))


def check_guarded(source: Program, hw: HwConfig) -> None:
    """Run with every tensor against the page behind it, then with every one behind the page before."""
    rng = np.random.default_rng(0)
    kernel = NativeKernel(build(source, hw))
    arrays = {}
    for ref in source.inputs:
        arrays[ref.name] = rng.integers(0, 2, ref.shape).astype(ref.dtype.numpy)
    want = interpret(source, arrays)
    for side in ("at_end", "at_start"):
        given = {n: getattr(Guarded(a.nbytes), side)(a) for n, a in arrays.items()}
        empty = [np.zeros(ref.shape, ref.dtype.numpy) for ref in source.outputs]
        out = tuple(getattr(Guarded(a.nbytes), side)(a) for a in empty)
        kernel(**given, out=out)
        for name, array in zip(kernel.outputs, out, strict=True):
            np.testing.assert_array_equal(array, want[name])


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", ["f32", "i8", "bool", "bf16", "f64"])
def test_tails_of_vectors(hw: HwConfig, dtype: str) -> None:
    for size in (1, 3, 16, 23, 67):
        check_guarded(elementwise(dtype, size, 1, unroll=size == 23), hw)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize(("wide", "narrow"), [("f32", "bf16"), ("f32", "f16"), ("i32", "i16"), ("i32", "u8")])
def test_a_single_lane_of_a_narrow_result(hw: HwConfig, wide: str, narrow: str) -> None:
    """LLVM sees that one lane is on, and must not store it as wide as it was (llvm/llvm-project#179489)."""
    source = program(
        f"""
        block main [] (in A[0] {wide}(33):(1)  out B[0]:assign {narrow}(33):(1)) {{
          block last [] (in A[32] {wide}(16)  out B[32]:assign {narrow}(16)) {{
            block cast [n:16] (
              0 - n >= 0
              in A[n] {wide}(1)  out B[n]:assign {narrow}(1)
            ) #vector=n #unroll=n {{
              $a = load(A) {wide}
              $b = cast($a) {narrow}
              B = store($b)
            }}
          }}
        }}
        """
    )
    around = np.full(48, 7, source.outputs[0].dtype.numpy)
    NativeKernel(build(source, hw))(np.arange(33).astype(source.inputs[0].dtype.numpy), out=around[:33])
    assert around[32:].tolist() == [32, *[7] * 15]


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", ["f32", "i8", "f64"])
@pytest.mark.parametrize("step", [-1, 2, 3, 4, 5, 7, 8, 9, -2])
def test_spaced_and_backward_reads(hw: HwConfig, dtype: str, step: int) -> None:
    check_guarded(elementwise(dtype, 37, step, unroll=False), hw)


@pytest.mark.parametrize("step", [5, 8, 9])
def test_elements_a_few_apart_are_picked_from_vectors(step: int) -> None:
    module = build(elementwise("f32", 64, step, unroll=False), load_named("x86_64_avx512"))
    assert ("gather" in module.asm) == (step > 8)


SPACED = """
    block main [] (in A[0] DTYPE(N):(1)  out B[0]:assign DTYPE(M):(1)) {
      block fill [n:M] (in A[0] DTYPE(1)  out B[n]:assign DTYPE(1)) {
        $a = load(A) DTYPE
        B = store($a)
      }
      block spread [n:N] (in A[n] DTYPE(1)  out B[STEP*n]:assign DTYPE(1)) #vector=n UNROLL {
        $a = load(A) DTYPE
        B = store($a)
      }
    }
"""


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", ["f32", "i8", "bool", "bf16", "f64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5, 8, 9])
def test_spaced_writes(hw: HwConfig, dtype: str, step: int) -> None:
    """The last element that is written ends the array, vectors reach beyond it; what lies between stays."""
    for size in (1, 5, 16, 37, 67):
        text = SPACED.replace("DTYPE", dtype).replace("STEP", str(step))
        text = (
            text.replace("N]", f"{size}]")
            .replace("(N)", f"({size})")
            .replace("M", str(step * (size - 1) + 1))
        )
        check_guarded(program(text.replace("UNROLL", "#unroll=n" if size == 37 else "")), hw)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_ragged_tiles(hw: HwConfig) -> None:
    check_guarded(tile_program(9, 21, 5, 4, 16), hw)


HALO = """
    block main [] (in A[0] f32(50):(1)  out B[0]:assign f32(50):(1)) {
      block fill [n:50] (out B[n]:assign f32(1)) #vector=n {
        $z = constant(0.0) f32
        B = store($z)
      }
      block blur [n:50, i:3] (
        n + i - 1 >= 0
        50 - n - i >= 0
        in A[n + i - 1] f32(1)
        out B[n]:add f32(1)
      ) TAGS {
        $a = load(A) f32
        B = store($a)
      }
    }
"""


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize(
    "tags", ["", "#vector=n", "#vector=n #unroll=i", "#vector=n #unroll=n", "#vector=n #unroll=n #unroll=i"]
)
def test_halos(hw: HwConfig, tags: str) -> None:
    check_guarded(program(HALO.replace("TAGS", tags)), hw)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_gather_and_scatter_with_wild_indexes(hw: HwConfig) -> None:
    source = program(
        """
        block main [] (
          in D[0] f32(9):(1)
          in I[0] i32(7):(1)
          in U[0] f32(7):(1)
          out G[0]:assign f32(7):(1)
          out S[0]:assign f32(5):(1)
        ) {
          block fill [n:5] (out S[n]:assign f32(1)) {
            $z = constant(1.0) f32
            S = store($z)
          }
          special gather(in D, in I, out G:assign) {axis=0}
          special scatter(in U, in I, inout S:add) {axis=0}
        }
        """
    )
    kernel = NativeKernel(build(source, hw))
    arrays = {
        "D": np.arange(9, dtype=np.float32),
        "I": np.array([-(2**31), -1, 0, 4, 5, 8, 2**31 - 1], np.int32),
        "U": np.ones(7, np.float32),
    }
    given = {name: Guarded(a.nbytes).at_end(a) for name, a in arrays.items()}
    gathered, scattered = kernel(**given)
    np.testing.assert_array_equal(gathered, [0, 0, 0, 4, 5, 8, 8])
    np.testing.assert_array_equal(scattered, [2, 1, 1, 1, 2])


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
@pytest.mark.parametrize("dtype", ["f32", "u8", "f16"])
@pytest.mark.parametrize("width", [1, 7, 16, 85])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_updates_meet_at_one_index(hw: HwConfig, dtype: str, width: int, axis: int) -> None:
    """Whole vectors and what is left of a row, for updates that are dropped, repeated, and in the middle."""
    before = (2,) * axis
    ours, theirs = ", ".join(map(str, (*before, 6, width))), ", ".join(map(str, (*before, 3, width)))
    zeros = ", ".join("0" * (axis + 2))
    source = program(
        f"""
        block main [] (
          in U[{zeros}] {dtype}({ours})
          in I[0] i32(6):(1)
          out S[{zeros}]:assign {dtype}({theirs})
        ) {{
          block fill [{"b:2, " * axis}n:3, m:{width}] (
            out S[{"b, " * axis}n, m]:assign {dtype}({", ".join("1" * (axis + 2))})
          ) {{
            $z = constant(1{".0" if dtype != "u8" else ""}) {dtype}
            S = store($z)
          }}
          special scatter(in U, in I, inout S:add) {{axis={axis}}}
        }}
        """
    )
    kernel = NativeKernel(build(source, hw))
    updates = np.arange(np.prod((*before, 6, width))).reshape(*before, 6, width) % 9
    updates = updates.astype({"f32": "f4", "u8": "u1", "f16": "f2"}[dtype])
    places = np.array([2, 0, -1, 2, 3, 2], np.int32)
    given = {name: Guarded(a.nbytes).at_end(a) for name, a in (("U", updates), ("I", places))}
    want = np.ones((*before, 3, width), updates.dtype)
    for at, place in enumerate(places):
        if 0 <= place < 3:
            want[..., place, :] += updates[..., at, :]
    np.testing.assert_array_equal(kernel(**given), want)
