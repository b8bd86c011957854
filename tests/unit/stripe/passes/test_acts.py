"""Which blocks each pass of a shipped pipeline transforms: one that silently stops fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import pass_spec
from tests.support.executions import pipeline, target
from tile_frontend import compile_tile

ROOT = Path(__file__).parents[4]

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "conv": {"I": (56, 56, 64), "F": (3, 3, 64, 64)},
    "matmul": {"A": (1024, 1024), "B": (1024, 1024), "D": (1024,)},
    "softmax": {"X": (128, 1000)},
    "digits": {"X": (1797, 64), "W1": (64, 32), "B1": (32,), "W2": (32, 10), "B2": (10,)},
    "edges": {"I": (427, 640, 3), "L": (3,), "G": (5,), "S": (3,), "D": (3,), "T": ()},
}

# Step -> the blocks that it acted on, by their paths.
ACTED = {
    "conv": """
        autotile{memory=L2}: main/O
        autotile{memory=REG}: main/O/O
        localize{accumulators=REG}: main/O/O/O
        canonicalize: main/O
        vectorize: main/O/O/O main/O/O/O_copy
        unroll: main/O/O/O main/O/O/O_copy
        boundary{max_variants=20, min_gain=2}: main/O
    """,
    "matmul": """
        fuse: main/R
        localize: main/R
        autotile{memory=L2}: main/R
        autotile{memory=REG}: main/R/R
        localize{accumulators=REG}: main/R/R/C
        transpose: main/R
        vectorize: main/R/B_pack main/R/R/R/C main/R/R/R/R
        unroll: main/R/R/R/C main/R/R/R/R
        boundary{max_variants=20, min_gain=2}: main/R
    """,
    "digits": """
        fuse: main/LABEL main/BEST main/R
        localize: main/R main/BEST main/LABEL
        scalarize: main/BEST/BEST main/LABEL
        autotile{memory=L2}: main/R
        autotile{memory=REG}: main/R/R main/BEST main/LABEL
        localize{accumulators=REG}: main/R/R/A main/BEST/S main/BEST/BEST main/LABEL/LABEL
        vectorize: main/R/R/A main/R/R/R main/BEST/S main/BEST/BEST/BEST main/BEST/BEST/BEST_copy
                   main/LABEL/LABEL main/LABEL/LABEL_copy
        unroll: main/R/R/A main/R/R/R main/BEST/S main/BEST/BEST/BEST main/BEST/BEST/BEST_copy
                   main/LABEL/LABEL_copy
        boundary{max_variants=20, min_gain=2}: main/R main/BEST
    """,
    "edges": """
        split: main
        fuse: main/STEEP main/FALLING main/AHEAD_1 main/BEHIND_1_2 main/RIDGE_1_2 main/E_4
          main/RIDGE_2_1 main/RIDGE_4 main/UR_1_1 main/LF_1_2 main/DN_1 main/UP_1_1 main/DL_1
          main/UR main/UL_2 main/AHEAD_1_1_1 main/BEHIND_1_1_1 main/BEHIND_1_2_1_1 main/BEHIND_1_2_1
          main/E_1 main/E_7 main/E_3 main/E_5 main/RIDGE_2 main/RIDGE_5 main/LF_2 main/UP_2
          main/UL_1_1 main/UR_2 main/AHEAD_1_2_1 main/BEHIND_1_1 main/BEHIND_1_2_1_2 main/E main/E_2
          main/E_6 main/E_8
        localize: main/FALLING main/E_5 main/E_8 main/E_7 main/FALLING/FALLING main/E_5/AHEAD_1_1_1
          main/E_5/AHEAD_1 main/E_5/E_5 main/E_5/E_5/E_5 main/E_5/E_5/E_4
        scalarize: main/FALLING/FALLING main/E_5/AHEAD_1_1_1 main/E_5/AHEAD_1 main/E_5/E_5/E_4
          main/E_5/E_5/E_5 main/E_7 main/E_8
        fuse{share=tiles}: main/FALLING
        canonicalize: main/FALLING main/E_5 main/E_7 main/E_8
        autotile{memory=REG}: main/FALLING/Y main/FALLING/BX main/FALLING/B main/FALLING/SY
          main/FALLING/SX main/FALLING/GY main/FALLING/FALLING
        localize{accumulators=REG}: main/FALLING/Y/Y main/FALLING/BX/BX main/FALLING/B/B
          main/FALLING/SY/SY main/FALLING/SX/SX main/FALLING/GY/GY main/FALLING/FALLING/GX
        canonicalize: main/FALLING
        vectorize: main/FALLING/Y/Y main/FALLING/Y/Y_copy main/FALLING/BX/BX main/FALLING/BX/BX_copy
          main/FALLING/B/B main/FALLING/B/B_copy main/FALLING/SY/SY main/FALLING/SY/SY_copy
          main/FALLING/SX/SX main/FALLING/SX/SX_copy main/FALLING/GY/GY main/FALLING/GY/GY_copy
          main/FALLING/FALLING/GX main/FALLING/FALLING/FALLING main/E_5/AHEAD_1 main/E_5/E_5/E_4
          main/E_7
        unroll: main/FALLING/Y/Y main/FALLING/Y/Y_copy main/FALLING/BX/BX main/FALLING/BX/BX_copy
          main/FALLING/B/B main/FALLING/B/B_copy main/FALLING/SY/SY main/FALLING/SY/SY_copy
          main/FALLING/SX/SX main/FALLING/SX/SX_copy main/FALLING/GY/GY main/FALLING/GY/GY_copy
          main/FALLING/FALLING/GX main/FALLING/FALLING/FALLING
        boundary{max_variants=20, min_gain=2}: main/FALLING main/FALLING_1
        canonicalize: main/FALLING main/FALLING_1
    """,
    "softmax": """
        fuse: main/S main/R
        localize: main/R
        scalarize: main/R/S
        autotile{memory=REG}: main/R
        localize{accumulators=REG}: main/R/M main/R/S
        vectorize: main/R/M main/R/S main/R/R
        unroll: main/R/M main/R/S
    """,
}


@pytest.mark.parametrize("name", ACTED)
def test_each_pass_acts_where_it_did(name: str) -> None:
    folder = ROOT / ("examples" if name in ("conv", "matmul", "softmax") else "stripec/demo")
    text = (folder / f"{name}.tile").read_text(encoding="utf-8")
    types = {tensor: TensorType(DType.F32, shape) for tensor, shape in SHAPES[name].items()}
    found: list[str] = []

    def observe(report: StepReport, _: object) -> None:
        blocks = dict.fromkeys(remark.block for remark in report.remarks if remark.acted)
        if blocks:
            found.append(f"{pass_spec(report.step)}: {' '.join(blocks)}")

    program = compile_tile(Source(f"{name}.tile", text), types)
    run_pipeline(program, pipeline("x86_64_avx512"), target("x86_64_avx512"), observers=[observe])
    # A line that begins further in belongs to the one before.
    wanted = [line.strip() for line in re.sub(r"\n {10,}", " ", ACTED[name]).splitlines()]
    assert found == [line for line in wanted if line]


def packed(m: int, n: int, k: int) -> list[str]:
    """What is packed of a product, and how."""
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    found: list[str] = []

    def observe(report: StepReport, _: object) -> None:
        said = (r.message for r in report.remarks if r.acted and r.pass_name == "transpose")
        found.extend(message.partition(":")[0] for message in said)

    types = {"A": TensorType(DType.F32, (m, k)), "B": TensorType(DType.F32, (k, n))}
    program = compile_tile(Source("far.tile", text), types)
    run_pipeline(program, pipeline("x86_64_avx512"), target("x86_64_avx512"), observers=[observe])
    return found


def test_rows_a_power_of_two_apart_are_packed() -> None:
    assert packed(1024, 1024, 1024) == ["packed 'B' in panels along n"]


def test_few_rows_of_a_product_read_the_other_matrix_as_it_lies() -> None:
    # Pieces of the sum have 64 rows, each of which goes on where the last tile in registers has left it.
    assert packed(12, 3072, 768) == []
