"""peel-reduction: split off the first and the last block of a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stripe.analysis.deps import accesses
from stripe.ir import Aggregation, Block, Direction, Program, Refinement, Statement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.peel_reduction_parts import lifted, unwrapped, with_epilogue, writing
from stripe.poly import PolyhedralLimit
from stripe.rewrite import RewriteRefused
from stripe.rewrite_split import split_index
from stripe.visit import buffers_used, map_roots


@dataclass(frozen=True)
class PeelReduction(Pass):
    """Make the first block of a reduction write its results and the last one finish them.

    before:  block c [k:4] (in A[0, 8*k] (32, 8)  out C[0]:add (32)) #tiled { block t [m:4] ... }
             block r [m:32] (in C[m]  out R[m]:assign) {...}
    after:   block c [m:4] (in A[8*m, 0] (8, 8)  out C[8*m]:assign (8)) {...}           -- k = 0
             block c_1 [k:2] (in A[0, 8*k + 8] (32, 8)  inout C[0]:add (32)) {...}       -- k = 1, 2
             block c_2 [m:4] (in A[8*m, 24] (8, 8)  inout C[8*m]:assign (8)  out R[8*m]:assign (8)) {
               block t [...] (inout C[..]:add) {...}                                     -- k = 3
               block r [m:8] (in C[m]  out R[m]:assign) {...} }

    Acts on a loop over tiles that reduces: a block that holds blocks, with an index on which the
    place of an aggregated result does not depend. The first block need not find neutral values in
    the result; where each element has one write there, it assigns. The statement behind the loop,
    if it takes the result element by element, goes into the last block, so that it finds each tile
    near. Where loops over tiles of the result are around the reduction in the same block, they become
    a level of their own, and the statement goes there behind the reduction: the accumulator has the
    scope of one tile.

    Legal by the rules of aggregation; sums of floats are reassociated. Sums in f16 and bf16, which are
    rounded once at their topmost level, stay whole. Results that lie in registers are left alone.
    Stripe paper, section 2.3, "Scalarization and Memory Localization", and section 3.2.
    """

    name: ClassVar[str] = "peel-reduction"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil",)

    epilogue: bool = option(True, "put the statement behind the reduction into its last block")
    least_bytes: int = option(4096, "the least size of a result for which it pays", "bytes", least=0)

    def run(self, program: Program, context: PassContext) -> Program:
        return map_roots(program, lambda root: _Run(self, context).below(root, ()))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a root."""

    options: PeelReduction
    context: PassContext

    def below(self, block: Block, above: tuple[Block, ...]) -> Block:
        """The block with the reductions among and below its statements peeled."""
        statements: list[Statement] = []
        names = Names(s.name for s in block.children)
        waiting = list(block.statements)
        while waiting:
            statement = waiting.pop(0)
            if not isinstance(statement, Block):
                statements.append(statement)
                continue
            found = _reduction(block, statement)
            if found is None:
                statements.append(self.below(statement, (*above, block)))
                continue
            made, used = self._peel(
                (*above, block), statement, *found, waiting[0] if waiting else None, names
            )
            statements += made
            del waiting[:used]
        if all(new is old for new, old in zip(statements, block.statements, strict=False)):
            return block
        return replace(block, statements=tuple(statements))

    def _peel(
        self,
        above: tuple[Block, ...],
        block: Block,
        index: str,
        view: Refinement,
        after: Statement | None,
        names: Names,
    ) -> tuple[list[Statement], int]:
        """What a block becomes, and how many of the statements behind it went into that."""
        parent, size = above[-1], view.bytes
        where = "/".join(b.name for b in (*above, block))
        outer = parent.refinement(view.source)
        if outer.location is not None and self.context.hw.is_registers(outer.location.unit):
            return self._decline(where, f"'{view.source}' stays in registers", block)
        if size < self.options.least_bytes:
            return self._decline(where, f"'{view.source}' has {size} bytes: it stays near", block)
        ranged = tuple(block.ranges)
        around = ranged[: ranged.index(index)]
        behind = after if self.options.epilogue and after is not None and _reads(after, view.source) else None
        try:
            peel = self._in_frame if around else self._in_parent
            made, note = peel(above, block, index, view, behind, around)
        except (RewriteRefused, PolyhedralLimit) as error:
            reason = error.reason if isinstance(error, RewriteRefused) else "it is too hard to prove"
            return self._decline(where, reason, block)
        kept = [made[0], *(replace(part, name=names.fresh(block.name)) for part in made[1:])]
        done = isinstance(behind, Block) and not note
        text = f"peeled {index}"
        if isinstance(behind, Block):
            text += f"; '{behind.name}' stays behind it: {note}" if note else f"; '{behind.name}' ends it"
        self.context.remark(
            where, True, text, blocks=len(kept), bytes=size, epilogue=done
        )  # fmt: skip
        return list(kept), int(done)

    def _in_parent(
        self, above: tuple[Block, ...], block: Block, index: str, view: Refinement,
        behind: Statement | None, around: Sequence[str],
    ) -> tuple[list[Block], str]:  # fmt: skip
        """Siblings for the first values of the index, the middle ones and, with what is behind, the last."""
        first, rest = _split(above, block, index, 1)
        made, note = [writing(above[-1], unwrapped(first), view.source), rest], ""
        if behind is not None:
            try:
                values = rest.ranges.get(index, 1)
                *middle, last = _split(above, rest, index, values - 1) if values > 1 else (rest,)
                joined = with_epilogue(above[-1], unwrapped(last), behind, view.source)
                made = [made[0], *middle, joined]
            except RewriteRefused as refused:
                note = refused.reason
        return made, note

    def _in_frame(
        self, above: tuple[Block, ...], block: Block, index: str, view: Refinement,
        behind: Statement | None, around: Sequence[str],
    ) -> tuple[list[Block], str]:  # fmt: skip
        """One block over what is around the index, with the first value and the others in it."""
        frame, note = lifted(above[-1], block, around, view.source), ""
        (inner,) = frame.children
        first, rest = _split((*above, frame), inner, index, 1)
        local = next(r.name for r in frame.refinements if r.source == view.source)
        parts = (writing(frame, first, local), replace(rest, name=Names([first.name]).fresh(rest.name)))
        frame = replace(frame, statements=parts)
        if behind is not None:
            try:
                frame = with_epilogue(above[-1], frame, behind, view.source)
            except RewriteRefused as refused:
                note = refused.reason
        return [frame], note

    def _decline(self, where: str, reason: str, block: Block) -> tuple[list[Statement], int]:
        self.context.remark(where, False, f"not peeled: {reason}")
        return [block], 0


def _split(above: tuple[Block, ...], block: Block, index: str, at: int) -> tuple[Block, Block]:
    parts = split_index(above, block, index, at)
    one, two = parts[0].block, parts[1].block
    if one is None or two is None:
        raise RewriteRefused(f"some values of '{index}' have no point")
    return one, two


def _reduction(parent: Block, block: Block) -> tuple[str, Refinement] | None:
    """The outermost index of a loop over blocks on which the place of a result does not depend, and
    the view of that result, where it aggregates at its topmost level."""
    if not block.children or block.inflight != 1 or block.location is not None or block.has_tag("stencil"):
        return None
    views = {
        r.source: r
        for r in block.refinements
        if r.direction is Direction.OUT
        and r.aggregation is not Aggregation.ASSIGN
        and not parent.refinement(r.source).combines
    }
    if not views:
        return None
    found = [a for a in accesses(parent, block) if a.writes and a.buffer in views]
    for index, size in block.ranges.items():
        for access in found:
            if size > 1 and not any(f".{index}" in expr.names for expr in access.element):
                return index, views[access.buffer]
    return None


def _reads(statement: Statement, buffer: str) -> bool:
    return any(name == buffer and direction.reads for name, direction in buffers_used(statement))
