"""One case: what is checked, what is reported, and the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from benchmarks import formulas
from benchmarks import measure as measure_module
from benchmarks.cases import Case
from benchmarks.machine import Machine, Probe, caches, measure
from benchmarks.measure import Contender, Timing
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported
from benchmarks.problems import Array, Matmul, Problem
from benchmarks.run import Row, as_record, difference, from_record, memory_seconds, run_case

CASE = Case("matmul", "small", Matmul(8, 8, 8))


class Stub:
    """A peer that gives what it is told to, or raises."""

    default = True

    def __init__(self, name: str, outcome: Callable[[Array], Array] | Exception, kind: Kind = "library"):
        self.name, self.kind, self.outcome = name, kind, outcome

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return "1"

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        outcome = self.outcome
        if isinstance(outcome, Exception):
            raise outcome
        product = arrays["A"] @ arrays["B"]
        return Prepared(lambda: None, lambda: outcome(product), tolerance=None)


class NoMachine:
    """Probes that cost nothing."""

    dots = ()

    def fma(self, of: str | int) -> Probe:
        return Probe(lambda: None, 1.0)

    def read(self, size: int, threads: int = 1) -> Probe:
        return Probe(lambda: None, 1.0)

    copy = stream = read


def run(*peers: Stub) -> Row:
    machine = cast(Machine, NoMachine())
    return run_case(CASE, peers, machine, {"L1": 1024, "L2": 1 << 20}, 0.001, Setting())


def test_right_results_are_timed_and_wrong_ones_are_not() -> None:
    row = run(Stub("right", lambda c: c), Stub("wrong", lambda c: c + 1), Stub("nan", lambda c: c * np.nan))
    entries = {entry.peer: entry for entry in row.entries if not entry.packed}
    assert entries["right"].rate and not entries["right"].reason
    assert entries["wrong"].rate is None
    assert entries["wrong"].reason.startswith("wrong: off by")
    assert entries["nan"].rate is None


def test_what_fails_or_is_not_supported_says_why() -> None:
    row = run(Stub("a", Unsupported("no such thing")), Stub("b", RuntimeError("broken\nin two lines")))
    reasons = {entry.peer: entry.reason for entry in row.entries}
    assert reasons == {"a": "no such thing", "b": "failed: RuntimeError: broken"}


def test_operands_given_and_packed_are_two_entries() -> None:
    row = run(Stub("a", lambda c: c))
    assert [(entry.key, entry.packed) for entry in row.entries] == [("a", False), ("a, packed", True)]


def test_the_best_peer_leaves_out_schedules_and_ourselves() -> None:
    row = run(
        Stub("lib", lambda c: c), Stub("hand", lambda c: c, "schedule"), Stub("me", lambda c: c, "ours")
    )
    assert (best := row.best(False)) is not None and best.peer == "lib"
    assert (best := row.best(False, ("schedule",))) is not None and best.peer == "hand"


def test_results_of_another_shape_are_infinitely_wrong() -> None:
    assert difference(np.zeros((2, 3)), np.zeros((3, 2))) == float("inf")
    assert difference(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25


def test_rows_survive_json() -> None:
    row = run(Stub("a", lambda c: c))
    assert from_record(as_record(row)) == row


def test_memory_seconds_pair_what_is_written_with_what_is_read() -> None:
    rates = {"read": 20.0, "copy": 10.0, "stream": 16.0}
    billion = 10**9
    assert memory_seconds(billion, 0, rates) == pytest.approx(1 / 20)
    assert memory_seconds(billion, billion, rates) == pytest.approx(2 / 16)
    assert memory_seconds(3 * billion, billion, rates) == pytest.approx(2 / 16 + 2 / 20)
    assert memory_seconds(billion, 2 * billion, rates) == pytest.approx(2 / 16 + 1 / 16)


def test_the_level_is_the_one_that_holds_the_operands() -> None:
    class Slow(NoMachine):
        def fma(self, of: str | int) -> Probe:
            return Probe(lambda: None, 1e18)

        def read(self, size: int, threads: int = 1) -> Probe:
            return Probe(lambda: None, 1e-3)

        copy = stream = read

    machine = cast(Machine, Slow())
    row = run_case(CASE, [], machine, {"L1": 512, "L2": 1 << 20}, 0.001, Setting())
    assert (row.bound, row.bytes) == ("L2", 768)
    assert row.limit < row.peak


def test_a_limit_is_no_less_than_what_the_machine_has_shown() -> None:
    shown: dict[str, dict[str, Any]] = {
        "peaks": {"f32": 1e12, "i8": 2e12},
        "bandwidth": {"L2": {"read": 1e12, "copy": 1e12}},
    }
    machine, levels = cast(Machine, NoMachine()), {"L1": 512, "L2": 1 << 20}
    alone = run_case(CASE, [], machine, levels, 0.001, Setting())
    row = run_case(CASE, [], machine, levels, 0.001, Setting(), shown=shown)
    assert row.peak == 1e12 > alone.peak
    assert row.bandwidth < 1, "another size of the same level, where nothing disturbs the probe of this one"


def test_results_of_another_number_are_wrong() -> None:
    one = np.ones(3)
    assert difference((one, one), (one, one)) == 0
    assert difference((one, one), (one, 2 * one)) == 0.5
    for found in (one, (one,), (one, one, one)):
        assert difference(found, (one, one)) == math.inf


def test_a_row_is_busy_if_others_had_the_core_while_what_counts_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    timings: dict[str, Timing] = {}

    def timed(contenders: Sequence[Contender], *_: object) -> dict[str, Timing]:
        return {c.name: timings.get(c.name, Timing(1.0, 1.0, 1.0, 1.0, 5, 0, 1, 1.0)) for c in contenders}

    monkeypatch.setattr(measure_module, "interleave", timed)
    peers = Stub("stripec", lambda c: c, "ours"), Stub("numpy", lambda c: c)
    disturbed = Timing(1.0, 1.0, 1.0, 1.0, 5, 5, 1, 0.5, busy=True)
    shown = {"bandwidth": {"L2": {"read": 5.0, "copy": 5.0, "stream": 5.0}}}
    for name, timing, busy in (
        ("stripec", disturbed, True),
        ("numpy", disturbed, True),
        ("probe copy", disturbed, True),
        ("numpy", replace(disturbed, median=0.1), True),
        ("numpy", replace(disturbed, median=3.0), False),  # with a core for itself it takes 1.5
        ("other", disturbed, False),
    ):
        timings.clear()
        timings[name] = timing
        lib = Stub("jax", lambda c: c)
        row = run_case(
            CASE, [*peers, lib], cast(Machine, NoMachine()), {"L1": 512, "L2": 1 << 20}, 0.001, Setting(),
            shown=shown,
        )  # fmt: skip
        assert row.busy == busy, (name, timing)
        (entry,) = (e for e in row.entries if e.key == "numpy")
        assert entry.busy == (name == "numpy") and from_record(as_record(row)) == row
        assert (row.bandwidth > 1) == (name == "probe copy"), "its level's, as its own was disturbed"


def test_memory_families_count_bytes() -> None:
    case = Case("memory", "copy", formulas.copy(8, 8))
    row = run_case(case, [], cast(Machine, NoMachine()), {}, 0.001, Setting())
    assert (row.unit, row.amount, row.bound) == ("GB/s", 512, "DRAM")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return measure()


def test_the_machine_multiplies_and_adds(machine: Machine) -> None:
    assert machine.fma("f32").rate(3) > 0.5
    assert machine.fma("no such kind").rate(1) > 0.5
    assert set(machine.widths) == set(machine.lanes)


@pytest.mark.parametrize("kind", ["read", "copy", "stream"])
def test_the_machine_moves_bytes(machine: Machine, kind: str) -> None:
    probe: Any = getattr(machine, kind)(1 << 16)
    assert probe.rate(1) > 0.1
    assert probe is getattr(machine, kind)(1 << 16)  # made once


@pytest.mark.parametrize("kind", ["read", "copy", "stream"])
def test_two_threads_move_half_of_the_bytes_each(machine: Machine, kind: str) -> None:
    large = 1 << 27
    one, two = (getattr(machine, kind)(large, threads) for threads in (1, 2))
    assert one is not two and one.amount == two.amount == large
    assert two.rate(1) > 0.1


def test_a_limit_on_two_threads_is_what_memory_gives_both() -> None:
    asked: list[int] = []

    class Shared(NoMachine):
        def fma(self, of: str | int) -> Probe:
            return Probe(lambda: None, 1e18)

        def read(self, size: int, threads: int = 1) -> Probe:
            asked.append(threads)
            return Probe(lambda: None, 1e-3)

        copy = stream = read

    row = run_case(CASE, [], cast(Machine, Shared()), {}, 0.001, Setting(threads=2))
    assert asked == [2, 2, 2]
    assert row.bound == "DRAM" and row.limit < row.peak


def test_caches_are_levels_and_bytes() -> None:
    found = caches(0)
    assert all(name.startswith("L") and size > 1024 for name, size in found.items())
