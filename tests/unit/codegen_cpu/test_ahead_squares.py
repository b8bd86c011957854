"""Squares that are turned in registers ask for the rows of later ones."""

from __future__ import annotations

from textwrap import dedent

import pytest

from codegen_cpu.access import Accesses
from codegen_cpu.build import build
from codegen_cpu.layout import Buffer
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.diag import Source
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import runnable
from tests.unit.codegen_cpu.test_ahead_results import asked
from tests.unit.codegen_cpu.test_memory import check_guarded

AVX512 = load_named("x86_64_avx512")


def turning(m: int, n: int, k: int, apart: int = 2048, tiles: int = 1) -> Program:
    """Squares of X along m and n are turned, whose rows lie `apart` elements, for k matrices in each tile."""
    text = f"""
    block main [] (in X[0, 0, 0, 0] f32({tiles}, {k}, {m}, {n}):({k * m * apart}, {m * apart}, {apart}, 1)
                   out Y[0, 0, 0, 0]:assign f32({tiles}, {k}, {n}, {m})) {{
      block t [t:{tiles}] (in X[t, 0, 0, 0] f32(1, {k}, {m}, {n})
                           out Y[t, 0, 0, 0]:assign f32(1, {k}, {n}, {m})) {{
        block p [k:{k}, n:{n}, m:{m}] (
          in X[0, k, m, n] f32(1, 1, 1, 1)  out Y[0, k, n, m]:assign f32(1, 1, 1, 1)
        ) #vector=m #across=n {{
          $x = load(X) f32
          Y = store($x)
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def recorded_squares(program: Program, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Affine, int]]:
    """The places that are asked for, in elements, and the cache that they are brought to."""
    found = list[tuple[Affine, int]]()
    ask = Accesses.ask

    def recorded(self: Accesses, buffer: Buffer, offset: Affine, cache: int) -> None:
        found.append((offset, cache))
        ask(self, buffer, offset, cache)

    monkeypatch.setattr(Accesses, "ask", recorded)
    assert build(program, AVX512).asm.count("prefetcht1") == len(found)
    return found


@pytest.mark.parametrize(
    ("program", "distance"),
    [
        pytest.param(turning(512, 16, 1), 2 * 16 * 2048, id="two squares down the rows"),
        pytest.param(turning(16, 512, 1), 2 * 16, id="two squares along the rows"),
        pytest.param(turning(32, 32, 20), 32 * 2048, id="the next matrix"),
        pytest.param(turning(32, 32, 2, tiles=20), 2 * 32 * 2048, id="the next tile"),
    ],
)
def test_a_square_asks_for_the_rows_of_a_later_one(
    program: Program, distance: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recorded_squares(program, monkeypatch)
    assert {cache for _, cache in found} == {2}
    assert [offset.const for offset, _ in found] == [distance + row * 2048 for row in range(16)]


def test_rows_that_a_square_stores_turned_are_asked_for_where_they_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """
    block main [] (in X[0, 0] f32(16, 512):(2048, 1)  out Y[0, 0]:assign f32(512, 16)) {
      block p [n:512, m:16] (in X[m, n] f32(1, 1)  out Y[n, m]:assign f32(1, 1)) #vector=n #across=m {
        $x = load(X) f32
        Y = store($x)
      }
    }
    """
    found = recorded_squares(parse(Source("test.stripe", dedent(text))), monkeypatch)
    assert [offset.const for offset, _ in found] == [2 * 16 + row * 2048 for row in range(16)]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(turning(512, 16, 1, apart=512), id="rows within a page"),
        pytest.param(turning(32, 32, 4), id="most of what is asked for lies behind the end"),
        pytest.param(turning(112, 112, 7, tiles=20), id="far too much until the next tile"),
    ],
)
def test_squares_that_do_not_ask_for_later_ones(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not recorded_squares(program, monkeypatch)


def turned(m: int, n: int) -> Program:
    """A transpose of X, square after square along the rows of Y."""
    text = f"""
    block main [] (in X[0, 0] f32({m}, {n})  out Y[0, 0]:assign f32({n}, {m})) {{
      block p [n:{n}, m:{m}] (in X[m, n] f32(1, 1)  out Y[n, m]:assign f32(1, 1)) #vector=m #across=n {{
        $x = load(X) f32
        Y = store($x)
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def test_squares_ask_for_the_lines_that_later_ones_write_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 1019 elements are no whole lines: they come from beyond the core's own caches."""
    found = recorded_squares(turned(1019, 1024), monkeypatch)
    of_x = [2 * 16 * 1024 + row * 1024 for row in range(16)]
    of_y = [2 * 16 + row * 1019 for row in range(16)]
    assert {*of_x, *of_y} <= {offset.const for offset, _ in found}
    assert {cache for _, cache in found} == {2}


@pytest.mark.parametrize(
    ("m", "n", "asks"),
    [
        pytest.param(1019, 1024, True, id="rows on pages of their own"),
        pytest.param(509, 8192, True, id="rows that share pages"),
        pytest.param(453, 512, False, id="what stays in the core's own caches"),
    ],
)
def test_squares_ask_for_the_lines_in_which_their_pieces_end(
    m: int, n: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of sixteen elements goes on in the next line, for which its store would wait."""
    asm = build(turned(m, n), AVX512).asm
    found = asked(turned(m, n), AVX512, monkeypatch)
    assert asm.count("prefetcht0") == len(found)
    assert ({15 + row * m for row in range(16)} <= set(found)) is asks
    assert asks or not found


@pytest.mark.parametrize(
    ("m", "n"),
    [
        pytest.param(453, 512, id="what stays in the core's own caches"),
        pytest.param(509, 8192, id="rows that share pages"),
    ],
)
def test_results_that_squares_do_not_ask_for(m: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recorded_squares(turned(m, n), monkeypatch)
    assert all(offset.const >= 2 * 16 * n for offset, _ in found)  # rows of X


def test_small_parts_of_lines_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four elements of a line are one of four squares that write it."""
    text = """
    block main [] (in X[0, 0, 0] f32(64, 4, 1024)  out Y[0, 0, 0]:assign f32(1024, 64, 17)) {
      block p [b:64, n:4, m:1024] (
        in X[b, n, m] f32(1, 1, 1)  out Y[m, b, n]:assign f32(1, 1, 1)
      ) #vector=m #across=n {
        $x = load(X) f32
        Y = store($x)
      }
    }
    """
    narrow = parse(Source("test.stripe", dedent(text)))
    wide = parse(Source("test.stripe", dedent(text.replace("n:4", "n:16").replace("4, 1024)", "16, 1024)"))))
    assert any(offset.coefficient("m") == 64 * 17 for offset, _ in recorded_squares(wide, monkeypatch))
    assert all(offset.coefficient("m") == 1 for offset, _ in recorded_squares(narrow, monkeypatch))


def test_lines_that_go_past_the_caches_are_asked_for_only_where_they_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same code stands there twice: for arrays that start at a line, and for others."""
    found = [offset.const for offset, _ in recorded_squares(turned(2048, 4096), monkeypatch)]
    assert [found.count(2 * 16 * 4096 + row * 4096) for row in range(16)] == [2] * 16
    assert [found.count(2 * 16 + row * 2048) for row in range(16)] == [1] * 16


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_what_lies_behind_the_end_is_not_touched(hw: HwConfig) -> None:
    check_guarded(turning(32, 32, 20, apart=1024), hw)
    check_guarded(turned(1019, 1021), hw)
