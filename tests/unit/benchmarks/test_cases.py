"""The cases: sizes, counts, names."""

from __future__ import annotations

import math

import pytest

from benchmarks.cases import FAMILIES, Case, cases, geometric_mean
from benchmarks.convolution import Conv
from benchmarks.problems import Contraction, Matmul
from stripe.diag import Source
from tile_frontend import signature

CASES = cases()
BY_NAME = {(case.family, case.name): case for case in CASES}


def of(family: str) -> list[Case]:
    return [case for case in CASES if case.family == family]


def test_names_are_unique_and_families_are_described() -> None:
    assert len(BY_NAME) == len(CASES)
    assert list(dict.fromkeys(case.family for case in CASES)) == list(FAMILIES)


def test_every_family_but_the_long_one_has_a_quick_case() -> None:
    assert {case.family for case in CASES if case.quick} == set(FAMILIES) - {"sandbox"}
    assert len([case for case in CASES if case.quick]) < 30


@pytest.mark.parametrize(
    ("family", "name", "flops"),
    [
        ("matmul", "matmul 512x512x512", 2 * 512**3),
        ("matmul", "matmul 1x4096x4096", 2 * 4096**2),
        ("conv", "chapter H", 2 * 5_898_240_000),  # 5.898 thousand million multiply-adds
        ("resnet", "7x7 s2 3-64 @224", 2 * 112 * 112 * 64 * 3 * 49),
        ("resnet", "1x1 s2 1024-2048 @14", 2 * 49 * 2048 * 1024),
        ("depthwise", "dw3x3 s2 64 @112", 2 * 56 * 56 * 64 * 9),
        ("attention", "attention 8x512x64", 4 * 8 * 512 * 512 * 64),
        ("tactics", "conv2d one channel 256x256", 2 * 256**4),
        ("tactics", "gemm 1000x1100x1200", 2_640_000_000),
        ("tactics", "2mm 800x900x1100x1200", 3_312_000_000),
        ("tactics", "3mm 800x900x1000x1100x1200", 5_400_000_000),
    ],
)
def test_operations(family: str, name: str, flops: int) -> None:
    assert BY_NAME[family, name].problem.flops == flops


def test_the_contractions_of_tactics_are_all_of_one_size() -> None:
    sizes = {case.problem.flops for case in of("tactics") if isinstance(case.problem, Contraction)}
    assert sizes == {2 * 1024**3}
    assert len(of("tactics")) == 11


def test_yardsticks_have_as_many_operations_as_their_cases() -> None:
    for case in CASES:
        if case.problem.products:
            assert sum(2 * m * n * k for m, n, k in case.problem.products) == case.problem.flops, case.name


def test_resnet_has_its_23_layers_and_their_pictures() -> None:
    layers = of("resnet")
    assert len(layers) == 23
    for case in layers:
        problem = case.problem
        assert isinstance(problem, Conv)
        assert problem.out_size[0] == problem.h // problem.stride


def test_bytes_are_each_operand_once() -> None:
    assert BY_NAME["memory", "copy 4096x4096"].problem.counted_bytes == 2 * 4096 * 4096 * 4
    assert Matmul(2, 3, 4).counted_bytes == 4 * (8 + 12 + 6)
    assert Matmul(2, 3, 4, left="u8", right="i8", out="i32").counted_bytes == 8 + 12 + 4 * 6
    strided = Conv(1, 4, 4, 8, 8, 1, 1, stride=2, epilogue=False)
    assert strided.bytes_in == 4 * (4 * 8 + 64)  # three quarters of the pixels are never read


def test_the_tables_of_the_sandbox_are_complete() -> None:
    """39, 40 and 40 shapes for each kernel, one fewer for column sums; their outputs count twice."""
    for level, shapes in (("L1", 39), ("L2", 40), ("L3", 40)):
        for kind in ("copy", "transpose", "row sum", "column sum"):
            found = [case for case in of("sandbox") if case.name.startswith(f"{level} {kind} ")]
            assert len(found) == shapes - (level == "L3" and kind == "column sum"), (level, kind)
    row_sum = BY_NAME["sandbox", "L1 row sum 10x32"].problem
    assert row_sum.counted_bytes == 4 * (10 * 32 + 2 * 10)


def test_every_program_is_tile_with_the_operands_of_its_problem() -> None:
    for text, problem in {case.problem.tile: case.problem for case in CASES}.items():
        declared = signature(Source("case.tile", text))
        assert list(declared.inputs) == [operand.name for operand in problem.operands], text


def test_geometric_mean() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert math.isnan(geometric_mean([]))
