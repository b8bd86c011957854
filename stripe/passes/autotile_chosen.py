"""autotile with a tile that is given for a block: is it one, and does it fit?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

import msgspec
import numpy as np

from stripe.analysis.cost_explicit import LEVEL, ExplicitRoofline
from stripe.analysis.cost_parts import Loops
from stripe.analysis.cost_problem import CostModel, Problem
from stripe.analysis.search import Found, search
from stripe.diag import CompileError, did_you_mean
from stripe.ir import Block
from stripe.passes.autotile_explicit import smallest, tiled_with
from stripe.passes.base import PassContext
from stripe.passes.choices import Choice, Count
from stripe.rewrite import RewriteRefused

MOST_TRIED = 4096  # sizes of an index that are weighed for an advice


class Tiling(Choice, frozen=True):
    """The tile of a block. `sizes` has the points of a tile along each index, all of those that it does not
    name; in explicit memories also STATEMENT.INDEX, of a tile loop that one statement has. Without sizes,
    in registers, the points of a tile only get their order.

    `order` are the loops over tiles, outermost first; those that it does not name come before them. In
    explicit memories those in front of a "|" are a level of their own: what the loops behind it do not
    change is copied once for all of these.
    `loops`, in explicit memories: the statements' own indexes that get tile loops of their own.
    `whole`: the statements of the nest are not taken apart, and get none. `bypass`: operands for which
    no room is kept in the memory, since they are not brought there.
    """

    sizes: dict[str, Count] = msgspec.field(default_factory=dict)
    order: tuple[str, ...] = ()
    loops: Loops = "reductions"
    whole: bool = False
    bypass: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tile that is given for a block, which the context calls `key`."""

    key: str
    choice: Tiling
    context: PassContext

    def refused(self, reason: str, field: str = "", *notes: str) -> CompileError:
        return self.context.refused(self.key, reason, field, *notes)

    def problem(self, problem: Problem, model: Callable[[Problem], CostModel]) -> Problem:
        """The problem in which every index that is given may be tiled."""
        given = self.choice.sizes.keys()
        if problem.memory.kind == "explicit":
            operands = {o.name for o in problem.operands if not o.local}
            self._check("bypass", self.choice.bypass, operands, "it has no operand '{}'")
            names = (*problem.names, *given) if problem.names else ()
            return replace(problem, names=names, bypass=self.choice.bypass)
        self._check_names("sizes", given, problem.ranges)
        if given <= set(model(problem).indices):
            return problem
        problem = replace(problem, reductions=True)
        known = model(problem).indices
        return problem if given <= set(known) else replace(problem, names=(*known, *given))

    def tile(self, model: CostModel) -> Found:
        """The tile with its cost, in registers or a cache; it need not fit."""
        sizes = {name: model.problem.ranges[name] for name in model.indices}
        if not sizes:
            raise self.refused("it has no index to tile", "sizes")
        return self._weighed(model, sizes)

    def levels(self, problem: Problem) -> tuple[Found, Block, CostModel]:
        """The block with the levels of tiles of an explicit memory, in which they have to fit."""
        choice = self.choice
        loops: Loops = "none" if choice.whole else choice.loops
        weighed = ExplicitRoofline(problem, loops)
        if weighed.loops != loops == "all":
            reason = f"reductions are not split: no unit that computes reaches {problem.memory.name}"
            raise self.refused(reason, "loops")
        self._check_names("sizes", choice.sizes, weighed.ranges)
        found = self._weighed(weighed, weighed.ranges)
        if found.best is None and problem.inflight > 1:
            weighed = ExplicitRoofline(problem, loops, True)
            found = self._weighed(weighed, weighed.ranges)
        if found.best is None:
            raise self._too_large(weighed, found)
        given = [n for n in choice.order if n != LEVEL]
        inside = [n for n in given if n in weighed.reduced]
        if [n for n in given if n not in weighed.reduced] + inside != given:
            reason = f"{inside[0]} adds to results that would leave {problem.memory.name} unfinished"
            raise self.refused(reason, "order", f"help: let {', '.join(inside)} be the last")
        try:
            return found, tiled_with(weighed, found.best.sizes, found.best.order, choice.whole), weighed
        except RewriteRefused as refused:
            raise self.refused(f"its statements get no tile loops: {refused.reason}") from None

    def _weighed(self, model: CostModel, ranges: Mapping[str, int]) -> Found:
        """What the model says of the tile that is given."""
        choice = self.choice
        for name, size in choice.sizes.items():
            if name in ranges and size > ranges[name]:
                over = size - ranges[name]
                reason = f"{name} has {ranges[name]} points, the tile {size}: {over} too many"
                raise self.refused(reason, f"sizes.{name}")
        loops = model.order if isinstance(model, ExplicitRoofline) else model.indices
        level = (LEVEL,) if isinstance(model, ExplicitRoofline) else ()
        self._check_names("order", choice.order, (*loops, *level))
        if len(set(choice.order)) < len(choice.order):
            raise self.refused("it names an index twice", "order")
        first = (n for n in loops if n not in choice.order)
        orders = ((*first, *choice.order),) if choice.order else None
        return search(model, 1 << 20, given={**ranges, **choice.sizes}, orders=orders)

    def _check_names(self, field: str, names: Iterable[str], known: Iterable[str]) -> None:
        self._check(field, names, known, "no index '{}' can be tiled")

    def _check(self, field: str, names: Iterable[str], known: Iterable[str], reason: str) -> None:
        known = list(known)
        for name in names:
            if name not in known:
                raise self.refused(reason.format(name), field, *did_you_mean(name, known))

    def _too_large(self, model: ExplicitRoofline, found: Found) -> CompileError:
        """The error for a tile that does not fit, with the largest size of one index that would."""
        least = smallest(found)
        capacity, resource = found.limits[least.exceeded]
        assert capacity is not None
        reason = f"it needs {least.needed} of {capacity} {resource}: {least.needed - capacity} too many"
        fitting: list[tuple[int, str, int]] = []
        for name, size in least.sizes.items():
            tried = np.arange(1, min(size, MOST_TRIED + 1))
            if len(tried):
                sizes = {n: np.full(len(tried), s) for n, s in least.sizes.items()} | {name: tried}
                fits = np.broadcast_to(model.evaluate(sizes, model.order).fits, (len(tried),))
                if fits.any():
                    largest = int(tried[fits].max())
                    fitting.append((prod(least.sizes.values()) // size * largest, name, largest))
        if not fitting:
            note = "help: no smaller size of one index is enough: lessen several"
            return self.refused(reason, "sizes", note)
        _, name, largest = max(fitting, key=lambda entry: entry[0])
        return self.refused(reason, "sizes", f"help: with {name}: {largest} it fits")
