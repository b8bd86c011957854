"""The part of canonicalize that looks at values: scalars, and buffers that nobody reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from stripe import intrinsics
from stripe.dtypes import DType
from stripe.intrinsics import Array
from stripe.ir import (
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Scalar,
    Special,
    Statement,
    Store,
)
from stripe.visit import buffers_used, rename_operands, scalars_read

Key: TypeAlias = tuple[object, ...]


def simplify_values(block: Block) -> Block:
    """Fold constants, share equal scalars, drop unused ones. Children are left alone."""
    own = {r.name for r in block.refinements if r.direction is Direction.NEW}
    values = _Values(own)
    statements = [s for s in (values.visit(statement) for statement in block.statements) if s is not None]
    live: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(statements):
        if isinstance(statement, Scalar) and statement.result not in live:
            continue
        live.update(scalars_read(statement))
        kept.append(statement)
    return replace(block, statements=tuple(reversed(kept)))


class _Values:
    """What is known of the scalars of a block, statement after statement."""

    def __init__(self, own: set[str]) -> None:
        self.own = own  # buffers that nothing else can be a view of
        self.renamed: dict[str, str] = {}
        self.constants: dict[str, Constant] = {}
        self.definitions: dict[str, Intrinsic] = {}
        self.known: dict[Key, str] = {}
        self.written: dict[str, int] = {}  # how often a buffer was written, as far as one knows
        self.others_written = 0

    def visit(self, statement: Statement) -> Statement | None:
        """The statement as it should be, or None if an earlier scalar stands for it."""
        if not isinstance(statement, Block):  # a block has scalars of its own
            statement = rename_operands(statement, {}, self.renamed)
        if not isinstance(statement, Scalar):
            self._note_writes(statement)
            return statement
        statement = self._folded(statement)
        same = self._same_as(statement)
        if same is None:
            same = self.known.setdefault(self._key(statement), statement.result)
            if same == statement.result:
                if isinstance(statement, Constant):
                    self.constants[same] = statement
                elif isinstance(statement, Intrinsic):
                    self.definitions[same] = statement
                return statement
        self.renamed[statement.result] = same
        return None

    def _note_writes(self, statement: Statement) -> None:
        for name, direction in buffers_used(statement):
            if direction.writes and name in self.own:
                self.written[name] = self.written.get(name, 0) + 1
            elif direction.writes:
                self.others_written += 1  # views may overlap

    def _key(self, statement: Scalar) -> Key:
        match statement:
            case Load(buffer=name, dtype=dtype):
                writes = self.written.get(name, 0) if name in self.own else self.others_written
                return ("load", name, writes, dtype)
            case Constant(value=value, dtype=dtype):
                return ("constant", repr(value), dtype)
            case IndexValue(expr=expr, dtype=dtype):
                return ("index", expr, dtype)
            case Cast(operand=operand, dtype=dtype):
                return ("cast", operand, dtype)
            case Intrinsic(op=op, operands=operands, dtype=dtype):
                ordered = tuple(sorted(operands)) if intrinsics.commutes(op, dtype) else operands
                return ("intrinsic", op, ordered, dtype)

    def _folded(self, statement: Scalar) -> Scalar:
        """The statement as a constant, if all that it depends on is constant."""
        match statement:
            case IndexValue(expr=expr, dtype=dtype) if expr.is_constant:
                value = intrinsics.cast(np.asarray(expr.const, np.int64), dtype)
            case Cast(operand=operand, dtype=dtype) if operand in self.constants:
                value = intrinsics.cast(_array(self.constants[operand]), dtype)
            case Intrinsic(op=op, operands=operands) if all(o in self.constants for o in operands):
                value = intrinsics.evaluate(op, tuple(_array(self.constants[o]) for o in operands))
            case _:
                return statement
        return Constant(statement.result, _python(value, statement.dtype), statement.dtype, statement.span)

    def _same_as(self, statement: Scalar) -> str | None:
        """An earlier scalar that always has the value of this one, by a law of its operation."""
        if isinstance(statement, Intrinsic):
            return _by_law(statement, self.constants, self.definitions)
        return None


def _array(constant: Constant) -> Array:
    return np.asarray(constant.value).astype(constant.dtype.numpy)


def _python(value: Array, dtype: DType) -> int | float | bool:
    if dtype is DType.BOOL:
        return bool(value)
    return float(value) if dtype.is_float else int(value)


def _by_law(
    statement: Intrinsic, constants: Mapping[str, Constant], definitions: Mapping[str, Intrinsic]
) -> str | None:
    """The operand that an intrinsic always gives back, bit for bit, if there is one."""

    def is_value(name: str, value: float) -> bool:
        constant = constants.get(name)
        # repr tells 0.0 from -0.0
        return constant is not None and repr(float(constant.value)) == repr(value)

    zero = -0.0 if statement.dtype.is_float else 0.0  # x + -0.0 is x, also for x = -0.0
    match statement.op, statement.operands:
        case "add", (x, y):
            return x if is_value(y, zero) else y if is_value(x, zero) else None
        case "mul", (x, y):
            return x if is_value(y, 1.0) else y if is_value(x, 1.0) else None
        case "sub" | "shl" | "shr", (x, y):
            return x if is_value(y, 0.0) else None
        case "div", (x, y):
            return x if is_value(y, 1.0) else None
        case "floordiv", (x, y) if not statement.dtype.is_float:
            return x if is_value(y, 1.0) else None
        case "max" | "min" | "and" | "or", (x, y):
            return x if x == y else None
        case "select", (condition, x, y):
            chosen = constants.get(condition)
            return x if x == y or (chosen is not None and chosen.value) else y if chosen is not None else None
        case "neg" | "not" as op, (x,):
            inner = definitions.get(x)
            return inner.operands[0] if inner is not None and inner.op == op else None
    return None


# --------------------------------------------------------------------------- dead buffers


def without_dead_buffers(block: Block) -> Block:
    """Drop the writes to the block's own buffers that nothing reads, all the way down."""
    own = {ref.name for ref in block.refinements if ref.direction is Direction.NEW}
    dead = own - _read(block) if own else own
    return _without_writes(block, dead) if dead else block


def _read(block: Block) -> set[str]:
    """The buffers in scope that a statement of the block reads, or can't do without."""
    found: set[str] = set()
    for statement in block.statements:
        match statement:
            case Block():
                views = [r for r in statement.refinements if r.direction is not Direction.NEW]
                # What a point wrote itself it may read: then the buffer is of use.
                inside = set[str]() if all(r.direction.reads for r in views) else _read(statement)
                found.update(r.source for r in views if r.direction.reads or r.name in inside)
            case Special():
                # It can go only as a whole, with all that it writes.
                found.update(o.buffer for o in statement.operands)
            case Load(buffer=buffer):
                found.add(buffer)
            case _:
                pass
    return found


def _without_writes(block: Block, names: Collection[str]) -> Block:
    statements: list[Statement] = []
    for statement in block.statements:
        if isinstance(statement, Store) and statement.buffer in names:
            continue
        if isinstance(statement, Block):
            inside = {ref.name for ref in statement.refinements if ref.source in names}
            statement = _without_writes(statement, inside) if inside else statement
        statements.append(statement)
    return replace(block, statements=tuple(statements))
