"""Walks and rewrites: what they visit, what they share, what they replace."""

from __future__ import annotations

from dataclasses import replace

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Block, Direction, IndexValue, Location, Program, Special, Tag
from stripe.parser import parse
from stripe.visit import (
    View,
    buffers_used,
    map_blocks,
    map_program,
    parted,
    scalars_read,
    statement_groups,
    substitute_indexes,
    views_of,
    walk,
)

TEXT = """
load block pack [] (in W[0] f32(8)  out P[0]:assign f32(8)) {
  block copy [i:8] (in W[i] f32(1)  out P[i]:assign f32(1)) {
    $w = load(W)
    P = store($w)
  }
}
block main [] (in A[0, 0] f32(8, 8):(1, 8)  in P[0] f32(8)  out R[0, 0]:assign f32(8, 8)) {
  block tile [x:4, y:2] (in A[2*x, 4*y] f32(2, 4)  in P[0] f32(8)  out R[2*x, 4*y]:assign f32(2, 4)
      new T f32(3, 5):(5, 1)) {
    block fill [i:3, j:5, xo = 2*x] (out T[i, j]:assign f32(1, 1)) {
      $i = index(i + xo) f32
      T = store($i)
    }
    special gather(in P[x](4), in P, out R[y, 0](1, 1):assign) {axis=0}
    block copy [i:2, j:4, xo = 2*x, yo = 4*y] (
      6 - xo - i >= 0
      in X = A[i, j] f32(1, 1)
      in T[i, j] f32(1, 1)
      out R[i, j]:assign f32(1, 1)
    ) {
      $a = load(X)
      $t = load(T)
      $b = mul($a, $t)
      $c = cast($b) f32
      R = store($c)
    }
  }
}
"""


def program() -> Program:
    return parse(TEXT)


def test_walk_gives_every_block_with_its_path_parents_first() -> None:
    paths = ["/".join(path) for path, _ in walk(program().root)]
    assert paths == ["main", "main/tile", "main/tile/fill", "main/tile/copy"]


def test_a_rewrite_that_changes_nothing_gives_the_same_object() -> None:
    whole = program()
    assert map_blocks(whole.root, lambda block: None) is whole.root
    assert map_blocks(whole.root, lambda block: block) is whole.root
    assert map_program(whole, lambda block: None) is whole


def test_a_rewrite_shares_what_it_did_not_change_and_sees_children_first() -> None:
    whole = program()
    seen: list[str] = []

    def tag_fill(block: Block) -> Block | None:
        seen.append(block.name)
        return replace(block, tags=(Tag("seen"),)) if block.name == "fill" else None

    changed = map_program(whole, tag_fill)
    assert seen == ["fill", "copy", "tile", "main", "copy", "pack"]
    tile, before = changed.root.children[0], whole.root.children[0]
    assert tile.children[0].has_tag("seen") and not before.children[0].has_tag("seen")
    assert tile.children[1] is before.children[1]
    assert changed.load is whole.load


def test_a_rewrite_of_the_load_time_program() -> None:
    whole = program()
    changed = map_program(whole, lambda b: replace(b, inflight=2) if b.name == "pack" else None)
    assert changed.load is not None and changed.load.inflight == 2
    assert changed.root is whole.root


def test_scalars_and_buffers_that_statements_use() -> None:
    tile = program().root.children[0]
    copy = tile.children[1]
    assert [scalars_read(s) for s in copy.statements] == [(), (), ("a", "t"), ("b",), ("c",)]
    assert [list(buffers_used(s)) for s in copy.statements] == [
        [("X", Direction.IN)],
        [("T", Direction.IN)],
        [],
        [],
        [("R", Direction.OUT)],
    ]
    fill, special, child = tile.statements
    assert list(buffers_used(fill)) == [("T", Direction.OUT)]
    assert list(buffers_used(special)) == [("P", Direction.IN), ("P", Direction.IN), ("R", Direction.OUT)]
    assert list(buffers_used(child)) == [("A", Direction.IN), ("T", Direction.IN), ("R", Direction.OUT)]
    # A block's own new buffer is no use of its parent's.
    assert [name for name, _ in buffers_used(tile)] == ["A", "P", "R"]


def test_indexes_are_replaced_wherever_a_block_uses_them() -> None:
    tile = program().root.children[0]
    tile = replace(tile, location=Location("CORE", bank=Affine.index("x"), address=Affine.index("y", 8)))
    values = {"x": Affine.index("u", 2) + 1, "y": Affine(3)}
    moved = substitute_indexes(tile, values)
    assert moved.indexes == tile.indexes
    assert str(moved.refinement("A").access[0]) == "4*u + 2"
    assert moved.refinement("A").access[1] == Affine(12)
    assert moved.location == Location("CORE", bank=values["x"], address=Affine(24))
    fill, special, copy = moved.statements
    assert isinstance(fill, Block) and str(fill.index("xo").passed) == "4*u + 2"
    assert isinstance(copy, Block) and copy.index("yo").passed == Affine(12)
    assert copy.constraints == tile.children[1].constraints  # its own indexes are others
    assert isinstance(special, Special)
    assert special.operands[0].access == (values["x"],) and special.operands[1].access is None
    inner = substitute_indexes(tile.children[1], {"xo": Affine.index("xo", 2), "i": Affine(1)})
    assert str(inner.constraints[0].expr) == "5 - 2*xo"
    index = substitute_indexes(tile.children[0], {"i": Affine(2)}).statements[0]
    assert isinstance(index, IndexValue) and str(index.expr) == "xo + 2"


def test_views_carry_the_strides_of_their_allocation() -> None:
    root = program().root
    outer = views_of(root, {})
    assert outer["A"] == View(DType.F32, (8, 8), (1, 8))
    tile = views_of(root.children[0], outer)
    assert tile["A"] == View(DType.F32, (2, 4), (1, 8))
    assert tile["T"] == View(DType.F32, (3, 5), (5, 1))
    copy = views_of(root.children[0].children[1], tile)
    assert copy["X"] == View(DType.F32, (1, 1), (1, 8)) and copy["T"].strides == (5, 1)


def test_a_nest_comes_apart_into_blocks_specials_and_scalars_that_store() -> None:
    block = parse("""
        block main [] (in A[0] f32(8)  out R[0]:assign f32(1)  out S[0]:assign f32(1)) {
          $n = index(0) f32
          special zero(out R[0](1):assign)
          $a = constant(1.0) f32
          S = store($a)
          $b = constant(2.0) f32
          block b [] (out R[0]:assign f32(1)) { $z = constant(0.0) f32  R = store($z) }
          $c = constant(3.0) f32
          S = store($c)
        }
    """).root
    n, special, a, store_a, b, child, c, store_c = block.statements
    parts = [(special,), (a, store_a, b), (child,), (c, store_c)]
    assert statement_groups(block.statements) == [(n,), *parts]
    assert parted(block.statements) == parts
