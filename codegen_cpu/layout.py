"""Where buffers lie: parameters, the workspace, or the stack; and views of them.

    inputs and outputs of the program    pointer parameters
    `new` in a memory of kind registers  an alloca of the entry block, which LLVM splits into registers
    other small ones below the root      an alloca
    all others                           one workspace that the caller provides, 64-byte aligned

Every buffer in memory has an alias scope of its own, so that LLVM knows that no two overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from codegen_cpu.ll import I8, I64, PTR, Function, Module, Type, Value, constant
from codegen_cpu.scalars import memory_type
from codegen_cpu.target import Target
from stripe.affine import Affine
from stripe.analysis.lanes import in_whole_vectors
from stripe.dtypes import DType
from stripe.ir import Aggregation, Refinement

ALIGNMENT = 64  # of the workspace, of each buffer in it, and of stack buffers, in bytes
_STACK_BUFFER = 4096  # bytes: a larger buffer goes to the workspace
_STACK_TOTAL = 65536


@dataclass(slots=True, eq=False)
class Birth:
    """Where a buffer begins to live, over and over: what it held before is no value at all.

    LLVM does not see that, where code that writes the buffer may be skipped: it would carry old values
    through every loop around. So each part of it that is touched, an offset and a type, is
    poison from `place` on.
    """

    place: list[str] | None = None
    label: str = ""  # of the basic block that `place` is in
    is_written: bool = False  # since then
    is_even: bool = True  # all who touch it divide it into the same vectors
    parts: set[tuple[int, Type]] = field(default_factory=set)

    def begin(self, place: list[str], label: str) -> None:
        self.place, self.label, self.is_written, self.parts = place, label, False, set()


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory for one allocation. `suffix` is the metadata of each access to it.

    `spare` is None for memory that others may see. On the stack it is the number of elements
    that may be touched from the start on, those behind the last one included: there a whole
    vector may be written back around lanes that are masked off. `streams` is the further metadata of
    stores of whole lines, where these are to go past the caches; with `at_line` that is still to be decided
    when it is stored to, by whether this value holds. `birth` is for what may lie in registers.
    `constant`: nobody writes it while the program runs.
    """

    name: str
    pointer: Value
    dtype: DType
    align: int
    suffix: str = ""
    spare: int | None = None
    streams: str = ""
    at_line: Value | None = None
    birth: Birth | None = None
    constant: bool = False

    @property
    def brings_lines(self) -> bool:
        """Whether a store brings the line that it writes to: not of what may lie in registers or on the
        stack, nor of what goes past the caches, or may."""
        return self.spare is None and self.birth is None and not self.streams and self.at_line is None


@dataclass(frozen=True, slots=True)
class View:
    """A window into a buffer. `origin` is in elements of the allocation, over loop variables.

    `shape` is the extent of the window; `how` is what a write through it does to an element.
    """

    buffer: Buffer
    origin: tuple[Affine, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    how: Aggregation

    @property
    def offset(self) -> Affine:
        """The distance of the origin from the start of the buffer, in elements."""
        return Affine.weighted(self.origin, self.strides)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a buffer lies that names no memory: `block` numbers the statements that lead to the block that
    owns it, from the root on."""

    block: tuple[int, ...]
    name: str
    on_stack: bool
    bytes: int


class Memory:
    """Gives each buffer of a function its place. `placed` tells of those that name no memory."""

    def __init__(self, module: Module, f: Function, target: Target) -> None:
        self._module = module
        self._f = f
        self._target = target
        domain = module.reserve_metadata()
        module.fill_metadata(domain, f"distinct !{{!{domain}}}")
        self._domain = f"!{domain}"
        self._scopes: list[tuple[str, int]] = []  # each scope, and the list of all others
        self._stack_bytes = 0
        self.workspace_bytes = 0
        self.placed: dict[Placed, None] = {}  # in order, each once: versions of a block have their own

    def of_thread(self, f: Function) -> Memory:
        """The memory of a function that threads run: a stack and a workspace for each of them."""
        made = Memory(self._module, f, self._target)
        made._domain, made._scopes, made.placed = self._domain, self._scopes, self.placed
        return made

    def reserve(self, size: int, hint: str) -> Value:
        """Room in the workspace that the caller divides as it likes."""
        at = self.workspace_bytes
        self.workspace_bytes += -(-size // ALIGNMENT) * ALIGNMENT
        text = f"getelementptr {I8}, {PTR} %workspace, {constant(I64, at)}"
        return self._f.at_entry(PTR, text, hint)

    def parameter(self, ref: Refinement, pointer: Value) -> View:
        """A view of the whole of a tensor of the program's signature."""
        constant = not ref.direction.writes
        buffer = Buffer(ref.name, pointer, ref.dtype, ref.dtype.bytes, self._scope(), constant=constant)
        return self._whole(ref, buffer, ref.strides or ())

    def allocate(self, ref: Refinement, *, below_root: bool, joined: bool = False) -> View:
        """Memory for a NEW refinement; `joined`: vectors in registers go on from row to row of it."""
        in_registers = ref.location is not None and ref.location.unit in self._target.registers
        strides = ref.strides or ()
        if in_registers and not joined:
            # A vector may have no room for a whole element: the code is scalar then.
            lanes = max(1, self._target.vector_bytes // ref.dtype.bytes)
            strides = in_whole_vectors(ref.shape, strides, lanes)
        count = elements(ref.shape, strides)
        size = count * ref.dtype.bytes
        on_stack = size <= _STACK_TOTAL if in_registers else below_root and size <= _STACK_BUFFER
        if on_stack and self._stack_bytes + size <= _STACK_TOTAL:
            self._stack_bytes += size
            return self._whole(ref, self._on_stack(ref, count), strides)
        return self._whole(ref, self._in_workspace(ref, size), strides)

    def _on_stack(self, ref: Refinement, count: int) -> Buffer:
        spare = count + self._target.vector_bytes // ref.dtype.bytes
        pointer = self._f.alloca(memory_type(ref.dtype), ref.name, spare, ALIGNMENT)
        return Buffer(ref.name, pointer, ref.dtype, ALIGNMENT, self._scope(), spare, birth=Birth())

    def _in_workspace(self, ref: Refinement, size: int) -> Buffer:
        pointer = self.reserve(size, ref.name)
        return Buffer(ref.name, pointer, ref.dtype, ALIGNMENT, self._scope())

    def _whole(self, ref: Refinement, buffer: Buffer, strides: tuple[int, ...]) -> View:
        return View(buffer, (Affine(),) * len(ref.shape), strides, ref.shape, Aggregation.ASSIGN)

    def _scope(self) -> str:
        module = self._module
        number = module.reserve_metadata()
        module.fill_metadata(number, f"distinct !{{!{number}, {self._domain}}}")
        own = module.metadata(f"!{{!{number}}}")
        others = module.reserve_metadata()
        self._scopes.append((f"!{number}", others))
        return f", !alias.scope {own}, !noalias !{others}"

    def finish(self) -> None:
        """Write down which buffers don't overlap, now that all are known."""
        for scope, others in self._scopes:
            listed = ", ".join(s for s, _ in self._scopes if s != scope)
            self._module.fill_metadata(others, f"!{{{listed}}}")


def elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many elements an allocation spans."""
    if not all(shape):
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
