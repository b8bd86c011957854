"""stencil-pack: operands laid out for instructions that sum groups of products."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.bounds import leaves
from stripe.analysis.groups import grouped
from stripe.analysis.stencils_groups import instructions, summing
from stripe.interp import interpret
from stripe.ir import Block, Direction, Program
from stripe.passes.base import PassContext
from stripe.passes.fuse import Fuse
from stripe.passes.pipeline import run_pipeline
from stripe.passes.stencil_pack import StencilPack
from stripe.visit import views_of, walk
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of

VNNI = load_named("x86_64_avx512_vnni")
ZEN5 = load_named("x86_64_zen5")
AMX = load_named("x86_64_amx")


def product(
    m: int, n: int, k: int, x: str = "u8", y: str = "i8", *, to: str = "i32", const: bool = True,
    extra: str = "",
) -> str:  # fmt: skip
    return f"""
    block main [] (
      in A[0, 0] {x}({m}, {k}):({k}, 1)
      {"const " if const else ""}in B[0, 0] {y}({k}, {n}):({n}, 1)
      out C[0, 0]:assign {to}({m}, {n}):({n}, 1)
    ) {{
      block C [m:{m}, n:{n}, k:{k}] (
        {extra}
        in A[m, k] {x}(1, 1)
        in B[k, n] {y}(1, 1)
        out C[m, n]:add {to}(1, 1)
      ) {{
        $a = load(A) {x}
        $b = load(B) {y}
        $x = cast($a) {to}
        $y = cast($b) {to}
        $p = mul($x, $y) {to}
        C = store($p)
      }}
    }}
    """


def tagged(program: Program) -> list[Block]:
    return [block for _, block in walk(program.root) if block.has_tag("group")]


def only_kernel(program: Program) -> Block:
    (kernel,) = tagged(program)
    return kernel


@pytest.mark.parametrize("const", [True, False])
@pytest.mark.parametrize(("x", "y"), [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")])
@pytest.mark.parametrize("k", [16, 17, 19])
def test_every_signedness_and_rest_computes_the_same(x: str, y: str, k: int, const: bool) -> None:
    made, _ = check_pass(program_of(product(33, 48, k, x, y, const=const)), StencilPack(), VNNI)
    kernel = only_kernel(made)
    assert kernel.ranges[kernel.tag_values("group")[0]] == 4
    (leaf,) = leaves(kernel, views_of(made.root, {}))
    shown = grouped(leaf)
    assert shown is not leaf and {o.dtype.bytes for o in shown.operands} == {4}


def test_without_a_rest_rows_are_not_copied() -> None:
    made, _ = check_pass(program_of(product(33, 64, 16)), StencilPack(), VNNI)
    assert [b.name for b in made.root.children] == ["C"]
    assert made.load is not None and [b.name for b in made.load.children] == ["B_pack"]


def test_what_is_no_constant_is_copied_ahead_of_the_kernel() -> None:
    made, _ = check_pass(program_of(product(333, 64, 16, const=False)), StencilPack(), VNNI)
    assert made.load is None and [b.name for b in made.root.children] == ["B_pack", "C"]


def row(*types: str) -> str:
    """Products beside each other, of x[m, k] in each of the types and of i8."""
    refs, kernels = "", ""
    for n, x in enumerate(types):
        refs += f"in A{n}[0, 0] {x}(333, 16):(16, 1)  in B{n}[0, 0] i8(16, 64):(64, 1)  "
        refs += f"out C{n}[0, 0]:assign i32(333, 64):(64, 1)  "
        kernels += f"""
          block C{n} [m:333, n:64, k:16] (in X = A{n}[m, k] {x}(1, 1)  in Y = B{n}[k, n] i8(1, 1)
                                         out R = C{n}[m, n]:add i32(1, 1)) {{
            $a = load(X) {x}
            $b = load(Y) i8
            $x = cast($a) i32
            $y = cast($b) i32
            $p = mul($x, $y) i32
            R = store($p) }}
        """
    return f"block main [] ({refs}) {{ {kernels} }}"


def test_each_kernel_of_a_program_is_laid_out_once() -> None:
    """None of them is passed over or looked at twice because of what was put in front of others."""
    made, remarks = check_pass(program_of(row("u8", "u8", "i8")), StencilPack(), VNNI)
    names = ["B0_pack", "C0", "B1_pack", "C1", "A2_u8", "C2_offset", "B2_pack", "C2", "C2_shift"]
    assert [b.name for b in made.root.children] == names
    assert [b.name for b in tagged(made)] == ["C0", "C1", "C2"]
    assert [r.block for r in remarks if r.acted] == ["main/C0", "main/C1", "main/C2", "main/C2"]
    assert [r.block for r in remarks if not r.acted] == ["main/C2_shift"]


def test_a_kernel_behind_one_that_is_left_is_laid_out() -> None:
    made, _ = check_pass(program_of(row("i16", "u8", "u8")), StencilPack(), VNNI)
    assert [b.name for b in tagged(made)] == ["C1", "C2"]


def test_a_nest_and_a_block_of_one_point_are_left() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] u8(32, 16):(16, 1)  in B[0, 0] i8(16, 64):(64, 1)
                       out C[0, 0]:assign i32(32, 64):(64, 1)  out D[0]:assign i32(1):(1)) {
          block C [o:2] (in A[16*o, 0] u8(16, 16)  in B[0, 0] i8(16, 64)  out C[16*o, 0]:assign i32(16, 64)) {
            block C [m:16, n:64, k:16] (in A[m, k] u8(1, 1)  in B[k, n] i8(1, 1)
                                        out C[m, n]:add i32(1, 1)) {
              $a = load(A) u8
              $b = load(B) i8
              $x = cast($a) i32
              $y = cast($b) i32
              $p = mul($x, $y) i32
              C = store($p) } }
          block D [] (in A[0, 0] u8(1, 1)  out D[0]:assign i32(1)) {
            $a = load(A) u8
            $x = cast($a) i32
            D = store($x) } }
        """
    )
    made, remarks = check_pass(program, StencilPack(), VNNI)
    assert made is program and not remarks


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        (product(33, 64, 16), 33 * 4 * 4 / 2),
        (product(33, 64, 16, const=False), 33 * 4 * 4 / 2 + 16 * 64 / 4),
        (product(33, 40, 17), 33 * 5 * 3 / 2 + 33 * 17 * 2 / 64),
    ],
    ids=["instructions", "turned", "rest"],
)
def test_the_cycles_are_those_of_instructions_and_copies_at_run_time(text: str, cycles: float) -> None:
    """Two instructions a cycle for 16 results and 4 products of each, in full vectors and groups."""
    _, remarks = check_pass(program_of(text), StencilPack(), VNNI)
    assert remarks[0].data["cycles"] == cycles


def pairs(m: int, n: int, k: int) -> str:
    return product(m, n, k, "bf16", "bf16", to="f32", const=False)


@pytest.mark.parametrize(
    ("text", "lanes", "rounds"),
    [(product(1, 128, 32, const=False), 64, 2), (pairs(1, 128, 32), 32, 1)],
    ids=["fours of bytes", "pairs"],
)
def test_what_one_row_reads_is_woven(text: str, lanes: int, rounds: int) -> None:
    """Half a cycle for each vector of B, and two to interleave it with another; fours do so twice."""
    program, remarks = check_pass(program_of(text), StencilPack(), ZEN5)
    assert remarks[0].data["cycles"] == 32 * 128 / lanes * (0.5 + 2 * rounds)
    assert [ref.name for ref in program.root.refinements] == ["A", "B", "C"]  # no copy of B


@pytest.mark.parametrize(
    ("n", "row"),
    [(64, 256), (65, 320), (333, 1344), (10, 40)],
    ids=["whole lines", "5 lines", "a rest", "short"],
)
def test_rows_of_copies_begin_at_lines(n: int, row: int) -> None:
    """Groups of four for n lanes; rows that are shorter than a line lie side by side."""
    made, _ = check_pass(program_of(product(33, n, 64, const=False)), StencilPack(), VNNI)
    (copy,) = (r for r in made.root.refinements if r.direction is Direction.NEW)
    assert copy.strides == (row, 4, 1)


@pytest.mark.parametrize(
    ("k", "groups", "copies"),
    [
        (512, 128, ["B_packed"]),
        (516, 144, ["A_packed", "B_packed"]),
        (510, 128, ["A_packed", "B_packed"]),
        (20, 5, ["B_packed"]),
    ],
    ids=["whole registers", "a register in part", "a group in part", "one register"],
)
def test_groups_fill_whole_registers_that_hold_rows(k: int, groups: int, copies: list[str]) -> None:
    """A register holds 16 groups; for one that is filled in part, others would need another shape as well."""
    made, _ = check_pass(program_of(product(80, 64, k, const=False)), StencilPack(), AMX)
    assert [r.name for r in made.root.refinements if r.direction is Direction.NEW] == copies
    assert only_kernel(made).ranges["k"] == groups


@pytest.mark.parametrize("k", [129, 130, 194, 510])
def test_what_fills_registers_up_adds_nothing(k: int) -> None:
    program = program_of(product(20, 17, k, "bf16", "bf16", to="f32", const=False))
    made, _ = check_pass(program, StencilPack(), AMX)
    assert made is not program
    inputs = random_inputs(program, np.random.default_rng(k))
    inputs["A"][:, -1] = np.inf
    inputs["B"][-1] = 1.0
    assert np.isposinf(interpret(made, inputs)["C"].astype(np.float32)).all()


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 4096, 4096), (4, 4096, 1024)], ids=["from main memory", "read again"]
)
def test_what_is_not_woven(m: int, n: int, k: int) -> None:
    program, context = program_of(pairs(m, n, k)), PassContext(ZEN5)
    assert StencilPack().run(program, context) is program
    assert "'vdpbf16ps' and its copies take" in context.remarks[0].message


TURNED = product(40, 7, 1024, const=False).replace("in B[k, n]", "in B[n, k]")
TURNED = TURNED.replace("i8(1024, 7):(7, 1)", "i8(7, 1024):(1024, 1)")


@pytest.mark.parametrize(
    ("text", "cycles", "copies"),
    [
        (product(33, 3, 1024, const=False), 33 * 3 * (16 / 2 + 8) + 3 * 1024 / 4, ["B_packed"]),
        (product(33, 3, 1022), 33 * 3 * (16 / 2 + 8) + 33 * 1022 * 2 / 64, ["A_packed"]),
        (TURNED, 40 * 7 * (16 / 2 + 8), []),
    ],
    ids=["few columns", "a rest", "rows of both"],
)
def test_lanes_share_a_result_where_few_would_have_one(text: str, cycles: float, copies: list[str]) -> None:
    """Two instructions a cycle for 64 products of one result, and two cycles for each of the four times that
    16 lanes become one."""
    made, remarks = check_pass(program_of(text), StencilPack(), VNNI)
    assert remarks[0].data["cycles"] == cycles
    assert [r.name for r in made.root.refinements if r.direction is Direction.NEW] == copies
    reads = [r for r in only_kernel(made).refinements if r.direction is Direction.IN]
    assert [r.access[-1] for r in reads if r.name == "A"] == [Affine.of({"k": 4, "p": 1})]


def test_a_unit_that_issues_less_takes_longer_for_the_kernel_as_it_is() -> None:
    (unit,) = VNNI.units
    slow = msgspec.structs.replace(VNNI, units=[msgspec.structs.replace(unit, fma_per_cycle=1)])
    program = program_of(product(33, 64, 16))
    (once,), (twice,) = (check_pass(program, StencilPack(), hw)[1] for hw in (VNNI, slow))
    assert (once.data["before"], twice.data["before"]) == (2112, 4224)


def test_a_target_without_the_instruction_is_left_alone() -> None:
    made, remarks = check_pass(program_of(product(33, 64, 16)), StencilPack(), load_named("x86_64_avx512"))
    assert not tagged(made)
    assert "has no instruction that sums groups" in remarks[0].message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (product(33, 64, 16, "i16", "i8"), "holds i16"),
        (product(1, 64, 3, const=False), "and its copies take"),
        (product(33, 64, 16, extra="k - 1 >= 0"), "a constraint limits k"),
        (product(33, 64, 16).replace("C[m, n]:add", "C[m, n]:max"), "aggregated by max"),
    ],
    ids=["types", "cost", "constraint", "aggregation"],
)
def test_what_is_not_laid_out_has_a_reason(text: str, reason: str) -> None:
    made, remarks = check_pass(program_of(text), StencilPack(), VNNI)
    assert not tagged(made)
    assert reason in " ".join(r.message for r in remarks)


def test_a_reversed_or_strided_operand_is_not_laid_out() -> None:
    text = product(33, 64, 16).replace("in B[k, n]", "in B[15 - k, n]")
    made, remarks = check_pass(program_of(text), StencilPack(), VNNI)
    assert not tagged(made)
    assert "a dimension of 'B' is not k alone" in remarks[-1].message


def test_only_fixed_groups_along_lanes_are_instructions() -> None:
    found = [made.stencil.name for made in instructions(VNNI)]
    assert found == ["vpdpbusd", "vpdpbusd_turned", "vdpbf16ps"]
    stencil = VNNI.stencil("vpdpbusd")
    assert stencil is not None
    no_stride = msgspec.structs.replace(stencil, stride={})
    other_step = msgspec.structs.replace(stencil, stride={**stencil.stride, "y": {"p": 1, "j": 8}})
    any_size = msgspec.structs.replace(stencil, indices={**stencil.indices, "p": "any"})
    no_name = msgspec.structs.replace(stencil, intrinsic="")
    assert not any(map(summing, (no_stride, other_step, any_size, no_name)))


def test_no_instruction_for_what_no_cpu_executes() -> None:
    chip: HwConfig = msgspec.structs.replace(VNNI, executor="interpreter")
    assert instructions(chip) == ()


def test_what_makes_up_for_a_shift_fuses_with_the_kernel() -> None:
    program = program_of(product(33, 64, 16, "i8", "i8"))
    steps = [StencilPack(), Fuse()]
    made = run_pipeline(program, steps, VNNI)
    (fused,) = [block for block in made.root.children if block.children]
    assert [child.name for child in fused.children] == ["C", "C_shift"]
    assert fused.children[0].has_tag("group")
    inputs = random_inputs(program, np.random.default_rng(0))
    np.testing.assert_array_equal(interpret(made, inputs)["C"], interpret(program, inputs)["C"])


@pytest.mark.parametrize(("x", "y"), [("i8", "i8"), ("u8", "u8")])
def test_elements_that_several_points_write_are_made_up_for_at_all_of_them(x: str, y: str) -> None:
    """A convolution that spreads: element 2 * m + r is a sum over r and m, too, each with its own shift."""
    text = f"""
    block main [] (
      in A[0, 0] {x}(33, 16):(16, 1)
      in B[0, 0, 0] {y}(3, 16, 64):(1024, 64, 1)
      out C[0, 0]:assign i32(67, 64):(64, 1)
    ) {{
      block C [m:33, r:3, n:64, k:16] (
        in A[m, k] {x}(1, 1)
        in B[r, k, n] {y}(1, 1, 1)
        out C[2*m + r, n]:add i32(1, 1)
      ) {{
        $a = load(A) {x}
        $b = load(B) {y}
        $x = cast($a) i32
        $y = cast($b) i32
        $p = mul($x, $y) i32
        C = store($p)
      }}
    }}
    """
    made, _ = check_pass(program_of(text), StencilPack(), VNNI)
    assert only_kernel(made) and made.root.children[-1].name.startswith("C_shift")


def test_the_copy_of_an_operand_does_not_fuse_along_the_group() -> None:
    program = program_of(product(33, 64, 16, const=False))
    made = run_pipeline(program, [StencilPack(), Fuse()], VNNI)
    kernel = only_kernel(made)
    assert kernel.ranges["p"] == 4
