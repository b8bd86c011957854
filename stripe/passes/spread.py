"""spread: deal the points of a block inside a tile out to elements with memories of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import msgspec

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine
from stripe.analysis.liveness import enough_text
from stripe.analysis.units import best_mover, executes, is_copy
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import (
    Block,
    Direction,
    IndexValue,
    Location,
    Program,
    Refinement,
    Special,
    Statement,
    rounds_partial_sums,
)
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice
from stripe.passes.spread_build import Dealt, Made, dealt, lifted
from stripe.rewrite import RewriteRefused
from stripe.visit import View, map_roots, views_of, walk


class Spatial(Choice, frozen=True):
    """Of a leaf block: `over`, the indexes whose points are on elements of their own, of which the last
    varies fastest in the number of the element; and for each of its operands, by name, the memory that
    every element has for it (`memories`), and the unit that brings it there, or out (`by`; where several can,
    and none is given, a transfer unit, and the fastest).
    """

    over: tuple[str, ...]
    memories: dict[str, str]
    by: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Spread(Pass):
    """Run the points of a leaf block side by side on units that have memories of their own.

    before:  block t [y:4] (in I[4*y, 0]  in W[0, 0]  out O[4*y]:add) #tiled {
               block c [x:4, s:3, k:9] (in I[x, s, k]  in W[s, k]  out O[x]:add) {...} }
    after:   block t [y:4] (in I[4*y, 0]  in W_PE  out O[4*y]:add  new I_PE (12, 9) @INPUTS[spread 0]
                            new O_PE (12) @SUMS[spread 0]) #tiled {
               block I_deal [s:3, x:4, k:9] @NET (in I[x, s, k]  out I_PE[4*s + x, k]:assign) {...}
               block c [s:3, x:4] @PE[4*s + x] (in I_PE[4*s + x, 0]  in W_PE[4*s + x, 0]  out O_PE[4*s + x]) {
                 block c_first [] (in I_PE[0, 0]  in W_PE[0, 0]  out O_PE[0]:assign) {...}     -- k = 0
                 block c [k:8] (in I_PE[0, k + 1]  in W_PE[0, k + 1]  inout O_PE[0]:add) {...} }
               block O_sum [x:4, s:3] @ADDER (in O_PE[4*s + x]  out O[x]:add) {...} }

    That is the spatial part of a mapping: what a choice names in `over` goes across the elements, reductions
    too, and the other indexes are loops in each element. Each operand has a buffer in the memory that the
    choice names for it, a part of it in each element. Inputs are dealt out by a unit that reaches that
    memory: every element gets what it uses, elements that share it get it each. This happens in
    front of the block, or, where loops around it change nothing, in front of these: then it stays in the
    elements. Where an element adds up, its first product replaces what was there. Another unit
    writes the results, and adds up those of elements that share one.

    With `over` and `memories` that is done to every leaf block that has these indexes and as many operands
    as there are memories, where it can be; a choice says it for one block. Nothing is searched: which indexes
    go across is what an array was built for.

    Where constraints limit the points of the block, an element gets the cells that its own points use, and
    works at these alone; one that has none for a result has no part in it. No point is known to be the
    first then: all are added up. What can't be told by affine constraints is refused.

    Legal because the points of a block are independent and partial results may be combined in any order.
    Blocks with several results or buffers of their own are refused.
    Stripe paper, section 2.3, "Banking and Partitioning".
    """

    name: ClassVar[str] = "spread"
    choice: ClassVar[type[Choice]] = Spatial

    unit: str = option("", "the unit, of which there are several, each with memories of its own")
    over: tuple[str, ...] = option((), "names of the indexes that go across the units, the fastest last")
    memories: tuple[str, ...] = option(
        (), "for each operand of a block, in their order, the memory that every unit has for it"
    )

    def check(self, hw: HwConfig) -> None:
        unit = hw.unit(self.unit)
        if self.unit and (unit is None or unit.count < 2 or unit.kind != "compute"):
            fitting = [u.name for u in hw.units if u.count > 1 and u.kind == "compute"]
            message = f"spread: '{hw.name}' has no several units '{self.unit}' that compute"
            raise CompileError(Diagnostic("P190", message, None, did_you_mean(self.unit, fitting)))
        if bool(self.over) != bool(self.memories):
            lacking = "memories" if self.over else "over"
            message = f"spread: 'over' and 'memories' go together; '{lacking}' is empty"
            raise CompileError(Diagnostic("P190", message))

    def run(self, program: Program, context: PassContext) -> Program:
        self.check(context.hw)
        unit = context.hw.unit(self.unit)
        if unit is None or (context.given is None and not self.over):
            reason = "no unit is named" if unit is None else "nothing says what goes across the units"
            context.remark(program.root.name, False, f"nothing is spread: {reason}")
            return program
        roots = [root for root in (program.root, program.load) if root is not None]
        run = _Run(
            self, context, unit, Names(r.name for root in roots for _, b in walk(root) for r in b.refinements)
        )
        return map_roots(program, lambda root: run.below(root, {}, root.name)[0])


class _Unfit(RewriteRefused):
    """Why a block is not spread: a clause, the part of a choice that is wrong, and what to do."""

    def __init__(self, reason: str, field: str = "", *notes: str) -> None:
        super().__init__(reason)
        self.field = field
        self.notes = notes


@dataclass(frozen=True, slots=True)
class _Run:
    options: Spread
    context: PassContext
    unit: Unit
    names: Names  # of buffers, new in all of the root

    def below(self, block: Block, outer: Mapping[str, View], path: str) -> tuple[Block, list[Dealt]]:
        """The block with what is in it spread; and what is dealt out in front of it, alike for its points."""
        views = views_of(block, outer)
        statements: list[Statement] = []
        buffers: list[Refinement] = []
        own: list[Dealt] = []
        for statement in block.statements:
            if not isinstance(statement, Block):
                statements.append(statement)
                continue
            where = f"{path}/{statement.name}"
            spread = self._spread(statement, views, where)
            if spread is None:
                made, found = self.below(statement, views, where)
                own += found
                statements += [*(deal.fill for deal in found), made]
                continue
            own += spread.inputs
            buffers.append(spread.result)
            statements += [*(deal.fill for deal in spread.inputs), spread.block, spread.summed]
        if not buffers and not own:
            same = _same(statements, block.statements)
            return block if same else replace(block, statements=tuple(statements)), []
        outside = {}
        if path.count("/") > 1:  # in front of a kernel there is no tile
            outside = {id(deal.fill): up for deal in own if (up := lifted(block, deal)) is not None}
        for deal in own:
            moved = id(deal.fill) in outside
            buffers.append(_handed(deal.buffer) if moved else deal.buffer)
        kept = tuple(s for s in statements if id(s) not in outside)
        block = replace(block, refinements=(*block.refinements, *buffers), statements=kept)
        return block, list(outside.values())

    def _spread(self, leaf: Block, views: Mapping[str, View], where: str) -> Made | None:
        """What takes the place of a leaf, with the units that serve the elements; None if it stays."""
        key = self.context.key(where)
        said = self.context.explicit(key, Spatial)
        given = said or self._wanted(leaf)
        if given is None:
            return None
        if isinstance(given, str):
            self.context.remark(where, False, f"not spread: {given}")
            return None
        if said is None and not self.context.searches:
            self.context.undecided(where)
            return None
        try:
            self._check(leaf, given)
            memories = {name: self._memory(name, memory) for name, memory in given.memories.items()}
            made = dealt(leaf, given.over, memories, self.unit.name, self.names)
            new = (*(deal.buffer for deal in made.inputs), made.result)
            self._check_room(new)
            inner = {**views, **{buffer.name: _view(buffer) for buffer in new}}
            by: dict[str, str] = {}
            inputs = tuple(
                replace(d, fill=self._served(d.fill, inner, d.buffer, d.operand, given, by))
                for d in made.inputs
            )
            (result,) = (r.name for r in leaf.refinements if r.direction.writes)
            summed = self._served(made.summed, inner, made.result, result, given, by)
        except RewriteRefused as refused:
            if said is not None:
                found = refused if isinstance(refused, _Unfit) else _Unfit(refused.reason)
                raise self.context.refused(key, found.reason, found.field, *found.notes) from None
            self.context.remark(where, False, f"not spread: {refused.reason}")
            return None
        elements = prod(leaf.ranges[name] for name in given.over)
        text = f"{', '.join(given.over)} across {elements} of {self.unit.count} {self.unit.name}"
        if summed.location is not None and not is_copy(summed):
            text += f"; {summed.location.unit} adds up"
        self.context.remark(where, True, text, elements=elements)
        self.context.chose(key, msgspec.structs.replace(given, by=by))
        return replace(made, inputs=inputs, summed=summed)

    def _wanted(self, leaf: Block) -> Spatial | str | None:
        """What the options say of a block, or why they can't be meant, as a clause; None if they are not
        about such a one."""
        over, memories, operands = self.options.over, self.options.memories, leaf.refinements
        if leaf.children or not over or not set(over) <= leaf.ranges.keys():
            return None
        if leaf.location is not None:
            return f"it runs on {leaf.location.unit} already"
        if len(operands) != len(memories):
            return f"it has {len(operands)} operands, and the options name memories for {len(memories)}"
        return Spatial(over, {r.name: m for r, m in zip(leaf.refinements, memories, strict=True)})

    def _check(self, leaf: Block, given: Spatial) -> None:
        """Raises RewriteRefused for what can't be spread so."""
        refused = _Unfit
        if leaf.location is not None:
            raise refused(f"it runs on {leaf.location.unit} already")
        results = [r for r in leaf.refinements if r.direction.writes]
        if any(isinstance(s, Block | Special | IndexValue) for s in leaf.statements):
            raise refused("it holds blocks or specials, or computes with its indexes")
        if len(results) != 1 or any(r.direction is Direction.NEW for r in leaf.refinements):
            raise refused("it has several results, or buffers of its own")
        (result,) = results
        if result.direction is Direction.INOUT:
            raise refused(f"it adds to what '{result.source}' holds already")
        for name in given.over:
            if name not in leaf.ranges:
                raise refused(f"it has no index '{name}'", "over", *did_you_mean(name, leaf.ranges))
        if len(set(given.over)) < len(given.over) or not given.over:
            raise refused("each index is named once, and one at least", "over")
        elements = prod(leaf.ranges[name] for name in given.over)
        if elements > self.unit.count:
            over = elements - self.unit.count
            shown = " * ".join(f"{leaf.ranges[name]} {name}" for name in given.over)
            reason = (
                f"{shown} are {elements} elements, of {self.unit.count} {self.unit.name}: {over} too many"
            )
            raise refused(reason, "over", "help: tile these indexes first, by 'autotile'")
        apart = {name for expr in result.access for name in expr.names}
        if not apart >= leaf.ranges.keys() and rounds_partial_sums(result.dtype, result.aggregation):
            raise refused(f"partial sums would be rounded to {result.dtype.value}")
        known = [r.name for r in leaf.refinements]
        for name in given.memories:
            if name not in known:
                raise refused(f"it has no operand '{name}'", "memories", *did_you_mean(name, known))
        for name in given.by:
            if name not in known:
                raise refused(f"it has no operand '{name}'", "by", *did_you_mean(name, known))
        for name in known:
            if name not in given.memories:
                raise refused(f"no memory is given for '{name}'", "memories")

    def _memory(self, operand: str, name: str) -> tuple[str, int]:
        """A memory of which each element has one, and how many there are."""
        hw = self.context.hw
        memory = hw.memory(name)
        own = [m.name for m in hw.memories if m.count >= self.unit.count and m.name in self.unit.reaches]
        if memory is None or name not in own:
            what = f"'{name}' is no memory of which each {self.unit.name} has one"
            notes = did_you_mean(name, own) or ((f"help: these are {', '.join(own)}",) if own else ())
            raise _Unfit(what, f"memories.{operand}", *notes)
        return name, memory.count

    def _check_room(self, buffers: Sequence[Refinement]) -> None:
        """Raises RewriteRefused if the memories of an element are too small for its parts of buffers."""
        needed: Counter[str] = Counter()
        for buffer in buffers:
            assert buffer.location is not None
            needed[buffer.location.unit] += prod(buffer.shape[1:]) * buffer.dtype.bytes
        for name, size in needed.items():
            memory = self.context.hw.memory(name)
            if memory is not None and memory.bytes is not None and size > memory.bytes:
                over = size - memory.bytes
                reason = f"a {self.unit.name} needs {size} of {memory.bytes} bytes of {name}: {over} too many"
                advice = enough_text({name: size}, self.context.hw)
                raise _Unfit(
                    reason, "", f"help: tile what stays in a {self.unit.name}, by 'autotile'; {advice}"
                )

    def _served(
        self, block: Block, views: Mapping[str, View], buffer: Refinement, operand: str, given: Spatial,
        by: dict[str, str],
    ) -> Block:  # fmt: skip
        """A block between the memories of elements and others, with the unit that executes it; `by` tells
        which of several."""
        hw, memory = self.context.hw, buffer.location.unit if buffer.location is not None else ""
        able = [
            u for u in hw.units
            if u.name != self.unit.name and memory in u.reaches and not executes(u, block, hw, views)
        ]  # fmt: skip
        wanted = given.by.get(operand, "")
        best = best_mover(u for u in able if wanted in ("", u.name))
        if best is None:
            who = f"{wanted} is no unit that" if wanted else f"no unit but {self.unit.name}"
            reason = f"{who} reaches {memory} and does what '{block.name}' does"
            note = f"help: let one reach {memory} and another memory, and do it ('operations', 'types')"
            raise _Unfit(reason, f"by.{operand}" if wanted else "memories", note)
        if len(able) > 1:
            by[operand] = best.name
        return replace(block, location=Location(best.name))


def _view(ref: Refinement) -> View:
    return View(ref.dtype, ref.shape, ref.strides or ())


def _handed(buffer: Refinement) -> Refinement:
    """The view of a buffer of the block around."""
    start = tuple(Affine() for _ in buffer.shape)
    return Refinement(Direction.IN, buffer.name, buffer.shape, buffer.dtype, buffer.name, start)


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
