"""The points of a block in their simplest form: indexes, ranges, constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from stripe.affine import Affine, box_of
from stripe.ir import Aggregation, Block, Constraint, Special, Statement, Store
from stripe.poly import PolyhedralLimit, nest_domain
from stripe.rewrite import drop_unused_passed, fold_unit_indexes, inline_indexes, used_indexes
from stripe.visit import substitute_indexes

Interval = tuple[int, int]


def simplify_nest(block: Block, above: Sequence[Block]) -> Block | None:
    """`simplify_points` for a block and all below it, from the outside in; None if nothing is left.

    Blocks without a point go, and with them those that only held such blocks.
    """
    simpler = simplify_points(block, above)
    if simpler is None:
        return None
    block = simpler
    here = (*above, block)
    kept: list[Statement] = []
    for statement in block.statements:
        left = simplify_nest(statement, here) if isinstance(statement, Block) else statement
        if left is not None:
            kept.append(left)
    if not any(isinstance(s, Block | Special | Store) for s in kept):
        return None
    return drop_unused_passed(replace(block, statements=tuple(kept)))


def simplify_points(block: Block, above: Sequence[Block]) -> Block | None:
    """The block with simpler indexes and constraints; None if it has no point.

    `above` are the blocks that lead to it, the root first. Vectors that are written out stay where they are:
    a constraint says which lanes are off at their beginning.
    """
    if any(size <= 0 for size in block.ranges.values()):
        return None
    block = _without_repetition(_passed_once(fold_unit_indexes(block)))
    constraints = _normal(block.constraints)
    if constraints is None:
        return None
    block = replace(block, constraints=constraints)
    if not constraints:
        return block
    intervals = _intervals((*above, block))
    open_questions = tuple(c for c in constraints if c.expr.bounds(intervals)[0] < 0)
    if any(c.expr.bounds(intervals)[1] < 0 for c in open_questions):
        return None
    block = replace(block, constraints=open_questions)
    if not open_questions:
        return block
    try:
        tightened = _tightened(block, above)
        return None if tightened is None else _without_implied(tightened, above)
    except PolyhedralLimit:
        return block  # too complicated to simplify: it stays as it was written


def _passed_once(block: Block) -> Block:
    """Fold passed constants; of two passed indexes with one value keep the first."""
    first: dict[Affine, str] = {}
    values: dict[str, Affine] = {}
    for index in block.indexes:
        if index.passed is None:
            continue
        if index.passed.is_constant:
            values[index.name] = index.passed
        elif first.setdefault(index.passed, index.name) != index.name:
            values[index.name] = Affine.index(first[index.passed])
    return inline_indexes(block, values)


def _without_repetition(block: Block) -> Block:
    """Drop ranges that nothing mentions, where writing the same again has no effect."""
    written = {r.aggregation for r in block.refinements if r.direction.writes}
    if not written <= {Aggregation.MAX, Aggregation.MIN}:
        return block
    used = used_indexes(block)
    idle = {name for name in block.ranges if name not in used}
    return inline_indexes(block, dict.fromkeys(idle, Affine()))


def _normal(constraints: Sequence[Constraint]) -> tuple[Constraint, ...] | None:
    """Each constraint once, divided by the common factor of its terms (a*x + c >= 0 holds exactly
    if x + floor(c / a) >= 0); without those that always hold. None if one never holds."""
    found: dict[Affine, Constraint] = {}
    for constraint in constraints:
        expr = constraint.expr
        if expr.is_constant:
            if expr.const < 0:
                return None
            continue
        factor = gcd(*(c for _, c in expr.terms))
        if factor > 1:
            expr = Affine(expr.const // factor, tuple((n, c // factor) for n, c in expr.terms))
            constraint = replace(constraint, expr=expr)
        found.setdefault(expr, constraint)
    return tuple(found.values())


def _intervals(path: Sequence[Block]) -> dict[str, Interval]:
    """The values that each index of the last block can have, as far as ranges alone tell."""
    intervals: dict[str, Interval] = {}
    for block in path:
        outer = intervals
        intervals = box_of(block.ranges)
        intervals |= {i.name: i.passed.bounds(outer) for i in block.indexes if i.passed is not None}
    return intervals


def _tightened(block: Block, above: Sequence[Block]) -> Block | None:
    """Shrink ranges to the values that have a point; ranges start at 0 again. But lanes in registers keep
    their places: moved by one, they would share no vector with those of the blocks beside."""
    domain = nest_domain((*above, block))
    if domain.is_empty():
        return None
    mentioned = {name for c in block.constraints for name in c.expr.names}
    copies = block.tag_values("unroll")
    stays = [name for name in block.tag_values("vector") if name in copies]
    shifts: dict[str, Affine] = {}
    ranges = block.ranges
    for name in [n for n in ranges if n in mentioned]:
        bounds = domain.bounds(Affine.index(f"{len(above)}.{name}"))
        assert bounds is not None, "a range is bounded"
        low, high = bounds
        if name in stays:
            low = 0
        if low:
            shifts[name] = Affine.index(name) + low
        ranges[name] = high - low + 1
    if ranges == block.ranges:
        return block
    indexes = tuple(i if i.passed is not None else replace(i, range=ranges[i.name]) for i in block.indexes)
    return fold_unit_indexes(replace(substitute_indexes(block, shifts), indexes=indexes))


def _without_implied(block: Block, above: Sequence[Block]) -> Block:
    """Drop, one after the other, each constraint that the ranges and what is left imply."""
    normal = _normal(block.constraints)
    assert normal is not None, "the block has a point"
    kept = list(normal)
    free = nest_domain((*above, replace(block, constraints=())))
    depth = len(above)

    def here(expr: Affine) -> Affine:
        return expr.rename(lambda name: f"{depth}.{name}")

    for constraint in normal:
        others = [c for c in kept if c is not constraint]
        violated = [here(c.expr) for c in others] + [-here(constraint.expr) - 1]
        if free.with_constraints(violated).is_empty():
            kept = others
    return replace(block, constraints=tuple(kept))
