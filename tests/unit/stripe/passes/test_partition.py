"""partition: points to equal units, buffers to banks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.liveness import part_bytes
from stripe.diag import CompileError
from stripe.ir import Block, Direction, Location, Program
from stripe.passes.base import PassContext
from stripe.passes.partition import Partition
from stripe.passes.registry import make_pass
from tests.support.passes import check_pass, program_of


@pytest.fixture(scope="module")
def cores() -> HwConfig:
    return load_named("many_core")


CONTRACTION = """
block main [] (
  in A[0, 0] f32({m}, {k}):({k}, 1)
  in B[0, 0] f32({k}, {n}):({n}, 1)
  out C[0, 0]:assign f32({m}, {n}):({n}, 1)
) {{
  block t [m:{m}, n:{n}, k:{k}] (
    in A[m, k] f32(1, 1):({k}, 1)
    in B[k, n] f32(1, 1):({n}, 1)
    out C[m, n]:add f32(1, 1):({n}, 1)
  ) {{
    $a = load(A) f32
    $b = load(B) f32
    $c = mul($a, $b) f32
    C = store($c)
  }}
}}
"""


def contraction(m: int, n: int, k: int) -> Program:
    return program_of(CONTRACTION.format(m=m, n=n, k=k))


def only_child(program: Program) -> Block:
    (child,) = program.root.children
    return child


def test_square_parts_touch_least(cores: HwConfig) -> None:
    result, (remark,) = check_pass(contraction(64, 64, 9), Partition(unit="CORE"), cores, again=False)
    outer = only_child(result)
    assert outer.ranges == {"m": 4, "n": 4}
    assert outer.location == Location("CORE", Affine.of({"m": 4, "n": 1}))
    assert remark.acted
    assert remark.data["sizes"] == {"m": 16, "n": 16}


def test_the_reduced_index_is_never_cut(cores: HwConfig) -> None:
    result, _ = check_pass(contraction(2, 3, 512), Partition(unit="CORE"), cores, again=False)
    assert only_child(result).ranges == {"m": 2, "n": 3}


def test_uneven_ranges_get_a_constraint(cores: HwConfig) -> None:
    result, (remark,) = check_pass(contraction(50, 1, 3), Partition(unit="CORE"), cores, again=False)
    outer = only_child(result)
    assert outer.ranges == {"m": 13}  # pieces of 4: the largest of 16 parts would have 4 as well
    assert len(outer.children[0].constraints) == 1
    assert remark.data["largest"] == pytest.approx(4 / 50)


def test_what_can_not_be_cut_runs_on_the_first_unit(cores: HwConfig) -> None:
    result, (remark,) = check_pass(contraction(1, 1, 512), Partition(unit="CORE"), cores, again=False)
    assert only_child(result).location == Location("CORE", Affine())
    assert not remark.acted
    assert "add to one element" in remark.message


def test_a_second_run_finds_everything_dealt_out(cores: HwConfig) -> None:
    result, _ = check_pass(contraction(64, 64, 9), Partition(unit="CORE"), cores, again=False)
    again, (remark,) = check_pass(result, Partition(unit="CORE"), cores)
    assert again is result
    assert remark.message == "it runs on CORE already"


@settings(deadline=None, max_examples=25)
@given(m=st.integers(1, 40), n=st.integers(1, 40))
def test_no_split_is_better(m: int, n: int) -> None:
    """Against all pairs of piece sizes: no other has a smaller largest part."""
    result, _ = check_pass(contraction(m, n, 2), Partition(unit="CORE"), load_named("many_core"), again=False)
    outer = only_child(result)
    if m * n == 1:
        assert outer.location == Location("CORE", Affine())
        return
    assert 1 < outer.ranges.get("m", 1) * outer.ranges.get("n", 1) <= 16
    inner = outer.children[0].ranges
    least = min(a * b for a in range(1, m + 1) for b in range(1, n + 1) if -(-m // a) * -(-n // b) <= 16)
    assert inner.get("m", 1) * inner.get("n", 1) == least


BANKED = """
block main [] (
  in X[0] f32(64):(1)
  out Y[0]:assign f32(64):(1)
) {{
  block tile [t:2] (
    in X[32*t] f32(32):(1)
    out Y[32*t]:assign f32(32):(1)
    new A f32(32):(1) @SHARED
    new B f32({b}):(1) @SHARED
    new C f32(32):(1) @SHARED
  ) {{
    block one [i:32] (in X[i] f32(1):(1)  out A[i]:assign f32(1):(1)) {{
      $x = load(X) f32
      A = store($x)
    }}
    block two [i:32] (in A[i] f32(1):(1)  out B[i]:assign f32(1):(1)) {{
      $x = load(A) f32
      B = store($x)
    }}
    block three [i:32] (in B[i] f32(1):(1)  out C[i]:assign f32(1):(1)) {{
      $x = load(B) f32
      C = store($x)
    }}
    block four [i:32] (in C[i] f32(1):(1)  out Y[i]:assign f32(1):(1)) {{
      $x = load(C) f32
      Y = store($x)
    }}
  }}
}}
"""


def banks_of(program: Program) -> dict[str, Location | None]:
    return {r.name: r.location for r in only_child(program).refinements if r.location}


def test_buffers_in_use_at_once_lie_in_different_banks(cores: HwConfig) -> None:
    result, remarks = check_pass(program_of(BANKED.format(b=32)), Partition(memory="SHARED"), cores)
    found = banks_of(result)
    numbers = [location.bank for location in found.values() if location]
    assert len(set(numbers)) == 3
    assert all(r.acted for r in remarks)


def test_a_buffer_larger_than_a_bank_gets_none(cores: HwConfig) -> None:
    result, remarks = check_pass(program_of(BANKED.format(b=40000)), Partition(memory="SHARED"), cores)
    assert banks_of(result)["B"] == Location("SHARED")
    assert banks_of(result)["A"] == Location("SHARED")  # all or none
    (remark,) = remarks
    assert "takes 160000 bytes in one bank; the emptiest has 131072 left" in remark.message


def test_points_in_flight_get_a_bank_each(cores: HwConfig) -> None:
    text = BANKED.format(b=32).replace("block tile [t:2] (", "block tile [t:2] inflight=2 (")
    result, _ = check_pass(program_of(text), Partition(memory="SHARED"), cores)
    banks = [location.bank for location in banks_of(result).values() if location and location.bank]
    assert sorted(bank.const for bank in banks) == [0, 2, 4]
    assert all(bank.coefficient("slot") == 1 for bank in banks)


def test_units_get_banks_of_their_own(cores: HwConfig) -> None:
    text = """
    block main [] (
      in X[0] f32(64):(1)
      out Y[0]:assign f32(64):(1)
      new T f32(64):(1) @SHARED
      new U f32(64):(1) @SHARED
    ) {
      block fill [c:16] @CORE[c] (
        in X[4*c] f32(4):(1)
        out T[4*c]:assign f32(4):(1)
        out U[4*c]:assign f32(4):(1)
      ) {
        block fill [i:4] (in X[i] f32(1):(1)  out T[i]:assign f32(1):(1)  out U[i]:assign f32(1):(1)) {
          $x = load(X) f32
          T = store($x)
          U = store($x)
        }
      }
      block use [c:8] @CORE[c] (in T[8*c] f32(8):(1)  in U[0] f32(64):(1)  out Y[8*c]:assign f32(8):(1)) {
        block use [i:8, co = c] (in T[i] f32(1):(1)  in U[i + 4*co] f32(1):(1)  out Y[i]:assign f32(1):(1)) {
          $x = load(T) f32
          $u = load(U) f32
          $s = add($x, $u) f32
          Y = store($s)
        }
      }
    }
    """
    cores = _without_reach(cores)
    result, remarks = check_pass(program_of(text), Partition(memory="SHARED"), cores)
    t, u = result.root.refinement("T").location, result.root.refinement("U").location
    assert t == u == Location("SHARED", spread=0)
    said = {r.block: r.message for r in remarks if "spread" in r.message}
    assert said["main, buffer 'T'"].endswith("along dimension 0: each unit works in banks of its own")
    assert said["main, buffer 'U'"].endswith("along dimension 0: at most 8 units work in one")  # all of `use`


def test_what_every_unit_reads_whole_is_not_spread(cores: HwConfig) -> None:
    text = """
    block main [] (in X[0] f32(64)  out Y[0]:assign f32(64)  new U f32(64) @SHARED) {
      block fill [i:64] @CORE[0] (in X[i] f32(1)  out U[i]:assign f32(1)) {
        $x = load(X) f32
        U = store($x)
      }
      block use [c:8] @CORE[c] (in U[0] f32(64)  out Y[8*c]:assign f32(8)) {
        block use [i:8, co = c] (in U[i + 4*co] f32(1)  out Y[i]:assign f32(1)) {
          $u = load(U) f32
          Y = store($u)
        }
      }
    }
    """
    result, _ = check_pass(program_of(text), Partition(memory="SHARED"), _without_reach(cores))
    assert result.root.refinement("U").location == Location("SHARED", Affine())


def _without_reach(hw: HwConfig) -> HwConfig:
    """The target whose cores reach every memory."""
    from msgspec.structs import replace

    units = tuple(replace(u, reaches=tuple(m.name for m in hw.memories)) for u in hw.units)
    return replace(hw, units=units)


@pytest.mark.parametrize(
    ("options", "code"),
    [({}, "P140"), ({"unit": "DMA"}, "P141"), ({"memory": "DRAM"}, "P141")],
)
def test_options_that_ask_for_what_is_not_there(cores: HwConfig, options: dict[str, str], code: str) -> None:
    with pytest.raises(CompileError) as caught:
        make_pass("partition", options).check(cores)
    assert caught.value.diagnostics[0].code == code


def test_points_that_add_to_one_element_stay_on_one_unit(cores: HwConfig) -> None:
    """R[2*t + i]: along t as along i sums of several points meet, though R depends on both."""
    program = program_of("""
        block main [] (
          in X[0, 0] f32(40, 4):(4, 1)
          out R[0]:assign f32(82):(1)
        ) {
          block R [t:40, i:4] (
            in X[t, i] f32(1, 1):(4, 1)
            out R[2*t + i]:add f32(1):(1)
          ) {
            $x = load(X) f32
            R = store($x)
          }
        }
        """)
    result, (remark,) = check_pass(program, Partition(unit="CORE"), cores, again=False)
    assert only_child(result).location == Location("CORE", Affine())
    assert "not cut" in remark.message


def test_of_equal_cuts_the_outermost_index_is_taken(cores: HwConfig) -> None:
    """Cutting 16 rows, 16 columns, or 4 of each makes parts of the same size that touch the same."""
    program = program_of("""
        block main [] (
          in X[0, 0] f32(16, 16):(16, 1)
          out R[0, 0]:assign f32(16, 16):(16, 1)
        ) {
          block R [i:16, j:16] (
            in X[i, j] f32(1, 1):(16, 1)
            out R[i, j]:assign f32(1, 1):(16, 1)
          ) {
            $x = load(X) f32
            R = store($x)
          }
        }
        """)
    result, (remark,) = check_pass(program, Partition(unit="CORE"), cores, again=False)
    assert only_child(result).ranges == {"i": 16}
    assert remark.data["sizes"] == {"i": 1}


def test_a_part_along_an_inner_dimension_takes_what_it_spans(cores: HwConfig) -> None:
    """Two buffers of 98 KiB in banks of 128 KiB: spread along their columns, each would span 96 KiB of every
    bank, so the second gets a bank of its own."""
    program = program_of("""
        block main [] (
          in X[0, 0] f32(49, 512):(512, 1) @DRAM
          out Y[0, 0]:assign f32(49, 512):(512, 1) @DRAM
          new S f32(49, 512):(512, 1) @SHARED
          new T f32(49, 512):(512, 1) @SHARED
        ) {
          block s [k:16] @CORE[k] (in X[0, 32*k] f32(49, 32)  out S[0, 32*k]:assign f32(49, 32)) {
            block s [i:49, k:32] (in X[i, k] f32(1, 1)  out S[i, k]:assign f32(1, 1)) {
              $x = load(X) f32
              S = store($x)
            }
          }
          block t [k:16] @CORE[k] (in X[0, 32*k] f32(49, 32)  out T[0, 32*k]:assign f32(49, 32)) {
            block t [i:49, k:32] (in X[i, k] f32(1, 1)  out T[i, k]:assign f32(1, 1)) {
              $x = load(X) f32
              T = store($x)
            }
          }
          block y [k:16] @CORE[k] (
            in S[0, 32*k] f32(49, 32)
            in T[0, 32*k] f32(49, 32)
            out Y[0, 32*k]:assign f32(49, 32)
          ) {
            block y [i:49, k:32] (in S[i, k] f32(1, 1)  in T[i, k] f32(1, 1)  out Y[i, k]:assign f32(1, 1)) {
              $s = load(S) f32
              $t = load(T) f32
              $y = add($s, $t) f32
              Y = store($y)
            }
          }
        }
        """)
    result = Partition(memory="SHARED").run(program, PassContext(cores))
    taken = dict.fromkeys(range(16), 0)
    for ref in result.root.refinements:
        if ref.direction is Direction.NEW:
            assert ref.location is not None
            banks = range(16) if ref.location.bank is None else (ref.location.bank.const,)
            for bank in banks:
                taken[bank] += part_bytes(ref, 16)
    assert max(taken.values()) <= 2097152 // 16


def test_sums_that_share_no_element_are_dealt_out() -> None:
    """R[2*t + i] for i < 2: points that differ in t add to elements of their own, over all k."""
    program = program_of("""
        block main [] (
          in X[0, 0, 0] f32(40, 2, 4):(8, 4, 1)
          out R[0]:assign f32(80):(1)
        ) {
          block R [t:40, i:2, k:4] (
            in X[t, i, k] f32(1, 1, 1):(8, 4, 1)
            out R[2*t + i]:add f32(1):(1)
          ) {
            $x = load(X) f32
            R = store($x)
          }
        }
        """)
    result, _ = check_pass(program, Partition(unit="CORE"), load_named("many_core"), again=False)
    outer = only_child(result)
    assert outer.location == Location("CORE", Affine.of({"t": 2, "i": 1}))
    assert outer.ranges == {"t": 8, "i": 2}
