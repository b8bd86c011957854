"""unroll: mark the loops that have to be written out so that buffers in registers can stay there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import msgspec

from hwconfigs.model import HwConfig
from stripe.analysis.bounds import leaves
from stripe.analysis.lanes import lane_candidates
from stripe.analysis.stencils_groups import in_rows
from stripe.diag import did_you_mean
from stripe.ir import Block, Direction, Program, Tag
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice, Count
from stripe.passes.unroll_rows import find_rows
from stripe.passes.unroll_window import Window, find_window, written_out
from stripe.visit import View, map_children, map_roots, views_of

FEW = 8  # steps of a loop that are written out though nothing lies in registers


class WrittenOut(Choice, frozen=True):
    """Of a leaf block: the `indexes` whose loops are written out; and `pieces`: of an index that stays a
    loop, how many values are written out, too, each time.
    """

    indexes: tuple[str, ...] = ()
    pieces: dict[str, Count] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Unroll(Pass):
    """Tag the indexes of a leaf block that select elements of a buffer in registers.

    A register has no address: which one an access means must be known when code is made. So
    every index that occurs in an access of a buffer in a memory of kind `registers` gets the
    tag `#unroll`, and code generation writes its loop out. The other loops stay loops.

    before:  block red [k:64, m:4, n:32] (in A[m, k] in B[k, n] out C[m, n]:add) #vector=n
    after:   block red [k:64, m:4, n:32] (in A[m, k] in B[k, n] out C[m, n]:add) #unroll=m #unroll=n #vector=n

    where C is a buffer `@REG`.

    So are indexes of a result that an instruction keeps in registers that hold rows.

    An index with which a block only reads from registers, and whose loop is around others that stay loops,
    is left alone: it reads seldom, so the buffer may as well lie in memory.

    Where loads take as long as arithmetic, a piece of a sum is written out, too, if its steps and the rows
    that are written out share what they load; the lanes then go around the rows:

    before:  block o [r:64, s:64, y:6, x:64] (in I[y + r, x + s] in F[r, s] out O[y, x]:add) #vector=x
    after:   block o [r:8, s:64, x:64, y:6, r_1:8] (
               in I[y + 8*r + r_1, x + s] in F[8*r + r_1, s] out O[y, x]:add)
               #unroll=r_1 #unroll=x #unroll=y #vector=x

    The few steps of a sum are written out, too, if a constraint turns off other lanes at each of them, and
    all lanes fit in one vector: the masks are known ahead then.

    before:  block o [c:64, s:5, x:12] (x + s - 2 >= 0 in I[c, x + s - 2] in F[c, s] out O[x]:add) #vector=x
    after:   block o [c:64, s:5, x:12] (...) #unroll=s #unroll=x #vector=x

    Where results do not lie in registers, and lanes go along them inside the loop of a sum, a few steps of
    that are written out: results are loaded and stored once for all of them.

    before:  block o [r:64, x:4096] (in I[r, x] in F[r] out O[x]:add) #vector=x
    after:   block o [r:16, x:4096, r_1:4] (in I[4*r + r_1, x] in F[4*r + r_1] out O[x]:add)
               #unroll=r_1 #vector=x

    So are loops that write another element at each step, of so few of these that counting them takes as long:

    before:  block o [x:64] (in I[x] out O[x]:add) #vector=x
    after:   block o [x:64] (in I[x] out O[x]:add) #unroll=x #vector=x

    A block that turns squares (`#across`) finds whole vectors of the buffer in memory: it needs no unrolling.

    Always legal: a tag has no meaning, and points are independent. A block whose loops would
    become more than `limit` copies of its statements is left alone, and its buffer then lies
    in memory. Stripe paper, section 2.3 (scalarization and memory localization).
    """

    name: ClassVar[str] = "unroll"
    by_kernel: ClassVar[bool] = True
    tags_read: ClassVar[tuple[str, ...]] = ("across", "group", "vector", "unroll")
    tags_set: ClassVar[tuple[str, ...]] = ("unroll",)
    choice: ClassVar[type[Choice]] = WrittenOut

    limit: int = option(2048, "statements that one block may become", "statements", least=0)

    def run(self, program: Program, context: PassContext) -> Program:
        return map_roots(program, lambda root: self._visit(root, {}, {}, (), context))

    def _visit(
        self,
        block: Block,
        outer: Mapping[str, str],
        seen: Mapping[str, View],
        path: tuple[str, ...],
        context: PassContext,
    ) -> Block:
        """`outer` maps the buffers in scope of the parent to the memory that they lie in, `seen` to views."""
        here = (*path, block.name)
        memories: dict[str, str] = {}
        for ref in block.refinements:
            inherited = outer.get(ref.source, "") if ref.direction is not Direction.NEW else ""
            memories[ref.name] = inherited if ref.location is None else ref.location.unit
        views = views_of(block, seen)
        block = map_children(block, lambda child: self._visit(child, memories, views, here, context))
        if block.children:
            return block
        return self._tagged(block, memories, _in_rows(block, seen, context.hw), "/".join(here), context)

    def _tagged(
        self, block: Block, memories: Mapping[str, str], rows_of: str, path: str, context: PassContext
    ) -> Block:
        """`rows_of`: the result that an instruction keeps in registers that hold rows."""
        key = context.key(path)
        given = context.explicit(key, WrittenOut)
        if given is not None:
            wanted = self._given(block, given, key, context)
        else:
            wanted = self._wanted(block, memories, rows_of, context.hw)
        new = tuple(Tag("unroll", name) for name in wanted if name not in block.tag_values("unroll"))
        registers = [name for name, memory in memories.items() if context.hw.is_registers(memory)]
        registers += [rows_of] if rows_of else []
        rows = find_rows(block, registers, context.hw) if given is None and not wanted else None
        if (not new and rows is None and not (given and given.pieces)) or block.has_tag("across"):
            return block
        copies = self._copies(block, wanted, context.hw)
        if copies > self.limit:
            reason = f"{copies} statements, more than the limit of {self.limit}"
            if given is not None:
                raise context.refused(key, f"writing these out takes {reason}", "indexes")
            text = f"writing out {', '.join(wanted)} takes {reason}: the buffer stays in memory"
            context.remark(path, False, text)
            return block
        if given is None and not context.searches:
            context.undecided(path)
            return block
        if rows_of and given is None:
            window = None
        elif given is None:
            window = rows or find_window(block, registers, wanted, self.limit // copies, context.hw)
        else:
            window = self._piece(block, given, self.limit // copies, key, context)
        pieces: dict[str, int] = {}
        if window is not None:
            pieces = {window.index: window.count}
            block, piece = written_out(block, window, wanted)
            new, copies = (*new, Tag("unroll", piece)), copies * window.count
        context.chose(key, WrittenOut(tuple(wanted), pieces))
        texts = [*wanted, *(f"{count} values of {name} each time" for name, count in pieces.items())]
        context.remark(path, True, f"writes out {', '.join(texts)}: {copies} statements")
        return replace(block, tags=tuple(sorted((*block.tags, *new), key=str)))

    def _wanted(self, block: Block, memories: Mapping[str, str], rows_of: str, hw: HwConfig) -> list[str]:
        """The loops to write out: those that move what is held in registers, and short ones."""
        used = {
            name
            for ref in block.refinements
            if (hw.is_registers(memories[ref.name]) or ref.name == rows_of)
            and ref.direction is not Direction.NEW
            for expr in ref.access
            for name in expr.names
        }
        moving = [name for name in block.ranges if name in used]
        wanted = [name for name in moving if not _only_reads_around(block, memories, name, moving, hw)]
        wanted += self._turning_lanes_off(block, wanted, hw)
        if not wanted and self._few(block, hw):
            return [name for name, size in block.ranges.items() if size > 1]
        return wanted

    def _few(self, block: Block, hw: HwConfig) -> bool:
        """Whether the loops of a leaf, which writes another element at each step, take so few of these that
        counting them takes as long."""
        steps = prod(self._steps(block, name, hw) for name in block.ranges)
        looped = {name for name, size in block.ranges.items() if size > 1}
        written = [ref for ref in block.refinements if ref.direction.writes]
        apart = all(looped <= {n for expr in ref.access for n in expr.names} for ref in written)
        return 1 < steps <= FEW and apart and block.has_tag("vector") and not block.has_tag("group")

    def _turning_lanes_off(self, block: Block, wanted: Sequence[str], hw: HwConfig) -> list[str]:
        """The short loops of a sum at whose steps a constraint turns off other lanes of the one vector that
        all lanes fit in: no step goes without a mask, and each has its own. Written out, they are known
        ahead. That is for units whose masks take no registers of vectors."""
        lanes = set(block.tag_values("vector")) & {*wanted}
        unit = hw.compute_unit
        if unit is None or "masked_memory" not in unit.capabilities:
            return []
        if any(self._steps(block, lane, hw) > 1 for lane in lanes):
            return []
        kept = {n for ref in block.refinements if ref.direction.writes for e in ref.access for n in e.names}
        copies, found = self._copies(block, wanted, hw), list[str]()
        for name, size in block.ranges.items():
            tests = [set(c.expr.names) for c in block.constraints if name in c.expr.names]
            masks = any(lanes & names for names in tests) and all(names <= {name, *wanted} for names in tests)
            if masks and name not in kept and size <= FEW and copies * size <= self.limit:
                found.append(name)
                copies *= size
        return found

    def _given(self, block: Block, given: WrittenOut, key: str, context: PassContext) -> list[str]:
        """The indexes that a choice names. Raises CompileError P009 for those that can't be written out."""
        known = [name for name in block.ranges if name not in block.tag_values("unroll")]
        if block.has_tag("across"):
            raise context.refused(key, "squares are turned there, which needs no unrolling")
        for name in given.indexes:
            if name not in known:
                notes = did_you_mean(name, known)
                raise context.refused(key, f"it has no loop '{name}'", "indexes", *notes)
        if not (given.indexes or given.pieces) or len(set(given.indexes)) < len(given.indexes):
            reason = "it names an index twice" if given.indexes else "it names no index"
            raise context.refused(key, reason, "indexes")
        return [name for name in block.ranges if name in given.indexes]

    def _piece(
        self, block: Block, given: WrittenOut, most: int, key: str, context: PassContext
    ) -> Window | None:
        """The piece of a loop that a choice names. Raises CompileError P009 for one that can't be."""
        tagged = {tag.value for tag in block.tags}
        for at, (name, count) in enumerate(given.pieces.items()):
            size, reason = block.ranges.get(name, 0), ""
            if name not in block.ranges or name in given.indexes or name in tagged:
                reason = f"no loop '{name}' is left"
            elif count < 2 or size % count:
                reason = f"{name} has {size} points, which are no pieces of {count}"
            elif count > most:
                reason = (
                    f"with the indexes, {count} values are more than the limit of {self.limit} statements"
                )
            elif at:
                reason = "of one index alone a piece is written out"
            if reason:
                raise context.refused(key, reason, f"pieces.{name}")
        return next((Window(name, count) for name, count in given.pieces.items()), None)

    def _copies(self, block: Block, wanted: Sequence[str], hw: HwConfig) -> int:
        """The statements that a block becomes where these loops are written out."""
        return prod(self._steps(block, name, hw) for name in wanted) * len(block.statements)

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


def _in_rows(block: Block, outer: Mapping[str, View], hw: HwConfig) -> str:
    """The result of a block that is uses of an instruction on registers that hold rows; else empty."""
    if not block.has_tag("group") or not block.has_tag("vector"):
        return ""
    unit = hw.compute_unit
    (leaf,) = leaves(block, outer)
    lanes = lane_candidates(leaf, 1 if unit is None else unit.vector_bytes)
    found = in_rows(leaf, lanes[0] if lanes else None, hw)
    return "" if found is None else found[1].buffers[found[0].target]


def _only_reads_around(
    block: Block, memories: Mapping[str, str], name: str, wanted: Sequence[str], hw: HwConfig
) -> bool:
    """Whether the loop over an index holds one that is not written out, so that what is read from registers
    with it is read seldom: that may lie in memory."""
    order = list(block.ranges)
    if all(inner in wanted for inner in order[order.index(name) :]):
        return False
    kept = [ref for ref in block.refinements if hw.is_registers(memories[ref.name])]
    return not any(ref.direction.writes and any(name in e.names for e in ref.access) for ref in kept)
