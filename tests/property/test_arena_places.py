"""Random programs at random addresses: where the verifier finds no shared bytes, the result is right."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.verify import verify
from tests.support.placed import MACHINE, placed
from tests.support.programs import make_program, random_inputs

SEEDS = st.integers(0, 2**32 - 1)


def _compare(seed: int, apart: bool) -> tuple[bool, bool]:
    """Is the result right, and does the verifier accept the places?"""
    program = make_program(seed)
    inputs = random_inputs(program, np.random.default_rng(seed))
    with_places = placed(program, random.Random(seed), apart)
    try:
        verify(with_places, MACHINE)
        accepted = True
    except CompileError as error:
        assert {d.code for d in error.diagnostics} == {"V061"}
        accepted = False
    expected, got = interpret(program, inputs), interpret_placed(with_places, inputs, MACHINE)
    return all(np.array_equal(value, got[name]) for name, value in expected.items()), accepted


@given(SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_places_that_the_verifier_accepts_give_the_right_result(seed: int, apart: bool) -> None:
    right, accepted = _compare(seed, apart)
    assert right or not accepted


def test_shared_bytes_show() -> None:
    """Of many programs whose buffers meet, a good part computes something else."""
    found = [_compare(seed, apart=False) for seed in range(40)]
    assert sum(not right for right, _ in found) >= 8
    assert sum(accepted for _, accepted in found) >= 8
