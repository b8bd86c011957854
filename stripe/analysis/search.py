"""Search for the cheapest tile of a block under a cost model: bounded and deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from stripe.analysis.bounds import Counts
from stripe.analysis.cost_problem import CostModel, Evaluation

Sizes = dict[str, int]
ORDERED = 32  # candidates for which other orders of the tile loops are tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """One tile: its sizes, the order of the tile loops, its cost (None if it does not fit), and
    what it needs of the limited resource."""

    sizes: Mapping[str, int]
    order: tuple[str, ...]
    cost: float | None
    needed: int


@dataclass(frozen=True, slots=True)
class Found:
    """All that a search looked at: fitting candidates, best first, then those that do not fit."""

    fitting: tuple[Candidate, ...]
    excluded: tuple[Candidate, ...]
    capacity: int | None
    resource: str


def search(model: CostModel, max_candidates: int) -> Found:
    """Every combination of the model's choices, thinned out to `max_candidates`.

    Ties go to the larger tile, then to larger sizes of later indexes: never to names.
    """
    choices = thinned(model.choices(), max_candidates)
    names = tuple(choices)
    table = _grid(model, choices, max_candidates)
    evaluation = model.evaluate(_columns(names, table), names)
    ranking = _ranking(table, evaluation)
    fits = np.broadcast_to(evaluation.fits, len(table))
    found = _candidates(names, table, evaluation, ranking, names)
    fitting = [c for c, at in zip(found, ranking, strict=True) if fits[at]]
    excluded = [c for c, at in zip(found, ranking, strict=True) if not fits[at]]
    best = table[[at for at in ranking if fits[at]][:ORDERED]]
    for order in _orders(names):
        if len(best):
            again = model.evaluate(_columns(names, best), order)
            fitting += _candidates(names, best, again, range(len(best)), order)
    fitting.sort(key=_key)
    kept: dict[tuple[int, ...], Candidate] = {}
    for candidate in fitting:
        kept.setdefault(tuple(candidate.sizes.values()), candidate)
    return Found(tuple(kept.values()), tuple(excluded), evaluation.capacity, evaluation.resource)


def thinned(choices: Mapping[str, Sequence[int]], limit: int) -> dict[str, tuple[int, ...]]:
    """Fewer sizes for each index, so that at most `limit` combinations are left where that can be.

    Sizes stay that are a growing factor apart; the least and the largest always stay, and of
    those in between a size that divides the largest goes before its neighbours.
    """
    found = {name: tuple(sizes) for name, sizes in choices.items()}
    factor = 1.0
    while prod(len(sizes) for sizes in found.values()) > limit and factor < 16:
        factor *= 1.1
        found = {name: _spaced(sizes, factor) for name, sizes in choices.items()}
    return found


def _spaced(sizes: Sequence[int], factor: float) -> tuple[int, ...]:
    kept, first, group = [], sizes[0], [sizes[0]]
    for size in sizes[1:]:
        if size < first * factor:
            group.append(size)
            continue
        kept.append(_preferred(group, sizes[-1]))
        first, group = size, [size]
    kept.append(sizes[-1])
    return tuple(dict.fromkeys(kept))


def _preferred(group: Sequence[int], whole: int) -> int:
    return next((size for size in group if whole % size == 0), group[0])


def _grid(model: CostModel, choices: Mapping[str, Sequence[int]], limit: int) -> Counts:
    """Combinations of sizes, one row each. Where there are more than `limit`, those are left out
    that are larger than one that does not fit."""
    names = tuple(choices)
    whole = prod(len(sizes) for sizes in choices.values())
    table = np.ones((1, len(names)), np.int64)
    for column, name in enumerate(names):
        sizes = np.asarray(choices[name], np.int64)
        table = np.repeat(table, len(sizes), axis=0)
        table[:, column] = np.tile(sizes, len(table) // len(sizes))
        if whole > limit:
            least = np.asarray([choices[n][0] for n in names[column + 1 :]], np.int64)
            table[:, column + 1 :] = least
            fits = model.evaluate(_columns(names, table), names).fits
            table = table[np.broadcast_to(fits, len(table))][:limit]
    return table


def _columns(names: Sequence[str], table: Counts) -> dict[str, Counts]:
    return {name: table[:, column] for column, name in enumerate(names)}


def _ranking(table: Counts, evaluation: Evaluation) -> list[int]:
    cost = np.round(np.broadcast_to(evaluation.cost, len(table)), 9)
    keys = [*(-column for column in table.T), -table.prod(axis=1), cost]
    return [int(at) for at in np.lexsort(keys)]


def _key(candidate: Candidate) -> tuple[float, int, tuple[int, ...]]:
    sizes = tuple(candidate.sizes.values())
    return round(candidate.cost or 0.0, 9), -prod(sizes), tuple(-size for size in reversed(sizes))


def _candidates(
    names: Sequence[str], table: Counts, evaluation: Evaluation, rows: Iterable[int], order: Sequence[str]
) -> list[Candidate]:
    fits = np.broadcast_to(evaluation.fits, len(table))
    cost = np.broadcast_to(evaluation.cost, len(table))
    needed = np.broadcast_to(evaluation.needed, len(table))
    return [
        Candidate(
            dict(zip(names, map(int, table[at]), strict=True)),
            tuple(order),
            float(cost[at]) if fits[at] else None,
            int(needed[at]),
        )
        for at in rows
    ]


def _orders(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Each index once as the innermost tile loop (what does not depend on it stays), the others
    in the block's order; the block's own order is no news."""
    orders = [(*(n for n in names if n != inner), inner) for inner in names]
    return [order for order in orders if order != tuple(names)]
