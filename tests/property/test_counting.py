"""Counters between passes, and what is alive, for programs of all kinds on every target whose memories
programs manage: counters end where the run begins, and what is alive lies in the memory."""

from __future__ import annotations

import pytest

from hwconfigs.load import load_named
from simulator.closed import ClosedForm
from simulator.counting import Counting
from simulator.timeline import Timeline
from stripe.analysis.work import operations
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from tests.support.managed import TARGETS
from tests.support.managed_programs import MANAGED, ManagedCase

FEW = MANAGED[5::24]


def check(program: Program, target: str) -> None:
    hw = load_named(target)
    stages = [program]
    try:
        run_pipeline(
            program, check_pipeline(hw), hw, verify="off", observers=[lambda _, found: stages.append(found)]
        )
    except CompileError:  # too large for the target, which other tests look at
        return
    counting = Counting(hw)
    for before, stage in zip([None, *stages], stages, strict=False):
        if stage is before:
            continue
        counted = counting.of(stage)
        assert counted is not None
        assert counted.operations == operations(stage)
    placed = stages[-1].root
    counted, closed = counting.of(stages[-1]), ClosedForm(placed, hw)
    assert counted is not None
    assert counted.named and not counted.unreached
    for memory in hw.memories:
        moved = dict.fromkeys(("read", "write", "update"), 0)
        for (name, _, _, what), size in closed.traffic.items():
            moved[what] += size * (name == memory.name)
        expected = moved["read"] + moved["update"], moved["write"]
        assert counted.moved.get(memory.name, (0, 0)) == expected
    full, quick = (Timeline(placed, hw, extrapolate, 300) for extrapolate in (False, True))
    full.run()
    quick.run()
    assert quick.trace == full.trace
    for name, level in full.occupancy.levels.items():
        own = hw.memory(name)
        assert own is not None
        assert own.bytes is None or level.most <= own.bytes * own.count
        found = quick.occupancy.levels[name]
        assert found.most == level.most
        assert not (found.exact and level.exact) or found == level


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_programs(case: ManagedCase, target: str) -> None:
    check(case.program(), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [c for c in MANAGED if c not in FEW], ids=lambda case: case.name)
def test_all_programs(case: ManagedCase, target: str) -> None:
    check(case.program(), target)
