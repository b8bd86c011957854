"""Squares of elements turned in registers: where the lanes of a vector lie apart in memory, but
the elements along another index lie side by side.

`#vector=m #across=n`, where X[m, n] has its elements side by side along n:

    lanes m -->      load whole vectors along n, one for each lane,
    X: row of lane 0   a0 a1 a2 a3         turn them:   a0 b0 c0 d0    the vector of lanes for n = 0
       row of lane 1   b0 b1 b2 b3                      a1 b1 c1 d1    ... for n = 1
       ...

A store is the same backwards: the vectors of all values of n wait until the last is known. All
other statements see vectors of lanes, as everywhere. Where the lanes are as far apart as there are
values of n, all elements of the square lie side by side: they are read in one go, and dealt out.

A square is turned in log2(side) rounds of shuffles: pieces of 16 bytes by interleaving, which is one
instruction of a vector of any size on all targets, then whole pieces change places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from codegen_cpu.access import Accesses, Lanes, Place
from codegen_cpu.layout import View
from codegen_cpu.ll import I1, Function, Value, constants, poison
from codegen_cpu.scalars import memory_type, register_type
from codegen_cpu.scope import spanned, step_along
from codegen_cpu.target import Target
from codegen_cpu.written import is_injective
from stripe.affine import Affine
from stripe.analysis.cost_sets import crowds, pieces_on_one_set
from stripe.analysis.groups import moves_only
from stripe.analysis.lanes import DEALT
from stripe.ir import Aggregation, Block, Direction, Load, Store

Combine = Callable[[Value, Value], Value]  # of what is there, and what is added

PASSING = 2  # times what registers hold: squares of more would pass the stack again and again
IN_WORK = 4  # squares that follow each other in a row of results: a core goes on to the next ones early
KEPT = 3 / 4  # of the cache that all share: more, with what others have there, comes from main memory anyway
PIECE = 16  # bytes within which every target interleaves two vectors in one instruction


@dataclass(frozen=True, slots=True)
class Across:
    """The index that squares are taken along, beside the lanes: `count` values of it at a time, of `width`
    lanes.

    `turned` are the views whose elements lie side by side along it. `dealt`: they lie side by
    side in the whole square.
    """

    index: str
    count: int
    width: int
    turned: frozenset[str]
    dealt: bool = False


def plan_across(
    block: Block,
    views: Mapping[str, View],
    lane: str,
    width: int,
    open_constraints: Iterable[Affine],
    target: Target,
    around: Mapping[str, int],
) -> Across | None:
    """How a leaf block with lanes is run in squares, None if its tags don't ask for it or it can't be.
    `around` has the last values of the loops around it.

    Every store must replace what it meets, or add to elements that no other point has, or to such that stay
    along the index across: these are summed up in registers. A view is turned where
    its buffer is loaded only, or stored once: loads run ahead of the statements of all points of a square,
    stores behind.
    """
    ranges = block.ranges
    across = next((name for name in block.tag_values("across") if ranges.get(name, 0) > 1), "")
    if not across or not lane or across == lane or block.has_tag("unroll"):
        return None
    open_constraints = tuple(open_constraints)
    if any(across in expr.names and lane in expr.names for expr in open_constraints):
        return None
    stores = [s.buffer for s in block.statements if isinstance(s, Store)]
    steps = {
        ref.name: (
            step_along(ref, views[ref.name].strides, lane),
            step_along(ref, views[ref.name].strides, across),
        )
        for ref in block.refinements
        if ref.source
    }
    beside = {name: along for name, (along, step) in steps.items() if step == 1 and abs(along) > 1}
    loaded = {views[s.buffer].buffer.name for s in block.statements if isinstance(s, Load)}
    stored = [views[name].buffer.name for name in stores]
    wanted = set()
    for name in beside:
        buffer = views[name].buffer.name
        if buffer not in stored or (buffer not in loaded and stored.count(buffer) == 1):
            wanted.add(name)
    if any(steps[name][1] and not _is_put(block, views, name, name in wanted) for name in stores):
        return None
    adds = any(views[name].how is not Aggregation.ASSIGN and steps[name][1] for name in stores)
    dense = {n for n in wanted if beside[n] == ranges[across] and beside[n] in DEALT and not adds}
    tested = {name for expr in open_constraints for name in expr.names}
    if dense and across not in tested:
        return Across(across, ranges[across], width, frozenset(dense), dealt=True)
    # A few elements apart, loads of whole vectors and shuffles do better.
    turned = {n for n in wanted if n in stores or abs(beside[n]) not in DEALT}
    # They are alive together, and as many again while they are turned.
    most = max(2, target.vector_registers // 2)
    count = min(width, most, 1 << (ranges[across] - 1).bit_length())
    if _halved(block, views, {lane: width, across: count}, turned, target, around):
        count = min(count, target.line_bytes // 2 // min(views[name].buffer.dtype.bytes for name in turned))
    if not turned or count < 2:
        return None
    sides = _in_lines(block, views, {lane: width, across: count}, target)
    return Across(across, sides[across], sides[lane], frozenset(turned))


def _halved(
    block: Block, views: Mapping[str, View], sides: Mapping[str, int], turned: Collection[str],
    target: Target, around: Mapping[str, int],
) -> bool:  # fmt: skip
    """Whether squares of these sides, the lanes' first, should take half a line of what they read at a time.

    Where rows of results begin within lines, a square leaves a line of each row written in part for the
    next one. Half as many rows leave half as many such lines. That pays where the nearest cache has no place
    for those of the squares in work, as long as what is moved stays in a cache behind it; where vectors go to
    memory in halves, it pays anywhere, but for inputs whose rows begin at lines: whole squares take each line
    of these once.
    Where rows of results begin at lines and crowd, half as many may find place: lines that are fetched along
    with those that a square writes are still there for the next one.
    Whole squares stay where rows of inputs crowd, as the other halves of their lines would be gone meanwhile,
    unless a core's own caches bring these back soon, and results crowd as well.
    """
    near, line, (lane, across) = target.nearest, target.line_bytes, sides
    if near is None or near.ways is None:
        return False
    moved = sum(spanned(ref, views[ref.name], block.ranges, around) for ref in block.refinements)
    kept = moved <= KEPT * target.shared_cache
    within, meet, apart, crowded = set[bool](), False, False, False
    for ref in block.refinements:
        put, width = ref.direction.writes, ref.dtype.bytes
        step = abs(step_along(ref, views[ref.name].strides, across if put else lane)) * width
        rows = min(block.ranges[across], sides[across])
        if put == (ref.name in turned):
            return False
        if not put:
            crowded = crowded or crowds(block.ranges[lane], step, near)
        elif step % line == 0:
            apart = apart or (crowds(rows, step, near) and not crowds(rows // 2, step, near))
        if step % line:
            within.add(put)  # which of both begin within lines
            piece = min(block.ranges[lane] * width, IN_WORK * line)
            meet = meet or (put and pieces_on_one_set(rows, step, piece, near) > near.ways)
    if crowded:
        return apart and moved <= target.own_caches
    return ((meet or apart) and kept) or (target.half_paths and len(within) == 2)


def _in_lines(
    block: Block, views: Mapping[str, View], sides: Mapping[str, int], target: Target
) -> Mapping[str, int]:
    """The sides of squares of what is only moved, by their indexes: those of vectors, or of whole lines where
    vectors are parts of lines and rows crowd into few sets of the nearest cache.

    What is read then goes through it once: the rest of each line would be gone when the next squares, along
    all of these rows, want it. Lines that are written come and go as well where it has no place for those of
    one square, and what goes past the caches is written in whole lines. Such squares pass the stack on their
    way, which costs less.
    """
    near, line, ranges = target.nearest, target.line_bytes, block.ranges
    if near is None or near.ways is None or target.vector_bytes >= line:
        return sides
    if not moves_only(block):
        return sides
    found = dict(sides)
    room = PASSING * target.vector_registers * target.vector_bytes
    room //= max(ref.dtype.bytes for ref in block.refinements)
    past = {ref.name for ref in block.refinements if views[ref.name].buffer.streams}
    for ref in sorted(block.refinements, key=lambda ref: (ref.name not in past, ref.direction.writes)):
        for along, name in permutations(sides):
            step = abs(step_along(ref, views[ref.name].strides, name)) * ref.dtype.bytes
            rows = found[name] if ref.direction.writes else ranges[name]
            if step_along(ref, views[ref.name].strides, along) != 1 or step < line:
                continue
            if ref.name in past or crowds(rows, step, near):
                whole = 1 << (ranges[along] - 1).bit_length()
                most = min(line // ref.dtype.bytes, whole, room // found[name])
                found[along] = max(found[along], 1 << (most.bit_length() - 1))
    return found


def _is_put(block: Block, views: Mapping[str, View], name: str, turned: bool) -> bool:
    """Whether a store replaces what is there, or adds to an element that no other point writes to."""
    view = views[name]
    if view.how is Aggregation.ASSIGN:
        return True
    sizes = {index: size for index, size in block.ranges.items() if size > 1}
    ref = block.refinement(name)
    steps = Affine.of({index: step_along(ref, view.strides, index) for index in sizes})
    # What registers hold as memory does can be added to row by row.
    whole = memory_type(view.buffer.dtype, 0) == register_type(view.buffer.dtype, 0)
    return turned and whole and ref.direction is Direction.OUT and is_injective(steps, sizes)


@dataclass(slots=True)
class Square:
    """The points of one square, `live` values of the index across: what is loaded for all of them,
    and what waits to be stored. `finish` follows the last point."""

    f: Function
    accesses: Accesses
    lanes: Lanes
    across: Across
    count: int
    live: int
    _loaded: dict[Place, list[Value]] = field(default_factory=dict)
    _stored: dict[Place, list[Value]] = field(default_factory=dict)
    _added: dict[Place, Combine] = field(default_factory=dict)

    def load(self, place: Place, number: int) -> Value:
        """The elements of point `number`, as memory holds them; `place` is that of this point."""
        first = Place(place.buffer, place.offset - number, place.step)
        if first not in self._loaded:
            self._loaded[first] = self._dealt_out(first) if self.across.dealt else self._rows(first)
        return self._loaded[first][number]

    def store(self, value: Value, place: Place, number: int, combine: Combine | None = None) -> None:
        """Take the elements of point `number`, in order. `combine`: with what is there, which comes first."""
        first = Place(place.buffer, place.offset - number, place.step)
        self._stored.setdefault(first, []).append(value)
        if combine is not None:
            self._added[first] = combine

    def finish(self) -> None:
        """Write what waits."""
        for first, values in self._stored.items():
            if self.across.dealt:
                self._put_together(first, values)
            else:
                self._put_rows(first, values)

    # -- rows of lanes -------------------------------------------------------------------

    def _rows(self, first: Place) -> list[Value]:
        type_ = memory_type(first.buffer.dtype, self.count)
        rows = []
        for lane in range(self.lanes.width):
            if self._is_on(lane):
                offset = first.offset + lane * first.step
                mask = self._row_mask(lane)
                rows.append(self.accesses.load_dense(first.buffer, offset, self.count, mask))
            else:
                rows.append(poison(type_))
        return turned(self.f, rows, first.buffer.dtype.bytes)

    def _put_rows(self, first: Place, values: list[Value]) -> None:
        missing = [poison(values[0].type)] * (self.count - len(values))
        for lane, row in enumerate(turned(self.f, [*values, *missing], first.buffer.dtype.bytes)):
            if self._is_on(lane):
                offset, mask = first.offset + lane * first.step, self._row_mask(lane)
                if first in self._added:
                    old = self.accesses.load_dense(first.buffer, offset, self.count, mask)
                    row = self._added[first](old, row)
                self.accesses.store_dense(row, first.buffer, offset, mask)

    def _is_on(self, lane: int) -> bool:
        return self.lanes.on is None or lane in self.lanes.on

    def _row_mask(self, lane: int) -> Value | None:
        """Which elements of the row of a lane that may be on are points; None: all of them."""
        f, mask, live = self.f, self.lanes.mask, None
        if self.live < self.count:
            live = constants(I1, [number < self.live for number in range(self.count)])
        if mask is None or self.lanes.on is not None:
            return live
        on = f.splat(f.extract(mask, lane), self.count)
        return on if live is None else f.binary("and", on, live)

    # -- all elements in one go ----------------------------------------------------------

    def _dealt_out(self, first: Place) -> list[Value]:
        f, width, apart = self.f, self.lanes.width, self.live
        whole = self.accesses.load_dense(first.buffer, first.offset, width * apart, self._spread_mask())
        lanes = range(0, width * apart, apart)
        return [f.shuffle(whole, whole, [at + number for at in lanes]) for number in range(apart)]

    def _put_together(self, first: Place, values: list[Value]) -> None:
        width, apart = self.lanes.width, self.live
        joined = joined_vectors(self.f, values)
        order = [number * width + lane for lane in range(width) for number in range(apart)]
        whole = self.f.shuffle(joined, joined, order)
        self.accesses.store_dense(whole, first.buffer, first.offset, self._spread_mask())

    def _spread_mask(self) -> Value | None:
        mask = self.lanes.mask
        if mask is None:
            return None
        return self.f.shuffle(mask, mask, [e // self.live for e in range(self.lanes.width * self.live)])


# -- shuffles --------------------------------------------------------------------------------


def turned(f: Function, rows: Sequence[Value], element_bytes: int) -> list[Value]:
    """Vectors with an element of each row: result number c has element c of every row, in order.

    The number of rows and their length are powers of two.
    """
    count, length = len(rows), rows[0].type.lanes
    if count > length:  # side by side: rows 0, length, 2 * length ...
        rows = [joined_vectors(f, rows[at::length]) for at in range(length)]
        return _turned_parts(f, rows, element_bytes)
    mixed = _turned_parts(f, rows, element_bytes)
    if count == length:
        return mixed
    return [
        f.shuffle(mixed[at], mixed[at], range(part, part + count))
        for part in range(0, length, count)
        for at in range(count)
    ]


def _turned_parts(f: Function, rows: Sequence[Value], element_bytes: int) -> list[Value]:
    """Turn each square of as many columns as there are rows, all of them side by side."""
    side, found = len(rows), list(rows)
    piece = min(side, max(1, PIECE // element_bytes))
    for start in range(0, side, piece):
        found[start : start + piece] = _interleaved(f, found[start : start + piece])
    for at in range(piece):
        found[at::piece] = _exchanged(f, found[at::piece], piece)
    return found


def _interleaved(f: Function, rows: list[Value]) -> list[Value]:
    """Turn the squares within pieces of as many elements as there are rows."""
    piece, lanes = len(rows), rows[0].type.lanes
    half, distance = piece // 2, 1
    while distance < piece:
        merged = []
        for at in range(half):
            a, b = rows[at], rows[at + half]
            for first in (0, half):
                order: list[int] = []
                for start in range(0, lanes, piece):
                    for element in range(start + first, start + first + half):
                        order += [element, lanes + element]
                merged.append(f.shuffle(a, b, order))
        rows, distance = merged, distance * 2
    return rows


def _exchanged(f: Function, rows: list[Value], piece: int) -> list[Value]:
    """Turn the squares whose elements are pieces."""
    side, lanes = len(rows), rows[0].type.lanes
    distance = 1
    while distance < side:
        merged: list[list[Value]] = [[], []]
        for at in range(0, side, 2):
            for odd in (0, 1):
                order: list[int] = []
                for start in range(0, lanes, side * piece):
                    for row in (0, lanes):
                        for number in range(odd, side, 2):
                            low = row + start + number * piece
                            order += range(low, low + piece)
                merged[odd].append(f.shuffle(rows[at], rows[at + 1], order))
        rows, distance = [*merged[0], *merged[1]], distance * 2
    return rows


def joined_vectors(f: Function, parts: Sequence[Value]) -> Value:
    """One vector with the lanes of all parts, in order; they have the same type."""
    found = list(parts)
    while len(found) > 1:
        merged = []
        for at in range(0, len(found) - 1, 2):
            merged.append(_appended(f, found[at], found[at + 1]))
        found = [*merged, *found[len(merged) * 2 :]]
    return found[0]


def _appended(f: Function, a: Value, b: Value) -> Value:
    """The lanes of `a`, then those of `b`, which has no more."""
    first, second = a.type.lanes, b.type.lanes
    if second < first:
        b = f.shuffle(b, b, [lane if lane < second else -1 for lane in range(first)])
    return f.shuffle(a, b, range(first + second))
