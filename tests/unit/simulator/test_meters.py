"""How many cycles what is done takes."""

from __future__ import annotations

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import Unit
from simulator.meters import meter
from stripe.parser import parse
from stripe.visit import views_of

# A use of a stencil whose index m may have any size; n and k have 32 at most.
USE = """
block main [] (in A[0, 0] i8({a}, {k}):({k}, 1) @SPAD:0  in B[0, 0] i8({k}, {b}):({b}, 1) @SPAD:65536
    out C[0, 0]:assign i32({a}, {b}):({b}, 1) @ACC:0) {{
  block c [a:{a}, b:{b}, k:{k}] @ARRAY (in A[a, k] i8(1, 1):({k}, 1)  in B[k, b] i8(1, 1):({b}, 1)
      out C[a, b]:add i32(1, 1):({b}, 1)) #stencil=fold {{
    $a = load(A)
    $b = load(B)
    $x = cast($a) i32
    $y = cast($b) i32
    $c = mul($x, $y)
    C = store($c)
  }}
}}
"""


def cycles(a: int, b: int, k: int, stride: bool) -> float:
    hw = load_named("systolic_32_ws")
    if not stride:  # either index of the result may be the one that streams
        fold = msgspec.structs.replace(hw.stencils[0], stride={})
        hw = msgspec.structs.replace(hw, stencils=(fold,))
    root = parse(USE.format(a=a, b=b, k=k)).root
    unit = hw.unit("ARRAY")
    assert isinstance(unit, Unit)
    found = meter(root.children[0], unit, views_of(root, {}), hw)
    return float(found.cycles({"uses": 1}))


@pytest.mark.parametrize("stride", [True, False])
def test_a_use_takes_its_startup_and_its_cycles(stride: bool) -> None:
    assert cycles(100, 32, 32, stride) == 94 + 100
    assert cycles(100, 20, 7, stride) == 94 + 100


def test_exchanged_factors_are_one_way_to_be_a_use() -> None:
    assert cycles(20, 100, 32, stride=False) == 94 + 100


def test_of_several_ways_the_shortest_is_meant() -> None:
    assert cycles(32, 20, 32, stride=True) == 94 + 32
    assert cycles(32, 20, 32, stride=False) == 94 + 20
