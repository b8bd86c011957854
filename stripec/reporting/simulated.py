"""How a program runs where programs manage the memories: counts between passes, and a simulated run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TypeAlias

import msgspec

from hwconfigs.model import HwConfig, Memory
from simulator import Simulation
from simulator.counting import Counting
from simulator.running import TooLong
from simulator.simulate import simulate
from simulator.timeline import Timeline
from stripe.diag import CompileError
from stripe.ir import Direction, Program
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_spec
from stripe.verify_ready import manages_memory, unplaced
from stripe.visit import walk
from stripec.reporting.cache_counts import CacheCounting
from stripec.reporting.runs import (
    Alive,
    Counters,
    EnergyShare,
    EnergyShares,
    Lane,
    LaneTask,
    PassCount,
    PassCounts,
    SimulatedRun,
    TimelineDrawn,
    UnitShare,
)
from stripec.reporting.words import plural

MAX_TASKS = 60_000  # of a run that are kept for its timeline
MAX_DRAWN = 2_500  # rectangles of a timeline
MAX_LANES = 64
MAX_GONE = 40_000  # tasks that are gone through for a report
MAX_GONE_BETWEEN = 4_000  # and for the cycles between two passes
MAX_VECTORS = 4_000_000  # that are looked up in caches for a report


def manages(hw: HwConfig) -> bool:
    """Whether programs manage all memories of a target that has units, so that runs are counted in tasks."""
    return manages_memory(hw) and bool(hw.units) and not _cached(hw)


def simulates(hw: HwConfig) -> bool:
    """Whether reports for a target have a simulated run."""
    return manages(hw) or (_cached(hw) and bool(hw.compute_units))


def _cached(hw: HwConfig) -> bool:
    return bool(hw.caches)


# ------------------------------------------------------------------------- between passes


def pass_counts(
    reports: Sequence[StepReport], programs: Sequence[Program], hw: HwConfig, run: SimulatedRun | None
) -> PassCounts:
    """The counters before the first pass and behind each one; `programs` has those in the same order, `run`
    is that of the last one."""
    counting, beside = Counting(hw), CacheCounting(hw)

    def counted(program: Program) -> Counters | None:
        if _cached(hw):
            return beside.of(program, run if program is programs[-1] else None)
        return _counters(program, counting, hw)

    rows = [PassCount(0, "before the first pass", counted(programs[0]))]
    same = []
    for report, before, after in zip(reports, programs, programs[1:], strict=False):
        if before is after:
            same.append(report.number)
        else:
            rows.append(PassCount(report.number, pass_spec(report.step), counted(after)))
    known = [row.counters for row in rows if row.counters is not None]
    memories = {memory for counters in known for memory, _, _ in counters.moved}
    busy = {unit for counters in known for unit, n in counters.busy if n}
    uncounted = len(rows) - len(known)
    return PassCounts(
        tuple(m for m in (*(m.name for m in reversed(hw.memories)), "") if m in memories),
        tuple(u.name for u in hw.units if u.name in busy), tuple(rows), tuple(same),
        (f"counters of {plural(uncounted, 'program')}: too many kernels differ",) if uncounted else (),
        _cached(hw),
    )  # fmt: skip


def _counters(program: Program, counting: Counting, hw: HwConfig) -> Counters | None:
    found = counting.of(program)
    if found is None:
        return None
    moved = tuple((memory, *pair) for memory, pair in sorted(found.moved.items()))
    copies = {unit.name: unit.count for unit in hw.units}
    busy = tuple((name, cycles / copies[name]) for name, cycles in sorted(found.busy.items()) if cycles)
    cycles = None
    note = found.unreached if found.named else "not all statements have a unit yet"
    if not note:
        free, note = _unplaced(program, hw)
        cycles, missing = _cycles(program, free)
        note = missing or note
    return Counters(found.operations, moved, busy, cycles, note)


def _cycles(program: Program, hw: HwConfig) -> tuple[int | None, str]:
    """The cycles of a run, or why there are none."""
    timeline = Timeline(program.root, hw, limit=MAX_GONE_BETWEEN)
    try:
        timeline.run()
    except TooLong:
        return None, f"a run is more than {plural(MAX_GONE_BETWEEN, 'task')}"
    return ceil(timeline.cycles), ""


def _unplaced(program: Program, hw: HwConfig) -> tuple[HwConfig, str]:
    """The target for a run of a program that may not have all its addresses yet, and what the run leaves out.
    Of a memory whose banks are not known, it can't say who waits there: it keeps nobody waiting."""
    bare, unknown = False, set[str]()
    for _, block in walk(program.root):
        for ref in block.refinements:
            location = ref.location
            if ref.direction is not Direction.NEW or location is None or location.address is not None:
                continue
            memory = hw.memory(location.unit)
            if memory is None or not hw.has_addresses(memory):
                continue
            bare = True
            if memory.bytes_per_cycle and location.bank is None and location.spread is None:
                unknown |= {memory.name} if memory.banks * memory.count > 1 else set()
    said = ["no buffer waits for the bytes of another"] if bare else []
    if unknown:
        said.append(f"{' and '.join(sorted(unknown))} keep{'s' * (len(unknown) == 1)} nobody waiting")
    free = tuple(
        msgspec.structs.replace(m, bytes_per_cycle=None) if m.name in unknown else m for m in hw.memories
    )
    note = f"without addresses yet: {', and '.join(said)}" if said else ""
    return msgspec.structs.replace(hw, memories=free), note


# ------------------------------------------------------------------------------ the run


def simulated_run(program: Program, hw: HwConfig, name: str, untiled: Program | None = None) -> SimulatedRun:
    """The run of a program, or the counts alone where it is too long, or why there is neither; `untiled` is
    the program that bounds are told from."""
    instances = tuple((memory.name, _instances(memory, hw)) for memory in hw.memories)
    notes = ["the load-time program, which runs once"] if program.load is not None else []
    if _cached(hw):
        try:
            found, missing = _on_caches(program, hw, name, untiled)
        except CompileError as error:
            return SimulatedRun(None, (), error.diagnostics[0].message, instances, ())
        notes += [missing] if missing else []
        return SimulatedRun(found, tuple(_shares(found, hw)), "", instances, tuple(notes))
    lacking = unplaced(program, hw)
    if lacking:
        return SimulatedRun(None, (), f"the program is not placed: {lacking[0].message}", instances, ())
    try:
        found = simulate(
            program, hw, name=name, counts="simulated", trace=MAX_TASKS, limit=MAX_GONE, untiled=untiled
        )
    except TooLong:
        found = simulate(program, hw, name=name, counts="closed", untiled=untiled)
        notes.append(
            f"cycles, for a run is more than {plural(MAX_GONE, 'task')}: `stripec simulate` goes through it"
        )
    return SimulatedRun(found, tuple(_shares(found, hw)), "", instances, tuple(notes))


def _instances(memory: Memory, hw: HwConfig) -> int:
    """How many there are of a memory; each copy of a unit has registers of its own."""
    if memory.kind != "registers":
        return memory.count
    return max((unit.count for unit in hw.compute_units), default=1)


def _on_caches(program: Program, hw: HwConfig, name: str, untiled: Program | None) -> tuple[Simulation, str]:
    """The run on the caches of a target, or what is known without one, and what is missing then."""
    closed = simulate(program, hw, name=name, counts="closed", untiled=untiled)
    vectors = sum(b.vectors for run in (closed, closed.load) if run is not None for b in run.blocks)
    if vectors > MAX_VECTORS:
        missing = (
            f"hits, misses and cycles, for a run is {plural(vectors, 'vector')}, more than the "
            f"{MAX_VECTORS:,} of a report: `stripec simulate` goes through it"
        )
        return closed, missing
    found = simulate(program, hw, name=name, counts="simulated", trace=MAX_TASKS, untiled=untiled)
    return found, ""


def _shares(found: Simulation, hw: HwConfig) -> Iterator[UnitShare]:
    for unit in hw.units:
        copies = [own for own in found.units if own.unit == unit.name]
        if not copies or not found.cycles:
            continue
        whole = found.cycles * len(copies)
        blocks = [block for block in found.blocks if block.unit == unit.name]
        busy = sum(own.busy for own in copies)
        counted = sum(block.busy for block in blocks) or 1.0
        filling, padding = (
            busy * sum(getattr(b, part) for b in blocks) / counted for part in ("filling", "padding")
        )
        stalled, idle = dict[str, float](), dict[str, float]()
        for own in copies:
            for parts, total in ((own.stalled, stalled), (own.idle, idle)):
                for what, cycles in parts.items():
                    total[what] = total.get(what, 0.0) + cycles / whole
        yield UnitShare(
            unit.name, len(copies), sum(own.tasks for own in copies), sum(b.operations for b in blocks),
            (busy - filling - padding) / whole, filling / whole, padding / whole,
            tuple(sorted(stalled.items())), tuple(sorted(idle.items())),
        )  # fmt: skip


def alive(found: Simulation, hw: HwConfig) -> Iterator[Alive]:
    """What is alive in each memory over the run."""
    for own in found.occupancy:
        memory = hw.memory(own.memory)
        capacity = None if memory is None or memory.bytes is None else memory.bytes * memory.count
        yield Alive(
            own.memory, tuple(own.cycles), tuple(own.bytes), own.most, own.exact, capacity,
            float(found.cycles or 0),
        )  # fmt: skip


def timeline_of(run: SimulatedRun, hw: HwConfig) -> TimelineDrawn | None:
    """The first tasks of a run by unit; None where nothing ran."""
    found = run.found
    if found is None or not found.cycles or not found.trace:
        return None
    blocks = {path: number for number, path in enumerate(dict.fromkeys(task.path for task in found.trace))}
    tasks: dict[tuple[str, int], list[LaneTask]] = {}
    for task in found.trace:
        own = LaneTask(blocks[task.path], task.begin, task.end, task.stalled, task.memory)
        tasks.setdefault((task.unit, task.number), []).append(own)
    used = [own for own in found.units if own.tasks][:MAX_LANES]
    more = sum(1 for own in found.units if own.tasks) - len(used)
    shown = {(own.unit, own.number): tasks.get((own.unit, own.number), []) for own in used}
    pieces, short = joined(shown, found.cycles, [path.rpartition("/")[0] for path in blocks])
    several = {own.unit for own in found.units if own.number}
    lanes = [
        Lane(
            f"{own.unit}[{own.number}]" if own.unit in several else own.unit, own.busy / found.cycles,
            tuple(pieces[own.unit, own.number]),
        )
        for own in used
    ]  # fmt: skip
    total = sum(own.tasks for own in found.units)
    # Tasks are kept in the order of their ends: before the last of these, only what still ran is missing.
    drawn = float(found.cycles) if len(found.trace) == total else max(task.end for task in found.trace)
    left_out = [f"{plural(more, 'unit')} beyond the first {MAX_LANES}"] if more else []
    return TimelineDrawn(
        found.cycles, drawn, len(found.trace), total, tuple(blocks), tuple(lanes), tuple(alive(found, hw)),
        tuple(left_out), short,
    )  # fmt: skip


Lanes: TypeAlias = Mapping[tuple[str, int], Sequence[LaneTask]]


def joined(lanes: Lanes, cycles: int, nests: Sequence[str]) -> tuple[Lanes, float]:
    """The tasks of all lanes as so many pieces as can be drawn: neighbours of one nest of which each, and the
    break between them, is shorter than a part of the time become one; and that part, 0 if nothing had to.
    `nests` has for each block the one around it."""
    short = 0.0
    while sum(map(len, lanes.values())) > MAX_DRAWN and short < cycles:
        short = short * 2 or cycles / 4096
        lanes = {lane: _joined(tasks, short, nests) for lane, tasks in lanes.items()}
    return lanes, short


def _joined(tasks: Sequence[LaneTask], short: float, nests: Sequence[str]) -> list[LaneTask]:
    found: list[LaneTask] = []
    most: dict[int, float] = {}  # cycles by block, in the last piece
    for task in tasks:
        last = found[-1] if found else None
        if (
            last is not None
            and nests[last.block] == nests[task.block]
            and task.begin - last.end <= short
            and all(one.count > 1 or one.end - one.begin <= short for one in (last, task))
        ):
            most[task.block] = most.get(task.block, 0.0) + _busy(task)
            found[-1] = LaneTask(
                max(most, key=lambda block: (most[block], -block)), last.begin, task.end,
                last.stalled + task.stalled, max(last, task, key=lambda one: one.stalled).memory,
                last.count + task.count, _busy(last) + _busy(task),
            )  # fmt: skip
        else:
            most = {task.block: _busy(task)}
            found.append(task)
    return found


def _busy(task: LaneTask) -> float:
    return task.busy if task.count > 1 else task.end - task.begin


def energy_of(run: SimulatedRun, hw: HwConfig) -> EnergyShares | None:
    """Every product of the energy; None where the target says no cost."""
    found = run.found
    if found is None or not found.energy:
        return None
    shares = sorted(found.energy, key=lambda e: -e.total_pj)
    return EnergyShares(
        found.energy_pj,
        tuple(EnergyShare(e.what, e.count, e.pj, e.total_pj, e.total_pj / found.energy_pj) for e in shares),
        bool(hw.static_pj_per_cycle) and found.cycles is None,
    )  # fmt: skip
