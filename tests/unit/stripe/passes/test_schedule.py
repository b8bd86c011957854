"""schedule: order, what stays near, points in flight."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from hwconfigs.load import load_named
from stripe.analysis.liveness import peaks
from stripe.diag import CompileError
from stripe.ir import Block, Program
from stripe.passes.base import PassContext
from stripe.passes.schedule import Schedule
from stripe.passes.schedule_order import Loads
from stripe.passes.transfer import Transfer
from stripe.visit import walk
from tests.support.machines import array_machine
from tests.support.passes import check_pass, program_of

HW = array_machine()
MANY_CORE = load_named("many_core")
FLAT = array_machine(memories=[{"name": "DRAM", "kind": "explicit"}, {"name": "L1", "kind": "explicit",
    "bytes": 2, "backing": "DRAM"}], units=[], stencils=[])  # fmt: skip


def blocks(program: Program) -> dict[str, Block]:
    return {"/".join(path): block for path, block in walk(program.root)}


def kernels(reads: dict[str, list[str]], sizes: dict[str, int]) -> Program:
    """A program of kernels, in this order, each of which makes a buffer of some elements of those it reads:
    the first element of each."""
    made = [name for name in reads if name != "R"]
    lines = [f"new {name} f32({sizes[name]}):(1) @DRAM" for name in made]
    text = (
        f"block main [] (in X[0] f32(4):(1) @DRAM  out R[0]:assign f32(4):(1) @DRAM  {'  '.join(lines)}) {{"
    )
    for name, sources in reads.items():
        views = "".join(f"in S{at} = {source}[0] f32(1)  " for at, source in enumerate(sources))
        loads = "".join(f"$s{at} = load(S{at}) f32\n" for at in range(len(sources)))
        total = "$s0"
        for at in range(1, len(sources)):
            loads += f"$t{at} = add({total}, $s{at}) f32\n"
            total = f"$t{at}"
        text += f"""
          block k{name} [x:{sizes[name]}] ({views} out {name}[x]:assign f32(1)) {{
            {loads}
            {name} = store({total}) }}
        """
    return program_of(text + "}")


def test_kernels_take_the_order_that_keeps_little_alive() -> None:
    reads = {"A": ["X"], "B": ["X"], "C": ["X"], "D": ["A"], "E": ["B"], "F": ["C"], "R": ["D", "E", "F"]}
    sizes = {"A": 100, "B": 100, "C": 100, "D": 1, "E": 1, "F": 1, "R": 4}
    result, remarks = check_pass(kernels(reads, sizes), Schedule(), FLAT)
    names = [k.name for k in result.root.children]
    assert names == ["kA", "kD", "kB", "kE", "kC", "kF", "kR"]
    assert any("another order" in r.message for r in remarks)


@pytest.mark.parametrize("seed", range(8))
def test_the_order_is_never_worse_than_the_given_one(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"T{at}" for at in range(12)]
    reads = {name: rng.sample(["X", *names[:at]], k=min(at + 1, 2)) for at, name in enumerate(names)}
    unread = [n for n in names if not any(n in sources for sources in reads.values())]
    reads["R"] = unread
    sizes = {name: rng.randint(1, 64) for name in names} | {"R": 4}
    program = kernels(reads, sizes)
    result, _ = check_pass(program, Schedule(), FLAT, again=False)
    before, after = peaks(program.root, FLAT), peaks(result.root, FLAT)
    assert sum(p.bytes for p in after.values()) <= sum(p.bytes for p in before.values())


CHAIN = """
    block main [] (in X[0] f32(1024):(1)  out Z[0]:assign f32(1024):(1)  new Y f32(1024):(1)) {
      block Y [t:16] (in X[64*t] f32(64)  out Y[64*t]:assign f32(64)) #tiled {
        block Y [x:64] (in X[x] f32(1)  out Y[x]:assign f32(1)) {
          $x = load(X) f32
          $y = add($x, $x) f32
          Y = store($y) } }
      block Z [t:16] (in Y[64*t] f32(64)  out Z[64*t]:assign f32(64)) #tiled {
        block Z [x:64] (in Y[x] f32(1)  out Z[x]:assign f32(1)) {
          $y = load(Y) f32
          $z = mul($y, $y) f32
          Z = store($z) } } }
"""


def scheduled(text: str, **changes: Any) -> tuple[Program, list[str]]:
    hw = array_machine(**changes)
    given, _ = check_pass(program_of(text), Transfer(), hw)
    result, remarks = check_pass(given, Schedule(), hw)
    return result, [f"{r.block}: {r.message}" for r in remarks]


def test_a_buffer_that_fits_stays_near_and_its_copies_go() -> None:
    result, said = scheduled(CHAIN)
    location = result.root.refinement("Y").location
    assert location is not None
    assert location.unit == "SPAD"
    assert not [path for path in blocks(result) if path.endswith(("Y_load", "Y_store"))]
    assert "main: 'Y' stays in SPAD" in said


def test_a_buffer_that_does_not_fit_goes_through_far_memory() -> None:
    result, said = scheduled(CHAIN, spad=4096)
    assert [path for path in blocks(result) if path.endswith(("Y_load", "Y_store"))]
    assert any("goes through far memory" in text for text in said)


def test_what_is_nested_in_any_user_counts_for_a_buffer_that_stays_near() -> None:
    """The kernel that makes Y needs four times as much beside it as the one that reads it."""
    maker, _, reader = CHAIN.partition("block Z")
    wide = maker.replace("t:16", "t:4").replace("64*t", "256*t").replace("f32(64)", "f32(256)")
    wide = wide.replace("x:64", "x:256") + "block Z" + reader
    _, said = scheduled(wide, spad=4608)
    message = "'Y' goes through far memory: with it 5120 bytes would be alive in SPAD, of 4608"
    assert f"main: {message}" in said


def test_a_buffer_takes_the_place_of_its_copies() -> None:
    """Kernels without tiles, whose copies are the root's own: no more than two arrays are alive at once."""
    text = CHAIN.replace(" #tiled", "").replace("1024", "256").replace("t:16", "t:4")
    result, said = scheduled(text, spad=2048)
    assert "main: 'Y' stays in SPAD" in said
    assert not [path for path in blocks(result) if path.endswith(("Y_load", "Y_store"))]


@pytest.mark.parametrize(("inflight", "alive"), [(1, 64 + 64), (2, 2 * 64 + 64 + 64), (3, 3 * 64 + 64 + 64)])
def test_points_in_flight_are_at_different_statements(inflight: int, alive: int) -> None:
    part = """
        block NAME [x:2] (in IN[x] f32(1)  out OUT[x]:assign f32(1)  new S f32(16):(1) @SPAD) {
          $x = load(IN) f32
          S = store($x)
          OUT = store($x) }
    """
    first, second = (
        part.replace("NAME", name).replace("IN", source).replace("OUT", target)
        for name, source, target in (("a", "X", "T"), ("b", "T", "R"))
    )
    program = program_of(
        f"""
        block main [] (in X[0] f32(8):(1)  out R[0]:assign f32(8):(1)) {{
          block t [o:4] inflight={inflight} (in X[2*o] f32(2)  out R[2*o]:assign f32(2)
                                             new T f32(2):(1) @SPAD) {{ {first} {second} }} }}
        """
    )
    assert Loads(HW).most(program.root.children[0]) == {"SPAD": alive}


def test_points_are_in_flight_where_their_buffers_fit() -> None:
    result, said = scheduled(CHAIN)
    assert [k.inflight for k in result.root.children] == [2, 2]
    assert "main/Y: 2 points in flight" in said


def test_points_that_do_not_fit_twice_run_one_at_a_time() -> None:
    result, said = scheduled(CHAIN, spad=768)
    assert [k.inflight for k in result.root.children] == [1, 1]
    assert any("main/Y: one point at a time: 2 points take 1024 bytes of SPAD" in text for text in said)


def test_what_one_of_several_units_takes_fits_in_its_own_memory() -> None:
    """Each of 16 cores has 128 bytes: that the 16 of them have 2048 is no room for a second point."""
    program = program_of("""
        block main [] (in X[0] f32(64):(1) @DRAM  out R[0]:assign f32(64):(1) @DRAM) {
          block p [c:2] @CORE[c] (in X[32*c] f32(32)  out R[32*c]:assign f32(32)) {
            block t [o:4, c = c] (in X[8*o] f32(8)  out R[8*o]:assign f32(8)
                                  new A f32(8):(1) @SRAM  new B f32(8):(1) @SRAM) #tiled {
              block l [x:8, c = c] @DMA[c] (in X[x] f32(1)  out A[x]:assign f32(1)) {
                $a = load(X)  A = store($a) }
              block w [x:8] (in A[x] f32(1)  out B[x]:assign f32(1)) {
                $a = load(A)  $b = mul($a, $a)  B = store($b) }
              block s [x:8, c = c] @DMA[c] (in B[x] f32(1)  out R[x]:assign f32(1)) {
                $b = load(B)  R = store($b) } } } }
    """)
    for size, text in (
        (128, "one point at a time: 2 points take 256 bytes of SRAM, and 128 are free"),
        (256, "2 points in flight"),
    ):
        memories = (
            msgspec.structs.replace(m, bytes=size) if m.name == "SRAM" else m for m in MANY_CORE.memories
        )
        hw = msgspec.structs.replace(MANY_CORE, memories=tuple(memories))
        _, remarks = check_pass(program, Schedule(), hw)
        assert [r.message for r in remarks if r.block == "main/p/t"][-1] == text


def test_what_does_not_fit_at_all_is_an_error() -> None:
    hw = array_machine(spad=256)
    given = Transfer().run(program_of(CHAIN), PassContext(hw))
    with pytest.raises(CompileError) as caught:
        Schedule().run(given, PassContext(hw))
    (found,) = caught.value.diagnostics
    assert found.code == "P160"
    assert "schedule: block main/Y, statement 1 (block Y) " in found.message
    assert "needs 512 bytes of SPAD at once; 256 are available" in found.message
    assert found.notes[-1].endswith("with 512 bytes of SPAD it fits")
    assert found.span is not None
    assert any("X_SPAD" in note for note in found.notes)


def test_what_a_bank_lacks_all_banks_get() -> None:
    program = program_of("""
        block main [] (in X[0] f32(32):(1)  out R[0]:assign f32(32):(1)  new T f32(32):(1) @SPAD[1]) {
          block a [x:32] (in X[x] f32(1)  out T[x]:assign f32(1)) { $a = load(X)  T = store($a) }
          block r [x:32] (in T[x] f32(1)  out R[x]:assign f32(1)) { $a = load(T)  R = store($a) } }
    """)
    with pytest.raises(CompileError) as caught:
        Schedule().run(program, PassContext(array_machine(spad=256)))
    (found,) = caught.value.diagnostics
    assert "needs 128 bytes of SPAD at once; 64 are available" in found.message
    assert found.notes[-1].endswith("with 512 bytes of SPAD it fits")


def test_loads_go_ahead_of_work_that_does_not_need_them() -> None:
    copy = """
        block {name} [x:16] {unit} (in {a}[x] f32(1)  out {b}[x]:assign f32(1)) {{
          $a = load({a})
          {b} = store($a) }}
    """
    steps = [("l0", "X", "A", "@DMA"), ("w0", "A", "P", "@VPU"), ("s0", "P", "R", "@DMA"),
             ("l1", "Y", "B", "@DMA"), ("w1", "B", "Q", "@VPU"), ("s1", "Q", "S", "@DMA")]  # fmt: skip
    body = "".join(copy.format(name=name, a=a, b=b, unit=unit) for name, a, b, unit in steps)
    new = "  ".join(f"new {name} f32(16):(1) @SPAD" for name in "ABPQ")
    given = "  ".join(f"{how} f32(16):(1) @DRAM" for how in (
        "in X[0]", "in Y[0]", "out R[0]:assign", "out S[0]:assign"))  # fmt: skip
    inside = given.replace(":(1) @DRAM", "")
    program = program_of(f"block main [] ({given}) {{ block t [] ({inside}  {new}) #tiled {{ {body} }} }}")
    result, remarks = check_pass(program, Schedule(), HW)
    (tile,) = result.root.children
    assert [b.name for b in tile.children] == ["l0", "l1", "w0", "w1", "s0", "s1"]
    assert any("loads first, stores last" in r.message for r in remarks)


def test_of_much_that_is_alive_eight_buffers_are_listed() -> None:
    names = [f"T{n}" for n in range(9)]
    new = "  ".join(f"new {name} f32(2):(1) @SPAD" for name in names)
    kernels = "".join(
        f"block {block} [x:2] (in {source}[x] f32(1)  out {target}[x]:{how} f32(1)) {{"
        f" $a = load({source})  {target} = store($a) }}"
        for turns in (
            [("b", "X", name, "assign") for name in names],
            [("c", name, "R", "add") for name in names],
        )
        for block, source, target, how in turns
    )
    program = program_of(
        f"""
        block main [] (in X[0] f32(2):(1)  out R[0]:assign f32(2):(1)) {{
          block t [] (in X[0] f32(2)  out R[0]:add f32(2)  {new}) {{ {kernels} }} }}
        """
    )
    with pytest.raises(CompileError) as caught:
        Schedule().run(program, PassContext(array_machine(spad=64)))
    (found,) = caught.value.diagnostics
    assert sum("64 bytes: 'T" in note for note in found.notes) == 8


def test_a_target_without_managed_memory_is_left_alone() -> None:
    context = PassContext(array_machine(memories=[], units=[], stencils=[]))
    program = program_of(CHAIN)
    assert Schedule().run(program, context) is program
    assert [r.acted for r in context.remarks] == [False]
