"""The mutant tool itself, on a small sample; all of it, with the list of survivors, where time allows."""

from __future__ import annotations

import ast
import random
from collections import Counter

import pytest

from stripe.passes.registry import PASSES
from tests.mutants.__main__ import MUTANTS, SEED, judged
from tests.mutants.battery import sources, trials
from tests.mutants.edits import Edit, edits_of, mutated
from tests.mutants.judge import judge
from tests.mutants.report import meaning, table, unexplained

SCALARIZE = sources("scalarize")[0]


def test_every_pass_has_its_sources_and_enough_edits() -> None:
    files = {name: sources(name) for name in (*PASSES, "rewrite")}
    assert all(path.exists() for paths in files.values() for path in paths)
    everything = [path for paths in files.values() for path in paths]
    assert len(set(everything)) == len(everything)
    assert sum(len(edits_of(path)) for path in everything) >= 1000


def test_an_edit_changes_one_expression_and_no_file() -> None:
    text = SCALARIZE.read_text(encoding="utf-8")
    whole = ast.unparse(ast.parse(text))
    edits = edits_of(SCALARIZE)
    assert len({edit.key for edit in edits}) > 10
    for edit in edits:
        changed = ast.unparse(mutated(edit))
        assert changed != whole
        assert len(changed.splitlines()) == len(whole.splitlines()), edit
    assert SCALARIZE.read_text(encoding="utf-8") == text


def test_an_edit_of_nothing_is_caught_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as caught is the mutant's doing, not that of the tool."""
    own = trials(["scalarize"], random.Random(0), 4, wide=False)["scalarize"]
    nothing = Edit(SCALARIZE, 0, 1, "nothing", "none", "x", "x")
    monkeypatch.setattr("tests.mutants.judge.mutated", lambda edit: ast.parse(edit.path.read_text()))
    assert own
    assert judge("scalarize", nothing, own, ()).first == "survived"


def test_a_sample_of_mutants() -> None:
    """With golden files as trials alone, many are caught, some of them by what every user has."""
    names = ("canonicalize", "scalarize", "unroll", "vectorize", "rewrite")
    found = list(judged(names, 24, SEED, 2, tests=False, most=6, wide=False))
    print(table(found), meaning(found), sep="\n")
    first = Counter(judgement.first for judgement in found)
    assert len(found) == 24
    assert first["survived"] <= 16, first
    assert first["survived"] + first["result"] <= 20, first


@pytest.mark.slow
def test_all_survivors_are_explained() -> None:
    found = list(judged([*PASSES, "rewrite"], MUTANTS, SEED, 2, tests=True))
    print(table(found), meaning(found), sep="\n")
    assert len(found) == MUTANTS >= 300
    assert sum(judgement.first != "survived" for judgement in found) >= 200
    # Few mutants make well-formed programs of another meaning; which, changes with the passes.
    assert sum("validator" in judgement.checks for judgement in found) >= 1
    assert sum("interpreter" in judgement.checks for judgement in found) >= 3
    assert not [judgement.key for judgement in found if judgement.refuted]
    assert not [judgement.key for judgement in unexplained(found)]
