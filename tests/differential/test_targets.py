"""Every example and every program of the corpus on the targets that manage their memories: placed whole, on
units that can do it, and right on the addresses given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stripec.demo
from hwconfigs.load import load_named
from stripe.diag import Source
from stripe.ir import Program
from tests.support.golden import input_types
from tests.support.managed import CHIPS, TARGETS, check_on, products_inside, random_inputs
from tests.support.tile_corpus import CORPUS, TileCase, make_inputs
from tile_frontend import compile_tile

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
DEMO = Path(stripec.demo.__file__).parent

# Whole sizes and ragged ones, and more than the nearest memories hold.
SHAPES: dict[Path, tuple[str, ...]] = {
    EXAMPLES / "matmul.tile": (
        "A=f32[32,16] B=f32[16,48] D=f32[48]",
        "A=f32[33,20] B=f32[20,41] D=f32[41]",
        "A=bf16[17,19] B=bf16[19,23] D=bf16[23]",
        "A=i8[5,31] B=i8[31,17] D=i32[17]",
        "A=f32[1,1] B=f32[1,1] D=f32[1]",
        "A=f32[130,300] B=f32[300,170] D=f32[170]",
    ),
    EXAMPLES / "conv.tile": (
        "I=f32[8,8,16] F=f32[3,3,16,16]",
        "I=f32[9,11,8] F=f32[3,3,8,17]",
        "I=i8[7,5,3] F=i8[3,3,3,7]",
        "I=f32[40,41,32] F=f32[3,3,32,24]",
    ),
    EXAMPLES / "softmax.tile": (
        "X=f32[8,64]",
        "X=f32[7,100]",
        "X=f32[1,1]",
        "X=f32[2,33001]",
    ),
    DEMO / "digits.tile": ("X=f32[9,64] W1=f32[64,20] B1=f32[20] W2=f32[20,10] B2=f32[10]",),
    DEMO / "edges.tile": (
        "I=u8[17,23,3] L=f32[3] G=f32[5] S=f32[3] D=f32[3] T=f32[]",
        "I=u8[90,131,3] L=f32[3] G=f32[5] S=f32[3] D=f32[3] T=f32[]",
    ),
}
LARGE = 20_000  # elements of all inputs from which a case is run with the slow ones


def program(path: Path, shapes: str) -> Program:
    return compile_tile(Source(path.name, path.read_text()), input_types({"shapes": shapes}))


def cases() -> list[object]:
    found: list[object] = []
    for path, all_shapes in SHAPES.items():
        for shapes in all_shapes:
            size = sum(int(np.prod(t.shape)) for t in input_types({"shapes": shapes}).values())
            slow = size > LARGE or path.stem == "edges"  # 25 kernels: seconds
            marks = [pytest.mark.slow] if slow else []
            found.append(pytest.param(path, shapes, marks=marks, id=f"{path.stem} {shapes}"))
    return found


def test_every_example_is_here() -> None:
    assert {*EXAMPLES.glob("*.tile"), *DEMO.glob("*.tile")} == set(SHAPES)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("path", "shapes"), cases())
def test_examples(path: Path, shapes: str, target: str, rng: np.random.Generator) -> None:
    source = program(path, shapes)
    check_on(source, load_named(target), random_inputs(source, rng), every_step=True)


FEW = ("A=i8[5,31] B=i8[31,17] D=i32[17]", "I=i8[7,5,3] F=i8[3,3,3,7]", "X=f32[7,100]")


@pytest.mark.parametrize(
    ("path", "shapes", "target"),
    [
        pytest.param(
            path, shapes, target, marks=[] if shapes in FEW else [pytest.mark.slow],
            id=f"{path.stem} {shapes} {target}",
        )
        for path, all_shapes in SHAPES.items()
        for shapes in all_shapes
        for target in CHIPS
    ],
)  # fmt: skip
def test_examples_on_chips(path: Path, shapes: str, target: str, rng: np.random.Generator) -> None:
    source = program(path, shapes)
    check_on(source, load_named(target), random_inputs(source, rng), every_step=True)


@pytest.mark.parametrize("number", range(len(CORPUS[4::8])))
def test_some_of_the_corpus_on_a_chip_each(number: int, rng: np.random.Generator) -> None:
    case = CORPUS[4::8][number]
    check_on(case.program(), load_named(CHIPS[number % len(CHIPS)]), make_inputs(case, rng))


@pytest.mark.parametrize("case", CORPUS[::8], ids=lambda case: case.name)
def test_some_of_the_corpus(case: TileCase, rng: np.random.Generator) -> None:
    for target in TARGETS:
        check_on(case.program(), load_named(target), make_inputs(case, rng))


@pytest.mark.slow
@pytest.mark.parametrize("target", [*TARGETS, *CHIPS])
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_corpus(case: TileCase, target: str, rng: np.random.Generator) -> None:
    check_on(case.program(), load_named(target), make_inputs(case, rng), every_step=True)


CONTRACTIONS = {
    "product": (
        "C[m, n : M, N]{out} = +(A[m, k] * B[k, n])",
        "A[M, K], B[K, N]",
        "A={t}[50,37] B={t}[37,70]",
    ),
    "window": (
        "C[y, x, k : H, W, K]{out} = +(A[y + r - 1, x + s - 1, c] * B[r, s, c, k])",
        "A[H, W, D], B[R, S, D, K]",
        "A={t}[13,11,20] B={t}[3,3,20,24]",
    ),
    "strided window": (
        "C[y, x, k : H / 2, W / 2, K]{out} = +(A[2 * y + r, 2 * x + s, c] * B[r, s, c, k])",
        "A[H, W, D], B[R, S, D, K]",
        "A={t}[14,15,20] B={t}[3,3,20,24]",
    ),
}


@pytest.mark.parametrize("dtype", ["i8", "bf16", "f32"])
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_run_on_the_array(name: str, dtype: str, rng: np.random.Generator) -> None:
    statement, inputs, shapes = CONTRACTIONS[name]
    out = ": f32" if dtype == "bf16" else ""
    text = f"function ({inputs}) -> (C) {{ {statement.format(out=out)}; }}"
    source = compile_tile(Source("c.tile", text), input_types({"shapes": shapes.format(t=dtype)}))
    placed = check_on(source, load_named("systolic_16"), random_inputs(source, rng))
    share = products_inside(placed)
    print(f"{name} {dtype}: {share:.1%} of the multiply-adds are done by the array")
    assert share >= 0.95
