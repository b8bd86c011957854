"""Observers of a pipeline: numbered dumps of the program after each pass, and where time went."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from stripe.files import make_folder, write_whole
from stripe.ir import Program
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_spec
from stripe.printer import to_text

_MARK = "// step "


class DumpPasses:
    """Writes `00_input.stripe`, `01_canonicalize.stripe` ... into a folder.

    Each file is a Stripe text that `stripec opt` reads; comments at its top give the step, what it
    said, and `(unchanged)` where it did nothing. Dumps of an earlier run are removed first.
    Raises CompileError D010 if the folder can't be written.
    """

    def __init__(self, folder: Path, program: Program) -> None:
        self._folder = folder
        make_folder(folder)
        for old in sorted(folder.glob("[0-9][0-9]_*.stripe")):
            if old.is_file() and old.read_text(errors="replace").startswith(_MARK):
                old.unlink()
        self._write(0, "input", ["input"], program)

    def __call__(self, report: StepReport, program: Program) -> None:
        state = "" if report.changed else " (unchanged)"
        head = [f"{pass_spec(report.step)}{state}"]
        head += [
            f"{'' if r.acted else 'did not act on '}{r.block}: {_one_line(r.message)}"
            for r in report.remarks
        ]  # fmt: skip
        self._write(report.number, report.step.name, head, program)

    def _write(self, number: int, name: str, head: list[str], program: Program) -> None:
        comments = f"{_MARK}{number}: {head[0]}\n" + "".join(f"//   {line}\n" for line in head[1:])
        write_whole(self._folder / f"{number:02d}_{name}.stripe", comments + to_text(program))


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@dataclass(slots=True)
class Timing:
    """Collects how long each pass and its verification took."""

    steps: list[StepReport] = field(default_factory=list)

    def __call__(self, report: StepReport, program: Program) -> None:
        self.steps.append(report)

    def table(self) -> str:
        """One line for each step: milliseconds in the pass, in its verification, its name."""
        lines = ["     pass   verify"]
        lines += [
            f"{s.seconds * 1e3:6.1f} ms {s.verify_seconds * 1e3:5.1f} ms  {pass_spec(s.step)}"
            for s in self.steps
        ]
        total = sum(s.seconds for s in self.steps), sum(s.verify_seconds for s in self.steps)
        lines.append(f"{total[0] * 1e3:6.1f} ms {total[1] * 1e3:5.1f} ms  in all")
        return "\n".join(lines)
