"""The expressions that a hardware config may hold, and their one parser.

    size expressions   i * j / lanes, max(i, 4), ceil(p / 2)      numbers
    stencil bodies     acc += x * y, acc = max(acc, x)            what one use of a stencil computes

The syntax is Python's, of which `+ - * /`, numbers, names, and calls of `min`, `max` and `ceil` are
taken in sizes; `/` is exact there. A body assigns to one operand, with `+=` or `*=`, or with
`=` a call of `max` or `min` whose first argument is that operand, or `=` any expression (each
element is written once). On the right stand operands, `+ - * /` and calls of scalar intrinsics.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

MAX_TEXT = 200  # characters of an expression


class ExpressionError(ValueError):
    """The text is no expression of the kind that was asked for; the message says why."""


@dataclass(frozen=True, slots=True)
class Apply:
    """A node of a body's right side: a scalar intrinsic applied to operands by name, or to nodes."""

    op: str
    operands: tuple[Apply | str, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """`target aggregation= value`: aggregation is add, mul, max, min or assign."""

    target: str
    aggregation: str
    value: Apply | str


_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_SIZE_CALLS = ("min", "max", "ceil")


@lru_cache(maxsize=256)
def parse_size(text: str) -> ast.expr:
    """The checked syntax tree of a size expression. Raises ExpressionError."""
    tree = _parse(text, "eval")
    assert isinstance(tree, ast.Expression)
    _check_size(tree.body)
    return tree.body


def size_names(text: str) -> frozenset[str]:
    """The names that a size expression uses, functions left out. Raises ExpressionError."""
    return _names(parse_size(text))


def evaluate_size(text: str, values: Mapping[str, float]) -> float:
    """The value of a size expression. Every name must be in `values`. Raises ExpressionError."""
    try:
        return _evaluate(parse_size(text), values)
    except ZeroDivisionError:
        raise ExpressionError(f"'{text}' divides by zero") from None


def evaluate_sizes(text: str, values: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values of a size expression for arrays of values, as NumPy broadcasts them.

    A division by zero gives an infinity or NaN.
    """
    with np.errstate(all="ignore"):
        return np.asarray(_evaluate_all(parse_size(text), values), np.float64)


@lru_cache(maxsize=256)
def parse_body(text: str) -> Body:
    """The parts of a stencil's body. Raises ExpressionError."""
    tree = _parse(text, "exec")
    assert isinstance(tree, ast.Module)
    match tree.body:
        case [ast.AugAssign(target=ast.Name(id=target), op=ast.Add() | ast.Mult() as op, value=value)]:
            return Body(target, _OPERATORS[type(op)], _node(value))
        case [
            ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.Call(
                    func=ast.Name(id="max" | "min" as name), args=[ast.Name(id=first), value], keywords=[]
                ),
            )
        ] if first == target:
            return Body(target, name, _node(value))
        case [ast.Assign(targets=[ast.Name(id=target)], value=value)]:
            return Body(target, "assign", _node(value))
    raise ExpressionError(f"expected one assignment such as 'acc += x * y', found '{text}'")


def body_operands(value: Apply | str) -> tuple[str, ...]:
    """The operands that a body's right side names, in order, each as often as it stands there."""
    if isinstance(value, str):
        return (value,)
    return tuple(name for operand in value.operands for name in body_operands(operand))


def _parse(text: str, mode: str) -> ast.AST:
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression has at most {MAX_TEXT} characters")
    try:
        return ast.parse(text.strip(), mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"'{text}' is no expression") from None


def _check_size(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return
        case ast.Name():
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check_size(left)
            _check_size(right)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if name in _SIZE_CALLS:
            for argument in arguments:
                _check_size(argument)
        case _:
            raise ExpressionError(
                f"'{ast.unparse(node)}' can't stand in a size: it is made of numbers, names, + - * / "
                f"and {', '.join(_SIZE_CALLS)}"
            )


def _names(node: ast.expr) -> frozenset[str]:
    match node:
        case ast.Name(id=name):
            return frozenset({name})
        case ast.BinOp(left=left, right=right):
            return _names(left) | _names(right)
        case ast.Call(args=arguments):
            return frozenset().union(*map(_names, arguments))
    return frozenset()


def _evaluate(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            if name not in values:
                raise ExpressionError(f"nothing is named '{name}' here")
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _evaluate(left, values), _evaluate(right, values)
            match op:
                case ast.Add():
                    return one + other
                case ast.Sub():
                    return one - other
                case ast.Mult():
                    return one * other
                case _:
                    return one / other
        case ast.Call(func=ast.Name(id=name), args=arguments):
            found = [_evaluate(argument, values) for argument in arguments]
            return max(found) if name == "max" else min(found) if name == "min" else math.ceil(found[0])
    raise AssertionError(node)


def _evaluate_all(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return _ARRAYS[type(op)](_evaluate_all(left, values), _evaluate_all(right, values))
        case ast.Call(func=ast.Name(id="ceil"), args=[argument, *_]):
            return np.ceil(_evaluate_all(argument, values))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            found = [_evaluate_all(argument, values) for argument in arguments]
            return reduce(np.maximum if name == "max" else np.minimum, found)
    return np.asarray(_evaluate(node, values), np.float64)


_ARRAYS: dict[type[ast.operator], np.ufunc] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
}


def _node(node: ast.expr) -> Apply | str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return Apply(_OPERATORS[type(op)], (_node(left), _node(right)))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]):
            return Apply(name, tuple(map(_node, arguments)))
    raise ExpressionError(
        f"'{ast.unparse(node)}' can't stand in a body: it is made of operands, + - * / and calls"
    )
