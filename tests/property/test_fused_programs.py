"""fuse, localize and scalarize on random valid programs: they verify and compute the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.interp import interpret
from stripe.passes.base import Pass, PassContext
from stripe.passes.fuse import Fuse
from stripe.passes.localize import Localize
from stripe.passes.scalarize import Scalarize
from stripe.verify import findings
from tests.support.programs import Options, make_program, random_inputs

STEPS: tuple[Pass, ...] = (
    Localize(accumulators="REG"),
    Fuse(),
    Localize(memory="L1", accumulators="REG"),
    Scalarize(),
    Fuse(),
)


def check(seeds: Iterable[int], hw: HwConfig) -> dict[str, int]:
    """Run the steps one after the other; how many programs each changed."""
    changed = dict.fromkeys((s.name for s in STEPS), 0)
    for seed in seeds:
        options = Options(
            load_time=seed % 4 == 0, tags=seed % 3 == 0, max_depth=1 + seed % 3, max_kernels=3 + seed % 4
        )
        program = make_program(seed, options)
        inputs = random_inputs(program, np.random.default_rng(seed))
        expected = interpret(program, inputs)
        for step in STEPS:
            where = f"seed {seed}, {step}"
            result = step.run(program, PassContext(hw))
            if result is program:
                continue
            changed[step.name] += 1
            assert result != program, where
            assert findings(result, hw) == (), where
            got = interpret(result, inputs)
            for name, value in expected.items():
                np.testing.assert_array_equal(got[name], value, err_msg=f"{where}, {name}")
            assert step.run(result, PassContext(hw)) is result, f"{where}: not idempotent"
            program = result
    return changed


def test_passes_keep_the_meaning_of_random_programs() -> None:
    changed = check(range(60), load_named("x86_64_avx512"))
    assert all(number > 10 for number in changed.values()), changed


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86_64_avx512", "generic"])
def test_passes_keep_the_meaning_of_many_random_programs(target: str, say: Callable[[object], None]) -> None:
    changed = check(range(60, 2000), load_named(target))
    say(f"1940 programs; {', '.join(f'{name} changed {count}' for name, count in changed.items())}")
