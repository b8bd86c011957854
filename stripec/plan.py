"""Why a kernel is as fast as it is: its tiles, what it is expected to take, what is packed, and its code.

    remarks of a kernel + its native code alone -> Plan

The code of a kernel is looked at, and timed, apart from the others: as a program of its own, whose inputs
and outputs are the buffers that it reads and writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codegen_cpu.assembly import CodeFacts, code_facts
from codegen_cpu.build import Module, build
from codegen_cpu.clock import cycles_per_second
from codegen_cpu.host import check_runs_here, runs_here
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.parallel_runtime import runtime
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.cost_program import Estimate, estimate
from stripe.diag import CompileError, Diagnostic, Remark
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    Load,
    Program,
    Refinement,
    Store,
    contiguous,
)
from stripe.visit import walk
from stripec.explain import Story
from stripec.tensors import Array
from stripec.threads import copies

MIN_RUNS, MAX_RUNS, SECONDS = 5, 1000, 0.3
ROUND, MOST_CALLS = 0.0005, 1 << 16  # seconds of the calls that are timed together, and how many they may be
DISTURBED = 1.03  # times the processor time that calls take where others have the core too


@dataclass(frozen=True, slots=True)
class TileChoice:
    """The tile of a block for a memory; it needs so much of a resource of which there is so much."""

    block: str
    memory: str
    sizes: Mapping[str, int]
    needed: int
    capacity: int | None
    resource: str


@dataclass(frozen=True, slots=True)
class PackedCopy:
    """An operand that is read from a copy in another layout, `into` which buffer. It takes `cycles`, once or
    at each call."""

    buffer: str
    bytes: int
    cycles: float
    load_time: bool
    into: str


@dataclass(frozen=True, slots=True)
class OwnBuffer:
    """A buffer of a kernel that names no memory: native code has it on the stack, or in the workspace."""

    path: str
    place: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a kernel. `expected` is None where no native code runs, `code` where its
    assembly is not understood, `measured` (seconds of a call) where nothing was run; `core` is the part of
    that time in which the core ran it, below 1 where other work had it too. `alone`: it is for several
    threads, and was measured on one, as there is no OpenMP runtime."""

    tiles: tuple[TileChoice, ...]
    packed: tuple[PackedCopy, ...]
    expected: Estimate | None
    code: CodeFacts | None
    measured: float | None = None
    core: float | None = None
    alone: bool = False
    own: tuple[OwnBuffer, ...] = ()


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans of kernels, by their paths, and of the whole program, by that of its root, if it has several;
    cycles a second, where the target is this machine, and the number of threads that the code is for, where a
    CPU runs it. `idle`: there is nothing to compute."""

    kernels: Mapping[str, Plan] = field(default_factory=dict)
    clock: float | None = None
    threads: int | None = None
    idle: bool = False


def make_plans(program: Program, stories: Sequence[Story], hw: HwConfig, measure: bool) -> Plans:
    """The plan of each kernel that is left, by the path of its story, and of all together. `program` is the
    one after all passes. Raises CompileError C004 if kernels are to be measured and can't run here."""
    found: dict[str, Plan] = {}
    parts: dict[str, _Part] = {}
    threads = copies(hw) if hw.executor == "cpu" else None
    here = threads is not None and runs_here(hw)
    if measure and not here:
        check_runs_here(hw)
        message = f"--measure: the programs of '{hw.name}' do not run on this machine's CPU"
        raise CompileError(Diagnostic("D062", message))
    for story in stories:
        names = [path.partition("/")[2] for path in story.blocks]
        if not names:
            continue
        remarks = [remark for note in story.notes for remark in note.remarks]
        root = program.root if story.blocks[0].startswith(f"{program.root.name}/") else program.load
        assert root is not None  # a story whose blocks are in neither root has none
        apart = alone(root, names)
        made = Plan(tuple(_tiles(remarks)), tuple(_packed(remarks)), None, None)
        if threads is not None:
            module = build(apart, hw)
            code = code_facts(module.asm, module.target.triple)
            made = _timed(replace(made, code=code, own=tuple(_own(module))), module, measure)
        found[story.path] = made
        cycles = made.expected.cycles if made.expected is not None else 0.0
        parts[story.path] = _Part(apart.root.children, cycles, root is program.load, story.made_by > 0)
    told = {
        path: replace(plan, packed=_packed_by(plan.packed, parts[path], tuple(parts.values()), program))
        for path, plan in found.items()
    }
    if threads is not None and sum(path.startswith(f"{program.root.name}/") for path in told) > 1:
        whole = alone(program.root, [block.name for block in program.root.children])
        told[program.root.name] = _timed(Plan((), (), None, None), build(whole, hw), measure)
    return Plans(told, cycles_per_second() if here else None, threads, not program.root.statements)


def _timed(plan: Plan, module: Module, measure: bool) -> Plan:
    """The plan with what is expected of the code, and what it takes if that is wanted."""
    expected = estimate(module.program, module.hw)
    if not measure:
        return replace(plan, expected=expected)
    seconds, core = seconds_of(module)
    lonely = module.is_parallel and runtime() is None
    return replace(plan, expected=expected, measured=seconds, core=core, alone=lonely)


def _own(module: Module) -> Iterator[OwnBuffer]:
    for placed in module.placed:
        block, names = module.program.root, [module.program.root.name]
        for number in placed.block:
            child = block.statements[number]
            assert isinstance(child, Block), "only blocks own buffers"
            block = child
            names.append(block.name)
        place = "stack" if placed.on_stack else "workspace"
        yield OwnBuffer("/".join((*names, placed.name)), place, placed.bytes)


def _written(block: Block) -> Iterator[Refinement]:
    return (ref for ref in block.refinements if ref.direction.writes)


@dataclass(frozen=True, slots=True)
class _Part:
    """The blocks of a kernel, and the cycles that are expected of it; `made`: by a pass."""

    blocks: tuple[Block, ...]
    cycles: float
    at_load_time: bool
    made: bool

    @property
    def reads(self) -> frozenset[str]:
        refs = (ref for block in self.blocks for ref in block.refinements)
        return frozenset(ref.source for ref in refs if ref.source and not ref.direction.writes)

    @property
    def writes(self) -> frozenset[str]:
        return frozenset(ref.source for block in self.blocks for ref in _written(block))

    @property
    def copies(self) -> str:
        """The buffer that it is a copy of, in another layout or type; empty if it is none."""
        moves = all(
            isinstance(statement, Block | Load | Cast | Constant | Store)
            for top in self.blocks for _, block in walk(top) for statement in block.statements
        )  # fmt: skip
        whole = all(ref.aggregation is Aggregation.ASSIGN for block in self.blocks for ref in _written(block))
        return next(iter(self.reads)) if self.made and moves and whole and len(self.reads) == 1 else ""


def _packed_by(
    packed: Sequence[PackedCopy], reader: _Part, parts: Sequence[_Part], program: Program
) -> tuple[PackedCopy, ...]:
    """The copies that a kernel reads. What is made by a kernel of its own takes what is expected of that, and
    of those that made what it copies; some passes say nothing of such."""
    own = {ref.name: ref for ref in program.root.refinements}

    def made(into: str) -> PackedCopy | None:
        makers = [part for part in parts if into in part.writes]
        sources = [part.copies for part in makers if part.reads]  # who reads nothing fills its ends
        if not sources or not all(sources):
            return None
        source, cycles = sources[0], sum(part.cycles for part in makers)
        before = made(source)
        if before is not None:
            source, cycles = before.buffer, cycles + before.cycles
        size = own[into].bytes if into in own else 0
        return PackedCopy(source, size, cycles, all(part.at_load_time for part in makers), into)

    known = [(made(copy.into) or copy) if copy.load_time else copy for copy in packed]
    if reader.copies:  # the copy of a copy is one of the first
        return tuple(known)
    names = reader.reads & own.keys() - {copy.into for copy in known} - {r.name for r in program.outputs}
    return (*known, *(copy for into in sorted(names) if (copy := made(into)) is not None))


def _tiles(remarks: Sequence[Remark]) -> Iterator[TileChoice]:
    for remark in remarks:
        data: Mapping[str, Any] = remark.data
        if remark.acted and "chosen" in data and "memory" in data:
            chosen = data["chosen"]
            yield TileChoice(
                remark.block, data["memory"], chosen["sizes"], chosen["needed"], data["capacity"],
                data["resource"],
            )  # fmt: skip


def _packed(remarks: Sequence[Remark]) -> Iterator[PackedCopy]:
    for remark in remarks:
        data: Mapping[str, Any] = remark.data
        if remark.acted and "copy" in data:
            yield PackedCopy(data["buffer"], data["bytes"], data["copy"], data["load_time"], data["into"])


def alone(root: Block, names: Sequence[str]) -> Program:
    """A program of some children of a root: buffers that they only read become inputs, those that they
    only write, outputs."""
    kept = [block for block in root.children if block.name in names]
    used = [ref for block in kept for ref in block.refinements if ref.direction is not Direction.NEW]
    read = {ref.source for ref in used if ref.direction is not Direction.OUT}
    written = {ref.source for ref in used if ref.direction is not Direction.IN}

    def signature(ref: Refinement) -> Refinement | None:
        if ref.name not in read | written or (ref.name in read and ref.name in written):
            return ref if ref.name in read else None
        origin = tuple(Affine(0) for _ in ref.shape)
        made = replace(ref, source=ref.name, access=origin, const=False)
        if ref.name in written:
            return replace(made, direction=Direction.OUT, aggregation=Aggregation.ASSIGN)
        return replace(made, direction=Direction.IN, aggregation=None)

    refs = [made for ref in root.refinements if (made := signature(ref)) is not None]
    order = (Direction.IN, Direction.OUT, Direction.INOUT, Direction.NEW)
    refs.sort(key=lambda ref: order.index(ref.direction))
    return Program(replace(root, refinements=tuple(refs), statements=tuple(kept)))


def seconds_of(module: Module) -> tuple[float, float]:
    """The least time of a call on random data, warm, and processor time over wall time while it was
    taken: at most 1. Calls in which the core was this process's own go before others."""
    kernel = NativeKernel(module, {})
    rng = np.random.default_rng(0)
    inputs = [_random(ref, rng) for ref in module.program.inputs]
    outputs = tuple(_random(ref, rng) for ref in module.program.outputs)
    rounds: list[tuple[float, float]] = []
    calls, begin = 1, time.perf_counter()
    while len(rounds) < MIN_RUNS or (len(rounds) < MAX_RUNS and time.perf_counter() - begin < SECONDS):
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(calls):
            kernel(*inputs, out=outputs)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        if wall < ROUND and calls < MOST_CALLS:
            calls *= 2  # what is as long as a tick of a clock tells nothing
            continue
        rounds.append((wall / calls, cpu / calls))
    quiet = [(wall, cpu) for wall, cpu in rounds if wall <= DISTURBED * cpu]
    wall, cpu = min(quiet or rounds)
    return wall, 1.0 if quiet else min(1.0, cpu / wall)


def _random(ref: Refinement, rng: np.random.Generator) -> Array:
    """An array that lies as the code was compiled for."""
    dtype = ref.dtype.numpy
    steps = ref.strides or contiguous(ref.shape)
    span = 1 + sum((extent - 1) * step for extent, step in zip(ref.shape, steps, strict=True))
    flat = np.empty(max(span, 1) + 64, dtype)
    start = -flat.ctypes.data % 64 // dtype.itemsize
    numbers = rng.standard_normal(len(flat), np.float32) if ref.dtype.is_float else None
    flat[...] = rng.integers(0, 2, len(flat)) if numbers is None else numbers
    strides = [step * dtype.itemsize for step in steps]
    found: Array = np.lib.stride_tricks.as_strided(flat[start:], ref.shape, strides)
    return found
