"""Verifier: what is alive together in a memory shares no byte (V061).

Two allocations A and B, or two copies of one, are alive together (stripe.analysis.liveness) if on the way
from the root to both

    they part at one point of a block     and their times in that block meet
    their points part at a block          which has them on different units (whatever stands in the block),
                                          or in different slots in flight (its own buffers; what is nested
                                          in different statements)

Each of these is a set of pairs of points over which the bytes of A and of B must not meet: isl decides that
and gives the witness. Pairs are found by sorting, in time or by address, and intervals settle nearly all of
them, so that a program whose kernels use the same addresses one after the other costs little.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine, box_of
from stripe.analysis.liveness import (
    Lifetime,
    Scope,
    allocations,
    scopes,
    slots_of,
    timeline,
    units_of,
)
from stripe.diag import Diagnostic
from stripe.ir import Block
from stripe.poly import Domain
from stripe.verify_places import bank_bytes, given_by_llvm, held, slot_name

MOST = 20  # findings about one program: a wrong address meets many others


def overlap_findings(root: Block, hw: HwConfig) -> list[Diagnostic]:
    """V061. Asked only where something has an address."""
    if not _has_address(root):
        return []
    return list(islice(_Overlaps(hw).findings(root), MOST))


def _has_address(root: Block) -> bool:
    pending = [root]
    while pending:
        block = pending.pop()
        if any(ref.location is not None and ref.location.address is not None for ref in block.refinements):
            return True
        pending.extend(statement for statement in block.statements if isinstance(statement, Block))
    return False


@dataclass(frozen=True, slots=True)
class _Frame:
    """A scope with everything above it, over the dimensions `depth.name`."""

    depth: int
    ranges: dict[str, int]
    constraints: tuple[Affine, ...]
    values: dict[str, Affine]  # of the block's own indexes
    labels: dict[str, str]  # dimensions as messages name them


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """An allocation with an address, numbered in the order of the text.

    Part n of it takes `size` bytes from `low + n * step`, over the dimensions of its frame and its slot.
    `first` to `last` are the bytes that it ever takes; `within` is the same from the start of a bank, for one
    that names banks and stays inside them.
    """

    number: int
    life: Lifetime
    memory: Memory
    frame: _Frame
    low: Affine
    size: int
    parts: int
    step: int
    first: int
    last: int
    within: tuple[int, int] | None

    @property
    def name(self) -> str:
        return f"'{self.life.ref.name}' of block {self.life.path}"

    def at(self, byte: int) -> str:
        """A place in the memory as text names it."""
        if self.within is None:
            return f"{self.memory.name}:{byte}"
        return f"{self.memory.name}[{byte // self.step}]:{byte % self.step}"


class _Overlaps:
    def __init__(self, hw: HwConfig) -> None:
        self._hw = hw
        self._frames: dict[Scope, _Frame] = {}
        self.told: set[tuple[int, int]] = set()

    def findings(self, root: Block) -> Iterator[Diagnostic]:
        every = scopes(timeline(root))
        numbers = count()
        own: dict[Scope, dict[str, list[_Placed]]] = {}
        for scope in every:
            self._frames[scope] = _frame(scope, self._frames[scope.parent] if scope.parent else None)
            for life in allocations(scope, self._hw):
                placed = self._placed(life, next(numbers))
                if placed is not None:
                    own.setdefault(scope, {}).setdefault(life.memory, []).append(placed)
        members: dict[Scope, dict[str, list[_Placed]]] = {}
        for scope in reversed(every):
            mine = own.get(scope, {})
            below: dict[str, dict[int, list[_Placed]]] = {}
            for child in scope.children:
                for memory, inside in members.pop(child).items():
                    below.setdefault(memory, {})[child.at] = inside
            together: dict[str, list[_Placed]] = {}
            for memory in {**mine, **below}:
                held, nested = mine.get(memory, []), below.get(memory, {})
                yield from self._at_one_point(scope, held, nested)
                if slots_of(scope.block) > 1:
                    yield from self._in_flight(scope, held, nested)
                together[memory] = held + [placed for inside in nested.values() for placed in inside]
                if units_of(scope.block) > 1:
                    yield from self._side_by_side(scope, together[memory])
            members[scope] = together

    def _placed(self, life: Lifetime, number: int) -> _Placed | None:
        frame = self._frames[life.scope]
        place = held(
            life.path, life.block, life.ref, life.scope.parent is None, frame.depth, frame.values, self._hw
        )
        low, memory = place.low, place.memory
        if low is None or memory is None or given_by_llvm(memory, self._hw) or place.address is None:
            return None
        if life.uses is None or not place.size:
            return None
        box = box_of(_with_slot(frame, life))
        if any(high < 0 for _, high in box.values()):
            return None  # it never runs
        step = bank_bytes(memory)
        least, most = low.bounds(box)
        start, end = place.address.bounds(box)
        inside = (start, end + place.size - 1) if place.in_bank else None
        if inside is not None and not 0 <= inside[0] <= inside[1] < step:
            inside = None  # it may leave its bank, which V060 forbids
        return _Placed(
            number, life, memory, frame, low, place.size, place.parts, step,
            least, most + (place.parts - 1) * step + place.size - 1,
            inside,
        )  # fmt: skip

    # -- which pairs ---------------------------------------------------------------------------

    def _at_one_point(
        self, scope: Scope, own: list[_Placed], nested: dict[int, list[_Placed]]
    ) -> Iterator[Diagnostic]:
        """Buffers of the scope whose times meet, and they with what is nested in a statement of that time."""
        begin: dict[int, list[_Placed]] = {}
        end: dict[int, list[_Placed]] = {}
        for placed in own:
            first, last = placed.life.uses or (0, 0)
            begin.setdefault(first, []).append(placed)
            end.setdefault(last, []).append(placed)
        alive, level = _Alive(), self._frames[scope].depth + 1
        for number in sorted({*begin, *end, *(nested if own else ())}):
            for placed in begin.get(number, ()):
                for other in alive.meeting(placed):
                    yield from self._meet(other, placed, level, [()])
                alive.add(placed)
            for placed in nested.get(number, ()):
                for other in alive.meeting(placed):
                    yield from self._meet(other, placed, level, [()])
            for placed in end.get(number, ()):
                alive.remove(placed)

    def _in_flight(
        self, scope: Scope, own: list[_Placed], nested: dict[int, list[_Placed]]
    ) -> Iterator[Diagnostic]:
        """Everything of two points in flight, but for what is nested in the same statement."""
        depth = self._frames[scope].depth
        slot, other_slot = Affine.index(slot_name(depth)), Affine.index(f"{slot_name(depth)}'")
        dimensions = [f"{depth}.{name}" for name in scope.block.ranges]
        same_point = [Affine.index(name) - Affine.index(f"{name}'") for name in dimensions]
        # An index of the block that has the name of the slot hides it: then any two points count.
        hidden = slot_name(depth) in self._frames[scope].ranges
        later, earlier = (slot - other_slot - 1,), (other_slot - slot - 1,)
        for placed in own:
            if not _fits_window([placed], slot, placed.low.coefficient(slot_name(depth)), dimensions):
                yield from self._meet(placed, placed, depth, [() if hidden else later], same_point)
        for one, other in _crossing([*([placed] for placed in own), *nested.values()]):
            both_own = one.life.scope is scope and other.life.scope is scope
            cases = [later, earlier] if both_own and not hidden else [()]
            yield from self._meet(one, other, depth, cases, same_point)

    def _side_by_side(self, scope: Scope, members: list[_Placed]) -> Iterator[Diagnostic]:
        """Everything of two points on different units.

        Where all bytes of a unit lie in a window of their own, which moves with its number, nothing is asked.
        """
        frame = self._frames[scope]
        location = scope.block.location
        if location is None or location.bank is None:
            return
        own = {f"{frame.depth}.{name}" for name, size in scope.block.ranges.items() if size > 1}
        unit = location.bank.substitute(frame.values).only(own)
        other = unit.rename(lambda name: f"{name}'")
        windows: dict[int, list[_Placed]] = {}
        for placed in members:
            windows.setdefault(_moves_with(placed, unit), []).append(placed)
        groups: list[list[_Placed]] = []
        for step, inside in windows.items():
            if _fits_window(inside, unit, step):
                groups.append(inside)
                continue
            for placed in inside:
                groups.append([placed])
                yield from self._meet(placed, placed, frame.depth, [(unit - other - 1,)])
        for one, another in _crossing(groups):
            yield from self._meet(one, another, frame.depth, [(unit - other - 1,), (other - unit - 1,)])

    # -- one pair ------------------------------------------------------------------------------

    def _meet(
        self,
        one: _Placed,
        other: _Placed,
        level: int,
        cases: Sequence[tuple[Affine, ...]],
        never: Sequence[Affine] = (),
    ) -> Iterator[Diagnostic]:
        """The finding, if the bytes of the two meet at points that are apart from `level` of the nest on.

        From there the dimensions of the second carry a prime. One of `cases` holds, each a list of
        expressions >= 0, and not all of `never` are 0.
        """
        if one.number > other.number:
            one, other = other, one
        key = (one.number, other.number)
        if key in self.told or _in_other_banks(one, other):
            return

        def primed(name: str) -> str:
            depth = name.partition(".")[0]
            return f"{name}'" if not depth.isdigit() or int(depth) >= level else name

        mine = _dimensions(one) | ({"part": one.parts} if one.parts > 1 else {})
        others = _dimensions(other) | ({"part": other.parts} if other.parts > 1 else {})
        ranges = mine | {primed(name): size for name, size in others.items()}
        low = one.low + Affine.index("part", one.step if one.parts > 1 else 0)
        low_other = (other.low + Affine.index("part", other.step if other.parts > 1 else 0)).rename(primed)
        meeting = [low_other - low + (other.size - 1), low - low_other + (one.size - 1)]
        box = box_of(ranges)
        if any(expr.bounds(box)[1] < 0 for expr in meeting):
            return
        limits = [*one.frame.constraints, *(c.rename(primed) for c in other.frame.constraints), *meeting]
        points = Domain.box(ranges).with_constraints(limits)
        for case in cases:
            apart = points.with_constraints(case) if case else points
            if never:
                apart = apart.subtract(Domain.of(tuple(ranges), (), never))
            at = apart.first()
            if at is not None:
                self.told.add(key)
                yield _finding(one, other, low.evaluate(at), low_other.evaluate(at), at, primed)
                return


def _finding(
    one: _Placed, other: _Placed, low: int, low_other: int, at: dict[str, int], primed: Callable[[str], str]
) -> Diagnostic:
    mine, others = (
        [name for name, size in _dimensions(p).items() if size > 1 or name in p.frame.ranges]
        for p in (one, other)
    )
    common = [name for name in others if primed(name) == name and name in mine]
    labels = one.frame.labels | other.frame.labels
    shared = _shown(labels, {name: at[name] for name in common})
    first = _shown(labels, {name: at[name] for name in mine if name not in common})
    second = _shown(labels, {name: at[primed(name)] for name in others if name not in common})
    who = [f"'{p.life.ref.name}'{text}" for p, text in ((one, first), (other, second)) if text]
    when = shared + (f"; {' and '.join(who)}" if who else "")
    bytes_shared = min(low + one.size, low_other + other.size) - max(low, low_other)
    partner = "another copy of itself" if one is other else one.name
    message = (
        f"block {other.life.path}, refinement '{other.life.ref.name}': its {other.size} bytes at "
        f"{other.at(low_other)} share {bytes_shared} with {partner}, {one.size} bytes at {one.at(low)}, "
        f"alive at the same time{when or ' always'}"
    )
    help = "help: use another address, or one that moves with the slot or the unit's number"
    return Diagnostic("V061", message, other.life.ref.span or other.life.block.span, (help,))


def _shown(labels: dict[str, str], values: dict[str, int]) -> str:
    """` at x=3, slot=1`; empty without any."""
    texts = [f"{labels.get(name, name.rpartition('.')[2])}={value}" for name, value in values.items()]
    return f" at {', '.join(texts)}" if texts else ""


def _frame(scope: Scope, parent: _Frame | None) -> _Frame:
    depth = parent.depth + 1 if parent else 0
    outer = parent.values if parent else {}
    ranges = dict(parent.ranges) if parent else {}
    labels = dict(parent.labels) if parent else {}
    values: dict[str, Affine] = {}
    for index in scope.block.indexes:
        if index.passed is not None:
            values[index.name] = index.passed.substitute(outer)
        else:
            dimension = f"{depth}.{index.name}"
            values[index.name] = Affine.index(dimension)
            ranges[dimension] = index.range
            twice = index.name in labels.values()
            labels[dimension] = f"{scope.block.name}.{index.name}" if twice else index.name
    own = tuple(c.expr.substitute(values) for c in scope.block.constraints)
    return _Frame(depth, ranges, (parent.constraints if parent else ()) + own, values, labels)


def _dimensions(placed: _Placed) -> dict[str, int]:
    """The dimensions of an allocation: those of its frame, and its slot."""
    return _with_slot(placed.frame, placed.life)


def _with_slot(frame: _Frame, life: Lifetime) -> dict[str, int]:
    slot = slot_name(frame.depth)
    return frame.ranges if slot in frame.ranges else {**frame.ranges, slot: life.slots}


def _in_other_banks(one: _Placed, other: _Placed) -> bool:
    """Whether two allocations that name banks lie in different ones, or at different places in them."""
    if one.within is None or other.within is None:
        return False
    return one.within[1] < other.within[0] or other.within[1] < one.within[0]


def _moves_with(placed: _Placed, unit: Affine) -> int:
    """The bytes that an allocation moves by from each unit to the next, where that is one number; else 0."""
    steps = {(placed.low.coefficient(name), factor) for name, factor in unit.terms}
    ratios = {change // factor if change % factor == 0 else 0 for change, factor in steps}
    return ratios.pop() if len(ratios) == 1 and placed.parts == 1 else 0


def _fits_window(members: list[_Placed], number: Affine, step: int, still: Sequence[str] = ()) -> bool:
    """Whether all that moves by `step` with a number takes, for each value of it, one window of `step` bytes;
    and does so at every point, whatever the dimensions in `still`."""
    if step == 0:
        return False
    ends: list[tuple[int, int]] = []
    for placed in members:
        rest = placed.low - number * step
        if placed.parts > 1 or any(rest.coefficient(name) for name in still):
            return False
        low, high = rest.bounds(box_of(_dimensions(placed)))
        ends.append((low, high + placed.size))
    return max(high for _, high in ends) - min(low for low, _ in ends) <= abs(step)


class _Alive:
    """Allocations by address: those that meet no other in a sorted list, the others beside it."""

    def __init__(self) -> None:
        self._sorted: list[tuple[int, int, int, _Placed]] = []
        self._others: list[_Placed] = []

    def meeting(self, placed: _Placed) -> list[_Placed]:
        found = [o for o in self._others if o.first <= placed.last and placed.first <= o.last]
        at = bisect_left(self._sorted, (placed.first,))
        if at and self._sorted[at - 1][1] >= placed.first:
            found.append(self._sorted[at - 1][3])
        while at < len(self._sorted) and self._sorted[at][0] <= placed.last:
            found.append(self._sorted[at][3])
            at += 1
        return found

    def add(self, placed: _Placed) -> None:
        if self.meeting(placed):
            self._others.append(placed)
        else:
            insort(self._sorted, (placed.first, placed.last, placed.number, placed))

    def remove(self, placed: _Placed) -> None:
        if placed in self._others:
            self._others.remove(placed)
        else:
            del self._sorted[bisect_left(self._sorted, (placed.first, placed.last, placed.number))]


def _crossing(groups: Sequence[list[_Placed]]) -> Iterator[tuple[_Placed, _Placed]]:
    """The pairs from different groups that ever take the same byte."""
    pieces = [(low, high, at) for at, group in enumerate(groups) for low, high in _merged(group)]
    met: set[tuple[int, int]] = set()
    active: list[tuple[int, int]] = []
    for low, high, at in sorted(pieces):
        active = [(end, other) for end, other in active if end >= low]
        met |= {(min(at, other), max(at, other)) for _, other in active if other != at}
        active.append((high, at))
    for first, second in sorted(met):
        for one in groups[first]:
            for other in groups[second]:
                if one.first <= other.last and other.first <= one.last:
                    yield one, other


def _merged(group: Iterable[_Placed]) -> list[tuple[int, int]]:
    """The bytes that the members ever take, as intervals that are apart."""
    found: list[tuple[int, int]] = []
    for low, high in sorted((placed.first, placed.last) for placed in group):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
