"""What is minimised, and the front."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripec.exploring.objectives import GOALS, check_objectives, front, needs_cycles, units_of
from stripec.exploring.result import Measured, MemoryTotals

HW = load_named("systolic_16")


def measured(cycles: int | None, energy: float) -> Measured:
    return Measured(
        program="p", cycles=cycles, seconds=None if cycles is None else cycles / 1e9, energy_pj=energy,
        operations=1, bound=None,
        memories=[
            MemoryTotals(memory="SPAD", peak=9, read=1000, written=2000),
            MemoryTotals(memory="DRAM", peak=9, read=10, written=20),
        ],
    )  # fmt: skip


def test_objectives_are_summed_over_programs() -> None:
    found = [measured(1000, 5.0), measured(500, 2.0)]
    values = {name: goal.value(HW, found) for name, goal in GOALS.items()}
    assert values == {
        "energy": 7.0, "latency": pytest.approx(1.5e-6), "cycles": 1500.0, "edp": pytest.approx(7 * 1.5e-6),
        "traffic": 60.0, "capacity": 65536.0 + 262144.0, "array": 256.0,
    }  # fmt: skip


def test_latency_is_in_cycles_without_a_clock() -> None:
    hw = msgspec.structs.replace(HW, clock_hz=None)
    assert GOALS["latency"].value(hw, [measured(1000, 5.0)]) == 1000.0
    assert [o.unit for o in units_of(("latency", "edp", "energy"), False)] == ["cycles", "pJ cycles", "pJ"]
    assert [o.unit for o in units_of(("latency", "edp", "energy"), True)] == ["s", "pJ s", "pJ"]


def test_an_array_that_streams_any_number_of_rows_is_measured_without_its_startup() -> None:
    assert GOALS["array"].value(load_named("systolic_32_ws"), []) == pytest.approx(1024, rel=0.01)


def test_closed_counts_do_where_no_cycles_are_needed() -> None:
    assert not needs_cycles(("energy", "traffic", "capacity", "array"), [HW])
    assert needs_cycles(("energy",), [HW, msgspec.structs.replace(HW, static_pj_per_cycle=1.0)])
    for name in ("latency", "cycles", "edp"):
        assert needs_cycles((name,), [HW])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("enrgy",), "did you mean 'energy'"),
        (("area",), "there is: energy, latency"),
        (("energy", "energy"), "given twice"),
        ((), "no objective is given"),
    ],
)
def test_unknown_objectives_are_told(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        check_objectives(names)


def test_equal_points_are_on_the_front_together() -> None:
    assert front([(0, (1, 2)), (1, (2, 1)), (2, (1, 2)), (3, (2, 2)), (4, (3, 0.5)), (5, (1, 3))]) == [
        0,
        1,
        2,
        4,
    ]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=30))
def test_the_front_is_what_nothing_beats(values: list[tuple[int, int, int]]) -> None:
    def beaten(own: tuple[int, ...]) -> bool:
        return any(all(a <= b for a, b in zip(o, own, strict=True)) and o != own for o in values)

    assert front(list(enumerate(values))) == [n for n, own in enumerate(values) if not beaten(own)]
