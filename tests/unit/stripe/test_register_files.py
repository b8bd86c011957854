"""Buffers in the register file of a machine without native code: placed, verified and run like others."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory
from stripe.arena import interpret_placed
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.place import Place
from stripe.verify import findings, verify
from stripe.verify_ready import unplaced
from stripe.visit import walk
from tests.support.machines import array_machine
from tests.support.managed import check_on
from tests.support.managed import random_inputs as managed_inputs
from tests.support.managed_programs import MANAGED
from tests.support.meaning import random_inputs
from tests.support.passes import program_of

HW = array_machine(acc=512)

SUMS = """
    block main [] (in X[0, 0] f32(8, 4):(4, 1) @SPAD  out R[0]:assign f32(8):(1) @SPAD) {
      block t [o:2] (in X[4*o, 0] f32(4, 4)  out R[4*o]:assign f32(4)
                     new S f32(4):(1) @ACC  new M f32(4):(1) @ACC) {
        block s [i:4, k:4] @VPU (in X[i, k] f32(1, 1)  out S[i]:add f32(1)) {
          $x = load(X) f32  S = store($x) }
        block m [i:4, k:4] @VPU (in X[i, k] f32(1, 1)  out M[i]:max f32(1)) {
          $x = load(X) f32  M = store($x) }
        block r [i:4] @VPU (in S[i] f32(1)  in M[i] f32(1)  out R[i]:assign f32(1)) {
          $s = load(S) f32  $m = load(M) f32  $r = add($s, $m) f32  R = store($r) } } }
"""


def is_right(program: Program) -> bool:
    inputs = random_inputs(program, np.random.default_rng(1))
    expected, found = interpret(program, inputs), interpret_placed(program, inputs, HW)
    return all(np.array_equal(found[name], value) for name, value in expected.items())


def placed(text: str) -> Program:
    return Place().run(program_of(text), PassContext(HW))


def test_accumulators_get_addresses() -> None:
    program = placed(SUMS)
    tile = program.root.children[0]
    places = [tile.refinement(name).location for name in "SM"]
    assert {str(place.address) for place in places if place is not None} == {"0", "64"}
    verify(program, HW)
    assert unplaced(program, HW) == ()
    assert is_right(program)


def test_accumulators_that_share_bytes_are_found_and_give_a_wrong_result() -> None:
    text = SUMS.replace("new S f32(4):(1) @ACC", "new S f32(4):(1) @ACC:0")
    right = program_of(text.replace("new M f32(4):(1) @ACC", "new M f32(4):(1) @ACC:64"))
    wrong = program_of(text.replace("new M f32(4):(1) @ACC", "new M f32(4):(1) @ACC:0"))
    assert findings(right, HW) == ()
    assert is_right(right)
    assert {f.code for f in findings(wrong, HW)} == {"V061"}
    assert not is_right(wrong)


def test_an_accumulator_beyond_the_end_or_off_the_grid_is_an_error() -> None:
    text = SUMS.replace("new S f32(4):(1) @ACC", "new S f32(4):(1) @ACC:%d")
    for address in (512, 8):
        assert {f.code for f in findings(program_of(text % address), HW)} == {"V060"}


def test_one_without_an_address_is_not_ready_to_run() -> None:
    found = unplaced(program_of(SUMS), HW)
    assert any("'S': it has no address in ACC" in f.message for f in found)


@pytest.mark.parametrize(("size", "codes"), [(32, set()), (31, {"V037"})])
def test_what_is_alive_at_once_fits(size: int, codes: set[str]) -> None:
    hw = array_machine(acc=size)
    assert {f.code for f in findings(program_of(SUMS), hw)} == codes


def test_too_many_accumulators_are_an_error_of_place() -> None:
    with pytest.raises(CompileError, match=r"ACC has 64 bytes; 128 are needed, 64 too many"):
        Place().run(program_of(SUMS), PassContext(array_machine(acc=64)))


def test_registers_of_native_code_get_none() -> None:
    memories = (Memory("ACC", "registers", 1024), Memory("SPAD", "explicit"))
    program = program_of(SUMS)
    native = HwConfig("m", "", "cpu", memories, tuple(HW.units))
    for hw, ready in ((native, False), (msgspec.structs.replace(native, executor="interpreter"), True)):
        made = Place().run(program, PassContext(hw))
        found = [r.location for _, b in walk(made.root) for r in b.refinements if r.location]
        assert all((x.address is not None) == (ready or x.unit == "SPAD") for x in found)


@pytest.mark.parametrize("name", ["attention", "mm_i8_wide_epi", "k1", "residual"])
def test_a_target_whose_accumulators_are_a_register_file(name: str, rng: np.random.Generator) -> None:
    shipped = load_named("systolic_16")
    near, *others = shipped.memories
    hw = msgspec.structs.replace(shipped, memories=(msgspec.structs.replace(near, kind="registers"), *others))
    case = next(c for c in MANAGED if c.name == name)
    program = case.program()
    made = check_on(program, hw, managed_inputs(program, rng, case.floats, case.integers))
    locations = [r.location for _, b in walk(made.root) for r in b.refinements if r.location]
    assert any(x.unit == near.name for x in locations)
    assert all(x.address is not None for x in locations)
