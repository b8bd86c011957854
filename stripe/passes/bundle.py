"""bundle: short rows are added up several at a time, so that vectors are full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hwconfigs.model import Unit
from stripe.analysis.bounds import operands
from stripe.analysis.bundle import Rows, short_rows
from stripe.analysis.cost_bundle import Work
from stripe.diag import did_you_mean
from stripe.ir import Block, Direction, Program
from stripe.passes.base import Pass, PassContext, is_worth, option
from stripe.passes.bundle_build import Builder
from stripe.passes.choices import Choice, Count
from stripe.passes.rewriter import Rewriter
from stripe.rewrite import RewriteRefused, tile_nest
from stripe.visit import View, map_roots, views_of


class Bundled(Choice, frozen=True):
    """Of a block that adds up rows: the `index` that counts them, and how many `rows` there are at a time."""

    index: str
    rows: Count


@dataclass(frozen=True)
class Bundle(Pass):
    """Add up rows of a few elements several at a time, so that they fill vectors.

    before:  block S [n:1000, c:3] (in X[n, c]  out S[c]:add) { $x = load(X)  S = store($x) }
    after:   new S_part f32(48, 3)
             block S_rows [n_1:20, n:48, c:3] (in X[48*n_1 + n, c]  out S_part[n, c]:add) #vector=c {...}
             block S_left [n:40, c:3] (in X[n + 960, c]  inout S_part[n, c]:add) #vector=c {...}
             block S [n:48, c:3] (in S_part[n, c]  out S[c]:add) #vector=c {...}

    Elements of rows that follow one another are one run, in the input and in the partial results alike, and
    vectors go on from row to row of it. Where they take one row, most lanes stay empty, and each row waits
    for the sum of those before it: means and variances of the channels of a picture, sums over the rows of
    a table. Inputs that are the same for each row are copied as often as there are rows at a time, into a
    buffer that is as long as the run. A nest over what is a row comes apart first:

    before:  block M [c:3] (new S (1)) { block S [n:1000] (in X[n, c]  out S[0]:add) {...}
                                         block M [] (in S[0]  out M[c]:assign) {...} }
    after:   new S f32(3)
             block S [c:3, n:1000] (in X[n, c]  out S[c]:add) {...}      in bundles, as above
             block M [c:3] (in S[c]  out M[c]:assign) {...}

    There are as many rows at a time as take the fewest cycles, in whole vectors where these can be: their
    sums stay in half of the registers. Counted are loads, stores and operations, or the latency of a sum if
    that takes longer, for rows that are left over and for the sum of the partial results, too.

    Legal where results do not depend on the index of rows, or go along it as the inputs do. The aggregation
    may be any but `assign`: floats are added in another order, always the same on a target. What would be
    rounded in between, as `f16`, stays whole, and what `#group` or `#stencil` names is left as the
    instruction takes it. Acts on leaf blocks without a lane index whose constraints say nothing about rows.
    Stripe paper, section 3.3, for splits of an index.
    """

    name: ClassVar[str] = "bundle"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group", "vector")
    tags_set: ClassVar[tuple[str, ...]] = ("vector",)
    choice: ClassVar[type[Choice]] = Bundled

    least_gain: int = option(
        10, "the share of a block's cycles that must be saved", "percent", least=0, most=100
    )

    def run(self, program: Program, context: PassContext) -> Program:
        unit = context.hw.compute_unit
        if unit is None:
            context.remark(program.root.name, False, "the target has no unit that computes")
            return program

        def bundled(root: Block) -> Block:
            level = _Level(self, context, unit, root, {}, root.name)
            return level.bundled(level.keys())

        return map_roots(program, bundled)


@dataclass(slots=True)
class _Level:
    """The blocks in one, which is the root or a nest; `outer` are the views of its parent."""

    options: Bundle
    context: PassContext
    unit: Unit
    block: Block
    outer: Mapping[str, View]
    path: str
    views: Mapping[str, View] = field(init=False)
    rewriter: Rewriter = field(init=False)

    def __post_init__(self) -> None:
        self.views = views_of(self.block, self.outer)
        self.rewriter = Rewriter(self.block)

    def keys(self) -> list[str]:
        """What its blocks are called among choices."""
        return [self.context.key(f"{self.path}/{child.name}") for child in self.block.children]

    def bundled(self, keys: Sequence[str]) -> Block:
        """The block, where those in it add up several rows at a time."""
        rest = iter(keys)

        def become(child: Block) -> Sequence[Block]:
            key = next(rest)
            return self._nest(child) if child.children else self._leaf(child, key)

        return self.rewriter.replaced(become)

    # -- nests ---------------------------------------------------------------------------------------

    def _nest(self, nest: Block) -> Sequence[Block]:
        """The blocks that a nest becomes."""
        level = replace(self, block=nest, outer=self.views, path=f"{self.path}/{nest.name}")
        keys = level.keys()
        for apart in self._apart(nest):
            inside = replace(level, block=apart)
            if any(inside._is_wanted(child, key) for child, key in zip(apart.children, keys, strict=True)):
                made = inside.bundled(keys)
                return [made] if made.ranges else Builder(self.rewriter).spliced(made)
        return [level.bundled(keys)]

    def _apart(self, nest: Block) -> Iterator[Block]:
        """A nest that leaves an index along which an input lies to the blocks in it: each then goes through
        all its values, and rows along it are those of one block."""
        found = operands(nest, self.views)
        if any(o.combines for o in found) or any(child.children for child in nest.children):
            return
        for lane, size in nest.ranges.items():
            if size < 2 or not any(o.stride(lane) == 1 and o.direction is Direction.IN for o in found):
                continue
            try:
                apart = tile_nest(nest, {name: 1 for name in nest.ranges if name != lane})
            except RewriteRefused:
                continue
            if len(apart.children) == len(nest.statements):
                yield apart

    def _is_wanted(self, block: Block, key: str) -> bool:
        """Whether rows of a block are to be added up several at a time."""
        found = short_rows(block, self.views)
        if isinstance(found, str) or not found:
            return False
        if self.context.explicit(key, Bundled) is not None:
            return True
        best = self._best(found)
        pays = best is not None and self._pays(*best)
        if pays and not self.context.searches:
            self.context.undecided(f"{self.path}/{block.name}")
        return pays and self.context.searches

    # -- leaves --------------------------------------------------------------------------------------

    def _leaf(self, block: Block, key: str) -> Sequence[Block]:
        """The blocks that a leaf becomes."""
        path, found = f"{self.path}/{block.name}", short_rows(block, self.views)
        given = self.context.explicit(key, Bundled)
        if isinstance(found, str):
            if given is not None:
                raise self.context.refused(key, found)
            self.context.remark(path, False, f"rows are added up one by one: {found}")
            return [block]
        best = self._best(found) if given is None else self._given(found, key, given)
        if best is None:
            return [block]
        if given is None and not self.context.searches:
            self.context.undecided(path)
            return [block]
        rows, number = best
        work = Work(rows, self.unit)
        cycles = f"{work.together(number):.4g} cycles instead of {work.one_by_one(self.views):.4g}"
        if given is None and not self._pays(rows, number):
            self.context.remark(path, False, f"rows are added up one by one: {number} would take {cycles}")
            return [block]
        self.context.remark(path, True, f"adds up {number} rows of {rows.length} at a time: {cycles}")
        self.context.chose(key, Bundled(rows.row, number))
        return Builder(self.rewriter).in_bundles(rows, number)

    def _best(self, found: Sequence[Rows]) -> tuple[Rows, int] | None:
        """The rows, and how many of them at a time, that take the least."""
        works = [Work(rows, self.unit) for rows in found]
        ways = [(work, number) for work in works for number in work.numbers()]
        best = min(ways, key=lambda way: way[0].together(way[1]), default=None)
        return None if best is None else (best[0].rows, best[1])

    def _given(self, found: Sequence[Rows], key: str, given: Bundled) -> tuple[Rows, int]:
        """Raises CompileError P009 for rows that there are not."""
        rows = next((rows for rows in found if rows.row == given.index), None)
        if rows is None:
            reason = f"it adds up no rows along '{given.index}' that follow one another"
            notes = did_you_mean(given.index, (rows.row for rows in found))
            raise self.context.refused(key, reason, "index", *notes)
        if not 1 < given.rows <= rows.count:
            raise self.context.refused(key, f"it adds up {rows.count} rows along '{rows.row}'", "rows")
        return rows, given.rows

    def _pays(self, rows: Rows, number: int) -> bool:
        work = Work(rows, self.unit)
        before = work.one_by_one(self.views)
        return is_worth(before - work.together(number), before, self.options.least_gain)
