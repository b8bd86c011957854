"""Leaves that hand values to each other at a point run along one index."""

import pytest

from stripe.analysis.lanes_shared import shared_lanes
from stripe.parser import parse
from stripe.visit import views_of

NEST = """
block main [] (
  in A[0, 0] f32(64, 32):(AS)
  in B[0, 0] f32(128, 32):(BS)
  out T[0, 0]:assign f32(64, 128):(TS)
) {
  block t [m:64, n:128] (
    in A[m, 0] f32(1, 32)
    in B[n, 0] f32(1, 32)
    out T[m, n]:assign f32(1, 1)
    new S f32(1):(1)
  ) {
    block s [k:32] (
      in A[0, k] f32(1, 1)
      in B[0, k] f32(1, 1)
      out S[0]:add f32(1)
    ) {
      $a = load(A) f32
      $b = load(B) f32
      $p = mul($a, $b) f32
      S = store($p)
    }
    block t [] (
      in S[0] f32(1)
      out T[0, 0]:assign f32(1, 1)
    ) {
      $s = load(S) f32
      T = store($s)
    }
  }
}
"""
ROWS = {"AS": "32, 1", "BS": "32, 1", "TS": "128, 1"}


def lanes(strides: dict[str, str], text: str = NEST) -> list[str]:
    for name, value in strides.items():
        text = text.replace(name, value)
    root = parse(text).root
    (kernel,) = root.children
    return [lane.index if lane else "" for _, lane in shared_lanes(kernel, views_of(root, {}), 64)]


@pytest.mark.parametrize(
    ("changed", "lane"),
    [
        ({"AS": "1, 64", "BS": "1, 128"}, "n"),  # both would do: the result decides
        ({"AS": "1, 64", "BS": "1, 128", "TS": "1, 64"}, "m"),
        ({"BS": "1, 128"}, "n"),
        ({"AS": "1, 64", "TS": "1, 64"}, "m"),
    ],
)
def test_the_best_index_for_all_of_them_together(changed: dict[str, str], lane: str) -> None:
    assert lanes({**ROWS, **changed}) == [lane, lane]


def test_a_sum_along_an_index_of_its_own_hands_over_one_value_at_a_time() -> None:
    assert lanes(ROWS) == ["k", "n"]


def test_a_buffer_with_several_elements_ties_nothing() -> None:
    apart = NEST.replace("new S f32(1):(1)", "new S f32(2):(1)")
    assert lanes({**ROWS, "AS": "1, 64", "TS": "128, 1"}, apart)[1] == "n"
    assert lanes({**ROWS, "AS": "1, 64", "TS": "128, 1"}, apart)[0] == "m"


def test_indexes_that_count_tiles_are_no_lanes() -> None:
    tiled = NEST.replace("new S f32(1):(1)\n  ) {", "new S f32(1):(1)\n  ) #tiled {")
    assert lanes({**ROWS, "AS": "1, 64", "BS": "1, 128"}, tiled) == ["k", ""]
