"""JSON -> HwConfig: one file describes one target, and may extend another.

    file -> checked on its own -> merged over the file that it extends -> HwConfig -> cross checks

Each file is checked before it is merged, so that a message names the file that is wrong and the
JSON path in it. `extends` names a shipped config (`"generic"`) or a path relative to the file
(`"../chips/base.json"`). Objects merge key by key; `memories`, `units` and `stencils` merge by name, new
ones behind the inherited ones; every other value, the pipeline too, replaces what it inherits.
Names and options of passes are checked by `stripe.passes.registry.check_pipeline`, because
nothing here knows a pass.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from math import inf, lcm
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from hwconfigs.expressions import ExpressionError, body_operands, evaluate_size, parse_body, size_names
from hwconfigs.json_text import JsonFault, read_json
from hwconfigs.model import (
    CAPABILITIES,
    MAX_CPU_VECTOR_BYTES,
    ConfigError,
    Cpu,
    ElementType,
    HwConfig,
    Memory,
    SizeRange,
    Stencil,
    Unit,
)

DATA = Path(__file__).parent / "data"
MAX_FILE_BYTES = 1 << 20  # a description of a machine; a larger file is something else
MAX_EXTENDS = 32

# The intrinsics of LLVM that are instructions of one architecture; others it can make of what there is.
_ARCHITECTURES = re.compile(r"llvm\.(x86|aarch64|arm|riscv|ppc|s390|wasm|loongarch|mips|hexagon|ve)\.")
LEAST_RATE = 1e-6  # per cycle; times are exact in a double for rates from here on
_RATES = ("bytes_per_cycle", "fma_per_cycle", "loads_per_cycle", "stores_per_cycle")
PARTS = ("memories", "units", "stencils")  # lists of named objects
_TYPES: tuple[str, ...] = get_args(ElementType)

Json = dict[str, Any]


def available() -> tuple[str, ...]:
    """The names of the configs that ship with the package, sorted."""
    return tuple(sorted(path.stem for path in DATA.glob("*.json")))


def load_named(name: str) -> HwConfig:
    """The shipped config of this name. Raises ConfigError with the nearest name if there is none."""
    return load(_shipped(name, file="", path="$"))


def shipped_cpus() -> dict[str, Cpu]:
    """The CPU of each shipped config that runs on one, by name; the rest of the files is not looked at."""
    read: dict[str, Json] = {
        path.stem: msgspec.json.decode(path.read_bytes()) for path in DATA.glob("*.json")
    }

    def whole(name: str) -> Json:
        own = {key: value for key, value in read[name].items() if key in ("executor", "cpu", "extends")}
        return _merge(whole(own["extends"]), own) if "extends" in own else own

    found = {name: whole(name) for name in sorted(read)}
    return {
        name: msgspec.convert(made["cpu"], Cpu)
        for name, made in found.items()
        if made.get("executor") == "cpu" and "cpu" in made
    }


def load(path: str | Path) -> HwConfig:
    """The config in a file, with what it extends merged in. Raises ConfigError."""
    file = Path(path)
    own, merged = _resolve(file, ())
    steps = [_step(step) for step in merged.get("pipeline", ())]
    wanted = {k: v for k, v in merged.items() if k not in ("$schema", "extends")} | {"pipeline": steps}
    try:
        config = msgspec.convert(wanted, HwConfig)
    except msgspec.ValidationError as error:
        _explain(error, wanted, file, HwConfig)
    _cross_check(config, file, own)
    return config


def check(config: HwConfig) -> None:
    """Check a config made in Python as a file is. Raises ConfigError."""
    from_value(msgspec.to_builtins(config), str(config.name))


def from_value(value: Json, name: str) -> HwConfig:
    """The config that a JSON value is, with nothing left to inherit, as `msgspec.to_builtins` gives it.

    `name` is what messages call it. Raises ConfigError.
    """
    try:
        made = msgspec.convert(value, HwConfig)
    except msgspec.ValidationError as error:
        _explain(error, value, Path(name), HwConfig)
    _cross_check(made, Path(name), {})
    return made


def _partial(model: type[msgspec.Struct], **own: Any) -> type[msgspec.Struct]:
    """The model with all its fields but the name optional: what one file may say of it."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(model):
        if field.name == "name":
            fields.append((field.name, field.type, msgspec.NODEFAULT))
        else:
            fields.append((field.name, own.pop(field.name, field.type) | UnsetType, UNSET))
    fields += [(name, kind | UnsetType, UNSET) for name, kind in own.items() if name != "$schema"]
    if "$schema" in own:
        fields.append(("schema", str | UnsetType, msgspec.field(name="$schema", default=UNSET)))
    return msgspec.defstruct(
        model.__name__,
        fields,
        kw_only=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": inspect.getdoc(model)},
    )


_MODELS: dict[str, type[msgspec.Struct]] = {
    "$": HwConfig, "$.memories": Memory, "$.units": Unit, "$.stencils": Stencil, "$.cpu": Cpu,
}  # fmt: skip
FILE_MODEL = _partial(
    HwConfig,
    memories=list[_partial(Memory)],  # type: ignore[misc]
    units=list[_partial(Unit)],  # type: ignore[misc]
    stencils=list[_partial(Stencil)],  # type: ignore[misc]
    cpu=_partial(Cpu) | None,
    pipeline=list[dict[str, Any]],
    extends=str,
    **{"$schema": str},
)


def _shipped(name: str, file: str, path: str) -> Path:
    if name in available():
        return DATA / f"{name}.json"
    notes = (*did_you_mean(name, available()), "help: a file is named by its path, such as ./chip.json")
    raise ConfigError(f"no target is named '{name}'", code="H001", file=file, path=path, notes=notes)


def _resolve(path: Path, chain: tuple[Path, ...]) -> tuple[Json, Json]:
    """What the file holds, and that over what the file that it extends holds, and so on."""
    seen = [*chain, path]
    if any(_same(path, earlier) for earlier in chain):
        shown = " -> ".join(map(str, seen))
        raise ConfigError(
            f"the config extends itself: {shown}", code="H004", file=str(path), path="$.extends"
        )
    if len(seen) > MAX_EXTENDS:
        raise ConfigError(
            f"more than {MAX_EXTENDS} files extend one another", code="H004", file=str(path), path="$.extends"
        )
    own = _read(path)
    ships = path.parent == DATA  # what is ours is checked when it is made
    if not ships:
        _check_file(own, path)
    if "extends" not in own:
        return own, own
    base = own["extends"]
    is_path = base.endswith(".json") or "/" in base or "\\" in base
    below = path.parent / base if is_path else _shipped(base, str(path), "$.extends")
    _, inherited = _resolve(below, tuple(seen))
    if not ships:
        _check_new_parts(own, inherited, path)
    return own, _merge(inherited, own)


def _check_new_parts(own: Json, inherited: Json, path: Path) -> None:
    """A part that the extended file does not have must be whole; often its name is misspelt."""
    for key in PARTS:
        names = [part["name"] for part in inherited.get(key, ())]
        required = [f.encode_name for f in msgspec.structs.fields(_MODELS[f"$.{key}"]) if f.required]
        for number, part in enumerate(own.get(key, ())):
            missing = [field for field in required if field not in part]
            if missing and part["name"] not in names:
                raise ConfigError(
                    f"the key '{missing[0]}' is missing; '{part['name']}' is not one of the inherited {key}",
                    file=str(path), path=f"$.{key}[{number}]", notes=did_you_mean(part["name"], names),
                )  # fmt: skip


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or one.resolve() == other.resolve()


def _read(path: Path) -> Json:
    """The JSON object in a file. Every failure is a ConfigError that names the file."""

    def fail(message: str, *notes: str, code: str = "H001") -> NoReturn:
        raise ConfigError(message, code=code, file=str(path), notes=notes)

    try:
        if path.is_dir():
            fail("this is a directory; expected a JSON file")
        if not path.is_file():
            fail("there is no such file", *_shipped_hint(path))
        if path.stat().st_size > MAX_FILE_BYTES:
            fail(f"the file has more than {MAX_FILE_BYTES} bytes; this can't be a hardware config")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fail(f"the file is not UTF-8 text (byte {error.start})", code="H002")
    except OSError as error:
        fail(f"the file can't be read: {error.strerror}")
    if not text.strip():
        fail("the file is empty", f"help: a target has at least {_least()}", code="H002")
    try:
        value = read_json(text)
    except JsonFault as fault:
        before = text[: fault.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        shown = text.split("\n")[line - 1].strip()[:100]
        fail(
            f"not JSON: {fault.message}, line {line}, column {column}",
            *([shown] if shown and shown.isprintable() else []),
            code="H002",
        )
    if not isinstance(value, dict):
        fail(f"expected an object, found {_found(value)}")
    return value


def _shipped_hint(path: Path) -> tuple[str, ...]:
    """A bare name was given where only paths are taken: say what is named so."""
    return (f"shipped targets: {', '.join(available())}",) if path.parent == Path() else ()


def _least() -> str:
    """The smallest target there is, as JSON: the keys that nothing stands in for."""
    required = (field.name for field in msgspec.structs.fields(HwConfig) if field.required)
    return "{" + ", ".join(f'"{name}": {_EXAMPLES[name]}' for name in required) + "}"


_EXAMPLES = {"name": '"chip"', "description": '"what it is"', "executor": '"interpreter"'}


def _check_file(own: Json, path: Path) -> None:
    """Check one file on its own: keys, types and ranges, but not what may be inherited."""
    try:
        msgspec.convert(own, FILE_MODEL)
    except msgspec.ValidationError as error:
        _explain(error, own, path, FILE_MODEL)
    for key in PARTS:
        names = [part["name"] for part in own.get(key, ())]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ConfigError(
                    f"the name '{name}' is given twice",
                    code="H005", file=str(path), path=f"$.{key}[{number}].name",
                )  # fmt: skip
    for number, step in enumerate(own.get("pipeline", ())):
        at = f"$.pipeline[{number}]"
        if not isinstance(step.get("pass"), str):
            raise ConfigError(
                "expected the name of a pass under 'pass'",
                file=str(path), path=at, notes=('help: a step reads {"pass": "autotile", "memory": "L1"}',),
            )  # fmt: skip
        for option, value in step.items():
            given = option == "choices" and isinstance(value, dict)  # the pass knows what its records are
            if not given and not _is_option_value(value):
                raise ConfigError(
                    "an option is a string, a number, true, false, null, a list of those, or sizes by name; "
                    f"found {_found(value)}",
                    file=str(path), path=f"{at}.{option}",
                )  # fmt: skip


def _is_option_value(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(item, int | str) for item in value.values())
    scalars = value if isinstance(value, list) else [value]
    return all(item is None or isinstance(item, str | int | float) for item in scalars)


def _step(step: Json) -> Json:
    return {"name": step["pass"], "options": {k: v for k, v in step.items() if k != "pass"}}


def _merge(base: Json, over: Json) -> Json:
    """`over` on `base`: objects key by key, lists of named objects by name, the rest replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = _merge(old, value)
        elif isinstance(value, list) and isinstance(old, list) and _named(value) and _named(old):
            merged[key] = _merge_named(old, value)
        else:
            merged[key] = value
    return merged


def _named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in items)


def _merge_named(base: list[Json], over: list[Json]) -> list[Json]:
    merged = {item["name"]: item for item in base}
    for item in over:
        merged[item["name"]] = _merge(merged.get(item["name"], {}), item)
    return list(merged.values())


def _explain(
    error: msgspec.ValidationError, value: Json, file: Path, model: type[msgspec.Struct]
) -> NoReturn:
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
    raise ConfigError(f"{said}, found {_found(found)}", file=str(file), path=path, notes=notes) from None


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
    model = _MODELS.get(place)
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
    model = _MODELS.get(place)
    if model is None:
        return ()
    extra = ("$schema", "extends") if model is HwConfig else ()
    return (*extra, *(field.name for field in msgspec.structs.fields(model)))


def _choices(path: str) -> tuple[str, ...]:
    """The values that a key may have, where the model lists them."""
    place, _, key = path.rpartition(".")
    model = _MODELS.get(re.sub(r"\[\d+\]$", "", place))
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


def _found(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _cross_check(config: HwConfig, file: Path, own: Json) -> None:
    """What the values say together: names are known, nothing backs itself.

    A path counts as `own`, the file, does; parts that it inherits are counted as merged.
    """

    def fail(message: str, path: str, *notes: str) -> NoReturn:
        raise ConfigError(message, code="H005", file=str(file), path=path, notes=notes)

    def at(key: str, name: str) -> str:
        merged = [part.name for part in getattr(config, key)]
        written = [part["name"] for part in own.get(key, ())]
        return f"$.{key}[{(written if name in written else merged).index(name)}]"

    for key in ("memories", "units"):
        for part in getattr(config, key):
            for name in _RATES:
                rate = getattr(part, name, None)
                if rate is not None and rate < LEAST_RATE:
                    message = f"expected a number of {LEAST_RATE:g} or more, found {rate:g}"
                    fail(message, f"{at(key, part.name)}.{name}")
    memories = [memory.name for memory in config.memories]
    for memory in config.memories:
        if memory.backing is not None and memory.backing not in memories:
            fail(
                f"no memory is named '{memory.backing}'",
                f"{at('memories', memory.name)}.backing",
                *did_you_mean(memory.backing, memories),
            )
        if memory.bytes is not None and memory.bytes % memory.line_bytes:
            fail(
                f"the {memory.bytes} bytes of '{memory.name}' are no whole number of lines "
                f"of {memory.line_bytes}: {memory.bytes % memory.line_bytes} left over",
                f"{at('memories', memory.name)}.bytes",
                f"note: the key 'line_bytes' is {Memory('', 'cached').line_bytes} where it is left out",
                _nearest(memory),
            )
        if memory.bytes is not None and memory.bytes < (memory.ways or 0) * memory.line_bytes:
            fail(
                f"the {memory.bytes} bytes of '{memory.name}' are less than one line for "
                f"each of its {memory.ways} ways",
                f"{at('memories', memory.name)}.ways",
            )
        if memory.bytes is not None and (left := memory.bytes % (memory.banks * memory.align_bytes)):
            align = memory.align_bytes
            fail(
                f"the {memory.bytes} bytes of '{memory.name}' do not divide into {memory.banks} banks"
                f"{f' of a multiple of {align} bytes each' if align > 1 else ''}: {left} left over",
                f"{at('memories', memory.name)}.banks",
                _nearest(memory),
            )
    for memory in config.memories:
        chain = [memory.name]
        while (farther := _memory(config, chain[-1]).backing) is not None:
            if farther in chain:
                ring = chain[chain.index(farther) :]
                last = max(ring, key=memories.index)  # as a rule the one that should have none
                ring = [*ring[ring.index(last) :], *ring[: ring.index(last)], last]
                where = f"{at('memories', last)}.backing"
                note = "help: the memory behind all others has no 'backing'"
                fail(f"memories back each other: {' -> '.join(ring)}", where, note)
            chain.append(farther)
    for unit in config.units:
        for place, name in enumerate(unit.reaches):
            if name not in memories:
                where = f"{at('units', unit.name)}.reaches[{place}]"
                fail(f"no memory is named '{name}'", where, *did_you_mean(name, memories))
            instances = _memory(config, name).count
            if 1 < unit.count != instances > 1:
                fail(
                    f"'{unit.name}' has {unit.count} copies and '{name}' {instances} instances; "
                    "copy number c reaches instance c alone",
                    f"{at('units', unit.name)}.reaches[{place}]",
                    "help: give both the same 'count', or one of them 1",
                )
        for place, name in enumerate(unit.types):
            if name not in (*_TYPES, "*"):
                where = f"{at('units', unit.name)}.types[{place}]"
                fail(f"no element type is named '{name}'", where, *did_you_mean(name, _TYPES))
        for place, name in enumerate(unit.capabilities):
            if name not in CAPABILITIES:
                where = f"{at('units', unit.name)}.capabilities[{place}]"
                fail(f"no capability is named '{name}'", where, *did_you_mean(name, CAPABILITIES))
    for stencil in config.stencils:
        for path, message, notes in _stencil_faults(stencil, config):
            fail(message, f"{at('stencils', stencil.name)}{path}", *notes)
    if config.executor == "cpu":
        if config.cpu is None or not config.units:
            lacks = "cpu" if config.cpu is None else "units"
            fail("a target that a CPU executes needs the keys 'cpu' and 'units'", "$", f"missing: {lacks}")
        for unit in config.units:
            size = unit.vector_bytes
            if size & (size - 1) or size > MAX_CPU_VECTOR_BYTES:
                fail(
                    f"vectors of native code have a power of two of bytes, at most {MAX_CPU_VECTOR_BYTES}, "
                    f"found {size}",
                    f"{at('units', unit.name)}.vector_bytes",
                )


def _stencil_faults(stencil: Stencil, config: HwConfig) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What is wrong within a stencil: JSON path below it, message, notes."""
    units = [unit.name for unit in config.units]
    if stencil.unit not in units:
        yield ".unit", f"no unit is named '{stencil.unit}'", did_you_mean(stencil.unit, units)
    try:
        body = parse_body(stencil.body)
    except ExpressionError as error:
        yield ".body", str(error), ()
        return
    named = {body.target, *body_operands(body.value)}
    for name in sorted(named - stencil.operands.keys()):
        yield ".operands", f"the operand '{name}' of the body is missing", ()
    for name in sorted(stencil.operands.keys() - named):
        yield f".operands.{name}", f"the body does not use '{name}'", ()
    for key in ("types", "stride", "memory", "registers", "loads"):
        for name in getattr(stencil, key):
            if name not in stencil.operands:
                yield f".{key}.{name}", f"no operand is named '{name}'", did_you_mean(name, stencil.operands)
    for name in sorted(stencil.operands.keys() - stencil.types.keys()):
        yield ".types", f"the element type of '{name}' is missing", ()
    uses = [(f".operands.{o}", i) for o, indexes in stencil.operands.items() for i in indexes]
    uses += [(f".stride.{o}", i) for o, strides in stencil.stride.items() for i in strides]
    for path, name in uses:
        if name not in stencil.indices:
            yield path, f"no index is named '{name}'", did_you_mean(name, stencil.indices)
    for name, rule in stencil.indices.items():
        if isinstance(rule, SizeRange) and rule.most is not None:
            step = rule.multiple if isinstance(rule.multiple, int) else 1
            if -(-rule.least // step) * step > rule.most:
                text = f"no multiple of {rule.multiple} lies between {rule.least} and {rule.most}"
                yield f".indices.{name}", text, ()
    memories = [memory.name for memory in config.memories]
    for operand, name in stencil.memory.items():
        if name not in memories:
            yield f".memory.{operand}", f"no memory is named '{name}'", did_you_mean(name, memories)
        elif (unit := config.unit(stencil.unit)) is not None and name not in unit.reaches:
            others = f"it reaches {', '.join(unit.reaches) or 'no memory'}"
            note = f"help: add '{name}' to the 'reaches' of '{unit.name}', or name another memory"
            yield f".memory.{operand}", f"the unit '{unit.name}' does not reach '{name}': {others}", (note,)
    sizes = [
        (f".{key}.{operand}", text)
        for key in ("registers", "loads")
        for operand, text in getattr(stencil, key).items()
    ]
    for path, text in [*sizes, *([(".cycles", stencil.cycles)] if stencil.cycles else [])]:
        try:
            unknown = sorted(size_names(text) - stencil.indices.keys() - {"lanes"})
        except ExpressionError as error:
            yield path, str(error), ()
            continue
        if unknown:
            yield path, f"no index is named '{unknown[0]}'", did_you_mean(unknown[0], stencil.indices)
        elif stencil.unit in units and body.target in stencil.types:
            wrong = _value_fault(text, _least_sizes(stencil, _unit(config, stencil.unit), body.target))
            if wrong:
                yield path, wrong, ()
    if _ARCHITECTURES.match(stencil.intrinsic) and not stencil.features:
        note = "help: name those of 'cpu.features' that have the instruction in the key 'features'"
        yield ".intrinsic", f"'{stencil.intrinsic}' is an instruction that not every CPU has", (note,)
    for place, feature in enumerate(stencil.features):
        if config.cpu is None or feature not in config.cpu.features:
            note = "help: list it in 'cpu.features' too, or leave the stencil out"
            yield f".features[{place}]", f"the CPU has no feature '{feature}'", (note,)
    stencils = {s.name: s for s in config.stencils}
    if stencil.inner and stencil.inner not in stencils:
        known = did_you_mean(stencil.inner, stencils)
        yield ".inner", f"no stencil is named '{stencil.inner}'", known
    chain = [stencil.name]
    while (inner := stencils[chain[-1]].inner) in stencils:
        chain.append(inner)
        if inner in chain[:-1]:
            yield ".inner", f"stencils hold each other: {' -> '.join(chain)}", ()
            return


def _least_sizes(stencil: Stencil, unit: Unit, result: str) -> dict[str, int]:
    """The sizes of the smallest use of a stencil, and `lanes`."""
    bits = re.sub(r"\D", "", stencil.types[result])
    lanes = max(1, unit.vector_bytes // (int(bits or 8) // 8))
    sizes = {"lanes": lanes}
    for name, rule in stencil.indices.items():
        if isinstance(rule, SizeRange):
            step = lanes if rule.multiple == "lanes" else rule.multiple
            sizes[name] = -(-rule.least // step) * step
        else:
            sizes[name] = 1 if rule == "any" else rule
    return sizes


def _value_fault(text: str, sizes: dict[str, int]) -> str:
    """Why an expression is no count of cycles or registers at these sizes; empty if it is one."""
    at = ", ".join(f"{name} = {sizes[name]}" for name in sorted(size_names(text)))
    where = f" at {at}" if at else ""
    try:
        value = evaluate_size(text, sizes)
    except ExpressionError as error:
        return f"{error}{where}"
    if not (0 <= value < inf):
        return f"'{text}' is {value:.6g}{where}; expected 0 or more"
    return ""


def _unit(config: HwConfig, name: str) -> Unit:
    found = config.unit(name)
    assert found is not None  # checked by the caller
    return found


def _nearest(memory: Memory) -> str:
    """Sizes near that of a memory that are whole lines, in equal banks."""
    assert memory.bytes is not None
    step = lcm(memory.line_bytes, memory.banks * memory.align_bytes)
    least = memory.bytes - memory.bytes % step
    return f"help: {f'{least} or ' if least else ''}{least + step} bytes divide"


def _memory(config: HwConfig, name: str) -> Memory:
    found = config.memory(name)
    assert found is not None  # checked by the caller
    return found


def did_you_mean(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Notes for an unknown name: the nearest known one, else the list of all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return (f"help: did you mean '{near[0]}'?",)
    return (f"known: {', '.join(names)}",) if names else ()
