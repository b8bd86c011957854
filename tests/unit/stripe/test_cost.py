"""The roofline model, the traffic of tiles, and the sizes that a search tries."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.analysis.bounds import (
    box_elements,
    operands,
)
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import Problem
from stripe.analysis.cost_sizes import balanced_sizes, possible_sizes
from stripe.analysis.cost_traffic import Traffic
from stripe.parser import parse
from stripe.rewrite import rename_indexes
from stripe.visit import views_of
from tests.support.costs import contraction, found_by, kernel, problem_of, register_tile


@pytest.mark.parametrize(
    ("target", "lanes", "registers"), [("x86_64_avx512", 16, 32), ("x86_64_avx2", 8, 16)]
)
@pytest.mark.parametrize("size", [120, 512, 1000])
def test_a_contraction_fills_the_registers(target: str, lanes: int, registers: int, size: int) -> None:
    sizes = register_tile(contraction(size, size, size), target)
    assert sizes["n"] % lanes == 0
    vectors = sizes["n"] // lanes
    assert 0.6 * registers <= sizes["m"] * vectors <= registers - vectors - 1
    # Multiply-adds per load: what is loaded is used at least three times.
    assert sizes["m"] * vectors >= 3 * (sizes["m"] + vectors) / 2
    padded = ceil(size / sizes["m"]) * sizes["m"] * ceil(size / sizes["n"]) * sizes["n"]
    assert padded <= 1.1 * size * size


def test_lanes_that_reduce_go_outside_the_rows() -> None:
    problem = problem_of(contraction(96, 96, 512, b="n, k"), load_named("x86_64_avx512"), "REG")
    best = found_by("roofline", problem).fitting[0]
    assert best.sizes["m"] * best.sizes["n"] >= 16
    assert COST_MODELS["roofline"](problem).inner_order(problem.leaves[0]) == ("k", "m", "n")


def test_sums_along_the_lanes_gain_nothing_from_rows_without_common_data() -> None:
    program = parse(
        """
        block main [] (in A[0, 0] f32(256, 512)  out R[0]:assign f32(256)) {
          block r [m:256, n:512] (in A[m, n] f32(1, 1)  out R[m]:add f32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    model = COST_MODELS["roofline"](problem_of(program, load_named("x86_64_avx512"), "REG"))
    assert model.refusal() == "its lanes are summed at the end, and no two rows share data"


SUM_AND_SCALE = """
    block main [] (in A[0, 0] f32(256, N)  out R[0, 0]:assign f32(256, N)) {
      block r [m:256] (in A[m, 0] f32(1, N)  out R[m, 0]:assign f32(1, N)  new S f32(1)) {
        block s [n:N] (in A[0, n] f32(1, 1)  out S[0]:add f32(1)) { $a = load(A)  S = store($a) }
        block r [n:N] (in A[0, n] f32(1, 1)  in S[0] f32(1)  out R[0, n]:assign f32(1, 1)) {
          $a = load(A)  $s = load(S)  $r = div($a, $s)  R = store($r)
        }
      }
    }
"""


def test_rows_go_side_by_side_where_one_would_wait_for_its_sums() -> None:
    for columns, rows in ((64, 4), (65536, 1)):
        program = parse(SUM_AND_SCALE.replace("N", str(columns)))
        problem = problem_of(program, load_named("x86_64_avx512"), "REG")
        model = COST_MODELS["roofline"](problem)
        assert not model.refusal()
        best = found_by("roofline", problem).fitting[0]
        pays = best.cost is not None and best.cost < model.untiled(best.sizes)
        assert (best.sizes["m"] if pays else 1) == rows
        assert model.inner_order(problem.leaves[0])[-1] == "m"  # a vector of sums for each row
        assert model.inner_order(problem.leaves[1])[0] == "m"


def test_sums_across_the_rows_keep_several_vectors() -> None:
    program = parse(
        """
        block main [] (in A[0, 0] f32(256, 512)  out R[0]:assign f32(512)) {
          block r [n:512, m:256] (in A[m, n] f32(1, 1)  out R[n]:add f32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    sizes = register_tile(program, "x86_64_avx512")
    assert sizes["n"] % 16 == 0 and sizes["n"] >= 8 * 16


def test_what_is_used_once_is_not_tiled_for_registers() -> None:
    program = parse(
        """
        block main [] (in A[0] f32(512)  out R[0]:assign f32(512)) {
          block r [x:512] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    model = COST_MODELS["roofline"](problem_of(program, load_named("generic"), "REG"))
    assert "no result to keep" in model.refusal()


def test_tiles_for_a_cache_are_whole_register_tiles_and_fit() -> None:
    program, hw = contraction(480, 768, 1024), load_named("x86_64_avx2")
    inner = register_tile(program, "x86_64_avx2")
    found = found_by("roofline", problem_of(program, hw, "L1", reductions=True))
    best = found.fitting[0]
    assert all(
        best.sizes[n] % size == 0 or best.sizes[n] == kernel(program).ranges[n] for n, size in inner.items()
    )
    assert best.needed <= 32768
    assert best.sizes["k"] < 1024


def test_traffic_keeps_what_a_loop_does_not_change() -> None:
    program = contraction(64, 64, 64)
    outer = views_of(program.root, {})
    used = operands(kernel(program), outer)
    sizes = {"m": 16, "n": 16, "k": 64}
    ranges = kernel(program).ranges
    bytes_ = [np.asarray(box_elements(o, sizes) * 4, float) for o in used]
    per_tile = {o.name: float(b) for o, b in zip(used, bytes_, strict=True)}
    assert per_tile == {"A": 4096.0, "B": 4096.0, "C": 1024.0}
    # Room for one tile: A stays while n runs, B comes anew with each tile.
    moved = Traffic(used, ranges, sizes, bytes_)
    one = moved.bytes(("m", "n"), 9300)
    assert one == 4 * 4096 + 16 * 4096 + 16 * 1024
    # Room for all of B: everything comes once.
    assert moved.bytes(("m", "n"), 4096 + 16384 + 4096) == 3 * 16384
    # Room for nothing: every tile brings all of its data.
    assert moved.bytes(("m", "n"), 100) == 16 * (4096 + 4096 + 1024)


def test_size_rules() -> None:
    assert possible_sizes(12, "divisors") == (1, 2, 3, 4, 6, 12)
    assert possible_sizes(12, "powers_of_two") == (1, 2, 4, 8, 12)
    assert possible_sizes(4, "all") == (1, 2, 3, 4)
    assert balanced_sizes(10) == (1, 2, 3, 4, 5, 10)
    for size in range(1, 200):
        assert balanced_sizes(size) == tuple(sorted({-(-size // count) for count in range(1, size + 1)}))
    assert possible_sizes(1 << 30, "divisors") == tuple(1 << k for k in range(31))
    assert 4096 < len(possible_sizes(10**15, "all")) < 200_000


def test_the_choice_does_not_depend_on_names() -> None:
    program = contraction(96, 160, 64)
    sizes = register_tile(program, "x86_64_avx512")
    renamed = rename_indexes(kernel(program), {"m": "zz", "n": "aa", "k": "mm"})
    hw = load_named("x86_64_avx512")
    memory = hw.memory("REG")
    assert memory is not None
    found = found_by("roofline", Problem(renamed, views_of(program.root, {}), hw, memory))
    assert list(found.fitting[0].sizes.values()) == list(sizes.values())
