"""A report as one HTML file: a pure function of its values. Nothing in it is fetched.

Each section has the template `section_ID.html`; the style sheet and the script stand in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from stripec.reporting import words
from stripec.reporting.cache_counts import MAX_VECTORS
from stripec.reporting.compare import Comparison
from stripec.reporting.compare_runs import memories_of
from stripec.reporting.draw_caches import draw_caches, short
from stripec.reporting.draw_map import draw_map
from stripec.reporting.draw_nest import COLUMN, draw_row
from stripec.reporting.draw_plots import draw_roofline, draw_search
from stripec.reporting.draw_tiles import draw_tiles
from stripec.reporting.draw_time import draw_alive, draw_lane, draw_level
from stripec.reporting.figures import Nests, Roofline, Searches, TensorTiles
from stripec.reporting.model import Report, Row, SourceText, Summary, Text
from stripec.reporting.runs import CachesDrawn, PassCounts, SimulatedRun, TimelineDrawn

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_LINES = 600  # of a table of a simulated run


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # it takes long, and only reports need it

    made = Environment(
        loader=PackageLoader("stripec.reporting"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.globals |= {
        "draw_map": draw_map, "draw_row": draw_row, "draw_search": draw_search, "draw_tiles": draw_tiles,
        "draw_roofline": draw_roofline, "column": COLUMN, "overlap": overlap, "row_kind": row_kind,
        "bars": bars, "is_hot": is_hot, "draw_alive": draw_alive, "draw_lane": draw_lane,
        "draw_level": draw_level, "most_lines": MAX_LINES, "most_vectors": MAX_VECTORS,
        "difference": words.difference_text,
        "draw_caches": draw_caches, "short": short, "others": others,
    }  # fmt: skip
    made.filters |= {
        "bytes": words.bytes_text, "count": words.count_text, "seconds": words.seconds_text,
        "shape": words.shape_text, "plural": words.plural, "amount": words.amount_text,
        "percent": words.percent_text, "time": words.time_text, "rate": words.rate_text,
        "dict": dict,
    }  # fmt: skip
    return made


def render(report: Report) -> str:
    """The HTML of one report. The same report gives the same text."""
    return _environment().get_template("report.html").render(
        report=report, sections=report.sections, colours=_colours(report), kernel_link=_links(report),
        **_targets(report),
    )  # fmt: skip


def render_comparison(found: Comparison) -> str:
    """The HTML of two reports beside each other."""
    return _environment().get_template("compare.html").render(
        here=set(), kernel_numbers=set(), drawn=0.0, memories=memories_of(found.a, found.b),
        timelines=(found.a.find(TimelineDrawn), found.b.find(TimelineDrawn)),
        caches=(found.a.find(CachesDrawn), found.b.find(CachesDrawn)),
        found=found, a=found.a, b=found.b, colours=_together(_colours(found.a), _colours(found.b)),
        roofline_of=lambda report: report.find(Roofline),
    )  # fmt: skip


def _targets(report: Report) -> dict[str, object]:
    """What links may lead to: nothing points at what was left out."""
    source, nests, searches = report.find(SourceText), report.find(Nests), report.find(Searches)
    summary, timeline = report.find(Summary), report.find(TimelineDrawn)
    first: dict[int, int] = {}
    for number, search in enumerate(searches.searches if searches is not None else (), start=1):
        first.setdefault(search.pass_number, number)
    return {
        "kernel_numbers": {k.number for k in summary.kernels} if summary is not None else set(),
        "here": {section.id for section in report.sections},
        "shown_lines": len(source.lines) if source is not None else 0,
        "names": dict(source.names) if source is not None else {},
        "nest_numbers": {n.number for n in nests.nests} if nests is not None else set(),
        "search_passes": first,
        "counts": report.find(PassCounts),
        "ran": report.find(SimulatedRun),
        "drawn": timeline.drawn if timeline is not None else 0.0,
    }


def _colours(report: Report) -> dict[str, int]:
    """A colour for each memory, the farthest first."""
    summary = report.find(Summary)
    names = [m.name for m in reversed(summary.memories)] if summary is not None else []
    return {name: number for number, name in enumerate(names)}


def _together(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Colours of the memories of two targets: those of the same name have the same."""
    return {name: number for number, name in enumerate((*a, *(name for name in b if name not in a)))}


def _links(report: Report) -> Callable[[str], int]:
    """From the path of a block to the number of its kernel in the summary, 0 if none has it."""
    summary = report.find(Summary)
    known: dict[str, int] = {}
    for kernel in summary.kernels if summary is not None else ():
        for path in (kernel.path, *kernel.became):
            known.setdefault(path, kernel.number)

    def number(path: str) -> int:
        return known.get("/".join(path.partition(",")[0].split("/")[:2]), 0)

    return number


def overlap(tiles: TensorTiles) -> str:
    """What neighbouring tiles have in common, in words; empty if nothing."""
    shared = [
        (dim, size - step)
        for dim, size, step in zip(tiles.dims, tiles.size, tiles.step, strict=True)
        if step and size > step
    ]
    return ", ".join(f"{size} in dim {dim}" for dim, size in shared)


def others(found: CachesDrawn) -> bool:
    """Whether some buffers have no colour of their own."""
    return any(not part.buffer for own in found.boundaries for part in own.crossed)


def row_kind(row: Row) -> str:
    """The class of a row of a diff."""
    if row.left is None:
        return "add"
    if row.right is None:
        return "gone"
    return "mod" if row.changed else "same"


def bars(values: Sequence[float | None]) -> list[float]:
    """Shares of the largest value, in percent."""
    known = [value or 0.0 for value in values]
    most = max(known, default=0.0) or 1.0
    return [round(100 * value / most, 1) for value in known]


def is_hot(text: Text, line: int) -> bool:
    """Whether a line, counted from 1, is in a loop that runs most."""
    return any(first <= line <= last for first, last in text.hot)
