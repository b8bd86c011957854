"""From a hardware configuration to LLVM: target machines, optimisation, object code, assembly.

Every target that this LLVM has can be compiled for, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from codegen_cpu.assembly import spilled
from codegen_cpu.elementary_ops import Machine
from codegen_cpu.llvm import architecture, in_written_order, llvm_lock, target_of
from codegen_cpu.llvm import binding as llvm
from hwconfigs.model import LINE_BYTES, HwConfig, Memory, PastCaches, Unit, own_cache
from stripe.analysis.stencils_groups import Summing, instructions
from stripe.diag import CompileError, Diagnostic, InvariantError

MOST_LINES = 5000  # of a module that LLVM generates code of in 0.1 s
LEAST_SPILLED = 8  # vectors that loops store to the stack or load from there, which cost anything


def _nobody(step: str) -> None:
    """Who is told where nobody asked."""


@dataclass(frozen=True, slots=True)
class Target:
    """What code generation needs to know about a machine.

    Code uses the instructions of the architecture's baseline and those of `features`, no others:
    `tuned_for` shapes schedules alone. So what a config lists is all that a
    machine needs to have.
    """

    triple: str  # as LLVM spells it
    tuned_for: str  # a CPU's name, as LLVM spells it
    features: tuple[str, ...]  # of the instruction set, sorted
    vector_bytes: int
    masked_memory: bool  # a load or store under any lane mask is one instruction
    masked_words: bool  # one of elements of 4 or 8 bytes is, if they lie side by side
    native_half: bool  # a conversion of f16 is one instruction
    registers: tuple[str, ...]  # the memories of kind `registers`
    arithmetic: Machine = field(default_factory=Machine)  # what elementary functions ask about
    instructions: tuple[Summing, ...] = ()  # that sum groups of products in each lane
    unit: str = ""  # the name of the unit that computes
    threads: int = 1  # copies of that unit
    vector_registers: int = 16
    past_caches: PastCaches | None = None  # when results go past the caches; None: none does
    past_rate: float = 0.0  # bytes that go past the caches in a cycle; 0: not known
    alike: int = 0  # loads overtake stores that are no multiple of so many bytes apart; 0: they overtake none
    own_caches: int = 0  # bytes of the last cache that a core has for itself; 0: not known
    shared_cache: int = 0  # bytes of the last cache; 0: not known
    fetches_on: bool = False  # asking for a line brings those behind it, too
    fetches_rows: bool = False  # a few rows that are read side by side come without being asked for
    fetches_deep: bool = False  # a load that goes along a row has it fetched far ahead
    half_paths: bool = False  # a vector goes to memory in two halves, which cost no more one by one
    nearest: Memory | None = None  # the first cache, if there is one

    @property
    def line_bytes(self) -> int:
        """What the nearest cache fetches at a time."""
        return self.nearest.line_bytes if self.nearest is not None else LINE_BYTES

    @property
    def nearest_cache(self) -> int:
        """Bytes of the first cache; 0 if not known."""
        return (self.nearest.bytes or 0) if self.nearest is not None else 0

    @property
    def sets_are_slow(self) -> bool:
        """Whether a set of the first cache takes in a line later than one can go past the caches."""
        near = self.nearest
        return near is not None and (near.set_cycles or 0) * self.past_rate > near.line_bytes

    @staticmethod
    def of(hw: HwConfig) -> Target:
        """CompileError C001 if programs of this configuration don't run on a CPU."""
        if hw.executor != "cpu" or hw.cpu is None:
            raise CompileError(
                Diagnostic(
                    "C001",
                    f"target '{hw.name}' is not a CPU: its programs run on the {hw.executor}",
                    notes=("help: native code needs a configuration with executor 'cpu' and a 'cpu' entry",),
                )
            )
        unit = hw.compute_unit or Unit("CORE")
        triple = hw.cpu.triple or process_triple()
        own = own_cache(hw.memories)
        return Target(
            triple,
            hw.cpu.cpu,
            tuple(sorted(hw.cpu.features)),
            unit.vector_bytes,
            "masked_memory" in unit.capabilities,
            "masked_words" in unit.capabilities,
            "f16c" in hw.cpu.features or architecture(triple) == "aarch64",
            tuple(m.name for m in hw.memories if m.kind == "registers"),
            Machine(
                fused="fma" in hw.cpu.features or architecture(triple) == "aarch64",
                scales={"avx512f", "avx512vl"} <= set(hw.cpu.features),
                looks_up="avx512f" in hw.cpu.features and unit.vector_bytes >= 64,
                masks={"avx512f", "avx512vl"} <= set(hw.cpu.features),
                vector_bytes=unit.vector_bytes,
                whole_constants="avx2" in hw.cpu.features and "avx512vl" not in hw.cpu.features,
            ),
            tuple(
                made
                for made in instructions(hw)
                if made.stencil.unit == unit.name and set(made.stencil.features) <= set(hw.cpu.features)
            ),
            unit.name,
            unit.count,
            unit.registers or 16,
            hw.past_caches(unit),
            unit.streaming_bytes_per_cycle or 0.0,
            unit.alike_bytes if "overtaking_loads" in unit.capabilities else 0,
            (own.bytes or 0) if own is not None else 0,
            (hw.caches[-1].bytes or 0) if hw.caches else 0,
            unit.streams is not None,
            "fetches_rows" in unit.capabilities,
            "fetches_deep" in unit.capabilities,
            unit.stores_per_cycle < 1,
            hw.nearest_cache,
        )

    @property
    def baseline(self) -> str:
        """The CPU that every machine of the architecture can stand in for."""
        return "x86-64" if architecture(self.triple) == "x86_64" else "generic"

    def machine(self) -> Any:
        """A new target machine (a JIT engine takes its own over). Call under `llvm_lock`."""
        try:
            return target_of(self.triple).create_target_machine(
                self.baseline,
                ",".join(f"+{name}" for name in self.features),
                opt=2,
                reloc="pic",
                codemodel="default",
            )
        except RuntimeError as error:
            note = "help: the entry 'cpu.triple' of the configuration names the target, as LLVM spells it"
            raise CompileError(
                Diagnostic("C002", f"LLVM can't generate code for '{self.triple}': {error}", notes=(note,))
            ) from error

    def layout(self) -> str:
        """LLVM's data layout of the target."""
        with llvm_lock():
            return str(self.machine().target_data)

    def optimised(self, text: str) -> str:
        """The module as LLVM text after optimisation."""
        with llvm_lock():
            return str(self._optimise(text, self.machine()))

    def assembly(self, text: str) -> str:
        with llvm_lock():
            machine = self.machine()
            module = self._optimise(text, machine)
            with self._order(text, module, machine):
                result: str = machine.emit_assembly(module)
            return result

    def object_code(self, text: str, done: Callable[[str], None] = _nobody) -> bytes:
        """Machine code of an LLVM text; `done` is told of each step that LLVM has done."""
        with llvm_lock():
            machine = self.machine()
            module = self._optimise(text, machine, done)
            with self._order(text, module, machine):
                result: bytes = machine.emit_object(module)
            done("LLVM generates")
            return result

    def _order(self, text: str, module: Any, machine: Any) -> AbstractContextManager[None]:
        """In which order LLVM takes the instructions of a module.

        LLVM has them wait for each other as little as it can, and loads early what is used late. In some
        loops it does not see that registers run out; what goes to the stack then costs more. There they stay
        in the order in which they are written, if less goes to the stack that way. To try that takes LLVM as
        long again, so long modules are left to it.
        """
        if text.count("\n") > MOST_LINES:
            return nullcontext()
        most = spilled(machine.emit_assembly(module.clone()), self.triple)
        if most < LEAST_SPILLED:
            return nullcontext()
        with in_written_order():
            written = spilled(machine.emit_assembly(module.clone()), self.triple)
        return in_written_order() if written < most else nullcontext()

    def _optimise(self, text: str, machine: Any, done: Callable[[str], None] = _nobody) -> Any:
        try:
            module = llvm.parse_assembly(text)
            module.verify()  # else what does not hold together could end the process; it takes 1 to 4 ms
        except RuntimeError as error:
            raise InvariantError(f"code generation wrote LLVM text that LLVM refuses: {error}") from error
        done("LLVM reads, verifies")
        options = llvm.create_pipeline_tuning_options(2)
        # Stripe says what is a vector and what is unrolled; LLVM guessing again only spoils it.
        options.loop_vectorization = options.slp_vectorization = False
        options.loop_unrolling = options.loop_interleaving = False
        builder = llvm.create_pass_builder(machine, options)
        # Functions do not call each other where that would pay, so that the passes for whole modules, which
        # go over each function again, find nothing more to do.
        manager = builder.getFunctionPassManager()
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)
        done("LLVM optimises")
        return module


@cache
def process_triple() -> str:
    """The triple of this process."""
    with llvm_lock():
        return str(llvm.get_process_triple())
