"""What a simulation found, as typed values and as JSON of a stated version.

Cycles are whole: times are rounded up. Bytes are counted at the memory that holds the buffer.
"""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1  # of the JSON; a change of its meaning or of a key's name makes it another


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Traffic(_Value, frozen=True, kw_only=True):
    """What one unit moved between itself and one buffer, in bytes. `updated` are those of `written` whose old
    value was read for them, as aggregations do: they count twice in what the memory delivers. A word is an
    element of the buffer, of `word_bytes`."""

    memory: str
    buffer: str
    unit: str
    read: int
    written: int
    updated: int
    word_bytes: int = 1
    words_read: int = 0
    words_written: int = 0


class BlockCount(_Value, frozen=True, kw_only=True):
    """What one block did, over all its executions. `busy` are cycles of its unit; of these, `filling` before
    first results and `padding` for points that are not there. `bound` is what held its executions up for
    most of their time: its unit, a memory that takes longer for their bytes, or one that they waited for
    longer than they worked; null where nothing ran."""

    path: str
    unit: str
    points: int
    operations: int
    uses: int
    vectors: int
    starts: int
    bytes: int
    busy: float
    filling: float
    padding: float
    bound: str | None = None


class TimeSplit(_Value, frozen=True, kw_only=True):
    """Where all cycles of a unit went: `useful` ones, those for points that are not there (`padding`), before
    first results (`filling`), waiting for data (for a memory, or for a unit that transfers), waiting for
    another unit that computes, and with `nothing` to do before its first task and after its last."""

    useful: float
    padding: float
    filling: float
    data: float
    units: float
    nothing: float


class UnitTime(_Value, frozen=True, kw_only=True):
    """How one unit spent the time, in cycles: `busy` by work of its own, `stalled` by the memory that was
    slower or whose latency it was, `idle` by the unit that it waited for ("": no work was left, or none had
    begun). They add up to all cycles, and so do the parts of `split`."""

    unit: str
    number: int
    tasks: int
    busy: float
    stalled: dict[str, float]
    idle: dict[str, float]
    operations: int = 0
    split: TimeSplit | None = None


class BankUse(_Value, frozen=True, kw_only=True):
    """What the copies of one unit had of one bank: `accesses` are tasks that moved bytes there, `waited`
    those of them that took longer since others used the bank at the same time, by `cycles` together. Banks
    are counted through all instances of the memory."""

    bank: int
    unit: str
    accesses: int
    waited: int
    cycles: float


class MemoryUse(_Value, frozen=True, kw_only=True):
    """One memory: `peak` bytes of `bytes` are alive at most; bytes `read` and `written`; `busy` is the share
    of what its banks could have delivered in the time; `contended` are cycles that units lost because several
    used a bank at once, and `banks` has for each bank and unit how often, where that was simulated and the
    memory has a rate. Where there are several `instances` of it, `bytes` are those of one, all others of
    all instances together, and `in_one` is what is alive at most in one.
    """

    memory: str
    bytes: int | None
    peak: int
    read: int
    written: int
    updated: int
    busy: float | None
    contended: float
    instances: int = 1
    in_one: int | None = None
    banks: list[BankUse] = []


class KernelTime(_Value, frozen=True, kw_only=True):
    """When one statement of the program ran, and what bound it: the unit or memory that was busiest
    meanwhile."""

    kernel: str
    begin: int
    end: int
    bound: str
    share: float


class Energy(_Value, frozen=True, kw_only=True):
    """One product of the energy: `count` of `what`, each at `pj` picojoules."""

    what: str
    count: int
    pj: float
    total_pj: float


class Interval(_Value, frozen=True, kw_only=True):
    """One task as it ran, in cycles from the start. For `stalled` of them its unit waited for `memory`."""

    unit: str
    number: int
    path: str
    begin: float
    end: float
    stalled: float = 0.0
    memory: str = ""


class Occupancy(_Value, frozen=True, kw_only=True):
    """The bytes of one memory that are alive in the run: from each of `cycles` on, `bytes`. Where it is not
    `exact`, changes were left out, and each stands for the most until the next."""

    memory: str
    most: int
    exact: bool
    cycles: list[float]
    bytes: list[int]


class Bound(_Value, frozen=True, kw_only=True):
    """Bytes of a tensor ("": of all; a path: it lives in its kernel) that cross the boundary between a memory
    and what is nearer, in a kernel ("": in the whole program): what has to, the least that was found, or the
    `reason` why none was, and ours. `ratio` is ours to what has to."""

    kernel: str
    memory: str
    tensor: str
    compulsory: int
    least: int | None
    ours: int
    ratio: float | None
    reason: str = ""


class CacheCount(_Value, frozen=True, kw_only=True):
    """What a cache did for what one unit does with one buffer: accesses to lines, how many found theirs and
    how many did not, and bytes that were fetched and written back; of these `left` ones were dirty at the
    end."""

    buffer: str
    unit: str
    accesses: int
    hits: int
    misses: int
    fetched: int
    written_back: int
    left: int


class CacheUse(_Value, frozen=True, kw_only=True):
    """One cache: `ways` lines in each of `sets` sets (null: no limit), and the sums over `buffers`."""

    memory: str
    sets: int
    ways: int | None
    line_bytes: int
    replacement: str
    accesses: int
    hits: int
    misses: int
    fetched: int
    written_back: int
    left: int
    buffers: list[CacheCount]


class Simulation(_Value, frozen=True, kw_only=True):
    """One run of a program on a described machine.

    `cycles` and `units` are None where counts were taken in closed form alone. `skipped` points were counted
    as repetitions instead of gone through. `no_bounds` says why there are no `bounds`. `caches` are there
    where the target has some, and it ran. `load` is the program that runs once when constants are known; the
    rest leaves it out.
    """

    version: int = VERSION
    program: str
    target: str
    counts: Literal["closed", "simulated", "both"]
    cycles: int | None
    seconds: float | None
    skipped: int
    operations: int
    energy_pj: float
    traffic: list[Traffic]
    memories: list[MemoryUse]
    units: list[UnitTime]
    blocks: list[BlockCount]
    kernels: list[KernelTime]
    energy: list[Energy]
    trace: list[Interval] = []
    occupancy: list[Occupancy] = []
    bounds: list[Bound] = []
    no_bounds: str = ""
    caches: list[CacheUse] = []
    load: Simulation | None = None


def schema() -> dict[str, object]:
    """The JSON schema of what `stripec simulate --json` prints."""
    return msgspec.json.schema(Simulation)
