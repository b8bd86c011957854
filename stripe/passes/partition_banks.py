"""Buffers to banks, so that units that work at the same time do not meet in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from math import prod

from hwconfigs.model import Memory
from stripe.affine import Affine
from stripe.analysis.liveness import part_bytes
from stripe.analysis.units_banks import meetings
from stripe.diag import CompileError, did_you_mean
from stripe.ir import SLOT, Block, Direction, Location, Refinement
from stripe.passes.base import PassContext
from stripe.visit import buffers_used, map_children

MOST = 1 << 12  # units whose banks are looked at


BankOf = Callable[[str], "Mapping[str, int | str] | None"]


def banked(root: Block, memory: Memory, context: PassContext, given: BankOf) -> Block:
    """The tree with a bank for each new buffer of `memory` that has neither bank nor address. `given`: the
    banks of some of a block's buffers, by its path.

    All of them or none: what has no bank may lie across several.
    """
    if memory.count > 1:
        context.remark(root.name, False, f"{memory.name} has {memory.count} instances: each unit has its own")
        return root
    empty = dict.fromkeys(range(memory.banks), 0)
    run = _Banks(memory, context, given)
    made = run.visit(root, (), empty)
    if run.refused:
        run = _Banks(memory, context, given, dense=True)
        made = run.visit(root, (), empty)
    for where, reason in run.refused.items():
        context.remark(where, False, f"no buffer gets a bank: {reason}")
    if run.refused:
        return root
    for where, said in run.said.items():
        context.remark(where, True, said)
    met = meetings(made, memory, context.hw)
    for meeting in met:
        context.remark(meeting.path, False, f"{meeting} of {memory.name}")
    if run.said and not met:
        message = f"units that work at the same time meet in no bank of {memory.name}"
        context.remark(root.name, True, message)
    return made


class _Banks:
    """One run over a tree: what is to be said of each buffer, and which could not be served.

    `dense`: buffers are spread only along dimensions that leave no gaps between the elements of a part."""

    def __init__(self, memory: Memory, context: PassContext, given: BankOf, dense: bool = False) -> None:
        assert memory.bytes is not None  # checked with the config: a memory of banks has a size
        self._memory = memory
        self._context = context
        self._given = given
        self._dense = dense
        self._seen: Counter[str] = Counter()
        self._bank_bytes = memory.bytes // memory.banks
        self.said: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def visit(self, block: Block, path: tuple[str, ...], load: Mapping[int, int]) -> Block:
        """`load` is what lies in each bank while the block runs, in bytes."""
        here = (*path, block.name)
        after = dict(load)
        chosen: dict[str, Location] = {}
        uses = _uses(block)
        lacking = sorted(filter(self._lacks_bank, block.refinements), key=lambda r: -part_bytes(r))
        key = self._key("/".join(here))
        given = self._given(key) or {}
        self._check_names(key, given, lacking)
        for ref in sorted(lacking, key=lambda r: r.name not in given):
            where = f"{'/'.join(here)}, buffer '{ref.name}'"
            location: Location | None
            if ref.name in given:
                location, said = self._at(block, ref, given[ref.name], key, after)
            else:
                location, said = self._location(block, ref, uses, chosen, after)
            if location is None:
                self.refused[where] = said
            else:
                self.said[where] = said
                chosen[ref.name] = location
        if chosen:
            refs = tuple(
                replace(r, location=chosen[r.name]) if r.name in chosen else r for r in block.refinements
            )
            block = replace(block, refinements=refs)
        return map_children(block, lambda child: self.visit(child, here, after))

    def _key(self, path: str) -> str:
        """What a block is called among choices, as `PassContext.key` does; a tree may be visited twice."""
        self._seen[path] += 1
        return path if self._seen[path] == 1 else f"{path}#{self._seen[path]}"

    def _lacks_bank(self, ref: Refinement) -> bool:
        lies = ref.location
        return ref.direction is Direction.NEW and lies == Location(self._memory.name)

    def _location(
        self,
        block: Block,
        ref: Refinement,
        uses: Mapping[str, tuple[int, int]],
        chosen: Mapping[str, Location],
        load: dict[int, int],
    ) -> tuple[Location | None, str]:
        """Where the buffer should lie, and what to say of it; books what it takes."""
        size = self._taken(ref)
        banks, slots = self._memory.banks, block.inflight
        dimension, together = self._parts(block, ref)
        spread = Location(self._memory.name, spread=dimension)
        # A part keeps the strides of the whole: along an inner dimension it spans much more than it holds.
        part = self._taken(replace(ref, location=spread)) * slots
        fits = all(load[bank] + part <= self._bank_bytes for bank in load)
        if dimension is not None and fits and (part * banks <= 2 * size * slots or not self._dense):
            for bank in load:
                load[bank] += part
            said = "each unit works in banks of its own"
            if together > 1:
                said = f"at most {together} units work in one"
            return spread, f"spread over {banks} banks along dimension {dimension}: {said}"
        runs = [range(first, first + slots) for first in range(banks - slots + 1)]
        free = [run for run in runs if all(load[bank] + size <= self._bank_bytes for bank in run)]
        if not free:
            left = self._bank_bytes - min(load.values())
            where = "one bank" if slots == 1 else f"each of {slots} banks"
            return None, f"it takes {size} bytes in {where}; the emptiest has {left} left"
        met = {run: self._met(run, ref.name, uses, chosen, slots) for run in free}
        best = min(free, key=lambda run: (met[run], max(load[bank] for bank in run), run.start))
        for bank in best:
            load[bank] += size
        where = (
            f"bank {best.start}"
            if slots == 1
            else f"banks {best.start} to {best.stop - 1}, one for each point in flight"
        )
        others = f", with {met[best]} others that are in use at the same time" if met[best] else ""
        return Location(
            self._memory.name, Affine(best.start) + (Affine.index(SLOT) if slots > 1 else 0)
        ), f"lies in {where}{others}"

    def _check_names(self, key: str, given: Mapping[str, int | str], lacking: list[Refinement]) -> None:
        names = [ref.name for ref in lacking]
        for name in given:
            if name not in names:
                reason = f"no buffer '{name}' of {self._memory.name} is without a bank"
                raise self._context.refused(key, reason, "banks", *did_you_mean(name, names))

    def _at(
        self, block: Block, ref: Refinement, bank: int | str, key: str, load: dict[int, int]
    ) -> tuple[Location, str]:
        """The place that is given for a buffer; books what it takes. Raises CompileError P009."""
        banks, slots, field = self._memory.banks, block.inflight, f"banks.{ref.name}"

        def refused(reason: str) -> CompileError:
            return self._context.refused(key, reason, field)

        if isinstance(bank, str):
            word, _, number = bank.partition(" ")
            if word != "spread" or not number.isdigit() or int(number) >= len(ref.shape):
                raise refused(
                    f"expected a bank, or 'spread D' with a dimension of '{ref.name}', found '{bank}'"
                )
            extent = ref.shape[int(number)]
            if extent % banks:
                raise refused(
                    f"{extent} elements do not divide into {banks} banks: {extent % banks} are left"
                )
            location = Location(self._memory.name, spread=int(number))
            taken, run = self._taken(replace(ref, location=location)) * slots, range(banks)
            said = f"spread over {banks} banks along dimension {number}"
        else:
            taken, run = self._taken(ref), range(bank, bank + slots)
            if bank < 0 or run.stop > banks:
                points = f", for the last of {slots} points in flight" if slots > 1 else ""
                raise refused(f"there are {banks} banks, from 0 on; it takes bank {run.stop - 1}{points}")
            location = Location(self._memory.name, Affine(bank) + (Affine.index(SLOT) if slots > 1 else 0))
            said = f"lies in bank {bank}" + (
                " and those behind it, one for each point in flight" * (slots > 1)
            )
        for each in run:
            load[each] += taken
            if load[each] > self._bank_bytes:
                over = load[each] - self._bank_bytes
                raise refused(f"bank {each} has {self._bank_bytes} bytes, and would hold {over} too many")
        return location, said

    def _taken(self, ref: Refinement) -> int:
        """The bytes that a buffer, or a part of a spread one, takes in a bank."""
        align = self._memory.align_bytes
        return -(-part_bytes(ref, self._memory.banks) // align) * align

    def _met(
        self,
        run: range,
        name: str,
        uses: Mapping[str, tuple[int, int]],
        chosen: Mapping[str, Location],
        slots: int,
    ) -> int:
        """How many buffers of the block lie in one of the banks and are in use at the same time."""
        count = 0
        for other, location in chosen.items():
            if location.bank is None or other not in uses or name not in uses:
                continue
            banks = range(location.bank.const, location.bank.const + slots)
            at_once = slots > 1 or _meet(uses[name], uses[other])  # points in flight are at all statements
            count += at_once and bool(set(banks) & set(run))
        return count

    def _parts(self, block: Block, ref: Refinement) -> tuple[int | None, int]:
        """The dimension along which the fewest units touch parts in the same bank, and how many do; none
        where as many meet as in a buffer that is not spread."""
        users = [
            (child, view)
            for child in block.children
            for view in child.refinements
            if view.direction is not Direction.NEW and view.source == ref.name
        ]
        if not users or any(child.location is None or child.location.bank is None for child, _ in users):
            return None, 0
        banks, found = self._memory.banks, dict[int, int]()
        for dimension, extent in enumerate(ref.shape):
            if extent % banks == 0:
                found[dimension] = max(_together(*user, dimension, extent // banks) for user in users)
        best = min(found, key=lambda dimension: found[dimension], default=None)
        whole = max(_together(*user, 0, ref.shape[0]) for user in users) if ref.shape else 0
        return (best, found[best]) if best is not None and found[best] < whole else (None, 0)


def _together(child: Block, view: Refinement, dimension: int, part: int) -> int:
    """How many units at most touch a bank that holds a part of a dimension."""
    assert child.location is not None
    assert child.location.bank is not None
    number, access = child.location.bank, view.access[dimension]
    ranges = {name: size for name, size in child.ranges.items() if name in number.names}
    inside = access.only({name for name in access.names if name not in ranges})
    bounds = {name: (0, child.ranges.get(name, 1) - 1) for name in inside.names}
    low, high = inside.bounds(bounds)
    if (
        any(name not in child.ranges for name in (*number.names, *inside.names))
        or prod(ranges.values()) > MOST
    ):
        return MOST
    units: dict[int, set[int]] = {}
    for values in product(*map(range, ranges.values())):
        point = dict(zip(ranges, values, strict=True))
        unit = number.evaluate({**dict.fromkeys(number.names, 0), **point})
        first = (access - inside).evaluate({**dict.fromkeys(access.names, 0), **point})
        for bank in range((first + low) // part, (first + high + view.shape[dimension] - 1) // part + 1):
            units.setdefault(bank, set()).add(unit)
    return max(map(len, units.values()), default=0)


def _uses(block: Block) -> dict[str, tuple[int, int]]:
    """The first and the last statement that use each buffer."""
    found: dict[str, tuple[int, int]] = {}
    for number, statement in enumerate(block.statements):
        for name, _ in buffers_used(statement):
            first, _last = found.get(name, (number, number))
            found[name] = (first, number)
    return found


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
