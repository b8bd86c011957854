"""Leaves that fuse does not join, since units would make less of the one than of the two."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory, Unit
from stripe.diag import Remark, Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.fuse import Fuse
from tests.support.passes import program_of
from tile_frontend import compile_tile

SUMS = {
    "rows": "P[m : M] = +(A[m, n]);",
    "largest of rows": "Q[m : M] = >(A[m, n]);",
    "columns": "Q[n : N] = +(A[m, n]);",
    "all": "Q[] = >(A[m, n]);",
}


def of_one_matrix(*names: str, shape: tuple[int, int] = (500, 300)) -> Program:
    results = "PQR"[: len(names)]
    body = " ".join(SUMS[n].replace("Q[", f"{r}[") for n, r in zip(names, results, strict=True))
    text = f"function s(A[M, N]) -> ({', '.join(results)}) {{ {body} }}"
    return compile_tile(Source("sums.tile", text), {"A": TensorType(DType.F32, shape)})


def products(sizes: tuple[int, int, int] = (32, 48, 64)) -> Program:
    """Three sums of the products of the same two operands, over different indexes."""
    m, n, k = sizes
    text = """function p(A[K, M], B[N, K]) -> (P, Q, S) {
        P[m, n : M, N] = +(A[k, m] * B[n, k]);
        Q[n, m : N, M] = +(A[k, m] * B[n, k]);
        S[k, n : K, N] = +(A[k, m] * B[n, k]); }"""
    types = {"A": TensorType(DType.F32, (k, m)), "B": TensorType(DType.F32, (n, k))}
    return compile_tile(Source("products.tile", text), types)


def fused(program: Program, hw: HwConfig) -> tuple[list[str], list[Remark]]:
    context = PassContext(hw)
    result = Fuse().run(program, context)
    return [child.name for child in result.root.children], context.remarks


def test_uses_of_a_stencil_do_not_become_a_leaf_that_is_none() -> None:
    names, remarks = fused(products(), load_named("systolic_16"))
    assert names == ["P", "Q", "S"]
    assert len(remarks) == 2 and all("on VPU, the two" in r.message for r in remarks)
    assert all("on MAC ('mac_f32')" in r.message for r in remarks)


@pytest.mark.parametrize(
    ("target", "left"), [("generic", ["Q", "S"]), ("x86_64_avx512", ["P", "Q", "S"])]
)  # of the latter, P is a use of a stencil
def test_sums_over_different_indexes_keep_their_tile_in_registers(target: str, left: list[str]) -> None:
    names, remarks = fused(products(), load_named(target))
    assert names == left
    assert not remarks[-1].acted and "cycles on CORE, the two" in remarks[-1].message


def test_results_over_different_indexes_keep_all_cores_busy() -> None:
    hw = load_named("many_core")
    names, remarks = fused(of_one_matrix("rows", "columns", "all"), hw)
    assert names == ["P", "Q", "R"]
    assert "on CORE, the two" in remarks[0].message and "on 16 CORE each" in remarks[0].message
    assert fused(of_one_matrix("rows", "largest of rows"), hw)[0] == ["Q"]


@pytest.mark.parametrize("target", ["generic", "x86_64_avx512"])
def test_one_thread_passes_over_the_data_once(target: str) -> None:
    assert fused(of_one_matrix("rows", "columns", shape=(1000, 1000)), load_named(target))[0] == ["Q"]


def small(bytes_: int) -> HwConfig:
    near = Memory("BUF", "explicit", bytes=bytes_, backing="DDR", bytes_per_cycle=8)
    far = Memory("DDR", "explicit", bytes_per_cycle=4)
    copier = Unit("COPY", "transfer", bytes_per_cycle=4, reaches=("BUF", "DDR"), operations=(), specials=())
    return replace(
        load_named("generic"),
        name="small",
        executor="interpreter",
        memories=(near, far),
        units=(Unit("U", vector_bytes=8, reaches=("BUF",)), copier),
        stencils=(),
    )


def test_results_that_several_tiles_add_to_must_fit() -> None:
    """Row sums and column sums: tiles along either index add to all of the other result."""
    both = of_one_matrix("rows", "columns")
    names, (remark,) = fused(both, small(2400))
    assert names == ["P", "Q"]
    assert "the smallest tile of one leaf keeps 2404 bytes" in remark.message
    assert fused(both, small(4096))[0] == ["Q"]


def test_a_leaf_must_pass_through_memories_in_which_nothing_adds_up() -> None:
    """Rows need a row of the matrix at a time there, columns a column, and both the whole matrix."""
    hw = small(1 << 16)
    between = Memory("MID", "explicit", bytes=1 << 17, backing="DDR", bytes_per_cycle=4)
    near, far = hw.memories
    staged = replace(hw, memories=(replace(near, backing="MID"), between, far))
    assert fused(of_one_matrix("rows", "columns"), hw)[0] == ["Q"]
    names, (remark,) = fused(of_one_matrix("rows", "columns"), staged)
    assert names == ["P", "Q"] and "need 603200 bytes at once where no unit adds up" in remark.message


def chain(first: str, second: str, dtype: str = "f32") -> Program:
    return program_of(
        f"""
        block main [] (in X[0] {dtype}(64)  out T[0]:assign {dtype}(64)  out R[0]:assign {dtype}(64)) {{
          block T [i:64] (in X[i] {dtype}(1)  out T[i]:assign {dtype}(1)) {{
            $x = load(X) {dtype}
            $y = {first}($x) {dtype}
            T = store($y)
          }}
          block R [i:64] (in T[i] {dtype}(1)  out R[i]:assign {dtype}(1)) {{
            $x = load(T) {dtype}
            $y = {second}($x) {dtype}
            R = store($y)
          }}
        }}
        """
    )


def two_units(*, vector_bytes: int = 8, second: tuple[str, ...] = ("neg",)) -> HwConfig:
    hw = small(1 << 16)
    one = Unit("ONE", vector_bytes=8, reaches=("BUF",), operations=("exp",))
    other = Unit("OTHER", vector_bytes=vector_bytes, reaches=("BUF",), operations=second)
    return replace(hw, units=(one, other, *(u for u in hw.units if u.kind == "transfer")))


def test_a_leaf_that_no_unit_executes_is_not_made() -> None:
    names, (remark,) = fused(chain("exp", "neg"), two_units())
    assert names == ["T", "R"]
    assert remark.message.endswith("no unit executes one leaf of both, and ONE and OTHER execute the two")
    assert fused(chain("exp", "exp"), two_units())[0] == ["R"]
    assert fused(chain("exp", "neg"), small(1 << 16))[0] == ["R"]


def test_a_leaf_stays_on_the_fast_unit() -> None:
    """The slow unit could execute both, and would take longer than the copies that one leaf saves."""
    names, (remark,) = fused(chain("exp", "neg"), two_units(vector_bytes=1, second=("exp", "neg")))
    hw = two_units(vector_bytes=8, second=("exp", "neg"))
    assert fused(chain("exp", "neg"), hw)[0] == ["R"]
    assert names == ["T", "R"] and "ONE and OTHER" in remark.message


def test_blocks_that_only_read_the_same_are_told_why_they_are_apart() -> None:
    text = """function qkv(X[N, D], W[D, E], V[D, E]) -> (Q, K) {
        Q[n, e : N, E] = +(X[n, d] * W[d, e]);
        K[n, e : N, E] = +(X[n, d] * V[d, e]); }"""
    square = TensorType(DType.F32, (16, 16))
    program = compile_tile(Source("qkv.tile", text), dict.fromkeys("XWV", square))
    names, (remark,) = fused(program, load_named("systolic_16"))
    assert names == ["Q", "K"]
    assert not remark.acted and "not fused with 'Q': they only read buffers in common" in remark.message
