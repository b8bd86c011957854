"""Results that go past the caches: which do, and that they are the same wherever they lie."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import msgspec
import numpy as np
import pytest

from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.interp import interpret
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import runnable, with_lines
from tests.support.threads import with_cores
from tests.unit.codegen_cpu.test_memory import check_guarded

Array = np.ndarray[Any, Any]


def small(hw: HwConfig) -> HwConfig:
    """With caches so small that results of more than 2 KiB pass them."""
    sizes = {"L1": 1024, "L2": 2048}
    memories = tuple(msgspec.structs.replace(m, bytes=sizes.get(m.name, m.bytes)) for m in hw.memories)
    return msgspec.structs.replace(hw, memories=memories)


def small_avx2() -> HwConfig:
    """With half lines, of which no cache takes more than go past it."""
    hw = small(load_named("x86_64_avx2"))
    units = (msgspec.structs.replace(u, streaming_bytes_per_cycle=None) for u in hw.units)
    return msgspec.structs.replace(hw, units=tuple(units))


AVX512 = small(load_named("x86_64_avx512"))
RUN = [small(hw) for hw in runnable()[1:] if hw.name in ("x86_64_avx512", "x86_64_avx2", "generic")]
RUN += [with_lines(RUN[-1], line_bytes) for line_bytes in (32, 128)]


def parsed(text: str) -> Program:
    return parse(Source("test.stripe", dedent(text)))


def doubled(
    dtype: str, rows: int, columns: int, tags: str = "#vector=n", value: str = "add($a, $a)"
) -> Program:
    return parsed(
        f"""
        block main [] (in A[0, 0] {dtype}({rows}, {columns}):({columns}, 1)
                       out B[0, 0]:assign {dtype}({rows}, {columns}):({columns}, 1)) {{
          block b [m:{rows}] (in A[m, 0] {dtype}(1, {columns})  out B[m, 0]:assign {dtype}(1, {columns})) {{
            block b [n:{columns}] (in A[0, n] {dtype}(1, 1)  out B[0, n]:assign {dtype}(1, 1)) {tags} {{
              $a = load(A) {dtype}
              $b = {value} {dtype}
              B = store($b)
            }} }} }}
        """
    )


def turned(n: int, m: int, dtype: str = "f32") -> Program:
    text = f"""
        block main [] (in A[0, 0] f32({m}, {n}):({n}, 1)  out B[0, 0]:assign f32({n}, {m}):({m}, 1)) {{
          block b [n:{n}, m:{m}] (in A[m, n] f32(1, 1)  out B[n, m]:assign f32(1, 1)) #vector=m #across=n {{
            $a = load(A) f32
            B = store($a)
          }} }}
        """
    return parsed(text.replace("f32", dtype))


def summed(rows: int, columns: int) -> Program:
    """Sums in registers, written out: too long a nest to stand there twice."""
    return parsed(
        f"""
        block main [] (in A[0, 0] f32({rows}, {columns}):({columns}, 1)
                       out B[0, 0]:assign f32({rows}, {columns}):({columns}, 1)) {{
          block b [m:{rows // 32}] (in A[32*m, 0] f32(32, {columns})
                                    out B[32*m, 0]:assign f32(32, {columns})
                                    new T f32(32, {columns}) @REG) {{
            block t [k:3, r:32, n:{columns}] (r + k - 1 >= 0  in A[r, n] f32(1, 1)
                                              out T[r, n]:add f32(1, 1)) #vector=n #unroll=r {{
              $a = load(A) f32
              T = store($a)
            }}
            block b [r:32, n:{columns}] (in T[r, n] f32(1, 1)
                                         out B[r, n]:assign f32(1, 1)) #vector=n #unroll=r {{
              $t = load(T) f32
              $b = mul($t, $t) f32
              B = store($b)
            }} }} }}
        """
    )


def placed(array: Array, offset: int) -> Array:
    """Room for an array that starts so many bytes behind a line."""
    room = np.zeros(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 128 + offset
    return room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("hw", RUN, ids=lambda hw: hw.name)
@pytest.mark.parametrize(
    "program",
    [doubled("f32", 9, 128), doubled("f32", 33, 67), doubled("i8", 40, 128), doubled("f64", 65, 40),
     doubled("bf16", 20, 96), turned(64, 64), turned(48, 80), turned(37, 53), summed(128, 16),
     summed(64, 40), summed(64, 64)],
)  # fmt: skip
def test_results_are_the_same_wherever_they_lie(hw: HwConfig, program: Program) -> None:
    rng = np.random.default_rng(0)
    given = {r.name: rng.integers(0, 50, r.shape).astype(r.dtype.numpy) for r in program.inputs}
    want = interpret(program, given)["B"]
    kernel = NativeKernel(build(program, hw))
    for offset in (0, want.itemsize, 32, 64):
        out = placed(want, offset)
        kernel(**given, out=(out,))
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("hw", RUN, ids=lambda hw: hw.name)
def test_nothing_beside_the_results_is_touched(hw: HwConfig) -> None:
    check_guarded(doubled("f32", 33, 67), hw)
    check_guarded(turned(37, 53), hw)
    check_guarded(turned(64, 64), hw)
    check_guarded(summed(64, 40), hw)


def streams(program: Program, hw: HwConfig = AVX512) -> bool:
    assembly = build(program, hw).asm
    found = "movnt" in assembly
    assert ("sfence" in assembly) == found
    return found


def test_large_results_stream() -> None:
    assert streams(doubled("f32", 64, 128))
    assert streams(turned(64, 64))
    assert streams(summed(128, 16))
    assert streams(doubled("f32", 1024, 1024), load_named("x86_64_avx512"))


def test_of_a_long_nest_only_what_stores_stands_twice() -> None:
    text = build(summed(128, 16), AVX512).emitted
    assert text.count("= fadd") == 32  # one sum for each row, and the stores to lines or not
    assert text.count("!nontemporal") == text.count("= fmul") // 2 == 32


def test_half_lines_that_follow_each_other_do() -> None:
    avx2 = small_avx2()
    assert build(doubled("f32", 64, 64), avx2).llvm.count("!nontemporal") > 0
    assert build(doubled("f32", 64, 72), avx2).llvm.count("!nontemporal") == 0, "rows end within lines"


def test_squares_fill_whole_lines_with_parts_that_follow_each_other() -> None:
    avx2 = small_avx2()
    stores = [line for line in build(turned(64, 64), avx2).llvm.splitlines() if "!nontemporal" in line]
    assert stores and all("store <16 x float>" in line for line in stores)
    of_doubles = build(turned(64, 64, "f64"), avx2).llvm.splitlines()
    assert all("store <8 x double>" in line for line in of_doubles if ", !nontemporal" in line)
    assert "!nontemporal" not in build(turned(64, 72), avx2).llvm, "rows end within lines"


def test_longer_lines_are_filled_one_after_the_other() -> None:
    long = with_lines(AVX512, 128)
    assert streams(doubled("f32", 64, 128), long)
    assert not streams(doubled("f32", 64, 144), long), "rows end within lines"
    stores = [line for line in build(turned(96, 64), long).llvm.splitlines() if "!nontemporal" in line]
    assert stores and all("store <32 x float>" in line for line in stores if ", !nontemporal" in line)


def test_what_a_cache_of_the_core_holds_does_not() -> None:
    assert not streams(doubled("f32", 4, 128))
    assert not streams(doubled("f32", 256, 1024), load_named("x86_64_avx512"))


def shared(kib: int, past: float | None) -> HwConfig:
    """A cache of this size that a core shares, with 20 bytes a cycle; `past` bytes a cycle go past it."""
    l3 = {"L3": {"bytes": kib << 10, "bytes_per_cycle": 20.0}}
    memories = tuple(msgspec.structs.replace(m, **l3.get(m.name, {})) for m in AVX512.memories)
    units = tuple(msgspec.structs.replace(u, streaming_bytes_per_cycle=past) for u in AVX512.units)
    return msgspec.structs.replace(AVX512, memories=memories, units=units)


def test_what_a_fast_cache_holds_with_all_else_does_not() -> None:
    program = doubled("f32", 64, 128)  # 64 KiB with its operand
    assert not streams(program, shared(128, past=7))
    assert streams(program, shared(127, past=7))
    # It takes a result at half its rate: a line is fetched before it is written.
    assert streams(program, shared(128, past=11))
    assert streams(program, shared(128, past=None))


def test_several_cores_fill_a_fast_cache_first() -> None:
    """Past it leads one way, which they share."""
    program = doubled("f32", 64, 128)  # 64 KiB with its operand
    assert not streams(program, with_cores(shared(52, past=7), 2))
    assert streams(program, with_cores(shared(51, past=7), 2))


def test_but_not_with_what_they_compute_slowly() -> None:
    """For that one way is wide enough."""
    program = doubled("f32", 64, 128, value="exp($a)")
    assert not streams(program, with_cores(shared(128, past=7), 2))
    assert streams(program, with_cores(shared(127, past=7), 2))


def test_a_program_may_have_no_result_of_its_own() -> None:
    """All that it writes held something before."""
    text = """
        block main [] (inout A[0]:assign f32(64):(1)) {
          block a [n:64] (in A[n] f32(1)  out B = A[n]:assign f32(1)) #vector=n {
            $a = load(A) f32
            $b = exp($a) f32
            B = store($b)
          } }
        """
    assert not streams(parsed(text), shared(1, past=7))


@pytest.mark.parametrize(
    ("n", "m", "past"),
    [(1024, 1024, True), (1000, 1024, True), (1024, 1000, False), (1024, 512, False), (512, 512, False)],
    ids=["pages apart", "fewer pages", "in all sets", "half a page apart", "in a core's own caches"],
)
def test_squares_do_whose_rows_crowd(n: int, m: int, past: bool) -> None:
    """Of all these the shared cache takes more than go past it; 16 rows that are pages apart lie on one set
    of 12 ways, half a page apart on two."""
    assert streams(turned(n, m), load_named("x86_64_zen5")) == past


def test_without_a_known_rate_of_sets_rows_that_crowd_do_not() -> None:
    hw = load_named("x86_64_zen5")
    memories = tuple(msgspec.structs.replace(m, set_cycles=None) for m in hw.memories)
    assert not streams(turned(1024, 1024), msgspec.structs.replace(hw, memories=memories))


@pytest.mark.parametrize("target", ["x86_64_avx2", "aarch64_neon", "generic"])
def test_targets_without_the_ability_do_not(target: str) -> None:
    assert not streams(doubled("f32", 64, 128), small(load_named(target)))


def test_parts_of_lines_do_not() -> None:
    assert not streams(doubled("f32", 64, 120))  # rows start within lines
    assert not streams(doubled("f32", 64, 128, tags=""))


def tiles(rows: int) -> Program:
    """Rows of 24 elements, so many in one go."""
    return parsed(
        f"""
        block main [] (in A[0, 0] f32(96, 24):(24, 1)  out B[0, 0]:assign f32(96, 24):(24, 1)) {{
          block b [m:{96 // rows}] (
            in A[{rows}*m, 0] f32({rows}, 24)  out B[{rows}*m, 0]:assign f32({rows}, 24)
          ) {{
            block b [m:{rows}, n:24] (in A[m, n] f32(1, 1)  out B[m, n]:assign f32(1, 1)) #vector=n {{
              $a = load(A) f32
              B = store($a)
            }} }} }}
        """
    )


def test_rows_that_fill_lines_together_do() -> None:
    assert streams(tiles(2))
    assert streams(tiles(4))
    assert not streams(tiles(1))
    assert not streams(tiles(3))


def test_a_result_that_is_read_again_does_not() -> None:
    program = parsed(
        """
        block main [] (in A[0] f32(4096):(1)  out B[0]:assign f32(4096):(1)  out C[0]:assign f32(8):(1)) {
          block b [n:4096] (in A[n] f32(1)  out B[n]:assign f32(1)) #vector=n {
            $a = load(A) f32
            $b = add($a, $a) f32
            B = store($b)
          }
          block c [n:8] (in B[n] f32(1)  out C[n]:assign f32(1)) #vector=n {
            $a = load(B) f32
            C = store($a)
          } }
        """
    )
    assert not streams(program)


def test_sums_and_what_takes_much_work_do_not() -> None:
    for inner, how in ((1, "add"), (64, "add")):
        program = parsed(
            f"""
            block main [] (in A[0, 0] f32({inner}, 4096):(4096, 1)  out B[0]:assign f32(4096):(1)) {{
              block b [k:{inner}, n:4096] (in A[k, n] f32(1, 1)  out B[n]:{how} f32(1)) #vector=n {{
                $a = load(A) f32
                B = store($a)
              }} }}
            """
        )
        assert not streams(program)
