"""The table of passes, and pipelines as text and as JSON.

    text   autotile{memory=L1, indices=[x, y]},localize
    JSON   [{"pass": "autotile", "memory": "L1", "indices": ["x", "y"]}, {"pass": "localize"}]

An option of numbers by name is `tile={x=4}` in text and `"tile": {"x": 4}` in JSON.

The options of a pass are the fields of its dataclass: from them come both forms, the checks and
the help. `choices` and `others` are keys of a step beside them (stripe.passes.choices), in JSON alone.
A pass is imported when it is first asked for. An option named `memory`, `unit` or
`tag` (or their plurals) holds names that the target, or the registry of tags, must know.

Codes: P001 syntax of a pipeline, P002 unknown pass, P003 unknown option, P004 wrong value of an
option, P005 an option that names a memory, unit or tag that is not there, P006 a program that does
not suit its target after a step (stripe.passes.pipeline), P007 an operation or special of a unit that
Stripe does not have; passes have codes of their own from P100 on.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from hwconfigs.model import HwConfig, PassStep
from stripe.diag import CompileError, Diagnostic, InvariantError, Source, Span, did_you_mean, nearest
from stripe.intrinsics import INTRINSICS
from stripe.lexing import Lexer, TokenStream
from stripe.passes.base import Named, Pass
from stripe.passes.choices import choices_json, read_given
from stripe.specials import SPECIALS
from stripe.tags import TAGS

PASSES: dict[str, str] = {
    "canonicalize": "stripe.passes.canonicalize:Canonicalize",
    "split": "stripe.passes.split:Split",
    "factor": "stripe.passes.factor:Factor",
    "symmetry": "stripe.passes.symmetry:Symmetry",
    "prefix": "stripe.passes.prefix:Prefix",
    "bundle": "stripe.passes.bundle:Bundle",
    "fuse": "stripe.passes.fuse:Fuse",
    "stencil": "stripe.passes.stencil:Stencil",
    "stencil-pack": "stripe.passes.stencil_pack:StencilPack",
    "convert": "stripe.passes.convert:Convert",
    "autotile": "stripe.passes.autotile:Autotile",
    "localize": "stripe.passes.localize:Localize",
    "scalarize": "stripe.passes.scalarize:Scalarize",
    "separate": "stripe.passes.separate:Separate",
    "vectorize": "stripe.passes.vectorize:Vectorize",
    "unroll": "stripe.passes.unroll:Unroll",
    "transfer": "stripe.passes.transfer:Transfer",
    "schedule": "stripe.passes.schedule:Schedule",
    "place": "stripe.passes.place:Place",
    "partition": "stripe.passes.partition:Partition",
    "spread": "stripe.passes.spread:Spread",
    "boundary": "stripe.passes.boundary:Boundary",
    "peel-reduction": "stripe.passes.peel_reduction:PeelReduction",
    "transpose": "stripe.passes.transpose:Transpose",
}

Value: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option of a pass, for help and schema. `kind` is its Python type."""

    name: str
    kind: Any
    default: object
    help: str
    unit: str
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What help and documentation say about a pass."""

    name: str
    summary: str
    description: str
    options: tuple[OptionInfo, ...]
    tags_read: tuple[str, ...]
    tags_set: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a step was written: spans in a pipeline text, or a note with the JSON path."""

    step: Span | None = None
    options: Mapping[str, Span] = field(default_factory=dict)
    note: str = ""

    def error(self, code: str, message: str, option: str = "", *notes: str) -> CompileError:
        where = (self.note + (f".{option}" if option else ""),) if self.note else ()
        return CompileError(Diagnostic(code, message, self.options.get(option, self.step), (*notes, *where)))

    def located(self, found: Diagnostic) -> Diagnostic:
        """A diagnostic of the pass itself, with the place of its step."""
        where = (self.note,) if self.note else ()
        return replace(found, span=found.span or self.step, notes=(*found.notes, *where))


@cache
def pass_class(name: str) -> type[Pass]:
    """The class of a registered pass, imported on demand. An unknown name is a KeyError."""
    module, _, cls = PASSES[name].partition(":")
    found: type[Pass] = getattr(importlib.import_module(module), cls)
    if found.name != name:
        raise InvariantError(f"{PASSES[name]} calls itself '{found.name}', the table says '{name}'")
    return found


@cache
def pass_info(name: str) -> PassInfo:
    """Docstring, options and tags of a registered pass. An unknown name is a CompileError."""
    if name not in PASSES:
        raise _unknown_pass(name, _Place())
    cls = pass_class(name)
    summary, _, description = inspect.cleandoc(cls.__doc__ or "").partition("\n")
    return PassInfo(name, summary, description.strip(), _options(cls), cls.tags_read, cls.tags_set)


@cache
def _options(cls: type[Pass]) -> tuple[OptionInfo, ...]:
    kinds = typing.get_type_hints(cls)
    return tuple(
        OptionInfo(
            f.name, kinds[f.name], f.default, f.metadata.get("help", ""), f.metadata.get("unit", ""),
            f.metadata.get("least"), f.metadata.get("most"),
        )
        for f in fields(cls)
        if f.name != "choices"  # which are no option of a pass alone, see stripe.passes.choices
    )  # fmt: skip


def _unknown_pass(name: str, place: _Place) -> CompileError:
    return place.error("P002", f"no pass is named '{name}'", "", *did_you_mean(name, PASSES))


def make_pass(name: str, options: Mapping[str, Any]) -> Pass:
    """A pass with these options (JSON values). Raises CompileError P002, P003 or P004."""
    return _make(name, options, _Place())


def _make(name: str, options: Mapping[str, Any], place: _Place) -> Pass:
    if name not in PASSES:
        raise _unknown_pass(name, place)
    cls = pass_class(name)
    known = {option.name: option for option in _options(cls)}
    values: dict[str, Any] = {}
    if "choices" in options or "others" in options:
        options = dict(options)
        others, where = options.pop("others", "leave"), f"{place.note}.choices".lstrip(".")
        values["choices"] = read_given(name, cls.choice, options.pop("choices", None), others, where)
    for option, value in options.items():
        if option not in known:
            notes = did_you_mean(option, known) if known else (f"'{name}' takes no options",)
            raise place.error("P003", f"the pass '{name}' has no option '{option}'", option, *notes)
        try:
            values[option] = _convert(value, known[option].kind)
        except _WrongValueError:
            expected = f"expected {kind_text(known[option].kind)}, found {value_text(value)}"
            choices = get_args(known[option].kind) if get_origin(known[option].kind) is Literal else ()
            near = nearest(value, map(str, choices)) if isinstance(value, str) else None
            notes = (f"help: did you mean '{near}'?",) if near else ()
            raise place.error("P004", f"option '{option}' of '{name}': {expected}", option, *notes) from None
        outside = _outside(values[option], known[option])
        if outside:
            message = f"option '{option}' of '{name}': expected {outside}, found {value_text(value)}"
            raise place.error("P004", message, option)
    missing = [o.name for o in known.values() if o.default is MISSING and o.name not in values]
    if missing:
        raise place.error("P003", f"the pass '{name}' needs the option '{missing[0]}'")
    return cls(**values)


def _outside(value: object, option: OptionInfo) -> str:
    """The bound that a number breaks, in words."""
    if option.kind == Named and isinstance(value, tuple):
        single = replace(option, kind=int)
        return next((f"{bound} for {name}" for name, n in value if (bound := _outside(n, single))), "")
    if isinstance(value, int | float):
        if option.least is not None and not value >= option.least:
            return f"at least {option.least}"
        if option.most is not None and not value <= option.most:
            return f"at most {option.most}"
    return ""


class _WrongValueError(Exception):
    """A value that does not fit the type of its option."""


def _convert(value: Any, kind: Any) -> Any:
    """A JSON value as the type of an option: nothing is guessed, an int is taken for a float."""
    origin = get_origin(kind)
    if kind == Named:
        if isinstance(value, Mapping):
            return tuple((str(name), _convert(item, int)) for name, item in value.items())
    elif origin in (Union, types.UnionType):
        for member in get_args(kind):
            try:
                return _convert(value, member)
            except _WrongValueError:
                continue
    elif origin is Literal:
        if value in get_args(kind):
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_convert(item, get_args(kind)[0]) for item in value)
    elif kind is types.NoneType:
        if value is None:
            return None
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise _WrongValueError


def kind_text(kind: Any) -> str:
    """The type of an option in words: `integer`, `list of strings`, `integer or none`."""
    if kind == Named:
        return "integers by name"
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(kind_text(member) for member in get_args(kind))
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if origin is tuple:
        return f"list of {kind_text(get_args(kind)[0])}s"
    names = {int: "integer", float: "number", bool: "true or false", str: "string", types.NoneType: "none"}
    return names[kind]


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


def value_text(value: object) -> str:
    """An option's value as a pipeline text writes it; strings that are not words are quoted."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{value_text(name)}={value_text(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, str):
        bare = _WORD.fullmatch(value) and value not in _CONSTANTS
        return value if bare else json.dumps(value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return repr(value) if isinstance(value, int | float) else "an object"


def pass_spec(step: Pass) -> str:
    """The canonical text of a pass: its name, and the options that differ from their defaults."""
    given = [
        f"{o.name}={value_text(json_value(getattr(step, o.name), o.kind))}"
        for o in _options(type(step))
        if o.default is MISSING or getattr(step, o.name) != o.default
    ]
    return f"{step.name}{{{', '.join(given)}}}" if given else step.name


def pass_json(step: Pass) -> dict[str, Any]:
    """The JSON form of a pass, again without options that have their default; with its choices."""
    given = [o for o in _options(type(step)) if o.default is MISSING or getattr(step, o.name) != o.default]
    found = {"pass": step.name} | {o.name: json_value(getattr(step, o.name), o.kind) for o in given}
    if step.choices is not None:
        found["choices"] = choices_json(step.choices.records)
        found |= {} if step.choices.others == "leave" else {"others": step.choices.others}
    return found


def json_value(value: Any, kind: Any) -> Any:
    """The value of an option as JSON has it."""
    if kind == Named:
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


_LEXER = Lexer(
    {
        "skip": r"\s+",
        "string": r'"(?:[^"\\\n]|\\.)*"',
        "number": r"-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)",
        "word": _WORD.pattern,
        "mark": r"[{}\[\],=]",
    },
    "P001",
)


def parse_pipeline(text: str, hw: HwConfig | None = None) -> tuple[PassStep, ...]:
    """The steps of a pipeline text. Raises CompileError P### with the place in the text.

    Passes and their options are checked, and with `hw` the names that options refer to.
    """
    stream = TokenStream(_LEXER.tokens(Source("<pipeline>", text)), "P001")
    steps: list[PassStep] = []
    while stream.peek().kind != "end":
        steps.append(_parse_step(stream, hw))
        if stream.peek().kind != "end":
            stream.expect(",", "between passes")
            if stream.peek().kind == "end":
                raise stream.error("expected a pass after ','")
    return tuple(steps)


def _parse_step(stream: TokenStream, hw: HwConfig | None) -> PassStep:
    name = stream.expect_kind("word", "the name of a pass")
    options: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    if stream.accept("{"):
        while not stream.at("}"):
            key = stream.expect_kind("word", "the name of an option")
            if key.text in options:
                raise stream.error(f"the option '{key.text}' is given twice", key.span)
            stream.expect("=", f"after the option '{key.text}'")
            options[key.text] = _parse_value(stream)
            spans[key.text] = key.span
            if not stream.at("}"):
                stream.expect(",", "or '}' after an option")
        stream.expect("}")
    place = _Place(name.span, spans)
    made = _make(name.text, options, place)
    if hw is not None:
        _check_names(made, hw, place)
    return PassStep(name.text, options)


def _parse_value(stream: TokenStream) -> Value:
    if stream.accept("["):
        items: list[Value] = []
        while not stream.at("]"):
            items.append(_parse_scalar(stream))
            if not stream.at("]"):
                stream.expect(",", "or ']' in a list")
        stream.expect("]")
        return items
    if stream.accept("{"):
        named: dict[str, Value] = {}
        while not stream.at("}"):
            at = stream.peek()
            if at.kind == "string":
                name = str(_parse_scalar(stream))
            else:
                name = stream.expect_kind("word", "a name").text
            if name in named:
                raise stream.error(f"'{name}' is given twice", at.span)
            stream.expect("=", f"after '{name}'")
            named[name] = _parse_scalar(stream)
            if not stream.at("}"):
                stream.expect(",", "or '}' after a value")
        stream.expect("}")
        return named
    return _parse_scalar(stream)


def _parse_scalar(stream: TokenStream) -> Value:
    token = stream.next()
    try:
        match token.kind:
            case "word":
                return _CONSTANTS.get(token.text, token.text)
            case "number":
                return int(token.text) if re.fullmatch(r"-?\d+", token.text) else float(token.text)
            case "string":
                return str(json.loads(token.text))
    except ValueError:
        raise stream.error(f"not a value: {token.text[:60]}", token.span) from None
    raise stream.error(f"expected the value of an option, found '{token.text}'", token.span)


def make_passes(steps: Iterable[PassStep]) -> tuple[Pass, ...]:
    """The passes of a pipeline, text or JSON, in order. Raises CompileError."""
    return tuple(make_pass(step.name, step.options) for step in steps)


def check_pipeline(hw: HwConfig, file: str = "") -> tuple[Pass, ...]:
    """The passes of the target's pipeline, with every name in them checked.

    `file` is where the target was read from, for messages.
    Raises a CompileError with all that is wrong: unknown passes and options, wrong values, and
    memories, units and tags that the target or the registry of tags does not have; also unknown
    operations and specials of its units.
    """
    wrong = list(_unknown_abilities(hw, file))
    passes: list[Pass] = []
    for number, step in enumerate(hw.pipeline):
        place = _Place(note=f"in the pipeline of '{hw.name}'{file and f' ({file})'}, $.pipeline[{number}]")
        try:
            made = _make(step.name, step.options, place)
            _check_names(made, hw, place)
            passes.append(made)
        except CompileError as error:
            wrong.extend(error.diagnostics)
    if wrong:
        raise CompileError(*wrong)
    return tuple(passes)


def _unknown_abilities(hw: HwConfig, file: str) -> Iterator[Diagnostic]:
    """What units are said to do, and Stripe does not know."""
    for unit in hw.units:
        told = (("operation", unit.operations, INTRINSICS), ("special", unit.specials, SPECIALS))
        for kind, names, known in told:
            for name in names:
                if name != "*" and name not in known:
                    where = f"in the {kind}s of the unit '{unit.name}' of '{hw.name}'{file and f' ({file})'}"
                    message = f"no {kind} is named '{name}'"
                    yield Diagnostic("P007", message, None, (*did_you_mean(name, known), where))


_NAMESPACES: dict[str, Callable[[HwConfig], Iterable[str]]] = {
    "memory": lambda hw: [memory.name for memory in hw.memories],
    "unit": lambda hw: [unit.name for unit in hw.units],
    "tag": lambda hw: TAGS,
}
_PLURALS = {"memories": "memory", "units": "unit", "tags": "tag"}


def _check_names(step: Pass, hw: HwConfig, place: _Place) -> None:
    for option in _options(type(step)):
        kind = _PLURALS.get(option.name, option.name)
        value = getattr(step, option.name)
        if kind not in _NAMESPACES or value == option.default:
            continue  # a default such as "" or None means "find out yourself"
        known = tuple(_NAMESPACES[kind](hw))
        for name in (value,) if isinstance(value, str) else value:
            if name not in known:
                owner = "stripec" if kind == "tag" else f"the target '{hw.name}'"
                message = f"option '{option.name}' of '{step.name}': {owner} has no {kind} '{name}'"
                raise place.error("P005", message, option.name, *did_you_mean(name, known))
    try:
        step.check(hw)
    except CompileError as error:
        raise CompileError(*map(place.located, error.diagnostics)) from None
