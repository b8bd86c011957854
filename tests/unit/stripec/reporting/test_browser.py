"""A report in a real browser: it opens without an error, asks for nothing, and does what its keys say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stripec.reporting.compare import compare
from stripec.reporting.render import render, render_comparison
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


def test_it_prints(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(made("x86_64_avx512")))
    data = page.pdf()
    assert data.startswith(b"%PDF") and len(data) > 20_000
