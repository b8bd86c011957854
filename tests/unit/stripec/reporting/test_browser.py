"""A report in a real browser: it opens without an error, asks for nothing, and does what its keys say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stripec.reporting.compare import compare
from stripec.reporting.render import render, render_comparison
from stripec.reporting.runs import TimelineDrawn
from tests.support.browser import CHROMIUM, Browser, Page
from tests.unit.stripec.reporting.conftest import TARGETS, made

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def wait_for(page: Page, condition: str) -> None:
    for _ in range(60):
        if page.evaluate(condition):
            return
        time.sleep(0.05)
    raise AssertionError(f"never: {condition}")


def opened(browser: Browser, folder: Path, html: str, fragment: str = "", dark: bool = False) -> Page:
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    browser.events.clear()
    return browser.open(path, fragment=fragment, dark=dark)


def quiet(browser: Browser, page: Page, folder: Path) -> None:
    page.evaluate("1")
    assert page.errors() == []
    own = (folder / "report.html").resolve().as_uri()
    assert {address.partition("#")[0] for address in page.requests()} <= {own, "data:,"}


@pytest.mark.parametrize("target", TARGETS)
def test_it_opens_without_errors_and_asks_for_nothing(browser: Browser, tmp_path: Path, target: str) -> None:
    page = opened(browser, tmp_path, render(made(target)))
    assert page.evaluate("document.title") == f"conv for {target}"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no scrolling to the side"
    quiet(browser, page, tmp_path)


def test_a_comparison_opens_without_errors(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render_comparison(compare(made("many_core"), made("vector_dsp"))))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    quiet(browser, page, tmp_path)


def test_links_and_keys_lead_to_passes(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("systolic_16")), "pass-7")
    assert page.evaluate("document.querySelector('#pass-7').open")
    top = "document.querySelector('#pass-7').getBoundingClientRect().top"
    assert page.evaluate(f"0 <= {top} && {top} < innerHeight / 2")
    page.key("j")
    assert page.evaluate("location.hash") == "#pass-8" and page.evaluate(
        "document.querySelector('#pass-8').open"
    )
    page.key("k")
    page.key("k")
    assert page.evaluate("location.hash") == "#pass-6"
    page.key("?")
    assert page.evaluate("document.querySelector('#help').open")
    quiet(browser, page, tmp_path)


def test_search_finds_what_is_folded_and_unfolds_it(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("systolic_16")))
    page.key("/")
    assert page.evaluate("document.activeElement.id") == "search"
    for letter in "new O_acc":
        page.key(letter)
    wait_for(page, "document.querySelectorAll('#hits a').length > 0")
    assert not page.evaluate("[...document.querySelectorAll('details.pass')].some(d => d.open)")
    page.key("Enter", "\r")
    wait_for(page, "[...document.querySelectorAll('details')].some(d => d.open && d.querySelector('.flash'))")
    quiet(browser, page, tmp_path)


def test_light_and_dark_follow_the_system_and_the_switch(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("systolic_16")), dark=True)
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    assert dark != "rgb(255, 255, 255)"
    page.evaluate("document.querySelector('#theme').click()")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.key("t")
    assert page.evaluate(colour) == dark
    page.evaluate("localStorage.clear()")


def test_candidates_are_sorted_by_a_click(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("systolic_16")))
    table = "[...document.querySelectorAll('#candidates table')].at(-1)"
    page.evaluate(f"{table}.querySelector('th:nth-last-child(3) button').click()")
    cells = f"{table}.querySelectorAll('tbody tr td:nth-last-child(3)')"
    found = page.evaluate(f"[...{cells}].map(cell => Number(cell.dataset.v))")
    assert len(found) > 10 and found == sorted(found)


SEEN = (
    "[...document.querySelectorAll('#timeline-1 [data-unit] rect')].filter(r => r.style.display !== 'none')"
)


def seen(page: Page) -> tuple[float, float]:
    """The first and the last cycle that the timeline shows."""
    said = page.evaluate("document.querySelector('#timeline-1 .tl-range').textContent")
    first, last = said.replace(",", "").split(" of ")[0].split(" to ")
    return float(first), float(last)


def drag(page: Page, x: float, y: float, to: float) -> None:
    common = {"button": "left", "clickCount": 1, "y": y}
    page.send("Input.dispatchMouseEvent", {"type": "mousePressed", "x": x, **common})
    page.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": to, **common, "buttons": 1})
    page.send("Input.dispatchMouseEvent", {"type": "mouseReleased", "x": to, **common})


def test_the_timeline_zooms_by_keys_and_its_address_follows(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("systolic_16")))
    whole = seen(page)
    tasks = page.evaluate(f"{SEEN}.length")
    page.evaluate("document.querySelector('#timeline-1').focus()")
    for key in ("+", "+", "ArrowLeft"):
        page.key(key)
    first, last = seen(page)
    assert last - first == pytest.approx((whole[1] - whole[0]) / 4, abs=2)
    assert 0 < page.evaluate(f"{SEEN}.length") < tasks
    wait_for(page, f"location.hash === '#timeline-1={first:.0f}-{last:.0f}'")
    page.key("ArrowDown")
    assert "cycles" in page.evaluate("document.querySelector('#timeline-1 .tl-read').textContent")
    assert page.evaluate("document.querySelectorAll('#timeline-1 rect.at').length") == 1
    page.key("Home")
    assert seen(page) == whole
    quiet(browser, page, tmp_path)


def test_a_link_leads_to_a_part_of_the_timeline(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("many_core")), "timeline-1=2000-3000")
    assert seen(page) == (2000, 3000)
    top = "document.querySelector('#timeline-1').getBoundingClientRect().top"
    assert page.evaluate(f"0 <= {top} && {top} < innerHeight / 2")
    quiet(browser, page, tmp_path)


def test_dragging_over_the_timeline_zooms(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("systolic_16")), "timeline")
    frame = page.evaluate(
        "(({left, width, bottom}) => ({left, width, bottom}))"
        "(document.querySelector('#timeline-1 .tl-ticks').getBoundingClientRect())"
    )
    _, last = seen(page)
    left, wide = frame["left"], frame["width"]
    drag(page, left + wide / 4, frame["bottom"] + 10, left + wide / 2)
    found = seen(page)
    assert found[0] == pytest.approx(last / 4, rel=0.02) and found[1] == pytest.approx(last / 2, rel=0.02)
    page.evaluate("document.querySelector('#timeline-1 [data-do=all]').click()")
    assert seen(page)[1] == last
    over = {"type": "mouseMoved", "x": left + wide / 2, "y": frame["bottom"] + 10}
    page.send("Input.dispatchMouseEvent", over)
    said = page.evaluate("document.querySelector('#timeline-1 .tl-read').textContent")
    assert said.startswith("MAC: main/O/") and said.endswith(" cycles")
    quiet(browser, page, tmp_path)


def test_every_task_is_where_it_ran(browser: Browser, tmp_path: Path) -> None:
    """The strips that the script draws are those of the page without it."""
    page = opened(browser, tmp_path, render(made("systolic_16")))
    timeline = made("systolic_16").find(TimelineDrawn)
    assert timeline is not None
    wide = page.evaluate("document.querySelector('#timeline-1 .tl-ticks').clientWidth")
    for lane in timeline.lanes:
        query = f"[...document.querySelectorAll('#timeline-1 [data-unit=\"{lane.unit}\"] rect')]"
        drawn = sorted(page.evaluate(f"{query}.map(r => Number(r.getAttribute('x')))"))
        expected = [task.begin / timeline.cycles * wide for task in lane.tasks]
        assert drawn == pytest.approx(expected, abs=0.01)


def test_two_timelines_are_apart(browser: Browser, tmp_path: Path) -> None:
    html = render_comparison(compare(made("systolic_16"), made("vector_dsp")))
    page = opened(browser, tmp_path, html, "timeline-2=100-200")
    assert seen(page)[0] == 0
    said = page.evaluate("document.querySelector('#timeline-2 .tl-range').textContent")
    assert said.startswith("100 to 200 of ")
    quiet(browser, page, tmp_path)


@pytest.mark.parametrize("width", [760, 1280])
def test_nothing_reaches_over_the_side(tmp_path: Path, width: int) -> None:
    with Browser(width, 800) as narrow:
        for html in (render(made("many_core")), render_comparison(compare(*map(made, TARGETS[1:3])))):
            page = opened(narrow, tmp_path, html)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_it_prints(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("x86_64_avx512")))
    data = page.pdf()
    assert data.startswith(b"%PDF") and len(data) > 20_000
