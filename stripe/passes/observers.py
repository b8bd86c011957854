"""Observers of a pipeline: numbered dumps of the program after each pass, and where time went."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stripe.diag import Remark
from stripe.files import make_folder, write_whole
from stripe.ir import Program
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_spec
from stripe.printer import to_text

_MARK = "// step "


def write_dump(
    folder: Path,
    number: int,
    spec: str,
    program: Program,
    *,
    changed: bool = True,
    remarks: Sequence[Remark] = (),
) -> None:
    """Write one numbered file: comments on the step, then the program as Stripe text.

    Number 0 is the input and removes the dumps of an earlier run. Raises CompileError D010 if
    the folder can't be written.
    """
    if number == 0:
        _remove_dumps(folder)
    state = "" if changed else " (unchanged)"
    lines = [f"{_MARK}{number}: {spec}{state}"]
    for remark in remarks:
        verb = "" if remark.acted else "left alone "
        lines.append(f"//   {verb}{remark.block}: {' '.join(remark.message.split())}")
    name = re.match(r"[\w.-]*", spec)
    assert name is not None  # the pattern takes any text
    write_whole(folder / f"{number:02d}_{name[0]}.stripe", "\n".join(lines) + "\n" + to_text(program))


def _remove_dumps(folder: Path) -> None:
    for old in folder.glob("[0-9][0-9]_*.stripe"):
        if old.is_file() and old.read_text(errors="replace").startswith(_MARK):
            old.unlink()


class DumpPasses:
    """Writes `00_input.stripe`, `01_canonicalize.stripe` ... into a folder while passes run.

    Each file is a text that `stripec opt` reads. A pass that fails leaves the dumps before it.
    """

    def __init__(self, folder: Path, program: Program) -> None:
        self._folder = folder
        make_folder(folder)
        write_dump(folder, 0, "input", program)

    def __call__(self, report: StepReport, program: Program) -> None:
        spec = pass_spec(report.step)
        write_dump(
            self._folder, report.number, spec, program, changed=report.changed, remarks=report.remarks
        )  # fmt: skip


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
