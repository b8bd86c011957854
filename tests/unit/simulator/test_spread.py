"""Buffers that are spread over banks: what repeats is found, and is what going through all of it gives."""

from __future__ import annotations

import pytest

from hwconfigs.model import HwConfig
from simulator.timeline import Timeline
from tests.support.passes import program_of
from tests.unit.simulator.test_timeline import machine

# Points take turns with the halves of N, which lie in a bank each; M lies in one of the two.
HALVES = """
block main [] (
  in A[0] f32(32):(1) @FAR:0
  out R[0, 0]:assign f32(64, 32):(32, 1) @FAR:512
  new N f32(32):(1) @NEAR[spread 0]:0
) {
  block load [x:32] @DMA (in A[x] f32(1)  out N[x]:assign f32(1)) { $v = load(A) f32  N = store($v) }
  block t [j:64, h:2] INFLIGHT(
    in N[HALF] f32(SIZE)
    out R[j, 16*h]:assign f32(1, 16)
    new M f32(16):(1) @NEAR[BANK]:512
  ) #tiled {
    block work [x:16PASSED] @VEC (in N[INNER] f32(1)  out M[x]:assign f32(1)) {
      $v = load(N) f32
      $a = mul($v, $v) f32
      M = store($a)
    }
    block save [x:16] @DMA (in M[x] f32(1)  out R[0, x]:assign f32(1, 1)) { $v = load(M) f32  R = store($v) }
  }
}
"""


def halves(inflight: str = "", bank: str = "0", passed: bool = False) -> str:
    """`passed`: the half is chosen in the block inside, which is passed the index."""
    text = HALVES.replace("INFLIGHT", inflight).replace("BANK", bank)
    if passed:
        text = text.replace("HALF", "0").replace("SIZE", "32").replace("PASSED", ", g=h")
        return text.replace("INNER", "16*g + x")
    return text.replace("HALF", "16*h").replace("SIZE", "16").replace("PASSED", "").replace("INNER", "x")


def ran(text: str, hw: HwConfig, extrapolate: bool) -> Timeline:
    found = Timeline(program_of(text).root, hw, extrapolate)
    found.run()
    return found


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("bank", ["0", "slot"])
@pytest.mark.parametrize("inflight", ["", "inflight=2 "])
@pytest.mark.parametrize("rate", [1, 4, 64])
def test_what_repeats_is_counted(rate: int, inflight: str, bank: str, passed: bool) -> None:
    hw = machine(NEAR={"bytes_per_cycle": rate})
    text = halves(inflight, bank, passed)
    full, quick = ran(text, hw, False), ran(text, hw, True)
    assert quick.skipped >= 64 and not full.skipped
    assert quick.now == full.now
    assert quick.totals == full.totals


def test_where_a_block_inside_reads_counts() -> None:
    hw = machine(NEAR={"bytes_per_cycle": 4})
    for bank in ("0", "slot"):
        own, inside = (ran(halves("inflight=2 ", bank, passed), hw, False) for passed in (False, True))
        assert own.now == inside.now
        assert own.totals.stalled == inside.totals.stalled


def test_halves_in_one_bank_take_longer_than_in_two() -> None:
    hw = machine(NEAR={"bytes_per_cycle": 4})
    spread = ran(halves("inflight=2 ", "0"), hw, True)
    one = ran(halves("inflight=2 ", "0").replace("NEAR[spread 0]", "NEAR[0]"), hw, True)
    assert spread.now < one.now
