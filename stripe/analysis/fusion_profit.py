"""Does it pay that two blocks share their outer indexes?

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
from math import ceil, inf, prod

from hwconfigs.model import Memory, own_cache
from stripe.affine import Affine
from stripe.analysis.deps import Access
from stripe.analysis.fusion_plan import Declined, OuterUse, Pair, Plan, SharedIndex
from stripe.analysis.fusion_sides import Scope, Side, common_buffers, is_flat, meet
from stripe.ir import Direction

_PIECES = 16  # times as many bytes come in pieces of rows in the time that it takes to fetch the bytes again


def shaped(pairs: list[Pair], first: Side, second: Side, summing: bool = False) -> tuple[list[Pair], str]:
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


def weigh(
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
    flat = all(is_flat(side, own) for side, own in zip(sides, names, strict=True))
    common = common_buffers(first, second)
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
    met = [b for b in common if meet(first, second, b)]
    if not met:
        return Declined("they write different elements of what both use")
    saved = sum(gain(first.scope, b, uses[b].direction.writes, users(b)) for b in met)
    loss = sum(_reread(side, own) for side, own in zip(sides, names, strict=True))
    loss += _summed_in_memory(sides, names, common, memories)
    if saved <= loss:
        return Declined(f"it saves {saved} bytes of traffic and costs {loss} bytes of operands read again")
    pieces = sum(_in_pieces(side, own, memories) for side, own in zip(sides, names, strict=True))
    if saved * _PIECES <= pieces:
        return Declined(
            f"it saves {saved} bytes of traffic, and {pieces} bytes of operands come in pieces of rows"
        )
    if reason := _too_large(common, sides, names, memories):
        return Declined(reason)
    return Plan(shared, uses, saved - loss, flat, frozenset(common) - frozenset(met))


def gain(scope: Scope, buffer: str, written: bool, users: int) -> int:
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
