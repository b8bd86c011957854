"""What the golden files under text/ and errors/text/ don't show: spans, limits, equality."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from stripe.diag import CompileError, Source, Span
from stripe.dtypes import DType
from stripe.ir import Block, Constant, Program
from stripe.parser import parse
from stripe.printer import to_text
from stripe.reading import MAX_DEPTH, MAX_ERRORS
from stripe.visit import walk

if TYPE_CHECKING:
    from _typeshed import TraceFunction

TEXT = """
block main [] (
  in A[0] f32(4):(1)
  out B[0]:assign f32(4):(1)
) {
  block copy [x:4, y = 3] (
    3 - x >= 0
    in A[x] f32(1):(1)
    out B[x]:assign f32(1):(1)
  ) {
    $a = load(A) f32
    B = store($a)
  }
}
"""


def text_of(span: Span | None) -> str:
    assert span is not None
    return span.source.text[span.start : span.end]


def codes(text: str) -> list[str]:
    with pytest.raises(CompileError) as caught:
        parse(text)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


def test_every_node_knows_its_place() -> None:
    (copy,) = parse(TEXT).root.children
    assert text_of(copy.span) == "block copy [x:4, y = 3]"
    assert [text_of(index.span) for index in copy.indexes] == ["x:4", "y = 3"]
    assert text_of(copy.constraints[0].span) == "3 - x >= 0"
    assert text_of(copy.refinements[1].span) == "out B[x]:assign f32(1):(1)"
    assert [text_of(s.span) for s in copy.statements] == ["$a = load(A) f32", "B = store($a)"]


def test_spans_take_no_part_in_equality() -> None:
    moved = parse("// moved down\n\n" + TEXT)
    assert moved == parse(TEXT)
    assert hash(moved) == hash(parse(TEXT))


def test_messages_name_the_source() -> None:
    with pytest.raises(CompileError, match=r"^net\.stripe:1:6: error\[S001\]: expected '\['"):
        parse(Source("net.stripe", "block"))


def nested(depth: int) -> str:
    return "block b [] () {\n" * depth + "}\n" * depth


def test_the_deepest_nest_works_everywhere() -> None:
    program = parse(nested(MAX_DEPTH))
    assert parse(to_text(program)) == program
    assert hash(program) == hash(parse(nested(MAX_DEPTH)))
    assert repr(program)
    assert len(list(walk(program.root))) == MAX_DEPTH


@pytest.mark.parametrize(
    "text",
    [
        nested(MAX_DEPTH + 1),
        nested(20_000),
        "block b [x = " + "(" * (MAX_DEPTH + 1),
        "block b [x = " + "(" * 50_000,
        "block b [x = " + "2*(" * 3_000 + "y" + ")" * 3_000 + "] () {}",
    ],
)
def test_nesting_has_a_limit(text: str) -> None:
    assert codes(text) == ["S004"]


def test_numbers_of_any_length_are_answered_at_once() -> None:
    start = time.process_time()
    assert codes(f"block b [x:{'9' * 100_000}] () {{}}") == ["S003"]
    assert codes(f"block b [x = {'*'.join(['9223372036854775807'] * 1000)}*y] () {{}}") == ["S003"]
    assert codes(f"block b [] () {{ $a = constant({'9' * 100_000}) i32 }}") == ["S003"]
    assert time.process_time() - start < 2


def test_leading_zeros_are_no_digits() -> None:
    assert parse(f"block b [x:{'0' * 50}7] () {{}}").root.indexes[0].range == 7


def test_a_long_sum_is_read_in_one_go() -> None:
    terms = " + ".join(f"x{n}" for n in range(5_000))
    program = parse(f"block b [] ({terms} >= 0) {{}}")
    assert len(program.root.constraints[0].expr.terms) == 5_000


def test_errors_are_collected_up_to_a_limit() -> None:
    lines = "\n".join("$a = load(" for _ in range(100))
    assert len(codes(f"block b [] () {{\n{lines}\n}}")) == MAX_ERRORS


def test_an_error_inside_parentheses_leaves_no_depth_behind() -> None:
    lines = "\n".join("$a = index(((((((x) i32" for _ in range(15))
    assert codes(f"block b [x:4] () {{\n{lines}\n}}") == ["S001"] * 15


def lines_run(function: Callable[[], object]) -> int:
    """How many lines of Python a call runs: unlike time, the same in every run."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_types_flow_backwards_through_long_chains_in_linear_time() -> None:
    def chain(length: int) -> str:
        lines = "\n".join(f"$s{n + 1} = neg($s{n})" for n in range(length))
        return (
            f"block b [] (out B[0]:assign f16(1)) {{ $s0 = constant(1.0)\n{lines}\nB = store($s{length}) }}"
        )

    constant = parse(chain(3_000)).root.statements[0]
    assert isinstance(constant, Constant)
    assert constant.dtype is DType.F16
    short, long = (lines_run(partial(parse, chain(length))) for length in (200, 400))
    assert short > 1_000
    assert long < 2.1 * short


def test_after_an_error_types_are_not_inferred() -> None:
    """A type that could not be read would make all that depend on it look wrong."""
    text = "block b [] (\n in A[0] f33(4)\n) {\n $a = load(A)\n $c = constant(1)\n}"
    assert codes(text) == ["S002"]


def test_the_kind_of_number_is_kept() -> None:
    text = "block b [] () { $a = constant(1) f32 $b = constant(1.0) f32 $c = constant(true) f32 }"
    values = [s.value for s in parse(text).root.statements if isinstance(s, Constant)]
    assert [type(v) for v in values] == [int, float, bool]


@pytest.mark.parametrize("tail", ["", "\n", "  // the end", "\ufeff"])
def test_space_around(tail: str) -> None:
    assert parse("\ufeff block b [] () {}" + tail) == Program(Block("b"))


def test_anonymous_blocks_avoid_the_names_in_use() -> None:
    text = "block [] () { block [] () { block [] () {} } block kernel [] () {} block [] () {} }"
    names = [block.name for _, block in walk(parse(text).root)]
    assert names == ["main", "kernel_1", "inner", "kernel", "kernel_2"]
    assert parse(text) == parse(text)


@pytest.mark.parametrize("text", ["", "   ", "// only a comment"])
def test_an_empty_text(text: str) -> None:
    with pytest.raises(CompileError, match="expected 'block' to start a block, found end of the text"):
        parse(text)


def test_a_wrong_word_is_answered_with_a_near_one() -> None:
    with pytest.raises(CompileError) as caught:
        parse("block b [] (\n inouts A[0]:add f32(4)\n) {}")
    assert caught.value.diagnostics[0].notes == ("help: did you mean 'inout'?",)
