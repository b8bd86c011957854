"""What the uses of a stencil cost, and the sizes that cost least.

    cycles = uses * (startup + the longest of arithmetic, loads, stores, and a share of the others)

Every use takes the time of its legal (padded) sizes, so what does not fit is paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from hwconfigs.expressions import evaluate_sizes, parse_body
from hwconfigs.model import HwConfig, SizeRange, Stencil, Unit
from stripe.analysis.bounds import Leaf
from stripe.analysis.cost_problem import Costs, combine
from stripe.analysis.cost_sizes import balanced_sizes
from stripe.analysis.stencils import Fit, lanes, padded_size, padded_sizes

KEPT = 50  # sizes of each kind (within the registers, beyond them) that are kept for a fit

Table = Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]


@dataclass(frozen=True, slots=True)
class Sized:
    """A fit with sizes: `sizes` gives the points of a use along indexes of the nest (1 along those
    that are missing), `padded` the legal size along each index of the stencil.

    `cost` is in cycles of the unit, None where the registers do not suffice; `fill` is the
    share of the uses' volume that is points of the nest.
    """

    fit: Fit
    sizes: Mapping[str, int]
    padded: Mapping[str, int]
    uses: int
    fill: float
    registers: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class Weighed:
    """The cheapest sizes of a fit, and some of those that exceed the registers; how many were looked
    at, and how many of these exceed them."""

    fitting: tuple[Sized, ...]
    excluded: tuple[Sized, ...]
    looked_at: int
    beyond: int


Memo = dict[object, "tuple[list[_Row], list[_Row], int, int]"]


def weighed(fit: Fit, leaf: Leaf, hw: HwConfig, limit: int, memo: Memo) -> Weighed:
    """The sizes of a fit with their costs; at most `limit` combinations are looked at.

    `memo` is for one target and limit: leaves that are alike are weighed once.
    """
    ranges = tuple(leaf.ranges[fit.indexes[s]] if s in fit.indexes else 1 for s in fit.stencil.indices)
    points, offset = leaf.points, _offset_elements(fit, leaf)
    key = (fit.stencil.name, ranges, points, offset)
    if key not in memo:
        by_index = dict(zip(fit.stencil.indices, ranges, strict=True))
        with np.errstate(all="ignore"):  # an expression without a value gives a cost that never pays
            memo[key] = _rows(fit.stencil, by_index, points, offset, hw, limit)
    fitting, excluded, looked_at, beyond = memo[key]
    made = partial(_of_nest, fit)
    return Weighed(tuple(map(made, fitting)), tuple(map(made, excluded)), looked_at, beyond)


def sized(fit: Fit, leaf: Leaf, hw: HwConfig, sizes: Mapping[str, int]) -> Sized | str:
    """A fit with given sizes along indexes of the nest, or why it can't have them, as a clause. An index
    without a size has the largest."""
    stencil, unit = fit.stencil, hw.unit(fit.stencil.unit)
    assert unit is not None  # a config names units that it has
    tiles: dict[str, int] = dict.fromkeys(stencil.indices, 1)
    for index, name in fit.indexes.items():
        most = _most(stencil, index)
        tiles[index] = sizes.get(name, min(leaf.ranges[name], most))
        if tiles[index] > most:
            return (
                f"a use takes {most} points along {index}, not {tiles[index]}: {tiles[index] - most} too many"
            )
    padded = padded_sizes(stencil, tiles, hw)
    if isinstance(padded, str):
        return padded
    ranges = {s: leaf.ranges[fit.indexes[s]] if s in fit.indexes else 1 for s in stencil.indices}
    columns = [{s: np.asarray([size]) for s, size in by.items()} for by in (tiles, padded)]
    points, offset = leaf.points, _offset_elements(fit, leaf)
    with np.errstate(all="ignore"):
        (row,) = _weighed_rows(stencil, ranges, columns[0], columns[1], points, offset, hw)[0]
    if row.cost is None:
        return (
            f"one use needs {row.registers:g} registers, and unit '{unit.name}' has {unit.registers}: "
            f"{row.registers - unit.registers:g} too many"
        )
    return _of_nest(fit, row)


def _most(stencil: Stencil, index: str) -> int:
    """The most points that one use takes along an index."""
    rule = stencil.indices[index]
    if isinstance(rule, int):
        return rule
    most = rule.most if isinstance(rule, SizeRange) else None
    return 1 << 60 if most is None else most


@dataclass(frozen=True, slots=True)
class _Row:
    """One combination of sizes: over the indexes of the stencil alone."""

    tiles: Mapping[str, int]
    padded: Mapping[str, int]
    uses: int
    fill: float
    registers: float
    cost: float | None


def _of_nest(fit: Fit, row: _Row) -> Sized:
    """A combination of sizes along the indexes of the nest."""
    sizes = {n: row.tiles[s] for s, n in fit.indexes.items()}
    return Sized(fit, sizes, row.padded, row.uses, row.fill, row.registers, row.cost)


def _rows(
    stencil: Stencil, ranges: Mapping[str, int], points: int, offset: int, hw: HwConfig, limit: int
) -> tuple[list[_Row], list[_Row], int, int]:
    unit = hw.unit(stencil.unit)
    assert unit is not None  # a config names units that it has
    padded = _grid(stencil, ranges, unit, hw, limit)
    if not padded:
        return [], [], 0, 0
    tiles = {s: np.minimum(column, ranges[s]) for s, column in padded.items()}
    rows, inside, count = _weighed_rows(stencil, ranges, tiles, padded, points, offset, hw)
    beyond = [row for row in rows if row.cost is None]
    return [row for row in rows if row.cost is not None], beyond, count, count - inside


def _weighed_rows(
    stencil: Stencil,
    ranges: Mapping[str, int],
    tiles: Table,
    padded: Table,
    points: int,
    offset: int,
    hw: HwConfig,
) -> tuple[list[_Row], int, int]:
    """The best of these sizes, then some that exceed the registers; how many do not, and how many there
    are."""
    unit = hw.unit(stencil.unit)
    assert unit is not None
    values = {**padded, "lanes": np.asarray(lanes(stencil, hw))}
    needed = _registers(stencil, values)
    volume = _product(column.astype(float) for column in padded.values())
    outside = points / prod(ranges.values()) if points else 0.0
    uses = outside * _product(-(-ranges[s] // tiles[s]).astype(float) for s in tiles)
    cost = uses * (stencil.startup_cycles + _use_cycles(stencil, unit, values))
    cost = cost + offset * 4 / unit.vector_bytes
    needed, cost = np.broadcast_to(needed, volume.shape), np.broadcast_to(cost, volume.shape)
    fits = needed <= unit.registers
    keys = [*(-tiles[s] for s in stencil.indices), -volume, np.round(cost, 9), ~fits]
    ranking = np.lexsort(keys)
    inside = int(np.count_nonzero(fits))

    def row(at: int) -> _Row:
        return _Row(
            {s: int(column[at]) for s, column in tiles.items()},
            {s: int(column[at]) for s, column in padded.items()},
            int(uses[at]),
            points / float(uses[at] * volume[at]) if points else 0.0,
            float(needed[at]),
            float(cost[at]) if fits[at] else None,
        )

    fitting, excluded = ranking[: min(inside, KEPT)], ranking[inside : inside + KEPT]
    return [*map(row, fitting), *map(row, excluded)], inside, len(ranking)


def rank(found: Sized, leaf: Leaf) -> tuple[object, ...]:
    """A key that puts cheaper ones first; ties go to fuller and larger uses and to the order of the
    nest's indexes, never to names."""
    positions = {name: at for at, name in enumerate(leaf.ranges)}
    order = tuple(positions[n] for n in found.fit.indexes.values())
    cost = float("inf") if found.cost is None else round(found.cost, 9)
    return cost, -round(found.fill, 9), -prod(found.sizes.values()), order


def legal_sizes(stencil: Stencil, index: str, size: int, hw: HwConfig) -> tuple[int, ...]:
    """The sizes of a use worth a look along an index of `size` points, ascending: for each number of
    uses the least legal one."""
    found = {padded_size(stencil, index, points, hw) for points in balanced_sizes(size)}
    return tuple(sorted(legal for legal in found if legal is not None))


def _grid(stencil: Stencil, ranges: Mapping[str, int], unit: Unit, hw: HwConfig, limit: int) -> Table:
    """Combinations of legal sizes, as columns; empty if some index has none."""
    choices = {s: legal_sizes(stencil, s, size, hw) for s, size in ranges.items()}
    if not all(choices.values()):
        return {}
    if stencil.registers:
        choices = {s: _within(stencil, s, choices, unit, hw) for s in choices}
    sizes = [np.asarray(c, np.int64) for c in _thinned(choices, limit).values()]
    columns = np.meshgrid(*sizes, indexing="ij")
    return {s: column.reshape(-1) for s, column in zip(choices, columns, strict=True)}


def _product(columns: Iterable[Costs]) -> Costs:
    return prod(columns, start=np.asarray(1.0))


def _registers(stencil: Stencil, values: Mapping[str, Any]) -> Costs:
    texts = stencil.registers.values()
    return sum((evaluate_sizes(text, values) for text in texts), start=np.asarray(0.0))


def _thinned(choices: Mapping[str, tuple[int, ...]], limit: int) -> dict[str, tuple[int, ...]]:
    """Every other size of the longest list left out until few enough combinations are left; the
    least and the largest stay."""
    found = dict(choices)
    while prod(len(sizes) for sizes in found.values()) > max(limit, 1):
        longest = max(found, key=lambda name: len(found[name]))
        sizes = found[longest]
        if len(sizes) < 3:
            break
        found[longest] = (*sizes[:-1:2], sizes[-1])
    return found


def _within(
    stencil: Stencil, index: str, choices: Mapping[str, Sequence[int]], unit: Unit, hw: HwConfig
) -> tuple[int, ...]:
    """The sizes of one index with which the least sizes of the others stay in the registers; if none
    does, the least one, so that there is something to report."""
    values: dict[str, Any] = {s: np.asarray(sizes[0]) for s, sizes in choices.items()}
    values[index] = np.asarray(choices[index])
    values["lanes"] = np.asarray(lanes(stencil, hw))
    fits = np.broadcast_to(_registers(stencil, values) <= unit.registers, (len(choices[index]),))
    return tuple(s for s, ok in zip(choices[index], fits, strict=True) if ok) or (choices[index][0],)


def _use_cycles(stencil: Stencil, unit: Unit, values: Mapping[str, Any]) -> Costs:
    counts = {name: evaluate_sizes(text, values) for name, text in stencil.loads.items()}
    stores = counts.get(parse_body(stencil.body).target, np.asarray(0.0))
    loads: Costs = sum(counts.values(), start=np.asarray(0.0))
    arithmetic = evaluate_sizes(stencil.cycles or "1", values)
    return combine(arithmetic, loads / unit.loads_per_cycle, stores / unit.stores_per_cycle)


def _offset_elements(fit: Fit, leaf: Leaf) -> int:
    """Elements that are moved to shift operands and to make up for it: a copy of these, and a sum
    over the others."""
    moved = 0
    for name in fit.offset:
        for other, operand in fit.operands.items():
            elements = prod(size for n, size in leaf.ranges.items() if n in operand.indexes)
            moved += elements * (2 if other == name else 1)
    return moved
