"""transpose with choices that are given: the layouts of buffers, and which copies are made where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec

from stripe.diag import did_you_mean
from stripe.ir import Block, Direction, Program, Refinement
from stripe.passes.choices import Choice
from stripe.passes.transpose_between import parted, places
from stripe.passes.transpose_hoist import root_source
from stripe.passes.transpose_offers import Offer
from stripe.passes.transpose_tree import at_path, copied, orders, put
from stripe.rewrite_packed import Layout, known_at_load_time, permuted, tiled_dimensions
from stripe.visit import walk

Dimension = Annotated[int, msgspec.Meta(ge=0, le=1 << 10)]


class PackedCopy(Choice, frozen=True):
    """A copy of what the block `reader` reads through its `view`. `reader` is the path from the kernel down,
    as it is when the copy is made (`c/c`; of siblings of one name the second is `c#2`), and `order` are the
    dimensions of the view, outermost first, as they were if none are given; with `panels`, one panel for
    each tile into which indexes of the reader cut it. It is made ahead of the block of that path at `depth`,
    counted from 0 for the kernel; or, with `loops`, inside these loops of that block, which go outermost.
    What depends on constants alone is copied at load time, ahead of all.
    """

    reader: str
    view: str
    order: tuple[Dimension, ...] = ()
    panels: bool = False
    depth: Annotated[int, msgspec.Meta(ge=0, le=1 << 10)] = 0
    loops: tuple[str, ...] = ()


class Laid(Choice, frozen=True):
    """Of a block: the `orders` of the dimensions of its own buffers, outermost first, where they change; and,
    of a kernel, the `copies` that it reads, one after the other.
    """

    orders: dict[str, tuple[Dimension, ...]] = msgspec.field(default_factory=dict)
    copies: tuple[PackedCopy, ...] = ()


class NotSo(Exception):
    """Why a copy can't be made as it was chosen, as a clause, and the field of the copy."""

    def __init__(self, reason: str, field: str, *notes: str) -> None:
        super().__init__(reason)
        self.reason, self.field, self.notes = reason, field, notes


def said(root: Block, offer: Offer) -> PackedCopy:
    """A copy that is offered, as a record."""
    layout, rank = offer.layout, len(offer.view.shape)
    return PackedCopy(
        _named(root, offer.path), offer.view.name,
        () if layout.order == tuple(range(rank)) else layout.order, bool(layout.panels),
        0 if offer.load_time else offer.depth - (1 if offer.outside else 0), offer.outside,
    )  # fmt: skip


def given_copy(program: Program, at: int, copy: PackedCopy, load_time: bool) -> Offer:
    """A copy of which a record says all, for the kernel at a position. Raises NotSo. `load_time`: the
    load-time program may make it."""
    root = program.root
    path = _found(root, at, copy.reader)
    blocks = [root, *(at_path(root, path[:steps]) for steps in range(1, len(path) + 1))]
    *parents, block = blocks
    view = _view(parents[-1], block, copy)
    source = root_source(parents, view.source)
    loads = load_time and source in known_at_load_time(program)
    if loads and (copy.depth or copy.loops):
        raise NotSo(f"'{view.source}' is known at load time, and copied there", "depth")
    depth = copy.depth + (1 if copy.loops else 0)
    reader = block
    if not loads:
        _check_way(blocks, view, copy, depth)
    if copy.loops:
        level = parted(blocks[depth], copy.loops)
        inside = put(root, path[:depth], level)
        reader = at_path(inside, (*path[:depth], 0, *path[depth:]))
    layout = _layout(reader, reader.refinement(view.name), copy)
    return Offer(path, block.refinements.index(view), view, layout, depth, copy.loops, 0.0, 0.0, loads)


def order_of(ref: Refinement) -> tuple[int, ...]:
    """The order of its dimensions that gave a buffer its strides."""
    return next(order for order in orders(len(ref.shape)) if permuted(ref.shape, order) == ref.strides)


def _siblings(block: Block) -> dict[str, int]:
    """The blocks in a block by their names, with their positions."""
    found: dict[str, int] = {}
    met: Counter[str] = Counter()
    for at, child in enumerate(block.statements):
        if isinstance(child, Block):
            met[child.name] += 1
            number = met[child.name]
            found[child.name if number == 1 else f"{child.name}#{number}"] = at
    return found


def _named(root: Block, path: Sequence[int]) -> str:
    """The names of the blocks on a path, from the kernel down."""
    block = at_path(root, path[:1])
    names = [block.name]
    for number in path[1:]:
        names += [name for name, at in _siblings(block).items() if at == number]
        block = at_path(block, (number,))
    return "/".join(names)


def _found(root: Block, at: int, reader: str) -> tuple[int, ...]:
    """The path that names stand for, of the kernel at a position."""
    path: tuple[int, ...] = (at,)
    block = at_path(root, path)
    first, *names = reader.split("/")
    if first != block.name:
        raise NotSo(f"the path of a reader begins with the kernel, '{block.name}'", "reader")
    for name in names:
        inside = _siblings(block)
        if name not in inside:
            raise NotSo(f"'{block.name}' has no block '{name}'", "reader", *did_you_mean(name, inside))
        path = (*path, inside[name])
        block = at_path(root, path)
    return path


def _view(parent: Block, block: Block, copy: PackedCopy) -> Refinement:
    if any(inner.has_tag("stencil") for _, inner in walk(block)):
        raise NotSo("what uses of a stencil read is left as it is", "reader")
    known = {ref.name: ref for ref in copied(parent, block)}
    if copy.view not in known:
        reason = f"it has no view '{copy.view}' that a copy can stand in for"
        raise NotSo(reason, "view", *did_you_mean(copy.view, known))
    return known[copy.view]


def _check_way(blocks: Sequence[Block], view: Refinement, copy: PackedCopy, depth: int) -> None:
    """Raises NotSo where what is read can't be copied so far outside."""
    *parents, block = blocks
    if copy.depth >= len(parents):
        raise NotSo(f"the path of the reader has {len(parents)} blocks, from 0 on", "depth")
    name, level, seen = view.source, block, view
    outermost = depth if copy.loops else depth + 1
    for at in range(len(parents) - 1, outermost - 1, -1):
        level, seen = parents[at], parents[at].refinement(name)
        if level.constraints:
            raise NotSo(f"block '{level.name}' around it has constraints", "depth")
        if seen.direction is not Direction.IN:
            raise NotSo(f"'{level.name}' does not only read '{name}'", "depth")
        name = seen.source
    if copy.loops and copy.loops not in (known := list(places(level, seen))):
        there = f": {' or '.join(map(_listed, known))}" if known else ", nowhere"
        reason = f"inside {_listed(copy.loops)} of '{level.name}' nothing is read again{there}"
        raise NotSo(reason, "loops")


def _listed(loops: Sequence[str]) -> str:
    return f"({', '.join(loops)})"


def _layout(block: Block, view: Refinement, copy: PackedCopy) -> Layout:
    tiles, rank = tiled_dimensions(block, view), len(view.shape)
    if copy.panels and not tiles:
        raise NotSo(f"no index of '{block.name}' cuts '{view.name}' into tiles of its own", "panels")
    return Layout(tiles if copy.panels else (), checked_order(copy.order or range(rank), rank, "order"))


def checked_order(order: Sequence[int], rank: int, field: str) -> tuple[int, ...]:
    """An order of all dimensions. Raises NotSo for another list of numbers."""
    if sorted(order) != list(range(rank)):
        raise NotSo(f"an order has each dimension from 0 to {rank - 1} once", field)
    return tuple(order)
