"""Loops that ask ahead for what they will load: which do, for which lines, and that nothing else changes."""

from __future__ import annotations

import itertools
import re
from textwrap import dedent

import msgspec
import pytest

from codegen_cpu.access import Accesses
from codegen_cpu.build import Module, build
from codegen_cpu.layout import Buffer
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.diag import Source
from stripe.ir import Program
from stripe.parser import parse
from tests.support.loops import hot_loop
from tests.support.native import runnable, with_lines
from tests.unit.codegen_cpu.test_memory import check_guarded

AVX512 = load_named("x86_64_avx512")
ZEN4 = load_named("x86_64_zen4")
ZEN3 = load_named("x86_64_zen3")


def product(m: int, n: int, k: int, turned: bool = False) -> Program:
    """A product of matrices whose results stay in registers; `turned`: A, of which it takes some
    columns, has its rows along k."""
    shape, access, step = ((k, 4 * m), "k, m", f"({4 * m}, 1)") if turned else ((m, k), "m, k", f"({k}, 1)")
    text = f"""
    block main [] (in A[0, 0] f32{shape}:{step}  in B[0, 0] f32({k}, {n}):({n}, 1)
                   out C[0, 0]:assign f32({m}, {n}):({n}, 1)) {{
      block p [k:{k}, m:{m}, n:{n}] (
        in A[{access}] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)
      ) #unroll=m #unroll=n #vector=n {{
        $a = load(A) f32
        $b = load(B) f32
        $c = mul($a, $b) f32
        C = store($c)
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def asked(module: Module) -> list[str]:
    """The lines that the hot loop asks for."""
    return [i for i in hot_loop(module, "vfmadd") if i.startswith("prefetch")]


def places(instructions: list[str]) -> list[int]:
    """What is added to the registers of an address; of vectors alone, no splats."""
    found = [re.search(r"(-?\d*)\(%r", i) for i in instructions if "broadcast" not in i]
    return sorted(int(at[1] or 0) for at in found if at is not None)


def test_a_panel_is_asked_for_once_for_each_line() -> None:
    made = build(product(6, 64, 200), AVX512)
    assert all(i.startswith("prefetcht0") for i in asked(made))
    loaded = places([i for i in hot_loop(made, "vfmadd") if i.startswith("vmov")])
    assert len(loaded) == 4
    assert places(asked(made)) == [at + 2048 for at in loaded]  # 8 steps of 256 bytes


@pytest.mark.parametrize("line_bytes", [64, 128, 256])
def test_lines_are_as_long_as_those_of_the_nearest_cache(line_bytes: int) -> None:
    """Of the 256 bytes of a step each line is asked for once."""
    first, *others = places(asked(build(product(6, 64, 200), with_lines(AVX512, line_bytes))))
    assert [at - first for at in others] == [*range(line_bytes, 256, line_bytes)]


def test_far_rows_are_asked_for_by_the_row() -> None:
    made = build(product(8, 32, 300, turned=True), AVX512)
    assert len(asked(made)) == 3  # two lines of B, and the one of A that holds all its rows
    loaded = places([i for i in hot_loop(made, "vfmadd") if i.startswith("vmov")])
    assert len(loaded) == 2
    assert {at + 10 * 128 for at in loaded} <= set(places(asked(made)))  # 10 steps of 3 lines, 2 of them here


def rows_apart(n: int, steps: int) -> Program:
    """A product that takes 16 elements of each of so many rows of n elements."""
    text = f"""
    block main [] (
      in A[0, 0] f32(6, {steps}):({steps}, 1)  in B[0, 0] f32({steps}, 16):({n}, 1)
      out C[0, 0]:assign f32(6, 16):(16, 1)
    ) {{
      block c [k:{steps}, m:6, n:16] (
        in A[m, k] f32(1, 1):({steps}, 1)  in B[k, n] f32(1, 1):({n}, 1)  out C[m, n]:add f32(1, 1):(16, 1)
      ) #unroll=m #unroll=n #vector=n {{
        $a = load(A) f32
        $b = load(B) f32
        $c = mul($a, $b) f32
        C = store($c)
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


@pytest.mark.parametrize(
    ("n", "steps", "rows"),
    [(240, 400, 32), (256, 400, 16), (512, 200, 8), (1024, 100, 4), (4096, 32, 4), (4096, 400, 32)],
    ids=["in all sets", "in every 16th", "every 32nd", "in one", "pages apart", "beyond the own caches"],
)
def test_lines_asked_for_do_not_push_out_each_other(n: int, steps: int, rows: int) -> None:
    """They take half of the eight ways of the sets of L1 that rows so far apart fall into."""
    made = build(rows_apart(n, steps), ZEN3)
    loaded = places([i for i in hot_loop(made, "vfmadd") if i.startswith("vmovups")])
    assert places(asked(made)) == [min(loaded) + rows * n * 4]


@pytest.mark.parametrize(
    ("n", "steps", "lines"),
    [(256, 400, 1), (512, 400, 0), (768, 400, 1), (1040, 400, 0), (16384, 255, 0), (16384, 300, 1)],
    ids=[
        "on four sets",
        "on two sets",
        "on four again",
        "pages apart",
        "in the shared cache",
        "beyond all caches",
    ],
)
def test_a_core_that_fetches_deep_is_not_asked_for_rows_far_apart(n: int, steps: int, lines: int) -> None:
    assert len(asked(build(rows_apart(n, steps), load_named("x86_64_zen5")))) == lines


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(product(3, 64, 200), id="few operations for each line"),
        pytest.param(product(6, 64, 7), id="less than what lies ahead"),
        pytest.param(product(6, 8, 200), id="half a line at each step"),
    ],
)
def test_loops_that_do_not_ask(program: Program) -> None:
    made = build(program, AVX512)
    assert "prefetch" not in made.asm


def test_other_architectures_ask_too() -> None:
    assert "prfm" in build(product(8, 16, 400), load_named("aarch64_neon")).asm


def panels(n: int, m: int, k: int, inside: bool = False, turned: bool = False, wide: int = 32) -> Program:
    """A product with n panels of B, so wide, each of which m tiles of A read; `inside`: those of one tile
    after the other; `turned`: the columns of A lie side by side."""
    loops, steps = f"m:{m}, n:{n}" if inside else f"n:{n}, m:{m}", f"(1, {8 * m})" if turned else f"({k}, 1)"
    text = f"""
    block main [] (in A[0, 0] f32({8 * m}, {k}):{steps}
                   in B[0, 0, 0] f32({n}, {k}, {wide}):({wide * k}, {wide}, 1)
                   out C[0, 0]:assign f32({8 * m}, {wide * n}):({wide * n}, 1)) {{
      block t [{loops}] (in A[8*m, 0] f32(8, {k})  in B[n, 0, 0] f32(1, {k}, {wide})
                         out C[8*m, {wide}*n]:assign f32(8, {wide})) {{
        block p [k:{k}, i:8, j:{wide}] (
          in A[i, k] f32(1, 1)  in B[0, k, j] f32(1, 1, 1)  out C[i, j]:add f32(1, 1)
        ) #unroll=i #unroll=j #vector=j {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          C = store($c)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def small(own_caches: int) -> HwConfig:
    """The target with so many bytes of caches of its own."""
    memories = tuple(
        msgspec.structs.replace(m, bytes=own_caches) if m.name == "L2" else m for m in AVX512.memories
    )
    return msgspec.structs.replace(AVX512, memories=memories)


def windows(n: int, m: int, k: int) -> Program:
    """Of each panel, which has 2 x 3 parts of k rows, m tiles read two, with two parts between them."""
    text = f"""
    block main [] (in A[0, 0, 0] f32({8 * m}, 2, {k}):({2 * k}, {k}, 1)
                   in B[0, 0, 0, 0, 0] f32({n}, 2, 3, {k}, 32):({192 * k}, {96 * k}, {32 * k}, 32, 1)
                   out C[0, 0]:assign f32({8 * m}, {32 * n}):({32 * n}, 1)) {{
      block t [n:{n}, m:{m}] (in A[8*m, 0, 0] f32(8, 2, {k})  in B[n, 0, 1, 0, 0] f32(1, 2, 1, {k}, 32)
                              out C[8*m, 32*n]:assign f32(8, 32)) {{
        block p [r:2, k:{k}, i:8, j:32] (in A[i, r, k] f32(1, 1, 1)  in B[0, r, 0, k, j] f32(1, 1, 1, 1, 1)
                                         out C[i, j]:add f32(1, 1)) #unroll=i #unroll=j #vector=j {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          C = store($c)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def lines_asked_for(program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The lines of what lies beyond, for each panel that is read."""
    exprs: list[Affine] = []
    ask = Accesses.ask

    def recorded(self: Accesses, buffer: Buffer, offset: Affine, cache: int) -> None:
        if cache == 2:
            exprs.append(offset)
        ask(self, buffer, offset, cache)

    monkeypatch.setattr(Accesses, "ask", recorded)
    made = build(program, hw)
    assert any(i.startswith("prefetcht1") for i in hot_loop(made, "vfmadd"))
    (tiles,) = program.root.children
    ranges = {**tiles.ranges, **tiles.children[0].ranges}  # a variable begins with the name of its index
    found = []
    for panel in range(ranges["n"]):
        lines = set()
        for expr in exprs:
            loops = [[panel] if name[0] == "n" else range(ranges[name[0]]) for name in expr.names]
            for values in itertools.product(*loops):
                at = {name: Affine(value) for name, value in zip(expr.names, values, strict=True)}
                lines.add(expr.substitute(at).const * 4 // 64)
        found.append(lines)
    return found


@pytest.mark.parametrize(("m", "k"), [(3, 64), (5, 70), (2, 100)])
def test_while_a_panel_is_read_all_of_the_next_is_asked_for(
    m: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for panel, found in enumerate(lines_asked_for(panels(6, m, k), small(65536), monkeypatch)):
        first = (panel + 1) * k * 2  # two lines a row
        assert found >= set(range(first, first + k * 2))
        assert max(found) < first + 2 * k * 2  # not much more


def test_of_a_panel_with_gaps_only_what_is_read_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for panel, found in enumerate(lines_asked_for(windows(6, 4, 32), small(131072), monkeypatch)):
        part = 64  # lines
        firsts = [((panel + 1) * 6 + number) * part for number in (1, 4)]
        assert found == {line for first in firsts for line in range(first, first + part)}


@pytest.mark.parametrize(
    ("program", "hw"),
    [
        pytest.param(panels(6, 3, 200), AVX512, id="all panels stay near"),
        pytest.param(panels(6, 3, 200), small(8192), id="no place for two"),
        pytest.param(panels(6, 3, 200, inside=True), small(65536), id="one after the other"),
        pytest.param(panels(6, 1, 200), small(65536), id="read once"),
    ],
)
def test_panels_that_are_not_asked_for(program: Program, hw: HwConfig) -> None:
    made = build(program, hw)
    assert "prefetcht0" in made.asm
    assert "prefetcht1" not in made.asm


def rows_past(m: int, tiles: int = 1) -> Program:
    """C[4*t + i, n] += A[4*t + i, k] * B[k, n] with 8 of m rows of B at a time, in pieces of 32 columns, each
    of which `tiles` tiles of rows go along."""
    rows = 4 * tiles
    text = f"""
    block main [] (in A[0, 0] f32({rows}, {m}):({m}, 1)  in B[0, 0] f32({m}, 4096):(4096, 1)
                   out C[0, 0]:add f32({rows}, 4096):(4096, 1)) {{
      block t [ko:{m // 8}, t:{tiles}, no:128] (in A[4*t, 8*ko] f32(4, 8)  in B[8*ko, 32*no] f32(8, 32)
                                                out C[4*t, 32*no]:add f32(4, 32)) {{
        block p [k:8, i:4, j:32] (
          in A[i, k] f32(1, 1)  in B[k, j] f32(1, 1)  out C[i, j]:add f32(1, 1)
        ) #unroll=i #unroll=j #vector=j {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          C = store($c)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def asked_of_the_second_cache(
    program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch
) -> list[Affine]:
    """Where the lines lie that a program asks for from beyond the core's own caches."""
    exprs: list[Affine] = []
    ask = Accesses.ask

    def recorded(self: Accesses, buffer: Buffer, offset: Affine, cache: int) -> None:
        if cache == 2:
            exprs.append(offset)
        ask(self, buffer, offset, cache)

    monkeypatch.setattr(Accesses, "ask", recorded)
    assert build(program, hw).asm
    return exprs


def test_of_rows_that_stream_past_those_below_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked_of_the_second_cache(rows_past(4096), small(300 << 10), monkeypatch)  # 64 MiB
    assert sorted(expr.const for expr in found) == [8 * 4096, 8 * 4096 + 16]  # two lines, eight rows below
    assert {dict(expr.terms)[n] for expr in found for n in expr.names if n.startswith("k")} == {
        4096,
        8 * 4096,
    }


def test_a_core_that_fetches_rows_is_not_asked_for_those_below(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_of_the_second_cache(rows_past(8192), ZEN3, monkeypatch)  # 128 MiB
    assert asked_of_the_second_cache(rows_past(8192), ZEN4, monkeypatch)


def test_tiles_that_come_back_to_rows_share_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked_of_the_second_cache(rows_past(4096, tiles=2), small(300 << 10), monkeypatch)
    (part,) = found  # each of two tiles asks for one line of two
    assert part.const == 8 * 4096
    assert {dict(part.terms)[n] for n in part.names if n.startswith("t")} == {16}


def test_rows_that_caches_keep_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_of_the_second_cache(rows_past(256), AVX512, monkeypatch)  # 4 MiB
    assert not asked_of_the_second_cache(rows_past(256, tiles=2), AVX512, monkeypatch)


def rows_again(rows: int, columns: int, apart: int, between: str = "X") -> Program:
    """Y = X / (the sum of its row), of the first columns of a matrix; the second block reads `between`."""
    text = f"""
    block main [] (in X[0, 0] f32({rows}, {apart}):({apart}, 1)
                   out Y[0, 0]:assign f32({rows}, {columns}):({columns}, 1)) {{
      block r [n:{rows}] (in X[n, 0] f32(1, {columns})  out Y[n, 0]:assign f32(1, {columns})
                          new S f32(1):(1) @REG  new E f32(1, {columns}):({columns}, 1)) {{
        block s [c:{columns}] (in X[0, c] f32(1, 1)  out E[0, c]:assign f32(1, 1)
                               out S[0]:add f32(1)) #vector=c {{
          $x = load(X) f32
          E = store($x)
          S = store($x)
        }}
        block y [c:{columns}] (in S[0] f32(1)  in {between}[0, c] f32(1, 1)
                               out Y[0, c]:assign f32(1, 1)) #vector=c {{
          $s = load(S) f32
          $x = load({between}) f32
          $y = div($x, $s) f32
          Y = store($y)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def asked_for(program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int]]:
    """By how many elements the lines that a program asks for lie ahead, and in which caches."""
    found: set[tuple[int, int]] = set()
    ask = Accesses.ask

    def recorded(self: Accesses, buffer: Buffer, offset: Affine, cache: int) -> None:
        found.add((offset.const // 1024 * 1024, cache))
        ask(self, buffer, offset, cache)

    monkeypatch.setattr(Accesses, "ask", recorded)
    assert build(program, hw).asm
    return found


def test_who_goes_through_a_row_again_asks_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_for(rows_again(2048, 1024, 2048), AVX512, monkeypatch) == {(2048, 3)}
    assert asked_for(rows_again(256, 16384, 32768), AVX512, monkeypatch) == {(32768, 2)}  # 64 KiB


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(rows_again(2048, 1024, 1024, between="E"), id="read once"),
        pytest.param(rows_again(200, 1024, 1024), id="all of it stays near"),
        pytest.param(rows_again(8, 262144, 262144), id="no room for two rows"),
    ],
)
def test_who_does_not_ask_for_the_next_row(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_for(program, AVX512, monkeypatch)


def summed(rows: int, columns: int, once: bool = True, stored: bool = False) -> Program:
    """The sums of rows; unless they are read `once`, another block goes through each of them again; `stored`:
    a copy is made of each."""
    copied = f"new E f32(1, {columns})" if stored else ""
    again = f"""
        block t [c:{columns}] (in X[0, c] f32(1, 1)  out S[0]:add f32(1)) #vector=c {{
          $x = load(X) f32
          S = store($x)
        }}
    """
    text = f"""
    block main [] (in X[0, 0] f32({rows}, {columns})  out S[0]:assign f32({rows})) {{
      block r [n:{rows}] (in X[n, 0] f32(1, {columns}):({columns}, 1)  out S[n]:assign f32(1)  {copied}) {{
        block s [c:{columns}] (in X[0, c] f32(1, 1)  out S[0]:add f32(1)
                               {"out E[0, c]:assign f32(1, 1)" if stored else ""}) #vector=c {{
          $x = load(X) f32
          S = store($x)
          {"E = store($x)" if stored else ""}
        }}
        {"" if once else again}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def test_sums_of_what_lies_beyond_all_caches_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked_of_the_second_cache(summed(4096, 4096), ZEN4, monkeypatch)  # 64 MiB
    assert sorted(expr.const for expr in found) == [512, 528, 544, 560]  # four lines, 2 KiB ahead


def test_a_core_that_fetches_deep_is_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    hw = load_named("x86_64_zen5")
    assert not asked_of_the_second_cache(summed(4096, 4096), hw, monkeypatch)
    assert asked_for(summed(4096, 4096), hw, monkeypatch) == {(3072, 3)}  # 12 KiB, to the nearest cache


@pytest.mark.parametrize(
    ("program", "hw"),
    [
        pytest.param(summed(2000, 4096), ZEN4, id="in the shared cache"),
        pytest.param(summed(4096, 4096, stored=True), ZEN4, id="stored as well"),
        pytest.param(summed(4096, 4096), AVX512, id="it fetches on"),
        pytest.param(summed(4096, 4096), load_named("x86_64_avx2"), id="loads are half a line"),
    ],
)
def test_sums_that_do_not_ask(program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_of_the_second_cache(program, hw, monkeypatch)


def test_who_goes_through_a_row_again_to_sum_it_up_asks_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_for(summed(4096, 4096, once=False), ZEN4, monkeypatch) == {(4096, 2)}


def copied(rows: int, columns: int, apart: int) -> Program:
    """A panel of a matrix, copied."""
    text = f"""
    block main [] (in X[0, 0] f32({rows}, {apart}):({apart}, 1)
                   out Y[0, 0]:assign f32({rows}, {columns}):({columns}, 1)) {{
      block p [d0:{rows}, d1:{columns}] (in X[d0, d1] f32(1, 1)  out Y[d0, d1]:assign f32(1, 1)) #vector=d1 {{
        $x = load(X) f32
        Y = store($x)
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def test_copies_ask_for_pieces_of_rows_below(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked_of_the_second_cache(copied(2048, 64, 4096), ZEN4, monkeypatch)
    assert {expr.const // 4096 for expr in found} == {16}  # rows of 256 bytes: 4 KiB


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(copied(2048, 64, 64), id="one after the other"),
        pytest.param(copied(64, 64, 256), id="near"),
        pytest.param(copied(16, 64, 65536), id="few"),
        pytest.param(copied(2048, 2048, 4096), id="long rows"),
    ],
)
def test_copies_that_do_not_ask(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_of_the_second_cache(program, ZEN4, monkeypatch)


def test_cores_that_fetch_on_are_not_asked_for_pieces_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked_of_the_second_cache(copied(2048, 64, 4096), AVX512, monkeypatch)


def test_of_short_loops_and_of_what_stays_nothing_is_asked_for() -> None:
    assert "prefetch" not in build(product(6, 64, 24), AVX512).asm  # five steps ahead are too far
    near, far = build(panels(6, 3, 100), AVX512), build(panels(6, 3, 200), AVX512)  # 12800, 25600 bytes of B
    assert "prefetch" not in near.asm
    assert "prefetcht0" in far.asm


def test_what_others_push_out_meanwhile_is_asked_for_again() -> None:
    # A tile reads 240 lines of A with each panel: half of a cache of 32 KiB.
    narrow, wide = (build(panels(6, 3, 240, inside=True, turned=True, wide=n), AVX512) for n in (16, 32))
    assert len(asked(narrow)) == 0 and len(asked(wide)) == 3  # of B two lines at each step


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_what_lies_behind_the_end_is_not_touched(hw: HwConfig) -> None:
    check_guarded(product(8, 64, 200), hw)
    check_guarded(panels(6, 3, 200), hw)
    check_guarded(copied(600, 64, 4096), hw)
    check_guarded(rows_again(600, 512, 1024), hw)


def short_rows(tiles: int, columns: int = 8) -> Program:
    """C[12*t + i, n] = sums over 64 elements of a row of A, 12 whole rows at a time."""
    text = f"""
    block main [] (
      in A[0, 0] f32({12 * tiles}, 64):(64, 1)
      in B[0, 0] f32(64, {columns}):({columns}, 1)
      out C[0, 0]:assign f32({12 * tiles}, {columns}):({columns}, 1)
    ) {{
      block t [t:{tiles}] (
        in A[12*t, 0] f32(12, 64):(64, 1)
        in B[0, 0] f32(64, {columns}):({columns}, 1)
        out C[12*t, 0]:assign f32(12, {columns}):({columns}, 1)
      ) {{
        block p [k:64, i:12, n:{columns}] (
          in A[i, k] f32(1, 1):(64, 1)  in B[k, n] f32(1, 1):({columns}, 1)  out C[i, n]:add f32(1, 1)
        ) #unroll=i #unroll=n #vector=n {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          C = store($c)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def test_short_rows_that_come_past_once_are_asked_for_in_whole_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = asked_of_the_second_cache(short_rows(8000), ZEN4, monkeypatch)  # 24 MB
    (ahead,) = set(found)
    assert ahead.const == 2 * 12 * 64  # two pieces: 6 KiB
    assert dict(ahead.terms) == {"k": 12, "t": 12 * 64}  # 64 steps ask for all of a piece
    assert not asked_of_the_second_cache(short_rows(2000), ZEN4, monkeypatch)  # in the shared cache


def product_in_tiles(tiles: int, k: int = 1024, apart: int = 0) -> Program:
    """C[4*m + i, 16*n + j] = sums over k of A and a panel of B, of which each has all rows of A."""
    pitch = k + apart
    text = f"""
    block main [] (
      in A[0, 0] f32({4 * tiles}, {k}):({pitch}, 1)
      in B[0, 0, 0] f32(2, {k}, 16):({16 * k}, 16, 1)
      out C[0, 0]:assign f32({4 * tiles}, 32):(32, 1)
    ) {{
      block t [n:2, m:{tiles}] (
        in A[4*m, 0] f32(4, {k}):({pitch}, 1)
        in B[n, 0, 0] f32(1, {k}, 16):({16 * k}, 16, 1)
        out C[4*m, 16*n]:assign f32(4, 16):(32, 1)
      ) {{
        block p [k:{k}, i:4, j:16] (
          in A[i, k] f32(1, 1):({pitch}, 1)  in B[0, k, j] f32(1, 1, 1):({16 * k}, 16, 1)
          out C[i, j]:add f32(1, 1):(32, 1)
        ) #unroll=i #unroll=j #vector=j {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          C = store($c)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def test_rows_that_come_again_from_far_away_are_asked_for_a_tile_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = asked_of_the_second_cache(product_in_tiles(2000), ZEN3, monkeypatch)  # 32 MB
    (ahead,) = {expr for expr in found if 4 * 1024 in {factor for _, factor in expr.terms}}
    assert ahead.const == 4 * 1024  # the rows of the next tile
    assert dict(ahead.terms) == {"k": 4, "m": 4 * 1024}  # 1024 steps ask for all of them


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(product_in_tiles(200), id="in a part of the shared cache"),
        pytest.param(product_in_tiles(2000, apart=16), id="rows with gaps between them"),
        pytest.param(product_in_tiles(500, k=6000), id="no room beside the panel"),
    ],
)
def test_rows_that_come_again_and_are_not_asked_for(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked_of_the_second_cache(program, ZEN3, monkeypatch)
    assert not [expr for expr in found if any(name.startswith("m") for name in expr.names)]
