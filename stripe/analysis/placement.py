"""Addresses for all buffers of a program in the memories that programs manage.

    memory_map   for each memory, its buffers, how they are packed, and the location of each

A location may mention the number of a unit that its point runs on, as the index `unit_number(scope)`: whoever
writes it into the program replaces this by the number as the block knows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine, box_of
from stripe.analysis.liveness import Lifetime, Scope, allocations, scopes, units_of
from stripe.analysis.storage import Life, Packing, busiest_time, pack
from stripe.ir import SLOT, Location, Refinement


def memory_maps(top: Scope, hw: HwConfig) -> list[MemoryMap]:
    """A map of each memory with addresses in which a buffer lies that has none yet."""
    managed = {m.name: m for m in hw.memories if hw.has_addresses(m)}
    lives = [life for scope in scopes(top) for life in allocations(scope, hw) if life.memory in managed]
    names = dict.fromkeys(life.memory for life in lives if address_of(life.ref) is None)
    return [MemoryMap(managed[name], [life for life in lives if life.memory == name], hw) for name in names]


def address_of(ref: Refinement) -> Affine | None:
    """Where a buffer begins in its memory; None if that is still open."""
    return None if ref.location is None else ref.location.address


def unit_number(scope: Scope) -> str:
    """The name that stands for the number of the unit on which a point of a scope runs."""
    return f"@{scope.path}"


@dataclass(frozen=True, slots=True)
class _Copies:
    """How often a buffer is repeated over units, and which of these copies is that of a point."""

    count: int
    number: Affine  # over the names of `unit_number`


class MemoryMap:
    """The buffers of one memory, and what they take of it."""

    def __init__(self, memory: Memory, lives: Sequence[Lifetime], hw: HwConfig) -> None:
        self.memory = memory
        self.lives = lives
        self._hw = hw
        self._align = memory.align_bytes
        self._copies = [self._copies_of(life) for life in lives]
        self.banked = any(self._bank(life) is not None or life.parts > 1 for life in lives)
        self.capacity = memory.bytes
        if self.banked and memory.bytes is not None:
            self.capacity = memory.bytes // memory.banks
        self._extents = [self._life(own, c) for own, c in zip(lives, self._copies, strict=True)]
        self.packing = self._packed()

    def _bank(self, life: Lifetime) -> Affine | None:
        return None if life.ref.location is None else life.ref.location.bank

    def _private(self, life: Lifetime) -> Scope | None:
        """The scope that spreads its points over units, each with an instance of the memory."""
        if self.memory.count == 1:
            return None
        for scope in reversed(life.scope.around):
            location = scope.block.location
            unit = None if location is None else self._hw.unit(location.unit)
            if location is not None and location.bank is not None and unit is not None and unit.count > 1:
                return scope
        return None

    def _copies_of(self, life: Lifetime) -> _Copies:
        count, number = 1, Affine()
        private = self._private(life)
        bank = self._bank(life)
        if bank is not None and set(bank.names) - {SLOT}:
            return _Copies(1, number)  # the bank tells the copies apart
        for scope in life.scope.around:
            if scope is private or units_of(scope.block) == 1:
                continue
            low, high = _span(scope, self._hw)
            number = number * (high - low + 1) + Affine.index(unit_number(scope)) - low
            count *= high - low + 1
        return _Copies(count, number)

    def _step(self, life: Lifetime) -> int:
        return -(-life.bytes // self._align) * self._align

    def _slots(self, life: Lifetime) -> int:
        """How many points in flight need an address of their own; where each has its bank, one."""
        bank = self._bank(life)
        return 1 if bank is not None and bank.coefficient(SLOT) else life.slots

    def _life(self, life: Lifetime, copies: _Copies) -> Life:
        size = self._step(life) * self._slots(life) * copies.count
        private = self._private(life) is not None
        start, end = (life.start, life.end) if private else (life.wide_start, life.wide_end)
        if life.uses is None:
            start, end = life.scope.start, life.scope.start
        bank = self._bank(life)
        banks = None
        if bank is not None and set(bank.names) <= {SLOT}:
            banks = frozenset(bank.evaluate({SLOT: slot}) for slot in range(life.slots))
        return Life(size, start, end, banks)

    def _packed(self) -> Packing:
        fixed = {
            at: address.const
            for at, life in enumerate(self.lives)
            if (address := address_of(life.ref)) is not None
        }
        return pack(self._extents, self._align, self.capacity, fixed)

    @property
    def fits(self) -> bool:
        return self.capacity is None or self.packing.height <= self.capacity

    def alive_at_most(self) -> list[tuple[int, Lifetime]]:
        """What is alive when most is, with the bytes of each, largest first."""
        moment = busiest_time(self._extents)
        alive = [
            (own.size, life)
            for own, life in zip(self._extents, self.lives, strict=True)
            if own.start <= moment <= own.end and own.size
        ]
        return sorted(alive, key=lambda entry: -entry[0])

    def locations(self) -> Iterator[tuple[Lifetime, Location]]:
        """Where each buffer without an address goes."""
        for life, copies, offset in zip(self.lives, self._copies, self.packing.offsets, strict=True):
            if address_of(life.ref) is not None:
                continue
            step = self._step(life)
            slots = self._slots(life)
            address = Affine(offset) + copies.number * (step * slots)
            if slots > 1:
                address = address + Affine.index(SLOT, step)
            base = life.ref.location or Location(self.memory.name)
            bank = base.bank
            private = self._private(life)
            if bank is None and base.spread is None and self.memory.count > 1:
                number = Affine() if private is None else Affine.index(unit_number(private))
                if self.memory.banks == 1:
                    bank = number
                else:
                    address = address + number * (self.memory.bytes or 0)
            yield life, replace(base, bank=bank, address=address)


def _span(scope: Scope, hw: HwConfig) -> tuple[int, int]:
    """The least and the greatest number of the units that a block's points run on."""
    location = scope.block.location
    assert location is not None and location.bank is not None
    ranges = box_of(scope.block.ranges)
    if set(location.bank.names) <= set(ranges):
        return location.bank.bounds(ranges)
    unit = hw.unit(location.unit)
    return 0, (unit.count if unit is not None else 1) - 1
