"""unroll: mark the loops that have to be written out so that buffers in registers can stay there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from hwconfigs.model import HwConfig
from stripe.ir import Block, Direction, Program, Tag
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.unroll_window import find_window, written_out
from stripe.visit import map_children, map_roots


@dataclass(frozen=True)
class Unroll(Pass):
    """Tag the indexes of a leaf block that select elements of a buffer in registers.

    A register has no address: which one an access means must be known when code is made. So
    every index that occurs in an access of a buffer in a memory of kind `registers` gets the
    tag `#unroll`, and code generation writes its loop out. The other loops stay loops.

    before:  block red [k:64, m:4, n:32] (in A[m, k] in B[k, n] out C[m, n]:add) #vector=n
    after:   block red [k:64, m:4, n:32] (in A[m, k] in B[k, n] out C[m, n]:add) #unroll=m #unroll=n #vector=n

    where C is a buffer `@REG`.

    An index with which a block only reads from registers, and whose loop is around others that stay loops,
    is left alone: it reads seldom, so the buffer may as well lie in memory.

    Where loads take longer than arithmetic, a piece of a sum is written out, too, if its steps and the rows
    that are written out share what they load; the lanes then go around the rows:

    before:  block o [r:64, s:64, y:6, x:64] (in I[y + r, x + s] in F[r, s] out O[y, x]:add) #vector=x
    after:   block o [r:8, s:64, x:64, y:6, r_1:8] (
               in I[y + 8*r + r_1, x + s] in F[8*r + r_1, s] out O[y, x]:add)
               #unroll=r_1 #unroll=x #unroll=y #vector=x

    A block that turns squares (`#across`) finds whole vectors of the buffer in memory: it needs no unrolling.

    Always legal: a tag has no meaning, and points are independent. A block whose loops would
    become more than `limit` copies of its statements is left alone, and its buffer then lies
    in memory. Stripe paper, section 2.3 (scalarization and memory localization).
    """

    name: ClassVar[str] = "unroll"
    by_kernel: ClassVar[bool] = True
    tags_read: ClassVar[tuple[str, ...]] = ("across", "group", "vector", "unroll")
    tags_set: ClassVar[tuple[str, ...]] = ("unroll",)

    limit: int = option(2048, "statements that one block may become", "statements", least=0)

    def run(self, program: Program, context: PassContext) -> Program:
        return map_roots(program, lambda root: self._visit(root, {}, (), context))

    def _visit(
        self, block: Block, outer: Mapping[str, str], path: tuple[str, ...], context: PassContext
    ) -> Block:
        """`outer` maps the buffers in scope of the parent to the memory that they lie in."""
        here = (*path, block.name)
        memories: dict[str, str] = {}
        for ref in block.refinements:
            inherited = outer.get(ref.source, "") if ref.direction is not Direction.NEW else ""
            memories[ref.name] = inherited if ref.location is None else ref.location.unit
        block = map_children(block, lambda child: self._visit(child, memories, here, context))
        if block.children:
            return block
        return self._tagged(block, memories, "/".join(here), context)

    def _tagged(self, block: Block, memories: Mapping[str, str], path: str, context: PassContext) -> Block:
        used = {
            name
            for ref in block.refinements
            if _in_registers(memories[ref.name], context.hw) and ref.direction is not Direction.NEW
            for expr in ref.access
            for name in expr.names
        }
        wanted = [name for name in block.ranges if name in used]
        wanted = [
            name for name in wanted if not _only_reads_around(block, memories, name, wanted, context.hw)
        ]
        new = tuple(Tag("unroll", name) for name in wanted if name not in block.tag_values("unroll"))
        if not new or block.has_tag("across"):
            return block
        copies = prod(self._steps(block, name, context.hw) for name in wanted) * len(block.statements)
        if copies > self.limit:
            context.remark(
                self.name, path, False,
                f"writing out {', '.join(wanted)} takes {copies} statements, more than the limit of "
                f"{self.limit}: the buffer stays in memory",
            )  # fmt: skip
            return block
        registers = [name for name, memory in memories.items() if _in_registers(memory, context.hw)]
        window = find_window(block, registers, wanted, self.limit // copies, context.hw)
        if window is not None:
            block, piece = written_out(block, window, wanted)
            new, copies = (*new, Tag("unroll", piece)), copies * window.count
            wanted = [*wanted, f"{window.count} values of {window.index} each time"]
        context.remark(self.name, path, True, f"writes out {', '.join(wanted)}: {copies} statements")
        return replace(block, tags=tuple(sorted((*block.tags, *new), key=str)))

    @staticmethod
    def _steps(block: Block, name: str, hw: HwConfig) -> int:
        """How many times the statements are written for this index; a lane index goes in vectors."""
        size = block.ranges[name]
        if name not in block.tag_values("vector"):
            return size
        widest = max((ref.dtype.bytes for ref in block.refinements), default=1)
        vector_bytes = max((unit.vector_bytes for unit in hw.units), default=1)
        lanes = max(1, vector_bytes // widest)
        return -(-size // lanes)


def _only_reads_around(
    block: Block, memories: Mapping[str, str], name: str, wanted: Sequence[str], hw: HwConfig
) -> bool:
    """Whether the loop over an index holds one that is not written out, so that what is read from registers
    with it is read seldom: that may lie in memory."""
    order = list(block.ranges)
    if all(inner in wanted for inner in order[order.index(name) :]):
        return False
    kept = [ref for ref in block.refinements if _in_registers(memories[ref.name], hw)]
    return not any(ref.direction.writes and any(name in e.names for e in ref.access) for ref in kept)


def _in_registers(memory: str, hw: HwConfig) -> bool:
    found = hw.memory(memory)
    return found is not None and found.kind == "registers"
