from __future__ import annotations

import math

import pytest

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Aggregation, Block, Constant, Direction, Load, Location, Program, Refinement, Tag
from stripe.parser import parse
from stripe.printer import literal_text, statement_text, to_text

X = Affine.index("x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-7, "-7"),
        (2**64 - 1, "18446744073709551615"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1e16, "1e+16"),
        (5e-324, "5e-324"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (-math.nan, "nan"),
        (True, "true"),
        ('a "b"\n', '"a \\"b\\"\\n"'),
    ],
)
def test_literals(value: int | float | bool | str, text: str) -> None:
    assert literal_text(value) == text


def test_a_float_never_looks_like_an_integer() -> None:
    text = to_text(Program(Block("main", statements=(Constant("a", 3.0, DType.F32),))))
    (constant,) = parse(text).root.statements
    assert isinstance(constant, Constant)
    assert isinstance(constant.value, float)


def test_empty_block() -> None:
    assert to_text(Program(Block("main"))) == "block main [] () {\n}\n"


def test_views_are_printed_with_the_strides_of_their_allocation() -> None:
    view = Refinement(Direction.IN, "L", (1, 1), DType.F32, "T", (X, Affine(-1)))
    new = Refinement(Direction.NEW, "T", (4, 4), DType.F32, strides=(8, 1))
    root = Block("main", refinements=(new,), statements=(Block("b", refinements=(view,)),))
    assert "  in L = T[x, -1] f32(1, 1):(8, 1)\n" in to_text(Program(root))


def test_a_malformed_program_can_still_be_looked_at() -> None:
    view = Refinement(Direction.IN, "A", (1,), DType.F32, "missing", (X,))
    text = to_text(Program(Block("main", refinements=(view,))))
    assert "in A = missing[x] f32(1):(?)" in text


def test_names_of_units_and_values_of_tags_may_be_any_text() -> None:
    ref = Refinement(
        Direction.NEW, "T", (2,), DType.F16, strides=(1,),
        location=Location("main memory", X, X * 2 + 64, 0), tags=(Tag("a"), Tag("b", "x y"), Tag("c", "12")),
    )  # fmt: skip
    shown = '  new T f16(2):(1) @"main memory"[x, spread 0]:2*x + 64 #a #b="x y" #c=12'
    assert shown in to_text(Program(Block("main", refinements=(ref,)))).splitlines()


def test_scalar_buffers_have_empty_brackets() -> None:
    ref = Refinement(Direction.OUT, "S", (), DType.F64, "S", (), Aggregation.ADD, ())
    assert "  out S[]:add f64():()\n" in to_text(Program(Block("main", refinements=(ref,))))


def test_statements_by_themselves() -> None:
    assert statement_text(Load("a", "A", DType.BF16)) == "$a = load(A) bf16"
