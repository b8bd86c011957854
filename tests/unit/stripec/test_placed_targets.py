"""Targets that manage their memories, executed by the interpreter on the addresses given."""

from __future__ import annotations

import numpy as np
import pytest

import stripec
from hwconfigs.model import HwConfig, Memory, PassStep, Unit
from stripe.diag import CompileError
from stripe.parser import parse

TEXT = """
block main [] @CORE (in X[0] i32(4):(1) @FAR:0  out Y[0]:assign i32(4):(1) @FAR:16) {
  block twice [x:4] (in X[x] i32(1)  out Y[x]:assign i32(1)) {
    $x = load(X) i32
    $y = add($x, $x) i32
    Y = store($y)
  }
}
"""
X = np.arange(4, dtype=np.int32)


def machine(*steps: str) -> HwConfig:
    return HwConfig(
        "machine", "one memory, one core", "interpreter",
        memories=(Memory("FAR", "explicit", 4096),),
        units=(Unit("CORE", reaches=("FAR",)), Unit("DMA", "transfer", reaches=("FAR",))),
        pipeline=tuple(PassStep(step) for step in steps),
    )  # fmt: skip


def test_a_program_runs_on_its_addresses() -> None:
    np.testing.assert_array_equal(stripec.compile(parse(TEXT), target=machine())(X), 2 * X)


def test_a_wrong_address_gives_a_wrong_result() -> None:
    planted = parse(TEXT.replace("@FAR:16", "@FAR:4"))
    kernel = stripec.compile(planted, target=machine(), verify="off")
    np.testing.assert_array_equal(kernel(X + 1), [2, 4, 8, 16])


def test_a_pipeline_that_ends_with_place_leaves_nothing_unplaced() -> None:
    lacking = TEXT.replace(" @CORE", "").replace("@FAR:0", "").replace("@FAR:16", "")
    assert "main" in stripec.compile(parse(lacking), target=machine()).stripe
    with pytest.raises(CompileError) as caught:
        stripec.compile(parse(lacking), target=machine("place"))
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"V065"}
    assert "no unit of machine executes it" in str(caught.value)
    assert stripec.compile(parse(TEXT), target=machine("place"))(X).tolist() == [0, 2, 4, 6]
