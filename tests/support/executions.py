"""One program through the pipeline of a target, executed after every pass and as native code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from codegen_cpu.build import build
from codegen_cpu.host import check_runs_here, complete_host
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.base import Pass
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import check_pipeline, pass_spec

Array = np.ndarray[Any, Any]
Results = Mapping[str, Array]
Check = Callable[[Results, str], None]  # results, and where they come from


@cache
def target(name: str) -> HwConfig:
    return load_named(name)


@cache
def pipeline(name: str) -> tuple[Pass, ...]:
    return check_pipeline(target(name))


@cache
def native_target(name: str) -> HwConfig | None:
    """The target completed for this machine, or None if its code does not run here."""
    hw = target(name)
    if hw.executor != "cpu":
        return None
    try:
        check_runs_here(hw)
        return complete_host(hw)
    except CompileError:
        return None


def run_native(program: Program, hw: HwConfig, inputs: Results) -> dict[str, Array]:
    """The outputs that native code gives, by name."""
    kernel = NativeKernel(build(program, hw))
    results = kernel(**inputs)
    return dict(zip(kernel.outputs, results if isinstance(results, tuple) else (results,), strict=True))


@dataclass
class Tally:
    """How many programs ran, and on how many each pass acted."""

    programs: int = 0
    native: int = 0
    acted: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        passes = ", ".join(f"{name} acted on {count}" for name, count in self.acted.items())
        return f"{self.programs} programs, {self.native} of them as native code; {passes}"


def check_stages(program: Program, inputs: Results, name: str, check: Check, tally: Tally) -> Program:
    """Run the pipeline of the target `name`, verifying after each pass, and check the results of
    each program that a pass changed, and of the last one as native code. Gives the last one."""
    acted: set[str] = set()

    def observe(report: StepReport, result: Program) -> None:
        acted.update(remark.pass_name for remark in report.remarks if remark.acted)
        if report.changed:
            check(interpret(result, inputs), f"{name}, after step {report.number}: {pass_spec(report.step)}")

    last = run_pipeline(program, pipeline(name), target(name), observers=[observe])
    hw = native_target(name)
    if hw is not None:
        check(run_native(last, hw, inputs), f"{name}, native code")
        tally.native += 1
    tally.programs += 1
    for step in pipeline(name):
        tally.acted.setdefault(step.name, 0)
    for pass_name in acted:
        tally.acted[pass_name] = tally.acted.get(pass_name, 0) + 1
    return last
