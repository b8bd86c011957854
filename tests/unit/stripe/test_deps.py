"""Accesses composed through nests, dependences between statements, aliases, live boxes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from benchmarks.compile_time import network
from stripe.analysis import deps
from stripe.analysis.alias import aliases
from stripe.analysis.deps import Order, accesses, relation, statement_graph
from stripe.analysis.footprint import live_box, reduces, touched_box, written_cells
from stripe.diag import Source
from stripe.ir import Block
from stripe.remembered import Remembered
from tests.support.passes import program_of
from tile_frontend import compile_tile

NEST = """
    block main [] (
      in X[0, 0] f32(7, 8)
      out R[0, 0]:assign f32(7, 8)
      new T f32(7, 8)
    ) {
      block tiles [p:2] (
        in X[4*p, 0] f32(4, 8)
        out T[4*p, 0]:assign f32(4, 8)
      ) {
        block inner [m:4, n:8, po = 4*p] (
          6 - po - m >= 0
          in X[m, n] f32(1, 1)
          out T[m, n]:assign f32(1, 1)
        ) {
          $x = load(X) f32
          T = store($x)
        }
      }
      block back [m:7, n:8] (
        in T[6 - m, n] f32(1, 1)
        out R[m, n]:assign f32(1, 1)
      ) {
        $t = load(T) f32
        R = store($t)
      }
    }
"""


def root_of(text: str) -> Block:
    return program_of(text).root


def test_accesses_compose_views_constraints_and_passed_indexes() -> None:
    root = root_of(NEST)
    read, write = accesses(root, root.statements[0], "a.")
    assert (read.buffer, read.reads, read.writes) == ("X", True, False)
    assert (write.buffer, write.reads, write.writes) == ("T", False, True)
    assert [str(e) for e in write.element] == ["a.1.m + 4*a.p", "a.1.n"]
    written = write.domain().image(write.element, ["r", "c"])
    assert {(p["r"], p["c"]) for p in written.points()} == set(product(range(7), range(8)))


def test_relation_pairs_the_points_that_meet() -> None:
    root = root_of(NEST)
    (written,) = (a for a in accesses(root, root.statements[0], "a.") if a.buffer == "T")
    (read,) = (a for a in accesses(root, root.statements[1], "b.") if a.buffer == "T")
    pairs = {(4 * p["a.p"] + p["a.1.m"], p["b.m"]) for p in relation(written, read).points()}
    assert pairs == {(row, 6 - row) for row in range(7)}


def test_different_parts_of_one_buffer_are_independent() -> None:
    root = root_of("""
        block main [] (in X[0] f32(4)  out R[0]:assign f32(8)) {
          block low [i:4] (in X[i] f32(1)  out R[i]:assign f32(1)) { $x = load(X) f32  R = store($x) }
          block high [i:4] (in X[i] f32(1)  out R[i + 4]:assign f32(1)) { $x = load(X) f32  R = store($x) }
        }
    """)
    assert not statement_graph(root).edges
    assert not Order(root).depends(*root.statements)


def test_anti_and_output_dependences_and_folded_old_contents() -> None:
    root = root_of("""
        block main [] (in X[0] f32(4)  out R[0]:assign f32(4)  out S[0]:assign f32(4)) {
          block one [i:4] (in X[i] f32(1)  out R[i]:assign f32(1)) { $x = load(X) f32  R = store($x) }
          block two [i:4] (in R[i] f32(1)  out S[i]:assign f32(1)) { $x = load(R) f32  S = store($x) }
          block three [i:4] (in X[i] f32(1)  inout R[i]:add f32(1)) { $x = load(X) f32  R = store($x) }
        }
    """)
    # Read behind a write, written behind a write and behind a read.
    assert set(statement_graph(root).edges) == {(0, 1), (0, 2), (1, 2)}
    _, replaced = accesses(root, root.statements[2])
    assert (replaced.buffer, replaced.reads, replaced.writes) == ("R", True, True)  # it adds to what is there


def test_buffers_of_a_statement_are_its_own_and_specials_touch_boxes() -> None:
    root = root_of("""
        block main [] (in D[0, 0] f32(5, 3)  in I[0] i32(2)  out G[0, 0]:assign f32(2, 3)) {
          block b [] (in D[0, 0] f32(5, 3)  in I[0] i32(2)  out G[0, 0]:assign f32(2, 3)  new T f32(2, 3)) {
            special gather(in D, in I, out T:assign) {axis=0}
            block copy [i:2, j:3] (in T[i, j] f32(1, 1)  out G[i, j]:assign f32(1, 1)) {
              $t = load(T) f32  G = store($t) }
          }
        }
    """)
    outside = accesses(root, root.statements[0])
    assert [a.buffer for a in outside] == ["D", "I", "G"]
    assert outside[0].domain().count() == 15
    block = root.children[0]
    assert set(statement_graph(block).edges) == {(0, 1)}


def test_two_views_of_one_buffer_can_meet() -> None:
    text = """
        block main [] (in X[0] f32(8)  out R[0]:assign f32(4)) {
          block b [i:4] (in L = X[i] f32(1)  in N = X[i + %d] f32(1)  in F = X[i + 4] f32(1)
                         out R[i]:assign f32(1)) {
            $l = load(L) f32  $n = load(N) f32  $f = load(F) f32
            $s = add($l, $n) f32  $t = add($s, $f) f32  R = store($t) }
        }
    """
    block = root_of(text % 0).children[0]
    assert aliases(block, "L") == ("N",) and aliases(block, "R") == ()
    assert aliases(root_of(text % 1).children[0], "L") == ()


def test_graph_has_scalars_and_buffers() -> None:
    block = root_of("""
        block main [] (in X[0] f32(4)  out R[0]:assign f32(4)) {
          block b [i:4] (in X[i] f32(1)  out R[i]:assign f32(1)  new T f32(1)) {
            $x = load(X) f32  T = store($x)  $t = load(T) f32  R = store($t) }
        }
    """).children[0]
    assert set(statement_graph(block).edges) == {(0, 1), (1, 2), (2, 3)}


def test_relation_of_different_buffers_is_empty() -> None:
    root = root_of(NEST)
    read, write = accesses(root, root.statements[0], "a.")
    assert relation(read, write).is_empty()


def test_live_box_moves_with_the_block_and_knows_constraints() -> None:
    tiles = root_of(NEST).children[0]
    (_, write) = accesses(tiles, tiles.children[0])
    box = live_box(tiles, [write])
    assert box is not None and box.shape == (4, 8) and [str(o) for o in box.origin] == ["0", "0"]
    cells = written_cells(tiles, tiles.children[0], "T", box)
    assert cells is not None and [str(e) for e in cells[0]] == ["6 - @0 - 4*p"] and cells[1] == []
    assert not reduces(tiles, tiles.children[0], "T")


def test_touched_box_starts_at_the_first_element_for_direct_uses() -> None:
    block = root_of("""
        block main [] (in X[0] f32(4)  out R[0]:assign f32(4)) {
          block b [i:4] (in X[i] f32(1)  out R[i]:assign f32(1)  new T f32(9)) {
            $x = load(X) f32
            T = store($x)
            block two [j:2] (out T[2*j + 3]:assign f32(1)) { $o = constant(1.0) f32  T = store($o) }
            $t = load(T) f32
            R = store($t) }
        }
    """).children[0]
    box = touched_box(block, "T")
    assert box is not None and box.shape == (6,)


@pytest.mark.parametrize(
    ("access", "reduced"), [("i", True), ("j", True), ("2*i + j", False), ("i + j", False)]
)
def test_reduces_asks_for_indexes_that_the_element_does_not_name(access: str, reduced: bool) -> None:
    # `i + j` writes an element several times without leaving an index out: then no tile of
    # registers is to be had, and the question is about those.
    root = root_of(f"""
        block main [] (in X[0, 0] f32(2, 2)  out R[0]:assign f32(4)) {{
          block fill [i:4] (out R[i]:assign f32(1)) {{ $z = constant(0.0) f32  R = store($z) }}
          block b [i:2, j:2] (in X[i, j] f32(1, 1)  out R[{access}]:add f32(1)) {{
            $x = load(X) f32  R = store($x) }}
        }}
    """)
    assert reduces(root, root.children[1], "R") is reduced


def test_kernels_that_are_alike_touch_the_same_under_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is carried over from one to the next is what each would be found to touch alone."""
    text, types = network(12, 4)
    root = compile_tile(Source("network", text), types).root
    views = {ref.name: ref for ref in root.refinements}
    for number, kernel in enumerate(root.children):
        alone = replace(
            root, statements=(kernel,), refinements=tuple(views[r.source] for r in kernel.refinements)
        )
        monkeypatch.setattr(deps, "_KNOWN", Remembered[Any, Any](64))
        expected = accesses(alone, kernel, "a.")
        for other in root.children[: number + 1]:
            found = accesses(root, other, "a.")
        assert found == expected
