"""Typed Tile -> Stripe: a root block with one flat block per statement (docs/architecture.md).

    elementwise   one block over the shape of the result
    contraction   [fill or init] [main block, over its points] [cast out of the accumulator]
    gather        a special;  scatter: a block of zeros and a special

Tensors of no elements have no block: there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from stripe.affine import Affine
from stripe.diag import Span
from stripe.dtypes import DType, TensorType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Constraint,
    Direction,
    Index,
    IndexValue,
    Intrinsic,
    Load,
    Operand,
    Program,
    Refinement,
    Special,
    Statement,
    Store,
    contiguous,
)
from stripe.names import Names
from tile_frontend import typed
from tile_frontend.builtins import OPERATORS
from tile_frontend.elementwise import BodyBuilder, Scalar
from tile_frontend.promotion import Weak
from tile_frontend.typed import Apply, Body, Convert, Coordinate, Literal, Read, Space

ROOT = "main"


def lower(unit: typed.Unit) -> Program:
    """The program of a typed function; it verifies."""
    return _Lowering(unit).program()


class _Lowering:
    def __init__(self, unit: typed.Unit) -> None:
        self._unit = unit
        signature = (*unit.inputs, *unit.outputs)
        targets = (statement.target for statement in unit.statements)
        self._buffers = Names({name for name, _, _ in signature} | set(targets))
        self._blocks = Names()
        self._own = {name for name, _, _ in unit.outputs}
        self._refinements: list[Refinement] = [
            *(_argument(Direction.IN, *entry) for entry in unit.inputs),
            *(_argument(Direction.OUT, *entry) for entry in unit.outputs),
        ]
        self._statements: list[Statement] = []

    def program(self) -> Program:
        for statement in self._unit.statements:
            if prod(statement.type.shape) == 0:
                continue
            self._allocate(statement.target, statement.type, statement.span)
            match statement:
                case typed.Elementwise(target=target, body=body, span=span):
                    self._map(target, target, statement.type.shape, body, span)
                case typed.Contraction():
                    self._contraction(statement)
                case typed.Gather():
                    self._gather(statement)
                case typed.Scatter():
                    self._scatter(statement)
        root = Block(
            ROOT,
            refinements=tuple(self._refinements),
            statements=tuple(self._statements),
            span=self._unit.span,
        )
        return Program(root)

    def _allocate(self, name: str, type: TensorType, span: Span) -> None:
        if name not in self._own:
            strides = contiguous(type.shape)
            self._refinements.append(
                Refinement(Direction.NEW, name, type.shape, type.dtype, strides=strides, span=span)
            )

    # -- elementwise -----------------------------------------------------------------------------

    def _map(self, name: str, target: str, shape: tuple[int, ...], body: Body, span: Span) -> None:
        """`target` = body at each of its elements; the body broadcasts to `shape`."""
        indexes = Names({target, *body.reads})
        ranges = {indexes.fresh(f"i{at}"): size for at, size in enumerate(shape)}
        here = tuple(Affine.index(index) for index in ranges)
        views = [
            _view(
                Direction.IN, value.tensor, value.tensor, _aligned(here, value.shape), value.dtype, value.span
            )
            for value in body.values
            if isinstance(value, Read)
        ]
        dtype = body.type.dtype
        views.append(_view(Direction.OUT, target, target, here, dtype, span, Aggregation.ASSIGN))
        statements = _body(body, here)
        statements.append(Store(target, f"v{len(body.values) - 1}", span))
        self._block(name, Space(ranges, ()), views, statements, span)

    def _block(
        self,
        name: str,
        space: Space,
        views: Sequence[Refinement],
        statements: Sequence[Statement],
        span: Span,
    ) -> None:
        self._statements.append(
            Block(
                self._blocks.fresh(name),
                indexes=tuple(Index(index, size) for index, size in space.ranges.items()),
                constraints=tuple(Constraint(expr) for expr in space.constraints),
                refinements=tuple(views),
                statements=tuple(statements),
                span=span,
            )
        )

    def _fill(self, target: str, type: TensorType, body: Body | None, span: Span) -> None:
        """Give every element its start: the body, or zero."""
        zero = Weak(False) if type.dtype is DType.BOOL else Weak(0)
        self._map(f"{target}_fill", target, type.shape, body or _constant(zero, type.dtype, span), span)

    # -- contractions ----------------------------------------------------------------------------

    def _contraction(self, statement: typed.Contraction) -> None:
        name, span = statement.target, statement.span
        buffered = TensorType(statement.buffered, statement.type.shape)
        target = name
        if buffered != statement.type:
            target = self._buffers.fresh(f"{name}_sum")
            self._allocate(target, buffered, span)
        if statement.init is not None:
            self._map(f"{name}_init", target, buffered.shape, statement.init, span)
        elif not statement.covered:
            self._fill(target, buffered, statement.fill, span)
        if statement.space is not None:
            self._points(statement, statement.space, target)
        if target != name:
            builder = BodyBuilder()
            total = builder.read(target, buffered.dtype, buffered.shape, span)
            body = builder.body(builder.convert(total, statement.type.dtype, span))
            self._map(f"{name}_cast", name, buffered.shape, body, span)

    def _points(self, statement: typed.Contraction, space: Space, target: str) -> None:
        """The main block: combine the operands at each point and aggregate into `target`."""
        # No index may have the name of a buffer that the block uses.
        indexes = Names({target, *(operand.tensor for operand in statement.operands)})
        names = {name: indexes.fresh(name) for name in space.ranges}

        def renamed(affines: Sequence[Affine]) -> tuple[Affine, ...]:
            return tuple(expr.rename(names.__getitem__) for expr in affines)

        ranges = {names[name]: size for name, size in space.ranges.items()}
        views, locals = _operand_views(statement, renamed, {target, *ranges})
        if statement.init is not None:
            direction, aggregation = Direction.INOUT, statement.aggregation
        else:
            direction = Direction.OUT
            aggregation = Aggregation.ASSIGN if statement.single else statement.aggregation
        views.append(
            _view(
                direction,
                target,
                target,
                renamed(statement.access),
                statement.buffered,
                statement.span,
                aggregation,
            )
        )
        body = _combination(statement, locals)
        statements = _body(body, ())
        statements.append(Store(target, f"v{len(body.values) - 1}", statement.span))
        self._block(
            statement.target, Space(ranges, renamed(space.constraints)), views, statements, statement.span
        )

    # -- specials --------------------------------------------------------------------------------

    def _gather(self, statement: typed.Gather) -> None:
        operands = (
            Operand(Direction.IN, statement.data),
            Operand(Direction.IN, statement.index),
            Operand(Direction.OUT, statement.target, Aggregation.ASSIGN),
        )
        params = (("axis", statement.axis),)
        self._statements.append(Special("gather", operands, params, span=statement.span))

    def _scatter(self, statement: typed.Scatter) -> None:
        self._fill(statement.target, statement.type, None, statement.span)
        operands = (
            Operand(Direction.IN, statement.updates),
            Operand(Direction.IN, statement.index),
            Operand(Direction.INOUT, statement.target, Aggregation.ADD),
        )
        params = (("axis", statement.axis),)
        self._statements.append(Special("scatter", operands, params, span=statement.span))


def _argument(direction: Direction, name: str, type: TensorType, span: Span) -> Refinement:
    return Refinement(
        direction,
        name,
        type.shape,
        type.dtype,
        source=name,
        access=(Affine(),) * len(type.shape),
        aggregation=Aggregation.ASSIGN if direction.writes else None,
        strides=contiguous(type.shape),
        span=span,
    )


def _view(
    direction: Direction,
    name: str,
    source: str,
    access: tuple[Affine, ...],
    dtype: DType,
    span: Span | None,
    aggregation: Aggregation | None = None,
) -> Refinement:
    """A view of one element."""
    return Refinement(direction, name, (1,) * len(access), dtype, source, access, aggregation, span=span)


def _aligned(here: tuple[Affine, ...], shape: tuple[int, ...]) -> tuple[Affine, ...]:
    """The access to a tensor of `shape` that is broadcast over the point `here`."""
    last = here[len(here) - len(shape) :]
    return tuple(Affine() if size == 1 else expr for expr, size in zip(last, shape, strict=True))


def _constant(scalar: Weak, dtype: DType, span: Span) -> Body:
    builder = BodyBuilder()
    return builder.body(builder.literal(scalar, dtype, span))


def _body(body: Body, here: tuple[Affine, ...]) -> list[Statement]:
    """The values of a body as scalars v0, v1 ... at the point `here`."""
    statements: list[Statement] = []
    for number, value in enumerate(body.values):
        result = f"v{number}"
        match value:
            case Read(tensor=tensor, dtype=dtype, span=span):
                statements.append(Load(result, tensor, dtype, span))
            case Literal(value=constant, dtype=dtype, span=span):
                statements.append(Constant(result, constant, dtype, span))
            case Coordinate(axis=axis, dtype=dtype, shape=shape, span=span):
                statements.append(IndexValue(result, _aligned(here, shape)[axis], dtype, span))
            case Apply(op=op, operands=operands, dtype=dtype, span=span):
                statements.append(Intrinsic(result, op, tuple(f"v{o}" for o in operands), dtype, span))
            case Convert(operand=operand, dtype=dtype, span=span):
                statements.append(Cast(result, f"v{operand}", dtype, span))
    return statements


def _operand_views(
    statement: typed.Contraction,
    renamed: Callable[[Sequence[Affine]], tuple[Affine, ...]],
    taken: set[str],
) -> tuple[list[Refinement], list[str]]:
    """A view for each distinct access, and the name of the view of each operand."""
    names = Names(taken)
    known: dict[tuple[str, tuple[Affine, ...]], str] = {}
    views: list[Refinement] = []
    locals: list[str] = []
    for operand in statement.operands:
        access = renamed(operand.access)
        key = (operand.tensor, access)
        if key not in known:
            known[key] = names.fresh(operand.tensor)
            views.append(_view(Direction.IN, known[key], operand.tensor, access, operand.dtype, operand.span))
        locals.append(known[key])
    return views, locals


def _combination(statement: typed.Contraction, locals: Sequence[str]) -> Body:
    """What one point contributes, in the type of the buffer."""
    span = statement.span
    builder = BodyBuilder()
    values = [
        builder.read(name, operand.dtype, (), operand.span)
        for name, operand in zip(locals, statement.operands, strict=True)
    ]
    wide = statement.accumulated
    result: Scalar
    if statement.combination in ("==", "?"):
        pair: list[Scalar] = [builder.convert(value, statement.compared, span) for value in values[:2]]
        result = builder.apply(OPERATORS["=="], pair, "==", span)
        if statement.combination == "?":
            chosen = builder.convert(values[2], wide, span)
            zero = builder.convert(Weak(False if wide is DType.BOOL else 0), wide, span)
            result = builder.select(result, chosen, zero, span)
    else:
        result = builder.convert(values[0], wide, span)
        for value in values[1:]:
            operation = OPERATORS[statement.combination]
            terms: list[Scalar] = [result, builder.convert(value, wide, span)]
            result = builder.apply(operation, terms, statement.combination, span)
    total = builder.convert(result, wide, span)
    return builder.body(builder.convert(total, statement.buffered, span))
