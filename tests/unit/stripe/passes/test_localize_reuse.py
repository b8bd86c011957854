"""Results that localize writes over dead inputs, and those that it does not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from stripe.interp import interpret
from stripe.passes.base import PassContext
from stripe.passes.localize import Localize
from stripe.verify import findings
from tests.support.native import host, run
from tests.support.passes import check_pass
from tests.support.window_programs import window_program
from tests.unit.stripe.passes.test_fuse import copy, elementwise, kernel, main

REUSE = Localize(reuse=True)


def test_a_chain_lies_in_one_buffer() -> None:
    names = ["X", "T0", "T1", "T2", "T3", "R"]
    program = main(
        "in X 6 8; " + "; ".join(f"new {t} 6 8" for t in names[1:-1]) + "; out R 6 8",
        *(elementwise(name, source) for source, name in pairwise(names)),
    )
    program, remarks = check_pass(program, REUSE)
    assert [r.name for r in program.root.refinements] == ["X", "T0", "R"]
    middle = program.root.children[1]
    assert [str(r.direction) for r in middle.refinements] == ["inout"]
    assert [r.message for r in remarks if r.acted] == [
        "'T1' is written in place of 'T0', which nothing needs any more",
        "'T2' is written in place of 'T1', which nothing needs any more",
        "'T3' is written in place of 'T2', which nothing needs any more",
    ]
    assert all(r.data["bytes_saved"] == 6 * 8 * 4 for r in remarks if r.acted)


def test_not_without_being_asked() -> None:
    program = main(
        "in X 6 8; new T 6 8; new U 6 8; out R 6 8",
        elementwise("T", "X"), elementwise("U", "T"), elementwise("R", "U"),
    )  # fmt: skip
    assert check_pass(program, Localize())[0] is program


TURNED = copy("U", "i:8, j:8", "T[j, i]", "U[i, j]")
SHIFTED = kernel(
    "U",
    "i:8, j:8",
    "in T[i, j] f32(1, 1); in N = T[i, 7 - j] f32(1, 1); out U[i, j]:assign f32(1, 1)",
    "$t = load(T) f32\n$n = load(N) f32\n$u = sub($t, $n) f32\nU = store($u)",
)
WINDOW = kernel(
    "U",
    "i:8, j:8, k:8",
    "in T[i, k] f32(1, 1); out U[i, j]:add f32(1, 1)",
    "$t = load(T) f32\nU = store($t)",
)


@pytest.mark.parametrize("middle", [TURNED, SHIFTED, WINDOW], ids=["turned", "two views", "sum"])
def test_an_element_that_another_point_reads_is_not_replaced(middle: str) -> None:
    program = main(
        "in X 8 8; new T 8 8; new U 8 8; out R 8 8",
        elementwise("T", "X", (8, 8)), middle, elementwise("R", "U", (8, 8)),
    )  # fmt: skip
    assert check_pass(program, REUSE)[0] is program


def test_an_input_that_is_needed_later_stays() -> None:
    program = main(
        "in X 6 8; new T 6 8; new U 6 8; out R 6 8; out Q 6 8",
        elementwise("T", "X"), elementwise("U", "T"), elementwise("R", "U"), elementwise("Q", "T"),
    )  # fmt: skip
    assert check_pass(program, REUSE)[0] is program


def test_a_result_that_is_written_before_the_last_load_has_its_own_place() -> None:
    late = kernel(
        "U",
        "i:6, j:8",
        "in T[i, j] f32(1, 1); out U[i, j]:assign f32(1, 1); out V[i, j]:assign f32(1, 1)",
        "$c = constant(2.0) f32\nU = store($c)\n$t = load(T) f32\nV = store($t)",
    )
    program = main(
        "in X 6 8; new T 6 8; new U 6 8; out V 6 8; out R 6 8",
        elementwise("T", "X"), late, elementwise("R", "U"),
    )  # fmt: skip
    assert check_pass(program, REUSE)[0] is program


def test_random_programs_compute_the_same() -> None:
    acted = 0
    for seed in range(150):
        made = window_program(seed, 8)
        program = made.compile()
        context = PassContext(host())
        result = REUSE.run(program, context)
        saved = [r for r in context.remarks if r.acted and "in place of" in r.message]
        if not saved:
            continue
        acted += 1
        assert findings(result, host()) == ()
        expected, got = interpret(program, made.inputs), interpret(result, made.inputs)
        native = run(result, made.inputs) if acted < 6 else got
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value, err_msg=made.text)
            np.testing.assert_array_equal(native[name], value, err_msg=made.text)
    assert acted > 5
