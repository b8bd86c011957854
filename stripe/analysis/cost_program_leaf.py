"""Cycles of a unit for one execution of a leaf block, as its code runs it.

    loops in their order, and inside them the copies of what is written out: the body
        each body:   operations | loads | stores | instructions issued | the sums, which wait for each other

Where a constraint on a written-out index can fail, each copy that it can rule out has a test of its own, a
branch around it: what it loads is of no use to the copies behind it, which load it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, log2, prod

from hwconfigs.model import Unit
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf
from stripe.analysis.cost_program_nest import Access, Nest
from stripe.analysis.cost_program_traffic import Order
from stripe.analysis.cost_program_trips import Trips
from stripe.analysis.cost_registers_leaf import LATENCY_CYCLES
from stripe.analysis.lanes import DEALT, STORE, vector_width
from stripe.analysis.work import FUNCTION, INSTRUCTIONS, vector_operations
from stripe.ir import Intrinsic
from stripe.locks import cached_property

ISSUED = 6.0  # instructions of a cycle
TURN = 2.0  # instructions that count a loop and go back
WINDOW = 300.0  # instructions among which one that waits lets others go ahead
ENTRY_CYCLES = 3.0  # to begin and to end the loops of a block
INTERLEAVED = 4  # sums across lanes, written out by nobody, that code generation lets take turns
SPILLED = 2.0  # cycles of a port to save or fetch a vector: the stack gives it no line of its own


@dataclass(frozen=True, slots=True)
class Copy:
    """A point that is written out: its indexes, and what has to be tested for it (nothing: ())."""

    at: Mapping[str, int]
    tests: tuple[tuple[int, int], ...]

    def place(self, access: Access) -> int:
        """Where an access goes, less what is the same for all copies."""
        return sum(access.place.coefficient(name) * value for name, value in self.at.items())


@dataclass(frozen=True)
class Body:
    """How the points of a leaf are run: `loops`, and inside them `unrolled`; `lane` is one of these or empty,
    and goes in vectors of `width`, in squares with `across`. Such a vector takes a `share` of the time of a
    full one, a single element `least` of it; the vectors of a row that is written out take `mean`, as the
    last one may be narrower."""

    leaf: Nest
    loops: tuple[str, ...]
    unrolled: tuple[str, ...]
    lane: str
    width: int
    across: str
    share: float
    least: float
    mean: float

    @staticmethod
    def of(leaf: Nest, unit: Unit) -> Body:
        block, own = leaf.block, leaf.own
        least = min(unit.path_bytes or unit.vector_bytes, unit.vector_bytes) / unit.vector_bytes
        if leaf.parts:
            return Body(leaf, tuple(leaf.loops), (), "", 1, "", least, least, least)
        named = [own[name] for name in block.tag_values("vector") if name in own]
        lane = next((name for name in named if leaf.loops[name] > 1), "")
        across = next((own[n] for n in block.tag_values("across") if lane and n in own), "")
        full, width = vector_width(block, unit.vector_bytes), 1
        if lane:  # fewer points than lanes: a narrower vector
            width = min(full, 1 << (leaf.loops[lane] - 1).bit_length())
        unrolled = tuple(own[n] for n in block.ranges if n in block.tag_values("unroll") and n in own)
        loops = tuple(name for name in leaf.loops if name not in unrolled)
        share = mean = max(width / full, least)
        if lane in unrolled:
            whole, rest = divmod(leaf.loops[lane], width)
            last = max(least, (1 << (rest - 1).bit_length()) / full) if rest else 0.0
            mean = (whole * share + last) / (whole + (rest > 0))
        return Body(leaf, loops, unrolled, lane, width, across, share, least, mean)

    @property
    def order(self) -> Order:
        """The loops down to single points, outermost first. A square is in registers: each line of it is
        touched once, along whichever side it lies. So is what copies share that are written out."""
        loops = self.leaf.loops
        sides = [n for n in (self.across, self.lane) if n]
        within = [n for n in sides if loops[n] > self.width]
        square = frozenset(sides) if self.across else frozenset()
        around = ((n, loops[n], n in square and n not in within) for n in self.loops)
        copies = ((n, loops[n], True) for n in sorted(self.unrolled, key=lambda n: n == self.lane))
        return (*around, *copies, *((n, self.width, n in square) for n in within))

    @cached_property
    def operations(self) -> float:
        """Of one copy."""
        block = self.leaf.block
        functions = sum(isinstance(s, Intrinsic) and s.op not in INSTRUCTIONS for s in block.statements)
        return vector_operations(Leaf(block, block.ranges, ())) + (FUNCTION - 1) * functions

    def copies(self, limits: Collection[Affine], outer: Mapping[str, int]) -> list[Copy]:
        """All copies, in their order. `limits` are the constraints that can fail, `outer` the loops around.

        Two tests are the same if they have the same outcome wherever they are made.
        """
        moving = {**outer, **{name: self.leaf.loops[name] for name in self.loops}}
        tests = []
        for expr in limits:
            if any(expr.coefficient(name) for name in self.unrolled):
                terms = [(c, moving[n]) for n, c in expr.terms if n in moving]
                least = sum(min(0, c * (size - 1)) for c, size in terms)
                if self.lane in self.unrolled:
                    least += min(0, expr.coefficient(self.lane) * (self.width - 1))
                tests.append((expr, least, gcd(*(c for c, _ in terms)) or 1))
        found = []
        steps = [range(0, self.leaf.loops[n], self.width if n == self.lane else 1) for n in self.unrolled]
        for values in product(*steps):
            at = dict(zip(self.unrolled, values, strict=True))
            key = []
            for number, (expr, least, step) in enumerate(tests):
                value = expr.const + sum(expr.coefficient(n) * v for n, v in at.items())
                if value + least < 0:
                    key.append((number, value // step))
            found.append(Copy(at, tuple(key)))
        return found

    def changing(self, limits: Collection[Affine]) -> bool:
        """Whether a test of copies changes from one turn of the loops to the next."""
        tested = [e for e in limits if any(e.coefficient(name) for name in self.unrolled)]
        return any(expr.coefficient(name) for expr in tested for name in self.loops)


@dataclass(frozen=True, slots=True)
class _Run:
    """The copies between two tests: `number` of the run, -1 for what is always run."""

    number: int
    copy: Copy


@dataclass(frozen=True)
class _Written:
    """The copies that are written out in the loops of a leaf, and how often they are run. `ahead`: one test
    that stays the same is made ahead of the loops, and there is code for either outcome."""

    runs: Sequence[_Run]
    ahead: bool
    trip: Trips

    @staticmethod
    def of(body: Body, trip: Trips, limits: Collection[Affine], outer: Mapping[str, int]) -> _Written:
        runs = _runs(body.copies(limits, outer))
        tests = {run.copy.tests for run in runs if run.number >= 0}
        return _Written(runs, len(tests) <= 1 and not body.changing(limits), trip)

    @cached_property
    def tested(self) -> int:
        """How many copies have a test."""
        return sum(run.number >= 0 for run in self.runs)

    @cached_property
    def steps(self) -> float:
        """The turns of all loops."""
        return self.trip.steps if self.tested else self.trip.steps * self.trip.copies

    @cached_property
    def there(self) -> float:
        """The share of the copies with a test that are run in a turn."""
        return max(0.0, 1 - (1 - self.trip.copies) * len(self.runs) / self.tested) if self.tested else 1.0

    @cached_property
    def alive(self) -> float:
        """The copies that are run in a turn."""
        return len(self.runs) - self.tested * (1 - self.there)

    @cached_property
    def branches(self) -> float:
        """Tests that are made in the loops."""
        tests = {run.number for run in self.runs if run.number >= 0}
        return 0.0 if self.ahead else self.steps * len(tests)


class _Work:
    """What one execution of a leaf has a unit do, counted access by access. `share`: of the time that a full
    vector takes."""

    def __init__(self, body: Body, written: _Written, share: float, line: int) -> None:
        self._body, self._written, self._share, self._line = body, written, share, line
        self.loads = self.stores = self.shuffles = 0.0
        self.issued = written.steps * written.alive * body.operations
        self.registers = 1.0  # vectors that are held at once
        self.chains = float(len(written.runs))  # of sums, each of which waits for the one before

    def count(self, access: Access) -> None:
        body, written = self._body, self._written
        along = bool(access.place.coefficient(body.lane)) if body.lane else False
        cost = 0.0 if access.buffer.near else _port_cycles(access, body, self._line)
        cost *= self._share / body.share if along else 1.0
        level = max((at + 1 for at, n in enumerate(body.loops) if access.place.coefficient(n)), default=0)
        often = prod((written.trip.turns[n] for n in body.loops[:level]), start=1.0)
        if access.adds:
            self._sum(access, often, cost, across_lanes=bool(body.lane) and not along)
        elif access.writes:
            self.stores += written.steps * written.alive * cost
        elif not access.buffer.near:
            self._load(access, often, cost)

    def _sum(self, access: Access, often: float, cost: float, across_lanes: bool) -> None:
        """A sum stays in a register while loops come back to it, and is stored behind them."""
        body = self._body
        sums = float(len({run.copy.place(access) for run in self._written.runs}))
        if across_lanes and not body.unrolled and body.loops[-1] == body.lane:
            sums *= INTERLEAVED
        self.chains, self.registers = sums, self.registers + sums
        self.stores += often * sums * cost
        self.shuffles += often * sums * 2 * log2(max(body.width, 2)) if across_lanes else 0.0

    def _load(self, access: Access, often: float, cost: float) -> None:
        """What copies share is loaded once for all of them, and ahead of the loops that do not move it; what
        is loaded under a test is of use only there."""
        body, written = self._body, self._written
        runs, ahead, steps = written.runs, written.ahead, written.steps
        always = {run.copy.place(access) for run in runs if run.number < 0}
        again = {(0 if ahead else run.number, run.copy.place(access)) for run in runs if run.number >= 0}
        again = {entry for entry in again if entry[1] not in always}
        number, times = len(always) + len(again) * written.there, steps if again and not ahead else often
        self.loads += number * cost * times
        if number < written.alive:  # else each goes with the operation that uses it
            self.issued += number * times
            self.registers += _alive_at_once([run.copy.place(access) for run in runs])
        self.shuffles += steps * log2(max(body.width, 2)) if _is_turned(access, body) else 0.0


def leaf_cycles(
    body: Body, trip: Trips, unit: Unit, line: int, limits: Collection[Affine], outer: Mapping[str, int]
) -> dict[str, float]:
    """How long each part of the unit is busy with one execution. "computing" is what comes of it: the
    longest, as a core that looks hundreds of instructions ahead goes on with the others meanwhile. `limits`
    are those that can fail in it."""
    leaf = body.leaf
    written = _Written.of(body, trip, limits, outer)
    steps, alive = written.steps, written.alive
    # Where the end of a row is tested, all vectors are of one kind.
    share = body.share if any(expr.coefficient(body.lane) for expr in limits) else body.mean
    work = _Work(body, written, share, line)
    for access in leaf.accesses:
        work.count(access)
    spilled = max(0.0, work.registers - unit.registers) * steps * SPILLED * body.share
    loads, stores = work.loads + spilled, work.stores + spilled
    turns = steps * TURN * (min(1.0, alive) if written.ahead else 1.0) if body.loops else 0.0
    issued = work.issued + (stores + turns) + written.branches
    latency = 0.0
    adding = [a for a in leaf.accesses if a.adds]
    if any(not a.place.coefficient(name) for a in adding for name in body.loops):
        # Short sums are through before the next ones are far: these go ahead.
        latency = steps * LATENCY_CYCLES * alive / work.chains / max(1.0, WINDOW / max(issued, 1.0))
    each = body.operations * share / unit.fma_per_cycle
    if leaf.summing is not None:
        each = leaf.summing.vector_cycles(body.width)
    busy = {
        "arithmetic": steps * alive * each,
        "loads": loads / unit.loads_per_cycle,
        "stores": stores / unit.stores_per_cycle,
        "latency": latency,
        # One branch in a cycle, whether what it guards is there or not.
        "issue": max(issued / ISSUED, written.branches, work.shuffles),
    }
    return {**busy, "loops": ENTRY_CYCLES, "computing": max(busy.values()) + ENTRY_CYCLES}


def _runs(copies: Sequence[Copy]) -> list[_Run]:
    """Copies that follow each other under the same test have it together."""
    found: list[_Run] = []
    number = -1
    last: tuple[tuple[int, int], ...] = ()
    for copy in copies:
        if copy.tests and copy.tests != last:
            number += 1
        last = copy.tests
        found.append(_Run(number if copy.tests else -1, copy))
    return found


def _alive_at_once(places: Sequence[int]) -> int:
    """How many of the values that copies load are held for a later one, at most: code has the copies in their
    order, and loads nothing twice."""
    last = {place: at for at, place in enumerate(places)}
    most, held = 0, set[int]()
    for at, place in enumerate(places):
        held.add(place)
        most = max(most, len(held))
        if last[place] == at:
            held.remove(place)
    return most


def _is_turned(access: Access, body: Body) -> bool:
    """Whether whole vectors along the index across become vectors along the lanes, in registers."""
    if not body.across:
        return False
    return abs(access.place.coefficient(body.lane)) > 1 and abs(access.place.coefficient(body.across)) == 1


def _port_cycles(access: Access, body: Body, line: int) -> float:
    """Time of a port to load or store a vector, in that of a full one. Each part of it that goes along the
    path at once takes twice as long where it reaches over the end of a line. A single element for all lanes
    goes as one part (8 of them and 8 vectors take Zen 4 12 cycles, not 16)."""
    stride = abs(access.place.coefficient(body.lane)) if body.lane else 0
    if _is_turned(access, body):
        return body.share
    if not stride or body.width == 1:
        return body.least
    if stride > 1:
        if stride in DEALT and not access.writes:
            return stride * 1.5 * body.share
        return body.width * (STORE * body.least if access.writes else 1.0)
    part = min(body.width, max(1, line // access.buffer.dtype.bytes))
    if not access.writes:
        part = max(1, int(part * body.least / body.share))
    over = over_line_ends(access, body, line, part)
    return body.share * (1 + over) if not access.writes else max(body.share, body.least * (1 + over))


def over_line_ends(access: Access, body: Body, line: int, lanes: int) -> float:
    """The share of vectors of so many lanes that reach over the end of a line."""
    if not body.lane or abs(access.place.coefficient(body.lane)) != 1:
        return 0.0
    every = max(1, line // access.buffer.dtype.bytes)
    step = gcd(every, access.place.const, *(c for n, c in access.place.terms if n != body.lane))
    return max(0, min(lanes, every) - step) / every
