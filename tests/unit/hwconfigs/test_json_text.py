"""JSON texts that Python's reader lets pass, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.json_text import JsonFault, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=20,
)


@settings(max_examples=40)
@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_json_is_read_as_ever(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert read_json(text) == value


@pytest.mark.parametrize(
    ("text", "message", "position", "path"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' appears twice in one object", 9, "$.a"),
        ('{"a": 1, "b": {"a": [{}, {"x": 1, "\\u0078": 2}]}}', "the key 'x' appears twice", 34, "$.b.a[1].x"),
        ('{"a": ["NaN", -Infinity]}', "-Infinity is not a JSON number", 14, "$.a[1]"),
        ('{"main/c": {"sizes": {"m": NaN}}}', "NaN is not", 27, '$["main/c"].sizes.m'),
        ("[1, 2 3]", "Expecting ',' delimiter", 6, ""),
        ("[" * 200_000, "nested too deeply", 0, ""),
        ("9" * 5000, "digits", 0, ""),
    ],
)
def test_faults_have_a_place(text: str, message: str, position: int, path: str) -> None:
    with pytest.raises(JsonFault) as fault:
        read_json(text)
    assert message in str(fault.value)
    assert (fault.value.position, fault.value.path) == (position, path)
