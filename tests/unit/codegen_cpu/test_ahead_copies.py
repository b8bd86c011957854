"""What the next copy reads is asked for while the copy before is used: which lines, by whom, and when not."""

from __future__ import annotations

import itertools
from textwrap import dedent

import msgspec
import numpy as np
import pytest

import codegen_cpu.emit
from codegen_cpu.access import Accesses
from codegen_cpu.ahead_copies import ask
from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.layout import Buffer
from codegen_cpu.scope import Coming
from codegen_cpu.tools import Tools
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.diag import Source
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import runnable

AVX2 = load_named("x86_64_avx2")
LINE = 64


def caches(own: int, streams: int | None = None) -> HwConfig:
    """The target with so many bytes of caches of its own, and cores that fetch on along so many rows."""
    memories = tuple(msgspec.structs.replace(m, bytes=own) if m.name == "L2" else m for m in AVX2.memories)
    units = tuple(msgspec.structs.replace(unit, streams=streams) for unit in AVX2.units)
    return msgspec.structs.replace(AVX2, memories=memories, units=units)


def tiles(turns: tuple[int, int]) -> Program:
    """Z[c, b, a, d] sums up X[b, a, e, d] * Y[c, e] over e, with a copy of X[b, :, :, 8*t + i] for each b and
    t, where a goes along the vectors; `turns` are the steps of the loops over c."""
    (outer, inner), (a, e, d) = turns, (8, 10, 40)
    row = a * d
    text = f"""
    block main [] (in X[0, 0, 0, 0] f32(3, {a}, {e}, {d}):({a * e * d}, {e * d}, {d}, 1)
                   in Y[0, 0] f32({outer * inner}, {e}):({e}, 1)
                   out Z[0, 0, 0, 0]:assign f32({outer * inner}, 3, {a}, {d}):({3 * row}, {row}, {d}, 1)) {{
      block t [b:3, t:{d // 8}] (
        in X[b, 0, 0, 8*t] f32(1, {a}, {e}, 8)  in Y[0, 0] f32({outer * inner}, {e})
        out Z[0, b, 0, 8*t]:assign f32({outer * inner}, 1, {a}, 8)
        new P f32({e}, 8, {a}):({8 * a}, {a}, 1)
      ) {{
        block copy [y:{e}, x:{a}, z:8] (
          in X[0, x, y, z] f32(1, 1, 1, 1)  out P[y, z, x]:assign f32(1, 1, 1)
        ) #across=z #vector=x {{
          $x = load(X) f32
          P = store($x)
        }}
        block c [o:{outer}, i:{inner}] (
          in P[0, 0, 0] f32({e}, 8, {a})  in Y[{inner}*o + i, 0] f32(1, {e})
          out Z[{inner}*o + i, 0, 0, 0]:assign f32(1, 1, {a}, 8)
        ) {{
          block z [y:{e}, z:8, x:{a}] (
            in P[y, z, x] f32(1, 1, 1)  in Y[0, y] f32(1, 1)  out Z[0, 0, x, z]:add f32(1, 1, 1, 1)
          ) {{
            $p = load(P) f32
            $y = load(Y) f32
            $z = mul($p, $y) f32
            Z = store($z)
          }}
        }}
      }}
    }}
    """
    return parse(Source("test.stripe", dedent(text)))


def boxes(program: Program, hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """For each next point of the loops around the copy, by where it begins to read X, the lines of X that are
    asked for meanwhile."""
    found: dict[int, set[int]] = {}
    here: list[tuple[Tools, Coming]] = []
    issue = Accesses.ask

    def asking(tools: Tools, wanted: Coming) -> None:
        here.append((tools, wanted))
        ask(tools, wanted)
        here.pop()

    def recorded(self: Accesses, buffer: Buffer, offset: Affine, cache: int) -> None:
        issue(self, buffer, offset, cache)
        if not here:
            return
        ((tools, wanted),) = here
        names, ranges = wanted.start.names, tools.indexing.ranges
        rest = [name for name in offset.names if name not in names]
        for point in itertools.product(*(range(ranges[name][1] + 1) for name in names)):
            begin = {n: Affine(v) for n, v in zip(names, point, strict=True)}
            lines = found.setdefault(wanted.start.substitute(begin).const, set())
            for values in itertools.product(*(range(ranges[name][1] + 1) for name in rest)):
                at = begin | {n: Affine(v) for n, v in zip(rest, values, strict=True)}
                lines.add(offset.substitute(at).const * 4 // LINE)

    monkeypatch.setattr(codegen_cpu.emit, "ask", asking)
    monkeypatch.setattr(Accesses, "ask", recorded)
    assert build(program, hw).asm
    return found


@pytest.mark.parametrize("turns", [(5, 7), (3, 2), (1, 90), (200, 1)])
def test_all_that_the_next_copy_reads_is_asked_for(
    turns: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = boxes(tiles(turns), caches(16384), monkeypatch)
    assert len(found) == 3 * 5
    for first, lines in found.items():
        rows = [first + x * 400 + y * 40 for x in range(8) for y in range(10)]
        assert lines == {(row + z) * 4 // LINE for row in rows for z in range(8)}


@pytest.mark.parametrize(
    "hw",
    [
        pytest.param(caches(131072), id="all that is copied stays near"),
        pytest.param(caches(8192), id="no room beside the copy"),
        pytest.param(caches(16384, streams=64), id="cores fetch on by themselves"),
    ],
)
def test_copies_that_are_not_asked_for(hw: HwConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not boxes(tiles((5, 7)), hw, monkeypatch)


@pytest.mark.skipif(AVX2 not in runnable(), reason="needs AVX2")
def test_results_are_those_without() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((3, 8, 10, 40), np.float32), rng.standard_normal((35, 10), np.float32)
    found = NativeKernel(build(tiles((5, 7)), caches(16384)))(x, y)
    np.testing.assert_allclose(found, np.einsum("baed,ce->cbad", x, y), rtol=1e-4, atol=1e-4)
