"""Groups: neighbouring elements that one instruction reads as one word, as costs see them.

A leaf block with the tag `#group=p` reads, along p, elements that lie one after the other, and adds up
what it makes of them. An instruction that does all of that reads words that hold a group each; so to
costs, the block has words for elements, no index p, and nothing to convert.

    block c [k:64, p:4, n:16] (in A[4*k + p] u8  in B[k, n, p] i8  out C[n]:add i32) #group=p
    is to costs
    block c [k:64, n:16] (in A[k] i32  in B[k, n] i32  out C[n]:add i32)

A leaf block with the tag that only moves elements moves words: it has words for the elements of its result,
too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, Operand
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Load, Statement, Store

WORDS = {2: DType.I16, 4: DType.I32, 8: DType.I64}  # by their bytes


def group_index(leaf: Leaf) -> str:
    """What the index that the tag of a leaf's block names is called in the nest; empty without one."""
    named = leaf.block.tag_values("group")
    return _names(leaf).get(named[0], "") if len(named) == 1 else ""


def grouped(leaf: Leaf) -> Leaf:
    """The leaf as costs see it: that with words for elements, or the same if it reads no groups."""
    group = group_index(leaf)
    if not group or any(group in expr.names for expr in leaf.constraints):
        return leaf
    size = leaf.ranges[group]
    if moves_only(leaf.block):
        return _moved(leaf, group) or leaf
    found = [
        in_words(operand, group, size) or _woven(operand, leaf, group, size) for operand in leaf.operands
    ]
    operands = tuple(operand for operand in found if operand is not None)
    if len(operands) < len(found):
        return leaf
    woven = {o.name for o in leaf.operands if group in o.indexes and o.stride(group) != 1}
    block = without_group(leaf.block, leaf.block.tag_values("group")[0], woven)
    ranges = {name: count for name, count in leaf.ranges.items() if name != group}
    return Leaf(block, ranges, operands, leaf.constraints)


def moves_only(block: Block) -> bool:
    """Whether a leaf does no more than to move elements."""
    return all(isinstance(s, Load | Store) for s in block.statements)


def moved_groups(leaf: Leaf) -> tuple[str, ...]:
    """The indexes of a leaf's block that run through words which it moves, none of them tagged so far."""
    if not moves_only(leaf.block) or leaf.block.has_tag("group"):
        return ()
    return tuple(name for name, index in _names(leaf).items() if _moved(leaf, index) is not None)


def _names(leaf: Leaf) -> dict[str, str]:
    """What the indexes of a leaf's block are called in the nest."""
    own = tuple(leaf.block.ranges)
    return dict(zip(own, tuple(leaf.ranges)[len(leaf.ranges) - len(own) :], strict=True))


def _moved(leaf: Leaf, group: str) -> Leaf | None:
    """A leaf that moves words of the elements along an index, as one with words for elements; None if it
    does not."""
    size = leaf.ranges[group]
    if size == 1 or any(group in expr.names for expr in leaf.constraints):
        return None
    found = [_word(operand, group, size) for operand in leaf.operands]
    operands = tuple(operand for operand in found if operand is not None)
    if len(operands) < len(found) or any(o.combines for o in operands):
        return None
    starts = (Affine.weighted(o.access, o.strides).const for o in leaf.operands)
    if any(start % size for start in starts):
        return None
    index = next(name for name, called in _names(leaf).items() if called == group)
    ranges = {name: count for name, count in leaf.ranges.items() if name != group}
    return Leaf(moving_words(without_group(leaf.block, index), size), ranges, operands, leaf.constraints)


def moving_words(block: Block, size: int) -> Block:
    """A block that moves elements as one that moves words of `size` of them, as far as scalars say so."""

    def moved(statement: Statement) -> Statement:
        if not isinstance(statement, Load):
            return statement
        return replace(statement, dtype=WORDS[statement.dtype.bytes * size])

    return replace(block, statements=tuple(map(moved, block.statements)))


def place_in_words(place: Affine, group: str, size: int, dtype: DType) -> tuple[DType, Affine] | None:
    """The place of an element in memory as that of a word of `size` of them along an index, which is its own;
    and the words' type. None where these are no words."""
    word, words = WORDS.get(dtype.bytes * size), place.without({group}).divided(size)
    if word is None or words is None or place.coefficient(group) != 1:
        return None
    return word, words


def without_group(block: Block, index: str, woven: Collection[str] = ()) -> Block:
    """The block without the index of its group, and without conversions, but for those that stand for what it
    takes to weave the rows of `woven` operands."""
    rows = {s.result for s in block.statements if isinstance(s, Load) and s.buffer in woven}
    return replace(
        block,
        indexes=tuple(i for i in block.indexes if i.name != index),
        statements=tuple(s for s in block.statements if not isinstance(s, Cast) or s.operand in rows),
        tags=tuple(t for t in block.tags if t.name != "group"),
    )


def _woven(operand: Operand, leaf: Leaf, group: str, size: int) -> Operand | None:
    """An operand that lies as rows, of which as many as a group has are woven into words in registers: each
    point touches one element of each of these. None if it is none."""
    held = [dim for dim, expr in enumerate(operand.access) if expr.coefficient(group)]
    lanes = [name for o in leaf.operands if o.direction.writes for name in o.indexes if o.stride(name) == 1]
    if len(held) != 1 or operand.direction.writes or len(lanes) != 1 or operand.stride(lanes[0]) != 1:
        return None
    (dim,) = held
    if operand.access[dim].coefficient(lanes[0]) or operand.extent[dim] != 1:
        return None
    access, extent = list(operand.access), list(operand.extent)
    access[dim], extent[dim] = access[dim].without({group}), (size - 1) * access[dim].coefficient(group) + 1
    return replace(operand, access=tuple(access), extent=tuple(extent))


def in_words(operand: Operand, group: str, size: int) -> Operand | None:
    """An operand as words of `size` elements along an index; None where these are no words of memory,
    or words and groups overlap."""
    if operand.direction.writes:
        return None if group in operand.indexes else operand
    return _word(operand, group, size)


def _word(operand: Operand, group: str, size: int) -> Operand | None:
    word = WORDS.get(operand.dtype.bytes * size)
    held = [dim for dim, expr in enumerate(operand.access) if expr.coefficient(group)]
    if word is None or len(held) != 1 or operand.stride(group) != 1:
        return None
    access, strides = list(operand.access), list(operand.strides)
    for dim, expr in enumerate(operand.access):
        if dim != held[0]:
            if operand.local and strides[dim] == 1:
                continue  # a buffer of each point has a dimension for the points, which is none in memory
            if expr.terms and strides[dim] % size:
                return None
            strides[dim] //= size
            continue
        rest = expr.without({group})
        words = (rest - rest.const).divided(size)
        if words is None:
            return None
        access[dim] = words + rest.const // size
    return replace(operand, dtype=word, access=tuple(access), strides=tuple(strides))
