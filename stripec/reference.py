"""docs/hwconfig.md: the keys of a target's JSON file and the expressions in it, from the code."""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import Any

import msgspec

from hwconfigs import expressions, load
from hwconfigs.model import CAPABILITIES, Cpu, HwConfig, Memory, SizeRange, Stencil, Unit
from stripec.schema import Json

_SECTIONS: tuple[tuple[type[msgspec.Struct], str], ...] = (
    (HwConfig, "The file"),
    (Memory, "A memory"),
    (Unit, "A unit"),
    (Stencil, "A stencil"),
    (SizeRange, "The sizes of an index"),
    (Cpu, "The CPU"),
)
_NAMES = {
    "Memory": "[memory](#a-memory)",
    "Unit": "[unit](#a-unit)",
    "Stencil": "[stencil](#a-stencil)",
    "SizeRange": "[sizes](#the-sizes-of-an-index)",
    "Cpu": "[CPU](#the-cpu)",
    "PassStep": '`{"pass": NAME, option: value, ...}`',
}
_LARGE = 10**15  # bounds from here on only keep arithmetic exact; they are no news to a reader

_HEAD = """\
# The JSON file of a target

Written by `stripec targets schema --markdown`. `stripec targets check FILE` checks a file, `stripec
targets show FILE` prints it with all that it inherits, and an editor completes the keys from
`hwconfigs/hwconfig.schema.json`. Sizes are in bytes, rates per cycle. `docs/new-target.md` writes a file
from a data sheet; `docs/passes.md` has the steps of a pipeline.
"""


def hwconfig_markdown() -> str:
    """The whole document."""
    parts = [_HEAD]
    for model, title in _SECTIONS:
        parts.append(f"\n## {title}\n\n{inspect.getdoc(model)}\n\n{_keys(model)}")
        if model is Unit:
            known = "".join(f"- `{name}`: {text}.\n" for name, text in CAPABILITIES.items())
            parts.append(f"\nThe capabilities:\n\n{known}")
    parts.append(f"\n## Inheritance\n\n{_fenced(load)}")
    parts.append(f"\n## Expressions\n\n{_fenced(expressions)}")
    return "".join(parts)


def _fenced(module: Any) -> str:
    """The docstring of a module, with its indented part as a block of text."""
    parts = [part for part in (inspect.getdoc(module) or "").split("\n\n")[1:] if part.strip()]
    shown = [f"```text\n{textwrap.dedent(part)}\n```" if part.startswith("    ") else part for part in parts]
    return "\n\n".join(shown) + "\n"


def _keys(model: type[msgspec.Struct]) -> str:
    """The table of the keys of an object: value and default."""
    _, parts = msgspec.json.schema_components([model], ref_template="{name}")
    shape = parts[model.__name__]
    extra = [("extends", "text", "none"), ("$schema", "text", "none")] if model is HwConfig else []
    rows = [
        (name, _value(known), _default(name, known, shape["required"]))
        for name, known in shape["properties"].items()
    ]
    lines = [f"| `{name}` | {value} | {default} |\n" for name, value, default in rows + extra]
    return "| key | value | default |\n| --- | --- | --- |\n" + "".join(lines)


def _default(name: str, known: Json, required: list[str]) -> str:
    if name in required:
        return "must be given"
    default = known.get("default")
    return "none" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def _value(known: Json) -> str:
    """The kind of a value in words."""
    if "$ref" in known:
        return _NAMES[known["$ref"]]
    if "enum" in known:
        choices = ", ".join(f"`{choice}`" for choice in known["enum"])
        return choices if len(known["enum"]) == 1 else f"one of {choices}"
    if "anyOf" in known:
        return " or ".join(_value(one) for one in known["anyOf"] if one.get("type") != "null")
    match known.get("type"):
        case "array":
            return f"list of {_value(known['items'])}"
        case "object":
            return f"object, for each name: {_value(known['additionalProperties'])}"
        case "string":
            return "name (letters, digits, `_`, `.`, `-`)" if "pattern" in known else "text"
        case "integer" | "number" as kind:
            return f"{kind}{_bounds(known)}"
        case kind:
            return str(kind)


def _bounds(known: Json) -> str:
    low = known.get("minimum", known.get("exclusiveMinimum"))
    most = known.get("maximum")
    said = [] if low is None else [f"above {low}" if "exclusiveMinimum" in known else f"{low} or more"]
    said += [] if most is None or most >= _LARGE else [f"at most {most}"]
    return f", {', '.join(said)}" if said else ""
