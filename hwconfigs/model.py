"""The typed model of a hardware configuration: what one JSON file says about one target.

    HwConfig -- memories (nearest to the arithmetic first), units, stencils, executor, CPU, pipeline

Sizes are in bytes, rates per cycle. A pass option that names a memory or a unit refers to
these by name, so each size is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=1 << 60)]
Copies = Annotated[int, Meta(ge=1, le=1 << 16)]  # of what the simulator keeps one by one
Rate = Annotated[float, Meta(gt=0, le=1e15)]
Energy = Annotated[float, Meta(ge=0, le=1e15)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-]*$", max_length=64)]

ElementType = Literal[
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"
]  # fmt: skip

# Of a cache that cores share: how large a program may be whose results stay there.
STAYS_OF_ONE, STAYS_OF_SEVERAL = 0.5, 1.25
LINE_BYTES = 64  # of a line, where nothing says how long it is
LEAST_CPU_LINE_BYTES = 8  # the largest element
MAX_CPU_VECTOR_BYTES = 8192  # the widest that an instruction set has room for: RISC-V's V extension

CAPABILITIES: dict[str, str] = {
    "masked_memory": "loads and stores under a lane mask run at full speed",
    "masked_words": "so do those of elements of 4 and 8 bytes that lie one after the other",
    "streaming_stores": "stores that fill one line after the other can go past the caches",
    "overtaking_loads": "loads overtake earlier stores but for those that look the same: see `alike_bytes`",
    "fetches_rows": "a few rows that come past side by side are fetched ahead without being asked for",
    "fetches_deep": "rows that loads go along, if few, come early enough; rows far apart are not asked for",
}


class ConfigError(Exception):
    """A hardware configuration is wrong.

    `code` is H001 (can't be read), H002 (not JSON), H003 (a wrong key or value), H004
    (`extends`) or H005 (names or sizes that don't fit together); `path` is the JSON path,
    `notes` say what to do.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "H003",
        file: str = "",
        path: str = "$",
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.file = file
        self.path = path
        self.notes = notes

    def __str__(self) -> str:
        place = f"{self.file}: " if self.file else ""
        where = f" (at {self.path})" if self.path != "$" else ""
        notes = "".join(f"\n     = {note}" for note in self.notes)
        return f"{place}error[{self.code}]: {self.message}{where}{notes}"


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Memory(_Model, frozen=True):
    """One level of storage.

    `kind`: `registers` (the register file of a unit), `cached` (filled by hardware) or
    `explicit` (filled by transfers in the program). In `explicit` memory every buffer gets an address; in a
    register file too, such as one of accumulators, unless the target runs native code, for
    which LLVM gives out the registers. `bytes` is the capacity of one instance;
    null means large enough for anything. `bytes_per_cycle` is what it delivers to the next
    nearer level; `backing` is the name of the next farther level. A cached memory has lines of `line_bytes`
    (for native code a power of two, LEAST_CPU_LINE_BYTES or more) in sets of `ways` (null: all lines are one
    set); in the simulator `replacement` says which line of a full
    set goes: the one that was used longest ago (`lru`), or the one that came first (`fifo`). A set takes in a
    line every `set_cycles` (null: as fast as different sets do). Where lines lie on few sets, a share
    `crowded_loss` of them is expected to be lost for each time beyond the first that they fill these.

    There are `count` instances of it, such as the private memory of each core, and each is divided
    into `banks` of equal size. A location numbers the banks of all instances through:
    `instance * banks + bank`. Addresses are in bytes, multiples of `align_bytes`, counted
    from the start of a bank where a location names one, else from the start of the memory. In the simulator
    each bank delivers `bytes_per_cycle`, to all units together, and reads and writes cost
    `read_pj_per_byte` and `write_pj_per_byte`, in picojoules.
    """

    name: Name
    kind: Literal["registers", "cached", "explicit"]
    bytes: Count | None = None
    line_bytes: Count = LINE_BYTES
    ways: Count | None = None
    replacement: Literal["lru", "fifo"] = "lru"
    bytes_per_cycle: Rate | None = None
    set_cycles: Rate | None = None
    crowded_loss: Annotated[float, Meta(ge=0, le=1)] = 0.2
    latency_cycles: Rate | None = None
    backing: str | None = None
    banks: Copies = 1
    count: Copies = 1
    align_bytes: Count = 1
    read_pj_per_byte: Energy = 0.0
    write_pj_per_byte: Energy = 0.0

    @property
    def rows_in_turn(self) -> int | None:
        """Along how many rows one can go in turn, so that half of it keeps two lines of each: the one that
        is used, and the next, which was fetched with it or begins in it. None: along any number."""
        return self.bytes // (4 * self.line_bytes) if self.bytes is not None else None


class Unit(_Model, frozen=True):
    """What computes or transfers.

    `vector_bytes` is the width of one operation, for native code a power of two up to
    MAX_CPU_VECTOR_BYTES; where it holds one element or less, code is scalar. `registers` is the
    number of vector registers.
    `fma_per_cycle`, `loads_per_cycle` and `stores_per_cycle` count vector instructions. Where these go along
    paths of `path_bytes`, a narrower one takes its share of the time, but no less than the path's (null: all
    take as long).
    `capabilities` are named abilities that code generation may rely on: see CAPABILITIES. A load takes an
    earlier store for one to its own address where the two are a multiple of `alike_bytes` apart, and waits.
    A core writes `streaming_bytes_per_cycle` past its caches (null: so many that no cache which it shares
    takes results faster). With `streams` it fetches on behind what it is asked for, wanted or not, along so
    many rows that are taken in turn, a piece of each (null: only what it is asked for, along any number).

    `reaches` names the memories whose data it loads and stores. Where a memory has several instances
    and the unit several copies, copy number c reaches instance c alone. `operations` are the scalar
    intrinsics that it computes and `types` the element types that it takes (`*`: all), `specials`
    the specials that it executes. What it executes as a stencil needs neither. A unit of kind
    `transfer` copies, `bytes_per_cycle` at most, and starts each copy after `startup_cycles`. Of native
    code `count` is the number of threads, `startup_cycles` what it takes to wake them for a program, and
    `handover_cycles` to give them a kernel while they are awake, and to wait for all. A core writes
    `shared_bytes_per_cycle` where others have read before (null: as fast as elsewhere). An arithmetic
    operation outside of stencils costs `pj_per_operation`, in picojoules.
    """

    name: Name
    kind: Literal["compute", "transfer"] = "compute"
    count: Copies = 1
    vector_bytes: Count = 16
    registers: Count = 16
    fma_per_cycle: Rate = 1.0
    loads_per_cycle: Rate = 1.0
    stores_per_cycle: Rate = 1.0
    path_bytes: Count | None = None
    bytes_per_cycle: Rate | None = None
    startup_cycles: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    handover_cycles: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    shared_bytes_per_cycle: Rate | None = None
    reaches: tuple[str, ...] = ()
    operations: tuple[str, ...] = ("*",)
    types: tuple[str, ...] = ("*",)
    specials: tuple[str, ...] = ("*",)
    capabilities: tuple[str, ...] = ()
    alike_bytes: Count = 1 << 20
    streams: Count | None = None
    streaming_bytes_per_cycle: Rate | None = None
    pj_per_operation: Energy = 0.0


class SizeRange(_Model, frozen=True):
    """The sizes that an index of a stencil may have: multiples of `multiple`, from `least` to `most`.

    `multiple` is a number or `lanes`: as many elements as fill a vector of the unit.
    """

    multiple: Count | Literal["lanes"] = 1
    least: Count = 1
    most: Count | None = None


class Stencil(_Model, frozen=True):
    """The shape of what an instruction or an array does in one go (Stripe paper, section 2.3).

    `indices` gives the legal sizes of each index: a number, `any`, or a SizeRange. `body` is one
    aggregating assignment over the operands, such as `acc += x * y`; `operands` lists the indexes
    that each operand's place depends on, and `types` its element type. `stride` is the step in
    elements that an operand must have along an index, where that matters; `memory` is where an
    operand must lie. `registers` counts the vector registers that an operand takes, in expressions
    over the sizes and `lanes` (as many elements of the result as fill a vector of the unit); together
    they stay within those of the unit. One use takes `cycles` (an expression; 1 if empty) on `unit` behind
    `startup_cycles`; beside that, `loads` counts the instructions that bring in each operand, of
    the result also those that take it back. A use may be smaller than the next legal size: it is padded, and
    takes as long. `inner` names a stencil of which each use is made up. `intrinsic` is the instruction of
    native code that does it, by LLVM's name: it takes the result's old value and then the body's operands,
    as vectors of their elements; or as registers that hold rows, if `memory` puts them all in one memory of
    kind `registers`, of which each line is such a register (AMX: rows i, lanes j, and steps k of groups p).
    `features` are those of `cpu.features` that have it. Each point of a use, its body once, costs
    `pj_per_point`, in picojoules.
    """

    name: Name
    unit: str
    body: str
    indices: dict[Name, Count | Literal["any"] | SizeRange]
    operands: dict[Name, tuple[Name, ...]]
    types: dict[Name, ElementType]
    stride: dict[Name, dict[Name, int]] = {}
    memory: dict[Name, str] = {}
    registers: dict[Name, str] = {}
    loads: dict[Name, str] = {}
    cycles: str = ""
    startup_cycles: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    inner: str = ""
    intrinsic: str = ""
    features: tuple[str, ...] = ()
    pj_per_point: Energy = 0.0
    description: str = ""


class Cpu(_Model, frozen=True):
    """What LLVM needs to know. Empty fields of `target="host"` are filled in on the machine.

    `features` are what code may use beyond the baseline of the architecture: LLVM's names without
    sign, such as `avx512f`; a machine that lacks one of them can't run the code. `cpu` is LLVM's
    name of a CPU, for which instructions are ordered; it allows none. `measured_on` has LLVM's names
    of the CPUs whose rates the config gives: `host` takes it there before all others, and nowhere else.
    """

    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    measured_on: tuple[str, ...] = ()


class PassStep(_Model, frozen=True):
    """One step of the pipeline: a pass and its options. In JSON: {"pass": NAME, option: value}."""

    name: str
    options: dict[str, Any] = {}


class PastCaches(NamedTuple):
    """How many bytes a `result` has to exceed to go past the caches, and the `program` that makes it; or the
    program if it is `slow`: computes elementary functions for each result."""

    result: int
    program: int
    slow: int


class HwConfig(_Model, frozen=True):
    """One target.

    `executor` says who runs its programs: native code (`cpu`), the simulator, or the
    interpreter. `pipeline` is the list of passes, in order. `clock_hz` turns cycles into seconds;
    `static_pj_per_cycle` is what all of it takes, in picojoules, whether it works or not.
    """

    name: Name
    description: str
    executor: Literal["cpu", "simulator", "interpreter"]
    memories: tuple[Memory, ...] = ()
    units: tuple[Unit, ...] = ()
    stencils: tuple[Stencil, ...] = ()
    cpu: Cpu | None = None
    clock_hz: Rate | None = None
    static_pj_per_cycle: Energy = 0.0
    pipeline: tuple[PassStep, ...] = ()

    def memory(self, name: str) -> Memory | None:
        return next((m for m in self.memories if m.name == name), None)

    def unit(self, name: str) -> Unit | None:
        return next((u for u in self.units if u.name == name), None)

    def stencil(self, name: str) -> Stencil | None:
        return next((s for s in self.stencils if s.name == name), None)

    def is_registers(self, name: str) -> bool:
        """Whether a memory of this name holds registers."""
        memory = self.memory(name)
        return memory is not None and memory.kind == "registers"

    def has_addresses(self, memory: Memory) -> bool:
        """Whether programs say at which bytes of a memory each buffer lies: of those that they fill, and of
        register files, but for native code, where LLVM gives the registers out."""
        return memory.kind == "explicit" or (memory.kind == "registers" and self.executor != "cpu")

    def past_caches(self, unit: Unit) -> PastCaches | None:
        """When results go past the caches: those larger than what a core has for itself and, where the cache
        that it shares takes results faster than they go past it, of programs larger than its share of that
        cache: half, as others use it too. Several cores take as much as there is, and let some of it drop
        out again: each brings its own to the cache, but past it leads one way for all, which is wide enough
        for what they compute slowly. None where stores can't."""
        own = own_cache(self.memories)
        if "streaming_stores" not in unit.capabilities or own is None or own.bytes is None:
            return None
        shared = self.caches[-1]
        # A line that is written into a cache is fetched from it first, and put back into it later.
        rate, past = (shared.bytes_per_cycle or 0) / 2, unit.streaming_bytes_per_cycle
        stays = past is not None and rate > past
        room = (shared.bytes or 0) if stays else 0
        share = STAYS_OF_ONE if unit.count == 1 else STAYS_OF_SEVERAL
        return PastCaches(own.bytes, int(room * share), int(room * STAYS_OF_ONE))

    @property
    def compute_units(self) -> Sequence[Unit]:
        """The units that compute, the main one first."""
        return [unit for unit in self.units if unit.kind == "compute"]

    @property
    def compute_unit(self) -> Unit | None:
        """The main unit that computes: the first."""
        return next(iter(self.compute_units), None)

    @property
    def caches(self) -> Sequence[Memory]:
        """The memories that hardware fills, nearest first."""
        return [memory for memory in self.memories if memory.kind == "cached"]

    @property
    def nearest_cache(self) -> Memory | None:
        return next(iter(self.caches), None)

    @property
    def line_bytes(self) -> int:
        """What the nearest cache fetches at a time; 1 without caches."""
        return self.nearest_cache.line_bytes if self.nearest_cache is not None else 1

    @property
    def home(self) -> Memory | None:
        """Where inputs and outputs of a program lie: the farthest memory that programs manage."""
        explicit = [m for m in self.memories if m.kind == "explicit" and m.backing is None]
        return explicit[-1] if explicit else None

    @property
    def near_memories(self) -> Sequence[Memory]:
        """The explicit memories that programs bring parts of their data to, nearest first: all but `home`,
        where the data lie."""
        return [memory for memory in self.memories if memory.kind == "explicit" and memory is not self.home]

    @property
    def nearest_explicit(self) -> Memory | None:
        """The nearest memory that programs bring data to; None where all of it stays in `home`."""
        return next(iter(self.near_memories), None)


def own_cache(memories: Sequence[Memory]) -> Memory | None:
    """The last cache that a core has for itself: the one before the farthest, which all cores share. None
    where there are no two."""
    caches = [memory for memory in memories if memory.kind == "cached"]
    return caches[-2] if len(caches) > 1 else None
