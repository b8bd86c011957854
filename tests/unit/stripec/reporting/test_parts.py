"""What stands in the sections of a report: changes, nests, tiles, maps, candidates, roofline, code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from msgspec.structs import replace

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import PassStep
from stripe.diag import Source
from stripe.parser import parse
from stripec.reporting.changes import change, changes, parts
from stripec.reporting.codes import hot_loops
from stripec.reporting.draw_tiles import draw_tiles
from stripec.reporting.figures import MemoryMaps, Nest, Nests, Roofline, Searches, Tilings
from stripec.reporting.model import Code, Passes, Piece, SourceText, Summary
from tests.unit.stripec.reporting.conftest import CONV, TARGETS, made

PROGRAM = """block main [] (
  in A[0] f32(64):(1)
  in B[0] f32(64):(1)
  out X[0]:assign f32(64):(1)
  out Y[0]:assign f32(64):(1)
) {
  block x [i:64] (
    in A[i] f32(1):(1)
    out X[i]:assign f32(1):(1)
  ) {
    $a = load(A) f32
    $b = exp($a) f32
    X = store($b)
  }
  block y [i:64] (
    in B[i] f32(1):(1)
    out Y[i]:assign f32(1):(1)
  ) {
    $a = load(B) f32
    $b = exp($a) f32
    Y = store($b)
  }
}
"""


def marked(pieces: Sequence[Piece] | None) -> str:
    assert pieces is not None
    return "".join(f"[{p.text}]" if p.marked else p.text for p in pieces)


def test_words_that_differ_are_marked_and_indentation_is_not() -> None:
    found = change("k", ["a [i:64] (", "  same", "end"], ["new", "  a [i:8] (", "    same", "  end"])
    rows = [row for hunk in found.hunks for row in hunk.rows]
    assert [(row.left_number, row.right_number) for row in rows] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert rows[0].left is None and rows[0].right is not None
    assert marked(rows[1].left) == "a [i:[64]] (" and marked(rows[1].right) == "  a [i:[8]] ("
    assert not rows[2].changed and marked(rows[2].right) == "    same"
    assert (found.added, found.removed) == (2, 1)


def test_long_runs_without_a_change_are_folded() -> None:
    left = [f"line {n}" for n in range(40)]
    found = change("k", left, [*left[:20], "other words here", *left[20:]])
    assert [(hunk.folded, len(hunk.rows)) for hunk in found.hunks] == [
        (True, 18), (False, 2), (False, 1), (False, 2), (True, 18),
    ]  # fmt: skip


def test_rows_beyond_the_limit_are_counted() -> None:
    found = change("k", [], [f"line {n}" for n in range(100)], 30)
    assert sum(len(hunk.rows) for hunk in found.hunks) == 30 and found.omitted == 70


def test_the_same_change_of_kernels_that_are_alike_is_shown_once() -> None:
    before = parse(Source("p", PROGRAM))
    after = parse(Source("q", PROGRAM.replace("  ) {\n    $a", "  ) #vector=i {\n    $a")))
    found = changes(parts(before), parts(after))
    assert [(c.name, c.alike, c.added) for c in found.changes] == [("main/x", ("main/y",), 1)]
    one = parse(Source("q", PROGRAM.replace("  ) {\n    $a = load(A)", "  ) #vector=i {\n    $a = load(A)")))
    found = changes(parts(before), parts(one))
    assert [c.name for c in found.changes] == ["main/x"] and found.unchanged == ("main/y",)


def test_a_kernel_that_is_gone_stands_with_the_one_that_changed_behind_it() -> None:
    report = stripec.report(
        "function (A[N]) -> (R) { X = A + 1.0; R = X * X; }", {"A": "f32[64]"}, "vector_dsp",
        pipeline="fuse", times=False,
    )  # fmt: skip
    passes = report.find(Passes)
    assert passes is not None
    (fuse,) = passes.passes
    assert any("main/R" in c.name and "main/X" in c.name for c in fuse.changes)
    summary = report.find(Summary)
    assert summary is not None
    assert [(k.path, k.became) for k in summary.kernels] == [("main/X", ("main/R",)), ("main/R", ("main/R",))]


def test_text_and_kernels_are_linked() -> None:
    source = made("systolic_16").find(SourceText)
    assert source is not None
    (said,) = [piece.text for line in source.lines for piece in line if piece.kernels]
    assert said.startswith("O[y, x, k : H, W, K] = +(") and source.starts[2] == (1,)


def narrows(nest: Nest) -> bool:
    """Whether each level magnifies what the one before it touches."""
    return all(
        region.made or region.box in [r.shape for r in level.regions if r.row == region.row]
        for level, inner in pairwise(nest.levels)
        for region in inner.regions
    )


def test_the_nest_narrows_from_memory_to_memory() -> None:
    hw = load_named("systolic_16")
    tiles = {"choices": {"main/O": {"sizes": {"x": 7, "k": 2}}}}
    steps = (PassStep(s.name, s.options | tiles) if s.name == "autotile" else s for s in hw.pipeline)
    hw = replace(hw, pipeline=tuple(steps))
    shapes = {"I": "i8[14,14,32]", "F": "i8[3,3,32,64]"}
    nests = stripec.report(CONV, shapes, hw, times=False, verify="off").find(Nests)
    assert nests is not None
    (nest,) = nests.nests
    assert [row.name for row in nest.rows] == ["I", "F", "O"]
    whole, tile, *_, use = nest.levels
    assert [r.memory for r in whole.regions] == ["DRAM"] * 3 and whole.regions[0].shape == (14, 14, 32)
    assert {(r.row, r.buffer, r.memory) for r in tile.regions if r.made} == {
        ("I", "I_SPAD", "SPAD"), ("F", "F_SPAD", "SPAD"), ("O", "O_acc", "ACC"),
    }  # fmt: skip
    assert use.unit == "MAC" and [r.memory for r in use.regions] == ["SPAD", "SPAD", "ACC"]
    assert narrows(nest)


def test_what_stays_is_copied_in_a_nest_in_front() -> None:
    nests = made("systolic_16").find(Nests)
    assert nests is not None
    copy, nest = nests.nests
    assert [(r.row, r.memory, r.shape) for r in copy.levels[0].regions] == [
        ("I", "DRAM", (14, 14, 32)), ("I_SPAD", "SPAD", (14, 14, 32)),
    ]  # fmt: skip
    assert [row.name for row in nest.rows] == ["I_SPAD", "F", "O"]
    whole, tile, *_, use = nest.levels
    assert [r.memory for r in whole.regions] == ["SPAD", "DRAM", "DRAM"]
    assert {(r.row, r.buffer, r.memory) for r in tile.regions if r.made} == {
        ("F", "F_SPAD", "SPAD"), ("O", "O_acc", "ACC"),
    }  # fmt: skip
    assert use.unit == "MAC" and [r.memory for r in use.regions] == ["SPAD", "SPAD", "ACC"]
    assert narrows(copy) and narrows(nest)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_cover_each_tensor_that_is_written(target: str) -> None:
    tilings = made(target).find(Tilings)
    assert tilings is not None and tilings.tilings
    written = [t for tiling in tilings.tilings for t in tiling.tensors if t.writes and not t.covered]
    covered: dict[str, set[tuple[int, int]]] = {}
    for tiles in written:
        cells = covered.setdefault(f"{tiles.tensor} {tiles.dims}", set())
        for down, across in tiles.starts:
            cells |= {(down + i, across + j) for i in range(tiles.size[0]) for j in range(tiles.size[1])}
        inside = {(i, j) for i in range(tiles.extent[0]) for j in range(tiles.extent[1])}
        if target != "x86_64_avx512":  # there two kernels write a part each
            assert inside <= cells


def test_too_many_tiles_are_drawn_as_what_they_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stripec.reporting.tilings.MAX_TILES", 16)
    source = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    shapes = {"A": "f32[128,64]", "B": "f32[64,128]"}
    report = stripec.report(source, shapes, "many_core", times=False, verify="off")
    tilings = report.find(Tilings)
    assert tilings is not None
    many = [t for tiling in tilings.tilings for t in tiling.tensors if t.covered]
    assert many
    for tiles in many:
        assert tiles.covered is not None
        (top, left), (bottom, right) = tiles.covered
        assert top <= 0 and left <= 0 and bottom >= tiles.extent[0] and right >= tiles.extent[1]
        text = str(draw_tiles(tiles, {}))
        assert text.count('class="tile k0 bare"') == 1 and text.count("tile-one") == 1


def test_a_window_gives_tiles_that_overlap_by_its_rim() -> None:
    tilings = made("many_core").find(Tilings)
    assert tilings is not None
    image = tilings.tilings[0].tensors[0]
    assert image.tensor == "I"
    for size, step in zip(image.size, image.step, strict=True):
        assert step == 0 or size - step == 2, "3 x 3 looks one beyond on each side"


@pytest.mark.parametrize("target", ["systolic_16", "many_core", "vector_dsp"])
def test_buffers_that_are_alive_together_lie_apart(target: str) -> None:
    maps = made(target).find(MemoryMaps)
    assert maps is not None and maps.maps
    hw = load_named(target)
    for found in maps.maps:
        memory = hw.memory(found.memory)
        assert memory is not None
        assert memory.bytes is None or found.height <= memory.bytes
        for a, b in combinations(found.placed, 2):
            apart = a.address + a.bytes <= b.address or b.address + b.bytes <= a.address
            assert apart or a.lane != b.lane or a.end < b.start or b.end < a.start, (a, b)


def test_candidates_have_their_cost_or_the_limit() -> None:
    searches = made("systolic_16").find(Searches)
    assert searches is not None
    tiles = next(s for s in searches.searches if s.pass_spec.startswith("autotile"))
    assert sum(row.chosen for row in tiles.rows) == 1
    for row in tiles.rows:
        assert (row.cost is None) == bool(row.limit)
    best = min(row.cost for row in tiles.rows if row.cost is not None)
    assert next(row.cost for row in tiles.rows if row.chosen) == best


def test_bytes_of_copies_and_operations_are_exact() -> None:
    text = "function (A[M, N], B[M, N]) -> (R) { R = A * B + A; }"
    report = stripec.report(text, {"A": "f32[256,128]", "B": "f32[256,128]"}, "vector_dsp", times=False)
    roofline = report.find(Roofline)
    assert roofline is not None
    (point,) = roofline.points
    assert point.operations == 2 * 256 * 128
    assert point.least_bytes == point.moved_bytes == 3 * 256 * 128 * 4
    peaks = {roof.name: roof.rate for roof in roofline.roofs}
    assert peaks["VEC, f32"] == 2 * 16 and peaks["DRAM"] == 8


def test_what_is_loaded_from_the_farthest_memory_itself_counts() -> None:
    text = "function (A[M, N]) -> (R) { R[m : M] = +(A[m, n]); }"
    report = stripec.report(text, {"A": "f64[40,30]"}, "vector_dsp", times=False)
    roofline = report.find(Roofline)
    assert roofline is not None
    assert roofline.traffic == (
        ("main/R", "A", "DRAM", "SCALAR", 8 * 40 * 30), ("main/R", "R", "SCALAR", "DRAM", 8 * 40 * 30),
    ), "the scalar unit takes f64 from there, and adds each one up there"  # fmt: skip


def computing(lines: Sequence[str]) -> int:
    return sum("mul" in line or "add" in line for line in lines)


def test_the_innermost_loops_that_compute_are_marked() -> None:
    asm = ["f:", ".L1:", " load", ".L2:", " mul", " add", " jne\t.L2", " jne\t.L1"]
    asm += [".L3:", " mov", " jne\t.L3", ".L4:", " mul", " jne\t.L4", " ret"]
    assert hot_loops(asm, False, computing) == [(4, 7), (12, 14)]
    llvm = [
        "define void @f() {",
        "entry:",
        "  br label %a",
        "a:",
        "  %x = add",
        "  br i1 %c, label %a, label %b",
    ]
    assert hot_loops([*llvm, "b:", "}"], True, computing) == [(4, 6)]
    assert hot_loops(["f:", " ret"], False, computing) == []
    assert hot_loops(asm, False, lambda _: 0) == []


def test_code_is_there_for_a_cpu_alone() -> None:
    code = made("x86_64_avx512").find(Code)
    assert code is not None and [text.name for text in code.texts] == ["LLVM IR", "assembly"]
    assert all(text.hot for text in code.texts)
    first, last = code.texts[1].hot[0]
    assert any("zmm" in line for line in code.texts[1].lines[first - 1 : last])
    assert made("systolic_16").find(Code) is None
