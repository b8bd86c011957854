"""Sizes and index polynomials: what stands in the brackets of a contraction.

A size is an integer: dimensions and literals under + - * and `/`, which rounds down. An index
polynomial is linear in the indexes, with exact rational arithmetic: (i - 1)/2 stays a half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from stripe.diag import Span
from tile_frontend.elementwise import fail
from tile_frontend.tree import Binary, Call, Expr, Name, Number, Unary, bottom_up

_LIMIT = 2**62  # magnitudes of the numbers in accesses; what is larger can't be an offset

_SIZE_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "min": min,
    "max": max,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}


@dataclass(frozen=True, slots=True)
class Polynomial:
    """sum(coefficient * index) + constant, over the rationals."""

    coefficients: Mapping[str, Fraction]
    constant: Fraction
    span: Span

    @property
    def linear(self) -> tuple[Mapping[str, Fraction], Fraction]:
        """The form that stripe.poly takes."""
        return self.coefficients, self.constant

    def minus(self, other: Polynomial, less: int = 0) -> Polynomial:
        """self - other - less."""
        terms = dict(self.coefficients)
        for name, coefficient in other.coefficients.items():
            terms[name] = terms.get(name, Fraction(0)) - coefficient
        return _polynomial(terms, self.constant - other.constant - less, self.span)

    def scaled(self, factor: Fraction, span: Span) -> Polynomial:
        return _polynomial(
            {n: c * factor for n, c in self.coefficients.items()}, self.constant * factor, span
        )


def _polynomial(terms: Mapping[str, Fraction], constant: Fraction, span: Span) -> Polynomial:
    if any(abs(value) >= _LIMIT or value.denominator >= _LIMIT for value in (constant, *terms.values())):
        fail("T042", "a number in this index expression is too large", span)
    return Polynomial({name: c for name, c in terms.items() if c}, constant, span)


def is_index_name(text: str) -> bool:
    """Indexes begin in lower case; what begins with a capital is a dimension or a known number."""
    return not text[0].isupper()


class Evaluator:
    """Evaluates sizes and polynomials; `integer` gives those that have a name, or fails."""

    def __init__(self, integer: Callable[[str, Span], int]) -> None:
        self._integer = integer

    def size(self, expr: Expr) -> int:
        """A size or another integer known at compile time. T034, T036, T011."""
        return bottom_up(expr, self._size)

    def _size(self, expr: Expr, below: list[int]) -> int:
        match expr:
            case Number(value=int(value)):
                return value
            case Name(text=text, span=span):
                return self._integer(text, span)
            case Unary(op="-"):
                return -below[0]
            case Binary(op="+"):
                return below[0] + below[1]
            case Binary(op="-"):
                return below[0] - below[1]
            case Binary(op="*"):
                return self._bounded(below[0] * below[1], expr.span)
            case Binary(op="/"):
                return self._rounded("floordiv", below, expr.right.span)
            case Call(function=function) if function.text in _SIZE_FUNCTIONS and len(below) == 2:
                return self._rounded(function.text, below, expr.span)
            case _:
                fail(
                    "T036",
                    "this is not an integer that is known at compile time",
                    expr.span,
                    "help: integers, dimensions, + - * / (rounded down), min, max and mod may be used",
                )

    def _rounded(self, function: str, values: list[int], span: Span) -> int:
        if function in ("floordiv", "mod") and values[1] == 0:
            fail("T034", "division by zero in a size", span)
        return _SIZE_FUNCTIONS[function](*values)

    def _bounded(self, value: int, span: Span) -> int:
        if abs(value) >= 2**64:
            fail("T037", "this size does not fit 64 bits", span)
        return value

    def polynomial(self, expr: Expr) -> Polynomial:
        """An index polynomial. T030 (not linear), T034 (division by zero), T011."""
        return bottom_up(expr, self._polynomial)

    def _polynomial(self, expr: Expr, below: list[Polynomial]) -> Polynomial:
        span = expr.span
        match expr:
            case Number(value=int(value)):
                return _polynomial({}, Fraction(value), span)
            case Name(text=text):
                if is_index_name(text):
                    return Polynomial({text: Fraction(1)}, Fraction(0), span)
                return _polynomial({}, Fraction(self._integer(text, span)), span)
            case Unary(op="-"):
                return below[0].scaled(Fraction(-1), span)
            case Binary(op="+"):
                total = below[0].minus(below[1].scaled(Fraction(-1), span))
                return Polynomial(total.coefficients, total.constant, span)
            case Binary(op="-"):
                total = below[0].minus(below[1])
                return Polynomial(total.coefficients, total.constant, span)
            case Binary(op="*"):
                left, right = below
                if left.coefficients and right.coefficients:
                    fail("T030", "an index expression must be linear: two indexes are multiplied", span)
                factor, other = (left, right) if not left.coefficients else (right, left)
                return other.scaled(factor.constant, span)
            case Binary(op="/"):
                if below[1].coefficients:
                    fail("T030", "an index expression must be linear: it divides by an index", span)
                if below[1].constant == 0:
                    fail("T034", "division by zero", expr.right.span)
                return below[0].scaled(1 / below[1].constant, span)
            case _:
                fail(
                    "T030",
                    "an index expression is linear in the indexes, with integer coefficients",
                    span,
                    "help: integers, dimensions, indexes and + - * / may be used; '/' is exact",
                )
