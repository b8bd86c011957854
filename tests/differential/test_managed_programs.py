"""Programs of all kinds on the targets that manage their memories: placed whole and right on the addresses
given, or refused with the limit that they exceed and by how much."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.verify_ready import unplaced
from tests.support.managed import CHIPS, TARGETS, check_on, random_inputs
from tests.support.managed_programs import MANAGED, ManagedCase
from tests.support.tile_programs import tile_program
from tests.support.window_programs import window_program

# The operands of a special are not split. The vector_dsp has a unit that works on them in far memory.
TOO_LARGE = {"gather_big", "gather_huge"}

# What once went wrong, small enough for every run.
ONCE_WRONG = (
    "k1",  # no sum, yet done by the array, which leaves its results in a memory of its own
    "transposed2",  # sums that overlap between units
    "stride_holes",  # results with gaps between them
    "every_third",  # elements of which a part is read that takes a division to describe
    "attention",
    "const_pre",
    "zero_k",
)


def run(case: ManagedCase, target: str, rng: np.random.Generator) -> None:
    program, hw = case.program(), load_named(target)
    inputs = random_inputs(program, rng, case.floats, case.integers)
    try:
        check_on(program, hw, inputs)
    except CompileError as refused:
        assert case.name in TOO_LARGE and target != "vector_dsp"
        assert re.search(r"'?main.* (\d+ more than|\d+ too many)", str(refused), re.DOTALL)
    else:
        assert case.name not in TOO_LARGE or target in ("vector_dsp", *CHIPS)  # which may hold more


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [c for c in MANAGED if c.name in ONCE_WRONG], ids=lambda case: case.name)
def test_what_once_went_wrong(case: ManagedCase, target: str, rng: np.random.Generator) -> None:
    run(case, target, rng)


@pytest.mark.parametrize(("name", "target"), [*zip(ONCE_WRONG, CHIPS, strict=False)])
def test_what_once_went_wrong_on_a_chip_each(name: str, target: str, rng: np.random.Generator) -> None:
    run(next(c for c in MANAGED if c.name == name), target, rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("case", MANAGED, ids=lambda case: case.name)
def test_programs_on_chips(case: ManagedCase, target: str, rng: np.random.Generator) -> None:
    run(case, target, rng)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [c for c in MANAGED if c.name not in ONCE_WRONG], ids=lambda case: case.name)
def test_programs(case: ManagedCase, target: str, rng: np.random.Generator) -> None:
    run(case, target, rng)


# Windows whose elements take a division to describe (103), or are sums of steps (237, 365).
WINDOWS = (22, 103, 237, 365)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "seed", [*WINDOWS, *(pytest.param(n, marks=pytest.mark.slow) for n in range(60) if n not in WINDOWS)]
)
def test_random_windows(seed: int, target: str) -> None:
    made = window_program(seed)
    check_on(made.compile(), load_named(target), made.inputs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))])
def test_random_programs(seed: int, target: str) -> None:
    made, hw = tile_program(seed), load_named(target)
    program = made.compile()
    placed = run_pipeline(program, check_pipeline(hw), hw)
    assert unplaced(placed, hw) == ()
    made.assert_same(interpret_placed(placed, made.inputs, hw), interpret(program, made.inputs), target)
