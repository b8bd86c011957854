"""Instructions that sum groups of products: exact, where the structure is theirs, and in registers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from codegen_cpu.build import build
from codegen_cpu.selection import intrinsic_fault
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from tests.support.executions import native_target, pipeline, run_native, target
from tests.support.loops import hot_loop
from tests.support.passes import program_of
from tile_frontend import compile_tile

VNNI = "x86_64_avx512_vnni"
CPUS = (VNNI, "x86_64_avx512", "x86_64_avx2", "generic")

MATMUL = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
TURNED = "function (A[M, K], B[N, K]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[n, k]); }"
CONV = """function (I[N, H, W, C], F[R, S, C, K]) -> (O) {
  O[n, x, y, k : N, H, W, K] = +(I[n, x + i - 1, y + j - 1, c] * F[i, j, c, k]);
}"""
BIAS = """function (A[M, K], B[K, N], D[N]) -> (R) {
  C[m, n : M, N] = +(A[m, k] * B[k, n]);
  S = C + D;
  R = S > 0 ? S : 0;
}"""

CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "one row": (MATMUL, {"A": (1, 64), "B": (64, 48)}),
    "whole tiles": (MATMUL, {"A": (28, 64), "B": (64, 64)}),
    "primes": (MATMUL, {"A": (31, 37), "B": (37, 41)}),
    "one column": (MATMUL, {"A": (31, 37), "B": (37, 1)}),
    "turned": (TURNED, {"A": (31, 37), "B": (23, 37)}),
    "few columns": (MATMUL, {"A": (31, 203), "B": (203, 3)}),
    "few long rows": (TURNED, {"A": (5, 515), "B": (7, 515)}),
    "few filters": (CONV, {"I": (2, 7, 9, 72), "F": (3, 3, 72, 2)}),
    "one group": (MATMUL, {"A": (31, 4), "B": (4, 48)}),
    "pixels": (CONV, {"I": (2, 7, 9, 8), "F": (3, 3, 8, 19)}),
    "three channels": (CONV, {"I": (1, 9, 7, 3), "F": (3, 3, 3, 16)}),
    "epilogue": (BIAS, {"A": (31, 37), "B": (37, 41), "D": (41,)}),
}
TYPES = {"u8 i8": (DType.U8, DType.I8), "i8 u8": (DType.I8, DType.U8), "i8 i8": (DType.I8, DType.I8)}


def lowered(text: str, shapes: Mapping[str, tuple[int, ...]], types: tuple[DType, DType]) -> Program:
    kinds = [*types, DType.I32]
    given = {n: TensorType(kinds[at], s) for at, (n, s) in enumerate(shapes.items())}
    return compile_tile(Source("test.tile", text), given)


def data(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for ref in program.inputs:
        limits = np.iinfo(ref.dtype.numpy)
        reach = (limits.min, limits.max) if ref.dtype.bytes == 1 else (-999, 999)
        found[ref.name] = rng.integers(*reach, ref.shape, ref.dtype.numpy, endpoint=True)
        found[ref.name].flat[0], found[ref.name].flat[-1] = reach
    return found


SHORT = {
    ("primes", "u8 i8"),
    ("turned", "i8 u8"),
    ("epilogue", "i8 i8"),
    ("one column", "u8 i8"),
    ("few columns", "i8 i8"),
}
RUNS = [
    pytest.param(name, types, marks=() if (name, types) in SHORT else pytest.mark.slow)
    for name in CASES
    for types in TYPES
]


@pytest.mark.parametrize(("name", "types"), RUNS)
def test_native_code_gives_what_the_interpreter_does(name: str, types: str) -> None:
    text, shapes = CASES[name]
    program = lowered(text, shapes, TYPES[types])
    inputs = data(program)
    expected = interpret(program, inputs)
    for cpu in CPUS:
        hw = native_target(cpu)
        if hw is None:
            continue
        made = run_pipeline(program, pipeline(cpu), target(cpu))
        for output, value in run_native(made, hw, inputs).items():
            np.testing.assert_array_equal(value, expected[output], err_msg=f"{cpu}: {output}")


@pytest.mark.parametrize("columns", [8, 24])
def test_shorter_rows_are_filled_up_for_nothing(columns: int) -> None:
    """Lanes of the instruction beyond those of a row do not count: nothing has to be moved there."""
    program = lowered(MATMUL, {"A": (1024, 512), "B": (512, columns)}, TYPES["u8 i8"])
    made = run_pipeline(program, pipeline(VNNI), target(VNNI))
    body = hot_loop(build(made, target(VNNI)), "vpdpbusd")
    assert sum("vpdpbusd" in text for text in body) > 20
    assert not any(text.startswith(("vperm", "vinsert", "vshuf", "valign")) for text in body)


def test_accumulators_stay_in_registers() -> None:
    program = lowered(MATMUL, {"A": (1024, 1024), "B": (1024, 1024)}, TYPES["u8 i8"])
    made = run_pipeline(program, pipeline(VNNI), target(VNNI))
    body = hot_loop(build(made, target(VNNI)), "vpdpbusd")
    sums = {text.split(",")[-1].strip() for text in body if text.startswith("vpdpbusd")}
    assert len(sums) >= 20, "fewer accumulators than a tile for 32 registers has"
    assert not any("rsp" in text for text in body), "a spill in the loop"
    moved = [text for text in body if "zmm" in text and text.endswith(")") and "mov" in text]
    assert not moved, "an accumulator is stored in the loop"
    assert not any("vpmulld" in text or "vpaddd" in text for text in body)


HAND = """
block main [] (
  in A[0, 0] u8(8, 16):(16, 1)
  in B[0, 0, 0] i8(4, 40, 4):(160, 4, 1)
  out C[0, 0]:assign i32(8, 40):(40, 1)
) {
  block C [k:4, p:4, m:8, n:40] (
    in A[m, 4*k + p] u8(1, 1)
    in B[k, n, p] i8(1, 1, 1)
    out C[m, n]:add i32(1, 1)
  ) #group=p #vector=n {
    $a = load(A) u8
    $b = load(B) i8
    $x = cast($a) i32
    $y = cast($b) i32
    $p = mul($x, $y) i32
    C = store($p)
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("in B", "in B"),
        ("#group=p", ""),
        ("#group=p", "#group=m"),
        ("#group=p", "#group=k"),
        ("4*k + p", "k + 4*p"),
        ("B[k, n, p]", "B[p, n, k]"),
        (":(160, 4, 1)", ":(160, 1, 40)"),
        ("(in A", "(3 - p - k >= 0 in A"),
        ("mul($x, $y)", "add($x, $y)"),
        (":add", ":max"),
        ("#vector=n", "#vector=m"),
        ("#vector=n", ""),
        ("40", "33"),
        ("40", "5"),
        ("#vector=n", "#vector=n #unroll=m #unroll=n"),
        ("#vector=n", "#vector=n #unroll=p"),
    ],
)
def test_structure_decides(old: str, new: str) -> None:
    text = HAND.replace("(\n    in A[m", "(in A[m").replace(old, new)
    columns = int(new) if old == "40" else 40
    text = text.replace("160", str(4 * columns)).replace("(160, 1, 40)", f"({4 * columns}, 1, {columns})")
    program = program_of(text)
    rng = np.random.default_rng(1)
    inputs = {
        "A": rng.integers(0, 256, (8, 16), np.uint8),
        "B": rng.integers(-128, 128, (4, columns, 4), np.int8),
    }
    if ":(160, 1, 40)" in text:
        inputs["B"] = np.ascontiguousarray(inputs["B"].transpose(0, 2, 1)).transpose(0, 2, 1)
    hw = native_target(VNNI)
    if hw is None:
        pytest.skip("this CPU lacks the instruction")
    expected = interpret(program, inputs)
    np.testing.assert_array_equal(run_native(program, hw, inputs)["C"], expected["C"])


SUMS = """
block main [] (
  in A[0, 0] u8(6, 4*K):(4*K, 1)
  in B[0, 0] i8(3, 4*K):(4*K, 1)
  out C[0, 0]:assign i32(6, 3):(3, 1)
) {
  block C [n:3, p:4, m:6, k:K] (
    in A[m, 4*k + p] u8(1, 1)
    in B[n, 4*k + p] i8(1, 1)
    out C[m, n]:add i32(1, 1)
  ) #group=p #vector=k {
    $a = load(A) u8
    $b = load(B) i8
    $x = cast($a) i32
    $y = cast($b) i32
    $p = mul($x, $y) i32
    C = store($p)
  }
}
"""


@pytest.mark.parametrize("groups", [2, 3, 5, 8, 15, 16, 17, 35, 64, 129])
@pytest.mark.parametrize(
    ("old", "new", "is_used"),
    [
        ("", "", True),
        ("#vector=k", "#vector=k #unroll=m #unroll=n", True),
        ("#vector=k", "#vector=k #unroll=k", True),
        ("n:3, p:4, m:6, k:K", "k:K, n:3, p:4, m:6", True),
        ("(in A", "(m + n - k >= 0 in A", True),
        ("(in A", "(2 - p - k >= 0 in A", False),
        ("B[n, 4*k + p]", "B[n, 4*K - 1 - 4*k - p]", False),
        ("B[n, 4*k + p]", "B[n, k]", False),
    ],
)
def test_lanes_may_share_a_result(old: str, new: str, is_used: bool, groups: int) -> None:
    text = SUMS.replace("(\n    in A[m", "(in A[m").replace(old, new)
    for size, value in {"4*K - 1": 4 * groups - 1, "4*K": 4 * groups, "K": groups}.items():
        text = text.replace(size, str(value))
    program = program_of(text)
    rng = np.random.default_rng(1)
    inputs = {
        "A": rng.integers(0, 256, (6, 4 * groups), np.uint8),
        "B": rng.integers(-128, 128, (3, 4 * groups), np.int8),
    }
    hw = native_target(VNNI)
    if hw is None:
        pytest.skip("this CPU lacks the instruction")
    assert ("vpdpbusd" in build(program, hw).asm) is is_used
    expected = interpret(program, inputs)
    np.testing.assert_array_equal(run_native(program, hw, inputs)["C"], expected["C"])


def test_a_window_is_exact() -> None:
    hw = native_target(VNNI)
    if hw is None:
        pytest.skip("this CPU lacks the instruction")
    text, shapes = CONV, {"I": (1, 5, 6, 5), "F": (3, 3, 5, 17)}
    program = lowered(text, shapes, TYPES["u8 i8"])
    inputs = data(program)
    made = run_pipeline(program, pipeline(VNNI), target(VNNI))
    assert "vpdpbusd" in build(made, hw).asm
    np.testing.assert_array_equal(run_native(made, hw, inputs)["O"], interpret(program, inputs)["O"])


def test_a_cpu_without_the_feature_gets_plain_code() -> None:
    hw = load_named(VNNI)
    assert hw.cpu is not None
    assert "vpdpbusd" in build(program_of(HAND), hw).asm
    features = tuple(f for f in hw.cpu.features if f != "avx512vnni")
    plain = msgspec.structs.replace(hw, cpu=msgspec.structs.replace(hw.cpu, features=features))
    assert "vpdpbusd" not in build(program_of(HAND), plain).asm


@pytest.mark.parametrize(
    ("intrinsic", "said"),
    [
        (
            "llvm.x86.avx512.vpdpbusdd.512",
            "which this LLVM does not have for <16 x i32>, <64 x i8>, <64 x i8>",
        ),
        ("llvm.x86.avx512.vpdpbusd.256", "which this LLVM does not have for"),
        ("vpdpbusd", "which is no name of an intrinsic"),
    ],
)
def test_an_unknown_intrinsic_is_an_error(intrinsic: str, said: str) -> None:
    hw = load_named(VNNI)
    stencils = tuple(
        msgspec.structs.replace(s, intrinsic=intrinsic) if s.name == "vpdpbusd" else s for s in hw.stencils
    )
    with pytest.raises(CompileError, match="C006") as raised:
        assert build(program_of(HAND), msgspec.structs.replace(hw, stencils=stencils)).asm
    assert said in str(raised.value)


def without_vnni(intrinsic: str) -> HwConfig:
    """A config that says that the instruction is one of AVX-512F, for a CPU with no more than that."""
    hw = load_named(VNNI)
    assert hw.cpu is not None
    features = tuple(f for f in hw.cpu.features if f != "avx512vnni")
    stencils = tuple(
        msgspec.structs.replace(s, intrinsic=intrinsic, features=("avx512f",)) if s.name == "vpdpbusd" else s
        for s in hw.stencils
    )
    return msgspec.structs.replace(
        hw, stencils=stencils, cpu=msgspec.structs.replace(hw.cpu, features=features)
    )


@pytest.mark.parametrize(
    ("intrinsic", "said"),
    [
        ("llvm.x86.avx512.vpdpbusd.512", "needs the feature 'avx512vnni' of 'cpu.features'"),
        ("llvm.x86.avx512.vpdpbusds.512", "of which LLVM makes no code"),
    ],
)
def test_features_that_do_not_have_the_instruction_are_an_error(intrinsic: str, said: str) -> None:
    with pytest.raises(CompileError, match="C006") as raised:
        assert build(program_of(HAND), without_vnni(intrinsic)).asm
    assert said in str(raised.value)
    assert "'$.stencils' named 'vpdpbusd'" in str(raised.value)


def test_intrinsics_that_no_shipped_config_names_are_tried() -> None:
    hw = load_named(VNNI)
    name = "llvm.x86.avx512.vpdpbusds.512"
    stencils = tuple(
        msgspec.structs.replace(s, intrinsic=name) if s.name == "vpdpbusd" else s for s in hw.stencils
    )
    assert "vpdpbusds" in build(program_of(HAND), msgspec.structs.replace(hw, stencils=stencils)).asm


def test_an_intrinsic_with_too_few_operands_ends_no_process() -> None:
    types = ("<16 x i32>", "<64 x i8>")
    fault = intrinsic_fault(
        "llvm.x86.avx512.vpdpbusd.512", types, "x86_64-unknown-linux-gnu", "x86-64", ("avx512f", "avx512vnni")
    )
    assert fault == "which does not take <16 x i32>, <64 x i8>"
