"""The points of a sweep: every combination of the values of its axes, each a target of its own.

An axis is a field with its values, or several fields that go in step. Points are numbered as nested
loops over the axes go through them, the last axis fastest. What the model of targets refuses at a point
is kept with its reason, unless a value is refused at every point: then that value is wrong.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from hwconfigs.load import from_value
from hwconfigs.model import ConfigError, HwConfig
from simulator.prices import unpriced
from stripe.diag import CompileError, Diagnostic
from stripe.passes.registry import check_pipeline
from stripec.exploring.fields import Field, Json, Place, check_shape, find_field, json_path, put, target_json
from stripec.exploring.values import bad, check_values, parse_values

MAX_POINTS = 20_000

Given: TypeAlias = "str | Sequence[Any]"
Vary: TypeAlias = "Mapping[str, Given] | Sequence[Mapping[str, Given]]"


@dataclass(frozen=True, slots=True)
class Axis:
    """Fields that go in step: at each position, one value for each field."""

    fields: tuple[Field, ...]
    rows: tuple[tuple[Any, ...], ...]

    def at(self, position: int) -> dict[str, Any]:
        return {f.path: value for f, value in zip(self.fields, self.rows[position], strict=True)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the model of targets, or a pass, does not take a point."""

    code: str
    reason: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """The axes over a target, which is kept as JSON."""

    name: str
    target: Json
    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(len(axis.rows) for axis in self.axes)

    def positions(self, number: int) -> tuple[int, ...]:
        """Where on each axis a point lies."""
        found = []
        for axis in reversed(self.axes):
            number, position = divmod(number, len(axis.rows))
            found.append(position)
        return tuple(reversed(found))

    def values(self, number: int) -> dict[str, Any]:
        """What a point sets, by path."""
        found: dict[str, Any] = {}
        for axis, position in zip(self.axes, self.positions(number), strict=True):
            found |= axis.at(position)
        return found

    def target_at(self, number: int) -> HwConfig | Refusal:
        value = copy.deepcopy(self.target)
        for axis, position in zip(self.axes, self.positions(number), strict=True):
            for field, given in zip(axis.fields, axis.rows[position], strict=True):
                for place, item in field.set_by(given).items():
                    put(value, place, item)
        try:
            hw = from_value(value, self.name)
            check_pipeline(hw)
        except ConfigError as error:
            where = f", at {error.path}" if error.path != "$" else ""
            return Refusal(error.code, f"{error.message}{where}", error.notes)
        except CompileError as error:
            first = error.diagnostics[0]
            return Refusal(first.code, first.message, first.notes)
        return hw


def make_space(hw: HwConfig, vary: Vary) -> Space:
    """The space of a sweep. `vary` gives the values of each field; a list of such mappings is one of axes,
    whose fields go in step. Raises CompileError D100 or D101."""
    target = target_json(hw)
    groups = [{path: given} for path, given in vary.items()] if isinstance(vary, Mapping) else list(vary)
    axes = tuple(_axis(dict(group), target) for group in groups)
    if not axes:
        raise CompileError(
            Diagnostic("D101", "nothing varies", notes=("help: --vary memory.L1.bytes=16K,32K",))
        )
    space = Space(hw.name, target, axes)
    _check_apart(space)
    if len(space) > MAX_POINTS:
        lengths = " x ".join(str(len(axis.rows)) for axis in axes)
        raise CompileError(Diagnostic("D101", f"{lengths} points are more than {MAX_POINTS}"))
    return space


def _axis(group: Mapping[str, Given], target: Json) -> Axis:
    fields = tuple(find_field(path, target) for path in group)
    columns = []
    for field, given in zip(fields, group.values(), strict=True):
        if isinstance(given, str):
            values = parse_values(given, field.path, field.kind, binary=field.binary)
        else:
            values = check_values(list(given), field.path, field.kind)
        if field.kind == "shape":
            for value in values:
                check_shape(field, value)
        if not values:
            raise bad(field.path, "no values are given")
        columns.append(values)
    for field, column in zip(fields[1:], columns[1:], strict=True):
        if len(column) != len(columns[0]):
            first = fields[0].path
            raise bad(field.path, f"{len(column)} values go with the {len(columns[0])} of {first}")
    rows = tuple(zip(*columns, strict=True))
    texts = [json.dumps(row, sort_keys=True, default=str) for row in rows]
    if len(set(texts)) < len(texts):
        twice = next(row for row, text in zip(rows, texts, strict=True) if texts.count(text) > 1)
        raise bad(fields[0].path, f"the value {_shown(twice)} is given twice")
    return Axis(fields, rows)


def _shown(row: Sequence[Any]) -> str:
    return ", ".join(value if isinstance(value, str) else json.dumps(value, default=str) for value in row)


def _check_apart(space: Space) -> None:
    """No two fields may set the same place, or one a part of what another sets."""
    owners: list[tuple[Place, str]] = []
    for axis in space.axes:
        for field in axis.fields:
            for place in field.places:
                for other, path in owners:
                    shorter = min(len(place), len(other))
                    if place[:shorter] == other[:shorter]:
                        raise bad(field.path, f"'{json_path(place)}' varies with {path} already")
            owners.extend((place, field.path) for place in field.places)


def targets_of(space: Space) -> dict[int, HwConfig | Refusal]:
    """The target of each point, or why there is none. Raises CompileError for a value that nothing takes."""
    found = {number: space.target_at(number) for number in range(len(space))}
    first: dict[tuple[int, int], tuple[int, Refusal] | None] = {}
    for number, hw in found.items():
        for at in enumerate(space.positions(number)):
            if isinstance(hw, Refusal):
                first.setdefault(at, (number, hw))
            else:
                first[at] = None
    for (axis, position), refused in sorted(first.items()):
        if refused is not None:
            _, why = refused
            given = [f"{path}={_shown([value])}" for path, value in space.axes[axis].at(position).items()]
            message = f"vary {', '.join(given)}: {why.reason}"
            raise CompileError(Diagnostic(why.code, message, notes=why.notes))
    return found


# What no pass looks at: energies, the clock, and, but for native code, how long a memory takes to answer.
_UNREAD_BY_PASSES = "latency_cycles"


def compile_key(hw: HwConfig) -> bytes:
    """The same for targets for which programs are compiled to the same."""
    plain = unpriced(hw)
    if plain.executor == "cpu":
        return msgspec.json.encode(plain)
    memories = tuple(msgspec.structs.replace(m, **{_UNREAD_BY_PASSES: None}) for m in plain.memories)
    return msgspec.json.encode(msgspec.structs.replace(plain, memories=memories))
