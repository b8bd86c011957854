"""From counts to a report: one program on one target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, TypeAlias

import msgspec

from hwconfigs.model import HwConfig
from simulator.bounds import bounds
from simulator.caches_run import CacheRun
from simulator.closed import ClosedForm
from simulator.energy import energy
from simulator.meters import Kind
from simulator.occupancy import LIMIT
from simulator.plan import Measured
from simulator.result import (
    BlockCount,
    Bound,
    Interval,
    KernelTime,
    MemoryUse,
    Occupancy,
    Simulation,
    Traffic,
    UnitTime,
)
from simulator.running import TICKS
from simulator.timeline import Timeline
from simulator.work import Site
from stripe.analysis.liveness import load_time, peaks
from stripe.analysis.units import enough_units
from stripe.diag import CompileError, Diagnostic, InvariantError
from stripe.ir import Block, Program, Special
from stripe.poly import PolyhedralLimit

Counts: TypeAlias = Literal["closed", "simulated", "both"]


def simulate(
    program: Program,
    hw: HwConfig,
    *,
    name: str = "main",
    counts: Counts = "both",
    extrapolate: bool = True,
    trace: int = 0,
    limit: int = 0,
    untiled: Program | None = None,
) -> Simulation:
    """Time, traffic, operations and energy of one run of a program whose buffers all have addresses.

    `counts` says how traffic and operations are counted: in closed form by isl, execution by execution, or
    both ways and compared. Cycles come from the execution; "closed" has none. `extrapolate` counts what
    repeats exactly instead of going through it; `trace` keeps the first that many tasks; `limit` is how many
    are gone through at most, 0 if there is no limit. `untiled` is the same program before its kernels were
    tiled and placed: bounds are told from it, and left out without it.

    Where memories are caches, buffers without an address get one, and every access is looked up; only what
    reaches the first level has a closed form. The load-time program is counted by itself.

    Raises TooLong beyond that limit, CompileError (U001 to U004) for what can't be run, and InvariantError if
    the two ways of counting differ.
    """
    if not any(unit.kind == "compute" for unit in hw.units):
        message = f"the simulator can't run programs for '{hw.name}': it has no units that compute"
        raise CompileError(Diagnostic("U001", message, notes=(f"help: {enough_units(hw)}",)))
    cached = any(memory.kind == "cached" for memory in hw.memories)
    run = _on_caches if cached else _in_managed
    found = run(program, program.root, hw, name, counts, _Options(extrapolate, trace, limit, untiled))
    if program.load is None:
        return found
    load = run(program, load_time(program), hw, name, counts, _Options(extrapolate))
    return msgspec.structs.replace(found, load=load)


@dataclass(frozen=True, slots=True)
class _Options:
    extrapolate: bool
    trace: int = 0
    limit: int = 0
    untiled: Program | None = None


def _on_caches(
    program: Program, root: Block, hw: HwConfig, name: str, counts: Counts, options: _Options
) -> Simulation:
    run = CacheRun(root, hw, counts)
    found = msgspec.structs.replace(run.result(name), trace=run.trace(options.trace))
    if options.untiled is None or counts == "closed":
        return found
    try:
        near = bounds(program, options.untiled, run.crossing, hw)
    except PolyhedralLimit:
        return found
    return msgspec.structs.replace(found, bounds=near)


def _in_managed(
    program: Program, root: Block, hw: HwConfig, name: str, counts: Counts, options: _Options
) -> Simulation:
    timeline = closed = None
    if counts != "simulated":
        closed = ClosedForm(root, hw)
    if counts != "closed":
        timeline = Timeline(root, hw, options.extrapolate, options.trace, options.limit)
        timeline.run()
    if closed is not None and timeline is not None:
        _compare(timeline, closed)
    source = timeline or closed
    assert source is not None
    found = source.totals if isinstance(source, Timeline) else source
    measured = list(source.planner.measured(source.plan))
    blocks = [block_count(m, found.counts) for m in measured]
    moved = _traffic(found.traffic)
    cycles = timeline.now / TICKS if timeline is not None else None
    stencils = [m.meter.stencil for m in measured]
    spent = list(energy(moved, zip(blocks, stencils, strict=True), hw, cycles))
    return Simulation(
        program=name, target=hw.name, counts=counts, cycles=None if cycles is None else ceil(cycles),
        seconds=None if cycles is None or not hw.clock_hz else cycles / hw.clock_hz,
        skipped=timeline.skipped if timeline is not None else 0,
        operations=sum(b.operations for b in blocks), energy_pj=sum(e.total_pj for e in spent),
        traffic=moved, memories=list(_memories(root, moved, timeline, hw)),
        units=list(_units(timeline, hw)) if timeline is not None else [], blocks=blocks,
        kernels=list(_kernels(root, timeline, blocks, measured, hw)) if timeline is not None else [],
        energy=spent, trace=_trace(timeline, root) if timeline is not None else [],
        occupancy=list(_occupancy(timeline, hw)) if timeline is not None else [],
        bounds=_bounds(program, options.untiled, closed, hw) if options.untiled is not None else [],
    )  # fmt: skip


def _bounds(program: Program, untiled: Program, closed: ClosedForm | None, hw: HwConfig) -> list[Bound]:
    """Empty where what is touched is too complicated to count: the run stands without bounds."""
    try:
        return bounds(program, untiled, (closed or ClosedForm(program.root, hw)).crossing, hw)
    except PolyhedralLimit:
        return []


def _compare(timeline: Timeline, closed: ClosedForm) -> None:
    """Both ways of counting must give the same whole numbers."""
    pairs: tuple[tuple[str, Counter[Any], Counter[Any]], ...] = (
        ("counts", timeline.totals.counts, closed.counts),
        ("traffic", timeline.totals.traffic, closed.traffic),
    )
    for what, one, other in pairs:
        for key in {**one, **other}:
            if one[key] != other[key]:
                raise InvariantError(
                    f"{what} of {key}: {one[key]} execution by execution, {other[key]} in closed form"
                )


def block_count(measured: Measured, counted: Mapping[tuple[Site, Any, str], int]) -> BlockCount:
    """What one block did in all, of what was counted."""
    kinds: tuple[Kind, ...] = ("points", "uses", "vectors", "starts", "bytes")
    own = {kind: counted.get((measured.site, kind, measured.unit), 0) for kind in kinds}
    meter = measured.meter
    return BlockCount(
        path=measured.path, unit=measured.unit, points=own["points"],
        operations=own["points"] * meter.operations, uses=own["uses"], vectors=own["vectors"],
        starts=own["starts"], bytes=own["bytes"], busy=float(meter.cycles(own)),
        filling=float(meter.filling(own)), padding=float(meter.padding(own)),
    )  # fmt: skip


def _traffic(moved: Mapping[tuple[str, str, str, str], int]) -> list[Traffic]:
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for (memory, buffer, unit, what), size in moved.items():
        found.setdefault((memory, buffer, unit), Counter())[what] += size
    return [
        Traffic(
            memory=memory, buffer=buffer, unit=unit, read=own["read"], written=own["write"],
            updated=own["update"],
        )
        for (memory, buffer, unit), own in sorted(found.items())
    ]  # fmt: skip


def _memories(
    root: Block, moved: Iterable[Traffic], timeline: Timeline | None, hw: HwConfig
) -> Iterable[MemoryUse]:
    most = peaks(root, hw)
    for memory in hw.memories:
        own = [t for t in moved if t.memory == memory.name]
        read, written, updated = (sum(getattr(t, k) for t in own) for k in ("read", "written", "updated"))
        busy, contended = None, 0.0
        if timeline is not None:
            contended = timeline.totals.shared[memory.name] / TICKS
            if memory.bytes_per_cycle and timeline.now:
                could = memory.bytes_per_cycle * memory.banks * memory.count * timeline.now / TICKS
                busy = (read + written + updated) / could
        peak = most.get(memory.name)
        yield MemoryUse(
            memory=memory.name, bytes=memory.bytes, peak=peak.bytes if peak is not None else 0, read=read,
            written=written, updated=updated, busy=busy, contended=contended,
        )  # fmt: skip


def _units(timeline: Timeline, hw: HwConfig) -> Iterable[UnitTime]:
    totals = timeline.totals
    for unit in hw.units:
        for number in range(unit.count):
            key = unit.name, number
            busy = totals.busy[key] / TICKS
            stalled = {m: n / TICKS for (k, m), n in sorted(totals.stalled.items()) if k == key}
            idle = {u: n / TICKS for (k, u), n in sorted(totals.idle.items()) if k == key}
            if key not in totals.busy:
                idle = {"": timeline.now / TICKS}
            yield UnitTime(
                unit=unit.name, number=number, tasks=totals.tasks[key], busy=busy, stalled=stalled, idle=idle
            )  # fmt: skip


def _kernels(
    root: Block, timeline: Timeline, blocks: list[BlockCount], measured: list[Measured], hw: HwConfig
) -> Iterable[KernelTime]:
    for site, (begin, end) in sorted(timeline.kernels.items()):
        statement = root.statements[site[0]] if site else root
        name = statement.name if isinstance(statement, Block | Special) else root.name
        busy: dict[str, float] = {}
        for block, at in zip(blocks, measured, strict=True):
            if at.site[: len(site)] == site:
                unit = hw.unit(block.unit)
                copies = unit.count if unit is not None else 1
                busy[block.unit] = busy.get(block.unit, 0.0) + block.busy / copies
        taken = (end - begin) / TICKS
        bound, most = max(busy.items(), key=lambda pair: (pair[1], pair[0]), default=("", 0.0))
        yield KernelTime(
            kernel=f"{root.name}/{name}", begin=begin // TICKS, end=-(-end // TICKS), bound=bound,
            share=most / taken if taken else 0.0,
        )  # fmt: skip


def _trace(timeline: Timeline, root: Block) -> list[Interval]:
    return [
        Interval(
            unit=t.unit[0], number=t.unit[1], path=_path(root, t.site), begin=t.begin / TICKS,
            end=t.end / TICKS, stalled=max(t.end - t.begin - t.own, 0) / TICKS,
            memory=t.memory if t.end - t.begin > t.own else "",
        )
        for t in timeline.trace
    ]  # fmt: skip


def _occupancy(timeline: Timeline, hw: HwConfig) -> Iterable[Occupancy]:
    for memory in hw.memories:
        level = timeline.occupancy.levels.get(memory.name)
        if level is not None:
            level.thin(LIMIT)
            yield Occupancy(
                memory=memory.name, most=level.most, exact=level.exact,
                cycles=[tick / TICKS for tick in level.ticks], bytes=list(level.sizes),
            )  # fmt: skip


def _path(root: Block, site: Site) -> str:
    names, block = [root.name], root
    for number in site:
        statement = block.statements[number]
        assert isinstance(statement, Block | Special)
        names.append(statement.name)
        if isinstance(statement, Block):
            block = statement
    return "/".join(names)
