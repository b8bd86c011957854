"""A simulated run as a trace in the Chrome trace event format, which Perfetto (ui.perfetto.dev) shows.

    process   each kind of units, and "memories"
    thread    a unit: its tasks are complete events ("X"), with the cycles that it waited for a memory
    counter   a memory: the bytes that are alive ("C")

A microsecond of the trace is one cycle. Perfetto counts whole nanoseconds, and drops a slice that overlaps
another one of its thread: times are rounded to eighths of a cycle, 125 ns, which floats and nanoseconds both
hold exactly, so that neighbours still touch. docs/simulator.md has the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from hwconfigs.model import HwConfig
from simulator import Simulation
from simulator.result import Interval
from stripe.files import write_whole
from stripec.files import check_output

Event: TypeAlias = dict[str, object]

TASKS = 100_000  # that a trace has if nothing is said


def trace_events(found: Simulation, hw: HwConfig) -> dict[str, object]:
    """The trace of a run that was made with `trace` tasks, as the value that its JSON holds."""
    processes, threads = _places(found, hw)
    memories = len(processes) + 1
    events = [
        event
        for number, name in enumerate((*processes, "memories"), start=1)
        for event in _named("process", number, 0, name)
    ]
    for (unit, number), (process, thread) in threads.items():
        name = f"{unit}[{number}]" if _copies(hw, unit) > 1 else unit
        events += _named("thread", process, thread, name)
    events += (_task(task, *threads[task.unit, task.number]) for task in found.trace)
    for own in found.occupancy:
        counter = f"{own.memory} bytes alive"
        events += (
            {"ph": "C", "name": counter, "pid": memories, "ts": _exact(at), "args": {"bytes": size}}
            for at, size in zip(own.cycles, own.bytes, strict=True)
        )
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "program": found.program, "target": found.target, "cycles": found.cycles,
            "unit of time": "1 us is 1 cycle", "tasks": len(found.trace), "tasks left out": left_out(found),
        },
    }  # fmt: skip


def write_trace(path: Path, found: Simulation, hw: HwConfig) -> None:
    """Write a trace, whole or not at all. Raises CompileError D010."""
    check_output(path)
    write_whole(path, msgspec.json.encode(trace_events(found, hw)))


def left_out(found: Simulation) -> int:
    """How many tasks of the run the trace does not have."""
    return sum(unit.tasks for unit in found.units) - len(found.trace)


def _places(
    found: Simulation, hw: HwConfig
) -> tuple[tuple[str, ...], Mapping[tuple[str, int], tuple[int, int]]]:
    """The processes, and of each unit that did something its process and thread, numbered from 1."""
    kinds = {unit.name: f"{unit.kind} units" for unit in hw.units}
    used = [(unit.unit, unit.number) for unit in found.units if unit.tasks]
    processes = tuple(dict.fromkeys(kinds[unit] for unit, _ in used))
    return processes, {
        key: (processes.index(kinds[key[0]]) + 1, thread) for thread, key in enumerate(used, start=1)
    }


def _copies(hw: HwConfig, name: str) -> int:
    unit = hw.unit(name)
    return unit.count if unit is not None else 1


def _named(what: str, process: int, thread: int, name: str) -> Iterator[Event]:
    order = thread or process
    common = {"ph": "M", "pid": process, "tid": thread}
    yield {**common, "name": f"{what}_name", "args": {"name": name}}
    yield {**common, "name": f"{what}_sort_index", "args": {"sort_index": order}}


def _task(task: Interval, process: int, thread: int) -> Event:
    told: dict[str, object] = {"path": task.path}
    if task.stalled:
        told |= {"stalled": task.stalled, "by": task.memory}
    return {
        "ph": "X", "name": task.path.rpartition("/")[2], "cat": task.unit, "pid": process, "tid": thread,
        "ts": _exact(task.begin), "dur": _exact(task.end) - _exact(task.begin), "args": told,
    }  # fmt: skip


def _exact(cycles: float) -> float:
    """A time to the eighth of a cycle, which is 125 ns in the trace."""
    return round(cycles * 8) / 8
