"""Figure 3 of the Stripe paper: for one tensor, what each level of a nest touches, each part magnified in
the next column."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from stripec.reporting.figures import Nest, NestRow, Region
from stripec.reporting.svg import COLOURS, Svg
from stripec.reporting.words import bytes_text, shape_text

COLUMN = 194  # pixels: five of them fit beside the names on a laptop
_WIDE, _HIGH = 132, 84
_TOP = 14
_LEAST = 26  # pixels of a box that is cut: small dimensions are stretched
_THIN = 2.5  # pixels of a part below which lines between parts would be all that is seen
_SEEN = 3  # pixels of the filled part at least
_ONE = 9  # pixels of one that is a single element wide
_HEIGHT = 156


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the box of a column lies, and the scale inside it."""

    x: float
    y: float
    wide: float
    high: float
    down: float
    across: float

    def part(self, start: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float]:
        return (
            self.x + start[1] * self.across, self.y + start[0] * self.down,
            size[1] * self.across, size[0] * self.down,
        )  # fmt: skip


def draw_row(nest: Nest, row: NestRow, colours: dict[str, int]) -> Markup:
    """One tensor of a nest, through all columns."""
    svg = Svg(COLUMN * len(nest.levels), _HEIGHT, f"{row.name}: what each level of {nest.kernel} touches")
    before: tuple[float, float, float, float] | None = None
    for column, level in enumerate(nest.levels):
        regions = [r for r in level.regions if r.row == row.name]
        if not regions:
            before = None
            continue
        main = next((r for r in regions if not r.made), regions[0])
        frame, starts = _frame(main, row, column)
        if before is not None:
            x, y, w, h = before
            svg.line(x + w, y, frame.x, frame.y, "zoom")
            svg.line(x + w, y + h, frame.x, frame.y + frame.high, "zoom")
        before = _column(svg, column, frame, (main, regions), _parts(frame, main, row, starts), colours)
    return svg.markup()


def _pair(shape: tuple[int, ...], row: NestRow) -> tuple[int, int]:
    down, across = (shape[d] if 0 <= d < len(shape) else 1 for d in row.dims)
    return down, across


def _frame(region: Region, row: NestRow, column: int) -> tuple[_Frame, list[tuple[int, int]]]:
    """The box, scaled to its place; parts that overhang are inside that place, too."""
    box, size = _pair(region.box, row), _pair(region.shape, row)
    starts = list(region.starts)
    low = [min(0, *(s[k] for s in starts)) for k in (0, 1)]
    high = [max(box[k], *(s[k] + size[k] for s in starts)) for k in (0, 1)]
    scale = min(_WIDE / (high[1] - low[1]), _HIGH / (high[0] - low[0]))
    across, down = (max(scale, (_LEAST if size > 1 else _ONE) / size) for size in (box[1], box[0]))
    wide, tall = (high[1] - low[1]) * across, (high[0] - low[0]) * down
    x = COLUMN * column + 10 + max(0.0, _WIDE - wide) / 2 - low[1] * across
    y = _TOP + max(0.0, _HIGH - tall) / 2 - low[0] * down
    return _Frame(x, y, box[1] * across, box[0] * down, down, across), starts


def _parts(
    frame: _Frame, region: Region, row: NestRow, starts: list[tuple[int, int]]
) -> list[tuple[float, float, float, float]]:
    return [frame.part(start, _pair(region.shape, row)) for start in starts]


def _column(
    svg: Svg,
    column: int,
    frame: _Frame,
    held: tuple[Region, list[Region]],
    parts: list[tuple[float, float, float, float]],
    colours: dict[str, int],
) -> tuple[float, float, float, float]:
    """The box of a column with its parts; the one in the middle is filled, and its place comes back."""
    main, regions = held
    colour = f"k{colours.get(main.memory, 0) % COLOURS}"
    chosen = parts[len(parts) // 2]
    if main.dense or (len(parts) > 1 and min(chosen[2:]) < _THIN):
        svg.rect(frame.x, frame.y, frame.wide, frame.high, "dense")
    else:
        svg.outline(parts, "part")
    svg.rect(frame.x, frame.y, frame.wide, frame.high, "box")
    title = f"{main.buffer}: {main.dtype}({', '.join(map(str, main.shape))}) in {main.memory}"
    x, y, w, h = chosen
    svg.rect(x, y, max(w, _SEEN), max(h, _SEEN), f"fill {colour}", title)
    x, y = COLUMN * column + 10, _TOP + _HIGH + 22
    svg.text(x, y, f"{shape_text(main.shape)}  {main.dtype}", "label")
    lines = [f"{bytes_text(main.bytes)} in {main.memory or 'no memory yet'}"]
    lines += [f"{r.buffer} in {r.memory}" for r in regions if r.made and r is not main]
    for number, text in enumerate(lines[:2], start=1):
        svg.text(x, y + 14 * number, text[:34], "small")
    return chosen
