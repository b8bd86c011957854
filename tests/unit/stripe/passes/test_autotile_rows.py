"""autotile where another leaf takes the sums as they are made, for the maximum of each row, say."""

from __future__ import annotations

import numpy as np
import pytest

from stripe.diag import Remark
from stripe.ir import Direction, Program
from stripe.passes.base import PassContext
from stripe.passes.kernels import run_pass
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.visit import walk
from stripec.driver import read_program
from stripec.tensors import as_type
from tests.support.executions import pipeline, target
from tests.support.meaning import assert_same_meaning
from tests.support.passes import chosen_of

ROWS = (
    "function (A[M, K], B[K, N], D[N]) -> (S, X) {"
    " T[m, n : M, N] = +(A[m, k] * B[k, n]); S = T + D; X[m : M] = >(S[m, n]); }"
)


def rows(m: int, n: int, k: int) -> Program:
    shapes = {"A": f"f32[{m}, {k}]", "B": f"f32[{k}, {n}]", "D": f"f32[{n}]"}
    return read_program(ROWS).lower({name: as_type(s, name) for name, s in shapes.items()}, [])


def compiled(program: Program) -> tuple[Program, list[Remark]]:
    hw = target("x86_64_zen3")
    remarks = list[Remark]()
    for step in pipeline("x86_64_zen3"):
        context = PassContext(hw)
        program = run_pass(step, program, context)
        remarks += context.remarks
    return program, remarks


@pytest.mark.parametrize("shape", [(256, 1000, 2048), (49, 2048, 512)])
def test_maxima_take_no_registers_from_sums(shape: tuple[int, int, int]) -> None:
    """A maximum takes the place of the first sums that it is taken of."""
    result, _ = compiled(rows(*shape))
    held = [
        r for _, b in walk(result.root) for r in b.refinements if r.direction is Direction.NEW and r.location
    ]
    assert max(int(np.prod(r.shape)) for r in held) // 8 >= 10


def test_tiles_of_a_cache_cut_what_only_maxima_are_taken_of() -> None:
    """Panels of B are copied from long pieces of its rows; the few maxima go on from tile to tile."""
    _, remarks = compiled(rows(49, 2048, 512))
    (text,) = [r.message for r in remarks if r.acted and "bytes of L2" in r.message]
    assert "n:128" in text


def test_they_compute_the_same() -> None:
    program = rows(21, 300, 90)
    result = run_pipeline(program, pipeline("x86_64_zen3"), target("x86_64_zen3"))
    assert_same_meaning(program, result, np.random.default_rng(1))


NORM = (
    "function (X[N, C], G[C], B[C]) -> (R) { S[n, 0 : N, 1] = +(X[n, c]); D = X - S / C; Q = D * D;"
    " V[n, 0 : N, 1] = +(Q[n, c]); K = 1 / sqrt(V / C + 0.00001); R = D * K * G + B; }"
)
SOFTMAX = (
    "function (X[N, C]) -> (R) { M[n, 0 : N, 1] = >(X[n, c]); E = exp(X - M);"
    " S[n, 0 : N, 1] = +(E[n, c]); R = E / S; }"
)


@pytest.mark.parametrize(
    ("text", "shapes", "beside"),
    [
        pytest.param(NORM, {"X": "f32[4096, 768]", "G": "f32[768]", "B": "f32[768]"}, False, id="sums"),
        pytest.param(NORM, {"X": "f32[300, 4096]", "G": "f32[4096]", "B": "f32[4096]"}, False, id="long"),
        pytest.param(SOFTMAX, {"X": "f32[1000, 1024]"}, True, id="of exponentials"),
    ],
)
def test_rows_that_are_only_summed_up_need_no_others_beside(
    text: str, shapes: dict[str, str], beside: bool
) -> None:
    """Four vectors of a row take turns, which hides the time that an addition takes, but not all that an
    exponential does."""
    program = read_program(text).lower({name: as_type(s, name) for name, s in shapes.items()}, [])
    found: list[str] = []

    def observe(report: StepReport, _: Program) -> None:
        if report.step.name == "autotile":
            found.extend(remark.block for remark in report.remarks if remark.acted)

    run_pipeline(program, pipeline("x86_64_zen5"), target("x86_64_zen5"), observers=[observe], verify="off")
    assert found == (["main/R"] if beside else [])


@pytest.mark.parametrize("taps", [3, 7])
@pytest.mark.parametrize("target_name", ["x86_64_zen3", "x86_64_zen4"])
def test_windows_of_a_picture_that_no_cache_holds_go_on_along_its_rows(target_name: str, taps: int) -> None:
    """Down its columns, the rows that neighbours share would stay in the nearest cache; but each tile would
    wait for pieces of rows that nobody has touched before."""
    size = f"H - {taps - 1}, W - {taps - 1}"
    text = f"function (I[H, W], K[R, S]) -> (O) {{ O[y, x : {size}] = +(I[y + r, x + s] * K[r, s]); }}"
    shapes = {"I": "f32[1080,1920]", "K": f"f32[{taps},{taps}]"}
    program = read_program(text).lower({name: as_type(shape, name) for name, shape in shapes.items()}, [])
    remarks = list[Remark]()
    for step in pipeline(target_name):
        context = PassContext(target(target_name))
        program = run_pass(step, program, context)
        remarks += context.remarks
    (chosen,) = [chosen_of(r) for r in remarks if r.acted and "vector registers" in r.message]
    assert chosen["order"][-1] == "x"
