"""schedule: buffers of the root that stay in near memory from their producer to their last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.liveness import part_bytes
from stripe.analysis.units import executes, is_copy, reaches, unit_of
from stripe.diag import did_you_mean
from stripe.ir import Block, Direction, Location, Refinement, Special, Statement
from stripe.passes.base import PassContext
from stripe.passes.schedule_order import Loads
from stripe.rewrite_copies import redirect
from stripe.visit import View, buffers_used, map_statements, views_of

Offset = tuple[Affine, ...]


def kept_near(
    root: Block, near: Memory, hw: HwConfig, context: PassContext, given: Sequence[str] | None = None
) -> tuple[Block, tuple[str, ...]]:
    """The root with those of its buffers in `near` that fit there as long as they are alive, and these;
    statements that worked on copies of their parts work on them in place. `given`: the names of these.
    """
    home = hw.home
    if near.count > 1:  # each unit sees an instance of its own: the next memory is what they share
        shared = hw.memory(near.backing or "")
        if shared is None or shared.count > 1 or shared is home:
            return root, ()
        near = shared
    run = _Near(root, near, hw, context)
    far = [
        r
        for r in root.refinements
        if r.direction is Direction.NEW
        and r.location is not None
        and home is not None
        and r.location == Location(home.name)
        and r.name in run.uses
    ]
    if given is None and not context.searches:
        if far:
            context.undecided(root.name)
        return root, ()
    # What is used soon again holds room for a short time: it goes first.
    far.sort(key=lambda r: (run.uses[r.name][-1] - run.uses[r.name][0], run.uses[r.name]))
    names = [ref.name for ref in far]
    for name in names if given is None else given:
        reason = run.keep(name) if name in names else f"'{name}' is no buffer of the root in far memory"
        if reason and given is not None:
            notes = did_you_mean(name, names) if name not in names else ()
            raise context.refused(root.name, f"'{name}' can't stay near: {reason}", "near", *notes)
    return run.result(), tuple(run.kept)


class _Near:
    """The root as it changes: a statement that went is None, so that the others keep their numbers."""

    def __init__(self, root: Block, near: Memory, hw: HwConfig, context: PassContext) -> None:
        self._root = root
        self._near = near
        self._hw = hw
        self._context = context
        self._loads = Loads(hw)
        self._views = views_of(root, {})
        self._refs = {r.name: r for r in root.refinements}
        self._statements: list[Statement | None] = list(root.statements)
        # What of the near memory the root's own buffers take at each statement.
        self._held = [alive.get(near.name, 0) for alive in self._loads.own_alive(root)]
        self.kept: list[str] = []
        self.uses: dict[str, list[int]] = {}
        for number, statement in enumerate(root.statements):
            for name in dict.fromkeys(name for name, _ in buffers_used(statement)):
                self.uses.setdefault(name, []).append(number)

    def result(self) -> Block:
        kept = tuple(s for s in self._statements if s is not None)
        refinements = tuple(self._refs.values())
        if len(kept) == len(self._root.statements) and refinements == self._root.refinements:
            return self._root
        return replace(self._root, refinements=refinements, statements=kept)

    def keep(self, name: str) -> str:
        """Move one buffer, if it fits and its users can work on it in place; else the reason."""
        size, capacity = self._size(name), self._near.bytes
        if capacity is not None and size > capacity:
            return self._declined(name, f"it has {size} bytes, {self._near.name} {capacity}")
        copies = _copies(self._refs, self._users_of, name, self._near.name, self._hw)
        changed = self._without(name, copies)
        if reason := self._unable(changed, name):
            return self._declined(name, reason)
        users = sorted({at for own in (name, *(c.name for c in copies)) for at in self.uses[own]})
        users = [at for at in users if changed.get(at, self._statements[at]) is not None]
        window = range(users[0], users[-1] + 1)
        held = {at: self._held[at] + size for at in window}
        for copied in copies:
            for at in range(self.uses[copied.name][0], self.uses[copied.name][-1] + 1):
                held[at] = held.get(at, self._held[at]) - self._size(copied.name)
        most = max(held[at] + self._nested(changed.get(at, self._statements[at])) for at in window)
        if capacity is not None and most > capacity:
            return self._declined(
                name, f"with it {most} bytes would be alive in {self._near.name}, of {capacity}"
            )
        for at, statement in changed.items():
            self._statements[at] = statement
        for at, amount in held.items():
            self._held[at] = amount
        for copied in copies:
            del self._refs[copied.name], self.uses[copied.name]
        self.uses[name] = users
        self._refs[name] = replace(self._refs[name], location=Location(self._near.name))
        message = f"'{name}' stays in {self._near.name}"
        self._context.remark(self._root.name, True, message, bytes=size, alive=most)
        self.kept.append(name)
        return ""

    def _users_of(self, name: str) -> list[Statement]:
        return [s for at in self.uses[name] if (s := self._statements[at]) is not None]

    def _size(self, name: str) -> int:
        align = self._near.align_bytes
        return -(-part_bytes(self._refs[name]) // align) * align

    def _nested(self, statement: Statement | None) -> int:
        return 0 if statement is None else self._loads.nested(statement).get(self._near.name, 0)

    def _without(self, name: str, copies: Sequence[_Copied]) -> dict[int, Statement | None]:
        """The statements that change, by number, where the copies are the buffer itself; None: it goes."""
        changed: dict[int, Statement | None] = {at: self._statements[at] for at in self.uses[name]}
        for copied in copies:
            for at in self.uses[copied.name]:
                statement = changed.get(at, self._statements[at])
                if statement is None or _moves(statement, {copied.name, name}, self._hw):
                    changed[at] = None
                else:
                    changed[at] = copied.led_back(statement, name, self._refs[copied.name].shape)
        return {
            at: None if s is None else _inside(s, name, self._near.name, self._hw)
            for at, s in changed.items()
        }

    def _unable(self, changed: Mapping[int, Statement | None], name: str) -> str:
        for statement in changed.values():
            if statement is None:
                continue
            reason = self._unreached(statement, [self._root], name)
            reason = reason or _refusal(statement, self._views, self._hw)
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

    def _declined(self, name: str, reason: str) -> str:
        self._context.remark(self._root.name, False, f"'{name}' goes through far memory: {reason}")
        return reason


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

    def led_back(self, statement: Statement, buffer: str, shape: tuple[int, ...]) -> Statement:
        """A statement that works on the buffer instead of this copy of the shape."""
        return redirect(statement, self.name, buffer, tuple(-expr for expr in self.offset), shape)


def _inside(statement: Statement, name: str, memory: str, hw: HwConfig) -> Statement:
    """The statement without copies, in `memory`, of parts of the buffer `name` of the block around it."""
    if isinstance(statement, Block):
        for ref in statement.refinements:
            if ref.direction is not Direction.NEW and ref.source == name:
                statement = _unstaged(statement, ref.name, memory, hw)
    return statement


def _unstaged(block: Block, name: str, memory: str, hw: HwConfig) -> Block:
    """The block, and those in it, where copies in `memory` of parts of the buffer `name`, which lies there,
    are the buffer itself."""
    refs = {r.name: r for r in block.refinements}

    def users_of(buffer: str) -> list[Statement]:
        return [s for s in block.statements if any(used == buffer for used, _ in buffers_used(s))]

    for copied in _copies(refs, users_of, name, memory, hw):
        kept = [s for s in block.statements if not _moves(s, {copied.name, name}, hw)]
        users = {id(s) for s in users_of(copied.name)}
        shape = refs[copied.name].shape
        block = replace(
            block,
            refinements=tuple(r for r in block.refinements if r.name != copied.name),
            statements=tuple(copied.led_back(s, name, shape) if id(s) in users else s for s in kept),
        )
    return map_statements(block, lambda statement: _inside(statement, name, memory, hw))


def _copies(
    refs: Mapping[str, Refinement],
    users_of: Callable[[str], list[Statement]],
    name: str,
    memory: str,
    hw: HwConfig,
) -> list[_Copied]:
    """The block's buffers in the memory that are filled from and written back to `name` alone, each
    always from the same place."""
    offsets: dict[str, set[Offset | None]] = {}
    for statement in users_of(name):
        used = {buffer for buffer, _ in buffers_used(statement)}
        others = [buffer for buffer in used if buffer != name]
        if len(others) == 1 and _is_near(refs[others[0]], memory) and _moves(statement, used, hw):
            assert isinstance(statement, Block)
            offsets.setdefault(others[0], set()).add(_offset(statement, name, others[0]))
    found = []
    for copy, places in offsets.items():
        elsewhere = any(_transfers(s, hw) and not _moves(s, {copy, name}, hw) for s in users_of(copy))
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
    """From which element of the buffer on a copy block goes on, over the indexes of the block around it; None
    where it is not one element, or the copy has another number of dimensions."""
    passed = {i.name: i.passed for i in block.indexes if i.passed is not None}
    far = next(r for r in block.refinements if r.source == name)
    near = next(r for r in block.refinements if r.source == copy)
    if len(far.access) != len(near.access):
        return None
    found = []
    for one, other in zip(far.access, near.access, strict=True):
        place = one - other
        if any(n not in passed for n in place.names):
            return None
        found.append(place.substitute(passed))
    return tuple(found)
