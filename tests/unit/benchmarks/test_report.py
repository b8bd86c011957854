"""Tables, means, comparisons and the picture, from rows made by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import plot, report
from benchmarks.run import Entry, Row


def entry(
    peer: str, rate: float | None, packed: bool = False, kind: str = "library", reason: str = ""
) -> Entry:
    spread = rate and rate * 0.01
    return Entry(peer, kind, packed, rate, rate and rate - (spread or 0), rate, rate, reason=reason)


def row(case: str, *entries: Entry, limit: float = 100.0, yardstick: float | None = None) -> Row:
    return Row("matmul", case, "GFLOP/s", 1e9, 1000, 120.0, 30.0, limit, "L2", yardstick, list(entries))


ROWS = [
    row(
        "first",
        entry("stripec", 80.0, kind="ours"),
        entry("stripec", 90.0, packed=True, kind="ours"),
        entry("numpy", 40.0),
        entry("torch", 60.0, packed=True),
        entry("halide", 160.0, kind="schedule"),
    ),
    row(
        "second",
        entry("stripec", 50.0, kind="ours"),
        entry("stripec", None, packed=True, kind="ours", reason="wrong: off by 1"),
        entry("numpy", 100.0),
        entry("torch", None, reason="failed: RuntimeError: broken"),
    ),
]


def printed(function: Callable[..., object], *arguments: object) -> str:
    out = StringIO()
    function(Console(file=out, width=200), *arguments)
    return out.getvalue()


def line(text: str, start: str) -> list[str]:
    """The cells of the line whose first cell begins so."""
    for found in text.splitlines():
        cells = [cell.strip() for cell in found.strip("│┃ ").replace("┃", "│").split("│")]
        if cells[0].startswith(start):
            return cells
    raise AssertionError(f"no line {start} in\n{text}")


def test_a_family_has_ratios_given_and_packed() -> None:
    text = printed(report.print_family, ROWS)
    cells = [
        "first",
        "80.0",
        "40.0",
        "numpy",
        "2.00",
        "90.0",
        "60.0",
        "torch, packed",
        "1.50",
        "160.0",
        "0.50",
    ]
    assert line(text, "first") == [*cells, "100.0", "L2", "90%"]
    assert line(text, "second")[5] == "wrong"
    means = line(text, "geometric mean")
    assert (means[4], means[8], means[10], means[-1]) == ("1.00", "1.50", "0.50", "67%")


def test_rows_in_which_others_had_the_core_are_marked_and_no_part_of_means() -> None:
    busy = row("third", entry("stripec", 10.0, kind="ours"), entry("numpy", 100.0))
    busy.busy, busy.entries[0].cores, busy.entries[0].busy, busy.entries[1].cores = True, 0.35, True, 0.97
    text = printed(report.print_family, [*ROWS, busy])
    assert line(text, "case")[-1] == "core"
    assert (line(text, "third")[4], line(text, "third")[-1]) == ("0.10", "0.35 busy")
    assert text.count("busy") == 2, "one row, and the line of means"
    means = line(text, "geometric mean, 1 busy left out")
    assert (means[4], means[8], means[10], means[-1]) == ("1.00", "1.50", "0.50", "67%")
    assert line(printed(report.print_peers, [busy]), "third") == ["third", "10.0 busy", "100.0"]
    alone = line(printed(report.print_family, [busy]), "geometric mean, 1 busy left out")
    assert not any(alone[1:]), "no mean of nothing"
    change = printed(report.print_change, [*ROWS, busy], [*ROWS, busy])
    assert line(change, "third (busy)")[4] == "1.00"
    assert line(change, "geometric mean, 1 busy left out")


def test_yardsticks_are_shown_for_contractions_of_tensors() -> None:
    made = row("x", entry("stripec", 85.0, kind="ours"), yardstick=100.0)
    made.family = "tactics"
    assert "0.85" in line(printed(report.print_family, [made]), "x")


def test_all_contenders_have_a_column() -> None:
    text = printed(report.print_peers, ROWS)
    assert line(text, "case") == ["case", "stripec", "stripec, packed", "numpy", "torch, packed", "halide"]
    assert line(text, "second") == ["second", "50.0", "wrong", "100.0"]


def test_wide_quartiles_are_marked() -> None:
    made = entry("stripec", 80.0, kind="ours")
    made.low = 60.0
    assert "~80.0" in printed(report.print_peers, [row("x", made)])


def test_notes_say_what_failed_and_where() -> None:
    text = printed(
        report.print_notes, [*ROWS, row("third", entry("torch", None, reason="failed: RuntimeError: broken"))]
    )
    assert "stripec, packed: wrong: off by 1 (second)" in text
    assert "torch: failed: RuntimeError: broken (second, third)" in text


def test_changes_are_measured_against_the_limits_of_both_runs() -> None:
    """Twice as fast on a machine that is twice as fast is no change."""
    before = [row("first", entry("stripec", 40.0, kind="ours"), entry("numpy", 20.0), limit=50.0)]
    text = printed(report.print_change, ROWS, before)
    assert line(text, "first") == ["first", "40.0", "80.0", "2.00", "1.00", "2.00", "2.00"]
    assert line(text, "geometric mean")[4] == "1.00"


def test_a_run_without_peers_has_a_table() -> None:
    assert (
        line(printed(report.print_family, [row("x", entry("stripec", 10.0, kind="ours"))]), "x")[-1] == "10%"
    )


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_is_drawn(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"ratios{suffix}"
    plot.draw(ROWS, path)
    assert path.stat().st_size > 1000


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="needs matplotlib's absence")
def test_without_matplotlib_the_picture_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="pip install"):
        plot.draw(ROWS, tmp_path / "ratios.svg")
