"""place: addresses in managed memories."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Program, Refinement
from stripe.passes.base import PassContext
from stripe.passes.place import Place
from stripe.verify_places import unplaced
from stripe.visit import walk
from tests.support.machines import array_machine
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of

HW = array_machine()


def placed(text: str, **changes: object) -> Program:
    """The program with addresses, which has run right on them."""
    hw = array_machine(**changes)  # type: ignore[arg-type]
    program = program_of(text)
    result, _ = check_pass(program, Place(), hw)
    inputs = random_inputs(program, np.random.default_rng(0))
    expected = interpret(program, inputs)
    found = interpret_placed(result, inputs, hw)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    return result


def places(program: Program) -> dict[str, str]:
    def text(ref: Refinement) -> str:
        location = ref.location
        assert location is not None
        bank = "" if location.bank is None else f"[{location.bank}]"
        return f"{location.unit}{bank}:{location.address}"

    return {r.name: text(r) for _, block in walk(program.root) for r in block.refinements if r.location}


def chain(kernels: int, elements: int = 20) -> str:
    """Kernels that each double what the one before made, at home."""
    names = ["X", *(f"T{k}" for k in range(kernels - 1)), "R"]
    new = "  ".join(f"new {name} f32({elements}):(1) @DRAM" for name in names[1:-1])
    text = f"block main [] (in X[0] f32({elements}):(1)  out R[0]:assign f32({elements}):(1)  {new}) {{"
    for source, target in itertools.pairwise(names):
        text += f"""
          block k{target} [x:{elements}] (in {source}[x] f32(1)  out {target}[x]:assign f32(1)) {{
            $a = load({source}) f32
            $b = add($a, $a) f32
            {target} = store($b) }}
        """
    return text + "}"


def test_a_chain_takes_turns() -> None:
    found = places(placed(chain(9)))
    assert len(set(found.values())) == 3  # the input's, and two for the results
    assert all(int(place.split(":")[1]) % 64 == 0 for place in found.values())


TWO = (
    """
    block main [] (in X[0] f32(8):(1)  out R[0]:assign f32(8):(1)) {
      block t [o:4] inflight=2 (in X[2*o] f32(2)  out R[2*o]:assign f32(2)
                                new A f32(2):(1) @SPAD  new B f32(2):(1) @SPAD) {
        block a [x:2] (in X[x] f32(1)  out A[x]:assign f32(1)) @DMA {
          $a = load(X) f32
          A = store($a) }
        block b [x:2] (in A[x] f32(1)  out B[x]:assign f32(1)) @VPU {
          $a = load(A) f32
          $b = add($a, $a) f32
          B = store($b) }
        block r [x:2] (in B[x] f32(1)  out R[x]:assign f32(1)) @DMA {
          $b = load(B) f32
          R = store($b) } } }
""".replace("(in X[x] f32(1)  out A[x]:assign f32(1)) @DMA", "@DMA (in X[x] f32(1)  out A[x]:assign f32(1))")
    .replace("(in A[x] f32(1)  out B[x]:assign f32(1)) @VPU", "@VPU (in A[x] f32(1)  out B[x]:assign f32(1))")
    .replace("(in B[x] f32(1)  out R[x]:assign f32(1)) @DMA", "@DMA (in B[x] f32(1)  out R[x]:assign f32(1))")
)


def test_points_in_flight_have_slots() -> None:
    found = places(placed(TWO))
    assert {found["A"], found["B"]} == {"SPAD:64*slot", "SPAD:64*slot + 128"}


def test_a_bank_that_is_named_stays_and_banks_count_apart() -> None:
    text = TWO.replace("new A f32(2):(1) @SPAD", "new A f32(2):(1) @SPAD[1]").replace(
        "new B f32(2):(1) @SPAD", "new B f32(2):(1) @SPAD[2]"
    )
    found = places(placed(text))
    assert (found["A"], found["B"]) == ("SPAD[1]:64*slot", "SPAD[2]:64*slot")


def test_an_address_that_is_given_stays() -> None:
    text = TWO.replace("inflight=2", "").replace("new A f32(2):(1) @SPAD", "new A f32(2):(1) @SPAD:0")
    found = places(placed(text))
    assert found["A"] == "SPAD:0"
    assert found["B"] == "SPAD:64"


def test_everything_has_a_place_then() -> None:
    assert all(d.code != "V065" or "address" not in d.message for d in unplaced(placed(TWO), HW))


def test_too_small_a_memory_is_an_error_that_lists_what_is_alive() -> None:
    with pytest.raises(CompileError) as caught:
        Place().run(program_of(TWO), PassContext(array_machine(spad=192)))
    (found,) = caught.value.diagnostics
    assert found.code == "P170"
    assert "SPAD has 192 bytes; 256 are needed, 64 too many" in found.message
    assert "128 bytes: 'A' of 'main/t'" in found.notes


def test_a_placed_program_is_left_alone() -> None:
    program = placed(chain(3))
    context = PassContext(HW)
    assert Place().run(program, context) is program
    assert [r.acted for r in context.remarks] == [False]
