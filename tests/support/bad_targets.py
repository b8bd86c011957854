"""Targets broken mechanically: every number, name and key of a config's JSON, and its pipeline."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from hwconfigs.load import DATA

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[Any, ...]  # keys and positions that lead to a value

NUMBERS: tuple[object, ...] = (0, 1, 3, 7, -1, 1000, 1 << 59, 0.5, "many", None)


def shipped(name: str) -> Json:
    """The JSON of a shipped target, without what it inherits."""
    found: Json = json.loads((DATA / f"{name}.json").read_text())
    found.pop("$schema", None)
    return found


def _leaves(value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path, value
    for key, inner in items:
        yield from _leaves(inner, (*path, key))


def _with(config: Json, path: Place, value: object) -> Json:
    """The config with another value at a place; objects on the way are made."""
    changed = copy.deepcopy(config)
    at: Any = changed
    for key in path[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    at[path[-1]] = value
    return changed


def _without(config: Json, path: Place) -> Json:
    changed = copy.deepcopy(config)
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return changed


def _text(config: Json, path: Place) -> str:
    """A path with the names of parts instead of their numbers."""
    words, at = [], config
    for key in path:
        at = at[key]
        named = isinstance(at, dict) and (at.get("name") or at.get("pass"))
        words.append(f"{named}" if named and isinstance(key, int) else f"{key}")
    return ".".join(words)


def broken(config: Json) -> Iterator[tuple[str, Json]]:
    """Every target that one edit makes of a config, with a name for the edit."""
    for path, value in _leaves(config):
        if not path or path in (("name",), ("description",), ("executor",)):
            continue
        place = _text(config, path)
        yield f"without {place}", _without(config, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            for number in NUMBERS:
                if number != value:
                    yield f"{place}={number}", _with(config, path, number)
        elif isinstance(value, str):
            for word in (value + "x", "", 3):
                yield f"{place}={word!r}", _with(config, path, word)
        elif isinstance(value, list):
            yield f"{place} empty", _with(config, path, [])
            if len(value) > 1:
                yield f"{place} backwards", _with(config, path, value[::-1])
        elif isinstance(value, dict):
            yield f"{place} empty", _with(config, path, {})
    yield from _sizes(config)
    yield from _pipelines(config)
    yield from _parts(config)


def _sizes(config: Json) -> Iterator[tuple[str, Json]]:
    """Memories from far too small to just enough."""
    for number, memory in enumerate(config.get("memories", ())):
        unit = memory.get("align_bytes", 1) * memory.get("banks", 1)
        unit = max(unit, memory.get("line_bytes", 64))
        for times in (1, 2, 3, 4, 8, 12, 16, 32, 100):
            size = unit * times
            yield f"{memory['name']} of {size} bytes", _with(config, ("memories", number, "bytes"), size)
        for key, values in {
            "banks": (2, 3, 4, 16), "count": (2, 3, 16), "align_bytes": (7, 4, 256), "line_bytes": (3, 8),
            "kind": ("registers", "cached", "explicit"), "backing": (None, memory["name"]),
        }.items():  # fmt: skip
            for value in values:
                yield f"{memory['name']}.{key}={value}", _with(config, ("memories", number, key), value)


def _pipelines(config: Json) -> Iterator[tuple[str, Json]]:
    """Steps doubled, in another order, cut off."""
    steps = config.get("pipeline", [])
    for at, step in enumerate(steps):
        name = f"{at}:{step['pass']}"
        yield f"{name} twice", {**config, "pipeline": [*steps[:at], step, *steps[at:]]}
        yield f"cut behind {name}", {**config, "pipeline": steps[: at + 1]}
        yield f"{name} first", {**config, "pipeline": [step, *steps[:at], *steps[at + 1 :]]}
        yield f"{name} last", {**config, "pipeline": [*steps[:at], *steps[at + 1 :], step]}
        if at:
            swapped = [*steps[: at - 1], step, steps[at - 1], *steps[at + 1 :]]
            yield f"{name} before {steps[at - 1]['pass']}", {**config, "pipeline": swapped}
        for memory in config.get("memories", ()):
            for option in ("memory", "accumulators"):
                changed = {**step, option: memory["name"]}
                yield (
                    f"{name}.{option}={memory['name']}",
                    {**config, "pipeline": [*steps[:at], changed, *steps[at + 1 :]]},
                )
        if "inflight" in step:
            changed = {**step, "inflight": 64}
            yield f"{name}.inflight=64", {**config, "pipeline": [*steps[:at], changed, *steps[at + 1 :]]}
    for name in ("vectorize", "unroll", "boundary", "transpose", "peel-reduction"):
        for at in (0, len(steps) // 2, len(steps)):
            yield (
                f"{name} at {at}",
                {**config, "pipeline": [*steps[:at], {"pass": name}, *steps[at:]]},
            )
    yield "no pipeline", {**config, "pipeline": []}
    yield "place alone", {**config, "pipeline": [{"pass": "place"}]}
    yield "transfer and place", {**config, "pipeline": [{"pass": "transfer"}, {"pass": "place"}]}


def _parts(config: Json) -> Iterator[tuple[str, Json]]:
    """Units without abilities or reach, memories that nothing reaches."""
    for number, unit in enumerate(config.get("units", ())):
        for key, values in {
            "operations": ([], ["add"], ["mul"]), "types": ([], ["f32"], ["i8"]), "specials": ([],),
            "count": (1, 2, 3, 16, 1000), "kind": ("compute", "transfer"),
            "reaches": ([], *([m["name"]] for m in config.get("memories", ()))),
        }.items():  # fmt: skip
            for value in values:
                yield f"{unit['name']}.{key}={value}", _with(config, ("units", number, key), value)
    for number, stencil in enumerate(config.get("stencils", ())):
        for name in stencil["indices"]:
            for size in (1, 2, 5, 1 << 40, "any", {"multiple": "lanes"}, {"least": 9, "most": 4}, [4]):
                path = ("stencils", number, "indices", name)
                yield f"{stencil['name']}.indices.{name}={size}", _with(config, path, size)
        own, at = stencil["name"], ("stencils", number)
        for name in stencil["operands"]:
            for dtype in ("u8", "f64", "x9"):
                yield f"{own}.types.{name}={dtype}", _with(config, (*at, "types", name), dtype)
            for memory in config.get("memories", ()):
                changed = _with(config, (*at, "memory", name), memory["name"])
                yield f"{own}.memory.{name}={memory['name']}", changed
            for strides in ({"i": 1}, {"p": 7}, {"zz": 1}):
                yield f"{own}.stride.{name}={strides}", _with(config, (*at, "stride", name), strides)
            for text in ("lanes", "1000", "i * j", "1/0", "(", "zz"):
                yield f"{own}.registers.{name}={text}", _with(config, (*at, "registers", name), text)
        for text in ("1/0", "i * (", "-5", "zz", "1e999", "i ^ 99999"):
            yield f"{own}.cycles={text}", _with(config, (*at, "cycles"), text)
        for text in ("acc += x * x", "acc max= x + y", "acc = x * y", "acc += x", "acc += exp(x) * y"):
            yield f"{own}.body={text}", _with(config, (*at, "body"), text)
        yield f"{own}.inner=itself", _with(config, (*at, "inner"), own)
