"""One case: prepare what takes part, check each result against float64, time all in turn."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from benchmarks import measure
from benchmarks.cases import Case
from benchmarks.machine import Machine, Probe
from benchmarks.measure import Contender, Timing
from benchmarks.peers.base import Peer, Prepared, Setting, Unsupported
from benchmarks.peers.onednn import PEER as ONEDNN
from benchmarks.peers.onednn import sgemm
from benchmarks.problems import Array, Matmul, Problem, Results, aligned, exact

TOLERANCE = 2e-5  # of the largest magnitude, for results in f32
MEMORY_FAMILIES = ("memory",)
LIBRARIES = ("library", "compiler")  # of peers that count

# `peaks` by kind of multiply-add, `bandwidth` by level and kind of access: see benchmarks.main.describe.
Shown: TypeAlias = Mapping[str, Mapping[str, Any]]
NOTHING: Shown = MappingProxyType({})


@dataclass
class Entry:
    """What came of one peer: a rate (thousands of millions of operations or bytes a second), or the reason
    why there is none. `rate` is the median or that of the fastest round, as the run was asked for; `low`
    and `high` are the quartiles, `fastest` the fastest round. `prepare` is seconds up to the first result.
    `busy`: others had the core in rounds that count, as too few are left without them; `cores` is what was
    left."""

    peer: str
    kind: str
    packed: bool
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    fastest: float | None = None
    prepare: float = 0.0
    rounds: int = 0
    disturbed: int = 0
    cores: float = 0.0
    error: float | None = None
    note: str = ""
    reason: str = ""
    busy: bool = False

    @property
    def key(self) -> str:
        return f"{self.peer}, packed" if self.packed else self.peer


@dataclass
class Row:
    """One case, measured. `limit` is what the machine allows, `bound` what sets it. `busy`: others had the
    core, so that its ratios, or its limit, say little."""

    family: str
    case: str
    unit: str
    amount: float
    bytes: int
    peak: float
    bandwidth: float
    limit: float
    bound: str
    yardstick: float | None = None
    entries: list[Entry] = field(default_factory=list)
    busy: bool = False

    def rate(self, peer: str, packed: bool = False) -> float | None:
        for entry in self.entries:
            if (entry.peer, entry.packed) == (peer, packed):
                return entry.rate
        return None

    def best(self, packed: bool, kinds: Sequence[str] = LIBRARIES) -> Entry | None:
        """The fastest of these kinds. With constant operands, what takes them with each call counts too."""
        found = [e for e in self.entries if e.kind in kinds and e.rate and (packed or not e.packed)]
        return max(found, key=lambda entry: entry.rate or 0.0, default=None)


def run_case(
    case: Case,
    peers: Sequence[Peer],
    machine: Machine,
    levels: dict[str, int],
    seconds: float,
    setting: Setting,
    by: str = "median",
    shown: Shown = NOTHING,
) -> Row:
    """`by`: which rounds count, the `median` or the `fastest`. `shown`: what the machine has shown earlier in
    this run, below which no limit falls."""
    problem = case.problem
    arrays = problem.arrays()
    reference = problem.reference(*exact(arrays))
    contenders: list[Contender] = []
    entries: list[Entry] = []
    kept: list[Prepared] = []  # a call through ctypes has addresses alone; its arrays live with `result`
    for peer in peers:
        for packed in (False, True) if any(o.constant for o in problem.operands) else (False,):
            entry = Entry(peer.name, peer.kind, packed)
            asked = Setting(packed, setting.threads, setting.target)
            prepared = _checked(peer, problem, arrays, asked, reference, entry)
            if prepared is not None:
                contenders.append(Contender(entry.key, prepared.call))
                kept.append(prepared)
            entries.append(entry)
    del reference
    probes = _probes(problem, machine, setting.threads)
    ruler = _yardstick(problem)
    if ruler is not None:
        probes["sgemm"] = ruler
    contenders += [Contender(f"probe {name}", probe.call, probe=True) for name, probe in probes.items()]
    gc.collect()
    gc.disable()
    try:
        timings = measure.interleave(contenders, seconds, setting.threads)
    finally:
        gc.enable()
    rates = {name: probe.amount / timings[f"probe {name}"].by(by) / 1e9 for name, probe in probes.items()}
    rates |= _at_least(problem, rates, timings, shown, _level(problem, levels))
    return _row(case, rates, levels, entries, timings, setting.threads, by)


def _at_least(
    problem: Problem, rates: Mapping[str, float], timings: Mapping[str, Timing], shown: Shown, level: str
) -> dict[str, float]:
    """The rates of probes that were higher ahead of the cases. Those of memory were of another size in the
    same level, so that they stand in only where others had the core."""
    ahead = dict(shown.get("bandwidth", {}).get(level, {}))
    found = {name: rate for name, rate in ahead.items() if name in rates and timings[f"probe {name}"].busy}
    peaks = shown.get("peaks", {})
    if "fma" in rates:
        # Where a core has no fast instruction of this kind, the probe is that of f32: machine.fma.
        found["fma"] = max(peaks.get("f32", 0.0), peaks.get(problem.dot, 0.0))
    return {name: max(rate, rates[name]) for name, rate in found.items()}


def _level(problem: Problem, levels: Mapping[str, int]) -> str:
    """The level of memory that holds all operands and results."""
    touched = problem.bytes_in + problem.bytes_out
    return next((name for name, size in levels.items() if touched <= size), "DRAM")


def _checked(
    peer: Peer, problem: Problem, arrays: dict[str, Array], setting: Setting, reference: Results, entry: Entry
) -> Prepared | None:
    """What to time, or nothing and the reason in the entry: not supported, failed, wrong."""
    start = time.perf_counter()
    try:
        prepared = peer.prepare(problem, arrays, setting)
        found = prepared.result()
        entry.prepare = time.perf_counter() - start
    except Unsupported as reason:
        entry.reason = str(reason)
        return None
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the report says how
        first_line = str(error).strip().partition("\n")[0][:200]
        entry.reason = f"failed: {type(error).__name__}: {first_line}"
        return None
    entry.error, entry.note = difference(found, reference), prepared.note
    exactly = isinstance(reference, np.ndarray) and reference.dtype.kind == "i"
    allowed = prepared.tolerance or (0.0 if exactly else TOLERANCE)
    if not entry.error <= allowed:
        entry.reason = f"wrong: off by {entry.error:.2g} of the largest magnitude"
        return None
    return prepared


def difference(found: Results, reference: Results) -> float:
    """The largest difference, as a fraction of the largest magnitude of its result; infinite where shapes
    differ."""
    if isinstance(found, tuple) or isinstance(reference, tuple):
        same = isinstance(found, tuple) and isinstance(reference, tuple) and len(found) == len(reference)
        return max(map(difference, found, reference)) if same else math.inf
    if found.shape != reference.shape:
        return math.inf
    scale = max(float(np.abs(reference).max(initial=0)), 1e-30)
    away = float(np.abs(found.astype(reference.dtype) - reference).max(initial=0)) / scale
    return away if math.isfinite(away) else math.inf


def _probes(problem: Problem, machine: Machine, threads: int) -> dict[str, Probe]:
    """Multiply-adds of the kind in use on one core, and memory at the size of this problem on all."""
    size = problem.bytes_in + problem.bytes_out
    found = {
        "read": machine.read(size, threads),
        "copy": machine.copy(size, threads),
        "stream": machine.stream(size, threads),
    }
    if problem.flops:
        found["fma"] = machine.fma(problem.dot)
    return found


def _yardstick(problem: Problem) -> Probe | None:
    """oneDNN's f32 matrix products of the same sizes, whatever the layout: for contractions of tensors."""
    products = problem.products
    if not products or isinstance(problem, Matmul) or ONEDNN.missing():
        return None
    calls: list[Callable[[], object]] = []
    for m, n, k in products:
        a, b, c = (aligned(shape, np.dtype(np.float32)) for shape in ((m, k), (k, n), (m, n)))
        a[...], b[...] = 1, 1
        calls.append(_holding(sgemm(Matmul(m, n, k), a, b, c), a, b, c))
    return Probe(lambda: [call() for call in calls], sum(2 * m * n * k for m, n, k in products))


def _holding(call: Callable[[], object], *arrays: Array) -> Callable[[], object]:
    """The same function; it keeps the arrays alive, of which the library has only the addresses."""

    def run() -> object:
        return call(), arrays

    return run


def _row(
    case: Case,
    rates: dict[str, float],
    levels: dict[str, int],
    entries: list[Entry],
    timings: dict[str, Timing],
    threads: int,
    by: str,
) -> Row:
    problem = case.problem
    memory = case.family in MEMORY_FAMILIES or not problem.flops
    amount = problem.counted_bytes if memory else problem.flops
    for entry in entries:
        timing = timings.get(entry.key)
        if timing is None or entry.reason:
            continue
        entry.rate, entry.fastest = amount / timing.by(by) / 1e9, amount / timing.least / 1e9
        entry.low, entry.high = amount / timing.high / 1e9, amount / timing.low / 1e9
        entry.rounds, entry.disturbed, entry.cores = timing.rounds, timing.disturbed, timing.cores
        entry.busy = timing.busy
        if timing.cores > threads + 0.2:
            entry.note = f"{entry.note}; used {timing.cores:.1f} cores".lstrip("; ")
    seconds = memory_seconds(problem.bytes_in, problem.bytes_out, rates)
    bandwidth = (problem.bytes_in + problem.bytes_out) / seconds / 1e9
    peak = rates.get("fma", 0.0) * threads
    compute = problem.flops / peak / 1e9 if peak else 0.0
    touched = problem.bytes_in + problem.bytes_out
    unit = "GB/s" if memory else "GOP/s" if problem.dot == "i8" else "GFLOP/s"
    row = Row(
        case.family, case.name, unit, amount, touched, peak, bandwidth,
        amount / max(seconds, compute) / 1e9,
        "multiply-adds" if compute >= seconds else _level(problem, levels), rates.get("sgemm"), entries,
    )  # fmt: skip
    row.busy = any(timing.busy for name, timing in timings.items() if name.startswith("probe "))
    row.busy |= any(entry.busy and _matters(entry, row) for entry in entries)
    return row


def _matters(entry: Entry, row: Row) -> bool:
    """Whether a figure stands in the table, or might, had the contender had the core for itself."""
    best = row.best(entry.packed)
    alone = (entry.rate or 0.0) / max(entry.cores, 1e-9)
    return entry.kind not in LIBRARIES or best is None or alone >= (best.rate or 0.0)


def memory_seconds(bytes_in: int, bytes_out: int, rates: dict[str, float]) -> float:
    """The least time to move the operands: what is written is paired with as many bytes that are read, at
    the rate of a copy (with ordinary stores or streaming ones); the rest is read."""
    copy = max(rates["copy"], rates["stream"])
    read = max(rates["read"], copy)
    paired = min(bytes_in, bytes_out)
    rest = bytes_in + bytes_out - 2 * paired
    return (2 * paired / copy + rest / (read if bytes_in > bytes_out else copy)) / 1e9


def as_record(row: Row) -> dict[str, Any]:
    """The row as JSON holds it; docs/benchmarks.md says what the fields mean."""
    record = {name: getattr(row, name) for name in row.__dataclass_fields__ if name != "entries"}
    record["entries"] = [
        {name: getattr(entry, name) for name in entry.__dataclass_fields__} for entry in row.entries
    ]
    return record


def from_record(record: dict[str, Any]) -> Row:
    rest = {name: value for name, value in record.items() if name != "entries"}
    return Row(**rest, entries=[Entry(**entry) for entry in record["entries"]])
