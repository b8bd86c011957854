"""autotile: cut blocks into tiles that fit a memory, by a search under a cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

from hwconfigs.model import HwConfig, Memory, own_cache
from stripe.analysis.bounds import leaves
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_explicit import ExplicitRoofline
from stripe.analysis.cost_parts import Loops
from stripe.analysis.cost_problem import CostModel, Problem
from stripe.analysis.search import Candidate, Found, search
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Program, Tag
from stripe.passes.autotile_chosen import Chosen, Tiling
from stripe.passes.autotile_explicit import (
    TooSmall,
    all_too_small,
    claimed_bytes,
    dealt_out,
    descends,
    level_tags,
    smallest,
    tiled_with,
    too_small,
    use_too_large,
)
from stripe.passes.autotile_lanes import with_other_lanes
from stripe.passes.autotile_sums import cutting_sums, with_steps_beside, with_sums_cut
from stripe.passes.autotile_words import best_of, counts, expected, row_of, summary
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice
from stripe.rewrite import RewriteRefused, reorder_indexes, tile_block, tile_nest
from stripe.rewrite_packed import known_at_load_time
from stripe.visit import View, map_children, map_roots, names_of, views_of, walk

PARTS_GAIN = 0.9  # of the cost of a tile that fits in registers: parts of it have to cost less
MAX_POINTS = 1 << 50  # costs are counted in 64 bits


@dataclass(frozen=True)
class Autotile(Pass):
    """Split blocks into tiles whose data fit a memory, with the sizes that cost least.

    before:  block o [x:12, i:3] (in I[x + i - 1] (1)  out O[x]:add (1)) {...}
    after:   block o [x:4] (in I[3*x - 1] (5)  out O[3*x]:add (3)) #tiled {
               block o [x:3, i:3] (in I[x + i] (1)  out O[x]:add (1)) {...} }

    Sizes and orders of the tile loops are weighed by the cost model, in a search that gives what weighing
    all of them would (the remark says `complete`), unless `max_candidates` ends it; the outcome depends on
    the iteration space, the accesses and the target alone. Sizes that do not divide a range get a
    constraint. What is done depends on the kind of the memory:

    - `registers`: a tile is made of every statement of a nest, its reductions outside its rows and
      lanes; what only lesser statements reduce over is tiled, too. A single statement is weighed with vectors
      along each index that it does not reduce over. Where the lanes are such that an input is to be copied
      first, are summed, go on from row to row, or only cost less in tiles, `#vector` settles them.
    - `cached`: the block is split as it is, along what only lesser statements reduce over, too. What the
      others reduce over is tiled where no tile fits else, or where that costs less than to copy inputs whose
      rows crowd into few sets of the memory. Of a block that reduces nothing, tiles begin where lines of its
      results do.
    - `explicit`: a tile is made of every statement of a nest, and a statement gets a tile loop of its own
      over what it reduces:

    before:  block r [m:64] (in A[16*m, 0] (16, 999)  out R[16*m]:assign (16)  new C (16)) {
               block c [k:64] (...  out C[0]:add (16)) { block c [...] #stencil=mac {...} }
               block r [i:16] (in C[i]  out R[i]:assign) {...} }
    after:   block r [m:16] (...  new C (4, 16)) #tiled #fits=SPAD {
               block c [k:8] (...  out C[0, 0]:add (4, 16)) #tiled #fits=SPAD {
                 block c [m:4, k:8] (...  out C[m, 0]:add (1, 16)) { block c [...] #stencil=mac {...} } }
               block r [m:4, i:16] (in C[m, i]  out R[16*m + i]:assign) {...} }

      All sizes come out of one search: one tile of every operand fits beside the buffers of the nest,
      `inflight` times where there are several tiles (where that is too much for any size, only what
      changes from tile to tile). What is aggregated counts against `accumulators`
      if that names a memory. Points of a #stencil block are never split. A block that fits whole gets one
      tile, as a place for copies. Where a nest has no tile that fits, its statements are tried one by one;
      where nothing fits, it is an error. Steps for one memory after another, farthest first, give
      nested levels.

      Where points go to units that have each an instance of the memory, tiles lie in what one of them
      executes, and the units stay side by side around these:

    before:  block p [u:16] @CORE[u] (...) { block r [m:64] (...) {...} }
    after:   block p [u:16] @CORE[u] (...) { block r [m:4] (...) #tiled { block r [m:16] (...) {...} } }

    With `interleave` a tile takes every n-th point along an index of which there are n tiles, so that
    neighbouring tiles touch neighbouring elements:

    after:   block o [x:4] (in I[x - 1] (11)  out O[x]:add (9)) #tiled {
               block o [x:3, i:3] (in I[4*x + i] (1)  out O[4*x]:add (1)) {...} }

    It pays where tiles run side by side, such as on units that share lines, or on banks. A tile alone
    brings in more lines for as many elements. The sizes are weighed as those of tiles that do not interleave.

    Sizes that `tile` gives by index are taken as they are, in the outermost blocks that have all of
    these indexes, whatever they cost; only in memories of kind `explicit` they must fit. Sizes beyond a
    range mean all of it. The search finds the sizes of other indexes and the order of the loops.

    A choice that is given for a block is made without a search; in an explicit memory it must fit.

    Always legal: the points of a block are independent, and aggregations may be reassociated.
    Stripe paper, section 3.3 and Figures 2, 4 and 5.
    """

    name: ClassVar[str] = "autotile"
    by_kernel: ClassVar[bool] = True
    choice: ClassVar[type[Choice]] = Tiling
    tags_read: ClassVar[tuple[str, ...]] = ("tiled", "fits", "stencil", "vector")
    tags_set: ClassVar[tuple[str, ...]] = ("tiled", "fits", "vector")

    memory: str = option("", "the memory that a tile must fit in; empty: the target's nearest")
    cost: str = option("roofline", f"the cost model: {', '.join(COST_MODELS)}")
    indices: tuple[str, ...] = option((), "names of the indexes to tile; empty: all but reductions")
    reductions: bool | None = option(
        None,
        "tile reduction indexes too; none: in memories of kind `explicit`, as loops below the tile, and in "
        "caches where no tile fits else, or where copies cost more",
    )
    fixed: bool = option(
        False, "count operands that none of the indexes reaches; in explicit memories they always count"
    )
    limits: tuple[str, ...] = option((), "names of further memories that a tile must fit in")
    accumulators: str = option(
        "", "the memory that holds what is aggregated, for explicit ones; empty: the same"
    )
    inflight: int = option(
        1, "tiles that are alive together in an explicit memory: 2 for double buffering", "tiles",
        least=1, most=64,
    )  # fmt: skip
    sizes: Literal["all", "divisors", "powers_of_two"] = option("all", "the sizes to try")
    only: Literal["untiled", "kernels"] = option(
        "untiled", "tile the outermost blocks without the tag #tiled, or every child of the root"
    )
    tile: tuple[tuple[str, int], ...] = option(
        (), "sizes by the name of an index that are not searched; reductions, too, may be named", "points",
        least=1, most=1 << 40,
    )  # fmt: skip
    interleave: bool = option(
        False, "a tile takes every n-th point, not neighbours; in memories of kind `cached`"
    )
    max_candidates: int = option(
        16384, "combinations of sizes that the search may visit for a block", "candidates",
        least=1, most=1 << 20,
    )  # fmt: skip

    def check(self, hw: HwConfig) -> None:
        memory = self._memory(hw)
        if self.interleave and memory.kind != "cached":
            message = (
                f"autotile: tiles interleave in memories of kind 'cached'; {memory.name} is '{memory.kind}'"
            )
            reason = "note: copies and accumulators are boxes, which interleaved tiles would fill in part"
            raise CompileError(Diagnostic("P111", message, None, (reason,)))
        for name in (*self.limits, *filter(None, (self.accumulators,))):
            self._named(hw, name)
        if self.cost not in COST_MODELS:
            notes = did_you_mean(self.cost, COST_MODELS)
            raise CompileError(
                Diagnostic("P101", f"autotile: no cost model is named '{self.cost}'", None, notes)
            )

    def run(self, program: Program, context: PassContext) -> Program:
        self.check(context.hw)
        hw = context.hw
        run = _Run(
            self, context, self._memory(hw), tuple(self._named(hw, name) for name in self.limits),
            self._named(hw, self.accumulators) if self.accumulators else None,
        )  # fmt: skip
        constant, far = known_at_load_time(program), _too_large(program, hw)
        inside = _Inside(constant=constant, far=far)
        tiled = map_roots(program, lambda root: run.below(root, {}, (), inside))
        if run.failed:
            raise all_too_small(run.failed, hw)
        return tiled

    def _memory(self, hw: HwConfig) -> Memory:
        if not hw.memories:
            raise CompileError(Diagnostic("P102", f"autotile: the target '{hw.name}' has no memory"))
        if not self.memory:
            return hw.memories[0]
        return self._named(hw, self.memory)

    def _named(self, hw: HwConfig, name: str) -> Memory:
        found = hw.memory(name)
        if found is None:
            notes = did_you_mean(name, (m.name for m in hw.memories))
            message = f"autotile: the target '{hw.name}' has no memory '{name}'"
            raise CompileError(Diagnostic("P102", message, None, notes))
        return found


@dataclass(frozen=True, slots=True)
class _Inside:
    """The tiles around a block: whether its parent is one, the memories that they fit in, and how often
    the block is executed; the bytes of buffers around it, those of the root aside; the views of its
    parent of what is known at load time, and of what a core's own caches do not hold; how many units
    execute such blocks side by side; and the blocks around it, but for the root."""

    tile: bool = False
    fits: frozenset[str] = frozenset()
    times: int = 1
    held: int = 0
    constant: frozenset[str] = frozenset()
    far: frozenset[str] = frozenset()
    units: int = 1
    path: tuple[Block, ...] = ()

    def in_(self, block: Block, memory: Memory, is_root: bool) -> _Inside:
        fits = self.fits | frozenset(block.tag_values("fits"))
        held = self.held + (0 if is_root else claimed_bytes(block, memory))
        times = self.times * block.points
        constant = self.constant if is_root else names_of(block, self.constant)
        far = self.far if is_root else names_of(block, self.far)
        path = () if is_root else (*self.path, block)
        return _Inside(block.has_tag("tiled"), fits, times, held, constant, far, self.units, path)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a program."""

    options: Autotile
    context: PassContext
    memory: Memory
    limits: tuple[Memory, ...]
    accumulators: Memory | None
    failed: list[TooSmall] = field(default_factory=list)

    def below(self, block: Block, outer: Mapping[str, View], path: tuple[str, ...], around: _Inside) -> Block:
        """The block with the blocks below it tiled, as far as they are selected."""
        views, here, inside = (
            views_of(block, outer),
            (*path, block.name),
            around.in_(block, self.memory, not path),
        )
        return map_children(block, lambda child: self._visit(child, views, here, inside))

    def _on_units(
        self, block: Block, outer: Mapping[str, View], path: tuple[str, ...], around: _Inside
    ) -> Block:
        """A block whose points go to units that have each an instance of the memory: tiles lie in what one
        unit executes, so that units stay side by side."""
        dealt = dealt_out(block)
        around = replace(around, units=around.units * dealt.points)
        if dealt is block:
            key = self.context.key("/".join((*path, block.name)))
            if self.context.explicit(key, Tiling) is not None:
                reason = f"its points go to units that have {self.memory.name} each for itself"
                advice = f"help: give it for '{key}/{block.children[0].name}', which each of them executes"
                raise self.context.refused(key, reason, "", advice)
            return self.below(block, outer, path, around)
        views, inside = views_of(dealt, outer), around.in_(dealt, self.memory, False)
        tiled = map_children(dealt, lambda child: self._visit(child, views, path, inside))
        return block if tiled is dealt else tiled

    def _visit(
        self, block: Block, outer: Mapping[str, View], path: tuple[str, ...], around: _Inside
    ) -> Block:
        if block.has_tag("stencil"):
            return self._around_use(block, outer, "/".join((*path, block.name)), around)
        if self.memory.count > 1 and block.location is not None and block.location.bank is not None:
            return self._on_units(block, outer, path, around)
        where = "/".join((*path, block.name))
        key = self.context.key(where)
        choice = self.context.explicit(key, Tiling)
        if choice is not None:
            return self._chosen(block, outer, where, key, choice, around)
        if self.options.only == "untiled" and block.has_tag("tiled"):
            return self.below(block, outer, path, around)
        if not self.context.searches:
            return self._undecided(block, outer, path, around)
        model = self._model(block, outer, around)
        problem = model.problem
        if self.options.tile and not self._given(model):
            self._decline(
                block, where, "it has not all indexes of the tile that is given; sizes are searched"
            )
        remarks = self.context.remarks
        before = len(remarks)
        if isinstance(model, ExplicitRoofline):
            tiled = self._tile_explicit(model, where, key, around)
        elif not block.ranges:
            tiled = None
        else:
            tiled = self._tile(problem, model, where, key, around)
        if tiled is not None:
            return tiled
        declined = len(remarks)
        inside = self.below(block, outer, path, around)
        if block.location is not None and any(r.acted for r in remarks[declined:]):
            del remarks[before:declined]  # its points run on units of their own: nothing is amiss
        return inside

    def _undecided(
        self, block: Block, outer: Mapping[str, View], path: tuple[str, ...], around: _Inside
    ) -> Block:
        """A block for which no choice is given, where there is no search."""

        def inside() -> Block:
            return self.below(block, outer, path, around)

        explicit = self.memory.kind == "explicit"
        if self.memory.name in around.fits if explicit else not block.ranges:
            return inside()
        return self.context.undecided_nest("/".join((*path, block.name)), inside)

    # -- choices that are given ------------------------------------------------------------------

    def _chosen(
        self, block: Block, outer: Mapping[str, View], path: str, key: str, choice: Tiling, around: _Inside
    ) -> Block:
        """The block with the tile that is given. Raises CompileError P009 if it can't have it."""
        given = Chosen(key, choice, self.context)
        problem = given.problem(self._problem(block, outer, around), COST_MODELS[self.options.cost])
        model = COST_MODELS[self.options.cost](problem)
        if isinstance(model, ExplicitRoofline):
            if self.memory.name in around.fits:
                raise given.refused(f"it is a tile that fits in {self.memory.name} already")
            found, tiled, model = given.levels(problem)
        elif self.memory.kind == "registers" and not choice.sizes:
            return self._fitting(problem, model, path, key)
        else:
            model, found = with_other_lanes(model, given.tile(model), given.tile)
            try:
                tiled = self._rewrite(problem, model, best_of(found))
            except RewriteRefused as refused:
                raise given.refused(refused.reason) from None
        self._say(path, key, found, model, around.times, choice)
        return block if tiled == block else tiled

    def _problem(self, block: Block, outer: Mapping[str, View], around: _Inside) -> Problem:
        options = self.options
        return Problem(
            block, outer, self.context.hw, self.memory, options.indices, options.reductions, options.fixed,
            options.sizes, self.limits, self.accumulators, options.inflight,
            around=around.fits, units=around.units, constant=names_of(block, around.constant),
            far=names_of(block, around.far), in_tile=around.tile,
            path=around.path,
        )  # fmt: skip

    def _model(self, block: Block, outer: Mapping[str, View], around: _Inside) -> CostModel:
        options = self.options
        problem = self._problem(block, outer, around)
        model = COST_MODELS[options.cost](problem)
        given = self._given(model)
        if self.memory.kind == "explicit" or given.keys() <= set(model.indices):
            return model
        names = (*model.indices, *(name for name in given if name not in model.indices))
        return COST_MODELS[options.cost](replace(problem, names=names))

    def _given(self, model: CostModel) -> dict[str, int]:
        """The sizes that are given, if the block has all of their indexes."""
        ranges = model.ranges if isinstance(model, ExplicitRoofline) else model.problem.ranges
        given = dict(self.options.tile)
        return {n: min(s, ranges[n]) for n, s in given.items()} if given.keys() <= ranges.keys() else {}

    def _around_use(self, use: Block, outer: Mapping[str, View], path: str, around: _Inside) -> Block:
        """A use of a stencil that is in no tile: one around it, where copies have a place."""
        if self.memory.kind != "explicit" or self.memory.name in around.fits:
            return use
        large = use_too_large(path, ExplicitRoofline(self._problem(use, outer, around), "none", True))
        if large is not None:
            self.failed.append(large)
            return use
        return tile_block(use, {}, tags=level_tags(self.memory.name))

    def _tile(self, problem: Problem, model: CostModel, path: str, key: str, around: _Inside) -> Block | None:
        """The block tiled, or as it is; None if it can't be, and the blocks below it perhaps can."""
        block = problem.block
        if not model.indices:
            self._decline(block, path, "no index to tile")
            return None
        if self.memory.kind == "registers" and any(b.has_tag("stencil") for _, b in walk(block)):
            self._decline(block, path, "it is cut into uses of a stencil")
            return None
        if any(leaf.points > MAX_POINTS for leaf in problem.leaves):
            return self._decline(block, path, f"it has more than {MAX_POINTS} points")
        given = self._given(model)
        # That a block fits whole is a reason against searching for a tile, not against a given one.
        if (reason := model.refusal()) and not (given and self.memory.kind == "cached" and problem.leaves):
            self._decline(block, path, reason)
            return None if self.memory.kind == "registers" else block
        as_it_is = None if given or not around.tile else _cost_of_all(problem, model)
        if as_it_is is not None and self.memory.kind != "registers":
            return self._fitting(problem, model, path, key)
        weigh = partial(search, max_candidates=self.options.max_candidates, given=given)
        own = model
        model, found = with_other_lanes(own, weigh(own), weigh)
        if as_it_is is not None and not _gains(found, as_it_is):
            return self._fitting(problem, own, path, key)
        if found.best is None and not given and self._may_cut_sums(problem):
            # A long reduction makes the least tile too large: then it is cut, too, and results come back.
            model = cutting_sums(model, self.options.cost)
            problem = model.problem
            found = search(model, self.options.max_candidates)
        elif found.best is not None and not given and self._may_cut_sums(problem):
            model, found = with_sums_cut(model, found, self.options.cost, self.options.max_candidates)
            problem = model.problem
        alone = model
        if not given and self.memory.kind == "registers":
            model, found = with_steps_beside(model, found)
            problem = model.problem
        if reason := self._verdict(problem, model, found, bool(given) or model is not alone):
            self._decline(block, path, reason, found)
            return block if found.best else None
        try:
            tiled = self._rewrite(problem, model, best_of(found))
        except RewriteRefused as refused:
            return self._decline(block, path, refused.reason, found)
        if tiled == block:
            return self._decline(block, path, "the whole block is the best tile", found)
        best = best_of(found)
        self._say(path, key, found, model, around.times, Tiling(dict(best.sizes), best.order))
        return tiled

    def _may_cut_sums(self, problem: Problem) -> bool:
        asked = self.options.reductions is not None or bool(self.options.indices)
        return self.memory.kind == "cached" and not asked and bool(problem.reduced)

    def _tile_explicit(self, model: ExplicitRoofline, path: str, key: str, around: _Inside) -> Block | None:
        """The block with its levels of tiles; None if only the blocks below it can be tiled."""
        problem, block, memory = model.problem, model.problem.block, self.memory
        if memory.name in around.fits:
            return self._decline(block, path, f"it is a tile that fits in {memory.name} already")
        if reason := model.refusal():
            return self._decline(block, path, reason)
        if any(leaf.points > MAX_POINTS for leaf in problem.leaves):
            return self._decline(block, path, f"it has more than {MAX_POINTS} points")
        ways: list[tuple[Loops, bool]] = [(model.loops, False), ("none", True)]
        if model.splits:
            ways.insert(1, ("all", False))
        # What several tiles share is copied for each; only where that does not fit, it counts once.
        attempts = [(*way, sparing) for sparing in (False, True)[: problem.inflight] for way in ways]
        failed: list[Found] = []
        refusals: dict[str, Found] = {}
        for loops, whole, sparing in attempts:
            weighed = ExplicitRoofline(problem, loops, sparing)
            found = search(weighed, self.options.max_candidates, given=self._given(weighed))
            if found.best is None:
                failed.append(found)
                continue
            try:
                tiled = tiled_with(weighed, found.best.sizes, found.best.order, whole)
            except RewriteRefused as refused:
                refusals.setdefault(refused.reason, found)
                continue
            if tiled == block:
                return self._decline(block, path, "it is cut into the best tiles already", found)
            made = Tiling(dict(found.best.sizes), found.best.order, "reductions" if whole else loops, whole)
            self._say(path, key, found, weighed, around.times, made)
            return tiled
        for reason, found in refusals.items():
            self._decline(block, path, f"its statements get no tile loops: {reason}", found)
        if not failed:
            return block
        if not descends(block):
            least = min(failed, key=lambda f: smallest(f).needed)
            self.failed.append(too_small(path, least, model, around.held))
            return block
        self._decline(block, path, f"no tile of all its statements fits in {memory.name}", failed[0])
        return None

    def _verdict(self, problem: Problem, model: CostModel, found: Found, given: bool) -> str:
        """Why the best tile should not be made, as a clause; empty if it should."""
        best = found.best
        if given:
            whole = self.memory.kind != "registers" and _is_whole(best_of(found), problem)
            return "the tile that is given is the whole block" if whole else ""
        if best is None:
            least = smallest(found)
            capacity, resource = found.limits[least.exceeded]
            return f"no tile fits: the smallest needs {least.needed} of {capacity} {resource}"
        if all(size == 1 for size in best.sizes.values()):
            return "each of its points is a tile already"
        if best.cost is not None and best.cost >= model.untiled(best.sizes):
            return "no tile costs less than the block as it is"
        if self.memory.kind != "registers" and _is_whole(best, problem):
            return "the whole block is the best tile"
        return ""

    def _decline(self, block: Block, path: str, reason: str, found: Found | None = None) -> Block:
        data = {} if found is None else counts(found)
        self.context.remark(path, False, f"not tiled: {reason}", **data)
        return block

    def _say(self, path: str, key: str, found: Found, model: CostModel, times: int, made: Tiling) -> None:
        self.context.chose(key, made)
        figures = {
            "memory": self.memory.name,
            "unit": model.unit,
            "resource": found.resource,
            "capacity": found.capacity,
            "chosen": row_of(best_of(found), found),
            **expected(best_of(found), model, times),
            **counts(found),
        }
        self.context.remark(path, True, summary(found, model), **figures)

    def _rewrite(self, problem: Problem, model: CostModel, best: Candidate) -> Block:
        block, tags = problem.block, (Tag("tiled"),)
        if self.memory.kind != "registers":
            return tile_block(block, best.sizes, best.order, tags=tags, interleave=self.options.interleave)

        if _is_whole(best, problem) and not block.children:
            return _ordered(block, problem.outer, model)
        return _ordered_below(tile_nest(block, best.sizes, best.order, tags=tags), problem.outer, model)

    def _fitting(self, problem: Problem, model: CostModel, path: str, key: str) -> Block:
        """A tile that fits as it is: its points may want another order."""
        block, fits = problem.block, f"it is a tile that fits in {self.memory.name} already"
        if self.memory.kind != "registers":
            return self._decline(block, path, fits)
        if block.children:
            # Its statements get the points, so that what streams runs outside what stays.
            sizes = {name: block.ranges[name] for name in model.indices}
            try:
                made = tile_nest(block, sizes, model.indices, tags=(Tag("tiled"),))
            except RewriteRefused as refused:
                return self._decline(block, path, refused.reason)
            made = _ordered_below(made, problem.outer, model)
        else:
            made = _ordered(block, problem.outer, model)
        if made == block:
            return self._decline(block, path, fits)
        self.context.remark(path, True, f"{fits}: its points are put in order")
        self.context.chose(key, Tiling())
        return made


def _ordered(part: Block, outer: Mapping[str, View], model: CostModel) -> Block:
    """A leaf with its indexes in the order that the model wants within a tile, and its lane index where only
    copies to come make it the best."""
    found = [leaf for leaf in leaves(part, outer) if leaf.block is part]
    if not found:
        return part
    lane = model.settled_lane(found[0])
    if lane and not part.has_tag("vector"):
        part = replace(part, tags=tuple(sorted((*part.tags, Tag("vector", lane)), key=str)))
    return reorder_indexes(part, model.inner_order(found[0]))


def _ordered_below(tile: Block, outer: Mapping[str, View], model: CostModel) -> Block:
    views = views_of(tile, outer)
    statements = tuple(_ordered(s, views, model) if isinstance(s, Block) else s for s in tile.statements)
    return replace(tile, statements=statements)


def _cost_of_all(problem: Problem, model: CostModel) -> float | None:
    """The cost of a block as one tile; None where it does not fit."""
    whole = model.evaluate({name: problem.block.ranges[name] for name in model.indices}, model.indices)
    return float(whole.cost) if whole.fits.all() else None


def _gains(found: Found, as_it_is: float) -> bool:
    """Whether parts of a tile of another memory that fits in registers cost less than all of it: they read
    fewer rows at a time, where these crowd into few sets of a cache."""
    best = found.best
    return best is not None and best.cost is not None and best.cost < PARTS_GAIN * as_it_is


def _is_whole(candidate: Candidate, problem: Problem) -> bool:
    return all(size == problem.ranges[name] for name, size in candidate.sizes.items())


def _too_large(program: Program, hw: HwConfig) -> frozenset[str]:
    """The buffers of the root for which a core's own caches have no room."""
    own = own_cache(hw.memories)
    if own is None or own.bytes is None:
        return frozenset()
    found = (ref for ref in program.root.refinements if ref.bytes > own.bytes)
    return frozenset(ref.name for ref in found)
