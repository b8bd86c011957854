"""Laws of what the simulator says, each with the conditions under which it holds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from simulator.bounds import compulsory
from simulator.least import CANDIDATES, Least, least_traffic
from simulator.simulate import simulate
from stripe.analysis.cost_problem import balanced_sizes
from stripe.diag import CompileError
from stripe.ir import Program
from stripec.driver import Compilation, optimise, read_program
from stripec.tensors import as_type

TARGETS = ("systolic_16", "vector_dsp", "many_core")


def lowered(text: str, **shapes: str) -> Program:
    return read_program(text).lower({name: as_type(t, name) for name, t in shapes.items()}, ())


def needed(program: Program) -> dict[str, int]:
    """Compulsory bytes of a program with one kernel, by tensor."""
    root = program.root
    return {r.name: compulsory(root, list(root.children), r, whole=True) for r in root.refinements}


def least(program: Program, capacity: int | None) -> Least | None:
    return least_traffic(program.root, program.root.children[0], needed(program), capacity)


@dataclass(frozen=True)
class Window:
    """A window over an image of several pictures: at a point, steps times the place plus the place inside."""

    batch: int
    height: int
    width: int
    c: int
    n: int
    window: int
    step: int

    def program(self, order: tuple[int, ...] = (0, 1, 2, 3)) -> Program:
        """`order` permutes the dimensions of the result, and so the indexes of the kernel."""
        y, x = ((size - self.window) // self.step + 1 for size in (self.height, self.width))
        names, sizes = ("b", "y", "x", "n"), (self.batch, y, x, self.n)
        shown = ", ".join(names[at] for at in order)
        whole = ", ".join(str(sizes[at]) for at in order)
        text = f"""function (I[B, H, W, C], F[R, S, C, N]) -> (O) {{
            O[{shown} : {whole}] = +(I[b, {self.step}*y + r, {self.step}*x + s, c] * F[r, s, c, n]);
        }}"""
        image = f"i8[{self.batch},{self.height},{self.width},{self.c}]"
        return lowered(text, I=image, F=f"i8[{self.window},{self.window},{self.c},{self.n}]")


windows = st.builds(
    Window, st.integers(1, 3), st.integers(4, 12), st.integers(4, 12), st.integers(1, 8), st.integers(1, 8),
    st.integers(1, 4), st.integers(1, 3),
)  # fmt: skip


def tries_all(program: Program) -> bool:
    """Whether the search for the least tries every combination."""
    count, blocks = 1, [program.root.children[0]]
    while blocks:
        block = blocks.pop()
        blocks += block.children
        for size in block.ranges.values():
            count *= len(balanced_sizes(size)) if size > 1 else 1
    return count <= CANDIDATES


# -- what has to cross -------------------------------------------------------------------------------


@given(windows)
@settings(deadline=None, max_examples=40)
def test_twice_the_batch_is_twice_the_activations_and_the_same_weights(own: Window) -> None:
    once, twice = needed(own.program()), needed(Window(2 * own.batch, *_rest(own)).program())
    assert twice == {"I": 2 * once["I"], "F": once["F"], "O": 2 * once["O"]}


@given(windows, st.sampled_from(list(permutations(range(4)))))
@settings(deadline=None, max_examples=40)
def test_the_order_of_indexes_does_not_matter(own: Window, order: tuple[int, ...]) -> None:
    """The least is the same where all combinations of sizes are tried."""
    plain, permuted = own.program(), own.program(order)
    assert needed(plain) == needed(permuted)
    assume(tries_all(plain))
    for capacity in (64, 1024, None):
        one, other = least(plain, capacity), least(permuted, capacity)
        assert (one is None) == (other is None)
        assert one is None or other is None or one.total == other.total


@given(windows, st.lists(st.integers(1, 4000), min_size=2, max_size=4))
@settings(deadline=None, max_examples=40)
def test_a_memory_that_grows_is_never_worse(own: Window, capacities: list[int]) -> None:
    """For the least that is found, where all combinations of sizes are tried."""
    program = own.program()
    assume(tries_all(program))
    before = None
    for capacity in sorted(capacities):
        found = least(program, capacity)
        assert found is not None or before is None
        if found is not None:
            assert before is None or found.total <= before
            assert found.total >= sum(needed(program).values())
            before = found.total


def _rest(own: Window) -> tuple[int, ...]:
    return own.height, own.width, own.c, own.n, own.window, own.step


# -- what a run takes --------------------------------------------------------------------------------


def compiled(own: Window, hw: HwConfig) -> Compilation | None:
    try:
        return optimise(own.program(), hw, verify="off", name="window")
    except CompileError:  # too large for the target, which other tests look at
        return None


def cycles(program: Program, hw: HwConfig) -> int:
    found = simulate(program, hw, counts="simulated").cycles
    assert found is not None
    return found


def with_faster_memory(hw: HwConfig, name: str) -> HwConfig:
    memories = tuple(
        msgspec.structs.replace(m, bytes_per_cycle=2 * m.bytes_per_cycle)
        if m.name == name and m.bytes_per_cycle
        else m
        for m in hw.memories
    )
    return msgspec.structs.replace(hw, memories=memories)


def with_faster_transfers(hw: HwConfig) -> HwConfig:
    units = tuple(
        msgspec.structs.replace(u, bytes_per_cycle=2 * u.bytes_per_cycle) if u.bytes_per_cycle else u
        for u in hw.units
    )
    return msgspec.structs.replace(hw, units=units)


larger = st.builds(
    Window, st.integers(1, 3), st.integers(6, 30), st.integers(6, 30), st.integers(1, 40), st.integers(1, 40),
    st.integers(1, 4), st.integers(1, 2),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@given(own=larger)
@settings(deadline=None, max_examples=8, derandomize=True)
def test_a_faster_memory_is_never_worse(own: Window, target: str) -> None:
    """For one program, and for one that is mapped anew. Units take what waits longest, so that nothing proves
    it; no exception is known."""
    hw = load_named(target)
    done = compiled(own, hw)
    assume(done is not None)
    assert done is not None
    before = cycles(done.program, hw)
    for memory in hw.memories:
        if memory.bytes_per_cycle:
            faster = with_faster_memory(hw, memory.name)
            assert cycles(done.program, faster) <= before
            anew = compiled(own, faster)
            assert anew is not None
            assert cycles(anew.program, faster) <= before


@pytest.mark.parametrize("target", ["systolic_16", "vector_dsp"])
@given(own=larger)
@settings(deadline=None, max_examples=8, derandomize=True)
def test_faster_transfers_are_never_worse(own: Window, target: str) -> None:
    """For one program, where one unit at a time asks a memory for more than it delivers. Where several do, it
    serves each in proportion to what it asks for: copies that are asked for faster take from those that
    others wait for, and the last ones end later by some cycles in a thousand."""
    hw = load_named(target)
    done = compiled(own, hw)
    assume(done is not None)
    assert done is not None
    assert cycles(done.program, with_faster_transfers(hw)) <= cycles(done.program, hw)


@pytest.mark.parametrize("target", TARGETS)
@given(own=larger)
@settings(deadline=None, max_examples=8, derandomize=True)
def test_ours_is_at_least_what_has_to_cross(own: Window, target: str) -> None:
    hw = load_named(target)
    done = compiled(own, hw)
    assume(done is not None)
    assert done is not None
    found = simulate(done.program, hw, counts="closed", untiled=done.untiled)
    assert found.bounds
    for bound in found.bounds:
        assert bound.ours >= bound.compulsory
        assert bound.least is None or bound.compulsory <= bound.least
        assert bound.least is None or bound.tensor or bound.least <= bound.ours
    again = optimise(own.program(), hw, verify="off", name="window")
    once_more = simulate(again.program, hw, counts="closed", untiled=again.untiled)
    assert msgspec.json.encode(once_more) == msgspec.json.encode(found)
