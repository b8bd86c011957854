"""The picture: a bar for each case, stripec's rate over that of the best peer, on a logarithmic axis."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import ratio
from benchmarks.run import Row

GIVEN, PACKED, LINE = "#4477aa", "#ccbb44", "#444444"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write an SVG or PNG file, as the name says; needs matplotlib (the extra `peers`)."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install 'stripec[peers]'") from None
    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    shown = [row for row in rows if ratio(row, False) or ratio(row, True)]
    if not shown:
        raise SystemExit("--plot: no case has both stripec and a peer")
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.3 * len(shown)), layout="constrained")
    places = range(len(shown))
    for packed, colour, label, shift in (
        (False, GIVEN, "operands given at run time", -0.2),
        (True, PACKED, "constant operands known ahead", 0.2),
    ):
        values = [ratio(row, packed) or math.nan for row in shown]
        lengths = [value - 1 for value in values]
        axes.barh([p + shift for p in places], lengths, height=0.38, left=1, color=colour, label=label)
    axes.axvline(1, color=LINE, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(list(places), [_name(row) for row in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("stripec / best peer (right of 1: stripec is faster)")
    axes.legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


def _name(row: Row) -> str:
    return f"{row.family}: {row.case}" + (" (busy)" if row.busy else "")
