"""What all tests share: golden files as test items, seeded randomness, slow tests on demand."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests.support.golden import SUFFIXES, GoldenFailure, read_case, run_case

GOLDEN = Path(__file__).parent / "golden"

# The same examples in every run, and no time limit for each: machines differ.
settings.register_profile("stripec", deadline=None, derandomize=True, database=None)
settings.load_profile("stripec")

# What a shell starts in the background ignores interrupts, and so would what tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expectations of golden files")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is for a person at work, not for CI")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless the -m expression speaks of them."""
    if "slow" in (config.getoption("markexpr") or ""):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix in SUFFIXES and file_path.is_relative_to(GOLDEN):
        collected: pytest.Collector = GoldenFile.from_parent(parent, path=file_path)
        return collected
    return None


class GoldenFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield GoldenItem.from_parent(self, name="golden")


class GoldenItem(pytest.Item):
    def runtest(self) -> None:
        run_case(read_case(self.path), update=self.config.getoption("--update-golden"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        if isinstance(excinfo.value, GoldenFailure):
            return f"{self.path}\n{excinfo.value}"
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, str(self.path.relative_to(GOLDEN))


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[object], None]:
    """Tell what a long test covered, in the summary at the end (from a worker process, too)."""
    return lambda what: record_property("covered", str(what))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests said of themselves by `say`."""
    said = {
        (report.nodeid, text)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == "covered"
    }
    if said:
        terminalreporter.section("covered")
    for test, text in sorted(said):
        terminalreporter.write_line(f"{test}: {text}")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's name: every test has its own numbers, always the same."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))
