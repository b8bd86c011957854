"""Arrays of one dimension that a program uses as arrays of several.

    before:  in A[1200*i + k] (1200000):(1)      out C[1100*i + j] (1100000):(1)
    after:   in A[i, k] (1000, 1200):(1200, 1)   out C[i, j] (1000, 1100):(1100, 1)

Products of such arrays are in Darknet, and in much else that was written in C. What a block touches of `A` is
a box in the second form alone, and tiles, copies and sums in registers are boxes. Only how an access is
written changes, not which element in memory it names. A dimension is taken apart where, for one factor, each
access to it is a multiple of the factor and a remainder that stays below it at every point; a loop that goes
through all of it becomes two loops.
"""

from __future__ import annotations

from dataclasses import replace

from stripe.affine import Affine
from stripe.ir import Block, Index, Load, Program, Refinement, Statement, Store
from stripe.names import Names
from stripe.poly import PolyhedralLimit, block_domain
from stripe.visit import buffers_used, substitute_indexes


def delinearized(program: Program) -> Program:
    """The program with the root's buffers of one dimension taken apart, as far as all that use them allow;
    the same object if there are none. Its signature has other shapes then, of the same elements in memory."""
    root = program.root
    if program.load is None:
        for ref in root.refinements:
            if len(ref.shape) == 1:
                root = _by_digits(root, ref.name)
    return program if root is program.root else replace(program, root=root)


def _by_digits(root: Block, name: str) -> Block:
    """The root with one buffer taken apart: its first dimension, as long as there is a factor, then those
    that come of it."""
    dim = 0
    while dim < len(root.refinement(name).shape):
        tried = (_apart(root, name, dim, factor) for factor in _factors(root, name, dim))
        found = next(filter(None, tried), None)
        dim, root = (dim + 1, root) if found is None else (dim, found)
    return root


def _factors(root: Block, name: str, dim: int) -> list[int]:
    """By which the accesses to a dimension may be taken apart, greatest first."""
    views = [view for block in root.children for view in block.refinements if view.source == name]
    steps = {abs(step) for view in views for _, step in view.access[dim].terms}
    size = root.refinement(name).shape[dim]
    return [step for step in sorted(steps, reverse=True) if 1 < step < size and size % step == 0]


def _apart(root: Block, name: str, dim: int, factor: int) -> Block | None:
    """The root with a dimension of a buffer, and of all views of it, as two; None if there is a use of it
    that does not allow that."""
    statements: list[Statement] = []
    for statement in root.statements:
        if isinstance(statement, Block):
            changed = _in_kernel(statement, name, dim, factor)
            if changed is None:
                return None
            statements.append(changed)
        elif any(used == name for used, _ in buffers_used(statement)):
            return None
        else:
            statements.append(statement)
    own = root.refinement(name)
    whole = _split(own, dim, (Affine(), Affine()), (own.shape[dim] // factor, factor))
    refinements = tuple(whole if ref is own else ref for ref in root.refinements)
    return replace(root, refinements=refinements, statements=tuple(statements))


def _in_kernel(block: Block, source: str, dim: int, factor: int) -> Block | None:
    """A block with its views of a buffer in two dimensions; None unless it loads and stores single elements
    of it, at places that can be taken apart."""
    for name in [view.name for view in block.refinements if view.source == source]:
        view = block.refinement(name)
        by_element = all(
            isinstance(s, Load | Store) or not any(used == name for used, _ in buffers_used(s))
            for s in block.statements
        )
        if view.shape[dim] != 1 or not by_element:
            return None
        block = _in_two_loops(block, view.access[dim], factor)
        view = block.refinement(name)
        access = _digits(block, view.access[dim], factor)
        if access is None:
            return None
        split = _split(view, dim, access, (1, 1))
        block = replace(block, refinements=tuple(split if r is view else r for r in block.refinements))
    return block


def _in_two_loops(block: Block, expr: Affine, factor: int) -> Block:
    """A block in which an index that is an access by itself, and goes beyond the factor, counts multiples of
    it, and another one goes on from there."""
    name = expr.names[0] if len(expr.names) == 1 else ""
    size = block.ranges.get(name, 0)
    if expr != Affine.index(name) or size <= factor or size % factor:
        return block
    low = Names(index.name for index in block.indexes).fresh(name)
    digits = Affine.of({name: factor, low: 1})
    indexes: list[Index] = []
    for index in block.indexes:
        if index.name == name:
            indexes += (replace(index, range=index.range // factor), replace(index, name=low, range=factor))
        else:
            indexes.append(index)
    return replace(substitute_indexes(block, {name: digits}), indexes=tuple(indexes))


def _digits(block: Block, expr: Affine, factor: int) -> tuple[Affine, Affine] | None:
    """An access as how many times the factor, and a remainder from 0 up to the factor; None if it is none."""
    high = Affine.of({name: step // factor for name, step in expr.terms if step % factor == 0})
    low = expr - high * factor
    try:
        points = block_domain(block)
        bounds = None if points.is_empty() else points.bounds(low)
    except PolyhedralLimit:
        return None
    if bounds is None or bounds[1] // factor != bounds[0] // factor:
        return None
    whole = bounds[0] // factor
    return high + whole, low - whole * factor


def _split(ref: Refinement, dim: int, access: tuple[Affine, Affine], sizes: tuple[int, int]) -> Refinement:
    strides = ref.strides
    if strides is not None:
        strides = (*strides[:dim], strides[dim] * sizes[1], strides[dim], *strides[dim + 1 :])
    return replace(
        ref,
        access=(*ref.access[:dim], *access, *ref.access[dim + 1 :]) if ref.access else (),
        shape=(*ref.shape[:dim], *sizes, *ref.shape[dim + 1 :]),
        strides=strides,
    )
