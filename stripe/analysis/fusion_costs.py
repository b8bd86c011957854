"""What a group of blocks costs on a target, apart and in tiles of the consumer: a roofline.

Work is counted in vector operations at the rate of the unit, or in instructions on registers that hold
rows, and is that of the tiles, with what is computed again. A buffer travels from the nearest memory that
holds all of it, through all that are nearer; apart, a private buffer comes from the nearest that holds all
that its producers read and write, as that comes by before it is read, and in tiles from the nearest that
holds what a tile touches. What several buffers need of one memory adds up. The longest of these hides most
of the others within a block, but one block does not hide another: apart, the times of the blocks add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod

import numpy as np

from hwconfigs.model import HwConfig, own_cache
from stripe.analysis.bounds import Counts, Operand, extents, leaves, operands
from stripe.analysis.cost_blocks import best_blocks
from stripe.analysis.cost_problem import TILE_CYCLES, Costs, combine
from stripe.analysis.cost_rows import fetched_bytes
from stripe.analysis.cost_sets import usable_bytes
from stripe.analysis.fusion_shapes import Refused, Shapes, count, pick
from stripe.analysis.groups import grouped
from stripe.analysis.lanes import lane_candidates, vector_width
from stripe.analysis.work import vector_operations
from stripe.ir import Block
from stripe.locks import cached_property
from stripe.visit import View

PASSES = 1 / 2  # of a memory: of a larger buffer, what the consumer reads passes by in parts
RUN_CYCLES = 4.0  # to begin and to end a run of lanes that a tile cuts
NEARER = 0.03  # of the cycles: what tiles may cost more that a core keeps for itself


def whole_steps(block: Block, views: Mapping[str, View], hw: HwConfig) -> dict[str, int]:
    """How many points along indexes of a block are done at once by instructions on registers that hold rows:
    by two along each, so that what is loaded is used twice."""
    found: dict[str, int] = {}
    for unit in hw.compute_units[:1]:
        for leaf in leaves(block, views):
            blocks = best_blocks(leaf, hw, unit)
            found |= {} if blocks is None else {name: 2 * most for name, most in blocks.most.items()}
    return found


class GroupCosts:
    """Cycles of a group, apart and in tiles of every candidate size."""

    def __init__(self, shapes: Shapes, hw: HwConfig) -> None:
        self._shapes = shapes
        self._hw = hw
        self._memories = tuple(m for m in hw.memories if m.kind != "registers")
        units = hw.compute_units
        if not units or not any(m.bytes_per_cycle for m in self._memories):
            raise Refused(f"the target '{hw.name}' does not say what memories and units do in a cycle")
        self._unit = units[0]
        self._fills = any(m.kind == "cached" for m in self._memories)
        views = shapes.scope.views
        self._leaves = [
            [(grouped(leaf), best_blocks(leaf, hw, self._unit)) for leaf in leaves(side.block, views)]
            for side in shapes.group
        ]
        self._operands = [self._external(side.block, views) for side in shapes.group]
        self.apart = float(sum(self._alone(at) for at in range(len(shapes.group))))
        self.together: Costs = np.broadcast_to(self._tiled(), shapes.tiles.shape)

    def best(self) -> int:
        """The cheapest candidate that is more than one tile; of equals the one with the largest tiles. Tiles
        that several units share out take as long as the last of them is at work. Those that a core's own
        caches hold may cost a little more than others, which wait for a shared one."""
        tiles, units = self._shapes.tiles, self._unit.count
        last = -(-tiles // units) * units / tiles
        cost = np.where(tiles > 1, self.together * last, inf)
        own = own_cache(self._hw.memories)
        room = usable_bytes(own) if own is not None else None
        if room is not None:
            held = np.where(self.box_bytes <= room, cost, inf)
            cost = held if held.min() <= (1 + NEARER) * cost.min() else cost
        order = np.lexsort((tiles, np.round(cost, 6)))
        return int(order[0])

    def _external(self, block: Block, views: Mapping[str, View]) -> list[tuple[str, Operand]]:
        """The operands of a block that are not private to the group, with their buffers."""
        found = [(block.refinement(o.name).source, o) for o in operands(block, views) if not o.local]
        return [(source, o) for source, o in found if source not in self._shapes.boxes]

    def _alone(self, at: int) -> float:
        """Cycles of a block of the group that has its buffers where they fit whole."""
        side = self._shapes.group[at]
        whole = {n: count(size) for n, size in side.block.ranges.items()}
        sizes = {buffer: self._shapes.scope.bytes[buffer] for buffer in side.by_buffer}
        held = {b: self._bytes_made if b in self._shapes.boxes else n for b, n in sizes.items()}
        moved = [(self._moved(at, b, np.asarray(n, float)), self._level(held[b])) for b, n in sizes.items()]
        return float(combine(self._work(at, whole), *self._delivered(moved)))

    @cached_property
    def _bytes_made(self) -> int:
        """The bytes of what the producers read and write."""
        buffers = {buffer for side in self._shapes.group[:-1] for buffer in side.by_buffer}
        return sum(self._shapes.scope.bytes[buffer] for buffer in buffers)

    def _delivered(self, moved: Sequence[tuple[Costs, Counts]]) -> list[Costs]:
        """How long each memory is busy with bytes that come from a level of memories: they pass all that are
        nearer."""
        nothing: Costs = np.asarray(0.0)
        return [
            sum((np.where(level >= at, size, 0.0) for size, level in moved), start=nothing) / rate
            for at, rate in enumerate(self._rates)
        ]

    def _moved(self, at: int, buffer: str, size: Costs) -> Costs:
        """Bytes that travel for a buffer: a line that is written comes into a cache first."""
        writes = any(access.writes for access in self._shapes.group[at].to(buffer))
        return size * 2.0 if writes and self._fills else size * 1.0

    def _tiled(self) -> Costs:
        shapes, scope = self._shapes, self._shapes.scope
        tiles = shapes.tiles
        sizes = [
            {n: np.minimum(s.extent, side.block.ranges[n]) for n, s in spans.items()}
            for side, spans in zip(shapes.group, shapes.spans, strict=True)
        ]
        outside = [
            [(b, self._level(scope.bytes[b]), self._in_lines(o, inside)) for b, o in own]
            for own, inside in zip(self._operands, sizes, strict=True)
        ]
        near = self._near([size for own in outside[:-1] for *_, size in own], outside[-1])
        total: Costs = np.asarray(0.0)
        for at, side in enumerate(shapes.group):
            work = (self._work(at, sizes[at]) * shapes.filled(at) + TILE_CYCLES) * tiles
            moved = [(self._moved(at, b, n) * tiles, level) for b, level, n in outside[at]]
            moved += [(self._moved(at, b, n) * tiles, near) for b, n in self._boxes.items() if side.to(b)]
            total = total + combine(work, *self._delivered(moved))
        return total

    def _near(self, made_of: Sequence[Costs], used: Sequence[tuple[str, Counts, Costs]]) -> Counts:
        """The position of the nearest memory that holds what a tile touches: its boxes, what producers make
        them of, and the buffers that the consumer has besides."""
        consumer = self._shapes.group[-1]
        written = {b for b, *_ in used if any(access.writes for access in consumer.to(b))}

        def touched(capacity: float) -> Costs:
            stays = (s if b in written else np.where(s > PASSES * capacity, 0.0, s) for b, _, s in used)
            return sum((*made_of, *stays), start=self.box_bytes)

        return self._nearest(touched)

    def _in_lines(self, operand: Operand, sizes: Mapping[str, Counts]) -> Costs:
        """Bytes of a tile of an operand in whole lines; rows that lie closer together share some."""
        apart = zip(extents(operand, sizes), operand.strides, strict=True)
        span = sum((size - 1) * abs(stride) for size, stride in apart) + 1
        return np.minimum(fetched_bytes(operand, sizes, self._hw.line_bytes), span * operand.dtype.bytes)

    @cached_property
    def _boxes(self) -> Mapping[str, Costs]:
        """The bytes of what a tile holds of each private buffer."""
        found: dict[str, Costs] = {}
        for buffer, box in self._shapes.boxes.items():
            elements = prod((span.extent for span in box), start=count(1))
            found[buffer] = np.asarray(elements * self._shapes.scope.refinement(buffer).dtype.bytes, float)
        return found

    @property
    def box_bytes(self) -> Costs:
        return sum(self._boxes.values(), start=np.asarray(0.0))

    def _work(self, at: int, sizes: Mapping[str, Counts]) -> Costs:
        """Cycles of the vector operations of a block at one tile, idle lanes included, or of its instructions
        on registers that hold rows. Where tiles cut the lane index, each run of lanes has a beginning and an
        end."""
        total: Costs = np.asarray(0.0)
        for leaf, blocks in self._leaves[at]:
            inside: dict[str, Counts] = {
                name: sizes.get(name, count(size)) for name, size in leaf.ranges.items()
            }
            if blocks is not None:
                inside |= {name: -(-inside[name] // most) for name, most in blocks.most.items()}
                total = total + prod(inside.values(), start=count(1)) * blocks.cycles
                continue
            lanes = lane_candidates(leaf, self._unit.vector_bytes)
            lane = lanes[0].index if lanes else ""
            width = vector_width(leaf.block, self._unit.vector_bytes)
            length = inside.pop(lane, count(1))
            runs = prod(inside.values(), start=count(1))
            each = -(-length // width) * (vector_operations(leaf) / self._unit.fma_per_cycle)
            ends = np.where(length < leaf.ranges.get(lane, 1), RUN_CYCLES, 0.0)
            total = total + runs * (each + ends)
        return total

    def _level(self, size: Costs | int) -> Counts:
        """The position of the nearest memory that holds `size` bytes."""
        return self._nearest(lambda _: np.asarray(size))

    def _nearest(self, needed: Callable[[float], Costs]) -> Counts:
        """The position of the nearest memory that holds what is needed of one with a capacity."""
        level = count(len(self._memories))
        for at in reversed(range(len(self._memories))):
            size = self._memories[at].bytes
            capacity = inf if size is None else size
            level = np.where(needed(capacity) <= capacity, at, level)
        return level

    @cached_property
    def _rates(self) -> Costs:
        """Bytes per cycle from each memory, and from none."""
        return np.asarray([m.bytes_per_cycle or inf for m in self._memories] + [inf])

    def explain(self, at: int) -> tuple[str, dict[str, object]]:
        shapes = self._shapes
        sizes = {n: int(column[at]) for n, column in shapes.sizes.items()}
        whole = {b: shapes.scope.bytes[b] for b in shapes.boxes}
        tile = int(np.broadcast_to(self.box_bytes, shapes.tiles.shape)[at])
        again = self.again(at)
        together = float(self.together[at])
        far = self._memory(int(self._level(max(whole.values()))))
        text = (
            f"tiles {' '.join(f'{n}:{s}' for n, s in sizes.items())} keep {tile} bytes of "
            f"{', '.join(whole)} instead of {sum(whole.values())} in {far}, compute "
            f"{again:.0%} again, and take {together:.4g} instead of {self.apart:.4g} cycles"
        )
        figures: dict[str, object] = {
            "tile": sizes,
            "bytes_whole": sum(whole.values()),
            "bytes_tile": tile,
            "computed_again": round(again, 4),
            "cycles_apart": self.apart,
            "cycles_together": together,
        }
        return text, figures

    def _memory(self, level: int) -> str:
        return self._memories[level].name if level < len(self._memories) else "no memory"

    def again(self, at: int) -> float:
        """The share of the producers' points that tiles add."""
        shapes = self._shapes
        once = often = 0.0
        for number, side in enumerate(shapes.group[:-1]):
            ranges, spans = side.block.ranges, shapes.spans[number]
            inside = prod((min(pick(s.extent, at), ranges[n]) for n, s in spans.items()), start=1)
            filled = np.broadcast_to(shapes.filled(number), shapes.tiles.shape)[at]
            often += inside * filled * pick(shapes.tiles, at)
            once += prod(ranges.values())
        return max(often / max(once, 1.0) - 1.0, 0.0)
