"""place: addresses in managed memories."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Block, Program, Refinement
from stripe.passes.base import PassContext
from stripe.passes.place import Place
from stripe.verify_ready import unplaced
from stripe.visit import walk
from tests.support.machines import array_machine
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of

HW = array_machine()


def placed(text: str, **changes: Any) -> Program:
    """The program with addresses, which has run right on them."""
    hw = array_machine(**changes)
    program = program_of(text)
    result, _ = check_pass(program, Place(), hw)
    inputs = random_inputs(program, np.random.default_rng(0))
    expected = interpret(program, inputs)
    found = interpret_placed(result, inputs, hw)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    return result


def places(root: Block) -> dict[str, str]:
    def text(ref: Refinement) -> str:
        location = ref.location
        assert location is not None
        bank = "" if location.bank is None else f"[{location.bank}]"
        return f"{location.unit}{bank}:{location.address}"

    return {r.name: text(r) for _, block in walk(root) for r in block.refinements if r.location}


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
    found = places(placed(chain(9)).root)
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
    found = places(placed(TWO).root)
    assert {found["A"], found["B"]} == {"SPAD:64*slot", "SPAD:64*slot + 128"}


def test_a_bank_that_is_named_stays_and_banks_count_apart() -> None:
    text = TWO.replace("new A f32(2):(1) @SPAD", "new A f32(2):(1) @SPAD[1]").replace(
        "new B f32(2):(1) @SPAD", "new B f32(2):(1) @SPAD[2]"
    )
    found = places(placed(text).root)
    assert (found["A"], found["B"]) == ("SPAD[1]:64*slot", "SPAD[2]:64*slot")


def test_an_address_that_is_given_stays() -> None:
    text = TWO.replace("inflight=2", "").replace("new A f32(2):(1) @SPAD", "new A f32(2):(1) @SPAD:0")
    found = places(placed(text).root)
    assert found["A"] == "SPAD:0"
    assert found["B"] == "SPAD:64"


def test_everything_has_a_place_then() -> None:
    assert all(d.code != "V065" or "address" not in d.message for d in unplaced(placed(TWO), HW))


def test_too_small_a_memory_is_an_error_that_lists_what_is_alive() -> None:
    with pytest.raises(CompileError) as caught:
        Place().run(program_of(TWO), PassContext(array_machine(spad=192)))
    (found,) = caught.value.diagnostics
    assert found.code == "P170"
    assert found.message.startswith("place: SPAD has 192 bytes; 256 are needed, 64 too many")
    assert "128 bytes: 'A' of 'main/t'" in found.notes
    assert found.notes[-1].endswith("with 256 bytes of SPAD it fits")


def test_too_small_a_bank_is_called_a_bank() -> None:
    text = TWO.replace("f32(2):(1) @SPAD", "f32(2):(1) @SPAD[1]")
    with pytest.raises(CompileError) as caught:
        Place().run(program_of(text), PassContext(array_machine(spad=4 * 192)))
    (found,) = caught.value.diagnostics
    assert found.message.startswith("place: a bank of SPAD has 192 bytes; 256 are needed, 64 too many")
    assert found.notes[-1].endswith("with 1024 bytes of SPAD it fits")


@pytest.mark.parametrize(("count", "others"), [(8, ()), (9, ("64 bytes: 1 others",))])
def test_of_many_buffers_that_are_alive_together_eight_are_listed(
    count: int, others: tuple[str, ...]
) -> None:
    names = [f"T{n}" for n in range(count)]
    new = "  ".join(f"new {name} f32(2):(1) @SPAD" for name in names)
    stores = "".join(
        f"block b{n} [x:2] (in X[x] f32(1)  out {name}[x]:assign f32(1)) {{"
        f" $a = load(X)  {name} = store($a) }}"
        for n, name in enumerate(names)
    )
    loads = "".join(
        f"block c{n} [x:2] (in {name}[x] f32(1)  out R[x]:add f32(1)) {{ $a = load({name})  R = store($a) }}"
        for n, name in enumerate(names)
    )
    text = f"""
        block main [] (in X[0] f32(2):(1)  out R[0]:assign f32(2):(1)) {{
          block t [] (in X[0] f32(2)  out R[0]:add f32(2)  {new}) {{ {stores} {loads} }} }}
    """
    with pytest.raises(CompileError) as caught:
        Place().run(program_of(text), PassContext(array_machine(spad=64)))
    (found,) = caught.value.diagnostics
    first, *listed, last = found.notes
    assert (first, last[:5]) == ("alive together:", "help:")
    assert listed[:8] == [f"64 bytes: '{name}' of 'main/t'" for name in sorted(names)[:8]]
    assert tuple(listed[8:]) == others


def test_the_remarks_say_what_each_memory_holds() -> None:
    text = TWO.replace("new A f32(2):(1) @SPAD", "new A f32(2):(1) @SPAD[1]").replace(
        "new B f32(2):(1) @SPAD", "new B f32(2):(1) @SPAD[2]"
    )
    _, remarks = check_pass(program_of(text), Place(), HW)
    assert [r.message for r in remarks] == [
        "2 buffers in 128 bytes of DRAM; 128 are alive at once",
        "2 buffers in 128 of 65536 bytes of the fullest bank of SPAD; 128 are alive at once",
    ]
    single = """
        block main [] (in X[0] f32(8):(1)  out R[0]:assign f32(8):(1)  new T f32(8):(1) @SPAD) {
          block a [x:8] @DMA (in X[x] f32(1)  out T[x]:assign f32(1)) { $a = load(X)  T = store($a) }
          block r [x:8] @DMA (in T[x] f32(1)  out R[x]:assign f32(1)) { $a = load(T)  R = store($a) } }
    """
    _, remarks = check_pass(program_of(single), Place(), HW)
    assert remarks[1].message == "1 buffer in 64 of 262144 bytes of SPAD; 64 are alive at once"


def test_a_placed_program_is_left_alone() -> None:
    program = placed(chain(3))
    context = PassContext(HW)
    assert Place().run(program, context) is program
    assert [r.acted for r in context.remarks] == [False]


@pytest.mark.parametrize(("root", "load"), [("", ""), (" @DRAM:256", ""), ("", " @DRAM:256")])
def test_what_both_programs_use_lies_where_either_says(root: str, load: str) -> None:
    result = placed(
        f"""
        load block pack [] (in W[0] f32(8):(1)  out P[0]:assign f32(8):(1){load}) {{
          block p [x:8] (in W[x] f32(1)  out P[x]:assign f32(1)) {{
            $w = load(W) f32
            P = store($w) }} }}

        block main [] (in X[0] f32(8):(1)  in P[0] f32(8):(1){root}  const in W[0] f32(8):(1)
                       out R[0]:assign f32(8):(1)) {{
          block r [x:8] (in X[x] f32(1)  in P[x] f32(1)  in W[x] f32(1)  out R[x]:assign f32(1)) {{
            $x = load(X) f32
            $p = load(P) f32
            $w = load(W) f32
            $a = mul($x, $p) f32
            $r = add($a, $w) f32
            R = store($r) }} }}
        """
    )
    assert result.load is not None
    found = places(result.root)
    assert places(result.load) == {name: found[name] for name in ("W", "P")}
    assert (found["P"] == "DRAM:256") == bool(root or load)
