"""The tables: stripec beside the best peer of each case, the limit, means by family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.cases import FAMILIES, geometric_mean
from benchmarks.run import LIBRARIES, Row

OURS = "stripec"


def ratio(row: Row, packed: bool, kinds: Sequence[str] = LIBRARIES) -> float | None:
    """stripec's rate over that of the best peer; None where one of them is missing."""
    ours, best = row.rate(OURS, packed), row.best(packed, kinds)
    return ours / best.rate if ours and best is not None and best.rate else None


def of_limit(row: Row) -> float | None:
    """The better of stripec's two rates, as a fraction of the machine's limit."""
    rates = [rate for rate in (row.rate(OURS), row.rate(OURS, True)) if rate]
    return max(rates) / row.limit if rates and row.limit else None


def print_family(console: Console, rows: Sequence[Row]) -> None:
    """One family: a line for each case, and the geometric means."""
    family = rows[0].family
    units = sorted({row.unit for row in rows})
    packed = any(entry.packed for row in rows for entry in row.entries)
    halide = any(row.best(False, ("schedule",)) for row in rows)
    ruler = any(row.yardstick for row in rows) and family in ("tactics", "tccg")
    title = f"{family}: {FAMILIES.get(family, '')}; {', '.join(units)}"
    table = Table(title=title, title_justify="left")
    headings = ["stripec", "best", "peer", "ratio"]
    headings += ["packed", "best", "packed too", "ratio"] if packed else []
    headings += ["Halide", "ratio"] if halide else []
    headings += ["sgemm", "ratio"] if ruler else []
    table.add_column("case", no_wrap=True)
    busy = any(row.busy for row in rows)
    for heading in (*headings, "limit", "bound", "of limit", *(("core",) if busy else ())):
        table.add_column(heading, justify="left" if heading in ("peer", "packed too", "bound") else "right")
    for row in rows:
        table.add_row(*_cells(row, packed, halide, ruler), *((_core(row),) if busy else ()))
    table.add_section()
    label, rows = mean_of(rows)
    means = [label, "", "", "", _ratio(_mean(rows, False))]
    means += ["", "", "", _ratio(_mean(rows, True))] if packed else []
    means += ["", _ratio(_mean(rows, False, ("schedule",)))] if halide else []
    means += ["", _ratio(_ruler_mean(rows))] if ruler else []
    limits = [value for row in rows if (value := of_limit(row))]
    means += ["", "", f"{geometric_mean(limits):.0%}" if limits else ""]
    table.add_row(*means, style="bold")
    console.print(table)


def mean_of(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """What to call a mean, and the rows that count in it: those in which others had the core do not."""
    quiet = [row for row in rows if not row.busy]
    left = len(rows) - len(quiet)
    return "geometric mean" + (f", {left} busy left out" if left else ""), quiet


def _core(row: Row) -> str:
    """The least part of the core that a contender had."""
    shares = [entry.cores for entry in row.entries if entry.rate and entry.cores]
    return f"{min(shares, default=0.0):.2f} busy" if row.busy else ""


def _cells(row: Row, packed: bool, halide: bool, ruler: bool) -> list[str]:
    cells = [row.case, _ours(row, False), *_best(row, False), _ratio(ratio(row, False))]
    if packed:
        cells += [_ours(row, True), *_best(row, True), _ratio(ratio(row, True))]
    if halide:
        best = row.best(False, ("schedule",))
        cells += [_rate(best.rate if best else None), _ratio(ratio(row, False, ("schedule",)))]
    if ruler:
        ours = row.rate(OURS)
        cells += [_rate(row.yardstick), _ratio(ours / row.yardstick if ours and row.yardstick else None)]
    share = of_limit(row)
    return [*cells, _rate(row.limit), row.bound, f"{share:.0%}" if share else ""]


def _ours(row: Row, packed: bool) -> str:
    for entry in row.entries:
        if entry.peer == OURS and entry.packed == packed:
            return _rate(entry.rate) if entry.rate else _word(entry.reason)
    return ""


def _best(row: Row, packed: bool) -> tuple[str, str]:
    best = row.best(packed)
    return (_rate(best.rate), best.key) if best is not None else ("", "")


def print_peers(console: Console, rows: Sequence[Row]) -> None:
    """Every peer's rate, one column each; `~` marks quartiles more than 10 % apart, `busy` what others
    disturbed."""
    names = list(dict.fromkeys(entry.key for row in rows for entry in row.entries if entry.rate))
    table = Table(title=f"{rows[0].family}: all contenders", title_justify="left")
    table.add_column("case", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        known = {entry.key: entry for entry in row.entries}
        cells = []
        for name in names:
            entry = known.get(name)
            if entry is None or entry.rate is None:
                cells.append(_word(entry.reason) if entry else "")
            else:
                wide = (entry.high or 0) - (entry.low or 0) > 0.1 * entry.rate
                cells.append(f"{'~' if wide else ''}{_rate(entry.rate)}{' busy' if entry.busy else ''}")
        table.add_row(row.case, *cells)
    console.print(table)


def print_notes(console: Console, rows: Iterable[Row]) -> None:
    """What failed, what is wrong, and what has a remark; each once."""
    seen: dict[str, list[str]] = {}
    for row in rows:
        for entry in row.entries:
            text = entry.reason if entry.reason.startswith(("failed", "wrong")) else entry.note
            if text:
                seen.setdefault(f"{entry.key}: {text}", []).append(row.case)
    for text, cases in seen.items():
        shown = ", ".join(cases[:4]) + (f" and {len(cases) - 4} more" if len(cases) > 4 else "")
        console.print(f"{text} ({shown})", highlight=False)


def print_change(console: Console, rows: Sequence[Row], before: Sequence[Row]) -> None:
    """stripec now against stripec in an earlier run, case by case. Rates are divided by the machine's
    limit of their run first, as clocks differ from run to run."""
    earlier = {(row.family, row.case): row for row in before}
    table = Table(title="change against the earlier run", title_justify="left")
    table.add_column("case", no_wrap=True)
    for heading in ("before", "now", "now / before", "of limits", "ratio to peers before", "now"):
        table.add_column(heading, justify="right")
    changes: list[float] = []
    left = 0
    for row in rows:
        old = earlier.get((row.family, row.case))
        for packed in (False, True):
            new_rate, old_rate = row.rate(OURS, packed), old.rate(OURS, packed) if old else None
            if old is None or not new_rate or not old_rate:
                continue
            scaled = (new_rate / row.limit) / (old_rate / old.limit)
            busy = row.busy or old.busy
            if not busy:
                changes.append(scaled)
            left += busy
            name = row.case + (", packed" if packed else "") + (" (busy)" if busy else "")
            table.add_row(
                name, _rate(old_rate), _rate(new_rate), _ratio(new_rate / old_rate), _ratio(scaled),
                _ratio(ratio(old, packed)), _ratio(ratio(row, packed)),
            )  # fmt: skip
    table.add_section()
    label = "geometric mean" + (f", {left} busy left out" if left else "")
    table.add_row(label, "", "", "", _ratio(geometric_mean(changes)), "", "", style="bold")
    console.print(table)


def _mean(rows: Sequence[Row], packed: bool, kinds: Sequence[str] = LIBRARIES) -> float:
    return geometric_mean([value for row in rows if (value := ratio(row, packed, kinds))])


def _ruler_mean(rows: Sequence[Row]) -> float:
    pairs = [(row.rate(OURS), row.yardstick) for row in rows]
    return geometric_mean([ours / ruler for ours, ruler in pairs if ours and ruler])


def _word(reason: str) -> str:
    """Why there is no figure, in a word; the reasons are printed below the tables."""
    return "wrong" if reason.startswith("wrong") else "failed" if reason.startswith("failed") else "-"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2f}"
