"""Who executes a statement: can that unit do it, and does it reach the memories that the statement touches?

    unit_of    the location that holds for a statement: its own, or that of the nearest block around it
    executes   why a unit can't execute the statements of a block, or a special
    computes   why it can't without a stencil
    reaches    why a unit does not reach a memory
    best_mover  which of several units that could moves data
    enough_units  what to add where none computes
    taken      why a block is left to the instruction that its tags name
    claimed    why a block stays as it is: an instruction takes it, or a unit
    unreached  why a buffer can't lie in a memory: a unit that is named for a statement does not reach it

The reasons are clauses for messages; an empty one means that it can. A unit of kind `transfer` copies, and
nothing else; any unit copies. What is more than a copy is in its `operations`, `types` and `specials`, or the
block is one use of a stencil of the unit, matched by structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hwconfigs.model import HwConfig, Stencil, Unit
from stripe.analysis.bounds import leaves
from stripe.analysis.stencils import matches, uses
from stripe.dtypes import DType
from stripe.ir import (
    Block,
    Cast,
    Direction,
    Intrinsic,
    Load,
    Location,
    Special,
    Statement,
    Store,
    combining,
)
from stripe.visit import View, buffers_used

_ALL = "*"


def unit_of(nest: Sequence[Block], special: Special | None = None) -> tuple[int, Location] | None:
    """Where the statements of the nest's last block (or a special among them) are executed: the level of the
    nest, from 0, over whose indexes the unit's number is written, and the location. None: none is named.
    """
    if special is not None and special.location is not None:
        return len(nest) - 1, special.location
    for level in reversed(range(len(nest))):
        location = nest[level].location
        if location is not None:
            return level, location
    return None


def taken(block: Block) -> str:
    """Why a block is left as the instruction takes it that `#group` or `#stencil` names."""
    tag = next((name for name in ("group", "stencil") if block.has_tag(name)), "")
    return f"an instruction takes it, says #{tag}" if tag else ""


def claimed(block: Block) -> str:
    """Why a block is left as an instruction takes it, or a unit."""
    bound = block.location is not None or block.inflight != 1
    return taken(block) or ("it is bound to a unit" if bound else "")


def reaches(unit: Unit, memory: str) -> str:
    """Why the unit can't load from and store to a memory."""
    if memory in unit.reaches:
        return ""
    others = ", ".join(unit.reaches) or "no memory"
    return f"{unit.name} does not reach {memory}: it reaches {others}"


def unreached(
    statements: Iterable[Statement], buffer: str, memory: str, hw: HwConfig, around: str = ""
) -> str:
    """Why a unit that is named for what touches a buffer does not reach a memory; `around` is the one named
    around the statements."""
    for statement in statements:
        if not any(name == buffer for name, _ in buffers_used(statement)):
            continue
        own = statement.location if isinstance(statement, Block | Special) else None
        name = own.unit if own is not None else around
        if not isinstance(statement, Block):
            unit = hw.unit(name)
            if unit is not None and (reason := reaches(unit, memory)):
                return reason
            continue
        for ref in statement.refinements:
            if ref.direction is Direction.NEW or ref.source != buffer:
                continue
            if reason := unreached(statement.statements, ref.name, memory, hw, name):
                return reason
    return ""


def executes(
    unit: Unit,
    what: Block | Special,
    hw: HwConfig,
    views: Mapping[str, View],
    memories: Mapping[str, str] | None = None,
) -> str:
    """Why the unit can't execute the statements of a block, those of blocks in it left aside, or a special.

    `views` are those of the block around it; `memories` names where the buffers of the block itself lie, as
    far as that is known: a stencil may want an operand in one memory.
    """
    if isinstance(what, Special):
        return _executes_special(unit, what, views)
    if is_copy(what):
        return ""
    refusal = computes(unit, what)
    if not refusal:
        return ""
    unfit: list[str] = []
    for stencil in hw.stencils:
        if stencil.unit == unit.name:
            reason = uses(stencil, what, hw, views) or _misplaced(stencil, what, hw, views, memories or {})
            if not reason:
                return ""
            unfit.append(f"it is no use of {stencil.name}: {reason}")
    return "; ".join([refusal, *unfit])


def _misplaced(
    stencil: Stencil, block: Block, hw: HwConfig, views: Mapping[str, View], memories: Mapping[str, str]
) -> str:
    """Why no way of being a use of the stencil has the operands in the memories that it wants."""
    reason = ""
    if not stencil.memory or not memories:
        return reason
    for leaf in leaves(block, views, every_level=True):
        for fit in matches(stencil, leaf).fits:
            wrong = [
                (operand, fit.buffers[operand], wanted)
                for operand, wanted in stencil.memory.items()
                if operand in fit.buffers and memories.get(fit.buffers[operand], wanted) != wanted
            ]
            if not wrong:
                return ""
            operand, buffer, wanted = wrong[0]
            reason = (
                reason
                or f"'{buffer}' is its operand '{operand}' and lies in {memories[buffer]}, not {wanted}"
            )
    return reason


def best_mover(units: Iterable[Unit]) -> Unit | None:
    """Of units that can move something, the one that should: one that only copies before one that computes,
    then the fastest, the widest, the first."""
    return min(
        units,
        key=lambda u: (u.kind != "transfer", -(u.bytes_per_cycle or 0.0), -u.vector_bytes),
        default=None,
    )


def is_copy(block: Block) -> bool:
    """Whether the block moves elements as they are: one load, one store under `assign` or to a new buffer."""
    match block.statements:
        case (Load(result=loaded), Store(buffer=buffer, value=value)):
            target = next((ref for ref in block.refinements if ref.name == buffer), None)
            return loaded == value and target is not None and not target.combines
    return False


def _executes_special(unit: Unit, special: Special, views: Mapping[str, View]) -> str:
    if unit.kind == "transfer":
        return f"{unit.name} is a transfer unit: it copies and executes no special"
    if not _holds(unit.specials, special.name):
        return f"{unit.name} does not execute '{special.name}': {_known('specials', unit.specials)}"
    return _lacks_type(unit, (views[o.buffer].dtype for o in special.operands if o.buffer in views))


def computes(unit: Unit, block: Block) -> str:
    """What the block's own statements do that the unit's operations and types lack, stencils aside."""
    if unit.kind == "transfer" and any(not isinstance(s, Block | Special) for s in block.statements):
        return f"{unit.name} is a transfer unit: it copies, one load and one store, and does nothing else"
    operations, used = _needed(block)
    for operation in operations:
        if not _holds(unit.operations, operation):
            return f"{unit.name} does not compute '{operation}': {_known('operations', unit.operations)}"
    return _lacks_type(unit, used)


def missing(unit: Unit, what: Block | Special, views: Mapping[str, View]) -> dict[str, list[str]] | None:
    """What a compute unit would need beside what it has to execute a block's own statements, or a special,
    by the key of its config; None for a transfer unit. `views` are those of the block around."""
    if unit.kind == "transfer":
        return None
    if isinstance(what, Special):
        operations, specials = list[str](), [what.name]
        used = [views[o.buffer].dtype for o in what.operands if o.buffer in views]
    else:
        (operations, used), specials = _needed(what), []
    lacks = {
        "operations": [name for name in operations if not _holds(unit.operations, name)],
        "specials": [name for name in specials if not _holds(unit.specials, name)],
        "types": [str(dtype) for dtype in used if not _holds(unit.types, str(dtype))],
    }
    return {key: list(dict.fromkeys(names)) for key, names in lacks.items() if names}


def enough_units(hw: HwConfig, near: str = "") -> str:
    """What to add to a target without units that compute; one that says no more does everything."""
    nearest = hw.nearest_explicit or hw.home  # without a nearer one, a unit works where the data lie
    name = near or (nearest.name if nearest is not None else "")
    reaches = f', "reaches": ["{name}"]' if name else ""
    return f'with {{"name": "CORE"{reaches}}} in \'units\' it has one, which can do everything'


def _needed(block: Block) -> tuple[list[str], list[DType]]:
    """The operations and the element types of a block's own statements."""
    types = {ref.name: ref.dtype for ref in block.refinements}
    combined = {r.name: r.aggregation for r in block.refinements if r.direction is not Direction.NEW}
    operations: list[str] = []
    used: list[DType] = []
    for statement in block.statements:
        match statement:
            case Block() | Special():
                continue
            case Intrinsic(op=operation, dtype=dtype):
                used += [] if dtype is DType.BOOL else [dtype]  # what a comparison gives is a mask
                operations.append(operation)
            case Store(buffer=buffer):
                used += [types[buffer]] if buffer in types else []
                aggregation = combined.get(buffer)
                operations += [str(aggregation)] if combining(aggregation) else []
            case Load(dtype=dtype) | Cast(dtype=dtype):
                used.append(dtype)
            case _:
                used.append(statement.dtype)
    return operations, used


def _lacks_type(unit: Unit, used: Iterable[DType]) -> str:
    for dtype in used:
        if not _holds(unit.types, str(dtype)):
            return f"{unit.name} does not take {dtype}: {_known('types', unit.types)}"
    return ""


def _holds(known: tuple[str, ...], name: str) -> bool:
    return _ALL in known or name in known


def _known(what: str, names: tuple[str, ...]) -> str:
    return f"its {what} are {', '.join(names)}" if names else f"it has no {what}"
