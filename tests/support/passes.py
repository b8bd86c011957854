"""What every pass must keep, checked in one call."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from textwrap import dedent
from typing import Any

import numpy as np

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Remark, Source
from stripe.interp import interpret
from stripe.ir import Program
from stripe.parser import parse
from stripe.passes.base import Pass, PassContext
from stripe.printer import to_text
from stripe.validate import validate
from stripe.verify import findings, verify
from tests.support.meaning import Array, assert_same_meaning, random_inputs


def program_of(text: str) -> Program:
    """A verified program from indented text."""
    program = parse(Source("test.stripe", dedent(text)))
    verify(program)
    return program


def check_pass(
    program: Program, step: Pass, hw: HwConfig | None = None, *, again: bool = True, rtol: float = 0.0
) -> tuple[Program, list[Remark]]:
    """Run a pass and check its contract; the result and the remarks.

    The result verifies on the target and computes the same on random small integers (the same
    bits, unless `rtol` allows a relative error, for sums of values that are no integers); an equal
    program is the same object; with `again`, a second run changes nothing.
    """
    hw = hw or load_named("generic")
    context = PassContext(hw)
    before = to_text(program)
    result = step.run(program, context)
    assert to_text(program) == before, "the pass changed its input"
    verify(result, hw)
    if result is program:
        assert not any(r.acted for r in context.remarks), "a pass that did nothing says that it acted"
    else:
        assert result != program, "the pass rebuilt the program without changing it"
        rng = np.random.default_rng(zlib.crc32(before.encode()))
        if rtol == 0.0:
            assert_same_meaning(program, result, rng)
        else:
            _assert_close(program, result, random_inputs(program, rng), rtol)
    if again:
        assert step.run(result, PassContext(hw)) is result, "a second run changes the program again"
    return result, context.remarks


def check_proved(
    program: Program, step: Pass, hw: HwConfig | None = None, *, again: bool = True
) -> tuple[Program, list[Remark]]:
    """As `check_pass`; the result is proved to compute the same, too."""
    made, remarks = check_pass(program, step, hw, again=again)
    verdict = validate(program, made)
    assert verdict.status == "proved", str(verdict)
    return made, remarks


def outcomes(
    program: Program,
    step: Pass,
    contexts: Iterable[PassContext],
    inputs: Mapping[str, Array],
    rtol: float = 0.0,
) -> Iterator[str]:
    """What a pass does with a program in each context: `refused`, `left`, or `acted` and what is known of
    that, `proved` or `unproved`. What it makes is well formed, is not shown to compute anything else, and on
    these inputs has the same bits (or with `rtol` about the same values)."""
    expected = interpret(program, dict(inputs))
    for context in contexts:
        try:
            made = step.run(program, context)
        except CompileError:
            yield "refused"
            continue
        if made is program:
            yield "left"
            continue
        assert findings(made, context.hw) == (), to_text(made)
        verdict = validate(program, made).status
        assert verdict != "refuted", to_text(made)
        for name, value in interpret(made, dict(inputs)).items():
            if rtol:
                np.testing.assert_allclose(value, expected[name], rtol, err_msg=to_text(made))
            else:
                np.testing.assert_array_equal(value, expected[name], err_msg=to_text(made))
        yield "acted"
        yield verdict


def chosen_of(remark: Remark) -> dict[str, Any]:
    """The tile that a remark of `autotile` tells of."""
    chosen = remark.data["chosen"]
    assert isinstance(chosen, dict)
    return chosen


def _assert_close(before: Program, after: Program, inputs: dict[str, Array], rtol: float) -> None:
    expected, got = interpret(before, inputs), interpret(after, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=rtol, err_msg=name)
