"""JSON, read strictly: keys that are there twice in one object, NaN and Infinity are faults with a place."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONSTANTS = frozenset(["NaN", "Infinity", "-Infinity"])
_WORD = re.compile(r"[A-Za-z_]\w*")


class JsonFault(ValueError):
    """What is wrong with a text that should be JSON, at which of its characters, and at which JSON path, if
    there is one."""

    def __init__(self, message: str, position: int = 0, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.path = path


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises JsonFault."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise JsonFault(error.msg, error.pos) from None
    except RecursionError:
        raise JsonFault("the JSON is nested too deeply") from None
    except ValueError as error:  # integers of thousands of digits
        raise JsonFault(str(error)) from None
    _check(text)
    return value


def _check(text: str) -> None:
    """Raises JsonFault for what Python's reader lets pass; the text is well-formed otherwise."""
    levels: list[set[str] | int] = []  # around the token: the keys of an object so far, the place in a list
    names: list[str] = []  # the key of each level that is an object
    key = False
    for match in _TOKEN.finditer(text):
        token, inside = match[0], levels[-1] if levels else 0
        if token in "{[":
            levels.append(set() if token == "{" else 0)
            names.append("")
            key = token == "{"
        elif token in "}]":
            levels.pop()
            names.pop()
            key = False
        elif token == ",":
            key = isinstance(inside, set)
            if not isinstance(inside, set):
                levels[-1] = inside + 1
        elif token == ":":
            key = False
        elif key and isinstance(inside, set):
            names[-1] = json.loads(token)
            if names[-1] in inside:
                message = f"the key '{names[-1]}' appears twice in one object"
                raise JsonFault(message, match.start(), _path(levels, names))
            inside.add(names[-1])
        elif token in _CONSTANTS:
            raise JsonFault(f"{token} is not a JSON number", match.start(), _path(levels, names))


def _path(levels: Sequence[set[str] | int], names: Sequence[str]) -> str:
    parts = (
        f"[{level}]" if isinstance(level, int)
        else f".{name}" if _WORD.fullmatch(name)
        else f"[{json.dumps(name)}]"
        for level, name in zip(levels, names, strict=True)
    )  # fmt: skip
    return "$" + "".join(parts)
