"""transfer: which unit executes what names none, and which memories a statement's buffers may lie in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.alike import kind
from stripe.analysis.bounds import leaves
from stripe.analysis.liveness import enough_text
from stripe.analysis.stencils import matches, use_fits, uses
from stripe.analysis.units import best_mover, computes, enough_units, executes, is_copy, missing, unit_of
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Direction, Load, Location, Scalar, Special, Statement, Store
from stripe.passes.base import PassContext
from stripe.passes.transfer_chosen import Past
from stripe.visit import View, views_of

Places = Mapping[str, str]  # buffers of a block -> the memories that they lie in


@dataclass(frozen=True, slots=True)
class Scope:
    """A block, the views in scope in it and where they lie, and the blocks around it, itself included."""

    nest: tuple[Block, ...]
    outer: Mapping[str, View]
    views: Mapping[str, View]
    places: Places

    @property
    def block(self) -> Block:
        return self.nest[-1]

    @property
    def path(self) -> str:
        return "/".join(block.name for block in self.nest)

    def enter(self, child: Block, default: str) -> Scope:
        """The scope of a child block, whose own buffers without a location lie in `default`."""
        places = places_in(child, self.places, default)
        return Scope((*self.nest, child), self.views, views_of(child, self.views), places)


def places_in(block: Block, outer: Places, default: str) -> dict[str, str]:
    """Where the buffers of a block lie, given those of its parent."""
    return {
        ref.name: (
            outer[ref.source]
            if ref.direction is not Direction.NEW and ref.source in outer
            else ref.location.unit if ref.location is not None else default
        )
        for ref in block.refinements
    }  # fmt: skip


def chain(hw: HwConfig, memory: str) -> list[str]:
    """The memory and those behind it, nearest first."""
    found: list[str] = []
    here = hw.memory(memory)
    while here is not None and here.name not in found:
        found.append(here.name)
        here = hw.memory(here.backing) if here.backing else None
    return found


def mover(hw: HwConfig, source: str, target: str, wanted: str = "") -> Unit | None:
    """The unit that copies from one memory to another."""
    return best_mover(u for u in hw.units if {source, target} <= set(u.reaches) and wanted in ("", u.name))


_BEYOND = "a special works on whole operands, and those that must be brought near take"
_WHOLE = "smaller operands, a unit that reaches the memory in which they lie, or a larger near memory"
_ABLE = "give a unit what is missing: in 'operations', 'types', 'specials', 'reaches' or by a stencil"


@dataclass(slots=True)
class Units:
    """Answers for one run. `near` is the memory that buffers are brought to."""

    hw: HwConfig
    near: Memory
    context: PassContext
    _rules: dict[tuple[int, str, tuple[View, ...]], tuple[Block, dict[str, frozenset[str]]]] = field(
        default_factory=dict
    )
    _allowed: dict[tuple[int, str], tuple[object, dict[str, frozenset[str]]]] = field(default_factory=dict)

    def assigned(self, scope: Scope) -> Block:
        """The block with a unit for each statement below it that has none."""
        block = scope.block
        key = self.context.key(scope.path, "unit")
        given = self.context.explicit(key, Past) or Past()
        statements: list[Statement] = []
        named: list[str] = []
        open_ = False  # whether several units could execute its specials
        for statement in block.statements:
            if isinstance(statement, Block):
                inner = self.assigned(scope.enter(statement, self.near.name))
                statements.append(inner)
            elif isinstance(statement, Special) and unit_of(scope.nest, statement) is None:
                where = f"{scope.path}, special {statement.name}"
                wanted = given.specials[len(named)] if len(named) < len(given.specials) else ""
                unit, several = self._choose(statement, scope, where, key, wanted)
                named.append(unit.name)
                open_ = open_ or several
                statements.append(replace(statement, location=Location(unit.name)))
            elif isinstance(statement, Special):
                self._check(statement, scope)
                statements.append(statement)
            else:
                statements.append(statement)
        if any(new is not old for new, old in zip(statements, block.statements, strict=True)):
            block = replace(block, statements=tuple(statements))
        if open_ or given.specials:
            self.context.chose_also(key, Past, specials=tuple(named))
        if len(given.specials) > len(named):
            reason = f"it has {len(named)} specials that need a unit, not {len(given.specials)}"
            raise self.context.refused(key, reason, "specials")
        if any(isinstance(s, Scalar | Store) for s in block.statements) and unit_of(scope.nest) is None:
            unit, several = self._choose(block, scope, scope.path, key, given.unit)
            block = replace(block, location=Location(unit.name))
            if several or given.unit:
                self.context.chose_also(key, Past, unit=unit.name)
        elif given.unit:
            reason = "it has no statements of its own that need a unit"
            raise self.context.refused(key, reason, "unit")
        return block

    def _choose(
        self, what: Block | Special, scope: Scope, where: str, key: str, given: str
    ) -> tuple[Unit, bool]:
        """The unit with the best rate among those that are able, with the fewest copies to be made, or the
        one that is given; and whether others are able, too."""
        found: list[tuple[tuple[float, ...], Unit]] = []
        reasons: list[str] = []
        outer = scope.views if isinstance(what, Special) else scope.outer
        used = _buffers(what)
        moves = isinstance(what, Block) and is_copy(what)
        for unit in self.hw.units:
            reason = executes(unit, what, self.hw, outer) or self._unreached(unit, scope, used)
            if isinstance(what, Special) and not reason:
                reason = self._oversized(unit, what, scope)
            uncut = False
            if isinstance(what, Block) and not is_copy(what) and not reason and computes(unit, what):
                reason = self._misplaced(what, unit, scope)
                uncut = not what.has_tag("stencil")  # by `stencil`, for it costs less elsewhere
            if reason:
                reasons.append(f"{unit.name}: {reason}")
                continue
            staged = sum(scope.places[name] not in unit.reaches for name in used)
            copies = unit.kind == "transfer"
            # With one end of a copy near, a unit that does not reach the other one makes two copies of it.
            twice = moves and 0 < staged < len(used)
            rank = uncut, staged if copies else 0, twice, -self._rate(unit, what), staged
            found.append((rank, unit))
        if not found:
            whole = any(_BEYOND in reason for reason in reasons)
            help = _WHOLE if whole else _ABLE
            if not self.hw.compute_units:
                help = enough_units(self.hw, self.near.name)
            raise CompileError(
                Diagnostic(
                    "P150",
                    f"transfer: no unit of '{self.hw.name}' can execute '{where}'",
                    what.span,
                    (*reasons, f"help: {help}", *self._nearest(what, scope)),
                )
            )
        if not given:
            return min(found, key=lambda entry: entry[0])[1], len(found) > 1
        able = {unit.name: unit for _, unit in found}
        if given not in able:
            reason = next((r for r in reasons if r.startswith(f"{given}: ")), "")
            reason = reason.partition(": ")[2] or f"the target has no unit '{given}'"
            field = "unit" if isinstance(what, Block) else "specials"
            raise self.context.refused(key, reason, field, *did_you_mean(given, able))
        return able[given], len(found) > 1

    def _nearest(self, what: Block | Special, scope: Scope) -> tuple[str, ...]:
        """The unit that lacks least of what it takes to execute a statement, and what that is."""
        outer = scope.views if isinstance(what, Special) else scope.outer
        found: list[tuple[int, bool, str, dict[str, list[str]]]] = []  # arrays that have no operations last
        for unit in self.hw.units:
            lacks = missing(unit, what, outer)
            room = "" if not isinstance(what, Special) else self._oversized(unit, what, scope)
            if lacks is None or room:
                continue
            if self._unreached(unit, scope, _buffers(what)):
                lacks["reaches"] = [self.near.name]
            found.append((sum(map(len, lacks.values())), not unit.operations, unit.name, lacks))
        if not found:
            return ()
        _, _, name, lacks = min(found, key=lambda entry: entry[:2])
        if not lacks:
            return ()
        added = ", and ".join(f"{', '.join(map(repr, names))} in '{key}'" for key, names in lacks.items())
        return (f"help: {name} lacks least: with {added} it can",)

    def _check(self, special: Special, scope: Scope) -> None:
        """P156: a special whose unit was named has room for its operands there."""
        unit = self._unit(scope, special)
        reason = "" if unit is None else self._oversized(unit, special, scope)
        if reason:
            message = f"transfer: '{scope.path}, special {special.name}': {reason}"
            raise CompileError(Diagnostic("P156", message, special.span, (f"help: {_WHOLE}",)))

    def _oversized(self, unit: Unit, special: Special, scope: Scope) -> str:
        """Why the operands of a special, which are brought near whole, are too large for the unit."""
        sizes: dict[str, int] = {}
        for operand in special.operands:
            view = scope.views.get(operand.buffer)
            if view is not None and scope.places[operand.buffer] not in unit.reaches:
                size = view.bytes_of(operand)
                sizes[operand.buffer] = sizes.get(operand.buffer, 0) + size
        nearer = [m for m in unit.reaches if self.near.name in chain(self.hw, m)]
        held = [self.near.name] if self.near.name in nearer else nearer  # as copies are made
        room = [m for name in held if (m := self.hw.memory(name)) is not None]
        most = max(room, key=lambda m: inf if m.bytes is None else m.bytes, default=None)
        total = sum(sizes.values())
        if most is None or most.bytes is None or total <= most.bytes:
            return ""
        shown = ", ".join(f"'{name}' {size}" for name, size in sizes.items())
        beyond = f"{total - most.bytes} more than the {most.bytes} of {most.name}"
        aligned = sum(-(-size // most.align_bytes) * most.align_bytes for size in sizes.values())
        advice = enough_text({most.name: aligned}, self.hw)
        return f"{_BEYOND} {total} bytes ({shown}), {beyond}; {advice}"

    def _unreached(self, unit: Unit, scope: Scope, used: set[str]) -> str:
        """Why a buffer can't be brought to where the unit reaches it."""
        for name in sorted(used):
            memory = scope.places[name]
            if memory in unit.reaches:
                continue
            nearer = [m for m in unit.reaches if self.near.name in chain(self.hw, m)]
            if not nearer:
                return f"it reaches {', '.join(unit.reaches) or 'no memory'}, and '{name}' lies in {memory}"
            if mover(self.hw, memory, self.near.name) is None and memory not in chain(self.hw, nearer[0]):
                return f"'{name}' lies in {memory}, from where nothing copies to {self.near.name}"
        return ""

    def _misplaced(self, block: Block, unit: Unit, scope: Scope) -> str:
        """Why an operand of a use of a stencil does not come to lie where that takes it."""
        around = replace(scope, nest=scope.nest[:-1], views=scope.outer)
        for name, memories in self._stencil_rules(block, unit, around).items():
            place, (wanted,) = scope.places[name], memories
            beside = mover(self.hw, place, wanted) is not None
            if place != wanted and not beside and self.near.name not in chain(self.hw, wanted):
                return f"the operand '{name}' lies in {place}, and nothing brings it to {wanted}"
        return ""

    def _rate(self, unit: Unit, what: Block | Special) -> float:
        """Elements per cycle, roughly: enough to put units of a target in order."""
        if unit.kind == "transfer":
            return unit.bytes_per_cycle or 1.0
        widest = 1
        if isinstance(what, Block):
            used = what.tag_values("stencil")
            if any(s.unit == unit.name and s.name in used for s in self.hw.stencils):
                return inf
            widest = max((r.dtype.bytes for r in what.refinements), default=1)
        return unit.fma_per_cycle * max(1, unit.vector_bytes // widest)

    def allowed(self, statement: Statement, scope: Scope) -> dict[str, frozenset[str]]:
        """For each buffer of the block that a statement touches, the memories that all units which touch
        it reach."""
        key = (id(statement), scope.path)
        if key not in self._allowed:
            found: dict[str, frozenset[str]] = {}
            for name, memories in self._touched(statement, scope):
                found[name] = found[name] & memories if name in found else memories
            self._allowed[key] = statement, found
        return self._allowed[key][1]

    def _touched(self, statement: Statement, scope: Scope) -> Iterator[tuple[str, frozenset[str]]]:
        if isinstance(statement, Special):
            unit = self._unit(scope, statement)
            if unit is not None:
                yield from ((o.buffer, frozenset(unit.reaches)) for o in statement.operands)
            return
        if not isinstance(statement, Block):
            return
        inner = scope.enter(statement, self.near.name)
        outer = {r.name: r.source for r in statement.refinements if r.direction is not Direction.NEW}
        for child in statement.statements:
            for name, memories in self._touched(child, inner):
                if name in outer:
                    yield outer[name], memories
        unit = self._unit(inner)
        if unit is None:
            return
        rules = {} if is_copy(statement) else self._stencil_rules(statement, unit, scope)
        for name in _buffers(statement):
            if name in outer:
                yield outer[name], rules.get(name, frozenset(unit.reaches))

    def _unit(self, scope: Scope, special: Special | None = None) -> Unit | None:
        found = unit_of(scope.nest, special)
        return None if found is None else self.hw.unit(found[1].unit)

    def _stencil_rules(self, block: Block, unit: Unit, scope: Scope) -> dict[str, frozenset[str]]:
        """Where the stencil that the block is a use of asks for its operands. Asked once for leaves that
        are alike."""
        if block.children:
            return {}
        found = kind(block)
        names = found.names.buffers
        seen = tuple(scope.views[r.source] for r in block.refinements if r.source in scope.views)
        key = id(found.block), unit.name, seen
        if key not in self._rules:
            rules = self._rules_of(block, unit, scope)
            self._rules[key] = found.block, {names[name]: memories for name, memories in rules.items()}
        rules = self._rules[key][1]
        return {name: rules[common] for name, common in names.items() if common in rules}

    def _rules_of(self, block: Block, unit: Unit, scope: Scope) -> dict[str, frozenset[str]]:
        for stencil in self.hw.stencils:
            if stencil.unit != unit.name or not stencil.memory or block.children:
                continue
            if uses(stencil, block, self.hw, scope.views):
                continue
            leaf = leaves(block, scope.views, every_level=True)[0]
            fits = use_fits(stencil, leaf, self.hw) or matches(stencil, leaf).fits
            if fits:
                buffers = fits[0].buffers
                return {
                    buffers[operand]: frozenset((memory,))
                    for operand, memory in stencil.memory.items()
                    if operand in buffers
                }
        return {}


def _buffers(what: Block | Special) -> set[str]:
    """The buffers that a block's own scalar statements, or a special, touch."""
    if isinstance(what, Special):
        return {operand.buffer for operand in what.operands}
    names = {s.buffer for s in what.statements if isinstance(s, Store)}
    return names | {s.buffer for s in what.statements if isinstance(s, Load)}
