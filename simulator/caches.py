"""One cache: which accesses it holds the line of, what it fetches, and what it writes back.

A cache is divided into sets of `ways` lines; a line of memory goes to the set `line % sets`. What is
stored to is written into the cache, and the line is dirty until it goes (write-back); a line that is not
there is fetched first, for stores as for loads (write-allocate), unless all of it is overwritten. Where
a set is full, `replacement` says which line goes: `lru`, the one that was used longest ago, or `fifo`,
the one that came first.

Accesses come in groups, as arrays. Those that follow each other in a set and want the same line become one;
what is left is looked up set by set, so that an ordered dictionary of a few lines is all there is to
look at.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hwconfigs.model import Memory
from stripe.diag import CompileError, Diagnostic

Ints: TypeAlias = NDArray[np.int64]

STORES, WHOLE, AGAIN = 1, 2, 4  # bits of a code: it stores; all of a line; what it loads just before
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
        self._held: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(self.sets)]

    @property
    def held(self) -> int:
        """How many lines there are in it."""
        return sum(map(len, self._held))

    def run(self, accesses: Accesses) -> Outcome:
        """Accesses, one after the other."""
        lines, codes = accesses.lines, accesses.codes
        if not len(lines):
            return Outcome(lines, accesses, lines)
        numbers = lines % self.sets
        order = np.argsort(numbers.astype(np.min_scalar_type(self.sets - 1)), kind="stable")
        lines, codes, numbers = lines[order], codes[order], numbers[order]
        owners = codes >> OWNER
        fresh = np.ones(len(lines), bool)
        np.not_equal(lines[1:], lines[:-1], out=fresh[1:])
        fresh[1:] |= owners[1:] != owners[:-1]
        first = np.flatnonzero(fresh)
        # Of several in a row, the first says whether the line is overwritten whole; any of them may store.
        merged = codes[first] | np.bitwise_or.reduceat(codes & STORES, first)
        bounds = np.flatnonzero(np.diff(numbers[first], prepend=-1))
        missed: list[int] = []
        gone: list[tuple[int, int, int]] = []  # because of which, line, code
        whole, wanted = merged.tolist(), lines[first].tolist()
        ends = [*bounds[1:].tolist(), len(wanted)]
        for start, end, number in zip(bounds.tolist(), ends, numbers[first[bounds]].tolist(), strict=True):
            self._one_set(self._held[number], start, end, wanted, whole, missed, gone)
        at = np.asarray(missed, np.int64)
        positions = order[first[at]]
        fetched = (merged[at] & WHOLE) == 0
        dirty = np.asarray(gone, np.int64).reshape(-1, 3)
        because = np.concatenate([positions[fetched], order[first[dirty[:, 0]]]])
        behind_lines = np.concatenate([lines[first[at]][fetched], dirty[:, 1]])
        fetches = merged[at][fetched] >> OWNER << OWNER
        behind_codes = np.concatenate([fetches, (dirty[:, 2] >> OWNER << OWNER) | STORES | WHOLE])
        turn = np.argsort(because, kind="stable")  # a line is fetched before the one that goes is written
        return Outcome(np.sort(positions), Accesses(behind_lines[turn], behind_codes[turn]), because[turn])

    def _one_set(
        self, held: OrderedDict[int, int], start: int, end: int, lines: list[int], codes: list[int],
        missed: list[int], gone: list[tuple[int, int, int]],
    ) -> None:  # fmt: skip
        ways, moves, touch = self.ways, self._moves, held.move_to_end
        for at in range(start, end):
            line, code = lines[at], codes[at]
            if line in held:
                if moves:
                    touch(line)
                if code & STORES:
                    held[line] = code
            else:
                missed.append(at)
                if ways is not None and len(held) >= ways:
                    other, old = held.popitem(last=False)
                    if old & STORES:
                        gone.append((at, other, old))
                held[line] = code

    def leave(self) -> Accesses:
        """Write back all that is dirty, set by set, as it would go next; the lines stay."""
        dirty = [(line, code) for held in self._held for line, code in held.items() if code & STORES]
        for held in self._held:
            for line, code in held.items():
                held[line] = code & ~STORES
        found = np.asarray(dirty, np.int64).reshape(-1, 2)
        return Accesses(found[:, 0], (found[:, 1] >> OWNER << OWNER) | STORES | WHOLE)


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
