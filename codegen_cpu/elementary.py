"""Elementary functions on whole vectors: polynomials, no gathers, no calls.

exp, log, sin, cos, tanh and erf have code of their own for f32 and for f64. Of all the others f32 goes
through f64; of pow too, where nothing is looked up in registers. docs/numerics.md has their errors, as
the tests measure them: at most 2 units in the last place in f32. They hold over the whole range, with
NaN, infinities, zeros of either sign and subnormals, with and without fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from codegen_cpu import elementary_circular as circular
from codegen_cpu import elementary_exp as exponential
from codegen_cpu import elementary_log as logarithm
from codegen_cpu.elementary_ops import Machine, Ops, in_double
from codegen_cpu.elementary_pieces import in_pieces
from codegen_cpu.ll import Function, Value

_Body = Callable[..., Value]

_EITHER: dict[str, _Body] = {
    "exp": exponential.exp,
    "log": logarithm.log,
    "tanh": exponential.tanh,
    "erf": exponential.erf,
    "pow": exponential.power,
}
_DOUBLE: dict[str, _Body] = {
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "asin": circular.asin,
    "acos": circular.acos,
    "atan": circular.atan,
    "asinh": logarithm.asinh,
    "acosh": logarithm.acosh,
    "atanh": logarithm.atanh,
    "sin": partial(circular.circular_f64, quarter=False),
    "cos": partial(circular.circular_f64, quarter=True),
    "tan": circular.tan,
}
_SINGLE: dict[str, _Body] = {
    "sin": partial(circular.circular_f32, quarter=False),
    "cos": partial(circular.circular_f32, quarter=True),
}
# f(-x) = -f(x): their signs are set in f32, since LLVM makes a call of a sign of f64 for f16.
_ODD = frozenset({"asin", "atan", "asinh", "atanh", "sinh", "tan"})

NAMES = frozenset(_EITHER) | frozenset(_DOUBLE)


def elementary(f: Function, name: str, operands: Sequence[Value], machine: Machine) -> Value:
    """The function `name` of operands in registers, all f32 or all f64."""
    o = Ops(f, operands[0].type, machine)
    pieces = in_pieces(o, name, operands)
    if pieces is not None:
        return pieces
    own = _EITHER.get(name) or (_DOUBLE if o.double else _SINGLE).get(name)
    if own is not None:
        return own(o, *operands)
    sizes = [o.abs(x) for x in operands] if name in _ODD else operands
    result = in_double(o, sizes, lambda wide, values: _DOUBLE[name](wide, *values))
    return o.flip(result, o.sign(operands[0])) if name in _ODD else result
