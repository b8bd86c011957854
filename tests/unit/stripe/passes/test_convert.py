"""convert: copies whose elements are converted once."""

from __future__ import annotations

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory
from stripe.analysis.cost_sets import NEAR
from stripe.diag import Remark
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Program
from stripe.passes.base import PassContext
from stripe.passes.convert import COPIED, Convert
from stripe.passes.stencil_pack import StencilPack
from stripe.printer import to_text
from tests.support.passes import check_pass, program_of

AVX512 = load_named("x86_64_avx512")


def product(m: int, n: int, k: int, dtype: str = "f16", wide: str = "f32", const: str = "") -> Program:
    return program_of(
        f"""
        block main [] (
          in A[0, 0] {dtype}({m}, {k}):({k}, 1)
          {const}in B[0, 0] {dtype}({k}, {n}):({n}, 1)
          out C[0, 0]:assign {wide}({m}, {n}):({n}, 1)
        ) {{
          block C [m:{m}, n:{n}, k:{k}] (
            in A[m, k] {dtype}(1, 1)
            in B[k, n] {dtype}(1, 1)
            out C[m, n]:add {wide}(1, 1)
          ) {{
            $a = load(A) {dtype}
            $b = load(B) {dtype}
            $x = cast($a) {wide}
            $y = cast($b) {wide}
            $p = mul($x, $y) {wide}
            C = store($p)
          }}
        }}
        """
    )


def kernel(program: Program, name: str = "C") -> Block:
    return next(b for b in program.root.children if b.name == name)


def casts(block: Block) -> int:
    return sum(isinstance(s, Cast) for s in block.statements)


def said(remarks: list[Remark]) -> str:
    return " ".join(r.message for r in remarks if not r.acted)


@pytest.mark.parametrize(("dtype", "wide"), [("f16", "f32"), ("bf16", "f32"), ("i8", "f32"), ("f32", "f64")])
def test_both_operands_of_a_product_are_converted_once(dtype: str, wide: str) -> None:
    made, remarks = check_pass(product(64, 64, 32, dtype, wide), Convert(), AVX512)
    assert [b.name for b in made.root.children] == ["A_convert", "B_convert", "C"]
    assert not casts(kernel(made))
    assert [r.acted for r in remarks] == [True, True]
    assert {r.dtype for r in kernel(made).refinements} == {DType(wide)}


def test_narrow_integers_stay_narrow() -> None:
    program = product(64, 64, 32, "i8", "i32")
    made, remarks = check_pass(program, Convert(), AVX512)
    assert made is program and "narrow integers are multiplied in fewer instructions" in said(remarks)


def test_constants_are_converted_at_load_time() -> None:
    made, remarks = check_pass(product(64, 64, 32, const="const "), Convert(), AVX512)
    assert made.load is not None
    assert [r.message.partition(": ")[2] for r in remarks] == [
        "saves 2048 of 1.229e+04 cycles, the copy takes 384",
        "saves 2048 of 8192 cycles, to read the copy takes 32 more, it is made at load time",
    ]
    assert [b.name for b in made.load.children] == ["B_convert"]
    assert [b.name for b in made.root.children] == ["A_convert", "C"]


def test_what_is_used_once_is_left_as_it_is() -> None:
    program = product(1, 64, 256)
    made, remarks = check_pass(program, Convert(), AVX512)
    assert "'B' to f32: saves " in said(remarks)
    assert kernel(made).refinement("B").dtype is DType.F16


def test_a_large_operand_that_few_rows_use_stays_narrow() -> None:
    """A copy that memory holds takes longer than the conversions."""
    context = PassContext(AVX512)
    made = Convert().run(product(8, 2048, 2048), context)
    assert kernel(made).refinement("B").dtype is DType.F16
    assert kernel(made).refinement("A").dtype is DType.F32
    assert "not converted ahead: 'B' to f32" in said(context.remarks)


@pytest.mark.parametrize("tag", ["", "#stencil=fma_f32"])
def test_a_value_that_is_used_as_it_is_too_is_left(tag: str) -> None:
    text = f"""
        block main [] (in A[0] f16(64):(1)  out C[0, 0]:assign f32(64, 64):(64, 1)
                       out D[0, 0]:assign f16(64, 64):(64, 1)) {{
          block C [m:64, n:64] (in A[n] f16(1)  out C[m, n]:assign f32(1, 1)
                                out D[m, n]:assign f16(1, 1)) {tag} {{
            $a = load(A) f16
            $x = cast($a) f32
            C = store($x)
            D = store($a) }} }}
    """
    program = program_of(text)
    made, remarks = check_pass(program, Convert(), AVX512)
    assert made is program and not remarks


def test_an_operand_of_a_group_is_left_to_its_instruction() -> None:
    program = StencilPack().run(product(64, 64, 32, "i8", "i32"), context := _vnni())
    made, remarks = check_pass(program, Convert(), context.hw)
    tagged = kernel(made)
    assert tagged.has_tag("group") and casts(tagged) == 2
    assert "an instruction takes it, says #group" in said(remarks)


def _vnni() -> PassContext:
    return PassContext(load_named("x86_64_avx512_vnni"))


def test_what_is_written_or_seen_twice_is_left() -> None:
    text = """
        block main [] (in A[0] f16(65):(1)  out C[0, 0]:assign f32(64, 64):(64, 1)) {
          block C [m:64, n:64] (in A[n] f16(1)  in X = A[n + 1] f16(1)  out C[m, n]:assign f32(1, 1)) {
            $a = load(A) f16
            $b = load(X) f16
            $x = cast($a) f32
            $y = cast($b) f32
            $p = add($x, $y) f32
            C = store($p) } }
    """
    _, remarks = check_pass(program_of(text), Convert(), AVX512)
    assert "the kernel has several views of it" in said(remarks)


@pytest.mark.parametrize(("least", "acts"), [(16, True), (17, False)])
def test_a_copy_that_saves_just_the_share_is_made(least: int, acts: bool) -> None:
    """It saves 800 of 4800 cycles and takes 32: that is 16 percent."""
    program = product(25, 64, 32, const="const ")
    made, _ = check_pass(program, Convert(least_gain=least), AVX512, again=False)
    assert (made.load is not None) == acts


def test_a_kernel_takes_as_long_as_its_elements_take_to_come() -> None:
    """A row computes for 786432 cycles at most; DRAM delivers the 16 MiB of B in 4194304."""
    context = PassContext(AVX512)
    Convert().run(product(1, 2048, 4096), context)
    assert context.remarks
    assert all(" of 4.194e+06 cycles" in remark.message for remark in context.remarks)


def test_a_share_of_the_kernel_must_be_saved() -> None:
    program = product(64, 64, 32)
    made, remarks = check_pass(program, Convert(least_gain=100), AVX512)
    assert made is program and "saves" in said(remarks)


def paid(program: Program, hw: HwConfig, buffer: str) -> object:
    context = PassContext(hw)
    Convert().run(program, context)
    (remark,) = [r for r in context.remarks if f"'{buffer}'" in r.message]
    assert remark.acted
    return remark.data["paid"]


L1, L2 = (memory for memory in AVX512.memories if memory.name in ("L1", "L2"))
SILENT = msgspec.structs.replace(L1, bytes_per_cycle=None)


@pytest.mark.parametrize(
    ("n", "k", "memories", "rate"),
    [
        (64, 64, AVX512.memories, 128),
        (64, 112, AVX512.memories, 128),
        (256, 256, AVX512.memories, 64),
        (1024, 1024, AVX512.memories, 10),
        (2048, 2048, AVX512.memories, 4),
        (64, 64, (L1,), 128),
        (256, 256, (L1,), 128),
        (1024, 1024, (L1, L2), 64),
        (64, 64, (SILENT,), NEAR),
        (64, 64, (), NEAR),
    ],
    ids=["L1", "full", "L2", "L3", "DRAM", "one", "one-small", "two-small", "silent", "none"],
)
def test_a_larger_copy_costs_bytes_of_the_memory_that_holds_it(
    n: int, k: int, memories: tuple[Memory, ...], rate: float
) -> None:
    hw = msgspec.structs.replace(AVX512, memories=memories)
    assert paid(product(64, n, k, const="const "), hw, "B") == n * k * 2 / rate


def test_only_what_is_read_costs_bytes() -> None:
    text = to_text(product(64, 64, 32, const="const ")).replace("f16(32, 64)", "f16(64, 64)")
    assert paid(program_of(text), AVX512, "B") == 32 * 64 * 2 / 128


@pytest.mark.parametrize(("vector_bytes", "width"), [(64, 16), (8, 2), (4, 1), (2, 1)])
def test_a_copy_is_made_in_the_vectors_of_the_unit(vector_bytes: int, width: int) -> None:
    (unit,) = AVX512.units
    hw = msgspec.structs.replace(AVX512, units=(msgspec.structs.replace(unit, vector_bytes=vector_bytes),))
    moved = 2 + 2 + 4  # bytes: what the copy is larger by, what it reads and what it writes
    assert paid(product(64, 64, 32), hw, "A") == 64 * 32 * (COPIED / width / 2 + moved / 128)


def test_a_narrower_copy_costs_no_bytes_beyond_its_making() -> None:
    moved = 4 + 2
    assert paid(product(64, 64, 32, "f32", "f16"), AVX512, "A") == 64 * 32 * (COPIED / 16 / 2 + moved / 128)
