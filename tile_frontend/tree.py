"""The syntax tree of Tile: immutable nodes, each with the span of its text.

    Function -- Param*, outputs, (Contraction | Assignment)*
    Expr     -- Name | Number | Unary | Binary | Select | Call

Expressions may be thousands of nodes deep: nothing may recurse over them. `operands` gives the
children of a node for walks with a stack of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from stripe.diag import Span
from stripe.dtypes import DType, TensorType
from stripe.ir import Aggregation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Name:
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `~x`."""

    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`; `at` is the span of the operator alone."""

    op: str
    left: Expr
    right: Expr
    at: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """`condition ? chosen : other`."""

    condition: Expr
    chosen: Expr
    other: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    function: Name
    arguments: tuple[Expr, ...]
    span: Span


Expr = Name | Number | Unary | Binary | Select | Call


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below one, in the order of the text."""
    match expr:
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Select(condition=condition, chosen=chosen, other=other):
            return (condition, chosen, other)
        case Call(arguments=arguments):
            return arguments
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Access:
    """`T[i, 2*j + 1]`: a tensor at index polynomials."""

    tensor: Name
    subscripts: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Contraction:
    """`T[subscripts : sizes] : dtype = aggregation(operands), constraints clauses`.

    `combination` joins the operands: `""` (one), `+`, `*`, `==`, or `?` for `a == b ? c`.
    A constraint is the pair (p, e) of `p < e`.
    """

    target: Access
    sizes: tuple[Expr, ...]
    dtype: DType | None
    aggregation: Aggregation
    combination: str
    operands: tuple[Access, ...]
    constraints: tuple[tuple[Expr, Expr], ...]
    default: Expr | None
    init: Expr | None
    accumulate: DType | None
    span: Span

    @property
    def name(self) -> Name:
        return self.target.tensor


@dataclass(frozen=True, slots=True)
class Assignment:
    """`T : dtype = value`, elementwise."""

    name: Name
    dtype: DType | None
    value: Expr
    span: Span


Statement = Contraction | Assignment


@dataclass(frozen=True, slots=True)
class Param:
    """An input: any rank if `dims` is None, else a name or a size for each dimension."""

    name: Name
    dims: tuple[Name | Number, ...] | None
    dtype: DType | None
    span: Span


def written_type(param: Param) -> TensorType | None:
    """The type of an input whose element type and sizes are all written."""
    if param.dtype is None or param.dims is None:
        return None
    sizes = tuple(dim.value for dim in param.dims if isinstance(dim, Number) and isinstance(dim.value, int))
    return TensorType(param.dtype, sizes) if len(sizes) == len(param.dims) else None


def written_form(param: Param) -> str:
    """What the text says of the type of an input, as far as it does: `i8[H,W,3]`, `f32[...]` if nothing."""
    dims = ",".join(_form(dim) for dim in param.dims) if param.dims is not None else "..."
    return f"{param.dtype or 'f32'}[{dims}]"


def _form(dim: Name | Number) -> str:
    return dim.text if isinstance(dim, Name) else str(dim.value)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    params: tuple[Param, ...]
    outputs: tuple[Name, ...]
    statements: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives, known before any type is: names in order. `types` has the inputs
    whose element type and sizes are all written, `forms` what is written of the type of each."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[tuple[str, TensorType], ...] = ()
    forms: tuple[tuple[str, str], ...] = ()


def bottom_up(
    root: Expr,
    visit: Callable[[Expr, list[T]], T],
    below: Callable[[Expr], tuple[Expr, ...]] = operands,
) -> T:
    """Evaluate an expression from its leaves, without recursion: `visit` gets each node with
    the results of the nodes that `below` names, left to right."""
    results: list[T] = []
    waiting = [(root, False)]
    while waiting:
        expr, ready = waiting.pop()
        children = below(expr)
        if children and not ready:
            waiting.append((expr, True))
            waiting.extend((child, False) for child in reversed(children))
            continue
        first = len(results) - len(children)
        results[first:] = [visit(expr, results[first:])]
    return results[0]
