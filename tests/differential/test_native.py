"""Native code against the interpreter: hand-written and random programs, on every config that runs here.

The arithmetic of random programs is exact, so results agree bit for bit (zeros up to their sign).
With all tags dropped, and in whatever form the passes bring a program, the results are the same.
"""

from __future__ import annotations

import numpy as np
import pytest

from stripe.interp import interpret
from stripe.ir import Program
from tests.support.native import Array, host, run, runnable, without_tags
from tests.support.programs import Options, corpus, make_program, random_inputs
from tests.support.tolerance import assert_same

PER_TEST = 10
SEEDS = range(0, 80, PER_TEST)


def compare(program: Program, seed: int, terms: int = 0) -> None:
    inputs = random_inputs(program, np.random.default_rng(seed))
    want = interpret(program, inputs)
    for hw in runnable():
        check(run(program, inputs, hw), want, f"{hw.name}, seed {seed}", terms)
    check(run(without_tags(program), inputs, host()), want, f"without tags, seed {seed}", terms)


def check(got: dict[str, Array], want: dict[str, Array], what: str, terms: int) -> None:
    if terms:
        assert_same(got, want, terms=terms, what=what)
        return
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=f"{name}: {what}")


@pytest.mark.parametrize("name", sorted(corpus()))
def test_corpus(name: str) -> None:
    compare(corpus()[name], 0, terms=8)


@pytest.mark.parametrize("first", SEEDS)
def test_random_programs(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        compare(make_program(seed, Options(load_time=seed % 3 == 0)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 100):
        compare(make_program(seed, Options(load_time=seed % 3 == 0)), seed)
