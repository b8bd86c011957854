"""Kernels that are native code, and code for other machines."""

from __future__ import annotations

import ctypes
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stripec
from stripe.diag import CompileError
from stripec.cli import main

MATMUL = "function matmul(A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
SHAPES = {"A": "f32[33,20]", "B": "f32[20,47]"}
FOREIGN = "aarch64_neon" if platform.machine() == "x86_64" else "x86_64_avx2"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPEC_CACHE_DIR", str(tmp_path / "cache"))


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((33, 20), "f4"), rng.random((20, 47), "f4")


@pytest.mark.parametrize("target", ["host", "generic"])
def test_native_code_computes_what_numpy_does(target: str) -> None:
    kernel = stripec.compile(MATMUL, shapes=SHAPES, target=target)
    A, B = data()
    np.testing.assert_allclose(kernel(A, B), A @ B, rtol=1e-5)
    np.testing.assert_allclose(kernel(B=B, A=A), A @ B, rtol=1e-5)
    np.testing.assert_allclose(kernel(np.asfortranarray(A), B[::1]), A @ B, rtol=1e-5)
    out = np.empty((33, 47), "f4")
    assert kernel(A, B, out=out) is out
    np.testing.assert_allclose(out, A @ B, rtol=1e-5)


def test_stages_are_the_pipeline_and_texts_are_there() -> None:
    kernel = stripec.compile(MATMUL, shapes=SHAPES)
    specs = [spec.partition("{")[0] for spec, _ in kernel.stages]
    assert specs == ["input", *(step.name for step in kernel.hw.pipeline)]
    assert kernel.stages[-1][1] is kernel.program
    assert any(remark.acted for remark in kernel.remarks)
    assert "define" in kernel.llvm and "matmul" in kernel.asm


def careful_calls(kernel: stripec.Kernel, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """From now on: the arguments of calls that are not quick."""
    seen: list[Any] = []
    careful = kernel._carefully

    def watched(*given: Any) -> Any:
        seen.append(given)
        return careful(*given)

    monkeypatch.setattr(kernel, "_carefully", watched)
    return seen


def test_calls_after_the_second_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = stripec.compile(MATMUL, shapes=SHAPES)
    A, B = data()
    for _ in range(2):
        kernel(A, B)
    seen = careful_calls(kernel, monkeypatch)
    out = np.empty((33, 47), "f4")
    for result in (kernel(A, B), kernel(A, B, out=out), kernel(A, B=B), kernel(B=B, A=A, out=out)):
        np.testing.assert_allclose(result, A @ B, rtol=1e-5)
    assert not seen
    for given in ((A.astype(">f4"), B), (np.asfortranarray(A), B)):
        np.testing.assert_allclose(kernel(*given), A @ B, rtol=1e-5)
    assert len(seen) == 2
    np.testing.assert_allclose(kernel(A, B), A @ B, rtol=1e-5)
    assert len(seen) == 2


def test_types_may_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = stripec.compile(MATMUL)
    A, B = data()
    pairs = [(A, B), (A[:5], B), (A.astype("f8"), B.astype("f8"))]
    for _ in range(3):
        for a, b in pairs:
            np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5)
    seen = careful_calls(kernel, monkeypatch)
    for a, b in pairs:
        for _ in range(3):
            result = kernel(a, b)
            assert result.dtype == a.dtype and result.shape == (len(a), 47)
            np.testing.assert_allclose(result, a @ b, rtol=1e-5)
    assert len(seen) == 3  # one for each change of types


def test_bound_constants_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = data()
    kernel = stripec.compile(MATMUL, shapes={"A": SHAPES["A"]}, constants={"B": B})
    for _ in range(2):
        kernel(A)
    seen = careful_calls(kernel, monkeypatch)
    expected = A @ B
    B[...] = 0  # they are copies
    for _ in range(3):
        np.testing.assert_allclose(kernel(A), expected, rtol=1e-5)
    assert not seen


def test_it_specialises_and_binds_constants() -> None:
    A, B = data()
    kernel = stripec.compile(MATMUL, constants={"B": B})
    np.testing.assert_allclose(kernel(A), A @ B, rtol=1e-5)
    np.testing.assert_allclose(kernel(A[:5]), A[:5] @ B, rtol=1e-5)
    with pytest.raises(CompileError, match="error"):
        kernel(A.astype("f8")[:, :3])


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        (lambda A, B: (A.astype("f8"), B), "C010"),
        (lambda A, B: (A[:-1], B), "C011"),
        (lambda A, B: (A, None), "C016"),
        (lambda A, B: (A,), "D033"),
    ],
)
def test_calls_that_do_not_fit(arrays: Any, code: str) -> None:
    kernel = stripec.compile(MATMUL, shapes=SHAPES)
    with pytest.raises(CompileError) as caught:
        kernel(*arrays(*data()))
    assert caught.value.diagnostics[0].code == code


def test_code_for_another_machine_is_made_but_not_called() -> None:
    kernel = stripec.compile(MATMUL, shapes=SHAPES, target=FOREIGN)
    assert "matmul" in kernel.asm
    with pytest.raises(CompileError, match=rf"error\[C004\]: target '{FOREIGN}' needs"):
        kernel(*data())


def test_the_command_emits_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("matmul.tile").write_text(MATMUL)
    arguments = ["compile", "matmul.tile", *(f"--shape={n}={t}" for n, t in SHAPES.items())]
    for emit, mark in (("stripe", "block main"), ("llvm", "define"), ("asm", "matmul")):
        for target in ("host", FOREIGN):
            assert main([*arguments, "--emit", emit, "--target", target]) == 0
            assert mark in capsys.readouterr().out
    assert main([*arguments, "--emit", "asm", "-o", "out/none.s"]) == 1
    assert "can't write" in capsys.readouterr().err
    assert main(["compile", *arguments[1:], "--emit", "llvm", "--target", "paper_figure4"]) == 1
    assert "error[C001]" in capsys.readouterr().err


def test_the_command_emits_code_with_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("product.tile").write_text(MATMUL.replace("function matmul", "function"))
    arguments = ["compile", "product.tile", *(f"--shape={n}={t}" for n, t in SHAPES.items())]
    assert main([*arguments, "--emit", "obj", "--target", FOREIGN]) == 0
    code = Path("product.o").read_bytes()
    assert code.startswith(b"\x7fELF")
    assert "int product(" in Path("product.h").read_text()
    assert main([*arguments, "--emit", "obj", "--target", FOREIGN, "-o", "-"]) == 0
    assert capsysbinary.readouterr().out == code
    assert main([*arguments, "--emit", "obj", "-o", "product.h"]) == 1
    assert b"error[D012]" in capsysbinary.readouterr().err


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("ld")), reason="no linker here")
def test_a_shared_library_is_called_through_ctypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("product.tile").write_text(MATMUL)
    arguments = ["compile", "product.tile", *(f"--shape={n}={t}" for n, t in SHAPES.items())]
    assert main([*arguments, "--emit", "shared"]) == 0
    A, B = data()
    C = np.empty((33, 47), "f4")
    library = ctypes.CDLL(str(tmp_path / "product.so"))
    assert library.matmul(*(a.ctypes.data_as(ctypes.c_void_p) for a in (A, B, C))) == 0
    np.testing.assert_allclose(C, A @ B, rtol=1e-5)


def test_a_run_on_the_host_is_checked_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("matmul.tile").write_text(MATMUL)
    arguments = ["run", "matmul.tile", *(f"--input={n}=random:{t}" for n, t in SHAPES.items())]
    assert main([*arguments, "--check", "--time", "--output", "C=c.npy"]) == 0
    shown = capsys.readouterr().out
    assert "C: agrees with the interpreter" in shown and "GFLOP/s" in shown
    assert np.load("c.npy").shape == (33, 47)
    assert main(["targets", "show", "host"]) == 0
    assert '"features"' in capsys.readouterr().out


def test_the_cache_is_used(tmp_path: Path) -> None:
    A, B = data()
    for _ in range(2):
        stripec.compile(MATMUL, shapes=SHAPES)(A, B)
        assert len(list((tmp_path / "cache").rglob("*.o"))) == 1
