"""stencil on random programs: they verify, compute the same bits, and what is tagged is a use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import pytest

from hwconfigs.model import HwConfig, SizeRange, Stencil
from stripe.analysis.stencils import uses
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.ir import Block, Program
from stripe.passes.base import Pass, PassContext
from stripe.passes.fuse import Fuse
from stripe.passes.localize import Localize
from stripe.passes.scalarize import Scalarize
from stripe.passes.stencil import Stencil as StencilPass
from stripe.verify import findings
from stripe.visit import View, views_of
from tests.support.programs import Options, make_program, random_inputs
from tests.support.stencil_targets import DOT_4, MAC_4, NESTED, OUTER, machine
from tile_frontend import compile_tile

BODIES = {
    "add": "acc += x",
    "max": "acc = max(acc, x)",
    "min": "acc = min(acc, x)",
    "mul": "acc *= x",
    "copy": "acc = x",
    "dot": "acc += x * y",
    "sum": "acc = x + y",
    "difference": "acc = x - y",
}


Sizes = dict[str, int | Literal["any"] | SizeRange]
SIZES: Sizes = {"i": 3, "j": SizeRange(2, 2, 4), "p": "any"}


def every_type() -> HwConfig:
    """A machine with small stencils for most bodies and types."""
    made = []
    for name, body in BODIES.items():
        operands: dict[str, tuple[str, ...]] = {"x": ("i", "p"), "acc": ("i",)} if "y" not in body else OUTER
        if body.startswith("acc = x"):
            operands = {o: ("i", "j") for o in ("x", "y", "acc") if o in body}
        indices = {i: SIZES[i] for indexes in operands.values() for i in indexes}
        for dtype in DType:
            if dtype is not DType.BOOL:
                types: Any = dict.fromkeys(operands, dtype.value)
                made.append(Stencil(f"{name}_{dtype.value}", "ARRAY", body, indices, operands, types))
    return machine(*made)


def tagged(block: Block, outer: dict[str, View]) -> Iterable[tuple[Block, dict[str, View]]]:
    if block.has_tag("stencil"):
        yield block, outer
    views = views_of(block, outer)
    for child in block.children:
        yield from tagged(child, views)


def check_step(program: Program, step: Pass, hw: HwConfig, where: str) -> Program:
    """One step of the pass, held to its contract."""
    result = step.run(program, PassContext(hw))
    if result is program:
        return program
    assert result != program, where
    assert findings(result, hw) == (), where
    for root in (result.root, *(() if result.load is None else (result.load,))):
        for block, outer in tagged(root, {}):
            stencil = hw.stencil(block.tag_values("stencil")[0])
            assert stencil is not None and uses(stencil, block, hw, outer) == "", where
    assert step.run(result, PassContext(hw)) is result, f"{where}: not idempotent"
    return result


def check_random(seeds: Iterable[int]) -> int:
    """How many programs the pass changed."""
    hw, changed = every_type(), 0
    for seed in seeds:
        options = Options(load_time=seed % 4 == 0, tags=seed % 5 == 0, max_depth=1 + seed % 3)
        program = make_program(seed, options)
        inputs = random_inputs(program, np.random.default_rng(seed))
        expected = interpret(program, inputs)
        for step in (Fuse(), Localize(), Scalarize()) if seed % 2 else ():
            program = step.run(program, PassContext(hw))
        result = check_step(program, StencilPass(), hw, f"seed {seed}")
        changed += result is not program
        got = interpret(result, inputs)
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value, err_msg=f"seed {seed}, {name}")
    return changed


def contraction(rng: np.random.Generator) -> tuple[Program, dict[str, np.ndarray]]:
    """Sums of products of bytes: windows, strides, batches, transposed operands, an epilogue."""
    m, n, k, w, b = (int(size) for size in rng.integers(1, 7, 5))
    step, shift = int(rng.integers(1, 3)), int(rng.integers(-1, 2))
    texts = [
        (f"C[m, n : {m}, {n}] = +(A[m, k] * B[k, n]);", (m, k), (k, n)),
        (f"C[n, m : {n}, {m}] = +(A[k, m] * B[n, k]);", (k, m), (n, k)),
        (f"C[b, m, n : {b}, {m}, {n}] = +(A[b, m, k] * B[k, n]);", (b, m, k), (k, n)),
        (f"C[m, n : {m}, {n}] = +(A[{step}*m + w + {shift}, k] * B[w, k, n]);", (m + 3, k), (w + 1, k, n)),
        (f"C[m, n : {m}, {n}] = +(A[m, k] * B[k, n]), k < m + {b};", (m, k), (k, n)),
        (f"C[m : {m}] = +(A[m, k] * B[k]);", (m, k), (k,)),
        ("C[] = +(A[k] * B[k]);", (k,), (k,)),
        (f"C[m, n : {m}, {n}] = +(A[m] * B[n]);", (m,), (n,)),
        (f"C[m + n : {m + n - 1}] = +(A[m, k] * B[k, n]);", (m, k), (k, n)),
    ]
    text, a_shape, b_shape = texts[int(rng.integers(len(texts)))]
    ending = "" if rng.random() < 0.5 else " R = 2 * C + 1;"
    a, d = (str(rng.choice(["i8", "u8"])) for _ in range(2))
    types = {"A": TensorType(DType(a), a_shape), "B": TensorType(DType(d), b_shape)}
    source = f"function (A, B) -> ({'R' if ending else 'C'}) {{ {text}{ending} }}"
    program = compile_tile(Source("random.tile", source), types)
    data = {
        name: rng.integers(np.iinfo(t.dtype.numpy).min, np.iinfo(t.dtype.numpy).max + 1, t.shape).astype(
            t.dtype.numpy
        )
        for name, t in types.items()
    }
    return program, data


def check_contractions(seeds: Iterable[int]) -> int:
    """How many programs are cut, with operands shifted."""
    types: Any = {"x": "u8", "y": "i8", "acc": "i32"}
    indices: Sizes = {"i": 3, "j": SizeRange(2), "p": SizeRange(4, 4)}
    mixed = Stencil("mixed", "ARRAY", "acc += x * y", indices, OUTER, types)
    machines = (machine(mixed), machine(MAC_4), machine(DOT_4, NESTED))
    changed = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        hw = machines[seed % 3]
        program, inputs = contraction(rng)
        expected = interpret(program, inputs)
        for step in (Fuse(), Localize(), Scalarize()) if seed % 2 else ():
            program = step.run(program, PassContext(hw))
        result = check_step(program, StencilPass(offsets=True), hw, f"seed {seed}")
        changed += any(True for _ in tagged(result.root, {}))
        got = interpret(result, inputs)
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value, err_msg=f"seed {seed}, {name}")
    return changed


def test_random_programs_keep_their_meaning() -> None:
    assert check_random(range(80)) >= 5


def test_random_contractions_keep_their_meaning() -> None:
    assert check_contractions(range(90)) > 60


@pytest.mark.slow
def test_many_random_programs_keep_their_meaning(say: Callable[[object], None]) -> None:
    say(f"{check_random(range(80, 2000))} of 1920 programs cut")
    say(f"{check_contractions(range(90, 2000))} of 1910 contractions cut")
