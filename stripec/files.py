"""Reading programs, and writing what a compilation leaves."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path

from stripe.diag import CompileError, Diagnostic, Source
from stripe.files import make_folder
from stripe.ir import Program
from stripe.passes.observers import write_dump

MAX_SOURCE_BYTES = 1 << 24


def read_source(path: Path) -> Source:
    """The text of a program. Raises CompileError D001 if it can't be read as UTF-8 text."""

    def bad(why: str) -> CompileError:
        return CompileError(Diagnostic("D001", f"can't read '{path}': {why}"))

    try:
        if path.is_dir():
            raise bad("it is a directory")
        with path.open("rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise bad(error.strerror or str(error)) from None
    except ValueError as error:
        raise bad(str(error)) from None
    return decode_source(data, str(path))


def decode_source(data: bytes, name: str) -> Source:
    """Bytes of a program as text. Raises CompileError D001 if they are not UTF-8, or too many."""
    if len(data) > MAX_SOURCE_BYTES:
        raise CompileError(Diagnostic("D001", f"'{name}' is longer than {MAX_SOURCE_BYTES >> 20} MiB"))
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CompileError(
            Diagnostic("D001", f"'{name}' is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}")
        ) from None


def check_output(path: Path) -> None:
    """Raises CompileError D010 for a path that no file can be written to: asked ahead of long work."""
    if not path.name or os.path.isdir(path):
        raise CompileError(Diagnostic("D010", f"can't write '{path}': Is a directory"))
    if not os.path.isdir(path.parent):
        message = f"can't write '{path}': there is no folder '{path.parent}'"
        raise CompileError(Diagnostic("D010", message))


def write_dumps(stages: Sequence[tuple[str, Program]], folder: Path) -> None:
    """Write `kernel.stages` as numbered Stripe files, as `--dump-passes` does."""
    make_folder(folder)
    previous: Program | None = None
    for number, (spec, program) in enumerate(stages):
        write_dump(folder, number, spec, program, changed=program is not previous)
        previous = program
