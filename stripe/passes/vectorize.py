"""vectorize: choose the index of each leaf block that runs along the lanes of a vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from hwconfigs.model import HwConfig, Unit
from stripe.analysis.lanes import Square, lane_index
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Program, Special, Tag
from stripe.passes.base import Pass, PassContext, option
from stripe.rewrite import reorder_indexes
from stripe.visit import View, map_children, map_roots, views_of


@dataclass(frozen=True)
class Vectorize(Pass):
    """Put the lane index of a leaf block innermost and tag it, so that code runs on whole vectors.

    The index is the one along which the fewest vector instructions do the work of a point:
    operands that move by one element are vector accesses, those that stay are splats, others
    are taken apart; a store that stays is summed across the lanes (see stripe.analysis.lanes).

    before:  block o [n:64, m:8] (in X[m, n]  out Y[m, n]:assign)
    after:   block o [m:8, n:64] (in X[m, n]  out Y[m, n]:assign) #vector=n

    Where the elements of an operand lie apart along every lane index that others like, but side by side
    along another index, squares of both are turned in registers, which `#across` asks for:

    before:  block o [n:64, m:64] (in X[m, n]  out Y[n, m]:assign)
    after:   block o [m:64, n:64] (in X[m, n]  out Y[n, m]:assign) #across=n #vector=m

    Always legal: the points of a block are independent, and the order of indexes and tags have
    no meaning. Blocks that hold blocks or specials are not touched, nor are those that have a
    lane index. Stripe paper, section 2.3 (microarchitectural stenciling), for one dimension.
    """

    name: ClassVar[str] = "vectorize"
    by_kernel: ClassVar[bool] = True
    tags_read: ClassVar[tuple[str, ...]] = ("vector",)
    tags_set: ClassVar[tuple[str, ...]] = ("vector", "across")

    unit: str = option("", "the compute unit whose vectors are filled; empty: the target's first")

    def check(self, hw: HwConfig) -> None:
        self._unit(hw)

    def run(self, program: Program, context: PassContext) -> Program:
        unit = self._unit(context.hw)
        if unit is None:
            context.remark(self.name, program.root.name, False, "the target has no compute unit")
            return program
        return map_roots(program, lambda root: self._visit(root, {}, (), unit, context))

    def _unit(self, hw: HwConfig) -> Unit | None:
        units = [unit for unit in hw.units if unit.kind == "compute"]
        if not self.unit:
            return units[0] if units else None
        for unit in units:
            if unit.name == self.unit:
                return unit
        message = f"vectorize: the target '{hw.name}' has no compute unit '{self.unit}'"
        raise CompileError(
            Diagnostic("P103", message, None, did_you_mean(self.unit, (u.name for u in units)))
        )

    def _visit(
        self, block: Block, outer: Mapping[str, View], path: tuple[str, ...], unit: Unit, context: PassContext
    ) -> Block:
        here = (*path, block.name)
        if not block.children:
            return self._vectorized(block, outer, "/".join(here), unit, context)
        views = views_of(block, outer)
        return map_children(block, lambda child: self._visit(child, views, here, unit, context))

    def _vectorized(
        self, block: Block, outer: Mapping[str, View], path: str, unit: Unit, context: PassContext
    ) -> Block:
        if block.has_tag("vector") or not block.ranges:
            return block
        found = lane_index(block, outer, unit.vector_bytes)
        if found is None:
            special = any(isinstance(s, Special) for s in block.statements)
            reason = (
                "it holds a special, which works on whole views" if special else "every index has one value"
            )
            context.remark(self.name, path, False, f"no lane index: {reason}")
            return block
        lane = found.lane if isinstance(found, Square) else found
        across = (found.across,) if isinstance(found, Square) else ()
        how = f", in squares along {across[0]}" if across else ", summed at the end" if lane.reduces else ""
        context.remark(
            self.name, path, True, f"{lane.index} runs along {lane.width} lanes{how}",
            index=lane.index, lanes=lane.width, cost=found.cost,
        )  # fmt: skip
        new = (Tag("vector", lane.index), *(Tag("across", name) for name in across))
        tags = tuple(sorted((*block.tags, *new), key=str))
        return replace(reorder_indexes(block, (lane.index, *across)), tags=tags)
