"""Diagnostics: where something is wrong, what it is, and what to do about it.

A `CompileError` is the user's to mend; an `InvariantError` is a fault of stripec itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a person wrote, with the name it is known by (a path, or `<string>`)."""

    name: str
    text: str

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset."""
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        return line, column

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, without its line break."""
        lines = self.text.split("\n")
        return lines[line - 1].rstrip("\r") if 0 < line <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range of characters [start, end) of a source."""

    source: Source
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.source, self.start, other.end)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: a stable code, a sentence, a place, and notes such as `help: ...`."""

    code: str
    message: str
    span: Span | None = None
    notes: tuple[str, ...] = ()

    def render(self) -> str:
        """The finding as a person reads it: position, message, source line and caret, notes."""
        head = f"error[{self.code}]: {self.message}"
        tail = "".join(f"\n     = {note}" for note in self.notes)
        if self.span is None:
            return head + tail
        line, column = self.span.source.line_and_column(self.span.start)
        text = self.span.source.line_text(line)
        shown, caret_at = _window(text, column - 1)
        width = max(1, min(self.span.end - self.span.start, len(shown) - caret_at))
        lead = "".join("\t" if char == "\t" else " " for char in shown[:caret_at])
        shown = "".join(
            char if char == "\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in shown
        )
        place = f"{self.span.source.name}:{line}:{column}: "
        return f"{place}{head}\n{line:>5} | {shown}\n      | {lead}{'^' * width}{tail}"


def _window(text: str, at: int, width: int = 160) -> tuple[str, int]:
    """Cut a long line to a window around column `at`; return it and the new column."""
    if len(text) <= width:
        return text, at
    start = max(0, at - width // 2)
    return text[start : start + width], at - start


class CompileError(Exception):
    """What the user gave can't be compiled or run; `diagnostics` says why and where."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics

    def __str__(self) -> str:
        shown = [d.render() for d in self.diagnostics[:20]]
        if len(self.diagnostics) > 20:
            shown.append(f"... and {len(self.diagnostics) - 20} more")
        return "\n".join(shown)


class InvariantError(Exception):
    """stripec broke one of its own rules: a fault to report, not one of the user's."""


@dataclass(slots=True)
class Remark:
    """What a pass did to a block, or why it did not act; `data` holds figures for reports."""

    pass_name: str
    block: str
    acted: bool
    message: str
    data: dict[str, object] = field(default_factory=dict)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one most likely meant, if there is a near one."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Notes for an unknown name: the nearest known one, else the list of all."""
    names = sorted(known)
    near = nearest(name, names)
    if near is not None:
        return (f"help: did you mean '{near}'?",)
    return (f"known: {', '.join(names)}",) if names else ()
