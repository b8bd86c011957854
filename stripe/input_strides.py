"""Inputs of a program that lie in memory otherwise than row-major.

    X = whole[::2, ::-1]              strides (2 * 100, -1):   R[i, j] = X[i, 9 - j] of strides (200, 1)
    X = row, the same for all of i    strides (0, 1):          R[i, j] = X[0, j]     of shape (1, 10)

What lies backwards along a dimension begins, in memory, at its other end, and what repeats is there once:
so strides stay positive, and it shows in the accesses, where every pass sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stripe.affine import Affine
from stripe.ir import Block, Program, Refinement
from stripe.visit import buffers_used

Steps = tuple[int, ...]  # elements by which memory moves on with each dimension: the strides of an array


def takes_strides(program: Program, name: str, steps: Steps) -> bool:
    """Whether `with_strides` can bring an input to these strides: constants are not laid out anew, and what
    is read as a whole, or in larger views, does not go backwards."""
    ref = program.root.refinement(name)
    if ref.const or 0 in ref.shape or program.load is not None:
        return False
    if all(step > 0 for step in steps):
        return True
    for statement in program.root.statements:
        if isinstance(statement, Block):
            views = [r for r in statement.refinements if r.source == name]
            if any(set(view.shape) > {1} for view in views):
                return False
        elif any(used == name for used, _ in buffers_used(statement)):
            return False
    return True


def with_strides(program: Program, strides: Mapping[str, Steps]) -> Program:
    """The program on inputs of these strides, which `takes_strides` allows."""
    root = program.root
    shapes = {ref.name: ref.shape for ref in root.refinements}
    refinements = tuple(
        _laid(ref, strides[ref.name]) if ref.name in strides else ref for ref in root.refinements
    )
    turned = {name: steps for name, steps in strides.items() if min(steps, default=1) <= 0}
    statements = tuple(_led(s, shapes, turned) if isinstance(s, Block) else s for s in root.statements)
    return replace(program, root=replace(root, refinements=refinements, statements=statements))


def _laid(ref: Refinement, steps: Steps) -> Refinement:
    shape = tuple(size if step else 1 for size, step in zip(ref.shape, steps, strict=True))
    return replace(ref, shape=shape, strides=tuple(abs(step) or 1 for step in steps))


def _led(block: Block, shapes: Mapping[str, Steps], turned: Mapping[str, Steps]) -> Block:
    """A kernel, with accesses to inputs that go the other way, or nowhere."""
    if not any(ref.source in turned for ref in block.refinements):
        return block

    def led(ref: Refinement) -> Refinement:
        if ref.source not in turned:
            return ref
        sides = zip(ref.access, shapes[ref.source], turned[ref.source], strict=True)
        access = tuple(_other_way(expr, size, step) for expr, size, step in sides)
        return replace(ref, access=access)

    return replace(block, refinements=tuple(map(led, block.refinements)))


def _other_way(expr: Affine, size: int, step: int) -> Affine:
    if step > 0:
        return expr
    return Affine(size - 1) - expr if step else Affine()
