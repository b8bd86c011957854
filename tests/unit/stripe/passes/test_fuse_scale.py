"""How much work fuse does for programs of many kernels, counted in questions, not in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hwconfigs.load import load_named
from stripe.analysis.fusion import plan_fusion
from stripe.analysis.fusion_plan import Declined, Plan
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.fuse import Fuse
from stripe.poly.domain import _conjunction
from tile_frontend import compile_tile

MATRIX = TensorType(DType.F32, (6, 8))


def elementwise_chain(count: int) -> Program:
    """T1 = f(X), T2 = f(T1, X) ...: each uses what the one before made, and all use X."""
    steps = "".join(f"T{at + 1} = T{at} * 0.5 + X; " for at in range(count - 1))
    return compile_tile(
        Source("chain", f"function (X) -> (R) {{ T0 = -X; {steps} R = T{count - 1}; }}"), {"X": MATRIX}
    )


def fan_out_and_in(count: int) -> Program:
    """Many elementwise blocks of one input, and a block that adds them all."""
    wide = "".join(f"A{at} = X * {at}.5; " for at in range(count))
    total = " + ".join(f"A{at}" for at in range(count))
    return compile_tile(Source("fan", f"function (X) -> (R) {{ {wide} R = {total}; }}"), {"X": MATRIX})


def layers(count: int) -> Program:
    """Contractions, each with an elementwise block behind it."""
    steps = "".join(
        f"C{at}[m, n : 6, 8] = +(T{at}[m, k] * W[k, n]); T{at + 1} = relu(C{at}); " for at in range(count)
    )
    text = f"function (X[M, K], W) -> (R) {{ T0 = -X; {steps} R = T{count}; }}"
    return compile_tile(Source("layers", text), {"X": MATRIX, "W": TensorType(DType.F32, (8, 8))})


def contractions_of_one_input(count: int) -> Program:
    names = [f"C{at}" for at in range(count)]
    weights = [f"W{at}" for at in range(count)]
    steps = "".join(
        f"{c}[m, n : 6, 8] = +(X[m, k] * {w}[k, n]); " for c, w in zip(names, weights, strict=True)
    )
    text = f"function (X[M, K], {', '.join(weights)}) -> ({', '.join(names)}) {{ {steps} }}"
    square = TensorType(DType.F32, (8, 8))
    return compile_tile(Source("wide", text), {"X": MATRIX, **dict.fromkeys(weights, square)})


Counted = Callable[[Program], tuple[int, int, Program]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Runs fuse: how many pairs were planned, how many sets were made, and the result."""
    plans = 0

    def plan(*arguments: Any) -> Plan | Declined:
        nonlocal plans
        plans += 1
        return plan_fusion(*arguments)

    monkeypatch.setattr("stripe.passes.fuse.plan_fusion", plan)

    def run(program: Program) -> tuple[int, int, Program]:
        nonlocal plans
        plans = 0
        _conjunction.cache_clear()
        result = Fuse().run(program, PassContext(load_named("x86_64_avx512")))
        return plans, _conjunction.cache_info().misses, result

    return run


@pytest.mark.parametrize("build", [elementwise_chain, fan_out_and_in])
def test_each_fusion_takes_one_plan(build: Callable[[int], Program], counted: Counted) -> None:
    program = build(60)
    plans, _, result = counted(program)
    assert len(result.root.statements) == 1
    assert plans == len(program.root.statements) - 1


@pytest.mark.parametrize("build", [elementwise_chain, fan_out_and_in, layers])
def test_kernels_that_are_alike_share_their_proofs(build: Callable[[int], Program], counted: Counted) -> None:
    _, few, _ = counted(build(10))
    _, many, _ = counted(build(40))
    assert many == few


def test_plans_of_layers_grow_with_their_number(counted: Counted) -> None:
    few, _, _ = counted(layers(10))
    many, _, result = counted(layers(40))
    assert len(result.root.statements) <= 42
    assert many <= 4 * few + 4


def test_blocks_that_share_an_input_in_vain_are_not_planned(counted: Counted) -> None:
    plans, _, result = counted(contractions_of_one_input(20))
    assert len(result.root.statements) == 20
    assert plans == 0
