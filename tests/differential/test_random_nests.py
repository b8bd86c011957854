"""Random Stripe nests: the verifier only lets through what runs, and every executor agrees on it.

The programs come from tests.support.random_nests: nested levels of every direction and
aggregation, passed indexes, constraints, new buffers. Most break a rule of the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from hwconfigs.load import available
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.printer import to_text
from stripe.verify import findings
from tests.support.executions import Results, Tally, check_stages, native_target, run_native
from tests.support.random_nests import random_program
from tests.support.tolerance import assert_same

TARGETS = [name for name in available() if native_target(name)]


def run(seeds: Iterable[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        program = random_program(rng)
        if findings(program):
            continue
        text = f"seed {seed}\n{to_text(program)}"
        inputs = {r.name: rng.integers(-3, 4, r.shape).astype(r.dtype.numpy) for r in program.inputs}
        try:
            expected = interpret(program, inputs)
        except CompileError as error:
            raise AssertionError(f"verified, but does not run: {error}\n{text}") from error
        name = TARGETS[seed % len(TARGETS)]
        hw = native_target(name)
        assert hw is not None
        assert_same(run_native(program, hw, inputs), expected, what=f"{name}, no passes, {text}")

        def check(actual: Results, what: str, expected: Results = expected, text: str = text) -> None:
            assert_same(actual, expected, what=f"{what}, {text}")

        check_stages(program, inputs, name, check, tally)
    return tally


def test_random_nests() -> None:
    assert run(range(300)).programs > 30


@pytest.mark.slow
def test_many_random_nests(say: Callable[[object], None]) -> None:
    say(run(range(1000, 9000)))
