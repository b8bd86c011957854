"""On how many threads kernels run, and which OpenMP runtime runs them."""

from __future__ import annotations

import warnings

import msgspec
import numpy as np

from codegen_cpu.parallel_runtime import EXTRA, runtime, usable_cores
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic
from stripec.settings import threads_wanted

MAX_THREADS = 1024
_DEALS = "partition"  # the pass that deals kernels out to units

_warned: list[bool] = []


class NoRuntime(RuntimeWarning):
    """There is no OpenMP runtime; kernels for several threads run on one."""


def openmp() -> str:
    """Which OpenMP runtime this process uses, and where it was found; `none` if there is none."""
    found = runtime()
    return "none" if found is None else str(found)


def check_threads(threads: object) -> int | None:
    """The number of threads asked for. Raises CompileError D004 for one that can't be."""
    if threads is None:
        return None
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise _error(f"threads is {threads!r:.40}; expected a positive integer or None")
    if threads > MAX_THREADS:
        raise _error(f"threads={threads}: more than {MAX_THREADS} are not supported")
    return int(threads)


def threads_for(hw: HwConfig, threads: int | None) -> int:
    """On how many threads code for a target runs in this process.

    `threads` if given, else OMP_NUM_THREADS, else as many as the target has copies of its unit, if these
    are several, else one for each core that the process may use. One, with a warning, where no
    OpenMP runtime is found.
    """
    if hw.executor != "cpu":
        if threads is not None and threads > 1:
            _refuse_other(hw, threads)
        return 1
    wanted = threads if threads is not None else threads_wanted(MAX_THREADS)
    if wanted is None:
        wanted = min(copies(hw) if copies(hw) > 1 else usable_cores(), MAX_THREADS)
    if wanted > 1 and runtime() is None:
        if not _warned:
            _warned.append(True)
            warnings.warn(
                "no OpenMP runtime was found: kernels run on one thread; "
                f"pip install 'stripec[openmp]' brings one ({EXTRA}), as does the system's libgomp",
                NoRuntime,
                stacklevel=3,
            )
        return 1
    return wanted


def with_threads(hw: HwConfig, threads: int, deterministic: bool = False) -> HwConfig:
    """The target with as many copies of its computing unit as there are threads.

    `deterministic`: steps of its pipeline that could let results depend on that number do not.
    """
    if hw.executor != "cpu":
        return hw
    first = hw.compute_unit.name if hw.compute_unit else None
    units = tuple(msgspec.structs.replace(u, count=threads) if u.name == first else u for u in hw.units)
    steps = hw.pipeline
    if deterministic:
        steps = tuple(
            msgspec.structs.replace(s, options={**s.options, "deterministic": True})
            if s.name == _DEALS
            else s
            for s in steps
        )
    return msgspec.structs.replace(hw, units=units, pipeline=steps)


def with_arguments(hw: HwConfig, threads: int | None, deterministic: bool) -> HwConfig:
    """The target for code that runs elsewhere: as many threads as were asked for, or as it says itself."""
    threads = check_threads(threads)
    if threads is not None and threads > 1:
        _refuse_other(hw, threads)
    return with_threads(hw, threads if threads is not None else copies(hw), deterministic)


def _refuse_other(hw: HwConfig, threads: int) -> None:
    if hw.executor != "cpu":
        raise _error(
            f"threads={threads}: programs of '{hw.name}' don't run on cores of a CPU",
            "help: leave threads out; how many units a target has stands in its config",
        )


def copies(hw: HwConfig) -> int:
    """How many copies a target has of the unit that runs code."""
    return hw.compute_unit.count if hw.compute_unit else 1


def _error(message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic("D004", message, notes=notes))
