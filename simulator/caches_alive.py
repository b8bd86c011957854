"""What is alive over time where memories are caches: the lines that a cache holds, and the buffers that lie
in other memories.

Statements of the root follow each other, and what goes on in one has no order in time: each stands for the
most that is alive in it. A cache only gains lines, so that this is what it holds at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hwconfigs.model import HwConfig
from simulator.result import Occupancy
from stripe.analysis.liveness import Lifetime, lifetimes, timeline
from stripe.ir import Block


def occupancy(
    root: Block,
    hw: HwConfig,
    firsts: Sequence[int],
    begins: Sequence[Fraction],
    held: Mapping[str, Sequence[int]],
) -> Iterator[Occupancy]:
    """Of each memory, where parts of the root begin: the numbers of their first statements, and their times.
    `held` are the bytes of the lines in each cache at the end of each part."""
    if not begins:
        return
    lives: dict[str, list[Lifetime]] = {}
    for life in lifetimes(root, hw):
        lives.setdefault(life.memory, []).append(life)
    times = timeline(root).times
    starts = np.asarray([times[first][0] for first in firsts])
    for memory in hw.memories:
        own = lives.get(memory.name, [])
        cached = memory.kind == "cached"
        alive = np.maximum.reduceat(_bytes(own, times[-1][1] + 1), starts).tolist()
        sizes = held.get(memory.name, ()) if cached else alive
        changes = [at for at, size in enumerate(sizes) if size != (sizes[at - 1] if at else 0)]
        yield Occupancy(
            memory=memory.name, most=max(sizes, default=0),
            exact=not cached and all(life.scope.parent is None for life in own),
            cycles=[float(begins[at]) for at in changes], bytes=[sizes[at] for at in changes],
        )  # fmt: skip


def _bytes(lives: Sequence[Lifetime], ticks: int) -> NDArray[np.int64]:
    """The bytes of buffers that are alive at each tick of the text."""
    changes = np.zeros(ticks + 1, np.int64)
    for life in lives:
        if life.uses is not None:
            changes[life.start] += life.total
            changes[life.end + 1] -= life.total
    return np.cumsum(changes)[:-1]
