"""What tiles compute beyond constraints that cut them aslant, against tiles that are counted."""

from __future__ import annotations

from itertools import product

import pytest

from hwconfigs.load import load_named
from stripe.affine import Affine
from stripe.analysis.bounds import leaves
from stripe.analysis.cost_slanted import Slanted, slanted
from stripe.passes.autotile import Autotile
from stripe.visit import views_of
from tests.support.passes import check_pass, program_of

ZEN4 = load_named("x86_64_zen4")


def cuts(text: str, *among: str) -> tuple[Slanted, ...]:
    """The slanted constraints of the last leaf of a program."""
    root = program_of(text).root
    path, views = [root.children[-1]], views_of(root, {})
    while path[-1].children:
        views = views_of(path[-1], views)
        path.append(path[-1].children[-1])
    (leaf,) = leaves(path[-1], views)
    return slanted(leaf, among, path)


def triangle(limit: str, rows: int = 120, columns: int = 120) -> str:
    return f"""
        block main [] (in A[0, 0] f32({rows}, {columns})  out C[0, 0]:assign f32({rows}, {columns})) {{
          block fill [i:{rows}, j:{columns}] (out C[i, j]:assign f32(1, 1)) {{
            $z = constant(0.0) f32  C = store($z) }}
          block c [i:{rows}, j:{columns}] (
            {limit} >= 0  in A[i, j] f32(1, 1)  out C[i, j]:assign f32(1, 1)
          ) {{ $a = load(A) f32  C = store($a) }}
        }}
    """


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 8), (5, 20), (12, 12), (24, 4), (1, 40)])
@pytest.mark.parametrize(
    ("i", "j", "const"), [(1, -1, 0), (1, -1, 30), (-1, 1, 0), (2, -1, 0), (-1, -1, 150)]
)
def test_tiles_of_a_triangle(height: int, width: int, i: int, j: int, const: int) -> None:
    def inside(row: int, column: int) -> bool:
        return i * row + j * column + const >= 0

    (cut,) = cuts(triangle(str(Affine.of({"i": i, "j": j}, const))), "i", "j")
    size = range(120)
    points = sum(inside(row, column) for row, column in product(size, size))
    tiles = sum(
        any(inside(r, c) for r, c in product(range(row, row + height), range(column, column + width)))
        for row, column in product(size[::height], size[::width])
    )
    beyond = tiles * height * width / points - 1
    assert float(cut.beyond({"i": height, "j": width})) == pytest.approx(beyond, abs=0.03)


def test_the_blocks_around_tell_where_a_tile_lies() -> None:
    """Tiles of tiles: the share is that of the whole, which each of them has a part of."""
    text = """
        block main [] (in A[0, 0] f32(120, 120)  out C[0, 0]:assign f32(120, 120)) {
          block fill [i:120, j:120] (out C[i, j]:assign f32(1, 1)) {
            $z = constant(0.0) f32  C = store($z) }
          block tiles [p:6, q:5] (
            in A[20*p, 24*q] f32(20, 24)  out C[20*p, 24*q]:assign f32(20, 24)
          ) {
            block c [i:20, j:24, io = 20*p, jo = 24*q] (
              io + i - jo - j >= 0  in A[i, j] f32(1, 1)  out C[i, j]:assign f32(1, 1)
            ) { $a = load(A) f32  C = store($a) }
          }
        }
    """
    (whole,), (inside,) = cuts(triangle("i - j"), "i", "j"), cuts(text, "i", "j")
    tile = {"i": 5, "j": 12}
    assert float(inside.beyond(tile)) == pytest.approx(float(whole.beyond(tile)), rel=1e-6)


def test_what_cuts_no_tile_aslant() -> None:
    assert cuts(triangle("100 - i"), "i", "j") == ()  # tiles end there
    assert cuts(triangle("i - j"), "i") == ()  # one index of a tile: it bounds the other's loop
    assert cuts(triangle("i - j - 200"), "i", "j") == ()  # no point at all
    assert cuts(triangle("i - j + 200"), "i", "j") == ()  # all of them: none comes in


@pytest.mark.parametrize("limit", ["", "i - j >= 0"])
def test_registers_are_given_tiles_that_are_nearer_to_a_square(limit: str) -> None:
    program = program_of(f"""
        block main [] (in A[0, 0] f32(96, 40)  in B[0, 0] f32(40, 480)  out C[0, 0]:assign f32(96, 480)) {{
          block fill [i:96, j:480] (out C[i, j]:assign f32(1, 1)) {{
            $z = constant(0.0) f32  C = store($z) }}
          block c [i:96, j:480, k:40] (
            {limit}  in A[i, k] f32(1, 1)  in B[k, j] f32(1, 1)  out C[i, j]:add f32(1, 1)
          ) {{ $a = load(A) f32  $b = load(B) f32  $c = mul($a, $b) f32  C = store($c) }}
        }}
    """)
    tiled, _ = check_pass(program, Autotile(memory="REG"), ZEN4, rtol=1e-4)
    ranges = tiled.root.children[-1].children[-1].ranges
    assert (ranges["i"], ranges["j"]) == ((16, 16) if limit else (4, 96))
