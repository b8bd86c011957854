"""May two neighbouring blocks share their outer indexes, and which ones?

A plan pairs indexes of the first block with indexes of the second. It is *legal* if every two
accesses to one element, of which one writes, happen at the same point of the shared indexes:
then all that the first block does at a shared point can be followed by all that the second
does there. That is a question about integer sets (`stripe.analysis.deps`), with no list of
patterns, and it is answered index by index, since a set of pairs is legal exactly if each is.

Whether it pays: `stripe.analysis.fusion_profit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwconfigs.model import Memory
from stripe.affine import Affine
from stripe.analysis.deps import Access, conflicts, relation
from stripe.analysis.fusion_plan import Declined, OuterUse, Pair, Plan, Rank, SharedIndex
from stripe.analysis.fusion_profit import gain, shaped, weigh
from stripe.analysis.fusion_sides import (
    Candidate,
    Side,
    common_buffers,
    is_flat,
    meet,
    settled,
    touched,
)
from stripe.ir import Aggregation, Block, Direction
from stripe.poly import PolyhedralLimit


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
    if not writing and _no_leaf(first, second, common):  # then only one flat block pays, see weigh
        return None
    most = sum([gain(first.scope, buffer, buffer in writing, users(buffer)) for buffer in common])
    return flat, min(len(first.sizes), len(second.sizes)), most


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
    flat = all(is_flat(side, own) for side, own in zip((first, second), names, strict=True))
    apart = frozenset(b for b in common_buffers(first, second) if not meet(first, second, b))
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
    kept, reason = shaped(pairs, first, second)
    found = _weighed(kept, reason, first, second, users, memories)
    if isinstance(found, Declined) and memories and memories[0].kind == "cached":
        summing, _ = shaped(pairs, first, second, summing=True)
        if len(summing) > len(kept):
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
    return weigh(shared, uses, users, (first, second), memories)


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
    written = touched(
        [a for a in first.to(buffer) if a.writes and not a.conditional],
        _values(first, shared, True),
        first.scope,
        rank,
    )
    read = touched(
        [a for a in second.to(buffer) if a.reads], _values(second, shared, False), second.scope, rank
    )
    return not read.is_subset(written)
