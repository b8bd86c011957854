"""One cache: which accesses it holds the line of, what it fetches, and what it writes back.

A cache is divided into sets of `ways` lines; a line of memory goes to the set `line % sets`. What is
stored to is written into the cache, and the line is dirty until it goes (write-back); a line that is not
there is fetched first, for stores as for loads (write-allocate), unless all of it is overwritten. Where
a set is full, `replacement` says which line goes: `lru`, the one that was used longest ago, or `fifo`,
the one that came first.

Accesses come in groups, as arrays. Those that follow each other in a set and want the same line become one;
what is left is looked up for all of them at once, or, where that takes too many steps and for `fifo`, set by
set (see simulator.caches_recent).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from hwconfigs.model import Memory
from simulator.caches_recent import Bools, Ints, Uses, look_up, remainder
from stripe.diag import CompileError, Diagnostic

STORES, WHOLE, AGAIN = 1, 2, 4  # bits of a code: it stores; all of a line; what it loads just before
MOST_WAYS = 32  # of sets that are looked up for all accesses at once
OWNER = 3  # bits of a code that are none of its owner


@dataclass(frozen=True, slots=True)
class Accesses:
    """Accesses in order: the number of a line, and a code: who, and how."""

    lines: Ints
    codes: Ints


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a group of accesses. `missed` are the numbers of those whose line was not there.
    Lines are fetched from and written back to the memory behind in the order of `behind`; each for the
    access whose
    number is in `because`. The code of a line that is written back is that of the last store to it."""

    missed: Ints
    behind: Accesses
    because: Ints


class Cache:
    """The lines that a cache holds. One without `ways` has a single set; one without `bytes` never is
    full."""

    def __init__(self, memory: Memory) -> None:
        self.name = memory.name
        self.line_bytes = memory.line_bytes
        self.sets, self.ways = geometry(memory)
        self._moves = memory.replacement == "lru"
        self._lines, self._codes, self._sets = (np.zeros(0, np.int64) for _ in range(3))  # next to go first

    @property
    def held(self) -> int:
        """How many lines there are in it."""
        return len(self._lines)

    def run(self, accesses: Accesses) -> Outcome:
        """Accesses, one after the other."""
        lines, codes = accesses.lines, accesses.codes
        if not len(lines):
            return Outcome(lines, accesses, lines)
        numbers = remainder(lines, self.sets)
        order = np.argsort(numbers.astype(np.min_scalar_type(self.sets - 1)), kind="stable")
        lines, codes, numbers = lines[order], codes[order], numbers[order]
        owners = codes >> OWNER
        fresh = np.ones(len(lines), bool)
        np.not_equal(lines[1:], lines[:-1], out=fresh[1:])
        fresh[1:] |= owners[1:] != owners[:-1]
        first = np.flatnonzero(fresh)
        # Of several in a row, the first says whether the line is overwritten whole; any of them may store.
        merged = codes[first] | np.bitwise_or.reduceat(codes & STORES, first)
        at, gone, dirty_lines, dirty_codes = self._look_up(lines[first], merged, numbers[first])
        positions = order[first[at]]
        fetched = (merged[at] & WHOLE) == 0
        because = np.concatenate([positions[fetched], order[first[gone]]])
        behind_lines = np.concatenate([lines[first[at]][fetched], dirty_lines])
        fetches = merged[at][fetched] >> OWNER << OWNER
        behind_codes = np.concatenate([fetches, (dirty_codes >> OWNER << OWNER) | STORES | WHOLE])
        turn = np.argsort(because, kind="stable")  # a line is fetched before the one that goes is written
        return Outcome(np.sort(positions), Accesses(behind_lines[turn], behind_codes[turn]), because[turn])

    def _look_up(self, lines: Ints, codes: Ints, sets: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Which accesses, set by set, miss; which of these let go of a line that has to be written back; and
        these lines with their codes."""
        touched = np.zeros(self.sets, bool)
        touched[sets] = True
        here = touched[self._sets]
        kept = self._lines[~here], self._codes[~here], self._sets[~here]
        known = np.concatenate([self._sets[here], sets])
        turn = np.argsort(known.astype(np.min_scalar_type(self.sets)), kind="stable")
        before = int(np.count_nonzero(here))
        lines, codes = (
            np.concatenate(pair)[turn] for pair in ((self._lines[here], lines), (self._codes[here], codes))
        )
        uses = Uses(lines, known[turn], turn < before)
        chain = uses.chain()
        if self._moves and (self.ways is None or self.ways <= MOST_WAYS):
            found = look_up(uses, chain, self.ways)
            missed, goes, slow = found.missed, found.goes, np.isin(uses.sets, found.long)
            left = _used_last(uses, found.last, self.ways)
            self._in_order(uses, np.flatnonzero(slow), missed, goes)
        else:
            missed, goes = np.zeros(len(lines), bool), np.full(len(lines), -1, np.int64)
            left = self._in_order(uses, np.arange(len(lines)), missed, goes)
        # The code of a line is that of its last store, or of what fetched it.
        settled = (missed | uses.held | ((codes & STORES) != 0))[chain]
        owners = np.empty_like(codes)
        owners[chain] = codes[chain][np.maximum.accumulate(np.where(settled, np.arange(len(chain)), 0))]
        new = lines[left], owners[left], uses.sets[left]
        self._lines, self._codes, self._sets = map(np.concatenate, zip(kept, new, strict=True))
        at = np.flatnonzero(missed)
        out = goes[at]
        written = (out >= 0) & ((owners[out] & STORES) != 0)
        return turn[at] - before, turn[at[written]] - before, lines[out[written]], owners[out[written]]

    def _in_order(self, uses: Uses, chosen: Ints, missed: Bools, goes: Ints) -> Ints:
        """Look up all uses of some sets, one after the other; the last use of each line that is left."""
        left: list[int] = []
        held = OrderedDict[int, int]()  # for each line its last use
        ways, moves, number = self.ways, self._moves, -1
        known, there = uses.held[chosen].tolist(), uses.sets[chosen].tolist()
        for at, line, own, old in zip(
            chosen.tolist(), uses.lines[chosen].tolist(), there, known, strict=True
        ):
            if own != number:
                left += held.values()
                held, number = OrderedDict(), own
            if line in held:
                if moves:
                    held.move_to_end(line)
            elif not old:
                missed[at] = True
                if ways is not None and len(held) >= ways:
                    goes[at] = held.popitem(last=False)[1]
            held[line] = at
        return np.asarray([*left, *held.values()], np.int64)

    def leave(self) -> Accesses:
        """Write back all that is dirty, set by set, as it would go next; the lines stay."""
        order = np.argsort(self._sets, kind="stable")
        lines, codes = self._lines[order], self._codes[order]
        dirty = (codes & STORES) != 0
        self._codes = self._codes & ~np.int64(STORES)
        return Accesses(lines[dirty], (codes[dirty] >> OWNER << OWNER) | STORES | WHOLE)


def _used_last(uses: Uses, last: Bools, ways: int | None) -> Ints:
    """The last uses of the lines that each set holds at the end, in order."""
    at = np.flatnonzero(last)
    if ways is None:
        return at
    sets = uses.sets[at]
    behind = np.searchsorted(sets, sets, side="right") - np.arange(len(at))
    return at[behind <= ways]


def geometry(memory: Memory) -> tuple[int, int | None]:
    """How many sets a cache has, and how many lines each of them; None: any number."""
    if memory.bytes is None:
        return 1, None
    held = memory.bytes // memory.line_bytes
    if memory.ways is None:
        return 1, held
    if held % memory.ways:
        message = (
            f"the {held} lines of {memory.line_bytes} bytes in '{memory.name}' do not divide into sets of "
            f"{memory.ways} ways: {held % memory.ways} left over"
        )
        raise CompileError(Diagnostic("U002", message, notes=("help: change its 'bytes' or its 'ways'",)))
    return held // memory.ways, memory.ways
