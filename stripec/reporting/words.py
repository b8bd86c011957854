"""Figures in words, the same everywhere in a report."""

from __future__ import annotations

from collections.abc import Mapping

SKIPPED = (
    "chosen",
    "candidates",
    "seconds",
)  # of a remark's data: they are shown elsewhere, or differ from run to run


def bytes_text(size: int) -> str:
    """`73,728 B (72 KiB)`; the second part only where it is shorter and exact to a digit."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"


def count_text(number: float) -> str:
    """`27.5 M`: a count with three digits."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.3g}"


def seconds_text(seconds: float | None) -> str:
    """Milliseconds with three digits; a dash where no time was taken down."""
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def time_text(seconds: float) -> str:
    """A time with four digits, in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("\N{MICRO SIGN}s", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def amount_text(size: int) -> str:
    """`677 MB`: bytes that were moved, in powers of ten."""
    if size < 1000:
        return f"{size} B" if size else "0"
    return f"{count_text(size)}B"


def percent_text(share: float) -> str:
    return f"{100 * share:.1f}%"


def difference_text(before: float, after: float) -> str:
    """What came of a figure that was not 0 and changed: `-12%`, `/ 16`, `x 3.2`."""
    ratio = after / before
    if 0 < ratio <= 0.5:
        return f"\N{DIVISION SIGN} {before / after:.3g}"
    if ratio >= 2:
        return f"\N{MULTIPLICATION SIGN} {ratio:.3g}"
    percent = 100 * (ratio - 1)
    if abs(percent) < 0.01:
        return f"{'-' if percent < 0 else '+'}<0.01%"
    return f"{percent:+.3g}%"


def rate_text(value: float) -> str:
    """A rate in three digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shape_text(shape: tuple[int, ...]) -> str:
    return " \N{MULTIPLICATION SIGN} ".join(map(str, shape)) if shape else "scalar"


def value_text(value: object) -> str:
    """A value of a remark's data."""
    match value:
        case float():
            return f"{value:.4g}"
        case Mapping():
            return " ".join(f"{key}:{value_text(item)}" for key, item in value.items())
        case list() | tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case _:
            return str(value)


def figures_text(data: Mapping[str, object]) -> str:
    """The data of a remark in one line, without its candidates."""
    return ", ".join(f"{key} {value_text(value)}" for key, value in data.items() if key not in SKIPPED)


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}{'es' if what.endswith('s') else 's'}"
