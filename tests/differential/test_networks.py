"""The networks in `examples/networks`: their files are up to date, their sizes are those published, and they
compute what NumPy does, whole and layer by layer."""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from stripe.diag import Source
from stripe.interp import interpret
from stripe.ir import Aggregation, Block, Intrinsic, Load, Program, Store
from stripe.poly import nest_domain
from stripec.driver import read_program
from stripec.tensors import parse_type
from tests.support.managed import check_on
from tests.support.networks import FOLDER, KINDS, SMALL, computed, draw, drawn, make, model, products_inside
from tile_frontend import compile_tile, signature

# Multiply-adds of convolutions and other products, padding included.
PUBLISHED = {
    "alexnet": 724_406_816,  # layer by layer below
    "vgg16": 15_470_264_320,  # "15.5 G"
    "resnet18": 1_814_073_344,  # "1.8 G", He et al., table 1
    "resnet50": 4_089_184_256,  # "4.1 G" with strides at the 3 x 3 convolutions; 3.86 G without
    "mobilenet_v2": 300_774_272,  # "300 M", Sandler et al., table 4
    "bert_layer": 4 * 128 * 768**2 + 2 * 12 * 128**2 * 64 + 2 * 128 * 768 * 3072,
}
# The per-layer sheet of NVDLA; its numbers of layers with groups are of one of the two.
ALEXNET = {
    "conv1": 105_415_200, "conv2": 2 * 111_974_400, "conv3": 149_520_384, "conv4": 2 * 56_070_144,
    "conv5": 2 * 37_380_096, "dense6": 37_748_736, "dense7": 16_777_216, "scores": 4_096_000,
}  # fmt: skip


def test_the_files_are_what_the_script_writes() -> None:
    expected = make.files()
    written = {str(path.relative_to(FOLDER)) for end in ("tile", "json") for path in FOLDER.rglob(f"*.{end}")}
    assert written == set(expected), "remove what is not made, and run: python examples/networks/make.py"
    for path, text in expected.items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text, "run: python examples/networks/make.py"


def test_multiply_adds_are_those_published() -> None:
    for name, maker in model.NETWORKS.items():
        assert sum(layer.multiply_adds for layer in maker().layers) == PUBLISHED[name], name
    found = {layer.name: layer.multiply_adds for layer in model.alexnet().layers if layer.multiply_adds}
    assert found == ALEXNET


@cache
def whole(dtype: str, name: str) -> Program:
    front = read_program(FOLDER / dtype / f"{name}.tile")
    return front.lower(front.fixed_types(), ())


@pytest.mark.parametrize(("dtype", "name"), KINDS)
def test_programs_have_the_products_of_their_layers(dtype: str, name: str) -> None:
    layers = make.layers_of(model.NETWORKS[name](), dtype)
    assert products(whole(dtype, name)) == sum(products_inside(layer) for layer in layers)


def products(program: Program) -> int:
    """How often elements of two buffers are multiplied and added up."""
    found = 0
    for kernel in program.root.children:
        for path in _leaves((program.root, kernel)):
            loads = {s.result: s.buffer for s in path[-1].statements if isinstance(s, Load)}
            if _adds_products(path[-1], loads):
                found += nest_domain(path).count()
    return found


def _leaves(path: tuple[Block, ...]) -> list[tuple[Block, ...]]:
    below = [leaf for child in path[-1].children for leaf in _leaves((*path, child))]
    return below or [path]


def _adds_products(block: Block, loads: dict[str, str]) -> bool:
    sums = {ref.name for ref in block.refinements if ref.aggregation is Aggregation.ADD}
    sources = {ref.name: ref.source for ref in block.refinements}
    multiplied = any(isinstance(s, Intrinsic) and s.op == "mul" for s in block.statements)
    stored = any(isinstance(s, Store) and s.buffer in sums for s in block.statements)
    return multiplied and stored and len({sources[buffer] for buffer in loads.values()}) == 2


@pytest.mark.parametrize(("dtype", "name"), KINDS)
def test_descriptions(dtype: str, name: str) -> None:
    """The JSON files say the types that the programs write, and list all layers, which compile."""
    described = json.loads((FOLDER / dtype / f"{name}.json").read_text(encoding="utf-8"))
    text = (FOLDER / dtype / described["program"]).read_text(encoding="utf-8")
    types = {key: parse_type(how["type"], key) for key, how in described["inputs"].items()}
    assert dict(signature(Source(name, text)).types) == types
    rows = described["layers"]
    assert described["multiply_adds"] == PUBLISHED[name]
    assert sum(len(row["names"]) * row["multiply_adds"] for row in rows) == PUBLISHED[name]
    shapes = {layer.name: layer.shape for layer in model.NETWORKS[name]().layers}
    for row in rows:
        front = read_program(FOLDER / dtype / row["program"])
        program = front.lower({key: parse_type(value, key) for key, value in row["shapes"].items()}, ())
        assert {shapes[each] for each in row["names"]} == {program.outputs[0].shape}


@pytest.mark.parametrize(("dtype", "name"), KINDS)
def test_small_ones_are_right(dtype: str, name: str) -> None:
    network = model.NETWORKS[name](**SMALL[name])
    inputs = drawn(network, dtype)
    expected = computed(network, dtype, inputs)
    text = make.network_text(network, dtype)
    program = compile_tile(Source(name, text), dict(signature(Source(name, text)).types))
    (got,) = interpret(program, inputs).values()
    _agree(got, expected[network.layers[-1].name], f"{dtype} {name}")
    here: dict[str, Any] = {network.layers[0].sources[0]: next(iter(inputs.values()))}
    for layer in make.layers_of(network, dtype):
        parts = dict(zip(("input", "other"), (here[source] for source in layer.sources), strict=False))
        parts |= {part: inputs[f"{layer.name}_{part}"] for part in make._weights(layer, dtype)}
        types = {
            part: parse_type(make._type(*type_), part) for part, type_ in make.inputs_of(layer, dtype).items()
        }
        alone = compile_tile(Source(layer.name, make.layer_text(layer, dtype)), types)
        (here[layer.name],) = interpret(alone, parts).values()
        _agree(here[layer.name], expected[layer.name], f"{dtype} {name}: {layer.name} alone")
    np.testing.assert_allclose(got, here[network.layers[-1].name], rtol=1e-6)


def _agree(got: Any, expected: Any, what: str) -> None:
    """Sums of i8 are exact. Where f32 then scales and rounds them, few are on the other side of a half."""
    if got.dtype.kind == "i":
        assert (np.abs(got - expected) <= 1).all() and (got == expected).mean() > 0.99, what
        return
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max(), err_msg=what)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_whole_networks_are_right(name: str) -> None:
    path = FOLDER / "f32" / f"{name}.tile"
    network = model.NETWORKS[name]()
    inputs = draw(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
    got = stripec.compile(path)(*inputs.values())
    _agree(got, computed(network, "f32", inputs)["probabilities"], name)


def test_a_network_is_mapped_and_counted_for_a_chip() -> None:
    """All of ResNet-18, on one core, in much less than the 20 seconds that are asked for."""
    started = time.process_time()
    found = stripec.simulate(FOLDER / "i8" / "resnet18.tile", target="tpu_like", counts="closed")
    assert time.process_time() - started < 20
    layers = model.resnet18().layers
    assert 1 < found.operations / (2 * sum(products_inside(layer) for layer in layers)) < 1.02


@pytest.mark.slow
@pytest.mark.parametrize("target", ["tpu_like", "gemmini_like", "systolic_32_ws", "nv_full", "systolic_16"])
@pytest.mark.parametrize("name", [name for dtype, name in KINDS if dtype == "i8"])
def test_networks_on_chips(name: str, target: str) -> None:
    """Whole networks: counts of both kinds are equal."""
    found = stripec.simulate(FOLDER / "i8" / f"{name}.tile", target=target)
    assert found.counts == "both" and found.cycles


@pytest.mark.parametrize("name", ["resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.slow)])
def test_small_ones_are_right_on_a_chip(name: str) -> None:
    network = model.NETWORKS[name](**SMALL[name])
    text = make.network_text(network, "i8")
    program = compile_tile(Source(name, text), dict(signature(Source(name, text)).types))
    check_on(program, load_named("tpu_like"), drawn(network, "i8"))
