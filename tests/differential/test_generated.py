"""Random Tile programs mean the same at every stage and on every executor.

Each program is lowered, verified and interpreted. Then the pipeline of a shipped target runs on it
pass by pass: what a pass returns is verified and interpreted, and the last stage runs as native
code where this machine can. All results agree with the first, within `tests.support.tile_programs`'
bounds: bit for bit for integers, and for floats that hold them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from hwconfigs.load import available
from stripe.interp import interpret
from tests.support.executions import Results, Tally, check_stages, native_target, run_native
from tests.support.tile_programs import TileProgram, tile_program

TARGETS = available()
DEFAULT = 300  # programs in the default run, each on one target
LONG = 2000  # programs in the slow run, on every target
SLICES = 10


def run(seeds: Iterable[int], targets: tuple[str, ...]) -> Tally:
    tally = Tally()
    for seed in seeds:
        generated = tile_program(seed)
        program = generated.compile()
        expected = interpret(program, generated.inputs)
        name = targets[seed % len(targets)]

        def check(
            actual: Results, what: str, generated: TileProgram = generated, expected: Results = expected
        ) -> None:
            generated.assert_same(actual, expected, what)

        check_stages(program, generated.inputs, name, check, tally)
    return tally


@pytest.mark.parametrize("part", range(SLICES))
def test_generated_programs(part: int) -> None:
    tally = run(range(part, DEFAULT, SLICES), TARGETS)
    assert tally.programs == DEFAULT // SLICES


def test_programs_as_they_are_lowered_run_natively() -> None:
    """Code generation needs no pass: plain loops compute the same."""
    hw = native_target("generic")
    assert hw is not None
    for seed in range(DEFAULT, DEFAULT + 60):
        generated = tile_program(seed)
        program = generated.compile()
        expected = interpret(program, generated.inputs)
        generated.assert_same(run_native(program, hw, generated.inputs), expected, "native, no passes")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("name", TARGETS)
def test_many_generated_programs(name: str, part: int, say: Callable[[object], None]) -> None:
    tally = run(range(10_000 + part, 10_000 + LONG, SLICES), (name,))
    say(tally)
    assert tally.programs == LONG // SLICES
