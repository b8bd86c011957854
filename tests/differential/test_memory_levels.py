"""Machines with several levels of memory between the units and the far one: tiles in tiles, copies at
each, right on the addresses given."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hwconfigs.load import check, load_named
from hwconfigs.model import HwConfig, Memory, PassStep, Unit
from stripe.diag import CompileError, Source
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.visit import walk
from tests.support.golden import input_types
from tests.support.managed import check_on, random_inputs
from tile_frontend import compile_tile

FIRST = ("canonicalize", "fuse", "localize", "scalarize", "canonicalize")


def nested() -> HwConfig:
    """DRAM, a shared memory, and the small one that the core works on; a unit for each step between them."""
    made = HwConfig(
        "nested", "three levels", "interpreter",
        memories=(
            Memory("SRAM", "explicit", 4096, align_bytes=16, bytes_per_cycle=64.0, backing="SHARED"),
            Memory("SHARED", "explicit", 65536, align_bytes=16, bytes_per_cycle=32.0, backing="DRAM"),
            Memory("DRAM", "explicit", align_bytes=16, bytes_per_cycle=8.0),
        ),
        units=(
            Unit("CORE", vector_bytes=32, reaches=("SRAM",)),
            Unit("FAR", "transfer", bytes_per_cycle=8.0, startup_cycles=50.0, reaches=("SHARED", "DRAM")),
            Unit("NEAR", "transfer", bytes_per_cycle=32.0, startup_cycles=10.0, reaches=("SRAM", "SHARED")),
        ),
        pipeline=(
            *map(PassStep, FIRST),
            PassStep("autotile", {"memory": "SHARED"}),
            PassStep("autotile", {"memory": "SRAM", "accumulators": "SRAM", "inflight": 2}),
            PassStep("localize", {"accumulators": "SRAM"}),
            PassStep("canonicalize"),
            PassStep("transfer", {"memory": "SHARED"}),
            PassStep("transfer", {"memory": "SRAM"}),
            PassStep("schedule"),
            PassStep("place"),
        ),
    )  # fmt: skip
    check(made)
    return made


def behind_the_scratchpad() -> HwConfig:
    """The array of systolic_16, with accumulators that are filled from the scratchpad and emptied into it."""
    base = load_named("systolic_16")
    memories = tuple(replace(m, backing="SPAD") if m.name == "ACC" else m for m in base.memories)
    units = (
        *(u for u in base.units if u.kind == "compute"),
        Unit("DMA", "transfer", bytes_per_cycle=16.0, startup_cycles=100.0, reaches=("SPAD", "DRAM")),
        Unit("MOVE", "transfer", bytes_per_cycle=64.0, startup_cycles=4.0, reaches=("SPAD", "ACC")),
    )
    steps: list[PassStep] = []
    for step in base.pipeline:
        steps.append(step)
        if step.name == "transfer":
            steps.append(PassStep("transfer", {"memory": "ACC"}))
    made = replace(base, name="behind", memories=memories, units=units, pipeline=tuple(steps))
    check(made)
    return made


PROGRAMS = {
    "product": (
        "function (A[M, K], B[K, N], D[N]) -> (R) {"
        " C[m, n : M, N] = +(A[m, k] * B[k, n]); R = relu(C + D); }",
        ("A=f32[40,50] B=f32[50,45] D=f32[45]", "A=f32[130,300] B=f32[300,170] D=f32[170]"),
    ),
    "outer product": (
        "function (A[M], B[N]) -> (C) { C[i, j : M, N] = =(A[i] * B[j]); }",
        ("A=f32[64] B=f32[70]", "A=f32[300] B=f32[301]"),
    ),
    "window": (
        "function (I[H, W, C], F[R, S, C, K]) -> (O) {"
        " O[y, x, k : H, W, K] = +(I[y + r - 1, x + s - 1, c] * F[r, s, c, k]); }",
        ("I=f32[12,11,8] F=f32[3,3,8,16]", "I=f32[40,41,16] F=f32[3,3,16,20]"),
    ),
    "rows": (
        "function (X[N, C]) -> (R) { M[n, 0 : N, 1] = >(X[n, c]); E = exp(X - M);"
        " S[n, 0 : N, 1] = +(E[n, c]); R = E / S; }",
        ("X=f32[20,200]", "X=f32[7,7001]"),
    ),
    "columns": (
        "function (X[N, C]) -> (S, T) { S[c : C] = +(X[n, c]); T[n : N] = >(X[n, c]); }",
        ("X=f32[70,90]", "X=f32[120,103]"),
    ),
    "elements": (
        "function (X, Y) -> (R) { R = exp(X) * Y + X; }",
        ("X=f32[30,41] Y=f32[41]", "X=f32[300,141] Y=f32[141]"),
    ),
    "turned": (
        "function (X[N, C]) -> (R) { T[c, n : C, N] = =(X[n, c]); R = T * 2; }",
        ("X=f32[60,41]", "X=f32[203,301]"),
    ),
    "spread": ("function (A[N]) -> (B) { B[3 * i + 1 : 3 * N] = =(A[i]); }", ("A=i32[50]", "A=i32[30000]")),
}  # fmt: skip


def program(name: str, shapes: str) -> Program:
    return compile_tile(Source(f"{name}.tile", PROGRAMS[name][0]), input_types({"shapes": shapes}))


CASES = [
    pytest.param(name, shapes, marks=[pytest.mark.slow] if large else [], id=f"{name} {shapes}")
    for name, (_, both) in PROGRAMS.items()
    for large, shapes in enumerate(both)
]


@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_three_levels(name: str, shapes: str, rng: np.random.Generator) -> None:
    source = program(name, shapes)
    check_on(source, nested(), random_inputs(source, rng), every_step=True)


@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_accumulators_behind_the_scratchpad(name: str, shapes: str, rng: np.random.Generator) -> None:
    source = program(name, shapes)
    check_on(source, behind_the_scratchpad(), random_inputs(source, rng), every_step=True)


def copies(placed: Program) -> dict[tuple[tuple[str, ...], str], set[str]]:
    """The names of copies, by the memory that a block's tile fits and the one that they lie in."""
    found: dict[tuple[tuple[str, ...], str], set[str]] = {}
    for _, block in walk(placed.root):
        for ref in block.refinements:
            if ref.location is not None and ref.name.endswith(f"_{ref.location.unit}"):
                found.setdefault((block.tag_values("fits"), ref.location.unit), set()).add(ref.name)
    return found


def test_each_step_copies_at_the_tiles_of_its_memory(rng: np.random.Generator) -> None:
    text = PROGRAMS["product"][0].replace("D[N]", "D[M, N]")
    types = input_types({"shapes": "A=f32[130,300] B=f32[300,170] D=f32[130,170]"})
    source = compile_tile(Source("product.tile", text), types)
    copied = copies(check_on(source, nested(), random_inputs(source, rng)))
    assert set(copied) == {(("SHARED",), "SHARED"), (("SRAM",), "SRAM")}


def test_what_stays_while_tiles_run_is_copied_in_front_of_them(rng: np.random.Generator) -> None:
    """The sums of a tile in SHARED are finished in two tiles of rows, and D has a value for each column."""
    source = program("product", "A=f32[130,300] B=f32[300,170] D=f32[170]")
    copied = copies(check_on(source, nested(), random_inputs(source, rng)))
    assert copied == {
        (("SHARED",), "SHARED"): {"A_SHARED", "B_SHARED", "D_SHARED", "R_SHARED"},
        (("SHARED",), "SRAM"): {"D_SHARED_SRAM"},
        (("SRAM",), "SRAM"): {"A_SRAM", "B_SRAM", "C_SRAM", "R_SRAM"},
    }


def test_what_the_array_adds_up_goes_out_through_the_scratchpad(rng: np.random.Generator) -> None:
    source = program("product", "A=f32[40,50] B=f32[50,45] D=f32[45]")
    placed = check_on(source, behind_the_scratchpad(), random_inputs(source, rng))
    places = [r.location.unit for _, b in walk(placed.root) for r in b.refinements if r.location is not None]
    assert "ACC" in places and "SPAD" in places


def test_a_row_that_the_memory_between_does_not_hold_is_refused() -> None:
    """No unit adds up in SHARED, and the core's memory is dealt out at the next level."""
    source = program("rows", "X=f32[7,9001]")
    with pytest.raises(CompileError, match=r"72064 bytes of SHARED, of which there are 65536: 6528 too many"):
        run_pipeline(source, check_pipeline(nested()), nested())
