"""Translation validation on everything: what passes made of the corpus is proved, what is wrong is not.

And tags have no meaning: without them every stage of every pipeline is the same program.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from hwconfigs.load import available, load
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.base import Pass
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import make_passes, parse_pipeline
from stripe.validate import validate
from stripe.validate_run import checked, difference
from stripe.verify import findings
from tests.support.executions import native_target, pipeline, run_native, target
from tests.support.ir_mutants import mutants
from tests.support.native import without_tags
from tests.support.programs import Options, corpus, make_program
from tests.support.random_nests import random_program
from tests.support.tile_corpus import CORPUS, TileCase, assert_agrees, make_inputs

SMALL = Path(__file__).parents[1] / "golden" / "targets" / "tiny.json"
PLACED = "canonicalize,fuse,localize,scalarize,autotile{memory=SPAD},transfer,schedule,place"


def changes(program: Program, steps: Sequence[Pass], hw: HwConfig) -> Iterator[tuple[Pass, Program, Program]]:
    """Each step of a pipeline that changes the program: the step, before, after."""
    found: list[tuple[Pass, Program, Program]] = []
    last = [program]

    def observe(report: StepReport, result: Program) -> None:
        if report.changed:
            found.append((report.step, last[0], result))
        last[0] = result

    with suppress(CompileError):  # not every target takes every program
        run_pipeline(program, steps, hw, observers=[observe], verify="off")
    yield from found


def check_proofs(programs: Sequence[tuple[str, Program]], steps: Sequence[Pass], hw: HwConfig) -> None:
    """At least 90 % of the changed kernels are proved, of each pass and in all; none is refuted."""
    proved, changed = Counter[str](), Counter[str]()
    for name, program in programs:
        for step, before, after in changes(program, steps, hw):
            verdict = validate(before, after)
            changed[step.name] += len(verdict.kernels)
            proved[step.name] += verdict.proved_kernels
            if verdict.status != "proved":
                by_running = checked(before, after)
                print(f"{hw.name}, {name}, {step.name}: {by_running}")
                assert by_running.status != "refuted", (name, step)
    print(hw.name, ", ".join(f"{name} {proved[name]} of {count}" for name, count in changed.items()))
    assert changed.total() > 0
    assert all(proved[name] >= 0.9 * count for name, count in changed.items())


def placed() -> tuple[Sequence[Pass], HwConfig]:
    hw = load(SMALL)
    return make_passes(parse_pipeline(PLACED, hw)), hw


def tile_programs(every: int) -> list[tuple[str, Program]]:
    return [(case.name, case.program()) for case in CORPUS[::every]]


def test_most_kernels_are_proved() -> None:
    check_proofs(tile_programs(6), pipeline("x86_64_avx512"), target("x86_64_avx512"))
    check_proofs(tile_programs(8), *placed())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*available(), "placed"])
def test_most_kernels_are_proved_on_all(name: str) -> None:
    programs = [*tile_programs(1), *corpus().items()]
    programs += [
        (f"program {seed}", make_program(seed, Options(load_time=seed % 3 == 0))) for seed in range(100)
    ]
    steps, hw = placed() if name == "placed" else (pipeline(name), target(name))
    check_proofs(programs, steps, hw)


def check_mutants(programs: Sequence[tuple[str, Program]], count: int) -> Counter[str]:
    """Of changed programs that verify: what computes something else is never proved."""
    found = Counter[str]()
    for name, program in programs:
        for number, mutant in enumerate(mutants(program, random.Random(name), count)):
            if findings(mutant):
                found["not valid"] += 1
                continue
            verdict = validate(program, mutant)
            wrong = difference(program, mutant)
            assert wrong is None or verdict.status != "proved", f"{name}, mutant {number}: {wrong}"
            found["different" if wrong is not None else "same, " + verdict.status] += 1
    return found


def test_no_wrong_program_is_proved() -> None:
    programs = [*corpus().items(), *tile_programs(6)]
    found = check_mutants(programs, 6)
    assert found["different"] >= 20, found


@pytest.mark.slow
def test_no_wrong_program_is_proved_at_length() -> None:
    programs = [*corpus().items(), *tile_programs(1)]
    programs += [
        (f"program {seed}", make_program(seed, Options(load_time=seed % 3 == 0))) for seed in range(80)
    ]
    nests = [(f"nest {seed}", random_program(np.random.default_rng(seed))) for seed in range(200)]
    programs += [(name, program) for name, program in nests if not findings(program)]
    for name, program in tile_programs(3):
        stages = [after for _, _, after in changes(program, pipeline("generic"), target("generic"))]
        programs += [(f"{name}, last stage", stage) for stage in stages[-1:]]
    found = check_mutants(programs, 30)
    print(found)
    assert found["different"] >= 1000, found


def check_tags(case: TileCase, name: str, *, native: bool) -> None:
    """Every stage without its tags verifies, is proved the same, and gives the same results."""
    program, hw = case.program(), native_target(name)
    inputs = make_inputs(case, np.random.default_rng(0))
    wanted = interpret(program, inputs)
    stages = [after for _, _, after in changes(program, pipeline(name), target(name))]
    for number, stage in enumerate(stages):
        bare = without_tags(stage)
        assert not findings(bare, target(name)), case.name
        assert validate(stage, bare).status == "proved", case.name
        results = [interpret(bare, inputs)]
        if hw is not None and (native or number == len(stages) - 1):
            results.append(run_native(bare, hw, inputs))
        for got in results:
            for output, value in wanted.items():
                assert_agrees(f"{case.name}, stage {number}: {output}", got[output], value)


@pytest.mark.parametrize("case", CORPUS[::12], ids=lambda case: case.name)
def test_tags_have_no_meaning(case: TileCase) -> None:
    check_tags(case, "generic", native=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", available())
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_tags_have_no_meaning_in_any_stage(case: TileCase, name: str) -> None:
    check_tags(case, name, native=True)
