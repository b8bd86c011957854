"""The specials of stripe.specials as loops.

    gather   for each element of the result: clamp the index, copy
    scatter  for each index, in row-major order: fold its updates in unless it lies outside; rows of
             elements side by side go in vectors

Shapes: data (..., n, ...), index (i...), result or updates (..., i..., ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from codegen_cpu.access import SCALAR, Lanes, Place
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
    with _loops(tools, index.shape) as at:
        value = _load_index(tools, index, at)
        inside = tools.f.compare("icmp ult", value, constant(I64, size))  # negative ones are large
        end = tools.indexing.guarded(inside)
        chosen = tools.indexing.name(value, (0, max(size - 1, 0)))
        others = (*updates.shape[:axis], *updates.shape[axis + rank :])
        vectors = len(others) > axis and _dense(updates) and _dense(target)
        with _loops(tools, others[:-1] if vectors else others) as position:
            rows: Iterable[tuple[list[Affine], Lanes]] = [([], SCALAR)]
            if vectors:
                rows = _vectors(tools, others[-1], target.buffer.dtype)
            for end_of_row, lanes in rows:
                before, behind = position[:axis], [*position[axis:], *end_of_row]
                _copy(tools, updates, [*before, *at, *behind], target, [*before, chosen, *behind], lanes)
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


def _dense(view: View) -> bool:
    """Whether elements lie side by side along the last dimension, of numbers that lanes hold as they are."""
    return view.strides[-1] == 1 and view.buffer.dtype not in (*NARROW_FLOATS, DType.BOOL)


def _vectors(tools: Tools, size: int, dtype: DType) -> Iterator[tuple[list[Affine], Lanes]]:
    """The places of a row of elements side by side, in vectors: a loop of whole ones, and of what is left
    one for each power of two."""
    width = max(1, tools.target.vector_bytes // dtype.bytes)
    whole = size - size % width
    if whole:
        bounds = (0, whole - width)
        loop = tools.indexing.open("e", constant(I64, 0), constant(I64, whole), width, bounds)
        yield [loop.value], Lanes("", width)
        tools.indexing.close(loop)
    while whole < size:
        width = 1 << (size - whole).bit_length() - 1
        yield [Affine(whole)], Lanes("", width) if width > 1 else SCALAR
        whole += width


def _element(view: View, position: Position, lanes: Lanes = SCALAR) -> Place:
    offset = view.offset
    for at, stride in zip(position, view.strides, strict=True):
        offset = offset + at * stride
    return Place(view.buffer, offset, 1 if lanes.width else 0)


def _copy(
    tools: Tools, source: View, at: Position, target: View, to: Position, lanes: Lanes = SCALAR
) -> None:
    """Write an element of a view, or a vector of them, to those of another, by the other's aggregation."""
    found = tools.load(_element(source, at, lanes), lanes, source.buffer.dtype)
    place = _element(target, to, lanes)
    if target.how is Aggregation.ASSIGN:
        tools.put(found.value, place, lanes)
    else:
        tools.fold(target.how, found, place, lanes)


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
def _loops(tools: Tools, shape: tuple[int, ...]) -> Iterator[list[Affine]]:
    """Loops over all positions of a box, outermost dimension first."""
    position = [Affine() for _ in shape]
    opened = []
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        bounds = (0, max(size - 1, 0))
        loop = tools.indexing.open("e", constant(I64, 0), constant(I64, size), 1, bounds)
        position[dim] = loop.value
        opened.append(loop)
    yield position
    for loop in reversed(opened):
        tools.indexing.close(loop)
