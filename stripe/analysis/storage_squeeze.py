"""storage: a packing is lowered by taking out what lies too high and making room for it.

Each buffer that was taken out goes where those in its way weigh least; these are taken out in turn, and weigh
more from then on, so that what is in the way again and again finds a place that nobody wants (guided local
search; such chains of ejections are known from bin packing).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

TRY = 1000  # moves to reach one height
STEP = 200  # the bound, divided by this, is what one try lowers the height by


def squeezed(
    sizes: Sequence[int],
    near: Sequence[Sequence[int]],
    offsets: Sequence[int],
    bound: int,
    enough: int,
    align: int,
    moves: int,
) -> list[int]:
    """Offsets of a packing that is as high as the given one or lower, after this many moves at most; it
    is left as it is once its height is `enough`. Buffers in `near` of each other share no byte."""
    size = np.array(sizes)
    around = [np.array(others, dtype=int) for others in near]
    found = np.array(offsets)
    seed = 0
    while moves > 0 and (height := int((found + size).max())) > enough:
        step = max(align, bound // STEP // align * align)
        limit = max(bound, height - step)
        made, used = _reach(size, around, found, limit, min(TRY, moves), random.Random(seed))
        if made is not None:
            found = made
        moves -= max(used, 1)
        seed += 1
    return [int(offset) for offset in found]


def _reach(
    size: np.ndarray[Any, Any],
    around: list[np.ndarray[Any, Any]],
    offsets: np.ndarray[Any, Any],
    limit: int,
    moves: int,
    chance: random.Random,
) -> tuple[np.ndarray[Any, Any] | None, int]:
    """A packing within the limit, or None, and the number of moves made; -1 is the offset of what is out."""
    found = offsets.copy()
    weight = size / size.mean()
    out = [int(i) for i in np.flatnonzero(found + size > limit)]
    found[out] = -1
    used = 0
    while out and used < moves:
        used += 1
        heaviest = max(range(len(out)), key=lambda k: (weight[out[k]], -out[k]))
        chosen = out.pop(heaviest if chance.random() < 0.8 else chance.randrange(len(out)))
        own = size[chosen]
        others = around[chosen][found[around[chosen]] >= 0]
        low, high = found[others], found[others] + size[others]
        places = np.unique(np.concatenate([[0, limit - own], high, low - own]))
        places = places[(places >= 0) & (places <= limit - own)]
        in_way = (places[:, None] < high) & (low < places[:, None] + own)
        cost = in_way @ weight[others]
        best = np.flatnonzero(cost <= cost.min() + 1e-9)
        place = best[0] if chance.random() < 0.5 else best[chance.randrange(len(best))]
        found[chosen] = places[place]
        for other in others[in_way[place]]:
            found[other] = -1
            out.append(int(other))
            weight[other] += chance.random()
    return (None if out else found), used
