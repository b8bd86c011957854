"""stencil: cut blocks into what the target's instructions or arrays do in one go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hwconfigs.expressions import Apply, parse_body
from hwconfigs.model import HwConfig
from hwconfigs.model import Stencil as Shape
from stripe.analysis.bounds import leaves
from stripe.analysis.stencils import padded_sizes, registers, uses
from stripe.analysis.stencils_cost import Sized
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.intrinsics import INTRINSICS
from stripe.ir import Block, Program
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice
from stripe.passes.stencil_build import cut_nest, split_leaf
from stripe.passes.stencil_choice import Chooser, InnerUse, NotSo, Offered, Option, StencilUse
from stripe.passes.stencil_offsets import shift_operand
from stripe.rewrite import RewriteRefused
from stripe.visit import View, map_children, map_roots, views_of, walk

ATTEMPTS = 8  # maps that are tried, best first, where one can't be built
MAX_SHIFTS = 4  # operands of one kernel whose signedness is changed
REPORTED = 100  # candidates that a remark keeps
SHOWN = 8  # reasons that an error lists

Views = Mapping[str, View]


@dataclass(frozen=True)
class Stencil(Pass):
    """Cut blocks so that each innermost one is one use of a stencil of the target.

    before:  block c [m:40, n:64, k:48] (in A[m, k]  in B[k, n]  out C[m, n]:add) {...}
    after:   block c [m:3, n:4, k:3] (in A[16*m, 16*k] (16, 16) ...) {
               block c [k:16, m:16, n:16, mo = 16*m] (39 - mo - m >= 0  in A[m, k]  in B[k, n]
                 out C[m, n]:add) @ARRAY #stencil=mac {...} }

    A stencil is what an instruction or an array does in one go. Every map of its operands and indexes
    onto those of a nest is tried whose types, accesses and strides fit, with the legal sizes within the
    registers of its unit; the cheapest stays: uses * (startup + cycles and loads of one use), if that is
    less than points one at a time take on a unit that can. Indexes that the stencil does not have
    stay outside; where the block has other statements, these get the points of a tile too. What a
    use has too much is masked by constraints. The uses of a stencil that is made of another one are
    cut again, into uses of that one.

    With `offsets`, an integer operand x that lacks only the signedness of the stencil's is replaced
    by x' = x + 2^(bits - 1) of the other type; the sum of the other factors that makes up for it is
    taken once for all results that share it. Exact, because integers wrap.

    Where `stencils` names some and no block of the program is a use of one, it is an error.

    Always legal: the points of a block are independent, aggregations may be reassociated. Blocks
    with the tag are not touched, nor are the levels around them or those with `#tiled`.
    Stripe paper, section 2.3 (microarchitectural stenciling).
    """

    name: ClassVar[str] = "stencil"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "tiled")
    tags_set: ClassVar[tuple[str, ...]] = ("stencil",)
    choice: ClassVar[type[Choice]] = StencilUse

    stencils: tuple[str, ...] = option((), "names of the stencils to use; empty: all of the target")
    offsets: bool = option(False, "use stencils whose operands differ in signedness, with a compensation")
    max_candidates: int = option(
        16384, "combinations of sizes to weigh for a map", "candidates", least=1, most=1 << 20
    )

    @property
    def by_kernel(self) -> bool:  # type: ignore[override]
        """Shifted operands get buffers of the root; else each kernel is cut for itself."""
        return not self.offsets

    def check(self, hw: HwConfig) -> None:
        for name in self.stencils:
            if hw.stencil(name) is None:
                message = f"stencil: the target '{hw.name}' has no stencil '{name}'"
                notes = did_you_mean(name, (s.name for s in hw.stencils))
                raise CompileError(Diagnostic("P120", message, None, notes))
        for stencil in self._selected(hw):
            _check_body(stencil)
            unit, least = hw.unit(stencil.unit), padded_sizes(stencil, {}, hw)
            assert unit is not None  # a config names units that it has
            needed = 0.0 if isinstance(least, str) else registers(stencil, least, hw)
            if isinstance(least, str) or not needed <= unit.registers:
                limit = (
                    f"its smallest use needs {needed:g} registers, unit '{unit.name}' has {unit.registers}"
                )
                advice = f"help: give {unit.name} {math.ceil(needed)} registers, or the stencil smaller sizes"
                notes = () if isinstance(least, str) else (advice,)
                reason = least if isinstance(least, str) else f"{limit}: {needed - unit.registers:g} too few"
                message = f"stencil: '{stencil.name}' can never be used: {reason}"
                raise CompileError(Diagnostic("P121", message, None, notes))

    def run(self, program: Program, context: PassContext) -> Program:
        hw = context.hw
        self.check(hw)
        selected = self._selected(hw)
        if not selected:
            context.remark(program.root.name, False, f"the target '{hw.name}' has no stencils")
            return program
        chooser = Chooser(selected, hw, self.max_candidates)
        run = _Run(context, chooser)
        made = map_roots(program, run.shifted) if self.offsets else program
        made = map_roots(made, lambda root: run.below(root, {}, ()))
        if self.stencils and not any(b.has_tag("stencil") for _, b in walk(made.root)):
            raise self._unused(program, context)
        return made

    def _unused(self, program: Program, context: PassContext) -> CompileError:
        """The error where the pipeline names stencils and none of them is used."""
        said = list(dict.fromkeys(f"{remark.block}: {remark.message}" for remark in context.remarks))
        reasons = [f"{text[:300]}..." if len(text) > 300 else text for text in said[:SHOWN]]
        rest = [f"and {len(said) - SHOWN} blocks more"] if len(said) > SHOWN else []
        message = f"stencil: no block of '{program.root.name}' is a use of {' or '.join(self.stencils)}"
        advice = "help: without the option 'stencils' those of the target are used where they fit"
        return CompileError(Diagnostic("P122", message, None, (*reasons, *rest, advice)))

    def _selected(self, hw: HwConfig) -> tuple[Shape, ...]:
        return tuple(s for s in hw.stencils if not self.stencils or s.name in self.stencils)


def _check_body(stencil: Shape) -> None:
    """Raises CompileError P122 for functions in a body that are no scalar intrinsics."""
    nodes: list[Apply | str] = [parse_body(stencil.body).value]
    while nodes:
        node = nodes.pop()
        if isinstance(node, str):
            continue
        nodes += node.operands
        info = INTRINSICS.get(node.op)
        if info is None or info.arity != len(node.operands):
            what = f"'{node.op}' of {len(node.operands)}"
            notes = did_you_mean(node.op, INTRINSICS) if info is None else (f"it takes {info.arity}",)
            message = f"stencil: the body of '{stencil.name}' uses {what} operands, which is no intrinsic"
            raise CompileError(Diagnostic("P122", message, None, notes))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a program."""

    context: PassContext
    chooser: Chooser
    shifts: dict[str, list[str]] = field(default_factory=dict)  # operands that were shifted, by kernel

    def shifted(self, root: Block) -> Block:
        """The root with operands shifted where the cheapest stencil of a kernel asks for that."""
        at, times = 0, 0
        while at < len(root.statements):
            made = self._shifted(root, at) if times < MAX_SHIFTS else None
            # Behind a copy and a sum stands the kernel, and may need another operand shifted.
            at, times, root = (at + 1, 0, root) if made is None else (at + 2, times + 1, made)
        return root

    def _shifted(self, root: Block, at: int) -> Block | None:
        kernel = root.statements[at]
        if not isinstance(kernel, Block) or any(_is_cut(b) for _, b in walk(kernel)):
            return None
        where = f"{root.name}/{kernel.name}"
        given, done = self.context.explicit(where, StencilUse), self.shifts.setdefault(where, [])
        if given is None and not self.context.searches:
            return None
        if given is not None and len(done) == len(given.shift):
            return None
        chooser = self.chooser if given is None else self._alone(where, given.stencil)
        options = chooser.choose(kernel, views_of(root, {}), offsets=True).distinct()
        if given is not None:
            wanted = given.shift[len(done)]
            options = [o for o in options if o.found.fit.offset[:1] == (wanted,)]
        for picked in options[:ATTEMPTS]:
            fit = picked.found.fit
            if not fit.offset:
                return None
            shown = f"operand {fit.offset[0]} ({fit.buffers[fit.offset[0]]}) of '{fit.stencil.name}'"
            try:
                made = shift_operand(root, at, picked)
            except RewriteRefused as refused:
                self.context.remark(where, False, f"{shown} is not shifted: {refused.reason}")
                continue
            type_ = fit.stencil.types[fit.offset[0]]
            self.context.remark(where, True, f"{shown} is shifted to {type_}")
            done.append(fit.offset[0])
            return made
        if given is not None:
            raise self.context.refused(where, "this operand can't be shifted", "shift")
        return None

    def _alone(self, key: str, name: str) -> Chooser:
        """The chooser of the stencil that a choice names."""
        stencil = self.context.hw.stencil(name)
        if stencil is None:
            known = (s.name for s in self.context.hw.stencils)
            message = f"the target '{self.context.hw.name}' has no stencil '{name}'"
            raise self.context.refused(key, message, "stencil", *did_you_mean(name, known))
        return replace(self.chooser, stencils=(stencil,), always=True)

    def below(self, block: Block, outer: Views, path: tuple[str, ...]) -> Block:
        views, here = views_of(block, outer), (*path, block.name)
        return map_children(block, lambda child: self._visit(child, views, here))

    def _visit(self, block: Block, outer: Views, path: tuple[str, ...]) -> Block:
        if block.has_tag("stencil"):
            return block
        if block.has_tag("tiled") or any(b.has_tag("stencil") for _, b in walk(block)):
            return self.below(block, outer, path)
        where = "/".join((*path, block.name))
        key = self.context.key(where)
        given = self.context.explicit(key, StencilUse)
        if given is not None:
            made, choice, options = self._chosen(block, outer, key, given)
            self._say(where, choice, options, block, outer)
            self.context.chose(key, given)
            return self.below(made, outer, path)
        if not self.context.searches:
            return self.context.undecided_nest(where, lambda: self.below(block, outer, path))
        offered = self.chooser.choose(block, outer)
        refusals: list[str] = []
        for picked in offered.distinct()[:ATTEMPTS]:
            try:
                made, inner = self._built(block, outer, picked, None)
            except RewriteRefused as refused:
                refusals.append(refused.reason)
                continue
            self._say(where, picked, offered, block, outer)
            fit, shift = picked.found.fit, tuple(self.shifts.get(where, ()))
            use = StencilUse(fit.stencil.name, dict(fit.indexes), dict(picked.found.sizes), inner, shift)
            self.context.chose(key, use)
            return self.below(made, outer, path)
        if not refusals:
            self.context.remark(where, False, f"no stencil: {offered.reason}")
            return block
        name = offered.options[0].found.fit.stencil.name
        self.context.remark(where, False, f"'{name}' fits, but {refusals[0]}")
        return self.below(block, outer, path)

    def _chosen(
        self, block: Block, outer: Views, key: str, given: StencilUse
    ) -> tuple[Block, Option, Offered]:
        """The block cut as a choice says. Raises CompileError P009 if it can't be."""
        chooser = self._alone(key, given.stencil)
        try:
            option = chooser.given(block, outer, given.indexes, given.sizes)
            made, _ = self._built(block, outer, option, given.inner)
        except NotSo as reason:
            raise self.context.refused(key, reason.reason, reason.field) from None
        except RewriteRefused as refused:
            raise self.context.refused(key, refused.reason) from None
        return made, option, Offered([option], looked_at=1)

    def _built(
        self, block: Block, outer: Views, picked: Option, inner: InnerUse | None
    ) -> tuple[Block, InnerUse | None]:
        """The nest cut as the option says, each use checked; and how uses are made of those of another
        stencil, if they are: as `inner` says, or as costs least. Raises RewriteRefused."""
        found, hw = picked.found, self.context.hw
        stencil = found.fit.stencil
        made = cut_nest(block, picked.way, stencil, found.fit.indexes, found.sizes, hw)
        chosen: list[InnerUse] = []
        made = self._checked(made, outer, stencil, inner, chosen)
        return made, chosen[0] if chosen else None

    def _checked(
        self, block: Block, outer: Views, stencil: Shape, given: InnerUse | None, chosen: list[InnerUse]
    ) -> Block:
        """The nest with the uses of a stencil that has an inner one cut into uses of that; `chosen` gets
        how."""
        if not block.has_tag("stencil"):
            views = views_of(block, outer)
            return map_children(block, lambda child: self._checked(child, views, stencil, given, chosen))
        hw = self.context.hw
        if reason := uses(stencil, block, hw, outer):
            raise RewriteRefused(f"its cut is no use: {reason}")
        inner = hw.stencil(stencil.inner) if stencil.inner else None
        if inner is None:
            return block
        best = self._inner(block, outer, inner, given)
        chosen.append(InnerUse(dict(best.fit.indexes), dict(best.sizes)))
        split = split_leaf(block, inner, best.fit.indexes, best.sizes, hw)
        if reason := uses(stencil, split, hw, outer):
            raise RewriteRefused(f"its cut is no use: {reason}")
        views = views_of(split, outer)
        return map_children(split, lambda child: self._checked(child, views, inner, None, []))

    def _inner(self, block: Block, outer: Views, inner: Shape, given: InnerUse | None) -> Sized:
        """How a use is made of uses of another stencil. Raises RewriteRefused."""
        chooser = replace(self.chooser, stencils=(inner,), always=True)
        if given is not None:
            try:
                return chooser.given(block, outer, given.indexes, given.sizes).found
            except NotSo as reason:
                raise NotSo(reason.reason, f"inner.{reason.field}") from None
        offered = chooser.choose(block, outer)
        if not offered.options:
            raise RewriteRefused(f"a use is not made of '{inner.name}': {offered.reason}")
        return offered.options[0].found

    def _say(self, where: str, picked: Option, choice: Offered, block: Block, outer: Views) -> None:
        found, stencil = picked.found, picked.found.fit.stencil
        role = {n: s for s, n in found.fit.indexes.items()}
        sizes = " ".join(f"{role[n]}={n}:{size}" for n, size in found.sizes.items())
        summed = [leaf for leaf in leaves(block, outer) if any(r.combines for r in leaf.block.refinements)]
        points = sum(leaf.points for leaf in summed) or picked.leaf.points
        text = f"'{stencil.name}' with {sizes}: {found.uses} uses, {found.fill:.0%} full"
        if stencil.registers:
            text += f", {found.registers:g} registers"
        text += f"; {picked.leaf.points / points:.0%} of the nest's aggregated points"
        self.context.remark(
            where, True, text,
            stencil=stencil.name, chosen=_row(picked), points=points, inside=picked.leaf.points,
            unit="cycles", weighed=choice.looked_at, excluded=choice.beyond,
            candidates=[_row(o) for o in choice.options[:REPORTED]],
        )  # fmt: skip


def _is_cut(block: Block) -> bool:
    return block.has_tag("stencil") or block.has_tag("tiled")


def _row(option: Option) -> dict[str, object]:
    found = option.found
    return {
        "stencil": found.fit.stencil.name,
        "operands": dict(found.fit.buffers),
        "indexes": dict(found.fit.indexes),
        "sizes": dict(found.sizes),
        "padded": dict(found.padded),
        "uses": found.uses,
        "fill": found.fill,
        "registers": found.registers,
        "cost": found.cost,
    }
