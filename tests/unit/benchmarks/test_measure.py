"""The order of rounds, how long they are, and which of them count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise, permutations

import pytest

from benchmarks import measure
from benchmarks.measure import Contender, Timing, interleave


class Clock:
    """Time that passes only in contenders; `stolen` is wall time that the process does not get."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.log: list[str] = []

    def costs(self, name: str, seconds: float, stolen: Iterator[float] | None = None) -> Contender:
        def call() -> None:
            self.log.append(name)
            self.wall += seconds + (next(stolen) if stolen else 0)
            self.cpu += seconds

        return Contender(name, call)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("benchmarks.measure.time.perf_counter", lambda: made.wall)
    monkeypatch.setattr("benchmarks.measure.time.process_time", lambda: made.cpu)
    return made


def test_a_round_is_long_enough(clock: Clock) -> None:
    fast, slow = clock.costs("fast", 0.0001), clock.costs("slow", 0.01)
    timings = interleave([fast, slow], 0.1)
    assert timings["fast"].calls == pytest.approx(20, abs=1)
    assert timings["slow"].calls == 1
    assert timings["fast"].median == pytest.approx(0.0001)


def test_no_contender_always_follows_the_same_one(clock: Clock) -> None:
    names = ["a", "b", "c"]
    interleave([clock.costs(name, 0.002) for name in names], 0.5)
    followed = [name for name, _ in groupby(clock.log)]
    pairs = Counter(pairwise(followed))
    assert pairs.keys() == set(permutations(names, 2))
    assert max(pairs.values()) < 2 * min(pairs.values())


@pytest.mark.parametrize(("seconds", "count"), [(0.001, 4), (0.007, 2), (0.03, 1), (0.06, 0)])
def test_untimed_calls_go_in_front_of_a_round_as_long_as_they_are_short(
    clock: Clock, seconds: float, count: int
) -> None:
    contender = clock.costs("a", seconds)
    contender.warm()
    contender.run()
    clock.log.clear()
    contender.run()
    assert len(clock.log) == count + contender.calls


def test_disturbed_rounds_are_set_aside() -> None:
    contender = Contender("x", lambda: None)
    contender.rounds = [(1.0, 1.0)] * 6 + [(5.0, 1.0)] * 5
    timing = Timing.of(contender, threads=1)
    assert (timing.median, timing.rounds, timing.disturbed) == (1.0, 6, 5)
    assert not timing.busy


def test_without_quiet_rounds_all_count() -> None:
    contender = Contender("x", lambda: None)
    contender.rounds = [(2.0, 1.0), (3.0, 1.0), (4.0, 1.0)]
    timing = Timing.of(contender, threads=1)
    assert (timing.median, timing.least, timing.rounds) == (3.0, 2.0, 3)
    assert timing.busy and timing.cores == pytest.approx(1 / 3)
    assert not Timing.of(contender, threads=2).busy, "waiting threads take no processor time"


def test_processor_time_beyond_wall_time_is_seen() -> None:
    contender = Contender("x", lambda: None)
    contender.rounds = [(1.0, 2.0)] * 5
    assert Timing.of(contender, threads=1).cores == 2.0


def test_the_hopeless_get_few_rounds_and_probes_all(clock: Clock) -> None:
    fast, slow = clock.costs("fast", 0.002), clock.costs("slow", 0.02)
    probe = clock.costs("probe", 0.03)
    probe.probe = True
    interleave([fast, slow, probe], 1.0)
    assert len(slow.rounds) == measure.LEAST_ROUNDS < len(fast.rounds)
    assert len(probe.rounds) == len(fast.rounds)


def test_a_very_long_call_is_not_repeated_much(clock: Clock) -> None:
    fast, slow = clock.costs("fast", 0.002), clock.costs("slow", 3.0)
    interleave([fast, slow], 0.1)
    assert len(slow.rounds) == measure.FEW


def test_it_waits_for_quiet_rounds_but_not_for_ever(clock: Clock) -> None:
    def half() -> Iterator[float]:
        while True:
            yield 0.004

    interrupted = clock.costs("x", 0.004, half())
    timing = interleave([interrupted], 0.4)["x"]
    assert timing.disturbed == timing.rounds
    assert clock.wall < 0.4 * measure.PATIENCE + 0.2


def test_which_round_stands_for_a_contender() -> None:
    timing = Timing(3.0, 1.0, 2.0, 4.0, 5, 0, 1, 1.0)
    assert (timing.by("median"), timing.by("fastest")) == (3.0, 1.0)
