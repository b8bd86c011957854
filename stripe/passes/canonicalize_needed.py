"""The part of canonicalize that looks at points: those whose results nothing reads are left out.

The statements of a block are gone through from the last to the first, with what is known of the cells
of each of its own buffers that are still to be read: inequalities that hold for all of them.

    block T [i:9, j:9] (in S[i, j]  out T[i, j]:assign)                 only cells with i - j >= 0 are read
    block M [i:9, j:9] (i - j >= 0  in T[i, j]  out M[i]:max)           so T needs no others, and S neither
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from stripe.affine import Affine
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
        self._own = {
            r.name: r for r in block.refinements if r.direction is Direction.NEW and r.location is None
        }
        self._limits: dict[str, Limits] = {}  # by buffer that is read behind here; no entry: it is not
        self._writers: dict[str, int] = {}
        for statement in block.statements:
            for name, direction in dict.fromkeys(buffers_used(statement)):
                if direction.writes:
                    self._writers[name] = self._writers.get(name, 0) + 1

    def visit(self, statement: Statement) -> Statement | None:
        """The statement as far as it is needed; None if it is not."""
        if not isinstance(statement, Block) or not _is_leaf(statement):
            for name, _ in buffers_used(statement):
                self._limits[name] = {}
            return statement
        target = self._only_result(statement)
        if target is not None:
            name = target.source
            if name not in self._limits:
                return None if self._writers[name] > 1 else statement
            statement = self._restricted(statement, target)
            if self._writers[name] > 1 and self._replaces(statement, target):
                del self._limits[name]
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

    def _restricted(self, block: Block, target: Refinement) -> Block:
        """The block without the points that write cells which are not read."""
        cells = {f"@{dim}": expr for dim, expr in enumerate(target.access)}
        wanted = [Affine(c, t).substitute(cells) for t, c in self._limits[target.source].items()]
        box = {name: (0, size - 1) for name, size in block.ranges.items()}
        own = {c.expr for c in block.constraints}
        new = [e for e in dict.fromkeys(wanted) if e not in own and e.bounds(box)[0] < 0]
        if not new:
            return block
        points = block_domain(block)
        new = [e for e in new if not points.with_constraints([-e - 1]).is_empty()]
        if not new:
            return block
        return replace(block, constraints=(*block.constraints, *(Constraint(e, block.span) for e in new)))

    def _replaces(self, block: Block, target: Refinement) -> bool:
        """Whether a block writes all cells that are read behind it, so that what they held is of no use."""
        shape = self._own[target.source].shape
        names = tuple(f"@{dim}" for dim in range(len(shape)))
        inside = [
            e
            for n, size in zip(names, shape, strict=True)
            for e in (Affine.index(n), -Affine.index(n) + (size - 1))
        ]
        limits = [Affine(c, t) for t, c in self._limits[target.source].items()]
        try:
            needed, written = Domain.of(names, (*inside, *limits)), Domain.empty(names)
            for access in accesses(self._block, block):
                if access.writes:
                    written = written.union(access.domain().image(access.element, names))
            return needed.is_subset(written)
        except PolyhedralLimit:
            return False


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
