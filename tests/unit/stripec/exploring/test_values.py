"""Lists and ranges of values, as a person writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripe.diag import CompileError
from stripec.exploring.values import Kind, check_values, parse_values


def values(text: str, kind: Kind = "value", binary: bool = True) -> list[Any]:
    return parse_values(text, "memory.M.bytes", kind, binary=binary)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("64K..1M:x2", [65536, 131072, 262144, 524288, 1048576]),
        ("1..9:+2", [1, 3, 5, 7, 9]),
        ("1..10:+2", [1, 3, 5, 7, 9]),
        ("3..100:x4", [3, 12, 48]),
        ("0.5..2:x2", [0.5, 1, 2]),
        ("0.1..0.3:+0.1", [0.1, 0.2, 0.3]),
        ("7..7:x2", [7]),
        (" 8 , 16 ", [8, 16]),
        ("64K,1..3:+1", [65536, 1, 2, 3]),
        ("1.5K", [1536]),
        ("2Mi", [2 << 20]),
        ("1e3", [1000]),
        ("i8,bf16", ["i8", "bf16"]),
        ("null,true", [None, True]),
        ('{"least": 4, "most": 8},[1,2]', [{"least": 4, "most": 8}, [1, 2]]),
        ('["a,b"],"c,d"', [["a,b"], "c,d"]),
    ],
)
def test_what_a_text_means(text: str, found: list[Any]) -> None:
    assert values(text) == found
    assert [type(value) for value in values(text)] == [type(value) for value in found]


def test_k_means_1024_of_bytes_alone() -> None:
    assert values("1K,2Ki", binary=False) == [1000, 2048]
    assert values("1G", binary=False) == [10**9]


def test_a_field_of_text_takes_its_values_as_they_are() -> None:
    assert values("16,i+2*j", kind="text") == ["16", "i+2*j"]


def test_shapes() -> None:
    assert values("8x8,016x16,4", kind="shape") == ["8x8", "16x16", "4"]
    assert check_values([(8, 8), "16x16", [4]], "unit.U.shape", "shape") == ["8x8", "16x16", "4"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a value is missing"),
        ("1,,2", "a value is missing"),
        ("1..9", "does not say how it goes on"),
        ("9..1:+1", "ends before it begins"),
        ("1..9:x1", "takes more than 1 times"),
        ("1..9:x-2", "takes more than 1 times"),
        ("0..9:x2", "begins above 0"),
        ("1..9:+0", "the step of a range is above 0"),
        ("1..b:+1", "expected a number, found 'b'"),
        ("1..1000000000:+1", "more than 10000 values"),
        ("[1,2", "is not JSON"),
        ("{" * 2000, "is not JSON"),
    ],
)
def test_what_is_no_list_of_values_is_told(text: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        values(text)
    assert caught.value.diagnostics[0].code == "D101"
    assert said in str(caught.value)
    assert "vary memory.M.bytes: " in str(caught.value)


@pytest.mark.parametrize("text", ["8x", "x8", "8*8", "-8x8", "8x8x", "a"])
def test_what_is_no_shape_is_told(text: str) -> None:
    with pytest.raises(CompileError, match="expected sizes, found"):
        values(text, kind="shape")


@given(st.text(alphabet='0123456789KMGi.:x+,[]{}"ae- ', max_size=24))
def test_any_text_gives_values_or_an_error(text: str) -> None:
    for kind in ("value", "text", "shape"):
        try:
            found = values(text, kind)
        except CompileError:
            continue
        assert found


@given(st.integers(1, 10**6), st.integers(0, 200), st.integers(1, 50))
def test_a_range_that_adds_is_pythons(first: int, count: int, step: int) -> None:
    last = first + count * step
    assert values(f"{first}..{last}:+{step}") == list(range(first, last + 1, step))
