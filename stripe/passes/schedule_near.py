"""schedule: buffers of the root that stay in near memory from their producer to their last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.liveness import part_bytes
from stripe.analysis.units import executes, is_copy, reaches, unit_of
from stripe.ir import Block, Direction, Location, Refinement, Special, Statement
from stripe.passes.base import PassContext
from stripe.passes.schedule_order import Loads
from stripe.rewrite_copies import redirect
from stripe.visit import View, buffers_used, map_statements, views_of

Offset = tuple[Affine, ...]


def kept_near(root: Block, near: Memory, hw: HwConfig, context: PassContext) -> Block:
    """The root with those of its buffers in `near` that fit there as long as they are alive; statements
    that worked on copies of their parts work on them in place."""
    home = hw.home
    if near.count > 1:  # each unit sees an instance of its own: the next memory is what they share
        shared = hw.memory(near.backing or "")
        if shared is None or shared.count > 1 or shared is home:
            return root
        near = shared
    run = _Near(root, near, hw, context)
    far = [
        r
        for r in root.refinements
        if r.direction is Direction.NEW
        and r.location is not None
        and home is not None
        and r.location == Location(home.name)
    ]
    # What is used soon again holds room for a short time: it goes first.
    uses = _users(root)
    far = [r for r in far if r.name in uses]
    for ref in sorted(far, key=lambda r: (uses[r.name][-1] - uses[r.name][0], uses[r.name])):
        run.keep(ref.name)
    return run.root


def _users(block: Block) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, statement in enumerate(block.statements):
        for name in dict.fromkeys(name for name, _ in buffers_used(statement)):
            found.setdefault(name, []).append(number)
    return found


class _Near:
    def __init__(self, root: Block, near: Memory, hw: HwConfig, context: PassContext) -> None:
        self.root = root
        self._near = near
        self._hw = hw
        self._context = context
        self._loads = Loads(hw)
        self._count()

    def _count(self) -> None:
        """What of the near memory the root's own buffers take at each statement, and who uses what."""
        self._held = [alive.get(self._near.name, 0) for alive in self._loads.own_alive(self.root)]
        self._uses = _users(self.root)

    def keep(self, name: str) -> None:
        """Move one buffer, if it fits and its users can work on it in place."""
        ref, root = self.root.refinement(name), self.root
        align = self._near.align_bytes
        size = -(-part_bytes(ref) // align) * align
        users = self._uses[name]
        capacity = self._near.bytes
        if capacity is not None and size > capacity:
            return self._declined(name, f"it has {size} bytes, {self._near.name} {capacity}")
        moved = replace(ref, location=Location(self._near.name))
        changed = replace(root, refinements=tuple(moved if r is ref else r for r in root.refinements))
        changed = unstaged(changed, name, self._near.name, self._hw)
        same = len(changed.statements) == len(root.statements)
        if reason := self._unable(changed, users if same else range(len(changed.statements)), name):
            return self._declined(name, reason)
        if same:
            most = 0
            for at in range(users[0], users[-1] + 1):
                inner = self._loads.nested(changed.statements[at]).get(self._near.name, 0)
                most = max(most, self._held[at] + inner + size)
        else:
            most = self._loads.most(changed).get(self._near.name, 0)
        if capacity is not None and most > capacity:
            return self._declined(
                name, f"with it {most} bytes would be alive in {self._near.name}, of {capacity}"
            )
        self.root = changed
        if same:
            for at in range(users[0], users[-1] + 1):
                self._held[at] += size
        else:
            self._count()
        self._context.remark(
            "schedule", self.root.name, True, f"'{name}' stays in {self._near.name}", bytes=size, alive=most
        )
        return None

    def _unable(self, root: Block, users: Sequence[int], name: str) -> str:
        views = views_of(root, {})
        for number in users:
            statement = root.statements[number]
            reason = self._unreached(statement, [root], name) or _refusal(statement, views, self._hw)
            if reason:
                return reason
        return ""

    def _unreached(self, statement: Statement, nest: list[Block], name: str) -> str:
        """Why a unit does not reach the memory, of those that touch the buffer `name` of the last block of
        the nest."""
        special = statement if isinstance(statement, Special) else None
        if all(used != name for used, _ in buffers_used(statement)):
            return ""
        if isinstance(statement, Block):
            inner = [*nest, statement]
            names = [r.name for r in statement.refinements if r.source == name]
            found = (self._unreached(s, inner, own) for own in names for s in statement.statements)
            return next((reason for reason in found if reason), "")
        executor = unit_of(nest, special)
        unit = None if executor is None else self._hw.unit(executor[1].unit)
        return "" if unit is None else reaches(unit, self._near.name)

    def _declined(self, name: str, reason: str) -> None:
        self._context.remark("schedule", self.root.name, False, f"'{name}' goes through far memory: {reason}")


def _refusal(statement: Statement, views: Mapping[str, View], hw: HwConfig) -> str:
    """Why a unit that works by stencils can't execute a statement any more: strides have changed."""
    if not isinstance(statement, Block):
        return ""
    if statement.location is not None and not statement.children:
        unit = hw.unit(statement.location.unit)
        if unit is not None and any(s.unit == unit.name for s in hw.stencils):
            return executes(unit, statement, hw, views)
    inner = views_of(statement, views)
    for child in statement.statements:
        if reason := _refusal(child, inner, hw):
            return reason
    return ""


# -- without copies ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Copied:
    """A copy of a part of a buffer: the element 0 of it is the element `offset` of the buffer."""

    name: str
    offset: Offset


def unstaged(block: Block, name: str, memory: str, hw: HwConfig) -> Block:
    """The block, and those in it, where copies in `memory` of parts of the buffer `name`, which lies there,
    are the buffer itself."""
    for copied in _copies(block, name, memory, hw):
        origin = tuple(-expr for expr in copied.offset)
        own = {copied.name, name}
        kept = (s for s in block.statements if not _moves(s, own, hw))
        block = replace(
            block,
            refinements=tuple(r for r in block.refinements if r.name != copied.name),
            statements=tuple(
                redirect(s, copied.name, name, origin, block.refinement(copied.name).shape)
                if any(used == copied.name for used, _ in buffers_used(s))
                else s
                for s in kept
            ),
        )

    def below(statement: Statement) -> Statement:
        if isinstance(statement, Block):
            for ref in statement.refinements:
                if ref.direction is not Direction.NEW and ref.source == name:
                    statement = unstaged(statement, ref.name, memory, hw)
        return statement

    return map_statements(block, below)


def _copies(block: Block, name: str, memory: str, hw: HwConfig) -> list[_Copied]:
    """The block's buffers in the memory that are filled from and written back to `name` alone, each
    always from the same place."""
    offsets: dict[str, set[Offset | None]] = {}
    for statement in block.statements:
        for ref in block.refinements:
            if _is_near(ref, memory) and ref.name != name and _moves(statement, {ref.name, name}, hw):
                assert isinstance(statement, Block)
                offsets.setdefault(ref.name, set()).add(_offset(statement, name, ref.name))
    found = []
    for copy, places in offsets.items():
        others = [s for s in block.statements if _transfers(s, hw) and not _moves(s, {copy, name}, hw)]
        elsewhere = any(used == copy for s in others for used, _ in buffers_used(s))
        (place, *more) = places
        if place is not None and not more and not elsewhere:
            found.append(_Copied(copy, place))
    return found


def _is_near(ref: Refinement, memory: str) -> bool:
    return ref.direction is Direction.NEW and ref.location == Location(memory)


def _transfers(statement: Statement, hw: HwConfig) -> bool:
    if not isinstance(statement, Block) or statement.location is None:
        return False
    unit = hw.unit(statement.location.unit)
    return unit is not None and unit.kind == "transfer"


def _moves(statement: Statement, buffers: set[str], hw: HwConfig) -> bool:
    """Whether a statement is a copy block between these two buffers."""
    if not _transfers(statement, hw) or not isinstance(statement, Block) or not is_copy(statement):
        return False
    return {used for used, _ in buffers_used(statement)} == buffers


def _offset(block: Block, name: str, copy: str) -> Offset | None:
    """From which element of the buffer on a copy block goes on, over the indexes of the block around it."""
    passed = {i.name: i.passed for i in block.indexes if i.passed is not None}
    far = next(r for r in block.refinements if r.source == name)
    near = next(r for r in block.refinements if r.source == copy)
    found = []
    for one, other in zip(far.access, near.access, strict=True):
        place = one - other
        if any(n not in passed for n in place.names):
            return None
        found.append(place.substitute(passed))
    return tuple(found)
