"""stripe.verify_places, verify_overlap: placements that are right, and how long a look at many takes.

Wrong ones are in tests/golden/errors/verify; tests/property/test_placement.py compares with brute force.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hwconfigs.load import load, load_named
from hwconfigs.model import HwConfig
from stripe import poly
from stripe.ir import Program
from stripe.parser import parse
from stripe.verify import findings
from stripe.verify_overlap import overlap_findings
from stripe.verify_ready import unplaced
from tests.support.programs import corpus

TINY = load(Path(__file__).parents[2] / "golden" / "targets" / "tiny.json")

TILES = """block main [] (
  in X[0] f32(16):(1) @DRAM:0
  out Y[0]:assign f32(16):(1) @DRAM:64
) {
  block tiles [t:4] %s (
    in X[4*t] f32(4)
    out Y[4*t]:assign f32(4)
    new T f32(4):(1) @%s
    new U f32(4):(1) @%s
  ) {
    block get [x:4] @DMA (in X[x] f32(1) out T[x]:assign f32(1)) { $x = load(X) T = store($x) }
    block move [x:4] @DMA (in T[x] f32(1) out U[x]:assign f32(1)) { $x = load(T) U = store($x) }
    block put [x:4] @DMA (in U[x] f32(1) out Y[x]:assign f32(1)) { $x = load(U) Y = store($x) }
  }
}"""


@pytest.mark.parametrize(
    ("location", "first", "second"),
    [
        ("", "SPAD:0", "SPAD:16"),
        ("", "SPAD[0]:0", "SPAD[1]:0"),
        ("", "SPAD[3]:240", "SPAD:992"),
        ("", "SPAD[spread 0]:0", "SPAD[spread 0]:16"),
        ("", "SPAD[t]:0", "SPAD[3 - t]:16"),
        ("inflight=2", "SPAD:16*slot", "SPAD:32 + 16*slot"),
        ("inflight=2", "SPAD[slot]:0", "SPAD[2 + slot]:0"),
        ("inflight=2", "SPAD:32*slot", "SPAD:32*slot + 16"),
        ("@CORE[t]", "SRAM[t]:0", "SRAM[t]:16"),
        ("@CORE[t]", "SPAD:32*t", "SPAD:32*t + 16"),
        ("@CORE[t]", "SPAD:16*t", "SPAD[1]:16*t"),
        ("@CORE[t] inflight=2", "SPAD:16*t", "SPAD[2]:16*t + 16*slot"),  # one point on each unit: one slot
    ],
)
def test_right_placements(location: str, first: str, second: str) -> None:
    program = parse(TILES % (location, first, second))
    assert [finding.message for finding in findings(program, TINY)] == []
    assert unplaced(program, TINY) == ()


@pytest.mark.parametrize(
    ("location", "first", "second"),
    [
        ("", "SPAD[spread 0]:0", "SPAD[1]:0"),
        ("inflight=2", "SPAD:16*slot", "SPAD:16 + 16*slot"),
        ("inflight=2", "SPAD[slot]:0", "SPAD[1]:0"),
        ("@CORE[t]", "SPAD:16*t", "SPAD:48 + 16*t"),
        ("@CORE[t]", "SPAD[t]:0", "SPAD[3 - t]:0"),
    ],
)
def test_wrong_placements(location: str, first: str, second: str) -> None:
    assert {f.code for f in findings(parse(TILES % (location, first, second)), TINY)} == {"V061"}


@pytest.mark.parametrize("target", ["generic", "x86_64_avx512"])
def test_a_cpu_places_nothing(target: str) -> None:
    hw = load_named(target)
    for program in corpus().values():
        assert findings(program, hw) == ()
        assert unplaced(program, hw) == ()


def many(kernels: int, location: str, bank: str) -> Program:
    """Kernels one after the other, in one block, whose buffers use the same addresses in turn."""
    lines = [
        f"""block k{n} [c = c] (in A = {"X" if n == 0 else f"T{n - 1}"}[0] f32(4)
          out B = {"Y" if n == kernels - 1 else f"T{n}"}[0]:assign f32(4) new S f32(4):(1) @{bank}:64) {{
          block a [x:4] @DMA (in A[x] f32(1) out S[x]:assign f32(1)) {{ $a = load(A) S = store($a) }}
          block b [x:4] @DMA (in S[x] f32(1) out B[x]:assign f32(1)) {{ $a = load(S) B = store($a) }} }}"""
        for n in range(kernels)
    ]
    new = "\n".join(f"new T{n} f32(4):(1) @{bank}:{16 * (n % 3)}" for n in range(kernels - 1))
    body = "\n".join(lines)
    return parse(f"""block main [] (in X[0] f32(16):(1) @DRAM:0 out Y[0]:assign f32(16):(1) @DRAM:64) {{
      block all [c:4] {location} (in X[4*c] f32(4) out Y[4*c]:assign f32(4) {new}) {{ {body} }} }}""")


@pytest.mark.parametrize(("location", "bank"), [("", "SPAD[0]"), ("@CORE[c]", "SRAM[c]")])
def test_kernels_that_take_turns_cost_in_proportion(location: str, bank: str) -> None:
    def seconds(kernels: int) -> float:
        root = many(kernels, location, bank).root
        times = []
        for _ in range(3):
            start = time.perf_counter()
            assert overlap_findings(root, TINY) == []
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(200) < 8 * seconds(50) + 0.05


def test_no_set_is_built_for_a_right_program(monkeypatch: pytest.MonkeyPatch) -> None:
    root = many(40, "@CORE[c]", "SRAM[c]").root
    assert overlap_findings(root, TINY) == []
    asked: list[object] = []
    monkeypatch.setattr(poly.Domain, "first", lambda self: asked.append(self))
    assert overlap_findings(root, TINY) == []
    assert asked == []


def test_findings_come_to_an_end() -> None:
    root = many(30, "@CORE[c]", "SRAM[0]").root
    found = overlap_findings(root, TINY)
    assert 0 < len(found) <= 20


def test_a_memory_without_limit_has_room_for_everything() -> None:
    memories = tuple(msgspec.structs.replace(memory, bytes=None) for memory in TINY.memories)
    hw = HwConfig("t", "", "interpreter", memories, TINY.units)
    program = parse(TILES % ("", "SPAD[3]:1048576", "SPAD:64"))
    assert findings(program, hw) == ()


def test_who_is_named_around_executes() -> None:
    program = parse((TILES % ("", "SPAD:0", "SPAD:16")).replace("main []", "main [] @DMA"))
    kernel = program.root.children[0]
    bare = replace(kernel, statements=tuple(replace(child, location=None) for child in kernel.children))
    moved = replace(program, root=replace(program.root, statements=(bare,)))
    assert unplaced(moved, TINY) == ()
    nobody = replace(moved, root=replace(moved.root, location=None))
    assert {finding.code for finding in unplaced(nobody, TINY)} == {"V065"}


WAITING = """block main [] (
  in X[0] f32(4):(1) @DRAM
  out Y[0]:assign f32(4):(1) @DRAM
  new T f32(4):(1) @%s
) {
  block get [x:4] @DMA (in X[x] f32(1) out T[x]:assign f32(1)) { $x = load(X) T = store($x) }
  block put [x:4] @CORE[0] (in T[x] f32(1) out Y[x]:assign f32(1)) { $x = load(T) Y = store($x) }
}"""


def test_what_lies_on_the_way_to_a_unit_may_still_be_brought_nearer() -> None:
    """SHARED lies between DRAM and the memory that a core reaches; with an address it stays where it is. What
    is in DRAM may go around it."""
    target = load_named("many_core")

    def reached(place: str) -> list[str]:
        found = findings(parse(WAITING % place), target)
        return [f.message for f in found if f.code == "V062" and "'T'" in f.message and "CORE" in f.message]

    assert reached("SHARED") == []
    assert len(reached("SHARED:0")) == 1
    assert reached("DRAM") == []
    assert len(reached("DRAM:0")) == 1
    shared = next(m for m in target.memories if m.name == "SHARED")
    near = tuple(
        msgspec.structs.replace(m, backing="DRAM") if m.name == "SRAM" else m
        for m in target.memories
        if m is not shared
    )
    units = tuple(
        msgspec.structs.replace(u, reaches=tuple(r for r in u.reaches if r != "SHARED")) for u in target.units
    )
    target = msgspec.structs.replace(target, memories=near, units=units)
    assert len(reached("DRAM")) == 1  # one step behind: nothing was brought nearer


def test_an_operand_of_a_stencil_on_the_way_may_still_be_brought_nearer() -> None:
    """The array of nv_full takes its operands from CBUF, behind which SRAM lies."""
    text = """block main [] (
      in A[0, 0] i8(8, 8):(8, 1) @{place}
      in B[0, 0] i8(8, 8):(8, 1)
      out C[0, 0]:assign i32(8, 8):(8, 1)
    ) {{
      block c [m:8, n:8, k:8] @CMAC (in A[m, k] i8(1, 1)  in B[k, n] i8(1, 1)  out C[m, n]:add i32(1, 1)) {{
        $a = load(A)
        $b = load(B)
        $x = cast($a) i32
        $y = cast($b) i32
        $z = mul($x, $y)
        C = store($z)
      }}
    }}"""
    hw = load_named("nv_full")

    def wrong(place: str) -> set[str]:
        return {d.code for d in findings(parse(text.format(place=place)), hw)}

    assert wrong("SRAM") == set()
    assert wrong("SRAM:0") == {"V062", "V063"}
    assert wrong("CACC") == {"V063"}  # reached, but not where the stencil takes it


def test_an_address_outside_of_all_blocks_is_wrong_at_no_point_in_particular() -> None:
    text = TILES.replace("@DRAM:64", "@DRAM:65536") % ("", "SPAD:0", "SPAD:32")
    (found,) = findings(parse(text), TINY)
    assert found.code == "V060" and found.message.endswith("beyond the 65536 of DRAM")
