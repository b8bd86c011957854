"""`stripec explain`: what passes did, by the kernels of the program that came in."""

from __future__ import annotations

import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.polybench import darknet
from codegen_cpu.assembly import CodeFacts, InnerLoop
from codegen_cpu.build import build
from hwconfigs.load import load_named
from stripe.analysis.cost_program import Estimate
from stripec import plan as plan_module
from stripec.cli import main
from stripec.driver import optimise, read_program
from stripec.plan import Plan
from stripec.plan_text import plan_lines
from stripec.tensors import parse_type

Capture = pytest.CaptureFixture[str]

DENSE = """function dense(X[N, K], W[K, M], B[M]) -> (R) {
    P[n, m : N, M] = +(X[n, k] * W[k, m]);
    S = P + B;
    R = (S > 0 ? S : 0);
}"""
SHAPES = ["--shape", "X=f32[64,96]", "--shape", "W=f32[96,80]", "--shape", "B=f32[80]"]
TYPES = {"X": "f32[64,96]", "W": "f32[96,80]", "B": "f32[80]"}
EXPLAIN = ["explain", "dense.tile", *SHAPES]


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dense.tile").write_text(DENSE)


def said(capsys: Capture, *more: str) -> str:
    assert main([*EXPLAIN, *more]) == 0
    return capsys.readouterr().out


def parts(text: str) -> dict[str, str]:
    """What is said of each kernel."""
    found = [part.partition("\n") for part in text.split("\n\n")[1:]]
    return {head.split()[0]: body for head, _, body in found}


def test_kernels_go_on_in_those_that_they_are_fused_into(capsys: Capture) -> None:
    text = said(capsys, "--target", "systolic_16")
    told = parts(text)
    assert set(told) == {"main/P", "main/S", "main/R", "main"}
    for gone in ("main/P", "main/S"):
        assert "> goes on in main/R" in told[gone] and "place" not in told[gone]
    assert "+ 'mac_f32' with" in told["main/R"]
    assert "bytes of SPAD); next" in told["main/R"], "the tile with its limit and the next best"
    assert "now  main/R executed by DMA, MAC, VPU" in told["main/R"]
    assert "buffers in" in told["main"] and "are alive at once" in told["main"]
    assert max(map(len, text.splitlines())) <= 100


def test_a_plan_says_what_was_chosen_and_what_is_in_the_code(capsys: Capture) -> None:
    body = parts(said(capsys, "--target", "x86_64_avx512", "--const", "W"))["main/R"]
    assert "   tiles  REG " in body and "of 32 vector registers of CORE" in body
    assert "cycles" in body.partition("expected  ")[2] and "bound by arithmetic" in body
    assert "multiply-adds" in body and "no spills" in body
    kernels = json.loads(said(capsys, "--target", "x86_64_avx512", "--json"))["kernels"]
    fused, plan = kernels[0]["plan"], kernels[2]["plan"]
    assert fused is None, "it went into another kernel"
    (tile,) = plan["tiles"]
    assert tile["memory"] == "REG" and tile["needed"] <= tile["capacity"] == 32
    assert plan["expected"]["cycles"] >= plan["expected"]["parts"][plan["expected"]["bound"]]
    assert plan["code"]["hot"]["multiply_adds"] and plan["measured"] is None


SOFTMAX = """function softmax(X[N, C]) -> (R) {
    M[n, 0 : N, 1] = >(X[n, c]);
    E = exp(X - M);
    S[n, 0 : N, 1] = +(E[n, c]);
    R = E / S;
}"""


def test_a_row_on_the_stack_is_a_buffer_and_no_spill(capsys: Capture) -> None:
    Path("softmax.tile").write_text(SOFTMAX)
    for columns, place in (
        (1024, "'E' on the stack (4096 bytes)"),
        (2048, "'E' in the workspace (8192 bytes)"),
    ):
        command = ["explain", "softmax.tile", "--shape", f"X=f32[4096,{columns}]", "--target", "x86_64_zen4"]
        assert main(command) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"with buffers: 2 in REG (8 bytes), {place}" in shown
        assert "no spills; vectors are spilled in none of" in shown
    assert main([*command, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["kernels"][-1]["plan"]
    assert plan["own"] == [{"path": "main/R/E", "place": "workspace", "bytes": 8192}]


def test_counts_of_one_are_singular() -> None:
    hot = InnerLoop(instructions=3, loads=1, stores=1, registers=1, vector_bytes=16, spills=1, reloads=2)
    (line,) = plan_lines(Plan((), (), None, CodeFacts(hot, 3, 1)), None, 200)
    assert line.text.endswith(
        "3 instructions, 1 load, 1 store; 1 vector register of 16 bytes, 1 spill of vectors and 2 reloads; "
        "vectors are spilled in 1 of 3 inner loops"
    )


def test_several_kernels_have_a_total(capsys: Capture) -> None:
    Path("two.tile").write_text(
        "function (A[M, K], B[K, N]) -> (C, S) {"
        "  C[m, n : M, N] = +(A[m, k] * B[k, n]); S[k : K] = +(A[m, k]); }"
    )
    command = ["explain", "two.tile", "--shape", "A=f32[96,80]", "--shape", "B=f32[80,64]", "--measure"]
    assert main([*command, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    plans = [kernel["plan"] for kernel in made["kernels"]]
    whole = made["whole"]["plan"]
    assert len(plans) == 2 and whole["expected"]["cycles"] > max(p["expected"]["cycles"] for p in plans)
    assert whole["measured"] > 0 and whole["code"] is None
    assert main(command) == 0
    body = capsys.readouterr().out.split("\n\n")[-1]
    assert "(the whole program)" in body and "expected  " in body and "measured  " in body
    alone = said(capsys, "--target", "x86_64_avx2").split("\n\n")[-1]
    assert "(the whole program)" in alone and "expected  " not in alone, "one kernel is all"


def test_a_program_that_has_nothing_to_compute_says_so(capsys: Capture) -> None:
    Path("none.tile").write_text("function (X[M, N]) -> (R) { R = X + 1.0; }")
    command = ["explain", "none.tile", "--target", "x86_64_avx2", "--shape"]
    for shape, idle in (("X=f32[0,512]", True), ("X=f32[1,512]", False)):
        assert main([*command, shape]) == 0
        assert ("now  nothing to compute" in capsys.readouterr().out) == idle


def test_arrays_that_are_seen_in_other_shapes_are_named(capsys: Capture) -> None:
    Path("flat.tile").write_text(darknet("nt", 40, 50, 60).tile)
    shapes = ("--shape", "A=f32[2400]", "--shape", "B=f32[3000]")
    assert main(["explain", "flat.tile", *shapes, "--target", "x86_64_avx2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("flat, which sees A as (40, 60), B as (50, 60), C as (40, 50), for x86_64_avx2")
    assert "canonicalize: unchanged" in parts(text)["main/C"]
    assert main(["explain", "flat.tile", *shapes, "--target", "systolic_16"]) == 0
    assert capsys.readouterr().out.startswith("flat for systolic_16")


def test_what_is_packed_is_said_with_its_cost(capsys: Capture) -> None:
    product = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    Path("product.tile").write_text(product)
    shapes = ["--shape", "A=f32[512,512]", "--shape", "B=f32[512,512]"]
    for more, when in (([], "at each call"), (["--const", "B"], "once, at load time")):
        command = ["explain", "product.tile", *shapes, "--target", "x86_64_avx512", "--verify", "off"]
        assert main([*command, *more]) == 0
        shown = capsys.readouterr().out
        packed = re.search(r"packed  'B', (\d+) bytes, \S+ cycles (.*)", shown)
        assert ("it is copied at load time" in " ".join(shown.split())) == bool(more)
        assert ("the copy takes" in " ".join(shown.split())) != bool(more), "one figure of what it takes"
        assert packed and packed[2] == when and int(packed[1]) >= 512 * 64 * 4  # a panel, or all


@pytest.mark.parametrize(
    ("left", "right", "const", "copies"),
    [
        ("bf16", "bf16", [], {"B": False}),
        ("bf16", "bf16", ["--const", "B"], {"B": True}),
        ("u8", "i8", [], {"B": False}),
        ("u8", "i8", ["--const", "B"], {"B": True}),
        ("f16", "f16", ["--const", "B"], {"A": False, "B": True}),
    ],
)
def test_copies_that_are_kernels_are_named_where_they_are_read(
    left: str, right: str, const: list[str], copies: dict[str, bool], capsys: Capture
) -> None:
    kind = " : i32" if right == "i8" else ""
    product = f"function (A[M, K], B[K, N]) -> (C) {{ C[m, n : M, N]{kind} = +(A[m, k] * B[k, n]); }}"
    Path("product.tile").write_text(product)
    shapes = ["--shape", f"A={left}[512,512]", "--shape", f"B={right}[512,512]"]
    assert main(["explain", "product.tile", *shapes, "--target", "x86_64_zen4", "--json", *const]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    plans = {kernel["block"]: kernel["plan"] for kernel in kernels if kernel["plan"]}
    (reader,) = (plan for path, plan in plans.items() if path in ("main/C", "main/C_cast"))
    found = {copy["buffer"]: copy for copy in reader["packed"] if copy["buffer"] in copies}
    assert {name: copy["load_time"] for name, copy in found.items()} == copies
    making = sum(plan["expected"]["cycles"] for path, plan in plans.items() if re.match(r"\w+/[AB]_.*", path))
    assert sum(copy["cycles"] for copy in found.values()) == pytest.approx(making)
    assert not any(plan["packed"] for plan in plans.values() if plan is not reader)


def test_what_would_take_longer_costs(capsys: Capture) -> None:
    product = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    Path("product.tile").write_text(product)
    shapes = ["--shape", "A=bf16[512,512]", "--shape", "B=bf16[512,512]", "--target", "x86_64_zen4"]
    assert main(["explain", "product.tile", *shapes]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"would cost \S+ more than \S+ cycles", shown) and "save -" not in shown


def test_a_copy_at_load_time_takes_what_its_kernels_are_expected_to(capsys: Capture) -> None:
    product = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    Path("product.tile").write_text(product)
    shapes = ["--shape", "A=f32[512,512]", "--shape", "B=f32[512,520]", "--const", "B"]
    assert main(["explain", "product.tile", *shapes, "--target", "x86_64_avx512", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    plans = {kernel["block"]: kernel["plan"] for kernel in kernels}
    (copy,) = plans["main/C"]["packed"]
    loading = [plan["expected"]["cycles"] for path, plan in plans.items() if path.startswith("pack/")]
    assert loading and copy["cycles"] == pytest.approx(sum(loading))


def test_kernels_are_measured_apart(capsys: Capture) -> None:
    plan = json.loads(said(capsys, "--measure", "--json"))["kernels"][2]["plan"]
    assert 0 < plan["measured"] < 1
    assert "times what is expected" in said(capsys, "--measure")


def test_what_a_call_itself_takes_is_not_held_against_a_kernel() -> None:
    plan = Plan((), (), Estimate(300.0, {"loads": 300.0}), None)
    for seconds, said in (
        (110e-9, "1.10 times what is expected"),
        (500e-9, "5.00 times what is expected; a call itself takes about 0.5 us"),
        (1500e-9, "15.00 times what is expected: look at it"),
        (50e-9, "0.50 times what is expected: look at it"),
    ):
        *_, last = plan_lines(replace(plan, measured=seconds), 3e9, 100)
        assert last.text.endswith(said)


def test_a_core_that_was_not_free_is_said() -> None:
    plan = Plan((), (), Estimate(300.0, {"loads": 300.0}), None, measured=5e-6, core=0.35)
    *_, last = plan_lines(plan, 3e9, 200)
    assert last.text.endswith(
        "5 us (of which it ran 35%: the core was not free, measure again), 50.00 times what is expected"
    )


@pytest.mark.parametrize(("stolen", "core"), [([0.0], 1.0), ([0.5, 0.0], 1.0), ([0.5], 0.5)])
def test_calls_that_others_disturbed_count_only_if_there_are_no_others(
    monkeypatch: pytest.MonkeyPatch, stolen: list[float], core: float
) -> None:
    """A kernel that takes a millisecond, and twice as long where others have the core half of the time."""
    clock = {"wall": 0.0, "cpu": 0.0}
    turns = itertools.cycle(stolen)

    def call(*_: object, **__: object) -> None:
        clock["cpu"] += 1e-3
        clock["wall"] += 1e-3 / (1 - next(turns))

    monkeypatch.setattr(plan_module, "NativeKernel", lambda *_: call)
    hw = load_named("x86_64_avx2")
    done = optimise(read_program(DENSE).lower({n: parse_type(t, n) for n, t in TYPES.items()}, ()), hw)
    module = build(done.program, hw)
    with monkeypatch.context() as patched:
        patched.setattr("stripec.plan.time.perf_counter", lambda: clock["wall"])
        patched.setattr("stripec.plan.time.process_time", lambda: clock["cpu"])
        assert plan_module.seconds_of(module) == pytest.approx((1e-3 / core, core))


def test_what_cannot_run_here_is_not_measured(capsys: Capture) -> None:
    assert main([*EXPLAIN, "--target", "systolic_16", "--measure"]) == 1
    assert "error[D062]" in capsys.readouterr().err
    assert main([*EXPLAIN, "--const", "Y"]) == 1
    assert "error[D031]" in capsys.readouterr().err


def test_every_step_is_told_of_every_kernel_in_order(capsys: Capture) -> None:
    found = json.loads(said(capsys, "--target", "x86_64_avx512", "--json"))
    numbers = [step["number"] for step in found["steps"]]
    assert numbers == list(range(1, len(numbers) + 1))
    for kernel in (*found["kernels"], found["whole"]):
        own = [step["number"] for step in kernel["steps"]]
        last = kernel["steps"][-1]
        assert own == numbers[: len(own)] and (len(own) == len(numbers) or last["into"])
    remarks = [r for k in (*found["kernels"], found["whole"]) for s in k["steps"] for r in s["remarks"]]
    tiled = [r for r in remarks if "candidates" in r["data"]]
    assert tiled and all(set(r) == {"block", "acted", "message", "data"} for r in remarks)


def test_split_kernels_stay_one_story(capsys: Capture) -> None:
    shapes = ["--shape", "X=f32[61,96]", "--shape", "W=f32[96,80]", "--shape", "B=f32[80]"]
    assert main(["explain", "dense.tile", *shapes, "--target", "x86_64_avx2", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert [k["block"] for k in kernels] == ["main/P", "main/S", "main/R"]
    assert len(kernels[2]["becomes"]) > 1
    assert any(s["into"] == "main/R" for s in kernels[0]["steps"])


def test_a_pass_without_a_word_is_unchanged_or_changed(capsys: Capture) -> None:
    told = parts(said(capsys, "--target", "systolic_16"))
    assert "canonicalize: unchanged" in told["main/P"]
    assert "place: changed" in told["main/R"]


def test_one_block(capsys: Capture) -> None:
    whole, kernel = said(capsys, "--target", "systolic_16"), said(
        capsys, "--target", "systolic_16", "--block", "main/R"
    )  # fmt: skip
    assert kernel.split("\n\n")[1].strip() in whole
    assert said(capsys, "--target", "systolic_16", "--block", "R") == kernel
    below = said(capsys, "--target", "systolic_16", "--block", "main/R/P")
    assert "accumulates 'P' in ACC" in below and "autotile" not in below
    assert set(parts(said(capsys, "--target", "systolic_16", "--block", "main"))) == {"main"}


def test_verbose_shows_candidates(capsys: Capture) -> None:
    text = said(capsys, "--target", "systolic_16", "-v")
    assert "| sizes=" in text and "weighed" in text
    assert "| R/R_SPAD: 20480 bytes @SPAD[0]:0" in text, "all of the result"
    assert "| R/P/X_SPAD: 4096 bytes @SPAD[slot]" in text, "16 of 96 columns, in turn in two places"
    assert "| sizes=" not in said(capsys, "--target", "systolic_16")


def test_at_a_terminal_it_says_the_same(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = said(capsys, "--target", "generic")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")
    assert said(capsys, "--target", "generic").split() == plain.split()


def test_a_stripe_text_needs_no_shapes(capsys: Capture) -> None:
    Path("one.stripe").write_text(
        "block main [] (in X[0] f32(8):(1) out R[0]:assign f32(8):(1)) {\n"
        "  block r [i:8] (in X[i] f32(1) out R[i]:assign f32(1)) { $x = load(X) R = store($x) }\n}\n"
    )
    assert main(["explain", "one.stripe", "--target", "generic"]) == 0
    assert "main/r" in capsys.readouterr().out


def test_a_pass_that_fails_is_told_behind_those_before_it(capsys: Capture) -> None:
    Path("small.json").write_text(
        '{"extends": "vector_dsp", "name": "small", "description": "too small",'
        ' "memories": [{"name": "LOCAL", "kind": "explicit", "bytes": 8, "line_bytes": 4,'
        ' "align_bytes": 4}]}'
    )
    assert main([*EXPLAIN, "--target", "small.json"]) == 1
    shown = capsys.readouterr()
    assert "fuse" in shown.out and "autotile" not in shown.out
    assert "error[P" in shown.err and "LOCAL" in shown.err
    assert main([*EXPLAIN, "--target", "small.json", "--block", "none"]) == 1
    assert "error[P" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "none.tile"], "No such file"),
        (["explain", "dense.tile"], "--shape X="),
        ([*EXPLAIN, "--shape", "Y=f32[3]"], "no such input"),
        ([*EXPLAIN, "--target", "systolc_16"], "did you mean 'systolic_16'"),
        ([*EXPLAIN, "--target", "generic", "--block", "main/PP"], "did you mean 'main/"),
        ([*EXPLAIN, "--target", "generic", "--block", ""], "no pass met such a block"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert "error[" in shown.err and message in shown.err
    assert shown.out == ""


def test_parts_of_a_kernel_on_many_units_are_no_parts_of_its_time(capsys: Capture) -> None:
    assert "16 parts for 16 CORE" in said(capsys, "--target", "many_core")
