"""stencil: blocks become uses of what the target's units do in one go."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hwconfigs.load import load_named
from hwconfigs.model import ConfigError, HwConfig
from stripe.analysis import stencils_cost
from stripe.analysis.stencils import uses
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Aggregation, Block, Location, Program, Tag
from stripe.passes.base import PassContext
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import make_passes, parse_pipeline
from stripe.passes.stencil import Stencil as StencilPass
from stripe.poly import nest_domain
from stripe.printer import to_text
from stripe.rewrite import tile_block
from stripe.visit import View, views_of, walk
from tests.support.meaning import assert_same_meaning, random_inputs
from tests.support.native import run, runnable
from tests.support.passes import check_pass, program_of
from tests.support.renaming import by_position, scrambled
from tests.support.stencil_targets import (
    DOT_4,
    MAC_4,
    MAC_16,
    NESTED,
    PRODUCT,
    SHAPES,
    machine,
    program,
    tile,
)

AVX512 = load_named("x86_64_avx512_vnni")

# Who does it, the stencil whose tag is innermost, the input types, options.
MACHINES: dict[str, tuple[HwConfig, str, tuple[str, str], StencilPass]] = {
    "f32 FMA": (AVX512, "fma_f32", ("f32", "f32"), StencilPass()),
    "VNNI u8 x i8": (AVX512, "vnni_u8i8", ("u8", "i8"), StencilPass()),
    "VNNI i8 x i8": (AVX512, "vnni_u8i8", ("i8", "i8"), StencilPass(offsets=True)),
    "bf16 pairs": (AVX512, "dot_bf16", ("bf16", "bf16"), StencilPass()),
    "16x16x16": (machine(MAC_16), "mac16", ("i8", "i8"), StencilPass()),
    "4x4x4": (machine(MAC_4), "mac4", ("i8", "i8"), StencilPass()),
    "nested": (machine(DOT_4, NESTED), "dot4", ("i8", "i8"), StencilPass(("lanes16",))),
}


def uses_in(block: Block, outer: dict[str, View] | None = None) -> list[tuple[Block, dict[str, View]]]:
    """Each tagged block of a tree, with the views of its parent."""
    found = [(block, outer or {})] if block.has_tag("stencil") else []
    views = views_of(block, outer or {})
    for child in block.children:
        found += uses_in(child, views)
    return found


def check_uses(root: Block, hw: HwConfig) -> None:
    """What is tagged is a use."""
    for block, outer in uses_in(root):
        (name,) = block.tag_values("stencil")
        stencil = hw.stencil(name)
        assert stencil is not None
        assert uses(stencil, block, hw, outer) == "", name


def points(root: Block, stencil: str = "", path: Sequence[Block] = ()) -> int:
    """Executed points of the leaves that sum products: all, or those tagged with a stencil."""
    here = (*path, root)
    total = sum(points(child, stencil, here) for child in root.children)
    sums = any(r.aggregation is Aggregation.ADD for r in root.refinements)
    product = any(getattr(s, "op", "") == "mul" for s in root.statements)
    if root.children or not (sums and product) or (stencil and stencil not in root.tag_values("stencil")):
        return total
    return total + nest_domain(here).count()


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", MACHINES)
def test_all_but_a_few_products_are_inside(name: str, case: str) -> None:
    hw, stencil, dtypes, step = MACHINES[name]
    before = program(case, dtypes)
    after, remarks = check_pass(before, step, hw)
    check_uses(after.root, hw)
    share = points(after.root, stencil) / points(before.root)
    cut = next(r for r in remarks if r.acted and r.data)
    print(f"{name}, {case}: {share:.1%} of {points(before.root)} products in {stencil}: {cut.message}")
    assert share >= 0.95
    assert points(after.root, stencil) == points(before.root)
    if hw.executor == "cpu" and hw.name in [h.name for h in runnable()]:
        inputs = random_inputs(before, np.random.default_rng(7))
        expected, got = interpret(before, inputs), run(after, inputs, hw)
        for output, value in expected.items():
            np.testing.assert_array_equal(got[output], value)


SUM = "C[m, n : M, N] = +(A[m, k] * B[k, n]);"
EPILOGUES = {
    "bias": ("R", f"{SUM} R = C + D;", (50, 37, 70)),
    "two results": ("C, R", f"{SUM} R = C * D;", (17, 9, 20)),
    "rows": ("R", f"{SUM} S = C + D; R[m : M] = >(S[m, n]);", (20, 18, 33)),
    "batch": ("R", "C[q, m, n : 2, M, N] = +(A[m + q, k] * B[k, n]); R = C + D;", (21, 12, 18)),
}
# In these, an element of D is added to a sum.
WIDE = {"i8": "i32", "u8": "i32", "f32": "f32", "bf16": "f32"}


@pytest.mark.parametrize("case", EPILOGUES)
@pytest.mark.parametrize("name", MACHINES)
def test_nests_with_an_epilogue_are_cut_as_one(name: str, case: str) -> None:
    hw, stencil, (a, b), step = MACHINES[name]
    results, text, (m, k, n) = EPILOGUES[case]
    text = f"function (A[M, K], B[K, N], D[N]) -> ({results}) {{ {text} }}"
    before = tile(text, {"A": (m, k), "B": (k, n), "D": (n,)}, (a, b, WIDE[b]))
    fused = run_pipeline(before, make_passes(parse_pipeline("canonicalize,fuse,localize,scalarize")), hw)
    after, _ = check_pass(fused, step, hw)
    check_uses(after.root, hw)
    assert points(after.root, stencil) == points(before.root)
    kernel = next(b for b in after.root.children if any(c.has_tag("stencil") for _, c in walk(b)))
    assert len(kernel.children) > 1 or case == "two results", "the epilogue stands beside the uses"
    assert_same_meaning(before, after, np.random.default_rng(3))


def machine_of(**changes: Any) -> HwConfig:
    return machine(replace(MAC_16, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"types": {"x": "i8", "y": "i8", "acc": "f32"}}, "its operand acc is f32, C holds i32"),
        (
            {"stride": {"x": {"p": 1}, "y": {"p": 1}}, "cycles": "1000"},
            "its uses cost 1.028e+06 cycles, its points by themselves 2.621e+05: "
            "the stride of operand y (B) along p (k) is 64 and must be 1",
        ),
        ({"body": "acc = max(acc, x * y)"}, "its result is aggregated by add, that of the stencil by max"),
        ({"startup_cycles": 1e6}, "its uses cost 6.4e+07 cycles, its points by themselves 2.621e+05"),
        ({"body": "acc += x + y"}, "it does not compute 'acc += x + y'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_the_closest_reason(changes: dict[str, Any], reason: str) -> None:
    before = program("product", ("i8", "i8"))
    after, (remark,) = check_pass(before, StencilPass(), machine_of(**changes))
    assert after is before and not remark.acted and remark.block == "main/C"
    assert remark.message == f"no stencil: closest to 'mac16', but {reason}"


def test_of_several_stencils_the_closest_gives_the_reason() -> None:
    floats = replace(MAC_16, name="floats", types={"x": "f32", "y": "f32", "acc": "f32"})
    strided = replace(MAC_16, name="strided", stride={"y": {"p": 1}, "x": {"p": 1}}, cycles="1000")
    _, (remark,) = check_pass(program("product", ("i8", "i8")), StencilPass(), machine(floats, strided))
    assert "closest to 'strided'" in remark.message and "the stride of operand y" in remark.message


def test_the_cheaper_stencil_is_taken_whatever_its_place() -> None:
    slow = replace(MAC_16, name="slow", cycles="400")
    for hw in (machine(slow, MAC_16), machine(MAC_16, slow)):
        after, (remark,) = check_pass(program("product", ("i8", "i8")), StencilPass(), hw)
        assert {b.tag_values("stencil") for b, _ in uses_in(after.root)} == {("mac16",)}
        assert remark.data["stencil"] == "mac16"
        rows = remark.data["candidates"]
        assert isinstance(rows, list) and {row["stencil"] for row in rows} == {"mac16", "slow"}
    only, _ = check_pass(program("product", ("i8", "i8")), StencilPass(("slow",)), machine(slow, MAC_16))
    assert {b.tag_values("stencil") for b, _ in uses_in(only.root)} == {("slow",)}


def test_uses_run_on_the_unit_of_the_stencil_but_for_a_cpu() -> None:
    for hw, dtype, place in ((machine(MAC_16), "i8", "ARRAY"), (AVX512, "f32", None)):
        after, _ = check_pass(program("product", (dtype, dtype)), StencilPass(), hw)
        found = {b.location.unit if b.location else None for b, _ in uses_in(after.root)}
        assert found == {place}


def test_a_block_on_another_unit_stays() -> None:
    before = program("product", ("i8", "i8"))
    (kernel,) = before.root.children
    moved = dataclasses.replace(kernel, location=Location("VECTOR"))
    placed = Program(dataclasses.replace(before.root, statements=(moved,)))
    after, (remark,) = check_pass(placed, StencilPass(), machine(MAC_16))
    assert after is placed
    assert remark.message == "'mac16' fits, but it runs on unit 'VECTOR'"


def test_tiles_of_another_pass_are_kept() -> None:
    before = program("product", ("i8", "i8"))
    hw = machine(MAC_16)
    (kernel,) = before.root.children
    tiled = tile_block(kernel, {"m": 24, "n": 40, "k": 64}, tags=(Tag("tiled"),))
    after, (remark,) = check_pass(
        Program(dataclasses.replace(before.root, statements=(tiled,))), StencilPass(), hw
    )
    assert remark.block == "main/C/C" and remark.acted
    (outer,) = after.root.children
    assert outer.has_tag("tiled") and outer.ranges == tiled.ranges
    check_uses(after.root, hw)


def test_two_sums_in_one_nest_are_both_cut() -> None:
    text = """
        function (A[M, K], B[K, N], F[K, N]) -> (R) {
          C[m, n : M, N] = +(A[m, k] * B[k, n]); D[m, n : M, N] = +(A[m, k] * F[k, n]); R = C + D;
        }
    """
    before = tile(text, {"A": (20, 18), "B": (18, 33), "F": (18, 33)}, ("i8", "i8", "i8"))
    hw = machine(MAC_16)
    fused = run_pipeline(before, make_passes(parse_pipeline("canonicalize,fuse,localize")), hw)
    after, _ = check_pass(fused, StencilPass(), hw)
    assert len(uses_in(after.root)) == 2
    check_uses(after.root, hw)
    assert points(after.root, "mac16") == points(before.root)


def test_kernels_that_are_alike_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[object] = []
    rows = stencils_cost._rows

    def counted(*arguments: Any) -> Any:
        weighed.append(arguments)
        return rows(*arguments)

    monkeypatch.setattr(stencils_cost, "_rows", counted)
    text = " ".join(f"C{i}[m, n : M, N] = +(A[m, k] * B[k, n]);" for i in range(8))
    outputs = ", ".join(f"C{i}" for i in range(8))
    text = f"function (A[M, K], B[K, N]) -> ({outputs}) {{ {text} }}"
    StencilPass().run(tile(text, {"A": (64, 32), "B": (32, 48)}, ("f32", "f32")), PassContext(AVX512))
    assert len(weighed) == 2  # rows along i with vectors along j; columns along i


def test_the_choice_goes_by_no_name() -> None:
    for case in ("ragged product", "ragged window"):
        for name, (hw, _, dtypes, step) in MACHINES.items():
            before = program(case, dtypes)
            other = scrambled(before, random.Random(case))
            one, two = (step.run(p, PassContext(hw)) for p in (before, other))
            assert to_text(by_position(one)) == to_text(by_position(two)), (name, case)


# -------------------------------------------------------------------------------- offsets


def mixed(x: str = "u8", y: str = "i8") -> HwConfig:
    return machine_of(types={"x": x, "y": y, "acc": "i32"})


def whole_range(before: Program) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(11)
    limits = {r.name: np.iinfo(r.dtype.numpy) for r in before.inputs}
    return {
        r.name: rng.integers(limits[r.name].min, limits[r.name].max + 1, r.shape).astype(r.dtype.numpy)
        for r in before.inputs
    }


@pytest.mark.parametrize("case", ["ragged product", "ragged window"])
@pytest.mark.parametrize("dtypes", [("i8", "i8"), ("u8", "u8"), ("i8", "u8"), ("u8", "i8")])
@pytest.mark.parametrize("wanted", [("u8", "i8"), ("i8", "i8"), ("u8", "u8")])
def test_shifted_operands_give_the_same_bits(
    wanted: tuple[str, str], dtypes: tuple[str, str], case: str
) -> None:
    hw, before = mixed(*wanted), program(case, dtypes)
    after, remarks = check_pass(before, StencilPass(offsets=True), hw)
    inputs = whole_range(before)
    expected, got = interpret(before, inputs), interpret(after, inputs)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)
    assert points(after.root, "mac16") == points(before.root)
    shifts = sum("is shifted" in r.message for r in remarks)
    orders = (dtypes, dtypes[::-1])
    assert shifts == min(sum(a != b for a, b in zip(wanted, order, strict=True)) for order in orders)


def test_without_the_option_types_must_be_those_of_the_stencil() -> None:
    before = program("product", ("i8", "i8"))
    after, (remark,) = check_pass(before, StencilPass(), mixed())
    assert after is before and "its operand x is u8, A holds i8" in remark.message


def test_a_sum_in_floats_is_not_shifted() -> None:
    hw = machine_of(types={"x": "u8", "y": "i8", "acc": "f32"})
    text = PRODUCT.replace("] = +", "]: f32 = +")
    before = tile(text, {"A": (8, 8), "B": (8, 8)}, ("i8", "i8"))
    after, remarks = check_pass(before, StencilPass(offsets=True), hw)
    assert not any("shifted" in r.message for r in remarks) and not uses_in(after.root)


def test_what_makes_up_for_a_shift_repeats_what_nothing_depends_on() -> None:
    # The sum runs over k, on which neither B nor a constraint depends: 5 times the same.
    text = "function (A[M, K], B[N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[n]); }"
    before = tile(text, {"A": (16, 5), "B": (16,)}, ("i8", "i8"))
    stencil = replace(
        MAC_16, operands={"x": ("i", "p"), "y": ("j",), "acc": ("i", "j")}, types=mixed().stencils[0].types
    )
    after, _ = check_pass(before, StencilPass(offsets=True), machine(stencil))
    assert "constant(-640) i32" in to_text(after)
    (summed,) = (b for b in after.root.children if b.name == "C_offset")
    assert list(summed.ranges.values()) == [16]


def test_a_buffer_that_is_not_written_whole_is_not_copied() -> None:
    text = """
        block main [] (
          in B[0, 0] i8(4, 4):(4, 1)
          out C[0, 0]:assign i32(2, 4):(4, 1)
          new A i8(4, 4):(4, 1)
        ) {
          block a [i:2, j:4] (in B[i, j] i8(1, 1):(4, 1)  out A[i, j]:assign i8(1, 1):(4, 1)) {
            $b = load(B) i8
            A = store($b)
          }
          block c [m:2, n:4, k:4] (
            in A[m, k] i8(1, 1):(4, 1)
            in B[k, n] i8(1, 1):(4, 1)
            out C[m, n]:add i32(1, 1):(4, 1)
          ) {
            $a = load(A) i8
            $b = load(B) i8
            $x = cast($a) i32
            $y = cast($b) i32
            $p = mul($x, $y) i32
            C = store($p)
          }
        }
    """
    before = program_of(text)
    after, remarks = check_pass(before, StencilPass(offsets=True), mixed())
    (refused,) = (r.message for r in remarks if "is not shifted" in r.message)
    assert refused.endswith("'A', which it would shift, is not written whole before")
    assert any("(B)" in r.message and "is shifted" in r.message for r in remarks)
    assert uses_in(after.root)


# --------------------------------------------------------------------------------- errors


def test_an_unknown_stencil_is_answered_with_the_nearest() -> None:
    with pytest.raises(CompileError, match=r"P120.*no stencil 'mac61'") as error:
        StencilPass(("mac61",)).check(machine(MAC_16))
    assert "did you mean 'mac16'" in str(error.value)


def test_named_stencils_of_which_none_is_used_are_an_error() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(8):(1)  out B[0]:assign f32(8):(1)) {
          block b [i:8] (in A[i] f32(1)  out B[i]:assign f32(1)) { $a = load(A)  $b = exp($a)  B = store($b) }
        }
        """
    )
    hw = load_named("systolic_16")
    assert StencilPass().run(program, PassContext(hw)) is program
    with pytest.raises(CompileError) as caught:
        StencilPass(stencils=("mac_f32", "mac_i8")).run(program, PassContext(hw))
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == (
        "P122", "stencil: no block of 'main' is a use of mac_f32 or mac_i8",
    )  # fmt: skip
    assert found.notes[0].startswith("main/b: no stencil: ")
    assert len(found.notes[0]) < 300 and not found.notes[0].endswith("...")


def test_a_stencil_that_needs_more_registers_than_there_are() -> None:
    hw = machine_of(registers={"acc": "i * j", "x": "1"})
    message = "'mac16' can never be used: its smallest use needs 257 registers, unit 'ARRAY' has 16"
    with pytest.raises(CompileError, match=f"P121.*{message}"):
        StencilPass().check(hw)
    StencilPass(("mac4",)).check(machine(*hw.stencils, MAC_4))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("acc += mull(x, y)", "'mull' of 2 operands, which is no intrinsic"),
        ("acc += mul(x, y, x)", "'mul' of 3 operands, which is no intrinsic"),
        ("acc += neg(x) * exp(x, y)", "'exp' of 2 operands"),
    ],
)
def test_a_body_is_made_of_intrinsics(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=f"P122.*the body of 'mac16' uses {message}"):
        StencilPass().check(machine_of(body=body))


@pytest.mark.parametrize("text", ["1 / (i - i)", "i / (j - j) - i / (j - j)", "0 - i", "1e308 * 1e308"])
@pytest.mark.parametrize("key", ["registers", "loads", "cycles"])
def test_sizes_without_a_value_are_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"H005.*{key}"):
        machine_of(**{key: text if key == "cycles" else {"x": text}})


def test_a_target_without_stencils_is_told() -> None:
    before = program("product", ("i8", "i8"))
    after, (remark,) = check_pass(before, StencilPass(), load_named("generic"))
    assert after is before and remark.message == "the target 'generic' has no stencils"


@pytest.mark.parametrize("case", ["ragged product", "ragged window"])
@pytest.mark.parametrize("name", ["f32 FMA", "VNNI i8 x i8", "bf16 pairs", "16x16x16", "nested"])
def test_later_passes_leave_uses_what_they_are(name: str, case: str) -> None:
    hw, stencil, dtypes, step = MACHINES[name]
    before = program(case, dtypes)
    first = make_passes(parse_pipeline("canonicalize,fuse,localize,scalarize"))
    last = make_passes(parse_pipeline("localize,canonicalize,vectorize,unroll,canonicalize"))
    after = run_pipeline(before, [*first, step, *last], hw)
    check_uses(after.root, hw)
    assert points(after.root, stencil) == points(before.root)
    inputs = random_inputs(before, np.random.default_rng(5))
    expected = interpret(before, inputs)
    results = [interpret(after, inputs)]
    if hw.executor == "cpu" and hw.name in [h.name for h in runnable()]:
        results.append(run(after, inputs, hw))
    for got in results:
        for output, value in expected.items():
            np.testing.assert_array_equal(got[output], value)
