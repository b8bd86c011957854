"""Counts of programs between passes: they lead to those of the placed program, and say what is not known."""

from __future__ import annotations

from functools import cache

import pytest

import stripec
from simulator import Simulation, counting
from simulator.counting import Counted, Counting
from simulator.running import TooLong
from simulator.simulate import simulate
from stripe.analysis.work import operations
from stripe.ir import Block
from stripec.driver import optimise, read_program, resolve_target
from stripec.tensors import as_type
from tests.support.passes import program_of
from tests.unit.simulator.test_timeline import TILES, machine

TWO = """function (A[M, K], B[K, N], D[N, L]) -> (R) {
  C[m, n : M, N] = +(A[m, k] * B[k, n]);
  R[m, l : M, L] = +(C[m, n] * D[n, l]);
}"""
SHAPES = {"A": "f32[40,40]", "B": "f32[40,40]", "D": "f32[40,40]"}


@cache
def counted(target: str) -> list[tuple[str, Counted]]:
    hw = resolve_target(target)
    types = {name: as_type(text, name) for name, text in SHAPES.items()}
    done = optimise(read_program(TWO).lower(types, ()), hw, verify="off", name="two")
    counting, found = Counting(hw), []
    for spec, program in done.stages:
        own = counting.of(program)
        assert own is not None
        assert own.operations == operations(program)
        found.append((spec, own))
    return found


@cache
def simulated(target: str) -> Simulation:
    return stripec.simulate(TWO, shapes=SHAPES, target=target)


TARGETS = ["many_core", "vector_dsp", "systolic_16"]


@pytest.mark.parametrize("target", TARGETS)
def test_after_the_last_pass_they_are_those_of_the_simulation(target: str) -> None:
    (_, last), found = counted(target)[-1], simulated(target)
    assert last.operations == found.operations
    assert not last.unreached
    expected = {m.memory: (m.read + m.updated, m.written) for m in found.memories if m.read or m.written}
    assert dict(last.moved) == expected
    assert last.named
    for unit in {u.unit for u in found.units}:
        busy = sum(u.busy for u in found.units if u.unit == unit)
        assert last.busy.get(unit, 0.0) == pytest.approx(busy, rel=1e-12)


@pytest.mark.parametrize("target", TARGETS)
def test_before_the_first_pass_each_load_and_store_goes_to_the_farthest_memory(target: str) -> None:
    _, first = counted(target)[0]
    element, points = 4, 40**3
    assert first.operations == 2 * 2 * points
    read, written = (sum(pair[at] for pair in first.moved.values()) for at in (0, 1))
    assert read == 2 * 3 * points * element  # two operands and the old sum
    assert written == 2 * points * element
    assert not first.named
    assert not first.busy


def test_what_is_not_reached_yet_is_said() -> None:
    passes = counted("many_core")
    said = {spec.partition("{")[0]: own.unreached for spec, own in passes}
    first = next(own for spec, own in passes if spec == "partition{unit=CORE}")
    assert first.unreached.endswith("lies in DRAM: CORE does not reach DRAM: it reaches SRAM")
    assert said["place"] == ""


def test_kernels_that_are_alike_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[Block] = []
    count = Counting._count

    def timed(self: Counting, root: Block) -> Counted:
        times.append(root)
        return count(self, root)

    monkeypatch.setattr(Counting, "_count", timed)
    text = "function (A[N], B[N]) -> (R, S, T) { R = exp(A); S = exp(B); T = A + B; }"
    types = {"A": as_type("f32[64]", "A"), "B": as_type("f32[64]", "B")}
    program = read_program(text).lower(types, ())
    found = Counting(resolve_target("vector_dsp")).of(program)
    assert found is not None
    assert found.operations == 3 * 64
    assert len(times) == 2


def test_beyond_a_limit_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "KINDS", 1)
    types = {"A": as_type("f32[64]", "A")}
    program = read_program("function (A[N]) -> (R, S) { R = exp(A); S = A + A; }").lower(types, ())
    assert Counting(resolve_target("vector_dsp")).of(program) is None


def test_a_run_that_is_too_long_is_given_up() -> None:
    program = program_of(TILES.replace("INFLIGHT", ""))
    with pytest.raises(TooLong):
        simulate(program, machine(), limit=11)
    assert simulate(program, machine(), limit=12).cycles
