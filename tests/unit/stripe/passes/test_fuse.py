"""What fuse puts together, what it leaves apart, and that neither changes a result."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from hwconfigs.load import load_named
from stripe.analysis.fusion import plan_fusion
from stripe.analysis.fusion_plan import Declined, Plan
from stripe.diag import Remark, Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Aggregation, Block, Direction, Program
from stripe.passes.fuse import Fuse
from stripe.passes.localize import Localize
from stripe.passes.scalarize import Scalarize
from tests.support.passes import check_pass, program_of
from tile_frontend import compile_tile


def kernel(name: str, indexes: str, views: str, body: str) -> str:
    """A leaf block; views are separated by `;`."""
    lines = "\n".join(view.strip() for view in views.split(";"))
    return f"block {name} [{indexes}] (\n{lines}\n) {{\n{body}\n}}\n"


def elementwise(name: str, source: str, shape: tuple[int, int] = (6, 8)) -> str:
    """name[i, j] = source[i, j] + 1"""
    m, n = shape
    return kernel(
        name,
        f"i:{m}, j:{n}",
        f"in {source}[i, j] f32(1, 1); out {name}[i, j]:assign f32(1, 1)",
        f"$x = load({source}) f32\n$one = constant(1.0) f32\n$y = add($x, $one) f32\n{name} = store($y)",
    )


def copy(name: str, indexes: str, read: str, write: str, agg: str = "assign") -> str:
    """Read one element, write it: `read` and `write` are accesses such as `X[i, j]`."""
    source, rank = read.split("[")[0], read.count(",") + 1
    target, out_rank = write.split("[")[0], write.count(",") + 1 if "[]" not in write else 0
    ones, out_ones = ", ".join("1" * rank), ", ".join("1" * out_rank)
    return kernel(
        name,
        indexes,
        f"in {read} f32({ones}); out {write}:{agg} f32({out_ones})",
        f"$x = load({source}) f32\n{target} = store($x)",
    )


def contraction(name: str, left: str, right: str, sizes: tuple[int, int, int]) -> str:
    """name[m, n] = sum over k of left[m, k] * right[k, n]"""
    m, n, k = sizes
    return kernel(
        name,
        f"m:{m}, n:{n}, k:{k}",
        f"in {left}[m, k] f32(1, 1); in {right}[k, n] f32(1, 1); out {name}[m, n]:add f32(1, 1)",
        f"$a = load({left}) f32\n$b = load({right}) f32\n$c = mul($a, $b) f32\n{name} = store($c)",
    )


def main(refs: str, *kernels: str) -> Program:
    """`refs`: `in X 6 8; new T 6 8; out R 6 8`, all f32 and row-major."""
    lines = []
    for entry in refs.split(";"):
        direction, name, *sizes = entry.split()
        shape = f"f32({', '.join(sizes)})"
        if direction == "new":
            lines.append(f"new {name} {shape}")
        else:
            origin = ", ".join("0" for _ in sizes)
            suffix = ":assign" if direction == "out" else ""
            lines.append(f"{direction} {name}[{origin}]{suffix} {shape}")
    return program_of("block main [] (\n" + "\n".join(lines) + "\n) {\n" + "".join(kernels) + "}\n")


def fuse(program: Program, rtol: float = 0.0) -> tuple[Program, list[Remark]]:
    return check_pass(program, Fuse(), load_named("x86_64_avx512"), rtol=rtol)


def shape_of(block: Block) -> str:
    """The nest in one line: `main(R[m,n](C[k] R[]))`."""
    inner = " ".join(shape_of(c) for c in block.children)
    own = ",".join(block.ranges)
    return f"{block.name}[{own}]" + (f"({inner})" if inner else "")


def test_elementwise_chain_becomes_one_flat_leaf_of_scalars() -> None:
    names = ["X", "T0", "T1", "T2", "T3", "R"]
    program = main(
        "in X 6 8; " + "; ".join(f"new {t} 6 8" for t in names[1:-1]) + "; out R 6 8",
        *(elementwise(name, source) for source, name in pairwise(names)),
    )
    program, _ = fuse(program)
    program, _ = check_pass(program, Localize())
    program, _ = check_pass(program, Scalarize())
    assert shape_of(program.root) == "main[](R[i,j])"
    leaf = program.root.children[0]
    assert {r.name for r in leaf.refinements} == {"X", "R"}
    assert {type(s).__name__ for s in leaf.statements} == {"Load", "Constant", "Intrinsic", "Store"}
    assert sum(type(s).__name__ == "Store" for s in leaf.statements) == 1


def test_broadcast_operands_do_not_hinder_a_chain() -> None:
    bias = kernel(
        "T",
        "i:6, j:8",
        "in X[i, j] f32(1, 1); in D[j] f32(1); out T[i, j]:assign f32(1, 1)",
        "$x = load(X) f32\n$d = load(D) f32\n$y = add($x, $d) f32\nT = store($y)",
    )
    scale = kernel(
        "R",
        "p:6, q:8",
        "in T[p, q] f32(1, 1); in S[0] f32(1); in E[p] f32(1); out R[p, q]:assign f32(1, 1)",
        "$t = load(T) f32\n$s = load(S) f32\n$e = load(E) f32\n"
        "$u = mul($t, $s) f32\n$y = mul($u, $e) f32\nR = store($y)",
    )
    program, _ = fuse(main("in X 6 8; in D 8; in S 1; in E 6; new T 6 8; out R 6 8", bias, scale))
    assert shape_of(program.root) == "main[](R[i,j])"


def test_contraction_and_epilogue_share_the_output_indexes() -> None:
    program = main(
        "in A 6 5; in B 5 8; new C 6 8; new S 6 8; out R 6 8",
        contraction("C", "A", "B", (6, 8, 5)),
        elementwise("S", "C"),
        elementwise("R", "S"),
    )
    program, remarks = fuse(program)
    assert shape_of(program.root) == "main[](R[m,n](C[k] R[]))"
    assert all(r.acted for r in remarks)
    program, _ = check_pass(program, Localize(accumulators="REG"), load_named("x86_64_avx512"))
    buffer = program.root.children[0].refinement("C")
    assert buffer.shape == (1, 1) and buffer.location is not None and buffer.location.unit == "REG"


def test_residual_that_the_consumer_also_needs() -> None:
    add = kernel(
        "R",
        "i:6, j:8",
        "in C[i, j] f32(1, 1); in X[i, j] f32(1, 1); out R[i, j]:assign f32(1, 1)",
        "$c = load(C) f32\n$x = load(X) f32\n$y = add($c, $x) f32\nR = store($y)",
    )
    program, _ = fuse(
        main("in A 6 5; in B 5 8; in X 6 8; new C 6 8; out R 6 8", contraction("C", "A", "B", (6, 8, 5)), add)
    )
    assert shape_of(program.root) == "main[](R[m,n](C[k] R[]))"


def test_several_consumers_share_with_their_producer() -> None:
    program, _ = fuse(
        main(
            "in X 6 8; new T 6 8; out P 6 8; out Q 6 8",
            elementwise("T", "X"),
            elementwise("P", "T"),
            elementwise("Q", "T"),
        )
    )
    assert shape_of(program.root) == "main[](Q[i,j])"


def test_statement_between_two_is_moved_aside() -> None:
    program, _ = fuse(
        main(
            "in X 6 8; in A 6 5; in B 5 8; new T 6 8; out C 6 8; out R 6 8",
            elementwise("T", "X"),
            contraction("C", "A", "B", (6, 8, 5)),
            elementwise("R", "T"),
        )
    )
    assert shape_of(program.root) == "main[](C[m,n,k] R[i,j])"


def test_statement_that_needs_the_first_of_two_is_moved_behind() -> None:
    program, _ = fuse(
        main(
            "in X 6 8; in B 8 5; new T 6 8; out C 6 5; out R 6 8",
            elementwise("T", "X"),
            contraction("C", "T", "B", (6, 5, 8)),
            elementwise("R", "T"),
        )
    )
    assert shape_of(program.root) == "main[](R[i,j] C[m,n,k])"


def test_softmax_rows_share_the_row() -> None:
    shifted = kernel(
        "E",
        "i:6, j:8",
        "in X[i, j] f32(1, 1); in M[i] f32(1); out E[i, j]:assign f32(1, 1)",
        "$x = load(X) f32\n$m = load(M) f32\n$d = sub($x, $m) f32\n$e = exp($d) f32\nE = store($e)",
    )
    divide = kernel(
        "R",
        "i:6, j:8",
        "in E[i, j] f32(1, 1); in S[i] f32(1); out R[i, j]:assign f32(1, 1)",
        "$e = load(E) f32\n$s = load(S) f32\n$r = div($e, $s) f32\nR = store($r)",
    )
    program = main(
        "in X 6 8; new M 6; new E 6 8; new S 6; out R 6 8",
        copy("M", "i:6, j:8", "X[i, j]", "M[i]", "max"),
        shifted,
        copy("S", "i:6, j:8", "E[i, j]", "S[i]", "add"),
        divide,
    )
    program, _ = fuse(program, rtol=1e-6)
    assert shape_of(program.root) == "main[](R[i](M[j] S[j] R[j]))"
    program, _ = check_pass(program, Localize(), rtol=1e-6)
    row = program.root.children[0]
    assert {r.name: r.shape for r in row.refinements if not r.source} == {"M": (1,), "E": (1, 8), "S": (1,)}


@pytest.mark.parametrize("target", ["generic", "x86_64_avx2", "x86_64_avx512", "aarch64_neon"])
def test_rows_of_a_normalisation_share_the_row_on_every_cpu(target: str) -> None:
    """Mean, deviations, their square sum, and the scaled deviations: one pass over the rows."""
    text = """function (X[N, C], G[C], B[C]) -> (R) {
      S[n, 0 : N, 1] = +(X[n, c]);  D = X - S / C;  Q = D * D;  V[n, 0 : N, 1] = +(Q[n, c]);
      R = D / sqrt(V / C + 0.5) * G + B; }"""
    types = {
        name: TensorType(DType.F32, shape) for name, shape in (("X", (16, 32)), ("G", (32,)), ("B", (32,)))
    }
    program, hw = compile_tile(Source("rows.tile", text), types), load_named(target)
    for step in (Fuse(), Localize(), Scalarize()):
        program, _ = check_pass(program, step, hw, rtol=1e-5)
    (row,) = program.root.children
    assert row.ranges == {"n": 16} and not any(r.direction is Direction.NEW for r in program.root.refinements)
    assert all(r.shape in ((1, 32), (1, 1)) for r in row.refinements if r.direction is Direction.NEW)


def test_producer_of_a_reduction_joins_it_without_recomputing() -> None:
    program, _ = fuse(
        main(
            "in X 6 8; new T 6 8; out S 6",
            elementwise("T", "X"),
            copy("S", "p:6, q:8", "T[p, q]", "S[p]", "add"),
        )
    )
    assert shape_of(program.root) == "main[](S[i,j])"


def test_producer_of_a_contraction_stays_apart_where_operands_would_be_read_again() -> None:
    program = main(
        "in X 6 5; in B 5 8; new T 6 5; out C 6 8",
        elementwise("T", "X", (6, 5)),
        contraction("C", "T", "B", (6, 8, 5)),
    )
    program, remarks = fuse(program)
    assert shape_of(program.root) == "main[](T[i,j] C[m,n,k])"
    assert [r.acted for r in remarks] == [False]
    assert "read again" in remarks[0].message


def test_blocks_that_write_different_elements_have_nothing_to_share() -> None:
    """Rows of a copy, and zeros behind them: at each shared `i` the copy would go down a column of X."""
    fill = kernel("Z", "i:6", "out T[i, 7]:assign f32(1, 1)", "$z = constant(0.0) f32\nT = store($z)")
    program, remarks = fuse(main("in X 7 6; out T 6 8", copy("C", "i:6, j:7", "X[j, i]", "T[i, j]"), fill))
    assert shape_of(program.root) == "main[](C[i,j] Z[i])"
    assert any("they write different elements of what both use" in r.message for r in remarks)


@pytest.mark.parametrize("names", ["i:6, j:8", "k:6, l:8", "j:6, i:8"])
def test_two_halves_of_a_result_are_written_by_one_leaf_under_any_names(names: str) -> None:
    row, column = (name.split(":")[0] for name in names.split(", "))
    first = kernel(
        "A",
        "i:6, j:8",
        "in X[i, j] f32(1, 1); out T[i, j]:assign f32(1, 1); out R[i, j]:assign f32(1, 1)",
        "$x = load(X) f32\nT = store($x)\nR = store($x)",
    )
    second = copy("B", names, f"T[{row}, {column}]", f"R[{row}, {column} + 8]")
    program, _ = fuse(main("in X 6 8; new T 6 8; out R 6 16", first, second))
    assert shape_of(program.root) == "main[](B[i,j])"


def test_halo_is_declined_and_says_so() -> None:
    blur = kernel(
        "R",
        "i:6, j:6",
        "in L = T[i, j] f32(1, 1); in N = T[i, j + 1] f32(1, 1); out R[i, j]:assign f32(1, 1)",
        "$l = load(L) f32\n$n = load(N) f32\n$y = add($l, $n) f32\nR = store($y)",
    )
    program, remarks = fuse(main("in X 6 7; new T 6 7; out R 6 6", elementwise("T", "X", (6, 7)), blur))
    assert [c.name for c in program.root.children] == ["R"]
    row = program.root.children[0]
    assert shape_of(row) == "R[i](T[j] R[j])"  # rows are shared, the halo is along j alone
    column = kernel(
        "R",
        "i:5, j:6",
        "in L = T[i, j] f32(1, 1); in N = T[i + 1, j + 1] f32(1, 1); out R[i, j]:assign f32(1, 1)",
        "$l = load(L) f32\n$n = load(N) f32\n$y = add($l, $n) f32\nR = store($y)",
    )
    program, remarks = fuse(main("in X 6 7; new T 6 7; out R 5 6", elementwise("T", "X", (6, 7)), column))
    assert len(program.root.children) == 2
    assert [r.acted for r in remarks] == [False]
    assert "(a halo or a reduction)" in remarks[0].message


def test_fill_and_partial_contraction_shifted_against_each_other() -> None:
    fill = kernel("fill", "i:8, j:8", "out C[i, j]:assign f32(1, 1)", "$z = constant(0.0) f32\nC = store($z)")
    part = kernel(
        "part",
        "m:6, n:8, k:5",
        "in A[m, k] f32(1, 1); in B[k, n] f32(1, 1); out C[m + 1, n]:add f32(1, 1)",
        "$a = load(A) f32\n$b = load(B) f32\n$c = mul($a, $b) f32\nC = store($c)",
    )
    program, _ = fuse(main("in A 6 5; in B 5 8; out C 8 8", fill, part))
    assert shape_of(program.root) == "main[](part[i,j](fill[] part[k]))"
    inner = program.root.children[0].children[1]
    assert [str(c.expr) for c in inner.constraints] == ["m", "5 - m"]
    program, _ = fuse(
        main("in A 6 5; in B 5 8; out C 8 8; out R 8 8", fill, part, elementwise("R", "C", (8, 8)))
    )
    assert shape_of(program.root) == "main[](R[i,j](fill[] part[k] R[]))"


def test_full_reduction_shares_nothing_with_its_consumer() -> None:
    divide = kernel(
        "R",
        "i:9",
        "in X[i] f32(1); in S[] f32(); out R[i]:assign f32(1)",
        "$x = load(X) f32\n$s = load(S) f32\n$r = sub($x, $s) f32\nR = store($r)",
    )
    program, remarks = fuse(main("in X 9; new S; out R 9", copy("S", "i:9", "X[i]", "S[]", "add"), divide))
    assert shape_of(program.root) == "main[](S[i] R[i])"
    assert [r.acted for r in remarks] == [False]


def test_transposed_consumer_pairs_by_dependence_not_by_name() -> None:
    program, _ = fuse(
        main(
            "in X 6 8; new T 6 8; out R 8 6",
            elementwise("T", "X"),
            copy("R", "i:8, j:6", "T[j, i]", "R[i, j]"),
        )
    )
    assert shape_of(program.root) == "main[](R[i,j])"
    leaf = program.root.children[0]
    assert [str(e) for e in leaf.refinement("R").access] == ["j", "i"]


def test_siblings_join_where_one_flat_block_comes_out() -> None:
    both = main("in X 6 8; out P 6 8; out Q 6 8", elementwise("P", "X"), elementwise("Q", "X"))
    assert shape_of(fuse(both)[0].root) == "main[](Q[i,j])"
    apart = main(
        "in A 6 5; in B 5 8; in D 5 8; out P 6 8; out Q 6 8",
        contraction("P", "A", "B", (6, 8, 5)),
        contraction("Q", "A", "D", (6, 8, 5)),
    )
    assert fuse(apart)[0] is apart


def test_lane_index_stays_inside_a_block_that_keeps_another_output_index() -> None:
    add = kernel(
        "R",
        "i:6, j:8",
        "in X[i, j] f32(1, 1); in T[j] f32(1); out R[i, j]:assign f32(1, 1)",
        "$x = load(X) f32\n$t = load(T) f32\n$r = sub($x, $t) f32\nR = store($r)",
    )
    program, remarks = fuse(
        main("in X 6 8; in D 8; new T 8; out R 6 8", copy("T", "j:8", "D[j]", "T[j]"), add)
    )
    assert len(program.root.children) == 2
    assert "lane index" in remarks[0].message


def test_second_contraction_does_not_compete_for_the_registers() -> None:
    product = kernel(
        "R",
        "i:6, j:8",
        "in C[i, j] f32(1, 1); in E[i, j] f32(1, 1); out R[i, j]:assign f32(1, 1)",
        "$c = load(C) f32\n$e = load(E) f32\n$r = mul($c, $e) f32\nR = store($r)",
    )
    program, remarks = fuse(
        main(
            "in A 6 5; in B 5 8; in D 5 8; new C 6 8; new E 6 8; out R 6 8",
            contraction("C", "A", "B", (6, 8, 5)),
            contraction("E", "A", "D", (6, 8, 5)),
            product,
        )
    )
    assert len(program.root.children) == 2
    assert any("compete for registers" in r.message for r in remarks if not r.acted)


def test_a_product_keeps_the_box_of_its_results() -> None:
    """What is written across has no box but the whole buffer with what the product writes."""
    body = "$c = load(C) f32\n$n = neg($c) f32\nD = store($n)"
    views = "in C[m, n] f32(1, 1); out D = C[n, m]:assign f32(1, 1)"
    across = kernel("E", "m:8, n:8", views, body).replace("(\n", "(\nm - n - 1 >= 0\n", 1)
    product = contraction("C", "A", "B", (8, 8, 5)).replace("(\n", "(\nm - n >= 0\n", 1)
    program, (remark,) = fuse(main("in A 8 5; in B 5 8; out C 8 8", product, across))
    assert len(program.root.children) == 2
    assert remark.message == (
        "not fused with 'C': both write 'C', each elsewhere, so that no tile of results of 'C' is a box"
    )


@pytest.mark.parametrize(
    ("rows", "columns", "apart"),
    [(512, 1024, True), (128, 1024, False), (4096, 128, True)],
    ids=["long rows", "near", "rows in registers"],
)
def test_sums_of_rows_that_stream_past_do_not_give_them_up(rows: int, columns: int, apart: bool) -> None:
    """One index of the columns around both would take a piece of each row at a time; where registers hold a
    row, units that share it out would."""
    _, remarks = fuse(
        main(
            f"in X {rows} {columns}; new S {columns}; out R {columns}",
            copy("S", f"m:{rows}, n:{columns}", "X[m, n]", "S[n]", "add"),
            copy("R", f"n:{columns}", "S[n]", "R[n]"),
        ),
        rtol=1e-4,
    )
    assert [r.acted for r in remarks] == [not apart]
    assert ("come in pieces of rows" in remarks[0].message) == apart


@pytest.mark.parametrize(("rows", "apart"), [(1, True), (2, False)])
def test_products_with_one_vector_are_sums_of_rows(rows: int, apart: bool) -> None:
    """Of two vectors each element of the matrix is used twice: a tile of results in registers has both."""
    _, remarks = fuse(
        main(
            f"in A {rows} 512; in B 512 1024; new C {rows} 1024; out R {rows} 1024",
            contraction("C", "A", "B", (rows, 1024, 512)),
            copy("R", f"i:{rows}, j:1024", "C[i, j]", "R[i, j]"),
        ),
        rtol=1e-4,
    )
    assert any("come in pieces of rows" in r.message for r in remarks) == apart


@pytest.mark.parametrize(
    ("tags", "nest", "direction"),
    [
        ("", "main[](P[i,j](R[] acc[k] P[]))", "out"),
        ("#unroll=i", "main[](R[i,j] P[m,n](acc[k] P[]))", "inout"),
    ],
)
def test_old_contents_that_come_from_outside_make_the_view_inout(
    tags: str, nest: str, direction: str
) -> None:
    accumulate = (
        contraction("R", "A", "B", (6, 8, 5)).replace("block R", "block acc").replace("out R", "inout R")
    )
    program, _ = fuse(
        main(
            "in X 6 8; in A 6 5; in B 5 8; out R 6 8; out P 6 8",
            elementwise("R", "X").replace(") {", f") {tags} {{", 1),
            accumulate,
            elementwise("P", "R"),
        )
    )
    assert shape_of(program.root) == nest
    view = program.root.children[-1].refinement("R")
    assert (view.direction, view.aggregation) == (direction, "assign")


def test_blocks_that_would_not_become_one_leaf_stay_apart() -> None:
    fill = kernel("fill", "i:8, j:8", "out R[i, j]:assign f32(1, 1)", "$z = constant(0.0) f32\nR = store($z)")
    shift = copy("R", "m:7, n:8", "X[m, n]", "R[m + 1, n]")
    program = main("in X 8 8; out R 8 8", fill, shift)
    assert fuse(program)[0] is program


@pytest.mark.parametrize("attribute", ["#unroll=i", "inflight=2"])
def test_shaped_blocks_are_left_alone(attribute: str) -> None:
    first = elementwise("T", "X")
    first = (
        first.replace(") {", f") {attribute} {{", 1)
        if attribute.startswith("#")
        else first.replace("] (", f"] {attribute} (", 1)
    )
    program = main("in X 6 8; new T 6 8; out R 6 8", first, elementwise("R", "T"))
    result, remarks = fuse(program)
    assert result is program
    assert [r.acted for r in remarks] == [False]


def test_result_does_not_depend_on_names() -> None:
    def build(t: str, i: str) -> Program:
        text = elementwise(t, "X") + elementwise("R", t)
        return main(f"in X 6 8; new {t} 6 8; out R 6 8", text.replace("i", i) if i != "i" else text)

    assert shape_of(fuse(build("T", "i"))[0].root) == shape_of(fuse(build("ZZ", "i"))[0].root)


def test_blocks_of_one_point_that_hold_nests_are_not_wrapped_again_and_again() -> None:
    frames = [
        f"""block {name} [] (in {source}[0] f32(8)  out {name}[0]:assign f32(8)) {{
          block {name}_inner [i:8] (in {source}[i] f32(1)  out {name}[7 - i]:assign f32(1)) {{
            $x = load({source}) f32  {name} = store($x) }}
        }}
        """
        for name, source in (("T", "X"), ("R", "T"))
    ]
    program = main("in X 8; new T 8; out R 8", *frames)
    assert fuse(program)[0] is program


def test_many_blocks_that_share_an_input_are_not_all_planned_against_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = 0

    def counted(*arguments: Any) -> Plan | Declined:
        nonlocal planned
        planned += 1
        return plan_fusion(*arguments)

    monkeypatch.setattr("stripe.passes.fuse.plan_fusion", counted)
    count = 24
    outputs = "; ".join(f"out T{at} 6 8" for at in range(count))
    program = main(f"in X 6 8; {outputs}", *(elementwise(f"T{at}", "X") for at in range(count)))
    assert shape_of(fuse(program)[0].root) == f"main[](T{count - 1}[i,j])"
    assert planned == count - 1


def test_two_writes_of_a_point_are_both_counted_where_the_block_around_aggregates() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] i32(2, 3):(3, 1)  out O[0]:assign i32(3):(1)) {
          block fill [z:3] (out O[z]:assign i32(1)) { $z = constant(9) i32  O = store($z) }
          block least [i:3] (in A[0, i] i32(2, 1)  out O[i]:min i32(1)) {
            block one [] (in A[0, 0] i32(1, 1)  out O[0]:assign i32(1)) {
              $a = load(A) i32
              O = store($a)
            }
            block other [] (in A[1, 0] i32(1, 1)  out O[0]:assign i32(1)) {
              $a = load(A) i32
              O = store($a)
            }
          }
        }
        """
    )
    result, _ = check_pass(program, Fuse(), load_named("generic"))
    (least,) = (b for b in result.root.children if b.name == "least")
    assert all(
        r.aggregation is Aggregation.MIN for b in least.children for r in b.refinements if r.name == "O"
    )
