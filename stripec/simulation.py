"""`stripec simulate` and `stripec.simulate`: a program on a machine that need not exist."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import msgspec

from hwconfigs.model import HwConfig
from simulator import Simulation
from simulator import simulate as run
from simulator.result import Bound, CacheCount, CacheUse, UnitTime
from simulator.simulate import Counts
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripec.api import check_types
from stripec.commands import input_types
from stripec.driver import Frontend, Target, optimise, read_program, resolve_target
from stripec.files import check_output
from stripec.mappings import MappingLike, mapped
from stripec.tables import Line, print_lines, print_table
from stripec.tensors import TypeLike
from stripec.trace import TASKS, left_out, write_trace

_MOST_ROWS = 24  # of a table; --json has all


def simulate(
    program: Any,
    *,
    shapes: Mapping[str, TypeLike] | None = None,
    target: Target,
    constants: Collection[str] = (),
    counts: Counts = "both",
    extrapolate: bool = True,
    trace: int = 0,
    verify: str = "on",
    mapping: MappingLike = None,
) -> Simulation:
    """Compile a program for a target, and say how it runs there.

    `program` is Tile text or the path of a file, as for `stripec.compile`; `shapes` gives the type of each
    input that the program leaves open; those in `constants` are known ahead, and what is done with them once
    is `load` of the result. `counts` is "closed" (by isl, without running), "simulated" (execution
    by execution, with cycles) or "both", which compares the two. `extrapolate` counts what repeats exactly
    instead of going through it; `trace` keeps the first that many tasks with their times, which
    `stripec.trace.write_trace` writes for Perfetto. `mapping`: a file with the choices of passes, as `stripec
    map` writes it. Raises CompileError.
    """
    frontend, hw = mapped(mapping, read_program(program), resolve_target(target))
    if counts not in get_args(Counts):
        expected = ", ".join(map(repr, get_args(Counts)))
        raise CompileError(Diagnostic("D074", f"counts is {counts!r}, expected one of {expected}"))
    types = check_types(frontend, shapes)
    known = _constants(constants, frontend)
    done = optimise(frontend.lower(types, known), hw, verify=verify, name=frontend.name)
    return run(
        done.program, hw, name=frontend.name, counts=counts, extrapolate=extrapolate, trace=trace,
        untiled=done.untiled,
    )  # fmt: skip


def command(arguments: argparse.Namespace) -> None:
    """`stripec simulate`."""
    out = None if arguments.trace is None else Path(arguments.trace)
    if out is not None:
        if arguments.counts == "closed":
            message = "--trace needs a run, and --counts closed makes none"
            raise CompileError(Diagnostic("D072", message, notes=("help: leave out --counts",)))
        check_output(out)
    tasks = arguments.tasks if arguments.tasks is not None else TASKS if out is not None else 0
    frontend, hw = mapped(
        arguments.mapping, read_program(Path(arguments.file)), resolve_target(arguments.target)
    )
    known = _constants(arguments.const, frontend)
    program = frontend.lower(input_types(arguments.shape, frontend), known)
    done = optimise(program, hw, verify=arguments.verify, name=frontend.name)
    found = run(
        done.program, hw, name=frontend.name, counts=arguments.counts, extrapolate=not arguments.full,
        trace=tasks, untiled=done.untiled,
    )  # fmt: skip
    if out is not None:
        write_trace(out, found, hw)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    _print(found, hw)
    if out is not None:
        more = left_out(found)
        said = f"; the last {more} are left out: --tasks takes more" if more else ""
        print_lines([Line(""), Line(f"{out}: {len(found.trace)} tasks for ui.perfetto.dev{said}")])


def _constants(names: Collection[str], frontend: Frontend) -> tuple[str, ...]:
    for name in names:
        if name not in frontend.inputs:
            message = f"constants: the program has no input '{name}'"
            raise CompileError(Diagnostic("D031", message, notes=did_you_mean(name, frontend.inputs)))
    return tuple(names)


def _print(found: Simulation, hw: HwConfig) -> None:
    print_lines([Line(_head(found))])
    if found.cycles is None and hw.static_pj_per_cycle:
        print_lines([Line("the energy is without 'static_pj_per_cycle': these counts have no cycles")])
    _tables(found)
    if found.load is not None:
        print_lines([Line(""), Line(f"load-time program of {_head(found.load)}")])
        _tables(found.load)


def _tables(found: Simulation) -> None:
    if found.units:
        heads = ("unit", "busy", "of the time", "stalled by", "waits for")
        _table("units, in cycles", heads, _alike(_units(found)))
        parts = (
            "operations",
            "useful",
            "padding",
            "filling",
            "waits for data",
            "waits for a unit",
            "nothing to do",
        )
        _table("units, in shares of the time", ("unit", *parts), _alike(_splits(found)))
    head = ("read", "written", "of which updated", "busy", "contended")
    several = any(memory.instances > 1 for memory in found.memories)
    size = ("peak bytes", "of", *(("in one", "of one") if several else ()), "alive at most")
    _table("memories, in bytes", ("memory", *size, *head), _memories(found, several))
    if any(bank.waited for memory in found.memories for bank in memory.banks):
        conflicts = ("accesses", "waited", "of them", "cycles waited")
        _table("bank conflicts, in tasks and cycles", ("memory", "bank", "unit", *conflicts), _banks(found))
    if found.caches:
        counts = ("accesses", "hits", "misses", "missed", "fetched", "written back", "dirty at the end")
        _table("caches, in lines and bytes", ("cache", "buffer", "unit", *counts), _caches(found))
    _table(
        "traffic, in bytes",
        ("memory", "buffer", "unit", "read", "written", "of which updated", "words read", "words written"),
        _traffic(found),
    )
    _table(
        "work, in operations and cycles",
        ("block", "unit", "operations", "busy", "filling", "padding", "bound by"),
        _blocks(found),
    )
    if found.kernels:
        _table("kernels, in cycles", ("kernel", "begins", "ends", "bound by", "busy"), _kernels(found))
    _print_bounds(found)
    if found.energy:
        _table("energy", ("what", "count", "pJ each", "pJ", "share"), _energy(found))


def _print_bounds(found: Simulation) -> None:
    """The table of bounds. Of a long one, what single tensors move is told in --json alone."""
    if found.no_bounds:
        print_lines([Line(""), Line("no bounds", "bold"), Line(found.no_bounds)])
    if not found.bounds:
        return
    shown = list(_told_once(found.bounds))
    if len(shown) > _MOST_ROWS:
        sums = {(bound.kernel, bound.memory) for bound in shown if not bound.tensor}
        shown = [b for b in shown if not b.tensor or (b.kernel, b.memory) not in sums]
    own = ("compulsory", "least found", "ours", "ours to compulsory")
    whole = sum(not bound.kernel for bound in shown)
    _table("bounds, in bytes", ("kernel", "memory", "tensor", *own), _bounds(shown), last=whole)
    reasons: dict[tuple[str, str], list[str]] = {}
    for bound in found.bounds:
        if bound.reason and bound.kernel:
            kernels = reasons.setdefault((bound.memory, bound.reason), [])
            kernels += [bound.kernel] if bound.kernel not in kernels else []
    for (memory, reason), kernels in reasons.items():
        more = f" and {len(kernels) - 3} more" if len(kernels) > 3 else ""
        told = f"{', '.join(kernels[:3])}{more} at {memory}: {reason}"
        print_lines([Line(f"no least found for {told}; compulsory is the bound that stands")])


def _told_once(bounds: Iterable[Bound]) -> Iterable[Bound]:
    """Without tensors of the whole program of which one kernel says the same."""
    kernels = set()
    for bound in bounds:
        told = bound.memory, bound.tensor, bound.compulsory, bound.least, bound.ours
        if bound.kernel:
            kernels.add(told)
        if bound.kernel or not bound.tensor or told not in kernels:
            yield bound


def _head(found: Simulation) -> str:
    parts = [f"{found.program} on {found.target}:"]
    if found.cycles is not None:
        parts.append(f"{found.cycles} cycles")
        if found.seconds is not None:
            parts.append(f"({found.seconds * 1e3:.4g} ms)")
    parts.append(f"{found.operations} operations")
    if found.energy_pj:
        parts.append(f"{found.energy_pj / 1e6:.4g} uJ")
    said = {
        "both": "counted execution by execution and in closed form: equal",
        "closed": "counted in closed form",
        "simulated": "counted execution by execution",
    }[found.counts]
    return f"{' '.join(parts)}; {said}"


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]], last: int = 0) -> None:
    """A table. Of a long one rows are left out, but not the `last` ones."""
    every = list(rows)
    print_lines([Line(""), Line(title, "bold")])
    print_table(
        head,
        every if len(every) <= _MOST_ROWS else [*every[: _MOST_ROWS - last], *every[len(every) - last :]],
    )
    if len(every) > _MOST_ROWS:
        print_lines([Line(f"... and {len(every) - _MOST_ROWS} more: --json has all")])


def _alike(rows: Iterable[tuple[UnitTime, tuple[str, ...]]]) -> Iterable[tuple[str, ...]]:
    """A row for each unit: copies that follow each other and say the same share one."""
    groups = groupby(rows, key=lambda row: (row[0].unit, row[1]))
    every = [(name, told, [unit.number for unit, _ in own]) for (name, told), own in groups]
    several = {name for name, _, numbers in every if numbers[-1]}
    for name, told, numbers in every:
        last = f"..{numbers[-1]}" if len(numbers) > 1 else ""
        yield f"{name}[{numbers[0]}{last}]" if name in several else name, *told


def _units(found: Simulation) -> Iterable[tuple[UnitTime, tuple[str, ...]]]:
    for unit in found.units:
        stalled = ", ".join(f"{memory} {_cycles(n)}" for memory, n in unit.stalled.items())
        idle = ", ".join(f"{other or 'work'} {_cycles(n)}" for other, n in unit.idle.items())
        share = f"{unit.busy / found.cycles:.1%}" if found.cycles else ""
        yield unit, (_cycles(unit.busy), share, stalled, idle)


def _splits(found: Simulation) -> Iterable[tuple[UnitTime, tuple[str, ...]]]:
    for unit in found.units:
        split = unit.split
        if split is not None:
            parts = (split.useful, split.padding, split.filling, split.data, split.units, split.nothing)
            whole = sum(parts) or 1.0
            yield unit, (str(unit.operations), *(f"{part / whole:.1%}" for part in parts))


def _memories(found: Simulation, several: bool) -> Iterable[tuple[str, ...]]:
    """A row for each memory; with `several`, what lies in one instance of it, too."""
    alive = {own.memory: own.most for own in found.occupancy}
    for m in found.memories:
        busy = "" if m.busy is None else f"{m.busy:.1%}"
        name = m.memory if m.instances == 1 else f"{m.memory}[0..{m.instances - 1}]"
        of = "any" if m.bytes is None else str(m.bytes * m.instances)
        one = ("", "") if m.in_one is None else (str(m.in_one), str(m.bytes or "any"))
        most = str(alive.get(m.memory, 0)) if found.cycles is not None else ""
        counts = (str(n) for n in (m.read, m.written, m.updated))
        yield name, str(m.peak), of, *(one if several else ()), most, *counts, busy, _cycles(m.contended)


def _banks(found: Simulation) -> Iterable[tuple[str, ...]]:
    """A row for each bank and unit that had to wait there; banks that say the same one after the other share
    one."""
    rows = []
    for memory in found.memories:
        for own in sorted(memory.banks, key=lambda b: (b.unit, b.bank)):
            share, cycles = f"{own.waited / own.accesses:.1%}", _cycles(own.cycles)
            told = memory.memory, own.unit, str(own.accesses), str(own.waited), share, cycles
            if own.waited:
                rows.append((own.bank, told))
    for (name, *told), group in groupby(rows, key=lambda row: row[1]):
        numbers = [bank for bank, _ in group]
        yield name, str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}..{numbers[-1]}", *told


def _caches(found: Simulation) -> Iterable[tuple[str, ...]]:
    for cache in found.caches:
        yield cache.memory, "all", "", *_cache_counts(cache)
        for own in cache.buffers:
            yield cache.memory, own.buffer, own.unit, *_cache_counts(own)


def _cache_counts(own: CacheUse | CacheCount) -> tuple[str, ...]:
    share = f"{own.misses / own.accesses:.1%}" if own.accesses else ""
    moved = (str(n) for n in (own.fetched, own.written_back, own.left))
    return str(own.accesses), str(own.hits), str(own.misses), share, *moved


def _traffic(found: Simulation) -> Iterable[tuple[str, ...]]:
    for t in found.traffic:
        counts = (t.read, t.written, t.updated, t.words_read, t.words_written)
        yield t.memory, t.buffer, t.unit, *map(str, counts)


def _blocks(found: Simulation) -> Iterable[tuple[str, ...]]:
    for b in found.blocks:
        shares = (f"{part / b.busy:.1%}" if b.busy else "" for part in (b.filling, b.padding))
        yield b.path, b.unit, str(b.operations), _cycles(b.busy), *shares, b.bound or ""


def _kernels(found: Simulation) -> Iterable[tuple[str, ...]]:
    for k in found.kernels:
        yield k.kernel, str(k.begin), str(k.end), k.bound, f"{k.share:.1%}"


def _bounds(found: Iterable[Bound]) -> Iterable[tuple[str, ...]]:
    for b in found:
        least = "none" if b.least is None else str(b.least)
        ratio = "" if b.ratio is None else f"{b.ratio:.3g}"
        named = b.kernel or "the program", b.memory, b.tensor or "all"
        yield *named, str(b.compulsory), least, str(b.ours), ratio


def _energy(found: Simulation) -> Iterable[tuple[str, ...]]:
    for e in found.energy:
        yield e.what, str(e.count), f"{e.pj:g}", f"{e.total_pj:.6g}", f"{e.total_pj / found.energy_pj:.1%}"


def _cycles(value: float) -> str:
    return f"{value:.0f}"
