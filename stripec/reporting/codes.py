"""Native code for a report: LLVM IR and assembly, with the loops in which most time goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stripe.diag import CompileError
from stripec.api import Specialisation
from stripec.reporting.model import Code, Text

MAX_LINES = 4000  # of each text
MAX_HOT = 4  # loops marked in each text

_LABEL = re.compile(r"""^"?([.\w$-]+)"?:""")
_FUNCTION_IR = re.compile(r"^define\b")


def code(made: Specialisation) -> Code | None:
    """The texts of native code; None for a target that no CPU executes."""
    if made.hw.executor != "cpu":
        return None
    try:
        llvm, asm = made.module.llvm.splitlines(), made.module.asm.splitlines()
    except CompileError as error:  # the program itself compiled: a report of the rest is worth having
        return Code("", (), error.diagnostics[0].message)
    return Code(made.module.target.triple, (_text("LLVM IR", llvm, True), _text("assembly", asm, False)))


def _text(name: str, lines: Sequence[str], ir: bool) -> Text:
    hot = [span for span in hot_loops(lines, ir) if span[1] <= MAX_LINES]
    note = "marked: the innermost loops, those in most others, and of these the longest" if hot else ""
    return Text(name, tuple(lines[:MAX_LINES]), max(0, len(lines) - MAX_LINES), tuple(hot), note)


def hot_loops(lines: Sequence[str], ir: bool) -> list[tuple[int, int]]:
    """First and last line, from 1, of the loops that hold no other and lie in most others.

    A loop is a jump to a label above it in the same function. Of loops in equally many others, those at least
    half as long as the longest count: copies and remainders are short.
    """
    loops = _loops(lines, ir)
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    if not inner:
        return []
    depth = {a: sum(b[0] <= a[0] and a[1] <= b[1] for b in loops) for a in inner}
    deepest = max(depth.values())
    most = [a for a in inner if depth[a] == deepest]
    longest = max(end - start for start, end in most)
    kept = [a for a in most if 2 * (a[1] - a[0]) >= longest]
    return [(start + 1, end + 1) for start, end in sorted(kept)][:MAX_HOT]


def _loops(lines: Sequence[str], ir: bool) -> list[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    labels: dict[str, int] = {}
    for at, line in enumerate(lines):
        if _FUNCTION_IR.match(line):
            labels = {}
        label = _LABEL.match(line)
        if label is not None:
            if not ir and not label[1].startswith("."):
                labels = {}  # another function
            labels[label[1]] = at
            continue
        if ir and not re.match(r"\s+(br|switch)\b", line):
            continue
        for target in _targets(line, ir):
            if target in labels:
                start = labels[target]
                found.add((start, at))
    return sorted({(start, max(e for s, e in found if s == start)) for start, _ in found})


def _targets(line: str, ir: bool) -> list[str]:
    if ir:
        return list(re.findall(r"label %\"?([.\w$-]+)\"?", line))
    words = line.split("#")[0].split("//")[0].split()
    return (
        [words[-1]] if len(words) >= 2 and words[-1].startswith(".") and not words[0].startswith(".") else []
    )
