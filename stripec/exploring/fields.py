"""Paths to what may vary in a target: its parts by name, and their fields.

memory.SPAD.bytes               a field of a memory
unit.DMA.bytes_per_cycle        of a unit
stencil.mac.indices.i           of a stencil; unit.MAC.stencil.mac.indices.i is the same
pass.autotile.inflight          an option of every such pass in the pipeline
clock_hz                        of the target itself
unit.MAC.shape                  the sizes of what a unit executes as stencils: see `_shape`
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

import msgspec

from hwconfigs.model import HwConfig, Memory, SizeRange, Stencil, Unit
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripec.exploring.values import Kind, sizes_of

Json = dict[str, Any]
Place = tuple[str | int, ...]  # keys from the top of the target as JSON

_PARTS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "memory": ("memories", Memory),
    "unit": ("units", Unit),
    "stencil": ("stencils", Stencil),
}
_RANGE_FIELDS = tuple(field.name for field in msgspec.structs.fields(SizeRange))
_TOP = ("clock_hz", "static_pj_per_cycle")  # fields of the target itself


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that varies, at one or more places of the target.

    For a shape, `places` are in groups: one for each stencil, of which a shape of n sizes sets the last n.
    """

    path: str
    kind: Kind
    places: tuple[Place, ...]
    groups: tuple[tuple[Place, ...], ...] = ()

    @property
    def binary(self) -> bool:
        """Whether K means 1024 in its values."""
        return "bytes" in self.path.rpartition(".")[2]

    def set_by(self, value: Any) -> dict[Place, Any]:
        """What this value puts where."""
        if self.kind != "shape":
            return dict.fromkeys(self.places, value)
        sizes = sizes_of(value)
        return {
            place: size
            for group in self.groups
            for place, size in zip(group[len(group) - len(sizes) :], sizes, strict=True)
        }


def find_field(path: str, target: Json) -> Field:
    """The field that a path means in a target, as JSON. Raises CompileError D100, with what there is."""
    head, _, rest = path.partition(".")
    singular = {plural: name for name, (plural, _) in _PARTS.items()} | {"passes": "pass"}
    head = singular.get(head, head)
    if head == "pass":
        return _option(path, rest, target)
    if head in _PARTS:
        return _part(path, head, rest, target)
    if path in _TOP:
        return Field(path, "value", ((path,),))
    raise _unknown(path, f"a path can't begin with '{head}'", head, (*_PARTS, "pass", *_TOP))


def json_path(place: Place) -> str:
    """A place as a JSON path, as the files of targets are written."""
    if place[0] == "pipeline":
        place = (*place[:2], *place[3:])  # a step is {"pass": name, option: value}
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)


def put(target: Json, place: Place, value: Any) -> None:
    """Set what is at a place; what leads there may be missing, as empty objects are."""
    at: Any = target
    for key in place[:-1]:
        at = at[key] if isinstance(key, int) else at.setdefault(key, {})
    at[place[-1]] = value


def _part(path: str, head: str, rest: str, target: Json) -> Field:
    plural, model = _PARTS[head]
    parts: list[Json] = target.get(plural, [])
    number, key = _named(path, head, rest, [part["name"] for part in parts])
    part = parts[number]
    if head == "unit" and key == "shape":
        return _shape(path, part["name"], target)
    if head == "unit" and key.startswith("stencil."):
        stencils: list[Json] = target.get("stencils", [])
        own = [s["name"] for s in stencils if s["unit"] == part["name"]]
        at, key = _named(path, f"stencil of {part['name']}", key.removeprefix("stencil."), own)
        whole = [s["name"] for s in stencils].index(own[at])
        return _member(path, ("stencils", whole), stencils[whole], key, Stencil)
    more = ("shape", "stencil.NAME") if head == "unit" else ()
    return _member(path, (plural, number), part, key, model, more)


def _named(path: str, what: str, rest: str, names: list[str]) -> tuple[int, str]:
    """Which of the names a path goes on with, and what is behind it. A name may hold dots."""
    fitting = [name for name in names if rest == name or rest.startswith(f"{name}.")]
    if not fitting:
        near = rest.partition(".")[0]
        raise _unknown(path, f"there is no {what} '{near}'", near, names)
    name = max(fitting, key=len)
    return names.index(name), rest[len(name) + 1 :]


def _member(
    path: str, place: Place, part: Json, key: str, model: type[msgspec.Struct], more: Iterable[str] = ()
) -> Field:
    """A field of a memory, a unit or a stencil, or what is below one that holds an object."""
    fields = {f.name: f for f in msgspec.structs.fields(model) if f.name != "name"}
    name, _, below = key.partition(".")
    if name not in fields:
        raise _unknown(path, f"there is no field '{name}'", name, (*fields, *more))
    kind = fields[name].type
    value = part.get(name, {} if get_origin(kind) is dict else None)
    place = (*place, name)
    while below:
        if not isinstance(value, dict):
            message = f"'{json_path(place)}' is no object; there is no '{below}' in it"
            raise CompileError(Diagnostic("D100", f"vary {path}: {message}"))
        step, _, below = below.partition(".")
        known = _RANGE_FIELDS if name == "indices" and len(place) == 4 else tuple(value)
        if step not in known:
            raise _unknown(path, f"'{json_path(place)}' has no '{step}'", step, known)
        kind = get_args(kind)[1] if get_origin(kind) is dict else object
        place, value = (*place, step), value.get(step)
    return Field(path, "text" if _is_text(kind) else "value", (place,))


def _is_text(kind: Any) -> bool:
    """Whether a field holds any text, such as an expression, so that its values are not read as numbers."""
    if get_origin(kind) in (Union, types.UnionType):
        return set(get_args(kind)) == {str, types.NoneType}
    return kind is str


def _option(path: str, rest: str, target: Json) -> Field:
    name, _, option = rest.partition(".")
    steps: list[Json] = target.get("pipeline", [])
    found = [number for number, step in enumerate(steps) if step["name"] == name]
    if not found:
        known = sorted({step["name"] for step in steps})
        raise _unknown(path, f"the pipeline has no pass '{name}'", name, known)
    if not option:
        raise CompileError(
            Diagnostic("D100", f"vary {path}: which option?", notes=(f"see: stripec passes {name}",))
        )
    return Field(path, "value", tuple(("pipeline", number, "options", option) for number in found))


def _shape(path: str, unit: str, target: Json) -> Field:
    """The sizes of a unit's stencils that are numbers, in the order of their `indices`.

    A shape of n sizes sets the last n of them, so that a leading one may say how much streams through an
    array whose extents are the others.
    """
    groups = []
    for number, stencil in enumerate(target.get("stencils", [])):
        if stencil["unit"] == unit:
            fixed = [name for name, size in stencil["indices"].items() if isinstance(size, int)]
            groups.append(tuple(("stencils", number, "indices", name) for name in fixed))
    if not groups or not all(groups):
        lacks = "has no stencils" if not groups else "has a stencil without sizes that are numbers"
        raise CompileError(
            Diagnostic(
                "D100", f"vary {path}: the unit '{unit}' {lacks}; it has no shape",
                notes=("help: vary a field of a stencil, such as stencil.NAME.cycles",),
            )
        )  # fmt: skip
    return Field(path, "shape", tuple(place for group in groups for place in group), tuple(groups))


def check_shape(field: Field, value: str) -> None:
    """Raises CompileError D101 where a shape has more sizes than a stencil."""
    count = len(sizes_of(value))
    for group in field.groups:
        if count > len(group):
            names = ", ".join(str(place[-1]) for place in group)
            raise CompileError(
                Diagnostic(
                    "D101", f"vary {field.path}: {value} has {count} sizes, more than the {len(group)} of "
                    f"'{json_path(group[0][:3])}': {names}",
                )
            )  # fmt: skip


def _unknown(path: str, message: str, name: str, known: Iterable[str]) -> CompileError:
    """An error that says which names there are instead."""
    names = list(known)
    near = [note for note in did_you_mean(name, names) if note.startswith("help")]
    listed = f"there is: {', '.join(names)}" if names else "there is none"
    return CompileError(Diagnostic("D100", f"vary {path}: {message}", notes=(*near, listed)))


def target_json(hw: HwConfig) -> Json:
    """A target as JSON, to vary."""
    value: Json = _listed(msgspec.to_builtins(hw))
    return value


def _listed(value: Any) -> Any:
    """The same with lists for tuples, and everything of its own."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
