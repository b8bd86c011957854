"""Do two programs compute the same? Random inputs through the interpreter, compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from stripe.interp import interpret
from stripe.ir import Program

Array = np.ndarray[Any, Any]


def random_inputs(program: Program, rng: np.random.Generator) -> dict[str, Array]:
    """Small integers of each input's type: sums of them are exact in every order."""
    made = set() if program.load is None else {r.name for r in program.load.refinements if r.direction.writes}
    return {
        ref.name: np.asarray(rng.integers(0 if not ref.dtype.is_signed else -3, 4, ref.shape)).astype(
            ref.dtype.numpy
        )
        for ref in program.inputs
        if ref.name not in made
    }


def assert_same_meaning(before: Program, after: Program, rng: np.random.Generator) -> None:
    """Both give equal outputs, bit for bit, on random inputs."""
    inputs = random_inputs(before, rng)
    expected, got = interpret(before, inputs), interpret(after, inputs)
    assert list(expected) == list(got)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
