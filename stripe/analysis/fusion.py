"""May two neighbouring blocks share their outer indexes, which ones, and does it pay?

A plan pairs indexes of the first block with indexes of the second. It is *legal* if every two
accesses to one element, of which one writes, happen at the same point of the shared indexes:
then all that the first block does at a shared point can be followed by all that the second
does there. That is a question about integer sets (`stripe.analysis.deps`), with no list of
patterns, and it is answered index by index, since a set of pairs is legal exactly if each is.

The *profit model* is in bytes, with the capacities of the target's memories:

  gain   what no longer travels: an intermediate that nothing else uses is neither written nor
         read, another buffer of which both use the same elements is read once less;
  loss   a reduction that keeps output indexes inside re-reads, at every shared point, operands
         that it could otherwise reuse over the shared indexes in registers;
         rows of a large operand that go along shared indexes come in pieces, each of which begins anew;
  limit  what one shared point keeps alive must fit in a memory nearer than the one that holds
         the whole intermediate, or in the nearest;
  shape  a shared reduction index must leave no output index inside (the accumulators would
         leave the registers at each step), unless what both blocks read comes from so far that a
         second reading takes longer than adding up in a cache (A'(A x)); the lane index must not
         leave a block that keeps another output index inside, two reductions that both reuse
         operands over the shared points would compete for the registers, and a box around places
         that move differently would hide which results such a reduction has in a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import TypeAlias

from hwconfigs.model import Memory, own_cache
from stripe.affine import Affine
from stripe.analysis.deps import Access, conflicts, relation
from stripe.analysis.fusion_sides import Candidate, Scope, Side, settled
from stripe.ir import Aggregation, Block, Direction, Refinement
from stripe.poly import Domain, PolyhedralLimit

_PIECES = 16  # times as many bytes come in pieces of rows in the time that it takes to fetch the bytes again


@dataclass(frozen=True, slots=True)
class Pair:
    """Indexes of the two blocks that become one: first = second + offset."""

    first: str
    second: str
    offset: int


@dataclass(frozen=True, slots=True)
class SharedIndex:
    """A shared outer index; index `first` is its value plus `low`, which makes it start at 0."""

    pair: Pair
    low: int
    size: int


@dataclass(frozen=True, slots=True)
class OuterUse:
    """How the outer block must declare a buffer that its statements use."""

    direction: Direction
    aggregation: Aggregation | None


Rank: TypeAlias = tuple[bool, int, int]
"""Which of several plans to carry out first (greatest): flat, shared indexes, bytes gained."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A fusion that is legal and pays. `flat`: neither block keeps an index of its own. `apart`: what both
    write, each elements of its own, and neither reads."""

    shared: tuple[SharedIndex, ...]
    uses: Mapping[str, OuterUse]
    gain: int
    flat: bool
    apart: frozenset[str] = frozenset()

    def use(self, view: Refinement) -> OuterUse:
        """How the outer block declares the buffer that a view of one of the two shows."""
        return self.uses.get(view.source) or OuterUse(view.direction, view.aggregation)

    @property
    def rank(self) -> Rank:
        return self.flat, len(self.shared), self.gain


@dataclass(frozen=True, slots=True)
class Declined:
    """Why two blocks stay apart; `related` is false where they have nothing in common."""

    reason: str
    related: bool = True


def best_rank(first: Candidate, second: Candidate, users: Callable[[str], int]) -> Rank | None:
    """A bound on the rank of a plan, without any proof; None where there is no plan for certain.

    `users`: how many statements of the scope use a buffer.
    """
    few, many = first.uses, second.uses
    if len(few) > len(many):
        few, many = many, few
    common = [buffer for buffer in few if buffer in many]
    writing = [buffer for buffer in common if few[buffer] or many[buffer]]
    flat = first.is_leaf and second.is_leaf
    if not writing and _no_leaf(first, second, common):  # then only one flat block pays, see _weigh
        return None
    gain = sum([_gain(first.scope, buffer, buffer in writing, users(buffer)) for buffer in common])
    return flat, min(len(first.sizes), len(second.sizes)), gain


def only_read(first: Candidate, second: Candidate) -> bool:
    """Whether neither writes what the other uses."""
    return not any(first.uses[b] or second.uses[b] for b in first.uses if b in second.uses)


def no_leaf(first: Candidate, second: Candidate) -> str:
    """Why two blocks that only read the same buffers do not become one leaf, as a clause; empty if they
    may."""
    return _no_leaf(first, second, [buffer for buffer in first.uses if buffer in second.uses])


def _no_leaf(first: Candidate, second: Candidate, common: Sequence[str]) -> str:
    if not (first.is_leaf and second.is_leaf):
        return "one of them is no leaf block"
    if first.block.constraints or second.block.constraints:
        return "one of them has constraints"
    if first.sizes != second.sizes:
        return "they have not the same points"
    if not (first.covers(common) and second.covers(common)):
        return "these do not depend on each index, so that each block uses what it has read again"
    return ""


def plan_fusion(
    first: Candidate, second: Candidate, users: Callable[[str], int], memories: Sequence[Memory]
) -> Plan | Declined:
    """Decide whether two blocks of one scope, with nothing that must run between them, are put under
    shared outer indexes. `users`: how many statements of the scope use a buffer. `memories`:
    nearest first, without registers."""
    try:
        return _plan(first.first, second.second, users, memories)
    except PolyhedralLimit:
        return Declined("their accesses are too complicated to compare")


def given_fusion(first: Candidate, second: Candidate, over: Sequence[str]) -> Plan | Declined:
    """The plan for two blocks of one scope under shared indexes that are given, named as in the first one;
    it is legal, whether it pays or not."""
    try:
        return _given(first.first, second.second, over)
    except PolyhedralLimit:
        return Declined("their accesses are too complicated to compare")


def _given(first: Side, second: Side, over: Sequence[str]) -> Plan | Declined:
    if declined := _unfit(first, second):
        return declined
    pairs, reason = _legal_pairs(first, second)
    known = [pair.first for pair in pairs]
    for name in over:
        if name not in known:
            may = f"they may share {', '.join(known)}" if known else reason
            return Declined(f"they can't share '{name}': {may}")
    if not over and (first.block.ranges or second.block.ranges):
        may = f": they may share {', '.join(known)}" if known else f": {reason}"
        return Declined(f"no index is given that they share{may}")
    shared = tuple(_shared_index(p, first.block, second.block) for p in pairs if p.first in over)
    uses = _outer_uses(shared, first, second)
    if isinstance(uses, Declined):
        return uses
    names = [s.pair.first for s in shared], [s.pair.second for s in shared]
    flat = all(_is_flat(side, own) for side, own in zip((first, second), names, strict=True))
    apart = frozenset(b for b in _common_buffers(first, second) if not _meet(first, second, b))
    return Plan(shared, uses, 0, flat, apart)


def _plan(
    first: Side, second: Side, users: Callable[[str], int], memories: Sequence[Memory]
) -> Plan | Declined:
    if declined := _unfit(first, second):
        return declined
    ranged = bool(first.block.ranges), bool(second.block.ranges)
    pairs, reason = _legal_pairs(first, second)
    if not pairs and any(ranged):
        return Declined(reason, related=all(ranged))
    shaped, reason = _shaped(pairs, first, second)
    found = _weighed(shaped, reason, first, second, users, memories)
    if isinstance(found, Declined) and memories and memories[0].kind == "cached":
        summing, _ = _shaped(pairs, first, second, summing=True)
        if len(summing) > len(shaped):
            once = _weighed(summing, reason, first, second, users, memories)
            return once if isinstance(once, Plan) else found
    return found


def _weighed(
    pairs: Sequence[Pair],
    reason: str,
    first: Side,
    second: Side,
    users: Callable[[str], int],
    memories: Sequence[Memory],
) -> Plan | Declined:
    """The plan over these pairs, if it pays; `reason` says why there are no more."""
    if not pairs and (first.block.ranges or second.block.ranges):
        return Declined(reason)
    shared = tuple(_shared_index(pair, first.block, second.block) for pair in pairs)
    uses = _outer_uses(shared, first, second)
    if isinstance(uses, Declined):
        return uses
    return _weigh(shared, uses, users, (first, second), memories)


# -- is there anything to share -------------------------------------------------------------


def _unfit(first: Side, second: Side) -> Declined | None:
    if not first.meeting(second):
        return Declined("they use no buffer in common", related=False)
    for side in (first, second):
        block = side.block
        if block.location is not None or block.inflight != 1 or settled(block):
            return Declined(f"'{block.name}' has a location or tags from an earlier pass")
    return _entangled(first, second) if first.scope.aliased else None


def _entangled(first: Side, second: Side) -> Declined | None:
    names: dict[str, set[str]] = {}
    written: set[str] = set()
    for access in (*first.accesses, *second.accesses):
        names.setdefault(access.storage, set()).add(access.buffer)
        if access.writes:
            written.add(access.storage)
    for storage, views in names.items():
        if len(views) > 1 and storage in written:
            both = " and ".join(f"'{name}'" for name in sorted(views))
            return Declined(f"{both} are views of one buffer that is written")
    return None


# -- legality -------------------------------------------------------------------------------


def _ordered_conflicts(first: Side, second: Side) -> list[tuple[Access, Access]]:
    return [
        (one, other)
        for one, other in conflicts(first.meeting(second), second.meeting(first))
        if not first.scope.refinement(one.buffer).combines
    ]


def _legal_pairs(first: Side, second: Side) -> tuple[list[Pair], str]:
    """A maximal set of legal pairs, and why no more; earlier candidates win."""
    ordered = _ordered_conflicts(first, second)
    meetings = [domain for domain in (relation(*c) for c in ordered) if not domain.is_empty()]
    reason = "no index of one corresponds to an index of the other"
    chosen: list[Pair] = []
    for pair in _candidates(first, second, ordered):
        if any(pair.first == c.first or pair.second == c.second for c in chosen):
            continue
        distance = Affine.index(first.dim(pair.first)) - Affine.index(second.dim(pair.second)) - pair.offset
        if all(domain.bounds(distance) == (0, 0) for domain in meetings):
            chosen.append(pair)
        else:
            reason = (
                f"a point of '{second.block.name}' needs several points of '{first.block.name}' "
                f"along '{pair.first}' (a halo or a reduction)"
            )
    order = list(first.block.ranges)
    return sorted(chosen, key=lambda pair: order.index(pair.first)), reason


def _candidates(first: Side, second: Side, ordered: Sequence[tuple[Access, Access]]) -> list[Pair]:
    """Indexes that move along the same dimension of a common buffer at the same pace."""
    mine, theirs = first.meeting(second), second.meeting(first)
    reads = [(a, b) for a in mine for b in theirs if a.reads and b.reads and a.storage == b.storage]
    found: dict[Pair, None] = {}
    for one, other in (*ordered, *reads):
        for expr, expr2 in zip(one.address, other.address, strict=True):
            for index, pace in first.own(expr):
                for partner, step in second.own(expr2):
                    if index in first.block.tag_values("group") or partner in second.block.tag_values(
                        "group"
                    ):
                        continue  # an instruction takes it in one go
                    shift = expr2.const - expr.const
                    if pace == step and shift % pace == 0:
                        found[Pair(index, partner, shift // pace)] = None
    return list(found)


def _shared_index(pair: Pair, first: Block, second: Block) -> SharedIndex:
    low = min(0, pair.offset)
    high = max(first.ranges[pair.first], second.ranges[pair.second] + pair.offset)
    return SharedIndex(pair, low, high - low)


def _values(side: Side, shared: Sequence[SharedIndex], is_first: bool) -> list[Affine]:
    """The shared point at which an execution of the side's block takes place."""
    if is_first:
        return [Affine.index(side.dim(s.pair.first)) - s.low for s in shared]
    return [Affine.index(side.dim(s.pair.second)) + s.pair.offset - s.low for s in shared]


def _outer_uses(shared: Sequence[SharedIndex], first: Side, second: Side) -> dict[str, OuterUse] | Declined:
    """Direction and aggregation of each buffer in the block over the shared indexes, as far as they
    may differ from those of the one view that a side has of it."""
    uses: dict[str, OuterUse] = {}
    used = [b for b in first.by_buffer if b in second.by_buffer or b in first.involved]
    used += [b for b in second.by_buffer if b in second.involved and b not in first.by_buffer]
    for buffer in used:
        use = _outer_use(buffer, shared, first, second)
        if isinstance(use, Declined):
            return use
        uses[buffer] = use
    return uses


def _outer_use(buffer: str, shared: Sequence[SharedIndex], first: Side, second: Side) -> OuterUse | Declined:
    scope = first.scope
    refs = [r for side in (first, second) for r in side.views(buffer)]
    writers = [r for r in refs if r.direction.writes]
    if not writers:
        return OuterUse(Direction.IN, None)
    if scope.refinement(buffer).combines:
        alone = len(refs) == 1  # one view writes as it did before; several combine as the block around does
        return OuterUse(Direction.OUT, (writers[0] if alone else scope.refinement(buffer)).aggregation)
    once = all(_writes_in_one_point(buffer, shared, side, side is first) for side in (first, second))
    if once:
        old = _needs_old(buffer, shared, first, second)
        return OuterUse(Direction.INOUT if old else Direction.OUT, Aggregation.ASSIGN)
    if len(refs) == 1:
        return OuterUse(writers[0].direction, writers[0].aggregation)
    return Declined(f"an element of '{buffer}' would be written at several shared points and also read")


def _writes_in_one_point(buffer: str, shared: Sequence[SharedIndex], side: Side, is_first: bool) -> bool:
    """Whether each element that the side writes is written at one shared point only."""
    refs = [r for r in side.views(buffer) if r.direction.writes]
    mine = [a for a in side.to(buffer) if a.writes] if refs else []
    if not mine or all(r.aggregation is Aggregation.ASSIGN for r in refs):
        return True
    twin = side.twin("t.")
    here, there = _values(side, shared, is_first), _values(twin, shared, is_first)
    for one in mine:
        for other in (a for a in twin.to(buffer) if a.writes):
            domain = relation(one, other)
            if domain.is_empty():
                continue
            if any(domain.bounds(h - t) != (0, 0) for h, t in zip(here, there, strict=True)):
                return False
    return True


def _needs_old(buffer: str, shared: Sequence[SharedIndex], first: Side, second: Side) -> bool:
    """Whether some shared point reads an element that it has not written before."""
    if any(r.direction.reads for r in first.views(buffer)):
        return True
    if not any(r.direction.reads for r in second.views(buffer)):
        return False
    rank = len(first.scope.refinement(buffer).shape)
    written = _touched(
        [a for a in first.to(buffer) if a.writes and not a.conditional],
        _values(first, shared, True),
        first.scope,
        rank,
    )
    read = _touched(
        [a for a in second.to(buffer) if a.reads], _values(second, shared, False), second.scope, rank
    )
    return not read.is_subset(written)


def _touched(found: Sequence[Access], point: Sequence[Affine], scope: Scope, rank: int) -> Domain:
    """The set of (index of the scope, shared point, element) that the accesses touch."""
    outer = [i.name for i in scope.block.indexes]
    names = [*outer, *(f"#{at}" for at in range(len(point))), *(f"@{at}" for at in range(rank))]
    total = Domain.empty(names)
    for access in found:
        values = (*(Affine.index(name) for name in outer), *point, *access.address)
        total = total.union(access.domain().image(values, names))
    return total


# -- profit ---------------------------------------------------------------------------------


def _shaped(pairs: list[Pair], first: Side, second: Side, summing: bool = False) -> tuple[list[Pair], str]:
    """Leave out pairs that would spoil the shape of a block, until none does; `summing`: but for those over
    which a block adds up results that it keeps in a cache."""
    reason = ""
    while spoilt := next(_spoilers(pairs, first, second, summing), None):
        pair, reason = spoilt
        pairs = [p for p in pairs if p is not pair]
    return pairs, reason


def _spoilers(pairs: list[Pair], first: Side, second: Side, summing: bool) -> Iterator[tuple[Pair, str]]:
    for side, names in ((first, [p.first for p in pairs]), (second, [p.second for p in pairs])):
        if side.all_shared(names):
            continue
        for write in side.writes:
            if not side.left(write, names):
                continue
            for pair, name in zip(pairs, names, strict=True):
                used = side.depends(write, name)
                if not used and summing:
                    continue
                if not used:
                    yield (
                        pair,
                        (
                            f"'{name}' is a reduction index of '{side.block.name}': outside of its output "
                            f"indexes, the accumulators of '{write.buffer}' would leave the registers"
                        ),
                    )
                elif write.element[-1].coefficient(side.dim(name)) in (1, -1):
                    yield (
                        pair,
                        (
                            f"'{name}' is the lane index of '{side.block.name}', which would keep its other "
                            "output indexes inside and lose it"
                        ),
                    )


def _weigh(
    shared: tuple[SharedIndex, ...],
    uses: Mapping[str, OuterUse],
    users: Callable[[str], int],
    sides: tuple[Side, Side],
    memories: Sequence[Memory],
) -> Plan | Declined:
    first, second = sides
    names = [s.pair.first for s in shared], [s.pair.second for s in shared]
    for side, own in zip(sides, names, strict=True):
        mine, whole = prod(side.block.ranges[n] for n in own), prod(s.size for s in shared)
        if 2 * mine < whole:
            return Declined(f"'{side.block.name}' would run at {mine} of {whole} shared points only")
    flat = all(_is_flat(side, own) for side, own in zip(sides, names, strict=True))
    common = _common_buffers(first, second)
    if all(uses[b].direction is Direction.IN for b in common):
        exact = all(s.pair.offset == 0 and s.low == 0 for s in shared)
        same = all(
            len(set(side.block.ranges) - set(own)) == 0 for side, own in zip(sides, names, strict=True)
        )
        if not (flat and exact and same and not first.block.constraints and not second.block.constraints):
            return Declined(
                "they only read buffers in common and would not become one flat block", related=False
            )
    reusing = [side for side, own in zip(sides, names, strict=True) if _reuses_operands(side, own)]
    if len(reusing) == len(sides):
        return Declined("two reductions that reuse operands over the shared points compete for registers")
    if reusing and (strewn := next((b for b in common if _strewn(b, sides, names)), "")):
        name = reusing[0].block.name
        return Declined(
            f"both write '{strewn}', each elsewhere, so that no tile of results of '{name}' is a box"
        )
    met = [b for b in common if _meet(first, second, b)]
    if not met:
        return Declined("they write different elements of what both use")
    gain = sum(_gain(first.scope, b, uses[b].direction.writes, users(b)) for b in met)
    loss = sum(_reread(side, own) for side, own in zip(sides, names, strict=True))
    loss += _summed_in_memory(sides, names, common, memories)
    if gain <= loss:
        return Declined(f"it saves {gain} bytes of traffic and costs {loss} bytes of operands read again")
    pieces = sum(_in_pieces(side, own, memories) for side, own in zip(sides, names, strict=True))
    if gain * _PIECES <= pieces:
        return Declined(
            f"it saves {gain} bytes of traffic, and {pieces} bytes of operands come in pieces of rows"
        )
    if reason := _too_large(common, sides, names, memories):
        return Declined(reason)
    return Plan(shared, uses, gain - loss, flat, frozenset(common) - frozenset(met))


def _is_flat(side: Side, shared: Sequence[str]) -> bool:
    return not side.block.children and set(side.block.ranges) == set(shared)


def _common_buffers(first: Side, second: Side) -> list[str]:
    return [buffer for buffer in first.by_buffer if buffer in second.by_buffer]


def _meet(first: Side, second: Side, buffer: str) -> bool:
    """Whether two blocks use elements of a buffer in common: those that neither reads may differ."""
    found = (*first.to(buffer), *second.to(buffer))
    if first.scope.refinement(buffer).combines or any(access.reads for access in found):
        return True
    rank = len(first.scope.refinement(buffer).shape)
    one, other = (_touched(side.to(buffer), (), first.scope, rank) for side in (first, second))
    return not one.intersect(other).is_empty()


def _gain(scope: Scope, buffer: str, written: bool, users: int) -> int:
    """Bytes that no longer travel for a buffer that both blocks use."""
    size = scope.bytes[buffer]
    private = scope.refinement(buffer).direction is Direction.NEW and users == 2
    return 2 * size if private and written else size


def _reuses_operands(side: Side, shared: Sequence[str]) -> bool:
    """Whether the block reduces over indexes of its own, at each shared point, operands that
    other shared points use too: such a reduction wants a register tile of shared points."""
    if side.all_shared(shared):
        return False
    reduced = {d for write in side.writes for d in side.unused(write, shared)}
    return any(
        reduced & side.left(read, shared) and not all(side.depends(read, name) for name in shared)
        for read in side.reads
    )


def _strewn(buffer: str, sides: tuple[Side, Side], shared: tuple[Sequence[str], Sequence[str]]) -> bool:
    """Whether both sides write a buffer, and what they write moves differently over the shared points: the
    box around it is the whole buffer."""
    moves = []
    for side, own in zip(sides, shared, strict=True):
        number = {side.dim(name): Affine.index(str(at)) for at, name in enumerate(own)}
        writes = [access.element for access in side.to(buffer) if access.writes]
        moves.append({tuple(e.only(frozenset(number)).substitute(number).terms for e in w) for w in writes})
    return all(moves) and moves[0] != moves[1]


def _reread(side: Side, shared: Sequence[str]) -> int:
    """Bytes of operands that a reduction with output indexes inside reads once for each shared
    point, beyond once for each shared index that they depend on."""
    if side.all_shared(shared):
        return 0
    keeps_output = any(side.left(w, shared) and side.unused(w, shared) for w in side.writes)
    if not keeps_output:
        return 0
    points = prod(side.block.ranges[n] for n in shared)
    total = 0
    for read in dict.fromkeys(side.reads):
        reached = prod(side.block.ranges[n] for n in shared if side.depends(read, n))
        total += (points - reached) * _point_bytes(side, read, shared)
    return total


def _summed_in_memory(
    sides: tuple[Side, Side],
    names: tuple[Sequence[str], Sequence[str]],
    common: Sequence[str],
    memories: Sequence[Memory],
) -> int:
    """What it costs to add up results over shared points in a cache, and not in registers, as bytes of the
    largest buffer that both use: all that travels of it in the time in which the results of each point are
    loaded and stored, and it is read for the second time, from a core's own cache."""
    sums = points = 0
    for side, shared in zip(sides, names, strict=True):
        for write in side.writes:
            summed = not all(side.depends(write, name) for name in shared)
            if side.left(write, shared) and summed:
                sums += _point_bytes(side, write, shared)
                points = prod(side.block.ranges[n] for n in shared)
    if not sums:
        return 0
    size = max(sides[0].scope.bytes[buffer] for buffer in common)
    near, far = (memories[min(_level(n, memories), len(memories) - 1)] for n in (sums, size))
    own = own_cache(memories) or far
    cycles = 2 * sums * points / (near.bytes_per_cycle or inf) + size / (own.bytes_per_cycle or inf)
    return ceil(cycles * (far.bytes_per_cycle or 1))


def _in_pieces(side: Side, shared: Sequence[str], memories: Sequence[Memory]) -> int:
    """Bytes of operands beyond the caches of a core whose rows go along shared indexes, while the block
    reduces over the rows, and uses each element once: as many shared points as registers hold take a
    piece of each row at a time, and units share out pieces of rows, not rows."""
    own = own_cache(memories)
    reduced = {d for write in side.writes for d in side.unused(write, shared)}
    if own is None or own.bytes is None or not reduced:
        return 0
    tiled, total = _reuses_operands(side, shared), 0
    for read in dict.fromkeys(side.reads):
        if tiled and not _taken_once(side, read):
            continue
        dims = {d for d, _ in side.own(read.element[-1])} if read.element else set()
        if dims and dims <= set(shared) and reduced & side.left(read, shared):
            whole = side.scope.bytes[read.buffer]
            total += whole if whole > own.bytes else 0
    return total


def _taken_once(side: Side, read: Access) -> bool:
    """Whether no two points of the block load the same element, as far as its indexes show."""
    several = (side.dim(name) for name, length in side.block.ranges.items() if length > 1)
    return all(any(expr.coefficient(dim) for expr in read.element) for dim in several)


def _point_bytes(side: Side, access: Access, shared: Sequence[str]) -> int:
    """Bytes of the box that the access touches at one shared point."""
    fixed = side.scope.names.union(map(side.dim, shared))
    ref = side.scope.refinement(access.buffer)
    domain = access.domain()
    if domain.is_empty():
        return 0
    total = ref.dtype.bytes
    for expr in access.element:
        limits = domain.bounds(expr.without(fixed))
        if limits is not None:
            total *= limits[1] - limits[0] + 1
    return total


def _too_large(
    common: Sequence[str],
    sides: tuple[Side, Side],
    names: tuple[Sequence[str], Sequence[str]],
    memories: Sequence[Memory],
) -> str:
    """Why what a shared point keeps alive would not be nearer than the whole buffers are."""
    live = whole = 0
    for buffer in common:
        boxes = [
            _point_bytes(side, access, own)
            for side, own in zip(sides, names, strict=True)
            for access in side.to(buffer)
        ]
        live += max(boxes, default=0)
        whole += sides[0].scope.bytes[buffer]
    near = _level(live, memories)
    if near == 0 or near < _level(whole, memories):
        return ""
    return (
        f"one shared point would keep {live} bytes alive, more than {memories[0].name} holds "
        f"({memories[0].bytes}) and no nearer than the whole"
    )


def _level(size: int, memories: Sequence[Memory]) -> int:
    """The position of the nearest memory that holds `size` bytes."""
    for at, memory in enumerate(memories):
        if memory.bytes is None or size <= memory.bytes:
            return at
    return len(memories)
