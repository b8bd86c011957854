"""`stripec map` and `stripec.mapping`: what passes choose for a program, as a file that says all of it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from hwconfigs.model import HwConfig, PassStep
from stripe.diag import CompileError, Diagnostic, InvariantError, did_you_mean
from stripe.files import write_whole
from stripe.ir import Program
from stripe.passes.choices import choices_json
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_json
from stripe.printer import to_text
from stripec.api import check_types
from stripec.commands import input_types, print_validation
from stripec.driver import Compilation, Frontend, Target, optimise, read_program, resolve_target
from stripec.mappings import MappingLike, Origin, ProgramMapping, digest, read_mapping, target_origin
from stripec.tensors import TypeLike
from stripec.threads import with_arguments


def mapping(
    source: str | os.PathLike[str] | Program,
    shapes: Mapping[str, TypeLike] | None = None,
    target: Target = "host",
    out: str | os.PathLike[str] | None = None,
    *,
    given: MappingLike = None,
    threads: int | None = None,
    constants: Collection[str] = (),
    verify: str = "on",
    deterministic: bool = False,
) -> ProgramMapping:
    """Compile a program for a target and write down every choice; `out` is the file to write.

    `given`: a mapping, of which steps without choices, and blocks left to `"others": "search"`, are searched
    for. `constants`: names of inputs that never change. The other arguments are those of `stripec.compile`.

    Raises CompileError, whose text says what is wrong, where, and what to do; then no file is written.
    """
    frontend = read_program(source)
    types = frontend.fixed_types() | check_types(frontend, shapes)
    program = frontend.lower(types, _known(frontend, constants))
    hw, first = resolve_target(target), read_mapping(given)
    found, _ = _made(frontend, program, hw, first, threads, deterministic, verify)
    if out is not None:
        write_whole(Path(out), found.text())
    return found


def command(arguments: argparse.Namespace) -> None:
    """`stripec map`."""
    first = read_mapping(arguments.mapping)
    frontend = read_program(Path(arguments.file))
    constants = _known(frontend, arguments.const)
    program = frontend.lower(input_types(arguments.shape, frontend), constants)
    hw, threads = resolve_target(arguments.target), arguments.threads
    found, done = _made(frontend, program, hw, first, threads, arguments.deterministic, arguments.verify)
    print_validation(done.validation)
    if arguments.out in (None, "-"):
        sys.stdout.write(found.text())
    else:
        write_whole(Path(arguments.out), found.text())


def _known(frontend: Frontend, constants: Collection[str]) -> Collection[str]:
    for name in constants:
        if name not in frontend.inputs:
            message = f"constant '{name}': the program has no such input"
            raise CompileError(Diagnostic("D031", message, notes=did_you_mean(name, frontend.inputs)))
    return constants


def _made(
    frontend: Frontend,
    program: Program,
    base: HwConfig,
    given: ProgramMapping | None,
    threads: int | None,
    deterministic: bool,
    verify: str,
) -> tuple[ProgramMapping, Compilation]:
    """The mapping of a program, which was replayed, and the compilation that it is from."""
    if given is not None:
        given.of(frontend)
        if given.program.digest:
            given.check_program(program)
    own = base if given is None else given.on(base)
    done = optimise(program, with_arguments(own, threads, deterministic), verify=verify, name=frontend.name)
    origin = Origin(frontend.name, digest(to_text(program)))
    steps = tuple(map(_step, done.reports))
    found = ProgramMapping(origin, target_origin(base), steps, given.description if given else "")
    again = optimise(program, with_arguments(found.on(base), threads, deterministic), verify="off")
    for report, one, other in zip(done.reports, done.stages[1:], again.stages[1:], strict=True):
        if one[1] != other[1] and to_text(one[1]) != to_text(other[1]):
            step = f"'{report.step.name}' (step {report.number})"
            raise InvariantError(f"{step} makes another program of the choices that it made")
    return found, done


def _step(report: StepReport) -> PassStep:
    """A step with what it chose."""
    options = pass_json(report.step)
    name = options.pop("pass")
    options.pop("others", None)
    if type(report.step).choice is not None:
        options["choices"] = choices_json(report.choices)
    return PassStep(name, options)
