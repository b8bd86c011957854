"""The functions and operators of Tile: names, numbers of arguments, and rules of types.

A rule takes an intrinsic and the common type of the operands, and gives the intrinsic and the
type to compute in: `("", t)` where the value stays as it is, None where the operation has no
meaning for the type. The rules are NumPy's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS
from tile_frontend.promotion import real_type

Rule = Callable[[str, DType], tuple[str, DType] | None]

_LOGICAL = {"add": "or", "mul": "and"}


def _arithmetic(op: str, dtype: DType) -> tuple[str, DType] | None:
    if dtype is not DType.BOOL:
        return op, dtype
    return (_LOGICAL[op], dtype) if op in _LOGICAL else None


def _integral(op: str, dtype: DType) -> tuple[str, DType] | None:
    return op, DType.I8 if dtype is DType.BOOL else dtype


def _division(op: str, dtype: DType) -> tuple[str, DType] | None:
    return op, dtype if dtype.is_float else DType.F64


def _any(op: str, dtype: DType) -> tuple[str, DType] | None:
    return op, dtype


def _bits(op: str, dtype: DType) -> tuple[str, DType] | None:
    return None if dtype.is_float else (op, dtype)


def _shift(op: str, dtype: DType) -> tuple[str, DType] | None:
    return None if dtype.is_float else _integral(op, dtype)


def _real(op: str, dtype: DType) -> tuple[str, DType] | None:
    return op, real_type(dtype)


def _rounding(op: str, dtype: DType) -> tuple[str, DType] | None:
    return op if dtype.is_float else "", dtype


def _absolute(op: str, dtype: DType) -> tuple[str, DType] | None:
    return op if dtype.is_signed and dtype is not DType.BOOL else "", dtype


@dataclass(frozen=True, slots=True)
class Operation:
    """A scalar function: the intrinsic that computes it and its rule of types."""

    intrinsic: str
    rule: Rule

    @property
    def arity(self) -> int:
        return INTRINSICS[self.intrinsic].arity


OPERATORS: dict[str, Operation] = {
    "+": Operation("add", _arithmetic),
    "-": Operation("sub", _arithmetic),
    "*": Operation("mul", _arithmetic),
    "/": Operation("div", _division),
    "<<": Operation("shl", _shift),
    ">>": Operation("shr", _shift),
    "&": Operation("and", _bits),
    "|": Operation("or", _bits),
    "^": Operation("xor", _bits),
    "==": Operation("eq", _any),
    "!=": Operation("ne", _any),
    "<": Operation("lt", _any),
    "<=": Operation("le", _any),
    ">": Operation("gt", _any),
    ">=": Operation("ge", _any),
}
PREFIXES: dict[str, Operation] = {"-": Operation("neg", _arithmetic), "~": Operation("not", _bits)}

_TRIGONOMETRIC = ("sin", "cos", "tan", "asin", "acos", "atan")
_HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
_REAL = ("sqrt", "exp", "log", "erf", *_TRIGONOMETRIC, *_HYPERBOLIC)

FUNCTIONS: dict[str, Operation] = {
    "add": OPERATORS["+"],
    "sub": OPERATORS["-"],
    "mul": OPERATORS["*"],
    "div": OPERATORS["/"],
    "floordiv": Operation("floordiv", _integral),
    "mod": Operation("mod", _integral),
    "pow": Operation("pow", _integral),
    "neg": PREFIXES["-"],
    "max": Operation("max", _any),
    "min": Operation("min", _any),
    "abs": Operation("abs", _absolute),
    **{name: OPERATORS[mark] for name, mark in (("eq", "=="), ("neq", "!="), ("lt", "<"))},
    **{name: OPERATORS[mark] for name, mark in (("lte", "<="), ("gt", ">"), ("gte", ">="))},
    **{f"cmp_{OPERATORS[mark].intrinsic}": OPERATORS[mark] for mark in ("==", "!=", "<", "<=", ">", ">=")},
    "bit_and": OPERATORS["&"],
    "bit_or": OPERATORS["|"],
    "bit_xor": OPERATORS["^"],
    "bit_not": PREFIXES["~"],
    "bit_left": OPERATORS["<<"],
    "bit_right": OPERATORS[">>"],
    **{name: Operation(name, _rounding) for name in ("ceil", "floor", "round", "trunc")},
    **{name: Operation(name, _real) for name in _REAL},
}

SELECT = ("cond", "select")  # cond(c, t, f) is c ? t : f
IDENTITY = ("ident", "assign")

# as_int(x, 8) and the like: the types by number of bits, and the number where none is given
CASTS: dict[str, tuple[dict[int, DType], int]] = {
    "as_float": ({16: DType.F16, 32: DType.F32, 64: DType.F64}, 32),
    "as_bfloat": ({16: DType.BF16}, 16),
    "as_int": ({8: DType.I8, 16: DType.I16, 32: DType.I32, 64: DType.I64}, 32),
    "as_uint": ({8: DType.U8, 16: DType.U16, 32: DType.U32, 64: DType.U64}, 32),
    "as_bool": ({1: DType.BOOL}, 1),
}

COMPOSITES = ("relu", "sigmoid", "recip")  # written with the above, in elementwise.py

MANY = 1 << 16  # a function takes any number of arguments

# Functions of whole tensors: least and greatest number of arguments, and how many of the first
# are tensors; the others are integers that are known at compile time.
SPECIALS: dict[str, tuple[int, int, int]] = {
    "gather": (2, 3, 2),
    "scatter": (3, 4, 3),
    "reshape": (1, MANY, 1),
    "shape": (1, 1, 1),
    "index": (2, 2, 1),
}


def _arguments() -> dict[str, tuple[int, int, int]]:
    table = {name: (op.arity, op.arity, op.arity) for name, op in FUNCTIONS.items()}
    table |= dict.fromkeys(SELECT, (3, 3, 3))
    table |= dict.fromkeys((*IDENTITY, *COMPOSITES), (1, 1, 1))
    table |= dict.fromkeys(CASTS, (1, 2, 1))
    return table | SPECIALS


# Every function that a program may call: least, greatest number of arguments, leading tensors.
ARGUMENTS: dict[str, tuple[int, int, int]] = _arguments()

# What the intrinsics mean on Python's integers, for folding; each is exact.
INTEGER_MEANING: dict[str, Callable[..., int | bool]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "abs": abs,
    "max": max,
    "min": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
