"""Object code kept on disk, for the next process that compiles the same program.

The key is a digest of all that shapes the code: the program's text after its passes, the target,
the versions of llvmlite and of our own sources. An entry is one file, written whole through a
temporary one, and carries a checksum: a damaged one is a miss. A folder that can't be read
or written is no cache, and no error. The oldest entries go when the folder grows too large.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from stripe.diag import CompileError
from stripe.files import make_folder, write_whole

MAX_BYTES = 256 << 20  # of all entries of a folder together
_MAGIC = b"stripec1"
_HEAD = struct.Struct("<8s32sQQ")  # magic, checksum of what follows it, two workspace sizes
_CHECKED_FROM = len(_MAGIC) + 32


@dataclass(frozen=True, slots=True)
class Code:
    """What is kept: the object file, and the bytes of workspace that its functions need."""

    object_code: bytes
    workspace_bytes: int
    load_workspace_bytes: int


def key(*parts: str) -> str:
    """The name of an entry."""
    digest = hashlib.sha256(_sources())
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@cache
def _sources() -> bytes:
    """A digest of the code generator itself, so that another version of it finds nothing of ours."""
    digest = hashlib.sha256(version("llvmlite").encode())
    for package in ("codegen_cpu", "stripe"):
        files = (f for f in resources.files(package).iterdir() if f.name.endswith(".py"))
        for file in sorted(files, key=lambda f: f.name):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.digest()


def find(folder: Path, name: str) -> Code | None:
    """An entry, if it is there and whole."""
    path = folder / f"{name}.o"
    try:
        data = path.read_bytes()
        os.utime(path)  # used now: it is not the next to go
    except (OSError, ValueError):
        return None
    if len(data) < _HEAD.size:
        return None
    magic, checksum, workspace, load_workspace = _HEAD.unpack_from(data)
    if magic != _MAGIC or checksum != hashlib.sha256(data[_CHECKED_FROM:]).digest():
        return None
    return Code(data[_HEAD.size :], workspace, load_workspace)


def keep(folder: Path, name: str, code: Code) -> None:
    """Add an entry, if the folder can be written, and make room for it."""
    rest = struct.pack("<QQ", code.workspace_bytes, code.load_workspace_bytes) + code.object_code
    data = _MAGIC + hashlib.sha256(rest).digest() + rest
    with contextlib.suppress(CompileError, OSError):
        make_folder(folder)
        write_whole(folder / f"{name}.o", data)
        _trim(folder)


def _trim(folder: Path) -> None:
    """Remove the entries that were used longest ago, down to three quarters of the limit.

    Other processes may do the same at the same time: a file that is gone is no fault.
    """
    entries: list[tuple[float, int, Path]] = []
    for path in _entries(folder):
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= MAX_BYTES:
        return
    for _, size, path in sorted(entries):
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
        if total <= MAX_BYTES * 3 // 4:
            return


def _entries(folder: Path) -> Iterable[Path]:
    return folder.glob("*.o")
