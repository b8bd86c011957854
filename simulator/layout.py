"""Addresses for buffers that have none: on targets with caches programs leave it open where buffers lie.

    laid_apart(root, hw)

Buffers without a memory lie in the farthest one that programs manage, as inputs and outputs do. Those
without an address lie there one behind the other, behind those that have one, in the order of the text,
each at the start of a line of the largest line size; no two share bytes. Native code does the same with
its workspace. A buffer inside of a block that is spread over copies of a unit has a place for each copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.liveness import memory_of, part_bytes, units_of
from stripe.diag import CompileError, Diagnostic
from stripe.ir import SLOT, Block, Direction, Location, Refinement


def laid_apart(root: Block, hw: HwConfig) -> tuple[Block, Mapping[str, int]]:
    """The same block with an address for each buffer that is not in registers, and how many bytes the places
    of copies of a unit lie apart, by the path of the buffer. Raises CompileError U004 where they do not fit.
    """
    layout = _Layout(root, hw)
    return layout.block(root, True, root.name, 1), layout.apart


class _Layout:
    def __init__(self, root: Block, hw: HwConfig) -> None:
        self._hw = hw
        lines = [m.line_bytes for m in hw.caches]
        self._align = max([1, *lines])
        self._next = {memory.name: 0 for memory in hw.memories}
        self.apart: dict[str, int] = {}
        self._given(root, {}, True)

    def _given(self, block: Block, outer: dict[str, tuple[int, int]], at_root: bool) -> None:
        """Buffers without an address lie behind those that have one."""
        bounds = {
            i.name: (0, max(i.range - 1, 0)) if i.passed is None else i.passed.bounds(outer)
            for i in block.indexes
        }
        for ref in block.refinements:
            location = ref.location
            if location is not None and location.address is not None:
                memory = self._memory(ref, at_root)
                own = {**bounds, SLOT: (0, max(block.inflight - 1, 0))}
                end = location.address.bounds(own)[1] + part_bytes(ref)
                if location.bank is not None:
                    end += location.bank.bounds(own)[1] * ((memory.bytes or 0) // memory.banks)
                self._next[memory.name] = max(self._next[memory.name], self._aligned(end, memory))
        for child in block.children:
            self._given(child, bounds, False)

    def block(self, block: Block, at_root: bool, path: str, copies: int) -> Block:
        """`copies` may be in the block at once."""
        unit = self._hw.unit(block.location.unit) if block.location is not None else None
        if unit is not None and units_of(block) > 1:
            copies = unit.count
        refinements = tuple(
            self._placed(ref, at_root, path, copies) if at_root or ref.direction is Direction.NEW else ref
            for ref in block.refinements
        )
        statements = tuple(
            self.block(s, False, f"{path}/{s.name}", copies) if isinstance(s, Block) else s
            for s in block.statements
        )
        return replace(block, refinements=refinements, statements=statements)

    def _placed(self, ref: Refinement, at_root: bool, path: str, copies: int) -> Refinement:
        memory = self._memory(ref, at_root)
        location = ref.location or Location(memory.name)
        if location.address is not None or memory.kind == "registers":
            return ref if ref.location is not None else replace(ref, location=location)
        start = self._next[memory.name]
        apart = self._aligned(part_bytes(ref), memory) if copies > 1 else 0
        end = start + apart * (copies - 1) + part_bytes(ref)
        if memory.bytes is not None and end > memory.bytes * memory.count:
            message = f"'{ref.name}' would end at byte {end} of {memory.name}, which has {memory.bytes}"
            raise CompileError(Diagnostic("U004", message, ref.span))
        self._next[memory.name] = self._aligned(end, memory)
        self.apart[f"{path}/{ref.name}"] = apart
        return replace(ref, location=replace(location, bank=None, address=Affine(start)))

    def _aligned(self, end: int, memory: Memory) -> int:
        step = max(self._align, memory.align_bytes)
        return -(-end // step) * step

    def _memory(self, ref: Refinement, at_root: bool) -> Memory:
        name = memory_of(ref, at_root, self._hw) or (self._hw.home.name if self._hw.home else "")
        memory = self._hw.memory(name)
        if memory is None or memory.kind == "cached":
            message = f"'{ref.name}' lies in no memory of '{self._hw.name}' that programs manage"
            note = "help: give the target a memory of kind 'explicit' behind its caches"
            raise CompileError(Diagnostic("U004", message, ref.span, (note,)))
        return memory
