"""The random programs are what they say: the same for a seed, valid, exact, alike at any depth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stripe.interp import interpret
from stripe.ir import Aggregation
from stripe.verify import findings
from stripe.visit import walk
from tests.support.programs import Options, corpus, make_program, random_inputs

SEEDS = range(60)


@pytest.mark.parametrize("name", corpus())
def test_the_corpus_runs(name: str, rng: np.random.Generator) -> None:
    program = corpus()[name]
    results = interpret(program, random_inputs(program, rng))
    assert list(results) == [ref.name for ref in program.outputs]


@pytest.mark.parametrize("name", corpus())
def test_the_corpus_is_valid(name: str) -> None:
    assert findings(corpus()[name]) == ()


def test_the_random_programs_are_valid() -> None:
    for seed in SEEDS:
        assert findings(make_program(seed, Options(load_time=seed % 4 == 0))) == (), f"seed {seed}"


@pytest.mark.slow
def test_many_random_programs_are_valid() -> None:
    for seed in range(3000):
        assert findings(make_program(seed, Options(load_time=seed % 4 == 0))) == (), f"seed {seed}"


def test_a_seed_is_a_program() -> None:
    assert all(make_program(seed) == make_program(seed) for seed in SEEDS)
    assert len({make_program(seed) for seed in SEEDS}) == len(SEEDS)


def test_nesting_and_tags_keep_what_is_computed(rng: np.random.Generator) -> None:
    for seed in SEEDS:
        options = Options(load_time=seed % 4 == 0)
        program = make_program(seed, options)
        flat = make_program(seed, replace(options, max_depth=1, tags=False))
        inputs = random_inputs(program, rng)
        results, expected = interpret(program, inputs), interpret(flat, inputs)
        for name, value in expected.items():
            np.testing.assert_array_equal(results[name], value, err_msg=f"seed {seed}, {name}")


def test_there_is_variety() -> None:
    """A generator that quietly stopped making something would weaken every test that uses it."""
    trees = [make_program(seed, Options(load_time=seed % 4 == 0)) for seed in range(150)]
    blocks = [block for tree in trees for _, block in walk(tree.root)]
    refs = [ref for block in blocks for ref in block.refinements]
    inner = [ref for tree in trees for block in tree.root.children for ref in block.refinements]
    assert {len(path) for tree in trees for path, _ in walk(tree.root)} >= {1, 2, 3, 4}
    assert {ref.aggregation for ref in inner} == {None, *Aggregation}
    assert len({ref.dtype for ref in refs}) == 13
    assert {ref.direction.value for ref in inner} == {"in", "out", "inout", "new"}
    assert any(block.constraints for block in blocks)
    assert any(index.passed is not None for block in blocks for index in block.indexes)
    assert any(tree.load is not None for tree in trees)
    assert {type(s).__name__ for block in blocks for s in block.statements} == {
        "Block", "Cast", "Constant", "IndexValue", "Intrinsic", "Load", "Special", "Store",
    }  # fmt: skip
