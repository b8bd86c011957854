"""What a peer answers, and helpers that several of them share."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from benchmarks.problems import Array, Problem, Results

Kind = Literal["ours", "library", "compiler", "schedule"]


class Unsupported(Exception):
    """The peer has no way to compute this; the message says why."""


@dataclass(frozen=True)
class Setting:
    """`packed`: constant operands are bound now, and may be packed; else all come with each call."""

    packed: bool = False
    threads: int = 1
    target: str = "host"


@dataclass(frozen=True)
class Prepared:
    """`call` computes once and is what is timed. `result` calls it and gives the result in the layout of
    the problem, or all of several. `note` is shown beside the figures; `tolerance` replaces the usual one,
    where the peer rounds its result to a narrower type."""

    call: Callable[[], object]
    result: Callable[[], Results]
    note: str = ""
    tolerance: float | None = None


class Peer(Protocol):
    """One library or compiler. `default`: it takes part when no peers are named."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def default(self) -> bool: ...

    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""

    def version(self) -> str:
        """As reported, for the record."""

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        """Everything up to the first call. Raises Unsupported."""


def not_installed(*modules: str) -> str:
    """The reason if one of these modules is not there, else empty."""
    gone = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"{', '.join(gone)} not installed" if gone else ""


def version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def quickest(call: Callable[[], object], calls: int) -> float:
    """Seconds of the shortest of a few calls, after one that does not count."""
    call()
    best = math.inf
    for _ in range(calls):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def no_packing(setting: Setting) -> None:
    if setting.packed:
        raise Unsupported("it has no form that packs constant operands ahead")


def library_file(distribution: str, stem: str) -> str:
    """The path of a shared library that a wheel brought; empty if there is none."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    for file in sorted(files, key=lambda file: len(file.name)):
        if file.name.startswith(stem) and ".so" in file.name:
            return str(file.locate())
    return ""
