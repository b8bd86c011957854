"""What all tiles of a block bring into a memory, and back, in bytes and in runs of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np

from stripe.analysis.bounds import Counts, Operand, Sizes
from stripe.analysis.cost_problem import ASKED_FOR, Costs
from stripe.analysis.cost_rows import runs

Waits: TypeAlias = tuple[float, float]  # cycles for each run of what is read, and of what is written


@dataclass(frozen=True, slots=True)
class Strips:
    """What tiles of these `sizes` in others read as it lies, a piece of each row in turn: a `line` or more.

    Of operands along the `lanes`, more than so many `rows` are not fetched ahead; of those that are `narrow`,
    a few elements of each row, none is where a sum over `reduced` indexes is cut. A whole one is long enough
    for what is asked for ahead to come."""

    sizes: Mapping[str, int]
    lanes: frozenset[str]
    rows: int
    narrow: frozenset[str]
    reduced: frozenset[str]
    line: int


class Traffic:
    """Bytes that all tiles bring into a memory, and back, for one order of the tile loops after another.

    What an innermost run of the tile loops touches stays if it fits; around that, an operand stays
    over the loops that it does not depend on up to the first that it does. A tile that does not
    fit by itself brings in everything each time. Results that come back are written and read.
    With `upto` (and least `tile_bytes`), no candidate from `sizes` to `upto` brings in less. The
    operands in `laid` lie in the order in which tiles read them: they begin no runs of lines. Where there
    are `strips`, each piece of a row that is not fetched ahead is a run. Copies of what is in `copied` are
    made of lines that were asked for while the one before was used; such a share of these lines they take.
    Those of what is `apart`, too, wait for each run.
    """

    def __init__(
        self,
        used: Sequence[Operand],
        ranges: Mapping[str, int],
        sizes: Sizes,
        tile_bytes: Sequence[Costs],
        upto: Sizes | None = None,
        laid: frozenset[str] = frozenset(),
        strips: Strips | None = None,
        copied: Mapping[str, Costs] | None = None,
        apart: frozenset[str] = frozenset(),
    ) -> None:
        self._copied, self._apart = copied or {}, apart
        self._used, self._ranges, self._sizes, self._laid = used, ranges, sizes, laid
        self._strips = strips
        self._tile_bytes, self._upto = tile_bytes, upto
        self._trips = {n: -(-ranges[n] // np.asarray(s, np.int64)) for n, s in (upto or sizes).items()}
        self._reach = [operand.indexes for operand in used]
        self._whole: dict[frozenset[str], tuple[list[Costs], Costs]] = {}
        self._by_loops: dict[tuple[Waits | None, tuple[str, ...]], Costs] = {}
        self._grown: dict[tuple[int, frozenset[str]], Costs] = {}  # operands, by number
        self._rows: dict[tuple[int, frozenset[str]], Costs] = {}  # the same
        self._products: dict[tuple[str, ...], Counts] = {}  # of trips

    def bytes(self, order: Sequence[str], capacity: int | None) -> Costs:
        return self._moved(order, capacity, None)

    def waits(self, order: Sequence[str], capacity: int | None, each: Waits) -> Costs:
        """Cycles for all runs of lines, each apart from the last one, that these bytes come in."""
        return self._moved(order, capacity, each)

    def _moved(self, order: Sequence[str], capacity: int | None, waits: Waits | None) -> Costs:
        least = self._upto is not None
        total: Costs = np.asarray(np.inf)
        done: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(False)
        for depth in range(len(order) + 1):
            whole = frozenset(order[depth:])
            fits = np.asarray(True) if capacity is None else self._staying(whole)[1] <= capacity
            if not (fits | done).any():
                continue
            brought = self._brought(whole, tuple(order[:depth]), waits)
            if least:  # some candidate may first fit further inside
                total = np.where(fits | done, np.minimum(total, brought), total)
            else:
                total = np.where(fits & ~done, brought, total)
            done = done | fits
            if not least and done.all():
                return total
        each = np.asarray(0.0)
        for number, (operand, reach) in enumerate(zip(self._used, self._reach, strict=True)):
            each = each + self._piece(number, frozenset(), waits) * self._fetches(
                operand, reach, tuple(order), stays=False
            )
        return np.minimum(total, each) if least else np.where(done, total, each)

    def _piece(self, number: int, whole: frozenset[str], waits: Waits | None) -> Costs:
        """The bytes that an operand brings in when these indexes run over their whole range, or how long it
        is waited for."""
        if waits is None:
            return self._operand(number, whole)
        each = waits[self._used[number].direction.writes]
        return each * self._runs(number, whole) if each else np.asarray(0.0)

    def _runs(self, number: int, whole: frozenset[str]) -> Costs:
        key = number, whole
        if self._used[number].name in self._laid:
            return np.asarray(0.0)
        if key not in self._rows:
            grown = {name: self._ranges[name] for name in whole}
            upto = None if self._upto is None else {**self._upto, **grown}
            rows, run = runs(self._used[number], {**self._sizes, **grown}, upto)
            if self._strips is not None and upto is None:
                rows = self._in_strips(self._strips, self._used[number], {**self._sizes, **grown}, rows, run)
            name = self._used[number].name
            share = ASKED_FOR if name in self._copied and name not in self._apart else 1.0
            self._rows[key] = share * rows.astype(float)
        return self._rows[key]

    def _in_strips(self, strips: Strips, operand: Operand, sizes: Sizes, rows: Counts, run: Counts) -> Counts:
        """The runs of an operand in tiles of `sizes`, of which it takes so many `rows`, so long each: all
        pieces that are not fetched ahead."""
        if operand.name not in strips.lanes | strips.narrow:
            return rows
        inside = {n: np.minimum(strips.sizes.get(n, size), size) for n, size in sizes.items()}
        in_turn, strip = runs(operand, inside)
        if operand.name in strips.lanes:
            apart = in_turn > strips.rows
        else:
            strip = np.maximum(strip, strips.line // operand.dtype.bytes)
            cut = (np.asarray(sizes[name]) < self._ranges[name] for name in strips.reduced)
            apart = reduce(np.logical_or, cut, np.asarray(False))
        return np.where(apart, rows * -(-run // strip), rows)

    def _staying(self, whole: frozenset[str]) -> tuple[list[Costs], Costs]:
        """The bytes of each operand, and of all, when these indexes run over their whole range."""
        if whole not in self._whole:
            grown = [
                self._operand(number, reach & whole) * self._copied.get(self._used[number].name, 1.0)
                for number, reach in enumerate(self._reach)
            ]
            self._whole[whole] = grown, sum(grown, start=np.asarray(0.0))
        return self._whole[whole]

    def _operand(self, number: int, whole: frozenset[str]) -> Costs:
        if not whole:
            return self._tile_bytes[number]
        key = number, whole
        if key not in self._grown:
            inside = {**self._sizes, **{name: self._ranges[name] for name in whole}}
            operand, tile = self._used[number], self._tile_bytes[number]
            self._grown[key] = _grown(operand, tile, self._sizes, inside, whole, self._upto is not None)
        return self._grown[key]

    def _fetches(
        self, operand: Operand, reach: frozenset[str], loops: tuple[str, ...], stays: bool = True
    ) -> Counts:
        """How often an operand, which depends on `reach`, is brought in by the loops around what stays."""
        last = max((at for at, name in enumerate(loops) if name in reach), default=-1)
        often = self._product(loops[: last + 1] if stays else loops)
        if operand.direction.writes:
            return 2 * often - self._product(tuple(name for name in loops if name in reach))
        return often

    def _product(self, names: tuple[str, ...]) -> Counts:
        if names not in self._products:
            self._products[names] = prod((self._trips[n] for n in names), start=np.asarray(1, np.int64))
        return self._products[names]

    def _brought(self, whole: frozenset[str], loops: tuple[str, ...], waits: Waits | None) -> Costs:
        if (waits, loops) not in self._by_loops:
            brought: Costs = np.asarray(0.0)
            for number, (operand, reach) in enumerate(zip(self._used, self._reach, strict=True)):
                if not operand.local:  # else it is made and used within a tile
                    size = self._piece(number, reach & whole, waits)
                    brought = brought + size * self._fetches(operand, reach, loops)
            self._by_loops[waits, loops] = brought
        return self._by_loops[waits, loops]


def _grown(
    operand: Operand, tile: Costs, sizes: Sizes, inside: Sizes, whole: frozenset[str], least: bool
) -> Costs:
    """Bytes of an operand when the indexes in `whole` run over their whole range, from those of a tile.

    `least`: the sizes may grow, and the share of what rounding to lines adds may shrink.
    """
    factor: Costs = np.asarray(1.0)
    bytes_: Costs = np.asarray(float(operand.dtype.bytes))
    for expr, own in zip(operand.access, operand.extent, strict=True):
        grows = not whole.isdisjoint(expr.names)
        if grows or (least and expr.terms):
            large = own + sum(abs(c) * (np.asarray(inside[n]) - 1) for n, c in expr.terms if n in inside)
            bytes_ = bytes_ * large
            if grows:
                small = own + sum(abs(c) * (np.asarray(sizes[n]) - 1) for n, c in expr.terms if n in sizes)
                factor = factor * (large / small)
        else:
            bytes_ = bytes_ * own
    if not least:
        return tile * factor
    # What is local may take less than its box, being widened in another way: then the tile counts.
    return tile if operand.local else np.maximum(tile, bytes_)
