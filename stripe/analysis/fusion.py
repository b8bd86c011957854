"""May two neighbouring blocks share their outer indexes, which ones, and does it pay?

A plan pairs indexes of the first block with indexes of the second. It is *legal* if every two
accesses to one element, of which one writes, happen at the same point of the shared indexes:
then all that the first block does at a shared point can be followed by all that the second
does there. That is a question about integer sets (`stripe.analysis.deps`), with no list of
patterns, and it is answered index by index, since a set of pairs is legal exactly if each is.

The *profit model* is in bytes, with the capacities of the target's memories:

  gain   what no longer travels: an intermediate that nothing else uses is neither written nor
         read, another buffer that both use is read once less;
  loss   a reduction that keeps output indexes inside re-reads, at every shared point, operands
         that it could otherwise reuse over the shared indexes in registers;
  limit  what one shared point keeps alive must fit in a memory nearer than the one that holds
         the whole intermediate, or in the nearest;
  shape  a shared reduction index must leave no output index inside (the accumulators would
         leave the registers at each step), the lane index must not leave a block that keeps
         another output index inside, and two reductions that both reuse operands over the
         shared points would compete for the registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

from hwconfigs.model import Memory
from stripe.affine import Affine
from stripe.analysis.deps import Access, accesses, conflicts, relation
from stripe.ir import Aggregation, Block, Direction, Refinement
from stripe.poly import Domain, PolyhedralLimit
from stripe.visit import buffers_used


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
    """A fusion that is legal and pays. `flat`: neither block keeps an index of its own."""

    shared: tuple[SharedIndex, ...]
    uses: Mapping[str, OuterUse]
    gain: int
    flat: bool

    @property
    def rank(self) -> Rank:
        return self.flat, len(self.shared), self.gain


@dataclass(frozen=True, slots=True)
class Declined:
    """Why two blocks stay apart; `related` is false where they have nothing in common."""

    reason: str
    related: bool = True


@dataclass(frozen=True)
class _Side:
    """One of the two blocks, with its accesses at one point of the enclosing block."""

    scope: Block
    block: Block
    prefix: str

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        return accesses(self.scope, self.block, self.prefix)

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.reads)

    @cached_property
    def writes(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.writes)

    @cached_property
    def _views(self) -> Mapping[str, list[Refinement]]:
        found: dict[str, list[Refinement]] = {}
        for ref in self.block.refinements:
            if ref.direction is not Direction.NEW:
                found.setdefault(ref.source, []).append(ref)
        return found

    def views(self, buffer: str) -> Sequence[Refinement]:
        """The block's views of a buffer of the enclosing block."""
        return self._views.get(buffer, ())

    def dim(self, index: str) -> str:
        return self.prefix + index

    def own(self, expr: Affine) -> Iterator[tuple[str, int]]:
        """The terms of the block's own ranged indexes: (index, coefficient)."""
        for name in self.block.ranges:
            if coefficient := expr.coefficient(self.dim(name)):
                yield name, coefficient

    def left(self, access: Access, shared: Iterable[str]) -> frozenset[str]:
        """Dimensions of the nest, not shared, that the element depends on."""
        fixed = {*self.scope.ranges, *(i.name for i in self.scope.indexes), *map(self.dim, shared)}
        return frozenset(n for expr in access.element for n in expr.names if n not in fixed)

    def unused(self, access: Access, shared: Iterable[str]) -> frozenset[str]:
        """Dimensions of the nest, not shared, that the element does not depend on: for a write,
        those that it reduces over."""
        used = {n for expr in access.element for n in expr.names}
        fixed = {*(i.name for i in self.scope.indexes), *map(self.dim, shared)}
        return frozenset(n for n in access.names if n not in used and n not in fixed)


@dataclass(frozen=True, slots=True)
class Sketch:
    """What a bound on the rank of a plan needs to know of a block."""

    indexes: int  # with a range of more than 1
    leaf: bool
    uses: Mapping[str, bool]  # each buffer of the enclosing block: whether it is written

    @staticmethod
    def of(block: Block) -> Sketch:
        uses: dict[str, bool] = {}
        for buffer, direction in buffers_used(block):
            uses[buffer] = uses.get(buffer, False) or direction.writes
        return Sketch(sum(size != 1 for size in block.ranges.values()), not block.children, uses)


def best_rank(scope: Block, first: Sketch, second: Sketch, users: Callable[[str], int]) -> Rank:
    """A bound on the rank of a plan for two children of `scope`, without any proof.

    `users`: how many statements of `scope` use a buffer.
    """
    few, many = sorted((first, second), key=lambda sketch: len(sketch.uses))
    gain = sum(
        _gain(scope, buffer, written or many.uses[buffer], users(buffer))
        for buffer, written in few.uses.items()
        if buffer in many.uses
    )
    return first.leaf and second.leaf, min(first.indexes, second.indexes), gain


def plan_fusion(
    scope: Block, first: Block, second: Block, users: Mapping[str, int], memories: Sequence[Memory]
) -> Plan | Declined:
    """Decide whether `first` and `second`, children of `scope` with nothing that must run between
    them, are put under shared outer indexes. `users`: how many statements of `scope` use each
    buffer that `first` uses. `memories`: nearest first, without registers."""
    try:
        return _plan(_Side(scope, first, "a."), _Side(scope, second, "b."), users, memories)
    except PolyhedralLimit:
        return Declined("their accesses are too complicated to compare")


def _plan(
    first: _Side, second: _Side, users: Mapping[str, int], memories: Sequence[Memory]
) -> Plan | Declined:
    if declined := _unfit(first, second):
        return declined
    ranged = bool(first.block.ranges), bool(second.block.ranges)
    pairs, reason = _legal_pairs(first, second)
    if not pairs and any(ranged):
        return Declined(reason, related=all(ranged))
    pairs, reason = _shaped(pairs, first, second)
    if not pairs and any(ranged):
        return Declined(reason)
    shared = tuple(_shared_index(pair, first.block, second.block) for pair in pairs)
    uses = _outer_uses(shared, first, second)
    if isinstance(uses, Declined):
        return uses
    return _weigh(shared, uses, users, (first, second), memories)


# -- is there anything to share -------------------------------------------------------------


def _unfit(first: _Side, second: _Side) -> Declined | None:
    common = {a.storage for a in first.accesses} & {b.storage for b in second.accesses}
    if not common:
        return Declined("they use no buffer in common", related=False)
    for side in (first, second):
        block = side.block
        if block.location is not None or block.inflight != 1 or block.tags:
            return Declined(f"'{block.name}' has a location or tags from an earlier pass")
    names: dict[str, set[str]] = {}
    written: set[str] = set()
    for access in (*first.accesses, *second.accesses):
        names.setdefault(access.storage, set()).add(access.buffer)
        if access.writes:
            written.add(access.storage)
    for storage in written:
        if len(names[storage]) > 1:
            both = " and ".join(f"'{name}'" for name in sorted(names[storage]))
            return Declined(f"{both} are views of one buffer that is written")
    return None


# -- legality -------------------------------------------------------------------------------


def _combines(scope: Block, buffer: str) -> bool:
    """Whether all writes to the buffer in `scope` are aggregated, in any order."""
    return scope.refinement(buffer).aggregation not in (None, Aggregation.ASSIGN)


def _ordered_conflicts(first: _Side, second: _Side) -> list[tuple[Access, Access]]:
    return [
        (one, other)
        for one, other in conflicts(first.accesses, second.accesses)
        if not _combines(first.scope, one.buffer)
    ]


def _legal_pairs(first: _Side, second: _Side) -> tuple[list[Pair], str]:
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
                f"along '{pair.first}' (a halo or a reduction); producers are not recomputed"
            )
    order = list(first.block.ranges)
    return sorted(chosen, key=lambda pair: order.index(pair.first)), reason


def _candidates(first: _Side, second: _Side, ordered: Sequence[tuple[Access, Access]]) -> list[Pair]:
    """Indexes that move along the same dimension of a common buffer at the same pace."""
    reads = [(a, b) for a in first.reads for b in second.reads if a.storage == b.storage]
    found: dict[Pair, None] = {}
    for one, other in (*ordered, *reads):
        for mine, theirs in zip(one.address, other.address, strict=True):
            for index, pace in first.own(mine):
                for partner, step in second.own(theirs):
                    shift = theirs.const - mine.const
                    if pace == step and shift % pace == 0:
                        found[Pair(index, partner, shift // pace)] = None
    return list(found)


def _shared_index(pair: Pair, first: Block, second: Block) -> SharedIndex:
    low = min(0, pair.offset)
    high = max(first.ranges[pair.first], second.ranges[pair.second] + pair.offset)
    return SharedIndex(pair, low, high - low)


def _values(side: _Side, shared: Sequence[SharedIndex], is_first: bool) -> list[Affine]:
    """The shared point at which an execution of the side's block takes place."""
    if is_first:
        return [Affine.index(side.dim(s.pair.first)) - s.low for s in shared]
    return [Affine.index(side.dim(s.pair.second)) + s.pair.offset - s.low for s in shared]


def _outer_uses(shared: Sequence[SharedIndex], first: _Side, second: _Side) -> dict[str, OuterUse] | Declined:
    """Direction and aggregation of each buffer in the block over the shared indexes."""
    uses: dict[str, OuterUse] = {}
    for buffer in dict.fromkeys(a.buffer for a in (*first.accesses, *second.accesses)):
        use = _outer_use(buffer, shared, first, second)
        if isinstance(use, Declined):
            return use
        uses[buffer] = use
    return uses


def _outer_use(
    buffer: str, shared: Sequence[SharedIndex], first: _Side, second: _Side
) -> OuterUse | Declined:
    scope = first.scope
    refs = [r for side in (first, second) for r in side.views(buffer)]
    writers = [r for r in refs if r.direction.writes]
    if not writers:
        return OuterUse(Direction.IN, None)
    if _combines(scope, buffer):
        return OuterUse(Direction.OUT, scope.refinement(buffer).aggregation)
    once = all(_writes_in_one_point(buffer, shared, side, side is first) for side in (first, second))
    if once:
        old = _needs_old(buffer, shared, first, second)
        return OuterUse(Direction.INOUT if old else Direction.OUT, Aggregation.ASSIGN)
    if len(refs) == 1:
        return OuterUse(writers[0].direction, writers[0].aggregation)
    return Declined(f"an element of '{buffer}' would be written at several shared points and also read")


def _writes_in_one_point(buffer: str, shared: Sequence[SharedIndex], side: _Side, is_first: bool) -> bool:
    """Whether each element that the side writes is written at one shared point only."""
    refs = [r for r in side.views(buffer) if r.direction.writes]
    mine = [a for a in side.writes if a.buffer == buffer] if refs else []
    if not mine or all(r.aggregation is Aggregation.ASSIGN for r in refs):
        return True
    twin = _Side(side.scope, side.block, "t.")
    here, there = _values(side, shared, is_first), _values(twin, shared, is_first)
    for one in mine:
        for other in (a for a in twin.writes if a.buffer == buffer):
            domain = relation(one, other)
            if domain.is_empty():
                continue
            if any(domain.bounds(h - t) != (0, 0) for h, t in zip(here, there, strict=True)):
                return False
    return True


def _needs_old(buffer: str, shared: Sequence[SharedIndex], first: _Side, second: _Side) -> bool:
    """Whether some shared point reads an element that it has not written before."""
    if any(r.direction.reads for r in first.views(buffer)):
        return True
    if not any(r.direction.reads for r in second.views(buffer)):
        return False
    rank = len(first.scope.refinement(buffer).shape)
    written = _touched(
        [a for a in first.writes if a.buffer == buffer and not a.conditional],
        _values(first, shared, True),
        first.scope,
        rank,
    )
    read = _touched(
        [a for a in second.reads if a.buffer == buffer], _values(second, shared, False), second.scope, rank
    )
    return not read.is_subset(written)


def _touched(found: Sequence[Access], point: Sequence[Affine], scope: Block, rank: int) -> Domain:
    """The set of (index of the scope, shared point, element) that the accesses touch."""
    outer = [i.name for i in scope.indexes]
    names = [*outer, *(f"#{at}" for at in range(len(point))), *(f"@{at}" for at in range(rank))]
    total = Domain.empty(names)
    for access in found:
        values = (*(Affine.index(name) for name in outer), *point, *access.address)
        total = total.union(access.domain().image(values, names))
    return total


# -- profit ---------------------------------------------------------------------------------


def _shaped(pairs: list[Pair], first: _Side, second: _Side) -> tuple[list[Pair], str]:
    """Leave out pairs that would spoil the shape of a block, until none does."""
    reason = ""
    while spoilt := next(_spoilers(pairs, first, second), None):
        pair, reason = spoilt
        pairs = [p for p in pairs if p is not pair]
    return pairs, reason


def _spoilers(pairs: list[Pair], first: _Side, second: _Side) -> Iterator[tuple[Pair, str]]:
    for side, names in ((first, [p.first for p in pairs]), (second, [p.second for p in pairs])):
        for write in side.writes:
            if not side.left(write, names):
                continue
            for pair, name in zip(pairs, names, strict=True):
                used = any(expr.coefficient(side.dim(name)) for expr in write.element)
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
    users: Mapping[str, int],
    sides: tuple[_Side, _Side],
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
    if all(_reuses_operands(side, own) for side, own in zip(sides, names, strict=True)):
        return Declined("two reductions that reuse operands over the shared points compete for registers")
    gain = sum(_gain(first.scope, b, uses[b].direction.writes, users[b]) for b in common)
    loss = sum(_reread(side, own) for side, own in zip(sides, names, strict=True))
    if gain <= loss:
        return Declined(f"it saves {gain} bytes of traffic and costs {loss} bytes of operands read again")
    if reason := _too_large(common, sides, names, memories):
        return Declined(reason)
    return Plan(shared, uses, gain - loss, flat)


def _is_flat(side: _Side, shared: Sequence[str]) -> bool:
    return not side.block.children and set(side.block.ranges) == set(shared)


def _common_buffers(first: _Side, second: _Side) -> list[str]:
    theirs = {a.buffer for a in second.accesses}
    return list(dict.fromkeys(a.buffer for a in first.accesses if a.buffer in theirs))


def _bytes(scope: Block, buffer: str) -> int:
    ref = scope.refinement(buffer)
    return prod(ref.shape) * ref.dtype.bytes


def _gain(scope: Block, buffer: str, written: bool, users: int) -> int:
    """Bytes that no longer travel for a buffer that both blocks use."""
    size = _bytes(scope, buffer)
    private = scope.refinement(buffer).direction is Direction.NEW and users == 2
    return 2 * size if private and written else size


def _reuses_operands(side: _Side, shared: Sequence[str]) -> bool:
    """Whether the block reduces over indexes of its own, at each shared point, operands that
    other shared points use too: such a reduction wants a register tile of shared points."""
    reduced = {d for write in side.writes for d in side.unused(write, shared)}
    return any(
        reduced & side.left(read, shared)
        and any(not any(e.coefficient(side.dim(n)) for e in read.element) for n in shared)
        for read in side.reads
    )


def _reread(side: _Side, shared: Sequence[str]) -> int:
    """Bytes of operands that a reduction with output indexes inside reads once for each shared
    point, beyond once for each shared index that they depend on."""
    keeps_output = any(side.left(w, shared) and side.unused(w, shared) for w in side.writes)
    if not keeps_output:
        return 0
    points = prod(side.block.ranges[n] for n in shared)
    total = 0
    for read in dict.fromkeys(side.reads):
        reached = prod(
            side.block.ranges[n] for n in shared if any(e.coefficient(side.dim(n)) for e in read.element)
        )
        total += (points - reached) * _point_bytes(side, read, shared)
    return total


def _point_bytes(side: _Side, access: Access, shared: Sequence[str]) -> int:
    """Bytes of the box that the access touches at one shared point."""
    fixed = {*(i.name for i in side.scope.indexes), *map(side.dim, shared)}
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
    sides: tuple[_Side, _Side],
    names: tuple[Sequence[str], Sequence[str]],
    memories: Sequence[Memory],
) -> str:
    """Why what a shared point keeps alive would not be nearer than the whole buffers are."""
    live = whole = 0
    for buffer in common:
        boxes = [
            _point_bytes(side, access, own)
            for side, own in zip(sides, names, strict=True)
            for access in side.accesses
            if access.buffer == buffer
        ]
        live += max(boxes, default=0)
        whole += _bytes(sides[0].scope, buffer)
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
