"""Two scatter plots: candidates by what they need and cost, kernels against the roofline."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from stripec.reporting.figures import Roof, Roofline, RoofPoint, Search
from stripec.reporting.svg import COLOURS, Log, Svg
from stripec.reporting.words import count_text

_LEFT, _TOP, _WIDE, _HIGH = 70, 16, 460, 240


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

_RIGHT = 150


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
    y = Log(bottom, peak * 1.2, _TOP + _HIGH, _TOP)
    _axes(svg, x, y, f"operations per byte of {found.far or 'memory'}", "operations per cycle")
    _flats(svg, compute, slopes, x, y)
    named = [
        _slope(svg, rate, names, peak, x, y, number, found.far in names)
        for number, (rate, names) in enumerate(_by_rate(slopes).items())
    ]
    for left, down, text in (name for name in named if name is not None):  # above all lines
        svg.text(left, down, text, "small halo")
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


def _flats(svg: Svg, compute: Sequence[Roof], slopes: Sequence[Roof], x: Log, y: Log) -> None:
    """The peaks, each with its name; names of peaks that are close stand below each other."""
    free = 0.0
    for rate, names in sorted(_by_rate(compute).items(), reverse=True):
        start = max(rate / max(s.rate for s in slopes), x.low)
        svg.line(x(start), y(rate), _LEFT + _WIDE, y(rate), "roof")
        free = max(free, y(rate) + 4)
        svg.text(_LEFT + _WIDE + 6, free, f"{_together(names)}: {rate:g}", "small")
        free += 13


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


def _slope(
    svg: Svg, rate: float, names: Sequence[str], peak: float, x: Log, y: Log, number: int, far: bool
) -> tuple[float, float, str] | None:
    """The line of a bandwidth; where its name is to stand."""
    low, high = max(x.low, y.low / rate), min(x.high, peak / rate)
    if low >= high:
        return None
    svg.line(x(low), y(low * rate), x(high), y(high * rate), "roof far" if far else "roof near")
    at = low * (high / low) ** (0.12 + 0.2 * (number % 4))
    return x(at) + 7, y(at * rate) + 9, f"{', '.join(names)}: {rate:g} B"
