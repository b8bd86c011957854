"""Blocks that are alike are treated once, and what was made of one fits the others."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.compile_time import network
from hwconfigs.load import load_named
from stripe import verify as verify_module
from stripe.alike import kind, renaming, translated
from stripe.analysis.cost_layout import instruction_cycles
from stripe.diag import CompileError, Diagnostic, Remark, Source
from stripe.interp import interpret
from stripe.ir import Block, Program
from stripe.parser import parse
from stripe.passes.base import Pass, PassContext
from stripe.passes.kernels import run_pass
from stripe.passes.registry import check_pipeline
from stripe.passes.transpose import Transpose
from stripe.remembered import RememberedOf
from stripe.verify import verify
from stripe.verify_access import Nest, access_findings
from tests.support.meaning import random_inputs
from tests.support.passes import program_of
from tile_frontend import compile_tile

TWO = """
block main [] (
  in A[0] f32(8):(1)
  in U[0] f32(8):(1)
  out B[0]:assign f32(8):(1)
  out V[0]:assign f32(8):(1)
) {
  block B [i:8] (in A[i] f32(1):(1)  out B[i]:assign f32(1):(1)) {
    $a = load(A) f32
    $b = mul($a, $a) f32
    B = store($b)
  }
  block V [i:8] (in U[i] f32(1):(1)  out V[i]:assign f32(1):(1)) {
    $u = load(U) f32
    $v = mul($u, $u) f32
    V = store($v)
  }
}
"""


def two() -> tuple[Block, Block]:
    one, other = program_of(TWO).root.children
    return one, other


def test_equal_up_to_names() -> None:
    one, other = two()
    assert kind(one).block is kind(other).block
    assert renaming(one, other).buffers == {"A": "U", "B": "V"}
    assert renaming(one, other).scalars == {"a": "u", "b": "v"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mul($u, $u)", "add($u, $u)"),
        ("in U[i]", "in U[7 - i]"),
        ("block V [i:8] (in", "block V [i:8] (7 - i >= 0  in"),
        ("block V [i:8]", "block V [i:8] @CORE"),
        ("{\n    $u", "#vector=i {\n    $u"),
    ],
)
def test_what_is_more_than_a_name(old: str, new: str) -> None:
    assert old in TWO
    one, other = program_of(TWO.replace(old, new)).root.children
    assert kind(one).block is not kind(other).block


def test_one_name_for_two_things_is_not_two_names() -> None:
    _, other = two()
    swapped = program_of(
        TWO.replace("mul($u, $u)", "mul($u, $w)").replace("$v = ", "$w = load(U) f32\n    $v = ")
    )
    assert kind(swapped.root.children[1]).block is not kind(other).block


def test_new_names_follow_the_old_ones() -> None:
    one, other = two()
    made = replace(one, statements=(replace(one, name="B_copy"), replace(one, name="B_1")))
    result = translated(made, renaming(one, other), other)
    assert [child.name for child in result.children] == ["V_copy", "V_1"]
    assert [ref.name for ref in result.refinements] == ["U", "V"]


def compiled(share: bool, kernels: int = 24) -> tuple[list[Program], list[Remark]]:
    """A network that repeats its kernels through the passes, with and without sharing."""
    text, types = network(kernels, distinct=8)
    program, hw = compile_tile(Source("network.tile", text), types), load_named("x86_64_avx512")
    programs, remarks = [program], []
    for step in check_pipeline(hw):
        context = PassContext(hw)
        run = run_pass if share else _alone
        programs.append(run(step, programs[-1], context))
        remarks += context.remarks
    return programs, remarks


def _alone(step: Pass, program: Program, context: PassContext) -> Program:
    return step.run(program, context)


def test_sharing_changes_nothing_but_time() -> None:
    shared, said = compiled(share=True)
    alone, also_said = compiled(share=False)
    for one, other in zip(shared, alone, strict=True):
        verify(one)
        assert [kind(k).block for k in one.root.children] == [kind(k).block for k in other.root.children]
    assert [(r.pass_name, r.block, r.acted, r.message) for r in said] == [
        (r.pass_name, r.block, r.acted, r.message) for r in also_said
    ]
    inputs = random_inputs(shared[0], np.random.default_rng(1))
    for name, value in interpret(alone[-1], inputs).items():
        np.testing.assert_array_equal(interpret(shared[-1], inputs)[name], value)


def test_of_kernels_alike_one_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(nest: Nest) -> list[Diagnostic]:
        asked.append(nest.site.path)
        return access_findings(nest)

    monkeypatch.setattr(verify_module, "access_findings", counted)
    monkeypatch.setattr(verify_module, "_PROVED_KINDS", RememberedOf[Block, frozenset[Hashable]](16))
    text, types = network(24, distinct=8)
    verify(compile_tile(Source("network.tile", text), types))
    kernels = [path for path in asked if path.count("/") == 1]
    assert len(kernels) == 10  # the first reads an input, the last writes an output


def test_all_kernels_alike_that_are_wrong_are_named() -> None:
    program = parse(
        Source("two.stripe", TWO.replace("in A[i]", "in A[i + 1]").replace("in U[i]", "in U[i + 1]"))
    )
    with pytest.raises(CompileError) as caught:
        verify(program)
    assert [d.code for d in caught.value.diagnostics] == ["V050", "V050"]


def test_what_is_made_for_another_is_known_to_be_alike() -> None:
    hw = load_named("x86_64_avx512")
    text, types = network(12, 4)
    program = compile_tile(Source("network", text), types)
    for step in check_pipeline(hw):
        program = run_pass(step, program, PassContext(hw))
        for kernel in program.root.children:
            known, anew = kind(kernel), kind(replace(kernel))  # a copy is looked at again
            assert known.block is anew.block
            assert known.names == anew.names


def test_costs_of_layouts_are_asked_once_for_kernels_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    hw, asked = load_named("x86_64_avx512"), 0

    def counted(*arguments: Any, **named: Any) -> float:
        nonlocal asked
        asked += 1
        return instruction_cycles(*arguments, **named)

    monkeypatch.setattr("stripe.passes.transpose_measures.instruction_cycles", counted)
    found = []
    for kernels in (8, 24):
        text, types = network(kernels, 4)
        program = compile_tile(Source("network", text), types)
        asked = 0
        run_pass(Transpose(), program, PassContext(hw))
        found.append(asked)
    assert 0 < found[1] <= found[0] + 4  # the last kernel's result is the program's
