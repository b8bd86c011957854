"""The JSON Schema of hardware configs: the model of hwconfigs, with the options of every pass.

`stripec targets schema` prints it; the copy in hwconfigs/ is what editors read.
"""

from __future__ import annotations

import json
import types
from dataclasses import MISSING
from inspect import cleandoc
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from hwconfigs.load import FILE_MODEL
from stripe.passes.base import Named
from stripe.passes.registry import PASSES, OptionInfo, json_value, pass_class, pass_info

Json = dict[str, Any]

OTHERS = "with `choices`: blocks without one stay as they are, or are searched for"


def schema() -> Json:
    """The schema as a JSON object."""
    (made,), parts = msgspec.json.schema_components([FILE_MODEL], ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:  # msgspec before 0.23 leaves them indented as in the source
            part["description"] = cleandoc(part["description"])
    config = parts.pop(made["$ref"].rpartition("/")[2])
    config["properties"]["pipeline"]["items"] = {"oneOf": [_pass_schema(name) for name in PASSES]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **config,
        "title": "A hardware configuration of stripec",
        "$defs": parts,
    }


def schema_text() -> str:
    """The schema as the file in hwconfigs/ holds it."""
    return json.dumps(schema(), indent=2) + "\n"


def _pass_schema(name: str) -> Json:
    info = pass_info(name)
    properties: Json = {"pass": {"const": name}}
    properties |= {option.name: _option_schema(option) for option in info.options}
    properties |= _choices_schema(name)
    return {
        "type": "object",
        "description": info.summary,
        "properties": properties,
        "required": ["pass", *(o.name for o in info.options if o.default is MISSING)],
        "additionalProperties": False,
    }


def _choices_schema(name: str) -> Json:
    """The keys of a step whose pass takes choices for blocks."""
    kind = pass_class(name).choice
    if kind is None:
        return {}
    (made,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    record = parts[made["$ref"]]
    return {
        "choices": {
            "type": "object",
            "description": "what is chosen for blocks, by their paths: "
            + cleandoc(record.pop("description")),
            "additionalProperties": {key: value for key, value in record.items() if key != "title"},
        },
        "others": {"enum": ["leave", "search"], "default": "leave", "description": OTHERS},
    }


def _option_schema(option: OptionInfo) -> Json:
    described = option.help + (f" [{option.unit}]" if option.unit else "")
    found = _kind_schema(option.kind) | {"description": described}
    bounds = {"minimum": option.least, "maximum": option.most}
    number = found["additionalProperties"] if option.kind == Named else found
    number |= {key: bound for key, bound in bounds.items() if bound is not None}
    if option.default is not MISSING:
        found["default"] = json_value(option.default, option.kind)
    return found


def _kind_schema(kind: Any) -> Json:
    if kind == Named:
        return {"type": "object", "additionalProperties": {"type": "integer"}}
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_kind_schema(member) for member in get_args(kind)]}
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin is tuple:
        return {"type": "array", "items": _kind_schema(get_args(kind)[0])}
    names = {int: "integer", float: "number", bool: "boolean", str: "string", types.NoneType: "null"}
    return {"type": names[kind]}
