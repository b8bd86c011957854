"""The part of canonicalize that looks at points: those whose results nothing reads are left out.

The statements of a block are gone through from the last to the first, with what is known of the cells
of each of its own buffers, and of each result, that are still to be read, and were not written over before:
inequalities that hold for all of them.

    block T [i:9, j:9] (in S[i, j]  out T[i, j]:assign)                 only cells with i - j >= 0 are read
    block M [i:9, j:9] (i - j >= 0  in T[i, j]  out M[i]:max)           so T needs no others, and S neither

    block R_fill [i:9, j:9] (in A[i, j]  out R[i, j]:assign)            only cells with i < 4 stay
    block R [i:5, j:9] (in B[i, j]  out R[i + 4, j]:assign)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from stripe.affine import Affine, box_of
from stripe.analysis.deps import accesses
from stripe.ir import Block, Constraint, Direction, Refinement, Special, Statement
from stripe.poly import Domain, PolyhedralLimit, block_domain
from stripe.visit import buffers_used

Limits: TypeAlias = dict[tuple[tuple[str, int], ...], int]
"""Inequalities over the dimensions `@0`, `@1` ... of a buffer: terms + constant >= 0."""


def without_unread_points(block: Block) -> Block:
    """The block, which has no indexes of its own, with those statements that compute more cells of its
    buffers than are read cut down; the same object if there are none."""
    if block.indexes or not any(isinstance(s, Block) and _is_leaf(s) for s in block.statements):
        return block
    walk = _Backwards(block)
    kept = [left for s in reversed(block.statements) if (left := walk.visit(s)) is not None]
    kept.reverse()
    if len(kept) == len(block.statements) and all(
        a is b for a, b in zip(kept, block.statements, strict=True)
    ):
        return block
    return replace(block, statements=tuple(kept))


class _Backwards:
    """What later statements read, while statements are looked at from the last to the first."""

    def __init__(self, block: Block) -> None:
        self._block = block
        results = {r.name: r for r in block.refinements if r.direction is Direction.OUT}
        new = {r.name: r for r in block.refinements if r.direction is Direction.NEW and r.location is None}
        self._own = new | results
        # By buffer that is read behind here; no entry: it is not.
        self._limits: dict[str, Limits] = {name: {} for name in results}
        self._sides: dict[str, Limits] = {}  # what holds for those of them that are not written over
        self._writers: dict[str, int] = {}
        for statement in block.statements:
            for name, direction in dict.fromkeys(buffers_used(statement)):
                if direction.writes:
                    self._writers[name] = self._writers.get(name, 0) + 1

    def visit(self, statement: Statement) -> Statement | None:
        """The statement as far as it is needed; None if it is not."""
        if not isinstance(statement, Block) or not _is_leaf(statement):
            for name, _ in buffers_used(statement):
                self._read(name, {})
            return statement
        target = self._only_result(statement)
        if target is not None:
            name = target.source
            if name not in self._limits:
                return None if self._writers[name] > 1 else statement
            statement = self._restricted(statement, target)
            if self._writers[name] > 1:
                self._write(statement, target)
        for ref in statement.refinements:
            if ref.direction.reads:
                self._read(ref.source, _limits(statement, ref, self._block))
        return statement

    def _only_result(self, block: Block) -> Refinement | None:
        """The view of what a block writes, if that is one of the buffers and nothing else."""
        found = [ref for ref in block.refinements if ref.direction.writes]
        if len(found) != 1 or found[0].direction is not Direction.OUT or found[0].source not in self._own:
            return None
        return found[0]

    def _read(self, name: str, limits: Limits) -> None:
        """Note that cells within the limits are read: what holds for all that are is the weaker of each."""
        known = self._limits.get(name)
        if known is not None:
            limits = {t: max(c, known[t]) for t, c in limits.items() if t in known}
        self._limits[name] = limits
        self._sides.pop(name, None)

    def _restricted(self, block: Block, target: Refinement) -> Block:
        """The block without the points that write cells which are not read."""
        cells = {f"@{dim}": expr for dim, expr in enumerate(target.access)}
        limits = self._limits[target.source]
        if any(ref.direction.reads for ref in block.refinements):  # a constant costs less than a piece of it
            limits = limits | self._sides.get(target.source, {})
        wanted = [Affine(c, t).substitute(cells) for t, c in limits.items()]
        box = box_of(block.ranges)
        own = {c.expr for c in block.constraints}
        new = [e for e in dict.fromkeys(wanted) if e not in own and e.bounds(box)[0] < 0]
        if not new:
            return block
        points = block_domain(block)
        new = [e for e in new if not points.with_constraints([-e - 1]).is_empty()]
        if not new:
            return block
        return replace(block, constraints=(*block.constraints, *(Constraint(e, block.span) for e in new)))

    def _write(self, block: Block, target: Refinement) -> None:
        """Note that what a block writes over is of no use before it: all that is read behind it, or what lies
        on one side of a dimension."""
        name, shape = target.source, self._own[target.source].shape
        names = tuple(f"@{dim}" for dim in range(len(shape)))
        inside = [
            e
            for n, size in zip(names, shape, strict=True)
            for e in (Affine.index(n), -Affine.index(n) + (size - 1))
        ]
        sides = self._sides.get(name, {})
        limits = [Affine(c, t) for t, c in (*self._limits[name].items(), *sides.items())]
        try:
            needed, written = Domain.of(names, (*inside, *limits)), Domain.empty(names)
            for access in accesses(self._block, block):
                if access.writes:
                    written = written.union(access.domain().image(access.element, names))
            if needed.is_subset(written):
                del self._limits[name]
                self._sides.pop(name, None)
                return
            left = [e for e in _outside(block, target, shape) if not needed.with_constraints([e]).is_empty()]
            if len(left) == 1 and needed.with_constraints([-left[0] - 1]).is_subset(written):
                terms, const = left[0].terms, left[0].const
                self._sides[name] = sides | {terms: min(const, sides.get(terms, const))}
        except PolyhedralLimit:
            return


def _outside(block: Block, target: Refinement, shape: Sequence[int]) -> list[Affine]:
    """Inequalities over cells: each holds on one side of those that a block writes, and not for these."""
    box = box_of(block.ranges)
    found = []
    for dim, (expr, size) in enumerate(zip(target.access, shape, strict=True)):
        low, high = expr.bounds(box)
        if low > 0:
            found.append(-Affine.index(f"@{dim}") + (low - 1))
        if high < size - 1:
            found.append(Affine.index(f"@{dim}") - (high + 1))
    return found


def _is_leaf(block: Block) -> bool:
    if block.location is not None or block.inflight != 1 or block.tags or not all(block.ranges.values()):
        return False
    if any(index.passed is not None for index in block.indexes):
        return False
    return not any(isinstance(s, Block | Special) for s in block.statements)


def _limits(block: Block, ref: Refinement, scope: Block) -> Limits:
    """What holds for all cells that a leaf block touches through a view, beyond the shape of the buffer: its
    ranges and constraints, as far as they are over indexes that move along a dimension alone."""
    cells: dict[str, Affine] = {}
    found: list[Affine] = []
    for dim, expr in enumerate(ref.access):
        cell = Affine.index(f"@{dim}")
        if expr.is_constant:
            found += [cell - expr.const, -cell + expr.const]
        elif len(expr.terms) == 1 and abs(expr.terms[0][1]) == 1:
            name, sign = expr.terms[0]
            value = (cell - expr.const) * sign
            found += [value, -value + (block.ranges[name] - 1)]
            cells.setdefault(name, value)
    for constraint in block.constraints:
        if all(name in cells for name in constraint.expr.names):
            found.append(constraint.expr.substitute(cells))
    shape = {f"@{dim}": (0, size - 1) for dim, size in enumerate(scope.refinement(ref.source).shape)}
    limits: Limits = {}
    for expr in found:
        if expr.bounds(shape)[0] < 0:
            limits[expr.terms] = min(expr.const, limits.get(expr.terms, expr.const))
    return limits
