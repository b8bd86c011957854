"""Accumulators: what several points add to one element is summed in a register, and stored once.

An accumulator is a stack variable that LLVM promotes. It is set to the neutral value in front of
the loops that its element does not depend on, and folded into memory, or at the topmost level
stored, behind them. Where its code may not have run at all, a flag (for each lane, where each
has an element of its own) remembers whether it did: elements without a write stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import gcd

from codegen_cpu.access import SCALAR, Lanes, Place
from codegen_cpu.layout import View
from codegen_cpu.ll import I1, PTR, Value, constant, constants, zero
from codegen_cpu.plan import Plan
from codegen_cpu.scalars import Scalar, memory_type, register_type
from codegen_cpu.scope import step_along
from codegen_cpu.tools import Point, Tools
from codegen_cpu.written import is_injective
from stripe.affine import Affine
from stripe.ir import Aggregation, Block, Direction, Refinement, Special, Store

_TOGETHER = 4  # results that are taken up before the first of them is stored


@dataclass(frozen=True, slots=True)
class Write:
    """How a leaf block writes through a view that aggregates."""

    how: Aggregation
    level: int | None  # the loop before which accumulators begin; None: no two points inside share an element
    step: int  # elements from one lane to the next
    apart: bool  # points that share an element differ only in indexes that it does not depend on
    once: bool  # each element is written to memory once
    fresh: bool  # at its topmost aggregating level, so that old contents play no part
    goes_on: bool  # adds to memory that nobody else sees, so that its sum may begin with what is there
    alone: bool  # no other view of the block writes to the buffer
    apart_by: int  # every step of an index other than the lane's is a multiple of so many elements

    @property
    def replaces(self) -> bool:
        """Whether a result is stored over what was there, instead of folded into it."""
        return self.once and self.fresh


def plan_writes(
    block: Block, plan: Plan, views: Mapping[str, View], fresh: frozenset[str]
) -> dict[str, Write]:
    """Each view that a leaf block aggregates into; `fresh` are those at their topmost level as `out`.

    Specials do without accumulators, and so do the blocks that hold them.
    """
    if any(isinstance(s, Special) for s in block.statements):
        return {}
    return {
        ref.name: _plan_write(block, plan, ref, views[ref.name], ref.name in fresh)
        for ref in block.refinements
        if ref.direction.writes and views[ref.name].how is not Aggregation.ASSIGN
    }


def _plan_write(block: Block, plan: Plan, ref: Refinement, view: View, fresh: bool) -> Write:
    ranges = {name: size for name, size in block.ranges.items() if size > 1}
    steps = {name: step_along(ref, view.strides, name) for name in ranges}
    used = {name: size for name, size in ranges.items() if steps[name]}
    level = max((at + 1 for at, name in enumerate(plan.loops) if name in used), default=0)
    outside, inside = plan.loops[:level], (*plan.loops[level:], *plan.unrolled)
    stores = sum(isinstance(s, Store) and s.buffer == ref.name for s in block.statements)
    shared = stores > 1 or any(name in ranges and name not in used for name in inside)
    alone = sum(r.source == ref.source and r.direction.writes for r in block.refinements) == 1
    again = any(name in ranges and name not in used for name in outside)
    apart = is_injective(Affine.of(steps), used)
    once = alone and not again and apart
    return Write(
        how=view.how,
        level=level if shared else None,
        step=steps.get(plan.lane, 0),
        apart=apart,
        once=once,
        fresh=fresh,
        goes_on=once and ref.direction is Direction.INOUT and view.buffer.spare is not None,
        alone=alone,
        apart_by=gcd(*(step for name, step in steps.items() if name != plan.lane)),
    )


@dataclass(slots=True)
class _Accumulator:
    """`slot` is the variable; `lanes` how it is stored; `written` the flag, if there is one; `whole`:
    it began with what memory held, and takes its place; `there`: it is that place itself."""

    slot: Value
    lanes: Lanes
    written: Value | None
    whole: bool = False
    there: bool = False
    suffix: str = ""


_Key = tuple[str, Place, int]  # a view, the elements that its accumulators are for, and their width


@dataclass(slots=True)
class _Level:
    mark: list[str]
    label: str
    may_not_run: bool = False
    found: dict[_Key, dict[int, _Accumulator]] = field(default_factory=dict)  # by part
    untouched: dict[str, bool] = field(default_factory=dict)  # buffers that nothing was written to before
    masks: dict[tuple[int, range], Value] = field(default_factory=dict)  # by width, and lanes that are on


class Accumulators:
    """The accumulators of one leaf block. `begin` and `finish` bracket each of its loops. `many`: they take
    most of the registers."""

    def __init__(self, tools: Tools, plan: Plan, writes: Mapping[str, Write], many: bool = False) -> None:
        self._tools = tools
        self._many = many
        self._plan = plan
        self._writes = writes
        self._levels: dict[int, list[_Level]] = {}
        self._conditional = False
        self._waiting: list[tuple[Value, Place, Lanes]] = []

    @property
    def all_across_lanes(self) -> bool:
        """Whether all that the block writes are elements that the lanes share."""
        return bool(self._writes) and all(
            w.level is not None and w.step == 0 and w.how is not Aggregation.ASSIGN
            for w in self._writes.values()
        )

    def takes(self, name: str) -> bool:
        """Whether writes through this view come here."""
        return name in self._writes

    def replaces(self, name: str) -> bool:
        """Whether what is written through this view is stored over what was there."""
        return name in self._writes and self._writes[name].replaces

    def begin(self, number: int) -> None:
        """In front of loop `number`; the number of loops stands for the innermost code."""
        if any(w.level == number for w in self._writes.values()):
            self._levels.setdefault(number, []).append(_Level(self._tools.f.mark(), self._tools.f.label))

    def finish(self, number: int) -> None:
        """Behind loop `number`."""
        if any(w.level == number for w in self._writes.values()):
            level = self._levels[number].pop()
            for (name, place, width), parts in level.found.items():
                self._store(self._writes[name], place, list(parts.values()), width)
        self._put_waiting()

    def may_not_run(self) -> None:
        """The loop that is opened next may have no iteration."""
        for levels in self._levels.values():
            for level in levels:
                level.may_not_run = True

    @contextmanager
    def conditional(self) -> Iterator[None]:
        """Code that may be skipped, or in which some lanes may be off."""
        before, self._conditional = self._conditional, True
        yield
        self._conditional = before

    def add(self, name: str, scalar: Scalar, place: Place, point: Point) -> None:
        """One write, to a view of `plan_writes`."""
        write, tools = self._writes[name], self._tools
        if write.level is None:
            if write.replaces:
                tools.put(scalar.value, place, point.lanes)
            else:
                self._fold(write, scalar, place, point.lanes, later=not self._conditional)
            return
        accumulator = self._accumulator(name, write, place, point)
        dtype = place.buffer.dtype
        width = self._width(write, point)
        value = Scalar(scalar.value, dtype)
        if width and place.step == 0:
            value = Scalar(self._widened(write.how, value, point.lanes, width), dtype)
        type_ = register_type(dtype, width)
        old = Scalar(tools.f.load(type_, accumulator.slot, 1, accumulator.suffix), dtype)
        pair = (old, value)
        if self._many and write.how in (Aggregation.MAX, Aggregation.MIN):
            # An extreme takes the register of its second operand: here that of the accumulator, so that none
            # has to move. Few had better take the other: what waits for them is one instruction, not two.
            pair = (value, old)
        new = tools.arithmetic.combine(write.how, *pair, rounded=False).value
        self._keep(write, accumulator, place, point, old.value, new)

    def step(self, name: str, place: Place, point: Point, onto: Callable[[Value], Value]) -> None:
        """One write by an instruction that adds to what a register holds: `onto` gives the new value from
        the old. Of lanes that share an element, those that are off have to add nothing in it."""
        write, tools = self._writes[name], self._tools
        dtype = place.buffer.dtype
        if write.level is None:
            start = tools.arithmetic.neutral(write.how, dtype, point.lanes.width)
            self.add(name, Scalar(onto(start), dtype), place, point)
            return
        accumulator = self._accumulator(name, write, place, point)
        type_ = register_type(dtype, self._width(write, point))
        old = tools.f.load(type_, accumulator.slot, 1, accumulator.suffix)
        self._keep(write, accumulator, place, point, old, onto(old))

    def _keep(
        self, write: Write, accumulator: _Accumulator, place: Place, point: Point, old: Value, new: Value
    ) -> None:
        """Put the new value of an accumulator in the place of the old one, but for lanes that are off."""
        # Lanes that are always off may add up what they like: nobody looks at them. But where it began with
        # what memory held, and goes back there whole, they keep that.
        always = point.steady and write.apart  # for all that comes to this accumulator
        kept = new.type.lanes and place.step and not (always and not accumulator.whole)
        if kept and point.lanes.mask is not None:
            assert write.level is not None
            mask = self._keeping(point.lanes, self._levels[write.level][-1])
            new = self._tools.f.select(mask, new, old)
        self._tools.f.store(new, accumulator.slot, 1, accumulator.suffix)
        self._remember(accumulator, point.lanes)

    def _keeping(self, lanes: Lanes, level: _Level) -> Value:
        """The mask of lanes under which an accumulator keeps what it holds in the others. Of a constant, LLVM
        would make moves of these behind each instruction that could keep them itself."""
        f, on = self._tools.f, lanes.on
        assert lanes.mask is not None
        if on is None or not self._tools.arithmetic.machine.masks:
            return lanes.mask
        if (lanes.width, on) not in level.masks:
            with f.at(level.mark):
                mask = constants(I1, [lane in on for lane in range(lanes.width)])
                level.masks[lanes.width, on] = f.opaque_word(mask)
        return level.masks[lanes.width, on]

    # -- one accumulator -----------------------------------------------------------------

    def _width(self, write: Write, point: Point) -> int:
        """Lanes with elements of their own need one each; those that share one, all there may be."""
        return point.lanes.width if write.step else self._plan.width

    def _accumulator(self, name: str, write: Write, place: Place, point: Point) -> _Accumulator:
        assert write.level is not None
        level = self._levels[write.level][-1]
        width = self._width(write, point)
        parts = level.found.setdefault((name, place, width), {})
        if point.part in parts:
            return parts[point.part]
        f, how, dtype = self._tools.f, write.how, place.buffer.dtype
        if self._is_there(write, place, point, width, level):
            parts[point.part] = self._there(write, place, point, level)
            return parts[point.part]
        slot = f.alloca(register_type(dtype, width), f"{name}.sum")
        lanes = Lanes(point.lanes.index, width) if width else SCALAR
        unmasked = point.lanes.mask is None or self._owns_all(write, place, lanes)
        if write.goes_on and unmasked and bool(place.step) == bool(width):
            with f.at(level.mark):
                f.store(self._tools.load(place, lanes, dtype).value, slot, 1)
            parts[point.part] = _Accumulator(slot, lanes, None, whole=True)
            return parts[point.part]
        level.mark.append(
            f"  store {self._tools.arithmetic.neutral(how, dtype, width)}, {PTR} {slot.text}, align 1"
        )
        lanes, written = SCALAR, None
        if place.step and width:
            lanes = Lanes(point.lanes.index, width)
        if level.may_not_run or self._conditional or point.lanes.mask is not None:
            flag = I1.times(lanes.width)
            written = f.alloca(flag, f"{name}.written")
            level.mark.append(f"  store {zero(flag)}, {PTR} {written.text}, align 1")
        parts[point.part] = _Accumulator(slot, lanes, written)
        return parts[point.part]

    def _owns_all(self, write: Write, place: Place, lanes: Lanes) -> bool:
        """Whether lanes that are off, too, lie where nobody else looks, and no other accumulator does."""
        starts = write.apart_by % lanes.width == 0 and place.offset.const % lanes.width == 0
        return starts and not place.offset.terms and self._tools.accesses.is_spare(place, lanes)

    def _is_there(self, write: Write, place: Place, point: Point, width: int, level: _Level) -> bool:
        """Whether sums may gather where they will be stored: in a buffer that LLVM keeps in registers, at a
        known place of it, whole. It begins with the neutral value, so that where nothing may be added,
        nothing may have been written before either."""
        buffer, dtype = place.buffer, place.buffer.dtype
        if buffer.birth is None or not buffer.birth.is_even or place.offset.terms:
            return False
        if not (write.replaces or write.goes_on):
            return False
        if buffer.pointer.text not in level.untouched:
            fresh = buffer.birth.label == level.label and not buffer.birth.is_written
            level.untouched[buffer.pointer.text] = fresh
        surely = not (level.may_not_run or self._conditional) or level.untouched[buffer.pointer.text]
        return (
            (surely or write.goes_on)
            and (point.lanes.mask is None and point.part == 0)
            and (place.step == 1 if width else place.step == 0)
            and register_type(dtype, width) == memory_type(dtype, width)
        )

    def _there(self, write: Write, place: Place, point: Point, level: _Level) -> _Accumulator:
        """An accumulator that is the place of its result."""
        tools, birth, width = self._tools, place.buffer.birth, self._width(write, point)
        assert birth is not None
        birth.is_written = True
        lanes = Lanes(point.lanes.index, width) if width else SCALAR
        if write.replaces:
            start = tools.arithmetic.neutral(write.how, place.buffer.dtype, width)
            with tools.f.at(level.mark):
                slot = tools.accesses.begin(start, place)
            if birth.label == level.label:
                birth.parts.add((place.offset.const, start.type))  # it holds a value from its birth on
        else:
            slot = tools.accesses.pointer(place.buffer, place.offset)
        return _Accumulator(slot, lanes, None, there=True, suffix=place.buffer.suffix)

    def _widened(self, how: Aggregation, scalar: Scalar, lanes: Lanes, width: int) -> Value:
        """A value for all lanes of an accumulator from one with fewer, the others neutral."""
        f = self._tools.f
        neutral = self._tools.arithmetic.neutral(how, scalar.dtype, width)
        if lanes.width == 0:
            return f.insert(neutral, scalar.value, 0)
        value = self._tools.masked(how, scalar, lanes)
        if lanes.width == width:
            return value
        rest = self._tools.arithmetic.neutral(how, scalar.dtype, lanes.width)
        chosen = [min(lane, lanes.width) for lane in range(width)]
        return f.shuffle(value, rest, chosen)

    def _remember(self, accumulator: _Accumulator, lanes: Lanes) -> None:
        if accumulator.written is None:
            return
        f, width = self._tools.f, accumulator.lanes.width
        now = constant(I1.times(width), True)
        if width and lanes.mask is not None:
            now = f.binary("or", f.load(now.type, accumulator.written, 1), lanes.mask)
        f.store(now, accumulator.written, 1)

    # -- behind the loops ----------------------------------------------------------------

    def _store(self, write: Write, place: Place, parts: list[_Accumulator], width: int) -> None:
        """Fold the parts together, and into the element, or each lane into its own."""
        tools, f, first = self._tools, self._tools.f, parts[0]
        if first.there:
            return
        lanes, end = first.lanes, None
        flags = [p.written for p in parts if p.written is not None]
        if len(flags) == len(parts):
            flag = f.load(I1.times(lanes.width), flags[0], 1)
            for other in flags[1:]:
                flag = f.binary("or", flag, f.load(flag.type, other, 1))
            if lanes.width:
                lanes = replace(lanes, mask=flag)
            else:
                end = tools.indexing.guarded(flag)
        dtype = place.buffer.dtype
        type_ = register_type(dtype, width)
        total = Scalar(f.load(type_, first.slot, 1), dtype)
        for part in parts[1:]:
            more = Scalar(f.load(type_, part.slot, 1), dtype)
            total = tools.arithmetic.combine(write.how, total, more, rounded=False)
        if not place.step:
            total = tools.arithmetic.across(write.how, total)
        if write.replaces or first.whole:
            tools.put(total.value, place, lanes)
        else:
            self._fold(write, total, place, lanes, later=end is None)
        if end is not None:
            f.branch(end)
            f.start(end)

    def _fold(self, write: Write, scalar: Scalar, place: Place, lanes: Lanes, later: bool) -> None:
        """Fold a result into memory; if `later`, it is stored once others are taken up.

        Loads that come in turn with stores may have to wait: cores take those for one place that agree in
        the last bits of their addresses.
        """
        made = self._tools.folded(write.how, scalar, place, lanes)
        if not (later and write.alone and write.apart and self._plan.across is None):
            self._tools.put(*made)
            return
        self._waiting.append(made)
        if len(self._waiting) == _TOGETHER:
            self._put_waiting()

    def _put_waiting(self) -> None:
        for made in self._waiting:
            self._tools.put(*made)
        self._waiting.clear()
