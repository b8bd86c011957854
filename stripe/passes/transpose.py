"""transpose: give buffers another layout, or make packed copies, where that pays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, Literal

from hwconfigs.model import HwConfig
from stripe.alike import kind
from stripe.analysis.bounds import leaves
from stripe.analysis.cost_layout import layout_cycles
from stripe.analysis.stencils import matches
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Direction, Program, Refinement, Special, Statement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.transpose_build import (
    Layout,
    at_load_time,
    from_the_original,
    inserted,
    known_at_load_time,
    pack,
    permuted,
)
from stripe.passes.transpose_hoist import hoisted, root_source
from stripe.passes.transpose_measures import Measure, Measures
from stripe.passes.transpose_tree import (
    at_path,
    copied,
    layouts,
    levels,
    may_turn,
    orders,
    position,
    position_after,
    put,
    reach,
    users_of,
)
from stripe.poly import PolyhedralLimit
from stripe.rewrite import RewriteRefused
from stripe.visit import View, map_children, views_of, walk

Views = Mapping[str, View]
MAX_COPIES = 4  # that one kernel gets
SMALL = 0.05  # kernels with a lesser share of the greatest one's points are left alone


@dataclass(frozen=True)
class Transpose(Pass):
    """Change the strides of a buffer, or read an input from a packed copy, where that saves time.

    before:  block c [n:4, m:64] (in B[0, 8*n] (512, 8) ...) { block d [k:512, j:8] (in B[k, j] ...) }
    after:   new B_packed (4, 512, 8):(4096, 8, 1)
             block B_pack [n:4, d0:512, d1:8] (in B[d0, 8*n + d1]  out B_packed[n, d0, d1]:assign) {...}
             block c [n:4, m:64] (in B = B_packed[n, 0, 0] (1, 512, 8) ...) {
               block d [k:512, j:8] (in B[0, k, j] ...) }

    A buffer of the program's own gets the order of its dimensions under which all that uses it takes
    the fewest cycles: only its strides change. An input of a block is copied in front of it, at the
    level of the nest where that saves most: with its dimensions in another order, and, where an index
    of the block cuts a dimension into tiles, one panel for each tile, dense in memory. Weighed are
    vector instructions (lanes a stride apart are taken apart), lines that are fetched again because
    rows crowd into few sets of a cache, and rows on more pages than are at hand, against the copy. Of a
    kernel without tiles only instructions are weighed, along any lane index; in a nest with tiles
    the lane index is settled. A copy of a `const` input of the root is made by the load-time program
    and costs nothing.

    With `stencil`, it is need that decides: where the operands of a leaf block do not have the strides
    that the stencil asks for, those copies are made with which more of its indexes fit.

    Always legal: what is read is copied right before. Blocks with `#stencil` are left alone.
    Stripe paper, section 2.3, "Microarchitectural Transposition".
    """

    name: ClassVar[str] = "transpose"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "tiled")

    least_gain: int = option(
        3, "the share of a kernel's cycles that a layout must save", "percent", least=0, most=100
    )
    stencil: str = option("", "name of a stencil whose strides are to hold; empty: cost decides")
    lanes: Literal["settled", "free"] = option(
        "settled",
        "tiles have settled the lane indexes of what is in them, or none has one yet, as in front of the "
        "step that makes tiles for registers",
    )
    load_time: bool = option(True, "let the load-time program copy const inputs")

    def check(self, hw: HwConfig) -> None:
        if self.stencil and hw.stencil(self.stencil) is None:
            notes = did_you_mean(self.stencil, (s.name for s in hw.stencils))
            message = f"transpose: the target '{hw.name}' has no stencil '{self.stencil}'"
            raise CompileError(Diagnostic("P130", message, None, notes))

    def run(self, program: Program, context: PassContext) -> Program:
        self.check(context.hw)
        run = _Run(self, context, Measures(context.hw, self.lanes == "free"))
        if not self.stencil:
            root = run.relaid(program.root, {}, ())
            program = program if root is program.root else replace(program, root=root)
        greatest, at = max(map(_points, program.root.children), default=0), 0
        for kernel in program.root.children:
            at = position(program.root, kernel, at)
            if self.stencil or _points(kernel) >= SMALL * greatest:
                program = run.packed(program, at)
            else:
                reason = f"not packed: it has less than {SMALL:.0%} of the points of the greatest kernel"
                context.remark(self.name, f"{program.root.name}/{kernel.name}", False, reason)
        return program


@dataclass(frozen=True, slots=True)
class _Offer:
    """A copy of what a block reads through `view`, made in its parent; cycles of the whole program.

    `path` leads from the root to the block, `number` is the place of the view among its refinements;
    `ahead`: the copy is made once, in front of the kernel (or at load time), not in the block's parent.
    """

    path: tuple[int, ...]
    number: int
    view: Refinement
    layout: Layout
    saved: float
    copy: float
    load_time: bool
    ahead: bool = False

    @property
    def place(self) -> Hashable:
        """Which view of the kernel it is about, wherever the kernel stands."""
        return self.path[1:], self.number

    @property
    def gain(self) -> float:
        return self.saved - (0.0 if self.load_time else self.copy)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a program."""

    options: Transpose
    context: PassContext
    measures: Measures
    known: dict[Hashable, tuple[Block, _Offer | None, float]] = field(default_factory=dict)

    # -- buffers of the program's own ----------------------------------------------------------

    def relaid(self, block: Block, outer: Views, path: tuple[str, ...]) -> Block:
        """The block, and those below it, with other strides for buffers that gain from them."""
        here = (*path, block.name)
        views, users = views_of(block, outer), users_of(block)
        turned: dict[str, Refinement] = {}
        for ref in block.refinements:
            own = users.get(ref.name, [])
            if ref.direction is Direction.NEW and may_turn(own, ref, self.context.hw):
                strides = self._turned(own, ref, views, "/".join(here))
                if strides != ref.strides:
                    turned[ref.name] = replace(ref, strides=strides)
                    views[ref.name] = View(ref.dtype, ref.shape, strides)
        if turned:
            block = replace(block, refinements=tuple(turned.get(r.name, r) for r in block.refinements))
        return map_children(block, lambda child: self.relaid(child, views, here))

    def _turned(self, own: Sequence[Statement], ref: Refinement, views: Views, where: str) -> tuple[int, ...]:
        """The strides that suit the blocks which use a buffer: those that it has, or better ones."""
        assert ref.strides is not None
        users = [user for user in own if isinstance(user, Block)]
        least = SMALL * max(map(_points, users), default=0)
        users = [user for user in users if _points(user) >= least]
        if not users or all(self.measures.served(user, views) for user in users):
            served = "all blocks that use it take whole vectors or splats"
            self.context.remark("transpose", where, False, f"layout of '{ref.name}' kept: {served}")
            return ref.strides
        settled = [self.measures.measure(user, views) for user in users]

        def cycles(strides: tuple[int, ...], instructions: bool = False) -> float:
            """Of all users; or only the instructions of those with tiles, whose lane indexes are settled."""
            changed = {ref.name: View(ref.dtype, ref.shape, strides)}
            total = 0.0
            for user, measure in zip(users, settled, strict=True):
                if not instructions:
                    total += self.measures.cycles(user, views, changed, measure)
                elif measure.memory:
                    total += self.measures.instructions(user, views, changed, measure)
            return total

        before, issued = cycles(ref.strides), cycles(ref.strides, instructions=True)
        found = {permuted(ref.shape, order): order for order in orders(len(ref.shape))}
        # Vectors that are taken apart cost more than is saved; a packed copy saves the same.
        others = [s for s in found if s != ref.strides and cycles(s, instructions=True) <= issued]
        costs = {strides: cycles(strides) for strides in others}
        if not costs:
            reason = "under any other the vectors of tiles, which were made for this one, are taken apart"
            self.context.remark("transpose", where, False, f"layout of '{ref.name}' kept: {reason}")
            return ref.strides
        best = min(costs, key=lambda strides: (costs[strides], strides))
        gain = before - costs[best]
        text = f"'{ref.name}' with strides {_shape(best)} would save {gain:.4g} of {before:.4g} cycles"
        if gain <= 0 or gain * 100 < self.options.least_gain * before:
            self.context.remark("transpose", where, False, f"layout kept: {text}")
            return ref.strides
        text = f"'{ref.name}' has strides {_shape(best)}: saves {gain:.4g} of {before:.4g} cycles"
        self.context.remark("transpose", where, True, text, before=before, after=costs[best])
        return best

    # -- copies ----------------------------------------------------------------------------------

    def packed(self, program: Program, at: int) -> Program:
        """The program with copies of what one kernel reads; `at` is its position."""
        kernel = at_path(program.root, (at,))
        where, said, acted = f"{program.root.name}/{kernel.name}", "", False
        refused: frozenset[Hashable] = frozenset()
        for _ in range(MAX_COPIES):
            best, total = self._best(program, at, refused)
            if best is None:
                said = said or self._nothing()
                break
            text = _text(best, total)
            if not self.options.stencil and best.gain * 100 < max(1.0, self.options.least_gain * total):
                said = f"not packed: {text}"
                break
            try:
                program, buffer = self._apply(program, best)
            except (RewriteRefused, PolyhedralLimit) as error:
                reason = error.reason if isinstance(error, RewriteRefused) else "it is too hard to describe"
                refused |= {best.place}
                said = f"not packed: {reason}"
                continue
            at, acted = position_after(program.root, at, kernel.name), True
            data = {
                "buffer": best.view.source,
                "bytes": prod(buffer.shape) * buffer.dtype.bytes,
                "saved": best.saved,
                "copy": best.copy,
                "of": total,
                "load_time": best.load_time,
                "inside": len(best.path) > 1 and not best.ahead,  # not by a kernel of its own
            }
            self.context.remark("transpose", where, True, f"packed {text}", **data)
        if said and not acted:
            self.context.remark("transpose", where, False, said)
        return program

    def _best(self, program: Program, at: int, refused: frozenset[Hashable]) -> tuple[_Offer | None, float]:
        """The copy that gains most for a kernel, and the cycles of the kernel; found once for all kernels
        that are alike."""
        root = program.root
        kernel = at_path(root, (at,))
        around = tuple(
            replace(root.refinement(r.source), name="", source="", span=None)
            for r in kernel.refinements
            if r.direction is not Direction.NEW
        )
        key = id(kind(kernel).block), around, refused
        if key not in self.known:
            offers = self._needed(program, at) if self.options.stencil else self._offers(program, at)
            left = [offer for offer in offers if offer.place not in refused]
            views = views_of(root, {})
            total = self.measures.of(kernel, views).cycles(kernel, views)
            self.known[key] = kind(kernel).block, max(left, key=lambda offer: offer.gain, default=None), total
        _, best, total = self.known[key]
        if best is None:
            return None, total
        path = (at, *best.path[1:])
        return replace(best, path=path, view=at_path(root, path).refinements[best.number]), total

    def _nothing(self) -> str:
        if self.options.stencil:
            return f"the stencil '{self.options.stencil}' fits no better with a copy of an input"
        return "no input of it gains from another layout"

    def _offers(self, program: Program, at: int) -> list[_Offer]:
        """Every copy that may be made of an input of a kernel, at every level of the nest."""
        found: list[_Offer] = []
        tiled = self.measures.settled(at_path(program.root, (at,)))
        constants = known_at_load_time(program)
        for path, parents, views in levels(program.root, (at,)):
            parent, block = parents[-1], at_path(program.root, path)
            often = prod(size for level in parents for size in level.ranges.values())
            if any(b.has_tag("stencil") for _, b in walk(block)) or (not tiled and len(parents) > 1):
                continue
            measure = Measure.of(block, views, self.context.hw, tiled)
            before = measure.cycles(block, views)
            for view in copied(parent, block):
                if measure.serves(block, views, view.name):
                    continue
                source = root_source(parents, view.source)
                loads = self.options.load_time and source in constants
                number = block.refinements.index(view)
                for layout in layouts(parent, block, view):
                    here = self._weighed(parent, block, view, layout, views, measure, before)
                    if here is not None and not loads:
                        saved, copy = (cycles * often for cycles in here)
                        found.append(_Offer(path, number, view, layout, saved, copy, False))
                    if loads or (here is not None and source is not None and len(parents) > 1):
                        weighed = self._weighed_ahead(parents, block, view, layout, tiled)
                        if weighed is not None:
                            found.append(_Offer(path, number, view, layout, *weighed, loads, ahead=True))
        return found

    def _weighed_ahead(
        self, parents: Sequence[Block], block: Block, view: Refinement, layout: Layout, tiled: bool
    ) -> tuple[float, float] | None:
        """The same for a copy that is made once, ahead of the kernel."""
        root, kernel = parents[0], [*parents, block][1]
        views, hw = views_of(root, {}), self.context.hw
        try:
            names = Names(r.name for b in parents for r in b.refinements)
            packed = pack(parents[-1], block, view, layout, names, exact=False)
            packed = hoisted(parents, block, view.source, packed)
        except RewriteRefused:
            return None
        buffer = packed.buffer
        inside = {**views, buffer.name: View(buffer.dtype, buffer.shape, buffer.strides or ())}
        measure = Measure.of(kernel, views, hw, tiled)
        saved = measure.cycles(kernel, views) - measure.cycles(packed.block, inside)
        return (saved, sum(layout_cycles(c, inside, hw) for c in packed.copies)) if saved > 0 else None

    def _weighed(
        self, parent: Block, block: Block, view: Refinement, layout: Layout, views: Views,
        measure: Measure, before: float,
    ) -> tuple[float, float] | None:  # fmt: skip
        """Cycles that a block saves with a copy, and those of making it; None if it saves nothing."""
        try:
            packed = pack(parent, block, view, layout, Names(views), exact=False)
        except RewriteRefused:
            return None
        buffer, hw = packed.buffer, self.context.hw
        inside = {**views, buffer.name: View(buffer.dtype, buffer.shape, buffer.strides or ())}
        saved = before - measure.cycles(packed.block, inside)
        if saved <= 0 and not self.options.stencil:
            return None
        return saved, sum(layout_cycles(copy, inside, hw) for copy in packed.copies)

    def _needed(self, program: Program, at: int) -> list[_Offer]:
        """The copy of one input of a leaf block with which most indexes of the stencil fit; the
        smallest of several."""
        stencil = self.context.hw.stencil(self.options.stencil)
        assert stencil is not None
        found: list[tuple[int, int, _Offer]] = []
        for path, parents, views in levels(program.root, (at,)):
            block = at_path(program.root, path)
            if block.children or any(isinstance(s, Special) for s in block.statements):
                continue
            (leaf,) = (found_leaf for found_leaf in leaves(block, views) if found_leaf.block is block)
            reached = reach(matches(stencil, leaf).fits)
            for view in copied(parents[-1], block):
                for layout in layouts(parents[-1], block, view):
                    packed = pack(parents[-1], block, view, layout, Names(views), exact=False)
                    operands = tuple(
                        replace(o, strides=packed.buffer.strides or (), access=o.access)
                        if o.name == view.name and not layout.panels
                        else o
                        for o in leaf.operands
                    )
                    more = reach(matches(stencil, replace(leaf, operands=operands)).fits)
                    if more > reached:
                        measure = self.measures.of(block, views)
                        before = measure.cycles(block, views)
                        weighed = self._weighed(parents[-1], block, view, layout, views, measure, before)
                        assert weighed is not None
                        found.append(
                            (
                                -more,
                                prod(packed.buffer.shape),
                                _Offer(path, block.refinements.index(view), view, layout, *weighed, False),
                            )
                        )
        found.sort(key=lambda entry: entry[:2])
        return [found[0][2]] if found else []

    def _apply(self, program: Program, offer: _Offer) -> tuple[Program, Refinement]:
        """The program with the copy, and the buffer that holds it."""
        root = program.root
        parents = [at_path(root, offer.path[:depth]) for depth in range(len(offer.path))]
        parent, block = parents[-1], at_path(root, offer.path)
        view = block.refinement(offer.view.name)
        taken = {r.name for b in (*parents, *([program.load] if program.load else [])) for r in b.refinements}
        packed = pack(parent, block, view, offer.layout, Names(taken))
        if offer.ahead:
            packed = hoisted(parents, block, view.source, packed)
            kernel = at_path(root, offer.path[:1])
            if not offer.load_time:
                made = replace(program, root=inserted(root, kernel, from_the_original(root, packed)))
            else:
                original = root_source(parents, view.source) or view.source
                made = at_load_time(program, kernel, original, packed)
            return made, packed.buffer
        if parent is root:
            packed = from_the_original(root, packed)
        made = replace(program, root=put(root, offer.path[:-1], inserted(parent, block, packed)))
        return made, packed.buffer


def _points(block: Block) -> int:
    """The points of a nest, as boxes, summed over its innermost blocks."""
    inside = sum(map(_points, block.children)) if block.children else 1
    return prod(block.ranges.values()) * inside


def _text(offer: _Offer, total: float) -> str:
    layout = offer.layout
    panels = f" in panels along {', '.join(name for name, _ in layout.panels)}" if layout.panels else ""
    order = "" if list(layout.order) == sorted(layout.order) else f" in the order {list(layout.order)}"
    when = " at load time" if offer.load_time else ""
    return (
        f"'{offer.view.source}'{panels}{order}: saves {offer.saved:.4g} of {total:.4g} cycles, "
        f"the copy takes {offer.copy:.4g}{when}"
    )


def _shape(strides: Sequence[int]) -> str:
    return f"({', '.join(map(str, strides))})"
