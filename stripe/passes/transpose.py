"""transpose: give buffers another layout, or make packed copies, where that pays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, Literal

from hwconfigs.model import HwConfig
from stripe.alike import kind
from stripe.analysis.cost_sets import crowds
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Direction, Program, Refinement, Statement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, is_worth, option
from stripe.passes.choices import Choice
from stripe.passes.transpose_chosen import Laid, NotSo, PackedCopy, checked_order, given_copy, order_of, said
from stripe.passes.transpose_hoist import hoisted, root_source
from stripe.passes.transpose_measures import Measures
from stripe.passes.transpose_offers import Barred, Offer, best_offer, made_for_copies, needed, offered
from stripe.passes.transpose_tree import (
    at_path,
    has_order,
    of_groups,
    orders,
    position,
    position_after,
    put,
    why_kept,
)
from stripe.poly import PolyhedralLimit
from stripe.rewrite import RewriteRefused
from stripe.rewrite_packed import (
    Layout,
    Packed,
    at_load_time,
    from_the_original,
    inserted,
    pack,
    permuted,
)
from stripe.visit import View, map_children, users_of, views_of

Views = Mapping[str, View]
MAX_COPIES = 4  # that one kernel gets
AT_LOAD_TIME = 1 / 4  # of the least gain: what a copy must save that is made once, for its memory
LARGE_GAIN = 5.0  # percent that a copy must save which a core's own caches do not hold
MARGIN = 1 / 4  # of what a copy takes at each call: what it must gain, as neither is known exactly
SMALL = 0.05  # kernels with a lesser share of the greatest one's points are left alone


@dataclass(frozen=True)
class Transpose(Pass):
    """Change the strides of a buffer, or read an input from a packed copy, where that saves time.

    before:  block c [n:4, m:64] (in B[0, 8*n] (512, 8) ...) { block d [k:512, j:8] (in B[k, j] ...) }
    after:   block c [n:4] (in B[0, 8*n] (512, 8) ...  new B_packed (512, 8):(8, 1)) {
               block B_pack [d0:512, d1:8] (in B[d0, d1]  out B_packed[d0, d1]:assign) {...}
               block c [m:64] (in B = B_packed[0, 0] (512, 8) ...) { block d [k:512, j:8] (in B[k, j] ...) } }

    A buffer of the program's own gets the order of its dimensions under which all that uses it takes
    the fewest cycles: only its strides change. An input of a block is copied where that saves most: in
    front of the block or the whole nest, or between two loops, ahead of those that read it again, where
    its buffer stays in a cache. A copy that leaves the core's own caches has to pay even where all that
    code asks for ahead comes in time, and gives way to one that does not leave them, if that costs little
    more; loops are exchanged for that, so that no part is copied again. The copy has
    its dimensions in another order, and, where an index of the block cuts a dimension into tiles, one panel
    for each tile, dense in memory. Weighed are vector instructions (lanes a stride apart are taken apart),
    lines that are fetched again because rows crowd into few sets of a cache, and rows on more pages than are
    at hand, against the copy, which waits for main memory where no cache keeps what it reads from call
    to call. Of a kernel without tiles only instructions are weighed, along any lane index, with the copies
    that its tiles will make then; in a nest with tiles the lane index is settled: if it was with copies in
    view, any gain of one that stays in the core's own caches is enough. A copy of a `const` input of the root
    is made by the load-time program and costs nothing.

    With `stencil`, it is need that decides: where the operands of a leaf block do not have the strides
    that the stencil asks for, those copies are made with which more of its indexes fit.

    Always legal: what is read is copied right before. Blocks with `#stencil` are left alone.
    Stripe paper, section 2.3, "Microarchitectural Transposition".
    """

    name: ClassVar[str] = "transpose"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "tiled", "group", "vector")
    tags_set: ClassVar[tuple[str, ...]] = ("tiled",)
    choice: ClassVar[type[Choice]] = Laid

    least_gain: int = option(
        2, "the share of a kernel's cycles that a layout must save", "percent", least=0, most=100
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
            key = context.key(f"{program.root.name}/{kernel.name}", "copies")
            given = context.explicit(key, Laid)
            if given is not None:
                program = run.copied(program, at, key, given)
            elif not context.searches:
                context.undecided(f"{program.root.name}/{kernel.name}")
            elif self.stencil or _points(kernel) >= SMALL * greatest:
                program = run.packed(program, at, key)
            else:
                reason = f"not packed: it has less than {SMALL:.0%} of the points of the greatest kernel"
                context.remark(f"{program.root.name}/{kernel.name}", False, reason)
        return program


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a program."""

    options: Transpose
    context: PassContext
    measures: Measures
    known: dict[Hashable, tuple[Block, Offer | None, float]] = field(default_factory=dict)

    # -- buffers of the program's own ----------------------------------------------------------

    def relaid(self, block: Block, outer: Views, path: tuple[str, ...]) -> Block:
        """The block, and those below it, with other strides for buffers that gain from them."""
        here = (*path, block.name)
        views, users = views_of(block, outer), users_of(block)
        key = self.context.key("/".join(here), "orders")
        given = self.context.explicit(key, Laid)
        turned: dict[str, Refinement] = {}
        found = {
            ref.name: why_kept(users.get(ref.name, []), ref)
            for ref in block.refinements
            if has_order(ref, self.context.hw)
        }
        able = [ref for ref in block.refinements if found.get(ref.name) == ""]
        if given is not None:
            self._check_orders(able, key, given)
        elif not self.context.searches:
            if able:
                self.context.undecided("/".join(here))
        else:
            for name, reason in found.items():
                if reason and any(isinstance(user, Block) for user in users.get(name, [])):
                    self._kept("/".join(here), name, reason)
        for ref in able if given is not None or self.context.searches else ():
            if given is None:
                strides = self._turned(users.get(ref.name, []), ref, views, "/".join(here))
            else:
                strides = self._ordered(ref, key, given)
            if strides != ref.strides:
                turned[ref.name] = replace(ref, strides=strides)
                views[ref.name] = View(ref.dtype, ref.shape, strides)
        if turned:
            self.context.chose_also(key, Laid, orders={name: order_of(ref) for name, ref in turned.items()})
            block = replace(block, refinements=tuple(turned.get(r.name, r) for r in block.refinements))
        return map_children(block, lambda child: self.relaid(child, views, here))

    def _kept(self, where: str, name: str, reason: str) -> None:
        self.context.remark(where, False, f"layout of '{name}' kept: {reason}")

    def _check_orders(self, able: Sequence[Refinement], key: str, given: Laid) -> None:
        """Raises CompileError P009 for buffers that get no order."""
        known = [ref.name for ref in able]
        for name in given.orders:
            if name not in known:
                reason = f"it has no buffer '{name}' of its own whose strides may change"
                notes = did_you_mean(name, known)
                raise self.context.refused(key, reason, f"orders.{name}", *notes)

    def _ordered(self, ref: Refinement, key: str, given: Laid) -> tuple[int, ...]:
        """The strides of a buffer with the order that is given."""
        assert ref.strides is not None
        if ref.name not in given.orders:
            return ref.strides
        try:
            order = checked_order(given.orders[ref.name], len(ref.shape), f"orders.{ref.name}")
        except NotSo as error:
            raise self.context.refused(key, error.reason, error.field) from None
        return permuted(ref.shape, order)

    def _turned(self, own: Sequence[Statement], ref: Refinement, views: Views, where: str) -> tuple[int, ...]:
        """The strides that suit the blocks which use a buffer: those that it has, or better ones."""
        assert ref.strides is not None
        users = [user for user in own if isinstance(user, Block)]
        least = SMALL * max(map(_points, users), default=0)
        users = [user for user in users if _points(user) >= least]
        if not users or all(self.measures.served(user, views) for user in users):
            served = "all blocks that use it take whole vectors or splats"
            self._kept(where, ref.name, served)
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
        seen = ((user, view) for user in users for view in user.refinements if view.source == ref.name)
        last = {dim for user, view in seen for dim in of_groups(user, view, views, self.context.hw)}
        found = {
            permuted(ref.shape, order): order
            for order in orders(len(ref.shape))
            if not last or order[-1] in last  # else it takes apart what an instruction reads in groups
        }
        # Vectors that are taken apart cost more than is saved; a packed copy saves the same.
        others = [s for s in found if s != ref.strides and cycles(s, instructions=True) <= issued]
        costs = {strides: cycles(strides) for strides in others}
        if not costs:
            reason = "under any other the vectors of tiles, which were made for this one, are taken apart"
            self._kept(where, ref.name, reason)
            return ref.strides
        best = min(costs, key=lambda strides: (costs[strides], strides))
        gain = before - costs[best]
        effect = (
            f"save {gain:.4g} of {before:.4g}" if gain >= 0 else f"cost {-gain:.4g} more than {before:.4g}"
        )
        text = f"'{ref.name}' with strides {_shape(best)} would {effect} cycles"
        if not is_worth(gain, before, self.options.least_gain):
            self.context.remark(where, False, f"layout kept: {text}")
            return ref.strides
        text = f"'{ref.name}' has strides {_shape(best)}: saves {gain:.4g} of {before:.4g} cycles"
        self.context.remark(where, True, text, before=before, after=costs[best])
        return best

    # -- copies ----------------------------------------------------------------------------------

    def copied(self, program: Program, at: int, key: str, given: Laid) -> Program:
        """The program with the copies that are given for one kernel; `at` is its position."""
        kernel = at_path(program.root, (at,))
        for number, copy in enumerate(given.copies):
            try:
                offer = given_copy(program, at, copy, self.options.load_time)
                where = f"copies[{number}]"
                text = f"'{offer.view.source}', as given"
                program, at, _ = self._made(program, at, kernel.name, offer, text)
            except NotSo as error:
                field = f"copies[{number}].{error.field}"
                raise self.context.refused(key, error.reason, field, *error.notes) from None
            except (RewriteRefused, PolyhedralLimit) as error:
                raise self.context.refused(key, _clause(error), where) from None
        if given.copies:
            self.context.chose_also(key, Laid, copies=given.copies)
        return program

    def packed(self, program: Program, at: int, key: str) -> Program:
        """The program with copies of what one kernel reads; `at` is its position."""
        kernel = at_path(program.root, (at,))
        where, text, made = f"{program.root.name}/{kernel.name}", "", list[PackedCopy]()
        barred = Barred()
        for _ in range(MAX_COPIES):
            best, total = self._best(program, at, barred)
            if best is None:
                text = text or self._nothing()
                break
            least = self._least_gain(at_path(program.root, best.path), best, total)
            if not self.options.stencil and best.gain < max(0.01, least):
                text = f"not packed: {best.text(total)}"
                break
            record = said(program.root, best)
            try:
                program, at, name = self._made(program, at, kernel.name, best, best.text(total), of=total)
            except (RewriteRefused, PolyhedralLimit) as error:
                barred = replace(barred, places=barred.places | {best.place})
                text = f"not packed: {_clause(error)}"
                continue
            made.append(record)
            barred = replace(barred, buffers=barred.buffers | {name})
        if made:
            self.context.chose_also(key, Laid, copies=tuple(made))
        elif text:
            self.context.remark(where, False, text)
        return program

    def _least_gain(self, reader: Block, offer: Offer, total: float) -> float:
        """What a copy must gain, of so many cycles. Where tiles settled a lane index with copies in view,
        these were found to pay then: any gain will do, of one that stays in the core's own caches. One that
        does not has left them when it is read."""
        share = self.options.least_gain / 100
        if offer.large:
            share = max(LARGE_GAIN / 100, share)
        elif made_for_copies(reader):
            return 0.0
        if offer.load_time:
            return share * total * (1.0 if offer.large else AT_LOAD_TIME)
        return max(share * total, MARGIN * offer.copy)

    def _made(
        self, program: Program, at: int, name: str, offer: Offer, text: str, **data: object
    ) -> tuple[Program, int, str]:
        """The program with a copy for a kernel, where that stands now, and the buffer of the copy."""
        where = f"{program.root.name}/{name}"
        program, buffer = self._apply(program, offer)
        data |= {
            "buffer": offer.view.source,
            "into": buffer.name,
            "bytes": buffer.bytes,
            "saved": offer.saved,
            "copy": offer.copy,
            "load_time": offer.load_time,
            "inside": offer.depth > 0,  # not by a kernel of its own
        }
        self.context.remark(where, True, f"packed {text}", **data)
        return program, position_after(program.root, at, name), buffer.name

    def _offer(self, program: Program, at: int, barred: Barred) -> Offer | None:
        if self.options.stencil:
            stencil = self.context.hw.stencil(self.options.stencil)
            assert stencil is not None
            return needed(program, at, self.measures, stencil, barred)
        least = self.options.least_gain / 100
        return best_offer(program, at, self.measures, self.options.load_time, barred, least)

    def _best(self, program: Program, at: int, barred: Barred) -> tuple[Offer | None, float]:
        """The copy that gains most for a kernel and is not `barred`, and the cycles of the kernel; found once
        for all kernels that are alike."""
        root = program.root
        kernel = at_path(root, (at,))
        around = tuple(
            replace(root.refinement(r.source), name="", source="", span=None)
            for r in kernel.refinements
            if r.direction is not Direction.NEW
        )
        like = kind(kernel).block
        key = id(like), around, barred
        if key not in self.known:
            best = self._offer(program, at, barred)
            views = views_of(root, {})
            total = self.measures.of(kernel, views).cycles(kernel, views)
            self.known[key] = like, best, total
        _, best, total = self.known[key]
        if best is None:
            return None, total
        path = (at, *best.path[1:])
        return replace(best, path=path, view=at_path(root, path).refinements[best.number]), total

    def _nothing(self) -> str:
        if self.options.stencil:
            return f"the stencil '{self.options.stencil}' fits no better with a copy of an input"
        return "no input of it gains from another layout"

    def _apply(self, program: Program, offer: Offer) -> tuple[Program, Refinement]:
        """The program with the copy, and the buffer that holds it."""
        root, path, place = offered(program.root, offer)
        parents = [at_path(root, path[:depth]) for depth in range(len(path))]
        parent, block = parents[-1], at_path(root, path)
        view = block.refinement(offer.view.name)
        taken = {r.name for b in (*parents, *([program.load] if program.load else [])) for r in b.refinements}
        packed = pack(parent, block, view, offer.layout, Names(taken))
        packed = packed if offer.load_time else spaced(packed, offer.layout, self.context.hw)
        packed = hoisted(parents[place:], block, view.source, packed)
        before = at_path(root, path[: place + 1])
        if offer.load_time:
            original = root_source(parents, view.source) or view.source
            return at_load_time(program, before, original, packed), packed.buffer
        if place == 0:
            packed = from_the_original(root, packed)
        root = put(root, path[:place], inserted(parents[place], before, packed))
        return replace(program, root=root), packed.buffer


def spaced(packed: Packed, layout: Layout, hw: HwConfig) -> Packed:
    """A copy whose panels lie a line farther apart than they are long, where they would crowd into few sets
    of the nearest cache: that pushes out what is written to them in turn.

    before:  new A_packed (43, 256, 6):(1536, 6, 1)
    after:   new A_packed (43, 256, 6):(1552, 6, 1)
    """
    near, buffer, lead = hw.nearest_cache, packed.buffer, len(layout.panels)
    fronts, panel = buffer.shape[:lead], prod(buffer.shape[lead:])
    if near is None or not crowds(prod(fronts), panel * buffer.dtype.bytes, near):
        return packed
    panel += near.line_bytes // buffer.dtype.bytes
    steps = permuted(fronts, range(lead))
    strides = (*(panel * step for step in steps), *(buffer.strides or ())[lead:])
    return replace(packed, buffer=replace(buffer, strides=strides))


def _points(block: Block) -> int:
    """The points of a nest, as boxes, summed over its innermost blocks."""
    inside = sum(map(_points, block.children)) if block.children else 1
    return block.points * inside


def _clause(error: RewriteRefused | PolyhedralLimit) -> str:
    return error.reason if isinstance(error, RewriteRefused) else "it is too hard to describe"


def _shape(strides: Sequence[int]) -> str:
    return f"({', '.join(map(str, strides))})"
