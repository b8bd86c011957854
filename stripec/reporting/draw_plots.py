"""Two scatter plots: candidates by what they need and cost, kernels against the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from markupsafe import Markup

from stripec.reporting.figures import Roof, Roofline, RoofPoint, Search
from stripec.reporting.svg import COLOURS, Log, Svg
from stripec.reporting.words import count_text, rate_text

_LEFT, _TOP, _WIDE, _HIGH = 70, 16, 446, 240
_LETTER, _LETTER_HIGH = 6, 11  # pixels of a letter in a name


def draw_search(search: Search) -> Markup | None:
    """Cost over need; what needs too much of the same resource is a cross on top. None where there is no
    pair of figures to draw."""
    fitting = [r for r in search.rows if r.cost is not None and r.cost > 0 and r.needed]
    if len(fitting) < 2:
        return None
    out = [r for r in search.rows if r.cost is None and r.needed and r.limit.endswith(search.resource)]
    needs = [r.needed or 1 for r in (*fitting, *out)] + ([search.capacity] if search.capacity else [])
    costs = [r.cost or 1.0 for r in fitting]
    svg = Svg(_LEFT + _WIDE + 20, _TOP + _HIGH + 46, f"candidates of {search.block} by need and cost")
    x = Log(min(needs), max(needs), _LEFT + 8, _LEFT + _WIDE - 8)
    y = Log(min(costs), max(costs), _TOP + _HIGH - 8, _TOP + 30)
    _axes(svg, x, y, search.resource or "needed", search.unit or "cost")
    if search.capacity:
        svg.line(x(search.capacity), _TOP, x(search.capacity), _TOP + _HIGH, "limit")
        svg.text(x(search.capacity) - 4, _TOP + 12, f"capacity {search.capacity:,}", "small", "end")
    for row in out:
        at = x(row.needed or 1)
        title = f"{_named(search, row.cells)}: {row.limit}"
        svg.shape("path", {"class": "cross", "d": f"M{at - 3:.1f} {_TOP + 17}l6 6m0 -6l-6 6"}, title)
    for row in sorted(fitting, key=lambda r: r.chosen):
        title = f"{_named(search, row.cells)}: {row.cost:.4g} {search.unit}, needs {row.needed:,}"
        style = "chosen" if row.chosen else "dot"
        svg.circle(x(row.needed or 1), y(row.cost or 1.0), 6 if row.chosen else 3.5, style, title)
    return svg.markup()


def _named(search: Search, cells: Sequence[str]) -> str:
    pairs = zip(search.columns, cells, strict=True)
    return ", ".join(f"{column.removeprefix('sizes ')} {cell}" for column, cell in pairs if cell)


def _axes(svg: Svg, x: Log, y: Log, across: str, up: str) -> None:
    svg.rect(_LEFT, _TOP, _WIDE, _HIGH, "plot")
    for mark in x.marks():
        svg.line(x(mark), _TOP, x(mark), _TOP + _HIGH, "grid")
        svg.text(x(mark), _TOP + _HIGH + 15, _short(mark), "small", "middle")
    for mark in y.marks():
        svg.line(_LEFT, y(mark), _LEFT + _WIDE, y(mark), "grid")
        svg.text(_LEFT - 6, y(mark) + 4, _short(mark), "small", "end")
    svg.text(_LEFT + _WIDE / 2, _TOP + _HIGH + 36, across, "label", "middle")
    svg.text(14, _TOP + _HIGH / 2, up, "label", "middle", -90)


def _short(value: float) -> str:
    return count_text(value) if value >= 1000 else f"{value:.3g}"


# --------------------------------------------------------------------------------- roofline

_RIGHT = 14
_Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom
_Line: TypeAlias = tuple[float, float, float, float]  # from its left end to its right end


def draw_roofline(found: Roofline) -> Markup | None:
    """The limits of the target as lines, kernels as dots: full where it is known how fast they are, else
    hollow and as fast as the limits allow. None without limits or kernels that compute."""
    compute = [r for r in found.roofs if r.kind == "compute"]
    slopes = [r for r in found.roofs if r.kind == "bandwidth"]
    points = [(p, p.intensity) for p in found.points if p.operations and p.intensity]
    if not compute or not slopes or not points:
        return None
    peak, far = max(r.rate for r in compute), _far(found, slopes)
    rates = [_rate(p, per_byte, peak, far) for p, per_byte in points]
    low = min(*(x for _, x in points), min(r.rate for r in compute) / max(r.rate for r in slopes))
    high = max(*(x for _, x in points), peak / far)
    svg = Svg(
        _LEFT + _WIDE + _RIGHT, _TOP + _HIGH + 46, "roofline: operations per cycle over operations per byte"
    )
    x = Log(low / 1.5, high * 1.5, _LEFT, _LEFT + _WIDE)
    bottom = min(*rates, *(r.rate for r in compute), peak / 30)
    y = Log(bottom, max(peak, *rates) * 1.2, _TOP + _HIGH, _TOP)
    _axes(svg, x, y, f"operations per byte of {found.far or 'memory'}", "operations per cycle")
    dots = [
        (x(at) - 8, y(rate) - 8, x(at) + 8, y(rate) + 8) for (_, at), rate in zip(points, rates, strict=True)
    ]
    flats = [
        (x(max(rate / max(s.rate for s in slopes), x.low)), y(rate), float(_LEFT + _WIDE), y(rate))
        for rate in _by_rate(compute)
    ]
    for flat in flats:
        svg.line(*flat, "roof")
    names = list(_above_lines(compute, y, dots))
    bands = [
        (line, f"{', '.join(own)}: {rate_text(rate)} B", found.far in own)
        for rate, own in _by_rate(slopes).items()
        if (line := _slope(rate, peak, x, y)) is not None
    ]
    for line, _, is_far in bands:
        svg.line(*line, "roof far" if is_far else "roof near")
    placed = [*dots, *(box for box, _, _ in names)]
    for line, text, _ in bands:
        box = _beside_line(line, text, placed, [*flats, *(other for other, _, _ in bands)])
        placed.append(box)
        names.append((box, text, "start"))
    for (left, _, right, down), text, anchor in names:  # above all lines
        svg.text(left if anchor == "start" else right, down, text, "small halo", anchor)
    for (point, per_byte), rate in zip(points, rates, strict=True):
        title = (
            f"{point.kernel}: {count_text(point.operations)} operations, {count_text(point.bytes)}B, "
            f"{per_byte:.3g} per byte, {rate:.3g} per cycle"
        )
        style = f"{'hollow' if point.known is None else 'point'} k{point.number % COLOURS}"
        svg.circle(x(per_byte), y(rate), 5.5, style, title)
        if len(points) <= 12:
            _beside(svg, x(per_byte), y(rate), point.kernel.partition("/")[2])
    return svg.markup()


def _beside(svg: Svg, x: float, y: float, name: str) -> None:
    """The name of a dot, on the side where there is room."""
    right = x + 8 + 7 * len(name) <= _LEFT + _WIDE
    svg.text(x + (8 if right else -8), y + 13, name, "small halo", "start" if right else "end")


def _far(found: Roofline, slopes: Sequence[Roof]) -> float:
    """The bandwidth of the farthest memory."""
    return next((r.rate for r in slopes if r.name == found.far), min(r.rate for r in slopes))


def _rate(point: RoofPoint, per_byte: float, peak: float, far: float) -> float:
    return point.operations / point.known if point.known else min(peak, per_byte * far)


def _above_lines(compute: Sequence[Roof], y: Log, dots: Sequence[_Box]) -> Iterator[tuple[_Box, str, str]]:
    """Where the names of the peaks stand: above their lines, or below where there is no room, at the right
    end or where they cover fewer dots."""
    free = float(_TOP)
    for rate, names in sorted(_by_rate(compute).items(), reverse=True):
        text = f"{_together(names)}: {rate_text(rate)}"
        down = y(rate) - 4 if y(rate) - 4 - _LETTER_HIGH >= free else max(y(rate), free) + _LETTER_HIGH
        free = down + 2
        boxes = [
            (right - _LETTER * len(text), down - _LETTER_HIGH, right, down)
            for right in (_LEFT + _WIDE - 6 - back for back in (0, 60, 120, 180))
        ]
        yield min(boxes, key=lambda box: sum(_meet(box, dot) for dot in dots)), text, "end"


def _together(names: Sequence[str]) -> str:
    """Names of the form `UNIT, type`; types of one unit behind each other."""
    types: dict[str, list[str]] = {}
    for name in names:
        unit, _, dtype = name.partition(", ")
        types.setdefault(unit, []).append(dtype)
    return "; ".join(", ".join((unit, *(t for t in own if t))) for unit, own in types.items())


def _by_rate(slopes: Sequence[Roof]) -> dict[float, list[str]]:
    """The names of limits that are one line."""
    found: dict[float, list[str]] = {}
    for roof in slopes:
        found.setdefault(roof.rate, []).append(roof.name)
    return found


def _slope(rate: float, peak: float, x: Log, y: Log) -> _Line | None:
    """The line of a bandwidth; None where it is out of sight."""
    low, high = max(x.low, y.low / rate), min(x.high, peak / rate)
    return (x(low), y(low * rate), x(high), y(high * rate)) if low < high else None


def _beside_line(line: _Line, text: str, taken: Sequence[_Box], lines: Sequence[_Line]) -> _Box:
    """Where the name of a slope stands: beside it, where it covers the fewest names and other slopes."""
    x1, y1, x2, y2 = line

    def box(part: float) -> _Box:
        left, middle = x1 + part * (x2 - x1) + 7, y1 + part * (y2 - y1) + 9
        return left, middle - _LETTER_HIGH, left + _LETTER * len(text), middle

    def cost(part: float) -> tuple[int, float]:
        own = box(part)
        out = own[2] > _LEFT + _WIDE or own[3] > _TOP + _HIGH
        covered = sum(_meet(own, other) for other in taken)
        crossed = sum(_crosses(other, own) for other in lines if other != line)
        return 20 * out + 10 * covered + crossed, abs(part - 0.3)

    return box(min((n / 20 for n in range(1, 20)), key=cost))


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _crosses(line: _Line, box: _Box) -> bool:
    """Whether a rising line goes through a box."""
    x1, y1, x2, y2 = line
    left, right = max(x1, box[0]), min(x2, box[2])
    if left >= right:
        return False
    at_left, at_right = (y1 + (at - x1) * (y2 - y1) / (x2 - x1) for at in (left, right))
    return at_right < box[3] and at_left > box[1]
