"""The meaning of a Stripe program, executed with NumPy: the oracle that all else is checked against.

`interpret` runs any program at any stage, typed and complete, whether it was verified or not. An
access outside of a view, a read of what was not written, is aggregated, or was written by another
point, and two points that assign one element are errors when they happen. Tags, locations,
strides and `inflight` have no meaning. docs/architecture.md, "The meaning of a program", says in
words what `execute`, `_enter`, `_load`, `_store` and `_commit` do.

A block runs statement by statement on a batch of points, its own and those around it, as
stripe.interp_data explains. Each execution of a block collects the writes to each `out` view
in a buffer of its own and at its end hands one result for each written element to its parent.

Inputs
  I001  an input is missing, or there is none of that name
  I002  an input has another element type or shape than the program says
Programs that can't be run
  I010  blocks nested too deeply, a tensor of too many dimensions, too many points, too much memory
  I011  an unknown buffer, scalar, index, intrinsic or special
  I012  ranks or element types that don't fit, or a constant that its type can't hold
  I013  an affine expression that leaves the range of 48 bits
Programs that go wrong when run
  I020  an access outside a view or its allocation
  I021  a load of an element that was not written
  I022  two points write one element of an `assign` view
  I023  a load of what this block aggregates into, or of what another point wrote
  I024  an element of an output that was not written
  I025  a write through a view that is not `out` or `inout`, or a read through one that is `out`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from stripe.diag import CompileError, Diagnostic
from stripe.interp_checks import Names, check_depth, check_inputs, fitting, weigh
from stripe.interp_data import ZERO, Array, Buffer, Storage, origin
from stripe.interp_run import Batch, View, execute
from stripe.ir import Block, Direction, Program, Refinement


class Engine(Protocol):
    """Who runs a root block: where its inputs and outputs lie, and what goes through its statements."""

    def buffer(self, ref: Refinement, given: Array | None) -> Storage: ...
    def run(self, root: Block, outer: Batch, weights: Mapping[int, int]) -> None: ...


class _Batches:
    """Buffers of their own for everything, batches of points as large as they can be."""

    def buffer(self, ref: Refinement, given: Array | None) -> Storage:
        if ref.direction is Direction.IN:
            assert given is not None
            return Buffer.given(given, ref.dtype)
        buffer = Buffer.empty(ref.dtype, fitting(ref.shape, (), ref.name), (), None)
        if given is not None:
            buffer.data[:] = given.reshape(-1)
            buffer.old = np.ones(buffer.data.shape, np.bool_)
        return buffer

    def run(self, root: Block, outer: Batch, weights: Mapping[int, int]) -> None:
        execute(root, outer, weights)


def interpret(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run `program` and give its outputs by name, in the order of the signature.

    `inputs` holds an array for each `in` and `inout` of the root that the load-time program
    does not make; their layout is free and they are not changed. Outputs are fresh and
    row-major. Raises CompileError with the codes above.
    """
    return interpret_with(program, inputs, lambda root: _Batches())


def interpret_with(
    program: Program, inputs: Mapping[str, Array], engine_of: Callable[[Block], Engine]
) -> dict[str, Array]:
    """`interpret`, by an engine that is made for each root block."""
    try:
        with np.errstate(all="ignore"):
            return _run(program, inputs, engine_of)
    except MemoryError as error:
        raise CompileError(
            Diagnostic("I010", f"not enough memory to interpret the program: {error}")
        ) from None


def _run(
    program: Program, inputs: Mapping[str, Array], engine_of: Callable[[Block], Engine]
) -> dict[str, Array]:
    blocks = [b for b in (program.load, program.root) if b is not None]
    for block in blocks:
        check_depth(block)
    made = {r.name for r in program.load.refinements if r.direction.writes} if program.load else set[str]()
    check_inputs(
        [r for b in blocks for r in b.refinements if r.direction.reads and r.name not in made], inputs
    )
    values = dict(inputs)
    for block in blocks:
        results = _run_root(block, values, engine_of(block))
        values |= results
    return results


def _run_root(root: Block, values: Mapping[str, Array], engine: Engine) -> dict[str, Array]:
    """Run a root block as the child of one point that holds the whole buffers."""
    named = (r if r.direction is Direction.NEW else replace(r, source=r.name) for r in root.refinements)
    root = replace(root, refinements=tuple(named))
    views = Names[View]("", "buffer")
    for ref in root.refinements:
        if ref.direction is not Direction.NEW:
            start = origin(len(ref.shape))
            given = np.asarray(values[ref.name]) if ref.direction.reads else None
            spans = ((0, 0),) * len(ref.shape)
            views[ref.name] = View(ref, "", None, start, spans, engine.buffer(ref, given), start, ZERO)
    weights: dict[int, int] = {}
    weigh(root, root.name, {name: view.ref for name, view in views.items()}, weights)
    around = Batch(Block(""), "", None, (), Names("", "index"), {}, np.asarray(True), views)
    engine.run(root, around, weights)
    results: dict[str, Array] = {}
    for name, view in views.items():
        if view.ref.direction.writes:
            results[name], written = view.buffer.results()
            if view.ref.direction is Direction.OUT and not written.all():
                at = ", ".join(map(str, np.argwhere(~written)[0]))
                message = f"output '{name}' was not written whole: element [{at}] has no value"
                count = f"{np.count_nonzero(~written)} of {written.size} elements are missing"
                raise CompileError(Diagnostic("I024", message, view.ref.span, (count,)))
    return results
