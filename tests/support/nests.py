"""Turning a flat block of a random program into a nest, keeping what it computes.

The points of the flat block are kept as arrays beside the nest. They tell, by looking, whether
each element is written in one point of a level, so whether that level may say `assign`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stripe.affine import Affine
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    IndexValue,
    Load,
    Refinement,
    Store,
    Tag,
    contiguous,
)
from stripe.names import Names
from stripe.visit import substitute_indexes

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Points:
    """The executed points of a block: values of its ranged indexes, which execution of the block
    each belongs to, and the element that each writes, by local name of the view."""

    values: Mapping[str, Ints]
    execution: Ints
    written: Mapping[str, Ints]


def all_points(indexes: Sequence[Index], constraints: Sequence[Affine]) -> dict[str, Ints]:
    """The points of a block without passed indexes, by enumeration; none is named without indexes."""
    if not indexes:
        return {}
    grid = np.indices([index.range for index in indexes]).reshape(len(indexes), -1)
    values = {index.name: grid[at] for at, index in enumerate(indexes)}
    inside = np.ones(grid.shape[1], dtype=bool)
    for constraint in constraints:
        inside &= evaluated(constraint, values, grid.shape[1]) >= 0
    return {name: column[inside] for name, column in values.items()}


def evaluated(expr: Affine, values: Mapping[str, Ints], count: int) -> Ints:
    total = np.full(count, expr.const, dtype=np.int64)
    for name, coefficient in expr.terms:
        total += coefficient * values[name]
    return total


def numbered(*columns: Ints) -> Ints:
    """One number for each distinct row of the columns."""
    rows = np.stack(columns, axis=1)
    inverse: Ints = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return inverse


def written_once(element: Ints, writer: Ints) -> bool:
    """Whether no element has two different writers."""
    pairs = np.unique(np.stack([element, writer], axis=1), axis=0)
    return len(np.unique(pairs[:, 0])) == len(pairs)


def nest(
    block: Block, points: Points, depth: int, rng: random.Random, ops: Mapping[str, list[Aggregation]]
) -> Block:
    """`block` as a nest of `depth` levels. `ops` gives, by view, the ops that a level may name
    where one write is all there is."""
    if depth <= 1:
        return block
    outer, inner, inner_points = _split(block, points, rng, ops)
    below = nest(inner, inner_points, depth - 1, rng, {})
    if below is inner and rng.random() < 0.4:
        staged = _stage(outer, inner, rng)
        if staged is not None:
            return staged
    return replace(outer, statements=(below,))


def _split(
    block: Block, points: Points, rng: random.Random, ops: Mapping[str, list[Aggregation]]
) -> tuple[Block, Block, Points]:
    """Cut each range into tiles. Ragged edges become constraints of the inner block, which gets
    the outer indexes passed in; views of the outer block are bounding boxes."""
    names = Names(index.name for index in block.indexes)
    sizes = {i.name: _tile_size(i.range, rng) for i in block.indexes if i.passed is None}
    outer_indexes: list[Index] = [i for i in block.indexes if i.passed is not None]
    inner_indexes: list[Index] = []
    passed: list[Index] = [Index(i.name, 1, Affine.index(i.name)) for i in outer_indexes]
    whole: dict[str, Affine] = {}  # an index of `block`, in terms of the inner block
    constraints: list[Constraint] = list(block.constraints)
    for index in block.indexes:
        if index.passed is not None:
            continue
        size = sizes[index.name]
        count = -(-index.range // size)
        keep_inner = size > 1 or rng.random() < 0.2
        whole[index.name] = Affine.index(index.name) if keep_inner else Affine()
        if keep_inner:
            inner_indexes.append(Index(index.name, size))
        if count > 1 or rng.random() < 0.2:
            outer_indexes.append(Index(index.name, count))
            outer_name = names.fresh(f"{index.name}o")
            passed.append(Index(outer_name, 1, Affine.index(index.name, size)))
            whole[index.name] += Affine.index(outer_name)
        if index.range % size:
            constraints.append(Constraint(Affine.index(index.name, -1) + (index.range - 1)))
    kept_outside = {index.name for index in outer_indexes}
    tiles = {n: Affine.index(n, size) if n in kept_outside else Affine() for n, size in sizes.items()}
    refined = [_split_view(ref, tiles, inner_indexes) for ref in block.refinements]
    inner = substitute_indexes(replace(block, constraints=tuple(constraints)), whole)
    coarse = {name: values // sizes[name] for name, values in points.values.items()}
    fine = {index.name: points.values[index.name] % index.range for index in inner_indexes}
    inner_points = Points(fine, numbered(points.execution, *coarse.values()), points.written)
    pairs = [_aggregated(o, i, points, inner_points, rng, ops) for o, i in refined]
    used = {n for c in inner.constraints for n in c.expr.names}
    used |= {n for s in inner.statements if isinstance(s, IndexValue) for n in s.expr.names}
    kept = [i for i in passed if i.name in used or rng.random() < 0.2]
    rng.shuffle(outer_indexes)
    outer_block = Block(
        block.name, tuple(outer_indexes), (), tuple(o for o, _ in pairs if o is not None),
        tags=(Tag("tiled"),) if rng.random() < 0.5 else (),
    )  # fmt: skip
    inner = replace(
        inner, name=f"{block.name}_inner", indexes=(*inner_indexes, *kept),
        refinements=tuple(i for _, i in pairs),
    )  # fmt: skip
    return outer_block, inner, inner_points


def _tile_size(extent: int, rng: random.Random) -> int:
    return rng.choice((1, extent, rng.randint(1, extent), rng.randint(1, extent)))


def _split_view(
    ref: Refinement, tiles: Mapping[str, Affine], inner: Sequence[Index]
) -> tuple[Refinement | None, Refinement]:
    """The outer block's bounding box, and the inner block's view of it."""
    if ref.direction is Direction.NEW:
        return None, ref
    box = {index.name: (0, index.range - 1) for index in inner}
    origin: list[Affine] = []
    access: list[Affine] = []
    shape: list[int] = []
    for expr, extent in zip(ref.access, ref.shape, strict=True):
        local = expr.only(frozenset(box))
        low, high = local.bounds(box)
        origin.append(expr.substitute(tiles) + low)
        access.append(local - low)
        shape.append(high - low + extent)
    outer = replace(ref, access=tuple(origin), shape=tuple(shape))
    return outer, replace(ref, source=ref.name, access=tuple(access))


def _aggregated(
    outer: Refinement | None,
    inner: Refinement,
    points: Points,
    below: Points,
    rng: random.Random,
    ops: Mapping[str, list[Aggregation]],
) -> tuple[Refinement | None, Refinement]:
    """Both views with directions and aggregations drawn from the legal ones."""
    if outer is None or outer.aggregation is None:
        return outer, inner
    op = outer.aggregation
    element = points.written[outer.name]
    writers = [points.execution, below.execution, numbered(below.execution, *below.values.values())]
    once_outside = written_once(numbered(writers[0], element), writers[1])
    once_inside = written_once(numbered(writers[1], element), writers[2])
    assign = Aggregation.ASSIGN
    choices: list[tuple[Aggregation, Direction, Aggregation]] = []
    if op is assign:
        choices.append((assign, outer.direction, assign))
        if outer.direction is Direction.OUT:
            for other in ops.get(outer.name, []):
                choices += [(assign, Direction.OUT, other), (other, Direction.OUT, assign)]
    else:
        choices.append((op, Direction.OUT, op))
        if once_outside:
            choices.append((assign, outer.direction, op))
        if once_inside:
            choices.append((op, Direction.OUT, assign))
    above, direction, within = rng.choice(choices)
    return replace(outer, aggregation=above), replace(inner, direction=direction, aggregation=within)


def _stage(outer: Block, inner: Block, rng: random.Random) -> Block | None:
    """Copy what the inner block reads of one buffer to a new one first, and read that instead."""
    loads = [s for s in inner.statements if isinstance(s, Load)]
    inputs = [r for r in inner.refinements if r.direction is Direction.IN]
    inputs = [r for r in inputs if sum(s.buffer == r.name for s in loads) == 1]
    if not inputs:
        return None
    ref = rng.choice(inputs)
    ranged = [index for index in inner.indexes if index.passed is None]
    shape = tuple(index.range for index in ranged)
    name = Names(r.name for r in (*outer.refinements, *inner.refinements)).fresh("T")
    access = tuple(Affine.index(index.name) for index in ranged)
    ones = (1,) * len(shape)
    buffer = Refinement(Direction.NEW, name, shape, ref.dtype, strides=some_strides(shape, rng))
    copy = Block(
        f"{inner.name}_stage", inner.indexes, inner.constraints,
        (ref, Refinement(Direction.OUT, name, ones, ref.dtype, name, access, Aggregation.ASSIGN)),
        (Load("copied", ref.name, ref.dtype), Store(name, "copied")),
    )  # fmt: skip
    view = replace(ref, source=name, access=access, shape=ones)
    use = replace(inner, refinements=tuple(view if r is ref else r for r in inner.refinements))
    return replace(outer, refinements=(*outer.refinements, buffer), statements=(copy, use))


def some_strides(shape: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """Strides of an allocation without overlap: row-major, padded, or with dimensions permuted."""
    if rng.random() < 0.6:
        return contiguous(shape)
    order = list(range(len(shape)))
    rng.shuffle(order)
    padded = contiguous(tuple(shape[d] + rng.randint(0, 1) for d in order))
    strides = [0] * len(shape)
    for at, dimension in enumerate(order):
        strides[dimension] = padded[at]
    return tuple(strides)
