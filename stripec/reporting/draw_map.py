"""Addresses over time: each buffer of a memory as a rectangle, with the capacity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from stripec.reporting.figures import MemoryMap, Placed
from stripec.reporting.svg import COLOURS, Linear, Svg
from stripec.reporting.words import bytes_text

_LEFT, _TOP, _WIDE = 92, 22, 860
_CLOSE = 12  # pixels between two figures on the axis of addresses
_LABEL = 18  # pixels between two names on the axis of time
_LINE, _LETTER = 13, 7  # pixels of a line and of a letter in a name
_DOWN, _ALONG = 3.7, 5.3  # pixels of a turned letter


def draw_map(found: MemoryMap) -> Markup:
    """All lanes of a memory, one above the other, over one axis of time."""
    high = 220 if len(found.lanes) == 1 else 96
    names = _names(found)
    foot = 12 + _DOWN * max((len(name) for _, name in names), default=0)
    time = Linear(found.length, _LEFT, _LEFT + _WIDE)
    right = max((time(tick) + 12 + _ALONG * len(name) for tick, name in names), default=0)
    svg = Svg(
        max(_LEFT + _WIDE + 20, right),
        _TOP + len(found.lanes) * (high + 18) + foot,
        f"addresses in {found.memory} over time",
    )
    svg.text(_LEFT - 6, _TOP - 9, "address", "small", "end")
    colours: dict[str, int] = {}
    for placed in found.placed:
        colours.setdefault(placed.path, len(colours) % COLOURS)
    end = _TOP + len(found.lanes) * (high + 18) - 18
    for lane in range(len(found.lanes)):
        _lane(svg, found, lane, high, time, colours)
    for tick, name in names:
        svg.line(time(tick), end, time(tick), end + 6, "grid")
        svg.text(time(tick) + 4, end + 14, name, "small", "start", 35)
    return svg.markup()


def _top(found: MemoryMap) -> float:
    """The highest address shown: the capacity, where the buffers take a good part of it."""
    if found.capacity is not None and found.capacity <= 4 * found.height:
        return max(found.capacity, found.height) * 1.05
    return max(found.height, 1) * 1.1


def _lane(
    svg: Svg, found: MemoryMap, lane: int, high: float, time: Linear, colours: Mapping[str, int]
) -> None:
    """One lane, so high; `colours` are those of buffers, by their paths."""
    y, top = _TOP + lane * (high + 18), _top(found)
    address = Linear(top, y + high, y)
    svg.rect(_LEFT, y, _WIDE, high, "plot")
    if len(found.lanes) > 1:
        svg.text(4, y + high / 2, found.lanes[lane], "small")
    own = [placed for placed in found.placed if placed.lane == lane]
    used = max((placed.address + placed.bytes for placed in own), default=0)
    others = [0] if found.capacity is None else [0, found.capacity]
    marks = [0] if any(abs(address(used) - address(at)) < _CLOSE for at in others) else [0, used]
    for mark in marks:
        svg.text(_LEFT - 6, address(mark) + 4, f"{mark:,}", "small", "end")
    if found.capacity is not None and found.capacity <= top:
        svg.line(_LEFT, address(found.capacity), _LEFT + _WIDE, address(found.capacity), "limit")
        svg.text(_LEFT - 6, address(found.capacity) + 4, f"{found.capacity:,}", "small limit-text", "end")
    for placed in own:
        _buffer(svg, placed, address, time, f"buffer k{colours[placed.path]}")
    for x, down, name in _labels(own, address, time):
        svg.text(x, down, name, "in-buffer")


def _buffer(svg: Svg, placed: Placed, address: Linear, time: Linear, style: str) -> None:
    x, wide = time(placed.start), time(placed.end + 1) - time(placed.start)
    y, high = _top_of(placed, address), _high(placed, address)
    title = (
        f"{placed.path}: {placed.what}, {bytes_text(placed.bytes)} at {placed.address:,}, "
        f"alive at {placed.start} to {placed.end}"
    )
    svg.rect(x, y, wide, high, style if high > 3 else f"{style} thin", title)


def _top_of(placed: Placed, address: Linear) -> float:
    return address(placed.address + placed.bytes)


def _high(placed: Placed, address: Linear) -> float:
    return address(placed.address) - _top_of(placed, address)


def _labels(own: Sequence[Placed], address: Linear, time: Linear) -> Iterator[tuple[float, float, str]]:
    """Where names stand: in their buffers, or above those that are thin, where there is room. Of thin buffers
    one upon another the highest has the names of all, from the top."""
    covered = {id(placed): _covers(placed, own, address) for placed in own}
    for placed in own:
        x, wide = time(placed.start) + 4, time(placed.end + 1) - time(placed.start) - 6
        top, high = _top_of(placed, address), _high(placed, address)
        if high > _LINE:
            if wide > _LETTER * len(_short(placed)):
                yield x, top + high / 2 + 4, _short(placed)
        elif not covered[id(placed)]:
            names = [_short(placed), *(_short(below) for below in _below(placed, own, covered, address))]
            while names and _LETTER * len(", ".join(names)) > wide:
                names.pop()
            if names:
                yield x, top - 3, ", ".join(names)


def _short(placed: Placed) -> str:
    return placed.path.rpartition("/")[2]


def _below(
    placed: Placed, own: Sequence[Placed], covered: Mapping[int, bool], address: Linear
) -> Iterator[Placed]:
    """The thin buffers under a thin one, one upon another, that have no place for a name of their own."""
    bottom = address(placed.address)
    thin = [p for p in own if covered[id(p)] and _high(p, address) <= _LINE and _together(p, placed)]
    for other in sorted(thin, key=lambda p: -p.address):
        if other is not placed and bottom - 1 <= _top_of(other, address) < bottom + _LINE:
            yield other
            bottom = address(other.address)


def _together(one: Placed, other: Placed) -> bool:
    return one.start <= other.end and other.start <= one.end


def _covers(placed: Placed, own: Sequence[Placed], address: Linear) -> bool:
    """Whether another buffer lies where the name above this one would be."""
    top = _top_of(placed, address)
    return any(
        other is not placed and _together(placed, other)
        and _top_of(other, address) < top and address(other.address) > top - _LINE
        for other in own
    )  # fmt: skip


def _names(found: MemoryMap) -> list[tuple[int, str]]:
    """Names along the axis of time, as many as there is room for."""
    step = found.length * _LABEL / _WIDE
    kept: list[tuple[int, str]] = []
    for tick, name in found.ticks:
        if kept and tick - kept[-1][0] < step:
            if tick == kept[-1][0]:
                kept[-1] = tick, name  # the innermost of those that begin together
            continue
        kept.append((tick, name))
    return [(tick, name if len(name) <= 28 else f"...{name[-25:]}") for tick, name in kept]
