"""Stripe IR: immutable trees of nested parallel polyhedral blocks.

    Program -- root Block (its refinements are the signature)
    Block   -- indexes, constraints, refinements, statements, location, tags
    text form: stripe.printer and stripe.parser; rules: stripe.verify; meaning: stripe.interp

The model is that of the Stripe paper, section 3 (Zerrell and Bruestle, 2019).
Every node is a value: a pass builds new ones and shares what it did not change.
Spans are carried for messages and take no part in equality.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from stripe.affine import Affine
from stripe.diag import Span
from stripe.dtypes import DType
from stripe.remembered import RememberedOf


class Direction(StrEnum):
    """How a block uses a refinement."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    NEW = "new"  # a buffer of its own, which lives for one point of the block

    @property
    def reads(self) -> bool:
        return self in (Direction.IN, Direction.INOUT)

    @property
    def writes(self) -> bool:
        return self in (Direction.OUT, Direction.INOUT)


class Aggregation(StrEnum):
    """How the writes to one element combine (Definition 2 of the paper)."""

    ASSIGN = "assign"
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


SLOT = "slot"  # in a location: the point's number, in order, modulo the block's `inflight`


@dataclass(frozen=True, slots=True)
class Tag:
    """`#name` or `#name=value`: advice for passes and code generation, without meaning."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"#{self.name}={self.value}" if self.value else f"#{self.name}"


def combining(how: Aggregation | None) -> bool:
    """Whether what is written so is combined with what is there, and does not replace it."""
    return how not in (None, Aggregation.ASSIGN)


def rounds_partial_sums(dtype: DType, how: Aggregation | None) -> bool:
    """Whether results that are combined so in parts are rounded to the type in between: sums are made in a
    wider type, and rounded once."""
    return dtype in (DType.F16, DType.BF16) and how in (Aggregation.ADD, Aggregation.MUL)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a buffer lies or a block runs: a unit of the target, by name.

    `bank` is the bank of a memory, or the number of a compute unit; `address` is in bytes.
    Both are affine in the indexes of the block that holds the location, and in `slot` (SLOT)
    where it is that of a NEW buffer: the number of the point among those in flight. `spread` names
    the one dimension of an allocation that is divided over the banks in equal parts.
    """

    unit: str
    bank: Affine | None = None
    address: Affine | None = None
    spread: int | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """A range `name:range` (0 <= name < range), or a value passed in: `name = passed`.

    `passed` is affine over the indexes of the parent block; such an index has range 1.
    """

    name: str
    range: int = 1
    passed: Affine | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Constraint:
    """`expr >= 0`, over the block's own indexes."""

    expr: Affine
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Refinement:
    """A view of a buffer of the parent block, or (NEW) a buffer of this block's own.

    `access` gives the origin of the view in the parent's view, one affine expression over
    this block's indexes for each dimension; `shape` is the extent of the view. A view may
    overhang; what is executed may not. `strides` (in elements) belong to allocations: they
    are set for NEW buffers and for the root's refinements, and None for every other view.
    `aggregation` is set for OUT and INOUT, None otherwise. `const` is legal on root inputs.
    """

    direction: Direction
    name: str
    shape: tuple[int, ...]
    dtype: DType
    source: str = ""
    access: tuple[Affine, ...] = ()
    aggregation: Aggregation | None = None
    strides: tuple[int, ...] | None = None
    location: Location | None = None
    const: bool = False
    tags: tuple[Tag, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def bytes(self) -> int:
        """Of all its elements, without the gaps that strides may leave."""
        return prod(self.shape) * self.dtype.bytes

    @property
    def combines(self) -> bool:
        """Whether writes to one element are combined, and do not replace each other."""
        return combining(self.aggregation)


@dataclass(frozen=True, slots=True)
class Load:
    """`$result = load(buffer) dtype`: the element at the origin of the view."""

    result: str
    buffer: str
    dtype: DType
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer = store($value)`: one write to the element at the origin of the view."""

    buffer: str
    value: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """`$result = constant(value) dtype`."""

    result: str
    value: int | float | bool
    dtype: DType
    span: Span | None = field(default=None, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        # NaN equals NaN and 0.0 differs from -0.0: two constants are one if they print alike.
        return (
            isinstance(other, Constant)
            and (self.result, self.dtype) == (other.result, other.dtype)
            and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash((self.result, repr(self.value), self.dtype))


@dataclass(frozen=True, slots=True)
class IndexValue:
    """`$result = index(expr) dtype`: an affine expression of the indexes as a scalar."""

    result: str
    expr: Affine
    dtype: DType
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """`$result = op($a, $b) dtype`: a scalar function of stripe.intrinsics."""

    result: str
    op: str
    operands: tuple[str, ...]
    dtype: DType
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """`$result = cast($operand) dtype`: the only conversion between element types."""

    result: str
    operand: str
    dtype: DType
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer that a special uses, whole, or the part `access`, `shape` of it."""

    direction: Direction
    buffer: str
    aggregation: Aggregation | None = None
    access: tuple[Affine, ...] | None = None
    shape: tuple[int, ...] | None = None

    @property
    def combines(self) -> bool:
        """As of a refinement."""
        return combining(self.aggregation)


@dataclass(frozen=True, slots=True)
class Special:
    """`special name(operands) {params}`: an operation on whole views (stripe.specials)."""

    name: str
    operands: tuple[Operand, ...]
    params: tuple[tuple[str, int | float | str], ...] = ()
    location: Location | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """A parallel polyhedral block: its statements run, in order, at each point.

    The points are the integer points of the index ranges that satisfy the constraints. They
    are independent but for aggregation. The order of `indexes`, outermost first, is the
    order in which points are visited; it has no meaning, but it has a cost. `inflight` is
    the number of points that may be alive at once, each with its own NEW buffers.
    """

    name: str
    indexes: tuple[Index, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    refinements: tuple[Refinement, ...] = ()
    statements: tuple[Statement, ...] = ()
    location: Location | None = None
    inflight: int = 1
    tags: tuple[Tag, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    def index(self, name: str) -> Index:
        return next(i for i in self.indexes if i.name == name)

    def refinement(self, name: str) -> Refinement:
        if len(self.refinements) > FEW:
            return named(self.refinements)[name]
        for ref in self.refinements:  # with `next`, it takes twice as long
            if ref.name == name:
                return ref
        raise KeyError(name)

    @property
    def children(self) -> tuple[Block, ...]:
        return tuple(s for s in self.statements if isinstance(s, Block))

    @property
    def ranges(self) -> dict[str, int]:
        """The indexes that range over several values, in order; passed ones are left out."""
        return {i.name: i.range for i in self.indexes if i.passed is None}

    @property
    def points(self) -> int:
        """How many points the index ranges have, without a look at the constraints."""
        return prod(self.ranges.values())

    def tag_values(self, name: str) -> tuple[str, ...]:
        return tuple(t.value for t in self.tags if t.name == name)

    def has_tag(self, name: str) -> bool:
        return any(t.name == name for t in self.tags)


FEW = 16  # refinements, of which one is found by looking at all
_NAMED = RememberedOf[tuple[Refinement, ...], Mapping[str, Refinement]](64)


def named(refinements: tuple[Refinement, ...]) -> Mapping[str, Refinement]:
    """Refinements of one block by name. Kept by identity: the root of a network has many, and is asked
    for each of its kernels."""
    known = _NAMED.get(refinements)
    return _NAMED.put(refinements, {ref.name: ref for ref in refinements}) if known is None else known


Scalar = Load | Constant | IndexValue | Intrinsic | Cast  # statements that define a scalar
Statement = Scalar | Store | Special | Block


@dataclass(frozen=True, slots=True)
class Program:
    """A root block, whose refinements are the signature: inputs first, then outputs.

    `load` is an optional load-time program: it runs once, reads `const` inputs of the root
    by name, and its outputs are further inputs of the root, by name.
    """

    root: Block
    load: Block | None = None

    @property
    def inputs(self) -> tuple[Refinement, ...]:
        return tuple(r for r in self.root.refinements if r.direction is Direction.IN)

    @property
    def outputs(self) -> tuple[Refinement, ...]:
        return tuple(r for r in self.root.refinements if r.direction.writes)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements, of a dense array of this shape."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
