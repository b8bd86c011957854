"""Targets whose units do a stencil in one go, and programs to cut for them."""

from __future__ import annotations

from msgspec.structs import replace

from hwconfigs.load import check, load_named
from hwconfigs.model import ElementType, HwConfig, SizeRange, Stencil, Unit
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from tile_frontend import compile_tile

OUTER: dict[str, tuple[str, ...]] = {"x": ("i", "p"), "y": ("p", "j"), "acc": ("i", "j")}
BYTES: dict[str, ElementType] = {"x": "i8", "y": "i8", "acc": "i32"}

MAC_16 = Stencil(
    "mac16", "ARRAY", "acc += x * y", {"i": 16, "j": 16, "p": 16}, OUTER, BYTES,
    cycles="16", startup_cycles=4.0,
)  # fmt: skip
MAC_4 = Stencil("mac4", "ARRAY", "acc += x * y", {"i": 4, "j": 4, "p": 4}, OUTER, BYTES)
DOT_4 = Stencil(
    "dot4", "ARRAY", "acc += x * y", {"p": 4}, {"x": ("p",), "y": ("p",), "acc": ()}, BYTES
)  # fmt: skip
NESTED = Stencil(
    "lanes16", "ARRAY", "acc += x * y", {"i": 16, "j": 16, "p": SizeRange(4, 4, 16)}, OUTER, BYTES,
    cycles="p / 4", inner="dot4",
)  # fmt: skip


def machine(*stencils: Stencil) -> HwConfig:
    """A machine with an array for these stencils and a unit for the rest."""
    base = load_named("generic")
    reaches = tuple(m.name for m in base.memories)
    units = (
        Unit("ARRAY", vector_bytes=64, reaches=reaches, operations=()),
        Unit("VECTOR", vector_bytes=64, reaches=reaches),
    )
    made = replace(
        base, name="machine", executor="simulator", cpu=None, units=units, stencils=stencils, pipeline=()
    )
    check(made)
    return made


PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
WINDOW = """
    function (I[X, Y, C], F[A, B, C, K]) -> (O) {
      O[x, y, k : X, Y, K] = +(I[x + i - 1, y + j - 1, c] * F[i, j, c, k]);
    }
"""
SHAPES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "product": (PRODUCT, {"A": (64, 64), "B": (64, 64)}),
    "ragged product": (PRODUCT, {"A": (50, 37), "B": (37, 70)}),
    "window": (WINDOW, {"I": (14, 14, 16), "F": (3, 3, 16, 32)}),
    "ragged window": (WINDOW, {"I": (13, 11, 5), "F": (3, 3, 5, 7)}),
}


def program(case: str, dtypes: tuple[str, str]) -> Program:
    """One of SHAPES with these element types of its inputs."""
    text, shapes = SHAPES[case]
    return tile(text, shapes, dtypes)


def tile(text: str, shapes: dict[str, tuple[int, ...]], dtypes: tuple[str, ...]) -> Program:
    types = {
        name: TensorType(DType(dtype), shape)
        for (name, shape), dtype in zip(shapes.items(), dtypes, strict=True)
    }
    return compile_tile(Source("case.tile", text), types)
