"""What is known of a program's blocks ahead of time: what starts as one, on which unit, and after what.

A block falls into *items*: each block or special in it, and each run of scalar statements between these. An
item is a *task* if one unit executes all of it from one end to the other: it starts when all that it
depends on is done and the unit is free. Other items are gone into. One item depends on an earlier one if it
uses a value or an element that the other makes or overwrites (`stripe.analysis.deps`), or bytes of a memory
that the other used for a buffer that is dead by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwconfigs.model import HwConfig, Memory, Unit
from simulator.alike import Cut, lifted, passed_in
from simulator.meters import Meter, meter
from simulator.work import Site, Spread, Worker, origins, spread_in
from stripe.affine import Affine, box_of
from stripe.analysis.deps import successors
from stripe.analysis.liveness import part_bytes, parts_of, slots_of
from stripe.diag import InvariantError
from stripe.ir import SLOT, Block, Direction, Location, Refinement, Special, Statement
from stripe.visit import View, views_of

_AROUND = Location("")  # the unit of the block around


@dataclass(frozen=True, slots=True)
class Item:
    """Statements of a block that start as one, the first of them statement `at`: `block` if it is a block,
    else a special or scalar ones. `location` is the unit of a task if it is not that of the block around,
    over the names of that block. `after` are the items that it depends on. `inner` is there if it is gone
    into."""

    number: int
    at: int
    statements: tuple[Statement, ...]
    block: Block | None
    task: bool
    location: Location | None
    after: tuple[int, ...]
    inner: Plan | None
    site: Site


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A block that is gone into. `cuts` are what matters of its points to all in it, over its own names;
    `outer` the same over those of its parent; `exact` the expressions whose values matter, such as numbers of
    units and banks."""

    block: Block
    site: Site
    path: str
    views: Mapping[str, View]
    outer_views: Mapping[str, View]
    items: tuple[Item, ...]
    number: Affine | None  # of the unit, if the block spreads its points over several
    location: Location | None
    cuts: tuple[Cut, ...]
    exact: tuple[Affine, ...]
    later: tuple[tuple[int, ...], ...]  # for each item those that depend on it
    spread: Spread  # buffers of the block that are spread over banks


@dataclass(frozen=True, slots=True)
class Measured:
    """A block that does something itself, the unit that executes it, and how it is counted."""

    site: Site
    path: str
    unit: str
    meter: Meter


class Planner:
    """Makes the plans of one program on one target."""

    def __init__(self, hw: HwConfig, worker: Worker) -> None:
        self._hw = hw
        self._worker = worker

    def root(self, root: Block) -> Plan:
        return self._plan(root, (), root.name, {}, {}, None)

    def unit(self, name: str) -> Unit:
        found = self._hw.unit(name)
        if found is None:
            raise InvariantError(f"no unit is named {name}")
        return found

    def _plan(
        self, block: Block, site: Site, path: str, outer: Mapping[str, View], around: Spread, unit: str | None
    ) -> Plan:
        """The plan of a block whose statements run on `unit` if none else is named. `outer` are the views of
        its parent, `around` those of its buffers that are spread over banks."""
        views, spread = views_of(block, outer), spread_in(block, around)
        location = block.location
        unit = location.unit if location is not None else unit
        units = location.bank if location is not None else None
        if units is not None and not any(block.ranges.get(name, 1) > 1 for name in units.names):
            units = None
        items = tuple(self._items(block, site, path, views, spread, unit))
        cuts, exact = self._what_matters(block, items, views, around, spread, unit)
        return Plan(
            block, site, path, views, outer, items, units, location, cuts, exact, _later(items), spread
        )

    def _items(
        self, block: Block, site: Site, path: str, views: Mapping[str, View], spread: Spread, unit: str | None
    ) -> Iterator[Item]:
        groups = list(groups_of(block))
        after = self._dependences(block, groups)
        place = 0
        for number, (statements, earlier) in enumerate(zip(groups, after, strict=True)):
            first, at = statements[0], place
            place += len(statements)
            inner, own = None, None
            if isinstance(first, Block):
                executor = _executor(first)
                task = executor is not None and not _is_gone_into(first, self._hw)
                own = executor if task and executor is not _AROUND else None
                if not task:
                    inner = self._plan(first, (*site, at), f"{path}/{first.name}", views, spread, unit)
            else:
                task = True
                own = first.location if isinstance(first, Special) else None
            child = first if isinstance(first, Block) else None
            below = (*site, at) if isinstance(first, Block | Special) else site
            yield Item(number, at, statements, child, task, own, tuple(earlier), inner, below)

    def _what_matters(
        self,
        block: Block,
        items: Sequence[Item],
        views: Mapping[str, View],
        around: Spread,
        spread: Spread,
        unit: str | None,
    ) -> tuple[tuple[Cut, ...], tuple[Affine, ...]]:
        """The cuts of a plan, and its exact expressions."""
        cuts: list[Cut] = [*origins(block, around)]
        placed = [r.location for r in _allocated(block) if r.location is not None]
        exact = [location.bank for location in placed if location.bank is not None]
        for item in items:
            name = item.location.unit if item.location is not None else unit
            if item.block is None:
                continue
            if item.task:
                cuts += self._worker.cuts(item.block, self.unit(name or ""), views, spread)
                if item.location is not None and item.location.bank is not None:
                    exact.append(item.location.bank)
            elif item.inner is not None:
                passed, ranges = passed_in(item.block), item.block.ranges
                cuts += lifted(
                    ranges, passed, (*(Cut(c.expr, 0) for c in item.block.constraints), *item.inner.cuts)
                )
                exact += [e.substitute(passed).without(set(ranges)) for e in item.inner.exact]
                if item.block.location is not None and item.block.location.bank is not None:
                    exact.append(item.block.location.bank.substitute(passed).without(set(ranges)))
        exact = [e.without({SLOT}) for e in exact]
        return tuple(dict.fromkeys(cuts)), tuple(dict.fromkeys(e for e in exact if e.names))

    def measured(self, plan: Plan, unit: str = "") -> Iterator[Measured]:
        """Every block that does something itself, where it stands, and how it is counted."""
        unit = plan.location.unit if plan.location is not None else unit
        for item in plan.items:
            name = item.location.unit if item.location is not None else unit
            if item.inner is not None:
                yield from self.measured(item.inner, unit)
            elif item.block is not None:
                yield from self._measured(item.block, item.site, plan.path, name, plan.views)
            else:
                first = item.statements[0]
                path = f"{plan.path}/{first.name}" if isinstance(first, Special) else plan.path
                found = self._worker.meter(plan.block, item.statements, self.unit(name), plan.outer_views)
                yield Measured(item.site, path, name, found)

    def _measured(
        self, block: Block, site: Site, around: str, unit: str, views: Mapping[str, View]
    ) -> Iterator[Measured]:
        path = f"{around}/{block.name}"
        found = meter(block, self.unit(unit), views, self._hw)
        if found.leaf is not None or any(not isinstance(s, Block) for s in block.statements):
            yield Measured(site, path, unit, found)
        if found.leaf is None:
            own = views_of(block, views)
            for number, statement in enumerate(block.statements):
                if isinstance(statement, Block):
                    yield from self._measured(statement, (*site, number), path, unit, own)
                elif isinstance(statement, Special):
                    found = self._worker.meter(block, [statement], self.unit(unit), views)
                    yield Measured((*site, number), f"{path}/{statement.name}", unit, found)

    # -- what depends on what ----------------------------------------------------------------------

    def _dependences(self, block: Block, groups: Sequence[tuple[Statement, ...]]) -> list[list[int]]:
        owner = {}
        number = 0
        for at, group in enumerate(groups):
            for _ in group:
                owner[number] = at
                number += 1
        after: list[set[int]] = [set() for _ in groups]
        for earlier, found in enumerate(successors(block)):
            for later in found:
                if owner[earlier] != owner[later]:
                    after[owner[later]].add(owner[earlier])
        for one, other in self._shared(block, groups):
            after[other].add(one)
        return [sorted(found) for found in after]

    def _shared(self, block: Block, groups: Sequence[tuple[Statement, ...]]) -> Iterator[tuple[int, int]]:
        """Pairs of items that use the same bytes for different buffers: the earlier, the later."""
        places = {r.name: self._extent(r, block) for r in _allocated(block)}
        taken: list[tuple[str, int, int, object, int]] = []  # memory, first and last byte, buffer, item
        for at, group in enumerate(groups):
            for statement in group:
                if isinstance(statement, Block):
                    for name in {r.source for r in statement.refinements if r.source}:
                        if (extent := places.get(name)) is not None:
                            taken.append((*extent, name, at))
                    for extent in self._nested(statement):
                        taken.append((*extent, object(), at))
        taken.sort(key=lambda entry: entry[:3])
        alive: list[tuple[str, int, int, object, int]] = []
        seen: set[tuple[int, int]] = set()
        for entry in taken:
            alive = [e for e in alive if e[0] == entry[0] and e[2] >= entry[1]]
            for other in alive:
                if other[4] != entry[4] and other[3] != entry[3]:
                    seen.add((min(other[4], entry[4]), max(other[4], entry[4])))
            alive.append(entry)
        yield from sorted(seen)

    def _nested(self, block: Block) -> Iterator[tuple[str, int, int]]:
        for ref in block.refinements:
            if ref.direction is Direction.NEW and (extent := self._extent(ref, block)) is not None:
                yield extent
        for child in block.children:
            yield from self._nested(child)

    def _extent(self, ref: Refinement, block: Block) -> tuple[str, int, int] | None:
        """The memory, and the first and the last byte that an allocation may take in it, over all points."""
        location = ref.location
        memory = self._hw.memory(location.unit) if location is not None else None
        if location is None or memory is None or location.address is None:
            return None
        size = part_bytes(ref, parts_of(ref, memory.name, self._hw))
        bounds = box_of(block.ranges) | {SLOT: (0, slots_of(block) - 1)}
        if location.spread is not None:
            return memory.name, 0, max((memory.bytes or 1) * memory.count - 1, 0)
        try:
            low, high = location.address.bounds(bounds)
            bank_low, bank_high = location.bank.bounds(bounds) if location.bank is not None else (0, 0)
        except KeyError:  # depends on what is passed in: it may be anywhere
            return memory.name, 0, max((memory.bytes or 1) * memory.count - 1, 0)
        step = bank_bytes(memory) if location.bank is not None else 0
        return memory.name, bank_low * step + low, bank_high * step + high + max(size, 1) - 1


def _later(items: Sequence[Item]) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in items]
    for item in items:
        for earlier in item.after:
            found[earlier].append(item.number)
    return tuple(map(tuple, found))


def _allocated(block: Block) -> list[Refinement]:
    """What a block does not view in its parent: its own buffers; of the root, inputs and outputs, too."""
    return [ref for ref in block.refinements if ref.strides is not None]


def bank_bytes(memory: Memory) -> int:
    return (memory.bytes or 0) // memory.banks


def groups_of(block: Block) -> Iterator[tuple[Statement, ...]]:
    run: list[Statement] = []
    for statement in block.statements:
        if isinstance(statement, Block | Special):
            if run:
                yield tuple(run)
                run = []
            yield (statement,)
        else:
            run.append(statement)
    if run:
        yield tuple(run)


def _is_gone_into(block: Block, hw: HwConfig) -> bool:
    """Whether something in a block happens side by side, or has a place of its own."""
    own = any(r.direction is Direction.NEW and r.location is not None for r in block.refinements)
    return own or block.inflight > 1 or any(_is_gone_into(child, hw) for child in block.children)


def _executor(block: Block) -> Location | None:
    """The one unit that executes all of a block, over the names of its parent; _AROUND if that is the unit
    around, None if there are several."""
    found = set(_executors(block))
    return found.pop() if len(found) == 1 else None


def _executors(block: Block) -> Iterator[Location | None]:
    if block.location is not None:
        own: Location | None = Location(block.location.unit, block.location.bank or Affine())
    else:
        own = _AROUND
    inner: list[Location | None] = []
    if not block.statements or any(not isinstance(s, Block) for s in block.statements):
        inner.append(own)
    for statement in block.statements:
        if isinstance(statement, Special) and statement.location is not None:
            inner.append(Location(statement.location.unit, statement.location.bank or Affine()))
        if isinstance(statement, Block):
            inner += [own if found is _AROUND else found for found in _executors(statement)]
    passed, ranges = passed_in(block), block.ranges
    for found in inner:
        if found is None or found is _AROUND or found.bank is None:
            yield found
        elif any(ranges.get(name, 1) > 1 for name in found.bank.names):
            yield None
        else:
            zero = {name: Affine() for name in ranges}
            yield Location(found.unit, found.bank.substitute({**passed, **zero}))
