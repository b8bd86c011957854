"""Mappings: the pipeline of a program with every choice written down, in a file.

    program + target -> passes, each with what it chose -> JSON -> the same program, without a search

`--mapping` and `mapping=` read one; stripec.mapping_made writes it. See docs/mapping.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from hwconfigs.json_text import JsonFault, read_json
from hwconfigs.model import HwConfig, PassStep
from stripe.diag import CompileError, Diagnostic, Source, Span, did_you_mean
from stripe.ir import Program
from stripe.passes.registry import check_pipeline
from stripe.printer import to_text
from stripec.driver import Frontend
from stripec.files import read_source

FORMAT = 1  # of the files; another number is another form


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a mapping was made for: its name, for people, and a digest of all of it. Without a digest
    nothing is compared: each choice is checked where it is made."""

    name: str = ""
    digest: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mapping: int
    pipeline: tuple[dict[str, Any], ...]
    program: Origin = Origin()
    target: Origin = Origin()
    description: str = ""


@dataclass(frozen=True)
class ProgramMapping:
    """The steps of a pipeline with what they choose for the blocks of a program on a target. `file` is where
    it was read from."""

    program: Origin
    target: Origin
    steps: tuple[PassStep, ...]
    description: str = ""
    file: str = ""

    def on(self, hw: HwConfig) -> HwConfig:
        """The target with the mapping as its pipeline. Raises CompileError for another target (D082), and
        for steps that there are not (P002 to P008)."""
        made, given = self.target, target_origin(hw)
        if made.digest and made.digest != given.digest:
            other = bool(made.name) and made.name != hw.name
            what = f"the target is '{hw.name}'" if other else "what it says has changed"
            raise self._foreign("D082", f"the mapping was made for '{made.name}': {what}", "target")
        mapped = msgspec.structs.replace(hw, pipeline=self.steps)
        check_pipeline(mapped, self.file)
        return mapped

    def of(self, frontend: Frontend) -> Frontend:
        """A source whose program must be the one that the mapping is for (else D081)."""
        return replace(frontend, expected=self.check_program) if self.program.digest else frontend

    def check_program(self, program: Program) -> None:
        """Raises CompileError D081 for another program."""
        if self.program.digest != digest(to_text(program)):
            name = f" '{self.program.name}'" if self.program.name else ""
            message = f"the mapping was made for another program{name}, or for other shapes or constants"
            raise self._foreign("D081", message, "program")

    def _foreign(self, code: str, message: str, key: str) -> CompileError:
        place = f"in {self.file}, " if self.file else "at "
        note = "help: without this digest, each choice is tried: it is made, or refused with the reason"
        return CompileError(Diagnostic(code, message, notes=(note, f"{place}$.{key}.digest")))

    def text(self) -> str:
        """The file: JSON with a line for each step and each choice."""
        head: dict[str, object] = {"mapping": FORMAT}
        head |= {"description": self.description} if self.description else {}
        head |= {"program": msgspec.to_builtins(self.program), "target": msgspec.to_builtins(self.target)}
        lines = [f'  "{key}": {json.dumps(value)},' for key, value in head.items()]
        steps = ",\n".join(_step_text({"pass": step.name, **step.options}) for step in self.steps)
        return "\n".join(["{", *lines, '  "pipeline": [', steps, "  ]", "}"]) + "\n"


MappingLike: TypeAlias = "str | os.PathLike[str] | ProgramMapping | None"


def _step_text(step: dict[str, Any]) -> str:
    choices = step.pop("choices", None)
    head = json.dumps(step)
    if choices is None:
        return f"    {head}"
    records = ",\n".join(f"      {json.dumps(path)}: {json.dumps(c)}" for path, c in choices.items())
    inside = f"{{\n{records}\n    }}" if choices else "{}"
    return f'    {head[:-1]}, "choices": {inside}}}'


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def target_origin(hw: HwConfig) -> Origin:
    """All that a target says, but for its pipeline and the words about it."""
    bare = msgspec.structs.replace(hw, pipeline=(), description="")
    return Origin(hw.name, digest(msgspec.json.encode(bare).decode()))


def read_mapping(given: MappingLike) -> ProgramMapping | None:
    """A mapping from its file, or as it is. Raises CompileError D001, or D080 for what is no mapping."""
    if given is None or isinstance(given, ProgramMapping):
        return given
    try:
        path = Path(given)
    except TypeError:
        what = f"mapping is of type {type(given).__name__}"
        raise CompileError(Diagnostic("D080", f"{what}; expected the path of a file")) from None
    return parse_mapping(read_source(path))


def parse_mapping(source: Source) -> ProgramMapping:
    """A mapping from the text of its file. Raises CompileError D080 with the line or the JSON path."""
    data = _json(source)

    def wrong(message: str, path: str, *notes: str) -> CompileError:
        text = f"{source.name} is no mapping: {message}"
        return CompileError(Diagnostic("D080", text, notes=(*notes, f"in {source.name}, {path}")))

    if not isinstance(data, dict) or not isinstance(data.get("mapping"), int):
        raise wrong('it has no number of the format, "mapping"', "$", "help: `stripec map` writes mappings")
    if data["mapping"] != FORMAT:
        raise wrong(f"its format is {data['mapping']}, this stripec reads {FORMAT}", "$.mapping")
    try:
        found = msgspec.convert(data, _File, strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        notes = [n for key in data if key not in _FIELDS for n in did_you_mean(key, _FIELDS)]
        message = message[0].lower() + message[1:].replace("`", "'")
        raise wrong(message, path.rstrip("`") or "$", *notes) from None
    for number, step in enumerate(found.pipeline):
        if not isinstance(step.get("pass"), str):
            raise wrong("a step names no pass", f"$.pipeline[{number}].pass")
    steps = tuple(PassStep(s["pass"], {k: v for k, v in s.items() if k != "pass"}) for s in found.pipeline)
    return ProgramMapping(found.program, found.target, steps, found.description, source.name)


_FIELDS = [f.name for f in msgspec.structs.fields(_File)]


def _json(source: Source) -> object:
    try:
        return read_json(source.text)
    except JsonFault as fault:
        span = Span(source, fault.position, fault.position + 1)
        where = (f"in {source.name}, {fault.path}",) if fault.path else ()
        raise CompileError(Diagnostic("D080", f"this is no JSON: {fault.message}", span, where)) from None


def mapped(given: MappingLike, frontend: Frontend, hw: HwConfig) -> tuple[Frontend, HwConfig]:
    """A source and a target as a mapping wants them; as they are without one."""
    mapping = read_mapping(given)
    return (frontend, hw) if mapping is None else (mapping.of(frontend), mapping.on(hw))


def named(given: MappingLike) -> tuple[tuple[str, str], ...]:
    """What a mapping is called and what it says of itself, for people; nothing without one."""
    found = read_mapping(given)
    if found is None:
        return ()
    said = (("mapping says", found.description),) if found.description else ()
    return (("mapping", found.file or "a mapping"), *said)
