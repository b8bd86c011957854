"""Which index vectors run along, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwconfigs.load import load_named
from stripe.analysis.bounds import (
    Leaf,
    leaves,
)
from stripe.analysis.cost_work import VectorWork
from stripe.analysis.lanes import Lane, in_square, joined_row, lane_candidates, lane_index, packing
from stripe.ir import Program, Tag
from stripe.parser import parse
from stripe.visit import views_of
from tests.support.costs import contraction, kernel


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
