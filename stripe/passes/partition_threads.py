"""Which nests of a program are dealt out to threads: units that share their memories, and have to be woken.

They are woken once for a program, and then wait for what it has for them next. So a nest is worth
dealing out where that saves more than it takes to hand it over, and a program where all its
nests together save more than it takes to wake the threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import Unit
from stripe.ir import Block, Direction, Location, Refinement, Special, Statement
from stripe.passes.base import PassContext
from stripe.passes.partition_chosen import NAME, Share, given_cut
from stripe.passes.partition_nest import (
    FINE,
    Cut,
    cut_nest,
    cuts,
    divide_inside,
    even_index,
    in_turns,
    nest_cycles,
    spine,
    turns_of,
)
from stripe.visit import View, map_statements, views_of

MAX_TRIED = 8  # of the best cuts, that are asked whether their parts write different elements
MAX_TURNS = 16  # parts of a unit's part
MAX_RUNS = 4096  # of nests inside another, which are then looked at
EVEN = 1.05  # how much longer than with equal parts is good enough
_WHOLE = "all its points write to the same elements, or it has one"


@dataclass(frozen=True, slots=True)
class _Place:
    """A nest where it stands: its parent, what it is called, and how often it runs.

    `inner` are the nests of which each of its points consists, if these are several, and `around` the
    blocks between.
    """

    parent: Block
    block: Block
    key: str
    views: Mapping[str, View]
    times: int
    inner: tuple[_Place, ...] = ()
    around: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class _Nest:
    """A nest that may be dealt out, `made` so; or `made` is None, and the reason says why not. `inside`: each
    unit runs all of it but for some nests inside, of which it has a piece. `shared` are cycles that it takes
    to write what all units read."""

    place: _Place
    cycles: float = 0.0
    made: Block | None = None
    cut: Cut | None = None
    turns: int = 1
    reason: str = _WHOLE
    given: bool = False
    inside: bool = False
    shared: float = 0.0

    def saved(self, unit: Unit) -> float:
        """Cycles, less those that it takes to hand it over."""
        if self.cut is None:
            return 0.0
        return self.place.times * (self.cycles * (1 - self.cut.share) - unit.handover_cycles - self.shared)


def alone(unit: Unit, context: PassContext) -> str:
    return f"{context.hw.name} has one {unit.name}: code runs on one thread"


def dealt(root: Block, unit: Unit, context: PassContext) -> Block:
    """The root with its nests in parts for threads, where that pays; else as they are."""
    opened = {id(root)}
    nests = [
        nest
        for place in _places(root, root.name, views_of(root, {}), 1, context)
        for nest in _chosen(place, opened, unit, context)
    ]
    known = {id(nest.place.block): nest for nest in nests}
    saved = sum(max(0.0, nest.saved(unit)) for nest in nests)

    def run(block: Block, path: str) -> Block:
        def decided(statement: Statement) -> Statement:
            within = f"{path}/{statement.name}" if isinstance(statement, Block | Special) else path
            match statement:
                case Special():
                    context.remark(NAME, within, False, "a special runs whole")
                case Block() if id(statement) in known:
                    return _decided(known[id(statement)], statement, within, saved, unit, context)
                case Block(location=Location(unit=name)):
                    context.remark(NAME, within, False, f"it runs on {name} already")
                case Block() if id(statement) in opened:
                    return run(statement, within)
            return statement

        return map_statements(block, decided)

    return run(root, root.name)


def _places(
    parent: Block, path: str, views: Mapping[str, View], times: int, context: PassContext
) -> Iterator[_Place]:
    """The nests of a block, each with those inside it."""
    for block in parent.children:
        if block.location is not None:
            continue
        within = f"{path}/{block.name}"
        found = _Place(parent, block, context.key(within), views, times)
        inside, around = block, [block]
        seen, runs = views_of(block, views), times * prod(block.ranges.values())
        while len(inside.statements) == len(inside.children) == 1:
            inside = inside.children[0]
            seen, runs = views_of(inside, seen), runs * prod(inside.ranges.values())
            within = f"{within}/{inside.name}"
            around.append(inside)
        blocks = len(inside.statements) == len(inside.children) > 1
        if blocks and runs <= MAX_RUNS and all(_is_plain(b) for b in around):
            inner = tuple(_places(inside, within, seen, runs, context))
            found = replace(found, inner=inner, around=tuple(around))
        yield found


def _is_plain(block: Block) -> bool:
    """Whether threads may begin inside: one point at a time, and no buffers in registers."""
    own = (ref for ref in block.refinements if ref.direction is Direction.NEW)
    return block.location is None and block.inflight == 1 and all(ref.location is None for ref in own)


def _chosen(place: _Place, opened: set[int], unit: Unit, context: PassContext) -> list[_Nest]:
    """The nest as one, or where its parts would be uneven those inside, if they save more."""
    whole = _nest(place, unit, context)
    even = whole.cut is not None and whole.made is not None and whole.cut.share * unit.count <= EVEN
    even = even and not whole.shared
    if not place.inner or whole.given or (even and context.searches):
        return [whole]
    if context.searches:
        divided = _divided(place, whole.cycles, unit, context)
        whole = max(whole, divided, key=lambda nest: nest.saved(unit) if nest.made is not None else 0.0)
    inside: set[int] = set()
    inner = [nest for part in place.inner for nest in _chosen(part, inside, unit, context)]
    saved = sum(max(0.0, nest.saved(unit)) for nest in inner) - _shared_cycles(place, inner, unit)
    if saved <= EVEN * max(0.0, whole.saved(unit)) and context.searches:
        return [whole]
    opened |= inside | {id(block) for block in place.around}
    return inner


def _divided(place: _Place, cycles: float, unit: Unit, context: PassContext) -> _Nest:
    """The nest once for each unit, which makes for itself what only it uses, and has its piece of the nests
    inside that write results."""
    pieces: dict[int, str] = {}
    spent = _divide(place, frozenset(), pieces, unit, context)
    if spent is None or not pieces:
        return _Nest(place, cycles)
    made = divide_inside(place.parent, place.block, place.views, pieces, unit)
    whole = sum(_spent(inner, unit, context) for inner in place.inner)
    share = spent / whole if whole else 1.0
    shared = _shared_between({key: {name} for key, name in pieces.items()}, place, unit)
    return _Nest(place, cycles, made, Cut(0, (), share, unit.count), inside=True, shared=shared)


def _divide(
    place: _Place, local: frozenset[str], pieces: dict[int, str], unit: Unit, context: PassContext
) -> float | None:
    """Adds to `pieces` the nests inside a nest that a unit has a piece of, with the index; gives the cycles
    that this takes the unit with the largest. `local` are buffers that each unit has for itself. None if
    a nest can't be divided."""
    for block in place.around:
        local = frozenset(
            ref.name for ref in block.refinements if ref.direction is Direction.NEW or ref.source in local
        )
    total = 0.0
    for inner in place.inner:
        spent = _spent(inner, unit, context)
        written = {ref.source for ref in inner.block.refinements if ref.direction.writes and ref.source}
        if written <= local:
            total += spent
            continue
        if written & local:
            return None
        index, share = even_index(inner.block, unit.count)
        if share * unit.count > EVEN and inner.inner:
            deeper: dict[int, str] = {}
            cycles = _divide(inner, local, deeper, unit, context)
            if cycles is not None and cycles < share * spent:
                pieces |= deeper
                total += cycles
                continue
        if not index:
            return None  # all units would write its results
        pieces[id(inner.block)] = index
        total += share * spent
    return total


def _spent(place: _Place, unit: Unit, context: PassContext) -> float:
    return place.times * nest_cycles(place.block, place.views, unit, context.hw)


def _shared_between(pieces: Mapping[int, Collection[str]], place: _Place, unit: Unit) -> float:
    """Cycles that it takes a unit to write its part of those buffers beside a nest that every unit reads
    all of. `pieces` are the blocks that are cut, by identity, and along which indexes."""
    if unit.shared_bytes_per_cycle is None:
        return 0.0
    found: dict[str, int] = {}

    def look(block: Block, known: Mapping[str, Refinement]) -> None:
        names = pieces.get(id(block), ())
        inside = {
            ref.name: known[ref.source]
            for ref in block.refinements
            if ref.source in known and not any(n in names for expr in ref.access for n in expr.names)
        }
        if not block.children:
            read = (inside[r.name] for r in block.refinements if r.direction.reads and r.name in inside)
            found.update((buffer.name, prod(buffer.shape) * buffer.dtype.bytes) for buffer in read)
        for child in block.children:
            look(child, inside)

    own = (r for r in place.parent.refinements if r.direction is Direction.NEW and r.location is None)
    look(place.block, {ref.name: ref for ref in own})
    return sum(found.values()) / unit.count / unit.shared_bytes_per_cycle


def _shared_cycles(place: _Place, inner: Sequence[_Nest], unit: Unit) -> float:
    """Cycles that it takes to write what units make together and each of them reads: a core has to take lines
    from the others that have read them before."""
    dealt_out = [nest for nest in inner if nest.made is not None and nest.saved(unit) > 0]
    if unit.shared_bytes_per_cycle is None or not dealt_out:
        return 0.0
    made = {ref.name: ref for ref in place.around[-1].refinements if ref.direction is Direction.NEW}
    total = 0.0
    for nest in inner:
        for ref in nest.place.block.refinements:
            if ref.direction.writes and ref.source in made and made[ref.source].location is None:
                share = nest.cut.share if nest.cut is not None and nest in dealt_out else 1.0
                bytes_ = prod(made[ref.source].shape) * ref.dtype.bytes
                total += nest.place.times * share * bytes_ / unit.shared_bytes_per_cycle
    return total


def _decided(nest: _Nest, block: Block, path: str, saved: float, unit: Unit, context: PassContext) -> Block:
    """The nest as it is to be, with a remark that says why."""
    cut, reason = nest.cut, nest.reason
    if cut is not None and not nest.given:
        takes = f"it takes about {nest.cycles:.0f} cycles, and "
        if nest.saved(unit) <= 0:
            cut, reason = None, f"{takes}to hand it over takes {unit.handover_cycles:.0f}"
        elif saved <= unit.startup_cycles:
            start = f"to start {unit.count} {unit.name} takes {unit.startup_cycles:.0f}"
            cut, reason = None, f"{takes}{start}; all parts together would save {saved:.0f}"
    if cut is None or nest.made is None:
        if context.searches:
            context.remark(NAME, path, False, f"not cut: {reason}", cycles=nest.cycles)
        return block
    after = nest.cycles * cut.share + unit.handover_cycles
    pieces = ", ".join(f"{name} in pieces of {size}" for name, size in cut.sizes)
    turns = f", each taken in {nest.turns}" if nest.turns > 1 else ""
    if nest.inside:
        context.remark(
            NAME, path, True,
            f"{cut.parts} parts for {unit.count} {unit.name}: each makes for itself what only it uses, and "
            f"its piece of the results; about {nest.cycles:.0f} cycles become {after:.0f}",
            parts=cut.parts, largest=cut.share, cycles=nest.cycles,
        )  # fmt: skip
        context.chose(nest.place.key, Share(inside=True))
        return nest.made
    context.remark(
        NAME, path, True,
        f"{cut.parts} parts for {unit.count} {unit.name}: {pieces}{turns}; the largest has {cut.share:.1%} "
        f"of the points; about {nest.cycles:.0f} cycles become {after:.0f}",
        parts=cut.parts, sizes=dict(cut.sizes), level=cut.level, turns=nest.turns, largest=cut.share,
        cycles=nest.cycles,
    )  # fmt: skip
    context.chose(nest.place.key, Share(dict(cut.sizes), cut.level, nest.turns))
    return nest.made


def _nest(place: _Place, unit: Unit, context: PassContext) -> _Nest:
    """A nest, cut in the best way that gives each unit elements of its own."""
    block, key, outer = place.block, place.key, place.views
    given = context.explicit(key, Share)
    if given is None and not context.searches:
        return _Nest(place)
    cycles = nest_cycles(block, outer, unit, context.hw)
    if given is not None and given.inside:
        found = _divided(place, cycles, unit, context)
        if found.made is None:
            reason = "there are no nests inside that can be divided"
            raise context.refused(NAME, key, reason, "inside")
        return replace(found, given=True)
    if given is not None:
        tried = [given_cut(given, key, block, unit, context)]
    else:
        tried = cuts(block, outer, unit, context.hw)[:MAX_TRIED]
    levels = spine(block)
    shared = {c: _shared_between({id(levels[c.level]): dict(c.sizes)}, place, unit) for c in tried}
    tried.sort(key=lambda c: round((c.share + shared[c] / max(1.0, cycles)) * unit.count * FINE))
    found = _Nest(place, cycles)
    for cut in tried:
        found = _Nest(place, cycles, None, cut, given=given is not None, shared=shared[cut])
        if given is None and found.saved(unit) <= 0:
            return found
        made = cut_nest(place.parent, block, outer, cut, unit)
        if made is not None:
            if given is None:
                # A turn takes several times as long as what it costs to take it.
                most = cycles * cut.share / max(1.0, 4 * unit.handover_cycles)
                turns = turns_of(made, min(MAX_TURNS, int(most)))
            else:
                turns = given.turns
            parted = in_turns(place.parent, made, turns)
            if parted is None and given is not None and turns > 1:
                raise context.refused(NAME, key, "its pieces can't be taken in turns", "turns")
            return replace(found, made=parted or made, turns=1 if parted is None else turns)
        found = _Nest(place, cycles, reason="two units would write one element")
        if given is not None:
            raise context.refused(NAME, key, found.reason, "sizes")
    return found
