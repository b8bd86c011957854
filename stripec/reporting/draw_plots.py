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
    """The limits of the target as lines, kernels as dots: full where the cost model says how fast, else
    hollow and as fast as the limits allow. None without limits or kernels that compute."""
    compute = [r for r in found.roofs if r.kind == "compute"]
    slopes = [r for r in found.roofs if r.kind == "bandwidth"]
    points = [p for p in found.points if p.operations]
    if not compute or not slopes or not points:
        return None
    peak, far = max(r.rate for r in compute), _far(found, slopes)
    rates = [_rate(p, peak, far) for p in points]
    low = min(*(p.intensity for p in points), min(r.rate for r in compute) / max(r.rate for r in slopes))
    high = max(*(p.intensity for p in points), peak / far)
    svg = Svg(
        _LEFT + _WIDE + _RIGHT, _TOP + _HIGH + 46, "roofline: operations per cycle over operations per byte"
    )
    x = Log(low / 1.5, high * 1.5, _LEFT, _LEFT + _WIDE)
    bottom = min(*rates, *(r.rate for r in compute), peak / 30)
    y = Log(bottom, peak * 1.2, _TOP + _HIGH, _TOP)
    _axes(svg, x, y, f"operations per byte of {found.far or 'memory'}", "operations per cycle")
    for roof in compute:
        _flat(svg, roof, slopes, x, y)
    for number, (rate, names) in enumerate(_by_rate(slopes).items()):
        _slope(svg, rate, ", ".join(names), peak, x, y, number, found.far in names)
    for point, rate in zip(points, rates, strict=True):
        known = point.cycles is not None
        title = (
            f"{point.kernel}: {count_text(point.operations)} operations, {count_text(point.bytes)}B, "
            f"{point.intensity:.3g} per byte, {rate:.3g} per cycle"
        )
        style = f"{'point' if known else 'hollow'} k{point.number % COLOURS}"
        svg.circle(x(point.intensity), y(rate), 5.5, style, title)
        if len(points) <= 12:
            svg.text(x(point.intensity) + 8, y(rate) + 13, point.kernel.partition("/")[2], "small")
    return svg.markup()


def _far(found: Roofline, slopes: Sequence[Roof]) -> float:
    """The bandwidth of the farthest memory."""
    return next((r.rate for r in slopes if r.name == found.far), min(r.rate for r in slopes))


def _rate(point: RoofPoint, peak: float, far: float) -> float:
    if point.cycles:
        return point.operations / point.cycles
    return min(peak, point.intensity * far)


def _flat(svg: Svg, roof: Roof, slopes: Sequence[Roof], x: Log, y: Log) -> None:
    start = max(roof.rate / max(s.rate for s in slopes), x.low)
    svg.line(x(start), y(roof.rate), _LEFT + _WIDE, y(roof.rate), "roof")
    svg.text(_LEFT + _WIDE + 6, y(roof.rate) + 4, f"{roof.name}: {roof.rate:g}", "small")


def _by_rate(slopes: Sequence[Roof]) -> dict[float, list[str]]:
    """The names of limits that are one line."""
    found: dict[float, list[str]] = {}
    for roof in slopes:
        found.setdefault(roof.rate, []).append(roof.name)
    return found


def _slope(svg: Svg, rate: float, name: str, peak: float, x: Log, y: Log, number: int, far: bool) -> None:
    low, high = max(x.low, y.low / rate), min(x.high, peak / rate)
    if low >= high:
        return
    svg.line(x(low), y(low * rate), x(high), y(high * rate), "roof far" if far else "roof near")
    at = low * (high / low) ** (0.12 + 0.2 * (number % 4))
    svg.text(x(at) + 7, y(at * rate) + 9, f"{name}: {rate:g} B", "small")
