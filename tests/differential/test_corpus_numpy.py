"""The interpreter agrees with NumPy on every program of the corpus, and all of them verify."""

from __future__ import annotations

import numpy as np
import pytest

from stripe.interp import interpret
from stripe.verify import verify

# from stripe.verify import verify
from tests.support.tile_corpus import CORPUS, TileCase, assert_agrees, expected, make_inputs


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CORPUS) >= 60
    assert len({case.name for case in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_interpreter_agrees_with_numpy(case: TileCase, rng: np.random.Generator) -> None:
    program = case.program()
    inputs = make_inputs(case, rng)
    got = interpret(program, inputs)
    wanted = expected(case, inputs)
    assert len(got) == len(wanted)
    for (name, array), reference in zip(got.items(), wanted, strict=True):
        assert_agrees(name, array, reference)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_lowered_program_verifies(case: TileCase) -> None:
    verify(case.program())
