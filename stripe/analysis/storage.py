"""Where in one memory do buffers go that are alive at different times?

    lower_bound   the bytes of the largest live set: no packing is smaller
    pack          an offset for each buffer; two that are alive together share no byte

This is offline dynamic storage allocation, which is NP-hard. `pack` places the buffers one after the other,
each in the tightest gap between those that are alive with it (best fit), in several orders; then it improves
the best of these by moving buffers of a stack that reaches the top forward in the order, and squeezes what is
still far from the bound (storage_squeeze), for a bounded number of steps. It is deterministic: the outcome
depends on sizes and times alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from stripe.analysis.storage_squeeze import squeezed

CLOSE = 1.005  # a packing this near to the lower bound is not improved
WORK = 1_200_000  # elementary steps that improving the order may take: some tenths of a second
FAR = 1.03  # a packing that is farther from the lower bound than this is squeezed
MOVES = 4000  # of squeezing
PATIENCE = 30  # moves without a gain before another order is taken up
STARTS = 6  # orders that are improved
MIXES = 120  # orders that weigh size, duration and crowd in different proportions


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer of `size` bytes, alive from time `start` to time `end`, both included. With `banks`, it takes
    its bytes at one address of each of these; None: of all."""

    size: int
    start: int
    end: int
    banks: frozenset[int] | None = None

    def meets(self, other: Life) -> bool:
        """Whether they have a bank in common."""
        return self.banks is None or other.banks is None or bool(self.banks & other.banks)


@dataclass(frozen=True, slots=True)
class Packing:
    """`offsets`, one for each buffer, and the bytes from 0 that they take together."""

    offsets: tuple[int, ...]
    height: int
    bound: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Buffers placed in an order: by the tightest gap, or the lowest."""

    height: int
    order: list[int]
    tightest: bool
    offsets: list[int]


def loads(lives: Sequence[Life]) -> list[int]:
    """The bytes that are alive at each time from 0."""
    changes = np.zeros(max((life.end for life in lives), default=-1) + 2, dtype=np.int64)
    for life in lives:
        changes[life.start] += life.size
        changes[life.end + 1] -= life.size
    return [int(load) for load in np.cumsum(changes)[:-1]]


def lower_bound(lives: Sequence[Life]) -> int:
    """The bytes of the largest set of buffers that are alive together in a bank."""
    banks = {bank for life in lives for bank in life.banks or ()}
    if not banks:
        return max(loads(lives), default=0)
    return max(max(loads([x for x in lives if x.banks is None or b in x.banks]), default=0) for b in banks)


def busiest_time(lives: Sequence[Life]) -> int:
    """The first time at which the most bytes are alive."""
    load = loads(lives)
    return load.index(max(load)) if load else 0


def pack(
    lives: Sequence[Life],
    align: int = 1,
    limit: int | None = None,
    fixed: Mapping[int, int] | None = None,
) -> Packing:
    """An offset for each buffer, a multiple of `align`; those of `fixed` are given. Improving goes on until
    the packing is near to its lower bound and within `limit` bytes, as far as that may be possible, or
    takes too long."""
    rounded = tuple(replace(life, size=-(-life.size // align) * align) for life in lives)
    return _packed(rounded, align, limit, tuple(sorted((fixed or {}).items())))


@lru_cache(maxsize=64)  # a pass that schedules asks before the one that places
def _packed(
    lives: tuple[Life, ...], align: int, limit: int | None, fixed: tuple[tuple[int, int], ...]
) -> Packing:
    if not lives:
        return Packing((), 0, 0)
    packer = _Packer(lives, limit, dict(fixed))
    found = packer.run()
    bound = lower_bound(lives)
    offsets = found.offsets
    if not fixed and found.height > min(int(bound * FAR), max(limit or 1 << 62, bound)):
        sizes = [life.size for life in lives]
        enough = min(int(bound * FAR), max(limit or 1 << 62, bound))
        offsets = squeezed(sizes, packer.near, offsets, bound, enough, align, MOVES)
    height = max(offset + life.size for offset, life in zip(offsets, lives, strict=True))
    return Packing(tuple(offsets), height, bound)


class _Packer:
    def __init__(self, lives: Sequence[Life], limit: int | None, fixed: Mapping[int, int]) -> None:
        self._fixed = fixed
        self._lives = _compressed(lives)
        self._sizes = [life.size for life in self._lives]
        self.near = _neighbours(self._lives)
        self._bound = lower_bound(self._lives)
        self._enough = max(self._bound, min(int(self._bound * CLOSE), limit or 1 << 62))
        self._work = 0

    def run(self) -> _Attempt:
        attempts: list[_Attempt] = []
        for order in self._orders():
            for tightest in (True, False):
                made = self._place(order, tightest)
                assert made is not None
                if made.height <= self._enough:
                    return made
                attempts.append(made)
        if not self._fixed:
            for number, order in enumerate(self._mixed()):
                attempts.sort(key=lambda attempt: attempt.height)
                del attempts[STARTS:]
                made = self._place(order, number % 2 == 0, attempts[-1].height)
                if made is not None:
                    attempts.append(made)
                if attempts[-1].height <= self._enough or self._work > WORK // 2:
                    break
        attempts.sort(key=lambda attempt: attempt.height)
        return attempts[0] if self._fixed else self._improved(attempts[:STARTS])

    def _mixed(self) -> Iterator[list[int]]:
        """Orders by products of powers of size, duration and crowd, a little disturbed."""
        chance = np.random.Generator(np.random.PCG64(0))  # always the same numbers
        lasts = np.array([life.end - life.start + 1 for life in self._lives])
        logs = np.log([np.maximum(self._sizes, 1), lasts, np.maximum(self._crowd(), 1)])
        given = sorted(self._fixed)
        for _ in range(MIXES):
            weight = chance.uniform(0, (1.0, 1.5, 6.0)) @ logs + chance.normal(0, 0.05, len(lasts))
            order = [int(i) for i in np.argsort(-weight, kind="stable")]
            yield [*given, *(i for i in order if i not in self._fixed)] if given else order

    def _crowd(self) -> list[int]:
        """For each buffer the most bytes that are alive at a time with it."""
        load = np.array(loads(self._lives))
        return [int(load[life.start : life.end + 1].max()) for life in self._lives]

    def _orders(self) -> list[list[int]]:
        """Orders to place the buffers in: what is hard to place goes first."""
        crowd = self._crowd()
        lasts = [life.end - life.start + 1 for life in self._lives]
        sizes = [life.size for life in self._lives]
        starts, ends = [life.start for life in self._lives], [life.end for life in self._lives]
        keys: list[list[tuple[int, int]]] = [
            [(-c, -s) for c, s in zip(crowd, sizes, strict=True)],
            [(-c, -d) for c, d in zip(crowd, lasts, strict=True)],
            [(-s, -d) for s, d in zip(sizes, lasts, strict=True)],
            [(-s * d, t) for s, d, t in zip(sizes, lasts, starts, strict=True)],
            [(-d, -s) for s, d in zip(sizes, lasts, strict=True)],
            [(t, -d) for t, d in zip(starts, lasts, strict=True)],
            [(-e, -d) for e, d in zip(ends, lasts, strict=True)],
        ]
        given = sorted(self._fixed)
        free = [i for i in range(len(sizes)) if i not in self._fixed]
        return [[*given, *sorted(free, key=key.__getitem__)] for key in keys]

    def _place(
        self, order: list[int], tightest: bool, below: int | None = None, before: _Attempt | None = None
    ) -> _Attempt | None:
        """Each buffer, in this order, in a gap; None as soon as it takes `below` bytes or more. What is
        placed first is taken from an attempt `before`, as far as the orders agree."""
        sizes, offsets = self._sizes, [-1] * len(order)
        known = _agreement(order, before.order) if before is not None else 0
        height = 0
        for i in order[:known]:
            assert before is not None
            offsets[i] = before.offsets[i]
            height = max(height, offsets[i] + sizes[i])
        for i in order[known:]:
            size, near = sizes[i], self.near[i]
            if i in self._fixed:
                offsets[i] = self._fixed[i]
                height = max(height, offsets[i] + size)
                continue
            self._work += len(near) + 4
            taken = [(offsets[j], sizes[j]) for j in near if offsets[j] >= 0]
            taken.sort()
            at, place, best = 0, -1, 1 << 62
            for low, length in taken:
                gap = low - at
                if size <= gap < best:
                    place, best = at, gap
                    if not tightest or gap == size:
                        break
                at = max(at, low + length)
            offsets[i] = at if place < 0 else place
            height = max(height, offsets[i] + size)
            if below is not None and height >= below:
                return None
        return _Attempt(height, order, tightest, offsets)

    def _improved(self, starts: list[_Attempt]) -> _Attempt:
        chance = random.Random(0)  # always the same numbers: the outcome is reproducible
        best = now = starts[0]
        rounds = stale = 0
        while self._work < WORK and best.height > self._enough:
            if stale > PATIENCE:
                rounds, stale = rounds + 1, 0
                now = starts[rounds] if rounds < len(starts) else self._shaken(best, chance)
            made = self._place(self._moved(now, chance), now.tightest, now.height + 1, now)
            if made is None:
                stale += 1
                continue
            stale = 0 if made.height < now.height else stale + 1
            now = made
            if now.height < best.height:
                best = now
        return best

    def _moved(self, now: _Attempt, chance: random.Random) -> list[int]:
        """The order with one buffer of a stack that reaches the top in front of one it conflicts with."""
        chain = self._stack(now, chance)
        chosen = chain[0] if chance.random() < 0.5 else chance.choice(chain)
        order = list(now.order)
        position = order.index(chosen)
        before = set(order[:position])
        earlier = [j for j in self.near[chosen] if j in before]
        if earlier:
            order.pop(position)
            order.insert(order.index(chance.choice(earlier)), chosen)
        else:
            other = order.index(chance.choice(self.near[chosen] or order))
            order[position], order[other] = order[other], order[position]
        self._work += len(order)
        return order

    def _stack(self, now: _Attempt, chance: random.Random) -> list[int]:
        """Buffers that lie one upon the other, from one that reaches the top down."""
        lives, offsets = self._lives, now.offsets
        tops = [i for i, life in enumerate(lives) if offsets[i] + life.size == now.height]
        chain = [chance.choice(tops)]
        while offsets[chain[-1]] > 0:
            upper = chain[-1]
            below = [j for j in self.near[upper] if offsets[j] + lives[j].size == offsets[upper]]
            if not below:
                break
            chain.append(chance.choice(below))
        return chain

    def _shaken(self, now: _Attempt, chance: random.Random) -> _Attempt:
        order = list(now.order)
        for _ in range(5):
            one, other = chance.randrange(len(order)), chance.randrange(len(order))
            order[one], order[other] = order[other], order[one]
        made = self._place(order, now.tightest)
        assert made is not None
        return made


def _agreement(one: list[int], other: list[int]) -> int:
    """How many elements from the first on are equal."""
    return next((at for at, (x, y) in enumerate(zip(one, other, strict=True)) if x != y), len(one))


def _compressed(lives: Sequence[Life]) -> list[Life]:
    """The same overlaps with times that count starts only."""
    number = {time: at for at, time in enumerate(sorted({life.start for life in lives}))}
    starts = np.array(sorted(number))
    return [
        replace(
            life,
            start=number[life.start],
            end=int(np.searchsorted(starts, life.end, side="right")) - 1,
        )
        for life in lives
    ]


def _neighbours(lives: Sequence[Life]) -> list[list[int]]:
    """For each buffer, those that are alive with it."""
    near: list[list[int]] = [[] for _ in lives]
    alive: list[int] = []
    for i in sorted(range(len(lives)), key=lambda i: (lives[i].start, i)):
        alive = [j for j in alive if lives[j].end >= lives[i].start]
        for j in alive:
            if lives[i].meets(lives[j]):
                near[i].append(j)
                near[j].append(i)
        alive.append(i)
    return near
