"""From counts to a report: one program on one target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, TypeAlias

import msgspec

from hwconfigs.model import HwConfig
from simulator.bounds import bounds
from simulator.caches_run import CacheRun
from simulator.closed import ClosedForm
from simulator.crossing import Crossing
from simulator.energy import energy
from simulator.meters import exact
from simulator.occupancy import LIMIT
from simulator.plan import Measured
from simulator.result import (
    BankUse,
    BlockCount,
    Interval,
    KernelTime,
    MemoryUse,
    Occupancy,
    Simulation,
    Traffic,
)
from simulator.shares import counts_of, traffic_of, unit_times
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
    if not hw.compute_units:
        message = f"the simulator can't run programs for '{hw.name}': it has no units that compute"
        raise CompileError(Diagnostic("U001", message, notes=(f"help: {enough_units(hw)}",)))
    cached = bool(hw.caches)
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
    if options.untiled is None:
        return found
    if counts == "closed":
        missing = "what crosses the boundaries of caches is not known without a run"
        return msgspec.structs.replace(found, no_bounds=missing)
    return _with_bounds(found, program, options.untiled, lambda: run.crossing, hw)


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
    counted = source.totals.by_unit() if isinstance(source, Timeline) else source.counts
    measured = list(source.planner.measured(source.plan))
    blocks = [block_count(m, counted) for m in measured]
    if timeline is not None:
        blocks = list(_bound(blocks, measured, timeline))
    moved = traffic_of(source.totals.traffic if isinstance(source, Timeline) else source.traffic, root)
    cycles = None if timeline is None else timeline.cycles
    whole = None if cycles is None else ceil(cycles)
    stencils = [m.meter.stencil for m in measured]
    spent = list(energy(moved, zip(blocks, stencils, strict=True), hw, whole))
    found = Simulation(
        program=name, target=hw.name, counts=counts, cycles=whole,
        seconds=None if cycles is None or not hw.clock_hz else float(cycles / exact(hw.clock_hz)),
        skipped=timeline.skipped if timeline is not None else 0,
        operations=sum(b.operations for b in blocks), energy_pj=sum(e.total_pj for e in spent),
        traffic=moved, memories=list(_memories(root, moved, timeline, hw)),
        units=list(unit_times(timeline, measured, hw)) if timeline is not None else [], blocks=blocks,
        kernels=list(_kernels(root, timeline)) if timeline is not None else [],
        energy=spent, trace=_trace(timeline, root) if timeline is not None else [],
        occupancy=list(_occupancy(timeline, hw)) if timeline is not None else [],
    )  # fmt: skip
    if options.untiled is None:
        return found

    def crossing() -> Crossing:
        return (closed or ClosedForm(root, hw)).crossing

    return _with_bounds(found, program, options.untiled, crossing, hw)


def _with_bounds(
    found: Simulation, program: Program, untiled: Program, crossing: Callable[[], Crossing], hw: HwConfig
) -> Simulation:
    """A run stands without bounds where what is touched is too complicated to count."""
    try:
        return msgspec.structs.replace(found, bounds=bounds(program, untiled, crossing(), hw))
    except PolyhedralLimit:
        return msgspec.structs.replace(found, no_bounds="what is touched is too complicated to count")


def _compare(timeline: Timeline, closed: ClosedForm) -> None:
    """Both ways of counting must give the same whole numbers."""
    busy: Counter[str] = Counter()
    for (unit, _), ticks in timeline.totals.busy.items():
        busy[unit] += ticks
    own: Counter[str] = Counter()
    for measured in closed.planner.measured(closed.plan):
        cycles = measured.meter.cycles(counts_of(measured, closed.counts, measured.unit))
        own[measured.unit] += ceil(cycles * timeline.ticks)
    pairs: tuple[tuple[str, Counter[Any], Counter[Any]], ...] = (
        ("counts", timeline.totals.by_unit(), closed.counts),
        ("traffic", timeline.totals.traffic, closed.traffic),
        ("busy ticks", busy, own),
    )
    for what, one, other in pairs:
        for key in {**one, **other}:
            if one[key] != other[key]:
                raise InvariantError(
                    f"{what} of {key}: {one[key]} execution by execution, {other[key]} in closed form"
                )


def block_count(measured: Measured, counted: Mapping[tuple[Site, Any, Any], int]) -> BlockCount:
    """What one block did in all, of what was counted."""
    own, meter = counts_of(measured, counted, measured.unit), measured.meter
    return BlockCount(
        path=measured.path, unit=measured.unit, points=own["points"],
        operations=own["points"] * meter.operations, uses=own["uses"], vectors=own["vectors"],
        starts=own["starts"], bytes=own["bytes"], busy=float(meter.cycles(own)),
        filling=float(meter.filling(own)), padding=float(meter.padding(own)),
    )  # fmt: skip


def _bound(
    blocks: Iterable[BlockCount], measured: Iterable[Measured], timeline: Timeline
) -> Iterator[BlockCount]:
    """The blocks with what bound each of them."""
    most: dict[Site, tuple[int, str]] = {}
    for (site, what), ticks in timeline.totals.bound.items():
        most[site] = max(most.get(site, (0, "")), (ticks, what))
    for block, own in zip(blocks, measured, strict=True):
        tasks = (own.site[:depth] for depth in range(len(own.site), -1, -1))  # it is part of one of these
        found = next((most[site][1] for site in tasks if site in most), "")
        yield msgspec.structs.replace(block, bound=found if block.points or block.vectors else None)


def _memories(
    root: Block, moved: Iterable[Traffic], timeline: Timeline | None, hw: HwConfig
) -> Iterable[MemoryUse]:
    most, single = peaks(root, hw), peaks(root, hw, in_one=True)
    for memory in hw.memories:
        own = [t for t in moved if t.memory == memory.name]
        read, written, updated = (sum(getattr(t, k) for t in own) for k in ("read", "written", "updated"))
        busy, contended, banks = None, 0.0, list[BankUse]()
        if timeline is not None:
            banks = list(_banks(memory.name, timeline))
            shared = timeline.totals.shared.items()
            contended = sum(n for ((name, _), _), n in shared if name == memory.name) / timeline.ticks
            if memory.bytes_per_cycle and timeline.now:
                could = exact(memory.bytes_per_cycle) * memory.banks * memory.count * timeline.cycles
                busy = float((read + written + updated) / could)
        peak, in_one = (found[memory.name].bytes if memory.name in found else 0 for found in (most, single))
        yield MemoryUse(
            memory=memory.name, bytes=memory.bytes, peak=peak, read=read, written=written, updated=updated,
            busy=busy, contended=contended, instances=memory.count,
            in_one=in_one if memory.count > 1 else None, banks=banks,
        )  # fmt: skip


def _banks(memory: str, timeline: Timeline) -> Iterator[BankUse]:
    """Who used the banks of a memory, and who waited there."""
    totals = timeline.totals
    for (key, unit), accesses in sorted(totals.asked.items()):
        if key[0] == memory:
            yield BankUse(
                bank=key[1], unit=unit, accesses=accesses, waited=totals.waited[key, unit],
                cycles=totals.shared[key, unit] / timeline.ticks,
            )  # fmt: skip


def _kernels(root: Block, timeline: Timeline) -> Iterator[KernelTime]:
    busiest: dict[Site, dict[str, int]] = {}  # ticks of the busiest copy of each unit, and of banks
    for of in (timeline.totals.worked, timeline.totals.served):
        for (site, (what, _)), ticks in of.items():
            own = busiest.setdefault(site, {})
            own[what] = max(own.get(what, 0), ticks)
    for site, (begin, end) in sorted(timeline.kernels.items()):
        statement = root.statements[site[0]] if site else root
        name = statement.name if isinstance(statement, Block | Special) else root.name
        bound, most = max(busiest.get(site, {}).items(), key=lambda pair: (pair[1], pair[0]), default=("", 0))
        yield KernelTime(
            kernel=f"{root.name}/{name}", begin=begin // timeline.ticks, end=-(-end // timeline.ticks),
            bound=bound, share=most / (end - begin) if end > begin else 0.0,
        )  # fmt: skip


def _trace(timeline: Timeline, root: Block) -> list[Interval]:
    return [
        Interval(
            unit=t.unit[0], number=t.unit[1], path=_path(root, t.site), begin=t.begin / timeline.ticks,
            end=t.end / timeline.ticks, stalled=(t.end - t.begin - t.own) / timeline.ticks,
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
                cycles=[tick / timeline.ticks for tick in level.ticks], bytes=list(level.sizes),
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
