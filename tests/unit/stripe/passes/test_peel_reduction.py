"""peel-reduction: what it makes, why it declines; native code; generated programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from stripe.ir import Aggregation, Direction, Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.peel_reduction import PeelReduction
from stripe.verify import findings
from tests.support import native
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of
from tests.support.programs import make_program
from tests.support.random_nests import random_program

GOLDEN = Path(__file__).parents[3] / "golden/passes/peel_reduction"
GENERIC = load_named("generic")
ALL = PeelReduction(least_bytes=0)


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.stripe").read_text(encoding="utf-8").partition("// ---- expect")[0]


def peeled(text: str, step: PeelReduction = ALL) -> tuple[Program, str]:
    """The result and the message of the only remark."""
    result, (remark,) = check_pass(program_of(text), step, GENERIC)
    assert remark.acted == (not remark.message.startswith("not peeled"))
    return result, remark.message


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.stripe")))
def test_it_computes_the_same_and_again_changes_nothing(name: str) -> None:
    check_pass(program_of(golden(name)), ALL, GENERIC)


def test_first_middle_and_last() -> None:
    result, message = peeled(golden("siblings"))
    assert message == "peeled k; 'r' ends it"
    uses = [b.refinement("C") for b in result.root.children]
    assert [(u.direction, u.aggregation) for u in uses] == [
        (Direction.OUT, Aggregation.ASSIGN),
        (Direction.INOUT, Aggregation.ADD),
        (Direction.INOUT, Aggregation.ASSIGN),
    ]


def test_the_epilogue_stays_where_it_was_if_asked() -> None:
    result, message = peeled(golden("siblings"), PeelReduction(least_bytes=0, epilogue=False))
    assert message == "peeled k"
    assert [b.name for b in result.root.children] == ["c", "c_1", "r"]


@pytest.mark.parametrize(("least", "acts"), [(2048, True), (2049, False)])
def test_small_results_stay_near(least: int, acts: bool) -> None:
    result, message = peeled(golden("siblings"), PeelReduction(least_bytes=least))
    assert acts == (len(result.root.children) == 3)
    assert acts or message == "not peeled: 'C' has 2048 bytes: it stays near"


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("in C[x, y] f32(1, 1)", "in C[31 - x, y] f32(1, 1)", "does not take 'C' element by element"),
        (
            "in D[y] f32(1):(1)",
            "in D[y] f32(1):(1)  in E = C[0, 0] f32(1, 1)",
            "or there are several views of it",
        ),
        ("block r [x:32, y:16] (", "block r [x:32, y:16] @CORE (", "has tags or a place already"),
    ],
)
def test_what_follows_stays_outside_where_it_is_no_epilogue(old: str, new: str, note: str) -> None:
    result, message = peeled(golden("siblings").replace(old, new))
    assert message.startswith("peeled k; 'r' stays behind it: ") and message.endswith(note), message
    assert [b.name for b in result.root.children] == ["c", "c_1", "r"]


def test_what_lies_in_registers_is_left_alone() -> None:
    text = golden("accumulators").replace(
        "out C[0]:assign f32(32):(1)\n", "out R[0]:assign f32(32)  new C f32(32) @REG\n", 1
    )
    copy = "block r [m:32] (in C[m] f32(1)  out R[m]:assign f32(1)) { $v = load(C) f32  R = store($v) }"
    text = (
        text.replace("new C_acc f32(4):(1) @REG", "new C_acc f32(4):(1)").rstrip().removesuffix("}")
        + copy
        + "}"
    )
    _, message = peeled(text)
    assert message == "not peeled: 'C' stays in registers"


def test_a_narrow_sum_is_rounded_once() -> None:
    text = golden("accumulators").replace("f32", "bf16")
    _, message = peeled(text)
    assert message == "not peeled: 'C' would be rounded to bf16 in between"


def test_a_level_that_adds_up_is_not_peeled() -> None:
    result, message = peeled(golden("tiles_around"), PeelReduction(least_bytes=0, epilogue=False))
    assert message == "peeled k"
    frame = result.root.children[0]
    assert (frame.refinement("C").aggregation, len(frame.children)) == (Aggregation.ASSIGN, 2)


def test_native_code() -> None:
    for name in ("siblings", "tiles_around", "accumulators"):
        program = program_of(golden(name))
        inputs = random_inputs(program, np.random.default_rng(5))
        expected = native.run(program, inputs)
        for hw in native.runnable():
            result = native.run(ALL.run(program, PassContext(hw)), inputs, hw)
            for output, value in expected.items():
                np.testing.assert_allclose(result[output], value, rtol=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_random_nests(seed: int) -> None:
    program = random_program(np.random.default_rng(seed))
    if not findings(program):
        check_pass(program, ALL, again=False)


@pytest.mark.parametrize("number", range(12))
def test_generated_programs(number: int) -> None:
    step = Autotile(memory="L1", cost="cache_lines_per_point", max_candidates=64, reductions=True)
    tiled = step.run(make_program(number), PassContext(GENERIC))
    check_pass(tiled, ALL, again=False, rtol=1e-4)
