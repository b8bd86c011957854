"""Cache lines, lanes and cost models, against enumeration."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory
from stripe.analysis.bounds import (
    Leaf,
    box_elements,
    leaves,
    operands,
)
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import Problem
from stripe.analysis.cost_sets import crowd, pieces_on_one_set
from stripe.analysis.cost_sizes import balanced_sizes, possible_sizes
from stripe.analysis.cost_traffic import Traffic
from stripe.analysis.cost_work import VectorWork
from stripe.analysis.lanes import Lane, in_square, joined_row, lane_candidates, lane_index, packing
from stripe.analysis.search import Found, search
from stripe.ir import Block, Program, Tag, contiguous
from stripe.parser import parse
from stripe.rewrite import rename_indexes
from stripe.visit import views_of
from tests.unit.stripe.test_footprints import lines_of_box

FIGURE_4 = {"height": 12, "width": 16, "inputs": 8, "outputs": 16, "window": 3}


def convolution(height: int, width: int, inputs: int, outputs: int, window: int) -> Program:
    """A convolution with a border of zeros, in the layout of Figures 4 and 5 of the paper."""
    pad = window // 2
    image = contiguous((height, width, inputs))
    weights = contiguous((window, window, outputs, inputs))
    result = contiguous((height, width, outputs))
    return parse(
        f"""
        block main [] (
          in I[0, 0, 0] i8({height}, {width}, {inputs}):{image}
          in F[0, 0, 0, 0] i8({window}, {window}, {outputs}, {inputs}):{weights}
          out O[0, 0, 0]:assign i8({height}, {width}, {outputs}):{result}
        ) {{
          block o [x:{height}, y:{width}, i:{window}, j:{window}, c:{inputs}, k:{outputs}] (
            x + i - {pad} >= 0
            {height - 1 + pad} - x - i >= 0
            y + j - {pad} >= 0
            {width - 1 + pad} - y - j >= 0
            in I[x + i - {pad}, y + j - {pad}, c] i8(1, 1, 1)
            in F[i, j, k, c] i8(1, 1, 1, 1)
            out O[x, y, k]:add i8(1, 1, 1)
          ) {{
            $i = load(I) i8
            $f = load(F) i8
            $o = mul($i, $f) i8
            O = store($o)
          }}
        }}
        """
    )


def contraction(m: int, n: int, k: int, *, a: str = "m, k", b: str = "k, n") -> Program:
    """C[m, n] = sum over k of A * B, with the dimensions of A and B in the given order."""
    sizes = {"m": m, "n": n, "k": k}
    shape_a, shape_b = (tuple(sizes[name] for name in access.split(", ")) for access in (a, b))
    return parse(
        f"""
        block main [] (in A[0, 0] f32{shape_a}  in B[0, 0] f32{shape_b}  out C[0, 0]:assign f32({m}, {n})) {{
          block c [m:{m}, n:{n}, k:{k}] (
            in A[{a}] f32(1, 1)  in B[{b}] f32(1, 1)  out C[m, n]:add f32(1, 1)
          ) {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            C = store($c)
          }}
        }}
        """
    )


def kernel(program: Program) -> Block:
    return program.root.children[0]


def problem_of(
    program: Program, hw: HwConfig, memory: str, names: tuple[str, ...] = (), reductions: bool = False
) -> Problem:
    found = hw.memory(memory)
    assert found is not None
    return Problem(kernel(program), views_of(program.root, {}), hw, found, names, reductions)


def found_by(cost: str, problem: Problem, limit: int = 4096) -> Found:
    model = COST_MODELS[cost](problem)
    assert model.refusal() == ""
    return search(model, limit)


def machine(capacity: int, line: int) -> HwConfig:
    """A target with one memory, and a farther one without a limit."""
    near = Memory("NEAR", "cached", bytes=capacity, line_bytes=line, backing="FAR")
    return HwConfig("test", "for tests", "interpreter", memories=(near, Memory("FAR", "explicit")))


# ------------------------------------------------------------------ cache lines per point


def test_figure_4() -> None:
    found = found_by(
        "cache_lines_per_point",
        problem_of(convolution(**FIGURE_4), load_named("paper_figure4"), "CACHE", ("x", "y")),
    )
    first, second = found.fitting[:2]
    assert (first.sizes, first.cost) == ({"x": 3, "y": 4}, 4.5)
    assert second.sizes == {"x": 6, "y": 2}
    assert second.cost == pytest.approx(4.667, abs=5e-4)
    square = next(c for c in found.excluded if c.sizes == {"x": 4, "y": 4})
    assert square.needed == 544
    assert found.capacity == 512
    assert len(found.fitting) + len(found.excluded) == 12 * 16


def test_figure_4_uneven_tiles_pay_for_their_overhang() -> None:
    roomy = machine(4096, 8)
    found = found_by("cache_lines_per_point", problem_of(convolution(**FIGURE_4), roomy, "NEAR", ("x", "y")))
    costs = {tuple(c.sizes.values()): c.cost for c in found.fitting}
    assert costs[4, 12] == 5.625
    assert costs[4, 8] is not None and costs[4, 8] < 5.625


def brute_force(program: Program, capacity: int, line: int) -> list[tuple[float, int, tuple[int, int]]]:
    """(cost, elements, sizes) of every tile of a convolution, element by element."""
    block = kernel(program)
    rows, columns = block.ranges["x"], block.ranges["y"]
    window = block.ranges["i"]
    channels, filters = block.ranges["c"], block.ranges["k"]
    tiles = []
    for h, w in product(range(1, rows + 1), range(1, columns + 1)):
        elements = (h + window - 1) * (w + window - 1) * channels + h * w * filters
        lines = 0
        for top, left in product(range(0, rows, h), range(0, columns, w)):
            top_i, left_i, halo = top - window // 2, left - window // 2, window - 1
            image = [top_i, left_i, 0], [top_i + h + halo - 1, left_i + w + halo - 1, channels - 1]
            result = [top, left, 0], [top + h - 1, left + w - 1, filters - 1]
            for (low, high), depth in ((image, channels), (result, filters)):
                strides = (columns * depth, depth, 1)
                lines += sum(len(reached) for reached in lines_of_box(low, high, strides, line))
        if elements <= capacity:
            tiles.append((lines / (rows * columns), elements, (h, w)))
    return sorted(tiles)


@pytest.mark.parametrize(
    ("shape", "capacity", "line"),
    [
        ({"height": 10, "width": 14, "inputs": 4, "outputs": 12, "window": 3}, 300, 8),
        ({"height": 9, "width": 9, "inputs": 3, "outputs": 5, "window": 5}, 700, 16),
        ({"height": 16, "width": 8, "inputs": 16, "outputs": 16, "window": 1}, 600, 32),
        ({"height": 7, "width": 11, "inputs": 5, "outputs": 2, "window": 3}, 200, 4),
    ],
    ids=str,
)
def test_other_convolutions_agree_with_brute_force(shape: dict[str, int], capacity: int, line: int) -> None:
    program = convolution(**shape)
    expected = brute_force(program, capacity, line)
    found = found_by(
        "cache_lines_per_point", problem_of(program, machine(capacity, line), "NEAR", ("x", "y"))
    )
    got: Any = {tuple(c.sizes.values()): (c.cost, c.needed) for c in found.fitting}
    assert got == {sizes: (pytest.approx(cost), elements) for cost, elements, sizes in expected}
    assert found.fitting[0].cost == pytest.approx(expected[0][0])


def test_operands_out_of_reach_count_on_demand() -> None:
    program, hw = convolution(**FIGURE_4), machine(1 << 20, 8)
    memory = hw.memory("NEAR")
    assert memory is not None
    outer = views_of(program.root, {})
    without, with_fixed = (
        COST_MODELS["cache_lines_per_point"](
            Problem(kernel(program), outer, hw, memory, ("x", "y"), fixed=fixed)
        ).evaluate({"x": 3, "y": 4}, ("x", "y"))
        for fixed in (False, True)
    )
    weights = 3 * 3 * 16 * 8
    assert with_fixed.needed - without.needed == weights
    # Every tile fetches the weights anew.
    assert with_fixed.cost * 192 == pytest.approx(without.cost * 192 + 16 * weights / 8)


# ------------------------------------------------------------------------------------ lanes


@pytest.mark.parametrize(
    ("program", "lane", "reduces"),
    [
        (contraction(64, 64, 64), "n", False),
        (contraction(64, 64, 64, a="k, m"), "n", False),
        (contraction(64, 64, 64, b="n, k"), "k", True),
        (contraction(64, 1, 64), "k", True),
    ],
    ids=["plain", "first transposed", "second transposed", "matrix times vector"],
)
def test_lane_index(program: Program, lane: str, reduces: bool) -> None:
    found = lane_index(kernel(program), views_of(program.root, {}), 64)
    assert isinstance(found, Lane)
    assert (found.index, found.reduces, found.width) == (lane, reduces, 16)


@pytest.mark.parametrize(("size", "lane"), [(4, "m"), (8, "k"), (16, "k")])
def test_lanes_behind_the_end_of_a_short_row_need_no_sums(size: int, lane: str) -> None:
    """Half a vector is summed in three steps, and not in four: less than to pick 16 elements far apart."""
    program = parse(
        f"""
        block main [] (in A[0, 0] f32(512, {size})  out S[0]:assign f32(512)) {{
          block sums [m:512, k:{size}] (in A[m, k] f32(1, 1)  out S[m]:add f32(1)) {{
            $a = load(A) f32
            S = store($a)
          }}
        }}
        """
    )
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    assert lane_candidates(leaf, 64)[0].index == lane


def test_lanes_with_copies_to_come() -> None:
    """B lies along k: a copy that lies along n costs little beside 64 products with each of its elements."""
    program = contraction(64, 64, 64, b="n, k")
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    as_it_is, with_copies = lane_candidates(leaf, 64), lane_candidates(leaf, 64, packed=True)
    assert (as_it_is[0].index, with_copies[0].index) == ("k", "n")
    b = next(operand for operand in leaf.operands if operand.name == "B")
    assert packing(leaf, b, "n", 16) == pytest.approx((1 + 4 + 1) / 64)  # a square of 16, and its stores
    assert packing(leaf, b, "k", 16) is None  # it lies along k
    # Where lanes of results need no copy, or few products use one, there is none.
    (narrow,) = leaves(kernel(few := contraction(512, 10, 512)), views_of(few.root, {}))
    assert [lane_candidates(narrow, 64, packed=packed)[0].index for packed in (False, True)] == ["n", "n"]
    program = contraction(7, 64, 64, b="n, k")
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    assert packing(leaf, next(o for o in leaf.operands if o.name == "B"), "n", 16) is None


def test_lanes_of_half_a_vector_take_half_the_time_on_narrow_paths() -> None:
    """A product with eight columns, B along k: full vectors along m want copies of A, turned."""
    program = contraction(512, 8, 64, b="n, k")
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    found = {path: lane_candidates(leaf, 64, packed=True, path_bytes=path) for path in (None, 32, 16)}
    shares = {path: {lane.index: lane.share for lane in lanes} for path, lanes in found.items()}
    assert [shares[path]["n"] for path in found] == [1.0, 0.5, 0.5]
    assert [shares[path]["m"] for path in found] == [1.0, 1.0, 1.0]
    assert [lanes[0].index for lanes in found.values()] == ["m", "n", "n"]


def rows(a: int, x: str = "e, b, a", y: str = "e, c", z: str = "c, b, a", e: int = 64) -> Leaf:
    """Sums of e products, of 24 x 12 rows of `a` elements."""
    size = {"a": a, "b": 12, "c": 24, "e": e}
    shapes = {v: ", ".join(str(size[n]) for n in v.split(", ")) for v in (x, y, z)}
    zeros, ones = ({v: ", ".join(n * len(v.split(", "))) for v in shapes} for n in "01")
    program = parse(
        f"""
        block main [] (in X[{zeros[x]}] f32({shapes[x]})  in Y[{zeros[y]}] f32({shapes[y]})
                       out Z[0, 0, 0]:assign f32({shapes[z]})) {{
          block z [c:24, b:12, e:{e}, a:{a}] (in X[{x}] f32({ones[x]})  in Y[{y}] f32({ones[y]})
                                             out Z[{z}]:add f32(1, 1, 1)) {{
            $x = load(X) f32
            $y = load(Y) f32
            $z = mul($x, $y) f32
            Z = store($z)
          }}
        }}
        """
    )
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    return leaf


def joined(leaf: Leaf) -> str:
    found = joined_row(leaf, "a", 16)
    return found.row if found is not None else ""


def test_vectors_go_on_from_row_to_row() -> None:
    assert joined(rows(24)) == "b"
    assert joined(rows(24, "b, e, a")) == "b"  # in a copy
    assert joined(rows(32)) == ""  # no lane is idle
    assert joined(rows(24, y="e, b, c")) == ""  # Y is another one in each row
    assert joined(rows(24, "e, a")) == ""


def test_vectors_of_sums_go_on_where_results_lie_apart() -> None:
    assert joined(rows(24, z="b, c, a", e=256)) == "b"  # in registers
    assert joined(rows(24, z="b, c, a")) == ""  # they are stored too often
    assert joined(rows(27, z="b, c, a", e=256)) == ""  # few lanes are idle


def test_vectors_go_on_in_tiles_that_use_copies_often() -> None:
    """24 products share each element of X, and 16 have to."""
    leaf = rows(24, "b, e, a")
    (lane,) = lane_candidates(leaf, 64, among=("a",), packed=True)
    (plain,) = lane_candidates(leaf, 64, among=("a",))
    assert lane.cost == pytest.approx(plain.cost * 0.75)
    (unit,) = load_named("x86_64_avx512").units
    work = VectorWork.of(leaf, unit, alone=True)
    points = leaf.points / 16 / unit.fma_per_cycle
    assert work.cycles({"c": 24, "b": 2}) == pytest.approx(points)
    assert work.cycles({"c": 24, "b": 1}) == pytest.approx(points * 32 / 24)
    assert work.cycles({"c": 8, "b": 2}) == pytest.approx(points * 32 / 24)
    # No size in between takes less than what is said of all of them.
    assert work.cycles({"c": 8, "b": 1}, upto={"c": 24, "b": 12}) == pytest.approx(points)
    assert work.cycles({"c": 2, "b": 1}, upto={"c": 8, "b": 12}) == pytest.approx(points * 32 / 24)


@pytest.mark.parametrize(
    ("x", "rows"),
    [("m", 13), ("2*m", 13), ("m + r", 15), ("2*m + r", 27), ("4*m + r", 39)],
)
def test_rows_that_a_stride_leaves_out_do_not_crowd(x: str, rows: int) -> None:
    """Rows are 4 KiB apart, all on one set; 13 points and 3 of a window."""
    shape = 13 * 4 + 3
    program = parse(f"""
        block main [] (in X[0, 0] f32({shape}, 1024)  out C[0]:assign f32(13)) {{
          block c [m:13, r:3, k:1024] (in X[{x}, k] f32(1, 1)  out C[m]:add f32(1)) {{
            $x = load(X) f32
            C = store($x)
          }}
        }}
    """)
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    near = load_named("x86_64_avx512").nearest_cache
    assert near is not None
    (read,) = (o for o in leaf.operands if o.name == "X")
    assert crowd(read, {"m": 13, "r": 3}, near) == rows
    assert list(crowd(read, {"m": np.asarray([1, 13]), "r": 3}, near))[1] == rows


@pytest.mark.parametrize(("columns", "memory", "rows"), [(4096, "L1", 64), (4096, "L2", 4), (512, "L2", 2)])
def test_on_which_sets_of_a_large_way_pages_lie_is_chance(columns: int, memory: str, rows: int) -> None:
    """64 rows of a Zen 5: ways of L1 are a page, and hold one of them; those of L2 are 16 pages, and each has
    some four of 64, though addresses alone put rows of four pages on four of the 16."""
    program = parse(f"""
        block main [] (in X[0, 0] f32(64, {columns})  out C[0]:assign f32(64)) {{
          block c [m:64] (in X[m, 0] f32(1, 1)  out C[m]:assign f32(1)) {{
            $x = load(X) f32
            C = store($x)
          }}
        }}
    """)
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    (read,) = (o for o in leaf.operands if o.name == "X")
    cache = load_named("x86_64_zen5").memory(memory)
    assert cache is not None
    assert crowd(read, {"m": 64}, cache) == rows


@pytest.mark.parametrize(("taps", "rows"), [(1, 8), (3, 24), (9, 72)])
def test_rows_of_several_dimensions_crowd_together(taps: int, rows: int) -> None:
    """Rows of 2 KiB on 64 places of a way of 128 KiB: 512 of one tap fill them 8 times, and those of the next
    taps, a whole number of pages away, begin where these do."""
    program = parse(f"""
        block main [] (in X[0, 0, 0] f32({taps}, 512, 512)  out C[0]:assign f32(16)) {{
          block c [r:{taps}, m:512, n:16] (in X[r, m, n] f32(1, 1, 1)  out C[n]:add f32(1)) {{
            $x = load(X) f32
            C = store($x)
          }}
        }}
    """)
    (leaf,) = leaves(kernel(program), views_of(program.root, {}))
    (read,) = (o for o in leaf.operands if o.name == "X")
    cache = load_named("x86_64_amx").memory("L2")
    assert cache is not None
    assert crowd(read, {"r": taps, "m": 512, "n": 16}, cache) == rows
    assert list(crowd(read, {"r": np.asarray([1, taps]), "m": 512, "n": 16}, cache)) == [8, rows]


@pytest.mark.parametrize("piece", [16, 64, 256, 8192])
@pytest.mark.parametrize("step", [64, 500, 2044, 4084, 4096, 4120, 8180])
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_pieces_of_rows_on_one_set(rows: int, step: int, piece: int) -> None:
    near = load_named("x86_64_zen5").nearest_cache
    assert near is not None
    lines = [
        {at // 64 % 64 for at in range(row * step, row * step + min(piece, 4096), 4)} for row in range(rows)
    ]
    assert pieces_on_one_set(rows, step, piece, near) == max(
        sum(n in own for own in lines) for n in range(64)
    )
    assert pieces_on_one_set(rows, step, piece, msgspec.structs.replace(near, ways=None)) == 1


def test_narrow_squares_take_more_instructions() -> None:
    assert [in_square(16, side) for side in (16, 8, 4, 2)] == [5, 6, 9, 16]


def test_a_lane_that_is_settled_stays() -> None:
    program = contraction(64, 64, 64)
    block = kernel(program)
    settled = replace(block, tags=(Tag("vector", "m"),))
    (leaf,) = leaves(settled, views_of(program.root, {}))
    assert [lane.index for lane in lane_candidates(leaf, 64)] == ["m"]
    # The tag names an index of the block itself, however it is called in a nest.
    around = parse(
        """
        block main [] (in A[0, 0] f32(64, 64)  in B[0, 0] f32(64, 64)  out C[0, 0]:assign f32(64, 64)) {
          block t [m:4, n:4] (in A[16*m, 0] f32(16, 64)  in B[0, 16*n] f32(64, 16)
                              out C[16*m, 16*n]:assign f32(16, 16)) {
            block c [k:64, n:16, m:16] (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1))
              #vector=m {
              $a = load(A) f32
              $b = load(B) f32
              $c = mul($a, $b) f32
              C = store($c)
            }
          }
        }
        """
    )
    (leaf,) = leaves(kernel(around), views_of(around.root, {}))
    (lane,) = lane_candidates(leaf, 64)
    assert lane.index == tuple(leaf.ranges)[-1] != "m"


def test_leaves_of_a_nest_share_names() -> None:
    program = parse(
        """
        block main [] (in A[0, 0] f32(8, 4)  out R[0]:assign f32(8)) {
          block r [m:8] (in A[m, 0] f32(1, 4)  out R[m]:assign f32(1)  new S f32(1)) {
            block s [m:4] (in A[0, m] f32(1, 1)  out S[0]:add f32(1)) { $a = load(A)  S = store($a) }
            $s = load(S) f32
            R = store($s)
          }
        }
        """
    )
    own, below = leaves(kernel(program), views_of(program.root, {}))
    assert (own.ranges, below.ranges) == ({"m": 8}, {"m": 8, "m_1": 4})
    assert [(o.name, [str(a) for a in o.access], o.local) for o in below.operands] == [
        ("A", ["m", "m_1"], False),
        ("S", ["m", "0"], True),
    ]
    assert below.reductions == ("m_1",)


# --------------------------------------------------------------------------------- roofline


def register_tile(program: Program, target: str) -> dict[str, int]:
    found = found_by("roofline", problem_of(program, load_named(target), "REG"))
    assert found.capacity is not None
    assert all(c.needed <= found.capacity for c in found.fitting)
    assert all(c.needed > found.capacity for c in found.excluded)
    return dict(found.fitting[0].sizes)


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


def test_rows_that_share_sets_of_the_cache_are_fewer_than_its_ways() -> None:
    # Rows 4096 bytes apart all fall into one set of a cache with 4096 bytes in each way.
    hw = load_named("x86_64_avx512")
    cache = hw.memory("L1")
    assert cache is not None and cache.bytes is not None and cache.ways is not None
    step = cache.bytes // cache.ways // 4
    assert register_tile(contraction(512, 32, step), "x86_64_avx512")["m"] < cache.ways
    assert register_tile(contraction(512, 32, step + 16), "x86_64_avx512")["m"] >= cache.ways


def depthwise(size: int, channels: int) -> Program:
    """O[y, x, g] = sum over 3 x 3 taps of X * W, each channel by itself, for x and y from 0 to size - 1."""
    around = size + 2
    return parse(
        f"""
        block main [] (
          in X[0, 0, 0] f32({around}, {around}, {channels})  in W[0, 0, 0] f32(3, 3, {channels})
          out O[0, 0, 0]:assign f32({size}, {size}, {channels})
        ) {{
          block c [y:{size}, x:{size}, g:{channels}, r:3, s:3] (
            in X[y + r, x + s, g] f32(1, 1, 1)  in W[r, s, g] f32(1, 1, 1)  out O[y, x, g]:add f32(1, 1, 1)
          ) {{
            $a = load(X) f32
            $b = load(W) f32
            $c = mul($a, $b) f32
            O = store($c)
          }}
        }}
        """
    )


@pytest.mark.parametrize("target", ["x86_64_avx512", "x86_64_zen4"])
def test_what_steps_share_has_place_in_the_sets_of_the_cache(target: str) -> None:
    """Neighbours of a channel one way of the cache apart: what the taps of a tile meet again while they go
    along a row is all on one set. A little beside that, more of it stays, and tiles are less wide."""
    cache = load_named(target).memory("L1")
    assert cache is not None and cache.bytes is not None and cache.ways is not None
    way = cache.bytes // cache.ways // 4
    crowded, free = (register_tile(depthwise(28, channels), target) for channels in (way, way + 48))
    assert crowded["y"] * (crowded["x"] + 2) < cache.ways <= free["y"] * (free["x"] + 2)
    assert crowded["g"] > free["g"]


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


# ------------------------------------------------------------------------------------ search


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
