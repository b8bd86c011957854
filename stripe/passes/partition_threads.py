"""Which nests of a program are dealt out to threads: units that share their memories, and have to be woken.

They are woken once for a program, and then wait for what it has for them next. So a nest is worth
dealing out where that saves more than it takes to hand it over, and a program where all its
nests together save more than it takes to wake the threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hwconfigs.model import Unit
from stripe.ir import Block, Special
from stripe.passes.base import PassContext
from stripe.passes.partition_chosen import NAME, Share, given_cut
from stripe.passes.partition_nest import Cut, cut_nest, cuts, in_turn, nest_cycles
from stripe.visit import View, views_of

MAX_TRIED = 8  # of the best cuts, that are asked whether their parts write different elements
MAX_TURNS = 16  # parts of a unit's part
_WHOLE = "all its points write to the same elements, or it has one"


@dataclass(frozen=True, slots=True)
class _Nest:
    """A nest that may be dealt out, `made` so; or `made` is None, and the reason says why not."""

    key: str
    cycles: float
    made: Block | None = None
    cut: Cut | None = None
    turns: int = 1
    reason: str = _WHOLE
    given: bool = False

    def saved(self, unit: Unit) -> float:
        """Cycles, less those that it takes to hand it over."""
        return 0.0 if self.cut is None else self.cycles * (1 - self.cut.share) - unit.handover_cycles


def alone(unit: Unit, context: PassContext) -> str:
    return f"{context.hw.name} has one {unit.name}: code runs on one thread"


def dealt(root: Block, unit: Unit, context: PassContext) -> Block:
    """The root with its nests in parts for threads, where that pays; else as they are."""
    nests = dict(_nests(root, root.name, views_of(root, {}), unit, context))
    saved = sum(max(0.0, nest.saved(unit)) for nest in nests.values())
    pays = saved > unit.startup_cycles

    def run(block: Block, path: str) -> Block:
        statements = []
        for statement in block.statements:
            within = f"{path}/{statement.name}" if isinstance(statement, Block | Special) else path
            if isinstance(statement, Special):
                context.remark(NAME, within, False, "a special runs whole")
            if not isinstance(statement, Block):
                statements.append(statement)
                continue
            nest = nests.get(id(statement))
            if nest is not None:
                statements.append(_decided(nest, statement, within, pays, saved, unit, context))
            elif statement.location is not None:
                context.remark(NAME, within, False, f"it runs on {statement.location.unit} already")
                statements.append(statement)
            else:
                statements.append(run(statement, within))
        same = all(a is b for a, b in zip(statements, block.statements, strict=True))
        return block if same else replace(block, statements=tuple(statements))

    return run(root, root.name)


def _decided(
    nest: _Nest, block: Block, path: str, pays: bool, saved: float, unit: Unit, context: PassContext
) -> Block:
    """The nest as it is to be, with a remark that says why."""
    cut, reason = nest.cut, nest.reason
    if cut is not None and not nest.given:
        takes = f"it takes about {nest.cycles:.0f} cycles, and "
        if nest.saved(unit) <= 0:
            cut, reason = None, f"{takes}to hand it over takes {unit.handover_cycles:.0f}"
        elif not pays:
            start = f"to start {unit.count} {unit.name} takes {unit.startup_cycles:.0f}"
            cut, reason = None, f"{takes}{start}; all parts together would save {saved:.0f}"
    if cut is None or nest.made is None:
        if context.searches:
            context.remark(NAME, path, False, f"not cut: {reason}", cycles=nest.cycles)
        return block
    pieces = ", ".join(f"{name} in pieces of {size}" for name, size in cut.sizes)
    turns = f", each taken in {nest.turns}" if nest.turns > 1 else ""
    after = nest.cycles * cut.share + unit.handover_cycles
    context.remark(
        NAME, path, True,
        f"{cut.parts} parts for {unit.count} {unit.name}: {pieces}{turns}; the largest has {cut.share:.1%} "
        f"of the points; about {nest.cycles:.0f} cycles become {after:.0f}",
        parts=cut.parts, sizes=dict(cut.sizes), level=cut.level, largest=cut.share, cycles=nest.cycles,
    )  # fmt: skip
    context.chose(nest.key, Share(dict(cut.sizes), cut.level))
    return nest.made


def _nests(
    parent: Block, path: str, views: Mapping[str, View], unit: Unit, context: PassContext
) -> Iterator[tuple[int, _Nest]]:
    """The nests of a block, by identity. Of a block with one point these are what it consists of."""
    for block in parent.children:
        if block.location is not None:
            continue
        within = f"{path}/{block.name}"
        if not block.ranges and not block.constraints and block.inflight == 1 and len(block.children) > 1:
            yield from _nests(block, within, views_of(block, views), unit, context)
        else:
            yield id(block), _nest(parent, block, within, views, unit, context)


def _nest(
    parent: Block, block: Block, path: str, outer: Mapping[str, View], unit: Unit, context: PassContext
) -> _Nest:
    """A nest, cut in the best way that gives each unit elements of its own."""
    key = context.key(path)
    given = context.explicit(key, Share)
    if given is None and not context.searches:
        return _Nest(key, 0.0)
    cycles = nest_cycles(block, outer, unit, context.hw)
    if given is not None:
        tried = [given_cut(given, key, block, unit, context)]
    else:
        tried = cuts(block, outer, unit, context.hw)[:MAX_TRIED]
    found = _Nest(key, cycles)
    for cut in tried:
        found = _Nest(key, cycles, None, cut, given=given is not None)
        if given is None and found.saved(unit) <= 0:
            return found
        made = cut_nest(parent, block, outer, cut, unit)
        if made is not None:
            # A turn takes several times as long as what it costs to take it.
            most = cycles * cut.share / max(1.0, 4 * unit.handover_cycles)
            made, turns = in_turn(made, min(MAX_TURNS, int(most)))
            return replace(found, made=made, turns=turns)
        found = _Nest(key, cycles, reason="two units would write one element")
        if given is not None:
            raise context.refused(NAME, key, found.reason, "sizes")
    return found
