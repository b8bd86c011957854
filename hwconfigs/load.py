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

import inspect
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, UnsetType

from hwconfigs.consistency import cross_check
from hwconfigs.faults import MODELS, Json, did_you_mean, explain, shown
from hwconfigs.json_text import JsonFault, read_json
from hwconfigs.model import ConfigError, Cpu, HwConfig, Memory, Stencil, Unit

DATA = Path(__file__).parent / "data"
MAX_FILE_BYTES = 1 << 20  # a description of a machine; a larger file is something else
MAX_EXTENDS = 32
PARTS = ("memories", "units", "stencils")  # lists of named objects


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
        explain(error, wanted, file, HwConfig)
    if not _ships(file):
        cross_check(config, file, own)
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
        explain(error, value, Path(name), HwConfig)
    cross_check(made, Path(name), {})
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
    ships = _ships(path)
    own: Json = msgspec.json.decode(path.read_bytes()) if ships else _read(path)
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


def _ships(path: Path) -> bool:
    """Whether a file is one of ours, as we look it up: tests check these (tests/unit/hwconfigs), so that
    finding compiled code on disk does not wait for it."""
    return path.parent == DATA


def _check_new_parts(own: Json, inherited: Json, path: Path) -> None:
    """A part that the extended file does not have must be whole; often its name is misspelt."""
    for key in PARTS:
        names = [part["name"] for part in inherited.get(key, ())]
        required = [f.encode_name for f in msgspec.structs.fields(MODELS[f"$.{key}"]) if f.required]
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
        source = text.split("\n")[line - 1].strip()[:100]
        fail(
            f"not JSON: {fault.message}, line {line}, column {column}",
            *([source] if source and source.isprintable() else []),
            code="H002",
        )
    if not isinstance(value, dict):
        fail(f"expected an object, found {shown(value)}")
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
        explain(error, own, path, FILE_MODEL)
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
                    f"found {shown(value)}",
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
