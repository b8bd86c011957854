"""This machine: what its CPU can do, by LLVM's word, and its caches, by the operating system's.

`host_target_name` picks the shipped config that fits best; `complete_host` fills in what was
found; `check_runs_here` refuses code that this CPU could not run.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from codegen_cpu.llvm import architecture
from codegen_cpu.llvm import binding as llvm
from codegen_cpu.target import process_triple
from codegen_cpu.tiles import ASK, ASK_FOR, TILE_DATA
from hwconfigs.load import shipped_cpus
from hwconfigs.model import Cpu, HwConfig, Memory
from stripe.diag import CompileError, Diagnostic

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

# Words in triples of systems whose functions take their arguments elsewhere, or have other pointers, than an
# architecture's functions do on all others.
_CONVENTIONS = ("windows", "win32", "mingw", "cygwin", "uefi", "x32", "ilp32")


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the optional instructions that this CPU has and the system allows."""
    found = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    return found if "amx-tile" not in found or _tiles_granted() else found - {n for n in found if "amx" in n}


def _tiles_granted() -> bool:
    """Whether this process may use the registers of AMX: Linux wants to be asked, once, and then keeps room
    for them in every thread."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        answer: int = ctypes.CDLL(None).syscall(ASK, ASK_FOR, TILE_DATA)
    except (AttributeError, OSError):
        return False
    return answer == 0


@cache
def host_target_name() -> str:
    """The shipped config for this machine: one measured on its CPU, else of those for any CPU whose
    features it has the one with most."""
    here = str(llvm.get_host_cpu_name())
    fitting = [
        (bool(cpu.measured_on), len(cpu.features), bool(cpu.triple), name)
        for name, cpu in shipped_cpus().items()
        if not _missing(cpu) and (not cpu.measured_on or here in cpu.measured_on)
    ]
    return max(fitting)[-1] if fitting else "generic"


def _missing(cpu: Cpu) -> list[str]:
    """What this machine lacks of a config: its architecture, or features."""
    here, wanted = process_triple(), cpu.triple or process_triple()
    if architecture(here) != architecture(wanted):
        return [architecture(wanted)]
    # A baseline of an architecture is not always listed as a feature.
    baseline = {"neon"} if architecture(here) == "aarch64" else set()
    return sorted(set(cpu.features) - host_features() - baseline)


def complete_host(hw: HwConfig) -> HwConfig:
    """A config with this machine's CPU, features and cache sizes filled in.

    Raises CompileError C004 where the config asks for what this CPU has not.
    """
    if hw.cpu is None:
        return hw
    _check(hw.name, hw.cpu)
    cpu = Cpu(
        triple=process_triple(),
        cpu=str(llvm.get_host_cpu_name()),
        features=tuple(sorted(host_features() | set(hw.cpu.features))),
    )
    return msgspec.structs.replace(hw, cpu=cpu, memories=_with_caches(hw.memories))


def check_runs_here(hw: HwConfig) -> None:
    """Raises CompileError C004 if code for this config can't run in this process."""
    if hw.cpu is None:
        return
    _check(hw.name, hw.cpu)
    if _is_called_otherwise(hw.cpu):
        raise CompileError(
            Diagnostic(
                "C004",
                f"target '{hw.name}' is for '{hw.cpu.triple}', whose functions are not called "
                f"as those of this process ('{process_triple()}') are",
                notes=(_help(),),
            )
        )


def runs_here(hw: HwConfig) -> bool:
    """Whether code for this config can run in this process."""
    return hw.cpu is None or not (_missing(hw.cpu) or _is_called_otherwise(hw.cpu))


def _is_called_otherwise(cpu: Cpu) -> bool:
    here, wanted = (
        [word for word in _CONVENTIONS if word in triple.lower()] for triple in (process_triple(), cpu.triple)
    )
    return bool(cpu.triple) and here != wanted


def _check(name: str, cpu: Cpu) -> None:
    missing = _missing(cpu)
    if missing:
        raise CompileError(
            Diagnostic(
                "C004",
                f"target '{name}' needs {', '.join(missing)}, which this machine's CPU "
                f"({llvm.get_host_cpu_name()}) does not have",
                notes=(_help(),),
            )
        )


def _help() -> str:
    return f"help: use target 'host' (here '{host_target_name()}'), or compile to an object file"


# -- caches ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cache:
    """A data cache that the operating system reports."""

    level: int
    bytes: int
    line_bytes: int
    ways: int | None


def host_caches(folder: Path = _CACHES) -> tuple[Cache, ...]:
    """The data caches of this machine, nearest first; none where the system does not say."""
    return tuple(sorted(_read_caches(folder), key=lambda c: c.level))


def _read_caches(folder: Path) -> Iterator[Cache]:
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            size = _size((index / "size").read_text().strip())
            line = int((index / "coherency_line_size").read_text())
            level = int((index / "level").read_text())
            ways = int((index / "ways_of_associativity").read_text())
        except (OSError, ValueError):
            continue
        if size > 0 and line > 0:
            yield Cache(level, size, line, ways if ways > 0 else None)


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def _with_caches(memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """The nth cached memory of the config is the nth cache of the machine."""
    found = iter(host_caches())
    completed = []
    for memory in memories:
        cache_ = next(found, None) if memory.kind == "cached" else None
        if cache_ is not None:
            memory = msgspec.structs.replace(
                memory, bytes=cache_.bytes, line_bytes=cache_.line_bytes, ways=cache_.ways or memory.ways
            )
        completed.append(memory)
    return tuple(completed)
