"""Tile text -> syntax tree: recursive descent, with recovery at `;`.

The grammar stands in docs/tile.md. All syntax errors of the statements are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stripe.diag import CompileError, Diagnostic, Source, did_you_mean
from stripe.dtypes import DTYPE_NAMES, DType
from stripe.ir import Aggregation
from stripe.lexing import TokenStream
from tile_frontend.expressions import number, parse_expression
from tile_frontend.tokens import tokenize
from tile_frontend.tree import (
    Access,
    Assignment,
    Binary,
    Contraction,
    Expr,
    Function,
    Name,
    Number,
    Param,
    Statement,
)

T = TypeVar("T")

AGGREGATIONS = {
    "+": Aggregation.ADD,
    "*": Aggregation.MUL,
    ">": Aggregation.MAX,
    "<": Aggregation.MIN,
    "=": Aggregation.ASSIGN,
}
MOST_OPERANDS = 6
_COMBINATIONS = ("+", "*", "==")


def parse(source: Source) -> Function:
    """The function of a Tile text. CompileError T001 to T005, with every syntax error found."""
    return _Parser(TokenStream(tokenize(source), "T002")).function()


class _Parser:
    def __init__(self, stream: TokenStream) -> None:
        self._stream = stream

    # -- the head ------------------------------------------------------------------------

    def function(self) -> Function:
        stream = self._stream
        start = stream.peek().span
        if not stream.accept("function"):
            raise stream.error(
                f"expected 'function', found {stream.found()}",
                None,
                "help: a program reads: function (A[N], B[N]) -> (C) { C = A + B; }",
            )
        name = stream.next().text if stream.peek().kind == "name" else "main"
        params = self._list(self._param)
        stream.expect("->", "and the outputs behind the inputs")
        outputs = self._list(self._output)
        head = start.to(stream.peek(-1).span)
        if not outputs:
            raise stream.error("a function has at least one output", head)
        statements = self._body()
        if stream.peek().kind != "end":
            raise stream.error(
                f"expected the end of the text behind the function, found {stream.found()}",
                None,
                "help: a program is one function",
            )
        return Function(name, params, outputs, statements, head)

    def _list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """`(item, item, ...)`, possibly empty."""
        stream = self._stream
        stream.expect("(")
        items: list[T] = []
        if not stream.at(")"):
            items.append(item())
            while stream.accept(","):
                items.append(item())
        stream.expect(")")
        return tuple(items)

    def _name(self, what: str) -> Name:
        token = self._stream.expect_kind("name", what)
        return Name(token.text, token.span)

    def _param(self) -> Param:
        stream = self._stream
        name = self._name("the name of an input")
        dims: list[Name | Number] | None = None
        if stream.accept("["):
            dims = []
            if not stream.at("]"):
                dims.append(self._dim())
                while stream.accept(","):
                    dims.append(self._dim())
            stream.expect("]", "(a dimension of an input is a name or an integer)")
        span = name.span.to(stream.peek(-1).span)
        return Param(name, None if dims is None else tuple(dims), self._type(), span)

    def _dim(self) -> Name | Number:
        token = self._stream.peek()
        if token.kind == "int":
            return number(self._stream.next())
        dim = self._name("the name or the size of a dimension")
        if not dim.text[0].isupper():
            raise CompileError(
                Diagnostic(
                    "T004",
                    f"the dimension '{dim.text}' must begin with a capital letter",
                    dim.span,
                    ("help: names in lower case are indexes, in capitals dimensions",),
                )
            )
        return dim

    def _output(self) -> Name:
        name = self._name("the name of an output")
        if self._stream.at("[", ":"):
            raise self._stream.error(
                f"an output is a name alone, found {self._stream.found()}",
                None,
                f"help: sizes and type stand where it is assigned: {name.text}[i : N] : f32 = ...",
            )
        return name

    def _type(self) -> DType | None:
        """`: f32`, if it is there."""
        return self._type_name() if self._stream.accept(":") else None

    def _type_name(self) -> DType:
        name = self._name("an element type")
        if name.text not in DTYPE_NAMES:
            notes = did_you_mean(name.text, DTYPE_NAMES)
            raise CompileError(Diagnostic("T005", f"unknown element type '{name.text}'", name.span, notes))
        return DType(name.text)

    # -- statements ------------------------------------------------------------------------

    def _body(self) -> tuple[Statement, ...]:
        stream = self._stream
        opening = stream.expect("{")
        statements: list[Statement] = []
        problems: list[Diagnostic] = []
        while not stream.at("}"):
            if stream.peek().kind == "end":
                problems.append(Diagnostic("T002", "this '{' is never closed", opening.span))
                break
            try:
                statements.append(self._statement())
            except CompileError as error:
                problems += error.diagnostics
                self._recover()
        stream.accept("}")
        if problems:
            raise CompileError(*problems)
        return tuple(statements)

    def _recover(self) -> None:
        """Skip to the start of the next statement."""
        stream = self._stream
        while not stream.at(";", "}") and stream.peek().kind != "end":
            stream.next()
        stream.accept(";")

    def _statement(self) -> Statement:
        stream = self._stream
        name = self._name("a statement that assigns a tensor")
        statement = self._contraction(name) if stream.at("[") else self._assignment(name)
        if not stream.accept(";"):
            last = stream.peek(-1).span
            raise stream.error(f"expected ';' behind the statement, found {stream.found()}", last)
        return statement

    def _assignment(self, name: Name) -> Assignment:
        stream = self._stream
        dtype = self._type()
        stream.expect("=")
        if stream.at(*AGGREGATIONS) and stream.peek(1).text == "(":
            raise stream.error(
                "a contraction needs indexes on its output",
                name.span,
                f"help: write {name.text}[i : N] = ..., or {name.text}[] = ... for a single element",
            )
        value = parse_expression(stream)
        return Assignment(name, dtype, value, name.span.to(stream.peek(-1).span))

    def _contraction(self, name: Name) -> Contraction:
        stream = self._stream
        target = self._access(name, closing=(":", "]"))
        sizes = self._sizes() if stream.accept(":") else ()
        stream.expect("]", "behind the sizes of the output")
        dtype = self._type()
        aggregation = self._aggregation()
        combination, operands = self._operands()
        clauses = _Clauses(stream, self._type_name)
        clauses.parse()
        return Contraction(
            target,
            sizes,
            dtype,
            aggregation,
            combination,
            operands,
            tuple(clauses.constraints),
            clauses.default,
            clauses.init,
            clauses.accumulate,
            name.span.to(stream.peek(-1).span),
        )

    def _sizes(self) -> tuple[Expr, ...]:
        if self._stream.at("]"):
            return ()
        return self._polynomials()

    def _polynomials(self) -> tuple[Expr, ...]:
        found = [parse_expression(self._stream, implicit_product=True)]
        while self._stream.accept(","):
            found.append(parse_expression(self._stream, implicit_product=True))
        return tuple(found)

    def _access(self, tensor: Name, closing: tuple[str, ...]) -> Access:
        """`[polynomials` up to one of `closing`, which stays to be read."""
        stream = self._stream
        if not stream.accept("["):
            raise stream.error(
                f"expected '[' behind '{tensor.text}', found {stream.found()}",
                None,
                f"help: a contraction takes indexed tensors; one of rank 0 is {tensor.text}[]",
            )
        subscripts = () if stream.at(*closing) else self._polynomials()
        return Access(tensor, subscripts, tensor.span.to(stream.peek(-1).span))

    def _aggregation(self) -> Aggregation:
        stream = self._stream
        if stream.at("=="):
            raise stream.error("expected '= =', found '=='", None, "help: put a space between the two '='")
        stream.expect("=")
        if not (stream.at(*AGGREGATIONS) and stream.peek(1).text == "("):
            raise stream.error(
                f"expected an aggregation, found {stream.found()}",
                None,
                "help: a contraction is one of +(...) *(...) >(...) <(...) =(...);"
                " an elementwise statement has no indexes on its left",
            )
        return AGGREGATIONS[stream.next().text]

    def _operands(self) -> tuple[str, tuple[Access, ...]]:
        """`(A[..] op B[..] ...)`: what joins the operands, and they."""
        stream = self._stream
        stream.expect("(")
        operands = [self._operand()]
        combination = ""
        while not stream.at(")"):
            joint = stream.peek()
            if stream.at("?") and combination == "==" and len(operands) == 2:
                combination = "?"
            elif not stream.at(*_COMBINATIONS):
                raise stream.error(
                    f"expected ')' or one of + * == between operands, found {stream.found()}",
                    None,
                    "help: a contraction joins indexed tensors; compute the rest in a statement before it",
                )
            elif combination in ("==", "?") or (combination and combination != joint.text):
                raise stream.error("operands are joined by one operator: all +, all *, a == b, or a == b ? c")
            else:
                combination = joint.text
            stream.next()
            operands.append(self._operand())
            if len(operands) > MOST_OPERANDS:
                message = f"a contraction has at most {MOST_OPERANDS} operands"
                raise stream.error(message, operands[-1].span)
        stream.expect(")")
        return combination, tuple(operands)

    def _operand(self) -> Access:
        stream = self._stream
        if stream.peek().kind != "name":
            raise stream.error(
                f"expected an indexed tensor such as A[i, j], found {stream.found()}",
                None,
                "help: scale or negate in a statement before or after the contraction",
            )
        access = self._access(self._name("a tensor"), closing=("]",))
        closing = stream.expect("]", "behind the indexes")
        return Access(access.tensor, access.subscripts, access.tensor.span.to(closing.span))


class _Clauses:
    """What follows a contraction: `, p < e`, `default e`, `init e`, `accumulate t`, `no_defract`."""

    def __init__(self, stream: TokenStream, type_name: Callable[[], DType]) -> None:
        self._stream = stream
        self._type_name = type_name
        self.constraints: list[tuple[Expr, Expr]] = []
        self.default: Expr | None = None
        self.init: Expr | None = None
        self.accumulate: DType | None = None

    def parse(self) -> None:
        stream = self._stream
        while not stream.at(";"):
            comma = stream.accept(",")
            token = stream.peek()
            match token.text if token.kind == "keyword" else "":
                case "default":
                    self._once(self.default)
                    self.default = parse_expression(stream)
                case "init":
                    self._once(self.init)
                    self.init = parse_expression(stream)
                case "accumulate":
                    self._once(self.accumulate)
                    self.accumulate = self._type_name()
                case "no_defract" | "no_reduce":
                    stream.next()  # they ask for indexes as written: ranges are exact either way
                case _ if comma:
                    self.constraints.append(self._constraint())
                case _:
                    return

    def _once(self, value: object) -> None:
        token = self._stream.next()
        if value is not None:
            raise self._stream.error(f"'{token.text}' is written twice", token.span)

    def _constraint(self) -> tuple[Expr, Expr]:
        expr = parse_expression(self._stream, implicit_product=True)
        if isinstance(expr, Binary) and expr.op == "<":
            return expr.left, expr.right
        raise self._stream.error(
            "a constraint has the form p < e", expr.span, "help: p < e means 0 <= p and p < e"
        )
