"""Bounds of the corpus at every memory of every target whose memories programs manage: ours >= least found >=
compulsory, as whole numbers; no memory is left out, and names change nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from simulator import Simulation
from simulator.simulate import simulate
from stripe.diag import CompileError
from stripe.ir import Program
from stripec.driver import optimise, read_program
from tests.support import managed
from tests.support.renaming import scrambled
from tests.support.tile_corpus import CORPUS, TileCase

TARGETS = (*managed.TARGETS, *managed.CHIPS)


def in_turn() -> list[Any]:
    """Each program on each target: on one of them now, the rest slow."""
    return [
        pytest.param(
            case, target, id=f"{case.name}-{target}",
            marks=[] if number % len(TARGETS) == at else [pytest.mark.slow],
        )
        for number, case in enumerate(CORPUS)
        for at, target in enumerate(TARGETS)
    ]  # fmt: skip


def counted(program: Program, hw: HwConfig) -> Simulation:
    done = optimise(program, hw, verify="off", name="main")
    return simulate(done.program, hw, counts="closed", untiled=done.untiled)


def lowered(case: TileCase) -> Program:
    return read_program(case.source).lower(case.types, ())


@pytest.mark.parametrize(("case", "target"), in_turn())
def test_bounds_hold_at_every_memory(case: TileCase, target: str) -> None:
    try:
        found = counted(lowered(case), load_named(target))
    except CompileError:
        return  # the target does not take the program
    moved = {m.memory: m.read + m.written + m.updated for m in found.memories}
    assert {bound.memory for bound in found.bounds} >= {name for name, size in moved.items() if size}
    for bound in found.bounds:
        values = bound.compulsory, bound.ours, bound.least or 0
        assert all(isinstance(value, int) for value in values)
        assert bound.ours >= bound.compulsory
        assert (bound.least is None) == bool(bound.reason)
        if bound.least is not None:
            assert bound.least >= bound.compulsory
            assert bound.tensor or bound.ours >= bound.least
    for memory, size in moved.items():
        every = [b for b in found.bounds if b.memory == memory]
        for whole in [b for b in every if not b.kernel and not b.tensor]:
            assert whole.ours == sum(b.ours for b in every if b.kernel and b.tensor) <= size
    if found.bounds:
        assert found.bounds[-1].ours == moved[found.bounds[-1].memory]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["perceptron", "convolution_dilated", "triangular_product", "softmax"])
def test_names_change_nothing(name: str, target: str) -> None:
    (case,) = [case for case in CORPUS if case.name == name]
    program, hw = lowered(case), load_named(target)
    try:
        one, other = (counted(p, hw) for p in (program, scrambled(program, random.Random(7))))
    except CompileError:
        return
    both = (
        [(b.memory, b.compulsory, b.least, b.ours, bool(b.reason)) for b in found.bounds]
        for found in (one, other)
    )
    assert next(both) == next(both)
