"""The Pareto plot: two objectives over each other, as one SVG file that needs nothing else.

Points on the front are filled and joined, and named by what they set; others are named where there is
room. What a point sets and costs is shown where the pointer rests on it. Light and dark.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, inf, log2, log10
from typing import Any

from stripec.exploring.result import Exploration, Point
from stripec.reporting.svg import Linear, Log, Svg

_LEFT, _TOP, _WIDE, _HIGH, _RIGHT, _FOOT = 84, 44, 640, 400, 24, 70
_LETTER, _LINE = 6.7, 13  # of small text, in pixels
_SPOT = 6  # pixels: what is nearer is one spot
_PLAIN = 100_000  # counts below that have no prefix
_MOST_NAMES = 24  # of spots beside the front
_PREFIXES = [
    (10.0**power, letter)
    for power, letter in zip(range(-12, 15, 3), ("p", "n", "u", "m", "", "k", "M", "G", "T"), strict=True)
]

_Box = tuple[float, float, float, float]  # left, top, right, bottom
_Anchor = tuple[float, float, str]  # of a text: where, and which end of it

_STYLE = """
svg { --paper: #fff; --ink: #222; --pale: #e4e4e4; --soft: #666; --dot: #8fa3b8; --front: #c4501b;
  background: var(--paper); font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #16181c; --ink: #e6e6e6; --pale: #2c3037; --soft: #a0a4aa; --dot: #5f7389;
    --front: #ff9d5c; }
}
text { fill: var(--ink); } .title { font-weight: 600; font-size: 14px; } .small { font-size: 11px; }
.soft { font-size: 11px; fill: var(--soft); } .plot { fill: none; stroke: var(--soft); }
.grid { stroke: var(--pale); } .dot { fill: var(--dot); }
.best { fill: var(--front); stroke: var(--paper); }
.front { fill: none; stroke: var(--front); stroke-width: 1.5; }
"""


def draw(found: Exploration) -> str | None:
    """The plot of the first two objectives; None where there is one alone, or no point to show."""
    points = [point for point in found.points if point.objectives]
    if len(found.objectives) < 2 or not points:
        return None
    across, up = found.objectives[:2]
    xs = [point.objectives[across.name] for point in points]
    ys = [point.objectives[up.name] for point in points]
    leading = leading_fields(found)
    foot = textwrap.wrap(f"named by {', '.join(leading)}", int(_WIDE / _LETTER), break_on_hyphens=False)
    high = _TOP + _HIGH + _FOOT + 16 * len(foot)
    svg = Svg(_LEFT + _WIDE + _RIGHT, high, f"{up.name} over {across.name}")
    x = _scale(xs, _LEFT, _LEFT + _WIDE)
    y = _scale(ys, _TOP + _HIGH, _TOP)
    _axes(svg, x, y, (across.name, across.unit), (up.name, up.unit))
    places = {p.number: (x(a), y(b)) for p, a, b in zip(points, xs, ys, strict=True)}
    best = sorted((p for p in points if p.front), key=lambda p: places[p.number])
    stairs = _front(svg, [places[p.number] for p in best]) if len(found.objectives) == 2 else []
    for point in sorted(points, key=lambda p: p.front):
        at = places[point.number]
        svg.circle(*at, 5 if point.front else 3.5, "best" if point.front else "dot", _title(found, point))
    names = {point.number: name(point, leading) for point in points}
    _labels(svg, [*best, *(p for p in points if not p.front)], names, places, stairs)
    svg.text(_LEFT, 22, f"{', '.join(found.programs)} on {found.target}"[:100], "title")
    unmapped = len(found.points) - len(points)
    of = f"{len(points)} points, {len(best)} on the front" + (
        f"; {unmapped} more have no mapping" if unmapped else ""
    )
    svg.text(_LEFT, _TOP + _HIGH + 58, of, "soft")
    for number, line in enumerate(foot):
        svg.text(_LEFT, _TOP + _HIGH + 74 + 16 * number, line, "soft")
    head, rest = str(svg.markup()).split("</title>", 1)
    return f"{head}</title><style>{_STYLE}</style>{rest}\n"


def _scale(values: Sequence[float], start: float, end: float) -> Log | Linear:
    return Log(min(values), max(values), start, end) if min(values) > 0 else Linear(max(values), start, end)


def _axes(svg: Svg, x: Log | Linear, y: Log | Linear, across: tuple[str, str], up: tuple[str, str]) -> None:
    before = -inf
    for mark in _marks(x, across[1]):
        svg.line(x(mark), _TOP, x(mark), _TOP + _HIGH, "grid")
        text = quantity(mark, across[1])
        if x(mark) - before > (len(text) + 2) * _LETTER:
            svg.text(x(mark), _TOP + _HIGH + 16, text, "small", "middle")
            before = x(mark)
    for mark in _marks(y, up[1]):
        svg.line(_LEFT, y(mark), _LEFT + _WIDE, y(mark), "grid")
        svg.text(_LEFT - 6, y(mark) + 4, quantity(mark, up[1]), "small", "end")
    svg.rect(_LEFT, _TOP, _WIDE, _HIGH, "plot")
    svg.text(_LEFT + _WIDE / 2, _TOP + _HIGH + 36, titled(*across), "", "middle")
    svg.text(18, _TOP + _HIGH / 2, titled(*up), "", "middle", -90)


def titled(name: str, unit: str) -> str:
    """The name of an axis, with the unit where its marks don't show it."""
    return f"{name} ({unit})" if unit in ("cycles", "points/cycle", "pJ cycles") and name != unit else name


def _marks(scale: Log | Linear, unit: str) -> list[float]:
    """Round values on a scale: powers of two of bytes, equal steps where the scale is short."""
    if isinstance(scale, Linear):
        return scale.marks()
    ratio = scale.high / scale.low
    if unit == "B" and ratio > 4:
        every = ceil(log2(ratio) / 8)
        powers = range(ceil(log2(scale.low)), floor(log2(scale.high)) + 1)
        return [2.0**power for power in powers if power % every == 0]
    if ratio > 10:
        return scale.marks()
    step = 10.0 ** floor(log10(scale.high - scale.low))
    step = next(s for s in (step, step / 2, step / 5, step / 10) if (scale.high - scale.low) / s >= 4)
    return [step * n for n in range(ceil(scale.low / step), floor(scale.high / step) + 1)]


def _front(svg: Svg, places: Sequence[tuple[float, float]]) -> list[_Box]:
    """Stairs, right of which and above which every point is beaten; and where they are."""
    first, *others = places
    data = f"M{first[0]:.2f} {first[1]:.2f}" + "".join(f"H{x:.2f}V{y:.2f}" for x, y in others)
    svg.shape("path", {"class": "front", "d": data})
    boxes = []
    for (x, y), (right, low) in pairwise(places):
        boxes += [(x, y - 1, right, y + 1), (right - 1, y, right + 1, low)]
    return boxes


def _labels(
    svg: Svg,
    points: Sequence[Point],
    names: Mapping[int, str],
    places: Mapping[int, tuple[float, float]],
    lines: Sequence[_Box],
) -> None:
    """A name beside each spot that has room for one, the first ones first; points of one spot share it."""
    dots = [(x - 5, y - 5, x + 5, y + 5) for x, y in places.values()]
    spots: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        x, y = places[point.number]
        spots.setdefault((round(x / _SPOT), round(y / _SPOT)), []).append(point)
    crowded = sum(not own[0].front for own in spots.values()) > _MOST_NAMES
    named: list[_Box] = []
    for own in spots.values():
        best = own[0].front
        if crowded and not best:
            break
        text = names[own[0].number] + (f" and {len(own) - 1} more" if len(own) > 1 else "")
        # A name on the front may cross its line, but no dot and no other name.
        tries = ([*lines, *dots], dots) if best else ([*lines, *dots],)
        found = [room for taken in tries for room in _rooms(places[own[0].number], text, [*taken, *named])]
        if found:
            (left, base, anchor), box = found[0]
            svg.text(left, base, text, "small" if best else "soft", anchor)
            named.append(box)


def _rooms(at: tuple[float, float], text: str, taken: Sequence[_Box]) -> Iterator[tuple[_Anchor, _Box]]:
    """Where a name has room, nearest first."""
    (x, y), wide = at, len(text) * _LETTER
    sides = (
        (x + 8, y + 4, "start"), (x - 8, y + 4, "end"), (x, y - 9, "middle"), (x, y + 17, "middle"),
        (x + 6, y - 7, "start"), (x + 6, y + 15, "start"), (x - 6, y - 7, "end"), (x - 6, y + 15, "end"),
        (x - 10, y - 9, "start"), (x - 10, y + 17, "start"),
        (x - 10, y - 22, "start"), (x + 10, y - 22, "end"),
    )  # fmt: skip
    for side in sides:
        left = side[0] - {"start": 0.0, "middle": wide / 2, "end": wide}[side[2]]
        box = (left, side[1] - _LINE + 3, left + wide, side[1] + 3)
        if _inside(box) and not any(_overlap(box, other) for other in taken):
            yield side, box


def _inside(box: _Box) -> bool:
    return box[0] > _LEFT and box[2] < _LEFT + _WIDE and box[1] > _TOP and box[3] < _TOP + _HIGH


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def leading_fields(found: Exploration) -> list[str]:
    """The path of the first field of each axis: those that go in step with it say nothing new of a point."""
    first: dict[int, str] = {}
    for varied in found.varied:
        first.setdefault(varied.axis, varied.path)
    return list(first.values())


def name(point: Point, paths: Iterable[str]) -> str:
    """What a point sets at these paths, in short."""
    return " ".join(value_text(path, point.set[path]) for path in paths)


def value_text(path: str, value: Any) -> str:
    """A value in short: bytes with K, M or G where they are whole."""
    if isinstance(value, int) and "bytes" in path.rpartition(".")[2]:
        for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
            if value and value % size == 0:
                return f"{value // size}{letter}"
    return value if isinstance(value, str) else json.dumps(value)


def quantity(value: float, unit: str) -> str:
    """A value with its unit, and a prefix where that reads better: `12.5 uJ`, `64 KiB`."""
    if unit == "B":
        power = min(int(log2(value)) // 10, 4) if value >= 1 else 0
        return f"{value / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
    scale, shown = {"pJ": (1e-12, "J"), "pJ s": (1e-12, "J s"), "s": (1.0, "s")}.get(unit, (1.0, ""))
    real = value * scale
    if not shown and abs(real) < _PLAIN:
        return f"{real:.5g}"
    fitting = [pair for pair in _PREFIXES if pair[0] <= abs(real) * (1 + 1e-9)]
    size, letter = fitting[-1] if fitting else _PREFIXES[0]
    if not real:
        size, letter = 1.0, ""
    return f"{real / size:.4g} {letter}{shown}".rstrip()


def _title(found: Exploration, point: Point) -> str:
    sets = ", ".join(f"{path}={value_text(path, value)}" for path, value in point.set.items())
    costs = ", ".join(f"{o.name} {quantity(point.objectives[o.name], o.unit)}" for o in found.objectives)
    return f"point {point.number}: {sets}: {costs}"
