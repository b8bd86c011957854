"""Builds the typed body of an elementwise expression, value by value.

Equal values are made once. All rules of types and broadcasting are applied here; weak scalars
fold, and get a type when they meet a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from stripe.diag import CompileError, Diagnostic, Span
from stripe.dtypes import DType, TensorType
from stripe.intrinsics import INTRINSICS, cast
from tile_frontend.builtins import FUNCTIONS, OPERATORS, Operation
from tile_frontend.folding import FoldError, fold
from tile_frontend.promotion import Weak, common_type, fits, real_type
from tile_frontend.typed import Apply, Body, Convert, Coordinate, Literal, Read, Value, value_operands

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Strong:
    """A value of a body, by position, with its type and shape."""

    position: int
    dtype: DType
    shape: Shape


Scalar = Weak | Strong


def fail(code: str, message: str, span: Span, *notes: str) -> NoReturn:
    raise CompileError(Diagnostic(code, message, span, notes))


def shape_text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def broadcast(shapes: list[Shape], span: Span) -> Shape:
    """NumPy's rule: sizes are aligned at the right; a size of 1 stretches. T021 if they differ."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for at, size in enumerate(shape, start=rank - len(shape)):
            if result[at] == 1:
                result[at] = size
            elif size not in (1, result[at]):
                known = ", ".join(shape_text(s) for s in dict.fromkeys(shapes) if s)
                fail("T021", f"shapes {known} do not broadcast: {result[at]} is not {size}", span)
    return tuple(result)


class BodyBuilder:
    def __init__(self) -> None:
        self._values: list[Value] = []
        self._positions: dict[object, int] = {}

    def body(self, result: Strong) -> Body:
        """What `result` needs, in order, with it as the last value."""
        used = {result.position}
        for position in range(result.position, -1, -1):
            if position in used:
                used.update(value_operands(self._values[position]))
        renumbered = {old: new for new, old in enumerate(sorted(used))}
        return Body(tuple(_renumbered(self._values[old], renumbered) for old in renumbered))

    def as_read(self, value: Strong) -> str | None:
        """The name of the tensor, if the value is one as it is."""
        found = self._values[value.position]
        return found.tensor if isinstance(found, Read) else None

    # -- leaves ----------------------------------------------------------------------------

    def read(self, tensor: str, dtype: DType, shape: Shape, span: Span) -> Strong:
        return self._add(Read(tensor, dtype, shape, span))

    def coordinate(self, axis: int, shape: Shape, span: Span) -> Strong:
        return self._add(Coordinate(axis, DType.I32, shape, span))

    def literal(self, scalar: Weak, dtype: DType, span: Span) -> Strong:
        """A weak scalar in a type of its own. T042: it does not fit."""
        value = scalar.value
        if not fits(value, dtype):
            wider = "as_float" if dtype.is_float else "as_int"
            fail(
                "T042",
                f"{value} does not fit the type {dtype.value}",
                span,
                f"help: convert the other operand first: {wider}(x, {max(8, dtype.bits * 2)})"
                if dtype.bits < 64 and dtype is not DType.BOOL
                else "help: convert explicitly",
            )
        if dtype.is_float:
            return self._add(Literal(float(value), dtype, span))
        return self._add(Literal(int(value) if dtype.is_integer else bool(value), dtype, span))

    # -- operations ------------------------------------------------------------------------

    def apply(self, operation: Operation, operands: list[Scalar], name: str, span: Span) -> Scalar:
        """An operator or function on operands of any type; `name` is how the text calls it."""
        strong = [o for o in operands if isinstance(o, Strong)]
        weak = [o for o in operands if isinstance(o, Weak)]
        if not strong:
            try:
                folded = fold(operation, weak)
            except FoldError as error:
                fail(error.code, f"'{name}': {error.message}", span)
            if folded is not None:
                return folded
        common = common_type([o.dtype for o in strong], weak)
        rule = operation.rule(operation.intrinsic, common)
        if rule is None:
            self._refuse(name, common, span)
        op, dtype = rule
        converted = [self.convert(o, dtype, span) for o in operands]
        return self._intrinsic(op, converted, dtype, span) if op else converted[0]

    def _refuse(self, name: str, dtype: DType, span: Span) -> NoReturn:
        if dtype is DType.BOOL:
            help_text = "help: use &, |, ^ or ~ for logic, or convert with as_int(x, 32)"
        else:
            help_text = "help: convert to integers first, for example with as_int(x, 32)"
        fail("T022", f"'{name}' is not defined for {dtype.value}", span, help_text)

    def _intrinsic(self, op: str, operands: list[Strong], dtype: DType, span: Span) -> Strong:
        shape = broadcast([o.shape for o in operands], span)
        result = DType.BOOL if INTRINSICS[op].gives_bool else dtype
        return self._add(Apply(op, tuple(o.position for o in operands), result, shape, span))

    def select(self, condition: Scalar, chosen: Scalar, other: Scalar, span: Span) -> Scalar:
        """`condition ? chosen : other`; a condition that is a number means "is not 0"."""
        branches = (chosen, other)
        if isinstance(condition, Weak) and all(isinstance(b, Weak) for b in branches):
            return chosen if condition.value else other
        common = common_type(
            [b.dtype for b in branches if isinstance(b, Strong)], [b for b in branches if isinstance(b, Weak)]
        )
        test = self.cast(condition, DType.BOOL, span)
        operands = [test, self.convert(chosen, common, span), self.convert(other, common, span)]
        return self._intrinsic("select", operands, common, span)

    def convert(self, operand: Scalar, dtype: DType, span: Span) -> Strong:
        """The operand in a type that promotion chose for it."""
        if isinstance(operand, Weak):
            return self.literal(operand, dtype, span)
        if operand.dtype is dtype:
            return operand
        return self._add(Convert(operand.position, dtype, operand.shape, span))

    def cast(self, operand: Scalar, dtype: DType, span: Span) -> Strong:
        """An explicit conversion: integers wrap, floats are cut off toward zero."""
        if isinstance(operand, Strong) or (dtype.is_float and not isinstance(operand.value, bool)):
            return self.convert(operand, dtype, span)
        value = cast(np.asarray(operand.value, operand.dtype.numpy), dtype).item()
        return self.literal(Weak(value), dtype, span)

    def composite(self, name: str, operand: Scalar, span: Span) -> Scalar:
        """The functions that are written with others."""

        def call(function: str, *operands: Scalar) -> Scalar:
            operation = FUNCTIONS.get(function) or OPERATORS[function]
            return self.apply(operation, list(operands), name, span)

        if name == "relu":
            return call("max", operand, Weak(False) if operand.dtype is DType.BOOL else Weak(0))
        if name == "recip":
            return call("/", Weak(1), operand)
        # sigmoid(x) = 1 / (1 + exp(-x)), in floats throughout: an unsigned -x would wrap
        real = Weak(float(operand.value)) if isinstance(operand, Weak) else operand
        if isinstance(real, Strong):
            real = self.convert(real, real_type(real.dtype), span)
        return call("/", Weak(1), call("+", Weak(1), call("exp", call("neg", real))))

    def result(self, operand: Scalar, dtype: DType | None, span: Span) -> Strong:
        """The operand as the value of a statement with this declared type, if any."""
        return (
            self.cast(operand, dtype, span)
            if dtype is not None
            else self.convert(operand, operand.dtype, span)
        )

    def _add(self, value: Value) -> Strong:
        # repr tells 0.0 from -0.0, and 1 from 1.0 and True, which compare as equal
        key = (repr(value.value), value.dtype) if isinstance(value, Literal) else value
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = len(self._values)
            self._values.append(value)
        return Strong(position, value.dtype, value.shape)


def _renumbered(value: Value, positions: dict[int, int]) -> Value:
    match value:
        case Apply(operands=operands):
            return replace(value, operands=tuple(positions[o] for o in operands))
        case Convert(operand=operand):
            return replace(value, operand=positions[operand])
        case _:
            return value


def tensor_type(value: Strong) -> TensorType:
    return TensorType(value.dtype, value.shape)
