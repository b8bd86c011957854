"""stencil: blocks become uses of what the target's units do in one go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.stencils import uses
from stripe.interp import interpret
from stripe.ir import Aggregation, Block
from stripe.passes.stencil import Stencil as StencilPass
from stripe.poly import nest_domain
from stripe.visit import View, views_of
from tests.support.meaning import random_inputs
from tests.support.native import run, runnable
from tests.support.passes import check_pass
from tests.support.stencil_targets import (
    DOT_4,
    MAC_4,
    MAC_16,
    NESTED,
    SHAPES,
    machine,
    program,
)

AVX512 = load_named("x86_64_avx512_vnni")

# Who does it, the stencil whose tag is innermost, the input types, options.
MACHINES: dict[str, tuple[HwConfig, str, tuple[str, str], StencilPass]] = {
    "f32 FMA": (AVX512, "fma_f32", ("f32", "f32"), StencilPass()),
    "VNNI u8 x i8": (AVX512, "vnni_u8i8", ("u8", "i8"), StencilPass()),
    "VNNI i8 x i8": (AVX512, "vnni_u8i8", ("i8", "i8"), StencilPass(offsets=True)),
    "bf16 pairs": (AVX512, "dot_bf16", ("bf16", "bf16"), StencilPass()),
    "16x16x16": (machine(MAC_16), "mac16", ("i8", "i8"), StencilPass()),
    "4x4x4": (machine(MAC_4), "mac4", ("i8", "i8"), StencilPass()),
    "nested": (machine(DOT_4, NESTED), "dot4", ("i8", "i8"), StencilPass(("lanes16",))),
}


def uses_in(block: Block, outer: dict[str, View] | None = None) -> list[tuple[Block, dict[str, View]]]:
    """Each tagged block of a tree, with the views of its parent."""
    found = [(block, outer or {})] if block.has_tag("stencil") else []
    views = views_of(block, outer or {})
    for child in block.children:
        found += uses_in(child, views)
    return found


def check_uses(root: Block, hw: HwConfig) -> None:
    """What is tagged is a use."""
    for block, outer in uses_in(root):
        (name,) = block.tag_values("stencil")
        stencil = hw.stencil(name)
        assert stencil is not None
        assert uses(stencil, block, hw, outer) == "", name


def points(root: Block, stencil: str = "", path: Sequence[Block] = ()) -> int:
    """Executed points of the leaves that sum products: all, or those tagged with a stencil."""
    here = (*path, root)
    total = sum(points(child, stencil, here) for child in root.children)
    sums = any(r.aggregation is Aggregation.ADD for r in root.refinements)
    product = any(getattr(s, "op", "") == "mul" for s in root.statements)
    if root.children or not (sums and product) or (stencil and stencil not in root.tag_values("stencil")):
        return total
    return total + nest_domain(here).count()


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", MACHINES)
def test_all_but_a_few_products_are_inside(name: str, case: str) -> None:
    hw, stencil, dtypes, step = MACHINES[name]
    before = program(case, dtypes)
    after, remarks = check_pass(before, step, hw)
    check_uses(after.root, hw)
    share = points(after.root, stencil) / points(before.root)
    cut = next(r for r in remarks if r.acted and r.data)
    print(f"{name}, {case}: {share:.1%} of {points(before.root)} products in {stencil}: {cut.message}")
    assert share >= 0.95
    assert points(after.root, stencil) == points(before.root)
    if hw.executor == "cpu" and hw.name in [h.name for h in runnable()]:
        inputs = random_inputs(before, np.random.default_rng(7))
        expected, got = interpret(before, inputs), run(after, inputs, hw)
        for output, value in expected.items():
            np.testing.assert_array_equal(got[output], value)
