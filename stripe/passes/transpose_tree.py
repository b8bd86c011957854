"""The part of transpose that looks around: which blocks, buffers, inputs and layouts there are.

Blocks are found by the positions of the statements that lead to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hwconfigs.model import HwConfig
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.groups import group_index
from stripe.analysis.stencils import Fit
from stripe.analysis.stencils_groups import rows_across
from stripe.ir import Block, Direction, Load, Refinement, Special, Statement, Store
from stripe.rewrite_packed import Layout, permuted, tiled_dimensions
from stripe.visit import View, buffers_used, views_of

Views = Mapping[str, View]


def levels(root: Block, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[Block, ...], Views]]:
    """Each block of a kernel: its path, the blocks around it, and the views of its parent."""
    pending: list[tuple[tuple[int, ...], tuple[Block, ...], Views]] = [(path, (root,), views_of(root, {}))]
    while pending:
        path, parents, views = pending.pop()
        yield path, parents, views
        block = at_path(root, path)
        inside = views_of(block, views)
        for number, statement in enumerate(block.statements):
            if isinstance(statement, Block):
                pending.append(((*path, number), (*parents, block), inside))


def at_path(root: Block, path: Sequence[int]) -> Block:
    """The block that positions of statements lead to."""
    block = root
    for number in path:
        child = block.statements[number]
        assert isinstance(child, Block)
        block = child
    return block


def put(root: Block, path: Sequence[int], new: Block) -> Block:
    """The root with another block at the end of the path."""
    if not path:
        return new
    number, *rest = path
    child = root.statements[number]
    assert isinstance(child, Block)
    statements = (*root.statements[:number], put(child, rest, new), *root.statements[number + 1 :])
    return replace(root, statements=statements)


def position(root: Block, kernel: Block, start: int) -> int:
    """Which statement of the root a kernel is, from `start` on."""
    return next(at for at in range(start, len(root.statements)) if root.statements[at] is kernel)


def position_after(root: Block, at: int, name: str) -> int:
    """Where a kernel stands now: copies may have come in front of it."""
    named = (
        number
        for number in range(at, len(root.statements))
        if isinstance(statement := root.statements[number], Block) and statement.name == name
    )
    return next(named)


def has_order(ref: Refinement, hw: HwConfig) -> bool:
    """Whether a buffer of a block's own has several dimensions, and lies where their order matters."""
    in_registers = ref.location is not None and hw.is_registers(ref.location.unit)
    several = sum(size > 1 for size in ref.shape) > 1
    return ref.direction is Direction.NEW and several and ref.strides is not None and not in_registers


def why_kept(users: Sequence[Statement], ref: Refinement) -> str:
    """Why the order of a buffer's dimensions can't change, as a clause; empty if it can. `users`: the
    statements that use it."""
    assert ref.strides is not None
    if ref.location is not None and ref.location.address is not None:
        return "it has an address already"
    if ref.location is not None and ref.location.spread is not None:
        return "it is spread over banks along one of its dimensions"
    step = 1
    for size, stride in sorted(zip(ref.shape, ref.strides, strict=True), key=lambda pair: pair[::-1]):
        if size > 1 and stride != step:
            return "its elements do not lie one behind the other"
        step *= size
    return next(filter(None, (_takes_as_it_is(s, ref.name) for s in users)), "")


def _takes_as_it_is(statement: Statement, name: str) -> str:
    """Why a statement needs the order that a buffer has, as a clause; empty if it does not."""
    if not any(n == name for n, _ in buffers_used(statement)):
        return ""
    if isinstance(statement, Special):
        return f"the special '{statement.name}' uses it"
    if not isinstance(statement, Block):
        return "a statement beside the blocks uses it"
    if statement.has_tag("stencil"):
        return f"'{statement.name}' is the use of a stencil, which takes it as it is"
    inner = [r.name for r in statement.refinements if r.source == name]
    within = [s for s in statement.statements if isinstance(s, Block | Special)]
    found = (_takes_as_it_is(s, i) for s in within for i in inner)
    return next(filter(None, found), "")


def copied(parent: Block, block: Block) -> list[Refinement]:
    """The inputs of a block that a copy can stand in for."""
    sources = [r.source for r in block.refinements]
    return [
        r
        for r in block.refinements
        if r.direction is Direction.IN
        and sources.count(r.source) == 1
        and sum(size > 1 for size in parent.refinement(r.source).shape) > 1
        and r.location is None
    ]


def buffer_of(parents: Sequence[Block], name: str) -> str:
    """The buffer that a view of the last of `parents`, the first of which is the root, looks at."""
    for parent in reversed(parents):
        view = parent.refinement(name)
        if view.direction is Direction.NEW or not view.source:
            break
        name = view.source
    return name


def computed_with(block: Block, name: str) -> bool:
    """Whether a block does more with what it reads through a view than to copy it elsewhere."""
    if any(isinstance(s, Load) and s.buffer == name for s in block.statements):
        return [type(s) for s in block.statements] != [Load, Store]
    return any(computed_with(b, r.name) for b in block.children for r in b.refinements if r.source == name)


def layouts(
    parent: Block, block: Block, view: Refinement, views: Views, crowds: bool = True
) -> Iterator[Layout]:
    """The layouts of a copy of an input that are worth a look. `views`: those of the parent. Where its rows
    don't crowd, a copy that only closes the gaps between them is none; nor is one that takes apart the groups
    that an instruction reads."""
    tiles, last = tiled_dimensions(block, view), of_groups(block, view, views)
    sizes, lies = parent.refinement(view.source).shape, views[view.source].strides
    for panels in ((), tiles) if tiles else ((),):
        cut = {dim for _, dim in panels}
        box = [view.shape[dim] if dim in cut else size for dim, size in enumerate(sizes)]
        as_it_is = _as_it_is(box, lies) if not panels else ()
        seen: set[tuple[int, ...]] = set()  # where a dimension of one element stands makes no difference
        for order in dict.fromkeys((*orders(len(box)), *_as_walked(block, view, views))):
            if last and order[-1] not in last:
                continue
            strides = permuted(box, order)
            if not panels and not crowds and _in_order(box, lies) == _in_order(box, strides):
                continue
            several = tuple(stride for stride, size in zip(strides, box, strict=True) if size > 1)
            if strides != as_it_is and several not in seen:
                seen.add(several)
                yield Layout(panels, order)


def of_groups(block: Block, view: Refinement, views: Views, rows: HwConfig | None = None) -> set[int]:
    """The dimensions of a view in which the elements of groups lie one after the other. With `rows`, those of
    groups that an instruction of this target takes on registers that hold rows, half of which it fills at
    least: others may as well be woven from rows in registers."""
    return {
        dim
        for leaf in leaves(block, views)
        for operand in leaf.operands
        if operand.name == view.name and operand.stride(group_index(leaf)) == 1
        if rows is None or _fills_rows(leaf, rows)
        for dim, expr in enumerate(operand.access)
        if group_index(leaf) in expr.names
    }


def _fills_rows(leaf: Leaf, hw: HwConfig) -> bool:
    found = rows_across(leaf, hw)
    if found is None:
        return False
    made, fit = found
    assert made.tiles is not None  # that is what `rows_across` finds
    row = made.tiles.row
    return 2 * leaf.ranges.get(fit.indexes.get(row, ""), 1) >= made.tiles.most[row]


def _in_order(box: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The dimensions of a box that have several elements, by their strides."""
    several = (dim for dim, size in enumerate(box) if size > 1)
    return sorted(several, key=lambda dim: -abs(strides[dim]))


def _as_walked(block: Block, view: Refinement, views: Views) -> Iterator[tuple[int, ...]]:
    """The order of the dimensions in which the loops of each leaf of a block go through a view, that of
    groups innermost."""
    for leaf in leaves(block, views):
        group = group_index(leaf)
        place = {name: at for at, name in enumerate(sorted(leaf.ranges, key=lambda name: name == group))}
        for operand in leaf.operands:
            if operand.name == view.name and not operand.local:
                last = [max((place.get(n, -1) for n in e.names), default=-1) for e in operand.access]
                yield tuple(sorted(range(len(last)), key=lambda dim: (last[dim], dim)))


def _as_it_is(box: Sequence[int], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a copy that would change nothing; none where what is copied has gaps."""
    dense = permuted(box, range(len(box)))
    gaps = any(size > 1 and d != s for size, d, s in zip(box, dense, strides, strict=True))
    return () if gaps else dense


def orders(rank: int) -> list[tuple[int, ...]]:
    """The order of the dimensions as it is, and with each as the last: which one that is matters most."""
    lasts = ((*(d for d in range(rank) if d != dim), dim) for dim in range(rank))
    return list(dict.fromkeys((tuple(range(rank)), *lasts)))


def reach(fits: Sequence[Fit]) -> int:
    """How many indexes of a stencil the best map covers."""
    return max((len(fit.indexes) for fit in fits), default=0)
