"""Timing several contenders fairly: in turn, warm, in rounds that are long enough.

Contenders run one after the other, round by round, in each round in another order, which is the same in
every run: what the caches hold is what the one before left there, and none shall always follow the same
one. Before its timed calls a contender makes a few untimed ones, so that all find their operands in the
caches as they leave them themselves: a large cache keeps an array only once it has seen it several times.
A round has as many calls as fill `ROUND` seconds.

If something else had the core during a round, wall time exceeds the processor time of this process.
Such rounds are counted, and set aside as long as enough others are left; where too few are, the timing is
`busy`. If processor time exceeds wall time, the contender used more cores than it was given.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

ROUND = 0.002  # seconds of the shortest round
LONG_CALL = 0.05  # from here on the state of the caches is a small matter: no untimed call
UNTIMED = 4  # calls in front of those of a round, at most, and at least one that is not long
UNTIMED_SECONDS = 0.02  # that they take, if they are several
ENOUGH = 5  # undisturbed rounds that are waited for, up to PATIENCE times the time asked for
PATIENCE = 3.0
FEW = 3  # from so many on, disturbed rounds don't count
DISTURBED = 1.03
HOPELESS = 4.0  # times slower than the fastest: a few rounds tell enough
LEAST_ROUNDS = 5
MOST_ROUNDS = 1000
LONG_ROUND = 1.0  # seconds


@dataclass
class Contender:
    """Something to time. `calls` for each round; wall and processor seconds of one call by round. A probe
    of the machine takes part in every round, and in no contest."""

    name: str
    call: Callable[[], object]
    probe: bool = False
    calls: int = 1
    first: float = 0.0
    rounds: list[tuple[float, float]] = field(default_factory=list)

    def warm(self) -> None:
        """Call until the time of a call is known, and settle how many make a round."""
        self.first = _time(self.call, 1)[0]
        once = self.first
        if once < LONG_CALL:
            for _ in range(3):
                calls = max(1, math.ceil(0.5 * ROUND / max(once, 1e-9)))
                once = _time(self.call, calls)[0]
        self.calls = max(1, math.ceil(ROUND / max(once, 1e-9)))

    def untimed(self) -> int:
        """How many calls go in front of those of a round."""
        if not self.rounds:
            return 1
        once = self.rounds[-1][0]
        return 0 if once >= LONG_CALL else max(1, min(UNTIMED, int(UNTIMED_SECONDS / once)))

    def quiet(self) -> list[float]:
        """Wall seconds of the rounds that nothing disturbed."""
        return [wall for wall, cpu in self.rounds if wall <= DISTURBED * cpu]

    def run(self) -> None:
        for _ in range(self.untimed()):
            self.call()
        self.rounds.append(_time(self.call, self.calls))


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median, quartiles and the least over the rounds that count. `busy`: disturbed
    rounds are among these. `cores`: processor time over wall time, the median of all rounds."""

    median: float
    least: float
    low: float
    high: float
    rounds: int
    disturbed: int
    calls: int
    cores: float
    busy: bool = False

    def by(self, which: str) -> float:
        return self.least if which == "fastest" else self.median

    @staticmethod
    def of(contender: Contender, threads: int) -> Timing:
        quiet = contender.quiet()
        all_walls = [wall for wall, _ in contender.rounds]
        disturbed = len(all_walls) - len(quiet)
        walls = quiet if threads == 1 and len(quiet) >= FEW else all_walls
        # Several threads have processor time to spare, so that theirs says nothing of the company.
        busy = threads == 1 and len(walls) > len(quiet)
        quartiles = statistics.quantiles(walls, n=4) if len(walls) > 1 else [walls[0]] * 3
        cores = statistics.median(cpu / wall for wall, cpu in contender.rounds)
        return Timing(
            statistics.median(walls), min(walls), quartiles[0], quartiles[2], len(walls), disturbed,
            contender.calls, cores, busy,
        )  # fmt: skip


def interleave(contenders: list[Contender], seconds: float, threads: int = 1) -> dict[str, Timing]:
    """Time them in turn for about `seconds` each, at least LEAST_ROUNDS rounds; by name."""
    for contender in contenders:
        contender.warm()
    fastest = min((_estimate(c) for c in contenders if not c.probe), default=math.inf)
    begun, whole = time.perf_counter(), seconds * len(contenders)
    number, orders = 0, random.Random(0)
    while number < MOST_ROUNDS:
        spent = time.perf_counter() - begun
        waiting = threads == 1 and any(
            len(c.quiet()) < ENOUGH for c in contenders if not hopeless(c, fastest)
        )
        if number >= LEAST_ROUNDS and spent > whole * (PATIENCE if waiting else 1):
            break
        for contender in orders.sample(contenders, len(contenders)):
            if len(contender.rounds) < enough(contender) or not hopeless(contender, fastest):
                contender.run()
        number += 1
    return {contender.name: Timing.of(contender, threads) for contender in contenders}


def hopeless(contender: Contender, fastest: float) -> bool:
    """Whether it is so slow that more rounds tell nothing."""
    return not contender.probe and _estimate(contender) > HOPELESS * fastest


def enough(contender: Contender) -> int:
    """How many rounds a hopeless contender gets."""
    return FEW if _estimate(contender) > LONG_ROUND else LEAST_ROUNDS


def _estimate(contender: Contender) -> float:
    """Seconds of one call as far as known."""
    return contender.rounds[-1][0] if contender.rounds else contender.first


def _time(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Wall and processor seconds of one call, from `calls` of them."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / calls, cpu / calls
