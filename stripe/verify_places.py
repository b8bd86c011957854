"""Verifier: where allocations lie and who executes, one block at a time (V036, V060, V062, V063, V064).

An address is a place in its bank, or in the whole memory if no bank is named: `Held.low` is always the
latter, so that two allocations of one memory can be compared. A `new` buffer whose place depends on
`slot` is looked at for every slot at every point. What is alive together, and shares bytes or is too much,
is decided over the whole program: stripe.verify_overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.affine import Affine
from stripe.analysis.liveness import memory_of, part_bytes, parts_of, slots_of
from stripe.analysis.units import executes, reaches, unit_of
from stripe.diag import Diagnostic, Span
from stripe.ir import SLOT, Block, Direction, Load, Location, Refinement, Special, Statement, Store
from stripe.poly import Domain
from stripe.verify_access import Nest, point_below_zero
from stripe.verify_structure import Site, described
from stripe.visit import View, buffers_used

BANKS_APART = 1 << 50  # bytes from bank to bank of a memory that is large enough for anything


@dataclass(frozen=True, slots=True)
class Held:
    """An allocation with its place, over the dimensions of its nest and `slot`.

    `bank` counts banks, `address` bytes from the start of the bank (of the memory, if `bank` is None and
    nothing is spread), `low` bytes from the start of the memory; part n of a spread allocation
    lies n banks behind `low`. None: not placed so far. `size` is the bytes of one part.
    """

    path: str
    ref: Refinement
    memory: Memory | None
    bank: Affine | None = None
    address: Affine | None = None
    size: int = 0
    parts: int = 1
    slots: int = 1

    @property
    def in_bank(self) -> bool:
        return self.bank is not None or self.spread is not None

    @property
    def spread(self) -> int | None:
        return self.ref.location.spread if self.ref.location is not None else None

    @property
    def low(self) -> Affine | None:
        if self.address is None or self.memory is None:
            return None
        return self.address + (self.bank or Affine()) * bank_bytes(self.memory)


def bank_bytes(memory: Memory) -> int:
    return memory.bytes // memory.banks if memory.bytes is not None else BANKS_APART


def given_by_llvm(memory: Memory, hw: HwConfig) -> bool:
    """Whether nobody says at which place of a memory a buffer lies: registers of native code."""
    return memory.kind == "registers" and not hw.has_addresses(memory)


def slot_name(depth: int) -> str:
    return f"{depth}.{SLOT}"


def held(
    path: str,
    block: Block,
    ref: Refinement,
    at_root: bool,
    depth: int,
    values: dict[str, Affine],
    hw: HwConfig,
) -> Held:
    """The place of an allocation of `block`, whose indexes have these values."""
    name = memory_of(ref, at_root, hw)
    parts = parts_of(ref, name, hw)
    known = {SLOT: Affine.index(slot_name(depth)), **values}
    bank = address = None
    if ref.location is not None:
        bank, address = (
            None if expr is None else expr.substitute(known)
            for expr in (ref.location.bank, ref.location.address)
        )
    return Held(path, ref, hw.memory(name), bank, address, part_bytes(ref, parts), parts, slots_of(block))


@dataclass(frozen=True, slots=True)
class _Executor:
    unit: Unit
    number: Affine | None


class PlaceRules:
    """The rules about places, asked for each nest, parents first."""

    def __init__(self, hw: HwConfig) -> None:
        self._hw = hw
        self._values: dict[int, dict[str, Affine]] = {}  # by site: the block's indexes
        self._held: dict[int, dict[str, Held]] = {}  # by site: the allocation behind each name
        self._views: dict[int, dict[str, View]] = {}

    def findings(self, nest: Nest) -> Iterator[Diagnostic]:
        site = nest.site
        self._note(nest)
        if nest.never_runs:
            return
        for ref in site.block.refinements:
            if ref.direction is Direction.NEW or site.parent is None:
                yield from self._allocation(nest, self._held[id(site)][ref.name])
        if site.block.location is not None:
            yield from self._number(nest, "", site.block.location, site.block.span)
        for number, statement in enumerate(site.block.statements):
            if isinstance(statement, Special) and statement.location is not None:
                yield from self._number(
                    nest, described(number, statement), statement.location, statement.span
                )
        yield from self._leaf(nest)

    def _note(self, nest: Nest) -> None:
        """What the rules know of the block, and its children will ask for."""
        site, block = nest.site, nest.site.block
        outer = self._held[id(site.parent)] if site.parent else {}
        views = self._views[id(site.parent)] if site.parent else {}
        self._values[id(site)] = nest.values
        mine: dict[str, Held] = {}
        seen: dict[str, View] = {}
        for ref in block.refinements:
            at_root = site.parent is None
            if at_root or ref.direction is Direction.NEW:
                mine[ref.name] = held(site.path, block, ref, at_root, nest.depth, nest.values, self._hw)
            else:
                mine[ref.name] = outer[ref.source]
            strides = ref.strides if ref.strides is not None else views[ref.source].strides
            seen[ref.name] = View(ref.dtype, ref.shape, strides)
        self._held[id(site)] = mine
        self._views[id(site)] = seen

    # -- allocations: V036, V060, V064 -------------------------------------------------------

    def _allocation(self, nest: Nest, place: Held) -> Iterator[Diagnostic]:
        memory = place.memory
        if memory is None or place.ref.location is None or given_by_llvm(memory, self._hw):
            return
        where = f"block {nest.site.path}, refinement '{place.ref.name}'"
        span = place.ref.span or nest.site.block.span
        wide = with_slot(nest, place)
        banks = memory.banks * memory.count
        if place.spread is not None:
            length = place.ref.shape[place.spread]
            if place.bank is not None:
                help = "help: an allocation lies in one bank or is spread over all"
                yield Diagnostic("V064", f"{where}: it names a bank and is spread as well", span, (help,))
                return
            if length % banks:
                message = (
                    f"{where}: dimension {place.spread}, of {length}, does not divide into equal "
                    f"parts for the {banks} banks of {memory.name}: {length % banks} are left"
                )
                help = f"help: a multiple of {banks}, such as {-(-length // banks) * banks}, does"
                yield Diagnostic("V064", message, span, (help,))
                return
        if place.bank is not None:
            for slack in (place.bank, -place.bank + (banks - 1)):
                point = point_below_zero(wide, slack)
                if point is not None:
                    number = place.bank.evaluate(point)
                    message = (
                        f"{where}: it lies in bank {number} of {memory.name}{wide.shown(point)}; "
                        f"the target has {banks}"
                    )
                    yield Diagnostic("V036", message, span, ("help: banks are numbered from 0",))
                    return
        yield from self._inside(wide, place, where, span)

    def _inside(self, wide: Nest, place: Held, where: str, span: Span | None) -> Iterator[Diagnostic]:
        """V060: at every point and slot the allocation lies in its bank or memory, at an aligned address."""
        memory, address = place.memory, place.address
        if memory is None or address is None:
            return
        limit = None
        whole = memory.name
        if memory.bytes is not None:
            limit = bank_bytes(memory) if place.in_bank else memory.bytes * memory.count
            whole = f"a bank of {memory.name}" if place.in_bank and memory.banks > 1 else memory.name
        slacks = [address] if limit is None else [address, -address + (limit - place.size)]
        for slack in slacks:
            point = point_below_zero(wide, slack)
            if point is None:
                continue
            first = address.evaluate(point)
            over = first + place.size - limit if limit is not None else 0
            fault = f"{-first} bytes ahead of the start" if first < 0 else f"{over} bytes beyond the {limit}"
            message = (
                f"{where}: its {place.size} bytes at {memory.name}:{first} lie {fault} of {whole}"
                f"{wide.shown(point)}"
            )
            yield Diagnostic("V060", message, span, ("help: use another address or a smaller buffer",))
            return
        point = _misaligned(wide, address, memory.align_bytes)
        if point is not None:
            message = (
                f"{where}: its address {memory.name}:{address.evaluate(point)} is no multiple of the "
                f"{memory.align_bytes} bytes that {memory.name} aligns to{wide.shown(point)}"
            )
            yield Diagnostic("V060", message, span)

    # -- units: V036, V062, V063 -------------------------------------------------------------

    def _number(self, nest: Nest, what: str, location: Location, span: Span | None) -> Iterator[Diagnostic]:
        """V036: the number of the unit that executes something is one that the target has."""
        unit = self._hw.unit(location.unit)
        if unit is None or location.bank is None:
            return
        number = location.bank.substitute(nest.values)
        for slack in (number, -number + (unit.count - 1)):
            point = point_below_zero(nest, slack)
            if point is not None:
                place = f"block {nest.site.path}"
                subject = f"{place}{', ' if what else ''}{what}: it"
                message = (
                    f"{subject} runs on {unit.name}[{number.evaluate(point)}]{nest.shown(point)}; "
                    f"the target has {unit.count}"
                )
                help = "help: partition over fewer units"
                yield Diagnostic("V036", message, span or nest.site.block.span, (help,))
                return

    def _executor(self, nest: Nest, special: Special | None) -> _Executor | None:
        around = nest.site.nest
        found = unit_of([site.block for site in around], special)
        unit = self._hw.unit(found[1].unit) if found is not None else None
        if found is None or unit is None:
            return None
        level, location = found
        if location.bank is None:
            return _Executor(unit, None)
        return _Executor(unit, location.bank.substitute(self._values[id(around[level])]))

    def _leaf(self, nest: Nest) -> Iterator[Diagnostic]:
        """V062 and V063 for the statements of the block itself."""
        block = nest.site.block
        common: _Executor | None = None
        asked = False
        touched: set[str] = set()
        for number, statement in enumerate(block.statements):
            if isinstance(statement, Block):
                continue
            if not asked:
                common, asked = self._executor(nest, None), True
            executor = common
            if isinstance(statement, Special):
                executor = self._executor(nest, statement)
                touched = set()  # another part, perhaps another unit
            if executor is None:
                continue
            if isinstance(statement, Special):
                views, memories = self._views[id(nest.site)], self._memories(nest.site, executor.unit)
                reason = executes(executor.unit, statement, self._hw, views, memories)
                if reason:
                    yield self._fault("V063", nest, described(number, statement), reason, statement.span)
            for name, _ in buffers_used(statement):
                if name in touched:
                    continue
                touched.add(name)
                yield from self._reached(nest, number, statement, self._held[id(nest.site)][name], executor)
        if common is not None and any(not isinstance(s, Block | Special) for s in block.statements):
            reason = self._refusal(nest.site, common.unit)
            if reason:
                yield self._fault("V063", nest, "", reason, block.span)

    def _refusal(self, site: Site, unit: Unit) -> str:
        """Why the unit can't execute the block, nor a nest of which it is the inmost block as one stencil."""
        first = ""
        here: Site | None = site
        while here is not None and here.parent is not None:
            views = self._views[id(here.parent)]
            reason = executes(unit, here.block, self._hw, views, self._memories(here, unit))
            if not reason:
                return ""
            first = first or reason
            here = here.parent if len(here.parent.block.statements) == 1 else None
        return first or executes(unit, site.block, self._hw, self._views[id(site)])

    def _memories(self, site: Site, unit: Unit) -> dict[str, str]:
        """Where buffers lie, but for those that another `transfer` brings nearer to the unit."""
        found: dict[str, str] = {}
        for name, place in self._held[id(site)].items():
            memory = place.memory if place.ref.location is not None else None
            if memory is not None and (place.address is not None or not self._on_the_way(unit, memory)):
                found[name] = memory.name
        return found

    def _reached(
        self, nest: Nest, number: int, statement: Statement, place: Held, executor: _Executor
    ) -> Iterator[Diagnostic]:
        """V062: the unit reaches the memory that the buffer was put in, copy c of it instance c."""
        memory, unit = place.memory, executor.unit
        if memory is None or place.ref.location is None:
            return  # nobody has said yet where the buffer is worked on: `transfer` does
        span = statement.span if isinstance(statement, Load | Store | Special) else None
        where = f"{described(number, statement)}"
        buffer = f"'{place.ref.name}' of block {place.path}"
        reason = reaches(unit, memory.name)
        if reason and place.address is None and self._on_the_way(unit, memory):
            return  # another `transfer` brings it nearer
        if reason:
            help = "help: copy to a memory that it reaches, or let another unit execute this"
            yield self._fault("V062", nest, where, f"it touches {buffer}, and {reason}", span, help)
            return
        if memory.count == 1 or unit.count == 1:
            return
        wide = with_slot(nest, place)
        copy = executor.number or Affine()
        for slack in self._outside_instance(nest, number, place, copy):
            point = point_below_zero(wide, slack)
            if point is not None:
                c = copy.evaluate(point)
                message = (
                    f"it touches {buffer}, which does not lie in {memory.name} number {c}, the one that "
                    f"{unit.name}[{c}] reaches{wide.shown(point)}"
                )
                yield self._fault("V062", nest, where, message, span)
                return

    def _on_the_way(self, unit: Unit, memory: Memory) -> bool:
        """Whether a memory lies behind one that the unit reaches, so that steps of `transfer` are between.

        Of the farthest memory that is so where it is more than one step away: an operand may go
        around those between.
        """
        nearer = [self._hw.memory(name) for name in unit.reaches]
        if memory is self._hw.home and any(m is not None and m.backing == memory.name for m in nearer):
            return False
        behind: set[str] = set()
        while nearer:
            here = nearer.pop()
            if here is not None and here.backing is not None and here.backing not in behind:
                behind.add(here.backing)
                nearer.append(self._hw.memory(here.backing))
        return memory.name in behind

    def _outside_instance(self, nest: Nest, number: int, place: Held, copy: Affine) -> list[Affine]:
        """Expressions that are negative where what a statement touches is not in instance `copy`."""
        memory = place.memory
        if memory is None or memory.bytes is None:
            return []
        if place.spread is not None:
            return _part_slacks(nest, number, place, copy * memory.banks, memory.banks)
        if place.bank is not None:
            first = copy * memory.banks
            return [place.bank - first, first + (memory.banks - 1) - place.bank]
        low = place.low
        if low is None:
            return []
        start = copy * memory.bytes
        return [low - start, start + (memory.bytes - place.size) - low]

    def _fault(
        self, code: str, nest: Nest, where: str, message: str, span: Span | None, *notes: str
    ) -> Diagnostic:
        place = f"block {nest.site.path}{', ' if where else ''}{where}"
        return Diagnostic(code, f"{place}: {message}", span or nest.site.block.span, notes)


def with_slot(nest: Nest, place: Held) -> Nest:
    """The nest with the slots of an allocation as a further dimension, where its place depends on them."""
    names = {name for expr in (place.bank, place.address) if expr is not None for name in expr.names}
    slots = dict.fromkeys(sorted(names - set(nest.ranges)), place.slots)
    return replace(nest, ranges={**nest.ranges, **slots}) if slots else nest


def _misaligned(nest: Nest, address: Affine, align: int) -> dict[str, int] | None:
    """A point at which the address is no multiple of `align`."""
    if all(c % align == 0 for c in (address.const, *(c for _, c in address.terms))):
        return None
    quotient, rest = Affine.index("quotient"), Affine.index("rest")
    names = (*address.names, "quotient", "rest")
    violation = Domain.of(names, [rest - 1, -rest + (align - 1)], [address - quotient * align - rest])
    return nest.witness(violation)


def _part_slacks(nest: Nest, number: int, place: Held, first: Affine, banks: int) -> list[Affine]:
    """Negative where a statement touches elements of a spread allocation outside of banks `first` and on."""
    axis = place.spread
    if axis is None:
        return []
    length = place.ref.shape[axis] // place.parts
    slacks: list[Affine] = []
    for name, low, extent in _touched(nest, number, axis):
        if nest.views[name][-1].ref is place.ref:
            slacks += [low - first * length, (first + banks) * length - low - extent]
    return slacks


def _touched(nest: Nest, number: int, axis: int) -> Iterator[tuple[str, Affine, int]]:
    """Each buffer that a statement touches: where along an axis of its allocation, and how far."""
    statement = nest.site.block.statements[number]
    if isinstance(statement, Special):
        for operand in statement.operands:
            view = nest.views[operand.buffer]
            shape = operand.shape if operand.shape is not None else view[0].ref.shape
            offset = operand.access[axis].substitute(nest.values) if operand.access else Affine()
            yield operand.buffer, view[-1].origin[axis] + offset, shape[axis]
    elif not isinstance(statement, Block):
        for name, _ in buffers_used(statement):
            yield name, nest.views[name][-1].origin[axis], 1
