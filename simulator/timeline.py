"""When what happens: the points of a program's blocks go through the units and memories of a target.

The rules (docs/architecture.md, "Machines"):

- A point starts when all points are done that are `inflight` or more before it on its unit.
- An item of a point starts when the items of the point that it depends on are done, and the same item of the
  point before: each item is a stage that one point at a time is in.
- A unit executes one task at a time. Of those that wait for it, it takes the one that has waited
  longest; of several, the first in program order.
- A task takes the cycles of its unit (`simulator.meters`), or as long as a bank takes for the bytes that
  the task moves there, at the memory's `bytes_per_cycle`, if that is longer.
- Where tasks ask more of a bank together than it delivers, each of them goes slower by the same factor.
- A task begins with the longest `latency_cycles` of the memories that it reads: the unit waits, and is
  not busy.

Time is in ticks, whole numbers, as many to a cycle as make the work of each task whole, so that `busy` is
exact, and what repeats is found to repeat exactly. When the state of the
machine behind a point of a block is the same as behind an earlier point, and the points that follow are
alike, the same happens again: whole periods are then counted instead of gone through.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import count
from math import ceil, lcm

import numpy as np

from hwconfigs.model import HwConfig
from simulator.alike import Grid, passed_in
from simulator.meters import exact
from simulator.occupancy import Occupancy
from simulator.places import ask, place_of
from simulator.plan import Item, Plan, Planner
from simulator.repeats import idle_alike, kinds_of, state_of
from simulator.running import (
    TICKS,
    WHOLE,
    BankKey,
    Chain,
    Interval,
    Moment,
    Place,
    Point,
    Queue,
    Running,
    Task,
    TooLong,
    Totals,
    UnitKey,
)
from simulator.work import Site, Worker
from stripe.ir import SLOT, Block, Direction


class Timeline:
    """Goes through one root. `extrapolate` counts repeated periods instead of going through them;
    `trace` keeps the first that many tasks; `limit` is how many are gone through (0: all)."""

    def __init__(
        self, root: Block, hw: HwConfig, extrapolate: bool = True, trace: int = 0, limit: int = 0
    ) -> None:
        self._hw = hw
        self._worker = Worker(hw)
        self.planner = Planner(hw, self._worker)
        self.plan = self.planner.root(root)
        self._extrapolate = extrapolate
        self._most = trace
        self._limit, self._gone = limit, 0
        self.totals = Totals()
        self.trace: list[Interval] = []
        self.occupancy = Occupancy(hw)
        self.skipped = 0  # points that were counted and not gone through
        self.now = 0  # in ticks
        self.ticks = self._ticks_to_a_cycle()
        self.kernels: dict[Site, list[int]] = {}  # when each statement of the root starts and ends
        self._waits: set[Site] = set()  # those of which no task has begun
        self._waiting: dict[UnitKey, Queue] = {}
        self._active: dict[UnitKey, Task] = {}
        self._ended: deque[tuple[Running, Chain, Point, int]] = deque()  # items, by number, that are done
        self._whole: deque[tuple[Running, Chain, Point]] = deque()  # points of which all items are
        self._idle_since: dict[UnitKey, int] = {}
        self._ties = count()
        self._cause = ""
        self._memories = {m.name: m for m in hw.memories}
        self._latency = {m.name: self._in_ticks(exact(m.latency_cycles or 0)) for m in hw.memories}

    @property
    def cycles(self) -> Fraction:
        return Fraction(self.now, self.ticks)

    def _ticks_to_a_cycle(self) -> int:
        rates = (rate for own in self.planner.measured(self.plan) for rate in own.meter.rates.values())
        return lcm(TICKS, *(rate.denominator for rate in rates))

    def _in_ticks(self, cycles: Fraction | float) -> int:
        return ceil(cycles * self.ticks)

    def run(self) -> None:
        """Raises TooLong behind `limit` tasks."""
        self.occupancy.inputs(self.plan)
        places = {
            ref.name: place_of(ref, {}, self.plan.path, True, self._hw) for ref in self.plan.block.refinements
        }
        self._enter(self.plan, {}, places, None, None)
        self._settle()
        while self._active or any(self._waiting.values()):
            self._begin_waiting()
            self._advance()
        for unit, since in self._idle_since.items():
            if self.now > since:
                self.totals.idle[unit, ""] += self.now - since

    # -- points and items --------------------------------------------------------------------------

    def _enter(
        self, plan: Plan, values: Mapping[str, int], places: Mapping[str, Place], unit: UnitKey | None,
        parent: tuple[Running, Chain, Point, int] | None,
    ) -> None:  # fmt: skip
        grid = Grid.of(plan.block, values)
        running = Running(plan, grid, [], places, unit, parent)
        passed = passed_in(plan.block)
        own = {name: expr.evaluate(values) for name, expr in passed.items()}
        if plan.location is not None:
            number = plan.location.bank
            if plan.number is None:
                at = number.evaluate({**own, **dict.fromkeys(plan.block.ranges, 0)}) if number else 0
                running.unit = (plan.location.unit, at)
        live = np.flatnonzero(grid.live) if grid.live is not None else np.arange(grid.count)
        if plan.number is not None and plan.location is not None and len(live):
            numbers = grid.over_points(plan.number)
            for value in np.unique(numbers):
                running.chains.append(Chain(live[numbers == value], unit=(plan.location.unit, int(value))))
        elif len(live):
            running.chains.append(Chain(live, unit=running.unit))
        running.open = len(running.chains)
        running.alone = len(running.chains) <= 1 and (parent is None or parent[0].alone)
        if parent is not None:
            parent[2].inner[parent[3]] = running
        if not running.chains:
            self._left(running)
            return
        for chain in running.chains:
            self._start_points(running, chain)

    def _start_points(self, running: Running, chain: Chain) -> None:
        inflight = running.plan.block.inflight
        while chain.next < len(chain.order):
            oldest = min(chain.live, default=chain.next)
            if chain.next - oldest >= inflight:
                return
            self._start_point(running, chain)

    def _start_point(self, running: Running, chain: Chain) -> None:
        plan, ordinal = running.plan, chain.next
        chain.next += 1
        values = running.grid.point(int(chain.order[ordinal]))
        places = dict(running.places)
        if running.parent is not None:
            places = {}
            for ref in plan.block.refinements:
                if ref.direction is Direction.NEW:
                    here = {**values, SLOT: ordinal % plan.block.inflight}
                    places[ref.name] = place_of(ref, here, plan.path, False, self._hw)
                else:
                    outer = running.places[ref.source]
                    starts = tuple(e.evaluate(values) for e in ref.access)
                    lead = len(outer.origin) - len(starts)
                    starts = (0,) * lead + starts
                    places[ref.name] = replace(
                        outer, origin=tuple(a + b for a, b in zip(outer.origin, starts, strict=True))
                    )
        items = plan.items
        point = Point(
            ordinal, values, places, [len(i.after) for i in items], [False] * len(items),
            [False] * len(items), left=len(items),
        )  # fmt: skip
        chain.live[ordinal] = point
        if not items:
            self._whole.append((running, chain, point))
            return
        for item in items:
            self._maybe_start(running, chain, point, item)

    def _maybe_start(self, running: Running, chain: Chain, point: Point, item: Item) -> None:
        number = item.number
        if point.started[number] or point.missing[number]:
            return
        before = chain.live.get(point.ordinal - 1)
        if before is not None and not before.done[number]:
            return
        point.started[number] = True
        if running.parent is None:
            self.kernels[item.site] = [self.now, self.now]
            self._waits.add(item.site)
        if item.task:
            self._request(running, chain, point, item)
        else:
            assert item.inner is not None
            self._enter(item.inner, point.values, point.places, chain.unit, (running, chain, point, number))

    def _settle(self) -> None:
        """All that follows from what is done, at this moment: points end when nothing else is left to do."""
        while self._ended or self._whole:
            if self._ended:
                self._item_done(*self._ended.popleft())
            else:
                self._point_done(*self._whole.popleft())

    def _item_done(self, running: Running, chain: Chain, point: Point, number: int) -> None:
        point.done[number] = True
        self.occupancy.ends(running.plan, point, number, self.now)
        if running.parent is None:
            self.kernels[running.plan.items[number].site][1] = self.now
        point.inner.pop(number, None)
        point.left -= 1
        items = running.plan.items
        for later in running.plan.later[number]:
            point.missing[later] -= 1
            self._maybe_start(running, chain, point, items[later])
        behind = chain.live.get(point.ordinal + 1)
        if behind is not None:
            self._maybe_start(running, chain, behind, items[number])
        if not point.left:
            self._whole.append((running, chain, point))

    def _point_done(self, running: Running, chain: Chain, point: Point) -> None:
        del chain.live[point.ordinal]
        if self._extrapolate and running.alone:
            self._maybe_skip(running, chain)
        self._start_points(running, chain)
        if not chain.live and chain.next >= len(chain.order):
            running.open -= 1
            if not running.open:
                self._left(running)

    def _left(self, running: Running) -> None:
        if running.parent is not None:
            self._ended.append(running.parent)

    # -- tasks ---------------------------------------------------------------------------------------

    def _request(self, running: Running, chain: Chain, point: Point, item: Item) -> None:
        plan = running.plan
        unit = chain.unit
        if item.location is not None:
            number = item.location.bank
            unit = (item.location.unit, number.evaluate(point.values) if number is not None else 0)
        assert unit is not None  # V065: every statement has a unit
        model = self.planner.unit(unit[0])
        if item.block is not None:
            work = self._worker.block(item.block, model, plan.views, plan.spread, point.values)
        else:
            work = self._worker.statements(plan.block, item.statements, model, plan.views, plan.outer_views)
        order = (*_order(running), point.ordinal, item.number)
        task = Task(running, chain, point, item, unit, work, self.now, order, self._cause)
        heapq.heappush(self._waiting.setdefault(unit, []), (self.now, order, next(self._ties), task))

    def _begin_waiting(self) -> None:
        changed = True
        while changed:
            changed = False
            for unit in sorted(self._waiting):
                queue = self._waiting[unit]
                if queue and unit not in self._active:
                    self._begin(heapq.heappop(queue)[3])
                    changed = True

    def _begin(self, task: Task) -> None:
        work, site, totals = task.work, task.item.site, self.totals
        self._gone += 1
        if self._gone > self._limit > 0:
            raise TooLong
        if site[:1] in self._waits:
            self._waits.remove(site[:1])
            self.kernels[site[:1]][0] = self.now
        self.occupancy.begins(task.running, task.point, task.item.number, self.now)
        for (below, kind), n in work.counts.items():
            totals.counts[(*site, *below), kind, task.unit] += n
        asked: dict[BankKey, float] = {}
        for touch in work.touches:
            place = task.point.places[touch.buffer]
            for what, n in (("read", touch.reads), ("write", touch.writes), ("update", touch.updates)):
                if n:
                    totals.traffic[place.memory, place.buffer, task.unit[0], what] += n * touch.element_bytes
            memory = self._memories.get(place.memory)
            if memory is not None:
                late = self._latency[memory.name]
                if touch.reads and late > task.late:
                    task.late, task.latest = late, memory.name
                ask(asked, place, touch, memory, self._hw)
        served = {key: self._in_ticks(cycles) for key, cycles in asked.items()}
        for key, ticks in served.items():
            totals.served[site[:1], key] += ticks
            totals.asked[key, task.unit[0]] += 1
        slowest = max(served, key=lambda k: (served[k], k), default=("", 0))
        task.own, task.begin = self._in_ticks(work.cycles), self.now
        task.left = max(task.own + task.late, served.get(slowest, 0))
        task.slowest = slowest[0]
        task.alone = slowest[0] if task.left > task.own + task.late else task.unit[0]
        if task.left:
            task.demand = {k: -(-ticks * WHOLE // task.left) for k, ticks in served.items()}
        since = self._idle_since.get(task.unit, 0)
        if self.now > since:
            self.totals.idle[task.unit, task.cause if task.ready > since else ""] += self.now - since
        self.totals.tasks[task.unit] += 1
        self._active[task.unit] = task

    def _advance(self) -> None:
        load: dict[BankKey, int] = {}
        for task in self._active.values():
            for bank, asked in task.demand.items():
                load[bank] = load.get(bank, 0) + asked
        factors = {unit: max([WHOLE, *(load[b] for b in task.demand)]) for unit, task in self._active.items()}
        step = min(-(-task.left * factors[unit] // WHOLE) for unit, task in self._active.items())
        self.now += step
        finished = []
        for unit, task in sorted(self._active.items()):
            passed = step * WHOLE // factors[unit]
            if factors[unit] > WHOLE:
                worst = max(task.demand, key=lambda b: (load[b], b))
                task.slowest = worst[0]
                self.totals.shared[worst, unit[0]] += step - passed
                if worst not in task.slowed:
                    task.slowed = (*task.slowed, worst)
                    self.totals.waited[worst, unit[0]] += 1
            task.left -= passed
            if task.left <= 0:
                finished.append(task)
        for task in finished:
            self._finish(task)

    def _finish(self, task: Task) -> None:
        del self._active[task.unit]
        self._idle_since[task.unit] = self.now
        taken, site, totals = self.now - task.begin, task.item.site, self.totals
        totals.busy[task.unit] += task.own
        totals.worked[site[:1], task.unit] += task.own
        longer = taken - task.own - task.late  # than what the unit works, and the latency
        if task.late:
            totals.stalled[task.unit, task.latest] += task.late
        if longer:
            totals.stalled[task.unit, task.slowest] += longer
        waited = task.slowest if longer > task.late else task.latest
        totals.bound[site, task.alone if taken <= 2 * task.own else waited] += taken
        if len(self.trace) < self._most:
            self.trace.append(Interval(task.unit, site, task.begin, self.now, task.own, waited))
        self._cause = task.unit[0]
        self._ended.append((task.running, task.chain, task.point, task.item.number))
        self._settle()

    # -- what repeats ------------------------------------------------------------------------------

    def _maybe_skip(self, running: Running, chain: Chain) -> None:
        """Behind a point: if the machine was in this state behind an earlier point, count whole periods."""
        left = len(chain.order) - chain.next
        if left < 4:
            return
        inflight = running.plan.block.inflight
        state = state_of(running, chain, self.now, self._active, self._waiting, self._cause)
        known = chain.seen.setdefault(state, [])
        best: tuple[int, int, Moment] | None = None
        for moment in known:
            period = chain.next - moment.next
            # The points that are on their way and all to come must be alike to those one period before.
            low = max(chain.next - inflight, period)
            kinds = kinds_of(running, chain)
            same = kinds[low:] == kinds[low - period : len(kinds) - period]
            alike = len(same) if same.all() else int(np.argmin(same))
            times = (alike - inflight) // period
            more = times > 0 and (best is None or times * period > best[0])
            if more and idle_alike(moment, self.now, self._idle_since, self._active):
                best = times * period, times, moment
        if best is None:
            if len(known) < 8:
                known.append(
                    Moment(
                        chain.next, self.now, self.totals.copy(), dict(self._idle_since), len(self.trace)
                    )
                )  # fmt: skip
            return
        points, times, moment = best
        self.totals.repeat(moment.totals, times)
        self.occupancy.repeat(moment.now, self.now, times)
        self._trace_again(moment, times)
        self.skipped += points
        shift = times * (self.now - moment.now)
        self.now += shift
        self._shift(running, chain, points, shift, moment.idle)
        chain.seen.clear()

    def _trace_again(self, moment: Moment, times: int) -> None:
        """Keep the tasks of a period again for each time that it repeats."""
        period, kept = self.now - moment.now, self.trace[moment.traced :]
        for number in range(1, times + 1):
            room = self._most - len(self.trace)
            if room <= 0 or not kept:
                return
            self.trace += [
                replace(i, begin=i.begin + number * period, end=i.end + number * period) for i in kept[:room]
            ]

    def _shift(
        self, running: Running, chain: Chain, points: int, ticks: int, idle: Mapping[UnitKey, int]
    ) -> None:
        """Move the machine on by some points of a block and the time that they take."""
        for unit, since in self._idle_since.items():
            if since != idle.get(unit):
                self._idle_since[unit] = since + ticks
        chain.next += points
        live = {}
        for ordinal, point in chain.live.items():
            point.ordinal += points
            live[ordinal + points] = point
            point.values = running.grid.point(int(chain.order[point.ordinal]))
        chain.live = live
        for task in self._active.values():
            task.begin += ticks
            task.ready += ticks
        for unit, queue in self._waiting.items():
            self._waiting[unit] = [(ready + ticks, order, tie, task) for ready, order, tie, task in queue]
            for _, _, _, task in queue:
                task.ready += ticks


def _order(running: Running) -> tuple[int, ...]:
    """Where an execution stands in the order of the program."""
    found: list[int] = []
    at = running.parent
    while at is not None:
        outer, _, point, number = at
        found += [number, point.ordinal]
        at = outer.parent
    return tuple(reversed(found))
