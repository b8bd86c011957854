"""Text for a person at a terminal, with colours; the same text without them for everything else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; `style` is a style of rich, for terminals."""

    text: str
    style: str = ""


def width() -> int:
    """Columns for text: those of the terminal, WIDTH at most."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def print_lines(lines: Sequence[Line]) -> None:
    if not sys.stdout.isatty():
        sys.stdout.write("".join(f"{line.text}\n" for line in lines))
        return
    from rich.console import Console  # rich takes long to import, and few runs need it
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line.text, style=line.style))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for a person at a terminal, columns of plain text for everything else."""
    if sys.stdout.isatty():
        from rich.console import Console  # see print_lines
        from rich.table import Table
        from rich.text import Text

        table = Table(*head, box=None, header_style="bold")
        for row in rows:
            table.add_row(*map(Text, row))  # a Text: `[candidates]` is no markup
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
