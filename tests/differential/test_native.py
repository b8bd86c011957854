"""Native code against the interpreter: hand-written and random programs, on every config that runs here.

The arithmetic of random programs is exact, so results agree bit for bit (zeros up to their sign).
With all tags dropped, and in whatever form the passes bring a program, the results are the same.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.interp import interpret
from stripe.ir import Block, Direction, Location, Program, Tag
from stripe.verify import findings
from stripe.visit import map_program
from tests.support.native import Array, host, run, runnable, without_tags
from tests.support.programs import Options, corpus, make_program, random_inputs
from tests.support.random_nests import random_program
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


def random_tags(program: Program, rng: random.Random) -> Program:
    """Any index as lane, any written out, and buffers in registers, whether it is wise or not."""

    def on_block(block: Block) -> Block:
        names = list(block.ranges)
        tags = [Tag("unroll", name) for name in names if rng.random() < 0.4]
        if names and rng.random() < 0.7:
            tags.append(Tag("vector", rng.choice(names)))
        refinements = tuple(
            replace(ref, location=Location("REG"))
            if ref.direction is Direction.NEW and rng.random() < 0.5
            else ref
            for ref in block.refinements
        )
        return replace(block, tags=tuple(tags), refinements=refinements)

    return map_program(program, on_block)


def check_nests(seeds: range) -> int:
    """How many of the random nests are valid; each runs as it is and under random tags."""
    valid = 0
    for seed in seeds:
        program = random_program(np.random.default_rng(seed))
        if findings(program):
            continue
        valid += 1
        inputs = random_inputs(program, np.random.default_rng(seed))
        want = interpret(program, inputs)
        for hw in (host(), load_named("generic")):
            check(run(program, inputs, hw), want, f"{hw.name}, nest {seed}", 0)
            tagged = random_tags(program, random.Random(seed))
            check(run(tagged, inputs, hw), want, f"{hw.name}, tagged nest {seed}", 0)
    return valid


def test_random_nests_under_any_tags() -> None:
    assert check_nests(range(200)) > 20


@pytest.mark.slow
def test_many_random_nests_under_any_tags() -> None:
    assert check_nests(range(1000, 8000)) > 700


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 100):
        compare(make_program(seed, Options(load_time=seed % 3 == 0)), seed)
