"""The blocks that rows in bundles become. See stripe.passes.bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.bundle import Rows
from stripe.ir import Aggregation, Block, Direction, Index, Load, Refinement, Store, Tag
from stripe.names import Names
from stripe.passes.rewriter import Rewriter
from stripe.rewrite import compose
from stripe.visit import substitute_indexes


@dataclass(slots=True)
class Builder:
    """Makes the blocks of rows in bundles, with names and buffers of the block that they go `into`."""

    into: Rewriter

    def spliced(self, nest: Block) -> list[Block]:
        """The blocks in a nest of one point, which take its place; its buffers become those around it."""
        views = {ref.name: ref for ref in nest.refinements}
        for name, ref in views.items():
            if ref.direction is Direction.NEW:
                views[name] = replace(ref, name=self.into.names.fresh(name))
                self.into.buffers.append(views[name])
        return [
            replace(
                child,
                name=child.name if child.name == nest.name else self.into.blocks.fresh(child.name),
                refinements=tuple(_within(views[ref.source], ref) for ref in child.refinements),
            )
            for child in nest.children
        ]

    def in_bundles(self, rows: Rows, number: int) -> list[Block]:
        """The blocks that add up so many rows at a time."""
        block, (groups, left) = rows.block, divmod(rows.count, number)
        before, after, inside = list[Block](), list[Block](), dict[str, Refinement]()
        for ref in rows.beside:
            name = f"{block.name}_{ref.name}"
            inside[ref.name] = view = self._run(rows, ref, number, name)
            written = replace(view, direction=Direction.OUT, aggregation=Aggregation.ASSIGN)
            before.append(_moved(rows, number, ref, written, self.into.blocks.fresh(name)))
        for ref in rows.sums:
            view = self._run(rows, ref, number, f"{ref.name}_part")
            inside[ref.name] = replace(view, direction=Direction.OUT)
            read = replace(view, direction=Direction.IN, aggregation=None)
            name = block.name if ref is rows.sums[-1] else self.into.blocks.fresh(ref.name)
            after.append(_moved(rows, number, read, ref, name))
        group, name = Names(block.ranges).fresh(rows.row), self.into.blocks.fresh(f"{block.name}_rows")
        split = {group: groups, rows.row: number} if groups > 1 else {rows.row: number}
        place = Affine.index(rows.row) + (Affine.index(group) * number if groups > 1 else 0)
        made = [_at(rows, place, split, inside, name)]
        if left:
            inside |= {ref.name: replace(inside[ref.name], direction=Direction.INOUT) for ref in rows.sums}
            name = self.into.blocks.fresh(f"{block.name}_left")
            made.append(_at(rows, Affine.index(rows.row) + groups * number, {rows.row: left}, inside, name))
        return [*before, *made, *after]

    def _run(self, rows: Rows, ref: Refinement, number: int, name: str) -> Refinement:
        """A view of a new buffer that has what another view shows for each of so many rows."""
        place = rows.place(ref)
        ranges = {**rows.block.ranges, rows.row: number}
        shape = tuple(ranges[index] for index in place)
        made = self.into.buffer(name, shape, ref.dtype, ref.span)
        access = tuple(map(Affine.index, place))
        return replace(ref, source=made.name, access=access, shape=(1,) * len(place))


def _moved(rows: Rows, number: int, read: Refinement, written: Refinement, name: str) -> Block:
    """The block that moves elements of so many rows from one view to another."""
    ranges = {**rows.block.ranges, rows.row: number}
    read = replace(read, name=Names([written.name]).fresh(read.name))
    return Block(
        name,
        tuple(Index(index, ranges[index]) for index in rows.place(read)),
        refinements=(read, written),
        statements=(Load("v", read.name, read.dtype), Store(written.name, "v")),
        tags=(Tag("vector", rows.lane),),
        span=rows.block.span,
    )


def _at(
    rows: Rows, place: Affine, ranges: Mapping[str, int], views: Mapping[str, Refinement], name: str
) -> Block:
    """The block with its rows at a place that these indexes lead to, and with other views."""
    block = substitute_indexes(rows.block, {rows.row: place})
    known = {index.name: index for index in block.indexes}
    others = (index for name, index in known.items() if name != rows.row and name not in rows.inside)
    split = (Index(index, size) for index, size in ranges.items())
    return replace(
        block,
        name=name,
        indexes=(*others, *split, *(known[name] for name in rows.inside)),
        refinements=tuple(views.get(ref.name, ref) for ref in block.refinements),
        tags=tuple(sorted((*block.tags, Tag("vector", rows.lane)), key=str)),
    )


def _within(outer: Refinement, ref: Refinement) -> Refinement:
    """A view of a view of a nest, or of a buffer that takes the place of one."""
    return replace(ref, source=outer.name) if outer.direction is Direction.NEW else compose(outer, ref)
