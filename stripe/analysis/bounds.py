"""What a tile of a block touches: extents, elements and cache lines of each operand.

An `Operand` is a buffer as one block uses it; a `Leaf` is a block of a nest that loads or stores,
with the indexes of the whole nest. Sizes of tiles are NumPy arrays with one entry for each
candidate (or plain integers), so that a search asks once for all of them.

A tile is taken as its bounding box, parts that overhang included, as in Figure 4 of the Stripe
paper: an m x n tile that looks through a 3x3 window at 8 channels touches (m+2) x (n+2) x 8 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce, wraps
from math import gcd, prod
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Aggregation, Block, Direction, Load, Refinement, Special, Store, combining
from stripe.locks import cached_property
from stripe.names import Names
from stripe.remembered import Remembered
from stripe.visit import View, views_of

Counts: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Sizes: TypeAlias = Mapping[str, Counts | int]
Views: TypeAlias = Mapping[str, View]


@dataclass(frozen=True)
class Operand:
    """A buffer as a block uses it.

    `access` is the origin of what one point touches, over the block's indexes, `extent` its size
    in each dimension; `strides` are those of the allocation, in elements. A `local` buffer lives
    for one point of the block that is asked about.
    """

    name: str
    direction: Direction
    dtype: DType
    access: tuple[Affine, ...]
    extent: tuple[int, ...]
    strides: tuple[int, ...]
    aggregation: Aggregation | None = None
    local: bool = False

    def __hash__(self) -> int:
        return self._hash

    @property
    def combines(self) -> bool:
        """Whether writes to one element are combined, and do not replace each other."""
        return combining(self.aggregation)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.access, self.extent, self.strides))

    @cached_property
    def indexes(self) -> frozenset[str]:
        """The indexes that what is touched depends on."""
        return frozenset([name for expr in self.access for name, _ in expr.terms])

    def stride(self, index: str) -> int:
        """How far one step of an index goes in memory, in elements."""
        return self._steps.get(index, 0)

    @cached_property
    def _steps(self) -> Mapping[str, int]:
        steps: dict[str, int] = {}
        for expr, stride in zip(self.access, self.strides, strict=True):
            for name, coefficient in expr.terms:
                steps[name] = steps.get(name, 0) + coefficient * stride
        return steps


def operands(block: Block, outer: Views) -> tuple[Operand, ...]:
    """The operands of a block whose parent has the views `outer`, its own buffers last.

    Two views of one buffer with the same access are one operand.
    """
    views = views_of(block, outer)
    found: dict[tuple[object, ...], Operand] = {}
    for ref in sorted(block.refinements, key=lambda r: r.direction is Direction.NEW):
        local = ref.direction is Direction.NEW
        access = (Affine(),) * len(ref.shape) if local else ref.access
        made = Operand(
            ref.name, ref.direction, ref.dtype, access, ref.shape, views[ref.name].strides,
            ref.aggregation, local,
        )  # fmt: skip
        found.setdefault((ref.source if not local else ref.name, local, access, ref.direction.writes), made)
    return tuple(found.values())


# ------------------------------------------------------------------------------ footprints


def extents(operand: Operand, sizes: Sizes) -> list[Counts]:
    """The extent of the bounding box of a tile, for each dimension; shapes of the sizes.

    Indexes without a size are fixed.
    """
    return [_extent(expr, own, sizes) for expr, own in zip(operand.access, operand.extent, strict=True)]


def _extent(expr: Affine, own: int, sizes: Sizes) -> Counts:
    extent: Counts = np.asarray(own, np.int64)
    for name, coefficient in expr.terms:
        if name in sizes:
            extent = extent + abs(coefficient) * (np.asarray(sizes[name], np.int64) - 1)
    return extent


def box(operand: Operand, sizes: Mapping[str, int]) -> list[int]:
    """`extents` of one tile, in plain integers, which take a tenth of the time."""
    found = []
    for expr, extent in zip(operand.access, operand.extent, strict=True):
        for name, coefficient in expr.terms:
            size = sizes.get(name)
            if size is not None:
                extent += abs(coefficient) * (size - 1)
        found.append(extent)
    return found


def box_elements(operand: Operand, sizes: Sizes) -> Counts:
    """Elements of the bounding box of a tile."""
    return reduce(np.multiply, extents(operand, sizes), np.asarray(1, np.int64))


def touched_elements(operand: Operand, sizes: Sizes) -> Counts:
    """Elements that a tile touches, without the gaps of the box that a stride leaves.

    Exact where the dimensions use different indexes and each uses up to two of them, or where no
    element is touched twice; an upper bound otherwise.
    """
    total = np.asarray(1, np.int64)
    for expr, own in zip(operand.access, operand.extent, strict=True):
        terms = [(name, abs(c)) for name, c in expr.terms if name in sizes]
        step = gcd(*(c for _, c in terms)) if own == 1 else 1
        reached = _extent(Affine.of({n: c // max(step, 1) for n, c in terms}), own, sizes)
        combined = prod((np.asarray(sizes[n], np.int64) for n, _ in terms), start=np.asarray(own, np.int64))
        total = total * np.minimum(reached, combined)
    points = prod(
        (np.asarray(sizes[n], np.int64) for n in sorted(operand.indexes) if n in sizes),
        start=np.asarray(prod(operand.extent), np.int64),
    )
    return np.minimum(total, points)


def tile_lines(operand: Operand, sizes: Sizes, ranges: Mapping[str, int], line: int) -> Counts:
    """Cache lines of all tiles of an operand, summed over the tiles; `line` is in elements.

    `ranges` are those of the indexes in `sizes`. Each row of a tile (a run of its elements that
    lie one after the other in memory) counts the lines that it reaches from its own address, where
    the buffer starts at a line; rows do not share lines. Exact under that definition: what counts
    is the address modulo the line, whose distribution over all tiles and rows follows from those of
    its terms, taken together one by one.
    """
    steps: list[tuple[Counts, Counts]] = []  # (address of one step, number of steps)
    start = np.asarray(
        sum(e.const * s for e, s in zip(operand.access, operand.strides, strict=True)), np.int64
    )
    for name in sorted(operand.indexes):
        if name not in sizes:
            continue
        size = np.asarray(sizes[name], np.int64)
        stride = operand.stride(name)
        # The least element of a tile: terms with a negative coefficient start at their far end.
        low = sum(
            min(e.coefficient(name), 0) * s for e, s in zip(operand.access, operand.strides, strict=True)
        )
        steps.append((stride * size, -(-ranges[name] // size)))
        start = start + low * (size - 1)
    run = np.asarray(1, np.int64)
    whole = np.asarray(True)
    by_stride = sorted(zip(operand.strides, extents(operand, sizes), strict=True), key=lambda pair: pair[0])
    for stride, extent in by_stride:
        joined = whole & (stride == run)
        steps.append((np.asarray(stride, np.int64), np.where(joined, 1, extent)))
        whole = joined | (whole & (extent == 1))
        run = np.where(joined, run * extent, run)
    return _lines_of_runs(start, run, steps, line)


def _lines_of_runs(start: Counts, run: Counts, steps: list[tuple[Counts, Counts]], line: int) -> Counts:
    """Lines reached by runs of `run` elements at start + sum(step * k), for all k below the counts."""
    shape = np.broadcast_shapes(
        start.shape, run.shape, *(np.broadcast_shapes(a.shape, n.shape) for a, n in steps)
    )
    residues = np.zeros((*shape, line), np.int64)  # how many runs start at each offset in a line
    np.put_along_axis(residues, np.broadcast_to(start % line, shape)[..., None], 1, axis=-1)
    for address, count in steps:
        address, count = np.broadcast_to(address % line, shape), np.broadcast_to(count, shape)
        if not address.any():
            residues = residues * count[..., None]
            continue
        spread = np.zeros_like(residues)
        for k in range(line):
            times = (count - k + line - 1) // line  # steps congruent to k
            if times.any():
                spread += np.take_along_axis(
                    residues, (np.arange(line) - k * address[..., None]) % line, axis=-1
                ) * np.maximum(times, 0)[..., None]  # fmt: skip
        residues = spread
    reached = (np.arange(line) + run[..., None] - 1) // line + 1
    total: Counts = (residues * reached).sum(axis=-1)
    return total


# ---------------------------------------------------------------------------------- leaves


@dataclass(frozen=True)
class Leaf:
    """The statements of one block of a nest that are no blocks, at all points of the nest.

    `ranges` are the indexes from the asked block down to this one: those of the asked block have
    their own names, the others fresh ones. `operands` are those that scalar statements load
    and store; one that is local to the asked block has a further dimension in front for each index of
    that block, since every point has its own. `constraints` (each >= 0) are those of the whole nest.
    """

    block: Block
    ranges: Mapping[str, int]
    operands: tuple[Operand, ...]
    constraints: tuple[Affine, ...] = ()

    @cached_property
    def points(self) -> int:
        return prod(self.ranges.values())

    @cached_property
    def reductions(self) -> tuple[str, ...]:
        """The indexes, in order, that some written element does not depend on."""
        written = [o.indexes for o in self.operands if o.direction.writes]
        return tuple(n for n in self.ranges if any(n not in indexes for indexes in written))


P = ParamSpec("P")
R = TypeVar("R")
REMEMBERED = 4096  # answers to each question about blocks, leaves and operands
_Answer: TypeAlias = tuple[object, R]  # with what the key has ids of, so that these stay its own


def of_leaf(ask: Callable[Concatenate[Leaf, P], R]) -> Callable[Concatenate[Leaf, P], R]:
    """A question about a leaf that is asked once: candidates of a nest differ in one operand, and all other
    leaves stay as they are. What else the answer depends on is hashable, or the same object each time."""
    known = Remembered[Hashable, _Answer[R]](REMEMBERED)

    @wraps(ask)
    def asked(leaf: Leaf, /, *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs
        key = id(leaf.block), tuple(leaf.ranges.items()), leaf.operands, leaf.constraints, _values(args)
        found = known.get(key)
        if found is None:
            found = known.put(key, ((leaf.block, args), ask(leaf, *args, **kwargs)))
        return found[1]

    return asked


def of_operand(
    ask: Callable[Concatenate[Operand, Leaf, P], R],
) -> Callable[Concatenate[Operand, Leaf, P], R]:
    """A question about an operand that is asked once for all leaves with these ranges, own ones among them,
    and reductions: the answer depends on nothing else of the leaf. Candidates differ in one operand."""
    known = Remembered[Hashable, _Answer[R]](REMEMBERED)

    @wraps(ask)
    def asked(operand: Operand, leaf: Leaf, /, *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs
        ranges = tuple(leaf.ranges.items()), len(leaf.block.ranges), leaf.reductions
        key = operand, ranges, _values(args)
        found = known.get(key)
        if found is None:
            found = known.put(key, (args, ask(operand, leaf, *args, **kwargs)))
        return found[1]

    return asked


def _values(args: tuple[object, ...]) -> tuple[Hashable, ...]:
    return tuple([arg if isinstance(arg, _BY_VALUE) else id(arg) for arg in args])


_BY_VALUE = (int, str, tuple, frozenset, type(None))
_COMPOSED = Remembered[Hashable, _Answer[tuple[Leaf, ...]]](REMEMBERED)
_LAID = Remembered[Hashable, _Answer[tuple[Leaf, ...]]](REMEMBERED)


def leaves(block: Block, outer: Views, every_level: bool = False) -> tuple[Leaf, ...]:
    """Every block of the nest under `block` that loads, stores or holds a special, itself included.

    `outer` are the views of its parent. With `every_level`, a buffer that lives for one point of an
    inner block has a dimension for each index down to that block, not only for those of `block`.

    Found once for a block and the strides of what it uses; under other strides, only these change.
    """
    every_level = every_level and bool(block.children)
    strides = {name: view.strides for name, view in views_of(block, outer).items()}
    about = id(block), every_level
    laid = _LAID.get((about, tuple(strides.values())))
    if laid is None:
        composed = _COMPOSED.get(about) or _COMPOSED.put(about, (block, _composed(block, every_level)))
        found = tuple(
            Leaf(f.block, f.ranges, tuple(_laid(o, strides) for o in f.operands), f.constraints)
            for f in composed[1]
        )
        laid = _LAID.put((about, tuple(strides.values())), (block, found))
    return laid[1]


def _laid(operand: Operand, strides: Mapping[str, tuple[int, ...]]) -> Operand:
    if operand.local:
        return operand
    o = operand  # made whole: that takes a third of the time of `replace`
    return Operand(o.name, o.direction, o.dtype, o.access, o.extent, strides[o.name], o.aggregation)


def _composed(block: Block, every_level: bool) -> tuple[Leaf, ...]:
    """The leaves of a nest, but for the strides of what it gets from its parent."""
    own = tuple(block.ranges)
    seen = {
        r.name: _own_buffer(r, r.strides or (), own)
        if r.direction is Direction.NEW
        else _Seen(r.name, r.access, ())
        for r in block.refinements
    }
    names = Names(i.name for i in block.indexes)
    own_values = {n: Affine.index(n) for n in own}
    constraints = tuple(c.expr for c in block.constraints)
    fronts = None if every_level else own
    return tuple(_leaves(block, block.ranges, seen, own_values, fronts, constraints, names))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A view, composed from the asked block down."""

    buffer: str
    access: tuple[Affine, ...]
    strides: tuple[int, ...]
    local: bool = False


def _own_buffer(ref: Refinement, strides: tuple[int, ...], own: tuple[str, ...]) -> _Seen:
    # How the points' buffers will lie in a tile is open: any index may become the unit stride.
    front = tuple(Affine.index(name) for name in own)
    return _Seen(ref.name, (*front, *(Affine(),) * len(ref.shape)), (*(1,) * len(own), *strides), True)


def _leaves(
    block: Block,
    ranges: Mapping[str, int],
    seen: Mapping[str, _Seen],
    values: Mapping[str, Affine],
    own: tuple[str, ...] | None,
    constraints: tuple[Affine, ...],
    names: Names,
) -> Iterator[Leaf]:
    used: dict[tuple[str, bool], Operand] = {}
    for statement in block.statements:
        if isinstance(statement, Load | Store):
            ref, view = block.refinement(statement.buffer), seen[statement.buffer]
            stores = isinstance(statement, Store)
            used[statement.buffer, stores] = Operand(
                view.buffer, Direction.OUT if stores else Direction.IN, ref.dtype, view.access,
                (1,) * len(view.access), view.strides, ref.aggregation if stores else None, view.local,
            )  # fmt: skip
    if used or any(isinstance(s, Special) for s in block.statements):
        yield Leaf(block, ranges, tuple(used.values()), constraints)
    for child in block.children:
        taken = names.copy()
        fresh = {name: taken.fresh(name) for name in child.ranges}
        inside = {name: Affine.index(new) for name, new in fresh.items()}
        for index in child.indexes:
            if index.passed is not None:
                inside[index.name] = index.passed.substitute(values)
        below = {fresh[name]: size for name, size in child.ranges.items()}
        reached = {**ranges, **below}
        fronts = tuple(reached) if own is None else own
        views = {r.name: _below(r, seen, inside, fronts) for r in child.refinements}
        held = (*constraints, *(c.expr.substitute(inside) for c in child.constraints))
        yield from _leaves(child, reached, views, inside, own, held, taken)


def _below(
    ref: Refinement, seen: Mapping[str, _Seen], values: Mapping[str, Affine], own: tuple[str, ...]
) -> _Seen:
    if ref.direction is Direction.NEW:
        return _own_buffer(ref, ref.strides or (), own)
    view = seen[ref.source]
    moved = (Affine(),) * (len(view.access) - len(ref.access)) + tuple(
        expr.substitute(values) for expr in ref.access
    )
    access = tuple(o + i for o, i in zip(view.access, moved, strict=True))
    return _Seen(view.buffer, access, view.strides, view.local)
