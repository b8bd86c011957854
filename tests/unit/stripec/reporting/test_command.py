"""`stripec report`: its arguments, its messages, and that nothing is half written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import stripec
from stripe.diag import CompileError
from stripec.cli import main
from stripec.reporting import command
from stripec.reporting.compare import Comparison, compare
from stripec.reporting.figures import Roofline
from stripec.reporting.model import Report, StepLine, Summary
from stripec.reporting.runs import SimulatedRun

Capture = pytest.CaptureFixture[str]

MATMUL = "function matmul(A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }\n"
ROWS = "function rows(A[M, K]) -> (S) { S[m : M] = +(A[m, k]); }\n"
SHAPES = ["--shape", "A=f32[32,24]", "--shape", "B=f32[24,40]"]
TYPES = {"A": "f32[32,24]", "B": "f32[24,40]"}
GIVEN = ["report", "matmul.tile", *SHAPES, "--target", "vector_dsp"]


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("matmul.tile").write_text(MATMUL)
    Path("rows.tile").write_text(ROWS)


def test_a_file_is_written_and_named(capsys: Capture) -> None:
    assert main([*GIVEN, "-o", "out.html"]) == 0
    assert capsys.readouterr().out == "out.html: matmul for vector_dsp\n"
    assert Path("out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_dash_is_standard_output(capsys: Capture) -> None:
    assert main([*GIVEN, "-o", "-"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("<!DOCTYPE html>") and shown.endswith("</html>\n")
    assert not Path("-").exists()


def test_a_name_that_is_no_text_is_shown_as_far_as_it_goes(capsys: Capture) -> None:
    name = os.fsdecode(b"od\xffd.tile")
    Path(name).write_text(ROWS)
    assert main(["report", name, "--shape", "A=f32[4,4]", "--target", "vector_dsp"]) == 0
    assert capsys.readouterr().out.startswith("report.html: ")
    assert "od?d.tile" in Path("report.html").read_text(encoding="utf-8")


def test_without_times_the_same_input_gives_the_same_bytes() -> None:
    for out in ("a.html", "b.html"):
        assert main([*GIVEN, "--no-times", "-o", out]) == 0
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


@pytest.mark.parametrize(
    ("more", "title"),
    [
        (["--diff-target", "many_core"], "matmul for vector_dsp and matmul for many_core"),
        (
            ["--diff-pipeline", "canonicalize"],
            "matmul for vector_dsp, its own passes and matmul for vector_dsp, passes given",
        ),
        (["--diff-shape", "A=f32[16,24]"], "matmul for vector_dsp"),
        (["--diff", "rows.tile"], "matmul for vector_dsp and rows for vector_dsp"),
    ],
)
def test_two_sides_are_compared(more: list[str], title: str, capsys: Capture) -> None:
    assert main([*GIVEN, *more]) == 0
    assert capsys.readouterr().out == f"report.html: {title}\n"
    assert '<td class="soft">program</td>' in Path("report.html").read_text(encoding="utf-8")


def test_the_side_of_a_mapping_is_named_and_its_kernels_have_the_cycles_of_the_run(capsys: Capture) -> None:
    tiles = {"pass": "autotile", "memory": "LOCAL", "choices": {"main/C": {"sizes": {"m": 4, "n": 8}}}}
    sums, copies = {"pass": "localize", "accumulators": "LOCAL"}, {"pass": "transfer", "memory": "LOCAL"}
    steps = [tiles, sums, copies, {"pass": "place"}]
    mine = {"mapping": 1, "description": "small tiles", "pipeline": steps}
    Path("mine.json").write_text(json.dumps(mine))
    assert main([*GIVEN, "--diff-mapping", "mine.json", "-o", "two.html"]) == 0
    assert (
        capsys.readouterr().out
        == "two.html: matmul for vector_dsp and matmul for vector_dsp with mine.json\n"
    )
    page = Path("two.html").read_text(encoding="utf-8")
    assert "B: matmul for vector_dsp with mine.json" in page
    assert "<b>mine.json</b>" in page and "<b>small tiles</b>" in page
    run = [
        stripec.simulate(Path("matmul.tile"), shapes=TYPES, target="vector_dsp", mapping=mapping).kernels[-1]
        for mapping in (None, "mine.json")
    ]
    assert "cycles of the run" in page and "cycles expected" not in page.split('id="passes"')[0]
    for kernel in run:
        assert f">{kernel.end - kernel.begin:,}</td>" in page.split('id="passes"')[0]


def _compared(*more: str) -> Comparison:
    """Two reports of the same target."""
    sides = [stripec.report(Path(file), TYPES, "vector_dsp") for file in ("matmul.tile", *more)]
    return compare(sides[0], sides[-1])


def test_programs_of_one_name_are_told_apart_by_their_files(capsys: Capture) -> None:
    Path("other.tile").write_text(MATMUL.replace("; }", ";\n}"))
    assert main(["report", "--diff", "matmul.tile", "other.tile", *SHAPES, "--target", "vector_dsp"]) == 0
    named = [f"matmul for vector_dsp ({file})" for file in ("matmul.tile", "other.tile")]
    assert capsys.readouterr().out == f"report.html: {' and '.join(named)}\n"
    found = _compared("other.tile")
    assert found.titles == (named[0], named[1])
    given = {pair.name: (pair.a, pair.b) for pair in found.given}
    assert given["file"] == ("matmul.tile", "other.tile")
    assert given["inputs"] == ("A f32[32,24], B f32[24,40]",) * 2
    assert found.source is not None
    assert (found.source.added, found.source.removed) == (2, 1)
    assert "as they were written" in Path("report.html").read_text(encoding="utf-8")
    assert _compared().source is None
    assert _compared().titles == ("matmul for vector_dsp",) * 2


def test_what_takes_long_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert main(GIVEN) == 0
    assert capsys.readouterr().err == "", "it was quick"
    monkeypatch.setattr(command, "_SECONDS_BETWEEN_LINES", (0.0, 0.0))
    assert main(GIVEN) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("matmul: pass 2 of ")
    assert lines[-1] == "matmul: counts between passes, the run, and drawings"


def test_all_kernels_together_are_compared() -> None:
    Path("two.tile").write_text(
        "function (A[M, K], B[K, N]) -> (C, S) {\n"
        "C[m, n : M, N] = +(A[m, k] * B[k, n]); S[m : M] = +(A[m, k]); }"
    )
    found = _compared("two.tile")
    kernels = [(pair.a, pair.b) for pair in found.kernels]
    assert found.all_of("operations") == (2 * 32 * 24 * 40, 2 * 32 * 24 * 40 + 32 * 24)
    assert found.all_of("bytes")[1] == sum(b.bytes for _, b in kernels if b is not None)
    runs = [report.find(SimulatedRun) for report in (found.a, found.b)]
    assert found.all_cycles == tuple(run.found.cycles for run in runs if run is not None and run.found)
    roofline = found.a.find(Roofline)
    assert roofline is not None
    points = [replace(point, cycles=2.5 + at) for at, point in enumerate(roofline.points[:1] * 2)]
    points[1] = replace(points[1], alike=("main/x", "main/y"))
    side = replace(found.a, sections=(replace(roofline, points=tuple(points)),))
    tried = replace(found, a=side, cycles={})
    assert tried.all_of("operations")[0] == 4 * points[0].operations
    assert tried.all_cycles[0] == 2.5 + 3 * 3.5
    points[0] = replace(points[0], cycles=None)
    side = replace(found.a, sections=(replace(roofline, points=tuple(points)),))
    assert replace(tried, a=side).all_cycles[0] is None


def test_two_programs_stand_behind_diff(capsys: Capture) -> None:
    assert main(["report", "--diff", "matmul.tile", "rows.tile", *SHAPES, "--target", "vector_dsp"]) == 0
    assert capsys.readouterr().out == "report.html: matmul for vector_dsp and rows for vector_dsp\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([*GIVEN, "-o", "none/out.html"], "D010", "there is no folder 'none'"),
        ([*GIVEN, "-o", "."], "D010", "Is a directory"),
        (["report", "matmul.tile", *SHAPES, "--target", "nosuch"], "H001", "no target is named 'nosuch'"),
        (
            ["report", "matmul.tile", "--target", "vector_dsp"],
            "D033",
            "the types of inputs 'A', 'B' are not given",
        ),
        (["report", "none.tile"], "D001", "can't read 'none.tile'"),
        (["report", "rows.tile", "matmul.tile"], "D070", "2 programs are given"),
        (["report", "--target", "vector_dsp"], "D070", "no program is given"),
        ([*GIVEN, "--diff"], "D071", "nothing to compare with"),
        ([*GIVEN, "--pipeline", "nosuch"], "P002", "no pass is named 'nosuch'"),
        ([*GIVEN, "--diff-pipeline", "autotile{memory=L9}"], "P005", "L9"),
        ([*GIVEN, "--const", "Z"], "D031", "the program has no such input"),
        ([*GIVEN, "--shape", "Z=f32[2]"], "D031", "no such input"),
    ],
)
def test_what_is_wrong_is_said_and_no_file_is_touched(
    arguments: list[str], code: str, said: str, capsys: Capture
) -> None:
    Path("report.html").write_text("older")
    before = sorted(path.name for path in Path().iterdir())
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert f"error[{code}]" in error and said in error
    assert Path("report.html").read_text() == "older"
    assert sorted(path.name for path in Path().iterdir()) == before


def test_from_python_a_report_is_a_value() -> None:
    shapes = {"A": "f32[32,24]", "B": "f32[24,40]"}
    first = stripec.report(MATMUL, shapes, "vector_dsp")
    assert isinstance(first, Report) and first.title == "matmul for vector_dsp"
    summary = first.find(Summary)
    assert summary is not None and all(isinstance(step, StepLine) for step in summary.steps)
    assert all(step.seconds is not None for step in summary.steps)
    stripec.report(MATMUL, shapes, "many_core", "both.html", against=first)
    assert "matmul for vector_dsp" in Path("both.html").read_text(encoding="utf-8")


def test_from_python_faults_are_compile_errors() -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: stripec.report(MATMUL, {"A": "f32[32,24]"}, "vector_dsp"),
        lambda: stripec.report(MATMUL, [1], "vector_dsp"),  # type: ignore[arg-type]
        lambda: stripec.report(ROWS, {"A": "f32[4,4]"}, "vector_dsp", "none/out.html"),
        lambda: stripec.report(3),  # type: ignore[arg-type]
        lambda: stripec.report(ROWS, {"A": "f32[4,4]"}, "vector_dsp", verify="maybe"),  # type: ignore[arg-type]
    )
    for call in calls:
        with pytest.raises(CompileError):
            call()
