"""What msgspec finds wrong with the JSON of a target, in words: JSON path, expected, found, nearest key."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

import msgspec

from hwconfigs.model import ConfigError, Cpu, ElementType, HwConfig, Memory, Stencil, Unit

Json = dict[str, Any]

MODELS: dict[str, type[msgspec.Struct]] = {
    "$": HwConfig, "$.memories": Memory, "$.units": Unit, "$.stencils": Stencil, "$.cpu": Cpu,
}  # fmt: skip


def explain(error: msgspec.ValidationError, value: Json, file: Path, model: type[msgspec.Struct]) -> NoReturn:
    """Turn msgspec's message into ours: file, JSON path, expected, found, nearest key."""
    error = _with_keys(error, value, model)
    match = re.fullmatch(r"(.*?)(?: - at `(.*)`)?", str(error), re.DOTALL)
    assert match is not None  # the pattern takes any text
    message, path = match[1], match[2] or "$"
    place = re.sub(r"\[\d+\]$", "", path)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    if unknown is not None:
        notes = did_you_mean(unknown[1], _keys(place))
        raise ConfigError(f"unknown key '{unknown[1]}'", file=str(file), path=path, notes=notes) from None
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing is not None:
        notes = _also_missing(_at(value, path), place, missing[1])
        message = f"the key '{missing[1]}' is missing"
        raise ConfigError(message, file=str(file), path=path, notes=notes) from None
    found = _at(value, path)
    choices = _choices(path) or _free_choices(path)
    wanted = re.fullmatch(r"Expected `(.*?)`(.*?)(?:, got .*)?", message)
    if choices:
        said = f"expected one of {', '.join(choices)}"
    elif wanted is not None:
        said = f"expected {_kind(wanted[1] + wanted[2])}"
    else:
        said = message
    notes = did_you_mean(found, choices) if choices and isinstance(found, str) else ()
    notes = tuple(note for note in notes if not note.startswith("known"))
    size = re.fullmatch(r"(\d+) ?([KMG])i?B?", found) if isinstance(found, str) else None
    if size is not None and "whole number" in said:
        notes = (f"help: it is a number without a unit: {int(size[1]) << 10 * ('KMG'.index(size[2]) + 1)}",)
    raise ConfigError(f"{said}, found {shown(found)}", file=str(file), path=path, notes=notes) from None


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "bool": "true or false",
}
_LIMITS = {">=": "of {} or more", ">": "above {}", "<=": "up to {}"}


def _kind(wanted: str) -> str:
    """What msgspec expects, in words: `float > 0.0` is a number above 0."""
    limit = re.fullmatch(r"(\w+) (>=|>|<=) (\S+)", wanted)
    if limit is not None and limit[1] in _KINDS:
        return f"{_KINDS[limit[1]]} {_LIMITS[limit[2]].format(limit[3].removesuffix('.0'))}"
    kinds = wanted.split(" | ")
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _also_missing(value: object, place: str, first: str) -> tuple[str, ...]:
    """The other keys of an object that are missing, so that they need not be found one by one."""
    model = MODELS.get(place)
    if model is None or not isinstance(value, dict):
        return ()
    required = (f.encode_name for f in msgspec.structs.fields(model) if f.required)
    others = [name for name in required if name not in value and name != first]
    return (f"note: also missing: {', '.join(others)}",) if others else ()


def _with_keys(
    error: msgspec.ValidationError, value: Json, model: type[msgspec.Struct]
) -> msgspec.ValidationError:
    """The same error with the keys in its path, which msgspec writes as `[...]` where they are free."""
    parts = str(error).split("[...]")
    found = parts[0]
    for part in parts[1:]:
        path = found.rpartition("`")[2]
        for key, own in _at(value, path).items():
            narrowed = _replaced(value, path, {key: own})
            try:
                msgspec.convert(narrowed, model)
            except msgspec.ValidationError as again:
                if str(again) == str(error):
                    value, found = narrowed, f"{found}.{key}{part}"
                    break
        else:
            return error
    return msgspec.ValidationError(found)


def _replaced(value: Any, path: str, new: object) -> Any:
    """A copy of a JSON value with another value at a path."""
    steps = re.findall(r"\.([^.\[]+)|\[(\d+)\]", path)
    if not steps:
        return new
    key: Any = int(steps[0][1]) if steps[0][1] else steps[0][0]
    rest = "".join(f".{name}" if name else f"[{number}]" for name, number in steps[1:])
    copied = list(value) if isinstance(value, list | tuple) else dict(value)
    copied[key] = _replaced(value[key], rest, new)
    return copied


def _keys(place: str) -> tuple[str, ...]:
    """The keys that an object at this path may have."""
    model = MODELS.get(place)
    if model is None:
        return ()
    extra = ("$schema", "extends") if model is HwConfig else ()
    return (*extra, *(field.name for field in msgspec.structs.fields(model)))


def _choices(path: str) -> tuple[str, ...]:
    """The values that a key may have, where the model lists them."""
    place, _, key = path.rpartition(".")
    model = MODELS.get(re.sub(r"\[\d+\]$", "", place))
    if model is None:
        return ()
    kind = next((f.type for f in msgspec.structs.fields(model) if f.name == key), None)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _free_choices(path: str) -> tuple[str, ...]:
    """What may stand under the free keys of a stencil."""
    if re.fullmatch(r"\$\.stencils\[\d+\]\.types\..*", path):
        return get_args(ElementType)
    return ("a number", "any", "an object") if re.fullmatch(r".*\]\.indices\.[^.]*", path) else ()


def _at(value: Any, path: str) -> Any:
    """The value at a JSON path such as `$.memories[0].bytes`; what leads there if a key holds a dot."""
    for key, number in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        if not number and key not in value:
            break
        value = value[int(number)] if number else value[key]
    return value


def shown(value: object) -> str:
    """A JSON value as messages show it."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def did_you_mean(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Notes for an unknown name: the nearest known one, else the list of all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return (f"help: did you mean '{near[0]}'?",)
    return (f"known: {', '.join(names)}",) if names else ()
