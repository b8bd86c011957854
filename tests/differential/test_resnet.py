"""ResNet-18 on the targets that manage their memories: it compiles whole and layer by layer, what it takes of
each memory is near the least possible, and a small one is right on the addresses given."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.verify_ready import unplaced
from tests.support.managed import check_on, products_inside, random_inputs
from tests.support.resnet import Network, layers, resnet18

LARGE_TARGETS = ("systolic_16", "many_core")
SMALL: dict[str, Any] = {"size": 32, "channels": (8, 16, 24, 32), "classes": 10}


def compiled(network: Network, target: str) -> None:
    """Compile, print how long it takes, and check what each memory holds against what is alive at once."""
    hw, program = load_named(target), network.compile()
    ratios: dict[str, float] = {}
    seconds = checked = 0.0

    def look(report: StepReport, _: object) -> None:
        nonlocal seconds, checked
        seconds, checked = seconds + report.seconds, checked + report.verify_seconds
        for remark in report.remarks if report.step.name == "place" else ():
            assert isinstance(remark.data["bytes"], int) and isinstance(remark.data["bound"], int)
            ratios[str(remark.data["memory"])] = remark.data["bytes"] / max(1, remark.data["bound"])

    started = time.perf_counter()
    placed = run_pipeline(program, check_pipeline(hw), hw, observers=[look])
    shown = ", ".join(f"{memory} {ratio:.3f}" for memory, ratio in ratios.items())
    print(
        f"{network.name} for {target}: {time.perf_counter() - started:.1f} s, {seconds:.1f} of them in "
        f"passes, {checked:.1f} in the verifier; placed bytes / bytes alive: {shown}"
    )
    assert unplaced(placed, hw) == ()
    assert {"DRAM"} < set(ratios) and max(ratios.values()) <= 1.05
    if target == "systolic_16" and network.name not in ("pool", "scores"):
        assert products_inside(placed) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("target", LARGE_TARGETS)
def test_the_network(target: str) -> None:
    compiled(resnet18(), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", LARGE_TARGETS)
@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_its_layers(layer: Network, target: str) -> None:
    compiled(layer, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", [*LARGE_TARGETS, "vector_dsp"])
def test_a_small_network_is_right(target: str, rng: np.random.Generator) -> None:
    program = resnet18(**SMALL).compile()
    inputs = {name: array / 4 for name, array in random_inputs(program, rng).items()}
    check_on(program, load_named(target), inputs)


@pytest.mark.parametrize("target", LARGE_TARGETS)
def test_a_small_layer_is_right(target: str, rng: np.random.Generator) -> None:
    """Two convolutions with strides and the way around them."""
    layer = next(layer for layer in layers(**SMALL) if layer.name == "first2")
    program = layer.compile()
    check_on(program, load_named(target), random_inputs(program, rng))
