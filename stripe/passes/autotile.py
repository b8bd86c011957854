"""autotile: cut blocks into tiles that fit a memory, by a search under a cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, Literal

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.bounds import leaves
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import CostModel, Problem
from stripe.analysis.search import Candidate, Found, search
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Program, Tag
from stripe.passes.base import Pass, PassContext, option
from stripe.rewrite import RewriteRefused, reorder_indexes, tile_block, tile_nest
from stripe.visit import View, map_children, map_roots, views_of

REPORTED = 100  # candidates of each kind that a remark keeps
MAX_POINTS = 1 << 50  # costs are counted in 64 bits


@dataclass(frozen=True)
class Autotile(Pass):
    """Split blocks into tiles whose data fit a memory, with the sizes that cost least.

    before:  block o [x:12, i:3] (in I[x + i - 1] (1)  out O[x]:add (1)) {...}
    after:   block o [x:4] (in I[3*x - 1] (5)  out O[3*x]:add (3)) #tiled {
               block o [x:3, i:3] (in I[x + i] (1)  out O[x]:add (1)) {...} }

    Every combination of sizes (thinned out to `max_candidates`) and several orders of the tile
    loops are weighed by the cost model; the outcome depends on the iteration space, the accesses
    and the target alone. A tile for a memory of kind `registers` is made of every statement
    of a nest, its reductions outside its rows and lanes; what only lesser statements reduce over is
    tiled, too. The other kinds of memory split the block
    as it is. Sizes that do not divide a range get a constraint.

    Always legal: the points of a block are independent, and aggregations may be reassociated.
    Stripe paper, section 3.3 and Figures 4 and 5.
    """

    name: ClassVar[str] = "autotile"
    by_kernel: ClassVar[bool] = True
    tags_read: ClassVar[tuple[str, ...]] = ("tiled",)
    tags_set: ClassVar[tuple[str, ...]] = ("tiled",)

    memory: str = option("", "the memory that a tile must fit in; empty: the target's nearest")
    cost: str = option("roofline", f"the cost model: {', '.join(COST_MODELS)}")
    indices: tuple[str, ...] = option((), "names of the indexes to tile; empty: all but reductions")
    reductions: bool = option(False, "tile reduction indexes too")
    fixed: bool = option(False, "count operands that none of the indexes reaches")
    sizes: Literal["all", "divisors", "powers_of_two"] = option("all", "the sizes to try")
    only: Literal["untiled", "kernels"] = option(
        "untiled", "tile the outermost blocks without the tag #tiled, or every child of the root"
    )
    max_candidates: int = option(
        4096, "combinations of sizes to weigh for a block", "candidates", least=1, most=1 << 20
    )

    def check(self, hw: HwConfig) -> None:
        self._memory(hw)
        if self.cost not in COST_MODELS:
            notes = did_you_mean(self.cost, COST_MODELS)
            raise CompileError(
                Diagnostic("P101", f"autotile: no cost model is named '{self.cost}'", None, notes)
            )

    def run(self, program: Program, context: PassContext) -> Program:
        self.check(context.hw)
        run = _Run(self, context, self._memory(context.hw))
        return map_roots(program, lambda root: run.below(root, {}, ()))

    def _memory(self, hw: HwConfig) -> Memory:
        if not hw.memories:
            raise CompileError(Diagnostic("P102", f"autotile: the target '{hw.name}' has no memory"))
        if not self.memory:
            return hw.memories[0]
        found = hw.memory(self.memory)
        if found is None:
            notes = did_you_mean(self.memory, (m.name for m in hw.memories))
            message = f"autotile: the target '{hw.name}' has no memory '{self.memory}'"
            raise CompileError(Diagnostic("P102", message, None, notes))
        return found


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a program."""

    options: Autotile
    context: PassContext
    memory: Memory

    def below(self, block: Block, outer: Mapping[str, View], path: tuple[str, ...]) -> Block:
        """The block with the blocks below it tiled, as far as they are selected."""
        views, here, in_tile = views_of(block, outer), (*path, block.name), block.has_tag("tiled")
        return map_children(block, lambda child: self._visit(child, views, here, in_tile))

    def _visit(self, block: Block, outer: Mapping[str, View], path: tuple[str, ...], in_tile: bool) -> Block:
        passed_over = self.options.only == "untiled" and block.has_tag("tiled")
        if passed_over or not block.ranges:
            return self.below(block, outer, path)
        tiled = self._tile(block, outer, "/".join((*path, block.name)), in_tile)
        return self.below(block, outer, path) if tiled is None else tiled

    def _tile(self, block: Block, outer: Mapping[str, View], path: str, in_tile: bool) -> Block | None:
        """The block tiled, or as it is; None if it can't be, and the blocks below it perhaps can."""
        problem = Problem(
            block, outer, self.context.hw, self.memory, self.options.indices,
            self.options.reductions, self.options.fixed, self.options.sizes,
        )  # fmt: skip
        model = COST_MODELS[self.options.cost](problem)
        if not model.indices:
            self._decline(block, path, "no index to tile")
            return None
        if any(leaf.points > MAX_POINTS for leaf in problem.leaves):
            return self._decline(block, path, f"it has more than {MAX_POINTS} points")
        if reason := model.refusal():
            self._decline(block, path, reason)
            return None if self.memory.kind == "registers" else block
        whole = {name: block.ranges[name] for name in model.indices}
        if in_tile and model.evaluate(whole, model.indices).fits.all():
            return self._decline(block, path, f"it is a tile that fits in {self.memory.name} already")
        found = search(model, max(1, self.options.max_candidates))
        if reason := self._verdict(problem, model, found):
            self._decline(block, path, reason, found)
            return block if found.fitting else None
        try:
            tiled = self._rewrite(problem, model, found.fitting[0])
        except RewriteRefused as refused:
            return self._decline(block, path, refused.reason, found)
        if tiled == block:
            return self._decline(block, path, "the whole block is the best tile", found)
        self.context.remark(
            self.options.name, path, True, _summary(found, model), **_figures(found, model, problem)
        )
        return tiled

    def _verdict(self, problem: Problem, model: CostModel, found: Found) -> str:
        """Why the best tile should not be made, as a clause; empty if it should."""
        if not found.fitting:
            least = min((c.needed for c in found.excluded), default=0)
            return f"no tile fits: the smallest needs {least} of {found.capacity} {found.resource}"
        best = found.fitting[0]
        if all(size == 1 for size in best.sizes.values()):
            return "each of its points is a tile already"
        if best.cost is not None and best.cost >= model.untiled(best.sizes):
            return "no tile costs less than the block as it is"
        if self.memory.kind != "registers" and _is_whole(best, problem):
            return "the whole block is the best tile"
        return ""

    def _decline(self, block: Block, path: str, reason: str, found: Found | None = None) -> Block:
        data = {} if found is None else {"candidates": [_row(c, found) for c in _reported(found)]}
        self.context.remark(self.options.name, path, False, f"not tiled: {reason}", **data)
        return block

    def _rewrite(self, problem: Problem, model: CostModel, best: Candidate) -> Block:
        block, tags = problem.block, (Tag("tiled"),)
        if self.memory.kind != "registers":
            return tile_block(block, best.sizes, best.order, tags=tags)

        def ordered(part: Block, outer: Mapping[str, View]) -> Block:
            found = [leaf for leaf in leaves(part, outer) if leaf.block is part]
            return reorder_indexes(part, model.inner_order(found[0])) if found else part

        if _is_whole(best, problem) and not block.children:
            return ordered(block, problem.outer)
        tiled = tile_nest(block, best.sizes, best.order, tags=tags)
        views = views_of(tiled, problem.outer)
        statements = tuple(ordered(s, views) if isinstance(s, Block) else s for s in tiled.statements)
        return replace(tiled, statements=statements)


def _is_whole(candidate: Candidate, problem: Problem) -> bool:
    return all(size == problem.ranges[name] for name, size in candidate.sizes.items())


def _summary(found: Found, model: CostModel) -> str:
    best, *others = found.fitting
    text = f"tiled {_sizes_text(best)} at {best.cost:.4g} {model.unit}"
    text += f" ({best.needed} of {found.capacity} {found.resource})"
    if others:
        text += f"; next {_sizes_text(others[0])} at {others[0].cost:.4g}"
    return text


def _sizes_text(candidate: Candidate) -> str:
    return " ".join(f"{name}:{size}" for name, size in candidate.sizes.items())


def _figures(found: Found, model: CostModel, problem: Problem) -> dict[str, object]:
    """What reports show: the choice, and the candidates that were weighed."""
    return {
        "memory": problem.memory.name,
        "unit": model.unit,
        "resource": found.resource,
        "capacity": found.capacity,
        "chosen": _row(found.fitting[0], found),
        "weighed": len(found.fitting) + len(found.excluded),
        "excluded": len(found.excluded),
        "candidates": [_row(c, found) for c in _reported(found)],
    }


def _reported(found: Found) -> list[Candidate]:
    return [*islice(found.fitting, REPORTED), *islice(found.excluded, REPORTED)]


def _row(candidate: Candidate, found: Found) -> dict[str, object]:
    row: dict[str, object] = {"sizes": dict(candidate.sizes), "needed": candidate.needed}
    if candidate.cost is None:
        row["limit"] = f"needs {candidate.needed} of {found.capacity} {found.resource}"
    else:
        row |= {"cost": candidate.cost, "order": list(candidate.order)}
    return row
