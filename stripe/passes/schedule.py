"""schedule: the order of statements, what stays in near memory, and points in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.liveness import Lifetime, enough_text, timeline
from stripe.analysis.placement import memory_maps
from stripe.diag import CompileError, Diagnostic, Span
from stripe.ir import Block, Program, Special
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice, Count
from stripe.passes.schedule_near import kept_near
from stripe.passes.schedule_order import Loads, least_live, overlapping
from stripe.verify_structure import described
from stripe.visit import map_children, map_roots


class Scheduled(Choice, frozen=True):
    """Of a root: the buffers that stay in near memory, in the order in which they find room there. Of a tile
    block: how many of its points are in flight."""

    near: tuple[str, ...] = ()
    inflight: Count = 1


@dataclass(frozen=True)
class Schedule(Pass):
    """Order statements, keep what is used soon in near memory, and overlap transfers with work.

    before:  block t [k:8] (... new A_SPAD (16) @SPAD) #tiled {
               block A_load @DMA {...}
               block c @MAC {... reads A_SPAD ...} }
    after:   block t [k:8] inflight=2 (... new A_SPAD (16) @SPAD) #tiled {
               block A_load @DMA {...}
               block c @MAC {... reads A_SPAD ...} }

    In this order:
    1. The kernels of the root take the order, among those that dependences allow, in which the largest set of
       buffers that are alive is small (list scheduling); the given order stays if it is as good.
    2. A `new` buffer of the root that fits in `memory` beside all that is alive there from its producer
       to its last use moves there, and the copies of its parts go. The others stay far.
    3. In a `#tiled` block loads go ahead of work and stores go behind, as far as dependences and
       capacities allow.
    4. A `#tiled` block in which some statements transfer and others compute gets `inflight=n`: while one
       point computes, the next one's data arrive. Each of the n points has buffers of its own; they must fit.

    Legal because dependent statements keep their order, and because the points of a block are independent.
    If a memory is too small for what is alive in any case, it is an error that names the
    block. Stripe paper, section 2.3, "Scheduling".
    """

    name: ClassVar[str] = "schedule"
    tags_read: ClassVar[tuple[str, ...]] = ("tiled",)
    choice: ClassVar[type[Choice]] = Scheduled

    memory: str = option(
        "", "the memory that root buffers are kept in; empty: the nearest that transfers fill"
    )
    inflight: int = option(2, "points of a tile block in flight", "points", least=1, most=64)

    def run(self, program: Program, context: PassContext) -> Program:
        hw = context.hw
        near = hw.memory(self.memory) if self.memory else hw.nearest_explicit
        if near is None or near.kind != "explicit":
            context.remark(program.root.name, False, "the target has no memory that transfers fill")
            return program
        return map_roots(program, lambda root: self._scheduled(root, near, context))

    def _scheduled(self, given: Block, near: Memory, context: PassContext) -> Block:
        hw = context.hw
        root = ordered = least_live(given, hw, context)
        chosen = context.explicit(given.name, Scheduled)
        if chosen is not None or not context.searches:
            root, kept = kept_near(ordered, near, hw, context, chosen.near if chosen is not None else None)
            if kept:
                context.chose(given.name, Scheduled(kept))
            root = _Tiles(self.inflight, hw, context).scheduled(root)
            if all(found.fits for found in memory_maps(timeline(root), hw)):
                return root
            raise CompileError(*_too_small(root, hw))
        for keep, inflight in dict.fromkeys(((True, self.inflight), (True, 1), (False, 1))):
            tried = context.anew(context.given)
            root, kept = kept_near(ordered, near, hw, tried) if keep else (ordered, ())
            root = _Tiles(inflight, hw, tried).scheduled(root)
            if all(found.fits for found in memory_maps(timeline(root), hw)):
                context.remarks += tried.remarks
                context.taken |= tried.taken
                context.choices |= {given.name: Scheduled(kept)} if kept else {}
                context.choices |= tried.choices
                return root
            found = f"{inflight} points in flight and {'' if keep else 'no '}buffers kept near do not fit"
            context.remark(root.name, False, found)
        raise CompileError(*_too_small(root, hw))


def _too_small(root: Block, hw: HwConfig) -> list[Diagnostic]:
    """Errors about the memories that can't hold what is alive at once."""
    found = []
    for own in memory_maps(timeline(root), hw):
        if own.fits:
            continue
        alive = own.alive_at_most()
        shown = [f"{size} bytes: '{life.ref.name}' of '{life.path}'" for size, life in alive[:8]]
        height, capacity = own.packing.height, own.capacity or 0
        where, span = _busiest([life for _, life in alive])
        message = (
            f"schedule: {where} needs {height} bytes of {own.memory.name} at once; "
            f"{capacity} are available: {height - capacity} too many"
        )
        advice = enough_text({own.memory.name: height * (own.memory.banks if own.banked else 1)}, hw)
        notes = ("alive together:", *shown, f"help: smaller tiles, or another memory; {advice}")
        found.append(Diagnostic("P160", message, span, notes))
    return found


def _busiest(alive: Sequence[Lifetime]) -> tuple[str, Span | None]:
    """The statement of the innermost block during which all of these are alive, and where it is written."""
    inner = max(alive, key=lambda life: life.path.count("/"))
    block = inner.block
    number = max((life.uses[0] for life in alive if life.block is block and life.uses), default=0)
    where = f"block {inner.path}"
    if number < len(block.statements):
        statement = block.statements[number]
        return f"{where}, {described(number, statement)}", statement.span or inner.ref.span or block.span
    return where, inner.ref.span or block.span


class _Tiles:
    """Orders the statements of tiles, and puts points in flight."""

    def __init__(self, inflight: int, hw: HwConfig, context: PassContext) -> None:
        self._inflight = inflight
        self._hw = hw
        self._context = context
        self._loads = Loads(hw)

    def scheduled(self, root: Block) -> Block:
        return self._below(root, root.name, {})

    def _below(self, block: Block, path: str, taken: Mapping[str, int], inside: bool = False) -> Block:
        """The block scheduled. `taken`: the bytes of each memory that are in use around it. `inside` one of
        several units, which has its own instance of memories that have several."""
        if not inside and block.location is not None and block.location.bank is not None:
            inside, taken = True, {m: -(-size // self._loads.instances(m)) for m, size in taken.items()}
        if block.has_tag("tiled") and len(block.statements) > 1:
            block = overlapping(block, self._loads, taken, path, self._context, inside)
        alive = self._loads.own_alive(block)
        number = {id(s): at for at, s in enumerate(block.statements)}

        def below(child: Block) -> Block:
            around = alive[number[id(child)]]
            used = {m: taken.get(m, 0) + around.get(m, 0) for m in {*taken, *around}}
            return self._below(child, f"{path}/{child.name}", used, inside)

        block = map_children(block, below)
        return self._in_flight(block, path, taken, inside) if block.has_tag("tiled") else block

    def _in_flight(self, block: Block, path: str, taken: Mapping[str, int], inside: bool) -> Block:
        key = self._context.key(path)
        given = self._context.explicit(key, Scheduled)
        if given is not None:
            return self._given(block, path, key, given, taken, inside)
        wanted = min(self._inflight, block.points)
        if wanted <= block.inflight:
            return block
        transfers, works = self._kinds(block)
        if not transfers or not works:
            lacking = "none of its statements transfers" if works else "none of its statements computes"
            return self._declined(block, path, lacking)
        if not self._context.searches:
            self._context.undecided(path)
            return block
        short = ""
        for slots in range(wanted, block.inflight, -1):
            piped = replace(block, inflight=slots)
            short = self._short(piped, taken, inside)
            if not short:
                return self._piped(piped, path, key)
        return self._declined(block, path, short)

    def _given(
        self, block: Block, path: str, key: str, given: Scheduled, taken: Mapping[str, int], inside: bool
    ) -> Block:
        """The block with as many points in flight as a choice says. Raises CompileError P009 if they don't
        fit."""
        points = block.points
        if given.inflight > points:
            reason = (
                f"it has {points} points, {given.inflight} in flight are {given.inflight - points} too many"
            )
            raise self._context.refused(key, reason, "inflight")
        if given.inflight == block.inflight:
            return block
        piped = replace(block, inflight=given.inflight)
        if short := self._short(piped, taken, inside):
            raise self._context.refused(key, short, "inflight")
        return self._piped(piped, path, key)

    def _piped(self, piped: Block, path: str, key: str) -> Block:
        self._context.remark(
            path, True, f"{piped.inflight} points in flight", inflight=piped.inflight,
            bytes=self._loads.most(piped),
        )  # fmt: skip
        self._context.chose(key, Scheduled((), piped.inflight))
        return piped

    def _short(self, block: Block, taken: Mapping[str, int], inside: bool) -> str:
        for memory, size in sorted(self._loads.most(block).items()):
            held, limit = taken.get(memory, 0), self._loads.limit(memory, inside)
            if limit is not None and size + held > limit:
                return f"{block.inflight} points take {size} bytes of {memory}, and {limit - held} are free"
        return ""

    def _kinds(self, block: Block) -> tuple[bool, bool]:
        """Whether some of its statements transfer alone, and whether others do more."""
        transfers = works = False
        for statement in block.statements:
            if isinstance(statement, Block | Special):
                unit = self._hw.unit(statement.location.unit) if statement.location else None
                if unit is not None and unit.kind == "transfer":
                    transfers = True
                else:
                    works = True
        return transfers, works

    def _declined(self, block: Block, path: str, reason: str) -> Block:
        self._context.remark(path, False, f"one point at a time: {reason}")
        return block
