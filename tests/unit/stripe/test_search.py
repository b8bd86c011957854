"""The search for tiles: it finds what weighing every combination finds, and visits a part of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Any

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis import search as search_module
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_explicit import ExplicitRoofline
from stripe.analysis.cost_problem import CostModel, Problem
from stripe.analysis.search import search
from stripe.ir import Program
from stripe.parser import parse
from stripe.visit import views_of
from tests.support.costs import contraction, convolution, machine

EVERYTHING = 1 << 30
VISITED: dict[str, tuple[int, int]] = {}


def scratchpad(capacity: int, accumulators: int = 1 << 16) -> HwConfig:
    """A target with a programmer-managed memory, one for accumulators and a unit that copies."""
    return HwConfig(
        "pad", "for tests", "interpreter",
        memories=(
            Memory("ACC", "explicit", bytes=accumulators, backing="DRAM"),
            Memory("PAD", "explicit", bytes=capacity, backing="DRAM"),
            Memory("DRAM", "explicit", bytes_per_cycle=16.0),
        ),
        units=(
            Unit("CORE", vector_bytes=64, reaches=("PAD", "ACC")),
            Unit("DMA", "transfer", bytes_per_cycle=8.0, startup_cycles=100.0, reaches=("PAD", "DRAM")),
        ),
    )  # fmt: skip


def small_caches(name: str, bytes_: int, cache: str = "L1") -> HwConfig:
    hw = load_named(name)
    memories = (msgspec.structs.replace(m, bytes=bytes_ if m.name == cache else m.bytes) for m in hw.memories)
    return msgspec.structs.replace(hw, memories=tuple(memories))


def model_of(program: Program, hw: HwConfig, memory: str, cost: str = "roofline", **more: Any) -> CostModel:
    found = hw.memory(memory)
    assert found is not None
    outer = views_of(program.root, {})
    return COST_MODELS[cost](Problem(program.root.children[0], outer, hw, found, **more))


def reduction_of(m: int, n: int, k: int, move: int) -> Program:
    """Rows of windows: R[m, n] = max over k of A[move * m + k, n]."""
    rows = move * (m - 1) + k
    return parse(
        f"""
        block main [] (in A[0, 0] f32({rows}, {n})  out R[0, 0]:assign f32({m}, {n})) {{
          block r [m:{m}, n:{n}, k:{k}] (in A[{move}*m + k, n] f32(1, 1)  out R[m, n]:max f32(1, 1)) {{
            $a = load(A) f32
            R = store($a)
          }}
        }}
        """
    )


def cases() -> Iterator[tuple[str, CostModel]]:
    """Problems of every model, on several memories; some shapes are drawn."""
    rng = random.Random(20)
    shapes = [(512, 512, 512), (480, 768, 1024), (100, 90, 80)]
    shapes += [(rng.randint(20, 400), rng.randint(20, 400), rng.randint(20, 400)) for _ in range(4)]
    for shape in shapes:
        program, name = contraction(*shape), "x".join(map(str, shape))
        yield f"registers {name}", model_of(program, load_named("x86_64_avx512"), "REG")
        yield f"L1 {name}", model_of(program, small_caches("x86_64_avx2", 16384), "L1", reductions=True)
        yield f"pad {name}", model_of(program, scratchpad(20000), "PAD", inflight=2)
        hw = scratchpad(9000, 2048)
        yield f"pad and accumulators {name}", model_of(program, hw, "PAD", accumulators=hw.memories[0])
    for _ in range(4):
        m, n, k = rng.randint(30, 200), rng.randint(30, 200), rng.randint(2, 9)
        program, name = reduction_of(m, n, k, rng.randint(1, 3)), f"{m}x{n}x{k}"
        yield f"windows, pad {name}", model_of(program, scratchpad(6000), "PAD")
        yield f"windows, L1 {name}", model_of(program, small_caches("generic", 4096), "L1")
        lines = "cache_lines_per_point"
        yield f"windows, lines {name}", model_of(program, machine(4000, 16), "NEAR", lines)
    for shape in ((96, 128, 2000), (60, 90, 3000)):  # tiles make copies of B
        program = contraction(*shape, b="n, k")
        yield (
            f"L2 {'x'.join(map(str, shape))}",
            model_of(program, small_caches("x86_64_avx512", 1 << 18, "L2"), "L2"),
        )
    for size, channels in ((12, 4), (14, 8), (9, 16)):
        program = convolution(size, size, channels, channels, 3)
        hw = machine(2048, 16)
        names = ("x", "y", "k")
        yield f"lines {size} {channels}", model_of(program, hw, "NEAR", "cache_lines_per_point", names=names)
        yield f"halo, pad {size} {channels}", model_of(program, scratchpad(700), "PAD")


CASES = [(name, model) for name, model in cases() if not model.refusal()]


@pytest.mark.parametrize(("name", "model"), CASES, ids=[name for name, _ in CASES])
def test_the_search_finds_what_weighing_everything_finds(name: str, model: CostModel) -> None:
    every = search(model, EVERYTHING, all_below=EVERYTHING)
    found = search(model, EVERYTHING, all_below=0)
    assert every.visited == every.possible == found.possible
    assert found.complete and found.best == every.best
    VISITED[name] = found.visited, found.possible


def test_it_visits_a_fraction() -> None:
    assert len(CASES) >= 30
    for name, model in CASES:
        if name not in VISITED:  # run alone
            found = search(model, EVERYTHING, all_below=0)
            VISITED[name] = found.visited, found.possible
    for name, (visited, possible) in VISITED.items():
        print(f"{name}: {visited} of {possible} ({visited / possible:.1%})")
    large = [(v, p) for v, p in VISITED.values() if p > 4096]  # fewer are all weighed at once
    total = sum(v for v, _ in large), sum(p for _, p in large)
    print(f"{len(large)} spaces beyond 4096: {total[0]} of {total[1]} ({total[0] / total[1]:.1%})")
    assert len(large) >= 8
    assert all(v < 0.7 * p for v, p in large) and total[0] < 0.3 * total[1]


@pytest.mark.parametrize(
    ("name", "model"), CASES[:24:3] + CASES[24:], ids=lambda v: v if isinstance(v, str) else ""
)
def test_bounds_hold_for_all_in_the_box(name: str, model: CostModel) -> None:
    rng = np.random.default_rng(7)
    choices = {n: np.asarray(sizes) for n, sizes in model.choices().items()}
    for order in model.orders():
        ends = {n: np.sort(rng.integers(0, len(s), (2, 40)), axis=0) for n, s in choices.items()}
        inside = {n: rng.integers(low, high + 1) for n, (low, high) in ends.items()}
        low = {n: s[ends[n][0]] for n, s in choices.items()}
        high = {n: s[ends[n][1]] for n, s in choices.items()}
        bound = model.evaluate(low, order, high)
        exact = model.evaluate({n: s[inside[n]] for n, s in choices.items()}, order)
        assert (bound.cost <= exact.cost * (1 + 1e-9)).all()
        for least, limit in zip(bound.limits, exact.limits, strict=True):
            assert (least.needed <= limit.needed).all()


@pytest.mark.parametrize("shape", [(23, 17, 12), (9, 30, 8), (16, 16, 16)])
def test_least_sizes_for_each_number_of_tiles_are_enough(shape: tuple[int, int, int]) -> None:
    hw = scratchpad(2500)
    model = model_of(contraction(*shape), hw, "PAD", inflight=2)
    assert isinstance(model, ExplicitRoofline)
    best = search(model, EVERYTHING).best
    assert best is not None
    grid = np.indices(shape).reshape(3, -1) + 1
    sizes = dict(zip(("m", "n", "k"), grid, strict=True))
    every = [model.evaluate(sizes, order) for order in model.orders()]
    assert best.cost == pytest.approx(min(e.cost[e.fits].min() for e in every))


@pytest.mark.parametrize("together", [2, 16, 256, 1024])
def test_the_best_is_found_however_many_boxes_are_bounded_at_once(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(contraction(480, 768, 1024), load_named("x86_64_avx2"), "L1", reductions=True)
    best = search(model, EVERYTHING, all_below=EVERYTHING).best
    monkeypatch.setattr(search_module, "TOGETHER", together)
    found = search(model, EVERYTHING, all_below=0)
    assert found.complete and found.best == best
    assert found.visited < found.possible


def test_a_search_that_is_cut_short_says_so() -> None:
    model = model_of(contraction(480, 768, 1024), load_named("x86_64_avx2"), "L1", reductions=True)
    full = search(model, EVERYTHING)
    assert full.complete and full.seconds > 0
    for budget in (1, 7, 100, 200):
        found = search(model, budget)
        assert found.visited <= budget and found.weighed <= budget and not found.complete
    costs = [search(model, budget).best for budget in (100, 200, EVERYTHING)]
    assert all(a and b and a.cost and b.cost and a.cost >= b.cost for a, b in pairwise(costs))


def test_the_frontier_has_the_best_tile_of_each_size() -> None:
    found = search(model_of(contraction(96, 96, 96), load_named("x86_64_avx512"), "REG"), EVERYTHING)
    best = found.best
    assert best is not None and best.cost is not None
    frontier, most = found.frontier(2.0), 2.0 * best.cost
    assert frontier[0] == (best.sizes, best.cost)
    assert len(frontier) < len(found.fitting) / 2
    for m, n in ((96, 96), (4, 96), (96, 16), (3, 32), (1, 16)):

        def least(tiles: Iterable[tuple[Mapping[str, int], float]], m: int = m, n: int = n) -> float:
            return min((cost for tile, cost in tiles if tile["m"] <= m and tile["n"] <= n), default=inf)

        every = least((c.sizes, c.cost) for c in found.fitting if c.cost is not None)
        assert least(frontier) == (every if every <= most else inf)


def test_nothing_that_fits() -> None:
    found = search(model_of(contraction(40, 40, 40), scratchpad(8), "PAD"), EVERYTHING, all_below=0)
    assert found.best is None and found.fitting == () and found.complete
    assert min(c.needed for c in found.excluded) == 12 and found.limits == ((8, "bytes of PAD"),)
