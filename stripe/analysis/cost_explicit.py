"""The roofline model for a tile in a memory that the program manages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np

from hwconfigs.model import Memory
from stripe.affine import Affine, box_of
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, box_elements
from stripe.analysis.cost_parts import Loops, Nest, Part, nest_of
from stripe.analysis.cost_places import copy_rate, goes_straight, places_apart
from stripe.analysis.cost_problem import Costs, Evaluation, Limit, Problem, combine
from stripe.analysis.cost_sizes import balanced_sizes, possible_sizes
from stripe.analysis.cost_uses import Work
from stripe.ir import Direction
from stripe.locks import cached_property

Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Means: TypeAlias = Mapping[str, Costs | int]  # sizes on average

LEVEL = "|"  # in an order of tile loops: those in front of it are a level of their own around the others


class ExplicitRoofline:
    """Cycles for each point: arithmetic against the copies between this memory and the farther one.

    cost = (arithmetic + sum over copies (startup + bytes / rate)) / points

    With several tiles in flight the two overlap: `combine` lets the longer hide most of the other. Each time
    that the innermost loop over tiles runs, nothing hides the first copies in and the last ones out, and
    the arithmetic of one tile hides nothing.
    At every tile of a nest, each statement brings in what it reads and takes out what it writes; one
    with a tile loop of its own does so at each of its tiles. What it aggregates in such a loop stays until
    the loop is through, in this memory or in one for accumulators. What it only reads stays while a level
    of tiles runs that does not change it: it was brought in before, which hides nothing. For each operand
    there is an order of the loops in which those that change it are a level around the others.
    Arithmetic is the cycles of all uses of stencils, or of vector operations with idle lanes and the
    points that overhang. The limits: one tile of every operand, the buffers of the nest and those below
    it must fit together, each a multiple of what addresses are aligned to, and in a memory of its own what
    stencils take there; as often as `inflight` says
    where their level has several tiles, or, with `sparing`, only where they change from tile to tile.
    A result that several tiles add to is as large as all of these together.

    Reductions are split if asked for, or by themselves where a unit that computes reaches the memory.
    Of the sizes of a range, "all" tries the least for each number of tiles: the others bring in more.
    """

    unit = "cycles per point"

    def __init__(self, problem: Problem, loops: Loops = "reductions", sparing: bool = False) -> None:
        self.problem = problem
        self.sparing = sparing
        self.splits = _adds_up(problem) if problem.reductions is None else problem.reductions
        self.loops: Loops = loops if self.splits else "none"
        whole = frozenset() if self.splits else problem.reduced
        self.nest: Nest = nest_of(problem.block, problem.outer, problem.names, self.loops, whole)
        self._rates: dict[str, tuple[float, float]] = {}

    @cached_property
    def ranges(self) -> dict[str, int]:
        """Every variable that may be tiled: the nest's indexes, then those of tile loops of statements."""
        found = dict(self.nest.outer)
        for part in self.nest.parts:
            found |= {name: size for name, size in part.loops.items() if size > 1}
        return found

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(self.ranges)

    def refusal(self) -> str:
        memory = self.problem.memory
        if memory.bytes is None and memory.backing is None:
            return f"the memory {memory.name} has no limit"  # else a tile is a place for copies
        return ""

    def choices(self) -> dict[str, tuple[int, ...]]:
        rule = self.problem.rule
        return {
            name: balanced_sizes(size) if rule == "all" else possible_sizes(size, rule)
            for name, size in self.ranges.items()
        }

    def orders(self) -> tuple[tuple[str, ...], ...]:
        """All loops in one level, then with a level around them for each operand that is only read.
        Reductions run inside, so that results can stay."""
        free = [n for n in self.nest.outer if n not in self.reduced]
        found = [self.order]
        for operand in (o for part in self.nest.parts for o in part.operands if _is_copied_in(o)):
            around = [n for n in free if n in operand.indexes]
            inside = [n for n in free if n not in operand.indexes]
            if around and inside:
                found.append((*around, LEVEL, *inside, *self.reduced))
        return tuple(dict.fromkeys(found))

    @cached_property
    def order(self) -> tuple[str, ...]:
        return (*(n for n in self.nest.outer if n not in self.reduced), *self.reduced)

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """The nest's indexes that some result does not depend on: a tile loop of their own, below the
        others, lets such results stay."""
        written = [o for p in self.nest.parts for o in p.operands if o.direction.writes and not o.local]
        return tuple(n for n in self.nest.outer if any(n not in o.indexes for o in written))

    def untiled(self, sizes: Mapping[str, int]) -> float:
        return inf  # without a tile there is no place for its copies

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        return ()

    def settled_lane(self, leaf: Leaf) -> str:
        return ""

    # ---------------------------------------------------------------------------------- costs

    def evaluate(self, sizes: Sizes, order: Sequence[str], upto: Sizes | None = None) -> Evaluation:
        trips = {n: -(-size // np.asarray((upto or sizes)[n], np.int64)) for n, size in self.ranges.items()}
        # Tiles at the edge are smaller: so large are all of them on average.
        mean = {n: size / -(-size // np.asarray(sizes[n], np.int64)) for n, size in self.ranges.items()}
        around = frozenset(order[: order.index(LEVEL)]) if LEVEL in order else frozenset()
        arithmetic: Costs = np.asarray(0.0)
        copying: Costs = np.asarray(0.0)
        ahead: Costs = np.asarray(0.0)
        exposed: Costs = np.asarray(0.0)
        bare: Costs = np.asarray(0.0)
        for part, work in zip(self.nest.parts, self._work, strict=True):
            levels = self._loop_levels(part, trips, around)
            own = work.cycles(sizes, upto)
            arithmetic, bare = arithmetic + own, bare + own * _bare(levels, trips)
            for operand in self._copied(part):
                often, each = self._copying(part, operand, sizes, mean, trips)
                cycles = np.where(self._there(operand, trips), 0.0, often * each)
                shown = np.minimum(
                    np.minimum(self._exposed(part, operand, levels, trips), often) * each, cycles
                )
                if _is_copied_in(operand):
                    stays, share = _staying(operand, levels, trips)
                    ahead = ahead + np.where(stays, cycles * share, 0.0)
                    cycles, shown = np.where(stays, 0.0, cycles), np.where(stays, 0.0, shown)
                copying, exposed = copying + cycles, exposed + shown
        if upto is not None:  # of no tile in between less than this hides behind arithmetic
            copying, ahead, bare = copying + ahead, np.asarray(0.0), np.asarray(0.0)
        if self.problem.inflight > 1:
            time = exposed + bare + combine(arithmetic - bare, copying - exposed) + ahead
        else:
            time = arithmetic + copying + ahead
        return Evaluation(time / self._points, tuple(self._limits(sizes, trips)))

    def _copied(self, part: Part) -> list[Operand]:
        """What is copied in or out for a statement."""
        return [o for o in part.operands if not o.local and o.name not in self.problem.bypass]

    def _there(self, operand: Operand, trips: Mapping[str, Counts]) -> Flags:
        """Whether a statement finds what it reads in the memory, where one before it in the tile read or
        wrote the same; not so if one of the two goes through parts of it, tile by tile."""
        found: Flags = np.asarray(False)
        for own in self._earlier.get(id(operand), ()):
            found = found | ~_several(own, trips)
        return found

    @cached_property
    def _earlier(self) -> dict[int, list[frozenset[str]]]:
        """For what a statement reads of a box that others before it touch, by identity: for each of these
        the tile loops through parts of it."""
        found: dict[int, list[frozenset[str]]] = {}
        before: dict[tuple[object, ...], list[frozenset[str]]] = {}
        for part in self.nest.parts:
            for operand in part.operands:
                key = (operand.name, *self._box(part, operand))
                loops = frozenset(n for n in part.loops if n in operand.indexes)
                if operand.direction is Direction.IN:
                    found[id(operand)] = [loops | others for others in before.get(key, ())]
            for operand in part.operands:
                key = (operand.name, *self._box(part, operand))
                before.setdefault(key, []).append(frozenset(n for n in part.loops if n in operand.indexes))
        return found

    def _box(self, part: Part, operand: Operand) -> tuple[tuple[Affine, int], ...]:
        """What a statement has of a buffer at one point of the nest: where it starts, and how large it is."""
        own = box_of({name: size for name, size in part.own.items() if name not in self.nest.outer})
        found = []
        for expr, extent in zip(operand.access, operand.extent, strict=True):
            inside = expr.only(frozenset(own))
            low, high = inside.bounds(own)
            found.append((expr - inside + low, high - low + extent))
        return tuple(found)

    def _copying(
        self, part: Part, operand: Operand, sizes: Sizes, mean: Means, trips: Mapping[str, Counts]
    ) -> tuple[Counts, Costs]:
        """How often an operand is copied in, or out, or both, and the cycles of each time."""
        startup, rate = self._rate(operand)
        around = {**self.nest.outer, **part.loops}
        if self._accumulates(part, operand):
            around = {n: size for n, size in self.nest.outer.items() if n not in self.reduced}
            mean = {**mean, **self._through(part)}
        elif operand.direction is Direction.OUT and operand.combines:
            return self._kept(part, operand, sizes, mean, trips)
        each = startup + self._bytes(part, operand, mean) / rate
        return _product(trips, around), each * (2 if operand.direction is Direction.INOUT else 1)

    def _loop_levels(
        self, part: Part, trips: Mapping[str, Counts], around: frozenset[str]
    ) -> list[frozenset[str]]:
        """The loops over tiles around a statement, level by level, the innermost first. `around` are those of
        the outermost level."""
        own = frozenset(n for n in part.loops if n in trips)
        reduced = frozenset(n for n in self.reduced if n in trips)
        middle = frozenset(n for n in self.nest.outer if n in trips) - reduced - around
        return [own, reduced, middle, around]

    def _exposed(
        self, part: Part, operand: Operand, levels: Sequence[frozenset[str]], trips: Mapping[str, Counts]
    ) -> Counts:
        """How many copies of an operand nothing hides: those of the first tile, or the last one, each time
        that the innermost level of several tiles runs. In a tile of several statements, nothing hides the
        inputs of the first one and the results of the last one."""
        ends = self._last if operand.direction is Direction.OUT else self._first
        begun: Flags = np.asarray(False)
        runs: Counts = np.asarray(1, np.int64)
        for level in levels:
            runs = runs * np.where(begun, _product(trips, dict.fromkeys(level, 0)), 1)
            begun = begun | _several(level, trips)
        return runs if part is ends else np.where(_several(levels[0], trips), runs, 0)

    @cached_property
    def _first(self) -> Part | None:
        """The first statement for which something is copied in."""
        return next((p for p in self.nest.parts if any(o.direction.reads for o in self._copied(p))), None)

    @cached_property
    def _last(self) -> Part | None:
        """The last statement of which something is copied out."""
        return next(
            (p for p in self.nest.parts[::-1] if any(o.direction.writes for o in self._copied(p))), None
        )

    def _kept(
        self, part: Part, operand: Operand, sizes: Sizes, mean: Means, trips: Mapping[str, Counts]
    ) -> tuple[Counts, Costs]:
        """How often, and for how many cycles, a result is copied out that several tiles add to: it stays near
        until they all have, and is taken out then."""
        startup, rate = self._rate(operand)
        around = {**self.nest.outer, **{n: 0 for n in part.loops if n in operand.indexes}}
        often, each = _product(trips, around), startup + self._bytes(part, operand, mean) / rate
        tile = self._tile(part, operand, {})
        if not tile.missing:
            return often, each
        stays, once = tile.stays(trips), _product(trips, dict.fromkeys(tile.outside, 0))
        return np.where(stays, once, often), np.where(stays, startup + tile.bytes(sizes, trips) / rate, each)

    def _through(self, part: Part) -> dict[str, int]:
        """What runs through, at its whole range, while an accumulated result stays."""
        return {**part.loops, **{n: self.nest.outer[n] for n in self.reduced}}

    def _accumulates(self, part: Part, operand: Operand) -> bool:
        """Whether a statement's result gathers in the memory for accumulators."""
        return (
            self.problem.accumulators is not None
            and operand.direction.writes
            and (bool(part.uses) or self._reduces(part, operand))
        )

    def _reduces(self, part: Part, operand: Operand) -> bool:
        """Whether a statement adds to an element of a result at several of its points."""
        names = {n for leaf in part.leaves for n in leaf.ranges} | {n for u in part.uses for n in u.around}
        return operand.combines and not names <= operand.indexes

    def _bytes(self, part: Part, operand: Operand, mean: Means) -> Costs:
        """Bytes of the box of a tile, on average."""
        ranges: dict[str, Costs | int] = {**self.problem.ranges, **part.own, **mean}
        total: Costs = np.asarray(float(operand.dtype.bytes))
        for expr, own in zip(operand.access, operand.extent, strict=True):
            terms = (abs(c) * (np.asarray(ranges[n], float) - 1) for n, c in expr.terms if n in ranges)
            total = total * sum(terms, start=np.asarray(float(own)))
        return total

    @cached_property
    def _apart(self) -> dict[str, Memory]:
        """Where buffers lie that stencils take in another memory; what gathers has its own."""
        near, gathers = self.problem.memory, self.problem.accumulators
        found = places_apart(self.nest.parts, near, self.problem.hw)
        return {name: m for name, m in found.items() if gathers is None or m.name != gathers.name}

    def _rate(self, operand: Operand) -> tuple[float, float]:
        """Cycles before a copy of an operand, and its bytes per cycle."""
        memory = self._apart.get(operand.name, self.problem.memory)
        if memory.name not in self._rates:
            problem = self.problem
            self._rates[memory.name] = copy_rate(memory, problem.hw, problem.around, problem.units)
        return self._rates[memory.name]

    @cached_property
    def _points(self) -> int:
        return max((w.points for w in self._work), default=1)

    @cached_property
    def _work(self) -> tuple[Work, ...]:
        return tuple(Work.of(part, self.problem) for part in self.nest.parts)

    # --------------------------------------------------------------------------------- limits

    def _limits(self, sizes: Sizes, trips: Mapping[str, Counts]) -> Iterator[Limit]:
        problem = self.problem
        accumulators = problem.accumulators
        near: Counts = np.asarray(0, np.int64)
        gathered: Counts = np.asarray(0, np.int64)
        apart: dict[str, Counts] = {}
        for buffer in self._buffers:
            other = accumulators if buffer.accumulated else self._apart.get(buffer.name)
            align = (other or problem.memory).align_bytes
            each = -(-buffer.bytes(sizes, trips) // align) * align
            bytes_ = each * self._alive(buffer, trips)
            if buffer.accumulated:
                gathered = gathered + bytes_
            elif other is not None:
                apart[other.name] = apart.get(other.name, 0) + bytes_
            else:
                near = near + bytes_
        near = near + max((part.held for part in self.nest.parts), default=0)
        together = accumulators is not None and accumulators.name == problem.memory.name
        through = accumulators is not None and not goes_straight(accumulators, problem.memory, problem.hw)
        yield _limit(near + gathered if together or through else near, problem.memory)
        if accumulators is not None and not together:
            yield _limit(gathered, accumulators)
        for name, bytes_ in apart.items():
            yield _limit(bytes_, next(m for m in self._apart.values() if m.name == name))
        for memory in problem.limits:
            yield _limit(near, memory)

    def _alive(self, buffer: _Buffer, trips: Mapping[str, Counts]) -> Counts:
        """How many copies of a buffer are alive: several if there are several tiles where it lies."""
        levels = [np.where(t.stays(trips), _several(t.outside, trips), _several(t.around, trips))
                  for t in buffer.tiles]  # fmt: skip
        several = reduce(np.logical_or, levels) if levels else _several(buffer.around, trips)
        if self.sparing:
            several = several & _several(buffer.indexes, trips)
        return 1 + (self.problem.inflight - 1) * several.astype(np.int64)

    @cached_property
    def _buffers(self) -> tuple[_Buffer, ...]:
        """Each buffer that a tile of the nest keeps in near memory, once."""
        outer = frozenset(self.nest.outer)
        own: dict[str, list[_Tile]] = {}
        accumulated: set[str] = set()
        for part in self.nest.parts:
            for operand in part.operands:
                used = own.setdefault(operand.name, [])
                if self._accumulates(part, operand):
                    accumulated.add(operand.name)
                    used.append(self._tile(part, operand, self._through(part)))
                elif not operand.local:
                    used.append(self._tile(part, operand, {}))
        found = []
        for ref in self.problem.block.refinements:
            if ref.direction is not Direction.NEW:
                if own.get(ref.name) and ref.name not in self.problem.bypass:
                    tiles = tuple(own[ref.name])
                    reach = frozenset().union(*(t.indexes for t in tiles))
                    found.append(_Buffer(ref.name, tiles, 0, reach, outer, ref.name in accumulated, ()))
                continue
            if ref.location is None or ref.location.unit == self.problem.memory.name:
                bytes_ = ref.bytes
                points = tuple(self.problem.block.ranges)
                found.append(_Buffer(ref.name, (), bytes_, outer, outer, ref.name in accumulated, points))
        return tuple(found)

    def _tile(self, part: Part, operand: Operand, whole: Mapping[str, int]) -> _Tile:
        around = frozenset({**self.nest.outer, **part.loops}) - set(whole)
        missing: frozenset[str] = frozenset()
        if not whole and operand.direction.writes and operand.combines:
            missing = frozenset(self.reduced) - operand.indexes
        outside = around - set(self.reduced) - set(part.loops)
        reduced = {n: self.nest.outer[n] for n in self.reduced}
        ranges = {**self.problem.ranges, **part.own}
        return _Tile(operand, whole, ranges, around, missing, reduced, outside)


def _is_copied_in(operand: Operand) -> bool:
    return operand.direction is Direction.IN and not operand.local


def _staying(
    operand: Operand, levels: Sequence[frozenset[str]], trips: Mapping[str, Counts]
) -> tuple[Flags, Costs]:
    """Whether an operand that is only read stays while the innermost level of tiles runs, and what share
    of the copies at all tiles is left then."""
    stays: Flags = np.asarray(True)
    skipped: Costs = np.asarray(1.0)
    found: Flags = np.asarray(False)
    for level in levels:
        runs = _several(level, trips)
        changes = _several(level & operand.indexes, trips)
        stays = stays & ~changes
        found = found | (stays & runs)
        skipped = skipped * np.where(stays, _product(trips, dict.fromkeys(level, 0)), 1)
    return found, 1.0 / skipped


def _several(names: frozenset[str], trips: Mapping[str, Counts]) -> Flags:
    """Whether there are several tiles along these indexes."""
    found: Flags = np.asarray(False)
    for name in names:
        if name in trips:
            found = found | (trips[name] > 1)
    return found


@dataclass(frozen=True, slots=True)
class _Tile:
    """What one statement has of a buffer at one of its tiles: `whole` are the loops that run through,
    `around` the others.

    Where there are several tiles along one of `missing`, on which it does not depend, they add to
    one result, which stays while all of `reduced` run through, in the loops `outside`.
    """

    operand: Operand
    whole: Mapping[str, int]
    ranges: Mapping[str, int]
    around: frozenset[str]
    missing: frozenset[str]
    reduced: Mapping[str, int]
    outside: frozenset[str]

    @property
    def indexes(self) -> frozenset[str]:
        return self.operand.indexes - set(self.whole)

    def stays(self, trips: Mapping[str, Counts]) -> Flags:
        return _several(self.missing, trips)

    def bytes(self, sizes: Sizes, trips: Mapping[str, Counts]) -> Counts:
        inside = {**self.ranges, **sizes, **self.whole}
        elements = box_elements(self.operand, inside)
        if self.missing:
            all_of = box_elements(self.operand, {**inside, **self.reduced})
            elements = np.where(self.stays(trips), all_of, elements)
        return elements * self.operand.dtype.bytes


@dataclass(frozen=True, slots=True)
class _Buffer:
    """A buffer in near memory: the largest of the tiles that statements have of it, or, if it is the
    nest's own, `each` bytes for every one of the `points` of a tile, in the loops `around`. It changes
    with `indexes`."""

    name: str
    tiles: tuple[_Tile, ...]
    each: int
    indexes: frozenset[str]
    around: frozenset[str]
    accumulated: bool
    points: tuple[str, ...]

    def bytes(self, sizes: Sizes, trips: Mapping[str, Counts]) -> Counts:
        found: Counts = np.asarray(self.each, np.int64)
        for name in self.points:
            found = found * np.asarray(sizes.get(name, 1), np.int64)
        for tile in self.tiles:
            found = np.maximum(found, tile.bytes(sizes, trips))
        return found


def _adds_up(problem: Problem) -> bool:
    """Whether a unit that computes reaches the memory: else partial results can't be combined there."""
    units = problem.hw.compute_units
    return not units or any(problem.memory.name in u.reaches for u in units)


def _bare(levels: Sequence[frozenset[str]], trips: Mapping[str, Counts]) -> Costs:
    """The share of a statement's arithmetic beside which it copies nothing: that of one tile, each time that
    the innermost level of several tiles runs. Of a single tile, copies for other statements may."""
    tiles: Counts = np.asarray(1, np.int64)
    for level in levels:
        tiles = np.where(tiles > 1, tiles, _product(trips, dict.fromkeys(level, 0)))
    return np.where(tiles > 1, 1.0 / tiles, 0.0)


def _product(trips: Mapping[str, Counts], names: Mapping[str, object]) -> Counts:
    return prod((trips[n] for n in names if n in trips), start=np.asarray(1, np.int64))


def _limit(needed: Counts, memory: Memory) -> Limit:
    return Limit(needed, memory.bytes, f"bytes of {memory.name}")
