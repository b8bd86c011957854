"""Counts proved twice, and what repeats counted right, for programs of all kinds on every target whose
memories programs manage."""

from __future__ import annotations

import pytest

from hwconfigs.load import load_named
from simulator.closed import ClosedForm
from simulator.timeline import Timeline
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from tests.support.managed import CHIPS, TARGETS
from tests.support.managed_programs import MANAGED, ManagedCase
from tests.support.tile_programs import tile_program
from tests.support.window_programs import window_program

FEW = MANAGED[::12]


def check(program: Program, target: str) -> None:
    hw = load_named(target)
    try:
        placed = run_pipeline(program, check_pipeline(hw), hw, verify="off")
    except CompileError:  # too large for the target, which other tests look at
        return
    full, quick = Timeline(placed.root, hw, extrapolate=False), Timeline(placed.root, hw)
    full.run()
    quick.run()
    assert quick.now == full.now
    assert quick.totals == full.totals
    closed = ClosedForm(placed.root, hw)
    assert +closed.counts == +full.totals.by_unit()
    assert +closed.traffic == +full.totals.traffic
    assert_all_time_is_accounted_for(full)


def assert_all_time_is_accounted_for(found: Timeline) -> None:
    totals = found.totals
    for unit, busy in totals.busy.items():
        stalled = sum(n for (u, _), n in totals.stalled.items() if u == unit)
        idle = sum(n for (u, _), n in totals.idle.items() if u == unit)
        assert busy + stalled + idle == found.now


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_programs(case: ManagedCase, target: str) -> None:
    check(case.program(), target)


@pytest.mark.parametrize("number", range(len(FEW)))
def test_programs_on_a_chip_each(number: int) -> None:
    check(FEW[number].program(), CHIPS[number % len(CHIPS)])


@pytest.mark.slow
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("case", MANAGED, ids=lambda case: case.name)
def test_all_programs_on_chips(case: ManagedCase, target: str) -> None:
    check(case.program(), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [c for c in MANAGED if c not in FEW], ids=lambda case: case.name)
def test_all_programs(case: ManagedCase, target: str) -> None:
    check(case.program(), target)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 100))]
)
def test_generated_programs(seed: int) -> None:
    check(tile_program(seed).compile(), TARGETS[seed % len(TARGETS)])


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60))]
)
def test_programs_with_windows(seed: int) -> None:
    check(window_program(seed).compile(), TARGETS[seed % len(TARGETS)])
