"""Arithmetic on weak scalars: integers are exact, floats are 64-bit, `/` is true division."""

from __future__ import annotations

import numpy as np

from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS, evaluate
from tile_frontend.builtins import INTEGER_MEANING, Operation
from tile_frontend.promotion import WEAK_LIMITS, Weak, common_type


class FoldError(Exception):
    """An operation on known numbers has no result; the message says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def fold(operation: Operation, operands: list[Weak]) -> Weak | None:
    """The value of an operation on known numbers; None where the types have no such operation."""
    rule = operation.rule(operation.intrinsic, common_type((), operands))
    if rule is None:
        return None
    op, dtype = rule
    if not op:
        return operands[0]
    values = [operand.value for operand in operands]
    if dtype.is_float:
        result = evaluate(op, tuple(np.asarray(float(value)) for value in values)).item()
        return Weak(bool(result) if INTRINSICS[op].gives_bool else float(result))
    if dtype is DType.BOOL:
        return Weak(not values[0] if op == "not" else bool(INTEGER_MEANING[op](*values)))
    return _integer(op, [int(value) for value in values])


def _integer(op: str, values: list[int]) -> Weak:
    if op in ("floordiv", "mod") and values[1] == 0:
        raise FoldError("T034", "division by zero")
    if op == "pow" and values[1] < 0:
        return Weak(evaluate("pow", (np.asarray(float(values[0])), np.asarray(float(values[1])))).item())
    if op in ("shl", "shr") and not 0 <= values[1] < 64:
        raise FoldError("T042", f"a shift by {values[1]}")
    if op == "pow":
        # Python would compute a number of any length: bound its bits first.
        large = abs(values[0]) > 1 and values[1] * (abs(values[0]).bit_length() - 1) > 64
        result: int | bool = WEAK_LIMITS[1] if large else values[0] ** values[1]
    elif op == "shl":
        result = values[0] << values[1]
    else:
        result = INTEGER_MEANING[op](*values)
    if not WEAK_LIMITS[0] <= result < WEAK_LIMITS[1]:
        raise FoldError("T042", "the result does not fit 64 bits")
    return Weak(result)
