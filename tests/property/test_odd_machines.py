"""Programs of all kinds on machines on which nothing divides: counted twice, timed twice, bounded, and right.
Each is on one machine by default, in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwconfigs.model import HwConfig
from simulator.closed import ClosedForm
from simulator.result import Simulation
from simulator.simulate import simulate
from simulator.timeline import Timeline
from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Program
from stripec.driver import Compilation, optimise, read_program
from stripec.tensors import as_type
from tests.support.managed import assert_agree, random_inputs
from tests.support.odd_machines import MACHINES, caches
from tests.support.tile_programs import tile_program
from tests.support.window_programs import window_program

WINDOW = "O[y, x, k : %d, %d, K] = +(I[%d*y + %d*r, %d*x + %d*s, c] * F[r, s, c, k]);"


def window(height: int, width: int, window: int, step: int, apart: int) -> str:
    """A window whose elements lie `apart`, over an image, from `step` to step."""
    y, x = ((size - apart * (window - 1) - 1) // step + 1 for size in (height, width))
    body = WINDOW % (y, x, step, apart, step, apart)
    return f"function (I[H, W, C], F[R, S, C, K]) -> (O) {{ {body} }}"


PROGRAMS: dict[str, tuple[str, dict[str, str]]] = {
    "primes": (window(13, 17, 3, 1, 1), {"I": "i8[13,17,7]", "F": "i8[3,3,7,11]"}),
    "steps": (window(19, 23, 3, 2, 1), {"I": "f32[19,23,5]", "F": "f32[3,3,5,13]"}),
    "steps and holes": (window(29, 31, 3, 3, 2), {"I": "i8[29,31,3]", "F": "i8[3,3,3,7]"}),
    "groups": (
        """function (I[H, W, G, C], F[R, S, G, C, K]) -> (O) {
            O[y, x, g, k : H, W, G, K] = +(I[y + r - 1, x + s - 1, g, c] * F[r, s, g, c, k]);
        }""",
        {"I": "i8[7,11,3,5]", "F": "i8[3,3,3,5,7]"},
    ),
    "a mask": (
        """function (Q[T, D], K[T, D], V[T, D]) -> (O) {
            L[t, s : T, T] = +(Q[t, d] * K[s, d]), t - s < T default -1e9;
            M[t, 0 : T, 1] = >(L[t, s]); E = exp(L - M); Z[t, 0 : T, 1] = +(E[t, s]); P = E / Z;
            O[t, d : T, D] = +(P[t, s] * V[s, d]);
        }""",
        {"Q": "f32[29,7]", "K": "f32[29,7]", "V": "f32[29,7]"},
    ),
    "rank 0": ("function (A[N]) -> (S, T) { S[] = +(A[i]); T = S * 2; }", {"A": "i8[5003]"}),
    "by its sum": (
        "function (A[N, M]) -> (R) { S[] = +(A[i, j] * A[i, j]); R = A / sqrt(S); }",
        {"A": "f32[61,53]"},
    ),
    "a triangle": (
        "function (B[M, M], X[M]) -> (L) { L[i : M] = +(B[i, j] * X[j]), i - j < M; }",
        {"B": "f32[83,83]", "X": "f32[83]"},
    ),
    "kernels": (
        """function (X[B, I], A[I, N], C[N, N], D[N, O], E[N]) -> (Z) {
            H[b, n : B, N] = +(X[b, i] * A[i, n]); R = relu(H + E);
            G[b, n : B, N] = +(R[b, i] * C[i, n]); S = relu(G + E);
            Z[b, o : B, O] = +(S[b, i] * D[i, o]);
        }""",
        {"X": "f32[29,61]", "A": "f32[61,97]", "C": "f32[97,97]", "D": "f32[97,11]", "E": "f32[97]"},
    ),
}


def check(program: Program, hw: HwConfig) -> None:
    try:
        done = optimise(program, hw, name="main")
    except CompileError:  # too large for the machine, which other tests look at
        return
    root = done.program.root
    full, quick = Timeline(root, hw, extrapolate=False), Timeline(root, hw)
    full.run()
    quick.run()
    assert (quick.now, quick.totals) == (full.now, full.totals)
    closed = ClosedForm(root, hw)
    assert +closed.counts == +full.totals.by_unit()
    assert +closed.traffic == +full.totals.traffic
    found = simulate(done.program, hw, untiled=done.untiled)
    assert_time_adds_up(found)
    assert_bounds_hold(found, done)
    for own in found.occupancy:
        assert own.most <= next(m.peak for m in found.memories if m.memory == own.memory)
    inputs = random_inputs(program, np.random.default_rng(0))
    assert_agree(interpret_placed(done.program, inputs, hw), interpret(program, inputs), hw.name)


def assert_time_adds_up(found: Simulation) -> None:
    for unit in found.units:
        split = unit.split
        assert split is not None
        parts = split.useful, split.padding, split.filling, split.data, split.units, split.nothing
        whole = unit.busy + sum(unit.stalled.values()) + sum(unit.idle.values())
        assert min(parts) > -1e-9
        assert sum(parts) == pytest.approx(whole)
        assert whole == pytest.approx(found.cycles, abs=1)  # which is rounded up


def assert_bounds_hold(found: Simulation, done: Compilation) -> None:
    assert found.bounds or all(0 in ref.shape for ref in done.program.outputs)
    for bound in found.bounds:
        assert bound.compulsory <= bound.ours
        if bound.least is not None:
            assert bound.compulsory <= bound.least
            assert bound.tensor or bound.least <= bound.ours
    if found.bounds:
        far = [t for t in found.traffic if t.memory == found.bounds[-1].memory]
        assert found.bounds[-1].ours == sum(t.read + t.written + t.updated for t in far)


def in_turn(many: int, each: int) -> list[Any]:
    """Numbers of programs with a machine: the first `each` on one of them, and the rest of it, slow."""
    return [
        pytest.param(
            number, hw, id=f"{number}-{hw.name}",
            marks=[] if number < each and number % len(MACHINES) == at else [pytest.mark.slow],
        )
        for number in range(many)
        for at, hw in enumerate(MACHINES)
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "hw"), in_turn(len(PROGRAMS), len(PROGRAMS)))
def test_programs(number: int, hw: HwConfig) -> None:
    text, shapes = list(PROGRAMS.values())[number]
    check(read_program(text).lower({n: as_type(t, n) for n, t in shapes.items()}, ()), hw)


@pytest.mark.parametrize(("seed", "hw"), in_turn(100, 3))
def test_generated_programs(seed: int, hw: HwConfig) -> None:
    check(tile_program(seed).compile(), hw)


@pytest.mark.parametrize(("seed", "hw"), in_turn(100, 3))
def test_programs_with_windows(seed: int, hw: HwConfig) -> None:
    check(window_program(seed).compile(), hw)


def test_tiles_with_nothing_left_to_do() -> None:
    """Whose last statement has no points, and is done as soon as it starts."""
    check(window_program(1012).compile(), MACHINES[2])


CACHES = (caches("generic"), caches("x86_64_avx2", replacement="fifo"), caches("x86_64_avx512", cores=3))
ON_CACHES = [
    ("windows", 120), ("tile", 124), ("windows", 125),
    *(pytest.param(kind, n, marks=pytest.mark.slow) for n in range(200) for kind in ("tile", "windows")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "seed"), ON_CACHES)
def test_programs_on_caches(kind: str, seed: int) -> None:
    """Counted twice. Kernels find parts of what they read in caches, and leave parts of what they write."""
    program = (tile_program(seed) if kind == "tile" else window_program(seed)).compile()
    for hw in CACHES if seed in (120, 124, 125) else (CACHES[seed % len(CACHES)],):
        done = optimise(program, hw, name="main", verify="off")
        found = simulate(done.program, hw, untiled=done.untiled)
        assert_time_adds_up(found)
        assert_bounds_hold(found, done)
        assert [o.most for o in found.occupancy] == [m.peak for m in found.memories]
        for cache in found.caches:
            assert cache.accesses == cache.hits + cache.misses
            assert cache.left <= cache.written_back
