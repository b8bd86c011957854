"""Neighbours that are handed over to threads as one, of which each thread has its part.

    before:  block pack [n:2] @CORE[n] (out P[n]) {...}
             block u [n:2] @CORE[n] (in P[n]  out C[n]) {...}
    after:   block u [n:2] @CORE[n] (inout P  out C) { block u [n_1 = n] (inout P  out C) {
               block pack (out P[n_1]) {...}  block u (in P[n_1]  out C[n_1]) {...} } }

Legal where no unit reads or writes what another one writes (`partition_nest.parts_apart`): then none has to
wait for another in between. That saves handing over, and lines that travel between cores, as each reads
what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hwconfigs.model import Unit
from stripe.affine import Affine
from stripe.ir import Aggregation, Block, Direction, Index, Location, Refinement
from stripe.names import Names
from stripe.passes.base import PassContext
from stripe.passes.partition_chosen import Share
from stripe.passes.partition_costs import shared_cycles
from stripe.passes.partition_nest import Cut, cut_nest, cuts, in_turns, parts_apart, spine, turns_of
from stripe.rewrite import RewriteRefused, flatten
from stripe.visit import View

MAX_TRIED = 8  # of the best cuts, that are asked whether their parts write different elements
MAX_TURNS = 16  # parts of a unit's part
_WHOLE = "all its points write to the same elements, or it has one"


@dataclass(frozen=True, slots=True)
class Place:
    """A nest where it stands: its parent, what it is called, and how often it runs.

    `inner` are the nests of which each of its points consists, if these are several, and `around` the
    blocks between. What stands in a loop (`in_loop`) is handed over alone, and may read what any unit wrote.
    """

    parent: Block
    block: Block
    key: str
    views: Mapping[str, View]
    times: int
    inner: tuple[Place, ...] = ()
    around: tuple[Block, ...] = ()
    in_loop: bool = False


@dataclass(frozen=True, slots=True)
class Nest:
    """A nest that may be dealt out: the `region` of its parts, or none, and the reason says why. `inside`:
    each unit runs all of it but for some nests inside, of which it has a piece. `shared` are cycles that it
    takes to write what all units read."""

    place: Place
    cycles: float = 0.0
    region: Block | None = None
    cut: Cut | None = None
    reason: str = _WHOLE
    given: Share | None = None
    inside: bool = False
    shared: float = 0.0

    def saved(self, unit: Unit) -> float:
        """Cycles, less those that it takes to hand it over."""
        if self.cut is None:
            return 0.0
        return self.place.times * (self.cycles * (1 - self.cut.share) - unit.handover_cycles - self.shared)


@dataclass(frozen=True, slots=True)
class Team:
    """Nests that are handed over as one, `made` so, or one nest, which may stay as it is: `made` is None."""

    nests: tuple[Nest, ...]
    made: Block | None = None
    turns: int = 1

    def saved(self, unit: Unit) -> float:
        """Cycles, less those that it takes to hand it over."""
        spared = (len(self.nests) - 1) * self.nests[0].place.times * unit.handover_cycles
        return sum(nest.saved(unit) for nest in self.nests) + spared


def shared_of(place: Place, cut: Cut, unit: Unit) -> float:
    """Cycles that it takes to write what all units read, where a nest is cut so."""
    pieces = {} if place.in_loop else {id(spine(place.block)[cut.level]): dict(cut.sizes)}
    return shared_cycles(pieces, place.parent, place.block, unit)


def teams(root: Block, nests: Sequence[Nest], unit: Unit, context: PassContext) -> list[list[Nest]]:
    """The nests, those of the root with their neighbours that can be handed over with them: the longest ones
    keep their cuts, and neighbours are cut so that each unit reads what it writes."""
    at = {id(nest.place.block): nest for nest in nests}
    kernels = [at.pop(id(statement), None) for statement in root.statements]
    found = [[nest] for nest in at.values()]  # those further in
    free = {number: nest for number, nest in enumerate(kernels) if nest is not None}
    for number in sorted(free, key=lambda number: -free[number].cycles):
        if number not in free:
            continue
        team = {number: free.pop(number)}
        for step in (-1, 1):
            place = number + step
            while place in free:
                near, last = free[place], team[place - step]
                if not _may_join(*((near, last) if step < 0 else (last, near))):
                    break
                joined = _beside(root, near, list(team.values()), unit, context)
                if joined is None:
                    break
                team[place] = joined
                del free[place]
                place += step
        found.append([team[place] for place in sorted(team)])
    for first, *_ in found:
        if first.given is not None and first.given.together:
            reason = "it can't be handed over with the nest before it"
            raise context.refused(first.place.key, reason, "together")
    return found


def _may_join(first: Nest, second: Nest) -> bool:
    """Whether neighbours may be handed over as one, as far as choices that are given say."""
    if first.given is None and second.given is None:
        return True
    return second.given is not None and second.given.together


def _beside(root: Block, nest: Nest, team: Sequence[Nest], unit: Unit, context: PassContext) -> Nest | None:
    """A nest, cut so that it can be handed over with a team. The longest of them keeps its turns, which
    make up for a thread that comes late; where one reads what another writes there are none."""
    regions = [member.region for member in team]
    for option in _options(nest, unit, context):
        mine = option.region
        assert mine is not None
        if all(r is not None and is_joinable(r, unit) and parts_apart(root, r, mine) for r in regions):
            every = [*team, option]
            joined, longest = _joined(every, unit), max(every, key=lambda one: one.cycles)
            depend = any(ref.direction is Direction.INOUT for ref in joined.refinements)
            kept = 1 if depend else _turns(every, joined, unit)[0]
            if kept > 1 or _turns([longest], _joined([longest], unit), unit)[0] < 2:
                return option
    return None


def _joined(nests: Sequence[Nest], unit: Unit) -> Block:
    """The region of one nest, or of several together."""
    regions = [nest.region for nest in nests if nest.region is not None]
    if len(regions) == 1:
        return regions[0]
    longest = max(nests, key=lambda nest: nest.cycles).place.block.name
    return as_one(regions, longest, nests[0].place.views, unit)


def _turns(nests: Sequence[Nest], region: Block, unit: Unit) -> list[int]:
    """In how many turns threads may take their parts, the best first: a turn takes several times as long as
    what it costs to take it."""
    if any(nest.inside for nest in nests):
        return [1]
    cycles = sum(nest.cycles * nest.cut.share for nest in nests if nest.cut is not None)
    return turns_of(region, min(MAX_TURNS, int(cycles / max(1.0, 4 * unit.handover_cycles))))


def _options(nest: Nest, unit: Unit, context: PassContext) -> Iterator[Nest]:
    """A nest as it was cut, and in other ways."""
    place = nest.place
    if nest.region is not None and is_joinable(nest.region, unit):
        yield nest
    if nest.given is not None:
        return
    for cut in cuts(place.block, place.views, unit, context.hw)[:MAX_TRIED]:
        if cut.parts == unit.count and (cut != nest.cut or nest.region is None):
            region = cut_nest(place.parent, place.block, place.views, cut, unit)
            if region is not None and is_joinable(region, unit):
                yield replace(nest, region=region, cut=cut, inside=False, shared=shared_of(place, cut, unit))


def finished(nests: Sequence[Nest], unit: Unit, context: PassContext) -> Team:
    """A team with the block that is handed over."""
    place, given = nests[0].place, nests[0].given
    if nests[0].region is None:
        return Team(tuple(nests))
    made = _joined(nests, unit)
    tried = _turns(nests, made, unit) if given is None else [given.turns]
    for turns in tried:
        parted = in_turns(place.parent, made, turns)
        if parted is not None:
            return Team(tuple(nests), parted, turns)
    if given is not None and given.turns > 1:
        raise context.refused(place.key, "its pieces can't be taken in turns", "turns")
    return Team(tuple(nests), made)


# -- the block over the parts of several --------------------------------------------------------


def is_joinable(region: Block, unit: Unit) -> bool:
    """Whether a region has one part for each copy of the unit, numbered by its only index."""
    assert region.location is not None
    ((name, count), *more) = region.ranges.items() or [("", 0)]
    return not more and count == unit.count and region.location.bank == Affine.index(name)


def as_one(regions: Sequence[Block], name: str, views: Mapping[str, View], unit: Unit) -> Block:
    """One region of several, joinable and apart, which are neighbours: each unit has its part of each, in
    their order. `views` are the buffers around them."""
    names = Names(i.name for region in regions for i in region.indexes)
    part, mine = (names.fresh(next(iter(regions[0].ranges))) for _ in range(2))
    around = tuple(_around(regions, views))
    inner = Block(
        name,
        indexes=(Index(mine, 1, Affine.index(part)),),
        refinements=around,
        statements=tuple(_part(region, mine) for region in regions),
        span=regions[0].span,
    )
    return replace(
        inner,
        indexes=(Index(part, unit.count),),
        statements=(inner,),
        location=Location(unit.name, Affine.index(part)),
    )


def _part(region: Block, number: str) -> Block:
    """What the unit of a number does of a region."""
    passed = tuple(
        i if i.passed is not None else Index(i.name, 1, Affine.index(number)) for i in region.indexes
    )
    alone = replace(region, indexes=passed, location=None)
    try:
        return replace(flatten(alone), name=region.name)
    except RewriteRefused:
        return alone


def _around(regions: Sequence[Block], views: Mapping[str, View]) -> Iterable[Refinement]:
    """Views of the whole buffers that regions use. What one of them writes and another reads is `inout`:
    where nothing was written it holds what it held."""
    used: dict[str, list[Refinement]] = {}
    for region in regions:
        for ref in region.refinements:
            used.setdefault(ref.source, []).append(ref)
    for source, refs in used.items():
        reads, writes = any(r.direction.reads for r in refs), any(r.direction.writes for r in refs)
        how = Direction.IN if not writes else Direction.INOUT if reads else Direction.OUT
        shape = views[source].shape
        yield Refinement(
            how, source, shape, refs[0].dtype, source, (Affine(),) * len(shape),
            Aggregation.ASSIGN if writes else None,
        )  # fmt: skip
