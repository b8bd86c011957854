"""Looking lines up in a cache that drops what was used longest ago, for all accesses of a group at once.

A set holds the lines that were used last, as many as it has ways. So an access finds its line there if fewer
other lines than that were used in its set since the line was; and if it does not, the one that goes is
the last of that many, counted backwards. Both are found by walking back from all accesses together, a step
at a time: `j` steps back there is another line if that is not used again before the access.

    set:      a b c b a d          2 ways: at `a`, back over b and c: two other lines. It is gone, so `a` is
    wanted:           ^            fetched, and c goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STEPS = 4  # back, for each way, are always taken
WORTH = 16  # uses that are looked up one after the other in the time of a step


@dataclass(frozen=True, slots=True)
class Uses:
    """Uses of lines in order, set by set; the first ones of each set are what it held before."""

    lines: Ints
    sets: Ints
    held: Bools  # whether it stands for what was held

    def chain(self) -> Ints:
        """The uses line by line, each in order."""
        least = int(self.lines.min(initial=0))
        span = int(self.lines.max(initial=0)) - least
        return np.argsort((self.lines - least).astype(np.min_scalar_type(span)), kind="stable")


@dataclass(frozen=True, slots=True)
class Found:
    """Which uses missed, and for each of these the use of the line that goes, or -1; `last`: the uses behind
    which there is none of the same line; `long`: sets with uses that take too many steps."""

    missed: Bools
    goes: Ints
    last: Bools
    long: Ints


def look_up(uses: Uses, chain: Ints, ways: int | None) -> Found:
    """What comes of uses, where each set holds so many lines; None: any number."""
    count = len(uses.lines)
    same = uses.lines[chain[1:]] == uses.lines[chain[:-1]]
    before, after = np.full(count, -1, np.int64), np.full(count, count, np.int64)
    before[chain[1:][same]] = chain[:-1][same]
    after[chain[:-1][same]] = chain[1:][same]
    last = after == count
    places = np.arange(count)
    goes = np.full(count, -1, np.int64)
    missed = ~uses.held & (before < 0)
    if ways is None:
        return Found(missed, goes, last, np.zeros(0, np.int64))
    begins = np.flatnonzero(np.diff(uses.sets, prepend=-1))
    start = np.repeat(begins, np.diff(np.append(begins, count)))
    open_ = np.flatnonzero(~uses.held & (places - before > ways))
    others = np.zeros(len(open_), np.int64)
    at = open_ - 1
    for _ in range(max(STEPS * ways, count // WORTH)):
        inside = (at > before[open_]) & (at >= start[open_])  # else the line is there, or the set not full
        open_, others, at = open_[inside], others[inside], at[inside]
        if not len(open_):
            break
        others += after[at] >= open_
        full = others == ways
        gone = open_[full]
        goes[gone], missed[gone] = at[full], True
        left = ~full
        open_, others, at = open_[left], others[left], at[left] - 1
    return Found(missed, goes, last, np.unique(uses.sets[open_]))


def quotient(values: Ints, size: int) -> Ints:
    """`values // size`, of numbers from 0 on."""
    return values >> (size.bit_length() - 1) if size & (size - 1) == 0 else values // size


def remainder(values: Ints, size: int) -> Ints:
    """`values % size`, of numbers from 0 on."""
    return values & (size - 1) if size & (size - 1) == 0 else values % size
