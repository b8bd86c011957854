"""Stencils that are one instruction: products of groups of neighbours, summed in each lane.

    acc[j] += x[p] * y[p, j]                  j runs along the lanes, p through a group, whose size is fixed
    acc[i, j] += x[i, k, p] * y[k, j, p]      the same for up to so many rows i, and groups k, at a time

Of an operand, the elements of a group lie one after the other; of one that differs from lane to
lane, so do the groups of the lanes. What does not differ is the same word for all lanes. The second form
works on registers that hold rows: a memory of kind `registers`, one line of which is such a register. There
the groups of a row of x lie one after the other, too; the rows of each operand may lie anywhere.
Both take the same layout, so that code may change from one to the other within an operand.

The lanes of the first form may also share one result, where all operands differ from lane to lane: code adds
up what the lanes hold once the loops are through.

    acc += x[j, p] * y[j, p]                  j runs along the lanes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

import msgspec

from hwconfigs.expressions import body_operands, evaluate_size, parse_body
from hwconfigs.model import HwConfig, SizeRange, Stencil
from stripe.analysis.bounds import Leaf, Operand
from stripe.analysis.groups import group_index
from stripe.analysis.lanes import Lane, lane_candidates
from stripe.analysis.stencils import Fit, matches
from stripe.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tiles:
    """What makes an instruction one on registers that hold rows: the names of the indexes of rows and of
    groups, the most that it takes along each of its indexes, how many such registers there are, and the
    bytes of one row in one."""

    row: str
    step: str
    most: Mapping[str, int]
    registers: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Summing:
    """A stencil that is such an instruction, with the names of its indexes and the size of a group.

    `operands` are those that it multiplies, in the order of its body. `tiles` is for one that takes several
    rows and groups.
    """

    stencil: Stencil
    lane: str
    group: str
    size: int
    target: str
    operands: tuple[str, ...]
    tiles: Tiles | None = None

    def loose(self, across: bool = False) -> Stencil:
        """The stencil without its strides, rows and groups: what fits it once the operands are laid out for
        it, before an index is cut into groups. With `across`, groups also lie along the lanes, which share
        one result."""
        kept = (self.group,) if across else (self.lane, self.group)
        return msgspec.structs.replace(
            self.stencil,
            stride={},
            indices={name: self.stencil.indices[name] for name in kept},
            operands={o: tuple(i for i in own if i in kept) for o, own in self.stencil.operands.items()},
        )

    def woven(self) -> Stencil:
        """The stencil on an operand that differs from lane to lane as it lies, its groups across rows: code
        weaves the rows of a group in registers."""
        stencil = self.stencil
        differs = {o: {self.lane: 1} for o in self.operands if self.lane in stencil.operands[o]}
        return msgspec.structs.replace(stencil, stride={**stencil.stride, **differs})

    def across(self) -> Stencil:
        """The stencil on groups of one row, whose lanes share one result."""
        stencil = self.stencil
        own = {o: tuple(i for i in stencil.operands[o] if i != self.lane) for o in stencil.operands}
        operands = {o: (*names, self.lane) if o in self.operands else names for o, names in own.items()}
        along = {self.group: 1, self.lane: self.size}
        return msgspec.structs.replace(stencil, operands=operands, stride=dict.fromkeys(self.operands, along))

    def shares(self, form: Stencil) -> bool:
        """Whether the lanes of a form of the stencil share one result."""
        return self.lane not in form.operands[self.target]

    def cycles(self, sizes: Mapping[str, int], width: int) -> float:
        """The cycles of all uses for so many points along each index of the stencil (of groups, for its
        group), with results in vectors of `width` elements."""
        tiles = self.tiles
        most = {self.lane: width, self.group: 1} if tiles is None else {**tiles.most, self.group: 1}
        uses = prod(-(-sizes.get(name, 1) // size) for name, size in most.items())
        each = {**most, self.group: self.size, "lanes": width}
        return uses * evaluate_size(self.stencil.cycles or "1", each)

    def vector_cycles(self, width: int) -> float:
        """The cycles of one group of one row, for a vector of `width` results, in uses that are full."""
        most = {} if self.tiles is None else self.tiles.most
        points = prod(size for name, size in most.items() if name != self.lane)
        return self.cycles(most, width) / points


def summing(stencil: Stencil) -> Summing | None:
    """The stencil as an instruction that sums groups for each lane; None if it is none."""
    if not stencil.intrinsic or len(stencil.indices) != 2:
        return None
    body = parse_body(stencil.body)
    kept = stencil.operands[body.target]
    lanes = [
        n for n, rule in stencil.indices.items() if isinstance(rule, SizeRange) and rule.multiple == "lanes"
    ]
    groups = _groups(stencil, kept)
    if len(lanes) != 1 or len(groups) != 1 or lanes[0] not in kept:
        return None
    made = Summing(
        stencil, lanes[0], groups[0], int(str(stencil.indices[groups[0]])), body.target,
        body_operands(body.value),
    )  # fmt: skip
    return made if len(set(made.operands)) == len(made.operands) and _laid_out(made) else None


def in_tiles(stencil: Stencil, hw: HwConfig) -> Summing | None:
    """The stencil as an instruction that sums groups for several rows; None if it is none."""
    body = parse_body(stencil.body)
    files = [hw.memory(name) for name in set(stencil.memory.values())]
    file = files[0] if len(files) == 1 and len(stencil.memory) == len(stencil.operands) else None
    if not stencil.intrinsic or len(stencil.indices) != 4 or file is None or file.kind != "registers":
        return None
    kept = stencil.operands[body.target]
    groups, operands = _groups(stencil, kept), body_operands(body.value)
    most = {n: r.most for n, r in stencil.indices.items() if isinstance(r, SizeRange) and r.most is not None}
    steps = [n for n in most if n not in kept]
    lanes = [n for n in kept if stencil.stride.get(body.target, {}).get(n) == 1]
    rows = [n for n in kept if n not in lanes]
    if [len(names) for names in (groups, steps, lanes, rows, operands)] != [1, 1, 1, 1, 2] or len(most) != 3:
        return None
    size = int(str(stencil.indices[groups[0]]))
    tiles = Tiles(
        rows[0], steps[0], most, (file.bytes or 0) // file.line_bytes, file.line_bytes // most[rows[0]]
    )
    made = Summing(stencil, lanes[0], groups[0], size, body.target, operands, tiles)
    wanted = [{rows[0], steps[0], groups[0]}, {steps[0], lanes[0], groups[0]}]
    if [set(stencil.operands[name]) for name in operands] != wanted:
        return None
    along = stencil.stride.get(operands[0], {}).get(steps[0]) == size
    bytes_ = {name: DType(kind).bytes for name, kind in stencil.types.items()}
    words = {bytes_[body.target], *(size * bytes_[name] for name in operands)}
    full = words == {tiles.row_bytes // most[lanes[0]]} == {tiles.row_bytes // most[steps[0]]}
    return made if along and full and _laid_out(made) else None


def _groups(stencil: Stencil, kept: Iterable[str]) -> list[str]:
    return [n for n, rule in stencil.indices.items() if isinstance(rule, int) and n not in kept]


def _laid_out(made: Summing) -> bool:
    stride, operands = made.stencil.stride, made.stencil.operands
    if stride.get(made.target, {}).get(made.lane) != 1:
        return False
    for name in made.operands:
        steps = stride.get(name, {})
        if made.group not in operands[name] or steps.get(made.group) != 1:
            return False
        if made.lane in operands[name] and steps.get(made.lane) != made.size:
            return False
    return True


def instructions(hw: HwConfig) -> tuple[Summing, ...]:
    """The target's stencils that are such instructions, in order."""
    if hw.executor != "cpu":
        return ()
    found = (summing(stencil) or in_tiles(stencil, hw) for stencil in hw.stencils)
    return tuple(made for made in found if made is not None)


def use_of(
    known: Iterable[Summing], leaf: Leaf, lane: str, group: str, width: int, alone: bool = True
) -> tuple[Summing, Fit] | None:
    """The instruction that a leaf is uses of, with `lane` along its lanes, of which a vector has `width`, and
    `group` as its group: the one that takes the fewest cycles, of those the first. `alone`: no constraint is
    left that may cut off rows."""
    if any(group in expr.names for expr in leaf.constraints):
        return None
    found: list[tuple[float, Summing, Fit]] = []
    for made in known:
        if leaf.ranges[group] != made.size or (made.tiles is not None and not alone):
            continue
        forms = (made.stencil,) if made.tiles is not None else (made.stencil, made.woven(), made.across())
        for fit in (fit for form in forms for fit in matches(form, leaf).fits):
            if fit.indexes.get(made.lane) != lane or fit.indexes.get(made.group) != group:
                continue
            if made.tiles is None and len(fit.indexes) != 2:
                continue
            found.append((use_cycles(made, fit.indexes, {**leaf.ranges, group: 1}, width), made, fit))
    best = min(found, key=lambda entry: entry[0], default=None)
    return None if best is None else best[1:]


def in_rows(leaf: Leaf, lane: Lane | None, hw: HwConfig, across: bool = False) -> tuple[Summing, Fit] | None:
    """The instruction on registers that hold rows of which a leaf is uses, with these lanes; None if it is
    uses of another one, or of none. With `across`, results that lie across the lanes may be gathered in a
    buffer where they lie along them."""
    group = group_index(leaf)
    if not group or lane is None:
        return None
    if across:
        operands = (_beside(o, lane.index) if o.direction.writes else o for o in leaf.operands)
        leaf = replace(leaf, operands=tuple(operands))
    found = use_of(instructions(hw), leaf, lane.index, group, lane.width)
    return None if found is None or found[0].tiles is None else found


def rows_across(leaf: Leaf, hw: HwConfig) -> tuple[Summing, Fit] | None:
    """`in_rows` with the best lanes of the target, whether results lie along them or across."""
    unit = hw.compute_unit
    lanes = () if unit is None else lane_candidates(leaf, unit.vector_bytes, path_bytes=unit.path_bytes)
    return in_rows(leaf, next(iter(lanes), None), hw, across=True)


def _beside(operand: Operand, lane: str) -> Operand:
    """An operand whose elements along an index lie side by side."""
    if operand.stride(lane) == 1:
        return operand
    strides = zip(operand.access, operand.strides, strict=True)
    return replace(operand, strides=tuple(1 if lane in expr.names else stride for expr, stride in strides))


def use_cycles(made: Summing, indexes: Mapping[str, str], ranges: Mapping[str, int], width: int) -> float:
    """The cycles of an instruction for a nest: `ranges` gives its groups for the index that is its group,
    `indexes` what those of the stencil are in the nest."""
    own = {name: ranges[index] for name, index in indexes.items()}
    return prod(size for n, size in ranges.items() if n not in indexes.values()) * made.cycles(own, width)


def lane_operands(made: Summing, form: Stencil) -> Mapping[str, bool]:
    """For each operand that is multiplied, in order, whether it differs from lane to lane in this form of the
    stencil."""
    return {name: made.lane in form.operands[name] for name in made.operands}
