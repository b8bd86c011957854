"""What must hold of a program on a target that manages its memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwconfigs.load import available, load_named
from hwconfigs.model import HwConfig
from stripe.arena import interpret_placed
from stripe.dtypes import DType, from_numpy
from stripe.interp import interpret
from stripe.ir import Aggregation, Block, Intrinsic, Program, Store
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.poly import nest_domain
from stripe.verify import verify
from stripe.verify_ready import unplaced
from tests.support.tolerance import assert_same

Array = np.ndarray[Any, Any]

TARGETS = ("systolic_16", "vector_dsp", "many_core")


def _places_all(name: str) -> bool:
    pipeline = load_named(name).pipeline
    return bool(pipeline) and pipeline[-1].name == "place"


# The others that ship: presets of chips. A default run has each program on one of them, in turn.
CHIPS = tuple(name for name in available() if name not in TARGETS and _places_all(name))

# Roundings that may add up: sums of sums, and divisions by them. Narrow types are summed in f32.
TERMS = {DType.F16: 8, DType.BF16: 8}
MOST_TERMS = 512


def random_inputs(
    program: Program,
    rng: np.random.Generator,
    floats: tuple[float, float] = (-2.0, 2.0),
    integers: tuple[int, int] = (-4, 5),
) -> dict[str, Array]:
    """Values within these bounds for all inputs that the load-time program does not make."""
    made = set() if program.load is None else {r.name for r in program.load.refinements if r.direction.writes}
    found: dict[str, Array] = {}
    for ref in program.inputs:
        if ref.name in made:
            continue
        values: Array
        if ref.dtype.is_float:
            values = np.asarray(rng.uniform(*floats, ref.shape))
        else:
            low, high = (0, 2) if ref.dtype is DType.BOOL else integers
            values = np.asarray(rng.integers(low if ref.dtype.is_signed else max(0, low), high, ref.shape))
        found[ref.name] = values.astype(ref.dtype.numpy)
    return found


def check_on(
    program: Program, hw: HwConfig, inputs: Mapping[str, Array], every_step: bool = False
) -> Program:
    """The program placed on the target: verified after every pass, nothing unplaced, and right on the
    addresses given; with `every_step`, right after every pass too, run without addresses."""
    expected = interpret(program, inputs)

    def look(report: StepReport, result: Program) -> None:
        if every_step and report.changed:
            assert_agree(interpret(result, inputs), expected, f"{hw.name}: after {report.step.name}")

    placed = run_pipeline(program, check_pipeline(hw), hw, observers=[look])
    verify(placed, hw)
    assert unplaced(placed, hw) == ()
    assert_agree(interpret_placed(placed, inputs, hw), expected, f"{hw.name}: at the addresses given")
    return placed


def assert_agree(got: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
    largest = {
        name: np.full(value.shape, _largest(value)) for name, value in expected.items()
    }  # sums may cancel: an error counts against the largest element
    assert list(got) == list(expected), what
    for name, value in expected.items():
        dtype = from_numpy(value.dtype)
        terms = MOST_TERMS if dtype is None else TERMS.get(dtype, MOST_TERMS)
        assert_same(got[name], value, terms=terms, magnitude=largest[name], what=f"{what}: {name}")


def _largest(value: Array) -> float:
    finite = np.abs(value.astype(np.float64))
    return float(np.max(finite, initial=1.0, where=np.isfinite(finite)))


def products_inside(program: Program) -> float:
    """The share of the multiply-adds that are in blocks tagged as uses of a stencil."""
    inside = total = 0

    def count(path: tuple[Block, ...], tagged: bool) -> None:
        nonlocal inside, total
        block = path[-1]
        tagged = tagged or block.has_tag("stencil")
        sums = {r.name for r in block.refinements if r.aggregation is Aggregation.ADD}
        products = {s.result for s in block.statements if isinstance(s, Intrinsic) and s.op == "mul"}
        stores = [s for s in block.statements if isinstance(s, Store)]
        if any(s.buffer in sums and s.value in products for s in stores):
            points = nest_domain(path).count()
            total += points
            inside += points if tagged else 0
        for child in block.children:
            count((*path, child), tagged)

    count((program.root,), False)
    return inside / total if total else 0.0
