"""Object code kept on disk, for the next process that compiles the same program.

The key is a digest of all that shapes the code: the program's text after its passes, the target,
the versions of LLVM and of our own sources. An entry is one file, written whole through a
temporary one, and carries a checksum: a damaged one is a miss. A folder that can't be read
or written is no cache, and no error. The oldest entries go when the folder grows too large.

A note is a small entry beside these, under a key of what a program was compiled from: it leads to
the object code without a compilation (codegen_cpu.native).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from codegen_cpu.llvm import VERSION
from stripe.diag import CompileError
from stripe.files import make_folder, write_whole

MAX_BYTES = 256 << 20  # of all entries of a folder together
_MAGIC = b"stripec1"
_HEAD = struct.Struct("<8s32s")  # magic, checksum of what follows it
_SIZES = struct.Struct("<QQ")  # of two workspaces
_KEY_BYTES = 32
_SETTLED = 2_000_000_000  # nanoseconds after which a change of a file shows in its times
_OWN = ("codegen_cpu", "stripe", "hwconfigs")  # packages that make code of a program after its passes


@dataclass(frozen=True, slots=True)
class Code:
    """What is kept: the object file, and the bytes of workspace that its functions need."""

    object_code: bytes
    workspace_bytes: int
    load_workspace_bytes: int


def key(folder: Path, *parts: str, packages: tuple[str, ...] = _OWN) -> str:
    """The name of an entry. `packages` are those whose sources count."""
    digest = hashlib.blake2b(_sources(packages, folder), digest_size=_KEY_BYTES)
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@cache
def _sources(packages: tuple[str, ...], folder: Path) -> bytes:
    """A digest of LLVM's version and of our sources, so that another version of us finds nothing of ours.

    To read them all takes as long as the rest of a start. So their digest is a note too, under what the
    file system says of them, which changes with every change of a file: its inode's time above all.
    """
    found: list[tuple[str, str, int, int, int, int]] = []
    try:
        for package in packages:
            home = str(resources.files(package))
            found += [(package + path[len(home) :], path, *stamp) for path, stamp in sorted(_files(home))]
    except OSError:  # no files of their own, as in a zip: then nothing is found
        return os.urandom(_KEY_BYTES)
    stamps = hashlib.blake2b(repr((VERSION, found)).encode(), digest_size=_KEY_BYTES).hexdigest()
    known = find_note(folder, stamps)
    if known is not None:
        return known
    digest = hashlib.blake2b(VERSION.encode(), digest_size=_KEY_BYTES)
    for name, path, *_ in found:
        try:
            content = Path(path).read_bytes()
        except OSError:
            return os.urandom(_KEY_BYTES)
        digest.update(f"{name}:{len(content)}:".encode())
        digest.update(content)
    if max(changed for *_, changed, _ in found) < time.time_ns() - _SETTLED:
        keep_note(folder, stamps, digest.digest())
    return digest.digest()


def _files(folder: str) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Our sources in a folder and those below it, and what changes with each of them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)


def find(folder: Path, name: str) -> Code | None:
    """An entry, if it is there and whole."""
    data = _read(folder / f"{name}.o")
    if data is None or len(data) < _SIZES.size:
        return None
    return Code(data[_SIZES.size :], *_SIZES.unpack_from(data))


def keep(folder: Path, name: str, code: Code) -> None:
    """Add an entry, if the folder can be written, and make room for it."""
    sizes = _SIZES.pack(code.workspace_bytes, code.load_workspace_bytes)
    _write(folder / f"{name}.o", sizes + code.object_code)


def find_note(folder: Path, name: str) -> bytes | None:
    """A note, if it is there and whole."""
    return _read(folder / f"{name}.note")


def keep_note(folder: Path, name: str, note: bytes) -> None:
    """Add a note, if the folder can be written."""
    _write(folder / f"{name}.note", note)


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        os.utime(path)  # used now: it is not the next to go
    except (OSError, ValueError):
        return None
    if len(data) < _HEAD.size:
        return None
    magic, checksum = _HEAD.unpack_from(data)
    content = data[_HEAD.size :]
    if magic != _MAGIC or checksum != hashlib.sha256(content).digest():
        return None
    return content


def _write(path: Path, content: bytes) -> None:
    with contextlib.suppress(CompileError, OSError):
        make_folder(path.parent)
        write_whole(path, _MAGIC + hashlib.sha256(content).digest() + content)
        _trim(path.parent)


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
    return itertools.chain(folder.glob("*.o"), folder.glob("*.note"))
