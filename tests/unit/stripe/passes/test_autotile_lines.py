"""autotile: the lines at the ends of rows, the copies that tiles make, and rows of one page."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.convolution import depthwise
from benchmarks.formulas import permute, transpose
from benchmarks.problems import Contraction, Matmul
from hwconfigs.load import load_named
from stripe.diag import Remark
from stripe.input_strides import with_strides
from stripe.ir import Block, Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import Pass, PassContext
from stripe.passes.pipeline import run_pipeline
from stripe.passes.stencil_pack import StencilPack
from stripe.visit import walk
from tests.support.executions import pipeline
from tests.support.passes import chosen_of, program_of
from tests.support.problems import lowered


def contraction(strings: str, size: int) -> Program:
    """The contraction of these strings, where all letters have the same size."""
    problem = Contraction(strings, tuple((letter, size) for letter in sorted({*strings} - {"-"})))
    return lowered(problem)


def leaf_in_registers(program: Program, steps: Sequence[Pass], target: str) -> Block:
    """The last leaf as the steps up to the tiles in registers leave it."""
    upto = next(n for n, step in enumerate(steps) if isinstance(step, Autotile) and step.memory == "REG")
    result = run_pipeline(program, steps[: upto + 1], load_named(target), verify="off")
    return [block for _, block in walk(result.root) if not block.children][-1]


def tiled(program: Program, target: str) -> tuple[dict[str, int], int]:
    """The sizes of the tile for L2, and the bytes that it needs there."""
    context = PassContext(load_named(target))
    Autotile(memory="L2").run(program, context)
    (remark,) = context.remarks
    assert remark.acted, remark.message
    chosen = chosen_of(remark)
    return chosen["sizes"], chosen["needed"]


@pytest.mark.parametrize(
    ("left", "right", "whole"),
    [("afbce", "df", "eda"), ("dabfe", "fc", "eca")],
)
def test_rows_of_a_line_and_a_half_are_taken_whole(left: str, right: str, whole: str) -> None:
    """Of both the result and what it is made of. Memory binds: as tiles are not small in both, they may be
    parts of those in registers."""
    sizes, _ = tiled(contraction(f"edcba-{left}-{right}", 24), "x86_64_zen3")
    assert all(sizes[name] == 24 for name in whole)
    assert sizes["b"] == 2


def test_tiles_of_elements_with_narrow_gaps_take_whole_lines() -> None:
    """Every second column of B: a tile of one column would bring in each of its lines for one element."""
    dense = lowered(Matmul(8, 1024, 1024))
    program = with_strides(dense, {"A": (2048, 2), "B": (2048, 2)})
    sizes, needed = tiled(program, "x86_64_zen4")
    assert sizes["n"] >= 16
    assert needed >= 4 * (8 * 2048 + 1024 * 2 * sizes["n"] + 8 * sizes["n"])


def test_parts_of_tiles_in_registers_have_to_save_more_than_they_cost() -> None:
    """Memory binds here, too: f:2 and c:2, a third of what registers take, would save 1.4 percent."""
    sizes, _ = tiled(contraction("fedcba-cged-bafg", 16), "x86_64_zen3")
    assert sizes == {"f": 1, "e": 1, "d": 16, "c": 16, "b": 16, "a": 16}


def test_copies_that_tiles_make_have_no_gaps() -> None:
    """Pieces of rows of X, 32 bytes long, come in lines; what stays in L2 are the copies."""
    sizes, needed = tiled(contraction("cba-adb-cd", 120), "x86_64_zen4")
    assert sizes == {"c": 120, "b": 8, "a": 64}
    copy, y, z = 120 * 64 * 8 * 4, 120 * 120 * 4, 120 * 8 * 64 * 4
    assert copy + y + z <= needed < 2 * copy + y + z


def test_sums_are_cut_where_most_of_the_time_goes_into_copies() -> None:
    """With all of e and f a tile would copy two elements of each line of Y."""
    sizes, _ = tiled(contraction("abcd-aebf-fdec", 32), "x86_64_zen4")
    assert sizes["e"] * sizes["f"] < 32 * 32
    assert sizes["c"] == 16


@pytest.mark.parametrize("target", ["x86_64_zen5", "x86_64_amx"])
def test_groups_of_an_instruction_are_no_further_sum(target: str) -> None:
    """What each tile reads of B with all of k lies on a page for each pair of its rows: fewer pairs are taken
    of longer rows, as they are of a matrix of f32."""
    problem = Matmul(32, 4096, 4096, left="bf16", right="bf16", out="f32")
    context = PassContext(load_named(target))
    laid_out = StencilPack().run(lowered(problem), context)
    Autotile(memory="L2").run(laid_out, context)
    sizes = chosen_of(context.remarks[-1])["sizes"]
    assert sizes["p"] == 2 and sizes["k"] <= 128 and sizes["n"] >= 512


@pytest.mark.parametrize(
    ("rows", "steps", "beside", "target"),
    [
        pytest.param(65536, 128, False, "x86_64_zen3", id="a page of several rows"),
        pytest.param(65536, 400, False, "x86_64_zen3", id="of two rows"),
        pytest.param(4096, 4096, True, "x86_64_zen3", id="pages of one row"),
        pytest.param(2048, 128, True, "x86_64_zen3", id="in the caches"),
        pytest.param(4096, 4096, False, "x86_64_zen5", id="a core that fetches deep along one row"),
    ],
)
def test_rows_that_are_fetched_ahead_come_one_after_the_other(
    rows: int, steps: int, beside: bool, target: str
) -> None:
    """A matrix times a vector, from memory: most hardware fetches ahead along one row of each page."""
    remark = with_a_vector("A[m, k]", rows, steps, target)
    assert remark.acted == beside
    assert beside or remark.message == "not tiled: each of its points is a tile already"


@pytest.mark.parametrize(
    ("target", "columns", "rows", "sizes"),
    [
        pytest.param("x86_64_zen4", 4096, 4096, {"k": 8, "m": 32}, id="pieces of rows side by side"),
        pytest.param("x86_64_zen5", 4096, 4096, {"k": 8, "m": 4096}, id="whole rows, fetched deep"),
        pytest.param("x86_64_zen5", 4096, 4097, {"k": 8, "m": 4096}, id="a number that is prime to it"),
        pytest.param("x86_64_zen5", 4096, 768, {"k": 1, "m": 64}, id="in the shared cache"),
        pytest.param("x86_64_zen5", 1024, 1021, {"k": 1, "m": 64}, id="there in whole lines"),
        pytest.param("x86_64_zen5", 1019, 1021, {"k": 1, "m": 1019}, id="there in parts of lines"),
        pytest.param("x86_64_zen5", 3501, 1021, {"k": 8, "m": 32}, id="which fill more than half of L1"),
        pytest.param("x86_64_zen4", 1019, 1021, {"k": 6, "m": 32}, id="which are not fetched deep"),
    ],
)
def test_rows_that_are_added_to_results_in_memory(
    target: str, columns: int, rows: int, sizes: dict[str, int]
) -> None:
    remark = with_a_vector("A[k, m]", columns, rows, target)
    assert chosen_of(remark)["sizes"] == sizes


@pytest.mark.parametrize(
    ("target", "n", "k", "sizes"),
    [
        pytest.param("x86_64_zen4", 4096, 4096, {"k": 2, "n": 128, "p": 4}, id="two groups side by side"),
        pytest.param("x86_64_zen5", 4096, 4096, {"k": 2, "n": 128, "p": 4}, id="half of the shared cache"),
        pytest.param("x86_64_zen5", 4096, 3072, {"n": 128, "p": 4}, id="in the shared cache"),
        pytest.param("x86_64_zen5", 6144, 2048, {"k": 512, "n": 384, "p": 4}, id="rows on two sets"),
    ],
)
def test_rows_that_are_woven_are_added_to_results_in_memory(
    target: str, n: int, k: int, sizes: dict[str, int]
) -> None:
    """Four rows of bytes are one group for the instruction. Where they are not on one set of L1, results stay
    in registers."""
    problem = Matmul(1, n, k, left="u8", right="i8", out="i32")
    leaf = leaf_in_registers(lowered(problem), pipeline(target), target)
    assert dict(leaf.ranges) == sizes


def with_a_vector(access: str, m: int, k: int, target: str) -> Remark:
    """What is said of a matrix times a vector: Y[m], the sum over k of A, of `m` times `k` elements."""
    shape = {"A[m, k]": (m, k), "A[k, m]": (k, m)}[access]
    program = program_of(f"""
    block main [] (in A[0, 0] f32{shape}  in X[0] f32({k})  out Y[0]:assign f32({m})) {{
      block y [m:{m}, k:{k}] (in {access} f32(1, 1)  in X[k] f32(1)  out Y[m]:add f32(1)) {{
        $a = load(A) f32
        $x = load(X) f32
        $y = mul($a, $x) f32
        Y = store($y)
      }}
    }}""")
    context = PassContext(load_named(target))
    Autotile(memory="REG").run(program, context)
    (remark,) = context.remarks
    return remark


@pytest.mark.parametrize(
    ("target", "m", "n", "rows"),
    [
        pytest.param("x86_64_zen5", 2048, 2048, 64, id="as many as are fetched ahead"),
        pytest.param("x86_64_zen5", 1000, 1024, 64, id="along whole rows, where those of the result are odd"),
        pytest.param("x86_64_zen5", 1000, 1000, 192, id="rows on many sets"),
        pytest.param("x86_64_zen4", 2048, 2048, 128, id="as many as L1 keeps two lines of"),
    ],
)
def test_squares_go_along_so_many_rows_in_turn(target: str, m: int, n: int, rows: int) -> None:
    sizes, _ = tiled(lowered(transpose(m, n)), target)
    assert sizes["m"] <= rows < 4 * sizes["m"]
    assert sizes["n"] >= 256


def test_loops_go_along_what_crowds_into_few_sets() -> None:
    """Along d, Y has a line in each fourth set of L1, 12 of its 12 ways: they do not stay there until e,
    which goes along them, has moved on. So e goes inside, where each line of Y is used up at once."""
    steps = [step for step in pipeline("x86_64_zen5") if getattr(step, "memory", "") != "L2"]
    leaf = leaf_in_registers(contraction("cba-ceda-dbe", 48), steps, "x86_64_zen5")
    assert [name for name in leaf.ranges if name in "de"] == ["d", "e"]


@pytest.mark.parametrize(("target", "whole"), [("x86_64_amx", True), ("x86_64_zen5", False)])
def test_a_tile_reads_no_more_rows_in_turn_than_a_core_follows(target: str, whole: bool) -> None:
    """A depthwise window at every second pixel, from L3: a tile of 16 channels of 4 x 7 pixels would read one
    line of each of 135 pixels, and the next tile those beside them. All channels of fewer pixels are whole
    rows. A core that fetches what it is asked for, and no more, follows any number."""
    problem = depthwise(1, 112, 112, 64, stride=2)
    leaf = leaf_in_registers(lowered(problem), pipeline(target), target)
    assert (leaf.ranges["g"] == 64) is whole


@pytest.mark.parametrize(("columns", "most"), [(1024, 12), (1000, 31)])
def test_tiles_of_short_sums_store_no_more_rows_than_one_set_takes(columns: int, most: int) -> None:
    """Rows of 1024 results lie a page apart, in one set of L1, which holds twelve lines. Rows of 27 would
    push out each other's."""
    leaf = leaf_in_registers(lowered(Matmul(1024, columns, 4)), pipeline("x86_64_zen5"), "x86_64_zen5")
    assert 1 < leaf.ranges["m"] <= most
    assert leaf.ranges["m"] * leaf.ranges["n"] >= 24 * 16


def test_a_tile_that_fits_in_registers_is_cut_where_its_rows_crowd() -> None:
    """A tile for L2 takes 22 rows of B, twice the 11 that one in registers should. All would fit there, but
    rows of 1024 meet in one set of L1, which holds twelve."""
    steps = pipeline("x86_64_zen5")
    leaf = leaf_in_registers(lowered(Matmul(16, 1024, 1024, tb=True)), steps, "x86_64_zen5")
    assert leaf.ranges["n"] < 12


@pytest.mark.parametrize(("rows", "columns", "whole"), [(79, 9, True), (3, 15, True), (2, 9, False)])
def test_copies_of_long_pieces_have_no_tiles(rows: int, columns: int, whole: bool) -> None:
    """Vectors go on from row to row of a piece, and would not where a tile cuts it; 72 bytes are short."""
    program = lowered(permute((106, 126, rows, columns), (1, 0, 2, 3)))
    context = PassContext(load_named("x86_64_zen4"))
    Autotile(memory="L2").run(program, context)
    (remark,) = context.remarks
    assert (remark.message == "not tiled: it takes whole lines of its operands, each once") == whole
