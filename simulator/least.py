"""The least traffic of a kernel that tilings of one level reach with the near memories that there are.

A tile gives each index a size; all tiles of a kernel's operands lie near together, each once, and what
tiles share at their edges is fetched for each of them. The tile loops run in any order: what an operand keeps
stays while only loops run that do not change it. A result that tiles add to is written for each stay and
read again from the second one on. With several leaves below a kernel, the tile loops over their own indexes
run inside those over the indexes of the kernel.

The sizes of an index are the least for each number of tiles. Of more than `CANDIDATES` combinations, thinned
ones are tried, and from the best of them on the sizes of one index at a time, until none is better. All
orders are tried, as far as they differ: indexes that the same operands depend on run next to each other.

The search takes what tiles touch as boxes. Where that is not so (constraints leave a triangle or a band, or
several views of a buffer overlap), the tiling that is best for boxes is counted again by isl, as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations, product
from math import ceil, gcd, inf, prod
from typing import Any, TypeAlias

import numpy as np

from simulator.touched import executions, touched
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, Operand, box_elements, leaves
from stripe.analysis.cost_sizes import balanced_sizes
from stripe.ir import Block, Direction, Special
from stripe.locks import cached_property
from stripe.poly import Domain
from stripe.visit import views_of, walk

CANDIDATES = 8_000  # combinations of sizes that are tried at once
MAX_GROUPS = 5  # of indexes that differ in what depends on them: 120 orders
MAX_INDEXES = 16  # of a kernel: one that is tiled as it is written may have many more
MAX_TILES = 1 << 14  # of one dimension that are gone through

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Sizes: TypeAlias = Mapping[str, Sequence[int]]  # for each index the sizes to try


Order: TypeAlias = tuple[tuple[str, ...], ...]  # groups of indexes, outermost first


@dataclass(frozen=True, slots=True)
class Least:
    """Bytes that cross, for each buffer of the root, the tile that does with them, and the order of the tile
    loops around each leaf."""

    bytes: Mapping[str, int]
    tile: Mapping[str, int]
    orders: tuple[Order, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


def least_traffic(
    root: Block, kernel: Block, crossing: Mapping[str, int], capacity: int | None
) -> Least | str:
    """The least of a kernel of a root, for the buffers that cross, each with the bytes that have to; others
    are near. Or why there is none, as a clause. Raises PolyhedralLimit where boxes are not enough and isl
    gives up."""
    if any(isinstance(s, Special) for _, block in walk(kernel) for s in block.statements):
        return "a special executes in it, and goes through its operands as it is"
    nest = _nest(root, kernel, frozenset(crossing))
    if isinstance(nest, _Nest) and (found := _of_boxes(nest, crossing, capacity)) is not None:
        return found
    if capacity is None or _all_touched(root, kernel, crossing) <= capacity:
        return Least(crossing, kernel.ranges)
    if isinstance(nest, str):
        return nest
    found = _search(nest, sum(crossing.values()), capacity)
    if found is None:
        return f"no tile of it fits in {capacity} bytes"
    counted = nest.counted(found)
    return replace(found, bytes={n: max(size, counted.get(n, 0)) for n, size in crossing.items()})


def _of_boxes(nest: _Nest, crossing: Mapping[str, int], capacity: int | None) -> Least | str | None:
    """The least where tiles touch boxes: one tile of everything moves what has to cross; else None."""
    whole = {name: (size,) for name, size in nest.ranges.items()}
    everything = nest.best(whole, None)
    assert everything is not None  # there is room for it
    if any(everything.bytes.get(name, 0) != size for name, size in crossing.items()):
        return None
    if nest.best(whole, capacity) is not None:
        return everything
    return _search(nest, everything.total, capacity) or f"no tile of it fits in {capacity} bytes"


def _search(nest: _Nest, needed: int, capacity: int | None) -> Least | None:
    """The best tiling that is found; it stops at one that moves no more than is `needed`."""
    choices = {name: balanced_sizes(size) for name, size in nest.ranges.items()}
    few = _thinned(choices)
    found = nest.best(few, capacity)
    while found is not None and few != choices and found.total > needed:
        better = found
        for name in choices:
            tile = {n: (size,) for n, size in better.tile.items()}
            tried = nest.best({**tile, name: choices[name]}, capacity)
            better = tried if tried is not None and tried.total < better.total else better
        if better is found:
            break
        found = better
    return found


def _thinned(choices: Sizes) -> Sizes:
    """Every second size of the index with most of them, until few enough are left; the whole range stays."""
    left = dict(choices)
    while prod(map(len, left.values())) > CANDIDATES:
        name = max(left, key=lambda n: len(left[n]))
        sizes = left[name]
        left[name] = sizes[-1::-2][::-1] if len(sizes) > 2 else sizes[-1:]
    return left


# ------------------------------------------------------------------------------ a nest


@dataclass(frozen=True)
class _Use:
    """An operand of a leaf: the buffer of the root, the elements of one point, and the shape of the buffer.
    `writes`; `rereads`: its old contents are read before the first write, too."""

    buffer: str
    operand: Operand
    shape: tuple[int, ...]
    writes: bool
    rereads: bool

    @cached_property
    def apart(self) -> bool:
        """Whether no index appears in several dimensions."""
        return sum(len(e.terms) for e in self.operand.access) == len(self.operand.indexes)

    def elements(self, nest: _Nest, sizes: Sizes) -> tuple[Floats, Floats]:
        """Elements of all tiles, and of the largest one."""
        total, most = np.ones(()), np.ones(())
        for expr, extent in zip(self.operand.access, self.shape, strict=True):
            terms = [(n, c) for n, c in expr.terms if n in nest.ranges]
            own, largest = nest.dimension(tuple(terms), expr.const, extent, sizes)
            total, most = total * own, most * largest
        if not self.apart:
            total = most
            for name in sorted(self.operand.indexes & nest.ranges.keys()):
                total = total * nest.trips(name, sizes)
        return total, most


@dataclass(frozen=True)
class _Part:
    """A leaf: what crosses there, the groups of its own indexes, and the points at which it is executed."""

    uses: tuple[_Use, ...]
    groups: Order
    leaf: Leaf

    def by_buffer(self) -> Iterator[tuple[str, list[_Use]]]:
        """The views of each buffer that crosses."""
        for buffer in dict.fromkeys(use.buffer for use in self.uses):
            yield buffer, [use for use in self.uses if use.buffer == buffer]


@dataclass(frozen=True)
class _Nest:
    """A kernel: `outer` are the groups of indexes around all leaves, `near` its own buffers."""

    ranges: Mapping[str, int]
    outer: Order
    leaves: tuple[_Part, ...]
    near: tuple[Operand, ...]

    def axis(self, values: Sequence[float], *names: str) -> Floats:
        """Values for the sizes of an index, or of several, along their axes."""
        order = list(self.ranges)
        table: Floats = np.asarray(values, np.float64)
        places = [order.index(n) for n in names]
        table = np.transpose(table, np.argsort(places)) if places else table
        shape = iter(table.shape)
        return table.reshape([next(shape) if at in places else 1 for at in range(len(order))])

    def trips(self, name: str, sizes: Sizes) -> Floats:
        return self.axis([-(-self.ranges[name] // s) for s in sizes[name]], name)

    def dimension(
        self, terms: tuple[tuple[str, int], ...], start: int, extent: int, sizes: Sizes
    ) -> tuple[Floats, Floats]:
        """Places along a dimension of a buffer that tiles reach: of all tiles together, of the largest."""
        names = [n for n, _ in terms]
        factors, ranges = tuple(c for _, c in terms), tuple(self.ranges[n] for n in names)
        shape = [len(sizes[n]) for n in names]
        total, most = np.zeros(shape), np.zeros(shape)
        for at in product(*map(range, shape)):
            tile = tuple(sizes[n][k] for n, k in zip(names, at, strict=True))
            total[at], most[at] = _reached(factors, tile, ranges, start, extent)
        return self.axis(total, *names), self.axis(most, *names)  # type: ignore[arg-type]

    def best(self, sizes: Sizes, capacity: int | None) -> Least | None:
        """The least over all combinations of these sizes and all orders; None if nothing fits."""
        known = [[use.elements(self, sizes) for use in leaf.uses] for leaf in self.leaves]
        fits = self._held(known, sizes) <= (inf if capacity is None else capacity)
        if not fits.any():
            return None
        found, least = None, inf
        for outer in permutations(self.outer):
            total: Floats = np.zeros(fits.shape)
            split = []
            inner = [list(permutations(leaf.groups)) for leaf in self.leaves]
            for leaf, orders, elements in zip(self.leaves, inner, known, strict=True):
                moved = [
                    np.stack([np.zeros(fits.shape), *self._moved(leaf, elements, (*outer, *own), sizes)])
                    for own in orders
                ]
                split.append(moved)
                total = total + np.minimum.reduce([m.sum(0) for m in moved])
            least_at = int(np.argmin(np.where(fits, total, inf)))
            place = tuple(map(int, np.unravel_index(least_at, total.shape)))
            if total[place] < least:
                least = float(total[place])
                own = [[m.reshape(len(m), -1)[1:, least_at] for m in moved] for moved in split]
                best = [min(range(len(moved)), key=lambda k: moved[k].sum()) for moved in own]
                tile = {n: sizes[n][k] for n, k in zip(self.ranges, place, strict=True)}
                around = tuple((*outer, *orders[k]) for orders, k in zip(inner, best, strict=True))
                found = self._least([moved[k] for moved, k in zip(own, best, strict=True)], tile, around)
        return found

    def _held(self, known: Sequence[Sequence[tuple[Floats, Floats]]], sizes: Sizes) -> Floats:
        """Bytes of one tile of everything."""
        held: Floats = np.zeros([len(sizes[n]) for n in self.ranges])
        for leaf, elements in zip(self.leaves, known, strict=True):
            for use, (_, most) in zip(leaf.uses, elements, strict=True):
                held = held + most * use.operand.dtype.bytes
        grid = {n: self.axis(sizes[n], n).astype(np.int64) for n in self.ranges}
        for own in self.near:
            held = held + box_elements(own, grid) * own.dtype.bytes
        return held

    def _least(self, parts: Sequence[Floats], tile: Mapping[str, int], orders: tuple[Order, ...]) -> Least:
        moved: Counter[str] = Counter()
        for leaf, part in zip(self.leaves, parts, strict=True):
            for use, value in zip(leaf.uses, part, strict=True):
                moved[use.buffer] += int(value)
        return Least(moved, tile, orders)

    # -- what isl counts ---------------------------------------------------------------------------

    def counted(self, least: Least) -> dict[str, int]:
        """Bytes that a tiling moves of each buffer: what is touched each time when a tile loop goes on that
        it depends on, or one around such a loop. What is added to comes back for each time but the first."""
        found: dict[str, int] = {}
        for part, order in zip(self.leaves, least.orders, strict=True):
            points = executions(part.leaf)
            for buffer, uses in part.by_buffer():
                changing = set[str]().union(*(u.operand.indexes for u in uses))
                loops = [n for group in order for n in group if least.tile[n] < self.ranges[n]]
                last = max((at for at, n in enumerate(loops) if n in changing), default=-1)
                views = [(points, u.operand.access) for u in uses]
                tiles = {n: least.tile[n] for n in loops[: last + 1]}
                moved = touched(views, tiles)
                if uses[0].writes:
                    moved += moved if uses[0].rereads else moved - touched(views, {})
                found[buffer] = moved * uses[0].operand.dtype.bytes
        return found

    def _moved(
        self,
        leaf: _Part,
        elements: Sequence[tuple[Floats, Floats]],
        order: Order,
        sizes: Sizes,
    ) -> list[Floats]:
        """Bytes of each operand that cross if the groups of tile loops run in this order, outermost first."""
        whole = [len(sizes[n]) for n in self.ranges]
        trips = [np.prod(np.broadcast_arrays(*(self.trips(n, sizes) for n in g)), axis=0) for g in order]
        found = []
        for use, (total, _) in zip(leaf.uses, elements, strict=True):
            stays, visits = np.ones((), bool), np.ones(())
            for group, times in zip(reversed(order), reversed(trips), strict=True):
                if any(n in use.operand.indexes for n in group):
                    stays = stays & (times == 1)
                else:
                    visits = visits * np.where(stays, 1, times)
            times = 2 * visits - (not use.rereads) if use.writes else visits
            found.append(np.broadcast_to(total * times * use.operand.dtype.bytes, whole))
        return found


@lru_cache(maxsize=1 << 15)
def _reached(
    factors: tuple[int, ...], tile: tuple[int, ...], ranges: tuple[int, ...], start: int, extent: int
) -> tuple[int, int]:
    """Places of a dimension that the tiles of a size reach inside of the buffer: all tiles, the largest."""
    if not factors:
        return 1, 1
    if len(factors) == 1 and 0 <= start < extent and 0 <= start + factors[0] * (ranges[0] - 1) < extent:
        return ranges[0], tile[0]
    step = gcd(*factors)
    if prod(ceil(n / t) for n, t in zip(ranges, tile, strict=True)) > MAX_TILES:
        most = min(1 + sum(abs(c) // step * (t - 1) for c, t in zip(factors, tile, strict=True)), prod(tile))
        return most * prod(ceil(n / t) for n, t in zip(ranges, tile, strict=True)), most
    low: Any = np.asarray(start)
    high: Any = np.asarray(start)
    points: Any = np.asarray(1)
    for c, size, whole in zip(factors, tile, ranges, strict=True):
        first = np.arange(0, whole, size)
        last = np.minimum(first + size, whole) - 1
        ends = np.stack([c * first, c * last])
        low, high = np.add.outer(low, ends.min(0)), np.add.outer(high, ends.max(0))
        points = np.multiply.outer(points, last - first + 1)
    skipped = np.maximum(-(low // step), 0)  # steps below the first place
    reached = (np.minimum(high, extent - 1) - low) // step - skipped + 1
    reached = np.clip(np.minimum(reached, points), 0, None)
    return int(reached.sum()), int(reached.max())


# ------------------------------------------------------------------------------ of the IR


def _nest(root: Block, kernel: Block, crossing: frozenset[str]) -> _Nest | str:
    """The nest of a kernel, or why it is not searched."""
    sources = {r.name: r for r in kernel.refinements if r.direction is not Direction.NEW}
    found = leaves(kernel, views_of(root, {}))
    ranges = {n: size for n, size in kernel.ranges.items() if size > 1}
    seen: dict[str, tuple[int, tuple[object, ...]]] = {}
    uses: list[list[_Use]] = []
    near: dict[str, Operand] = {}
    owned: list[list[str]] = []
    points: list[Leaf] = []
    for number, leaf in enumerate(found):
        names = {n: n if n in kernel.ranges else f"{number}.{n}" for n in leaf.ranges}
        own = {names[n]: size for n, size in leaf.ranges.items() if size > 1 and n not in kernel.ranges}
        ranges |= own
        owned.append(list(own))
        uses.append([])
        held = tuple(c.rename(names.__getitem__) for c in leaf.constraints)
        points.append(Leaf(leaf.block, {names[n]: size for n, size in leaf.ranges.items()}, (), held))
        for operand in leaf.operands:
            access = tuple(e.rename(names.__getitem__) for e in operand.access)
            moved = Operand(
                operand.name, operand.direction, operand.dtype, access, operand.extent, operand.strides,
                operand.aggregation, operand.local,
            )  # fmt: skip
            if operand.local:
                near.setdefault(operand.name, moved)
                continue
            ref = sources[operand.name]
            if ref.source not in crossing:
                continue
            key = access, operand.direction
            first = seen.setdefault(ref.source, (number, key))
            reads = not any(u.writes for u in uses[-1] if u.buffer == ref.source)
            if first[1] != key and not (first[0] == number and reads and not operand.direction.writes):
                return f"it uses '{ref.source}' through several views"
            if any(u.buffer == ref.source and u.operand.access == access for part in uses for u in part):
                continue
            adds = ref.combines
            rereads = adds and ref.direction is Direction.INOUT
            shape = root.refinement(ref.source).shape
            uses[-1].append(_Use(ref.source, moved, shape, operand.direction.writes, rereads))
    if len(ranges) > MAX_INDEXES:
        return f"it has {len(ranges)} indexes, and tilings of {MAX_INDEXES} are searched at most"
    every = [u for part in uses for u in part]
    near_by = tuple(near.values())
    if len(found) == 1:
        outer, owned = [], [list(ranges)]
    else:
        outer = [n for n in kernel.ranges if n in ranges]
    parts = tuple(
        _Part(tuple(u), _groups(own, u), at) for u, own, at in zip(uses, owned, points, strict=True)
    )
    around = _groups(outer, every)
    groups = max(len(g) for g in (around, *(part.groups for part in parts)))
    if groups > MAX_GROUPS:
        return (
            f"what depends on its indexes differs in {groups} ways, of which {MAX_GROUPS} are ordered at most"
        )
    return _Nest(ranges, around, parts, near_by)


def _all_touched(root: Block, kernel: Block, crossing: Collection[str]) -> int:
    """Bytes of all that a kernel touches of what crosses, and of its own buffers."""
    sources = {r.name: r.source for r in kernel.refinements if r.direction is not Direction.NEW}
    views: dict[str, list[tuple[Domain, tuple[Affine, ...]]]] = {}
    near: dict[str, int] = {}
    for leaf in leaves(kernel, views_of(root, {})):
        points = executions(leaf)
        for operand in leaf.operands:
            if operand.local:
                near[operand.name] = int(box_elements(operand, leaf.ranges)) * operand.dtype.bytes
            elif (buffer := sources[operand.name]) in crossing:
                views.setdefault(buffer, []).append((points, operand.access))
    each = (touched(own, {}) * root.refinement(buffer).dtype.bytes for buffer, own in views.items())
    return sum(each) + sum(near.values())


def _groups(names: Sequence[str], uses: Sequence[_Use]) -> Order:
    """Indexes that the same operands depend on, together."""
    groups: dict[tuple[bool, ...], list[str]] = {}
    for name in names:
        groups.setdefault(tuple(name in u.operand.indexes for u in uses), []).append(name)
    return tuple(map(tuple, groups.values()))
