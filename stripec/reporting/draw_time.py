"""The simulated run over time: tasks of a unit, and the bytes of a memory, as strips without text.

A strip is as wide as there is room: a place along it is a cycle. The script of the page draws the same again
for a part of the time.
"""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup, escape

from stripec.reporting.runs import Alive, Lane, TimelineDrawn
from stripec.reporting.svg import COLOURS, Linear, Svg
from stripec.reporting.words import bytes_text

LANE, LEVEL = 18, 54  # heights of strips
_LEFT, _TOP, _WIDE, _HIGH = 92, 22, 860, 74  # of the plot of one memory


def draw_lane(lane: Lane, found: TimelineDrawn) -> Markup:
    """The tasks of a unit, a rectangle for each or for several, those of a block together."""
    groups: dict[int, list[str]] = {}
    for task in lane.tasks:
        waited = f' data-s="{_number(task.stalled)} {escape(task.memory)}"' if task.stalled else ""
        several = f' data-n="{task.count} {_number(task.busy)}"' if task.count > 1 else ""
        wide = _number(task.end - task.begin)
        groups.setdefault(task.block, []).append(
            f'<rect x="{_number(task.begin)}" width="{wide}" height="{LANE}"{waited}{several}/>'
        )
    inside = "".join(
        f'<g class="k{block % COLOURS}" data-b="{block}"><title>{escape(found.blocks[block])}</title>'
        f"{''.join(rects)}</g>"
        for block, rects in groups.items()
    )
    return _strip(inside, found.drawn, LANE)


def draw_level(alive: Alive, until: float) -> Markup:
    """The bytes of a memory as a filled line, up to its most; a dashed line is the capacity."""
    top = _top(alive)
    steps = " ".join(f"{_number(at)},{size}" for at, size in zip(alive.cycles, alive.bytes, strict=True))
    limit = ""
    if alive.capacity is not None and alive.capacity <= top:
        y = LEVEL * (1 - alive.capacity / top)
        limit = f'<line class="limit" x1="0" x2="{_number(until)}" y1="{_number(y)}" y2="{_number(y)}"/>'
    path = _outline(alive, lambda at: at, lambda size: LEVEL * (1 - size / top))
    inside = f'<path class="level" data-t="{top}" data-s="{steps}" d="{path}"/>{limit}'
    return _strip(inside, until, LEVEL)


def _strip(inside: str, until: float, high: int) -> Markup:
    return Markup(  # what stands inside is escaped
        f'<svg viewBox="0 0 {_number(until)} {high}" height="{high}" preserveAspectRatio="none" '
        f'aria-hidden="true">{inside}</svg>'
    )


def _top(alive: Alive) -> int:
    """What the height of a plot stands for: the capacity, where a good part of it is used."""
    if alive.capacity is not None and alive.capacity <= 4 * alive.most:
        return max(round(alive.capacity * 1.06), 1)
    return max(round(alive.most * 1.12), 1)


def _outline(alive: Alive, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """What is alive as a path of steps."""
    steps = "".join(
        f"H{_number(x(at))}V{_number(y(size))}" for at, size in zip(alive.cycles, alive.bytes, strict=True)
    )
    return f"M{_number(x(0))} {_number(y(0))}{steps}H{_number(x(alive.end))}V{_number(y(0))}Z"


def draw_alive(alive: Alive) -> Markup:
    """What is alive in a memory over the whole run, with its axes."""
    svg = Svg(_LEFT + _WIDE + 20, _TOP + _HIGH + 34, f"bytes alive in {alive.memory} over the simulated run")
    time, top = Linear(alive.end, _LEFT, _LEFT + _WIDE), _top(alive)
    size = Linear(top, _TOP + _HIGH, _TOP)
    svg.rect(_LEFT, _TOP, _WIDE, _HIGH, "plot")
    title = f"at most {bytes_text(alive.most)} alive at once"
    svg.shape("path", {"class": "level", "d": _outline(alive, time, size)}, title)
    svg.text(_LEFT - 6, _TOP - 11, "bytes", "small", "end")
    marks = [0, alive.most]
    if alive.capacity is not None and alive.capacity <= top:
        svg.line(_LEFT, size(alive.capacity), _LEFT + _WIDE, size(alive.capacity), "limit")
        if size(alive.most) - size(alive.capacity) < 12:
            marks = [0]
        svg.text(_LEFT - 6, size(alive.capacity) + 4, f"{alive.capacity:,}", "small limit-text", "end")
    for mark in marks:
        svg.text(_LEFT - 6, size(mark) + 4, f"{mark:,}", "small", "end")
    for cycles in time.marks():
        svg.line(time(cycles), _TOP + _HIGH, time(cycles), _TOP + _HIGH + 5, "grid")
        svg.text(time(cycles), _TOP + _HIGH + 17, f"{cycles:,.0f}", "small", "middle")
    svg.text(_LEFT + _WIDE, _TOP + _HIGH + 31, "cycles", "small", "end")
    return svg.markup()


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
