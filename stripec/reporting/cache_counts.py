"""Counters of programs between passes where hardware fills the memories: what instructions ask the nearest
cache for, in closed form, and the cycles of those runs that are short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hwconfigs.model import HwConfig
from simulator import Simulation
from simulator.simulate import simulate
from stripe.alike import kind
from stripe.diag import CompileError
from stripe.ir import Block, Program, Special
from stripe.poly import PolyhedralLimit
from stripec.reporting.runs import Counters, SimulatedRun
from stripec.reporting.words import plural

KINDS = 600  # kernels that differ, over all programs that are counted
MAX_VECTORS = 300_000  # of a run for the cycles between two passes


@dataclass(frozen=True, slots=True)
class _Counted:
    """What is known of a kernel: bytes by memory, read and written, and busy cycles by unit."""

    operations: int
    vectors: int
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)


class CacheCounting:
    """Counts programs of one target. Kernels that are alike but for names are counted once."""

    def __init__(self, hw: HwConfig) -> None:
        self._hw = hw
        self._known: dict[object, tuple[object, _Counted | None]] = {}

    def of(self, program: Program, run: SimulatedRun | None) -> Counters | None:
        """The counters of the root of a program; `run` is its run, where there was one. None if more than
        `KINDS` kernels differ, or a kernel can't be counted."""
        operations = vectors = 0
        moved: dict[str, tuple[int, int]] = {}
        busy: dict[str, float] = {}
        for statement in program.root.statements:
            if not isinstance(statement, Block | Special):
                continue
            found = self._kernel(program, statement)
            if found is None:
                return None
            operations, vectors = operations + found.operations, vectors + found.vectors
            for memory, (read, written) in found.moved.items():
                old = moved.get(memory, (0, 0))
                moved[memory] = old[0] + read, old[1] + written
            for unit, taken in found.busy.items():
                busy[unit] = busy.get(unit, 0.0) + taken
        cycles, note = self._cycles(program, run, vectors)
        return Counters(
            operations, tuple((memory, *pair) for memory, pair in sorted(moved.items())),
            tuple(sorted(busy.items())), cycles, note,
        )  # fmt: skip

    def _cycles(self, program: Program, run: SimulatedRun | None, vectors: int) -> tuple[int | None, str]:
        if run is not None and run.found is not None and run.found.cycles is not None:
            return run.found.cycles, ""
        if vectors > MAX_VECTORS:
            return None, f"a run of {plural(vectors, 'vector')} is too long"
        return simulate(replace(program, load=None), self._hw, counts="simulated").cycles, ""

    def _kernel(self, program: Program, statement: Block | Special) -> _Counted | None:
        if isinstance(statement, Special):
            return self._count(
                replace(program, root=replace(program.root, statements=(statement,)), load=None)
            )
        held = {ref.name: (ref.location, ref.shape, ref.strides) for ref in program.root.refinements}
        shown = kind(statement).block
        key = id(shown), tuple(held.get(ref.source) for ref in statement.refinements)
        if key not in self._known:
            if len(self._known) >= KINDS:
                return None
            self._known[key] = shown, self._count(_alone(program, statement))
        return self._known[key][1]

    def _count(self, alone: Program) -> _Counted | None:
        try:
            return _counted(simulate(alone, self._hw, counts="closed"))
        except (CompileError, PolyhedralLimit):
            return None


def _alone(program: Program, kernel: Block) -> Program:
    """A program of one kernel, with the buffers that it touches and no others."""
    touched = {ref.source for ref in kernel.refinements}
    own = tuple(ref for ref in program.root.refinements if ref.name in touched)
    return replace(program, root=replace(program.root, refinements=own, statements=(kernel,)), load=None)


def _counted(found: Simulation) -> _Counted:
    busy: dict[str, float] = {}
    for block in found.blocks:
        busy[block.unit] = busy.get(block.unit, 0.0) + block.busy
    return _Counted(
        found.operations, sum(block.vectors for block in found.blocks),
        {m.memory: (m.read + m.updated, m.written) for m in found.memories if m.read or m.written}, busy,
    )  # fmt: skip
