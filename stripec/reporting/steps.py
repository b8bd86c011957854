"""Passes for a report: what each one said and changed."""

from __future__ import annotations

from collections.abc import Sequence

from stripe.ir import Program
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_info, pass_spec
from stripec.reporting.changes import Difference, Part, changes, parts
from stripec.reporting.model import PassDetail, Passes, RemarkLine
from stripec.reporting.words import figures_text, plural

MAX_ROWS = 16_000  # of all changes in one report
MAX_REMARKS = 120  # of one pass


def passes(reports: Sequence[StepReport], programs: Sequence[Program], *, times: bool) -> Passes:
    """All passes; `programs` has the one before the first and after each."""
    room, omitted = MAX_ROWS, 0
    found: list[PassDetail] = []
    texts = parts(programs[0])
    for report, before, after in zip(reports, programs, programs[1:], strict=False):
        difference = Difference((), tuple(_kernels(texts)))
        if before is not after:
            now = parts(after)
            difference = changes(texts, now, room)
            texts = now
        shown = sum(len(h.rows) for c in difference.changes for h in c.hunks)
        room -= shown
        omitted += sum(c.omitted for c in difference.changes)
        found.append(_detail(report, difference, times))
    more = f"{plural(omitted, 'row')} of changes; `stripec compile --dump-passes DIR` writes them all"
    return Passes(tuple(found), (more,) if omitted else ())


def _kernels(texts: Sequence[Part]) -> list[str]:
    return [part.name for part in texts if part.block is not None]


def _detail(report: StepReport, difference: Difference, times: bool) -> PassDetail:
    info = pass_info(report.step.name)
    remarks = _remarks(report)
    verdict = report.verdict
    return PassDetail(
        report.number, report.step.name, pass_spec(report.step), info.summary, report.changed, said(report),
        report.seconds if times else None, report.verify_seconds if times else None,
        "" if verdict is None else ": ".join(filter(None, (verdict.status, verdict.reason))),
        tuple(remarks[:MAX_REMARKS]), difference.changes, difference.unchanged,
        max(0, len(remarks) - MAX_REMARKS),
    )  # fmt: skip


def _remarks(report: StepReport) -> list[RemarkLine]:
    """What the pass said; the same words of several blocks are one line."""
    found: dict[tuple[bool, str, str], list[str]] = {}
    for remark in report.remarks:
        key = remark.acted, " ".join(remark.message.split()), figures_text(remark.data)
        paths = found.setdefault(key, [])
        if remark.block not in paths:
            paths.append(remark.block)
    return [
        RemarkLine(_paths(paths), acted, message, figures, len(paths))
        for (acted, message, figures), paths in found.items()
    ]


def _paths(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:4])
    return shown if len(paths) <= 4 else f"{shown} and {len(paths) - 4} more"


def said(report: StepReport) -> str:
    """What a pass did, in one line: the first of what it says it did, else why it did nothing."""
    remarks = _remarks(report)
    acted = [remark for remark in remarks if remark.acted]
    chosen = acted or ([] if report.changed else remarks)
    if not chosen:
        return "changed the program" if report.changed else "nothing to do"
    more = sum(remark.times for remark in chosen) - 1
    text = f"{chosen[0].block.partition(', ')[0]}: {chosen[0].message}"
    return f"{text} (and {plural(more, 'remark')} more)" if more else text
