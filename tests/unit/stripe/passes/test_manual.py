"""What is told of passes and tags is true: examples run, sections are there, tags are those in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stripe.parser import parse
from stripe.passes import manual
from stripe.passes.registry import PASSES, pass_info
from stripe.tags import TAGS
from tests.support.golden import read_case, run_case

FOLDER = Path(manual.__file__).parent


@pytest.mark.parametrize("name", PASSES)
def test_an_example_becomes_what_it_says(name: str, request: pytest.FixtureRequest) -> None:
    path = manual.FOLDER / f"{name}.stripe"
    run_case(read_case(path), update=request.config.getoption("--update-golden"))
    shown = manual.example(name)
    assert shown.pipeline.partition("{")[0] == name, "the example is of this pass alone"
    assert shown.before.count("\n") <= 40 and shown.after.count("\n") <= 40
    assert parse(shown.before) != parse(shown.after)


def test_there_are_no_other_examples() -> None:
    assert {path.stem for path in manual.FOLDER.glob("*")} == set(PASSES)


@pytest.mark.parametrize("name", PASSES)
def test_a_docstring_says_when_the_pass_is_legal(name: str) -> None:
    body, legal = manual.sections(pass_info(name))
    assert legal, "start a paragraph with 'Legal' or 'Always legal'"
    assert "before:" in body and "after:" in body
    assert "Stripe paper" in body + legal


@pytest.mark.parametrize("name", PASSES)
def test_tags_are_those_that_the_source_sets_and_reads(name: str) -> None:
    """A pass is the file of its name and its parts, `NAME_part.py`."""
    stem = name.replace("-", "_")
    longer = tuple(n.replace("-", "_") for n in PASSES if n.startswith(f"{name}-"))
    parts = [path for path in FOLDER.glob(f"{stem}_*.py") if not (longer and path.stem.startswith(longer))]
    files = [FOLDER / f"{stem}.py", *parts]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    info = pass_info(name)
    assert set(re.findall(r'(?:has_tag|tag_values)\("(\w+)"', source)) <= set(info.tags_read)
    assert set(re.findall(r'\bTag\("(\w+)"', source)) & set(TAGS) <= set(info.tags_set)
    assert {*info.tags_read, *info.tags_set} <= set(TAGS)


def test_each_tag_is_set_and_read_by_something() -> None:
    for tag in TAGS.values():
        assert manual.tag_setters(tag.name), tag.name
        assert manual.tag_readers(tag.name) or tag.readers, tag.name
