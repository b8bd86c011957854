"""Expressions of Tile: operator precedence with a stack of its own.

The stack holds what is open: an operator that waits for its right side, a parenthesis, the
arguments of a call, a `?`. So no nesting is too deep, and a chain of any length is no nesting.

    loosest  ?:   ^   |   &   == != < > <= >=   << >>   + -   * /   unary - ~   tightest

Binary operators group to the left, `?:` to the right; comparisons do not chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from stripe.diag import CompileError, Diagnostic, Span
from stripe.lexing import Token, TokenStream
from tile_frontend.tree import Binary, Call, Expr, Name, Number, Select, Unary

COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
_LEVELS = (("^",), ("|",), ("&",), COMPARISONS, ("<<", ">>"), ("+", "-"), ("*", "/"))
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, start=1) for op in ops}
_TERNARY = 0
_PREFIX = len(_LEVELS) + 1
_INTEGER_LIMIT = 2**64


@dataclass(frozen=True, slots=True)
class _Prefix:
    op: Token


@dataclass(frozen=True, slots=True)
class _Infix:
    op: Token
    left: Expr


@dataclass(frozen=True, slots=True)
class _Choice:
    """Behind the `:` of `condition ? chosen : ...`."""

    condition: Expr
    chosen: Expr


@dataclass(frozen=True, slots=True)
class _Condition:
    """Behind the `?` of `condition ? ...`."""

    condition: Expr
    mark: Token


@dataclass(frozen=True, slots=True)
class _Group:
    opening: Token


@dataclass(frozen=True, slots=True)
class _Arguments:
    function: Name
    opening: Token
    values: tuple[Expr, ...]


_Open = _Prefix | _Infix | _Choice | _Condition | _Group | _Arguments


def parse_expression(stream: TokenStream, *, implicit_product: bool = False) -> Expr:
    """The longest expression at the cursor. `implicit_product` reads `2i` as `2*i`."""
    return _Expressions(stream, implicit_product).parse()


def number(token: Token) -> Number:
    """The value of a number token. T003: it does not fit 64 bits."""
    if token.kind == "int":
        # Python refuses to convert thousands of digits; twenty are too many already.
        if len(token.text.lstrip("0")) <= 20 and int(token.text) < _INTEGER_LIMIT:
            return Number(int(token.text), token.span)
        raise CompileError(Diagnostic("T003", "this integer does not fit 64 bits", token.span))
    value = float(token.text)
    if value == float("inf"):
        raise CompileError(Diagnostic("T003", "this number is too large for a 64-bit float", token.span))
    return Number(value, token.span)


class _Expressions:
    def __init__(self, stream: TokenStream, implicit_product: bool) -> None:
        self._stream = stream
        self._implicit_product = implicit_product
        self._open: list[_Open] = []

    def parse(self) -> Expr:
        while True:
            found = self._after(self._operand())
            if found is not None:
                return found

    def _operand(self) -> Expr:
        """Reads up to the end of a name, a number or a call without arguments."""
        stream = self._stream
        while True:
            token = stream.peek()
            if stream.at("-", "~"):
                self._open.append(_Prefix(stream.next()))
            elif stream.at("("):
                self._open.append(_Group(stream.next()))
            elif token.kind in ("int", "float"):
                return number(stream.next())
            elif token.kind == "name":
                name = Name(token.text, stream.next().span)
                if stream.at("["):
                    raise stream.error(
                        f"'{name.text}' has indexes here, outside a contraction",
                        name.span.to(stream.peek().span),
                        f"help: a contraction takes indexes: O[i : N] = +({name.text}[i]);"
                        " elsewhere tensors are used whole",
                    )
                if not stream.at("("):
                    return name
                opening = stream.next()
                if stream.at(")"):
                    return Call(name, (), name.span.to(stream.next().span))
                self._open.append(_Arguments(name, opening, ()))
            else:
                raise stream.error(f"expected an expression, found {stream.found()}")

    def _after(self, value: Expr) -> Expr | None:
        """Goes on behind an operand: the whole expression, or None where another operand follows."""
        stream = self._stream
        while True:
            token = stream.peek()
            operator = token.text if token.kind == "mark" else ""
            if self._is_implicit_product(value):
                times = Token("mark", "*", Span(token.span.source, token.span.start, token.span.start))
                self._open.append(_Infix(times, self._reduced(value, PRECEDENCE["*"])))
                return None
            if operator in PRECEDENCE:
                left = self._reduced(value, PRECEDENCE[operator], operator in COMPARISONS)
                self._open.append(_Infix(stream.next(), left))
                return None
            if operator == "?":
                condition = self._reduced(value, _TERNARY + 1)
                self._open.append(_Condition(condition, stream.next()))
                return None
            value = self._reduced(value, _TERNARY)
            top = self._open[-1] if self._open else None
            if top is None:
                return value
            self._open.pop()
            match top:
                case _Condition(condition=condition) if operator == ":":
                    stream.next()
                    self._open.append(_Choice(condition, value))
                    return None
                case _Arguments(function=function, opening=opening, values=values) if operator == ",":
                    stream.next()
                    self._open.append(_Arguments(function, opening, (*values, value)))
                    return None
                case _Arguments(function=function, values=values) if operator == ")":
                    value = Call(function, (*values, value), function.span.to(stream.next().span))
                case _Group() if operator == ")":
                    stream.next()
                case _Condition(mark=mark):
                    raise self._unfinished(mark, ":")
                case _Group(opening=opening) | _Arguments(opening=opening):
                    raise self._unfinished(opening, ")")

    def _is_implicit_product(self, value: Expr) -> bool:
        follows = self._stream.at("(") or self._stream.peek().kind == "name"
        return self._implicit_product and follows and isinstance(value, Number)

    def _unfinished(self, opening: Token, closing: str) -> CompileError:
        line, column = opening.span.source.line_and_column(opening.span.start)
        return self._stream.error(
            f"expected '{closing}', found {self._stream.found()}",
            None,
            f"the '{opening.text}' at line {line}, column {column} is not finished",
        )

    def _reduced(self, value: Expr, least: int, comparing: bool = False) -> Expr:
        """Closes the open operators that bind at least as tightly as `least`, with `value` at
        their right; `comparing`: on behalf of a comparison, which must not follow another."""
        while self._open:
            match self._open[-1]:
                case _Prefix(op=op) if least <= _PREFIX:
                    value = Unary(op.text, value, op.span.to(value.span))
                case _Infix(op=op, left=left) if PRECEDENCE[op.text] >= least:
                    if comparing and op.text in COMPARISONS:
                        raise self._stream.error(
                            "comparisons do not chain",
                            None,
                            "help: use parentheses, or join two comparisons with &",
                        )
                    value = Binary(op.text, left, value, op.span, left.span.to(value.span))
                case _Choice(condition=condition, chosen=chosen) if least == _TERNARY:
                    value = Select(condition, chosen, value, condition.span.to(value.span))
                case _:
                    break
            self._open.pop()
        return value
