"""`stripec.report`: compile a program and write down what happened, as one HTML file.

stripec.report(source, shapes={"A": "f32[64,64]", ...}, target="systolic_16", out="report.html")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic
from stripe.dtypes import TensorType
from stripe.files import write_whole
from stripe.ir import Program
from stripe.passes.pipeline import StepReport, check_verify_level
from stripe.passes.registry import make_passes, parse_pipeline
from stripec.api import Specialisation, check_types
from stripec.driver import Frontend, Target, optimise, read_program, resolve_target
from stripec.files import check_output
from stripec.mappings import MappingLike, mapped, named
from stripec.reporting.collect import collect
from stripec.reporting.compare import compare
from stripec.reporting.model import Report
from stripec.reporting.render import render, render_comparison
from stripec.tensors import TypeLike
from stripec.threads import with_arguments


def report(
    source: str | os.PathLike[str] | Program,
    shapes: Mapping[str, TypeLike] | None = None,
    target: Target = "host",
    out: str | os.PathLike[str] | None = None,
    *,
    pipeline: str | None = None,
    threads: int | None = None,
    constants: Collection[str] = (),
    verify: Literal["off", "on", "full"] = "on",
    deterministic: bool = False,
    times: bool = True,
    against: Report | None = None,
    mapping: MappingLike = None,
) -> Report:
    """Compile a program for a target and report what every pass did; `out` is the HTML file to write.

    `pipeline`: passes as text, such as `"canonicalize,autotile{memory=L1}"`, instead of the target's own.
    `constants`: names of inputs that never change. `times=False` leaves out seconds, so that
    the same input gives the same bytes. `against`: another report; then the file compares that one with this.
    `mapping`: a file of `stripec map`, instead of a pipeline. The others are those of `stripec.compile`.

    Raises CompileError, whose text says what is wrong, where, and what to do; then no file is written.
    """
    check_verify_level(verify)
    frontend, hw = mapped(mapping, read_program(source), resolve_target(target))
    hw = with_arguments(hw, threads, deterministic)
    types = frontend.fixed_types() | check_types(frontend, shapes)
    made = make_report(
        frontend, types, hw, pipeline=pipeline, constants=constants, verify=verify, times=times,
        options=(*named(mapping), *_options(threads, deterministic, constants)),
    )  # fmt: skip
    if out is not None:
        write_report(Path(out), made, against)
    return made


def make_report(
    frontend: Frontend,
    types: Mapping[str, TensorType],
    hw: HwConfig,
    *,
    pipeline: str | None = None,
    constants: Collection[str] = (),
    verify: str = "on",
    times: bool = True,
    options: tuple[tuple[str, str], ...] = (),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """The report of a program whose types are known; see `report`. `progress` is told what comes next."""
    for name in constants:
        if name not in frontend.inputs:
            raise CompileError(Diagnostic("D031", f"constant '{name}': the program has no such input"))
    steps = None if pipeline is None else make_passes(parse_pipeline(pipeline, hw))
    program = frontend.lower(types, constants)
    tell = progress or (lambda _: None)
    names = [step.name for step in (hw.pipeline if steps is None else steps)]

    def next_pass(done: StepReport, _: Program) -> None:
        if done.number < len(names):
            tell(f"{frontend.name}: pass {done.number + 1} of {len(names)}, {names[done.number]}")

    done = optimise(program, hw, steps=steps, verify=verify, name=frontend.name, observe=next_pass)
    tell(f"{frontend.name}: counts between passes, the run, and drawings")
    given = [] if pipeline is None else [("pipeline", pipeline or "none")]
    return collect(Specialisation(frontend.name, done, hw), frontend, (*given, *options), times=times)


def write_report(path: Path, made: Report, against: Report | None = None) -> None:
    """Write a report, or how it differs from another, whole or not at all. Raises CompileError D010."""
    check_output(path)
    write_whole(path, html_of(made, against))


def html_of(made: Report, against: Report | None = None) -> bytes:
    """A report as HTML, or how it differs from another. Names of files may hold what is no text."""
    html = render(made) if against is None else render_comparison(compare(against, made))
    return html.encode("utf-8", "replace")


def _options(
    threads: int | None, deterministic: bool, constants: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """What was asked for beside program and target, for the head of the report."""
    found = [("threads", str(threads))] if threads is not None else []
    found += [("deterministic", "yes")] if deterministic else []
    found += [("constants", ", ".join(constants))] if constants else []
    return tuple(found)
