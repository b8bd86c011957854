"""`stripec.explore`: programs over variants of a target, and which variants are worth a closer look.

found = stripec.explore("conv.tile", shapes={...}, target="chip.json",
                        vary={"memory.SPAD.bytes": "64K..1M:x2"}, objectives=("energy", "latency"))
found.front     # the numbers of the points that nothing beats
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.files import write_whole
from stripe.ir import Program
from stripe.passes.pipeline import check_verify_level
from stripe.printer import to_text
from stripec.driver import Frontend, Target, read_program, resolve_target
from stripec.exploring import cluster as dask
from stripec.exploring import pool
from stripec.exploring.fields import json_path
from stripec.exploring.identity import compiler, digest_of
from stripec.exploring.journal import Journal
from stripec.exploring.measure import Job, Task, Workload, measure
from stripec.exploring.objectives import GOALS, check_objectives, front, needs_cycles, units_of
from stripec.exploring.plot import draw
from stripec.exploring.result import Exploration, Outcome, Point, Varied
from stripec.exploring.space import Refusal, Space, Vary, compile_key, make_space, targets_of
from stripec.files import check_output
from stripec.tensors import TypeLike, as_type

JSON, PLOT = "points.json", "pareto.svg"
MAX_IN_PROCESS = 500  # points; isl keeps what it made, and only a process of its own can be replaced

Source: TypeAlias = "str | os.PathLike[str] | Program"
Progress: TypeAlias = Callable[[int, int], None]


def explore(
    programs: Source | Mapping[str, Source],
    *,
    shapes: Mapping[str, TypeLike] | None = None,
    target: Target,
    vary: Vary,
    objectives: Sequence[str] = ("energy", "latency"),
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    verify: Literal["off", "on", "full"] = "on",
    progress: Progress | None = None,
) -> Exploration:
    """Compile and simulate programs on every variant of a target.

    `programs` is a program, as for `stripec.compile`, or several by name; objectives are summed over them.
    `shapes` gives the type of each input that has this name, or of one program's: `"conv1:I"`. `vary` maps
    paths of fields to values, as lists or as text (`"64K..1M:x2"`); a list of such mappings is one of axes,
    and the fields of one mapping go in step. `out` is a folder for a journal, from which a sweep that was
    killed goes on, and for its JSON and its plot. It runs on `jobs` processes, as many as there are cores if
    not given (1: in this process), or on the Dask cluster at the address `cluster`. `progress` is called
    with how many points are done, and of how many.

    Raises CompileError, whose text says what is wrong, where, and what to do.
    """
    check_verify_level(verify)
    hw = resolve_target(target)
    goals = check_objectives(tuple(objectives))
    workloads = _workloads(programs, shapes or {})
    sweep = _sweep(hw, workloads, vary, goals, verify)
    runner = _Runner(len(os.sched_getaffinity(0)) if jobs is None else jobs, cluster)
    finished = dict(sweep.refused)
    if out is None:
        with closing(_running(sweep, finished, runner, progress)) as pairs:
            finished |= dict(pairs)
        return _exploration(sweep, finished)
    folder = Path(out)
    for name in (JSON, PLOT):
        if os.path.exists(folder / name):  # told before the first point, not behind the last
            check_output(folder / name)
    with Journal(folder, _header(sweep), len(sweep.space)) as journal:
        finished |= journal.finished
        with closing(_running(sweep, finished, runner, progress)) as pairs:
            for number, outcome in pairs:
                journal.add(number, outcome)
                finished[number] = outcome
        found = _exploration(sweep, finished)
        write_whole(folder / JSON, found.to_json())
        plot = draw(found)
        if plot is not None:
            write_whole(folder / PLOT, plot)
        else:
            _remove(folder / PLOT)  # that of other objectives, which are not in the JSON any more
    return found


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CompileError(Diagnostic("D010", f"can't remove '{path}': {error.strerror}")) from None


@dataclass(frozen=True, slots=True)
class _Sweep:
    """All that is settled before the first point is measured."""

    hw: HwConfig
    space: Space
    goals: tuple[str, ...]
    job: Job
    targets: dict[int, HwConfig]
    refused: dict[int, Outcome]


@dataclass(frozen=True, slots=True)
class _Runner:
    jobs: int
    cluster: str | None

    def run(self, job: Job, tasks: Sequence[Task]) -> Generator[tuple[int, Outcome], None, None]:
        if self.cluster is not None:
            return dask.run_tasks(job, tasks, self.cluster)
        points = sum(len(task.numbers) for task in tasks)
        if self.jobs > 1 or points > MAX_IN_PROCESS:
            return pool.run_tasks(job, tasks, self.jobs)
        return (pair for task in tasks for pair in zip(task.numbers, measure(job, task), strict=True))


def _workloads(
    programs: Source | Mapping[str, Source], shapes: Mapping[str, TypeLike]
) -> tuple[Workload, ...]:
    """The programs at their types, with names that differ."""
    if isinstance(programs, Mapping):
        fronts = {name: read_program(source) for name, source in programs.items()}
    else:
        one = read_program(programs)
        fronts = {one.name: one}
    if not fronts:
        raise CompileError(Diagnostic("D031", "no program is given"))
    _check_shapes(fronts, shapes)
    return tuple(Workload(name, _lowered(name, read, shapes)) for name, read in fronts.items())


def _check_shapes(fronts: Mapping[str, Frontend], shapes: Mapping[str, TypeLike]) -> None:
    known = {*(i for read in fronts.values() for i in read.inputs)}
    known |= {f"{name}:{i}" for name, read in fronts.items() for i in read.inputs}
    for key in shapes:
        if key not in known:
            raise CompileError(
                Diagnostic("D031", f"shape {key}: no such input", notes=did_you_mean(key, known))
            )


def _lowered(name: str, read: Frontend, shapes: Mapping[str, TypeLike]) -> Program:
    types = read.fixed_types()
    for each in read.inputs:
        given = shapes.get(f"{name}:{each}", shapes.get(each))
        if given is not None:
            types[each] = as_type(given, each)
        elif each not in types:
            form = read.form(each)
            note = f"help: give {each}={form}, or {name}:{each}={form} for this program alone"
            raise CompileError(
                Diagnostic("D033", f"the type of input '{each}' of {name} is not given", notes=(note,))
            )
    return read.lower(types, ())


def _sweep(
    hw: HwConfig, workloads: tuple[Workload, ...], vary: Vary, goals: tuple[str, ...], verify: str
) -> _Sweep:
    space = make_space(hw, vary)
    targets: dict[int, HwConfig] = {}
    refused: dict[int, Outcome] = {}
    for number, found in targets_of(space).items():
        if isinstance(found, Refusal):
            notes = list(found.notes)
            refused[number] = Outcome(status="refused", code=found.code, reason=found.reason, notes=notes)
        else:
            targets[number] = found
    clocks = {bool(each.clock_hz) for each in targets.values()}
    if len(clocks) > 1 and {"latency", "edp"} & {*goals}:
        raise CompileError(Diagnostic("D103", "latency: some points have a clock and some have none"))
    timed = needs_cycles(goals, list(targets.values()))
    job = Job(workloads, "simulated" if timed else "closed", verify, compiler())
    return _Sweep(hw, space, goals, job, targets, refused)


def _running(
    sweep: _Sweep, finished: Mapping[int, Outcome], runner: _Runner, progress: Progress | None
) -> Generator[tuple[int, Outcome], None, None]:
    """The outcomes of the points that are not finished, as they come."""
    groups: dict[bytes, list[int]] = {}
    for number, hw in sweep.targets.items():
        if number not in finished:
            groups.setdefault(compile_key(hw), []).append(number)
    tasks = [Task(tuple(own), tuple(sweep.targets[n] for n in own)) for own in groups.values()]
    total, done = len(sweep.space), len(sweep.space) - sum(len(task.numbers) for task in tasks)
    if progress is not None:
        progress(done, total)
    if not tasks:
        return
    with closing(runner.run(sweep.job, tasks)) as pairs:
        for pair in pairs:
            yield pair
            done += 1
            if progress is not None:
                progress(done, total)


def _header(sweep: _Sweep) -> dict[str, Any]:
    """What a journal says of its sweep: the same for the same, however its inputs were written."""
    texts = {w.name: digest_of(to_text(w.program).encode()) for w in sweep.job.workloads}
    varied = [
        {f.path: [row[n] for row in axis.rows] for n, f in enumerate(axis.fields)}
        for axis in sweep.space.axes
    ]
    return {
        "compiler": sweep.job.compiler,
        "programs": texts,
        "target": digest_of(msgspec.json.encode(sweep.hw)),
        "varied": varied,
        "counts": sweep.job.counts,
        "verify": sweep.job.verify,
    }


def _exploration(sweep: _Sweep, finished: Mapping[int, Outcome]) -> Exploration:
    costs = {
        number: [GOALS[name].value(hw, finished[number].programs) for name in sweep.goals]
        for number, hw in sweep.targets.items()
        if finished[number].status == "mapped"
    }
    best = front(list(costs.items()))
    clocked = any(hw.clock_hz for hw in sweep.targets.values())
    on_front = {*best}
    return Exploration(
        target=sweep.hw.name, programs=[w.name for w in sweep.job.workloads], counts=sweep.job.counts,
        varied=list(_varied(sweep.space)), objectives=units_of(sweep.goals, clocked), front=best,
        points=[
            Point(
                number=number, set=sweep.space.values(number), outcome=finished[number],
                objectives=dict(zip(sweep.goals, costs[number], strict=True)) if number in costs else {},
                front=number in on_front,
            )
            for number in range(len(sweep.space))
        ],
    )  # fmt: skip


def _varied(space: Space) -> Iterator[Varied]:
    for number, axis in enumerate(space.axes):
        for column, field in enumerate(axis.fields):
            values = [row[column] for row in axis.rows]
            places = dict.fromkeys(place for value in values for place in field.set_by(value))
            yield Varied(path=field.path, axis=number, sets=[json_path(p) for p in places], values=values)
