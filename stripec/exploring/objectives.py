"""What a sweep minimises, and the points that nothing beats: the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hwconfigs.expressions import ExpressionError, evaluate_size
from hwconfigs.model import HwConfig, SizeRange, Stencil
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripec.exploring.result import Measured, Objective

_LARGE = 1 << 20  # stands for a size that may be any


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective: its unit, whether it needs cycles, and its value at a point."""

    unit: str
    timed: bool
    value: Callable[[HwConfig, Sequence[Measured]], float]
    help: str


def _energy(hw: HwConfig, found: Sequence[Measured]) -> float:
    return sum(each.energy_pj for each in found)


def _cycles(hw: HwConfig, found: Sequence[Measured]) -> float:
    return float(sum(each.cycles or 0 for each in found))


def _latency(hw: HwConfig, found: Sequence[Measured]) -> float:
    return sum(each.seconds or 0.0 for each in found) if hw.clock_hz else _cycles(hw, found)


def _edp(hw: HwConfig, found: Sequence[Measured]) -> float:
    return _energy(hw, found) * _latency(hw, found)


def _traffic(hw: HwConfig, found: Sequence[Measured]) -> float:
    home = hw.home.name if hw.home is not None else ""
    moved = (memory for each in found for memory in each.memories if memory.memory == home)
    return float(sum(memory.read + memory.written for memory in moved))


def _capacity(hw: HwConfig, found: Sequence[Measured]) -> float:
    return float(sum((memory.bytes or 0) * memory.count for memory in hw.memories))


def _array(hw: HwConfig, found: Sequence[Measured]) -> float:
    rates = []
    for unit in hw.units:
        own = [_points_per_cycle(stencil) for stencil in hw.stencils if stencil.unit == unit.name]
        rates.append(max(own, default=0.0) * unit.count)
    return sum(rates)


def _points_per_cycle(stencil: Stencil) -> float:
    """How many points of a stencil a cycle does at most, beside its startup."""
    sizes = {"lanes": 1}
    for name, size in stencil.indices.items():
        most = size.most if isinstance(size, SizeRange) else size
        sizes[name] = most if isinstance(most, int) else _LARGE
    points = 1.0
    for name in stencil.indices:
        points *= sizes[name]
    try:
        cycles = evaluate_size(stencil.cycles, sizes) if stencil.cycles else 1.0
    except ExpressionError:
        return 0.0
    return points / cycles if cycles > 0 else 0.0


GOALS: dict[str, Goal] = {
    "energy": Goal("pJ", False, _energy, "of all that is counted, and of `static_pj_per_cycle`"),
    "latency": Goal("s", True, _latency, "one program after the other; cycles where there is no clock"),
    "cycles": Goal("cycles", True, _cycles, "the same in cycles"),
    "edp": Goal("pJ s", True, _edp, "energy by latency"),
    "traffic": Goal("B", False, _traffic, "read from and written to where inputs and outputs lie"),
    "capacity": Goal("B", False, _capacity, "of all memories that have one: a stand-in for their area"),
    "array": Goal(
        "points/cycle", False, _array, "what stencils do at most, over all units: a stand-in for their area"
    ),
}  # fmt: skip


def check_objectives(names: Sequence[str]) -> tuple[str, ...]:
    """Raises CompileError D103 for a name that there is not, or that is given twice."""
    for number, name in enumerate(names):
        if name not in GOALS:
            near = [note for note in did_you_mean(name, GOALS) if note.startswith("help")]
            notes = (*near, f"there is: {', '.join(GOALS)}")
            raise CompileError(Diagnostic("D103", f"no objective is named '{name}'", notes=notes))
        if name in names[:number]:
            raise CompileError(Diagnostic("D103", f"the objective '{name}' is given twice"))
    if not names:
        raise CompileError(
            Diagnostic("D103", "no objective is given", notes=(f"there is: {', '.join(GOALS)}",))
        )
    return tuple(names)


def needs_cycles(names: Sequence[str], targets: Sequence[HwConfig]) -> bool:
    """Whether programs have to be gone through in time for these."""
    static = any(hw.static_pj_per_cycle for hw in targets)
    return any(GOALS[name].timed or (name == "energy" and static) for name in names)


def units_of(names: Sequence[str], clocked: bool) -> list[Objective]:
    def unit(goal: Goal) -> str:
        return goal.unit if clocked else {"s": "cycles", "pJ s": "pJ cycles"}.get(goal.unit, goal.unit)

    return [Objective(name=name, unit=unit(GOALS[name])) for name in names]


def front(points: Sequence[tuple[int, Sequence[float]]]) -> list[int]:
    """The numbers of the points that no other is as good as in all values and better than in one."""
    found: list[tuple[int, Sequence[float]]] = []
    # In this order, what beats a point comes before it.
    for number, values in sorted(points, key=lambda point: (tuple(point[1]), point[0])):
        if not any(_beats(other, values) for _, other in found):
            found.append((number, values))
    return sorted(number for number, _ in found)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)
