"""Costs of what comes from beyond the caches, or goes to and fro between them: tiles that are asked for while
others are used, results that are taken up again, and rows that push each other out."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import NEAR_RUNS, TILE_CYCLES, CostModel, Evaluation, Problem
from stripe.analysis.cost_registers import PUSHED_SHARE
from tests.unit.stripe.test_cost_runs import nest

ZEN4, ZEN5 = load_named("x86_64_zen4"), load_named("x86_64_zen5")


def product(
    hw: HwConfig, memory: str, m: int, n: int, k: int, constant: str = "", reductions: bool | None = None
) -> CostModel:
    """Of C[m, n] += A[m, k] * B[k, n], to be tiled for a memory."""
    block, views = nest(m, n, k)
    where = hw.memory(memory)
    assert where is not None
    known = frozenset({constant} if constant else ())
    return COST_MODELS["roofline"](Problem(block, views, hw, where, constant=known, reductions=reductions))


def evaluated(model: CostModel, **sizes: int) -> Evaluation:
    complete = {name: sizes.get(name, 1) for name in model.indices}
    return model.evaluate({n: np.asarray(s) for n, s in complete.items()}, tuple(complete))


@pytest.mark.parametrize(
    ("hw", "each"),
    [
        pytest.param(ZEN5, 1 / 2 + 1 + 128 / 62, id="Zen 5"),
        pytest.param(ZEN4, 1 + 1 / 0.5 + 128 / 32, id="Zen 4, whose paths are half as wide"),
    ],
)
def test_results_are_loaded_added_to_and_stored_for_each_piece_of_a_sum(hw: HwConfig, each: float) -> None:
    model = product(hw, "L2", 48, 208, 512, reductions=True)
    whole, halves = (
        float(evaluated(model, m=48, n=208, k=k).parts["arithmetic"]) - TILE_CYCLES * (512 // k)
        for k in (512, 256)
    )
    assert halves - whole == pytest.approx(48 * 208 / 16 * each)


def test_of_what_comes_from_beyond_all_caches_two_tiles_fit() -> None:
    sizes = {"m": 32, "n": 1024, "k": 32}
    (far,) = evaluated(product(ZEN5, "L2", 32, 4096, 4096, reductions=True), **sizes).limits
    memories = tuple(
        msgspec.structs.replace(m, bytes=1 << 30) if m.name == "L3" else m for m in ZEN5.memories
    )
    large = msgspec.structs.replace(ZEN5, memories=memories)
    (near,) = evaluated(product(large, "L2", 32, 4096, 4096, reductions=True), **sizes).limits
    laid = product(ZEN5, "L2", 32, 4096, 4096, constant="B", reductions=True)
    (packed,) = evaluated(laid, **sizes).limits
    assert int(far.needed) - int(near.needed) == 32 * 1024 * 4
    assert int(packed.needed) == int(near.needed), "panels follow each other: they are fetched ahead anyway"


@pytest.mark.parametrize(
    ("m", "n", "constant", "lines"),
    [
        pytest.param(32, 1024, "", 6, id="36 rows a page apart, which crowd into one set"),
        pytest.param(32, 1040, "", 0, id="rows that spread over all sets"),
        pytest.param(128, 1024, "", 0, id="so many rows of results that a copy pays"),
        pytest.param(32, 1024, "B", 0, id="a copy made at load time"),
    ],
)
def test_rows_that_push_each_other_out_come_again_for_each_tile(
    m: int, n: int, constant: str, lines: int
) -> None:
    found = evaluated(product(ZEN5, "REG", m, n, 36, constant), m=4, n=96).parts[NEAR_RUNS]
    tiles = m // 4 * 11
    assert float(found) == pytest.approx(PUSHED_SHARE * tiles * 36 * lines * 64 / 62)
