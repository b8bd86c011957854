"""transfer: tiles that add up in far memory, each into elements of its own, only have to copy there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stripe.affine import Affine
from stripe.analysis.deps import accesses, conflicts, relation
from stripe.ir import Aggregation, Block, Direction
from stripe.passes.transfer_units import Scope
from stripe.visit import buffers_used


def settled(scope: Scope, deeper: Sequence[bool], near: str) -> Block:
    """The block where tiles that aggregate in far memory, each into elements of its own, say `assign`."""
    block = scope.block
    statements = list(block.statements)
    for number, statement in enumerate(block.statements):
        if not deeper[number] or not isinstance(statement, Block):
            continue
        for view in statement.refinements:
            outer = next((r for r in block.refinements if r.name == view.source), None)
            if outer is None or view.direction is not Direction.OUT or not view.combines:
                continue
            if outer.combines or scope.places[outer.name] == near:
                continue
            changed = statements[number]
            assert isinstance(changed, Block)
            if _separate(block, statement, outer.name):
                statements[number] = _assigning(changed, outer.name)
    if all(new is old for new, old in zip(statements, block.statements, strict=True)):
        return block
    return replace(block, statements=tuple(statements))


def _separate(block: Block, statement: Block, buffer: str) -> bool:
    """Whether each element of a buffer is written by one point of a statement, and there by one
    of its statements: then nothing is combined between these."""
    view = next(r for r in statement.refinements if r.source == buffer)
    if [r.source for r in statement.refinements].count(buffer) > 1:
        return False
    one, other = (accesses(block, statement, p) for p in ("a.", "b."))
    writes = [(x, y) for x, y in zip(one, other, strict=True) if x.buffer == buffer and x.writes]
    own = [name for name, size in statement.ranges.items() if size > 1]
    for x, _ in writes:
        for _, y in writes:
            meeting = relation(x, y)
            for name in own:
                apart = Affine.index(f"a.{name}") - Affine.index(f"b.{name}")
                if any(not meeting.with_constraints([e - 1]).is_empty() for e in (apart, -apart)):
                    return False
    users = [s for s in statement.statements if any(name == view.name for name, _ in buffers_used(s))]
    for at, later in enumerate(users):
        for earlier in users[:at]:
            pairs = conflicts(accesses(statement, earlier, "a."), accesses(statement, later, "b."))
            if any(x.writes and y.writes and not relation(x, y).is_empty() for x, y in pairs):
                return False
    return True


def _assigning(block: Block, source: str) -> Block:
    """The block with its view of a buffer under `assign`."""
    return replace(
        block,
        refinements=tuple(
            replace(r, aggregation=Aggregation.ASSIGN) if r.source == source and r.combines else r
            for r in block.refinements
        ),
    )
