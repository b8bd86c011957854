"""When is each allocation alive, which of them may be alive together, and how much is that at most?

A root block has a timeline: its statements, and those of all blocks in it, in the order of the text; a
statement that is a block takes the time of what stands in it. At one point of everything around it

    a `new` buffer      is alive from the first to the last statement of its block that uses it
    an input            from the start to the end: it is the caller's
    an output           from its first use to the end

Of two points of a block, one is over before the other begins, save for two things:

    inflight=n          n successive points may be alive, at different statements: each statement is a stage,
                        which one point at a time is in. Buffers of the block have n slots and are alive
                        during the whole block, together with all that is nested in its statements. What is
                        nested in one statement is not multiplied.
    @CORE[c]            points on different units are alive together, with all that is nested in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.ir import Block, Direction, Program, Refinement
from stripe.poly import Domain
from stripe.visit import buffers_used

_MAX_DEALT = 1 << 16  # points that are dealt out to units, up to which the share of each is counted


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A block where it stands: which statement of its parent it is, and when its own statements run.

    `times` holds the first and the last tick of each statement. A block without statements takes one tick.
    """

    path: str
    block: Block
    parent: Scope | None
    at: int
    start: int
    times: list[tuple[int, int]] = field(default_factory=list, repr=False)
    children: list[Scope] = field(default_factory=list, repr=False)

    @property
    def end(self) -> int:
        return self.times[-1][1] if self.times else self.start

    @property
    def around(self) -> list[Scope]:
        """The scopes from the root to this one."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class Lifetime:
    """An allocation: when it is alive, and what it takes.

    `memory` is "" where none is named. `uses` are the numbers of the first and the last statement of its
    block that it is alive at; None if no statement uses it. From `start` to `end`, both
    included, it is alive for one unit: two allocations whose times are apart are never alive together
    there. From `wide_start` to `wide_end` it is alive for any of the units that work side by side: that
    counts where they share the memory. `bytes` is the size of one copy in one bank, gaps
    between strides included. There are `slots` copies for points in flight, each for `units` units, each
    in `parts` banks.
    """

    scope: Scope
    ref: Refinement
    memory: str
    uses: tuple[int, int] | None
    start: int
    end: int
    wide_start: int
    wide_end: int
    bytes: int
    slots: int
    units: int
    parts: int

    @property
    def path(self) -> str:
        return self.scope.path

    @property
    def block(self) -> Block:
        return self.scope.block

    @property
    def total(self) -> int:
        """The bytes of all its copies."""
        return self.bytes * self.slots * self.units * self.parts


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that are alive at once in a memory, and the statement of a scope where they are."""

    bytes: int
    scope: Scope
    statement: int


def load_time(program: Program) -> Block:
    """The load-time program with all that lies in memory while it runs: the constants of the root, too,
    that it does not read. They stand first."""
    load = program.load
    assert load is not None
    own = {ref.name for ref in load.refinements}
    more = tuple(ref for ref in program.inputs if ref.const and ref.name not in own)
    return replace(load, refinements=(*more, *load.refinements)) if more else load


def timeline(root: Block) -> Scope:
    """The scope of the root, with those of all blocks in it; without recursion."""
    top = Scope(root.name, root, None, 0, 0)
    stack, clock = [top], 0
    while stack:
        here = stack[-1]
        number = len(here.times)
        if number < len(here.block.statements):
            statement = here.block.statements[number]
            if isinstance(statement, Block):
                scope = Scope(f"{here.path}/{statement.name}", statement, here, number, clock)
                here.children.append(scope)
                stack.append(scope)
            else:
                here.times.append((clock, clock))
                clock += 1
            continue
        stack.pop()
        clock = max(clock, here.start + 1)
        if stack:
            stack[-1].times.append((here.start, clock - 1))
    return top


def scopes(top: Scope) -> list[Scope]:
    """Every scope of the tree, parents first, in the order of the text."""
    found, pending = [], [top]
    while pending:
        scope = pending.pop()
        found.append(scope)
        pending.extend(reversed(scope.children))
    return found


def lifetimes(root: Block, hw: HwConfig) -> tuple[Lifetime, ...]:
    """Every allocation of the tree, in the order of the text."""
    return tuple(life for scope in scopes(timeline(root)) for life in allocations(scope, hw))


def allocations(scope: Scope, hw: HwConfig) -> Iterator[Lifetime]:
    """The allocations of one scope: its `new` buffers, and at the root the inputs and outputs."""
    at_root = scope.parent is None
    refs = [ref for ref in scope.block.refinements if at_root or ref.direction is Direction.NEW]
    if not refs:
        return
    around = scope.around
    used = _uses(scope.block)
    piped = next((s for s in around if slots_of(s.block) > 1), None)
    spread = next((s for s in around if units_of(s.block) > 1), None)
    units = math.prod(units_of(s.block) for s in around)
    for ref in refs:
        uses = _extended(ref, used.get(ref.name), len(scope.block.statements))
        start, end = scope.start, scope.start - 1
        if uses is not None:
            start, end = scope.times[uses[0]][0], scope.times[uses[1]][1]
            if piped is not None:
                start, end = piped.start, piped.end
        wide = (spread.start, spread.end) if spread is not None and uses is not None else (start, end)
        memory = memory_of(ref, at_root, hw)
        parts = parts_of(ref, memory, hw)
        yield Lifetime(
            scope, ref, memory, uses, start, end, min(start, wide[0]), max(end, wide[1]),
            part_bytes(ref, parts), slots_of(scope.block), units, parts,
        )  # fmt: skip


def _uses(block: Block) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for number, statement in enumerate(block.statements):
        for name, _ in buffers_used(statement):
            found[name] = (found.get(name, (number, number))[0], number)
    return found


def _extended(ref: Refinement, uses: tuple[int, int] | None, statements: int) -> tuple[int, int] | None:
    """The uses, and for inputs and outputs the times at which the caller needs them."""
    if ref.direction is Direction.NEW or not statements:
        return uses
    if ref.direction is Direction.IN:
        return 0, statements - 1
    return (uses[0] if uses else statements - 1, statements - 1)


# -- sizes and copies ----------------------------------------------------------------------------


def memory_of(ref: Refinement, at_root: bool, hw: HwConfig) -> str:
    """The name of the memory that an allocation lies in; "" where it is not decided."""
    if ref.location is not None:
        return ref.location.unit
    home = hw.home
    return home.name if at_root and ref.direction is not Direction.NEW and home is not None else ""


def parts_of(ref: Refinement, memory: str, hw: HwConfig) -> int:
    """Over how many banks an allocation is spread: those of all instances of the memory."""
    found = hw.memory(memory)
    if ref.location is None or ref.location.spread is None or found is None:
        return 1
    return found.banks * found.count


def part_bytes(ref: Refinement, parts: int = 1) -> int:
    """What an allocation takes in one bank, with the gaps that its strides leave."""
    shape = list(ref.shape)
    if parts > 1 and ref.location is not None and ref.location.spread is not None:
        shape[ref.location.spread] = -(-shape[ref.location.spread] // parts)
    if 0 in shape:
        return 0
    strides = ref.strides or ()
    return ref.dtype.bytes * (1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)))


def slots_of(block: Block) -> int:
    """How many points of the block may be alive at once on one unit, each with buffers of its own."""
    if block.inflight == 1:
        return 1
    ranges, number = block.ranges, _unit_number(block)
    dealt = {name: size for name, size in ranges.items() if name in number.names}
    together = math.prod(size for name, size in ranges.items() if name not in dealt)
    if math.prod(dealt.values()) <= _MAX_DEALT:
        numbers = np.zeros(1, dtype=np.int64)
        for name, size in dealt.items():
            numbers = np.add.outer(numbers, number.coefficient(name) * np.arange(size)).ravel()
        together *= int(np.unique(numbers, return_counts=True)[1].max(initial=1))
    else:
        together *= math.prod(dealt.values())
    return max(1, min(block.inflight, together))


def enough(memory: Memory, needed: int) -> int:
    """The least size of a memory that holds so many bytes, and divides into its banks."""
    step = memory.banks * memory.align_bytes
    return -(-needed // step) * step


def enough_text(needs: Mapping[str, int], hw: HwConfig) -> str:
    """What would be enough of memories, by their names, as a clause of an advice."""
    sizes = [(name, hw.memory(name), needed) for name, needed in needs.items()]
    found = [f"{enough(memory, needed)} bytes of {name}" for name, memory, needed in sizes if memory]
    return f"with {' and '.join(found)} it fits"


def units_of(block: Block) -> int:
    """Over how many units the location of a block spreads its points; 1 where they all run on one."""
    number = _unit_number(block)
    ranges = {name: size for name, size in block.ranges.items() if name in number.names}
    if not ranges:
        return 1
    points = Domain.box(ranges).with_constraints(
        c.expr for c in block.constraints if set(c.expr.names) <= set(ranges)
    )
    return max(1, points.image([number], ["unit"]).count())


def _unit_number(block: Block) -> Affine:
    """What the number of the unit is made of by the block's own points; 0 where they all run on one."""
    number = None if block.location is None else block.location.bank
    return Affine() if number is None else number.only({n for n, size in block.ranges.items() if size > 1})


# -- the largest live set ------------------------------------------------------------------------


def peaks(root: Block, hw: HwConfig, *, in_one: bool = False) -> dict[str, Peak]:
    """For each memory that is named, the most bytes that are alive at once: all copies, all units; or, with
    `in_one`, those in one instance of it, of what each unit has in its own.

    No placement takes less. Of a block with points in flight it counts every slot and what is nested
    in each of its statements, since any two of these may be alive together.
    """
    found: dict[Scope, dict[str, Peak]] = {}
    instances = {memory.name: memory.count if in_one else 1 for memory in hw.memories}
    top = timeline(root)
    for scope in reversed(scopes(top)):
        found[scope] = _peaks_of(scope, list(allocations(scope, hw)), found, instances)
        for child in scope.children:
            del found[child]
    return found[top]


def peak(root: Block, hw: HwConfig, memory: str) -> Peak | None:
    """`peaks` for one memory; None if nothing lies there."""
    return peaks(root, hw).get(memory)


def _peaks_of(
    scope: Scope, own: list[Lifetime], below: dict[Scope, dict[str, Peak]], instances: Mapping[str, int]
) -> dict[str, Peak]:
    """`instances`: among how many of a memory what units have in it is divided."""
    nested: dict[str, list[tuple[int, Peak]]] = {}
    for child in scope.children:
        for memory, deeper in below[child].items():
            nested.setdefault(memory, []).append((child.at, deeper))
    held: dict[str, list[tuple[int, int, int]]] = {}
    for life in own:
        if life.memory and life.uses is not None and life.bytes:
            size = life.bytes * -(-life.parts // instances[life.memory]) * life.slots
            held.setdefault(life.memory, []).append((*life.uses, size))
    units, slots = units_of(scope.block), slots_of(scope.block)
    result: dict[str, Peak] = {}
    for memory in {**held, **nested}:
        buffers, inner = held.get(memory, []), nested.get(memory, [])
        if slots > 1:
            size = sum(b for _, _, b in buffers) + sum(p.bytes for _, p in inner)
            most = Peak(size, scope, buffers[0][0] if buffers else inner[0][0])
        else:
            most = _busiest(scope, buffers, inner)
        result[memory] = replace(most, bytes=most.bytes * -(-units // instances[memory]))
    return result


def _busiest(scope: Scope, held: list[tuple[int, int, int]], inner: list[tuple[int, Peak]]) -> Peak:
    """The most at one statement: the buffers of the scope that are alive at it, and what is nested in it."""
    change: dict[int, int] = {}
    for first, last, size in held:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    most = dict(inner)
    alive, best = 0, Peak(-1, scope, 0)
    for number in sorted({**change, **most}):
        alive += change.get(number, 0)
        deeper = most.get(number)
        if deeper is not None and alive + deeper.bytes > best.bytes:
            best = replace(deeper, bytes=alive + deeper.bytes)
        elif deeper is None and alive > best.bytes:
            best = Peak(alive, scope, number)
    return best
