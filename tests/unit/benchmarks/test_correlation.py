"""The benchmark that ranks tilings: what it draws, keeps, and prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import correlation, environment
from benchmarks.correlation import KERNELS, Lottery, main, ranks, spearman
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
    monkeypatch.setattr(correlation, "LEAST_SECONDS", 0.0)
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


def test_a_kernel_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["correlation", "--only", "nothing"])
    with pytest.raises(SystemExit, match="no such kernel"):
        main()
