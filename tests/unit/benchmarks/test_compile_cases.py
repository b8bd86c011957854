"""Compile time of single cases: its parts, and the marks of what takes too long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import compile_cases
from codegen_cpu.target import Target


def test_a_cold_compilation_has_parts_that_sum_up() -> None:
    row = compile_cases.cold("matmul 64x64x64 packed", "generic")
    parts = {part: seconds for part, seconds in row.items() if part not in ("cold", "isl")}
    assert sum(parts.values()) == pytest.approx(row["cold"], rel=0.02)
    assert min(parts.values()) > 0
    assert {"front end", "passes", "verification", "LLVM optimises", "load"} <= row.keys()


def test_a_cold_compilation_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, once = list[str](), Target.object_code

    def counted(target: Target, text: str, done: Callable[[str], None] = lambda _: None) -> bytes:
        made.append(text)
        return once(target, text, done)

    monkeypatch.setattr(Target, "object_code", counted)
    compile_cases.cold("matmul 64x64x64", "generic")
    assert len(made) == 1


def test_what_is_on_disk_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRIPEC_CACHE_DIR", str(tmp_path))
    first, second = (compile_cases.from_disk("matmul 64x64x64", "generic")["warm"] for _ in range(2))
    assert second < first


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(SystemExit, match="no case is named 'matmul'"):
        compile_cases.find("matmul")


def test_a_family_stands_for_its_cases() -> None:
    found = compile_cases.named(["matmul 64x64x64 packed", "lowp"])
    assert found[0] == "matmul 64x64x64 packed"
    assert {compile_cases.find(name)[0].family for name in found[1:]} == {"lowp"}


def test_what_takes_too_long_is_marked() -> None:
    rows = {
        "matmul 64x64x64": {"passes": 0.6, "cold": 0.6, "isl": 0.0, "warm": 0.01},
        "attention 8x512x64": {"passes": 0.6, "cold": 0.6, "isl": 0.0, "warm": 0.03},
    }
    console = Console(width=120, record=True, file=None)
    with console.capture() as shown:
        console.print(compile_cases.table(0.31, rows, "host"))
    assert "310 ms" in shown.get()
    lines = shown.get().splitlines()
    (product,) = (line for line in lines if "matmul" in line)
    (attention,) = (line for line in lines if "attention 8" in line)
    assert "600 !" in product and "10.0 !" not in product
    assert "600 !" not in attention and "30.0 !" in attention
