"""Instructions on registers that hold rows: exact at every edge, and where they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from codegen_cpu.aot import c_header, shared_library
from codegen_cpu.assembly import code_facts
from codegen_cpu.build import build
from codegen_cpu.host import runs_here
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripe.dtypes import DType
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from tests.support.executions import pipeline
from tests.support.meaning import random_inputs
from tests.support.passes import program_of
from tests.unit.codegen_cpu.test_groups import BIAS, CONV, MATMUL, TURNED, data, lowered

AMX = load_named("x86_64_amx")
here = pytest.mark.skipif(not runs_here(AMX), reason="this CPU has no AMX, or the system does not grant it")

CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "whole blocks": (MATMUL, {"A": (32, 128), "B": (128, 64)}),
    "edges": (MATMUL, {"A": (37, 108), "B": (108, 41)}),
    "a group in part": (MATMUL, {"A": (35, 67), "B": (67, 50)}),
    "few rows": (MATMUL, {"A": (11, 200), "B": (200, 96)}),
    "turned": (TURNED, {"A": (40, 72), "B": (56, 72)}),
    "window": (CONV, {"I": (1, 9, 20, 64), "F": (3, 3, 64, 40)}),
    "epilogue": (BIAS, {"A": (37, 108), "B": (108, 41), "D": (41,)}),
    "many": (MATMUL, {"A": (150, 200), "B": (200, 170)}),
}
TYPES = {
    "u8 i8": (DType.U8, DType.I8), "i8 u8": (DType.I8, DType.U8), "i8 i8": (DType.I8, DType.I8),
    "u8 u8": (DType.U8, DType.U8),
}  # fmt: skip
SHORT = {("edges", "u8 i8"), ("a group in part", "i8 i8"), ("window", "u8 u8"), ("epilogue", "i8 u8")}
RUNS = [
    pytest.param(name, types, marks=() if (name, types) in SHORT else pytest.mark.slow)
    for name in CASES
    for types in TYPES
]


def compiled(program: Program, hw: HwConfig = AMX) -> Program:
    return run_pipeline(program, pipeline("x86_64_amx"), hw)


@here
@pytest.mark.parametrize(("name", "types"), RUNS)
def test_native_code_gives_what_the_interpreter_does(name: str, types: str) -> None:
    text, shapes = CASES[name]
    program = lowered(text, shapes, TYPES[types])
    inputs = data(program)
    made = build(compiled(program), AMX)
    assert "llvm.x86.tdpb" in made.emitted
    (found,) = interpret(program, inputs).values()
    given = [inputs[ref.name] for ref in program.inputs]
    for _ in range(3):  # the registers are given back each time
        np.testing.assert_array_equal(NativeKernel(made)(*given), found)


# C[m, n] += A[m, k, p] * B[k, n, p], as it lies for the instruction.
def leaf(m: int, n: int, k: int, *, padded: int = 0) -> str:
    """`padded`: the rows that the block counts, if there are fewer."""
    rule = f"{m - 1} - m >= 0" if padded else ""
    return f"""
    block main [] (
      in A[0, 0] u8({m}, {4 * k}):({4 * k}, 1)
      in B[0, 0, 0] i8({k}, {n}, 4):({4 * n}, 4, 1)
      out C[0, 0]:assign i32({m}, {n}):({n}, 1)
    ) {{
      block C [k:{k}, p:4, m:{padded or m}, n:{n}] (
        {rule}
        in A[m, 4*k + p] u8(1, 1)
        in B[k, n, p] i8(1, 1, 1)
        out C[m, n]:add i32(1, 1)
      ) #group=p #vector=n {{
        $a = load(A) u8
        $b = load(B) i8
        $x = cast($a) i32
        $y = cast($b) i32
        $p = mul($x, $y) i32
        C = store($p)
      }}
    }}
    """


def count(text: str, name: str) -> int:
    return sum(f"call void @llvm.x86.{name}(" in line for line in text.splitlines())


def test_four_sums_stay_in_registers_over_all_steps() -> None:
    code = build(program_of(leaf(32, 32, 64)), AMX).emitted
    assert count(code, "tdpbusd") == 4 and count(code, "tileloadd64") == 4  # in one loop
    assert count(code, "tilezero") == count(code, "tilestored64") == 4
    assert count(code, "ldtilecfg") == count(code, "tilerelease") == 1


def test_what_is_left_is_done_by_smaller_blocks_of_registers_configured_anew() -> None:
    code = build(program_of(leaf(20, 32, 18)), AMX).emitted
    assert count(code, "tdpbusd") == 8  # two heights, and two depths
    assert count(code, "ldtilecfg") == 3  # as the function begins; for two groups; as before


# Of more than one picture y, which moves A, B or both of them.
MOVED = """
    block main [] (
      in A[0, 0, 0] u8(3, 20, 64)  in B[0, 0, 0, 0] i8(3, 16, 24, 4)  out C[0, 0, 0]:assign i32(3, 20, 24)
    ) {{
      block C [k:16, p:4, y:3, m:20, n:24] (
        in A[{a}, m, 4*k + p] u8(1, 1, 1)
        in B[{b}, k, n, p] i8(1, 1, 1, 1)
        out C[y, m, n]:add i32(1, 1, 1)
      ) #group=p #unroll=y #unroll=m #unroll=n #vector=n {{
        $a = load(A) u8
        $b = load(B) i8
        $x = cast($a) i32
        $y = cast($b) i32
        $p = mul($x, $y) i32
        C = store($p)
      }}
    }}
"""


@here
@pytest.mark.parametrize(("a", "b"), [("y", "0"), ("0", "y"), ("y", "y"), ("0", "2 - y")])
def test_each_operand_moves_with_the_results_that_it_is_for(a: str, b: str) -> None:
    program = program_of(MOVED.format(a=a, b=b))
    made, inputs = build(program, AMX), random_inputs(program, np.random.default_rng(0))
    assert "llvm.x86.tdpbusd(" in made.emitted
    (found,) = interpret(program, inputs).values()
    given = NativeKernel(made)(*(inputs[ref.name] for ref in program.inputs))
    np.testing.assert_array_equal(given, found)


def test_more_results_than_registers_are_taken_in_parts() -> None:
    code = build(program_of(leaf(64, 64, 16)), AMX).emitted
    assert count(code, "tdpbusd") == 16 and count(code, "tilezero") == 16
    assert all(f"i8 {number}," not in code for number in (8, 9))


def test_one_row_is_no_block() -> None:
    """An instruction takes as long for it as for sixteen."""
    code = build(program_of(leaf(1, 32, 64)), AMX).emitted
    assert "vpdpbusd" in code and "tdpbusd" not in code


def test_rows_that_a_constraint_cuts_off_are_no_block() -> None:
    code = build(program_of(leaf(31, 32, 16, padded=32)), AMX).emitted
    assert "vpdpbusd" in code and "tdpbusd" not in code


def test_a_chip_without_the_instruction_has_the_other_for_the_same_layout() -> None:
    code = build(program_of(leaf(32, 32, 64)), load_named("x86_64_avx512_vnni")).emitted
    assert "vpdpbusd" in code and "tile" not in code


def with_instruction(**changes: object) -> HwConfig:
    stencils = tuple(
        msgspec.structs.replace(s, **changes) if s.name == "tdpbusd" else s for s in AMX.stencils
    )
    return msgspec.structs.replace(AMX, stencils=stencils)


def test_an_intrinsic_that_is_none_of_this_kind_is_an_error() -> None:
    hw = with_instruction(intrinsic="llvm.x86.avx512.vpdpbusd.512")
    with pytest.raises(CompileError, match=r"C006.*'tdpbusd'.*registers that hold rows.*tdpbf16ps"):
        assert build(program_of(leaf(32, 32, 64)), hw).emitted


def test_registers_that_the_processor_has_not_are_an_error() -> None:
    memories = tuple(
        msgspec.structs.replace(m, bytes=16384) if m.name == "TILES" else m for m in AMX.memories
    )
    hw = msgspec.structs.replace(AMX, memories=memories)
    with pytest.raises(CompileError, match=r"C006.*8 registers"):
        assert build(program_of(leaf(32, 32, 64)), hw).emitted


def test_each_thread_has_registers_of_its_own() -> None:
    """And the caller's are configured again when the threads are through."""
    program = lowered(MATMUL, {"A": (256, 256), "B": (256, 256)}, TYPES["u8 i8"])
    two = tuple(msgspec.structs.replace(unit, count=2, startup_cycles=0.0) for unit in AMX.units)
    hw = msgspec.structs.replace(AMX, units=two)
    code = build(compiled(program, hw), hw).emitted
    for text in code.split("\ndefine ")[1:]:
        used, owned = count(text, "tdpbusd"), count(text, "ldtilecfg")
        assert bool(used) == bool(owned) == bool(count(text, "tilerelease"))
    assert "GOMP_parallel" in code


@here
def test_a_shared_library_asks_for_the_registers_itself(tmp_path: Path) -> None:
    program = program_of(leaf(32, 32, 16))
    made = build(program, AMX)
    try:
        (tmp_path / "code.so").write_bytes(shared_library(made))
    except CompileError as error:
        pytest.skip(str(error))
    inputs = random_inputs(program, np.random.default_rng(0))
    (expected,) = interpret(program, inputs).values()
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
    script = f"""
import ctypes, numpy as np
a, b, c = np.load("A.npy"), np.load("B.npy"), np.zeros((32, 32), np.int32)
call = ctypes.CDLL("./code.so").{made.symbol}
assert call(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))) == 0
np.save("C.npy", c)
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "C.npy"), expected)


def test_the_header_says_what_loading_asks_for() -> None:
    assert "asks Linux" in c_header(build(program_of(leaf(32, 32, 16)), AMX))


def test_reports_count_them_in_the_hot_loop() -> None:
    made = build(program_of(leaf(32, 32, 64)), AMX)
    facts = code_facts(made.asm, made.target.triple)
    assert facts is not None
    hot = facts.hot
    assert (hot.multiply_adds, hot.loads, hot.stores, hot.vector_bytes) == (4, 4, 0, 1024)
