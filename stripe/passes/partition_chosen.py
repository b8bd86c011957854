"""partition with choices that are given: pieces of kernels, checked before they are made."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Annotated

import msgspec

from hwconfigs.model import Unit
from stripe.diag import did_you_mean
from stripe.ir import Block
from stripe.passes.base import PassContext
from stripe.passes.choices import Choice, Count
from stripe.passes.partition_nest import Cut, cut_of, spine, uncut


class Share(Choice, frozen=True):
    """Of a kernel, with `unit`: `sizes` has the points of a piece along each index that is cut, none if all
    of it runs on one unit; `level` counts from 0, the outermost block of the nest, to the one that is cut.
    On threads each piece is taken in `turns`, along its outermost index and, if there are more than that has
    points, the next one; or, with `inside`, each thread runs all of the nest but for the nests inside that
    write results, of which it has a piece. With `together` it is handed over with the nest before it, whose
    `turns` hold for both.
    Of a block, with `memory`: `banks` gives for some of its buffers there the bank, the first of them where
    several points are in flight, or the dimension along which it is spread over all, as "spread 0"; the
    others get theirs as ever.
    """

    sizes: dict[str, Count] | None = None
    level: Annotated[int, msgspec.Meta(ge=0)] = 0
    turns: Count = 1
    inside: bool = False
    together: bool = False
    banks: dict[str, int | str] = msgspec.field(default_factory=dict)


def given_piece(given: Share, key: str, block: Block, context: PassContext) -> tuple[str, int]:
    """The index of a sum that is cut, and the points of a part."""
    sizes = given.sizes or {}
    if len(sizes) != 1:
        raise context.refused(key, f"a sum is cut along one index, not {len(sizes)}", "sizes")
    ((index, size),) = sizes.items()
    _check_sizes(given, key, block, context)
    return index, size


def _check_sizes(given: Share, key: str, block: Block, context: PassContext) -> None:
    """Raises CompileError P009 for sizes along indexes that the block does not have, or beyond them."""
    for name, size in (given.sizes or {}).items():
        if name not in block.ranges:
            notes = did_you_mean(name, block.ranges)
            raise context.refused(key, f"it has no index '{name}'", "sizes", *notes)
        if size > block.ranges[name]:
            over = size - block.ranges[name]
            reason = f"{name} has {block.ranges[name]} points, a piece {size}: {over} too many"
            raise context.refused(key, reason, f"sizes.{name}")


def _check_parts(parts: int, unit: Unit, key: str, context: PassContext) -> None:
    if parts > unit.count:
        reason = f"these are {parts} parts for {unit.count} {unit.name}: {parts - unit.count} too many"
        raise context.refused(key, reason, "sizes")


def given_cut(given: Share, key: str, block: Block, unit: Unit, context: PassContext) -> Cut:
    """How a choice cuts a nest. Raises CompileError P009 if there is nothing to be cut so."""
    levels = spine(block)
    if given.level >= len(levels):
        reason = f"there is no level {given.level}: the nest has {len(levels)} that can be cut"
        raise context.refused(key, reason, "level")
    inner, sizes = levels[given.level], given.sizes or {}
    _check_sizes(given, key, inner, context)
    cut = cut_of(inner, sizes, given.level)
    if given.level and len(sizes) > 1:
        raise context.refused(key, "further in, one index alone can be cut", "sizes")
    if cut.parts < 2:
        raise context.refused(key, "this is one part: leave the choice out", "sizes")
    _check_parts(cut.parts, unit, key, context)
    if reason := uncut(block, inner, sizes):
        raise context.refused(key, reason, "sizes")
    return cut


def given_parts(
    given: Share, key: str, block: Block, unit: Unit, free: Callable[[str], bool], context: PassContext
) -> dict[str, int]:
    """The pieces that a choice cuts a kernel into. Raises CompileError P009 if it can't be cut so."""
    _check_sizes(given, key, block, context)
    sizes = {name: size for name, size in (given.sizes or {}).items() if size < block.ranges[name]}
    for name in sizes:
        if not free(name):
            reason = f"points along {name} add to one element, which several {unit.name} would write"
            raise context.refused(key, reason, f"sizes.{name}")
    _check_parts(prod(-(-block.ranges[n] // size) for n, size in sizes.items()), unit, key, context)
    return {name: sizes[name] for name in block.ranges if name in sizes}
