"""Precedence, grouping and depth of expressions."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError, Source
from tile_frontend.parser import parse
from tile_frontend.tree import Assignment, Binary, Call, Expr, Name, Number, Select, Unary, bottom_up


def parsed(text: str) -> Expr:
    statement = parse(Source("e.tile", f"function (A) -> (B) {{ B = {text}; }}")).statements[0]
    assert isinstance(statement, Assignment)
    return statement.value


def shown(expr: Expr) -> str:
    """The expression with every grouping in parentheses."""

    def show(node: Expr, below: list[str]) -> str:
        match node:
            case Name(text=text):
                return text
            case Number(value=value):
                return repr(value)
            case Unary(op=op):
                return f"({op}{below[0]})"
            case Binary(op=op):
                return f"({below[0]}{op}{below[1]})"
            case Select():
                return f"({below[0]}?{below[1]}:{below[2]})"
            case Call(function=function):
                return f"{function.text}({','.join(below)})"

    return bottom_up(expr, show)


@pytest.mark.parametrize(
    ("text", "grouping"),
    [
        ("a - b - c", "((a-b)-c)"),
        ("a + b * c", "(a+(b*c))"),
        ("a / b * c", "((a/b)*c)"),
        ("-a * b", "((-a)*b)"),
        ("- - ~a", "(-(-(~a)))"),
        ("a << b + c", "(a<<(b+c))"),
        ("a < b << c", "(a<(b<<c))"),
        ("a & b == c", "(a&(b==c))"),
        ("a | b & c", "(a|(b&c))"),
        ("a ^ b | c", "(a^(b|c))"),
        ("a ^ b ? c : d", "((a^b)?c:d)"),
        ("a ? b : c ? d : e", "(a?b:(c?d:e))"),
        ("a ? b ? c : d : e", "(a?(b?c:d):e)"),
        ("a ? b + 1 : c + 1", "(a?(b+1):(c+1))"),
        ("(a + b) * c", "((a+b)*c)"),
        ("f(a, b + c, g())", "f(a,(b+c),g())"),
        ("f(a ? b : c, d)", "f((a?b:c),d)"),
        ("-f(a)", "(-f(a))"),
        ("(a < b) == c", "((a<b)==c)"),
        ("1 + 2.5e-3 * .5 - 3.", "((1+(0.0025*0.5))-3.0)"),
        ("a*-b", "(a*(-b))"),
    ],
)
def test_grouping(text: str, grouping: str) -> None:
    assert shown(parsed(text)) == grouping


@pytest.mark.parametrize(
    "text", ["a < b < c", "a == b != c", "a", "((a)", "a)", "a ? b", "a : b", "f(a b)", "2a"]
)
def test_only_whole_expressions(text: str) -> None:
    if text == "a":
        parsed(text)
        return
    with pytest.raises(CompileError) as caught:
        parsed(text)
    assert {d.code for d in caught.value.diagnostics} == {"T002"}


@pytest.mark.parametrize(
    ("head", "tail"),
    [("(", ")"), ("-", ""), ("f(", ")"), ("a + (", ")"), ("a ? b : ", ""), ("a ? ", " : b"), ("a + ", "")],
)
def test_no_depth_is_too_deep(head: str, tail: str) -> None:
    expr = parsed(head * 5000 + "a" + tail * 5000)
    assert bottom_up(expr, lambda node, below: 1 + sum(below)) >= 1


def test_spans_cover_the_text() -> None:
    expr = parsed("a + b * c")
    assert isinstance(expr, Binary)
    source = expr.span.source.text
    assert source[expr.span.start : expr.span.end] == "a + b * c"
    assert source[expr.at.start : expr.at.end] == "+"
