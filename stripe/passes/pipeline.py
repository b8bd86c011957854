"""Runs passes one after the other, and holds each to its contract.

program -> verify -> pass -> verify -> pass -> ... -> program
                          \\-> observers: dumps, timing, reports
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic, InvariantError, Remark
from stripe.ir import Program
from stripe.passes.base import Pass, PassContext
from stripe.passes.choices import Choice
from stripe.passes.kernels import run_pass
from stripe.passes.registry import pass_spec
from stripe.validate import Verdict
from stripe.validate_run import checked
from stripe.verify import verify as verify_program
from stripe.visit import walk

VerifyLevel: TypeAlias = Literal["off", "on", "full"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did. `number` counts from 1; `seconds` leaves out `verify_seconds`.

    `changed` is false where the pass returned the program that it was given. `choices` are those that it made
    for blocks, by their paths (see stripe.passes.choices). `verdict` is that of
    translation validation, under verify="full", on a step that changed something.
    """

    number: int
    step: Pass
    seconds: float
    changed: bool
    remarks: tuple[Remark, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict)
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
    CompileError. So is one that no longer suits the target, such as a buffer that its memory can't hold:
    CompileError P006. A pass whose output does not verify otherwise, or that returns a copy of what it was
    given instead of the object itself, broke its contract: an InvariantError that names the step.
    So did one whose output computes something else, which verify="full" finds out: see
    stripe.validate. Where that has no proof, small programs are run and compared.
    """
    check_verify_level(verify)
    if verify != "off":
        verify_program(program, hw)
    alike = _with_one_unit(hw) if any(step.alike for step in steps) else hw
    for number, step in enumerate(steps, start=1):
        context = PassContext(hw if step.deals else alike, step.name, given=step.choices)
        started = time.perf_counter()
        try:
            result = run_pass(step, program, context)
            if context.given is not None:
                context.given.check_taken(step.name, context.taken, _paths(program))
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
            _verify_result(program, result, hw, number, steps)
        verified = time.perf_counter()
        verdict = _validate_result(program, result, hw, number, steps) if verify == "full" else None
        report = StepReport(
            number, step, ended - started, changed, tuple(context.remarks), context.choices, verified - ended,
            time.perf_counter() - verified, verdict,
        )  # fmt: skip
        for observe in observers:
            observe(report, result)
        program = result
    return program


def _with_one_unit(hw: HwConfig) -> HwConfig:
    """The target with one of each of its computing units."""
    units = (msgspec.structs.replace(u, count=1) if u.kind == "compute" else u for u in hw.units)
    return msgspec.structs.replace(hw, units=tuple(units))


def _paths(program: Program) -> list[str]:
    roots = [root for root in (program.root, program.load) if root is not None]
    return ["/".join(path) for root in roots for path, _ in walk(root)]


# Rules about program and target together: whether they hold is up to the sizes, reaches and abilities that
# the target states, and to the order of its pipeline, of which a pass sees one step.
_TARGET_RULES = {
    "V037": "help: use smaller tiles, a farther memory, or give this one more bytes",
    "V062": "help: let the unit reach that memory; or bring data to one that it reaches, by 'transfer'",
    "V063": "help: let a unit of the target do this, in 'operations', 'types', 'specials' or by a stencil",
}
_ADDRESS_RULES = dict.fromkeys(
    ("V060", "V061", "V064"), "help: buffers have addresses already: 'place' belongs at the end of a pipeline"
)


def _verify_result(before: Program, after: Program, hw: HwConfig, number: int, steps: Sequence[Pass]) -> None:
    try:
        verify_program(after, hw)
    except CompileError as error:
        rules = _TARGET_RULES | (_ADDRESS_RULES if _has_addresses(before) else {})
        if any(found.code not in rules for found in error.diagnostics):
            raise InvariantError(f"{_place(number, steps)} made an invalid program:\n{error}") from error
        step = steps[number - 1]
        what = f"after the pass '{step.name}' (step {number}: {pass_spec(step)}), '{hw.name}' can't run this"
        raise CompileError(
            *(
                Diagnostic("P006", f"{what}: {d.message} ({d.code})", d.span, (rules[d.code], *_advice(d)))
                for d in error.diagnostics
            )
        ) from None


def _advice(found: Diagnostic) -> list[str]:
    """What a rule of the verifier says that would be enough."""
    return [note for note in found.notes if note.endswith("it fits")]


def _has_addresses(program: Program) -> bool:
    return any(
        ref.location is not None and ref.location.address is not None
        for _, block in walk(program.root)
        for ref in block.refinements
    )


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
