"""stencil-pack: lay operands out for instructions that sum groups of products in each lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import log2, prod
from typing import ClassVar

import msgspec

from hwconfigs.model import HwConfig, Unit
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.cost_conversions import conversion_cycles, converted_loads
from stripe.analysis.cost_sets import usable_bytes
from stripe.analysis.groups import in_words
from stripe.analysis.lanes import vector_width
from stripe.analysis.stencils import Fit, Matches, matches
from stripe.analysis.stencils_cost import Sized
from stripe.analysis.stencils_groups import Summing, Tiles, instructions, lane_operands, use_cycles
from stripe.analysis.work import vector_operations
from stripe.diag import CompileError, did_you_mean
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Load, Program, Refinement, Special
from stripe.names import Names
from stripe.passes.base import Pass, PassContext
from stripe.passes.choices import Choice
from stripe.passes.stencil_choice import Option
from stripe.passes.stencil_offsets import folded_behind, shift_operand
from stripe.passes.stencil_pack_build import Copy, Layout, grouped_place, packed
from stripe.passes.stencil_pack_load import follows, made_at_load_time
from stripe.rewrite import RewriteRefused
from stripe.visit import views_of

SCATTERED = 1.0  # cycles for a result that is stored away from its neighbours
TURNED = 0.25  # cycles for an element of a copy that is put in another order, in registers
ADDED_UP = 2.0  # cycles of a sum over lanes, for each time that their number halves
WOVEN = 2.0  # cycles of a vector of rows that are woven in registers, for each time that their number halves
PUT_AWAY = 170.0  # cycles for a register of results that is put away while others get another shape
SPLIT_ROWS = 0.8  # of the cycles of an instruction, where the rows of a register lie across cache lines
MAX_SHIFTS = 2  # operands of one kernel whose signedness is changed


class LaidOut(Choice, frozen=True):
    """Of a kernel: the `stencil` that its operands are laid out for, and for the `indexes` of that those of
    the kernel, without one along lanes that share a result. `shift`: operands of the stencil for which the
    operand here gets the other signedness first, in this order; without `indexes`, that is all.
    """

    stencil: str
    indexes: dict[str, str] = msgspec.field(default_factory=dict)
    shift: tuple[str, ...] = ()


@dataclass(frozen=True)
class StencilPack(Pass):
    """Lay the operands of a kernel out so that an instruction can sum groups of its products.

    before:  block c [m:40, n:64, k:50] (in A[m, k] u8  in B[k, n] i8  out C[m, n]:add i32)
    after:   block A_packed ...   A with rows of 52 elements, zeros at their ends
             block B_packed ...   B as (13, 64, 4): four rows at a time, woven
             block c [m:40, n:64, k:13, p:4] (in A_packed[m, 4*k + p]  in B_packed[k, n, p]
               out C[m, n]:add) #group=p

    The instruction is a stencil of the target with an `intrinsic`, one index along the lanes, and one of
    a fixed size (such as the four bytes of an i32) that is summed. An index that the kernel sums over
    becomes groups of that size; an operand that differs from lane to lane is copied with the groups of
    the lanes side by side, another one only if its groups are not neighbours yet or the last one is not
    full. What is read once, and not from main memory, stays as it lies, if all groups are full: code
    weaves its rows as it loads them. Where results are few, or both operands have such rows anyway, lanes
    may share a result instead: the groups of a row lie along them, and what they hold is added up in the
    end. Zeros fill groups up, and registers that hold rows where to give the last ones another shape
    takes longer. An operand that lacks only the signedness is shifted first, as by `stencil{offsets}`.
    Copies of `const` inputs are made by the load-time program. Of several ways the cheapest is taken, if
    it costs less than the kernel as it is.

    The tag tells cost models and code generation that p is no loop. Without the instruction, or the tag,
    the program runs as any other. An instruction that takes several rows and groups at a time, in registers
    that hold rows, wants the same layout: later passes see that a block with the tag is uses of it.

    Always legal: the products that are added are the same, and zeros. Acts on children of the root that
    hold no blocks and have neither of the tags. Stripe paper, section 2.3 (microarchitectural
    transposition and stenciling).
    """

    name: ClassVar[str] = "stencil-pack"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group")
    tags_set: ClassVar[tuple[str, ...]] = ("group",)
    choice: ClassVar[type[Choice]] = LaidOut

    def run(self, program: Program, context: PassContext) -> Program:
        known = instructions(context.hw)
        if not known and (context.given is None or not context.given.records):
            text = f"the target '{context.hw.name}' has no instruction that sums groups of products"
            context.remark(program.root.name, False, text)
            return program
        return _Run(program, context, known).result()


@dataclass(frozen=True, slots=True)
class _Way:
    """A use of an instruction for a kernel, what to copy for it, and its cycles."""

    made: Summing
    fit: Fit
    layout: Layout
    copies: tuple[Copy, ...]
    cycles: float


@dataclass(slots=True)
class _Turn:
    """What was done for one kernel: what it is called among choices, and the operands of a stencil for which
    its own were shifted."""

    key: str = ""
    stencil: str = ""
    shifted: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    program: Program
    context: PassContext
    known: tuple[Summing, ...]
    buffers: set[str] = field(default_factory=set)  # that this run made

    def result(self) -> Program:
        program = self.program
        root, at, turn = program.root, 0, _Turn()
        while at < len(root.statements):
            step = self._kernel(root, at, turn)
            if step is None:
                at, turn = at + 1, _Turn()
                continue
            # A copy and a sum stand in front of a kernel with a shifted operand, which is tried again.
            shifted = len(step.statements) - len(root.statements)
            done = step.statements[at + shifted] if shifted >= 0 else None
            again = not (isinstance(done, Block) and done.has_tag("group"))
            at, turn = (at + 2, turn) if again else (at + shifted + 1, _Turn())
            root = step
        if root is program.root:
            return program
        return made_at_load_time(replace(program, root=root), frozenset(self.buffers))

    def _kernel(self, root: Block, at: int, turn: _Turn) -> Block | None:
        """The root with one of its kernels laid out, or with an operand of it shifted; None if neither."""
        kernel = root.statements[at]
        if not isinstance(kernel, Block) or kernel.children or not kernel.ranges:
            return None
        special = any(isinstance(s, Special) for s in kernel.statements)
        if special or kernel.has_tag("group") or kernel.has_tag("stencil"):
            return None
        where = f"{root.name}/{kernel.name}"
        turn.key = turn.key or self.context.key(where)
        given = self.context.explicit(turn.key, LaidOut)
        wanted = {
            (DType(m.stencil.types[o]).bits, DType(m.stencil.types[o]).is_float)
            for m in self.known
            for o in m.operands
        }
        found = {(s.dtype.bits, s.dtype.is_float) for s in kernel.statements if isinstance(s, Load)}
        if given is None and not wanted & found:
            reason = "not laid out: it loads no elements of a size that an instruction sums groups of"
            self.context.remark(where, False, reason)
            return None
        if given is None and not self.context.searches:
            self.context.undecided(where)
            return None
        (leaf,) = leaves(kernel, views_of(root, {}))
        constants = follows(root, frozenset(self.buffers), alone=False)
        constants |= {r.name for r in root.refinements if r.const}
        weigher = _Weigher(root, kernel, leaf, self.context.hw, constants)
        plain = weigher.plain()
        best = self._given(weigher, given, turn) if given else self._best(weigher, plain, turn, where)
        if best is None:
            return None
        if best.fit.offset:
            return self._shifted(root, at, best, leaf, where, turn)
        made_root, names = packed(root, at, best.layout, best.copies, self.context.hw.line_bytes)
        self.buffers |= names
        choice = LaidOut(best.made.stencil.name, dict(best.fit.indexes), tuple(turn.shifted))
        self.context.chose(turn.key, choice)
        copies = ", ".join(f"'{copy.view.source}'" for copy in best.copies)
        text = f"laid out for '{best.made.stencil.name}'" + (f" with copies of {copies}" if copies else "")
        self.context.remark(
            where, True, f"{text}: {best.cycles:.4g} of {plain:.4g} cycles",
            stencil=best.made.stencil.name, cycles=best.cycles, before=plain,
        )  # fmt: skip
        return made_root

    def _best(self, weigher: _Weigher, plain: float, turn: _Turn, where: str) -> _Way | None:
        """The cheapest use of an instruction, if it costs less than the kernel as it is. Once an operand was
        shifted for a stencil, it is that one or none."""
        ways, reason, reached = list[_Way](), "", -1
        for made in self.known:
            if turn.shifted and made.stencil.name != turn.stencil:
                continue
            matched = _matched(made, weigher.leaf, len(turn.shifted) < MAX_SHIFTS)
            if matched.reached > reached:
                reached, reason = matched.reached, f"closest to '{made.stencil.name}', but {matched.reason}"
            for way in (way for fit in matched.fits for way in weigher.ways(made, fit)):
                if isinstance(way, _Way):
                    ways.append(way)
                else:
                    reached, reason = 100, f"'{made.stencil.name}' fits, but {way}"
        best = min(ways, key=lambda way: way.cycles, default=None)
        if best is not None and best.cycles < plain:
            return best
        if best is not None:
            name = best.made.stencil.name
            reason = f"'{name}' and its copies take {best.cycles:.4g} cycles, the kernel {plain:.4g}"
        self.context.remark(where, False, f"not laid out: {reason}")
        return None

    def _given(self, weigher: _Weigher, given: LaidOut, turn: _Turn) -> _Way | None:
        """The use of an instruction that a choice names, or its next shift. Raises CompileError P009."""

        def refused(reason: str, field: str, *notes: str) -> CompileError:
            return self.context.refused(turn.key, reason, field, *notes)

        name, done = given.stencil, len(turn.shifted)
        made = next((made for made in self.known if made.stencil.name == name), None)
        if made is None:
            known = [made.stencil.name for made in self.known]
            reason = f"the target has no instruction '{name}' that sums groups of products"
            raise refused(reason, "stencil", *did_you_mean(name, known))
        if not given.indexes and done == len(given.shift):
            return None
        matched = _matched(made, weigher.leaf, done < len(given.shift))
        fits = [fit for fit in matched.fits if not given.indexes or dict(fit.indexes) == given.indexes]
        if not fits:
            known = [" ".join(f"{k}={v}" for k, v in fit.indexes.items()) for fit in matched.fits]
            if known:
                reason = f"'{name}' has no such indexes here, but these: {', or '.join(dict.fromkeys(known))}"
                raise refused(reason, "indexes")
            raise refused(f"it is no use of '{name}': {matched.reason}", "stencil")
        left = given.shift[done:]
        fits = [fit for fit in fits if fit.offset[:1] == left[:1]]
        if not fits:
            raise refused(f"'{name}' does not fit with operand {left[0]} shifted" if left else
                          f"'{name}' fits only with an operand shifted", "shift")  # fmt: skip
        ways = [way for fit in fits for way in weigher.ways(made, fit)]
        found = [way for way in ways if isinstance(way, _Way)]
        if not found:
            raise refused(f"'{name}' fits, but {ways[0]}", "indexes")
        return min(found, key=lambda way: way.cycles)

    def _shifted(self, root: Block, at: int, best: _Way, leaf: Leaf, where: str, turn: _Turn) -> Block | None:
        name = best.fit.offset[0]
        shown = f"'{best.fit.buffers[name]}'"
        before = {r.name for r in root.refinements}
        try:
            made = shift_operand(root, at, Option((), leaf, Sized(best.fit, {}, {}, 0, 1.0, 0.0, None), 0))
        except RewriteRefused as refused:
            if self.context.explicit(turn.key, LaidOut) is not None:
                reason = f"{shown} is not shifted: {refused.reason}"
                raise self.context.refused(turn.key, reason, "shift") from None
            self.context.remark(where, False, f"not laid out: {shown} is not shifted: {refused.reason}")
            return None
        self.buffers |= {r.name for r in made.refinements} - before
        made = folded_behind(made, at)
        turn.stencil = best.made.stencil.name
        turn.shifted.append(name)
        self.context.chose(turn.key, LaidOut(turn.stencil, {}, tuple(turn.shifted)))
        wanted = best.made.stencil.types[name]
        self.context.remark(where, True, f"{shown} is shifted to {wanted}")
        return made


def _ends_within(tiles: Tiles, groups: int) -> bool:
    """Whether so many groups fill several registers, and the last one only in part."""
    return groups > tiles.most[tiles.step] and groups % tiles.most[tiles.step] > 0


def _matched(made: Summing, leaf: Leaf, offsets: bool) -> Matches:
    """What fits an instruction once operands are laid out for it: with results along the lanes or, for one
    on no more than vectors, with lanes that share a result."""
    found = matches(made.loose(), leaf, offsets)
    if made.tiles is not None:
        return found
    sums = matches(made.loose(across=True), leaf, offsets)
    return replace(found, fits=(*found.fits, *sums.fits))


@dataclass(frozen=True, slots=True)
class _Weigher:
    """Finds what to copy for the uses of a kernel, and what they cost."""

    root: Block
    kernel: Block
    leaf: Leaf
    hw: HwConfig
    constants: frozenset[str]  # what is known at load time

    @property
    def unit(self) -> Unit:
        return self.hw.compute_units[0]

    def plain(self) -> float:
        """Cycles of the kernel as it is, in vectors along some index."""
        width, converted = vector_width(self.kernel, self.unit.vector_bytes), converted_loads(self.kernel)
        loads = {s.result for s in self.kernel.statements if isinstance(s, Load) and s.buffer in converted}
        casts = sum(isinstance(s, Cast) and s.operand in loads for s in self.kernel.statements)
        each = vector_operations(self.leaf) - casts
        ahead = sum(conversion_cycles(self.leaf, n, t, self.unit) for n, t in converted.items())
        return self.leaf.points / width * each / self.unit.fma_per_cycle + ahead

    def ways(self, made: Summing, fit: Fit) -> Iterator[_Way | str]:
        """The uses of an instruction under a map of indexes; or why there is none, as a clause. Where it
        works on registers that hold rows, zeros may fill the last ones up as well."""
        yield (way := self._way(made, fit, 1))
        tiles = made.tiles
        if tiles is not None and isinstance(way, _Way) and _ends_within(tiles, way.layout.groups):
            yield self._way(made, fit, tiles.most[tiles.step])

    def _way(self, made: Summing, fit: Fit, together: int) -> _Way | str:
        sums = made.shares(fit.stencil)
        group, lane = fit.indexes.get(made.group), fit.indexes.get(made.lane, "")
        if group is None or not (lane or sums):
            return f"no index can be its {made.group if group is None else made.lane}"
        if any(group in expr.names for expr in self.leaf.constraints):
            return f"a constraint limits {group}"
        names = Names(i.name for i in self.kernel.indexes)
        layout = Layout(group, names.fresh("p"), self.leaf.ranges[group], made.size, together)
        copies: list[Copy] = []
        woven = "" if sums else self._woven(made, fit, layout, lane)
        for name in made.operands:
            copy = None if name == woven else self._copy(made, fit, name, layout, lane)
            if isinstance(copy, str):
                return copy
            copies += [] if copy is None else [copy]
        target = fit.operands[made.target]
        indexes, ranges = dict(fit.indexes), {**self.leaf.ranges, group: layout.groups}
        if made.tiles is not None:
            # The groups are its steps; of what may be its rows, the longest are taken.
            indexes[made.tiles.step] = indexes.pop(made.group)
            differs = next(o for o in made.operands if made.lane in made.stencil.operands[o])
            free = [n for n in target.indexes if n in ranges and n not in fit.operands[differs].indexes]
            if free:
                indexes[made.tiles.row] = max(free, key=lambda n: ranges[n])
        width = self.unit.vector_bytes // target.dtype.bytes
        results = prod(self.leaf.ranges[n] for n in target.indexes)
        if sums:
            cycles = use_cycles(made, {made.lane: group}, ranges, width) + ADDED_UP * log2(width) * results
        else:
            cycles = use_cycles(made, indexes, ranges, width)
            cycles += SCATTERED * results if target.stride(lane) != 1 else 0.0
        if made.tiles is not None and _ends_within(made.tiles, layout.groups):
            rows, lanes = (made.tiles.most[n] for n in (made.tiles.row, made.lane))
            cycles += SPLIT_ROWS * cycles + PUT_AWAY * results / (rows * lanes)
        if woven:
            vectors = self.leaf.points * fit.operands[woven].dtype.bytes / self.unit.vector_bytes
            cycles += vectors * WOVEN * log2(made.size)
        return _Way(made, fit, layout, tuple(copies), cycles + sum(self._moving(fit, copies)))

    def _woven(self, made: Summing, fit: Fit, layout: Layout, lane: str) -> str:
        """The operand whose rows are woven in registers as they are loaded; else empty. That is for what is
        read once, and not from main memory, which is no faster for it: what is read again is copied."""
        differs = next((o for o, lanes in lane_operands(made, made.stencil).items() if lanes), "")
        if made.tiles is not None or not layout.is_full or not differs or differs in fit.offset:
            return ""
        operand = fit.operands[differs]
        source = self.root.refinement(self.kernel.refinement(fit.buffers[differs]).source)
        held = [expr for expr in operand.access if layout.index in expr.names or lane in expr.names]
        if operand.stride(lane) != 1 or len(held) != 2 or source.name in self.constants:
            return ""
        once = self.leaf.points == prod(self.leaf.ranges[name] for name in operand.indexes)
        caches = [usable_bytes(memory) or 0 for memory in self.hw.caches if memory.bytes]
        near = source.bytes <= max(caches, default=0)
        return differs if once and near else ""

    def _copy(self, made: Summing, fit: Fit, name: str, layout: Layout, lane: str) -> Copy | str | None:
        """The copy that an operand needs, None if it needs none, or why there is none."""
        view = self.kernel.refinement(fit.buffers[name])
        operand = fit.operands[name]
        differs = made.lane in fit.stencil.operands[name]
        if not differs and layout.is_full:
            access = tuple(grouped_place(expr, layout) for expr in operand.access)
            if in_words(replace(operand, access=access), layout.inner, layout.size) is not None:
                return None
        across = view.access
        for index in (layout.index, lane) if differs else (layout.index,):
            held = [expr for expr in across if expr.coefficient(index)]
            if len(held) != 1 or held[0].names != (index,) or held[0].coefficient(index) != 1:
                return f"a dimension of '{view.source}' is not {index} alone"
            if held[0].const:
                return f"'{view.source}' does not start where {index} does"
        return Copy(view, layout.index, lane if differs else "")

    def _moving(self, fit: Fit, copies: list[Copy]) -> Iterator[float]:
        """Cycles of each copy and shift that is made at run time."""
        width = vector_width(self.kernel, self.unit.vector_bytes)
        for copy in copies:
            source = self.root.refinement(copy.view.source)
            if source.name not in self.constants:
                summed = copy.view.access[-1].coefficient(copy.index) and (source.strides or (0,))[-1] == 1
                kept = summed and not copy.lane
                yield prod(source.shape) * (self._streamed(source) if kept else TURNED)
        for name in fit.offset:
            for other, operand in fit.operands.items():
                source = self.root.refinement(self.kernel.refinement(fit.buffers[other]).source)
                if operand.direction.writes or source.name in self.constants:
                    continue
                # What is shifted is copied; the others are converted, multiplied and summed.
                yield prod(source.shape) * (self._streamed(source) if other == name else 3 / width)

    def _streamed(self, source: Refinement) -> float:
        """Cycles for each element that is copied in whole vectors."""
        return 2 * source.dtype.bytes / self.unit.vector_bytes
