"""The journal of a sweep: a header, and one line of JSON for each finished point, on disk before it counts.

    {"journal": "stripec explore", "format": 1, ...what is swept, as digests...}
    {"point": 3, "outcome": {...}, "check": "8f3a..."}

A kill may cut off the last line, which is dropped. Anything else that is not as it was written is
refused, and the file stays as it is: a sweep must not go on over results that are not its own.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from stripe.diag import CompileError, Diagnostic
from stripe.files import make_folder
from stripec.exploring.result import Outcome

FORMAT = 1
NAME = "journal.jsonl"
_KIND = "stripec explore"
_LONGEST_HEADER = 1 << 24
_SAID = {  # of what a header holds, for people
    "format": "by another version of the journal",
    "compiler": "by another version of stripec",
    "programs": "for other programs or types of their inputs",
    "target": "for another target",
    "varied": "for other varied fields or values",
    "counts": "with counts of another kind",
    "verify": "with another --verify",
}


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    point: int
    outcome: Outcome
    check: str


class Journal:
    """The journal in a folder, open for one sweep alone; `finished` is what it held."""

    def __init__(self, folder: Path, header: Mapping[str, Any], points: int) -> None:
        """Open it, or make it. `header` is what the sweep is, `points` how many there are.

        Raises CompileError D104 (another sweep's), D105 (damaged), D106 (in use) or D010.
        """
        self.path = folder / NAME
        make_folder(folder)
        self._header = msgspec.json.encode({"journal": _KIND, "format": FORMAT, **header}) + b"\n"
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            self._failed(error)
        try:
            self._lock()
            self.finished = self._read(points)
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return  # a file system without locks
            message = f"'{self.path}' is in use by another stripec explore"
            raise CompileError(
                Diagnostic("D106", message, notes=("help: choose another folder with -o",))
            ) from None

    def _read(self, points: int) -> dict[int, Outcome]:
        """What is finished. A line that was cut off is taken out of the file."""
        data = self._data()
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            if not self._header.startswith(data):
                self._foreign(1, "this is no journal of stripec explore")
            self._write(0, self._header)
            _sync_folder(self.path.parent)
            return {}
        lines = whole.split(b"\n")[:-1]
        self._check_header(lines[0])
        found: dict[int, Outcome] = {}
        for number, text in enumerate(lines[1:], start=2):
            line = _decoded(text)
            if line is None:
                self._damaged(number, "is not as it was written")
            if not 0 <= line.point < points:
                self._damaged(number, f"is about point {line.point}; there are {points}")
            if line.point in found:
                self._damaged(number, f"is about point {line.point}, which is finished above")
            found[line.point] = line.outcome
        if len(whole) < len(data):
            self._write(len(whole), b"")
        return found

    def _data(self) -> bytes:
        """All of the file; of one that does not begin as the journal does, no more than a header has."""
        try:
            status = os.fstat(self._file)
            if not stat.S_ISREG(status.st_mode):
                raise CompileError(Diagnostic("D010", f"can't write '{self.path}': it is no file"))
            begins = os.pread(self._file, len(self._header), 0)
            if begins != self._header:
                return os.pread(self._file, _LONGEST_HEADER, 0)
            return self.path.read_bytes()
        except OSError as error:
            self._failed(error)

    def _check_header(self, text: bytes) -> None:
        if text + b"\n" == self._header:
            return
        try:
            old = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            old = None
        if not isinstance(old, dict) or old.get("journal") != _KIND:
            self._foreign(1, "this is no journal of stripec explore")
        own = msgspec.json.decode(self._header)
        for key in (*_SAID, *own):
            if old.get(key) != own.get(key):
                self._foreign(1, f"it was written {_SAID.get(key, f'with another {key}')}")
        self._damaged(1, "is not as it was written")

    def add(self, point: int, outcome: Outcome) -> None:
        """Note that a point is finished; it is on disk when this returns."""
        self._write(None, _encoded(point, outcome))

    def _write(self, length: int | None, data: bytes) -> None:
        """Append, after cutting the file to a length where one is given."""
        try:
            if length is not None:
                os.ftruncate(self._file, length)
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _failed(self, error: OSError) -> NoReturn:
        message = f"can't write '{self.path}': {error.strerror}"
        raise CompileError(Diagnostic("D010", message)) from None

    def _foreign(self, line: int, message: str) -> NoReturn:
        notes = ("help: choose another folder with -o; this one is left as it is",)
        raise CompileError(Diagnostic("D104", f"{self.path}:{line}: {message}", notes=notes))

    def _damaged(self, line: int, message: str) -> NoReturn:
        notes = (
            f"help: take out line {line} and those below it to go on from there, or choose another folder",
            "note: the file is left as it is",
        )
        raise CompileError(Diagnostic("D105", f"{self.path}:{line}: this line {message}", notes=notes))


def _encoded(point: int, outcome: Outcome) -> bytes:
    return msgspec.json.encode(_Line(point, outcome, _check(point, outcome))) + b"\n"


def _decoded(text: bytes) -> _Line | None:
    """A line, if it is as it was written, to the byte."""
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError):  # a ValidationError is a DecodeError
        return None
    return line if _encoded(line.point, line.outcome) == text + b"\n" else None


def _check(point: int, outcome: Outcome) -> str:
    data = msgspec.json.encode((point, outcome))
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _sync_folder(folder: Path) -> None:
    """So that the new file's name is on disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
