"""Each kind of problem, small: the Tile program and every peer that is here give the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import formulas, polybench
from benchmarks.convolution import Conv, depthwise
from benchmarks.peers import PEERS
from benchmarks.peers.base import Setting, Unsupported
from benchmarks.problems import Contraction, Matmul, Problem, aligned, exact
from benchmarks.run import TOLERANCE, difference
from codegen_cpu.host import host_features

REDUCED: dict[str, Problem] = {
    "matmul": Matmul(17, 19, 23),
    "matmul tA": Matmul(17, 19, 23, ta=True),
    "matmul tB": Matmul(17, 19, 23, tb=True),
    "matmul of one row": Matmul(1, 40, 33),
    "u8 x i8": Matmul(7, 16, 12, left="u8", right="i8", out="i32"),
    "bf16": Matmul(7, 16, 12, left="bf16", right="bf16", out="f32"),
    "f16": Matmul(7, 16, 12, left="f16", right="f16", out="f32"),
    "conv": Conv(2, 8, 9, 4, 16, 3, 3),
    "conv padded, strided": Conv(1, 9, 9, 16, 32, 3, 3, stride=2, pad=(1, 1)),
    "conv 7x7": Conv(1, 14, 14, 3, 16, 7, 7, stride=2, pad=(3, 3)),
    "conv 1x1 strided": Conv(1, 8, 8, 16, 16, 1, 1, stride=2),
    "conv dilated, plain": Conv(1, 9, 10, 4, 16, 3, 3, dilation=2, epilogue=False),
    "conv 1d": Conv(1, 1, 20, 4, 16, 1, 3, stride=2, epilogue=False),
    "conv one channel": Conv(1, 12, 13, 1, 1, 4, 5, epilogue=False),
    "depthwise": depthwise(1, 7, 8, 16),
    "depthwise strided": depthwise(1, 8, 8, 32, stride=2),
    "depthwise dilated, plain": depthwise(1, 1, 12, 16, 1, 3, pad=(0, 0), dilation=2, epilogue=False),
    "conv of groups": Conv(1, 7, 8, 4, 8, 3, 3, pad=(1, 1), groups=4),
    "conv of groups, channels first": Conv(2, 7, 8, 3, 5, 3, 3, stride=2, pad=(1, 1), groups=4, first=True),
    "conv, channels first": Conv(2, 7, 9, 3, 16, 3, 2, first=True),
    "two for each channel": Conv(1, 7, 8, 1, 2, 3, 3, pad=(1, 1), groups=16),
    "depthwise, channels first": replace(depthwise(1, 7, 17, 5), first=True),
    "contraction": Contraction("abc-adec-ebd", (("a", 5), ("b", 6), ("c", 7), ("d", 3), ("e", 4))),
    "contraction without order": Contraction("ab-cad-dcb", (("a", 5), ("b", 6), ("c", 7), ("d", 3))),
    "copy": formulas.copy(5, 130),
    "transpose": formulas.transpose(33, 34),
    "permute": formulas.permute((2, 3, 4, 5), (0, 3, 1, 2)),
    "row sum": formulas.row_sum(9, 128),
    "column sum": formulas.column_sum(9, 128),
    "softmax": formulas.softmax(5, 128),
    "layer norm": formulas.layernorm(5, 128),
    "chain": formulas.chain(5, 128),
    "gelu": formulas.gelu(5, 128),
    "attention": formulas.attention(2, 9, 16),
    "attention of one row": formulas.attention(2, 1, 16, 33),
    "causal attention": formulas.attention(2, 9, 16, causal=True),
    "triangular attention": formulas.attention(2, 9, 16, causal=True, masked=False),
    "gemm": formulas.gemm(5, 6, 7),
    "2mm": formulas.two_products(4, 5, 6, 7),
    "3mm": formulas.three_products(4, 5, 6, 7, 8),
    "copy 1d": formulas.copy_1d(130),
    "conv3d": formulas.convolution_3d(1, 2, 4, 5, 3, 4),
    "atax": polybench.atax(9, 11),
    "bicg": polybench.bicg(9, 11),
    "mvt": polybench.mvt(9),
    "gemver": polybench.gemver(9),
    "gesummv": polybench.gesummv(9),
    "doitgen": polybench.doitgen(3, 4, 5),
    "syrk": polybench.syrk(5, 7),
    "syr2k": polybench.syr2k(5, 7),
    "symm": polybench.symm(5, 7),
    "trmm": polybench.trmm(5, 7),
    "covariance": polybench.covariance(5, 7),
    "correlation": polybench.correlation(5, 7),
    "darknet nt": polybench.darknet("nt", 3, 4, 5),
    "darknet tn": polybench.darknet("tn", 3, 4, 5),
}
INSTALLED = [name for name, peer in PEERS.items() if peer.default and not peer.missing()]
SATURATING = ("onednn_sgemm", "onnxruntime")
BOUND_AHEAD = ("matmul", "conv", "depthwise", "layer norm")  # enough for constants in our own column


def settings() -> Iterator[tuple[str, str, bool]]:
    """Every kind with every peer that is here, operands given or packed."""
    for kind, problem in REDUCED.items():
        for peer in INSTALLED:
            yield kind, peer, False
            constant = any(operand.constant for operand in problem.operands)
            if constant and (peer != "stripec" or kind in BOUND_AHEAD):
                yield kind, peer, True


@pytest.mark.parametrize(("kind", "peer", "packed"), list(settings()))
def test_result(kind: str, peer: str, packed: bool) -> None:
    """The reference, or a reason why the peer does not take part."""
    problem = REDUCED[kind]
    arrays = problem.arrays()
    try:
        prepared = PEERS[peer].prepare(problem, arrays, Setting(packed))
    except Unsupported as reason:
        assert peer != "stripec", reason
        assert str(reason)
        return
    found = prepared.result()
    if kind == "u8 x i8" and peer in SATURATING and "avx512vnni" not in host_features():
        pytest.skip("its sums of pairs saturate at 16 bits on this CPU; the benchmark says that it is wrong")
    assert difference(found, problem.reference(*exact(arrays))) <= (prepared.tolerance or TOLERANCE)
    prepared.call()


@pytest.mark.parametrize("kind", REDUCED)
def test_shapes_and_layout_of_operands(kind: str) -> None:
    problem = REDUCED[kind]
    arrays = problem.arrays()
    assert [array.shape for array in arrays.values()] == [operand.shape for operand in problem.operands]
    for operand, array in zip(problem.operands, arrays.values(), strict=True):
        assert array.nbytes == operand.bytes
        assert array.ctypes.data % 64 == 0
    made = problem.reference(*exact(arrays))
    several = made if isinstance(made, tuple) else (made,)
    assert [array.shape for array in several] == [result.shape for result in problem.results]


def test_operands_are_the_same_in_every_run() -> None:
    first, second = Matmul(3, 4, 5).arrays(), Matmul(3, 4, 5).arrays()
    np.testing.assert_array_equal(first["A"], second["A"])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("first", [False, True])
def test_convolution_against_a_plain_loop(groups: int, first: bool) -> None:
    problem = Conv(1, 5, 6, 2, 3, 3, 3, stride=2, pad=(1, 1), groups=groups, first=first)
    given = exact(problem.arrays())
    image, weights, bias = given
    if first:
        picture, kernel = image.reshape(groups, 2, 5, 6), weights.reshape(groups, 3, 2, 3, 3)
    else:
        picture = image.reshape(5, 6, groups, 2).transpose(2, 3, 0, 1)
        kernel = weights.reshape(3, 3, groups, 2, 3).transpose(2, 4, 3, 0, 1)
    expected = np.zeros((groups, 3, *problem.out_size))
    for g, k, y, x in np.ndindex(expected.shape):
        total = bias.reshape(groups, 3)[g, k]
        for r, s, c in np.ndindex(3, 3, 2):
            row, column = 2 * y + r - 1, 2 * x + s - 1
            if 0 <= row < 5 and 0 <= column < 6:
                total += picture[g, c, row, column] * kernel[g, k, c, r, s]
        expected[g, k, y, x] = max(float(total), 0.0)
    found = problem.reference(*given)
    ordered = found if first else np.moveaxis(found.reshape(*found.shape[:3], -1), 3, 1)
    np.testing.assert_allclose(ordered.reshape(expected.shape), expected, rtol=1e-12)


def test_large_filters_by_fourier_transforms() -> None:
    problem = Conv(1, 64, 65, 1, 1, 33, 34, epilogue=False)
    image, weights = exact(problem.arrays())
    windows = np.lib.stride_tricks.sliding_window_view(image[0, :, :, 0], (33, 34))
    expected = np.einsum("yxrs,rs->yx", windows, weights[:, :, 0, 0])
    np.testing.assert_allclose(problem.reference(image, weights)[0, :, :, 0], expected, atol=1e-10)


def test_aligned_arrays_of_no_elements() -> None:
    assert aligned((0, 3), np.dtype(np.float32)).shape == (0, 3)
