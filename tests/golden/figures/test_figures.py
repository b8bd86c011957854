"""The figures of the Stripe paper (Zerrell and Bruestle, 2019), beside the golden files of this folder.

    Figure 2   two tilings of a tensor               figure_2_upper.stripe, figure_2_lower.stripe
    Figure 3   partitioned, tiled and tensorised     figure_3.stripe
    Figure 4   costs of four tilings                 here; every tile: tests/unit/stripe/test_cost_lines.py
    Figure 5   a convolution before and after        figure_5.stripe; as printed, with its slip:
                                                     tests/golden/errors/text/figure_5a_slip.stripe

The files show the text; the tests here say what of a figure it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hwconfigs.load import load_named
from stripe.diag import Source
from stripe.ir import Block, Program
from stripe.parser import parse
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from tests.support.golden import read_case
from tests.support.meaning import assert_same_meaning

FOLDER = Path(__file__).parent
Cell = tuple[int, ...]


def before_and_after(name: str) -> tuple[Program, Program]:
    case = read_case(FOLDER / f"{name}.stripe")
    assert case.expected is not None
    return parse(case.source), parse(Source(name, case.expected))


def points(block: Block, around: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The values of a block's indexes, for one point of the block around it."""
    passed = {i.name: i.passed.evaluate(around) for i in block.indexes if i.passed is not None}
    for values in product(*(range(size) for size in block.ranges.values())):
        at = dict(zip(block.ranges, values, strict=True)) | passed
        if all(c.expr.evaluate(at) >= 0 for c in block.constraints):
            yield at


def regions(
    block: Block, buffer: str, origin: Cell, around: Mapping[str, int]
) -> Iterator[tuple[Block, Cell, Cell]]:
    """The origin in the tensor and the shape of each view of a buffer, of a block and those below it; not
    of the single points of a stencil."""
    if block.has_tag("stencil"):
        return
    views = [r for r in block.refinements if r.source == buffer]
    for at in points(block, around):
        for ref in views:
            here = tuple(o + e.evaluate(at) for o, e in zip(origin, ref.access, strict=True))
            yield block, here, ref.shape
            for child in block.children:
                yield from regions(child, ref.name, here, at)


def below(program: Program, buffer: str) -> list[tuple[Block, Cell, Cell]]:
    kernel = program.root.children[0]
    return list(regions(kernel, buffer, (0,) * len(program.root.refinement(buffer).shape), {}))


def colours(program: Program, buffer: str) -> dict[Cell, int]:
    """Figure 2: each element, with the number of the tile that touches it."""
    found: dict[Cell, int] = {}
    tile = -1
    for block, origin, _ in below(program, buffer):
        if block.has_tag("tiled"):
            tile += 1
        else:
            found[origin] = tile
    return found


def picture(program: Program) -> list[str]:
    found, (rows, columns) = colours(program, "A"), program.root.refinement("A").shape
    return ["".join(str(found[v, h]) for h in range(columns)) for v in range(rows)]


def test_figure_2_upper() -> None:
    """Points of one colour are neighbours: inner steps of one unit, outer ones of three or two."""
    before, after = before_and_after("figure_2_upper")
    assert picture(after) == [
        "000111222",
        "000111222",
        "333444555",
        "333444555",
    ]  # fmt: skip
    assert_same_meaning(before, after, np.random.default_rng(0))


def test_figure_2_lower() -> None:
    """Points of one colour interleave with others: outer steps of one unit, inner ones of three or two."""
    before, after = before_and_after("figure_2_lower")
    assert picture(after) == [
        "012012012",
        "345345345",
        "012012012",
        "345345345",
    ]  # fmt: skip
    assert_same_meaning(before, after, np.random.default_rng(0))


def test_figure_3() -> None:
    """One column for each level: what a core, a tile, a step of its reduction, and one use of the matrix unit
    touch of each tensor. Every level covers the whole result; going down, the regions shrink and nest."""
    before, after = before_and_after("figure_3")
    levels = {}
    for buffer in "ABC":
        found: dict[int, tuple[Block, set[Cell], Cell]] = {}
        for block, origin, shape in below(after, buffer):
            found.setdefault(id(block), (block, set(), shape))[1].add(origin)
        levels[buffer] = [(len(origins), shape) for _, origins, shape in found.values()]
    #   partitions      tiles           steps of the sum  uses
    assert levels == {
        "A": [(2, (16, 64)), (4, (8, 64)), (64, (8, 4)), (128, (4, 4))],
        "B": [(2, (64, 16)), (2, (64, 16)), (32, (4, 16)), (128, (4, 4))],
        "C": [(4, (16, 16)), (8, (8, 16)), (8, (8, 16)), (64, (4, 4))],
    }
    nest = [after.root.children[0]]
    while nest[-1].children:
        nest.append(nest[-1].children[0])
    assert [b.location.unit if b.location else "" for b in nest] == ["CORE", "", "", "", "CORE"]
    assert [b.has_tag("tiled") for b in nest] == [False, True, True, False, False]
    assert nest[-1].tag_values("stencil") == ("mma_4",)
    assert_same_meaning(before, after, np.random.default_rng(0))


def test_figure_4() -> None:
    """(a) and (b) are the best two of all tiles, (c) needs too many elements, (d) pays for what overhangs."""
    before, _ = before_and_after("figure_5")
    context = PassContext(load_named("paper_figure4"))
    step = Autotile(memory="CACHE", cost="cache_lines_per_point", indices=("x", "y"))
    step.run(before, context)
    (remark,) = context.remarks
    candidates: Any = remark.data["candidates"]
    rows = {tuple(row["sizes"].values()): row for row in candidates}
    assert remark.data["chosen"] == rows[3, 4]
    assert rows[6, 2]["cost"] == pytest.approx(4.667, abs=5e-4)  # (a)
    assert rows[3, 4]["cost"] == 4.5  # (b)
    assert rows[4, 4]["limit"] == "needs 544 of 512 bytes of CACHE"  # (c)


def test_figure_4_d() -> None:
    before, _ = before_and_after("figure_5")
    roomy = load_named("paper_figure4")
    cache, dram = roomy.memories
    context = PassContext(replace(roomy, memories=(replace(cache, bytes=4096), dram)))
    Autotile(memory="CACHE", cost="cache_lines_per_point", indices=("x", "y")).run(before, context)
    (remark,) = context.remarks
    candidates: Any = remark.data["candidates"]
    rows = {tuple(row["sizes"].values()): row for row in candidates}
    assert rows[4, 12]["cost"] == 5.625


def test_figure_5() -> None:
    """Tiles overlap: the view of I is larger than its step; x and y of a tile are passed in."""
    before, after = before_and_after("figure_5")
    outer = after.root.children[0]
    image = outer.refinement("I")
    assert [e.coefficient(n) for e, n in zip(image.access, "xy", strict=False)] == [3, 4]
    assert image.shape == (5, 6, 8)
    assert [str(i.passed) for i in outer.children[0].indexes if i.passed is not None] == ["3*x", "4*y"]
    assert_same_meaning(before, after, np.random.default_rng(0))
