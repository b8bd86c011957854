"""The part of transpose that walks a program: blocks by the positions of statements that lead to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stripe.ir import Block
from stripe.visit import View, views_of

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


def position(root: Block, kernel: Block) -> int:
    """Which statement of the root a kernel is."""
    return next(at for at, statement in enumerate(root.statements) if statement is kernel)


def position_after(root: Block, at: int, name: str) -> int:
    """Where a kernel stands now: copies may have come in front of it."""
    return next(
        number
        for number, statement in enumerate(root.statements)
        if number >= at and isinstance(statement, Block) and statement.name == name
    )
