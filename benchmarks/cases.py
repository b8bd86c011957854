"""The cases, as data: families of named problems.

`quick` marks the few that run when nothing is asked for. Sizes come from published work: convolution
layers of ResNet-50 and MobileNet, the convolution of Halide's and MLIR's tutorials (Chapter H), the
kernels of Multi-Level Tactics (CGO 2021), index strings of the tensor-contraction suite TCCG, and the
tables of MLIR's structured code generation ("Composable and Modular Code Generation in MLIR").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from benchmarks import formulas, polybench
from benchmarks.convolution import Conv, depthwise
from benchmarks.problems import Contraction, Matmul, Problem


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    problem: Problem
    quick: bool = False


FAMILIES = {
    "matmul": "matrix products, square and skinny, transposed operands",
    "conv": "the Chapter H convolution, and those of the structured code generation paper",
    "resnet": "every convolution layer of ResNet-50, batch 1, with bias and maximum with 0",
    "depthwise": "the depthwise layers of MobileNet, with bias and maximum with 0",
    "channels": "convolutions with few channels, of groups of them, and with channels first",
    "memory": "copies, transposes, reductions, softmax, layer norm, chains: bound by memory",
    "attention": "softmax(Q K' / 8) V, also of one row, with a causal mask, and over a triangle",
    "tactics": "the eleven kernels of Multi-Level Tactics",
    "polybench": "kernels of PolyBench LARGE that formulas state, and Darknet's products of 1-D arrays",
    "tccg": "the index strings of the suite TCCG, reduced sizes, row-major",
    "lowp": "products of 8-bit integers and of bf16",
    "sandbox": "the L1, L2 and L3 tables of the structured code generation paper (long)",
}


def cases() -> list[Case]:
    """All of them, by family, in the order in which they are shown."""
    return [
        *_matmuls(),
        *_convolutions(),
        *_resnet(),
        *_depthwise(),
        *_channels(),
        *_memory(),
        *_attention(),
        *_tactics(),
        *_polybench(),
        *_tccg(),
        *_low_precision(),
        *_sandbox(),
    ]


def _matmuls() -> list[Case]:
    shapes = [*((n, n, n) for n in (64, 128, 256, 512, 1024, 2048))]
    shapes += [(1, 4096, 4096), (32, 4096, 4096), (128, 768, 3072), (196, 256, 2304)]
    quick = ((64,) * 3, (512,) * 3, (1024,) * 3, (32, 4096, 4096))
    found = [
        Case("matmul", f"matmul {m}x{n}x{k}", Matmul(m, n, k), quick=(m, n, k) in quick) for m, n, k in shapes
    ]
    found += [
        Case("matmul", "matmul 512x512x512 tA", Matmul(512, 512, 512, ta=True)),
        Case("matmul", "matmul 512x512x512 tB", Matmul(512, 512, 512, tb=True)),
        Case("matmul", "matmul 1020x1021x1022", Matmul(1020, 1021, 1022)),
    ]
    return found


def _convolutions() -> list[Case]:
    """Chapter H, and the 2-D and 1-D tables of the paper at four strides and dilations."""
    found = [Case("conv", "chapter H", Conv(5, 82, 102, 128, 128, 3, 3), quick=True)]
    for stride, dilation in STEPS:
        for out in (16, 64):
            found += _windows("conv", out, stride, dilation)
    return found


STEPS = ((1, 1), (2, 1), (1, 2), (2, 2))  # (stride, dilation)


def _windows(family: str, out: int, stride: int, dilation: int) -> list[Case]:
    """Three taps along each of two dimensions, and along one; so many results along each."""
    size, name = (out - 1) * stride + 2 * dilation + 1, f"{out} 32-64 s{stride} d{dilation}"
    flat = Conv(1, size, size, 32, 64, 3, 3, stride, dilation=dilation, epilogue=False)
    line = Conv(1, 1, size, 32, 64, 1, 3, stride, dilation=dilation, epilogue=False)
    return [Case(family, f"conv2d {name}", flat), Case(family, f"conv1d {name}", line)]


# (taps, stride, channels in, channels out, size of the picture)
RESNET50 = (
    (7, 2, 3, 64, 224),
    (1, 1, 64, 64, 56), (3, 1, 64, 64, 56), (1, 1, 64, 256, 56), (1, 1, 256, 64, 56),
    (1, 1, 256, 128, 56), (3, 2, 128, 128, 56), (1, 1, 128, 512, 28), (1, 2, 256, 512, 56),
    (1, 1, 512, 128, 28), (3, 1, 128, 128, 28),
    (1, 1, 512, 256, 28), (3, 2, 256, 256, 28), (1, 1, 256, 1024, 14), (1, 2, 512, 1024, 28),
    (1, 1, 1024, 256, 14), (3, 1, 256, 256, 14),
    (1, 1, 1024, 512, 14), (3, 2, 512, 512, 14), (1, 1, 512, 2048, 7), (1, 2, 1024, 2048, 14),
    (1, 1, 2048, 512, 7), (3, 1, 512, 512, 7),
)  # fmt: skip


def _resnet() -> list[Case]:
    found = []
    for taps, stride, ci, co, size in RESNET50:
        pad = (taps // 2, taps // 2)
        name = f"{taps}x{taps} s{stride} {ci}-{co} @{size}"
        quick = name in ("3x3 s1 64-64 @56", "1x1 s1 256-64 @56", "3x3 s1 512-512 @7")
        found.append(Case("resnet", name, Conv(1, size, size, ci, co, taps, taps, stride, pad), quick))
    return found


# (stride, channels, size of the picture)
MOBILENET = (
    (1, 32, 112), (2, 64, 112), (1, 128, 56), (2, 128, 56), (1, 256, 28), (2, 256, 28), (1, 512, 14),
    (2, 512, 14), (1, 1024, 7),
)  # fmt: skip


def _depthwise() -> list[Case]:
    return [
        Case(
            "depthwise", f"dw3x3 s{stride} {c} @{size}", depthwise(1, size, size, c, stride=stride), c == 128
        )
        for stride, c, size in MOBILENET
    ]


# (groups, channels in and out of each, size of the picture, stride) of ResNeXt-50 32x4d, table 1 of its paper
RESNEXT = ((32, 4, 56, 1), (32, 8, 28, 1), (32, 16, 14, 1), (32, 8, 56, 2))


def _channels() -> list[Case]:
    """Layers of ResNeXt, LeNet-5, an audio network (M5 of "Very Deep Convolutional Neural Networks for Raw
    Waveforms") and the like, with bias and maximum with 0."""
    layers = {
        f"resnext {groups} x {channels} s{stride} @{size}": Conv(
            1, size, size, channels, channels, 3, 3, stride, (1, 1), groups=groups
        )
        for groups, channels, size, stride in RESNEXT
    }
    layers |= {
        "5x5 1-16 @64": Conv(1, 64, 64, 1, 16, 5, 5, pad=(2, 2)),
        "5x5 3-32 @64": Conv(1, 64, 64, 3, 32, 5, 5, pad=(2, 2)),
        "5x5 8-16 @64": Conv(1, 64, 64, 8, 16, 5, 5, pad=(2, 2)),
        "3x3 s2 3-32 @224": Conv(1, 224, 224, 3, 32, 3, 3, 2, (1, 1)),
        "lenet 5x5 1-6 @28": Conv(1, 28, 28, 1, 6, 5, 5, pad=(2, 2)),
        "lenet 5x5 6-16 @14": Conv(1, 14, 14, 6, 16, 5, 5),
        "9x9 1-1 @520": Conv(1, 520, 520, 1, 1, 9, 9),
        "1x1 3-64 @112": Conv(1, 112, 112, 3, 64, 1, 1),
        "dw3x3 two for each of 128 @56": Conv(1, 56, 56, 1, 2, 3, 3, pad=(1, 1), groups=128),
        "dw3x3 d2 256 @28": depthwise(1, 28, 28, 256, pad=(2, 2), dilation=2),
        "dw3x3 s3 128 @56": depthwise(1, 56, 56, 128, stride=3),
        "dw5x5 s2 96 @56": depthwise(1, 56, 56, 96, 5, 5, 2, (2, 2)),
        "audio 80 s4 1-64 @16000": Conv(1, 1, 16000, 1, 64, 1, 80, 4),
        "audio 3 64-64 @3980": Conv(1, 1, 3980, 64, 64, 1, 3, pad=(0, 1)),
    }
    turned = ("resnext 32 x 4 s1 @56", "resnext 32 x 8 s1 @28", "5x5 3-32 @64", "lenet 5x5 1-6 @28",
              "lenet 5x5 6-16 @14", "dw3x3 two for each of 128 @56", "audio 80 s4 1-64 @16000")  # fmt: skip
    first = {name: layers[name] for name in turned} | {
        "7x7 s2 3-64 @224": Conv(1, 224, 224, 3, 64, 7, 7, 2, (3, 3)),
        "dw3x3 128 @56": depthwise(1, 56, 56, 128),
        "dw3x3 s2 128 @56": depthwise(1, 56, 56, 128, stride=2),
    }
    layers |= {f"{name} channels first": replace(layer, first=True) for name, layer in first.items()}
    return [Case("channels", name, layer, name == "resnext 32 x 8 s1 @28") for name, layer in layers.items()]


def _memory() -> list[Case]:
    found = [Case("memory", f"copy {n}x{n}", formulas.copy(n, n), n == 4096) for n in (1024, 2048, 4096)]
    found += [
        Case("memory", f"transpose {n}x{n}", formulas.transpose(n, n), n == 2048)
        for n in (256, 1024, 2048, 4096)
    ]
    found += [
        Case("memory", "permute 0213 16x100x8x128", formulas.permute((16, 100, 8, 128), (0, 2, 1, 3))),
        Case("memory", "permute 0312 8x224x224x3", formulas.permute((8, 224, 224, 3), (0, 3, 1, 2))),
        Case("memory", "row sum 4096x4096", formulas.row_sum(4096, 4096), quick=True),
        Case("memory", "row sum 1024x1024", formulas.row_sum(1024, 1024)),
        Case("memory", "column sum 4096x4096", formulas.column_sum(4096, 4096), quick=True),
        Case("memory", "column sum 1024x1024", formulas.column_sum(1024, 1024)),
        Case("memory", "softmax 4096x1024", formulas.softmax(4096, 1024), quick=True),
        Case("memory", "layer norm 4096x768", formulas.layernorm(4096, 768), quick=True),
        Case("memory", "chain 4096x1024", formulas.chain(4096, 1024)),
        Case("memory", "gelu 4096x1024", formulas.gelu(4096, 1024)),
        Case("memory", "gelu 512x512", formulas.gelu(512, 512)),
        Case("memory", "copy 1000x1001", formulas.copy(1000, 1001)),
        Case("memory", "transpose 1021x1019", formulas.transpose(1021, 1019)),
        Case("memory", "transpose 64x64", formulas.transpose(64, 64)),
        Case("memory", "permute 210 101x103x107", formulas.permute((101, 103, 107), (2, 1, 0))),
        Case("memory", "permute 102 64x64x64", formulas.permute((64, 64, 64), (1, 0, 2))),
        Case("memory", "permute 0231 8x256x28x28", formulas.permute((8, 256, 28, 28), (0, 2, 3, 1))),
        Case("memory", "permute 0312 8x28x28x256", formulas.permute((8, 28, 28, 256), (0, 3, 1, 2))),
        Case("memory", "permute 3210 32x32x32x32", formulas.permute((32, 32, 32, 32), (3, 2, 1, 0))),
        Case("memory", "column sum 10000x100", formulas.column_sum(10000, 100)),
        Case("memory", "column sum 1021x1019", formulas.column_sum(1021, 1019)),
        Case("memory", "column sum 256x256", formulas.column_sum(256, 256)),
        Case("memory", "row max 1024x1024", formulas.reduction("max", "row", 1024, 1024)),
        Case("memory", "column max 1024x1024", formulas.reduction("max", "column", 1024, 1024)),
        Case("memory", "row mean 1024x1024", formulas.reduction("mean", "row", 1024, 1024)),
        Case("memory", "column mean 1024x1024", formulas.reduction("mean", "column", 1024, 1024)),
        Case("memory", "middle sum 64x128x256", formulas.middle_sum(64, 128, 256)),
        *(Case("memory", f"{name} 512x512", formulas.unary(name, 512, 512)) for name in formulas.UNARY),
        Case("memory", "pow 512x512", formulas.power(512, 512)),
        Case("memory", "sum of eight 512x512", formulas.sum_of_eight(512, 512)),
        Case("memory", "add row 4096x1024", formulas.add_row(4096, 1024)),
    ]
    return found


def _attention() -> list[Case]:
    """Heads x rows x depth, of as many keys if no number of them stands behind."""
    return [
        Case("attention", "attention 8x512x64", formulas.attention(8, 512, 64), quick=True),
        Case("attention", "attention 12x128x64", formulas.attention(12, 128, 64)),
        Case("attention", "attention 4x1024x128", formulas.attention(4, 1024, 128)),
        Case("attention", "attention 32x1x128, 2048 keys", formulas.attention(32, 1, 128, 2048)),
        Case("attention", "causal attention 8x512x64", formulas.attention(8, 512, 64, causal=True)),
        Case("attention", "causal attention 4x1024x64", formulas.attention(4, 1024, 64, causal=True)),
        Case("attention", "triangular attention 8x512x64", formulas.attention(8, 512, 64, None, True, False)),
        Case(
            "attention", "triangular attention 4x1024x64", formulas.attention(4, 1024, 64, None, True, False)
        ),
    ]


# Each is shaped to 2 * 1024^3 operations.
TACTICS = (
    ("ab-acd-dbc", {"a": 1024, "b": 1024, "c": 32, "d": 32}),
    ("ab-cad-dcb", {"a": 1024, "b": 1024, "c": 32, "d": 32}),
    ("abc-acd-db", {"a": 32, "b": 1024, "c": 32, "d": 1024}),
    ("abc-ad-bdc", {"a": 1024, "b": 32, "c": 32, "d": 1024}),
    ("abc-bda-dc", {"a": 32, "b": 32, "c": 1024, "d": 1024}),
    ("abcd-aebf-dfce", dict.fromkeys("abcdef", 32)),
    ("abcd-aebf-fdec", dict.fromkeys("abcdef", 32)),
)


def _tactics() -> list[Case]:
    found = [
        Case("tactics", strings, Contraction(strings, tuple(sizes.items())), strings == "abc-acd-db")
        for strings, sizes in TACTICS
    ]
    found += [
        Case("tactics", "conv2d one channel 256x256", Conv(1, 511, 511, 1, 1, 256, 256, epilogue=False)),
        Case("tactics", "gemm 1000x1100x1200", formulas.gemm(1000, 1100, 1200)),
        Case("tactics", "2mm 800x900x1100x1200", formulas.two_products(800, 900, 1100, 1200)),
        Case("tactics", "3mm 800x900x1000x1100x1200", formulas.three_products(800, 900, 1000, 1100, 1200)),
    ]
    return found


# (kind, m, n, k) of the layers that Darknet's source lists, and the sizes of Multi-Level Tactics
DARKNET = (
    ("nn", 1000, 1100, 1200), ("nt", 1000, 1100, 1200), ("tn", 1000, 1100, 1200), ("tt", 1000, 1100, 1200),
    ("nn", 64, 12544, 75), ("nn", 64, 12544, 576), ("nn", 256, 784, 2304), ("nn", 512, 196, 4608),
    ("tt", 2304, 784, 256), ("tt", 4608, 196, 512),
)  # fmt: skip


def _polybench() -> list[Case]:
    made = {
        "atax 1900x2100": polybench.atax(1900, 2100),
        "bicg 2100x1900": polybench.bicg(1900, 2100),
        "mvt 2000": polybench.mvt(2000),
        "gemver 2000": polybench.gemver(2000),
        "gesummv 1300": polybench.gesummv(1300),
        "doitgen 150x140x160": polybench.doitgen(140, 150, 160),
        "syrk 1200x1000": polybench.syrk(1000, 1200),
        "syr2k 1200x1000": polybench.syr2k(1000, 1200),
        "symm 1000x1200": polybench.symm(1000, 1200),
        "trmm 1000x1200": polybench.trmm(1000, 1200),
        "covariance 1400x1200": polybench.covariance(1200, 1400),
        "correlation 1400x1200": polybench.correlation(1200, 1400),
    }
    made |= {f"darknet {kind} {m}x{n}x{k}": polybench.darknet(kind, m, n, k) for kind, m, n, k in DARKNET}
    return [Case("polybench", name, problem, name == "atax 1900x2100") for name, problem in made.items()]


# Column-major, as published; `_tccg` turns each string around.
TCCG = (
    "abcde-efbad-cf", "abcde-efcad-bf", "abcd-dbea-ec", "abcde-ecbfa-fd", "abcd-deca-be", "abc-bda-dc",
    "abcd-ebad-ce", "abcdef-dega-gfbc", "abcdef-dfgb-geac", "abcdef-degb-gfac", "abcdef-degc-gfab",
    "abc-dca-bd", "abcd-ea-ebcd", "abcd-eb-aecd", "abcd-ec-abed", "abc-adec-ebd", "ab-cad-dcb",
    "ab-acd-dbc", "abc-acd-db", "abc-adc-bd", "ab-ac-cb", "abcd-aebf-fdec", "abcd-eafd-fbec",
    "abcd-aebf-dfce",
)  # fmt: skip

# The size of every letter by the number of letters: about 0.3 to 0.7 GFLOP, ten MB or so.
TCCG_SIZE = {3: 640, 4: 120, 5: 48, 6: 24, 7: 16}


def _tccg() -> list[Case]:
    """The suite numbers elements from the first index on, NumPy from the last: strings are reversed, so
    that the memory is traversed as in the suite."""
    found = []
    for published in TCCG:
        strings = "-".join(part[::-1] for part in published.split("-"))
        letters = sorted(set(published) - {"-"})
        sizes = tuple((letter, TCCG_SIZE[len(letters)]) for letter in letters)
        found.append(Case("tccg", published, Contraction(strings, sizes), published == "abcd-aebf-fdec"))
    return found


def _low_precision() -> list[Case]:
    shapes = [(n, n, n) for n in (256, 1024)] + [(32, 4096, 4096), (1, 4096, 4096), (196, 256, 2304)]
    found = []
    for kind, left, right, out in (("u8 x i8", "u8", "i8", "i32"), ("bf16", "bf16", "bf16", "f32")):
        for m, n, k in shapes:
            problem = Matmul(m, n, k, left=left, right=right, out=out)
            found.append(Case("lowp", f"{kind} {m}x{n}x{k}", problem, quick=m == 1024))
    problem = Matmul(512, 512, 512, left="f16", right="f16", out="f32")
    found.append(Case("lowp", "f16 512x512x512", problem))
    return found


def _shapes(text: str) -> list[tuple[int, int]]:
    """`10x32,48 12x96`: pairs that share their first number are written together."""
    found = []
    for group in text.split():
        rows, columns = group.split("x")
        found += [(int(rows), int(n)) for n in columns.split(",")]
    return found


SANDBOX = {
    "L1": "10x32,48,64,96,128 16x32,48,64,96,128 20x32,48,64,96,128 32x32,48,64,96,128 40x32,48,64,96 "
    "64x32,48,64 8x96,144 12x96,144 16x144 20x144 40x16 70x16 110x16 190x16 60x32 90x32",
    "L2": "50x240,320,480,640,960 160x160,240,320,480,640 200x160,240,320,480,640 8x960,1440 12x960,1440 "
    "16x960,1440 20x960,1440 40x960,1440 80x960 60x1440 400x16 700x16 1100x16 1900x16 4000x16 6000x16 "
    "8000x16 600x32 900x32 1200x32 1900x32 2400x32 3200x32",
    "L3": "250x960,1280,1920,2560,3840 800x640,960,1280,1920,2560 1000x640,960,1280,1920,2560 40x3840,5760 "
    "60x3840,5760 80x3840,5760 100x3840,5760 200x3840,5760 400x3840 300x5760 2000x64 3500x64 5500x64 "
    "9500x64 20000x64 30000x64 40000x64 3000x128 4500x128 6000x128 9500x128 12000x128 16000x128",
}  # fmt: skip

SANDBOX_MATMULS = (
    (18, 32, 96), (24, 64, 96), (48, 64, 128), (192, 64, 128), (192, 128, 128), (480, 512, 16),
    (384, 256, 256), (480, 512, 256), (784, 128, 512), (1020, 1152, 1152), (1920, 2304, 2304),
    (1, 384, 384), (128, 384, 384), (128, 1536, 384), (128, 384, 1536), (192, 128, 256), (260, 280, 300),
    (1000, 1000, 1000), (1020, 1020, 1020), (1020, 1021, 1022), (1024, 1024, 1024), (2048, 2048, 347),
)  # fmt: skip
SANDBOX_LINES = (3200, 81_600, 816_000, 8_160_000, 81_600_000)
SANDBOX_SMALL = ((8, 8), (16, 16), (32, 32), (128, 256), (104, 128), (256, 256), (1000, 1024), (8000, 6144))
SANDBOX_PERMUTED = (
    ((16, 100, 8, 128), (0, 2, 1, 3)), ((64, 224, 224, 3), (1, 3, 0, 2)), ((8, 224, 224, 3), (1, 3, 0, 2)),
)  # fmt: skip
SANDBOX_WIDTHS = (8, 20, 32, 40, 55)  # 16 and 64 are in the family `conv`

SANDBOX_DEPTHWISE = {
    "L1": (32, (8, 16, 20, 32, 40, 55, 64, 80, 96, 110, 128)),
    "L2": (256, (16, 20, 32, 40, 55, 64, 80, 96, 110, 128)),
    "L3": (1024, (256, 320, 512, 640, 880, 1024, 1280, 1536, 1760, 2048)),
}


def _sandbox() -> list[Case]:
    found = []
    for level, text in SANDBOX.items():
        for m, n in _shapes(text):
            kinds = {
                "copy": formulas.copy(m, n),
                "transpose": formulas.transpose(m, n),
                "row sum": formulas.row_sum(m, n, output_twice=True),
                "column sum": formulas.column_sum(m, n, output_twice=True),
            }
            if (m, n) == (40000, 64):
                del kinds["column sum"]
            found += [Case("sandbox", f"{level} {kind} {m}x{n}", made) for kind, made in kinds.items()]
    for m, n, k in SANDBOX_MATMULS:
        for suffix, ta, tb in (("", False, False), (" tA", True, False), (" tB", False, True)):
            problem = Matmul(m, n, k, ta, tb)
            found.append(Case("sandbox", f"product {m}x{n}x{k}{suffix}", problem))
    found += [Case("sandbox", f"copy 1d {n}", formulas.copy_1d(n)) for n in SANDBOX_LINES]
    for m, n in SANDBOX_SMALL:
        kinds = {"copy": formulas.copy(m, n), "transpose": formulas.transpose(m, n)}
        found += [Case("sandbox", f"{kind} {m}x{n}", made) for kind, made in kinds.items()]
    for shape, order in SANDBOX_PERMUTED:
        name = f"permute {''.join(map(str, order))} {'x'.join(map(str, shape))}"
        found.append(Case("sandbox", name, formulas.permute(shape, order)))
    for stride, dilation in STEPS:
        for out in SANDBOX_WIDTHS:
            found += _windows("sandbox", out, stride, dilation)
        size = 15 * stride + 2 * dilation + 1
        several = Conv(8, size, size, 32, 64, 3, 3, stride, dilation=dilation, epilogue=False)
        found.append(Case("sandbox", f"conv2d 8x16 32-64 s{stride} d{dilation}", several))
    found.append(Case("sandbox", "conv3d 4x16x16 32-64", formulas.convolution_3d(8, 4, 16, 16, 32, 64)))
    for level, (channels, widths) in SANDBOX_DEPTHWISE.items():
        for width in widths:
            for stride, dilation in STEPS:
                size = (width - 1) * stride + 2 * dilation + 1
                layer = depthwise(1, 1, size, channels, 1, 3, stride, (0, 0), dilation, epilogue=False)
                name = f"{level} depthwise 1d {width}x{channels} s{stride} d{dilation}"
                found.append(Case("sandbox", name, layer))
    return found


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers; NaN of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
