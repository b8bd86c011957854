"""What stripe.interp asks of a program and its inputs before it runs anything, and how large it gets.

The codes of the errors are listed in stripe.interp.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import TensorType
from stripe.interp_data import Array, Grid
from stripe.ir import SLOT, Block, Direction, Refinement, Special

_MAX_DEPTH = 100  # blocks in blocks; each level takes three frames of Python's stack
_MAX_RANK = 16
_MAX_POINTS = 1 << 40  # of one block in one context: hours
_MAX_ELEMENTS = 1 << 31  # of one buffer, over all contexts of a batch

T = TypeVar("T")


class Names(dict[str, T]):
    """What a name stands for in a block; an unknown one is a CompileError."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__()
        self._path, self._kind = path, kind

    def __missing__(self, name: str) -> T:
        message = f"block {self._path} uses the {self._kind} '{name}', which it does not have"
        raise CompileError(Diagnostic("I011", message, notes=did_you_mean(name, self)))


def check_depth(root: Block) -> None:
    """Without recursion: what comes after recurses."""
    level = [root]
    for _ in range(_MAX_DEPTH):
        level = [child for block in level for child in block.children]
        if not level:
            return
    message = f"blocks are nested more than {_MAX_DEPTH} deep, which is more than can be interpreted"
    raise CompileError(Diagnostic("I010", message, level[0].span))


def check_indexes(block: Block, path: str, outer: Collection[str]) -> None:
    """Every index that the tree uses is there: an unknown one is a CompileError."""
    known = {index.name: None for index in block.indexes}
    new = {**known, SLOT: None}
    exprs = [(c.expr, known) for c in block.constraints]
    locations = [(block.location, known)] if block.location is not None else []
    for ref in block.refinements:
        exprs += [(expr, known) for expr in ref.access]
        if ref.location is not None:
            locations.append((ref.location, new if ref.direction is Direction.NEW else known))
    for location, names in locations:
        exprs += [(expr, names) for expr in (location.bank, location.address) if expr is not None]
    exprs += [(i.passed, dict.fromkeys(outer)) for i in block.indexes if i.passed is not None]
    for expr, names in exprs:
        for name in expr.names:
            if name not in names:
                message = f"block {path} uses the index '{name}', which it does not have"
                raise CompileError(Diagnostic("I011", message, block.span, did_you_mean(name, names)))
    for child in block.children:
        check_indexes(child, f"{path}/{child.name}", known)


def check_inputs(wanted: Sequence[Refinement], inputs: Mapping[str, Array]) -> None:
    found: list[Diagnostic] = []
    names = {ref.name: None for ref in wanted}
    for name in inputs:
        if name not in names:
            notes = did_you_mean(name, names)
            found.append(Diagnostic("I001", f"the program has no input '{name}'", notes=notes))
    for ref in wanted:
        expected = TensorType(ref.dtype, ref.shape)
        if ref.name not in inputs:
            if names.pop(ref.name, ref) is None:
                message = f"input '{ref.name}' ({expected}) is missing"
                found.append(Diagnostic("I001", message, ref.span))
            continue
        array = np.asarray(inputs[ref.name])
        if array.dtype != ref.dtype.numpy or array.shape != ref.shape:
            given = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
            message = f"input '{ref.name}' is {given}, the program takes {expected}"
            found.append(Diagnostic("I002", message, ref.span))
    if found:
        raise CompileError(*found)


def weigh(block: Block, path: str, outer: Mapping[str, Refinement], weights: dict[int, int]) -> int:
    """How many elements one point of `block` keeps alive, about; noted for each block below it.

    Checks on the way that refinements fit what they refine.
    """
    views = Names[Refinement](path, "buffer")
    if (points := block.points) > _MAX_POINTS:
        message = f"block {path} has {points} points, which is more than can be interpreted"
        raise CompileError(Diagnostic("I010", message, block.span))
    weight = 1 + len(block.statements) + len(block.refinements)
    for ref in block.refinements:
        views[ref.name] = ref
        if len(ref.shape) > _MAX_RANK:
            message = f"'{ref.name}' of block {path} has more than {_MAX_RANK} dimensions"
            raise CompileError(Diagnostic("I010", message, ref.span))
        if ref.direction is Direction.NEW:
            weight += 2 * math.prod(ref.shape)
        else:
            _check_refinement(ref, outer[ref.source], path)
    below = 0
    for statement in block.statements:
        if isinstance(statement, Block):
            inner = weigh(statement, f"{path}/{statement.name}", views, weights)
            below = max(below, inner + _results_weight(statement, views))
        elif isinstance(statement, Special):
            below = max(below, sum(math.prod(o.shape or views[o.buffer].shape) for o in statement.operands))
    weights[id(block)] = weight + below
    return weight + below


def _check_refinement(ref: Refinement, source: Refinement, path: str) -> None:
    code, message = "I012", ""
    if not len(ref.access) == len(ref.shape) == len(source.shape):
        message = f"has not the rank of '{source.name}', which is {len(source.shape)}"
    elif ref.dtype is not source.dtype:
        message = f"holds {ref.dtype.value}, but '{source.name}' holds {source.dtype.value}"
    elif ref.direction.writes and ref.aggregation is None:
        message = "is written and has no aggregation"
    elif ref.direction.writes and source.direction is Direction.IN:
        code, message = "I025", f"is written, but '{source.name}' is an `in` view"
    if message:
        raise CompileError(Diagnostic(code, f"'{ref.name}' of block {path} {message}", ref.span))


def _results_weight(block: Block, outer: Mapping[str, Refinement]) -> int:
    """The size of the buffers that collect what one execution of `block` writes."""
    return sum(
        2
        * math.prod(
            min(reach(e, n, block), m)
            for e, n, m in zip(r.access, r.shape, outer[r.source].shape, strict=True)
        )
        for r in block.refinements
        if r.direction.writes
    )


def fitting(shape: tuple[int, ...], grid: Grid, name: str) -> tuple[int, ...]:
    """`shape`, unless a buffer of this shape in each context of `grid` is too large to hold."""
    if math.prod(shape) * math.prod(grid) > _MAX_ELEMENTS:
        raise CompileError(Diagnostic("I010", f"'{name}' of shape {shape} is too large to be interpreted"))
    return shape


def reach(expr: Affine, size: int, block: Block) -> int:
    """How many elements the views of all points of `block` span in a dimension."""
    ranges = block.ranges
    return size + sum(abs(c) * (ranges[n] - 1) for n, c in expr.terms if n in ranges)


def least(expr: Affine, block: Block) -> Affine:
    """The least value of `expr` over the ranges of `block`, over the indexes of its parent."""
    return expr.substitute(
        {
            i.name: i.passed or Affine(i.range - 1 if expr.coefficient(i.name) < 0 else 0)
            for i in block.indexes
        }
    )
