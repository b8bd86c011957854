"""Values that only the lanes decide, computed once for all rows.

    block r [n:1000, c:144] (in X[n, c] in V[c] out R[n, c]:assign) #vector=c {      R = X / sqrt(V)

The root of V[c] is the same in each row, but no register keeps it from one row to the next. So a block of
its own computes it ahead, for all c, and rows load it:

    block r.ahead [c:144] (in V[c] out T[c]:assign) #vector=c {                      T = sqrt(V)
    block r [n:1000, c:144] (in X[n, c] in T[c] out R[n, c]:assign) #vector=c {      R = X / T

Only what takes longer than to load it is worth that. What the loops around the lanes decide needs nothing:
LLVM computes it in front of the lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from codegen_cpu.elementary import NAMES as ELEMENTARY
from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Refinement,
    Statement,
    Store,
)
from stripe.names import Names

_ROWS = 4  # from so many on, computing once and loading is less work
_SLOW = frozenset({"div", "sqrt", "floordiv", "mod"}) | ELEMENTARY


@dataclass(frozen=True, slots=True)
class Columns:
    """The blocks that compute values ahead, each with the buffer that it fills, and what is left to do."""

    ahead: tuple[tuple[Block, Refinement], ...]
    rest: Block


def columns(block: Block, untouched: Iterable[str]) -> Columns | None:
    """What of a leaf block is computed ahead, None if nothing is. `untouched` are the views that it reads of
    buffers which it does not write."""
    lane = next(iter(block.tag_values("vector")), "")
    loops = [name for name, size in block.ranges.items() if size > 1]
    special = any(block.has_tag(tag) for tag in ("across", "unroll", "group"))
    if not loops or loops[-1] != lane or block.constraints or special:
        return None
    if prod(block.ranges[name] for name in loops[:-1]) < _ROWS:
        return None
    of_columns = _of_columns(block, lane, frozenset(untouched))
    wanted = _used_in_rows(block, of_columns)
    scalars = [s for s in block.statements if not isinstance(s, Store)]
    names = Names(name for ref in block.refinements for name in (ref.name, ref.source))
    ahead: list[tuple[Block, Refinement]] = []
    made: list[Refinement] = []
    statements = list(block.statements)
    for number, value in enumerate(wanted):
        needed = _needed(scalars, (value,))
        if not any(isinstance(s, Intrinsic) and s.op in _SLOW for s in needed):
            continue
        place, dtype = next(
            (at, s.dtype)
            for at, s in enumerate(statements)
            if isinstance(s, Intrinsic | Cast) and s.result == value
        )
        if dtype is DType.BOOL:
            continue
        name = names.fresh(f"{block.name}.column{number}")
        size, at = block.ranges[lane], (Affine.index(lane),)
        buffer = Refinement(Direction.NEW, name, (size,), dtype, strides=(1,))
        view = Refinement(Direction.IN, name, (1,), dtype, name, at)
        out = replace(view, direction=Direction.OUT, aggregation=Aggregation.ASSIGN)
        loaded = {s.buffer for s in needed if isinstance(s, Load)}
        body = Block(
            name,
            tuple(i for i in block.indexes if block.ranges.get(i.name, 1) == 1 or i.name == lane),
            refinements=(*(r for r in block.refinements if r.name in loaded), out),
            statements=(*needed, Store(name, value)),
            tags=tuple(tag for tag in block.tags if tag.name == "vector"),
        )
        ahead.append((body, buffer))
        made.append(view)
        statements[place] = Load(value, name, dtype)
    if not ahead:
        return None
    rest = replace(block, refinements=(*block.refinements, *made), statements=tuple(_needed(statements)))
    used = {s.buffer for s in rest.statements if isinstance(s, Load | Store)}
    kept = tuple(ref for ref in rest.refinements if ref.name in used)
    return Columns(tuple(ahead), replace(rest, refinements=kept))


def _of_columns(block: Block, lane: str, untouched: frozenset[str]) -> dict[str, bool]:
    """The values that no loop around the lanes has a part in; whether the lanes do."""
    own = {name for name, size in block.ranges.items() if size > 1}
    found: dict[str, bool] = {}
    for statement in block.statements:
        match statement:
            case Load(result=result, buffer=buffer):
                names = own & {name for expr in block.refinement(buffer).access for name in expr.names}
                if buffer in untouched and names <= {lane}:
                    found[result] = bool(names)
            case Constant(result=result):
                found[result] = False
            case Intrinsic(result=result, operands=operands):
                if all(name in found for name in operands):
                    found[result] = any(found[name] for name in operands)
            case Cast(result=result, operand=operand):
                if operand in found:
                    found[result] = found[operand]
            case _:
                pass
    return found


def _used_in_rows(block: Block, of_columns: dict[str, bool]) -> list[str]:
    """Of these values those that the lanes have a part in and others use, or are stored."""
    used: dict[str, None] = {}
    for statement in block.statements:
        match statement:
            case Intrinsic(result=result, operands=operands) if result not in of_columns:
                used.update(dict.fromkeys(operands))
            case Cast(result=result, operand=operand) if result not in of_columns:
                used[operand] = None
            case Store(value=value):
                used[value] = None
            case _:
                pass
    return [name for name in used if of_columns.get(name, False)]


def _needed(statements: Iterable[Statement], values: Iterable[str] = ()) -> list[Statement]:
    """The statements that some values, and all stores, come from, in order."""
    wanted, found = set(values), list[Statement]()
    for statement in reversed([*statements]):
        match statement:
            case Store(value=value):
                wanted.add(value)
            case Intrinsic(result=result, operands=operands) if result in wanted:
                wanted.update(operands)
            case Cast(result=result, operand=operand) if result in wanted:
                wanted.add(operand)
            case Load(result=result) | Constant(result=result) | IndexValue(result=result) if (
                result in wanted
            ):
                pass
            case _:
                continue
        found.append(statement)
    return found[::-1]
