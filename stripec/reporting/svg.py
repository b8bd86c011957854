"""A few shapes as SVG text. Colours are classes: the style sheet has them for light, dark and print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, floor, log10

from markupsafe import Markup, escape

COLOURS = 8  # classes k0 ... k7


class Svg:
    """A drawing of a size, in user units that are pixels; `title` is what a screen reader says."""

    def __init__(self, width: float, height: float, title: str) -> None:
        w, h = _number(width), _number(height)
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{w}" height="{h}" '
            f'viewBox="0 0 {w} {h}"><title>{escape(title)}</title>'
        )
        self._parts: list[str] = []

    def shape(self, tag: str, attributes: Mapping[str, float | str], title: str = "") -> None:
        """One element; `title` is shown where the pointer rests on it."""
        text = "".join(f' {name}="{escape(_text(value))}"' for name, value in attributes.items())
        inside = f"<title>{escape(title)}</title></{tag}>" if title else f"</{tag}>"
        self._parts.append(f"<{tag}{text}>{inside}")

    def rect(self, x: float, y: float, w: float, h: float, style: str, title: str = "") -> None:
        self.shape(
            "rect", {"x": x, "y": y, "width": max(w, 0.5), "height": max(h, 0.5), "class": style}, title
        )

    def rects(self, boxes: Iterable[tuple[float, float, float, float]], style: str) -> None:
        """Many rectangles of one style as one path; where they overlap, a translucent fill is painted
        twice."""
        for box in boxes:
            self.outline([box], style)

    def outline(self, boxes: Iterable[tuple[float, float, float, float]], style: str) -> None:
        """Many rectangles as one path, which is shorter: for strokes alone."""
        data = "".join(
            f"M{_number(x)} {_number(y)}h{_number(w)}v{_number(h)}h{_number(-w)}z" for x, y, w, h in boxes
        )
        if data:
            self._parts.append(f'<path class="{style}" d="{data}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.shape("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": style})

    def circle(self, x: float, y: float, r: float, style: str, title: str = "") -> None:
        self.shape("circle", {"cx": x, "cy": y, "r": r, "class": style}, title)

    def text(
        self, x: float, y: float, text: str, style: str = "", anchor: str = "start", turn: float = 0
    ) -> None:
        attributes: dict[str, float | str] = {"x": x, "y": y}
        if style:
            attributes["class"] = style
        if anchor != "start":
            attributes["text-anchor"] = anchor
        if turn:
            attributes["transform"] = f"rotate({_number(turn)} {_number(x)} {_number(y)})"
        given = "".join(f' {name}="{escape(_text(value))}"' for name, value in attributes.items())
        self._parts.append(f"<text{given}>{escape(text)}</text>")

    def markup(self) -> Markup:
        return Markup(self._head + "".join(self._parts) + "</svg>")  # the parts are escaped above


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """A length with at most two digits behind the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


class Log:
    """A logarithmic scale around the values, to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        margin = (high / low) ** 0.06 if high > low else 1.5
        self.low, self.high = low / margin, high * margin
        self._start, self._step = start, (end - start) / log10(self.high / self.low)

    def __call__(self, value: float) -> float:
        return self._start + log10(value / self.low) * self._step

    def marks(self) -> list[float]:
        """Round values in the range: powers of ten; where they are few, also twice and five times each; where
        these are few, too, equal steps, of which there are at least three."""
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for factors in ((1,), (1, 2, 5)):
            found = [f * 10.0**power for power in powers for f in factors]
            inside = [mark for mark in found if self.low <= mark <= self.high]
            if len(inside) > 2:
                return inside
        span = self.high - self.low
        power = 10.0 ** floor(log10(span))
        step = power * next(part for part in (2.0, 1.0, 0.5, 0.2) if span >= 4 * power * part or part < 0.5)
        return [step * n for n in range(ceil(self.low / step), floor(self.high / step) + 1)]


class Linear:
    """A linear scale from 0 to a value, to pixels."""

    def __init__(self, high: float, start: float, end: float) -> None:
        self.high = max(high, 1e-9)
        self._start, self._step = start, (end - start) / self.high

    def __call__(self, value: float) -> float:
        return self._start + value * self._step

    def marks(self) -> list[float]:
        """Round values, at most seven."""
        step = 10.0 ** floor(log10(self.high))
        for factor in (0.2, 0.5, 1, 2):
            if self.high / (step * factor) <= 6:
                step *= factor
                break
        return [step * n for n in range(int(self.high / step + 1e-9) + 1)]
