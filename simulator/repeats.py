"""When a timeline repeats: is the machine in a state that it was in before, and which points are alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.running import Chain, Moment, Queue, Running, Task, UnitKey


def idle_alike(
    moment: Moment, now: int, idle_since: Mapping[UnitKey, int], active: Mapping[UnitKey, Task]
) -> bool:
    """Whether each unit that worked since has been idle for as long as it had been then."""
    for unit, since in idle_since.items():
        if unit in active or since == moment.idle.get(unit):
            continue
        if unit not in moment.idle or now - since != moment.now - moment.idle[unit]:
            return False
    return True


def kinds_of(running: Running, chain: Chain) -> NDArray[np.int64]:
    """A number for what matters of each point."""
    if chain.kinds is None:
        columns = [running.grid.over_points(c.value, c.least, clip=True) for c in running.plan.cuts]
        columns += [running.grid.over_points(e) for e in running.plan.exact]
        columns.append(np.arange(len(chain.order)) % running.plan.block.inflight)
        table = np.stack(columns, 1)
        _, inverse = np.unique(table, axis=0, return_inverse=True)
        chain.kinds = inverse.reshape(-1)
    return chain.kinds


def state_of(
    running: Running,
    chain: Chain,
    now: int,
    active: Mapping[UnitKey, Task],
    waiting: Mapping[UnitKey, Queue],
    cause: str,
) -> Any:
    """All that decides what happens next, but for the points to come; points of `chain` are counted from
    the next one on."""
    tasks: dict[tuple[int, int], Any] = {}
    for task in active.values():
        demand = tuple(sorted(task.demand.items()))
        tasks[id(task.point), task.item.number] = (
            "runs",
            task.left,
            now - task.begin,
            task.own,
            task.late,
            demand,
            task.slowest,
            task.slowed,
        )
    for queue in waiting.values():
        for at, (ready, _, _, task) in enumerate(sorted(queue, key=lambda e: e[:3])):
            tasks[id(task.point), task.item.number] = ("waits", at, now - ready, task.cause)

    def of(run: Running) -> Any:
        chains = []
        for own in run.chains:
            base = own.next if own is chain else 0
            points = tuple(
                (
                    p.ordinal - base, tuple(p.done),
                    tuple((n, of(i)) for n, i in sorted(p.inner.items())),
                    tuple(tasks.get((id(p), n)) for n in range(len(p.done))),
                )
                for p in own.live.values()
            )  # fmt: skip
            chains.append((own.next - base, points))
        return id(run.plan), tuple(chains)

    top = running
    while top.parent is not None:
        top = top.parent[0]
    return of(top), chain.next % running.plan.block.inflight, cause
