"""Compiled programs are found by what they were compiled from: without a pass, and never a wrong one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from stripec import api, driver

SUM = "function (A[M, N]) -> (S) { S[m : M] = +(A[m, n]); }"
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
A = np.arange(12, dtype=np.float32).reshape(3, 4)

Compiled = list[str]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiled:
    """The names of the programs that went through the passes, as it happens; with a folder of its own."""
    monkeypatch.setenv("STRIPEC_CACHE_DIR", str(tmp_path / "cache"))
    found: Compiled = []
    original = driver.optimise

    def optimise(*given: Any, **named: Any) -> Any:
        found.append(named["name"])
        return original(*given, **named)

    monkeypatch.setattr(api, "optimise", optimise)
    return found


def run(**options: Any) -> stripec.Kernel:
    kernel = stripec.compile(SUM, {"A": "f32[3,4]"}, **options)
    np.testing.assert_array_equal(kernel(A), A.sum(1))
    return kernel


def notes(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.note"))


def test_a_second_kernel_needs_no_pass(compiled: Compiled) -> None:
    first, second = run(), run()
    assert len(compiled) == 1
    assert second.stripe == first.stripe and second.remarks == first.remarks  # made when asked for
    assert len(compiled) == 2
    assert second.asm == first.asm


def test_nor_does_another_process(compiled: Compiled) -> None:
    run()
    text = f"""
import sys, numpy as np, stripec
A = np.arange(12, dtype=np.float32).reshape(3, 4)
kernel = stripec.compile({SUM!r}, {{"A": "f32[3,4]"}})
assert (kernel(A) == A.sum(1)).all()
print([name for name in sys.modules if name.startswith("stripe.passes.")])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    loaded = done.stdout
    assert "pipeline" in loaded and "fuse" not in loaded and "autotile" not in loaded


def test_kernels_without_types_and_constants_are_found_too(compiled: Compiled) -> None:
    B = np.ones((4, 5), np.float32)
    for factor in (1, 2):
        kernel = stripec.compile(PRODUCT, constants={"B": factor * B})
        np.testing.assert_array_equal(kernel(A), A @ (factor * B))  # what constants hold is no part of it
    assert len(compiled) == 1
    np.testing.assert_array_equal(stripec.compile(PRODUCT)(A, B), A @ B)
    assert len(compiled) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda: stripec.compile(SUM, {"A": "f64[3,4]"})(A.astype(np.float64)),
        lambda: stripec.compile(SUM, {"A": "f32[2,4]"})(A[:2]),
        lambda: stripec.compile(SUM + " ", {"A": "f32[3,4]"})(A),
        lambda: run(target="x86_64_avx2"),
        lambda: run(target=load_named("generic")),
        lambda: run(threads=3),
        lambda: run(verify="off"),
        lambda: run(deterministic=True),
    ],
)
def test_what_changes_the_code_is_in_the_name(compiled: Compiled, change: Callable[[], object]) -> None:
    run(threads=2)
    change()
    assert len(compiled) == 2


def test_who_looks_at_the_passes_sees_them(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    assert run(verify="full").validation
    monkeypatch.setenv("STRIPEC_DEBUG", "verify")
    run()
    assert len(compiled) == 3


def test_errors_stay_errors(compiled: Compiled) -> None:
    for _ in range(2):
        with pytest.raises(stripec.CompileError):
            stripec.compile("function (A[M]) -> (S) { S[m : M] = =(A[m + n]); }", {"A": "f32[3]"})


@pytest.mark.parametrize("suffix", [".o", ".note"])
@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"", lambda d: d[:50] + b"x" + d[51:]])
def test_damaged_entries_are_made_anew(
    compiled: Compiled, tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    run()
    for path in (tmp_path / "cache").glob(f"*{suffix}"):
        path.write_bytes(damage(path.read_bytes()))
    run()
    assert len(compiled) == 2
    run()
    assert len(compiled) == 2


def test_a_note_without_its_code_is_none(compiled: Compiled, tmp_path: Path) -> None:
    run()
    for path in (tmp_path / "cache").glob("*.o"):
        path.unlink()
    run()
    assert len(compiled) == 2 and notes(tmp_path)


def test_no_folder_no_notes(compiled: Compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first")
    for place in ("off", str(tmp_path / "file"), "/proc/nowhere"):
        monkeypatch.setenv("STRIPEC_CACHE_DIR", place)
        run()
    assert len(compiled) == 3


def test_programs_are_found_as_texts_are(compiled: Compiled) -> None:
    program = run(target="generic").stages[0][1]
    for _ in range(2):
        np.testing.assert_array_equal(stripec.compile(program, target="generic")(A), A.sum(1))
    assert len(compiled) == 2
