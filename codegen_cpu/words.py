"""Leaf blocks that move groups of neighbours (`#group`) as blocks that move words.

    block o [n:512, k:256, p:2] (in X[n, 2*k + p] bf16  out Y[k, n, p]:assign bf16) #group=p
    runs as
    block o [n:512, k:256] (in X[256*n + k] i32  out Y[512*k + n]:assign i32)

Bits are moved, whatever the type. A block that does more, adds to what is there, or whose groups do not lie
a whole number of words apart, runs as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen_cpu.layout import View
from codegen_cpu.scope import aggregated
from stripe.affine import Affine
from stripe.analysis.groups import moves_only, moving_words, place_in_words, without_group
from stripe.ir import Aggregation, Block, Refinement


def as_words(block: Block, sources: Mapping[str, View]) -> tuple[Block, dict[str, View]]:
    """A leaf block that moves words, and what its views are made of, by their names; else the same."""
    groups = block.tag_values("group")
    if len(groups) != 1 or block.ranges.get(groups[0], 1) == 1 or not moves_only(block):
        return block, dict(sources)
    (group,) = groups
    if any(group in constraint.expr.names for constraint in block.constraints):
        return block, dict(sources)
    size, refinements, views = block.ranges[group], list[Refinement](), dict[str, View]()
    for ref in block.refinements:
        found = _word(ref, sources.get(ref.name), group, size)
        if found is None:
            return block, dict(sources)
        made, views[ref.name] = found
        refinements.append(made)
    moving = moving_words(without_group(block, group), size)
    return replace(moving, refinements=tuple(refinements)), views


def _word(ref: Refinement, source: View | None, group: str, size: int) -> tuple[Refinement, View] | None:
    """A view of single elements as one of words, in one dimension, and what it is made of."""
    if source is None or aggregated(ref, source) is not Aggregation.ASSIGN:
        return None
    found = place_in_words(Affine.weighted(ref.access, source.strides), group, size, ref.dtype)
    origin = source.offset.divided(size)
    if found is None or origin is None:
        return None
    word, access = found
    made = replace(ref, access=(access,), shape=(1,), dtype=word)
    spare = None if source.buffer.spare is None else source.buffer.spare // size
    return made, View(replace(source.buffer, dtype=word, spare=spare), (origin,), (1,), (1,), source.how)
