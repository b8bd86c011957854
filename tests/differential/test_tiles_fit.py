"""What autotile accepts has room: random sums of products and elementwise chains on near memories of 4 to
256 KiB. No later pass refuses the tiles, and what lies there at a time is at most what was counted."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.liveness import peaks
from stripe.diag import CompileError, Remark, Source
from stripe.ir import Direction, Program
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.verify_ready import unplaced
from stripec.driver import read_program
from tests.support.golden import input_types

NEAR = {"systolic_16": "SPAD", "vector_dsp": "LOCAL"}

PROGRAMS = (
    ("function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
     "A={t}[{m},{k}] B={t}[{k},{n}]"),
    ("function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n : M, N] = +(A[m, k] * B[k, n]); R = relu(C + D)*2; }",
     "A={t}[{m},{k}] B={t}[{k},{n}] D={t}[{n}]"),
    ("function (A[M, K], B[K, N], D[K, N]) -> (R) { C[m, n : M, N] = +(A[m, k] * B[k, n]);"
     " E[m, n : M, N] = +(A[m, k] * D[k, n]); R = C*E; }",
     "A={t}[{m},{k}] B={t}[{k},{n}] D={t}[{k},{n}]"),
    ("function (A, B, D) -> (R, S) { T = A*B + A; R = exp(T)*D; S = T - D; }",
     "A=f32[{m},{k}] B=f32[{m},{k}] D=f32[{k}]"),
    ("function (A[N, K]) -> (Y) { M[n, 0 : N, 1] = >(A[n, k]); E = exp(A - M);"
     " S[n, 0 : N, 1] = +(E[n, k]); Y = E / S; }",
     "A=f32[{m},{k}]"),
    ("function (I[H, W, C], F[R, S, C, K]) -> (O) {"
     " O[y, x, k : H, W, K] = +(I[y + r - 1, x + s - 1, c] * F[r, s, c, k]); }",
     "I={t}[{p},{q},{k}] F={t}[3,3,{k},{n}]"),
)  # fmt: skip


def drawn(chance: random.Random) -> tuple[Program, HwConfig, str]:
    target = chance.choice(tuple(NEAR))
    size = 1024 * chance.choice((4, 6, 8, 16, 32, 48, 64, 128, 256))
    hw, near = load_named(target), NEAR[target]
    sizes = {near: size, "ACC": max(4096, size // 4)}
    memories = tuple(msgspec.structs.replace(m, bytes=sizes.get(m.name, m.bytes)) for m in hw.memories)
    text, shapes = chance.choice(PROGRAMS)
    shape = shapes.format(
        t=chance.choice(("f32", "i8", "bf16")), m=chance.choice((1, 7, 16, 33, 100, 257)),
        n=chance.choice((1, 5, 16, 40, 129)), k=chance.choice((1, 3, 17, 64, 200, 700)),
        p=chance.choice((5, 13, 30)), q=chance.choice((6, 14, 31)),
    )  # fmt: skip
    program = read_program(Source("fits.tile", text)).lower(input_types({"shapes": shape}), ())
    return program, msgspec.structs.replace(hw, memories=memories), near


SEEDS = (*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 300)))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_accepted_tile_has_a_place(seed: int) -> None:
    program, hw, near = drawn(random.Random(seed))
    accepted: list[Remark] = []

    def look(report: StepReport, result: Program) -> None:
        if report.step.name == "autotile":
            accepted.extend(r for r in report.remarks if r.acted)

    try:
        placed = run_pipeline(program, check_pipeline(hw), hw, observers=[look])
    except CompileError as error:
        assert error.diagnostics[0].code == "P110", str(error)  # no tile fits, says autotile
        return
    assert unplaced(placed, hw) == ()
    kernels = {f"main/{kernel.name}": kernel for kernel in placed.root.children}
    for remark in accepted:
        counted = re.search(rf"\((\d+) of \d+ bytes of {near}", remark.message)
        if counted is None or remark.block not in kernels:
            continue
        kernel = kernels[remark.block]
        own = tuple(r for r in kernel.refinements if r.direction is Direction.NEW)
        most = peaks(replace(kernel, refinements=own), hw).get(near)
        assert most is None or most.bytes <= int(counted[1])


def test_parts_of_a_sum_stay_where_they_were_counted() -> None:
    """The tile fits, if the results of the array stay in ACC."""
    text, _ = PROGRAMS[2]
    shapes = "A=i8[16,3] B=i8[3,40] D=i8[3,40]"
    program = read_program(Source("fits.tile", text)).lower(input_types({"shapes": shapes}), ())
    hw = load_named("systolic_16")
    memories = tuple(msgspec.structs.replace(m, bytes=4096) if m.name == "SPAD" else m for m in hw.memories)
    placed = run_pipeline(program, check_pipeline(hw), msgspec.structs.replace(hw, memories=memories))
    assert unplaced(placed, hw) == ()
