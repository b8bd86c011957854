"""Cache lines for each point (Stripe paper, Figure 4), against enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from hwconfigs.load import load_named
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import Problem
from stripe.ir import Program
from stripe.visit import views_of
from tests.support.costs import convolution, found_by, kernel, machine, problem_of
from tests.unit.stripe.test_footprints import lines_of_box

FIGURE_4 = {"height": 12, "width": 16, "inputs": 8, "outputs": 16, "window": 3}


def test_figure_4() -> None:
    found = found_by(
        "cache_lines_per_point",
        problem_of(convolution(**FIGURE_4), load_named("paper_figure4"), "CACHE", ("x", "y")),
    )
    first, second = found.fitting[:2]
    assert (first.sizes, first.cost) == ({"x": 3, "y": 4}, 4.5)
    assert second.sizes == {"x": 6, "y": 2}
    assert second.cost == pytest.approx(4.667, abs=5e-4)
    square = next(c for c in found.excluded if c.sizes == {"x": 4, "y": 4})
    assert square.needed == 544
    assert found.capacity == 512
    assert len(found.fitting) + len(found.excluded) == 12 * 16


def test_figure_4_uneven_tiles_pay_for_their_overhang() -> None:
    roomy = machine(4096, 8)
    found = found_by("cache_lines_per_point", problem_of(convolution(**FIGURE_4), roomy, "NEAR", ("x", "y")))
    costs = {tuple(c.sizes.values()): c.cost for c in found.fitting}
    assert costs[4, 12] == 5.625
    assert costs[4, 8] is not None and costs[4, 8] < 5.625


def brute_force(program: Program, capacity: int, line: int) -> list[tuple[float, int, tuple[int, int]]]:
    """(cost, elements, sizes) of every tile of a convolution, element by element."""
    block = kernel(program)
    rows, columns = block.ranges["x"], block.ranges["y"]
    window = block.ranges["i"]
    channels, filters = block.ranges["c"], block.ranges["k"]
    tiles = []
    for h, w in product(range(1, rows + 1), range(1, columns + 1)):
        elements = (h + window - 1) * (w + window - 1) * channels + h * w * filters
        lines = 0
        for top, left in product(range(0, rows, h), range(0, columns, w)):
            top_i, left_i, halo = top - window // 2, left - window // 2, window - 1
            image = [top_i, left_i, 0], [top_i + h + halo - 1, left_i + w + halo - 1, channels - 1]
            result = [top, left, 0], [top + h - 1, left + w - 1, filters - 1]
            for (low, high), depth in ((image, channels), (result, filters)):
                strides = (columns * depth, depth, 1)
                lines += sum(len(reached) for reached in lines_of_box(low, high, strides, line))
        if elements <= capacity:
            tiles.append((lines / (rows * columns), elements, (h, w)))
    return sorted(tiles)


@pytest.mark.parametrize(
    ("shape", "capacity", "line"),
    [
        ({"height": 10, "width": 14, "inputs": 4, "outputs": 12, "window": 3}, 300, 8),
        ({"height": 9, "width": 9, "inputs": 3, "outputs": 5, "window": 5}, 700, 16),
        ({"height": 16, "width": 8, "inputs": 16, "outputs": 16, "window": 1}, 600, 32),
        ({"height": 7, "width": 11, "inputs": 5, "outputs": 2, "window": 3}, 200, 4),
    ],
    ids=str,
)
def test_other_convolutions_agree_with_brute_force(shape: dict[str, int], capacity: int, line: int) -> None:
    program = convolution(**shape)
    expected = brute_force(program, capacity, line)
    found = found_by(
        "cache_lines_per_point", problem_of(program, machine(capacity, line), "NEAR", ("x", "y"))
    )
    got: Any = {tuple(c.sizes.values()): (c.cost, c.needed) for c in found.fitting}
    assert got == {sizes: (pytest.approx(cost), elements) for cost, elements, sizes in expected}
    assert found.fitting[0].cost == pytest.approx(expected[0][0])


def test_operands_out_of_reach_count_on_demand() -> None:
    program, hw = convolution(**FIGURE_4), machine(1 << 20, 8)
    memory = hw.memory("NEAR")
    assert memory is not None
    outer = views_of(program.root, {})
    without, with_fixed = (
        COST_MODELS["cache_lines_per_point"](
            Problem(kernel(program), outer, hw, memory, ("x", "y"), fixed=fixed)
        ).evaluate({"x": 3, "y": 4}, ("x", "y"))
        for fixed in (False, True)
    )
    weights = 3 * 3 * 16 * 8
    assert with_fixed.needed - without.needed == weights
    # Every tile fetches the weights anew.
    assert with_fixed.cost * 192 == pytest.approx(without.cost * 192 + 16 * weights / 8)
