"""localize: views of a box instead of the buffer, and the bytes of a memory that blocks hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from stripe.affine import Affine
from stripe.analysis.footprint import Box
from stripe.ir import Block, Direction, Refinement, Statement
from stripe.rewrite import drop_unused_passed
from stripe.rewrite_copies import hand_down


def rebased(statement: Statement, buffer: str, new_name: str, box: Box) -> Statement:
    """A child block whose views of `buffer` become views of the box, which is named `new_name`."""
    if not isinstance(statement, Block):
        return statement
    passed = {i.name: i.passed for i in statement.indexes if i.passed is not None}
    inner: dict[str, Affine] = {}  # the parent's indexes, in the child
    for name in sorted({name for expr in box.origin for name in expr.names}):
        statement, known = hand_down(statement, {name: Affine.index(name)}, name)
        inner |= known
    refinements = tuple(
        replace(
            r,
            source=new_name,
            access=tuple(
                _rebase(expr, start, passed, inner, step)
                for expr, start, step in zip(r.access, box.origin, box.apart, strict=True)
            ),
        )
        if r.direction is not Direction.NEW and r.source == buffer
        else r
        for r in statement.refinements
    )
    return drop_unused_passed(replace(statement, refinements=refinements))


def in_steps(child: Block, view: Refinement, box: Box) -> Box:
    """The box of a child's view, in the steps that it leaves between the elements that it touches. No step is
    more than 1 along a dimension of which one point of the child sees several elements."""
    moved = rebased(child, view.source, view.source, box)
    assert isinstance(moved, Block)
    access = moved.refinement(view.name).access
    steps = tuple(
        gcd(expr.const, *(count for _, count in expr.terms)) if size == 1 and whole > 1 else 1
        for expr, size, whole in zip(access, view.shape, box.shape, strict=True)
    )
    shape = tuple((size - 1) // step + 1 for size, step in zip(box.shape, steps, strict=True))
    return replace(box, shape=shape, steps=steps)


def _rebase(
    expr: Affine, origin: Affine, passed: Mapping[str, Affine], inner: Mapping[str, Affine], step: int
) -> Affine:
    """`expr`, over a child's indexes, less `origin`, over its parent's, which are `inner` in the child, in
    steps that divide it."""
    inside = Affine(0, tuple(term for term in expr.terms if term[0] not in passed))
    moved = (expr - inside).substitute(passed) - origin
    found = inside + moved.const if moved.is_constant else expr - origin.substitute(inner)
    counted = found.divided(step)
    assert counted is not None
    return counted


def held_bytes(block: Block, memory: str) -> int:
    """Bytes of the memory that the block's own buffers take, at all its points in flight."""
    own = [r for r in block.refinements if r.direction is Direction.NEW and r.location is not None]
    return block.inflight * sum(r.bytes for r in own if r.location and r.location.unit == memory)


def peak_bytes(block: Block, memory: str) -> int:
    """Bytes of the memory that the block and what is below it take at a time."""
    return held_bytes(block, memory) + block.inflight * max(
        (peak_bytes(c, memory) for c in block.children), default=0
    )
