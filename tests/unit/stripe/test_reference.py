"""docs/stripe.md: its examples are programs, its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stripe.parser
from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS
from stripe.parser import parse
from stripe.printer import to_text
from stripe.specials import SPECIALS
from stripe.verify import findings

PAGE = (Path(__file__).parents[3] / "docs" / "stripe.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```stripe\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_is_a_valid_program(text: str) -> None:
    program = parse(text)
    assert findings(program) == ()
    assert text.startswith("block []:1") or to_text(program) == text


def test_every_word_is_listed() -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert {d.value for d in DType} <= words
    assert set(INTRINSICS) <= words
    assert set(SPECIALS) <= words


def test_the_codes_are_those_of_the_parser_and_each_has_a_golden_file() -> None:
    assert stripe.parser.__doc__ is not None
    codes = re.findall(r"^  (S\d{3})  (.*)$", stripe.parser.__doc__, re.MULTILINE)
    for code, meaning in codes:
        assert f"| {code} | {meaning.partition(' (')[0]}" in PAGE
    golden = Path(__file__).parents[2] / "golden" / "errors" / "text"
    used = {c for path in golden.glob("*.stripe") for c in re.findall(r"error: (S\d+)", path.read_text())}
    assert used == {code for code, _ in codes}
