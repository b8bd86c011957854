"""The program as it was written, with the text of each kernel told apart."""

from __future__ import annotations

from collections.abc import Sequence

from stripe.diag import Source, Span
from stripe.ir import Block
from stripec.reporting.model import SourcePiece, SourceText

MAX_LINES = 3000


def source_text(source: Source, kernels: Sequence[tuple[int, str, Block]]) -> SourceText:
    """The lines of a source. `kernels` are number, path and block of those that it says."""
    spans = [(block.span, number) for number, _, block in kernels if _of(block.span, source)]
    by_span: dict[tuple[int, int], list[int]] = {}
    for span, number in spans:
        assert span is not None  # `_of` says so
        by_span.setdefault((span.start, span.end), []).append(number)
    lines: list[tuple[SourcePiece, ...]] = []
    starts: list[tuple[int, ...]] = []
    at = 0
    marks = _apart(sorted(by_span))
    for line in source.text.split("\n"):
        end = at + len(line)
        pieces: list[SourcePiece] = []
        here = at
        for first, last in marks:
            if first < end and last > at:
                low, high = max(first, at), min(last, end)
                if low > here:
                    pieces.append(SourcePiece(source.text[here:low]))
                pieces.append(SourcePiece(source.text[low:high], tuple(by_span[first, last])))
                here = high
        if here < end or not pieces:
            pieces.append(SourcePiece(source.text[here:end]))
        lines.append(tuple(pieces))
        starts.append(tuple(n for (first, _), ns in by_span.items() if at <= first <= end for n in ns))
        at = end + 1
    if lines and lines[-1] == (SourcePiece(""),):
        lines, starts = lines[:-1], starts[:-1]
    names = tuple((number, path) for number, path, _ in kernels)
    return SourceText(
        source.name,
        tuple(lines[:MAX_LINES]),
        tuple(starts[:MAX_LINES]),
        names,
        max(0, len(lines) - MAX_LINES),
    )


def line_of(block: Block) -> int:
    """The line on which a block was written; 0 if none is known."""
    return block.span.source.line_and_column(block.span.start)[0] if block.span is not None else 0


def _of(span: Span | None, source: Source) -> bool:
    return span is not None and span.source == source


def _apart(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, without those that lie over an earlier one: text is marked once."""
    found: list[tuple[int, int]] = []
    for first, last in spans:
        if not found or first >= found[-1][1]:
            found.append((first, last))
    return found
