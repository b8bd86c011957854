"""One mutant, in a process of its own: which check catches it.

The mutated module is executed in place of the real one, in memory; files are not touched. Whatever
else had taken functions or classes from it is given the new ones. Checks, in the order in which a
user of the compiler meets them:

    crash        an exception of the pass that is no refusal, or no end
    contract     the program rebuilt without a change
    verifier     the result is no valid program
    validator    the result is not proved to compute the same, where that of the real pass is
    interpreter  the result computes something else
    result       the result that a golden file pins is another one, or stays away
    tests        the pass's own tests fail
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, fields
from types import FrameType, ModuleType
from typing import Any

import pytest

from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes import registry
from stripe.passes.base import Pass, PassContext
from stripe.printer import to_text
from stripe.validate import validate
from stripe.validate_run import difference
from stripe.verify import findings
from tests.mutants.battery import Trial
from tests.mutants.edits import ROOT, Edit, mutated

CHECKS = ("crash", "contract", "verifier", "validator", "interpreter", "result", "tests")
REFUTED = "refuted"  # a proof, by the interpreter: no check of the mutant, but a fault of validation
SECONDS = (
    60  # of processor time, for the trials of a mutant, and again for tests: what takes longer has no end
)


@dataclass
class Judgement:
    """The checks that caught a mutant, on any trial; none: it survived. `first` is the earliest. `refuted`:
    a result was proved to compute the same, and the interpreter shows that it does not."""

    edit: str
    key: str
    subject: str
    checks: list[str] = field(default_factory=list)
    trial: str = ""
    detail: str = ""
    seconds: float = 0.0
    refuted: bool = False

    @property
    def first(self) -> str:
        return next((check for check in CHECKS if check in self.checks), "survived")


class _EndlessError(BaseException):
    """A mutant that does not come to an end."""


def judge(subject: str, edit: Edit, trials: Sequence[Trial], tests: Sequence[str]) -> Judgement:
    """Run a mutant in a forked process on its trials and, if these don't catch it, on tests."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            signal.signal(signal.SIGPROF, _stop)
            with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
                found = _judged(subject, edit, trials, tests)
            os.write(writing, json.dumps(asdict(found)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        return Judgement(str(edit), edit.key, subject, ["crash"], "", "the process died")
    return Judgement(**json.loads(data))


def _stop(_: int, __: FrameType | None) -> None:
    raise _EndlessError


def _judged(subject: str, edit: Edit, trials: Sequence[Trial], tests: Sequence[str]) -> Judgement:
    found = Judgement(str(edit), edit.key, subject)
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        install(edit)
        for trial in trials:
            checks, detail = _checks(trial)
            found.refuted |= REFUTED in checks
            checks = [check for check in checks if check != REFUTED]
            if checks and not found.checks:
                found.trial, found.detail = trial.name, detail
            found.checks = sorted({*found.checks, *checks}, key=CHECKS.index)
            if {"crash", "contract", "verifier", "validator", "interpreter"} & set(found.checks):
                break
        if not found.checks and tests:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            if _tests_fail(tests):
                found.checks = ["tests"]
    except _EndlessError:
        found.checks, found.detail = ["crash"], f"no end within {SECONDS} s"
    except Exception as error:  # noqa: BLE001 - the module itself does not load
        found.checks, found.detail = ["crash"], repr(error)
    signal.setitimer(signal.ITIMER_PROF, 0)
    found.seconds = round(time.perf_counter() - started, 2)
    return found


def install(edit: Edit) -> None:
    """Put the mutated module in the place of the real one, for all who use it."""
    module = sys.modules[edit.module]
    old = dict(vars(module))
    exec(compile(mutated(edit), str(edit.path), "exec"), vars(module))
    swaps = {
        id(value): vars(module)[name]
        for name, value in old.items()
        if getattr(value, "__module__", None) == edit.module and vars(module).get(name) is not value
    }
    for other in list(sys.modules.values()):
        if isinstance(other, ModuleType) and other.__name__.partition(".")[0] in ("stripe", "tests"):
            for name, value in list(vars(other).items()):
                if id(value) in swaps:
                    setattr(other, name, swaps[id(value)])
    for cached in (registry.pass_class, registry.pass_info, registry._options):
        cached.cache_clear()


def _fresh(step: Pass) -> Pass:
    """The same step with the class that is in place now."""
    options: dict[str, Any] = {field.name: getattr(step, field.name) for field in fields(step)}
    return registry.pass_class(step.name)(**options)


def _checks(trial: Trial) -> tuple[list[str], str]:
    """What catches the mutant on one trial."""
    pinned = ["result"] if trial.pinned else []
    try:
        after = _fresh(trial.step).run(trial.before, PassContext(trial.hw))
    except CompileError as error:
        return pinned, f"refused: {error.diagnostics[0].message}"
    except Exception as error:  # noqa: BLE001 - whatever a mutant raises
        return ["crash"], repr(error)
    if after is trial.before:
        return pinned, "nothing was done"
    if after == trial.before:
        return ["contract"], "an equal program was built"
    wrong = findings(after, trial.hw)
    if wrong:
        return ["verifier"], wrong[0].message
    found, detail = _meaning(trial, after)
    if not found and to_text(after) != trial.text:
        return pinned, "another program of the same meaning"
    return found, detail


def _meaning(trial: Trial, after: Program) -> tuple[list[str], str]:
    if to_text(after) == trial.text:
        return [], ""
    found, detail = [], ""
    verdict = validate(trial.before, after)
    if trial.proved and verdict.status != "proved":
        found.append("validator")
        detail = verdict.reason
    try:
        wrong = difference(trial.before, after)
    except CompileError as error:
        return [*found, "interpreter"], detail or error.diagnostics[0].message
    if wrong is not None:
        found += ["interpreter", *([REFUTED] if verdict.status == "proved" else [])]
        detail = detail or str(wrong)
    return found, detail


class _Ends:
    """Stops a run of pytest at the first failure and says so."""

    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed


def _tests_fail(tests: Sequence[str]) -> bool:
    ends = _Ends()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = pytest.main(
            [
                "-q",
                "-x",
                "--assert=plain",
                "-o",
                "filterwarnings=",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                f"--rootdir={ROOT}",
                *tests,
            ],
            [ends],
        )
    return ends.failed or code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
