"""The functions of whole tensors: gather, scatter, reshape, shape, index.

`index` and `shape` are values; the others become statements, wherever in an expression they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stripe.diag import Span
from stripe.dtypes import DType, TensorType
from stripe.ir import Aggregation
from tile_frontend.builtins import FUNCTIONS
from tile_frontend.elementwise import BodyBuilder, Scalar, Strong, fail, shape_text
from tile_frontend.promotion import Weak
from tile_frontend.reshaping import reshape_points
from tile_frontend.scope import Scope
from tile_frontend.tree import Call, Expr
from tile_frontend.typed import Contraction, Gather, Operand, Scatter, Statement

_INT32_MAX = 2**31 - 1


class TensorFunctions:
    """Applies them within the statement that makes `target`."""

    def __init__(self, scope: Scope, builder: BodyBuilder, target: str) -> None:
        self._scope = scope
        self._builder = builder
        self._target = target

    def call(self, call: Call, tensors: list[Scalar]) -> Scalar:
        """`tensors` are the values of the leading arguments, checked in number."""
        constants = call.arguments[len(tensors) :]
        spans = [argument.span for argument in call.arguments]
        values = [
            t if isinstance(t, Strong) else self._builder.convert(t, t.dtype, span)
            for t, span in zip(tensors, spans, strict=False)
        ]
        match call.function.text:
            case "gather":
                return self._gather(values, constants, call.span, spans)
            case "scatter":
                return self._scatter(values, constants, call.span, spans)
            case "reshape":
                return self._reshape(values[0], constants, call.span)
            case "shape":
                return self._shape(values[0], call.span)
            case _:
                return self._index(values[0], constants, call.span)

    def _gather(
        self, values: list[Strong], constants: Sequence[Expr], span: Span, spans: list[Span]
    ) -> Strong:
        data, index = values
        axis = self._axis(constants, data.shape, span)
        _check_index(index, spans[1])
        if data.shape[axis] == 0 and prod(index.shape) > 0:
            fail("T021", f"there is nothing to gather from: axis {axis} has size 0", spans[0])
        shape = data.shape[:axis] + index.shape + data.shape[axis + 1 :]
        names = self._names(("data", "index"), values, spans)
        target = self._scope.fresh(f"{self._target}_gather")
        return self._made(Gather(target, TensorType(data.dtype, shape), names[0], names[1], axis, span))

    def _scatter(
        self, values: list[Strong], constants: Sequence[Expr], span: Span, spans: list[Span]
    ) -> Strong:
        updates, index, like = values
        axis = self._axis(constants, like.shape, span)
        _check_index(index, spans[1])
        expected = like.shape[:axis] + index.shape + like.shape[axis + 1 :]
        if updates.shape != expected:
            fail(
                "T021",
                f"the updates have shape {shape_text(updates.shape)}, expected {shape_text(expected)}",
                spans[0],
                "that is the shape of the result, with the shape of the index in place of the axis",
            )
        # Sums of narrow floats are rounded once, sums of truth values count (docs/tile.md, Types).
        narrow = updates.dtype if updates.dtype in (DType.F16, DType.BF16) else None
        wide = {DType.BOOL: DType.I32}.get(updates.dtype, DType.F32 if narrow else updates.dtype)
        values = [self._builder.convert(updates, wide, spans[0]), index]
        names = self._names(("updates", "index"), values, spans)
        target = self._scope.fresh(f"{self._target}_scatter")
        made = self._made(Scatter(target, TensorType(wide, like.shape), names[0], names[1], axis, span))
        return self._builder.convert(made, narrow, span) if narrow else made

    def _reshape(self, value: Strong, constants: Sequence[Expr], span: Span) -> Strong:
        evaluator = self._scope.evaluator
        sizes = [evaluator.size(expr) for expr in constants]
        for size, expr in zip(sizes, constants, strict=True):
            if size < 0:
                fail("T035", f"this size is negative: {size}", expr.span)
        shape = tuple(sizes)
        if prod(shape) != prod(value.shape):
            fail(
                "T041",
                f"{prod(value.shape)} elements of shape {shape_text(value.shape)} do not fill"
                f" the shape {shape_text(shape)}, which has {prod(shape)}",
                span,
            )
        type = TensorType(value.dtype, shape)
        name = self._scope.materialise(value, self._builder, f"{self._target}_data", span)
        space, read, write = reshape_points(value.shape, shape) if prod(shape) else (None, (), ())
        return self._made(
            Contraction(
                self._scope.fresh(f"{self._target}_reshape"),
                type,
                buffered=value.dtype,
                aggregation=Aggregation.ASSIGN,
                combination="",
                operands=(Operand(name, value.dtype, read, span),),
                compared=value.dtype,
                accumulated=value.dtype,
                space=space,
                access=write,
                covered=True,
                single=True,
                fill=None,
                init=None,
                span=span,
            )
        )

    def _shape(self, value: Strong, span: Span) -> Scalar:
        """A vector: the size whose number is the position, chosen by comparing the two."""
        _check_int32(value.shape, span)
        position = self._builder.coordinate(0, (len(value.shape),), span)
        sizes: Scalar = position
        for axis, size in reversed(list(enumerate(value.shape))):
            here = self._builder.apply(FUNCTIONS["eq"], [position, Weak(axis)], "shape", span)
            sizes = self._builder.select(here, Weak(size), sizes, span)
        return sizes

    def _index(self, value: Strong, constants: Sequence[Expr], span: Span) -> Strong:
        _check_int32(value.shape, span)
        return self._builder.coordinate(self._axis(constants, value.shape, span), value.shape, span)

    def _axis(self, constants: Sequence[Expr], shape: tuple[int, ...], span: Span) -> int:
        axis = self._scope.evaluator.size(constants[0]) if constants else 0
        if not 0 <= axis < len(shape):
            where = constants[0].span if constants else span
            fail("T040", f"axis {axis} of a tensor of rank {len(shape)}", where)
        return axis

    def _names(self, roles: Sequence[str], values: Sequence[Strong], spans: Sequence[Span]) -> list[str]:
        return [
            self._scope.materialise(value, self._builder, f"{self._target}_{role}", span)
            for role, value, span in zip(roles, values, spans, strict=False)
        ]

    def _made(self, statement: Statement) -> Strong:
        self._scope.emit(statement, statement.span)
        type = statement.type
        return self._builder.read(statement.target, type.dtype, type.shape, statement.span)


def _check_index(index: Strong, span: Span) -> None:
    if not index.dtype.is_integer:
        fail(
            "T022",
            f"an index must be an integer, not {index.dtype.value}",
            span,
            "help: as_int(x, 32) converts it",
        )


def _check_int32(shape: tuple[int, ...], span: Span) -> None:
    if any(size > _INT32_MAX for size in shape):
        fail("T037", f"the shape {shape_text(shape)} does not fit i32", span)
