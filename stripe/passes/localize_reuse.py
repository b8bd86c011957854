"""Results that take the place of an input which nothing needs any more."""

from __future__ import annotations

from dataclasses import replace

from stripe.affine import Affine
from stripe.analysis.deps import accesses, relation
from stripe.ir import Aggregation, Block, Direction, Load, Refinement, Statement, Store
from stripe.passes.base import PassContext
from stripe.poly import PolyhedralLimit
from stripe.visit import buffers_used, map_children, rename_operands


def in_place(block: Block, path: str, context: PassContext) -> Block:
    """The block, and what is below it, with results written over dead inputs where that is proved."""
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for at, statement in enumerate(block.statements):
        for name, _ in buffers_used(statement):
            first.setdefault(name, at)
            last[name] = at
    refs = {ref.name: ref for ref in block.refinements}
    statements = list(block.statements)
    place: dict[str, str] = {}  # a buffer that is no more -> the one that it lies in
    for at, statement in enumerate(block.statements):
        if isinstance(statement, Block) and _is_leaf(statement):
            dying = [n for n, end in last.items() if end == at and refs[n].direction is Direction.NEW]
            born = [n for n, start in first.items() if start == at and refs[n].direction is Direction.NEW]
            for result in born:
                if old := next(
                    (n for n in dying if _replaces(block, statement, refs[n], refs[result])), None
                ):
                    dying.remove(old)
                    place[result] = place.get(old, old)
                    statements[at] = statement = _merged(statement, old, result)
                    message = f"'{result}' is written in place of '{old}', which nothing needs any more"
                    context.remark(f"{path}/{statement.name}", True, message, bytes_saved=refs[old].bytes)
    if place:
        block = replace(
            block,
            refinements=tuple(ref for ref in block.refinements if ref.name not in place),
            statements=tuple(rename_operands(s, place, {}) for s in statements),
        )
    return map_children(block, lambda child: in_place(child, f"{path}/{child.name}", context))


def _is_leaf(block: Block) -> bool:
    return not any(isinstance(s, Block) for s in block.statements) and bool(block.ranges)


def _replaces(block: Block, leaf: Block, old: Refinement, new: Refinement) -> bool:
    """Whether each point of the leaf reads no element of `old` but the one that it writes of `new`,
    before it writes it."""
    if (old.shape, old.dtype, old.location, old.strides) != (new.shape, new.dtype, new.location, new.strides):
        return False
    reads = [ref for ref in leaf.refinements if ref.source == old.name]
    writes = [ref for ref in leaf.refinements if ref.source == new.name]
    if (
        len(reads) != 1
        or len(writes) != 1
        or (reads[0].access, reads[0].shape) != (writes[0].access, writes[0].shape)
    ):
        return False
    if reads[0].direction is not Direction.IN or writes[0].direction is not Direction.OUT:
        return False
    if writes[0].aggregation is not Aggregation.ASSIGN or not _loads_first(
        leaf, reads[0].name, writes[0].name
    ):
        return False
    try:
        return _meet_at_one_point(block, leaf, old.name, new.name)
    except PolyhedralLimit:
        return False


def _loads_first(leaf: Block, old: str, new: str) -> bool:
    loads = [at for at, s in enumerate(leaf.statements) if isinstance(s, Load) and s.buffer == old]
    stores = [at for at, s in enumerate(leaf.statements) if isinstance(s, Store) and s.buffer == new]
    used = sum(name in (old, new) for s in leaf.statements for name, _ in buffers_used(s))
    again = sum(isinstance(s, Load) and s.buffer == new for s in leaf.statements)
    return len(loads) + len(stores) + again == used and bool(loads) and loads[-1] < min(stores, default=-1)


def _meet_at_one_point(block: Block, leaf: Block, old: str, new: str) -> bool:
    """Whether points that touch one place of the two buffers are one point."""
    reads = [a for a in accesses(block, leaf, "a.") if a.buffer == old]
    writes = [a for a in accesses(block, leaf, "b.") if a.buffer == new and a.writes]
    for read in reads:
        for write in writes:
            meeting = relation(read, replace(write, storage=read.storage, base=read.base))
            if meeting.is_empty():
                continue
            for name, size in leaf.ranges.items():
                if size > 1:
                    distance = Affine.index(f"a.{name}") - Affine.index(f"b.{name}")
                    if meeting.bounds(distance) != (0, 0):
                        return False
    return True


def _merged(leaf: Block, old: str, new: str) -> Block:
    """The leaf with one view of the old buffer for both."""
    view = next(ref for ref in leaf.refinements if ref.source == old)
    result = next(ref for ref in leaf.refinements if ref.source == new)
    both = replace(view, direction=Direction.INOUT, aggregation=Aggregation.ASSIGN)
    refinements = tuple(both if ref is view else ref for ref in leaf.refinements if ref is not result)
    statements: list[Statement] = [rename_operands(s, {result.name: view.name}, {}) for s in leaf.statements]
    return replace(leaf, refinements=refinements, statements=tuple(statements))
