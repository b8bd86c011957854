"""Figures 2 and 4 of the Stripe paper: the tiles of one level over a tensor, halos darker."""

from __future__ import annotations

from markupsafe import Markup

from stripec.reporting.figures import TensorTiles
from stripec.reporting.svg import COLOURS, Svg

_WIDE, _HIGH = 250, 190
_LEFT, _TOP = 34, 22
_THIN = 3  # pixels of a tile below which its outline would be all that is seen
_CELLS = 48  # elements in a dimension, up to which each is drawn


def draw_tiles(tiles: TensorTiles, colours: dict[str, int]) -> Markup:
    """The tensor as a box, in it every tile, or where they all lie, and one of them marked."""
    extent, size, starts = tiles.extent, tiles.size, tiles.starts
    first, last = tiles.covered or ((0, 0), extent)
    low = [min(0, first[k], *(s[k] for s in starts)) for k in (0, 1)]
    high = [max(extent[k], last[k], *(s[k] + size[k] for s in starts)) for k in (0, 1)]
    scale = min(_WIDE / (high[1] - low[1]), _HIGH / (high[0] - low[0]), 24)
    across, down = max(scale, 24 / (high[1] - low[1])), max(scale, 24 / (high[0] - low[0]))
    x0, y0 = _LEFT - low[1] * across, _TOP - low[0] * down
    wide, tall = (high[1] - low[1]) * across, (high[0] - low[0]) * down
    svg = Svg(_LEFT + wide + 14, _TOP + tall + 14, f"tiles of {tiles.tensor}")
    if max(extent) <= _CELLS:
        cells = [
            (x0 + j * across, y0 + i * down, across, down)
            for i in range(extent[0]) for j in range(extent[1])
        ] if extent[0] * extent[1] <= _CELLS * _CELLS else []  # fmt: skip
        svg.outline(cells, "cell")
    svg.rect(x0, y0, extent[1] * across, extent[0] * down, "box")
    boxes = [(x0 + s[1] * across, y0 + s[0] * down, size[1] * across, size[0] * down) for s in starts]
    colour = f"k{colours.get(tiles.memory, 0) % COLOURS}"
    if tiles.covered:
        all_ = (last[1] - first[1]) * across, (last[0] - first[0]) * down
        svg.rects([(x0 + first[1] * across, y0 + first[0] * down, *all_)], f"tile {colour} bare")
    else:
        thin = min(min(box[2:]) for box in boxes) < _THIN
        svg.rects(boxes, f"tile {colour} bare" if thin else f"tile {colour}")
    svg.rect(*boxes[len(boxes) // 2], f"tile-one {colour}")
    svg.text(x0 + extent[1] * across / 2, _TOP - 8, _dim(tiles, 1), "small", "middle")
    svg.text(_LEFT - 12, y0 + extent[0] * down / 2, _dim(tiles, 0), "small", "middle", -90)
    return svg.markup()


def _dim(tiles: TensorTiles, which: int) -> str:
    dim = tiles.dims[which]
    return f"dim {dim}: {tiles.extent[which]}" if dim >= 0 else ""
