"""Leaf blocks over the same points, joined into one leaf.

A chain of a hundred elementwise blocks ends as one leaf of a hundred parts. Built pair by pair, each
step would build all again that came before; so the parts are kept, and built once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from stripe.affine import Affine
from stripe.analysis.fusion_plan import Plan
from stripe.ir import (
    Aggregation,
    Block,
    Direction,
    Refinement,
    Special,
    Statement,
)
from stripe.names import Names
from stripe.rewrite import rename_indexes
from stripe.visit import rename_operands, scalars_defined

_View: TypeAlias = tuple[str, tuple[Affine, ...], tuple[int, ...]]  # source, access, shape


@dataclass(frozen=True)
class Leaf:
    """A leaf block in parts, whose statements follow each other at each point."""

    inputs: Mapping[_View, Refinement]
    written: Mapping[_View, Refinement]  # assigned through these views, of different elements
    parts: tuple[Block, ...]
    size: int  # statements of all parts

    @staticmethod
    def of(block: Block) -> Leaf | None:
        """None for a block that has more than points, scalars, and one view of what it writes."""
        if block.constraints or block.tags or block.location is not None or block.inflight != 1:
            return None
        if any(index.passed is not None for index in block.indexes):
            return None
        if any(isinstance(s, Block | Special) for s in block.statements):
            return None
        reads = [ref for ref in block.refinements if ref.direction is Direction.IN]
        writes = [
            ref
            for ref in block.refinements
            if ref.direction is Direction.OUT and ref.aggregation is Aggregation.ASSIGN
        ]
        sources = {ref.source for ref in writes}
        if len(reads) + len(sources) != len(block.refinements) or any(r.source in sources for r in reads):
            return None
        written = {_view(ref): ref for ref in writes}
        inputs: dict[_View, Refinement] = {}
        for ref in reads:
            inputs.setdefault(_view(ref), ref)
        return Leaf(inputs, written, (block,), len(block.statements))

    def joins(self, second: Leaf, plan: Plan) -> bool:
        """Whether the plan asks for a leaf over the points of both."""
        if not plan.flat or any(s.pair.offset or s.low for s in plan.shared):
            return False
        second = second.renamed(plan)
        if self.parts[0].ranges != second.parts[0].ranges:
            return False
        # What both write is one write each where the block around aggregates; in one leaf the later replaces.
        both = self.written.keys() & second.written.keys()
        if any(plan.uses[source].aggregation is not Aggregation.ASSIGN for source, _, _ in both):
            return False
        return all(
            not use.direction.writes
            or buffer in plan.apart
            or (use.direction is Direction.OUT and len(self._views(buffer) | second._views(buffer)) == 1)
            for buffer, use in plan.uses.items()
        )

    def _views(self, buffer: str) -> set[_View]:
        return {view for view in (*self.inputs, *self.written) if view[0] == buffer}

    def renamed(self, plan: Plan) -> Leaf:
        """The second leaf of a plan, its indexes under the names that they have in the first."""
        names = {s.pair.second: s.pair.first for s in plan.shared}
        if all(old == new for old, new in names.items()):
            return self
        values = {old: Affine.index(new) for old, new in names.items()}

        def under(views: Iterable[Refinement]) -> dict[_View, Refinement]:
            moved = [replace(r, access=tuple(e.substitute(values) for e in r.access)) for r in views]
            return {_view(ref): ref for ref in moved}

        parts = tuple(rename_indexes(part, names) for part in self.parts)
        return Leaf(under(self.inputs.values()), under(self.written.values()), parts, self.size)

    def joined(self, second: Leaf) -> Leaf:
        """The leaf that runs this one's statements, then those of the other (see `joins`), which has the same
        names for its indexes."""
        written = {**self.written, **second.written, **self.written}
        inputs = {**self.inputs, **second.inputs, **self.inputs}
        for view in [view for view in second.inputs if view in self.written]:
            del inputs[view]
        return Leaf(inputs, written, self.parts + second.parts, self.size + second.size)

    def outline(self) -> Block:
        """The block without its content."""
        last = self.parts[-1]
        return Block(last.name, indexes=self.parts[0].indexes, span=last.span)

    def build(self) -> Block:
        if len(self.parts) == 1:
            return self.parts[0]
        names = Names()
        inputs = {view: _named(ref, names) for view, ref in self.inputs.items()}
        written = {view: _named(ref, names) for view, ref in self.written.items()}

        def local(ref: Refinement) -> str:
            return (written.get(_view(ref)) or inputs[_view(ref)]).name

        statements: list[Statement] = []
        taken = Names()
        for part in self.parts:
            buffers = {ref.name: local(ref) for ref in part.refinements}
            scalars = {name: taken.fresh(name) for s in part.statements for name in scalars_defined(s)}
            statements += [rename_operands(s, buffers, scalars) for s in part.statements]
        refinements = (*inputs.values(), *written.values())
        return replace(self.outline(), refinements=refinements, statements=tuple(statements))


def _view(ref: Refinement) -> _View:
    return ref.source, ref.access, ref.shape


def _named(ref: Refinement, names: Names) -> Refinement:
    return replace(ref, name=names.fresh(ref.source), tags=())
