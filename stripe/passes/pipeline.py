"""Runs passes one after the other, and holds each to its contract.

program -> verify -> pass -> verify -> pass -> ... -> program
                          \\-> observers: dumps, timing, reports
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic, InvariantError, Remark
from stripe.ir import Program
from stripe.passes.base import Pass, PassContext
from stripe.passes.kernels import run_pass
from stripe.passes.registry import pass_spec
from stripe.validate import Verdict
from stripe.validate_run import checked
from stripe.verify import verify as verify_program

VerifyLevel: TypeAlias = Literal["off", "on", "full"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did. `number` counts from 1; `seconds` leaves out `verify_seconds`.

    `changed` is false where the pass returned the program that it was given. `verdict` is that of
    translation validation, under verify="full", on a step that changed something.
    """

    number: int
    step: Pass
    seconds: float
    changed: bool
    remarks: tuple[Remark, ...] = ()
    verify_seconds: float = 0.0
    validate_seconds: float = 0.0
    verdict: Verdict | None = None


Observer: TypeAlias = Callable[[StepReport, Program], None]


def check_verify_level(level: str) -> None:
    """Raises CompileError D002 for a level that there is not."""
    if level not in ("off", "on", "full"):
        raise CompileError(Diagnostic("D002", f"verify is 'off', 'on' or 'full', not {level!r}"))


def run_pipeline(
    program: Program,
    steps: Sequence[Pass],
    hw: HwConfig,
    *,
    observers: Sequence[Observer] = (),
    verify: VerifyLevel = "on",
) -> Program:
    """The program after all steps. Each observer is called after each step.

    The program that comes in is verified too: what is wrong with it is the user's, a
    CompileError. A pass whose output does not verify, or that returns a copy of what it was given
    instead of the object itself, broke its contract: an InvariantError that names the step.
    So did one whose output computes something else, which verify="full" finds out: see
    stripe.validate. Where that has no proof, small programs are run and compared.
    """
    check_verify_level(verify)
    if verify != "off":
        verify_program(program, hw)
    for number, step in enumerate(steps, start=1):
        context = PassContext(hw)
        started = time.perf_counter()
        try:
            result = run_pass(step, program, context)
        except Exception as error:
            error.add_note(f"in {_place(number, steps)}")
            raise
        ended = time.perf_counter()
        changed = result is not program
        if changed and result == program:
            raise InvariantError(
                f"{_place(number, steps)} rebuilt the program without changing it; "
                "a pass that has nothing to do returns the object that it was given"
            )
        if changed and verify != "off":
            _verify_result(result, hw, number, steps)
        verified = time.perf_counter()
        verdict = _validate_result(program, result, hw, number, steps) if verify == "full" else None
        report = StepReport(
            number, step, ended - started, changed, tuple(context.remarks), verified - ended,
            time.perf_counter() - verified, verdict,
        )  # fmt: skip
        for observe in observers:
            observe(report, result)
        program = result
    return program


def _verify_result(program: Program, hw: HwConfig, number: int, steps: Sequence[Pass]) -> None:
    try:
        verify_program(program, hw)
    except CompileError as error:
        raise InvariantError(f"{_place(number, steps)} made an invalid program:\n{error}") from error


def _validate_result(
    before: Program, after: Program, hw: HwConfig, number: int, steps: Sequence[Pass]
) -> Verdict | None:
    if after is before:
        return None
    verdict = checked(before, after, hw)
    if verdict.status == "refuted":
        at = next((k for k in verdict.kernels if k.status != "proved"), None)
        where = f"\nin {at.kernel}: {at.reason}" if at is not None else ""
        message = f"{_place(number, steps)} made a program that computes something else:\n{verdict.reason}"
        raise InvariantError(message + where)
    return verdict


def _place(number: int, steps: Sequence[Pass]) -> str:
    before = ",".join(pass_spec(step) for step in steps[: number - 1])
    after = f" after {before}" if before else ""
    return f"the pass '{steps[number - 1].name}' (step {number}: {pass_spec(steps[number - 1])}{after})"
