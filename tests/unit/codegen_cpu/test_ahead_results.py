"""The lines that tiles in registers will write are asked for before their sum: which lines, and when not."""

from __future__ import annotations

import re
from textwrap import dedent

import msgspec
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
from stripe.printer import to_text
from tests.support.native import runnable
from tests.unit.codegen_cpu.test_memory import check_guarded

AVX512 = load_named("x86_64_avx512")


def caches(own: int, hw: HwConfig = AVX512, streams: bool = False) -> HwConfig:
    """The target with so many bytes of caches of its own; `streams`: results may go past them."""
    replace = msgspec.structs.replace
    memories = tuple(replace(m, bytes=own) if m.name == "L2" else m for m in hw.memories)
    dropped = () if streams else ("streaming_stores",)
    units = tuple(
        replace(u, capabilities=tuple(c for c in u.capabilities if c not in dropped)) for u in hw.units
    )
    return replace(hw, memories=memories, units=units)


def tiles(row: int, rounds: int = 1) -> Program:
    """C[m, n] sums up A[m, k] * B[k, n], in tiles of 4 x 32 results of rows that are `row` apart; `rounds`:
    so often for each 16 rows, where each adds what it has."""
    how = ":assign" if rounds == 1 else ":add"
    text = f"""
    block main [] (in A[0, 0] f32(64, 8)  in B[0, 0] f32(8, 64)  out C[0, 0]{how} f32(64, 64):({row}, 1)) {{
      block rows [o:4] (in A[16*o, 0] f32(16, 8)  in B[0, 0] f32(8, 64)  out C[16*o, 0]{how} f32(16, 64)) {{
        block round [r:{rounds}] (
          in A[0, 0] f32(16, 8)  in B[0, 0] f32(8, 64)  out C[0, 0]{how} f32(16, 64)
        ) {{
          block tile [m:4, n:2] (
            in A[4*m, 0] f32(4, 8)  in B[0, 32*n] f32(8, 32)
            out C[4*m, 32*n]{how} f32(4, 32)  new S f32(4, 32) @REG
          ) {{
            block sum [k:8, m:4, n:32] (
              in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out S[m, n]:add f32(1, 1)
            ) #unroll=m #unroll=n #vector=n {{
              $a = load(A) f32
              $b = load(B) f32
              $c = mul($a, $b) f32
              S = store($c)
            }}
            block store [m:4, n:32] (in S[m, n] f32(1, 1)  out C[m, n]{how} f32(1, 1))
              #unroll=m #unroll=n #vector=n {{
              $s = load(S) f32
              C = store($s)
            }}
          }}
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def asked(program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far from where a tile begins the lines lie that it asks for to write them, in elements."""
    found = list[int]()
    ask = Accesses.ask_to_write

    def recorded(self: Accesses, buffer: Buffer, offset: Affine) -> None:
        found.append(offset.const)
        ask(self, buffer, offset)

    monkeypatch.setattr(Accesses, "ask_to_write", recorded)
    assert build(program, hw).emitted
    return found


@pytest.mark.parametrize(
    ("row", "lines"),
    [
        pytest.param(64, [0, 16], id="rows begin at lines"),
        pytest.param(72, [0, 16, 32], id="rows begin within lines"),
    ],
)
def test_a_tile_asks_for_each_line_that_it_writes(
    row: int, lines: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(tiles(row), caches(1 << 10), monkeypatch)
    assert found == [m * row + at for m in range(4) for at in lines]


def test_lines_are_asked_for_in_front_of_the_sum_to_be_written() -> None:
    emitted = build(tiles(64), caches(1 << 10)).emitted
    asks = [
        found.start() for found in re.finditer(r"call void @llvm.prefetch.*i32 1, i32 3, i32 1\)", emitted)
    ]
    assert len(asks) == 8
    assert max(asks) < emitted.index("fmul")


@pytest.mark.parametrize(
    ("own", "rounds", "asks"),
    [
        pytest.param(8 << 10, 1, True, id="all results are far"),
        pytest.param(64 << 10, 1, False, id="they stay in the caches"),
        pytest.param(8 << 10, 3, False, id="those stay that a loop around comes back to"),
        pytest.param(1 << 10, 3, True, id="not even those"),
    ],
)
def test_only_results_are_asked_for_that_are_far(
    own: int, rounds: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bool(asked(tiles(64, rounds), caches(own), monkeypatch)) == asks


def test_rows_that_share_a_sum_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    block main [] (in X[0, 0] f32(64, 64)  out Y[0, 0]:assign f32(64, 64)) {
      block row [m:64] (in X[m, 0] f32(1, 64)  out Y[m, 0]:assign f32(1, 64)  new S f32(1) @REG) {
        block sum [n:64] (in X[0, n] f32(1, 1)  out S[0]:add f32(1)) #vector=n {
          $x = load(X) f32
          S = store($x)
        }
        block norm [n:64] (in X[0, n] f32(1, 1)  in S[0] f32(1)  out Y[0, n]:assign f32(1, 1)) #vector=n {
          $x = load(X) f32
          $s = load(S) f32
          $y = div($x, $s) f32
          Y = store($y)
        }
      }
    }
    """
    program = parse(Source("test.stripe", dedent(text)))
    assert not asked(program, caches(1 << 10), monkeypatch)


def test_tiles_below_each_other_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind a row of a tile is not written next."""
    program = parse(Source("test.stripe", to_text(tiles(64)).replace("[m:4, n:2]", "[n:2, m:4]")))
    assert not asked(program, caches(1 << 10), monkeypatch)


def test_tiles_of_single_lines_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = to_text(tiles(64)).replace("n:2]", "n:4]").replace("n:32]", "n:16]").replace("32*n", "16*n")
    narrow = (
        narrow.replace("f32(4, 32)", "f32(4, 16)")
        .replace("f32(8, 32)", "f32(8, 16)")
        .replace("(32, 1)", "(16, 1)")
    )
    assert not asked(parse(Source("test.stripe", narrow)), caches(1 << 10), monkeypatch)


def test_results_that_go_past_the_caches_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asked(tiles(64), caches(8 << 10, streams=True), monkeypatch)


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_nothing_else_changes(hw: HwConfig) -> None:
    check_guarded(tiles(72), caches(1 << 10, hw))
    check_guarded(tiles(72, rounds=3), caches(1 << 10, hw))
