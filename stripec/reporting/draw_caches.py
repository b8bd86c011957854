"""Caches from the units down to memory: of each one what it found and what it missed, between them what
crosses, by buffer."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from simulator.result import CacheUse
from stripec.reporting.runs import Boundary, CachesDrawn, Crossed
from stripec.reporting.svg import COLOURS, Svg
from stripec.reporting.words import amount_text, bytes_text, count_text, percent_text

_NAMES, _BARS, _WIDE, _RIGHT = 150, 270, 520, 190  # where names end and bars begin, widths of bars and texts
_BOX, _BAR, _GAP = 38, 13, 5  # heights
_BETWEEN = 2 * _BAR + _GAP + 22


def draw_caches(found: CachesDrawn) -> Markup:
    """The levels as boxes, nearest first, joined by bars as long as the bytes that cross."""
    names = _levels(found)
    drawn = {(own.near, own.far): own for own in found.boundaries}
    high = len(names) * _BOX + (len(names) - 1) * _BETWEEN + 16
    svg = Svg(_BARS + _WIDE + _RIGHT, high, "what crosses between caches, and what they hold")
    most = max((max(own.inward, own.outward) for own in found.boundaries), default=0) or 1
    colours = {buffer: f"k{number % COLOURS}" for number, buffer in enumerate(found.buffers)}
    caches = {cache.memory: cache for cache in found.caches}
    y = 8.0
    for number, name in enumerate(names):
        svg.rect(8, y, _NAMES - 8, _BOX, "plot")
        svg.text(20, y + 16, name)
        if name in caches:
            size = dict(found.capacities).get(name)
            svg.text(20, y + 31, "no limit" if size is None else bytes_text(size), "small")
            _hits(svg, caches[name], y)
        y += _BOX
        if number + 1 < len(names):
            own = drawn.get((name, names[number + 1]))
            middle = 8 + (_NAMES - 8) / 2
            svg.line(middle, y, middle, y + _BETWEEN, "zoom")
            if own is not None:
                _bars(svg, own, y, most, colours)
            y += _BETWEEN
    return svg.markup()


def _levels(found: CachesDrawn) -> list[str]:
    """The names from the units to the memory behind the last cache."""
    names: list[str] = []
    for own in found.boundaries:
        names += [name for name in (own.near, own.far) if name and name not in names]
    return names


def _hits(svg: Svg, cache: CacheUse, y: float) -> None:
    """What was found there, as a part of all accesses."""
    top, share = y + (_BOX - _BAR) / 2, cache.hits / cache.accesses if cache.accesses else 0.0
    svg.rect(_BARS, top, _WIDE, _BAR, "missed", f"{cache.misses:,} misses")
    if share:
        svg.rect(_BARS, top, share * _WIDE, _BAR, "found", f"{cache.hits:,} hits")
    svg.text(_BARS - 10, top + 11, f"{count_text(cache.accesses)} accesses", "small", "end")
    svg.text(_BARS + _WIDE + 10, top + 11, f"{percent_text(1 - share)} missed", "small")


def _bars(svg: Svg, own: Boundary, y: float, most: int, colours: dict[str, str]) -> None:
    top = y + 11
    near = own.near if len(own.near) <= 14 else "units"
    both = (
        (f"to {near}", own.inward, ((part, part.inward) for part in own.crossed)),
        (f"from {near}", own.outward, ((part, part.outward) for part in own.crossed)),
    )
    for way, total, parts in both:
        svg.text(_BARS - 10, top + 11, way, "small", "end")
        end = _stack(svg, parts, top, most, colours)
        svg.text(end + 10, top + 11, amount_text(total), "small")
        top += _BAR + _GAP


def _stack(
    svg: Svg, parts: Iterable[tuple[Crossed, int]], top: float, most: int, colours: dict[str, str]
) -> float:
    """The bytes of each buffer behind each other; where they end."""
    x = float(_BARS)
    for part, size in parts:
        if size:
            wide = size / most * _WIDE
            name = short(part.buffer) if part.buffer else "other buffers"
            svg.rect(
                x, top, wide, _BAR, f"fill {colours.get(part.buffer, 'rest')}", f"{name}: {size:,} bytes"
            )
            x += max(wide, 0.5)
    return x


def short(path: str) -> str:
    """The path of a buffer without the root that all have in common."""
    return path.partition("/")[2] or path
