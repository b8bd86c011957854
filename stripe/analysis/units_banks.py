"""Which units that work at the same time may meet in a bank of a memory?

At the same time run, where different units execute them (Machines, docs/architecture.md):

    points of a block on different units    with all that is nested in them
    two points in flight                    each statement of one with every other statement of the other
    statements of one point                 of which none depends on the other

What a statement touches is an interval of each index at a time, without the constraints: so no finding is a
promise, while a finding may not come true. A buffer without a bank may lie in any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.deps import successors
from stripe.analysis.liveness import memory_of, part_bytes, slots_of
from stripe.ir import SLOT, Block, Direction, Load, Location, Refinement, Special, Statement, Store

Interval = tuple[int, int]
_MOST_POINTS = 1 << 12  # points over units, or slots, that are told apart; beyond, anything may meet


@dataclass(frozen=True, slots=True)
class Touch:
    """A statement, the unit that executes it (`number`: of several, as text) and a buffer that it touches."""

    statement: str
    unit: str
    number: str
    buffer: str

    @property
    def executor(self) -> str:
        return f"{self.unit}[{self.number}]" if self.number else self.unit


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two that run at the same time in a block, and a bank that both may touch."""

    path: str
    first: Touch
    second: Touch
    bank: int

    def __str__(self) -> str:
        one, other = (f"'{t.statement}' on {t.executor} ('{t.buffer}')" for t in (self.first, self.second))
        return f"{one} and {other} may meet in bank {self.bank}"


def meetings(root: Block, memory: Memory, hw: HwConfig) -> list[Meeting]:
    """The first meeting of each block of a tree; none is a promise that there is none."""
    run = _Run(memory, hw)
    return list(run.below(root, _Frame(0, {}, {}), {}, "", root.name))


@dataclass(frozen=True, slots=True)
class _Frame:
    """The indexes around a place: `values` of those of the block over dimensions, and their intervals."""

    depth: int
    values: Mapping[str, Affine]
    ranges: Mapping[str, Interval]

    def enter(self, block: Block) -> _Frame:
        values: dict[str, Affine] = {}
        ranges = dict(self.ranges)
        for index in block.indexes:
            if index.passed is not None:
                values[index.name] = index.passed.substitute(self.values)
            else:
                dimension = f"{self.depth}.{index.name}"
                values[index.name] = Affine.index(dimension)
                ranges[dimension] = (0, max(index.range - 1, 0))
        slot = f"{self.depth}.{SLOT}"
        values.setdefault(SLOT, Affine.index(slot))
        ranges.setdefault(slot, (0, slots_of(block) - 1))
        return _Frame(self.depth + 1, values, ranges)

    def fixed(self, point: Mapping[str, int]) -> _Frame:
        return replace(self, ranges={**self.ranges, **{name: (n, n) for name, n in point.items()}})


@dataclass(frozen=True, slots=True)
class _Held:
    """A view of a buffer of the memory: its origin in the allocation over dimensions, and the allocation."""

    name: str
    ref: Refinement
    location: Location
    origin: tuple[Affine, ...]


_Views = Mapping[str, _Held]
_Banks = dict[tuple[str, str], dict[int, str]]  # by unit and number: a buffer for each bank that is touched


@dataclass(slots=True)
class _Run:
    memory: Memory
    hw: HwConfig
    _order: dict[int, tuple[Block, list[int]]] = field(default_factory=dict)

    @property
    def _count(self) -> int:
        return self.memory.banks * self.memory.count

    def below(
        self, block: Block, outer: _Frame, around: _Views, unit: str, path: str, number: str = ""
    ) -> Iterator[Meeting]:
        """The meetings in a block and those in it."""
        frame = outer.enter(block)
        views = self._views(block, frame, around)
        if not views and not _has_buffers(block, self.memory.name):
            return
        unit, number = self._executor(block.location, frame) or (unit, number)
        found = next(self._side_by_side(block, frame, views, unit, number, path), None) or next(
            self._at_once(block, frame, views, unit, number, path), None
        )
        if found is not None:
            yield found
        slot = f"{frame.depth - 1}.{SLOT}"
        slots = range(frame.ranges[slot][1] + 1)
        for child in block.children:
            for at in slots:  # a place that moves with the slot is known then
                inside = list(
                    self.below(child, frame.fixed({slot: at}), views, unit, f"{path}/{child.name}", number)
                )
                yield from inside
                if inside:
                    break

    def _executor(self, location: Location | None, frame: _Frame) -> tuple[str, str] | None:
        """A unit and which of several it is: its number, or the number as text over dimensions."""
        if location is None:
            return None
        if location.bank is None:
            return location.unit, ""
        known = {name: Affine(low) for name, (low, high) in frame.ranges.items() if low == high}
        number = location.bank.substitute(frame.values).substitute(known)
        return location.unit, str(number.const if number.is_constant else number)

    def _views(self, block: Block, frame: _Frame, around: _Views) -> dict[str, _Held]:
        found: dict[str, _Held] = {}
        for ref in block.refinements:
            own = ref.direction is Direction.NEW or frame.depth == 1
            if own and memory_of(ref, ref.direction is not Direction.NEW, self.hw) == self.memory.name:
                location = ref.location or Location(self.memory.name)
                placed = replace(
                    location,
                    bank=None if location.bank is None else location.bank.substitute(frame.values),
                    address=None if location.address is None else location.address.substitute(frame.values),
                )
                found[ref.name] = _Held(ref.name, ref, placed, (Affine(),) * len(ref.shape))
            elif not own and ref.source in around:
                source = around[ref.source]
                moved = tuple(
                    o + e.substitute(frame.values) for o, e in zip(source.origin, ref.access, strict=True)
                )
                found[ref.name] = replace(source, origin=moved)
        return found

    # -- what a statement touches ------------------------------------------------------------------

    def _touched(
        self, statement: Statement, frame: _Frame, views: _Views, unit: tuple[str, str], into: _Banks
    ) -> None:
        match statement:
            case Block():
                inner = frame.enter(statement)
                mine = self._views(statement, inner, views)
                if mine or _has_buffers(statement, self.memory.name):
                    own = self._executor(statement.location, inner) or unit
                    for each in statement.statements:
                        self._touched(each, inner, mine, own, into)
            case Special():
                own = self._executor(statement.location, frame) or unit
                for operand in statement.operands:
                    if operand.buffer in views:
                        held = views[operand.buffer]
                        access = operand.access or (Affine(),) * len(held.origin)
                        offset = tuple(e.substitute(frame.values) for e in access)
                        shape = operand.shape or held.ref.shape
                        self._add(held, frame, offset, shape, own, into)
            case Load() | Store():
                if statement.buffer in views:
                    held = views[statement.buffer]
                    rank = len(held.origin)
                    self._add(held, frame, (Affine(),) * rank, (1,) * rank, unit, into)

    def _add(
        self, held: _Held, frame: _Frame, offset: Sequence[Affine], shape: Sequence[int],
        unit: tuple[str, str], into: _Banks,
    ) -> None:  # fmt: skip
        known = into.setdefault(unit, {})
        for bank in self._banks(held, frame, offset, shape):
            known.setdefault(bank, held.name)

    def _banks(
        self, held: _Held, frame: _Frame, offset: Sequence[Affine], shape: Sequence[int]
    ) -> Sequence[int]:
        location, ref, count = held.location, held.ref, self._count
        if 0 in ref.shape:
            return ()
        if location.spread is not None:
            axis = location.spread
            part = max(1, -(-ref.shape[axis] // count))
            low, high = (held.origin[axis] + offset[axis]).bounds(frame.ranges)
            last = min(high + shape[axis], ref.shape[axis]) - 1
            return range(max(low, 0) // part, last // part + 1)
        first, last = 0, count - 1
        if location.bank is not None:
            first, last = location.bank.bounds(frame.ranges)
        elif location.address is not None and self.memory.bytes is not None:
            size = self.memory.bytes // self.memory.banks
            low, high = location.address.bounds(frame.ranges)
            first, last = low // size, (high + part_bytes(ref) - 1) // size
        return range(max(first, 0), min(last, count - 1) + 1)

    # -- what runs at the same time ----------------------------------------------------------------

    def _side_by_side(
        self, block: Block, frame: _Frame, views: _Views, unit: str, number: str, path: str
    ) -> Iterator[Meeting]:
        """Points of the block on different units."""
        own = {n: size for n, size in block.ranges.items() if size > 1}
        location = block.location
        if location is None or location.bank is None or not set(location.bank.names) & set(own):
            return
        names = [name for name in own if name in location.bank.names]
        if prod(own[name] for name in names) > _MOST_POINTS:
            names = []
        taken: dict[int, dict[tuple[str, str, str], Touch]] = {}
        for values in product(*(range(own[name]) for name in names)):
            point = {f"{frame.depth - 1}.{name}": n for name, n in zip(names, values, strict=True)}
            here = frame.fixed(point)
            group, which = self._executor(location, here) or (unit, number)
            for at, statement in enumerate(block.statements):
                touched: _Banks = {}
                self._touched(statement, here, views, (group, which), touched)
                for executor, banks in touched.items():
                    for bank, buffer in banks.items():
                        touch = Touch(_name(statement, at), *executor, buffer)
                        known = taken.setdefault(bank, {})
                        known.setdefault((which, *executor), touch)
                        for (other, *partner), found in known.items():
                            apart = other != which or not names
                            if apart and (tuple(partner) != executor or not _exact(executor[1])):
                                yield Meeting(path, found, touch, bank)

    def _at_once(
        self, block: Block, frame: _Frame, views: _Views, unit: str, number: str, path: str
    ) -> Iterator[Meeting]:
        """Statements of one point, and of points in flight."""
        if sum(isinstance(s, Block | Special) for s in block.statements) < 2:
            return
        slot = f"{frame.depth - 1}.{SLOT}"
        slots = frame.ranges[slot][1] + 1
        if slots > _MOST_POINTS:
            slots = 1
        touched: list[list[_Banks]] = []
        for at in range(slots):
            here = frame.fixed({slot: at}) if slots > 1 else frame
            touched.append([])
            for statement in block.statements:
                touched[-1].append({})
                self._touched(statement, here, views, (unit, number), touched[-1][-1])
        own = {f"{frame.depth - 1}.{name}" for name in block.ranges}
        for one, other in product(range(slots), repeat=2):
            seen: dict[int, dict[tuple[str, str], int]] = {}  # by bank and unit: statements, as bits
            for later, found in enumerate(touched[other]):
                allowed = (1 << later) - 1 if one != other else self._unordered(block)[later]
                for executor, banks in found.items():
                    for bank, buffer in banks.items():
                        for partner, mask in seen.get(bank, {}).items():
                            moves = one != other and any(name in executor[1] for name in own)
                            if mask & allowed and (executor != partner or moves):
                                at = (mask & allowed).bit_length() - 1
                                met = touched[one][at][partner][bank]
                                yield Meeting(
                                    path,
                                    Touch(_name(block.statements[at], at), *partner, met),
                                    Touch(_name(block.statements[later], later), *executor, buffer),
                                    bank,
                                )
                for executor, banks in touched[one][later].items():
                    for bank in banks:
                        units = seen.setdefault(bank, {})
                        units[executor] = units.get(executor, 0) | 1 << later

    def _unordered(self, block: Block) -> list[int]:
        """For each statement the earlier ones, as bits, on which it does not depend."""
        if id(block) not in self._order:
            needed = [0] * len(block.statements)
            for at, found in enumerate(successors(block)):
                for later in found:
                    needed[later] |= 1 << at
            for later in range(len(needed)):
                rest = direct = needed[later]
                while direct:
                    at = direct.bit_length() - 1
                    direct &= ~(1 << at)
                    rest |= needed[at]
                needed[later] = rest
            free = [((1 << at) - 1) & ~mask for at, mask in enumerate(needed)]
            self._order[id(block)] = block, free
        return self._order[id(block)][1]


def _exact(number: str) -> bool:
    return not number or number.isdigit()


def _name(statement: Statement, at: int) -> str:
    return statement.name if isinstance(statement, Block | Special) else f"statement {at}"


def _has_buffers(block: Block, memory: str) -> bool:
    own = any(r.location is not None and r.location.unit == memory for r in block.refinements)
    return own or any(_has_buffers(child, memory) for child in block.children)
