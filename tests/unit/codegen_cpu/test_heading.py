"""Loops that go downwards where stores would hold up the loads behind them: when, and what they compute."""

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
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import runnable
from tests.unit.codegen_cpu.test_memory import check_guarded

Array = np.ndarray[Any, Any]
MEGABYTE = 1 << 20


def able(hw: HwConfig, able: bool = True) -> HwConfig:
    def changed(found: tuple[str, ...]) -> tuple[str, ...]:
        kept = tuple(c for c in found if c != "overtaking_loads")
        return (*kept, "overtaking_loads") if able else kept

    units = tuple(msgspec.structs.replace(u, capabilities=changed(u.capabilities)) for u in hw.units)
    return msgspec.structs.replace(hw, units=units)


AVX512 = able(load_named("x86_64_avx512"))
RUN = [able(hw) for hw in runnable()[1:] if hw.name in ("x86_64_avx512", "x86_64_avx2", "generic")]
every_target = pytest.mark.parametrize("hw", RUN, ids=lambda hw: hw.name)


def parsed(text: str) -> Program:
    return parse(Source("test.stripe", dedent(text)))


def scaled(rows: int, columns: int, row: int = 0) -> Program:
    """R = A * G + A, a row after the other; the rows of A are `row` elements apart."""
    return parsed(
        f"""
        block main [] (in A[0, 0] f32({rows}, {columns}):({row or columns}, 1)
                       in G[0] f32({columns}):(1)
                       out R[0, 0]:assign f32({rows}, {columns}):({columns}, 1)) {{
          block r [m:{rows}, n:{columns}] (
            in A[m, n] f32(1, 1)
            in G[n] f32(1)
            out R[m, n]:assign f32(1, 1)
          ) #vector=n {{
            $a = load(A) f32
            $g = load(G) f32
            $p = mul($a, $g) f32
            $r = add($p, $a) f32
            R = store($r)
          }} }}
        """
    )


def at(room: Array, offset: int, shape: tuple[int, ...]) -> Array:
    """An array at this address, but for multiples of 2 MB."""
    start = (offset - room.ctypes.data) % (2 * MEGABYTE)
    size = 4 * int(np.prod(shape))
    return room[start : start + size].view(np.float32).reshape(shape)


@every_target
@pytest.mark.parametrize("shape", [(3, 512), (2, 1021), (1, 4096), (5, 300)])
def test_results_are_the_same_whichever_way(hw: HwConfig, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    kernel = NativeKernel(build(scaled(*shape), hw))
    rooms = [np.zeros(3 * MEGABYTE, np.uint8) for _ in range(3)]
    for gap in (0, 64, 128, 1024, 2048, 2112, MEGABYTE + 64, MEGABYTE - 64, -64, -1024, 4):
        a, g, r = at(rooms[0], 0, shape), at(rooms[1], 4096 * 9, shape[1:]), at(rooms[2], gap, shape)
        a[...], g[...], r[...] = rng.random(shape), rng.random(shape[1:]), -1
        kernel(A=a, G=g, out=(r,))
        np.testing.assert_allclose(r, a * g + a, rtol=1e-6)


@every_target
def test_nothing_beside_the_arrays_is_touched(hw: HwConfig) -> None:
    check_guarded(scaled(3, 512), hw)
    check_guarded(scaled(2, 333, row=340), hw)


def chooses(program: Program, hw: HwConfig = AVX512) -> bool:
    """Whether the code asks how far apart arrays lie, seen from one thing: that addresses become numbers."""
    return "ptrtoint" in build(program, hw).emitted


def test_loops_over_operands_and_results_choose() -> None:
    assert chooses(scaled(4, 512))
    assert chooses(scaled(2, 333, row=340))


def test_the_loops_around_go_the_same_way() -> None:
    """Each loop chooses where it begins, how it steps and where it ends."""
    assert build(scaled(4, 512), AVX512).emitted.count("select i1") == 3 * 2
    assert build(scaled(1, 512), AVX512).emitted.count("select i1") == 3


def test_how_far_apart_addresses_look_the_same_is_the_targets_to_say() -> None:
    zen4 = build(scaled(4, 512), load_named("x86_64_zen4")).emitted
    assert "urem" in zen4 and "1048576" not in zen4
    assert "1048576" in build(scaled(4, 512), AVX512).emitted


def test_targets_whose_loads_wait_do_not() -> None:
    assert not chooses(scaled(4, 512), able(AVX512, False))


def test_short_loops_do_not() -> None:
    assert not chooses(scaled(4, 200, row=256))


def test_sums_do_not() -> None:
    """Their order would depend on addresses, and so would their last bits."""
    program = parsed(
        """
        block main [] (in A[0, 0] f32(8, 4096):(4096, 1)  out R[0]:assign f32(4096):(1)) {
          block r [k:8, n:4096] (in A[k, n] f32(1, 1)  out R[n]:add f32(1)) #vector=n {
            $a = load(A) f32
            R = store($a)
          } }
        """
    )
    assert not chooses(program)


def test_sums_beside_other_results_do_not() -> None:
    program = parsed(
        """
        block main [] (in A[0] f32(4096):(1)  out R[0]:assign f32(4096):(1)  out S[0]:assign f32(1):(1)) {
          block r [n:4096] (in A[n] f32(1)  out R[n]:assign f32(1)  out S[0]:add f32(1)) #vector=n {
            $a = load(A) f32
            R = store($a)
            S = store($a)
          } }
        """
    )
    assert not chooses(program)


def test_results_without_operands_do_not() -> None:
    program = parsed(
        """
        block main [] (out R[0]:assign f32(4096):(1)) {
          block r [n:4096] (out R[n]:assign f32(1)) #vector=n {
            $a = constant(1.0) f32
            R = store($a)
          } }
        """
    )
    assert not chooses(program)
