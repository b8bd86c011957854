"""One group of points, measured: programs are compiled once, and simulated once for each set of rates.

    Job (programs) and Task (targets for which programs compile to the same) -> Outcomes, in order

This is what other processes and machines run; it depends on nothing but its arguments.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from hwconfigs.model import HwConfig
from simulator import Simulation, simulate
from simulator.prices import priced, unpriced
from stripe.diag import CompileError, InvariantError
from stripe.ir import Program
from stripec.collector import collector_paused
from stripec.driver import Compilation, optimise
from stripec.exploring.result import Bounds, Measured, MemoryTotals, Outcome


@dataclass(frozen=True, slots=True)
class Workload:
    """A program and what it is called."""

    name: str
    program: Program


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same at all points. `compiler` is a digest of the compiler that is meant to do it."""

    workloads: tuple[Workload, ...]
    counts: Literal["closed", "simulated"]
    verify: str
    compiler: str


@dataclass(frozen=True, slots=True)
class Task:
    """Points, by number, whose targets differ only in what no pass looks at."""

    numbers: tuple[int, ...]
    targets: tuple[HwConfig, ...]


MOST_SECONDS = 1e30  # so that no sum or product with them is infinite

# isl works in one thread of a process at a time; a cluster may run several tasks in one process.
_one_at_a_time = threading.Lock()


def measure(job: Job, task: Task) -> Iterator[Outcome]:
    """The outcome of each point of a task, one after the other."""
    known: dict[bytes, list[Simulation]] = {}
    placed: list[Compilation] | Outcome | None = None
    for hw in task.targets:
        with _one_at_a_time, collector_paused():
            if placed is None:
                placed = _compiled(job, hw)
            outcome = placed if isinstance(placed, Outcome) else _simulated(job, placed, hw, known)
        yield outcome


def _compiled(job: Job, hw: HwConfig) -> list[Compilation] | Outcome:
    """The programs as the target runs them, or what came instead."""
    done = []
    for workload in job.workloads:
        try:
            done.append(optimise(workload.program, hw, verify=job.verify, name=workload.name))
        except CompileError as error:
            return _unmapped(job, workload, error)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault at one point must not end the others
            return _fault(job, workload, error)
    return done


def _simulated(
    job: Job, placed: list[Compilation], hw: HwConfig, known: dict[bytes, list[Simulation]]
) -> Outcome:
    plain = unpriced(hw)
    found = known.setdefault(msgspec.json.encode(plain), [])
    for workload, own in list(zip(job.workloads, placed, strict=True))[len(found) :]:
        try:
            found.append(
                simulate(own.program, plain, name=workload.name, counts=job.counts, untiled=own.untiled)
            )
        except CompileError as error:
            return _unmapped(job, workload, error)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return _fault(job, workload, error)
    programs = [_measured(priced(each, hw)) for each in found]
    longest = max((each.seconds or 0.0 for each in programs), default=0.0)
    if longest > MOST_SECONDS:
        reason = (
            f"a run takes {longest:.3g} s with this clock; more than {MOST_SECONDS:g} s are not told apart"
        )
        return Outcome(status="refused", reason=reason)
    return Outcome(status="mapped", programs=programs)


def _measured(found: Simulation) -> Measured:
    bound: Counter[str] = Counter()
    for kernel in found.kernels:
        bound[kernel.bound] += kernel.end - kernel.begin
    crossing = {
        b.memory: Bounds(compulsory=b.compulsory, least=b.least, ours=b.ours, reason=b.reason)
        for b in found.bounds
        if not b.kernel and not b.tensor
    }
    return Measured(
        program=found.program, cycles=found.cycles, seconds=found.seconds, energy_pj=float(found.energy_pj),
        operations=found.operations,
        bound=max(sorted(bound), key=lambda name: bound[name]) if bound else None,
        memories=[
            MemoryTotals(
                memory=m.memory, peak=m.peak, read=m.read, written=m.written, crossing=crossing.get(m.memory)
            )
            for m in found.memories
        ],
        crossing=crossing[found.bounds[-1].memory] if found.bounds else None,
    )  # fmt: skip


def _unmapped(job: Job, workload: Workload, error: CompileError) -> Outcome:
    first = error.diagnostics[0]
    reason = _of_program(job, workload, first.message)
    return Outcome(status="no mapping", code=first.code, reason=reason, notes=list(first.notes))


def _fault(job: Job, workload: Workload, error: Exception) -> Outcome:
    what = str(error) if isinstance(error, InvariantError) else f"{type(error).__name__}: {error}"
    return Outcome(status="fault", reason=_of_program(job, workload, what[:500]))


def _of_program(job: Job, workload: Workload, message: str) -> str:
    return message if len(job.workloads) == 1 else f"{workload.name}: {message}"
