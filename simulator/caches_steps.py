"""What a block of scalar statements asks of memory, a step at a time: which instructions, in which order.

The points of a block fall into *steps*: the values of unrolled indexes (`#unroll`), of a group
(`#group`) and of as many lanes as fill a vector (`#vector`; of `#across` too) are one step. Steps follow
the order of the indexes; lanes of squares come last. In a step each operand of the statements has its
turn, in their order, and asks once for what several points of the step share:

    along the lanes, elements side by side are one instruction; so are they across, if they lie apart along
    the lanes; a group is one word; what does not move with the lanes is one word for all of them; of
    everything else each word is an instruction
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from simulator.caches_recent import Ints
from stripe.affine import Affine
from stripe.analysis.lanes import vector_width
from stripe.ir import Block, Load, Statement, Store
from stripe.locks import cached_property
from stripe.visit import View


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer that statements load from or store to. `place` is the element of the buffer of the block
    around that a point touches, or of the block's own if it has no points of its own here; `apart` the
    same in bytes. `vector` is the index along which elements of one instruction lie; `start` is `place`
    at the first of them."""

    buffer: str
    stores: bool
    adds: bool
    element_bytes: int
    place: tuple[Affine, ...]
    apart: Affine
    vector: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """What an access asks for in a step where all points are there: instructions from `starts` on, of
    `sizes` bytes with `words` elements. For steps where some are not: the points in `order` are those of
    one element after the other, which begin at `elements` and lie at `offsets`; instructions begin at
    `instructions` among the elements."""

    starts: Ints
    sizes: Ints
    words: Ints
    order: Ints
    elements: Ints
    offsets: Ints
    instructions: Ints


@dataclass(frozen=True, slots=True)
class Axis:
    """Values of an index: `scale` times 0, 1, ... `count - 1`."""

    name: str
    count: int
    scale: int = 1


@dataclass(frozen=True)
class Steps:
    """The steps of a block's execution. `over` are the axes of the steps, `within` those of the points
    of one. `width` is the number of lanes along `lane` and along `across`."""

    block: Block
    accesses: tuple[Access, ...]
    constraints: tuple[Affine, ...]
    over: tuple[Axis, ...]
    within: tuple[Axis, ...]
    lane: str = ""
    across: str = ""
    group: str = ""
    width: int = 1
    ragged: bool = False  # some steps have lanes beyond the range of an index
    _patterns: dict[int, Pattern] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def count(self) -> int:
        return prod(axis.count for axis in self.over)

    @cached_property
    def points(self) -> int:
        """Points of a whole step."""
        return prod(axis.count for axis in self.within)

    @cached_property
    def _over(self) -> dict[str, Ints]:
        return _values(self.over)

    @cached_property
    def _within(self) -> dict[str, Ints]:
        return _values(self.within)

    def over_steps(self, expr: Affine) -> Ints:
        """What the steps add to an expression: a number for each."""
        return _sum(expr, self._over, self.count)

    def over_points(self, expr: Affine) -> Ints:
        """What the points of a step add to it."""
        return _sum(expr, self._within, self.points)

    @cached_property
    def present(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Which points of which step have lanes within the ranges of their indexes."""
        live = np.ones((self.count, self.points), bool)
        for name in (self.lane, self.across):
            if name:
                index = Affine.index(name)
                live &= self.over_steps(index)[:, None] + self.over_points(index) < self.block.ranges[name]
        return live

    @cached_property
    def vectors(self) -> tuple[Ints, Ints]:
        """The points of a step, vector by vector, and where each vector begins among them."""
        number = np.zeros(self.points, np.int64)
        for axis in self.within:
            if axis.name != self.group:
                values = self._within[axis.name]
                if axis.name == self.lane:
                    values = values // self.width
                number = number * (axis.count + 1) + values
        order = np.argsort(number, kind="stable")
        return order, _begins(number[order])

    def pattern(self, at: int) -> Pattern:
        """Of the access with this number."""
        if at not in self._patterns:
            self._patterns[at] = self._pattern(self.accesses[at])
        return self._patterns[at]

    def _pattern(self, access: Access) -> Pattern:
        offsets = self.over_points(access.apart)
        inside = dict[str, Ints]()  # how far on in its instruction each point is
        if access.vector:
            inside[access.vector] = self._within[access.vector] % self.width
        if moves_in_words(access, self.group):
            inside[self.group] = self._within[self.group]
        # The element at which an instruction begins, not its address: a lane that is not there may lie
        # outside of the buffer, at the address of another element.
        moving = [expr for expr in access.place if any(axis.name in expr.names for axis in self.within)]
        firsts = [self.over_points(expr) - _sum(expr, inside, self.points) for expr in moving]
        rows = np.stack(firsts or [np.zeros(self.points, np.int64)], 1)
        _, seen, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        instruction = np.argsort(np.argsort(seen))[inverse.reshape(-1)]
        order = np.lexsort((offsets, instruction))
        pairs = np.stack([instruction[order], offsets[order]], 1)
        elements = np.flatnonzero(np.concatenate([[True], (pairs[1:] != pairs[:-1]).any(1)]))
        numbers, places = pairs[elements, 0], pairs[elements, 1]
        instructions = _begins(numbers)
        starts = places[instructions]
        ends = places[np.append(instructions[1:], len(places)) - 1] + access.element_bytes
        words = np.diff(np.append(instructions, len(places)))
        return Pattern(starts, ends - starts, words, order, elements, places, instructions)


def moves_in_words(access: Access, group: str) -> bool:
    """Whether the elements of a group are one word."""
    return bool(group) and abs(access.apart.coefficient(group)) == access.element_bytes


def steps_of(
    block: Block, run: Sequence[Statement], views: Mapping[str, View], vector_bytes: int, own: bool
) -> Steps:
    """The steps of scalar statements of a block. `own`: they are all that the block has, and its points are
    theirs; else they are asked about at one point of it. `views` are those of the block itself."""
    if not own:
        return Steps(block, tuple(_accesses(block, run, views, False, "", "", "")), (), (), ())
    ranges = block.ranges
    lane, across, group = (_tagged(block, name) for name in ("vector", "across", "group"))
    across = across if lane else ""
    width = vector_width(block, vector_bytes) if lane else 1
    unrolled = {name for name in block.tag_values("unroll") if name in ranges}
    lanes = tuple(dict.fromkeys(name for name in (across, lane) if name))
    over, late, within = list[Axis](), list[Axis](), list[Axis]()
    for name, size in ranges.items():
        if name in lanes and name not in unrolled:
            (late if across else over).append(Axis(name, -(-size // width), width))
        elif name in unrolled:
            within += [Axis(name, size)] if name not in lanes else []
        elif name != group:
            over.append(Axis(name, size))
    for name in lanes:
        within.append(Axis(name, ranges[name] if name in unrolled else width))
    if group and group not in unrolled:
        within.append(Axis(group, ranges[group]))
    ragged = any(name not in unrolled and ranges[name] % width for name in lanes)
    accesses = tuple(_accesses(block, run, views, True, lane, across, group))
    constraints = tuple(c.expr for c in block.constraints)
    return Steps(
        block, accesses, constraints, (*over, *late), tuple(within), lane, across, group, width, ragged
    )


def _tagged(block: Block, tag: str) -> str:
    named = block.tag_values(tag)
    return named[0] if len(named) == 1 and named[0] in block.ranges else ""


def _accesses(
    block: Block, run: Sequence[Statement], views: Mapping[str, View], own: bool, lane: str, across: str,
    group: str,
) -> list[Access]:  # fmt: skip
    found: dict[tuple[str, bool], Access] = {}
    for statement in run:
        if not isinstance(statement, Load | Store):
            continue
        ref, view = block.refinement(statement.buffer), views[statement.buffer]
        stores = isinstance(statement, Store)
        size = ref.dtype.bytes
        place = ref.access if own and ref.source else (Affine(),) * len(ref.shape)
        apart = in_bytes(place, view)
        word = size
        if group and abs(apart.coefficient(group)) == size:
            word = size * block.ranges[group]
        along = (name for name in (lane, across) if name and abs(apart.coefficient(name)) == word)
        adds = stores and ref.combines
        found.setdefault(
            (ref.name, stores), Access(ref.name, stores, adds, size, place, apart, next(along, ""))
        )
    return list(found.values())


def in_bytes(place: Sequence[Affine], view: View) -> Affine:
    """How far from the start of its buffer an element lies, in bytes."""
    total = Affine()
    for expr, stride in zip(place, view.strides[len(view.strides) - len(place) :], strict=True):
        total = total + expr * (stride * view.dtype.bytes)
    return total


def _values(axes: Sequence[Axis]) -> dict[str, Ints]:
    if not axes:
        return {}
    grids = np.indices([a.count for a in axes], np.int64).reshape(len(axes), -1)
    return {axis.name: grid * axis.scale for axis, grid in zip(axes, grids, strict=True)}


def _sum(expr: Affine, values: Mapping[str, Ints], count: int) -> Ints:
    total = np.zeros(count, np.int64)
    for name, factor in expr.terms:
        if name in values:
            total = total + factor * values[name]
    return total


def _begins(numbers: Ints) -> Ints:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
