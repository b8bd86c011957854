"""Translation validation: values as terms, the points that they are values at, and the laws of scalars.

A `Frame` is a block at a symbolic point: each of its indexes is an affine expression over
*dimensions*, the named coordinates of the sets of stripe.poly. A `Term` is a value at the points
of such a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stripe import intrinsics
from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS, Array
from stripe.ir import Aggregation, Block, Refinement, Special
from stripe.locks import cached_property
from stripe.poly import Domain

Element = tuple[Affine, ...]
OWN = -1
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Frame:
    """A block at a point. `number` is its place among the statements of the parent's block."""

    block: Block
    parent: Frame | None
    number: int
    values: Mapping[str, Affine]  # of each index of the block, over dimensions
    dims: tuple[str, ...]  # of this block and those around it
    path: tuple[object, ...]  # which block of which program: equal for all its points
    terms: dict[str, Term] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The path of the block, for messages."""
        return self.block.name if self.parent is None else f"{self.parent.place}/{self.block.name}"


@dataclass(frozen=True, eq=False)
class Term:
    """A value. `dims` are the dimensions that it depends on."""

    dtype: DType

    @property
    def dims(self) -> frozenset[str]:
        return NOTHING


@dataclass(frozen=True, eq=False)
class Known(Term):
    """A constant."""

    value: int | float | bool


@dataclass(frozen=True, eq=False)
class Number(Term):
    """An affine expression as a scalar."""

    expr: Affine

    @property
    def dims(self) -> frozenset[str]:
        return frozenset(self.expr.names)


@dataclass(frozen=True, eq=False)
class Apply(Term):
    """A scalar function of other terms: an intrinsic, or `cast`."""

    op: str
    operands: tuple[Term, ...]

    @cached_property
    def dims(self) -> frozenset[str]:
        return NOTHING.union(*(operand.dims for operand in self.operands))


@dataclass(frozen=True, eq=False)
class Given(Term):
    """An element of an input of the program."""

    name: str
    element: Element

    @cached_property
    def dims(self) -> frozenset[str]:
        return frozenset(name for expr in self.element for name in expr.names)


@dataclass(frozen=True, eq=False)
class Placed(Term):
    """What stands at an element of a view of a block, at statement `number` of a point of it."""

    frame: Frame
    number: int
    buffer: str
    element: Element

    @cached_property
    def dims(self) -> frozenset[str]:
        return frozenset(self.frame.dims).union(name for expr in self.element for name in expr.names)


class Read(Placed):
    """What a read at that statement sees."""


class Sum(Placed):
    """What the block that is statement `number`, or with OWN the frame's own block, aggregates into
    the element: the `buffer` is its view."""

    @property
    def child(self) -> Block:
        if self.number == OWN:
            return self.frame.block
        found = self.frame.block.statements[self.number]
        assert isinstance(found, Block)
        return found

    @property
    def aggregation(self) -> Aggregation:
        return aggregation(self.child.refinement(self.buffer))


class Made(Placed):
    """What the special that is statement `number` writes to element `element` of its result."""

    @property
    def special(self) -> Special:
        found = self.frame.block.statements[self.number]
        assert isinstance(found, Special)
        return found


Piece = tuple[Domain, Term]


def aggregation(ref: Refinement) -> Aggregation:
    if ref.aggregation is None:
        raise InvariantError(f"'{ref.name}' has no aggregation")
    return ref.aggregation


# -- sets over unlike dimensions ---------------------------------------------------------------


def over(domain: Domain, names: Sequence[str]) -> Domain:
    """The same set with more dimensions, or in another order."""
    return domain if domain.names == tuple(names) else domain.preimage({}, names)


def join(a: Domain, b: Domain) -> Domain:
    """The points over the dimensions of both that lie in both."""
    if a is b:
        return a
    names = (*a.names, *(name for name in b.names if name not in a.names))
    return over(a, names).intersect(over(b, names))


def onto(domain: Domain, names: Sequence[str]) -> Domain:
    return domain if domain.names == tuple(names) else domain.project_onto(names)


def union(domains: Iterable[Domain], names: Sequence[str]) -> Domain:
    """The union of sets over the same dimensions."""
    total: Domain | None = None
    for domain in domains:
        total = domain if total is None else total.union(domain)
    return Domain.empty(names) if total is None else total.coalesce()


# -- the laws of scalars -------------------------------------------------------------------------


def apply(op: str, operands: tuple[Term, ...], dtype: DType) -> Term:
    """A scalar function of terms in a form of its own: constants folded, units left out.

    Only what holds bit for bit, whatever the values: of floats, not x + 0.0.
    """
    known = [operand for operand in operands if isinstance(operand, Known)]
    if len(known) == len(operands):
        arrays = tuple(np.asarray(k.value).astype(k.dtype.numpy) for k in known)
        result = intrinsics.cast(arrays[0], dtype) if op == "cast" else intrinsics.evaluate(op, arrays)
        return _constant(result, dtype)
    same = _unit(op, operands, dtype)
    if same is not None:
        return same
    made = Apply(dtype, op, operands)
    _ = made.dims  # from the bottom up, while those of the operands are at hand: no recursion later
    return made


def affine_value(expr: Affine, dtype: DType) -> Term:
    """An affine expression of dimensions as a scalar."""
    if expr.terms:
        return Number(dtype, expr)
    return _constant(intrinsics.cast(np.asarray(expr.const, np.int64), dtype), dtype)


def _constant(value: Array, dtype: DType) -> Known:
    if dtype is DType.BOOL:
        return Known(dtype, bool(value))
    return Known(dtype, float(value) if dtype.is_float else int(value))


def is_known(term: Term, value: float) -> bool:
    # repr tells 0.0 from -0.0
    return isinstance(term, Known) and repr(float(term.value)) == repr(value)


def _unit(op: str, operands: tuple[Term, ...], dtype: DType) -> Term | None:
    """The operand that the function always gives back, if there is one."""
    match op, operands:
        case "add" | "mul", (x, y):
            unit = 1.0 if op == "mul" else -0.0 if dtype.is_float else 0.0
            return x if is_known(y, unit) else y if is_known(x, unit) else None
        case "sub" | "shl" | "shr", (x, y):
            return x if is_known(y, 0.0) else None
        case "div" | "floordiv", (x, y) if op == "div" or not dtype.is_float:
            return x if is_known(y, 1.0) else None
        case "select", (condition, x, y):
            if isinstance(condition, Known):
                return x if condition.value else y
            return x if x is y else None
        case "max" | "min" | "and" | "or", (x, y):
            return x if x is y else None
        case "neg" | "not", (Apply(op=inner, operands=(x,)),) if inner == op:
            return x
        case "cast", (x,) if x.dtype is dtype:
            return x
    return None


def is_commutative(op: str) -> bool:
    return op in INTRINSICS and INTRINSICS[op].commutative


# -- of terms in proofs -------------------------------------------------------------------------


def alike(a: Apply, b: Apply) -> bool:
    return (a.op, a.dtype, len(a.operands)) == (b.op, b.dtype, len(b.operands))


def place(term: Term) -> object:
    """What is equal for all elements and points of one place in a program."""
    return (type(term), term.frame.path, term.number, term.buffer) if isinstance(term, Placed) else None


def coordinates_of(term: Term) -> list[Affine]:
    if isinstance(term, Placed):
        return [*map(Affine.index, term.frame.dims), *term.element]
    return []


def word(term: Term) -> str:
    """A term in a few words, for the reason of a failure."""
    match term:
        case Given(name=name):
            return f"input {name}"
        case Known(value=value):
            return f"constant {value}"
        case Apply(op=op):
            return f"'{op}'"
        case Made():
            return f"special {term.special.name}"
        case Sum():
            return f"'{term.aggregation}' over {term.frame.place}/{term.child.name}"
        case Read():
            return f"'{term.buffer}' in {term.frame.place}"
    return "an index"
