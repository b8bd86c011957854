"""From a program to native code: `build(program, hw)` gives a Module, whose parts are made when asked for.

For a program named `blur` the object code has

    int  blur(tensors...)                          allocates the workspace; 0, or 1 if memory ran out; in
                                                   files 2 on a CPU that lacks what it needs
    void blur_in_workspace(tensors..., workspace)  uses the caller's, 64-byte aligned

and, where there is a load-time program, `blur_load` and `blur_load_in_workspace` likewise. The
tensors are pointers in the order of the root's refinements: inputs, then outputs. Callers that serve all
programs alike use another form of each:

    void blur_packed(arguments)                    of blur_in_workspace: an array of its arguments

Code that runs on several threads calls the OpenMP runtime (codegen_cpu.parallel).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codegen_cpu import cache as disk
from codegen_cpu import native as kept
from codegen_cpu.c_names import symbol_name
from codegen_cpu.calls import is_short
from codegen_cpu.emit import Emitted, emit_function
from codegen_cpu.layout import ALIGNMENT, Placed
from codegen_cpu.ll import I32, I64, PTR, VOID, Type, Value, constant
from codegen_cpu.ll import Module as Text
from codegen_cpu.native import Entry, Native
from codegen_cpu.parallel import FORK
from codegen_cpu.required import LACKING, PLAIN, asked, asks
from codegen_cpu.target import Target
from hwconfigs.model import HwConfig
from stripe.ir import Block, Direction, Program, Refinement
from stripe.locks import cached_property
from stripe.printer import to_text


def build(
    program: Program, hw: HwConfig, *, name: str = "main", cache: Path | None = None,
    signature: Sequence[Refinement] = (),
) -> Module:  # fmt: skip
    """Native code of a verified program for a target.

    `name` becomes the symbol; `cache` is a folder in which object code is kept, None for none. `signature`
    says which shapes callers give tensors that the program sees in others (stripe.delinearize).
    Raises CompileError C001 if the target is no CPU, C002 if LLVM does not know it.
    """
    return Module(program, hw, name, Target.of(hw), cache, signature=signature)


class Module:
    """The native code of one program: LLVM text, assembly, object code, entry points."""

    def __init__(
        self, program: Program, hw: HwConfig, name: str, target: Target, cache: Path | None,
        required: Sequence[str] = (), signature: Sequence[Refinement] = (),
    ) -> None:  # fmt: skip
        self.program = program
        self.hw = hw
        self.name = name
        self.target = target
        self.symbol = symbol_name(name)
        self._cache = cache
        self._required = tuple(required)  # the features for which its functions ask the CPU
        self._signature = {ref.name: ref for ref in signature}

    @cached_property
    def emitted(self) -> str:
        """The LLVM text as code generation writes it, before LLVM's optimisation."""
        return self._text[0]

    @property
    def placed(self) -> tuple[Placed, ...]:
        """Where buffers of the program itself lie that name no memory."""
        return self._text[3]

    @cached_property
    def llvm(self) -> str:
        """The LLVM text after optimisation."""
        return self.target.optimised(self.emitted)

    @cached_property
    def asm(self) -> str:
        return self.target.assembly(self.emitted)

    @property
    def object_code(self) -> bytes:
        """A relocatable object file of the target's format."""
        return self._code.object_code

    @cached_property
    def for_files(self) -> Module:
        """The same code for files that others use: it asks the CPU that runs it, which takes LLVM 10 ms
        more."""
        required = asked(self.target.triple, self.target.features)
        if not required:
            return self
        return Module(
            self.program, self.hw, self.name, self.target, self._cache, required, [*self._signature.values()]
        )

    @cached_property
    def is_parallel(self) -> bool:
        """Whether the code runs on several threads, and so needs an OpenMP runtime."""
        return FORK.encode() in self.object_code

    @cached_property
    def entry(self) -> Entry:
        """The program itself."""
        return Entry(self.symbol, self._tensors(self.program.root), self._code.workspace_bytes)

    @cached_property
    def load_entry(self) -> Entry | None:
        """The load-time program, which runs once, ahead of the other."""
        load = self.program.load
        if load is None:
            return None
        return Entry(f"{self.symbol}_load", self._tensors(load), self._code.load_workspace_bytes)

    def _tensors(self, block: Block) -> tuple[Refinement, ...]:
        """What a root takes, in the shapes in which callers give it."""
        taken = (ref for ref in block.refinements if ref.direction is not Direction.NEW)
        given = ((ref, self._signature.get(ref.name, ref)) for ref in taken)
        return tuple(replace(ref, shape=own.shape, strides=own.strides) for ref, own in given)

    @cached_property
    def native(self) -> Native:
        """What it takes to run it."""
        return Native(
            self.hw,
            self.target,
            self.object_code,
            self.entry,
            self.load_entry,
            self.is_parallel,
            is_short(self.program.root),
        )

    def keep_as(self, name: str) -> None:
        """Let `codegen_cpu.native.find` find it under this name, if there is a cache."""
        if self._cache is not None:
            kept.keep(self._cache, name, self.native, self._key)

    @cached_property
    def _text(self) -> tuple[str, int, int, tuple[Placed, ...]]:
        target = self.target
        mask_lanes = 0
        if "avx512f" in target.features:
            mask_lanes = 64 if "avx512bw" in target.features else 16
        text = Text(target.triple, target.layout(), target.tuned_for, mask_lanes)
        sizes: list[int] = []
        placed: tuple[Placed, ...] = ()
        for block, symbol in ((self.program.root, self.symbol), (self.program.load, f"{self.symbol}_load")):
            if block is None:
                sizes.append(0)
                continue
            entry = Entry(symbol, self._tensors(block), 0)
            made = emit_function(text, self.target, block, entry.in_workspace)
            _emit_allocating(text, entry, made, self._required)
            _emit_packed(text, entry)
            sizes.append(made.workspace_bytes)
            if block is self.program.root:
                placed = made.placed
        return text.text(), sizes[0], sizes[1], placed

    @cached_property
    def _code(self) -> disk.Code:
        if self._cache is None:
            return self._compiled()
        found = disk.find(self._cache, self._key)
        if found is None:
            found = self._compiled()
            disk.keep(self._cache, self._key, found)
        return found

    @cached_property
    def _key(self) -> str:
        assert self._cache is not None  # else nothing is looked for
        target = repr((self.target, self._required))
        return disk.key(self._cache, to_text(self.program), self.symbol, target)

    def _compiled(self) -> disk.Code:
        text, workspace, load_workspace, _ = self._text
        return disk.Code(self.target.object_code(text), workspace, load_workspace)


def _emit_packed(text: Text, entry: Entry) -> None:
    """The variant that takes an array of its arguments."""
    arguments = Value(PTR, "%arguments")
    f = text.function(entry.packed, VOID, [(arguments, "")])
    values = [
        f.load(PTR, f.offset(arguments, PTR, constant(I64, number)), 8)
        for number in range(len(entry.tensors) + 1)
    ]
    f.line(f"call {VOID} @{entry.in_workspace}({', '.join(map(str, values))})")
    f.result()


def _emit_allocating(text: Text, entry: Entry, made: Emitted, features: Sequence[str]) -> None:
    """The variant that allocates its workspace. It asks the CPU for these features."""
    pointers = [Value(PTR, f"%arg{number}") for number in range(len(entry.tensors))]
    f = text.function(entry.symbol, I32, [(pointer, "") for pointer in pointers], PLAIN if features else "")
    if features:
        lacks = f.compare("icmp eq", f.call(asks(text, features), I32, []), constant(I32, LACKING))
        f.branch_if(lacks, "lacks", "has")
        f.start("lacks")
        f.result(constant(I32, LACKING))
        f.start("has")

    def run(workspace: Value) -> None:
        operands = ", ".join(str(p) for p in (*pointers, workspace))
        f.line(f"call {VOID} @{made.name}({operands})")

    if not made.workspace_bytes:
        run(Value(PTR, "null"))
        f.result(constant(I32, 0))
        return
    size = constant(I64, made.workspace_bytes)
    workspace = f.call("aligned_alloc", PTR, [constant(I64, ALIGNMENT), size])
    failed = f.compare("icmp eq", workspace, Value(PTR, "null"))
    f.branch_if(failed, "failed", "ready")
    f.start("failed")
    f.result(constant(I32, 1))
    f.start("ready")
    run(workspace)
    text.declare("free", Type("void"), [PTR])
    f.line(f"call void @free({workspace})")
    f.result(constant(I32, 0))
