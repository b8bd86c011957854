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
        whole = any(s.verdict is not None for s in self.steps)
        lines = ["     pass   verify" + ("  validate" if whole else "")]
        rows = [((s.seconds, s.verify_seconds, s.validate_seconds), pass_spec(s.step)) for s in self.steps]
        sums = [sum(seconds[at] for seconds, _ in rows) for at in range(3)]
        for seconds, name in (*rows, (tuple(sums), "in all")):
            third = f" {seconds[2] * 1e3:7.1f} ms" if whole else ""
            lines.append(f"{seconds[0] * 1e3:6.1f} ms {seconds[1] * 1e3:5.1f} ms{third}  {name}")
        return "\n".join(lines)


def validation_text(reports: Sequence[StepReport]) -> str:
    """What translation validation found, in lines for people; empty if it was not asked for."""
    found = [(report, report.verdict) for report in reports if report.verdict is not None]
    if not found:
        return ""
    proved = sum(verdict.proved_kernels for _, verdict in found)
    changed = sum(len(verdict.kernels) for _, verdict in found)
    ran = sum(verdict.ran for _, verdict in found)
    seconds = sum(report.validate_seconds for report in reports)
    open_ = [(report, verdict) for report, verdict in found if verdict.status != "proved"]
    lines = [
        f"validated {len(found)} steps in {seconds:.2f} s: proved {proved} of {changed} changed kernels, "
        f"checked {ran} steps by running"
    ]
    for report, verdict in open_:
        how = "runs the same on random inputs" if verdict.ran else "NOT CHECKED"
        lines.append(f"  step {report.number}, {pass_spec(report.step)}: {how}; no proof: {verdict.reason}")
    return "\n".join(lines)
