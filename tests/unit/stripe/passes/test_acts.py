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

SHAPES = {
    "conv": {"I": (56, 56, 64), "F": (3, 3, 64, 64)},
    "matmul": {"A": (256, 256), "B": (256, 256), "D": (256,)},
    "softmax": {"X": (128, 1000)},
    "digits": {"X": (1797, 64), "W1": (64, 32), "B1": (32,), "W2": (32, 10), "B2": (10,)},
    "edges": {"I": (427, 640, 3), "L": (3,), "G": (5,), "S": (3,), "D": (3,), "T": ()},
}

# Step -> the blocks that it acted on, by their paths.
ACTED = {
    "conv": """
        boundary: main/O
        autotile{memory=L2}: main/O_3
        autotile{memory=REG}: main/O main/O_1 main/O_3/O_3 main/O_4 main/O_2
        localize{accumulators=REG}: main/O/O main/O_1/O_1 main/O_3/O_3/O_3 main/O_4/O_4 main/O_2/O_2
        vectorize: main/O/O main/O/O_copy main/O_1/O_1 main/O_1/O_copy main/O_3/O_3/O_3
          main/O_3/O_3/O_copy main/O_4/O_4 main/O_4/O_copy main/O_2/O_2 main/O_2/O_copy
        unroll: main/O/O main/O/O_copy main/O_1/O_1 main/O_1/O_copy main/O_3/O_3/O_3 main/O_3/O_3/O_copy
          main/O_4/O_4 main/O_4/O_copy main/O_2/O_2 main/O_2/O_copy
    """,
    "matmul": """
        fuse: main/R
        localize: main/R
        autotile{memory=REG}: main/R
        localize{accumulators=REG}: main/R/C
        boundary{max_variants=3}: main/R
        vectorize: main/R/C main/R/R main/R_1/C main/R_1/R
        unroll: main/R/C main/R/R main/R_1/C main/R_1/R
    """,
    "digits": """
        fuse: main/LABEL main/BEST main/R
        localize: main/R main/BEST main/LABEL
        scalarize: main/BEST/BEST main/LABEL
        autotile{memory=REG}: main/R main/BEST main/LABEL
        localize{accumulators=REG}: main/R/A main/BEST/S main/LABEL/LABEL
        boundary{max_variants=3}: main/R main/BEST
        vectorize: main/R/A main/R/R main/R_1/A main/R_1/R main/BEST/S main/BEST/BEST main/BEST_1/S
          main/BEST_1/BEST main/LABEL/LABEL main/LABEL/LABEL_copy
        unroll: main/R/A main/R/R main/R_1/A main/R_1/R main/BEST/S main/BEST/BEST main/BEST_1/S
          main/BEST_1/BEST main/LABEL/LABEL main/LABEL/LABEL_copy
    """,
    "edges": """
        fuse: main/STEEP main/FALLING main/RIDGE main/E main/R main/LF main/DN main/UP main/DR main/UL
          main/DL main/UR
        localize: main/UR main/E main/UR/UP main/UR/UP/DN main/UR/UP/DN/LF main/UR/UP/DN/LF/R
          main/UR/UP/DN/LF/R/FALLING
        scalarize: main/UR/UP/DN/LF/R/FALLING main/E
        canonicalize: main
        boundary: main/B main/SY main/GY main/UR
        autotile{memory=L2}: main/Y main/BX main/B_1 main/SY_1 main/SX main/GY_1 main/UR_1 main/E
        autotile{memory=REG}: main/Y/Y main/BX/BX main/B main/B_1/B_1 main/B_2 main/SY main/SY_1/SY_1
          main/SY_2 main/SX/SX main/GY main/GY_1/GY_1 main/GY_2 main/UR main/UR_1/UR_1 main/UR_2
        localize{accumulators=REG}: main/Y/Y/Y main/BX/BX/BX main/B/B main/B_1/B_1/B_1 main/B_2/B_2
          main/SY/SY main/SY_1/SY_1/SY_1 main/SY_2/SY_2 main/SX/SX/SX main/GY/GY main/GY_1/GY_1/GY_1
          main/GY_2/GY_2 main/UR/UP/DN/LF/R/GX main/UR_1/UR_1/UP/DN/LF/R/GX main/UR_2/UP/DN/LF/R/GX
        canonicalize: main
        boundary{max_variants=3}: main/BX main/B_1 main/SY_1 main/SX main/GY_1 main/UR_1
        vectorize: main/Y/Y/Y main/Y/Y/Y_copy main/BX/BX/BX main/BX/BX/BX_copy main/BX/BX_1/BX
          main/BX/BX_1/BX_copy main/B/B main/B/B_copy main/B_1/B_1/B_1 main/B_1/B_1/B_copy
          main/B_1/B_1_1/B_1 main/B_1/B_1_1/B_copy main/B_2/B_2 main/B_2/B_copy main/SY/SY
          main/SY/SY_copy main/SY_1/SY_1/SY_1 main/SY_1/SY_1/SY_copy main/SY_1/SY_1_1/SY_1
          main/SY_1/SY_1_1/SY_copy main/SY_2/SY_2 main/SY_2/SY_copy main/SX/SX/SX main/SX/SX/SX_copy
          main/SX/SX_1/SX main/SX/SX_1/SX_copy main/GY/GY main/GY/GY_copy main/GY_1/GY_1/GY_1
          main/GY_1/GY_1/GY_copy main/GY_1/GY_1_1/GY_1 main/GY_1/GY_1_1/GY_copy main/GY_2/GY_2
          main/GY_2/GY_copy main/UR/UR_fill main/UR/UL_fill main/UR/UP_fill main/UR/UP/DN/LF/R/GX
          main/UR/UL main/UR/UR main/UR_1/UR_1/UR_fill main/UR_1/UR_1/DL_fill main/UR_1/UR_1/UL_fill
          main/UR_1/UR_1/DR_fill main/UR_1/UR_1/UP_fill main/UR_1/UR_1/UP/DN/LF/R/GX main/UR_1/UR_1/DR
          main/UR_1/UR_1/UL main/UR_1/UR_1/DL main/UR_1/UR_1/UR main/UR_1_1/UR_1/UR_fill
          main/UR_1_1/UR_1/DL_fill main/UR_1_1/UR_1/UL_fill main/UR_1_1/UR_1/DR_fill
          main/UR_1_1/UR_1/UP_fill main/UR_1_1/UR_1/UP/DN/LF/R/GX main/UR_1_1/UR_1/DR
          main/UR_1_1/UR_1/UL main/UR_1_1/UR_1/DL main/UR_1_1/UR_1/UR main/UR_2/DL_fill
          main/UR_2/DR_fill main/UR_2/UP/DN/LF/R/GX main/UR_2/DR main/UR_2/DL main/E/E
        unroll: main/Y/Y/Y main/Y/Y/Y_copy main/BX/BX/BX main/BX/BX/BX_copy main/BX/BX_1/BX
          main/BX/BX_1/BX_copy main/B/B main/B/B_copy main/B_1/B_1/B_1 main/B_1/B_1/B_copy
          main/B_1/B_1_1/B_1 main/B_1/B_1_1/B_copy main/B_2/B_2 main/B_2/B_copy main/SY/SY
          main/SY/SY_copy main/SY_1/SY_1/SY_1 main/SY_1/SY_1/SY_copy main/SY_1/SY_1_1/SY_1
          main/SY_1/SY_1_1/SY_copy main/SY_2/SY_2 main/SY_2/SY_copy main/SX/SX/SX main/SX/SX/SX_copy
          main/SX/SX_1/SX main/SX/SX_1/SX_copy main/GY/GY main/GY/GY_copy main/GY_1/GY_1/GY_1
          main/GY_1/GY_1/GY_copy main/GY_1/GY_1_1/GY_1 main/GY_1/GY_1_1/GY_copy main/GY_2/GY_2
          main/GY_2/GY_copy
    """,
    "softmax": """
        fuse: main/S main/R
        localize: main/R
        scalarize: main/R/S
        autotile{memory=L2}: main/R
        localize{accumulators=REG}: main/R/R/M main/R/R/S
        vectorize: main/R/R/M main/R/R/S main/R/R/R
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
