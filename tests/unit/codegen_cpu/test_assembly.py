"""What is counted in the innermost loops of assembly."""

from __future__ import annotations

import pytest

import codegen_cpu.target
from codegen_cpu.assembly import InnerLoop, code_facts, spilled
from codegen_cpu.build import Module, build
from hwconfigs.load import load_named
from stripec.driver import optimise, read_program
from stripec.tensors import parse_type
from stripec.threads import with_threads

X86 = """
f:
    pushq %rbp
.LBB0_1:
    xorl %eax, %eax
.LBB0_2:                                # an inner loop
    vmovups (%r11), %zmm22 {%k1} {z}
    vbroadcastss 384(%rdi,%rdx), %zmm23
    vmovups -112(%rsp), %zmm1
    vfmadd213ps %zmm1, %zmm22, %zmm23
    vfmadd132ps 8064(%rdi,%rdx){1to16}, %zmm20, %zmm22
    vaddps (%rbp,%rax), %ymm2, %ymm2
    vmovupd %zmm1, -112(%rsp)
    vmovaps %zmm1, 320(%rsp,%r8,4)
    vmovups %zmm1, (%rbp) {%k1}
    prefetcht0 64(%rdi)
    leaq 4(%rdi), %rdi
    addq $4, %rdx
    jne .LBB0_2
    incq %rcx
    jne .LBB0_1
.LBB0_3:
    vaddps %xmm0, %xmm0, %xmm0
    movq 8(%rsp), %rax
    jne .LBB0_3
    retq
.Lfunc_end0:
"""
ARM = """
f:
    stp x29, x30, [sp, #-16]!
.LBB0_2:
    ldp q0, q1, [x0], #32
    fmla v2.4s, v0.4s, v1.4s
    fadd v3.4s, v3.4s, v2.4s
    str q2, [x1]
    ldr q4, [sp, #16]
    ldr q4, [sp, x8]
    subs x2, x2, #1
    b.ne .LBB0_2
    ret
.Lfunc_end0:
"""


def test_a_loop_of_x86_is_counted_once_for_all_that_an_instruction_does() -> None:
    found = code_facts(X86, "x86_64-unknown-linux-gnu")
    assert found is not None
    assert (found.loops, found.spilling) == (2, 1), "the outer loop is none, and 8(%rsp) is no vector"
    assert found.hot == InnerLoop(
        instructions=13, multiply_adds=2, arithmetic=1, loads=2, broadcasts=2, stores=2, spills=1, reloads=1,
        registers=5, vector_bytes=64,
    )  # fmt: skip


def test_a_frame_pointer_is_the_stack_only_where_it_is_one() -> None:
    framed = X86.replace("pushq %rbp", "movq %rsp, %rbp")
    found = code_facts(framed, "x86_64-unknown-linux-gnu")
    assert found is not None and (found.hot.spills, found.hot.reloads, found.hot.loads) == (2, 1, 2)


def test_a_loop_of_aarch64() -> None:
    found = code_facts(ARM, "aarch64-linux-gnu")
    assert found is not None
    assert found.hot == InnerLoop(
        instructions=8, multiply_adds=1, arithmetic=1, loads=2, stores=1, reloads=1, registers=5,
        vector_bytes=16,
    )  # fmt: skip


def test_code_without_a_loop_and_what_is_not_known() -> None:
    found = code_facts("f:\n  vfmadd213ps %xmm1, %xmm2, %xmm3\n  retq\n.Lfunc_end0:\n", "x86_64-x")
    assert found is not None and found.loops == 0 and found.hot.multiply_adds == 1
    assert code_facts(X86, "riscv64-unknown-linux") is None
    assert code_facts("", "x86_64-unknown-linux-gnu") is None


@pytest.mark.parametrize("target", ["x86_64_avx512", "aarch64_neon"])
def test_of_a_product_as_it_is_compiled(target: str) -> None:
    hw = load_named(target)
    source = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    types = {name: parse_type("f32[64, 64]", name) for name in "AB"}
    done = optimise(read_program(source).lower(types, ()), hw, verify="off")
    found = code_facts(build(done.program, hw).asm, hw.cpu.triple if hw.cpu else "")
    assert found is not None and found.hot.multiply_adds >= 8
    assert found.hot.vector_bytes == hw.units[0].vector_bytes
    assert found.hot.registers <= hw.units[0].registers and not found.hot.spills


@pytest.mark.parametrize("target", ["x86_64_zen4", "x86_64_avx512", "x86_64_avx2"])
@pytest.mark.parametrize("step", [2, 3])
def test_vectors_that_come_together_from_several_leave_place_for_the_sums(target: str, step: int) -> None:
    hw = load_named(target)
    point = f"I[g, {step}*y + r - 1, {step}*x + s - 1] * F[g, r, s]"
    source = f"function (I[G, H, W], F[G, R, S]) -> (O) {{ O[g, y, x : G, 28, 28] = +({point}); }}"
    shapes = {"I": f"f32[64, {28 * step}, {28 * step}]", "F": "f32[64, 3, 3]"}
    types = {name: parse_type(shape, name) for name, shape in shapes.items()}
    done = optimise(read_program(source).lower(types, ()), hw, verify="off")
    found = code_facts(build(done.program, hw).asm, hw.cpu.triple if hw.cpu else "")
    assert found is not None and found.hot.multiply_adds >= 8
    assert not found.hot.spills


def test_code_of_threads_is_counted() -> None:
    """Parts that threads run are functions of their own, with a dot in their names."""
    hw = with_threads(load_named("x86_64_avx512"), 2)
    source = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    types = {name: parse_type("f32[256, 256]", name) for name in "AB"}
    module = build(optimise(read_program(source).lower(types, ()), hw, verify="off").program, hw)
    found = code_facts(module.asm, hw.cpu.triple if hw.cpu else "")
    assert ".region:" in module.asm
    assert found is not None and found.loops > 0 and found.hot.multiply_adds >= 8


def test_vectors_of_inner_loops_that_go_to_the_stack_with_buffers_that_lie_there() -> None:
    assert spilled(X86, "x86_64-unknown-linux-gnu") == 3, "8(%rsp) is no vector"
    assert spilled(ARM, "aarch64-unknown-linux-gnu") == 2
    assert spilled(X86, "riscv64-unknown-linux") == 0


def test_instructions_stay_in_written_order_where_less_goes_to_the_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LLVM loads all twelve pixels of a border ahead of 24 sums. What is compiled later has its own order."""
    hw = load_named("x86_64_zen5")
    triple = hw.cpu.triple if hw.cpu else ""
    point = "I[c, 2*y + r - 1, 2*x + s - 1] * F[k, c, r, s]"
    layer = f"function (I[C, H, W], F[K, C, R, S]) -> (O) {{ O[k, y, x : K, 24, 24] = +({point}); }}"
    product = "function (I[M, K], F[K, N]) -> (O) { O[m, n : M, N] = +(I[m, k] * F[k, n]); }"

    def module(text: str, **shapes: str) -> Module:
        types = {name: parse_type(shape, name) for name, shape in shapes.items()}
        return build(optimise(read_program(text).lower(types, ()), hw, verify="off").program, hw)

    one = module(layer, I="f32[256, 48, 48]", F="f32[32, 256, 3, 3]")
    other = module(product, I="f32[64, 64]", F="f32[64, 64]")
    chosen, after = one.target.object_code(one.emitted), other.target.object_code(other.emitted)
    asm = one.asm
    monkeypatch.setattr(codegen_cpu.target, "spilled", lambda *_: 0)
    assert spilled(asm, triple) < spilled(one.target.assembly(one.emitted), triple)
    assert chosen != one.target.object_code(one.emitted)
    assert after == other.target.object_code(other.emitted)
