"""Random programs on two to seven threads, whatever the machine has, against the interpreter.

Programs are cut by the pass, alone or at the end of the pipeline, or have blocks at any depth spread over
the threads, also where sums of several threads meet: these must not race. Each runs many times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import make_passes
from stripe.printer import to_text
from stripe.verify import findings
from tests.support.native import host
from tests.support.programs import make_program, random_inputs
from tests.support.random_nests import random_program
from tests.support.threads import partitioned, spread_anyhow, with_cores

REPETITIONS = 8


def agrees(made: Program, source: Program, hw: HwConfig, seed: int) -> bool:
    """Whether native code of `made` runs on threads; it computes what the interpreter does of `source`."""
    assert not findings(made, hw)
    inputs = random_inputs(source, np.random.default_rng(seed))
    want = interpret(source, inputs)
    module = build(made, hw)
    kernel = NativeKernel(module)
    for _ in range(REPETITIONS):
        found = kernel(**inputs)
        results = found if isinstance(found, tuple) else (found,)
        for name, result in zip(kernel.outputs, results, strict=True):
            text = f"seed {seed} on {hw.units[0].count} threads of {hw.name}\n{to_text(made)}"
            np.testing.assert_array_equal(result, want[name], err_msg=f"{name}: {text}")
    return module.is_parallel


def target(seed: int) -> HwConfig:
    hw = host() if seed % 2 else load_named("generic")
    return with_cores(hw, 2 + seed % 6)


def check_cut(seeds: Iterable[int]) -> int:
    ran = 0
    for seed in seeds:
        program, hw = make_program(seed), target(seed)
        ran += agrees(partitioned(program, hw), program, hw, seed)
    return ran


def check_pipeline(seeds: Iterable[int]) -> int:
    ran = 0
    for seed in seeds:
        program, hw = make_program(seed), target(seed)
        ran += agrees(run_pipeline(program, make_passes(hw.pipeline), hw, verify="off"), program, hw, seed)
    return ran


def check_spread(seeds: Iterable[int]) -> int:
    ran = 0
    for seed in seeds:
        program, hw = make_program(seed), target(seed)
        made = spread_anyhow(program, hw, random.Random(seed))
        ran += agrees(made, program, hw, seed)
    return ran


def check_nests(seeds: Iterable[int]) -> int:
    ran = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        program, hw = random_program(rng), target(seed)
        if not findings(program):
            ran += agrees(spread_anyhow(program, hw, random.Random(seed)), program, hw, seed)
    return ran


def test_cut_by_the_pass() -> None:
    assert check_cut(range(14)) > 7


def test_cut_at_the_end_of_the_pipeline() -> None:
    assert check_pipeline(range(8)) > 3


def test_spread_anyhow() -> None:
    assert check_spread(range(14)) > 5


def test_nests_spread_anyhow() -> None:
    assert check_nests(range(100)) > 3


@pytest.mark.slow
def test_many(say: Callable[[object], None]) -> None:
    for check, seeds in (
        (check_cut, range(1000, 1300)), (check_pipeline, range(1000, 1150)),
        (check_spread, range(1000, 1500)), (check_nests, range(1000, 5000)),
    ):  # fmt: skip
        say(f"{check.__name__}: {check(seeds)} of {len(seeds)} ran on threads")
