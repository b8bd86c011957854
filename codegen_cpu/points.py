"""The points of one block: loops, written-out copies and lanes, down to its statements.

    loops of the plan, in order          each bounded by the constraints that it decides
      accumulators, in front of the loops that their element does not depend on
        copies of the unrolled indexes   under a test or a mask where a constraint is left
          statements

A write that aggregates goes to an accumulator where several points, in the loops inside or in
the copies, write the same element: a variable that LLVM keeps in a register. It is folded into
memory once, after these loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from codegen_cpu.access import Lanes
from codegen_cpu.accumulators import Accumulators
from codegen_cpu.intrinsics import lane_numbers
from codegen_cpu.ll import I1, I32, I64, Value, constant, constants
from codegen_cpu.loops import Facts, Loop
from codegen_cpu.pieces import Piece, Test, find_tests, in_pieces, worth_it
from codegen_cpu.plan import Plan, best_case, worst_case
from codegen_cpu.squares import Across, Square
from codegen_cpu.tools import Point, Tools
from stripe.affine import Affine
from stripe.analysis.lanes import MOST_IN_TURN, SUMS_IN_TURN
from stripe.ir import Block


@dataclass(frozen=True, slots=True)
class _Strip:
    """Values of the lane index from `lo` up to `hi`, in steps: `parts` vectors at a time.

    In the `tail` the lanes from `hi` on are off. Along the index across squares, `live` values are
    taken at a time.
    """

    lo: Value
    hi: Value
    lanes: Lanes
    parts: int = 1
    tail: bool = False
    live: int = 0


class Points:
    """The points of a block, in the order of its plan; a point may be a vector of points.

    `accumulators` is None for blocks whose writes need none. Where `down` holds, the loops go downwards, the
    innermost one through whole vectors.
    """

    def __init__(
        self,
        tools: Tools,
        block: Block,
        plan: Plan,
        passed: Mapping[str, Affine],
        facts: Facts,
        accumulators: Accumulators | None = None,
        down: Value | None = None,
    ) -> None:
        self._tools = tools
        self._f = tools.f
        self._indexing = tools.indexing
        self._block = block
        self._ranges = block.ranges
        self._plan = plan
        self._passed = dict(passed)
        self._facts = facts
        self._accumulators = accumulators
        self._down = down
        self._ahead, self._decided, self._left = self._sorted_constraints()

    def _sorted_constraints(self) -> tuple[list[Affine], dict[str, list[Affine]], list[Affine]]:
        """The constraints not known to hold: those over passed indexes alone, those that limit a loop,
        by its name, and those that are left for each point. Whether any copy is there is asked ahead of the
        loops as well."""
        plan = self._plan
        order = {name: at for at, name in enumerate((*plan.loops, *plan.unrolled))}
        ahead: list[Affine] = []
        decided: dict[str, list[Affine]] = {}
        left: list[Affine] = []
        for constraint in self._block.constraints:
            own = [name for name in constraint.expr.names if name in order]
            if self.holds(constraint.expr):
                continue
            if not own:
                ahead.append(constraint.expr)
                continue
            last = max(own, key=order.__getitem__)
            # The limits of a loop inside the lane's differ from lane to lane: a mask says it.
            if last in plan.unrolled or (plan.lane in own and last != plan.lane):
                left.append(constraint.expr)
                greatest = best_case(constraint.expr, self._ranges)
                if plan.loops and not {*own} & {*plan.loops} and not self.holds(greatest):
                    ahead.append(greatest)
            else:
                decided.setdefault(last, []).append(constraint.expr)
        return ahead, decided, left

    def holds(self, expr: Affine) -> bool:
        """Whether a constraint surely holds at every point of the box."""
        return self._indexing.holds(worst_case(expr, self._ranges).substitute(self._passed), self._facts)

    # -- loops ---------------------------------------------------------------------------

    def each(self) -> Iterator[Point]:
        """Emits loops and tests; what the caller emits while it holds a point is their body."""
        if not all(self._ranges.values()):
            return
        end = None
        if self._ahead:
            ahead = [expr.substitute(self._passed) for expr in self._ahead]
            end = self._indexing.guarded(self._indexing.all_of(ahead))
        yield from self._loops(0, Point(self._passed))
        if end is not None:
            self._f.branch(end)
            self._f.start(end)

    def _loops(self, at: int, point: Point) -> Iterator[Point]:
        """The loops from number `at` on. Only the lane's loop needs its inner ones several times."""
        plan, opened = self._plan, list[tuple[int, Loop | None]]()
        sides = () if plan.across is None else (plan.across.index,)
        while at < len(plan.loops) and plan.loops[at] not in (plan.lane, *sides) and not self._tests(at):
            name = plan.loops[at]
            self._begin(at)
            loop, value = self._open(name, point.indexes)
            point = replace(point, indexes={**point.indexes, name: value})
            opened.append((at, loop))
            at += 1
        self._begin(at)
        if at == len(plan.loops):
            yield from self._copies(point)
        elif plan.across is not None:
            yield from self._squares(at, plan.across, point, {})
        elif plan.loops[at] == plan.lane:
            yield from self._strips(at, point)
        else:
            yield from self._tested(at, point)
        self._finish(at)
        for number, loop in reversed(opened):
            if loop is not None:
                self._indexing.close(loop)
            self._finish(number)

    def _begin(self, at: int) -> None:
        if self._accumulators is not None:
            self._accumulators.begin(at)

    def _finish(self, at: int) -> None:
        if self._accumulators is not None:
            self._accumulators.finish(at)

    def _conditions(self, name: str, indexes: Mapping[str, Affine]) -> list[tuple[int, Affine]]:
        return [
            (expr.coefficient(name), expr.without({name}).substitute(indexes))
            for expr in self._decided.get(name, ())
        ]

    def _open(self, name: str, indexes: Mapping[str, Affine]) -> tuple[Loop | None, Affine]:
        size = self._ranges[name]
        limits = self._indexing.limits(size, self._conditions(name, indexes))
        if limits.first is not None and limits.stop == limits.first + 1:
            return None, Affine(limits.first)
        if not limits.is_nonempty and self._accumulators is not None:
            self._accumulators.may_not_run()
        loop = self._indexing.open(name, limits.lo, limits.hi, 1, (0, size - 1), self._down)
        return loop, self._value(loop, name)

    # -- tests of written-out copies -------------------------------------------------------

    def _tests(self, at: int) -> list[Test]:
        """The constraints that compare a loop with the indexes that are written out in it, if it is the
        innermost one, and long enough that most of it may go without."""
        plan = self._plan
        if at + 1 != len(plan.loops) or plan.across is not None or plan.use is not None:
            return []
        name = plan.loops[at]
        copies = {n: self._ranges[n] for n in plan.unrolled}
        found = find_tests(self._left, name, copies, plan.lane)
        return found if worth_it(self._ranges[name], found, self._step(name)) else []

    def _step(self, name: str) -> int:
        return max(self._plan.width, 1) if name == self._plan.lane else 1

    def _pieces(self, at: int, point: Point) -> Iterator[Piece]:
        """The loop's values in pieces; while the caller holds a free one, its tests are known to hold."""
        name, tests, left = self._plan.loops[at], self._tests(at), self._left
        here = [test.at(point.indexes) for test in tests]
        limits = self._conditions(name, point.indexes)
        for piece in in_pieces(self._indexing, self._ranges[name], limits, here, self._step(name)):
            self._left = [e for e in left if not (piece.free and any(e == test.expr for test in tests))]
            if not piece.is_nonempty and self._accumulators is not None:
                self._accumulators.may_not_run()
            yield piece
        self._left = left

    def _tested(self, at: int, point: Point) -> Iterator[Point]:
        """The innermost loop, no lane's, with tests only where they may fail."""
        name = self._plan.loops[at]
        for piece in self._pieces(at, point):
            loop = self._indexing.open(name, piece.lo, piece.hi, 1, (0, self._ranges[name] - 1))
            inside = replace(point, indexes={**point.indexes, name: self._value(loop, name)})
            yield from self._loops(at + 1, inside)
            self._indexing.close(loop)

    def _value(self, loop: Loop, name: str) -> Affine:
        """The value of an index in its loop. With one value only it is no variable: what is left behind the
        loop must not depend on it."""
        return loop.value if self._ranges[name] > 1 else Affine()

    # -- lanes ---------------------------------------------------------------------------

    def _strips(self, at: int, point: Point) -> Iterator[Point]:
        """The loop over the lane index: whole vectors, and what is left of them."""
        if self._tests(at):
            for piece in self._pieces(at, point):
                strips = self._strips_between(piece.lo, piece.hi, at, whole=piece.free)
                yield from self._stripped(at, point, strips, steady=False)
            return
        name, size = self._plan.lane, self._ranges[self._plan.lane]
        limits = self._indexing.limits(size, self._conditions(name, point.indexes))
        if not limits.is_nonempty and self._accumulators is not None:
            self._accumulators.may_not_run()
        if limits.first is not None and limits.stop is not None:
            strips = self._known_strips(limits.first, limits.stop, at)
        else:
            strips = self._strips_between(limits.lo, limits.hi, at)
        steady = self._is_settled(self._decided.get(name, ()))
        yield from self._stripped(at, point, strips, steady)

    def _stripped(self, at: int, point: Point, strips: Iterable[_Strip], steady: bool) -> Iterator[Point]:
        name, size = self._plan.lane, self._ranges[self._plan.lane]
        for strip in strips:
            width = max(strip.lanes.width, 1)
            step = width * strip.parts
            loop = None
            if _is_single(strip, step):
                value = Affine(int(strip.lo.text))
            else:
                down = None if strip.tail else self._down
                loop = self._indexing.open(name, strip.lo, strip.hi, step, (0, size - 1), down)
                value = self._value(loop, name)
            for part in range(strip.parts):
                lanes = self._tail_mask(strip, value)
                indexes = {**point.indexes, name: value + part * width}
                made = replace(point, indexes=indexes, lanes=lanes, part=part, steady=steady)
                yield from self._loops(at + 1, made)
            if loop is not None:
                self._indexing.close(loop)

    def _parts(self, at: int) -> int:
        """How many vectors may take turns: where the innermost loop only adds up."""
        innermost = at + 1 == len(self._plan.loops)
        small = len(self._block.statements) <= MOST_IN_TURN and not self._plan.unrolled
        sums = self._accumulators is not None and self._accumulators.all_across_lanes
        return SUMS_IN_TURN if innermost and small and sums else 1

    def _known_strips(self, first: int, stop: int, at: int) -> Iterator[_Strip]:
        lane, width = self._plan.lane, self._plan.width
        for parts in dict.fromkeys((self._parts(at), 1)):
            count = (stop - first) // (width * parts)
            if count > 0:
                end = first + count * width * parts
                yield _Strip(_i64(first), _i64(end), Lanes(lane, width), parts)
                first = end
        for base, lanes in self._rest(first, stop):
            yield _Strip(_i64(base), _i64(base + max(lanes.width, 1)), lanes)

    def _rest(self, first: int, stop: int) -> Iterator[tuple[int, Lanes]]:
        """Fewer points than a vector has lanes: narrower vectors, or one under a mask."""
        lane = self._plan.lane
        while first < stop:
            left = stop - first
            whole = 1 << (left.bit_length() - 1)
            if left == whole or not self._plan.masks:
                yield first, Lanes(lane, whole if whole > 1 else 0)
                first += whole
            else:
                mask = constants(I1, [number < left for number in range(2 * whole)])
                yield first, Lanes(lane, 2 * whole, mask, range(left))
                return

    def _strips_between(self, lo: Value, hi: Value, at: int, whole: bool = False) -> Iterator[_Strip]:
        """Whole vectors, and what is left of them unless the values are a `whole` number of vectors."""
        f, lane, width = self._f, self._plan.lane, self._plan.width
        count = f.intrinsic("smax", [f.binary("sub nsw", hi, lo), _i64(0)])
        start = lo
        for parts in dict.fromkeys((self._parts(at), 1)):
            if self._ranges[lane] < width * parts:
                continue
            done = f.binary("and", count, _i64(-width * parts))
            end = f.binary("add nsw", lo, done)
            yield _Strip(start, end, Lanes(lane, width), parts)
            start = end
        if whole:
            return
        if self._plan.masks:
            yield _Strip(start, hi, Lanes(lane, width), tail=True)
        else:
            yield _Strip(start, hi, Lanes(lane, 0))

    def _is_settled(self, limits: Iterable[Affine]) -> bool:
        """Whether constraints on the lane index depend on nothing else that changes in the block."""
        known = {self._plan.lane, *self._passed}
        return all(name in known for expr in limits for name in expr.names)

    def _tail_mask(self, strip: _Strip, value: Affine) -> Lanes:
        if not strip.tail:
            return strip.lanes
        left = self._f.binary("sub nsw", strip.hi, self._indexing.value(value))
        return replace(strip.lanes, mask=self._lanes_below(left, strip.lanes.width))

    def _lanes_below(self, count: Value, width: int) -> Value:
        """The first `count` lanes, 0 <= count."""
        f = self._f
        count = f.convert("trunc", f.intrinsic("umin", [count, _i64(width)]), I32)
        return f.compare("icmp ult", lane_numbers(I32.times(width)), f.splat(count, width))

    # -- squares -------------------------------------------------------------------------

    def _squares(self, at: int, across: Across, point: Point, sides: Mapping[str, _Strip]) -> Iterator[Point]:
        """The loops from number `at` on, of which two go along the `sides` of squares, by their indexes."""
        plan = self._plan
        if at == len(plan.loops):
            yield from self._square(sides[plan.lane], sides[across.index], across, point)
            return
        name = plan.loops[at]
        if name in (plan.lane, across.index):
            for strip, inside in self._sides(at, across, point):
                self._begin(at + 1)
                yield from self._squares(at + 1, across, inside, {**sides, name: strip})
                self._finish(at + 1)
            return
        loop, value = self._open(name, point.indexes)
        inside = replace(point, indexes={**point.indexes, name: value})
        self._begin(at + 1)
        yield from self._squares(at + 1, across, inside, sides)
        self._finish(at + 1)
        if loop is not None:
            self._indexing.close(loop)

    def _sides(self, at: int, across: Across, point: Point) -> Iterator[tuple[_Strip, Point]]:
        """The loop over one side of the squares: what is emitted while a strip is held is its body."""
        name = self._plan.loops[at]
        size = self._ranges[name]
        limits = self._indexing.limits(size, self._conditions(name, point.indexes))
        if not limits.is_nonempty and self._accumulators is not None:
            self._accumulators.may_not_run()
        if limits.first is not None and limits.stop is not None:
            if name == self._plan.lane:
                strips = self._known_strips(limits.first, limits.stop, at)
            else:
                strips = self._known_chunks(limits.first, limits.stop, across)
        elif name == self._plan.lane:
            strips = self._strips_between(limits.lo, limits.hi, at)
        else:
            strips = self._chunks_between(limits.lo, limits.hi, across)
        for strip in strips:
            step = strip.live or max(strip.lanes.width, 1)
            loop = None
            if _is_single(strip, step):
                value = Affine(int(strip.lo.text))
            else:
                loop = self._indexing.open(name, strip.lo, strip.hi, step, (0, size - 1))
                value = self._value(loop, name)
            yield strip, replace(point, indexes={**point.indexes, name: value})
            if loop is not None:
                self._indexing.close(loop)

    def _square(self, strip: _Strip, chunk: _Strip, across: Across, point: Point) -> Iterator[Point]:
        base, square = point.indexes[across.index], None
        lanes = self._tail_mask(strip, point.indexes[self._plan.lane])
        if lanes.width and chunk.live > 1:
            count = chunk.lanes.width
            square = Square(self._f, self._tools.accesses, lanes, across, count, chunk.live)
        for number in range(chunk.live):
            indexes = {**point.indexes, across.index: base + number}
            yield replace(point, indexes=indexes, lanes=lanes, square=square, number=number)
        if square is not None:
            square.finish()

    def _known_chunks(self, first: int, stop: int, across: Across) -> Iterator[_Strip]:
        """Values of the index across: whole squares, and what is left of them."""
        whole = first + (stop - first) // across.count * across.count
        if whole > first:
            yield _Strip(_i64(first), _i64(whole), Lanes("", across.count), live=across.count)
        for base, lanes in self._rest(whole, stop):
            live = len(lanes.on or ()) or max(lanes.width, 1)
            yield _Strip(_i64(base), _i64(base + live), Lanes("", lanes.width), live=live)

    def _chunks_between(self, lo: Value, hi: Value, across: Across) -> Iterator[_Strip]:
        f = self._f
        count = f.intrinsic("smax", [f.binary("sub nsw", hi, lo), _i64(0)])
        whole = f.binary("sdiv", count, _i64(across.count))
        end = f.binary("add nsw", lo, f.binary("mul nsw", whole, _i64(across.count)))
        yield _Strip(lo, end, Lanes("", across.count), live=across.count)
        yield _Strip(end, hi, Lanes("", 0), live=1)

    # -- copies --------------------------------------------------------------------------

    def _copies(self, point: Point) -> Iterator[Point]:
        """The unrolled indexes, written out."""
        plan = self._plan
        choices: list[list[tuple[int, Lanes | None]]] = []
        for name in plan.unrolled:
            if name == plan.lane:
                choices.append([(base, lanes) for base, lanes in self._chunks(self._ranges[name])])
            else:
                choices.append([(value, None) for value in range(self._ranges[name])])
        for chosen in itertools.product(*choices):
            values = {n: Affine(v) for n, (v, _) in zip(plan.unrolled, chosen, strict=True)}
            lanes = next((lanes for _, lanes in chosen if lanes is not None), point.lanes)
            steady = point.steady or lanes is not point.lanes
            made = replace(point, indexes={**point.indexes, **values}, lanes=lanes, steady=steady)
            yield from self._guarded(made)

    def _chunks(self, size: int) -> Iterator[tuple[int, Lanes]]:
        width = self._plan.width
        for base in range(0, size - width + 1, width):
            yield base, Lanes(self._plan.lane, width)
        yield from self._rest(size - size % width, size)

    def _guarded(self, point: Point) -> Iterator[Point]:
        """One copy under the constraints that are left: a branch, and a mask for those on lanes."""
        f, lanes = self._f, point.lanes
        tests: list[Affine] = []
        limits: list[tuple[int, Affine]] = []
        steady = point.steady
        for expr in self._left:
            step = expr.coefficient(lanes.index) if lanes.width else 0
            first = expr.substitute(point.indexes)
            least = first + min(0, step * (lanes.width - 1))
            if self._indexing.holds(least, self._facts):
                continue
            if self._indexing.fails(first + max(0, step * (lanes.width - 1))):
                return
            if step:
                limits.append((step, first))
                steady = steady and self._is_settled([expr])
            else:
                tests.append(first)
        if not tests and not limits:
            yield point
            return
        conditions = [self._indexing.at_least_zero(expr) for expr in tests]
        if limits and (on := _known(limits, lanes)) is not None:
            mask = constants(I1, [number in on for number in range(lanes.width)])
            point = replace(point, lanes=replace(lanes, mask=mask, on=on), steady=steady)
        elif limits:
            some, mask = self._limited(limits, lanes)
            conditions.append(some)
            point = replace(point, lanes=replace(lanes, mask=mask, on=None), steady=steady)
        if not conditions:
            yield point
            return
        condition = conditions[0]
        for other in conditions[1:]:
            condition = f.binary("and", condition, other)
        end = self._indexing.guarded(condition)
        if self._accumulators is not None:
            with self._accumulators.conditional():
                yield point
        else:
            yield point
        f.branch(end)
        f.start(end)

    def _limited(self, conditions: list[tuple[int, Affine]], lanes: Lanes) -> tuple[Value, Value]:
        """Whether any lane satisfies the conditions, and the mask of those that do."""
        f = self._f
        found = self._indexing.limits(lanes.width, conditions)
        low = self._lanes_below(f.intrinsic("smax", [found.lo, _i64(0)]), lanes.width)
        high = self._lanes_below(f.intrinsic("smax", [found.hi, _i64(0)]), lanes.width)
        mask = f.binary("and", high, f.binary("xor", low, constant(low.type, True)))
        if lanes.mask is not None:
            mask = f.binary("and", mask, lanes.mask)
        return f.call(f"llvm.vector.reduce.or.{mask.type.mangled}", I1, [mask]), mask


def _known(conditions: Iterable[tuple[int, Affine]], lanes: Lanes) -> range | None:
    """The lanes that satisfy coefficient * lane + rest >= 0 for each condition, where that is known ahead and
    there are some."""
    if lanes.mask is not None and lanes.on is None:
        return None
    found = [*(lanes.on or range(lanes.width))]
    for step, rest in conditions:
        if not rest.is_constant:
            return None
        found = [lane for lane in found if step * lane + rest.const >= 0]
    return range(found[0], found[-1] + 1) if found else None


def _i64(value: int) -> Value:
    return constant(I64, value)


def _is_single(strip: _Strip, step: int) -> bool:
    if not (strip.lo.is_constant and strip.hi.is_constant):
        return False
    return int(strip.hi.text) == int(strip.lo.text) + step
