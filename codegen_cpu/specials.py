"""The specials of stripe.specials as loops.

    gather   for each element of the result: clamp the index, copy
    scatter  for each update, in row-major order: fold it in unless its index lies outside

Shapes: data (..., n, ...), index (i...), result or updates (..., i..., ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from codegen_cpu.access import SCALAR, Place
from codegen_cpu.layout import View
from codegen_cpu.ll import I64, Value, constant
from codegen_cpu.scalars import NARROW_FLOATS
from codegen_cpu.tools import Tools
from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Aggregation, Direction, Operand, Refinement, Special, contiguous

Scratch = Callable[[Refinement], View]  # memory for a buffer of the special's own
Emitter = Callable[[Tools, Special, Mapping[str, View], Mapping[str, Affine], Scratch], None]
Position = Sequence[Affine]  # of an element in an operand, over loop variables


def _gather(
    tools: Tools, special: Special, views: Mapping[str, View], indexes: Mapping[str, Affine], scratch: Scratch
) -> None:
    data, index, result = (_part(o, views, indexes) for o in special.operands)
    axis, rank = _axis(special), len(index.shape)
    target = _under(result, special.operands[2].aggregation or Aggregation.ASSIGN)
    last = max(data.shape[axis] - 1, 0)
    with _loops(tools, result.shape) as position:
        value = _load_index(tools, index, position[axis : axis + rank])
        value = tools.f.intrinsic("smin", [value, constant(I64, last)])
        value = tools.f.intrinsic("smax", [value, constant(I64, 0)])
        chosen = tools.indexing.name(value, (0, last))
        _copy(tools, data, [*position[:axis], chosen, *position[axis + rank :]], target, position)


def _scatter(
    tools: Tools, special: Special, views: Mapping[str, View], indexes: Mapping[str, Affine], scratch: Scratch
) -> None:
    updates, index, base = (_part(o, views, indexes) for o in special.operands)
    axis, rank = _axis(special), len(index.shape)
    how = special.operands[2].aggregation or Aggregation.ASSIGN
    target = _under(base, how)
    rounds = base.buffer.dtype in NARROW_FLOATS and how in (Aggregation.ADD, Aggregation.MUL)
    if rounds and base.how is Aggregation.ASSIGN:  # added up in f32, and rounded once
        strides = contiguous(base.shape)
        wide = scratch(Refinement(Direction.NEW, "wide", base.shape, DType.F32, strides=strides))
        _copy_all(tools, base, wide)
        target = _under(wide, how)
    size = base.shape[axis]
    # The index array outermost: of two updates of an element, the later one counts.
    order = [*range(axis, axis + rank), *range(axis), *range(axis + rank, len(updates.shape))]
    with _loops(tools, updates.shape, order) as position:
        value = _load_index(tools, index, position[axis : axis + rank])
        inside = tools.f.compare("icmp ult", value, constant(I64, size))  # negative ones are large
        end = tools.indexing.guarded(inside)
        chosen = tools.indexing.name(value, (0, max(size - 1, 0)))
        _copy(tools, updates, position, target, [*position[:axis], chosen, *position[axis + rank :]])
        tools.f.branch(end)
        tools.f.start(end)
    if target.buffer is not base.buffer:
        _copy_all(tools, target, replace(base, how=Aggregation.ASSIGN))


SPECIAL_EMITTERS: dict[str, Emitter] = {"gather": _gather, "scatter": _scatter}


# -- parts -----------------------------------------------------------------------------------


def _axis(special: Special) -> int:
    axis = dict(special.params)["axis"]
    assert isinstance(axis, int)
    return axis


def _part(operand: Operand, views: Mapping[str, View], indexes: Mapping[str, Affine]) -> View:
    """The part of a view that an operand names, as a view."""
    view = views[operand.buffer]
    origin = view.origin
    if operand.access is not None:
        moved = (expr.substitute(indexes) for expr in operand.access)
        origin = tuple(a + b for a, b in zip(origin, moved, strict=True))
    shape = view.shape if operand.shape is None else operand.shape
    return replace(view, origin=origin, shape=shape)


def _under(view: View, how: Aggregation) -> View:
    """The view as it is written: an enclosing aggregation goes over the operand's own."""
    return replace(view, how=how) if view.how is Aggregation.ASSIGN else view


def _element(view: View, position: Position) -> Place:
    offset = view.offset
    for at, stride in zip(position, view.strides, strict=True):
        offset = offset + at * stride
    return Place(view.buffer, offset)


def _copy(tools: Tools, source: View, at: Position, target: View, to: Position) -> None:
    """Write one element of a view to one of another, by the other's aggregation."""
    found = tools.load(_element(source, at), SCALAR, source.buffer.dtype)
    place = _element(target, to)
    if target.how is Aggregation.ASSIGN:
        tools.put(found.value, place, SCALAR)
    else:
        tools.fold(target.how, found, place, SCALAR)


def _copy_all(tools: Tools, source: View, target: View) -> None:
    with _loops(tools, source.shape) as position:
        _copy(tools, source, position, target, position)


def _load_index(tools: Tools, index: View, position: Position) -> Value:
    """An element of the index array as i64; those of u64 that are too large become its limit."""
    dtype = index.buffer.dtype
    scalar = tools.load(_element(index, position), SCALAR, dtype)
    if dtype is DType.U64:
        return tools.f.intrinsic("umin", [scalar.value, constant(I64, (1 << 63) - 1)])
    return tools.arithmetic.cast(scalar, DType.I64).value


@contextmanager
def _loops(
    tools: Tools, shape: tuple[int, ...], order: Sequence[int] | None = None
) -> Iterator[list[Affine]]:
    """Loops over all positions of a box, outermost dimension first unless `order` says otherwise."""
    position = [Affine() for _ in shape]
    opened = []
    for dim in order if order is not None else range(len(shape)):
        if shape[dim] == 1:
            continue
        bounds = (0, max(shape[dim] - 1, 0))
        loop = tools.indexing.open("e", constant(I64, 0), constant(I64, shape[dim]), 1, bounds)
        position[dim] = loop.value
        opened.append(loop)
    yield position
    for loop in reversed(opened):
        tools.indexing.close(loop)
