"""What came of the mutants: a table by pass and check, and the survivors that nothing explains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.judge import CHECKS, Judgement

SURVIVORS = Path(__file__).with_name("survivors.md")


def explained() -> dict[str, str]:
    """The survivors that survivors.md explains, by key: lines `- `KEY`: explanation`."""
    text = SURVIVORS.read_text(encoding="utf-8")
    return dict(re.findall(r"^- `(.+?)`: (.+)$", text, re.MULTILINE))


def table(judgements: Sequence[Judgement]) -> str:
    """For each pass: how many mutants, which check caught each first, how many survived."""
    columns = (*CHECKS, "survived")
    counts = {subject: Counter[str]() for subject in sorted({j.subject for j in judgements})}
    for judgement in judgements:
        counts[judgement.subject][judgement.first] += 1
    rows: list[tuple[str, ...]] = [("", "mutants", *columns)]
    rows += [(s, str(c.total()), *(str(c[name]) for name in columns)) for s, c in counts.items()]
    whole: Counter[str] = sum(counts.values(), Counter())
    rows.append(("all", str(whole.total()), *(str(whole[name]) for name in columns)))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            f"{cell:>{width}}" if at else f"{cell:<{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(lines)


def meaning(judgements: Sequence[Judgement]) -> str:
    """How translation validation and the interpreter compare on valid programs of another meaning."""
    validator = sum("validator" in j.checks for j in judgements)
    interpreter = sum("interpreter" in j.checks for j in judgements)
    both = sum({"validator", "interpreter"} <= set(j.checks) for j in judgements)
    refuted = sum(j.refuted for j in judgements)
    return (
        f"of the well-formed wrong programs translation validation caught {validator}, "
        f"the interpreter {interpreter}, both {both}; proved though wrong: {refuted}"
    )


def unexplained(judgements: Sequence[Judgement]) -> list[Judgement]:
    known = explained()
    return [j for j in judgements if j.first == "survived" and j.key not in known]
