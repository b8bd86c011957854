"""stripe.rewrite: tiles, distribution over statements, merged levels; all keep the meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.ir import Aggregation, Block, Direction, Index, Program
from stripe.parser import parse
from stripe.printer import to_text
from stripe.rewrite import (
    RewriteRefused,
    drop_unused_passed,
    flatten,
    raise_rank,
    rename_indexes,
    reorder_indexes,
    tile_block,
    tile_nest,
)
from stripe.rewrite_copies import hand_down
from tests.support.meaning import assert_same_meaning

CONVOLUTION = """
block main [] (
  in I[0, 0, 0] i8(12, 16, 8):(128, 8, 1)
  in F[0, 0, 0, 0] i8(3, 3, 16, 8):(384, 128, 8, 1)
  out O[0, 0, 0]:assign i8(12, 16, 16):(256, 16, 1)
) {
  block o [x:12, y:16, i:3, j:3, c:8, k:16] (
    x + i - 1 >= 0
    12 - x - i >= 0
    y + j - 1 >= 0
    16 - y - j >= 0
    in I[x + i - 1, y + j - 1, c] i8(1, 1, 1)
    in F[i, j, k, c] i8(1, 1, 1, 1)
    out O[x, y, k]:add i8(1, 1, 1)
  ) {
    $i = load(I) i8
    $f = load(F) i8
    $o = mul($i, $f) i8
    O = store($o)
  }
}
"""

NEST = """
block main [] (
  in A[0, 0] f32(30, 9):(9, 1)
  in B[0, 0] f32(9, 64):(64, 1)
  in D[0] f32(64):(1)
  out R[0, 0]:assign f32(30, 64):(64, 1)
) {
  block mn [m:30, n:64] (
    in A[m, 0] f32(1, 9)
    in B[0, n] f32(9, 1)
    in D[n] f32(1)
    out R[m, n]:assign f32(1, 1)
    new C f32(1, 1):(1, 1)
  ) {
    $d = load(D) f32
    $m = index(m) i32
    $e = cast($m) f32
    block dot [k:9] (
      in A[0, k] f32(1, 1)
      in B[k, 0] f32(1, 1)
      out C[0, 0]:add f32(1, 1)
    ) {
      $a = load(A) f32
      $b = load(B) f32
      $c = mul($a, $b) f32
      C = store($c)
    }
    $c = load(C) f32
    $s = add($c, $d) f32
    $r = add($s, $e) f32
    R = store($r)
  }
}
"""

# One buffer of one point without a dimension to spare, used through two levels.
RANKS = """
block main [] (
  in A[0, 0] i32(6, 10):(10, 1)
  out R[0, 0]:assign i32(6, 10):(10, 1)
) {
  block mn [m:6, n:10] (
    in A[m, n] i32(1, 1)
    out R[m, n]:assign i32(1, 1)
    new T i32(4):(1)
  ) {
    block fill [t:4] (in A[0, 0] i32(1, 1)  out T[t]:assign i32(1)) {
      $a = load(A) i32
      $t = index(t) i32
      $s = mul($a, $t) i32
      T = store($s)
    }
    block outer [h:2] (in T[2*h] i32(2)  out R[0, 0]:add i32(1, 1)) {
      block inner [l:2] (in T[l] i32(1)  out R[0, 0]:add i32(1, 1)) {
        $t = load(T) i32
        R = store($t)
      }
    }
  }
}
"""

REVERSED = """
block main [] (
  in A[0] i32(20):(1)
  out R[0]:assign i32(20):(1)
) {
  block r [x:20] (in A[19 - x] i32(1)  out R[x]:assign i32(1)) {
    $a = load(A) i32
    R = store($a)
  }
}
"""


def kernel(program: Program) -> Block:
    return program.root.children[0]


def with_kernel(program: Program, block: Block) -> Program:
    """The program with its first kernel replaced, checked to survive the text form."""
    changed = replace(program, root=replace(program.root, statements=(block, *program.root.statements[1:])))
    assert parse(to_text(changed)) == changed
    return changed


def test_figure_5(rng: np.random.Generator) -> None:
    before = parse(CONVOLUTION)
    tiled = tile_block(kernel(before), {"x": 3, "y": 4})
    assert tiled.ranges == {"x": 4, "y": 4}
    assert [(r.name, [str(a) for a in r.access], r.shape) for r in tiled.refinements] == [
        ("I", ["3*x - 1", "4*y - 1", "0"], (5, 6, 8)),
        ("F", ["0", "0", "0", "0"], (3, 3, 16, 8)),
        ("O", ["3*x", "4*y", "0"], (3, 4, 16)),
    ]
    assert tiled.refinement("O").aggregation is Aggregation.ADD
    inner = tiled.children[0]
    assert inner.ranges == {"x": 3, "y": 4, "i": 3, "j": 3, "c": 8, "k": 16}
    assert [str(i.passed) for i in inner.indexes[6:]] == ["3*x", "4*y"]
    assert [str(c.expr) for c in inner.constraints] == [
        "i + x + xo - 1", "12 - i - x - xo", "j + y + yo - 1", "16 - j - y - yo",
    ]  # fmt: skip
    assert_same_meaning(before, with_kernel(before, tiled), rng)


@pytest.mark.parametrize(
    "sizes",
    [{"x": 5}, {"x": 5, "y": 7, "i": 2}, {"x": 1}, {"c": 3, "k": 16}, {"x": 1, "y": 1, "i": 1, "c": 5}, {}],
    ids=str,
)
def test_sizes_of_any_kind(sizes: dict[str, int], rng: np.random.Generator) -> None:
    before = parse(CONVOLUTION)
    assert_same_meaning(before, with_kernel(before, tile_block(kernel(before), sizes)), rng)


@pytest.mark.parametrize(
    "sizes",
    [{"x": 3}, {"x": 5}, {"x": 7, "y": 4, "i": 2}, {"x": 1}, {"c": 3, "k": 8}, {"x": 11}, {}],
    ids=str,
)
def test_interleaved_tiles(sizes: dict[str, int], rng: np.random.Generator) -> None:
    before = parse(CONVOLUTION)
    tiled = tile_block(kernel(before), sizes, interleave=True)
    assert_same_meaning(before, with_kernel(before, tiled), rng)
    again = tile_block(tiled.children[0], dict.fromkeys(tiled.children[0].ranges, 2), interleave=True)
    assert_same_meaning(before, with_kernel(before, replace(tiled, statements=(again,))), rng)


def test_an_interleaved_tile_takes_every_nth_point() -> None:
    tiled = tile_block(kernel(parse(CONVOLUTION)), {"x": 3}, interleave=True)
    assert tiled.ranges["x"] == 4
    image, inner = tiled.refinement("I"), tiled.children[0]
    assert (str(image.access[0]), image.shape[0]) == ("x - 1", 2 * 4 + 3)
    assert str(inner.refinement("I").access[0]) == "i + 4*x"
    assert str(inner.index("xo").passed) == "x"


def test_interleaved_tiles_of_reversed_and_ragged_accesses(rng: np.random.Generator) -> None:
    before = parse(REVERSED)
    tiled = tile_block(kernel(before), {"x": 6}, interleave=True)
    assert [str(c.expr) for c in tiled.children[0].constraints] == ["19 - 4*x - xo"]
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_tiles_of_points_that_lie_apart(rng: np.random.Generator) -> None:
    """With `interleave` a tile has every n-th point, of n tiles: 7 tiles of 2 of 13 points of x."""
    before = parse(
        """
        block main [] (in A[0] i32(15):(1)  out R[0]:assign i32(13):(1)) {
          block c [x:13, i:3] (in A[x + i] i32(1)  out R[x]:add i32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    tiled = tile_block(before.root.children[0], {"x": 2}, interleave=True)
    inner = tiled.children[0]
    assert tiled.ranges == {"x": 7}
    assert [(str(r.access[0]), r.shape) for r in tiled.refinements] == [("x", (10,)), ("x", (8,))]
    assert [str(i.passed) for i in inner.indexes if i.passed is not None] == ["x"]
    assert [str(r.access[0]) for r in inner.refinements] == ["i + 7*x", "7*x"]
    assert [str(c.expr) for c in inner.constraints] == ["12 - 7*x - xo"]
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_a_block_without_points_has_views_of_some_size() -> None:
    before = parse(
        """
        block main [] (in A[0] i32(15):(1)  out R[0]:assign i32(8):(1)) {
          block c [x:8, none:0] (in A[x + 5*none] i32(1)  out R[x]:add i32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    tiled = tile_block(kernel(before), {"x": 4})
    assert tiled.refinement("A").shape == (4,)


def test_two_levels_and_orders(rng: np.random.Generator) -> None:
    before = parse(CONVOLUTION)
    outer = tile_block(
        kernel(before), {"x": 6, "y": 8, "k": 8}, outer_order=["k", "y", "x"], inner_order=["x", "k"]
    )
    assert list(outer.ranges) == ["k", "y", "x"]
    assert list(outer.children[0].ranges) == ["y", "i", "j", "c", "x", "k"]
    both = replace(outer, statements=(tile_block(outer.children[0], {"x": 4, "c": 3}),))
    assert_same_meaning(before, with_kernel(before, both), rng)


def test_an_outer_block_can_be_tiled_again(rng: np.random.Generator) -> None:
    before = parse(CONVOLUTION)
    tiled = tile_block(tile_block(kernel(before), {"x": 2, "y": 5}), {"x": 4, "y": 3})
    assert_same_meaning(before, with_kernel(before, tiled), rng)


@pytest.mark.parametrize("sizes", [{"m": 1}, {"m": 2}, {"m": 2, "n": 1}])
def test_buffers_stay_where_they_lie(sizes: dict[str, int], rng: np.random.Generator) -> None:
    """Their banks are those that the indexes of the block name."""
    before = parse(
        """
        block main [] (in A[0, 0] f32(3, 5):(5, 1)  out R[0, 0]:assign f32(3, 5):(5, 1)) {
          block copy [m:3, n:5] @CORE[5*m + n] (
            in A[m, n] f32(1, 1)
            out R[m, n]:assign f32(1, 1)
            new T f32(1):(1) @SRAM[5*m + n]:64
          ) {
            block in [] (in A[0, 0] f32(1, 1)  out T[0]:assign f32(1)) { $a = load(A)  T = store($a) }
            block out [] (in T[0] f32(1)  out R[0, 0]:assign f32(1, 1)) { $t = load(T)  R = store($t) }
          }
        }
        """
    )
    tiled = tile_block(kernel(before), sizes)
    inner = tiled.children[0]
    m, n = Affine.index("mo"), Affine.index("no" if "n" in sizes else "n")
    bank = (m + (Affine.index("m") if sizes["m"] > 1 else Affine())) * 5 + n
    assert inner.location is not None and inner.location.bank == bank
    assert (where := inner.refinement("T").location) is not None and where.bank == bank
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_negative_coefficients_move_the_origin(rng: np.random.Generator) -> None:
    before = parse(REVERSED)
    tiled = tile_block(kernel(before), {"x": 6})
    assert [str(a) for a in tiled.refinement("A").access] == ["14 - 6*x"]
    assert [str(a) for a in tiled.children[0].refinement("A").access] == ["5 - x"]
    assert [str(c.expr) for c in tiled.children[0].constraints] == ["19 - x - xo"]
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_inout_folds_the_old_contents_once(rng: np.random.Generator) -> None:
    before = parse(
        """
        block main [] (in A[0, 0] i32(6, 4):(4, 1)  in B[0] i32(6):(1)  out R[0]:assign i32(6):(1)) {
          block old [m:6] (in B[m] i32(1)  out R[m]:assign i32(1)) { $b = load(B)  R = store($b) }
          block sum [m:6, k:4] (in A[m, k] i32(1, 1)  inout R[m]:add i32(1)) { $a = load(A)  R = store($a) }
        }
        """
    )
    tiled = tile_block(before.root.children[1], {"m": 4, "k": 2})
    assert tiled.refinement("R").direction is Direction.INOUT
    assert tiled.children[0].refinement("R").direction is Direction.OUT
    after = replace(before, root=replace(before.root, statements=(before.root.statements[0], tiled)))
    assert_same_meaning(before, after, rng)


def test_a_nest_is_tiled_statement_by_statement(rng: np.random.Generator) -> None:
    before = parse(NEST)
    tiled = tile_nest(kernel(before), {"m": 14, "n": 32})
    assert tiled.ranges == {"m": 3, "n": 2}
    assert tiled.refinement("C").shape == (14, 32)
    assert tiled.refinement("C").strides == (32, 1)
    assert [(b.name, list(b.ranges)) for b in tiled.children] == [
        ("mn", ["m", "n"]), ("dot", ["m", "n", "k"]), ("mn_1", ["m", "n"]),
    ]  # fmt: skip
    assert all([str(c.expr) for c in b.constraints] == ["29 - m - mo"] for b in tiled.children)
    # The cast is kept in a buffer of the tile; the load from an input is simply repeated.
    assert [r.name for r in tiled.refinements if r.direction is Direction.NEW] == ["C", "e"]
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_a_buffer_without_spare_dimensions_grows_in_rank(rng: np.random.Generator) -> None:
    before = parse(RANKS)
    tiled = tile_nest(kernel(before), {"m": 4, "n": 5})
    assert tiled.refinement("T").shape == (4, 5, 4)
    assert tiled.children[0].refinement("T").shape == (1, 1, 1)
    assert tiled.children[1].refinement("T").shape == (1, 1, 2)
    assert tiled.children[1].children[0].refinement("T").shape == (1, 1, 1)
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_a_use_of_a_stencil_keeps_its_loops_and_sees_its_own_part_of_a_buffer(
    rng: np.random.Generator,
) -> None:
    head = "out R[0, 0]:add i32(1, 1)) {"
    tagged = RANKS.replace(f"{head}\n      block inner", f"{head[:-1]}#stencil=s {{\n      block inner")
    before = parse(tagged)
    tiled = tile_nest(kernel(before), {"m": 4, "n": 5})
    part = tiled.children[1]
    assert list(part.ranges) == ["m", "n"] and part.refinement("T").shape == (1, 1, 4)
    assert part.children[0].refinement("T").shape == (1, 1, 2)
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_distribute_is_a_tile_of_everything(rng: np.random.Generator) -> None:
    before = parse(NEST)
    frame = tile_nest(kernel(before), {})
    assert frame.indexes == ()
    assert [list(b.ranges) for b in frame.children] == [["m", "n"], ["m", "n", "k"], ["m", "n"]]
    assert_same_meaning(before, with_kernel(before, frame), rng)


SPECIAL = """
block main [] (in A[0, 0] f32(6, 9):(9, 1)  in P[0] i32(4):(1)  out R[0, 0]:assign f32(6, 4):(4, 1)) {
  block g [m:6] (in A[m, 0] f32(1, 9)  in P[0] i32(4)  out R[m, 0]:assign f32(1, 4)  new T f32(1, 4):(4, 1)) {
    special gather(in A, in P, out T:assign) {axis=1}
    block copy [k:4] (in T[0, k] f32(1, 1)  out R[0, k]:assign f32(1, 1)) {
      $t = load(T) f32
      R = store($t)
    }
  }
}
"""


def test_specials_see_the_rank_that_they_had(rng: np.random.Generator) -> None:
    before = parse(SPECIAL)
    tiled = tile_nest(kernel(before), {"m": 4})
    assert tiled.refinement("T").shape == (4, 4)
    assert tiled.children[0].refinement("T").shape == (1, 4)
    assert_same_meaning(before, with_kernel(before, tiled), rng)


def test_a_rank_that_a_special_depends_on_is_not_raised() -> None:
    rank_one = SPECIAL.replace("new T f32(1, 4):(4, 1)", "new T f32(4):(1)").replace(
        "T[0, k] f32(1, 1)", "T[k] f32(1)"
    )
    with pytest.raises(RewriteRefused, match="'gather' depends on the rank of buffer 'T'"):
        tile_nest(kernel(parse(rank_one)), {"m": 4})


def test_flatten_is_the_inverse_of_nesting(rng: np.random.Generator) -> None:
    before = parse(CONVOLUTION)
    tiled = tile_block(kernel(before), {"x": 5, "c": 4})
    merged = flatten(tiled)
    assert merged.ranges == {"x": 3, "c": 2, "x_1": 5, "y": 16, "i": 3, "j": 3, "c_1": 4, "k": 16}
    assert [str(a) for a in merged.refinement("I").access] == ["i + 5*x + x_1 - 1", "j + y - 1", "4*c + c_1"]
    assert merged.refinement("O").aggregation is Aggregation.ADD
    assert_same_meaning(before, with_kernel(before, merged), rng)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: replace(b, inflight=2), "in flight"),
        (lambda b: replace(b, statements=b.statements * 2), "exactly one block"),
    ],
)
def test_flatten_refuses_with_a_reason(change: Callable[[Block], Block], reason: str) -> None:
    tiled = tile_block(kernel(parse(CONVOLUTION)), {"x": 5})
    with pytest.raises(RewriteRefused, match=reason):
        flatten(change(tiled))


def test_renaming_and_reordering() -> None:
    block = kernel(parse(CONVOLUTION))
    renamed = rename_indexes(block, {"x": "y", "y": "x"})
    assert list(renamed.ranges.items())[:2] == [("y", 12), ("x", 16)]
    assert [str(a) for a in renamed.refinement("I").access] == ["i + y - 1", "j + x - 1", "c"]
    assert rename_indexes(renamed, {"x": "y", "y": "x"}) == block
    with pytest.raises(InvariantError, match="twice"):
        rename_indexes(block, {"x": "c"})
    assert list(reorder_indexes(block, ["k", "x"]).ranges) == ["y", "i", "j", "c", "k", "x"]
    assert reorder_indexes(block, list(block.ranges)) is block
    assert drop_unused_passed(block) is block


def test_sizes_must_name_ranges() -> None:
    block = kernel(parse(CONVOLUTION))
    with pytest.raises(InvariantError, match="'q'"):
        tile_block(block, {"q": 2})
    inner = tile_block(block, {"x": 4}).children[0]
    assert inner.index("xo").passed == Affine.index("x", 4)
    with pytest.raises(InvariantError, match="'xo'"):
        tile_block(inner, {"xo": 2})


def test_a_value_is_handed_down_once() -> None:
    indexes = (Index("x", 4), Index("u", 1, Affine.index("t", 2)), Index("v", 1, Affine.index("t")))
    again = Affine.index("t") + 1
    values = {"a": Affine.index("t", 2), "b": again, "c": again, "d": Affine(7)}
    made, inner = hand_down(Block("b", indexes=indexes), values, "unit")
    unit = Affine.index("unit")
    assert inner == {"a": Affine.index("u"), "b": unit, "c": unit, "d": Affine(7)}
    assert [i.name for i in made.indexes] == ["x", "u", "v", "unit"]


def test_rank_is_raised_only_where_a_buffer_is_used() -> None:
    program = parse(
        """
        block main [] (
          in A[0] f32(8):(1)  in B[0] f32(8):(1)  out C[0]:assign f32(8):(1)  out D[0]:assign f32(8):(1)
        ) {
          block one [x:8] (in A[x] f32(1):(1)  out C[x]:assign f32(1):(1)) {
            $a = load(A) f32
            C = store($a)
          }
          block two [x:8] (in B[x] f32(1):(1)  out D[x]:assign f32(1):(1)) {
            $b = load(B) f32
            D = store($b)
          }
        }
        """
    )
    one, two = program.root.children
    raised = raise_rank(one, "A", 2)
    assert isinstance(raised, Block)
    assert [str(e) for e in raised.refinement("A").access] == ["0", "0", "x"]
    assert raised.refinement("C") is one.refinement("C")
    assert raise_rank(two, "A", 2) is two
