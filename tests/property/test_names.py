"""Names mean nothing, and nothing is left to chance.

A program under other names goes through the passes to the same program up to names, and to the
same machine code. The same text gives the same stages, LLVM text, assembly and cache key, twice in
a process and under any hash seed.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from codegen_cpu.build import build
from hwconfigs.load import available
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.printer import to_text
from stripe.verify import verify
from tests.support.executions import native_target, pipeline, target
from tests.support.programs import Options, corpus, make_program
from tests.support.renaming import by_position, scrambled
from tests.support.tile_corpus import CORPUS

ROOT = Path(__file__).parents[2]
TARGETS = ("x86_64_avx512", "generic")


def made(seed: int) -> tuple[str, Program]:
    return f"seed {seed}", make_program(seed, Options(load_time=seed % 3 == 0))


def assembly(program: Program, name: str) -> str:
    """Without comments, which name loops; empty if the target is none of this machine's."""
    hw = native_target(name)
    text = "" if hw is None else build(program, hw, name="f").asm
    return re.sub(r"[ \t]*#.*", "", text)


def outcome(program: Program, name: str) -> tuple[Program | None, list[str]]:
    """What the passes make of a program; or the codes of the errors, where the target can't
    run it."""
    try:
        return run_pipeline(program, pipeline(name), target(name)), []
    except CompileError as error:
        return None, [d.code for d in error.diagnostics]


def check(programs: Iterable[tuple[str, Program]], targets: Iterable[str], *, native: bool) -> None:
    for what, program in programs:
        other = scrambled(program, random.Random(what))
        verify(other)
        for name in targets:
            (one, errors), (two, again) = (outcome(p, name) for p in (program, other))
            assert errors == again, f"{what} on {name}"
            if one is None or two is None:
                continue
            assert to_text(by_position(one)) == to_text(by_position(two)), f"{what} on {name}"
            if native:
                assert assembly(one, name) == assembly(two, name), f"{what} on {name}"


def test_passes_go_by_no_name() -> None:
    check([*corpus().items(), *map(made, range(20))], TARGETS, native=False)


def test_code_goes_by_no_name() -> None:
    check([*corpus().items()], TARGETS[:1], native=True)


def test_copies_of_another_number_of_dimensions_stay_copies() -> None:
    """One end of such a copy is no place of the other, which `schedule` asks before it joins them."""
    check([made(243)], ["vector_dsp"], native=False)


@pytest.mark.slow
def test_nothing_goes_by_a_name() -> None:
    tile = [(case.name, case.program()) for case in CORPUS]
    # The pipeline of paper_figure4 says by name which indexes it tiles.
    targets = [name for name in available() if name != "paper_figure4"]
    check([*tile, *map(made, range(20, 400))], targets, native=True)


# -- chance --------------------------------------------------------------------------------------

SCRIPT = """
import re
import sys
from codegen_cpu.build import build
from codegen_cpu.target import Target
from stripe.passes.pipeline import run_pipeline
from stripe.printer import to_text
from tests.support.executions import pipeline, target
from tests.support.programs import corpus, make_program
from tests.support.tile_corpus import CORPUS

def everything():
    programs = [*corpus().values(), *(make_program(seed) for seed in range(4))]
    programs += [case.program() for case in CORPUS[::40]]
    for program in programs:
        stages = [to_text(program)]
        said = lambda report: re.sub(r"'seconds': [^,}]*", "", repr(report.remarks))
        observe = lambda report, result: stages.extend((to_text(result), said(report)))
        last = run_pipeline(program, pipeline("x86_64_avx512"), target("x86_64_avx512"), observers=[observe])
        module = build(last, target("x86_64_avx512"))
        yield from (*stages, module.emitted, module.llvm, module.asm, repr(module.target))

first = list(everything())
assert first == list(everything()), "another result in the same process"
sys.stdout.buffer.write("\\0".join(first).encode())
"""


def test_the_same_text_gives_the_same_code() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    outputs = [process.communicate(timeout=300) for process in runs]
    for process, (_, errors) in zip(runs, outputs, strict=True):
        assert process.returncode == 0, errors.decode()
    one, two = (output.split(b"\0") for output, _ in outputs)
    assert one == two and len(one) > 100
