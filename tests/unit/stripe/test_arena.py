"""Programs on the memories of a target: right where buffers lie apart, wrong where they don't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stripe.arena
from hwconfigs.model import HwConfig, Memory, Unit
from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Block
from stripe.parser import parse
from stripe.validate_run import checked
from stripe.verify import verify
from tests.support.meaning import random_inputs
from tests.support.programs import corpus

Array = np.ndarray[Any, Any]

MACHINE = HwConfig(
    "machine", "a scratchpad in two banks, private memories of cores, far memory", "interpreter",
    memories=(
        Memory("PAD", "explicit", 4096, banks=2, line_bytes=1, backing="FAR"),
        Memory("OWN", "explicit", 256, count=4, line_bytes=1, backing="FAR"),
        Memory("FAR", "explicit"),
    ),
    units=(Unit("CORE", count=4, reaches=("PAD", "OWN", "FAR")),),
)  # fmt: skip


def both(text: str, hw: HwConfig = MACHINE) -> tuple[Array, Array]:
    """The only output, without regard to places and with it."""
    program = parse(text)
    inputs = random_inputs(program, np.random.default_rng(1))
    (expected,) = interpret(program, inputs).values()
    (got,) = interpret_placed(program, inputs, hw).values()
    return expected, got


def is_right(text: str) -> bool:
    expected, got = both(text)
    return bool(np.array_equal(expected, got))


def failure(text: str, hw: HwConfig = MACHINE) -> str:
    with pytest.raises(CompileError) as caught:
        both(text, hw)
    return str(caught.value)


def copy(name: str, source: str, target: str, size: int, dtype: str = "i32") -> str:
    return f"""
    block {name} [x:{size}] (in A = {source}[x] {dtype}(1)  out R = {target}[x]:assign {dtype}(1)) {{
      $a = load(A) {dtype}
      R = store($a)
    }}"""


# Tiles of a product: two panels in flight, and partial sums that stay in memory

TILES = """
block main [] @CORE[0] (
  in A[0, 0] i32(8, 12):(12, 1) @FAR:0
  in B[0, 0] i32(12, 8):(8, 1) @FAR:384
  out C[0, 0]:assign i32(8, 8):(8, 1) @FAR:768
) {
  block tiles [m:2, n:2] (
    in A[4*m, 0] i32(4, 12)
    in B[0, 4*n] i32(12, 4)
    out C[4*m, 4*n]:assign i32(4, 4)
    new S i32(4, 4):(4, 1) @PAD[1]:0
  ) {
    block steps [k:3] inflight=2 (
      in A[0, 4*k] i32(4, 4)
      in B[4*k, 0] i32(4, 4)
      out S[0, 0]:add i32(4, 4)
      new P i32(4, 4):(4, 1) @PAD[0]:64*slot
      new Q i32(4, 4):(4, 1) @PAD:64*slot + 128
    ) {
      block p [i:4, j:4] (in A[i, j] i32(1, 1)  out P[i, j]:assign i32(1, 1)) {
        $a = load(A) i32
        P = store($a)
      }
      block q [i:4, j:4] (in B[i, j] i32(1, 1)  out Q[i, j]:assign i32(1, 1)) {
        $a = load(B) i32
        Q = store($a)
      }
      block dot [i:4, j:4, l:4] (in P[i, l] i32(1, 1)  in Q[l, j] i32(1, 1)  out S[i, j]:add i32(1, 1)) {
        $a = load(P) i32
        $b = load(Q) i32
        $c = mul($a, $b) i32
        S = store($c)
      }
    }
    block c [i:4, j:4] (in S[i, j] i32(1, 1)  out C[i, j]:assign i32(1, 1)) {
      $a = load(S) i32
      C = store($a)
    }
  }
}
"""


def test_tiles_on_their_addresses() -> None:
    verify(parse(TILES), MACHINE)
    assert is_right(TILES)


@pytest.mark.parametrize(
    ("given", "planted"),
    [
        ("@PAD[0]:64*slot", "@PAD[0]:0"),  # the slots of a buffer
        ("@PAD:64*slot + 128", "@PAD:64*slot + 64"),  # two buffers of one point
        ("@PAD:64*slot + 128", "@PAD:60*slot + 128"),  # the last element of one slot, the first of the next
        ("@PAD[1]:0", "@PAD:64"),  # partial sums under a panel
        ("@PAD[1]:0", "@PAD:252"),  # one element of them
        ("@PAD[1]:0", "@FAR:0"),  # partial sums over an input
        ("@FAR:768", "@FAR:4"),  # the output over the inputs
    ],
)
def test_a_planted_overlap_gives_a_wrong_result(given: str, planted: str) -> None:
    text = TILES.replace(given, planted)
    assert text != TILES
    assert not is_right(text)
    with pytest.raises(CompileError, match="V061"):
        verify(parse(text), MACHINE)
    verdict = checked(parse(TILES), parse(text), MACHINE)
    assert verdict.status == "refuted" and "the values are right, the places are not" in verdict.reason


def test_a_proof_of_values_says_nothing_of_places() -> None:
    moved = TILES.replace("@PAD:64*slot + 128", "@PAD:64*slot + 132")
    verdict = checked(parse(TILES), parse(moved), MACHINE)
    assert (verdict.status, verdict.ran) == ("proved", True)
    assert "and run on its addresses" in str(verdict)
    assert not checked(parse(TILES), parse(moved)).ran  # without a machine there are no memories to run in


# Points in flight and units

STAGES = f"""
block main [] (in X[0] i32(24):(1)  out Y[0]:assign i32(24):(1)) {{
  block tiles [t:6] inflight=2 (
    in X[4*t] i32(4)
    out Y[4*t]:assign i32(4)
    new T i32(4):(1) @PAD:16*slot
    new U i32(4):(1) @PAD:16*slot + 32
    new V i32(4):(1) @PAD:16*slot + 64
  ) {{{copy("get", "X", "T", 4)}{copy("to", "T", "U", 4)}{copy("fro", "U", "V", 4)}{copy("put", "V", "Y", 4)}
  }}
}}
"""


@pytest.mark.parametrize(
    ("given", "planted", "right"),
    [
        ("", "", True),
        ("slot + 64", "slot + 48", False),  # V of one point over U of the next, which is a stage behind
        ("16*slot + 64", "-16*slot + 16", False),  # V over T of the other slot, two stages apart
        ("16*slot + 64", "16*slot", True),  # T and V of one point are not alive together
    ],
)
def test_stages_of_points_in_flight_meet_at_every_lag(given: str, planted: str, right: bool) -> None:
    assert is_right(STAGES.replace(given, planted) if given else STAGES) is right


CORES = f"""
block main [] (in X[0] i32(16):(1)  out Y[0]:assign i32(16):(1)) {{
  block cores [c:4] @CORE[c] (
    in X[4*c] i32(4)
    out Y[4*c]:assign i32(4)
    new T i32(4):(1) @OWN[c]:0
  ) {{{copy("get", "X", "T", 4)}{copy("put", "T", "Y", 4)}
  }}
}}
"""


def test_cores_that_share_an_address() -> None:
    assert is_right(CORES)
    assert is_right(CORES.replace("@OWN[c]:0", "@PAD:16*c"))
    assert not is_right(CORES.replace("@OWN[c]:0", "@PAD:0"))
    assert not is_right(CORES.replace("@OWN[c]:0", "@PAD:12*c"))
    # One core after the other has the memory for itself.
    assert is_right(CORES.replace("@OWN[c]:0", "@PAD:0").replace("@CORE[c]", "@CORE[0]"))
    assert is_right(CORES.replace("@OWN[c]:0", "@PAD:0").replace("@CORE[c]", ""))


def test_what_is_nested_in_units_runs_side_by_side() -> None:
    body = copy("get", "X", "T", 2) + copy("put", "T", "Y", 2)
    text = f"""
block main [] (in X[0] i32(16):(1)  out Y[0]:assign i32(16):(1)) {{
  block cores [c:4] @CORE[c] (in X[4*c] i32(4)  out Y[4*c]:assign i32(4)) {{
    block halves [h:2, c = c] (
      in X[2*h] i32(2)
      out Y[2*h]:assign i32(2)
      new T i32(2):(1) @PAD:8*c
    ) {{{body}
    }}
  }}
}}
"""
    assert is_right(text)
    assert not is_right(text.replace("@PAD:8*c", "@PAD:0"))


# Banks


def test_a_buffer_spread_over_banks_lies_in_equal_parts() -> None:
    text = f"""
block main [] (in X[0] i32(8):(1)  out Y[0]:assign i32(8):(1)
  new T i32(8):(1) @PAD[spread 0]:16
  new U i32(4):(1) @PAD[1]:32
) {{{copy("get", "X", "T", 8)}{copy("other", "X", "U", 4)}{copy("put", "T", "Y", 8)}
}}
"""
    assert is_right(text)
    expected, got = both(text.replace("@PAD[1]:32", "@PAD[1]:16"))
    assert (got[:4] == expected[:4]).all() and not (got[4:] == expected[4:]).all()


def test_views_of_a_spread_buffer_in_one_bank_and_across() -> None:
    for start in (0, 2, 3, 4):
        text = f"""
block main [] (in X[0] i32(8):(1)  out Y[0]:assign i32(4):(1)
  new T i32(8):(1) @PAD[spread 0]:4
) {{{copy("get", "X", "T", 8)}
  block twice [r:2] (in T[{start}] i32(4)  out Y[0]:max i32(4)  new V i32(4):(1) @PAD:64) {{
    {copy("a", "T", "V", 4)}{copy("b", "V", "Y", 4)}
  }}
}}
"""
        assert is_right(text)


# Aggregation


@pytest.mark.parametrize("dtype", ["i8", "f16", "bf16", "f32", "bool"])
@pytest.mark.parametrize("op", ["add", "max"])
def test_partial_results_in_memory_are_those_of_the_interpreter(dtype: str, op: str) -> None:
    text = f"""
block main [] (in X[0, 0] {dtype}(40, 3):(3, 1)  out Y[0]:assign {dtype}(3):(1)) {{
  block outer [] (in X[0, 0] {dtype}(40, 3)  out Y[0]:assign {dtype}(3)  new S {dtype}(3):(1) @PAD:8) {{
    block steps [k:20] (
      in X[2*k, 0] {dtype}(2, 3)
      out S[0]:{op} {dtype}(3)
      new T {dtype}(2, 3):(3, 1) @PAD:64
    ) {{
      block get [a:2, b:3] (in X[a, b] {dtype}(1, 1)  out T[a, b]:assign {dtype}(1, 1)) {{
        $a = load(X) {dtype}
        T = store($a)
      }}
      block fold [a:2, b:3] (in T[a, b] {dtype}(1, 1)  out S[b]:{op} {dtype}(1)) {{
        $a = load(T) {dtype}
        S = store($a)
      }}
    }}
    {copy("put", "S", "Y", 3, dtype)}
  }}
}}
"""
    program = parse(text)
    values = np.random.default_rng(0).normal(0, 30, (40, 3))
    with np.errstate(invalid="ignore"):
        inputs = {"X": values.astype(program.inputs[0].dtype.numpy)}
    expected, got = interpret(program, inputs)["Y"], interpret_placed(program, inputs, MACHINE)["Y"]
    if dtype == "f32":
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    elif dtype == "bf16":  # the partial sums of two are rounded here as there, those of twenty once
        np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))
    else:
        np.testing.assert_array_equal(got, expected)
    if op == "add":
        wrong = interpret_placed(parse(text.replace("@PAD:8", "@PAD:64")), inputs, MACHINE)["Y"]
        assert not np.array_equal(wrong.astype(np.float32), expected.astype(np.float32)) or dtype == "bool"


def test_an_assign_below_an_aggregation_hands_on_what_was_written_last() -> None:
    text = """
block main [] (in X[0] i32(6):(1)  out Y[0]:assign i32(1):(1)) {
  block sum [x:6] (in X[x] i32(1)  out Y[0]:add i32(1)) {
    block once [] (in X[0] i32(1)  out Y[0]:assign i32(1)  new T i32(1):(1) @PAD:0) {
      $a = load(X) i32
      T = store($a)
      Y = store($a)
      $b = load(T) i32
      $c = mul($b, $b) i32
      Y = store($c)
    }
  }
}
"""
    assert is_right(text)


def test_old_contents_are_folded_in() -> None:
    text = """
block main [] (in X[0] i32(6):(1)  inout Y[0]:add i32(3):(1) @FAR:16) {
  block sum [x:2] (in X[3*x] i32(3)  inout Y[0]:add i32(3)  new T i32(3):(1) @PAD:0) {
    block get [i:3] (in X[i] i32(1)  out T[i]:assign i32(1)) {
      $a = load(X) i32
      T = store($a)
    }
    block add [i:3] (in T[i] i32(1)  out Y[i]:add i32(1)) {
      $a = load(T) i32
      Y = store($a)
    }
  }
}
"""
    inputs = {"X": np.arange(6, dtype=np.int32), "Y": np.array([10, 20, 30], np.int32)}
    program = parse(text.replace("  inout Y[0]:add i32(3)  new", "  out Y[0]:add i32(3)  new"))
    np.testing.assert_array_equal(interpret_placed(program, inputs, MACHINE)["Y"], [13, 25, 37])
    np.testing.assert_array_equal(inputs["Y"], [10, 20, 30])


# A step whose operands share bytes is taken apart


def test_a_copy_onto_itself_goes_from_point_to_point() -> None:
    text = f"""
block main [] (in X[0] i32(8):(1) @FAR:0  out Y[0]:assign i32(8):(1) @FAR:4) {{{copy("shift", "X", "Y", 8)}
}}
"""
    program = parse(text)
    values = np.arange(1, 9, dtype=np.int32)
    result = interpret_placed(program, {"X": values}, MACHINE)["Y"]
    np.testing.assert_array_equal(result, np.ones(8))  # each point reads what the one before wrote


def test_interleaved_rows_share_no_byte() -> None:
    text = """
block main [] (in X[0, 0] i32(4, 2):(4, 1) @FAR:0  out Y[0, 0]:assign i32(4, 2):(4, 1) @FAR:8) {
  block move [i:4, j:2] (in X[i, j] i32(1, 1)  out Y[i, j]:assign i32(1, 1)) {
    $a = load(X) i32
    Y = store($a)
  }
}
"""
    assert is_right(text)


# Everything that has no address


@pytest.mark.parametrize("step", ["program", "leaf", "point"])
@pytest.mark.parametrize("name", list(corpus()))
def test_without_addresses_it_is_the_interpreter(
    name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever runs in one step: the whole program, each leaf, or nothing at all."""

    def taken_apart(block: Block) -> bool:
        return step == "point" or bool(block.children)

    if step != "program":
        monkeypatch.setattr(stripe.arena, "_has_places", taken_apart)
    program = corpus()[name]
    inputs = random_inputs(program, np.random.default_rng(0))
    if step == "point" and sum(value.size for value in inputs.values()) > 200:
        pytest.skip("many points")
    expected = interpret(program, inputs)
    for output, got in interpret_placed(program, inputs, MACHINE).items():
        if got.dtype.kind == "f" and step != "program":
            np.testing.assert_allclose(got, expected[output], rtol=1e-6)
        else:
            np.testing.assert_array_equal(got, expected[output])


# What goes wrong


def test_a_buffer_outside_of_its_memory() -> None:
    message = failure(CORES.replace("@OWN[c]:0", "@PAD[c]:0"))
    assert "[I026]" in message and "main/cores: 'T' lies at bytes 4096 to 4112 of PAD" in message
    assert "PAD has 4096 bytes, in 2 banks" in message
    assert "main/cores: 'T' lies at bytes -16 to 0" in failure(CORES.replace("@OWN[c]:0", "@PAD:16*c - 16"))


def test_a_memory_that_the_target_does_not_have() -> None:
    message = failure(CORES.replace("@OWN", "@NEAR"))
    assert "'T' lies in NEAR, which machine does not have" in message


def test_a_memory_that_is_used_too_far() -> None:
    assert "[I010]" in failure(CORES.replace("@OWN[c]:0", f"@FAR:{1 << 45}"))


def test_an_index_that_is_not_there() -> None:
    message = failure(CORES.replace("@OWN[c]:0", "@OWN[k]:0"))
    assert "block main/cores uses the index 'k', which it does not have" in message


def test_what_was_not_written_is_missed_in_each_life_of_a_buffer() -> None:
    """The bytes still hold what the point before left there."""
    text = CORES.replace("@CORE[c]", "").replace("@OWN[c]:0", "@PAD:0")
    text = text.replace("block get [x:4] (", "block get [x:4, c = c] (\n      -c + x >= 0\n")
    assert "[I021]: main/cores/put, statement 0" in failure(text)


def test_a_tile_that_overhangs() -> None:
    body = copy("get", "X", "T", 4) + copy("put", "T", "Y", 4)
    ragged = body.replace("[x:4] (", "[x:4, o = 4*t] (\n 9 - o - x >= 0\n")
    text = f"""
block main [] (in X[0] i32(10):(1)  out Y[0]:assign i32(10):(1)) {{
  block tiles [t:3] (in X[4*t] i32(4)  out Y[4*t]:assign i32(4)  new T i32(4):(1) @PAD:0) {{{ragged}
  }}
}}
"""
    assert is_right(text)
