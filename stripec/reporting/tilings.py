"""The tiles of a kernel over its tensors (Stripe paper, Figures 2 and 4).

Of each block on the way to the innermost one whose points touch parts of a tensor: the tensor, and in two
of its dimensions the part of each point. Where parts overlap, there is a halo; where they overhang,
constraints leave out what lies outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.ir import Block, Direction, Refinement
from stripec.reporting.figures import TensorTiles, Tiling
from stripec.reporting.nests import at, drawn, positions
from stripec.reporting.paths import Seen, Step, way

MAX_LEVELS = 3  # of tiles shown for a kernel
MAX_TILES = 400  # drawn over one tensor


def tilings(
    root: Block, kernel: Block, number: int, hw: HwConfig, memories: Mapping[str, str]
) -> Iterator[Tiling]:
    """The levels of tiles of one kernel, outermost first; none where its points touch single elements at
    once."""
    home = hw.home.name if hw.home is not None else (hw.memories[-1].name if hw.memories else "")
    whole = {ref.name: ref for ref in root.refinements}
    made = 0
    for step in way(root, kernel, memories, home):
        if made == MAX_LEVELS:
            return
        tensors = tuple(_tensors(step, whole))
        cut = any(size > 1 for size in step.block.ranges.values())
        if not (cut and step.block.children and any(t.step != (0, 0) for t in tensors)):
            continue
        made += 1
        indexes = tuple((n, size) for n, size in step.block.ranges.items() if size > 1)
        yield Tiling(number, f"{root.name}/{kernel.name}", step.block.name, indexes, tensors)


def _tensors(step: Step, whole: Mapping[str, Refinement]) -> Iterator[TensorTiles]:
    done: set[str] = set()
    for seen in step.seen:
        row = seen.track.row
        if (
            row in whole
            and row not in done
            and seen.origin is not None
            and seen.ref.direction is not Direction.NEW
        ):
            done.add(row)
            yield _tiles(seen, seen.origin, whole[row], step)


def _tiles(seen: Seen, origin: Sequence[Affine], tensor: Refinement, step: Step) -> TensorTiles:
    shape, size = tensor.shape, seen.ref.shape
    cut = {d: 1 for d, (own, all_) in enumerate(zip(size, shape, strict=False)) if own < all_}
    dims = drawn(shape, cut)
    exprs = (_in(origin, dims[0]), _in(origin, dims[1]))
    starts, more = positions(exprs, step.ranges, MAX_TILES)
    ranges = {name: n for name, n in step.ranges.items() if n > 1}
    covered = None
    if more:
        first = {name: min(n, 4) for name, n in ranges.items()}
        starts = positions(exprs, first, MAX_TILES)[0]
        (top, bottom), (left, right) = (_span(expr, ranges) for expr in exprs)
        covered = (top, left), (bottom + at(size, dims[0]), right + at(size, dims[1]))
    values = [sorted({s[k] for s in starts}) for k in (0, 1)]
    others = ", ".join(
        f"all {shape[d]}" if size[d] >= shape[d] else f"{size[d]} of {shape[d]}"
        for d in range(len(shape)) if d not in dims
    )  # fmt: skip
    return TensorTiles(
        tensor.name, seen.track.memory, dims, (at(shape, dims[0]), at(shape, dims[1])),
        (at(size, dims[0]), at(size, dims[1])), (_step(values[0]), _step(values[1])), starts,
        covered, others, seen.ref.direction.writes,
    )  # fmt: skip


def _in(origin: Sequence[Affine], dim: int) -> Affine:
    return origin[dim] if dim >= 0 else Affine()


def _span(expr: Affine, ranges: Mapping[str, int]) -> tuple[int, int]:
    """The least and the most of an affine of these indexes."""
    ends = [expr.coefficient(name) * (n - 1) for name, n in ranges.items()]
    return expr.const + sum(min(0, end) for end in ends), expr.const + sum(max(0, end) for end in ends)


def _step(values: Sequence[int]) -> int:
    return values[1] - values[0] if len(values) > 1 else 0
