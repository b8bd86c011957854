"""The loop nest of each kernel against the memories (Stripe paper, Figure 3).

A column for each block on the way to the innermost one; in it, for each tensor, what one point touches, in
the box of what one point of the block around touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.ir import Block, Direction
from stripec.reporting.figures import Level, Nest, NestRow, Region
from stripec.reporting.paths import Step, beside, hottest, way

MAX_STARTS = 256  # regions drawn in one box
MAX_LEVELS = 10
SHORT = 8  # elements of a dimension that is drawn only where no longer one is


def nest(root: Block, kernel: Block, number: int, hw: HwConfig, memories: Mapping[str, str]) -> Nest:
    """The drawing of one kernel of a root."""
    home = hw.home.name if hw.home is not None else (hw.memories[-1].name if hw.memories else "")
    steps = list(way(root, kernel, memories, home))[:MAX_LEVELS]
    rows = _rows(steps)
    known = {row.name: row.dims for row in rows}
    levels = [_whole(root, kernel, memories, home, hw)]
    levels += [_level(step, known, hw) for step in steps]
    return Nest(number, f"{root.name}/{kernel.name}", rows, tuple(levels))


def _rows(steps: Sequence[Step]) -> tuple[NestRow, ...]:
    """A row for each tensor, with the two dimensions that the levels cut most."""
    shapes: dict[str, tuple[int, ...]] = {}
    cut: dict[str, dict[int, int]] = {}
    local: set[str] = set()
    for step in steps:
        for seen in step.seen:
            row = seen.track.row
            if row not in shapes and seen.ref.direction is Direction.NEW:
                local.add(row)
            shapes.setdefault(row, seen.box)
            first = cut.setdefault(row, {})
            for dim, (own, outer) in enumerate(zip(seen.ref.shape, seen.box, strict=False)):
                if own < outer:
                    first.setdefault(dim, step.depth)
    return tuple(
        NestRow(row, drawn(shape, cut[row]), "lives in the nest" if row in local else "")
        for row, shape in shapes.items()
    )


def drawn(shape: Sequence[int], cut: Mapping[int, int]) -> tuple[int, int]:
    """The two dimensions to draw, down and across: the first two of those that are cut into parts at the
    outermost level (`cut` has the level), then of those cut below it, then the largest. Of those cut at one
    level, short ones, such as those of a window, come last.

    -1 stands for a dimension of extent 1 that a vector or a scalar lacks.
    """
    never = 1 << 30

    def rank(dim: int) -> tuple[int, bool, int, int]:
        return cut.get(dim, never), shape[dim] < SHORT, 0 if dim in cut else -shape[dim], dim

    chosen = sorted(sorted(range(len(shape)), key=rank)[:2])
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    return (-1, chosen[0]) if chosen else (-1, -1)


def at(shape: Sequence[int], dim: int) -> int:
    """The extent in a drawn dimension."""
    return shape[dim] if dim >= 0 else 1


def _whole(root: Block, kernel: Block, memories: Mapping[str, str], home: str, hw: HwConfig) -> Level:
    """The first column: the whole tensors that the kernel uses."""
    views = {ref.name: ref for ref in root.refinements}
    used = list(dict.fromkeys(r.source for r in kernel.refinements if r.direction is not Direction.NEW))
    regions = tuple(
        Region(
            name, name, memories.get(name) or home, views[name].dtype.value, views[name].shape,
            views[name].shape, ((0, 0),), False, views[name].bytes, False,
        )
        for name in used if name in views
    )  # fmt: skip
    return Level(root.name, (), 1, "", 1, (), regions, (), _fits(regions, 1, hw))


def _level(step: Step, dims: Mapping[str, tuple[int, int]], hw: HwConfig) -> Level:
    block, lanes = step.block, _lanes(step.block, hw)
    regions = tuple(_regions(step, dims, lanes))
    tags = tuple(str(tag) for tag in block.tags)
    return Level(
        block.name, tuple(block.ranges.items()), block.points, step.unit, block.inflight, tags,
        regions, beside(block, hottest(block)), _fits(regions, block.inflight, hw),
        ", ".join(f"{count} lanes along {index}" for index, count in lanes.items()),
    )  # fmt: skip


def _lanes(block: Block, hw: HwConfig) -> dict[str, int]:
    """The index along which native code runs vectors of a leaf, and how many elements they have."""
    unit = hw.compute_unit
    if hw.executor != "cpu" or unit is None or block.children or not block.refinements:
        return {}
    width = max(1, unit.vector_bytes // max(ref.dtype.bytes for ref in block.refinements))
    ranges = block.ranges
    return {index: min(width, ranges[index]) for index in block.tag_values("vector") if index in ranges}


def _regions(step: Step, dims: Mapping[str, tuple[int, int]], lanes: Mapping[str, int]) -> Iterator[Region]:
    ranges = {name: -(-size // lanes.get(name, 1)) for name, size in step.block.ranges.items()}
    vectors = {name: Affine.index(name, count) for name, count in lanes.items()}
    for seen in step.seen:
        ref, row, shape = seen.ref, seen.track.row, seen.ref.shape
        made = ref.direction is Direction.NEW
        starts: tuple[tuple[int, int], ...] = ((0, 0),)
        dense = False
        if not made:
            shape = tuple(_wide(size, e, lanes) for size, e in zip(shape, ref.access, strict=True))
            exprs = [ref.access[d].substitute(vectors) if d >= 0 else Affine() for d in dims[row]]
            starts, dense = positions((exprs[0], exprs[1]), ranges)
        yield Region(
            row, ref.name, seen.track.memory, ref.dtype.value, shape, seen.box, starts, dense,
            prod(shape) * ref.dtype.bytes, made,
        )  # fmt: skip


def _wide(size: int, expr: Affine, lanes: Mapping[str, int]) -> int:
    """What all lanes together touch in a dimension."""
    return size + sum(abs(expr.coefficient(name)) * (count - 1) for name, count in lanes.items())


def positions(
    exprs: tuple[Affine, Affine], ranges: Mapping[str, int], limit: int = MAX_STARTS
) -> tuple[tuple[tuple[int, int], ...], bool]:
    """The values of two expressions over the ranges, without passed indexes; and whether some are left
    out."""
    own = set(ranges)
    used = [name for name in ranges if any(e.coefficient(name) for e in exprs) and ranges[name] > 1]
    total = prod(ranges[name] for name in used)
    fixed = dict.fromkeys({n for e in exprs for n in e.names} - set(used), 0)
    kept = [e.only(own) + e.const for e in exprs]
    found: dict[tuple[int, int], None] = {}
    if total > 16 * limit:
        return ((kept[0].const, kept[1].const),), True
    for values in product(*(range(ranges[name]) for name in used)):
        point = dict(zip(used, values, strict=True)) | fixed
        found[kept[0].evaluate(point), kept[1].evaluate(point)] = None
        if len(found) > limit:
            return tuple(found)[:1], True
    return tuple(found), False


def _fits(regions: Sequence[Region], slots: int, hw: HwConfig) -> str:
    """Where a level keeps what it touches: its own buffers in the memories that programs fill, and the
    nearest cache that would hold everything."""
    held: dict[str, int] = {}
    for region in regions:
        memory = hw.memory(region.memory)
        if region.made and memory is not None and memory.bytes is not None:
            held[memory.name] = held.get(memory.name, 0) + region.bytes * slots
    said = [f"{name}: {size:,} of {_capacity(hw, name)} B" for name, size in held.items()]
    total = sum(r.bytes for r in regions if not r.made)
    caches = [m for m in hw.caches if m.bytes is not None]
    if caches:
        nearest = next((m.name for m in caches if total <= (m.bytes or 0)), "no cache")
        said.append(f"{total:,} B touched: fits in {nearest}")
    return "; ".join(said)


def _capacity(hw: HwConfig, name: str) -> str:
    memory = hw.memory(name)
    return f"{memory.bytes:,}" if memory is not None and memory.bytes is not None else "any"
