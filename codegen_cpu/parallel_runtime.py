"""The OpenMP runtime that runs parallel regions: found when a first kernel needs it, and never replaced.

    1. one that the process has loaded already, for example with another library of arrays
    2. the one of the package `intel-openmp`, which `pip install 'stripec[openmp]'` brings
    3. the system's: libgomp, LLVM's libomp, Intel's libiomp5

One runtime for a process is enough: two have two teams of threads, which take the cores from each other.
It makes our threads; how these wait is ours to say (codegen_cpu.parallel_dispatch), whichever runtime
it is and whoever loaded it.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from codegen_cpu.parallel import FORK, THREAD

EXTRA = "intel-openmp"  # the package that brings a runtime
_NAMES = ("libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so", "libomp.dylib")
_FILE = re.compile(r"lib(gomp|omp|iomp5)\b[^/]*\.(so|dylib)[^/]*$")

SPIN_NANOSECONDS = 50_000  # about what it takes to wake a thread that sleeps on another core
_ACTIVE = 200_000_000  # what Intel's runtime takes for a long time
_BLOCK_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(us|ms|s)?|infinite|infinity)")
_PLACES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_NANOSECONDS = {"us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True, slots=True)
class Runtime:
    """An OpenMP runtime in this process. `found` says where it comes from."""

    path: str
    found: str
    symbols: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.path} ({self.found})"


# A fork waits until nobody holds it: the child may know a runtime only if it is loaded whole.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_known: list[Runtime | None] = []


def runtime() -> Runtime | None:
    """The runtime of this process, loaded if it has to be; None if there is none."""
    with _lock:
        if not _known:
            _known.append(next(_candidates(), None))
        return _known[0]


def _candidates() -> Iterator[Runtime]:
    if sys.platform == "win32":
        return
    for path in loaded_runtimes():
        yield from _opened(path, "it was loaded already")
    for path in _of_extra():
        yield from _opened(path, f"of the package {EXTRA}")
    for name in _NAMES:
        yield from _opened(name, "the system's")


def loaded_runtimes() -> list[str]:
    """The files of OpenMP runtimes that this process has mapped."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = (line[line.index("/") :] for line in lines if "/" in line and "x" in line.split()[1])
    return [path for path in dict.fromkeys(paths) if _FILE.search(path)]


def _of_extra() -> list[str]:
    try:
        listed = files(EXTRA) or []
    except PackageNotFoundError:
        return []
    return [
        str(Path(str(f.locate())).resolve()) for f in listed if f.name in ("libiomp5.so", "libiomp5.dylib")
    ]


def _opened(path: str, found: str) -> Iterator[Runtime]:
    """The runtime in a file, if it is one that can be used."""
    try:
        library = ctypes.CDLL(path)
        symbols = tuple((name, _address(library, name)) for name in (FORK, THREAD))
    except (OSError, AttributeError):
        return
    yield Runtime(path, found, symbols)


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def idle_nanoseconds() -> int:
    """How long threads spin between calls before they sleep, as the environment says for OpenMP's."""
    environment = os.environ
    found = _BLOCK_TIME.fullmatch(environment.get("KMP_BLOCKTIME", "").strip().lower())
    if found is not None:
        return int(float(found[1]) * _NANOSECONDS[found[2] or "ms"]) if found[1] else _ACTIVE
    if environment.get("GOMP_SPINCOUNT", "").strip() == "0":
        return 0
    policy = environment.get("OMP_WAIT_POLICY", "").strip().lower()
    return {"passive": 0, "active": _ACTIVE}.get(policy, SPIN_NANOSECONDS)


def binds_threads() -> bool:
    """Whether the environment says on which cores threads of OpenMP run."""
    said = {name: os.environ.get(name, "").strip().lower() for name in _PLACES}
    bound = said.pop("OMP_PROC_BIND") not in ("", "false")
    return bound or any(value and "none" not in value and "disabled" not in value for value in said.values())


def usable_cores() -> int:
    """How many cores this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return max(1, os.cpu_count() or 1)
