"""transpose in whole pipelines: what contractions copy at each call are tiles that a core's own cache
holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import msgspec
import pytest

from benchmarks.cases import Case, cases
from hwconfigs.load import load_named
from hwconfigs.model import own_cache
from stripe.ir import Block, Direction, Load, Program, Store
from stripe.names import Names
from stripe.passes.pipeline import run_pipeline
from stripe.passes.transpose import spaced
from stripe.passes.transpose_tree import computed_with
from stripe.rewrite_packed import Layout, inserted, pack
from stripe.verify import findings
from stripe.visit import walk
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline, target
from tests.support.passes import program_of
from tests.support.problems import lowered

# Of other targets some: with their rates a copy of a whole operand pays for a few others.
ELSEWHERE = {
    "x86_64_avx512": ("abcd-eafd-fbec", "abcd-deca-be", "abcd-aebf-fdec", "gemm 1000x1100x1200"),
    "x86_64_avx2": ("abcd-eafd-fbec", "abcd-deca-be", "ab-acd-dbc", "gemm 1000x1100x1200"),
    "x86_64_zen3": ("abcd-eafd-fbec", "abcde-ecbfa-fd", "ab-acd-dbc", "gemm 1000x1100x1200"),
}
CONTRACTIONS = [case for case in cases() if case.family in ("tactics", "tccg")]
# One copies 4 MB there, which makes it 1.2 times as fast.
WHOLE = ("tactics", "abc-acd-db")
CASES = [("x86_64_zen4", case) for case in CONTRACTIONS]
CASES += [("x86_64_zen5", case) for case in CONTRACTIONS if (case.family, case.name) != WHOLE]
CASES += [("x86_64_zen4", case) for case in cases() if case.name == "matmul 512x512x512 tB"]
CASES += [(name, case) for name, some in ELSEWHERE.items() for case in CONTRACTIONS if case.name in some]


@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(n, c, id=f"{n}-{c.family}-{c.name}") for n, c in CASES]
)
def test_a_contraction_copies_tiles(name: str, case: Case) -> None:
    hw = target(name)
    result = run_pipeline(lowered(case.problem), pipeline(name), hw, verify="off")
    cache = own_cache(hw.memories)
    assert cache is not None
    assert cache.bytes is not None
    assert max(_copies(result), default=0) <= cache.bytes


def _copies(program: Program) -> Iterator[int]:
    """The bytes of each buffer that blocks fill that do nothing but move elements."""
    for _, block in walk(program.root):
        for ref in block.refinements:
            if ref.direction is Direction.NEW and ref.location is None:
                writers = [
                    b
                    for b in block.children
                    if any(r.source == ref.name and r.direction.writes for r in b.refinements)
                ]
                if writers and all(map(_only_moves, writers)):
                    yield prod(ref.shape) * ref.dtype.bytes


def _only_moves(block: Block) -> bool:
    statements = [s for _, b in walk(block) for s in b.statements if not isinstance(s, Block)]
    return all(isinstance(s, Load | Store) for s in statements)


def settled(
    text: str, name: str = "x86_64_zen4", rate: float | None = None, **shapes: str
) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """The lane index of what a contraction adds up, and the strides of the copies that are made for it.
    `rate`: the bytes that the second cache delivers at each cycle."""
    program = read_program(text).lower({of: as_type(form, of) for of, form in shapes.items()}, [])
    hw = target(name)
    if rate is not None:
        faster = [
            msgspec.structs.replace(m, bytes_per_cycle=rate) if m.name == "L2" else m for m in hw.memories
        ]
        hw = msgspec.structs.replace(hw, memories=tuple(faster))
    result = run_pipeline(program, pipeline(name), hw)
    blocks = [block for _, block in walk(result.root)]
    new = [ref for block in blocks for ref in block.refinements if ref.direction is Direction.NEW]
    lanes = next(b.tag_values("vector") for b in blocks if len(b.statements) == 4)
    return lanes, [r.strides or () for r in new if r.location is None]


def test_lanes_that_are_summed_get_the_copy_that_they_were_chosen_for() -> None:
    """Few columns of A meet many rows of B, which goes along k: so do the lanes, once A is turned."""
    text = "function (A[K, M], B[N, K]) -> (C) { C[m, n : M, N] = +(A[k, m] * B[n, k]); }"
    lanes, copies = settled(text, A="f32[730, 4]", B="f32[2048, 730]")
    assert (lanes, copies) == (("k",), [(1, 730)])


def test_rows_that_are_joined_get_a_copy_in_which_they_follow_each_other() -> None:
    """16 rows of 3 elements are three vectors, in the result and in a copy of X."""
    text = "Z[d, b, a, c : D, B, A, C] = +(X[a, e, b, c] * Y[e, d]);"
    lanes, copies = settled(
        f"function (X[A, E, B, C], Y[E, D]) -> (Z) {{ {text} }}", X="f32[16, 2, 32, 3]", Y="f32[2, 64]"
    )
    assert (lanes, copies) == (("c",), [(3, 48, 96, 1)])


def test_pieces_of_rows_that_are_no_whole_lines_are_copied() -> None:
    """Rows of 120 elements put every second piece across two lines: a tile of five rows reads seven and a
    half lines at each step, of which the nearest cache has no room for 120. Copies begin at lines. (From a
    slower second cache, tiles of one row come, in longer pieces.)"""
    text = "function (X[D, C, A], Y[B, D]) -> (Z) { Z[c, b, a : C, B, A] = +(X[d, c, a] * Y[b, d]); }"
    shapes = {"X": "f32[120, 120, 120]", "Y": "f32[120, 120]"}
    lanes, copies = settled(text, "x86_64_amx", 64, **shapes)
    assert (lanes, copies) == (("a",), [(76800, 9600, 80, 16, 1)])
    lanes, copies = settled(text, "x86_64_amx", 64, **(shapes | {"X": "f32[120, 120, 128]"}))
    assert (lanes, copies) == (("a",), [])


def test_short_rows_are_summed_along_the_lanes_side_by_side() -> None:
    """A vector holds each row of X: the sums of several rows stay in registers, and none is gathered."""
    text = "function (X[A, B, C], Y[C]) -> (Z) { Z[a, b : A, B] = +(X[a, b, c] * Y[c]); }"
    program = read_program(text).lower(
        {"X": as_type("f32[29, 478, 7]", "X"), "Y": as_type("f32[7]", "Y")}, []
    )
    result = run_pipeline(program, pipeline("x86_64_zen4"), target("x86_64_zen4"))
    blocks = [block for _, block in walk(result.root)]
    assert any(ref.location is not None for block in blocks for ref in block.refinements)
    assert next(b.tag_values("vector") for b in blocks if len(b.statements) == 4) == ("c",)


def test_what_tiles_were_made_for_is_copied_for_any_gain() -> None:
    """Nine columns share each row of A: the copy saves little more than it costs by the model."""
    text = "function (A[M, K], B[N, K]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[n, k]); }"
    lanes, copies = settled(text, A="f32[2022, 83]", B="f32[9, 83]")
    assert (lanes, copies) == (("m",), [(1, 48), (1, 48)])


@pytest.mark.parametrize(
    ("rows", "columns", "steps", "lanes"),
    [
        pytest.param(4000, 33, 100, "m", id="short rows, of which a third would be empty lanes"),
        pytest.param(2000, 20, 500, "m", id="in a cache"),
        pytest.param(2000, 20, 4000, "n", id="in main memory"),
        pytest.param(1260, 38, 5365, "n", id="in main memory, fewer empty lanes"),
        pytest.param(500, 38, 1000, "n", id="each row on a page of its own"),
    ],
)
def test_full_lanes_are_weighed_against_what_copies_wait_for(
    rows: int, columns: int, steps: int, lanes: str
) -> None:
    """Few columns leave lanes idle. Along the rows they are full, but what a tile reads has to be copied."""
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    found, _ = settled(text, "x86_64_zen5", A=f"f32[{rows}, {steps}]", B=f"f32[{steps}, {columns}]")
    assert found == (lanes,)


def test_no_copies_are_counted_on_that_take_groups_apart() -> None:
    """Pairs of bf16 lie beside each other in A: turned so that lanes run along its rows, they would not."""
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] : f32 = +(A[m, k] * B[k, n]); }"
    types = {name: as_type(shape, name) for name, shape in (("A", "bf16[512, 512]"), ("B", "bf16[512, 20]"))}
    program = read_program(text).lower(types, [])
    result = run_pipeline(program, pipeline("x86_64_zen5"), target("x86_64_zen5"))
    pairs = [block for _, block in walk(result.root) if block.tag_values("group")]
    lanes = {block.name: block.tag_values("vector") for block in pairs}
    assert lanes == {"B_packed_pack": ("d0",), "C": ("k",)}


@pytest.mark.parametrize(
    ("rows", "steps", "copied"),
    [
        pytest.param(80, 1024, False, id="saves 1.2 times what it takes"),
        pytest.param(128, 1024, True, id="saves twice that"),
        pytest.param(128, 4096, False, id="takes more, as L3 does not keep the matrix"),
        pytest.param(192, 4096, True, id="saves more than that"),
    ],
)
def test_a_copy_gains_a_quarter_of_what_it_takes(rows: int, steps: int, copied: bool) -> None:
    """By the model: of a matrix that some rows are multiplied by, in pieces of its rows. From main memory
    these come at half the rate, and nothing else is done meanwhile."""
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    lanes, found = settled(text, "x86_64_zen5", A=f"f32[{rows}, {steps}]", B=f"f32[{steps}, 4096]")
    assert (lanes, bool(found)) == (("n",), copied)


@pytest.mark.parametrize(
    ("k", "panels", "step"),
    [
        pytest.param(256, 43, 256 * 6 + 16, id="in two sets, more than the ways of both"),
        pytest.param(256, 16, 256 * 6, id="fewer than that"),
        pytest.param(257, 43, 257 * 6, id="in all sets"),
    ],
)
def test_panels_that_would_crowd_lie_a_line_apart(k: int, panels: int, step: int) -> None:
    hw, layout = load_named("x86_64_avx2"), Layout((("m", 1),), (0, 1))  # L1: 64 sets of 8 ways
    program = program_of(f"""
        block main [] (in A[0, 0] f32({k}, {6 * panels})  out R[0, 0]:assign f32({panels}, 6)) {{
          block t [m:{panels}] (in A[0, 6*m] f32({k}, 6)  out R[m, 0]:assign f32(1, 6)) {{
            block c [k:{k}, i:6] (in A[k, i] f32(1, 1)  out R[0, i]:add f32(1, 1)) {{
              $a = load(A) f32
              R = store($a) }} }} }}""")
    (block,) = program.root.children
    dense = pack(program.root, block, block.refinement("A"), layout, Names())
    assert dense.buffer.strides == (k * 6, 6, 1)
    packed = spaced(dense, layout, hw)
    assert packed.buffer.strides == (step, 6, 1)
    assert not findings(replace(program, root=inserted(program.root, block, packed)))


@pytest.mark.parametrize(
    ("statements", "computes"),
    [
        ("$a = load(A)  T = store($a)", False),
        ("$a = load(A)  $b = neg($a) f32  T = store($b)", True),
        ("$a = load(A)  $b = cast($a) f32  T = store($b)", True),
    ],
    ids=["copied", "computed", "converted"],
)
def test_what_a_copy_reads_is_not_copied_before(statements: str, computes: bool) -> None:
    program = program_of(f"""
        block main [] (in A[0, 0] f32(8, 64)  out R[0, 0]:assign f32(8, 64)) {{
          block t [m:8] (in A[m, 0] f32(1, 64)  out R[m, 0]:assign f32(1, 64)  new T f32(64)) {{
            block p [i:64] (in A[0, i] f32(1, 1)  out T[i]:assign f32(1)) {{ {statements} }}
            block c [i:64] (in T[i] f32(1)  out R[0, i]:assign f32(1, 1)) {{ $t = load(T)  R = store($t) }}
          }} }}""")
    assert computed_with(program.root.children[0], "A") == computes


def test_pieces_of_a_line_of_rows_that_are_pages_apart_are_read_where_they_lie() -> None:
    """Cores that fetch on along rows get nothing of these in vain, and a line comes while the one before is
    used: a copy would take longer than what is waited for."""
    text = "function (A[K, M], B[K, N]) -> (C) { C[m, n : M, N] = +(A[k, m] * B[k, n]); }"
    lanes, copies = settled(text, "x86_64_amx", A="f32[1000, 1000]", B="f32[1000, 256]")
    assert (lanes, copies) == (("n",), [])
