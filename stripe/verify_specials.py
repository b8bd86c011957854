"""Verifier: what the operands of a special must look like (stripe.specials says what they mean)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stripe.diag import did_you_mean
from stripe.dtypes import DType
from stripe.ir import Aggregation, Direction, Operand, Refinement, Special
from stripe.specials import SPECIALS


@dataclass(frozen=True, slots=True)
class Fault:
    code: str
    message: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """What an operand is: an element type and a shape."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


def special_faults(special: Special, refs: Mapping[str, Refinement]) -> list[Fault]:
    """What is wrong with a special whose operands are buffers of `refs` (those unknown are not
    reported here): its name, directions and parameters (V033), its types and shapes (V034)."""
    info = SPECIALS.get(special.name)
    if info is None:
        return [Fault("V033", f"unknown special '{special.name}'", did_you_mean(special.name, SPECIALS))]
    if tuple(o.direction for o in special.operands) != info.operands:
        wanted = ", ".join(info.operands)
        given = ", ".join(o.direction for o in special.operands)
        return [Fault("V033", f"its operands are ({wanted}), not ({given})")]
    faults = _parameter_faults(special, info.params)
    for operand in special.operands:
        faults += _operand_faults(operand, refs.get(operand.buffer))
    parts = [_part(operand, refs) for operand in special.operands]
    if faults or None in parts:
        return faults
    known = [part for part in parts if part is not None]
    return _RULES[special.name](special, known)


def _parameter_faults(special: Special, wanted: tuple[str, ...]) -> list[Fault]:
    given = [name for name, _ in special.params]
    faults = [
        Fault("V033", f"unknown parameter '{name}'", did_you_mean(name, wanted))
        for name in given
        if name not in wanted
    ]
    faults += [Fault("V033", f"the parameter '{name}' is missing") for name in wanted if name not in given]
    faults += [
        Fault("V033", f"the parameter '{name}' is given twice") for name in wanted if given.count(name) > 1
    ]
    return faults


def _operand_faults(operand: Operand, ref: Refinement | None) -> list[Fault]:
    where = f"operand '{operand.buffer}'"
    faults: list[Fault] = []
    if operand.direction.writes != (operand.aggregation is not None):
        what = "needs an aggregation" if operand.direction.writes else "takes no aggregation"
        faults.append(Fault("V015", f"{where}: `{operand.direction}` {what}"))
    if (operand.access is None) != (operand.shape is None):
        faults.append(Fault("V010", f"{where}: a part has an access and a shape"))
    elif operand.access is not None and operand.shape is not None and ref is not None:
        ranks = {len(operand.access), len(operand.shape), len(ref.shape)}
        if len(ranks) != 1:
            faults.append(Fault("V010", f"{where}: '{ref.name}' has {len(ref.shape)} dimensions"))
        if any(size < 0 for size in operand.shape):
            faults.append(Fault("V011", f"{where}: its shape has a negative size"))
    return faults


def _part(operand: Operand, refs: Mapping[str, Refinement]) -> _Part | None:
    ref = refs.get(operand.buffer)
    if ref is None or operand.direction is Direction.NEW:
        return None
    return _Part(ref.name, ref.dtype, ref.shape if operand.shape is None else operand.shape)


def _axis(special: Special, whole: _Part) -> int | Fault:
    """The parameter `axis`, a dimension of the operand that is indexed."""
    axis = dict(special.params)["axis"]
    if not isinstance(axis, int) or not 0 <= axis < len(whole.shape):
        return Fault("V034", f"axis {axis} is no dimension of '{whole.name}', which has {len(whole.shape)}")
    return axis


def _indexing_faults(special: Special, whole: _Part, index: _Part, values: _Part) -> list[Fault]:
    """`values[..., i..., ...]` goes with `whole[..., index[i...], ...]` along the axis."""
    axis = _axis(special, whole)
    if isinstance(axis, Fault):
        return [axis]
    faults: list[Fault] = []
    if not index.dtype.is_integer:
        faults.append(Fault("V034", f"the index '{index.name}' holds {index.dtype}, not integers"))
    if values.dtype is not whole.dtype:
        message = f"'{values.name}' holds {values.dtype}, but '{whole.name}' holds {whole.dtype}"
        faults.append(Fault("V034", message))
    wanted = (*whole.shape[:axis], *index.shape, *whole.shape[axis + 1 :])
    if values.shape != wanted:
        faults.append(Fault("V034", f"the shape of '{values.name}' is {values.shape}; it must be {wanted}"))
    return faults


def _gather(special: Special, parts: list[_Part]) -> list[Fault]:
    data, index, result = parts
    faults = _indexing_faults(special, data, index, result)
    axis = dict(special.params)["axis"]
    if not faults and isinstance(axis, int) and data.shape[axis] == 0 and 0 not in result.shape:
        faults.append(
            Fault("V034", f"it takes values from dimension {axis} of '{data.name}', which is empty")
        )
    return faults


def _scatter(special: Special, parts: list[_Part]) -> list[Fault]:
    updates, index, base = parts
    faults = _indexing_faults(special, base, index, updates)
    op = special.operands[2].aggregation
    if base.dtype is DType.BOOL and op in (Aggregation.ADD, Aggregation.MUL):
        faults.append(Fault("V015", f"`{op}` does not aggregate bool"))
    return faults


_RULES = {"gather": _gather, "scatter": _scatter}
