"""The next tile of a cache is asked for while one is used: which lines, in which order, and when not."""

from __future__ import annotations

from textwrap import dedent

import msgspec
import numpy as np
import pytest

from codegen_cpu.access import Accesses
from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.layout import Buffer
from codegen_cpu.ll import I64, PTR, Value, constant
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.diag import Source
from stripe.ir import Program
from stripe.parser import parse
from stripe.printer import to_text
from tests.support.native import runnable

AVX2 = load_named("x86_64_avx2")
LINE = 16  # elements
COLUMNS = 960  # of B

needs_avx2 = pytest.mark.skipif(AVX2 not in runnable(), reason="needs AVX2")


def caches(own: int = 65536, shared: int = 131072) -> HwConfig:
    """The target with so many bytes of L2 and L3."""
    bytes_ = {"L2": own, "L3": shared}
    memories = tuple(msgspec.structs.replace(m, bytes=bytes_.get(m.name, m.bytes)) for m in AVX2.memories)
    return msgspec.structs.replace(AVX2, memories=memories)


def sums(k: int, rows: int) -> str:
    """A tile in registers: `rows` rows of A, k elements long, times 16 columns of B."""
    return f"""
          block p [k:{k}, i:{rows}, l:16] (
            in A[i, k] f32(1, 1)  in B[k, l] f32(1, 1)  out C[i, l]:add f32(1, 1)
          ) #unroll=i #unroll=l #vector=l {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            C = store($c)
          }}"""


def product(rows: int = 2, k: int = 16, n: int = 96, more: bool = False) -> Program:
    """C += A * B, where tiles of a cache have k x n elements of B, for 4 * `rows` rows of A, of which a tile
    in registers takes 4; with `more`, 2 further ones have tiles of their own, which read B again."""
    m, steps, columns = 4 * rows + 2 * more, 96 // k, COLUMNS // n
    rest = f"""\
        block d [j:{n // 16}] (in A[{m - 2}, 0] f32(2, {k})  in B[0, 16*j] f32({k}, 16)
                               out C[{m - 2}, 16*j]:add f32(2, 16)) {{ {sums(k, 2)} }}"""
    text = f"""
    block main [] (in A[0, 0] f32({m}, 96):(96, 1)  in B[0, 0] f32(96, {COLUMNS}):({COLUMNS}, 1)
                   out C[0, 0]:add f32({m}, {COLUMNS}):({COLUMNS}, 1)) {{
      block t [n:{columns}, k:{steps}] (in A[0, {k}*k] f32({m}, {k})  in B[{k}*k, {n}*n] f32({k}, {n})
                                        out C[0, {n}*n]:add f32({m}, {n})) {{
        block c [j:{n // 16}, m:{rows}] (in A[4*m, 0] f32(4, {k})  in B[0, 16*j] f32({k}, 16)
                                         out C[4*m, 16*j]:add f32(4, 16)) {{ {sums(k, 4)} }}
{rest if more else ""}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def ran(program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the elements lie that a run asks for, to come to the core's own caches, in turn."""
    log = np.zeros(1 << 20, np.int64)  # how many, then each

    def noted(self: Accesses, _buffer: Buffer, offset: Affine, cache: int) -> None:
        if cache != 2:
            return
        base = Value(PTR, f"inttoptr (i64 {log.ctypes.data} to ptr)")
        count = self.f.load(I64, base, 8)
        count = self.f.binary("add", count, constant(I64, 1))
        self.f.store(count, base, 8)
        self.f.store(self._indexing.value(offset), self.f.offset(base, I64, count), 8)

    monkeypatch.setattr(Accesses, "ask", noted)
    kernel = NativeKernel(build(program, hw))
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(ref.shape, np.float32) for ref in program.inputs)
    found = kernel(a, b)
    np.testing.assert_allclose(found["C"] if isinstance(found, dict) else found, a @ b, rtol=1e-3, atol=1e-3)
    return [int(at) for at in log[1 : log[0] + 1]]


def following(k: int, n: int) -> list[int]:
    """The lines of the tile behind each tile of k x n elements, along its rows."""
    tiles = [(row, column) for column in range(0, COLUMNS, n) for row in range(0, 96, k)]
    return [
        (row + r) * COLUMNS + column + line
        for row, column in [*tiles[1:], tiles[0]]
        for r in range(k)
        for line in range(0, n, LINE)
    ]


@needs_avx2
@pytest.mark.parametrize(
    ("rows", "k", "n"),
    [(2, 16, 96), (1, 16, 96), (3, 12, 160), (7, 24, 32), (5, 32, 96), (1, 8, 480)],
    ids=str,
)
def test_all_of_the_next_tile_is_asked_for_along_its_rows(
    rows: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list(dict.fromkeys(ran(product(rows, k, n), caches(), monkeypatch)))
    lines = following(k, n)
    assert sorted(asked) == sorted(lines)
    assert [at for at in asked if at in set(lines)] == lines


@needs_avx2
def test_it_is_asked_for_evenly_and_hardly_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ran(product(rows=7, k=24, n=32), caches(), monkeypatch)
    steps = 24 * 2 * 7  # of a tile, whose 24 rows have two lines
    assert len(asked) == steps * 4 * COLUMNS // 32
    assert all(1 <= asked[:steps].count(at) <= 8 for at in asked[:steps])


@needs_avx2
def test_of_tiles_beside_each_other_the_first_ones_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ran(product(rows=2), caches(), monkeypatch)
    assert ran(product(rows=2, more=True), caches(), monkeypatch) == alone


@needs_avx2
@pytest.mark.parametrize(
    "hw",
    [
        pytest.param(caches(shared=1 << 20), id="it comes from a cache"),
        pytest.param(caches(own=3 * 16 * 96 * 4 - 1), id="three tiles do not fit"),
    ],
)
def test_tiles_that_are_not_asked_for(hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ran(product(), hw, monkeypatch)
    first = {r * COLUMNS + line for r in range(16, 32) for line in range(0, 96, LINE)}
    assert not first <= set(asked[: 6 * 2 * 16 * 2])


@needs_avx2
@pytest.mark.parametrize(
    ("rows", "k", "n", "streams", "asks"),
    [
        pytest.param(2, 12, COLUMNS, 64, True, id="one run"),
        pytest.param(2, 12, COLUMNS // 2, 64, False, id="rows with gaps"),
        pytest.param(1, 12, COLUMNS, 64, False, id="once"),
        pytest.param(2, 8, COLUMNS, 64, False, id="few rows"),
        pytest.param(2, 12, COLUMNS, None, False, id="cores do not fetch on"),
    ],
)
def test_one_run_that_is_read_in_pieces_is_asked_for_from_a_shared_cache(
    rows: int, k: int, n: int, streams: int | None, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw = caches(own=1 << 18, shared=1 << 20)
    hw = msgspec.structs.replace(
        hw, units=tuple(msgspec.structs.replace(u, streams=streams) for u in hw.units)
    )
    asked = list(dict.fromkeys(ran(product(rows, k, n), hw, monkeypatch)))
    assert (asked == following(k, n)) == asks
    assert asks or not set(following(k, n)[: k * n // LINE]) <= set(asked[: 2 * k * n // LINE])


@needs_avx2
def test_loops_along_the_lanes_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    text = to_text(product(rows=2))
    assert text.count("[k:16, i:4, l:16]") == 1
    along = text.replace("[k:16, i:4, l:16]", "[l:16, k:16, i:4]").replace(" #unroll=l", "")
    asked = ran(parse(Source("test.stripe", along)), caches(), monkeypatch)
    assert all(at < 16 * COLUMNS for at in asked[:32]), "those of the same tile, if any"


@needs_avx2
def test_a_few_rows_that_go_past_once_are_left_to_cores_that_fetch_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = tuple(
        msgspec.structs.replace(u, capabilities=(*u.capabilities, "fetches_rows")) for u in caches().units
    )
    able = msgspec.structs.replace(caches(), units=units)
    assert not ran(product(rows=1, k=8), able, monkeypatch)
    assert ran(product(rows=2, k=8), able, monkeypatch)
    assert ran(product(rows=1, k=12), able, monkeypatch)
