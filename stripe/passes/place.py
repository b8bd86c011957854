"""place: give every buffer in memory that programs manage an address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.liveness import Lifetime, Scope, allocations, scopes, timeline, units_of
from stripe.analysis.storage import Life, Packing, busiest_time, pack
from stripe.diag import CompileError, Diagnostic
from stripe.ir import SLOT, Block, Index, Location, Program, Refinement, Statement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext
from stripe.rewrite import drop_unused_passed

SHOWN = 8  # buffers that a message lists


@dataclass(frozen=True)
class Place(Pass):
    """Give every buffer in memory that programs manage an address, so that none that are alive together meet.

    before:  block main [] (in A (64)  out R (64)  new T (64) @DRAM) {...}
    after:   block main [] (in A (64) @DRAM:0  out R (64) @DRAM:256  new T (64) @DRAM:512) {...}

    Buffers of memories of kind `explicit` that have no address get one, a multiple of the memory's
    `align_bytes`; inputs and outputs of the root lie in the farthest such memory. Two buffers share
    bytes only if they are never alive together (stripe/analysis/liveness.py). Points in flight
    have a slot each: `@SPAD:1024*slot + 4096`. Where units work side by side, a buffer in a memory that
    they share has a copy for each, at an address that is affine in the unit's number; in a memory of
    which each has an instance, the bank is that number. A bank that a location names stays.

    The places are found by best fit in several orders, improved by a bounded number of moves (offline dynamic
    storage allocation; stripe/analysis/storage.py). If a memory is too small, it is an error that
    lists what is alive at the worst moment. Stripe paper, section 2.3, "Scheduling".
    """

    name: ClassVar[str] = "place"

    def run(self, program: Program, context: PassContext) -> Program:
        top = timeline(program.root)
        managed = {m.name: m for m in context.hw.memories if m.kind == "explicit"}
        lives = [life for scope in scopes(top) for life in allocations(scope, context.hw)]
        open_lives = [life for life in lives if life.memory in managed and not _address(life.ref)]
        if not open_lives:
            where = "is placed already" if any(life.memory in managed for life in lives) else "names none"
            context.remark(self.name, top.path, False, f"every buffer in memory that is managed {where}")
            return program
        found: dict[tuple[int, str], Location] = {}
        for name in dict.fromkeys(life.memory for life in open_lives):
            users = [life for life in lives if life.memory == name]
            placed = _Memory(managed[name], users, context.hw)
            packing = placed.pack()
            for life, location in placed.locations(packing):
                found[id(life.scope), life.ref.name] = location
            ratio = packing.height / packing.bound if packing.bound else 1.0
            context.remark(
                self.name, top.path, True,
                f"{len(users)} buffers in {packing.height} bytes of {name}; {packing.bound} alive at once",
                memory=name, buffers=len(users), bytes=packing.height, bound=packing.bound, ratio=ratio,
            )  # fmt: skip
        return replace(program, root=_rewritten(program.root, top, found, {}))


def _address(ref: Refinement) -> Affine | None:
    return None if ref.location is None else ref.location.address


def _number(scope: Scope) -> str:
    """The name that stands for the number of the unit on which a point of a scope runs."""
    return f"@{scope.path}"


@dataclass(frozen=True, slots=True)
class _Copies:
    """How often a buffer is repeated over units, and which of these copies is that of a point."""

    count: int
    number: Affine  # over the names of `_number`


class _Memory:
    """The buffers of one memory, and what they take of it."""

    def __init__(self, memory: Memory, lives: Sequence[Lifetime], hw: HwConfig) -> None:
        self._memory = memory
        self._lives = lives
        self._hw = hw
        self._align = memory.align_bytes
        self._copies = [self._copied(life) for life in lives]
        self._banked = any(self._bank(life) is not None or life.parts > 1 for life in lives)

    def _bank(self, life: Lifetime) -> Affine | None:
        return None if life.ref.location is None else life.ref.location.bank

    def _private(self, life: Lifetime) -> Scope | None:
        """The scope that spreads its points over units, each with an instance of the memory."""
        if self._memory.count == 1:
            return None
        for scope in reversed(life.scope.around):
            location = scope.block.location
            unit = None if location is None else self._hw.unit(location.unit)
            if location is not None and location.bank is not None and unit is not None and unit.count > 1:
                return scope
        return None

    def _copied(self, life: Lifetime) -> _Copies:
        count, number = 1, Affine()
        private = self._private(life)
        bank = self._bank(life)
        if bank is not None and bank.terms:
            return _Copies(1, number)  # the bank tells the copies apart
        for scope in life.scope.around:
            if scope is private or units_of(scope.block) == 1:
                continue
            low, high = _span(scope, self._hw)
            number = number * (high - low + 1) + Affine.index(_number(scope)) - low
            count *= high - low + 1
        return _Copies(count, number)

    def _step(self, life: Lifetime) -> int:
        return -(-life.bytes // self._align) * self._align

    def _life(self, life: Lifetime, copies: _Copies) -> Life:
        size = self._step(life) * life.slots * copies.count
        private = self._private(life) is not None
        start, end = (life.start, life.end) if private else (life.wide_start, life.wide_end)
        if life.uses is None:
            start, end = life.scope.start, life.scope.start
        bank = self._bank(life)
        banks = None if bank is None or bank.terms else frozenset((bank.const,))
        return Life(size, start, end, banks)

    def pack(self) -> Packing:
        lives = [self._life(life, copies) for life, copies in zip(self._lives, self._copies, strict=True)]
        capacity = self._memory.bytes
        if self._banked and capacity is not None:
            capacity //= self._memory.banks
        fixed = {
            at: address.const
            for at, life in enumerate(self._lives)
            if (address := _address(life.ref)) is not None
        }
        packing = pack(lives, self._align, capacity, fixed)
        if capacity is not None and packing.height > capacity:
            raise CompileError(self._too_large(lives, packing, capacity))
        return packing

    def _too_large(self, lives: Sequence[Life], packing: Packing, capacity: int) -> Diagnostic:
        what = f"a bank of {self._memory.name}" if self._banked else self._memory.name
        moment = busiest_time(lives)
        alive = [
            (own.size, life)
            for own, life in zip(lives, self._lives, strict=True)
            if own.start <= moment <= own.end and own.size
        ]
        alive.sort(key=lambda entry: -entry[0])
        notes = [f"{size} bytes: '{life.ref.name}' of '{life.path}'" for size, life in alive[:SHOWN]]
        if len(alive) > SHOWN:
            rest = sum(size for size, _ in alive[SHOWN:])
            notes.append(f"{rest} bytes: {len(alive) - SHOWN} others")
        return Diagnostic(
            "P170",
            f"place: {what} has {capacity} bytes; {packing.height} are needed, {packing.height - capacity} "
            f"too many ({packing.bound} are alive at once, in {len(alive)} buffers)",
            None,
            ("alive together:", *notes, "help: smaller tiles, fewer points in flight, or another memory"),
        )

    def locations(self, packing: Packing) -> Iterator[tuple[Lifetime, Location]]:
        for life, copies, offset in zip(self._lives, self._copies, packing.offsets, strict=True):
            if _address(life.ref) is not None:
                continue
            step = self._step(life)
            address = Affine(offset) + copies.number * (step * life.slots)
            if life.slots > 1:
                address = address + Affine.index(SLOT, step)
            base = life.ref.location or Location(self._memory.name)
            bank = base.bank
            private = self._private(life)
            if bank is None and base.spread is None and self._memory.count > 1:
                number = Affine() if private is None else Affine.index(_number(private))
                if self._memory.banks == 1:
                    bank = number
                else:
                    address = address + number * (self._memory.bytes or 0)
            yield life, replace(base, bank=bank, address=address)


def _span(scope: Scope, hw: HwConfig) -> tuple[int, int]:
    """The least and the greatest number of the units that a block's points run on."""
    location = scope.block.location
    assert location is not None and location.bank is not None
    ranges = {name: (0, size - 1) for name, size in scope.block.ranges.items()}
    if set(location.bank.names) <= set(ranges):
        return location.bank.bounds(ranges)
    unit = hw.unit(location.unit)
    return 0, (unit.count if unit is not None else 1) - 1


def _rewritten(
    block: Block, scope: Scope, found: dict[tuple[int, str], Location], numbers: dict[str, Affine]
) -> Block:
    """The block with locations for its buffers. `numbers`: those of units, over the block's indexes."""
    if block.location is not None and block.location.bank is not None:
        numbers = {**numbers, _number(scope): block.location.bank}
    refinements = tuple(
        replace(ref, location=_resolved(found[id(scope), ref.name], numbers))
        if (id(scope), ref.name) in found
        else ref
        for ref in block.refinements
    )
    statements: list[Statement] = list(block.statements)
    for child in scope.children:
        handed, inner = _handed(child.block, numbers)
        made = _rewritten(handed, child, found, inner)
        statements[child.at] = made if handed is child.block else _settled(made, handed, child.block)
    same = all(new is old for new, old in zip(refinements, block.refinements, strict=True))
    if same and all(new is old for new, old in zip(statements, block.statements, strict=True)):
        return block
    return replace(block, refinements=refinements, statements=tuple(statements))


def _settled(made: Block, handed: Block, child: Block) -> Block:
    """The child, without the numbers that nothing below it needs."""
    return child if made is handed else drop_unused_passed(made)


def _resolved(location: Location, numbers: dict[str, Affine]) -> Location:
    bank = None if location.bank is None else location.bank.substitute(numbers)
    address = None if location.address is None else location.address.substitute(numbers)
    return replace(location, bank=bank, address=address)


def _handed(block: Block, numbers: dict[str, Affine]) -> tuple[Block, dict[str, Affine]]:
    """A child that is passed the numbers of the units around it, and what they are called there."""
    names = Names(i.name for i in block.indexes)
    inner: dict[str, Affine] = {}
    added: list[Index] = []
    for key, value in numbers.items():
        if value.is_constant:
            inner[key] = value
            continue
        name = names.fresh("unit")
        added.append(Index(name, 1, value))
        inner[key] = Affine.index(name)
    return (replace(block, indexes=(*block.indexes, *added)) if added else block), inner
