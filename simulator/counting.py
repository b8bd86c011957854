"""Counts of programs on their way through the passes: in closed form, as far as they can be told by then.

    Counting(hw).of(program)

A statement without a unit is counted as if one executed it that takes an element for each load and store, and
a buffer without a memory under "". Counts are additive over the statements of a root, and the same for
kernels that are alike: each kind is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from hwconfigs.model import HwConfig, Unit
from simulator.closed import ClosedForm
from simulator.simulate import block_count
from stripe.alike import kind
from stripe.analysis.liveness import memory_of
from stripe.analysis.units import reaches
from stripe.ir import Block, Program, Special

KINDS = 600  # kernels that differ, over all programs that are counted


@dataclass(frozen=True, slots=True)
class Counted:
    """What is known of a program. `moved` has for each memory the bytes read, old values of aggregations
    included, and the bytes written; `busy` the cycles of each unit, over all its copies. `named`: all
    statements name their unit. `unreached` says what a unit can't do yet."""

    operations: int = 0
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    named: bool = True
    unreached: str = ""


class Counting:
    """Counts programs of one target."""

    def __init__(self, hw: HwConfig) -> None:
        self._hw = msgspec.structs.replace(hw, units=(*hw.units, Unit(name="")))
        self._known: dict[object, tuple[object, Counted]] = {}

    def of(self, program: Program) -> Counted | None:
        """The counts of the root of a program; None if more than `KINDS` kernels differ."""
        total = Counted()
        root = program.root
        for statement in root.statements:
            if isinstance(statement, Block | Special):
                found = self._kernel(root, statement)
                if found is None:
                    return None
                total = _sum(total, found)
        scalars = tuple(s for s in root.statements if not isinstance(s, Block | Special))
        return _sum(total, self._count(replace(root, statements=scalars))) if scalars else total

    def _kernel(self, root: Block, statement: Block | Special) -> Counted | None:
        alone = replace(root, statements=(statement,))
        if isinstance(statement, Special):
            return self._count(alone)
        held = {
            ref.name: (memory_of(ref, True, self._hw), ref.shape, ref.strides) for ref in root.refinements
        }
        shown = kind(statement).block
        key = id(shown), tuple(held.get(ref.source) for ref in statement.refinements), root.location
        if key not in self._known:
            if len(self._known) >= KINDS:
                return None
            self._known[key] = shown, self._count(alone)
        return self._known[key][1]

    def _count(self, root: Block) -> Counted:
        closed = ClosedForm(root, self._hw)
        operations, busy = 0, dict[str, float]()
        for measured in closed.planner.measured(closed.plan):
            block = block_count(measured, closed.counts)
            operations += block.operations
            busy[block.unit] = busy.get(block.unit, 0.0) + block.busy
        moved: dict[str, tuple[int, int]] = {}
        unreached = ""
        for (memory, buffer, name, what), size in closed.traffic.items():
            read, written = moved.get(memory, (0, 0))
            moved[memory] = (read + size * (what != "write"), written + size * (what == "write"))
            unit = self._hw.unit(name)
            if unit is not None and name and not unreached:
                reason = reaches(unit, memory) if memory else f"'{buffer}' lies in no memory yet"
                unreached = f"'{buffer}' lies in {memory}: {reason}" if reason and memory else reason
        named = "" not in busy
        busy.pop("", None)
        return Counted(operations, moved, busy, named, unreached)


def _sum(one: Counted, other: Counted) -> Counted:
    moved = dict(one.moved)
    for memory, (read, written) in other.moved.items():
        known = moved.get(memory, (0, 0))
        moved[memory] = known[0] + read, known[1] + written
    busy = {name: one.busy.get(name, 0.0) + other.busy.get(name, 0.0) for name in (*one.busy, *other.busy)}
    return Counted(
        one.operations + other.operations, moved, busy, one.named and other.named,
        one.unreached or other.unreached,
    )  # fmt: skip
