"""No command writes over a file that it reads, nor two of its results to one file."""

from __future__ import annotations

import argparse
import os.path
from collections.abc import Iterator
from pathlib import Path

from stripe.diag import CompileError, Diagnostic

CODE = {"obj": ".o", "shared": ".so"}  # what is emitted with a C header beside it, and how it is named

_READ = ("file", "files", "diff", "programs", "mapping", "diff_mapping", "target", "diff_target", "input")
_WRITTEN = ("out", "output", "trace")


def check_outputs(arguments: argparse.Namespace) -> None:
    """Raises CompileError D012 for a result that would go to a file that the command reads, or that another
    result goes to, by whichever names."""
    named = [path for name in _READ for path in _paths(arguments, name)]
    taken = {os.path.realpath(path): "is a file that is read" for path in named if os.path.isfile(path)}
    for path in _results(arguments):
        if "\0" in path or (os.path.exists(path) and not os.path.isfile(path)):
            continue  # a device takes several; what can't be written is said where it should be
        place = os.path.realpath(path)
        if place in taken:
            note = "help: give each result a file of its own"
            raise CompileError(Diagnostic("D012", f"can't write '{path}': it {taken[place]}", notes=(note,)))
        taken[place] = "is where another result goes"


def code_file(arguments: argparse.Namespace) -> Path:
    """Where object code goes, or a library."""
    if arguments.out is not None:
        return Path(arguments.out)
    return Path(Path(arguments.file).stem + CODE[arguments.emit])


def has_header(code: Path) -> bool:
    """Whether a C header goes beside a file of code: a name for it can be made, and it is no device."""
    return bool(code.name) and (not os.path.exists(code) or os.path.isfile(code))


def _results(arguments: argparse.Namespace) -> Iterator[str]:
    if getattr(arguments, "emit", "") in CODE and arguments.out != "-":
        code = code_file(arguments)
        yield str(code)
        if has_header(code):
            yield str(code.with_suffix(".h"))
        return
    for name in _WRITTEN:
        yield from _paths(arguments, name)


def _paths(arguments: argparse.Namespace, name: str) -> Iterator[str]:
    """The files that an argument names: itself, or each of several, which may be given as NAME=FILE."""
    value = getattr(arguments, name, None)
    for entry in value if isinstance(value, list) else [value]:
        text = entry[1] if isinstance(entry, tuple) else entry
        if text is None or text == "-" or "\0" in text:
            continue
        yield text
        if name == "programs" and "=" in text:
            yield text.partition("=")[2]
