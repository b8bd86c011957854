"""The block over the tiles of a consumer, in which its producers compute what each tile needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stripe.affine import Affine, box_of
from stripe.analysis.fusion_shapes import Range
from stripe.analysis.fusion_tiles import TilePlan
from stripe.ir import Block, Constraint, Direction, Index, Refinement, Tag, contiguous
from stripe.names import Names
from stripe.passes.fuse_build import outer_box, relative
from stripe.rewrite import drop_unused_passed
from stripe.visit import substitute_indexes


def in_tiles(scope: Block, group: Sequence[Block], plan: TilePlan) -> Block:
    """A group of children of `scope`, the consumer last, as one block over the consumer's tiles.

    Each private buffer becomes one of the block's own, as large as its box.
    """
    consumer = group[-1]
    counts = {n: -(-consumer.ranges[n] // size) for n, size in plan.sizes.items()}
    parts = [_Part.of(block, ranges, counts) for block, ranges in zip(group, plan.ranges, strict=True)]
    names = Names()
    boxes = {b: _box_view(scope.refinement(b), box, names) for b, box in plan.boxes.items()}
    views: dict[object, Refinement] = {}
    for part in parts:
        for ref, box in part.views(boxes):
            views.setdefault(_key(part, ref, box), replace(box, name=names.fresh(ref.source), tags=()))
    inner = []
    for part in parts:
        found = {ref.name: views[_key(part, ref, box)] for ref, box in part.views(boxes)}
        found |= {ref.name: boxes[ref.source] for ref in part.block.refinements if ref.source in boxes}
        inner.append(part.inside(found))
    outer = sorted(views.values(), key=lambda r: r.direction.writes)  # inputs first
    own = [replace(view, access=(), source="", strides=contiguous(view.shape)) for view in boxes.values()]
    return Block(
        consumer.name,
        indexes=tuple(Index(n, count, None, consumer.index(n).span) for n, count in counts.items()),
        refinements=(*outer, *own),
        statements=tuple(inner),
        tags=(Tag("tiled"),),
        span=consumer.span,
    )


def _box_view(ref: Refinement, box: Sequence[Range], names: Names) -> Refinement:
    """The box of a private buffer, as if it were a view of the buffer."""
    access, shape = tuple(r.origin for r in box), tuple(r.size for r in box)
    return replace(ref, name=names.fresh(ref.name), source=ref.name, access=access, shape=shape, strides=None)


@dataclass(frozen=True)
class _Part:
    """A block of the group with the indexes that a tile restricts cut to their ranges.

    `values`: what is passed to it, over the indexes of the block around it."""

    block: Block
    values: Mapping[str, Affine]

    @staticmethod
    def of(block: Block, ranges: Mapping[str, Range], counts: Mapping[str, int]) -> _Part:
        names = Names(i.name for i in block.indexes)
        limits = box_of(counts)
        values: dict[str, Affine] = {}
        moved: dict[str, Affine] = {}
        covered: list[Constraint] = []
        for name, range_ in ranges.items():
            start = names.fresh(f"{name}o")
            values[start] = range_.origin
            inside = Affine.index(name) if range_.size > 1 else Affine()
            moved[name] = Affine.index(start) + inside
            low, high = range_.origin.bounds(limits)
            if low < 0:
                covered.append(Constraint(moved[name]))
            if high + range_.size > block.ranges[name]:
                covered.append(Constraint(Affine(block.ranges[name] - 1) - moved[name]))
        indexes = [
            replace(i, range=ranges[i.name].size) if i.name in ranges else i
            for i in block.indexes
            if i.name not in ranges or ranges[i.name].size > 1
        ]
        passed = [Index(start, passed=origin) for start, origin in values.items()]
        changed = substitute_indexes(block, moved)
        changed = replace(changed, indexes=(*indexes, *passed), constraints=(*covered, *changed.constraints))
        return _Part(changed, values)

    def views(self, boxes: Mapping[str, Refinement]) -> Iterable[tuple[Refinement, Refinement]]:
        """The views of what is not private, each with the box that one tile touches."""
        for ref in self.block.refinements:
            if ref.direction is not Direction.NEW and ref.source not in boxes:
                yield ref, outer_box(self.block, ref, self.values)

    def inside(self, outer: Mapping[str, Refinement]) -> Block:
        """The block with its views relative to those of the block around it."""
        refinements = tuple(
            ref if ref.direction is Direction.NEW else relative(ref, outer[ref.name], self.values)
            for ref in self.block.refinements
        )
        return drop_unused_passed(replace(self.block, refinements=refinements))


def _key(part: _Part, ref: Refinement, box: Refinement) -> object:
    """Blocks share a view of what they read; what is written has a view for each of its own."""
    if ref.direction.writes:
        return id(part), ref.name
    return ref.source, box.access, box.shape
