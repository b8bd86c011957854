"""The candidates that passes weighed, from the data of their remarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stripe.diag import Remark
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_spec
from stripec.reporting.figures import Candidate, Search, Searches
from stripec.reporting.words import plural, value_text

MAX_SEARCHES = 60  # in one report
MAX_ROWS = 200  # candidates of one search

_FIGURES = ("cost", "needed", "limit")


def searches(steps: Sequence[StepReport]) -> Searches:
    """All searches in order; those of the same pass with the same outcome are shown once."""
    found: dict[object, Search] = {}
    for step in steps:
        for remark in step.remarks:
            made = _search(step, remark)
            if made is None:
                continue
            key = replace(made, block="")
            like = found.get(key)
            if like is None:
                found[key] = made
            elif made.block not in (like.block, *like.alike):
                found[key] = replace(like, alike=(*like.alike, made.block))
    shown = tuple(found.values())[:MAX_SEARCHES]
    more = len(found) - len(shown)
    return Searches(shown, (f"{plural(more, 'search')} beyond the first {MAX_SEARCHES}",) if more else ())


def _search(step: StepReport, remark: Remark) -> Search | None:
    rows = remark.data.get("candidates")
    if not isinstance(rows, Sequence) or not rows:
        return None
    given = [row for row in rows if isinstance(row, Mapping)]
    chosen = remark.data.get("chosen")
    columns = _columns(given)
    candidates = [_candidate(row, columns, row == chosen) for row in given[:MAX_ROWS]]
    if remark.acted and not any(c.chosen for c in candidates) and candidates:
        if isinstance(chosen, Mapping):
            candidates.insert(0, _candidate(chosen, columns, True))
        elif candidates[0].cost is not None:
            candidates[0] = replace(candidates[0], chosen=True)  # the first is what a pass took
    used = [n for n, column in enumerate(columns) if any(c.cells[n] for c in candidates)]
    columns = [columns[n] for n in used]
    candidates = [replace(c, cells=tuple(c.cells[n] for n in used)) for c in candidates]
    capacity = remark.data.get("capacity")
    return Search(
        step.number, pass_spec(step.step), remark.block, tuple(columns), tuple(candidates),
        str(remark.data.get("unit", "")), str(remark.data.get("resource", "")),
        capacity if isinstance(capacity, int) else None,
        "; ".join(filter(None, (_counts(remark.data), "" if remark.acted else remark.message))),
        max(0, len(given) - MAX_ROWS),
    )  # fmt: skip


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """A column for each size, all of them together, and for each other thing that candidates differ in."""
    sizes = [row["sizes"] for row in rows if isinstance(row.get("sizes"), Mapping)]
    named = dict.fromkeys(f"sizes {name}" for own in sizes if isinstance(own, Mapping) for name in own)
    found: dict[str, None] = {}
    for row in rows:
        for key, value in row.items():
            if key in _FIGURES:
                continue
            if key == "sizes" and isinstance(value, Mapping):
                found |= named
            else:
                found[key] = None
    return list(found)


def _candidate(row: Mapping[str, object], columns: Sequence[str], chosen: bool) -> Candidate:
    cost, needed, sizes = row.get("cost"), row.get("needed"), row.get("sizes")

    def cell(column: str) -> str:
        if column.startswith("sizes "):
            return value_text(sizes.get(column[6:], "")) if isinstance(sizes, Mapping) else ""
        value = row.get(column, "")
        return " ".join(map(value_text, value)) if isinstance(value, list | tuple) else value_text(value)

    return Candidate(
        tuple(map(cell, columns)), float(cost) if isinstance(cost, int | float) else None,
        needed if isinstance(needed, int) else None, str(row.get("limit", "")), chosen,
    )  # fmt: skip


def _counts(data: Mapping[str, object]) -> str:
    """How much was weighed, in words."""

    def said() -> Iterator[str]:
        for key, word in (("weighed", "weighed"), ("excluded", "of them excluded"), ("possible", "possible")):
            value = data.get(key)
            if isinstance(value, int):
                yield f"{value:,} {word}"
        if "complete" in data:
            yield "no other is better" if data["complete"] else "the search was stopped at its bound"

    return ", ".join(said())
