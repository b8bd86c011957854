"""Laws of what the simulator says, each with the conditions under which it holds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from simulator.bounds import compulsory
from simulator.closed import ClosedForm
from simulator.least import CANDIDATES, Least, least_traffic
from simulator.simulate import simulate
from stripe.analysis.cost_sizes import balanced_sizes
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.printer import to_text
from stripec.driver import Compilation, optimise
from tests.support import managed
from tests.support.passes import chosen_of
from tests.support.problems import of_text
from tests.support.renaming import by_position, scrambled


def targets(*quick: str, but: tuple[str, ...] = ()) -> list[Any]:
    """All that ship with memories that programs manage, `but` some; those that are not `quick` are slow."""
    return [
        pytest.param(name, marks=[] if name in quick else [pytest.mark.slow])
        for name in (*managed.TARGETS, *managed.CHIPS)
        if name not in but
    ]


TARGETS = targets(*managed.TARGETS)


def needed(program: Program) -> dict[str, int]:
    """Compulsory bytes of a program with one kernel, by tensor."""
    root = program.root
    return {r.name: compulsory(root, list(root.children), r, whole=True) for r in root.refinements}


def least(program: Program, capacity: int | None) -> Least | None:
    found = least_traffic(program.root, program.root.children[0], needed(program), capacity)
    return None if isinstance(found, str) else found


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
        return of_text(text, I=image, F=f"i8[{self.window},{self.window},{self.c},{self.n}]")


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


@pytest.mark.parametrize("target", targets("systolic_16", "vector_dsp"))
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


@given(own=larger)
@settings(deadline=None, max_examples=6, derandomize=True)
def test_faster_transfers_of_many_units(own: Window) -> None:
    """Sixteen engines on one memory: where memories keep nobody waiting, faster ones are never worse. Where
    they do, it is the shares alone that make them so, and by less than a hundredth: for the same program, and
    for one that is mapped anew."""
    hw = load_named("many_core")
    done = compiled(own, hw)
    assume(done is not None)
    assert done is not None
    alone = msgspec.structs.replace(
        hw, memories=tuple(msgspec.structs.replace(m, bytes_per_cycle=None) for m in hw.memories)
    )
    assert cycles(done.program, with_faster_transfers(alone)) <= cycles(done.program, alone)
    faster, before = with_faster_transfers(hw), cycles(done.program, hw)
    assert cycles(done.program, faster) <= 1.01 * before
    anew = compiled(own, faster)
    assert anew is not None
    assert cycles(anew.program, faster) <= 1.01 * before


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


# -- what is chosen ----------------------------------------------------------------------------------


def with_memory(hw: HwConfig, name: str, **fields: int) -> HwConfig:
    memories = tuple(msgspec.structs.replace(m, **fields) if m.name == name else m for m in hw.memories)
    return msgspec.structs.replace(hw, memories=memories)


def tiled_memory(hw: HwConfig) -> str:
    """The memory that tiles are made for."""
    return next(str(step.options["memory"]) for step in hw.pipeline if step.name == "autotile")


def chosen_cost(done: Compilation) -> float | None:
    """The cost of the tile that was chosen; None where several blocks were tiled one by one, or the search
    did not go through all tiles."""
    tiled = [r for r in done.remarks if r.pass_name == "autotile" and r.acted]
    if len(tiled) != 1 or not tiled[0].data["complete"]:
        return None
    return float(chosen_of(tiled[0])["cost"])


def moved(program: Program, hw: HwConfig) -> tuple[int, float]:
    """Cycles, and those of them that transfer units are busy."""
    found = simulate(program, hw, counts="simulated")
    assert found.cycles is not None
    units = [u for u in found.units if (model := hw.unit(u.unit)) is not None and model.kind == "transfer"]
    return found.cycles, sum(u.busy for u in units)


@pytest.mark.parametrize("target", targets("systolic_16", "tpu_like", "vector_dsp", but=("many_core",)))
@given(own=larger, sizes=st.lists(st.integers(1, 64), min_size=2, max_size=3, unique=True))
@settings(deadline=None, max_examples=3, derandomize=True)
def test_a_memory_that_grows_gets_no_costlier_tile(own: Window, sizes: list[int], target: str) -> None:
    """The cost that the search goes by, where it goes through all tiles: those that fit in less fit in more.
    In this cost a cycle of a copy that goes on beside arithmetic counts a fifth, so that a larger memory may
    save copies for more cycles: at most a fifth of what it saves, and 5 % for what the cost model leaves out
    (the order in which copies wait for their unit, what the last tile lacks)."""
    hw = load_named(target)
    name, before = tiled_memory(hw), None
    for size in sorted(sizes):
        larger = with_memory(hw, name, bytes=4096 * size)
        done = compiled(own, larger)
        assert done is not None or before is None
        cost = None if done is None else chosen_cost(done)
        if done is None or cost is None:
            continue
        taken, copies = moved(done.program, larger)
        if before is not None:
            assert cost <= before[0]
            assert taken <= 1.05 * before[1] + 0.2 * max(0, before[2] - copies)
        before = cost, taken, copies


def with_tile(hw: HwConfig, done: Compilation) -> HwConfig:
    """The target with the sizes of tiles that were chosen as the only ones."""
    chosen = [chosen_of(r) for r in done.remarks if r.pass_name == "autotile" and r.acted]
    assume(len(chosen) == 1)
    return with_tiles(hw, chosen[0]["sizes"])


def with_tiles(hw: HwConfig, sizes: object) -> HwConfig:
    steps = tuple(
        msgspec.structs.replace(step, options={**step.options, "tile": sizes})
        if step.name == "autotile"
        else step
        for step in hw.pipeline
    )
    return msgspec.structs.replace(hw, pipeline=steps)


@pytest.mark.parametrize(
    ("target", "dtype", "steps", "capacities"),
    [
        ("systolic_16", "i8", (1, 3), (4096, 6144, 8192, 32768)),
        ("vector_dsp", "f32", (16, 48), (4096, 8192, 16384, 65536)),
    ],
)
def test_the_best_of_all_tiles_is_never_worse_in_a_larger_memory(
    target: str, dtype: str, steps: tuple[int, ...], capacities: tuple[int, ...]
) -> None:
    """What every tile takes, by simulation and without any model of costs: to the cycle and the picojoule, a
    tile that fits in less fits in more and is no worse there, and so is the best of them."""
    hw = load_named(target)
    name, before = tiled_memory(hw), dict[tuple[int, ...], tuple[int, float]]()
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    program = of_text(text, A=f"{dtype}[48,48]", B=f"{dtype}[48,48]")
    for capacity in capacities:
        found: dict[tuple[int, ...], tuple[int, float]] = {}
        for sizes in product(steps, repeat=3):
            own = with_tiles(with_memory(hw, name, bytes=capacity), dict(zip("mnk", sizes, strict=True)))
            try:
                done = optimise(program, own, verify="off", name="product")
            except CompileError as error:
                assert error.diagnostics[0].code == "P110"  # does not fit
                continue
            run = simulate(done.program, own, counts="simulated")
            assert run.cycles is not None
            found[sizes] = run.cycles, run.energy_pj
        assert set(before) <= set(found)
        for at in (0, 1):
            assert all(found[sizes][at] <= taken[at] for sizes, taken in before.items())
        before = found
    assert len(before) == len(steps) ** 3
    assert len({taken[0] for taken in before.values()}) > 1


@pytest.mark.parametrize("target", targets("systolic_16", "gemmini_like"))
@given(own=larger)
@settings(deadline=None, max_examples=3, derandomize=True)
def test_more_banks_are_never_worse(own: Window, target: str) -> None:
    """Banks of the same size, for the same tiles: a memory of more banks is a larger one as well, and with
    other tiles the law of memories that grow holds, not this one."""
    hw = load_named(target)
    name = tiled_memory(hw)
    memory = hw.memory(name)
    assert memory is not None and memory.bytes is not None
    done = compiled(own, hw)
    assume(done is not None)
    assert done is not None
    fixed, before = with_tile(hw, done), None
    for banks in (1, 2, 4, 8):
        more = with_memory(fixed, name, banks=memory.banks * banks, bytes=memory.bytes * banks)
        again = compiled(own, more)
        assert again is not None
        taken = cycles(again.program, more)
        assert before is None or taken <= before
        before = taken


@pytest.mark.parametrize("target", targets("systolic_16", "many_core"))
@given(own=larger, seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=3, derandomize=True)
def test_the_order_of_indexes_does_not_change_the_cost_found(own: Window, seed: int, target: str) -> None:
    """Where the search goes through all tiles. Tensors stay as they are: vectors go along their rows."""
    hw, program, costs = load_named(target), own.program(), []
    kernel = program.root.children[0]
    indexes = list(kernel.indexes)
    random.Random(seed).shuffle(indexes)
    permuted = replace(program.root, statements=(replace(kernel, indexes=tuple(indexes)),))
    for root in (program.root, permuted):
        try:
            costs.append(chosen_cost(optimise(Program(root), hw, verify="off", name="window")))
        except CompileError:
            costs.append(None)
    assume(None not in costs)
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)


# -- names, parts, runs ------------------------------------------------------------------------------


def printed(program: Program, hw: HwConfig) -> tuple[str, bytes]:
    """The program that it becomes, and its simulation, under names that its structure alone decides."""
    done = optimise(program, hw, verify="off", name="main")
    placed, untiled = by_position(done.program), by_position(done.untiled)
    return to_text(placed), msgspec.json.encode(simulate(placed, hw, untiled=untiled))


@pytest.mark.parametrize("target", targets(*managed.TARGETS, "tpu_like", "systolic_32_ws"))
@given(own=larger, seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=2, derandomize=True)
def test_names_change_nothing(own: Window, seed: int, target: str) -> None:
    """To the byte: what is printed of both, with their names mapped to the same ones."""
    program = own.program()
    other = scrambled(program, random.Random(seed))
    hw = load_named(target)
    try:
        one = printed(program, hw)
    except CompileError:
        return
    assert printed(other, hw) == one


@pytest.mark.parametrize("target", TARGETS)
def test_counts_add_up_over_blocks(target: str) -> None:
    """A program does what its kernels do, each alone: nothing else counts."""
    text = """function (A[M, K], B[K, N], D[N]) -> (R) {
        C[m, n : M, N] = +(A[m, k] * B[k, n]);
        S[n : N] = +(C[m, n]);
        R = S + D;
    }"""
    hw = load_named(target)
    done = optimise(of_text(text, A="f32[40,24]", B="f32[24,50]", D="f32[50]"), hw, verify="off", name="main")
    root = done.program.root
    assert len(root.statements) > 1
    parts: Counter[tuple[str, str, str, str]] = Counter()
    for statement in root.statements:
        parts += ClosedForm(replace(root, statements=(statement,)), hw).traffic
    assert parts == +ClosedForm(root, hw).traffic


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    """In processes whose strings have other hashes, too."""
    source = tmp_path / "layer.tile"
    source.write_text("function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }")
    command = [sys.executable, "-m", "stripec", "simulate", str(source), "--target", "systolic_16"]
    shapes = ["--shape", "A=i8[100,60]", "--shape", "B=i8[60,50]", "--json"]
    runs = [
        subprocess.run(
            [*command, *shapes], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] and runs[0] == runs[1]
