"""How often the loops of a block run, where constraints cut them short.

    block C [k:64, m:8, mo = 8*m_1] (20 - m - mo >= 0) #unroll=m      m_1 = 0, 1, 2

runs in full for two of the three values of m_1, and under tests for the third, where 5 of 8 copies are
points.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from stripe.affine import Affine

MOST_POINTS = 1 << 14  # of the loops around a block that are looked at; beyond, some in even steps
MOST_OWN = 512  # of its own indexes, where a constraint has several

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Trips:
    """Executions of a block that are alike: their `share` of all; the mean turns of each loop, and of all of
    them together (`steps`); the share of the `copies` of written-out indexes, and of all `points`, that there
    are."""

    share: float
    turns: Mapping[str, float]
    steps: float
    copies: float
    points: float


def trips(
    ranges: Mapping[str, int],
    outer: Mapping[str, int],
    limits: Sequence[Affine],
    straight: Collection[str],
    lane: str = "",
    width: int = 1,
) -> tuple[Trips, Trips]:
    """The executions of a block in which no constraint on an index that is written out (`straight`) can fail,
    and the others, which test them point by point. `ranges` are its own, `outer` those of all loops around
    it; the lane index goes in steps of `width`."""
    limits = [expr for expr in limits if expr.names]
    around = _grid(
        {n: size for n, size in outer.items() if any(e.coefficient(n) for e in limits)}, MOST_POINTS
    )
    count = len(next(iter(around.values()))) if around else 1
    alive, full = np.ones(count, bool), np.ones(count, bool)
    # The values of an index for which every limit of it alone holds: from a first to a last one.
    limited = [n for n in ranges if any(e.coefficient(n) for e in limits)]
    first = {n: np.zeros(count) for n in limited}
    last = {n: np.full(count, ranges[n] - 1.0) for n in limited}
    together: Values = np.ones(count)
    for expr in limits:
        own = {n: expr.coefficient(n) for n in ranges if expr.coefficient(n)}
        base = sum(
            (c * around[n] for n, c in expr.terms if n in around), start=np.full(count, float(expr.const))
        )
        if own.keys() & set(straight):
            full &= base + sum(min(0, c * (ranges[n] - 1)) for n, c in own.items()) >= 0
        else:  # known ahead of the loops, or a limit of one
            alive &= base + sum(max(0, c * (ranges[n] - 1)) for n, c in own.items()) >= 0
        if len(own) == 1:
            ((name, step),) = own.items()
            if step > 0:
                first[name] = np.maximum(first[name], -(base // step))
            else:
                last[name] = np.minimum(last[name], base // -step)
        elif own:
            inner = _grid({n: ranges[n] for n in own}, MOST_OWN)
            sums = sum((c * inner[n] for n, c in own.items()), start=np.zeros(1))
            together = together * (base[:, None] + sums >= 0).mean(axis=1)
    values: dict[str, Values] = {
        n: np.maximum(0.0, last[n] - first[n] + 1) if n in first else np.full(count, float(r))
        for n, r in ranges.items()
    }
    turns = {n: np.ceil(v / width) if n == lane else v for n, v in values.items()}
    most = {n: -(-r // width) if n == lane else r for n, r in ranges.items()}
    for name in first.keys() - set(straight):
        alive &= values[name] > 0
    steps = prod((turns[n] for n in ranges if n not in straight), start=np.ones(count))
    copies = prod((turns[n] / most[n] for n in ranges if n in straight), start=together)
    points = prod((values[n] / ranges[n] for n in ranges), start=together)
    loops = {n: turns[n] for n in ranges if n not in straight}
    return (
        _mean(alive & full, loops, steps, copies, points),
        _mean(alive & ~full, loops, steps, copies, points),
    )


def _mean(
    chosen: np.ndarray[Any, np.dtype[np.bool_]],
    loops: Mapping[str, Values],
    steps: Values,
    copies: Values,
    points: Values,
) -> Trips:
    if not chosen.any():
        return Trips(0.0, dict.fromkeys(loops, 0.0), 0.0, 0.0, 0.0)
    every = float(steps[chosen].sum())
    turns = {n: float(t[chosen].mean()) for n, t in loops.items()}
    there = float((steps * copies)[chosen].sum()) / every
    return Trips(float(chosen.mean()), turns, every / int(chosen.sum()), there, float(points[chosen].mean()))


def _grid(ranges: Mapping[str, int], most: int) -> dict[str, Values]:
    """All points of a box, or an even choice of them."""
    each = dict(ranges)
    while prod(each.values()) > most:
        widest = max(each, key=lambda name: each[name])
        each[widest] = (each[widest] + 1) // 2
    if not each:
        return {}
    axes = [np.linspace(0, ranges[n] - 1, each[n]).round() for n in ranges]
    return dict(zip(ranges, (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")), strict=True))
