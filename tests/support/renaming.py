"""Programs with other names: random ones, or those that position alone decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from stripe.ir import Block, Direction, Program, Scalar
from stripe.rewrite import rename_indexes
from stripe.visit import map_program, rename_operands

Fresh = Callable[[str], str]  # a new name; the argument says for what kind of thing


def scrambled(program: Program, rng: random.Random) -> Program:
    """The program under random names, which sort in a random order."""
    taken = 0

    def fresh(kind: str) -> str:
        nonlocal taken
        taken += 1
        return f"{rng.choice('abcdefghijklmnopqrstuvwxyzABCXYZ')}{rng.randrange(100)}_{taken}"

    return _renamed(program, fresh)


def by_position(program: Program) -> Program:
    """The program under names that its structure alone decides; constraints and tags, which have no
    order, in that of their text."""
    counts: dict[str, int] = {}

    def fresh(kind: str) -> str:
        counts[kind] = counts.get(kind, 0) + 1
        return f"{kind}{counts[kind]}"

    return map_program(_renamed(program, fresh), _sorted)


def _sorted(block: Block) -> Block:
    constraints = tuple(sorted(block.constraints, key=lambda c: str(c.expr)))
    return replace(block, constraints=constraints, tags=tuple(sorted(block.tags, key=str)))


def _renamed(program: Program, fresh: Fresh) -> Program:
    tensors = {ref.name: fresh("tensor") for ref in program.root.refinements}
    root = _block(program.root, fresh, tensors)
    return Program(root, program.load and _block(program.load, fresh, tensors))


def _block(block: Block, fresh: Fresh, tensors: dict[str, str] | None = None) -> Block:
    """`tensors`: the new names of the root's refinements, which its sources follow."""
    block = rename_indexes(block, {index.name: fresh("index") for index in block.indexes})
    known = tensors or {}
    buffers = {ref.name: known.get(ref.name) or fresh("buffer") for ref in block.refinements}
    refinements = tuple(
        replace(
            ref,
            name=buffers[ref.name],
            source=buffers[ref.name] if tensors and ref.direction is not Direction.NEW else ref.source,
        )
        for ref in block.refinements
    )
    scalars = {s.result: fresh("scalar") for s in block.statements if isinstance(s, Scalar)}
    statements = tuple(rename_operands(s, buffers, scalars) for s in block.statements)
    return replace(
        block,
        name=fresh("block"),
        refinements=refinements,
        statements=tuple(_block(s, fresh) if isinstance(s, Block) else s for s in statements),
    )
