"""Fills in the element types that a text left out, one block at a time.

    $a = load(A)            the type of the buffer A
    $c = mul($a, $b)        the operands' type (bool for a comparison)
    $z = constant(0.5)      the type that its uses need: the other operands, or the stored buffer

What is tied together by an intrinsic or a store has one type; types flow forwards and backwards
along these ties until nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS
from stripe.ir import Cast, Constant, IndexValue, Intrinsic, Load, Scalar, Statement, Store


def fill_types(
    statements: Sequence[Statement], untyped: frozenset[int], buffers: Mapping[str, DType]
) -> tuple[Statement, ...]:
    """The statements of a block with the `dtype` of those at the positions `untyped` put right.

    `buffers` are the element types of the block's views. A type that nothing determines is a
    CompileError S008 at its statement.
    """
    if not untyped:
        return tuple(statements)
    types: dict[str, DType] = {}
    for position, statement in enumerate(statements):
        if isinstance(statement, Scalar):
            known = _own_type(statement, buffers) if position in untyped else statement.dtype
            if known is not None:
                types[statement.result] = known
    _propagate(statements, types, buffers)
    filled = list(statements)
    problems: list[Diagnostic] = []
    for position in sorted(untyped):
        statement = statements[position]
        assert isinstance(statement, Scalar)
        found = types.get(statement.result)
        if found is None and isinstance(statement, Constant) and isinstance(statement.value, bool):
            found = DType.BOOL
        if found is None:
            problems.append(_unknown(statement, buffers))
        else:
            filled[position] = replace(statement, dtype=found)
    if problems:
        raise CompileError(*problems)
    return tuple(filled)


def _own_type(statement: Scalar, buffers: Mapping[str, DType]) -> DType | None:
    """The type that a statement has whatever stands around it, if there is one."""
    match statement:
        case Load(buffer=buffer):
            return buffers.get(buffer)
        case Intrinsic(op=op) if op in INTRINSICS and INTRINSICS[op].gives_bool:
            return DType.BOOL
        case _:
            return None


def _propagate(
    statements: Sequence[Statement], types: dict[str, DType], buffers: Mapping[str, DType]
) -> None:
    """Spread the known types along the ties; alternate directions, so that chains take one sweep."""
    order = list(statements)
    before = -1
    while before != len(types):
        before = len(types)
        for statement in order:
            tied = _tied(statement)
            known = [types[name] for name in tied if name in types]
            if isinstance(statement, Store) and statement.buffer in buffers:
                known.append(buffers[statement.buffer])
            if known:
                for name in tied:
                    types.setdefault(name, known[0])
            if isinstance(statement, Intrinsic) and statement.op == "select" and statement.operands:
                types.setdefault(statement.operands[0], DType.BOOL)
        order.reverse()


def _tied(statement: Statement) -> tuple[str, ...]:
    """The scalars of a statement that have one type."""
    match statement:
        case Store(value=value):
            return (value,)
        case Intrinsic(op="select", operands=operands, result=result):
            return (*operands[1:], result)
        case Intrinsic(op=op, operands=operands, result=result) if op in INTRINSICS:
            return operands if INTRINSICS[op].gives_bool else (*operands, result)
        case _:
            return ()


def _unknown(statement: Scalar, buffers: Mapping[str, DType]) -> Diagnostic:
    message = f"the element type of ${statement.result} can't be inferred"
    notes: tuple[str, ...] = ("help: write the type at the end of the statement, such as f32",)
    match statement:
        case Load(buffer=buffer):
            message += f": the block has no buffer '{buffer}'"
            notes = did_you_mean(buffer, buffers)
        case Intrinsic(op=op) if op not in INTRINSICS:
            message += f": '{op}' is not an intrinsic"
            notes = did_you_mean(op, [*INTRINSICS, "load", "store", "constant", "index", "cast"])
        case Cast() | IndexValue():
            kind = "cast" if isinstance(statement, Cast) else "index"
            message = f"${statement.result} needs an element type: {kind} makes any type that is asked for"
        case _:
            pass
    return Diagnostic("S008", message, statement.span, notes)
