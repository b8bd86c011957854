"""The HTML of reports: well formed, whole in itself, escaped, and the same for the same input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import stripec
from stripe.diag import CompileError
from stripec.reporting import figures, model, runs
from stripec.reporting.compare import compare
from stripec.reporting.model import Report, Section, Summary
from stripec.reporting.render import render, render_comparison
from tests.support.html import Found, read
from tests.unit.stripec.reporting.conftest import TARGETS, made

MANY = 40
CORPUS = Path(__file__).parents[3] / "golden" / "corpus"


def check(html: str) -> Found:
    found = read(html)
    assert not found.faults
    assert not found.sources or found.sources == ["data:,"], "nothing is fetched"
    for link in found.links:
        assert link.startswith("#"), f"{link} leads out of the file"
        assert link[1:].partition("=")[0] in found.ids, f"{link} leads nowhere"
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_a_report_is_well_formed_and_its_links_lead_somewhere(target: str) -> None:
    report = made(target)
    found = check(render(report))
    assert {section.id for section in report.sections} <= found.ids
    assert {f"pass-{n}" for n in range(1, 6)} <= found.ids
    assert found.tags["svg"] >= 6


def test_a_comparison_is_well_formed_and_names_both_sides() -> None:
    html = render_comparison(compare(made("many_core"), made("vector_dsp")))
    found = check(html)
    assert "A: conv for many_core" in found.texts and "B: conv for vector_dsp" in found.texts
    same = check(render_comparison(compare(made("many_core"), made("many_core"))))
    assert "Both programs are the same after the last pass." in same.texts


def test_the_same_input_gives_the_same_bytes() -> None:
    again = made.__wrapped__("vector_dsp")
    assert again == made("vector_dsp")
    assert render(again) == render(made("vector_dsp"))


def test_what_a_program_says_is_text_and_no_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> & \"quotes\" 'here'"
    source = tmp_path / "a<b>&c.tile"
    source.write_text(f"// {evil}\nfunction (A[M, K]) -> (R) {{ R[m : M] = +(A[m, k]); }}\n")
    target = tmp_path / "t.json"
    target.write_text(json.dumps({"extends": "vector_dsp", "name": "chip", "description": evil}))
    out = tmp_path / "out.html"
    report = stripec.report(source, {"A": "f32[8,8]"}, target, out)
    found = check(out.read_text(encoding="utf-8"))
    assert found.tags["script"] == 1
    assert any(evil in text for text in found.texts)
    summary = report.find(Summary)
    assert summary is not None and summary.description == evil


@pytest.mark.slow
@pytest.mark.parametrize("target", ["systolic_16", "many_core", "vector_dsp", "generic"])
@pytest.mark.parametrize("program", sorted(CORPUS.glob("*.stripe")), ids=lambda path: path.stem)
def test_every_program_of_the_corpus_gives_a_good_report(program: Path, target: str) -> None:
    try:
        report = stripec.report(program, None, target, verify="off", times=False)
    except CompileError:
        return  # the target can't run it
    check(render(report))
    check(render_comparison(compare(made("many_core"), report)))


def test_every_section_has_a_template() -> None:
    folder = Path(model.__file__).parent / "templates"
    named = {**vars(model), **vars(figures), **vars(runs)}
    kinds = [k for k in named.values() if isinstance(k, type) and issubclass(k, Section) and k is not Section]
    assert len(kinds) >= 13
    for kind in kinds:
        assert (folder / f"section_{kind.id}.html").is_file(), f"{kind.__name__} is drawn by no template"


def test_sections_may_be_missing() -> None:
    whole = made("systolic_16")
    for kept in ([s for s in whole.sections if not isinstance(s, Summary)], [whole.sections[2]], []):
        html = render(replace(whole, sections=tuple(kept)))
        check(html)
        assert [f'id="{s.id}"' in html for s in whole.sections] == [s in kept for s in whole.sections]


def test_many_kernels_that_are_alike_are_shown_once(tmp_path: Path) -> None:
    names = range(MANY)
    lines = "\n".join(f"O{n}[m, n : M, N] = +(A{n}[m, k] * B[k, n]);" for n in names)
    inputs = ", ".join(f"A{n}[M, K]" for n in names)
    text = f"function many({inputs}, B[K, N]) -> ({', '.join(f'O{n}' for n in names)}) {{\n{lines}\n}}"
    shapes = {f"A{n}": "f32[12,10]" for n in names} | {"B": "f32[10,14]"}
    report = stripec.report(text, shapes, "vector_dsp", verify="off")
    html = render(report)
    found = check(html)
    nests = report.find(figures.Nests)
    assert nests is not None
    shown = [(nest.kernel, len(nest.alike)) for nest in nests.nests]
    assert shown == [("main/B_load", MANY - 1), ("main/O0", MANY - 1)]  # B stays while the tiles of O0 run
    assert len(html) < 1_000_000, "what is alike is not written again"
    assert any("the same, but for names" in text for text in found.texts)


def test_what_is_left_out_is_said() -> None:
    report: Report = made("systolic_16")
    passes = report.find(model.Passes)
    assert passes is not None
    short = replace(passes, left_out=("12 rows of changes",))
    html = render(replace(report, sections=(short,)))
    assert "Left out: 12 rows of changes." in html
