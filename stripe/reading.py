"""Reading the pieces that Stripe text is made of: tokens, literals, affine expressions.

`Reader` also keeps what went wrong. `fail` raises; `report` notes an error after which reading
goes on; `recover` keeps a raised error and continues at the next line. Codes: stripe.parser.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic, Source, Span, did_you_mean
from stripe.lexing import Lexer, Token, TokenStream

MAX_DEPTH = 64  # blocks in blocks, or parentheses; every walk over the tree recurses this deep
MAX_ERRORS = 20
LARGEST_INDEX = 2**63 - 1
_LARGEST_VALUE = 2**64 - 1

LEXER = Lexer(
    {
        "skip": r"[\s\ufeff]+|//[^\n]*",  # \s: text pasted from a page has no-break spaces
        "string": r'"(?:[^"\\\n]|\\.)*"',
        "float": r"[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)",
        "integer": r"[0-9]+",
        "scalar": r"\$[A-Za-z_][A-Za-z0-9_']*",
        "name": r"[A-Za-z_][A-Za-z0-9_']*",
        "punctuation": r">=|[()\[\]{}:,=+\-*@#]",
    },
    "S001",
)


class Reader:
    """A cursor over the tokens of one text. `last` is the token that was taken last."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = LEXER.tokens(source)
        self.cursor = TokenStream(self.tokens, "S001")
        self.last = self.tokens[0]
        self.errors: list[Diagnostic] = []
        self.depth = 0

    def access(self) -> tuple[Affine, ...]:
        self.expect("[", "before the access")
        found: list[Affine] = []
        while not self.cursor.at("]"):
            found.append(self.affine())
            if not self.accept(","):
                break
        self.expect("]", "after the access")
        return tuple(found)

    def sizes(self, what: str) -> tuple[int, ...]:
        self.expect("(", f"before {what}")
        found: list[int] = []
        while not self.cursor.at(")"):
            found.append(self.integer(f"a number in {what}"))
            if not self.accept(","):
                break
        self.expect(")", f"after {what}")
        return tuple(found)

    # Expressions and literals

    def affine(self) -> Affine:
        """A sum of products of integers and at most one index each; parentheses group."""
        first = self.cursor.peek()
        self.enter(first.span)
        total: dict[str, int] = {}
        const = 0
        sign = -1 if self.accept("-") else 1
        while True:
            term = self._term() * sign
            const += term.const
            for name, coefficient in term.terms:
                total[name] = total.get(name, 0) + coefficient
            if self.accept("+"):
                sign = 1
            elif self.accept("-"):
                sign = -1
            else:
                break
        self.depth -= 1
        return self._fitting(Affine.of(total, const), first)

    def _term(self) -> Affine:
        first = self.cursor.peek()
        product = self._factor()
        while self.accept("*"):
            factor = self._factor()
            if not factor.is_constant and not product.is_constant:
                span = first.span.to(self.last.span)
                self.fail(
                    "S005", "an affine expression can't multiply two indexes",
                    "help: a coefficient is an integer, as in 3*x", span=span,
                )  # fmt: skip
            product = product * factor.const if factor.is_constant else factor * product.const
            product = self._fitting(product, first)
        return product

    def _fitting(self, expr: Affine, first: Token) -> Affine:
        if max(map(abs, (expr.const, *(c for _, c in expr.terms)))) > LARGEST_INDEX:
            span = first.span.to(self.last.span)
            self.fail("S003", "a number in this expression does not fit in 64 bits", span=span)
        return expr

    def _factor(self) -> Affine:
        token = self.cursor.peek()
        if token.kind == "name":
            return Affine.index(self.next().text)
        if token.kind == "integer":
            return Affine(self.integer("a number"))
        if self.accept("("):
            inner = self.affine()
            self.expect(")", "to close the parenthesis")
            return inner
        self.fail("S001", f"expected an index or an integer, found {self.cursor.found()}")

    def integer(self, what: str, low: int = 0, high: int = LARGEST_INDEX) -> int:
        """An integer without a sign. Very long ones are refused before they are converted."""
        token = self.cursor.peek()
        if token.kind != "integer":
            self.fail("S001", f"expected {what}, found {self.cursor.found()}")
        self.next()
        digits = token.text.lstrip("0") or "0"
        if len(digits) > 20 or not low <= int(digits) <= high:
            shown = digits if len(digits) <= 24 else f"a number of {len(digits)} digits"
            self.fail("S003", f"{what} must be from {low} to {high}, not {shown}", span=token.span)
        return int(digits)

    def number(self) -> int | float | bool:
        """A literal as the printer writes it: a sign, digits; `inf`, `nan`; `true`, `false`."""
        first = self.cursor.peek()
        if self.cursor.at("true", "false"):
            return self.next().text == "true"
        negative = self.accept("-")
        token = self.cursor.peek()
        if token.kind == "integer":
            size = self.integer("the value", high=_LARGEST_VALUE)
            return -size if negative else size
        if token.kind == "float" or self.cursor.at("inf", "nan"):
            value = float(self.next().text)
            if math.isinf(value) and token.kind == "float":
                self.fail("S003", "the value is too large for a float", "help: write inf", span=token.span)
            return -value if negative and not math.isnan(value) else value
        self.fail("S001", f"expected a number, true or false, found {self.cursor.found()}", span=first.span)

    def string(self) -> str:
        token = self.next()
        try:
            value = json.loads(token.text)
        except ValueError:
            self.fail(
                "S001", "a text in quotes that can't be read",
                'help: escapes are those of JSON: \\" \\\\ \\n \\t \\u0041', span=token.span,
            )  # fmt: skip
        return str(value)

    # Tokens and errors

    def next(self) -> Token:
        self.last = self.cursor.next()
        return self.last

    def accept(self, text: str) -> bool:
        if self.cursor.at(text):
            self.next()
            return True
        return False

    def expect(self, text: str, why: str = "") -> Token:
        if not self.cursor.at(text):
            self._missing(f"'{text}'{f' {why}' if why else ''}")
        return self.next()

    def expect_name(self, what: str) -> Token:
        if self.cursor.peek().kind != "name":
            self._missing(what)
        return self.next()

    def expect_scalar(self) -> str:
        if self.cursor.peek().kind != "scalar":
            self._missing("a scalar such as $x")
        return self.next().text[1:]

    def _missing(self, what: str) -> NoReturn:
        """Something was expected; where the line ends before it, the place is the line's end."""
        token = self.cursor.peek()
        if token.kind == "end" or not self.starts_line(token):
            self.fail("S001", f"expected {what}, found {self.cursor.found()}")
        end = self.last.span.end
        self.fail("S001", f"expected {what}, found the end of the line", span=Span(self.source, end, end + 1))

    def enter(self, span: Span) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("S004", f"nested more than {MAX_DEPTH} levels deep", span=span)

    def starts_line(self, token: Token) -> bool:
        return "\n" in self.source.text[self.last.span.end : token.span.start]

    @contextmanager
    def recovering(self, at_start: Callable[[], bool]) -> Iterator[None]:
        """Read one item. If that fails, keep the error and go on at the next line, provided that
        an item seems to start there; else stop, with an error that has nothing to add."""
        first, depth = self.cursor.peek(), self.depth
        try:
            yield
        except CompileError as error:
            self.errors += error.diagnostics
            self.depth = depth
            if self.cursor.peek() is first:
                self.next()
            while self.cursor.peek().kind != "end" and not self.starts_line(self.cursor.peek()):
                self.next()
            if len(self.errors) >= MAX_ERRORS or not at_start():
                raise CompileError() from None

    def report(self, code: str, message: str, span: Span, *notes: str) -> None:
        """Note an error after which parsing can go on."""
        self.errors.append(Diagnostic(code, message, span, notes))

    def unknown(self, what: str, word: Token, known: frozenset[str]) -> Diagnostic:
        notes = did_you_mean(word.text, known)
        return Diagnostic("S002", f"unknown {what} '{word.text}'", word.span, notes)

    def fail(self, code: str, message: str, *notes: str, span: Span | None = None) -> NoReturn:
        raise CompileError(Diagnostic(code, message, span or self.cursor.peek().span, notes))
