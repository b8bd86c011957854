"""Typed Tile: what `sema` makes of the syntax tree and `lower` turns into blocks.

    Unit -- inputs, outputs, (Elementwise | Contraction | Gather | Scatter)*

Names are resolved, types are explicit (each conversion is a node), sizes are numbers, and the
points of contractions are known. An elementwise expression is a flat list of values, in which
operands are the positions of earlier values: its depth is no matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stripe.affine import Affine
from stripe.diag import Span
from stripe.dtypes import DType, TensorType
from stripe.ir import Aggregation

# -- values of an elementwise body ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """The element of a tensor at this point, broadcast as NumPy does."""

    tensor: str
    dtype: DType
    shape: tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float | bool
    dtype: DType
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The position of this point along `axis` of a tensor of this shape."""

    axis: int
    dtype: DType
    shape: tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An intrinsic on earlier values."""

    op: str
    operands: tuple[int, ...]
    dtype: DType
    shape: tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Convert:
    operand: int
    dtype: DType
    shape: tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Value = Read | Literal | Coordinate | Apply | Convert


def value_operands(value: Value) -> tuple[int, ...]:
    match value:
        case Apply(operands=operands):
            return operands
        case Convert(operand=operand):
            return (operand,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Body:
    """A scalar function of the tensors it reads; the last value is the result."""

    values: tuple[Value, ...]

    @property
    def type(self) -> TensorType:
        return TensorType(self.values[-1].dtype, self.values[-1].shape)

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(v.tensor for v in self.values if isinstance(v, Read))


# -- statements ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Space:
    """The points of a contraction: ranges from 0, under constraints (each >= 0)."""

    ranges: dict[str, int]
    constraints: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Elementwise:
    target: str
    type: TensorType
    body: Body
    span: Span

    @property
    def reads(self) -> tuple[str, ...]:
        return self.body.reads


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a contraction reads, with one affine access per dimension."""

    tensor: str
    dtype: DType
    access: tuple[Affine, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Contraction:
    """`target[access] = aggregation over space of combination(operands)`.

    Operands are converted to `compared` before `==`, to `accumulated` before `+` and `*`; what
    is aggregated has the type `accumulated`, and is converted once to that of the target.
    `buffered` is the type of the memory in which that happens.
    `space` is None where there are no points. `covered`: each element is written; `single`: no
    element is written twice. `fill` gives the elements without a point (zeros if None); `init`
    is folded into each element.
    """

    target: str
    type: TensorType
    buffered: DType
    aggregation: Aggregation
    combination: str
    operands: tuple[Operand, ...]
    compared: DType
    accumulated: DType
    space: Space | None
    access: tuple[Affine, ...]
    covered: bool
    single: bool
    fill: Body | None
    init: Body | None
    span: Span

    @property
    def reads(self) -> tuple[str, ...]:
        names = [operand.tensor for operand in self.operands]
        for body in (self.fill, self.init):
            names += body.reads if body is not None else ()
        return tuple(names)


@dataclass(frozen=True, slots=True)
class Gather:
    """`target[..., i..., ...] = data[..., index[i...], ...]` along `axis` of the data."""

    target: str
    type: TensorType
    data: str
    index: str
    axis: int
    span: Span

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.data, self.index)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Zeros, with `updates` added at `index` along `axis`."""

    target: str
    type: TensorType
    updates: str
    index: str
    axis: int
    span: Span

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.updates, self.index)


Statement = Elementwise | Contraction | Gather | Scatter


@dataclass(frozen=True, slots=True)
class Unit:
    """A whole function, with its inputs and outputs in the order of the signature."""

    inputs: tuple[tuple[str, TensorType, Span], ...]
    outputs: tuple[tuple[str, TensorType, Span], ...]
    statements: tuple[Statement, ...]
    span: Span
