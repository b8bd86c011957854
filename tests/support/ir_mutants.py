"""Small changes of a program that mostly change what it computes: for tests of what must notice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from stripe.affine import Affine
from stripe.ir import (
    Aggregation,
    Block,
    Constant,
    Index,
    IndexValue,
    Intrinsic,
    Load,
    Program,
    Refinement,
    Statement,
    Store,
)
from stripe.visit import map_program, walk

Edit = Callable[[Block], Block]


def mutants(program: Program, rng: random.Random, count: int) -> Iterator[Program]:
    """Programs that differ from `program` in one place of one block each."""
    blocks = [b for root in (program.load, program.root) if root is not None for _, b in walk(root)]
    for _ in range(count):
        target = rng.choice(blocks)
        edits = list(_edits(target, rng))
        if edits:
            edit = rng.choice(edits)

            def edited(block: Block, target: Block = target, edit: Edit = edit) -> Block | None:
                return edit(block) if block is target else None

            yield map_program(program, edited)


def _edits(block: Block, rng: random.Random) -> Iterator[Edit]:
    """One random edit for each thing in the block that can be edited."""
    for at, constraint in enumerate(block.constraints):
        made = replace(constraint, expr=_moved(constraint.expr, rng))
        yield _put("constraints", at, made)
        yield _put("constraints", at)
    for at, index in enumerate(block.indexes):
        yield _put("indexes", at, _index(index, rng))
    for at, ref in enumerate(block.refinements):
        if (ref.access and ref.source != ref.name) or ref.aggregation is not None:
            yield _put("refinements", at, _view(ref, rng))
    for at, statement in enumerate(block.statements):
        other = _statement(block, statement, rng)
        yield _put("statements", at) if other is None else _put("statements", at, other)


def _put(field: str, at: int, *new: object) -> Edit:
    """Something else in place of one item of a field; nothing: the item goes."""

    def edit(block: Block) -> Block:
        items = getattr(block, field)
        changes: dict[str, Any] = {field: (*items[:at], *new, *items[at + 1 :])}
        return replace(block, **changes)

    return edit


def _moved(expr: Affine, rng: random.Random) -> Affine:
    if expr.terms and rng.random() < 0.5:
        return expr + Affine.index(rng.choice(expr.names), rng.choice((-1, 1)))
    return expr + rng.choice((-1, 1))


def _index(index: Index, rng: random.Random) -> Index:
    if index.passed is not None:
        return replace(index, passed=_moved(index.passed, rng))
    return replace(index, range=max(0, index.range + rng.choice((-1, 1))))


def _view(ref: Refinement, rng: random.Random) -> Refinement:
    if ref.aggregation is not None and rng.random() < 0.3:
        return replace(ref, aggregation=rng.choice(tuple(Aggregation)))
    if not ref.access:
        return ref
    at = rng.randrange(len(ref.access))
    return replace(ref, access=(*ref.access[:at], _moved(ref.access[at], rng), *ref.access[at + 1 :]))


def _statement(block: Block, statement: Statement, rng: random.Random) -> Statement | None:
    match statement:
        case Constant(value=value) if not isinstance(value, bool):
            return replace(statement, value=value + 1)
        case IndexValue(expr=expr):
            return replace(statement, expr=_moved(expr, rng))
        case Intrinsic(op=op, operands=operands):
            swaps = {"add": "sub", "sub": "add", "mul": "add", "max": "min", "min": "max", "lt": "le"}
            if op in swaps and rng.random() < 0.6:
                return replace(statement, op=swaps[op])
            return replace(statement, operands=tuple(reversed(operands)))
        case Load(buffer=buffer):
            dtype = block.refinement(buffer).dtype
            others = [r.name for r in block.refinements if r.name != buffer and r.dtype is dtype]
            return replace(statement, buffer=rng.choice(others)) if others else statement
        case Store(value=value):
            scalars = [s.result for s in block.statements if isinstance(s, Intrinsic | Load)]
            return replace(statement, value=rng.choice(scalars)) if scalars else statement
    return None
