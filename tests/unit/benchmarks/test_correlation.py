"""The benchmark that ranks tilings: what it draws, keeps, and prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from benchmarks import correlation, environment
from benchmarks.correlation import (
    FEWEST,
    KERNELS,
    READING,
    Folder,
    Lottery,
    Peak,
    Ranking,
    arguments,
    left_out,
    main,
    ranks,
    seconds_of_calls,
    spearman,
)
from benchmarks.machine import Machine, Probe
from benchmarks.problems import Matmul
from hwconfigs.load import load_named

HW = load_named("x86_64_avx512")


def test_ranks_of_equal_values_are_shared() -> None:
    assert list(ranks([3.0, 1.0, 3.0, 2.0])) == [3.5, 1, 3.5, 2]
    assert spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


def test_a_draw_follows_from_its_seed_and_its_sizes_are_those_of_the_program() -> None:
    lottery = Lottery(Matmul(64, 96, 32), HW)
    first = lottery.draw(np.random.default_rng([1, 0]))
    again = lottery.draw(np.random.default_rng([1, 0]))
    other = lottery.draw(np.random.default_rng([1, 1]))
    assert first.key == again.key != other.key
    cache, registers = first.sizes
    assert cache is not None and registers is not None
    assert set(cache) == {"m", "n"} and cache["m"] <= 64 and cache["n"] <= 96
    assert all(size <= cache[name] for name, size in registers.items())
    assert first.expected.cycles > 0 and first.searched > 0
    assert first.expected.parts["arithmetic"] > 0


def test_what_the_pipeline_chooses_is_drawn_without_a_generator() -> None:
    assert Lottery(Matmul(64, 96, 32), HW).draw(None).sizes == (None, None)


def test_there_are_ten_kernels_or_more() -> None:
    assert len(KERNELS) >= 10


def test_a_run_prints_a_line_for_each_kernel_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(correlation, "KERNELS", {"tiny": Matmul(20, 24, 16)})
    monkeypatch.setattr(correlation, "READING", 0.0)
    monkeypatch.setattr(Peak, "admits", lambda *_: True)
    monkeypatch.setattr(environment, "pin", lambda threads: ([], "not pinned"))
    folder, figures = tmp_path / "kept", tmp_path / "run.json"
    command = ["correlation", "--tilings", "12", "--folder", str(folder), "--json", str(figures)]
    monkeypatch.setattr("sys.argv", [*command, "--stage", "compile"])
    main()
    assert list(folder.glob("*.pickle")) and not list(folder.glob("*.jsonl"))
    monkeypatch.setattr("sys.argv", [*command, "--worst", "2"])
    main()
    printed = capsys.readouterr().out
    assert "tiny" in printed and "cycles expected" in printed
    (kernel,) = json.loads(figures.read_text())["kernels"]
    assert -1 <= kernel["correlation"] <= 1 and len(kernel["tilings"]) == 12
    assert -1 <= kernel["correlation_of_search"] <= 1
    (times,) = folder.glob("*.jsonl")
    before = times.read_text()
    assert len(before.splitlines()) == 5 * 13  # five rounds, and the tiling that the pipeline chooses
    monkeypatch.setattr("sys.argv", command)
    main()
    assert times.read_text() == before


class Clock:
    """Processor time that goes in steps, and calls that take some of it."""

    def __init__(self, step: float) -> None:
        self.seconds, self.step = 0.0, step

    def read(self) -> float:
        return self.seconds // self.step * self.step

    def takes(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_coarse_clock_does_not_make_calls_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(step=0.0005)
    monkeypatch.setattr("benchmarks.correlation.time.thread_time", clock.read)
    for _ in range(20):
        found = seconds_of_calls(lambda: clock.takes(1.37e-5))
        assert found == pytest.approx(1.37e-5, rel=clock.step / READING)


def test_no_reading_is_above_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(step=1e-9)
    monkeypatch.setattr("benchmarks.correlation.time.thread_time", clock.read)
    times = iter([2e-3] * 8 + [1e-3] * 1000)  # others slow the probe down at first

    class Slow:
        def fma(self, dot: str) -> Probe:
            return Probe(lambda: clock.takes(next(times)), 1e6)

    peak = Peak(lambda: cast(Machine, Slow()))
    assert peak.admits(4e8) and peak.admits(5e8)
    assert peak.admits(1e9), "asked again"
    assert not peak.admits(1.3e9) and peak.admits(9e8)


def test_the_peak_of_this_core_is_found() -> None:
    peak = Peak()
    assert peak.admits(1e8) and not peak.admits(1e13)


def timed(folder: Path, monkeypatch: pytest.MonkeyPatch, peak: Peak) -> float:
    """Seconds of the chosen tiling of a product."""
    monkeypatch.setattr(correlation, "READING", 0.0)
    made = Folder("tiny", Matmul(20, 24, 16), HW, arguments(["--folder", str(folder)]), peak)
    drawn = Lottery(Matmul(20, 24, 16), HW).draw(None)
    made.time(drawn)
    return made.seconds[drawn.key]


def test_readings_above_the_peak_are_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1.0, 1e-12, 2.0, 0.5, 3.0])
    monkeypatch.setattr(correlation, "seconds_of_calls", lambda _: next(readings))
    peak = Peak()
    monkeypatch.setattr(peak, "admits", lambda rate: rate < 1e12)
    assert timed(tmp_path, monkeypatch, peak) == 0.5
    monkeypatch.setattr(correlation, "seconds_of_calls", lambda _: 1e-12)
    with pytest.raises(SystemExit, match="more than this core makes"):
        timed(tmp_path / "other", monkeypatch, peak)


def test_what_a_kernel_does_not_write_is_not_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the one before wrote it into the same array."""
    folder = Folder("tiny", Matmul(20, 24, 16), HW, arguments(["--folder", str(tmp_path)]), Peak())
    monkeypatch.setattr(Peak, "admits", lambda *_: True)
    monkeypatch.setattr(correlation, "READING", 0.0)
    drawn = Lottery(Matmul(20, 24, 16), HW).draw(None)
    folder.time(drawn)
    monkeypatch.setattr(correlation, "NativeKernel", lambda *_: lambda *a, **k: None)
    with pytest.raises(SystemExit, match="the result is wrong"):
        folder.time(drawn)


def test_too_few_tilings_are_refused_and_those_that_lack_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for text in ("8", "-1", "many"):
        with pytest.raises(SystemExit):
            arguments(["--tilings", text])
        assert f"'{text}': a rank correlation takes {FEWEST} tilings or more" in capsys.readouterr().err
    drawn = Lottery(Matmul(20, 24, 16), HW).draw(None)
    some = Ranking("some", [drawn] * 12, [1.0] * 12, drawn, 1.0)
    missing, fewer = left_out([some], ["some", "none"], 20)
    assert missing.startswith("not in the table: none: fewer than 10 tilings of them are measured")
    assert fewer.startswith("fewer tilings than asked for: some (12)")
    assert left_out([some], ["some"], 12) == []


def test_a_kernel_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["correlation", "--only", "nothing"])
    with pytest.raises(SystemExit, match="no such kernel"):
        main()
