"""The Pareto plot: whole, alone, and readable."""

from __future__ import annotations

import random
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from stripec.exploring.objectives import front
from stripec.exploring.plot import draw, quantity, value_text
from stripec.exploring.result import Exploration, Objective, Outcome, Point, Varied
from tests.support.browser import CHROMIUM, Browser

SVG = "{http://www.w3.org/2000/svg}"
BYTES = "memory.SPAD.bytes"
ENERGY, LATENCY = Objective(name="energy", unit="pJ"), Objective(name="latency", unit="s")


def sweep(values: list[tuple[float, ...]], *more: Objective, unmapped: int = 0) -> Exploration:
    """A sweep over one field with these objectives."""
    goals = [ENERGY, LATENCY, *more]
    best = {*front(list(enumerate(values)))}
    points = [
        Point(
            number=n, set={BYTES: 1024 * (n + 1)}, outcome=Outcome(status="mapped"),
            objectives={g.name: v for g, v in zip(goals, own, strict=True)}, front=n in best,
        )
        for n, own in enumerate(values)
    ]  # fmt: skip
    points += [
        Point(
            number=len(values) + n, set={BYTES: n}, outcome=Outcome(status="no mapping"), objectives={},
            front=False,
        )
        for n in range(unmapped)
    ]  # fmt: skip
    varied = [Varied(path=BYTES, axis=0, sets=["$.memories[0].bytes"], values=[])]
    return Exploration(
        target="a<b>&c", programs=["p"], counts="simulated", varied=varied, objectives=goals,
        front=sorted(best), points=points,
    )  # fmt: skip


def drawn(found: Exploration) -> ElementTree.Element:
    text = draw(found)
    assert text is not None
    assert not re.search(r"(href|url\(|@import|<script)", text), "it needs nothing else"
    return ElementTree.fromstring(text)


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_points_are_drawn_named_and_explained() -> None:
    root = drawn(sweep([(3e6, 1e-3), (1e6, 3e-3), (2e6, 2e-3), (3e6, 3e-3)], unmapped=2))
    circles = {circle.findtext(f"{SVG}title"): circle.get("class") for circle in root.iter(f"{SVG}circle")}
    assert circles == {
        f"point {n}: {BYTES}={n + 1}K: energy {e} uJ, latency {t} ms": "dot" if n == 3 else "best"
        for n, e, t in ((0, 3, 1), (1, 1, 3), (2, 2, 2), (3, 3, 3))
    }
    shown = texts(root)
    assert {"1K", "2K", "3K", "4K"} < {*shown}
    assert "4 points, 3 on the front; 2 more have no mapping" in shown
    assert f"named by {BYTES}" in shown
    assert "p on a<b>&c" in shown
    assert sum(path.get("class") == "front" for path in root.iter(f"{SVG}path")) == 1


def test_light_and_dark() -> None:
    text = draw(sweep([(1.0, 2.0)])) or ""
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    for name in ("paper", "ink", "pale", "soft", "dot", "front"):
        assert f"--{name}: #" in light and f"--{name}: #" in dark


@pytest.mark.parametrize(
    "values",
    [
        [(1.0, 2.0)],
        [(5e6, 1e-3)] * 5,
        [(0.0, 0.0), (1.0, 0.0)],
        [(1e-9, 1e-12), (1e30, 1e20)],
        [(1000.0, 1.0), (1000.1, 1.0001)],
        [(7e8, 0.1), (7e8, 10.0)],
    ],
)
def test_odd_values_are_drawn_inside(values: list[tuple[float, ...]]) -> None:
    root = drawn(sweep(values))
    for circle in root.iter(f"{SVG}circle"):
        assert 84 <= float(circle.get("cx", "")) <= 724 and 44 <= float(circle.get("cy", "")) <= 444


def test_points_of_one_spot_share_a_name() -> None:
    assert "1K and 4 more" in texts(drawn(sweep([(5e6, 1e-3)] * 5)))


def test_three_objectives_have_no_stairs_in_two() -> None:
    root = drawn(sweep([(1.0, 2.0, 3.0), (2.0, 3.0, 1.0)], Objective(name="array", unit="points/cycle")))
    assert not list(root.iter(f"{SVG}path"))
    assert sum(circle.get("class") == "best" for circle in root.iter(f"{SVG}circle")) == 2


def test_points_are_named_by_one_field_of_each_axis_in_lines_that_fit() -> None:
    found = sweep([(1.0, 2.0), (2.0, 1.0)])
    paths = [f"stencil.a_stencil_with_a_long_name.indices.index_{n}" for n in range(6)]
    varied = [
        msgspec.structs.replace(found.varied[0], path=path, axis=n // 2) for n, path in enumerate(paths)
    ]
    points = [
        msgspec.structs.replace(p, set={path: 10 * p.number + n for n, path in enumerate(paths)})
        for p in found.points
    ]
    root = drawn(msgspec.structs.replace(found, varied=varied, points=points))
    shown = texts(root)
    assert {"0 2 4", "10 12 14"} < {*shown}
    lines = [element for element in root.iter(f"{SVG}text") if paths[0] in (element.text or "")]
    (first,) = lines
    assert paths[1] not in shown and not any(paths[1] in text for text in shown)
    assert any(paths[4] in text for text in shown) and paths[4] not in (first.text or "")
    assert all(len(text) < 100 for text in shown)


def test_there_is_nothing_to_draw() -> None:
    one = msgspec.structs.replace(sweep([(1.0, 2.0)]), objectives=[ENERGY])
    assert draw(one) is None
    assert draw(sweep([], unmapped=2)) is None


def at_random(count: int) -> Exploration:
    chance = random.Random(count)
    return sweep([(chance.uniform(1e6, 9e6), chance.uniform(1e-4, 9e-3)) for _ in range(count)])


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_no_text_lies_over_another_or_outside(tmp_path: Path) -> None:
    """As the browser draws it."""
    found = """(() => { const size = document.documentElement.getBoundingClientRect();
      const texts = [...document.querySelectorAll("text")];
      const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
      const bad = [];
      boxes.forEach(([t, a], n) => {
        if (a.left < 0 || a.top < 0 || a.right > size.width || a.bottom > size.height) bad.push(t);
        boxes.slice(0, n).forEach(([u, b]) => {
          const across = a.left < b.right && b.left < a.right;
          if (across && a.top + 3 < b.bottom && b.top + 3 < a.bottom) bad.push(t + " over " + u);
        }); });
      return bad.join("; "); })()"""
    with Browser() as browser:
        sweeps = (at_random(8), at_random(24), at_random(60), sweep([(7e8, 0.1), (7e8, 10.0)]))
        for number, one in enumerate(sweeps):
            path = tmp_path / f"{number}.svg"
            path.write_text(draw(one) or "", encoding="utf-8")
            assert browser.open(path).evaluate(found) == ""


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (12.5e6, "pJ", "12.5 uJ"), (1e-3, "pJ", "0.001 pJ"), (0, "pJ", "0 J"), (1.5e-3, "s", "1.5 ms"),
        (2e15, "pJ", "2 kJ"), (1536, "B", "1.5 KiB"), (5, "B", "5 B"), (0, "B", "0 B"),
        (1024, "points/cycle", "1024"), (999.99999999, "s", "1 ks"),
        (1552636, "cycles", "1.553 M"), (3e-6, "pJ s", "3e-06 pJ s"), (4e7, "pJ cycles", "40 M"),
    ],
)  # fmt: skip
def test_quantities(value: float, unit: str, said: str) -> None:
    assert quantity(value, unit) == said


def test_values_in_short() -> None:
    assert [value_text(BYTES, v) for v in (65536, 1 << 20, 1000, 0, None)] == [
        "64K",
        "1M",
        "1000",
        "0",
        "null",
    ]
    assert value_text("unit.MAC.shape", "8x8") == "8x8"
    assert value_text("clock_hz", 1024) == "1024"
