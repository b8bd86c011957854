"""Every option of every pass has an effect: some program comes out differently than without it.

Golden files that set an option show it; the table below does for the others. A new option for which
neither does fails here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest

from hwconfigs.load import load, load_named
from hwconfigs.model import HwConfig, PassStep, Stencil, Unit
from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from stripe.parser import parse
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import PASSES, make_passes, parse_pipeline, pass_info
from tests.support.golden import DEFAULT_TARGET, read_case
from tile_frontend import compile_tile

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
Option = tuple[str, str]

TILE: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "product": (
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        {"A": (100, 120), "B": (120, 140)},
    ),
    "rows": (
        "function (X[N, C]) -> (R) { M[n, 0 : N, 1] = >(X[n, c]); R = X - M; }",
        {"X": (2, 30000)},
    ),
    "window": (
        "function (I[H, W, C], F[R, S, C, K]) -> (O, P) {"
        "  O[y, x, k : H, W, K] = +(I[y + r - 1, x + s - 1, c] * F[r, s, c, k]);"
        "  P[y : H] = +(I[y + r - 1, 0, 0] * F[r, 0, 0, 0]); }",
        {"I": (20, 20, 8), "F": (3, 3, 8, 16)},
    ),
    "chain": ("function (X[N]) -> (R) { T = X + 1; U = exp(T); R = U * 2; }", {"X": (64,)}),
    "columns": ("function (A[M, N]) -> (C) { C[n, m : N, M] = +(A[m, n]); }", {"A": (2, 64)}),
    "large": (
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        {"A": (800, 800), "B": (800, 800)},
    ),
    "long": (
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        {"A": (128, 3072), "B": (3072, 768)},
    ),
}  # fmt: skip


def small_acc() -> HwConfig:
    hw = load_named("systolic_16")
    memories = (msgspec.structs.replace(hw.memories[0], bytes=4096), *hw.memories[1:])
    return msgspec.structs.replace(hw, memories=memories)


def figure_3() -> HwConfig:
    hw = load(GOLDEN / "figures" / "figure_3.json")
    small = msgspec.structs.replace(hw.stencils[0], name="mma_2", indices={"i": 2, "j": 2, "p": 2})
    return msgspec.structs.replace(hw, stencils=(*hw.stencils, small))


def second_dma() -> HwConfig:
    hw = load_named("systolic_16")
    return msgspec.structs.replace(hw, units=(*hw.units, Unit("SLOW", "transfer", reaches=("SPAD", "DRAM"))))


ARRAY = load(GOLDEN / "targets" / "array.json")
DOT = Stencil(
    "dot", "CORE", "acc += x * y", {"i": "any", "j": "any", "p": 4},
    {"x": ("i", "p"), "y": ("p", "j"), "acc": ("i", "j")},
    {"x": "f32", "y": "f32", "acc": "f32"}, stride={"x": {"p": 1}, "y": {"p": 1}},
)  # fmt: skip

# Option -> program (of TILE, or a golden file), target, and a pipeline that sets it.
EFFECTS: dict[Option, tuple[str, str | HwConfig, str]] = {
    ("convert", "least_gain"): ("passes/convert/used_once", "x86_64_avx512", "convert{least_gain=100}"),
    ("fuse", "memory"): ("rows", "generic", "fuse{memory=L3}"),
    ("stencil", "stencils"): ("product", figure_3(), "stencil{stencils=[mma_2]}"),
    ("stencil", "max_candidates"): ("product", "x86_64_avx512", "stencil{max_candidates=1}"),
    ("autotile", "reductions"): ("long", "x86_64_avx512", "autotile{memory=L2, reductions=false}"),
    ("autotile", "fixed"): (
        "figures/figure_5", "paper_figure4",
        "autotile{memory=CACHE, cost=cache_lines_per_point, indices=[x, y], fixed=true}",
    ),
    ("autotile", "limits"): ("large", "generic", "autotile{memory=L2, limits=[L1]}"),
    ("autotile", "accumulators"): ("product", small_acc(), "autotile{memory=SPAD, accumulators=ACC}"),
    ("autotile", "inflight"): ("product", "vector_dsp", "autotile{memory=LOCAL, inflight=8}"),
    ("autotile", "sizes"): ("product", "x86_64_avx2", "autotile{memory=REG, sizes=powers_of_two}"),
    ("autotile", "max_candidates"): ("product", "vector_dsp", "autotile{memory=LOCAL, max_candidates=1}"),
    ("localize", "memory"): ("passes/localize/rows", "generic", "localize{memory=L1}"),
    ("localize", "reuse"): ("chain", "generic", "localize{reuse=true}"),
    ("vectorize", "unit"): ("columns", "vector_dsp", "vectorize{unit=SCALAR}"),
    ("unroll", "limit"): ("passes/unroll/registers", "generic", "unroll{limit=1}"),
    ("separate", "memory"): ("passes/separate/sum_and_difference", "many_core", "separate{memory=DRAM}"),
    ("transfer", "memory"): ("product", "many_core", "autotile{memory=SHARED},transfer{memory=SHARED}"),
    ("transfer", "unit"): ("product", second_dma(), "autotile{memory=SPAD},transfer{memory=SPAD, unit=SLOW}"),
    ("schedule", "memory"): ("passes/schedule/stays_near", ARRAY, "transfer,schedule{memory=DRAM}"),
    ("schedule", "inflight"): ("passes/schedule/in_flight", ARRAY, "transfer,schedule{inflight=1}"),
    ("boundary", "max_variants"): ("window", "generic", "boundary{max_variants=2}"),
    ("boundary", "min_gain"): ("window", "generic", "boundary{min_gain=100}"),
    ("boundary", "min_share"): ("window", "generic", "boundary{min_share=0}"),
    ("peel-reduction", "epilogue"): (
        "passes/peel_reduction/siblings", "generic", "peel-reduction{least_bytes=0, epilogue=false}",
    ),
    ("transpose", "least_gain"): ("passes/transpose/relayout", "generic", "transpose{least_gain=100}"),
    ("transpose", "stencil"): (
        "product", msgspec.structs.replace(load_named("generic"), stencils=(DOT,)), "transpose{stencil=dot}",
    ),
    ("transpose", "load_time"): ("passes/transpose/load_time", "x86_64_avx512", "transpose{load_time=false}"),
}  # fmt: skip


def program_and_target(source: str, target: str | HwConfig) -> tuple[Program, HwConfig]:
    hw = load_named(target) if isinstance(target, str) else target
    if source not in TILE:
        return parse(read_case(GOLDEN / f"{source}.stripe").source), hw
    text, shapes = TILE[source]
    types = {name: TensorType(DType.F32, shape) for name, shape in shapes.items()}
    return compile_tile(Source(source, text), types), hw


def has_effect(program: Program, steps: Sequence[PassStep], hw: HwConfig, at: int, option: str) -> bool:
    """Whether the step comes out differently without the option; refusing it is an effect, too."""
    step = steps[at]
    options = {name: value for name, value in step.options.items() if name != option}
    before = run_pipeline(program, make_passes(steps[:at]), hw, verify="off")
    results: list[Program | None] = []
    for one in (step, PassStep(step.name, options)):
        try:
            results.append(run_pipeline(before, make_passes([one]), hw, verify="off"))
        except CompileError:
            results.append(None)
    return results[0] != results[1]


@cache
def shown_by_golden_files() -> frozenset[Option]:
    found: set[Option] = set()
    for path in sorted(GOLDEN.rglob("*.stripe")):
        case = read_case(path)
        if "passes" not in case.header or case.errors:
            continue
        steps = parse_pipeline(case.header["passes"])
        wanted = [(at, s.name, o) for at, s in enumerate(steps) for o in s.options]
        if all((name, option) in found for _, name, option in wanted):
            continue
        target = case.header.get("target", DEFAULT_TARGET)
        hw = load(GOLDEN / target) if target.endswith(".json") else load_named(target)
        program = parse(case.source)
        for at, name, option in wanted:
            if (name, option) not in found and has_effect(program, steps, hw, at, option):
                found.add((name, option))
    return frozenset(found)


OPTIONS = [(name, option.name) for name in PASSES for option in pass_info(name).options]


@pytest.mark.parametrize("option", OPTIONS, ids=".".join)
def test_it_has_an_effect(option: Option) -> None:
    name, key = option
    if option not in EFFECTS:
        assert option in shown_by_golden_files(), f"no golden file shows what '{key}' of '{name}' does"
        return
    source, target, pipeline = EFFECTS[option]
    program, hw = program_and_target(source, target)
    steps = parse_pipeline(pipeline, hw)
    at = max(n for n, step in enumerate(steps) if step.name == name)
    assert key in steps[at].options
    assert has_effect(program, steps, hw, at, key), f"'{key}' of '{name}' changes nothing"


def test_the_table_names_options() -> None:
    assert set(EFFECTS) <= set(OPTIONS)
