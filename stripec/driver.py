"""From a source and a target to a compiled program: what the API and the command share.

Tile or Stripe text -> Program -> (verify, pass, verify, ...) -> stages -> codegen_cpu or interpreter
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

from codegen_cpu.host import complete_host, host_target_name
from hwconfigs.load import available, check, load, load_named
from hwconfigs.model import ConfigError, HwConfig
from stripe.delinearize import delinearized
from stripe.diag import CompileError, Diagnostic, Remark, Source, did_you_mean
from stripe.dtypes import TensorType
from stripe.ir import Block, Direction, Program, Refinement, Special
from stripe.parser import parse
from stripe.passes.base import Pass
from stripe.passes.observers import DumpPasses, Timing, validation_text
from stripe.passes.pipeline import Observer, StepReport, VerifyLevel, check_verify_level, run_pipeline
from stripe.passes.registry import check_pipeline, pass_spec
from stripe.verify_ready import unplaced
from stripe.visit import walk
from stripec.files import read_source
from stripec.settings import read_settings
from tile_frontend import compile_tile, signature

_LAST_OF_PLACED = "place"  # a pipeline that ends with it leaves nothing without address or unit
_UNNAMED = "main"  # what a program is called that has no name; one from a file is called after it

Target: TypeAlias = "str | os.PathLike[str] | HwConfig"


def resolve_target(target: Target) -> HwConfig:
    """The config that `target` means: `host`, a shipped name, the path of a JSON file, or itself.

    Raises CompileError H### where the config is wrong.
    """
    try:
        if isinstance(target, HwConfig):
            check(target)
            return target
        if not _is_one_of(target, str, os.PathLike):
            what = f"the target is of type {type(target).__name__}"
            raise ConfigError(f"{what}; expected a name, the path of a JSON file or a HwConfig", code="H001")
        text = os.fspath(target)
        if text == "host":
            return _host()
        if text.endswith(".json") or "/" in text or not isinstance(target, str):
            found = load(text)
            check_pipeline(found, text)
            return found
        if text not in available():
            near = did_you_mean(text, ("host", *available()))
            raise ConfigError(f"no target is named '{text}'", code="H001", notes=near)
        return load_named(text)
    except ConfigError as error:
        place = f"{error.file}: " if error.file else ""
        where = f", at {error.path}" if error.path != "$" else ""
        raise CompileError(
            Diagnostic(error.code, f"{place}{error.message}{where}", notes=error.notes)
        ) from None


def _is_one_of(value: object, *kinds: type) -> bool:
    """isinstance, for arguments of callers that no type checker looks at."""
    return isinstance(value, kinds)


@cache
def _host() -> HwConfig:
    return complete_host(load_named(host_target_name()))


@dataclass(frozen=True)
class Frontend:
    """A source that was read: its inputs and outputs by name, and the way to its program.

    `fixed` is the program of a Stripe text, whose types are part of it; None for Tile, where `written` has
    the types that the text gives in full. `expected` raises CompileError for any but the program that a
    mapping is for.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: Source | None
    fixed: Program | None
    written: Mapping[str, TensorType] = field(default_factory=dict)
    expected: Callable[[Program], None] | None = None
    forms: Mapping[str, str] = field(default_factory=dict)

    def form(self, name: str) -> str:
        """The type of an input as far as the source says it, for people: `i8[H,W,C]`."""
        return self.forms.get(name, "f32[...]")

    def lower(self, types: Mapping[str, TensorType], constants: Collection[str]) -> Program:
        """The program for these types of its inputs; `constants` are inputs that never change."""
        if self.fixed is not None:
            for ref in self.fixed.inputs:
                if types[ref.name] != _type_of(ref):
                    message = f"input '{ref.name}' is {types[ref.name]}; the program takes {_type_of(ref)}"
                    raise CompileError(Diagnostic("D023", message))
            program = self.fixed
        else:
            assert self.source is not None  # a frontend has a source or a program
            program = compile_tile(self.source, types)
        program = _with_constants(program, constants)
        if self.expected is not None:
            self.expected(program)
        return program

    def fixed_types(self) -> dict[str, TensorType]:
        """The types of the inputs, as far as the source settles them."""
        if self.fixed is None:
            return dict(self.written)
        return {ref.name: _type_of(ref) for ref in self.fixed.inputs}


def _type_of(ref: Refinement) -> TensorType:
    return TensorType(ref.dtype, ref.shape)


def _with_constants(program: Program, constants: Collection[str]) -> Program:
    if not constants:
        return program
    refinements = tuple(
        replace(ref, const=True) if ref.direction is Direction.IN and ref.name in constants else ref
        for ref in program.root.refinements
    )
    return replace(program, root=replace(program.root, refinements=refinements))


def read_program(source: str | os.PathLike[str] | Source | Program) -> Frontend:
    """Tile text, the path of a Tile or (`*.stripe`) Stripe file, or a program. Raises CompileError."""
    if isinstance(source, os.PathLike):
        path = Path(source)
        text = read_source(path)
        found = read_program(parse(text) if path.suffix == ".stripe" else text)
        return replace(found, name=path.stem) if found.name == _UNNAMED else found
    if isinstance(source, Program):
        inputs = tuple(ref.name for ref in source.inputs)
        return Frontend(source.root.name, inputs, tuple(ref.name for ref in source.outputs), None, source)
    text = Source("<string>", source) if isinstance(source, str) else source
    if not _is_one_of(text, Source):
        message = f"the source is of type {type(source).__name__}; expected Tile text, a path or a program"
        raise CompileError(Diagnostic("D001", message))
    try:
        names = signature(text)
    except CompileError as error:
        if "\n" not in text.text and Path(text.text).suffix in (".tile", ".stripe"):
            note = 'help: a string is the text of a program; read a file with pathlib.Path("...")'
            first = error.diagnostics[0]
            raise CompileError(replace(first, notes=(*first.notes, note))) from None
        raise
    return Frontend(
        names.name, names.inputs, names.outputs, text, None, dict(names.types), None, dict(names.forms)
    )


@dataclass(frozen=True)
class Compilation:
    """A program after every pass. `stages` begins with the input, as the pair ("input", program)."""

    program: Program
    stages: tuple[tuple[str, Program], ...]
    reports: tuple[StepReport, ...]

    @property
    def signature(self) -> tuple[Refinement, ...]:
        """What callers give and get: `program` may see it in other shapes (stripe.delinearize)."""
        root = self.stages[0][1].root
        return tuple(ref for ref in root.refinements if ref.direction is not Direction.NEW)

    @property
    def validation(self) -> str:
        """What translation validation found, in a few lines; empty if it was not asked for."""
        return validation_text(self.reports)

    @property
    def untiled(self) -> Program:
        """The program with its kernels formed, and none of them tiled or with buffers in memories: the last
        one with the kernels that go into memories before a pass puts loops around their loops."""
        found = [program for _, program in self.stages]
        placed = next((at for at, program in enumerate(found) if _has_places(program)), len(found))
        formed = _kernels(found[max(placed - 1, 0)])
        begin = next(at for at, program in enumerate(found) if _kernels(program) == formed)
        depth = _depth(found[begin].root)
        deeper = (at for at in range(begin, placed) if _depth(found[at].root) > depth)
        return found[next(deeper, max(placed, begin + 1)) - 1]

    @property
    def remarks(self) -> tuple[Remark, ...]:
        return tuple(remark for report in self.reports for remark in report.remarks)


def _kernels(program: Program) -> list[str]:
    return [s.name for s in program.root.statements if isinstance(s, Block | Special)]


def _depth(block: Block) -> int:
    return 1 + max(map(_depth, block.children), default=0)


def _has_places(program: Program) -> bool:
    """Whether a buffer of the program lies in a memory."""
    return any(ref.location is not None for _, block in walk(program.root) for ref in block.refinements)


def begun(program: Program, hw: HwConfig) -> Program:
    """What the pipeline of a target begins with: on a CPU, arrays may be seen in other shapes."""
    return delinearized(program) if hw.executor == "cpu" else program


def optimise(
    program: Program,
    hw: HwConfig,
    *,
    steps: Sequence[Pass] | None = None,
    verify: str = "on",
    dumps: Path | None = None,
    name: str = "main",
    observe: Observer | None = None,
) -> Compilation:
    """Run the target's pipeline, or `steps`; `dumps` is a folder for a text after each pass; `name` is what
    STRIPEC_DEBUG=dump calls its folder; `observe` is called after each pass.

    A pipeline of a target that ends with the pass `place` has to leave a program that the target can
    run as it stands: every buffer at an address, every statement on a unit (else V065).
    """
    settings = read_settings()
    check_verify_level(verify)
    level: VerifyLevel = "full" if verify == "full" else "on" if verify == "on" or settings.verify else "off"
    passes = check_pipeline(hw) if steps is None else tuple(steps)
    stages = [("input", program)]
    if steps is None:
        program = begun(program, hw)
    reports: list[StepReport] = []
    timing = Timing()

    def collect(report: StepReport, result: Program) -> None:
        stages.append((pass_spec(report.step), result))
        reports.append(report)

    observers: list[Observer] = [collect, timing, *([observe] if observe else [])]
    if settings.dump and dumps is None:
        dumps = Path("stripec-dumps") / name
    if dumps is not None:
        observers.append(DumpPasses(dumps, program))
    result = run_pipeline(program, passes, hw, observers=observers, verify=level)
    if settings.time:
        print(timing.table(), file=sys.stderr)
    if steps is None and passes and passes[-1].name == _LAST_OF_PLACED:
        lacking = unplaced(result, hw)
        if lacking:
            note = f"note: the pipeline of '{hw.name}' ends with '{_LAST_OF_PLACED}' and leaves it so"
            raise CompileError(*(replace(found, notes=(*found.notes, note)) for found in lacking))
    return Compilation(result, tuple(stages), tuple(reports))
