"""convert: read copies whose elements are converted once, not at each point again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from hwconfigs.model import Unit
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.cost_conversions import INSTRUCTIONS, conversion_cycles, converted_loads, elements_read
from stripe.analysis.cost_sets import holding_rate
from stripe.analysis.lanes import vector_width
from stripe.analysis.units import taken
from stripe.analysis.work import vector_operations
from stripe.diag import did_you_mean
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Direction, Load, Program, Refinement, Special, Statement, Store
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, is_worth, option
from stripe.passes.choices import Choice
from stripe.poly import PolyhedralLimit
from stripe.rewrite import RewriteRefused
from stripe.rewrite_packed import Layout, Packed, at_load_time, inserted, known_at_load_time, pack
from stripe.visit import views_of

COPIED = INSTRUCTIONS + 2  # to load, convert and store a vector


class Converted(Choice, frozen=True):
    """Of a kernel: the `buffers` that it reads of which it gets a converted copy."""

    buffers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Convert(Pass):
    """Read a copy of an input in the type that a kernel converts it to, where that saves time.

    before:  block c [m:64, n:64, k:64] (in A[m, k] f16  in B[k, n] f16  out C[m, n]:add f32) {
               $a = load(A) f16  $x = cast($a) f32 ... }
    after:   new A_f32 f32(64, 64)  new B_f32 f32(64, 64)
             block A_convert [d0:64, d1:64] (in A[d0, d1] f16  out A_f32[d0, d1]:assign f32) {...}
             block B_convert ...
             block c [m:64, n:64, k:64] (in A_f32[m, k]  in B_f32[k, n]  out C[m, n]:add f32) {
               $x = load(A_f32) f32 ... }

    A kernel that reads each element at many points converts it as often, or nearly so. Weighed are the
    instructions that are saved against those of the copy, and against the bytes: those that are copied, and
    those by which the copy is larger, from the memory that it fits in. A copy of a `const` input
    is made by the load-time program. `transpose` makes its own copies straight from the original.

    Integers that are converted to wider integers are left as they are: what is known to be narrow is
    multiplied in fewer instructions.

    Always legal: the value of a conversion depends on the element alone, and the copy holds what
    is read and no more. Acts on children of the root that hold no blocks; what `#group` or `#stencil`
    names is left as the instruction takes it. Stripe paper, section 2.3, "Microarchitectural Transposition".
    """

    name: ClassVar[str] = "convert"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group")
    choice: ClassVar[type[Choice]] = Converted

    least_gain: int = option(
        3, "the share of a kernel's cycles that a copy must save", "percent", least=0, most=100
    )

    def run(self, program: Program, context: PassContext) -> Program:
        unit = context.hw.compute_unit
        if unit is None:
            context.remark(program.root.name, False, "the target has no unit that computes")
            return program
        for kernel in program.root.children:
            if not kernel.children:
                program = _Kernel(self, context, unit, f"{program.root.name}/{kernel.name}").converted(
                    program, kernel
                )
        return program


@dataclass(frozen=True, slots=True)
class _Kernel:
    options: Convert
    context: PassContext
    unit: Unit
    path: str

    def converted(self, program: Program, kernel: Block) -> Program:
        """The program where a kernel reads converted copies."""
        found = converted_loads(kernel)
        if not found or any(isinstance(s, Special) for s in kernel.statements):
            return program
        key = self.context.key(self.path)
        if reason := taken(kernel):
            self.context.remark(self.path, False, reason)
            return program
        given, chosen = self.context.explicit(key, Converted), list[str]()
        if given is None and not self.context.searches:
            self.context.undecided(self.path)
            return program
        if given is not None:
            self._check(kernel, found, key, given)
        for name, dtype in found.items():
            source = kernel.refinement(name).source
            said = ": the choice does not name it"
            if given is None or source in given.buffers:
                result = self._one(program, kernel, name, dtype, given is not None)
                if isinstance(result, tuple):
                    program, kernel = result
                    chosen.append(source)
                    continue
                if given is not None:
                    raise self.context.refused(key, f"'{source}'{result}", "buffers")
                said = result
            self.context.remark(self.path, False, f"not converted ahead: '{source}'{said}")
        if chosen:
            self.context.chose(key, Converted(tuple(chosen)))
        return program

    def _check(self, kernel: Block, found: Mapping[str, DType], key: str, given: Converted) -> None:
        """Raises CompileError P009 for buffers that are not read to be converted."""
        known = [kernel.refinement(name).source for name in found]
        for name in given.buffers:
            if name not in known:
                reason = f"it has no buffer '{name}' of which it uses only what it converts to one type"
                notes = did_you_mean(name, known)
                raise self.context.refused(key, reason, "buffers", *notes)

    def _one(
        self, program: Program, kernel: Block, name: str, dtype: DType, anyway: bool
    ) -> tuple[Program, Block] | str:
        """The program where a kernel reads a converted copy, and that kernel; or why there is none, as
        the end of a clause. `anyway`: whatever it gains."""
        root, view = program.root, kernel.refinement(name)
        if reason := _refusal(kernel, view, dtype):
            return f": {reason}"
        known = view.source in known_at_load_time(program)
        (leaf,) = leaves(kernel, views_of(root, {}))
        saved, paid = self._weighed(root, leaf, view, dtype, known)
        total = self._total(root, leaf)
        what = "to read the copy takes" if known else "the copy takes"  # it is made at load time, for nothing
        text = f"saves {saved:.4g} of {total:.4g} cycles, {what} {paid:.4g}"
        if not anyway and not is_worth(saved - paid, total, self.options.least_gain):
            return f" to {dtype.value}: {text}"
        try:
            packed = _copied(root, kernel, view, dtype, _names(program))
        except (RewriteRefused, PolyhedralLimit) as error:
            return f": {error.reason if isinstance(error, RewriteRefused) else 'it is too hard to describe'}"
        if known:
            program = at_load_time(program, kernel, view.source, packed)
        else:
            program = replace(program, root=inserted(root, kernel, packed))
        when = " more, it is made at load time" if known else ""
        said = f"'{view.source}' to {dtype.value}: {text}{when}"
        self.context.remark(self.path, True, said, saved=saved, paid=paid)
        return program, packed.block

    def _weighed(
        self, root: Block, leaf: Leaf, view: Refinement, dtype: DType, known: bool
    ) -> tuple[float, float]:
        """Cycles that a copy saves, and those that it takes."""
        held = prod(root.refinement(view.source).shape)
        read = min(held, elements_read(leaf, view.name))
        rate = holding_rate(self.context.hw, held * dtype.bytes)
        paid = read * max(0, dtype.bytes - view.dtype.bytes) / rate
        if not known:
            width = max(1, self.unit.vector_bytes // max(dtype.bytes, view.dtype.bytes))
            issued = COPIED / width / self.unit.fma_per_cycle
            paid += held * (issued + (dtype.bytes + view.dtype.bytes) / rate)
        return conversion_cycles(leaf, view.name, dtype, self.unit), paid

    def _total(self, root: Block, leaf: Leaf) -> float:
        """Cycles of a kernel: those of its instructions, or those to bring what it touches once."""
        width = vector_width(leaf.block, self.unit.vector_bytes)
        issued = leaf.points / width * vector_operations(leaf) / self.unit.fma_per_cycle
        moved = 0.0
        for ref in leaf.block.refinements:
            if ref.direction is Direction.NEW:
                continue
            held = root.refinement(ref.source)
            size = held.bytes
            moved += size / holding_rate(self.context.hw, size)
        return max(issued, moved)


def _refusal(kernel: Block, view: Refinement, dtype: DType) -> str:
    """Why no copy can or should stand in for a view, as a clause; empty if one may."""
    if view.direction is not Direction.IN:
        return "it is written, too"
    if sum(r.source == view.source for r in kernel.refinements) > 1:
        return "the kernel has several views of it"
    if view.location is not None:
        return "it has a location"
    # A 32-bit product takes more instructions than that of 16 bits which LLVM makes of bytes.
    narrow = view.dtype.is_integer and dtype.is_integer
    return "narrow integers are multiplied in fewer instructions" if narrow else ""


def _names(program: Program) -> Names:
    blocks = [program.root, *([program.load] if program.load is not None else [])]
    return Names(r.name for b in blocks for r in b.refinements)


def _copied(root: Block, kernel: Block, view: Refinement, dtype: DType, names: Names) -> Packed:
    """A copy of what a kernel reads through a view, converted, and the kernel that reads it."""
    rank = len(view.shape)
    packed = pack(root, kernel, view, Layout((), tuple(range(rank))), Names())
    name = names.fresh(f"{view.source}_{dtype.value}")
    copies = tuple(_converting(copy, view, name, dtype) for copy in packed.copies)
    moved = {
        r.name: replace(r, source=name, dtype=dtype) for r in packed.block.refinements if r.name == view.name
    }
    block = replace(
        packed.block,
        refinements=tuple(moved.get(r.name, r) for r in packed.block.refinements),
        statements=_without_casts(packed.block.statements, view.name, dtype),
    )
    return Packed(copies, replace(packed.buffer, name=name, dtype=dtype), block)


def _converting(copy: Block, view: Refinement, name: str, dtype: DType) -> Block:
    read, written = copy.refinements
    local = Names([read.name]).fresh(name)
    target = replace(written, name=local, source=name, dtype=dtype)
    statements: tuple[Statement, ...] = (
        Load("v", read.name, read.dtype), Cast("c", "v", dtype), Store(target.name, "c"),
    )  # fmt: skip
    return replace(copy, name=f"{view.source}_convert", refinements=(read, target), statements=statements)


def _without_casts(statements: tuple[Statement, ...], view: str, dtype: DType) -> tuple[Statement, ...]:
    """The statements where loads of a view give what they were converted to."""
    loaded = {s.result for s in statements if isinstance(s, Load) and s.buffer == view}
    made: dict[str, list[str]] = {}
    for statement in statements:
        if isinstance(statement, Cast) and statement.operand in loaded:
            made.setdefault(statement.operand, []).append(statement.result)
    kept: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Load) and statement.buffer == view:
            kept += [replace(statement, result=name, dtype=dtype) for name in made[statement.result]]
        elif not (isinstance(statement, Cast) and statement.operand in loaded):
            kept.append(statement)
    return tuple(kept)
