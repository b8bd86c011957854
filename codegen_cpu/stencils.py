"""Blocks that are uses of an instruction which sums groups of products in each lane.

A leaf block with the tag `#group=p` whose structure is that of a stencil with an intrinsic
(stripe.analysis.stencils_groups) takes p in one go: each operand is loaded as words that hold a
group each, one word for all lanes or one for each, and the intrinsic adds to the accumulator.
Where the structure is another one, or the target lacks the instruction, code is ordinary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from codegen_cpu.access import Accesses, Lanes, Place
from codegen_cpu.layout import View
from codegen_cpu.ll import Function, Type, Value, zero
from codegen_cpu.scalars import register_type
from codegen_cpu.selection import intrinsic_fault
from codegen_cpu.tiles import TileUse, tile_use
from codegen_cpu.weaving import Rows, woven
from stripe.analysis.bounds import Leaf, Operand
from stripe.analysis.stencils_groups import Summing, lane_operands, use_of
from stripe.diag import CompileError, Diagnostic
from stripe.dtypes import DType
from stripe.ir import Aggregation, Block, Direction, Load, Store

_ELEMENTS = {DType.F16: "half", DType.BF16: "bfloat", DType.F32: "float", DType.F64: "double"}


class HasInstructions(Protocol):
    """What is asked of a target: the instructions that it has, and what LLVM is told of it."""

    @property
    def instructions(self) -> tuple[Summing, ...]: ...

    @property
    def vector_bytes(self) -> int: ...

    @property
    def triple(self) -> str: ...

    @property
    def baseline(self) -> str: ...

    @property
    def features(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Use:
    """A leaf block as uses of an instruction: `group` is the index that it takes in one go, `target` the
    view that it adds to, `width` its lanes; `operands` are the other views, in the order of the
    intrinsic's arguments, each with whether it differs from lane to lane. `woven` has those whose groups lie
    across rows, with the distance from row to row. `sums`: all lanes add to one result."""

    made: Summing
    group: str
    target: str
    dtype: DType
    width: int
    operands: tuple[tuple[str, bool], ...]
    woven: Mapping[str, int]
    sums: bool


def find_use(
    block: Block, views: Mapping[str, View], lane: str, target: HasInstructions, alone: bool
) -> Use | TileUse | None:
    """The use that a leaf block is, with `lane` along the lanes of vectors; None if it is none. `alone`: no
    constraint may cut off some of its points."""
    groups = block.tag_values("group")
    if not lane or len(groups) != 1 or not target.instructions or groups[0] not in block.ranges:
        return None
    leaf = Leaf(block, block.ranges, _operands(block, views), tuple(c.expr for c in block.constraints))
    result = next(view for view in leaf.operands if view.direction.writes)
    lanes = target.vector_bytes // result.dtype.bytes
    found = use_of(target.instructions, leaf, lane, groups[0], lanes, alone)
    if found is None:
        return None
    made, fit = found
    name = fit.buffers[made.target]
    how, dtype = views[name].how, views[name].buffer.dtype
    if how is not Aggregation.ADD or dtype is not fit.operands[made.target].dtype:
        return None
    if made.tiles is not None:
        blocks = tile_use(made, fit, leaf, target.features)
        return blocks or find_use(block, views, lane, target, alone=False)
    operands = tuple((fit.buffers[o], differs) for o, differs in lane_operands(made, fit.stencil).items())
    rows = {fit.buffers[o]: fit.operands[o].stride(groups[0]) for o in made.operands}
    woven = {buffer: step for buffer, step in rows.items() if step != 1}
    width, sums = target.vector_bytes // dtype.bytes, made.shares(fit.stencil)
    use = Use(made, groups[0], name, dtype, width, operands, woven, sums)
    _check(use, target)
    return use


def _check(use: Use, target: HasInstructions) -> None:
    """Raises CompileError C006 if the intrinsic is none that LLVM has for this use on this target."""
    made, width = use.made, use.width
    types = (register_type(use.dtype, width), *(_argument(made, name, width) for name in made.operands))
    stencil = made.stencil
    reason = intrinsic_fault(
        stencil.intrinsic, tuple(map(str, types)), target.triple, target.baseline, target.features
    )
    if reason:
        text = f"stencil '{stencil.name}' names the intrinsic '{stencil.intrinsic}', {reason}"
        notes = (
            f"in the config: the entry of '$.stencils' named '{stencil.name}', 'intrinsic' and 'features'",
            "help: it is to take the result's old value and then the operands, as vectors of their elements",
        )
        raise CompileError(Diagnostic("C006", text, notes=notes))


def _argument(made: Summing, operand: str, width: int) -> Type:
    """What the intrinsic takes for an operand: a group for each lane."""
    dtype = DType(made.stencil.types[operand])
    return Type(_ELEMENTS.get(dtype, f"i{8 * dtype.bytes}"), width * made.size)


def _operands(block: Block, views: Mapping[str, View]) -> tuple[Operand, ...]:
    touched = dict.fromkeys(
        (s.buffer, isinstance(s, Store)) for s in block.statements if isinstance(s, Load | Store)
    )
    found = []
    for name, stores in touched:
        ref, view = block.refinement(name), views[name]
        found.append(
            Operand(
                name, Direction.OUT if stores else Direction.IN, ref.dtype, ref.access,
                (1,) * len(ref.access), view.strides, ref.aggregation if stores else None,
            )
        )  # fmt: skip
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Step:
    """The instruction at one point of the code, on words that are loaded."""

    f: Function
    use: Use
    words: tuple[Value, ...]

    @staticmethod
    def at(
        f: Function, accesses: Accesses, use: Use, places: Mapping[str, Place], lanes: Lanes, beside: range
    ) -> Step:
        """`places`: those of the operands at this point. `beside`: the lanes before and behind those of the
        point that are written out with them."""
        loaded = []
        for name, _ in use.operands:
            if name in use.woven:
                rows = Rows(places[name], use.woven[name], use.made.size, beside)
                loaded.append(woven(f, accesses, rows, lanes, use.width))
            else:
                loaded.append(accesses.load_words(places[name], lanes, use.made.size))
        return Step(f, use, tuple(loaded))

    def onto(self, old: Value) -> Value:
        """The old value of the accumulator with what the instruction adds."""
        f, use = self.f, self.use
        arguments = [self._filled(old)]
        for name, word in zip(use.made.operands, self.words, strict=True):
            type_ = _argument(use.made, name, use.width)
            filled = self._with_zeros(word) if use.sums else self._filled(word)
            arguments.append(f.pure(type_, f"bitcast {filled} to {type_}"))
        result = f.call(use.made.stencil.intrinsic, register_type(use.dtype, use.width), arguments)
        lanes = old.type.lanes
        if not lanes:
            return f.extract(result, 0)
        return result if lanes == use.width else f.shuffle(result, result, range(lanes))

    def _filled(self, value: Value) -> Value:
        """A value in all lanes of the instruction; lanes beyond those of a shorter vector do not count."""
        lanes, width = value.type.lanes, self.use.width
        if not lanes:
            return self.f.splat(value, width)
        if lanes == width:
            return value
        return self.f.shuffle(value, value, [lane if lane < lanes else -1 for lane in range(width)])

    def _with_zeros(self, word: Value) -> Value:
        """Words in all lanes of the instruction; those beyond the ones there are add nothing to the sum."""
        lanes, width = word.type.lanes, self.use.width
        if not lanes:
            return self.f.insert(zero(word.type.times(width)), word, 0)
        if lanes == width:
            return word
        return self.f.shuffle(word, zero(word.type), [min(lane, lanes) for lane in range(width)])
