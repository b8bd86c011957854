"""Native code for a report: LLVM IR and assembly, with the loops in which most time goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from codegen_cpu.assembly import CodeFacts, code_facts
from stripe.diag import CompileError
from stripec.api import Specialisation
from stripec.reporting.model import Code, Text
from stripec.reporting.words import plural

MAX_LINES = 4000  # of each text
MAX_HOT = 4  # loops marked in each text

_LABEL = re.compile(r"""^"?([.\w$-]+)"?:""")
_FUNCTION_IR = re.compile(r"^define\b")
_COMPUTES_IR = re.compile(r"= (?:tail )?(?:f(?:mul|add|sub|div|neg|cmp)\b|call .*@llvm\.|(?:mul|add|sub) <)")


def code(made: Specialisation) -> Code | None:
    """The texts of native code; None for a target that no CPU executes."""
    if made.hw.executor != "cpu":
        return None
    try:
        llvm, asm = made.module.llvm.splitlines(), made.module.asm.splitlines()
    except CompileError as error:  # the program itself compiled: a report of the rest is worth having
        return Code("", (), error.diagnostics[0].message)
    triple = made.module.target.triple
    facts = code_facts(made.module.asm, triple)
    busy = hot_loops(asm, False, lambda part: _computing(part, triple))
    return Code(
        triple,
        (
            _text("LLVM IR", llvm, hot_loops(llvm, True, _computing_ir), ""),
            _text("assembly", asm, busy, _said(facts)),
        ),
    )


def _text(name: str, lines: Sequence[str], loops: Sequence[tuple[int, int]], more: str) -> Text:
    hot = [span for span in loops if span[1] <= MAX_LINES]
    note = ". ".join(filter(None, ("marked: the innermost loops that compute most" if hot else "", more)))
    return Text(name, tuple(lines[:MAX_LINES]), max(0, len(lines) - MAX_LINES), tuple(hot), note)


def _said(facts: CodeFacts | None) -> str:
    """What is in one turn of the hot loop."""
    if facts is None:
        return ""
    hot = facts.hot
    counts = (
        (hot.multiply_adds, "multiply-add"), (hot.arithmetic, "other arithmetic instruction"),
        (hot.loads, "load"), (hot.broadcasts, "broadcast"), (hot.gathers, "gather"), (hot.stores, "store"),
    )  # fmt: skip
    said = [plural(count, what) for count, what in counts if count]
    spilled = hot.spills + hot.reloads
    said.append(f"{plural(spilled, 'access')} to the stack" if spilled else "no spills")
    return f"One turn of the hottest: {', '.join(said)}; {plural(hot.registers, 'vector register')}"


def _computing(lines: Sequence[str], triple: str) -> int:
    """How many instructions of assembly compute."""
    facts = code_facts("\n".join(("part:", *lines, ".Lfunc_end0:")), triple)
    return 0 if facts is None else facts.hot.multiply_adds + facts.hot.arithmetic


def _computing_ir(lines: Sequence[str]) -> int:
    return sum(_COMPUTES_IR.search(line) is not None for line in lines)


def hot_loops(
    lines: Sequence[str], ir: bool, computing: Callable[[Sequence[str]], int]
) -> list[tuple[int, int]]:
    """First and last line, from 1, of the loops that hold no other and compute most: those that have at least
    half as many such instructions as the first of them.

    A loop is what lies between a label and the last jump back to it in the same function.
    """
    loops = _loops(lines, ir)
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    weights = {(start, end): computing(lines[start + 1 : end + 1]) for start, end in inner}
    most = max(weights.values(), default=0)
    kept = [span for span, weight in weights.items() if most and 2 * weight >= most]
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
