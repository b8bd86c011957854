"""Drawings that people read: no name covers another one, nothing lies outside, every buffer has its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

import pytest
from msgspec.structs import replace

from hwconfigs.load import load_named
from hwconfigs.model import SizeRange, Stencil
from stripe.diag import Remark, Source
from stripe.parser import parse
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import make_pass
from stripec.reporting.draw_map import draw_map
from stripec.reporting.draw_plots import draw_roofline
from stripec.reporting.figures import MemoryMap, Placed, Roof, Roofline, RoofPoint
from stripec.reporting.model import Summary
from stripec.reporting.rooflines import roofs
from stripec.reporting.searches import searches
from tests.unit.stripec.reporting.conftest import TARGETS, made

Box = tuple[float, float, float, float]
_TEXT = re.compile(r'<text x="([\d.]+)" y="([\d.]+)" class="([^"]*)"( text-anchor="end")?>([^<]*)</text>')
_DOT = re.compile(r'<circle cx="(-?[\d.]+)" cy="(-?[\d.]+)" r="([\d.]+)"')
_PLOT = re.compile(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="plot"')


def names(svg: str, style: str) -> Iterator[tuple[str, Box]]:
    """The texts of a class with the least room that each takes."""
    for x, y, kind, end, text in _TEXT.findall(svg):
        if kind == style:
            left = float(x) - (5 * len(text) if end else 0)
            yield text, (left, float(y) - 9, left + 5 * len(text), float(y))


def meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def point(operations: int, size: int, cycles: float, number: int = 1) -> RoofPoint:
    return RoofPoint(number, "main/dot", operations, size, size, cycles, None, ())


PLOTS = {
    "close bandwidths": Roofline(
        "FAR",
        (
            Roof("V", "compute", 32), Roof("W", "compute", 30),
            Roof("NEAR", "bandwidth", 16), Roof("FAR", "bandwidth", 8),
        ),
        (point(1000, 10, 30),), (), (),
    ),
    "above all peaks": Roofline(
        "FAR", (Roof("V", "compute", 8), Roof("FAR", "bandwidth", 8)), (point(100_000, 10, 30),), (), ()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*PLOTS, *TARGETS])
def test_names_in_a_roofline_do_not_cover_each_other_and_dots_lie_inside(name: str) -> None:
    found = PLOTS[name] if name in PLOTS else made(name).find(Roofline)
    assert found is not None
    svg = str(draw_roofline(found))
    width = float(re.findall(r'width="([\d.]+)"', svg)[0])
    shown = [*names(svg, "small halo")]
    assert len(shown) >= len({roof.rate for roof in found.roofs if roof.kind == "compute"})
    for (_, a), (_, b) in combinations(shown, 2):
        assert not meet(a, b), shown
    assert all(left >= 0 and right <= width for _, (left, _, right, _) in shown)
    left, top, wide, high = map(float, _PLOT.findall(svg)[0])
    for x, y, _ in _DOT.findall(svg):
        assert left <= float(x) <= left + wide and top <= float(y) <= top + high


PRODUCTS = """block main [] (
  in A[0] i8(64):(1)
  out B[0]:assign i8(64):(1)
) {
  block b [i:64] (
    in A[i] i8(1):(1)
    out B[i]:assign i8(1):(1)
  ) {
    $a = load(A) i8
    B = store($a)
  }
}
"""


def test_an_array_whose_sizes_have_an_end_has_a_peak() -> None:
    hw = load_named("systolic_32_os")
    (stencil,) = hw.stencils
    assert stencil.indices["k"] == SizeRange(most=4096)

    def peak(of: Stencil) -> float | None:
        program = parse(Source("p", PRODUCTS))
        rates = {roof.name: roof.rate for roof in roofs(program, replace(hw, stencils=(of,)))}
        return rates.get("fold on ARRAY")

    assert peak(stencil) == 2 * 32 * 32, "all cells multiply and add in each cycle"
    assert peak(replace(stencil, indices={**stencil.indices, "k": SizeRange()})) is None
    in_fours = {**stencil.indices, "k": SizeRange(multiple=4, most=7)}
    assert peak(replace(stencil, indices=in_fours, cycles="k + 4")) == 32 * 32, "7 is no legal size, 4 is"


def test_every_buffer_of_a_memory_map_has_its_name() -> None:
    placed = [
        Placed("main/long/wide", "f32(64)", 0, 0, 6000, 0, 9),
        Placed("main/thin", "f32(8)", 0, 6000, 300, 0, 9),
        Placed("main/thinner", "f32(1)", 0, 6300, 8, 0, 9),
        Placed("main/alone", "f32(1)", 0, 9000, 8, 0, 9),
    ]
    found = MemoryMap("M", "root", 10_000, ("M",), ((0, "start"),), 10, tuple(placed), 9008, 9008, "", 0)
    shown = [text for text, _ in names(str(draw_map(found)), "in-buffer")]
    assert sorted(shown) == ["alone", "thinner, thin", "wide"]


def test_candidates_of_a_block_that_was_left_say_why_and_have_no_empty_columns() -> None:
    step = make_pass("autotile", {"memory": "SPAD"})
    rows = [{"sizes": {"i": 8}, "order": "", "cost": 2.0, "needed": 10}, {"sizes": {"i": 4}, "cost": 3.0}]
    remark = Remark("autotile", "main/b", False, "not tiled: it fits", {"candidates": rows, "weighed": 2})
    (found,) = searches([StepReport(1, step, 0.0, False, (remark,))]).searches
    assert found.columns == ("sizes i",) and [row.cells for row in found.rows] == [("8",), ("4",)]
    assert found.counts == "2 weighed; not tiled: it fits" and not any(row.chosen for row in found.rows)


def test_units_are_told_with_their_stencils() -> None:
    summary = made("systolic_16").find(Summary)
    assert summary is not None
    told = {unit.name: unit.text for unit in summary.units}
    assert "mac_i8 (i 16, j 16, p 16)" in told["MAC"] and "vectors" not in told["MAC"]
