"""Any text that the IR can hold: random programs dressed with what need not make sense together.

The results are well-formed, not valid: for tests of the text form alone.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Constant,
    Direction,
    IndexValue,
    Location,
    Operand,
    Program,
    Refinement,
    Special,
    Statement,
    Tag,
)
from stripe.visit import map_program

_NAMES = ("x", "yo", "z'", "_", "block", "in", "new", "load", "inf", "spread", "f32", "special", "slot")
_UNITS = ("DRAM", "L1", "in", "main memory", 'a "b"', "ünit", "\u2028", "")
_VALUES = ("", "x", "12", "012", "-1", "a b", "0.5", "tab\t", 'quote"', "\\", "\ud800", "//")
_FLOATS = (0.0, -0.0, 0.1, -2.5, 1e300, 5e-324, 2.0**-149, 1 / 3, math.inf, -math.inf, math.nan, 1e16, 1e22)
_INTEGERS = (0, 1, -1, 127, -128, 2**63 - 1, -(2**63), 2**64 - 1)


def decorate(program: Program, rng: random.Random) -> Program:
    """`program` with locations, tags, attributes, constants and specials strewn over it."""
    return map_program(program, lambda block: _block(block, rng))


def _block(block: Block, rng: random.Random) -> Block:
    statements = list(block.statements)
    for _ in range(rng.randint(0, 2)):
        statements.insert(rng.randint(0, len(statements)), _statement(rng))
    return replace(
        block,
        name=rng.choice((block.name, *_NAMES)),
        refinements=tuple(_refinement(ref, rng) for ref in block.refinements),
        statements=tuple(statements),
        location=_location(rng),
        inflight=rng.choice((1, 1, 2, 7)),
        tags=block.tags + _tags(rng),
    )


def _refinement(ref: Refinement, rng: random.Random) -> Refinement:
    const = ref.const or (ref.direction is Direction.IN and rng.random() < 0.1)
    return replace(ref, location=_location(rng), tags=_tags(rng), const=const)


def _affine(rng: random.Random) -> Affine:
    terms = {rng.choice(_NAMES): rng.choice((1, -1, 2, -3, 2**40)) for _ in range(rng.randint(0, 3))}
    return Affine.of(terms, rng.choice((0, 0, 1, -1, 64, -(2**62))))


def _access(rng: random.Random) -> tuple[Affine, ...]:
    return tuple(_affine(rng) for _ in range(rng.randint(0, 3)))


def _location(rng: random.Random) -> Location | None:
    if rng.random() < 0.6:
        return None
    bank = _affine(rng) if rng.random() < 0.5 else None
    address = _affine(rng) if rng.random() < 0.5 else None
    spread = rng.randint(0, 2) if rng.random() < 0.5 else None
    return Location(rng.choice(_UNITS), bank, address, spread)


def _tags(rng: random.Random) -> tuple[Tag, ...]:
    return tuple(Tag(rng.choice(_NAMES), rng.choice(_VALUES)) for _ in range(rng.choice((0, 0, 1, 2))))


def _statement(rng: random.Random) -> Statement:
    name = rng.choice(_NAMES)
    match rng.randint(0, 3):
        case 0:
            return Constant(name, rng.choice(_FLOATS), rng.choice((DType.F32, DType.F64, DType.BF16)))
        case 1:
            return Constant(name, rng.choice((*_INTEGERS, True, False)), rng.choice(tuple(DType)))
        case 2:
            return IndexValue(name, _affine(rng), DType.I64)
        case _:
            return Special(
                name, tuple(_operand(rng) for _ in range(rng.randint(0, 3))), _params(rng), _location(rng)
            )


def _operand(rng: random.Random) -> Operand:
    direction = rng.choice((Direction.IN, Direction.OUT, Direction.INOUT))
    aggregation = rng.choice((None, *Aggregation)) if direction.writes else None
    access = _access(rng) if rng.random() < 0.5 else None
    shape = tuple(rng.randint(0, 9) for _ in range(rng.randint(0, 3))) if rng.random() < 0.5 else None
    return Operand(direction, rng.choice(_NAMES), aggregation, access, shape)


def _params(rng: random.Random) -> tuple[tuple[str, int | float | str], ...]:
    values = (*_INTEGERS, *_FLOATS[:10], *_VALUES)
    return tuple((rng.choice(_NAMES), rng.choice(values)) for _ in range(rng.randint(0, 2)))
