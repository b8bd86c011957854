"""Files are written whole or not at all: an older file stays as it was when writing fails."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from stripe.diag import CompileError, Diagnostic


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file through a temporary one beside it. Raises CompileError D010 on failure."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)  # a terminal, a pipe or a device: it can't be replaced
        else:
            _replace(path.resolve(), data)  # what a link points to, not the link
    except (OSError, ValueError) as error:
        raise CompileError(Diagnostic("D010", f"can't write '{path}': {_reason(error)}")) from None


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}")
    # Created with the mode that the umask gives, unlike the files of the tempfile module.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and its parents. Raises CompileError D010 if there is no way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise CompileError(Diagnostic("D010", f"can't make the folder '{path}': {_reason(error)}")) from None


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
