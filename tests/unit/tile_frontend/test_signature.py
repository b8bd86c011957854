"""The façade: signatures, inputs that fit, programs that come out."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Direction
from stripe.visit import walk
from tile_frontend import Signature, compile_tile, signature

F32 = DType.F32


def test_signature_before_any_type_is_known() -> None:
    text = "function f(A[N], B, C[]: i8, D[3, N]) -> (X, Y) { X = A; Y = Undeclared; }"
    assert signature(Source("s.tile", text)) == Signature(
        "f",
        ("A", "B", "C", "D"),
        ("X", "Y"),
        (("C", TensorType(DType.I8, ())),),
        (("A", "f32[N]"), ("B", "f32[...]"), ("C", "i8[]"), ("D", "f32[3,N]")),
    )
    assert signature(Source("s.tile", "function () -> (X) { X = 1; }")).name == "main"


def test_types_that_are_written_in_full() -> None:
    text = "function f(A[2, 3] : f32, B[N] : f32, C[4], D[] : i8, E : f32) -> (X) { X = A; }"
    expected = (("A", TensorType(F32, (2, 3))), ("D", TensorType(DType.I8, ())))
    assert signature(Source("s.tile", text)).types == expected


def test_a_function_without_inputs() -> None:
    program = compile_tile(Source("s.tile", "function () -> (X) { X = 2 * 3; }"), {})
    assert [o.dtype for o in program.outputs] == [DType.I64]


def test_signature_of_the_program() -> None:
    text = "function (B, A[N]) -> (Y, X) { X = A + B; Y = X; }"
    program = compile_tile(Source("s.tile", text), {"A": TensorType(F32, (3,)), "B": TensorType(F32, ())})
    assert [r.name for r in program.inputs] == ["B", "A"]
    assert [r.name for r in program.outputs] == ["Y", "X"]
    assert program.root.name == "main"


def test_every_kernel_and_statement_knows_its_place() -> None:
    text = "function (A[N, N]) -> (R) {\n  C[i : N] = +(A[i, j]);\n  R = C * 2\n    + 1;\n}"
    source = Source("s.tile", text)
    program = compile_tile(source, {"A": TensorType(F32, (4, 4))})
    lines = {block.name: block.span.source.line_and_column(block.span.start)[0]
             for _, block in walk(program.root) if block.span is not None}  # fmt: skip
    assert lines == {"main": 1, "C": 2, "R": 3}
    for _, block in walk(program.root):
        assert all(s.span is not None for s in block.statements)
        assert all(r.span is not None for r in block.refinements)


def test_dead_statements_are_checked_and_dropped() -> None:
    types = {"A": TensorType(F32, (4,))}
    program = compile_tile(Source("s.tile", "function (A) -> (R) { D = exp(A); R = A; E = D; }"), types)
    assert [block.name for block in program.root.children] == ["R"]
    assert not [r for r in program.root.refinements if r.direction is Direction.NEW]
    with pytest.raises(CompileError) as caught:
        compile_tile(Source("s.tile", "function (A) -> (R) { D = A & 1; R = A; }"), types)
    assert caught.value.diagnostics[0].code == "T022"


def test_what_depends_on_a_wrong_statement_is_not_reported() -> None:
    text = "function (A) -> (R) {\n  B = A & 1;\n  C = B + Unknown;\n  R[i : 4] = +(B[i]);\n}"
    with pytest.raises(CompileError) as caught:
        compile_tile(Source("s.tile", text), {"A": TensorType(F32, (4,))})
    assert [d.code for d in caught.value.diagnostics] == ["T022"]


def test_the_same_text_gives_the_same_program() -> None:
    text = "function (A[N]) -> (R, S) { R = gather(A, index(A, 0)); S = reshape(A + 1, N, 1) * 2; }"
    types = {"A": TensorType(DType.BF16, (6,))}
    assert compile_tile(Source("s.tile", text), types) == compile_tile(Source("s.tile", text), types)
