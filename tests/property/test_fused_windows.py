"""Blocks that read windows of each other, put into tiles of every size: they compute the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

import stripe.analysis.fusion_tiles
import stripe.passes.fuse_groups
from hwconfigs.load import load_named
from stripe.analysis.fusion_costs import GroupCosts
from stripe.interp import interpret
from stripe.passes.base import Pass, PassContext
from stripe.passes.canonicalize import Canonicalize
from stripe.passes.fuse import Fuse
from stripe.passes.localize import Localize
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import make_passes
from stripe.passes.scalarize import Scalarize
from stripe.verify import findings
from tests.support.native import host, run
from tests.support.window_programs import window_program

TILES = Fuse(share="tiles")
CHAINS: tuple[tuple[Pass, ...], ...] = (
    (Fuse(), Localize(), Scalarize(), TILES, Localize(), Canonicalize(), TILES, Fuse()),
    (TILES, Fuse(), Localize(), Scalarize()),
)


@pytest.fixture
def any_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tile pays, and one of all candidates is taken, by chance."""
    rng = np.random.default_rng(7)

    def best(costs: GroupCosts) -> int:
        several = np.flatnonzero(costs._shapes.tiles > 1)
        return int(rng.choice(several)) if len(several) else 0

    monkeypatch.setattr(GroupCosts, "best", best)
    monkeypatch.setattr(stripe.analysis.fusion_tiles, "MARGIN", float("inf"))
    monkeypatch.setattr(stripe.analysis.fusion_tiles, "SAFE_MARGIN", float("inf"))
    monkeypatch.setattr(stripe.passes.fuse_groups.Tiles, "_fits_near", lambda *_: False)


def check(seeds: Iterable[int]) -> int:
    """How often producers went into tiles."""
    hw, acted = load_named("x86_64_avx512"), 0
    for seed in seeds:
        made = window_program(seed)
        start = made.compile()
        expected = interpret(start, made.inputs)
        for steps in CHAINS:
            program = start
            for step in steps:
                context = PassContext(hw)
                result = step.run(program, context)
                where = f"seed {seed}, {step}\n{made.text}"
                if step is TILES:
                    acted += sum(remark.acted for remark in context.remarks)
                if result is program:
                    continue
                assert findings(result, hw) == (), where
                got = interpret(result, made.inputs)
                for name, value in expected.items():
                    np.testing.assert_array_equal(got[name], value, err_msg=where)
                program = result
    return acted


@pytest.mark.usefixtures("any_tiles")
def test_tiles_of_any_size_compute_the_same() -> None:
    assert check(range(40)) > 40


@pytest.mark.slow
@pytest.mark.usefixtures("any_tiles")
def test_tiles_of_any_size_compute_the_same_for_many_programs(say: Callable[[object], None]) -> None:
    say(f"1460 programs, {check(range(40, 1500))} groups in tiles")


@pytest.mark.usefixtures("any_tiles")
@pytest.mark.parametrize("seed", range(500, 506))
def test_native_code_of_tiles_computes_the_same(seed: int) -> None:
    hw = host()
    steps = make_passes(hw.pipeline)
    made = window_program(seed)
    start = made.compile()
    expected = interpret(start, made.inputs)
    got = run(run_pipeline(start, steps, hw), made.inputs, hw)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=made.text)
