"""The meaning of a program point by point, in plain Python: slow, small, and easy to believe.

A second telling of docs/architecture.md against which the fast interpreter is tested. It
knows no specials and checks neither bounds of inner views nor types. An `Undefined` error says
that a point reads what has no value for it, or that two points assign one element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stripe.intrinsics import cast, evaluate
from stripe.ir import Block, Cast, Constant, Direction, IndexValue, Intrinsic, Load, Program, Store

Array = np.ndarray[Any, Any]
Element = tuple[int, ...]


@dataclass
class View:
    """A view at one point: where its element `e` is read from and what a write to it does."""

    read: Callable[[Element], Array]
    write: Callable[[Element, Array], None]


class Undefined(Exception):
    """The program has no meaning."""


@dataclass
class Execution:
    """The writes that one execution of a block makes to one view, by element of the parent's view."""

    op: str
    point: Element = ()  # the one that runs now
    written: dict[Element, Array] = field(default_factory=dict)
    writer: dict[Element, Element] = field(default_factory=dict)

    def write(self, element: Element, value: Array, start: Array | None = None) -> None:
        if self.op == "assign" and self.writer.setdefault(element, self.point) != self.point:
            raise Undefined(f"two points write {element}")
        old = self.written.get(element, start)
        if old is not None and self.op != "assign":
            value = evaluate(self.op, (old, value))
        self.written[element] = value

    def read(self, element: Element) -> Array | None:
        """What this point wrote, or None."""
        if self.op != "assign":
            raise Undefined(f"{element} is aggregated here")
        if self.writer.get(element, self.point) != self.point:
            raise Undefined(f"another point wrote {element}")
        return self.written.get(element)


def naive_interpret(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    values = dict(inputs)
    for root in filter(None, (program.load, program.root)):
        held = {
            r.name: {e: values[r.name][e] for e in np.ndindex(r.shape)} if r.direction.reads else {}
            for r in root.refinements
            if r.direction is not Direction.NEW
        }
        run_block(root, {}, {name: dictionary_view(elements) for name, elements in held.items()})
        outputs: dict[str, Array] = {}
        for ref in root.refinements:
            if ref.direction.writes:
                outputs[ref.name] = np.empty(ref.shape, ref.dtype.numpy)
                for element in np.ndindex(ref.shape):
                    outputs[ref.name][element] = held[ref.name][element]
        values |= outputs
    return outputs


def dictionary_view(elements: dict[Element, Array]) -> View:
    def read(element: Element) -> Array:
        if element not in elements:
            raise Undefined(f"{element} has no value")
        return elements[element]

    return View(read, elements.__setitem__)


def run_block(block: Block, outer_point: Mapping[str, int], outer: Mapping[str, View]) -> None:
    executions = {r.name: Execution(r.aggregation.value) for r in block.refinements if r.aggregation}
    for values in itertools.product(*(range(n) for n in block.ranges.values())):
        point = dict(zip(block.ranges, values, strict=True))
        point |= {i.name: i.passed.evaluate(outer_point) for i in block.indexes if i.passed is not None}
        for execution in executions.values():
            execution.point = values
        if all(c.expr.evaluate(point) >= 0 for c in block.constraints):
            run_point(block, point, outer, executions)
    for ref in block.refinements:
        if ref.name in executions:
            for element, value in executions[ref.name].written.items():
                outer[ref.source or ref.name].write(element, value)


def run_point(
    block: Block, point: Mapping[str, int], outer: Mapping[str, View], executions: Mapping[str, Execution]
) -> None:
    views: dict[str, View] = {}
    for ref in block.refinements:
        if ref.direction is Direction.NEW:
            views[ref.name] = dictionary_view({})
            continue
        origin = tuple(expr.evaluate(point) for expr in ref.access)
        views[ref.name] = moved(
            outer[ref.source or ref.name], origin, executions.get(ref.name), ref.direction
        )
    scalars: dict[str, Array] = {}
    for statement in block.statements:
        match statement:
            case Block():
                run_block(statement, point, views)
            case Load(result=result, buffer=buffer):
                origin = (0,) * len(block.refinement(buffer).shape)
                scalars[result] = np.asarray(views[buffer].read(origin))
            case Store(buffer=buffer, value=value):
                views[buffer].write((0,) * len(block.refinement(buffer).shape), scalars[value])
            case Constant(result=result, value=constant, dtype=dtype):
                scalars[result] = np.asarray(constant).astype(dtype.numpy)
            case IndexValue(result=result, expr=expr, dtype=dtype):
                scalars[result] = np.asarray(expr.evaluate(point)).astype(dtype.numpy)
            case Cast(result=result, operand=operand, dtype=dtype):
                scalars[result] = cast(scalars[operand], dtype)
            case Intrinsic(result=result, op=op, operands=operands):
                scalars[result] = evaluate(op, tuple(scalars[o] for o in operands))
            case _:
                raise NotImplementedError(statement)


def moved(outer: View, origin: Element, execution: Execution | None, direction: Direction) -> View:
    """The part of `outer` that starts at `origin`; writes go to the block's execution."""

    def place(element: Element) -> Element:
        return tuple(o + e for o, e in zip(origin, element, strict=True))

    if execution is None:
        return View(lambda e: outer.read(place(e)), lambda e, v: outer.write(place(e), v))

    def read(element: Element) -> Array:
        own = execution.read(place(element))
        if own is not None:
            return own
        if direction is Direction.OUT:
            raise Undefined(f"{place(element)} has no value")
        return outer.read(place(element))

    def write(element: Element, value: Array) -> None:
        folds = direction is Direction.INOUT and execution.op != "assign"
        start = outer.read(place(element)) if folds and place(element) not in execution.written else None
        execution.write(place(element), value, start)

    return View(read, write)
