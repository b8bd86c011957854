"""The values of a varied field, as a person writes them.

    64K,128K,1M     a list
    64K..1M:x2      a range: from 64K on, each twice the one before, up to 1M
    1..9:+2         1, 3, 5, 7, 9
    8x8,16x16       shapes
    i8,bf16         names
    {"least": 4}    anything else as JSON

K, M and G are powers of 1024 in fields that hold bytes, else of 1000; Ki, Mi and Gi are powers of 1024.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from stripe.diag import CompileError, Diagnostic

Kind: TypeAlias = Literal["value", "text", "shape"]
MAX_VALUES = 10_000  # of one field

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(?:([KMG])(i?))?")
_RANGE = re.compile(r"(.+?)\.\.(.+?)(?::\s*([x+])\s*(.+))?")
_SHAPE = re.compile(r"\d{1,18}(?:x\d{1,18})*")
_POWERS = {"K": 1, "M": 2, "G": 3}


def parse_values(text: str, path: str, kind: Kind, *, binary: bool) -> list[Any]:
    """The values in a text; `binary` says what K, M and G mean. Raises CompileError D101."""
    found: list[Any] = []
    for item in _items(text, path):
        if kind == "shape":
            found.append(_shape(item, path))
        elif kind == "text":
            found.append(item)
        elif (given := _RANGE.fullmatch(item)) and item[0] not in '[{"':
            first, last, how, step = given.groups()
            found.extend(_range(first, last, how, step, path, binary))
        else:
            found.append(_value(item, path, binary))
        if len(found) > MAX_VALUES:
            raise bad(path, f"more than {MAX_VALUES} values")
    return found


def check_values(values: list[Any], path: str, kind: Kind) -> list[Any]:
    """Values given in Python, as those that a text gives; a shape may be a sequence of numbers."""
    if kind != "shape":
        return values
    found = []
    for value in values:
        if isinstance(value, list | tuple) and all(isinstance(size, int) for size in value):
            value = "x".join(map(str, value))
        found.append(_shape(str(value), path))
    return found


def sizes_of(shape: str) -> tuple[int, ...]:
    return tuple(map(int, shape.split("x")))


def bad(path: str, message: str, *notes: str) -> CompileError:
    """An error in what is said of a varied field."""
    return CompileError(Diagnostic("D101", f"vary {path}: {message}", notes=notes))


def _items(text: str, path: str) -> Iterator[str]:
    """The parts between commas that stand in no brackets or quotes."""
    depth, quoted, start = 0, False, 0
    for place, letter in enumerate(text):
        if letter == '"' and (not quoted or text[place - 1] != "\\"):
            quoted = not quoted
        elif not quoted:
            depth += (letter in "[{") - (letter in "]}")
            if letter == "," and depth == 0:
                yield _item(text[start:place], path)
                start = place + 1
    yield _item(text[start:], path)


def _item(text: str, path: str) -> str:
    item = text.strip()
    if not item:
        raise bad(path, "a value is missing", "help: write values like 1,2,4 or 64K..1M:x2")
    return item


def _shape(item: str, path: str) -> str:
    if not _SHAPE.fullmatch(item):
        raise bad(path, f"expected sizes, found '{item[:60]}'", "help: write a shape like 16x16")
    return "x".join(str(size) for size in sizes_of(item))


def _value(item: str, path: str, binary: bool) -> Any:
    number = _number(item, binary)
    if number is not None:
        return plain(number)
    if item[0] in '[{"' or item in ("true", "false", "null"):
        try:
            return json.loads(item)
        except (ValueError, RecursionError) as error:
            raise bad(path, f"'{item[:60]}' is not JSON: {str(error)[:100]}") from None
    return item


def plain(number: Fraction) -> int | float:
    return number.numerator if number.denominator == 1 else float(number)


def _number(text: str, binary: bool) -> Fraction | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or len(match[1]) > 60:
        return None
    digits, suffix, always = match.groups()
    base = 1024 if binary or always else 1000
    size: int = base ** _POWERS.get(suffix, 0)
    return Fraction(digits) * size


def _range(
    first: str, last: str, how: str | None, step: str | None, path: str, binary: bool
) -> Iterator[int | float]:
    ends = [_number(end, binary) for end in (first, last)]
    if how is None or step is None:
        raise bad(
            path, f"the range {first}..{last} does not say how it goes on",
            f"help: {first}..{last}:x2 doubles, {first}..{last}:+1 adds 1",
        )  # fmt: skip
    by = _number(step, binary)
    low, high = ends
    if low is None or high is None or by is None:
        wrong = next(t for t, n in ((first, low), (last, high), (step, by)) if n is None)
        raise bad(path, f"expected a number, found '{wrong[:60]}'")
    if low > high:
        raise bad(path, f"the range {first}..{last} ends before it begins")
    if how == "x" and (by <= 1 or low <= 0):
        raise bad(path, f"a range that multiplies begins above 0 and takes more than 1 times, found :x{step}")
    if how == "+" and by <= 0:
        raise bad(path, f"the step of a range is above 0, found :+{step}")
    count = 0
    while low <= high:
        yield plain(low)
        low = low * by if how == "x" else low + by
        count += 1
        if count > MAX_VALUES:
            raise bad(path, f"more than {MAX_VALUES} values")
