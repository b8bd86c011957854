"""Files for other programs: a C program that includes the header and links the code."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from codegen_cpu.aot import c_header, object_file, shared_library
from codegen_cpu.build import Module, build
from codegen_cpu.c_names import parameter_name, symbol_name
from codegen_cpu.host import runs_here
from codegen_cpu.llvm import architecture
from codegen_cpu.required import LACKING
from codegen_cpu.target import process_triple
from hwconfigs.load import load_named
from stripe.diag import CompileError, Source
from stripe.parser import parse
from tests.support.native import LOAD_TIME, host

TEXT = """
block main [] (
  in A[0, 0] f32(3, 4):(4, 1)
  in half[0] bf16(4):(1)
  out C[0, 0]:assign f32(3, 4):(4, 1)
  new T f32(3, 4):(4, 1)
) {
  block first [m:3, n:4] (in A[m, n] f32(1, 1)  out T[m, n]:assign f32(1, 1)) #vector=n {
    $a = load(A) f32
    $b = exp($a) f32
    T = store($b)
  }
  block second [m:3, n:4] (
    in T[m, n] f32(1, 1)
    in half[n] bf16(1)
    out C[m, n]:assign f32(1, 1)
  ) {
    $t = load(T) f32
    $h = load(half) bf16
    $w = cast($h) f32
    $s = sinh($w) f32
    $p = mul($t, $s) f32
    C = store($p)
  }
}
"""

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "scaled.h"

int main(void) {
  float A[12], C[12], D[12];
  uint16_t half[4] = {0x3f80, 0x4000, 0x4040, 0x3f00};
  for (int i = 0; i < 12; ++i) A[i] = 0.25f * i;
  if (scaled(A, half, C) != 0) return 1;
  void *workspace = aligned_alloc(64, (SCALED_WORKSPACE_BYTES + 63) / 64 * 64);
  scaled_in_workspace(A, half, D, workspace);
  free(workspace);
  for (int i = 0; i < 12; ++i) {
    if (C[i] != D[i]) return 2;
    printf("%.9g\\n", C[i]);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return build(parse(Source("test.stripe", TEXT)), host(), name="scaled")


def expected() -> np.ndarray:
    A = np.float32(0.25) * np.arange(12, dtype=np.float32)
    return np.asarray(np.exp(A.reshape(3, 4)) * np.sinh(np.array([1.0, 2.0, 3.0, 0.5], np.float32)))


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_cc
def test_a_c_program_computes_the_same(module: Module, tmp_path: Path) -> None:
    (tmp_path / "scaled.h").write_text(c_header(module))
    (tmp_path / "scaled.o").write_bytes(object_file(module))
    (tmp_path / "main.c").write_text(MAIN)
    command = ["cc", "-std=c11", "-Wall", "-Werror", "main.c", "scaled.o", "-lm", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    shown = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True, timeout=60)
    values = np.array(shown.stdout.split(), np.float32).reshape(3, 4)
    np.testing.assert_allclose(values, expected(), rtol=1e-6)


@needs_cc
@pytest.mark.parametrize("language", ["c99", "c++17"])
def test_the_header_is_plain_c(module: Module, tmp_path: Path, language: str) -> None:
    both = build(parse(Source("load.stripe", LOAD_TIME)), host(), name="int")
    for number, made in enumerate((module, both)):
        (tmp_path / f"{number}.h").write_text(c_header(made))
    include = '#include "0.h"\n#include "1.h"\n'
    kind = "c++" if "++" in language else "c"
    command = ["cc", "-x", kind, f"-std={language}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-"]
    done = subprocess.run(command, input=include, cwd=tmp_path, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_shared_library_is_loaded(module: Module, tmp_path: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))):
        pytest.skip("no linker")
    path = tmp_path / "libscaled.so"
    path.write_bytes(shared_library(module))
    function = ctypes.CDLL(str(path)).scaled
    A = np.float32(0.25) * np.arange(12, dtype=np.float32)
    half = np.array([0x3F80, 0x4000, 0x4040, 0x3F00], np.uint16)
    C = np.empty((3, 4), np.float32)
    assert function(*(ctypes.c_void_p(x.ctypes.data) for x in (A, half, C))) == 0
    np.testing.assert_allclose(C, expected(), rtol=1e-6)


@pytest.mark.parametrize("name", ["x86_64_amx", "x86_64_zen4", "x86_64_avx2"])
def test_a_cpu_that_lacks_something_gets_a_number(name: str, tmp_path: Path) -> None:
    hw = load_named(name)
    if runs_here(hw) or architecture(process_triple()) != "x86_64":
        pytest.skip("this CPU has all of it, or is none that is asked")
    made = build(parse(Source("test.stripe", TEXT)), hw, name="scaled")
    assert "Functions that return a number return 2 where it has not" in c_header(made)
    path = tmp_path / "libscaled.so"
    path.write_bytes(shared_library(made))
    C = np.zeros((3, 4), np.float32)
    given = (np.ones(12, np.float32), np.ones(4, np.uint16), C)
    assert ctypes.CDLL(str(path)).scaled(*(ctypes.c_void_p(x.ctypes.data) for x in given)) == LACKING
    assert not C.any()


def test_the_header_says_what_the_arguments_are(module: Module) -> None:
    text = c_header(module)
    for line in ("A: f32[3, 4], row-major, read", "(the bits of each element)", "written whole"):
        assert line in text
    assert "int scaled(const float *A, const uint16_t *half_, float *C);" in text


def test_a_load_time_program_is_a_function_of_its_own() -> None:
    text = c_header(build(parse(Source("load.stripe", LOAD_TIME)), host(), name="net"))
    assert "int net_load(const float *W, float *P);" in text
    assert "int net(const float *W, const float *P, const float *A, float *B);" in text
    assert "Call net_load once" in text


def test_without_a_linker(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CompileError, match=r"C020.*needs a linker(.|\n)*help: install a C compiler"):
        shared_library(module)


def test_a_linker_that_fails(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "false")
    with pytest.raises(CompileError, match="C021"):
        shared_library(module)


@pytest.mark.parametrize(
    ("target", "machine"), [("aarch64_neon", 183), ("x86_64_avx2", 62), ("x86_64_avx512", 62)]
)
def test_object_code_for_every_target(target: str, machine: int) -> None:
    made = build(parse(Source("test.stripe", dedent(TEXT))), load_named(target))
    code = made.object_code
    assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == machine
    assert "main_program" in made.asm


@pytest.mark.parametrize(
    ("name", "symbol"),
    [("conv", "conv"), ("main", "main_program"), ("exp", "exp_program"), ("expf", "expf_program"),
     ("2d", "_2d"), ("a-b", "a_b"), ("é", "_"), ("", "_"), ("while", "while_program"),
     ("malloc", "malloc_program"), ("int8_t", "int8_t_program")],
)  # fmt: skip
def test_symbols_are_names_of_c(name: str, symbol: str) -> None:
    assert symbol_name(name) == symbol


NAMES = ["a", "a_", "A", "I", "I_", "Bias", "EOF", "INT8_MAX", "UINT8_MAX", "_Bool", "_Bool_", "_", "int"]


def test_parameters_are_names_of_c(tmp_path: Path) -> None:
    assert len({parameter_name(name) for name in NAMES}) == len(NAMES)
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    views = "  ".join(f"in {name}[0] f32(1)" for name in NAMES)
    text = (
        f"block main [] ({views}  out R[0]:assign f32(1)) {{"
        " block b [] (in a[0] f32(1)  out R[0]:assign f32(1)) { $a = load(a)  R = store($a) } }"
    )
    (tmp_path / "names.h").write_text(c_header(build(parse(text), host(), name="names")))
    command = ["cc", "-Wall", "-Werror", "-fsyntax-only", "-include", "stdio.h", "-include", "complex.h"]
    done = subprocess.run(
        [*command, str(tmp_path / "names.h")], text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
