"""Sets of a cache: how many rows meet on one, against enumeration."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.analysis.bounds import (
    leaves,
)
from stripe.analysis.cost_sets import crowd, pieces_on_one_set
from stripe.ir import Program
from stripe.parser import parse
from stripe.visit import views_of
from tests.support.costs import contraction, kernel, register_tile


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
