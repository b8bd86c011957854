"""Arrays of one dimension that are used as arrays of several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stripec
from benchmarks.polybench import darknet
from hwconfigs.load import load_named
from stripe.affine import Affine
from stripe.delinearize import delinearized
from stripe.input_strides import with_strides
from stripe.interp import interpret
from stripe.ir import Direction, Program
from stripe.printer import to_text
from stripe.verify import verify
from stripec.driver import optimise
from tests.support.problems import lowered, of_text


def shapes(program: Program) -> dict[str, tuple[int, ...]]:
    return {ref.name: ref.shape for ref in program.root.refinements}


def assert_same(before: Program, after: Program) -> None:
    """Whether two programs that see their arrays in other shapes compute the same."""
    verify(after)
    rng = np.random.default_rng(0)
    inputs = {
        ref.name: rng.standard_normal(ref.shape).astype(ref.dtype.numpy)
        for ref in before.root.refinements
        if ref.direction is Direction.IN
    }
    seen = shapes(after)
    wanted = interpret(before, inputs)
    got = interpret(after, {name: array.reshape(seen[name]) for name, array in inputs.items()})
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name].reshape(array.shape), array)


@pytest.mark.parametrize("kind", ["nn", "nt", "tn", "tt"])
def test_products_of_arrays_of_one_dimension_are_products_of_matrices(kind: str) -> None:
    before = lowered(darknet(kind, 4, 6, 5))
    after = delinearized(before)
    a, b = (4, 5) if kind[0] == "n" else (5, 4), (5, 6) if kind[1] == "n" else (6, 5)
    assert shapes(after) == {"A": a, "B": b, "C": (4, 6)}
    assert_same(before, after)


def test_only_accesses_and_shapes_change() -> None:
    after = delinearized(lowered(darknet("nt", 4, 6, 5)))
    assert to_text(after) == (
        "block main [] (\n"
        "  in A[0, 0] f32(4, 5):(5, 1)\n"
        "  in B[0, 0] f32(6, 5):(5, 1)\n"
        "  out C[0, 0]:assign f32(4, 6):(6, 1)\n"
        ") {\n"
        "  block C [i:4, j:6, k:5] (\n"
        "    in A[i, k] f32(1, 1):(5, 1)\n"
        "    in B[j, k] f32(1, 1):(5, 1)\n"
        "    out C[i, j]:add f32(1, 1):(6, 1)\n"
        "  ) {\n"
        "    $v0 = load(A) f32\n"
        "    $v1 = load(B) f32\n"
        "    $v2 = mul($v0, $v1) f32\n"
        "    C = store($v2)\n"
        "  }\n"
        "}\n"
    )


def test_several_dimensions_come_of_one() -> None:
    text = (
        "function (A[S], B[T]) -> (C) {\n"
        "  C[15*i + 5*j + k : 60] = +(A[12*i + 4*j + l] * B[l + 4*k]), i < 4, j < 3, k < 5, l < 4;\n}"
    )
    before = of_text(text, A="f32[48]", B="f32[20]")
    after = delinearized(before)
    assert shapes(after) == {"A": (4, 3, 4), "B": (5, 4), "C": (4, 3, 5)}
    assert_same(before, after)


def test_a_window_with_zeros_around_it_stays_within_its_row() -> None:
    """The constraints keep x + s - 1 within a row of 8; without them it would reach into those beside it."""
    text = (
        "function (I[48], F[9]) -> (O) {\n"
        "  O[8*y + x : 48] = +(I[8*y + 8*r + x + s - 9] * F[3*r + s]), y < 6, x < 8, r < 3, s < 3,\n"
        "    y + r - 1 < 6, x + s - 1 < 8;\n}"
    )
    before = of_text(text, I="f32[48]", F="f32[9]")
    after = delinearized(before)
    assert shapes(after) == {"I": (6, 8), "F": (3, 3), "O": (6, 8)}
    assert_same(before, after)


def test_a_loop_over_all_elements_becomes_two() -> None:
    text = (
        "function (A[NA], B[NB], C[NC]) -> (R) {\n"
        "  T[6*i + j : 24] = +(A[5*i + k] * B[6*k + j]), i < 4, j < 6, k < 5;\n"
        "  R = 1.5 * T + 1.2 * C;\n}"
    )
    before = of_text(text, A="f32[20]", B="f32[30]", C="f32[24]")
    after = delinearized(before)
    assert shapes(after)["T"] == (4, 6)
    ranges = [tuple(block.ranges.values()) for block in after.root.children]
    assert ranges == [(4, 6, 5), (4, 6)]
    assert_same(before, after)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(A[24]) -> (C) { C[i : 22] = +(A[i + j]), j < 3; }", "no access counts rows"),
        ("(A[24]) -> (C) { C[i : 10] = +(A[2*i + j]), j < 3; }", "windows overlap"),
        ("(A[25]) -> (C) { C[i : 6] = +(A[4*i + j]), j < 4; }", "25 elements are no rows of 4"),
        ("(A[24], K[3]) -> (B, C) { B[i : 6] = +(A[4*i + j]), j < 4; C = gather(A, K); }", "gather"),
        ("(A[3, 24]) -> (C) { C[n, i : 3, 6] = +(A[n, 4*i + j]), j < 4; }", "two dimensions"),
    ],
    ids=lambda text: text if text[0] != "(" else "",
)
def test_what_is_no_array_of_several_dimensions_stays(text: str, why: str) -> None:
    types = {"A": f"f32[{text.partition('A[')[2].partition(']')[0]}]"}
    if "K[" in text:
        types["K"] = "i32[3]"
    before = of_text(f"function {text}", **types)
    assert delinearized(before) is before, why


@pytest.mark.parametrize("bound", [False, True], ids=["given", "bound ahead"])
@pytest.mark.parametrize("kind", ["nn", "tt"])
def test_callers_see_arrays_of_one_dimension(kind: str, bound: bool) -> None:
    """Also where one is packed at load time; code has the tiles that it has for matrices."""
    problem = darknet(kind, 40, 50, 60)
    arrays = problem.arrays()
    constants = {"B": arrays["B"]} if bound else {}
    rest = {name: array for name, array in arrays.items() if name not in constants}
    kernel = stripec.compile(problem.tile, shapes=rest, constants=constants)
    out = np.empty(2000, np.float32)
    kernel(**rest, out=out)
    exact = problem.reference(*(array.astype(np.float64) for array in arrays.values()))
    np.testing.assert_allclose(out, exact, atol=1e-4)
    assert kernel(**rest).shape == (2000,)
    with pytest.raises(stripec.CompileError, match="shape"):
        kernel(**(rest | {"A": arrays["A"].reshape(40, 60)}))


def test_elements_that_lie_apart_keep_their_distance() -> None:
    before = with_strides(lowered(darknet("nn", 4, 6, 5)), {"A": (2,)})
    after = delinearized(before)
    assert after.root.refinement("A").strides == (10, 2)


def test_targets_without_cpu_get_the_program_as_it_is() -> None:
    program = lowered(darknet("nn", 16, 16, 16))
    done = optimise(program, load_named("tpu_like"), verify="off")
    assert shapes(done.program)["A"] == (256,)
    assert [ref.shape for ref in optimise(program, load_named("x86_64_zen4")).signature] == [(256,)] * 3


@given(
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.permutations(range(3)),
    st.permutations(range(3)),
    st.integers(0, 2),
)
def test_digits_in_any_order(sizes: list[int], left: list[int], right: list[int], spare: int) -> None:
    """Copies between arrays of one dimension, whose places count the same indexes in two orders; behind the
    last element there may be more that nobody reads."""

    def place(order: list[int]) -> Affine:
        terms, step = {}, 1
        for at in reversed(order):
            terms["abc"[at]], step = step, step * sizes[at]
        return Affine.of(terms)

    whole = int(np.prod(sizes))
    program = of_text("function (A[N]) -> (C) { C[i : 2] = =(A[i]); }", A="f32[2]")
    (block,) = program.root.children
    ranged = tuple(replace(block.indexes[0], name=n, range=s) for n, s in zip("abc", sizes, strict=True))
    views = tuple(
        replace(view, access=(place(left if view.name == "A" else right),)) for view in block.refinements
    )
    moved = replace(block, indexes=ranged, refinements=views)
    refinements = tuple(
        replace(ref, shape=(whole + (spare if ref.name == "A" else 0),)) for ref in program.root.refinements
    )
    before = Program(replace(program.root, refinements=refinements, statements=(moved,)))
    after = delinearized(before)
    assert_same(before, after)
    if len({size for size in sizes if size > 1}) > 1 and spare == 0:
        assert len(shapes(after)["A"]) > 1
