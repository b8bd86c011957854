"""transfer: bring what statements touch to where their units reach it, and results back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.footprint import Box, live_box
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import (
    Block,
    Direction,
    Location,
    Program,
    Refinement,
    Special,
    Statement,
)
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice
from stripe.passes.transfer_chosen import Past
from stripe.passes.transfer_copies import Copies, Stage
from stripe.passes.transfer_settled import settled
from stripe.passes.transfer_units import Scope, Units, chain, mover, places_in
from stripe.rewrite import drop_unused_passed
from stripe.rewrite_copies import hand_down
from stripe.visit import buffers_used, map_children, map_roots, views_of


@dataclass(frozen=True)
class Transfer(Pass):
    """Make every movement between memories explicit: copies to near memory, and back.

    before:  block t [mt:4] (in A[16*mt] (16)  out R[16*mt]:assign (16)) #tiled {
               block r [m:16] (in A[m]  out R[m]:assign) {...} }
    after:   block t [mt:4] (in A[16*mt] (16)  out R[16*mt]:assign (16)
                             new A_SPAD (16) @SPAD  new R_SPAD (16) @SPAD) #tiled {
               block A_load [d0:16] (in A[d0]  out A_SPAD[d0]:assign) @DMA {...}
               block r [m:16] (in A_SPAD[m]  out R_SPAD[m]:assign) @VPU {...}
               block R_store [d0:16] (in R_SPAD[d0]  out R[d0]:assign) @DMA {...} }

    First every statement gets a unit: of those that are able to execute it, and reach what it touches once
    that is in `memory`, the one with the best rate. A copy out of near memory, or into it, goes straight
    where a transfer unit reaches both ends. Buffers without a location get one: those of the root the
    farthest memory, all others `memory`.

    Then each buffer that the units of a statement don't reach gets a copy of the box that the statement
    touches, in the innermost `#tiled` block around the statement, or in the root if there is none. The copy
    is in `memory`, or where a stencil wants it. Exactly the cells that the statement reads are loaded in
    front of it, and exactly those that it writes are stored behind it. Statements of one `#tiled` block that
    touch the same box share a copy. What all points of a `#tiled` block read alike is copied once, in front
    of the block.

    With several levels of explicit memory there is one step for each, farthest first: each works at the
    tiles that fit in its memory (`#fits`).

    Legal because a copy holds the elements themselves, and no element is touched by another statement
    between copy and use. Where partial results of several tiles would be combined in far memory by a
    copy, which can't compute, it is an error: let the reduction stay in one tile.
    Stripe paper, section 2.3, "Scheduling"; section 3.2 for locations.
    """

    name: ClassVar[str] = "transfer"
    tags_read: ClassVar[tuple[str, ...]] = ("fits", "stencil", "tiled")
    choice: ClassVar[type[Choice]] = Past

    memory: str = option("", "the memory that units work on; empty: the target's nearest explicit one")
    unit: str = option("", "the transfer unit that copies; empty: the best that reaches both memories")

    def check(self, hw: HwConfig) -> None:
        memory = hw.memory(self.memory)
        if memory is not None and memory.kind == "cached":
            message = f"transfer: {memory.name} is filled by hardware, not by transfers"
            raise CompileError(Diagnostic("P151", message))

    def run(self, program: Program, context: PassContext) -> Program:
        near = self._near(context.hw)
        if near is None or context.hw.home is None:
            context.remark(program.root.name, False, "the target has no memory that transfers fill")
            return program
        run = _Run(self, context, near, Units(context.hw, near, context), Copies(self.unit, context))
        return map_roots(program, run.program)

    def _near(self, hw: HwConfig) -> Memory | None:
        if self.memory:
            return hw.memory(self.memory)
        return hw.nearest_explicit if hw.units else None  # without units nobody copies


@dataclass(slots=True)
class _Run:
    options: Transfer
    context: PassContext
    near: Memory
    units: Units
    copies: Copies
    past: dict[str, frozenset[str]] = field(default_factory=dict)  # by path, what goes around the memory
    _depths: dict[int, tuple[Block, int]] = field(default_factory=dict)
    _fits: dict[int, tuple[Block, frozenset[str]]] = field(default_factory=dict)

    @property
    def hw(self) -> HwConfig:
        return self.context.hw

    def program(self, root: Block) -> Block:
        home = self.hw.home
        assert home is not None
        placed = _located(root, home.name, self.near.name, True)
        places = places_in(placed, {}, home.name)
        views = views_of(placed, {})
        placed = self.units.assigned(Scope((placed,), {}, views, places))
        return self._numbered(self.below(Scope((placed,), {}, views, places)), None)

    def _numbered(self, block: Block, number: Affine | None, copies: int = 1) -> Block:
        """The block with the number of its copy for each transfer unit that has as many copies as the units
        it serves. `number`: that of the unit around, one of `copies`, over the block's indexes."""
        location = block.location
        if location is not None and location.bank is not None:
            unit = self.hw.unit(location.unit)
            number, copies = location.bank, unit.count if unit is not None else 1
        elif location is not None and number is not None:
            unit = self.hw.unit(location.unit)
            if unit is not None and unit.kind == "transfer" and unit.count >= copies > 1:
                block = replace(block, location=replace(location, bank=number))

        def below(child: Block) -> Block:
            if number is None:
                return self._numbered(child, None)
            handed, inner = hand_down(child, {"": number}, "unit")
            made = self._numbered(handed, inner[""], copies)
            return child if made is handed else drop_unused_passed(made)

        return map_children(block, below)

    def _depth(self, block: Block) -> int:
        """How many `#tiled` blocks of statements are nested in the block, itself included."""
        if id(block) not in self._depths:
            below = max((self._depth(c) for c in block.children), default=0)
            own = block.has_tag("tiled") and _has_statements(block)
            self._depths[id(block)] = block, below + own
        return self._depths[id(block)][1]

    def _divides(self, block: Block) -> bool:
        """Whether units in the block work each with an instance of the memory of its own."""
        if self.near.count == 1:
            return False
        own = block.location is not None and block.location.bank is not None and bool(block.children)
        return own or any(map(self._divides, block.children))

    def below(self, scope: Scope) -> Block:
        """The block with its statements, and those of the blocks in it, served."""
        block = scope.block
        deeper = self._deeper(scope)
        served = settled(scope, deeper, self.near.name)
        if served is not block:
            scope = replace(scope, nest=(*scope.nest[:-1], served))
            block = served
        key = self.context.key(scope.path)
        stages = self._stages(scope, deeper, key)
        if stages:
            block = self.copies.staged(scope, stages, key)
            scope = replace(
                scope,
                nest=(*scope.nest[:-1], block),
                views=views_of(block, scope.outer),
                places={**scope.places, **_places(_added(scope.block, block))},
            )
        return map_children(block, lambda child: self.below(scope.enter(child, self.near.name)))

    def _deeper(self, scope: Scope) -> list[bool]:
        """Of each statement, whether copies go into it."""
        return [
            isinstance(s, Block) and (self._holds_tiles(s, scope.nest) or self._divides(s))
            for s in scope.block.statements
        ]

    def _holds_tiles(self, block: Block, around: Sequence[Block]) -> bool:
        """Whether copies go into a block: it is, or holds, a tile that fits in the memory, or in one behind
        it. Where nothing says in what the tiles fit, their number does: one level for each memory."""
        fitting = self._fitting(block)
        if fitting:
            return not fitting.isdisjoint(chain(self.hw, self.near.name))
        return not any(b.has_tag("fits") for b in around) and self._depth(block) > self._level

    def _fitting(self, block: Block) -> frozenset[str]:
        """The memories that tiles in a block fit in, itself included."""
        if id(block) not in self._fits:
            found = frozenset(block.tag_values("fits")) if _has_statements(block) else frozenset()
            self._fits[id(block)] = block, found.union(*map(self._fitting, block.children))
        return self._fits[id(block)][1]

    @property
    def _level(self) -> int:
        """How many explicit memories lie between `memory` and the units."""
        nearer = [
            chain(self.hw, m.name) for m in self.hw.memories if m.kind == "explicit" and m is not self.near
        ]
        return max((c.index(self.near.name) for c in nearer if self.near.name in c), default=0)

    # -- what is to be copied ----------------------------------------------------------------

    def _stages(self, scope: Scope, deeper: Sequence[bool], key: str) -> list[Stage]:
        block = scope.block
        given = self.context.explicit(key, Past)
        around = given.around if given is not None else ()
        past = self._past(scope, around)
        wanted: dict[tuple[str, str], list[int]] = {}
        for number, statement in enumerate(block.statements):
            allowed = self.units.allowed(statement, scope)
            for buffer in dict.fromkeys(name for name, _ in buffers_used(statement)):
                if buffer not in allowed:
                    continue
                if deeper[number] and not (
                    self._combines(block, statement, buffer) or self._repeats(scope, statement, buffer)
                ):
                    continue
                memory = self._copied_to(buffer, allowed[buffer], statement, scope)
                if memory:
                    wanted.setdefault((buffer, memory), []).append(number)
        known = [ref.name for ref in block.refinements]
        for name in around:
            if name not in known:
                notes = did_you_mean(name, known)
                reason = f"it has no buffer '{name}'"
                raise self.context.refused(key, reason, "around", *notes)
        if around:
            self.context.chose_also(key, Past, around=around)
        wanted = {pair: users for pair, users in wanted.items() if pair[0] not in past}
        stages: list[Stage] = []
        for (buffer, memory), users in wanted.items():
            boxes = [self._box(scope, [n], buffer) for n in users]
            if self._may_share(scope, buffer, users, boxes):
                stages.append(Stage(buffer, memory, boxes[0], tuple(users)))
            else:
                stages += [Stage(buffer, memory, box, (n,)) for n, box in zip(users, boxes, strict=True)]
        return stages

    def _past(self, scope: Scope, around: Sequence[str]) -> frozenset[str]:
        """The buffers of a block that go around the memory, there or as those of a block around it."""
        outside = self.past.get("/".join(b.name for b in scope.nest[:-1]), frozenset())
        views = (r for r in scope.block.refinements if r.direction is not Direction.NEW)
        found = frozenset(around) | {r.name for r in views if r.source in outside}
        if found:
            self.past[scope.path] = found
        return found

    def _combines(self, block: Block, statement: Statement, buffer: str) -> bool:
        """Whether the tiles in a statement combine their results in a buffer, which is complete behind it."""
        if not isinstance(statement, Block) or block.refinement(buffer).combines:
            return False
        ref = block.refinement(buffer)
        capacity = self.near.bytes
        if capacity is not None and ref.bytes > capacity:
            return False
        views = [r for r in statement.refinements if r.source == buffer]
        return len(views) == 1 and views[0].combines and views[0].direction is Direction.OUT

    def _repeats(self, scope: Scope, statement: Statement, buffer: str) -> bool:
        """Whether the copies in the tiles of a statement would all be the same, and it has several."""
        several = isinstance(statement, Block) and statement.points > 1
        return several and self._alike(scope, statement, buffer)

    def _alike(self, scope: Scope, statement: Statement, buffer: str) -> bool:
        """Whether all points of a block read the same of a buffer, no more than copies in one would hold."""
        if not isinstance(statement, Block) or self._divides(statement):
            return False
        views = [r for r in statement.refinements if r.source == buffer]
        if len(views) != 1 or views[0].direction is not Direction.IN:
            return False
        own, name = set(statement.ranges), views[0].name
        if any(own & set(expr.names) for expr in views[0].access):
            return False
        inner = scope.enter(statement, self.near.name)
        deeper = self._deeper(inner)
        users = [
            n for n, s in enumerate(statement.statements) if any(used == name for used, _ in buffers_used(s))
        ]
        if any(deeper[n] and not self._alike(inner, statement.statements[n], name) for n in users):
            return False
        boxes = [self._box(inner, [n], name) for n in users]
        if any(own & set(expr.names) for box in boxes for expr in box.origin):
            return False
        if len(users) == 1:
            return True
        return prod(self._box(inner, users, name).shape) <= sum(prod(box.shape) for box in boxes)

    def _copied_to(self, buffer: str, memories: frozenset[str], statement: Statement, scope: Scope) -> str:
        """The memory in which a statement needs a copy of a buffer; empty if it needs none."""
        place = scope.places[buffer]
        if place in memories:
            return ""
        if self.near.name in memories:
            return self.near.name
        onward = [m for m in sorted(memories) if self.near.name in chain(self.hw, m)]
        if onward:  # a later step brings it farther on
            far = self.near.name != place and place in chain(self.hw, self.near.name)
            return self.near.name if far else ""
        beside = [m for m in sorted(memories) if mover(self.hw, place, m, self.options.unit) is not None]
        if beside:  # what a stencil wants in a memory of its own
            return beside[0]
        here = f"{scope.path}/{getattr(statement, 'name', '')}"
        shown = ", ".join(sorted(memories)) or "no memory that all its units reach"
        raise CompileError(
            Diagnostic(
                "P152",
                f"transfer: '{here}' works on '{buffer}' in {shown}; it lies in {place}, and "
                f"{self.near.name} is not on the way",
                statement.span,
                self._way(scope, buffer, place, sorted(memories)),
            )
        )

    def _way(self, scope: Scope, buffer: str, place: str, memories: Sequence[str]) -> tuple[str, ...]:
        """What to do for a buffer that nothing brings to where a statement works on it."""
        if scope.block.refinement(buffer).direction.writes:
            return ("help: `localize{accumulators=...}` puts results of reductions into accumulators",)
        for unit in sorted(self.hw.units, key=lambda unit: len(unit.reaches)):
            reached = [name for name in memories if name in unit.reaches]
            if unit.kind == "transfer" and place in unit.reaches and memories:
                return (f"help: with {memories[0]} in 'reaches' of {unit.name} it can",)
            if unit.kind == "transfer" and reached:
                return (f"help: with {place} in 'reaches' of {unit.name} it can",)
        shown = " or ".join(memories) or self.near.name
        return (f"help: add a unit of kind 'transfer' that reaches {place} and {shown}",)

    def _box(self, scope: Scope, users: Sequence[int], buffer: str) -> Box:
        block = scope.block
        found = [a for n in users for a in self.copies.accesses(block, n, buffer)]
        whole = Box(tuple(Affine() for _ in scope.views[buffer].shape), scope.views[buffer].shape)
        return live_box(block, found) or whole

    def _may_share(self, scope: Scope, buffer: str, users: Sequence[int], boxes: Sequence[Box]) -> bool:
        """Whether one copy serves all users: in a tile they touch the same box, and nothing else does."""
        block = scope.block
        if len(users) < 2 or len(scope.nest) == 1 or any(box != boxes[0] for box in boxes):
            return False
        ref = block.refinement(buffer)
        using = {n for n, s in enumerate(block.statements) if any(b == buffer for b, _ in buffers_used(s))}
        twins = [r for r in block.refinements if r is not ref and r.source == ref.source and r.source]
        return using == set(users) and not (twins and any(r.direction.writes for r in (ref, *twins)))


def _has_statements(block: Block) -> bool:
    """Whether there are statements in the block to put copies beside."""
    return any(isinstance(s, Block | Special) for s in block.statements)


def _added(before: Block, after: Block) -> tuple[Refinement, ...]:
    return after.refinements[len(before.refinements) :]


def _places(buffers: Sequence[Refinement]) -> dict[str, str]:
    return {r.name: r.location.unit for r in buffers if r.location is not None}


def _located(block: Block, own: str, below: str, root: bool) -> Block:
    """Locations for allocations that have none: `own` in this block, `below` in those below it."""
    block = map_children(block, lambda child: _located(child, below, below, False))

    def lacks(ref: Refinement) -> bool:
        return ref.location is None and (root or ref.direction is Direction.NEW)

    if not any(map(lacks, block.refinements)):
        return block
    return replace(
        block,
        refinements=tuple(replace(r, location=Location(own)) if lacks(r) else r for r in block.refinements),
    )
