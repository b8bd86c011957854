"""fuse and long sums: those that a core's own cache has no tile for stay apart, and are cut into pieces."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hwconfigs.model import HwConfig
from stripe.analysis.fusion_sums import wants_cutting
from stripe.ir import Block, Program
from stripe.passes.fuse import Fuse
from stripe.passes.pipeline import run_pipeline
from stripe.visit import walk
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline, target
from tests.support.meaning import assert_same_meaning
from tests.support.passes import check_pass

DENSE = "function (A[M, K], B[K, N], D[N]) -> (C) { T[m, n : M, N] = +(A[m, k] * B[k, n]); C = relu(T + D); }"


def dense(m: int, n: int, k: int) -> Program:
    shapes = {"A": f"f32[{m}, {k}]", "B": f"f32[{k}, {n}]", "D": f"f32[{n}]"}
    types = {name: as_type(shape, name) for name, shape in shapes.items()}
    return read_program(DENSE).lower(types, [])


def small(name: str = "x86_64_avx2") -> HwConfig:
    """A target with 8 KiB of L2, and caches around it that fit."""
    hw = target(name)
    sizes = {"L1": 4096, "L2": 8192, "L3": 131072}
    return replace(hw, memories=tuple(replace(m, bytes=sizes.get(m.name, m.bytes)) for m in hw.memories))


def said(program: Program, hw: HwConfig) -> tuple[int, str]:
    """How many blocks fuse leaves, and what it says of the last one."""
    result, remarks = check_pass(program, Fuse(), hw)
    return len(result.root.children), remarks[-1].message


def test_a_long_sum_stays_apart_to_be_cut() -> None:
    blocks, message = said(dense(32, 32, 256), small())
    assert blocks == 2
    assert "not fused with 'T': the sum of 256 terms is too long for a tile of L2; alone it is cut" in message


def test_a_short_sum_is_fused() -> None:
    blocks, message = said(dense(32, 32, 16), small())
    assert (blocks, message) == (1, "fused with 'T' over m, n")


def test_a_long_sum_whose_operand_comes_once_is_fused() -> None:
    """Pieces of it would be used no more often."""
    assert said(dense(2, 64, 256), small())[0] == 1


@pytest.mark.parametrize(
    ("m", "constants", "blocks"),
    [(49, [], 2), (49, ["B"], 1), (256, [], 1)],
    ids=["copied for few rows", "copied at load time", "copied for many rows"],
)
def test_a_sum_that_would_copy_for_few_results_stays_apart(m: int, constants: list[str], blocks: int) -> None:
    shapes = {"A": f"f32[{m}, 512]", "B": "f32[512, 2048]", "D": "f32[2048]"}
    types = {name: as_type(shape, name) for name, shape in shapes.items()}
    program = read_program(DENSE).lower(types, constants)
    result, remarks = check_pass(program, Fuse(), target("x86_64_zen5"))
    assert len(result.root.children) == blocks
    if blocks == 2:
        assert "tiles of whole sums copy what they read; alone it is cut into pieces" in remarks[-1].message


@pytest.mark.parametrize(
    ("weights", "shape", "blocks"),
    [("r, s, c, k", "3, 3, 512, 512", 2), ("c, r, s, k", "512, 3, 3, 512", 1)],
    ids=["as the picture lies", "in another order"],
)
def test_a_sum_over_several_indexes_is_cut_where_inputs_lie_in_one_order(
    weights: str, shape: str, blocks: int
) -> None:
    """In another order pieces need copies, too."""
    text = (
        f"function (I[N, H, W, C], F[{', '.join(weights.upper().split(', '))}], B[K]) -> (O) {{"
        f" T[n, y, x, k : N, 7, 7, K] = +(I[n, y + r - 1, x + s - 1, c] * F[{weights}]);"
        " O = relu(T + B); }"
    )
    shapes = {"I": "f32[1, 7, 7, 512]", "F": f"f32[{shape}]", "B": "f32[512]"}
    types = {name: as_type(entry, name) for name, entry in shapes.items()}
    hw = target("x86_64_amx")
    hw = replace(
        hw, memories=tuple(replace(m, bytes=480 << 20) if m.name == "L3" else m for m in hw.memories)
    )
    steps = pipeline("x86_64_amx")
    upto = next(at for at, step in enumerate(steps) if isinstance(step, Fuse))
    fused = run_pipeline(read_program(text).lower(types, []), steps[: upto + 1], hw, verify="off")
    assert len(fused.root.children) == blocks


def test_what_is_packed_at_load_time_streams_past_well_enough() -> None:
    """3x3 of 512 channels: the weights stay in L3, and lie in the order in which they are read."""
    text = (
        "function (I[N, H, W, C], F[R, S, C, K], B[K]) -> (O) {"
        " T[n, y, x, k : N, 7, 7, K] = +(I[n, y + r - 1, x + s - 1, c] * F[r, s, c, k]); O = relu(T + B); }"
    )
    shapes = {"I": "f32[1, 7, 7, 512]", "F": "f32[3, 3, 512, 512]", "B": "f32[512]"}
    types = {name: as_type(shape, name) for name, shape in shapes.items()}
    for constants, blocks in (([], 2), (["F", "B"], 1)):
        steps = pipeline("x86_64_zen3")
        upto = next(at for at, step in enumerate(steps) if isinstance(step, Fuse))
        program = read_program(text).lower(types, constants)
        fused = run_pipeline(program, steps[: upto + 1], target("x86_64_zen3"), verify="off")
        assert len(fused.root.children) == blocks


def test_the_pieces_add_up() -> None:
    """In the whole pipeline the sum that stays apart is cut, and computes the same."""
    program, hw = dense(16, 48, 256), small()
    result = run_pipeline(program, pipeline("x86_64_avx2"), hw)
    sums = [b for _, b in walk(result.root) if _adds(b) and "k" in b.ranges]
    assert len(sums) > 1
    assert_same_meaning(program, result, np.random.default_rng(0))


def _adds(block: Block) -> bool:
    return any(str(ref.aggregation) == "add" for ref in block.refinements)


def test_without_a_cache_of_its_own_a_core_has_no_say() -> None:
    hw = target("systolic_16")
    program = dense(32, 32, 4096)
    first, second = program.root.children
    assert wants_cutting(first, second, {}, frozenset(), hw, 0) == ""


# -- rows that are used twice --------------------------------------------------------------------

NORMAL = """function (A[M, N], X[N], Z[M]) -> (Y) {
    T[m : M] = +(A[m, n] * X[n]); E = T - Z; Y[n : N] = +(A[m, n] * E[m]);
}"""


def normal(m: int, n: int) -> Program:
    shapes = {"A": f"f32[{m}, {n}]", "X": f"f32[{n}]", "Z": f"f32[{m}]"}
    return read_program(NORMAL).lower({name: as_type(shape, name) for name, shape in shapes.items()}, [])


def test_rows_from_main_memory_are_used_twice_while_they_are_near() -> None:
    """A'(A x - z): what adds up over the rows is kept in a cache, so that A is read once."""
    result, remarks = check_pass(normal(400, 100), Fuse(), small(), rtol=1e-4)
    assert [block.name for block in result.root.children] == ["Y"]
    assert [r.message for r in remarks if r.acted] == ["fused with 'T' over m", "fused with 'E' over m"]
    (shared,) = result.root.children
    assert shared.ranges == {"m": 400}


@pytest.mark.parametrize(
    ("m", "n"), [(100, 100), (3, 40000)], ids=["rows in a shared cache", "sums beyond all caches"]
)
def test_rows_are_read_again_where_that_takes_less_than_sums_in_a_cache(m: int, n: int) -> None:
    result, remarks = check_pass(normal(m, n), Fuse(), small("x86_64_zen4"), rtol=1e-4)
    assert [block.name for block in result.root.children] == ["E", "Y"]
    assert "the accumulators of 'Y' would leave the registers" in remarks[-1].message
