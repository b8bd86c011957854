"""What a cost model is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis.bounds import Counts, Leaf, Operand, Sizes, Views, leaves, operands
from stripe.analysis.cost_sizes import SizeRule
from stripe.analysis.groups import group_index, grouped
from stripe.analysis.work import vector_operations
from stripe.ir import Aggregation, Block, Direction
from stripe.locks import cached_property

Costs: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# Work that could overlap never does so wholly: this share of all but the longest part is added.
OVERLAP = 0.2
FETCHED_AHEAD = 0.1  # the same for bytes that are fetched ahead of their use
TILE_CYCLES = 20.0  # to set up the loops of one tile
RUN_CYCLES = 4.0  # until what is fetched ahead has caught up with a run of lines that begins elsewhere
APART_SHARE = (
    0.2  # of the time until a memory answers: what a core waits for it, several lines being on the way
)
ASKED_FOR = 1 / 8  # of what a run of lines costs that was asked for long before
ANSWER_CYCLES = 50.0  # of a memory whose latency is not known
# That it waits for a run that is stored, which nothing needs, or that loops of tiles in registers ask for
# ahead: others are on the way.
APART_CYCLES = 10.0
RUNS = "runs"  # what these waits are called among the parts of a cost
NEAR_RUNS = "near runs"  # those for the cache next to the nearest one


@dataclass(frozen=True)
class Problem:
    """A block to tile so that a tile fits in a memory of a target.

    `outer` are the views of the block's parent. `names` limits the indexes that may be tiled (all
    if empty, but reduction indexes only if `reductions` says so; None: in explicit memories).
    `fixed` says whether operands that no such index reaches count. `limits` are further memories
    that a tile must fit in. For explicit memories, `accumulators` holds what is aggregated, and
    `inflight` tiles are alive together; the operands in `bypass` are not brought into the memory. `around`
    are memories that tiles around the block fit in, and `units` as many units execute such blocks side by
    side, each with an instance of the memory. Of the operands in `constant`, copies are made at load time;
    those in `far` are views of what a core's own caches do not hold. `in_tile`: the block is the inside of a
    tile. `path` are the blocks around it, but for the root.
    """

    block: Block
    outer: Views
    hw: HwConfig
    memory: Memory
    names: tuple[str, ...] = ()
    reductions: bool | None = None
    fixed: bool = False
    rule: SizeRule = "all"
    limits: tuple[Memory, ...] = ()
    accumulators: Memory | None = None
    inflight: int = 1
    bypass: tuple[str, ...] = ()
    constant: frozenset[str] = frozenset()
    far: frozenset[str] = frozenset()
    around: frozenset[str] = frozenset()
    units: int = 1
    in_tile: bool = False
    path: tuple[Block, ...] = ()

    @cached_property
    def ranges(self) -> dict[str, int]:
        return self.block.ranges

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        return operands(self.block, self.outer)

    @cached_property
    def ungrouped(self) -> tuple[Leaf, ...]:
        return leaves(self.block, self.outer)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(map(grouped, self.ungrouped))

    @cached_property
    def lead(self) -> Leaf | None:
        """The leaf that does most of the work."""
        return max(self.leaves, key=lambda f: f.points * max(1, vector_operations(f)), default=None)

    @cached_property
    def reduced(self) -> frozenset[str]:
        """The block's indexes that some aggregated result does not depend on."""
        written = [
            o.indexes for o in self.operands if o.direction.writes and o.aggregation is not Aggregation.ASSIGN
        ]
        return frozenset(n for n in self.ranges if any(n not in indexes for indexes in written))

    @cached_property
    def summed(self) -> frozenset[str]:
        """Those of them that tiles of a cache keep whole, unless asked for: what another leaf than the
        leading one reduces over, it adds to its result tile by tile."""
        if self.memory.kind != "cached" or self.lead is None:
            return self.reduced
        return self.reduced & {*self.lead.reductions, *self.groups}

    @cached_property
    def groups(self) -> frozenset[str]:
        """The indexes that instructions take in one go."""
        return frozenset(
            group
            for raw, own in zip(self.ungrouped, self.leaves, strict=True)
            if own is not raw and (group := group_index(raw))
        )

    @cached_property
    def in_one_order(self) -> bool:
        """Whether one order of the indexes that are reduced over goes along memory in all inputs. Else some
        are copied to be read in the order of the others."""
        names = [n for n in self.reduced - self.groups if self.ranges[n] > 1]
        inputs = [o for o in self.operands if o.direction is Direction.IN]
        return not any(
            abs(one.stride(a)) > abs(one.stride(b)) > 0 and abs(other.stride(b)) > abs(other.stride(a)) > 0
            for a, b in permutations(names, 2)
            for one, other in combinations(inputs, 2)
        )

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """The indexes that may be tiled, in order."""
        return tuple(
            name
            for name, size in self.ranges.items()
            if size > 1 and (name in self.names if self.names else self.reductions or name not in self.summed)
        )

    @cached_property
    def counted(self) -> tuple[Operand, ...]:
        """The operands whose tiles count."""
        reach = frozenset(self.indices)
        return tuple(o for o in self.operands if self.fixed or o.local or o.indexes & reach)

    @cached_property
    def unit(self) -> Unit | None:
        """The first compute unit that reaches the memory."""
        units = self.hw.compute_units
        return next((u for u in units if self.memory.name in u.reaches), units[0] if units else None)

    def complete(self, sizes: Sizes) -> Sizes:
        """Sizes for every index of the block: those that are not given stay whole."""
        return {**self.ranges, **sizes}

    def tiles(self, sizes: Sizes) -> Counts:
        """How many tiles there are."""
        return prod(
            (-(-self.ranges[n] // np.asarray(size, np.int64)) for n, size in sizes.items()),
            start=np.asarray(1, np.int64),
        )

    @property
    def memory_line(self) -> int:
        """Bytes that come from memory together: the line of the nearest cache at or behind the
        memory, 1 if there is none."""
        levels = [self.memory, *(level for level, _ in self.farther())]
        return next((m.line_bytes for m in levels if m.kind == "cached"), 1)

    def farther(self) -> list[tuple[Memory, float]]:
        """From the memory outwards: each level that holds data for a time, with the bytes per
        cycle at which the next farther one fills it."""
        by_name = {m.name: m for m in self.hw.memories}
        found: list[tuple[Memory, float]] = []
        level: Memory | None = self.memory
        while level is not None and level.backing in by_name and len(found) < len(by_name):
            behind = by_name[level.backing]
            if behind.bytes_per_cycle:
                found.append((level, behind.bytes_per_cycle))
            level = behind
        return found

    @property
    def nearest_cache(self) -> Memory | None:
        """The level behind the memory, if that is a cache."""
        levels = self.farther()[1:]
        return levels[0][0] if levels and levels[0][0].kind == "cached" else None

    @property
    def fetches_deep(self) -> bool:
        """Whether each load that goes along a row has that row fetched far ahead."""
        return self.unit is not None and "fetches_deep" in self.unit.capabilities


@dataclass(frozen=True)
class Limit:
    """What candidates need of a resource of which there is so much: one entry each, or one for all."""

    needed: Counts
    capacity: int | None
    resource: str


@dataclass(frozen=True)
class Evaluation:
    """Costs of candidates, one entry each, and what they need of the resources that limit them.

    `parts` are cycles of the whole block by what is busy with it, as far as the model tells them apart;
    `computing` those of the unit, if it never had to wait for bytes.
    """

    cost: Costs
    limits: tuple[Limit, ...]
    parts: Mapping[str, Costs] = field(default_factory=dict)
    computing: Costs | None = None

    @property
    def needed(self) -> Counts:
        return self.limits[0].needed

    @cached_property
    def fits(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        found: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(True)
        for limit in self.limits:
            if limit.capacity is not None:
                found = found & (limit.needed <= limit.capacity)
        return found


def way_in(memory: Memory) -> str:
    """What the bytes that come into a memory are called among the parts of a cost."""
    return f"{memory.backing} to {memory.name}"


def answer_cycles(memory: Memory | None) -> float:
    """How long it takes until a memory answers."""
    return memory.latency_cycles if memory is not None and memory.latency_cycles else ANSWER_CYCLES


def apart_waits(hw: HwConfig, memory: Memory) -> tuple[float, float]:
    """How long arithmetic waits for a run of lines that begins elsewhere, on its way into tiles of a cache
    behind the nearest one, as it is not fetched ahead: for one that is read, and for one that is written."""
    each = APART_SHARE * answer_cycles(hw.memory(memory.backing or ""))
    return each, min(each, APART_CYCLES)


class CostModel(Protocol):
    """A cost model, made for one problem.

    `unit` says what a cost counts. `choices` gives the sizes worth a look for each index, `orders` the
    orders of the tile loops. Costs and needs grow with what a tile holds and with the number of
    tiles, and the two move against each other as sizes grow; so taking what a tile holds from the
    least sizes of a box, and the number of tiles from the greatest, bounds all that is in the box.
    That is how `evaluate` finds bounds, and why a search can leave out whole boxes.
    """

    unit: str

    @property
    def problem(self) -> Problem: ...

    @property
    def indices(self) -> tuple[str, ...]:
        """The indexes that it would tile, in order."""
        ...

    def refusal(self) -> str:
        """Why there is nothing to tile, as a clause; empty if there is."""
        ...

    def choices(self) -> dict[str, tuple[int, ...]]:
        """For each of `indices`, ascending."""
        ...

    def orders(self) -> tuple[tuple[str, ...], ...]:
        """The orders of the tile loops that are worth a look, outermost index first; at least one."""
        ...

    def evaluate(self, sizes: Sizes, order: Sequence[str], upto: Sizes | None = None) -> Evaluation:
        """`sizes` of the indexes in `choices`, for tiles visited in `order`, outermost first.

        With `upto`: what no candidate from `sizes` to `upto` stays below, in cost and in needs.
        """
        ...

    def untiled(self, sizes: Mapping[str, int]) -> float:
        """The cost that a tile of these sizes must stay below to be worth its loops."""
        ...

    def inner_order(self, leaf: Leaf) -> tuple[str, ...]:
        """The order in which the points of a tile should be visited; empty leaves it."""
        ...

    def settled_lane(self, leaf: Leaf) -> str:
        """The lane index of a leaf that reads inputs from copies which are still to be made: as they lie now,
        another might be better. Else empty."""
        ...


def combine(*parts: Costs, share: float = OVERLAP) -> Costs:
    """The time of parts that run side by side, where the longest hides most of the others."""
    stacked = np.stack(np.broadcast_arrays(*parts))
    longest: Costs = stacked.max(axis=0)
    total: Costs = longest + share * (stacked.sum(axis=0) - longest)
    return total


def inner_orders(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The block's own order of its indexes, then each index once as the innermost tile loop: what
    does not depend on it stays."""
    orders = [(*(n for n in names if n != inner), inner) for inner in names]
    return tuple(dict.fromkeys([tuple(names), *orders]))
