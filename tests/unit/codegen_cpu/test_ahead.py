"""Loops that ask ahead for what they will load: which do, for which lines, and that nothing else changes."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from codegen_cpu.build import Module, build
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import runnable
from tests.unit.codegen_cpu.test_hot_loops import hot_loop
from tests.unit.codegen_cpu.test_memory import check_guarded

AVX512 = load_named("x86_64_avx512")


def product(m: int, n: int, k: int, turned: bool = False) -> Program:
    """A product of matrices whose results stay in registers; `turned`: A, of which it takes some
    columns, has its rows along k."""
    shape, access, step = ((k, 4 * m), "k, m", f"({4 * m}, 1)") if turned else ((m, k), "m, k", f"({k}, 1)")
    text = f"""
    block main [] (in A[0, 0] f32{shape}:{step}  in B[0, 0] f32({k}, {n}):({n}, 1)
                   out C[0, 0]:assign f32({m}, {n}):({n}, 1)) {{
      block p [k:{k}, m:{m}, n:{n}] (
        in A[{access}] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)
      ) #unroll=m #unroll=n #vector=n {{
        $a = load(A) f32
        $b = load(B) f32
        $c = mul($a, $b) f32
        C = store($c)
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def asked(module: Module) -> list[str]:
    """The lines that the hot loop asks for."""
    return [i for i in hot_loop(module, "vfmadd") if i.startswith("prefetch")]


def places(instructions: list[str]) -> list[int]:
    """What is added to the registers of an address; of vectors alone, no splats."""
    found = [re.search(r"(-?\d*)\(%r", i) for i in instructions if "broadcast" not in i]
    return sorted(int(at[1] or 0) for at in found if at is not None)


def test_a_panel_is_asked_for_once_for_each_line() -> None:
    made = build(product(6, 64, 200), AVX512)
    assert all(i.startswith("prefetcht0") for i in asked(made))
    loaded = places([i for i in hot_loop(made, "vfmadd") if i.startswith("vmov")])
    assert len(loaded) == 4
    assert places(asked(made)) == [at + 2048 for at in loaded]  # 8 steps of 256 bytes


def test_far_rows_are_asked_for_by_the_row() -> None:
    made = build(product(8, 32, 300, turned=True), AVX512)
    assert len(asked(made)) == 3  # two lines of B, and the one of A that holds all its rows


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(product(3, 64, 200), id="few operations for each line"),
        pytest.param(product(6, 64, 7), id="less than what lies ahead"),
        pytest.param(product(6, 8, 200), id="half a line at each step"),
    ],
)
def test_loops_that_do_not_ask(program: Program) -> None:
    made = build(program, AVX512)
    assert "prefetch" not in made.asm


def test_other_architectures_ask_too() -> None:
    assert "prfm" in build(product(8, 16, 200), load_named("aarch64_neon")).asm


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_what_lies_behind_the_end_is_not_touched(hw: HwConfig) -> None:
    check_guarded(product(8, 64, 40), hw)
