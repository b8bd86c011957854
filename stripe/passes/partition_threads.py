"""Which nests of a program are dealt out to threads: units that share their memories, and have to be woken.

They are woken once for a program, and then wait for what it has for them next. So a nest is worth
dealing out where that saves more than it takes to hand it over, and a program where all its
nests together save more than it takes to wake the threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hwconfigs.model import Unit
from stripe.ir import Block, Direction, Location, Special, Statement
from stripe.passes.base import PassContext
from stripe.passes.partition_chosen import Share, given_cut
from stripe.passes.partition_costs import nest_cycles, shared_cycles
from stripe.passes.partition_nest import (
    FINE,
    Cut,
    Piece,
    cut_nest,
    cuts,
    divide_inside,
    even_index,
)
from stripe.passes.partition_together import MAX_TRIED, Nest, Place, Team, finished, shared_of, teams
from stripe.visit import View, views_of

MAX_RUNS = 4096  # of nests inside another, which are then looked at
EVEN = 1.05  # how much longer than with equal parts is good enough
ALONE = "compiled for one thread: nothing is dealt out"


def is_alone(unit: Unit, context: PassContext) -> bool:
    """Whether there is nobody to deal points out to, and no choice that does it nevertheless."""
    chosen = not context.searches and context.given is not None and bool(context.given.records)
    return unit.count < 2 and not chosen


def dealt(root: Block, unit: Unit, context: PassContext) -> Block:
    """The root with its nests in parts for threads, where that pays; else as they are."""
    opened = {id(root)}
    nests = [
        nest
        for place in _places(root, root.name, views_of(root, {}), 1, context)
        for nest in _chosen(place, opened, unit, context)
    ]
    groups = [finished(group, unit, context) for group in teams(root, nests, unit, context)]
    known = {id(team.nests[0].place.block): team for team in groups}
    followers = {id(nest.place.block) for team in groups for nest in team.nests[1:]}
    saved = sum(max(0.0, team.saved(unit)) for team in groups)

    def run(block: Block, path: str) -> Block:
        def decided(statement: Statement) -> tuple[Statement, ...]:
            within = f"{path}/{statement.name}" if isinstance(statement, Block | Special) else path
            match statement:
                case Special():
                    context.remark(within, False, "a special runs whole")
                case Block() if id(statement) in followers:
                    return ()
                case Block() if id(statement) in known:
                    return _decided(known[id(statement)], path, saved, unit, context)
                case Block(location=Location(unit=name)):
                    context.remark(within, False, f"it runs on {name} already")
                case Block() if id(statement) in opened:
                    return (run(statement, within),)
            return (statement,)

        statements = tuple(made for statement in block.statements for made in decided(statement))
        return block if statements == block.statements else replace(block, statements=statements)

    return run(root, root.name)


def _places(
    parent: Block, path: str, views: Mapping[str, View], times: int, context: PassContext
) -> Iterator[Place]:
    """The nests of a block, each with those inside it."""
    for block in parent.children:
        if block.location is not None:
            continue
        within = f"{path}/{block.name}"
        found = Place(parent, block, context.key(within), views, times)
        inside, around = block, [block]
        seen, runs = views_of(block, views), times * block.points
        while len(inside.statements) == len(inside.children) == 1:
            inside = inside.children[0]
            seen, runs = views_of(inside, seen), runs * inside.points
            within = f"{within}/{inside.name}"
            around.append(inside)
        blocks = len(inside.statements) == len(inside.children) > 1
        if blocks and runs <= MAX_RUNS and all(_is_plain(b) for b in around):
            places = _places(inside, within, seen, runs, context)
            inner = tuple(replace(place, in_loop=True) for place in places)
            found = replace(found, inner=inner, around=tuple(around))
        yield found


def _is_plain(block: Block) -> bool:
    """Whether threads may begin inside: one point at a time, and no buffers in registers."""
    own = (ref for ref in block.refinements if ref.direction is Direction.NEW)
    return block.location is None and block.inflight == 1 and all(ref.location is None for ref in own)


def _chosen(place: Place, opened: set[int], unit: Unit, context: PassContext) -> list[Nest]:
    """The nest as one, or where its parts would be uneven those inside, if they save more."""
    whole = _nest(place, unit, context)
    even = whole.cut is not None and whole.region is not None and whole.cut.share * unit.count <= EVEN
    even = even and not whole.shared
    if not place.inner or whole.given is not None or (even and context.searches):
        return [whole]
    if context.searches:
        divided = _divided(place, whole.cycles, unit, context)
        whole = max(whole, divided, key=lambda nest: nest.saved(unit) if nest.region is not None else 0.0)
    inside: set[int] = set()
    inner = [nest for part in place.inner for nest in _chosen(part, inside, unit, context)]
    if not context.searches and all(nest.given is None for nest in inner):
        return [whole]
    saved = sum(max(0.0, nest.saved(unit)) for nest in inner)
    if saved <= EVEN * max(0.0, whole.saved(unit)) and context.searches:
        return [whole]
    opened |= inside | {id(block) for block in place.around}
    return inner


def _divided(place: Place, cycles: float, unit: Unit, context: PassContext) -> Nest:
    """The nest once for each unit, which makes for itself what only it uses, and has its piece of the nests
    inside that write results."""
    pieces: dict[int, Piece] = {}
    spent = _divide(place, frozenset(), pieces, unit, context)
    if spent is None or all(not piece.index or piece.around for piece in pieces.values()):
        return Nest(place, cycles)
    made = divide_inside(place.parent, place.block, place.views, pieces, unit)
    whole = sum(_spent(inner, unit, context) for inner in place.inner)
    share = spent / whole if whole else 1.0
    own = {key: {piece.index} for key, piece in pieces.items() if not piece.around}
    shared = shared_cycles(own, place.parent, place.block, unit)
    return Nest(place, cycles, made, Cut(0, (), share, unit.count), inside=True, shared=shared)


def _divide(
    place: Place, local: frozenset[str], pieces: dict[int, Piece], unit: Unit, context: PassContext
) -> float | None:
    """Adds to `pieces` the nests inside a nest that a unit has a piece of; gives the cycles that this takes
    the unit with the largest. `local` are buffers that each unit has for itself. None if a nest can't be
    divided."""
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
            deeper: dict[int, Piece] = {}
            cycles = _divide(inner, local, deeper, unit, context)
            if cycles is not None and cycles < share * spent:
                pieces |= deeper
                total += cycles
                continue
        around = not index
        if around:
            index, share = even_index(place.around[-1], unit.count)
        pieces[id(inner.block)] = Piece(index, around)
        total += share * spent
    return total


def _spent(place: Place, unit: Unit, context: PassContext) -> float:
    return place.times * nest_cycles(place.block, place.views, unit, context.hw)


def _decided(team: Team, path: str, saved: float, unit: Unit, context: PassContext) -> tuple[Block, ...]:
    """The nests of a team as they are to be, with a remark for each that says why."""
    first = team.nests[0]
    reason = "" if team.made is not None else first.reason
    if first.cut is not None and first.given is None:
        if team.saved(unit) <= 0:
            reason = f"to hand it over takes {unit.handover_cycles:.0f}"
        elif saved <= unit.startup_cycles:
            start = f"to start {unit.count} {unit.name} takes {unit.startup_cycles:.0f}"
            reason = f"{start}; all parts together would save {saved:.0f}"
    for nest in team.nests:
        within = f"{path}/{nest.place.block.name}"
        if not reason:
            _say_how(nest, team, within, unit, context)
        elif context.searches:
            takes = "" if nest.cut is None else f"it takes about {nest.cycles:.0f} cycles, and "
            context.remark(within, False, f"not cut: {takes}{reason}", cycles=nest.cycles)
        elif unit.count > 1:
            context.undecided(within)
    if reason or team.made is None:
        return tuple(nest.place.block for nest in team.nests)
    return (team.made,)


def _say_how(nest: Nest, team: Team, path: str, unit: Unit, context: PassContext) -> None:
    """The remark for a nest that is dealt out, and the choice."""
    cut = nest.cut
    assert cut is not None
    first = nest is team.nests[0]
    after = nest.cycles * cut.share + (unit.handover_cycles if first else 0.0)
    about = f"about {nest.cycles:.0f} cycles become {after:.0f}"
    beside = "" if first else f", handed over with {team.nests[0].place.block.name}"
    if nest.inside:
        context.remark(
            path, True,
            f"{cut.parts} parts for {unit.count} {unit.name}{beside}: each makes for itself what only it "
            f"uses, and its piece of the results; {about}",
            parts=cut.parts, largest=cut.share, cycles=nest.cycles,
        )  # fmt: skip
        context.chose(nest.place.key, Share(inside=True, turns=team.turns, together=not first))
        return
    pieces = ", ".join(f"{name} in pieces of {size}" for name, size in cut.sizes)
    turns = f", each taken in {team.turns}" if team.turns > 1 else ""
    context.remark(
        path, True,
        f"{cut.parts} parts for {unit.count} {unit.name}{beside}: {pieces}{turns}; the largest has "
        f"{cut.share:.1%} of the points; {about}",
        parts=cut.parts, sizes=dict(cut.sizes), level=cut.level, turns=team.turns, largest=cut.share,
        cycles=nest.cycles,
    )  # fmt: skip
    context.chose(nest.place.key, Share(dict(cut.sizes), cut.level, team.turns, together=not first))


def _nest(place: Place, unit: Unit, context: PassContext) -> Nest:
    """A nest, cut in the best way that gives each unit elements of its own."""
    block, key, outer = place.block, place.key, place.views
    given = context.explicit(key, Share)
    if given is None and not context.searches:
        return Nest(place)
    cycles = nest_cycles(block, outer, unit, context.hw)
    if given is not None and given.inside:
        found = _divided(place, cycles, unit, context)
        if found.region is None:
            reason = "there are no nests inside that can be divided"
            raise context.refused(key, reason, "inside")
        return replace(found, given=given)
    if given is not None:
        tried = [given_cut(given, key, block, unit, context)]
    else:
        tried = cuts(block, outer, unit, context.hw)[:MAX_TRIED]
    shared = {cut: shared_of(place, cut, unit) for cut in tried}
    tried.sort(key=lambda c: round((c.share + shared[c] / max(1.0, cycles)) * unit.count * FINE))
    found = Nest(place, cycles)
    for cut in tried:
        found = Nest(place, cycles, None, cut, given=given, shared=shared[cut])
        if given is None and found.saved(unit) <= 0:
            return found
        region = cut_nest(place.parent, block, outer, cut, unit)
        if region is not None:
            return replace(found, region=region)
        found = Nest(place, cycles, reason="two units would write one element")
        if given is not None:
            raise context.refused(key, found.reason, "sizes")
    return found
