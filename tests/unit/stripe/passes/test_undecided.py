"""Blocks for which no choice is given, where others are: every pass says that they stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.ir import Program
from stripe.passes.base import Pass, PassContext
from stripe.passes.choices import Given
from stripe.passes.kernels import run_pass
from stripe.passes.partition_threads import ALONE
from stripe.passes.registry import check_pipeline
from stripec.tensors import as_type
from tile_frontend import compile_tile

WORDS = "left as it is: no choice is given for it"
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
LAYERS = """function (A[M, K], B[K, N], D[N, L]) -> (E) {
    C[m, n : M, N] = +(A[m, k] * B[k, n]);
    R = relu(C);
    E[m, l : M, L] = +(R[m, n] * D[n, l]);
}"""
WINDOWS = """function (I[N, C], F[R, C, K]) -> (P) {
    O[n, k : N, K] = +(I[n + r - 1, c] * F[r, c, k]);
    P[n, k : N, K] = +(O[n + j - 1, k]), j < 3;
}"""
SUM = "function (A[N]) -> (S) { S[] = +(A[n]); }"
ALSO = "function (A[M, K], B[N, K]) -> (D) { C[m, n : M, N] = +(A[m, k] * B[n, k]); D = C * C; }"
GRAM = "function (A[K, N]) -> (G) { G[i, j : N, N] = +(A[k, i] * A[k, j]); }"
CHAIN = "function (A[M, K], B[K, N], C[N, L]) -> (D) { D[m, l : M, L] = +(A[m, k] * B[k, n] * C[n, l]); }"
RUNNING = "function (A[M, N]) -> (C) { C[m, n : M, N] = +(A[m, k]), n - k < N; }"
COLUMNS = "function (A[M, N]) -> (C) { C[n : N] = +(A[m, n]); }"
MEANS = "function (A[M, N]) -> (C) { S[n : N] = +(A[m, n]); C = S / 1000.0; }"
CASES = {
    "halves": (PRODUCT, {"A": "f16[60,70]", "B": "f16[70,90]"}, "x86_64_avx2"),
    "bytes": (PRODUCT, {"A": "i8[60,70]", "B": "i8[70,90]"}, "x86_64_avx512_vnni"),
    "rows": (ALSO, {"A": "f32[120,200]", "B": "f32[150,200]"}, "x86_64_avx512"),
    "large": (LAYERS, {"A": "f32[300,200]", "B": "f32[200,300]", "D": "f32[300,500]"}, "x86_64_avx2"),
    "windows": (WINDOWS, {"I": "f32[300,20]", "F": "f32[3,20,40]"}, "x86_64_avx2"),
    "mirror": (GRAM, {"A": "f32[200,300]"}, "x86_64_avx2"),
    "chain": (CHAIN, {"A": "f32[60,70]", "B": "f32[70,50]", "C": "f32[50,40]"}, "x86_64_avx2"),
    "running": (RUNNING, {"A": "f32[30,1000]"}, "x86_64_avx2"),
    "columns": (COLUMNS, {"A": "f32[1000,3]"}, "x86_64_avx2"),
    "means": (MEANS, {"A": "f32[1000,3]"}, "x86_64_avx2"),
    "sum": (SUM, {"A": "f32[20000000]"}, "x86_64_avx2"),
    "array": (LAYERS, {"A": "i8[100,70]", "B": "i8[70,300]", "D": "i8[300,64]"}, "systolic_16"),
    "cores": (LAYERS, {"A": "i8[200,300]", "B": "i8[300,400]", "D": "i8[400,64]"}, "many_core"),
    "quiet": (PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "x86_64_avx2"),
    "vectors": (LAYERS, {"A": "f32[100,70]", "B": "f32[70,300]", "D": "f32[300,64]"}, "vector_dsp"),
}  # fmt: skip


def steps(name: str, threads: int = 4) -> Iterator[tuple[Pass, Program, HwConfig]]:
    """The steps of a target's pipeline that choose, each with the program in front of it."""
    text, shapes, target = CASES[name]
    hw = load_named(target)
    if hw.executor == "cpu":
        units = (msgspec.structs.replace(u, count=max(threads, u.count)) for u in hw.units)
        hw = msgspec.structs.replace(hw, units=tuple(units))
    program = compile_tile(Source("test.tile", text), {n: as_type(t, n) for n, t in shapes.items()})
    for step in check_pipeline(hw):
        if step.choice is not None:
            yield step, program, hw
        program = run_pass(step, program, PassContext(hw))


def left(step: Pass, program: Program, given: Given, hw: HwConfig) -> list[str]:
    """The blocks of which a step says that no choice is given for them."""
    context = PassContext(hw, given=given)
    run_pass(step, program, context)
    return [remark.block for remark in context.remarks if remark.message == WORDS]


def around(path: str) -> set[str]:
    """A block, and those around it."""
    names = path.partition("#")[0].split("/")
    return {"/".join(names[: number + 1]) for number in range(len(names))}


@pytest.mark.parametrize("name", CASES)
def test_what_a_search_would_choose_is_said_to_be_left(name: str) -> None:
    for step, program, hw in steps(name):
        if step.name == "transfer":
            continue  # copies, and who makes them, are settled with choices or without
        searched = PassContext(hw)
        run_pass(step, program, searched)
        said = left(step, program, Given({}), hw)
        unsaid = [path for path in searched.choices if not around(path) & {*said}]
        assert not unsaid, f"{step.name} leaves these without a word"
        assert max(Counter(said).values(), default=1) == 1, f"{step.name} says it twice"


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_said_of_blocks_that_have_a_choice(name: str) -> None:
    for step, program, hw in steps(name):
        searched = PassContext(hw)
        run_pass(step, program, searched)
        if searched.choices:
            said = left(step, program, Given(searched.choices), hw)
            assert not {*said} & searched.choices.keys(), step.name
            # What the search leaves apart inside of what it fused needs no decision.
            assert step.name != "fuse" or not said


@pytest.mark.parametrize("name", ["autotile", "stencil", "partition"])
def test_a_nest_is_named_once_where_no_block_in_it_has_a_choice(name: str) -> None:
    for case in ("large", "windows", "array", "cores"):
        for step, program, hw in steps(case):
            if step.name == name:
                said = left(step, program, Given({}), hw)
                assert not [path for path in said if (around(path) - {path}) & {*said}]


def test_of_a_nest_with_one_choice_the_other_blocks_are_named() -> None:
    """main/R has one statement, which gets its tile; main/E has none."""
    tiles = [step for step in steps("large") if step[0].name == "autotile"]
    step, program, hw = tiles[-1]
    searched = PassContext(hw)
    run_pass(step, program, searched)
    assert [*searched.choices] == ["main/R/R", "main/E/E"]
    assert left(step, program, Given({"main/R/R": searched.choices["main/R/R"]}), hw) == ["main/E/E"]


def test_what_needs_no_decision_is_not_named() -> None:
    """A program without conversions, narrow types or a second block."""
    quiet = {"convert", "stencil-pack", "fuse"}
    assert not [
        (step.name, said)
        for step, program, hw in steps("quiet")
        if step.name in quiet and (said := left(step, program, Given({}), hw))
    ]


@pytest.mark.parametrize("name", ["large", "sum"])
def test_one_thread_is_named_instead(name: str) -> None:
    for step, program, hw in steps(name, threads=1):
        if step.name == "partition":
            context = PassContext(hw, given=Given({}))
            assert run_pass(step, program, context) is program
            assert [r.message for r in context.remarks] == [ALONE]


def test_only_sums_are_left_to_be_cut() -> None:
    """What has results along an index is no sum, whatever is given."""
    step, program, hw = next(s for s in steps("large") if s[0].name == "partition")
    context = PassContext(hw, given=Given({}))
    run_pass(step, program, context)
    assert all(r.message.startswith("not cut: ") for r in context.remarks)
