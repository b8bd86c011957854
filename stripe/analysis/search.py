"""Search for the cheapest tile of a block under a cost model: exact, bounded and deterministic.

Few combinations of sizes are all weighed. Of more, branch and bound weighs a part: the choices of
each index, in ascending order, make a box of combinations; the model says what no combination in a
box stays below, in cost and in needs; boxes that can't hold the best tile are left out, the others
are halved, the most promising first. Its result is that of weighing everything (`Found.complete`),
unless it had to stop at `max_candidates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, prod
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from stripe.analysis.bounds import Counts
from stripe.analysis.cost_problem import CostModel, Costs, Evaluation
from stripe.locks import cached_property

Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

ALL = 16384  # combinations up to which all are weighed: one call of the model, faster than bounds
_NONE: Mapping[str, int] = MappingProxyType({})
TOGETHER = 256  # boxes of which bounds are asked at once: a model takes nearly as long for one
SHARE = 16  # at most so many-th of what may be visited are boxes of the first bounds
DIGITS = 9  # of costs that tell candidates apart


@dataclass(frozen=True, slots=True)
class Candidate:
    """One tile: its sizes, the order of the tile loops, its cost (None if it does not fit), what it
    needs of each limited resource, and the first of these that it exceeds (0 if none)."""

    sizes: Mapping[str, int]
    order: tuple[str, ...]
    cost: float | None
    needs: tuple[int, ...]
    exceeded: int

    @property
    def needed(self) -> int:
        """What it needs of the resource that it exceeds, else of the first."""
        return self.needs[self.exceeded]


@dataclass(frozen=True)
class Found:
    """What a search weighed, and what it counted.

    `possible` combinations of sizes there are; of `visited` the model found a cost or a bound.
    `complete`: no combination is better than the best one here. `limits` are capacity and name of
    each limited resource.
    """

    names: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    rows: _Rows
    limits: tuple[tuple[int | None, str], ...]
    visited: int
    possible: int
    complete: bool
    seconds: float

    @property
    def capacity(self) -> int | None:
        return self.limits[0][0]

    @property
    def resource(self) -> str:
        return self.limits[0][1]

    @property
    def weighed(self) -> int:
        return len(self.rows.table)

    @property
    def best(self) -> Candidate | None:
        return next(self.ranked(fitting=True), None)

    @cached_property
    def fitting(self) -> tuple[Candidate, ...]:
        """Those that fit, best first."""
        return tuple(self.ranked(fitting=True))

    @cached_property
    def excluded(self) -> tuple[Candidate, ...]:
        """Those that do not fit."""
        return tuple(self.ranked(fitting=False))

    def frontier(self, most: float) -> list[tuple[Mapping[str, int], float]]:
        """The sizes and costs of those that fit, up to so many times the least cost, best first; without
        those that are as large as a better one in all sizes."""
        rows, found = self.rows, list[tuple[Mapping[str, int], float]]()
        left = self._ranking[rows.fits[self._ranking]]
        left = left[rows.cost[left] <= most * rows.cost[left[:1]]]
        while len(left):
            tile = rows.table[left[0]]
            found.append((dict(zip(self.names, map(int, tile), strict=True)), float(rows.cost[left[0]])))
            left = left[(rows.table[left] < tile).any(axis=1)]
        return found

    def first(self, count: int) -> list[Candidate]:
        """So many of each kind."""
        return [*islice(self.ranked(fitting=True), count), *islice(self.ranked(fitting=False), count)]

    def ranked(self, *, fitting: bool) -> Iterator[Candidate]:
        rows = self.rows
        for at in self._ranking[rows.fits[self._ranking] == fitting]:
            needs = tuple(int(n) for n in rows.needs[at])
            over = [c is not None and n > c for n, (c, _) in zip(needs, self.limits, strict=True)]
            yield Candidate(
                dict(zip(self.names, map(int, rows.table[at]), strict=True)),
                self.orders[rows.order[at]],
                float(rows.cost[at]) if fitting else None,
                needs,
                over.index(True) if True in over else 0,
            )

    @cached_property
    def _ranking(self) -> Counts:
        """Ties go to the larger tile, then to larger sizes of later indexes: never to names."""
        table = self.rows.table
        keys = [*(-column for column in table.T), -table.prod(axis=1), np.round(self.rows.cost, DIGITS)]
        return np.lexsort(keys)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Candidates, one row each; `order` is the number of the best order of the tile loops."""

    table: Counts
    cost: Costs
    needs: Counts
    fits: Flags
    order: Counts

    def and_(self, other: _Rows) -> _Rows:
        return _Rows(
            np.concatenate([self.table, other.table]), np.concatenate([self.cost, other.cost]),
            np.concatenate([self.needs, other.needs]), np.concatenate([self.fits, other.fits]),
            np.concatenate([self.order, other.order]),
        )  # fmt: skip


def search(
    model: CostModel,
    max_candidates: int,
    all_below: int = ALL,
    given: Mapping[str, int] = _NONE,
    orders: tuple[tuple[str, ...], ...] | None = None,
) -> Found:
    """The candidates that the model has for its problem, the best among them.

    At most `max_candidates` combinations are visited; up to `all_below` all are. Indexes of which a size
    is `given` have no other. `orders`: of the tile loops, those of the model if none are given.
    """
    begin = perf_counter()
    choices: dict[str, Sequence[int]] = {n: (size,) for n, size in given.items() if n in model.indices}
    if len(choices) < len(model.indices):
        choices = {**model.choices(), **choices}
    run = _Search(model, tuple(choices.items()), orders or model.orders())
    possible = prod(len(sizes) for _, sizes in run.choices)
    complete = possible <= min(all_below, max_candidates)
    if complete:
        run.weigh(run.every())
    else:
        complete = run.branch(max_candidates)
    assert run.rows is not None
    return Found(
        run.names, run.orders, run.rows, run.limits, run.visited, possible, complete, perf_counter() - begin
    )


class _Search:
    """The state of one search. Boxes are pairs of arrays: the positions of the least and the greatest
    choice of each index, one row for each box."""

    def __init__(
        self,
        model: CostModel,
        choices: tuple[tuple[str, Sequence[int]], ...],
        orders: tuple[tuple[str, ...], ...],
    ) -> None:
        self.model = model
        self.choices = choices
        self.orders = orders
        self.names = tuple(name for name, _ in choices)
        self.sizes = [np.asarray(sizes, np.int64) for _, sizes in choices]
        self.rows: _Rows | None = None
        self.limits: tuple[tuple[int | None, str], ...] = ()
        self.visited = 0
        self._seen: set[bytes] = set()
        self._best = inf  # the cost of the best candidate, rounded
        self._points = 0  # and its size
        self._budget = 1

    def every(self) -> Counts:
        """The positions of all combinations."""
        lengths = [len(sizes) for sizes in self.sizes]
        return np.indices(lengths, np.int64).reshape(len(lengths), prod(lengths)).T

    def weigh(self, positions: Counts) -> None:
        """Weigh the combinations at these positions of the choices."""
        table = self._sizes_at(positions)
        found = self._with_orders(table, None)
        self.visited += len(table)
        self.rows = found if self.rows is None else self.rows.and_(found)
        costs = np.where(found.fits, np.round(found.cost, DIGITS), inf)
        least = float(costs.min(initial=inf))
        if least <= self._best and least < inf:
            points = int(table[costs == least].prod(axis=1).max())
            self._points = points if least < self._best else max(points, self._points)
            self._best = least

    def branch(self, budget: int) -> bool:
        """Halve boxes until none can hold a better candidate, or the budget is spent."""
        low = np.zeros((1, len(self.sizes)), np.int64)
        high = np.asarray([[len(sizes) - 1 for sizes in self.sizes]], np.int64)
        self._budget = budget
        bound = np.zeros(len(low))
        while len(low) and self.visited < budget:
            order = np.argsort(bound, kind="stable")
            taken, rest = order[:TOGETHER], order[TOGETHER:]
            self._weigh_new(np.concatenate([low[taken], high[taken], (low[taken] + high[taken]) // 2]))
            new_low, new_high = self._halved(low[taken], high[taken])
            bounds, fits = self._bounds(new_low, new_high)
            low = np.concatenate([low[rest], new_low[fits]])
            high = np.concatenate([high[rest], new_high[fits]])
            bound = np.concatenate([bound[rest], bounds[fits]])
            kept = self._may_win(bound, high)
            low, high, bound = low[kept], high[kept], bound[kept]
        return self.visited < budget

    def _weigh_new(self, positions: Counts) -> None:
        fresh: list[int] = []
        for at, row in enumerate(positions):
            key = row.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(at)
        if fresh := fresh[: self._budget - self.visited]:
            self.weigh(positions[fresh])

    def _halved(self, low: Counts, high: Counts) -> tuple[Counts, Counts]:
        """The boxes cut in two along the indexes whose sizes differ most: along two of them, or more where
        there are few boxes. Less the single combinations, which are weighed."""
        enough = min(TOGETHER, self._budget // SHARE)
        rounds = 0
        while rounds < 2 or (len(low) < enough and (high > low).any()):
            rounds += 1
            ratio = np.stack([s[high[:, d]] / s[low[:, d]] for d, s in enumerate(self.sizes)], axis=1)
            widest = ratio.argmax(axis=1)
            at = np.arange(len(low))
            middle = (low[at, widest] + high[at, widest]) // 2
            first, second = high.copy(), low.copy()
            first[at, widest] = middle
            second[at, widest] = np.minimum(middle + 1, high[at, widest])
            split = (high > low).any(axis=1)
            low, high = (
                np.concatenate([low, second[split]]), np.concatenate([first, high[split]])
            )  # fmt: skip
        open_ = (high > low).any(axis=1)
        self._weigh_new(low[~open_])
        return low[open_], high[open_]

    def _bounds(self, low: Counts, high: Counts) -> tuple[Costs, Flags]:
        if not len(low):
            return np.zeros(0), np.zeros(0, bool)
        left = self._budget - self.visited
        if len(low) > left:  # the rest has no better bound than that of all
            self.visited = self._budget
            return np.zeros(len(low)), np.ones(len(low), bool)
        self.visited += len(low)
        found = self._with_orders(self._sizes_at(low), self._sizes_at(high))
        return found.cost * (1 - 1e-12), found.fits

    def _may_win(self, bound: Costs, high: Counts) -> Flags:
        rounded = np.round(bound, DIGITS)
        points = self._sizes_at(high).prod(axis=1)
        won: Flags = (rounded < self._best) | ((rounded == self._best) & (points >= self._points))
        return won

    def _sizes_at(self, positions: Counts) -> Counts:
        table = np.empty_like(positions)
        for column, sizes in enumerate(self.sizes):
            table[:, column] = sizes[positions[:, column]]
        return table

    def _with_orders(self, table: Counts, upto: Counts | None) -> _Rows:
        """The rows with the cost of the best order, the first among equals."""
        greatest = None if upto is None else self._columns(upto)
        sizes = self._columns(table)
        found: list[Evaluation] = [self.model.evaluate(sizes, order, greatest) for order in self.orders]
        self.limits = tuple((limit.capacity, limit.resource) for limit in found[0].limits)
        costs = np.stack([np.broadcast_to(f.cost, len(table)) for f in found])
        best = np.round(costs, DIGITS).argmin(axis=0)
        needs = [np.broadcast_to(limit.needed, len(table)) for limit in found[0].limits]
        fits = np.broadcast_to(found[0].fits, len(table))
        cost: Costs = np.take_along_axis(costs, best[None], axis=0)[0]
        return _Rows(table, cost, np.stack(needs, axis=1), fits, best)

    def _columns(self, table: Counts) -> dict[str, Counts]:
        return {name: table[:, column] for column, name in enumerate(self.names)}
