"""localize: results that every level of a nest writes once are replaced, not added to."""

from __future__ import annotations

from dataclasses import replace

from stripe.analysis.footprint import writes_apart
from stripe.ir import Aggregation, Block, Direction, Refinement
from stripe.poly import PolyhedralLimit
from stripe.visit import buffers_used, map_children


def written_once(root: Block) -> Block:
    """The root, where the outer levels of nests say `assign` instead of an aggregation that has only one
    write to each element to gather: it begins in the block that adds up.

        before:  block c [m:8] (out C[16*m]:add (16)  new C_acc (16) @REG) {
                   block c [k:64, i:16] (...  out C_acc[i]:add) {...}
                   block c_copy [i:16] (in C_acc[i]  out C[i]:add) {...} }
        after:   block c [m:8] (out C[16*m]:assign (16) ...) {...
                   block c_copy [i:16] (in C_acc[i]  out C[i]:assign) {...} }
    """

    def below(kernel: Block) -> Block:
        for ref in kernel.refinements if kernel.children else ():
            if ref.source and not root.refinement(ref.source).combines:
                kernel = _once(root, kernel, ref)
        return kernel

    return map_children(root, below)


def _once(parent: Block, block: Block, view: Refinement) -> Block:
    """The block, and those below it as far as that is so, with `assign` for a view of the parent's."""
    if view.direction is not Direction.OUT or not view.combines:
        return block
    users = [s for s in block.statements if any(name == view.name for name, _ in buffers_used(s))]
    alone = [r.source for r in block.refinements].count(view.source) == 1
    if not alone or len(users) != 1 or not _apart(parent, block, view):
        return block
    (user,) = users
    if isinstance(user, Block):
        if [r.source for r in user.refinements].count(view.name) != 1:
            return block
        inner = next(r for r in user.refinements if r.source == view.name)
        made = _once(block, user, inner)
        block = replace(block, statements=tuple(made if s is user else s for s in block.statements))
    new = replace(view, aggregation=Aggregation.ASSIGN)
    return replace(block, refinements=tuple(new if r is view else r for r in block.refinements))


def _apart(parent: Block, block: Block, view: Refinement) -> bool:
    """Whether each element is written by one point of the block at most."""
    uses = [name for expr in view.access for name in expr.names]
    steps = {
        expr.names[0]
        for expr, size in zip(view.access, view.shape, strict=True)
        if len(expr.names) == 1 and abs(expr.coefficient(expr.names[0])) >= size
    }
    own = [name for name, size in block.ranges.items() if size > 1]
    if all(name in steps and uses.count(name) == 1 for name in own):
        return True
    try:
        return writes_apart(parent, block, view.source)
    except PolyhedralLimit:
        return False
