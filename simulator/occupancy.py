"""How many bytes of each memory are alive over time, in the run as it went.

A buffer of a point is alive from the begin of the first task that uses it to the end of the last one. Inputs
of the program are alive all the time, its outputs from their first use on. What a period that repeats
changes is repeated with it; where that makes more than `LIMIT` changes, several become one that stands for
the most of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from hwconfigs.model import HwConfig
from simulator.plan import Plan
from simulator.running import Point, Running
from stripe.analysis.liveness import memory_of, part_bytes, parts_of
from stripe.ir import Direction, Refinement
from stripe.visit import buffers_used

LIMIT = 1024  # changes of a memory that are kept

Change = tuple[int, int]  # a tick, and the bytes that are alive from then on


@dataclass(slots=True)
class Level:
    """The bytes of one memory that are alive: from each of `ticks` on, `sizes`. Where it is not `exact`, a
    size is the most until the next."""

    ticks: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    exact: bool = True

    @property
    def now(self) -> int:
        return self.sizes[-1] if self.sizes else 0

    @property
    def most(self) -> int:
        return max(self.sizes, default=0)

    def put(self, tick: int, size: int) -> None:
        """From this tick on, which is not before the last one, so many bytes are alive."""
        if self.ticks and self.ticks[-1] == tick:
            self.ticks.pop()
            self.sizes.pop()
        if size != self.now:
            self.ticks.append(tick)
            self.sizes.append(size)
            if len(self.ticks) > 16 * LIMIT:
                self.thin(LIMIT)

    def repeat(self, since: int, until: int, times: int) -> None:
        """What went on between two ticks, the second one excluded, goes on so many times more."""
        first, last = bisect_right(self.ticks, since), bisect_left(self.ticks, until)
        pattern = [(since, self.sizes[first - 1] if first else 0)]
        pattern += zip(self.ticks[first:last], self.sizes[first:last], strict=True)
        after = self.now
        del self.ticks[last:], self.sizes[last:]
        if len(pattern) * times > LIMIT and len(pattern) > 1:
            pattern = _fewer(pattern, -(-len(pattern) * times // LIMIT))
            self.exact = False
        period = until - since
        for number in range(1, times + 1 if len(pattern) > 1 else 2):
            for tick, size in pattern:
                self.put(tick + number * period, size)
        self.put(until + times * period, after)

    def thin(self, limit: int) -> None:
        """Keep at most so many changes."""
        if len(self.ticks) > limit:
            changes = list(zip(self.ticks, self.sizes, strict=True))
            # The last one stays: it is what is alive now.
            kept = [*_fewer(changes[:-1], -(-len(changes) // max(limit - 1, 1))), changes[-1]]
            self.ticks, self.sizes = [tick for tick, _ in kept], [size for _, size in kept]
            self.exact = False


def _fewer(changes: Sequence[Change], many: int) -> list[Change]:
    """The most of each `many` changes in a row, from the first of them on."""
    groups = (changes[at : at + many] for at in range(0, len(changes), many))
    return [(group[0][0], max(size for _, size in group)) for group in groups]


@dataclass(frozen=True, slots=True)
class _Held:
    """A buffer of a block: which items use it, and whether it is alive beyond the last of them."""

    memory: str
    bytes: int
    users: tuple[int, ...]
    stays: bool


class Occupancy:
    """What is alive in each memory while a timeline goes through a program."""

    def __init__(self, hw: HwConfig) -> None:
        self._hw = hw
        self._of: dict[Plan, tuple[tuple[_Held, ...], dict[int, tuple[int, ...]]]] = {}
        self.levels: dict[str, Level] = {}

    def inputs(self, plan: Plan) -> None:
        """What the caller holds when the program starts."""
        for ref in plan.block.refinements:
            if ref.direction is Direction.IN:
                memory = memory_of(ref, True, self._hw)
                self._add(memory, self._size(ref, memory), 0)

    def begins(self, running: Running, point: Point, number: int, tick: int) -> None:
        """A task of an item of a point begins: what it uses is alive from now on."""
        while not point.begun >> number & 1:
            point.begun |= 1 << number
            held, by_item = self._held(running.plan)
            for at in by_item.get(number, ()):
                if not point.alive >> at & 1:
                    point.alive |= 1 << at
                    self._add(held[at].memory, held[at].bytes, tick)
            if running.parent is None:
                return
            running, _, point, number = running.parent

    def ends(self, plan: Plan, point: Point, number: int, tick: int) -> None:
        """An item of a point is done: what no other one uses any more is dead."""
        if not point.alive:
            return
        held, by_item = self._held(plan)
        for at in by_item.get(number, ()):
            own = held[at]
            if point.alive >> at & 1 and not own.stays and all(point.done[user] for user in own.users):
                point.alive &= ~(1 << at)
                self._add(own.memory, -own.bytes, tick)

    def repeat(self, since: int, until: int, times: int) -> None:
        for level in self.levels.values():
            level.repeat(since, until, times)

    def _add(self, memory: str, size: int, tick: int) -> None:
        if memory and size:
            level = self.levels.setdefault(memory, Level())
            level.put(tick, level.now + size)

    def _held(self, plan: Plan) -> tuple[tuple[_Held, ...], dict[int, tuple[int, ...]]]:
        if plan not in self._of:
            held = tuple(self._buffers(plan))
            by_item: dict[int, tuple[int, ...]] = {}
            for at, own in enumerate(held):
                for user in own.users:
                    by_item[user] = (*by_item.get(user, ()), at)
            self._of[plan] = held, by_item
        return self._of[plan]

    def _buffers(self, plan: Plan) -> list[_Held]:
        at_root = not plan.site
        users: dict[str, list[int]] = {}
        for item in plan.items:
            for name in {name for statement in item.statements for name, _ in buffers_used(statement)}:
                users.setdefault(name, []).append(item.number)
        found = []
        for ref in plan.block.refinements:
            if ref.direction is Direction.NEW or (at_root and ref.direction is not Direction.IN):
                memory = memory_of(ref, at_root, self._hw)
                stays = ref.direction is not Direction.NEW
                found.append(_Held(memory, self._size(ref, memory), tuple(users.get(ref.name, ())), stays))
        return found

    def _size(self, ref: Refinement, memory: str) -> int:
        parts = parts_of(ref, memory, self._hw)
        return part_bytes(ref, parts) * parts
