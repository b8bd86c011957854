"""`stripec report`: the arguments of the command, one report or two, one HTML file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic
from stripe.dtypes import TensorType
from stripec.commands import input_types
from stripec.driver import Frontend, read_program, resolve_target
from stripec.files import check_output
from stripec.mappings import mapped, named
from stripec.reporting.api import html_of, make_report, write_report
from stripec.reporting.compare import titles
from stripec.reporting.model import Report
from stripec.threads import with_arguments

_SECONDS_BETWEEN_LINES = (60.0, 5.0)  # and at a terminal


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two programs that are compared, or the only one."""

    frontend: Frontend
    types: dict[str, TensorType]
    hw: HwConfig
    pipeline: str | None
    mapping: str | None


def report(arguments: argparse.Namespace) -> None:
    """Compile, and write the report; with --diff compile twice, and write what differs."""
    out = Path(arguments.out)
    to_stdout = arguments.out == "-"
    if not to_stdout:
        check_output(out)
    sides = _sides(arguments)
    progress = _progress()
    made: list[Report] = [
        make_report(
            side.frontend, side.types, side.hw, pipeline=side.pipeline, constants=tuple(arguments.const),
            verify=arguments.verify, times=not arguments.no_times,
            options=(*named(side.mapping), *_options(arguments)), progress=progress,
        )
        for side in sides
    ]  # fmt: skip
    against = made[0] if len(made) > 1 else None
    if to_stdout:
        sys.stdout.buffer.write(html_of(made[-1], against))
        return
    write_report(out, made[-1], against)
    names = titles(against, made[-1]) if against is not None else (made[-1].title,)
    what = " and ".join(dict.fromkeys(names))
    print(f"{out}: {what}".encode("utf-8", "replace").decode())


def _progress() -> Callable[[str], None]:
    """A line now and then, while a large program takes its time."""
    last, least = time.monotonic(), _SECONDS_BETWEEN_LINES[sys.stderr.isatty()]

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= least:
            last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    return tell


def _sides(arguments: argparse.Namespace) -> list[_Side]:
    files: Sequence[str] = [*arguments.files, *(arguments.diff or ())]
    changes = (
        arguments.diff_target, arguments.diff_pipeline, arguments.diff_mapping, *arguments.diff_shape
    )  # fmt: skip
    compares = arguments.diff is not None or any(given is not None for given in changes)
    if not files:
        raise _error("D070", "no program is given", "help: stripec report A.tile --shape ...")
    if len(files) > 2 or (len(files) == 2 and not compares):
        note = "help: stripec report --diff A.tile B.tile compares two programs"
        raise _error("D070", f"{len(files)} programs are given; a report is of one", note)
    if compares and len(files) == 1 and all(given is None for given in changes):
        note = "help: give a second program, --diff-target, --diff-pipeline, --diff-mapping or --diff-shape"
        raise _error("D071", "--diff has nothing to compare with", note)
    mapping = arguments.mapping
    first = _side(arguments, files, files[0], arguments.target, arguments.shape, arguments.pipeline, mapping)
    if not compares:
        return [first]
    again = {name for name, _ in arguments.diff_shape}
    shapes = [pair for pair in arguments.shape if pair[0] not in again] + arguments.diff_shape
    target = arguments.target if arguments.diff_target is None else arguments.diff_target
    pipeline = arguments.pipeline if arguments.diff_pipeline is None else arguments.diff_pipeline
    if arguments.diff_mapping is not None:
        mapping, pipeline = arguments.diff_mapping, arguments.diff_pipeline
    elif arguments.diff_pipeline is not None:
        mapping = None
    return [first, _side(arguments, files, files[-1], target, shapes, pipeline, mapping)]


def _side(
    arguments: argparse.Namespace,
    files: Sequence[str],
    file: str,
    target: str,
    shapes: Sequence[tuple[str, str]],
    pipeline: str | None,
    mapping: str | None,
) -> _Side:
    if pipeline is not None and mapping is not None:
        note = "help: a mapping is a pipeline with choices: leave one of the two out"
        raise _error("D073", "a pipeline and a mapping are given: both say which passes run", note)
    frontend, hw = mapped(mapping, read_program(Path(file)), resolve_target(target))
    hw = with_arguments(hw, arguments.threads, arguments.deterministic)
    if len(files) > 1:  # each program takes the shapes of its own inputs
        known = {name for path in files for name in read_program(Path(path)).inputs}
        shapes = [(name, text) for name, text in shapes if name in frontend.inputs or name not in known]
    return _Side(frontend, input_types(shapes, frontend), hw, pipeline, mapping)


def _options(arguments: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    found = [
        (flag.strip("-"), " ".join(values)) for flag, values in (("--const", arguments.const),) if values
    ]
    if arguments.threads is not None:
        found.append(("threads", str(arguments.threads)))
    if arguments.deterministic:
        found.append(("deterministic", "yes"))
    if arguments.verify != "on":
        found.append(("verify", arguments.verify))
    return tuple(found)


def _error(code: str, message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic(code, message, notes=notes))
